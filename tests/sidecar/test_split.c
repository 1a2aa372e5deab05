/* Aim: whatever a frame holds, its parts hold the same rows: by table, cut into messages of any
 * size, and set aside in a file under symbol ids of its own.
 * Method: frames of many blocks, of several tables in any order and all types, from a printed seed;
 * parts are decoded with every check and their rows, as JSON lines, compared with the frame's. */
#include "sidecar/qwp_split.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/wire/qwp_names.h"
#include "sidecar/qwp_blame.h"
#include "sidecar/qwp_rejected.h"
#include "sidecar/qwp_rejected_read.h"
#include "sidecar/qwp_roll.h"
#include "sidecar/qwp_row_json.h"
#include "tests/core/encode_random.h"

enum { ROUNDS = 25, BLOCKS_MAX = 6, TABLES = 3 };

static const char *const table_names[TABLES] = {"alpha", "beta", "Gamma"};
static struct qwp_decoder texts; /* holds the symbols */
static uint64_t state;

static struct qwp_name text_of(const void *decoder, uint32_t id)
{
    return qwp_decoder_symbol(decoder, id);
}

/* Rows of a message as JSON lines, those of one table only unless NULL. */
struct lines {
    char *text;
    size_t len;
    uint64_t rows;
};

static void lines_add(struct lines *lines, struct qwp_decoder *decoder,
                      const struct qwp_message *message, const char *table)
{
    char *text;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    qwp_row_json_print(decoder, message, UINT64_MAX, out);
    fclose(out);
    char wanted[64];
    snprintf(wanted, sizeof wanted, "{\"table\":\"%s\"", table != NULL ? table : "");
    for (char *at = text; *at != '\0';) {
        char *end = strchr(at, '\n') + 1;
        if (table == NULL || strncasecmp(at, wanted, strlen(wanted)) == 0) {
            lines->text = realloc(lines->text, lines->len + (size_t)(end - at) + 1);
            memcpy(lines->text + lines->len, at, (size_t)(end - at));
            lines->len += (size_t)(end - at);
            lines->text[lines->len] = '\0';
            lines->rows++;
        }
        at = end;
    }
    free(text);
}

static void expect_lines(const struct lines *got, const struct lines *want)
{
    ck_assert_uint_eq(got->rows, want->rows);
    ck_assert_msg(got->len == want->len && memcmp(got->text, want->text, got->len) == 0,
                  "other rows:\n%.2000s\n%.2000s", got->text, want->text);
}

static bool has_type(const struct fixture *f, uint8_t type)
{
    for (uint32_t i = 0; i < f->block.column_count; i++) {
        if (f->block.columns[i].type == type) {
            return true;
        }
    }
    return false;
}

/* A frame of random blocks. */
static struct qwp_bytes random_frame(void)
{
    struct qwp_bytes out = {0};
    qwp_message_begin(qwp_bytes_grow(&out, QWP_HEADER_BYTES),
                      QWP_FLAG_DELTA_DICT | QWP_FLAG_GORILLA);
    qwp_bytes_put(&out, "\0\0", 2);
    const uint32_t blocks = 1 + random_below(&state, BLOCKS_MAX);
    uint32_t count = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        struct fixture f;
        random_fixture(&f, &state);
        /* FLOAT may come out as DOUBLE where another block of the table has one, with other
         * digits, and microseconds as nanoseconds: so those are kept apart. */
        const bool floats = has_type(&f, QWP_TYPE_FLOAT);
        const bool us = f.block.designated_type == QWP_TYPE_TIMESTAMP;
        if (floats && (us || has_type(&f, QWP_TYPE_DOUBLE))) {
            fixture_free(&f);
            i--;
            continue;
        }
        const char *name = floats ? table_names[0]
                           : us   ? table_names[1]
                                  : table_names[2 + random_below(&state, TABLES - 2)];
        f.block.table = (struct qwp_name){name, (uint32_t)strlen(name)};
        struct qwp_encoded done;
        const unsigned flags =
            QWP_ENCODE_GORILLA | (random_below(&state, 2) == 0 ? QWP_ENCODE_COMPACT_TIME : 0);
        ck_assert_int_eq(fixture_encode(&f, flags, &done), QWP_OK);
        qwp_bytes_put(&out, f.dst, done.len);
        count += done.table_count;
        fixture_free(&f);
    }
    qwp_message_finish(out.at, (uint16_t)count, out.len);
    return out;
}

static void split_of(struct qwp_split *split, const struct qwp_bytes *frame)
{
    struct qwp_error err;
    qwp_split_init(split);
    ck_assert_msg(qwp_split_open(split, frame->at, frame->len, text_of, &texts, RANDOM_SYMBOLS,
                                 &err) == QWP_OK,
                  "%s", err.text);
}

/* Decodes a part with every check and adds its rows. */
static void part_read(struct lines *lines, const struct qwp_bytes *part)
{
    struct qwp_decoder decoder;
    const struct qwp_decoder_options options = {
        .symbol_text = text_of, .symbols = &texts, .symbol_count = RANDOM_SYMBOLS};
    qwp_decoder_init(&decoder, &options);
    struct qwp_message message;
    struct qwp_error err;
    ck_assert_msg(qwp_decode_message(&decoder, part->at, part->len, &message, &err) == QWP_OK, "%s",
                  err.text);
    lines_add(lines, &decoder, &message, NULL);
    qwp_decoder_fini(&decoder);
}

static const char *name_of(const struct qwp_split_table *table)
{
    for (int i = 0; i < TABLES; i++) {
        if (qwp_name_equal(table_names[i], strlen(table_names[i]), table->name.text,
                           table->name.len)) {
            return table_names[i];
        }
    }
    ck_abort_msg("a table that nobody wrote");
    return NULL;
}

START_TEST(split_by_table_keeps_rows)
{
    struct qwp_bytes frame = random_frame();
    struct qwp_split split;
    split_of(&split, &frame);
    uint64_t rows = 0;
    for (uint32_t i = 0; i < split.table_count; i++) {
        const struct qwp_split_table *table = &split.tables[i];
        struct qwp_bytes part = {0};
        qwp_split_begin(&split, 0, &part);
        qwp_split_put_table(&split, table, &part);
        qwp_split_finish(&part, table->block_count);
        ck_assert_uint_eq(part.len, qwp_split_table_bytes(table));
        struct lines got = {0};
        struct lines want = {0};
        part_read(&got, &part);
        lines_add(&want, &split.decoder, &split.message, name_of(table));
        expect_lines(&got, &want);
        ck_assert_uint_eq(got.rows, table->row_count);
        rows += got.rows;
        free(got.text);
        free(want.text);
        qwp_bytes_fini(&part);
    }
    ck_assert_uint_eq(rows, split.message.row_count);
    qwp_split_fini(&split);
    qwp_bytes_fini(&frame);
}
END_TEST

START_TEST(chunks_of_any_size_keep_rows_and_stay_below)
{
    struct qwp_bytes frame = random_frame();
    struct qwp_split split;
    split_of(&split, &frame);
    const struct qwp_split_table *table = &split.tables[random_below(&state, split.table_count)];
    const size_t most = 200 + random_below(&state, 20000);
    struct lines got = {0};
    struct lines want = {0};
    struct qwp_bytes part = {0};
    for (uint64_t row = 0; row < table->row_count;) {
        uint64_t rows = 1;
        const enum qwp_result result = qwp_split_chunk(&split, table, row, most, 0, &part, &rows);
        ck_assert(result == QWP_OK || result == QWP_LIMIT);
        ck_assert(result == QWP_LIMIT ? rows == 1 && part.len > most : part.len <= most);
        part_read(&got, &part); /* the single row is there also when it is too large */
        row += rows;
    }
    lines_add(&want, &split.decoder, &split.message, name_of(table));
    expect_lines(&got, &want);
    free(got.text);
    free(want.text);
    qwp_bytes_fini(&part);
    qwp_split_fini(&split);
    qwp_bytes_fini(&frame);
}
END_TEST

/* A row of full width and then narrow ones: a part that begins later has a row of full width, too.
 */
START_TEST(chunks_of_compact_columns_begin_in_full_width)
{
    static const unsigned char blocks[] = {
        1, 't', 1, 1, 1, 'v', QWP_TYPE_LONG, 0, 7, 0, 0,    0, 0, 0, 0, 0, /* the first, as LONG */
        1, 't', 3, 1, 1, 'v', QWP_TYPE_BYTE, 0, 1, 2, 0xff,                /* three as BYTE */
    };
    struct qwp_bytes frame = {0};
    qwp_message_begin(qwp_bytes_grow(&frame, QWP_HEADER_BYTES), QWP_FLAG_DELTA_DICT);
    qwp_bytes_put(&frame, "\0\0", 2);
    qwp_bytes_put(&frame, blocks, sizeof blocks);
    qwp_message_finish(frame.at, 2, frame.len);
    struct qwp_split split;
    split_of(&split, &frame);
    ck_assert_uint_eq(split.table_count, 1);
    struct qwp_bytes part = {0};
    qwp_split_begin(&split, 0, &part);
    const uint32_t count = qwp_split_put_rows(&split, &split.tables[0], 2, 2, NULL, NULL, &part);
    qwp_split_finish(&part, count);
    static const unsigned char want[] = {
        1, 't', 1, 1, 1, 'v', QWP_TYPE_LONG, 0, 2,    0, 0, 0, 0, 0, 0, 0,
        1, 't', 1, 1, 1, 'v', QWP_TYPE_BYTE, 0, 0xff,
    };
    ck_assert_uint_eq(count, 2);
    ck_assert_uint_eq(part.len, QWP_HEADER_BYTES + 2 + sizeof want);
    ck_assert_mem_eq(part.at + QWP_HEADER_BYTES + 2, want, sizeof want);
    qwp_bytes_fini(&part);
    qwp_split_fini(&split);
    qwp_bytes_fini(&frame);
}
END_TEST

/* ---- set aside ---- */

static char dir[64];

static void dir_make(void)
{
    snprintf(dir, sizeof dir, "/tmp/qwp-split-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void dir_remove(void)
{
    struct qwp_rejected_names names;
    char path[512];
    char folder[80];
    snprintf(folder, sizeof folder, "%s/" QWP_REJECTED_FOLDER, dir);
    ck_assert_int_eq(qwp_rejected_names_read(&names, folder, NULL), QWP_OK);
    for (size_t i = 0; i < names.count; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names.list[i]);
        unlink(path);
    }
    qwp_rejected_names_fini(&names);
    rmdir(folder);
    rmdir(dir);
}

struct blocks {
    struct qwp_split *split;
    const struct qwp_split_table *table;
};

static uint32_t put_blocks(void *owner, qwp_recode_symbol_fn symbol_id, void *symbol_owner,
                           struct qwp_bytes *out)
{
    const struct blocks *blocks = owner;
    return qwp_split_put_rows(blocks->split, blocks->table, 0, blocks->table->row_count, symbol_id,
                              symbol_owner, out);
}

/* A name for the ids in use: a file holds those of one. */
static unsigned char generation;

static void aside(struct qwp_rejected *rejected, struct qwp_split *split,
                  const struct qwp_split_table *table, uint64_t fsn)
{
    struct blocks blocks = {split, table};
    const struct qwp_rejected_entry entry = {.table = table->name,
                                             .status = QWP_STATUS_SCHEMA_MISMATCH,
                                             .cause = QWP_REJECTED_REFUSED,
                                             .fsn = fsn,
                                             .row_count = table->row_count,
                                             .text = "no such type",
                                             .producers = "p, q"};
    const struct qwp_rejected_source source = {.blocks = put_blocks,
                                               .owner = &blocks,
                                               .flags = split->message.flags,
                                               .symbol_text = text_of,
                                               .symbols = &texts,
                                               .symbols_uuid = {generation}};
    struct qwp_error err;
    ck_assert_msg(qwp_rejected_append(rejected, &entry, &source, &err) == QWP_OK, "%s", err.text);
}

static void rejected_open(struct qwp_rejected *rejected)
{
    char folder[80];
    snprintf(folder, sizeof folder, "%s/" QWP_REJECTED_FOLDER, dir);
    const struct qwp_rejected_options options = {
        .dir = folder, .bytes_max = 1024 * 1024 * 1024, .durable = true};
    ck_assert_int_eq(qwp_rejected_open(rejected, &options, NULL), QWP_OK);
}

/* Reads what lies there of a table, oldest first, with nothing but the files. */
static void rejected_read(struct lines *lines, const char *table)
{
    char folder[80];
    snprintf(folder, sizeof folder, "%s/" QWP_REJECTED_FOLDER, dir);
    struct qwp_rejected_names names;
    ck_assert_int_eq(qwp_rejected_names_read(&names, folder, NULL), QWP_OK);
    for (size_t i = 0; i < names.count; i++) {
        struct qwp_rejected_content content;
        struct qwp_error err;
        ck_assert_msg(qwp_rejected_content_read(&content, folder, names.list[i], false, &err) ==
                          QWP_OK,
                      "%s", err.text);
        struct qwp_decoder decoder;
        qwp_decoder_init(&decoder, NULL);
        struct qwp_rejected_item item;
        for (size_t off = 0; strcasecmp(content.table, table) == 0 &&
                             qwp_rejected_content_next(&content, &off, &item);) {
            struct qwp_message message;
            ck_assert_uint_eq(item.symbols_before, decoder.dict.count);
            ck_assert_msg(qwp_decode_message(&decoder, item.message, item.message_len, &message,
                                             &err) == QWP_OK,
                          "%s", err.text);
            ck_assert_uint_eq(item.row_count, message.row_count);
            ck_assert_uint_eq(item.text_len, 12);
            ck_assert_mem_eq(item.text, "no such type", 12);
            ck_assert_mem_eq(item.producers, "p, q", 4);
            lines_add(lines, &decoder, &message, NULL);
        }
        qwp_decoder_fini(&decoder);
        qwp_rejected_content_fini(&content);
    }
    qwp_rejected_names_fini(&names);
}

START_TEST(rows_set_aside_are_read_back_from_the_files_alone)
{
    dir_make();
    struct qwp_rejected rejected;
    rejected_open(&rejected);
    struct lines want[TABLES] = {{0}};
    for (uint64_t fsn = 0; fsn < 4; fsn++) {
        struct qwp_bytes frame = random_frame();
        struct qwp_split split;
        split_of(&split, &frame);
        for (uint32_t i = 0; i < split.table_count; i++) {
            aside(&rejected, &split, &split.tables[i], fsn);
        }
        for (int t = 0; t < TABLES; t++) {
            lines_add(&want[t], &split.decoder, &split.message, table_names[t]);
        }
        generation = fsn >= 3; /* the same ids mean something else from here on */
        if (fsn == 1) {        /* another life */
            qwp_rejected_close(&rejected);
            rejected_open(&rejected);
        }
        qwp_split_fini(&split);
        qwp_bytes_fini(&frame);
    }
    generation = 0;
    ck_assert_int_eq(qwp_rejected_flush(&rejected, NULL), QWP_OK);
    for (int t = 0; t < TABLES; t++) {
        struct lines got = {0};
        rejected_read(&got, table_names[t]);
        ck_assert_uint_eq(got.rows, want[t].rows);
        ck_assert(got.rows == 0 || memcmp(got.text, want[t].text, got.len) == 0);
        free(got.text);
        free(want[t].text);
    }
    qwp_rejected_close(&rejected);
    dir_remove();
}
END_TEST

START_TEST(file_cut_anywhere_keeps_the_entries_before)
{
    dir_make();
    struct qwp_rejected rejected;
    rejected_open(&rejected);
    struct qwp_bytes frame = random_frame();
    struct qwp_split split;
    split_of(&split, &frame);
    size_t ends[4] = {QWP_REJECTED_HEADER_BYTES};
    char folder[80];
    char path[160];
    snprintf(folder, sizeof folder, "%s/" QWP_REJECTED_FOLDER, dir);
    snprintf(path, sizeof path, "%s/0000000000000000" QWP_REJECTED_SUFFIX, folder);
    for (uint64_t fsn = 1; fsn <= 3; fsn++) {
        aside(&rejected, &split, &split.tables[0], fsn);
        struct stat st;
        ck_assert_int_eq(stat(path, &st), 0);
        ends[fsn] = (size_t)st.st_size;
    }
    qwp_rejected_close(&rejected);
    /* Shorter and shorter, down to the header. */
    for (size_t cut = ends[3]; cut > ends[0]; cut -= 1 + random_below(&state, 60)) {
        ck_assert_int_eq(truncate(path, (off_t)cut), 0);
        struct qwp_rejected_content content;
        ck_assert_int_eq(qwp_rejected_content_read(
                             &content, folder, "0000000000000000" QWP_REJECTED_SUFFIX, false, NULL),
                         QWP_OK);
        uint64_t entries;
        uint64_t rows;
        qwp_rejected_content_count(&content, &entries, &rows);
        const uint64_t whole = (uint64_t)(cut >= ends[1]) + (cut >= ends[2]) + (cut >= ends[3]);
        ck_assert_uint_eq(entries, whole);
        ck_assert_uint_eq(rows, whole * split.tables[0].row_count);
        qwp_rejected_content_fini(&content);
        if (cut < ends[0] + 61) {
            break;
        }
    }
    qwp_split_fini(&split);
    qwp_bytes_fini(&frame);
    dir_remove();
}
END_TEST

/* Somebody who puts a file back has it locked, and removes it: appending goes on elsewhere. */
START_TEST(append_goes_on_in_another_file_while_one_is_put_back)
{
    dir_make();
    struct qwp_rejected rejected;
    rejected_open(&rejected);
    struct qwp_bytes frame = random_frame();
    struct qwp_split split;
    split_of(&split, &frame);
    aside(&rejected, &split, &split.tables[0], 1);
    char folder[80];
    char path[160];
    snprintf(folder, sizeof folder, "%s/" QWP_REJECTED_FOLDER, dir);
    snprintf(path, sizeof path, "%s/0000000000000000" QWP_REJECTED_SUFFIX, folder);
    struct qwp_rejected_content content;
    ck_assert_int_eq(qwp_rejected_content_read(&content, folder,
                                               "0000000000000000" QWP_REJECTED_SUFFIX, true, NULL),
                     QWP_OK);
    aside(&rejected, &split, &split.tables[0], 2);
    ck_assert_int_eq(unlink(path), 0);
    qwp_rejected_content_fini(&content);
    aside(&rejected, &split, &split.tables[0], 3);
    struct lines got = {0};
    rejected_read(&got, name_of(&split.tables[0]));
    ck_assert_uint_eq(got.rows, 2 * split.tables[0].row_count);
    free(got.text);
    qwp_rejected_close(&rejected);
    qwp_split_fini(&split);
    qwp_bytes_fini(&frame);
    dir_remove();
}
END_TEST

/* ---- who and what ---- */

START_TEST(blame_knows_what_is_done)
{
    struct qwp_blame blame = {0};
    ck_assert(qwp_blame_is_clear(&blame));
    for (uint64_t i = 0; i < 1000; i++) {
        const uint64_t fsn = (i * 7919) % 500;
        ck_assert(qwp_blame_set_done(&blame, fsn, i % 2, i < 500 ? 10 : QWP_DONE_ALL));
        ck_assert(qwp_blame_set_done(&blame, fsn, i % 2, 5)); /* never back */
    }
    for (uint64_t fsn = 0; fsn < 500; fsn++) {
        ck_assert_uint_eq(
            qwp_blame_done(&blame, fsn, 0) != 0 || qwp_blame_done(&blame, fsn, 1) != 0, 1);
        ck_assert_uint_eq(qwp_blame_done(&blame, fsn, 7), 0);
    }
    ck_assert(qwp_blame_set_split(&blame, 499));
    ck_assert(!qwp_blame_set_split(&blame, 499));
    qwp_blame_settle(&blame, 499);
    ck_assert_uint_eq(qwp_blame_done(&blame, 498, 0) + qwp_blame_done(&blame, 498, 1), 0);
    ck_assert(qwp_blame_is_split(&blame, 499));
    qwp_blame_settle(&blame, 500);
    ck_assert(qwp_blame_is_clear(&blame));
    struct qwp_blame_table *table =
        qwp_blame_add(&blame, (struct qwp_name){"Table", 5}, qwp_name_hash("Table", 5));
    ck_assert_ptr_eq(
        qwp_blame_find(&blame, (struct qwp_name){"tABLE", 5}, qwp_name_hash("tABLE", 5)), table);
    qwp_blame_forget(&blame, table);
    ck_assert(qwp_blame_is_clear(&blame));
    qwp_blame_fini(&blame);
}
END_TEST

struct charged {
    uint64_t rows[4];
};

static void charge(void *owner, uint32_t source, uint64_t rows)
{
    struct charged *charged = owner;
    charged->rows[source] += rows;
}

START_TEST(roll_tells_whose_rows_they_were)
{
    static const int a, b; /* two tables */
    struct qwp_roll roll;
    ck_assert(qwp_roll_init(&roll));
    for (uint64_t fsn = 0; fsn < QWP_ROLL_MAX; fsn++) { /* half of it is forgotten */
        qwp_roll_add(&roll, (struct qwp_roll_note){fsn, &a, 0, 10});
        qwp_roll_add(&roll, (struct qwp_roll_note){fsn, fsn % 2 == 0 ? &a : &b, 1, 5});
    }
    struct charged got = {{0}};
    ck_assert_uint_eq(qwp_roll_each(&roll, QWP_ROLL_MAX - 2, &a, 0, 15, charge, &got), 15);
    ck_assert_uint_eq(got.rows[0], 10);
    ck_assert_uint_eq(got.rows[1], 5);
    got = (struct charged){{0}};
    ck_assert_uint_eq(qwp_roll_each(&roll, QWP_ROLL_MAX - 2, &a, 9, 2, charge, &got), 2);
    ck_assert_uint_eq(got.rows[0], 1);
    ck_assert_uint_eq(got.rows[1], 1);
    ck_assert_uint_eq(qwp_roll_each(&roll, 5, &a, 0, 15, charge, &got), 0);
    qwp_roll_settle(&roll, QWP_ROLL_MAX);
    ck_assert_uint_eq(roll.first, 0); /* and begins anew */
    ck_assert_uint_eq(roll.end, 0);
    qwp_roll_fini(&roll);
}
END_TEST

static void setup(void)
{
    random_decoder_init(&texts);
}

static void teardown(void)
{
    qwp_decoder_fini(&texts);
}

int main(void)
{
    const char *given = getenv("QWP_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("QWP_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    state = seed;
    Suite *suite = suite_create("split");
    TCase *tcase = tcase_create("split");
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, setup, teardown);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* the seed goes on from test to test */
    tcase_add_loop_test(tcase, split_by_table_keeps_rows, 0, ROUNDS);
    tcase_add_loop_test(tcase, chunks_of_any_size_keep_rows_and_stay_below, 0, ROUNDS);
    tcase_add_test(tcase, chunks_of_compact_columns_begin_in_full_width);
    tcase_add_loop_test(tcase, rows_set_aside_are_read_back_from_the_files_alone, 0, 5);
    tcase_add_test(tcase, file_cut_anywhere_keeps_the_entries_before);
    tcase_add_test(tcase, append_goes_on_in_another_file_while_one_is_put_back);
    tcase_add_test(tcase, blame_knows_what_is_done);
    tcase_add_test(tcase, roll_tells_whose_rows_they_were);
    suite_add_tcase(suite, tcase);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#include "tests/clients/client_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "ipc/qwp_rendezvous.h"

/* Of all cases of a program: made and removed by the process that outlives a crashed one. */
static char base_dir[32] = "/tmp/qwp-clients-XXXXXX";

char fixture_dir[64];
struct qwp_producer *fixture_producer;
struct qwp_error fixture_err;

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

void fixture_setup(void)
{
    snprintf(fixture_dir, sizeof fixture_dir, "%s/XXXXXX", base_dir);
    ck_assert_ptr_nonnull(mkdtemp(fixture_dir));
    memset(&fixture_err, 0, sizeof fixture_err);
}

void fixture_teardown(void)
{
    qwp_producer_close(fixture_producer);
    fixture_producer = NULL;
    nftw(fixture_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

void fixture_open(const struct qwp_producer_options *options)
{
    struct qwp_producer_options o = {.ring_bytes = 64 * 1024};
    if (options != NULL) {
        o = *options;
    }
    o.dir = fixture_dir;
    const enum qwp_result result = qwp_producer_open(&fixture_producer, &o, &fixture_err);
    ck_assert_msg(result == QWP_OK, "open: %s", fixture_err.text);
}

/* ---- reader ---- */

static void keep_name(void *owner, const char *file_name)
{
    snprintf(owner, 256, "%s", file_name);
}

void reader_open(struct reader *reader)
{
    *reader = (struct reader){.dir_fd = -1};
    struct qwp_error err = {0};
    ck_assert_msg(qwp_rendezvous_open(fixture_dir, NULL, &reader->dir_fd, &err) == QWP_OK, "%s",
                  err.text);
    char file_name[256] = "";
    ck_assert_int_eq(qwp_rendezvous_scan(reader->dir_fd, keep_name, file_name, &err), QWP_OK);
    ck_assert_str_ne(file_name, "");
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    ck_assert_msg(qwp_ring_open(&reader->rx, reader->dir_fd, file_name, &limits, &err) == QWP_OK,
                  "%s", err.text);
    reader->entry = malloc(QWP_RING_DEF_BYTES_MAX);
    reader->shapes = calloc(65536, sizeof *reader->shapes);
    reader->symbols = calloc(1 << 20, sizeof *reader->symbols);
    reader->symbol_lens = calloc(1 << 20, sizeof *reader->symbol_lens);
    reader->pos = reader->rx.head_pos;
}

void reader_close(struct reader *reader)
{
    for (uint32_t i = 0; i < reader->shape_count; i++) {
        qwp_shape_destroy(reader->shapes[i]);
    }
    for (uint32_t i = 0; i < reader->symbol_count; i++) {
        free(reader->symbols[i]);
    }
    free(reader->shapes);
    free(reader->symbols);
    free(reader->symbol_lens);
    free(reader->entry);
    qwp_ring_close_rx(&reader->rx);
    close(reader->dir_fd);
}

static void take_definitions(struct reader *reader)
{
    struct qwp_ring_def def;
    struct qwp_error err = {0};
    enum qwp_result result;
    while ((result = qwp_ring_next_def(&reader->rx, reader->entry, &def, &err)) == QWP_OK) {
        if (def.kind == QWP_DEF_SHAPE) {
            reader->shapes[reader->shape_count++] = def.shape;
            continue;
        }
        char *text = malloc((size_t)def.text_len + 1);
        memcpy(text, def.text, def.text_len);
        text[def.text_len] = '\0';
        reader->symbol_lens[reader->symbol_count] = def.text_len;
        reader->symbols[reader->symbol_count++] = text;
    }
    ck_assert_msg(result == QWP_AGAIN, "definitions: %s", err.text);
}

bool reader_next(struct reader *reader, struct record *record)
{
    ck_assert_int_ne(qwp_ring_poll(&reader->rx), QWP_CORRUPT);
    take_definitions(reader);
    if (reader->pos == reader->rx.tail_seen_pos) {
        return false;
    }
    const unsigned char *at = reader->rx.data + (reader->pos & reader->rx.data_mask);
    struct qwp_record_header header;
    memcpy(&header, at, sizeof header);
    ck_assert_uint_eq(header.size_bytes % QWP_RECORD_ALIGN, 0);
    ck_assert_uint_ge(header.size_bytes, QWP_RECORD_HEADER_BYTES);
    ck_assert_uint_le(header.size_bytes, reader->rx.tail_seen_pos - reader->pos);
    ck_assert_uint_le(header.size_bytes, reader->rx.unit_bytes_max);
    ck_assert_uint_eq(header.kind, QWP_RECORD_ROW);
    ck_assert_uint_lt(header.shape, reader->shape_count);
    *record = (struct record){.shape = reader->shapes[header.shape],
                              .at = at,
                              .size_bytes = header.size_bytes,
                              .flags = header.flags,
                              .pos = reader->pos};
    uint32_t bytes = record->shape->fixed_bytes;
    for (uint32_t c = 0; c < record->shape->column_count; c++) {
        uint32_t len = 0;
        if (record_part(record, c, &len) != NULL) {
            bytes += len;
        }
    }
    ck_assert_uint_eq(qwp_round_up(bytes, QWP_RECORD_ALIGN), record->size_bytes);
    reader->pos += header.size_bytes;
    return true;
}

void reader_release(struct reader *reader, uint64_t rows)
{
    qwp_ring_release(&reader->rx, reader->pos, rows);
}

void reader_expect_end(struct reader *reader)
{
    struct record record;
    ck_assert(!reader_next(reader, &record));
}

/* ---- records ---- */

uint32_t record_column(const struct record *record, const char *name)
{
    for (uint32_t c = 0; c < record->shape->column_count; c++) {
        const struct qwp_name known = record->shape->columns[c].name;
        if (known.len == strlen(name) && memcmp(known.text, name, known.len) == 0) {
            return c;
        }
    }
    ck_abort_msg("no column %s", name);
}

bool record_is_null(const struct record *record, uint32_t column)
{
    return (qwp_load_u64(record->at + 8 + column / 64 * 8) >> (column % 64) & 1) != 0;
}

const unsigned char *record_field(const struct record *record, uint32_t column)
{
    return record->at + record->shape->columns[column].off;
}

static uint32_t part_len(const struct record *record, uint32_t column)
{
    const struct qwp_shape_column *known = &record->shape->columns[column];
    if (!qwp_type_is_variable(known->type) || record_is_null(record, column)) {
        return 0;
    }
    const uint32_t field = qwp_load_u32(record_field(record, column));
    if (known->type != QWP_TYPE_SYMBOL) {
        return field;
    }
    if ((field & QWP_SYMBOL_TEXT) == 0) {
        return 0;
    }
    ck_assert_uint_ne(record->flags & QWP_RECORD_SYMBOL_TEXT, 0);
    return field & ~QWP_SYMBOL_TEXT;
}

const unsigned char *record_part(const struct record *record, uint32_t column, uint32_t *len)
{
    const unsigned char *at = record->at + record->shape->fixed_bytes;
    for (uint32_t c = 0; c < column; c++) {
        at += part_len(record, c);
    }
    *len = part_len(record, column);
    const bool is_part = qwp_type_is_variable(record->shape->columns[column].type) &&
                         !record_is_null(record, column);
    return is_part ? at : NULL;
}

const char *record_symbol(const struct reader *reader, const struct record *record, uint32_t column,
                          uint32_t *len)
{
    const uint32_t field = qwp_load_u32(record_field(record, column));
    if ((field & QWP_SYMBOL_TEXT) != 0) {
        return (const char *)record_part(record, column, len);
    }
    ck_assert_uint_lt(field, reader->symbol_count);
    *len = reader->symbol_lens[field];
    return reader->symbols[field];
}

int64_t record_time(const struct record *record)
{
    ck_assert_uint_ne(record->shape->designated_type, QWP_TYPE_NONE);
    return qwp_load_i64(record->at + record->shape->designated_off);
}

void expect(enum qwp_result result, enum qwp_result expected, const char *text)
{
    ck_assert_msg(result == expected, "%s: %s", qwp_result_name(result), fixture_err.text);
    ck_assert_msg(strstr(fixture_err.text, text) != NULL, "'%s' is not in: %s", text,
                  fixture_err.text);
}

int fixture_run(Suite *suite)
{
    if (mkdtemp(base_dir) == NULL) {
        perror(base_dir);
        return EXIT_FAILURE;
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    nftw(base_dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

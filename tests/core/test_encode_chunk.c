/* Aim: the rows of a chunk come out of the decoder as they went in, and whatever a hostile process
 * does to its bytes, the encoder stays within its memory and says QWP_OK only of messages a server
 * takes.
 * Method: random rows from a printed seed, laid out as a chunk with every part an allocation of its
 * own size, encoded into a destination of exactly the bound; bytes flipped in parts; a thread that
 * scribbles over them. Best under the address sanitizer. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_encode_chunk.h"
#include "tests/core/encode_random.h"
#include "tests/race_on_purpose.h"

enum { ROUNDS = 40, MUTATION_ROUNDS = 16, MUTATIONS = 25, SCRIBBLE_ROUNDS = 4, SCRIBBLES = 30 };

static const unsigned flag_sets[] = {0, QWP_ENCODE_GORILLA,
                                     QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT};
enum { FLAG_SETS = sizeof flag_sets / sizeof flag_sets[0] };

struct bytes {
    unsigned char *at;
    size_t len;
};

struct laid_out {
    struct qwp_chunk chunk;
    struct qwp_chunk_part parts[FIXTURE_COLUMNS_MAX + 1];
    struct bytes bitmaps[FIXTURE_COLUMNS_MAX + 1];
    struct bytes values[FIXTURE_COLUMNS_MAX + 1];
    uint32_t *codes[FIXTURE_COLUMNS_MAX + 1];
    unsigned char *dst;
    size_t bound;
};

static uint32_t symbol_codes[RANDOM_SYMBOLS];

static uint64_t first_seed(void)
{
    const char *given = getenv("QWP_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("QWP_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static void append(struct bytes *bytes, const void *src, size_t len)
{
    bytes->at = realloc(bytes->at, bytes->len + len + 1);
    if (len > 0) {
        memcpy(bytes->at + bytes->len, src, len);
    }
    bytes->len += len;
}

/* Gives the bytes an allocation of exactly their size. */
static unsigned char *settle(struct bytes *bytes)
{
    unsigned char *exact = malloc(bytes->len);
    if (bytes->len > 0) {
        memcpy(exact, bytes->at, bytes->len);
    }
    free(bytes->at);
    bytes->at = exact;
    return exact;
}

static void add_value(struct laid_out *l, uint32_t column, const struct fixture_cell *cell,
                      struct bytes *texts)
{
    struct bytes *values = &l->values[column];
    struct qwp_chunk_part *part = &l->parts[column];
    const uint8_t type = l->chunk.columns[column].type;
    const uint32_t at = part->value_count++;
    switch (type) {
    case QWP_TYPE_BOOLEAN:
        if (at % 8 == 0) {
            append(values, "", 1);
        }
        values->at[values->len - 1] |= (unsigned char)(cell->fixed[0] << at % 8);
        break;
    case QWP_TYPE_SYMBOL:
        append(values, &cell->symbol_id, sizeof cell->symbol_id);
        if (l->codes[column] != NULL) {
            l->codes[column][at] = qwp_symbol_code(cell->symbol_id);
        }
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY: {
        append(texts, cell->part, cell->part_len);
        const uint32_t end = (uint32_t)texts->len;
        append(values, &end, sizeof end);
        break;
    }
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        append(values, cell->part, cell->part_len);
        break;
    default:
        append(values, cell->fixed, qwp_type_field_bytes(type));
        break;
    }
}

static void lay_out_column(struct laid_out *l, const struct fixture *f, uint32_t column)
{
    struct qwp_chunk_part *part = &l->parts[column];
    struct bytes texts = {0};
    const uint32_t rows = l->chunk.row_count;
    const uint8_t type = l->chunk.columns[column].type;
    if (type == QWP_TYPE_VARCHAR || type == QWP_TYPE_BINARY) {
        append(&l->values[column], &(uint32_t){0}, 4);
    }
    if (type == QWP_TYPE_SYMBOL && column % 2 == 0) {
        l->codes[column] = malloc(rows * sizeof *l->codes[column]);
        part->codes = l->codes[column];
    }
    for (uint32_t row = 0; row < rows; row++) {
        const struct fixture_cell *cell = fixture_cell_at(f, row, column);
        if (row % 8 == 0) {
            append(&l->bitmaps[column], "", 1);
        }
        if (cell == NULL || cell->is_null) {
            l->bitmaps[column].at[row / 8] |= (unsigned char)(1 << row % 8);
        } else {
            add_value(l, column, cell, &texts);
        }
    }
    append(&l->values[column], texts.at, texts.len);
    free(texts.at);
    const unsigned char *bitmap = settle(&l->bitmaps[column]);
    part->bitmap = part->value_count < rows ? bitmap : NULL;
    part->values = settle(&l->values[column]);
    part->values_bytes = (uint32_t)l->values[column].len;
}

static void lay_out(struct laid_out *l, const struct fixture *f)
{
    *l = (struct laid_out){.chunk = {.table = f->block.table,
                                     .columns = f->columns,
                                     .column_count = f->block.column_count,
                                     .designated_type = f->block.designated_type,
                                     .row_count = f->block.row_count,
                                     .parts = l->parts,
                                     .symbol_codes = symbol_codes,
                                     .symbol_count = RANDOM_SYMBOLS}};
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        lay_out_column(l, f, c);
    }
    struct bytes *times = &l->values[f->block.column_count];
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        append(times, f->runs[r].times, f->runs[r].row_count * sizeof(int64_t));
    }
    struct qwp_chunk_part *designated = &l->parts[f->block.column_count];
    designated->values = settle(times);
    designated->values_bytes = (uint32_t)times->len;
    designated->value_count = f->block.row_count;
    l->bound = qwp_chunk_bound(
        &l->chunk, qwp_block_header_bound(f->block.table, f->columns, f->block.column_count));
    l->dst = malloc(l->bound);
}

static void clear(struct laid_out *l)
{
    for (uint32_t c = 0; c <= l->chunk.column_count; c++) {
        free(l->bitmaps[c].at);
        free(l->values[c].at);
        free(l->codes[c]);
    }
    free(l->dst);
}

/* A fixture of rows, the same as a chunk, and a decoder. */
static struct fixture fixture;
static struct laid_out laid_out;
static struct qwp_decoder decoder;

static void begin_round(uint64_t seed)
{
    random_fixture(&fixture, &seed);
    memset(fixture.encoder, 1, sizeof *fixture.encoder); /* scratch may hold anything */
    lay_out(&laid_out, &fixture);
    free(fixture.dst);
    fixture.dst = laid_out.dst; /* where decode_encoded() looks */
}

static void end_round(void)
{
    fixture.dst = NULL;
    clear(&laid_out);
    fixture_free(&fixture);
}

static enum qwp_result encode(unsigned flags, struct qwp_encoded *done)
{
    return qwp_chunk_encode(fixture.encoder, &laid_out.chunk, flags, laid_out.dst, done);
}

static void setup(void)
{
    for (uint32_t i = 0; i < RANDOM_SYMBOLS; i++) {
        symbol_codes[i] = qwp_symbol_code(i);
    }
    random_decoder_init(&decoder);
}

static void teardown(void)
{
    qwp_decoder_fini(&decoder);
}

START_TEST(chunk_then_decode_gives_rows_back)
{
    const uint64_t seed = first_seed();
    uint32_t compact = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        begin_round(seed + round);
        for (size_t i = 0; i < FLAG_SETS; i++) {
            struct qwp_encoded done;
            const enum qwp_result result = encode(flag_sets[i], &done);
            ck_assert_msg(result == QWP_OK, "seed %llu: column %u: %s",
                          (unsigned long long)(seed + round), done.fault.column, done.fault.what);
            ck_assert_uint_le(done.len, laid_out.bound);
            struct qwp_message message;
            unsigned char *bytes =
                decode_encoded(&decoder, &fixture, flag_sets[i], &done, &message);
            check_decoded(&fixture, &decoder, flag_sets[i], &message);
            compact += done.table_count == 2;
            free(bytes);
        }
        end_round();
    }
    ck_assert_uint_gt(compact, 0);
}
END_TEST

/* Whatever was encoded from spoilt bytes, a server takes it. */
static void expect_decodable(unsigned flags, const struct qwp_encoded *done, uint64_t seed)
{
    struct qwp_message message;
    ck_assert_msg(done->len <= laid_out.bound, "seed %llu", (unsigned long long)seed);
    free(decode_encoded(&decoder, &fixture, flags, done, &message));
}

static struct bytes *random_part(uint64_t *state)
{
    const uint32_t column = random_below(state, laid_out.chunk.column_count + 1);
    struct bytes *part =
        random_below(state, 3) == 0 ? &laid_out.bitmaps[column] : &laid_out.values[column];
    return part->len > 0 ? part : &laid_out.values[laid_out.chunk.column_count];
}

START_TEST(spoilt_chunks_are_refused_or_decodable)
{
    const uint64_t seed = first_seed();
    uint32_t refused = 0;
    for (uint64_t round = 0; round < MUTATION_ROUNDS; round++) {
        begin_round(seed + round);
        uint64_t state = ~(seed + round);
        for (int m = 0; m < MUTATIONS; m++) {
            struct bytes *part = random_part(&state);
            const uint32_t at = random_below(&state, (uint32_t)part->len);
            const unsigned char before = part->at[at];
            part->at[at] = (unsigned char)random_u64(&state);
            const unsigned flags = flag_sets[random_below(&state, FLAG_SETS)];
            struct qwp_encoded done;
            if (encode(flags, &done) == QWP_OK) {
                expect_decodable(flags, &done, seed + round);
            } else {
                refused++;
            }
            part->at[at] = before;
        }
        end_round();
    }
    ck_assert_uint_gt(refused, 0);
}
END_TEST

static atomic_bool scribbling;

static void *scribble(void *arg)
{
    uint64_t state = *(uint64_t *)arg;
    while (atomic_load(&scribbling)) {
        struct bytes *part = random_part(&state);
        part->at[random_below(&state, (uint32_t)part->len)] ^= (unsigned char)random_u64(&state);
    }
    return NULL;
}

START_TEST(chunks_that_change_meanwhile_are_refused_or_decodable)
{
    if (race_on_purpose(__func__)) {
        return;
    }
    const uint64_t seed = first_seed();
    for (uint64_t round = 0; round < SCRIBBLE_ROUNDS; round++) {
        begin_round(seed + round);
        uint64_t state = seed + round;
        pthread_t thread;
        atomic_store(&scribbling, true);
        ck_assert_int_eq(pthread_create(&thread, NULL, scribble, &state), 0);
        for (int i = 0; i < SCRIBBLES; i++) {
            const unsigned flags = flag_sets[i % FLAG_SETS];
            struct qwp_encoded done;
            if (encode(flags, &done) == QWP_OK) {
                expect_decodable(flags, &done, seed + round);
            }
        }
        atomic_store(&scribbling, false);
        pthread_join(thread, NULL);
        end_round();
    }
}
END_TEST

/* One column and no nulls, as a chunk of its own. */
static enum qwp_result encode_one(uint8_t type, const void *values, uint32_t rows, unsigned flags,
                                  unsigned char *dst, struct qwp_encoded *done)
{
    static struct qwp_encoder encoder;
    const struct qwp_block_column column = {{"c", 1}, type, 0};
    const struct qwp_chunk_part part = {
        .values = values, .values_bytes = rows * qwp_type_field_bytes(type), .value_count = rows};
    const struct qwp_chunk chunk = {.table = {"t", 1},
                                    .columns = &column,
                                    .column_count = 1,
                                    .designated_type = QWP_TYPE_NONE,
                                    .row_count = rows,
                                    .parts = &part,
                                    .symbol_codes = symbol_codes,
                                    .symbol_count = RANDOM_SYMBOLS};
    return qwp_chunk_encode(&encoder, &chunk, flags, dst, done);
}

enum { ONE_ROWS = 700, ONE_HEADER_BYTES = 32 };

START_TEST(undefined_symbol_is_refused_wherever_it_stands)
{
    static uint32_t indexes[ONE_ROWS];
    static unsigned char dst[4 * ONE_ROWS + ONE_HEADER_BYTES];
    const uint32_t others[] = {5, 1000, RANDOM_SYMBOLS - 1}; /* of one, two, three bytes */
    for (uint32_t row = 0; row < ONE_ROWS; row++) {
        for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
            for (uint32_t r = 0; r < ONE_ROWS; r++) {
                indexes[r] = others[i];
            }
            struct qwp_encoded done;
            ck_assert_int_eq(encode_one(QWP_TYPE_SYMBOL, indexes, ONE_ROWS, 0, dst, &done), QWP_OK);
            indexes[row] = RANDOM_SYMBOLS;
            ck_assert_int_eq(encode_one(QWP_TYPE_SYMBOL, indexes, ONE_ROWS, 0, dst, &done),
                             QWP_CORRUPT);
        }
    }
}
END_TEST

/* The narrowest type that holds the value and does not take it for its null. */
static const struct {
    int64_t value;
    uint8_t type;
} narrowest[] = {
    {INT8_MAX, QWP_TYPE_BYTE},
    {INT8_MIN, QWP_TYPE_BYTE},
    {INT8_MAX + 1, QWP_TYPE_SHORT},
    {INT8_MIN - 1, QWP_TYPE_SHORT},
    {INT16_MAX, QWP_TYPE_SHORT},
    {INT16_MIN, QWP_TYPE_SHORT},
    {INT16_MAX + 1, QWP_TYPE_INT},
    {INT16_MIN - 1, QWP_TYPE_INT},
    {INT32_MAX, QWP_TYPE_INT},
    {INT64_C(1) + INT32_MIN, QWP_TYPE_INT},
    {INT64_C(1) + INT32_MAX, QWP_TYPE_LONG},
    {INT32_MIN, QWP_TYPE_LONG},
    {INT64_C(-1) + INT32_MIN, QWP_TYPE_LONG},
    {INT64_MAX, QWP_TYPE_LONG},
    {INT64_MIN, QWP_TYPE_LONG},
};

START_TEST(integers_go_in_the_narrowest_type)
{
    static int64_t longs[ONE_ROWS];
    static int32_t ints[ONE_ROWS];
    static unsigned char dst[8 * ONE_ROWS + 2 * ONE_HEADER_BYTES];
    enum { TYPE_OFF = 2 + 2 + 1 + 2 }; /* table, rows, columns, name */
    for (size_t i = 0; i < sizeof narrowest / sizeof narrowest[0]; i++) {
        for (uint32_t row = 1; row < ONE_ROWS; row += 37) {
            struct qwp_encoded done;
            longs[row] = narrowest[i].value;
            ck_assert_int_eq(
                encode_one(QWP_TYPE_LONG, longs, ONE_ROWS, QWP_ENCODE_COMPACT, dst, &done), QWP_OK);
            longs[row] = 0;
            if (done.table_count == 2) { /* else a sampled row said that it does not pay */
                const unsigned char *second = dst + TYPE_OFF - 1 + 1 + 1 + 8; /* rows: one byte */
                ck_assert_uint_eq(second[TYPE_OFF], narrowest[i].type);
            }
            ints[row] = (int32_t)narrowest[i].value;
            if (ints[row] != narrowest[i].value) {
                ints[row] = 0;
                continue;
            }
            ck_assert_int_eq(
                encode_one(QWP_TYPE_INT, ints, ONE_ROWS, QWP_ENCODE_COMPACT, dst, &done), QWP_OK);
            ints[row] = 0;
            if (done.table_count == 2) {
                const unsigned char *second = dst + TYPE_OFF - 1 + 1 + 1 + 4;
                ck_assert_uint_eq(second[TYPE_OFF], narrowest[i].type == QWP_TYPE_LONG
                                                        ? QWP_TYPE_INT
                                                        : narrowest[i].type);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("encode_chunk");
    TCase *tcase = tcase_create("encode_chunk");
    tcase_set_timeout(tcase, 0);
    tcase_add_unchecked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, chunk_then_decode_gives_rows_back);
    tcase_add_test(tcase, spoilt_chunks_are_refused_or_decodable);
    tcase_add_test(tcase, chunks_that_change_meanwhile_are_refused_or_decodable);
    tcase_add_test(tcase, undefined_symbol_is_refused_wherever_it_stands);
    tcase_add_test(tcase, integers_go_in_the_narrowest_type);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

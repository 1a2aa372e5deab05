/* Aim: whatever rows go in come out of the decoder, and whatever a hostile process does to their
 * records, the encoder stays within its memory and says QWP_OK only of messages a server takes.
 * Method: random blocks from a printed seed, encoded into a destination of exactly the bound, with
 * every record an allocation of its own size; bytes flipped in records; a thread that scribbles
 * over them. Best under the address sanitizer. */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "tests/core/encode_random.h"
#include "tests/race_on_purpose.h"

enum { ROUNDS = 60, MUTATION_ROUNDS = 40, MUTATIONS = 40, SCRIBBLE_ROUNDS = 8, SCRIBBLES = 60 };

/* QWP_TEST_ROUNDS times as many rounds. */
static uint64_t rounds(uint64_t usual)
{
    const char *given = getenv("QWP_TEST_ROUNDS");
    return given != NULL ? usual * strtoull(given, NULL, 0) : usual;
}

static uint64_t first_seed(void)
{
    const char *given = getenv("QWP_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("QWP_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

static void expect_ok(enum qwp_result result, const struct qwp_encoded *done, uint64_t seed)
{
    ck_assert_msg(result == QWP_OK, "seed %llu: row %u, column %u: %s", (unsigned long long)seed,
                  done->fault.row, done->fault.column, done->fault.what);
}

START_TEST(encode_then_decode_gives_rows_back)
{
    static const unsigned flag_sets[] = {0, QWP_ENCODE_GORILLA,
                                         QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT_LONG,
                                         QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT};
    uint32_t compact = 0;
    struct qwp_decoder decoder;
    random_decoder_init(&decoder);
    const uint64_t seed = first_seed();
    for (uint64_t round = 0; round < rounds(ROUNDS); round++) {
        uint64_t state = seed + round;
        struct fixture f;
        random_fixture(&f, &state);
        for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0]; i++) {
            struct qwp_encoded done;
            expect_ok(fixture_encode(&f, flag_sets[i], &done), &done, seed + round);
            struct qwp_message decoded;
            unsigned char *bytes = decode_encoded(&decoder, &f, flag_sets[i], &done, &decoded);
            check_decoded(&f, &decoder, flag_sets[i], &decoded);
            free(bytes);
            compact += done.table_count == 2;
        }
        fixture_free(&f);
    }
    printf("%u blocks were compact\n", compact);
    ck_assert_uint_gt(compact, 0);
    qwp_decoder_fini(&decoder);
}
END_TEST

static void flip_somewhere(struct fixture *f, uint64_t *state)
{
    const uint32_t row = random_below(state, f->block.row_count);
    const uint32_t off = random_below(state, f->record_bytes[row]);
    f->records[row][off] ^= (unsigned char)(1u << random_below(state, 8));
}

/* Encodes and, when that says QWP_OK, decodes; whether it did. */
static bool encode_and_decode(struct fixture *f, struct qwp_decoder *decoder, bool compact)
{
    struct qwp_encoded done = {.fault = {UINT32_MAX, UINT32_MAX, NULL}};
    const unsigned flags = QWP_ENCODE_GORILLA | (compact ? QWP_ENCODE_COMPACT : 0);
    const enum qwp_result result = fixture_encode(f, flags, &done);
    if (result != QWP_OK) {
        ck_assert_int_eq(result, QWP_CORRUPT);
        ck_assert_uint_lt(done.fault.row, f->block.row_count);
        ck_assert_uint_le(done.fault.column, f->block.column_count);
        ck_assert_ptr_nonnull(done.fault.what);
        return false;
    }
    struct qwp_message decoded;
    free(decode_encoded(decoder, f, flags, &done, &decoded));
    return true;
}

START_TEST(encode_of_flipped_records_is_refused_or_decodes)
{
    struct qwp_decoder decoder;
    random_decoder_init(&decoder);
    const uint64_t seed = first_seed();
    uint32_t good = 0;
    uint32_t refused = 0;
    for (uint64_t round = 0; round < rounds(MUTATION_ROUNDS); round++) {
        uint64_t state = seed + round;
        struct fixture f;
        random_fixture(&f, &state);
        for (uint32_t i = 0; i < MUTATIONS; i++) {
            flip_somewhere(&f, &state);
            if (encode_and_decode(&f, &decoder, i % 2 == 0)) {
                good++;
            } else {
                refused++;
                i += 8; /* it mostly stays broken */
            }
        }
        fixture_free(&f);
    }
    printf("flipped: %u decoded, %u refused\n", good, refused);
    ck_assert_uint_gt(good, 0);
    ck_assert_uint_gt(refused, 0);
    qwp_decoder_fini(&decoder);
}
END_TEST

/* Encodes the only row of f, which goes by the short way unless that is not to be taken: symbols
 * that are too young are looked for by the general way alone. */
static enum qwp_result encode_row(struct fixture *f, unsigned flags, bool general,
                                  unsigned char *bytes, struct qwp_encoded *done)
{
    f->block.symbol_end = general ? UINT32_MAX : 0;
    const enum qwp_result result = fixture_encode(f, flags, done);
    if (result == QWP_OK) {
        memcpy(bytes, f->dst, done->len);
    }
    return result;
}

static void random_cell(struct fixture_cell *cell, uint8_t type, uint64_t *state)
{
    for (size_t i = 0; i < sizeof cell->fixed; i++) {
        cell->fixed[i] = (unsigned char)random_u64(state);
    }
    if (type == QWP_TYPE_SYMBOL) {
        qwp_store_u32(cell->fixed,
                      random_below(state, 20) == 0 ? UINT32_MAX : random_below(state, 3));
    } else if (type == QWP_TYPE_BOOLEAN) {
        cell->fixed[0] = random_below(state, 20) == 0 ? 2 : (unsigned char)random_below(state, 2);
    }
    cell->is_null = random_below(state, 40) == 0;
}

START_TEST(one_row_leaves_as_by_the_general_way)
{
    static const uint32_t ids[] = {7, 300, 70000};
    static const uint8_t types[] = {
        QWP_TYPE_SYMBOL,    QWP_TYPE_BYTE,       QWP_TYPE_SHORT,      QWP_TYPE_INT,
        QWP_TYPE_LONG,      QWP_TYPE_FLOAT,      QWP_TYPE_DOUBLE,     QWP_TYPE_BOOLEAN,
        QWP_TYPE_DATE,      QWP_TYPE_UUID,       QWP_TYPE_LONG256,    QWP_TYPE_SYMBOL,
        QWP_TYPE_DECIMAL64, QWP_TYPE_DECIMAL128, QWP_TYPE_DECIMAL256, QWP_TYPE_CHAR,
        QWP_TYPE_IPV4,      QWP_TYPE_TIMESTAMP,  QWP_TYPE_SYMBOL,     QWP_TYPE_TIMESTAMP_NANOS,
    };
    enum { TYPES = sizeof types };
    struct qwp_block_column columns[TYPES];
    char names[TYPES][4];
    for (uint32_t c = 0; c < TYPES; c++) {
        const int len = snprintf(names[c], sizeof names[c], "c%u", c);
        const bool scaled = types[c] >= QWP_TYPE_DECIMAL64 && types[c] <= QWP_TYPE_DECIMAL256;
        columns[c] = (struct qwp_block_column){{names[c], (size_t)len}, types[c], scaled ? 5 : 0};
    }
    uint32_t good = 0;
    uint32_t refused = 0;
    uint64_t state = first_seed();
    for (uint64_t round = 0; round < rounds(ROUNDS) * 20; round++) {
        struct fixture f;
        const uint8_t designated = round % 3 == 0   ? QWP_TYPE_NONE
                                   : round % 3 == 1 ? QWP_TYPE_TIMESTAMP
                                                    : QWP_TYPE_TIMESTAMP_NANOS;
        const uint32_t first = random_below(&state, TYPES);
        const uint32_t count = 1 + random_below(&state, TYPES - first);
        fixture_init(&f, "one", columns + first, count, designated);
        struct fixture_run *run = fixture_add_run(&f, NULL, 1, ids, 3);
        for (uint32_t c = 0; c < count; c++) {
            random_cell(fixture_cell(&f, run, 0, c), types[first + c], &state);
        }
        if (designated != QWP_TYPE_NONE) {
            run->times[0] = (int64_t)(random_u64(&state) >> (random_below(&state, 8) == 0 ? 0 : 8));
        }
        fixture_build(&f);
        const unsigned flags = (round & 1) != 0 ? QWP_ENCODE_GORILLA : QWP_ENCODE_COMPACT;
        static unsigned char short_way[4096];
        static unsigned char general_way[4096];
        struct qwp_encoded done = {0};
        struct qwp_encoded expected = {0};
        const enum qwp_result result = encode_row(&f, flags, false, short_way, &done);
        ck_assert_int_eq(encode_row(&f, flags, true, general_way, &expected), result);
        if (result == QWP_OK) {
            ck_assert_uint_eq(done.len, expected.len);
            ck_assert_uint_eq(done.table_count, expected.table_count);
            ck_assert_mem_eq(short_way, general_way, done.len);
            good++;
        } else {
            ck_assert_uint_eq(done.fault.column, expected.fault.column);
            ck_assert_str_eq(done.fault.what, expected.fault.what);
            refused++;
        }
        fixture_free(&f);
    }
    printf("alone: %u encoded, %u refused\n", good, refused);
    ck_assert_uint_gt(good, 0);
    ck_assert_uint_gt(refused, 0);
}
END_TEST

struct scribbler {
    struct fixture *f;
    unsigned char **pristine;
    uint64_t state;
    _Atomic bool stop;
};

/* Breaks a few bytes of a record, and a little later puts the record right again. */
static void *scribble(void *context)
{
    struct scribbler *s = context;
    while (!atomic_load_explicit(&s->stop, memory_order_relaxed)) {
        const uint32_t row = random_below(&s->state, s->f->block.row_count);
        for (uint32_t i = 0; i < 8; i++) {
            const uint32_t off = random_below(&s->state, s->f->record_bytes[row]);
            s->f->records[row][off] = (unsigned char)random_u64(&s->state);
        }
        memcpy(s->f->records[row], s->pristine[row], s->f->record_bytes[row]);
    }
    return NULL;
}

START_TEST(encode_while_records_change_is_refused_or_decodes)
{
    if (race_on_purpose(__func__)) {
        return;
    }
    struct qwp_decoder decoder;
    random_decoder_init(&decoder);
    const uint64_t seed = first_seed();
    uint32_t good = 0;
    uint32_t refused = 0;
    for (uint64_t round = 0; round < rounds(SCRIBBLE_ROUNDS); round++) {
        uint64_t state = seed + round;
        struct fixture f;
        random_fixture(&f, &state);
        struct scribbler scribbler = {.f = &f, .state = state};
        scribbler.pristine = calloc(f.block.row_count, sizeof *scribbler.pristine);
        for (uint32_t row = 0; row < f.block.row_count; row++) {
            scribbler.pristine[row] = malloc(f.record_bytes[row]);
            memcpy(scribbler.pristine[row], f.records[row], f.record_bytes[row]);
        }
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, scribble, &scribbler), 0);
        for (uint32_t i = 0; i < SCRIBBLES; i++) {
            if (encode_and_decode(&f, &decoder, i % 2 == 0)) {
                good++;
            } else {
                refused++;
            }
        }
        atomic_store_explicit(&scribbler.stop, true, memory_order_relaxed);
        ck_assert_int_eq(pthread_join(thread, NULL), 0);
        for (uint32_t row = 0; row < f.block.row_count; row++) {
            free(scribbler.pristine[row]);
        }
        free(scribbler.pristine);
        fixture_free(&f);
    }
    printf("scribbled: %u decoded, %u refused\n", good, refused);
    qwp_decoder_fini(&decoder);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("encode_random");
    TCase *tcase = tcase_create("encode_random");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, encode_then_decode_gives_rows_back);
    tcase_add_test(tcase, encode_of_flipped_records_is_refused_or_decodes);
    tcase_add_test(tcase, one_row_leaves_as_by_the_general_way);
    tcase_add_test(tcase, encode_while_records_change_is_refused_or_decodes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

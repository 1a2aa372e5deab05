/* Aim: a block that is taken apart row by row and put under other symbol ids has the same rows.
 * Method: random blocks of all types (printed seed) are cut at random rows; the pieces are decoded
 * as one message, with every check there is, and compared value by value with the whole. */
#include "core/wire/qwp_recode.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/core/encode_random.h"

enum { ROUNDS = 60, PIECES_MAX = 6 };

static uint64_t first_seed(void)
{
    const char *given = getenv("QWP_TEST_SEED");
    const uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL);
    printf("QWP_TEST_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* A decoder that takes the texts from another one. */
static struct qwp_name text_of(const void *decoder, uint32_t id)
{
    return qwp_decoder_symbol(decoder, id);
}

static uint32_t mirrored(void *owner, uint32_t id)
{
    (void)owner;
    return RANDOM_SYMBOLS - 1 - id;
}

static void expect_equal(const struct qwp_value *a, const struct qwp_value *b, bool mirror)
{
    ck_assert_uint_eq(a->type, b->type);
    ck_assert(a->null == b->null);
    if (a->null) {
        return;
    }
    switch (a->type) {
    case QWP_TYPE_BOOLEAN:
        ck_assert(a->boolean == b->boolean);
        break;
    case QWP_TYPE_SYMBOL:
        ck_assert_uint_eq(mirror ? mirrored(NULL, a->symbol.id) : a->symbol.id, b->symbol.id);
        break;
    case QWP_TYPE_FLOAT:
        ck_assert_mem_eq(&a->f32, &b->f32, sizeof a->f32);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
    case QWP_TYPE_UUID:
    case QWP_TYPE_LONG256:
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        ck_assert_uint_eq(a->bytes.len, b->bytes.len);
        ck_assert_mem_eq(a->bytes.at, b->bytes.at, a->bytes.len);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        ck_assert_uint_eq(a->array.dimensions, b->array.dimensions);
        ck_assert_uint_eq(a->array.element_count, b->array.element_count);
        ck_assert_mem_eq(a->array.lengths, b->array.lengths, 4 * a->array.dimensions);
        ck_assert_mem_eq(a->array.elements, b->array.elements, 8 * a->array.element_count);
        break;
    default:
        ck_assert_int_eq(a->i64, b->i64);
        break;
    }
}

static void expect_rows(const struct qwp_decoder *decoder, const struct qwp_table_block *whole,
                        uint32_t first, const struct qwp_decoder *piece_decoder,
                        const struct qwp_table_block *piece, bool mirror)
{
    ck_assert_uint_eq(piece->column_count, whole->column_count);
    ck_assert_mem_eq(piece->table.text, whole->table.text, whole->table.len);
    for (uint32_t c = 0; c < whole->column_count; c++) {
        struct qwp_cursor a, b;
        ck_assert_uint_eq(whole->columns[c].parameter, piece->columns[c].parameter);
        qwp_cursor_init(&a, decoder, &whole->columns[c]);
        qwp_cursor_init(&b, piece_decoder, &piece->columns[c]);
        struct qwp_value va, vb;
        for (uint32_t row = 0; row < piece->row_count; row++) {
            qwp_cursor_read(&a, first + row, &va);
            ck_assert(qwp_cursor_next(&b, &vb));
            expect_equal(&va, &vb, mirror);
        }
    }
}

/* Cuts the open block at random rows, decodes the pieces, compares. */
static void cut_and_compare(const struct qwp_decoder *decoder, const struct qwp_table_block *whole,
                            uint8_t flags, bool mirror, uint64_t *state)
{
    uint32_t ends[PIECES_MAX];
    uint32_t pieces = 0;
    for (uint32_t at = 0; at < whole->row_count; pieces++) {
        const uint32_t left = whole->row_count - at;
        at += pieces + 1 == PIECES_MAX ? left : 1 + random_below(state, left);
        ends[pieces] = at;
    }
    struct qwp_bytes out = {0};
    qwp_message_begin(qwp_bytes_grow(&out, QWP_HEADER_BYTES), flags);
    qwp_bytes_put(&out, "\0\0", 2); /* an empty delta */
    const struct qwp_recode recode = {
        .decoder = decoder, .block = whole, .flags = flags, .symbol_id = mirror ? mirrored : NULL};
    for (uint32_t i = 0; i < pieces; i++) {
        const uint32_t first = i == 0 ? 0 : ends[i - 1];
        qwp_recode_rows(&recode, first, ends[i] - first, &out);
    }
    ck_assert(!out.failed);
    qwp_message_finish(out.at, (uint16_t)pieces, out.len);

    struct qwp_decoder second;
    const struct qwp_decoder_options options = {
        .symbol_text = text_of, .symbols = decoder, .symbol_count = RANDOM_SYMBOLS};
    qwp_decoder_init(&second, &options);
    struct qwp_message message;
    struct qwp_error err;
    ck_assert_msg(qwp_decode_message(&second, out.at, out.len, &message, &err) == QWP_OK, "%s",
                  err.text);
    ck_assert_uint_eq(message.row_count, whole->row_count);
    for (uint32_t i = 0; i < pieces; i++) {
        struct qwp_table_block piece;
        qwp_block_open(&second, &message, i, &piece);
        expect_rows(decoder, whole, i == 0 ? 0 : ends[i - 1], &second, &piece, mirror);
    }
    qwp_decoder_fini(&second);
    qwp_bytes_fini(&out);
}

START_TEST(recode_of_pieces_keeps_rows)
{
    struct qwp_decoder decoder;
    random_decoder_init(&decoder);
    const uint64_t seed = first_seed();
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t state = seed + round;
        struct fixture f;
        random_fixture(&f, &state);
        const unsigned gorilla = round % 2 == 0 ? QWP_ENCODE_GORILLA : 0;
        struct qwp_encoded done;
        ck_assert_int_eq(fixture_encode(&f, gorilla, &done), QWP_OK);
        struct qwp_message message;
        unsigned char *bytes = decode_encoded(&decoder, &f, gorilla, &done, &message);
        for (uint32_t i = 0; i < message.block_count; i++) {
            struct qwp_table_block block;
            qwp_block_open(&decoder, &message, i, &block);
            cut_and_compare(&decoder, &block, message.flags, false, &state);
            cut_and_compare(&decoder, &block, message.flags, true, &state);
        }
        free(bytes);
        fixture_free(&f);
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decoder_with_symbols_elsewhere_refuses_unknown_ones)
{
    struct qwp_decoder texts;
    random_decoder_init(&texts);
    struct qwp_decoder decoder;
    const struct qwp_decoder_options options = {
        .symbol_text = text_of, .symbols = &texts, .symbol_count = 3};
    qwp_decoder_init(&decoder, &options);
    /* Two symbols from id 2 on: one more than there are. */
    static const unsigned char delta[] = {2, 2, 1, 'a', 1, 'b'};
    for (unsigned count = 1; count <= 2; count++) {
        struct qwp_bytes out = {0};
        qwp_message_begin(qwp_bytes_grow(&out, QWP_HEADER_BYTES), QWP_FLAG_DELTA_DICT);
        qwp_bytes_put(&out, delta, count == 1 ? 4 : 6);
        out.at[QWP_HEADER_BYTES + 1] = (unsigned char)count;
        qwp_message_finish(out.at, 0, out.len);
        struct qwp_message message;
        ck_assert_int_eq(qwp_decode_message(&decoder, out.at, out.len, &message, NULL),
                         count == 1 ? QWP_OK : QWP_CORRUPT);
        qwp_bytes_fini(&out);
    }
    ck_assert_int_eq(decoder.fault_status, QWP_STATUS_DICTIONARY_GAP);
    qwp_decoder_fini(&decoder);
    qwp_decoder_fini(&texts);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("recode");
    TCase *tcase = tcase_create("recode");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, recode_of_pieces_keeps_rows);
    tcase_add_test(tcase, decoder_with_symbols_elsewhere_refuses_unknown_ones);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

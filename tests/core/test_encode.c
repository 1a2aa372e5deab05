/* Aim: rows leave as the bytes the protocol asks for, whatever stands in their records.
 * Method: messages of a released client, bytes computed by hand, one bad value after another. What
 * random rows come to is in test_encode_random.c. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_varint.h"
#include "tests/core/encode_fixture.h"

#define T0 INT64_C(1700000000000000000)

static void set_u32(struct fixture_cell *cell, uint32_t v)
{
    qwp_store_u32(cell->fixed, v);
}

static void set_i64(struct fixture_cell *cell, int64_t v)
{
    qwp_store_i64(cell->fixed, v);
}

static void set_double(struct fixture_cell *cell, double v)
{
    memcpy(cell->fixed, &v, sizeof v);
}

static struct qwp_name dict_text(const void *dict, uint32_t id)
{
    return NAME(((const char *const *)dict)[id]);
}

static size_t from_hex(const char *hex, unsigned char *out)
{
    size_t n = 0;
    for (; hex[0] != '\0'; hex += 2) {
        const char digits[3] = {hex[0], hex[1], '\0'};
        out[n++] = (unsigned char)strtoul(digits, NULL, 16);
    }
    return n;
}

/* The first message of the captured connection of a released client, byte for byte. */
START_TEST(encode_trades_equals_captured_message)
{
    static const char captured[] =
        "5157503101080100bc0000000004074554482d555344074254432d5553440473656c6c03627579"
        "067472616465730307"
        "0673796d626f6c0904736964650905707269636507"
        "06616d6f756e7407037365710504"
        "6c6976650100100000010000020302"
        "00ae47e17a146fa44033333333"
        "03f3ef409a999999196fa440000000000000000000000000000000d03f000000000000e03f"
        "00000000000000000001000000000000000200000000000000"
        "0005"
        "0000002a36fe9c9717e8032a36fe9c9717d0072a36fe9c9717";
    static const char *const dict[] = {"ETH-USD", "BTC-USD", "sell", "buy"};
    static const uint32_t ids[] = {0, 1, 2, 3};
    static const uint32_t symbols[] = {0, 1, 0};
    static const uint32_t sides[] = {2, 3, 2};
    static const double prices[] = {2615.54, 65432.1, 2615.55};
    static const double amounts[] = {0, 0.25, 0.5};
    const struct qwp_block_column columns[] = {
        {NAME("symbol"), QWP_TYPE_SYMBOL, 0}, {NAME("side"), QWP_TYPE_SYMBOL, 0},
        {NAME("price"), QWP_TYPE_DOUBLE, 0},  {NAME("amount"), QWP_TYPE_DOUBLE, 0},
        {NAME("seq"), QWP_TYPE_LONG, 0},      {NAME("live"), QWP_TYPE_BOOLEAN, 0},
    };
    struct fixture f;
    fixture_init(&f, "trades", columns, 6, QWP_TYPE_TIMESTAMP_NANOS);
    struct fixture_run *run = fixture_add_run(&f, NULL, 3, ids, 4);
    for (uint32_t i = 0; i < 3; i++) {
        set_u32(fixture_cell(&f, run, i, 0), symbols[i]);
        set_u32(fixture_cell(&f, run, i, 1), sides[i]);
        set_double(fixture_cell(&f, run, i, 2), prices[i]);
        set_double(fixture_cell(&f, run, i, 3), amounts[i]);
        set_i64(fixture_cell(&f, run, i, 4), i);
        fixture_cell(&f, run, i, 5)->fixed[0] = i != 1;
        run->times[i] = T0 + 1000 * (int64_t)i;
    }
    fixture_build(&f);

    unsigned char message[1024];
    unsigned char *at = qwp_message_begin(message, QWP_FLAG_DELTA_DICT);
    const size_t delta_bytes = qwp_delta_size(0, 4, dict_text, dict);
    unsigned char *delta_end = qwp_delta_put(at, 0, 4, dict_text, dict);
    ck_assert_uint_eq((size_t)(delta_end - at), delta_bytes);
    struct qwp_encoded done;
    ck_assert_int_eq(fixture_encode(&f, 0, &done), QWP_OK);
    ck_assert_uint_eq(done.table_count, 1);
    memcpy(delta_end, f.dst, done.len);
    const size_t len = (size_t)(delta_end - message) + done.len;
    qwp_message_finish(message, 1, len);

    unsigned char expected[1024];
    ck_assert_uint_eq(from_hex(captured, expected), len);
    ck_assert_mem_eq(message, expected, len);
    fixture_free(&f);
}
END_TEST

START_TEST(gorilla_buckets_give_hand_computed_bits)
{
    unsigned char out[256];
    /* Steps 10, 10, 11, 5, 300: deltas of deltas 0, 1, -6, 295. */
    const int64_t times[] = {100, 110, 120, 131, 136, 436};
    const size_t len = qwp_gorilla_encode(times, 6, out);
    /* 0, 10 1000000, 10 0101111, 1110 111001001000: prefix and value in the order of the stream,
     * which fills bytes from their lowest bit: 01010000 00100101 11111101 11001001 000. */
    const unsigned char bits[] = {0x0a, 0xa4, 0xbf, 0x93, 0x00};
    ck_assert_uint_eq(len, 16 + sizeof bits);
    ck_assert_int_eq(qwp_load_i64(out), 100);
    ck_assert_int_eq(qwp_load_i64(out + 8), 110);
    ck_assert_mem_eq(out + 16, bits, sizeof bits);

    const int64_t wide[] = {0, 0, INT32_MAX, INT64_C(2) * INT32_MAX};
    ck_assert_uint_eq(qwp_gorilla_encode(wide, 3, out), 16 + 5);
    ck_assert_uint_eq(qwp_gorilla_encode(wide, 4, out), 16 + 5);
    const int64_t too_wide[] = {0, 0, INT64_C(1) << 31};
    ck_assert_uint_eq(qwp_gorilla_encode(too_wide, 3, out), 0);
    const int64_t too_low[] = {0, 0, -(INT64_C(1) << 31) - 1};
    ck_assert_uint_eq(qwp_gorilla_encode(too_low, 3, out), 0);
    const int64_t extremes[] = {INT64_MIN, INT64_MAX, INT64_MAX};
    ck_assert_uint_eq(qwp_gorilla_encode(extremes, 3, out), 0);
}
END_TEST

/* One column of each kind, three rows, the middle one null. */
START_TEST(encode_nulls_equal_hand_computed_bytes)
{
    const struct qwp_block_column columns[] = {
        {NAME("s"), QWP_TYPE_SYMBOL, 0},     {NAME("t"), QWP_TYPE_VARCHAR, 0},
        {NAME("g"), QWP_TYPE_GEOHASH, 20},   {NAME("d"), QWP_TYPE_DECIMAL64, 3},
        {NAME("a"), QWP_TYPE_LONG_ARRAY, 0}, {NAME("w"), QWP_TYPE_TIMESTAMP, 0},
    };
    static const uint32_t ids[] = {300, 20000};
    struct fixture f;
    fixture_init(&f, "n", columns, 6, QWP_TYPE_NONE);
    struct fixture_run *run = fixture_add_run(&f, NULL, 3, ids, 2);
    for (uint32_t c = 0; c < 6; c++) {
        fixture_cell(&f, run, 1, c)->is_null = true;
    }
    set_u32(fixture_cell(&f, run, 0, 0), 0);
    set_u32(fixture_cell(&f, run, 2, 0), 1);
    fixture_set_part(fixture_cell(&f, run, 0, 1), "ab", 2);
    fixture_set_part(fixture_cell(&f, run, 2, 1), "", 0);
    set_i64(fixture_cell(&f, run, 0, 2), 0xabcde);
    set_i64(fixture_cell(&f, run, 2, 2), 1);
    set_i64(fixture_cell(&f, run, 0, 3), 12345);
    set_i64(fixture_cell(&f, run, 2, 3), -1);
    fixture_set_part(fixture_cell(&f, run, 0, 4), "\x01\x01\0\0\0\x09\0\0\0\0\0\0\0", 13);
    fixture_set_part(fixture_cell(&f, run, 2, 4), "\x02\0\0\0\0\x05\0\0\0", 9);
    set_i64(fixture_cell(&f, run, 0, 5), 7);
    set_i64(fixture_cell(&f, run, 2, 5), -7);
    fixture_build(&f);
    struct qwp_encoded done;
    ck_assert_int_eq(fixture_encode(&f, QWP_ENCODE_GORILLA, &done), QWP_OK);
    static const char hex[] = "016e0306"
                              "017309"
                              "01740f"
                              "01670e"
                              "016413"
                              "016112"
                              "01770a"
                              "0102"
                              "ac02"
                              "a09c01"
                              "0102"
                              "00000000"
                              "02000000"
                              "02000000"
                              "6162"
                              "0102"
                              "14"
                              "debc0a"
                              "010000"
                              "0102"
                              "03"
                              "3930000000000000"
                              "ffffffffffffffff"
                              "0102"
                              "01010000000900000000000000"
                              "020000000005000000"
                              "0102"
                              "00"
                              "0700000000000000"
                              "f9ffffffffffffff";
    unsigned char expected[512];
    ck_assert_uint_eq(from_hex(hex, expected), done.len);
    ck_assert_mem_eq(f.dst, expected, done.len);
    fixture_free(&f);
}
END_TEST

START_TEST(symbol_code_is_the_varint)
{
    static const uint32_t ids[] = {
        0, 1, 127, 128, 300, 16383, 16384, 999999, QWP_SYMBOL_IDS_MAX - 1};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++) {
        unsigned char varint[QWP_VARINT_BYTES_MAX];
        unsigned char code[4];
        const size_t len = (size_t)(qwp_varint_put(varint, ids[i]) - varint);
        qwp_store_u32(code, qwp_symbol_code(ids[i]));
        ck_assert_uint_eq(code[3], len);
        ck_assert_mem_eq(code, varint, len);
        for (size_t k = len; k < 3; k++) {
            ck_assert_uint_eq(code[k], 0);
        }
    }
}
END_TEST

/* --- compact columns --- */

/* Encodes `rows` rows of one LONG, all 5 but for `odd` in the last row; returns the type it has in
 * the last block, whose values end the message. */
static uint8_t compact_type(uint32_t rows, int64_t odd, unsigned flags, struct qwp_encoded *done)
{
    const struct qwp_block_column column = {NAME("v"), QWP_TYPE_LONG, 0};
    struct fixture f;
    fixture_init(&f, "t", &column, 1, QWP_TYPE_NONE);
    struct fixture_run *run = fixture_add_run(&f, NULL, rows, NULL, 0);
    for (uint32_t row = 0; row < rows; row++) {
        set_i64(fixture_cell(&f, run, row, 0), row + 1 == rows ? odd : 5);
    }
    fixture_build(&f);
    ck_assert_int_eq(fixture_encode(&f, flags, done), QWP_OK);
    /* Each block: "t", rows (one byte below 128), columns, "v", type, null flag, values. */
    const size_t ahead = done->table_count == 2 ? 2 + 1 + 1 + 2 + 1 + 1 + 8 : 0;
    ck_assert(done->table_count == 1 || f.dst[6] == QWP_TYPE_LONG);
    const uint8_t type = f.dst[ahead + 6];
    const uint32_t values = done->table_count == 2 ? rows - 1 : rows;
    ck_assert_uint_eq(done->len, ahead + 8 + values * qwp_type_field_bytes(type));
    fixture_free(&f);
    return type;
}

START_TEST(compact_long_takes_narrowest_type_without_its_null)
{
    static const struct {
        int64_t odd;
        uint8_t type;
    } cases[] = {
        {5, QWP_TYPE_BYTE},
        {127, QWP_TYPE_BYTE},
        {-128, QWP_TYPE_BYTE},
        {128, QWP_TYPE_SHORT},
        {-129, QWP_TYPE_SHORT},
        {-32768, QWP_TYPE_SHORT},
        {32768, QWP_TYPE_INT},
        {INT32_MAX, QWP_TYPE_INT},
        {-INT32_MAX, QWP_TYPE_INT},
        {INT32_MIN, QWP_TYPE_LONG}, /* the null of INT */
        {INT64_C(1) << 31, QWP_TYPE_LONG},
        {INT64_MAX, QWP_TYPE_LONG},
        {INT64_MIN, QWP_TYPE_LONG},
    };
    struct qwp_encoded done;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint8_t type = compact_type(100, cases[i].odd, QWP_ENCODE_COMPACT, &done);
        ck_assert_int_eq(type, cases[i].type);
        ck_assert_uint_eq(done.table_count, 2);
    }
}
END_TEST

START_TEST(compact_that_does_not_pay_is_left)
{
    struct qwp_encoded done;
    ck_assert_int_eq(compact_type(1, 5, QWP_ENCODE_COMPACT, &done), QWP_TYPE_LONG);
    ck_assert_uint_eq(done.table_count, 1);
    ck_assert_int_eq(compact_type(2, 5, QWP_ENCODE_COMPACT, &done), QWP_TYPE_LONG);
    ck_assert_int_eq(compact_type(100, 5, QWP_ENCODE_GORILLA, &done), QWP_TYPE_LONG);
    ck_assert_int_eq(compact_type(100, 5, QWP_ENCODE_COMPACT_INT, &done), QWP_TYPE_LONG);
    ck_assert_uint_eq(done.table_count, 1);
}
END_TEST

enum { TICKS = 10, SERIES = 10 };

/* Rows of SERIES series with one time each tick; returns the bytes of a row. */
static double ticks_row_bytes(int64_t step_ns, unsigned flags, struct qwp_encoded *done)
{
    const struct qwp_block_column column = {NAME("v"), QWP_TYPE_BYTE, 0};
    struct fixture f;
    fixture_init(&f, "t", &column, 1, QWP_TYPE_TIMESTAMP_NANOS);
    struct fixture_run *run = fixture_add_run(&f, NULL, TICKS * SERIES, NULL, 0);
    for (uint32_t row = 0; row < TICKS * SERIES; row++) {
        run->times[row] = INT64_C(1700000000000000000) + row / SERIES * step_ns;
    }
    fixture_build(&f);
    ck_assert_int_eq(fixture_encode(&f, flags, done), QWP_OK);
    fixture_free(&f);
    return (double)done->len / (TICKS * SERIES);
}

START_TEST(compact_time_is_in_microseconds)
{
    const unsigned wide = QWP_ENCODE_GORILLA;
    const unsigned compact = QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT;
    struct qwp_encoded done;
    /* 10 s are more nanoseconds than Gorilla has bits for: 8 bytes a time. */
    ck_assert(ticks_row_bytes(INT64_C(10000000000), wide, &done) > 9);
    ck_assert_uint_eq(done.table_count, 1);
    ck_assert(ticks_row_bytes(INT64_C(10000000000), compact, &done) < 3);
    ck_assert_uint_eq(done.table_count, 2);
    ck_assert(ticks_row_bytes(INT64_C(10000000001), compact, &done) > 9);
    ck_assert_uint_eq(done.table_count, 1);
}
END_TEST

/* --- faults --- */

struct bad_value {
    uint8_t type;
    uint8_t parameter;
    const char *what; /* words of the fault */
    const char *part; /* NULL: `fixed` is the bad value */
    uint32_t part_len;
    uint64_t fixed;
};

static const struct bad_value bad_values[] = {
    {QWP_TYPE_SYMBOL, 0, "symbol", NULL, 0, 2},
    {QWP_TYPE_SYMBOL, 0, "symbol", NULL, 0, UINT32_MAX},
    {QWP_TYPE_BOOLEAN, 0, "boolean", NULL, 0, 2},
    {QWP_TYPE_BOOLEAN, 0, "boolean", NULL, 0, 0x80},
    {QWP_TYPE_GEOHASH, 5, "geohash", NULL, 0, 0x20},
    {QWP_TYPE_GEOHASH, 60, "geohash", NULL, 0, UINT64_C(1) << 60},
    {QWP_TYPE_VARCHAR, 0, "UTF-8", "\xff", 1, 0},
    {QWP_TYPE_VARCHAR, 0, "UTF-8", "abcdefghijklmnop\xc5", 17, 0},
    {QWP_TYPE_VARCHAR, 0, "UTF-8", "\xa4zz", 3, 0}, /* would go on the text before */
    {QWP_TYPE_VARCHAR, 0, "UTF-8", "zz\xed\xa0\x80", 5, 0},
    {QWP_TYPE_LONG_ARRAY, 0, "array", "", 0, 0},
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\0", 1, 0},
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\1\1\0\0\0", 5, 0},                  /* an element missing */
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\1\0\0\0\0\0\0\0\0\0\0\0\0", 13, 0}, /* one too many */
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\1\0\0\0", 4, 0},                    /* cut in a length */
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\2\0\0\0\0\0\0\0", 8, 0},
    {QWP_TYPE_LONG_ARRAY, 0, "array", "\2\0\0\0\0\xff\xff\xff\xff", 9, 0}, /* negative */
    {QWP_TYPE_DOUBLE_ARRAY, 0, "array", "\x21", 1, 0},
    /* Lengths whose product is 0 modulo 2^64. */
    {QWP_TYPE_DOUBLE_ARRAY, 0, "array", "\3\0\0\0\x40\0\0\0\x40\0\0\0\x40", 13, 0},
};

static void set_good(struct fixture_cell *cell, uint8_t type)
{
    if (type == QWP_TYPE_VARCHAR) {
        fixture_set_part(cell, "\xc5\xbe", 2);
    } else if (type == QWP_TYPE_LONG_ARRAY || type == QWP_TYPE_DOUBLE_ARRAY) {
        fixture_set_part(cell, "\1\0\0\0\0", 5);
    }
}

/* Two runs of 150 rows, a good column before and behind, every third value null; the bad one in
 * row `bad_row`. */
static void expect_fault(const struct bad_value *bad, uint32_t bad_row, bool nulls)
{
    enum { RUN_ROWS = 150 };
    static const uint32_t ids[] = {0, 1};
    const struct qwp_block_column columns[] = {{NAME("before"), QWP_TYPE_LONG, 0},
                                               {NAME("bad"), bad->type, bad->parameter},
                                               {NAME("behind"), QWP_TYPE_SYMBOL, 0}};
    struct fixture f;
    fixture_init(&f, "faults", columns, 3, QWP_TYPE_TIMESTAMP);
    for (uint32_t r = 0; r < 2; r++) {
        struct fixture_run *run = fixture_add_run(&f, NULL, RUN_ROWS, ids, 2);
        for (uint32_t row = 0; row < RUN_ROWS; row++) {
            struct fixture_cell *cell = fixture_cell(&f, run, row, 1);
            set_good(cell, bad->type);
            cell->is_null = nulls && row % 3 == 1;
            if (r * RUN_ROWS + row == bad_row) {
                cell->is_null = false;
                qwp_store_u64(cell->fixed, bad->fixed);
                if (bad->part != NULL) {
                    fixture_set_part(cell, bad->part, bad->part_len);
                }
            }
        }
    }
    fixture_build(&f);
    static const unsigned flag_sets[] = {QWP_ENCODE_GORILLA, QWP_ENCODE_COMPACT};
    for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0]; i++) {
        struct qwp_encoded done;
        ck_assert_int_eq(fixture_encode(&f, flag_sets[i], &done), QWP_CORRUPT);
        ck_assert_uint_eq(done.fault.row, bad_row);
        ck_assert_uint_eq(done.fault.column, 1);
        ck_assert_msg(strstr(done.fault.what, bad->what) != NULL, "'%s' does not say '%s'",
                      done.fault.what, bad->what);
    }
    fixture_free(&f);
}

START_TEST(encode_bad_value_names_row_and_column)
{
    static const uint32_t rows[] = {0, 1, 63, 64, 127, 128, 149, 150, 298, 299};
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
            expect_fault(&bad_values[i], rows[r], false);
            expect_fault(&bad_values[i], rows[r], true);
        }
    }
}
END_TEST

/* A null's field has no meaning, so a bad value there is none. */
START_TEST(encode_bad_value_of_a_null_is_ignored)
{
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        const struct qwp_block_column column = {NAME("c"), bad_values[i].type,
                                                bad_values[i].parameter};
        struct fixture f;
        fixture_init(&f, "t", &column, 1, QWP_TYPE_NONE);
        struct fixture_run *run = fixture_add_run(&f, NULL, 1, NULL, 0);
        fixture_cell(&f, run, 0, 0)->is_null = true;
        fixture_build(&f);
        memcpy(f.records[0] + run->shape->columns[0].off, &bad_values[i].fixed,
               qwp_type_field_bytes(column.type) < 8 ? qwp_type_field_bytes(column.type) : 8);
        struct qwp_encoded done;
        ck_assert_int_eq(fixture_encode(&f, QWP_ENCODE_GORILLA, &done), QWP_OK);
        fixture_free(&f);
    }
}
END_TEST

static enum qwp_result encode_time(uint8_t type, int64_t time, struct qwp_encoded *done)
{
    struct fixture f;
    fixture_init(&f, "t", NULL, 0, type);
    struct fixture_run *run = fixture_add_run(&f, NULL, 40, NULL, 0);
    run->times[33] = time;
    fixture_build(&f);
    const enum qwp_result result = fixture_encode(&f, QWP_ENCODE_GORILLA, done);
    fixture_free(&f);
    return result;
}

START_TEST(encode_designated_out_of_range_is_refused)
{
    static const int64_t bad_ns[] = {-1, INT64_MIN, INT64_MAX, QWP_DESIGNATED_NS_MAX + 1};
    static const int64_t bad_us[] = {-1, INT64_MIN, INT64_MAX, QWP_DESIGNATED_US_MAX + 1};
    struct qwp_encoded done;
    for (size_t i = 0; i < sizeof bad_ns / sizeof bad_ns[0]; i++) {
        ck_assert_int_eq(encode_time(QWP_TYPE_TIMESTAMP_NANOS, bad_ns[i], &done), QWP_CORRUPT);
        ck_assert_uint_eq(done.fault.row, 33);
        ck_assert_uint_eq(done.fault.column, 0);
        ck_assert_int_eq(encode_time(QWP_TYPE_TIMESTAMP, bad_us[i], &done), QWP_CORRUPT);
        ck_assert_ptr_nonnull(strstr(done.fault.what, "out of range"));
    }
    ck_assert_int_eq(encode_time(QWP_TYPE_TIMESTAMP_NANOS, QWP_DESIGNATED_NS_MAX, &done), QWP_OK);
    ck_assert_int_eq(encode_time(QWP_TYPE_TIMESTAMP, QWP_DESIGNATED_US_MAX, &done), QWP_OK);
    ck_assert_int_eq(encode_time(QWP_TYPE_TIMESTAMP, 0, &done), QWP_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("encode");
    TCase *tcase = tcase_create("encode");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, encode_trades_equals_captured_message);
    tcase_add_test(tcase, gorilla_buckets_give_hand_computed_bits);
    tcase_add_test(tcase, encode_nulls_equal_hand_computed_bytes);
    tcase_add_test(tcase, symbol_code_is_the_varint);
    tcase_add_test(tcase, compact_long_takes_narrowest_type_without_its_null);
    tcase_add_test(tcase, compact_that_does_not_pay_is_left);
    tcase_add_test(tcase, compact_time_is_in_microseconds);
    tcase_add_test(tcase, encode_bad_value_names_row_and_column);
    tcase_add_test(tcase, encode_bad_value_of_a_null_is_ignored);
    tcase_add_test(tcase, encode_designated_out_of_range_is_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

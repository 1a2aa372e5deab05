/* Aim: each rule of the format is kept: what breaks it is refused, with the status that a server
 * gives and words that say what and where.
 * Method: hand-made messages, each with one fault. */
#include "core/wire/qwp_decode.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_varint.h"
#include "tests/core/decode_fixture.h"

enum { MESSAGE_ROOM = 1 << 16 };
#define T INT64_C(1700000000000000000)

struct bytes {
    unsigned char at[MESSAGE_ROOM];
    size_t len;
};

static struct bytes built;

static void put(const void *bytes, size_t len)
{
    memcpy(built.at + built.len, bytes, len);
    built.len += len;
}

static void put_byte(unsigned v)
{
    built.at[built.len++] = (unsigned char)v;
}

static void put_varint(uint64_t v)
{
    built.len = (size_t)(qwp_varint_put(built.at + built.len, v) - built.at);
}

static void put_u32(uint32_t v)
{
    put(&v, sizeof v);
}

static void put_i64(int64_t v)
{
    put(&v, sizeof v);
}

static void put_name(const char *name)
{
    put_varint(strlen(name));
    put(name, strlen(name));
}

static void begin(unsigned flags, unsigned tables)
{
    built.len = 0;
    put("QWP1\x01", 5);
    put_byte(flags);
    put_byte(tables);
    put_byte(tables >> 8);
    put_u32(0);
}

static void begin_table(unsigned flags, const char *table, uint64_t rows, uint64_t columns)
{
    begin(flags, 1);
    if ((flags & QWP_FLAG_DELTA_DICT) != 0) {
        put_varint(0);
        put_varint(0);
    }
    put_name(table);
    put_varint(rows);
    put_varint(columns);
}

/* One table, one column, its header and null flag 0. */
static void begin_column(unsigned flags, uint64_t rows, const char *name, unsigned type)
{
    begin_table(flags, "t", rows, 1);
    put_name(name);
    put_byte(type);
    put_byte(0);
}

static void expect_fault_in(struct qwp_decoder *decoder, enum qwp_status status, const char *words)
{
    qwp_store_u32(built.at + 8, (uint32_t)(built.len - QWP_HEADER_BYTES));
    struct qwp_message message;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_decode_message(decoder, built.at, built.len, &message, &err);
    ck_assert_msg(result == QWP_CORRUPT, "'%s' was not noticed", words);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' does not say '%s'", err.text, words);
    ck_assert_int_eq(decoder->fault_status, status);
}

static void expect_fault(enum qwp_status status, const char *words)
{
    struct qwp_decoder decoder;
    qwp_decoder_init(&decoder, NULL);
    expect_fault_in(&decoder, status, words);
    qwp_decoder_fini(&decoder);
}

static void expect_ok_in(struct qwp_decoder *decoder, struct qwp_message *message)
{
    qwp_store_u32(built.at + 8, (uint32_t)(built.len - QWP_HEADER_BYTES));
    struct qwp_error err = {0};
    ck_assert_msg(qwp_decode_message(decoder, built.at, built.len, message, &err) == QWP_OK, "%s",
                  err.text);
}

static void expect_ok(void)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    expect_ok_in(&decoder, &message);
    qwp_decoder_fini(&decoder);
}

START_TEST(decode_bad_header_is_refused)
{
    begin(0, 0);
    built.at[0] = 'q';
    expect_fault(QWP_STATUS_PARSE_ERROR, "QWP1");
    begin(0, 0);
    built.at[4] = 2;
    expect_fault(QWP_STATUS_PARSE_ERROR, "version 2");
    begin(0x02, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "unknown flags");
    begin(0, 1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "length of a table name");
    begin(0, 0);
    put_byte(0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "1 bytes are left");
    begin(QWP_FLAG_DEFER_COMMIT, 0);
    expect_ok();
}
END_TEST

START_TEST(decode_bad_table_is_refused)
{
    begin_table(0, "a/b", 1, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "'/'");
    begin_table(0, "", 1, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "empty table name");
    begin_table(0, "t", 1000001, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "number of rows is 1000001");
    begin_table(0, "t", 1, 2050);
    expect_fault(QWP_STATUS_PARSE_ERROR, "number of columns is 2050");
    begin_table(0, "t", 1, 1);
    put_name("a");
    put_byte(0x08);
    expect_fault(QWP_STATUS_PARSE_ERROR, "unknown type 0x08");
    begin_table(0, "t", 1, 1);
    put_name("");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "without a name");
    begin_table(0, "t", 1, 2);
    for (int i = 0; i < 2; i++) {
        put_name("");
        put_byte(QWP_TYPE_TIMESTAMP);
    }
    expect_fault(QWP_STATUS_PARSE_ERROR, "second designated");
    begin_table(0, "t", 1, 2);
    put_name("Žluť");
    put_byte(QWP_TYPE_LONG);
    put_name("žluť");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "same but for case");
    begin_table(0, "t", 1, 1);
    put_name("a-b");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "'-'");
}
END_TEST

START_TEST(decode_two_thousand_columns_are_told_apart)
{
    begin_table(0, "t", 0, 2049);
    for (int i = 0; i < 2048; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        put_name(name);
        put_byte(QWP_TYPE_LONG);
    }
    put_name("");
    put_byte(QWP_TYPE_TIMESTAMP);
    for (int i = 0; i < 2049; i++) {
        put_byte(0);
    }
    expect_ok();
}
END_TEST

START_TEST(decode_bad_bitmap_is_refused)
{
    begin_table(0, "t", 3, 1);
    put_name("a");
    put_byte(QWP_TYPE_BYTE);
    put_byte(1);
    put_byte(0x09);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond its 3 rows");
    begin_table(0, "t", 1, 1);
    put_name("");
    put_byte(QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_byte(1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "are null");
    begin_column(0, 3, "a", QWP_TYPE_BOOLEAN);
    put_byte(0x08);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond the last of 3");
}
END_TEST

START_TEST(decode_bad_text_is_refused)
{
    begin_column(0, 1, "a", QWP_TYPE_VARCHAR);
    put_u32(1);
    put_u32(1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "first offset is 1");
    begin_column(0, 2, "a", QWP_TYPE_BINARY);
    put_u32(0);
    put_u32(2);
    put_u32(1);
    put("xx", 2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "offset 2 falls from 2 to 1");
    begin_column(0, 1, "a", QWP_TYPE_VARCHAR);
    put_u32(0);
    put_u32(100);
    expect_fault(QWP_STATUS_PARSE_ERROR, "100 bytes, 0 are left");
    /* Valid as a whole, but cut inside a character. */
    begin_column(0, 2, "a", QWP_TYPE_VARCHAR);
    put_u32(0);
    put_u32(1);
    put_u32(2);
    put("\xc5\xbe", 2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "value 0 is not valid UTF-8");
}
END_TEST

START_TEST(decode_bad_parameter_is_refused)
{
    static const struct {
        unsigned type;
        unsigned parameter;
        const char *words;
    } cases[] = {
        {QWP_TYPE_GEOHASH, 0, "precision of 0"}, {QWP_TYPE_GEOHASH, 61, "is 61, at most 60"},
        {QWP_TYPE_DECIMAL64, 19, "scale 19"},    {QWP_TYPE_DECIMAL128, 39, "scale 39"},
        {QWP_TYPE_DECIMAL256, 77, "scale 77"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_column(0, 0, "a", cases[i].type);
        put_byte(cases[i].parameter);
        expect_fault(QWP_STATUS_PARSE_ERROR, cases[i].words);
    }
    begin_column(0, 1, "a", QWP_TYPE_GEOHASH);
    put_byte(5);
    put_byte(0x20);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond its precision of 5");
    begin_column(0, 1, "a", QWP_TYPE_GEOHASH);
    put_byte(5);
    put_byte(0xff); /* reserved: null */
    expect_ok();
}
END_TEST

START_TEST(decode_bad_array_is_refused)
{
    begin_column(0, 1, "a", QWP_TYPE_DOUBLE_ARRAY);
    put_byte(0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "0 dimensions");
    begin_column(0, 1, "a", QWP_TYPE_DOUBLE_ARRAY);
    put_byte(33);
    expect_fault(QWP_STATUS_PARSE_ERROR, "33 dimensions");
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(1);
    put_u32(UINT32_MAX);
    expect_fault(QWP_STATUS_PARSE_ERROR, "negative length");
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(1);
    put_u32(2);
    put_i64(7);
    expect_fault(QWP_STATUS_PARSE_ERROR, "elements: 16 bytes, 8 are left");
    /* Lengths whose product overflows every integer, and then a zero: empty. */
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(4);
    for (int i = 0; i < 3; i++) {
        put_u32(INT32_MAX);
    }
    put_u32(0);
    expect_ok();
}
END_TEST

/* A block of one row with nothing but its time. */
static void put_time_block(const char *table, uint8_t type, int64_t time)
{
    put_name(table);
    put_varint(1);
    put_varint(1);
    put_name("");
    put_byte(type);
    put_byte(0);
    put_i64(time);
}

START_TEST(decode_us_behind_ns_are_ns)
{
    enum { BLOCKS = 6 };
    const int64_t late = QWP_DESIGNATED_NS_MAX / 1000 + 1; /* no nanosecond timestamp */
    begin(0, BLOCKS);
    put_time_block("a", QWP_TYPE_TIMESTAMP_NANOS, 5000);
    put_time_block("a", QWP_TYPE_TIMESTAMP, 6);
    put_time_block("b", QWP_TYPE_TIMESTAMP, 7);
    put_time_block("a", QWP_TYPE_TIMESTAMP, 8); /* not right behind */
    put_time_block("c", QWP_TYPE_TIMESTAMP_NANOS, 9);
    put_time_block("c", QWP_TYPE_TIMESTAMP, late);
    const int64_t times[BLOCKS] = {5000, 6000, 7, 8, 9, late};
    static const bool ns[BLOCKS] = {true, true, false, false, true, false};
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    expect_ok_in(&decoder, &message);
    for (uint32_t i = 0; i < BLOCKS; i++) {
        struct qwp_table_block block;
        struct qwp_cursor cursor;
        struct qwp_value value;
        qwp_block_open(&decoder, &message, i, &block);
        qwp_cursor_init(&cursor, &decoder, block.designated);
        ck_assert(qwp_cursor_next(&cursor, &value));
        ck_assert_int_eq(value.i64, times[i]);
        ck_assert_int_eq(value.type, ns[i] ? QWP_TYPE_TIMESTAMP_NANOS : QWP_TYPE_TIMESTAMP);
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_bad_time_is_refused)
{
    begin_column(0, 1, "", QWP_TYPE_TIMESTAMP_NANOS);
    put_i64(-1);
    expect_fault(QWP_STATUS_WRITE_ERROR, "designated timestamp -1");
    begin_column(0, 1, "", QWP_TYPE_TIMESTAMP_NANOS);
    put_i64(QWP_DESIGNATED_NS_MAX + 1);
    expect_fault(QWP_STATUS_WRITE_ERROR, "outside 0 to");
    begin_column(0, 2, "", QWP_TYPE_TIMESTAMP);
    put_i64(QWP_DESIGNATED_US_MAX);
    put_i64(0);
    expect_ok();
    begin_column(0, 1, "t", QWP_TYPE_TIMESTAMP);
    put_i64(INT64_MIN);
    expect_ok();
    begin_column(QWP_FLAG_GORILLA, 3, "", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(20);
    put_i64(10);
    put_byte(0x05);
    put_byte(0x1f); /* 101 and the low bits of -3 ... */
    expect_fault(QWP_STATUS_WRITE_ERROR, "row 2");
    begin_column(QWP_FLAG_GORILLA, 1, "", QWP_TYPE_TIMESTAMP);
    put_byte(2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "encoding 0x02");
}
END_TEST

/* Codes as the specification lists them, first prefix bit first. */
static uint64_t bits_at;

static void put_bits(uint64_t v, unsigned count)
{
    for (unsigned i = 0; i < count; i++, bits_at++) {
        if (bits_at % 8 == 0) {
            put_byte(0);
        }
        built.at[built.len - 1] |= (unsigned char)((v >> i & 1) << (bits_at % 8));
    }
}

START_TEST(decode_gorilla_block_gives_its_times)
{
    static const struct {
        unsigned prefix_bits;
        uint64_t prefix;
        unsigned bits;
        int64_t dod;
    } codes[] = {
        {1, 0, 0, 0},           {2, 1, 7, 63},    {2, 1, 7, -64},    {3, 3, 9, 255},
        {3, 3, 9, -256},        {4, 7, 12, 2047}, {4, 7, 12, -2048}, {4, 15, 32, INT32_MAX},
        {4, 15, 32, INT32_MIN}, {1, 0, 0, 0},     {1, 0, 0, 0},
    };
    enum { CODES = sizeof codes / sizeof codes[0] };
    begin_column(QWP_FLAG_GORILLA, CODES + 2, "t", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(1000);
    put_i64(2000);
    bits_at = 0;
    for (int i = 0; i < CODES; i++) {
        put_bits(codes[i].prefix, codes[i].prefix_bits);
        put_bits((uint64_t)codes[i].dod, codes[i].bits);
    }
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    expect_ok_in(&decoder, &message);
    struct qwp_table_block block;
    qwp_block_open(&decoder, &message, 0, &block);
    int64_t time = 2000;
    int64_t delta = 1000;
    ck_assert_int_eq(value_at(&decoder, &block, "t", 0).i64, 1000);
    ck_assert_int_eq(value_at(&decoder, &block, "t", 1).i64, 2000);
    for (uint32_t i = 0; i < CODES; i++) {
        delta += codes[i].dod;
        time += delta;
        ck_assert_int_eq(value_at(&decoder, &block, "t", i + 2).i64, time);
    }
    built.len--;
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "Gorilla");
    qwp_decoder_fini(&decoder);
}
END_TEST

static void begin_delta(uint64_t start, uint64_t count)
{
    begin(QWP_FLAG_DELTA_DICT, 0);
    put_varint(start);
    put_varint(count);
}

START_TEST(decode_dictionary_follows_its_rules)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    const struct qwp_decoder_options options = {.symbols_max = 4, .symbol_bytes_max = 8};
    qwp_decoder_init(&decoder, &options);
    begin_delta(1, 0);
    expect_fault_in(&decoder, QWP_STATUS_DICTIONARY_GAP, "begins at symbol 1");
    begin_delta(0, 2);
    put_name("a");
    put_name("");
    expect_ok_in(&decoder, &message);
    begin_delta(1, 2);
    put_name("");
    put_name("ccc");
    expect_ok_in(&decoder, &message);
    ck_assert_uint_eq(decoder.dict.count, 3);
    ck_assert_uint_eq(qwp_decoder_symbol(&decoder, 2).len, 3);
    begin_delta(2, 1);
    put_name("ccd");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "another text");
    begin_delta(3, 1);
    put_name("\xff");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "UTF-8");
    begin_delta(3, 2);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "number of symbols in the delta is 2");
    begin_delta(3, 1);
    put_name("12345");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "more than 8 bytes");
    ck_assert_uint_eq(decoder.dict.count, 3);
    begin_column(QWP_FLAG_DELTA_DICT, 1, "s", QWP_TYPE_SYMBOL);
    put_byte(3);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "symbol 3, the connection has 3");
    begin_column(0, 1, "s", QWP_TYPE_SYMBOL);
    put_byte(2);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "DELTA_SYMBOL_DICT");
    qwp_decoder_reset(&decoder);
    begin_delta(1, 0);
    expect_fault_in(&decoder, QWP_STATUS_DICTIONARY_GAP, "the connection has 0");
    qwp_decoder_fini(&decoder);
}
END_TEST

/* Ids of one and two bytes mixed, in runs of every length around the eight that are looked at
 * together; then one that is too large at every place. */
START_TEST(decode_symbol_ids_are_judged_at_every_place)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    begin_delta(0, _i);
    for (int i = 0; i < _i; i++) {
        put_name("s");
    }
    expect_ok_in(&decoder, &message);
    for (uint32_t rows = 1; rows < 40; rows++) {
        for (uint32_t bad = 0; bad <= rows; bad++) {
            begin_column(QWP_FLAG_DELTA_DICT, rows, "s", QWP_TYPE_SYMBOL);
            for (uint32_t row = 0; row < rows; row++) {
                put_varint(row == bad ? (unsigned)_i : (row * 37 + bad) % (unsigned)_i);
            }
            if (bad < rows) {
                char words[32];
                snprintf(words, sizeof words, "value %u: symbol %d", bad, _i);
                expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, words);
            } else {
                expect_ok_in(&decoder, &message);
                struct qwp_table_block block;
                qwp_block_open(&decoder, &message, 0, &block);
                ck_assert_uint_eq(value_at(&decoder, &block, "s", rows - 1).symbol.id,
                                  ((rows - 1) * 37 + bad) % (unsigned)_i);
            }
        }
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_count_depth_judges_a_gorilla_block_by_its_size)
{
    struct qwp_decoder count;
    struct qwp_message counted;
    qwp_decoder_init(&count, &(struct qwp_decoder_options){.depth = QWP_DECODE_COUNT});
    begin_column(QWP_FLAG_GORILLA, 10, "", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(0);
    put_i64(1);
    expect_fault_in(&count, QWP_STATUS_PARSE_ERROR, "0 bytes cannot be the Gorilla codes");
    put_byte(0);
    expect_ok_in(&count, &counted);
    ck_assert_uint_eq(counted.row_count, 10);
    built.len += 40;
    expect_fault_in(&count, QWP_STATUS_PARSE_ERROR, "cannot be the Gorilla codes");
    qwp_decoder_fini(&count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decode_built");
    TCase *tcase = tcase_create("decode_built");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, decode_bad_header_is_refused);
    tcase_add_test(tcase, decode_bad_table_is_refused);
    tcase_add_test(tcase, decode_two_thousand_columns_are_told_apart);
    tcase_add_test(tcase, decode_bad_bitmap_is_refused);
    tcase_add_test(tcase, decode_bad_text_is_refused);
    tcase_add_test(tcase, decode_bad_parameter_is_refused);
    tcase_add_test(tcase, decode_bad_array_is_refused);
    tcase_add_test(tcase, decode_us_behind_ns_are_ns);
    tcase_add_test(tcase, decode_bad_time_is_refused);
    tcase_add_test(tcase, decode_gorilla_block_gives_its_times);
    tcase_add_test(tcase, decode_dictionary_follows_its_rules);
    tcase_add_loop_test(tcase, decode_symbol_ids_are_judged_at_every_place, 1, 3);
    tcase_add_loop_test(tcase, decode_symbol_ids_are_judged_at_every_place, 126, 131);
    tcase_add_test(tcase, decode_count_depth_judges_a_gorilla_block_by_its_size);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Rows of the builder, read back from the ring by its layout: every type, nulls, any order of
 * setting, and what a mistake says and leaves behind. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "tests/clients/client_fixture.h"

static struct qwp_table *define(const char *name, const struct qwp_column *columns, size_t count)
{
    struct qwp_table *table;
    const enum qwp_result result =
        qwp_table_define(fixture_producer, name, columns, count, &table, &fixture_err);
    ck_assert_msg(result == QWP_OK, "%s", fixture_err.text);
    return table;
}

static void end_ok(struct qwp_row *row, int64_t ns)
{
    const enum qwp_result result = qwp_row_at_ns(row, ns, &fixture_err);
    ck_assert_msg(result == QWP_OK, "%s: %s", qwp_result_name(result), fixture_err.text);
}

/* ---- round trip ---- */

static const struct qwp_column every_type[] = {
    {"boolean", QWP_BOOLEAN, 0},
    {"byte", QWP_BYTE, 0},
    {"short", QWP_SHORT, 0},
    {"int", QWP_INT, 0},
    {"long", QWP_LONG, 0},
    {"float", QWP_FLOAT, 0},
    {"double", QWP_DOUBLE, 0},
    {"symbol", QWP_SYMBOL, 0},
    {"timestamp", QWP_TIMESTAMP, 0},
    {"date", QWP_DATE, 0},
    {"uuid", QWP_UUID, 0},
    {"long256", QWP_LONG256, 0},
    {"geohash", QWP_GEOHASH, 20},
    {"varchar", QWP_VARCHAR, 0},
    {"nanos", QWP_TIMESTAMP_NANOS, 0},
    {"doubles", QWP_DOUBLE_ARRAY, 0},
    {"longs", QWP_LONG_ARRAY, 0},
    {"decimal64", QWP_DECIMAL64, 2},
    {"decimal128", QWP_DECIMAL128, 3},
    {"decimal256", QWP_DECIMAL256, 4},
    {"char", QWP_CHAR, 0},
    {"binary", QWP_BINARY, 0},
    {"ipv4", QWP_IPV4, 0},
};
enum { EVERY = sizeof every_type / sizeof every_type[0] };

static const uint64_t long256[4] = {1, 2, 3, UINT64_C(0x8000000000000000)};
static const uint64_t minus_one[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
static const double doubles[6] = {1, 2.5, -3, 0, NAN, 1e300};
static const int64_t longs[2] = {INT64_MIN, 7};
static const uint32_t shape23[2] = {2, 3};
static const uint32_t shape2[1] = {2};

static void set(struct qwp_row *row, uint32_t column)
{
    switch (every_type[column].type) {
    case QWP_BOOLEAN:
        ck_assert_int_eq(qwp_row_boolean(row, column, true), QWP_OK);
        break;
    case QWP_BYTE:
        ck_assert_int_eq(qwp_row_byte(row, column, -5), QWP_OK);
        break;
    case QWP_SHORT:
        ck_assert_int_eq(qwp_row_short(row, column, -300), QWP_OK);
        break;
    case QWP_INT:
        ck_assert_int_eq(qwp_row_int(row, column, INT32_MIN), QWP_OK);
        break;
    case QWP_LONG:
        ck_assert_int_eq(qwp_row_long(row, column, INT64_MAX), QWP_OK);
        break;
    case QWP_FLOAT:
        ck_assert_int_eq(qwp_row_float(row, column, 1.5f), QWP_OK);
        break;
    case QWP_DOUBLE:
        ck_assert_int_eq(qwp_row_double(row, column, -2.25), QWP_OK);
        break;
    case QWP_SYMBOL:
        ck_assert_int_eq(qwp_row_symbol(row, column, "ETH-USD", 7), QWP_OK);
        break;
    case QWP_TIMESTAMP:
        ck_assert_int_eq(qwp_row_timestamp(row, column, -1), QWP_OK);
        break;
    case QWP_DATE:
        ck_assert_int_eq(qwp_row_date(row, column, 1700000000000), QWP_OK);
        break;
    case QWP_UUID:
        ck_assert_int_eq(qwp_row_uuid(row, column, 0x1122, 0x3344), QWP_OK);
        break;
    case QWP_LONG256:
        ck_assert_int_eq(qwp_row_long256(row, column, long256), QWP_OK);
        break;
    case QWP_GEOHASH:
        ck_assert_int_eq(qwp_row_geohash(row, column, 0xfffff), QWP_OK);
        break;
    case QWP_VARCHAR:
        ck_assert_int_eq(qwp_row_varchar(row, column, "žluťoučký", 13), QWP_OK);
        break;
    case QWP_TIMESTAMP_NANOS:
        ck_assert_int_eq(qwp_row_timestamp_ns(row, column, 1700000000000000001), QWP_OK);
        break;
    case QWP_DOUBLE_ARRAY:
        ck_assert_int_eq(qwp_row_double_array(row, column, doubles, shape23, 2), QWP_OK);
        break;
    case QWP_LONG_ARRAY:
        ck_assert_int_eq(qwp_row_long_array(row, column, longs, shape2, 1), QWP_OK);
        break;
    case QWP_DECIMAL64:
        ck_assert_int_eq(qwp_row_decimal(row, column, minus_one, 1), QWP_OK);
        break;
    case QWP_DECIMAL128:
        ck_assert_int_eq(qwp_row_decimal(row, column, minus_one, 2), QWP_OK);
        break;
    case QWP_DECIMAL256:
        ck_assert_int_eq(qwp_row_decimal(row, column, minus_one, 4), QWP_OK);
        break;
    case QWP_CHAR:
        ck_assert_int_eq(qwp_row_char(row, column, 0x20ac), QWP_OK);
        break;
    case QWP_BINARY:
        ck_assert_int_eq(qwp_row_binary(row, column, "\0\xff\x01", 3), QWP_OK);
        break;
    case QWP_IPV4:
        ck_assert_int_eq(qwp_row_ipv4(row, column, 0x7f000001), QWP_OK);
        break;
    }
}

static void check_bytes(const struct record *record, uint32_t column, const void *bytes, size_t len)
{
    ck_assert_mem_eq(record_field(record, column), bytes, len);
}

static void check_part(const struct record *record, uint32_t column, const void *bytes, size_t len)
{
    uint32_t part_len;
    const unsigned char *part = record_part(record, column, &part_len);
    ck_assert_uint_eq(part_len, len);
    ck_assert_mem_eq(part, bytes, len);
}

static void check_column(const struct reader *reader, const struct record *record, uint32_t c)
{
    const unsigned char *field = record_field(record, c);
    uint32_t len;
    switch (every_type[c].type) {
    case QWP_BOOLEAN:
        ck_assert_uint_eq(field[0], 1);
        break;
    case QWP_BYTE:
        ck_assert_int_eq((int8_t)field[0], -5);
        break;
    case QWP_SHORT:
        ck_assert_int_eq((int16_t)qwp_load_u16(field), -300);
        break;
    case QWP_INT:
        ck_assert_int_eq((int32_t)qwp_load_u32(field), INT32_MIN);
        break;
    case QWP_LONG:
        ck_assert_int_eq(qwp_load_i64(field), INT64_MAX);
        break;
    case QWP_FLOAT:
        check_bytes(record, c, &(float){1.5f}, 4);
        break;
    case QWP_DOUBLE:
        check_bytes(record, c, &(double){-2.25}, 8);
        break;
    case QWP_SYMBOL:
        ck_assert_mem_eq(record_symbol(reader, record, c, &len), "ETH-USD", 7);
        ck_assert_uint_eq(len, 7);
        break;
    case QWP_TIMESTAMP:
        ck_assert_int_eq(qwp_load_i64(field), -1);
        break;
    case QWP_DATE:
        ck_assert_int_eq(qwp_load_i64(field), 1700000000000);
        break;
    case QWP_UUID:
        check_bytes(record, c, (uint64_t[]){0x3344, 0x1122}, 16);
        break;
    case QWP_LONG256:
        check_bytes(record, c, long256, 32);
        break;
    case QWP_GEOHASH:
        ck_assert_uint_eq(qwp_load_u64(field), 0xfffff);
        break;
    case QWP_VARCHAR:
        check_part(record, c, "žluťoučký", 13);
        break;
    case QWP_TIMESTAMP_NANOS:
        ck_assert_int_eq(qwp_load_i64(field), 1700000000000000001);
        break;
    case QWP_DOUBLE_ARRAY: {
        unsigned char part[9 + sizeof doubles] = {2, 2, 0, 0, 0, 3, 0, 0, 0};
        memcpy(part + 9, doubles, sizeof doubles);
        check_part(record, c, part, sizeof part);
        break;
    }
    case QWP_LONG_ARRAY: {
        unsigned char part[5 + sizeof longs] = {1, 2, 0, 0, 0};
        memcpy(part + 5, longs, sizeof longs);
        check_part(record, c, part, sizeof part);
        break;
    }
    case QWP_DECIMAL64:
        check_bytes(record, c, minus_one, 8);
        break;
    case QWP_DECIMAL128:
        check_bytes(record, c, minus_one, 16);
        break;
    case QWP_DECIMAL256:
        check_bytes(record, c, minus_one, 32);
        break;
    case QWP_CHAR:
        ck_assert_uint_eq(qwp_load_u16(field), 0x20ac);
        break;
    case QWP_BINARY:
        check_part(record, c, "\0\xff\x01", 3);
        break;
    case QWP_IPV4:
        ck_assert_uint_eq(qwp_load_u32(field), 0x7f000001);
        break;
    }
}

/* Every single column alone, then all in rising, falling and scattered order. */
START_TEST(row_of_every_type_comes_back)
{
    fixture_open(NULL);
    struct qwp_table *table = define("every", every_type, EVERY);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    for (uint32_t only = 0; only < EVERY; only++) {
        struct qwp_row *row = qwp_row_begin(table);
        set(row, only);
        end_ok(row, only);
        ck_assert(reader_next(&reader, &record));
        ck_assert_int_eq(record_time(&record), only);
        for (uint32_t c = 0; c < EVERY; c++) {
            ck_assert_int_eq(record_is_null(&record, c), c != only);
        }
        check_column(&reader, &record, only);
    }
    const uint32_t steps[] = {1, EVERY - 1, 5};
    for (size_t s = 0; s < 3; s++) {
        struct qwp_row *row = qwp_row_begin(table);
        for (uint32_t i = 0; i < EVERY; i++) {
            set(row, (i + 1) * steps[s] % EVERY);
        }
        end_ok(row, 1);
        ck_assert(reader_next(&reader, &record));
        ck_assert_uint_eq(record.flags, 0);
        for (uint32_t c = 0; c < EVERY; c++) {
            ck_assert(!record_is_null(&record, c));
            check_column(&reader, &record, c);
        }
    }
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

/* at_now() has no timestamp in the record, so its fields lie 8 bytes lower than the builder may
 * have assumed while they were set. */
START_TEST(row_time_kinds_alternate_and_fields_stay_right)
{
    fixture_open(NULL);
    struct qwp_table *table = define("every", every_type, EVERY);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    for (int i = 0; i < 12; i++) {
        struct qwp_row *row = qwp_row_begin(table);
        for (uint32_t c = 0; c < EVERY; c++) {
            set(row, i % 2 == 0 ? c : EVERY - 1 - c);
        }
        const int kind = i / 2 % 3;
        enum qwp_result result = kind == 0   ? qwp_row_at_ns(row, i, &fixture_err)
                                 : kind == 1 ? qwp_row_at_us(row, i, &fixture_err)
                                             : qwp_row_at_now(row, &fixture_err);
        ck_assert_int_eq(result, QWP_OK);
        ck_assert(reader_next(&reader, &record));
        ck_assert_uint_eq(record.shape->designated_type, kind == 0   ? QWP_TYPE_TIMESTAMP_NANOS
                                                         : kind == 1 ? QWP_TYPE_TIMESTAMP
                                                                     : QWP_TYPE_NONE);
        for (uint32_t c = 0; c < EVERY; c++) {
            check_column(&reader, &record, c);
        }
        if (kind != 2) {
            ck_assert_int_eq(record_time(&record), i);
        }
    }
    ck_assert_uint_eq(reader.shape_count, 3);
    reader_close(&reader);
}
END_TEST

START_TEST(row_without_columns_is_a_row)
{
    fixture_open(NULL);
    struct qwp_table *table = define("empty", NULL, 0);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    end_ok(qwp_row_begin(table), 5);
    ck_assert_int_eq(qwp_row_at_now(qwp_row_begin(table), &fixture_err), QWP_OK);
    ck_assert(reader_next(&reader, &record));
    ck_assert_int_eq(record_time(&record), 5);
    ck_assert(reader_next(&reader, &record));
    ck_assert_uint_eq(record.size_bytes, 8);
    reader_close(&reader);
}
END_TEST

START_TEST(row_of_200_columns_marks_nulls_in_all_words)
{
    fixture_open(NULL);
    struct qwp_column columns[200];
    char names[200][8];
    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "c%d", i);
        columns[i] = (struct qwp_column){names[i], i % 2 == 0 ? QWP_LONG : QWP_VARCHAR, 0};
    }
    struct qwp_table *table = define("wide", columns, 200);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    for (uint32_t step = 1; step < 9; step += 2) {
        struct qwp_row *row = qwp_row_begin(table);
        for (uint32_t c = 0; c < 200; c += step) {
            if (c % 2 == 0) {
                qwp_row_long(row, c, c);
            } else if (c % 3 == 0) {
                qwp_row_null(row, c);
            } else {
                qwp_row_varchar(row, c, names[c], strlen(names[c]));
            }
        }
        end_ok(row, step);
        ck_assert(reader_next(&reader, &record));
        for (uint32_t c = 0; c < 200; c++) {
            const bool is_set = c % step == 0 && (c % 2 == 0 || c % 3 != 0);
            ck_assert_int_eq(record_is_null(&record, c), !is_set);
            if (is_set && c % 2 == 0) {
                ck_assert_int_eq(qwp_load_i64(record_field(&record, c)), c);
            } else if (is_set) {
                check_part(&record, c, names[c], strlen(names[c]));
            }
        }
        ck_assert_uint_eq(qwp_load_u64(record.at + 8 + 3 * 8) >> 8, 0);
    }
    reader_close(&reader);
}
END_TEST

START_TEST(row_empty_values_are_no_nulls)
{
    fixture_open(NULL);
    struct qwp_table *table = define("every", every_type, EVERY);
    struct reader reader;
    reader_open(&reader);
    struct qwp_row *row = qwp_row_begin(table);
    const uint32_t none[3] = {4, 0, UINT32_C(2000000000)};
    qwp_row_varchar(row, 13, NULL, 0);
    qwp_row_binary(row, 21, NULL, 0);
    qwp_row_symbol(row, 7, NULL, 0);
    qwp_row_double_array(row, 15, NULL, none, 3);
    end_ok(row, 1);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    uint32_t len;
    ck_assert(!record_is_null(&record, 13));
    ck_assert(!record_is_null(&record, 21));
    ck_assert_str_eq(record_symbol(&reader, &record, 7, &len), "");
    record_part(&record, 15, &len);
    ck_assert_uint_eq(len, 13);
    reader_close(&reader);
}
END_TEST

START_TEST(row_by_name_finds_columns_in_any_case_and_order)
{
    fixture_open(NULL);
    const struct qwp_column columns[] = {
        {"Price", QWP_DOUBLE, 0}, {"Qty", QWP_LONG, 0}, {"žlutá", QWP_LONG, 0}};
    struct qwp_table *table = define("t", columns, 3);
    struct reader reader;
    reader_open(&reader);
    struct qwp_row *row = qwp_row_begin(table);
    ck_assert_uint_eq(qwp_row_column(row, "Price"), 0);
    ck_assert_uint_eq(qwp_row_column(row, "Qty"), 1);
    ck_assert_uint_eq(qwp_row_column(row, "ŽLUTÁ"), 2);
    ck_assert_uint_eq(qwp_row_column(row, "QTY"), 1);
    ck_assert_int_eq(qwp_row_long(row, qwp_row_column(row, "qty"), 4), QWP_OK);
    end_ok(row, 1);
    row = qwp_row_begin(table);
    ck_assert_int_eq(qwp_row_long(row, qwp_row_column(row, "qtx"), 4), QWP_INVALID);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID,
           "table 't': no column is named 'qtx'; add it with qwp_table_column()");
    reader_close(&reader);
}
END_TEST

/* ---- mistakes ---- */

START_TEST(row_mistake_is_told_at_the_end_and_the_next_row_is_fine)
{
    fixture_open(NULL);
    struct qwp_table *table = define("every", every_type, EVERY);
    struct reader reader;
    reader_open(&reader);
    struct qwp_row *row = qwp_row_begin(table);
    ck_assert_int_eq(qwp_row_double(row, 4, 1.5), QWP_INVALID);
    ck_assert_int_eq(qwp_row_long(row, 4, 1), QWP_INVALID);
    ck_assert_int_eq(qwp_row_null(row, 3), QWP_INVALID);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID,
           "table 'every': column 'long' is long and was given a double; use qwp_row_long()");
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID, "no row is open");
    ck_assert_int_eq(qwp_row_long(row, 4, 1), QWP_INVALID);
    reader_expect_end(&reader);
    row = qwp_row_begin(table);
    qwp_row_long(row, 4, 9);
    end_ok(row, 1);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert_int_eq(qwp_load_i64(record_field(&record, 4)), 9);
    reader_close(&reader);
}
END_TEST

static struct qwp_table *mistake_table;

static void set_twice(struct qwp_row *row)
{
    qwp_row_long(row, 4, 1);
    qwp_row_long(row, 4, 1);
}
static void set_after_null(struct qwp_row *row)
{
    qwp_row_null(row, 4);
    qwp_row_long(row, 4, 1);
}
static void null_after_set(struct qwp_row *row)
{
    qwp_row_varchar(row, 13, "x", 1);
    qwp_row_null(row, 13);
}
static void unknown_index(struct qwp_row *row)
{
    qwp_row_long(row, EVERY, 1);
}
static void symbol_into_varchar(struct qwp_row *row)
{
    qwp_row_symbol(row, 13, "x", 1);
}
static void micros_into_nanos(struct qwp_row *row)
{
    qwp_row_timestamp(row, 14, 1);
}
static void bad_text(struct qwp_row *row)
{
    qwp_row_varchar(row, 13, "ab\xff", 3);
}
static void bad_symbol(struct qwp_row *row)
{
    qwp_row_symbol(row, 7, "\xed\xa0\x80", 3);
}
static void strange_handle(struct qwp_row *row)
{
    qwp_row_symbol_handle(row, 7, 12345);
}
static void wide_geohash(struct qwp_row *row)
{
    qwp_row_geohash(row, 12, 0x100000);
}
static void decimal_of_3_words(struct qwp_row *row)
{
    qwp_row_decimal(row, 19, minus_one, 3);
}
static void decimal_of_2_words_in_decimal64(struct qwp_row *row)
{
    qwp_row_decimal(row, 17, minus_one, 2);
}
static void decimal64_of_19_digits(struct qwp_row *row)
{
    qwp_row_decimal(row, 17, (uint64_t[]){UINT64_C(1000000000000000000)}, 1);
}
static void decimal64_minimum(struct qwp_row *row)
{
    qwp_row_decimal(row, 17, (uint64_t[]){UINT64_C(1) << 63}, 1);
}
static void decimal128_of_39_digits(struct qwp_row *row)
{
    qwp_row_decimal(row, 18,
                    (uint64_t[]){UINT64_C(0x098a224000000000), UINT64_C(0x4b3b4ca85a86c47a)}, 2);
}
static void decimal256_minimum(struct qwp_row *row)
{
    qwp_row_decimal(row, 19, (uint64_t[]){0, 0, 0, UINT64_C(1) << 63}, 4);
}
static void array_of_no_dimension(struct qwp_row *row)
{
    qwp_row_double_array(row, 15, doubles, shape23, 0);
}
static void array_of_33_dimensions(struct qwp_row *row)
{
    const uint32_t shape[33] = {0};
    qwp_row_double_array(row, 15, doubles, shape, 33);
}
static void array_shape_overflows(struct qwp_row *row)
{
    const uint32_t shape[4] = {0x10000, 0x10000, 0x10000, 0x10000};
    qwp_row_long_array(row, 16, longs, shape, 4);
}
static void array_length_beyond_i32(struct qwp_row *row)
{
    const uint32_t shape[2] = {UINT32_C(0x80000000), 0};
    qwp_row_long_array(row, 16, longs, shape, 2);
}
static void array_larger_than_the_bound(struct qwp_row *row)
{
    const uint32_t shape[1] = {5000};
    qwp_row_double_array(row, 15, doubles, shape, 1);
}
static void text_larger_than_the_bound(struct qwp_row *row)
{
    static char text[40000];
    memset(text, 'x', sizeof text);
    qwp_row_varchar(row, 13, text, sizeof text);
}

static const struct {
    void (*make)(struct qwp_row *row);
    enum qwp_result result;
    const char *text;
} mistakes[] = {
    {set_twice, QWP_INVALID, "column 'long' is set twice in one row"},
    {set_after_null, QWP_INVALID, "column 'long' is set twice in one row"},
    {null_after_set, QWP_INVALID, "column 'varchar' is set twice in one row"},
    {unknown_index, QWP_INVALID, "no column has the index 23, there are 23"},
    {symbol_into_varchar, QWP_INVALID,
     "'varchar' is varchar and was given a symbol; use qwp_row_varchar()"},
    {micros_into_nanos, QWP_INVALID,
     "'nanos' is timestamp_ns and was given a timestamp; use qwp_row_timestamp_ns()"},
    {bad_text, QWP_INVALID, "column 'varchar' was given text that is not valid UTF-8"},
    {bad_symbol, QWP_INVALID, "column 'symbol' was given a symbol that is not valid UTF-8"},
    {strange_handle, QWP_INVALID, "column 'symbol' was given a symbol handle that"},
    {wide_geohash, QWP_INVALID, "column 'geohash' was given a geohash with bits beyond"},
    {decimal_of_3_words, QWP_INVALID, "neither 1, 2 nor 4 words"},
    {decimal_of_2_words_in_decimal64, QWP_INVALID,
     "'decimal64' is decimal64 and was given a decimal128"},
    {decimal64_of_19_digits, QWP_INVALID, "more than 18 digits"},
    {decimal64_minimum, QWP_INVALID, "more than 18 digits"},
    {decimal128_of_39_digits, QWP_INVALID, "more than 38 digits"},
    {decimal256_minimum, QWP_INVALID, "more than 76 digits"},
    {array_of_no_dimension, QWP_INVALID, "without dimensions or with more than 32"},
    {array_of_33_dimensions, QWP_INVALID, "without dimensions or with more than 32"},
    {array_shape_overflows, QWP_LIMIT, "more elements than a row can hold"},
    {array_length_beyond_i32, QWP_LIMIT, "more elements than a row can hold"},
    {array_larger_than_the_bound, QWP_LIMIT, "column 'doubles': 40005 bytes do not fit"},
    {text_larger_than_the_bound, QWP_LIMIT, "bound is 32768: send less, or open it with more"},
};

/* Whatever went wrong, positions and everything published stay as they were. */
START_TEST(row_mistake_says_what_to_do_and_leaves_the_ring)
{
    fixture_open(NULL);
    mistake_table = define("every", every_type, EVERY);
    struct qwp_row *row = qwp_row_begin(mistake_table);
    for (uint32_t c = 0; c < EVERY; c++) {
        set(row, c);
    }
    end_ok(row, 1);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    unsigned char *before = malloc(record.size_bytes);
    memcpy(before, record.at, record.size_bytes);
    const uint64_t published = qwp_position_published(fixture_producer);

    row = qwp_row_begin(mistake_table);
    set(row, 0);
    mistakes[_i].make(row);
    expect(qwp_row_at_ns(row, 1, &fixture_err), mistakes[_i].result, mistakes[_i].text);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "table 'every': "));

    ck_assert_uint_eq(qwp_position_published(fixture_producer), published);
    reader_expect_end(&reader);
    ck_assert_mem_eq(record.at, before, record.size_bytes);
    free(before);
    struct qwp_counters counters;
    qwp_producer_count(fixture_producer, &counters);
    ck_assert_uint_eq(counters.rows_published, 1);
    reader_close(&reader);
}
END_TEST

START_TEST(row_times_out_of_range_are_refused)
{
    fixture_open(NULL);
    struct qwp_table *table = define("t", NULL, 0);
    const int64_t bad_ns[] = {INT64_MIN, -1, QWP_DESIGNATED_NS_MAX + 1, INT64_MAX};
    const int64_t bad_us[] = {INT64_MIN, -1, QWP_DESIGNATED_US_MAX + 1, INT64_MAX};
    for (int i = 0; i < 4; i++) {
        expect(qwp_row_at_ns(qwp_row_begin(table), bad_ns[i], &fixture_err), QWP_INVALID,
               "out of the server's range, 0 to 9214646399999999999 (2261-12-31)");
        expect(qwp_row_at_us(qwp_row_begin(table), bad_us[i], &fixture_err), QWP_INVALID,
               "out of the server's range, 0 to 253402300799999999 (9999-12-31)");
    }
    ck_assert_uint_eq(qwp_position_published(fixture_producer), 0);
    end_ok(qwp_row_begin(table), 0);
    end_ok(qwp_row_begin(table), QWP_DESIGNATED_NS_MAX);
    ck_assert_int_eq(qwp_row_at_us(qwp_row_begin(table), QWP_DESIGNATED_US_MAX, NULL), QWP_OK);
}
END_TEST

START_TEST(row_abort_and_a_second_begin_drop_the_first)
{
    fixture_open(NULL);
    struct qwp_table *table = define("every", every_type, EVERY);
    struct qwp_row *row = qwp_row_begin(table);
    set(row, 13);
    qwp_row_abort(row);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID, "no row is open");
    row = qwp_row_begin(table);
    set(row, 13);
    row = qwp_row_begin(table);
    set(row, 21);
    end_ok(row, 2);
    struct reader reader;
    reader_open(&reader);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert(record_is_null(&record, 13));
    check_column(&reader, &record, 21);
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

/* ---- symbols ---- */

START_TEST(symbol_beyond_the_area_travels_as_text)
{
    const struct qwp_producer_options options = {.ring_bytes = 1 << 20,
                                                 .definition_bytes_max = 64 * 1024};
    fixture_open(&options);
    const struct qwp_column columns[] = {
        {"before", QWP_VARCHAR, 0}, {"symbol", QWP_SYMBOL, 0}, {"after", QWP_VARCHAR, 0}};
    struct qwp_table *table = define("t", columns, 3);
    struct reader reader;
    reader_open(&reader);
    uint32_t as_text = 0;
    char text[64];
    for (int round = 0; round < 2; round++) {
        for (uint32_t i = 0; i < 3000; i++) {
            const int len = snprintf(text, sizeof text, "symbol-%u%s", i,
                                     i % 3 == 0 ? "-with-a-rather-long-text-behind" : "");
            struct qwp_row *row = qwp_row_begin(table);
            qwp_row_varchar(row, 0, "b", 1);
            qwp_row_symbol(row, 1, text, (size_t)len);
            qwp_row_varchar(row, 2, "aa", 2);
            end_ok(row, i);
            struct record record;
            ck_assert(reader_next(&reader, &record));
            uint32_t got_len;
            const char *got = record_symbol(&reader, &record, 1, &got_len);
            ck_assert_uint_eq(got_len, len);
            ck_assert_mem_eq(got, text, got_len);
            check_part(&record, 0, "b", 1);
            check_part(&record, 2, "aa", 2);
            as_text += (record.flags & QWP_RECORD_SYMBOL_TEXT) != 0;
            reader_release(&reader, 1);
        }
    }
    ck_assert_uint_gt(as_text, 1000);
    ck_assert_uint_lt(as_text, 5000);
    uint32_t handle;
    expect(qwp_symbol_intern(fixture_producer, "never seen before", 17, &handle, &fixture_err),
           QWP_LIMIT, "more definition_bytes_max");
    /* Tables can still be defined. */
    const struct qwp_column late[] = {{"late", QWP_LONG, 0}};
    end_ok(qwp_row_begin(define("late", late, 1)), 1);
    reader_close(&reader);
}
END_TEST

START_TEST(symbol_handles_and_texts_are_the_same_symbols)
{
    fixture_open(NULL);
    const struct qwp_column columns[] = {{"s", QWP_SYMBOL, 0}};
    struct qwp_table *table = define("t", columns, 1);
    struct reader reader;
    reader_open(&reader);
    /* Every length up to beyond the slot's 24 bytes, and neighbours that differ in one byte. */
    char text[80];
    for (size_t len = 0; len < sizeof text; len++) {
        for (size_t differ = 0; differ <= len; differ++) {
            memset(text, 'a', sizeof text);
            if (differ < len) {
                text[differ] = 'b';
            }
            uint32_t handle;
            uint32_t again;
            if (qwp_symbol_intern(fixture_producer, text, len, &handle, NULL) == QWP_LIMIT) {
                continue;
            }
            ck_assert_int_eq(qwp_symbol_intern(fixture_producer, text, len, &again, NULL), QWP_OK);
            ck_assert_uint_eq(handle, again);
            struct qwp_row *row = qwp_row_begin(table);
            if (differ % 2 == 0) {
                qwp_row_symbol(row, 0, text, len);
            } else {
                qwp_row_symbol_handle(row, 0, handle);
            }
            end_ok(row, 1);
            struct record record;
            ck_assert(reader_next(&reader, &record));
            uint32_t got_len;
            ck_assert_mem_eq(record_symbol(&reader, &record, 0, &got_len), text, len);
            ck_assert_uint_eq(got_len, len);
            reader_release(&reader, 1);
        }
    }
    expect(qwp_symbol_intern(fixture_producer, "\xff", 1, &(uint32_t){0}, &fixture_err),
           QWP_INVALID, "not valid UTF-8");
    reader_close(&reader);
}
END_TEST

/* In a ring whose units have room for more. */
START_TEST(symbol_longer_than_any_may_be_is_refused)
{
    const struct qwp_producer_options options = {
        .dir = fixture_dir, .ring_bytes = 4 * 1024 * 1024, .unit_bytes_max = 1024 * 1024};
    fixture_open(&options);
    const struct qwp_column columns[] = {{"s", QWP_SYMBOL, 0}};
    struct qwp_table *table = define("t", columns, 1);
    char *text = malloc(QWP_SYMBOL_BYTES_MAX + 1);
    uint32_t handle;
    memset(text, 'a', QWP_SYMBOL_BYTES_MAX + 1);
    expect(
        qwp_symbol_intern(fixture_producer, text, QWP_SYMBOL_BYTES_MAX + 1, &handle, &fixture_err),
        QWP_INVALID, "longer than");
    struct qwp_row *row = qwp_row_begin(table);
    qwp_row_symbol(row, 0, text, QWP_SYMBOL_BYTES_MAX + 1);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID, "longer than 256 KiB");
    row = qwp_row_begin(table);
    qwp_row_symbol(row, 0, text, QWP_SYMBOL_BYTES_MAX);
    end_ok(row, 1);
    free(text);
}
END_TEST

/* ---- the ring's end ---- */

/* Rows of all sizes go round and round a small ring, so that every one is formed somewhere else,
 * some of them where the room known so far does not suffice. */
START_TEST(row_goes_round_the_ring_and_stays_whole)
{
    fixture_open(NULL);
    const struct qwp_column columns[] = {
        {"n", QWP_LONG, 0}, {"a", QWP_BINARY, 0}, {"b", QWP_BINARY, 0}};
    struct qwp_table *table = define("t", columns, 3);
    struct reader reader;
    reader_open(&reader);
    static unsigned char bytes[48000];
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (unsigned char)(i * 31);
    }
    uint64_t read = 0;
    uint64_t written = 0;
    srand(7);
    while (written < 4000) {
        const size_t a = (size_t)rand() % (written % 10 == 0 ? 20000 : 100);
        const size_t b = (size_t)rand() % 5000;
        struct qwp_row *row = qwp_row_begin(table);
        qwp_row_long(row, 0, (int64_t)written);
        if (written % 3 == 0) {
            qwp_row_binary(row, 2, bytes + b, b);
            qwp_row_binary(row, 1, bytes + a, a);
        } else {
            qwp_row_binary(row, 1, bytes + a, a);
            qwp_row_binary(row, 2, bytes + b, b);
        }
        /* Leave little room, so that the ring is nearly full most of the time. */
        struct record record;
        while (qwp_position_published(fixture_producer) - qwp_position_stored(fixture_producer) >
               64 * 1024 - 25200) {
            ck_assert(reader_next(&reader, &record));
            ck_assert_int_eq(qwp_load_i64(record_field(&record, 0)), (int64_t)read);
            uint32_t len;
            const unsigned char *part = record_part(&record, 1, &len);
            ck_assert_mem_eq(part, bytes + len, len);
            part = record_part(&record, 2, &len);
            ck_assert_mem_eq(part, bytes + len, len);
            read++;
            reader_release(&reader, 1);
        }
        end_ok(row, 1);
        written++;
    }
    reader_close(&reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("row");
    TCase *tcase = tcase_create("row");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, row_of_every_type_comes_back);
    tcase_add_test(tcase, row_time_kinds_alternate_and_fields_stay_right);
    tcase_add_test(tcase, row_without_columns_is_a_row);
    tcase_add_test(tcase, row_of_200_columns_marks_nulls_in_all_words);
    tcase_add_test(tcase, row_empty_values_are_no_nulls);
    tcase_add_test(tcase, row_by_name_finds_columns_in_any_case_and_order);
    tcase_add_test(tcase, row_mistake_is_told_at_the_end_and_the_next_row_is_fine);
    tcase_add_loop_test(tcase, row_mistake_says_what_to_do_and_leaves_the_ring, 0,
                        sizeof mistakes / sizeof mistakes[0]);
    tcase_add_test(tcase, row_times_out_of_range_are_refused);
    tcase_add_test(tcase, row_abort_and_a_second_begin_drop_the_first);
    tcase_add_test(tcase, symbol_beyond_the_area_travels_as_text);
    tcase_add_test(tcase, symbol_handles_and_texts_are_the_same_symbols);
    tcase_add_test(tcase, symbol_longer_than_any_may_be_is_refused);
    tcase_add_test(tcase, row_goes_round_the_ring_and_stays_whole);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

/* The hot path: fields written at the places the layout tells come back as rows. */
#include <stdio.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "tests/clients/client_fixture.h"

static struct qwp_table *table;
static struct reader reader;

static const struct qwp_column columns[] = {
    {"flag", QWP_BOOLEAN, 0},      {"text", QWP_VARCHAR, 0}, {"n", QWP_LONG, 0},
    {"symbol", QWP_SYMBOL, 0},     {"blob", QWP_BINARY, 0},  {"c", QWP_CHAR, 0},
    {"array", QWP_DOUBLE_ARRAY, 0}};
enum { FLAG, TEXT, N, SYMBOL, BLOB, CHAR, ARRAY, COUNT };

static void open_ring(void)
{
    fixture_open(NULL);
    ck_assert_int_eq(qwp_table_define(fixture_producer, "t", columns, COUNT, &table, &fixture_err),
                     QWP_OK);
    reader_open(&reader);
}

static const struct qwp_layout *layout_of(const uint32_t *indexes, size_t count, enum qwp_at at)
{
    const struct qwp_layout *layout;
    const enum qwp_result result =
        qwp_layout_define(table, indexes, count, at, &layout, &fixture_err);
    ck_assert_msg(result == QWP_OK, "%s", fixture_err.text);
    return layout;
}

static unsigned char *reserve(const struct qwp_layout *layout, uint32_t var_bytes)
{
    void *row;
    ck_assert_int_eq(qwp_row_reserve(fixture_producer, layout, var_bytes, &row), QWP_OK);
    ck_assert_uint_eq((uintptr_t)row % 8, 0);
    return row;
}

START_TEST(layout_row_comes_back_with_all_parts)
{
    open_ring();
    /* Not in the table's order: parts go in the layout's. */
    const uint32_t order[] = {BLOB, N, SYMBOL, TEXT, ARRAY, FLAG};
    const struct qwp_layout *layout = layout_of(order, 6, QWP_AT_US);
    uint32_t handle;
    ck_assert_int_eq(qwp_symbol_intern(fixture_producer, "BTC", 3, &handle, NULL), QWP_OK);
    unsigned char *row = reserve(layout, 3 + 5 + 13);
    qwp_store_u32(row + qwp_layout_offset(layout, 0), 3);
    qwp_store_i64(row + qwp_layout_offset(layout, 1), -7);
    qwp_store_u32(row + qwp_layout_offset(layout, 2), handle);
    qwp_store_u32(row + qwp_layout_offset(layout, 3), 5);
    qwp_store_u32(row + qwp_layout_offset(layout, 4), 13);
    row[qwp_layout_offset(layout, 5)] = 1;
    qwp_store_i64(row + qwp_layout_at_offset(layout), 1234);
    memcpy(row + qwp_layout_var_offset(layout), "\1\2\3hello\1\1\0\0\0\0\0\0\0\0\0\xf0\x3f", 21);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_OK);

    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert_uint_eq(record.shape->designated_type, QWP_TYPE_TIMESTAMP);
    ck_assert_int_eq(record_time(&record), 1234);
    uint32_t len;
    ck_assert_mem_eq(record_part(&record, record_column(&record, "blob"), &len), "\1\2\3", 3);
    ck_assert_mem_eq(record_part(&record, record_column(&record, "text"), &len), "hello", 5);
    ck_assert_uint_eq(len, 5);
    record_part(&record, record_column(&record, "array"), &len);
    ck_assert_uint_eq(len, 13);
    ck_assert_int_eq(qwp_load_i64(record_field(&record, 1)), -7);
    ck_assert_str_eq(record_symbol(&reader, &record, 2, &len), "BTC");
    ck_assert_uint_eq(record_field(&record, 5)[0], 1);
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

START_TEST(layout_nulls_and_symbol_text_are_marked)
{
    open_ring();
    const uint32_t order[] = {SYMBOL, TEXT, N};
    const struct qwp_layout *layout = layout_of(order, 3, QWP_AT_NS);
    struct record record;
    uint32_t len;
    for (int i = 0; i < 2; i++) { /* the second row must not see the marks of the first */
        unsigned char *row = reserve(layout, 4);
        qwp_store_i64(row + qwp_layout_at_offset(layout), 5);
        if (i == 0) {
            qwp_reserved_null(row, 1);
            qwp_reserved_null(row, 2);
            qwp_reserved_symbol_text(row, qwp_layout_offset(layout, 0), 4);
        } else {
            qwp_store_u32(row + qwp_layout_offset(layout, 0), 0);
            qwp_store_u32(row + qwp_layout_offset(layout, 1), 4);
        }
        memcpy(row + qwp_layout_var_offset(layout), "text", 4);
        ck_assert_int_eq(qwp_symbol_intern(fixture_producer, "zero", 4, &len, NULL), QWP_OK);
        ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_OK);
        ck_assert(reader_next(&reader, &record));
        ck_assert_int_eq(record_is_null(&record, 1), i == 0);
        ck_assert_int_eq(record_is_null(&record, 2), i == 0);
        ck_assert_uint_eq(record.flags, i == 0 ? QWP_RECORD_SYMBOL_TEXT : 0);
        ck_assert_mem_eq(record_symbol(&reader, &record, 0, &len), i == 0 ? "text" : "zero", 4);
    }
    reader_close(&reader);
}
END_TEST

START_TEST(layout_without_time_is_the_servers)
{
    open_ring();
    const struct qwp_layout *layout = layout_of((uint32_t[]){N}, 1, QWP_AT_SERVER);
    ck_assert_uint_eq(qwp_layout_at_offset(layout), 0);
    unsigned char *row = reserve(layout, 0);
    qwp_store_i64(row + qwp_layout_offset(layout, 0), 3);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_OK);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert_uint_eq(record.shape->designated_type, QWP_TYPE_NONE);
    ck_assert_int_eq(qwp_load_i64(record_field(&record, 0)), 3);
    reader_close(&reader);
}
END_TEST

START_TEST(layout_times_out_of_range_are_refused)
{
    open_ring();
    const struct qwp_layout *ns = layout_of((uint32_t[]){N}, 1, QWP_AT_NS);
    const struct qwp_layout *us = layout_of((uint32_t[]){N}, 1, QWP_AT_US);
    const int64_t bad[] = {-1, INT64_MIN, INT64_MAX};
    for (int i = 0; i < 3; i++) {
        qwp_store_i64(reserve(ns, 0) + qwp_layout_at_offset(ns), bad[i]);
        ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
        qwp_store_i64(reserve(us, 0) + qwp_layout_at_offset(us), bad[i]);
        ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
    }
    qwp_store_i64(reserve(us, 0) + qwp_layout_at_offset(us), QWP_DESIGNATED_US_MAX + 1);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
    reader_expect_end(&reader);
    ck_assert_uint_eq(qwp_position_published(fixture_producer), 0);
    qwp_store_i64(reserve(ns, 0) + qwp_layout_at_offset(ns), QWP_DESIGNATED_NS_MAX);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_OK);
    reader_close(&reader);
}
END_TEST

START_TEST(layout_publish_needs_a_reserved_row)
{
    open_ring();
    const struct qwp_layout *layout = layout_of((uint32_t[]){N}, 1, QWP_AT_SERVER);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
    reserve(layout, 0);
    struct qwp_row *row = qwp_row_begin(table);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
    reserve(layout, 0);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID, "no row is open");
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_OK);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_INVALID);
    reader_close(&reader);
}
END_TEST

START_TEST(layout_row_beyond_the_bound_is_refused)
{
    open_ring();
    const struct qwp_layout *layout = layout_of((uint32_t[]){TEXT}, 1, QWP_AT_SERVER);
    void *row;
    ck_assert_int_eq(qwp_row_reserve(fixture_producer, layout, 32 * 1024, &row), QWP_LIMIT);
    ck_assert_int_eq(qwp_row_reserve(fixture_producer, layout, UINT32_MAX, &row), QWP_LIMIT);
    const uint32_t most = 32 * 1024 - qwp_layout_var_offset(layout);
    ck_assert_int_eq(qwp_row_reserve(fixture_producer, layout, most, &row), QWP_OK);
    reader_close(&reader);
}
END_TEST

START_TEST(layout_bad_definition_says_why)
{
    open_ring();
    const struct qwp_layout *layout = NULL;
    expect(qwp_layout_define(table, (uint32_t[]){COUNT}, 1, QWP_AT_NS, &layout, &fixture_err),
           QWP_INVALID, "no column has the index 7, there are 7");
    expect(qwp_layout_define(table, (uint32_t[]){1, 1}, 2, QWP_AT_NS, &layout, &fixture_err),
           QWP_INVALID, "'text'");
    expect(qwp_layout_define(table, (uint32_t[]){1}, 1, (enum qwp_at)9, &layout, &fixture_err),
           QWP_INVALID, "QWP_AT_*");
    expect(qwp_layout_define(table, (uint32_t[]){1, 2, 3, 4, 5, 6, 0, 0}, 8, QWP_AT_NS, &layout,
                             &fixture_err),
           QWP_INVALID, "a layout of 8 columns, it has 7");
    ck_assert_ptr_null(layout);
    reader_close(&reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("layout");
    TCase *tcase = tcase_create("layout");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, layout_row_comes_back_with_all_parts);
    tcase_add_test(tcase, layout_nulls_and_symbol_text_are_marked);
    tcase_add_test(tcase, layout_without_time_is_the_servers);
    tcase_add_test(tcase, layout_times_out_of_range_are_refused);
    tcase_add_test(tcase, layout_publish_needs_a_reserved_row);
    tcase_add_test(tcase, layout_row_beyond_the_bound_is_refused);
    tcase_add_test(tcase, layout_bad_definition_says_why);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

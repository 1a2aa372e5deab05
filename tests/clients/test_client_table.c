/* Tables: define, find, extend, and what a bad definition says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "tests/clients/client_fixture.h"

static enum qwp_result define(const char *name, const struct qwp_column *columns, size_t count,
                              struct qwp_table **table)
{
    return qwp_table_define(fixture_producer, name, columns, count, table, &fixture_err);
}

static int32_t find(const struct qwp_table *table, const char *name)
{
    return qwp_table_find(table, name, strlen(name));
}

static void end_ok(struct qwp_row *row)
{
    const enum qwp_result result = qwp_row_at_ns(row, 1, &fixture_err);
    ck_assert_msg(result == QWP_OK, "%s", fixture_err.text);
}

START_TEST(table_is_found_again_in_any_case_and_extended)
{
    fixture_open(NULL);
    const struct qwp_column first[] = {{"Price", QWP_DOUBLE, 0}, {"qty", QWP_LONG, 0}};
    const struct qwp_column second[] = {{"PRICE", QWP_DOUBLE, 0}, {"new", QWP_GEOHASH, 7}};
    struct qwp_table *table;
    struct qwp_table *again;
    ck_assert_int_eq(define("Trades", first, 2, &table), QWP_OK);
    ck_assert_int_eq(define("TRADES", second, 2, &again), QWP_OK);
    ck_assert_ptr_eq(table, again);
    ck_assert_int_eq(find(table, "price"), 0);
    ck_assert_int_eq(find(table, "QTY"), 1);
    ck_assert_int_eq(find(table, "New"), 2);
    ck_assert_int_eq(find(table, "none"), -1);
    ck_assert_int_eq(find(table, ""), -1);
    ck_assert_int_eq(qwp_table_find(table, "\xff", 1), -1);
    char longer[200];
    memset(longer, 'a', sizeof longer);
    ck_assert_int_eq(qwp_table_find(table, longer, sizeof longer), -1);
    ck_assert_int_eq(define("trades", NULL, 0, &again), QWP_OK);
    ck_assert_ptr_eq(table, again);
    uint32_t index = 9;
    ck_assert_int_eq(
        qwp_table_column(table, &(struct qwp_column){"QTY", QWP_LONG, 0}, &index, &fixture_err),
        QWP_OK);
    ck_assert_uint_eq(index, 1);
    ck_assert_int_eq(
        qwp_table_column(table, &(struct qwp_column){"x", QWP_LONG, 0}, &index, &fixture_err),
        QWP_OK);
    ck_assert_uint_eq(index, 3);
}
END_TEST

START_TEST(table_many_are_kept_apart)
{
    const struct qwp_producer_options options = {.definition_bytes_max = 4 << 20};
    fixture_open(&options);
    struct qwp_table *tables[1000];
    char name[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "table %d", i);
        ck_assert_int_eq(define(name, &(struct qwp_column){"n", QWP_LONG, 0}, 1, &tables[i]),
                         QWP_OK);
    }
    struct reader reader;
    reader_open(&reader);
    for (int i = 999; i >= 0; i -= 7) {
        struct qwp_table *again;
        snprintf(name, sizeof name, "TABLE %d", i);
        ck_assert_int_eq(define(name, NULL, 0, &again), QWP_OK);
        ck_assert_ptr_eq(again, tables[i]);
        end_ok(qwp_row_begin(again));
        struct record record;
        ck_assert(reader_next(&reader, &record));
        snprintf(name, sizeof name, "table %d", i);
        ck_assert_uint_eq(record.shape->table.len, strlen(name));
        ck_assert_mem_eq(record.shape->table.text, name, strlen(name));
    }
    reader_close(&reader);
}
END_TEST

static const struct {
    const char *table;
    struct qwp_column columns[2];
    size_t count;
    enum qwp_result result;
    const char *text;
} bad[] = {
    {NULL, {{0}}, 0, QWP_INVALID, "a table needs a name"},
    {"", {{0}}, 0, QWP_INVALID, "empty table name"},
    {"a/b", {{0}}, 0, QWP_INVALID, "'/'"},
    {"a..b", {{0}}, 0, QWP_INVALID, "dot"},
    {"a\xff", {{0}}, 0, QWP_INVALID, "not valid UTF-8"},
    {"t", {{NULL, QWP_LONG, 0}}, 1, QWP_INVALID, "column 0 has no name"},
    {"t", {{"", QWP_LONG, 0}}, 1, QWP_INVALID, "empty column name"},
    {"t", {{"a-b", QWP_LONG, 0}}, 1, QWP_INVALID, "'-'"},
    {"t", {{"\xc0\x80", QWP_LONG, 0}}, 1, QWP_INVALID, "not valid UTF-8"},
    {"t", {{"Qty", QWP_LONG, 0}, {"qty", QWP_LONG, 0}}, 2, QWP_INVALID, "ignores case"},
    {"t", {{"É", QWP_LONG, 0}, {"é", QWP_LONG, 0}}, 2, QWP_INVALID, "ignores case"},
    {"t", {{"a", (enum qwp_column_type)8, 0}}, 1, QWP_INVALID, "unknown type 0x08"},
    {"t", {{"a", (enum qwp_column_type)0x105, 0}}, 1, QWP_INVALID, "unknown type"},
    {"t", {{"a", QWP_GEOHASH, 0}}, 1, QWP_INVALID, "precision"},
    {"t", {{"a", QWP_DECIMAL64, 19}}, 1, QWP_INVALID, "scale"},
    {"known",
     {{"KEEP", QWP_DOUBLE, 0}},
     1,
     QWP_INVALID,
     "table 'known' has the column 'keep' as long, which cannot become double"},
    {"known",
     {{"new", QWP_DOUBLE, 0}, {"geo", QWP_GEOHASH, 9}},
     2,
     QWP_INVALID,
     "has the column 'geo' as geohash with precision 8, not 9"},
    {"known", {{"new", QWP_DOUBLE, 0}, {"New", QWP_DOUBLE, 0}}, 2, QWP_INVALID, "ignores case"},
};

START_TEST(table_bad_definition_says_why_and_changes_nothing)
{
    fixture_open(NULL);
    const struct qwp_column columns[] = {{"keep", QWP_LONG, 0}, {"geo", QWP_GEOHASH, 8}};
    struct qwp_table *known;
    ck_assert_int_eq(define("known", columns, 2, &known), QWP_OK);
    struct qwp_table *table = NULL;
    expect(define(bad[_i].table, bad[_i].columns, bad[_i].count, &table), bad[_i].result,
           bad[_i].text);
    ck_assert_ptr_null(table);
    ck_assert_int_eq(find(known, "new"), -1);
    end_ok(qwp_row_begin(known));
    struct reader reader;
    reader_open(&reader);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert_uint_eq(record.shape->column_count, 2);
    reader_close(&reader);
}
END_TEST

START_TEST(table_names_too_long_are_refused)
{
    fixture_open(NULL);
    char name[140];
    memset(name, 'n', sizeof name);
    name[128] = '\0';
    struct qwp_table *table;
    expect(define(name, NULL, 0, &table), QWP_INVALID, "has 128 bytes, at most 127");
    expect(define("t", &(struct qwp_column){name, QWP_LONG, 0}, 1, &table), QWP_INVALID,
           "has 128 bytes, at most 127");
    name[127] = '\0';
    ck_assert_int_eq(define(name, &(struct qwp_column){name, QWP_LONG, 0}, 1, &table), QWP_OK);
    ck_assert_int_eq(find(table, name), 0);
}
END_TEST

START_TEST(table_has_at_most_2048_columns)
{
    const struct qwp_producer_options options = {.ring_bytes = 1 << 20};
    fixture_open(&options);
    struct qwp_column *columns = calloc(2049, sizeof *columns);
    char(*names)[8] = calloc(2049, sizeof *names);
    for (int i = 0; i < 2049; i++) {
        snprintf(names[i], sizeof names[i], "c%d", i);
        columns[i] = (struct qwp_column){names[i], i % 2 == 0 ? QWP_LONG : QWP_VARCHAR, 0};
    }
    struct qwp_table *table;
    expect(define("t", columns, 2049, &table), QWP_LIMIT, "at most 2048");
    ck_assert_int_eq(define("t", columns, 2048, &table), QWP_OK);
    expect(qwp_table_column(table, &columns[2048], &(uint32_t){0}, &fixture_err), QWP_LIMIT,
           "at most 2048");
    struct reader reader;
    reader_open(&reader);
    struct qwp_row *row = qwp_row_begin(table);
    for (uint32_t c = 2047; c < 2048; c -= 3) {
        if (c % 2 == 0) {
            qwp_row_long(row, c, c);
        } else {
            qwp_row_varchar(row, c, names[c], strlen(names[c]));
        }
    }
    end_ok(row);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    for (uint32_t c = 0; c < 2048; c++) {
        ck_assert_int_eq(record_is_null(&record, c), (2047 - c) % 3 != 0);
    }
    reader_close(&reader);
    free(names);
    free(columns);
}
END_TEST

START_TEST(table_grows_between_rows_but_not_within_one)
{
    fixture_open(NULL);
    struct qwp_table *table;
    struct qwp_table *other;
    ck_assert_int_eq(define("t", NULL, 0, &table), QWP_OK);
    ck_assert_int_eq(define("other", NULL, 0, &other), QWP_OK);
    struct reader reader;
    reader_open(&reader);
    for (uint32_t n = 0; n < 150; n++) {
        char name[16];
        snprintf(name, sizeof name, "c%u", n);
        const struct qwp_column column = {name, n % 3 == 0 ? QWP_VARCHAR : QWP_LONG, 0};
        uint32_t index;
        struct qwp_row *row = qwp_row_begin(table);
        expect(qwp_table_column(table, &column, &index, &fixture_err), QWP_INVALID,
               "cannot be added while a row of it is open");
        ck_assert_int_eq(qwp_table_column(other, &column, &index, &fixture_err), QWP_OK);
        qwp_row_abort(row);
        ck_assert_int_eq(qwp_table_column(table, &column, &index, &fixture_err), QWP_OK);
        ck_assert_uint_eq(index, n);
        row = qwp_row_begin(table);
        for (uint32_t c = 0; c <= n; c++) {
            if (c % 3 == 0) {
                qwp_row_varchar(row, c, name, strlen(name));
            } else {
                qwp_row_long(row, c, c * n);
            }
        }
        end_ok(row);
        struct record record;
        ck_assert(reader_next(&reader, &record));
        ck_assert_uint_eq(record.shape->column_count, n + 1);
        for (uint32_t c = 0; c <= n; c++) {
            ck_assert(!record_is_null(&record, c));
            uint32_t len;
            if (c % 3 == 0) {
                ck_assert_mem_eq(record_part(&record, c, &len), name, strlen(name));
            } else {
                ck_assert_int_eq(qwp_load_i64(record_field(&record, c)), c * n);
            }
        }
        reader_release(&reader, 1);
    }
    reader_close(&reader);
}
END_TEST

START_TEST(table_whose_row_exceeds_the_bound_says_so)
{
    const struct qwp_producer_options options = {.ring_bytes = 64 * 1024, .unit_bytes_max = 1024};
    fixture_open(&options);
    struct qwp_column columns[200];
    char names[200][8];
    for (int i = 0; i < 200; i++) {
        snprintf(names[i], sizeof names[i], "c%d", i);
        columns[i] = (struct qwp_column){names[i], QWP_LONG, 0};
    }
    struct qwp_table *table;
    ck_assert_int_eq(define("wide", columns, 200, &table), QWP_OK);
    struct qwp_row *row = qwp_row_begin(table);
    ck_assert_int_eq(qwp_row_long(row, 0, 1), QWP_LIMIT);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_LIMIT,
           "table 'wide': a row takes 1648 bytes at least, this producer's bound is 1024");
    const struct qwp_layout *layout;
    uint32_t all[200];
    for (uint32_t i = 0; i < 200; i++) {
        all[i] = i;
    }
    expect(qwp_layout_define(table, all, 200, QWP_AT_NS, &layout, &fixture_err), QWP_LIMIT,
           "a row of this layout takes 1648 bytes at least");
    ck_assert_int_eq(qwp_layout_define(table, all, 50, QWP_AT_NS, &layout, &fixture_err), QWP_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("table");
    TCase *tcase = tcase_create("table");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, table_is_found_again_in_any_case_and_extended);
    tcase_add_test(tcase, table_many_are_kept_apart);
    tcase_add_loop_test(tcase, table_bad_definition_says_why_and_changes_nothing, 0,
                        sizeof bad / sizeof bad[0]);
    tcase_add_test(tcase, table_names_too_long_are_refused);
    tcase_add_test(tcase, table_has_at_most_2048_columns);
    tcase_add_test(tcase, table_grows_between_rows_but_not_within_one);
    tcase_add_test(tcase, table_whose_row_exceeds_the_bound_says_so);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

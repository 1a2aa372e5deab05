/* Aim: shapes refuse what would hurt a server, and both sides of a ring place fields alike.
 * Method: hand-computed layouts and one bad definition after another. */
#include "core/qwp_shape.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_crc32c.h"
#include "core/wire/qwp_names.h"

#define NAME(text) ((struct qwp_name){(text), (uint32_t)strlen(text)})

START_TEST(shape_trade_row_fits_64_bytes)
{
    const struct qwp_column_def columns[] = {
        {NAME("symbol"), QWP_TYPE_SYMBOL, 0}, {NAME("side"), QWP_TYPE_SYMBOL, 0},
        {NAME("live"), QWP_TYPE_BOOLEAN, 0},  {NAME("price"), QWP_TYPE_DOUBLE, 0},
        {NAME("amount"), QWP_TYPE_DOUBLE, 0}, {NAME("seq"), QWP_TYPE_LONG, 0},
    };
    struct qwp_shape *shape;
    ck_assert_int_eq(
        qwp_shape_create(&shape, NAME("trades"), columns, 6, QWP_TYPE_TIMESTAMP_NANOS, NULL),
        QWP_OK);
    ck_assert_uint_eq(shape->null_words, 1);
    ck_assert_uint_eq(shape->designated_off, 16);
    ck_assert_uint_eq(shape->columns[3].off, 24);
    ck_assert_uint_eq(shape->columns[5].off, 40);
    ck_assert_uint_eq(shape->columns[0].off, 48);
    ck_assert_uint_eq(shape->columns[1].off, 52);
    ck_assert_uint_eq(shape->columns[2].off, 56);
    ck_assert_uint_eq(shape->fixed_bytes, 57);
    ck_assert_uint_eq(shape->var_count, 2);
    ck_assert_uint_eq(shape->columns[1].var_index, 1);
    ck_assert_uint_eq(shape->columns[2].var_index, QWP_NO_VAR);
    qwp_shape_destroy(shape);
}
END_TEST

static void expect_invalid(struct qwp_name table, const struct qwp_column_def *columns, size_t n,
                           const char *words)
{
    struct qwp_shape *shape = NULL;
    struct qwp_error err;
    ck_assert_int_eq(qwp_shape_create(&shape, table, columns, n, QWP_TYPE_NONE, &err), QWP_INVALID);
    ck_assert_ptr_null(shape);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' does not say '%s'", err.text, words);
}

START_TEST(shape_bad_definition_is_refused)
{
    const struct qwp_column_def twins[] = {{NAME("Qty"), QWP_TYPE_LONG, 0},
                                           {NAME("qty"), QWP_TYPE_LONG, 0}};
    expect_invalid(NAME("t"), twins, 2, "ignores case");
    const struct qwp_column_def wide_twins[] = {{NAME("Žluť"), QWP_TYPE_LONG, 0},
                                                {NAME("žluť"), QWP_TYPE_LONG, 0}};
    expect_invalid(NAME("t"), wide_twins, 2, "ignores case");
    const struct qwp_column_def one[] = {{NAME("a"), QWP_TYPE_LONG, 0}};
    expect_invalid(NAME("a/b"), one, 1, "'/'");
    expect_invalid(NAME("a..b"), one, 1, "dot");
    expect_invalid(NAME(" a"), one, 1, "space");
    expect_invalid(NAME(""), one, 1, "empty");
    const struct qwp_column_def dashed[] = {{NAME("a-b"), QWP_TYPE_LONG, 0}};
    expect_invalid(NAME("t"), dashed, 1, "'-'");
    const struct qwp_column_def unknown[] = {{NAME("a"), 0x08, 0}};
    expect_invalid(NAME("t"), unknown, 1, "0x08");
    const struct qwp_column_def geo[] = {{NAME("a"), QWP_TYPE_GEOHASH, 61}};
    expect_invalid(NAME("t"), geo, 1, "precision");
    const struct qwp_column_def scale[] = {{NAME("a"), QWP_TYPE_DECIMAL64, 19}};
    expect_invalid(NAME("t"), scale, 1, "scale");
}
END_TEST

START_TEST(utf8_is_judged_as_in_the_rfc)
{
    ck_assert(qwp_utf8_valid("", 0));
    ck_assert(qwp_utf8_valid("žluťoučký 🐎", strlen("žluťoučký 🐎")));
    ck_assert(!qwp_utf8_valid("\xc0\x80", 2));
    ck_assert(!qwp_utf8_valid("\xed\xa0\x80", 3));
    ck_assert(!qwp_utf8_valid("\xf4\x90\x80\x80", 4));
    ck_assert(!qwp_utf8_valid("12345678\xc5", 9));
    ck_assert(!qwp_utf8_valid("\xff", 1));
}
END_TEST

START_TEST(crc32c_matches_the_known_value)
{
    ck_assert_uint_eq(qwp_crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(qwp_crc32c(qwp_crc32c(0, "1234", 4), "56789", 5), 0xe3069283);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("shape");
    TCase *tcase = tcase_create("shape");
    tcase_add_test(tcase, shape_trade_row_fits_64_bytes);
    tcase_add_test(tcase, shape_bad_definition_is_refused);
    tcase_add_test(tcase, utf8_is_judged_as_in_the_rfc);
    tcase_add_test(tcase, crc32c_matches_the_known_value);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

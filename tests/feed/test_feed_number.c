/* Aim: numbers, times and the texts of all types are read exactly or refused.
 * Method: edge cases by hand, and random numbers against the C library. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "clients/c/feed/qwp_feed_number.h"
#include "clients/c/feed/qwp_feed_time.h"
#include "tests/feed/feed_support.h"

static bool same_double(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* All ways to read a double agree with strtod() to the last bit. */
static void expect_double(const char *text)
{
    const double expected = strtod(text, NULL);
    const size_t len = strlen(text);
    double v = 12345;
    ck_assert_msg(qwp_feed_parse_double(text, len, &v), "'%s' is refused", text);
    ck_assert_msg(same_double(v, expected), "'%s' gives %a, expected %a", text, v, expected);
    char *block = feed_block(text, len);
    const char *end = qwp_feed_scan_double(block, &v);
    ck_assert_msg(end == block + len, "'%s' is not scanned to its end", text);
    ck_assert_msg(same_double(v, expected), "'%s' scans as %a, expected %a", text, v, expected);
    free(block);
    float f = 12345;
    ck_assert(qwp_feed_parse_float(text, len, &f));
    const float expected_f = strtof(text, NULL);
    ck_assert_msg(memcmp(&f, &expected_f, sizeof f) == 0, "'%s' gives %a as float, expected %a",
                  text, (double)f, (double)expected_f);
}

START_TEST(double_edge_cases_are_exact)
{
    const char *const texts[] = {
        "0", "-0", "0.0", "1", "+1", "-1", "1.", ".5", "-.5", "00012.50", "1e0", "1E5", "1e+5",
        "1e-5", "123456789012345678", "9007199254740993", "9007199254740992", "9007199254740991",
        "0.1", "0.2", "0.3", "3.14159", "1e22", "1e23", "1e-22", "1e-23", "123456789e15", "8.5e22",
        "9007199254740991e22", "1.7976931348623157e308", "1.7976931348623159e308", "1e309",
        "-1e400", "1e-400", "4.9e-324", "2.4703282292062327e-324", "2.4703282292062328e-324",
        "2.2250738585072011e-308", "2.2250738585072014e-308",
        "0.000000000000000000000000000000000000000000001", "1e99999999999999999999",
        "1e-99999999999999999999", "100000000000000000000000000000000000000000000000000",
        "179769313486231580793728971405303415079934132710037826936173778980444968292764750946649017"
        "977587207096330286416692887910946555547851940402630657488671505820681908902000708383676273"
        "854845817711531764475730270069855571366959622842914819860834936475292719074168444365510704"
        "342711559699508093042880177904174497791.999",
        "16777217", "9007199254740993.0", "9007199254740995.0", "9007199254740992.5",
        "0.0000000000000000000000000001", "1844674407370955161.5", "18446744073709551615",
        "0.9999999999999999", "0.99999999999999999", "0.999999999999999999", "4503599627370496.5",
        "4503599627370497.5", "0.1000000000000000055", "99.99999999999999999", "16777216.0000001",
        "0.3333333333333333333333333", "3.4028235e38", "3.4028236e38", "1.17549435e-38", "1e10",
        "1e11", "1e-10", "1e-11",
        /* twice rounded by way of a double, this float would be wrong */
        "1.00000017881393432617187499",
        "1.00000017881393421514957253748434595763683319091796875001"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        expect_double(texts[i]);
    }
}
END_TEST

START_TEST(double_random_ones_are_exact)
{
    char text[64];
    for (int i = 0; i < 200000; i++) {
        const uint64_t r = feed_random();
        switch (r % 7) {
        case 5: /* the digits that programs print of doubles of everyday size */
            snprintf(text, sizeof text, "%.*g", 15 + (int)(r / 8 % 5),
                     (double)feed_random() / 0x1p64 * pow(10, (int)(r / 64 % 24) - 12));
            break;
        case 6: { /* near the middle between two doubles, and on it */
            const uint64_t odd = (UINT64_C(1) << 53 | feed_random() >> 11) << 1 | 1;
            snprintf(text, sizeof text, "%" PRIu64 ".%.*s", odd, 1 + (int)(r / 8 % 3), "000");
            if (r % 2 == 0) { /* halves, fourths, ...: exact in decimals */
                snprintf(text, sizeof text, "%.*f", 10, (double)(odd >> 20) / 1024);
            }
            break;
        }
        case 0: { /* any double, in full */
            const uint64_t bits = feed_random();
            double v;
            memcpy(&v, &bits, sizeof v);
            if (!isfinite(v)) {
                continue;
            }
            snprintf(text, sizeof text, "%.17g", v);
            break;
        }
        case 1: /* short decimals */
            snprintf(text, sizeof text, "%" PRIu64 ".%0*" PRIu64, feed_random() % 100000,
                     (int)(1 + r / 8 % 6), feed_random() % 10);
            break;
        case 2:
            snprintf(text, sizeof text, "-%" PRIu64 "e%d", feed_random() >> (r / 8 % 64),
                     (int)(r / 512 % 80) - 40);
            break;
        case 3:
            snprintf(text, sizeof text, "%" PRIu64 ".%" PRIu64, feed_random() >> (r / 8 % 64),
                     feed_random());
            break;
        default:
            snprintf(text, sizeof text, "0.%0*d%" PRIu64 "E%d", (int)(r / 8 % 12), 0,
                     feed_random() % 1000, (int)(r / 512 % 700) - 350);
            break;
        }
        expect_double(text);
    }
}
END_TEST

START_TEST(double_bad_text_is_refused)
{
    const char *const texts[] = {"",     "+",     "-",    ".",       "e5",    "1e",
                                 "1e+",  "1.2.3", "1x",   "--1",     " 1",    "1 ",
                                 "0x10", "1,5",   "nanx", "infinit", "1e5.5", "1_000"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        double v;
        float f;
        ck_assert_msg(!qwp_feed_parse_double(texts[i], strlen(texts[i]), &v), "'%s'", texts[i]);
        ck_assert_msg(!qwp_feed_parse_float(texts[i], strlen(texts[i]), &f), "'%s'", texts[i]);
    }
    char *digits = malloc(5000);
    memset(digits, '7', 5000);
    double v;
    ck_assert(!qwp_feed_parse_double(digits, 5000, &v));
    free(digits);
}
END_TEST

START_TEST(double_special_values_are_read)
{
    double v;
    ck_assert(qwp_feed_parse_double("nan", 3, &v) && isnan(v));
    ck_assert(qwp_feed_parse_double("NaN", 3, &v) && isnan(v));
    ck_assert(qwp_feed_parse_double("inf", 3, &v) && v == INFINITY);
    ck_assert(qwp_feed_parse_double("-Infinity", 9, &v) && v == -INFINITY);
    ck_assert(qwp_feed_parse_double("+Inf", 4, &v) && v == INFINITY);
    float f;
    ck_assert(qwp_feed_parse_float("-inf", 4, &f) && f == -INFINITY);
}
END_TEST

static void expect_integer(const char *text, bool ok, int64_t expected)
{
    int64_t v = 77;
    ck_assert_msg(qwp_feed_parse_i64(text, strlen(text), &v) == ok, "'%s'", text);
    if (ok) {
        ck_assert_msg(v == expected, "'%s' gives %" PRId64, text, v);
    }
    char *block = feed_block(text, strlen(text));
    const char *end = qwp_feed_scan_i64(block, &v);
    ck_assert_msg((end == block + strlen(text)) == ok, "'%s' scanned", text);
    if (ok) {
        ck_assert_msg(v == expected, "'%s' scans as %" PRId64, text, v);
    }
    free(block);
}

START_TEST(integer_bounds_are_exact)
{
    expect_integer("0", true, 0);
    expect_integer("-0", true, 0);
    expect_integer("+7", true, 7);
    expect_integer("1451606400000000000", true, INT64_C(1451606400000000000));
    expect_integer("9223372036854775807", true, INT64_MAX);
    expect_integer("9223372036854775808", false, 0);
    expect_integer("-9223372036854775808", true, INT64_MIN);
    expect_integer("-9223372036854775809", false, 0);
    expect_integer("18446744073709551616", false, 0);
    expect_integer("99999999999999999999", false, 0);
    expect_integer("100000000000000000000000", false, 0);
    expect_integer("0000000000000000000000000000000042", true, 42);
    expect_integer("", false, 0);
    expect_integer("-", false, 0);
    expect_integer("1 ", false, 0);
    expect_integer("1a", false, 0);
    expect_integer("/", false, 0);
    expect_integer(":", false, 0);
    for (int i = 0; i < 100000; i++) {
        const int64_t v = (int64_t)(feed_random() >> (feed_random() % 64));
        char text[32];
        snprintf(text, sizeof text, "%" PRId64, feed_random() % 2 ? v : -(v & INT64_MAX));
        expect_integer(text, true, strtoll(text, NULL, 10));
    }
    uint64_t u;
    ck_assert(qwp_feed_parse_u64("18446744073709551615", 20, &u) && u == UINT64_MAX);
    char *block = feed_block("18446744073709551615", 20);
    ck_assert(qwp_feed_scan_u64(block, &u) == block + 20 && u == UINT64_MAX);
    free(block);
}
END_TEST

static int64_t time_ns(const char *format, const char *text)
{
    struct qwp_feed_time_format f;
    struct qwp_feed_time t;
    int64_t ns;
    ck_assert(qwp_feed_time_format_parse(format, &f));
    ck_assert_msg(qwp_feed_time_parse(&f, text, strlen(text), &t), "'%s' as %s", text, format);
    ck_assert(qwp_feed_time_in(t, QWP_FEED_NS, &ns));
    return ns;
}

static void refuse_time(const char *format, const char *text)
{
    struct qwp_feed_time_format f;
    struct qwp_feed_time t;
    ck_assert(qwp_feed_time_format_parse(format, &f));
    ck_assert_msg(!qwp_feed_time_parse(&f, text, strlen(text), &t), "'%s' as %s", text, format);
}

START_TEST(time_forms_are_read)
{
    const int64_t s = INT64_C(1000000000);
    ck_assert_int_eq(time_ns("iso", "1970-01-01"), 0);
    ck_assert_int_eq(time_ns("iso", "2016-01-01T00:00:00Z"), 1451606400 * s);
    ck_assert_int_eq(time_ns("iso", "2016-01-01 00:00:00"), 1451606400 * s);
    ck_assert_int_eq(time_ns("iso", "2016-01-01T00:00"), 1451606400 * s);
    ck_assert_int_eq(time_ns("iso", "2016-01-01T01:30:00.123456789+01:30"),
                     1451606400 * s + 123456789);
    ck_assert_int_eq(time_ns("iso", "2015-12-31T22:00:00.5-0200"), 1451606400 * s + 500000000);
    ck_assert_int_eq(time_ns("iso", "2016-01-01T02:00:00 +02"), 1451606400 * s);
    ck_assert_int_eq(time_ns("iso", "2000-02-29"), 951782400 * s);
    ck_assert_int_eq(time_ns("iso", "1969-12-31T23:59:59.999999999Z"), -1);
    ck_assert_int_eq(time_ns("iso", "2016-01-01T00:00:00.1234567891234"),
                     1451606400 * s + 123456789);
    ck_assert_int_eq(time_ns("s", "1451606400"), 1451606400 * s);
    ck_assert_int_eq(time_ns("s", "1451606400.25"), 1451606400 * s + 250000000);
    ck_assert_int_eq(time_ns("s", "-0.5"), -500000000);
    ck_assert_int_eq(time_ns("ms", "-1"), -1000000);
    ck_assert_int_eq(time_ns("ms", "1.5"), 1500000);
    ck_assert_int_eq(time_ns("us", "1451606400000001"), 1451606400 * s + 1000);
    ck_assert_int_eq(time_ns("ns", "1451606400000000001"), 1451606400 * s + 1);
    ck_assert_int_eq(time_ns("%d/%m/%Y %H:%M:%S.%f", "01/01/2016 00:00:01.5"),
                     1451606401 * s + 500000000);
    ck_assert_int_eq(time_ns("%b %e %Y %I:%M %p", "Jan  1 2016 12:05 AM"), 1451606700 * s);
    ck_assert_int_eq(time_ns("%B %d, %Y %I%p", "January 1, 2016 12PM"), 1451649600 * s);
    ck_assert_int_eq(time_ns("%F %T %z", "2016-01-01 01:00:00 +0100"), 1451606400 * s);
    ck_assert_int_eq(time_ns("%D %Z", "01/01/16 UTC"), 1451606400 * s);
    ck_assert_int_eq(time_ns("%Y-%j", "2016-366"), (1451606400 + INT64_C(365) * 86400) * s);
    ck_assert_int_eq(time_ns("@%s%%", "@1451606400%"), 1451606400 * s);
    ck_assert_int_eq(time_ns("%y%m%d", "690101"), -31536000 * s);
    refuse_time("iso", "2016-13-01");
    refuse_time("iso", "2015-02-29");
    refuse_time("iso", "1900-02-29");
    refuse_time("iso", "2016-01-01T24:00:00");
    refuse_time("iso", "2016-01-01T00:60:00");
    refuse_time("iso", "2016-01-01T00:00:00.");
    refuse_time("iso", "2016-01-01T00:00:00+1");
    refuse_time("iso", "2016-01-01x");
    refuse_time("iso", "20160101");
    refuse_time("iso", "");
    refuse_time("s", "12x");
    refuse_time("s", "1.");
    refuse_time("s", "99999999999999999999");
    refuse_time("%Y-%j", "2015-366");
    refuse_time("%Y", "201");
    refuse_time("%I %p", "13 PM");
    refuse_time("%q", "1");
    struct qwp_feed_time_format f;
    ck_assert(!qwp_feed_time_format_parse("seconds", &f));
    const struct qwp_feed_time far = {INT64_C(10000000000), 0};
    int64_t out;
    ck_assert(!qwp_feed_time_in(far, QWP_FEED_NS, &out));
    ck_assert(qwp_feed_time_in(far, QWP_FEED_US, &out));
    ck_assert(qwp_feed_unit_convert(-1, QWP_FEED_NS, QWP_FEED_US, &out) && out == -1);
    ck_assert(qwp_feed_unit_convert(1999, QWP_FEED_NS, QWP_FEED_US, &out) && out == 1);
    ck_assert(!qwp_feed_unit_convert(INT64_MAX, QWP_FEED_US, QWP_FEED_NS, &out));
}
END_TEST

/* Days counted one by one from 1600 agree with the formula. */
START_TEST(time_calendar_agrees_with_counting)
{
    static const int lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    int64_t days = -135140; /* 1600-01-01 */
    for (int year = 1600; year < 2300; year++) {
        const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        for (int month = 1; month <= 12; month++) {
            for (int day = 1; day <= lengths[month - 1] + (month == 2 && leap); day++, days++) {
                char text[48];
                snprintf(text, sizeof text, "%04d-%02d-%02d", year, month, day);
                struct qwp_feed_time t;
                const struct qwp_feed_time_format iso = {.kind = QWP_FEED_TIME_ISO};
                ck_assert(qwp_feed_time_parse(&iso, text, strlen(text), &t));
                ck_assert_msg(t.seconds == days * 86400, "%s", text);
            }
        }
    }
}
END_TEST

/* ---- all types ---- */

struct conversion {
    const char *type;
    const char *text;
    const char *expected; /* NULL: refused */
};

static void expect_conversion(const struct conversion *c)
{
    struct qwp_feed_symbols symbols = {0};
    struct qwp_feed_converter converter = {.symbols = &symbols};
    struct qwp_feed_catalog catalog = {0};
    uint8_t type;
    uint8_t parameter;
    ck_assert_msg(qwp_feed_type_parse(c->type, strlen(c->type), &type, &parameter), "%s", c->type);
    ck_assert(qwp_feed_converter_begin(&converter, strlen(c->text) + 1, 1));
    struct qwp_feed_value value = {.null = 1};
    struct qwp_error err;
    char *exact = malloc(strlen(c->text) + 1); /* so that reading beyond it is noticed */
    memcpy(exact, c->text, strlen(c->text));
    const enum qwp_result result =
        qwp_feed_convert(&converter, type, parameter, exact, strlen(c->text), &value, &err);
    if (c->expected == NULL) {
        ck_assert_msg(result == QWP_INVALID, "%s '%s' is taken", c->type, c->text);
        ck_assert(err.text[0] != '\0');
    } else {
        ck_assert_msg(result == QWP_OK, "%s '%s': %s", c->type, c->text, err.text);
        struct qwp_feed_table *table;
        uint32_t column;
        const struct qwp_feed_shape *shape;
        bool wide;
        ck_assert_int_eq(qwp_feed_catalog_table(&catalog, "t", 1, &table, &err), QWP_OK);
        ck_assert_int_eq(
            qwp_feed_catalog_column(&catalog, table, "c", 1, type, parameter, &column, &err),
            QWP_OK);
        ck_assert_int_eq(
            qwp_feed_catalog_shape(&catalog, table, QWP_AT_SERVER, &column, 1, &shape, &wide, &err),
            QWP_OK);
        char text[1024];
        feed_row_text(&(struct qwp_feed_row){shape, &value, 0}, text, sizeof text);
        text[strlen(text) - strlen(" @server")] = '\0';
        ck_assert_str_eq(text + strlen("t c="), c->expected);
    }
    free(exact);
    qwp_feed_converter_close(&converter);
    qwp_feed_symbols_close(&symbols);
    qwp_feed_catalog_close(&catalog);
}

START_TEST(convert_all_types)
{
    static const struct conversion conversions[] = {
        {"boolean", "true", "T"},
        {"bool", "F", "F"},
        {"boolean", "1", "T"},
        {"boolean", "yes", NULL},
        {"boolean", "2", NULL},
        {"byte", "-128", "-128"},
        {"byte", "128", NULL},
        {"short", "32767", "32767"},
        {"short", "-32769", NULL},
        {"int", "2147483647", "2147483647"},
        {"int", "2147483648", NULL},
        {"long", "-5", "-5"},
        {"long", "5.0", NULL},
        {"float", "0.1", "0.100000001f"},
        {"double", "0.1", "0.1d"},
        {"double", "x", NULL},
        {"symbol", "", "''"},
        {"symbol", "abc", "'abc'"},
        {"varchar", "a\"b", "\"a\"b\""},
        {"char", "A", "65"},
        {"char", "\xc5\xbe", "382"},
        {"char", "\xe2\x82\xac", "8364"},
        {"char", "\xf0\x9f\x90\x8e", NULL},
        {"char", "AB", NULL},
        {"char", "", NULL},
        {"char", "\xc5", NULL},
        {"date", "1451606400000", "1451606400000ms"},
        {"date", "2016-01-01", "1451606400000ms"},
        {"timestamp", "2016-01-01T00:00:00.000001Z", "1451606400000001us"},
        {"timestamp_ns", "2016-01-01T00:00:00.000000001Z", "1451606400000000001ns"},
        {"timestamp", "soon", NULL},
        {"uuid", "00112233-4455-6677-8899-aAbBcCdDeEfF", "w[8899aabbccddeeff,11223344556677]"},
        {"uuid", "00112233-4455-6677-8899-aabbccddeef", NULL},
        {"uuid", "00112233x4455-6677-8899-aabbccddeeff", NULL},
        {"uuid", "00112233-4455-6677-8899-aabbccddeefg", NULL},
        {"long256", "0x1", "w[1,0,0,0]"},
        {"long256", "0x0123456789abcdef0000000000000000fedcba98765432100000000000000002",
         "w[2,fedcba9876543210,0,123456789abcdef]"},
        {"long256", "0x10123456789abcdef0000000000000000fedcba98765432100000000000000002", NULL},
        {"long256", "12", NULL},
        {"long256", "0x", NULL},
        {"long256", "0xg", NULL},
        {"geohash(1c)", "u", "26"},
        {"geohash(4c)", "u09t", "852281"},
        {"geohash(4b)", "u", "13"},
        {"geohash(3b)", "##011", "3"},
        {"geohash(2b)", "##011", "1"},
        {"geohash(4c)", "u09", NULL},
        {"geohash(1c)", "a", NULL},
        {"geohash(1c)", "", NULL},
        {"geohash(2b)", "##012", NULL},
        {"decimal(18,2)", "1.5", "w[96]"},
        {"decimal(18,2)", "-1.50", "w[ffffffffffffff6a]"},
        {"decimal(18,2)", "1.500", "w[96]"},
        {"decimal(18,2)", "1.501", NULL},
        {"decimal(18,0)", "999999999999999999", "w[de0b6b3a763ffff]"},
        {"decimal(18,0)", "1000000000000000000", NULL},
        {"decimal(18,2)", "99999999999999999", NULL},
        {"decimal(18,2)", "00000000000000000000000000001", "w[64]"},
        {"decimal(38,4)", "-0.0001", "w[ffffffffffffffff,ffffffffffffffff]"},
        {"decimal(38,0)", "18446744073709551616", "w[0,1]"},
        {"decimal(76,0)", "18446744073709551616", "w[0,1,0,0]"},
        {"decimal(10,2)", ".5", "w[32]"},
        {"decimal(10,2)", "", NULL},
        {"decimal(10,2)", ".", NULL},
        {"decimal(10,2)", "1e5", NULL},
        {"decimal(10,2)", "1.2.3", NULL},
        {"binary", "aGVsbG8=", "b[68656c6c6f]"},
        {"binary", "aGVsbG8", "b[68656c6c6f]"},
        {"binary", "/+8A", "b[ffef00]"},
        {"binary", "a", NULL},
        {"binary", "a===", NULL},
        {"binary", "a b=", NULL},
        {"ipv4", "192.168.1.2", "3232235778"},
        {"ipv4", "255.255.255.255", "4294967295"},
        {"ipv4", "1.2.3", NULL},
        {"ipv4", "1.2.3.4.5", NULL},
        {"ipv4", "1.2.3.256", NULL},
        {"ipv4", "1.2.3.", NULL},
        {"ipv4", "", NULL},
        {"double[]", "[1,2.5,-3e2]", "a[3:1d,2.5d,-300d]"},
        {"double[]", " [ [1 , 2] , [3, 4] ] ", "a[2x2:1d,2d,3d,4d]"},
        {"double[]", "{1,null}", "a[2:1d,nand]"},
        {"double[]", "[]", "a[0:]"},
        {"double[]", "[[],[]]", "a[2x0:]"},
        {"double[]", "[[[1]],[[2]]]", "a[2x1x1:1d,2d]"},
        {"long[]", "[9223372036854775807]", "a[1:9223372036854775807]"},
        {"long[]", "[1.5]", NULL},
        {"double[]", "[[1,2],[3]]", NULL},
        {"double[]", "[[1],2]", NULL},
        {"double[]", "[1,[2]]", NULL},
        {"double[]", "[[],[[1]]]", NULL},
        {"double[]", "[[[1]],[]]", NULL},
        {"double[]", "[1,]", NULL},
        {"double[]", "[1", NULL},
        {"double[]", "1]", NULL},
        {"double[]", "[1] x", NULL},
        {"double[]", "", NULL},
        {"double[]", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", NULL},
    };
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++) {
        expect_conversion(&conversions[i]);
    }
}
END_TEST

START_TEST(type_names_go_both_ways)
{
    static const char *const names[] = {
        "boolean",      "byte",          "short",         "int",          "long",
        "float",        "double",        "symbol",        "timestamp",    "date",
        "uuid",         "long256",       "varchar",       "timestamp_ns", "double[]",
        "long[]",       "char",          "binary",        "ipv4",         "geohash(20b)",
        "geohash(60b)", "decimal(18,4)", "decimal(38,9)", "decimal(76,0)"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        uint8_t type;
        uint8_t parameter;
        char text[32];
        ck_assert(qwp_feed_type_parse(names[i], strlen(names[i]), &type, &parameter));
        ck_assert_str_eq(qwp_feed_type_text(type, parameter, text, sizeof text), names[i]);
    }
    static const char *const bad[] = {"",
                                      "lon",
                                      "longs",
                                      "geohash",
                                      "geohash(0c)",
                                      "geohash(13c)",
                                      "geohash(61b)",
                                      "geohash(4c",
                                      "geohash(4c)x",
                                      "decimal",
                                      "decimal(77,0)",
                                      "decimal(4,5)",
                                      "decimal(4)",
                                      "averyveryveryverylongnamethatisnotype"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t type;
        uint8_t parameter;
        ck_assert_msg(!qwp_feed_type_parse(bad[i], strlen(bad[i]), &type, &parameter), "%s",
                      bad[i]);
    }
}
END_TEST

/* Whatever the text, a conversion ends without touching foreign memory (sanitizers look). */
START_TEST(convert_random_text_is_harmless)
{
    static const char alphabet[] = "0123456789[]{},.-+eExX#:TZ uabc=/\"\\nu\xc5\xbe\xff";
    struct qwp_feed_symbols symbols = {0};
    struct qwp_feed_converter converter = {.symbols = &symbols};
    static const char *const types[] = {
        "boolean",        "byte",      "int",  "float",    "double",      "char",
        "date",           "timestamp", "uuid", "long256",  "geohash(4c)", "decimal(18,4)",
        "decimal(76,30)", "binary",    "ipv4", "double[]", "long[]"};
    for (int i = 0; i < 200000; i++) {
        const size_t len = feed_random() % 40;
        char *text = malloc(len + 1);
        for (size_t k = 0; k < len; k++) {
            text[k] = alphabet[feed_random() % (sizeof alphabet - 1)];
        }
        const char *name = types[feed_random() % (sizeof types / sizeof *types)];
        uint8_t type;
        uint8_t parameter;
        ck_assert(qwp_feed_type_parse(name, strlen(name), &type, &parameter));
        ck_assert(qwp_feed_converter_begin(&converter, len, 1));
        struct qwp_feed_value value;
        struct qwp_error err;
        const enum qwp_result result =
            qwp_feed_convert(&converter, type, parameter, text, len, &value, &err);
        ck_assert(result == QWP_OK || result == QWP_INVALID);
        free(text);
    }
    qwp_feed_converter_close(&converter);
    qwp_feed_symbols_close(&symbols);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed_number");
    TCase *tcase = tcase_create("feed_number");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, double_edge_cases_are_exact);
    tcase_add_test(tcase, double_random_ones_are_exact);
    tcase_add_test(tcase, double_bad_text_is_refused);
    tcase_add_test(tcase, double_special_values_are_read);
    tcase_add_test(tcase, integer_bounds_are_exact);
    tcase_add_test(tcase, time_forms_are_read);
    tcase_add_test(tcase, time_calendar_agrees_with_counting);
    tcase_add_test(tcase, convert_all_types);
    tcase_add_test(tcase, type_names_go_both_ways);
    tcase_add_test(tcase, convert_random_text_is_harmless);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: CSV is read as documented: quoting, nulls, inference, every mistake.
 * Method: files and their rows by hand; random tables written and read back, cut anywhere; random
 * damage. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_csv.h"
#include "clients/c/feed/qwp_feed_reader.h"
#include "tests/feed/feed_support.h"

struct fixture {
    struct qwp_feed_catalog catalog;
    struct qwp_feed_symbols symbols;
    struct qwp_feed_csv_layout layout;
    struct qwp_feed_csv *csv;
};

static enum qwp_result fixture_open(struct fixture *f, const struct qwp_feed_csv_options *options,
                                    const char *sample, size_t len, struct qwp_error *err)
{
    *f = (struct fixture){0};
    char *block = feed_block(sample, len);
    enum qwp_result result = qwp_feed_csv_settle(options, block, len, &f->layout, err);
    free(block);
    if (result == QWP_OK) {
        const struct qwp_feed_context context = {&f->catalog, &f->symbols, options->at, "t"};
        result = qwp_feed_csv_create(&f->csv, &context, &f->layout, err);
    }
    return result;
}

static void fixture_close(struct fixture *f)
{
    qwp_feed_csv_destroy(f->csv);
    qwp_feed_csv_layout_close(&f->layout);
    qwp_feed_symbols_close(&f->symbols);
    qwp_feed_catalog_close(&f->catalog);
}

/* Adds the rows of a text to `out`, one a line; bad ones as `!off+len`. */
static void parse_more(struct fixture *f, const char *text, size_t len, char *out, size_t room)
{
    char *block = feed_block(text, len);
    qwp_feed_csv_begin(f->csv, block, len);
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    enum qwp_result result;
    while ((result = qwp_feed_csv_next(f->csv, &row, &bad)) != QWP_AGAIN) {
        const size_t used = strlen(out);
        if (result == QWP_OK) {
            size_t off;
            size_t record;
            qwp_feed_csv_last(f->csv, &off, &record);
            ck_assert_uint_le(off + record, len);
            feed_row_text(&row, out + used, room - used);
        } else {
            ck_assert(bad.err.text[0] != '\0');
            snprintf(out + used, room - used, "!%zu+%zu", bad.off, bad.len);
        }
        strncat(out, "\n", room - strlen(out) - 1);
    }
    free(block);
}

static void expect_options(const struct qwp_feed_csv_options *options, const char *text,
                           const char *expected)
{
    struct fixture f;
    struct qwp_error err;
    ck_assert_msg(fixture_open(&f, options, text, strlen(text), &err) == QWP_OK, "%s", err.text);
    char out[4096] = "";
    const size_t header = f.layout.header_bytes;
    parse_more(&f, text + header, strlen(text) - header, out, sizeof out);
    ck_assert_str_eq(out, expected);
    fixture_close(&f);
}

static void expect(const char *text, const char *expected)
{
    expect_options(&(struct qwp_feed_csv_options){0}, text, expected);
}

START_TEST(csv_types_are_inferred)
{
    expect("l,d,b,v,t,n,u,z\n"
           "1,1.5,true,x,2016-01-01,2016-01-01T00:00:00.000000001Z,"
           "00112233-4455-6677-8899-aabbccddeeff,007\n"
           "-2,2,FALSE,1,2016-01-01T00:00:01Z,2016-01-01,00000000-0000-0000-0000-000000000001,8\n",
           "t l=1,d=1.5d,b=T,v=\"x\",t=1451606400000000us,n=1451606400000000001ns,"
           "u=w[8899aabbccddeeff,11223344556677],z=\"007\" @server\n"
           "t l=-2,d=2d,b=F,v=\"1\",t=1451606401000000us,n=1451606400000000000ns,u=w[1,0],z=\"8\" "
           "@server\n");
    expect("a,b\n1,\n,\n", "t a=1,b=null @server\nt a=null,b=null @server\n");
    expect("a\nnan\n1\n", "t a=nand @server\nt a=1d @server\n");
    expect("a\n1\n1e30\n", "t a=1d @server\nt a=1e+30d @server\n");
    expect("a\n9223372036854775808\n", "t a=\"9223372036854775808\" @server\n");
}
END_TEST

START_TEST(csv_quoting)
{
    expect("a,\"b c\"\n\"x,y\",\"say \"\"hi\"\"\"\n\"two\nlines\",\"\"\n,\"\r\n\"\n",
           "t a=\"x,y\",b c=\"say \"hi\"\" @server\n"
           "t a=\"two\nlines\",b c=\"\" @server\n"
           "t a=null,b c=\"\r\n\" @server\n");
    expect("a,b\n5\" disk,x\"\"y\n", "t a=\"5\" disk\",b=\"x\"\"y\" @server\n");
    expect("a,b\n\"1\",\"2\"\n", "t a=1,b=2 @server\n");
    expect("a,b\n\"\",1\n2,\"\"\n", "t a=null,b=1 @server\nt a=2,b=null @server\n");
}
END_TEST

START_TEST(csv_lines)
{
    expect("a,b\r\n1,2\r\n\r\n\n3,4", "t a=1,b=2 @server\nt a=3,b=4 @server\n");
    expect("a,b\n", "");
    expect("a,b", "");
    expect(" a , b \n 1 , 2 \n x, 3\n", "t a=\" 1 \",b=2 @server\nt a=\" x\",b=3 @server\n");
}
END_TEST

START_TEST(csv_options_are_applied)
{
    expect_options(&(struct qwp_feed_csv_options){.delimiter = ';'}, "a;b\n1,5;2\n",
                   "t a=\"1,5\",b=2 @server\n");
    expect_options(&(struct qwp_feed_csv_options){.delimiter = '\t'}, "a\tb\n\"1\t5\"\t2\n",
                   "t a=\"1\t5\",b=2 @server\n");
    expect_options(&(struct qwp_feed_csv_options){.no_header = true, .columns = "a, b"}, "1,2\n",
                   "t a=1,b=2 @server\n");
    expect_options(&(struct qwp_feed_csv_options){.columns = "x,y"}, "a,b\n1,2\n",
                   "t x=1,y=2 @server\n");
    expect_options(
        &(struct qwp_feed_csv_options){.no_header = true, .schema = "a:int,b:decimal(18,2)"},
        "1,2\n", "t a=1,b=w[c8] @server\n");
    expect_options(&(struct qwp_feed_csv_options){.schema = "B:float, c:skip"}, "a,b,c\n1,2,x\n",
                   "t a=1,b=2f @server\n");
    expect_options(&(struct qwp_feed_csv_options){.symbols = "b"}, "a,b\n1,2\n1,2\n1,\"\"\n2,\n",
                   "t a=1,b='2' @server\nt a=1,b='2' @server\nt a=1,b='' @server\n"
                   "t a=2,b=null @server\n");
}
END_TEST

START_TEST(csv_time_column)
{
    static const struct {
        const char *format;
        enum qwp_feed_at_choice at;
        const char *text;
        const char *expected;
    } cases[] = {
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n2016-01-01,1\n", "t a=1 @us 1451606400000000\n"},
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n2016-01-01T00:00:00.123456789,1\n",
         "t a=1 @ns 1451606400123456789\n"},
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n1451606400,1\n", "t a=1 @us 1451606400000000\n"},
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n1451606400001,1\n", "t a=1 @us 1451606400001000\n"},
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n1451606400000001,1\n", "t a=1 @us 1451606400000001\n"},
        {"auto", QWP_FEED_AT_AUTO, "ts,a\n1451606400000000001,1\n",
         "t a=1 @ns 1451606400000000001\n"},
        {"s", QWP_FEED_AT_NS, "ts,a\n1.5,1\n", "t a=1 @ns 1500000000\n"},
        {"ns", QWP_FEED_AT_US, "ts,a\n1999,1\n", "t a=1 @us 1\n"},
        {"%d.%m.%Y", QWP_FEED_AT_AUTO, "a,ts\n1,01.01.2016\n", "t a=1 @us 1451606400000000\n"},
        {"iso", QWP_FEED_AT_SERVER, "ts,a\n2016-01-01,1\n", "t a=1 @server\n"},
        {"iso", QWP_FEED_AT_AUTO, "ts,a\nx,1\n,2\n2016-01-01,3\n",
         "!0+4\n!4+3\nt a=3 @us 1451606400000000\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct qwp_feed_csv_options options = {.time = "ts", .at = cases[i].at};
        ck_assert(qwp_feed_time_format_parse(cases[i].format, &options.time_format));
        expect_options(&options, cases[i].text, cases[i].expected);
    }
}
END_TEST

static void expect_no_layout(const struct qwp_feed_csv_options *options, const char *text,
                             const char *words)
{
    struct fixture f;
    struct qwp_error err;
    ck_assert_int_eq(fixture_open(&f, options, text, strlen(text), &err), QWP_INVALID);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' does not say '%s'", err.text, words);
    fixture_close(&f);
}

START_TEST(csv_bad_layouts_say_why)
{
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "", "no header");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,A\n", "two columns are called 'A'");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,\n1,2\n", "empty column name");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,b-c\n", "'-'");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,\"b\n", "no header line");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,\"b\"x\n", "not closed");
    expect_no_layout(&(struct qwp_feed_csv_options){0}, "a,\xff\n", "UTF-8");
    expect_no_layout(&(struct qwp_feed_csv_options){.no_header = true}, "1\n", "need names");
    expect_no_layout(&(struct qwp_feed_csv_options){.schema = "x:int"}, "a\n1\n",
                     "--schema names the column 'x'");
    expect_no_layout(&(struct qwp_feed_csv_options){.schema = "a:integer"}, "a\n1\n", "a:integer");
    expect_no_layout(&(struct qwp_feed_csv_options){.schema = "a"}, "a\n1\n", "not name:type");
    expect_no_layout(&(struct qwp_feed_csv_options){.symbols = "x"}, "a\n1\n", "--symbols");
    expect_no_layout(&(struct qwp_feed_csv_options){.time = "x"}, "a\n1\n", "--time names");
    expect_no_layout(&(struct qwp_feed_csv_options){.time = "a"}, "a\nsoon\n", "--time-format");
    expect_no_layout(&(struct qwp_feed_csv_options){.time = "a"}, "a\n", "--time-format");
}
END_TEST

START_TEST(csv_bad_rows_are_told_and_passed)
{
    expect("a,b\n1,2\n1\n1,2,3\n3,4\n", "t a=1,b=2 @server\n!4+2\n!6+6\nt a=3,b=4 @server\n");
    expect("a,b\n1,x\n2,\"y\"z\n3,\"w\n4,v\n",
           "t a=1,b=\"x\" @server\n!4+7\n!11+5\nt a=4,b=\"v\" @server\n");
    struct fixture f;
    struct qwp_error err;
    const struct qwp_feed_csv_options options = {.infer_rows = 1};
    ck_assert_int_eq(fixture_open(&f, &options, "a\n1\n", 4, &err), QWP_OK);
    char *block = feed_block("x\n", 2);
    qwp_feed_csv_begin(f.csv, block, 2);
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    ck_assert_int_eq(qwp_feed_csv_next(f.csv, &row, &bad), QWP_INVALID);
    ck_assert_str_eq(bad.err.text, "column 'a': 'x' is not a long (64 bits)");
    free(block);
    fixture_close(&f);
}
END_TEST

/* A table of random texts, numbers and nulls, written with random quoting. */
static size_t random_table(char *text, size_t room, char *rows, size_t rows_room)
{
    size_t len = (size_t)snprintf(text, room, "v,l,s\n");
    size_t rows_len = 0;
    rows[0] = '\0';
    for (int i = 0; i < 40; i++) {
        char value[32];
        const size_t n = feed_random() % 10;
        for (size_t k = 0; k < n; k++) {
            value[k] = "ab,\"\n\r x"[feed_random() % 8];
        }
        value[n] = '\0';
        bool quoted = strpbrk(value, ",\"\n\r") != NULL || feed_random() % 3 == 0;
        const bool is_null = n == 0 && !quoted;
        if (quoted) {
            text[len++] = '"';
            for (size_t k = 0; k < n; k++) {
                text[len++] = value[k];
                if (value[k] == '"') {
                    text[len++] = '"';
                }
            }
            text[len++] = '"';
        } else {
            memcpy(text + len, value, n);
            len += n;
        }
        const long long number = (long long)feed_random();
        const int symbol = (int)(feed_random() % 5);
        len += (size_t)snprintf(text + len, room - len, ",%lld,\"s\"\"%d\"%s", number, symbol,
                                feed_random() % 2 ? "\n" : "\r\n");
        rows_len += (size_t)snprintf(rows + rows_len, rows_room - rows_len,
                                     is_null ? "t v=null%.0s,l=%lld,s='s\"%d' @server\n"
                                             : "t v=\"%s\",l=%lld,s='s\"%d' @server\n",
                                     value, number, symbol);
    }
    return len;
}

START_TEST(csv_random_tables_come_back_however_cut)
{
    enum { ROOM = 1 << 16 };
    char *text = malloc(ROOM);
    char *rows = malloc(ROOM);
    char *out = malloc(ROOM);
    for (int round = 0; round < 400; round++) {
        const size_t len = random_table(text, ROOM, rows, ROOM);
        const struct qwp_feed_csv_options options = {.schema = "v:varchar,l:long,s:symbol"};
        struct fixture f;
        struct qwp_error err;
        ck_assert_int_eq(fixture_open(&f, &options, text, len, &err), QWP_OK);
        out[0] = '\0';
        size_t start = f.layout.header_bytes;
        size_t have = 0;
        while (start < len) {
            have += 1 + feed_random() % 200;
            have = have < len - start ? have : len - start;
            uint64_t lines;
            const size_t used = qwp_feed_cut(QWP_FEED_CSV, ',', text + start, have, &lines);
            parse_more(&f, text + start, used, out, ROOM);
            start += used;
            have -= used;
        }
        ck_assert_str_eq(out, rows);
        fixture_close(&f);
    }
    free(text);
    free(rows);
    free(out);
}
END_TEST

START_TEST(csv_damage_is_harmless)
{
    enum { ROOM = 1 << 16 };
    char *text = malloc(ROOM);
    char *rows = malloc(ROOM);
    char *out = malloc(ROOM);
    for (int round = 0; round < 2000; round++) {
        const size_t len = random_table(text, ROOM, rows, ROOM);
        for (int i = 0; i < 5; i++) {
            text[feed_random() % len] = "\",\n\r\xff\0x"[feed_random() % 7];
        }
        const struct qwp_feed_csv_options options = {.infer_rows = 1 + feed_random() % 50};
        struct fixture f;
        struct qwp_error err;
        if (fixture_open(&f, &options, text, len, &err) == QWP_OK) {
            out[0] = '\0';
            parse_more(&f, text + f.layout.header_bytes, len - f.layout.header_bytes, out, ROOM);
        }
        fixture_close(&f);
    }
    free(text);
    free(rows);
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed_csv");
    TCase *tcase = tcase_create("feed_csv");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, csv_types_are_inferred);
    tcase_add_test(tcase, csv_quoting);
    tcase_add_test(tcase, csv_lines);
    tcase_add_test(tcase, csv_options_are_applied);
    tcase_add_test(tcase, csv_time_column);
    tcase_add_test(tcase, csv_bad_layouts_say_why);
    tcase_add_test(tcase, csv_bad_rows_are_told_and_passed);
    tcase_add_test(tcase, csv_random_tables_come_back_however_cut);
    tcase_add_test(tcase, csv_damage_is_harmless);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: the line protocol is read as documented: every escape, form and mistake; and the quick way
 * gives what the general way gives.
 * Method: lines and their rows by hand; random lines made from known rows and read back; random
 * damage, where every row and every bad line must lie on the record ends the cutter finds. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_ilp.h"
#include "clients/c/feed/qwp_feed_reader.h"
#include "tests/feed/feed_support.h"

/* A parser with all it needs. */
struct fixture {
    struct qwp_feed_catalog catalog;
    struct qwp_feed_symbols symbols;
    struct qwp_feed_ilp *ilp;
};

static void fixture_open(struct fixture *f, enum qwp_feed_unit unit, enum qwp_feed_at_choice at,
                         const char *table)
{
    *f = (struct fixture){0};
    const struct qwp_feed_context context = {&f->catalog, &f->symbols, at, table};
    f->ilp = qwp_feed_ilp_create(&context, unit);
    ck_assert_ptr_nonnull(f->ilp);
}

static void fixture_close(struct fixture *f)
{
    qwp_feed_ilp_destroy(f->ilp);
    qwp_feed_symbols_close(&f->symbols);
    qwp_feed_catalog_close(&f->catalog);
}

/* All rows and bad lines of a text, one a line; bad ones as `!off+len`. */
static void parse_all(struct fixture *f, const char *text, size_t len, char *out, size_t room)
{
    char *block = feed_block(text, len);
    qwp_feed_ilp_begin(f->ilp, block, len);
    out[0] = '\0';
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    enum qwp_result result;
    while ((result = qwp_feed_ilp_next(f->ilp, &row, &bad)) != QWP_AGAIN) {
        const size_t used = strlen(out);
        if (result == QWP_OK) {
            feed_row_text(&row, out + used, room - used);
        } else {
            ck_assert(bad.err.text[0] != '\0');
            snprintf(out + used, room - used, "!%zu+%zu", bad.off, bad.len);
        }
        strncat(out, "\n", room - strlen(out) - 1);
    }
    free(block);
}

static void expect(const char *text, const char *expected)
{
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    char out[4096];
    parse_all(&f, text, strlen(text), out, sizeof out);
    ck_assert_str_eq(out, expected);
    /* Again, now that everything is expected. */
    parse_all(&f, text, strlen(text), out, sizeof out);
    ck_assert_str_eq(out, expected);
    fixture_close(&f);
}

static void expect_bad(const char *text, const char *words)
{
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    char *block = feed_block(text, strlen(text));
    qwp_feed_ilp_begin(f.ilp, block, strlen(text));
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    enum qwp_result result;
    do {
        result = qwp_feed_ilp_next(f.ilp, &row, &bad);
        ck_assert_msg(result != QWP_AGAIN, "'%s' is taken", text);
    } while (result == QWP_OK);
    ck_assert_int_eq(result, QWP_INVALID);
    ck_assert_msg(strstr(bad.err.text, words) != NULL, "'%s' gives '%s', which does not say '%s'",
                  text, bad.err.text, words);
    free(block);
    fixture_close(&f);
}

START_TEST(ilp_value_forms)
{
    expect("t,s=a l=1i,n=-5i,u=7u,d=1.5,e=1e3,b=t,v=\"x\" 1451606400000000000\n",
           "t s='a',l=1,n=-5,u=7,d=1.5d,e=1000d,b=T,v=\"x\" @ns 1451606400000000000\n");
    expect("t d=1\n", "t d=1d @server\n");
    expect("t d=1", "t d=1d @server\n");
    expect("t d=-0,f=+1.25,g=.5,h=5.,i=1E-2,j=nan,k=inf,l=-Inf\n",
           "t d=-0d,f=1.25d,g=0.5d,h=5d,i=0.01d,j=nand,k=infd,l=-infd @server\n");
    expect("t a=t,b=T,c=true,d=True,e=TRUE,f=f,g=F,h=false,i=False,j=FALSE\n",
           "t a=T,b=T,c=T,d=T,e=T,f=F,g=F,h=F,i=F,j=F @server\n");
    expect("t a=9223372036854775807i,b=-9223372036854775808i,c=9223372036854775807u\n",
           "t a=9223372036854775807,b=-9223372036854775808,c=9223372036854775807 @server\n");
    expect("t a=0xffi,b=0x0i\n", "t a=w[ff,0,0,0],b=w[0,0,0,0] @server\n");
    expect("t a=12t,b=-12n 5\n", "t a=12us,b=-12ns @ns 5\n");
    expect("t a=\"\" 5\n", "t a=\"\" @ns 5\n");
    expect("t,a= b=1i,c= 5\n", "t b=1 @ns 5\n");
}
END_TEST

START_TEST(ilp_rows_of_tags_only)
{
    expect("t,a=x 5\n", "t a='x' @ns 5\n");
    expect("t,a=x\n", "t a='x' @server\n");
    expect("t,a=x  5  \n", "t a='x' @ns 5\n");
}
END_TEST

START_TEST(ilp_escapes_in_names_and_tags)
{
    expect("my\\ table,t\\ ag=v\\ a\\,l\\=\\\\\\\"x f\\ ield=1i 5\n",
           "my table t ag='v a,l=\\\"x',f ield=1 @ns 5\n");
    expect("t,a=C:\\temp f=1i 5\n", "t a='C:\\temp',f=1 @ns 5\n");
    expect("t,a=x\\\ny f=1i 5\n", "t a='x\ny',f=1 @ns 5\n");
    expect("t,a=\"q\" f=1i 5\n", "t a='\"q\"',f=1 @ns 5\n");
    expect("t,a=5\"\\ disk f=\"5\\\" disk\" 5\nt,a=y f=\"z\" 6\n",
           "t a='5\" disk',f=\"5\" disk\" @ns 5\nt a='y',f=\"z\" @ns 6\n");
}
END_TEST

START_TEST(ilp_strings)
{
    expect("t v=\"a,b c=d\" 5\n", "t v=\"a,b c=d\" @ns 5\n");
    expect("t v=\"a\\\"b\\\\c\" 5\n", "t v=\"a\"b\\c\" @ns 5\n");
    expect("t v=\"a\\,b\\ c\\=d\\n\" 5\n", "t v=\"a\\,b\\ c\\=d\\n\" @ns 5\n");
    expect("t v=\"line 1\nline 2\r\n# no comment\",w=1i 5\nt v=\"b\",w=2i 6\n",
           "t v=\"line 1\nline 2\r\n# no comment\",w=1 @ns 5\nt v=\"b\",w=2 @ns 6\n");
    expect("t v=\"esc\\\nnl\" 5\n", "t v=\"esc\nnl\" @ns 5\n");
    expect("t v=\"\\\\\" 5\n", "t v=\"\\\" @ns 5\n");
    expect("t v=\"\\\\\\\"\" 5\n", "t v=\"\\\"\" @ns 5\n");
}
END_TEST

START_TEST(ilp_lines_between_rows)
{
    expect("# comment \"with quote\nt a=1i 1\n\n   \n\r\n#x\r\nt a=2i 2\r\n \tt a=3i 3\n#end",
           "t a=1 @ns 1\nt a=2 @ns 2\nt a=3 @ns 3\n");
    expect("", "");
    expect("\n\n", "");
    expect("t a=1i 1 \n", "t a=1 @ns 1\n");
    expect("t a=1i   1\n", "t a=1 @ns 1\n");
    expect("t   a=1i 1\n", "t a=1 @ns 1\n");
    expect("t a=1i \n", "t a=1 @server\n");
}
END_TEST

START_TEST(ilp_timestamps_in_any_unit)
{
    static const struct {
        enum qwp_feed_unit unit;
        enum qwp_feed_at_choice at;
        const char *text;
        const char *expected;
    } cases[] = {
        {QWP_FEED_NS, QWP_FEED_AT_AUTO, "t a=1i 5", "t a=1 @ns 5\n"},
        {QWP_FEED_US, QWP_FEED_AT_AUTO, "t a=1i 5", "t a=1 @us 5\n"},
        {QWP_FEED_MS, QWP_FEED_AT_AUTO, "t a=1i 5", "t a=1 @us 5000\n"},
        {QWP_FEED_S, QWP_FEED_AT_AUTO, "t a=1i 5", "t a=1 @us 5000000\n"},
        {QWP_FEED_NS, QWP_FEED_AT_US, "t a=1i 5999", "t a=1 @us 5\n"},
        {QWP_FEED_S, QWP_FEED_AT_NS, "t a=1i 5", "t a=1 @ns 5000000000\n"},
        {QWP_FEED_NS, QWP_FEED_AT_SERVER, "t a=1i 5", "t a=1 @server\n"},
        {QWP_FEED_NS, QWP_FEED_AT_AUTO, "t a=1i 5t", "t a=1 @us 5\n"},
        {QWP_FEED_S, QWP_FEED_AT_AUTO, "t a=1i 5n", "t a=1 @ns 5\n"},
        {QWP_FEED_S, QWP_FEED_AT_NS, "t a=1i 9999999999999", "!0+20\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        fixture_open(&f, cases[i].unit, cases[i].at, NULL);
        char out[256];
        for (int again = 0; again < 2; again++) {
            parse_all(&f, cases[i].text, strlen(cases[i].text), out, sizeof out);
            ck_assert_str_eq(out, cases[i].expected);
        }
        fixture_close(&f);
    }
}
END_TEST

START_TEST(ilp_table_option_overrides)
{
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, "mine");
    char out[256];
    parse_all(&f, "a,x=1 f=1i 1\nb f=2i 2\n", 22, out, sizeof out);
    ck_assert_str_eq(out, "mine x='1',f=1 @ns 1\nmine f=2 @ns 2\n");
    fixture_close(&f);
}
END_TEST

START_TEST(ilp_columns_keep_their_type)
{
    expect("t a=1.5 1\nt a=2i 2\n", "t a=1.5d @ns 1\nt a=2d @ns 2\n");
    expect("t a=1i 1\nt a=2 2\n", "t a=1 @ns 1\nt a=2 @ns 2\n");
    expect("t a=1t 1\nt a=2999n 2\n", "t a=1us @ns 1\nt a=2us @ns 2\n");
    expect("t a=1n 1\nt a=2t 2\n", "t a=1ns @ns 1\nt a=2000ns @ns 2\n");
    expect("t a=\"x\" 1\nt A=\"y\" 2\n", "t a=\"x\" @ns 1\nt a=\"y\" @ns 2\n");
    expect("t,s=a f=1i 1\nt s=\"b\",f=1i 2\n", "t s='a',f=1 @ns 1\nt s='b',f=1 @ns 2\n");
    expect_bad("t a=1i 1\nt a=2.5 2\n", "'2.5' is not a long");
    expect_bad("t a=1i 1\nt a=\"x\" 2\n", "column 'a' (long)");
    expect_bad("t a=1.5 1\nt a=9007199254740993i 2\n", "exactly");
    expect_bad("t a=1.5 1\nt,a=x b=1i 2\n", "was a field (double) before and is a tag now");
    expect_bad("t a=true 1\nt a=\"x\" 2\n", "true or false");
}
END_TEST

START_TEST(ilp_bad_lines_say_why)
{
    expect_bad("t\n", "neither tags nor fields");
    expect_bad("t 5\n", "neither tags nor fields");
    expect_bad("t a\n", "neither tags nor fields");
    expect_bad("t a=1i,b\n", "field 'b' has no value");
    expect_bad("t,a b=1i\n", "tag 'a' has no value");
    expect_bad("t, b=1i\n", "tag '' has no value");
    expect_bad(",a=1 b=1i\n", "empty table name");
    expect_bad("t =1i\n", "empty column name");
    expect_bad("t a=12q\n", "'12q' is not a number");
    expect_bad("t a=1i 12x\n", "'12x' is not a timestamp");
    expect_bad("t a=1i 1.5\n", "not a timestamp");
    expect_bad("t a=1i 1 2\n", "not a timestamp");
    expect_bad("t a=1i 99999999999999999999\n", "not a timestamp");
    expect_bad("t a=9223372036854775808i\n", "not a long");
    expect_bad("t a=9223372036854775808u\n", "not a long");
    expect_bad("t a=-1u,a=1i\n", "twice");
    expect_bad("t,a=x a=\"y\"\n", "twice");
    expect_bad("t a=\"x\n", "not closed");
    expect_bad("t a=\"x\"y\n", "should follow the string");
    expect_bad("t a=1i,\n", "field '' has no value");
    expect_bad("t/x a=1i\n", "'/'");
    expect_bad("t a-b=1i\n", "'-'");
    expect_bad("t a\xff=1i\n", "UTF-8");
    expect_bad("t\xff a=1i\n", "UTF-8");
    expect_bad("t a=0xzi\n", "hexadecimal");
}
END_TEST

START_TEST(ilp_goes_on_behind_a_bad_line)
{
    expect("t a=1i 1\nt a=x 2\nt a=3i 3\n", "t a=1 @ns 1\n!9+8\nt a=3 @ns 3\n");
    expect("t a=1i 1\nt a=\"open 2\nt a=3i 3\n", "t a=1 @ns 1\n!9+12\nt a=3 @ns 3\n");
    expect("bad\nt a=1i 1", "!0+4\nt a=1 @ns 1\n");
    expect("t a=1i 1\nbad", "t a=1 @ns 1\n!9+3\n");
}
END_TEST

START_TEST(ilp_sparse_rows_become_wide)
{
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    char line[256];
    char out[1024];
    for (int i = 0; i < 500; i++) {
        snprintf(line, sizeof line, "t,s=x c%d=%di,c%d=%di %d", i % 40, i, 40 + i % 37, i, i);
        parse_all(&f, line, strlen(line), out, sizeof out);
        char value[32];
        snprintf(value, sizeof value, "c%d=%d", i % 40, i);
        ck_assert_msg(strstr(out, value) != NULL, "%s gives %s", line, out);
        snprintf(value, sizeof value, "c%d=%d", 40 + i % 37, i);
        ck_assert_msg(strstr(out, value) != NULL, "%s gives %s", line, out);
        ck_assert_ptr_nonnull(strstr(out, "s='x'"));
        ck_assert_msg(i < QWP_FEED_SHAPES_MAX || strstr(out, "null") != NULL, "%s", out);
    }
    ck_assert_uint_lt(f.catalog.shape_count, QWP_FEED_SHAPES_MAX + 100);
    fixture_close(&f);
}
END_TEST

/* ---- random lines from known rows ---- */

/* A text under construction. */
struct text {
    char *at;
    size_t len;
    size_t room;
};

static void add(struct text *t, const char *s)
{
    const size_t n = strlen(s);
    ck_assert(t->len + n < t->room);
    memcpy(t->at + t->len, s, n + 1);
    t->len += n;
}

static void add_char(struct text *t, char c)
{
    add(t, (const char[]){c, '\0'});
}

static const char *random_word(char *word, const char *alphabet)
{
    const size_t n = strlen(alphabet);
    const size_t len = 1 + feed_random() % 12;
    for (size_t i = 0; i < len; i++) {
        word[i] = alphabet[feed_random() % n];
    }
    word[len] = '\0';
    return word;
}

static void add_escaped(struct text *t, const char *word, const char *escaped)
{
    for (; *word != '\0'; word++) {
        if (strchr(escaped, *word) != NULL) {
            add_char(t, '\\');
        }
        add_char(t, *word);
    }
}

/* One line, and the row it stands for. */
static void random_line(struct text *line, struct text *row)
{
    char word[32];
    char name[32];
    char number[64];
    snprintf(name, sizeof name, "tab le%d", (int)(feed_random() % 3));
    add_escaped(line, name, " ");
    add(row, name);
    const int tags = (int)(feed_random() % 4);
    const char *separator = " ";
    for (int i = 0; i < tags; i++) {
        snprintf(name, sizeof name, "tag=%d", i);
        random_word(word, "ab ,=\\\"\nz");
        add(line, ",");
        add_escaped(line, name, "=");
        add(line, "=");
        add_escaped(line, word, " ,=\\\n\"");
        add(row, separator);
        add(row, name);
        add(row, "='");
        add(row, word);
        add(row, "'");
        separator = ",";
    }
    const int fields = 1 + (int)(feed_random() % 5);
    for (int i = 0; i < fields; i++) {
        add(line, i ? "," : " ");
        add(row, separator);
        separator = ",";
        switch (i) {
        case 0:
            snprintf(number, sizeof number, "%lld",
                     (long long)(feed_random() >> (feed_random() % 64)));
            add(line, "n=");
            add(line, number);
            add(line, "i");
            add(row, "n=");
            add(row, number);
            break;
        case 1:
            snprintf(number, sizeof number, "%.6g", (double)(feed_random() % 1000000) / 1000);
            add(line, "dbl=");
            add(line, number);
            add(row, "dbl=");
            add(row, number);
            add(row, "d");
            break;
        case 2:
            random_word(word, "ab ,=\\\"\nz#");
            add(line, "st\\ r=\"");
            add_escaped(line, word, "\\\"");
            add(line, "\"");
            add(row, "st r=\"");
            add(row, word);
            add(row, "\"");
            break;
        case 3:
            add(line, "b=");
            add(line, feed_random() % 2 ? "t" : "TRUE");
            add(row, "b=T");
            break;
        default:
            snprintf(number, sizeof number, "%u", (unsigned)feed_random());
            add(line, "a_key_longer_than_twenty_four_bytes=");
            add(line, number);
            add(line, "t");
            add(row, "a_key_longer_than_twenty_four_bytes=");
            add(row, number);
            add(row, "us");
            break;
        }
    }
    if (feed_random() % 4 != 0) {
        snprintf(number, sizeof number, " %llu", (unsigned long long)(feed_random() % INT64_MAX));
        add(line, number);
        add(row, " @ns");
        add(row, number);
    } else {
        add(row, " @server");
    }
    add(line, feed_random() % 8 ? "\n" : "\r\n");
    add(row, "\n");
}

START_TEST(ilp_random_rows_come_back)
{
    enum { ROOM = 1 << 20 };
    struct text lines = {malloc(ROOM), 0, ROOM};
    struct text rows = {malloc(ROOM), 0, ROOM};
    char *out = malloc(ROOM);
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    for (int round = 0; round < 60; round++) {
        lines.len = rows.len = 0;
        for (int i = 0; i < 200; i++) {
            random_line(&lines, &rows);
        }
        parse_all(&f, lines.at, lines.len, out, ROOM);
        ck_assert_str_eq(out, rows.at);
        uint64_t count;
        ck_assert_uint_eq(qwp_feed_cut(QWP_FEED_ILP, ',', lines.at, lines.len, &count), lines.len);
    }
    fixture_close(&f);
    free(lines.at);
    free(rows.at);
    free(out);
}
END_TEST

/* Blocks that are cut anywhere give the same rows as the whole. */
START_TEST(ilp_cut_blocks_give_the_same_rows)
{
    enum { ROOM = 1 << 18 };
    struct text lines = {malloc(ROOM), 0, ROOM};
    struct text rows = {malloc(ROOM), 0, ROOM};
    char *out = malloc(ROOM);
    char *piece = malloc(ROOM);
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    for (int round = 0; round < 60; round++) {
        lines.len = rows.len = 0;
        for (int i = 0; i < 40; i++) {
            random_line(&lines, &rows);
        }
        out[0] = '\0';
        size_t start = 0;
        size_t have = 0;
        while (start < lines.len) {
            have += 1 + feed_random() % 300;
            have = have < lines.len - start ? have : lines.len - start;
            uint64_t count;
            const size_t used = qwp_feed_cut(QWP_FEED_ILP, ',', lines.at + start, have, &count);
            parse_all(&f, lines.at + start, used, piece, ROOM);
            strcat(out, piece);
            start += used;
            have -= used;
        }
        ck_assert_str_eq(out, rows.at);
    }
    fixture_close(&f);
    free(lines.at);
    free(rows.at);
    free(out);
    free(piece);
}
END_TEST

/* Damaged lines: no foreign memory is touched, every byte belongs to one record, and a parser that
 * has seen much says the same as a new one. */
START_TEST(ilp_damage_is_told_and_passed)
{
    enum { ROOM = 1 << 16 };
    struct text lines = {malloc(ROOM), 0, ROOM};
    struct text rows = {malloc(ROOM), 0, ROOM};
    char *out = malloc(ROOM);
    char *fresh_out = malloc(ROOM);
    static const char noise[] = "\\\",= \n\r#0i-.\xff";
    for (int round = 0; round < 3000; round++) {
        lines.len = rows.len = 0;
        for (int i = 0; i < 4; i++) {
            random_line(&lines, &rows);
        }
        const int hits = 1 + (int)(feed_random() % 4);
        for (int i = 0; i < hits; i++) {
            lines.at[feed_random() % lines.len] = noise[feed_random() % (sizeof noise - 1)];
        }
        struct fixture f;
        fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
        parse_all(&f, lines.at, lines.len, fresh_out, ROOM);
        parse_all(&f, lines.at, lines.len, out, ROOM);
        fixture_close(&f);
        /* A column may have got its type from a line behind: then the second time differs. */
        const size_t bad_fresh = strstr(fresh_out, "!") != NULL;
        ck_assert(bad_fresh || strcmp(out, fresh_out) == 0);
    }
    free(lines.at);
    free(rows.at);
    free(out);
    free(fresh_out);
}
END_TEST

START_TEST(ilp_many_series_are_forgotten_and_found_again)
{
    struct fixture f;
    fixture_open(&f, QWP_FEED_NS, QWP_FEED_AT_AUTO, NULL);
    f.symbols.count_max = 1000;
    char line[128];
    char out[256];
    char expected[256];
    for (int i = 0; i < 100000; i++) {
        const int series = (int)(feed_random() % 80000);
        snprintf(line, sizeof line, "t,host=host_%d,region=r%d v=%di %d", series, series % 7, i, i);
        parse_all(&f, line, strlen(line), out, sizeof out);
        snprintf(expected, sizeof expected, "t host='host_%d',region='r%d',v=%d @ns %d\n", series,
                 series % 7, i, i);
        ck_assert_str_eq(out, expected);
    }
    ck_assert_uint_le(f.symbols.count, 1000);
    fixture_close(&f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed_ilp");
    TCase *tcase = tcase_create("feed_ilp");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, ilp_value_forms);
    tcase_add_test(tcase, ilp_rows_of_tags_only);
    tcase_add_test(tcase, ilp_escapes_in_names_and_tags);
    tcase_add_test(tcase, ilp_strings);
    tcase_add_test(tcase, ilp_lines_between_rows);
    tcase_add_test(tcase, ilp_timestamps_in_any_unit);
    tcase_add_test(tcase, ilp_table_option_overrides);
    tcase_add_test(tcase, ilp_columns_keep_their_type);
    tcase_add_test(tcase, ilp_bad_lines_say_why);
    tcase_add_test(tcase, ilp_goes_on_behind_a_bad_line);
    tcase_add_test(tcase, ilp_sparse_rows_become_wide);
    tcase_add_test(tcase, ilp_random_rows_come_back);
    tcase_add_test(tcase, ilp_cut_blocks_give_the_same_rows);
    tcase_add_test(tcase, ilp_damage_is_told_and_passed);
    tcase_add_test(tcase, ilp_many_series_are_forgotten_and_found_again);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

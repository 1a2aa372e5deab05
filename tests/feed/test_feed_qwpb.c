/* Aim: QWPB is read as the format says, and every mistake is told with its place.
 * Method: files built here record by record; cut at every length; random damage. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_qwpb.h"
#include "core/qwp_bytes.h"
#include "tests/feed/feed_support.h"

/* A file under construction, without its header. */
struct file {
    char bytes[1 << 16];
    size_t len;
};

static void put(struct file *f, const void *bytes, size_t n)
{
    ck_assert(f->len + n <= sizeof f->bytes);
    memcpy(f->bytes + f->len, bytes, n);
    f->len += n;
}

static void put_u8(struct file *f, unsigned v)
{
    put(f, &(uint8_t){(uint8_t)v}, 1);
}

static void put_uvarint(struct file *f, uint64_t v)
{
    for (; v > 127; v >>= 7) {
        put_u8(f, (unsigned)(v & 127) | 128);
    }
    put_u8(f, (unsigned)v);
}

static void put_string(struct file *f, const char *text)
{
    put_u8(f, QWP_FEED_QWPB_STRING);
    put_uvarint(f, strlen(text));
    put(f, text, strlen(text));
}

/* Strings 0..6 and schema 0: table t, tag host, fields of all types. */
static void put_definitions(struct file *f)
{
    static const char *const strings[] = {"t", "host", "i", "d", "b", "s", "host_0"};
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        put_string(f, strings[i]);
    }
    put_u8(f, QWP_FEED_QWPB_SCHEMA);
    put_uvarint(f, 0);
    put_uvarint(f, 1);
    put_uvarint(f, 1);
    put_uvarint(f, 4);
    for (unsigned i = 0; i < 4; i++) {
        put_uvarint(f, 2 + i);
        put_u8(f, 1 + i);
    }
}

static void put_row(struct file *f, uint64_t schema, uint64_t tag, int64_t i, double d, unsigned b,
                    const char *s, int64_t ns)
{
    struct file payload = {.len = 0};
    put_uvarint(&payload, tag);
    put(&payload, &i, 8);
    put(&payload, &d, 8);
    put_u8(&payload, b);
    put_uvarint(&payload, strlen(s));
    put(&payload, s, strlen(s));
    put(&payload, &ns, 8);
    put_u8(f, QWP_FEED_QWPB_ROW);
    put_uvarint(f, schema);
    put_uvarint(f, payload.len);
    put(f, payload.bytes, payload.len);
}

struct fixture {
    struct qwp_feed_catalog catalog;
    struct qwp_feed_symbols symbols;
    struct qwp_feed_qwpb *qwpb;
};

static void fixture_open(struct fixture *f)
{
    *f = (struct fixture){0};
    const struct qwp_feed_context context = {&f->catalog, &f->symbols, QWP_FEED_AT_AUTO, NULL};
    f->qwpb = qwp_feed_qwpb_create(&context);
    ck_assert_ptr_nonnull(f->qwpb);
}

static void fixture_close(struct fixture *f)
{
    qwp_feed_qwpb_destroy(f->qwpb);
    qwp_feed_symbols_close(&f->symbols);
    qwp_feed_catalog_close(&f->catalog);
}

/* The definitions of whole records to the parser, as the reader's log would give them; false with
 * the message when one is bad. */
static bool define_all(struct fixture *f, const char *data, size_t len, char *out, size_t room)
{
    for (size_t at = 0; at < len;) {
        size_t n;
        struct qwp_error err;
        const enum qwp_result result = qwp_feed_qwpb_record(data + at, len - at, &n, &err);
        if (result != QWP_OK) {
            snprintf(out, room, "!%zu %s", at, result == QWP_AGAIN ? "cut off" : err.text);
            return false;
        }
        size_t used;
        if (data[at] != QWP_FEED_QWPB_ROW &&
            qwp_feed_qwpb_define(f->qwpb, data + at, n, &used, &err) != QWP_OK) {
            snprintf(out, room, "!%zu %s", at, err.text);
            return false;
        }
        at += n;
    }
    return true;
}

static void parse_all(struct fixture *f, const char *text, size_t len, char *out, size_t room)
{
    char *data = malloc(len + 1); /* exact: reading beyond is noticed */
    memcpy(data, text, len);
    out[0] = '\0';
    if (!define_all(f, data, len, out, room)) {
        free(data);
        return;
    }
    qwp_feed_qwpb_begin(f->qwpb, data, len, (struct qwp_feed_qwpb_ids){0});
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    enum qwp_result result;
    while ((result = qwp_feed_qwpb_next(f->qwpb, &row, &bad)) != QWP_AGAIN) {
        const size_t used = strlen(out);
        if (result == QWP_OK) {
            feed_row_text(&row, out + used, room - used);
        } else {
            snprintf(out + used, room - used, "!%zu+%zu %s", bad.off, bad.len, bad.err.text);
        }
        strncat(out, "\n", room - strlen(out) - 1);
    }
    free(data);
}

static void expect(const struct file *file, const char *expected)
{
    struct fixture f;
    fixture_open(&f);
    char out[4096];
    parse_all(&f, file->bytes, file->len, out, sizeof out);
    ck_assert_msg(strstr(out, expected) == out, "got '%s', expected '%s'", out, expected);
    fixture_close(&f);
}

START_TEST(qwpb_rows_of_all_types)
{
    struct file file = {.len = 0};
    put_definitions(&file);
    put_row(&file, 0, 6, -5, 1.5, 1, "text", INT64_C(1451606400000000000));
    put_string(&file, "host_1");
    put_row(&file, 0, 7, INT64_MAX, -0.0, 0, "", 0);
    expect(&file, "t host='host_0',i=-5,d=1.5d,b=T,s=\"text\" @ns 1451606400000000000\n"
                  "t host='host_1',i=9223372036854775807,d=-0d,b=F,s=\"\" @ns 0\n");
}
END_TEST

START_TEST(qwpb_header_is_checked)
{
    struct qwp_error err;
    ck_assert_int_eq(qwp_feed_qwpb_header("QWPB\x01", &err), QWP_OK);
    ck_assert_int_eq(qwp_feed_qwpb_header("QWPB\x02", &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "version 2"));
    ck_assert_int_eq(qwp_feed_qwpb_header("\x1f\x8b\x08\x00\x01", &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "zcat"));
}
END_TEST

START_TEST(qwpb_mistakes_are_told_with_their_place)
{
    struct file base = {.len = 0};
    put_definitions(&base);
    struct file file = base;
    put_row(&file, 1, 6, 0, 0, 0, "", 0); /* undefined schema */
    put_row(&file, 0, 6, 1, 0, 0, "", 1);
    char expected[256];
    snprintf(expected, sizeof expected,
             "!%zu+%zu a row of schema 1, of which only 1 are defined here\nt host=", base.len,
             (file.len - base.len) / 2);
    expect(&file, expected);

    file = base;
    put_row(&file, 0, 7, 0, 0, 0, "", 0); /* undefined string, defined only behind the row */
    put_string(&file, "late");
    snprintf(expected, sizeof expected,
             "!%zu+30 tag 'host' of table 't' is string 7, of which only 7 are defined here\n",
             base.len);
    expect(&file, expected);

    file = base;
    put_u8(&file, 9);
    snprintf(expected, sizeof expected, "!%zu unknown kind of record 0x09", base.len);
    expect(&file, expected);

    file = base;
    put_u8(&file, QWP_FEED_QWPB_SCHEMA); /* unknown field type */
    put_uvarint(&file, 0);
    put_uvarint(&file, 0);
    put_uvarint(&file, 1);
    put_uvarint(&file, 2);
    put_u8(&file, 5);
    snprintf(expected, sizeof expected, "!%zu field 'i' has the unknown type 5", base.len);
    expect(&file, expected);

    file = base;
    put_u8(&file, QWP_FEED_QWPB_SCHEMA);
    put_uvarint(&file, 99); /* undefined table name */
    put_uvarint(&file, 0);
    put_uvarint(&file, 0);
    snprintf(expected, sizeof expected,
             "!%zu a table name is string 99, of which only 7 are defined", base.len);
    expect(&file, expected);

    file = base;
    put_u8(&file, QWP_FEED_QWPB_ROW); /* payload longer than the schema says */
    put_uvarint(&file, 0);
    put_uvarint(&file, 28);
    put(&file, "\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0", 28);
    snprintf(expected, sizeof expected, "!%zu+31 a row of table 't' does not fill its payload",
             base.len);
    expect(&file, expected);

    file = base;
    put_u8(&file, QWP_FEED_QWPB_STRING);
    put(&file, "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11);
    snprintf(expected, sizeof expected, "!%zu a record of kind 1 with an impossible length",
             base.len);
    expect(&file, expected);
}
END_TEST

/* A schema that no server would take makes its rows bad, not the file. */
START_TEST(qwpb_bad_names_make_bad_rows)
{
    struct file file = {.len = 0};
    put_definitions(&file);
    put_string(&file, "a/b"); /* 7 */
    put_u8(&file, QWP_FEED_QWPB_SCHEMA);
    put_uvarint(&file, 7);
    put_uvarint(&file, 0);
    put_uvarint(&file, 1);
    put_uvarint(&file, 2);
    put_u8(&file, 1);
    put_u8(&file, QWP_FEED_QWPB_SCHEMA); /* i is a double now */
    put_uvarint(&file, 0);
    put_uvarint(&file, 0);
    put_uvarint(&file, 1);
    put_uvarint(&file, 2);
    put_u8(&file, 2);
    for (unsigned schema = 1; schema < 3; schema++) {
        put_u8(&file, QWP_FEED_QWPB_ROW);
        put_uvarint(&file, schema);
        put_uvarint(&file, 16);
        put(&file, "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 16);
    }
    put_row(&file, 0, 6, 1, 1, 1, "", 1);
    struct fixture f;
    fixture_open(&f);
    char out[4096];
    parse_all(&f, file.bytes, file.len, out, sizeof out);
    ck_assert_ptr_nonnull(strstr(out, "table name 'a/b'"));
    ck_assert_ptr_nonnull(strstr(out, "was long before and is double now"));
    ck_assert_ptr_nonnull(strstr(out, "t host='host_0',i=1,"));
    fixture_close(&f);
}
END_TEST

START_TEST(qwpb_every_cut_is_noticed)
{
    struct file file = {.len = 0};
    put_definitions(&file);
    put_row(&file, 0, 6, 1, 1, 1, "x", 1);
    char *whole = malloc(file.len);
    for (size_t cut = 0; cut <= file.len; cut++) {
        size_t at = 0;
        size_t n;
        struct qwp_error err;
        enum qwp_result result = QWP_OK;
        char *exact = malloc(cut + 1);
        memcpy(exact, file.bytes, cut);
        while (at < cut && result == QWP_OK) {
            result = qwp_feed_qwpb_record(exact + at, cut - at, &n, &err);
            at += result == QWP_OK ? n : 0;
        }
        ck_assert(result == QWP_OK || result == QWP_AGAIN);
        ck_assert_int_eq(result == QWP_OK, at == cut);
        free(exact);
    }
    free(whole);
}
END_TEST

START_TEST(qwpb_damage_is_harmless)
{
    struct file file = {.len = 0};
    put_definitions(&file);
    char text[16];
    for (int i = 0; i < 50; i++) {
        snprintf(text, sizeof text, "host-%d", i);
        put_string(&file, text);
        put_row(&file, 0, 6 + feed_random() % (uint64_t)(i + 1), i, i, i % 2, text, i);
    }
    char *out = malloc(1 << 16);
    for (int round = 0; round < 5000; round++) {
        struct file bad = file;
        const size_t hits = 1 + feed_random() % 3;
        for (size_t i = 0; i < hits; i++) {
            bad.bytes[feed_random() % bad.len] = (char)feed_random();
        }
        bad.len -= feed_random() % 4 ? 0 : feed_random() % bad.len;
        struct fixture f;
        fixture_open(&f);
        parse_all(&f, bad.bytes, bad.len, out, 1 << 16);
        fixture_close(&f);
    }
    free(out);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed_qwpb");
    TCase *tcase = tcase_create("feed_qwpb");
    tcase_set_timeout(tcase, 120);
    tcase_add_test(tcase, qwpb_rows_of_all_types);
    tcase_add_test(tcase, qwpb_header_is_checked);
    tcase_add_test(tcase, qwpb_mistakes_are_told_with_their_place);
    tcase_add_test(tcase, qwpb_bad_names_make_bad_rows);
    tcase_add_test(tcase, qwpb_every_cut_is_noticed);
    tcase_add_test(tcase, qwpb_damage_is_harmless);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

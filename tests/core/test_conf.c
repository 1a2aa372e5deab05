/* Aim: every key of the connect string is read as documented, every mistake is named, and no secret
 * is ever shown. Method: tables of strings with the words that the error must hold. */
#include "core/conf/qwp_conf.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"

#define MS INT64_C(1000000)

static struct qwp_conf conf;

static void parse(const char *text)
{
    struct qwp_error err = {0};
    qwp_conf_fini(&conf);
    const enum qwp_result result = qwp_conf_parse(&conf, text, &err);
    ck_assert_msg(result == QWP_OK, "'%s': %s", text, err.text);
}

static void expect_invalid(const char *text, const char *words)
{
    struct qwp_conf untouched;
    memset(&untouched, 0x5a, sizeof untouched);
    struct qwp_conf before = untouched;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_conf_parse(&untouched, text, &err);
    ck_assert_msg(result == QWP_INVALID, "'%s' gave %s", text, qwp_result_name(result));
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' gave '%s', which does not say '%s'", text,
                  err.text, words);
    ck_assert_msg(strstr(err.text, "s3cret") == NULL, "'%s' shows a secret: '%s'", text, err.text);
    ck_assert_mem_eq(&before, &untouched, sizeof before);
}

/* A file with `text`, removed by the caller. */
static char *make_file(const char *text, size_t len)
{
    static char path[64];
    strcpy(path, "/tmp/qwp-test-conf-XXXXXX");
    const int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    close(fd);
    return path;
}

static void teardown(void)
{
    qwp_conf_fini(&conf);
}

START_TEST(conf_minimal_has_documented_defaults)
{
    parse("ws::addr=localhost;");
    ck_assert(!conf.tls);
    ck_assert_uint_eq(conf.endpoints.count, 1);
    ck_assert_str_eq(conf.endpoints.list[0].host, "localhost");
    ck_assert_uint_eq(conf.endpoints.list[0].port, 9000);
    ck_assert_ptr_null(conf.authorization);
    ck_assert_uint_eq(conf.tls_verify, QWP_TLS_VERIFY_ON);
    ck_assert_ptr_null(conf.tls_roots);
    ck_assert_int_eq(conf.connect_timeout_ns, QWP_NEVER_NS);
    ck_assert_int_eq(conf.auth_timeout_ns, 15000 * MS);
    ck_assert_uint_eq(conf.flush_rows_max, 0);
    ck_assert_uint_eq(conf.flush_bytes_max, 0);
    ck_assert_int_eq(conf.flush_wait_ns_max, 0);
    ck_assert_ptr_null(conf.sf_dir);
    ck_assert_str_eq(conf.sender_id, "default");
    ck_assert_uint_eq(conf.sf_segment_bytes, 4 << 20);
    ck_assert_uint_eq(conf.sf_total_bytes_max, 128 << 20);
    ck_assert_uint_eq(conf.sf_durability, QWP_DURABILITY_MEMORY);
    ck_assert_int_eq(conf.sf_sync_interval_ns, 5000 * MS);
    ck_assert_int_eq(conf.sf_append_wait_ns_max, 30000 * MS);
    ck_assert(!conf.drain_orphans);
    ck_assert_uint_eq(conf.drainers_max, 4);
    ck_assert_int_eq(conf.backoff_ns_min, 100 * MS);
    ck_assert_int_eq(conf.backoff_ns_max, 5000 * MS);
    ck_assert_uint_eq(conf.first_connect, QWP_FIRST_CONNECT_ASYNC);
    ck_assert_int_eq(conf.first_connect_ns_max, 300000 * MS);
    ck_assert_int_eq(conf.close_flush_ns_max, 60000 * MS);
    ck_assert(!conf.durable_ack);
    ck_assert_int_eq(conf.durable_ack_keepalive_ns, 200 * MS);
    ck_assert_uint_eq(conf.frame_rejections_max, 4);
    ck_assert_int_eq(conf.poison_window_ns_min, 5000 * MS);
    ck_assert_uint_eq(conf.on_schema_error, QWP_ON_ERROR_AUTO);
    ck_assert_uint_eq(conf.on_write_error, QWP_ON_ERROR_AUTO);
    ck_assert_uint_eq(conf.ignored_count, 0);
}
END_TEST

START_TEST(conf_every_key_is_read)
{
    parse("wss::addr=a:1,b;addr=[::1]:9001;tls_roots=/ca.p12;tls_roots_password=s3cret;"
          "connect_timeout=7;auth_timeout_ms=8;auto_flush_rows=9;auto_flush_bytes=10k;"
          "auto_flush_interval=11;sf_dir=/sf;sender_id=me;sf_max_segment_bytes=64kb;"
          "sf_max_total_bytes=1gb;sf_durability=periodic;sf_sync_interval_millis=12;"
          "sf_append_deadline_millis=13;drain_orphans=on;max_background_drainers=14;"
          "reconnect_initial_backoff_millis=15;reconnect_max_backoff_millis=16;"
          "reconnect_max_duration_millis=17;initial_connect_retry=sync;"
          "close_flush_timeout_millis=18;request_durable_ack=on;"
          "durable_ack_keepalive_interval_millis=19;max_frame_rejections=20;"
          "poison_min_escalation_window_millis=21;on_schema_error=retriable;"
          "on_server_error=terminal;on_write_error=retriable_other");
    ck_assert(conf.tls);
    ck_assert_uint_eq(conf.endpoints.count, 3);
    ck_assert_str_eq(conf.endpoints.list[0].host, "a");
    ck_assert_uint_eq(conf.endpoints.list[0].port, 1);
    ck_assert_str_eq(conf.endpoints.list[1].host, "b");
    ck_assert_str_eq(conf.endpoints.list[2].host, "::1");
    ck_assert_uint_eq(conf.endpoints.list[2].port, 9001);
    ck_assert_str_eq(conf.tls_roots, "/ca.p12");
    ck_assert_str_eq(conf.tls_roots_password, "s3cret");
    ck_assert_int_eq(conf.connect_timeout_ns, 7 * MS);
    ck_assert_int_eq(conf.auth_timeout_ns, 8 * MS);
    ck_assert_uint_eq(conf.flush_rows_max, 9);
    ck_assert_uint_eq(conf.flush_bytes_max, 10240);
    ck_assert_int_eq(conf.flush_wait_ns_max, 11 * MS);
    ck_assert_str_eq(conf.sf_dir, "/sf");
    ck_assert_str_eq(conf.sender_id, "me");
    ck_assert_uint_eq(conf.sf_segment_bytes, 64 << 10);
    ck_assert_uint_eq(conf.sf_total_bytes_max, 1 << 30);
    ck_assert_uint_eq(conf.sf_durability, QWP_DURABILITY_PERIODIC);
    ck_assert_int_eq(conf.sf_sync_interval_ns, 12 * MS);
    ck_assert_int_eq(conf.sf_append_wait_ns_max, 13 * MS);
    ck_assert(conf.drain_orphans);
    ck_assert_uint_eq(conf.drainers_max, 14);
    ck_assert_int_eq(conf.backoff_ns_min, 15 * MS);
    ck_assert_int_eq(conf.backoff_ns_max, 16 * MS);
    ck_assert_int_eq(conf.first_connect_ns_max, 17 * MS);
    ck_assert_uint_eq(conf.first_connect, QWP_FIRST_CONNECT_SYNC);
    ck_assert_int_eq(conf.close_flush_ns_max, 18 * MS);
    ck_assert(conf.durable_ack);
    ck_assert_int_eq(conf.durable_ack_keepalive_ns, 19 * MS);
    ck_assert_uint_eq(conf.frame_rejections_max, 20);
    ck_assert_int_eq(conf.poison_window_ns_min, 21 * MS);
    ck_assert_uint_eq(conf.on_schema_error, QWP_ON_ERROR_RETRIABLE);
    ck_assert_uint_eq(conf.on_parse_error, QWP_ON_ERROR_TERMINAL);
    ck_assert_uint_eq(conf.on_internal_error, QWP_ON_ERROR_TERMINAL);
    ck_assert_uint_eq(conf.on_security_error, QWP_ON_ERROR_TERMINAL);
    ck_assert_uint_eq(conf.on_write_error, QWP_ON_ERROR_RETRIABLE_OTHER);
}
END_TEST

START_TEST(conf_default_of_the_total_follows_sf_dir)
{
    parse("ws::addr=a;sf_dir=/sf;");
    ck_assert_uint_eq(conf.sf_total_bytes_max, UINT64_C(10) << 30);
    parse("ws::addr=a;sf_max_bytes=8M;sf_max_total_bytes=16MB;");
    ck_assert_uint_eq(conf.sf_segment_bytes, 8 << 20);
    ck_assert_uint_eq(conf.sf_total_bytes_max, 16 << 20);
}
END_TEST

START_TEST(conf_credentials_become_a_header)
{
    parse("ws::addr=a;username=Aladdin;password=open sesame;");
    ck_assert_str_eq(conf.authorization, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    parse("ws::addr=a;user=u;pass=p;");
    ck_assert_str_eq(conf.authorization, "Basic dTpw");
    parse("ws::addr=a;user=u;pass=pä;");
    ck_assert_str_eq(conf.authorization, "Basic dTpww6Q=");
    parse("ws::addr=a;token=abc.def-123;");
    ck_assert_str_eq(conf.authorization, "Bearer abc.def-123");
}
END_TEST

START_TEST(conf_double_semicolon_is_one_in_a_value)
{
    parse("ws::addr=a;user=u;pass=x;;y;;;sender_id=z");
    ck_assert_str_eq(conf.credentials.password, "x;y;");
    ck_assert_str_eq(conf.sender_id, "z");
    parse("ws::addr=a;user=u;pass=a=b==;;");
    ck_assert_str_eq(conf.credentials.password, "a=b==;");
}
END_TEST

START_TEST(conf_numbers_take_off_none_and_minus_one_where_documented)
{
    parse("ws::addr=a;auto_flush_rows=off;auto_flush_bytes=off;auto_flush_interval=off;"
          "connect_timeout=none;close_flush_timeout_millis=-1;"
          "durable_ack_keepalive_interval_millis=0;initial_connect_retry=false;"
          "request_durable_ack=true;drain_orphans=false");
    ck_assert_uint_eq(conf.flush_rows_max, 0);
    ck_assert_int_eq(conf.connect_timeout_ns, QWP_NEVER_NS);
    ck_assert_int_eq(conf.close_flush_ns_max, 0);
    ck_assert_int_eq(conf.durable_ack_keepalive_ns, 0);
    ck_assert_uint_eq(conf.first_connect, QWP_FIRST_CONNECT_OFF);
    ck_assert(conf.durable_ack);
    parse("ws::addr=a;reconnect_max_backoff_millis=50;");
    ck_assert_int_eq(conf.backoff_ns_min, 50 * MS);
}
END_TEST

START_TEST(conf_keys_without_meaning_are_collected)
{
    parse("ws::addr=a;zone=z;auto_flush=on;max_name_len=127;sender_pool_max=4;target=any;"
          "transaction=on;error_inbox_capacity=64;init_buf_size=1;max_buf_size=2;");
    ck_assert_uint_eq(conf.ignored_count, 9);
    ck_assert_str_eq(conf.ignored[0], "zone");
    ck_assert_str_eq(conf.ignored[8], "max_buf_size");
}
END_TEST

START_TEST(conf_grammar_mistakes_are_named)
{
    static const char *const cases[][2] = {
        {"", "schema"},
        {"addr=localhost:9000", "schema"},
        {"s3cret", "schema"},
        {"http::addr=a;", "schema 'http'"},
        {"WS::addr=a;", "schema 'WS'"},
        {"ws:addr=a", "schema"},
        {"ws::", "addr: is missing"},
        {"ws::;addr=a", "without '='"},
        {"ws::addr", "without '='"},
        {"ws::=a", "no key"},
        {"ws::addr=", "addr: has no value"},
        {"ws::addr=a;user=;pass=x", "username: has no value"},
        {"ws::addr=a;bogus=1", "bogus: unknown key"},
        {"ws::addr=a;Token=s3cret", "'Token' is no key"},
        {"ws::addr=a; zone=z", "no key"},
        {"ws::addr=a;sender_id=a;sender_id=b", "sender_id: given twice"},
        {"ws::addr=a;user=a;username=b", "username: given twice"},
        {"ws::addr=a;zone=a;zone=b", "zone: given twice"},
        {"ws::addr=a;pass=x\ny", "control character at byte 17"},
        {"ws::addr=a;pass=x\x7f", "control character"},
        {"ws::addr=a;pass=x\xc2\x85", "control character"},
        {"ws::addr=a;pass=x\xff", "UTF-8"},
        {"ws::addr=a;user=u;pass=x;S3cret=y", "unknown key behind 'password'"},
        {"ws::addr=a;user=u;pass=x;s3cret", "without '=' behind 'password'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_invalid(cases[i][0], cases[i][1]);
    }
}
END_TEST

START_TEST(conf_addr_mistakes_are_named)
{
    static const char *const cases[][2] = {
        {"ws::addr=a,,b", "addr: holds an empty entry"},
        {"ws::addr=,", "addr: holds an empty entry"},
        {"ws::addr=a,", "addr: holds an empty entry"},
        {"ws::addr=a:9000,A", "addr: 'A' with port 9000 is given twice"},
        {"ws::addr=a;addr=a:9000", "given twice"},
        {"ws::addr=a:", "no port"},
        {"ws::addr=a:0", "no port"},
        {"ws::addr=a:65536", "no port"},
        {"ws::addr=a:9000000000000000000000", "no port"},
        {"ws::addr=a:http", "no port"},
        {"ws::addr=::1", "several ':'"},
        {"ws::addr=[::1", "closing ']'"},
        {"ws::addr=[::1]9000", "no port"},
        {"ws::addr=[localhost]", "no host name"},
        {"ws::addr=[]", "no host name"},
        {"ws::addr=:9000", "no host name"},
        {"ws::addr=a b", "no host name"},
        {"ws::addr= a", "no host name"},
        {"ws::addr=a/path", "no host name"},
        {"ws::addr=u:s3cret@host", "addr: holds an '@'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        expect_invalid(cases[i][0], cases[i][1]);
    }
    parse("ws::addr=[fe80::1%eth0]:1,127.0.0.1,host-1.example_x.org:65535");
    ck_assert_str_eq(conf.endpoints.list[0].host, "fe80::1%eth0");
}
END_TEST

START_TEST(conf_value_mistakes_are_named)
{
    static const char *const cases[][2] = {
        {"connect_timeout=0", "connect_timeout: expected a value from 1"},
        {"connect_timeout=-1", "connect_timeout: expected a whole number of milliseconds"},
        {"connect_timeout=1s", "found '1s'"},
        {"auth_timeout_ms=0", "auth_timeout_ms: expected a value from 1"},
        {"auth_timeout_ms=off", "auth_timeout_ms:"},
        {"auth_timeout_ms=99999999999999999999", "auth_timeout_ms:"},
        {"auth_timeout_ms=9223372036855", "auth_timeout_ms: expected a value from 1"},
        {"auto_flush_rows=0", "auto_flush_rows: expected a value from 1"},
        {"auto_flush_rows=1k", "auto_flush_rows: expected a whole number"},
        {"auto_flush_bytes=1x", "auto_flush_bytes: expected a size"},
        {"auto_flush_bytes=k", "auto_flush_bytes: expected a size"},
        {"auto_flush_bytes=1kib", "auto_flush_bytes: expected a size"},
        {"auto_flush_bytes=18446744073709551615t", "auto_flush_bytes: expected a size"},
        {"auto_flush_interval=x", "auto_flush_interval:"},
        {"sf_max_segment_bytes=100", "sf_max_segment_bytes: expected a value from 4096"},
        {"sf_max_segment_bytes=2g", "sf_max_segment_bytes: expected a value"},
        {"sf_max_total_bytes=4m", "sf_max_total_bytes: 4194304 bytes hold fewer than two"},
        {"sf_durability=append", "sf_durability: expected one of memory, periodic, found 'append'"},
        {"sf_sync_interval_millis=0", "sf_sync_interval_millis:"},
        {"sf_append_deadline_millis=-1", "sf_append_deadline_millis:"},
        {"drain_orphans=yes", "drain_orphans: expected on or off, found 'yes'"},
        {"max_background_drainers=2000", "max_background_drainers:"},
        {"reconnect_initial_backoff_millis=0", "reconnect_initial_backoff_millis:"},
        {"reconnect_initial_backoff_millis=9000", "larger than reconnect_max_backoff_millis"},
        {"reconnect_max_backoff_millis=x", "reconnect_max_backoff_millis:"},
        {"reconnect_max_duration_millis=x", "reconnect_max_duration_millis:"},
        {"initial_connect_retry=maybe", "initial_connect_retry: expected one of async"},
        {"close_flush_timeout_millis=-2", "close_flush_timeout_millis:"},
        {"request_durable_ack=1", "request_durable_ack:"},
        {"durable_ack_keepalive_interval_millis=x", "durable_ack_keepalive_interval_millis:"},
        {"max_frame_rejections=0", "max_frame_rejections:"},
        {"poison_min_escalation_window_millis=x", "poison_min_escalation_window_millis:"},
        {"on_server_error=stop", "on_server_error: expected one of auto, terminal"},
        {"on_schema_error=x", "on_schema_error:"},
        {"on_parse_error=x", "on_parse_error:"},
        {"on_internal_error=x", "on_internal_error:"},
        {"on_security_error=x", "on_security_error:"},
        {"on_write_error=x", "on_write_error:"},
        {"sender_id=a/b", "sender_id: 'a/b' cannot"},
        {"sender_id=a\\b", "sender_id:"},
        {"sender_id=..", "sender_id:"},
        {"tls_verify=off", "tls_verify: expected one of on, unsafe_off, found 'off'"},
        {"tls_verify=unsafe_off;tls_roots=/x", "tls_roots:"},
        {"tls_roots_password=s3cret", "tls_roots_password: is given without tls_roots"},
        {"tls_roots=/x;tls_roots_password=s3cret;tls_roots_password_file=/y", "keep one"},
        {"username=u", "without a password"},
        {"password=s3cret", "without a username"},
        {"username=u;password=s3cret;token=s3cret", "keep one kind"},
        {"token=s3cret;token_file=/x", "token and token_file"},
        {"username=u;password=s3cret;password_file=/x", "password and password_file"},
        {"username=a:b;password=s3cret", "username: holds a ':'"},
        {"token=s3cret token", "token: byte 6"},
        {"token=s3crét", "token: byte 4"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "wss::addr=a;%s;", cases[i][0]);
        expect_invalid(text, cases[i][1]);
    }
}
END_TEST

START_TEST(conf_tls_keys_without_tls_are_refused)
{
    expect_invalid("ws::addr=a;tls_roots=/x;", "tls_roots: has a meaning with the schema wss");
    expect_invalid("ws::addr=a;tls_verify=unsafe_off;", "tls_verify: has a meaning");
    expect_invalid("ws::addr=a;tls_roots_password=s3cret;", "tls_roots_password: has a meaning");
    parse("ws::addr=a;tls_verify=on;"); /* the default said aloud */
    parse("wss::addr=a;tls_verify=unsafe_off;");
    ck_assert_uint_eq(conf.tls_verify, QWP_TLS_VERIFY_UNSAFE_OFF);
}
END_TEST

START_TEST(conf_secret_files_are_read_and_read_again)
{
    char *path = make_file("s3cret-1\r\n", 10);
    char text[160];
    snprintf(text, sizeof text, "ws::addr=a;token_file=%s;", path);
    parse(text);
    ck_assert_str_eq(conf.authorization, "Bearer s3cret-1");

    FILE *again = fopen(path, "w");
    fputs("s3cret-2", again);
    fclose(again);
    char *renewed = NULL;
    ck_assert_int_eq(qwp_credentials_authorization(&conf.credentials, &renewed, NULL), QWP_OK);
    ck_assert_str_eq(renewed, "Bearer s3cret-2");
    qwp_secret_free(renewed);

    snprintf(text, sizeof text, "ws::addr=a;user=u;password_file=%s;", path);
    parse(text);
    ck_assert_str_eq(conf.authorization, "Basic dTpzM2NyZXQtMg==");
    snprintf(text, sizeof text, "wss::addr=a;tls_roots=/x;tls_roots_password_file=%s;", path);
    parse(text);
    ck_assert_str_eq(conf.tls_roots_password, "s3cret-2");
    unlink(path);
}
END_TEST

START_TEST(conf_bad_secret_files_are_named)
{
    static const struct {
        const char *content;
        size_t len;
        const char *words;
    } cases[] = {
        {"", 0, "is empty"},
        {"\n", 1, "is empty"},
        {"s3cret\nx\n", 9, "control character at byte 6"},
        {"s3cret\0x", 8, "control character at byte 6"},
        {"s3cret x", 8, "token_file: byte 6"},
    };
    char text[160];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *path = make_file(cases[i].content, cases[i].len);
        snprintf(text, sizeof text, "ws::addr=a;token_file=%s;", path);
        expect_invalid(text, cases[i].words);
        unlink(path);
    }
    char *large = calloc(1, QWP_SECRET_FILE_BYTES_MAX + 1);
    memset(large, 'x', QWP_SECRET_FILE_BYTES_MAX + 1);
    char *path = make_file(large, QWP_SECRET_FILE_BYTES_MAX + 1);
    free(large);
    snprintf(text, sizeof text, "ws::addr=a;token_file=%s;", path);
    expect_invalid(text, "larger than");
    unlink(path);

    struct qwp_error err = {0};
    ck_assert_int_eq(qwp_conf_parse(&conf, text, &err), QWP_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "token_file: cannot open '/tmp/qwp-test-conf-"));
}
END_TEST

START_TEST(conf_file_takes_lines_and_comments)
{
    static const char lines[] = "# where to\n"
                                "  wss::\n"
                                "addr=a:1,b:2\n"
                                "\n"
                                "\taddr=c\r\n"
                                "user=u;  \n"
                                "pass=x;;\n"
                                "# sender_id=no\n"
                                "zone=#1;sender_id=yes";
    char *path = make_file(lines, sizeof lines - 1);
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_conf_parse_file(&conf, path, &err);
    unlink(path);
    ck_assert_msg(result == QWP_OK, "%s", err.text);
    ck_assert(conf.tls);
    ck_assert_uint_eq(conf.endpoints.count, 3);
    ck_assert_str_eq(conf.credentials.password, "x;");
    ck_assert_str_eq(conf.sender_id, "yes");

    path = make_file("ws::addr=a;\nbogus=1\n", 20);
    struct qwp_conf other;
    ck_assert_int_eq(qwp_conf_parse_file(&other, path, &err), QWP_INVALID);
    unlink(path);
    ck_assert_ptr_nonnull(strstr(err.text, "bogus: unknown key"));
    ck_assert_ptr_nonnull(strstr(err.text, path));
    path = make_file("ws::addr=a;\0token=x", 19);
    ck_assert_int_eq(qwp_conf_parse_file(&other, path, &err), QWP_INVALID);
    unlink(path);
    ck_assert_int_eq(qwp_conf_parse_file(&other, path, &err), QWP_IO);
}
END_TEST

START_TEST(conf_comes_from_one_of_three_places)
{
    struct qwp_error err = {0};
    unsetenv(QWP_CONF_ENV);
    ck_assert_int_eq(qwp_conf_load(&conf, NULL, NULL, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "QDB_CLIENT_CONF"));
    ck_assert_int_eq(qwp_conf_load(&conf, "ws::addr=a", "/x", &err), QWP_INVALID);
    setenv(QWP_CONF_ENV, "ws::addr=env;", 1);
    ck_assert_int_eq(qwp_conf_load(&conf, NULL, NULL, &err), QWP_OK);
    ck_assert_str_eq(conf.endpoints.list[0].host, "env");
    qwp_conf_fini(&conf);
    ck_assert_int_eq(qwp_conf_load(&conf, "ws::addr=arg;", NULL, &err), QWP_OK);
    ck_assert_str_eq(conf.endpoints.list[0].host, "arg");
    setenv(QWP_CONF_ENV, "ws::bogus=1;", 1);
    struct qwp_conf other;
    ck_assert_int_eq(qwp_conf_load(&other, NULL, NULL, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "QDB_CLIENT_CONF: bogus"));
    unsetenv(QWP_CONF_ENV);
}
END_TEST

START_TEST(conf_reference_lists_every_key_with_its_default)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    qwp_conf_describe(out);
    fclose(out);
    static const char *const words[] = {"addr=HOST", "[15000]",         "sf_max_total_bytes=SIZE",
                                        "[4m]",      "token_file=FILE", "memory|periodic"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        ck_assert_msg(strstr(text, words[i]) != NULL, "no '%s'", words[i]);
    }
    ck_assert_ptr_null(strstr(text, "zone"));
    free(text);
}
END_TEST

/* Every prefix of a full string is either parsed or refused with a text, and leaks nothing. */
START_TEST(conf_cut_anywhere_is_safe)
{
    static const char full[] = "wss::addr=a:1,[::1]:2;user=u;pass=s3cret;;x;tls_roots=/r;"
                               "connect_timeout=10;sf_dir=/d;on_parse_error=terminal;zone=z;";
    for (size_t cut = 0; cut < sizeof full; cut++) {
        char text[sizeof full];
        memcpy(text, full, cut);
        text[cut] = '\0';
        struct qwp_conf other = {0};
        struct qwp_error err = {0};
        if (qwp_conf_parse(&other, text, &err) != QWP_OK) {
            ck_assert_uint_gt(strlen(err.text), 0);
            ck_assert_ptr_null(strstr(err.text, "s3cret"));
        }
        qwp_conf_fini(&other);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("conf");
    TCase *tcase = tcase_create("conf");
    tcase_add_checked_fixture(tcase, NULL, teardown);
    tcase_add_test(tcase, conf_minimal_has_documented_defaults);
    tcase_add_test(tcase, conf_every_key_is_read);
    tcase_add_test(tcase, conf_default_of_the_total_follows_sf_dir);
    tcase_add_test(tcase, conf_credentials_become_a_header);
    tcase_add_test(tcase, conf_double_semicolon_is_one_in_a_value);
    tcase_add_test(tcase, conf_numbers_take_off_none_and_minus_one_where_documented);
    tcase_add_test(tcase, conf_keys_without_meaning_are_collected);
    tcase_add_test(tcase, conf_grammar_mistakes_are_named);
    tcase_add_test(tcase, conf_addr_mistakes_are_named);
    tcase_add_test(tcase, conf_value_mistakes_are_named);
    tcase_add_test(tcase, conf_tls_keys_without_tls_are_refused);
    tcase_add_test(tcase, conf_secret_files_are_read_and_read_again);
    tcase_add_test(tcase, conf_bad_secret_files_are_named);
    tcase_add_test(tcase, conf_file_takes_lines_and_comments);
    tcase_add_test(tcase, conf_comes_from_one_of_three_places);
    tcase_add_test(tcase, conf_reference_lists_every_key_with_its_default);
    tcase_add_test(tcase, conf_cut_anywhere_is_safe);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

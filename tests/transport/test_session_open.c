/* Aim: a session opens to the server that is meant and trusted, and to no other, and tells what was
 * wrong.
 * Method: as test_session.c. */
#include "transport/qwp_session.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transport/client.h"

/* ---- the upgrade ---- */

static void script_headers(struct peer *peer)
{
    PEER_CHECK(peer, peer_read_request(peer));
    PEER_CHECK(peer, strncmp(peer->request, "GET /write/v4 HTTP/1.1\r\n", 24) == 0);
    PEER_CHECK(peer, strcmp(peer_header(peer, "X-QWP-Max-Version"), "1") == 0);
    PEER_CHECK(peer, strcmp(peer_header(peer, "X-QWP-Client-Id"), "test/1") == 0);
    PEER_CHECK(peer, strcmp(peer_header(peer, "Authorization"), "Bearer token") == 0);
    PEER_CHECK(peer, strcmp(peer_header(peer, "X-QWP-Request-Durable-Ack"), "true") == 0);
    PEER_CHECK(peer, strcmp(peer_header(peer, "Sec-WebSocket-Version"), "13") == 0);
    char host[64];
    snprintf(host, sizeof host, "localhost:%u", peer->port);
    PEER_CHECK(peer, strcmp(peer_header(peer, "Host"), host) == 0);
    /* An answer and a ping in the same bytes as the 101. */
    unsigned char more[64];
    const unsigned char durable[] = {2, 2, 0, 1,   0,   'a', 9, 0, 0, 0, 0, 0, 0,
                                     0, 2, 0, 'b', 'c', 8,   0, 0, 0, 0, 0, 0, 0};
    size_t n = peer_frame(more, 0x82, durable, sizeof durable);
    n += peer_frame(more + n, 0x89, "hi", 2);
    PEER_CHECK(peer,
               peer_accept(peer, "X-QWP-Version: 1\r\nX-QWP-Durable-Ack: enabled\r\n", more, n));
    unsigned opcode;
    unsigned char payload[128];
    size_t len;
    PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    PEER_CHECK(peer, opcode == 0xa && len == 2 && memcmp(payload, "hi", 2) == 0);
    peer->value = 1;
    peer_end(peer);
}

START_TEST(session_bytes_with_the_101_are_kept)
{
    struct peer peer = {.script = script_headers};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.authorization = "Bearer token";
    c.options.durable_ack = true;
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_CLOSED);
    ck_assert_int_eq(c.ups, 1);
    ck_assert_int_eq(c.durables, 1);
    ck_assert_uint_eq(c.message_max, QWP_MESSAGE_BYTES_DEFAULT);
    ck_assert_uint_eq(peer.value, 1);
    finish(&c, &peer);
}
END_TEST

static const struct refusal {
    const char *answer;
    enum qwp_down_cause cause;
    int status;
    const char *role;
} refusals[] = {
    {"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", QWP_DOWN_AUTH, 401, ""},
    {"HTTP/1.1 403 Forbidden\r\n\r\n", QWP_DOWN_AUTH, 403, ""},
    {"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello", QWP_DOWN_HTTP, 404, ""},
    {"HTTP/1.1 426 Upgrade Required\r\n\r\n", QWP_DOWN_HTTP, 426, ""},
    {"HTTP/1.1 503\r\n\r\n", QWP_DOWN_HTTP, 503, ""},
    {"HTTP/1.1 421 Misdirected Request\r\nX-QuestDB-Role: REPLICA\r\n\r\n", QWP_DOWN_ROLE, 421,
     "REPLICA"},
    {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
     "Sec-WebSocket-Accept: AAAAAAAAAAAAAAAAAAAAAAAAAAA=\r\nX-QWP-Version: 1\r\n\r\n",
     QWP_DOWN_PROTOCOL, 0, ""},
    {"SSH-2.0-OpenSSH_9\r\n", QWP_DOWN_PROTOCOL, 0, ""},
    {"", QWP_DOWN_UNREACHABLE, 0, ""},
    {"HTTP/1.1 101 Switch", QWP_DOWN_UNREACHABLE, 0, ""},
};
enum { REFUSALS = sizeof refusals / sizeof refusals[0] };

static void script_refuse(struct peer *peer)
{
    PEER_CHECK(peer, peer_read_request(peer));
    const char *answer = refusals[peer->argument].answer;
    PEER_CHECK(peer, peer_write(peer, answer, strlen(answer)));
    peer_end(peer);
    peer_drain(peer);
}

START_TEST(session_refused_upgrade_tells_the_cause)
{
    const struct refusal *refusal = &refusals[_i % REFUSALS];
    struct peer peer = {.script = script_refuse, .argument = _i % REFUSALS};
    peer_mode(&peer, _i / REFUSALS);
    peer_start(&peer);
    struct client c = {0};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, refusal->cause);
    ck_assert_int_eq(c.ups, 0);
    ck_assert(!c.down.was_up);
    ck_assert_int_eq(c.down.http_status, refusal->status);
    ck_assert_str_eq(c.down.role, refusal->role);
    finish(&c, &peer);
}
END_TEST

static void script_version(struct peer *peer)
{
    PEER_CHECK(peer, peer_read_request(peer));
    static const char *const extras[] = {"X-QWP-Version: 2\r\n", "", "X-QWP-Version: 1\r\n"};
    PEER_CHECK(peer, peer_accept(peer, extras[peer->argument], NULL, 0));
    peer_drain(peer);
}

START_TEST(session_version_and_durable_echo_are_required)
{
    static const enum qwp_down_cause causes[] = {QWP_DOWN_VERSION, QWP_DOWN_VERSION,
                                                 QWP_DOWN_DURABLE};
    struct peer peer = {.script = script_version, .argument = _i};
    peer_start(&peer);
    struct client c = {0};
    c.options.durable_ack = true;
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, causes[_i]);
    ck_assert_int_eq(c.ups, 0);
    finish(&c, &peer);
}
END_TEST

/* ---- TLS ---- */

static void script_never(struct peer *peer)
{
    if (peer_read_request(peer)) {
        peer_fail(peer, "the request reached a server that is not trusted");
    }
}

START_TEST(session_untrusted_server_is_refused)
{
    static const struct {
        const char *cert;
        const char *roots;
        const char *password;
        const char *host;
        const char *text;
    } cases[] = {
        {"localhost.pem", "other-ca.pem", NULL, "localhost", "tls_roots"},
        {"elsewhere.pem", "ca.pem", NULL, "localhost", "ostname mismatch"},
        {"localhost.pem", "ca.pem", NULL, "localhost.example", "ostname mismatch"},
        {"localhost.pem", "ca.pem", NULL, "127.0.0.2", "IP address mismatch"},
    };
    struct peer peer = {.script = script_never};
    peer_mode(&peer, 1 + _i % 2);
    peer.cert_path = cert_path(cases[_i / 2].cert);
    peer_start(&peer);
    struct client c = {0};
    c.options.tls_verify = true;
    c.options.tls_roots = cert_path(cases[_i / 2].roots);
    client_open(&c, &peer);
    c.host = cases[_i / 2].host;
    client_connect(&c);
    RUN_UNTIL(&c, c.downs == 1);
    ck_assert_int_eq(c.down.cause, QWP_DOWN_TLS);
    ck_assert_msg(strstr(c.down.error.text, cases[_i / 2].text) != NULL, "%s", c.down.error.text);
    finish(&c, &peer);
}
END_TEST

static void script_welcome(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    peer->value++;
    peer_drain(peer);
    peer_end(peer);
}

START_TEST(session_trusted_server_is_accepted)
{
    static const struct {
        const char *cert;
        const char *roots;
        const char *password;
        const char *host;
        bool verify;
    } cases[] = {
        {"localhost.pem", "ca.pem", NULL, "localhost", true},
        {"localhost.pem", "ca.pem", NULL, "localhost.", true},
        {"localhost.pem", "ca.pem", NULL, "127.0.0.1", true},
        {"localhost.pem", "ca.p12", "secret", "localhost", true},
        {"elsewhere.pem", "other-ca.pem", NULL, "localhost", false},
    };
    struct peer peer = {.script = script_welcome};
    peer_mode(&peer, 1 + _i % 2);
    peer.cert_path = cert_path(cases[_i / 2].cert);
    peer_start(&peer);
    struct client c = {0};
    c.options.tls_verify = cases[_i / 2].verify;
    c.options.tls_roots = cert_path(cases[_i / 2].roots);
    c.options.tls_roots_password = cases[_i / 2].password;
    client_open(&c, &peer);
    c.host = cases[_i / 2].host;
    client_connect(&c);
    RUN_UNTIL(&c, c.ups + c.downs > 0);
    ck_assert_msg(c.ups == 1, "%s", c.down.error.text);
    finish(&c, &peer);
}
END_TEST

START_TEST(session_bad_roots_are_an_error_that_names_the_file)
{
    static const struct {
        const char *roots;
        const char *password;
    } cases[] = {{"absent.pem", NULL},
                 {"ca.p12", NULL},
                 {"ca.pem", "secret"},
                 {"ca.p12", "wrong"},
                 {"absent.p12", "wrong"}};
    struct qwp_loop *loop;
    const struct qwp_loop_options loop_options = {0};
    ck_assert_int_eq(qwp_loop_open(&loop, &loop_options, NULL), QWP_OK);
    const struct qwp_session_options options = {
        .loop = loop,
        .tls = true,
        .tls_verify = true,
        .tls_roots = cert_path(cases[_i].roots),
        .tls_roots_password = cases[_i].password,
    };
    struct qwp_session *session = NULL;
    struct qwp_error err = {0};
    ck_assert_int_ne(qwp_session_open(&session, &options, &err), QWP_OK);
    ck_assert_ptr_nonnull(strstr(err.text, cases[_i].roots));
    ck_assert_ptr_null(session);
    qwp_loop_close(loop);
}
END_TEST

static void copy_file(const char *from, const char *to)
{
    static char bytes[64 * 1024];
    FILE *in = fopen(from, "re");
    ck_assert_ptr_nonnull(in);
    const size_t len = fread(bytes, 1, sizeof bytes, in);
    fclose(in);
    FILE *out = fopen(to, "we");
    ck_assert_ptr_nonnull(out);
    ck_assert_uint_eq(fwrite(bytes, 1, len, out), len);
    fclose(out);
}

static void connect_again(struct client *c)
{
    c->ups = c->downs = 0;
    client_connect(c);
    RUN_UNTIL(c, c->ups + c->downs > 0);
}

/* The operator mends the file of certificates: the next connection takes it. One that makes no
 * sense leaves those before in force. */
START_TEST(session_roots_read_again_are_for_the_next_connection)
{
    static const struct {
        const char *wrong, *right, *password;
    } cases[] = {{"other-ca.pem", "ca.pem", NULL}, {"ca.p12", "ca.p12", "secret"}};
    const char *path = cert_path("reloaded");
    struct peer peer = {.script = script_welcome};
    peer_mode(&peer, 1);
    peer_start(&peer);
    copy_file(cert_path(cases[_i].wrong), path);
    struct client c = {0};
    c.options.tls_verify = true;
    c.options.tls_roots = path;
    c.options.tls_roots_password = cases[_i].password;
    client_open(&c, &peer);
    connect_again(&c);
    ck_assert_int_eq(c.ups, _i == 0 ? 0 : 1);
    copy_file(cert_path(cases[_i].right), path);
    struct qwp_error err;
    ck_assert_int_eq(qwp_session_reload_tls(c.session, &err), QWP_OK);
    if (_i == 0) {
        ck_assert_int_eq(c.down.cause, QWP_DOWN_TLS);
        connect_again(&c);
        ck_assert_int_eq(c.ups, 1);
    }
    copy_file("/dev/null", path);
    ck_assert_int_eq(qwp_session_reload_tls(c.session, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, path));
    ck_assert_int_eq(c.downs, 0); /* the one that is up goes on */
    qwp_session_disconnect(c.session, (int64_t)DEADLINE_S * QWP_NS_PER_S);
    RUN_UNTIL(&c, c.downs == 1);
    connect_again(&c);
    ck_assert_int_eq(c.ups, 1);
    finish(&c, &peer);
    remove(path);
}
END_TEST

/* Speaks plain HTTP where TLS is expected, garbage, or nothing. */
static void script_no_tls(struct peer *peer)
{
    static const char *const words[] = {"HTTP/1.1 400 Bad Request\r\n\r\n", "", "\x15\x03\x03"};
    PEER_CHECK(peer, peer_write(peer, words[peer->argument], strlen(words[peer->argument])));
    peer_end(peer);
    peer_drain(peer);
}

START_TEST(session_no_tls_where_expected_goes_down)
{
    struct peer peer = {.script = script_no_tls, .argument = _i};
    peer_start(&peer);
    struct client c = {.options.tls = true};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_TLS);
    finish(&c, &peer);
}
END_TEST

int main(void)
{
    client_make_certificates();
    Suite *suite = suite_create("session_open");
    TCase *tc = tcase_create("session_open");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, session_bytes_with_the_101_are_kept, 0, MODES);
    tcase_add_loop_test(tc, session_refused_upgrade_tells_the_cause, 0, 2 * REFUSALS);
    tcase_add_loop_test(tc, session_version_and_durable_echo_are_required, 0, 3);
    tcase_add_loop_test(tc, session_untrusted_server_is_refused, 0, 8);
    tcase_add_loop_test(tc, session_trusted_server_is_accepted, 0, 10);
    tcase_add_loop_test(tc, session_bad_roots_are_an_error_that_names_the_file, 0, 5);
    tcase_add_loop_test(tc, session_roots_read_again_are_for_the_next_connection, 0, 2);
    tcase_add_loop_test(tc, session_no_tls_where_expected_goes_down, 0, 3);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

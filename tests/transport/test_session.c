/* Aim: a session carries messages and answers whole and in order over ws and wss, and whatever the
 * server does ends in one down() with the right cause, after which the next connect works.
 * Method: a real loop and a scripted server in a thread (peer.h); most cases run plain, with
 * TLS 1.3 and with TLS 1.2 (_i = 0, 1, 2). */
#include "transport/qwp_session.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "tests/transport/client.h"

/* ---- sending and acknowledging ---- */

/* Messages of many sizes, each `argument` times; byte k of message i is checked; an ok for each
 * eighth and for the last. */
static const size_t sizes[] = {1,      2,      3,      125,     126,   127,   1000,  16370,
                               16376,  16384,  16385,  32768,   65535, 65536, 65537, 100000,
                               262144, 278528, 300000, 1048576, 5,     7};
enum { SIZES = sizeof sizes / sizeof sizes[0], BIG = 1048576 + 512 };

static unsigned char pattern[BIG];

static const unsigned char *message_bytes(int64_t i)
{
    return pattern + (i % 251);
}

static void script_count(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned char *buffer = malloc(BIG);
    const int64_t total = (int64_t)SIZES * peer->argument;
    for (int64_t i = 0; i < total; i++) {
        unsigned opcode;
        size_t len;
        if (!peer_read_frame(peer, &opcode, buffer, BIG, &len)) {
            peer_fail(peer, "no frame");
            break;
        }
        if (opcode != 2 || len != sizes[i % SIZES] || memcmp(buffer, message_bytes(i), len) != 0) {
            peer_fail(peer, "a wrong message");
            break;
        }
        if ((i % 8 == 7 || i == total - 1) && !peer_send_ok(peer, i)) {
            peer_fail(peer, "ok not sent");
            break;
        }
    }
    free(buffer);
    peer_drain(peer);
    peer_end(peer);
}

START_TEST(session_carries_messages_of_all_sizes)
{
    struct peer peer = {.script = script_count, .argument = 3};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    ck_assert_uint_eq(c.message_max, 2097138 - 209713);
    for (int64_t i = 0; i < SIZES * 3; i++) {
        ck_assert_int_eq(send_message(&c, message_bytes(i), sizes[i % SIZES]), i);
        if (i % 5 == 0) {
            qwp_loop_run(c.loop, 0);
        }
    }
    RUN_UNTIL(&c, c.ok_sequence == SIZES * 3 - 1);
    ck_assert_int_eq(c.downs, 0);
    qwp_session_disconnect(c.session, (int64_t)DEADLINE_S * QWP_NS_PER_S);
    expect_down(&c, QWP_DOWN_LOCAL);
    ck_assert(c.down.was_up);
    ck_assert_int_eq(c.down.error.delivery, QWP_DELIVERY_NOT_SENT);
    struct qwp_session_counters counters;
    qwp_session_count(c.session, &counters);
    ck_assert_uint_eq(counters.messages_sent, SIZES * 3);
    ck_assert_uint_eq(counters.connects, 1);
    finish(&c, &peer);
}
END_TEST

/* The server reads nothing until the client is known to be blocked. */
static void script_stalled(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    while (peer->value == 0 && !peer->stopping) {
        usleep(1000); /* polls for the client's word, under the test's deadline */
    }
    unsigned char buffer[1024];
    for (int64_t i = 0; i < peer->argument; i++) {
        unsigned opcode;
        size_t len;
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, buffer, sizeof buffer, &len));
        PEER_CHECK(peer, len == sizeof buffer);
        PEER_CHECK(peer, qwp_load_i64(buffer) == i);
    }
    PEER_CHECK(peer, peer_send_ok(peer, peer->argument - 1));
    peer_drain(peer);
}

START_TEST(session_stalled_server_gives_backpressure_then_everything)
{
    enum { N = 40000, LEN = 1024 };
    struct peer peer = {.script = script_stalled, .argument = N};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    unsigned char *messages = calloc(N, LEN);
    int64_t next = 0;
    bool blocked = false;
    while (next < N) {
        qwp_store_i64(messages + next * LEN, next);
        int64_t sequence;
        const enum qwp_result result =
            qwp_session_send(c.session, messages + next * LEN, LEN, &sequence);
        if (result == QWP_OK) {
            ck_assert_int_eq(sequence, next);
            next++;
            continue;
        }
        ck_assert_int_eq(result, QWP_AGAIN);
        const int before = c.writables;
        if (!blocked) {
            /* Pump until the socket itself is full. */
            while (qwp_loop_run(c.loop, qwp_clock_monotonic_ns() + 20 * QWP_NS_PER_MS)) {
                if (c.writables > before) {
                    break;
                }
            }
            if (c.writables > before) {
                continue;
            }
            blocked = true;
            peer.value = 1;
        }
        RUN_UNTIL(&c, c.writables > before);
    }
    ck_assert(blocked);
    RUN_UNTIL(&c, c.ok_sequence == N - 1);
    finish(&c, &peer);
    free(messages);
}
END_TEST

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

/* ---- reading ---- */

static void script_fragments(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    for (int i = 0; i < 2; i++) {
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    }
    unsigned char answer[16];
    peer_ok_answer(answer, 1);
    PEER_CHECK(peer, peer_send_frame(peer, 0x02, answer, 4));
    PEER_CHECK(peer, peer_send_frame(peer, 0x89, "between", 7));
    PEER_CHECK(peer, peer_send_frame(peer, 0x00, NULL, 0));
    PEER_CHECK(peer, peer_send_frame(peer, 0x8a, "unasked", 7));
    PEER_CHECK(peer, peer_send_frame(peer, 0x80, answer + 4, 7));
    PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    PEER_CHECK(peer, opcode == 0xa && len == 7 && memcmp(payload, "between", 7) == 0);
    peer->value = 1;
    const unsigned char close_frame[] = {0x03, 0xf1, 'b', 'i', 'g'}; /* 1009 */
    PEER_CHECK(peer, peer_send_frame(peer, 0x88, close_frame, sizeof close_frame));
    PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    PEER_CHECK(peer, opcode == 0x8 && len == 2 && payload[0] == 0x03 && payload[1] == 0xf1);
    peer->value = 2;
    peer_drain(peer);
    peer->value = 3;
    peer_end(peer);
}

static void send_two(struct client *c)
{
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(c->session, "one", 3, &sequence), QWP_OK);
    ck_assert_int_eq(qwp_session_send(c->session, "second", 6, &sequence), QWP_OK);
    ck_assert_int_eq(sequence, 1);
}

START_TEST(session_control_frames_between_fragments_then_close)
{
    struct peer peer = {.script = script_fragments, .chunk = _i < MODES ? 1 : 0};
    peer_mode(&peer, _i % MODES);
    peer_start(&peer);
    struct client c = {.then = send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_CLOSED);
    ck_assert_int_eq(c.ok_sequence, 1);
    ck_assert_int_eq(c.down.close_code, 1009);
    ck_assert_ptr_nonnull(strstr(c.down.error.text, "big"));
    finish(&c, &peer);
    ck_assert_uint_eq(peer.value, 3);
}
END_TEST

/* The error answer is the server's last word but one: the acknowledgement before it counts. */
static void script_reject(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    for (int i = 0; i < 2; i++) {
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    }
    unsigned char frames[256];
    unsigned char answer[128];
    size_t n = peer_frame(frames, 0x82, answer, peer_ok_answer(answer, 0));
    n += peer_frame(frames + n, 0x82, answer, peer_error_answer(answer, 3, 1, "no such type"));
    PEER_CHECK(peer, peer_write(peer, frames, n));
    peer_drain(peer); /* ends only because the client ends its stream */
    peer->value = 1;
    peer_end(peer);
}

START_TEST(session_rejection_is_told_then_down)
{
    struct peer peer = {.script = script_reject};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_REJECTED);
    ck_assert_int_eq(c.ok_sequence, 0);
    ck_assert_int_eq(c.rejections, 1);
    ck_assert_int_eq(c.rejected_status, 3);
    ck_assert_str_eq(c.rejected_text, "1:no such type");
    ck_assert_int_eq(c.down.error.delivery, QWP_DELIVERY_UNKNOWN);
    finish(&c, &peer);
    ck_assert_uint_eq(peer.value, 1);
}
END_TEST

static const struct breach {
    const char *bytes;
    size_t len;
} breaches[] = {
#define BYTES(text)                                                                                \
    {                                                                                              \
        text, sizeof text - 1                                                                      \
    }
    BYTES("\x82\x0b\x00\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00"),     /* ok beyond what was sent */
    BYTES("\x82\x0b\x00\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00"),     /* negative */
    BYTES("\x82\x0b\x03\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00"),     /* error beyond */
    BYTES("\x82\x0c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), /* too long */
    BYTES("\x82\x0a\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"),         /* too short */
    BYTES("\x82\x00"),                                                 /* empty */
    BYTES("\x81\x02hi"),                                               /* text */
    BYTES("\xc2\x00"),                                                 /* reserved bit */
    BYTES("\x82\x80\x00\x00\x00\x00"),                                 /* masked */
    BYTES("\x80\x01x"),                                                /* stray continuation */
    BYTES("\x09\x00"),                                                 /* fragmented ping */
    BYTES("\x83\x00"),                                                 /* unknown opcode */
    BYTES("\x82\x7e\x00\x05hello"),                                    /* overlong length */
    BYTES("\x82\x7f\x80\x00\x00\x00\x00\x00\x00\x00"),                 /* impossible length */
    BYTES("\x82\x7f\x00\x00\x00\x00\x7f\x00\x00\x00"),                 /* too large */
    BYTES("\x88\x01\x03"),                                             /* half a close code */
    BYTES("\x88\x02\x03\xed"),                                         /* 1005 on the wire */
    BYTES("\x88\x04\x03\xe8\xff\xfe"),                                 /* reason not UTF-8 */
};
enum { BREACHES = sizeof breaches / sizeof breaches[0] };

static void script_breach(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    for (int i = 0; i < 2; i++) {
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    }
    const struct breach *breach = &breaches[peer->argument];
    PEER_CHECK(peer, peer_write(peer, breach->bytes, breach->len));
    peer_drain(peer);
}

START_TEST(session_breach_of_protocol_goes_down)
{
    struct peer peer = {.script = script_breach, .argument = _i};
    peer_start(&peer);
    struct client c = {.then = send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_PROTOCOL);
    ck_assert_int_eq(c.oks + c.rejections, 0);
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

/* The TCP stream ends without close_notify, after an acknowledgement. */
static void script_truncate(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    for (int i = 0; i < 2; i++) {
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, payload, sizeof payload, &len));
    }
    PEER_CHECK(peer, peer_send_ok(peer, 0));
    shutdown(peer->fd, SHUT_WR);
    peer_drain(peer);
}

START_TEST(session_truncated_stream_is_told_after_the_last_answer)
{
    struct peer peer = {.script = script_truncate};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_CLOSED);
    ck_assert_int_eq(c.ok_sequence, 0);
    ck_assert_ptr_nonnull(
        strstr(c.down.error.text, _i == 0 ? "without a close frame" : "without close_notify"));
    finish(&c, &peer);
}
END_TEST

/* ---- time ---- */

static void script_silent(struct peer *peer)
{
    if (peer->argument > 0) {
        PEER_CHECK(peer, peer_upgrade(peer));
    }
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    while (peer->argument > 0 && peer_read_frame(peer, &opcode, payload, sizeof payload, &len)) {
        if (opcode == 0x9) {
            peer->value++;
            if (peer->argument > 1) {
                PEER_CHECK(peer, peer_send_frame(peer, 0x8a, payload, len));
            }
        }
    }
    peer_drain(peer);
}

START_TEST(session_silence_in_each_phase_times_out)
{
    struct peer peer = {.script = script_silent, .argument = _i / MODES};
    peer_mode(&peer, _i % MODES);
    peer_start(&peer);
    struct client c = {.then = send_two};
    c.options.connect_timeout_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.auth_timeout_ns =
        _i < MODES ? 100 * QWP_NS_PER_MS : (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.ping_waiting_ns = 50 * QWP_NS_PER_MS;
    c.options.dead_after_ns = 300 * QWP_NS_PER_MS;
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, _i < MODES ? QWP_DOWN_UNREACHABLE : QWP_DOWN_TIMEOUT);
    finish(&c, &peer);
    ck_assert_uint_eq(peer.value, _i < MODES ? 0 : 1);
}
END_TEST

START_TEST(session_pongs_keep_a_waiting_session_alive)
{
    struct peer peer = {.script = script_silent, .argument = 2};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = send_two};
    c.options.ping_waiting_ns = 20 * QWP_NS_PER_MS;
    c.options.ping_idle_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.dead_after_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, peer.value >= 5);
    ck_assert_int_eq(c.downs, 0);
    finish(&c, &peer);
}
END_TEST

START_TEST(session_idle_pings_and_no_more)
{
    struct peer peer = {.script = script_silent, .argument = 2};
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_idle_ns = 50 * QWP_NS_PER_MS;
    c.options.ping_waiting_ns = 10 * QWP_NS_PER_MS;
    c.options.dead_after_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    client_open(&c, &peer);
    client_connect(&c);
    const int64_t start_ns = qwp_clock_monotonic_ns();
    RUN_UNTIL(&c, peer.value >= 4);
    ck_assert_int_ge(qwp_clock_monotonic_ns() - start_ns, 200 * QWP_NS_PER_MS);
    finish(&c, &peer);
}
END_TEST

static void *wake_after_observation(void *loop)
{
    usleep(400000); /* the length of the observation, not a synchronisation */
    qwp_loop_wake(loop);
    return NULL;
}

/* With the default times, and after traffic: the timers of the traffic must not wake us either. */
START_TEST(session_idle_does_not_wake_the_process)
{
    struct peer peer = {.script = script_count, .argument = 1};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_idle_ns = (int64_t)25 * QWP_NS_PER_S;
    c.options.ping_waiting_ns = 200 * QWP_NS_PER_MS;
    c.options.dead_after_ns = (int64_t)15 * QWP_NS_PER_S;
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    for (int64_t i = 0; i < SIZES; i++) {
        send_message(&c, message_bytes(i), sizes[i]);
    }
    RUN_UNTIL(&c, c.ok_sequence == SIZES - 1);
    qwp_loop_run(c.loop, 0);
    struct qwp_session_counters first;
    qwp_session_count(c.session, &first); /* a slow server may have been asked while it worked */
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wake_after_observation, c.loop), 0);
    struct rusage before;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &before), 0);
    ck_assert(qwp_loop_run(c.loop, QWP_NEVER_NS));
    struct rusage after;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &after), 0);
    pthread_join(thread, NULL);
    ck_assert_int_le(after.ru_nvcsw - before.ru_nvcsw, 1);
    struct qwp_session_counters counters;
    qwp_session_count(c.session, &counters);
    ck_assert_uint_eq(counters.pings_sent, first.pings_sent);
    finish(&c, &peer);
}
END_TEST

/* Stopped for longer than dead_after (SIGSTOP, a suspended host): the peer is asked, not buried. */
START_TEST(session_that_slept_asks_before_it_gives_up)
{
    struct peer peer = {.script = script_silent, .argument = 2};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_waiting_ns = 300 * QWP_NS_PER_MS;
    c.options.dead_after_ns = (int64_t)2 * QWP_NS_PER_S;
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    send_two(&c);
    qwp_loop_run(c.loop, 0);
    usleep(2600000); /* the stop itself */
    ck_assert_uint_eq(peer.value, 0);
    RUN_UNTIL(&c, peer.value >= 3);
    ck_assert_int_eq(c.downs, 0);
    finish(&c, &peer);
}
END_TEST

/* Reads slower than dead_after for one message, and answers only when it has all of it. */
static void script_slow(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    char *buffer = malloc(65536);
    size_t got = 0;
    const size_t total = (size_t)peer->argument + 14;
    while (got < total) {
        const size_t n = peer_read_some(peer, buffer, total - got < 65536 ? total - got : 65536);
        if (n == 0) {
            break;
        }
        got += n;
        usleep(10000); /* the slow link */
    }
    free(buffer);
    PEER_CHECK(peer, got == total);
    PEER_CHECK(peer, peer_send_ok(peer, 0));
    peer_drain(peer);
}

START_TEST(session_slow_reader_is_not_dead)
{
    enum { LEN = 24 << 20 };
    struct peer peer = {.script = script_slow, .argument = LEN};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_waiting_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.dead_after_ns = 1500 * QWP_NS_PER_MS;
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    unsigned char *message = calloc(1, LEN);
    send_message(&c, message, LEN);
    RUN_UNTIL(&c, c.ok_sequence == 0 || c.downs > 0);
    ck_assert_msg(c.downs == 0, "%s", c.down.error.text);
    finish(&c, &peer);
    free(message);
}
END_TEST

START_TEST(session_refused_and_given_up_connects_go_down)
{
    struct peer peer = {.script = script_silent};
    peer_start(&peer);
    struct client c = {0};
    client_open(&c, &peer);
    /* Given up in the middle of things. */
    client_connect(&c);
    qwp_session_disconnect(c.session, 0);
    RUN_UNTIL(&c, c.downs == 1);
    ck_assert_int_eq(c.down.cause, QWP_DOWN_LOCAL);
    qwp_session_disconnect(c.session, 0);
    ck_assert_ptr_null(peer_stop(&peer));
    client_connect(&c);
    RUN_UNTIL(&c, c.downs == 2);
    ck_assert_int_eq(c.down.cause, QWP_DOWN_UNREACHABLE);
    ck_assert_int_eq(c.down.error.sys_errno, ECONNREFUSED);
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(c.session, "x", 1, &sequence), QWP_CLOSED);
    client_close(&c);
}
END_TEST

/* ---- again and again ---- */

static int count_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL) {
        count++;
    }
    closedir(dir);
    return count;
}

/* Connection k ends in its own way. */
static void script_fickle(struct peer *peer)
{
    const int k = peer->connections;
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    if (k % 6 == 1 || !peer_upgrade(peer)) {
        return; /* closes before the answer, with a reset if the request was not read */
    }
    if (k % 6 == 2) {
        return;
    }
    if (!peer_read_frame(peer, &opcode, payload, sizeof payload, &len)) {
        return;
    }
    if (k % 6 == 3) {
        const struct linger reset = {.l_onoff = 1};
        setsockopt(peer->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
        return;
    }
    if (k % 6 == 4) {
        peer_send_frame(peer, 0x88, "\x03\xe8", 2);
        peer_drain(peer);
        return;
    }
    peer_send_ok(peer, 0);
    peer_end(peer);
    peer_drain(peer);
}

static void send_one(struct client *c)
{
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(c->session, "hello", 5, &sequence), QWP_OK);
    ck_assert_int_eq(sequence, 0);
}

START_TEST(session_reconnects_from_down_without_growth)
{
    enum { ROUNDS = 200 };
    struct peer peer = {.script = script_fickle};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = send_one};
    client_open(&c, &peer);
    c.reconnects_left = 20; /* warm */
    client_connect(&c);
    RUN_UNTIL(&c, c.reconnects_left == 0 && c.downs == 21);
    const int descriptors = count_descriptors();
    const size_t bytes = mallinfo2().uordblks;
    c.reconnects_left = ROUNDS;
    client_connect(&c);
    RUN_UNTIL(&c, c.reconnects_left == 0 && c.downs == 22 + ROUNDS);
    ck_assert_int_eq(c.downs, 22 + ROUNDS);
    ck_assert_int_ge(c.oks, ROUNDS / 4);
    /* The peer may hold one connection more or less than at the first count. */
    ck_assert_int_le(count_descriptors(), descriptors + 1);
    ck_assert_uint_le(mallinfo2().uordblks, bytes + 262144);
    finish(&c, &peer);
}
END_TEST

static void script_lenient(struct peer *peer)
{
    if (peer_upgrade(peer)) {
        peer_drain(peer);
    }
}

/* Closing a session in any state, and a session closed twice or never opened. */
START_TEST(session_close_in_any_state)
{
    struct peer peer = {.script = script_lenient};
    peer_mode(&peer, _i % MODES);
    peer_start(&peer);
    struct client c = {0};
    client_open(&c, &peer);
    client_connect(&c);
    for (int turns = _i / MODES; turns > 0 && c.ups == 0; turns--) {
        qwp_loop_run(c.loop, qwp_clock_monotonic_ns() + 20 * QWP_NS_PER_MS);
    }
    finish(&c, &peer);
    ck_assert_int_eq(c.downs, 0);
    qwp_session_close(NULL);
}
END_TEST

int main(void)
{
    client_make_certificates();
    for (size_t i = 0; i < sizeof pattern; i++) {
        pattern[i] = (unsigned char)(i * 31 + (i >> 8));
    }
    Suite *suite = suite_create("session");
    TCase *tc = tcase_create("session");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, session_carries_messages_of_all_sizes, 0, MODES);
    tcase_add_loop_test(tc, session_stalled_server_gives_backpressure_then_everything, 0, MODES);
    tcase_add_loop_test(tc, session_bytes_with_the_101_are_kept, 0, MODES);
    tcase_add_loop_test(tc, session_refused_upgrade_tells_the_cause, 0, 2 * REFUSALS);
    tcase_add_loop_test(tc, session_version_and_durable_echo_are_required, 0, 3);
    tcase_add_loop_test(tc, session_control_frames_between_fragments_then_close, 0, 2 * MODES);
    tcase_add_loop_test(tc, session_rejection_is_told_then_down, 0, MODES);
    tcase_add_loop_test(tc, session_breach_of_protocol_goes_down, 0, BREACHES);
    tcase_add_loop_test(tc, session_untrusted_server_is_refused, 0, 8);
    tcase_add_loop_test(tc, session_trusted_server_is_accepted, 0, 10);
    tcase_add_loop_test(tc, session_bad_roots_are_an_error_that_names_the_file, 0, 5);
    tcase_add_loop_test(tc, session_no_tls_where_expected_goes_down, 0, 3);
    tcase_add_loop_test(tc, session_truncated_stream_is_told_after_the_last_answer, 0, MODES);
    tcase_add_loop_test(tc, session_silence_in_each_phase_times_out, 0, 2 * MODES);
    tcase_add_loop_test(tc, session_pongs_keep_a_waiting_session_alive, 0, MODES);
    tcase_add_test(tc, session_idle_pings_and_no_more);
    tcase_add_loop_test(tc, session_idle_does_not_wake_the_process, 0, MODES);
    tcase_add_loop_test(tc, session_that_slept_asks_before_it_gives_up, 0, MODES);
    tcase_add_loop_test(tc, session_slow_reader_is_not_dead, 0, MODES);
    tcase_add_test(tc, session_refused_and_given_up_connects_go_down);
    tcase_add_loop_test(tc, session_reconnects_from_down_without_growth, 0, MODES);
    tcase_add_loop_test(tc, session_close_in_any_state, 0, 6 * MODES);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

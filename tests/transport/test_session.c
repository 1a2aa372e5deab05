/* Aim: a session carries messages and answers whole and in order over ws and wss, and however it
 * ends, there is one down() and the next connect works. Method: a real loop and a scripted server
 * in a thread (peer.h); most cases run plain, with TLS 1.3 and with TLS 1.2 (_i = 0, 1, 2). */
#include "transport/qwp_session.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* The error answer is the server's last word but one: the acknowledgement before it counts. */
static void script_reject(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    PEER_CHECK(peer, peer_read_frames(peer, 2));
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
    struct client c = {.then = client_send_two};
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

/* ---- ends ---- */

static void script_lenient(struct peer *peer)
{
    if (peer_upgrade(peer)) {
        peer_drain(peer);
    }
}

START_TEST(session_refused_and_given_up_connects_go_down)
{
    struct peer peer = {.script = script_lenient};
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
    tcase_add_loop_test(tc, session_rejection_is_told_then_down, 0, MODES);
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

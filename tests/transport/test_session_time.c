/* Aim: a session waits as long as it should, for whom it should, and sleeps when there is nothing
 * to do. Method: as test_session.c; with a clock of its own, see test_liveness.c. */
#include "transport/qwp_session.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "tests/transport/client.h"

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
    struct client c = {.then = client_send_two};
    c.options.connect_timeout_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.auth_timeout_ns =
        _i < MODES ? 100 * QWP_NS_PER_MS : (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.ping_waiting_ns = 50 * QWP_NS_PER_MS;
    c.options.dead_after_ns = 300 * QWP_NS_PER_MS;
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, _i < MODES ? QWP_DOWN_UNREACHABLE : QWP_DOWN_TIMEOUT);
    finish(&c, &peer);
    if (_i < MODES) {
        ck_assert_uint_eq(peer.value, 0);
    } else { /* once, and again if the machine let us sleep for seconds */
        ck_assert_uint_ge(peer.value, 1);
    }
}
END_TEST

START_TEST(session_pongs_keep_a_waiting_session_alive)
{
    struct peer peer = {.script = script_silent, .argument = 2};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = client_send_two};
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

enum { MESSAGES = 8, STEP_BYTES = 32 * 1024 };

static void script_answer(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    static unsigned char buffer[MESSAGES * STEP_BYTES];
    for (int i = 0; i < peer->argument; i++) {
        unsigned opcode;
        size_t len;
        PEER_CHECK(peer, peer_read_frame(peer, &opcode, buffer, sizeof buffer, &len));
        PEER_CHECK(peer, peer_send_ok(peer, i));
    }
    peer_drain(peer);
}

static void *wake_after_observation(void *loop)
{
    usleep(400000); /* the length of the observation, not a synchronisation */
    qwp_loop_wake(loop);
    return NULL;
}

/* With the default times, and after traffic: the timers of the traffic must not wake us either. */
START_TEST(session_idle_does_not_wake_the_process)
{
    struct peer peer = {.script = script_answer, .argument = MESSAGES};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_idle_ns = (int64_t)25 * QWP_NS_PER_S;
    c.options.ping_waiting_ns = 200 * QWP_NS_PER_MS;
    c.options.dead_after_ns = (int64_t)15 * QWP_NS_PER_S;
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    static const unsigned char message[MESSAGES * STEP_BYTES];
    for (int64_t i = 0; i < MESSAGES; i++) {
        send_message(&c, message, (size_t)(i + 1) * STEP_BYTES);
    }
    RUN_UNTIL(&c, c.ok_sequence == MESSAGES - 1);
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
    client_send_two(&c);
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
    const int len = _i == 0 ? 32 << 20 : 16 << 20; /* 5 s; read by records: half as fast */
    struct peer peer = {.script = script_slow, .argument = len};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {0};
    c.options.ping_waiting_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    c.options.dead_after_ns = (int64_t)3 * QWP_NS_PER_S; /* as long as one stall may be */
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ups == 1);
    unsigned char *message = calloc(1, (size_t)len);
    send_message(&c, message, (size_t)len);
    RUN_UNTIL(&c, c.ok_sequence == 0 || c.downs > 0);
    ck_assert_msg(c.downs == 0, "%s", c.down.error.text);
    finish(&c, &peer);
    free(message);
}
END_TEST

int main(void)
{
    client_make_certificates();
    Suite *suite = suite_create("session_time");
    TCase *tc = tcase_create("session_time");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, session_silence_in_each_phase_times_out, 0, 2 * MODES);
    tcase_add_loop_test(tc, session_pongs_keep_a_waiting_session_alive, 0, MODES);
    tcase_add_test(tc, session_idle_pings_and_no_more);
    tcase_add_loop_test(tc, session_idle_does_not_wake_the_process, 0, MODES);
    tcase_add_loop_test(tc, session_that_slept_asks_before_it_gives_up, 1, 2);
    tcase_add_loop_test(tc, session_slow_reader_is_not_dead, 0, 2);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

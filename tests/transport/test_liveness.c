/* Aim: a silent server is asked, and given up when its time is over, not before; a sidecar that was
 * stopped asks first, whatever it was doing; an idle connection wakes nobody but for its pings.
 * Method: a session on a loop and a clock that the test moves (fake_loop.h), with the times that
 * are the default. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/transport/fake_loop.h"
#include "transport/qwp_session_internal.h" /* the key of its request */

#define S  ((int64_t)QWP_NS_PER_S)
#define MS ((int64_t)QWP_NS_PER_MS)

static struct fake_loop fake;
static struct qwp_session *session;
static struct qwp_session_options options;
static int ups, downs, oks;
static enum qwp_down_cause cause;

static void on_up(void *owner, size_t message_bytes_max)
{
    (void)owner;
    (void)message_bytes_max;
    ups++;
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    (void)owner;
    downs++;
    cause = down->cause;
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    (void)owner;
    (void)sequence;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
    oks++;
}

static void on_writable(void *owner)
{
    (void)owner;
}

static const struct qwp_session_callbacks callbacks = {
    .up = on_up, .down = on_down, .ok = on_ok, .writable = on_writable};

static void take_all(void)
{
    while (fake_has(&fake, QWP_REQUEST_SEND)) {
        fake_complete(&fake, QWP_REQUEST_SEND, (int)fake_request(&fake, QWP_REQUEST_SEND)->len);
    }
}

static void start_connecting(void)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_int_eq(qwp_session_connect(session, (const struct sockaddr *)&address, sizeof address,
                                         "localhost", 9000, NULL),
                     QWP_OK);
    fake_turn(&fake);
}

static void connected(void)
{
    fake_complete(&fake, QWP_REQUEST_CONNECT, 0);
    take_all();
}

static void upgraded(void)
{
    char text[256];
    const int len = snprintf(text, sizeof text,
                             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                             "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                             "X-QWP-Version: 1\r\n\r\n",
                             session->upgrade.accept);
    ck_assert_uint_eq(fake_feed(&fake, text, (size_t)len), (size_t)len);
    ck_assert_int_eq(ups, 1);
}

static void setup(void)
{
    ups = downs = oks = 0;
    fake_loop_init(&fake);
    options = (struct qwp_session_options){
        .loop = &fake.loop,
        .callbacks = &callbacks,
        .client_id = "test/1",
        .connect_timeout_ns = 10 * S,
        .auth_timeout_ns = 15 * S,
        .ping_idle_ns = 25 * S,
        .ping_waiting_ns = 5 * S,
        .dead_after_ns = 15 * S,
        .clock_ns = fake_clock_ns,
    };
    ck_assert_int_eq(qwp_session_open(&session, &options, NULL), QWP_OK);
    start_connecting();
}

static void setup_up(void)
{
    setup();
    connected();
    upgraded();
}

static void teardown(void)
{
    qwp_session_close(session);
}

static void send_one(void)
{
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(session, "hello", 5, &sequence), QWP_OK);
    fake_turn(&fake);
    take_all();
}

static void server_says(const void *bytes, size_t len)
{
    ck_assert_uint_eq(fake_feed(&fake, bytes, len), len);
}

static void server_pongs(void)
{
    server_says("\x8a\x00", 2);
}

static uint64_t pings(void)
{
    struct qwp_session_counters counters;
    qwp_session_count(session, &counters);
    return counters.pings_sent;
}

/* Sleeps as the loop would: until the timer or `by_ns` is over. Returns how often it was woken. */
static int pass(int64_t by_ns)
{
    const int64_t end_ns = fake_clock_ns() + by_ns;
    int wakes = 0;
    while (downs == 0 && fake_timer_ns(&fake) <= end_ns) {
        fake_advance(&fake, fake_timer_ns(&fake) - fake_clock_ns());
        take_all();
        wakes++;
    }
    fake_clock_set(end_ns);
    return wakes;
}

/* Stopped: the clock goes on, and whatever was due happens at its end. */
static void stop_for(int64_t by_ns)
{
    fake_advance(&fake, by_ns);
    take_all();
}

/* ---- awake ---- */

START_TEST(liveness_silence_with_data_waiting_is_asked_then_ended)
{
    send_one();
    (void)pass(5 * S - 1);
    ck_assert_uint_eq(pings(), 0);
    (void)pass(1);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(10 * S - 2);
    ck_assert_int_eq(downs, 0);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(1 * S);
    ck_assert_int_eq(downs, 1);
    ck_assert_int_eq(cause, QWP_DOWN_TIMEOUT);
}
END_TEST

START_TEST(liveness_any_byte_is_a_sign_of_life)
{
    send_one();
    for (int i = 0; i < 20; i++) {
        (void)pass(14 * S);
        server_says("\x8a\x00", 1 + (size_t)(i % 2)); /* half a pong, the rest next time */
        if (i % 2 == 0) {
            server_says("\x00", 1);
        }
    }
    ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(liveness_idle_hour_has_its_pings_and_no_more)
{
    int wakes = 0;
    for (int i = 0; i < 144; i++) {
        wakes += pass(25 * S);
        server_pongs();
    }
    ck_assert_int_eq(downs, 0);
    ck_assert_uint_eq(pings(), 144);
    ck_assert_int_eq(wakes, 144);
}
END_TEST

START_TEST(liveness_idle_ping_without_an_answer_ends_it)
{
    (void)pass(25 * S);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(14 * S);
    ck_assert_int_eq(downs, 0);
    (void)pass(2 * S);
    ck_assert_int_eq(cause, QWP_DOWN_TIMEOUT);
    ck_assert_int_eq(downs, 1);
}
END_TEST

/* ---- stopped ---- */

START_TEST(liveness_stopped_for_a_minute_asks_first)
{
    static const int64_t before_ns[] = {0, 1 * S, 6 * S, 14 * S}; /* 6, 14: a ping is out */
    send_one();
    (void)pass(before_ns[_i]);
    const uint64_t before = pings();
    stop_for(60 * S);
    ck_assert_int_eq(downs, 0);
    ck_assert_uint_eq(pings(), before + 1);
    (void)pass(14 * S);
    ck_assert_int_eq(downs, 0);
    server_pongs();
    (void)pass(14 * S);
    ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(liveness_stopped_then_silent_is_ended)
{
    send_one();
    stop_for(60 * S);
    (void)pass(16 * S);
    ck_assert_int_eq(downs, 1);
    ck_assert_int_eq(cause, QWP_DOWN_TIMEOUT);
}
END_TEST

/* Too short to be seen as a stop, but over the end: what lies unread counts. */
START_TEST(liveness_bytes_that_lie_unread_count)
{
    send_one();
    (void)pass(14 * S);
    stop_for(2500 * MS);
    ck_assert_int_eq(downs, 0);
    if (_i == 0) {
        server_pongs();
        (void)pass(14 * S);
        ck_assert_int_eq(downs, 0);
    } else {
        (void)pass(1 * S);
        ck_assert_int_eq(downs, 1);
    }
}
END_TEST

START_TEST(liveness_stopped_while_idle_pings)
{
    stop_for(60 * S);
    ck_assert_int_eq(downs, 0);
    ck_assert_uint_eq(pings(), 1);
    server_pongs();
    (void)pass(24 * S);
    ck_assert_int_eq(downs, 0);
}
END_TEST

START_TEST(liveness_stopped_in_a_phase_gives_it_its_time)
{
    if (_i == 1) {
        connected();
    }
    (void)pass(9 * S);
    stop_for(60 * S);
    ck_assert_int_eq(downs, 0);
    if (_i == 1) {
        upgraded();
    } else {
        connected();
        (void)pass(14 * S);
        ck_assert_int_eq(downs, 0);
        (void)pass(2 * S);
        ck_assert_int_eq(downs, 1);
    }
}
END_TEST

START_TEST(liveness_phase_ends_in_its_time)
{
    (void)pass(10 * S - 1);
    ck_assert_int_eq(downs, 0);
    (void)pass(1);
    ck_assert_int_eq(downs, 1);
    ck_assert_int_eq(cause, QWP_DOWN_UNREACHABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("liveness");
    TCase *up = tcase_create("up");
    tcase_add_checked_fixture(up, setup_up, teardown);
    tcase_add_test(up, liveness_silence_with_data_waiting_is_asked_then_ended);
    tcase_add_test(up, liveness_any_byte_is_a_sign_of_life);
    tcase_add_test(up, liveness_idle_hour_has_its_pings_and_no_more);
    tcase_add_test(up, liveness_idle_ping_without_an_answer_ends_it);
    tcase_add_loop_test(up, liveness_stopped_for_a_minute_asks_first, 0, 4);
    tcase_add_test(up, liveness_stopped_then_silent_is_ended);
    tcase_add_loop_test(up, liveness_bytes_that_lie_unread_count, 0, 2);
    tcase_add_test(up, liveness_stopped_while_idle_pings);
    suite_add_tcase(suite, up);
    TCase *phases = tcase_create("phases");
    tcase_add_checked_fixture(phases, setup, teardown);
    tcase_add_loop_test(phases, liveness_stopped_in_a_phase_gives_it_its_time, 0, 2);
    tcase_add_test(phases, liveness_phase_ends_in_its_time);
    suite_add_tcase(suite, phases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

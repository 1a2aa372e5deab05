/* Aim: a silent server is asked, and given up when its time is over, not before; a sidecar that was
 * stopped asks first, whatever it was doing; an idle connection wakes nobody but for its pings.
 * Method: a session on a loop and a clock that the test moves (fake_session.h), with the times that
 * are the default. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/transport/fake_session.h"

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
    while (told.downs == 0 && fake_timer_ns(&fake) <= end_ns) {
        fake_advance(&fake, fake_timer_ns(&fake) - fake_clock_ns());
        fake_take_all();
        wakes++;
    }
    fake_clock_set(end_ns);
    return wakes;
}

/* Stopped: the clock goes on, and whatever was due happens at its end. */
static void stop_for(int64_t by_ns)
{
    fake_advance(&fake, by_ns);
    fake_take_all();
}

/* ---- awake ---- */

START_TEST(liveness_silence_with_data_waiting_is_asked_then_ended)
{
    fake_send(5);
    (void)pass(5 * S - 1);
    ck_assert_uint_eq(pings(), 0);
    (void)pass(1);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(10 * S - 2);
    ck_assert_int_eq(told.downs, 0);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(1 * S);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_TIMEOUT);
}
END_TEST

START_TEST(liveness_any_byte_is_a_sign_of_life)
{
    fake_send(5);
    for (int i = 0; i < 20; i++) {
        (void)pass(14 * S);
        fake_says("\x8a\x00", 1 + (size_t)(i % 2)); /* half a pong, the rest next time */
        if (i % 2 == 0) {
            fake_says("\x00", 1);
        }
    }
    ck_assert_int_eq(told.downs, 0);
}
END_TEST

START_TEST(liveness_idle_hour_has_its_pings_and_no_more)
{
    int wakes = 0;
    for (int i = 0; i < 144; i++) {
        wakes += pass(25 * S);
        fake_says("\x8a\x00", 2);
    }
    ck_assert_int_eq(told.downs, 0);
    ck_assert_uint_eq(pings(), 144);
    ck_assert_int_eq(wakes, 144);
}
END_TEST

START_TEST(liveness_idle_ping_without_an_answer_ends_it)
{
    (void)pass(25 * S);
    ck_assert_uint_eq(pings(), 1);
    (void)pass(14 * S);
    ck_assert_int_eq(told.downs, 0);
    (void)pass(2 * S);
    ck_assert_int_eq(told.cause, QWP_DOWN_TIMEOUT);
    ck_assert_int_eq(told.downs, 1);
}
END_TEST

/* ---- stopped ---- */

/* ---- receiving when it is wanted ---- */

static bool listens(void)
{
    return fake_has(&fake, QWP_REQUEST_RECV);
}

static bool looks(void)
{
    return fake_has(&fake, QWP_REQUEST_RECV_NOW);
}

START_TEST(liveness_on_demand_takes_in_what_is_there)
{
    fake_send(5);
    qwp_session_receive_on_demand(session, true);
    ck_assert(listens()); /* the receive that waits stays */
    fake_says_ok(0);
    ck_assert_int_eq(told.ok_sequence, 0);
    ck_assert(!listens() && !looks());
    fake_send(5);
    ck_assert(!listens() && !looks());

    qwp_session_receive(session);
    fake_turn(&fake);
    ck_assert(looks() && !listens());
    fake_says_ok(1);
    ck_assert_int_eq(told.ok_sequence, 1);
    ck_assert(!listens() && !looks()); /* once for each time it is wanted */

    qwp_session_receive(session);
    fake_turn(&fake);
    fake_complete(&fake, QWP_REQUEST_RECV_NOW, -EAGAIN);
    ck_assert_int_eq(told.downs, 0);
    ck_assert(!listens() && !looks());

    qwp_session_receive_on_demand(session, false);
    ck_assert(listens());
    ck_assert_int_eq(told.downs, 0);
}
END_TEST

START_TEST(liveness_on_demand_looks_for_the_answer_to_a_ping)
{
    qwp_session_receive_on_demand(session, true);
    fake_send(5);
    fake_says_ok(0);
    fake_send(5);
    (void)pass(5 * S);
    ck_assert_uint_eq(pings(), 1);
    ck_assert(looks());
}
END_TEST

START_TEST(liveness_on_demand_goes_on_with_more_than_a_buffer)
{
    qwp_session_receive_on_demand(session, true);
    fake_says("\x8a\x00", 2);
    qwp_session_receive(session);
    fake_turn(&fake);
    /* A pong, and all of the buffer with it. */
    const size_t room = fake_request(&fake, QWP_REQUEST_RECV_NOW)->len;
    unsigned char *pongs = calloc(1, room);
    for (size_t i = 0; i < room; i += 2) {
        pongs[i] = 0x8a;
    }
    fake_says(pongs, room);
    free(pongs);
    ck_assert(looks());
}
END_TEST

/* However it is that the connection ends: the server's last words are waited for. */
START_TEST(liveness_on_demand_ends_with_the_connection)
{
    qwp_session_receive_on_demand(session, true);
    fake_send(5);
    fake_says_ok(0);
    ck_assert(!listens());
    if (_i == 1) { /* under way when it is asked for */
        qwp_session_receive(session);
        fake_turn(&fake);
        ck_assert(looks());
    }
    qwp_session_disconnect(session, 1 * S);
    fake_turn(&fake);
    if (_i == 1) {
        fake_complete(&fake, QWP_REQUEST_RECV_NOW, -EAGAIN);
    }
    fake_take_all();
    ck_assert(listens());
    fake_complete(&fake, QWP_REQUEST_RECV, 0);
    ck_assert_int_eq(told.downs, 1);
}
END_TEST

START_TEST(liveness_stopped_for_a_minute_asks_first)
{
    static const int64_t before_ns[] = {0, 1 * S, 6 * S, 14 * S}; /* 6, 14: a ping is out */
    fake_send(5);
    (void)pass(before_ns[_i]);
    const uint64_t before = pings();
    stop_for(60 * S);
    ck_assert_int_eq(told.downs, 0);
    ck_assert_uint_eq(pings(), before + 1);
    (void)pass(14 * S);
    ck_assert_int_eq(told.downs, 0);
    fake_says("\x8a\x00", 2);
    (void)pass(14 * S);
    ck_assert_int_eq(told.downs, 0);
}
END_TEST

START_TEST(liveness_stopped_then_silent_is_ended)
{
    fake_send(5);
    stop_for(60 * S);
    (void)pass(16 * S);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_TIMEOUT);
}
END_TEST

/* Too short to be seen as a stop, but over the end: what lies unread counts. */
START_TEST(liveness_bytes_that_lie_unread_count)
{
    fake_send(5);
    (void)pass(14 * S);
    stop_for(2500 * MS);
    ck_assert_int_eq(told.downs, 0);
    if (_i == 0) {
        fake_says("\x8a\x00", 2);
        (void)pass(14 * S);
        ck_assert_int_eq(told.downs, 0);
    } else {
        (void)pass(1 * S);
        ck_assert_int_eq(told.downs, 1);
    }
}
END_TEST

START_TEST(liveness_stopped_while_idle_pings)
{
    stop_for(60 * S);
    ck_assert_int_eq(told.downs, 0);
    ck_assert_uint_eq(pings(), 1);
    fake_says("\x8a\x00", 2);
    (void)pass(24 * S);
    ck_assert_int_eq(told.downs, 0);
}
END_TEST

START_TEST(liveness_stopped_in_a_phase_gives_it_its_time)
{
    if (_i == 1) {
        fake_connected();
    }
    (void)pass(9 * S);
    stop_for(60 * S);
    ck_assert_int_eq(told.downs, 0);
    if (_i == 1) {
        fake_upgraded();
    } else {
        fake_connected();
        (void)pass(14 * S);
        ck_assert_int_eq(told.downs, 0);
        (void)pass(2 * S);
        ck_assert_int_eq(told.downs, 1);
    }
}
END_TEST

START_TEST(liveness_phase_ends_in_its_time)
{
    (void)pass(10 * S - 1);
    ck_assert_int_eq(told.downs, 0);
    (void)pass(1);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_UNREACHABLE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("liveness");
    TCase *up = tcase_create("up");
    tcase_add_checked_fixture(up, fake_setup_up, fake_teardown);
    tcase_add_test(up, liveness_silence_with_data_waiting_is_asked_then_ended);
    tcase_add_test(up, liveness_any_byte_is_a_sign_of_life);
    tcase_add_test(up, liveness_idle_hour_has_its_pings_and_no_more);
    tcase_add_test(up, liveness_idle_ping_without_an_answer_ends_it);
    tcase_add_test(up, liveness_on_demand_takes_in_what_is_there);
    tcase_add_test(up, liveness_on_demand_looks_for_the_answer_to_a_ping);
    tcase_add_test(up, liveness_on_demand_goes_on_with_more_than_a_buffer);
    tcase_add_loop_test(up, liveness_on_demand_ends_with_the_connection, 0, 2);
    tcase_add_loop_test(up, liveness_stopped_for_a_minute_asks_first, 0, 4);
    tcase_add_test(up, liveness_stopped_then_silent_is_ended);
    tcase_add_loop_test(up, liveness_bytes_that_lie_unread_count, 0, 2);
    tcase_add_test(up, liveness_stopped_while_idle_pings);
    suite_add_tcase(suite, up);
    TCase *phases = tcase_create("phases");
    tcase_add_checked_fixture(phases, fake_setup, fake_teardown);
    tcase_add_loop_test(phases, liveness_stopped_in_a_phase_gives_it_its_time, 0, 2);
    tcase_add_test(phases, liveness_phase_ends_in_its_time);
    suite_add_tcase(suite, phases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: what the server acknowledges is told once and in order, whatever else happens; what it
 * cannot have got, or has refused, it cannot acknowledge. Method: a session on a fake loop
 * (fake_session.h), which takes as many bytes as a test wants. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/transport/fake_session.h"

static void send_some(int count)
{
    for (int i = 0; i < count; i++) {
        fake_send(100);
    }
}

static void end_stream(void)
{
    fake_complete(&fake, QWP_REQUEST_RECV, 0);
}

static void expect_breach(void)
{
    fake_turn(&fake);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_PROTOCOL);
}

START_TEST(acks_are_cumulative)
{
    send_some(5);
    fake_says_ok(2);
    ck_assert_int_eq(told.oks, 1);
    ck_assert_int_eq(told.ok_sequence, 2);
    fake_says_ok(4);
    ck_assert_int_eq(told.oks, 2);
    ck_assert_int_eq(told.ok_sequence, 4);
}
END_TEST

START_TEST(acks_late_and_repeated_ones_say_nothing)
{
    send_some(5);
    fake_says_ok(3);
    fake_says_ok(1);
    fake_says_ok(3);
    fake_says_ok(0);
    ck_assert_int_eq(told.oks, 1);
    ck_assert_int_eq(told.ok_sequence, 3);
    ck_assert_int_eq(told.downs, 0);
}
END_TEST

START_TEST(acks_of_what_was_not_sent_are_a_breach)
{
    send_some(2);
    switch (_i) {
    case 0: /* never given */
        fake_says_ok(2);
        break;
    case 1: /* given, not taken by the kernel */
        fake_give(100);
        fake_says_ok(2);
        break;
    case 2: /* all but its last byte */
        fake_give(100);
        fake_complete(&fake, QWP_REQUEST_SEND, (int)fake_request(&fake, QWP_REQUEST_SEND)->len - 1);
        fake_says_ok(2);
        break;
    default:
        fake_says_ok(-1);
    }
    expect_breach();
    ck_assert_int_eq(told.oks, 0);
}
END_TEST

/* The server has gone, its last words lie in the socket. */
START_TEST(acks_are_read_to_the_end_after_sending_failed)
{
    send_some(4);
    fake_give(100);
    fake_complete(&fake, QWP_REQUEST_SEND, -EPIPE);
    ck_assert_int_eq(told.downs, 0);
    fake_says_ok(1);
    fake_says_ok(3);
    end_stream();
    ck_assert_int_eq(told.ok_sequence, 3);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_CLOSED);
}
END_TEST

START_TEST(acks_are_read_to_the_end_after_our_goodbye)
{
    send_some(4);
    qwp_session_disconnect(session, 5 * S);
    fake_turn(&fake);
    fake_take_all();
    fake_says_ok(2);
    fake_advance(&fake, 1 * S); /* over for an answer to our close: the end of our stream */
    fake_says_ok(3);
    ck_assert_int_eq(told.downs, 0);
    end_stream();
    ck_assert_int_eq(told.ok_sequence, 3);
    ck_assert_int_eq(told.cause, QWP_DOWN_LOCAL);
}
END_TEST

/* A server that does not end its stream keeps nobody for longer than the grace. */
START_TEST(acks_are_waited_for_no_longer_than_the_grace)
{
    send_some(2);
    qwp_session_disconnect(session, 5 * S);
    fake_turn(&fake);
    fake_take_all();
    for (int seconds = 0; seconds < 5; seconds++) {
        ck_assert_int_eq(told.downs, 0);
        fake_advance(&fake, 1 * S);
        fake_take_all();
    }
    ck_assert_int_eq(told.downs, 1);
}
END_TEST

START_TEST(acks_before_a_rejection_count)
{
    send_some(4);
    fake_says_ok(1);
    fake_says_error(3);
    ck_assert_int_eq(told.rejected_sequence, 3);
    fake_says_ok(2); /* was on its way */
    ck_assert_int_eq(told.ok_sequence, 2);
    end_stream();
    ck_assert_int_eq(told.cause, QWP_DOWN_REJECTED);
}
END_TEST

START_TEST(acks_cannot_cover_what_was_rejected)
{
    send_some(4);
    fake_says_error(1);
    fake_says_ok(3);
    fake_turn(&fake);
    ck_assert_int_eq(told.oks, 0);
    ck_assert_int_eq(told.rejections, 1);
    ck_assert_int_eq(told.downs, 1);
    ck_assert_int_eq(told.cause, QWP_DOWN_REJECTED);
}
END_TEST

START_TEST(acks_then_rejection_of_the_same_is_a_breach)
{
    send_some(4);
    fake_says_ok(2);
    fake_says_error(_i);
    expect_breach();
    ck_assert_int_eq(told.rejections, 0);
}
END_TEST

START_TEST(acks_one_rejection_a_connection)
{
    send_some(4);
    fake_says_error(1);
    fake_says_error(2);
    fake_turn(&fake);
    ck_assert_int_eq(told.rejections, 1);
    ck_assert_int_eq(told.rejected_sequence, 1);
    ck_assert_int_eq(told.downs, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("acks");
    TCase *tc = tcase_create("acks");
    tcase_add_checked_fixture(tc, fake_setup_up, fake_teardown);
    tcase_add_test(tc, acks_are_cumulative);
    tcase_add_test(tc, acks_late_and_repeated_ones_say_nothing);
    tcase_add_loop_test(tc, acks_of_what_was_not_sent_are_a_breach, 0, 4);
    tcase_add_test(tc, acks_are_read_to_the_end_after_sending_failed);
    tcase_add_test(tc, acks_are_read_to_the_end_after_our_goodbye);
    tcase_add_test(tc, acks_are_waited_for_no_longer_than_the_grace);
    tcase_add_test(tc, acks_before_a_rejection_count);
    tcase_add_test(tc, acks_cannot_cover_what_was_rejected);
    tcase_add_loop_test(tc, acks_then_rejection_of_the_same_is_a_breach, 0, 3);
    tcase_add_test(tc, acks_one_rejection_a_connection);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

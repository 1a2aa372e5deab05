/* Aim: what the RFCs allow is understood however it is cut; what they do not allow ends the
 * connection with the right cause, and what was acknowledged before it counts. Method: as
 * test_session.c; each misbehaviour has a script of its own. */
#include "transport/qwp_session.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transport/client.h"

/* ---- WebSocket ---- */

static void script_fragments(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    PEER_CHECK(peer, peer_read_frames(peer, 2));
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

START_TEST(session_control_frames_between_fragments_then_close)
{
    struct peer peer = {.script = script_fragments, .chunk = _i < MODES ? 1 : 0};
    peer_mode(&peer, _i % MODES);
    peer_start(&peer);
    struct client c = {.then = client_send_two};
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
    BYTES("\x88\x02\x00\x00"),                                         /* close codes: 0 */
    BYTES("\x88\x02\x03\xe7"),                                         /* 999 */
    BYTES("\x88\x02\x03\xec"),                                         /* 1004, reserved */
    BYTES("\x88\x02\x03\xed"),                                         /* 1005, never sent */
    BYTES("\x88\x02\x03\xee"),                                         /* 1006, never sent */
    BYTES("\x88\x02\x03\xf7"),                                         /* 1015, never sent */
    BYTES("\x88\x02\x0b\xb7"),                                         /* 2999, unassigned */
    BYTES("\x88\x02\x13\x88"),                                         /* 5000, beyond */
    BYTES("\x88\x7e\x00\x7e"),                                         /* control of 126 bytes */
    BYTES("\x08\x02\x03\xe8"),                                         /* fragmented close */
    BYTES("\x82\x7f\x00\x00\x00\x00\x00\x00\xff\xff"),                 /* 64 bits for 16 */
    BYTES("\x02\x01\x00\x82\x00"), /* a message inside another's fragments */
    BYTES("HTTP/1.1 400 Bad Request\r\n\r\n"),
    BYTES("\x88\x04\x03\xe8\xff\xfe"), /* reason not UTF-8 */
};
enum { BREACHES = sizeof breaches / sizeof breaches[0] };

static void script_breach(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    PEER_CHECK(peer, peer_read_frames(peer, 2));
    const struct breach *breach = &breaches[peer->argument];
    PEER_CHECK(peer, peer_write(peer, breach->bytes, breach->len));
    peer_drain(peer);
}

START_TEST(session_breach_of_protocol_goes_down)
{
    struct peer peer = {.script = script_breach, .argument = _i};
    peer_start(&peer);
    struct client c = {.then = client_send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_PROTOCOL);
    ck_assert_int_eq(c.oks + c.rejections, 0);
    finish(&c, &peer);
}
END_TEST

/* ---- TLS ---- */

enum { BURST = 8000, OK_BYTES = 13 };

/* Much in one go, then silence: each record holds many answers, the socket nothing more. */
static void script_burst(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    PEER_CHECK(peer, peer_read_frames(peer, 2));
    static unsigned char frames[BURST * OK_BYTES];
    size_t n = 0;
    for (int i = 0; i < BURST; i++) {
        unsigned char answer[16];
        n += peer_frame(frames + n, 0x82, answer, peer_ok_answer(answer, i + 1 < BURST ? 0 : 1));
    }
    PEER_CHECK(peer, n == sizeof frames && peer_write(peer, frames, n));
    PEER_CHECK(peer, !peer_read_frame(peer, &opcode, payload, sizeof payload, &len) ||
                         opcode == 0x8); /* says no more until we leave */
    peer_end(peer);
}

START_TEST(session_answers_inside_tls_are_read_while_the_socket_is_quiet)
{
    struct peer peer = {.script = script_burst};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = client_send_two};
    client_open(&c, &peer);
    client_connect(&c);
    RUN_UNTIL(&c, c.ok_sequence == 1);
    ck_assert_int_eq(c.oks, 2); /* the repeated ones are not told */
    qwp_session_disconnect(c.session, (int64_t)DEADLINE_S * QWP_NS_PER_S);
    expect_down(&c, QWP_DOWN_LOCAL);
    finish(&c, &peer);
}
END_TEST

/* The TCP stream ends without close_notify, after an acknowledgement. */
static void script_truncate(struct peer *peer)
{
    PEER_CHECK(peer, peer_upgrade(peer));
    PEER_CHECK(peer, peer_read_frames(peer, 2));
    PEER_CHECK(peer, peer_send_ok(peer, 0));
    shutdown(peer->fd, SHUT_WR);
    peer_drain(peer);
}

START_TEST(session_truncated_stream_is_told_after_the_last_answer)
{
    struct peer peer = {.script = script_truncate};
    peer_mode(&peer, _i);
    peer_start(&peer);
    struct client c = {.then = client_send_two};
    client_open(&c, &peer);
    client_connect(&c);
    expect_down(&c, QWP_DOWN_CLOSED);
    ck_assert_int_eq(c.ok_sequence, 0);
    ck_assert_ptr_nonnull(
        strstr(c.down.error.text, _i == 0 ? "without a close frame" : "without close_notify"));
    finish(&c, &peer);
}
END_TEST

int main(void)
{
    client_make_certificates();
    Suite *suite = suite_create("session_strict");
    TCase *tc = tcase_create("session_strict");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, session_control_frames_between_fragments_then_close, 0, 2 * MODES);
    tcase_add_loop_test(tc, session_breach_of_protocol_goes_down, 0, BREACHES);
    tcase_add_loop_test(tc, session_answers_inside_tls_are_read_while_the_socket_is_quiet, 0,
                        MODES);
    tcase_add_loop_test(tc, session_truncated_stream_is_told_after_the_last_answer, 0, MODES);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

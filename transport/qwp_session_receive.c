#include "transport/qwp_session_internal.h"

#include <errno.h>

static void read_plain(struct qwp_session *s, const unsigned char *at, size_t len)
{
    const unsigned char *bytes_end = at + len;
    if (s->state == STATE_UPGRADING) {
        struct qwp_error err;
        const enum qwp_result result = qwp_upgrade_read(&s->upgrade, &at, bytes_end, &err);
        if (result == QWP_AGAIN) {
            return;
        }
        if (result != QWP_OK) {
            qwp_session_fail_now(s, QWP_DOWN_PROTOCOL, err.text);
            return;
        }
        qwp_session_on_upgraded(s);
    }
    qwp_session_read_frames(s, at, bytes_end);
}

/* ---- receiving: the socket ---- */

static void on_stream_end(struct qwp_session *s, const char *how)
{
    s->stream_ended = true;
    switch (s->state) {
    case STATE_SECURING:
        qwp_session_fail_now(s, QWP_DOWN_TLS, how);
        break;
    case STATE_UPGRADING:
        qwp_session_fail_now(s, QWP_DOWN_UNREACHABLE, how);
        break;
    case STATE_UP:
        qwp_session_fail_now(s, QWP_DOWN_CLOSED, how);
        break;
    default: /* CLOSING: the cause is known */
        qwp_session_end(s);
    }
}

static void secure(struct qwp_session *s)
{
    struct qwp_error err;
    const enum qwp_result result = qwp_tls_handshake(&s->tls, &err);
    qwp_session_want_soon(s); /* our part of the handshake, or the alert that says why it failed */
    if (result == QWP_OK) {
        qwp_session_begin_upgrade(s);
    } else if (result != QWP_AGAIN) {
        qwp_session_fail_now(s, QWP_DOWN_TLS, err.text);
    }
}

/* Until OpenSSL has no more to give: nothing may stay inside it while the socket is quiet. */
static void read_tls(struct qwp_session *s)
{
    while (s->state == STATE_UPGRADING || s->state == STATE_UP || s->state == STATE_CLOSING) {
        size_t got = 0;
        struct qwp_error err;
        switch (qwp_tls_read(&s->tls, s->plain, sizeof s->plain, &got, &err)) {
        case QWP_OK:
            read_plain(s, s->plain, got);
            break;
        case QWP_AGAIN:
            return;
        case QWP_CLOSED:
            on_stream_end(s, "closed by the server (close_notify without a close frame)");
            return;
        default:
            if (s->state == STATE_CLOSING) {
                qwp_session_end(s);
            } else {
                qwp_session_fail_now(s, QWP_DOWN_TLS, err.text);
            }
            return;
        }
    }
}

static bool is_reading(const struct qwp_session *s)
{
    return s->state == STATE_SECURING || s->state == STATE_UPGRADING || s->state == STATE_UP ||
           s->state == STATE_CLOSING;
}

void qwp_session_receive_next(struct qwp_session *s)
{
    if (!is_reading(s) || s->recv_op.in_flight || s->stream_ended ||
        (s->options->tls && !qwp_tls_is_drained(&s->tls))) {
        return;
    }
    if (!s->on_demand || s->state != STATE_UP) {
        qwp_loop_recv(s->loop, &s->recv_op, s->fd, s->received, sizeof s->received);
    } else if (s->receive_wanted) {
        qwp_loop_recv_now(s->loop, &s->recv_op, s->fd, s->received, sizeof s->received);
    }
    s->receive_wanted = false;
}

void qwp_session_read_on(struct qwp_session *s)
{
    if (s->options->tls) {
        if (s->state == STATE_SECURING) {
            secure(s);
        }
        read_tls(s);
    }
    qwp_session_receive_next(s);
}

static void on_receive_error(struct qwp_session *s, int outcome)
{
    switch (s->state) {
    case STATE_CLOSING:
        break;
    case STATE_UP:
        qwp_session_note_down(s, outcome == -ETIMEDOUT ? QWP_DOWN_TIMEOUT : QWP_DOWN_CLOSED,
                              -outcome, "receiving failed");
        break;
    case STATE_SECURING:
        qwp_session_note_down(s, QWP_DOWN_TLS, -outcome, "receiving failed");
        break;
    default:
        qwp_session_note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "receiving failed");
    }
    qwp_session_end(s);
}

void qwp_session_on_recv(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        qwp_session_try_finish(s);
        return;
    }
    if (outcome == -EAGAIN) {
        qwp_session_receive_next(s); /* nothing was there; it may be wanted otherwise by now */
        return;
    }
    if (outcome < 0) {
        on_receive_error(s, outcome);
        return;
    }
    if (outcome == 0) {
        on_stream_end(s, s->options->tls ? "closed by the server without close_notify (cut off?)"
                                         : "closed by the server without a close frame");
        return;
    }
    const int64_t now_ns = session_now_ns(s);
    s->counters.bytes_received += (uint64_t)outcome;
    s->received_ns = s->quiet_since_ns = now_ns;
    s->ping_open = false;
    s->last_chance_ns = 0;
    s->receive_wanted = (size_t)outcome == sizeof s->received; /* more is there */
    if (s->options->tls) {
        qwp_tls_feed(&s->tls, s->received, (size_t)outcome);
    } else {
        read_plain(s, s->received, (size_t)outcome);
    }
    qwp_session_read_on(s);
    qwp_session_plan_timer(s, now_ns);
}

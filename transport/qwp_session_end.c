#include "transport/qwp_session_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

/* A server that leaves our close frame unanswered for so long is told by the end of our stream. */
static const int64_t close_answer_ns = (int64_t)QWP_NS_PER_S / 2;

static const char *const phase_names[] = {
    "idle", "TCP connect", "TLS handshake", "WebSocket upgrade", "connection", "closing", "ending",
};

void qwp_session_call_back(struct qwp_session *s)
{
    qwp_loop_cancel(s->loop, &s->connect_op);
    qwp_loop_cancel(s->loop, &s->recv_op);
    qwp_loop_cancel(s->loop, &s->send_op);
    qwp_loop_cancel(s->loop, &s->timer_op);
}

bool qwp_session_is_quiet(const struct qwp_session *s)
{
    return !s->connect_op.in_flight && !s->recv_op.in_flight && !s->send_op.in_flight &&
           !s->timer_op.in_flight && !s->soon_op.in_flight;
}

/* A TLS alert tells the server's log why we go. Once, if the socket takes it: nobody waits. */
static void send_alert(struct qwp_session *s)
{
    const unsigned char *bytes;
    const size_t len = qwp_outbox_take(&s->outbox, &bytes);
    if (len > 0) {
        (void)send(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    }
}

void qwp_session_drop_socket(struct qwp_session *s)
{
    qwp_tls_close(&s->tls);
    if (s->fd >= 0) {
        (void)close(s->fd);
        s->fd = -1;
    }
    s->state = STATE_IDLE;
}

void qwp_session_end(struct qwp_session *s)
{
    if (s->state == STATE_ENDING) {
        return;
    }
    s->state = STATE_ENDING;
    qwp_session_call_back(s);
    qwp_session_want_soon(s);
}

void qwp_session_try_finish(struct qwp_session *s)
{
    if (!qwp_session_is_quiet(s)) {
        return;
    }
    if (s->down.cause == QWP_DOWN_TLS && !s->send_broken) {
        send_alert(s);
    }
    qwp_session_drop_socket(s);
    const struct qwp_session_down down = s->down;
    s->options->callbacks->down(s->options->owner, &down);
}

void qwp_session_note_down(struct qwp_session *s, enum qwp_down_cause cause, int sys_errno,
                           const char *format, ...)
{
    char text[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    s->down.cause = cause;
    (void)qwp_fail(&s->down.error, QWP_CLOSED, sys_errno, "%s:%u: %s: %s", s->host, s->port,
                   phase_names[s->state], text);
    s->down.error.delivery = s->outgoing.framed_count - 1 > s->acked_sequence
                                 ? QWP_DELIVERY_UNKNOWN
                                 : QWP_DELIVERY_NOT_SENT;
}

/* ---- closing ---- */

void qwp_session_begin_closing(struct qwp_session *s, uint16_t code, bool fin, int64_t grace_ns)
{
    const int64_t now_ns = session_now_ns(s);
    const int64_t deadline_ns = after_ns(now_ns, grace_ns);
    if (s->state != STATE_CLOSING || deadline_ns < s->phase_deadline_ns) {
        s->phase_deadline_ns = deadline_ns;
    }
    s->state = STATE_CLOSING;
    s->fin_wanted = s->fin_wanted || fin;
    s->fin_at_ns = now_ns + qwp_sooner_ns(grace_ns / 2, close_answer_ns);
    qwp_outgoing_stop(&s->outgoing, code);
    qwp_session_want_soon(s);
}

void qwp_session_fail_now(struct qwp_session *s, enum qwp_down_cause cause, const char *text)
{
    qwp_session_note_down(s, cause, 0, "%s", text);
    qwp_session_end(s);
}

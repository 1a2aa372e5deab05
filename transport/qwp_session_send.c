/* Encoding happens when a message is given, sending in a "soon" operation, just before the loop
 * submits: so what one duty cycle gives goes out in one send, and a single message waits for
 * nothing. Little is sent then and there: a receiver on this host, which the send has woken, often
 * has to wait for our CPU until we leave the kernel, and behind an entry of the loop's ring we do
 * what else stands in it first. Much, and what the socket has no room for, the loop sends. */
#include "transport/qwp_session_internal.h"

#include <sys/socket.h>

enum { AT_ONCE_BYTES_MAX = 16 * 1024 };

void qwp_session_want_soon(struct qwp_session *s)
{
    if (!s->soon_op.in_flight) {
        qwp_loop_soon(s->loop, &s->soon_op);
    }
}

bool qwp_session_write_record(struct qwp_session *s)
{
    struct qwp_error err;
    if (qwp_tls_write(&s->tls, s->staged, s->staged_len, &err) != QWP_OK) {
        qwp_session_note_down(s, QWP_DOWN_TLS, 0, "%s", err.text);
        qwp_session_end(s);
        return false;
    }
    s->staged_len = 0;
    qwp_outgoing_seal_record(&s->outgoing, s->outbox.appended_pos);
    return true;
}

static void encode_tls(struct qwp_session *s)
{
    while (qwp_tls_has_room(&s->tls)) {
        s->staged_len += qwp_outgoing_fill(&s->outgoing, s->staged + s->staged_len,
                                           QWP_TLS_PLAIN_MAX - s->staged_len);
        if (s->staged_len < QWP_TLS_PLAIN_MAX || !qwp_session_write_record(s)) {
            return;
        }
    }
}

static void encode_plain(struct qwp_session *s)
{
    const size_t n =
        qwp_outgoing_fill(&s->outgoing, qwp_outbox_end(&s->outbox), qwp_outbox_room(&s->outbox));
    qwp_outgoing_seal_plain(&s->outgoing, s->outbox.appended_pos);
    qwp_outbox_appended(&s->outbox, n);
}

void qwp_session_encode(struct qwp_session *s)
{
    if (s->send_broken || (s->state != STATE_UP && s->state != STATE_CLOSING) || s->notify_done) {
        return;
    }
    if (s->options->tls) {
        encode_tls(s);
    } else {
        encode_plain(s);
    }
}

/* After the last frame: close_notify, then the end of our stream. */
static void say_last_words(struct qwp_session *s)
{
    if (s->state != STATE_CLOSING || !s->fin_wanted || s->fin_done || s->send_broken) {
        return;
    }
    if (!s->notify_done && !qwp_outgoing_has_more(&s->outgoing) && s->staged_len == 0) {
        s->notify_done = true;
        if (s->options->tls) {
            qwp_tls_shutdown(&s->tls);
        }
    }
    if (s->notify_done && qwp_outbox_is_empty(&s->outbox)) {
        s->fin_done = true;
        (void)shutdown(s->fd, SHUT_WR);
    }
}

/* The kernel took so much of what stands next. */
static void note_sent(struct qwp_session *s, size_t len)
{
    s->counters.bytes_sent += len;
    qwp_outbox_sent(&s->outbox, len);
    const int64_t before = s->outgoing.sent_count;
    qwp_outgoing_sent(&s->outgoing, s->outbox.sent_pos);
    s->counters.messages_sent += (uint64_t)(s->outgoing.sent_count - before);
    s->sent_ns = session_now_ns(s);
}

/* False: all of it is still to be sent, or the socket is broken, which the loop's send tells. */
static bool send_at_once(struct qwp_session *s, const unsigned char *bytes, size_t len)
{
    if (len > AT_ONCE_BYTES_MAX) {
        return false;
    }
    const ssize_t sent = send(s->fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent <= 0) {
        return false;
    }
    note_sent(s, (size_t)sent);
    qwp_session_encode(s);
    return true;
}

/* False: nothing to send, or the connection is over. */
static bool take_next(struct qwp_session *s, const unsigned char **bytes, size_t *len)
{
    if (s->state == STATE_ENDING || s->state == STATE_IDLE) {
        return false;
    }
    /* A record that is not full waits while a send is under way; not longer. */
    if (s->staged_len > 0 && qwp_tls_has_room(&s->tls) && !qwp_session_write_record(s)) {
        return false;
    }
    say_last_words(s);
    *len = qwp_outbox_take(&s->outbox, bytes);
    return *len > 0;
}

/* Gives the kernel the next buffer, unless it still has one. */
static void send_next(struct qwp_session *s)
{
    if (s->send_op.in_flight || s->send_broken) {
        return;
    }
    const unsigned char *bytes;
    size_t len;
    if (take_next(s, &bytes, &len) &&
        (!send_at_once(s, bytes, len) || take_next(s, &bytes, &len))) {
        qwp_loop_send(s->loop, &s->send_op, s->fd, bytes, len);
        qwp_session_encode(s); /* the other buffer is free now */
    }
}

static void tell_writable(struct qwp_session *s)
{
    if (s->blocked && s->state == STATE_UP && !qwp_outgoing_is_full(&s->outgoing)) {
        s->blocked = false;
        s->options->callbacks->writable(s->options->owner);
    }
}

static void send_and_go_on(struct qwp_session *s)
{
    qwp_session_encode(s);
    send_next(s);
    tell_writable(s);
    if (s->tls.wants_room) {
        qwp_session_read_on(s);
    } else {
        qwp_session_receive_next(s);
    }
}

/* What was received before the socket broke is still read: it may hold acknowledgements. */
static void on_send_error(struct qwp_session *s, int outcome)
{
    s->send_broken = true;
    if (s->state == STATE_UP) {
        qwp_session_note_down(s, QWP_DOWN_CLOSED, -outcome,
                              "the server's host closed it while we sent");
        s->state = STATE_CLOSING;
    } else if (s->state != STATE_CLOSING) {
        qwp_session_note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "sending failed");
        qwp_session_end(s);
        return;
    }
    s->fin_wanted = true; /* cannot be said; so nothing is waited for but the server's end */
    const int64_t now_ns = session_now_ns(s);
    s->phase_deadline_ns = now_ns + closing_grace_ns;
    qwp_session_plan_timer(s, now_ns);
}

void qwp_session_on_send(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (outcome > 0) {
        note_sent(s, (size_t)outcome);
    }
    if (s->state == STATE_ENDING) {
        qwp_session_try_finish(s);
        return;
    }
    if (outcome <= 0) {
        on_send_error(s, outcome);
        return;
    }
    send_and_go_on(s);
}

void qwp_session_on_soon(struct qwp_op *op, int outcome, bool more)
{
    (void)outcome;
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        qwp_session_try_finish(s);
        return;
    }
    send_and_go_on(s);
    qwp_session_plan_timer(s, 0);
}

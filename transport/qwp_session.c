/* A connection's life:
 *
 *   IDLE -> CONNECTING -> (SECURING ->) UPGRADING -> UP -> CLOSING -> ENDING -> IDLE
 *
 * CLOSING: the last words are said (a close frame, close_notify, the end of our stream) and the
 * server's are read to their end. ENDING: the outcome is known; operations are called back. Any
 * state may go to ENDING. down() is called from there when nothing of the old socket is in flight,
 * always from the loop, so that no call of the owner's ends in it.
 *
 * Encoding happens when a message is given, sending in a "soon" operation, just before the loop
 * submits: so what one duty cycle gives goes out in one send, and a single message waits for
 * nothing.
 */
#include "transport/qwp_session.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "transport/qwp_answer.h"
#include "transport/qwp_http_upgrade.h"
#include "transport/qwp_outbox.h"
#include "transport/qwp_outgoing.h"
#include "transport/qwp_tls.h"
#include "transport/qwp_websocket.h"

enum {
    RECEIVE_BYTES = 64 * 1024,
    HOST_BYTES = 256,
    /* 10,000 tables a connection x (length, name, seqTxn) and some more. */
    ANSWER_BYTES_MAX = 2 * 1024 * 1024,
    /* An idle peer that vanished is found by the kernel: 5 s + 3 x 3 s. */
    KEEPALIVE_IDLE_S = 5,
    KEEPALIVE_INTERVAL_S = 3,
    KEEPALIVE_COUNT = 3,
};

/* How long the end of the stream is waited for when the server closes or has rejected. */
static const int64_t closing_grace_ns = (int64_t)2 * QWP_NS_PER_S;
/* A server that leaves our close frame unanswered for so long is told by the end of our stream. */
static const int64_t close_answer_ns = (int64_t)QWP_NS_PER_S / 2;
/* A timer this late means that we slept (SIGSTOP, a suspended host), not the peer. */
static const int64_t slept_ns = (int64_t)2 * QWP_NS_PER_S;

enum session_state {
    STATE_IDLE = 0,
    STATE_CONNECTING,
    STATE_SECURING,
    STATE_UPGRADING,
    STATE_UP,
    STATE_CLOSING,
    STATE_ENDING,
};

static const char *const phase_names[] = {
    "idle", "TCP connect", "TLS handshake", "WebSocket upgrade", "connection", "closing", "ending",
};

struct qwp_session {
    const struct qwp_session_options *options;
    struct qwp_loop *loop;
    enum session_state state;
    int fd;
    bool stream_ended; /* the server's stream: nothing more to read */
    bool send_broken;  /* the socket takes no more */
    bool blocked;      /* the owner was told AGAIN */

    /* last words */
    bool fin_wanted; /* end our stream once the close frame is out */
    bool notify_done;
    bool fin_done;

    /* liveness */
    bool ping_open; /* a ping is out and nothing came since */
    bool was_due;
    int64_t phase_deadline_ns;
    int64_t fin_at_ns; /* CLOSING: how long the server's close frame is waited for */
    int64_t armed_ns;  /* of the timer in flight */
    int64_t received_ns;
    int64_t sent_ns;
    int64_t quiet_since_ns;  /* last sign of life, or when an answer became due */
    uint64_t peer_taken_pos; /* bytes that the peer's kernel has acknowledged */

    int64_t acked_sequence;

    struct qwp_op connect_op;
    struct qwp_op recv_op;
    struct qwp_op send_op;
    struct qwp_op timer_op;
    struct qwp_op soon_op;

    struct qwp_tls_context *tls_context;
    struct qwp_tls tls;
    size_t staged_len; /* plain bytes of the TLS record that is filling */

    uint16_t port;
    char host[HOST_BYTES];
    socklen_t address_len;
    struct sockaddr_storage address;
    struct qwp_session_down down;
    struct qwp_session_counters counters;

    struct qwp_outbox outbox;
    struct qwp_outgoing outgoing;
    struct qwp_upgrade upgrade;
    struct qwp_ws_reader reader;
    unsigned char staged[QWP_TLS_PLAIN_MAX];
    unsigned char plain[QWP_TLS_PLAIN_MAX];
    unsigned char received[RECEIVE_BYTES];
};

static void plan_timer(struct qwp_session *s, int64_t now_ns);
static void read_on(struct qwp_session *s);

/* 0 or less: never. */
static int64_t after_ns(int64_t from_ns, int64_t wait_ns)
{
    return wait_ns <= 0 || wait_ns > QWP_NEVER_NS - from_ns ? QWP_NEVER_NS : from_ns + wait_ns;
}

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- ending ---- */

static void call_back(struct qwp_session *s)
{
    qwp_loop_cancel(s->loop, &s->connect_op);
    qwp_loop_cancel(s->loop, &s->recv_op);
    qwp_loop_cancel(s->loop, &s->send_op);
    qwp_loop_cancel(s->loop, &s->timer_op);
}

static bool is_quiet(const struct qwp_session *s)
{
    return !s->connect_op.in_flight && !s->recv_op.in_flight && !s->send_op.in_flight &&
           !s->timer_op.in_flight && !s->soon_op.in_flight;
}

static void want_soon(struct qwp_session *s)
{
    if (!s->soon_op.in_flight) {
        qwp_loop_soon(s->loop, &s->soon_op);
    }
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

static void drop_socket(struct qwp_session *s)
{
    qwp_tls_close(&s->tls);
    if (s->fd >= 0) {
        (void)close(s->fd);
        s->fd = -1;
    }
    s->state = STATE_IDLE;
}

/* The outcome is known. The first one stands. */
static void end(struct qwp_session *s)
{
    if (s->state == STATE_ENDING) {
        return;
    }
    s->state = STATE_ENDING;
    call_back(s);
    want_soon(s);
}

/* The last step of ENDING. The owner may connect again from down(). */
static void try_finish(struct qwp_session *s)
{
    if (!is_quiet(s)) {
        return;
    }
    if (s->down.cause == QWP_DOWN_TLS && !s->send_broken) {
        send_alert(s);
    }
    drop_socket(s);
    const struct qwp_session_down down = s->down;
    s->options->callbacks->down(s->options->owner, &down);
}

static void note_down(struct qwp_session *s, enum qwp_down_cause cause, int sys_errno,
                      const char *format, ...) QWP_PRINTF(4, 5);

static void note_down(struct qwp_session *s, enum qwp_down_cause cause, int sys_errno,
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

/* ---- sending ---- */

static bool write_record(struct qwp_session *s)
{
    struct qwp_error err;
    if (qwp_tls_write(&s->tls, s->staged, s->staged_len, &err) != QWP_OK) {
        note_down(s, QWP_DOWN_TLS, 0, "%s", err.text);
        end(s);
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
        if (s->staged_len < QWP_TLS_PLAIN_MAX || !write_record(s)) {
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

/* Fills the buffer with what is there to say. */
static void encode(struct qwp_session *s)
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

/* Gives the kernel the next buffer, unless it still has one. */
static void send_next(struct qwp_session *s)
{
    if (s->send_op.in_flight || s->send_broken || s->state == STATE_ENDING ||
        s->state == STATE_IDLE) {
        return;
    }
    /* A record that is not full waits while a send is under way; not longer. */
    if (s->staged_len > 0 && qwp_tls_has_room(&s->tls) && !write_record(s)) {
        return;
    }
    say_last_words(s);
    const unsigned char *bytes;
    const size_t len = qwp_outbox_take(&s->outbox, &bytes);
    if (len > 0) {
        qwp_loop_send(s->loop, &s->send_op, s->fd, bytes, len);
        encode(s); /* the other buffer is free now */
    }
}

static void tell_writable(struct qwp_session *s)
{
    if (s->blocked && s->state == STATE_UP && !qwp_outgoing_is_full(&s->outgoing)) {
        s->blocked = false;
        s->options->callbacks->writable(s->options->owner);
    }
}

/* What was received before the socket broke is still read: it may hold acknowledgements. */
static void on_send_error(struct qwp_session *s, int outcome)
{
    s->send_broken = true;
    if (s->state == STATE_UP) {
        note_down(s, QWP_DOWN_CLOSED, -outcome, "the server's host closed it while we sent");
        s->state = STATE_CLOSING;
    } else if (s->state != STATE_CLOSING) {
        note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "sending failed");
        end(s);
        return;
    }
    s->fin_wanted = true; /* cannot be said; so nothing is waited for but the server's end */
    const int64_t now_ns = qwp_clock_monotonic_ns();
    s->phase_deadline_ns = now_ns + closing_grace_ns;
    plan_timer(s, now_ns);
}

static void on_send(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (outcome > 0) {
        s->counters.bytes_sent += (uint64_t)outcome;
        qwp_outbox_sent(&s->outbox, (size_t)outcome);
        const int64_t before = s->outgoing.sent_count;
        qwp_outgoing_sent(&s->outgoing, s->outbox.sent_pos);
        s->counters.messages_sent += (uint64_t)(s->outgoing.sent_count - before);
        s->sent_ns = qwp_clock_monotonic_ns();
    }
    if (s->state == STATE_ENDING) {
        try_finish(s);
        return;
    }
    if (outcome <= 0) {
        on_send_error(s, outcome);
        return;
    }
    encode(s);
    send_next(s);
    tell_writable(s);
    if (s->tls.wants_room) {
        read_on(s);
    }
}

static void on_soon(struct qwp_op *op, int outcome, bool more)
{
    (void)outcome;
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        try_finish(s);
        return;
    }
    encode(s);
    send_next(s);
    plan_timer(s, 0);
}

/* ---- closing ---- */

/* Says goodbye and reads to the end of the server's stream, for at most `grace_ns`. `fin`: end our
 * stream without waiting for the server's close frame. */
static void begin_closing(struct qwp_session *s, uint16_t code, bool fin, int64_t grace_ns)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    const int64_t deadline_ns = after_ns(now_ns, grace_ns);
    if (s->state != STATE_CLOSING || deadline_ns < s->phase_deadline_ns) {
        s->phase_deadline_ns = deadline_ns;
    }
    s->state = STATE_CLOSING;
    s->fin_wanted = s->fin_wanted || fin;
    s->fin_at_ns = now_ns + min_ns(grace_ns / 2, close_answer_ns);
    qwp_outgoing_stop(&s->outgoing, code);
    want_soon(s);
}

static void fail_now(struct qwp_session *s, enum qwp_down_cause cause, const char *text)
{
    note_down(s, cause, 0, "%s", text);
    end(s);
}

/* A breach while closing changes nothing any more. */
static void breach(struct qwp_session *s, const char *text)
{
    if (s->state != STATE_CLOSING) {
        note_down(s, QWP_DOWN_PROTOCOL, 0, "%s", text);
    }
    end(s);
}

/* ---- receiving: answers ---- */

static void on_ok(struct qwp_session *s, const struct qwp_answer *answer)
{
    if (answer->sequence <= s->acked_sequence) {
        return; /* late: says nothing new */
    }
    s->acked_sequence = answer->sequence;
    s->options->callbacks->ok(s->options->owner, answer->sequence, answer->tables,
                              answer->tables_bytes, answer->table_count);
}

static void on_rejected(struct qwp_session *s, const struct qwp_answer *answer)
{
    if (s->state == STATE_UP) {
        note_down(s, QWP_DOWN_REJECTED, 0, "message %" PRId64 " rejected with status 0x%02x: %.*s",
                  answer->sequence, answer->status,
                  (int)(answer->text_len > 256 ? 256 : answer->text_len), answer->text);
        begin_closing(s, QWP_WS_CLOSE_NORMAL, true, closing_grace_ns);
    }
    s->options->callbacks->rejected(s->options->owner, answer->sequence, answer->status,
                                    answer->text, answer->text_len);
}

static void on_message(struct qwp_session *s, const struct qwp_ws_event *event)
{
    struct qwp_answer answer;
    struct qwp_error err;
    if (qwp_answer_parse(event->bytes, event->len, &answer, &err) != QWP_OK) {
        breach(s, err.text);
        return;
    }
    if (answer.status == QWP_STATUS_DURABLE_ACK) {
        s->options->callbacks->durable(s->options->owner, answer.tables, answer.tables_bytes,
                                       answer.table_count);
        return;
    }
    if (answer.sequence < 0 || answer.sequence >= s->outgoing.sent_count) {
        char text[128];
        snprintf(text, sizeof text,
                 "answer to message %" PRId64 ", but %" PRId64 " were sent (from 0 on)",
                 answer.sequence, s->outgoing.sent_count);
        breach(s, text);
    } else if (answer.status == QWP_STATUS_OK) {
        on_ok(s, &answer);
    } else {
        on_rejected(s, &answer);
    }
}

/* ---- receiving: WebSocket ---- */

static void on_close_frame(struct qwp_session *s, const struct qwp_ws_event *event)
{
    s->down.close_code = event->close_code;
    if (s->state == STATE_UP) {
        note_down(s, QWP_DOWN_CLOSED, 0, "closed by the server, code %u: %.*s", event->close_code,
                  (int)event->len, (const char *)event->bytes);
    }
    begin_closing(s, event->close_code != 0 ? event->close_code : QWP_WS_CLOSE_NORMAL, true,
                  closing_grace_ns);
}

static void on_event(struct qwp_session *s, const struct qwp_ws_event *event)
{
    switch (event->kind) {
    case QWP_WS_BINARY:
        on_message(s, event);
        break;
    case QWP_WS_PING:
        qwp_outgoing_pong(&s->outgoing, event->bytes, event->len);
        want_soon(s);
        break;
    case QWP_WS_CLOSE:
        on_close_frame(s, event);
        break;
    default: /* a pong is a sign of life, which every byte is */
        break;
    }
}

static void read_frames(struct qwp_session *s, const unsigned char *at,
                        const unsigned char *bytes_end)
{
    while (s->state == STATE_UP || s->state == STATE_CLOSING) {
        struct qwp_ws_event event;
        struct qwp_error err;
        const enum qwp_result result = qwp_ws_read(&s->reader, &at, bytes_end, &event, &err);
        if (result == QWP_AGAIN) {
            return;
        }
        if (result != QWP_OK) {
            breach(s, err.text);
            return;
        }
        on_event(s, &event);
    }
}

/* ---- receiving: the upgrade ---- */

static enum qwp_down_cause cause_of_status(int status)
{
    switch (status) {
    case 401:
    case 403:
        return QWP_DOWN_AUTH;
    case 421:
        return QWP_DOWN_ROLE;
    default:
        return QWP_DOWN_HTTP;
    }
}

static void refuse_upgrade(struct qwp_session *s)
{
    const struct qwp_upgrade *u = &s->upgrade;
    s->down.http_status = u->status;
    note_down(s, cause_of_status(u->status), 0, "the server answered %d %s%s%s%s", u->status,
              u->reason, u->role[0] != '\0' ? " (role " : "", u->role,
              u->role[0] != '\0' ? ")" : "");
    end(s);
}

static size_t message_bytes_max(const struct qwp_upgrade *u)
{
    if (u->batch_max == 0) {
        return QWP_MESSAGE_BYTES_DEFAULT;
    }
    const uint64_t limit =
        u->batch_max < QWP_MESSAGE_BYTES_MAX ? u->batch_max : QWP_MESSAGE_BYTES_MAX;
    return (size_t)(limit - limit / 10);
}

static void on_upgraded(struct qwp_session *s)
{
    const struct qwp_upgrade *u = &s->upgrade;
    memcpy(s->down.role, u->role, sizeof s->down.role);
    if (u->status != 101) {
        refuse_upgrade(s);
        return;
    }
    if (u->version != QWP_WIRE_VERSION) {
        note_down(s, QWP_DOWN_VERSION, 0, "the server speaks QWP version %u, we speak %d",
                  u->version, QWP_WIRE_VERSION);
        end(s);
        return;
    }
    if (s->options->durable_ack && !u->durable_ack) {
        note_down(s, QWP_DOWN_DURABLE, 0,
                  "durable acknowledgements were asked for and the server does not offer them");
        end(s);
        return;
    }
    s->state = STATE_UP;
    s->down.was_up = true;
    s->counters.connects++;
    const int64_t now_ns = qwp_clock_monotonic_ns();
    s->sent_ns = s->received_ns = s->quiet_since_ns = now_ns;
    plan_timer(s, now_ns);
    s->options->callbacks->up(s->options->owner, message_bytes_max(u));
}

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
            fail_now(s, QWP_DOWN_PROTOCOL, err.text);
            return;
        }
        on_upgraded(s);
    }
    read_frames(s, at, bytes_end);
}

/* ---- receiving: the socket ---- */

static void on_stream_end(struct qwp_session *s, const char *how)
{
    s->stream_ended = true;
    switch (s->state) {
    case STATE_SECURING:
        fail_now(s, QWP_DOWN_TLS, how);
        break;
    case STATE_UPGRADING:
        fail_now(s, QWP_DOWN_UNREACHABLE, how);
        break;
    case STATE_UP:
        fail_now(s, QWP_DOWN_CLOSED, how);
        break;
    default: /* CLOSING: the cause is known */
        end(s);
    }
}

/* Writes our request; the outbox is empty but for the TLS handshake. */
static void begin_upgrade(struct qwp_session *s)
{
    s->state = STATE_UPGRADING;
    qwp_upgrade_init(&s->upgrade);
    const struct qwp_upgrade_request request = {
        .host = s->host,
        .port = s->port,
        .client_id = s->options->client_id,
        .authorization = s->options->authorization,
        .durable_ack = s->options->durable_ack,
    };
    char text[QWP_UPGRADE_REQUEST_MAX];
    size_t len;
    struct qwp_error err;
    if (qwp_upgrade_write(&s->upgrade, &request, text, &len, &err) != QWP_OK) {
        fail_now(s, QWP_DOWN_AUTH, err.text);
        return;
    }
    for (size_t off = 0; off < len && s->state == STATE_UPGRADING;) {
        const size_t n = len - off < QWP_TLS_PLAIN_MAX ? len - off : QWP_TLS_PLAIN_MAX;
        if (s->options->tls) {
            memcpy(s->staged, text + off, n);
            s->staged_len = n;
            (void)write_record(s);
        } else {
            memcpy(qwp_outbox_end(&s->outbox), text + off, n);
            qwp_outbox_appended(&s->outbox, n);
        }
        off += n;
    }
    OPENSSL_cleanse(text, len);
    want_soon(s);
}

static void secure(struct qwp_session *s)
{
    struct qwp_error err;
    const enum qwp_result result = qwp_tls_handshake(&s->tls, &err);
    want_soon(s); /* our part of the handshake, or the alert that says why it failed */
    if (result == QWP_OK) {
        begin_upgrade(s);
    } else if (result != QWP_AGAIN) {
        fail_now(s, QWP_DOWN_TLS, err.text);
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
                end(s);
            } else {
                fail_now(s, QWP_DOWN_TLS, err.text);
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

/* Goes on with what TLS has been fed, then asks the socket for more. */
static void read_on(struct qwp_session *s)
{
    if (s->options->tls) {
        if (s->state == STATE_SECURING) {
            secure(s);
        }
        read_tls(s);
    }
    if (is_reading(s) && !s->recv_op.in_flight && !s->stream_ended &&
        (!s->options->tls || qwp_tls_is_drained(&s->tls))) {
        qwp_loop_recv(s->loop, &s->recv_op, s->fd, s->received, sizeof s->received);
    }
}

static void on_receive_error(struct qwp_session *s, int outcome)
{
    switch (s->state) {
    case STATE_CLOSING:
        break;
    case STATE_UP:
        note_down(s, outcome == -ETIMEDOUT ? QWP_DOWN_TIMEOUT : QWP_DOWN_CLOSED, -outcome,
                  "receiving failed");
        break;
    case STATE_SECURING:
        note_down(s, QWP_DOWN_TLS, -outcome, "receiving failed");
        break;
    default:
        note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "receiving failed");
    }
    end(s);
}

static void on_recv(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        try_finish(s);
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
    const int64_t now_ns = qwp_clock_monotonic_ns();
    s->counters.bytes_received += (uint64_t)outcome;
    s->received_ns = s->quiet_since_ns = now_ns;
    s->ping_open = false;
    if (s->options->tls) {
        qwp_tls_feed(&s->tls, s->received, (size_t)outcome);
    } else {
        read_plain(s, s->received, (size_t)outcome);
    }
    read_on(s);
    plan_timer(s, now_ns);
}

/* ---- time ---- */

static bool answers_are_due(const struct qwp_session *s)
{
    return s->ping_open || s->outgoing.queued_count - 1 > s->acked_sequence;
}

static int64_t next_deadline_ns(const struct qwp_session *s)
{
    if (s->state == STATE_CLOSING && !s->fin_wanted) {
        return min_ns(s->phase_deadline_ns, s->fin_at_ns);
    }
    if (s->state != STATE_UP) {
        return s->phase_deadline_ns;
    }
    int64_t at_ns = after_ns(s->sent_ns, s->options->ping_idle_ns);
    if (answers_are_due(s)) {
        at_ns = min_ns(at_ns, after_ns(s->quiet_since_ns, s->options->dead_after_ns));
        if (!s->ping_open) {
            at_ns = min_ns(at_ns, after_ns(s->quiet_since_ns, s->options->ping_waiting_ns));
        }
    }
    return at_ns;
}

/* One timer, moved as little as possible: sooner when it must be, later only when the connection
 * falls idle, so that a sleeping process is not woken to find that nothing is due. `now_ns` 0: not
 * read yet. */
static void plan_timer(struct qwp_session *s, int64_t now_ns)
{
    if (s->state == STATE_ENDING || s->state == STATE_IDLE) {
        return;
    }
    const bool due = s->state == STATE_UP && answers_are_due(s);
    const bool falls_idle = s->was_due && !due;
    if (due && !s->was_due) {
        s->quiet_since_ns = now_ns != 0 ? now_ns : qwp_clock_monotonic_ns();
    }
    s->was_due = due;
    const int64_t at_ns = next_deadline_ns(s);
    if (!s->timer_op.in_flight) {
        if (at_ns != QWP_NEVER_NS) {
            s->armed_ns = at_ns;
            qwp_loop_timer(s->loop, &s->timer_op, at_ns);
        }
        return;
    }
    if (at_ns < s->armed_ns || (falls_idle && at_ns > s->armed_ns)) {
        s->armed_ns = at_ns;
        qwp_loop_timer_move(s->loop, &s->timer_op, at_ns);
    }
}

/* A slow link is no dead peer: while our bytes wait in the kernel and the peer's kernel goes on
 * taking them, it lives. (With none waiting the rest is the peer program's own silence.) */
static bool peer_takes_bytes(struct qwp_session *s)
{
    int waiting = 0;
    if (ioctl(s->fd, SIOCOUTQ, &waiting) != 0) {
        return false;
    }
    const uint64_t taken_pos = s->outbox.sent_pos - (uint64_t)waiting;
    const bool moved = waiting > 0 && taken_pos > s->peer_taken_pos;
    s->peer_taken_pos = taken_pos;
    return moved;
}

static void send_ping(struct qwp_session *s)
{
    s->counters.pings_sent++;
    s->ping_open = true;
    qwp_outgoing_ping(&s->outgoing);
    want_soon(s);
}

static void check_liveness(struct qwp_session *s, int64_t now_ns, bool slept)
{
    if (answers_are_due(s)) {
        if (peer_takes_bytes(s) || slept) {
            s->quiet_since_ns = now_ns;
        }
        if (now_ns >= after_ns(s->quiet_since_ns, s->options->dead_after_ns)) {
            note_down(s, QWP_DOWN_TIMEOUT, 0,
                      "no byte from the server for %" PRId64 " ms although answers are due",
                      (now_ns - s->quiet_since_ns) / QWP_NS_PER_MS);
            end(s);
            return;
        }
    }
    const bool waiting = answers_are_due(s) && !s->ping_open &&
                         now_ns >= after_ns(s->quiet_since_ns, s->options->ping_waiting_ns);
    const bool idle = now_ns >= after_ns(s->sent_ns, s->options->ping_idle_ns);
    if (waiting || idle || (slept && answers_are_due(s))) {
        /* Counts as sent: a ping that cannot leave must not be asked for again and again. */
        s->sent_ns = now_ns;
        send_ping(s);
    }
}

static void on_phase_timeout(struct qwp_session *s)
{
    switch (s->state) {
    case STATE_CONNECTING:
        fail_now(s, QWP_DOWN_UNREACHABLE, "no answer within connect_timeout");
        break;
    case STATE_SECURING:
        fail_now(s, QWP_DOWN_TLS, "not done within auth_timeout");
        break;
    case STATE_UPGRADING:
        fail_now(s, QWP_DOWN_UNREACHABLE, "no answer within auth_timeout");
        break;
    default: /* CLOSING: the cause is known */
        end(s);
    }
}

static void on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)outcome;
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        try_finish(s);
        return;
    }
    const int64_t now_ns = qwp_clock_monotonic_ns();
    if (s->state == STATE_UP) {
        check_liveness(s, now_ns, now_ns - s->armed_ns > slept_ns);
    } else if (now_ns >= s->phase_deadline_ns) {
        on_phase_timeout(s);
    } else if (s->state == STATE_CLOSING && now_ns >= s->fin_at_ns) {
        s->fin_wanted = true;
        want_soon(s);
    }
    plan_timer(s, now_ns);
}

/* ---- connecting ---- */

static void set_option(int fd, int level, int name, int value)
{
    (void)setsockopt(fd, level, name, &value, sizeof value);
}

/* None of these is needed to work; a Unix socket (tests) takes none of them. */
static void tune_socket(const struct qwp_session *s)
{
    set_option(s->fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(s->fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S);
    set_option(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S);
    set_option(s->fd, IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_COUNT);
}

/* Only now: it would also bound the connecting, which has a timeout of its own. */
static void bound_silence(const struct qwp_session *s)
{
    const int64_t dead_ms = s->options->dead_after_ns / QWP_NS_PER_MS;
    if (dead_ms > 0 && dead_ms < INT32_MAX) {
        set_option(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)dead_ms);
    }
}

static void on_connect(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        try_finish(s);
        return;
    }
    if (outcome < 0) {
        note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "refused");
        end(s);
        return;
    }
    const int64_t now_ns = qwp_clock_monotonic_ns();
    s->phase_deadline_ns = after_ns(now_ns, s->options->auth_timeout_ns);
    bound_silence(s);
    if (s->options->tls) {
        s->state = STATE_SECURING;
        struct qwp_error err;
        if (qwp_tls_open(&s->tls, s->tls_context, &s->outbox, s->host, &err) != QWP_OK) {
            fail_now(s, QWP_DOWN_TLS, err.text);
            return;
        }
    } else {
        begin_upgrade(s);
    }
    read_on(s);
    plan_timer(s, now_ns);
}

static void reset_connection(struct qwp_session *s)
{
    s->stream_ended = s->send_broken = s->blocked = false;
    s->fin_wanted = s->notify_done = s->fin_done = false;
    s->ping_open = s->was_due = false;
    s->acked_sequence = -1;
    s->peer_taken_pos = 0;
    s->staged_len = 0;
    s->down = (struct qwp_session_down){0};
    qwp_outbox_reset(&s->outbox);
    qwp_outgoing_reset(&s->outgoing);
    qwp_ws_reader_reset(&s->reader);
}

enum qwp_result qwp_session_connect(struct qwp_session *session, const struct sockaddr *address,
                                    socklen_t len, const char *host, uint16_t port,
                                    struct qwp_error *err)
{
    struct qwp_session *s = session;
    QWP_ASSERT(s->state == STATE_IDLE);
    if (len > sizeof s->address || strlen(host) >= sizeof s->host) {
        return qwp_fail(err, QWP_INVALID, 0, "%s: host name or address too long", host);
    }
    s->fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (s->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "%s:%u: socket", host, port);
    }
    reset_connection(s);
    memcpy(&s->address, address, len);
    s->address_len = len;
    memcpy(s->host, host, strlen(host) + 1);
    s->port = port;
    tune_socket(s);
    s->state = STATE_CONNECTING;
    const int64_t now_ns = qwp_clock_monotonic_ns();
    s->phase_deadline_ns = after_ns(now_ns, s->options->connect_timeout_ns);
    qwp_loop_connect(s->loop, &s->connect_op, s->fd, (const struct sockaddr *)&s->address,
                     s->address_len);
    plan_timer(s, now_ns);
    return QWP_OK;
}

void qwp_session_disconnect(struct qwp_session *session, int64_t grace_ns)
{
    struct qwp_session *s = session;
    switch (s->state) {
    case STATE_IDLE:
    case STATE_ENDING:
        break;
    case STATE_UP:
        note_down(s, QWP_DOWN_LOCAL, 0, "disconnected by us");
        /* fall through */
    case STATE_CLOSING:
        /* Not 0, which would be never. */
        begin_closing(s, QWP_WS_CLOSE_NORMAL, false, grace_ns > 0 ? grace_ns : 1);
        plan_timer(s, 0);
        break;
    default:
        fail_now(s, QWP_DOWN_LOCAL, "given up by us");
    }
}

enum qwp_result qwp_session_send(struct qwp_session *session, const void *message, size_t len,
                                 int64_t *sequence)
{
    struct qwp_session *s = session;
    if (s->state != STATE_UP) {
        return QWP_CLOSED;
    }
    if (qwp_outgoing_is_full(&s->outgoing)) {
        s->blocked = true;
        return QWP_AGAIN;
    }
    *sequence = qwp_outgoing_push(&s->outgoing, message, len);
    encode(s);
    want_soon(s);
    return QWP_OK;
}

void qwp_session_ping(struct qwp_session *session)
{
    if (session->state == STATE_UP) {
        send_ping(session);
    }
}

void qwp_session_count(const struct qwp_session *session, struct qwp_session_counters *out)
{
    *out = session->counters;
}

/* ---- opening and closing ---- */

static enum qwp_result load_tls(const struct qwp_session_options *options,
                                struct qwp_tls_context **out, struct qwp_error *err)
{
    const struct qwp_tls_options tls = {
        .verify = options->tls_verify,
        .roots = options->tls_roots,
        .roots_password = options->tls_roots_password,
    };
    return qwp_tls_context_create(out, &tls, err);
}

enum qwp_result qwp_session_reload_tls(struct qwp_session *session, struct qwp_error *err)
{
    if (!session->options->tls) {
        return QWP_OK;
    }
    struct qwp_tls_context *fresh;
    const enum qwp_result result = load_tls(session->options, &fresh, err);
    if (result == QWP_OK) {
        /* A connection that is up holds its own reference to what it uses. */
        qwp_tls_context_destroy(session->tls_context);
        session->tls_context = fresh;
    }
    return result;
}

enum qwp_result qwp_session_open(struct qwp_session **out,
                                 const struct qwp_session_options *options, struct qwp_error *err)
{
    struct qwp_session *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "session: out of memory");
    }
    s->options = options;
    s->loop = options->loop;
    s->fd = -1;
    s->connect_op = (struct qwp_op){.fn = on_connect, .owner = s};
    s->recv_op = (struct qwp_op){.fn = on_recv, .owner = s};
    s->send_op = (struct qwp_op){.fn = on_send, .owner = s};
    s->timer_op = (struct qwp_op){.fn = on_timer, .owner = s};
    s->soon_op = (struct qwp_op){.fn = on_soon, .owner = s};
    qwp_ws_reader_init(&s->reader, ANSWER_BYTES_MAX);
    enum qwp_result result = qwp_outbox_open(&s->outbox, err);
    if (result == QWP_OK && options->tls) {
        result = load_tls(options, &s->tls_context, err);
    }
    if (result != QWP_OK) {
        qwp_session_close(s);
        return result;
    }
    *out = s;
    return QWP_OK;
}

static void ignore(struct qwp_op *op, int outcome, bool more)
{
    (void)op;
    (void)outcome;
    (void)more;
}

void qwp_session_close(struct qwp_session *session)
{
    struct qwp_session *s = session;
    if (s == NULL) {
        return;
    }
    s->connect_op.fn = s->recv_op.fn = s->send_op.fn = s->timer_op.fn = s->soon_op.fn = ignore;
    call_back(s);
    while (!is_quiet(s)) {
        (void)qwp_loop_run(s->loop, QWP_NEVER_NS);
    }
    drop_socket(s);
    qwp_tls_context_destroy(s->tls_context);
    qwp_ws_reader_fini(&s->reader);
    qwp_outbox_close(&s->outbox);
    free(s);
}

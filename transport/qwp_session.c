#include "transport/qwp_session.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "core/qwp_assert.h"
#include "transport/qwp_send_buffer.h"
#include "transport/qwp_session_internal.h"

enum {
    /* 10,000 tables a connection x (length, name, seqTxn) and some more. */
    ANSWER_BYTES_MAX = 2 * 1024 * 1024,
    PROBE_MARGIN_MS = 500,
};

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
    qwp_send_buffer_grow(s->fd);
}

static int max_int(int a, int b)
{
    return a > b ? a : b;
}

/* The kernel finds a peer that is gone, also while we sleep: probes after a third of dead_after,
 * then each fifth of it (5 s, 3 s). TCP_USER_TIMEOUT takes the place of their count (tcp(7)) and is
 * looked at with each of them: it ends just before the last one within dead_after, or that one
 * would pass and the next come too late. Only now: it would also bound the connecting, which has a
 * timeout of its own. */
static void bound_silence(const struct qwp_session *s)
{
    const int64_t dead_ms = s->options->dead_after_ns / QWP_NS_PER_MS;
    if (dead_ms <= 0 || dead_ms > INT32_MAX / 2) {
        return;
    }
    const int idle_s = max_int(1, (int)dead_ms / 3000);
    const int interval_s = max_int(1, (int)dead_ms / 5000);
    const int last_s = idle_s + ((int)dead_ms / 1000 - idle_s) / interval_s * interval_s;
    const int user_ms = last_s * 1000 - PROBE_MARGIN_MS;
    set_option(s->fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
    set_option(s->fd, IPPROTO_TCP, TCP_KEEPINTVL, interval_s);
    /* (Times of seconds, in tests, are too coarse for that.) */
    set_option(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, max_int(user_ms, (int)dead_ms / 6 * 5));
}

static void on_connect(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        qwp_session_try_finish(s);
        return;
    }
    if (outcome < 0) {
        qwp_session_note_down(s, QWP_DOWN_UNREACHABLE, -outcome, "refused");
        qwp_session_end(s);
        return;
    }
    const int64_t now_ns = session_now_ns(s);
    s->phase_deadline_ns = after_ns(now_ns, s->options->auth_timeout_ns);
    bound_silence(s);
    if (s->options->tls) {
        s->state = STATE_SECURING;
        struct qwp_error err;
        if (qwp_tls_open(&s->tls, s->tls_context, &s->outbox, s->host, &err) != QWP_OK) {
            qwp_session_fail_now(s, QWP_DOWN_TLS, err.text);
            return;
        }
    } else {
        qwp_session_begin_upgrade(s);
    }
    qwp_session_read_on(s);
    qwp_session_plan_timer(s, now_ns);
}

static void reset_connection(struct qwp_session *s)
{
    s->stream_ended = s->send_broken = s->blocked = false;
    s->on_demand = s->receive_wanted = false;
    s->fin_wanted = s->notify_done = s->fin_done = false;
    s->ping_open = s->was_due = false;
    s->last_chance_ns = 0;
    s->acked_sequence = -1;
    s->rejected_sequence = INT64_MAX;
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
    const int64_t now_ns = session_now_ns(s);
    s->phase_deadline_ns = after_ns(now_ns, s->options->connect_timeout_ns);
    qwp_loop_connect(s->loop, &s->connect_op, s->fd, (const struct sockaddr *)&s->address,
                     s->address_len);
    qwp_session_plan_timer(s, now_ns);
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
        qwp_session_note_down(s, QWP_DOWN_LOCAL, 0, "disconnected by us");
        /* fall through */
    case STATE_CLOSING:
        /* Not 0, which would be never. */
        qwp_session_begin_closing(s, QWP_WS_CLOSE_NORMAL, false, grace_ns > 0 ? grace_ns : 1);
        qwp_session_plan_timer(s, 0);
        break;
    default:
        qwp_session_fail_now(s, QWP_DOWN_LOCAL, "given up by us");
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
    qwp_session_encode(s);
    qwp_session_want_soon(s);
    return QWP_OK;
}

void qwp_session_receive_on_demand(struct qwp_session *session, bool on_demand)
{
    session->on_demand = on_demand;
    qwp_session_receive_next(session);
}

void qwp_session_receive(struct qwp_session *session)
{
    if (session->state == STATE_UP && !session->recv_op.in_flight) {
        session->receive_wanted = true;
        qwp_session_want_soon(session);
    }
}

void qwp_session_ping(struct qwp_session *session)
{
    if (session->state == STATE_UP) {
        qwp_session_send_ping(session);
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
    s->recv_op = (struct qwp_op){.fn = qwp_session_on_recv, .owner = s};
    s->send_op = (struct qwp_op){.fn = qwp_session_on_send, .owner = s};
    s->timer_op = (struct qwp_op){.fn = qwp_session_on_timer, .owner = s};
    s->soon_op = (struct qwp_op){.fn = qwp_session_on_soon, .owner = s};
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
    qwp_session_call_back(s);
    while (!qwp_session_is_quiet(s)) {
        (void)qwp_loop_run(s->loop, QWP_NEVER_NS);
    }
    qwp_session_drop_socket(s);
    qwp_tls_context_destroy(s->tls_context);
    qwp_ws_reader_fini(&s->reader);
    qwp_outbox_close(&s->outbox);
    free(s);
}

#include "tests/sink/sink_connection.h"

#include <stdio.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "tests/sink/sink_answer.h"
#include "tests/sink/sink_http.h"
#include "tests/sink/sink_intake.h"
#include "tests/sink/sink_mischief.h"
#include "tests/sink/sink_stream.h"
#include "tests/sink/sink_websocket.h"

enum {
    READ_BYTES = 256 * 1024,     /* of a system call: large, yet in the cache when decoded */
    OUT_BYTES_MAX = 1024 * 1024, /* a client that reads no answers is not read either */
    ALL_ANSWERED = -1,
};
#define UPGRADE_TIMEOUT_NS (30 * (int64_t)QWP_NS_PER_S)
#define END_TIMEOUT_NS     (2 * (int64_t)QWP_NS_PER_S)

struct connection {
    const struct sink_connection_options *options;
    struct sink_stream stream;
    struct sink_policy policy; /* for this connection */
    struct sink_intake intake;
    struct sink_mischief mischief;
    struct sink_buffer in;
    struct sink_buffer out;
    size_t wanted; /* bytes of `in` that are worth a look */
    int64_t next_sequence;
    int64_t answer_due;  /* sequence, ALL_ANSWERED when there is none */
    uint32_t unanswered; /* messages since the last answer */
    bool durable;
    struct sink_buffer durable_held; /* durable acknowledgements that nobody asked for yet */
    bool deaf;     /* a message was rejected: reads on, takes and answers nothing */
    bool ending;   /* a close frame is on its way out */
    bool dropped;  /* no words any more */
    bool withheld; /* an answer is due that a fault holds back */
};

static void count(struct connection *connection, uint64_t struct_off, int64_t by)
{
    struct sink_store *store = connection->options->store;
    pthread_mutex_lock(&store->lock);
    uint64_t *counter = (uint64_t *)((char *)&store->counters + struct_off);
    *counter = (uint64_t)((int64_t)*counter + by);
    pthread_mutex_unlock(&store->lock);
}
#define COUNT(connection, field, by)                                                               \
    count((connection), offsetof(struct sink_counters, field), (by))

/* Where durable acknowledgements go: out, or aside until a ping asks for them. */
static struct sink_buffer *durable_acks(struct connection *connection)
{
    if (!connection->durable) {
        return NULL;
    }
    return connection->options->policy->durable_on_ping ? &connection->durable_held
                                                        : &connection->out;
}

static void answer_due(struct connection *connection)
{
    if (connection->answer_due == ALL_ANSWERED || connection->deaf) {
        return;
    }
    connection->withheld =
        !sink_mischief_answer(&connection->mischief, connection->answer_due, &connection->intake,
                              durable_acks(connection), &connection->stream, &connection->out);
    if (connection->withheld) {
        return;
    }
    connection->answer_due = ALL_ANSWERED;
    connection->unanswered = 0;
    COUNT(connection, answers, 1);
}

static void end_with(struct connection *connection, uint16_t code, const char *reason)
{
    answer_due(connection);
    sink_frame_put_close(&connection->out, code, reason);
    connection->ending = true;
}

static void reject(struct connection *connection, int64_t sequence, enum qwp_status status,
                   const char *text)
{
    qwp_log(QWP_LOG_WARN, "message rejected", "peer=%s sequence=%lld status=0x%02x reason=\"%s\"",
            connection->options->peer, (long long)sequence, (unsigned)status, text);
    answer_due(connection);
    sink_answer_error(&connection->out, sequence, status, text);
    connection->deaf = true;
}

/* Closes as the fault says. */
static void end_oddly(struct connection *connection, const struct sink_fault *fault)
{
    if (fault->code != 0) {
        end_with(connection, (uint16_t)fault->code, sink_fault_text(fault));
        return;
    }
    if (fault->reset != 0) {
        sink_stream_reset(&connection->stream);
    }
    connection->out.len = 0;
    connection->ending = true;
    connection->dropped = true;
}

static void take_message(struct connection *connection, const struct sink_frame *frame)
{
    const int64_t sequence = connection->next_sequence++;
    if (connection->deaf) {
        return;
    }
    struct qwp_error err = {0};
    bool committed = false;
    enum qwp_status status;
    const enum qwp_result result = sink_intake_message(
        &connection->intake, frame->payload, frame->payload_len, &committed, &status, &err);
    if (result == QWP_CLOSED) {
        end_oddly(connection, &connection->intake.fault);
        return;
    }
    if (result != QWP_OK) {
        reject(connection, sequence, status, err.text);
        return;
    }
    if (committed) {
        connection->answer_due = sequence;
    }
    if (++connection->unanswered >= connection->policy.answer_every) {
        answer_due(connection);
    }
}

/* The code of a client's close, if it may stand on the wire. */
static uint16_t echoed_code(const struct sink_frame *frame)
{
    if (frame->payload_len == 0) {
        return SINK_CLOSE_NORMAL;
    }
    const unsigned code =
        frame->payload_len >= 2 ? (unsigned)frame->payload[0] << 8 | frame->payload[1] : 0;
    const bool reserved = code < 1000 || code >= 5000 || (code >= 1004 && code <= 1006);
    return (uint16_t)(reserved ? SINK_CLOSE_PROTOCOL : code);
}

static void take_frame(struct connection *connection, const struct sink_frame *frame)
{
    switch (frame->opcode) {
    case SINK_OPCODE_BINARY:
        take_message(connection, frame);
        break;
    case SINK_OPCODE_PING:
        sink_buffer_put(&connection->out, connection->durable_held.at,
                        connection->durable_held.len);
        sink_buffer_drop(&connection->durable_held, connection->durable_held.len);
        sink_frame_put(&connection->out, SINK_OPCODE_PONG, frame->payload, frame->payload_len);
        break;
    case SINK_OPCODE_CLOSE:
        end_with(connection, echoed_code(frame), "");
        break;
    case SINK_OPCODE_PONG:
        break;
    }
}

/* All whole frames that are there. */
static void take_frames(struct connection *connection)
{
    size_t at = 0;
    while (!connection->ending) {
        struct sink_frame frame;
        uint16_t code = 0;
        const char *why = "";
        size_t wanted = 0;
        const enum qwp_result result =
            sink_frame_read((unsigned char *)connection->in.at + at, connection->in.len - at,
                            connection->policy.message_bytes_max, &frame, &wanted, &code, &why);
        if (result == QWP_AGAIN) {
            connection->wanted = wanted;
            break;
        }
        if (result != QWP_OK) {
            qwp_log(QWP_LOG_WARN, "protocol breach", "peer=%s code=%u reason=\"%s\"",
                    connection->options->peer, code, why);
            COUNT(connection, errors, 1);
            end_with(connection, code, why);
            break;
        }
        take_frame(connection, &frame);
        at += frame.frame_len;
    }
    sink_buffer_drop(&connection->in, at);
}

/* Writes what can be written now. */
static enum qwp_result flush(struct connection *connection, struct qwp_error *err)
{
    while (connection->out.len > 0) {
        size_t n = 0;
        const enum qwp_result result = sink_stream_write(&connection->stream, connection->out.at,
                                                         connection->out.len, &n, err);
        if (result != QWP_OK) {
            return result == QWP_AGAIN ? QWP_OK : result;
        }
        sink_buffer_drop(&connection->out, n);
    }
    return QWP_OK;
}

/* Writes all, waiting as long as `timeout_ns` for the client. */
static enum qwp_result flush_all(struct connection *connection, int64_t timeout_ns,
                                 struct qwp_error *err)
{
    enum qwp_result result = flush(connection, err);
    while (result == QWP_OK && connection->out.len > 0) {
        result = sink_stream_wait(&connection->stream, false, true, timeout_ns);
        if (result == QWP_OK) {
            result = flush(connection, err);
        }
    }
    return result;
}

/* Reads what is there. QWP_AGAIN: nothing. */
static enum qwp_result read_more(struct connection *connection, struct qwp_error *err)
{
    size_t room =
        connection->wanted > connection->in.len ? connection->wanted - connection->in.len : 0;
    room = room > READ_BYTES ? room : READ_BYTES;
    char *at = sink_buffer_reserve(&connection->in, room);
    size_t n = 0;
    const enum qwp_result result = sink_stream_read(&connection->stream, at, room, &n, err);
    if (result == QWP_OK) {
        connection->in.len += n;
        atomic_fetch_add_explicit(&connection->options->store->wire_bytes, n, memory_order_relaxed);
    }
    return result;
}

/* Writes a byte at a time. */
static enum qwp_result trickle(struct connection *connection, int64_t step_ms,
                               struct qwp_error *err)
{
    struct sink_buffer whole = connection->out;
    connection->out = (struct sink_buffer){0};
    enum qwp_result result = QWP_OK;
    for (size_t i = 0; i < whole.len && result == QWP_OK; i++) {
        sink_buffer_put(&connection->out, whole.at + i, 1);
        result = flush_all(connection, UPGRADE_TIMEOUT_NS, err);
        if (result == QWP_OK) {
            result = sink_stream_pause(&connection->stream, step_ms * (int64_t)QWP_NS_PER_MS);
            result = result == QWP_AGAIN ? QWP_OK : result;
        }
    }
    sink_buffer_fini(&whole);
    return result;
}

/* Until a whole request head is there, answered in `out`. */
static enum qwp_result upgrade(struct connection *connection, struct sink_upgrade *upgrade,
                               struct qwp_error *err)
{
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + UPGRADE_TIMEOUT_NS;
    size_t head_len = 0;
    while (head_len == 0) {
        enum qwp_result result = read_more(connection, err);
        if (result == QWP_AGAIN) {
            const int64_t left_ns = deadline_ns - qwp_clock_monotonic_ns();
            result = sink_stream_wait(&connection->stream, !connection->stream.tls_wants_write,
                                      connection->stream.tls_wants_write, left_ns);
            if (result == QWP_AGAIN) {
                return qwp_fail(err, QWP_AGAIN, 0, "no complete request in time");
            }
        }
        if (result != QWP_OK) {
            return result == QWP_CLOSED ? qwp_fail(err, QWP_CLOSED, 0, "closed before the upgrade")
                                        : result;
        }
        head_len = sink_http_head_len(connection->in.at, connection->in.len);
        if (head_len == 0 && connection->in.len > SINK_REQUEST_BYTES_MAX) {
            return qwp_fail(err, QWP_PEER, 0, "request head of more than %d bytes",
                            SINK_REQUEST_BYTES_MAX);
        }
    }
    if (sink_mischief_stall(&connection->mischief, SINK_STALL_UPGRADE, &connection->stream) !=
        QWP_OK) {
        return qwp_fail(err, QWP_CLOSED, 0, "closed while the answer was held back");
    }
    int64_t step_ms = 0;
    sink_mischief_policy(&connection->mischief, &connection->policy);
    sink_http_answer(connection->in.at, head_len, &connection->policy, upgrade, &connection->out);
    sink_mischief_upgrade(&connection->mischief, upgrade, &connection->out, &step_ms);
    sink_buffer_drop(&connection->in, head_len);
    if (step_ms > 0) {
        return trickle(connection, step_ms, err);
    }
    return flush_all(connection, UPGRADE_TIMEOUT_NS, err);
}

/* Messages and answers until one side ends it. */
static enum qwp_result serve_messages(struct connection *connection, struct qwp_error *err)
{
    for (;;) {
        take_frames(connection);
        enum qwp_result result = flush(connection, err);
        if (result != QWP_OK || connection->ending) {
            return result;
        }
        if (sink_mischief_stall(&connection->mischief, SINK_STALL_READING, &connection->stream) !=
            QWP_OK) {
            return QWP_CLOSED;
        }
        if (connection->out.len <= OUT_BYTES_MAX) {
            result = read_more(connection, err);
            if (result == QWP_OK) {
                continue;
            }
            if (result != QWP_AGAIN) {
                return result;
            }
        }
        /* Input pauses: the time for an answer. */
        answer_due(connection);
        result = flush(connection, err);
        if (result != QWP_OK) {
            return result;
        }
        const bool full = connection->out.len > OUT_BYTES_MAX;
        result = sink_stream_wait(&connection->stream, !full && !connection->stream.tls_wants_write,
                                  connection->out.len > 0 || connection->stream.tls_wants_write,
                                  connection->withheld ? SINK_FAULT_STEP_MS * (int64_t)QWP_NS_PER_MS
                                                       : QWP_NEVER_NS);
        if (result == QWP_CLOSED) {
            end_with(connection, SINK_CLOSE_GOING_AWAY, "the server stops");
            return QWP_OK;
        }
    }
}

static void refused(struct connection *connection, const char *reason)
{
    qwp_log(QWP_LOG_WARN, "connection refused", "peer=%s reason=\"%s\"", connection->options->peer,
            reason);
    COUNT(connection, refused, 1);
}

static void serve(struct connection *connection, struct qwp_error *err)
{
    if (sink_mischief_accepted(&connection->mischief, &connection->stream, err) != QWP_OK ||
        sink_mischief_stall(&connection->mischief, SINK_STALL_TLS, &connection->stream) != QWP_OK) {
        refused(connection, "a fault that was asked for");
        return;
    }
    if (sink_stream_handshake(&connection->stream, UPGRADE_TIMEOUT_NS, err) != QWP_OK) {
        refused(connection, err->text);
        return;
    }
    struct sink_upgrade asked;
    if (upgrade(connection, &asked, err) != QWP_OK) {
        refused(connection, err->text);
        return;
    }
    if (asked.status != 101) {
        char reason[64];
        snprintf(reason, sizeof reason, "answered with status %d", asked.status);
        refused(connection, reason);
        sink_stream_end(&connection->stream, END_TIMEOUT_NS);
        return;
    }
    if (sink_mischief_closes_upgraded(&connection->mischief, &connection->stream)) {
        refused(connection, "closed once upgraded, as asked for");
        return;
    }
    qwp_log(QWP_LOG_INFO, "connected", "peer=%s client=\"%s\" tls=%s", connection->options->peer,
            asked.client,
            connection->stream.ssl != NULL ? SSL_get_version(connection->stream.ssl) : "no");
    connection->durable = asked.durable;
    const enum qwp_result result = serve_messages(connection, err);
    if (connection->ending && !connection->dropped &&
        flush_all(connection, END_TIMEOUT_NS, err) == QWP_OK) {
        sink_stream_end(&connection->stream, END_TIMEOUT_NS);
    }
    qwp_log(QWP_LOG_INFO, "disconnected", "peer=%s messages=%lld reason=\"%s\"",
            connection->options->peer, (long long)connection->next_sequence,
            connection->ending || result == QWP_CLOSED ? "closed" : err->text);
}

void sink_connection_serve(int fd, const struct sink_connection_options *options)
{
    struct connection connection = {
        .options = options, .policy = *options->policy, .answer_due = ALL_ANSWERED, .wanted = 2};
    struct qwp_error err = {0};
    sink_intake_init(&connection.intake, options->store, &connection.policy, options->number);
    sink_mischief_init(&connection.mischief, connection.policy.faults, &connection.intake.place);
    COUNT(&connection, connections, 1);
    COUNT(&connection, connections_open, 1);
    if (sink_stream_init(&connection.stream, fd, options->stop_fd, options->tls, &err) == QWP_OK) {
        serve(&connection, &err);
    } else {
        refused(&connection, err.text);
    }
    sink_stream_fini(&connection.stream);
    sink_intake_fini(&connection.intake);
    sink_buffer_fini(&connection.in);
    sink_buffer_fini(&connection.out);
    sink_buffer_fini(&connection.durable_held);
    COUNT(&connection, connections_open, -1);
}

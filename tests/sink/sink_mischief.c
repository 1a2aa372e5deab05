#include "tests/sink/sink_mischief.h"

#include <string.h>

#include "core/qwp_clock.h"
#include "tests/sink/sink_answer.h"
#include "tests/sink/sink_websocket.h"

enum {
    BEYOND_DEFAULT = 1000,
    OVERSIZED_HEADERS = 40000, /* of 50 bytes */
    NOISE_BYTES = 64,
    FAR_TOO_LONG_PING_BYTES = 200,
};

void sink_mischief_init(struct sink_mischief *mischief, struct sink_faults *faults,
                        const struct sink_fault_place *place)
{
    *mischief = (struct sink_mischief){.faults = faults, .place = place, .answered = -1};
}

static bool hit(struct sink_mischief *mischief, enum sink_fault_kind kind, int64_t value,
                struct sink_fault *fault)
{
    return sink_faults_hit(mischief->faults, kind, value, mischief->place, fault);
}

enum qwp_result sink_mischief_accepted(struct sink_mischief *mischief, struct sink_stream *stream,
                                       struct qwp_error *err)
{
    struct sink_fault fault;
    if (hit(mischief, SINK_FAULT_CLOSE, SINK_CLOSE_AT_ACCEPT, &fault)) {
        if (fault.reset != 0) {
            sink_stream_reset(stream);
        }
        return qwp_fail(err, QWP_CLOSED, 0, "closed once accepted, as asked for");
    }
    int64_t in_bytes = INT64_MAX;
    int64_t out_bytes = INT64_MAX;
    int64_t reset = 0;
    if (hit(mischief, SINK_FAULT_CUT, SINK_CUT_IN, &fault)) {
        in_bytes = fault.byte;
        reset |= fault.reset;
    }
    if (hit(mischief, SINK_FAULT_CUT, SINK_CUT_OUT, &fault)) {
        out_bytes = fault.byte;
        reset |= fault.reset;
    }
    if (reset != 0) {
        sink_stream_reset(stream);
    }
    return in_bytes == INT64_MAX && out_bytes == INT64_MAX
               ? QWP_OK
               : sink_stream_cut(stream, in_bytes, out_bytes, err);
}

bool sink_mischief_stalls(struct sink_mischief *mischief, int64_t phase)
{
    return sink_faults_stall(mischief->faults, SINK_FAULT_STALL, phase, mischief->place,
                             &mischief->stalls[phase]);
}

enum qwp_result sink_mischief_stall(struct sink_mischief *mischief, int64_t phase,
                                    const struct sink_stream *stream)
{
    while (sink_mischief_stalls(mischief, phase)) {
        if (sink_stream_pause(stream, SINK_FAULT_STEP_MS * (int64_t)QWP_NS_PER_MS) == QWP_CLOSED ||
            sink_stream_is_gone(stream)) {
            return QWP_CLOSED;
        }
    }
    return QWP_OK;
}

void sink_mischief_policy(struct sink_mischief *mischief, struct sink_policy *policy)
{
    struct sink_fault fault;
    if (hit(mischief, SINK_FAULT_CAP, SINK_FAULT_ANY, &fault)) {
        policy->message_bytes_max = (size_t)fault.value;
    }
}

/* Changes the byte behind `before`, if it is there. */
static void spoil(struct sink_buffer *out, const char *before, char byte)
{
    char *at = memmem(out->at, out->len, before, strlen(before));
    if (at != NULL) {
        at[strlen(before)] = byte;
    }
}

static void put_noise(struct sink_buffer *out, uint64_t seed)
{
    for (int i = 0; i < NOISE_BYTES; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const char byte = (char)(seed >> 56);
        sink_buffer_put(out, &byte, 1);
    }
}

void sink_mischief_upgrade(struct sink_mischief *mischief, struct sink_upgrade *upgrade,
                           struct sink_buffer *out, int64_t *step_ms)
{
    struct sink_fault fault;
    *step_ms = 0;
    if (hit(mischief, SINK_FAULT_HTTP, SINK_FAULT_ANY, &fault)) {
        out->len = 0;
        upgrade->status = (int)fault.value;
        sink_http_refuse(upgrade->status, fault.header, sink_fault_text(&fault), out);
    }
    if (!hit(mischief, SINK_FAULT_UPGRADE, SINK_FAULT_ANY, &fault)) {
        return;
    }
    switch (fault.value) {
    case SINK_UPGRADE_NONSENSE:
        out->len = 0;
        upgrade->status = 0;
        put_noise(out, fault.hits);
        break;
    case SINK_UPGRADE_OVERSIZED:
        out->len = 0;
        upgrade->status = 0;
        sink_buffer_text(out, "HTTP/1.1 101 Switching Protocols\r\n");
        for (int i = 0; i < OVERSIZED_HEADERS; i++) {
            sink_buffer_printf(out, "X-Padding: %037d\r\n", i);
        }
        break;
    case SINK_UPGRADE_ACCEPT:
        spoil(out, "Sec-WebSocket-Accept: ", '!');
        break;
    case SINK_UPGRADE_VERSION:
        spoil(out, "X-QWP-Version: ", '9');
        break;
    default:
        *step_ms = fault.ms > 0 ? fault.ms : 1;
        break;
    }
}

bool sink_mischief_closes_upgraded(struct sink_mischief *mischief, struct sink_stream *stream)
{
    struct sink_fault fault;
    if (!hit(mischief, SINK_FAULT_CLOSE, SINK_CLOSE_AT_UPGRADE, &fault)) {
        return false;
    }
    if (fault.reset != 0) {
        sink_stream_reset(stream);
    }
    return true;
}

/* An OK that means nothing: no tables. */
static void put_ok(struct sink_buffer *out, int64_t sequence)
{
    unsigned char payload[11] = {QWP_STATUS_OK};
    memcpy(payload + 1, &sequence, sizeof sequence);
    sink_frame_put(out, SINK_OPCODE_BINARY, payload, sizeof payload);
}

/* Frames that are whole, and ours: not masked. */
static void put_fragments(struct sink_buffer *out, const struct sink_buffer *frames)
{
    const unsigned char *at = (const unsigned char *)frames->at;
    const unsigned char *end = at + frames->len;
    while (at < end) {
        size_t len = at[1];
        size_t header_bytes = 2;
        if (len == 126) {
            len = (size_t)at[2] << 8 | at[3];
            header_bytes = 4;
        } /* no answer of ours has more */
        const size_t first = len / 2;
        const size_t from = out->len;
        sink_frame_put(out, SINK_OPCODE_BINARY, at + header_bytes, first);
        out->at[from] &= 0x7f; /* not the last fragment */
        sink_frame_put(out, SINK_OPCODE_PING, "between", 7);
        const size_t second = out->len;
        sink_frame_put(out, SINK_OPCODE_BINARY, at + header_bytes + first, len - first);
        out->at[second] = (char)0x80; /* a continuation, and the last */
        at += header_bytes + len;
    }
}

/* What is sent instead of an answer. */
static void put_wrong_answer(const struct sink_fault *fault, int64_t sequence,
                             struct sink_buffer *out)
{
    const size_t from = out->len;
    switch (fault->value) {
    case SINK_ANSWER_NONSENSE:
        put_noise(out, fault->hits);
        break;
    case SINK_ANSWER_OVERSIZED:
        sink_buffer_put(out, "\x82\x7f\x00\x00\x01\x00\x00\x00\x00\x00", 10);
        break;
    case SINK_ANSWER_SHORT:
        sink_frame_put(out, SINK_OPCODE_BINARY, "\0\0\0", 3);
        break;
    case SINK_ANSWER_TEXT:
        put_ok(out, sequence);
        out->at[from] = (char)0x81;
        break;
    case SINK_ANSWER_MASKED:
        sink_buffer_put(out, "\x82\x8b\0\0\0\0", 6);
        put_ok(out, sequence);
        memmove(out->at + from + 6, out->at + from + 8, 11);
        out->len -= 2;
        break;
    case SINK_ANSWER_RESERVED:
        put_ok(out, sequence);
        out->at[from] |= 0x40;
        break;
    default: {
        const char zeros[FAR_TOO_LONG_PING_BYTES] = {0};
        sink_frame_put(out, SINK_OPCODE_PING, zeros, sizeof zeros);
        break;
    }
    }
}

static void do_tls(struct sink_mischief *mischief, struct sink_stream *stream)
{
    struct sink_fault fault;
    if (stream->ssl == NULL || !hit(mischief, SINK_FAULT_TLS, SINK_FAULT_ANY, &fault)) {
        return;
    }
    if (fault.value == SINK_TLS_KEYUPDATE) {
        (void)SSL_key_update(stream->ssl, SSL_KEY_UPDATE_REQUESTED);
    } else {
        (void)SSL_new_session_ticket(stream->ssl);
    }
}

/* The answer that is due, with what may come with it. */
static void put_answer(struct sink_mischief *mischief, int64_t sequence, struct sink_intake *intake,
                       struct sink_buffer *durable, struct sink_buffer *out)
{
    struct sink_fault fault;
    if (!hit(mischief, SINK_FAULT_CONTROL, SINK_FAULT_ANY, &fault)) {
        sink_answer_ok(out, sequence, intake, durable);
        return;
    }
    if (fault.value == SINK_CONTROL_FRAGMENT) {
        struct sink_buffer frames = {0};
        sink_answer_ok(&frames, sequence, intake, durable);
        put_fragments(out, &frames);
        sink_buffer_fini(&frames);
        return;
    }
    const enum sink_opcode opcode =
        fault.value == SINK_CONTROL_PING ? SINK_OPCODE_PING : SINK_OPCODE_PONG;
    sink_frame_put(out, opcode, "before", 6);
    sink_answer_ok(out, sequence, intake, durable);
    sink_frame_put(out, opcode, "", 0);
}

bool sink_mischief_answer(struct sink_mischief *mischief, int64_t sequence,
                          struct sink_intake *intake, struct sink_buffer *durable,
                          struct sink_stream *stream, struct sink_buffer *out)
{
    struct sink_fault fault;
    if (sink_faults_none(mischief->faults)) {
        sink_answer_ok(out, sequence, intake, durable);
        mischief->answered = sequence;
        return true;
    }
    if (sink_mischief_stalls(mischief, SINK_STALL_ANSWERS) ||
        sink_faults_stall(mischief->faults, SINK_FAULT_ACK, SINK_ACK_LATE, mischief->place,
                          &mischief->late)) {
        return false;
    }
    do_tls(mischief, stream);
    if (hit(mischief, SINK_FAULT_ANSWER, SINK_FAULT_ANY, &fault)) {
        put_wrong_answer(&fault, sequence, out);
        return true;
    }
    if (hit(mischief, SINK_FAULT_ACK, SINK_ACK_DROP, NULL)) {
        return true;
    }
    if (hit(mischief, SINK_FAULT_ACK, SINK_ACK_NEGATIVE, NULL)) {
        put_ok(out, -1);
    }
    if (hit(mischief, SINK_FAULT_ACK, SINK_ACK_BEYOND, &fault)) {
        put_ok(out, sequence + (fault.by != SINK_FAULT_ANY ? fault.by : BEYOND_DEFAULT));
        return true;
    }
    if (mischief->answered >= 0 && hit(mischief, SINK_FAULT_ACK, SINK_ACK_STALE, NULL)) {
        put_ok(out, mischief->answered);
    }
    put_answer(mischief, sequence, intake, durable, out);
    if (hit(mischief, SINK_FAULT_ACK, SINK_ACK_BACKWARDS, &fault)) {
        const int64_t by = fault.by != SINK_FAULT_ANY ? fault.by : 1;
        put_ok(out, sequence > by ? sequence - by : 0);
    }
    mischief->answered = sequence;
    return true;
}

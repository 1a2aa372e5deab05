#include "transport/qwp_outgoing.h"

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"

#include <string.h>
#include <sys/random.h>

enum { CLOSE_CODE_BYTES = 2 };

/* Unpredictable, as RFC 6455 wants them, by one system call for many: the pool is 1 KiB, for which
 * getrandom() on an initialised generator neither fails nor returns less. */
static uint32_t next_mask(struct qwp_outgoing *o)
{
    if (o->masks_left == 0) {
        size_t got = 0;
        while (got < sizeof o->masks) {
            const ssize_t n = getrandom((char *)o->masks + got, sizeof o->masks - got, 0);
            got += n > 0 ? (size_t)n : 0;
        }
        o->masks_left = QWP_MASK_POOL;
    }
    return o->masks[--o->masks_left];
}

void qwp_outgoing_reset(struct qwp_outgoing *o)
{
    o->queued_count = o->framed_count = o->sealed_count = o->sent_count = o->pinged_count = 0;
    o->payload = NULL;
    o->payload_len = o->payload_off = 0;
    o->header_len = o->header_off = 0;
    o->in_message = o->close_framed = o->stopped = false;
    o->pong_wanted = o->ping_wanted = o->close_wanted = false;
}

int64_t qwp_outgoing_push(struct qwp_outgoing *o, const void *bytes, size_t len)
{
    QWP_ASSERT(!qwp_outgoing_is_full(o));
    struct qwp_outgoing_message *message = &o->queue[(uint64_t)o->queued_count % QWP_OUTGOING_MAX];
    *message = (struct qwp_outgoing_message){.bytes = bytes, .len = len};
    return o->queued_count++;
}

void qwp_outgoing_pong(struct qwp_outgoing *o, const void *payload, size_t len)
{
    QWP_ASSERT(len <= QWP_WS_CONTROL_MAX);
    if (len > 0) {
        memcpy(o->pong, payload, len);
    }
    o->pong_len = (uint8_t)len;
    o->pong_wanted = true;
}

void qwp_outgoing_ping(struct qwp_outgoing *o)
{
    o->ping_wanted = true;
}

void qwp_outgoing_stop(struct qwp_outgoing *o, uint16_t close_code)
{
    if (o->stopped) {
        return;
    }
    o->stopped = true;
    o->close_wanted = true;
    o->close_code = close_code;
}

static void begin_frame(struct qwp_outgoing *o, enum qwp_ws_opcode opcode,
                        const unsigned char *payload, size_t len)
{
    o->mask = next_mask(o);
    o->header_len = (uint8_t)qwp_ws_header(o->header, opcode, len, o->mask);
    o->header_off = 0;
    o->payload = payload;
    o->payload_len = len;
    o->payload_off = 0;
    o->in_message = opcode == QWP_WS_BINARY;
}

static bool message_waits(const struct qwp_outgoing *o)
{
    return !o->stopped && o->framed_count < o->queued_count;
}

bool qwp_outgoing_has_more(const struct qwp_outgoing *o)
{
    if (qwp_outgoing_in_frame(o)) {
        return true;
    }
    return !o->close_framed &&
           (o->pong_wanted || o->ping_wanted || o->close_wanted || message_waits(o));
}

/* False: nothing to begin. */
static bool begin_next(struct qwp_outgoing *o)
{
    if (o->close_framed) {
        return false;
    }
    if (o->pong_wanted) {
        o->pong_wanted = false;
        memcpy(o->control, o->pong, o->pong_len);
        begin_frame(o, QWP_WS_PONG, o->control, o->pong_len);
    } else if (o->ping_wanted) {
        o->ping_wanted = false;
        o->pinged_count = o->framed_count;
        begin_frame(o, QWP_WS_PING, o->control, 0);
    } else if (message_waits(o)) {
        const struct qwp_outgoing_message *message =
            &o->queue[(uint64_t)o->framed_count % QWP_OUTGOING_MAX];
        begin_frame(o, QWP_WS_BINARY, message->bytes, message->len);
    } else if (o->close_wanted) {
        o->close_wanted = false;
        o->close_framed = true;
        o->control[0] = (unsigned char)(o->close_code >> 8);
        o->control[1] = (unsigned char)o->close_code;
        begin_frame(o, QWP_WS_CLOSE, o->control, CLOSE_CODE_BYTES);
    } else {
        return false;
    }
    return true;
}

static size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t qwp_outgoing_fill(struct qwp_outgoing *o, unsigned char *dst, size_t room)
{
    size_t done = 0;
    while (done < room && (qwp_outgoing_in_frame(o) || begin_next(o))) {
        const size_t header = min_size(room - done, (size_t)o->header_len - (size_t)o->header_off);
        memcpy(dst + done, o->header + o->header_off, header);
        o->header_off = (uint8_t)(o->header_off + header);
        done += header;
        const size_t payload = min_size(room - done, o->payload_len - o->payload_off);
        if (payload > 0) {
            qwp_ws_mask_copy(dst + done, o->payload + o->payload_off, payload, o->mask,
                             o->payload_off);
            o->payload_off += payload;
            done += payload;
        }
        if (!qwp_outgoing_in_frame(o) && o->in_message) {
            o->in_message = false;
            o->queue[(uint64_t)o->framed_count % QWP_OUTGOING_MAX].end_pos = done;
            o->framed_count++;
        }
    }
    return done;
}

void qwp_outgoing_seal_plain(struct qwp_outgoing *o, uint64_t start_pos)
{
    for (; o->sealed_count < o->framed_count; o->sealed_count++) {
        o->queue[(uint64_t)o->sealed_count % QWP_OUTGOING_MAX].end_pos += start_pos;
    }
}

void qwp_outgoing_seal_record(struct qwp_outgoing *o, uint64_t end_pos)
{
    for (; o->sealed_count < o->framed_count; o->sealed_count++) {
        o->queue[(uint64_t)o->sealed_count % QWP_OUTGOING_MAX].end_pos = end_pos;
    }
}

void qwp_outgoing_sent(struct qwp_outgoing *o, uint64_t pos)
{
    while (o->sent_count < o->sealed_count &&
           o->queue[(uint64_t)o->sent_count % QWP_OUTGOING_MAX].end_pos <= pos) {
        o->sent_count++;
    }
}

/* qwp_outgoing: messages and control frames, in order, as the one byte stream that goes out.
 *
 * Messages are borrowed and masked straight from their place into the stream; each is one
 * unfragmented binary frame. Control frames go between messages: a pong first, then a ping, a close
 * after everything. A message passes three counts: queued (it has a sequence), framed (its last
 * byte is in the stream), sent (the kernel has taken it). Only the server's answers to sent ones
 * are believed. */
#ifndef QWP_OUTGOING_H
#define QWP_OUTGOING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "transport/qwp_websocket.h"

enum { QWP_OUTGOING_MAX = 1024 /* messages queued and not yet sent; a power of two */ };
enum { QWP_MASK_POOL = 256 };

struct qwp_outgoing_message {
    const unsigned char *bytes;
    size_t len;
    uint64_t end_pos; /* in what the last fill wrote; when sealed, in the socket's stream */
};

struct qwp_outgoing {
    int64_t queued_count;
    int64_t framed_count;
    int64_t sealed_count; /* framed, and the place of their end is known */
    int64_t sent_count;
    int64_t pinged_count; /* framed before the last ping */
    bool stopped;         /* no further message is begun */

    /* The frame under way; none when header_off == header_len and payload_off == payload_len. */
    const unsigned char *payload;
    size_t payload_len;
    size_t payload_off;
    uint32_t mask;
    uint8_t header_len;
    uint8_t header_off;
    bool in_message;
    bool close_framed;
    unsigned char header[QWP_WS_HEADER_MAX];

    bool pong_wanted;
    bool ping_wanted;
    bool close_wanted;
    uint8_t pong_len;
    uint16_t close_code;
    unsigned char pong[QWP_WS_CONTROL_MAX];
    unsigned char control[QWP_WS_CONTROL_MAX]; /* payload of the control frame under way */

    unsigned masks_left;
    uint32_t masks[QWP_MASK_POOL];
    struct qwp_outgoing_message queue[QWP_OUTGOING_MAX];
};

/* A new connection: sequences start at 0. */
void qwp_outgoing_reset(struct qwp_outgoing *o);

static inline bool qwp_outgoing_is_full(const struct qwp_outgoing *o)
{
    return o->queued_count - o->sent_count == QWP_OUTGOING_MAX;
}

/* Returns its sequence. Not when full. Borrows the bytes until they are framed. */
int64_t qwp_outgoing_push(struct qwp_outgoing *o, const void *bytes, size_t len);
/* The payload is copied; of several pings only the last is answered. */
void qwp_outgoing_pong(struct qwp_outgoing *o, const void *payload, size_t len);
void qwp_outgoing_ping(struct qwp_outgoing *o);
/* Ends with a close frame; messages not begun are dropped. Asked twice: the first code stands. */
void qwp_outgoing_stop(struct qwp_outgoing *o, uint16_t close_code);

/* Inside a frame, or with something to begin. */
bool qwp_outgoing_has_more(const struct qwp_outgoing *o);
static inline bool qwp_outgoing_in_frame(const struct qwp_outgoing *o)
{
    return o->header_off < o->header_len || o->payload_off < o->payload_len;
}

/* Writes up to `room` bytes of the stream; less only when there are no more. */
size_t qwp_outgoing_fill(struct qwp_outgoing *o, unsigned char *dst, size_t room);
/* The last fill stands in the socket's stream from `start_pos` on. */
void qwp_outgoing_seal_plain(struct qwp_outgoing *o, uint64_t start_pos);
/* What was framed since the last seal is in a TLS record that ends at `end_pos`: the server can
 * read none of it before all of the record is there. */
void qwp_outgoing_seal_record(struct qwp_outgoing *o, uint64_t end_pos);
/* The kernel took the stream up to `pos`. */
void qwp_outgoing_sent(struct qwp_outgoing *o, uint64_t pos);

#endif

/* qwp_websocket: WebSocket framing (RFC 6455) as a client needs it: masking and frame headers out,
 * messages and control frames in.
 *
 * Trust:  every byte of the peer is checked: reserved bits, masks, lengths, order of fragments,
 *         control frames, close codes. A message has a bound.
 * Memory: a message that lies whole in the input is handed out in place; others are put together in
 *         a buffer that grows up to the bound and is kept. */
#ifndef QWP_WEBSOCKET_H
#define QWP_WEBSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

enum qwp_ws_opcode {
    QWP_WS_CONTINUATION = 0x0,
    QWP_WS_TEXT = 0x1,
    QWP_WS_BINARY = 0x2,
    QWP_WS_CLOSE = 0x8,
    QWP_WS_PING = 0x9,
    QWP_WS_PONG = 0xa,
};

enum {
    QWP_WS_HEADER_MAX = 14,
    QWP_WS_CONTROL_MAX = 125,
    QWP_WS_CLOSE_NORMAL = 1000,
    QWP_WS_CLOSE_PROTOCOL = 1002,
};

/* Header of a final, masked frame; returns its length. */
size_t qwp_ws_header(unsigned char out[QWP_WS_HEADER_MAX], enum qwp_ws_opcode opcode, uint64_t len,
                     uint32_t mask);

/* Copies and masks. `off` is the place of src[0] in the frame's payload. No overlap. */
void qwp_ws_mask_copy(void *restrict dst, const void *restrict src, size_t len, uint32_t mask,
                      uint64_t off);

struct qwp_ws_event {
    enum qwp_ws_opcode kind;    /* BINARY: a whole message; or a control frame */
    const unsigned char *bytes; /* valid until the next call */
    size_t len;
    uint16_t close_code; /* of a CLOSE, 0 when it has none */
};

struct qwp_ws_reader {
    size_t message_max;
    unsigned char *message;
    size_t message_cap;
    size_t message_len;
    bool assembling; /* between the first and the last fragment of a message */
    bool closed;     /* after a CLOSE: the rest is ignored */

    bool in_payload;
    bool fin;
    uint8_t opcode;
    uint8_t header_len;
    uint8_t control_len;
    uint64_t payload_left;
    unsigned char header[10];
    unsigned char control[QWP_WS_CONTROL_MAX];
};

void qwp_ws_reader_init(struct qwp_ws_reader *reader, size_t message_max);
void qwp_ws_reader_fini(struct qwp_ws_reader *reader);
/* A new connection; keeps the memory. */
void qwp_ws_reader_reset(struct qwp_ws_reader *reader);

/* Reads from *at, which moves on. QWP_OK: *event is set, call again. QWP_AGAIN: all of it was read.
 * QWP_PEER: broken protocol, QWP_LIMIT: a message too large, QWP_NOMEM; the connection is over. */
QWP_MUST_USE enum qwp_result qwp_ws_read(struct qwp_ws_reader *reader, const unsigned char **at,
                                         const unsigned char *end, struct qwp_ws_event *event,
                                         struct qwp_error *err);

#endif

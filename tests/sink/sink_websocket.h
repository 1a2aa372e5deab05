/* sink_websocket: frames of RFC 6455 as a server reads and writes them. */
#ifndef SINK_WEBSOCKET_H
#define SINK_WEBSOCKET_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_result.h"
#include "tests/sink/sink_buffer.h"

enum sink_opcode {
    SINK_OPCODE_BINARY = 0x2,
    SINK_OPCODE_CLOSE = 0x8,
    SINK_OPCODE_PING = 0x9,
    SINK_OPCODE_PONG = 0xa,
};

enum {
    SINK_CLOSE_NORMAL = 1000,
    SINK_CLOSE_GOING_AWAY = 1001,
    SINK_CLOSE_PROTOCOL = 1002,
    SINK_CLOSE_TOO_BIG = 1009,
    SINK_FRAME_HEADER_BYTES_MAX = 14,
};

struct sink_frame {
    enum sink_opcode opcode;
    unsigned char *payload; /* unmasked, in place */
    size_t payload_len;
    size_t frame_len; /* header and payload */
};

/* Looks at the bytes of a client. QWP_OK: one whole frame, unmasked (once: the caller moves on by
 * frame_len). QWP_AGAIN: *wanted bytes are needed before it is worth another look. QWP_PEER: to be
 * closed with *close_code for the reason *why. */
QWP_MUST_USE enum qwp_result sink_frame_read(unsigned char *at, size_t len, size_t payload_max,
                                             struct sink_frame *frame, size_t *wanted,
                                             uint16_t *close_code, const char **why);
/* Appends a frame to `out`. */
void sink_frame_put(struct sink_buffer *out, enum sink_opcode opcode, const void *payload,
                    size_t len);
/* A close frame; `reason` is cut to what fits. */
void sink_frame_put_close(struct sink_buffer *out, uint16_t code, const char *reason);
/* XORs with the mask whose first byte belongs to at[0]. */
void sink_unmask(unsigned char *at, size_t len, const unsigned char mask[4]);

#endif

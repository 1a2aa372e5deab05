#include "tests/sink/sink_websocket.h"

#include <stdbool.h>
#include <string.h>

#include "core/qwp_bytes.h"

enum { FIN = 0x80, RESERVED = 0x70, MASKED = 0x80, CONTROL_BYTES_MAX = 125 };

/* Sixteen bytes the compiler keeps in one vector register. */
typedef uint64_t block __attribute__((vector_size(16)));

void sink_unmask(unsigned char *at, size_t len, const unsigned char mask[4])
{
    const uint64_t word = (uint64_t)qwp_load_u32(mask) << 32 | qwp_load_u32(mask);
    const block key = {word, word};
    size_t i = 0;
    for (; i + 4 * sizeof key <= len; i += 4 * sizeof key) {
        block v[4];
        memcpy(v, at + i, sizeof v);
        v[0] ^= key;
        v[1] ^= key;
        v[2] ^= key;
        v[3] ^= key;
        memcpy(at + i, v, sizeof v);
    }
    for (; i < len; i++) {
        at[i] = (unsigned char)(at[i] ^ mask[i & 3]);
    }
}

struct refusal {
    uint16_t *code;
    const char **why;
};

static enum qwp_result refuse(struct refusal refusal, uint16_t code, const char *why)
{
    *refusal.code = code;
    *refusal.why = why;
    return QWP_PEER;
}

/* The first two bytes. */
static enum qwp_result judge_head(const unsigned char *at, struct refusal refusal)
{
    const unsigned opcode = at[0] & 0x0f;
    if ((at[0] & RESERVED) != 0) {
        return refuse(refusal, SINK_CLOSE_PROTOCOL, "reserved bits are set");
    }
    if ((at[1] & MASKED) == 0) {
        return refuse(refusal, SINK_CLOSE_PROTOCOL, "frames of a client are masked");
    }
    if (opcode == SINK_OPCODE_BINARY) {
        return (at[0] & FIN) != 0
                   ? QWP_OK
                   : refuse(refusal, SINK_CLOSE_PROTOCOL, "messages come unfragmented");
    }
    if (opcode != SINK_OPCODE_CLOSE && opcode != SINK_OPCODE_PING && opcode != SINK_OPCODE_PONG) {
        return refuse(refusal, SINK_CLOSE_PROTOCOL, "only binary messages are taken");
    }
    if ((at[0] & FIN) == 0 || (at[1] & 0x7f) > CONTROL_BYTES_MAX) {
        return refuse(refusal, SINK_CLOSE_PROTOCOL, "control frame fragmented or too long");
    }
    return QWP_OK;
}

/* Length field and its own length; the bytes are there. */
static bool payload_len(const unsigned char *at, uint64_t *len)
{
    const unsigned small = at[1] & 0x7f;
    if (small < 126) {
        *len = small;
        return true;
    }
    if (small == 126) {
        *len = (uint64_t)at[2] << 8 | at[3];
        return *len >= 126;
    }
    *len = __builtin_bswap64(qwp_load_u64(at + 2));
    return *len > UINT16_MAX;
}

static size_t header_len(const unsigned char *at)
{
    const unsigned small = at[1] & 0x7f;
    return 2 + (small < 126 ? 0u : small == 126 ? 2u : 8u) + 4;
}

enum qwp_result sink_frame_read(unsigned char *at, size_t len, size_t payload_max,
                                struct sink_frame *frame, size_t *wanted, uint16_t *close_code,
                                const char **why)
{
    const struct refusal refusal = {close_code, why};
    if (len < 2) {
        *wanted = 2;
        return QWP_AGAIN;
    }
    const enum qwp_result result = judge_head(at, refusal);
    if (result != QWP_OK) {
        return result;
    }
    const size_t header = header_len(at);
    if (len < header) {
        *wanted = header;
        return QWP_AGAIN;
    }
    uint64_t payload;
    if (!payload_len(at, &payload)) {
        return refuse(refusal, SINK_CLOSE_PROTOCOL, "length not in its shortest form");
    }
    if (payload > payload_max) {
        return refuse(refusal, SINK_CLOSE_TOO_BIG, "message too large");
    }
    if (len < header + payload) {
        *wanted = header + (size_t)payload;
        return QWP_AGAIN;
    }
    *frame = (struct sink_frame){
        .opcode = (enum sink_opcode)(at[0] & 0x0f),
        .payload = at + header,
        .payload_len = (size_t)payload,
        .frame_len = header + (size_t)payload,
    };
    sink_unmask(frame->payload, frame->payload_len, at + header - 4);
    return QWP_OK;
}

void sink_frame_put(struct sink_buffer *out, enum sink_opcode opcode, const void *payload,
                    size_t len)
{
    unsigned char header[10] = {(unsigned char)(FIN | opcode)};
    size_t header_bytes = 2;
    if (len < 126) {
        header[1] = (unsigned char)len;
    } else if (len <= UINT16_MAX) {
        header[1] = 126;
        header[2] = (unsigned char)(len >> 8);
        header[3] = (unsigned char)len;
        header_bytes = 4;
    } else {
        header[1] = 127;
        qwp_store_u64(header + 2, __builtin_bswap64(len));
        header_bytes = 10;
    }
    sink_buffer_put(out, header, header_bytes);
    sink_buffer_put(out, payload, len);
}

void sink_frame_put_close(struct sink_buffer *out, uint16_t code, const char *reason)
{
    unsigned char payload[CONTROL_BYTES_MAX] = {(unsigned char)(code >> 8), (unsigned char)code};
    size_t len = strlen(reason);
    len = len < sizeof payload - 2 ? len : sizeof payload - 2;
    memcpy(payload + 2, reason, len);
    sink_frame_put(out, SINK_OPCODE_CLOSE, payload, len + 2);
}

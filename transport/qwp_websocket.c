#include "transport/qwp_websocket.h"

#include "core/qwp_bytes.h"
#include "core/wire/qwp_names.h"

#include <stdlib.h>
#include <string.h>

enum { FIN_BIT = 0x80, RESERVED_BITS = 0x70, MASK_BIT = 0x80, LEN_16 = 126, LEN_64 = 127 };
enum { MESSAGE_CAP_MIN = 4096 };

static void store_big_endian(unsigned char *out, uint64_t v, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++) {
        out[i] = (unsigned char)(v >> (8 * (bytes - 1 - i)));
    }
}

static uint64_t load_big_endian(const unsigned char *at, unsigned bytes)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < bytes; i++) {
        v = v << 8 | at[i];
    }
    return v;
}

size_t qwp_ws_header(unsigned char out[QWP_WS_HEADER_MAX], enum qwp_ws_opcode opcode, uint64_t len,
                     uint32_t mask)
{
    out[0] = (unsigned char)(FIN_BIT | (unsigned)opcode);
    size_t at = 2;
    if (len < LEN_16) {
        out[1] = (unsigned char)(MASK_BIT | len);
    } else if (len <= UINT16_MAX) {
        out[1] = MASK_BIT | LEN_16;
        store_big_endian(out + at, len, 2);
        at += 2;
    } else {
        out[1] = MASK_BIT | LEN_64;
        store_big_endian(out + at, len, 8);
        at += 8;
    }
    qwp_store_u32(out + at, mask);
    return at + 4;
}

/* Sixteen bytes a step by the compiler's vectors, which every target has; four steps in a row hide
 * the latency of the loads. */
typedef uint32_t vector __attribute__((vector_size(16)));

static inline void mask_vector(unsigned char *dst, const unsigned char *src, vector mask)
{
    vector v;
    memcpy(&v, src, sizeof v);
    v ^= mask;
    memcpy(dst, &v, sizeof v);
}

void qwp_ws_mask_copy(void *restrict dst, const void *restrict src, size_t len, uint32_t mask,
                      uint64_t off)
{
    const unsigned turn = 8 * (unsigned)(off & 3);
    const uint32_t turned = turn == 0 ? mask : mask >> turn | mask << (32 - turn);
    const vector wide = {turned, turned, turned, turned};
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (; len >= 64; len -= 64, to += 64, from += 64) {
        mask_vector(to, from, wide);
        mask_vector(to + 16, from + 16, wide);
        mask_vector(to + 32, from + 32, wide);
        mask_vector(to + 48, from + 48, wide);
    }
    for (; len >= 4; len -= 4, to += 4, from += 4) {
        qwp_store_u32(to, qwp_load_u32(from) ^ turned);
    }
    for (size_t i = 0; i < len; i++) {
        to[i] = from[i] ^ (unsigned char)(turned >> (8 * i));
    }
}

void qwp_ws_reader_init(struct qwp_ws_reader *reader, size_t message_max)
{
    *reader = (struct qwp_ws_reader){.message_max = message_max};
}

void qwp_ws_reader_fini(struct qwp_ws_reader *reader)
{
    free(reader->message);
    reader->message = NULL;
}

void qwp_ws_reader_reset(struct qwp_ws_reader *reader)
{
    unsigned char *message = reader->message;
    const size_t cap = reader->message_cap;
    qwp_ws_reader_init(reader, reader->message_max);
    reader->message = message;
    reader->message_cap = cap;
}

static bool is_control(uint8_t opcode)
{
    return (opcode & 0x8) != 0;
}

/* The first two bytes are there. */
static enum qwp_result check_header(const struct qwp_ws_reader *r, struct qwp_error *err)
{
    const uint8_t opcode = r->header[0] & 0x0f;
    const uint8_t len = r->header[1] & 0x7f;
    if ((r->header[0] & RESERVED_BITS) != 0) {
        return qwp_fail(err, QWP_PEER, 0, "WebSocket: reserved bits in a frame header (0x%02x)",
                        r->header[0]);
    }
    if ((r->header[1] & MASK_BIT) != 0) {
        return qwp_fail(err, QWP_PEER, 0, "WebSocket: a masked frame from a server");
    }
    switch (opcode) {
    case QWP_WS_CONTINUATION:
        if (!r->assembling) {
            return qwp_fail(err, QWP_PEER, 0, "WebSocket: a continuation without a beginning");
        }
        return QWP_OK;
    case QWP_WS_BINARY:
        if (r->assembling) {
            return qwp_fail(err, QWP_PEER, 0, "WebSocket: a new message inside a fragmented one");
        }
        return QWP_OK;
    case QWP_WS_CLOSE:
    case QWP_WS_PING:
    case QWP_WS_PONG:
        if ((r->header[0] & FIN_BIT) == 0 || len > QWP_WS_CONTROL_MAX) {
            return qwp_fail(err, QWP_PEER, 0, "WebSocket: a fragmented or too long control frame");
        }
        return QWP_OK;
    default:
        return qwp_fail(err, QWP_PEER, 0,
                        "WebSocket: opcode %u where only binary messages are expected", opcode);
    }
}

/* Bytes of a whole header, by its second byte. */
static size_t header_bytes(uint8_t second)
{
    const uint8_t len = second & 0x7f;
    return len == LEN_16 ? 4 : len == LEN_64 ? 10 : 2;
}

static enum qwp_result begin_payload(struct qwp_ws_reader *r, struct qwp_error *err)
{
    uint64_t len = r->header[1] & 0x7f;
    if (len == LEN_16) {
        len = load_big_endian(r->header + 2, 2);
        if (len < LEN_16) {
            return qwp_fail(err, QWP_PEER, 0, "WebSocket: a length in a longer form than needed");
        }
    } else if (len == LEN_64) {
        len = load_big_endian(r->header + 2, 8);
        if (len <= UINT16_MAX || len > INT64_MAX) {
            return qwp_fail(err, QWP_PEER, 0, "WebSocket: an impossible 64-bit length");
        }
    }
    r->fin = (r->header[0] & FIN_BIT) != 0;
    r->opcode = r->header[0] & 0x0f;
    r->payload_left = len;
    r->control_len = 0;
    r->in_payload = true;
    r->header_len = 0;
    if (is_control(r->opcode)) {
        return QWP_OK;
    }
    if (r->opcode == QWP_WS_BINARY) {
        r->message_len = 0;
    }
    if (len > r->message_max - r->message_len) {
        return qwp_fail(err, QWP_LIMIT, 0, "WebSocket: a message of more than %zu bytes",
                        r->message_max);
    }
    return QWP_OK;
}

/* QWP_AGAIN: the header is not whole yet. */
static enum qwp_result read_header(struct qwp_ws_reader *r, const unsigned char **at,
                                   const unsigned char *end, struct qwp_error *err)
{
    while (*at < end) {
        r->header[r->header_len++] = *(*at)++;
        if (r->header_len < 2) {
            continue;
        }
        if (r->header_len == 2) {
            const enum qwp_result result = check_header(r, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        if (r->header_len == header_bytes(r->header[1])) {
            return begin_payload(r, err);
        }
    }
    return QWP_AGAIN;
}

static enum qwp_result append(struct qwp_ws_reader *r, const unsigned char *bytes, size_t len,
                              struct qwp_error *err)
{
    const size_t need = r->message_len + len;
    if (need > r->message_cap) {
        size_t cap = r->message_cap < MESSAGE_CAP_MIN ? MESSAGE_CAP_MIN : r->message_cap;
        while (cap < need) {
            cap *= 2;
        }
        unsigned char *grown = realloc(r->message, cap);
        if (grown == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "WebSocket: no memory for an answer of %zu bytes",
                            need);
        }
        r->message = grown;
        r->message_cap = cap;
    }
    if (len > 0) {
        memcpy(r->message + r->message_len, bytes, len);
    }
    r->message_len = need;
    return QWP_OK;
}

static bool close_code_is_valid(uint16_t code)
{
    return (code >= 1000 && code <= 1003) || (code >= 1007 && code <= 1014) ||
           (code >= 3000 && code <= 4999);
}

static enum qwp_result finish_control(struct qwp_ws_reader *r, struct qwp_ws_event *event,
                                      struct qwp_error *err)
{
    *event = (struct qwp_ws_event){
        .kind = (enum qwp_ws_opcode)r->opcode, .bytes = r->control, .len = r->control_len};
    if (r->opcode != QWP_WS_CLOSE) {
        return QWP_OK;
    }
    r->closed = true;
    if (r->control_len == 0) {
        return QWP_OK;
    }
    if (r->control_len == 1) {
        return qwp_fail(err, QWP_PEER, 0, "WebSocket: a close frame with half a code");
    }
    event->close_code = (uint16_t)load_big_endian(r->control, 2);
    event->bytes += 2;
    event->len -= 2;
    if (!close_code_is_valid(event->close_code)) {
        return qwp_fail(err, QWP_PEER, 0, "WebSocket: close code %u is not allowed on the wire",
                        event->close_code);
    }
    if (!qwp_utf8_valid(event->bytes, event->len)) {
        return qwp_fail(err, QWP_PEER, 0, "WebSocket: the reason of a close is not UTF-8");
    }
    return QWP_OK;
}

/* QWP_OK: *event is set. QWP_AGAIN: go on with the next bytes or the next frame. */
static enum qwp_result read_data(struct qwp_ws_reader *r, const unsigned char **at, size_t n,
                                 struct qwp_ws_event *event, struct qwp_error *err)
{
    const bool whole = r->message_len == 0 && !r->assembling && r->fin && n == r->payload_left;
    const unsigned char *bytes = *at;
    *at += n;
    r->payload_left -= n;
    if (!whole) {
        const enum qwp_result result = append(r, bytes, n, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (r->payload_left > 0) {
        return QWP_AGAIN;
    }
    r->in_payload = false;
    r->assembling = !r->fin;
    if (!r->fin) {
        return QWP_AGAIN;
    }
    *event = (struct qwp_ws_event){
        .kind = QWP_WS_BINARY,
        .bytes = whole ? bytes : r->message,
        .len = whole ? n : r->message_len,
    };
    return QWP_OK;
}

static enum qwp_result read_control(struct qwp_ws_reader *r, const unsigned char **at, size_t n,
                                    struct qwp_ws_event *event, struct qwp_error *err)
{
    memcpy(r->control + r->control_len, *at, n);
    r->control_len = (uint8_t)(r->control_len + n);
    *at += n;
    r->payload_left -= n;
    if (r->payload_left > 0) {
        return QWP_AGAIN;
    }
    r->in_payload = false;
    return finish_control(r, event, err);
}

enum qwp_result qwp_ws_read(struct qwp_ws_reader *reader, const unsigned char **at,
                            const unsigned char *end, struct qwp_ws_event *event,
                            struct qwp_error *err)
{
    struct qwp_ws_reader *r = reader;
    if (r->closed) {
        *at = end;
        return QWP_AGAIN;
    }
    for (;;) {
        enum qwp_result result;
        if (!r->in_payload) {
            result = read_header(r, at, end, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        const size_t left = (size_t)(end - *at);
        const size_t n = left < r->payload_left ? left : (size_t)r->payload_left;
        if (n == 0 && r->payload_left > 0) {
            return QWP_AGAIN;
        }
        result = is_control(r->opcode) ? read_control(r, at, n, event, err)
                                       : read_data(r, at, n, event, err);
        if (result != QWP_AGAIN) {
            return result;
        }
    }
}

#include "core/wire/qwp_message.h"

#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

/* Offsets of the message header; qwp_wire.h has the table. */
enum { VERSION_OFF = 4, FLAGS_OFF = 5, TABLE_COUNT_OFF = 6, PAYLOAD_LEN_OFF = 8 };

unsigned char *qwp_message_begin(unsigned char *dst, uint8_t flags)
{
    qwp_store_u32(dst, QWP_WIRE_MAGIC);
    dst[VERSION_OFF] = QWP_WIRE_VERSION;
    dst[FLAGS_OFF] = flags;
    qwp_store_u16(dst + TABLE_COUNT_OFF, 0);
    qwp_store_u32(dst + PAYLOAD_LEN_OFF, 0);
    return dst + QWP_HEADER_BYTES;
}

void qwp_message_finish(unsigned char *message, uint16_t table_count, size_t message_len)
{
    QWP_ASSERT(message_len >= QWP_HEADER_BYTES);
    QWP_ASSERT(message_len <= QWP_MESSAGE_BYTES_MAX);
    qwp_store_u16(message + TABLE_COUNT_OFF, table_count);
    qwp_store_u32(message + PAYLOAD_LEN_OFF, (uint32_t)(message_len - QWP_HEADER_BYTES));
}

size_t qwp_delta_size(uint32_t start, uint32_t count, qwp_symbol_text_fn text_of, const void *dict)
{
    size_t size = qwp_varint_size(start) + qwp_varint_size(count);
    for (uint32_t i = 0; i < count; i++) {
        const struct qwp_name text = text_of(dict, start + i);
        size += qwp_varint_size(text.len) + text.len;
    }
    return size;
}

unsigned char *qwp_delta_put(unsigned char *at, uint32_t start, uint32_t count,
                             qwp_symbol_text_fn text_of, const void *dict)
{
    at = qwp_varint_put(at, start);
    at = qwp_varint_put(at, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct qwp_name text = text_of(dict, start + i);
        at = qwp_varint_put(at, text.len);
        if (text.len > 0) { /* the empty symbol's text may be NULL */
            memcpy(at, text.text, text.len);
        }
        at += text.len;
    }
    return at;
}

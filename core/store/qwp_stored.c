#include "core/store/qwp_stored.h"

#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

static bool is_message(const unsigned char *payload, size_t len)
{
    return len >= QWP_HEADER_BYTES && qwp_load_u32(payload) == QWP_WIRE_MAGIC;
}

bool qwp_stored_is_deferred(const unsigned char *payload, size_t len)
{
    return is_message(payload, len) && (payload[5] & QWP_FLAG_DEFER_COMMIT) != 0;
}

/* *at: behind the two numbers. */
static enum qwp_stored_delta delta_begin(const unsigned char *payload, size_t len, uint64_t *start,
                                         uint64_t *end, const unsigned char **at)
{
    if (!is_message(payload, len)) {
        return QWP_STORED_NO_MESSAGE;
    }
    if ((payload[5] & QWP_FLAG_DELTA_DICT) == 0) {
        return QWP_STORED_NO_DELTA;
    }
    const unsigned char *const message_end = payload + len;
    uint64_t count;
    const unsigned char *from = qwp_varint_get(payload + QWP_HEADER_BYTES, message_end, start);
    from = from == NULL ? NULL : qwp_varint_get(from, message_end, &count);
    if (from == NULL || count > (uint64_t)(message_end - from) || *start > QWP_DICT_IDS_MAX) {
        return QWP_STORED_BAD;
    }
    *end = *start + count;
    *at = from;
    return QWP_STORED_DELTA;
}

enum qwp_stored_delta qwp_stored_delta_look(const unsigned char *payload, size_t len,
                                            uint64_t *start, uint64_t *end)
{
    const unsigned char *at;
    return delta_begin(payload, len, start, end, &at);
}

static bool is_known(const struct qwp_dict *dict, uint64_t id, const unsigned char *text,
                     uint64_t len)
{
    const struct qwp_name known = qwp_dict_text(dict, (uint32_t)id);
    return known.len == len && memcmp(known.text, text, known.len) == 0;
}

enum qwp_result qwp_stored_delta_follow(struct qwp_dict *dict, const unsigned char *payload,
                                        size_t len, uint32_t *heals, bool *gap)
{
    const unsigned char *at;
    uint64_t start;
    uint64_t end;
    *gap = false;
    switch (delta_begin(payload, len, &start, &end, &at)) {
    case QWP_STORED_NO_MESSAGE:
    case QWP_STORED_NO_DELTA:
        return QWP_OK;
    case QWP_STORED_BAD:
        return QWP_CORRUPT;
    case QWP_STORED_DELTA:
        break;
    }
    const uint32_t count = qwp_dict_count(dict);
    *gap = start > count || (heals == NULL && end > count);
    for (uint64_t id = start; id < end && !*gap; id++) {
        uint64_t text_len;
        at = qwp_varint_get(at, payload + len, &text_len);
        if (at == NULL || text_len > (uint64_t)(payload + len - at)) {
            return QWP_CORRUPT;
        }
        if (id < count && !is_known(dict, id, at, text_len)) {
            return QWP_CORRUPT;
        }
        if (id >= count) {
            const enum qwp_result result =
                qwp_dict_append(dict, (const char *)at, (size_t)text_len);
            if (result != QWP_OK) {
                return result;
            }
            ++*heals;
        }
        at += text_len;
    }
    return QWP_OK;
}

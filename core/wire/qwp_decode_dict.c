/* The dictionary of a connection and the delta section that makes it grow. */
#include <string.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_decode_internal.h"
#include "core/wire/qwp_names.h"

void decode_dict_cut(struct qwp_decode_dict *dict, uint32_t count)
{
    QWP_ASSERT(count <= dict->count);
    dict->count = count;
    dict->text_bytes = count == 0 ? 0 : dict->ends[count - 1];
}

struct qwp_name qwp_decoder_symbol(const struct qwp_decoder *decoder, uint32_t id)
{
    const struct qwp_decode_dict *dict = &decoder->dict;
    QWP_DEBUG_ASSERT(id < qwp_decoder_symbol_count(decoder));
    if (decoder->options.symbol_text != NULL) {
        return decoder->options.symbol_text(decoder->options.symbols, id);
    }
    const uint32_t start = id == 0 ? 0 : dict->ends[id - 1];
    return (struct qwp_name){(const char *)dict->text + start, dict->ends[id] - start};
}

/* A text for an id we hold already: must be the same. */
static enum qwp_result known_symbol(struct decode_pass *pass, uint32_t id,
                                    const unsigned char *text, uint64_t len)
{
    const struct qwp_name known = qwp_decoder_symbol(pass->decoder, id);
    if (known.len == len && (len == 0 || memcmp(known.text, text, len) == 0)) {
        return QWP_OK;
    }
    return decode_fail(pass, QWP_STATUS_PARSE_ERROR, text,
                       "symbol %u is registered as '%.*s' and comes again with another text", id,
                       (int)(known.len < 64 ? known.len : 64), known.text);
}

static enum qwp_result new_symbol(struct decode_pass *pass, const unsigned char *text, uint64_t len)
{
    struct qwp_decode_dict *dict = &pass->decoder->dict;
    if (!qwp_utf8_valid(text, len)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, text, "symbol %u is not valid UTF-8",
                           dict->count);
    }
    if (len > pass->decoder->options.symbol_bytes_max - dict->text_bytes) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, text,
                           "symbols of more than %u bytes together",
                           pass->decoder->options.symbol_bytes_max);
    }
    enum qwp_result result = decode_reserve((void **)&dict->text, &dict->text_room,
                                            (size_t)dict->text_bytes + len + 1, 1);
    if (result == QWP_OK) {
        result = decode_reserve((void **)&dict->ends, &dict->ends_room, (size_t)dict->count + 1,
                                sizeof *dict->ends);
    }
    if (result != QWP_OK) {
        return result;
    }
    if (len > 0) {
        memcpy(dict->text + dict->text_bytes, text, len);
    }
    dict->text_bytes += (uint32_t)len;
    dict->ends[dict->count++] = dict->text_bytes;
    return QWP_OK;
}

enum qwp_result decode_delta(struct decode_pass *pass, uint32_t *start, uint32_t *count)
{
    const struct qwp_decode_dict *dict = &pass->decoder->dict;
    const bool elsewhere = pass->decoder->options.symbol_text != NULL;
    const uint32_t known_count = qwp_decoder_symbol_count(pass->decoder);
    const unsigned char *at = pass->at;
    const uint64_t symbols_max = pass->decoder->options.symbols_max;
    uint64_t first;
    uint64_t delta_count = 0;
    enum qwp_result result = decode_varint(pass, symbols_max, "first id of the delta", &first);
    if (result == QWP_OK) {
        result = decode_varint(pass, symbols_max - first, "number of symbols in the delta",
                               &delta_count);
    }
    if (result != QWP_OK) {
        return result;
    }
    if (first > known_count || (elsewhere && first + delta_count > known_count)) {
        return decode_fail(pass, QWP_STATUS_DICTIONARY_GAP, at,
                           "delta of %llu begins at symbol %llu, the connection has %u",
                           (unsigned long long)delta_count, (unsigned long long)first, known_count);
    }
    for (uint64_t i = 0; i < delta_count; i++) {
        uint64_t len;
        result = decode_varint(pass, UINT32_MAX, "length of a symbol", &len);
        const unsigned char *text = pass->at;
        if (result == QWP_OK) {
            result = decode_skip(pass, len, "text of a symbol");
        }
        if (result == QWP_OK && !elsewhere) {
            result = first + i < dict->count ? known_symbol(pass, (uint32_t)(first + i), text, len)
                                             : new_symbol(pass, text, len);
        }
        if (result != QWP_OK) {
            return result;
        }
    }
    *start = (uint32_t)first;
    *count = (uint32_t)delta_count;
    return QWP_OK;
}

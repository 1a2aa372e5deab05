#include "sidecar/qwp_source_symbols.h"

#include <stdlib.h>

#include "core/wire/qwp_encode.h"

#define UNSET UINT32_C(0x80000000)

enum { CAPACITY_MIN = 256, PLACE_BYTES = 8 };

void qwp_source_symbols_fini(struct qwp_source_symbols *symbols)
{
    free(symbols->codes);
    free(symbols->places);
    *symbols = (struct qwp_source_symbols){0};
}

void qwp_source_symbols_share(struct qwp_source_symbols *symbols, uint32_t count, uint64_t bytes)
{
    symbols->share = count;
    symbols->share_bytes = bytes;
}

void qwp_source_symbols_reset(struct qwp_source_symbols *symbols)
{
    for (uint32_t i = 0; i < symbols->count; i++) {
        symbols->codes[i] = qwp_symbol_code(0);
        symbols->places[i] |= UNSET;
    }
    symbols->unset = symbols->count;
    symbols->brought = 0;
    symbols->brought_bytes = 0;
}

static bool grow(struct qwp_source_symbols *symbols)
{
    const uint32_t capacity = symbols->capacity == 0 ? CAPACITY_MIN : symbols->capacity * 2;
    uint32_t *codes = realloc(symbols->codes, capacity * sizeof *codes);
    if (codes != NULL) {
        symbols->codes = codes;
    }
    uint32_t *places = realloc(symbols->places, capacity * sizeof *places);
    if (places != NULL) {
        symbols->places = places;
    }
    if (codes == NULL || places == NULL) {
        return false;
    }
    symbols->capacity = capacity;
    return true;
}

void qwp_source_symbols_unit(struct qwp_source_symbols *symbols)
{
    symbols->may_bring = symbols->share == 0 || (symbols->brought < symbols->share &&
                                                 symbols->brought_bytes < symbols->share_bytes);
}

enum qwp_result qwp_source_symbols_intern(struct qwp_source_symbols *symbols, struct qwp_dict *dict,
                                          const char *text, size_t len, uint32_t *code)
{
    uint32_t id;
    if (!symbols->may_bring) {
        if (!qwp_dict_find(dict, text, len, &id)) {
            return QWP_AGAIN;
        }
        *code = qwp_symbol_code(id);
        return QWP_OK;
    }
    const uint32_t before = qwp_dict_count(dict);
    const enum qwp_result result = qwp_dict_intern(dict, text, len, &id);
    if (result != QWP_OK) {
        return result == QWP_LIMIT ? QWP_AGAIN : result; /* the next generation has room */
    }
    if (id >= before) {
        symbols->brought++;
        symbols->brought_bytes += len;
        symbols->brought_in_all++;
    }
    *code = qwp_symbol_code(id);
    return QWP_OK;
}

enum qwp_result qwp_source_symbols_define(struct qwp_source_symbols *symbols, struct qwp_dict *dict,
                                          uint64_t pos, const char *text, size_t len,
                                          struct qwp_error *err)
{
    if (symbols->count == symbols->capacity && !grow(symbols)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u symbols", symbols->count + 1);
    }
    uint32_t code = qwp_symbol_code(0);
    uint32_t place = (uint32_t)(pos / PLACE_BYTES) | UNSET;
    qwp_source_symbols_unit(symbols);
    if (symbols->is_live) {
        const enum qwp_result result = qwp_source_symbols_intern(symbols, dict, text, len, &code);
        if (result == QWP_OK) {
            place &= ~UNSET;
        } else if (result != QWP_AGAIN) {
            return qwp_fail(err, result, 0, "no memory for a symbol of %zu bytes", len);
        }
    }
    symbols->unset += (place & UNSET) != 0;
    symbols->codes[symbols->count] = code;
    symbols->places[symbols->count++] = place;
    return QWP_OK;
}

enum qwp_result qwp_source_symbols_use(struct qwp_source_symbols *symbols, struct qwp_dict *dict,
                                       const struct qwp_ring_rx *rx, uint32_t index,
                                       unsigned char *entry, struct qwp_error *err)
{
    const uint64_t pos = (uint64_t)(symbols->places[index] & ~UNSET) * PLACE_BYTES;
    struct qwp_ring_def def;
    enum qwp_result result = qwp_ring_symbol_at(rx, pos, entry, &def, err);
    if (result != QWP_OK) {
        return result;
    }
    result =
        qwp_source_symbols_intern(symbols, dict, def.text, def.text_len, &symbols->codes[index]);
    if (result == QWP_OK) {
        symbols->places[index] &= ~UNSET;
        symbols->unset--;
    } else if (result != QWP_AGAIN) {
        return qwp_fail(err, result, 0, "no memory for a symbol of %u bytes", def.text_len);
    }
    return result;
}

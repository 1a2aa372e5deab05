/* The data of one column: where its values are, and whether they may be what they are. */
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bits.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode_internal.h"
#include "core/wire/qwp_gorilla_read.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_varint.h"

uint32_t decode_value_width(uint8_t type, uint8_t parameter)
{
    switch (type) {
    case QWP_TYPE_GEOHASH:
        return (parameter + 7u) / 8u;
    case QWP_TYPE_BOOLEAN:
    case QWP_TYPE_SYMBOL:
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        return 0;
    default:
        return qwp_type_field_bytes(type); /* the wire has the widths of the record */
    }
}

/* Whether the bits beyond `count` in the last byte are 0. */
static bool padding_clear(const unsigned char *bits, uint64_t count)
{
    return count % 8 == 0 || bits[count / 8] >> (count % 8) == 0;
}

static enum qwp_result open_null_section(struct decode_pass *pass, struct qwp_column *column)
{
    const uint32_t rows = column->row_count;
    enum qwp_result result = decode_skip(pass, 1, "null flag");
    if (result != QWP_OK) {
        return result;
    }
    column->value_count = rows;
    column->bitmap = NULL;
    if (pass->at[-1] == 0) {
        return QWP_OK;
    }
    const uint32_t bytes = (rows + 7) / 8;
    column->bitmap = pass->at;
    result = decode_skip(pass, bytes, "null bitmap");
    if (result != QWP_OK) {
        return result;
    }
    if (!padding_clear(column->bitmap, rows)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "null bitmap has bits set beyond its %u rows", rows);
    }
    column->value_count -= qwp_bits_count(column->bitmap, rows);
    return QWP_OK;
}

static enum qwp_result open_geohash(struct decode_pass *pass, struct qwp_column *column)
{
    const unsigned char *at = pass->at;
    uint64_t bits;
    const enum qwp_result result =
        decode_varint(pass, QWP_GEOHASH_BITS_MAX, "precision in bits", &bits);
    if (result != QWP_OK) {
        return result;
    }
    if (bits == 0) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, at, "precision of 0 bits");
    }
    column->parameter = (uint8_t)bits;
    return QWP_OK;
}

static enum qwp_result open_decimal(struct decode_pass *pass, struct qwp_column *column,
                                    unsigned scale_max)
{
    const enum qwp_result result = decode_skip(pass, 1, "scale");
    if (result != QWP_OK) {
        return result;
    }
    column->parameter = pass->at[-1];
    if (column->parameter > scale_max) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1, "scale %u, at most %u",
                           column->parameter, scale_max);
    }
    return QWP_OK;
}

static enum qwp_result open_timestamp(struct decode_pass *pass, struct qwp_column *column)
{
    if ((pass->flags & QWP_FLAG_GORILLA) == 0) {
        return QWP_OK;
    }
    const enum qwp_result result = decode_skip(pass, 1, "encoding byte");
    if (result != QWP_OK) {
        return result;
    }
    if (pass->at[-1] > 1) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "encoding 0x%02x, known are 0 (raw) and 1 (Gorilla)", pass->at[-1]);
    }
    column->gorilla = pass->at[-1] == 1;
    return QWP_OK;
}

enum qwp_result decode_column_open(struct decode_pass *pass, struct qwp_column *column)
{
    enum qwp_result result = open_null_section(pass, column);
    if (result != QWP_OK) {
        return result;
    }
    switch (column->type) {
    case QWP_TYPE_GEOHASH:
        result = open_geohash(pass, column);
        break;
    case QWP_TYPE_DECIMAL64:
        result = open_decimal(pass, column, QWP_DECIMAL64_SCALE_MAX);
        break;
    case QWP_TYPE_DECIMAL128:
        result = open_decimal(pass, column, QWP_DECIMAL128_SCALE_MAX);
        break;
    case QWP_TYPE_DECIMAL256:
        result = open_decimal(pass, column, QWP_DECIMAL256_SCALE_MAX);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        result = open_timestamp(pass, column);
        break;
    case QWP_TYPE_SYMBOL:
        if ((pass->flags & QWP_FLAG_DELTA_DICT) == 0) {
            result = decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                                 "symbols need the flag DELTA_SYMBOL_DICT (0x%02x)",
                                 QWP_FLAG_DELTA_DICT);
        }
        break;
    default:
        break;
    }
    column->values = pass->at;
    column->message_end = pass->end;
    return result;
}

static enum qwp_result check_booleans(struct decode_pass *pass, const struct qwp_column *column)
{
    const unsigned char *bits = pass->at;
    const enum qwp_result result = decode_skip(pass, (column->value_count + 7) / 8, "values");
    if (result == QWP_OK && pass->deep && !padding_clear(bits, column->value_count)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "bits set beyond the last of %u values", column->value_count);
    }
    return result;
}

static enum qwp_result symbol_refused(struct decode_pass *pass, uint32_t index)
{
    uint64_t id;
    if (qwp_varint_get(pass->at, pass->end, &id) == NULL) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "value %u: no varint within the message", index);
    }
    return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                       "value %u: symbol %llu, the connection has %u", index,
                       (unsigned long long)id, qwp_decoder_symbol_count(pass->decoder));
}

/* Ids of one byte, eight at a time, as far as they go and may go. */
static uint32_t skip_short_symbols(struct decode_pass *pass, uint32_t count)
{
    const uint32_t known = qwp_decoder_symbol_count(pass->decoder);
    /* Added to a byte below 0x80, it carries into the top bit when the byte is `known` or more. */
    const uint64_t lift = UINT64_C(0x0101010101010101) * (known < 0x80 ? 0x80 - known : 0);
    const uint64_t top = UINT64_C(0x8080808080808080);
    uint32_t done = 0;
    while (count - done >= 8 && decode_left(pass) >= 8) {
        const uint64_t word = qwp_load_u64(pass->at);
        if ((word & top) != 0 || ((word + lift) & top) != 0) {
            break;
        }
        pass->at += 8;
        done += 8;
    }
    return done;
}

static enum qwp_result check_symbols(struct decode_pass *pass, const struct qwp_column *column)
{
    const uint32_t known = qwp_decoder_symbol_count(pass->decoder);
    const uint32_t count = column->value_count;
    for (uint32_t i = 0; i < count;) {
        i += skip_short_symbols(pass, count - i);
        /* What stopped it, or the rest: one by one for a while. */
        const uint32_t stop = count - i > 32 ? i + 32 : count;
        for (; i < stop; i++) {
            uint64_t id;
            const unsigned char *after = qwp_varint_get(pass->at, pass->end, &id);
            if (after == NULL || id >= known) {
                return symbol_refused(pass, i);
            }
            pass->at = after;
        }
    }
    return QWP_OK;
}

/* Each value for itself must be UTF-8: the whole is, and no value starts inside a sequence. */
static enum qwp_result check_text(struct decode_pass *pass, const unsigned char *offsets,
                                  uint32_t count, const unsigned char *text, uint32_t len)
{
    bool valid = qwp_utf8_valid(text, len);
    for (uint32_t i = 0; valid && i < count; i++) {
        const uint32_t off = qwp_load_u32(offsets + 4 * (size_t)i);
        valid = off == len || (text[off] & 0xc0) != 0x80;
    }
    if (valid) {
        return QWP_OK;
    }
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t off = qwp_load_u32(offsets + 4 * (size_t)i);
        const uint32_t end = qwp_load_u32(offsets + 4 * (size_t)i + 4);
        if (!qwp_utf8_valid(text + off, end - off)) {
            return decode_fail(pass, QWP_STATUS_PARSE_ERROR, text + off,
                               "value %u is not valid UTF-8", i);
        }
    }
    return QWP_OK;
}

static enum qwp_result check_offsets(struct decode_pass *pass, const struct qwp_column *column)
{
    const uint32_t count = column->value_count;
    const unsigned char *offsets = pass->at;
    enum qwp_result result = decode_skip(pass, 4 * ((uint64_t)count + 1), "offsets");
    if (result != QWP_OK) {
        return result;
    }
    uint32_t before = qwp_load_u32(offsets);
    if (before != 0) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, offsets, "first offset is %u, not 0",
                           before);
    }
    for (uint32_t i = 1; i <= count; i++) {
        const uint32_t off = qwp_load_u32(offsets + 4 * (size_t)i);
        if (off < before) {
            return decode_fail(pass, QWP_STATUS_PARSE_ERROR, offsets + 4 * (size_t)i,
                               "offset %u falls from %u to %u", i, before, off);
        }
        before = off;
    }
    const unsigned char *text = pass->at;
    result = decode_skip(pass, before, "values");
    if (result == QWP_OK && pass->deep && column->type == QWP_TYPE_VARCHAR) {
        result = check_text(pass, offsets, count, text, before);
    }
    return result;
}

static enum qwp_result check_array(struct decode_pass *pass, uint32_t index)
{
    const unsigned char *at = pass->at;
    enum qwp_result result = decode_skip(pass, 1, "number of dimensions");
    if (result != QWP_OK) {
        return result;
    }
    const unsigned dimensions = at[0];
    if (dimensions == 0 || dimensions > QWP_ARRAY_DIMENSIONS_MAX) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, at, "value %u: %u dimensions, 1 to %d",
                           index, dimensions, QWP_ARRAY_DIMENSIONS_MAX);
    }
    result = decode_skip(pass, 4 * (uint64_t)dimensions, "lengths of dimensions");
    if (result != QWP_OK) {
        return result;
    }
    /* Saturates instead of overflowing: a zero further on still makes the array empty. */
    uint64_t elements = 1;
    for (unsigned d = 0; d < dimensions; d++) {
        const uint32_t length = qwp_load_u32(at + 1 + 4 * d);
        if (length > INT32_MAX) {
            return decode_fail(pass, QWP_STATUS_PARSE_ERROR, at + 1 + 4 * d,
                               "value %u: dimension %u has a negative length", index, d);
        }
        elements *= length;
        elements = elements > UINT32_MAX ? UINT32_MAX : elements;
    }
    return decode_skip(pass, 8 * elements, "elements");
}

static enum qwp_result check_arrays(struct decode_pass *pass, const struct qwp_column *column)
{
    enum qwp_result result = QWP_OK;
    for (uint32_t i = 0; i < column->value_count && result == QWP_OK; i++) {
        result = check_array(pass, i);
    }
    return result;
}

static int64_t designated_max(const struct qwp_column *column)
{
    return column->type == QWP_TYPE_TIMESTAMP_NANOS ? QWP_DESIGNATED_NS_MAX : QWP_DESIGNATED_US_MAX;
}

static enum qwp_result time_refused(struct decode_pass *pass, const struct qwp_column *column,
                                    const unsigned char *at, uint32_t index, uint64_t time)
{
    return decode_fail(pass, QWP_STATUS_WRITE_ERROR, at,
                       "row %u: designated timestamp %lld is outside 0 to %lld", index,
                       (long long)time, (long long)designated_max(column));
}

static enum qwp_result check_raw_times(struct decode_pass *pass, const struct qwp_column *column)
{
    const unsigned char *values = pass->at;
    const enum qwp_result result =
        decode_skip(pass, 8 * (uint64_t)column->value_count, "timestamps");
    if (result != QWP_OK || !pass->deep || !column->designated) {
        return result;
    }
    const uint64_t max = (uint64_t)designated_max(column);
    for (uint32_t i = 0; i < column->value_count; i++) {
        const uint64_t time = qwp_load_u64(values + 8 * (size_t)i);
        if (time > max) {
            return time_refused(pass, column, values + 8 * (size_t)i, i, time);
        }
    }
    return QWP_OK;
}

/* Length of the codes of the third and later timestamps in bits, without their values; beyond the
 * `len` bytes when some are missing. Steady times are runs of 0 bits, taken together. */
static uint64_t gorilla_bits(const unsigned char *bits, size_t len, uint32_t codes)
{
    uint64_t bit = 0;
    while (codes > 0 && bit < 8 * (uint64_t)len) {
        const uint64_t word = qwp_gorilla_peek(bits, len, bit);
        const uint32_t zeros = (uint32_t)__builtin_ctzll(word | UINT64_C(1) << 56);
        if (zeros > 0) {
            const uint32_t run = zeros < codes ? zeros : codes;
            bit += run;
            codes -= run;
            continue;
        }
        unsigned prefix;
        bit += qwp_gorilla_code(word, &prefix);
        codes--;
    }
    return bit + codes; /* a missing code has at least one bit */
}

/* The same length, with each time judged on the way. */
static enum qwp_result check_gorilla_times(struct decode_pass *pass,
                                           const struct qwp_column *column, uint64_t *bit_count)
{
    const unsigned char *bits = pass->at;
    const size_t len = decode_left(pass);
    const uint64_t max = (uint64_t)designated_max(column);
    uint64_t time = qwp_load_u64(bits - 8);
    uint64_t delta = time - qwp_load_u64(bits - 16);
    uint64_t bit = 0;
    for (uint32_t i = 2; i < column->value_count && bit < 8 * (uint64_t)len; i++) {
        const uint64_t word = qwp_gorilla_peek(bits, len, bit);
        unsigned prefix;
        const unsigned code = qwp_gorilla_code(word, &prefix);
        delta += qwp_gorilla_value(word, code, prefix);
        time += delta;
        if (time > max) {
            return time_refused(pass, column, bits + bit / 8, i, time);
        }
        bit += code;
    }
    *bit_count = bit;
    return QWP_OK;
}

/* All Gorilla codes of the third and later timestamps; `at` moves behind them. */
static enum qwp_result check_gorilla_bits(struct decode_pass *pass, const struct qwp_column *column)
{
    const unsigned char *bits = pass->at;
    const size_t len = decode_left(pass);
    const uint64_t count = gorilla_bits(bits, len, column->value_count - 2);
    if (count > 8 * (uint64_t)len) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "Gorilla codes of %u timestamps end behind the message",
                           column->value_count);
    }
    if (pass->deep && column->designated) {
        uint64_t checked = count;
        const enum qwp_result result = check_gorilla_times(pass, column, &checked);
        if (result != QWP_OK) {
            return result;
        }
        QWP_ASSERT(checked == count);
    }
    pass->at += (count + 7) / 8;
    if (!padding_clear(bits, count)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "bits set behind the last Gorilla code");
    }
    return QWP_OK;
}

/* The block ends the message, so its size is known: can it hold so many codes? */
static enum qwp_result judge_gorilla_size(struct decode_pass *pass, uint32_t value_count)
{
    const uint64_t codes = value_count - 2;
    const uint64_t left = decode_left(pass);
    if (left < (codes + 7) / 8 || left > (codes * QWP_GORILLA_BITS_MAX + 7) / 8) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "%llu bytes cannot be the Gorilla codes of %u timestamps",
                           (unsigned long long)left, value_count);
    }
    pass->at = pass->end;
    return QWP_OK;
}

static enum qwp_result check_gorilla(struct decode_pass *pass, const struct qwp_column *column,
                                     bool last)
{
    const uint32_t count = column->value_count;
    const uint32_t raw = count < 2 ? count : 2;
    const unsigned char *values = pass->at;
    const enum qwp_result result = decode_skip(pass, 8 * (uint64_t)raw, "first timestamps");
    if (result != QWP_OK) {
        return result;
    }
    for (uint32_t i = 0; pass->deep && column->designated && i < raw; i++) {
        const uint64_t time = qwp_load_u64(values + 8 * i);
        if (time > (uint64_t)designated_max(column)) {
            return time_refused(pass, column, values + 8 * i, i, time);
        }
    }
    if (count <= 2) {
        return QWP_OK;
    }
    return !pass->deep && last && pass->last_block ? judge_gorilla_size(pass, count)
                                                   : check_gorilla_bits(pass, column);
}

static enum qwp_result check_geohashes(struct decode_pass *pass, const struct qwp_column *column)
{
    const uint32_t width = decode_value_width(column->type, column->parameter);
    const unsigned char *values = pass->at;
    const enum qwp_result result =
        decode_skip(pass, (uint64_t)width * column->value_count, "values");
    if (result != QWP_OK || !pass->deep || column->parameter % 8 == 0) {
        return result;
    }
    for (uint32_t i = 0; i < column->value_count; i++) {
        const unsigned char *value = values + (size_t)width * i;
        if (value[width - 1] >> (column->parameter % 8) != 0 &&
            !(column->bitmap == NULL && decode_geohash_reserved(value, width))) {
            return decode_fail(pass, QWP_STATUS_PARSE_ERROR, value,
                               "value %u has bits beyond its precision of %u", i,
                               column->parameter);
        }
    }
    return QWP_OK;
}

enum qwp_result decode_column_values(struct decode_pass *pass, const struct qwp_column *column,
                                     bool last)
{
    if (column->designated && column->value_count != column->row_count) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, column->bitmap,
                           "%u designated timestamps are null",
                           column->row_count - column->value_count);
    }
    switch (column->type) {
    case QWP_TYPE_BOOLEAN:
        return check_booleans(pass, column);
    case QWP_TYPE_SYMBOL:
        return check_symbols(pass, column);
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        return check_offsets(pass, column);
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        return check_arrays(pass, column);
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        return column->gorilla ? check_gorilla(pass, column, last) : check_raw_times(pass, column);
    case QWP_TYPE_GEOHASH:
        return check_geohashes(pass, column);
    default:
        return decode_skip(pass,
                           (uint64_t)decode_value_width(column->type, column->parameter) *
                               column->value_count,
                           "values");
    }
}

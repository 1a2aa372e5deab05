#include "core/wire/qwp_recode.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bits.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode_internal.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_varint.h"

/* ---- bytes that grow ---- */

void qwp_bytes_fini(struct qwp_bytes *bytes)
{
    free(bytes->at);
    *bytes = (struct qwp_bytes){0};
}

unsigned char *qwp_bytes_grow(struct qwp_bytes *bytes, size_t len)
{
    if (bytes->failed) {
        return NULL;
    }
    if (bytes->room - bytes->len < len) {
        const size_t room = bytes->room * 2 > bytes->len + len ? bytes->room * 2 : bytes->len + len;
        unsigned char *at = realloc(bytes->at, room);
        if (at == NULL) {
            bytes->failed = true;
            return NULL;
        }
        bytes->at = at;
        bytes->room = room;
    }
    unsigned char *place = bytes->at + bytes->len;
    bytes->len += len;
    return place;
}

void qwp_bytes_put(struct qwp_bytes *bytes, const void *at, size_t len)
{
    unsigned char *place = qwp_bytes_grow(bytes, len);
    if (place != NULL && len > 0) {
        memcpy(place, at, len);
    }
}

void qwp_bytes_put_varint(struct qwp_bytes *bytes, uint64_t v)
{
    unsigned char varint[QWP_VARINT_BYTES_MAX];
    qwp_bytes_put(bytes, varint, (size_t)(qwp_varint_put(varint, v) - varint));
}

static void put_byte(struct qwp_bytes *bytes, uint8_t v)
{
    qwp_bytes_put(bytes, &v, 1);
}

static void put_u32(struct qwp_bytes *bytes, uint32_t v)
{
    unsigned char at[4];
    qwp_store_u32(at, v);
    qwp_bytes_put(bytes, at, sizeof at);
}

/* ---- columns ---- */

/* The rows to be written, of one column. */
struct part {
    const struct qwp_column *column;
    uint32_t first_row;
    uint32_t row_count;
    uint32_t first_value; /* index of the first value among all of the column */
    uint32_t value_count;
};

static struct part part_of(const struct qwp_column *column, uint32_t first, uint32_t count)
{
    struct part part = {column, first, count, first, count};
    if (column->bitmap != NULL) {
        const uint32_t nulls_ahead = qwp_bits_count(column->bitmap, first);
        part.first_value -= nulls_ahead;
        part.value_count -= qwp_bits_count(column->bitmap, first + count) - nulls_ahead;
    }
    return part;
}

/* A cursor on the part's first row. */
static struct qwp_cursor cursor_at(const struct qwp_recode *recode, const struct part *part)
{
    struct qwp_cursor cursor;
    struct qwp_value value;
    qwp_cursor_init(&cursor, recode->decoder, part->column);
    for (uint32_t i = 0; i < part->first_row; i++) {
        (void)qwp_cursor_next(&cursor, &value);
    }
    return cursor;
}

/* `count` bits of `bits` from `first` on. */
static void put_bits(struct qwp_bytes *out, const unsigned char *bits, uint32_t first,
                     uint32_t count)
{
    unsigned char *at = qwp_bytes_grow(out, (count + 7) / 8);
    if (at != NULL) {
        qwp_bits_copy(at, bits, first, count);
    }
}

static void put_nulls(struct qwp_bytes *out, const struct part *part)
{
    const bool nulls = part->value_count < part->row_count;
    put_byte(out, nulls);
    if (nulls) {
        put_bits(out, part->column->bitmap, part->first_row, part->row_count);
    }
}

static void put_fixed(struct qwp_bytes *out, const struct part *part)
{
    const size_t width = decode_value_width(part->column->type, part->column->parameter);
    QWP_ASSERT(width > 0);
    qwp_bytes_put(out, part->column->values + width * part->first_value, width * part->value_count);
}

/* Integers as wider integers, FLOAT as DOUBLE. */
static void put_widened(const struct qwp_recode *recode, struct qwp_bytes *out,
                        const struct part *part, uint8_t type)
{
    const size_t width = decode_value_width(type, 0);
    struct qwp_cursor cursor = cursor_at(recode, part);
    for (uint32_t i = 0; i < part->row_count; i++) {
        struct qwp_value value;
        (void)qwp_cursor_next(&cursor, &value);
        if (value.null) {
            continue;
        }
        if (type == QWP_TYPE_DOUBLE) {
            const double wide = (double)value.f32;
            qwp_bytes_put(out, &wide, sizeof wide);
        } else {
            unsigned char at[8];
            qwp_store_i64(at, value.i64);
            qwp_bytes_put(out, at, width); /* little-endian: its low bytes */
        }
    }
}

static void put_symbols(const struct qwp_recode *recode, struct qwp_bytes *out,
                        const struct part *part)
{
    const struct qwp_column *column = part->column;
    const unsigned char *at = column->values;
    for (uint32_t i = 0; i < part->first_value + part->value_count; i++) {
        uint64_t id = 0;
        at = qwp_varint_get(at, column->message_end, &id);
        if (i >= part->first_value) {
            qwp_bytes_put_varint(out, recode->symbol_id != NULL
                                          ? recode->symbol_id(recode->owner, (uint32_t)id)
                                          : id);
        }
    }
}

static void put_texts(struct qwp_bytes *out, const struct part *part)
{
    const struct qwp_column *column = part->column;
    const unsigned char *offsets = column->values + 4 * (size_t)part->first_value;
    const uint32_t base = qwp_load_u32(offsets);
    for (uint32_t i = 0; i <= part->value_count; i++) {
        put_u32(out, qwp_load_u32(offsets + 4 * (size_t)i) - base);
    }
    const uint32_t end = qwp_load_u32(offsets + 4 * (size_t)part->value_count);
    qwp_bytes_put(out, column->values + 4 * ((size_t)column->value_count + 1) + base, end - base);
}

static void put_arrays(const struct qwp_recode *recode, struct qwp_bytes *out,
                       const struct part *part)
{
    struct qwp_cursor cursor = cursor_at(recode, part);
    for (uint32_t i = 0; i < part->row_count; i++) {
        struct qwp_value value;
        (void)qwp_cursor_next(&cursor, &value);
        if (!value.null) {
            put_byte(out, (uint8_t)value.array.dimensions);
            qwp_bytes_put(out, value.array.lengths, 4 * (size_t)value.array.dimensions);
            qwp_bytes_put(out, value.array.elements, 8 * (size_t)value.array.element_count);
        }
    }
}

/* Raw ones at the end of `out` become a Gorilla block where that is possible and shorter. */
static void shorten_times(struct qwp_bytes *out, size_t encoding_off, uint32_t count)
{
    if (out->failed || count < QWP_GORILLA_TIMES_MIN) {
        return;
    }
    int64_t *times = malloc(count * sizeof *times);
    unsigned char *encoded = malloc(8 * (size_t)count + QWP_GORILLA_SLACK);
    if (times != NULL && encoded != NULL) {
        memcpy(times, out->at + encoding_off + 1, count * sizeof *times);
        const size_t len = qwp_gorilla_encode(times, count, encoded);
        if (len > 0) {
            out->at[encoding_off] = 1;
            memcpy(out->at + encoding_off + 1, encoded, len);
            out->len = encoding_off + 1 + len;
        }
    }
    free(encoded);
    free(times);
}

static void put_times(const struct qwp_recode *recode, struct qwp_bytes *out,
                      const struct part *part)
{
    const bool has_encoding =
        part->column->type != QWP_TYPE_DATE && (recode->flags & QWP_FLAG_GORILLA) != 0;
    const size_t encoding_off = out->len;
    if (has_encoding) {
        put_byte(out, 0);
    }
    struct qwp_cursor cursor = cursor_at(recode, part);
    for (uint32_t i = 0; i < part->row_count; i++) {
        struct qwp_value value;
        (void)qwp_cursor_next(&cursor, &value);
        if (!value.null) {
            unsigned char at[8];
            qwp_store_i64(at, value.i64);
            qwp_bytes_put(out, at, sizeof at);
        }
    }
    if (has_encoding) {
        shorten_times(out, encoding_off, part->value_count);
    }
}

static void put_column(const struct qwp_recode *recode, struct qwp_bytes *out,
                       const struct part *part, uint8_t type)
{
    put_nulls(out, part);
    if (type != part->column->type) {
        put_widened(recode, out, part, type);
        return;
    }
    switch (part->column->type) {
    case QWP_TYPE_BOOLEAN:
        put_bits(out, part->column->values, part->first_value, part->value_count);
        break;
    case QWP_TYPE_SYMBOL:
        put_symbols(recode, out, part);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        put_texts(out, part);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        put_arrays(recode, out, part);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
    case QWP_TYPE_DATE:
        put_times(recode, out, part);
        break;
    case QWP_TYPE_GEOHASH:
        qwp_bytes_put_varint(out, part->column->parameter);
        put_fixed(out, part);
        break;
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        put_byte(out, part->column->parameter);
        put_fixed(out, part);
        break;
    default:
        put_fixed(out, part);
        break;
    }
}

void qwp_recode_rows(const struct qwp_recode *recode, uint32_t first, uint32_t count,
                     struct qwp_bytes *out)
{
    const struct qwp_table_block *block = recode->block;
    QWP_ASSERT(first + count <= block->row_count);
    qwp_bytes_put_varint(out, block->table.len);
    qwp_bytes_put(out, block->table.text, block->table.len);
    qwp_bytes_put_varint(out, count);
    qwp_bytes_put_varint(out, block->column_count);
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        qwp_bytes_put_varint(out, column->name.len);
        qwp_bytes_put(out, column->name.text, column->name.len);
        put_byte(out, recode->types != NULL ? recode->types[i] : column->type);
    }
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct part part = part_of(&block->columns[i], first, count);
        put_column(recode, out, &part,
                   recode->types != NULL ? recode->types[i] : part.column->type);
    }
}

/* Reading values of a message that passed every check. */
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode_internal.h"
#include "core/wire/qwp_gorilla_read.h"
#include "core/wire/qwp_varint.h"

bool decode_geohash_reserved(const unsigned char *value, uint32_t width)
{
    for (uint32_t i = 0; i < width; i++) {
        if (value[i] != 0xff) {
            return false;
        }
    }
    return true;
}

void qwp_cursor_init(struct qwp_cursor *cursor, const struct qwp_decoder *decoder,
                     const struct qwp_column *column)
{
    *cursor = (struct qwp_cursor){
        .decoder = decoder,
        .column = column,
        .at = column->values,
    };
}

/* The message's bytes go on behind the block for at least the codes that were checked; peeking 8
 * bytes may pass its end, so the number of bytes with codes bounds it. */
static uint64_t next_gorilla_time(struct qwp_cursor *cursor)
{
    const unsigned char *values = cursor->column->values;
    if (cursor->value < 2) {
        const uint64_t time = qwp_load_u64(values + 8 * (size_t)cursor->value);
        cursor->delta = time - cursor->time;
        cursor->time = time;
        return time;
    }
    const unsigned char *bits = values + QWP_GORILLA_RAW_BYTES;
    const size_t len = (size_t)(cursor->column->message_end - bits);
    const uint64_t word = qwp_gorilla_peek(bits, len, cursor->bit);
    unsigned prefix;
    const unsigned code = qwp_gorilla_code(word, &prefix);
    cursor->bit += code;
    cursor->delta += qwp_gorilla_value(word, code, prefix);
    cursor->time += cursor->delta;
    return cursor->time;
}

static void read_symbol(struct qwp_cursor *cursor, struct qwp_value *value)
{
    uint64_t id = 0;
    cursor->at = qwp_varint_get(cursor->at, cursor->column->message_end, &id);
    value->symbol.id = (uint32_t)id;
    value->symbol.text = qwp_decoder_symbol(cursor->decoder, (uint32_t)id);
}

static void read_text(const struct qwp_cursor *cursor, struct qwp_value *value)
{
    const struct qwp_column *column = cursor->column;
    const unsigned char *offsets = column->values;
    const unsigned char *text = offsets + 4 * ((size_t)column->value_count + 1);
    const uint32_t off = qwp_load_u32(offsets + 4 * (size_t)cursor->value);
    value->bytes.at = text + off;
    value->bytes.len = qwp_load_u32(offsets + 4 * (size_t)cursor->value + 4) - off;
}

static void read_array(struct qwp_cursor *cursor, struct qwp_value *value)
{
    const uint32_t dimensions = cursor->at[0];
    const unsigned char *lengths = cursor->at + 1;
    bool empty = false;
    for (uint32_t d = 0; d < dimensions; d++) {
        empty = empty || qwp_load_u32(lengths + 4 * d) == 0;
    }
    uint64_t elements = empty ? 0 : 1;
    for (uint32_t d = 0; d < dimensions && !empty; d++) {
        elements *= qwp_load_u32(lengths + 4 * d);
    }
    value->array.dimensions = dimensions;
    value->array.lengths = lengths;
    value->array.elements = lengths + 4 * dimensions;
    value->array.element_count = (uint32_t)elements;
    cursor->at = value->array.elements + 8 * elements;
}

static void read_geohash(const struct qwp_cursor *cursor, const unsigned char *at, uint32_t width,
                         struct qwp_value *value)
{
    value->u64 = 0;
    for (uint32_t i = 0; i < width; i++) {
        value->u64 |= (uint64_t)at[i] << (8 * i);
    }
    /* Without a bitmap a null is all ones; only where that is no value of the precision. */
    value->null = cursor->column->bitmap == NULL && cursor->column->parameter % 8 != 0 &&
                  decode_geohash_reserved(at, width);
}

static void read_fixed(const struct qwp_cursor *cursor, struct qwp_value *value)
{
    const struct qwp_column *column = cursor->column;
    const uint32_t width = decode_value_width(column->type, column->parameter);
    const unsigned char *at = column->values + (size_t)width * cursor->value;
    switch (column->type) {
    case QWP_TYPE_BYTE:
        value->i64 = (int8_t)at[0];
        break;
    case QWP_TYPE_SHORT:
        value->i64 = (int16_t)qwp_load_u16(at);
        break;
    case QWP_TYPE_INT:
        value->i64 = (int32_t)qwp_load_u32(at);
        break;
    case QWP_TYPE_LONG:
    case QWP_TYPE_DATE:
        value->i64 = qwp_load_i64(at);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        value->i64 = (int64_t)(qwp_load_u64(at) * column->time_scale);
        break;
    case QWP_TYPE_CHAR:
        value->u64 = qwp_load_u16(at);
        break;
    case QWP_TYPE_IPV4:
        value->u64 = qwp_load_u32(at);
        break;
    case QWP_TYPE_FLOAT:
        memcpy(&value->f32, at, sizeof value->f32);
        break;
    case QWP_TYPE_DOUBLE:
        memcpy(&value->f64, at, sizeof value->f64);
        break;
    case QWP_TYPE_GEOHASH:
        read_geohash(cursor, at, width, value);
        break;
    default: /* UUID, LONG256, decimals */
        value->bytes.at = at;
        value->bytes.len = width;
        break;
    }
}

static void read_value(struct qwp_cursor *cursor, struct qwp_value *value)
{
    const struct qwp_column *column = cursor->column;
    switch (column->type) {
    case QWP_TYPE_BOOLEAN:
        value->boolean = (column->values[cursor->value / 8] >> (cursor->value % 8) & 1) != 0;
        break;
    case QWP_TYPE_SYMBOL:
        read_symbol(cursor, value);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        read_text(cursor, value);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        read_array(cursor, value);
        break;
    default:
        if (column->gorilla) {
            value->i64 = (int64_t)(next_gorilla_time(cursor) * column->time_scale);
        } else {
            read_fixed(cursor, value);
        }
        break;
    }
    cursor->value++;
}

bool qwp_cursor_next(struct qwp_cursor *cursor, struct qwp_value *value)
{
    const struct qwp_column *column = cursor->column;
    if (cursor->row == column->row_count) {
        return false;
    }
    const uint32_t row = cursor->row++;
    value->type = column->type;
    value->null = column->bitmap != NULL && (column->bitmap[row / 8] >> (row % 8) & 1) != 0;
    if (!value->null) {
        read_value(cursor, value);
    }
    return true;
}

void qwp_cursor_read(struct qwp_cursor *cursor, uint32_t row, struct qwp_value *value)
{
    QWP_ASSERT(row < cursor->column->row_count);
    if (row < cursor->row) {
        qwp_cursor_init(cursor, cursor->decoder, cursor->column);
    }
    do {
        (void)qwp_cursor_next(cursor, value);
    } while (cursor->row <= row);
}

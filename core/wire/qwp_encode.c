#include "core/wire/qwp_encode.h"

#include "core/qwp_assert.h"
#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_varint.h"

/* Room behind a block's last byte for stores that are wider than their value, and for loads of
 * bitmaps by the word. */
enum { BLOCK_SLACK = 32 };

enum qwp_result qwp_encode_fault(struct encoding *e, uint32_t row, uint32_t column,
                                 const char *what)
{
    *e->fault = (struct qwp_encode_fault){row, column, what};
    return QWP_CORRUPT;
}

static enum qwp_result encode_single(struct encoding *e, uint32_t index, unsigned char **at)
{
    struct column column = {.def = &e->block->columns[index], .index = index, .at = *at};
    qwp_encode_null_section(e, &column);
    enum qwp_result result;
    switch (column.def->type) {
    case QWP_TYPE_BOOLEAN:
        result = qwp_encode_booleans(e, &column);
        break;
    case QWP_TYPE_GEOHASH:
        result = qwp_encode_geohashes(e, &column);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        result = qwp_encode_times(e, &column);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        result = qwp_encode_texts(e, &column);
        break;
    default:
        result = qwp_encode_arrays(e, &column);
        break;
    }
    *at = column.at;
    return result;
}

/* --- the block --- */

static unsigned char *put_name(unsigned char *at, struct qwp_name name)
{
    at = qwp_varint_put(at, name.len);
    qwp_copy_part(at, (const unsigned char *)name.text, name.len);
    return at + name.len;
}

unsigned char *qwp_encode_header(struct encoding *e, unsigned char *at)
{
    const struct qwp_block *block = e->block;
    const bool designated = block->designated_type != QWP_TYPE_NONE;
    at = put_name(at, block->table);
    at = qwp_varint_put(at, block->row_count);
    at = qwp_varint_put(at, block->column_count + designated);
    for (uint32_t c = 0; c < block->column_count; c++) {
        at = put_name(at, block->columns[c].name);
        e->scratch->type_offs[c] = (uint32_t)(at - e->start);
        *at++ = block->columns[c].type;
    }
    if (designated) {
        *at++ = 0; /* an empty name */
        e->scratch->type_offs[block->column_count] = (uint32_t)(at - e->start);
        *at++ = block->designated_type;
    }
    return at;
}

/* The columns, behind the header. Moves *at. */
static enum qwp_result encode_columns(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *block = e->block;
    if (qwp_encode_row(e, at)) {
        return QWP_OK;
    }
    e->scratch->null_byte_index = QWP_ENCODE_NO_NULL_BYTES;
    uint32_t c = 0;
    while (c < block->column_count) {
        uint32_t count = 1;
        const enum qwp_result result = qwp_encode_groups(block->columns[c].type)
                                           ? qwp_encode_group(e, c, &count, at)
                                           : encode_single(e, c, at);
        if (result != QWP_OK) {
            return result;
        }
        c += count;
    }
    return block->designated_type == QWP_TYPE_NONE ? QWP_OK : qwp_encode_designated(e, at);
}

/* The first row with its declared types, then the others in narrow ones. *at is behind the header
 * of the first block. */
static enum qwp_result encode_compact(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *whole = e->block;
    struct qwp_block block = *whole;
    struct encoding ahead = *e;
    ahead.block = &block;
    ahead.flags &= ~(unsigned)QWP_ENCODE_COMPACT;
    ahead.only_first_row = true;
    block.run_count = 1;
    block.row_count = 1;
    *at = qwp_encode_header(&ahead, e->start);
    enum qwp_result result = encode_columns(&ahead, at);
    if (result != QWP_OK) {
        return result;
    }
    struct encoding rest = *e;
    rest.block = &block;
    rest.start = *at;
    const bool run_done = whole->runs[0].row_count == 1;
    rest.rows_ahead = run_done ? 0 : 1;
    block = *whole;
    block.runs += run_done;
    block.run_count -= run_done;
    block.records++;
    block.steering++;
    block.row_count--;
    *at = qwp_encode_header(&rest, rest.start);
    result = encode_columns(&rest, at);
    if (result != QWP_OK) {
        e->fault->row++;
    }
    return result;
}

enum qwp_result qwp_block_encode(struct qwp_encoder *encoder, const struct qwp_block *block,
                                 unsigned flags, unsigned char *dst, struct qwp_encoded *done)
{
    QWP_ASSERT(block->row_count > 0 && block->row_count <= QWP_GATHER_ROWS_MAX);
    struct encoding e = {
        .scratch = encoder, .block = block, .flags = flags, .fault = &done->fault, .start = dst};
    unsigned char *at = qwp_encode_header(&e, dst);
    const bool compact =
        (flags & QWP_ENCODE_COMPACT) != 0 && qwp_encode_compact_pays(&e, (size_t)(at - dst));
    if (!compact) {
        e.flags &= ~(unsigned)QWP_ENCODE_COMPACT;
    }
    const enum qwp_result result = compact ? encode_compact(&e, &at) : encode_columns(&e, &at);
    if (result == QWP_OK) {
        done->len = (size_t)(at - dst);
        done->table_count = compact ? 2 : 1;
    }
    return result;
}

/* --- bounds --- */

size_t qwp_block_column_bound(const struct qwp_block_column *column)
{
    /* Name and type; null flag; then the most that any type has once: a varint precision, a scale,
     * an encoding byte, a first offset, the gap behind a symbol column. */
    return qwp_varint_size(column->name.len) + column->name.len + 1 + 1 + 4;
}

size_t qwp_block_header_bound(struct qwp_name table, const struct qwp_block_column *columns,
                              uint32_t column_count)
{
    size_t bound = qwp_varint_size(table.len) + table.len + qwp_varint_size(QWP_GATHER_ROWS_MAX) +
                   qwp_varint_size(QWP_COLUMNS_MAX + 1);
    for (uint32_t c = 0; c < column_count; c++) {
        bound += qwp_block_column_bound(&columns[c]);
    }
    /* The designated timestamp: name, type, null flag, encoding byte. */
    return bound + 4 + BLOCK_SLACK;
}

size_t qwp_value_bound(uint8_t type, uint8_t parameter)
{
    switch (type) {
    case QWP_TYPE_SYMBOL:
        return 3; /* as long as ids are below QWP_SYMBOL_IDS_MAX */
    case QWP_TYPE_GEOHASH:
        return (parameter + 7u) / 8;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        return 0; /* all in its variable part */
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        return 4; /* its offset */
    default:
        return qwp_type_field_bytes(type);
    }
}

#include "core/wire/qwp_encode_chunk.h"

#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bits.h"
#include "core/qwp_copy.h"
#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_narrow.h"
#include "core/wire/qwp_varint.h"

enum {
    COPY_VALUES = 256
}; /* at a time, where each is judged: they stay in the first-level cache */

/* A block of the chunk's rows: all of them, the first one, or all but the first. */
struct range {
    struct encoding e; /* its block: names, types and counts, no runs */
    struct qwp_block block;
    const struct qwp_chunk *chunk;
    uint32_t first_row; /* 0 or 1 */
};

static const struct qwp_chunk_part *part_of(const struct range *range, const struct column *column)
{
    return &range->chunk->parts[column->index];
}

/* Values of the column that stand before the range. */
static uint32_t values_ahead(const struct range *range, const struct column *column)
{
    return range->first_row - (range->first_row && range->e.scratch->first_null[column->index]);
}

/* How many of the column's values go from number `first` on at a time. */
static uint32_t values_of_slice(const struct column *column, uint32_t first)
{
    const uint32_t left = column->value_count - first;
    return left < COPY_VALUES ? left : COPY_VALUES;
}

static enum qwp_result fault(struct range *range, const struct column *column, const char *what)
{
    return qwp_encode_fault(&range->e, range->first_row, column->index, what);
}

/* Null flag and bitmap, of which only the copy counts. */
static enum qwp_result put_nulls(struct range *range, struct column *column)
{
    const struct qwp_chunk_part *part = part_of(range, column);
    const uint32_t rows = range->block.row_count;
    const bool is_first = rows < range->chunk->row_count && range->first_row == 0;
    column->start = column->at;
    column->value_count = rows;
    *column->at++ = 0;
    if (part->bitmap == NULL) {
        return QWP_OK;
    }
    uint32_t expected = range->chunk->row_count - part->value_count;
    if (is_first) {
        *column->at = range->e.scratch->first_null[column->index];
        expected = *column->at;
    } else {
        qwp_bits_copy(column->at, part->bitmap, range->first_row, rows);
        expected -= range->first_row && range->e.scratch->first_null[column->index];
    }
    const uint32_t nulls = qwp_bits_count(column->at, rows);
    if (nulls != expected) {
        return fault(range, column, "a bitmap with another number of nulls than announced");
    }
    if (nulls > 0) {
        *column->start = 1;
        column->value_count -= nulls;
        column->at += (rows + 7) / 8;
    }
    return QWP_OK;
}

/* --- one column's values --- */

/* A slice of n symbols on its way out. */
struct symbols {
    const unsigned char *indexes; /* in the record */
    uint32_t n;
    const uint32_t *codes; /* of all symbols */
    uint32_t count;
};

/* All varints are of `width` bytes, a constant: so none waits for the one before to tell where it
 * goes. False, and what was stored is of no use: some are not, or there is no such symbol. */
static inline __attribute__((always_inline)) bool
put_equal_codes(const struct symbols *symbols, uint32_t width, unsigned char *restrict at)
{
    const uint32_t *codes = symbols->codes;
    const uint32_t count = symbols->count;
    uint32_t differ = 0;
    for (size_t i = 0; i < symbols->n; i++) {
        const uint32_t index = qwp_load_once_u32(symbols->indexes + 4 * i);
        if (index >= count) {
            return false;
        }
        const uint32_t code = codes[index];
        memcpy(at + width * i, &code, width);
        differ |= code >> 24 ^ width;
    }
    return differ == 0;
}

/* *width: that of all of them, or 0. NULL: there is no such symbol. */
static unsigned char *put_any_codes(const struct symbols *symbols, unsigned char *at,
                                    uint32_t *width)
{
    uint32_t shorter = UINT32_MAX;
    uint32_t longer = 0;
    for (size_t i = 0; i < symbols->n; i++) {
        const uint32_t index = qwp_load_once_u32(symbols->indexes + 4 * i);
        if (index >= symbols->count) {
            return NULL;
        }
        const uint32_t code = symbols->codes[index];
        qwp_store_u32(at, code);
        at += code >> 24;
        shorter &= code;
        longer |= code;
    }
    *width = shorter >> 24 == longer >> 24 ? longer >> 24 : 0;
    return at;
}

static enum qwp_result put_symbols(struct range *range, struct column *column)
{
    const struct qwp_chunk_part *part = part_of(range, column);
    const uint32_t ahead = values_ahead(range, column);
    uint32_t width = 1;
    for (uint32_t i = 0; i < column->value_count; i += COPY_VALUES) {
        const struct symbols symbols = {.indexes = part->values + 4 * (size_t)(ahead + i),
                                        .n = values_of_slice(column, i),
                                        .codes = range->chunk->symbol_codes,
                                        .count = range->chunk->symbol_count};
        if ((width == 1 && put_equal_codes(&symbols, 1, column->at)) ||
            (width == 2 && put_equal_codes(&symbols, 2, column->at))) {
            column->at += width * symbols.n;
            continue;
        }
        unsigned char *end = put_any_codes(&symbols, column->at, &width);
        if (end == NULL) {
            return fault(range, column, "a symbol that was not defined");
        }
        column->at = end;
    }
    return QWP_OK;
}

/* Codes of symbols that came as texts. */
static void put_own_codes(const struct range *range, struct column *column)
{
    const uint32_t *codes = part_of(range, column)->codes + values_ahead(range, column);
    for (uint32_t i = 0; i < column->value_count; i++) {
        qwp_store_u32(column->at, codes[i]);
        column->at += codes[i] >> 24;
    }
}

/* Stores what fits in the column's present width and makes it wider when something does not. */
static void put_narrow(struct range *range, struct column *column)
{
    const uint8_t type = column->def->type;
    const uint32_t full = qwp_type_field_bytes(type);
    const unsigned char *values =
        part_of(range, column)->values + (size_t)values_ahead(range, column) * full;
    uint64_t slice[COPY_VALUES];
    column->width = qwp_encode_narrowest(type);
    column->values = column->at;
    uint32_t done = 0;
    while (done < column->value_count && column->width < full) {
        const uint32_t n = values_of_slice(column, done);
        qwp_copy(slice, values + (size_t)done * full, (size_t)n * full);
        if (qwp_narrow((unsigned char *)slice, n, type, column->width, column->at)) {
            column->at += (size_t)n * column->width;
            done += n;
        } else {
            qwp_encode_widen(column); /* and again, of what is then in the record */
        }
    }
    const size_t rest = (size_t)(column->value_count - done) * full;
    qwp_copy(column->at, values + (size_t)done * full, rest);
    column->at += rest;
    range->e.start[range->e.scratch->type_offs[column->index]] = qwp_encode_narrow_type(column);
}

static void put_fixed(struct range *range, struct column *column, uint32_t width)
{
    if (qwp_encode_is_decimal(column->def->type)) {
        *column->at++ = column->def->parameter;
    }
    const size_t bytes = (size_t)column->value_count * width;
    qwp_copy(column->at,
             part_of(range, column)->values + (size_t)values_ahead(range, column) * width, bytes);
    column->at += bytes;
}

static void put_booleans(struct range *range, struct column *column)
{
    qwp_bits_copy(column->at, part_of(range, column)->values, values_ahead(range, column),
                  column->value_count);
    column->at += (column->value_count + 7) / 8;
}

static enum qwp_result put_geohashes(struct range *range, struct column *column)
{
    const uint32_t bits = column->def->parameter;
    const uint32_t width = (bits + 7) / 8;
    const unsigned char *values =
        part_of(range, column)->values + 8 * (size_t)values_ahead(range, column);
    column->at = qwp_varint_put(column->at, bits);
    uint64_t beyond = 0;
    for (uint32_t i = 0; i < column->value_count; i++) {
        const uint64_t value = qwp_load_once_u64(values + 8 * (size_t)i);
        beyond |= value >> bits;
        qwp_store_u64(column->at, value);
        column->at += width;
    }
    return beyond == 0 ? QWP_OK : fault(range, column, "geohash bits beyond its precision");
}

static const int64_t *copy_times(struct range *range, const struct column *column)
{
    qwp_copy(range->e.scratch->times,
             part_of(range, column)->values + 8 * (size_t)values_ahead(range, column),
             8 * (size_t)column->value_count);
    return range->e.scratch->times;
}

static enum qwp_result put_texts(struct range *range, struct column *column)
{
    const struct qwp_chunk_part *part = part_of(range, column);
    const uint32_t ahead = values_ahead(range, column);
    const uint32_t count = column->value_count;
    const uint32_t len_max = part->values_bytes - 4 * (part->value_count + 1);
    unsigned char *offsets = column->at;
    unsigned char *texts = offsets + 4 * ((size_t)count + 1);
    qwp_copy(offsets, part->values + 4 * (size_t)ahead, 4 * ((size_t)count + 1));
    const uint32_t base = qwp_load_u32(offsets);
    /* What stands ahead was bounded by the same sum. */
    uint32_t bad = base != (ahead == 0 ? 0 : range->e.scratch->first_bytes[column->index]);
    uint32_t last = base;
    for (uint32_t i = 0; i <= count; i++) {
        const uint32_t offset = qwp_load_u32(offsets + 4 * (size_t)i);
        bad |= offset < last;
        last = offset;
        qwp_store_u32(offsets + 4 * (size_t)i, offset - base);
    }
    if (bad != 0 || last > len_max) {
        return fault(range, column, "text offsets that fall or pass the text's end");
    }
    const uint32_t len = last - base;
    qwp_copy(texts, part->values + 4 * ((size_t)part->value_count + 1) + base, len);
    if (column->def->type == QWP_TYPE_VARCHAR && !qwp_encode_is_ascii(texts, len) &&
        qwp_encode_bad_text(offsets, texts, 0, count) != count) {
        return fault(range, column, "invalid UTF-8");
    }
    range->e.scratch->first_bytes[column->index] = len;
    column->at = texts + len;
    return QWP_OK;
}

static enum qwp_result put_arrays(struct range *range, struct column *column)
{
    const struct qwp_chunk_part *part = part_of(range, column);
    const uint32_t ahead =
        values_ahead(range, column) == 0 ? 0 : range->e.scratch->first_bytes[column->index];
    const size_t room = part->values_bytes - ahead;
    unsigned char *const first = column->at;
    qwp_copy(first, part->values + ahead, room);
    for (uint32_t i = 0; i < column->value_count; i++) {
        const size_t bytes = qwp_array_bytes(column->at, room - (size_t)(column->at - first));
        if (bytes == 0) {
            return fault(range, column, "array lengths that do not fit its bytes");
        }
        column->at += bytes;
    }
    range->e.scratch->first_bytes[column->index] = (uint32_t)(column->at - first);
    return QWP_OK;
}

static enum qwp_result put_column(struct range *range, uint32_t index, unsigned char **at)
{
    struct column column = {.def = &range->chunk->columns[index], .index = index, .at = *at};
    enum qwp_result result = put_nulls(range, &column);
    if (result != QWP_OK) {
        return result;
    }
    const uint8_t type = column.def->type;
    switch (type) {
    case QWP_TYPE_BOOLEAN:
        put_booleans(range, &column);
        break;
    case QWP_TYPE_SYMBOL:
        if (part_of(range, &column)->codes != NULL) {
            put_own_codes(range, &column);
        } else {
            result = put_symbols(range, &column);
        }
        break;
    case QWP_TYPE_GEOHASH:
        result = put_geohashes(range, &column);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        column.at = qwp_encode_put_times(&range->e, copy_times(range, &column), column.value_count,
                                         column.at);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        result = put_texts(range, &column);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        result = put_arrays(range, &column);
        break;
    default:
        if (qwp_encode_may_narrow(&range->e, type)) {
            put_narrow(range, &column);
        } else {
            put_fixed(range, &column, qwp_encode_plain_width(type));
        }
        break;
    }
    *at = column.at;
    return result;
}

static enum qwp_result put_designated(struct range *range, unsigned char **at)
{
    const uint32_t rows = range->block.row_count;
    const struct column column = {.index = range->chunk->column_count, .value_count = rows};
    const unsigned char *values = part_of(range, &column)->values + 8 * (size_t)range->first_row;
    for (uint32_t i = 0; i < rows; i += COPY_VALUES) {
        const uint32_t n = values_of_slice(&column, i);
        int64_t *times = range->e.scratch->times + i;
        qwp_copy(times, values + 8 * (size_t)i, 8 * (size_t)n);
        if (qwp_encode_bad_time(times, n, range->chunk->designated_type) != n) {
            return fault(range, &column, "designated timestamp out of range");
        }
    }
    *at = qwp_encode_put_designated(&range->e, *at);
    return QWP_OK;
}

/* --- blocks --- */

static enum qwp_result put_range(struct qwp_encoder *encoder, const struct qwp_chunk *chunk,
                                 unsigned flags, uint32_t first_row, uint32_t row_count,
                                 struct qwp_encode_fault *fault, unsigned char **at)
{
    struct range range = {
        .e = {.scratch = encoder, .flags = flags, .fault = fault, .start = *at},
        .block = {.table = chunk->table,
                  .columns = chunk->columns,
                  .column_count = chunk->column_count,
                  .designated_type = chunk->designated_type,
                  .row_count = row_count},
        .chunk = chunk,
        .first_row = first_row,
    };
    range.e.block = &range.block;
    *at = qwp_encode_header(&range.e, *at);
    enum qwp_result result = QWP_OK;
    for (uint32_t c = 0; c < chunk->column_count && result == QWP_OK; c++) {
        result = put_column(&range, c, at);
    }
    if (result == QWP_OK && chunk->designated_type != QWP_TYPE_NONE) {
        result = put_designated(&range, at);
    }
    return result;
}

static size_t guess_time_saving(const struct qwp_chunk *chunk, const struct encoding *e)
{
    if (chunk->designated_type == QWP_TYPE_NONE) {
        return 0;
    }
    const uint32_t n =
        chunk->row_count < QWP_ENCODE_SAMPLE_TIMES ? chunk->row_count : QWP_ENCODE_SAMPLE_TIMES;
    int64_t times[QWP_ENCODE_SAMPLE_TIMES];
    qwp_copy(times, chunk->parts[chunk->column_count].values, n * sizeof *times);
    return qwp_encode_time_saving(e, chunk->designated_type, times, n);
}

/* Bytes a row saves if it goes on as in a few samples. */
static size_t guess_saving(const struct qwp_chunk *chunk, const struct encoding *e)
{
    size_t saving = guess_time_saving(chunk, e);
    for (uint32_t c = 0; c < chunk->column_count; c++) {
        const uint8_t type = chunk->columns[c].type;
        const uint32_t count = chunk->parts[c].value_count;
        if (!qwp_encode_may_narrow(e, type)) {
            continue;
        }
        const uint32_t full = qwp_type_field_bytes(type);
        const uint32_t step = count / QWP_ENCODE_SAMPLE_ROWS + 1;
        uint32_t widest = qwp_encode_narrowest(type);
        for (uint32_t i = 0; i < count; i += step) {
            const uint32_t width =
                qwp_encode_width_of(type, chunk->parts[c].values + (size_t)i * full);
            widest = width > widest ? width : widest;
        }
        saving += full - widest;
    }
    return saving;
}

/* The first row goes ahead with declared types when the others go in narrow ones. */
static bool compact_pays(const struct qwp_chunk *chunk, unsigned flags)
{
    const struct encoding e = {.flags = flags};
    size_t header_len = chunk->table.len + 4;
    for (uint32_t c = 0; c < chunk->column_count; c++) {
        header_len += chunk->columns[c].name.len + 2;
    }
    return (flags & QWP_ENCODE_COMPACT) != 0 &&
           qwp_encode_saving_pays(guess_saving(chunk, &e), chunk->row_count, header_len,
                                  chunk->column_count);
}

enum qwp_result qwp_chunk_encode(struct qwp_encoder *encoder, const struct qwp_chunk *chunk,
                                 unsigned flags, unsigned char *dst, struct qwp_encoded *done)
{
    QWP_ASSERT(chunk->row_count > 0 && chunk->row_count <= QWP_CHUNK_ROWS_MAX);
    const unsigned wide = flags & ~(unsigned)QWP_ENCODE_COMPACT;
    const bool compact = compact_pays(chunk, flags);
    unsigned char *at = dst;
    enum qwp_result result = QWP_OK;
    if (compact) {
        for (uint32_t c = 0; c < chunk->column_count; c++) {
            const struct qwp_chunk_part *part = &chunk->parts[c];
            encoder->first_null[c] =
                part->bitmap != NULL && (part->value_count == 0 || (part->bitmap[0] & 1) != 0);
        }
        encoder->first_null[chunk->column_count] = false; /* the designated timestamp */
        result = put_range(encoder, chunk, wide, 0, 1, &done->fault, &at);
    }
    if (result == QWP_OK) {
        result = put_range(encoder, chunk, compact ? flags : wide, compact,
                           chunk->row_count - compact, &done->fault, &at);
    }
    done->len = (size_t)(at - dst);
    done->table_count = compact ? 2 : 1;
    return result;
}

/* --- bounds --- */

uint64_t qwp_chunk_values_bytes(uint8_t type, bool is_text, uint32_t value_count)
{
    switch (type) {
    case QWP_TYPE_BOOLEAN:
        return (value_count + UINT64_C(7)) / 8;
    case QWP_TYPE_SYMBOL:
        return is_text ? 4 * (value_count + UINT64_C(1)) : 4 * (uint64_t)value_count;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        return 4 * (value_count + UINT64_C(1));
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        return 0;
    default:
        return (uint64_t)qwp_type_field_bytes(type) * value_count;
    }
}

size_t qwp_chunk_bound(const struct qwp_chunk *chunk, size_t header_bound)
{
    const size_t bitmap_bytes = (chunk->row_count + 7u) / 8 + 1;
    /* Two blocks: the second text offset of each column lies in the second header's bound. */
    size_t bound =
        2 * header_bound +
        (chunk->designated_type == QWP_TYPE_NONE ? 0 : sizeof(int64_t) * (size_t)chunk->row_count);
    for (uint32_t c = 0; c < chunk->column_count; c++) {
        const struct qwp_block_column *column = &chunk->columns[c];
        const struct qwp_chunk_part *part = &chunk->parts[c];
        bound += bitmap_bytes;
        switch (column->type) {
        case QWP_TYPE_VARCHAR:
        case QWP_TYPE_BINARY:
        case QWP_TYPE_DOUBLE_ARRAY:
        case QWP_TYPE_LONG_ARRAY:
            bound += part->values_bytes;
            break;
        case QWP_TYPE_BOOLEAN:
            bound += bitmap_bytes;
            break;
        default:
            bound += (size_t)part->value_count * qwp_value_bound(column->type, column->parameter);
            break;
        }
    }
    return bound;
}

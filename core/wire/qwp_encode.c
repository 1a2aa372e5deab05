#include "core/wire/qwp_encode.h"

#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

enum {
    SLICE_ROWS = 128,  /* their records stay in the first-level cache from column to column */
    GROUP_COLUMNS = 32 /* gathered slice by slice together */
};

/* Room behind a block's last byte for stores that are wider than their value. */
enum { BLOCK_SLACK = 32 };

/* A column of the block on its way out. */
struct column {
    const struct qwp_block_column *def;
    uint32_t index;
    uint32_t value_count;
    unsigned char *start;  /* its null flag */
    unsigned char *bitmap; /* NULL: no row is null */
    unsigned char *at;     /* where the next value goes */
};

struct encoding {
    struct qwp_encoder *scratch;
    const struct qwp_block *block;
    unsigned flags;
    struct qwp_encode_fault *fault;
};

/* Rows of one run, few enough that their records stay cached. */
struct slice {
    const struct qwp_run *run;
    uint32_t first_row;
    uint32_t count;
};

/* Calls for the slices of a block: starts zeroed; false at the end. */
struct slice_cursor {
    uint32_t run;
    uint32_t run_row;
    uint32_t row;
};

static bool next_slice(const struct qwp_block *block, struct slice_cursor *cursor,
                       struct slice *slice)
{
    if (cursor->run == block->run_count) {
        return false;
    }
    const struct qwp_run *run = &block->runs[cursor->run];
    const uint32_t left = run->row_count - cursor->run_row;
    *slice = (struct slice){run, cursor->row, left < SLICE_ROWS ? left : SLICE_ROWS};
    cursor->row += slice->count;
    cursor->run_row += slice->count;
    if (cursor->run_row == run->row_count) {
        cursor->run++;
        cursor->run_row = 0;
    }
    return true;
}

static bool row_is_null(const struct column *column, uint32_t row)
{
    return (column->bitmap[row >> 3] >> (row & 7) & 1) != 0;
}

/* Row of the block in which the column's value number `value` stands. */
static uint32_t row_of_value(const struct column *column, uint32_t value)
{
    uint32_t row = value;
    if (column->bitmap != NULL) {
        for (row = 0;; row++) {
            if (!row_is_null(column, row) && value-- == 0) {
                break;
            }
        }
    }
    return row;
}

/* Likewise, counting the values of a slice only. */
static uint32_t row_of_slice_value(const struct column *column, const struct slice *slice,
                                   uint32_t value)
{
    uint32_t row = slice->first_row;
    if (column->bitmap == NULL) {
        return row + value;
    }
    while (row_is_null(column, row) || value-- > 0) {
        row++;
    }
    return row;
}

static enum qwp_result fault(struct encoding *e, uint32_t row, uint32_t column, const char *what)
{
    *e->fault = (struct qwp_encode_fault){row, column, what};
    return QWP_CORRUPT;
}

/* --- where a row's parts stand in its steering ------------------------------------------------ */

static const struct qwp_shape_column *field_of(const struct qwp_run *run, uint32_t column)
{
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD ? NULL : &run->shape->columns[field];
}

static uint32_t steering_ends_off(const struct qwp_run *run)
{
    return 8u * run->shape->null_words;
}

static uint32_t steering_symbols_off(const struct qwp_run *run)
{
    const uint32_t ends_bytes = (uint32_t)qwp_round_up(4u * run->shape->var_count, 8);
    return steering_ends_off(run) + (run->has_parts ? ends_bytes : 0);
}

struct part {
    const unsigned char *text;
    uint32_t len;
};

static struct part part_of(const struct qwp_block *block, const struct qwp_run *run, uint32_t row,
                           uint16_t var_index)
{
    if (!run->has_parts) {
        return (struct part){block->records[row], 0};
    }
    const unsigned char *ends =
        (const unsigned char *)block->steering[row] + steering_ends_off(run);
    const uint32_t end = qwp_load_u32(ends + 4u * var_index);
    const uint32_t start =
        var_index == 0 ? run->shape->fixed_bytes : qwp_load_u32(ends + 4u * var_index - 4);
    return (struct part){block->records[row] + start, end - start};
}

/* --- null sections ---------------------------------------------------------------------------- */

static void set_bits(unsigned char *bitmap, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        bitmap[i >> 3] |= (unsigned char)(1u << (i & 7));
    }
}

static bool run_has_nulls(const struct qwp_run *run, uint32_t column)
{
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD || (run->null_any[field / 64] >> field % 64 & 1) != 0;
}

/* Marks the null rows of a run and returns their number. */
static uint32_t mark_nulls(const struct qwp_block *block, const struct qwp_run *run,
                           uint32_t first_row, uint32_t column, unsigned char *bitmap)
{
    const uint16_t field = run->field_of_column[column];
    if (field == QWP_NO_FIELD) {
        set_bits(bitmap, first_row, run->row_count);
        return run->row_count;
    }
    uint32_t nulls = 0;
    for (uint32_t row = first_row; row < first_row + run->row_count; row++) {
        const unsigned null = block->steering[row][field / 64] >> field % 64 & 1;
        bitmap[row >> 3] |= (unsigned char)(null << (row & 7));
        nulls += null;
    }
    return nulls;
}

/* Writes null flag and bitmap at column->at and counts the values. */
static void put_null_section(const struct qwp_block *block, struct column *column)
{
    unsigned char *at = column->at;
    column->start = at;
    column->value_count = block->row_count;
    column->bitmap = NULL;
    bool any = false;
    for (uint32_t r = 0; r < block->run_count; r++) {
        any |= run_has_nulls(&block->runs[r], column->index);
    }
    *at++ = any;
    if (any) {
        const uint32_t bitmap_bytes = (block->row_count + 7) / 8;
        memset(at, 0, bitmap_bytes);
        uint32_t row = 0;
        for (uint32_t r = 0; r < block->run_count; r++) {
            const struct qwp_run *run = &block->runs[r];
            if (run_has_nulls(run, column->index)) {
                column->value_count -= mark_nulls(block, run, row, column->index, at);
            }
            row += run->row_count;
        }
        column->bitmap = at;
        at += bitmap_bytes;
    }
    column->at = at;
}

/* The rows of a slice that have a value, as addresses out of `all` (the block's records or
 * steerings). */
static uint32_t slice_rows(struct encoding *e, const struct column *column,
                           const struct slice *slice, const unsigned char *const *all,
                           const unsigned char *const **rows)
{
    if (column->bitmap == NULL) {
        *rows = all + slice->first_row;
        return slice->count;
    }
    uint32_t n = 0;
    if (field_of(slice->run, column->index) != NULL) {
        const unsigned char **out = e->scratch->rows;
        for (uint32_t row = slice->first_row; row < slice->first_row + slice->count; row++) {
            out[n] = all[row];
            n += !row_is_null(column, row);
        }
        *rows = out;
    }
    return n;
}

/* --- groups: columns gathered together, slice by slice -----------------------------------------
 */

/* Width of a value that is copied as it is, 0 for types that need more. */
static uint32_t plain_width(uint8_t type)
{
    switch (type) {
    case QWP_TYPE_BOOLEAN:
    case QWP_TYPE_SYMBOL:
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
    case QWP_TYPE_GEOHASH:
        return 0;
    default:
        return qwp_type_is_variable(type) ? 0 : qwp_type_field_bytes(type);
    }
}

static bool is_decimal(uint8_t type)
{
    return type == QWP_TYPE_DECIMAL64 || type == QWP_TYPE_DECIMAL128 || type == QWP_TYPE_DECIMAL256;
}

static bool groups(uint8_t type)
{
    return type == QWP_TYPE_SYMBOL || plain_width(type) != 0;
}

/* Writes what precedes the values and returns where the next column may begin at the earliest. */
static unsigned char *begin_grouped(const struct qwp_block *block, struct column *column)
{
    put_null_section(block, column);
    if (is_decimal(column->def->type)) {
        *column->at++ = column->def->parameter;
    }
    if (column->def->type == QWP_TYPE_SYMBOL) {
        return column->at + qwp_value_bound(QWP_TYPE_SYMBOL, 0) * column->value_count +
               QWP_GATHER_SYMBOL_SLACK;
    }
    return column->at + (size_t)plain_width(column->def->type) * column->value_count;
}

static enum qwp_result gather_symbols(struct encoding *e, struct column *column,
                                      const struct slice *slice)
{
    const struct qwp_run *run = slice->run;
    const struct qwp_shape_column *field = field_of(run, column->index);
    if (field == NULL) {
        return QWP_OK;
    }
    const unsigned char *const *rows;
    if (run->has_symbol_text) {
        const unsigned char *const *all =
            (const unsigned char *const *)(const void *)e->block->steering;
        const uint32_t n = slice_rows(e, column, slice, all, &rows);
        qwp_gather_symbol_codes(rows, n, steering_symbols_off(run) + 4u * field->var_index,
                                &column->at);
        return QWP_OK;
    }
    const uint32_t n = slice_rows(e, column, slice, e->block->records, &rows);
    const uint32_t good =
        qwp_gather_symbols(rows, n, field->off, run->symbol_codes, run->symbol_count, &column->at);
    return good == n ? QWP_OK
                     : fault(e, row_of_slice_value(column, slice, good), column->index,
                             "symbol index beyond the ring's symbols");
}

static enum qwp_result gather_grouped(struct encoding *e, struct column *column,
                                      const struct slice *slice)
{
    if (column->def->type == QWP_TYPE_SYMBOL) {
        return gather_symbols(e, column, slice);
    }
    const struct qwp_shape_column *field = field_of(slice->run, column->index);
    if (field != NULL) {
        const unsigned char *const *rows;
        const uint32_t n = slice_rows(e, column, slice, e->block->records, &rows);
        column->at =
            qwp_gather_fixed(rows, n, field->off, plain_width(column->def->type), column->at);
    }
    return QWP_OK;
}

/* Encodes up to GROUP_COLUMNS columns from column `first` on that can go together; sets *count and
 * moves *at. While symbols have their final size only once gathered, each column starts where it
 * could at the latest; then the gaps are closed. */
static enum qwp_result encode_group(struct encoding *e, uint32_t first, uint32_t *count,
                                    unsigned char **at)
{
    const struct qwp_block *block = e->block;
    struct column columns[GROUP_COLUMNS];
    uint32_t n = 0;
    unsigned char *next = *at;
    while (n < GROUP_COLUMNS && first + n < block->column_count &&
           groups(block->columns[first + n].type)) {
        columns[n] =
            (struct column){.def = &block->columns[first + n], .index = first + n, .at = next};
        next = begin_grouped(block, &columns[n]);
        n++;
    }
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        for (uint32_t i = 0; i < n; i++) {
            const enum qwp_result result = gather_grouped(e, &columns[i], &slice);
            if (result != QWP_OK) {
                return result;
            }
        }
    }
    unsigned char *end = columns[0].at;
    for (uint32_t i = 1; i < n; i++) {
        const size_t len = (size_t)(columns[i].at - columns[i].start);
        if (columns[i].start != end) {
            memmove(end, columns[i].start, len);
        }
        end += len;
    }
    *count = n;
    *at = end;
    return QWP_OK;
}

/* --- columns that go one by one -----------------------------------------------------------------
 */

static enum qwp_result encode_booleans(struct encoding *e, struct column *column)
{
    unsigned char *bytes = e->scratch->bytes;
    struct slice_cursor cursor = {0};
    struct slice slice;
    uint32_t done = 0;
    while (next_slice(e->block, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        const unsigned char *const *rows;
        const uint32_t n = slice_rows(e, column, &slice, e->block->records, &rows);
        const uint32_t good = qwp_gather_booleans(rows, n, field->off, bytes + done);
        if (good != n) {
            return fault(e, row_of_slice_value(column, &slice, good), column->index,
                         "boolean other than 0 and 1");
        }
        done += n;
    }
    column->at = qwp_pack_bits(bytes, done, column->at);
    return QWP_OK;
}

static enum qwp_result encode_geohashes(struct encoding *e, struct column *column)
{
    const uint8_t bits = column->def->parameter;
    struct slice_cursor cursor = {0};
    struct slice slice;
    column->at = qwp_varint_put(column->at, bits);
    while (next_slice(e->block, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        const unsigned char *const *rows;
        const uint32_t n = slice_rows(e, column, &slice, e->block->records, &rows);
        const uint32_t good = qwp_gather_geohashes(rows, n, field->off, bits, &column->at);
        if (good != n) {
            return fault(e, row_of_slice_value(column, &slice, good), column->index,
                         "geohash bits beyond its precision");
        }
    }
    return QWP_OK;
}

/* Encoding byte, if the message has them, and n times out of the scratch memory. */
static unsigned char *put_times(struct encoding *e, uint32_t n, unsigned char *at)
{
    const int64_t *times = e->scratch->times;
    if ((e->flags & QWP_ENCODE_GORILLA) != 0) {
        const size_t len = n < QWP_GORILLA_TIMES_MIN ? 0 : qwp_gorilla_encode(times, n, at + 1);
        *at++ = len != 0;
        if (len != 0) {
            return at + len;
        }
    }
    memcpy(at, times, n * sizeof *times);
    return at + n * sizeof *times;
}

static enum qwp_result encode_times(struct encoding *e, struct column *column)
{
    struct slice_cursor cursor = {0};
    struct slice slice;
    uint32_t done = 0;
    while (next_slice(e->block, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field != NULL) {
            const unsigned char *const *rows;
            const uint32_t n = slice_rows(e, column, &slice, e->block->records, &rows);
            qwp_gather_times(rows, n, field->off, e->scratch->times + done);
            done += n;
        }
    }
    column->at = put_times(e, done, column->at);
    return QWP_OK;
}

static enum qwp_result encode_designated(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *block = e->block;
    int64_t *times = e->scratch->times;
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        qwp_gather_times(block->records + slice.first_row, slice.count,
                         slice.run->shape->designated_off, times + slice.first_row);
    }
    const int64_t max = block->designated_type == QWP_TYPE_TIMESTAMP ? QWP_DESIGNATED_US_MAX
                                                                     : QWP_DESIGNATED_NS_MAX;
    for (uint32_t row = 0; row < block->row_count; row++) {
        if (times[row] < 0 || times[row] > max) {
            return fault(e, row, block->column_count, "designated timestamp out of range");
        }
    }
    **at = 0; /* never null */
    *at = put_times(e, block->row_count, *at + 1);
    return QWP_OK;
}

/* Writes offsets at offsets[1...] if there are any, and the parts behind `at`. */
static unsigned char *gather_parts(const struct qwp_block *block, const struct column *column,
                                   unsigned char *offsets, unsigned char *at)
{
    const unsigned char *const base = at;
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        for (uint32_t i = 0; i < slice.count; i++) {
            const uint32_t row = slice.first_row + i;
            if (column->bitmap != NULL && row_is_null(column, row)) {
                continue;
            }
            const struct part part = part_of(block, slice.run, row, field->var_index);
            qwp_copy_part(at, part.text, part.len);
            at += part.len;
            offsets += 4;
            qwp_store_u32(offsets, (uint32_t)(at - base));
        }
    }
    return at;
}

/* Number of the first text that is no UTF-8, value_count if there is none. */
static uint32_t first_bad_text(const struct column *column, const unsigned char *offsets,
                               const unsigned char *texts)
{
    for (uint32_t i = 0; i < column->value_count; i++) {
        const uint32_t start = qwp_load_u32(offsets + 4 * (size_t)i);
        const uint32_t end = qwp_load_u32(offsets + 4 * (size_t)i + 4);
        if (!qwp_utf8_valid(texts + start, end - start)) {
            return i;
        }
    }
    return column->value_count;
}

static enum qwp_result encode_texts(struct encoding *e, struct column *column)
{
    unsigned char *offsets = column->at;
    unsigned char *texts = offsets + 4 * ((size_t)column->value_count + 1);
    qwp_store_u32(offsets, 0);
    column->at = gather_parts(e->block, column, offsets, texts);
    if (column->def->type == QWP_TYPE_VARCHAR) {
        /* Judged here, on the copy: the record may have changed meanwhile. */
        const uint32_t bad = first_bad_text(column, offsets, texts);
        if (bad != column->value_count) {
            return fault(e, row_of_value(column, bad), column->index, "invalid UTF-8");
        }
    }
    return QWP_OK;
}

/* Whether dimensions and elements fill `len` bytes exactly. */
static bool array_is_whole(const unsigned char *array, size_t len)
{
    if (len == 0) {
        return false;
    }
    const uint32_t dimensions = array[0];
    const size_t header = 1 + 4 * (size_t)dimensions;
    if (dimensions < 1 || dimensions > QWP_ARRAY_DIMENSIONS_MAX || len < header) {
        return false;
    }
    const uint64_t room = (len - header) / 8;
    uint64_t elements = 1;
    bool empty = false;
    for (uint32_t d = 0; d < dimensions; d++) {
        const uint32_t length = qwp_load_u32(array + 1 + 4 * (size_t)d);
        if (length > INT32_MAX) {
            return false;
        }
        empty |= length == 0;
        /* Kept at most room + 1, so that 32 lengths cannot overflow it. */
        elements = elements * length > room ? room + 1 : elements * length;
    }
    return len - header == (empty ? 0 : elements) * 8;
}

static enum qwp_result encode_arrays(struct encoding *e, struct column *column)
{
    const struct qwp_block *block = e->block;
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        for (uint32_t row = slice.first_row; row < slice.first_row + slice.count; row++) {
            if (column->bitmap != NULL && row_is_null(column, row)) {
                continue;
            }
            const struct part part = part_of(block, slice.run, row, field->var_index);
            qwp_copy_part(column->at, part.text, part.len);
            if (!array_is_whole(column->at, part.len)) {
                return fault(e, row, column->index, "array lengths that do not fit its bytes");
            }
            column->at += part.len;
        }
    }
    return QWP_OK;
}

static enum qwp_result encode_single(struct encoding *e, uint32_t index, unsigned char **at)
{
    struct column column = {.def = &e->block->columns[index], .index = index, .at = *at};
    put_null_section(e->block, &column);
    enum qwp_result result;
    switch (column.def->type) {
    case QWP_TYPE_BOOLEAN:
        result = encode_booleans(e, &column);
        break;
    case QWP_TYPE_GEOHASH:
        result = encode_geohashes(e, &column);
        break;
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        result = encode_times(e, &column);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        result = encode_texts(e, &column);
        break;
    default:
        result = encode_arrays(e, &column);
        break;
    }
    *at = column.at;
    return result;
}

/* --- the block ----------------------------------------------------------------------------------
 */

static unsigned char *put_name(unsigned char *at, struct qwp_name name)
{
    at = qwp_varint_put(at, name.len);
    memcpy(at, name.text, name.len);
    return at + name.len;
}

static unsigned char *put_header(const struct qwp_block *block, unsigned char *at)
{
    const bool designated = block->designated_type != QWP_TYPE_NONE;
    at = put_name(at, block->table);
    at = qwp_varint_put(at, block->row_count);
    at = qwp_varint_put(at, block->column_count + designated);
    for (uint32_t c = 0; c < block->column_count; c++) {
        at = put_name(at, block->columns[c].name);
        *at++ = block->columns[c].type;
    }
    if (designated) {
        *at++ = 0; /* an empty name */
        *at++ = block->designated_type;
    }
    return at;
}

enum qwp_result qwp_block_encode(struct qwp_encoder *encoder, const struct qwp_block *block,
                                 unsigned flags, unsigned char *dst, struct qwp_encoded *done)
{
    QWP_ASSERT(block->row_count > 0 && block->row_count <= QWP_GATHER_ROWS_MAX);
    struct encoding e = {encoder, block, flags, &done->fault};
    unsigned char *at = put_header(block, dst);
    uint32_t c = 0;
    while (c < block->column_count) {
        uint32_t count = 1;
        const enum qwp_result result = groups(block->columns[c].type)
                                           ? encode_group(&e, c, &count, &at)
                                           : encode_single(&e, c, &at);
        if (result != QWP_OK) {
            return result;
        }
        c += count;
    }
    if (block->designated_type != QWP_TYPE_NONE) {
        const enum qwp_result result = encode_designated(&e, &at);
        if (result != QWP_OK) {
            return result;
        }
    }
    done->len = (size_t)(at - dst);
    done->table_count = 1;
    return QWP_OK;
}

/* --- bounds -------------------------------------------------------------------------------------
 */

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

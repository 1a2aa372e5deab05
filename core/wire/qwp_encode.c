#include "core/wire/qwp_encode.h"

#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

/* Columns that are gathered together, slice by slice. */
enum { GROUP_COLUMNS = 32 };

/* Room behind a block's last byte for stores that are wider than their value. */
enum { BLOCK_SLACK = 32 };

/* A column of the block on its way out. */
struct column {
    const struct qwp_block_column *def;
    uint32_t index;
    uint32_t value_count;
    uint8_t width;         /* of plain_widths */
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

/* Goes through the slices of a block; starts zeroed. */
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
    *slice = (struct slice){run, cursor->row,
                            left < QWP_ENCODE_SLICE_ROWS ? left : QWP_ENCODE_SLICE_ROWS};
    cursor->row += slice->count;
    cursor->run_row += slice->count;
    if (cursor->run_row == run->row_count) {
        cursor->run++;
        cursor->run_row = 0;
    }
    return true;
}

/* A bit for each of up to 64 rows from `row` on, set where the column has a value. */
static uint64_t value_mask(const struct column *column, uint32_t row, uint32_t count)
{
    uint64_t nulls = 0;
    if (column->bitmap != NULL) {
        /* May read 8 bytes beyond the bitmap, which the block's slack allows. */
        const unsigned char *at = column->bitmap + row / 8;
        nulls = qwp_load_u64(at) >> row % 8 | (uint64_t)at[8] << 1 << (63 - row % 8);
    }
    return ~nulls & (count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX);
}

/* Row of the block in which value number `value` of a slice stands. */
static uint32_t row_of_value(const struct column *column, const struct slice *slice, uint32_t value)
{
    uint32_t row = slice->first_row;
    while (value_mask(column, row, 1) == 0 || value-- > 0) {
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

/* Where the variable parts of a column stand in the records of a run. */
struct part_places {
    uint32_t start_off; /* in the steering: where the part before ends; 0: at `start` */
    uint32_t end_off;   /* in the steering; 0: all parts are empty */
    uint32_t start;
};

static struct part_places part_places_of(const struct qwp_run *run, uint16_t var_index)
{
    const uint32_t ends_off = steering_ends_off(run);
    struct part_places places = {.start = run->shape->fixed_bytes};
    if (run->has_parts) {
        places.end_off = ends_off + 4u * var_index;
        places.start_off = var_index == 0 ? 0 : places.end_off - 4;
    }
    return places;
}

struct part {
    const unsigned char *at;
    uint32_t len;
};

static inline struct part part_of(const struct qwp_block *block, const struct part_places *places,
                                  uint32_t row)
{
    const unsigned char *steering = (const unsigned char *)block->steering[row];
    const uint32_t start =
        places->start_off == 0 ? places->start : qwp_load_u32(steering + places->start_off);
    const uint32_t end = places->end_off == 0 ? start : qwp_load_u32(steering + places->end_off);
    return (struct part){block->records[row] + start, end - start};
}

/* --- null sections ---------------------------------------------------------------------------- */

static bool run_has_nulls(const struct qwp_run *run, uint32_t column)
{
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD || (run->null_any[field / 64] >> field % 64 & 1) != 0;
}

/* Gathers byte `index` of the rows' null words, where the bits of eight columns stand, unless the
 * scratch memory still has those of the column before. */
static void gather_null_bytes(struct qwp_encoder *scratch, const struct qwp_block *block,
                              uint32_t first_row, uint32_t count, uint32_t index)
{
    for (uint32_t row = first_row; row < first_row + count; row++) {
        scratch->null_bytes[row] = ((const unsigned char *)block->steering[row])[index];
    }
}

/* Whether all runs that have the column keep its null bit in the same byte, so that the bytes
 * gathered for it serve its neighbours too. */
static bool same_null_byte(const struct qwp_block *block, uint32_t column, uint32_t *index)
{
    bool found = false;
    for (uint32_t r = 0; r < block->run_count; r++) {
        const uint16_t field = block->runs[r].field_of_column[column];
        if (field == QWP_NO_FIELD) {
            return false;
        }
        if (found && *index != field / 8u) {
            return false;
        }
        *index = field / 8u;
        found = true;
    }
    return true;
}

/* A byte for each row of the block, 1 where the column is null. */
static void flag_nulls(struct qwp_encoder *scratch, const struct qwp_block *block, uint32_t column,
                       unsigned char *flags)
{
    uint32_t index = 0;
    const bool shared = same_null_byte(block, column, &index);
    const bool present = shared && scratch->null_byte_index == index;
    uint32_t row = 0;
    for (uint32_t r = 0; r < block->run_count; r++) {
        const struct qwp_run *run = &block->runs[r];
        const uint16_t field = run->field_of_column[column];
        if (field == QWP_NO_FIELD) {
            memset(flags + row, 1, run->row_count);
        } else {
            if (!present) {
                gather_null_bytes(scratch, block, row, run->row_count, field / 8u);
            }
            qwp_spread_bit(scratch->null_bytes + row, run->row_count, field % 8u, flags + row);
        }
        row += run->row_count;
    }
    scratch->null_byte_index = shared ? index : QWP_ENCODE_NO_NULL_BYTES;
}

static uint32_t count_bits(const unsigned char *bitmap, uint32_t bits)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < bits; i += 64) {
        uint64_t word = qwp_load_u64(bitmap + i / 8);
        if (bits - i < 64) {
            word &= (UINT64_C(1) << (bits - i)) - 1;
        }
        count += (uint32_t)__builtin_popcountll(word);
    }
    return count;
}

/* Writes null flag and bitmap at column->at and counts the values. */
static void put_null_section(struct encoding *e, struct column *column)
{
    const struct qwp_block *block = e->block;
    column->start = column->at;
    column->value_count = block->row_count;
    column->bitmap = NULL;
    bool any = false;
    for (uint32_t r = 0; r < block->run_count; r++) {
        any |= run_has_nulls(&block->runs[r], column->index);
    }
    *column->at++ = any;
    if (any) {
        column->bitmap = column->at;
        flag_nulls(e->scratch, block, column->index, e->scratch->bytes);
        qwp_pack_bits(e->scratch->bytes, block->row_count, column->bitmap);
        column->value_count -= count_bits(column->bitmap, block->row_count);
        column->at += (block->row_count + 7) / 8;
    }
}

/* The rows of a slice that have a value, as addresses out of `all` (the block's records or
 * steerings). */
static uint32_t slice_rows(struct encoding *e, const struct column *column,
                           const struct slice *slice, const unsigned char *const *all,
                           const unsigned char *const **rows)
{
    *rows = all + slice->first_row;
    if (column->bitmap == NULL) {
        return slice->count;
    }
    if (slice->run->field_of_column[column->index] == QWP_NO_FIELD) {
        return 0;
    }
    const unsigned char **const first = e->scratch->rows;
    const unsigned char **out = first;
    for (uint32_t i = 0; i < slice->count; i += 64) {
        const unsigned char *const *from = *rows + i;
        uint64_t mask = value_mask(column, slice->first_row + i, slice->count - i);
        for (; mask != 0; mask &= mask - 1) {
            *out++ = from[__builtin_ctzll(mask)];
        }
    }
    *rows = first;
    return (uint32_t)(out - first);
}

/* --- groups: columns gathered together, slice by slice -----------------------------------------
 */

/* Width of a value that is copied as it is, 0 for types that need more. */
static const uint8_t plain_widths[QWP_TYPE_END] = {
    [QWP_TYPE_BYTE] = 1,      [QWP_TYPE_SHORT] = 2,       [QWP_TYPE_INT] = 4,
    [QWP_TYPE_LONG] = 8,      [QWP_TYPE_FLOAT] = 4,       [QWP_TYPE_DOUBLE] = 8,
    [QWP_TYPE_DATE] = 8,      [QWP_TYPE_UUID] = 16,       [QWP_TYPE_LONG256] = 32,
    [QWP_TYPE_DECIMAL64] = 8, [QWP_TYPE_DECIMAL128] = 16, [QWP_TYPE_DECIMAL256] = 32,
    [QWP_TYPE_CHAR] = 2,      [QWP_TYPE_IPV4] = 4,
};

static bool is_decimal(uint8_t type)
{
    return type == QWP_TYPE_DECIMAL64 || type == QWP_TYPE_DECIMAL128 || type == QWP_TYPE_DECIMAL256;
}

static bool groups(uint8_t type)
{
    return type == QWP_TYPE_SYMBOL || plain_widths[type] != 0;
}

/* Writes what precedes the values and returns where the next column may begin at the earliest. */
static unsigned char *begin_grouped(struct encoding *e, struct column *column)
{
    put_null_section(e, column);
    if (is_decimal(column->def->type)) {
        *column->at++ = column->def->parameter;
    }
    if (column->def->type == QWP_TYPE_SYMBOL) {
        return column->at + qwp_value_bound(QWP_TYPE_SYMBOL, 0) * column->value_count +
               QWP_GATHER_SYMBOL_SLACK;
    }
    return column->at + (size_t)column->width * column->value_count;
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
    const uint32_t good = qwp_gather_symbols(rows, n, field->off, run->symbol_codes,
                                             run->symbol_count, &column->at, 1);
    return good == n ? QWP_OK
                     : fault(e, row_of_value(column, slice, good), column->index,
                             "symbol index beyond the ring's symbols");
}

static void gather_plain(struct encoding *e, struct column *column, const struct slice *slice)
{
    const struct qwp_shape_column *field = field_of(slice->run, column->index);
    if (field != NULL) {
        const uint32_t width = column->width;
        const unsigned char *const *rows;
        const uint32_t n = slice_rows(e, column, slice, e->block->records, &rows);
        qwp_gather_fixed(rows, n, field->off, width, column->at);
        column->at += (size_t)n * width;
    }
}

/* How many columns from here on can be gathered at once: of one width, or symbols, without nulls
 * and, if symbols, with their fields side by side. */
static uint32_t alike(const struct qwp_run *run, const struct column *columns, uint32_t count)
{
    const bool symbols = columns[0].def->type == QWP_TYPE_SYMBOL;
    const struct qwp_shape_column *first = field_of(run, columns[0].index);
    uint32_t n = 0;
    while (n < count && columns[n].bitmap == NULL && columns[n].width == columns[0].width &&
           (!symbols || field_of(run, columns[n].index)->off == first->off + 4 * n)) {
        n++;
    }
    return n;
}

/* Four at a time, but three and two rather than four and one. */
static uint32_t at_once(uint32_t n)
{
    return n == QWP_GATHER_MANY_MAX + 1 ? QWP_GATHER_MANY_MAX - 1
           : n > QWP_GATHER_MANY_MAX    ? QWP_GATHER_MANY_MAX
                                        : n;
}

static void gather_plain_many(struct encoding *e, struct column *columns, uint32_t count,
                              const struct slice *slice)
{
    const uint32_t width = columns[0].width;
    uint32_t offs[QWP_GATHER_MANY_MAX];
    unsigned char *dsts[QWP_GATHER_MANY_MAX];
    for (uint32_t i = 0; i < count; i++) {
        offs[i] = field_of(slice->run, columns[i].index)->off;
        dsts[i] = columns[i].at;
        columns[i].at += (size_t)slice->count * width;
    }
    qwp_gather_fixed_many(e->block->records + slice->first_row, slice->count, offs, width, dsts,
                          count);
}

/* False, and nothing gathered, if the symbols are texts or an index is bad: they then go one by
 * one, which finds the bad one. */
static bool gather_symbols_many(struct encoding *e, struct column *columns, uint32_t count,
                                const struct slice *slice)
{
    const struct qwp_run *run = slice->run;
    unsigned char *ats[QWP_GATHER_MANY_MAX];
    if (run->has_symbol_text) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        ats[i] = columns[i].at;
    }
    if (qwp_gather_symbols(e->block->records + slice->first_row, slice->count,
                           field_of(run, columns[0].index)->off, run->symbol_codes,
                           run->symbol_count, ats, count) != slice->count) {
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        columns[i].at = ats[i];
    }
    return true;
}

static enum qwp_result gather_slice(struct encoding *e, struct column *columns, uint32_t count,
                                    const struct slice *slice)
{
    uint32_t i = 0;
    while (i < count) {
        const bool symbols = columns[i].def->type == QWP_TYPE_SYMBOL;
        const uint32_t n = at_once(alike(slice->run, columns + i, count - i));
        if (n > 1 && !symbols) {
            gather_plain_many(e, columns + i, n, slice);
            i += n;
        } else if (n > 1 && gather_symbols_many(e, columns + i, n, slice)) {
            i += n;
        } else if (symbols) {
            const enum qwp_result result = gather_symbols(e, &columns[i], slice);
            if (result != QWP_OK) {
                return result;
            }
            i++;
        } else {
            gather_plain(e, &columns[i], slice);
            i++;
        }
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
        const struct qwp_block_column *def = &block->columns[first + n];
        columns[n].def = def;
        columns[n].index = first + n;
        columns[n].width = plain_widths[def->type];
        columns[n].at = next;
        next = begin_grouped(e, &columns[n]);
        n++;
    }
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        const enum qwp_result result = gather_slice(e, columns, n, &slice);
        if (result != QWP_OK) {
            return result;
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
            return fault(e, row_of_value(column, &slice, good), column->index,
                         "boolean other than 0 and 1");
        }
        done += n;
    }
    qwp_pack_bits(bytes, done, column->at);
    column->at += (done + 7) / 8;
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
            return fault(e, row_of_value(column, &slice, good), column->index,
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
            qwp_gather_fixed(rows, n, field->off, 8, (unsigned char *)(e->scratch->times + done));
            done += n;
        }
    }
    column->at = put_times(e, done, column->at);
    return QWP_OK;
}

/* Index of the first time below 0 or above max, n if there is none. */
static uint32_t first_out_of_range(const int64_t *times, uint32_t n, int64_t max)
{
    uint64_t signs = 0;
    for (uint32_t i = 0; i < n; i++) {
        /* Negative when the time is, or is above max; a negative time may wrap but has said so. */
        signs |= (uint64_t)times[i] | ((uint64_t)max - (uint64_t)times[i]);
    }
    if (signs >> 63 == 0) {
        return n;
    }
    uint32_t bad = 0;
    while (times[bad] >= 0 && times[bad] <= max) {
        bad++;
    }
    return bad;
}

static enum qwp_result encode_designated(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *block = e->block;
    int64_t *times = e->scratch->times;
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(block, &cursor, &slice)) {
        qwp_gather_fixed(block->records + slice.first_row, slice.count,
                         slice.run->shape->designated_off, 8,
                         (unsigned char *)(times + slice.first_row));
    }
    const uint32_t bad =
        first_out_of_range(times, block->row_count,
                           block->designated_type == QWP_TYPE_TIMESTAMP ? QWP_DESIGNATED_US_MAX
                                                                        : QWP_DESIGNATED_NS_MAX);
    if (bad != block->row_count) {
        return fault(e, bad, block->column_count, "designated timestamp out of range");
    }
    **at = 0; /* never null */
    *at = put_times(e, block->row_count, *at + 1);
    return QWP_OK;
}

/* Texts as they have left, with the offsets that cut them. */
struct texts {
    unsigned char *offsets;
    unsigned char *first;
    uint32_t count;
};

/* Number of the first of the texts from `from` on that is no UTF-8, texts->count if there is none.
 */
static uint32_t first_bad_text(const struct texts *texts, uint32_t from)
{
    for (uint32_t i = from; i < texts->count; i++) {
        const uint32_t start = qwp_load_u32(texts->offsets + 4 * (size_t)i);
        const uint32_t end = qwp_load_u32(texts->offsets + 4 * (size_t)i + 4);
        if (!qwp_utf8_valid(texts->first + start, end - start)) {
            return i;
        }
    }
    return texts->count;
}

static bool is_ascii(const unsigned char *text, size_t len)
{
    uint64_t all = 0;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        all |= qwp_load_u64(text + i) | qwp_load_u64(text + i + 8) | qwp_load_u64(text + i + 16) |
               qwp_load_u64(text + i + 24);
    }
    for (; i < len; i++) {
        all |= text[i];
    }
    return (all & UINT64_C(0x8080808080808080)) == 0;
}

/* Appends the parts of a slice. */
static unsigned char *gather_parts(const struct qwp_block *block, const struct column *column,
                                   const struct slice *slice, struct texts *texts,
                                   unsigned char *at)
{
    const struct part_places places =
        part_places_of(slice->run, field_of(slice->run, column->index)->var_index);
    unsigned char *offset = texts->offsets + 4 * (size_t)texts->count;
    for (uint32_t i = 0; i < slice->count; i += 64) {
        const uint32_t row = slice->first_row + i;
        for (uint64_t mask = value_mask(column, row, slice->count - i); mask != 0;
             mask &= mask - 1) {
            const struct part part = part_of(block, &places, row + (uint32_t)__builtin_ctzll(mask));
            qwp_copy_part(at, part.at, part.len);
            at += part.len;
            offset += 4;
            qwp_store_u32(offset, (uint32_t)(at - texts->first));
        }
    }
    texts->count = (uint32_t)((size_t)(offset - texts->offsets) / 4);
    return at;
}

static enum qwp_result encode_texts(struct encoding *e, struct column *column)
{
    struct texts texts = {.offsets = column->at,
                          .first = column->at + 4 * ((size_t)column->value_count + 1)};
    const bool utf8 = column->def->type == QWP_TYPE_VARCHAR;
    struct slice_cursor cursor = {0};
    struct slice slice;
    qwp_store_u32(texts.offsets, 0);
    column->at = texts.first;
    while (next_slice(e->block, &cursor, &slice)) {
        if (field_of(slice.run, column->index) == NULL) {
            continue;
        }
        const uint32_t before = texts.count;
        unsigned char *start = column->at;
        column->at = gather_parts(e->block, column, &slice, &texts, start);
        /* Judged here, on the copy: the record may have changed meanwhile. */
        if (utf8 && !is_ascii(start, (size_t)(column->at - start))) {
            const uint32_t bad = first_bad_text(&texts, before);
            if (bad != texts.count) {
                return fault(e, row_of_value(column, &slice, bad - before), column->index,
                             "invalid UTF-8");
            }
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
        const struct part_places places = part_places_of(slice.run, field->var_index);
        for (uint32_t row = slice.first_row; row < slice.first_row + slice.count; row++) {
            if (value_mask(column, row, 1) == 0) {
                continue;
            }
            const struct part part = part_of(block, &places, row);
            qwp_copy_part(column->at, part.at, part.len);
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
    put_null_section(e, &column);
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
    qwp_copy_part(at, (const unsigned char *)name.text, name.len);
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
    encoder->null_byte_index = QWP_ENCODE_NO_NULL_BYTES;
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

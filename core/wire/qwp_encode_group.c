#include <string.h>

#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_varint.h"

enum { GROUP_COLUMNS = 32 };

static const uint8_t plain_widths[QWP_TYPE_END] = {
    [QWP_TYPE_BYTE] = 1,      [QWP_TYPE_SHORT] = 2,       [QWP_TYPE_INT] = 4,
    [QWP_TYPE_LONG] = 8,      [QWP_TYPE_FLOAT] = 4,       [QWP_TYPE_DOUBLE] = 8,
    [QWP_TYPE_DATE] = 8,      [QWP_TYPE_UUID] = 16,       [QWP_TYPE_LONG256] = 32,
    [QWP_TYPE_DECIMAL64] = 8, [QWP_TYPE_DECIMAL128] = 16, [QWP_TYPE_DECIMAL256] = 32,
    [QWP_TYPE_CHAR] = 2,      [QWP_TYPE_IPV4] = 4,
};

uint8_t qwp_encode_plain_width(uint8_t type)
{
    return plain_widths[type];
}

bool qwp_encode_is_decimal(uint8_t type)
{
    return type == QWP_TYPE_DECIMAL64 || type == QWP_TYPE_DECIMAL128 || type == QWP_TYPE_DECIMAL256;
}

bool qwp_encode_groups(uint8_t type)
{
    return type == QWP_TYPE_SYMBOL || plain_widths[type] != 0;
}

/* Writes what precedes the values and returns where the next column may begin at the earliest. */
static unsigned char *begin_grouped(struct encoding *e, struct column *column)
{
    qwp_encode_null_section(e, column);
    if (qwp_encode_is_decimal(column->def->type)) {
        *column->at++ = column->def->parameter;
    }
    if (column->def->type == QWP_TYPE_SYMBOL) {
        return column->at + qwp_value_bound(QWP_TYPE_SYMBOL, 0) * column->value_count +
               QWP_GATHER_SYMBOL_SLACK;
    }
    column->values = column->at;
    unsigned char *end = column->at + (size_t)column->width * column->value_count;
    if (qwp_encode_may_narrow(e, column->def->type)) {
        column->is_narrow = true;
        column->width = qwp_encode_narrowest(column->def->type);
    }
    return end;
}

static uint32_t steering_symbols_off(const struct qwp_run *run)
{
    const uint32_t ends_bytes = (uint32_t)qwp_round_up(4u * run->shape->var_count, 8);
    return steering_ends_off(run) + (run->has_parts ? ends_bytes : 0);
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
        const uint32_t n = qwp_encode_rows(e, column, slice, all, &rows);
        qwp_gather_symbol_codes(rows, n, steering_symbols_off(run) + 4u * field->var_index,
                                &column->at);
        return QWP_OK;
    }
    const uint32_t n = qwp_encode_rows(e, column, slice, e->block->records, &rows);
    const uint32_t good = qwp_gather_symbols(rows, n, field->off, run->symbol_codes,
                                             run->symbol_count, &column->at, 1);
    return good == n ? QWP_OK
                     : qwp_encode_fault(e, qwp_encode_row_of(column, slice, good), column->index,
                                        "symbol index beyond the ring's symbols");
}

static void gather_plain(struct encoding *e, struct column *column, const struct slice *slice)
{
    const struct qwp_shape_column *field = field_of(slice->run, column->index);
    if (field != NULL) {
        const uint32_t width = column->width;
        const unsigned char *const *rows;
        const uint32_t n = qwp_encode_rows(e, column, slice, e->block->records, &rows);
        qwp_gather_fixed(rows, n, field->off, width, column->at);
        column->at += (size_t)n * width;
    }
}

/* How many columns from here on can be gathered at once: of one width, or symbols, without nulls
 * and, if symbols or narrow, with their fields side by side. */
static uint32_t alike(const struct qwp_run *run, const struct column *columns, uint32_t count)
{
    const bool symbols = columns[0].def->type == QWP_TYPE_SYMBOL;
    const struct qwp_shape_column *first = field_of(run, columns[0].index);
    const bool close = columns[0].is_narrow || symbols;
    const uint32_t step = close ? qwp_type_field_bytes(columns[0].def->type) : 0;
    uint32_t n = 0;
    while (n < count && columns[n].bitmap == NULL && columns[n].width == columns[0].width &&
           columns[n].is_narrow == columns[0].is_narrow &&
           (!close || (columns[n].def->type == columns[0].def->type &&
                       field_of(run, columns[n].index)->off == first->off + step * n))) {
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
        if (columns[i].is_narrow) {
            qwp_encode_narrow(e, columns + i, n > 1 ? n : 1, slice);
            i += n > 1 ? n : 1;
        } else if (n > 1 && !symbols) {
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

uint32_t qwp_encode_unknown_symbol(const unsigned char *at, const unsigned char *end,
                                   uint32_t symbol_end)
{
    uint64_t id = 0;
    for (uint32_t i = 0; at < end; i++) {
        at = qwp_varint_get(at, end, &id);
        if (id >= symbol_end) {
            return i;
        }
    }
    return UINT32_MAX;
}

static enum qwp_result judge_symbols(struct encoding *e, const struct column *column)
{
    const unsigned char *values =
        column->start + 1 + (column->bitmap != NULL ? (e->block->row_count + 7) / 8 : 0);
    const uint32_t bad = qwp_encode_unknown_symbol(values, column->at, e->block->symbol_end);
    if (bad == UINT32_MAX) {
        return QWP_OK;
    }
    const struct slice all = {.count = e->block->row_count};
    return qwp_encode_fault(e, qwp_encode_row_of(column, &all, bad), column->index,
                            "a symbol younger than its row");
}

/* Columns whose size is known beforehand do not join behind ones where it is not: they would have
 * to move when the gaps are closed. */
static bool joins(const struct encoding *e, const struct column *columns, uint32_t count,
                  uint8_t type)
{
    if (!qwp_encode_groups(type)) {
        return false;
    }
    const bool known = type != QWP_TYPE_SYMBOL && !qwp_encode_may_narrow(e, type);
    return count == 0 || !known ||
           (columns[count - 1].def->type != QWP_TYPE_SYMBOL && !columns[count - 1].is_narrow);
}

/* Symbols and narrow columns have their final size only once gathered, so each column starts where
 * it could at the latest; then the gaps are closed. */
enum qwp_result qwp_encode_group(struct encoding *e, uint32_t first, uint32_t *count,
                                 unsigned char **at)
{
    const struct qwp_block *block = e->block;
    struct column columns[GROUP_COLUMNS];
    uint32_t n = 0;
    unsigned char *next = *at;
    while (n < GROUP_COLUMNS && first + n < block->column_count &&
           joins(e, columns, n, block->columns[first + n].type)) {
        const struct qwp_block_column *def = &block->columns[first + n];
        columns[n].def = def;
        columns[n].index = first + n;
        columns[n].width = plain_widths[def->type];
        columns[n].is_narrow = false;
        columns[n].at = next;
        next = begin_grouped(e, &columns[n]);
        n++;
    }
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(e, &cursor, &slice)) {
        const enum qwp_result result = gather_slice(e, columns, n, &slice);
        if (result != QWP_OK) {
            return result;
        }
    }
    for (uint32_t i = 0; i < n; i++) {
        if (columns[i].def->type == QWP_TYPE_SYMBOL && block->symbol_end != 0 &&
            judge_symbols(e, &columns[i]) != QWP_OK) {
            return QWP_CORRUPT;
        }
        if (columns[i].is_narrow) {
            e->start[e->scratch->type_offs[first + i]] = qwp_encode_narrow_type(&columns[i]);
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

#include "core/wire/qwp_encode_internal.h"

#include <string.h>

#include "core/qwp_bits.h"
#include "core/wire/qwp_gather.h"

static bool run_has_nulls(const struct qwp_run *run, uint16_t field)
{
    return field == QWP_NO_FIELD || (run->null_any[field / 64] >> field % 64 & 1) != 0;
}

/* Gathers the byte of the rows' null words where the bit of shape column `field` stands. */
static void gather_null_bytes(struct qwp_encoder *scratch, const struct qwp_block *block,
                              uint32_t first_row, uint32_t count, uint32_t field)
{
    for (uint32_t row = first_row; row < first_row + count; row++) {
        scratch->null_bytes[row] = ((const unsigned char *)block->steering[row])[field / 8];
    }
}

/* A byte for each row of the block, 1 where the column is null. */
static void flag_nulls(struct encoding *e, const struct column *column, unsigned char *flags)
{
    struct qwp_encoder *scratch = e->scratch;
    const struct qwp_block *block = e->block;
    if (column->field != QWP_NO_FIELD) {
        /* One byte has the bits of eight columns: mostly it is still there from the one before. */
        if (scratch->null_byte_index != column->field / 8u) {
            gather_null_bytes(scratch, block, 0, block->row_count, column->field);
            scratch->null_byte_index = column->field / 8u;
        }
        qwp_spread_bit(scratch->null_bytes, block->row_count, column->field % 8u, flags);
        return;
    }
    uint32_t row = 0;
    for (uint32_t r = 0; r < block->run_count; r++) {
        const uint32_t count = rows_of_run(e, r);
        const uint16_t field = block->runs[r].field_of_column[column->index];
        if (field == QWP_NO_FIELD) {
            memset(flags + row, 1, count);
        } else {
            gather_null_bytes(scratch, block, row, count, field);
            qwp_spread_bit(scratch->null_bytes + row, count, field % 8u, flags + row);
        }
        row += count;
    }
    scratch->null_byte_index = QWP_ENCODE_NO_NULL_BYTES;
}

/* Sets column->field; true if the column is null in some row. */
static bool survey_runs(const struct qwp_block *block, struct column *column)
{
    column->field = block->runs[0].field_of_column[column->index];
    bool nulls = false;
    for (uint32_t r = 0; r < block->run_count; r++) {
        const uint16_t field = block->runs[r].field_of_column[column->index];
        nulls |= run_has_nulls(&block->runs[r], field);
        if (field != column->field) {
            column->field = QWP_NO_FIELD;
        }
    }
    return nulls;
}

void qwp_encode_null_section(struct encoding *e, struct column *column)
{
    const uint32_t row_count = e->block->row_count;
    column->start = column->at;
    column->value_count = row_count;
    column->bitmap = NULL;
    *column->at++ = 0;
    if (!survey_runs(e->block, column)) {
        return;
    }
    flag_nulls(e, column, e->scratch->bytes);
    qwp_pack_bits(e->scratch->bytes, row_count, column->at);
    const uint32_t nulls = qwp_bits_count(column->at, row_count);
    if (nulls > 0) { /* or all of them are in the block ahead or behind */
        *column->start = 1;
        column->bitmap = column->at;
        column->value_count -= nulls;
        column->at += (row_count + 7) / 8;
    }
}

uint32_t qwp_encode_rows(struct encoding *e, const struct column *column, const struct slice *slice,
                         const unsigned char *const *all, const unsigned char *const **rows)
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

uint32_t qwp_encode_row_of(const struct column *column, const struct slice *slice, uint32_t value)
{
    uint32_t row = slice->first_row;
    while (value_mask(column, row, 1) == 0 || value-- > 0) {
        row++;
    }
    return row;
}

/* A block of one row, as a producer that publishes row by row makes them at linger 0, and as goes
 * ahead of compact ones: its columns in one walk, without the slices, groups and null sections that
 * pay from a few rows on, nor the loops of qwp_gather.c, which for one row each would double what
 * is left [410 instructions for a trade, 750 with them, 2000 by the general way]. What the walk
 * does not know (nulls, texts, arrays, geohashes) and what is wrong with a row it leaves to that.
 */
#include "core/wire/qwp_encode_internal.h"

#include <string.h>

static bool has_nulls(const struct qwp_run *run)
{
    uint64_t any = 0;
    for (uint32_t w = 0; w < run->shape->null_words; w++) {
        any |= run->null_any[w];
    }
    return any != 0;
}

static unsigned char *put_plain(unsigned char *at, const unsigned char *field, uint8_t width)
{
    switch (width) {
    case 1:
        *at = *field;
        break;
    case 2:
        memcpy(at, field, 2);
        break;
    case 4:
        memcpy(at, field, 4);
        break;
    case 8:
        memcpy(at, field, 8);
        break;
    case 16:
        memcpy(at, field, 16);
        break;
    default:
        memcpy(at, field, 32);
    }
    return at + width;
}

static unsigned char *put_symbol(unsigned char *at, const unsigned char *field,
                                 const struct qwp_run *run)
{
    const uint32_t index = qwp_load_once_u32(field);
    if (run->has_symbol_text || index >= run->symbol_count) {
        return NULL;
    }
    const uint32_t code = run->symbol_codes[index];
    qwp_store_u32(at, code);
    return at + (code >> 24);
}

static unsigned char *put_boolean(unsigned char *at, const unsigned char *field)
{
    const uint8_t value = qwp_load_once_u8(field);
    *at = value;
    return value <= 1 ? at + 1 : NULL;
}

static unsigned char *put_value(struct encoding *e, const struct qwp_block_column *column,
                                const unsigned char *field, unsigned char *at)
{
    const uint8_t width = qwp_encode_plain_width(column->type);
    *at++ = 0; /* no null */
    if (width != 0) {
        if (qwp_encode_is_decimal(column->type)) {
            *at++ = column->parameter;
        }
        return put_plain(at, field, width);
    }
    switch (column->type) {
    case QWP_TYPE_SYMBOL:
        return put_symbol(at, field, &e->block->runs[0]);
    case QWP_TYPE_BOOLEAN:
        return put_boolean(at, field);
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS: {
        int64_t time;
        memcpy(&time, field, sizeof time);
        return qwp_encode_put_times(e, &time, 1, at);
    }
    default:
        return NULL;
    }
}

/* Moves *end; false: out of range. */
static bool put_designated(struct encoding *e, unsigned char **end)
{
    const struct qwp_block *block = e->block;
    int64_t time;
    memcpy(&time, block->records[0] + block->runs[0].shape->designated_off, sizeof time);
    if (qwp_encode_bad_time(&time, 1, block->designated_type) != 1) {
        return false;
    }
    *(*end)++ = 0; /* never null */
    *end = qwp_encode_put_times(e, &time, 1, *end);
    return true;
}

bool qwp_encode_row(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *block = e->block;
    const struct qwp_run *run = &block->runs[0];
    if (block->row_count != 1 || block->symbol_end != 0 || has_nulls(run)) {
        return false;
    }
    unsigned char *end = *at;
    for (uint32_t c = 0; c < block->column_count && end != NULL; c++) {
        const uint16_t field = run->field_of_column[c];
        end = field == QWP_NO_FIELD
                  ? NULL
                  : put_value(e, &block->columns[c],
                              block->records[0] + run->shape->columns[field].off, end);
    }
    if (end == NULL || (block->designated_type != QWP_TYPE_NONE && !put_designated(e, &end))) {
        return false;
    }
    *at = end;
    return true;
}

#include <string.h>

#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"

bool qwp_encode_may_narrow(const struct encoding *e, uint8_t type)
{
    switch (type) {
    case QWP_TYPE_LONG:
        return (e->flags & QWP_ENCODE_COMPACT_LONG) != 0;
    case QWP_TYPE_INT:
        return (e->flags & QWP_ENCODE_COMPACT_INT) != 0;
    case QWP_TYPE_DOUBLE:
        return (e->flags & QWP_ENCODE_COMPACT_DOUBLE) != 0;
    default:
        return false;
    }
}

uint8_t qwp_encode_narrowest(uint8_t type)
{
    return type == QWP_TYPE_DOUBLE ? 4 : 1;
}

uint8_t qwp_encode_narrow_type(const struct column *column)
{
    static const uint8_t by_width[] = {
        [1] = QWP_TYPE_BYTE, [2] = QWP_TYPE_SHORT, [4] = QWP_TYPE_INT, [8] = QWP_TYPE_LONG};
    if (column->def->type == QWP_TYPE_DOUBLE) {
        return column->width == 4 ? QWP_TYPE_FLOAT : QWP_TYPE_DOUBLE;
    }
    return by_width[column->width];
}

/* --- gathering --- */

static void widen_double(unsigned char *to, const unsigned char *from)
{
    float narrow;
    memcpy(&narrow, from, sizeof narrow);
    const double wide = narrow;
    memcpy(to, &wide, sizeof wide);
}

/* From the last one down. */
void qwp_encode_widen(struct column *column)
{
    const uint32_t width = column->width;
    const size_t count = (size_t)(column->at - column->values) / width;
    unsigned char *values = column->values;
    for (size_t i = count; i-- > 0;) {
        const unsigned char *from = values + i * width;
        unsigned char *to = values + 2 * i * width;
        if (column->def->type == QWP_TYPE_DOUBLE) {
            widen_double(to, from);
        } else if (width == 1) {
            qwp_store_u16(to, (uint16_t)(int16_t)(int8_t)*from);
        } else if (width == 2) {
            qwp_store_u32(to, (uint32_t)(int32_t)(int16_t)qwp_load_u16(from));
        } else {
            qwp_store_u64(to, (uint64_t)(int64_t)(int32_t)qwp_load_u32(from));
        }
    }
    column->width = (uint8_t)(2 * width);
    column->at = values + count * column->width;
}

/* Gathers the slice again, wider and wider until it fits. A record that has changed meanwhile does
 * not matter: each time what is judged is what is stored. */
static void gather_wider(struct column *column, const unsigned char *const *rows, uint32_t n,
                         uint32_t off)
{
    const uint32_t full = qwp_type_field_bytes(column->def->type);
    uint64_t misfit = 1;
    while (misfit != 0) {
        qwp_encode_widen(column);
        if (column->width == full) {
            qwp_gather_fixed(rows, n, off, full, column->at);
            break;
        }
        qwp_gather_narrow(rows, n, off, column->def->type, column->width, &column->at, &misfit, 1);
    }
}

void qwp_encode_narrow(struct encoding *e, struct column *columns, uint32_t count,
                       const struct slice *slice)
{
    const struct qwp_shape_column *field = field_of(slice->run, columns[0].index);
    if (field == NULL) {
        return;
    }
    const uint8_t type = columns[0].def->type;
    const uint32_t full = qwp_type_field_bytes(type);
    const unsigned char *const *rows;
    const uint32_t n = qwp_encode_rows(e, &columns[0], slice, e->block->records, &rows);
    uint64_t misfits[QWP_GATHER_MANY_MAX] = {0};
    unsigned char *ats[QWP_GATHER_MANY_MAX];
    for (uint32_t c = 0; c < count; c++) {
        ats[c] = columns[c].at;
    }
    if (columns[0].width == full) {
        for (uint32_t c = 0; c < count; c++) {
            qwp_gather_fixed(rows, n, field->off + c * full, full, ats[c]);
        }
    } else {
        qwp_gather_narrow(rows, n, field->off, type, columns[0].width, ats, misfits, count);
    }
    for (uint32_t c = 0; c < count; c++) {
        if (misfits[c] != 0) {
            gather_wider(&columns[c], rows, n, field->off + c * full);
        }
        columns[c].at += (size_t)n * columns[c].width;
    }
}

/* --- is it worth while --- */

static uint32_t width_of_double(const unsigned char *at)
{
    double wide;
    memcpy(&wide, at, sizeof wide);
    return (double)(float)wide == wide ? 4 : 8;
}

static uint32_t width_of_integer(int64_t v)
{
    return v == (int8_t)v ? 1 : v == (int16_t)v ? 2 : v == (int32_t)v ? 4 : 8;
}

uint32_t qwp_encode_width_of(uint8_t type, const unsigned char *at)
{
    switch (type) {
    case QWP_TYPE_DOUBLE:
        return width_of_double(at);
    case QWP_TYPE_INT:
        return width_of_integer((int32_t)qwp_load_u32(at));
    default:
        return width_of_integer(qwp_load_i64(at));
    }
}

/* Width that one row's value asks for, roughly; 0 for a null. */
static uint32_t width_of_value(const struct qwp_run *run, uint32_t index,
                               const unsigned char *record, const uint64_t *steering)
{
    const uint16_t field = run->field_of_column[index];
    if (field == QWP_NO_FIELD || (steering[field / 64] >> field % 64 & 1) != 0) {
        return 0;
    }
    const struct qwp_shape_column *column = &run->shape->columns[field];
    return qwp_encode_width_of(column->type, record + column->off);
}

/* What the column saves a row if its values are as in the sample. */
static uint32_t guess_saving(const struct encoding *e, uint32_t index)
{
    const struct qwp_block *block = e->block;
    const uint32_t step = (block->row_count + QWP_ENCODE_SAMPLE_ROWS - 1) / QWP_ENCODE_SAMPLE_ROWS;
    uint32_t widest = qwp_encode_narrowest(block->columns[index].type);
    uint32_t first_row = 0;
    uint32_t row = 0;
    for (uint32_t r = 0; r < block->run_count; r++) {
        const struct qwp_run *run = &block->runs[r];
        for (; row < first_row + run->row_count; row += step) {
            const uint32_t width =
                width_of_value(run, index, block->records[row], block->steering[row]);
            widest = width > widest ? width : widest;
        }
        first_row += run->row_count;
    }
    return qwp_type_field_bytes(block->columns[index].type) - widest;
}

/* The same of the designated timestamps, by those of the block's first rows. */
static size_t guess_time_saving(const struct encoding *e)
{
    const struct qwp_block *block = e->block;
    if (block->designated_type == QWP_TYPE_NONE) {
        return 0;
    }
    const struct qwp_run *run = &block->runs[0];
    const uint32_t n =
        run->row_count < QWP_ENCODE_SAMPLE_TIMES ? run->row_count : QWP_ENCODE_SAMPLE_TIMES;
    int64_t times[QWP_ENCODE_SAMPLE_TIMES];
    qwp_gather_fixed(block->records, n, run->shape->designated_off, sizeof *times,
                     (unsigned char *)times);
    return qwp_encode_time_saving(e, block->designated_type, times, n);
}

bool qwp_encode_compact_pays(const struct encoding *e, size_t header_len)
{
    const struct qwp_block *block = e->block;
    /* A row or two never pay, whatever they hold: no value gets shorter by more than its 8 bytes.
     */
    const size_t most = sizeof(uint64_t) * ((size_t)block->column_count + 1);
    if (!qwp_encode_saving_pays(most, block->row_count, header_len, block->column_count)) {
        return false;
    }
    size_t saving = guess_time_saving(e);
    for (uint32_t c = 0; c < block->column_count; c++) {
        if (qwp_encode_may_narrow(e, block->columns[c].type)) {
            saving += guess_saving(e, c);
        }
    }
    return qwp_encode_saving_pays(saving, block->row_count, header_len, block->column_count);
}

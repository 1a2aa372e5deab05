#include "tests/core/encode_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"

static void *zeroed(size_t count, size_t size)
{
    void *memory = calloc(count + (count == 0), size);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

void fixture_init(struct fixture *f, const char *table, const struct qwp_block_column *columns,
                  uint32_t column_count, uint8_t designated_type)
{
    memset(f, 0, sizeof *f);
    ck_assert_uint_le(column_count, FIXTURE_COLUMNS_MAX);
    if (column_count > 0) {
        memcpy(f->columns, columns, column_count * sizeof *columns);
    }
    f->block.table = NAME(table);
    f->block.columns = f->columns;
    f->block.column_count = column_count;
    f->block.designated_type = designated_type;
    f->block.runs = f->block_runs;
    f->encoder = zeroed(1, sizeof *f->encoder);
}

struct fixture_run *fixture_add_run(struct fixture *f, const bool *present, uint32_t row_count,
                                    const uint32_t *symbol_ids, uint32_t symbol_count)
{
    ck_assert_uint_lt(f->block.run_count, FIXTURE_RUNS_MAX);
    struct fixture_run *run = &f->runs[f->block.run_count++];
    struct qwp_column_def defs[FIXTURE_COLUMNS_MAX];
    uint16_t fields = 0;
    run->field_of_column = zeroed(f->block.column_count, sizeof *run->field_of_column);
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        const struct qwp_block_column *column = &f->columns[c];
        run->field_of_column[c] = QWP_NO_FIELD;
        if (present == NULL || present[c]) {
            defs[fields] = (struct qwp_column_def){column->name, column->type, column->parameter};
            run->field_of_column[c] = fields++;
        }
    }
    struct qwp_error err;
    ck_assert_msg(qwp_shape_create(&run->shape, f->block.table, defs, fields,
                                   f->block.designated_type, &err) == QWP_OK,
                  "%s", err.text);
    run->row_count = row_count;
    run->cells = zeroed((size_t)row_count * fields, sizeof *run->cells);
    run->times = zeroed(row_count, sizeof *run->times);
    run->null_any = zeroed(run->shape->null_words, sizeof *run->null_any);
    run->symbol_count = symbol_count;
    run->symbol_codes = zeroed(symbol_count, sizeof *run->symbol_codes);
    for (uint32_t i = 0; i < symbol_count; i++) {
        run->symbol_codes[i] = qwp_symbol_code(symbol_ids[i]);
    }
    return run;
}

struct fixture_cell *fixture_cell(struct fixture *f, struct fixture_run *run, uint32_t row,
                                  uint32_t column)
{
    (void)f;
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD ? NULL
                                 : &run->cells[(size_t)row * run->shape->column_count + field];
}

void fixture_set_part(struct fixture_cell *cell, const void *bytes, uint32_t len)
{
    free(cell->part);
    cell->part = zeroed(len, 1);
    cell->part_len = len;
    if (len > 0) {
        memcpy(cell->part, bytes, len);
    }
}

static bool cell_has_part(const struct qwp_shape_column *field, const struct fixture_cell *cell)
{
    return !cell->is_null && qwp_type_is_variable(field->type) && cell->part != NULL;
}

static uint32_t part_field(const struct qwp_shape_column *field, uint32_t len)
{
    return field->type == QWP_TYPE_SYMBOL ? QWP_SYMBOL_TEXT | len : len;
}

static void build_record(struct fixture *f, struct fixture_run *run, uint32_t run_row, uint32_t row,
                         size_t *var_bytes)
{
    const struct qwp_shape *shape = run->shape;
    const struct fixture_cell *cells = &run->cells[(size_t)run_row * shape->column_count];
    uint32_t size = shape->fixed_bytes;
    for (uint32_t c = 0; c < shape->column_count; c++) {
        size += cell_has_part(&shape->columns[c], &cells[c]) ? cells[c].part_len : 0;
    }
    *var_bytes += size - shape->fixed_bytes;
    /* Not padded, so that the first byte beyond the last part is out of bounds. */
    unsigned char *record = zeroed(size, 1);
    qwp_store_u32(record, (uint32_t)qwp_round_up(size, QWP_RECORD_ALIGN));
    record[6] = QWP_RECORD_ROW;
    if (shape->designated_type != QWP_TYPE_NONE) {
        qwp_store_i64(record + shape->designated_off, run->times[run_row]);
    }
    uint32_t end = shape->fixed_bytes;
    for (uint32_t c = 0; c < shape->column_count; c++) {
        const struct qwp_shape_column *field = &shape->columns[c];
        memcpy(record + field->off, cells[c].fixed, qwp_type_field_bytes(field->type));
        if (cells[c].is_null) {
            record[QWP_RECORD_HEADER_BYTES + c / 8] |= (unsigned char)(1u << c % 8);
            memset(record + field->off, 0xa5, qwp_type_field_bytes(field->type));
        } else if (cell_has_part(field, &cells[c])) {
            qwp_store_u32(record + field->off, part_field(field, cells[c].part_len));
            if (cells[c].part_len > 0) {
                memcpy(record + end, cells[c].part, cells[c].part_len);
            }
            end += cells[c].part_len;
        }
    }
    f->records[row] = record;
    f->record_bytes[row] = size;
}

static void build_steering(struct fixture *f, struct fixture_run *run, const struct qwp_run *out,
                           uint32_t run_row, uint32_t row)
{
    const struct qwp_shape *shape = run->shape;
    const struct fixture_cell *cells = &run->cells[(size_t)run_row * shape->column_count];
    const size_t part_words = (shape->var_count + 1u) / 2;
    uint64_t *steering =
        zeroed(shape->null_words + part_words * (out->has_parts + (size_t)out->has_symbol_text),
               sizeof *steering);
    uint32_t *ends = (uint32_t *)(steering + shape->null_words);
    uint32_t *codes = ends + (out->has_parts ? 2 * part_words : 0);
    uint32_t end = shape->fixed_bytes;
    for (uint32_t c = 0; c < shape->column_count; c++) {
        const struct qwp_shape_column *field = &shape->columns[c];
        if (cells[c].is_null) {
            steering[c / 64] |= UINT64_C(1) << c % 64;
        }
        if (field->var_index == QWP_NO_VAR) {
            continue;
        }
        end += cell_has_part(field, &cells[c]) ? cells[c].part_len : 0;
        if (out->has_parts) {
            ends[field->var_index] = end;
        }
        if (out->has_symbol_text && field->type == QWP_TYPE_SYMBOL) {
            codes[field->var_index] =
                cells[c].is_null ? UINT32_MAX : qwp_symbol_code(cells[c].symbol_id);
        }
    }
    for (uint32_t w = 0; w < shape->null_words; w++) {
        run->null_any[w] |= steering[w];
    }
    f->steering[row] = steering;
}

void fixture_build(struct fixture *f)
{
    size_t var_bytes = 0;
    size_t value_bytes = qwp_value_bound(QWP_TYPE_TIMESTAMP, 0);
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        value_bytes += qwp_value_bound(f->columns[c].type, f->columns[c].parameter);
    }
    f->block.row_count = 0;
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        f->block.row_count += f->runs[r].row_count;
    }
    f->records = zeroed(f->block.row_count, sizeof *f->records);
    f->record_bytes = zeroed(f->block.row_count, sizeof *f->record_bytes);
    f->steering = zeroed(f->block.row_count, sizeof *f->steering);
    uint32_t row = 0;
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        struct fixture_run *run = &f->runs[r];
        struct qwp_run *out = &f->block_runs[r];
        *out = (struct qwp_run){.shape = run->shape,
                                .field_of_column = run->field_of_column,
                                .symbol_codes = run->symbol_codes,
                                .symbol_count = run->symbol_count,
                                .row_count = run->row_count,
                                .null_any = run->null_any};
        for (uint32_t i = 0; i < run->row_count * run->shape->column_count; i++) {
            const struct qwp_shape_column *field =
                &run->shape->columns[i % run->shape->column_count];
            const bool has_part = cell_has_part(field, &run->cells[i]);
            out->has_parts |= has_part;
            out->has_symbol_text |= has_part && field->type == QWP_TYPE_SYMBOL;
        }
        for (uint32_t i = 0; i < run->row_count; i++, row++) {
            build_record(f, run, i, row, &var_bytes);
            build_steering(f, run, out, i, row);
        }
    }
    f->block.records = (const unsigned char *const *)f->records;
    f->block.steering = (const uint64_t *const *)f->steering;
    const uint32_t columns = f->block.column_count;
    const size_t header = qwp_block_header_bound(f->block.table, f->columns, columns);
    f->bound = qwp_block_bound(header, columns, value_bytes, f->block.row_count, var_bytes);
    f->compact_bound = qwp_block_compact_bound(f->bound, header, columns);
}

enum qwp_result fixture_encode(struct fixture *f, unsigned flags, struct qwp_encoded *done)
{
    const size_t bound = (flags & QWP_ENCODE_COMPACT) != 0 ? f->compact_bound : f->bound;
    free(f->dst);
    f->dst = malloc(bound);
    ck_assert_ptr_nonnull(f->dst);
    const enum qwp_result result = qwp_block_encode(f->encoder, &f->block, flags, f->dst, done);
    if (result == QWP_OK) {
        ck_assert_uint_le(done->len, bound);
    }
    return result;
}

void fixture_free(struct fixture *f)
{
    for (uint32_t row = 0; row < f->block.row_count; row++) {
        free(f->records[row]);
        free(f->steering[row]);
    }
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        struct fixture_run *run = &f->runs[r];
        for (uint32_t i = 0; i < run->row_count * run->shape->column_count; i++) {
            free(run->cells[i].part);
        }
        free(run->cells);
        free(run->times);
        free(run->null_any);
        free(run->symbol_codes);
        free(run->field_of_column);
        qwp_shape_destroy(run->shape);
    }
    free(f->records);
    free(f->record_bytes);
    free(f->steering);
    free(f->dst);
    free(f->encoder);
}

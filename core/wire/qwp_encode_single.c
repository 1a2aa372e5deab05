#include <string.h>

#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_varint.h"

enum qwp_result qwp_encode_booleans(struct encoding *e, struct column *column)
{
    unsigned char *bytes = e->scratch->bytes;
    struct slice_cursor cursor = {0};
    struct slice slice;
    uint32_t done = 0;
    while (next_slice(e, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        const unsigned char *const *rows;
        const uint32_t n = qwp_encode_rows(e, column, &slice, e->block->records, &rows);
        const uint32_t good = qwp_gather_booleans(rows, n, field->off, bytes + done);
        if (good != n) {
            return qwp_encode_fault(e, qwp_encode_row_of(column, &slice, good), column->index,
                                    "boolean other than 0 and 1");
        }
        done += n;
    }
    qwp_pack_bits(bytes, done, column->at);
    column->at += (done + 7) / 8;
    return QWP_OK;
}

enum qwp_result qwp_encode_geohashes(struct encoding *e, struct column *column)
{
    const uint8_t bits = column->def->parameter;
    struct slice_cursor cursor = {0};
    struct slice slice;
    column->at = qwp_varint_put(column->at, bits);
    while (next_slice(e, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        const unsigned char *const *rows;
        const uint32_t n = qwp_encode_rows(e, column, &slice, e->block->records, &rows);
        const uint32_t good = qwp_gather_geohashes(rows, n, field->off, bits, &column->at);
        if (good != n) {
            return qwp_encode_fault(e, qwp_encode_row_of(column, &slice, good), column->index,
                                    "geohash bits beyond its precision");
        }
    }
    return QWP_OK;
}

unsigned char *qwp_encode_put_times(struct encoding *e, uint32_t n, unsigned char *at)
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

enum qwp_result qwp_encode_times(struct encoding *e, struct column *column)
{
    struct slice_cursor cursor = {0};
    struct slice slice;
    uint32_t done = 0;
    while (next_slice(e, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field != NULL) {
            const unsigned char *const *rows;
            const uint32_t n = qwp_encode_rows(e, column, &slice, e->block->records, &rows);
            qwp_gather_fixed(rows, n, field->off, 8, (unsigned char *)(e->scratch->times + done));
            done += n;
        }
    }
    column->at = qwp_encode_put_times(e, done, column->at);
    return QWP_OK;
}

uint32_t qwp_encode_bad_time(const int64_t *times, uint32_t n, uint8_t designated_type)
{
    const int64_t max =
        designated_type == QWP_TYPE_TIMESTAMP ? QWP_DESIGNATED_US_MAX : QWP_DESIGNATED_NS_MAX;
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

enum qwp_result qwp_encode_designated(struct encoding *e, unsigned char **at)
{
    const struct qwp_block *block = e->block;
    int64_t *times = e->scratch->times;
    uint32_t row = 0;
    for (uint32_t r = 0; r < block->run_count;) {
        /* Runs with equal places in one go. */
        const uint32_t off = block->runs[r].shape->designated_off;
        uint32_t count = 0;
        while (r < block->run_count && block->runs[r].shape->designated_off == off) {
            count += rows_of_run(e, r++);
        }
        qwp_gather_fixed(block->records + row, count, off, sizeof *times,
                         (unsigned char *)(times + row));
        row += count;
    }
    const uint32_t bad = qwp_encode_bad_time(times, block->row_count, block->designated_type);
    if (bad != block->row_count) {
        return qwp_encode_fault(e, bad, block->column_count, "designated timestamp out of range");
    }
    **at = 0; /* never null */
    *at = qwp_encode_put_times(e, block->row_count, *at + 1);
    return QWP_OK;
}

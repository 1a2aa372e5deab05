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

unsigned char *qwp_encode_put_times(struct encoding *e, const int64_t *times, uint32_t n,
                                    unsigned char *at)
{
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
    column->at = qwp_encode_put_times(e, e->scratch->times, done, column->at);
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

/* Times that are not negative in microseconds; false if some are no whole ones. */
static bool times_to_us(const int64_t *times, uint32_t n, int64_t *times_us)
{
    uint64_t rest = 0;
    for (uint32_t i = 0; i < n && rest == 0; i += QWP_ENCODE_SLICE_ROWS) {
        const uint32_t end = n - i < QWP_ENCODE_SLICE_ROWS ? n : i + QWP_ENCODE_SLICE_ROWS;
        for (uint32_t k = i; k < end; k++) {
            const uint64_t us = (uint64_t)times[k] / 1000;
            rest |= (uint64_t)times[k] - us * 1000;
            times_us[k] = (int64_t)us;
        }
    }
    return rest == 0;
}

static bool may_go_in_us(const struct encoding *e, uint8_t designated_type, uint32_t n)
{
    return designated_type == QWP_TYPE_TIMESTAMP_NANOS && n >= QWP_GORILLA_TIMES_MIN &&
           (e->flags & QWP_ENCODE_COMPACT_TIME) != 0 && (e->flags & QWP_ENCODE_GORILLA) != 0;
}

unsigned char *qwp_encode_put_designated(struct encoding *e, unsigned char *at)
{
    struct qwp_encoder *scratch = e->scratch;
    const uint32_t n = e->block->row_count;
    const int64_t *times = scratch->times;
    if (may_go_in_us(e, e->block->designated_type, n) && times_to_us(times, n, scratch->times_us)) {
        times = scratch->times_us;
        e->start[scratch->type_offs[e->block->column_count]] = QWP_TYPE_TIMESTAMP;
    }
    *at++ = 0; /* never null */
    return qwp_encode_put_times(e, times, n, at);
}

size_t qwp_encode_time_saving(const struct encoding *e, uint8_t designated_type,
                              const int64_t *times, uint32_t n)
{
    int64_t times_us[QWP_ENCODE_SAMPLE_TIMES];
    unsigned char encoded[8 * QWP_ENCODE_SAMPLE_TIMES + QWP_GORILLA_SLACK];
    if (!may_go_in_us(e, designated_type, n) ||
        qwp_encode_bad_time(times, n, designated_type) != n || !times_to_us(times, n, times_us)) {
        return 0;
    }
    const size_t ns_bytes = qwp_gorilla_encode(times, n, encoded);
    const size_t us_bytes = qwp_gorilla_encode(times_us, n, encoded);
    return us_bytes == 0 ? 0 : ((ns_bytes == 0 ? 8 * (size_t)n : ns_bytes) - us_bytes) / n;
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
    *at = qwp_encode_put_designated(e, *at);
    return QWP_OK;
}

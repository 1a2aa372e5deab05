/* Rows as columns: cut into pieces that each make one record. */
#include "clients/c/qwp_chunk.h"

#include "core/qwp_copy.h"

/* Records no larger than this part of the ring, so that the sidecar works on one while the next is
 * written. */
enum { RING_PART = 8 };

static uint32_t entry_count(const struct qwp_layout *layout)
{
    return layout->column_count + (layout->at_off != 0 ? 1u : 0u);
}

static uint64_t head_bytes(const struct qwp_layout *layout)
{
    return QWP_CHUNK_HEADER_BYTES + entry_count(layout) * sizeof(struct qwp_chunk_entry);
}

/* Upper bound of the piece's record; UINT64_MAX: offsets fall. */
static uint64_t piece_bound(const struct qwp_chunk_piece *piece)
{
    uint64_t bytes = head_bytes(piece->layout);
    if (piece->layout->at_off != 0) {
        bytes += sizeof(int64_t) * (uint64_t)piece->rows;
    }
    for (uint32_t c = 0; c < piece->layout->column_count; c++) {
        const uint64_t column = qwp_chunk_column_bound(piece, c);
        if (column == UINT64_MAX) {
            return UINT64_MAX;
        }
        bytes += column;
    }
    return bytes;
}

/* As many of `rows` as make a record of at most `limit` bytes; one at least. */
static uint64_t piece_cut(struct qwp_chunk_piece *piece, size_t rows, uint64_t limit)
{
    piece->rows = rows < QWP_CHUNK_ROWS_MAX ? (uint32_t)rows : QWP_CHUNK_ROWS_MAX;
    uint64_t bytes = piece_bound(piece);
    while (bytes > limit && bytes != UINT64_MAX && piece->rows > 1) {
        /* A little less than their share, so that a few steps do. */
        const uint64_t share = piece->rows * limit / bytes * 15 / 16;
        piece->rows = share > 1 ? (uint32_t)share : 1;
        bytes = piece_bound(piece);
    }
    return bytes;
}

static enum qwp_result put_times(struct qwp_chunk_piece *piece, struct qwp_chunk_entry *entry)
{
    const struct qwp_layout *layout = piece->layout;
    const int64_t *times = piece->at + piece->first_row;
    uint64_t signs = 0;
    for (uint32_t i = 0; i < piece->rows; i++) {
        /* Negative when the time is, or is above at_max; a negative one may wrap but has said so.
         */
        signs |= (uint64_t)times[i] | (layout->at_max - (uint64_t)times[i]);
    }
    if (signs >> 63 != 0) {
        const struct qwp_name table = layout->shape->table;
        return qwp_fail(piece->err, QWP_INVALID, 0,
                        "table '%.*s': a designated timestamp is out of the server's range, 0 to "
                        "%llu; are the units right?",
                        (int)table.len, table.text, (unsigned long long)layout->at_max);
    }
    unsigned char *at = qwp_chunk_part(piece, &entry->values_off);
    entry->values_bytes = (uint32_t)sizeof times[0] * piece->rows;
    qwp_copy(at, times, entry->values_bytes);
    qwp_chunk_part_end(piece, entry->values_bytes);
    return QWP_OK;
}

/* Everything but the record's first word. */
static enum qwp_result piece_put(struct qwp_chunk_piece *piece)
{
    const struct qwp_layout *layout = piece->layout;
    enum qwp_result result = QWP_OK;
    qwp_store_u64(piece->record + QWP_CHUNK_ROWS_OFF, piece->rows);
    piece->used_bytes = (uint32_t)head_bytes(layout);
    for (uint32_t c = 0; c < entry_count(layout) && result == QWP_OK; c++) {
        struct qwp_chunk_entry entry = {0};
        result = c < layout->column_count ? qwp_chunk_put_column(piece, c, &entry)
                                          : put_times(piece, &entry);
        memcpy(piece->record + QWP_CHUNK_HEADER_BYTES + c * sizeof entry, &entry, sizeof entry);
    }
    return result;
}

static enum qwp_result piece_write(struct qwp_chunk_piece *piece, uint64_t bound)
{
    struct qwp_producer *p = piece->producer;
    enum qwp_result result =
        qwp_room_is_known(p, bound) ? QWP_OK : qwp_room_get(p, bound, piece->rows, piece->err);
    if (result != QWP_OK) {
        return result == QWP_AGAIN && p->on_full == QWP_FULL_DROP ? QWP_OK : result;
    }
    piece->record = qwp_room_at(p);
    result = piece_put(piece);
    if (result != QWP_OK) {
        return result;
    }
    const uint64_t head =
        (piece->layout->head & UINT64_C(0xffff) << 32) | (uint64_t)QWP_RECORD_CHUNK << 48;
    result = qwp_records_end(p, piece->record, head, piece->used_bytes, piece->rows);
    return result == QWP_OK ? QWP_OK : qwp_producer_fail_detached(p, piece->err);
}

enum qwp_result qwp_chunk_write(struct qwp_producer *producer, const struct qwp_layout *layout,
                                const struct qwp_chunk_column *columns, const int64_t *at,
                                size_t first_row, size_t row_count, size_t *rows_done,
                                struct qwp_error *err)
{
    size_t done = 0;
    enum qwp_result result = qwp_producer_check_open(producer, err);
    producer->reserved = NULL;
    qwp_row_forget(&producer->row);
    const uint64_t limit = producer->ring.data_bytes / RING_PART;
    while (result == QWP_OK && done < row_count) {
        struct qwp_chunk_piece piece = {.producer = producer,
                                        .layout = layout,
                                        .columns = columns,
                                        .at = at,
                                        .first_row = first_row + done,
                                        .err = err};
        /* A dropped unit has no room and only counts. */
        const uint64_t room = producer->unit.dropped ? limit : producer->record_bytes_max;
        const uint64_t bound = piece_cut(&piece, row_count - done, limit < room ? limit : room);
        if (bound == UINT64_MAX) {
            const struct qwp_name table = layout->shape->table;
            result = qwp_fail(err, QWP_INVALID, 0, "table '%.*s': offsets of a column fall",
                              (int)table.len, table.text);
        } else {
            result = piece_write(&piece, bound);
        }
        done += result == QWP_OK ? piece.rows : 0;
    }
    if (rows_done != NULL) {
        *rows_done = done;
    }
    return result;
}

/* qwp_chunk: a piece of a chunk on its way into one record; see core/qwp_record_layout.h. */
#ifndef QWP_CHUNK_H
#define QWP_CHUNK_H

#include "clients/c/qwp_producer.h"

struct qwp_chunk_piece {
    struct qwp_producer *producer;
    const struct qwp_layout *layout;
    const struct qwp_chunk_column *columns;
    const int64_t *at;
    size_t first_row; /* of the arrays */
    uint32_t rows;    /* 1..QWP_CHUNK_ROWS_MAX */
    unsigned char *record;
    uint32_t used_bytes; /* of the record */
    struct qwp_error *err;
};

/* Most bytes that column `index` takes for the rows, or UINT64_MAX: its offsets fall. */
uint64_t qwp_chunk_column_bound(const struct qwp_chunk_piece *piece, uint32_t index);

/* Appends bitmap and values of column `index` to the record and notes them in *entry. QWP_INVALID:
 * a value that a row would not take either. */
QWP_MUST_USE enum qwp_result qwp_chunk_put_column(struct qwp_chunk_piece *piece, uint32_t index,
                                                  struct qwp_chunk_entry *entry);

/* Room for a part of the record. */
static inline unsigned char *qwp_chunk_part(struct qwp_chunk_piece *piece, uint32_t *off)
{
    *off = piece->used_bytes;
    return piece->record + piece->used_bytes;
}

static inline void qwp_chunk_part_end(struct qwp_chunk_piece *piece, uint64_t bytes)
{
    piece->used_bytes += (uint32_t)qwp_round_up(bytes, QWP_RECORD_ALIGN);
}

#endif

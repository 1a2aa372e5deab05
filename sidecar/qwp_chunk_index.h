/* qwp_chunk_index: pass 1 over a columnar chunk: its counts, sizes and places, copied once and
 * judged.
 *
 * Threads: intake's.
 * Trust:   as qwp_row_index.h. */
#ifndef QWP_CHUNK_INDEX_H
#define QWP_CHUNK_INDEX_H

#include "core/wire/qwp_encode_chunk.h"
#include "sidecar/qwp_row_index.h"

struct qwp_staged_chunk {
    struct qwp_chunk chunk;
    size_t bound; /* of the encoded chunk */
    struct qwp_chunk_part parts[];
};

/* Makes `row` the chunk in the record of `size_bytes` at row->record; its shape and source are
 * known. Results as of qwp_row_index_unit(). */
QWP_MUST_USE enum qwp_result qwp_chunk_index(struct qwp_row_index *index, struct qwp_row *row,
                                             uint32_t size_bytes, struct qwp_error *err);

#endif

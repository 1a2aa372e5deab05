/* qwp_framer_internal: what the files of the framer share. Nobody else includes it.
 *
 *   qwp_framer.c        a frame from its begin to its end; pass 1: units are weighed and linked to
 *                       their tables
 *   qwp_framer_block.c  pass 2: a table's rows, or a chunk, become a block behind the frame */
#ifndef QWP_FRAMER_INTERNAL_H
#define QWP_FRAMER_INTERNAL_H

#include "sidecar/qwp_framer.h"
#include "sidecar/qwp_row_index.h"

struct qwp_framer {
    struct qwp_dict *dict;
    unsigned encode_flags;

    struct qwp_row_index index;
    struct qwp_table *open_tables;
    uint32_t open_table_count;
    struct qwp_table *frame_tables; /* with rows in closed blocks */
    size_t open_bound;
    uint64_t stamp; /* of blocks, units and flushes: each takes a new number */

    /* the frame */
    unsigned frame_flags; /* encode_flags, less what it has no use for */
    unsigned char *frame;
    size_t room;
    size_t len;     /* header, delta and closed blocks; QWP_HEADER_BYTES at first */
    size_t touched; /* how far the frame's room may have been written */
    uint32_t block_count;
    uint64_t frame_rows;             /* taken */
    uint64_t closed_rows;            /* of them in closed blocks; in the end all */
    uint32_t delta_start, delta_end; /* delta_end moves until the delta is written */
    size_t delta_bytes;              /* while it is not written */
    bool delta_written;
    bool delta_alone;        /* no rows: the delta did not fit whole */
    uint32_t batch_rows_max; /* halved whenever so many did not fit, so that little is done twice */

    struct qwp_tally *tallies;
    size_t tally_count, tally_room;
    bool tallies_lost;

    /* scratch */
    struct qwp_arena flush;
    struct qwp_run runs[QWP_GATHER_ROWS_MAX];
    const unsigned char *records[QWP_GATHER_ROWS_MAX];
    const uint64_t *row_steering[QWP_GATHER_ROWS_MAX];
    struct qwp_source *run_source[QWP_GATHER_ROWS_MAX];
    struct qwp_encoder encoder;
};

/* --- qwp_framer_block.c --- */

/* Writes the delta dictionary, unless that is done: no symbol joins it any more. */
void qwp_framer_delta_write(struct qwp_framer *framer);
/* Encodes the open block of the table behind the frame. The table stays in the list of open ones.
 */
QWP_MUST_USE enum qwp_result qwp_framer_block_flush(struct qwp_framer *framer,
                                                    struct qwp_table *table,
                                                    struct qwp_framer_fault *fault);
/* Encodes a staged chunk behind the frame, and before it what is open of its table. */
QWP_MUST_USE enum qwp_result qwp_framer_chunk_flush(struct qwp_framer *framer,
                                                    const struct qwp_row *row,
                                                    struct qwp_framer_fault *fault);

#endif

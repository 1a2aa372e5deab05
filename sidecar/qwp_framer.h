/* qwp_framer: rows of many rings become one frame, block by block, with no buffer in between.
 *
 * Pass 1 indexes a unit of rows: everything that steers is copied once into private memory and
 * judged. Pass 2 encodes a table's rows when its block is full (QWP_GATHER_ROWS_MAX), when the rows
 * would change their order, when many rows wait for that, or when the frame ends. Before a unit is
 * taken its bound is known to fit.
 *
 * The delta dictionary stands before the blocks, so it is written with the first block: a symbol
 * that comes up later ends the frame.
 *
 * Threads: intake's.
 * Trust:   a fault names the guilty source and spoils the whole frame: abandon it, detach that
 * source, and build it again from the others. */
#ifndef QWP_FRAMER_H
#define QWP_FRAMER_H

#include "core/store/qwp_dict.h"
#include "core/wire/qwp_encode.h"
#include "sidecar/qwp_source.h"

struct qwp_framer;

/* `encode_flags`: QWP_ENCODE_*, of all blocks. */
QWP_MUST_USE enum qwp_result qwp_framer_create(struct qwp_framer **out, struct qwp_dict *dict,
                                               unsigned encode_flags, struct qwp_error *err);
/* Between frames: from now on symbols are of this dictionary. */
void qwp_framer_use(struct qwp_framer *framer, struct qwp_dict *dict);
void qwp_framer_destroy(struct qwp_framer *framer);

/* Begins a frame in `room` bytes at `at`. Symbols below `framed_symbols` stand in earlier frames.
 * When the new ones do not fit whole, the frame takes no rows: finish it and begin the next one,
 * or, when not even one of them fits, begin it with what qwp_framer_take() asks for. */
void qwp_framer_begin(struct qwp_framer *framer, unsigned char *at, size_t room,
                      uint32_t framed_symbols);

struct qwp_framer_fault {
    struct qwp_source *source; /* NULL: nobody's fault but a bound of ours */
    /* With QWP_LIMIT on an empty frame, what this unit wants: */
    size_t bytes_needed;
    uint64_t blocks_needed; /* more than a message has: it never fits */
    struct qwp_error error;
};

/* Takes the next unit of `source` below its tail_seen_pos, and of those behind it as many as are
 * at hand and make up `rows_max` rows with it. QWP_AGAIN: there is none, or it has rows
 * of a table that is held (then source->held is set) or bring symbols for which it has to wait
 * (source->waits_symbols). QWP_LIMIT: it
 * does not fit any more, end the frame first (or, if the frame is empty, begin it with
 * fault->bytes_needed). QWP_CORRUPT, QWP_INVALID (beyond what a producer may have): fault->source
 * is at fault; QWP_NOMEM. After the last three the frame must be abandoned. */
QWP_MUST_USE enum qwp_result qwp_framer_take(struct qwp_framer *framer, struct qwp_source *source,
                                             uint64_t rows_max, struct qwp_framer_fault *fault);
/* Ends the frame: encodes what is open and patches the header. *len is the message's length. A
 * frame that took no row carries the delta dictionary alone. */
QWP_MUST_USE enum qwp_result qwp_framer_finish(struct qwp_framer *framer, size_t *len,
                                               struct qwp_framer_fault *fault);
void qwp_framer_abandon(struct qwp_framer *framer);
/* Tables of the finished frame, linked by frame_next, each with its frame_rows. */
struct qwp_table *qwp_framer_tables(const struct qwp_framer *framer);

/* Rows of one source and table in a frame, in the order of its blocks. */
struct qwp_tally {
    struct qwp_source *source;
    const struct qwp_table *table;
    uint32_t row_count;
};
/* Of the finished frame; false: there was no memory to keep them. */
bool qwp_framer_tallies(const struct qwp_framer *framer, const struct qwp_tally **tallies,
                        size_t *count);

uint64_t qwp_framer_rows(const struct qwp_framer *framer); /* in the frame */
/* Encoded so far plus the bound of what is open. */
size_t qwp_framer_bound(const struct qwp_framer *framer);
/* How far the frame's room may have been written, for publish and abandon of the log. */
size_t qwp_framer_touched(const struct qwp_framer *framer);
/* First symbol id that is not in this frame or an earlier one. */
uint32_t qwp_framer_framed_symbols(const struct qwp_framer *framer);

#endif

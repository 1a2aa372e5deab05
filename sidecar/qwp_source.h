/* qwp_source: one attached ring as intake sees it.
 *
 * Holds what a ring's numbers mean here (its shapes, its symbols), how far its rows were taken, and
 * which frames they went into, so that an acknowledged frame settles the right part of the ring.
 *
 * Threads: intake's.
 * Trust:   definitions are judged as they come; the first bad one makes the source faulty. */
#ifndef QWP_SOURCE_H
#define QWP_SOURCE_H

#include "core/store/qwp_cursors.h"
#include "core/store/qwp_dict.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_ring.h"
#include "sidecar/qwp_latency.h"
#include "sidecar/qwp_notes.h"
#include "sidecar/qwp_schema.h"
#include "sidecar/qwp_source_symbols.h"

struct qwp_source {
    struct qwp_ring_rx rx;
    struct qwp_known_shape **shapes; /* by the ring's shape index; a reference each */
    uint32_t shape_count, shape_capacity;
    uint32_t column_count; /* of all shapes */
    struct qwp_source_symbols symbols;
    uint32_t text_count; /* symbols that came as text in a row and were new to this generation */
    struct qwp_table **tables; /* that it has shapes of */
    uint32_t table_count, table_capacity;
    uint32_t tables_max, symbols_max;
    uint64_t taken_pos;  /* rows below are in the frame being built, or stored */
    uint64_t taken_rows; /* of them, in the frame being built */
    bool in_frame;
    uint32_t guard;      /* of its mapping, see qwp_guard.h */
    uint32_t cursor;     /* handle of its notes, see qwp_cursors.h */
    uint32_t number;     /* no other source of this life has it */
    uint64_t rows_aside; /* set aside and not told yet */
    bool held;           /* its next rows are of a table that takes none now */
    /* Its next rows bring symbols, and it has used its share of this generation, or nobody may
     * bring any: it goes on in the next one. */
    bool waits_symbols;
    bool defining; /* definitions below tail_seen_pos were not all taken in yet */
    bool orphan;   /* the producer is gone: drain, then remove */
    bool closed;   /* told so, though its lock was still held: to be looked at again */
    bool detached; /* faulty: never read again */
    struct qwp_sights sights;
    struct qwp_notes notes;
    struct qwp_control_producer *slot; /* its entry in the control file; NULL: none */
};

/* Opens the ring and goes on where its rows are not yet in the store, as `cursors` know it.
 *
 * `published_count`: frames in the log now. Rows that an earlier sidecar stored and nobody settled
 * yet are settled when all of those frames are. */
QWP_MUST_USE enum qwp_result qwp_source_open(struct qwp_source **out, int dir_fd,
                                             const char *file_name,
                                             const struct qwp_ring_limits *limits,
                                             struct qwp_cursors *cursors, uint64_t published_count,
                                             struct qwp_error *err);
/* Its rows can be taken now. */
static inline bool qwp_source_is_ready(const struct qwp_source *source)
{
    return !source->detached && !source->held && !source->waits_symbols && !source->defining;
}
/* Whether it has shapes of the table. */
bool qwp_source_has_table(const struct qwp_source *source, const struct qwp_table *table);
/* Gives the source its entry in the control file. */
void qwp_source_show(struct qwp_source *source, struct qwp_control_producer *slot);
void qwp_source_close(struct qwp_source *source);

/* Takes in the definitions that are published, so many at a time that nobody else waits for long.
 * `entry`: QWP_RING_DEF_BYTES_MAX of scratch. QWP_AGAIN: not all of them (source->defining): again,
 * before any of its rows; QWP_CORRUPT or QWP_INVALID: the source is at fault; QWP_LIMIT, QWP_NOMEM:
 * a bound of ours. */
QWP_MUST_USE enum qwp_result qwp_source_define(struct qwp_source *source, unsigned char *entry,
                                               struct qwp_schema *schema, struct qwp_dict *dict,
                                               struct qwp_error *err);
/* A symbol as text in a row is new to the dictionary. QWP_INVALID: one too many. */
QWP_MUST_USE enum qwp_result qwp_source_count_text(struct qwp_source *source,
                                                   struct qwp_error *err);
/* The rows taken are stored, the last of them in frame `fsn`. Returns when the oldest of them was
 * first seen, or earlier. */
int64_t qwp_source_stored(struct qwp_source *source, uint64_t fsn);
/* The frame being built was given up. */
void qwp_source_untake(struct qwp_source *source);
/* Frames below acked_count are settled; rows_aside of their rows were set aside. */
void qwp_source_settle(struct qwp_source *source, uint64_t acked_count);
/* Faulty: tells the producer and `status` why, and never reads the ring again. */
void qwp_source_detach(struct qwp_source *source, const char *reason);
/* Writes the figures of the ring to its entry in the control file. */
void qwp_source_report(struct qwp_source *source);

#endif

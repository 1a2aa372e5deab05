/* qwp_ring: one producer's ring file: the producer's side (tx) and the sidecar's (rx).
 *
 * Threads:  tx is one thread of one process, rx one thread of another.
 * Progress: reserve, publish and poll are wait-free, without system calls; release and settle make
 *           one only when the producer waits. Waiting and ringing live in qwp_bell.h.
 * Trust:    rx believes nothing that tx wrote: positions and sizes are loaded once and judged. tx
 *           trusts the sidecar (same user, or root). A truncated file is a SIGBUS for whoever
 *           touches the mapping: one range, from `header`, of `mapped_bytes` (qwp_guard.h).
 * Crash:    what was published outlives tx; what was reserved and not published was never sent. */
#ifndef QWP_RING_H
#define QWP_RING_H

#include <stdbool.h>

#include "core/qwp_error.h"
#include "core/qwp_record_layout.h"
#include "core/qwp_shape.h"
#include "ipc/qwp_ring_layout.h"

/* ---- producer ---- */

struct qwp_ring_options {
    const char *name;        /* for people and the file name; NULL: the program's name */
    uint64_t data_bytes;     /* 0: default; rounded up to a power of two */
    uint64_t defs_bytes_max; /* 0: default */
    uint32_t unit_bytes_max; /* 0: default, at most half of data_bytes */
    bool lock_memory;        /* mlock; a refusal is an error */
    bool membarrier;         /* this process is registered for MEMBARRIER_CMD_GLOBAL_EXPEDITED */
};

struct qwp_ring_tx {
    struct qwp_ring_header *header; /* NULL: closed */
    unsigned char *defs;
    unsigned char *data; /* both views; data_bytes * 2 */
    uint64_t data_bytes;
    uint64_t data_mask;
    uint64_t defs_bytes_max;
    uint64_t defs_reserved; /* blocks at hand */
    uint64_t defs_pos;      /* the truth; header->defs_tail is its published copy */
    uint64_t write_pos;     /* next record goes here; >= published tail */
    uint64_t tail_pos;      /* published */
    uint64_t head_seen_pos; /* last head_pos loaded */
    uint64_t rows_published;
    size_t mapped_bytes;   /* from `header`: header, definitions, both views */
    uint32_t symbol_count; /* defined so far: the next symbol's index */
    uint32_t shape_count;
    uint32_t unit_bytes_max;
    bool lock_memory;
    int fd;     /* holds the lifetime lock */
    int dir_fd; /* own descriptor of the instance directory */
    char file_name[128];
};

/* Makes, fills and locks the ring file under a temporary name in `dir_fd` and renames it into
 * place. QWP_NOMEM with needed and available bytes when the blocks are not to be had. */
QWP_MUST_USE enum qwp_result qwp_ring_create(struct qwp_ring_tx *tx, int dir_fd,
                                             const struct qwp_ring_options *options,
                                             struct qwp_error *err);
/* Unmaps and drops the lock; the sidecar drains what was published and removes the file. */
void qwp_ring_close_tx(struct qwp_ring_tx *tx);
/* In a forked child: forget the ring without touching it (mappings are not inherited). */
void qwp_ring_forget_tx(struct qwp_ring_tx *tx);

/* Room for one record at write_pos, contiguous: `bytes` is a multiple of QWP_RECORD_ALIGN.
 * QWP_AGAIN: full until head moves. Nothing is claimed: write the record there, then commit. */
static inline enum qwp_result qwp_ring_reserve(struct qwp_ring_tx *tx, uint32_t bytes,
                                               unsigned char **at)
{
    if (tx->write_pos + bytes - tx->head_seen_pos > tx->data_bytes) {
        /* sync[ring.head] acquire: pairs with the release in qwp_ring_release(). */
        tx->head_seen_pos = atomic_load_explicit(&tx->header->head_pos, memory_order_acquire);
        if (tx->write_pos + bytes - tx->head_seen_pos > tx->data_bytes) {
            return QWP_AGAIN;
        }
    }
    *at = tx->data + (tx->write_pos & tx->data_mask);
    return QWP_OK;
}

/* The record at write_pos is whole: the next one goes behind it. Not visible yet. */
static inline void qwp_ring_commit(struct qwp_ring_tx *tx, uint32_t bytes)
{
    tx->write_pos += bytes;
}

/* Makes everything committed visible. Ring the bell after it (qwp_bell.h). */
static inline void qwp_ring_publish(struct qwp_ring_tx *tx, uint32_t rows)
{
    tx->rows_published += rows;
    atomic_store_explicit(&tx->header->rows_published, tx->rows_published, memory_order_relaxed);
    tx->tail_pos = tx->write_pos;
    /* sync[ring.tail] release: the records are whole before the tail says so. */
    atomic_store_explicit(&tx->header->tail_pos, tx->tail_pos, memory_order_release);
}

/* Takes back what was committed and not published. */
static inline void qwp_ring_abort(struct qwp_ring_tx *tx)
{
    tx->write_pos = tx->tail_pos;
}

/* Append one definition and publish it: its index is symbol_count or shape_count as before the
 * call. QWP_LIMIT: the area is full (a symbol then travels as text), or the entry or the count is
 * beyond its bound; QWP_NOMEM: no blocks for it. A failure changes nothing. */
QWP_MUST_USE enum qwp_result qwp_ring_define_symbol(struct qwp_ring_tx *tx, const char *text,
                                                    size_t len, struct qwp_error *err);
QWP_MUST_USE enum qwp_result
qwp_ring_define_shape(struct qwp_ring_tx *tx, const struct qwp_shape *shape, struct qwp_error *err);

/* ---- sidecar ---- */

struct qwp_ring_limits {
    uint64_t data_bytes_max;
    uint64_t defs_bytes_max;
    const uint32_t *uids; /* allowed owners; uid_count 0: any */
    uint32_t uid_count;
    uint32_t tables_max;  /* of one producer; 0: any number */
    uint32_t symbols_max; /* likewise: defined, or new when they came as text */
};

struct qwp_ring_rx {
    struct qwp_ring_header *header; /* NULL: closed */
    const unsigned char *defs;
    const unsigned char *data; /* both views */
    uint64_t data_bytes;       /* own copies, checked once */
    uint64_t data_mask;
    uint64_t defs_bytes_max;
    uint64_t tail_seen_pos; /* last tail_pos that passed the check */
    uint64_t head_pos;      /* the truth; header->head_pos is its published copy */
    uint64_t acked_pos;
    uint64_t rows_stored; /* the truths of the counters in the header */
    uint64_t rows_acked;
    uint64_t rows_rejected;
    uint64_t defs_seen;      /* position behind the last definition parsed */
    uint64_t defs_tail_seen; /* last defs_tail that passed the check */
    uint64_t ring_id[2];
    size_t mapped_bytes; /* from `header`: header, definitions, both views */
    uint32_t unit_bytes_max;
    uint32_t owner_uid;
    int fd;
    bool membarrier; /* the producer publishes without a fence, unless the control file says so */
    bool orphan;     /* the producer is gone, and this descriptor holds its lock */
    char file_name[128];
    char name[QWP_RING_NAME_BYTES];
};

/* Opens a file of `dir_fd` by the design's rules for a stranger's file and maps it. QWP_AGAIN: no
 * such file (any more), or one that qwp_ring_remove() emptied. QWP_CORRUPT or QWP_INVALID: not a
 * ring we take; err says what was found and expected. QWP_LIMIT: a ring beyond `limits`; its state
 * and reason then tell its producer. Resumes at the published head_pos. Attaching to the bell is
 * qwp_bell_attach().
 *
 * What is refused for its bytes is closed again without ever having been open for writing, so that
 * a refusal makes no IN_CLOSE_WRITE; one for its limits does so once. */
QWP_MUST_USE enum qwp_result qwp_ring_open(struct qwp_ring_rx *rx, int dir_fd,
                                           const char *file_name,
                                           const struct qwp_ring_limits *limits,
                                           struct qwp_error *err);
void qwp_ring_close_rx(struct qwp_ring_rx *rx);
/* Goes on from head_pos (from a cursor, say) instead of the published head; before the first
 * release. QWP_CORRUPT: it lies below the published head or beyond the tail. */
QWP_MUST_USE enum qwp_result qwp_ring_resume(struct qwp_ring_rx *rx, uint64_t head_pos,
                                             struct qwp_error *err);

/* Loads tail_pos once and judges it. QWP_OK: tail_seen_pos moved; QWP_AGAIN: nothing new (what was
 * seen before and not released does not count); QWP_CORRUPT: impossible position. */
QWP_MUST_USE enum qwp_result qwp_ring_poll(struct qwp_ring_rx *rx);
/* Next definition that is published and not yet parsed. Call after poll() until QWP_AGAIN: that
 * covers every record below tail_seen_pos. QWP_CORRUPT: garbage, a bad name or invalid UTF-8, which
 * the library never writes. The entry is copied to `entry` (room for QWP_RING_DEF_BYTES_MAX) before
 * it is judged. */
enum { QWP_RING_DEF_BYTES_MAX = 512 * 1024 };
struct qwp_ring_def {
    enum qwp_def_kind kind;
    const char *text; /* symbol: into the copy */
    uint32_t text_len;
    struct qwp_shape *shape; /* shape: owned by the caller */
};
QWP_MUST_USE enum qwp_result qwp_ring_next_def(struct qwp_ring_rx *rx, unsigned char *entry,
                                               struct qwp_ring_def *def, struct qwp_error *err);
/* Reads a symbol's definition again: `pos` is defs_seen as it was before next_def() gave it.
 * QWP_CORRUPT: it is none any more. */
QWP_MUST_USE enum qwp_result qwp_ring_symbol_at(const struct qwp_ring_rx *rx, uint64_t pos,
                                                unsigned char *entry, struct qwp_ring_def *def,
                                                struct qwp_error *err);
/* Everything below head_pos is stored: moves head and counters, wakes a waiting producer. */
void qwp_ring_release(struct qwp_ring_rx *rx, uint64_t head_pos, uint64_t rows);
/* Everything below acked_pos is settled, `rejected` of its rows were set aside. */
void qwp_ring_settle(struct qwp_ring_rx *rx, uint64_t acked_pos, uint64_t rows, uint64_t rejected);
/* Whether the producer sleeps for it now (`what`: QWP_WAIT_*): a hint, it may begin at any time. */
bool qwp_ring_is_waited_for(const struct qwp_ring_rx *rx, uint32_t what);
void qwp_ring_set_state(struct qwp_ring_rx *rx, enum qwp_ring_state state, const char *reason);
/* True when the producer is gone (its lifetime lock could be taken). Everything it published is
 * visible then: poll once more, drain, then remove. */
bool qwp_ring_is_orphan(struct qwp_ring_rx *rx);
/* Unlinks the file (of an orphan); before close. Already gone is fine, and so is a new file of that
 * name, which stays. QWP_IO: not permitted (a sticky directory that is not ours, say);
 * the file is then emptied, for qwp_rendezvous_sweep_emptied(). */
QWP_MUST_USE enum qwp_result qwp_ring_remove(struct qwp_ring_rx *rx, int dir_fd,
                                             struct qwp_error *err);

#endif

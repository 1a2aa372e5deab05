/* qwp_ring_layout: a ring file, as both processes map it. One producer thread, one consumer.
 *
 *   offset                  size                 part
 *   0                       QWP_RING_STEP        header (below)
 *   defs_off                defs_bytes_max       definitions, append-only; blocks reserved in steps
 *   data_off                data_bytes           records; mapped twice in a row, so none wraps
 *
 * Offsets and sizes are multiples of QWP_RING_STEP (64 KiB), which serves every page size;
 * data_bytes is a power of two. In major 1 the parts follow one another without a gap and end the
 * file: defs_off = QWP_RING_STEP, data_off = defs_off + defs_bytes_max. Positions are bytes since
 * the ring was made and only grow; the record at position p lies at data_off + p % data_bytes.
 *
 * Definitions are entries one after another, each at a multiple of 8; the rest of one is zero:
 *   0 4 size_bytes (whole entry, multiple of 8)   4 2 kind   6 2 zero   then by kind
 *   QWP_DEF_SYMBOL  8 4 text length   12 ... text
 *   QWP_DEF_SHAPE   8 2 columns   10 1 designated type   11 1 table name length   12 ... table name
 *                   then per column: type u8, parameter u8, name length u8, name
 * Each takes the next index of its kind: 0, 1, 2, ...
 *
 * A layout change bumps QWP_RING_MAJOR; a new field in spare room bumps QWP_RING_MINOR. */
#ifndef QWP_RING_LAYOUT_H
#define QWP_RING_LAYOUT_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QWP_RING_MAGIC UINT64_C(0x31474e4952505751) /* "QWPRING1" */
enum { QWP_RING_MAJOR = 1, QWP_RING_MINOR = 0 };
enum {
    QWP_RING_STEP = 64 * 1024,
    QWP_RING_DATA_BYTES_MIN = 64 * 1024,
    QWP_RING_DATA_BYTES_DEFAULT = 1024 * 1024,
    QWP_RING_DATA_BYTES_MAX = 1024 * 1024 * 1024,
    QWP_RING_DEFS_BYTES_DEFAULT = 1024 * 1024,
    QWP_RING_DEFS_BYTES_MAX = 64 * 1024 * 1024,
    QWP_RING_UNIT_BYTES_DEFAULT = 256 * 1024, /* never more than half of the data area */
    QWP_SHARE_BYTES = 128, /* two cache lines: the prefetcher pulls them in pairs */
    QWP_RING_NAME_BYTES = 64,
    QWP_RING_REASON_BYTES = 256,
};

enum qwp_def_kind { QWP_DEF_SYMBOL = 1, QWP_DEF_SHAPE = 2 };
enum { QWP_DEF_HEADER_BYTES = 8 };

/* What the consumer says of the ring. */
enum qwp_ring_state {
    QWP_RING_NEW = 0, /* no sidecar has attached yet */
    QWP_RING_ATTACHED = 1,
    QWP_RING_CLOSING = 2, /* the sidecar is shutting down: rows stay in the ring for the next one */
    QWP_RING_DETACHED = 3, /* faulty: see reason; nothing is read from it any more */
    QWP_RING_REFUSED = 4,  /* versions or limits: see reason */
};

enum {
    QWP_RING_MEMBARRIER = 0x01
}; /* producer_flags: registered, so it publishes without a fence */
/* waiting: what the producer sleeps for. */
enum { QWP_WAIT_SPACE = 0x01, QWP_WAIT_STORED = 0x02, QWP_WAIT_ACKED = 0x04 };

struct qwp_ring_header {
    /* writer: producer, before the file is renamed into place. const after; read once and checked.
     */
    _Atomic uint64_t magic;
    _Atomic uint16_t major;
    _Atomic uint16_t minor;
    _Atomic uint32_t header_bytes; /* sizeof(struct qwp_ring_header) of the writer */
    _Atomic uint64_t defs_off;
    _Atomic uint64_t defs_bytes_max;
    _Atomic uint64_t data_off;
    _Atomic uint64_t data_bytes;
    _Atomic uint32_t unit_bytes_max;
    _Atomic uint32_t producer_pid;  /* for people: PIDs mean nothing across namespaces */
    _Atomic uint64_t ring_id[2];    /* random */
    _Atomic int64_t created_us;     /* wall time */
    char name[QWP_RING_NAME_BYTES]; /* UTF-8, zero-padded; for people */
    char library_version[32];

    /* writer: producer. reader: sidecar. sync[ring.tail]: records below tail_pos are whole. */
    alignas(QWP_SHARE_BYTES) _Atomic uint64_t tail_pos;
    _Atomic uint64_t rows_published; /* counter */
    _Atomic uint64_t rows_dropped;   /* counter: full ring, policy drop */
    _Atomic uint32_t producer_flags; /* QWP_RING_MEMBARRIER */
    _Atomic uint32_t waiting;        /* QWP_WAIT_*; sync[ring.progress], seq_cst on both sides */
    /* sync[ring.defs]: definitions below defs_tail are whole; stored before the tail that uses
     * them. */
    _Atomic uint64_t defs_tail;

    /* writer: sidecar. reader: producer. sync[ring.head]: stored; the room below may be reused. */
    alignas(QWP_SHARE_BYTES) _Atomic uint64_t head_pos;

    /* writer: sidecar. reader: producer. */
    alignas(QWP_SHARE_BYTES) _Atomic uint64_t
        attach_gen;                 /* id of the sidecar's life; sync[bell.attach] */
    _Atomic uint64_t acked_pos;     /* settled by the server; sync[ring.acked] */
    _Atomic uint64_t rejected_rows; /* of the settled ones: set aside instead of stored */
    _Atomic uint64_t rows_stored;
    _Atomic uint64_t rows_acked;
    _Atomic uint32_t progress_seq; /* futex word; bumped and woken when `waiting` asked for it */
    _Atomic uint32_t state;        /* enum qwp_ring_state; sync[ring.state]: reason is written */
    char reason[QWP_RING_REASON_BYTES]; /* zero-terminated; written before the state */
};

static_assert(offsetof(struct qwp_ring_header, defs_off) == 16, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, ring_id) == 56, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, name) == 80, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, tail_pos) == 256, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, defs_tail) == 288, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, head_pos) == 384, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, attach_gen) == 512, "ring layout v1");
static_assert(offsetof(struct qwp_ring_header, reason) == 560, "ring layout v1");
static_assert(sizeof(struct qwp_ring_header) <= QWP_RING_STEP, "ring layout v1");

/* When a batch is due and a producer rings a lingering sidecar: both sides must agree. */
static inline bool qwp_ring_is_half_full(uint64_t used_bytes, uint64_t data_bytes)
{
    return used_bytes >= data_bytes / 2;
}

#endif

/* qwp_snapshot: one look at a sidecar's control file, copied and cleaned, for status.
 *
 * Trust: every value was written by another process. Counts are bounded by the file's size, texts
 *        are cut, terminated and free of control characters. Values of one look need not agree
 *        with each other to the row. */
#ifndef QWP_SNAPSHOT_H
#define QWP_SNAPSHOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "ipc/qwp_control_layout.h"
#include "ipc/qwp_rendezvous.h"

/* id, field of struct qwp_control_header (and key in JSON). */
#define QWP_SIDECAR_COUNTERS(X)                                                                    \
    X(ROWS_STORED, rows_stored)                                                                    \
    X(ROWS_ACKED, rows_acked)                                                                      \
    X(ROWS_REJECTED, rows_rejected)                                                                \
    X(FRAMES_PUBLISHED, frames_published)                                                          \
    X(FRAMES_SENT, frames_sent)                                                                    \
    X(FRAMES_ACKED, frames_acked)                                                                  \
    X(BYTES_STORED, bytes_stored)                                                                  \
    X(BYTES_WAITING, bytes_waiting)                                                                \
    X(BYTES_SENT, bytes_sent)                                                                      \
    X(STORE_BYTES, store_bytes)                                                                    \
    X(CONNECTS, connects)                                                                          \
    X(DISCONNECTS, disconnects)                                                                    \
    X(SERVER_ERRORS, server_errors)                                                                \
    X(WAKEUPS, wakeups)                                                                            \
    X(STALLS, stalls)                                                                              \
    X(ROTATIONS, rotations)                                                                        \
    X(ROTATIONS_WITHOUT_SPARE, rotations_without_spare)                                            \
    X(KEEPER_FAILURES, keeper_failures)                                                            \
    X(SYNC_FAILURES, sync_failures)                                                                \
    X(SEGMENTS_SUSPECT, segments_suspect)                                                          \
    X(FRAMES_UNSYNCED, frames_unsynced)                                                            \
    X(FRAMES_WAITING, frames_waiting)                                                              \
    X(STORE_BYTES_MAX, store_bytes_max)                                                            \
    X(SEGMENTS_SEALED, segments_sealed)                                                            \
    X(SEGMENTS_SPARE, segments_spare)                                                              \
    X(SEGMENTS_RECYCLED, segments_recycled)                                                        \
    X(CONNECT_ATTEMPTS, connect_attempts)                                                          \
    X(FRAMES_REPLAYED, frames_replayed)                                                            \
    X(BYTES_RECEIVED, bytes_received)                                                              \
    X(BYTES_IN_FLIGHT, bytes_in_flight)                                                            \
    X(MESSAGES_IN_FLIGHT, messages_in_flight)                                                      \
    X(GENERATIONS, generations)                                                                    \
    X(SYMBOLS, symbols)

/* The same of struct qwp_control_producer. */
#define QWP_PRODUCER_COUNTERS(X)                                                                   \
    X(ROWS_PUBLISHED, rows_published)                                                              \
    X(ROWS_STORED, rows_stored)                                                                    \
    X(ROWS_ACKED, rows_acked)                                                                      \
    X(ROWS_REJECTED, rows_rejected)                                                                \
    X(ROWS_DROPPED, rows_dropped)                                                                  \
    X(BYTES_WAITING, bytes_waiting)                                                                \
    X(BYTES_TAKEN, bytes_taken)                                                                    \
    X(RING_BYTES, ring_bytes)                                                                      \
    X(SYMBOLS, symbols)                                                                            \
    X(SYMBOL_WAITS, symbol_waits)

enum {
#define COUNTER_ID(id, field) QWP_SIDECAR_##id,
    QWP_SIDECAR_COUNTERS(COUNTER_ID)
#undef COUNTER_ID
        QWP_SIDECAR_COUNTER_COUNT
};
enum {
#define COUNTER_ID(id, field) QWP_PRODUCER_##id,
    QWP_PRODUCER_COUNTERS(COUNTER_ID)
#undef COUNTER_ID
        QWP_PRODUCER_COUNTER_COUNT
};
extern const char *const qwp_sidecar_counter_names[QWP_SIDECAR_COUNTER_COUNT];
extern const char *const qwp_producer_counter_names[QWP_PRODUCER_COUNTER_COUNT];

struct qwp_snapshot_producer {
    uint32_t slot; /* index in the control file: with `pid` the same producer in the next look */
    uint32_t pid;
    uint32_t uid;
    uint32_t state; /* enum qwp_ring_state, or anything */
    uint64_t counters[QWP_PRODUCER_COUNTER_COUNT];
    char name[QWP_RING_NAME_BYTES];
    char file_name[128];
    char reason[QWP_RING_REASON_BYTES];
};

struct qwp_snapshot_table {
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    uint64_t rows_stored;
};

struct qwp_snapshot_trouble {
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    char reason[QWP_CONTROL_TEXT_BYTES];
    uint32_t state;  /* enum qwp_trouble_state, or anything */
    uint32_t status; /* the server's, or anything */
    uint64_t rows_aside;
};
enum { QWP_SNAPSHOT_TROUBLES_MAX = 64 };

struct qwp_snapshot_latency {
    uint64_t buckets[QWP_CONTROL_LATENCY_BUCKETS];
    uint64_t sum_ns;
};

struct qwp_snapshot {
    int64_t taken_ns;    /* monotonic */
    bool has_control;    /* a sidecar has run here */
    bool is_live;        /* and runs now */
    uint64_t ring_count; /* ring files there, attached or not */
    uint64_t gen;
    uint32_t sidecar_pid;
    uint32_t state;       /* enum qwp_sidecar_state, or anything */
    uint32_t connection;  /* enum qwp_connection_state, or anything */
    uint32_t bell_mode;   /* enum qwp_bell_mode, or anything */
    uint32_t store_state; /* enum qwp_store_state, or anything */
    bool keeper_failing;
    bool credentials_refused;
    /* Monotonic, of the sidecar's host; 0: never, or none. */
    int64_t progress_ns; /* last acknowledgement */
    int64_t oldest_ns;   /* the oldest frame that waits was stored */
    int64_t beat_ns;     /* last duty cycle */
    int64_t started_us;  /* wall time */
    int64_t connected_us;
    int64_t error_us;
    uint64_t counters[QWP_SIDECAR_COUNTER_COUNT];
    uint64_t answers[QWP_CONTROL_ANSWERS];
    struct qwp_snapshot_latency seen_to_stored, stored_to_acked, seen_to_acked;
    char version[32];
    char endpoint[QWP_CONTROL_TEXT_BYTES];
    char last_error[QWP_CONTROL_TEXT_BYTES];
    char store_error[QWP_CONTROL_TEXT_BYTES];
    char keeper_error[QWP_CONTROL_TEXT_BYTES];
    uint32_t tables_suspect, tables_blocked;
    uint64_t rejected_bytes, rejected_bytes_max;
    char rejected_dir[QWP_CONTROL_DIR_BYTES]; /* "" when the sidecar was older */
    struct qwp_snapshot_trouble troubles[QWP_SNAPSHOT_TROUBLES_MAX];
    size_t trouble_count;
    struct qwp_snapshot_producer *producers; /* owned */
    size_t producer_count;
    struct qwp_snapshot_table *tables; /* owned */
    size_t table_count;
};

/* Looks at instance `name` below `dir` without making or changing anything there. No directory or
 * no control file is QWP_OK with has_control false. QWP_INVALID, QWP_CORRUPT: a control file that
 * is not understood; QWP_IO: no permission, for one. Fini what is no longer needed. */
QWP_MUST_USE enum qwp_result qwp_snapshot_take(struct qwp_snapshot *snapshot, const char *dir,
                                               const char *name, struct qwp_error *err);
/* The same of a control file that is mapped already; ring_count stays 0. No system call. */
QWP_MUST_USE enum qwp_result qwp_snapshot_copy(struct qwp_snapshot *snapshot,
                                               const struct qwp_control *control,
                                               struct qwp_error *err);
/* A zeroed one is fine. */
void qwp_snapshot_fini(struct qwp_snapshot *snapshot);

/* The producer of `producer` in an older look, or NULL. */
const struct qwp_snapshot_producer *qwp_snapshot_find(const struct qwp_snapshot *before,
                                                      const struct qwp_snapshot_producer *producer);

#endif

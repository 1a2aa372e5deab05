/* qwp_control_layout: the control file, written by the sidecar alone and mapped read-only by
 * producers.
 *
 * Each life of a sidecar makes a new file and renames it over the old one, so a producer that sees
 * a new attach_gen in its ring opens the name again. The sidecar holds a write lock (fcntl OFD) on
 * the whole file while it lives: F_OFD_GETLK tells a producer whether anyone is there. */
#ifndef QWP_CONTROL_LAYOUT_H
#define QWP_CONTROL_LAYOUT_H

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "ipc/qwp_ring_layout.h"

#define QWP_CONTROL_MAGIC UINT64_C(0x314c52544e4f4351) /* "QCONTRL1" */
#define QWP_CONTROL_FILE  "control"
#define QWP_BELL_FILE     "bell"
enum { QWP_CONTROL_MAJOR = 1, QWP_CONTROL_MINOR = 4 };

/* epoch: count in the high bits, state in the low two. */
enum {
    QWP_EPOCH_PARKED = 0x1,    /* the sidecar sleeps or is about to: ring */
    QWP_EPOCH_LINGERING = 0x2, /* with PARKED: it wakes by itself soon; ring only past half full */
    QWP_EPOCH_STEP = 0x4,
};
enum qwp_bell_mode { QWP_BELL_FUTEX = 0, QWP_BELL_FIFO = 1 };
enum qwp_sidecar_state { QWP_SIDECAR_RUNNING = 1, QWP_SIDECAR_CLOSING = 2, QWP_SIDECAR_GONE = 3 };
enum qwp_connection_state {
    QWP_CONNECTION_DOWN = 0,
    QWP_CONNECTION_CONNECTING = 1,
    QWP_CONNECTION_CATCHING_UP = 2, /* the dictionary is being sent again */
    QWP_CONNECTION_UP = 3,
};
enum qwp_store_state {
    QWP_STORE_OK = 0,
    QWP_STORE_FULL = 1,    /* its budget is used up: rows wait in their rings */
    QWP_STORE_BLOCKED = 2, /* it cannot be written (disk full, I/O error): likewise */
};
enum {
    QWP_CONTROL_TEXT_BYTES = 256,
    QWP_CONTROL_TABLE_NAME_BYTES = 128,
    QWP_CONTROL_ANSWERS = 8, /* kinds of rejection, see qwp_answer_name() */
    QWP_CONTROL_LATENCY_BUCKETS = 24,
    QWP_CONTROL_DIR_BYTES = 512,
};

/* Durations of frames; edges as qwp_latency_bucket_ns() has them. */
struct qwp_control_latency {
    _Atomic uint64_t buckets[QWP_CONTROL_LATENCY_BUCKETS]; /* not cumulative */
    _Atomic uint64_t sum_ns;
};

/* One per attached ring, for `status`. */
struct qwp_control_producer {
    alignas(QWP_SHARE_BYTES) _Atomic uint32_t in_use;
    _Atomic uint32_t state; /* enum qwp_ring_state */
    _Atomic uint32_t pid;
    _Atomic uint32_t uid;
    _Atomic uint64_t rows_published; /* as of the last visit */
    _Atomic uint64_t rows_stored;
    _Atomic uint64_t rows_acked;
    _Atomic uint64_t rows_rejected;
    _Atomic uint64_t rows_dropped;
    _Atomic uint64_t bytes_waiting; /* in the ring */
    _Atomic uint64_t ring_bytes;
    char name[QWP_RING_NAME_BYTES];
    char file_name[128];
    char reason[QWP_RING_REASON_BYTES];
    _Atomic uint64_t bytes_taken;  /* out of the ring, over its life; since minor version 2 */
    _Atomic uint64_t symbols;      /* brought to the dictionary, over all generations */
    _Atomic uint64_t symbol_waits; /* times it had to wait for the next generation with more */
};

/* One per table with rows, for `status`; those beyond the bound are not shown. Entries are never
 * given back, so the first one with an empty name ends the list. */
struct qwp_control_table {
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    _Atomic uint64_t rows_stored;
};

enum qwp_trouble_state {
    QWP_TROUBLE_SUSPECT = 1, /* offered apart from the others */
    QWP_TROUBLE_BLOCKED = 2, /* refused: its rows are set aside */
    QWP_TROUBLE_HELD = 3,    /* and there is no more room for that: its producers wait */
};

/* One per table that the server has refused rows of, while that lasts; behind the tables. */
struct qwp_control_trouble {
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    char reason[QWP_CONTROL_TEXT_BYTES]; /* the server's words */
    _Atomic uint32_t state;              /* enum qwp_trouble_state */
    _Atomic uint32_t status;             /* the server's */
    _Atomic uint64_t rows_aside;
};

struct qwp_control_header {
    /* writer: sidecar, before the rename; const after. */
    _Atomic uint64_t magic;
    _Atomic uint16_t major;
    _Atomic uint16_t minor;
    _Atomic uint16_t ring_major_min; /* ring layouts this sidecar reads */
    _Atomic uint16_t ring_major_max;
    _Atomic uint64_t file_bytes;
    _Atomic uint64_t gen; /* random, not 0: what attach_gen says in each ring */
    _Atomic uint32_t sidecar_pid;
    _Atomic uint32_t bell_mode;     /* enum qwp_bell_mode */
    _Atomic uint32_t bell_fence;    /* 1: every producer fences; set before the first attach */
    _Atomic uint32_t producers_max; /* entries at QWP_CONTROL_PRODUCERS_OFF */
    _Atomic int64_t started_us;
    _Atomic uint64_t ring_bytes_max; /* limits for rings */
    char version[32];
    _Atomic uint32_t tables_max; /* entries behind the producers' */

    /* writer: sidecar. reader: every producer after each publish. sync[bell.epoch] */
    alignas(QWP_SHARE_BYTES) _Atomic uint32_t epoch;

    /* writer: sidecar. readers: status. All relaxed: figures, not protocol. */
    alignas(QWP_SHARE_BYTES) _Atomic uint32_t state; /* enum qwp_sidecar_state */
    _Atomic uint32_t connection;                     /* enum qwp_connection_state */
    _Atomic uint64_t rows_stored;
    _Atomic uint64_t rows_acked;
    _Atomic uint64_t rows_rejected;
    _Atomic uint64_t frames_published;
    _Atomic uint64_t frames_acked;
    _Atomic uint64_t frames_sent;  /* replays count again */
    _Atomic uint64_t bytes_stored; /* payload bytes published to the log */
    _Atomic uint64_t bytes_waiting;
    _Atomic uint64_t bytes_sent;  /* on the socket */
    _Atomic uint64_t store_bytes; /* segments, charged to the budget */
    _Atomic uint64_t connects;
    _Atomic uint64_t disconnects;
    _Atomic uint64_t server_errors;
    _Atomic uint64_t wakeups;
    _Atomic uint64_t stalls;      /* times the store was full */
    _Atomic int64_t connected_us; /* wall time since when `connection` is up, or is not */
    char endpoint[QWP_CONTROL_TEXT_BYTES];
    char last_error[QWP_CONTROL_TEXT_BYTES];

    /* The same, since minor version 1: the store. */
    _Atomic uint32_t store_state;    /* enum qwp_store_state; writer: intake */
    _Atomic uint32_t keeper_failing; /* 0, 1: keeper_error says what; writer: keeper */
    _Atomic uint64_t rotations;
    _Atomic uint64_t rotations_without_spare; /* slower: intake made the segment itself */
    _Atomic uint64_t keeper_failures;         /* each is tried again */
    _Atomic uint64_t sync_failures;
    _Atomic uint64_t segments_suspect; /* a sync of them failed: never taken for synced */
    _Atomic uint64_t frames_unsynced;  /* published and not yet on disk (sf_durability=periodic) */
    char store_error[QWP_CONTROL_TEXT_BYTES]; /* why store_state is not QWP_STORE_OK */
    char keeper_error[QWP_CONTROL_TEXT_BYTES];

    /* The same, since minor version 2: for metrics and health. Monotonic times, 0: never. */
    _Atomic uint64_t frames_waiting; /* writer of what the store has: keeper */
    _Atomic uint64_t store_bytes_max;
    _Atomic uint64_t segments_sealed;
    _Atomic uint64_t segments_spare;
    _Atomic uint64_t segments_recycled;
    _Atomic uint64_t connect_attempts; /* writer until `answers`: sender */
    _Atomic uint64_t frames_replayed;  /* of frames_sent, those that had been sent before */
    _Atomic uint64_t bytes_received;
    _Atomic uint64_t bytes_in_flight;
    _Atomic uint64_t messages_in_flight;
    _Atomic int64_t progress_ns;          /* last acknowledgement */
    _Atomic int64_t error_us;             /* wall time of last_error */
    _Atomic uint32_t credentials_refused; /* since the last connection; 0, 1 */
    _Atomic uint64_t answers[QWP_CONTROL_ANSWERS];
    _Atomic int64_t beat_ns;   /* last duty cycle; writer until the end: intake */
    _Atomic int64_t oldest_ns; /* when the oldest frame that waits was stored; 0: none waits */
    struct qwp_control_latency seen_to_stored;
    struct qwp_control_latency stored_to_acked;
    struct qwp_control_latency seen_to_acked;

    /* The same, since minor version 3: refused rows. writer: sender, but for the first. */
    _Atomic uint32_t troubles_max; /* entries behind the tables'; const */
    _Atomic uint32_t troubles;     /* in use, from the first on */
    _Atomic uint32_t tables_suspect;
    _Atomic uint32_t tables_blocked;
    _Atomic uint64_t rejected_bytes; /* in the folder of refused rows */
    _Atomic uint64_t rejected_bytes_max;
    char rejected_dir[QWP_CONTROL_DIR_BYTES]; /* writer: sidecar, at its start */

    /* The same, since minor version 4. */
    _Atomic uint64_t generations; /* slots that the store consists of; writer: keeper */
    _Atomic uint64_t symbols;     /* in the dictionary of the newest one; writer: intake */
};

enum { QWP_CONTROL_PRODUCERS_OFF = 4096 };
static_assert(sizeof(struct qwp_control_header) <= QWP_CONTROL_PRODUCERS_OFF, "control layout v1");
static_assert(offsetof(struct qwp_control_header, epoch) == 128, "control layout v1");
static_assert(offsetof(struct qwp_control_header, state) == 256, "control layout v1");
static_assert(sizeof(struct qwp_control_producer) == 640, "control layout v1");
static_assert(sizeof(struct qwp_control_table) == 136, "control layout v1");
static_assert(sizeof(struct qwp_control_trouble) == 400, "control layout v1");

#endif

/* qwp_feed_share: what the processes of one feed have in common, in anonymous shared memory.
 *
 * The parent reads the input and deals blocks of it out to the workers in turn; each worker has a
 * small ring of slots for them. A slot is the parent's while it is free and the worker's while it
 * is full.
 *
 * Crash: a worker that dies leaves its slots full; the parent sees the death and ends the feed. */
#ifndef QWP_FEED_SHARE_H
#define QWP_FEED_SHARE_H

#include <semaphore.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

#include "clients/c/feed/qwp_feed_reader.h"

enum {
    QWP_FEED_SLOTS = 3, /* of a worker: one parsed, one ready, one being filled */
    QWP_FEED_SLOT_BYTES = QWP_FEED_RECORD_BYTES_MAX + 4096, /* room for the slack */
    QWP_FEED_FAILURE_BYTES = 1024,
    QWP_FEED_SHARE_LINE = 128,
};

enum qwp_feed_worker_state {
    QWP_FEED_WORKER_STARTING = 0,
    QWP_FEED_WORKER_SENDING,
    QWP_FEED_WORKER_ACKING, /* waits for acknowledgements */
    QWP_FEED_WORKER_DONE,
};

struct qwp_feed_slot_share {
    /* writers: parent (full), worker (free). sync[feed.full]: block and data are visible with it.
     * sync[feed.free]: the worker's reads have ended. */
    _Atomic uint32_t full;
    struct qwp_feed_block block; /* the owner's */
    char *data;                  /* const after the fork */
};

struct qwp_feed_worker_share {
    alignas(QWP_FEED_SHARE_LINE) sem_t ready; /* one for each full slot, and one at the end */
    struct qwp_feed_slot_share slots[QWP_FEED_SLOTS];
    /* writer: the worker. reader: the parent, for people. Relaxed. */
    alignas(QWP_FEED_SHARE_LINE) _Atomic uint32_t state;
    _Atomic uint32_t consumer; /* enum qwp_consumer */
    _Atomic uint64_t rows_sent;
    _Atomic uint64_t rows_bad;
    _Atomic uint64_t bytes; /* of input, parsed */
    _Atomic uint64_t rows_acked;
    _Atomic uint64_t rows_rejected;
    _Atomic uint64_t full_waits;
};

struct qwp_feed_share {
    sem_t freed; /* posted for every slot that becomes free */
    /* writer: parent. Readers: workers. Relaxed. */
    _Atomic uint32_t abandon; /* do not wait for anything any more */
    /* writers: whoever fails first (exchange). reader: parent. sync[feed.failure]: 2 says that the
     * text is there. */
    _Atomic uint32_t failed;
    char failure[QWP_FEED_FAILURE_BYTES];
    /* writers: workers (compare and exchange). When the next row is due at the given rate. */
    alignas(QWP_FEED_SHARE_LINE) _Atomic int64_t due_ns;
    _Atomic uint64_t bad_told; /* writers: workers (fetch_add). Bad lines that were printed */
    int64_t start_ns;          /* const after the fork */
    struct qwp_feed_worker_share workers[];
};

#endif

/* qwp_feed_ring: takes parsed rows and writes them into the ring of one producer.
 *
 * Each shape gets a record layout, so that a row is one reservation, one store per value and one
 * publish. Symbols are interned; when the ring takes no more of them they travel as text.
 *
 * The hot path checks nothing, so everything the sidecar would detach us for is checked here: text
 * is valid UTF-8, timestamps are within the server's range.
 *
 * Threads: one, the producer's. */
#ifndef QWP_FEED_RING_H
#define QWP_FEED_RING_H

#include "clients/c/feed/qwp_feed_catalog.h"
#include "clients/c/feed/qwp_feed_row.h"
#include "clients/c/feed/qwp_feed_symbols.h"

struct qwp_feed_ring_options {
    struct qwp_producer_options producer; /* full_wait_ns_max: how often `give_up` is asked */
    const char *seq_column;               /* NULL: none. Counts 0, 1, 2, ... per table */
    const char *producer_column;          /* NULL: none. The producer's name, a symbol */
    bool (*give_up)(void *context);       /* asked while the ring is full */
    void *context;
    bool dry; /* no ring: check and count only */
};

struct qwp_feed_ring {
    struct qwp_feed_ring_options options;
    struct qwp_feed_catalog *catalog; /* borrowed until close, as is the next */
    struct qwp_feed_symbols *symbols;
    struct qwp_producer *producer;      /* NULL: dry */
    struct qwp_feed_ring_table *tables; /* by table index */
    uint32_t table_room;
    struct qwp_feed_ring_plan **plans; /* by shape index */
    uint32_t plan_room;
    uint64_t rows;            /* taken */
    uint32_t producer_symbol; /* handle of the producer column's value */
    uint64_t symbol_bytes;    /* interned */
    uint64_t symbol_bytes_max;
};

QWP_MUST_USE enum qwp_result qwp_feed_ring_open(struct qwp_feed_ring *ring,
                                                const struct qwp_feed_ring_options *options,
                                                struct qwp_feed_catalog *catalog,
                                                struct qwp_feed_symbols *symbols,
                                                struct qwp_error *err);
/* Published rows stay for the sidecar. */
void qwp_feed_ring_close(struct qwp_feed_ring *ring);

/* QWP_INVALID, QWP_LIMIT: this row cannot be sent, others can. Anything else ends the feed;
 * QWP_AGAIN: the ring was full and give_up said so. */
QWP_MUST_USE enum qwp_result qwp_feed_ring_take(struct qwp_feed_ring *ring,
                                                const struct qwp_feed_row *row,
                                                struct qwp_error *err);

/* Rows taken of a table, by its index in the catalog. */
uint64_t qwp_feed_ring_rows(const struct qwp_feed_ring *ring, uint32_t table);

#endif

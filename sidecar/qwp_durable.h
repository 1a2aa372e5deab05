/* qwp_durable: which frames are durable, where the server says so apart from their OK
 * (request_durable_ack).
 *
 * An OK names tables and their sequencer transactions; a durable acknowledgement says up to which
 * transaction a table has been replicated. An OK counts when each of its tables has got there, and
 * every OK before it counts. One that names no table counts with those before it.
 *
 * Memory: fixed. Where it would run out, an OK is joined with the one before it: its frames count
 *         later then, never earlier.
 * Trust:  numbers and names are the server's. A table that was dropped and made anew counts from
 *         the start again: what waits for its old numbers waits until the next connection. */
#ifndef QWP_DURABLE_H
#define QWP_DURABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

enum {
    QWP_DURABLE_TABLES_MAX = 16 * 1024, /* servers take 10,000 a connection */
    QWP_DURABLE_OKS_MAX = 4 * 1024,
    QWP_DURABLE_PAIRS_MAX = 128 * 1024, /* (table, transaction) that are waited for; a power of 2 */
};

/* A table of this connection. */
struct qwp_durable_table {
    int64_t durable_txn; /* -1: none yet */
    uint64_t pair_pos;   /* its latest pair + 1; 0: none */
};

struct qwp_durable_pair {
    uint32_t table;
    int64_t txn;
};

struct qwp_durable_ok {
    uint64_t fsn_end; /* frames below are complete with it; 0: it completes none */
    uint64_t pair_begin, pair_end;
};

/* Zeroed: closed. */
struct qwp_durable {
    struct qwp_dict *names; /* of tables; the id is the index; NULL: none known */
    struct qwp_durable_table *tables;
    struct qwp_durable_ok *oks;     /* ring, by ok_first and ok_end */
    struct qwp_durable_pair *pairs; /* ring, by positions */
    uint64_t ok_first, ok_end;
    uint64_t pair_end;
};

QWP_MUST_USE enum qwp_result qwp_durable_open(struct qwp_durable *durable, struct qwp_error *err);
void qwp_durable_close(struct qwp_durable *durable);
/* A new connection: nothing is waited for, no table is known. */
void qwp_durable_reset(struct qwp_durable *durable);

/* An OK with its table list, as the session gives it (checked); `fsn_end` 0: it completes no frame.
 * QWP_LIMIT or QWP_NOMEM: it cannot be followed; the connection is to be made anew. */
QWP_MUST_USE enum qwp_result qwp_durable_ok(struct qwp_durable *durable, uint64_t fsn_end,
                                            const unsigned char *tables, size_t tables_bytes,
                                            uint16_t table_count);
/* A durable acknowledgement. May come before the OK it belongs to. */
QWP_MUST_USE enum qwp_result qwp_durable_confirm(struct qwp_durable *durable,
                                                 const unsigned char *tables, size_t tables_bytes,
                                                 uint16_t table_count);
/* Frames below are durable, beyond what the last call said; 0: no more. */
uint64_t qwp_durable_release(struct qwp_durable *durable);
/* OKs wait for their durable acknowledgement. */
static inline bool qwp_durable_is_waiting(const struct qwp_durable *durable)
{
    return durable->ok_first != durable->ok_end;
}

#endif

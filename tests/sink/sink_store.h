/* sink_store: what has arrived: tables, counters, and where rows are shown.
 *
 * Threads: many connections, one lock. Whoever commits holds it from the first row of a message to
 *          the last, so that the outputs show messages whole and in the order of their commits. */
#ifndef SINK_STORE_H
#define SINK_STORE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_shape.h"
#include "tests/sink/sink_buffer.h"
#include "tests/sink/sink_latency.h"
#include "tests/sink/sink_rows.h"
#include "tests/sink/sink_verify.h"

struct sink_store_options {
    const char *ndjson_path; /* NULL: none; "-": stdout */
    const char *files_dir;   /* NULL: none; else a file of rows per table */
    const char *verify;      /* NULL: none; "column" or "column,key" */
    const char *latency;     /* NULL: none; the column with times of publishing */
};

/* Tables are never dropped, so a pointer stays good. Names differ by more than case. */
struct sink_table {
    char *name;
    uint32_t name_len;
    int fd; /* its file of rows, -1: none */
    uint64_t name_hash;
    uint64_t rows;
    int64_t seq_txn;
    uint64_t last_commit;
    struct sink_table *next; /* of the same slot */
};

struct sink_counters {
    uint64_t messages; /* that passed the decoder */
    uint64_t bytes;    /* of those */
    uint64_t deferred; /* messages with DEFER_COMMIT */
    uint64_t commits;
    uint64_t rows;        /* committed */
    uint64_t rolled_back; /* deferred messages whose commit never came */
    uint64_t errors;      /* messages rejected and connections closed for a breach */
    uint64_t answers;
    uint64_t connections;
    uint64_t connections_open;
    uint64_t refused; /* TLS handshakes and upgrades that did not succeed */
};

struct sink_store {
    pthread_mutex_t lock; /* guards all below */
    struct sink_counters counters;
    struct sink_table **slots;
    uint32_t slot_count;
    struct sink_table **tables; /* in order of appearance */
    uint32_t table_count;
    uint32_t tables_room;
    int ndjson_fd; /* -1: none */
    const char *ndjson_path;
    const char *files_dir;
    struct sink_rows *rows; /* NULL: rows are not shown */
    struct sink_verify *verify;
    struct sink_latency latency;
    int64_t arrived_ns;          /* of the message that is being shown */
    int64_t connection;          /* that brought it */
    bool output_failed;          /* said once */
    _Atomic uint64_t wire_bytes; /* outside the lock; plain bytes read from sockets */
};

QWP_MUST_USE enum qwp_result sink_store_open(struct sink_store *store,
                                             const struct sink_store_options *options,
                                             struct qwp_error *err);
void sink_store_close(struct sink_store *store);

/* Whether values are looked at, or rows only counted. */
bool sink_store_wants_values(const struct sink_store *store);

/* The rest holds the lock. */

/* Finds or adds. */
struct sink_table *sink_store_table(struct sink_store *store, struct qwp_name name);
/* Counts rows of a table as part of commit number `commit`; its seqTxn afterwards. */
int64_t sink_store_add_rows(struct sink_store *store, struct sink_table *table, uint32_t rows,
                            uint64_t commit);
/* Shows and verifies the rows of a message; returns QWP_IO when an output cannot be written. */
QWP_MUST_USE enum qwp_result sink_store_show(struct sink_store *store, struct qwp_decoder *decoder,
                                             const struct qwp_message *message,
                                             struct qwp_error *err);
/* One JSON object in one line. Takes the lock itself. */
void sink_store_summary(struct sink_store *store, struct sink_buffer *out);

#endif

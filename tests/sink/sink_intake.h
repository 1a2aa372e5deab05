/* sink_intake: messages of one connection: decoded, held back while deferred, committed.
 *
 * A deferred message counts when the first message without the flag comes; if the connection ends
 * before, it never was.
 *
 * Threads: that of the connection; takes the store's lock to commit. */
#ifndef SINK_INTAKE_H
#define SINK_INTAKE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/wire/qwp_decode.h"
#include "tests/sink/sink_buffer.h"
#include "tests/sink/sink_faults.h"
#include "tests/sink/sink_policy.h"
#include "tests/sink/sink_store.h"

/* A table that commits since the last answer have touched. */
struct sink_touched {
    struct sink_table *table;
    int64_t seq_txn;
};

struct sink_intake {
    struct sink_store *store;
    const struct sink_policy *policy;
    struct qwp_decoder decoder;
    /* Deferred. With values: whole messages, each behind its length (u32). Without: a struct
     * sink_held for each block. */
    struct sink_buffer held;
    uint64_t held_messages;
    struct sink_fault_place place; /* of the next message */
    struct sink_fault fault;       /* that was hit last */
    struct sink_touched *touched;
    size_t touched_count;
    size_t touched_room;
};

/* `connection` is its number. */
void sink_intake_init(struct sink_intake *intake, struct sink_store *store,
                      const struct sink_policy *policy, int64_t connection);
/* Rolls back what is still deferred. */
void sink_intake_fini(struct sink_intake *intake);

/* Takes a message. *committed: it is to be answered, and with it those before. On failure *status
 * is what to answer with err->text, and the connection takes nothing more. QWP_CLOSED: it is to be
 * closed instead, as `fault` says. */
QWP_MUST_USE enum qwp_result sink_intake_message(struct sink_intake *intake,
                                                 const unsigned char *bytes, size_t len,
                                                 bool *committed, enum qwp_status *status,
                                                 struct qwp_error *err);
/* The tables touched since the last call, each once with its latest seqTxn, as an answer lists
 * them: count u16, then (length u16, name, seqTxn i64). Forgets them. */
void sink_intake_list_tables(struct sink_intake *intake, struct sink_buffer *out);

#endif

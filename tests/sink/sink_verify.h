/* sink_verify: whether numbered rows arrived once each and in order.
 *
 * In each table an integer column is to count 0, 1, 2, ...; with a key, for each text of that
 * symbol column on its own. Every number seen sets a bit, so that a row that comes again (a replay)
 * is told from one that comes late. After a reconnect a client sends again what was not
 * acknowledged, in order: a row that comes again on a new connection is such a replay, one on the
 * same is a fault.
 *
 * Threads: the caller's lock. */
#ifndef SINK_VERIFY_H
#define SINK_VERIFY_H

#include <stdint.h>

#include "core/qwp_error.h"
#include "core/wire/qwp_decode.h"

struct sink_verify;
struct sink_table;

struct sink_verify_counts {
    uint64_t lost;    /* numbers below the highest seen that never came */
    uint64_t doubled; /* rows whose number had come already */
    uint64_t
        repeated; /* of those, rows that did not come above what their connection had brought */
    uint64_t disordered; /* rows that came first behind a higher number */
    uint64_t sequences;
    uint64_t unverified; /* rows without a number: column absent, null, negative or too large */
};

/* `spec` is "column" or "column,key". */
QWP_MUST_USE enum qwp_result sink_verify_create(struct sink_verify **out, const char *spec,
                                                struct qwp_error *err);
void sink_verify_destroy(struct sink_verify *verify);
void sink_verify_block(struct sink_verify *verify, const struct qwp_decoder *decoder,
                       const struct qwp_table_block *block, const struct sink_table *table,
                       int64_t connection);
struct sink_verify_counts sink_verify_count(const struct sink_verify *verify);

#endif

/* sink_mischief: how one connection misbehaves, where faults ask for it.
 *
 * Threads: that of the connection. */
#ifndef SINK_MISCHIEF_H
#define SINK_MISCHIEF_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "tests/sink/sink_faults.h"
#include "tests/sink/sink_http.h"
#include "tests/sink/sink_intake.h"
#include "tests/sink/sink_policy.h"
#include "tests/sink/sink_stream.h"

struct sink_mischief {
    struct sink_faults *faults;
    const struct sink_fault_place *place; /* borrowed: of the connection, as it goes on */
    struct sink_stall stalls[SINK_STALL_READING + 1]; /* by phase */
    struct sink_stall late;
    int64_t answered; /* sequence of the last answer; -1: none yet */
};

void sink_mischief_init(struct sink_mischief *mischief, struct sink_faults *faults,
                        const struct sink_fault_place *place);
/* Before the first byte. QWP_CLOSED: close at once. */
QWP_MUST_USE enum qwp_result sink_mischief_accepted(struct sink_mischief *mischief,
                                                    struct sink_stream *stream,
                                                    struct qwp_error *err);
/* Waits out a stall of this phase. QWP_CLOSED: the client or the server had enough. */
QWP_MUST_USE enum qwp_result sink_mischief_stall(struct sink_mischief *mischief, int64_t phase,
                                                 const struct sink_stream *stream);
/* Whether a stall of this phase is on, without waiting. */
bool sink_mischief_stalls(struct sink_mischief *mischief, int64_t phase);
/* What the policy becomes for this connection. */
void sink_mischief_policy(struct sink_mischief *mischief, struct sink_policy *policy);
/* Spoils the answer to the request; upgrade->status is what it says then, 0: nothing that is an
 * answer. *step_ms: between two bytes of it, else 0. */
void sink_mischief_upgrade(struct sink_mischief *mischief, struct sink_upgrade *upgrade,
                           struct sink_buffer *out, int64_t *step_ms);
/* Whether to close right after the upgrade. */
bool sink_mischief_closes_upgraded(struct sink_mischief *mischief, struct sink_stream *stream);
/* Answers OK up to `sequence`, or as faults have it. false: not now, ask again in
 * SINK_FAULT_STEP_MS. */
bool sink_mischief_answer(struct sink_mischief *mischief, int64_t sequence,
                          struct sink_intake *intake, struct sink_buffer *durable,
                          struct sink_stream *stream, struct sink_buffer *out);

#endif

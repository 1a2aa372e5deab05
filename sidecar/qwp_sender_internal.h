/* qwp_sender_internal: what the files of the sender share. Nobody else includes it.
 *
 *   qwp_sender.c         what the session says, life and duty cycle
 *   qwp_sender_walk.c    endpoints, backoff, outages and what is told about them
 *   qwp_sender_flight.c  messages on their way, catch-up, frames
 *   qwp_sender_generation.c  from one generation of the store to the next
 *   qwp_sender_settle.c  what is acknowledged, or durable, and so done with
 *   qwp_sender_parts.c   frames that go in parts
 *   qwp_sender_answer.c  what is made of refusals: blaming, where to go from there
 *   qwp_sender_aside.c   setting rows aside, and telling of it */
#ifndef QWP_SENDER_INTERNAL_H
#define QWP_SENDER_INTERNAL_H

#include "sidecar/qwp_sender.h"

/* One writer: no read-modify-write needed. */
static inline void qwp_sender_add(_Atomic uint64_t *at, uint64_t n)
{
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

/* ---- qwp_sender_walk.c ---- */

/* To the control file. */
void qwp_sender_show_state(struct qwp_sender *sender, enum qwp_connection_state state);
void qwp_sender_show_error(struct qwp_sender *sender, const char *text);

void qwp_sender_on_timer(struct qwp_op *op, int outcome, bool more);
void qwp_sender_attempt_at(struct qwp_sender *sender, int64_t attempt_ns);
/* After the backoff, which grows. */
void qwp_sender_attempt_later(struct qwp_sender *sender);
/* While waiting, or looking a name up: what is due now. False: nothing. */
bool qwp_sender_walk_on(struct qwp_sender *sender, int64_t now_ns);
/* A connection, or the attempt at one, is over: where to go from here. */
void qwp_sender_lost(struct qwp_sender *sender, const struct qwp_session_down *down);
void qwp_sender_outage_note(struct qwp_sender *sender, const char *why);
void qwp_sender_outage_end(struct qwp_sender *sender);
/* For the log: an upgrade succeeded. */
void qwp_sender_connected(struct qwp_sender *sender);

/* The next endpoint, after the backoff when all were tried. */
void qwp_sender_endpoint_next(struct qwp_sender *sender);
void qwp_sender_resolved(void *owner, const struct qwp_addresses *addresses,
                         const struct qwp_error *err);

/* ---- qwp_sender_flight.c ---- */

struct qwp_in_flight *qwp_sender_in_flight_at(struct qwp_sender *sender, int64_t sequence);
bool qwp_sender_has_room(const struct qwp_sender *sender);
/* Hands a message to the session. False: it takes none now. */
bool qwp_sender_message_send(struct qwp_sender *sender, const unsigned char *message,
                             const struct qwp_in_flight *what);
/* Everything up to `sequence` is settled. Returns the frames that are complete with it, 0 if none.
 */
uint64_t qwp_sender_pop(struct qwp_sender *sender, int64_t sequence);
/* The dictionary that a fresh connection lacks, in messages below the server's limit. */
bool qwp_sender_catch_up(struct qwp_sender *sender);
/* The next frame of the log. False: there is none, or no room. */
bool qwp_sender_frame_send(struct qwp_sender *sender);

/* ---- qwp_sender_generation.c ---- */

/* All of this generation is acknowledged and the next one has begun: ends the connection, or, when
 * there is none, moves on. True: something was done. */
bool qwp_sender_turn(struct qwp_sender *sender, int64_t now_ns);
/* The connection is down. True: as it was to be; the next one is made at once. */
bool qwp_sender_turned(struct qwp_sender *sender);

/* ---- qwp_sender_settle.c ---- */

/* The server has frames below `fsn_end` for good (0: a message that completes none). */
void qwp_sender_settle(struct qwp_sender *sender, uint64_t fsn_end);
/* An OK that completes frames below `fsn_end`: settles them, or waits until they are durable. */
void qwp_sender_settle_ok(struct qwp_sender *sender, uint64_t fsn_end, const unsigned char *tables,
                          size_t tables_bytes, uint16_t table_count);
void qwp_sender_settle_durable(struct qwp_sender *sender, const unsigned char *tables,
                               size_t tables_bytes, uint16_t table_count);
void qwp_sender_on_durable_timer(struct qwp_op *op, int outcome, bool more);

/* ---- qwp_sender_parts.c ---- */

/* The largest message to this server. */
size_t qwp_sender_bytes_max(const struct qwp_sender *sender);
/* Whether the frame cannot go as it stands in the log. */
bool qwp_sender_goes_in_parts(struct qwp_sender *sender, const struct qwp_frame *frame);
/* Decides on the messages of a frame, and sets aside what is not to be offered. False: not now. */
bool qwp_sender_plan_begin(struct qwp_sender *sender, const struct qwp_frame *frame);
/* Sends the next message of the plan. False: not now. */
bool qwp_sender_plan_send(struct qwp_sender *sender);
void qwp_sender_plan_fini(struct qwp_plan *plan);
/* The connection is gone, and with it what was on its way. */
void qwp_sender_plan_drop(struct qwp_sender *sender);
/* Whether everything on its way is to be answered before anything else is sent. */
bool qwp_sender_is_on_hold(struct qwp_sender *sender);

/* ---- qwp_sender_answer.c ---- */

/* Everything up to `sequence` was taken: notes which parts are done. Before the pop. */
void qwp_sender_note_taken(struct qwp_sender *sender, int64_t sequence);
void qwp_sender_refused(struct qwp_sender *sender, int64_t sequence, uint8_t status,
                        const char *text, size_t len);
/* Before what is on its way is forgotten. */
void qwp_sender_judge_down(struct qwp_sender *sender, const struct qwp_session_down *down);
/* Whether the end of the connection was about a refusal; then the next attempt is arranged. */
bool qwp_sender_refused_down(struct qwp_sender *sender);

/* ---- qwp_sender_aside.c ---- */

QWP_MUST_USE enum qwp_result qwp_sender_aside_open(struct qwp_sender *sender,
                                                   struct qwp_error *err);
void qwp_sender_aside_close(struct qwp_sender *sender);
/* Sets aside `row_count` rows of a table of the plan's frame from `first_row` on; with table NULL
 * the whole frame, which cannot be read. `blamed` NULL: a row too large. False: not now. */
bool qwp_sender_set_aside(struct qwp_sender *sender, const struct qwp_split_table *table,
                          struct qwp_blame_table *blamed, uint64_t first_row, uint64_t row_count);
/* Rows of the plan's frame that a sidecar before us set aside: their producers have still to be
 * told. False: not now. */
bool qwp_sender_tell_recalled(struct qwp_sender *sender, struct qwp_name table, uint64_t hash);
/* What a frame that cannot be read is called instead of a table. */
struct qwp_name qwp_sender_opaque_name(void);
/* Rows could not be set aside: tries again in a while, and says so once. */
void qwp_sender_aside_failed(struct qwp_sender *sender, const char *why);
/* It takes rows again. */
void qwp_sender_mended(struct qwp_sender *sender, struct qwp_blame_table *table);
/* Tries again what failed, once it is time. */
void qwp_sender_aside_retry(struct qwp_sender *sender);
/* Every blocked table gets a probe: it may have been mended. */
void qwp_sender_look_again(struct qwp_sender *sender);
/* Tells `status` about tables and folder. */
void qwp_sender_show_tables(struct qwp_sender *sender);

#endif

/* qwp_sender_internal: what the files of the sender share. Nobody else includes it.
 *
 *   qwp_sender.c         what the session says, life and duty cycle
 *   qwp_sender_walk.c    endpoints, backoff, outages and what is told about them
 *   qwp_sender_flight.c  messages on their way, catch-up, frames
 *   qwp_sender_settle.c  what is acknowledged, or durable, and so done with */
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
const struct qwp_endpoint *qwp_sender_endpoint(const struct qwp_sender *sender);
uint64_t qwp_sender_frames_waiting(const struct qwp_sender *sender);

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
void qwp_sender_endpoint_connect(struct qwp_sender *sender);
/* The next address of the endpoint. */
void qwp_sender_address_connect(struct qwp_sender *sender);
void qwp_sender_resolved(void *owner, const struct qwp_addresses *addresses,
                         const struct qwp_error *err);

/* ---- qwp_sender_flight.c ---- */

struct qwp_in_flight *qwp_sender_in_flight_at(struct qwp_sender *sender, int64_t sequence);
bool qwp_sender_has_room(const struct qwp_sender *sender);
/* Hands a message to the session. False: it takes none now. */
bool qwp_sender_message_send(struct qwp_sender *sender, const unsigned char *message, size_t len,
                             uint64_t fsn_end, unsigned char *owned);
/* Everything up to `sequence` is settled. Returns the frames that are complete with it, 0 if none.
 */
uint64_t qwp_sender_pop(struct qwp_sender *sender, int64_t sequence);
/* The dictionary that a fresh connection lacks, in messages below the server's limit. */
bool qwp_sender_catch_up(struct qwp_sender *sender);
/* The next frame of the log. False: there is none, or no room. */
bool qwp_sender_frame_send(struct qwp_sender *sender);

/* ---- qwp_sender_settle.c ---- */

/* The server has frames below `fsn_end` for good (0: a message that completes none). */
void qwp_sender_settle(struct qwp_sender *sender, uint64_t fsn_end);
/* An OK that completes frames below `fsn_end`: settles them, or waits until they are durable. */
void qwp_sender_settle_ok(struct qwp_sender *sender, uint64_t fsn_end, const unsigned char *tables,
                          size_t tables_bytes, uint16_t table_count);
void qwp_sender_settle_durable(struct qwp_sender *sender, const unsigned char *tables,
                               size_t tables_bytes, uint16_t table_count);
void qwp_sender_on_durable_timer(struct qwp_op *op, int outcome, bool more);

#endif

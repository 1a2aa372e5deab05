/* fake_loop: a loop without a kernel and a clock that the test moves, for what a session does with
 * each completion, in any order.
 *
 * It keeps one operation of each kind in flight, which is what a session has. Completions happen in
 * fake_complete() and fake_advance() alone; operations that were called back complete in the next
 * fake_turn(). */
#ifndef QWP_TEST_FAKE_LOOP_H
#define QWP_TEST_FAKE_LOOP_H

#include "transport/qwp_loop_backend.h"

enum { FAKE_KINDS = QWP_REQUEST_SOON };

struct fake_loop {
    struct qwp_loop loop; /* first: see qwp_loop_backend.h */
    struct {
        struct qwp_op *op; /* NULL: none in flight */
        struct qwp_request request;
    } slots[FAKE_KINDS];
};

/* Nothing to free: close what uses it, then forget it. */
void fake_loop_init(struct fake_loop *fake);
/* The clock, for qwp_session_options.clock_ns; shared by all fake loops of the process. */
int64_t fake_clock_ns(void);
void fake_clock_set(int64_t now_ns);

/* In flight and not called back. */
bool fake_has(const struct fake_loop *fake, enum qwp_request_kind kind);
const struct qwp_request *fake_request(const struct fake_loop *fake, enum qwp_request_kind kind);
/* When the timer in flight is due; QWP_NEVER_NS: none is. */
int64_t fake_timer_ns(const struct fake_loop *fake);
/* Completes the operation, then runs what was asked for "soon". */
void fake_complete(struct fake_loop *fake, enum qwp_request_kind kind, int outcome);
/* Bytes for the receive in flight: as many as it takes. Returns how many; 0: none is in flight. */
size_t fake_feed(struct fake_loop *fake, const void *bytes, size_t len);
/* Moves the clock and completes the timer if it is due then. */
void fake_advance(struct fake_loop *fake, int64_t by_ns);
/* Runs "soon" operations and completes those that were called back. */
void fake_turn(struct fake_loop *fake);

#endif

/* qwp_guard: a ring that was cut short must not take down the process that has it mapped, be it the
 * sidecar or a producer.
 *
 * Touching a mapping beyond the end of its file is a SIGBUS. The handler finds the ring in a fixed
 * table, maps zeros over all of it and marks it; whoever used what was read asks for the mark
 * before he believes it. A SIGBUS anywhere else is someone's own bug and goes to the action that
 * was there before.
 *
 * Threads: add and remove on one thread at a time (intake's; a producer's, under the lock of its
 *          library); the handler on any.
 *          sync[guard.range]: a range is whole before its end is not zero. */
#ifndef QWP_GUARD_H
#define QWP_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

#define QWP_GUARD_NONE UINT32_MAX

/* Called by the handler once zeros lie at `at`, the begin of a range: may do what a signal handler
 * may. */
typedef void (*qwp_guard_covered_fn)(void *at);
/* Sets the handler up, with room for `ranges_max`. Open already: nothing happens. `covered`: NULL
 * is fine. */
QWP_MUST_USE enum qwp_result qwp_guard_open(uint32_t ranges_max, qwp_guard_covered_fn covered,
                                            struct qwp_error *err);
/* Gives the signal back. Not open: fine. */
void qwp_guard_close(void);

/* Guards [at, at + bytes), both multiples of the page size. QWP_GUARD_NONE: no room, or not open.
 */
uint32_t qwp_guard_add(void *at, size_t bytes);
/* QWP_GUARD_NONE is fine, here and below. */
void qwp_guard_remove(uint32_t range);
bool qwp_guard_is_hit(uint32_t range);

#endif

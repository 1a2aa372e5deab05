/* qwp_deliver: what commands have in common that deliver a slot and end: they go on until it is
 * delivered, a time, or SIGTERM or SIGINT.
 *
 * Threads: the loop's, one command a process. */
#ifndef QWP_DELIVER_H
#define QWP_DELIVER_H

#include "sidecar/qwp_drainer.h"

/* Signals end qwp_deliver() from now on, waking `loop`; end() gives them back. */
void qwp_deliver_signals_begin(struct qwp_loop *loop);
void qwp_deliver_signals_end(void);
/* Whether one came. */
bool qwp_deliver_is_stopped(void);

/* Until everything is acknowledged, or it is time to end; with `until_refused` also when the sender
 * stops for what the server said. */
void qwp_deliver(struct qwp_drainer *drainer, int64_t deadline_ns, bool until_refused);

#endif

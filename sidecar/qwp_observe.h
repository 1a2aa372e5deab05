/* qwp_observe: what a running sidecar tells over HTTP: /metrics, /healthz, /readyz.
 *
 * Threads:  a thread of its own (qwp_http), which reads the control file's figures and nothing
 *           else, so that it answers whatever disk and network do.
 * Progress: asleep unless asked. Being asked for health wakes the duty cycle once, to see that it
 *           moves; nobody waits for it. */
#ifndef QWP_OBSERVE_H
#define QWP_OBSERVE_H

#include "core/qwp_error.h"
#include "ipc/qwp_rendezvous.h"
#include "sidecar/qwp_orphans.h"
#include "transport/qwp_loop.h"

#define QWP_OBSERVE_ADDRESS "127.0.0.1:9019"

struct qwp_observe;

struct qwp_observe_options {
    const char *address;               /* as of qwp_http_open() */
    const struct qwp_control *control; /* kept */
    const struct qwp_orphans *orphans; /* kept */
    struct qwp_loop *loop;             /* kept: intake's, woken for a sign of life */
};

QWP_MUST_USE enum qwp_result qwp_observe_start(struct qwp_observe **out,
                                               const struct qwp_observe_options *options,
                                               struct qwp_error *err);
uint16_t qwp_observe_port(const struct qwp_observe *observe);
/* Before anything of the options is closed. NULL is fine. */
void qwp_observe_stop(struct qwp_observe *observe);

#endif

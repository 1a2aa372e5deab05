/* qwp_health: whether a sidecar is alive, and whether it does its work: the answers of /healthz and
 * /readyz.
 *
 * Alive says nothing of the server: whoever restarts what is not alive must not do so in an outage,
 * which a restart does not end. Not alive is only a sidecar whose duty cycle has stood still.
 *
 * Not ready: data waits and nothing moves, the server refuses our credentials, the store cannot be
 * written, or the sidecar is closing. */
#ifndef QWP_HEALTH_H
#define QWP_HEALTH_H

#include <stdbool.h>
#include <stdint.h>

#include "sidecar/qwp_snapshot.h"

enum {
    QWP_HEALTH_STUCK_S = 30, /* no acknowledgement for so long while frames wait */
    QWP_HEALTH_DEAD_S = 120, /* no duty cycle for so long after it was asked for */
};

struct qwp_health {
    bool ok;
    char text[3 * QWP_CONTROL_TEXT_BYTES]; /* one line without its end */
};

/* `asked_ns`: when the duty was woken to show itself, the first time since its last cycle that is
 * known; 0: never. Times are monotonic. */
struct qwp_health qwp_health_live(const struct qwp_snapshot *snapshot, int64_t asked_ns,
                                  int64_t now_ns);
struct qwp_health qwp_health_ready(const struct qwp_snapshot *snapshot, int64_t asked_ns,
                                   int64_t now_ns);

#endif

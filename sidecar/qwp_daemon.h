/* qwp_daemon: `qwp-sidecar run`: puts the parts together, runs the duties, sees the shutdown
 * through. */
#ifndef QWP_DAEMON_H
#define QWP_DAEMON_H

#include "core/conf/qwp_conf.h"
#include "sidecar/qwp_options.h"

enum {
    QWP_EXIT_OK = 0,
    QWP_EXIT_FAILED = 1,  /* could not start */
    QWP_EXIT_UNACKED = 3, /* ended with rows that are stored and not acknowledged */
};

/* Returns the exit code. */
int qwp_daemon_run(const struct qwp_options *options, const struct qwp_conf *conf);

#endif

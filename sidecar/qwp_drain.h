/* qwp_drain: `qwp-sidecar drain DIR`: delivers a store-and-forward slot, ours or another client's,
 * and ends. */
#ifndef QWP_DRAIN_H
#define QWP_DRAIN_H

#include "core/conf/qwp_conf.h"
#include "sidecar/qwp_options.h"

/* Exit code: 0 everything is acknowledged, 1 the slot cannot be opened (or the loop, or memory), 3
 * it ended before: by a signal or --timeout. Prints one line, or one JSON object. */
int qwp_drain_run(const struct qwp_options *options, const struct qwp_conf *conf);

#endif

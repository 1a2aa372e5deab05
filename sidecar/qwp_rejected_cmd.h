/* qwp_rejected_cmd: `qwp-sidecar rejected`: rows that a server refused: look at them, put them
 * back, take them elsewhere. */
#ifndef QWP_REJECTED_CMD_H
#define QWP_REJECTED_CMD_H

#include "core/conf/qwp_conf.h"
#include "sidecar/qwp_options.h"

enum { QWP_REJECTED_EXIT_LEFT = 3 };

/* list, show, export. The exit code. */
int qwp_rejected_run(const struct qwp_options *options);
/* put-back, which needs a server. */
int qwp_rejected_put_back_run(const struct qwp_options *options, const struct qwp_conf *conf);

#endif

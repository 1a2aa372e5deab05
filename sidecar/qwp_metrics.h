/* qwp_metrics: a snapshot as OpenMetrics text (version 1.0).
 *
 * Each figure stands in one list with its name, unit and help; names are for good, since dashboards
 * and alerts hold on to them. */
#ifndef QWP_METRICS_H
#define QWP_METRICS_H

#include <stdio.h>

#include "sidecar/qwp_snapshot.h"

#define QWP_METRICS_CONTENT_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

enum { QWP_METRICS_PRODUCERS_MAX = 4096 }; /* those beyond are counted, not listed */

/* What is not in the control file. */
struct qwp_metrics_extra {
    int64_t now_ns; /* monotonic */
    bool ready;
    uint32_t drainers_active, drainers_succeeded, drainers_failed;
    uint64_t log_folded, log_lost;
};

void qwp_metrics_print(const struct qwp_snapshot *snapshot, const struct qwp_metrics_extra *extra,
                       FILE *out);

#endif

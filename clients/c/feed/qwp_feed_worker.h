/* qwp_feed_worker: one producer process: parses the blocks dealt to it and writes their rows into
 * its ring.
 *
 * Everything it has to tell goes through shared memory (counts, the first failure) and, at the end,
 * a report: a text with a line `T rows name` per table and `C type parameter name` per column. */
#ifndef QWP_FEED_WORKER_H
#define QWP_FEED_WORKER_H

#include "clients/c/feed/qwp_feed_options.h"
#include "clients/c/feed/qwp_feed_share.h"
#include "core/qwp_result.h"

struct qwp_feed_worker_options {
    const struct qwp_feed_options *options;
    struct qwp_feed_share *share;
    uint32_t index;
    int definitions_fd; /* QWPB, else -1 */
    int skip_fd;        /* where bad lines go, else -1 */
    int report_fd;
    const struct qwp_feed_csv_layout *csv; /* CSV, else NULL */
};

/* Runs in the child until the input has ended and all is acknowledged. The exit status. */
int qwp_feed_worker_run(const struct qwp_feed_worker_options *options);

/* Notes the first failure of any process; later ones are dropped. */
void qwp_feed_share_fail(struct qwp_feed_share *share, const char *format, ...) QWP_PRINTF(2, 3);

#endif

/* qwp_feed_summary: what a feed did, for people and as JSON, and the line that shows it going on.
 */
#ifndef QWP_FEED_SUMMARY_H
#define QWP_FEED_SUMMARY_H

#include "clients/c/feed/qwp_feed_catalog.h"
#include "clients/c/feed/qwp_feed_options.h"
#include "clients/c/feed/qwp_feed_share.h"

/* Sums over all workers. */
struct qwp_feed_totals {
    uint64_t rows_sent;
    uint64_t rows_acked;
    uint64_t rows_rejected;
    uint64_t rows_bad;
    uint64_t bytes;
    uint64_t full_waits;
    uint32_t acking;      /* workers that wait for acknowledgements */
    bool without_sidecar; /* of some worker's ring */
};

struct qwp_feed_totals qwp_feed_totals(const struct qwp_feed_share *share, uint32_t worker_count);

/* Tables with columns and rows, from the workers' reports. */
struct qwp_feed_tables {
    struct qwp_feed_catalog catalog;
    uint64_t *rows; /* by table index */
};

/* Adds what a worker wrote to its report. */
QWP_MUST_USE enum qwp_result qwp_feed_tables_read(struct qwp_feed_tables *tables, int report_fd,
                                                  struct qwp_error *err);
void qwp_feed_tables_close(struct qwp_feed_tables *tables);

struct qwp_feed_outcome {
    struct qwp_feed_totals totals;
    double seconds;
    bool ok;
    const char *failure; /* "" when there is none */
};

void qwp_feed_summary_json(const struct qwp_feed_options *options,
                           const struct qwp_feed_outcome *outcome,
                           const struct qwp_feed_tables *tables);
void qwp_feed_summary_text(const struct qwp_feed_options *options,
                           const struct qwp_feed_outcome *outcome,
                           const struct qwp_feed_tables *tables);

/* The progress line on standard error. */
struct qwp_feed_progress {
    uint64_t total_bytes; /* of the input, 0: not known */
    bool dry_run;         /* nothing to wait for */
    int64_t last_ns;
    uint64_t last_rows;
    uint64_t last_bytes;
};
void qwp_feed_progress_show(struct qwp_feed_progress *progress,
                            const struct qwp_feed_totals *totals, int64_t now_ns);
void qwp_feed_progress_clear(void);

#endif

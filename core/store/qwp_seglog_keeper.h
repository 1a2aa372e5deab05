/* qwp_seglog_keeper: what the parts of the keeper share: qwp_seglog_keeper.c (spares, trim, the
 * duty cycle) and qwp_seglog_sync.c. All of it is the keeper's. */
#ifndef QWP_SEGLOG_KEEPER_H
#define QWP_SEGLOG_KEEPER_H

#include "core/store/qwp_seglog_impl.h"

static inline void qwp_keeper_count_up(_Atomic uint64_t *counter)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

static inline void qwp_keeper_job_begin(struct qwp_seglog *log, enum qwp_seglog_job job)
{
    log->k.job = job;
    log->k.was_sync = job == QWP_JOB_SYNC;
    log->k.job_step = 0;
    log->k.job_clean = true;
    log->k.op_out = false;
}

static inline void qwp_keeper_job_end(struct qwp_seglog *log)
{
    if (log->k.job == log->k.failed_job && log->k.job_clean) {
        log->k.failed_job = QWP_JOB_NONE;
    }
    log->k.job = QWP_JOB_NONE;
}

/* k.error says why; `job` is what cannot be done. */
static inline void qwp_keeper_job_failed(struct qwp_seglog *log, enum qwp_seglog_job job,
                                         int64_t now_ns)
{
    qwp_keeper_count_up(&log->failures);
    log->k.failed_job = job;
    log->k.job = QWP_JOB_NONE;
    log->k.retry_ns = now_ns + QWP_SEGLOG_RETRY_NS;
}

static inline void qwp_keeper_op_start(struct qwp_seglog *log, struct qwp_slow_op op)
{
    log->k.op = op;
    log->k.op_out = true;
    log->slow.submit(log->slow.owner, &log->k.op);
}

/* ---- qwp_seglog_sync.c ---- */

/* Says how far frames are on disk; after a segment that was in the way has gone. */
void qwp_keeper_synced_claim(struct qwp_seglog *log);
/* Counts and tells it; the job goes on. */
void qwp_keeper_sync_failed(struct qwp_seglog *log, enum qwp_seglog_job job, int error,
                            const char *name);
/* One less of the segments that were sealed at open. */
void qwp_keeper_unsynced_step(struct qwp_seglog *log);
/* As a QWP_JOB_WINDOW: after a sync of the manifest. */
void qwp_keeper_manifest_touch(struct qwp_seglog *log);
/* True: the appends come near the end of the window, and the job is begun. */
bool qwp_keeper_window_begin(struct qwp_seglog *log);
void qwp_keeper_watermark_put(struct qwp_seglog *log);
/* Steps of QWP_JOB_NOTE_ACTIVE, _SYNC and _SYNC_OLD. */
void qwp_keeper_note_step(struct qwp_seglog *log, int64_t now_ns);
void qwp_keeper_sync_step(struct qwp_seglog *log);
void qwp_keeper_old_sync_step(struct qwp_seglog *log);

#endif

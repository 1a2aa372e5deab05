/* The keeper's syncs: headers and the manifest after a rotation, frames with PERIODIC, and pages
 * that a sync has protected made writable again. */
#include <errno.h>
#include <fcntl.h>

#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_keeper.h"

/* Frames below it are on disk: up to the first segment whose sync failed. */
void qwp_keeper_synced_claim(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    uint64_t claim = k->round_count;
    if (k->unsynced != NULL && k->unsynced->base < claim) {
        claim = k->unsynced->base;
    }
    for (struct qwp_segment *segment = k->oldest; segment != NULL;
         segment = qwp_seglog_next_of(segment)) {
        if (segment->suspect && segment->base < claim) {
            claim = segment->base;
            break;
        }
    }
    if (claim > k->synced_count) {
        k->synced_count = claim;
        atomic_store_explicit(&log->synced_fsn_count, claim, memory_order_relaxed);
    }
}

void qwp_keeper_sync_failed(struct qwp_seglog *log, enum qwp_seglog_job job, int error,
                            const char *name)
{
    qwp_keeper_count_up(&log->sync_failures);
    (void)qwp_fail(&log->k.error, QWP_IO, error, "cannot sync %s", name);
    log->k.job_clean = false;
    log->k.failed_job = job;
}

/* Never to be claimed as on disk, however many syncs of it succeed later. */
static void segment_suspect(struct qwp_seglog *log, struct qwp_segment *segment)
{
    if (!segment->suspect) {
        segment->suspect = true;
        atomic_fetch_add_explicit(&log->suspects, 1, memory_order_relaxed);
    }
}

/* One less of those that were sealed at open. */
void qwp_keeper_unsynced_step(struct qwp_seglog *log)
{
    struct qwp_segment *next = qwp_seglog_next_of(log->k.unsynced);
    log->k.unsynced = next == log->k.check.old_segment ? NULL : next;
    qwp_keeper_synced_claim(log);
}

/* A sync protects the manifest's pages, and the writer's next store to them would have the file
 * system do its work; so it is done here. */
void qwp_keeper_manifest_touch(struct qwp_seglog *log)
{
    qwp_keeper_op_start(log, (struct qwp_slow_op){.kind = QWP_SLOW_POPULATE,
                                                  .at = log->manifest.dual.map,
                                                  .len = QWP_DUAL_FILE_BYTES,
                                                  .advice = QWP_POPULATE_WRITE});
}

/* A sync protects the pages again. */
static void window_close(struct qwp_segment *segment)
{
    segment->window_off = atomic_load_explicit(&segment->append_off, memory_order_relaxed);
}

static void fd_close(struct qwp_seglog *log, struct qwp_segment *segment)
{
    if (segment->fd >= 0) {
        log->sys->close(segment->fd);
        segment->fd = -1;
    }
}

enum note_step { NOTE_SEGMENT = 0, NOTE_DIR, NOTE_MANIFEST };

static void note_judge(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    const int error = k->op.error;
    switch (k->job_step) {
    case NOTE_SEGMENT: {
        struct qwp_segment *before = k->noted_to;
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_NOTE_ACTIVE, error, k->job_segment->name);
            segment_suspect(log, k->job_segment);
        }
        k->noted_to = k->job_segment;
        window_close(k->job_segment);
        if (!log->periodic && before != k->noted_to) {
            fd_close(log, before);
        }
        k->note_again = false;
        k->job_step = qwp_seglog_next_of(k->noted_to) != NULL ? NOTE_SEGMENT : NOTE_DIR;
        return;
    }
    case NOTE_DIR:
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_NOTE_ACTIVE, error, "the slot's directory");
            segment_suspect(log, k->noted_to);
        }
        k->job_step = NOTE_MANIFEST;
        return;
    case NOTE_MANIFEST:
        if (error != 0) {
            /* The kernel may call the page clean now, so the record is written anew. */
            (void)qwp_manifest_write(&log->manifest);
            qwp_keeper_sync_failed(log, QWP_JOB_NOTE_ACTIVE, error, QWP_MANIFEST_NAME);
            qwp_keeper_job_failed(log, QWP_JOB_NOTE_ACTIVE, now_ns);
            return;
        }
        qwp_keeper_job_end(log);
        qwp_keeper_job_begin(log, QWP_JOB_WINDOW);
        qwp_keeper_manifest_touch(log);
        return;
    }
}

/* After a rotation: new segments with their names, then the manifest that names them. */
void qwp_keeper_note_step(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (k->op_out) {
        k->op_out = false;
        note_judge(log, now_ns);
        if (k->job != QWP_JOB_NOTE_ACTIVE) {
            return;
        }
    }
    struct qwp_slow_op op = {.kind = QWP_SLOW_SYNC};
    switch (k->job_step) {
    case NOTE_SEGMENT:
        k->job_segment = k->note_again ? k->noted_to : qwp_seglog_next_of(k->noted_to);
        op.fd = k->job_segment->fd;
        break;
    case NOTE_DIR:
        op.kind = QWP_SLOW_SYNC_DIR;
        op.fd = log->place.dir_fd;
        break;
    default:
        op.fd = log->manifest.dual.fd;
        break;
    }
    qwp_keeper_op_start(log, op);
}

/* Goes on from where it was found last: however many wait, each is passed once. */
static struct qwp_segment *active_find(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    for (struct qwp_segment *next; (next = qwp_seglog_next_of(k->active)) != NULL;) {
        k->active = next;
    }
    return k->active;
}

/* True: the appends come near the end of the window. */
bool qwp_keeper_window_begin(struct qwp_seglog *log)
{
    struct qwp_segment *active = active_find(log);
    const uint64_t at = atomic_load_explicit(&active->append_off, memory_order_relaxed);
    if (active->window_off == active->bytes || at + QWP_WINDOW_BYTES / 2 < active->window_off) {
        return false;
    }
    qwp_keeper_job_begin(log, QWP_JOB_WINDOW);
    qwp_keeper_op_start(
        log, qwp_segment_window(active, at > active->window_off ? at : active->window_off));
    return true;
}

void qwp_keeper_watermark_put(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    const uint64_t acked = qwp_seglog_acked_count(log);
    if (acked == k->watermark_count) {
        return;
    }
    qwp_dual_put(&k->watermark, (int64_t)acked - 1, 0);
    k->watermark_count = acked;
    QWP_CRASH_POINT("keeper.watermark");
}

enum sync_step { SYNC_DICT = 0, SYNC_SEGMENTS, SYNC_MANIFEST, SYNC_WATERMARK, SYNC_END };

/* A failed sync is never taken for done later: the level is not claimed for that segment. */
static void sync_judge(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    const int error = k->op.error;
    switch (k->job_step) {
    case SYNC_DICT:
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_SYNC, error, QWP_DICT_FILE_NAME);
            k->dict_synced--; /* due again */
        }
        k->job_step = SYNC_SEGMENTS;
        return;
    case SYNC_SEGMENTS: {
        struct qwp_segment *segment = k->job_segment;
        struct qwp_segment *next = qwp_seglog_next_of(segment);
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_SYNC, error, segment->name);
            segment_suspect(log, segment);
        }
        window_close(segment);
        if (next == NULL || next->base >= k->job_count) {
            k->job_step = SYNC_MANIFEST;
        } else {
            k->synced_to = k->job_segment = next;
            fd_close(log, segment);
        }
        return;
    }
    case SYNC_MANIFEST:
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_SYNC, error, QWP_MANIFEST_NAME);
            (void)qwp_manifest_write(&log->manifest);
        }
        k->job_step = SYNC_WATERMARK;
        return;
    case SYNC_WATERMARK:
        if (error != 0) {
            qwp_keeper_sync_failed(log, QWP_JOB_SYNC, error, QWP_WATERMARK_NAME);
            k->watermark_count = UINT64_MAX; /* written again */
        }
        k->job_step = SYNC_END;
        return;
    }
}

void qwp_keeper_sync_step(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (k->op_out) {
        k->op_out = false;
        sync_judge(log);
    }
    struct qwp_slow_op op = {.kind = QWP_SLOW_SYNC};
    switch (k->job_step) {
    case SYNC_DICT: {
        const uint32_t appends =
            atomic_load_explicit(&log->w.dict_file.appends, memory_order_relaxed);
        k->job_segment = k->synced_to;
        if (appends == k->dict_synced) {
            k->job_step = SYNC_SEGMENTS;
            return;
        }
        k->dict_synced = appends;
        op.fd = log->w.dict_file.fd;
        break;
    }
    case SYNC_SEGMENTS:
        op.fd = k->job_segment->fd;
        break;
    case SYNC_MANIFEST:
        op.fd = log->manifest.dual.fd;
        break;
    case SYNC_WATERMARK:
        qwp_keeper_watermark_put(log);
        op.fd = k->watermark.fd;
        break;
    default:
        k->round_count = k->job_count;
        qwp_keeper_synced_claim(log);
        qwp_keeper_job_end(log);
        qwp_keeper_job_begin(log, QWP_JOB_WINDOW);
        k->was_sync = true;
        qwp_keeper_manifest_touch(log);
        return;
    }
    qwp_keeper_op_start(log, op);
}

/* Who wrote it may not have come to sync it. By name: descriptors are few. */
static int old_sync(const struct qwp_sys *sys, void *owner)
{
    const struct qwp_seglog *log = owner;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, log->k.unsynced->name,
                                O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    const int rc = fd < 0 ? -1 : qwp_sys_sync(sys, fd);
    const int error = errno;
    if (fd >= 0) {
        sys->close(fd);
    }
    errno = error;
    return rc;
}

static void old_judge(struct qwp_seglog *log, int error)
{
    struct qwp_segment *segment = log->k.unsynced;
    if (error != 0) {
        qwp_keeper_sync_failed(log, QWP_JOB_SYNC_OLD, error, segment->name);
        segment_suspect(log, segment);
    }
    qwp_keeper_unsynced_step(log);
}

/* With PERIODIC, after open: those that were sealed then, one at a time. */
void qwp_keeper_old_sync_step(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (k->job_step == 0 && !k->unsynced->aside) {
        qwp_keeper_op_start(
            log, (struct qwp_slow_op){.kind = QWP_SLOW_CALL, .call = old_sync, .at = log});
        k->job_step = 1;
        return;
    }
    old_judge(log, k->job_step == 0 ? 0 : k->op.error);
    qwp_keeper_job_end(log);
}

/* Not by the state machine: here and now, whatever it is doing. */
enum qwp_result qwp_seglog_flush(struct qwp_seglog *log, struct qwp_error *err)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (!log->periodic) {
        qwp_keeper_watermark_put(log);
        return QWP_OK;
    }
    const uint64_t count = qwp_seglog_published_count(log);
    bool failed = qwp_sys_sync(log->sys, log->w.dict_file.fd) != 0;
    while (k->unsynced != NULL) {
        const bool is_failed = !k->unsynced->aside && old_sync(log->sys, log) != 0;
        failed |= is_failed;
        old_judge(log, is_failed ? errno : 0);
    }
    for (struct qwp_segment *segment = k->synced_to; segment != NULL;
         segment = qwp_seglog_next_of(segment)) {
        if (qwp_sys_sync(log->sys, segment->fd) != 0) {
            segment_suspect(log, segment);
            failed = true;
        }
    }
    failed = qwp_sys_sync(log->sys, log->manifest.dual.fd) != 0 || failed;
    const int error = errno;
    qwp_keeper_watermark_put(log);
    failed = qwp_sys_sync(log->sys, k->watermark.fd) != 0 || failed;
    if (failed) {
        qwp_keeper_count_up(&log->sync_failures);
        return qwp_fail(err, QWP_IO, error, "store %s: not all frames could be synced to disk",
                        log->dir);
    }
    k->round_count = count;
    qwp_keeper_synced_claim(log);
    return QWP_OK;
}

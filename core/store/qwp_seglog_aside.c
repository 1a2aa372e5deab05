/* Setting aside what is damaged: files, at open, and what the check of frames has found, while the
 * log is in use (see qwp_seglog_check.c). */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "core/qwp_assert.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_impl.h"

enum { ASIDE_TRIES = 1000 };

struct aside_name {
    char text[QWP_STORE_NAME_BYTES + 32];
};

/* "<name>.corrupt", or with a number before it when that is taken: nothing is overwritten. */
static enum qwp_result aside_name_find(struct qwp_seglog *log, const char *name,
                                       struct aside_name *to, struct qwp_error *err)
{
    for (int i = 0; i < ASIDE_TRIES; i++) {
        if (i == 0) {
            snprintf(to->text, sizeof to->text, "%s%s", name, QWP_CORRUPT_SUFFIX);
        } else {
            snprintf(to->text, sizeof to->text, "%s.%d%s", name, i, QWP_CORRUPT_SUFFIX);
        }
        const int fd = qwp_sys_open(log->sys, log->place.dir_fd, to->text,
                                    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
        if (fd < 0 && errno == ENOENT) {
            return QWP_OK;
        }
        if (fd >= 0) {
            log->sys->close(fd);
        }
    }
    return qwp_fail(err, QWP_IO, 0, "cannot set %s/%s aside: too many files %s*%s; look at them",
                    log->dir, name, name, QWP_CORRUPT_SUFFIX);
}

enum qwp_result qwp_segment_rename_aside(struct qwp_seglog *log, const char *name,
                                         struct qwp_error *err)
{
    struct aside_name to;
    const enum qwp_result result = aside_name_find(log, name, &to, err);
    if (result != QWP_OK) {
        return result;
    }
    if (log->sys->renameat(log->place.dir_fd, name, log->place.dir_fd, to.text) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot set %s/%s aside as %s", log->dir, name,
                        to.text);
    }
    QWP_CRASH_POINT("aside.renamed");
    return QWP_OK;
}

enum qwp_result qwp_segment_copy_aside(struct qwp_seglog *log, const struct qwp_segment *segment,
                                       uint64_t bytes, struct qwp_error *err)
{
    struct aside_name to;
    const enum qwp_result result = aside_name_find(log, segment->name, &to, err);
    if (result != QWP_OK) {
        return result;
    }
    const int fd = qwp_sys_open(log->sys, log->place.dir_fd, to.text,
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0 || qwp_sys_write_full(log->sys, fd, segment->map, bytes, 0) != 0 ||
        (log->place.durable && qwp_sys_sync(log->sys, fd) != 0)) {
        const int error = errno;
        if (fd >= 0) {
            log->sys->close(fd);
            log->sys->unlinkat(log->place.dir_fd, to.text, 0);
        }
        return qwp_fail(err, QWP_IO, error,
                        "cannot keep a copy of the damaged %s/%s as %s, and nothing is thrown away "
                        "without one; make room there",
                        log->dir, segment->name, to.text);
    }
    log->sys->close(fd);
    QWP_CRASH_POINT("aside.copied");
    return QWP_OK;
}

/* ---- while the log is in use ---- */

/* Files first, then the watermark (resume() moves what it says), then the manifest's head (a trim
 * like any other): a crash in between finds the damage again, never a segment that could be taken
 * for an acknowledged one. */
enum aside_step { ASIDE_COPY = 0, ASIDE_COPIED, ASIDE_RENAME, ASIDE_DIR, ASIDE_END };

bool qwp_seglog_aside_due(const struct qwp_seglog *log)
{
    const struct qwp_seglog_check *check = &log->k.check;
    return check->is_damaged && !atomic_load_explicit(&log->resumable, memory_order_relaxed) &&
           qwp_seglog_acked_count(log) ==
               atomic_load_explicit(&log->checked_count, memory_order_relaxed);
}

/* On the helper's thread, if there is one: some megabytes. */
static int copy_run(const struct qwp_sys *sys, void *owner)
{
    struct qwp_seglog *log = owner;
    const struct qwp_seglog_check *check = &log->k.check;
    struct qwp_error err = {0};
    (void)sys;
    if (qwp_segment_copy_aside(log, check->old_segment, check->old_off, &err) == QWP_OK) {
        return 0;
    }
    errno = err.sys_errno != 0 ? err.sys_errno : EEXIST;
    return -1;
}

static enum qwp_result rename_next(struct qwp_seglog *log, struct qwp_error *err)
{
    struct qwp_seglog_check *check = &log->k.check;
    struct qwp_segment *segment = check->aside_at;
    if (segment == check->old_segment) {
        log->k.job_step = ASIDE_DIR;
        return QWP_AGAIN;
    }
    const enum qwp_result result = qwp_segment_rename_aside(log, segment->name, err);
    if (result != QWP_OK) {
        return result;
    }
    segment->aside = true;
    check->aside_at = atomic_load_explicit(&segment->next, memory_order_relaxed);
    check->damage.files_set_aside++;
    return QWP_AGAIN;
}

static enum qwp_result copy_begin(struct qwp_seglog *log, struct qwp_slow_op *op, bool *is_out)
{
    const struct qwp_seglog_check *check = &log->k.check;
    if (check->is_copied || check->old_fsn == check->old_segment->base) {
        log->k.job_step = ASIDE_RENAME;
        return QWP_AGAIN;
    }
    *op = (struct qwp_slow_op){.kind = QWP_SLOW_CALL, .call = copy_run, .at = log};
    *is_out = true;
    log->k.job_step = ASIDE_COPIED;
    return QWP_AGAIN;
}

static enum qwp_result copy_judge(struct qwp_seglog *log, struct qwp_error *err)
{
    struct qwp_seglog_check *check = &log->k.check;
    if (log->k.op.error != 0) {
        return qwp_fail(err, QWP_IO, log->k.op.error,
                        "cannot keep a copy of %s/%s, which lies behind damaged frames, and "
                        "nothing is thrown away without one; make room there",
                        log->dir, check->old_segment->name);
    }
    check->is_copied = true;
    check->damage.files_set_aside++;
    log->k.job_step = ASIDE_RENAME;
    return QWP_AGAIN;
}

enum qwp_result qwp_seglog_aside_step(struct qwp_seglog *log, struct qwp_slow_op *op, bool *is_out,
                                      struct qwp_error *err)
{
    struct qwp_seglog_check *check = &log->k.check;
    *is_out = false;
    switch (log->k.job_step) {
    case ASIDE_COPY:
        return copy_begin(log, op, is_out);
    case ASIDE_COPIED:
        return copy_judge(log, err);
    case ASIDE_RENAME:
        return rename_next(log, err);
    case ASIDE_DIR:
        log->k.job_step = ASIDE_END;
        if (log->place.durable) {
            *op = (struct qwp_slow_op){.kind = QWP_SLOW_SYNC_DIR, .fd = log->place.dir_fd};
            *is_out = true;
        } else {
            log->k.op.error = 0;
        }
        return QWP_AGAIN;
    default:
        break;
    }
    if (log->k.op.error != 0) {
        return qwp_fail(err, QWP_IO, log->k.op.error, "cannot sync %s", log->dir);
    }
    check->damage.is_settled = true;
    check->has_news = true;
    /* sync[seglog.resumable] release: pairs with the acquire in qwp_seglog_resume(). */
    atomic_store_explicit(&log->resumable, true, memory_order_release);
    QWP_CRASH_POINT("aside.resumable");
    return QWP_OK;
}

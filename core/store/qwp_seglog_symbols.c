/* A log whose dictionary was lost, or cut, with more waiting than open can read for its symbols.
 *
 * Frames bring their symbols themselves, in order of id, so the check of frames adds them as it
 * goes (see frame_judge() there): a frame that is given out has all that it needs. A connection
 * that registers those that are known when it begins, and then sends on, registers the others by
 * the frames themselves. What cannot be done is to append: ids of the missing ones are taken, and
 * which texts have them is not known. So there is no writer (the store goes on in another
 * generation), and what is the writer's is the check's operation's here.
 *
 * The file gets the symbols too, or those of acknowledged frames would be gone with their segments.
 * Until it has them, the segments stay: where the file cannot be written (a full disk, of all
 * times), sending goes on, and a start finds all that it needs in frames once more. */
#include <errno.h>

#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_impl.h"

enum { SAVE_SEGMENTS = 4 };

static enum qwp_result save(struct qwp_seglog *log, const struct qwp_sys *sys)
{
    struct qwp_dict_file *file = &log->w.dict_file;
    const uint64_t end_off = file->end_off;
    const uint32_t saved_count = file->saved_count;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_dict_file_append(file, sys, log->dict, &err);
    if (result != QWP_OK) {
        errno = result == QWP_NOMEM ? ENOMEM : err.sys_errno;
        return result;
    }
    if (log->place.durable && file->saved_count != saved_count &&
        qwp_sys_sync(sys, file->fd) != 0) {
        file->end_off = end_off; /* the kernel may call it clean now: written again */
        file->saved_count = saved_count;
        return QWP_IO;
    }
    QWP_CRASH_POINT("symbols.saved");
    return QWP_OK;
}

/* Not after each piece: a sync takes as long as a megabyte. */
static bool is_due(const struct qwp_seglog *log, uint64_t bytes)
{
    const struct qwp_seglog_check *check = &log->k.check;
    return check->unsaved != NULL &&
           (check->segment == NULL || check->save_error != 0 ||
            bytes - check->saved_bytes >= SAVE_SEGMENTS * log->segment_bytes);
}

void qwp_seglog_symbols_save(struct qwp_seglog *log, const struct qwp_sys *sys)
{
    struct qwp_seglog_check *check = &log->k.check;
    const uint64_t bytes = check->bytes + check->scan.payload_bytes;
    if (!is_due(log, bytes)) {
        return;
    }
    check->save_error = save(log, sys) == QWP_OK ? 0 : errno;
    if (check->save_error == 0) {
        check->unsaved = check->segment; /* part of its frames may not have been followed yet */
        check->saved_bytes = bytes;
    }
}

void qwp_seglog_symbols_judge(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_check *check = &log->k.check;
    check->needed = check->unsaved;
    if (check->save_error != 0) {
        (void)qwp_fail(&log->k.error, QWP_IO, check->save_error,
                       "cannot write the symbols of frames to %s/%s; segments are kept until then",
                       log->dir, QWP_DICT_FILE_NAME);
        log->k.failed_job = QWP_JOB_CHECK;
        atomic_fetch_add_explicit(&log->failures, 1, memory_order_relaxed);
        check->retry_ns = now_ns + QWP_SEGLOG_RETRY_NS;
    }
}

struct qwp_segment *qwp_seglog_trim_target(const struct qwp_seglog *log)
{
    /* sync[seglog.head] acquire: pairs with the release in qwp_seglog_acked_show(). */
    struct qwp_segment *head = atomic_load_explicit(&log->head, memory_order_acquire);
    struct qwp_segment *needed = log->k.check.needed;
    if (needed == NULL || !qwp_seglog_waits(log)) { /* then it may be gone */
        return head;
    }
    return needed->base < head->base ? needed : head;
}

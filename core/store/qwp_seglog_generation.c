/* What a log does because it is one of several: begin at a number, let go of its dictionary, be
 * left behind. See qwp_generations.h. */
#include <errno.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_impl.h"

void qwp_seglog_discard(struct qwp_seglog *log)
{
    log->periodic = log->place.durable = false;
    qwp_seglog_close(log);
}

enum qwp_result qwp_seglog_hollow(struct qwp_seglog *log, int *lock_fd, struct qwp_error *err)
{
    const struct qwp_sys *sys = log->sys;
    const uint64_t end = qwp_seglog_published_count(log);
    QWP_ASSERT(qwp_seglog_acked_count(log) == end && !qwp_seglog_op_under_way(log));
    log->manifest.head = log->manifest.active = (int64_t)end;
    (void)qwp_manifest_write(&log->manifest);
    if (log->place.durable && qwp_sys_sync(sys, log->manifest.dual.fd) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync %s/%s", log->dir, QWP_MANIFEST_NAME);
    }
    QWP_CRASH_POINT("generations.hollow");
    qwp_seglog_spares_remove(log);
    while (log->k.oldest != NULL) {
        struct qwp_segment *segment = log->k.oldest;
        log->k.oldest = segment->next;
        if (!segment->aside) {
            sys->unlinkat(log->place.dir_fd, segment->name, 0);
        }
        qwp_segment_free(segment, sys);
        QWP_CRASH_POINT("generations.hollowing");
    }
    sys->unlinkat(log->place.dir_fd, QWP_DICT_FILE_NAME, 0);
    *lock_fd = log->lock_fd;
    log->lock_fd = -1;
    qwp_seglog_close(log);
    return QWP_OK;
}

bool qwp_seglog_is_pristine(const struct qwp_seglog *log)
{
    return log->k.oldest == log->w.active && log->w.room == 0 &&
           log->w.active->end_off == QWP_SEGMENT_HEADER_BYTES && qwp_dict_count(log->dict) == 0;
}

void qwp_seglog_begin_at(struct qwp_seglog *log, uint64_t fsn)
{
    QWP_ASSERT(qwp_seglog_is_pristine(log) && fsn >= log->w.next_fsn);
    struct qwp_segment *active = log->w.active;
    active->base = fsn;
    qwp_store_u64(active->map + QWP_SEGMENT_BASE_OFF, fsn);
    /* Until the manifest says so too, it is a spare of a slot without frames. */
    QWP_CRASH_POINT("generations.based");
    log->manifest.head = log->manifest.active = (int64_t)fsn;
    (void)qwp_manifest_write(&log->manifest);
    log->w.next_fsn = fsn;
    log->published_count = log->acked_count = fsn;
    log->r.acked = (struct qwp_seglog_cursor){fsn, active, QWP_SEGMENT_HEADER_BYTES};
    log->k.synced_count = log->k.round_count = log->periodic ? fsn : 0;
    log->synced_fsn_count = log->k.synced_count;
    log->k.note_again = true;
}

void qwp_seglog_dict_release(struct qwp_seglog *log)
{
    QWP_ASSERT(qwp_seglog_is_quiet(log)); /* a check reads in it */
    qwp_dict_destroy(log->dict);
    log->dict = NULL;
}

enum qwp_result qwp_seglog_dict_load(struct qwp_seglog *log, struct qwp_error *err)
{
    struct qwp_dict *dict = NULL;
    uint64_t trusted;
    uint64_t size;
    enum qwp_result result = qwp_dict_create(&dict, log->symbols_max, log->symbol_bytes_max, err);
    if (result == QWP_OK) {
        result = qwp_dict_file_load(log->sys, log->place.dir_fd, dict, &trusted, &size, err);
    }
    if (result == QWP_OK && qwp_dict_count(dict) < log->w.dict_file.saved_count) {
        result = qwp_fail(err, QWP_IO, 0, "%s has %u symbols of the %u that were written",
                          QWP_DICT_FILE_NAME, qwp_dict_count(dict), log->w.dict_file.saved_count);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "slot %s", log->dir);
        qwp_dict_destroy(dict);
        return result;
    }
    log->dict = dict;
    return QWP_OK;
}

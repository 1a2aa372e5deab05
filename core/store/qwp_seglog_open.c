/* Opening and closing a slot; what lies between lock and use is in qwp_seglog_recover.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/store/qwp_seglog_impl.h"

enum { SLOW_STEP_BYTES = 64 * 1024, DAMAGED_SLOTS_MAX = 1000, PAGE_BYTES = 4096 };

/* --- directory and lock --- */

static void dir_remember(struct qwp_seglog *log, const char *dir)
{
    const size_t len = strlen(dir);
    const size_t skip = len < sizeof log->dir ? 0 : len - sizeof log->dir + 1;
    snprintf(log->dir, sizeof log->dir, "%s", dir + skip);
}

static enum qwp_result slot_lock(struct qwp_seglog *log, struct qwp_error *err)
{
    const struct qwp_sys *sys = log->sys;
    const int dir_fd = log->place.dir_fd;
    log->lock_fd =
        qwp_sys_open(sys, dir_fd, QWP_LOCK_NAME, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (log->lock_fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make %s/%s", log->dir, QWP_LOCK_NAME);
    }
    int rc;
    do {
        rc = sys->flock(log->lock_fd, LOCK_EX | LOCK_NB);
    } while (rc != 0 && errno == EINTR);
    char pid[24] = {0};
    if (rc != 0 && errno == EWOULDBLOCK) {
        const int fd =
            qwp_sys_open(sys, dir_fd, QWP_LOCK_PID_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
        if (fd >= 0) {
            const ssize_t n = qwp_sys_read_full(sys, fd, pid, sizeof pid - 1, 0);
            pid[n < 0 ? 0 : n] = '\0';
            pid[strspn(pid, "0123456789")] = '\0';
            sys->close(fd);
        }
        return qwp_fail(err, QWP_AGAIN, 0,
                        "slot %s is in use by process %s; stop it, or choose another sender_id",
                        log->dir, pid[0] == '\0' ? "(unknown)" : pid);
    }
    if (rc != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot lock %s/%s", log->dir, QWP_LOCK_NAME);
    }
    /* For messages only: a failure here is nobody's loss. */
    const int fd = qwp_sys_open(sys, dir_fd, QWP_LOCK_PID_NAME,
                                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        const int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
        (void)qwp_sys_write_full(sys, fd, pid, (size_t)n, 0);
        sys->close(fd);
    }
    return QWP_OK;
}

static enum qwp_result slot_enter(struct qwp_seglog *log, const char *dir, struct qwp_error *err)
{
    const struct qwp_sys *sys = log->sys;
    if (sys->mkdirat(AT_FDCWD, dir, 0700) != 0 && errno != EEXIST) {
        return qwp_fail(err, QWP_IO, errno, "cannot make the slot directory %s", dir);
    }
    log->place.dir_fd = qwp_sys_open(sys, AT_FDCWD, dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (log->place.dir_fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open the slot directory %s", dir);
    }
    return slot_lock(log, err);
}

/* --- open and close --- */

static enum qwp_result options_check(const struct qwp_seglog_options *options,
                                     struct qwp_error *err)
{
    if (options->segment_bytes < QWP_SEGMENT_BYTES_MIN ||
        options->segment_bytes > QWP_SEGMENT_BYTES_MAX) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "a segment size of %llu bytes is not between %d and %d",
                        (unsigned long long)options->segment_bytes, QWP_SEGMENT_BYTES_MIN,
                        QWP_SEGMENT_BYTES_MAX);
    }
    if (options->budget == NULL && options->total_bytes_max < options->segment_bytes) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "the store's bound of %llu bytes is less than one segment (%llu)",
                        (unsigned long long)options->total_bytes_max,
                        (unsigned long long)options->segment_bytes);
    }
    return QWP_OK;
}

uint64_t qwp_store_budget_bytes(uint64_t total_bytes_max, uint64_t segment_bytes)
{
    segment_bytes = qwp_round_up(segment_bytes, PAGE_BYTES);
    if (total_bytes_max < segment_bytes) {
        return segment_bytes; /* by rounding */
    }
    return total_bytes_max < QWP_SEGMENTS_MAX * segment_bytes ? total_bytes_max
                                                              : QWP_SEGMENTS_MAX * segment_bytes;
}

static void submit_at_once(void *owner, struct qwp_slow_op *op)
{
    qwp_slow_run(owner, op);
}

static void options_take(struct qwp_seglog *log, const struct qwp_seglog_options *options)
{
    log->sys = options->sys != NULL ? options->sys : &qwp_sys_real;
    log->slow = options->slow != NULL ? *options->slow
                                      : (struct qwp_slow){(void *)(uintptr_t)log->sys,
                                                          submit_at_once, SLOW_STEP_BYTES};
    log->reading = options->reading != NULL ? *options->reading : log->slow;
    log->place = (struct qwp_make_place){.sys = log->sys,
                                         .dir_fd = -1,
                                         .durable = options->payload_crc,
                                         .populate = true,
                                         .step_bytes = log->slow.step_bytes};
    log->lock_fd = -1;
    log->w.dict_file.fd = -1;
    log->segment_flags =
        QWP_SEGMENT_MANIFESTED | (options->payload_crc ? 0 : (uint8_t)QWP_SEGMENT_LIGHT);
    log->segment_bytes = qwp_round_up(options->segment_bytes, PAGE_BYTES);
    log->symbols_max = options->symbols_max;
    log->may_lack_symbols = options->may_lack_symbols;
    log->symbol_bytes_max = options->symbol_bytes_max;
    log->own_budget.bytes_max =
        qwp_store_budget_bytes(options->total_bytes_max, options->segment_bytes);
    log->budget = options->budget != NULL ? options->budget : &log->own_budget;
    log->periodic = options->durability == QWP_DURABILITY_PERIODIC && options->payload_crc;
    log->sync_interval_ns = options->sync_interval_ns;
    dir_remember(log, options->name != NULL ? options->name : options->dir);
}

/* So that scans for orphans skip it. */
static void reason_leave(struct qwp_seglog *log, const struct qwp_error *err)
{
    const int fd = qwp_sys_open(log->sys, log->place.dir_fd, QWP_FAILED_NAME,
                                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)qwp_sys_write_full(log->sys, fd, err->text, strlen(err->text), 0);
        log->sys->close(fd);
    }
}

/* "<dir>.damaged-<n>". It is locked still, and the lock goes with it. */
static enum qwp_result slot_move_aside(struct qwp_seglog *log, const char *dir, char *to,
                                       size_t room, struct qwp_error *err)
{
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') {
        len--;
    }
    for (int n = 1; n <= DAMAGED_SLOTS_MAX; n++) {
        const int wanted = snprintf(to, room, "%.*s.damaged-%d", (int)len, dir, n);
        if (wanted < 0 || (size_t)wanted >= room) {
            break;
        }
        if (log->sys->renameat(AT_FDCWD, dir, AT_FDCWD, to) == 0) {
            return QWP_OK;
        }
        if (errno != EEXIST && errno != ENOTEMPTY) {
            break;
        }
    }
    to[0] = '\0';
    qwp_error_prefix(err, "cannot move the slot away (%s), so move %s away yourself to start anew",
                     strerror(errno), log->dir);
    return QWP_CORRUPT;
}

/* *aside: where the slot went because its frames cannot be replayed; "" else. */
static enum qwp_result open_once(struct qwp_seglog **out, const struct qwp_seglog_options *options,
                                 char *aside, size_t aside_room, struct qwp_error *err)
{
    void *memory;
    if (posix_memalign(&memory, alignof(struct qwp_seglog), sizeof(struct qwp_seglog)) != 0) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a segment log");
    }
    memset(memory, 0, sizeof(struct qwp_seglog));
    struct qwp_seglog *log = memory;
    options_take(log, options);
    enum qwp_result result =
        qwp_dict_create(&log->dict, options->symbols_max, options->symbol_bytes_max, err);
    if (result == QWP_OK) {
        result = slot_enter(log, options->dir, err);
    }
    if (result == QWP_OK) {
        result = qwp_seglog_recover(log, err);
    }
    if (result != QWP_OK) {
        if (log->recovery.unreplayable) {
            reason_leave(log, err);
            result = options->in_place ? QWP_CORRUPT
                                       : slot_move_aside(log, options->dir, aside, aside_room, err);
        }
        qwp_seglog_close(log);
        return result;
    }
    *out = log;
    return QWP_OK;
}

enum qwp_result qwp_seglog_open(struct qwp_seglog **out, const struct qwp_seglog_options *options,
                                struct qwp_error *err)
{
    enum qwp_result result = options_check(options, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_error own;
    err = err != NULL ? err : &own;
    struct qwp_seglog *log = NULL;
    char aside[QWP_ERROR_TEXT_BYTES] = "";
    result = open_once(&log, options, aside, sizeof aside, err);
    if (result == QWP_OK && log == NULL) {
        const struct qwp_error why = *err;
        result = open_once(&log, options, aside, sizeof aside, err);
        if (result == QWP_OK && log == NULL) {
            return qwp_fail(err, QWP_CORRUPT, 0, "slot %s: damaged again as soon as it was made",
                            options->dir);
        }
        if (result == QWP_OK) {
            snprintf(log->recovery.damage, sizeof log->recovery.damage, "%s", why.text);
            snprintf(log->recovery.slot_set_aside, sizeof log->recovery.slot_set_aside, "%s",
                     aside);
            log->recovery.damage_count = 1;
        }
    }
    if (result != QWP_OK) {
        return result;
    }
    bool more = true;
    int64_t next_ns;
    log->k.opening = true;
    while (more && options->slow == NULL) { /* the first spare */
        qwp_seglog_maintain(log, log->sys->monotonic_ns(), &more, &next_ns);
    }
    log->k.opening = false;
    *out = log;
    return QWP_OK;
}

void qwp_seglog_spares_remove(struct qwp_seglog *log)
{
    for (uint32_t i = log->spare_head; i != log->spare_tail; i++) {
        struct qwp_segment *segment = log->spares[i % QWP_SEGLOG_SPARES_MAX];
        log->sys->unlinkat(log->place.dir_fd, segment->name, 0);
        qwp_segment_free(segment, log->sys);
    }
    if (log->k.job == QWP_JOB_MAKE) {
        (void)!qwp_make_undo(&log->k.make, &log->place, &log->k.leftover);
    }
}

/* Segments that are not needed, when the manifest can say so for certain. */
static void acknowledged_remove(struct qwp_seglog *log)
{
    struct qwp_segment *head = qwp_seglog_trim_target(log);
    if (head == NULL || log->manifest.dual.map == NULL || log->k.oldest == head) {
        return;
    }
    bool gone = qwp_manifest_set_head(&log->manifest, head->base);
    if (log->place.durable) {
        gone = gone && qwp_sys_sync(log->sys, log->manifest.dual.fd) == 0;
    }
    while (gone && log->k.oldest != head) {
        struct qwp_segment *segment = log->k.oldest;
        log->k.oldest = segment->next;
        if (!segment->aside) {
            log->sys->unlinkat(log->place.dir_fd, segment->name, 0);
        }
        qwp_segment_free(segment, log->sys);
    }
}

void qwp_seglog_close(struct qwp_seglog *log)
{
    if (log == NULL) {
        return;
    }
    QWP_ASSERT(!qwp_seglog_op_under_way(log));
    const struct qwp_sys *sys = log->sys;
    if (log->k.oldest != NULL) {
        qwp_seglog_abandon(log, log->w.room);
        if (qwp_seglog_flush(log, NULL) != QWP_OK) {
            log->sync_failures++; /* too late for anyone to hear it; the frames are sent again */
        }
        qwp_seglog_spares_remove(log);
        acknowledged_remove(log);
        while (log->k.oldest != NULL) {
            struct qwp_segment *segment = log->k.oldest;
            log->k.oldest = segment->next;
            qwp_segment_free(segment, sys);
        }
    }
    atomic_fetch_sub_explicit(&log->budget->charged, log->charged, memory_order_relaxed);
    qwp_dict_file_close(&log->w.dict_file, sys);
    qwp_dual_close(&log->k.watermark, sys);
    qwp_dual_close(&log->manifest.dual, sys);
    qwp_dict_destroy(log->dict);
    if (log->lock_fd >= 0) {
        sys->close(log->lock_fd); /* lets go of the slot, last */
    }
    if (log->place.dir_fd >= 0) {
        sys->close(log->place.dir_fd);
    }
    free(log);
}

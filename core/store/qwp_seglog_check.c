/* Frames of segments that were sealed before the log was opened are checked while it is in use,
 * some way ahead of the reader, so that a start does not take longer the more is waiting.
 *
 * The reader gets no frame that has not been found intact, together with the group that it belongs
 * to. When one is not, the frames before it are delivered. Then everything that was in the log at
 * open and lies behind is set aside, as open does with damage that it finds itself: segments are
 * renamed, and of the one that was active at open, which may hold newer frames by now, a copy is
 * kept. The reader goes on with the first frame that was appended since; the numbers between count
 * as acknowledged. Until then the files stay as they are, so that a start in between finds the
 * damage again (and what was appended before it then lies behind the damage, too).
 *
 * Where the dictionary lacks symbols, all frames from there to the last one are checked, and those
 * that they bring are added; see qwp_seglog_symbols.c.
 *
 * With plain reads, as at open, so that an unreadable sector is an error and not a signal; on the
 * helper's thread, which also has the pages in memory before they are sent. Many segments in a
 * step: on a busy machine each has to wait for a CPU, twice. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/store/qwp_seglog_impl.h"
#include "core/store/qwp_stored.h"

enum {
    PIECE_BYTES = 4 * 1024 * 1024,
    PIECES_MAX = 16,                /* a stop waits for no more */
    AHEAD_BYTES = 64 * 1024 * 1024, /* more would push out of memory what is sent sooner */
    /* A disk that does not answer for a moment is not damage. */
    TRIES_MAX = 20,
};

static void segment_begin(struct qwp_seglog_check *check, struct qwp_segment *segment)
{
    const struct qwp_segment *next = qwp_seglog_next_of(segment);
    check->segment = segment;
    check->end_fsn = next != NULL ? next->base : check->old_fsn;
    check->scan = (struct qwp_scan){
        .bytes = segment->bytes,
        .base = segment->base,
        .flags = segment->light ? QWP_SEGMENT_LIGHT : 0,
        .end_off = QWP_SEGMENT_HEADER_BYTES,
    };
}

void qwp_seglog_check_begin(struct qwp_seglog *log, struct qwp_segment *last)
{
    struct qwp_seglog_check *check = &log->k.check;
    check->old_segment = last;
    check->old_off = last->end_off;
    check->old_fsn = log->w.next_fsn;
    check->old_bytes = log->w.published_bytes;
    struct qwp_segment *segment = log->head;
    while (segment != NULL && !segment->unchecked) {
        segment = qwp_seglog_next_of(segment);
    }
    log->checked_count = UINT64_MAX;
    if (segment != NULL) {
        segment_begin(check, segment);
        log->checked_count = check->whole_fsn = log->r.read_fsn = segment->base;
    }
    if (log->recovery.lacks_symbols) {
        check->unsaved = check->needed = segment;
    }
}

/* ---- the operation, which may be on another thread ---- */

static enum qwp_result frame_judge(void *owner, uint64_t fsn, const unsigned char *payload,
                                   size_t len)
{
    struct qwp_seglog *log = owner;
    struct qwp_seglog_check *check = &log->k.check;
    if (fsn >= check->end_fsn) {
        check->flaw = "is in two segments";
        return QWP_CORRUPT;
    }
    uint32_t healed = 0;
    bool gap;
    const enum qwp_result result = qwp_stored_delta_follow(
        log->dict, payload, len, log->recovery.lacks_symbols ? &healed : NULL, &gap);
    if (result == QWP_NOMEM) {
        return result; /* tried again */
    }
    if (result != QWP_OK || gap) {
        check->flaw = gap ? "needs symbols that " QWP_DICT_FILE_NAME " has not"
                          : "and " QWP_DICT_FILE_NAME " contradict each other";
        return QWP_CORRUPT;
    }
    if (!qwp_stored_is_deferred(payload, len)) {
        check->whole_fsn = fsn + 1;
    }
    return QWP_OK;
}

/* All frames of the segment are there: on to the next. */
static void segment_end(struct qwp_seglog *log)
{
    struct qwp_seglog_check *check = &log->k.check;
    struct qwp_segment *segment = check->segment;
    struct qwp_segment *next = qwp_seglog_next_of(segment);
    if (segment->unchecked) {
        const uint64_t excess = qwp_seglog_presumed_bytes(segment) - check->scan.payload_bytes;
        atomic_fetch_add_explicit(&log->presumed_excess, excess, memory_order_relaxed);
    }
    check->bytes += check->scan.payload_bytes;
    segment->unchecked = false;
    segment->end_off = check->scan.end_off;
    if (check->scan.torn) { /* no loss, but other clients would stumble over it */
        (void)qwp_segment_tail_zero(segment, segment->end_off);
    }
    check->ended = false;
    if (next != NULL && (next->unchecked || log->recovery.lacks_symbols)) {
        segment_begin(check, next);
    } else {
        check->segment = NULL;
        check->scan = (struct qwp_scan){0};
    }
}

static bool is_complete(const struct qwp_seglog_check *check)
{
    return check->flaw == NULL && check->scan.base + check->scan.frame_count == check->end_fsn;
}

/* Goes on in the present segment. -1 and errno: it cannot be read. */
static int segment_check(struct qwp_seglog *log, const struct qwp_sys *sys, uint64_t bytes_max)
{
    struct qwp_seglog_check *check = &log->k.check;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, check->segment->name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (log->place.durable) { /* more at once than it would by itself */
        (void)posix_fadvise(fd, (off_t)check->scan.end_off, (off_t)bytes_max, POSIX_FADV_WILLNEED);
    }
    const enum qwp_result result =
        qwp_segment_scan_on(sys, fd, &check->scan, bytes_max, frame_judge, log, &check->ended);
    const int error = result == QWP_NOMEM ? ENOMEM : errno;
    sys->close(fd);
    if (result != QWP_OK && result != QWP_CORRUPT) {
        errno = error;
        return -1;
    }
    check->ended |= result == QWP_CORRUPT;
    return 0;
}

static uint64_t bytes_ahead(const struct qwp_seglog *log)
{
    const struct qwp_seglog_check *check = &log->k.check;
    return check->bytes + check->scan.payload_bytes -
           atomic_load_explicit(&log->read_bytes, memory_order_relaxed);
}

static void checked_publish(struct qwp_seglog *log)
{
    const struct qwp_seglog_check *check = &log->k.check;
    const uint64_t whole = check->segment == NULL ? UINT64_MAX : check->whole_fsn;
    if (whole > atomic_load_explicit(&log->checked_count, memory_order_relaxed)) {
        /* sync[seglog.checked] release: pairs with the acquire in qwp_seglog_next(). */
        atomic_store_explicit(&log->checked_count, whole, memory_order_release);
    }
}

static int frames_check(struct qwp_seglog *log, const struct qwp_sys *sys)
{
    struct qwp_seglog_check *check = &log->k.check;
    const uint64_t step = log->reading.step_bytes;
    const bool alone = step == 0 || step >= PIECE_BYTES; /* else nobody waits while we are at it */
    for (int i = 0; i == 0 || (alone && i < PIECES_MAX && bytes_ahead(log) < AHEAD_BYTES); i++) {
        const int rc = segment_check(log, sys, alone ? PIECE_BYTES : step);
        const int error = errno;
        if (rc == 0 && check->ended && is_complete(check)) {
            segment_end(log);
        }
        checked_publish(log);
        if (rc != 0 || check->ended || check->segment == NULL) {
            errno = error;
            return rc;
        }
    }
    return 0;
}

static int check_run(const struct qwp_sys *sys, void *owner)
{
    struct qwp_seglog *log = owner;
    struct qwp_seglog_check *check = &log->k.check;
    const int rc = check->segment != NULL ? frames_check(log, sys) : 0;
    const int error = errno;
    qwp_seglog_symbols_save(log, sys);
    errno = error;
    return rc;
}

/* ---- the keeper's part ---- */

/* No read is to be tried again. */
static void all_well(struct qwp_seglog *log)
{
    log->k.check.tries = 0;
    if (log->k.failed_job == QWP_JOB_CHECK) {
        log->k.failed_job = QWP_JOB_NONE;
    }
}

static void damage_note(struct qwp_seglog *log, int error)
{
    struct qwp_seglog_check *check = &log->k.check;
    const struct qwp_scan *scan = &check->scan;
    const uint64_t fsn = scan->base + scan->frame_count;
    const uint64_t from = atomic_load_explicit(&log->checked_count, memory_order_relaxed);
    char flaw[128];
    if (error != 0) {
        snprintf(flaw, sizeof flaw, "cannot be read (%s)", strerror(error));
    } else {
        snprintf(flaw, sizeof flaw, "%s", check->flaw != NULL ? check->flaw : "is damaged");
    }
    check->damage = (struct qwp_seglog_damage){.frames = check->old_fsn - from};
    snprintf(check->damage.text, sizeof check->damage.text,
             "%s: frame %" PRIu64 " (offset %" PRIu64 ") %s; frames %" PRIu64 " to %" PRIu64
             " cannot be delivered",
             check->segment->name, fsn, scan->end_off, flaw, from, check->old_fsn - 1);
    check->is_damaged = check->has_news = true;
    check->save_error = 0; /* nobody will need them */
    all_well(log);
    /* One that holds more than it should ends where its successor begins. */
    struct qwp_segment *holder = qwp_seglog_find(log->k.oldest, from);
    check->aside_at = holder->base < check->segment->base ? holder : check->segment;
}

static bool read_failed(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_check *check = &log->k.check;
    const int error = check->op.error;
    if (error == ENOMEM || error == EMFILE || error == ENFILE || ++check->tries < TRIES_MAX) {
        (void)qwp_fail(&log->k.error, QWP_IO, error, "cannot read segment %s/%s", log->dir,
                       check->segment->name);
        log->k.failed_job = QWP_JOB_CHECK;
        atomic_fetch_add_explicit(&log->failures, 1, memory_order_relaxed);
        check->retry_ns = now_ns + QWP_SEGLOG_RETRY_NS;
        return false;
    }
    if (is_complete(check)) { /* what cannot be read behind them is no frame */
        all_well(log);
        segment_end(log);
        checked_publish(log);
    } else {
        damage_note(log, error);
    }
    return true;
}

/* True: it has come on. */
static bool check_judge(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_check *check = &log->k.check;
    if (check->op.error != 0) {
        return read_failed(log, now_ns);
    }
    all_well(log);
    if (check->ended) {
        damage_note(log, 0);
    }
    return true;
}

static bool check_due(const struct qwp_seglog *log, int64_t now_ns)
{
    const struct qwp_seglog_check *check = &log->k.check;
    if (check->is_damaged || now_ns < check->retry_ns) {
        return false;
    }
    if (check->segment == NULL || check->save_error != 0) {
        return check->save_error != 0;
    }
    return atomic_load_explicit(&log->starved, memory_order_relaxed) ||
           (check->is_begun && bytes_ahead(log) < AHEAD_BYTES);
}

static bool collect(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_check *check = &log->k.check;
    if (!check->is_out || !check->op.done) {
        return false;
    }
    check->is_out = false;
    const bool came_on = check_judge(log, now_ns);
    qwp_seglog_symbols_judge(log, now_ns);
    return came_on;
}

bool qwp_seglog_check_step(struct qwp_seglog *log, int64_t now_ns, int64_t *next_ns)
{
    struct qwp_seglog_check *check = &log->k.check;
    bool came_on = collect(log, now_ns);
    if (!check->is_out && check->save_error != 0 && !qwp_seglog_waits(log)) {
        check->save_error = 0;
        all_well(log);
    }
    if (!check->is_out && check_due(log, now_ns)) {
        atomic_store_explicit(&log->starved, false, memory_order_relaxed);
        check->is_begun = check->is_out = true;
        check->ended = false;
        check->op = (struct qwp_slow_op){.kind = QWP_SLOW_CALL, .call = check_run, .at = log};
        log->reading.submit(log->reading.owner, &check->op);
        came_on |= collect(log, now_ns); /* where it is run at once */
    }
    if (!check->is_out && (check->tries > 0 || check->save_error != 0) &&
        check->retry_ns < *next_ns) {
        *next_ns = check->retry_ns;
    }
    return came_on;
}

bool qwp_seglog_wants_check(const struct qwp_seglog *log)
{
    const struct qwp_seglog_check *check = &log->k.check;
    return !check->is_out && check->segment != NULL && !check->is_damaged && check->tries == 0 &&
           check->save_error == 0 && atomic_load_explicit(&log->starved, memory_order_relaxed);
}

bool qwp_seglog_take_damage(struct qwp_seglog *log, struct qwp_seglog_damage *damage)
{
    struct qwp_seglog_check *check = &log->k.check;
    if (!check->has_news) {
        return false;
    }
    check->has_news = false;
    *damage = check->damage;
    return true;
}

/* ---- the reader's part ---- */

bool qwp_seglog_resume(struct qwp_seglog *log)
{
    /* sync[seglog.resumable] acquire: pairs with the release in qwp_seglog_aside_step(). */
    if (log->r.resumed || !atomic_load_explicit(&log->resumable, memory_order_acquire)) {
        return false;
    }
    const struct qwp_seglog_check *check = &log->k.check; /* const after open */
    log->r.resumed = true;
    log->r.acked = (struct qwp_seglog_cursor){check->old_fsn, check->old_segment, check->old_off};
    log->r.acked_bytes =
        check->old_bytes - atomic_load_explicit(&log->presumed_excess, memory_order_relaxed);
    qwp_seglog_acked_show(log);
    return true;
}

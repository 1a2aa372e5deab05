/* The keeper's half of the segment log: one bounded step a call, one slow operation at a time.
 * Spares, trim, and what is done next; syncs are in qwp_seglog_sync.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_keeper.h"

enum {
    ROTATION_FAST_NS = 1000 * 1000 * 1000, /* closer together than that: keep more spares */
    SPARES_BUDGET_PART = 4,                /* spares take at most this part of the budget */
    STEPS_PRESSED = 4, /* at a time while there is no spare: the writer would make its own, at many
                          times the cost [frames of 166 KB a cycle: 40 to 65 of 100 rotations] */
};

/* --- spares --- */

static uint32_t spare_count(const struct qwp_seglog *log)
{
    /* sync[seglog.spare] acquire: pairs with the release in the writer's spare_take(). */
    return atomic_load_explicit(&log->spare_tail, memory_order_relaxed) -
           atomic_load_explicit(&log->spare_head, memory_order_acquire);
}

static void spare_put(struct qwp_seglog *log, struct qwp_segment *segment)
{
    const uint32_t tail = atomic_load_explicit(&log->spare_tail, memory_order_relaxed);
    log->spares[tail % QWP_SEGLOG_SPARES_MAX] = segment;
    /* sync[seglog.spare] release: the segment is complete. */
    atomic_store_explicit(&log->spare_tail, tail + 1, memory_order_release);
}

/* One spare at rest; as many more as rotations came since the last look when they come fast. */
static void spares_adapt(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    const uint64_t rotations = atomic_load_explicit(&log->rotations, memory_order_relaxed);
    const uint64_t fresh = rotations - k->rotations_seen;
    if (fresh == 0 || k->retired) {
        return;
    }
    const bool fast = fresh > 1 || now_ns - k->rotation_ns < ROTATION_FAST_NS;
    const uint64_t budget = log->budget->bytes_max / SPARES_BUDGET_PART / log->segment_bytes;
    uint64_t wanted = fast ? k->spares_wanted + fresh : 1;
    if (wanted > budget) {
        wanted = budget;
    }
    if (wanted > QWP_SEGLOG_SPARES_MAX / 2) {
        wanted = QWP_SEGLOG_SPARES_MAX / 2;
    }
    k->spares_wanted = wanted < 1 ? 1 : (uint32_t)wanted;
    k->rotations_seen = rotations;
    k->rotation_ns = now_ns;
}

/* The oldest segment leaves the chain; it is acknowledged and the manifest knows. */
static struct qwp_segment *oldest_pop(struct qwp_seglog *log)
{
    struct qwp_seglog_keeper *k = &log->k;
    struct qwp_segment *segment = k->oldest;
    QWP_ASSERT(segment != k->trimmed_to);
    k->oldest = qwp_seglog_next_of(segment);
    if (k->active == segment) {
        k->active = k->oldest;
    }
    if (k->noted_to == segment) {
        QWP_ASSERT(!log->place.durable); /* job_choose() notes before it trims */
        k->noted_to = k->oldest;
    }
    if (k->synced_to == segment) {
        k->synced_to = k->oldest; /* nothing of it needs to be on disk any more */
    }
    if (k->unsynced == segment) {
        qwp_keeper_unsynced_step(log);
    }
    qwp_keeper_count_up(&log->disposed);
    if (segment->suspect) {
        atomic_fetch_sub_explicit(&log->suspects, 1, memory_order_relaxed);
        qwp_keeper_synced_claim(log); /* it was in the way */
    }
    return segment;
}

/* False: a file that should be gone is in the way of making another. */
static bool leftover_remove(struct qwp_seglog *log, int64_t now_ns)
{
    uint64_t freed;
    if (qwp_leftover_remove(&log->k.leftover, &log->place, &freed, &log->k.error) != QWP_OK) {
        qwp_keeper_job_failed(log, QWP_JOB_DROP, now_ns);
        return false;
    }
    if (log->k.failed_job == QWP_JOB_DROP) {
        log->k.failed_job = QWP_JOB_NONE;
    }
    qwp_seglog_uncharge(log, freed);
    return true;
}

/* With the writer gone nobody else takes from the queue. */
static bool spare_drop(struct qwp_seglog *log)
{
    const uint32_t head = atomic_load_explicit(&log->spare_head, memory_order_relaxed);
    if (!log->k.retired || spare_count(log) == 0 || log->k.leftover.name[0] != '\0') {
        return false;
    }
    struct qwp_segment *segment = log->spares[head % QWP_SEGLOG_SPARES_MAX];
    atomic_store_explicit(&log->spare_head, head + 1, memory_order_relaxed);
    qwp_seglog_uncharge(log, qwp_segment_remove(segment, &log->place, &log->k.leftover));
    return true;
}

static bool recycle_begin(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    /* Popped only on success, and making takes its link. */
    struct qwp_segment *segment = k->oldest;
    struct qwp_segment *next = qwp_seglog_next_of(segment);
    if (qwp_make_again(&k->make, &log->place, segment, log->segment_flags, &k->error) != QWP_OK) {
        qwp_keeper_job_failed(log, QWP_JOB_MAKE, now_ns);
        return false;
    }
    atomic_store_explicit(&segment->next, next, memory_order_relaxed);
    (void)oldest_pop(log);
    atomic_store_explicit(&segment->next, NULL, memory_order_relaxed);
    qwp_keeper_job_begin(log, QWP_JOB_MAKE);
    return true;
}

static bool make_begin(struct qwp_seglog *log, int64_t now_ns)
{
    if (!qwp_seglog_charge(log, log->segment_bytes)) {
        return false;
    }
    const uint64_t number = atomic_fetch_add_explicit(&log->next_number, 1, memory_order_relaxed);
    if (qwp_make_new(&log->k.make, &log->place, number, log->segment_bytes, log->segment_flags,
                     &log->k.error) != QWP_OK) {
        qwp_seglog_uncharge(log, log->segment_bytes);
        qwp_keeper_job_failed(log, QWP_JOB_MAKE, now_ns);
        return false;
    }
    qwp_keeper_job_begin(log, QWP_JOB_MAKE);
    return true;
}

static void make_step(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    const bool again = k->make.old_end_off != 0;
    const enum qwp_result result = qwp_make_step(&k->make, &log->place, &k->error);
    if (result == QWP_AGAIN) {
        if (k->make.op_out) {
            log->slow.submit(log->slow.owner, &k->make.op);
        }
        return;
    }
    if (result != QWP_OK) {
        qwp_seglog_uncharge(log, qwp_make_undo(&k->make, &log->place, &k->leftover));
        qwp_keeper_job_failed(log, QWP_JOB_MAKE, now_ns);
        return;
    }
    if (again) {
        qwp_keeper_count_up(&log->recycled);
    }
    spare_put(log, k->make.segment);
    k->make = (struct qwp_make){0};
    qwp_keeper_job_end(log);
    QWP_CRASH_POINT("keeper.spare");
}

/* --- trimming --- */

/* The manifest must be on disk without a segment before that segment goes. */
static void trim_step(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (k->job_step == 0) {
        k->job_segment = qwp_seglog_trim_target(log);
        k->job_step = qwp_manifest_set_head(&log->manifest, k->job_segment->base) ? 2 : 1;
        QWP_CRASH_POINT("trim.manifest");
        return;
    }
    if (k->job_step == 1) {
        k->job_step = qwp_manifest_write(&log->manifest) ? 2 : 1;
        return;
    }
    if (k->job_step == 2 && log->place.durable) {
        qwp_keeper_op_start(
            log, (struct qwp_slow_op){.kind = QWP_SLOW_SYNC, .fd = log->manifest.dual.fd});
        k->job_step = 3;
        return;
    }
    if (k->job_step == 3 && k->op.error != 0) {
        /* The kernel may call the page clean now, so the next try writes it again. */
        qwp_keeper_sync_failed(log, QWP_JOB_TRIM, k->op.error, QWP_MANIFEST_NAME);
        qwp_keeper_job_failed(log, QWP_JOB_TRIM, now_ns);
        return;
    }
    const bool synced = k->job_step == 3;
    k->trimmed_to = k->job_segment;
    qwp_keeper_job_end(log);
    if (synced) {
        qwp_keeper_job_begin(log, QWP_JOB_WINDOW);
        qwp_keeper_manifest_touch(log);
    }
    QWP_CRASH_POINT("trim.committed");
}

static void drop_step(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (k->oldest->aside) {
        k->op.error = 0; /* its file has another name */
    } else if (k->job_step == 0) {
        qwp_keeper_op_start(log, (struct qwp_slow_op){.kind = QWP_SLOW_UNLINK,
                                                      .fd = log->place.dir_fd,
                                                      .name = k->oldest->name});
        k->job_step = 1;
        return;
    }
    if (k->op.error != 0 && k->op.error != ENOENT) {
        (void)qwp_fail(&k->error, QWP_IO, k->op.error, "cannot remove segment %s", k->oldest->name);
        qwp_keeper_job_failed(log, QWP_JOB_DROP, now_ns); /* it stays charged and is tried again */
        return;
    }
    QWP_CRASH_POINT("trim.unlinked");
    struct qwp_segment *segment = oldest_pop(log);
    const uint64_t bytes = segment->bytes;
    qwp_segment_free(segment, log->sys);
    qwp_seglog_uncharge(log, bytes);
    qwp_keeper_job_end(log);
}

static void aside_step(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_slow_op op;
    bool is_out;
    switch (qwp_seglog_aside_step(log, &op, &is_out, &log->k.error)) {
    case QWP_OK:
        qwp_keeper_job_end(log);
        break;
    case QWP_AGAIN:
        if (is_out) {
            qwp_keeper_op_start(log, op);
        }
        break;
    default:
        qwp_keeper_job_failed(log, QWP_JOB_ASIDE, now_ns);
        break;
    }
}

/* --- the duty cycle --- */

static bool trim_due(const struct qwp_seglog *log)
{
    return qwp_seglog_trim_target(log) != log->k.trimmed_to;
}

static bool sync_due(const struct qwp_seglog *log, uint64_t published)
{
    return log->periodic && published > log->k.round_count;
}

static bool sync_begin(struct qwp_seglog *log, uint64_t published, int64_t now_ns)
{
    if (!sync_due(log, published) || now_ns < log->k.sync_due_ns) {
        return false;
    }
    log->k.sync_due_ns = now_ns + log->sync_interval_ns;
    qwp_keeper_job_begin(log, QWP_JOB_SYNC);
    log->k.job_count = published;
    return true;
}

/* The first of what is due: what the next rotation needs, what a host crash would need, what frees
 * space, what makes the future faster. */
static bool job_choose(struct qwp_seglog *log, int64_t now_ns)
{
    struct qwp_seglog_keeper *k = &log->k;
    if (now_ns < k->retry_ns) {
        return false;
    }
    /* Before the look for new segments: those that hold these frames are noted when it finds none.
     */
    const uint64_t published = qwp_seglog_published_count(log);
    if (k->leftover.name[0] != '\0' && !leftover_remove(log, now_ns)) {
        return false;
    }
    if (qwp_seglog_aside_due(log)) { /* the reader waits for it */
        qwp_keeper_job_begin(log, QWP_JOB_ASIDE);
        return true;
    }
    const uint32_t spares = spare_count(log);
    const bool some_go = k->oldest != k->trimmed_to;
    const bool goes_again = some_go && !k->oldest->aside && k->oldest->bytes == log->segment_bytes;
    const bool some_go_soon = trim_due(log) && !log->place.durable; /* no sync to wait for */
    if (spares == 0 && k->spares_wanted > 0 && !some_go && !some_go_soon &&
        make_begin(log, now_ns)) {
        return true;
    }
    if (qwp_keeper_window_begin(log)) {
        return true;
    }
    if (spares == 0 && k->spares_wanted > 0 && goes_again) {
        return recycle_begin(log, now_ns);
    }
    if (log->place.durable && (k->note_again || qwp_seglog_next_of(k->noted_to) != NULL)) {
        qwp_keeper_job_begin(log, QWP_JOB_NOTE_ACTIVE);
        return true;
    }
    if (!k->was_sync && sync_begin(log, published, now_ns)) {
        return true;
    }
    if (some_go) {
        /* One more than wanted, or each would be made anew just before one comes back. */
        if (goes_again && spares <= k->spares_wanted && !k->retired) {
            return recycle_begin(log, now_ns);
        }
        qwp_keeper_job_begin(log, QWP_JOB_DROP);
        return true;
    }
    if (trim_due(log)) {
        qwp_keeper_job_begin(log, QWP_JOB_TRIM);
        return true;
    }
    if (now_ns < k->retry_ns) { /* making one has failed just now */
        return false;
    }
    if ((spares < k->spares_wanted && make_begin(log, now_ns)) ||
        sync_begin(log, published, now_ns)) {
        return true;
    }
    if (k->unsynced == NULL || k->opening || now_ns < k->retry_ns) {
        return false;
    }
    qwp_keeper_job_begin(log, QWP_JOB_SYNC_OLD);
    return true;
}

static void job_step(struct qwp_seglog *log, int64_t now_ns)
{
    switch (log->k.job) {
    case QWP_JOB_NONE:
        break;
    case QWP_JOB_MAKE:
        make_step(log, now_ns);
        break;
    case QWP_JOB_TRIM:
        trim_step(log, now_ns);
        break;
    case QWP_JOB_DROP:
        drop_step(log, now_ns);
        break;
    case QWP_JOB_NOTE_ACTIVE:
        qwp_keeper_note_step(log, now_ns);
        break;
    case QWP_JOB_SYNC:
        qwp_keeper_sync_step(log);
        break;
    case QWP_JOB_SYNC_OLD:
        qwp_keeper_old_sync_step(log);
        break;
    case QWP_JOB_ASIDE:
        aside_step(log, now_ns);
        break;
    case QWP_JOB_WINDOW:
        qwp_keeper_job_end(log); /* whatever came of it: it only saves time */
        break;
    case QWP_JOB_CHECK:
        break;
    }
}

static bool job_waits(const struct qwp_seglog *log)
{
    return (log->k.op_out && !log->k.op.done) ||
           (log->k.job == QWP_JOB_MAKE && log->k.make.op_out && !log->k.make.op.done);
}

static bool makes_the_only_spare(const struct qwp_seglog *log)
{
    return log->k.job == QWP_JOB_MAKE && !job_waits(log) && spare_count(log) == 0;
}

bool qwp_seglog_op_under_way(const struct qwp_seglog *log)
{
    return job_waits(log) || (log->k.check.is_out && !log->k.check.op.done);
}

static void jobs_maintain(struct qwp_seglog *log, int64_t now_ns, bool *more, int64_t *next_ns)
{
    if (job_waits(log)) {
        return;
    }
    if (log->k.job == QWP_JOB_NONE && spare_drop(log)) {
        *more = true;
        return;
    }
    if (log->k.job != QWP_JOB_NONE || job_choose(log, now_ns)) {
        job_step(log, now_ns);
        for (int i = 1; i < STEPS_PRESSED && makes_the_only_spare(log); i++) {
            job_step(log, now_ns);
        }
        *more |= !job_waits(log);
        return;
    }
    if (now_ns < log->k.retry_ns) {
        *next_ns = log->k.retry_ns < *next_ns ? log->k.retry_ns : *next_ns;
        return;
    }
    if (log->k.failed_job != QWP_JOB_SYNC && log->k.failed_job != QWP_JOB_CHECK) {
        log->k.failed_job = QWP_JOB_NONE; /* what failed is not wanted any more */
    }
    if (sync_due(log, qwp_seglog_published_count(log)) && log->k.sync_due_ns < *next_ns) {
        *next_ns = log->k.sync_due_ns;
    }
}

void qwp_seglog_maintain(struct qwp_seglog *log, int64_t now_ns, bool *more, int64_t *next_ns)
{
    *next_ns = QWP_NEVER_NS;
    qwp_keeper_watermark_put(log);
    spares_adapt(log, now_ns);
    *more = qwp_seglog_check_step(log, now_ns, next_ns);
    jobs_maintain(log, now_ns, more, next_ns);
}

void qwp_seglog_retire(struct qwp_seglog *log)
{
    log->k.retired = true;
    log->k.spares_wanted = 0;
}

bool qwp_seglog_is_quiet(const struct qwp_seglog *log)
{
    return !qwp_seglog_op_under_way(log);
}

enum qwp_keeper_state qwp_seglog_keeper_state(const struct qwp_seglog *log)
{
    switch (log->k.failed_job) {
    case QWP_JOB_NONE:
        return QWP_KEEPER_WELL;
    case QWP_JOB_MAKE:
        return QWP_KEEPER_NO_SPARE;
    default:
        return QWP_KEEPER_FAILING;
    }
}

const struct qwp_error *qwp_seglog_keeper_error(const struct qwp_seglog *log)
{
    return &log->k.error;
}

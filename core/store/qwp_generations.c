#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_generations_internal.h"

enum { RETRY_MS = 500 };

/* ---- any thread ---- */

uint64_t qwp_generations_published(const struct qwp_generations *g)
{
    /* sync[generations.published] acquire */
    return atomic_load_explicit(&g->published, memory_order_acquire);
}

uint64_t qwp_generations_acked(const struct qwp_generations *g)
{
    /* sync[generations.acked] acquire */
    return atomic_load_explicit(&g->acked, memory_order_acquire);
}

uint64_t qwp_generations_waiting(const struct qwp_generations *g)
{
    return qwp_generations_published(g) - qwp_generations_acked(g);
}

/* ---- writer ---- */

struct qwp_seglog *qwp_generations_writer(const struct qwp_generations *g)
{
    return g->writer->log;
}

uint64_t qwp_generations_publish(struct qwp_generations *g)
{
    const uint64_t fsn = qwp_seglog_publish(g->writer->log);
    /* sync[generations.published] release */
    atomic_store_explicit(&g->published, fsn + 1, memory_order_release);
    return fsn;
}

bool qwp_generations_want(struct qwp_generations *g)
{
    if (!atomic_load_explicit(&g->wanted, memory_order_relaxed)) {
        atomic_store_explicit(&g->wanted, true, memory_order_relaxed);
        atomic_store_explicit(&g->has_news, true, memory_order_relaxed);
    }
    return atomic_load_explicit(&g->has_spare, memory_order_relaxed);
}

void qwp_generations_ask(struct qwp_generations *g)
{
    /* sync[generations.asked] release: all that we publish here is published. */
    atomic_store_explicit(&g->asked_number, g->writer->number, memory_order_release);
    atomic_store_explicit(&g->has_news, true, memory_order_relaxed);
    QWP_CRASH_POINT("generations.asked");
}

bool qwp_generations_is_asked(const struct qwp_generations *g)
{
    return atomic_load_explicit(&g->asked_number, memory_order_relaxed) == g->writer->number;
}

bool qwp_generations_advance(struct qwp_generations *g)
{
    /* sync[generations.next] acquire: the generation is complete and begun. */
    struct qwp_generation *next = atomic_load_explicit(&g->writer->next, memory_order_acquire);
    if (next == NULL) {
        return false;
    }
    g->writer = next;
    atomic_store_explicit(&g->wanted, false, memory_order_relaxed);
    /* sync[generations.writer] release: our accesses to the earlier ones end before. */
    atomic_store_explicit(&g->writer_number, next->number, memory_order_release);
    atomic_store_explicit(&g->has_news, true, memory_order_relaxed);
    QWP_CRASH_POINT("generations.switched");
    return true;
}

bool qwp_generations_has_news(const struct qwp_generations *g)
{
    return atomic_load_explicit(&g->has_news, memory_order_relaxed);
}

bool qwp_generations_take_news(struct qwp_generations *g)
{
    return qwp_generations_has_news(g) &&
           atomic_exchange_explicit(&g->has_news, false, memory_order_relaxed);
}

void qwp_generations_rings_resumed(struct qwp_generations *g)
{
    /* sync[generations.resumed] release: the heads were moved before. */
    atomic_store_explicit(&g->rings_resumed, true, memory_order_release);
}

/* ---- reader ---- */

void qwp_generations_acked_show(struct qwp_generations *g)
{
    uint64_t acked = qwp_seglog_acked_count(g->reader->log);
    if (g->reader != g->newest) {
        const uint64_t first = qwp_seglog_acked_count(g->newest->log);
        acked = acked < first ? acked : first - 1;
    }
    if (acked > atomic_load_explicit(&g->acked, memory_order_relaxed)) {
        /* sync[generations.acked] release */
        atomic_store_explicit(&g->acked, acked, memory_order_release);
    }
}

/* The writer has left it. */
static bool is_left(const struct qwp_generations *g, const struct qwp_generation *generation)
{
    /* sync[generations.writer] acquire */
    return generation->number < atomic_load_explicit(&g->writer_number, memory_order_acquire);
}

struct qwp_seglog *qwp_generations_reader(const struct qwp_generations *g)
{
    return g->reader->log;
}

void qwp_generations_ack(struct qwp_generations *g, uint64_t fsn)
{
    qwp_seglog_ack(g->reader->log, fsn);
    qwp_generations_acked_show(g);
}

bool qwp_generations_is_drained(const struct qwp_generations *g)
{
    /* In this order: what the writer published before it left is seen. */
    return is_left(g, g->reader) && !qwp_generation_waits(g->reader);
}

enum qwp_result qwp_generations_step(struct qwp_generations *g, struct qwp_error *err)
{
    QWP_ASSERT(qwp_generations_is_drained(g));
    struct qwp_generation *next = qwp_generation_next(g->reader);
    if (qwp_seglog_dict(next->log) == NULL) {
        const enum qwp_result result = qwp_seglog_dict_load(next->log, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    g->reader = next;
    qwp_generations_acked_show(g);
    QWP_CRASH_POINT("generations.stepped");
    return QWP_OK;
}

/* ---- keeper ---- */

void qwp_generations_counters_keep(struct qwp_generations *g,
                                   const struct qwp_generation *generation)
{
    struct qwp_seglog_stats its;
    qwp_seglog_stats(generation->log, &its);
    g->gone.rotations += its.rotations;
    g->gone.rotations_without_spare += its.rotations_without_spare;
    g->gone.recycled += its.recycled;
    g->gone.failures += its.failures;
    g->gone.sync_failures += its.sync_failures;
}

static void failed(struct qwp_generations *g, int64_t now_ns)
{
    g->failing = true;
    g->retry_ns = now_ns + (int64_t)RETRY_MS * QWP_NS_PER_MS;
}

/* Room for its first segment; past the budget only where nothing else would free a byte. */
static bool has_room(const struct qwp_generations *g)
{
    return atomic_load_explicit(&g->budget.charged, memory_order_relaxed) +
                   g->log_options.segment_bytes <=
               g->budget.bytes_max ||
           qwp_generations_acked(g) == qwp_generations_published(g);
}

static bool spare_due(const struct qwp_generations *g)
{
    return g->spare == NULL && atomic_load_explicit(&g->wanted, memory_order_relaxed) &&
           g->newest->number == atomic_load_explicit(&g->writer_number, memory_order_relaxed) &&
           g->count < QWP_GENERATIONS_MAX && has_room(g);
}

/* True: there was something to do. */
static bool spare_keep(struct qwp_generations *g, int64_t now_ns, int64_t *next_ns)
{
    if (!spare_due(g)) {
        return false;
    }
    if (now_ns < g->retry_ns) {
        *next_ns = g->retry_ns < *next_ns ? g->retry_ns : *next_ns;
        return false;
    }
    if (qwp_generations_spare_make(g, &g->spare, &g->error) != QWP_OK) {
        failed(g, now_ns);
        return true;
    }
    g->failing = false;
    QWP_CRASH_POINT("generations.made");
    atomic_store_explicit(&g->has_spare, true, memory_order_relaxed);
    return true;
}

/* The writer's generation has its last frame: the spare goes on behind it. */
static bool spare_begin(struct qwp_generations *g)
{
    /* sync[generations.asked] acquire */
    const uint32_t asked = atomic_load_explicit(&g->asked_number, memory_order_acquire);
    if (g->spare == NULL || asked != g->newest->number || !qwp_seglog_is_quiet(g->spare->log)) {
        return false;
    }
    qwp_seglog_begin_at(g->spare->log, qwp_seglog_published_count(g->newest->log));
    QWP_CRASH_POINT("generations.begun");
    atomic_store_explicit(&g->has_spare, false, memory_order_relaxed);
    struct qwp_generation *spare = g->spare;
    g->spare = NULL;
    qwp_generations_append(g, spare);
    return true;
}

/* Both have left it, and no note of it is needed any more. */
static bool is_done_with(const struct qwp_generations *g, const struct qwp_generation *one)
{
    /* sync[generations.resumed] acquire */
    return one->number < g->reader->number &&
           atomic_load_explicit(&g->rings_resumed, memory_order_acquire) &&
           qwp_seglog_is_quiet(one->log);
}

/* True: one less. */
static bool old_remove(struct qwp_generations *g, int64_t now_ns)
{
    struct qwp_generation *home = g->home;
    if (home->log != NULL && is_done_with(g, home) && now_ns >= g->retry_ns) {
        qwp_generations_counters_keep(g, home);
        if (qwp_seglog_hollow(home->log, &home->lock_fd, &g->error) != QWP_OK) {
            failed(g, now_ns);
            return false;
        }
        home->log = NULL;
        return true;
    }
    struct qwp_generation *second = qwp_generation_next(home);
    if (second != NULL && is_done_with(g, second)) {
        qwp_generations_remove_behind(g, home);
        return true;
    }
    return false;
}

/* Those that the writer has left make no spares; and those that are not read either need no memory
 * for their symbols. */
static void left_settle(struct qwp_generations *g)
{
    for (struct qwp_generation *one = g->home; is_left(g, one); one = qwp_generation_next(one)) {
        if (one->log == NULL) {
            continue;
        }
        qwp_seglog_retire(one->log);
        /* The last check of frames may not have ended when all of them are acknowledged already. */
        if (one != g->reader && qwp_seglog_dict(one->log) != NULL &&
            qwp_seglog_is_quiet(one->log)) {
            qwp_seglog_dict_release(one->log);
        }
    }
}

static void log_maintain(struct qwp_seglog *log, int64_t now_ns, bool *more, int64_t *next_ns)
{
    bool its_more;
    int64_t its_ns;
    qwp_seglog_maintain(log, now_ns, &its_more, &its_ns);
    *more |= its_more;
    *next_ns = its_ns < *next_ns ? its_ns : *next_ns;
}

void qwp_generations_maintain(struct qwp_generations *g, int64_t now_ns, bool *more,
                              int64_t *next_ns, bool *began)
{
    *more = false;
    *next_ns = QWP_NEVER_NS;
    left_settle(g);
    for (struct qwp_generation *one = g->home; one != NULL; one = qwp_generation_next(one)) {
        if (one->log != NULL) {
            log_maintain(one->log, now_ns, more, next_ns);
        }
    }
    if (g->spare != NULL) {
        log_maintain(g->spare->log, now_ns, more, next_ns);
    }
    if (qwp_seglog_resume(g->reader->log)) {
        qwp_generations_acked_show(g);
        *more = true;
    }
    *began = spare_begin(g);
    *more |= *began;
    *more |= old_remove(g, now_ns);
    *more |= spare_keep(g, now_ns, next_ns);
}

bool qwp_generations_wants_check(const struct qwp_generations *g)
{
    return qwp_seglog_wants_check(g->reader->log);
}

bool qwp_generations_take_damage(struct qwp_generations *g, struct qwp_seglog_damage *damage,
                                 const char **name)
{
    for (const struct qwp_generation *one = g->home; one != NULL; one = qwp_generation_next(one)) {
        if (one->log != NULL && qwp_seglog_take_damage(one->log, damage)) {
            *name = one->name;
            return true;
        }
    }
    return false;
}

/* The log that is worst off. */
static const struct qwp_seglog *failing_log(const struct qwp_generations *g)
{
    const struct qwp_seglog *worst = NULL;
    for (const struct qwp_generation *one = g->home; one != NULL; one = qwp_generation_next(one)) {
        if (one->log != NULL &&
            (worst == NULL || qwp_seglog_keeper_state(one->log) > qwp_seglog_keeper_state(worst))) {
            worst = one->log;
        }
    }
    return worst;
}

enum qwp_keeper_state qwp_generations_keeper_state(const struct qwp_generations *g)
{
    const enum qwp_keeper_state state = qwp_seglog_keeper_state(failing_log(g));
    return state == QWP_KEEPER_WELL && g->failing ? QWP_KEEPER_FAILING : state;
}

const struct qwp_error *qwp_generations_keeper_error(const struct qwp_generations *g)
{
    const struct qwp_seglog *worst = failing_log(g);
    return qwp_seglog_keeper_state(worst) != QWP_KEEPER_WELL ? qwp_seglog_keeper_error(worst)
                                                             : &g->error;
}

enum qwp_result qwp_generations_flush(struct qwp_generations *g, struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    for (struct qwp_generation *one = g->home; one != NULL; one = qwp_generation_next(one)) {
        const enum qwp_result its = one->log != NULL ? qwp_seglog_flush(one->log, err) : QWP_OK;
        result = result == QWP_OK ? its : result;
    }
    return result;
}

void qwp_generations_stats(const struct qwp_generations *g, struct qwp_seglog_stats *out)
{
    *out = g->gone;
    out->bytes_total = atomic_load_explicit(&g->budget.charged, memory_order_relaxed);
    out->bytes_total_max = g->budget.bytes_max;
    for (const struct qwp_generation *one = g->home; one != NULL; one = qwp_generation_next(one)) {
        if (one->log == NULL) {
            continue;
        }
        struct qwp_seglog_stats its;
        qwp_seglog_stats(one->log, &its);
        out->bytes_waiting += its.bytes_waiting;
        out->segments_active += its.segments_active;
        out->segments_sealed += its.segments_sealed;
        out->segments_spare += its.segments_spare;
        out->rotations += its.rotations;
        out->rotations_without_spare += its.rotations_without_spare;
        out->recycled += its.recycled;
        out->failures += its.failures;
        out->sync_failures += its.sync_failures;
        out->synced_count = its.synced_count;
        out->unsynced_count += its.unsynced_count;
        out->segments_suspect += its.segments_suspect;
    }
}

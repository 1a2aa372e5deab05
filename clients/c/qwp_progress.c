/* How far the rows of a producer have come, and waiting for it. */
#include "clients/c/qwp_producer.h"
#include "core/qwp_clock.h"

uint64_t qwp_position_published(const struct qwp_producer *producer)
{
    return producer->ring.tail_pos;
}

uint64_t qwp_position_stored(const struct qwp_producer *producer)
{
    if (qwp_producer_is_closed(producer)) {
        return 0;
    }
    /* sync[ring.head] acquire: pairs with the release in qwp_ring_release(). */
    return atomic_load_explicit(&producer->ring.header->head_pos, memory_order_acquire);
}

uint64_t qwp_position_acked(const struct qwp_producer *producer)
{
    if (qwp_producer_is_closed(producer)) {
        return 0;
    }
    /* sync[ring.acked] acquire: pairs with the release in qwp_ring_settle(), which counts rejected
     * rows first. */
    return atomic_load_explicit(&producer->ring.header->acked_pos, memory_order_acquire);
}

void qwp_producer_count(const struct qwp_producer *producer, struct qwp_counters *out)
{
    *out = (struct qwp_counters){.rows_published = producer->ring.rows_published,
                                 .rows_dropped = producer->rows_dropped,
                                 .full_waits = producer->full_waits};
    const struct qwp_ring_header *header = producer->ring.header;
    if (header != NULL) {
        out->rows_stored = atomic_load_explicit(&header->rows_stored, memory_order_relaxed);
        out->rows_acked = atomic_load_explicit(&header->rows_acked, memory_order_relaxed);
        out->rows_rejected = atomic_load_explicit(&header->rejected_rows, memory_order_relaxed);
    }
}

struct goal {
    const struct qwp_producer *producer;
    uint64_t position;
    uint64_t (*position_now)(const struct qwp_producer *producer);
};

static bool is_there(const struct goal *goal)
{
    return goal->position_now(goal->producer) >= goal->position;
}

static bool is_there_or_never(void *owner)
{
    const struct goal *goal = owner;
    return is_there(goal) || qwp_producer_is_detached(goal->producer);
}

static int64_t deadline_in(int64_t timeout_ns)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    return timeout_ns < 0 || timeout_ns > QWP_NEVER_NS - now_ns ? QWP_NEVER_NS
                                                                : now_ns + timeout_ns;
}

static enum qwp_result wait_until(struct qwp_producer *p, struct goal *goal, uint32_t what,
                                  int64_t timeout_ns, struct qwp_error *err)
{
    const char *const verb = what == QWP_WAIT_STORED ? "stored" : "acked";
    enum qwp_result result = qwp_producer_check_open(p, err);
    if (result != QWP_OK) {
        return result;
    }
    if (goal->position > p->ring.tail_pos) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "position %llu cannot be %s while only %llu is published; take it from "
                        "qwp_position_published() after the row or unit",
                        (unsigned long long)goal->position, verb,
                        (unsigned long long)p->ring.tail_pos);
    }
    if (!is_there_or_never(goal) && timeout_ns != 0) {
        result = qwp_bell_wait(&p->ring, what, is_there_or_never, goal, deadline_in(timeout_ns));
        (void)result; /* the deadline passed or not: what counts is where things stand */
    }
    if (is_there(goal)) {
        return QWP_OK;
    }
    if (qwp_producer_is_detached(p)) {
        return qwp_producer_fail_detached(p, err);
    }
    if (err == NULL) {
        return QWP_AGAIN;
    }
    const bool running = qwp_consumer_state(p) == QWP_CONSUMER_RUNNING;
    return qwp_fail(err, QWP_AGAIN, 0, "%llu of %llu bytes are %s so far%s%s",
                    (unsigned long long)goal->position_now(p), (unsigned long long)goal->position,
                    verb, running ? "" : "; ", running ? "" : qwp_consumer_text(p));
}

enum qwp_result qwp_wait_stored(struct qwp_producer *producer, uint64_t position,
                                int64_t timeout_ns, struct qwp_error *err)
{
    struct goal goal = {producer, position, qwp_position_stored};
    return wait_until(producer, &goal, QWP_WAIT_STORED, timeout_ns, err);
}

enum qwp_result qwp_wait_acked(struct qwp_producer *producer, uint64_t position, int64_t timeout_ns,
                               struct qwp_error *err)
{
    struct goal goal = {producer, position, qwp_position_acked};
    const enum qwp_result result = wait_until(producer, &goal, QWP_WAIT_ACKED, timeout_ns, err);
    if (result != QWP_OK) {
        return result;
    }
    const uint64_t rejected =
        atomic_load_explicit(&producer->ring.header->rejected_rows, memory_order_relaxed);
    const uint64_t fresh = rejected - producer->rejected_told;
    producer->rejected_told = rejected;
    if (fresh == 0) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_REJECTED, 0,
                    "the server refused %llu rows of this producer, which were set aside; the "
                    "sidecar's log and its rejected/ folder say why",
                    (unsigned long long)fresh);
}

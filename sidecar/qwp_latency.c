#include "sidecar/qwp_latency.h"

#include "core/qwp_clock.h"

/* 1, 2.5 and 5 of each decade: what a dashboard can tell apart. */
static const int64_t edges_ns[QWP_CONTROL_LATENCY_BUCKETS] = {
    10000,       25000,       50000,       100000,       250000,        500000,
    1000000,     2500000,     5000000,     10000000,     25000000,      50000000,
    100000000,   250000000,   500000000,   1000000000,   2500000000,    5000000000,
    10000000000, 30000000000, 60000000000, 300000000000, 1800000000000, QWP_NEVER_NS};

int64_t qwp_latency_bucket_ns(uint32_t bucket)
{
    return edges_ns[bucket];
}

static void add_u64(_Atomic uint64_t *at, uint64_t n)
{
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void observe(struct qwp_control_latency *histogram, int64_t ns, uint64_t frames)
{
    uint32_t bucket = 0;
    while (ns > edges_ns[bucket]) {
        bucket++;
    }
    add_u64(&histogram->buckets[bucket], frames);
    add_u64(&histogram->sum_ns, (uint64_t)(ns > 0 ? ns : 0) * frames);
}

static struct qwp_latency_entry *entry_at(struct qwp_latency *latency, uint32_t i)
{
    return &latency->items[(latency->first + i) % QWP_LATENCY_MAX];
}

static void show_oldest(struct qwp_latency *latency)
{
    const int64_t ns = latency->count > 0 ? entry_at(latency, 0)->stored_ns : 0;
    atomic_store_explicit(&latency->page->oldest_ns, ns, memory_order_relaxed);
}

static void entries_thin(struct qwp_latency *latency)
{
    for (uint32_t i = 0; i < QWP_LATENCY_MAX / 2; i++) {
        struct qwp_latency_entry merged = *entry_at(latency, 2 * i);
        merged.fsn = entry_at(latency, 2 * i + 1)->fsn;
        merged.frames += entry_at(latency, 2 * i + 1)->frames;
        *entry_at(latency, i) = merged;
    }
    latency->count = QWP_LATENCY_MAX / 2;
}

static void entry_add(struct qwp_latency *latency, struct qwp_latency_entry entry)
{
    if (latency->count == QWP_LATENCY_MAX) {
        entries_thin(latency);
    }
    *entry_at(latency, latency->count++) = entry;
    if (latency->count == 1) {
        show_oldest(latency);
    }
}

void qwp_latency_init(struct qwp_latency *latency, struct qwp_control_header *page,
                      uint64_t published_count, uint64_t acked_count, int64_t now_ns)
{
    *latency = (struct qwp_latency){.page = page};
    if (published_count > acked_count) {
        entry_add(latency, (struct qwp_latency_entry){
                               .fsn = published_count - 1, .seen_ns = now_ns, .stored_ns = now_ns});
    }
}

void qwp_latency_stored(struct qwp_latency *latency, uint64_t fsn, int64_t seen_ns, int64_t now_ns)
{
    observe(&latency->page->seen_to_stored, now_ns - seen_ns, 1);
    entry_add(latency, (struct qwp_latency_entry){
                           .fsn = fsn, .frames = 1, .seen_ns = seen_ns, .stored_ns = now_ns});
}

void qwp_latency_acked(struct qwp_latency *latency, uint64_t acked_count, int64_t now_ns)
{
    while (latency->count > 0 && entry_at(latency, 0)->fsn < acked_count) {
        const struct qwp_latency_entry *entry = entry_at(latency, 0);
        observe(&latency->page->stored_to_acked, now_ns - entry->stored_ns, entry->frames);
        observe(&latency->page->seen_to_acked, now_ns - entry->seen_ns, entry->frames);
        latency->first = (latency->first + 1) % QWP_LATENCY_MAX;
        latency->count--;
    }
    show_oldest(latency);
}

void qwp_sights_saw(struct qwp_sights *sights, uint64_t head_pos, uint64_t from_pos, int64_t now_ns)
{
    if (from_pos == head_pos) {
        *sights = (struct qwp_sights){.oldest_ns = now_ns};
    } else if (sights->newer_ns == 0) {
        sights->newer_ns = now_ns;
        sights->newer_pos = from_pos;
    }
}

void qwp_sights_took(struct qwp_sights *sights, uint64_t head_pos, uint64_t seen_pos)
{
    if (head_pos == seen_pos) {
        *sights = (struct qwp_sights){0};
    } else if (sights->newer_ns != 0 && head_pos >= sights->newer_pos) {
        *sights = (struct qwp_sights){.oldest_ns = sights->newer_ns};
    }
}

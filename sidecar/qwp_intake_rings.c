/* Rings that come and go: attached when they appear, removed when they are drained and their
 * producer is gone. */
#include "sidecar/qwp_intake.h"

#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"

static const int64_t LOOK_NS_MIN = QWP_NS_PER_MS;
static const int64_t LOOK_NS_MAX = (int64_t)2 * QWP_NS_PER_S;

/* ---- that go ---- */

static void source_remove(struct qwp_intake *intake, uint32_t index)
{
    struct qwp_source *source = intake->sources[index];
    struct qwp_error err;
    qwp_log(QWP_LOG_INFO, "producer gone, ring drained", "ring=%s producer=\"%s\" rows=%llu",
            source->rx.file_name, source->rx.name, (unsigned long long)source->rx.rows_stored);
    if (qwp_ring_remove(&source->rx, intake->dir_fd, &err) != QWP_OK) {
        qwp_log(QWP_LOG_WARN, "ring cannot be removed", "reason=\"%s\"", err.text);
    }
    qwp_cursors_detach(intake->cursors, source->cursor);
    intake->strangers -= source->rx.owner_uid != geteuid();
    qwp_source_close(source);
    intake->sources[index] = intake->sources[--intake->source_count];
}

/* Nothing is left in it, nor published since: while closing, rings are not polled any more, and
 * what their producers still publish is the next sidecar's. */
static bool source_is_drained(struct qwp_source *source)
{
    return source->detached ||
           (source->rx.head_pos == source->rx.tail_seen_pos &&
            atomic_load_explicit(&source->rx.header->tail_pos, memory_order_acquire) ==
                source->rx.tail_seen_pos);
}

bool qwp_intake_orphans_remove(struct qwp_intake *intake)
{
    bool removed = false;
    for (uint32_t i = intake->source_count; i-- > 0;) {
        struct qwp_source *source = intake->sources[i];
        if (source->orphan && source_is_drained(source)) {
            source_remove(intake, i);
            removed = true;
        }
    }
    if (removed && intake->rings_wait && !intake->closing) {
        intake->rings_wait = false;
        qwp_intake_ring_event(intake, NULL);
    }
    return removed;
}

/* The kernel tells of a close a moment before it gives up the lock, and then never again. */
static void orphan_look(struct qwp_intake *intake, struct qwp_source *source)
{
    source->orphan = qwp_ring_is_orphan(&source->rx);
    if (!source->orphan) {
        source->closed = true;
        intake->look_step_ns = LOOK_NS_MIN;
        intake->look_ns = qwp_clock_monotonic_ns() + LOOK_NS_MIN;
    }
}

void qwp_intake_orphans_look(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns)
{
    if (intake->look_ns == 0) {
        return;
    }
    if (now_ns >= intake->look_ns) {
        intake->look_step_ns *= 2;
        intake->look_ns = intake->look_step_ns > LOOK_NS_MAX ? 0 : now_ns + intake->look_step_ns;
        for (uint32_t i = 0; i < intake->source_count; i++) {
            struct qwp_source *source = intake->sources[i];
            if (source->closed && !source->orphan && qwp_ring_is_orphan(&source->rx)) {
                source->orphan = true;
                intake->next_visit_ns = 0;
            }
            source->closed = source->closed && !source->orphan && intake->look_ns != 0;
        }
    }
    if (intake->look_ns != 0) {
        *next_ns = intake->look_ns < *next_ns ? intake->look_ns : *next_ns;
    }
}

/* ---- that come ---- */

static struct qwp_control_producer *free_slot(struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->options.producers_max; i++) {
        struct qwp_control_producer *slot = qwp_control_producer_at(intake->control, i);
        if (atomic_load_explicit(&slot->in_use, memory_order_relaxed) == 0) {
            return slot;
        }
    }
    return NULL;
}

static struct qwp_source *source_find(struct qwp_intake *intake, const char *file_name)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        if (strcmp(intake->sources[i]->rx.file_name, file_name) == 0) {
            return intake->sources[i];
        }
    }
    return NULL;
}

static void attach(struct qwp_intake *intake, const char *file_name)
{
    if (intake->source_count == intake->options.producers_max) {
        qwp_log(QWP_LOG_ERROR, "ring waits: too many producers", "ring=%s producers_max=%u",
                file_name, intake->options.producers_max);
        intake->rings_wait = true;
        return;
    }
    struct qwp_source *source;
    struct qwp_error err;
    const enum qwp_result result =
        qwp_source_open(&source, intake->dir_fd, file_name, &intake->options.ring_limits,
                        intake->cursors, qwp_generations_published(intake->store), &err);
    if (result == QWP_AGAIN) {
        return; /* gone again */
    }
    if (result != QWP_OK) {
        qwp_log(QWP_LOG_ERROR, "ring refused", "ring=%s reason=\"%s\"", file_name, err.text);
        return;
    }
    qwp_source_symbols_share(&source->symbols, intake->options.producer_symbols,
                             intake->options.producer_symbol_bytes);
    qwp_source_show(source, free_slot(intake));
    qwp_bell_attach(intake->bell, &source->rx);
    source->number = intake->next_number++;
    intake->sources[intake->source_count++] = source;
    intake->strangers += source->rx.owner_uid != geteuid();
    intake->figures_changed = true;
    source->orphan = qwp_ring_is_orphan(&source->rx);
    qwp_log(QWP_LOG_INFO, "ring attached", "ring=%s producer=\"%s\" bytes=%llu orphan=%d",
            file_name, source->rx.name, (unsigned long long)source->rx.data_bytes, source->orphan);
}

static void ring_event(void *owner, const char *file_name)
{
    struct qwp_intake *intake = owner;
    struct qwp_source *source = source_find(intake, file_name);
    if (source == NULL) {
        attach(intake, file_name);
    } else if (!source->orphan) {
        orphan_look(intake, source);
    }
    intake->next_visit_ns = 0;
}

void qwp_intake_ring_event(struct qwp_intake *intake, const char *file_name)
{
    if (file_name != NULL) {
        ring_event(intake, file_name);
        return;
    }
    struct qwp_error err;
    if (qwp_rendezvous_scan(intake->dir_fd, ring_event, intake, &err) != QWP_OK) {
        qwp_log(QWP_LOG_ERROR, "rings cannot be listed", "reason=\"%s\"", err.text);
    } else if (!intake->swept) {
        qwp_cursors_sweep(intake->cursors);
        intake->swept = true;
        qwp_generations_rings_resumed(intake->store);
    }
}

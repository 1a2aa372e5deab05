#include "sidecar/qwp_drainer.h"

#include <limits.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_damage.h"

enum { DISCONNECT_GRACE_MS = 1000 };

static enum qwp_result sender_start(struct qwp_drainer *drainer, const char *slot_dir,
                                    const struct qwp_conf *conf, struct qwp_error *err)
{
    drainer->page = aligned_alloc(alignof(struct qwp_control_header), sizeof *drainer->page);
    drainer->sender = calloc(1, sizeof *drainer->sender);
    if (drainer->page == NULL || drainer->sender == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a sender");
    }
    *drainer->page = (struct qwp_control_header){0};
    char rejected_dir[PATH_MAX];
    snprintf(rejected_dir, sizeof rejected_dir, "%s/" QWP_REJECTED_FOLDER, slot_dir);
    const struct qwp_sender_options sending = {
        .loop = drainer->loop,
        .conf = conf,
        .log = drainer->log,
        .page = drainer->page,
        .message_bytes_max = &drainer->message_bytes_max,
        .rejected_dir = rejected_dir,
        .rejected_bytes_max = UINT64_MAX, /* no more than the slot itself */
    };
    return qwp_sender_init(drainer->sender, &sending, err);
}

enum qwp_result qwp_drainer_open(struct qwp_drainer *drainer, const char *slot_dir,
                                 const struct qwp_conf *conf, struct qwp_loop *loop,
                                 struct qwp_error *err)
{
    *drainer = (struct qwp_drainer){
        .loop = loop,
        .message_bytes_max = QWP_MESSAGE_BYTES_DEFAULT,
    };
    /* Opening a log makes its directory; here that would turn a mistyped name into an empty slot.
     */
    if (access(slot_dir, F_OK) != 0) {
        return qwp_fail(err, QWP_INVALID, 0, "%s: no such slot", slot_dir);
    }
    const struct qwp_seglog_options opening = {
        .dir = slot_dir,
        .segment_bytes = conf->sf_segment_bytes,
        .total_bytes_max = conf->sf_total_bytes_max,
        .durability = (enum qwp_durability)conf->sf_durability,
        .sync_interval_ns = conf->sf_sync_interval_ns,
        .payload_crc = true,
        .symbols_max = QWP_DICT_SYMBOLS_MAX,
        .symbol_bytes_max = UINT64_C(256) * 1024 * 1024,
        .may_lack_symbols = true,
        .in_place = true,
    };
    enum qwp_result result = qwp_seglog_open(&drainer->log, &opening, err);
    if (result == QWP_OK) {
        drainer->acked_before = qwp_seglog_acked_count(drainer->log);
        snprintf(drainer->slot_dir, sizeof drainer->slot_dir, "%s", slot_dir);
        qwp_damage_log_recovered(slot_dir, qwp_seglog_recovered(drainer->log));
        result = sender_start(drainer, slot_dir, conf, err);
    }
    if (result != QWP_OK) {
        qwp_drainer_close(drainer);
    }
    return result;
}

static void goodbye(struct qwp_drainer *drainer)
{
    const int64_t grace_ns = (int64_t)DISCONNECT_GRACE_MS * QWP_NS_PER_MS;
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + grace_ns;
    qwp_sender_disconnect(drainer->sender, grace_ns);
    while (!qwp_sender_is_down(drainer->sender) && qwp_clock_monotonic_ns() < deadline_ns) {
        (void)qwp_loop_run(drainer->loop, deadline_ns);
    }
}

void qwp_drainer_close(struct qwp_drainer *drainer)
{
    if (drainer->sender != NULL && drainer->sender->session != NULL) {
        goodbye(drainer);
        qwp_sender_fini(drainer->sender);
    }
    free(drainer->sender);
    free(drainer->page);
    struct qwp_error err;
    if (drainer->log != NULL && qwp_seglog_flush(drainer->log, &err) != QWP_OK) {
        qwp_log(QWP_LOG_WARN, "store could not be synced", "reason=\"%s\"", err.text);
    }
    qwp_seglog_close(drainer->log);
    *drainer = (struct qwp_drainer){0};
}

bool qwp_drainer_do_work(struct qwp_drainer *drainer, int64_t now_ns, int64_t *next_ns)
{
    bool more;
    int64_t keeper_ns;
    const bool worked = qwp_sender_do_work(drainer->sender, now_ns);
    qwp_seglog_maintain(drainer->log, now_ns, &more, &keeper_ns);
    *next_ns = keeper_ns < *next_ns ? keeper_ns : *next_ns;
    struct qwp_seglog_damage damage;
    if (qwp_seglog_take_damage(drainer->log, &damage)) {
        qwp_damage_log_found(drainer->slot_dir, &damage);
        drainer->frames_damaged = damage.is_settled ? damage.frames : 0;
    }
    (void)qwp_seglog_resume(drainer->log);
    return worked || more;
}

bool qwp_drainer_is_done(const struct qwp_drainer *drainer)
{
    return qwp_drainer_count(drainer).waiting == 0;
}

struct qwp_drainer_counts qwp_drainer_count(const struct qwp_drainer *drainer)
{
    const uint64_t acked = qwp_seglog_acked_count(drainer->log);
    return (struct qwp_drainer_counts){
        .delivered = acked - drainer->acked_before - drainer->frames_damaged,
        .waiting = qwp_seglog_published_count(drainer->log) - acked,
        .damaged = drainer->frames_damaged,
        .rows_refused = atomic_load_explicit(&drainer->page->rows_rejected, memory_order_relaxed),
    };
}

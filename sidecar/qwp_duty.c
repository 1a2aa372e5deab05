#include "sidecar/qwp_duty.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_damage.h"

enum {
    REPORT_MS = 100,
    RESCAN_MS = 1000,
    STRANGERS_SLEEP_MS = 50, /* someone else's process could move our futex waiter away */
    BRISK_MS = 2,            /* rows that come at such intervals or shorter ones come often */
    RESTING_MS = 4, /* so long answers, keeper and figures wait for the next rows at most */
    TIDY_US = 1000, /* and while those come, they have their turn so often */
};

/* ---- figures for `status` ---- */

static void store_u64(_Atomic uint64_t *at, uint64_t v)
{
    atomic_store_explicit(at, v, memory_order_relaxed);
}

static void report(struct qwp_duty *duty, int64_t now_ns)
{
    struct qwp_control_header *page = duty->control->header;
    if (duty->intake != NULL) {
        qwp_intake_report(duty->intake);
    }
    if (duty->sender != NULL) {
        struct qwp_seglog_stats stats;
        qwp_generations_stats(duty->store, &stats);
        store_u64(&page->frames_waiting, qwp_generations_waiting(duty->store));
        store_u64(&page->generations, duty->store->count);
        store_u64(&page->store_bytes_max, stats.bytes_total_max);
        store_u64(&page->segments_sealed, stats.segments_sealed);
        store_u64(&page->segments_spare, stats.segments_spare);
        store_u64(&page->segments_recycled, stats.recycled);
        store_u64(&page->bytes_waiting, stats.bytes_waiting);
        store_u64(&page->store_bytes, stats.bytes_total);
        store_u64(&page->rotations, stats.rotations);
        store_u64(&page->rotations_without_spare, stats.rotations_without_spare);
        store_u64(&page->keeper_failures, stats.failures);
        store_u64(&page->sync_failures, stats.sync_failures);
        store_u64(&page->segments_suspect, stats.segments_suspect);
        store_u64(&page->frames_unsynced, stats.unsynced_count);
        struct qwp_session_counters counters;
        qwp_session_count(duty->sender->session, &counters);
        store_u64(&page->bytes_sent, counters.bytes_sent);
        store_u64(&page->bytes_received, counters.bytes_received);
    }
    duty->figures_changed = false;
    duty->report_ns = now_ns + (int64_t)REPORT_MS * QWP_NS_PER_MS;
}

/* For whoever has woken the loop to see whether it lives, and for the service manager's watchdog.
 * Returns when the next one is due. */
static int64_t beat(struct qwp_duty *duty, int64_t now_ns)
{
    atomic_store_explicit(&duty->control->header->beat_ns, now_ns, memory_order_relaxed);
    return duty->notify != NULL ? qwp_notify_beat(duty->notify, now_ns) : QWP_NEVER_NS;
}

/* ---- while rows come often ----
 *
 * A sleeping sidecar that is woken for rows a thousand times a second need not be woken as often
 * again for what the server answers: it is there when the next rows come. And woken ten thousand
 * times a second it need not tidy up each time: take the answers, look after the store, show the
 * figures. */

static int64_t resting_end_ns(int64_t now_ns)
{
    return now_ns + (int64_t)RESTING_MS * QWP_NS_PER_MS;
}

/* Decided once for each time we were woken, and again when there is no sleep for long. */
static void tidy_decide(struct qwp_duty *duty, int64_t now_ns)
{
    if (!duty->tidy &&
        (!duty->brisk || now_ns - duty->tidied_ns >= (int64_t)TIDY_US * QWP_NS_PER_US)) {
        duty->tidy = true;
        duty->tidied_ns = now_ns;
    }
}

static void rows_note(struct qwp_duty *duty, int64_t now_ns)
{
    duty->brisk = now_ns - duty->rows_ns < (int64_t)BRISK_MS * QWP_NS_PER_MS;
    duty->rows_ns = now_ns;
}

/* Before sleeping. Who waits for an acknowledgement a moment later has it with the next rows. */
static void answers_rest(struct qwp_duty *duty, int64_t now_ns)
{
    if (duty->sender != NULL && duty->brisk && !qwp_intake_wants_answers(duty->intake) &&
        qwp_sender_may_rest(duty->sender)) {
        duty->resting_ns = resting_end_ns(now_ns);
        duty->rested = true;
        qwp_session_receive_on_demand(duty->sender->session, true);
    } else if (duty->resting_ns != 0) {
        duty->resting_ns = now_ns;
    }
}

/* True: they come as they do, from now on. */
static bool answers_are_due(struct qwp_duty *duty, int64_t now_ns)
{
    if (duty->resting_ns == 0 || now_ns < duty->resting_ns) {
        return false;
    }
    duty->resting_ns = 0;
    qwp_session_receive_on_demand(duty->sender->session, false);
    return true;
}

/* With the rows. */
static void answers_take(struct qwp_duty *duty, int64_t now_ns)
{
    if (!answers_are_due(duty, now_ns) && duty->rested && duty->tidy) {
        duty->rested = false;
        qwp_session_receive(duty->sender->session);
    }
}

/* ---- what wakes a parked duty ---- */

static void on_bell(struct qwp_op *op, int outcome, bool more)
{
    struct qwp_duty *duty = op->owner;
    (void)more;
    duty->woken |= outcome != -ECANCELED;
}

/* The futex wait stays armed across park and unpark; it is armed only while the epoch is even. */
static void bell_arm(struct qwp_duty *duty)
{
    if (duty->bell_op.in_flight) {
        return;
    }
    duty->bell_op.fn = on_bell;
    duty->bell_op.owner = duty;
    if (duty->bell->fifo_fd >= 0) {
        qwp_loop_poll(duty->loop, &duty->bell_op, duty->bell->fifo_fd, POLLIN, false);
    } else {
        uint32_t expected;
        const uint32_t *word = qwp_bell_word(duty->bell, &expected);
        qwp_loop_futex_wait(duty->loop, &duty->bell_op, word, expected);
    }
}

static void on_ring_event(void *owner, const char *file_name)
{
    qwp_intake_ring_event(owner, file_name);
}

static void on_inotify(struct qwp_op *op, int outcome, bool more)
{
    struct qwp_duty *duty = op->owner;
    if (outcome < 0) {
        return; /* cancelled */
    }
    alignas(struct inotify_event) char events[16 * 1024];
    ssize_t len;
    while ((len = read(duty->inotify_fd, events, sizeof events)) > 0) {
        qwp_rendezvous_events(events, (size_t)len, on_ring_event, duty->intake);
    }
    if (!more) {
        qwp_loop_poll(duty->loop, op, duty->inotify_fd, POLLIN, true);
    }
    duty->woken = true;
}

static void watch_start(struct qwp_duty *duty)
{
    if (duty->inotify_fd >= 0) {
        duty->inotify_op.fn = on_inotify;
        duty->inotify_op.owner = duty;
        qwp_loop_poll(duty->loop, &duty->inotify_op, duty->inotify_fd, POLLIN, true);
    }
    qwp_intake_ring_event(duty->intake, NULL);
}

/* ---- the workers ---- */

/* What the keeper cannot do, in `status` and, once, in the log. A spare that cannot be made is
 * intake's to tell: it does, when it needs the room. */
static void alarm_show(struct qwp_duty *duty)
{
    struct qwp_control_header *page = duty->control->header;
    const enum qwp_keeper_state state = qwp_generations_keeper_state(duty->store);
    if (state == duty->keeper_state) {
        return;
    }
    const char *text =
        state == QWP_KEEPER_WELL ? "" : qwp_generations_keeper_error(duty->store)->text;
    qwp_shared_text_set(page->keeper_error, sizeof page->keeper_error, text);
    atomic_store_explicit(&page->keeper_failing, state != QWP_KEEPER_WELL, memory_order_relaxed);
    if (state == QWP_KEEPER_FAILING) {
        qwp_log(QWP_LOG_ERROR, "store: housekeeping fails; it is tried again", "reason=\"%s\"",
                text);
    } else if (duty->keeper_state == QWP_KEEPER_FAILING) {
        qwp_log(QWP_LOG_INFO, "store: housekeeping works again", "");
    }
    duty->keeper_state = state;
}

/* What the check of frames has found. */
static void damage_show(struct qwp_duty *duty)
{
    struct qwp_seglog_damage damage;
    const char *name;
    while (qwp_generations_take_damage(duty->store, &damage, &name)) {
        char store[PATH_MAX + QWP_GENERATION_NAME_BYTES];
        snprintf(store, sizeof store, "%s/%s", duty->store->shown, name);
        qwp_damage_log_found(store, &damage);
    }
}

static bool keep(struct qwp_duty *duty, int64_t now_ns, int64_t *next_ns)
{
    const bool made = qwp_housework_collect(duty->housework);
    const bool collected = qwp_housework_collect(duty->reading) || made;
    const bool asked = qwp_generations_take_news(duty->store);
    const uint64_t published = qwp_generations_published(duty->store);
    const uint64_t acked = qwp_generations_acked(duty->store);
    const bool moved = published != duty->published_seen || acked != duty->acked_seen;
    if (!(moved && duty->tidy) && !collected && !asked &&
        !qwp_generations_wants_check(duty->store) && now_ns < duty->keeper_ns) {
        *next_ns = qwp_sooner_ns(*next_ns, duty->keeper_ns);
        *next_ns = qwp_sooner_ns(*next_ns, moved ? resting_end_ns(now_ns) : QWP_NEVER_NS);
        return false;
    }
    duty->published_seen = published;
    duty->acked_seen = acked;
    bool more;
    bool began;
    qwp_generations_maintain(duty->store, now_ns, &more, &duty->keeper_ns, &began);
    if (began && duty->peer != NULL) {
        qwp_loop_wake(duty->peer);
    }
    alarm_show(duty);
    damage_show(duty);
    duty->figures_changed = true;
    if (more) {
        duty->keeper_ns = 0;
    }
    *next_ns = qwp_sooner_ns(*next_ns, duty->keeper_ns);
    return more;
}

static void wake_peer(struct qwp_duty *duty, uint64_t published_before)
{
    if (duty->peer != NULL && (qwp_generations_published(duty->store) != published_before ||
                               qwp_generations_has_news(duty->store))) {
        qwp_loop_wake(duty->peer);
    }
}

/* The signal woke our loop; it is the sender's, on another thread, that has to look. */
static void hangup_forward(struct qwp_duty *duty)
{
    if (duty->sender == NULL && atomic_load_explicit(&duty->ending->hangup, memory_order_relaxed)) {
        qwp_loop_wake(duty->peer);
    }
}

static bool intake_step(struct qwp_duty *duty, int64_t now_ns, int64_t *next_ns)
{
    if (duty->inotify_fd < 0) {
        if (now_ns >= duty->rescan_ns) {
            qwp_intake_ring_event(duty->intake, NULL);
            duty->rescan_ns = now_ns + (int64_t)RESCAN_MS * QWP_NS_PER_MS;
        }
        *next_ns = qwp_sooner_ns(*next_ns, duty->rescan_ns);
    }
    const uint64_t published = qwp_generations_published(duty->store);
    const bool worked = qwp_intake_do_work(duty->intake, now_ns, next_ns);
    if (qwp_generations_published(duty->store) != published) {
        rows_note(duty, now_ns);
    }
    wake_peer(duty, published);
    return worked;
}

/* A start that wants a server to be there, and finds none, is an end. */
static void first_connect_judge(struct qwp_duty *duty, int64_t now_ns, int64_t *next_ns)
{
    switch (qwp_sender_first(duty->sender, now_ns, next_ns)) {
    case QWP_FIRST_PENDING:
        return;
    case QWP_FIRST_DONE:
        duty->ready(duty->owner);
        break;
    case QWP_FIRST_FAILED:
        atomic_store_explicit(&duty->ending->no_server, true, memory_order_relaxed);
        atomic_fetch_add_explicit(&duty->ending->signals, 2, memory_order_relaxed); /* at once */
        if (duty->peer != NULL) {
            qwp_loop_wake(duty->peer);
        }
        break;
    }
    duty->first_settled = true;
}

static bool sender_step(struct qwp_duty *duty, int64_t now_ns, int64_t *next_ns)
{
    if (!duty->first_settled) {
        first_connect_judge(duty, now_ns, next_ns);
    }
    if (atomic_load_explicit(&duty->ending->hangup, memory_order_relaxed)) {
        atomic_store_explicit(&duty->ending->hangup, false, memory_order_relaxed);
        qwp_sender_retry_now(duty->sender);
    }
    const bool sent = qwp_sender_do_work(duty->sender, now_ns);
    if (sent && !duty->keeper_late) {
        duty->keeper_late = true; /* what was sent is on its way first */
        return true;
    }
    duty->keeper_late = false;
    const bool kept = keep(duty, now_ns, next_ns);
    *next_ns = qwp_sooner_ns(*next_ns, qwp_log_flush(now_ns));
    return sent || kept;
}

/* ---- the end ---- */

static bool all_acked(const struct qwp_duty *duty)
{
    return qwp_generations_waiting(duty->store) == 0;
}

/* With intake: true when this was the last cycle. */
static bool end_step(struct qwp_duty *duty, int64_t now_ns, int64_t *next_ns)
{
    const int signals = atomic_load_explicit(&duty->ending->signals, memory_order_relaxed);
    duty->signals_seen = signals;
    if (signals == 0) {
        return false;
    }
    if (duty->end_ns == 0) {
        duty->end_ns = now_ns + duty->ending->grace_ns;
        atomic_store_explicit(&duty->ending->end_ns, duty->end_ns, memory_order_relaxed);
        atomic_store_explicit(&duty->control->header->state, QWP_SIDECAR_CLOSING,
                              memory_order_relaxed);
        qwp_intake_close_rings(duty->intake);
        if (duty->notify != NULL) {
            qwp_notify_send(duty->notify, "STOPPING=1");
        }
        qwp_log(QWP_LOG_INFO, "closing: taking what is in the rings, waiting for acknowledgements",
                "frames_waiting=%llu grace_ms=%lld",
                (unsigned long long)qwp_generations_waiting(duty->store),
                (long long)(duty->ending->grace_ns / QWP_NS_PER_MS));
    }
    *next_ns = qwp_sooner_ns(*next_ns, duty->end_ns);
    return signals > 1 || now_ns >= duty->end_ns ||
           (qwp_intake_is_drained(duty->intake) && all_acked(duty));
}

static bool is_over(struct qwp_duty *duty)
{
    return atomic_load_explicit(&duty->ending->finish, memory_order_acquire);
}

static void finish(struct qwp_duty *duty)
{
    report(duty, qwp_clock_monotonic_ns());
    atomic_store_explicit(&duty->ending->finish, true, memory_order_release);
    if (duty->peer != NULL) {
        qwp_loop_wake(duty->peer);
    }
}

/* ---- the cycle ---- */

static bool intake_wants_to_work(const struct qwp_duty *duty, int64_t next_intake_ns,
                                 int64_t now_ns)
{
    return duty->woken || now_ns >= next_intake_ns || qwp_intake_may_retry(duty->intake) ||
           atomic_load_explicit(&duty->ending->signals, memory_order_relaxed) != duty->signals_seen;
}

/* Sleeps with the epoch odd. Network and acknowledgements are served without leaving the park: only
 * rows (or their time, next_intake_ns) end it. */
static void park(struct qwp_duty *duty, int64_t now_ns, int64_t next_intake_ns, int64_t next_ns)
{
    bell_arm(duty);
    qwp_loop_submit(duty->loop); /* armed before "parked" can be seen */
    const bool brief =
        duty->intake->lingering && next_intake_ns - now_ns <= (int64_t)QWP_BELL_UNSURE_NS;
    const bool sure = qwp_bell_park(duty->bell, duty->intake->lingering, brief);
    duty->woken |= qwp_intake_has_news(duty->intake);
    now_ns = qwp_clock_monotonic_ns();
    if (!sure) {
        next_intake_ns = qwp_sooner_ns(next_intake_ns, now_ns + QWP_BELL_UNSURE_NS);
    }
    /* Nobody but us reads the FIFO. */
    if (duty->bell->fifo_fd < 0 && qwp_intake_has_strangers(duty->intake)) {
        next_intake_ns =
            qwp_sooner_ns(next_intake_ns, now_ns + (int64_t)STRANGERS_SLEEP_MS * QWP_NS_PER_MS);
    }
    answers_rest(duty, now_ns);
    while (!intake_wants_to_work(duty, next_intake_ns, now_ns) && !is_over(duty)) {
        if (!answers_are_due(duty, now_ns) && duty->resting_ns != 0) {
            next_ns = qwp_sooner_ns(next_ns, duty->resting_ns);
        }
        (void)qwp_loop_run(duty->loop, qwp_sooner_ns(next_ns, next_intake_ns));
        if (duty->woken) {
            break; /* what else has happened is looked at behind the rows */
        }
        duty->tidy = true;
        hangup_forward(duty);
        now_ns = qwp_clock_monotonic_ns();
        next_ns = QWP_NEVER_NS;
        qwp_intake_settle(duty->intake, now_ns); /* first: a producer may wait for it */
        if (duty->sender != NULL) {
            while (sender_step(duty, now_ns, &next_ns) && !duty->woken) {
                (void)qwp_loop_run(duty->loop, 0);
                next_ns = QWP_NEVER_NS;
            }
        }
        qwp_intake_settle(duty->intake, now_ns);
        next_ns = qwp_sooner_ns(next_ns, beat(duty, now_ns));
        if (duty->intake->figures_changed || duty->figures_changed) {
            report(duty, now_ns);
        }
        if (duty->end_ns != 0 && all_acked(duty)) {
            break;
        }
    }
    if (duty->woken) {
        store_u64(&duty->control->header->wakeups,
                  atomic_load_explicit(&duty->control->header->wakeups, memory_order_relaxed) + 1);
    }
    qwp_bell_unpark(duty->bell);
    duty->woken = false;
    duty->tidy = false;
}

static void rest(struct qwp_duty *duty, int64_t now_ns, int64_t next_intake_ns, int64_t next_ns)
{
    if (duty->intake != NULL && (duty->intake->figures_changed || duty->figures_changed)) {
        if (duty->tidy) {
            report(duty, now_ns);
        } else {
            next_ns = qwp_sooner_ns(next_ns, resting_end_ns(now_ns));
        }
    }
    if (duty->intake != NULL) {
        park(duty, now_ns, next_intake_ns, next_ns);
    } else {
        report(duty, now_ns);
        (void)qwp_loop_run(duty->loop, next_ns);
    }
}

/* The operations live in the duty: none may outlast it. */
static void operations_end(struct qwp_duty *duty)
{
    qwp_loop_cancel(duty->loop, &duty->bell_op);
    qwp_loop_cancel(duty->loop, &duty->inotify_op);
    while (duty->bell_op.in_flight || duty->inotify_op.in_flight) {
        (void)qwp_loop_run(duty->loop, QWP_NEVER_NS);
    }
}

static void cycle(struct qwp_duty *duty)
{
    while (!is_over(duty)) {
        const int64_t now_ns = qwp_clock_monotonic_ns();
        tidy_decide(duty, now_ns);
        int64_t next_intake_ns = QWP_NEVER_NS;
        int64_t next_ns = QWP_NEVER_NS;
        bool worked = false;
        if (duty->intake != NULL) {
            next_ns = qwp_sooner_ns(next_ns, beat(duty, now_ns));
            hangup_forward(duty);
            worked |= intake_step(duty, now_ns, &next_intake_ns);
        }
        if (duty->sender != NULL) {
            worked |= sender_step(duty, now_ns, &next_ns);
        }
        if (duty->intake != NULL && end_step(duty, now_ns, &next_intake_ns)) {
            finish(duty);
            return;
        }
        if (!worked && !duty->spin) {
            rest(duty, now_ns, next_intake_ns, next_ns);
            continue;
        }
        if (now_ns >= duty->report_ns) {
            report(duty, now_ns);
        }
        if (duty->resting_ns != 0) {
            answers_take(duty, now_ns);
        }
        if (duty->intake != NULL && !duty->spin) {
            bell_arm(duty); /* on the way with what was sent: the park need not enter for it */
        }
        (void)qwp_loop_run(duty->loop, 0);
    }
}

void qwp_duty_run(struct qwp_duty *duty)
{
    if (duty->intake != NULL) {
        watch_start(duty);
    }
    cycle(duty);
    operations_end(duty);
}

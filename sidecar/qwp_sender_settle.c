#include "core/qwp_clock.h"
#include "sidecar/qwp_sender_internal.h"

void qwp_sender_settle(struct qwp_sender *sender, uint64_t fsn_end)
{
    sender->backoff_ns = sender->options.conf->backoff_ns_min;
    sender->acked = true;
    qwp_sender_outage_end(sender);
    if (fsn_end == 0) {
        return;
    }
    struct qwp_reject *reject = &sender->reject;
    struct qwp_error err;
    /* What was set aside of these frames is to be as safe as they were. */
    if (qwp_rejected_flush(&reject->folder, &err) != QWP_OK) {
        reject->settle_end = fsn_end > reject->settle_end ? fsn_end : reject->settle_end;
        qwp_sender_aside_failed(sender, err.text);
        return;
    }
    qwp_sender_add(&sender->options.page->frames_acked,
                   fsn_end - qwp_seglog_acked_count(sender->options.log));
    if (sender->options.generations != NULL) {
        qwp_generations_ack(sender->options.generations, fsn_end - 1);
    } else {
        qwp_seglog_ack(sender->options.log, fsn_end - 1);
    }
    qwp_blame_settle(&reject->blame, fsn_end);
    atomic_store_explicit(&sender->options.page->progress_ns, qwp_clock_monotonic_ns(),
                          memory_order_relaxed);
    if (sender->options.intake_loop != NULL) {
        qwp_loop_wake(sender->options.intake_loop);
    }
}

/* ---- durable acknowledgements ---- */

static uint64_t bytes_sent(const struct qwp_sender *sender)
{
    struct qwp_session_counters counters;
    qwp_session_count(sender->session, &counters);
    return counters.bytes_sent;
}

/* While something waits to become durable and nothing else goes out, a ping makes the server say
 * how far it is. */
static void ask_later(struct qwp_sender *sender)
{
    const int64_t interval_ns = sender->options.conf->durable_ack_keepalive_ns;
    if (interval_ns > 0 && !sender->durable_timer.in_flight &&
        qwp_durable_is_waiting(&sender->durable)) {
        sender->durable_bytes_sent = bytes_sent(sender);
        qwp_loop_timer(sender->options.loop, &sender->durable_timer,
                       qwp_clock_monotonic_ns() + interval_ns);
    }
}

void qwp_sender_on_durable_timer(struct qwp_op *op, int outcome, bool more)
{
    struct qwp_sender *sender = op->owner;
    (void)more;
    if (outcome != 0 || sender->state != QWP_SENDER_UP) {
        return;
    }
    if (qwp_durable_is_waiting(&sender->durable) &&
        bytes_sent(sender) == sender->durable_bytes_sent) {
        qwp_session_ping(sender->session);
    }
    ask_later(sender);
}

static void durable_settle(struct qwp_sender *sender, enum qwp_result result)
{
    if (result != QWP_OK) {
        qwp_sender_outage_note(sender,
                               "more tables than can be followed to their durable acknowledgement");
        qwp_session_disconnect(sender->session, 0);
        return;
    }
    const uint64_t fsn_end = qwp_durable_release(&sender->durable);
    if (fsn_end != 0) {
        qwp_sender_settle(sender, fsn_end);
    }
    ask_later(sender);
}

void qwp_sender_settle_ok(struct qwp_sender *sender, uint64_t fsn_end, const unsigned char *tables,
                          size_t tables_bytes, uint16_t table_count)
{
    if (sender->session_options.durable_ack) {
        durable_settle(
            sender, qwp_durable_ok(&sender->durable, fsn_end, tables, tables_bytes, table_count));
    } else {
        qwp_sender_settle(sender, fsn_end);
    }
}

void qwp_sender_settle_durable(struct qwp_sender *sender, const unsigned char *tables,
                               size_t tables_bytes, uint16_t table_count)
{
    if (sender->session_options.durable_ack) {
        durable_settle(sender,
                       qwp_durable_confirm(&sender->durable, tables, tables_bytes, table_count));
    }
}

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_sender_internal.h"

enum { GOODBYE_MS = 1000, RETRY_MS = 1000 };

static void step(struct qwp_sender *sender, int64_t now_ns)
{
    struct qwp_error err;
    if (qwp_generations_step(sender->options.generations, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text);
        qwp_sender_attempt_at(sender, now_ns + (int64_t)RETRY_MS * QWP_NS_PER_MS);
        return;
    }
    sender->options.log = qwp_generations_reader(sender->options.generations);
    sender->cursor = (struct qwp_seglog_cursor){0};
    qwp_log(QWP_LOG_INFO, "sending the next generation", "generation=%u symbols=%u",
            sender->options.generations->reader->number,
            qwp_dict_count(qwp_seglog_dict(sender->options.log)));
}

bool qwp_sender_turn(struct qwp_sender *sender, int64_t now_ns)
{
    if (sender->options.generations == NULL || sender->turning ||
        sender->state == QWP_SENDER_CLOSING ||
        !qwp_generations_is_drained(sender->options.generations)) {
        return false;
    }
    if (sender->state == QWP_SENDER_UP) {
        sender->turning = true;
        qwp_session_disconnect(sender->session, (int64_t)GOODBYE_MS * QWP_NS_PER_MS);
        return true;
    }
    if (sender->state == QWP_SENDER_WAITING && now_ns < sender->attempt_ns) {
        return false; /* the dictionary could not be read, for one */
    }
    step(sender, now_ns);
    return true;
}

bool qwp_sender_turned(struct qwp_sender *sender)
{
    if (!sender->turning) {
        return false;
    }
    sender->turning = false;
    qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns());
    return true;
}

#include <stdio.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_answer.h"
#include "sidecar/qwp_sender_internal.h"

enum {
    PROBE_MIN_S = 1, /* between two probes of a blocked table, doubling ... */
    PROBE_MAX_S = 60,
    LEARNED_BYTES_MIN = 64,
    LEARNED_MESSAGES = 1000, /* taken, until larger ones are tried again */
    /* After a table was blocked for a reason that may pass, and nothing was taken since, it may
     * well be the server: so many times longer until the next one is blocked. */
    SICK_SERVER_PATIENCE = 10,
};

static const char *name_of(uint8_t status)
{
    return qwp_answer_name(qwp_answer_index(status));
}

/* ---- taken ---- */

static void part_taken(struct qwp_sender *sender, const struct qwp_in_flight *message)
{
    struct qwp_reject *reject = &sender->reject;
    /* Not durable yet: the frame would have to be sent again. */
    if (!sender->session_options.durable_ack) {
        (void)qwp_blame_set_done(&reject->blame, message->fsn, message->table_hash,
                                 message->rows_end);
    }
    if (message->rows_end != QWP_DONE_ALL) {
        return;
    }
    for (size_t i = 0; i < reject->blame.table_count; i++) {
        if (reject->blame.tables[i].hash == message->table_hash) {
            qwp_sender_mended(sender, &reject->blame.tables[i]);
            return;
        }
    }
}

static void rest_taken(struct qwp_sender *sender, const struct qwp_in_flight *message)
{
    struct qwp_reject *reject = &sender->reject;
    if (reject->plan.fsn != message->fsn || !reject->plan.active ||
        sender->session_options.durable_ack) {
        return; /* nothing of this frame can be refused any more */
    }
    for (uint32_t i = 0; i < reject->split.table_count; i++) {
        if (reject->plan.in_rest[i]) {
            (void)qwp_blame_set_done(&reject->blame, message->fsn, reject->split.tables[i].hash,
                                     QWP_DONE_ALL);
        }
    }
}

/* What was learned may have been chance, or the server is another one by now. */
static void size_forget(struct qwp_reject *reject, int64_t taken)
{
    reject->learned_taken += (uint64_t)taken;
    if (reject->learned_bytes != 0 && reject->learned_taken >= LEARNED_MESSAGES) {
        reject->learned_taken = 0;
        reject->learned_bytes *= 2;
        reject->learned_bytes =
            reject->learned_bytes < reject->announced_bytes ? reject->learned_bytes : 0;
    }
}

void qwp_sender_note_taken(struct qwp_sender *sender, int64_t sequence)
{
    size_forget(&sender->reject, sequence + 1 - sender->first_sequence);
    for (int64_t i = sender->first_sequence; i <= sequence; i++) {
        const struct qwp_in_flight *message = qwp_sender_in_flight_at(sender, i);
        if (message->kind == QWP_MESSAGE_PART) {
            part_taken(sender, message);
        } else if (message->kind == QWP_MESSAGE_REST) {
            rest_taken(sender, message);
        }
        if (message->kind < QWP_MESSAGE_EMPTY) {
            sender->reject.blocked_in_vain = 0;
            sender->reject.gaps = 0;
        }
    }
}

/* ---- refused ---- */

static uint8_t policy_of(const struct qwp_conf *conf, uint8_t status)
{
    switch (status) {
    case QWP_STATUS_SCHEMA_MISMATCH:
        return conf->on_schema_error;
    case QWP_STATUS_PARSE_ERROR:
        return conf->on_parse_error;
    case QWP_STATUS_INTERNAL_ERROR:
        return conf->on_internal_error;
    case QWP_STATUS_SECURITY_ERROR:
        return conf->on_security_error;
    case QWP_STATUS_WRITE_ERROR:
        return conf->on_write_error;
    default:
        return conf->on_server_error;
    }
}

/* Whether the same rows may be taken another time. */
static bool may_pass(uint8_t policy, uint8_t status)
{
    if (policy != QWP_ON_ERROR_AUTO) {
        return policy != QWP_ON_ERROR_TERMINAL;
    }
    return status != QWP_STATUS_SCHEMA_MISMATCH && status != QWP_STATUS_PARSE_ERROR &&
           status != QWP_STATUS_SECURITY_ERROR;
}

/* Where to go with what may pass: `here` says when, unless the policy names another endpoint. */
static enum qwp_reject_next elsewhere_or(uint8_t policy, enum qwp_reject_next here)
{
    return policy == QWP_ON_ERROR_RETRIABLE_OTHER ? QWP_REJECT_ELSEWHERE : here;
}

static void block(struct qwp_sender *sender, struct qwp_blame_table *table, int64_t now_ns)
{
    const int64_t most = (int64_t)PROBE_MAX_S * QWP_NS_PER_S;
    const int64_t least = (int64_t)PROBE_MIN_S * QWP_NS_PER_S;
    const bool again = table->state == QWP_BLAME_BLOCKED;
    const int64_t wait =
        again && table->probe_interval_ns > 0 ? table->probe_interval_ns * 2 : least;
    table->probe_interval_ns = qwp_sooner_ns(wait, most);
    table->probe_ns = now_ns + table->probe_interval_ns;
    table->state = QWP_BLAME_BLOCKED;
    qwp_log(again ? QWP_LOG_DEBUG : QWP_LOG_ERROR,
            again ? "table still refused" : "table blocked: its rows are set aside, others go on",
            "table=\"%s\" status=%s reason=\"%s\" frame=%llu folder=%s", table->name,
            name_of(table->status), table->text, (unsigned long long)table->fsn,
            sender->reject.folder.dir);
}

/* The rows of one table were refused, by themselves. */
static enum qwp_reject_next blame(struct qwp_sender *sender, struct qwp_name name, uint64_t hash,
                                  uint8_t status, const char *text)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_conf *conf = sender->options.conf;
    const uint8_t policy = policy_of(conf, status);
    const int64_t now_ns = qwp_clock_monotonic_ns();
    struct qwp_blame_table *table = qwp_blame_add(&reject->blame, name, hash);
    if (table == NULL) {
        return QWP_REJECT_LATER;
    }
    if (table->fsn != reject->plan.fsn || table->rejections == 0) {
        table->fsn = reject->plan.fsn;
        table->rejections = 0;
        table->first_ns = now_ns;
    }
    table->rejections++;
    table->status = status;
    snprintf(table->text, sizeof table->text, "%s", text);
    const bool passes = may_pass(policy, status);
    const int64_t window =
        conf->poison_window_ns_min * (reject->blocked_in_vain > 0 ? SICK_SERVER_PATIENCE : 1);
    const bool proven =
        table->rejections >= conf->frame_rejections_max && now_ns - table->first_ns >= window;
    if (table->state == QWP_BLAME_BLOCKED || !passes || proven) {
        reject->blocked_in_vain += passes && table->state != QWP_BLAME_BLOCKED;
        block(sender, table, now_ns);
        qwp_sender_show_tables(sender);
        return QWP_REJECT_AT_ONCE;
    }
    qwp_sender_show_tables(sender);
    return elsewhere_or(policy, table->rejections == 1 ? QWP_REJECT_AT_ONCE : QWP_REJECT_LATER);
}

/* A message of several tables, or of nobody knows how many: it goes again in parts. */
static enum qwp_reject_next take_apart(struct qwp_sender *sender,
                                       const struct qwp_in_flight *message, uint8_t status,
                                       const char *text)
{
    if (!qwp_blame_set_split(&sender->reject.blame, message->fsn)) {
        return QWP_REJECT_LATER;
    }
    qwp_log(QWP_LOG_WARN, "message refused: it is sent again table by table",
            "frame=%llu status=%s reason=\"%s\"", (unsigned long long)message->fsn, name_of(status),
            text);
    return elsewhere_or(policy_of(sender->options.conf, status), QWP_REJECT_AT_ONCE);
}

static enum qwp_reject_next judge(struct qwp_sender *sender, const struct qwp_in_flight *message,
                                  uint8_t status, const char *text)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_plan *plan = &reject->plan;
    if (status == QWP_STATUS_NOT_WRITABLE) {
        return QWP_REJECT_ELSEWHERE;
    }
    if (status == QWP_STATUS_DICTIONARY_GAP) { /* each connection begins with registering all */
        return reject->gaps++ == 0 ? QWP_REJECT_AT_ONCE : QWP_REJECT_LATER;
    }
    const uint8_t policy = policy_of(sender->options.conf, status);
    if (policy == QWP_ON_ERROR_TERMINAL) {
        return QWP_REJECT_STOP;
    }
    if (message->kind >= QWP_MESSAGE_EMPTY) {
        return elsewhere_or(policy, QWP_REJECT_LATER); /* nothing in it could be left out */
    }
    if (message->kind == QWP_MESSAGE_PART && plan->active && plan->fsn == message->fsn) {
        if (reject->split.table_count == 0) {
            return blame(sender, qwp_sender_opaque_name(), message->table_hash, status, text);
        }
        for (uint32_t i = 0; i < reject->split.table_count; i++) {
            const struct qwp_split_table *table = &reject->split.tables[i];
            if (table->hash == message->table_hash) {
                return blame(sender, table->name, table->hash, status, text);
            }
        }
    }
    return take_apart(sender, message, status, text);
}

void qwp_sender_refused(struct qwp_sender *sender, int64_t sequence, uint8_t status,
                        const char *text, size_t len)
{
    const struct qwp_in_flight *message = qwp_sender_in_flight_at(sender, sequence);
    char shown[QWP_CONTROL_TEXT_BYTES];
    snprintf(shown, sizeof shown, "server answered %s: %.*s", name_of(status), (int)len, text);
    qwp_sender_show_error(sender, shown);
    qwp_sender_add(&sender->options.page->server_errors, 1);
    qwp_sender_add(&sender->options.page->answers[qwp_answer_index(status)], 1);
    char reason[QWP_CONTROL_TEXT_BYTES];
    snprintf(reason, sizeof reason, "%.*s", (int)len, text);
    const enum qwp_reject_next next = judge(sender, message, status, reason);
    if (sender->reject.next == QWP_REJECT_NOTHING) {
        sender->reject.next = next;
    }
    if (next == QWP_REJECT_STOP) {
        qwp_log(QWP_LOG_ERROR,
                "stopped, as on_*_error=terminal asks: everything is kept and nothing is sent; "
                "SIGHUP tries again",
                "frame=%lld answer=\"%s\"", (long long)message->fsn, shown);
    } else if (next == QWP_REJECT_LATER || next == QWP_REJECT_ELSEWHERE) {
        qwp_log(QWP_LOG_WARN, "message refused; it is sent again", "frame=%lld answer=\"%s\"",
                (long long)message->fsn, shown);
    }
}

/* ---- the connection is down ---- */

/* Too large, though within what was announced. Which one it was is not said: the largest is. */
static enum qwp_reject_next learn_size(struct qwp_sender *sender)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_in_flight *largest = NULL;
    for (int64_t i = sender->first_sequence; i < sender->next_sequence; i++) {
        const struct qwp_in_flight *message = qwp_sender_in_flight_at(sender, i);
        largest = largest == NULL || message->len > largest->len ? message : largest;
    }
    if (largest == NULL) {
        return QWP_REJECT_NOTHING;
    }
    const struct qwp_plan *plan = &reject->plan;
    if (largest->kind == QWP_MESSAGE_PART && plan->active && plan->hold &&
        plan->fsn == largest->fsn && largest->len > qwp_sender_bytes_max(sender)) {
        /* One row, and nothing else on its way. */
        reject->has_too_big = true;
        reject->too_big_fsn = largest->fsn;
        reject->too_big_hash = largest->table_hash;
        reject->too_big_row = reject->single_row_at;
        return QWP_REJECT_AT_ONCE;
    }
    const size_t half = largest->len / 2;
    if (half >= qwp_sender_bytes_max(sender) || half < LEARNED_BYTES_MIN) {
        return QWP_REJECT_NOTHING;
    }
    reject->learned_bytes = half;
    reject->learned_taken = 0;
    qwp_log(QWP_LOG_WARN, "server takes no message of this size; larger ones are taken apart",
            "refused_bytes=%zu announced_bytes=%zu trying_bytes=%zu", largest->len,
            reject->announced_bytes, half);
    return QWP_REJECT_AT_ONCE;
}

void qwp_sender_judge_down(struct qwp_sender *sender, const struct qwp_session_down *down)
{
    enum { TOO_BIG = 1009 };
    if (down->was_up && down->close_code == TOO_BIG && sender->reject.next == QWP_REJECT_NOTHING) {
        sender->reject.next = learn_size(sender);
    }
}

bool qwp_sender_refused_down(struct qwp_sender *sender)
{
    const enum qwp_reject_next next = sender->reject.next;
    sender->reject.next = QWP_REJECT_NOTHING;
    switch (next) {
    case QWP_REJECT_NOTHING:
        return false;
    case QWP_REJECT_AT_ONCE:
        sender->reject.quiet = true;
        qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns());
        return true;
    case QWP_REJECT_LATER:
        qwp_sender_attempt_later(sender);
        return true;
    case QWP_REJECT_ELSEWHERE:
        qwp_sender_endpoint_next(sender);
        return true;
    case QWP_REJECT_STOP:
        sender->state = QWP_SENDER_STOPPED;
        return true;
    }
    return false;
}

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_sender_internal.h"

enum {
    RESTING_MAX = 64, /* so many acknowledgements may be due while nobody listens */
    /* So long may a server that reads leave messages without an answer; doubled each time that it
     * was in vain, as it may be slow. */
    SILENCE_MIN_S = 20,
    SILENCE_MAX_S = 320,
};

/* ---- what the session says ---- */

static void on_up(void *owner, size_t message_bytes_max)
{
    struct qwp_sender *sender = owner;
    atomic_store_explicit(sender->options.message_bytes_max, message_bytes_max,
                          memory_order_relaxed);
    if (sender->reject.announced_bytes != message_bytes_max) {
        sender->reject.announced_bytes = message_bytes_max;
        sender->reject.learned_bytes = 0;
    }
    sender->state = QWP_SENDER_UP;
    sender->acked = false;
    sender->first_sequence = sender->next_sequence = 0;
    sender->catch_up_next = 0;
    sender->catch_up_end = qwp_dict_count(qwp_seglog_dict(sender->options.log));
    sender->silent_ns = 0;
    qwp_durable_reset(&sender->durable);
    qwp_seglog_rewind(sender->options.log, &sender->cursor);
    qwp_sender_add(&sender->options.page->connects, 1);
    atomic_store_explicit(&sender->options.page->credentials_refused, 0, memory_order_relaxed);
    sender->catching_up = sender->catch_up_end > 0;
    qwp_sender_show_state(sender,
                          sender->catching_up ? QWP_CONNECTION_CATCHING_UP : QWP_CONNECTION_UP);
    qwp_sender_connected(sender);
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct qwp_sender *sender = owner;
    qwp_sender_judge_down(sender, down);
    (void)qwp_sender_pop(sender, sender->next_sequence - 1);
    qwp_sender_plan_drop(sender);
    qwp_sender_show_state(sender, QWP_CONNECTION_DOWN);
    if (sender->state == QWP_SENDER_CLOSING) {
        return;
    }
    if (qwp_sender_turned(sender)) {
        return;
    }
    if (down->cause == QWP_DOWN_AUTH) {
        atomic_store_explicit(&sender->options.page->credentials_refused, 1, memory_order_relaxed);
    }
    if (down->was_up) {
        qwp_sender_add(&sender->options.page->disconnects, 1);
    }
    if (!qwp_sender_refused_down(sender)) {
        qwp_sender_lost(sender, down);
    }
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    struct qwp_sender *sender = owner;
    sender->silent_ns = 0;
    sender->silence_ns_max = (int64_t)SILENCE_MIN_S * QWP_NS_PER_S;
    qwp_sender_note_taken(sender, sequence);
    qwp_sender_settle_ok(sender, qwp_sender_pop(sender, sequence), tables, tables_bytes,
                         table_count);
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    qwp_sender_settle_durable(owner, tables, tables_bytes, table_count);
}

/* Whether a message up to `sequence` wants an answer: catch-up has none before the next commit. */
static bool is_due(struct qwp_sender *sender, int64_t sequence)
{
    for (int64_t i = sender->first_sequence; i <= sequence; i++) {
        if (qwp_sender_in_flight_at(sender, i)->kind != QWP_MESSAGE_CATCH_UP) {
            return true;
        }
    }
    return false;
}

/* A server answers in order, so what it has read by a ping it has answered before the pong. An
 * answer that was lost would be waited for without end: each pong is a sign of life, and where the
 * next message waits for that answer, there is none that would be acknowledged with it. */
static void on_ponged(void *owner, int64_t sequence)
{
    struct qwp_sender *sender = owner;
    const int64_t now_ns = qwp_clock_monotonic_ns();
    if (sender->state != QWP_SENDER_UP || !is_due(sender, sequence)) {
        sender->silent_ns = 0;
    } else if (sender->silent_ns == 0) {
        sender->silent_ns = now_ns;
    } else if (now_ns - sender->silent_ns >= sender->silence_ns_max) {
        sender->silence_ns_max =
            qwp_sooner_ns(sender->silence_ns_max * 2, (int64_t)SILENCE_MAX_S * QWP_NS_PER_S);
        qwp_sender_outage_note(sender, "the server answers pings, and messages it does not");
        qwp_session_disconnect(sender->session, 0);
    }
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    qwp_sender_refused(owner, sequence, status, text, len);
}

static void on_writable(void *owner)
{
    (void)owner; /* do_work() follows each run of the loop */
}

static const struct qwp_session_callbacks callbacks = {
    .up = on_up,
    .down = on_down,
    .ok = on_ok,
    .durable = on_durable,
    .rejected = on_rejected,
    .writable = on_writable,
    .ponged = on_ponged,
};

/* ---- life ---- */

enum qwp_result qwp_sender_init(struct qwp_sender *sender, const struct qwp_sender_options *options,
                                struct qwp_error *err)
{
    const struct qwp_conf *conf = options->conf;
    *sender = (struct qwp_sender){
        .options = *options,
        .backoff_ns = conf->backoff_ns_min,
        .started_ns = qwp_clock_monotonic_ns(),
        .silence_ns_max = (int64_t)SILENCE_MIN_S * QWP_NS_PER_S,
        .random = (uint64_t)qwp_clock_monotonic_ns() | 1,
        .timer = {.fn = qwp_sender_on_timer},
        .durable_timer = {.fn = qwp_sender_on_durable_timer, .owner = sender},
    };
    sender->session_options = (struct qwp_session_options){
        .loop = options->loop,
        .callbacks = &callbacks,
        .owner = sender,
        .client_id = "qwp-sidecar/" QWP_VERSION,
        .tls = conf->tls,
        .tls_verify = conf->tls_verify == QWP_TLS_VERIFY_ON,
        .tls_roots = conf->tls_roots,
        .tls_roots_password = conf->tls_roots_password,
        .durable_ack = conf->durable_ack,
        /* The kernel's own would hold up the walk for two minutes. */
        .connect_timeout_ns = conf->connect_timeout_ns != QWP_NEVER_NS ? conf->connect_timeout_ns
                                                                       : conf->auth_timeout_ns,
        .auth_timeout_ns = conf->auth_timeout_ns,
        .ping_idle_ns = (int64_t)25 * QWP_NS_PER_S,
        .ping_waiting_ns = (int64_t)5 * QWP_NS_PER_S,
        .dead_after_ns = (int64_t)15 * QWP_NS_PER_S,
    };
    qwp_secrets_init(&sender->secrets, conf);
    enum qwp_result result = qwp_secrets_read_tls(&sender->secrets, err);
    if (result == QWP_OK) {
        result = qwp_session_open(&sender->session, &sender->session_options, err);
    }
    if (result == QWP_OK && conf->durable_ack) {
        result = qwp_durable_open(&sender->durable, err);
    }
    if (result == QWP_OK) {
        result =
            qwp_resolver_open(&sender->resolver, options->loop, qwp_sender_resolved, sender, err);
    }
    if (result == QWP_OK) {
        result = qwp_sender_aside_open(sender, err);
    }
    if (result != QWP_OK) {
        qwp_sender_fini(sender);
    }
    return result;
}

static void session_fini(struct qwp_sender *sender)
{
    qwp_loop_cancel(sender->options.loop, &sender->timer);
    qwp_loop_cancel(sender->options.loop, &sender->durable_timer);
    while (sender->timer.in_flight || sender->durable_timer.in_flight) {
        (void)qwp_loop_run(sender->options.loop, QWP_NEVER_NS);
    }
    qwp_session_close(sender->session);
    qwp_resolver_close(sender->resolver);
    (void)qwp_sender_pop(sender, sender->next_sequence - 1);
    qwp_durable_close(&sender->durable);
    sender->session = NULL;
    sender->resolver = NULL;
}

void qwp_sender_fini(struct qwp_sender *sender)
{
    if (sender->session != NULL) {
        session_fini(sender);
    }
    qwp_sender_aside_close(sender);
    qwp_secrets_fini(&sender->secrets);
}

bool qwp_sender_do_work(struct qwp_sender *sender, int64_t now_ns)
{
    if (qwp_sender_turn(sender, now_ns)) {
        return true;
    }
    if (sender->state == QWP_SENDER_WAITING || sender->state == QWP_SENDER_RESOLVING) {
        return qwp_sender_walk_on(sender, now_ns);
    }
    if (sender->reject.retry_ns != 0 && now_ns >= sender->reject.retry_ns) {
        qwp_sender_aside_retry(sender);
    }
    bool worked = false;
    while (sender->state == QWP_SENDER_UP && qwp_sender_has_room(sender) && !sender->turning &&
           !qwp_sender_is_on_hold(sender) &&
           (sender->catch_up_next < sender->catch_up_end ? qwp_sender_catch_up(sender)
                                                         : qwp_sender_frame_send(sender))) {
        worked = true;
    }
    return worked;
}

void qwp_sender_disconnect(struct qwp_sender *sender, int64_t grace_ns)
{
    const bool connected = sender->state == QWP_SENDER_UP || sender->state == QWP_SENDER_CONNECTING;
    sender->state = QWP_SENDER_CLOSING;
    if (connected) {
        qwp_session_disconnect(sender->session, grace_ns);
    } else {
        qwp_sender_show_state(sender, QWP_CONNECTION_DOWN);
    }
}

bool qwp_sender_may_rest(const struct qwp_sender *sender)
{
    return sender->state == QWP_SENDER_UP && !sender->turning &&
           !sender->options.conf->durable_ack && !sender->reject.plan.active &&
           sender->catch_up_next == sender->catch_up_end &&
           sender->next_sequence - sender->first_sequence <= RESTING_MAX;
}

bool qwp_sender_is_stopped(const struct qwp_sender *sender)
{
    return sender->state == QWP_SENDER_STOPPED;
}

bool qwp_sender_is_down(const struct qwp_sender *sender)
{
    return atomic_load_explicit(&sender->options.page->connection, memory_order_relaxed) ==
           QWP_CONNECTION_DOWN;
}

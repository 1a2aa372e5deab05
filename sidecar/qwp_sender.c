#include "sidecar/qwp_sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_varint.h"
#include "ipc/qwp_shared_text.h"

enum { OUTAGE_LOG_S = 60 };

static void add_u64(_Atomic uint64_t *at, uint64_t n)
{
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void show_state(struct qwp_sender *sender, enum qwp_connection_state state)
{
    struct qwp_control_header *page = sender->options.page;
    atomic_store_explicit(&page->connection, state, memory_order_relaxed);
    atomic_store_explicit(&page->connected_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                          memory_order_relaxed);
}

static void show_error(struct qwp_sender *sender, const char *text)
{
    struct qwp_control_header *page = sender->options.page;
    qwp_shared_text_set(page->last_error, sizeof page->last_error, text);
}

static const struct qwp_endpoint *endpoint_now(const struct qwp_sender *sender)
{
    return &sender->options.conf->endpoints.list[sender->endpoint];
}

static uint64_t frames_waiting(const struct qwp_sender *sender)
{
    return qwp_seglog_published_count(sender->options.log) -
           qwp_seglog_acked_count(sender->options.log);
}

/* ---- when to try again ---- */

static uint64_t random_next(struct qwp_sender *sender)
{
    /* xorshift64*: enough to keep a fleet from coming back in step. */
    uint64_t x = sender->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    sender->random = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

/* By a timer of the loop: a connection may end within any run of it, also one that is about to
 * sleep. */
static void attempt_at(struct qwp_sender *sender, int64_t attempt_ns)
{
    sender->state = QWP_SENDER_WAITING;
    sender->attempt_ns = attempt_ns;
    if (sender->timer.in_flight) {
        qwp_loop_timer_move(sender->options.loop, &sender->timer, attempt_ns);
    } else {
        qwp_loop_timer(sender->options.loop, &sender->timer, attempt_ns);
    }
}

static void on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)op; /* do_work(), which follows each run of the loop, looks at the clock */
    (void)outcome;
    (void)more;
}

/* Full jitter: anything between nothing and the bound, which doubles until an acknowledgement
 * comes. */
static void attempt_later(struct qwp_sender *sender)
{
    const struct qwp_conf *conf = sender->options.conf;
    const int64_t bound = sender->backoff_ns;
    sender->backoff_ns = bound * 2 < conf->backoff_ns_max ? bound * 2 : conf->backoff_ns_max;
    sender->tried = 0;
    attempt_at(sender,
               qwp_clock_monotonic_ns() + (int64_t)(random_next(sender) % (uint64_t)(bound + 1)));
}

static void outage_note(struct qwp_sender *sender, const char *why)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    show_error(sender, why);
    if (!sender->in_outage) {
        sender->in_outage = true;
        sender->outage_ns = now_ns;
    } else if (now_ns - sender->outage_log_ns < (int64_t)OUTAGE_LOG_S * QWP_NS_PER_S) {
        return;
    }
    sender->outage_log_ns = now_ns;
    qwp_log(QWP_LOG_WARN, "down", "reason=\"%s\" frames_waiting=%llu", why,
            (unsigned long long)frames_waiting(sender));
}

/* An outage is over when something is acknowledged, or when there is nothing to send: a server that
 * accepts and closes again makes no end and no new beginning. */
static void outage_end(struct qwp_sender *sender)
{
    if (!sender->in_outage) {
        return;
    }
    sender->in_outage = false;
    const int64_t ns = qwp_clock_monotonic_ns() - sender->outage_ns;
    qwp_log(QWP_LOG_INFO, "back", "endpoint=%s:%u after_s=%lld frames_waiting=%llu",
            endpoint_now(sender)->host, endpoint_now(sender)->port, (long long)(ns / QWP_NS_PER_S),
            (unsigned long long)frames_waiting(sender));
}

static void connected(struct qwp_sender *sender)
{
    if (sender->in_outage) {
        if (frames_waiting(sender) == 0) {
            outage_end(sender);
        }
        return;
    }
    qwp_log(QWP_LOG_INFO, "connected", "endpoint=%s:%u frames_waiting=%llu",
            endpoint_now(sender)->host, endpoint_now(sender)->port,
            (unsigned long long)frames_waiting(sender));
}

/* ---- the walk over the endpoints ---- */

static void address_connect(struct qwp_sender *sender);

static void endpoint_next(struct qwp_sender *sender)
{
    const size_t count = sender->options.conf->endpoints.count;
    sender->endpoint = (sender->endpoint + 1) % count;
    if (++sender->tried >= count) {
        attempt_later(sender);
    } else {
        attempt_at(sender, qwp_clock_monotonic_ns());
    }
}

static void resolved(void *owner, const struct qwp_addresses *addresses,
                     const struct qwp_error *err)
{
    struct qwp_sender *sender = owner;
    if (sender->state != QWP_SENDER_RESOLVING) {
        return;
    }
    if (addresses == NULL || addresses->count == 0) {
        outage_note(sender, err->text);
        endpoint_next(sender);
        return;
    }
    sender->addresses = *addresses;
    sender->address = 0;
    address_connect(sender);
}

/* Secrets in files are read anew for each attempt, so that a corrected one is taken by the next. */
static void credentials_read(struct qwp_sender *sender)
{
    char *authorization;
    struct qwp_error err;
    if (qwp_credentials_authorization(&sender->options.conf->credentials, &authorization, &err) !=
        QWP_OK) {
        outage_note(sender, err.text); /* the one before may still be good */
        return;
    }
    qwp_secret_free(sender->authorization);
    sender->authorization = authorization;
    sender->session_options.authorization = authorization;
}

static void endpoint_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = endpoint_now(sender);
    credentials_read(sender);
    char text[QWP_CONTROL_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:%u", endpoint->host, endpoint->port);
    qwp_shared_text_set(sender->options.page->endpoint, sizeof text, text);
    show_state(sender, QWP_CONNECTION_CONNECTING);
    sender->state = QWP_SENDER_RESOLVING;
    struct qwp_error err;
    if (qwp_resolve_start(sender->resolver, endpoint->host, endpoint->port, &err) != QWP_OK) {
        outage_note(sender, err.text);
        endpoint_next(sender);
    }
}

static void address_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = endpoint_now(sender);
    const struct qwp_address *address = &sender->addresses.list[sender->address++];
    struct qwp_error err;
    sender->state = QWP_SENDER_CONNECTING;
    if (qwp_session_connect(sender->session, (const struct sockaddr *)&address->storage,
                            address->len, endpoint->host, endpoint->port, &err) != QWP_OK) {
        outage_note(sender, err.text);
        endpoint_next(sender);
    }
}

/* ---- what is in flight ---- */

static struct qwp_in_flight *in_flight_at(struct qwp_sender *sender, int64_t sequence)
{
    return &sender->in_flight[(uint64_t)sequence % QWP_SENDER_IN_FLIGHT_MAX];
}

static bool in_flight_has_room(const struct qwp_sender *sender)
{
    return sender->next_sequence - sender->first_sequence < QWP_SENDER_IN_FLIGHT_MAX &&
           sender->bytes_in_flight < QWP_SENDER_WINDOW_BYTES;
}

/* Hands a message to the session. False: it takes none now. */
static bool message_send(struct qwp_sender *sender, const unsigned char *message, size_t len,
                         uint64_t fsn_end, unsigned char *owned)
{
    int64_t sequence;
    if (qwp_session_send(sender->session, message, len, &sequence) != QWP_OK) {
        return false;
    }
    QWP_ASSERT(sequence == sender->next_sequence);
    *in_flight_at(sender, sequence) =
        (struct qwp_in_flight){.fsn_end = fsn_end, .len = len, .owned = owned};
    sender->next_sequence++;
    sender->bytes_in_flight += len;
    return true;
}

/* Everything up to `sequence` is settled. Returns the frames that are complete with it, 0 if none.
 */
static uint64_t in_flight_pop(struct qwp_sender *sender, int64_t sequence)
{
    uint64_t fsn_end = 0;
    while (sender->first_sequence <= sequence) {
        struct qwp_in_flight *message = in_flight_at(sender, sender->first_sequence++);
        fsn_end = message->fsn_end != 0 ? message->fsn_end : fsn_end;
        sender->bytes_in_flight -= message->len;
        free(message->owned);
    }
    return fsn_end;
}

/* The dictionary that a fresh connection lacks, in messages below the server's limit. */
static bool catch_up_send(struct qwp_sender *sender)
{
    const struct qwp_dict *dict = qwp_seglog_dict(sender->options.log);
    const size_t cap =
        atomic_load_explicit(sender->options.message_bytes_max, memory_order_relaxed);
    size_t bytes = QWP_HEADER_BYTES + 2 * (size_t)QWP_VARINT_BYTES_MAX;
    uint32_t end = sender->catch_up_next;
    while (end < sender->catch_up_end) {
        const size_t len = qwp_dict_text(dict, end).len + (size_t)QWP_VARINT_BYTES_MAX;
        if (bytes + len > cap && end > sender->catch_up_next) {
            break;
        }
        bytes += len;
        end++;
    }
    unsigned char *message = malloc(bytes);
    if (message == NULL) {
        return false;
    }
    unsigned char *at = qwp_message_begin(message, QWP_FLAG_DEFER_COMMIT | QWP_FLAG_DELTA_DICT);
    at = qwp_delta_put(at, sender->catch_up_next, end - sender->catch_up_next, qwp_dict_text, dict);
    const size_t len = (size_t)(at - message);
    qwp_message_finish(message, 0, len);
    if (!message_send(sender, message, len, 0, message)) {
        free(message);
        return false;
    }
    sender->catch_up_next = end;
    if (end == sender->catch_up_end) {
        show_state(sender, QWP_CONNECTION_UP);
    }
    return true;
}

static bool frame_send(struct qwp_sender *sender)
{
    struct qwp_seglog_cursor before = sender->cursor;
    struct qwp_frame frame;
    if (qwp_seglog_next(sender->options.log, &sender->cursor, &frame) != QWP_OK) {
        return false;
    }
    if (!message_send(sender, frame.payload, frame.len, frame.fsn + 1, NULL)) {
        sender->cursor = before;
        return false;
    }
    add_u64(&sender->options.page->frames_sent, 1);
    return true;
}

/* ---- what the session says ---- */

static void on_up(void *owner, size_t message_bytes_max)
{
    struct qwp_sender *sender = owner;
    atomic_store_explicit(sender->options.message_bytes_max, message_bytes_max,
                          memory_order_relaxed);
    sender->state = QWP_SENDER_UP;
    sender->first_sequence = sender->next_sequence = 0;
    sender->catch_up_next = 0;
    sender->catch_up_end = qwp_dict_count(qwp_seglog_dict(sender->options.log));
    qwp_seglog_rewind(sender->options.log, &sender->cursor);
    add_u64(&sender->options.page->connects, 1);
    show_state(sender, sender->catch_up_end > 0 ? QWP_CONNECTION_CATCHING_UP : QWP_CONNECTION_UP);
    connected(sender);
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct qwp_sender *sender = owner;
    (void)in_flight_pop(sender, sender->next_sequence - 1);
    show_state(sender, QWP_CONNECTION_DOWN);
    if (sender->state == QWP_SENDER_CLOSING) {
        return;
    }
    if (down->was_up) {
        add_u64(&sender->options.page->disconnects, 1);
    }
    /* A name often stands for ::1 first, and the server listens on 127.0.0.1: no outage yet. */
    if (!down->was_up && down->cause == QWP_DOWN_UNREACHABLE &&
        sender->address < sender->addresses.count) {
        address_connect(sender);
        return;
    }
    outage_note(sender, down->error.text);
    if (down->was_up) {
        attempt_later(sender);
    } else {
        endpoint_next(sender);
    }
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    struct qwp_sender *sender = owner;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
    sender->backoff_ns = sender->options.conf->backoff_ns_min;
    outage_end(sender);
    const uint64_t fsn_end = in_flight_pop(sender, sequence);
    if (fsn_end == 0) {
        return;
    }
    add_u64(&sender->options.page->frames_acked,
            fsn_end - qwp_seglog_acked_count(sender->options.log));
    qwp_seglog_ack(sender->options.log, fsn_end - 1);
    if (sender->options.intake_loop != NULL) {
        qwp_loop_wake(sender->options.intake_loop);
    }
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    (void)owner;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
}

static const char *status_name(uint8_t status)
{
    switch (status) {
    case QWP_STATUS_SCHEMA_MISMATCH:
        return "SCHEMA_MISMATCH";
    case QWP_STATUS_PARSE_ERROR:
        return "PARSE_ERROR";
    case QWP_STATUS_INTERNAL_ERROR:
        return "INTERNAL_ERROR";
    case QWP_STATUS_SECURITY_ERROR:
        return "SECURITY_ERROR";
    case QWP_STATUS_WRITE_ERROR:
        return "WRITE_ERROR";
    case QWP_STATUS_NOT_WRITABLE:
        return "NOT_WRITABLE";
    case QWP_STATUS_DICTIONARY_GAP:
        return "DICTIONARY_GAP";
    default:
        return "unknown";
    }
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    struct qwp_sender *sender = owner;
    const uint64_t fsn_end = in_flight_at(sender, sequence)->fsn_end;
    char shown[QWP_CONTROL_TEXT_BYTES];
    snprintf(shown, sizeof shown, "server answered %s: %.*s", status_name(status), (int)len, text);
    show_error(sender, shown);
    add_u64(&sender->options.page->server_errors, 1);
    if (fsn_end != sender->rejected_fsn_end) { /* once a frame, however often it is sent again */
        sender->rejected_fsn_end = fsn_end;
        qwp_log(QWP_LOG_ERROR, "message rejected; it is sent again until the server takes it",
                "frame=%lld answer=\"%s\"", (long long)fsn_end - 1, shown);
    }
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
};

/* ---- life ---- */

enum qwp_result qwp_sender_init(struct qwp_sender *sender, const struct qwp_sender_options *options,
                                struct qwp_error *err)
{
    const struct qwp_conf *conf = options->conf;
    *sender = (struct qwp_sender){
        .options = *options,
        .backoff_ns = conf->backoff_ns_min,
        .random = (uint64_t)qwp_clock_monotonic_ns() | 1,
        .timer = {.fn = on_timer},
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
        .connect_timeout_ns = conf->connect_timeout_ns,
        .auth_timeout_ns = conf->auth_timeout_ns,
        .ping_idle_ns = (int64_t)25 * QWP_NS_PER_S,
        .ping_waiting_ns = (int64_t)5 * QWP_NS_PER_S,
        .dead_after_ns = (int64_t)15 * QWP_NS_PER_S,
    };
    enum qwp_result result = qwp_session_open(&sender->session, &sender->session_options, err);
    if (result == QWP_OK) {
        result = qwp_resolver_open(&sender->resolver, options->loop, resolved, sender, err);
    }
    if (result != QWP_OK) {
        qwp_sender_fini(sender);
    }
    return result;
}

void qwp_sender_fini(struct qwp_sender *sender)
{
    if (sender->session == NULL) {
        return;
    }
    qwp_loop_cancel(sender->options.loop, &sender->timer);
    while (sender->timer.in_flight) {
        (void)qwp_loop_run(sender->options.loop, QWP_NEVER_NS);
    }
    qwp_session_close(sender->session);
    qwp_resolver_close(sender->resolver);
    (void)in_flight_pop(sender, sender->next_sequence - 1);
    qwp_secret_free(sender->authorization);
    sender->authorization = NULL;
    sender->session = NULL;
    sender->resolver = NULL;
}

bool qwp_sender_do_work(struct qwp_sender *sender, int64_t now_ns)
{
    if (sender->state == QWP_SENDER_WAITING) {
        if (now_ns < sender->attempt_ns) {
            return false;
        }
        endpoint_connect(sender);
        return true;
    }
    bool worked = false;
    while (sender->state == QWP_SENDER_UP && in_flight_has_room(sender) &&
           (sender->catch_up_next < sender->catch_up_end ? catch_up_send(sender)
                                                         : frame_send(sender))) {
        worked = true;
    }
    return worked;
}

void qwp_sender_retry_now(struct qwp_sender *sender)
{
    if (sender->state == QWP_SENDER_WAITING) {
        attempt_at(sender, qwp_clock_monotonic_ns());
    }
}

void qwp_sender_disconnect(struct qwp_sender *sender, int64_t grace_ns)
{
    const bool connected = sender->state == QWP_SENDER_UP || sender->state == QWP_SENDER_CONNECTING;
    sender->state = QWP_SENDER_CLOSING;
    if (connected) {
        qwp_session_disconnect(sender->session, grace_ns);
    } else {
        show_state(sender, QWP_CONNECTION_DOWN);
    }
}

bool qwp_sender_is_down(const struct qwp_sender *sender)
{
    return atomic_load_explicit(&sender->options.page->connection, memory_order_relaxed) ==
           QWP_CONNECTION_DOWN;
}

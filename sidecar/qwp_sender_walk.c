#include <stdio.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_sender_internal.h"

enum {
    OUTAGE_LOG_S_MIN = 60,
    OUTAGE_LOG_S_MAX = 3600,
    SECRETS_LOOK_MS = 500, /* while waiting for an attempt */
};

void qwp_sender_show_state(struct qwp_sender *sender, enum qwp_connection_state state)
{
    struct qwp_control_header *page = sender->options.page;
    const uint32_t before = atomic_load_explicit(&page->connection, memory_order_relaxed);
    atomic_store_explicit(&page->connection, state, memory_order_relaxed);
    /* The attempts of an outage do not make it a young one. */
    if ((before == QWP_CONNECTION_UP) != (state == QWP_CONNECTION_UP) ||
        atomic_load_explicit(&page->connected_us, memory_order_relaxed) == 0) {
        atomic_store_explicit(&page->connected_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                              memory_order_relaxed);
    }
}

void qwp_sender_show_error(struct qwp_sender *sender, const char *text)
{
    struct qwp_control_header *page = sender->options.page;
    qwp_shared_text_set(page->last_error, sizeof page->last_error, text);
    atomic_store_explicit(&page->error_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                          memory_order_relaxed);
}

static void endpoint_connect(struct qwp_sender *sender);
static void address_connect(struct qwp_sender *sender);

static const struct qwp_endpoint *endpoint_now(const struct qwp_sender *sender)
{
    return &sender->options.conf->endpoints.list[sender->endpoint];
}

static uint64_t frames_waiting(const struct qwp_sender *sender)
{
    const struct qwp_generations *generations = sender->options.generations;
    return generations != NULL ? qwp_generations_waiting(generations)
                               : qwp_seglog_published_count(sender->options.log) -
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
static void timer_at(struct qwp_sender *sender, int64_t at_ns)
{
    if (sender->timer.in_flight) {
        qwp_loop_timer_move(sender->options.loop, &sender->timer, at_ns);
    } else {
        qwp_loop_timer(sender->options.loop, &sender->timer, at_ns);
    }
}

/* The next attempt, or sooner the time to look whether secrets have changed. */
static void wait_on(struct qwp_sender *sender, int64_t now_ns)
{
    const bool watches = sender->secrets.file_count > 0;
    sender->look_ns = watches ? now_ns + (int64_t)SECRETS_LOOK_MS * QWP_NS_PER_MS : QWP_NEVER_NS;
    timer_at(sender, qwp_sooner_ns(sender->attempt_ns, sender->look_ns));
}

void qwp_sender_attempt_at(struct qwp_sender *sender, int64_t attempt_ns)
{
    sender->state = QWP_SENDER_WAITING;
    sender->attempt_ns = attempt_ns;
    wait_on(sender, qwp_clock_monotonic_ns());
}

void qwp_sender_on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)op; /* do_work(), which follows each run of the loop, looks at the clock */
    (void)outcome;
    (void)more;
}

/* Full jitter: anything between nothing and the bound, which doubles until an acknowledgement
 * comes. Refused credentials get no better by trying: near the longest delay at once, and what
 * mends them is watched. */
static int64_t backoff_take(struct qwp_sender *sender)
{
    const int64_t longest_ns = sender->options.conf->backoff_ns_max;
    const int64_t bound_ns = sender->backoff_ns;
    sender->backoff_ns = qwp_sooner_ns(bound_ns * 2, longest_ns);
    if (sender->refused) {
        return longest_ns - (int64_t)(random_next(sender) % (uint64_t)(longest_ns / 4 + 1));
    }
    return (int64_t)(random_next(sender) % (uint64_t)(bound_ns + 1));
}

void qwp_sender_attempt_later(struct qwp_sender *sender)
{
    const int64_t wait_ns = backoff_take(sender);
    sender->tried = 0;
    qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns() + (sender->retry_now ? 0 : wait_ns));
    sender->retry_now = false;
    sender->refused = false;
}

/* Nothing is due by the clock of this cycle, which may lag behind the one that the timer went by: a
 * timer that has fired meanwhile must not be the last. */
static bool not_yet(struct qwp_sender *sender, int64_t at_ns)
{
    if (!sender->timer.in_flight) {
        timer_at(sender, at_ns);
    }
    return false;
}

bool qwp_sender_walk_on(struct qwp_sender *sender, int64_t now_ns)
{
    if (sender->state == QWP_SENDER_RESOLVING) {
        if (now_ns < sender->attempt_ns) {
            return not_yet(sender, sender->attempt_ns);
        }
        char text[QWP_CONTROL_TEXT_BYTES];
        snprintf(text, sizeof text, "'%s': the name is not resolved within auth_timeout_ms",
                 endpoint_now(sender)->host);
        qwp_sender_outage_note(sender, text);
        qwp_sender_endpoint_next(sender);
        return true;
    }
    if (sender->state != QWP_SENDER_WAITING) {
        return false;
    }
    if (now_ns < sender->attempt_ns) {
        if (now_ns < sender->look_ns) {
            return not_yet(sender, qwp_sooner_ns(sender->attempt_ns, sender->look_ns));
        }
        if (!qwp_secrets_changed(&sender->secrets, false)) {
            wait_on(sender, now_ns);
            return false;
        }
    }
    endpoint_connect(sender);
    return true;
}

/* One line when it begins, and while it lasts one after a minute, two, four, ... an hour. */
void qwp_sender_outage_note(struct qwp_sender *sender, const char *why)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    char reason[QWP_ERROR_TEXT_BYTES];
    snprintf(reason, sizeof reason, "%s", why);
    qwp_secrets_conceal(&sender->secrets, reason);
    qwp_sender_show_error(sender, reason);
    const bool begins = !sender->in_outage;
    if (begins) {
        sender->in_outage = true;
        sender->outage_ns = now_ns;
        sender->outage_quiet_ns = (int64_t)OUTAGE_LOG_S_MIN * QWP_NS_PER_S;
    } else if (now_ns < sender->outage_log_ns) {
        return;
    }
    sender->outage_log_ns = now_ns + sender->outage_quiet_ns;
    sender->outage_quiet_ns =
        qwp_sooner_ns(2 * sender->outage_quiet_ns, (int64_t)OUTAGE_LOG_S_MAX * QWP_NS_PER_S);
    qwp_log(QWP_LOG_WARN, begins ? "down" : "still down", "reason=\"%s\" frames_waiting=%llu",
            reason, (unsigned long long)frames_waiting(sender));
}

/* An outage is over when something is acknowledged, or when there is nothing to send: a server that
 * accepts and closes again makes no end and no new beginning. */
void qwp_sender_outage_end(struct qwp_sender *sender)
{
    if (!sender->in_outage) {
        return;
    }
    sender->in_outage = false;
    const int64_t ns = qwp_clock_monotonic_ns() - sender->outage_ns;
    const uint64_t waiting = frames_waiting(sender);
    qwp_log(QWP_LOG_INFO,
            waiting > 0 ? "back after an outage, with frames waiting" : "back after an outage",
            "endpoint=%s:%u after_s=%lld frames_waiting=%llu", endpoint_now(sender)->host,
            endpoint_now(sender)->port, (long long)(ns / QWP_NS_PER_S),
            (unsigned long long)waiting);
}

void qwp_sender_connected(struct qwp_sender *sender)
{
    if (sender->in_outage) {
        if (frames_waiting(sender) == 0) {
            qwp_sender_outage_end(sender);
        }
        return;
    }
    const bool quiet = sender->reject.quiet;
    sender->reject.quiet = false;
    qwp_log(quiet ? QWP_LOG_DEBUG : QWP_LOG_INFO, "connected", "endpoint=%s:%u frames_waiting=%llu",
            endpoint_now(sender)->host, endpoint_now(sender)->port,
            (unsigned long long)frames_waiting(sender));
}

/* ---- the walk over the endpoints ---- */

void qwp_sender_endpoint_next(struct qwp_sender *sender)
{
    const size_t count = sender->options.conf->endpoints.count;
    sender->endpoint = (sender->endpoint + 1) % count;
    if (++sender->tried >= count) {
        sender->rounds++;
        qwp_sender_attempt_later(sender);
    } else {
        qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns());
    }
}

void qwp_sender_resolved(void *owner, const struct qwp_addresses *addresses,
                         const struct qwp_error *err)
{
    struct qwp_sender *sender = owner;
    if (sender->state != QWP_SENDER_RESOLVING) {
        return;
    }
    if (addresses == NULL || addresses->count == 0) {
        qwp_sender_outage_note(sender, err->text);
        qwp_sender_endpoint_next(sender);
        return;
    }
    sender->addresses = *addresses;
    sender->address = 0;
    address_connect(sender);
}

static void tls_read(struct qwp_sender *sender)
{
    struct qwp_error err = {0};
    enum qwp_result result = qwp_secrets_read_tls(&sender->secrets, &err);
    if (result == QWP_OK) {
        if (sender->secrets.tls_roots_password != NULL) {
            sender->session_options.tls_roots_password = sender->secrets.tls_roots_password;
        }
        result = qwp_session_reload_tls(sender->session, &err);
    }
    if (result != QWP_OK) {
        qwp_sender_outage_note(sender, err.text); /* the ones before may still be good */
    }
}

/* Secrets in files are read anew for each attempt, so that a corrected one is taken by the next;
 * certificates, which take longer, when their files have changed. */
static void secrets_read(struct qwp_sender *sender)
{
    struct qwp_error err = {0};
    if (qwp_secrets_read(&sender->secrets, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text); /* the one before may still be good */
    }
    sender->session_options.authorization = sender->secrets.authorization;
    if (qwp_secrets_changed(&sender->secrets, true)) {
        tls_read(sender);
    }
}

void qwp_sender_retry_now(struct qwp_sender *sender)
{
    qwp_sender_look_again(sender);
    switch (sender->state) {
    case QWP_SENDER_STOPPED:
    case QWP_SENDER_WAITING:
        tls_read(sender);
        qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns());
        break;
    case QWP_SENDER_RESOLVING:
    case QWP_SENDER_CONNECTING:
        sender->retry_now = true; /* the attempt under way may have the old ones */
        break;
    case QWP_SENDER_UP:
        tls_read(sender); /* credentials are read by the next attempt */
        break;
    case QWP_SENDER_CLOSING:
        break;
    }
}

static void endpoint_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = endpoint_now(sender);
    secrets_read(sender);
    qwp_sender_add(&sender->options.page->connect_attempts, 1);
    char text[QWP_CONTROL_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:%u", endpoint->host, endpoint->port);
    qwp_shared_text_set(sender->options.page->endpoint, sizeof text, text);
    qwp_sender_show_state(sender, QWP_CONNECTION_CONNECTING);
    sender->state = QWP_SENDER_RESOLVING;
    sender->attempt_ns = qwp_clock_monotonic_ns() + sender->options.conf->auth_timeout_ns;
    struct qwp_error err;
    if (qwp_resolve_start(sender->resolver, endpoint->host, endpoint->port, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text);
        qwp_sender_endpoint_next(sender);
    } else if (sender->state == QWP_SENDER_RESOLVING) {
        timer_at(sender, sender->attempt_ns);
    }
}

/* The next address of the endpoint. */
static void address_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = endpoint_now(sender);
    const struct qwp_address *address = &sender->addresses.list[sender->address++];
    struct qwp_error err;
    sender->state = QWP_SENDER_CONNECTING;
    if (qwp_session_connect(sender->session, (const struct sockaddr *)&address->storage,
                            address->len, endpoint->host, endpoint->port, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text);
        qwp_sender_endpoint_next(sender);
    }
}

/* Of a name with several addresses the others are tried too: it often stands for ::1 first, and the
 * server listens on 127.0.0.1. No outage yet. */
static bool address_next(struct qwp_sender *sender, const struct qwp_session_down *down)
{
    const bool refused = down->cause == QWP_DOWN_AUTH || down->cause == QWP_DOWN_DURABLE;
    if (down->was_up || refused || sender->address >= sender->addresses.count) {
        return false;
    }
    address_connect(sender);
    return true;
}

void qwp_sender_lost(struct qwp_sender *sender, const struct qwp_session_down *down)
{
    if (address_next(sender, down)) {
        return;
    }
    qwp_sender_outage_note(sender, down->error.text);
    sender->refused |= down->cause == QWP_DOWN_AUTH || down->cause == QWP_DOWN_DURABLE;
    /* One that took rows is worth coming back to. One that only accepted counts as tried. */
    if (down->was_up && sender->acked) {
        qwp_sender_attempt_later(sender);
    } else {
        qwp_sender_endpoint_next(sender);
    }
}

enum qwp_first qwp_sender_first(const struct qwp_sender *sender, int64_t now_ns, int64_t *next_ns)
{
    const struct qwp_conf *conf = sender->options.conf;
    const uint64_t connects =
        atomic_load_explicit(&sender->options.page->connects, memory_order_relaxed);
    if (connects > 0 || conf->first_connect == QWP_FIRST_CONNECT_ASYNC) {
        return QWP_FIRST_DONE;
    }
    if (conf->first_connect == QWP_FIRST_CONNECT_OFF) {
        return sender->rounds > 0 ? QWP_FIRST_FAILED : QWP_FIRST_PENDING;
    }
    const int64_t end_ns = conf->first_connect_ns_max < QWP_NEVER_NS - sender->started_ns
                               ? sender->started_ns + conf->first_connect_ns_max
                               : QWP_NEVER_NS;
    *next_ns = qwp_sooner_ns(*next_ns, end_ns);
    return now_ns >= end_ns ? QWP_FIRST_FAILED : QWP_FIRST_PENDING;
}

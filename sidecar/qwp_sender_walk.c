#include <stdio.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_sender_internal.h"

enum { OUTAGE_LOG_S = 60 };

void qwp_sender_show_state(struct qwp_sender *sender, enum qwp_connection_state state)
{
    struct qwp_control_header *page = sender->options.page;
    atomic_store_explicit(&page->connection, state, memory_order_relaxed);
    atomic_store_explicit(&page->connected_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                          memory_order_relaxed);
}

void qwp_sender_show_error(struct qwp_sender *sender, const char *text)
{
    struct qwp_control_header *page = sender->options.page;
    qwp_shared_text_set(page->last_error, sizeof page->last_error, text);
}

const struct qwp_endpoint *qwp_sender_endpoint(const struct qwp_sender *sender)
{
    return &sender->options.conf->endpoints.list[sender->endpoint];
}

uint64_t qwp_sender_frames_waiting(const struct qwp_sender *sender)
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
void qwp_sender_attempt_at(struct qwp_sender *sender, int64_t attempt_ns)
{
    sender->state = QWP_SENDER_WAITING;
    sender->attempt_ns = attempt_ns;
    if (sender->timer.in_flight) {
        qwp_loop_timer_move(sender->options.loop, &sender->timer, attempt_ns);
    } else {
        qwp_loop_timer(sender->options.loop, &sender->timer, attempt_ns);
    }
}

void qwp_sender_on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)op; /* do_work(), which follows each run of the loop, looks at the clock */
    (void)outcome;
    (void)more;
}

/* Full jitter: anything between nothing and the bound, which doubles until an acknowledgement
 * comes. */
void qwp_sender_attempt_later(struct qwp_sender *sender)
{
    const struct qwp_conf *conf = sender->options.conf;
    const int64_t bound = sender->backoff_ns;
    sender->backoff_ns = bound * 2 < conf->backoff_ns_max ? bound * 2 : conf->backoff_ns_max;
    sender->tried = 0;
    qwp_sender_attempt_at(sender, qwp_clock_monotonic_ns() +
                                      (int64_t)(random_next(sender) % (uint64_t)(bound + 1)));
}

void qwp_sender_outage_note(struct qwp_sender *sender, const char *why)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    qwp_sender_show_error(sender, why);
    if (!sender->in_outage) {
        sender->in_outage = true;
        sender->outage_ns = now_ns;
    } else if (now_ns - sender->outage_log_ns < (int64_t)OUTAGE_LOG_S * QWP_NS_PER_S) {
        return;
    }
    sender->outage_log_ns = now_ns;
    qwp_log(QWP_LOG_WARN, "down", "reason=\"%s\" frames_waiting=%llu", why,
            (unsigned long long)qwp_sender_frames_waiting(sender));
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
    qwp_log(QWP_LOG_INFO, "back", "endpoint=%s:%u after_s=%lld frames_waiting=%llu",
            qwp_sender_endpoint(sender)->host, qwp_sender_endpoint(sender)->port,
            (long long)(ns / QWP_NS_PER_S), (unsigned long long)qwp_sender_frames_waiting(sender));
}

void qwp_sender_connected(struct qwp_sender *sender)
{
    if (sender->in_outage) {
        if (qwp_sender_frames_waiting(sender) == 0) {
            qwp_sender_outage_end(sender);
        }
        return;
    }
    qwp_log(QWP_LOG_INFO, "connected", "endpoint=%s:%u frames_waiting=%llu",
            qwp_sender_endpoint(sender)->host, qwp_sender_endpoint(sender)->port,
            (unsigned long long)qwp_sender_frames_waiting(sender));
}

/* ---- the walk over the endpoints ---- */

void qwp_sender_endpoint_next(struct qwp_sender *sender)
{
    const size_t count = sender->options.conf->endpoints.count;
    sender->endpoint = (sender->endpoint + 1) % count;
    if (++sender->tried >= count) {
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
    qwp_sender_address_connect(sender);
}

/* Secrets in files are read anew for each attempt, so that a corrected one is taken by the next. */
static void credentials_read(struct qwp_sender *sender)
{
    char *authorization;
    struct qwp_error err;
    if (qwp_credentials_authorization(&sender->options.conf->credentials, &authorization, &err) !=
        QWP_OK) {
        qwp_sender_outage_note(sender, err.text); /* the one before may still be good */
        return;
    }
    qwp_secret_free(sender->authorization);
    sender->authorization = authorization;
    sender->session_options.authorization = authorization;
}

void qwp_sender_endpoint_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = qwp_sender_endpoint(sender);
    credentials_read(sender);
    char text[QWP_CONTROL_TEXT_BYTES];
    snprintf(text, sizeof text, "%s:%u", endpoint->host, endpoint->port);
    qwp_shared_text_set(sender->options.page->endpoint, sizeof text, text);
    qwp_sender_show_state(sender, QWP_CONNECTION_CONNECTING);
    sender->state = QWP_SENDER_RESOLVING;
    struct qwp_error err;
    if (qwp_resolve_start(sender->resolver, endpoint->host, endpoint->port, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text);
        qwp_sender_endpoint_next(sender);
    }
}

void qwp_sender_address_connect(struct qwp_sender *sender)
{
    const struct qwp_endpoint *endpoint = qwp_sender_endpoint(sender);
    const struct qwp_address *address = &sender->addresses.list[sender->address++];
    struct qwp_error err;
    sender->state = QWP_SENDER_CONNECTING;
    if (qwp_session_connect(sender->session, (const struct sockaddr *)&address->storage,
                            address->len, endpoint->host, endpoint->port, &err) != QWP_OK) {
        qwp_sender_outage_note(sender, err.text);
        qwp_sender_endpoint_next(sender);
    }
}

/* Whether the servers of the connect string answer, by connecting as the daemon does. */
#include <netdb.h>
#include <string.h>
#include <sys/socket.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_check.h"
#include "transport/qwp_session.h"

/* One attempt: what came of it. */
struct attempt {
    bool is_over;
    bool is_up;
    size_t message_bytes_max;
    struct qwp_session_down down;
};

static void on_up(void *owner, size_t message_bytes_max)
{
    struct attempt *attempt = owner;
    attempt->is_up = true;
    attempt->is_over = true;
    attempt->message_bytes_max = message_bytes_max;
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct attempt *attempt = owner;
    attempt->is_over = true;
    attempt->down = *down;
}

/* Nothing is sent here, so nothing that could come about messages matters. */
static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    (void)owner, (void)sequence, (void)tables, (void)tables_bytes, (void)table_count;
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    (void)owner, (void)tables, (void)tables_bytes, (void)table_count;
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    (void)owner, (void)sequence, (void)status, (void)text, (void)len;
}

static void on_writable(void *owner)
{
    (void)owner;
}

static const char *advice_for(const struct qwp_session_down *down)
{
    switch (down->cause) {
    case QWP_DOWN_UNREACHABLE:
        return "see that it runs, that the port is its HTTP port, and that no firewall is between";
    case QWP_DOWN_TLS:
        return "see that the port speaks TLS, that addr is a name in its certificate, and that "
               "tls_roots holds the authority that signed it";
    case QWP_DOWN_HTTP:
        return "see that it is a QuestDB server with QWP at /write/v4, and what is between";
    case QWP_DOWN_AUTH:
        return "correct username and password or the token";
    case QWP_DOWN_ROLE:
        return "fine for a replica when another server of the list is the primary";
    case QWP_DOWN_VERSION:
        return "the server speaks another version of QWP: update one of the two";
    case QWP_DOWN_DURABLE:
        return "remove request_durable_ack, which this server does not offer";
    case QWP_DOWN_TIMEOUT:
        return "something accepts connections and does not answer: see what is behind the port";
    default:
        return "see the server's log";
    }
}

/* Runs the loop until the attempt is over, or the deadline. */
static void wait_for(struct qwp_loop *loop, struct attempt *attempt, int64_t deadline_ns)
{
    while (!attempt->is_over && qwp_clock_monotonic_ns() < deadline_ns) {
        const enum qwp_result result = qwp_loop_run(loop, deadline_ns);
        (void)result; /* nothing came: the clock decides */
    }
}

static void try_address(struct qwp_loop *loop, const struct qwp_session_options *session_options,
                        const struct qwp_endpoint *endpoint, const struct addrinfo *address,
                        int64_t timeout_ns, struct attempt *attempt)
{
    struct qwp_session *session = NULL;
    struct qwp_error *err = &attempt->down.error;
    *attempt = (struct attempt){.down = {.cause = QWP_DOWN_LOCAL}};
    enum qwp_result result = qwp_session_open(&session, session_options, err);
    if (result == QWP_OK) {
        result = qwp_session_connect(session, address->ai_addr, address->ai_addrlen, endpoint->host,
                                     endpoint->port, err);
    }
    if (result == QWP_OK) {
        wait_for(loop, attempt, qwp_clock_monotonic_ns() + timeout_ns);
    }
    if (result == QWP_OK && !attempt->is_over) {
        attempt->down.cause = QWP_DOWN_TIMEOUT;
        (void)qwp_fail(err, QWP_AGAIN, 0, "no answer within the time given");
    }
    if (attempt->is_up) {
        /* Say goodbye, so that the server's log has no broken connection. */
        attempt->is_over = false;
        qwp_session_disconnect(session, timeout_ns);
        wait_for(loop, attempt, qwp_clock_monotonic_ns() + timeout_ns);
    }
    qwp_session_close(session);
}

static void report(struct qwp_check *check, const struct qwp_endpoint *endpoint,
                   const struct attempt *attempt, bool is_only)
{
    const char *role = attempt->down.role;
    if (attempt->is_up) {
        qwp_check_add(check, QWP_CHECK_OK, "server", NULL,
                      "%s port %u: takes messages of %zu bytes", endpoint->host,
                      (unsigned)endpoint->port, attempt->message_bytes_max);
        return;
    }
    const bool is_replica = attempt->down.cause == QWP_DOWN_ROLE && !is_only;
    qwp_check_add(check, is_replica ? QWP_CHECK_WARN : QWP_CHECK_FAIL, "server",
                  advice_for(&attempt->down), "%s%s%s", attempt->down.error.text,
                  role[0] != '\0' ? ", role " : "", role);
}

static void check_server(struct qwp_check *check, struct qwp_loop *loop,
                         struct qwp_session_options *session_options,
                         const struct qwp_endpoint *endpoint, int64_t timeout_ns, bool is_only)
{
    struct addrinfo *addresses = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct attempt attempt = {0};
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    const int rc = getaddrinfo(endpoint->host, port, &hints, &addresses);
    if (rc != 0) {
        qwp_check_add(check, QWP_CHECK_FAIL, "server", "correct addr, or mend name resolution",
                      "%s does not resolve: %s", endpoint->host, gai_strerror(rc));
        return;
    }
    session_options->owner = &attempt;
    for (const struct addrinfo *at = addresses; at != NULL && !attempt.is_up; at = at->ai_next) {
        try_address(loop, session_options, endpoint, at, timeout_ns, &attempt);
    }
    freeaddrinfo(addresses);
    report(check, endpoint, &attempt, is_only);
}

void qwp_check_servers(struct qwp_check *check, const struct qwp_options *options,
                       const struct qwp_conf *conf)
{
    static const struct qwp_session_callbacks callbacks = {.up = on_up,
                                                           .down = on_down,
                                                           .ok = on_ok,
                                                           .durable = on_durable,
                                                           .rejected = on_rejected,
                                                           .writable = on_writable};
    struct qwp_error err = {0};
    struct qwp_loop *loop = NULL;
    const struct qwp_loop_options loop_options = {0};
    if (qwp_loop_open(&loop, &loop_options, &err) != QWP_OK) {
        qwp_check_add(check, QWP_CHECK_FAIL, "servers", "see above", "not tried: %s", err.text);
        return;
    }
    struct qwp_session_options session_options = {
        .loop = loop,
        .callbacks = &callbacks,
        .client_id = "qwp-sidecar/" QWP_VERSION,
        .tls = conf->tls,
        .tls_verify = conf->tls_verify == QWP_TLS_VERIFY_ON,
        .tls_roots = conf->tls_roots,
        .tls_roots_password = conf->tls_roots_password,
        .authorization = conf->authorization,
        .durable_ack = conf->durable_ack,
        .connect_timeout_ns = options->timeout_ns,
        .auth_timeout_ns = options->timeout_ns,
        .dead_after_ns = options->timeout_ns,
    };
    for (size_t i = 0; i < conf->endpoints.count; i++) {
        check_server(check, loop, &session_options, &conf->endpoints.list[i], options->timeout_ns,
                     conf->endpoints.count == 1);
    }
    qwp_loop_close(loop);
}

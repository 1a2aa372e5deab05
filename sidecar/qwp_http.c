#include "sidecar/qwp_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_http_request.h"

enum {
    CONNECTIONS_MAX = QWP_HTTP_CONNECTIONS_MAX,
    HEAD_ROOM = 512,      /* of an answer's head */
    ACCEPT_PAUSE_MS = 500 /* when there is no descriptor left */
};

enum state { FREE = 0, READING, WRITING, LINGERING };

struct connection {
    enum state state;
    int fd;
    int64_t deadline_ns;
    uint64_t number; /* the lower the older */
    size_t len;      /* of the request so far */
    char head[QWP_HTTP_HEAD_BYTES];
    char *answer; /* owned */
    size_t answer_len, answer_sent;
};

struct qwp_http {
    qwp_http_answer_fn answer;
    void *owner;
    int listen_fd, stop_fd;
    uint16_t port;
    pthread_t thread;
    bool is_started;
    /* the thread's */
    int64_t accept_ns; /* no sooner than this */
    uint64_t accepted;
    struct connection connections[CONNECTIONS_MAX];
};

/* ---- answers ---- */

static const char *reason_of(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return status >= 500 ? "Internal Server Error" : "Bad Request";
    }
}

/* What to send, in one piece of memory of the caller's; NULL: there is none. */
static char *answer_make(int status, const char *content_type, const char *body, size_t body_len,
                         bool head_only, size_t *len)
{
    char *answer = malloc(HEAD_ROOM + body_len);
    if (answer == NULL) {
        return NULL;
    }
    const int head = snprintf(answer, HEAD_ROOM,
                              "HTTP/1.1 %d %s\r\n"
                              "Content-Type: %s\r\n"
                              "Content-Length: %zu\r\n"
                              "Cache-Control: no-store\r\n"
                              "X-Content-Type-Options: nosniff\r\n"
                              "%sConnection: close\r\n\r\n",
                              status, reason_of(status), content_type, body_len,
                              status == 405 ? "Allow: GET, HEAD\r\n" : "");
    *len = (size_t)head;
    if (!head_only) {
        memcpy(answer + *len, body, body_len);
        *len += body_len;
    }
    return answer;
}

static void answer_now(struct qwp_http *http, struct connection *connection,
                       const struct qwp_http_request *request, int status)
{
    const char *content_type = "text/plain; charset=utf-8";
    char *body = NULL;
    size_t body_len = 0;
    FILE *out = open_memstream(&body, &body_len);
    if (out != NULL) {
        if (status == 200) {
            status = http->answer(http->owner, request->path, out, &content_type);
        } else {
            fprintf(out, "%s\n", reason_of(status));
        }
    }
    if (out == NULL || fclose(out) != 0) {
        status = 500;
        body_len = 0;
    }
    connection->answer = answer_make(status, content_type, body != NULL ? body : "", body_len,
                                     request->head_only, &connection->answer_len);
    free(body);
    connection->answer_sent = 0;
    connection->state = connection->answer != NULL ? WRITING : LINGERING;
    connection->deadline_ns =
        qwp_clock_monotonic_ns() + (int64_t)QWP_HTTP_ANSWER_MS * QWP_NS_PER_MS;
}

/* ---- connections ---- */

static void connection_close(struct connection *connection)
{
    close(connection->fd);
    free(connection->answer);
    connection->answer = NULL;
    connection->state = FREE;
}

/* True: there is something to write now. */
static bool connection_read(struct qwp_http *http, struct connection *connection)
{
    const ssize_t n = recv(connection->fd, connection->head + connection->len,
                           sizeof connection->head - connection->len, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return false;
    }
    if (n <= 0) {
        connection_close(connection);
        return false;
    }
    connection->len += (size_t)n;
    struct qwp_http_request request = {0};
    int status = qwp_http_request_read(&request, connection->head, connection->len);
    if (status == 0 && connection->len < sizeof connection->head) {
        return false;
    }
    status = status == 0 ? 431 : status;
    answer_now(http, connection, &request, status);
    return connection->state == WRITING;
}

/* Closing with bytes unread would break the answer off: they are read, for a while. */
static void connection_linger(struct connection *connection)
{
    shutdown(connection->fd, SHUT_WR);
    connection->state = LINGERING;
    connection->deadline_ns =
        qwp_clock_monotonic_ns() + (int64_t)QWP_HTTP_LINGER_MS * QWP_NS_PER_MS;
}

static void connection_write(struct connection *connection)
{
    const ssize_t n =
        send(connection->fd, connection->answer + connection->answer_sent,
             connection->answer_len - connection->answer_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n < 0) {
        connection_close(connection);
        return;
    }
    connection->answer_sent += (size_t)n;
    if (connection->answer_sent == connection->answer_len) {
        connection_linger(connection);
    }
}

static void connection_drain(struct connection *connection)
{
    char ignored[4096];
    const ssize_t n = recv(connection->fd, ignored, sizeof ignored, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        connection_close(connection);
    }
}

static void connection_step(struct qwp_http *http, struct connection *connection)
{
    if (connection->state == READING && !connection_read(http, connection)) {
        return;
    }
    if (connection->state == WRITING) {
        connection_write(connection);
    } else if (connection->state == LINGERING) {
        connection_drain(connection);
    }
}

/* A free one, or the oldest: whoever holds connections for nothing makes room for a probe. */
static struct connection *connection_free(struct qwp_http *http)
{
    struct connection *oldest = &http->connections[0];
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &http->connections[i];
        if (connection->state == FREE) {
            return connection;
        }
        oldest = connection->number < oldest->number ? connection : oldest;
    }
    connection_close(oldest);
    return oldest;
}

static void connection_accept(struct qwp_http *http, int64_t now_ns)
{
    const int fd = accept4(http->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            http->accept_ns = now_ns + (int64_t)ACCEPT_PAUSE_MS * QWP_NS_PER_MS;
        }
        return;
    }
    struct connection *connection = connection_free(http);
    connection->state = READING;
    connection->fd = fd;
    connection->len = 0;
    connection->number = http->accepted++;
    connection->deadline_ns = now_ns + (int64_t)QWP_HTTP_HEAD_MS * QWP_NS_PER_MS;
}

/* ---- the thread ---- */

struct waiting {
    struct pollfd fds[2 + CONNECTIONS_MAX];
    struct connection *of[2 + CONNECTIONS_MAX];
    nfds_t count;
    int64_t deadline_ns;
};

static void wait_add(struct waiting *waiting, int fd, short events, struct connection *connection,
                     int64_t deadline_ns)
{
    waiting->fds[waiting->count] = (struct pollfd){.fd = fd, .events = events};
    waiting->of[waiting->count++] = connection;
    waiting->deadline_ns = deadline_ns < waiting->deadline_ns ? deadline_ns : waiting->deadline_ns;
}

static void wait_for(const struct qwp_http *http, struct waiting *waiting, int64_t now_ns,
                     struct connection *connections)
{
    *waiting = (struct waiting){.deadline_ns = QWP_NEVER_NS};
    wait_add(waiting, http->stop_fd, POLLIN, NULL, QWP_NEVER_NS);
    const bool is_paused = now_ns < http->accept_ns;
    wait_add(waiting, is_paused ? -1 : http->listen_fd, POLLIN, NULL,
             is_paused ? http->accept_ns : QWP_NEVER_NS);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *connection = &connections[i];
        if (connection->state != FREE) {
            wait_add(waiting, connection->fd, connection->state == WRITING ? POLLOUT : POLLIN,
                     connection, connection->deadline_ns);
        }
    }
}

static int timeout_ms(int64_t deadline_ns, int64_t now_ns)
{
    if (deadline_ns == QWP_NEVER_NS) {
        return -1;
    }
    return deadline_ns <= now_ns ? 0 : (int)((deadline_ns - now_ns) / QWP_NS_PER_MS + 1);
}

static void *serve(void *arg)
{
    struct qwp_http *http = arg;
    struct waiting waiting;
    for (;;) {
        int64_t now_ns = qwp_clock_monotonic_ns();
        wait_for(http, &waiting, now_ns, http->connections);
        if (poll(waiting.fds, waiting.count, timeout_ms(waiting.deadline_ns, now_ns)) < 0) {
            continue; /* EINTR, or no memory for a moment */
        }
        if (waiting.fds[0].revents != 0) {
            return NULL;
        }
        now_ns = qwp_clock_monotonic_ns();
        for (nfds_t i = 2; i < waiting.count; i++) {
            struct connection *connection = waiting.of[i];
            if (now_ns >= connection->deadline_ns) {
                connection_close(connection);
            } else if (waiting.fds[i].revents != 0) {
                connection_step(http, connection);
            }
        }
        if (waiting.fds[1].revents != 0) {
            connection_accept(http, now_ns);
        }
    }
}

/* ---- life ---- */

struct address {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    socklen_t len;
};

static bool read_port(const char *text, uint16_t *port)
{
    char *end;
    errno = 0;
    const unsigned long value = strtoul(text, &end, 10);
    *port = (uint16_t)value;
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0 && value <= UINT16_MAX;
}

/* No names but one: looking them up may take as long as it likes. */
static bool read_address(const char *text, struct address *address)
{
    char host[64];
    uint16_t port;
    const char *colon = strrchr(text, ':');
    const size_t len = colon != NULL ? (size_t)(colon - text) : 0;
    *address = (struct address){0};
    if (len == 0 || len >= sizeof host || !read_port(colon + 1, &port)) {
        return false;
    }
    memcpy(host, text, len);
    host[len] = '\0';
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        address->at.v6.sin6_family = AF_INET6;
        address->at.v6.sin6_port = htons(port);
        address->len = sizeof address->at.v6;
        return inet_pton(AF_INET6, host + 1, &address->at.v6.sin6_addr) == 1;
    }
    address->at.v4.sin_family = AF_INET;
    address->at.v4.sin_port = htons(port);
    address->len = sizeof address->at.v4;
    return inet_pton(AF_INET, strcmp(host, "localhost") == 0 ? "127.0.0.1" : host,
                     &address->at.v4.sin_addr) == 1;
}

static enum qwp_result listen_on(struct qwp_http *http, const char *text, struct qwp_error *err)
{
    struct address address;
    const int on = 1;
    if (!read_address(text, &address)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "'%s' is no address to listen on: expected IPV4:PORT, [IPV6]:PORT or "
                        "localhost:PORT",
                        text);
    }
    http->listen_fd =
        socket(address.at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (http->listen_fd < 0 ||
        setsockopt(http->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(http->listen_fd, &address.at.any, address.len) != 0 ||
        listen(http->listen_fd, CONNECTIONS_MAX) != 0 ||
        getsockname(http->listen_fd, &address.at.any, &address.len) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot listen on %s", text);
    }
    http->port = ntohs(address.at.any.sa_family == AF_INET ? address.at.v4.sin_port
                                                           : address.at.v6.sin6_port);
    return QWP_OK;
}

/* Signals belong to the threads that were there before. */
static enum qwp_result thread_start(struct qwp_http *http, struct qwp_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&http->thread, NULL, serve, http);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    http->is_started = error == 0;
    return error == 0 ? QWP_OK : qwp_fail(err, QWP_IO, error, "cannot start a thread");
}

enum qwp_result qwp_http_open(struct qwp_http **out, const char *address, qwp_http_answer_fn answer,
                              void *owner, struct qwp_error *err)
{
    struct qwp_http *http = calloc(1, sizeof *http);
    if (http == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to listen on %s", address);
    }
    http->answer = answer;
    http->owner = owner;
    http->listen_fd = -1;
    http->stop_fd = eventfd(0, EFD_CLOEXEC);
    enum qwp_result result = QWP_OK;
    if (http->stop_fd < 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot make an eventfd");
    }
    result = result == QWP_OK ? listen_on(http, address, err) : result;
    result = result == QWP_OK ? thread_start(http, err) : result;
    if (result != QWP_OK) {
        qwp_http_close(http);
        return result;
    }
    *out = http;
    return QWP_OK;
}

uint16_t qwp_http_port(const struct qwp_http *http)
{
    return http->port;
}

void qwp_http_close(struct qwp_http *http)
{
    if (http == NULL) {
        return;
    }
    if (http->is_started) {
        const uint64_t one = 1;
        const ssize_t written = write(http->stop_fd, &one, sizeof one);
        (void)written; /* an eventfd of our own takes it */
        pthread_join(http->thread, NULL);
    }
    for (size_t i = 0; i < CONNECTIONS_MAX; i++) {
        if (http->connections[i].state != FREE) {
            connection_close(&http->connections[i]);
        }
    }
    if (http->listen_fd >= 0) {
        close(http->listen_fd);
    }
    if (http->stop_fd >= 0) {
        close(http->stop_fd);
    }
    free(http);
}

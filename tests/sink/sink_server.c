#include "tests/sink/sink_server.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/sink/sink_buffer.h"
#include "tests/sink/sink_connection.h"

enum { BACKLOG = 256, HOST_BYTES = 256, PEER_BYTES = 80 };

struct sink_session {
    struct sink_session *next;
    pthread_t thread;
    int fd;
    /* writer: the thread, last of all. reader: the server, which then joins it. */
    _Atomic bool done;
    char peer[PEER_BYTES];
    struct sink_connection_options options;
};

/* Splits "HOST:PORT"; brackets around the host are taken off. */
static enum qwp_result split_address(const char *address, char host[HOST_BYTES], const char **port,
                                     struct qwp_error *err)
{
    const char *colon = strrchr(address, ':');
    if (colon == NULL || colon[1] == '\0') {
        return qwp_fail(err, QWP_INVALID, 0, "'%s' is not ADDR:PORT", address);
    }
    const char *start = address;
    size_t len = (size_t)(colon - address);
    if (len >= 2 && start[0] == '[' && start[len - 1] == ']') {
        start++;
        len -= 2;
    }
    if (len >= HOST_BYTES) {
        return qwp_fail(err, QWP_INVALID, 0, "the host of '%.32s...' is too long", address);
    }
    memcpy(host, start, len);
    host[len] = '\0';
    *port = colon + 1;
    return QWP_OK;
}

static enum qwp_result listen_on(struct sink_server *server, const struct addrinfo *info,
                                 const char *address, struct qwp_error *err)
{
    const int on = 1;
    server->listen_fd =
        socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP);
    if (server->listen_fd < 0 ||
        setsockopt(server->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
        bind(server->listen_fd, info->ai_addr, info->ai_addrlen) != 0 ||
        listen(server->listen_fd, BACKLOG) != 0) {
        const int sys = errno;
        if (server->listen_fd >= 0) {
            close(server->listen_fd);
        }
        server->listen_fd = -1;
        return qwp_fail(err, QWP_IO, sys, "listening on %s", address);
    }
    struct sockaddr_storage bound;
    socklen_t len = sizeof bound;
    if (getsockname(server->listen_fd, (struct sockaddr *)&bound, &len) != 0) {
        return qwp_fail(err, QWP_IO, errno, "asking for the port of %s", address);
    }
    server->port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                     : ((struct sockaddr_in *)&bound)->sin_port);
    return QWP_OK;
}

/* `again`: at the port of the first time. */
static enum qwp_result resolve_and_listen(struct sink_server *server, bool again,
                                          struct qwp_error *err)
{
    const char *address = server->address;
    char host[HOST_BYTES];
    const char *port = NULL;
    enum qwp_result result = split_address(address, host, &port, err);
    if (result != QWP_OK) {
        return result;
    }
    char port_again[8];
    if (again) {
        snprintf(port_again, sizeof port_again, "%u", server->port);
        port = port_again;
    }
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *infos = NULL;
    const int failed = getaddrinfo(host[0] != '\0' ? host : NULL, port, &hints, &infos);
    if (failed != 0) {
        return qwp_fail(err, QWP_INVALID, 0, "the address '%s': %s", address, gai_strerror(failed));
    }
    result = listen_on(server, infos, address, err);
    freeaddrinfo(infos);
    return result;
}

enum qwp_result sink_server_refuse(struct sink_server *server, bool refuse, struct qwp_error *err)
{
    if (refuse == (server->listen_fd < 0)) {
        return QWP_OK;
    }
    if (!refuse) {
        return resolve_and_listen(server, true, err);
    }
    close(server->listen_fd);
    server->listen_fd = -1;
    return QWP_OK;
}

enum qwp_result sink_server_open(struct sink_server *server, const char *address,
                                 struct sink_store *store, const struct sink_policy *policy,
                                 SSL_CTX *tls, struct qwp_error *err)
{
    *server = (struct sink_server){.listen_fd = -1,
                                   .address = address,
                                   .stop_fd = -1,
                                   .store = store,
                                   .policy = policy,
                                   .tls = tls};
    server->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const enum qwp_result result = server->stop_fd >= 0
                                       ? resolve_and_listen(server, false, err)
                                       : qwp_fail(err, QWP_IO, errno, "making an eventfd");
    if (result != QWP_OK) {
        sink_server_close(server);
    }
    return result;
}

static void *session_main(void *argument)
{
    struct sink_session *session = argument;
    sink_connection_serve(session->fd, &session->options);
    atomic_store_explicit(&session->done, true, memory_order_release);
    return NULL;
}

/* Joins the threads that are done, or all. */
static void reap(struct sink_server *server, bool all)
{
    struct sink_session **link = &server->sessions;
    while (*link != NULL) {
        struct sink_session *session = *link;
        if (!all && !atomic_load_explicit(&session->done, memory_order_acquire)) {
            link = &session->next;
            continue;
        }
        pthread_join(session->thread, NULL);
        *link = session->next;
        free(session);
    }
}

static void name_peer(const struct sockaddr_storage *address, socklen_t len, char out[PEER_BYTES])
{
    char host[64] = "?";
    char port[8] = "?";
    (void)getnameinfo((const struct sockaddr *)address, len, host, sizeof host, port, sizeof port,
                      NI_NUMERICHOST | NI_NUMERICSERV);
    snprintf(out, PEER_BYTES, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

enum qwp_result sink_server_accept(struct sink_server *server, struct qwp_error *err)
{
    reap(server, false);
    struct sockaddr_storage address;
    socklen_t len = sizeof address;
    const int fd =
        accept4(server->listen_fd, (struct sockaddr *)&address, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
        const bool expected = errno == EAGAIN || errno == EINTR || errno == ECONNABORTED;
        return expected ? QWP_AGAIN : qwp_fail(err, QWP_IO, errno, "accepting a connection");
    }
    struct sink_session *session = sink_realloc(NULL, sizeof *session);
    memset(session, 0, sizeof *session);
    session->fd = fd;
    name_peer(&address, len, session->peer);
    session->options = (struct sink_connection_options){
        .store = server->store,
        .policy = server->policy,
        .tls = server->tls,
        .stop_fd = server->stop_fd,
        .peer = session->peer,
        .number = server->accepted++,
    };
    const int failed = pthread_create(&session->thread, NULL, session_main, session);
    if (failed != 0) {
        close(fd);
        free(session);
        return qwp_fail(err, QWP_IO, failed, "starting a thread for a connection");
    }
    session->next = server->sessions;
    server->sessions = session;
    return QWP_OK;
}

void sink_server_close(struct sink_server *server)
{
    if (server->stop_fd >= 0) {
        const uint64_t one = 1;
        (void)!write(server->stop_fd, &one, sizeof one);
    }
    reap(server, true);
    if (server->listen_fd >= 0) {
        close(server->listen_fd);
    }
    if (server->stop_fd >= 0) {
        close(server->stop_fd);
    }
    *server = (struct sink_server){.listen_fd = -1, .stop_fd = -1};
}

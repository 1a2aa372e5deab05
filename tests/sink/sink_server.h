/* sink_server: listens, gives each connection a thread, ends them all.
 *
 * Threads: open, accept and close from one thread; connections run on their own. */
#ifndef SINK_SERVER_H
#define SINK_SERVER_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "tests/sink/sink_policy.h"
#include "tests/sink/sink_store.h"

struct sink_session; /* a connection and its thread */

struct sink_server {
    int listen_fd; /* -1 while connections are refused */
    const char *address;
    int stop_fd; /* an eventfd, written once when the server stops */
    uint16_t port;
    struct sink_store *store;
    const struct sink_policy *policy;
    SSL_CTX *tls;
    int64_t accepted; /* connections, since the start */
    struct sink_session *sessions;
};

/* `address` is HOST:PORT or [IPv6]:PORT; port 0 takes a free one. Borrows the rest until close. */
QWP_MUST_USE enum qwp_result sink_server_open(struct sink_server *server, const char *address,
                                              struct sink_store *store,
                                              const struct sink_policy *policy, SSL_CTX *tls,
                                              struct qwp_error *err);
/* Takes one connection that waits; QWP_AGAIN when none does. */
QWP_MUST_USE enum qwp_result sink_server_accept(struct sink_server *server, struct qwp_error *err);
/* Refuses connections (no socket listens), or takes them again, at the same port. */
QWP_MUST_USE enum qwp_result sink_server_refuse(struct sink_server *server, bool refuse,
                                                struct qwp_error *err);
/* Says good-bye to all clients and waits for their threads. */
void sink_server_close(struct sink_server *server);

#endif

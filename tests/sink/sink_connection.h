/* sink_connection: one client from TLS handshake to close.
 *
 * Threads: all of it runs on the thread that calls sink_connection_serve(). */
#ifndef SINK_CONNECTION_H
#define SINK_CONNECTION_H

#include <openssl/ssl.h>

#include "tests/sink/sink_policy.h"
#include "tests/sink/sink_store.h"

struct sink_connection_options {
    struct sink_store *store;
    const struct sink_policy *policy;
    SSL_CTX *tls;     /* NULL: plain */
    int stop_fd;      /* readable when the server stops */
    const char *peer; /* for the log */
    int64_t number;   /* counts from 0 */
};

/* Takes `fd`; returns when the connection is over. */
void sink_connection_serve(int fd, const struct sink_connection_options *options);

#endif

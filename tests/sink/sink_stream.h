/* sink_stream: the bytes of a connection, with or without TLS.
 *
 * Threads:  one connection, one thread. The socket is non-blocking; only sink_stream_wait() and
 *           sink_stream_handshake() wait, and both end when the server stops. */
#ifndef SINK_STREAM_H
#define SINK_STREAM_H

#include <openssl/ssl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

struct sink_stream {
    int fd;
    int stop_fd;          /* readable when the server stops; borrowed */
    SSL *ssl;             /* NULL: plain */
    bool tls_wants_write; /* reading cannot go on before something is written */
    uint64_t bytes_read;  /* after TLS */
    /* Bytes that may still pass before the connection is cut; INT64_MAX: no bound. */
    int64_t in_left;
    int64_t out_left;
};

/* Takes `fd` (also on failure: the caller calls fini). `tls` NULL: plain. */
QWP_MUST_USE enum qwp_result sink_stream_init(struct sink_stream *stream, int fd, int stop_fd,
                                              SSL_CTX *tls, struct qwp_error *err);
/* Cuts the connection after that many bytes on the wire (INT64_MAX: never): reading or writing then
 * fails. Before any byte has passed. */
QWP_MUST_USE enum qwp_result sink_stream_cut(struct sink_stream *stream, int64_t in_bytes,
                                             int64_t out_bytes, struct qwp_error *err);
/* The next close is a reset. */
void sink_stream_reset(struct sink_stream *stream);
/* Whether the client has closed its side. */
bool sink_stream_is_gone(const struct sink_stream *stream);
void sink_stream_fini(struct sink_stream *stream);

/* TLS handshake; returns at once without TLS. QWP_AGAIN: not within `timeout_ns`. */
QWP_MUST_USE enum qwp_result sink_stream_handshake(struct sink_stream *stream, int64_t timeout_ns,
                                                   struct qwp_error *err);
/* Reads what is there, up to `room`, at least one byte. QWP_AGAIN: nothing now. QWP_CLOSED: end. */
QWP_MUST_USE enum qwp_result sink_stream_read(struct sink_stream *stream, void *at, size_t room,
                                              size_t *len, struct qwp_error *err);
/* Writes some or all. QWP_AGAIN: nothing can be written now. */
QWP_MUST_USE enum qwp_result sink_stream_write(struct sink_stream *stream, const void *at,
                                               size_t len, size_t *written, struct qwp_error *err);
/* Waits until one of both is possible. QWP_AGAIN: not within `timeout_ns` (QWP_NEVER_NS: no bound);
 * QWP_CLOSED: the server stops. */
QWP_MUST_USE enum qwp_result sink_stream_wait(struct sink_stream *stream, bool read, bool write,
                                              int64_t timeout_ns);
/* Lets time pass. QWP_CLOSED: the server stops; else QWP_AGAIN. */
QWP_MUST_USE enum qwp_result sink_stream_pause(const struct sink_stream *stream, int64_t wait_ns);
/* Says good-bye (close_notify, FIN) and reads the rest for at most `timeout_ns`, so that our last
 * words are not overtaken by a reset. */
void sink_stream_end(struct sink_stream *stream, int64_t timeout_ns);

#endif

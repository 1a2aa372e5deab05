/* qwp_tls: TLS as a client, between the session's buffers, without a socket.
 *
 * OpenSSL reads from bytes that the session feeds and writes into the outbox, by a BIO of our own:
 * so records are built where they are sent from, and backpressure is room in the outbox.
 *
 * Threads: one connection's calls are one thread's. A context may be shared by connections.
 * Trust:   TLS 1.2 or 1.3; certificate and host name are verified unless told otherwise.
 * Errors:  every failure ends the connection; texts carry OpenSSL's reason and what to do.
 * OpenSSL's error queue is cleared before each call and emptied after a failed one. */
#ifndef QWP_TLS_H
#define QWP_TLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "transport/qwp_outbox.h"

struct qwp_tls_options {
    bool verify;
    const char *roots;          /* PEM or PKCS#12 file; NULL: the system's store */
    const char *roots_password; /* NULL: PEM */
};

struct qwp_tls_context;

/* Reads the roots. QWP_INVALID, QWP_IO or QWP_NOMEM with a text that names the file. */
QWP_MUST_USE enum qwp_result qwp_tls_context_create(struct qwp_tls_context **out,
                                                    const struct qwp_tls_options *options,
                                                    struct qwp_error *err);
void qwp_tls_context_destroy(struct qwp_tls_context *context);

struct qwp_tls {
    void *ssl; /* SSL */
    struct qwp_outbox *outbox;
    const unsigned char *in;
    size_t in_len;
    uint64_t records;     /* written since the last change of keys */
    uint64_t records_max; /* then the keys are changed (TLS 1.3) */
    bool wants_room;      /* stopped for lack of room in the outbox: call again after a send */
};

/* A connection to `host` (a name or an IP address). Borrows the outbox until close. */
QWP_MUST_USE enum qwp_result qwp_tls_open(struct qwp_tls *tls, struct qwp_tls_context *context,
                                          struct qwp_outbox *outbox, const char *host,
                                          struct qwp_error *err);
void qwp_tls_close(struct qwp_tls *tls);

/* Bytes from the socket, borrowed until qwp_tls_is_drained(). Only when drained. */
void qwp_tls_feed(struct qwp_tls *tls, const unsigned char *bytes, size_t len);
static inline bool qwp_tls_is_drained(const struct qwp_tls *tls)
{
    return tls->in_len == 0;
}

/* QWP_OK: done. QWP_AGAIN: feed more (or see wants_room). QWP_PEER: failed. */
QWP_MUST_USE enum qwp_result qwp_tls_handshake(struct qwp_tls *tls, struct qwp_error *err);
/* QWP_OK: *got bytes, more than 0; call again until QWP_AGAIN, or bytes would stay inside.
 * QWP_CLOSED: close_notify. QWP_PEER: failed. */
QWP_MUST_USE enum qwp_result qwp_tls_read(struct qwp_tls *tls, unsigned char *buffer, size_t cap,
                                          size_t *got, struct qwp_error *err);
/* Room for one record of any kind, with a margin for a key update before it. */
static inline bool qwp_tls_has_room(const struct qwp_tls *tls)
{
    return qwp_outbox_room(tls->outbox) >= QWP_TLS_RECORD_MAX + 256;
}
/* One record of up to QWP_TLS_PLAIN_MAX bytes. Only with qwp_tls_has_room(). */
QWP_MUST_USE enum qwp_result qwp_tls_write(struct qwp_tls *tls, const unsigned char *bytes,
                                           size_t len, struct qwp_error *err);
/* Appends a close_notify if there is room and the handshake is done. */
void qwp_tls_shutdown(struct qwp_tls *tls);

#endif

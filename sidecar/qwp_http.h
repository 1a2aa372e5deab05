/* qwp_http: a tiny HTTP/1.1 server for a few short answers, on a thread of its own.
 *
 * GET and HEAD of what its owner answers; each answer ends its connection. Nothing else of HTTP:
 * no body, no keep-alive, no chunks, no ranges.
 *
 * Threads:  the server's own, which also calls `answer`; open and close from one other.
 * Progress: no disk, no name look-up, no lock but those of `answer`; with no connection open the
 *           thread sleeps and is not woken.
 * Trust:    anyone who can connect. Bounded: QWP_HTTP_CONNECTIONS_MAX at a time (one more takes the
 *           place of the oldest), QWP_HTTP_HEAD_BYTES of request, and the times below. What is not
 *           exactly a request is refused. */
#ifndef QWP_HTTP_H
#define QWP_HTTP_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/qwp_error.h"

enum {
    QWP_HTTP_CONNECTIONS_MAX = 16,
    QWP_HTTP_HEAD_BYTES = 8192,
    QWP_HTTP_HEAD_MS = 5000,    /* to send the request */
    QWP_HTTP_ANSWER_MS = 10000, /* to take the answer */
    QWP_HTTP_LINGER_MS = 1000,  /* to close, after the answer */
};

/* Writes the body of `path` (no query; cleaned by nobody) to `body`, says what it is unless it is
 * plain text, and returns the status; 404: no such path. */
typedef int (*qwp_http_answer_fn)(void *owner, const char *path, FILE *body,
                                  const char **content_type);

struct qwp_http;

/* `address`: HOST:PORT, where HOST is an IPv4 address, an IPv6 one in brackets, or "localhost";
 * port 0: any that is free. QWP_INVALID: it is none; QWP_IO: it cannot be listened on. */
QWP_MUST_USE enum qwp_result qwp_http_open(struct qwp_http **out, const char *address,
                                           qwp_http_answer_fn answer, void *owner,
                                           struct qwp_error *err);
/* The port that is listened on. */
uint16_t qwp_http_port(const struct qwp_http *http);
/* Breaks off what is under way. NULL is fine. */
void qwp_http_close(struct qwp_http *http);

#endif

/* qwp_http_request: the head of an HTTP request, judged.
 *
 * Trust: bytes of anyone. Strict (RFC 9112): lines end with CR LF, no folding, no space before a
 *        colon, one Host, and no body in any form. */
#ifndef QWP_HTTP_REQUEST_H
#define QWP_HTTP_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

enum { QWP_HTTP_PATH_BYTES = 128 };

struct qwp_http_request {
    bool head_only; /* HEAD */
    char path[QWP_HTTP_PATH_BYTES];
};

/* `head`: all that came so far. 0: not complete yet; 200: *request is good; else the status to
 * refuse it with. */
int qwp_http_request_read(struct qwp_http_request *request, const char *head, size_t len);

#endif

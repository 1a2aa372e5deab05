/* sink_http: the upgrade request, judged, and the answer to it. */
#ifndef SINK_HTTP_H
#define SINK_HTTP_H

#include <stdbool.h>
#include <stddef.h>

#include "tests/sink/sink_buffer.h"
#include "tests/sink/sink_policy.h"

enum { SINK_REQUEST_BYTES_MAX = 16 * 1024 };

struct sink_upgrade {
    int status; /* 101, or why not */
    bool durable;
    char client[64]; /* X-QWP-Client-Id, printable, "" when absent */
};

/* Length of the request's head with its empty line, 0 when it has not come to its end yet. */
size_t sink_http_head_len(const char *at, size_t len);
/* Judges a complete head and appends the answer to `out`. */
void sink_http_answer(const char *head, size_t len, const struct sink_policy *policy,
                      struct sink_upgrade *upgrade, struct sink_buffer *out);
/* Another answer; `header` is "NAME: VALUE" or "". */
void sink_http_refuse(int status, const char *header, const char *why, struct sink_buffer *out);

#endif

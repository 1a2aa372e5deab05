#include "sidecar/qwp_http_request.h"

#include <string.h>
#include <strings.h>

/* A part of the head. */
struct span {
    const char *at;
    size_t len;
};

static bool span_is(struct span span, const char *text)
{
    return span.len == strlen(text) && memcmp(span.at, text, span.len) == 0;
}

static bool span_is_name(struct span span, const char *name)
{
    return span.len == strlen(name) && strncasecmp(span.at, name, span.len) == 0;
}

/* RFC 9110, 5.6.2. */
static bool is_token(struct span span)
{
    for (size_t i = 0; i < span.len; i++) {
        const char c = span.at[i];
        const bool is_alnum =
            (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
        if (!is_alnum && (c == '\0' || strchr("!#$%&'*+-.^_`|~", c) == NULL)) {
            return false;
        }
    }
    return span.len > 0;
}

/* Cuts off what is before `c`. False: there is none, and *rest stays. */
static bool cut_at(struct span *rest, char c, struct span *before)
{
    const char *at = memchr(rest->at, c, rest->len);
    if (at == NULL) {
        return false;
    }
    *before = (struct span){rest->at, (size_t)(at - rest->at)};
    rest->len -= before->len + 1;
    rest->at = at + 1;
    return true;
}

/* Cuts off a line, which must end with CR LF and hold no other control characters but tabs. */
static bool cut_line(struct span *rest, struct span *line)
{
    if (!cut_at(rest, '\n', line) || line->len == 0 || line->at[line->len - 1] != '\r') {
        return false;
    }
    line->len--;
    for (size_t i = 0; i < line->len; i++) {
        const unsigned char c = (unsigned char)line->at[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return true;
}

static int read_target(struct qwp_http_request *request, struct span target)
{
    struct span path = target;
    struct span rest = target;
    (void)cut_at(&rest, '?', &path);
    if (path.len == 0 || path.at[0] != '/') {
        return 400;
    }
    for (size_t i = 0; i < path.len; i++) {
        if ((unsigned char)path.at[i] >= 0x7f) {
            return 400;
        }
    }
    if (path.len >= sizeof request->path) {
        return 414;
    }
    memcpy(request->path, path.at, path.len);
    request->path[path.len] = '\0';
    return 200;
}

static int read_line(struct qwp_http_request *request, struct span line, bool *is_1_1)
{
    struct span method, target;
    if (!cut_at(&line, ' ', &method) || !cut_at(&line, ' ', &target) || !is_token(method)) {
        return 400;
    }
    *is_1_1 = span_is(line, "HTTP/1.1");
    if (!*is_1_1 && !span_is(line, "HTTP/1.0")) {
        return line.len == 8 && memcmp(line.at, "HTTP/", 5) == 0 ? 505 : 400;
    }
    request->head_only = span_is(method, "HEAD");
    if (!request->head_only && !span_is(method, "GET")) {
        return 405;
    }
    return read_target(request, target);
}

static int read_field(struct span line, unsigned *hosts)
{
    struct span name;
    if (!cut_at(&line, ':', &name) || !is_token(name)) {
        return 400;
    }
    while (line.len > 0 && (line.at[0] == ' ' || line.at[0] == '\t')) {
        line.at++;
        line.len--;
    }
    *hosts += span_is_name(name, "Host");
    if (span_is_name(name, "Transfer-Encoding") ||
        (span_is_name(name, "Content-Length") && !span_is(line, "0"))) {
        return 413; /* no request of ours has a body */
    }
    return 200;
}

int qwp_http_request_read(struct qwp_http_request *request, const char *head, size_t len)
{
    if (memmem(head, len, "\r\n\r\n", 4) == NULL) {
        /* A bare LF in place of the end would otherwise be waited on until the time is over. */
        return memmem(head, len, "\n\n", 2) != NULL ? 400 : 0;
    }
    struct span rest = {head, len};
    struct span line;
    bool is_1_1 = false;
    unsigned hosts = 0;
    if (!cut_line(&rest, &line)) {
        return 400;
    }
    int status = read_line(request, line, &is_1_1);
    for (;;) {
        if (!cut_line(&rest, &line)) {
            return 400;
        }
        if (line.len == 0) {
            break;
        }
        const int field = read_field(line, &hosts);
        status = status == 200 ? field : status;
    }
    if (status == 200 && (hosts > 1 || (is_1_1 && hosts == 0))) {
        return 400;
    }
    return status;
}

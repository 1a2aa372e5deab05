#include "core/qwp_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *qwp_result_name(enum qwp_result result)
{
    switch (result) {
    case QWP_OK:
        return "ok";
    case QWP_AGAIN:
        return "again";
    case QWP_INVALID:
        return "invalid";
    case QWP_LIMIT:
        return "limit";
    case QWP_NOMEM:
        return "no memory";
    case QWP_IO:
        return "i/o";
    case QWP_PEER:
        return "peer broke protocol";
    case QWP_CORRUPT:
        return "corrupt";
    case QWP_CLOSED:
        return "closed";
    case QWP_REJECTED:
        return "rejected";
    }
    return "unknown result";
}

enum qwp_result qwp_fail(struct qwp_error *err, enum qwp_result result, int sys_errno,
                         const char *format, ...)
{
    if (err == NULL) {
        return result;
    }
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    err->sys_errno = sys_errno;
    err->delivery = QWP_DELIVERY_NOT_SENT;
    if (sys_errno != 0 && n >= 0 && (size_t)n + 1 < sizeof err->text) {
        snprintf(err->text + n, sizeof err->text - (size_t)n, ": %s", strerror(sys_errno));
    }
    return result;
}

void qwp_error_prefix(struct qwp_error *err, const char *format, ...)
{
    if (err == NULL) {
        return;
    }
    char before[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(before, sizeof before, format, args);
    va_end(args);
    if (n < 0) {
        return;
    }
    const size_t had = strlen(err->text);
    size_t len = (size_t)n;
    if (len > sizeof err->text - 3) {
        len = sizeof err->text - 3;
    }
    const size_t room = sizeof err->text - 1 - len - 2;
    const size_t keep = had < room ? had : room;
    memmove(err->text + len + 2, err->text, keep);
    memcpy(err->text, before, len);
    err->text[len] = ':';
    err->text[len + 1] = ' ';
    err->text[len + 2 + keep] = '\0';
}

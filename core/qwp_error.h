/* qwp_error: what went wrong, for a person at 3 a.m.
 *
 * Threads: a value of its owner; nothing here is shared, thread-local or allocated.
 * Errors:  cold paths take `struct qwp_error *err` last and accept NULL. */
#ifndef QWP_ERROR_H
#define QWP_ERROR_H

#include "core/qwp_result.h"

enum { QWP_ERROR_TEXT_BYTES = 512 };

/* What became of the rows or the message that the failed call was about. */
enum qwp_delivery {
    QWP_DELIVERY_NOT_SENT = 0,
    QWP_DELIVERY_SENT = 1,
    QWP_DELIVERY_UNKNOWN = 2,
};

struct qwp_error {
    int sys_errno; /* 0 when no system call is to blame */
    enum qwp_delivery delivery;
    char text[QWP_ERROR_TEXT_BYTES]; /* always terminated; cut at the end when too long */
};

/* ---- not in the installed qwp.h: from here on for our own code ---- */

/* Fills *err (unless NULL) and returns `result`, so that a failure reads `return qwp_fail(...)`.
 * `sys_errno` 0: no system call to blame; otherwise ": <strerror>" is added to the text. */
enum qwp_result qwp_fail(struct qwp_error *err, enum qwp_result result, int sys_errno,
                         const char *format, ...) QWP_PRINTF(4, 5);

/* Puts "<format>: " before the present text; for a layer that knows more than the one below. */
void qwp_error_prefix(struct qwp_error *err, const char *format, ...) QWP_PRINTF(2, 3);

#endif

/* qwp_log: one line an event, logfmt, for the programs. Libraries never call it.
 *
 *   2026-01-02T03:04:05.678Z level=info msg="connected" endpoint="127.0.0.1:9000"
 *
 * Threads: any; a line is one write(2), so lines never mix. Nothing is allocated. Secrets: never.
 */
#ifndef QWP_LOG_H
#define QWP_LOG_H

#include "core/qwp_result.h"

enum qwp_log_level {
    QWP_LOG_DEBUG = 0,
    QWP_LOG_INFO = 1,
    QWP_LOG_WARN = 2,
    QWP_LOG_ERROR = 3,
};

/* Lines below `level` are dropped (default: info). `fd` is borrowed for good (default: 2). */
void qwp_log_setup(enum qwp_log_level level, int fd);

/* `pairs` are printf-formatted logfmt pairs (`rows=%d table=%s`) put after the message, or "".
 * Values with spaces must come quoted; control characters are replaced by `?`. */
void qwp_log(enum qwp_log_level level, const char *message, const char *pairs, ...)
    QWP_PRINTF(3, 4);

#endif

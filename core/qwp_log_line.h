/* qwp_log_line: the text of a log line, in the form that was asked for.
 *
 * Trust: what is cut for want of room is cut at a value's end or within one, so that a JSON line
 *        stays JSON. */
#ifndef QWP_LOG_LINE_H
#define QWP_LOG_LINE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include "core/qwp_log.h"

/* Text being written into a caller's buffer; what does not fit is left out. */
struct qwp_log_text {
    char *at;
    size_t len;
    size_t room; /* bytes at `at`; nothing is terminated */
    enum qwp_log_format format;
};

/* Everything before the pairs. `is_journal`: with priority, without time. */
void qwp_log_put_head(struct qwp_log_text *text, enum qwp_log_level level, const char *message,
                      bool is_journal);
/* The pairs, each with what separates it from the one before. */
void qwp_log_put_pairs(struct qwp_log_text *text, const char *pairs, va_list args);
/* One pair more. */
void qwp_log_put_count(struct qwp_log_text *text, const char *key, unsigned long long count);
/* What was made by put_pairs() in another text of the same form. Left out if it does not fit. */
void qwp_log_put_made(struct qwp_log_text *text, const char *made, size_t len);
/* The end of the line, for which room was always kept. */
void qwp_log_put_end(struct qwp_log_text *text);

#endif

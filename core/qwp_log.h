/* qwp_log: one line an event, for the programs. Libraries never call it.
 *
 *   2026-01-02T03:04:05.678Z level=info msg="connected" endpoint="127.0.0.1:9000"
 *   {"time":"2026-01-02T03:04:05.678Z","level":"info","msg":"connected","endpoint":"127.0.0.1:9000"}
 *
 * Into the journal each line begins with its priority (<6>, see sd-daemon(3)), and the time, which
 * the journal knows, is left out.
 *
 * Folding: of one message at most QWP_LOG_BURST lines are written in QWP_LOG_WINDOW_S; what comes
 * beyond is counted, and told by one line with the last of them and folded=N when the window ends.
 * So nobody, however broken or hostile, fills a disk with lines.
 *
 * Threads:  any; a line is one write(2), so lines never mix. Nothing is allocated.
 * Progress: never waits for whoever reads the lines: one for which there is no room is counted, and
 *           lost=N stands in the next that is written.
 * Trust:    values may hold anything: quotes are escaped, control characters and what is no UTF-8
 *           become '?'. Secrets: never. */
#ifndef QWP_LOG_H
#define QWP_LOG_H

#include <stdint.h>

#include "core/qwp_result.h"

enum qwp_log_level {
    QWP_LOG_DEBUG = 0,
    QWP_LOG_INFO = 1,
    QWP_LOG_WARN = 2,
    QWP_LOG_ERROR = 3,
};

enum qwp_log_format { QWP_LOG_LOGFMT = 0, QWP_LOG_JSON = 1 };

enum { QWP_LOG_BURST = 10, QWP_LOG_WINDOW_S = 10 };

struct qwp_log_options {
    enum qwp_log_level level; /* lines below are dropped */
    enum qwp_log_format format;
    int fd;            /* borrowed for good */
    int64_t window_ns; /* 0: QWP_LOG_WINDOW_S */
};

/* Before other threads log. Without it: info, logfmt, to stderr. Whether `fd` is the journal is
 * found out here, from $JOURNAL_STREAM. Forgets what was folded. */
void qwp_log_setup(const struct qwp_log_options *options);

/* `pairs` are printf-formatted logfmt pairs (`rows=%d reason="%s"`) put after the message, or "".
 * Their text is a literal; a value is one word or stands in quotes. Conversions: d i u x c s, with
 * flags, width, precision, h l ll z. */
void qwp_log(enum qwp_log_level level, const char *message, const char *pairs, ...)
    QWP_PRINTF(3, 4);

/* Writes what was folded in windows that have ended (all: in every window). Returns when the next
 * one ends, QWP_NEVER_NS: none. Call it by then; cheap when nothing is due. */
int64_t qwp_log_flush(int64_t now_ns);
void qwp_log_flush_all(void);

/* Events that got no line of their own, and lines that nobody took. */
uint64_t qwp_log_folded_count(void);
uint64_t qwp_log_lost_count(void);

#endif

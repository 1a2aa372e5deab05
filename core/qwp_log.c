#include "core/qwp_log.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 2048 };

static enum qwp_log_level level_min = QWP_LOG_INFO;
static int log_fd = STDERR_FILENO;

static const char *const level_names[] = {"debug", "info", "warn", "error"};

void qwp_log_setup(enum qwp_log_level level, int fd)
{
    level_min = level;
    log_fd = fd;
}

static size_t line_head(char *line, enum qwp_log_level level, const char *message)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    size_t len = strftime(line, LINE_BYTES, "%Y-%m-%dT%H:%M:%S", &utc);
    const int n = snprintf(line + len, LINE_BYTES - len, ".%03ldZ level=%s msg=\"%s\"",
                           now.tv_nsec / 1000000, level_names[level], message);
    len += n > 0 ? (size_t)n : 0;
    return len < LINE_BYTES ? len : LINE_BYTES - 1;
}

void qwp_log(enum qwp_log_level level, const char *message, const char *pairs, ...)
{
    if (level < level_min) {
        return;
    }
    char line[LINE_BYTES + 2];
    size_t len = line_head(line, level, message);
    if (pairs[0] != '\0' && len < LINE_BYTES - 1) {
        line[len++] = ' ';
        va_list args;
        va_start(args, pairs);
        const int n = vsnprintf(line + len, LINE_BYTES - len, pairs, args);
        va_end(args);
        len += n > 0 ? (size_t)n : 0;
        len = len < LINE_BYTES ? len : LINE_BYTES - 1;
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[len++] = '\n';
    /* A log that cannot be written is no reason to stop: there is nobody to tell. */
    const ssize_t written = write(log_fd, line, len);
    (void)written;
}

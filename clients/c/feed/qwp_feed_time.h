/* qwp_feed_time: timestamps from text: epochs in any unit, ISO 8601, and patterns like those of
 * strptime().
 *
 * Patterns: %Y %m %d %H %M %S %f (1 to 9 digits of a fraction), %y (1969-2068), %b %B (English
 * months), %e, %j (day of the year), %I with %p, %z (Z, +hh, +hhmm, +hh:mm), %Z (UTC, GMT or Z), %s
 * (seconds since the epoch), %F, %T, %D, %n and %t (any white space), %%. White space in the
 * pattern matches any amount of it. Without a zone the time is UTC. */
#ifndef QWP_FEED_TIME_H
#define QWP_FEED_TIME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/c/qwp.h"

enum qwp_feed_unit { QWP_FEED_NS = 0, QWP_FEED_US, QWP_FEED_MS, QWP_FEED_S };

enum qwp_feed_time_kind {
    QWP_FEED_TIME_AUTO = 0, /* to be found out from the first rows */
    QWP_FEED_TIME_EPOCH,
    QWP_FEED_TIME_ISO,
    QWP_FEED_TIME_PATTERN,
};

struct qwp_feed_time_format {
    enum qwp_feed_time_kind kind;
    enum qwp_feed_unit unit; /* EPOCH: of the number */
    const char *pattern;     /* PATTERN: borrowed */
};

struct qwp_feed_time {
    int64_t seconds; /* since the epoch, floor */
    uint32_t nanos;  /* below 10^9 */
};

/* "ns", "us", "ms" or "s" (also "n" and "u"). */
bool qwp_feed_unit_parse(const char *text, enum qwp_feed_unit *out);
/* "auto", a unit, "iso", or a pattern with a '%'. */
bool qwp_feed_time_format_parse(const char *text, struct qwp_feed_time_format *out);

/* False when the text is no such time. Epochs may have a fraction. */
bool qwp_feed_time_parse(const struct qwp_feed_time_format *format, const char *text, size_t len,
                         struct qwp_feed_time *out);

/* Counted in units, rounded down; false when 64 bits cannot hold it. */
bool qwp_feed_time_in(struct qwp_feed_time time, enum qwp_feed_unit unit, int64_t *out);
/* The same for a count of another unit. */
bool qwp_feed_unit_convert(int64_t value, enum qwp_feed_unit from, enum qwp_feed_unit to,
                           int64_t *out);

#endif

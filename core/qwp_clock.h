/* qwp_clock: monotonic time for durations and deadlines, wall time only where a row or log needs
 * it.
 *
 * A deadline is an absolute monotonic time in ns; QWP_NEVER_NS means none. */
#ifndef QWP_CLOCK_H
#define QWP_CLOCK_H

#include <stdint.h>
#include <time.h>

#define QWP_NEVER_NS INT64_MAX

enum { QWP_NS_PER_US = 1000, QWP_NS_PER_MS = 1000000, QWP_NS_PER_S = 1000000000 };

static inline int64_t qwp_clock_read_ns(clockid_t id)
{
    struct timespec now;
    clock_gettime(id, &now);
    return (int64_t)now.tv_sec * QWP_NS_PER_S + now.tv_nsec;
}

static inline int64_t qwp_clock_monotonic_ns(void)
{
    return qwp_clock_read_ns(CLOCK_MONOTONIC);
}

static inline int64_t qwp_clock_wall_ns(void)
{
    return qwp_clock_read_ns(CLOCK_REALTIME);
}

static inline int64_t qwp_sooner_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

#endif

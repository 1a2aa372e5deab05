/* qwp_histogram: counts of durations in buckets that grow with them, 1.6 % wide.
 *
 * 32 linear buckets below each power of two from 64 ns on; nothing is lost at the ends: what is
 * negative counts as 0. 15 KiB, no allocation; two can be added up.
 *
 * Threads: the caller's. Zero is empty. */
#ifndef QWP_HISTOGRAM_H
#define QWP_HISTOGRAM_H

#include <stdint.h>

enum {
    QWP_HISTOGRAM_STEPS = 32, /* buckets a power of two */
    QWP_HISTOGRAM_BUCKETS = 60 * QWP_HISTOGRAM_STEPS,
};

struct qwp_histogram {
    uint64_t count;
    int64_t max_ns;
    uint64_t buckets[QWP_HISTOGRAM_BUCKETS];
};

static inline uint32_t qwp_histogram_bucket(int64_t ns)
{
    const uint64_t value = ns > 0 ? (uint64_t)ns : 0;
    if (value < 2 * QWP_HISTOGRAM_STEPS) {
        return (uint32_t)value;
    }
    const uint32_t shift = 58 - (uint32_t)__builtin_clzll(value);
    return shift * QWP_HISTOGRAM_STEPS + (uint32_t)(value >> shift);
}

static inline void qwp_histogram_add(struct qwp_histogram *histogram, int64_t ns)
{
    histogram->count++;
    histogram->max_ns = ns > histogram->max_ns ? ns : histogram->max_ns;
    histogram->buckets[qwp_histogram_bucket(ns)]++;
}

/* The smallest duration that at least `part` (0..1) of all do not exceed, to the width of a bucket;
 * 0 when empty. */
int64_t qwp_histogram_quantile(const struct qwp_histogram *histogram, double part);

#endif

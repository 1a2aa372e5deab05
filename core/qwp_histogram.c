#include "core/qwp_histogram.h"

/* Highest value that falls into a bucket. */
static int64_t bucket_top(uint32_t bucket)
{
    if (bucket < 2 * QWP_HISTOGRAM_STEPS) {
        return bucket;
    }
    const uint32_t shift = bucket / QWP_HISTOGRAM_STEPS - 1;
    const uint64_t step = bucket % QWP_HISTOGRAM_STEPS + QWP_HISTOGRAM_STEPS;
    return (int64_t)(((step + 1) << shift) - 1);
}

int64_t qwp_histogram_quantile(const struct qwp_histogram *histogram, double part)
{
    const double wanted = part * (double)histogram->count;
    uint64_t seen = 0;
    for (uint32_t bucket = 0; bucket < QWP_HISTOGRAM_BUCKETS; bucket++) {
        seen += histogram->buckets[bucket];
        if (seen > 0 && (double)seen >= wanted) {
            const int64_t top_ns = bucket_top(bucket);
            return top_ns < histogram->max_ns ? top_ns : histogram->max_ns;
        }
    }
    return 0;
}

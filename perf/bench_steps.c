#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "perf/bench_steps.h"

enum {
    STEPS = 100000,
    BEST_IN = 10, /* one burst of so many counts */
    BEST_MIN = 10 /* but so many, if there are */
};
/* A core that takes more than so many times the fastest step is shared. In between are clocks, of
 * which a core has several, and cores whose other half has little to do. */
#define SLOW 1.4

double bench_steps_ns(uint64_t steps)
{
    uint64_t a = 1;
    uint64_t b = 2;
    uint64_t c = 3;
    uint64_t d = 4;
    const int64_t begin_ns = qwp_clock_monotonic_ns();
    for (uint64_t i = 0; i < steps; i++) {
        a += i;
        b ^= i;
        c += 3;
        d ^= c;
        __asm__ volatile("" : "+r"(a), "+r"(b), "+r"(c), "+r"(d));
    }
    return (double)(qwp_clock_monotonic_ns() - begin_ns) / (double)steps;
}

void bench_burst_begin(struct bench_bursts *bursts)
{
    QWP_ASSERT(bursts->count < BENCH_BURSTS_MAX);
    bursts->each[bursts->count].step_ns = bench_steps_ns(STEPS);
    bursts->begin_ns = qwp_clock_monotonic_ns();
}

void bench_burst_end(struct bench_bursts *bursts, uint64_t rows)
{
    struct bench_burst *burst = &bursts->each[bursts->count++];
    burst->row_ns = (double)(qwp_clock_monotonic_ns() - bursts->begin_ns) / (double)rows;
    const double step_ns = bench_steps_ns(STEPS);
    burst->step_ns = step_ns > burst->step_ns ? step_ns : burst->step_ns;
}

static int by_step_ns(const void *a, const void *b)
{
    const double x = ((const struct bench_burst *)a)->step_ns;
    const double y = ((const struct bench_burst *)b)->step_ns;
    return x < y ? -1 : x > y;
}

static int by_row_ns(const void *a, const void *b)
{
    const double x = ((const struct bench_burst *)a)->row_ns;
    const double y = ((const struct bench_burst *)b)->row_ns;
    return x < y ? -1 : x > y;
}

double bench_bursts_median(struct bench_bursts *bursts, uint32_t *counted)
{
    struct bench_burst *each = bursts->each;
    qsort(each, bursts->count, sizeof each[0], by_step_ns);
    const double known_ns = bursts->fastest_step_ns;
    const double fastest_ns =
        known_ns > 0 && known_ns < each[0].step_ns ? known_ns : each[0].step_ns;
    uint32_t fast = 0;
    while (fast < bursts->count && each[fast].step_ns <= SLOW * fastest_ns) {
        fast++;
    }
    uint32_t best = fast / BEST_IN;
    if (best < BEST_MIN) {
        best = fast < BEST_MIN ? fast : BEST_MIN;
    }
    *counted = best;
    const uint32_t of = best > 0 ? best : bursts->count;
    qsort(each, of, sizeof each[0], by_row_ns);
    return each[of / 2].row_ns;
}

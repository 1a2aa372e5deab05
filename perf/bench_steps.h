/* bench_steps: how fast a core is at this moment, and figures of the moments in which it was.
 *
 * On a rented machine a core may be half of one: while its other half is busy, with work that no
 * tool in here can see, everything takes up to twice as long. A loop of plain arithmetic tells. So
 * short bursts are measured again and again, each with that loop before and behind it, and the
 * tenth count during which the loop was fastest, if that is full speed: chosen by the loop, never
 * by what they took.
 *
 * Threads: the caller's; it should not move between cores during a burst. */
#ifndef BENCH_STEPS_H
#define BENCH_STEPS_H

#include <stdint.h>

enum { BENCH_BURSTS_MAX = 4096 };

struct bench_burst {
    double row_ns;
    double step_ns; /* the slower of before and behind */
};

struct bench_bursts {
    struct bench_burst each[BENCH_BURSTS_MAX];
    uint32_t count;
    double fastest_step_ns; /* the fastest known; 0: of these bursts alone */
    int64_t begin_ns;
};

/* ns a step, of sums that do not wait for each other, so that a core's execution units are what it
 * takes. 100,000 steps are about 0.1 ms. */
double bench_steps_ns(uint64_t steps);

/* Around one burst of `rows`; at most BENCH_BURSTS_MAX of them. */
void bench_burst_begin(struct bench_bursts *bursts);
void bench_burst_end(struct bench_bursts *bursts, uint64_t rows);
/* The median of what a row took in the tenth of the bursts at full speed whose steps were fastest,
 * or, if none was at full speed, in all; *counted: how many of full speed count. There is at least
 * one burst. Reorders them. */
double bench_bursts_median(struct bench_bursts *bursts, uint32_t *counted);

#endif

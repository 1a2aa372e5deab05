/* bench_data: values that are the same in every run, and memory for them. */
#ifndef BENCH_DATA_H
#define BENCH_DATA_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BENCH_SEED UINT64_C(0x9e3779b97f4a7c15)

static uint64_t bench_random_state = BENCH_SEED;

/* xorshift */
static inline uint64_t bench_random(void)
{
    bench_random_state ^= bench_random_state << 13;
    bench_random_state ^= bench_random_state >> 7;
    bench_random_state ^= bench_random_state << 17;
    return bench_random_state;
}

/* Zeroed, and a page more than asked for. Ends the program when there is none. */
static inline void *bench_allocate(size_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes + 4096) != 0) {
        fprintf(stderr, "no memory for %zu bytes\n", bytes);
        exit(1);
    }
    memset(memory, 0, bytes + 4096);
    return memory;
}

#endif

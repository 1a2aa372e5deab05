/* Question: do the cores run at full speed, or does somebody share them (bench_steps.h)?
 *
 * Each core runs the loop, all at the same time, for about 3 ms. bench.py runs this around what it
 * measures.
 *
 * Guess made beforehand: 0.8 ns a step on a core of one's own, 1.6 on a shared one, and nothing in
 * between for long.
 *
 *   bench_core [--smoke]
 *
 * Prints one JSON object: ns a step of the slowest core, and of the fastest. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "perf/bench_steps.h"

enum { STEPS = 4000000, CORES_MAX = 256 };

struct core {
    size_t cpu;
    pthread_t thread;
    double step_ns;
};

static void *run(void *arg)
{
    struct core *core = arg;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(core->cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof one, &one);
    core->step_ns = bench_steps_ns(STEPS);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct core cores[CORES_MAX];
    int count = 0;
    cpu_set_t allowed;
    if (argc > 2 || (argc == 2 && strcmp(argv[1], "--smoke") != 0)) {
        fprintf(stderr, "usage: bench_core [--smoke]\n");
        return 2;
    }
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) {
        perror("bench_core: sched_getaffinity");
        return 1;
    }
    for (size_t cpu = 0; cpu < CPU_SETSIZE && count < CORES_MAX; cpu++) {
        if (CPU_ISSET(cpu, &allowed)) {
            cores[count].cpu = cpu;
            if (pthread_create(&cores[count].thread, NULL, run, &cores[count]) != 0) {
                fprintf(stderr, "bench_core: no thread for cpu %zu\n", cpu);
                return 1;
            }
            count++;
        }
    }
    double slowest = 0;
    double fastest = 1e9;
    for (int i = 0; i < count; i++) {
        pthread_join(cores[i].thread, NULL);
        slowest = cores[i].step_ns > slowest ? cores[i].step_ns : slowest;
        fastest = cores[i].step_ns < fastest ? cores[i].step_ns : fastest;
    }
    printf("{\"cores\":%d,\"slowest_ns\":%.4f,\"fastest_ns\":%.4f}\n", count, slowest, fastest);
    return 0;
}

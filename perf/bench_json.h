/* bench_json: what a benchmark in C measured, as JSON for perf/report, when --json FILE asks for
 * it.
 *
 * Threads: the caller's. A zeroed struct is off: everything is then a no-op. */
#ifndef BENCH_JSON_H
#define BENCH_JSON_H

#include <stdio.h>

struct bench_json {
    FILE *file;
    int count;
};

/* NULL: off. Ends the program when the file cannot be written. */
void bench_json_open(struct bench_json *json, const char *path, const char *program);
/* One figure of one case, each repeat's value; `base`: the case of the same part that ratios are
 * taken to, or NULL. */
void bench_json_runs(struct bench_json *json, const char *part, const char *name, const char *base,
                     const char *figure, const double *values, int count);
void bench_json_close(struct bench_json *json);

#endif

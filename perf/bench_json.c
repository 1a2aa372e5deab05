#include "perf/bench_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void die(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    exit(1);
}

void bench_json_open(struct bench_json *json, const char *path, const char *program)
{
    *json = (struct bench_json){0};
    if (path == NULL) {
        return;
    }
    json->file = fopen(path, "w");
    if (json->file == NULL) {
        die(path);
    }
    fprintf(json->file, "{\"program\":\"%s\",\"figures\":[", program);
}

void bench_json_runs(struct bench_json *json, const char *part, const char *name, const char *base,
                     const char *figure, const double *values, int count)
{
    if (json->file == NULL) {
        return;
    }
    fprintf(json->file, "%s\n{\"part\":\"%s\",\"case\":\"%s\",", json->count++ > 0 ? "," : "", part,
            name);
    if (base != NULL) {
        fprintf(json->file, "\"base\":\"%s\",", base);
    }
    fprintf(json->file, "\"figure\":\"%s\",\"values\":[", figure);
    for (int i = 0; i < count; i++) {
        fprintf(json->file, "%s%.6g", i > 0 ? "," : "", values[i]);
    }
    fprintf(json->file, "]}");
}

void bench_json_close(struct bench_json *json)
{
    if (json->file == NULL) {
        return;
    }
    fprintf(json->file, "\n]}\n");
    if (fclose(json->file) != 0) {
        die("results");
    }
    json->file = NULL;
}

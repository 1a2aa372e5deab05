/* qwp_status: `qwp-sidecar status`: what a sidecar is doing, for people and for programs. */
#ifndef QWP_STATUS_H
#define QWP_STATUS_H

#include <stdio.h>

#include "sidecar/qwp_options.h"
#include "sidecar/qwp_snapshot.h"

enum { QWP_STATUS_EXIT_NO_SIDECAR = 3 };

/* The command; the exit code. */
int qwp_status_run(const struct qwp_options *options);

struct qwp_status_view {
    const char *rings_dir;
    const char *name;
    const struct qwp_snapshot *before; /* an earlier look, for rates; NULL: none */
    const struct qwp_snapshot *now;
    size_t rows_max;      /* lines of producers; 0: all */
    const char *line_end; /* "\n"; a live screen also clears the rest of the line */
    bool color;
    unsigned width; /* columns of the terminal; 0: as many as it takes */
};
/* A live screen until a key or a signal ends it; the exit code. */
int qwp_status_screen(const struct qwp_options *options);
void qwp_status_print(const struct qwp_status_view *view, FILE *out);
/* One object on one line. */
void qwp_status_print_json(const struct qwp_status_view *view, FILE *out);

#endif

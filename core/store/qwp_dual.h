/* qwp_dual: a small file of two records written in turn, so that a torn write never destroys the
 * older value. Manifest and watermark are such files.
 *
 * Threads:  one at a time; how the manifest is shared stands in qwp_manifest.h.
 * Progress: put() stores through a mapping, no system call.
 * Trust:    load() believes a record whose magic, version, generation and CRC are right.
 * Crash:    the CRC is stored last; a process that ends in the middle leaves the older record. */
#ifndef QWP_DUAL_H
#define QWP_DUAL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_sys.h"

struct qwp_dual {
    unsigned char *map; /* NULL: closed */
    int fd;
    uint32_t magic;
    uint64_t generation; /* of the newest record; 0: none */
    int64_t first, second;
};

enum qwp_dual_state {
    QWP_DUAL_ABSENT = 0,
    QWP_DUAL_EMPTY = 1,   /* right size, all zero: made, never written */
    QWP_DUAL_DAMAGED = 2, /* there, but without a valid record */
    QWP_DUAL_VALID = 3,
};

/* Reads the file and takes over its newest valid record, changing nothing. QWP_IO. */
QWP_MUST_USE enum qwp_result qwp_dual_load(struct qwp_dual *dual, const struct qwp_sys *sys,
                                           int dir_fd, const char *name, uint32_t magic,
                                           enum qwp_dual_state *state, struct qwp_error *err);
/* After load: makes the file if it is absent, gives it its size in real blocks, and maps it. */
QWP_MUST_USE enum qwp_result qwp_dual_open(struct qwp_dual *dual, const struct qwp_sys *sys,
                                           int dir_fd, const char *name, struct qwp_error *err);
void qwp_dual_close(struct qwp_dual *dual, const struct qwp_sys *sys);
void qwp_dual_put(struct qwp_dual *dual, int64_t first, int64_t second);

#endif

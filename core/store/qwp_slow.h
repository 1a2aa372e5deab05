/* qwp_slow: the one seam for operations that may take long (allocating, populating, syncing,
 * unlinking), so that the program decides where they run: at once, in io_uring or on a helper.
 *
 * Threads: submit() is called on the keeper's thread, and `done` is set on the keeper's thread. One
 *          operation is under way at a time for each log. */
#ifndef QWP_SLOW_H
#define QWP_SLOW_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_sys.h"

enum qwp_slow_kind {
    QWP_SLOW_ALLOCATE = 0, /* posix_fallocate(fd, off, len) */
    QWP_SLOW_POPULATE = 1, /* madvise(at, len, advice) */
    QWP_SLOW_SYNC = 2,     /* fdatasync(fd) */
    QWP_SLOW_SYNC_DIR = 3, /* fsync(fd) */
    QWP_SLOW_UNLINK = 4,   /* unlinkat(fd, name) */
    QWP_SLOW_CALL = 5,     /* call(at): some milliseconds of reading or writing */
};

struct qwp_slow_op {
    enum qwp_slow_kind kind;
    int fd;
    int advice;
    void *at;
    uint64_t off, len;
    const char *name;                                 /* borrowed until done */
    int (*call)(const struct qwp_sys *sys, void *at); /* -1 and errno when it fails */
    int error;                                        /* errno, 0: it worked; valid once done */
    bool done;
};

struct qwp_slow {
    void *owner;
    /* Takes the operation, sets error and done now or later. Cannot fail: it runs what it cannot
     * pass on. */
    void (*submit)(void *owner, struct qwp_slow_op *op);
    /* Allocating and populating is cut into steps of this many bytes; 0: not cut. */
    uint64_t step_bytes;
};

/* Linux 5.14; older kernels say EINVAL, which callers take for "not now". */
enum { QWP_POPULATE_READ = 22, QWP_POPULATE_WRITE = 23 };

/* Runs it here and now. What a helper thread would call as well. */
void qwp_slow_run(const struct qwp_sys *sys, struct qwp_slow_op *op);

#endif

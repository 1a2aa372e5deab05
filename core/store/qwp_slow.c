#include "core/store/qwp_slow.h"

#include <errno.h>

static int run_once(const struct qwp_sys *sys, const struct qwp_slow_op *op)
{
    switch (op->kind) {
    case QWP_SLOW_ALLOCATE:
        return sys->fallocate(op->fd, (off_t)op->off, (off_t)op->len);
    case QWP_SLOW_POPULATE:
        return sys->madvise(op->at, op->len, op->advice);
    case QWP_SLOW_SYNC:
        return sys->fdatasync(op->fd);
    case QWP_SLOW_SYNC_DIR:
        return sys->fsync(op->fd);
    case QWP_SLOW_UNLINK:
        return sys->unlinkat(op->fd, op->name, 0);
    case QWP_SLOW_CALL:
        return op->call(sys, op->at);
    }
    errno = EINVAL;
    return -1;
}

void qwp_slow_run(const struct qwp_sys *sys, struct qwp_slow_op *op)
{
    int rc;
    do {
        rc = run_once(sys, op);
    } while (rc != 0 && errno == EINTR);
    op->error = rc == 0 ? 0 : errno;
    op->done = true;
}

/* qwp_put_back: offers the rows of a file of refused rows to the server again, over a connection of
 * its own, beside a running sidecar.
 *
 * The file is locked meanwhile. Entries that the server takes are marked; when all are, the file is
 * removed, which a running sidecar notices and offers the table's next rows again. The first entry
 * that is refused ends it.
 *
 * Crash: rows are delivered at least once: what was taken and not marked yet is offered again. */
#ifndef QWP_PUT_BACK_H
#define QWP_PUT_BACK_H

#include "core/conf/qwp_conf.h"
#include "transport/qwp_loop.h"

struct qwp_put_back {
    const struct qwp_conf *conf;
    struct qwp_loop *loop;
    int64_t deadline_ns;
};

struct qwp_put_back_counts {
    uint64_t rows_taken;
    uint64_t rows_left;
};

/* `dir`/`name`. QWP_OK: everything in it is taken and it is gone. QWP_REJECTED: the server refused,
 * its words are in err. QWP_AGAIN: somebody else is at it, or time is over. Others: err. *counts is
 * set in any case. */
QWP_MUST_USE enum qwp_result qwp_put_back_file(const struct qwp_put_back *how, const char *dir,
                                               const char *name, struct qwp_put_back_counts *counts,
                                               struct qwp_error *err);

#endif

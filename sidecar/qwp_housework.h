/* qwp_housework: the log's slow operations (allocate, populate, sync, unlink) on a thread of their
 * own, so that none stands in the way of a row.
 *
 * Not through io_uring: its last idle worker wakes up every five seconds for ever, and a parked
 * sidecar shall not be woken at all. The thread is started by the first operation and sleeps
 * between them.
 *
 * A second one reads and checks frames that wait from an earlier run, which takes longer than
 * spares can wait.
 *
 * Threads: the keeper's, which is that of the loop; the helper touches only its copy of the
 * operation. sync[housework.result]: the helper's result, before the loop is woken. */
#ifndef QWP_HOUSEWORK_H
#define QWP_HOUSEWORK_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/store/qwp_generations.h"
#include "transport/qwp_loop.h"

enum { QWP_HOUSEWORK_MAX = 2 * QWP_GENERATIONS_MAX };

struct qwp_housework_job {
    struct qwp_slow_op *op; /* the log's, keeper's */
    struct qwp_slow_op
        copy; /* writer: keeper before it is submitted, helper until it is finished */
};

struct qwp_housework {
    struct qwp_slow slow; /* for qwp_seglog_options */
    struct qwp_loop *loop;

    /* shared with the helper */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_started;
    bool is_ending; /* under lock */
    /* A queue by running number: each log has one operation under way at most. */
    struct qwp_housework_job jobs[QWP_HOUSEWORK_MAX];
    uint32_t collected; /* keeper's: those below have been told to their logs */
    uint32_t submitted; /* writer: keeper, under lock */
    /* writer: helper. sync[housework.result]: the results of those below. */
    _Atomic uint32_t finished;
};

/* `loop` is woken when an operation is done. */
void qwp_housework_init(struct qwp_housework *housework, struct qwp_loop *loop);
/* Tells the logs of finished operations. True: there was one, so the keeper has something to do. */
bool qwp_housework_collect(struct qwp_housework *housework);
/* Waits for what is under way and ends the thread; before the loop is closed. A finished one is
 * fine. */
void qwp_housework_fini(struct qwp_housework *housework);

#endif

/* qwp_orphans: delivers what other senders left in sf_dir (`drain_orphans`), in the background.
 *
 * One thread with a loop of its own, which sleeps when there is nothing more to deliver: it looks
 * once for slots that hold frames and that nobody holds, and drains max_background_drainers of them
 * at a time. A slot that cannot be opened gets a `.failed` file with the reason; slots that have
 * one are left alone.
 *
 * Threads: start and stop from one thread; the counters from any. */
#ifndef QWP_ORPHANS_H
#define QWP_ORPHANS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/conf/qwp_conf.h"
#include "core/qwp_error.h"
#include "transport/qwp_loop.h"

struct qwp_orphans {
    const struct qwp_conf *conf;
    struct qwp_loop *loop;
    pthread_t thread;
    pthread_mutex_t lock; /* held while the loop is woken, so that it is still open then */
    bool is_started;
    _Atomic bool is_ending; /* writer: stop(). reader: the thread */
    /* writer: the thread. Relaxed: figures. */
    _Atomic uint32_t active, succeeded, failed;
};

/* Does nothing unless conf->drain_orphans and there is an sf_dir. `conf` is kept. */
QWP_MUST_USE enum qwp_result qwp_orphans_start(struct qwp_orphans *orphans,
                                               const struct qwp_conf *conf, enum qwp_loop_kind loop,
                                               struct qwp_error *err);
/* Breaks off what is under way; it stays in its slots. One that was not started is fine. */
void qwp_orphans_stop(struct qwp_orphans *orphans);

#endif

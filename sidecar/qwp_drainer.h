/* qwp_drainer: delivers one slot of files that nobody writes any more, over a connection of its
 * own.
 *
 * Threads: that of its loop. Opening reads the whole slot and may take long.
 * Errors:  as qwp_seglog_open(): QWP_AGAIN when another process holds the slot. */
#ifndef QWP_DRAINER_H
#define QWP_DRAINER_H

#include "core/conf/qwp_conf.h"
#include "core/store/qwp_seglog.h"
#include "sidecar/qwp_sender.h"
#include "transport/qwp_loop.h"

struct qwp_drainer {
    struct qwp_loop *loop;
    struct qwp_seglog *log;
    struct qwp_sender *sender;
    struct qwp_control_header *page; /* the sender's figures */
    _Atomic size_t message_bytes_max;
    uint64_t acked_before;
    uint64_t frames_damaged;             /* found since open */
    char slot_dir[QWP_ERROR_TEXT_BYTES]; /* for the log */
};

/* `conf` and `loop` are kept. On failure nothing is left open. */
QWP_MUST_USE enum qwp_result qwp_drainer_open(struct qwp_drainer *drainer, const char *slot_dir,
                                              const struct qwp_conf *conf, struct qwp_loop *loop,
                                              struct qwp_error *err);
/* Says goodbye to the server, writes down what is acknowledged, closes. A zeroed one is fine. */
void qwp_drainer_close(struct qwp_drainer *drainer);

/* One cycle, after each run of the loop. True: call again soon; *next_ns: when there is something
 * to do by time. */
bool qwp_drainer_do_work(struct qwp_drainer *drainer, int64_t now_ns, int64_t *next_ns);
bool qwp_drainer_is_done(const struct qwp_drainer *drainer);

struct qwp_drainer_counts {
    uint64_t delivered; /* frames, since open */
    uint64_t waiting;
    uint64_t damaged;      /* and set aside */
    uint64_t rows_refused; /* by the server: in rejected/ of the slot; their frames are delivered */
};
struct qwp_drainer_counts qwp_drainer_count(const struct qwp_drainer *drainer);

#endif

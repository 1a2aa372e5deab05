/* qwp_loop_backend: the seam between qwp_loop.h and what really waits (io_uring or epoll).
 *
 * qwp_loop.c keeps the books (which operations are in flight, the "soon" list) and a backend
 * starts, cancels and completes system calls. A backend reports each completion by
 * qwp_loop_complete(). */
#ifndef QWP_LOOP_BACKEND_H
#define QWP_LOOP_BACKEND_H

#include "transport/qwp_loop.h"

enum qwp_request_kind {
    QWP_REQUEST_RECV = 1,
    QWP_REQUEST_RECV_NOW,
    QWP_REQUEST_SEND,
    QWP_REQUEST_CONNECT,
    QWP_REQUEST_POLL,
    QWP_REQUEST_READ,
    QWP_REQUEST_TIMER, /* op->time holds the deadline */
    QWP_REQUEST_FUTEX,
    QWP_REQUEST_SOON, /* never reaches a backend */
};

/* What an operation asks for; lives for the call only. */
struct qwp_request {
    enum qwp_request_kind kind;
    int fd;
    void *address; /* buffer, socket address or futex word */
    size_t len;
    uint32_t value; /* poll mask or expected futex value */
    bool multishot;
};

struct qwp_loop_backend {
    enum qwp_loop_kind kind;
    void (*start)(struct qwp_loop *loop, struct qwp_op *op, const struct qwp_request *request);
    void (*cancel)(struct qwp_loop *loop, struct qwp_op *op);
    void (*timer_move)(struct qwp_loop *loop, struct qwp_op *op);
    void (*submit)(struct qwp_loop *loop);
    /* Submits, waits, completes. False: nothing was completed. */
    bool (*run)(struct qwp_loop *loop, int64_t deadline_ns);
    /* Async-signal-safe, any thread. */
    void (*wake)(struct qwp_loop *loop);
    /* Nothing is in flight any more but the backend's own. Frees the loop. */
    void (*close)(struct qwp_loop *loop);
};

/* First member of a backend's own struct. */
struct qwp_loop {
    const struct qwp_loop_backend *backend;
    bool busy;
    bool has_futex;
    bool closing;
    bool running;             /* inside qwp_loop_run(): it does not nest */
    struct qwp_op *in_flight; /* doubly linked, without the "soon" ones */
    struct qwp_op *soon;      /* oldest first */
    struct qwp_op **soon_tail;
};

/* Fails where io_uring is not to be had, or lacks an operation that the loop cannot do without. */
QWP_MUST_USE enum qwp_result qwp_loop_uring_open(struct qwp_loop **out,
                                                 const struct qwp_loop_options *options,
                                                 struct qwp_error *err);
QWP_MUST_USE enum qwp_result qwp_loop_epoll_open(struct qwp_loop **out,
                                                 const struct qwp_loop_options *options,
                                                 struct qwp_error *err);

/* Sets up the common part. */
void qwp_loop_init(struct qwp_loop *loop, const struct qwp_loop_backend *backend, bool busy);
/* Takes `op` off the books (unless `more`) and runs its callback. */
void qwp_loop_complete(struct qwp_loop *loop, struct qwp_op *op, int outcome, bool more);

#endif

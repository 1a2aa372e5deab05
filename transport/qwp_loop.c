#include "transport/qwp_loop.h"

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "transport/qwp_loop_backend.h"

#include <errno.h>

enum qwp_result qwp_loop_open(struct qwp_loop **out, const struct qwp_loop_options *options,
                              struct qwp_error *err)
{
    if (err != NULL) {
        err->text[0] = '\0';
    }
    if (options->kind == QWP_LOOP_EPOLL) {
        return qwp_loop_epoll_open(out, options, err);
    }
    struct qwp_error reason;
    const enum qwp_result result = qwp_loop_uring_open(out, options, &reason);
    if (result == QWP_OK) {
        return QWP_OK;
    }
    if (options->kind == QWP_LOOP_URING || qwp_loop_epoll_open(out, options, err) != QWP_OK) {
        if (err != NULL) {
            *err = reason;
        }
        return result;
    }
    if (err != NULL) {
        *err = reason;
    }
    return QWP_OK;
}

enum qwp_loop_kind qwp_loop_kind(const struct qwp_loop *loop)
{
    return loop->backend->kind;
}

void qwp_loop_init(struct qwp_loop *loop, const struct qwp_loop_backend *backend, bool busy)
{
    loop->backend = backend;
    loop->busy = busy;
    loop->soon_tail = &loop->soon;
}

static void link_in_flight(struct qwp_loop *loop, struct qwp_op *op)
{
    op->prev = NULL;
    op->next = loop->in_flight;
    if (op->next != NULL) {
        op->next->prev = op;
    }
    loop->in_flight = op;
}

static void unlink_in_flight(struct qwp_loop *loop, struct qwp_op *op)
{
    if (op->prev != NULL) {
        op->prev->next = op->next;
    } else {
        loop->in_flight = op->next;
    }
    if (op->next != NULL) {
        op->next->prev = op->prev;
    }
}

static void start(struct qwp_loop *loop, struct qwp_op *op, const struct qwp_request *request)
{
    QWP_ASSERT(!op->in_flight);
    QWP_ASSERT(op->fn != NULL);
    if (loop->closing) {
        return;
    }
    op->in_flight = true;
    op->cancelling = false;
    op->kind = (uint8_t)request->kind;
    link_in_flight(loop, op);
    loop->backend->start(loop, op, request);
}

void qwp_loop_complete(struct qwp_loop *loop, struct qwp_op *op, int outcome, bool more)
{
    QWP_ASSERT(op->in_flight);
    if (!more) {
        unlink_in_flight(loop, op);
        op->in_flight = false;
    }
    op->fn(op, outcome, more);
}

/* Callbacks may ask for "soon" again; those run too, or they would wait through a sleep. */
static void run_soon(struct qwp_loop *loop)
{
    while (loop->soon != NULL) {
        struct qwp_op *op = loop->soon;
        loop->soon = op->next;
        if (loop->soon == NULL) {
            loop->soon_tail = &loop->soon;
        }
        op->in_flight = false;
        op->fn(op, op->cancelling ? -ECANCELED : 0, false);
    }
}

void qwp_loop_close(struct qwp_loop *loop)
{
    if (loop == NULL) {
        return;
    }
    QWP_ASSERT(!loop->running);
    loop->closing = true;
    for (struct qwp_op *op = loop->soon; op != NULL; op = op->next) {
        op->cancelling = true;
    }
    run_soon(loop);
    for (struct qwp_op *op = loop->in_flight; op != NULL; op = op->next) {
        qwp_loop_cancel(loop, op);
    }
    while (loop->in_flight != NULL) {
        loop->backend->run(loop, QWP_NEVER_NS);
    }
    loop->backend->close(loop);
}

void qwp_loop_recv(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len)
{
    start(loop, op,
          &(struct qwp_request){.kind = QWP_REQUEST_RECV, .fd = fd, .address = buffer, .len = len});
}

void qwp_loop_recv_now(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len)
{
    start(loop, op,
          &(struct qwp_request){
              .kind = QWP_REQUEST_RECV_NOW, .fd = fd, .address = buffer, .len = len});
}

void qwp_loop_send(struct qwp_loop *loop, struct qwp_op *op, int fd, const void *buffer, size_t len)
{
    start(
        loop, op,
        &(struct qwp_request){
            .kind = QWP_REQUEST_SEND, .fd = fd, .address = (void *)(uintptr_t)buffer, .len = len});
}

void qwp_loop_connect(struct qwp_loop *loop, struct qwp_op *op, int fd,
                      const struct sockaddr *address, socklen_t len)
{
    start(loop, op,
          &(struct qwp_request){.kind = QWP_REQUEST_CONNECT,
                                .fd = fd,
                                .address = (void *)(uintptr_t)address,
                                .len = len});
}

void qwp_loop_poll(struct qwp_loop *loop, struct qwp_op *op, int fd, unsigned events,
                   bool multishot)
{
    start(loop, op,
          &(struct qwp_request){
              .kind = QWP_REQUEST_POLL, .fd = fd, .value = events, .multishot = multishot});
}

void qwp_loop_read(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len)
{
    start(loop, op,
          &(struct qwp_request){.kind = QWP_REQUEST_READ, .fd = fd, .address = buffer, .len = len});
}

static void set_deadline(struct qwp_op *op, int64_t deadline_ns)
{
    QWP_ASSERT(deadline_ns >= 0);
    op->time[0] = deadline_ns / QWP_NS_PER_S;
    op->time[1] = deadline_ns % QWP_NS_PER_S;
}

void qwp_loop_timer(struct qwp_loop *loop, struct qwp_op *op, int64_t deadline_ns)
{
    QWP_ASSERT(!op->in_flight);
    set_deadline(op, deadline_ns);
    start(loop, op, &(struct qwp_request){.kind = QWP_REQUEST_TIMER});
}

void qwp_loop_timer_move(struct qwp_loop *loop, struct qwp_op *op, int64_t deadline_ns)
{
    QWP_ASSERT(op->in_flight && op->kind == QWP_REQUEST_TIMER);
    if (op->cancelling) {
        return;
    }
    set_deadline(op, deadline_ns);
    loop->backend->timer_move(loop, op);
}

void qwp_loop_soon(struct qwp_loop *loop, struct qwp_op *op)
{
    QWP_ASSERT(!op->in_flight);
    QWP_ASSERT(op->fn != NULL);
    if (loop->closing) {
        return;
    }
    op->in_flight = true;
    op->cancelling = false;
    op->kind = QWP_REQUEST_SOON;
    op->next = NULL;
    *loop->soon_tail = op;
    loop->soon_tail = &op->next;
}

void qwp_loop_futex_wait(struct qwp_loop *loop, struct qwp_op *op, const uint32_t *word,
                         uint32_t expected)
{
    QWP_ASSERT(loop->has_futex);
    start(loop, op,
          &(struct qwp_request){
              .kind = QWP_REQUEST_FUTEX, .address = (void *)(uintptr_t)word, .value = expected});
}

bool qwp_loop_has_futex(const struct qwp_loop *loop)
{
    return loop->has_futex;
}

void qwp_loop_cancel(struct qwp_loop *loop, struct qwp_op *op)
{
    if (!op->in_flight || op->cancelling) {
        return;
    }
    op->cancelling = true;
    if (op->kind != QWP_REQUEST_SOON) {
        loop->backend->cancel(loop, op);
    }
}

bool qwp_loop_run(struct qwp_loop *loop, int64_t deadline_ns)
{
    QWP_ASSERT(!loop->running);
    loop->running = true;
    run_soon(loop);
    const bool completed = loop->backend->run(loop, loop->busy ? 0 : deadline_ns);
    loop->running = false;
    return completed;
}

void qwp_loop_submit(struct qwp_loop *loop)
{
    run_soon(loop);
    loop->backend->submit(loop);
}

void qwp_loop_wake(struct qwp_loop *loop)
{
    loop->backend->wake(loop);
}

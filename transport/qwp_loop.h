/* qwp_loop: completions of system calls, by io_uring, or by epoll where that is not to be had.
 *
 * One loop belongs to one thread. An operation is a struct of the caller's, idle or in flight; its
 * callback runs once per completion, from qwp_loop_run(), and may start operations, also the same.
 *
 * Threads:  that of the first qwp_loop_run() or qwp_loop_submit(), to the close; opening the loop
 *           and starting operations before that may happen on another. qwp_loop_wake(): any.
 * Progress: starting an operation never blocks and makes no system call, unless more than
 *           `entries` are started between two runs; qwp_loop_run() makes one, or none when there is
 *           nothing to submit, nothing has happened and it may not sleep. (epoll: one, and some for
 *           each operation.)
 *           With nothing but waits in flight the process is not woken: no timer exists but those
 *           of qwp_loop_timer() and of a run's deadline.
 * Errors:   an operation's outcome is a negative errno or what the call returned, as in io_uring.
 *
 * Descriptors are blocking ones (no O_NONBLOCK): with the flag io_uring reports -EAGAIN instead of
 * waiting. A descriptor may be closed only when none of its operations is in flight. Behaviour is
 * the same with both, but that epoll has no futex wait, and leaves a socket that it connected
 * non-blocking.
 */
#ifndef QWP_LOOP_H
#define QWP_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/qwp_error.h"

struct qwp_loop;
struct qwp_op;

/* `outcome`: >= 0 what the call returned, < 0 a negative errno (-ECANCELED after a cancel; a timer
 * that fired gives 0). `more`: a multishot operation stays in flight. */
typedef void (*qwp_op_fn)(struct qwp_op *op, int outcome, bool more);

/* Zero is idle. Set fn (and embed the struct: container_of style access by the owner's own cast).
 */
struct qwp_op {
    qwp_op_fn fn;
    void *owner;
    /* below: the loop's */
    bool in_flight;
    bool cancelling;
    uint8_t kind;
    int64_t time[2]; /* storage of a timer's timespec */
    struct qwp_op *next;
    struct qwp_op *prev;
    /* below: the epoll backend's, what was asked for and where it stands */
    uint8_t state;
    bool multishot;
    int fd;
    uint32_t events;
    int outcome;
    void *address;
    size_t len;
    struct qwp_op *next_done;
};

enum qwp_loop_kind {
    QWP_LOOP_AUTO = 0, /* io_uring, or epoll where it is not to be had */
    QWP_LOOP_URING = 1,
    QWP_LOOP_EPOLL = 2,
};

struct qwp_loop_options {
    unsigned entries; /* submission queue; 0 = 256 */
    bool busy;        /* the owner busy-polls: never sleep in the kernel on its behalf */
    enum qwp_loop_kind kind;
    /* Operations of io_uring to do without, as if the kernel had not got them: names as `check`
     * shows them ("recv,futex"), "all" for io_uring itself. For tests, and for a kernel where one
     * is broken. NULL: none. */
    const char *uring_without;
};

/* QWP_LOOP_AUTO took epoll: QWP_OK, and err->text says why; else err->text is empty then. */
QWP_MUST_USE enum qwp_result
qwp_loop_open(struct qwp_loop **out, const struct qwp_loop_options *options, struct qwp_error *err);
/* Never QWP_LOOP_AUTO. */
enum qwp_loop_kind qwp_loop_kind(const struct qwp_loop *loop);
/* Cancels what is in flight, runs the callbacks (-ECANCELED, or the outcome that came first),
 * frees. What these callbacks start is not started. NULL is fine. Not from a callback. */
void qwp_loop_close(struct qwp_loop *loop);

/* Buffers are borrowed until the completion. */
void qwp_loop_recv(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len);
/* What is there to be received; -EAGAIN: nothing. Never waits. */
void qwp_loop_recv_now(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len);
/* MSG_NOSIGNAL; may complete short: the caller goes on with the rest. */
void qwp_loop_send(struct qwp_loop *loop, struct qwp_op *op, int fd, const void *buffer,
                   size_t len);
/* `address` is borrowed until the completion. */
void qwp_loop_connect(struct qwp_loop *loop, struct qwp_op *op, int fd,
                      const struct sockaddr *address, socklen_t len);
/* Multishot when `multishot`: completes with the poll mask each time it becomes ready. */
void qwp_loop_poll(struct qwp_loop *loop, struct qwp_op *op, int fd, unsigned events,
                   bool multishot);
/* Read of `len` bytes at the file's position (inotify, FIFO, eventfd). */
void qwp_loop_read(struct qwp_loop *loop, struct qwp_op *op, int fd, void *buffer, size_t len);
/* Absolute monotonic time. */
void qwp_loop_timer(struct qwp_loop *loop, struct qwp_op *op, int64_t deadline_ns);
/* Gives a timer in flight another deadline, sooner or later. One that is firing already may still
 * complete at the old one: its owner looks at the clock. */
void qwp_loop_timer_move(struct qwp_loop *loop, struct qwp_op *op, int64_t deadline_ns);
/* Completes with 0 in the next qwp_loop_run() or qwp_loop_submit(), before anything is submitted:
 * to do once what several calls of a duty cycle asked for. The run may sleep after it all the same.
 */
void qwp_loop_soon(struct qwp_loop *loop, struct qwp_op *op);
/* Completes with 0 when woken, -EAGAIN when *word was not `expected` (at once). Shared futex (the
 * word lies in a MAP_SHARED file). Only when qwp_loop_has_futex(). */
void qwp_loop_futex_wait(struct qwp_loop *loop, struct qwp_op *op, const uint32_t *word,
                         uint32_t expected);
bool qwp_loop_has_futex(const struct qwp_loop *loop);
/* Asks for the end of an operation; its callback still comes, with its outcome or -ECANCELED. Idle
 * or already asked: nothing happens. */
void qwp_loop_cancel(struct qwp_loop *loop, struct qwp_op *op);

/* Submits what was started, waits until `deadline_ns` (0: not at all, QWP_NEVER_NS: for ever) for
 * at least one completion, runs the callbacks of all completions at hand. False: none came (a
 * signal ends the wait too). Not from a callback. */
bool qwp_loop_run(struct qwp_loop *loop, int64_t deadline_ns);
/* Submits what was started without waiting (so that an armed futex is armed before we look again).
 */
void qwp_loop_submit(struct qwp_loop *loop);
/* Ends a qwp_loop_run() of another thread or a signal handler (async-signal-safe). */
void qwp_loop_wake(struct qwp_loop *loop);

#endif

/* The epoll backend of qwp_loop.h, for where io_uring is forbidden or too old.
 *
 * An operation is tried when it is submitted if that may succeed at once (send, connect) or is all
 * that is asked for (to receive what is there). Otherwise, or when it would block, it waits for its
 * descriptor, one-shot: the kernel is told anew each time something waits. That costs a call per
 * wait, and in return nothing that is registered can go stale when a descriptor is closed and its
 * number comes back; an event that nobody waits for is seen at most once. Every attempt is
 * non-blocking by itself, so an event that was not meant is harmless.
 *
 * An outcome is kept in the operation until the run that delivers it: callbacks come from
 * qwp_loop_run() alone. Few operations are in flight at a time (a socket, a bell, some timers), so
 * walking their list is cheaper than keeping tables beside it.
 *
 * A socket that was connected here stays non-blocking (O_NONBLOCK). */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "transport/qwp_loop_backend.h"

/* Younger than some headers; the same number on all architectures. */
enum { SYS_EPOLL_PWAIT2 = 441 };

enum { EVENTS_MAX = 32 };

enum op_state {
    STATE_STARTED, /* not yet tried or registered */
    STATE_WAITING, /* for its descriptor or its time */
    STATE_DONE,    /* on the list of those to deliver */
};

struct epoll {
    struct qwp_loop loop;
    int fd;
    int wake_fd;
    bool no_pwait2;      /* forbidden or unknown here */
    unsigned started;    /* operations in STATE_STARTED */
    unsigned timers;     /* waiting ones */
    struct qwp_op *done; /* oldest first */
    struct qwp_op **done_tail;
};

static struct epoll *epoll_of(struct qwp_loop *loop)
{
    return (struct epoll *)loop;
}

static void set_started(struct epoll *e, struct qwp_op *op)
{
    op->state = STATE_STARTED;
    e->started++;
}

static void set_done(struct epoll *e, struct qwp_op *op, int outcome)
{
    e->started -= op->state == STATE_STARTED ? 1 : 0;
    e->timers -= op->state == STATE_WAITING && op->kind == QWP_REQUEST_TIMER ? 1 : 0;
    op->state = STATE_DONE;
    op->outcome = outcome;
    op->next_done = NULL;
    *e->done_tail = op;
    e->done_tail = &op->next_done;
}

static void epoll_start(struct qwp_loop *loop, struct qwp_op *op, const struct qwp_request *request)
{
    op->fd = request->kind == QWP_REQUEST_TIMER ? -1 : request->fd;
    op->address = request->address;
    op->len = request->len;
    op->events = request->value;
    op->multishot = request->multishot;
    set_started(epoll_of(loop), op);
}

static void epoll_cancel(struct qwp_loop *loop, struct qwp_op *op)
{
    if (op->state != STATE_DONE) {
        set_done(epoll_of(loop), op, -ECANCELED);
    } else if (op->multishot) {
        op->outcome = -ECANCELED; /* else it would have to go on after this completion */
    }
}

static void epoll_timer_move(struct qwp_loop *loop, struct qwp_op *op)
{
    (void)loop;
    (void)op; /* op->time is what we look at */
}

/* ---- attempts ---- */

static int outcome_of(ssize_t n)
{
    return n >= 0 ? (int)n : -errno;
}

/* The same call begins, asks and tells the end. */
static int try_connect(const struct qwp_op *op)
{
    const int flags = fcntl(op->fd, F_GETFL);
    if (flags < 0 ||
        ((flags & O_NONBLOCK) == 0 && fcntl(op->fd, F_SETFL, flags | O_NONBLOCK) != 0)) {
        return -errno;
    }
    if (connect(op->fd, op->address, (socklen_t)op->len) == 0 || errno == EISCONN) {
        return 0;
    }
    return errno == EINPROGRESS || errno == EALREADY || errno == EINTR ? -EAGAIN : -errno;
}

static int try_read(const struct qwp_op *op)
{
    struct pollfd ready = {.fd = op->fd, .events = POLLIN};
    if (poll(&ready, 1, 0) == 0) {
        return -EAGAIN;
    }
    return outcome_of(read(op->fd, op->address, op->len));
}

/* -EAGAIN: has to wait. `events`: what the descriptor was seen to be. */
static int attempt(const struct qwp_op *op, uint32_t events)
{
    int outcome;
    do {
        switch (op->kind) {
        case QWP_REQUEST_RECV:
        case QWP_REQUEST_RECV_NOW:
            outcome = outcome_of(recv(op->fd, op->address, op->len, MSG_DONTWAIT));
            break;
        case QWP_REQUEST_SEND:
            outcome = outcome_of(send(op->fd, op->address, op->len, MSG_DONTWAIT | MSG_NOSIGNAL));
            break;
        case QWP_REQUEST_CONNECT:
            outcome = try_connect(op);
            break;
        case QWP_REQUEST_POLL:
            outcome = events != 0 ? (int)events : -EAGAIN;
            break;
        default:
            outcome = try_read(op);
        }
    } while (outcome == -EINTR);
    return outcome;
}

static uint32_t events_wanted(const struct qwp_op *op)
{
    switch (op->kind) {
    case QWP_REQUEST_RECV:
    case QWP_REQUEST_READ:
        return EPOLLIN;
    case QWP_REQUEST_SEND:
    case QWP_REQUEST_CONNECT:
        return EPOLLOUT;
    default:
        return op->events; /* POLL* and EPOLL* are the same bits */
    }
}

/* What is waited for at a descriptor, by all operations together. */
static int watch(struct epoll *e, int fd)
{
    struct epoll_event event = {.events = EPOLLONESHOT, .data.fd = fd};
    for (const struct qwp_op *op = e->loop.in_flight; op != NULL; op = op->next) {
        if (op->fd == fd && op->state == STATE_WAITING) {
            event.events |= events_wanted(op);
        }
    }
    if (epoll_ctl(e->fd, EPOLL_CTL_MOD, fd, &event) == 0 ||
        (errno == ENOENT && epoll_ctl(e->fd, EPOLL_CTL_ADD, fd, &event) == 0)) {
        return 0;
    }
    return -errno;
}

static void submit_one(struct epoll *e, struct qwp_op *op)
{
    if (op->kind == QWP_REQUEST_TIMER) {
        op->state = STATE_WAITING;
        e->started--;
        e->timers++;
        return;
    }
    const bool now = op->kind == QWP_REQUEST_RECV_NOW;
    if (now || op->kind == QWP_REQUEST_SEND || op->kind == QWP_REQUEST_CONNECT) {
        const int outcome = attempt(op, 0);
        if (now || outcome != -EAGAIN) {
            set_done(e, op, outcome);
            return;
        }
    }
    op->state = STATE_WAITING;
    e->started--;
    const int rc = watch(e, op->fd);
    if (rc == -EPERM) {
        /* A regular file: ready always. */
        set_done(e, op, attempt(op, op->events));
    } else if (rc != 0) {
        set_done(e, op, rc);
    }
}

static void epoll_submit(struct qwp_loop *loop)
{
    struct epoll *e = epoll_of(loop);
    for (struct qwp_op *op = loop->in_flight; op != NULL && e->started > 0; op = op->next) {
        if (op->state == STATE_STARTED) {
            submit_one(e, op);
        }
    }
}

/* ---- waiting ---- */

static int64_t timer_ns(const struct qwp_op *op)
{
    return op->time[0] * QWP_NS_PER_S + op->time[1];
}

static int64_t first_timer_ns(const struct epoll *e, int64_t deadline_ns)
{
    for (const struct qwp_op *op = e->loop.in_flight; op != NULL && e->timers > 0; op = op->next) {
        if (op->kind == QWP_REQUEST_TIMER && op->state == STATE_WAITING &&
            timer_ns(op) < deadline_ns) {
            deadline_ns = timer_ns(op);
        }
    }
    return deadline_ns;
}

static void fire_timers(struct epoll *e)
{
    if (e->timers == 0) {
        return;
    }
    const int64_t now_ns = qwp_clock_monotonic_ns();
    for (struct qwp_op *op = e->loop.in_flight; op != NULL; op = op->next) {
        if (op->kind == QWP_REQUEST_TIMER && op->state == STATE_WAITING && timer_ns(op) <= now_ns) {
            set_done(e, op, 0);
        }
    }
}

/* epoll_wait() counts milliseconds. Where its successor is unknown to the kernel or to a seccomp
 * profile, the epoll descriptor is itself waited for. */
static int wait_for(struct epoll *e, struct epoll_event *events, int64_t wait_ns)
{
    const struct timespec wait = {.tv_sec = wait_ns / QWP_NS_PER_S,
                                  .tv_nsec = wait_ns % QWP_NS_PER_S};
    if (!e->no_pwait2) {
        const long n = syscall(SYS_EPOLL_PWAIT2, e->fd, events, EVENTS_MAX, &wait, NULL, 0);
        if (n >= 0 || errno == EINTR) {
            return (int)n;
        }
        e->no_pwait2 = true;
    }
    struct pollfd ready = {.fd = e->fd, .events = POLLIN};
    return ppoll(&ready, 1, &wait, NULL) > 0 ? epoll_wait(e->fd, events, EVENTS_MAX, 0) : 0;
}

static int wait_until(struct epoll *e, struct epoll_event *events, int64_t deadline_ns)
{
    if (deadline_ns == 0 || e->done != NULL) {
        return epoll_wait(e->fd, events, EVENTS_MAX, 0);
    }
    deadline_ns = first_timer_ns(e, deadline_ns);
    if (deadline_ns == QWP_NEVER_NS) {
        return epoll_wait(e->fd, events, EVENTS_MAX, -1);
    }
    const int64_t wait_ns = deadline_ns - qwp_clock_monotonic_ns();
    return wait_ns > 0 ? wait_for(e, events, wait_ns) : epoll_wait(e->fd, events, EVENTS_MAX, 0);
}

/* The event has disarmed the descriptor: what goes on waiting is to be registered again. */
static void on_event(struct epoll *e, int fd, uint32_t events)
{
    for (struct qwp_op *op = e->loop.in_flight; op != NULL; op = op->next) {
        if (op->fd != fd || op->state != STATE_WAITING) {
            continue;
        }
        const uint32_t seen = events & (events_wanted(op) | EPOLLERR | EPOLLHUP);
        const int outcome = seen != 0 ? attempt(op, seen) : -EAGAIN;
        if (outcome != -EAGAIN) {
            set_done(e, op, outcome);
        } else {
            set_started(e, op);
        }
    }
}

/* Only what is there now, as a callback may start anew what is done at once. */
static bool deliver(struct epoll *e)
{
    struct qwp_op *op = e->done;
    const bool any = op != NULL;
    e->done = NULL;
    e->done_tail = &e->done;
    while (op != NULL) {
        struct qwp_op *next = op->next_done;
        const bool more = op->multishot && op->outcome >= 0;
        if (more) {
            set_started(e, op);
        }
        qwp_loop_complete(&e->loop, op, op->outcome, more);
        op = next;
    }
    return any;
}

static bool epoll_run(struct qwp_loop *loop, int64_t deadline_ns)
{
    struct epoll *e = epoll_of(loop);
    struct epoll_event events[EVENTS_MAX];
    bool woken = false;
    epoll_submit(loop);
    const int n = wait_until(e, events, deadline_ns);
    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == e->wake_fd) {
            uint64_t count;
            woken |= read(e->wake_fd, &count, sizeof count) > 0;
        } else {
            on_event(e, events[i].data.fd, events[i].events);
        }
    }
    fire_timers(e);
    return deliver(e) || woken;
}

static void epoll_wake(struct qwp_loop *loop)
{
    const int saved = errno;
    const uint64_t one = 1;
    /* Fails only when 2^64 wakes are pending. */
    if (write(epoll_of(loop)->wake_fd, &one, sizeof one) < 0) {
        QWP_DEBUG_ASSERT(errno == EAGAIN);
    }
    errno = saved;
}

static void epoll_close(struct qwp_loop *loop)
{
    struct epoll *e = epoll_of(loop);
    if (e->fd >= 0) {
        (void)close(e->fd);
    }
    if (e->wake_fd >= 0) {
        (void)close(e->wake_fd);
    }
    free(e);
}

static const struct qwp_loop_backend epoll_backend = {
    .kind = QWP_LOOP_EPOLL,
    .start = epoll_start,
    .cancel = epoll_cancel,
    .timer_move = epoll_timer_move,
    .submit = epoll_submit,
    .run = epoll_run,
    .wake = epoll_wake,
    .close = epoll_close,
};

enum qwp_result qwp_loop_epoll_open(struct qwp_loop **out, const struct qwp_loop_options *options,
                                    struct qwp_error *err)
{
    struct epoll *e = calloc(1, sizeof *e);
    if (e == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "event loop: out of memory");
    }
    qwp_loop_init(&e->loop, &epoll_backend, options->busy);
    e->done_tail = &e->done;
    e->fd = epoll_create1(EPOLL_CLOEXEC);
    e->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = e->wake_fd};
    if (e->fd < 0 || e->wake_fd < 0 || epoll_ctl(e->fd, EPOLL_CTL_ADD, e->wake_fd, &event) != 0) {
        const int error = errno;
        epoll_close(&e->loop);
        return qwp_fail(err, QWP_IO, error, "event loop: epoll or eventfd");
    }
    *out = &e->loop;
    return QWP_OK;
}

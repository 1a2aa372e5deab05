/* The io_uring backend of qwp_loop.h.
 *
 * With DEFER_TASKRUN the kernel finishes an operation (and posts its completion) only when we enter
 * it asking for events; TASKRUN_FLAG makes it set a bit in the shared ring when there is something
 * to finish. So a busy-polling owner costs two loads a turn and enters only when it pays.
 *
 * The ring is created disabled and enabled at the first run: the kernel binds a SINGLE_ISSUER ring
 * to the thread that enables it, so a loop may be opened by one thread and run by another. */
#include <errno.h>
#include <liburing.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "transport/qwp_loop_backend.h"

/* Kernel interface that the headers of liburing 2.3 do not know. */
enum { OP_FUTEX_WAIT = 51, FUTEX_SIZE_U32 = 0x02 };

enum { ENTRIES_DEFAULT = 256 };

struct uring {
    struct qwp_loop loop;
    struct io_uring ring;
    bool enabled;
    bool deferred;   /* completions appear only when we enter with GETEVENTS */
    uint8_t silent;  /* SQE flag: no completion when it went well */
    bool poll_first; /* an armed receive need not try first: its socket was drained */
    int wake_fd;
    struct qwp_op wake_op;
    uint64_t wake_value;
};

static struct uring *uring_of(struct qwp_loop *loop)
{
    return (struct uring *)loop;
}

/* Binds the ring to this thread. */
static void enable(struct uring *u)
{
    if (u->enabled) {
        return;
    }
    u->enabled = true;
    if ((u->ring.flags & IORING_SETUP_R_DISABLED) != 0) {
        const long rc =
            syscall(__NR_io_uring_register, u->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
        QWP_ASSERT(rc == 0);
    }
    (void)io_uring_register_ring_fd(&u->ring); /* spares a descriptor look-up per call; optional */
}

static struct io_uring_sqe *take_sqe(struct uring *u)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&u->ring);
    if (sqe == NULL) {
        enable(u);
        (void)io_uring_submit(&u->ring);
        sqe = io_uring_get_sqe(&u->ring);
    }
    QWP_ASSERT(sqe != NULL);
    return sqe;
}

static void prepare_futex(struct io_uring_sqe *sqe, const struct qwp_request *request)
{
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = OP_FUTEX_WAIT;
    sqe->fd = FUTEX_SIZE_U32; /* not PRIVATE: the waker is another process */
    sqe->addr = (uintptr_t)request->address;
    sqe->off = request->value;
    sqe->addr3 = FUTEX_BITSET_MATCH_ANY;
}

static void uring_start(struct qwp_loop *loop, struct qwp_op *op, const struct qwp_request *request)
{
    struct uring *u = uring_of(loop);
    struct io_uring_sqe *sqe = take_sqe(u);
    switch (request->kind) {
    case QWP_REQUEST_RECV:
        io_uring_prep_recv(sqe, request->fd, request->address, request->len, 0);
        if (u->poll_first) {
            sqe->ioprio = IORING_RECVSEND_POLL_FIRST;
        }
        break;
    case QWP_REQUEST_RECV_NOW:
        io_uring_prep_recv(sqe, request->fd, request->address, request->len, MSG_DONTWAIT);
        break;
    case QWP_REQUEST_SEND:
        io_uring_prep_send(sqe, request->fd, request->address, request->len, MSG_NOSIGNAL);
        break;
    case QWP_REQUEST_CONNECT:
        io_uring_prep_connect(sqe, request->fd, request->address, (socklen_t)request->len);
        break;
    case QWP_REQUEST_POLL:
        io_uring_prep_poll_add(sqe, request->fd, request->value);
        sqe->len = request->multishot ? IORING_POLL_ADD_MULTI : 0;
        break;
    case QWP_REQUEST_READ:
        /* Offset -1: the file's own position. */
        io_uring_prep_read(sqe, request->fd, request->address, (unsigned)request->len, UINT64_MAX);
        break;
    case QWP_REQUEST_TIMER:
        io_uring_prep_timeout(sqe, (struct __kernel_timespec *)(void *)op->time, 0,
                              IORING_TIMEOUT_ABS);
        break;
    case QWP_REQUEST_FUTEX:
        prepare_futex(sqe, request);
        break;
    case QWP_REQUEST_SOON:
        QWP_ASSERT(false);
    }
    io_uring_sqe_set_data(sqe, op);
}

/* The answer to a cancel or a move has no user data: nobody waits for it, and where the kernel can
 * it is left out, as it would end the sleep of the run that submits it. */
static void uring_cancel(struct qwp_loop *loop, struct qwp_op *op)
{
    struct io_uring_sqe *sqe = take_sqe(uring_of(loop));
    io_uring_prep_cancel(sqe, op, 0);
    sqe->flags |= uring_of(loop)->silent;
    io_uring_sqe_set_data(sqe, NULL);
}

static void uring_timer_move(struct qwp_loop *loop, struct qwp_op *op)
{
    struct io_uring_sqe *sqe = take_sqe(uring_of(loop));
    io_uring_prep_timeout_update(sqe, (struct __kernel_timespec *)(void *)op->time, (uintptr_t)op,
                                 IORING_TIMEOUT_ABS);
    sqe->flags |= uring_of(loop)->silent;
    io_uring_sqe_set_data(sqe, NULL);
}

static void uring_submit(struct qwp_loop *loop)
{
    struct uring *u = uring_of(loop);
    enable(u);
    if (io_uring_sq_ready(&u->ring) > 0) {
        (void)io_uring_submit(&u->ring);
    }
}

static bool kernel_has_work(const struct uring *u)
{
    return (IO_URING_READ_ONCE(*u->ring.sq.kflags) & (IORING_SQ_TASKRUN | IORING_SQ_CQ_OVERFLOW)) !=
           0;
}

/* Errors of entering (EINTR, ETIME, EAGAIN, EBUSY) all mean: look at what is there, come again. */
static void enter(struct uring *u, int64_t deadline_ns)
{
    if (io_uring_cq_ready(&u->ring) > 0) {
        deadline_ns = 0;
    }
    if (deadline_ns == QWP_NEVER_NS) {
        (void)io_uring_submit_and_wait(&u->ring, 1);
        return;
    }
    const int64_t wait_ns = deadline_ns == 0 ? 0 : deadline_ns - qwp_clock_monotonic_ns();
    if (wait_ns <= 0) {
        if (kernel_has_work(u) || (u->deferred && io_uring_sq_ready(&u->ring) > 0)) {
            (void)io_uring_submit_and_get_events(&u->ring);
        } else if (io_uring_sq_ready(&u->ring) > 0) {
            (void)io_uring_submit(&u->ring);
        }
        return;
    }
    struct __kernel_timespec wait = {
        .tv_sec = wait_ns / QWP_NS_PER_S,
        .tv_nsec = wait_ns % QWP_NS_PER_S,
    };
    struct io_uring_cqe *cqe;
    (void)io_uring_submit_and_wait_timeout(&u->ring, &cqe, 1, &wait, NULL);
}

static int outcome_of(const struct qwp_op *op, int res)
{
    return op->kind == QWP_REQUEST_TIMER && res == -ETIME ? 0 : res;
}

/* Only what is there now: an operation that its callback starts anew and that fails at once must
 * not keep us here. Each entry is given back before its callback runs. */
static bool dispatch(struct uring *u)
{
    bool any = false;
    struct io_uring_cqe *cqe;
    for (unsigned n = io_uring_cq_ready(&u->ring); n > 0; n--) {
        if (io_uring_peek_cqe(&u->ring, &cqe) != 0) {
            break;
        }
        struct qwp_op *op = io_uring_cqe_get_data(cqe);
        const int res = cqe->res;
        const bool more = (cqe->flags & IORING_CQE_F_MORE) != 0;
        io_uring_cqe_seen(&u->ring, cqe);
        if (op != NULL) {
            any = true;
            qwp_loop_complete(&u->loop, op, outcome_of(op, res), more);
        }
    }
    return any;
}

static bool uring_run(struct qwp_loop *loop, int64_t deadline_ns)
{
    struct uring *u = uring_of(loop);
    enable(u);
    enter(u, deadline_ns);
    return dispatch(u);
}

static void uring_wake(struct qwp_loop *loop)
{
    const int saved = errno;
    const uint64_t one = 1;
    /* Fails only when 2^64 wakes are pending. */
    if (write(uring_of(loop)->wake_fd, &one, sizeof one) < 0) {
        QWP_DEBUG_ASSERT(errno == EAGAIN);
    }
    errno = saved;
}

static void on_wake(struct qwp_op *op, int outcome, bool more)
{
    (void)outcome;
    (void)more;
    struct uring *u = op->owner;
    qwp_loop_read(&u->loop, op, u->wake_fd, &u->wake_value, sizeof u->wake_value);
}

static void uring_close(struct qwp_loop *loop)
{
    struct uring *u = uring_of(loop);
    io_uring_queue_exit(&u->ring);
    if (u->wake_fd >= 0) {
        (void)close(u->wake_fd);
    }
    free(u);
}

static const struct qwp_loop_backend uring_backend = {
    .kind = QWP_LOOP_URING,
    .start = uring_start,
    .cancel = uring_cancel,
    .timer_move = uring_timer_move,
    .submit = uring_submit,
    .run = uring_run,
    .wake = uring_wake,
    .close = uring_close,
};

/* From the best set of flags to the one that every io_uring kernel takes. */
static int open_ring(struct uring *u, unsigned entries)
{
    static const unsigned flag_sets[] = {
        IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG |
            IORING_SETUP_R_DISABLED,
        IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
        0,
    };
    int rc = -EINVAL;
    for (size_t i = 0; i < sizeof flag_sets / sizeof flag_sets[0] && rc == -EINVAL; i++) {
        struct io_uring_params params = {.flags = flag_sets[i] | IORING_SETUP_CLAMP};
        rc = io_uring_queue_init_params(entries, &u->ring, &params);
        u->silent = (params.features & IORING_FEAT_CQE_SKIP) != 0 ? IOSQE_CQE_SKIP_SUCCESS : 0;
        u->deferred = (flag_sets[i] & IORING_SETUP_DEFER_TASKRUN) != 0;
        u->poll_first = flag_sets[i] != 0; /* COOP_TASKRUN and POLL_FIRST are of one kernel */
    }
    return rc;
}

/* ---- what the kernel has ---- */

static const struct operation {
    const char *name;
    unsigned opcode;
} needed[] = {
    {"recv", IORING_OP_RECV},           {"send", IORING_OP_SEND},
    {"connect", IORING_OP_CONNECT},     {"poll", IORING_OP_POLL_ADD},
    {"read", IORING_OP_READ},           {"timeout", IORING_OP_TIMEOUT},
    {"cancel", IORING_OP_ASYNC_CANCEL}, {"timeout-remove", IORING_OP_TIMEOUT_REMOVE},
};

/* Not told by the probe of operations. EXT_ARG came with the update of timeouts (5.11), RSRC_TAGS
 * with multishot polls (5.13). */
static const struct feature {
    const char *name;
    unsigned flag;
} needed_features[] = {
    {"wait-timeout", IORING_FEAT_EXT_ARG},
    {"poll-multishot", IORING_FEAT_RSRC_TAGS},
};

/* Whether `name` is one of the words of the list. */
static bool is_hidden(const char *list, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = list; at != NULL && *at != '\0';) {
        const size_t word = strcspn(at, ",");
        if (word == len && memcmp(at, name, len) == 0) {
            return true;
        }
        at += word + (at[word] == ',' ? 1 : 0);
    }
    return false;
}

static bool has_operation(const struct io_uring_probe *probe, unsigned opcode)
{
    return probe->last_op >= opcode && probe->ops_len > opcode &&
           (probe->ops[opcode].flags & IO_URING_OP_SUPPORTED) != 0;
}

/* Appends a word; what does not fit is left out. */
static void list_add(char *list, size_t list_bytes, const char *name)
{
    const size_t len = strlen(list);
    (void)snprintf(list + len, list_bytes - len, "%s%s", len > 0 ? ", " : "", name);
}

static enum qwp_result probe_ring(struct uring *u, const char *without, struct qwp_error *err)
{
    char missing[160] = "";
    struct io_uring_probe *probe = io_uring_get_probe_ring(&u->ring);
    if (probe == NULL) {
        return qwp_fail(err, QWP_IO, 0, "event loop: io_uring does not tell its operations");
    }
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!has_operation(probe, needed[i].opcode) || is_hidden(without, needed[i].name)) {
            list_add(missing, sizeof missing, needed[i].name);
        }
    }
    for (size_t i = 0; i < sizeof needed_features / sizeof needed_features[0]; i++) {
        if ((u->ring.features & needed_features[i].flag) == 0 ||
            is_hidden(without, needed_features[i].name)) {
            list_add(missing, sizeof missing, needed_features[i].name);
        }
    }
    u->loop.has_futex = has_operation(probe, OP_FUTEX_WAIT) && !is_hidden(without, "futex");
    io_uring_free_probe(probe);
    if (missing[0] != '\0') {
        return qwp_fail(err, QWP_IO, 0, "event loop: io_uring lacks %s (Linux 5.13 has all)",
                        missing);
    }
    return QWP_OK;
}

static const char *cause_of(int error)
{
    switch (error) {
    case EPERM:
    case EACCES:
        return "forbidden by a seccomp profile or by kernel.io_uring_disabled";
    case ENOMEM:
        return "no memory, or none that may be locked: `ulimit -l`";
    case ENOSYS:
        return "a kernel before 5.1 or built without it, or a seccomp profile";
    default:
        return "refused";
    }
}

enum qwp_result qwp_loop_uring_open(struct qwp_loop **out, const struct qwp_loop_options *options,
                                    struct qwp_error *err)
{
    struct uring *u = calloc(1, sizeof *u);
    if (u == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "event loop: out of memory");
    }
    qwp_loop_init(&u->loop, &uring_backend, options->busy);
    u->wake_fd = eventfd(0, EFD_CLOEXEC);
    if (u->wake_fd < 0) {
        const int saved = errno;
        free(u);
        return qwp_fail(err, QWP_IO, saved, "event loop: eventfd");
    }
    const unsigned entries = options->entries != 0 ? options->entries : ENTRIES_DEFAULT;
    const int rc = is_hidden(options->uring_without, "all") ? -EPERM : open_ring(u, entries);
    if (rc < 0) {
        (void)close(u->wake_fd);
        free(u);
        return qwp_fail(err, rc == -ENOMEM ? QWP_NOMEM : QWP_IO, -rc,
                        "event loop: io_uring is not to be had (%s)", cause_of(-rc));
    }
    const enum qwp_result result = probe_ring(u, options->uring_without, err);
    if (result != QWP_OK) {
        uring_close(&u->loop);
        return result;
    }
    u->wake_op.fn = on_wake;
    u->wake_op.owner = u;
    on_wake(&u->wake_op, 0, false);
    *out = &u->loop;
    return QWP_OK;
}

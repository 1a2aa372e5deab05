/* Who may sleep when, and why no wake-up is lost.
 *
 * 1. Publish against park.  sync[bell.epoch]
 *    producer: P1 store tail, P2 load epoch, P3 if odd: FUTEX_WAKE
 *    sidecar:  S0 arm the futex wait, S1 store epoch odd, S2 load every tail, S3 sleep
 *    Lost would be: P2 sees the old, even epoch and S2 the old tail. That is store-then-load on
 * both sides; a full barrier between each pair excludes it. The sidecar has one always: in park()
 *    either membarrier(2), or a fence. The producer has a fence, or, registered, only keeps the
 *    compiler from swapping P1 and P2: membarrier then makes every running thread of a registered
 *    process pass a full barrier at some point B between its call and its return (and a thread that
 *    does not run passed one when it was switched out). If B falls before P2, then P2 comes after
 *    S1 and sees odd. If B falls behind P2, it falls behind P1 too, and S2, which comes after B,
 *    sees the tail. Both may hold: then the sidecar goes on by itself and is rung for nothing.
 *
 *    P3 finds the sleeper only if it is queued by then, so S0 comes before S1: whoever sees odd
 *    sees a queued waiter. In the order "store odd, look, arm" a producer rings between look and
 *    arm, wakes nobody, remembers that it rang for this epoch, and the wait is armed happily since
 *    the word is still the odd value it expects.
 *
 * 2. A ring for an epoch that is over. A producer stopped between P2 and P3 rings late: when the
 *    sidecar is awake or parked anew. That takes the armed waiter out of the queue, but it leaves a
 *    completion in the ring of io_uring, which is not consumed by being awake: the sidecar does not
 *    sleep over it, sees that nothing is armed any more, unparks, and arms again while even. So
 *    "armed" is: submitted, and its completion not yet seen.
 *
 * 3. Ringing once. A producer remembers the odd value it rang for, and each park has a value of its
 *    own (30 bits; they come round after 2^30 parks, and then only a producer that was idle since
 *    and publishes in that very park is late, until the next event).
 *
 * 4. Lingering. Nobody rings a lingering sidecar while its ring is less than half full: the sidecar
 *    wakes by its timer. Both sides use qwp_ring_is_half_full(), and after park(lingering) the
 *    sidecar's look at every tail includes that test, so rule 1 covers the crossing. A unit is at
 *    most half of a ring, so no producer waits for room in a ring that is less than half full.
 *    Whoever wakes by himself within UNSURE_NS (`brief`) loses no more than that by a crossing that
 *    neither side saw, and a membarrier costs as much as a hundred rows: it is left out.
 *
 * 5. Attach.  sync[bell.attach]
 *    producer: P1 store tail, P2 load attach_gen, P3 if changed: map that control file and ring,
 *              whatever the epoch says
 *    sidecar:  (control file in place,) S1 store attach_gen, S2 load tail
 *    The same shape as rule 1, with the same barriers, and so: S2 sees the tail or P2 the new
 *    attach_gen. Until it has seen it, a producer follows the rules of the control file before,
 *    which may not have asked it to fence. So attach issues a membarrier even when parking does
 *    not, and where there is none, the sidecar sleeps briefly for a while: a store leaves a CPU's
 *    store buffer by itself long before UNSURE_FOR_NS.
 *    A producer that maps a control file of another life than attach_gen tells: that sidecar is
 *    dead (it had renamed its file into place before it attached), and the next one is still to
 *    attach, and reads the tail then. Nobody to ring.
 *
 * 6. The FIFO needs none of "armed": a byte stays until it is read. unpark() reads it before the
 *    tails are looked at; who wrote it published before.
 *
 * 7. A waiting producer.  sync[ring.progress]
 *    producer: P0 load progress_seq, P1 store waiting, P2 load head (acked, state), P3 FUTEX_WAIT
 *              for the value of P0
 *    sidecar:  S1 store head, S2 load waiting, S3 if set: bump progress_seq, FUTEX_WAKE
 *    Store-then-load on both sides again, seq_cst all of them (a fence at the producer's, since
 *    what `reached` loads is not ours). So P2 sees the move, or S2 the wish. In the second case the
 *    bump falls after P0: FUTEX_WAIT refuses the old value or is woken. A sidecar that dies between
 *    S1 and S3 wakes nobody: the next one does when it attaches, and the producer looks up each
 *    LOOK_UP_NS, which also answers anyone who tampers with the futex. */
#include "ipc/qwp_bell.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "ipc/qwp_file.h"

enum { FIFO_MODE = 0620, DRAIN_BYTES = 512, DRAINS_MAX = 128 /* what a pipe holds */ };

#define UNSURE_FOR_NS (10 * QWP_BELL_UNSURE_NS)
#define LOOK_UP_NS    INT64_C(1000000000)

/* What a producer without a sidecar looks at: awake for ever. */
static const _Atomic uint32_t awake_word = 0;

static int membarrier(int command)
{
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

static bool membarrier_has(int commands)
{
    const int known = membarrier(MEMBARRIER_CMD_QUERY);
    return known >= 0 && (known & commands) == commands;
}

/* Shared, not private, futex: the waiter is another process. Works on a read-only mapping. All
 * waiters, so that no reader of the word can take a wake-up from the one it is for. */
static void futex_wake(const _Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- producer ---- */

bool qwp_bell_register(void)
{
    return membarrier_has(MEMBARRIER_CMD_GLOBAL_EXPEDITED |
                          MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) &&
           membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
}

void qwp_bell_tx_init(struct qwp_bell_tx *bell, bool registered)
{
    *bell = (struct qwp_bell_tx){
        .epoch = &awake_word,
        .registered = registered,
        .fence = !registered,
        .control = {.fd = -1},
        .fifo_fd = -1,
    };
}

void qwp_bell_tx_fini(struct qwp_bell_tx *bell)
{
    if (bell->fifo_fd > 0) {
        close(bell->fifo_fd);
    }
    qwp_control_unmap(&bell->control);
    qwp_bell_tx_init(bell, bell->registered);
}

/* A full FIFO is one that has been rung. A reader that died would kill us by SIGPIPE, which is not
 * ours to ignore for the whole process: held back and taken off this thread. */
static void fifo_write(int fd)
{
    sigset_t pipe_only;
    sigset_t pending;
    sigset_t before;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigpending(&pending);
    const bool was_pending = sigismember(&pending, SIGPIPE) == 1;
    if (pthread_sigmask(SIG_BLOCK, &pipe_only, &before) != 0) {
        return;
    }
    ssize_t n;
    do {
        n = write(fd, "!", 1);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EPIPE && !was_pending) {
        const struct timespec at_once = {0};
        while (sigtimedwait(&pipe_only, NULL, &at_once) < 0 && errno == EINTR) {
        }
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void ring_now(const struct qwp_bell_tx *bell)
{
    if (bell->fifo_fd >= 0) {
        fifo_write(bell->fifo_fd);
    } else {
        futex_wake(bell->epoch);
    }
}

/* False: try again with the next publish. No reader: a dead sidecar's, nothing to ring. */
static bool open_fifo(int dir_fd, int *fd)
{
    *fd = qwp_fd_above_stdio(
        openat(dir_fd, QWP_BELL_FILE, O_WRONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (*fd < 0) {
        return errno == ENXIO || errno == ENOENT;
    }
    struct stat st;
    if (fstat(*fd, &st) != 0 || !S_ISFIFO(st.st_mode)) {
        close(*fd);
        *fd = -1;
        return false;
    }
    return true;
}

/* Follows the control file of the life `gen`; NULL: nobody to ring until attach_gen changes. */
static void follow(struct qwp_bell_tx *bell, uint64_t gen, struct qwp_control *control, int fifo_fd)
{
    const bool registered = bell->registered;
    qwp_bell_tx_fini(bell);
    bell->gen = gen;
    bell->registered = registered;
    if (control != NULL) {
        bell->control = *control;
        bell->epoch = &control->header->epoch;
        bell->fence = !registered ||
                      atomic_load_explicit(&control->header->bell_fence, memory_order_relaxed) != 0;
        bell->fifo_fd = fifo_fd;
    }
}

void qwp_bell_renew(struct qwp_bell_tx *bell, struct qwp_ring_tx *tx)
{
    /* sync[bell.attach] acquire: the control file of that life is in place. */
    const uint64_t gen = atomic_load_explicit(&tx->header->attach_gen, memory_order_acquire);
    struct qwp_control control = {.fd = -1};
    if (gen == 0) {
        follow(bell, 0, NULL, -1);
        return;
    }
    const enum qwp_result result = qwp_control_map(&control, tx->dir_fd, NULL);
    if (result == QWP_INVALID) {
        follow(bell, gen, NULL, -1);
        bell->refused = true;
        return;
    }
    if (result != QWP_OK) {
        /* Out of descriptors or memory, say. Our gen stays the old one: the next publish tries
         * again, since without the epoch nobody would be rung. */
        return;
    }
    if (atomic_load_explicit(&control.header->gen, memory_order_relaxed) != gen) {
        qwp_control_unmap(&control);
        follow(bell, gen, NULL, -1);
        return;
    }
    int fifo_fd = -1;
    if (atomic_load_explicit(&control.header->bell_mode, memory_order_relaxed) == QWP_BELL_FIFO &&
        !open_fifo(tx->dir_fd, &fifo_fd)) {
        qwp_control_unmap(&control);
        return;
    }
    follow(bell, gen, &control, fifo_fd);
    /* Unconditionally: what we published before looked at another epoch. */
    const uint32_t epoch = atomic_load_explicit(bell->epoch, memory_order_relaxed);
    bell->rung = (epoch & QWP_EPOCH_PARKED) != 0 ? epoch : 0;
    ring_now(bell);
}

void qwp_bell_ring(struct qwp_bell_tx *bell, struct qwp_ring_tx *tx, uint32_t epoch)
{
    if ((epoch & QWP_EPOCH_LINGERING) != 0) {
        /* sync[ring.head] acquire: so it may serve the next reserve, too. */
        tx->head_seen_pos = atomic_load_explicit(&tx->header->head_pos, memory_order_acquire);
        if (!qwp_ring_is_half_full(tx->tail_pos - tx->head_seen_pos, tx->data_bytes)) {
            return; /* and not remembered: the next publish asks again */
        }
    }
    bell->rung = epoch;
    ring_now(bell);
}

static struct timespec timespec_of(int64_t ns)
{
    return (struct timespec){.tv_sec = ns / QWP_NS_PER_S, .tv_nsec = ns % QWP_NS_PER_S};
}

enum qwp_result qwp_bell_wait(struct qwp_ring_tx *tx, uint32_t what, qwp_reached_fn reached,
                              void *owner, int64_t deadline_ns)
{
    struct qwp_ring_header *header = tx->header;
    enum qwp_result result = QWP_AGAIN;
    for (;;) {
        /* sync[ring.progress]: rule 7, P0 to P3. */
        const uint32_t seq = atomic_load_explicit(&header->progress_seq, memory_order_seq_cst);
        atomic_store_explicit(&header->waiting, what, memory_order_seq_cst);
        qwp_bell_fence();
        if (reached(owner)) {
            result = QWP_OK;
            break;
        }
        const int64_t now_ns = qwp_clock_monotonic_ns();
        if (now_ns >= deadline_ns) {
            break;
        }
        const int64_t until_ns =
            deadline_ns - now_ns < LOOK_UP_NS ? deadline_ns : now_ns + LOOK_UP_NS;
        const struct timespec until = timespec_of(until_ns);
        /* The bitset form takes an absolute time of the monotonic clock. Woken, late, interrupted
         * or refused: in each case look again. */
        syscall(SYS_futex, &header->progress_seq, FUTEX_WAIT_BITSET, seq, &until, NULL,
                FUTEX_BITSET_MATCH_ANY);
    }
    atomic_store_explicit(&header->waiting, 0, memory_order_relaxed);
    return result;
}

/* ---- sidecar ---- */

/* Made under another name, so that what someone left there is replaced and never opened. */
static enum qwp_result make_fifo(int dir_fd, int *fd, struct qwp_error *err)
{
    char tmp_name[QWP_FILE_NAME_BYTES];
    qwp_tmp_name(tmp_name, sizeof tmp_name);
    if (mkfifoat(dir_fd, tmp_name, FIFO_MODE) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make the bell (a FIFO)");
    }
    /* For reading and writing: then there is always a writer, and no end of file to poll on. */
    *fd =
        qwp_fd_above_stdio(openat(dir_fd, tmp_name, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
    if (*fd >= 0 && fchmod(*fd, FIFO_MODE) == 0 &&
        renameat(dir_fd, tmp_name, dir_fd, QWP_BELL_FILE) == 0) {
        return QWP_OK;
    }
    const enum qwp_result result =
        qwp_fail(err, QWP_IO, errno, "cannot put the bell (a FIFO) into place");
    if (*fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    unlinkat(dir_fd, tmp_name, 0);
    return result;
}

enum qwp_result qwp_bell_rx_open(struct qwp_bell_rx *bell, int dir_fd, struct qwp_control *control,
                                 struct qwp_error *err)
{
    struct qwp_control_header *header = control->header;
    *bell = (struct qwp_bell_rx){.control = header, .fifo_fd = -1};
    bell->epoch = atomic_load_explicit(&header->epoch, memory_order_relaxed);
    bell->can_membarrier = membarrier_has(MEMBARRIER_CMD_GLOBAL_EXPEDITED);
    bell->fence = atomic_load_explicit(&header->bell_fence, memory_order_relaxed) != 0;
    if (!bell->can_membarrier && !bell->fence) {
        bell->fence = true;
        atomic_store_explicit(&header->bell_fence, 1, memory_order_relaxed);
    }
    if (atomic_load_explicit(&header->bell_mode, memory_order_relaxed) == QWP_BELL_FIFO) {
        return make_fifo(dir_fd, &bell->fifo_fd, err);
    }
    return QWP_OK;
}

void qwp_bell_rx_close(struct qwp_bell_rx *bell)
{
    if (bell->fifo_fd > 0) {
        close(bell->fifo_fd);
    }
    *bell = (struct qwp_bell_rx){.fifo_fd = -1};
}

const uint32_t *qwp_bell_word(const struct qwp_bell_rx *bell, uint32_t *expected)
{
    QWP_ASSERT(!qwp_bell_is_parked(bell)); /* rule 1: arming comes first */
    *expected = bell->epoch;
    return (const uint32_t *)&bell->control->epoch;
}

/* Between our store and our load. True: every producer that needs it passed one, too. */
static bool full_barrier(const struct qwp_bell_rx *bell, bool needs_membarrier)
{
    qwp_bell_fence();
    return !needs_membarrier ||
           (bell->can_membarrier && membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) == 0);
}

bool qwp_bell_park(struct qwp_bell_rx *bell, bool lingering, bool brief)
{
    /* From lingering to parked, or back, is another park: those who rang for the first ring again.
     */
    const uint32_t base =
        qwp_bell_is_parked(bell) ? (bell->epoch | (QWP_EPOCH_STEP - 1)) + 1 : bell->epoch;
    bell->epoch = base | QWP_EPOCH_PARKED | (lingering ? QWP_EPOCH_LINGERING : 0u);
    /* sync[bell.epoch]: rule 1, S1 and the barrier before S2. */
    atomic_store_explicit(&bell->control->epoch, bell->epoch, memory_order_seq_cst);
    bool sure = full_barrier(bell, !bell->fence && !brief);
    if (bell->unsure_until_ns != 0) {
        if (qwp_clock_monotonic_ns() < bell->unsure_until_ns) {
            sure = false;
        } else {
            bell->unsure_until_ns = 0;
        }
    }
    return sure;
}

static void drain_fifo(int fd)
{
    char bytes[DRAIN_BYTES];
    for (int i = 0; i < DRAINS_MAX && read(fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes; i++) {
    }
}

void qwp_bell_unpark(struct qwp_bell_rx *bell)
{
    if (qwp_bell_is_parked(bell)) {
        bell->epoch = (bell->epoch | (QWP_EPOCH_STEP - 1)) + 1;
        atomic_store_explicit(&bell->control->epoch, bell->epoch, memory_order_release);
    }
    if (bell->fifo_fd >= 0) {
        drain_fifo(bell->fifo_fd);
    }
}

void qwp_bell_attach(struct qwp_bell_rx *bell, struct qwp_ring_rx *rx)
{
    qwp_ring_set_state(rx, QWP_RING_ATTACHED, "");
    const uint64_t gen = atomic_load_explicit(&bell->control->gen, memory_order_relaxed);
    /* sync[bell.attach] release: the control file is in place. Rule 5, S1, and the barrier. */
    atomic_store_explicit(&rx->header->attach_gen, gen, memory_order_seq_cst);
    if (!full_barrier(bell, rx->membarrier)) {
        bell->unsure_until_ns = qwp_clock_monotonic_ns() + UNSURE_FOR_NS;
    }
}

/* Aim: no wake-up is lost between producers and a sleeping sidecar; and this program can tell,
 * since it does find the losses of a wrong parking order or of missing fences.
 *
 * Method: one consumer process and some producer processes over real rings, control file and bell.
 * The consumer parks whenever nothing is left, sleeps for a ring of the bell, takes everything,
 * checks that sequence numbers follow each other, parks again: one hand-over. Producers publish at
 * random times; between publish and ring some yield, stop themselves (the parent lets them go on
 * later), or kill themselves (the parent starts another; the directory watch tells of the death).
 * Now and then the consumer becomes the next sidecar: new control file, rings opened and attached
 * anew.
 *
 * What counts as lost is exact, and needs no quiet machine: a sleep that ran into its time limit of
 * 50 ms, without a ring of the bell even then, while a record lies there whose producer had already
 * *returned* from qwp_bell_published(). The longest time from that return to the taking is printed;
 * on a busy machine it is a matter of scheduling.
 *
 * Exit: 0 no loss (or, with --expect-loss, at least one), 1 otherwise, 77 cannot run here. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <liburing.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "ipc/qwp_bell.h"

enum {
    PRODUCERS_MAX = 64,
    RINGS_MAX = 256, /* with orphans that wait to be drained */
    RING_BYTES = 64 * 1024,
    RECORD_BYTES = 32,
    OP_FUTEX_WAIT = 51, /* newer than our headers */
    FUTEX_SIZE_U32 = 0x02,
    LIVES_EVERY = 20000, /* hand-overs per life of the sidecar */
    SKIPPED = 77,
};
#define SLEEP_NS_MAX (50 * (int64_t)QWP_NS_PER_MS)

struct options {
    uint64_t handovers;
    int producers;
    unsigned seed;
    int64_t seconds_max;
    bool fifo;
    bool fence;        /* doorbell=fence */
    bool unregistered; /* producers without membarrier */
    bool calm;         /* nobody is killed or stopped */
    bool wrong_order;  /* store odd, look, arm */
    bool no_fence;     /* neither fence nor membarrier */
    bool expect_loss;
};
static struct options options = {.handovers = 200000, .producers = 3, .seconds_max = 120};

/* What producers tell: anonymous shared memory. */
struct slot {
    alignas(128) _Atomic uint64_t rung_pos; /* qwp_bell_published() returned for this position */
    _Atomic int64_t rung_ns;
    _Atomic uint64_t ring_id; /* of the ring this is about */
};
struct shared {
    struct slot slots[PRODUCERS_MAX];
    _Atomic uint64_t kills;
    _Atomic uint64_t stops;
    _Atomic uint64_t published;
};
static struct shared *shared;
static int dir_fd = -1;
static char dir[64];

struct record {
    struct qwp_record_header header;
    uint64_t seq;
    uint32_t slot;
    uint32_t zero;
    uint64_t check;
};
static_assert(sizeof(struct record) == RECORD_BYTES, "a record");

static uint64_t check_of(uint64_t seq, uint32_t slot)
{
    return (seq * UINT64_C(0x9e3779b97f4a7c15)) ^ slot;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void spin(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        __asm__ volatile("");
    }
}

static void die(const char *what, const char *text)
{
    fprintf(stderr, "bell_stress: %s: %s\n", what, text);
    exit(1);
}

/* ---- producer process ---- */

static bool has_room(void *owner)
{
    unsigned char *at;
    return qwp_ring_reserve(owner, RECORD_BYTES, &at) == QWP_OK;
}

static void put(struct qwp_ring_tx *tx, uint32_t slot, uint64_t seq)
{
    unsigned char *at;
    while (qwp_ring_reserve(tx, RECORD_BYTES, &at) != QWP_OK) {
        if (qwp_bell_wait(tx, QWP_WAIT_SPACE, has_room, tx, QWP_NEVER_NS) != QWP_OK) {
            die("producer", "wait");
        }
    }
    const struct record record = {
        .header = {RECORD_BYTES, 0, QWP_RECORD_ROW, 0},
        .seq = seq,
        .slot = slot,
        .check = check_of(seq, slot),
    };
    memcpy(at, &record, sizeof record);
    qwp_ring_commit(tx, RECORD_BYTES);
}

/* Between publish and ring: where a lost wake-up would be made. */
static void dawdle(uint64_t random)
{
    const uint64_t kind = random % 65536;
    if (kind < 16 && !options.calm) {
        atomic_fetch_add(&shared->kills, 1);
        raise(SIGKILL);
    } else if (kind < 128 && !options.calm) {
        atomic_fetch_add(&shared->stops, 1);
        raise(SIGSTOP);
    } else if (kind < 2000) {
        sched_yield();
    } else if (kind < 6000) {
        spin(kind % 512);
    }
}

/* Spins at first, for the meeting of the two is a matter of nanoseconds. */
static void relax(int round)
{
    if (round > 2000) {
        sched_yield();
    }
}

/* Mostly until all is taken, since a next publish would ring for a lost one; often also until the
 * consumer has said that it parks. Then a little, so that publish and park meet everywhere. */
static void pause_between(const struct qwp_ring_tx *tx, const struct qwp_bell_tx *bell,
                          uint64_t random)
{
    if (random % 8 != 0) {
        for (int i = 0; atomic_load(&tx->header->head_pos) < tx->tail_pos; i++) {
            relax(i);
        }
    }
    if (random % 16 >= 8) {
        for (int i = 0; i < 4000 && (atomic_load(bell->epoch) & QWP_EPOCH_PARKED) == 0; i++) {
            relax(i);
        }
    }
    if (random % 1024 < 4) {
        usleep((useconds_t)(random >> 32) % 300);
    } else {
        spin((random >> 32) & ((UINT64_C(1) << (random >> 20) % 17) - 1)); /* up to 20 us */
    }
}

static void produce(uint32_t slot, uint64_t seed)
{
    struct qwp_error err;
    struct qwp_ring_tx tx;
    struct qwp_bell_tx bell;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool registered = !options.unregistered && !options.no_fence && qwp_bell_register();
    const struct qwp_ring_options ring = {
        .name = "stress", .data_bytes = RING_BYTES, .defs_bytes_max = 1, .membarrier = registered};
    if (qwp_ring_create(&tx, dir_fd, &ring, &err) != QWP_OK) {
        die("producer", err.text);
    }
    /* A false claim makes the producer leave out its fence. */
    qwp_bell_tx_init(&bell, registered || options.no_fence);
    atomic_store(&shared->slots[slot].rung_pos, 0);
    atomic_store(&shared->slots[slot].ring_id, atomic_load(&tx.header->ring_id[0]));
    for (uint64_t seq = 0;;) {
        const uint64_t random = next_random(&seed);
        const uint32_t count = random % 16 == 0 ? 1 + (random >> 8) % 64 : 1;
        for (uint32_t i = 0; i < count; i++) {
            put(&tx, slot, seq++);
        }
        qwp_ring_publish(&tx, count);
        dawdle(next_random(&seed));
        qwp_bell_published(&bell, &tx);
        atomic_store_explicit(&shared->slots[slot].rung_ns, qwp_clock_monotonic_ns(),
                              memory_order_relaxed);
        atomic_store_explicit(&shared->slots[slot].rung_pos, tx.tail_pos, memory_order_release);
        atomic_fetch_add_explicit(&shared->published, count, memory_order_relaxed);
        pause_between(&tx, &bell, next_random(&seed));
    }
}

/* ---- consumer process ---- */

struct source {
    struct qwp_ring_rx rx;
    uint64_t next_seq;
};

struct consumer {
    struct source sources[RINGS_MAX];
    int source_count;
    struct qwp_control control;
    struct qwp_bell_rx bell;
    struct io_uring uring;
    bool armed;
    int inotify_fd;
    bool watching;
    uint64_t handovers;
    uint64_t idle_timeouts;
    uint64_t lost;
    uint64_t records;
    uint64_t lives;
    uint64_t orphans;
    int64_t gap_ns_max;
};

enum { TOKEN_BELL = 1, TOKEN_WATCH = 2 };

static void open_life(struct consumer *c)
{
    struct qwp_error err;
    const struct qwp_control_options control = {
        .bell_mode = options.fifo ? QWP_BELL_FIFO : QWP_BELL_FUTEX,
        .bell_fence = options.fence,
        .producers_max = 1,
        .ring_bytes_max = RING_BYTES,
    };
    if (qwp_control_create(&c->control, dir_fd, &control, &err) != QWP_OK ||
        qwp_bell_rx_open(&c->bell, dir_fd, &c->control, &err) != QWP_OK) {
        die("consumer", err.text);
    }
    if (options.no_fence) {
        c->bell.fence = true; /* its own fence stays: only the producers' half is missing */
    }
    c->lives++;
}

/* Each is submitted at once, so there is always one. */
static struct io_uring_sqe *get_sqe(struct consumer *c)
{
    struct io_uring_sqe *sqe = io_uring_get_sqe(&c->uring);
    if (sqe == NULL) {
        die("io_uring", "no submission entry");
    }
    return sqe;
}

static void arm_bell(struct consumer *c, const uint32_t *word, uint32_t expected)
{
    struct io_uring_sqe *sqe = get_sqe(c);
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = OP_FUTEX_WAIT;
    sqe->fd = FUTEX_SIZE_U32;
    sqe->addr = (uintptr_t)word;
    sqe->off = expected;
    sqe->addr3 = FUTEX_BITSET_MATCH_ANY;
    sqe->user_data = TOKEN_BELL;
    io_uring_submit(&c->uring);
    c->armed = true;
}

static void arm_watch(struct consumer *c)
{
    struct io_uring_sqe *sqe = get_sqe(c);
    io_uring_prep_poll_add(sqe, c->inotify_fd, POLLIN);
    sqe->user_data = TOKEN_WATCH;
    io_uring_submit(&c->uring);
    c->watching = true;
}

/* What has completed, as a set of tokens. */
static unsigned reap(struct consumer *c)
{
    unsigned seen = 0;
    struct io_uring_cqe *cqe;
    while (io_uring_peek_cqe(&c->uring, &cqe) == 0) {
        if (cqe->user_data == TOKEN_BELL) {
            if (cqe->res < 0 && cqe->res != -EAGAIN && cqe->res != -ECANCELED) {
                die("futex wait", strerror(-cqe->res));
            }
            c->armed = false;
            seen |= TOKEN_BELL;
        } else if (cqe->user_data == TOKEN_WATCH) {
            c->watching = false;
            seen |= TOKEN_WATCH;
        }
        io_uring_cqe_seen(&c->uring, cqe);
    }
    return seen;
}

static unsigned sleep_uring(struct consumer *c, int64_t ns)
{
    struct io_uring_cqe *cqe;
    struct __kernel_timespec limit = {.tv_nsec = ns};
    io_uring_wait_cqe_timeout(&c->uring, &cqe, &limit);
    return reap(c);
}

static unsigned sleep_fifo(struct consumer *c, int64_t ns)
{
    struct pollfd fds[2] = {{.fd = c->bell.fifo_fd, .events = POLLIN},
                            {.fd = c->inotify_fd, .events = POLLIN}};
    const struct timespec limit = {.tv_nsec = ns};
    if (ppoll(fds, 2, &limit, NULL) <= 0) {
        return 0;
    }
    return (fds[0].revents != 0 ? TOKEN_BELL : 0u) | (fds[1].revents != 0 ? TOKEN_WATCH : 0u);
}

static unsigned sleep_some(struct consumer *c, int64_t ns)
{
    return options.fifo ? sleep_fifo(c, ns) : sleep_uring(c, ns);
}

/* Takes everything below tail_seen_pos of one ring. */
static void take(struct consumer *c, struct source *source)
{
    struct qwp_ring_rx *rx = &source->rx;
    const struct record *record = NULL;
    uint64_t rows = 0;
    uint32_t slot = 0;
    for (uint64_t pos = rx->head_pos; pos < rx->tail_seen_pos; pos += RECORD_BYTES, rows++) {
        record = (const struct record *)(rx->data + (pos & rx->data_mask));
        slot = record->slot;
        if (record->seq != source->next_seq || slot >= PRODUCERS_MAX ||
            record->check != check_of(record->seq, slot)) {
            die("record out of sequence", rx->file_name);
        }
        source->next_seq++;
    }
    struct slot *told = &shared->slots[slot];
    if (atomic_load(&told->ring_id) == rx->ring_id[0] &&
        atomic_load_explicit(&told->rung_pos, memory_order_acquire) >= rx->tail_seen_pos) {
        const int64_t gap = qwp_clock_monotonic_ns() - atomic_load(&told->rung_ns);
        c->gap_ns_max = gap > c->gap_ns_max ? gap : c->gap_ns_max;
    }
    c->records += rows;
    qwp_ring_release(rx, rx->tail_seen_pos, rows);
}

/* Reads every tail; true when there was something. */
static bool look(struct consumer *c)
{
    bool any = false;
    for (int i = 0; i < c->source_count; i++) {
        const enum qwp_result result = qwp_ring_poll(&c->sources[i].rx);
        if (result == QWP_CORRUPT) {
            die("corrupt", c->sources[i].rx.file_name);
        }
        any = any || result == QWP_OK;
    }
    return any;
}

static void take_all(struct consumer *c)
{
    for (int i = 0; i < c->source_count; i++) {
        if (c->sources[i].rx.tail_seen_pos != c->sources[i].rx.head_pos) {
            take(c, &c->sources[i]);
        }
    }
}

static struct source *find_source(struct consumer *c, const char *file_name)
{
    for (int i = 0; i < c->source_count; i++) {
        if (strcmp(c->sources[i].rx.file_name, file_name) == 0) {
            return &c->sources[i];
        }
    }
    return NULL;
}

static void drop_orphan(struct consumer *c, struct source *source)
{
    struct qwp_error err;
    if (qwp_ring_poll(&source->rx) == QWP_OK) {
        take(c, source);
    }
    if (qwp_ring_remove(&source->rx, dir_fd, &err) != QWP_OK) {
        die("remove", err.text);
    }
    qwp_ring_close_rx(&source->rx);
    *source = c->sources[--c->source_count];
    c->orphans++;
}

/* A ring appeared, or was closed by a producer that is gone. */
static void on_ring(void *owner, const char *file_name)
{
    static const struct qwp_ring_limits limits = {.data_bytes_max = RING_BYTES,
                                                  .defs_bytes_max = QWP_RING_STEP};
    struct consumer *c = owner;
    struct qwp_error err;
    if (file_name == NULL) {
        if (qwp_rendezvous_scan(dir_fd, on_ring, c, &err) != QWP_OK) {
            die("scan", err.text);
        }
        return;
    }
    struct source *source = find_source(c, file_name);
    if (source == NULL) {
        if (c->source_count == RINGS_MAX) {
            die("too many rings", file_name);
        }
        source = &c->sources[c->source_count];
        const enum qwp_result result = qwp_ring_open(&source->rx, dir_fd, file_name, &limits, &err);
        if (result == QWP_AGAIN) {
            return;
        }
        if (result != QWP_OK) {
            die("open", err.text);
        }
        source->next_seq = 0;
        c->source_count++;
        qwp_bell_attach(&c->bell, &source->rx);
    }
    if (qwp_ring_is_orphan(&source->rx)) {
        drop_orphan(c, source);
    }
}

static void read_watch(struct consumer *c)
{
    char events[4096];
    ssize_t n;
    while ((n = read(c->inotify_fd, events, sizeof events)) > 0) {
        qwp_rendezvous_events(events, (size_t)n, on_ring, c);
    }
}

/* After a sleep that ran into its limit: is there a record whose producer has rung? Asked in this
 * order: what was told, then the bell once more, then the tails. */
static void judge_timeout(struct consumer *c)
{
    uint64_t told[RINGS_MAX] = {0};
    for (int i = 0; i < c->source_count; i++) {
        for (int s = 0; s < options.producers; s++) {
            struct slot *slot = &shared->slots[s];
            const uint64_t pos = atomic_load_explicit(&slot->rung_pos, memory_order_acquire);
            if (atomic_load(&slot->ring_id) == c->sources[i].rx.ring_id[0]) {
                told[i] = pos;
            }
        }
    }
    const unsigned seen = sleep_some(c, 0);
    if ((seen & TOKEN_WATCH) != 0) {
        read_watch(c);
        return;
    }
    if ((seen & TOKEN_BELL) != 0) {
        return;
    }
    for (int i = 0; i < c->source_count; i++) {
        if (told[i] > c->sources[i].rx.head_pos) {
            c->lost++;
            return;
        }
    }
    c->idle_timeouts++;
}

/* Parks, and sleeps unless there is something. */
static void park(struct consumer *c, uint64_t *random)
{
    uint32_t expected = 0;
    const uint32_t *word = NULL;
    bool sure;
    if (!options.fifo && !options.wrong_order && !c->armed) {
        word = qwp_bell_word(&c->bell, &expected);
        arm_bell(c, word, expected);
    }
    if (!options.fifo && !c->watching) {
        arm_watch(c);
    }
    sure = qwp_bell_park(&c->bell, false, false);
    if (look(c)) {
        qwp_bell_unpark(&c->bell);
        return;
    }
    if (options.wrong_order) {
        spin(next_random(random) % 64);
        arm_bell(c, (const uint32_t *)&c->bell.control->epoch, c->bell.epoch);
    }
    const int64_t limit = sure ? SLEEP_NS_MAX : QWP_BELL_UNSURE_NS;
    const unsigned seen = sleep_some(c, limit);
    if ((seen & TOKEN_BELL) != 0) {
        c->handovers++;
    }
    if (seen == 0 && sure) {
        judge_timeout(c);
    }
    qwp_bell_unpark(&c->bell);
    if ((seen & TOKEN_WATCH) != 0) {
        read_watch(c);
    }
}

/* In the wrong order the wait is for one park only, so it must go before the next. */
static void disarm(struct consumer *c)
{
    if (!options.wrong_order || !c->armed) {
        return;
    }
    struct io_uring_sqe *sqe = get_sqe(c);
    io_uring_prep_cancel64(sqe, TOKEN_BELL, 0);
    sqe->user_data = 0;
    io_uring_submit(&c->uring);
    while (c->armed) {
        struct io_uring_cqe *cqe;
        io_uring_wait_cqe(&c->uring, &cqe);
        reap(c);
    }
}

/* Dies and comes back, as far as producers can tell. */
static void next_life(struct consumer *c)
{
    static const struct qwp_ring_limits limits = {.data_bytes_max = RING_BYTES,
                                                  .defs_bytes_max = QWP_RING_STEP};
    struct qwp_error err;
    struct qwp_control old_control = c->control;
    struct qwp_bell_rx old_bell = c->bell;
    if (!options.fifo) {
        /* The wait on the old word ends with its ring of io_uring. */
        io_uring_queue_exit(&c->uring);
        if (io_uring_queue_init(64, &c->uring, 0) != 0) {
            die("io_uring", strerror(errno));
        }
        c->armed = false;
        c->watching = false;
    }
    qwp_bell_rx_close(&old_bell);
    qwp_control_close(&old_control);
    open_life(c);
    for (int i = 0; i < c->source_count; i++) {
        char name[128];
        memcpy(name, c->sources[i].rx.file_name, sizeof name);
        qwp_ring_close_rx(&c->sources[i].rx);
        if (qwp_ring_open(&c->sources[i].rx, dir_fd, name, &limits, &err) != QWP_OK) {
            die("open again", err.text);
        }
        qwp_bell_attach(&c->bell, &c->sources[i].rx);
    }
}

static bool has_futex_wait(struct io_uring *uring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(uring);
    const bool has = probe != NULL && probe->last_op >= OP_FUTEX_WAIT &&
                     (probe->ops[OP_FUTEX_WAIT].flags & IO_URING_OP_SUPPORTED) != 0;
    io_uring_free_probe(probe);
    return has;
}

static int consume(void)
{
    static struct consumer consumer;
    struct consumer *c = &consumer;
    struct qwp_error err;
    uint64_t random = options.seed | 1u;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!options.fifo) {
        const int code = io_uring_queue_init(64, &c->uring, 0);
        if (code != 0 || !has_futex_wait(&c->uring)) {
            fprintf(stderr, "skipped: no futex wait in io_uring here (%s)\n", strerror(-code));
            return SKIPPED;
        }
    }
    if (qwp_rendezvous_watch(dir_fd, &c->inotify_fd, &err) != QWP_OK) {
        die("watch", err.text);
    }
    open_life(c);
    on_ring(c, NULL);
    const int64_t start_ns = qwp_clock_monotonic_ns();
    const int64_t end_ns = start_ns + options.seconds_max * QWP_NS_PER_S;
    uint64_t next_report = 0;
    while (c->handovers < options.handovers && qwp_clock_monotonic_ns() < end_ns &&
           !(options.expect_loss && c->lost >= 3)) {
        look(c);
        take_all(c);
        if (next_random(&random) % 256 != 0) {
            spin(next_random(&random) % 256);
        }
        disarm(c);
        if (c->handovers / LIVES_EVERY >= c->lives && !options.wrong_order) {
            next_life(c);
        }
        park(c, &random);
        if (c->handovers >= next_report) {
            next_report += 1000000;
            fprintf(stderr, "... %llu hand-overs, %llu lost, %lld s\n",
                    (unsigned long long)c->handovers, (unsigned long long)c->lost,
                    (long long)((qwp_clock_monotonic_ns() - start_ns) / QWP_NS_PER_S));
        }
    }
    const double seconds = (double)(qwp_clock_monotonic_ns() - start_ns) / QWP_NS_PER_S;
    printf("{\"handovers\":%llu,\"lost\":%llu,\"records\":%llu,\"idle_timeouts\":%llu,"
           "\"kills\":%llu,\"stops\":%llu,\"orphans\":%llu,\"lives\":%llu,\"gap_ms_max\":%.3f,"
           "\"seconds\":%.1f,\"seed\":%u}\n",
           (unsigned long long)c->handovers, (unsigned long long)c->lost,
           (unsigned long long)c->records, (unsigned long long)c->idle_timeouts,
           (unsigned long long)atomic_load(&shared->kills),
           (unsigned long long)atomic_load(&shared->stops), (unsigned long long)c->orphans,
           (unsigned long long)c->lives, (double)c->gap_ns_max / QWP_NS_PER_MS, seconds,
           options.seed);
    fflush(stdout);
    if (options.expect_loss) {
        return c->lost > 0 ? 0 : 1;
    }
    if (c->handovers < options.handovers) {
        fprintf(stderr, "ended by time after %llu hand-overs\n", (unsigned long long)c->handovers);
    }
    return c->lost == 0 ? 0 : 1;
}

/* ---- parent: starts, lets go on, starts again ---- */

static pid_t start_producer(uint32_t slot, uint64_t seed)
{
    const pid_t pid = fork();
    if (pid == 0) {
        produce(slot, (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) | 1u);
    }
    return pid;
}

static void remove_dir(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command) != 0) {
        fprintf(stderr, "bell_stress: could not remove %s\n", dir);
    }
}

/* Returns the consumer's exit status. */
static int oversee(pid_t consumer, pid_t *producers)
{
    uint64_t lives = (uint64_t)options.seed << 20;
    uint64_t random = options.seed | 1u;
    for (;;) {
        int status;
        const pid_t pid = waitpid(-1, &status, WUNTRACED);
        if (pid < 0) {
            die("waitpid", strerror(errno));
        }
        if (pid == consumer) {
            return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        }
        if (WIFSTOPPED(status)) {
            usleep((useconds_t)(next_random(&random) % 5000));
            kill(pid, SIGCONT);
            continue;
        }
        if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
            fprintf(stderr, "bell_stress: a producer ended with status 0x%x\n", (unsigned)status);
            return 1;
        }
        for (int i = 0; i < options.producers; i++) {
            if (producers[i] == pid) {
                producers[i] = start_producer((uint32_t)i, ++lives);
            }
        }
    }
}

static void parse(int argc, char **argv)
{
    static const struct option names[] = {
        {"handovers", required_argument, NULL, 'n'},
        {"producers", required_argument, NULL, 'p'},
        {"seed", required_argument, NULL, 's'},
        {"seconds", required_argument, NULL, 't'},
        {"fifo", no_argument, NULL, 'f'},
        {"fence", no_argument, NULL, 'F'},
        {"unregistered", no_argument, NULL, 'u'},
        {"calm", no_argument, NULL, 'c'},
        {"wrong-order", no_argument, NULL, 'w'},
        {"no-fence", no_argument, NULL, 'N'},
        {"expect-loss", no_argument, NULL, 'x'},
        {NULL, 0, NULL, 0},
    };
    options.seed = (unsigned)getpid();
    int option;
    while ((option = getopt_long(argc, argv, "", names, NULL)) != -1) {
        switch (option) {
        case 'n':
            options.handovers = strtoull(optarg, NULL, 10);
            break;
        case 'p':
            options.producers = atoi(optarg);
            break;
        case 's':
            options.seed = (unsigned)atoi(optarg);
            break;
        case 't':
            options.seconds_max = atoi(optarg);
            break;
        case 'f':
            options.fifo = true;
            break;
        case 'F':
            options.fence = true;
            break;
        case 'u':
            options.unregistered = true;
            break;
        case 'c':
            options.calm = true;
            break;
        case 'w':
            options.wrong_order = true;
            break;
        case 'N':
            options.no_fence = true;
            break;
        case 'x':
            options.expect_loss = true;
            break;
        default:
            fprintf(stderr,
                    "usage: bell_stress [--handovers N] [--producers N] [--seconds N] [--seed N] "
                    "[--fifo] [--fence] [--unregistered] [--calm] [--wrong-order] [--no-fence] "
                    "[--expect-loss]\n");
            exit(2);
        }
    }
    if (options.expect_loss && sysconf(_SC_NPROCESSORS_ONLN) < 2) {
        fprintf(stderr, "skipped: on one CPU the two sides hardly ever meet\n");
        exit(SKIPPED);
    }
    if (options.producers < 1 || options.producers > PRODUCERS_MAX) {
        die("--producers", "1..64");
    }
}

int main(int argc, char **argv)
{
    struct qwp_error err;
    parse(argc, argv);
    snprintf(dir, sizeof dir, "%s/qwp-bell-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (mkdtemp(dir) == NULL) {
        die("mkdtemp", strerror(errno));
    }
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED || qwp_rendezvous_open(dir, "i", &dir_fd, &err) != QWP_OK) {
        remove_dir();
        die("set-up", "no memory or directory");
    }
    fprintf(stderr, "seed %u\n", options.seed);
    const pid_t consumer = fork();
    if (consumer == 0) {
        exit(consume());
    }
    pid_t producers[PRODUCERS_MAX];
    for (int i = 0; i < options.producers; i++) {
        producers[i] = start_producer((uint32_t)i, options.seed + (uint64_t)i);
    }
    const int status = oversee(consumer, producers);
    for (int i = 0; i < options.producers; i++) {
        kill(producers[i], SIGKILL);
    }
    kill(consumer, SIGKILL);
    while (wait(NULL) > 0) {
    }
    remove_dir();
    return status;
}

/* Questions: how long from the moment before a row is published until a parked consumer looks at
 * it, and what does the ring of the bell cost its producer?
 *
 * A producer of the public library publishes stamped rows at a rate; a consumer process owns
 * control file and bell, and parks on the event loop as the sidecar does. Ways:
 *
 *   bare     a futex wait and a futex wake on a shared word, nothing else: what any wake-up costs
 *   futex    the bell as it is by default, its wait armed in io_uring
 *   fence    the same, producers fence instead of relying on membarrier
 *   fifo     the bell of old kernels and epoll loops
 *   awake    the consumer never parks: no bell, only the look at it
 *
 * They take turns; shown are medians of the repeats. Guess made beforehand, for two quiet cores at
 * 1,000 a second: bare 25 us, futex 30, fifo 35; a publish that rings 4 us, one that need not 0.1.
 *
 *   bench_bell [--smoke] [--rate N] [--count N] [--repeats N] [--json FILE] */
#include <errno.h>
#include <ftw.h>
#include <getopt.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clients/c/qwp.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_histogram.h"
#include "ipc/qwp_bell.h"
#include "perf/bench_json.h"
#include "transport/qwp_loop.h"

enum { REPEATS_MAX = 51, NAME_BYTES = 256 };

enum way { BARE, FUTEX, FENCE, FIFO, AWAKE, WAYS };
static const char *const way_names[WAYS] = {"bare", "futex", "fence", "fifo", "awake"};

struct options {
    uint64_t rate, count;
    int repeats;
};

/* Between producer and consumer. */
struct shared {
    /* writer: consumer. sync[bench.ready]: it polls the ring, or waits on `word`. */
    alignas(128) _Atomic uint32_t ready;
    /* writer: producer, before `ready`: where a row's stamp lies */
    uint32_t stamp_off;
    uint32_t record_bytes;
    alignas(128) _Atomic uint32_t word; /* bare: rows stamped so far */
    int64_t stamp_ns;                   /* bare: of the last */
    /* writer: consumer. sync[bench.seen]: rows in the histogram. */
    alignas(128) _Atomic uint64_t seen_count;
    struct qwp_histogram seen;
};

struct figures {
    double p50, p99, publish_p50, publish_p99;
};

static char dir[64];

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_bell: %s: %s\n", what, why);
    if (dir[0] != '\0') {
        nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    _exit(1);
}

static void must(enum qwp_result result, const char *what, const struct qwp_error *err)
{
    if (result != QWP_OK) {
        die(what, err->text);
    }
}

static void sleep_until(int64_t ns)
{
    const struct timespec at = {.tv_sec = ns / QWP_NS_PER_S, .tv_nsec = ns % QWP_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

/* ---- the consumer ---- */

struct consumer {
    struct shared *shared;
    enum way way;
    struct qwp_control control;
    struct qwp_bell_rx bell;
    struct qwp_ring_rx ring;
    struct qwp_loop *loop;
    struct qwp_op bell_op;
    bool rung;
};

static void keep_name(void *owner, const char *file_name)
{
    snprintf(owner, NAME_BYTES, "%s", file_name);
}

static void on_bell(struct qwp_op *op, int outcome, bool more)
{
    struct consumer *c = op->owner;
    (void)outcome, (void)more;
    c->rung = true;
}

static void consumer_open(struct consumer *c)
{
    struct qwp_error err;
    int dir_fd;
    char file_name[NAME_BYTES] = "";
    const struct qwp_control_options options = {.bell_mode =
                                                    c->way == FIFO ? QWP_BELL_FIFO : QWP_BELL_FUTEX,
                                                .bell_fence = c->way == FENCE,
                                                .producers_max = 1,
                                                .tables_max = 1,
                                                .ring_bytes_max = QWP_RING_DATA_BYTES_MAX};
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    const struct qwp_loop_options loop_options = {0};
    must(qwp_rendezvous_open(dir, NULL, &dir_fd, &err), "rendezvous", &err);
    must(qwp_control_create(&c->control, dir_fd, &options, &err), "control file", &err);
    must(qwp_bell_rx_open(&c->bell, dir_fd, &c->control, &err), "bell", &err);
    must(qwp_loop_open(&c->loop, &loop_options, &err), "loop", &err);
    must(qwp_rendezvous_scan(dir_fd, keep_name, file_name, &err), "scan", &err);
    must(qwp_ring_open(&c->ring, dir_fd, file_name, &limits, &err), "ring", &err);
    qwp_bell_attach(&c->bell, &c->ring);
    if (c->way != FIFO && c->way != AWAKE && !qwp_loop_has_futex(c->loop)) {
        die("loop", "no futex wait in this kernel's io_uring");
    }
}

static void tell_seen(struct shared *shared)
{
    atomic_store_explicit(&shared->seen_count, shared->seen.count, memory_order_release);
}

/* Everything that is there. */
static bool take_all(struct consumer *c)
{
    if (qwp_ring_poll(&c->ring) != QWP_OK) {
        return false;
    }
    const int64_t now_ns = qwp_clock_monotonic_ns();
    for (uint64_t at = c->ring.head_pos; at < c->ring.tail_seen_pos;
         at += c->shared->record_bytes) {
        const unsigned char *record = c->ring.data + (at & c->ring.data_mask);
        qwp_histogram_add(&c->shared->seen, now_ns - qwp_load_i64(record + c->shared->stamp_off));
    }
    qwp_ring_release(&c->ring, c->ring.tail_seen_pos, 1);
    tell_seen(c->shared);
    return true;
}

/* As the sidecar parks: armed, then "parked", then one more look. */
static void park(struct consumer *c)
{
    if (!c->bell_op.in_flight) {
        c->bell_op.fn = on_bell;
        c->bell_op.owner = c;
        if (c->way == FIFO) {
            qwp_loop_poll(c->loop, &c->bell_op, c->bell.fifo_fd, POLLIN, false);
        } else {
            uint32_t expected;
            const uint32_t *word = qwp_bell_word(&c->bell, &expected);
            qwp_loop_futex_wait(c->loop, &c->bell_op, word, expected);
        }
    }
    qwp_loop_submit(c->loop);
    const bool sure = qwp_bell_park(&c->bell, false, false);
    c->rung = take_all(c);
    while (!c->rung) {
        (void)qwp_loop_run(c->loop,
                           sure ? QWP_NEVER_NS : qwp_clock_monotonic_ns() + QWP_BELL_UNSURE_NS);
        c->rung |= !sure;
    }
    qwp_bell_unpark(&c->bell);
}

static void consume(struct shared *shared, enum way way)
{
    static struct consumer c;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    c = (struct consumer){.shared = shared, .way = way};
    consumer_open(&c);
    atomic_store_explicit(&shared->ready, 1, memory_order_release); /* sync[bench.ready] */
    for (;;) {
        if (!take_all(&c) && way != AWAKE) {
            park(&c);
        }
    }
}

static void consume_bare(struct shared *shared)
{
    uint32_t seen = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    atomic_store_explicit(&shared->ready, 1, memory_order_release); /* sync[bench.ready] */
    for (;;) {
        const uint32_t now = atomic_load_explicit(&shared->word, memory_order_acquire);
        if (now == seen) {
            syscall(SYS_futex, &shared->word, FUTEX_WAIT, now, NULL, NULL, 0);
            continue;
        }
        const int64_t late_ns = qwp_clock_monotonic_ns() - shared->stamp_ns;
        for (; seen != now; seen++) { /* all but the last were seen too late to tell */
            qwp_histogram_add(&shared->seen, late_ns);
        }
        tell_seen(shared);
    }
}

/* ---- the producer ---- */

struct producer {
    struct qwp_producer *qwp;
    const struct qwp_layout *layout;
    uint32_t stamp_off, at_off;
};

static void producer_open(struct producer *p, struct shared *shared)
{
    static const struct qwp_column columns[] = {{"stamp", QWP_LONG, 0}};
    static const uint32_t all[] = {0};
    const struct qwp_producer_options options = {.dir = dir};
    struct qwp_table *table;
    struct qwp_error err;
    must(qwp_producer_open(&p->qwp, &options, &err), "open", &err);
    must(qwp_table_define(p->qwp, "t", columns, 1, &table, &err), "table", &err);
    must(qwp_layout_define(table, all, 1, QWP_AT_NS, &p->layout, &err), "layout", &err);
    p->stamp_off = qwp_layout_offset(p->layout, 0);
    p->at_off = qwp_layout_at_offset(p->layout);
    shared->stamp_off = p->stamp_off;
    shared->record_bytes = (qwp_layout_var_offset(p->layout) + 7) & ~7u;
}

static void publish(struct producer *p, int64_t stamp_ns)
{
    void *row;
    if (qwp_row_reserve(p->qwp, p->layout, 0, &row) != QWP_OK) {
        die("reserve", "no room");
    }
    unsigned char *at = row;
    qwp_store_i64(at + p->stamp_off, stamp_ns);
    qwp_store_i64(at + p->at_off, stamp_ns);
    if (qwp_row_publish(p->qwp) != QWP_OK) {
        die("publish", "failed");
    }
}

static void publish_bare(struct shared *shared, int64_t stamp_ns)
{
    shared->stamp_ns = stamp_ns;
    atomic_fetch_add_explicit(&shared->word, 1, memory_order_release);
    syscall(SYS_futex, &shared->word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void wait_ready(const struct shared *shared, pid_t child)
{
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + 30 * (int64_t)QWP_NS_PER_S;
    while (atomic_load_explicit(&shared->ready, memory_order_acquire) == 0) {
        if (waitpid(child, NULL, WNOHANG) == child || qwp_clock_monotonic_ns() > deadline_ns) {
            die("the consumer", "did not start");
        }
        sleep_until(qwp_clock_monotonic_ns() + QWP_NS_PER_MS);
    }
}

/* One way, once. */
static struct figures run(enum way way, const struct options *o)
{
    static struct qwp_histogram published;
    struct producer p = {0};
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    strcpy(dir, "/dev/shm/qwp-bench-XXXXXX");
    if (shared == MAP_FAILED || mkdtemp(dir) == NULL) {
        die("start", strerror(errno));
    }
    memset(&published, 0, sizeof published);
    if (way != BARE) {
        producer_open(&p, shared);
    }
    const pid_t child = fork();
    if (child == 0) {
        if (way == BARE) {
            consume_bare(shared);
        }
        consume(shared, way);
    }
    wait_ready(shared, child);
    const int64_t start_ns = qwp_clock_monotonic_ns() + QWP_NS_PER_MS;
    for (uint64_t i = 0; i < o->count; i++) {
        sleep_until(start_ns + (int64_t)(i * (uint64_t)QWP_NS_PER_S / o->rate));
        const int64_t stamp_ns = qwp_clock_monotonic_ns();
        if (way == BARE) {
            publish_bare(shared, stamp_ns);
        } else {
            publish(&p, stamp_ns);
        }
        qwp_histogram_add(&published, qwp_clock_monotonic_ns() - stamp_ns);
    }
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + 30 * (int64_t)QWP_NS_PER_S;
    while (atomic_load_explicit(&shared->seen_count, memory_order_acquire) < o->count) {
        if (qwp_clock_monotonic_ns() > deadline_ns) {
            die(way_names[way], "rows were not seen");
        }
        sleep_until(qwp_clock_monotonic_ns() + QWP_NS_PER_MS);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    qwp_producer_close(p.qwp);
    const struct figures figures = {
        .p50 = (double)qwp_histogram_quantile(&shared->seen, 0.5),
        .p99 = (double)qwp_histogram_quantile(&shared->seen, 0.99),
        .publish_p50 = (double)qwp_histogram_quantile(&published, 0.5),
        .publish_p99 = (double)qwp_histogram_quantile(&published, 0.99),
    };
    munmap(shared, sizeof *shared);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    dir[0] = '\0';
    return figures;
}

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Notes the runs of one figure; returns their median. */
static double note(struct bench_json *json, int way, const char *figure, double *values, int count)
{
    bench_json_runs(json, "bell", way_names[way], way_names[BARE], figure, values, count);
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static void measure(const struct options *o, struct bench_json *json)
{
    double p50[WAYS][REPEATS_MAX], p99[WAYS][REPEATS_MAX];
    double publish_p50[WAYS][REPEATS_MAX], publish_p99[WAYS][REPEATS_MAX];
    for (int r = 0; r < o->repeats; r++) {
        for (int way = 0; way < WAYS; way++) {
            const struct figures figures = run((enum way)way, o);
            p50[way][r] = figures.p50;
            p99[way][r] = figures.p99;
            publish_p50[way][r] = figures.publish_p50;
            publish_p99[way][r] = figures.publish_p99;
        }
    }
    printf("%-6s %10s %6s %10s | %12s %12s\n", "way", "p50 us", "x bare", "p99 us", "publish p50",
           "publish p99");
    double bare = 0;
    for (int way = 0; way < WAYS; way++) {
        const double middle = note(json, way, "p50", p50[way], o->repeats);
        bare = way == BARE ? middle : bare;
        printf("%-6s %10.1f %6.2f %10.1f | %12.2f %12.2f\n", way_names[way], middle / 1e3,
               middle / bare, note(json, way, "p99", p99[way], o->repeats) / 1e3,
               note(json, way, "publish_p50", publish_p50[way], o->repeats) / 1e3,
               note(json, way, "publish_p99", publish_p99[way], o->repeats) / 1e3);
    }
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"rate", required_argument, NULL, 'r'},    {"count", required_argument, NULL, 'c'},
        {"repeats", required_argument, NULL, 'n'}, {"json", required_argument, NULL, 'j'},
        {"smoke", no_argument, NULL, 's'},         {NULL, 0, NULL, 0}};
    struct options o = {.rate = 1000, .count = 2000, .repeats = 5};
    const char *json_path = NULL;
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (id) {
        case 'r':
            o.rate = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            o.count = strtoull(optarg, NULL, 10);
            break;
        case 'n':
            o.repeats = atoi(optarg);
            break;
        case 'j':
            json_path = optarg;
            break;
        case 's':
            o = (struct options){.rate = 5000, .count = 200, .repeats = 1};
            break;
        default:
            return 2;
        }
    }
    if (o.rate == 0 || o.count == 0 || o.repeats < 1 || o.repeats > REPEATS_MAX) {
        fprintf(stderr, "bench_bell: --rate and --count from 1, --repeats 1 to %d\n", REPEATS_MAX);
        return 2;
    }
    prctl(PR_SET_TIMERSLACK, 1);
    struct utsname host;
    struct bench_json json;
    uname(&host);
    bench_json_open(&json, json_path, "bench_bell");
    printf("%s %s, %ld CPUs, %llu rows at %llu a second, medians of %d, no randomness\n",
           host.machine, host.release, sysconf(_SC_NPROCESSORS_ONLN), (unsigned long long)o.count,
           (unsigned long long)o.rate, o.repeats);
    measure(&o, &json);
    bench_json_close(&json);
    return 0;
}

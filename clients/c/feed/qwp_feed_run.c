#include "clients/c/feed/qwp_feed_run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clients/c/feed/qwp_feed_summary.h"
#include "clients/c/feed/qwp_feed_worker.h"
#include "core/qwp_clock.h"

enum {
    BLOCK_BYTES_MAX = 256 * 1024,
    BLOCK_BYTES_MIN = 16 * 1024,
    BLOCKS_EACH = 8,       /* of a small file, so that every process has a share */
    WAIT_MS = 100,         /* how long anything waits before it looks around */
    SAMPLE_IDLE_MS = 1000, /* a pipe that is quiet so long has given its first rows */
};
#define SHOW_NS    (INT64_C(200) * QWP_NS_PER_MS)
#define WITHOUT_NS (INT64_C(3) * QWP_NS_PER_S)

struct child {
    pid_t pid; /* 0: ended */
    int report_fd;
    bool failed;
};

struct run {
    const struct qwp_feed_options *options;
    struct qwp_feed_reader reader;
    struct qwp_feed_csv_layout csv;
    /* CSV: the block that the columns were settled by, until it is dealt */
    char *sample;
    struct qwp_feed_block sample_block;
    bool has_sample;
    struct qwp_feed_share *share;
    size_t share_bytes;
    struct child children[QWP_FEED_PROCESSES_MAX];
    uint32_t children_running;
    int skip_fd;
    uint32_t block_bytes;
    struct qwp_feed_progress progress;
    int64_t without_since_ns; /* a sidecar, 0: there is one */
    bool without_told;
    char failure[QWP_FEED_FAILURE_BYTES];
    bool interrupted;
};

static volatile sig_atomic_t signals_seen;

static void on_signal(int signal_number)
{
    (void)signal_number;
    signals_seen++;
}

static void fail(struct run *r, const char *text)
{
    if (r->failure[0] == '\0') {
        snprintf(r->failure, sizeof r->failure, "%s", text);
    }
}

/* ---- looking around while something is waited for ---- */

static void child_ended(struct run *r, uint32_t index, int status)
{
    struct child *child = &r->children[index];
    child->pid = 0;
    r->children_running--;
    child->failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    if (WIFSIGNALED(status)) {
        char text[160];
        snprintf(text, sizeof text,
                 "process %u died of signal %d: rows that it had read but not sent are lost", index,
                 WTERMSIG(status));
        fail(r, text);
    }
}

/* Takes note of those that ended; how many still run. */
static uint32_t children_left(struct run *r)
{
    int status;
    pid_t pid;
    while (r->children_running > 0 && (pid = waitpid(-1, &status, WNOHANG)) > 0) {
        for (uint32_t i = 0; i < r->options->processes; i++) {
            if (r->children[i].pid == pid) {
                child_ended(r, i, status);
            }
        }
    }
    return r->children_running;
}

static void kill_children(struct run *r)
{
    for (uint32_t i = 0; i < r->options->processes; i++) {
        if (r->children[i].pid != 0) {
            kill(r->children[i].pid, SIGKILL);
        }
    }
}

/* A feed that stands still for want of a sidecar says so once. */
static void tell_without_sidecar(struct run *r, bool without, int64_t now_ns)
{
    if (!without) {
        r->without_since_ns = 0;
    } else if (r->without_since_ns == 0) {
        r->without_since_ns = now_ns;
    } else if (!r->without_told && now_ns - r->without_since_ns >= WITHOUT_NS) {
        r->without_told = true;
        if (r->options->progress) {
            qwp_feed_progress_clear();
        }
        fputs("qwp-feed: no sidecar serves this rings directory (see --rings and --name); rows "
              "wait in their rings for one (a second Ctrl-C ends the waiting)\n",
              stderr);
    }
}

/* False: no more input is to be read. */
static bool look_around(struct run *r)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    if (now_ns - r->progress.last_ns >= SHOW_NS) {
        const struct qwp_feed_totals totals = qwp_feed_totals(r->share, r->options->processes);
        tell_without_sidecar(r, totals.without_sidecar, now_ns);
        if (r->options->progress) {
            qwp_feed_progress_show(&r->progress, &totals, now_ns);
        }
        r->progress.last_ns = now_ns;
    }
    if (signals_seen >= 1) {
        r->interrupted = true;
    }
    if (signals_seen >= 2) { /* wait for nothing any more */
        atomic_store_explicit(&r->share->abandon, 1, memory_order_relaxed);
    }
    if (signals_seen >= 3) {
        kill_children(r);
    }
    return children_left(r) == r->options->processes && !r->interrupted &&
           atomic_load_explicit(&r->share->failed, memory_order_relaxed) == 0;
}

/* ---- before the workers ---- */

static enum qwp_result settle_csv(struct run *r, struct qwp_error *err)
{
    const size_t room = 2 * (size_t)QWP_FEED_SLOT_BYTES;
    const size_t rows = r->options->csv.infer_rows ? r->options->csv.infer_rows : 1000;
    r->sample = malloc(room);
    if (r->sample == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the first rows");
    }
    size_t len = 0;
    uint64_t lines = 0;
    int64_t idle_ms = 0;
    enum qwp_result result = QWP_OK;
    /* Until there are rows enough, or no more come. Never beyond the first file. */
    while (len < BLOCK_BYTES_MAX && lines <= rows && signals_seen == 0) {
        struct qwp_feed_block block;
        result = qwp_feed_reader_fill(&r->reader, r->sample + len, BLOCK_BYTES_MAX, room - len,
                                      WAIT_MS, &block, err);
        if (result == QWP_OK) {
            if (len == 0) {
                r->sample_block = block;
            }
            lines += 2; /* at least; exact counts do not matter for large blocks */
            for (size_t i = 0; i < block.len && lines <= rows; i++) {
                lines += r->sample[len + i] == '\n';
            }
            len += block.len;
            idle_ms = 0;
        } else if (result == QWP_AGAIN) {
            idle_ms += WAIT_MS;
        } else {
            break;
        }
        if (r->reader.fd < 0 || (idle_ms >= SAMPLE_IDLE_MS && lines > 2)) {
            break;
        }
    }
    if (result != QWP_OK && result != QWP_AGAIN && result != QWP_CLOSED) {
        return result;
    }
    r->sample[len] = '\n';
    r->sample_block.len = len;
    result = qwp_feed_csv_settle(&r->options->csv, r->sample, len, &r->csv, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "%s", r->options->paths[0]);
        return result;
    }
    result = qwp_feed_reader_set_header(&r->reader, r->sample, &r->sample_block,
                                        r->csv.header_bytes, err);
    r->has_sample = r->sample_block.len > 0;
    return result;
}

static enum qwp_result map_share(struct run *r, struct qwp_error *err)
{
    const uint32_t n = r->options->processes;
    const size_t head = (sizeof *r->share + n * sizeof r->share->workers[0] + 4095) & ~(size_t)4095;
    r->share_bytes = head + (size_t)n * QWP_FEED_SLOTS * QWP_FEED_SLOT_BYTES;
    void *at = mmap(NULL, r->share_bytes, PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) {
        return qwp_fail(err, QWP_NOMEM, errno, "no memory for the processes to share");
    }
    r->share = at;
    char *data = (char *)at + head;
    bool ok = sem_init(&r->share->freed, 1, 0) == 0;
    for (uint32_t i = 0; i < n; i++) {
        ok = ok && sem_init(&r->share->workers[i].ready, 1, 0) == 0;
        for (int s = 0; s < QWP_FEED_SLOTS; s++, data += QWP_FEED_SLOT_BYTES) {
            r->share->workers[i].slots[s].data = data;
        }
    }
    return ok ? QWP_OK : qwp_fail(err, QWP_IO, errno, "cannot make semaphores");
}

static enum qwp_result fork_worker(struct run *r, uint32_t index, struct qwp_error *err)
{
    struct child *child = &r->children[index];
    child->report_fd = memfd_create("qwp-feed report", MFD_CLOEXEC);
    if (child->report_fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make a memory file");
    }
    const pid_t parent = getpid();
    fflush(NULL);
    const pid_t pid = fork();
    if (pid < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot start process %u", index);
    }
    if (pid > 0) {
        child->pid = pid;
        r->children_running++;
        return QWP_OK;
    }
    /* A terminal's ^C goes to all processes; what it means is the parent's to say. */
    signal(SIGINT, SIG_IGN);
    signal(SIGTERM, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) {
        _exit(EXIT_FAILURE);
    }
    const struct qwp_feed_worker_options options = {
        .options = r->options,
        .share = r->share,
        .index = index,
        .definitions_fd = r->reader.definitions_fd,
        .skip_fd = r->skip_fd,
        .report_fd = child->report_fd,
        .csv = r->options->format == QWP_FEED_CSV ? &r->csv : NULL,
    };
    const int status = qwp_feed_worker_run(&options);
    fflush(NULL);
    _exit(status);
}

static enum qwp_result prepare(struct run *r, struct qwp_error *err)
{
    const struct qwp_feed_options *o = r->options;
    const struct qwp_feed_reader_options reader = {
        .format = o->format,
        .delimiter = o->csv.delimiter != 0 ? o->csv.delimiter : ',',
        .paths = o->paths,
        .path_count = o->path_count,
        .repeat = o->repeat,
        .follow = o->follow,
    };
    enum qwp_result result = qwp_feed_reader_open(&r->reader, &reader, err);
    if (result == QWP_OK && o->format == QWP_FEED_CSV) {
        result = settle_csv(r, err);
    }
    if (result == QWP_OK && o->skip_bad != NULL) {
        r->skip_fd = open(o->skip_bad, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (r->skip_fd < 0) {
            result = qwp_fail(err, QWP_IO, errno, "cannot open %s", o->skip_bad);
        }
    }
    if (result == QWP_OK) {
        result = map_share(r, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    r->progress.total_bytes = qwp_feed_reader_total(&r->reader);
    const uint64_t share = r->progress.total_bytes / (o->processes * (uint64_t)BLOCKS_EACH);
    r->block_bytes = share == 0 || share > BLOCK_BYTES_MAX ? BLOCK_BYTES_MAX
                     : share < BLOCK_BYTES_MIN             ? BLOCK_BYTES_MIN
                                                           : (uint32_t)share;
    r->share->start_ns = qwp_clock_monotonic_ns();
    atomic_store_explicit(&r->share->due_ns, r->share->start_ns, memory_order_relaxed);
    r->progress.dry_run = o->dry_run;
    r->progress.last_ns = r->share->start_ns;
    for (uint32_t i = 0; result == QWP_OK && i < o->processes; i++) {
        result = fork_worker(r, i, err);
    }
    return result;
}

/* ---- dealing ---- */

/* Waits until the worker has given the slot back. False: the feed is to end. */
static bool wait_free(struct run *r, struct qwp_feed_slot_share *slot)
{
    /* sync[feed.free] acquire: pairs with the worker's release after it read the slot. */
    while (atomic_load_explicit(&slot->full, memory_order_acquire) != 0) {
        if (!look_around(r)) {
            return false;
        }
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += (long)WAIT_MS * QWP_NS_PER_MS;
        until.tv_sec += until.tv_nsec / QWP_NS_PER_S;
        until.tv_nsec %= QWP_NS_PER_S;
        (void)!sem_timedwait(&r->share->freed, &until); /* whatever it says, we look */
    }
    return true;
}

static enum qwp_result fill(struct run *r, struct qwp_feed_slot_share *slot, struct qwp_error *err)
{
    if (r->has_sample) {
        r->has_sample = false;
        slot->block = r->sample_block;
        memcpy(slot->data, r->sample, r->sample_block.len + 1);
        return QWP_OK;
    }
    return qwp_feed_reader_fill(&r->reader, slot->data, r->block_bytes, QWP_FEED_SLOT_BYTES,
                                WAIT_MS, &slot->block, err);
}

static void deal(struct run *r)
{
    const uint32_t n = r->options->processes;
    for (uint64_t block = 0;; block++) {
        struct qwp_feed_worker_share *worker = &r->share->workers[block % n];
        struct qwp_feed_slot_share *slot = &worker->slots[block / n % QWP_FEED_SLOTS];
        if (!wait_free(r, slot)) {
            return;
        }
        enum qwp_result result;
        struct qwp_error err;
        do {
            if (!look_around(r)) {
                return;
            }
            result = fill(r, slot, &err);
        } while (result == QWP_AGAIN);
        if (result == QWP_CLOSED) {
            return;
        }
        if (result != QWP_OK) {
            fail(r, err.text);
            return;
        }
        /* sync[feed.full] release: block and data are visible with it. */
        atomic_store_explicit(&slot->full, 1, memory_order_release);
        sem_post(&worker->ready);
    }
}

/* ---- the end ---- */

static void wait_workers(struct run *r)
{
    for (uint32_t i = 0; i < r->options->processes; i++) {
        sem_post(&r->share->workers[i].ready);
    }
    while (children_left(r) > 0) {
        look_around(r);
        const struct timespec nap = {.tv_nsec = 5L * QWP_NS_PER_MS};
        nanosleep(&nap, NULL);
    }
}

static int conclude(struct run *r)
{
    struct qwp_feed_tables tables = {0};
    struct qwp_feed_outcome outcome = {
        .totals = qwp_feed_totals(r->share, r->options->processes),
        .seconds = (double)(qwp_clock_monotonic_ns() - r->share->start_ns) / 1e9,
        .ok = true,
    };
    /* sync[feed.failure] acquire: pairs with the release in qwp_feed_share_fail(). */
    if (atomic_load_explicit(&r->share->failed, memory_order_acquire) == 2) {
        fail(r, r->share->failure);
    }
    if (r->interrupted && !r->options->follow) {
        fail(r, "interrupted: the rest of the input was not read");
    }
    if (r->interrupted && signals_seen >= 2) {
        fail(r, "interrupted twice: not waiting for acknowledgements");
    }
    for (uint32_t i = 0; i < r->options->processes; i++) {
        struct qwp_error err;
        outcome.ok = outcome.ok && !r->children[i].failed;
        if (qwp_feed_tables_read(&tables, r->children[i].report_fd, &err) != QWP_OK) {
            fail(r, err.text);
        }
    }
    if (outcome.totals.rows_rejected > 0) {
        fail(r, "the server refused rows, and the sidecar set them aside");
    }
    outcome.ok = outcome.ok && r->failure[0] == '\0';
    outcome.failure = r->failure;
    if (r->options->progress) {
        qwp_feed_progress_clear();
    }
    if (r->options->json) {
        qwp_feed_summary_json(r->options, &outcome, &tables);
    } else {
        qwp_feed_summary_text(r->options, &outcome, &tables);
    }
    if (r->failure[0] != '\0') {
        fprintf(stderr, "qwp-feed: %s\n", r->failure);
    }
    qwp_feed_tables_close(&tables);
    return outcome.ok ? EXIT_SUCCESS : EXIT_FAILURE;
}

static void run_close(struct run *r)
{
    for (uint32_t i = 0; i < r->options->processes; i++) {
        if (r->children[i].report_fd > 0) {
            close(r->children[i].report_fd);
        }
    }
    if (r->share != NULL) {
        munmap(r->share, r->share_bytes);
    }
    if (r->skip_fd >= 0) {
        close(r->skip_fd);
    }
    free(r->sample);
    qwp_feed_csv_layout_close(&r->csv);
    qwp_feed_reader_close(&r->reader);
}

int qwp_feed_run(const struct qwp_feed_options *options)
{
    struct run r = {.options = options, .skip_fd = -1};
    r.reader.fd = r.reader.inotify_fd = r.reader.definitions_fd = -1;
    const struct sigaction action = {.sa_handler = on_signal}; /* no SA_RESTART: reads return */
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    struct qwp_error err;
    int status = EXIT_FAILURE;
    if (prepare(&r, &err) == QWP_OK) {
        deal(&r);
        wait_workers(&r);
        status = conclude(&r);
    } else {
        fprintf(stderr, "qwp-feed: %s\n", err.text);
        kill_children(&r);
        while (children_left(&r) > 0) {
            const struct timespec nap = {.tv_nsec = QWP_NS_PER_MS};
            nanosleep(&nap, NULL);
        }
    }
    run_close(&r);
    return status;
}

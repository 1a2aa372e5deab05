#include "sidecar/qwp_daemon.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "ipc/qwp_guard.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_damage.h"
#include "sidecar/qwp_duty.h"
#include "sidecar/qwp_identity.h"
#include "sidecar/qwp_observe.h"
#include "sidecar/qwp_orphans.h"

enum {
    PATH_BYTES = 4096,
    DISCONNECT_GRACE_MS_MIN = 50,
    DISCONNECT_GRACE_MS_MAX = 1000,
    TABLES_MAX = QWP_TABLES_MAX,
    TABLES_SHOWN = 1024, /* in `status` */
    REJECTED_SHARE = 4,  /* of the store's bound: room for refused rows unless it is said */
};

struct daemon {
    const struct qwp_options *options;
    const struct qwp_conf *conf;
    uint32_t uids[QWP_IDENTITY_USERS_MAX]; /* --allow-users */
    uint32_t uid_count;
    int dir_fd, private_fd, lock_fd, inotify_fd;
    struct qwp_control control;
    struct qwp_bell_rx bell;
    struct qwp_housework housework, reading;
    struct qwp_generations store;
    struct qwp_cursors *cursors;
    struct qwp_loop *loop; /* intake's, or everyone's */
    enum qwp_loop_kind loop_kind;
    struct qwp_loop *sender_loop; /* dedicated: the sender's; else the same as `loop` */
    struct qwp_intake intake;
    struct qwp_sender sender;
    struct qwp_writers writers;
    struct qwp_notices notices;         /* sender to intake */
    char rejected_dir[PATH_BYTES + 16]; /* where refused rows go */
    struct qwp_orphans orphans;
    struct qwp_notify notify;
    struct qwp_observe *observe; /* NULL: nobody may ask */
    struct qwp_ending ending;
};

/* For the signal handler alone. */
static struct daemon *signalled;

static void on_signal(int number)
{
    (void)number;
    const int error = errno;
    atomic_fetch_add_explicit(&signalled->ending.signals, 1, memory_order_relaxed);
    qwp_loop_wake(signalled->loop);
    errno = error;
}

static void on_hangup(int number)
{
    (void)number;
    const int error = errno;
    atomic_store_explicit(&signalled->ending.hangup, true, memory_order_relaxed);
    qwp_loop_wake(signalled->loop);
    errno = error;
}

static void signals_setup(struct daemon *d)
{
    signalled = d;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = on_hangup;
    sigaction(SIGHUP, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

/* A third signal ends the process at once, whatever the rest of the end does. */
static void signals_reset(void)
{
    const struct sigaction action = {.sa_handler = SIG_DFL};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* ---- start ---- */

static enum qwp_result rendezvous_start(struct daemon *d, struct qwp_error *err)
{
    const struct qwp_options *options = d->options;
    struct qwp_rendezvous_trust trust = {.any = options->accept_any_dir, .uids = d->uids};
    enum qwp_result result = QWP_OK;
    if (options->allow_users != NULL) {
        result = qwp_identity_users(options->allow_users, d->uids, &d->uid_count, err);
        trust.uid_count = d->uid_count;
    }
    if (result == QWP_OK && options->group != NULL) {
        trust.has_group = true;
        result = qwp_identity_group(options->group, &trust.group, err);
    }
    if (result == QWP_OK) {
        result = qwp_rendezvous_open_as(options->rings_dir, options->name, &trust, &d->dir_fd, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    if (err->text[0] != '\0') {
        qwp_log(QWP_LOG_WARN, "rings directory taken all the same", "reason=\"%s\"", err->text);
    }
    return qwp_rendezvous_claim(d->dir_fd, &d->private_fd, &d->lock_fd, err);
}

static enum qwp_result bell_start(struct daemon *d, struct qwp_error *err)
{
    const struct qwp_options *options = d->options;
    const bool fifo = options->doorbell == QWP_DOORBELL_FIFO || !qwp_loop_has_futex(d->loop);
    const struct qwp_control_options control = {
        .bell_mode = fifo ? QWP_BELL_FIFO : QWP_BELL_FUTEX,
        .bell_fence = options->doorbell == QWP_DOORBELL_FENCE,
        .producers_max = (uint32_t)options->producers_max,
        .tables_max = TABLES_SHOWN,
        .ring_bytes_max = options->ring_bytes_max,
    };
    const enum qwp_result result = qwp_control_create(&d->control, d->dir_fd, &control, err);
    if (result != QWP_OK) {
        return result;
    }
    return qwp_bell_rx_open(&d->bell, d->dir_fd, &d->control, err);
}

/* <slot>/rejected, under a name that means the same to others. */
static enum qwp_result rejected_dir_find(struct daemon *d, const char *slot, struct qwp_error *err)
{
    char real[PATH_MAX];
    if (realpath(slot, real) == NULL) {
        return qwp_fail(err, QWP_IO, errno, "%s", slot);
    }
    snprintf(d->rejected_dir, sizeof d->rejected_dir, "%s/" QWP_REJECTED_FOLDER, real);
    return QWP_OK;
}

/* A store in memory shares its file system with the rings. Said now, not when both are full. */
static void memory_room_tell(const struct daemon *d)
{
    struct statvfs fs;
    if (fstatvfs(d->private_fd, &fs) != 0 || fs.f_blocks == 0) {
        return;
    }
    const uint64_t all_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    if (all_bytes < d->conf->sf_total_bytes_max) {
        qwp_log(QWP_LOG_WARN,
                "the store in memory may outgrow the file system that it shares with the rings: "
                "lower sf_max_total_bytes, or enlarge it",
                "store_bytes_max=%llu file_system_bytes=%llu",
                (unsigned long long)d->conf->sf_total_bytes_max, (unsigned long long)all_bytes);
    }
}

/* <sf_dir>/<sender_id>, or in memory mode a slot beside the rings. */
static enum qwp_result store_start(struct daemon *d, struct qwp_error *err)
{
    const struct qwp_conf *conf = d->conf;
    char parent[PATH_BYTES];
    char shown[PATH_BYTES]; /* in messages */
    if (conf->sf_dir != NULL) {
        if (mkdir(conf->sf_dir, 0700) != 0 && errno != EEXIST) {
            return qwp_fail(err, QWP_IO, errno, "cannot make sf_dir %s", conf->sf_dir);
        }
        snprintf(parent, sizeof parent, "%s", conf->sf_dir);
        snprintf(shown, sizeof shown, "%s", parent);
    } else {
        snprintf(parent, sizeof parent, "/proc/self/fd/%d", d->private_fd);
        snprintf(shown, sizeof shown, "%s/%s/.sidecar", d->options->rings_dir, d->options->name);
        memory_room_tell(d);
    }
    qwp_housework_init(&d->housework, d->sender_loop);
    qwp_housework_init(&d->reading, d->sender_loop);
    const struct qwp_generations_options store = {
        .parent = parent,
        .name = conf->sf_dir != NULL ? conf->sender_id : "slot",
        .shown = shown,
        .is_durable = conf->sf_dir != NULL,
        .log = {.segment_bytes = conf->sf_segment_bytes,
                .total_bytes_max = conf->sf_total_bytes_max,
                .durability = (enum qwp_durability)conf->sf_durability,
                .sync_interval_ns = conf->sf_sync_interval_ns,
                .payload_crc = conf->sf_dir != NULL,
                .symbols_max = QWP_DICT_SYMBOLS_MAX,
                .symbol_bytes_max = UINT64_C(256) * 1024 * 1024,
                .slow = &d->housework.slow,
                .reading = &d->reading.slow},
    };
    const enum qwp_result result = qwp_generations_open(&d->store, &store, err);
    if (result != QWP_OK) {
        return result;
    }
    for (const struct qwp_generation *one = d->store.home; one != NULL; one = one->next) {
        char slot[PATH_BYTES + QWP_GENERATION_NAME_BYTES];
        snprintf(slot, sizeof slot, "%s/%s", d->store.shown, one->name);
        qwp_damage_log_recovered(slot, qwp_seglog_recovered(one->log));
    }
    char home[PATH_BYTES + QWP_GENERATION_NAME_BYTES];
    snprintf(home, sizeof home, "%s/%s", parent, d->store.home->name);
    return rejected_dir_find(d, home, err);
}

/* What the sidecar before us knew of each ring, as far as its frames are in the store. */
static enum qwp_result cursors_start(struct daemon *d, struct qwp_error *err)
{
    const enum qwp_result result =
        qwp_cursors_open(&d->cursors, &qwp_sys_real, d->private_fd, "cursors", err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_cursors_log logs[QWP_GENERATIONS_MAX + 1];
    size_t count = 0;
    for (const struct qwp_generation *one = d->store.home; one != NULL; one = one->next) {
        const struct qwp_seglog_recovery *recovered = qwp_seglog_recovered(one->log);
        logs[count] = (struct qwp_cursors_log){
            .next_fsn = recovered->next_fsn,
            .last_witness = recovered->last_witness,
        };
        memcpy(logs[count++].slot_uuid, recovered->slot_uuid, sizeof logs[0].slot_uuid);
    }
    qwp_cursors_recovered(d->cursors, logs, count);
    qwp_cursors_use(d->cursors, qwp_seglog_recovered(qwp_generations_writer(&d->store))->slot_uuid);
    return QWP_OK;
}

static enum qwp_result workers_start(struct daemon *d, struct qwp_error *err)
{
    const struct qwp_options *options = d->options;
    const uint32_t producer_symbols = options->producer_symbols != 0
                                          ? (uint32_t)options->producer_symbols
                                          : (uint32_t)(options->generation_symbols + 1) / 2;
    const struct qwp_intake_options intake = {
        .linger_ns = options->linger_ns,
        .batch_rows = options->batch_rows_max,
        .frame_rows_max = d->conf->flush_rows_max != 0 ? d->conf->flush_rows_max : UINT64_MAX,
        .batch_bytes = options->batch_bytes_max,
        .segment_bytes = d->conf->sf_segment_bytes,
        .encode_flags = QWP_ENCODE_GORILLA | (options->compact ? QWP_ENCODE_COMPACT : 0u),
        .producers_max = (uint32_t)options->producers_max,
        .tables_max = TABLES_MAX,
        .generation_symbols = (uint32_t)options->generation_symbols,
        .generation_bytes = options->generation_bytes,
        .producer_symbols = producer_symbols,
        .producer_symbol_bytes =
            options->generation_bytes * producer_symbols / options->generation_symbols,
        .notices = &d->notices,
        .writers = &d->writers,
        .ring_limits = {.data_bytes_max = options->ring_bytes_max,
                        .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX,
                        .uids = d->uids,
                        .uid_count = d->uid_count,
                        .tables_max = (uint32_t)options->producer_tables_max,
                        .symbols_max = (uint32_t)options->producer_symbols_max},
    };
    enum qwp_result result = qwp_intake_init(&d->intake, &intake, d->dir_fd, &d->control, &d->bell,
                                             &d->store, d->cursors, err);
    if (result != QWP_OK) {
        return result;
    }
    const bool dedicated = d->sender_loop != d->loop;
    struct qwp_control_header *page = d->control.header;
    qwp_shared_text_set(page->rejected_dir, sizeof page->rejected_dir, d->rejected_dir);
    const struct qwp_sender_options sender = {
        .loop = d->sender_loop,
        .conf = d->conf,
        .log = qwp_generations_reader(&d->store),
        .generations = &d->store,
        .page = d->control.header,
        .message_bytes_max = &d->intake.message_bytes_max,
        .rejected_dir = d->rejected_dir,
        .rejected_bytes_max = options->rejected_bytes_max != 0
                                  ? options->rejected_bytes_max
                                  : d->conf->sf_total_bytes_max / REJECTED_SHARE,
        .notices = &d->notices,
        .producers_of = qwp_writers_name,
        .producers_owner = &d->writers,
        .troubles = qwp_control_trouble_at(&d->control, 0),
        .troubles_max = atomic_load_explicit(&page->troubles_max, memory_order_relaxed),
        .intake_loop = dedicated ? d->loop : NULL,
    };
    return qwp_sender_init(&d->sender, &sender, err);
}

static enum qwp_result loops_start(struct daemon *d, struct qwp_error *err)
{
    struct qwp_loop_options loop = {
        .busy = d->options->idle == QWP_IDLE_SPIN,
        .kind = (enum qwp_loop_kind)d->options->loop,
        .uring_without = d->options->uring_without,
    };
    const enum qwp_result result = qwp_loop_open(&d->loop, &loop, err);
    if (result == QWP_OK) {
        loop.kind = qwp_loop_kind(d->loop); /* for everyone, and said once */
        d->loop_kind = loop.kind;
        if (err->text[0] != '\0') {
            qwp_log(QWP_LOG_WARN,
                    "epoll is used instead of io_uring: the same, at a little more CPU",
                    "reason=\"%s\"", err->text);
        } else if (loop.kind == QWP_LOOP_URING && !qwp_loop_has_futex(d->loop)) {
            qwp_log(QWP_LOG_INFO, "io_uring has no futex wait here: producers ring a FIFO", "");
        }
    }
    if (result != QWP_OK || d->options->threading == QWP_THREADING_SHARED) {
        d->sender_loop = d->loop;
        return result;
    }
    return qwp_loop_open(&d->sender_loop, &loop, err);
}

/* An address that was asked for must be had; the usual one may belong to another sidecar. */
static enum qwp_result observe_start(struct daemon *d, struct qwp_error *err)
{
    const char *given = d->options->metrics;
    if (given != NULL && strcmp(given, "off") == 0) {
        return QWP_OK;
    }
    const struct qwp_observe_options options = {
        .address = given != NULL ? given : QWP_OBSERVE_ADDRESS,
        .control = &d->control,
        .orphans = &d->orphans,
        .loop = d->loop,
    };
    const enum qwp_result result = qwp_observe_start(&d->observe, &options, err);
    if (result == QWP_OK) {
        qwp_log(QWP_LOG_INFO, "metrics and health over HTTP", "address=%s port=%u", options.address,
                qwp_observe_port(d->observe));
    } else if (given == NULL) {
        qwp_log(QWP_LOG_WARN, "no metrics: choose another address with --metrics, or off",
                "reason=\"%s\"", err->text);
        return QWP_OK;
    } else {
        qwp_error_prefix(err, "--metrics");
    }
    return result;
}

static enum qwp_result start(struct daemon *d, struct qwp_error *err)
{
    enum qwp_result result = rendezvous_start(d, err);
    result = result == QWP_OK ? loops_start(d, err) : result;
    result =
        result == QWP_OK ? qwp_guard_open((uint32_t)d->options->producers_max, NULL, err) : result;
    result = result == QWP_OK ? store_start(d, err) : result;
    result = result == QWP_OK ? cursors_start(d, err) : result;
    result = result == QWP_OK ? bell_start(d, err) : result;
    result = result == QWP_OK ? workers_start(d, err) : result;
    if (result != QWP_OK) {
        return result;
    }
    qwp_rendezvous_sweep(d->dir_fd);
    result = qwp_orphans_start(&d->orphans, d->conf, d->loop_kind, err);
    if (result != QWP_OK) {
        return result;
    }
    result = observe_start(d, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_error watch;
    if (qwp_rendezvous_watch(d->dir_fd, &d->inotify_fd, &watch) != QWP_OK) {
        d->inotify_fd = -1;
        qwp_log(QWP_LOG_WARN, "no inotify: rings are looked for once a second", "reason=\"%s\"",
                watch.text);
    }
    return QWP_OK;
}

/* ---- run ---- */

struct sender_thread {
    struct daemon *d;
    struct qwp_duty duty;
    sem_t last_wake; /* posted by intake's thread: it touches our loop no more */
};

static void disconnect(struct daemon *d);

static void *sender_thread_run(void *arg)
{
    struct sender_thread *thread = arg;
    struct daemon *d = thread->d;
    qwp_duty_run(&thread->duty);
    disconnect(d);
    /* We may be awake, and have seen the end, before its last wake-up call has left our loop. */
    while (sem_wait(&thread->last_wake) != 0) {
    }
    /* A loop is closed, and everything on it, by the thread that ran it. */
    qwp_sender_fini(&d->sender);
    qwp_housework_fini(&d->housework);
    qwp_housework_fini(&d->reading);
    qwp_loop_close(d->sender_loop);
    d->sender_loop = d->loop;
    return NULL;
}

/* What the grace has left for a goodbye; a little in any case, and nothing when we are urged. */
static int64_t goodbye_ns(struct daemon *d, int64_t now_ns)
{
    if (atomic_load_explicit(&d->ending.signals, memory_order_relaxed) > 1) {
        return 0;
    }
    const int64_t least_ns = (int64_t)DISCONNECT_GRACE_MS_MIN * QWP_NS_PER_MS;
    const int64_t most_ns = (int64_t)DISCONNECT_GRACE_MS_MAX * QWP_NS_PER_MS;
    const int64_t end_ns = atomic_load_explicit(&d->ending.end_ns, memory_order_relaxed);
    const int64_t left_ns = end_ns - now_ns;
    return left_ns < least_ns ? least_ns : left_ns > most_ns ? most_ns : left_ns;
}

/* On the thread that owns the sender's loop: a goodbye that the server can read. */
static void disconnect(struct daemon *d)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    const int64_t grace_ns = goodbye_ns(d, now_ns);
    qwp_sender_disconnect(&d->sender, grace_ns);
    while (!qwp_sender_is_down(&d->sender) && qwp_clock_monotonic_ns() < now_ns + grace_ns) {
        (void)qwp_loop_run(d->sender_loop, now_ns + grace_ns);
    }
}

static void ready(void *owner)
{
    struct daemon *d = owner;
    qwp_log(QWP_LOG_INFO, "ready", "version=" QWP_VERSION " rings=%s instance=%s loop=%s pid=%d",
            d->options->rings_dir, d->options->name,
            d->loop_kind == QWP_LOOP_URING ? "uring" : "epoll", (int)getpid());
    qwp_notify_send(&d->notify, "READY=1");
}

static enum qwp_result run(struct daemon *d, struct qwp_error *err)
{
    const bool dedicated = d->sender_loop != d->loop;
    struct qwp_duty intake = {
        .loop = d->loop,
        .store = &d->store,
        .control = &d->control,
        .intake = &d->intake,
        .bell = &d->bell,
        .inotify_fd = d->inotify_fd,
        .sender = dedicated ? NULL : &d->sender,
        .housework = &d->housework,
        .reading = &d->reading,
        .peer = dedicated ? d->sender_loop : NULL,
        .ending = &d->ending,
        .notify = &d->notify,
        .spin = d->options->idle == QWP_IDLE_SPIN,
        .ready = ready,
        .owner = d,
    };
    struct sender_thread sender = {.d = d, .duty = intake};
    sender.duty.loop = d->sender_loop;
    sender.duty.intake = NULL;
    sender.duty.sender = &d->sender;
    sender.duty.peer = d->loop;
    pthread_t thread;
    sem_init(&sender.last_wake, 0, 0);
    if (dedicated) {
        const int error = pthread_create(&thread, NULL, sender_thread_run, &sender);
        if (error != 0) {
            return qwp_fail(err, QWP_NOMEM, error, "cannot start the sender's thread");
        }
    }
    qwp_duty_run(&intake);
    sem_post(&sender.last_wake);
    if (dedicated) {
        pthread_join(thread, NULL);
    } else {
        disconnect(d);
    }
    if (atomic_load_explicit(&d->ending.no_server, memory_order_relaxed)) {
        char why[QWP_CONTROL_TEXT_BYTES];
        qwp_shared_text_get(why, sizeof why, d->control.header->last_error,
                            sizeof d->control.header->last_error);
        return qwp_fail(err, QWP_IO, 0, "no server, and initial_connect_retry wants one: %s", why);
    }
    return QWP_OK;
}

/* ---- end ---- */

/* The last words: what is settled, and what stays where. Rows are those taken since the start. */
static int summarize(struct daemon *d)
{
    (void)qwp_intake_settle(&d->intake, qwp_clock_monotonic_ns());
    const uint64_t published = qwp_generations_published(&d->store);
    const uint64_t acked = qwp_generations_acked(&d->store);
    const bool drained = qwp_intake_is_drained(&d->intake);
    struct qwp_seglog_stats stats;
    qwp_generations_stats(&d->store, &stats);
    struct qwp_control_header *page = d->control.header;
    const uint64_t rows = atomic_load_explicit(&page->rows_stored, memory_order_relaxed);
    const uint64_t rows_acked = atomic_load_explicit(&page->rows_acked, memory_order_relaxed);
    const bool all = published == acked && drained;
    qwp_log(all ? QWP_LOG_INFO : QWP_LOG_WARN,
            all                       ? "closed: everything is acknowledged"
            : published == acked      ? "closed: rows stay in the rings for the next start"
            : d->conf->sf_dir != NULL ? "closed: frames stay in the store for the next start"
                                      : "closed: frames stay in memory for the next start, and are "
                                        "lost with the host",
            "rows=%llu frames=%llu frames_waiting=%llu rows_waiting=%llu bytes_waiting=%llu "
            "rings=%s store=%s",
            (unsigned long long)rows, (unsigned long long)published,
            (unsigned long long)(published - acked), (unsigned long long)(rows - rows_acked),
            (unsigned long long)stats.bytes_waiting, drained ? "empty" : "not empty",
            d->conf->sf_dir != NULL ? d->conf->sf_dir : "memory");
    return all ? QWP_EXIT_OK : QWP_EXIT_UNACKED;
}

static void close_fd(int fd)
{
    if (fd >= 0) {
        close(fd);
    }
}

static void stop(struct daemon *d)
{
    qwp_observe_stop(d->observe);
    qwp_notify_close(&d->notify);
    qwp_orphans_stop(&d->orphans);
    qwp_sender_fini(&d->sender);
    qwp_intake_fini(&d->intake);
    qwp_guard_close();
    qwp_bell_rx_close(&d->bell);
    qwp_control_close(&d->control);
    qwp_housework_fini(&d->housework);
    qwp_housework_fini(&d->reading);
    qwp_cursors_close(d->cursors);
    qwp_generations_close(&d->store);
    if (d->sender_loop != d->loop) {
        qwp_loop_close(d->sender_loop);
    }
    qwp_loop_close(d->loop);
    close_fd(d->inotify_fd);
    close_fd(d->lock_fd);
    close_fd(d->private_fd);
    close_fd(d->dir_fd);
}

static void notice_ignored_keys(const struct qwp_conf *conf)
{
    for (size_t i = 0; i < conf->ignored_count; i++) {
        qwp_log(QWP_LOG_INFO, "key of the connect string has no meaning here", "key=%s",
                conf->ignored[i]);
    }
}

int qwp_daemon_run(const struct qwp_options *options, const struct qwp_conf *conf)
{
    qwp_options_log_setup(options);
    struct daemon *d = calloc(1, sizeof *d);
    if (d == NULL) {
        fputs("qwp-sidecar: no memory to start\n", stderr);
        return QWP_EXIT_FAILED;
    }
    d->options = options;
    d->conf = conf;
    qwp_writers_init(&d->writers);
    d->dir_fd = d->private_fd = d->lock_fd = d->inotify_fd = -1;
    d->bell.fifo_fd = -1;
    qwp_notify_open(&d->notify);
    d->ending.grace_ns = conf->close_flush_ns_max;
    struct qwp_error err = {0};
    int code = QWP_EXIT_FAILED;
    enum qwp_result result = start(d, &err);
    if (result == QWP_OK) {
        notice_ignored_keys(conf);
        signals_setup(d);
        result = run(d, &err);
        code = result == QWP_OK ? summarize(d) : QWP_EXIT_FAILED;
        struct qwp_error flush;
        if (qwp_generations_flush(&d->store, &flush) != QWP_OK) {
            qwp_log(QWP_LOG_WARN, "store could not be synced", "reason=\"%s\"", flush.text);
        }
        signals_reset();
    }
    if (result != QWP_OK) {
        qwp_log(QWP_LOG_ERROR, "cannot start", "reason=\"%s\"", err.text);
    }
    stop(d);
    qwp_writers_fini(&d->writers);
    free(d);
    qwp_log_flush_all();
    return code;
}

#include "sidecar/qwp_orphans.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "core/store/qwp_generations.h"
#include "core/store/qwp_store_layout.h"
#include "sidecar/qwp_drainer.h"

enum { PATH_BYTES = 4096 };

struct orphan {
    char path[PATH_BYTES];
    struct qwp_drainer drainer;
};

/* What the thread works on. */
struct work {
    struct qwp_orphans *orphans;
    DIR *dir; /* sf_dir, where it has come to; NULL: to its end */
    struct orphan **open;
    size_t open_count, open_max;
};

static void add_u32(_Atomic uint32_t *at, uint32_t n)
{
    atomic_fetch_add_explicit(at, n, memory_order_relaxed);
}

static bool is_ending(const struct work *work)
{
    return atomic_load_explicit(&work->orphans->is_ending, memory_order_relaxed);
}

static bool has_file(const char *slot, const char *name)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", slot, name);
    return access(path, F_OK) == 0;
}

/* A person has to look at it: no scan takes the slot again until the file is gone. */
static void mark_failed(const char *slot, const char *reason)
{
    char path[PATH_BYTES + 64];
    snprintf(path, sizeof path, "%s/%s", slot, QWP_FAILED_NAME);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!write(fd, reason, strlen(reason));
        (void)!write(fd, "\n", 1);
        close(fd);
    }
}

/* Takes the slot on, if there is anything in it for us. */
static void take_on(struct work *work, const char *name)
{
    const struct qwp_conf *conf = work->orphans->conf;
    struct orphan *orphan = calloc(1, sizeof *orphan);
    if (orphan == NULL) {
        return;
    }
    snprintf(orphan->path, sizeof orphan->path, "%s/%s", conf->sf_dir, name);
    struct qwp_error err;
    if (!has_file(orphan->path, QWP_LOCK_NAME) || has_file(orphan->path, QWP_FAILED_NAME)) {
        free(orphan);
        return;
    }
    const enum qwp_result result =
        qwp_drainer_open(&orphan->drainer, orphan->path, conf, work->orphans->loop, &err);
    if (result == QWP_OK && !qwp_drainer_is_done(&orphan->drainer)) {
        qwp_log(QWP_LOG_INFO, "draining an orphan", "slot=\"%s\" frames=%" PRIu64, orphan->path,
                qwp_drainer_count(&orphan->drainer).waiting);
        add_u32(&work->orphans->active, 1);
        work->open[work->open_count++] = orphan;
        return;
    }
    if (result == QWP_OK) {
        qwp_drainer_close(&orphan->drainer); /* empty */
    } else if (result != QWP_AGAIN) {
        qwp_log(QWP_LOG_ERROR, "orphan cannot be drained", "slot=\"%s\" reason=\"%s\"",
                orphan->path, err.text);
        mark_failed(orphan->path, err.text);
        add_u32(&work->orphans->failed, 1);
    }
    free(orphan);
}

/* Fills the places that are free. */
static void look_for_more(struct work *work)
{
    while (work->dir != NULL && work->open_count < work->open_max && !is_ending(work)) {
        const struct dirent *entry = readdir(work->dir);
        if (entry == NULL) {
            closedir(work->dir);
            work->dir = NULL;
        } else if (entry->d_name[0] != '.' &&
                   !qwp_generations_owns(work->orphans->conf->sender_id, entry->d_name)) {
            take_on(work, entry->d_name);
        }
    }
}

static void finish(struct work *work, size_t i)
{
    struct orphan *orphan = work->open[i];
    if (qwp_drainer_is_done(&orphan->drainer)) {
        qwp_log(QWP_LOG_INFO, "orphan drained", "slot=\"%s\" frames=%" PRIu64, orphan->path,
                qwp_drainer_count(&orphan->drainer).delivered);
        add_u32(&work->orphans->succeeded, 1);
    }
    add_u32(&work->orphans->active, (uint32_t)-1);
    qwp_drainer_close(&orphan->drainer);
    free(orphan);
    work->open[i] = work->open[--work->open_count];
}

static void *orphans_run(void *arg)
{
    struct qwp_orphans *orphans = arg;
    struct work work = {
        .orphans = orphans,
        .dir = opendir(orphans->conf->sf_dir),
    };
    work.open = calloc(orphans->conf->drainers_max, sizeof *work.open);
    work.open_max = work.open != NULL ? orphans->conf->drainers_max : 0;
    while (!is_ending(&work)) {
        look_for_more(&work);
        bool more = false;
        int64_t next_ns = QWP_NEVER_NS;
        const int64_t now_ns = qwp_clock_monotonic_ns();
        for (size_t i = work.open_count; i-- > 0;) {
            more |= qwp_drainer_do_work(&work.open[i]->drainer, now_ns, &next_ns);
            if (qwp_drainer_is_done(&work.open[i]->drainer)) {
                finish(&work, i);
                more = true;
            }
        }
        (void)qwp_loop_run(orphans->loop, more ? 0 : next_ns);
    }
    while (work.open_count > 0) {
        finish(&work, work.open_count - 1);
    }
    if (work.dir != NULL) {
        closedir(work.dir);
    }
    free(work.open);
    /* A loop is closed by the thread that ran it, and not while it is being woken. */
    pthread_mutex_lock(&orphans->lock);
    qwp_loop_close(orphans->loop);
    pthread_mutex_unlock(&orphans->lock);
    return NULL;
}

enum qwp_result qwp_orphans_start(struct qwp_orphans *orphans, const struct qwp_conf *conf,
                                  enum qwp_loop_kind loop, struct qwp_error *err)
{
    *orphans = (struct qwp_orphans){.conf = conf};
    if (!conf->drain_orphans || conf->sf_dir == NULL || conf->drainers_max == 0) {
        return QWP_OK;
    }
    const enum qwp_result result =
        qwp_loop_open(&orphans->loop, &(struct qwp_loop_options){.kind = loop}, err);
    if (result != QWP_OK) {
        return result;
    }
    pthread_mutex_init(&orphans->lock, NULL);
    /* Signals belong to the threads that were there before. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(&orphans->thread, NULL, orphans_run, orphans);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        qwp_loop_close(orphans->loop);
        orphans->loop = NULL;
        return qwp_fail(err, QWP_NOMEM, error, "cannot start the orphans' thread");
    }
    orphans->is_started = true;
    return QWP_OK;
}

void qwp_orphans_stop(struct qwp_orphans *orphans)
{
    if (!orphans->is_started) {
        return;
    }
    pthread_mutex_lock(&orphans->lock);
    atomic_store_explicit(&orphans->is_ending, true, memory_order_relaxed);
    qwp_loop_wake(orphans->loop);
    pthread_mutex_unlock(&orphans->lock);
    pthread_join(orphans->thread, NULL);
    pthread_mutex_destroy(&orphans->lock);
    orphans->is_started = false;
}

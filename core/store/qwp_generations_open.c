/* The directories of generations: their names, opening, making and removing them. */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_crash.h"
#include "core/store/qwp_generations_internal.h"
#include "core/store/qwp_store_layout.h"

enum { PATH_BYTES = 4096 + 512, LOCK_NAMES = 4 };

/* Before a directory is emptied: no scan of any client looks at such a name, and none of our files
 * has it. */
#define REMOVED_PREFIX ".removed-"

/* ---- names ---- */

/* Of a generation, or 0: it is none of that sender's. */
static uint32_t number_of(const char *first, const char *name)
{
    const size_t len = strlen(first);
    if (strncmp(name, first, len) != 0) {
        return 0;
    }
    if (name[len] == '\0') {
        return 1;
    }
    unsigned number;
    char canonical[24];
    if (sscanf(name + len, ".g%9u", &number) != 1 || number < 2) {
        return 0;
    }
    snprintf(canonical, sizeof canonical, ".g%u", number);
    return strcmp(name + len, canonical) == 0 ? number : 0;
}

static void name_put(const struct qwp_generations *g, uint32_t number, char *name, size_t room)
{
    if (number == 1) {
        snprintf(name, room, "%s", g->first_name);
    } else {
        snprintf(name, room, "%.200s.g%u", g->first_name, number);
    }
}

bool qwp_generations_owns(const char *first, const char *name)
{
    return number_of(first, name) != 0;
}

static int parent_open(const struct qwp_generations *g)
{
    return qwp_sys_open(g->sys, AT_FDCWD, g->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
}

static int by_number(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a;
    const uint32_t y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* ---- removing ---- */

/* Its entries, and the descriptor that closedir() closes with them; NULL: they cannot be read. */
static DIR *dir_open(const struct qwp_sys *sys, int parent_fd, const char *name, int *fd)
{
    *fd = qwp_sys_open(sys, parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
    DIR *list = *fd >= 0 ? sys->fdopendir(*fd) : NULL;
    if (list == NULL && *fd >= 0) {
        sys->close(*fd);
    }
    return list;
}

/* Empties the directory `name` of `parent_fd` and removes it. */
static void dir_remove(const struct qwp_sys *sys, int parent_fd, const char *name)
{
    int fd;
    DIR *list = dir_open(sys, parent_fd, name, &fd);
    if (list == NULL) {
        return;
    }
    for (const struct dirent *entry; (entry = sys->readdir(list)) != NULL;) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)sys->unlinkat(fd, entry->d_name, 0);
            QWP_CRASH_POINT("generations.removing");
        }
    }
    sys->closedir(list);
    (void)sys->unlinkat(parent_fd, name, AT_REMOVEDIR);
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

/* More than its lock, or than the files of a slot. What was set aside, or put there by a person, is
 * not the program's to remove: such a slot stays, without frames that wait. */
static bool holds_more(const struct qwp_sys *sys, int parent_fd, const char *name, bool than_lock)
{
    int fd;
    DIR *list = dir_open(sys, parent_fd, name, &fd);
    if (list == NULL) {
        return true;
    }
    static const char *const known[] = {".",
                                        "..",
                                        QWP_LOCK_NAME,
                                        QWP_LOCK_PID_NAME,
                                        QWP_WATERMARK_NAME,
                                        QWP_MANIFEST_NAME,
                                        QWP_DICT_FILE_NAME,
                                        ".slot-uuid"};
    const size_t count = than_lock ? LOCK_NAMES : sizeof known / sizeof known[0];
    bool more = false;
    for (const struct dirent *entry; !more && (entry = sys->readdir(list)) != NULL;) {
        bool ours = !than_lock && (ends_with(entry->d_name, QWP_SEGMENT_SUFFIX) ||
                                   ends_with(entry->d_name, QWP_SEGMENT_SUFFIX QWP_UNREADY_SUFFIX));
        for (size_t i = 0; !ours && i < count; i++) {
            ours = strcmp(entry->d_name, known[i]) == 0;
        }
        more = !ours;
    }
    sys->closedir(list);
    return more;
}

/* Keeper. The one behind `before`, which nobody uses any more, leaves the list and the disk. */
void qwp_generations_remove_behind(struct qwp_generations *g, struct qwp_generation *before)
{
    struct qwp_generation *old = qwp_generation_next(before);
    const int fd = parent_open(g);
    char hidden[sizeof old->name + sizeof REMOVED_PREFIX];
    snprintf(hidden, sizeof hidden, REMOVED_PREFIX "%s", old->name);
    qwp_generations_counters_keep(g, old);
    if (fd < 0 || holds_more(g->sys, fd, old->name, false) ||
        g->sys->renameat(fd, old->name, fd, hidden) != 0) {
        qwp_seglog_close(old->log);
    } else {
        QWP_CRASH_POINT("generations.hidden");
        qwp_seglog_discard(old->log);
        dir_remove(g->sys, fd, hidden);
        QWP_CRASH_POINT("generations.removed");
    }
    if (fd >= 0) {
        g->sys->close(fd);
    }
    atomic_store_explicit(&before->next, qwp_generation_next(old), memory_order_relaxed);
    g->count--;
    free(old);
}

/* ---- opening ---- */

static enum qwp_result slot_open(struct qwp_generations *g, struct qwp_generation *generation,
                                 bool may_lack_symbols, struct qwp_error *err)
{
    char dir[PATH_BYTES];
    char shown[PATH_BYTES];
    snprintf(dir, sizeof dir, "%s/%s", g->parent, generation->name);
    snprintf(shown, sizeof shown, "%s/%s", g->shown, generation->name);
    struct qwp_seglog_options options = g->log_options;
    options.dir = dir;
    options.name = shown;
    options.budget = &g->budget;
    options.may_lack_symbols = may_lack_symbols;
    return qwp_seglog_open(&generation->log, &options, err);
}

static enum qwp_result generation_open(struct qwp_generations *g, uint32_t number,
                                       struct qwp_generation **out, struct qwp_error *err)
{
    struct qwp_generation *generation = calloc(1, sizeof *generation);
    if (generation == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a generation of the store");
    }
    generation->number = number;
    generation->lock_fd = -1;
    name_put(g, number, generation->name, sizeof generation->name);
    const enum qwp_result result = slot_open(g, generation, true, err);
    if (result != QWP_OK) {
        free(generation);
        return result;
    }
    *out = generation;
    return QWP_OK;
}

void qwp_generations_append(struct qwp_generations *g, struct qwp_generation *generation)
{
    if (g->newest == NULL) {
        g->home = generation;
    } else {
        /* sync[generations.next] release: pairs with the acquire in qwp_generations_advance(). */
        atomic_store_explicit(&g->newest->next, generation, memory_order_release);
    }
    g->newest = generation;
}

/* Lists the generations that are there, in order, the first one in any case, and ends removals that
 * were cut short. */
static enum qwp_result numbers_scan(struct qwp_generations *g, uint32_t *numbers, uint32_t *count,
                                    struct qwp_error *err)
{
    numbers[0] = 1;
    *count = 1;
    const int fd = parent_open(g);
    DIR *list = fd >= 0 ? g->sys->fdopendir(fd) : NULL;
    if (list == NULL) {
        const int error = errno;
        if (fd >= 0) {
            g->sys->close(fd);
        }
        return qwp_fail(err, QWP_IO, error, "cannot list %s", g->shown);
    }
    const size_t prefix = strlen(REMOVED_PREFIX);
    enum qwp_result result = QWP_OK;
    for (const struct dirent *entry; (entry = g->sys->readdir(list)) != NULL;) {
        const char *name = entry->d_name;
        const uint32_t number = number_of(g->first_name, name);
        if (strncmp(name, REMOVED_PREFIX, prefix) == 0 &&
            number_of(g->first_name, name + prefix) != 0) {
            dir_remove(g->sys, fd, name);
        } else if (number > 1 && *count == QWP_GENERATIONS_MAX) {
            result = qwp_fail(err, QWP_LIMIT, 0,
                              "%s holds more than %d slots of the sender %s: deliver some with "
                              "qwp-sidecar drain, oldest first, and move them away",
                              g->shown, QWP_GENERATIONS_MAX, g->first_name);
            break;
        } else if (number > 1) {
            numbers[(*count)++] = number;
        }
    }
    g->sys->closedir(list);
    qsort(numbers, *count, sizeof *numbers, by_number);
    return result;
}

/* Of a slot that could not be made (a full disk): a start must not find it, and fail on it. */
static void lock_remove(struct qwp_generations *g, uint32_t number)
{
    char name[QWP_GENERATION_NAME_BYTES];
    name_put(g, number, name, sizeof name);
    const int fd = parent_open(g);
    if (fd >= 0 && !holds_more(g->sys, fd, name, true)) {
        dir_remove(g->sys, fd, name);
    }
    if (fd >= 0) {
        g->sys->close(fd);
    }
}

/* A fresh slot, ready to be begun at any number. */
enum qwp_result qwp_generations_spare_make(struct qwp_generations *g, struct qwp_generation **out,
                                           struct qwp_error *err)
{
    struct qwp_generation *spare;
    const uint32_t number = g->newest->number + 1;
    enum qwp_result result = generation_open(g, number, &spare, err);
    if (result != QWP_OK) {
        if (result != QWP_AGAIN) { /* else it is in use */
            lock_remove(g, number);
        }
        return result;
    }
    if (!qwp_seglog_is_pristine(spare->log)) {
        result = qwp_fail(err, QWP_IO, 0, "%s/%s appeared while this sender runs, with frames",
                          g->shown, spare->name);
    } else if (g->is_durable) {
        const int fd = parent_open(g);
        if (fd < 0 || qwp_sys_sync_dir(g->sys, fd) != 0) {
            result = qwp_fail(err, QWP_IO, errno, "cannot sync %s", g->shown);
        }
        if (fd >= 0) {
            g->sys->close(fd);
        }
    }
    if (result != QWP_OK) { /* it stays on disk, and is found again under its name */
        qwp_seglog_close(spare->log);
        free(spare);
        return result;
    }
    g->count++;
    *out = spare;
    return QWP_OK;
}

static enum qwp_result fresh_append(struct qwp_generations *g, struct qwp_error *err)
{
    struct qwp_generation *fresh;
    const enum qwp_result result = qwp_generations_spare_make(g, &fresh, err);
    if (result == QWP_OK) {
        qwp_generations_append(g, fresh);
    }
    return result;
}

static bool lacks_symbols(const struct qwp_generation *generation)
{
    return qwp_seglog_recovered(generation->log)->lacks_symbols;
}

/* One that lacks symbols takes no frames, so another is begun, past the budget if need be: nothing
 * could be stored before all that waits has been read. That is what happens where none can be made
 * (a full disk), since sending frees space. */
static enum qwp_result newest_whole(struct qwp_generations *g, struct qwp_error *err)
{
    struct qwp_generation *newest = g->newest;
    if (!lacks_symbols(newest) ||
        (g->count < QWP_GENERATIONS_MAX && fresh_append(g, err) == QWP_OK)) {
        return QWP_OK;
    }
    qwp_seglog_close(newest->log);
    newest->log = NULL;
    return slot_open(g, newest, false, err);
}

/* The newest one takes the frames to come. Its numbers must be behind all others. */
static enum qwp_result newest_ready(struct qwp_generations *g, struct qwp_error *err)
{
    const enum qwp_result whole = newest_whole(g, err);
    if (whole != QWP_OK) {
        return whole;
    }
    uint64_t end = 0;
    for (struct qwp_generation *one = g->home; one != g->newest; one = qwp_generation_next(one)) {
        const uint64_t its = qwp_seglog_published_count(one->log);
        end = its > end ? its : end;
    }
    if (qwp_seglog_acked_count(g->newest->log) >= end) {
        return QWP_OK;
    }
    if (!qwp_seglog_is_pristine(g->newest->log)) {
        const uint64_t its = qwp_seglog_published_count(g->newest->log);
        const enum qwp_result result = fresh_append(g, err);
        if (result != QWP_OK) {
            return result;
        }
        end = its > end ? its : end;
    }
    qwp_seglog_begin_at(g->newest->log, end);
    return QWP_OK;
}

static enum qwp_result open_all(struct qwp_generations *g, struct qwp_error *err)
{
    uint32_t numbers[QWP_GENERATIONS_MAX];
    uint32_t count;
    enum qwp_result result = numbers_scan(g, numbers, &count, err);
    for (uint32_t i = 0; i < count && result == QWP_OK; i++) {
        struct qwp_generation *generation;
        result = generation_open(g, numbers[i], &generation, err);
        if (result == QWP_OK) {
            qwp_generations_append(g, generation);
            g->count++;
        }
        /* The first dictionary with frames that wait is sent first, and the last is added to. */
        if (result == QWP_OK && g->reader == NULL && qwp_generation_waits(generation)) {
            g->reader = generation;
        } else if (result == QWP_OK && i + 1 < count) {
            qwp_seglog_dict_release(generation->log);
        }
    }
    if (result == QWP_OK) {
        result = newest_ready(g, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    g->reader = g->reader != NULL ? g->reader : g->newest;
    g->writer = g->newest;
    g->writer_number = g->writer->number;
    g->published = qwp_seglog_published_count(g->newest->log);
    return QWP_OK;
}

enum qwp_result qwp_generations_open(struct qwp_generations *g,
                                     const struct qwp_generations_options *options,
                                     struct qwp_error *err)
{
    *g = (struct qwp_generations){.log_options = options->log, .is_durable = options->is_durable};
    g->sys = options->log.sys != NULL ? options->log.sys : &qwp_sys_real;
    const int parent = snprintf(g->parent, sizeof g->parent, "%s", options->parent);
    const int name = snprintf(g->first_name, sizeof g->first_name, "%s", options->name);
    snprintf(g->shown, sizeof g->shown, "%s",
             options->shown != NULL ? options->shown : options->parent);
    if ((size_t)parent >= sizeof g->parent || name > 200) {
        return qwp_fail(err, QWP_INVALID, 0, "the store's name %s/%s is too long", options->parent,
                        options->name);
    }
    const uint64_t segment_bytes = options->log.segment_bytes;
    if (options->log.total_bytes_max < segment_bytes) {
        return qwp_fail(
            err, QWP_INVALID, 0, "the store's bound of %llu bytes is less than one segment (%llu)",
            (unsigned long long)options->log.total_bytes_max, (unsigned long long)segment_bytes);
    }
    g->budget.bytes_max = qwp_store_budget_bytes(options->log.total_bytes_max, segment_bytes);
    const enum qwp_result result = open_all(g, err);
    if (result != QWP_OK) {
        qwp_generations_close(g);
        return result;
    }
    qwp_generations_acked_show(g);
    return QWP_OK;
}

static void generation_close(struct qwp_generation *generation)
{
    if (generation == NULL) {
        return;
    }
    qwp_seglog_close(generation->log);
    if (generation->lock_fd >= 0) {
        close(generation->lock_fd);
    }
    free(generation);
}

void qwp_generations_close(struct qwp_generations *g)
{
    generation_close(g->spare);
    for (struct qwp_generation *next, *one = g->home; one != NULL; one = next) {
        next = qwp_generation_next(one);
        generation_close(one);
    }
    *g = (struct qwp_generations){0};
}

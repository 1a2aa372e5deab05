/* Recovery, first step: every segment file of the slot, by plain reads; and reading one in full. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/qwp_seglog_recover.h"
#include "core/store/qwp_stored.h"

enum { FILES_MAX = 1024 * 1024, LOOK_BYTES = 4096 };

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

static void number_note(struct qwp_seglog *log, const char *name)
{
    uint64_t number;
    if (sscanf(name, "sf-%16" SCNx64 ".sfa", &number) == 1 && number < UINT64_MAX / 2 &&
        number >= log->next_number) {
        log->next_number = number + 1;
    }
}

static enum qwp_result found_room(struct qwp_recovery *r, struct qwp_error *err)
{
    if (r->count < r->room) {
        return QWP_OK;
    }
    if (r->count == FILES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %d segments in %s", FILES_MAX, r->log->dir);
    }
    const size_t room = r->room == 0 ? 64 : r->room * 2;
    struct qwp_found *grown = realloc(r->found, room * sizeof *grown);
    if (grown == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to recover %s", r->log->dir);
    }
    r->found = grown;
    r->room = room;
    return QWP_OK;
}

/* What a frame of a segment in full tells about the dictionary and groups. */
static enum qwp_result frame_note(void *owner, uint64_t fsn, const unsigned char *payload,
                                  size_t len)
{
    struct qwp_found *found = owner;
    (void)fsn;
    uint64_t start;
    uint64_t end;
    found->ends_group |= !qwp_stored_is_deferred(payload, len);
    switch (qwp_stored_delta_look(payload, len, &start, &end)) {
    case QWP_STORED_NO_MESSAGE:
        found->needs_no_symbols = true;
        break;
    case QWP_STORED_DELTA:
        found->delta_first = found->has_delta ? found->delta_first : start;
        found->delta_end = end;
        found->has_delta = true;
        break;
    case QWP_STORED_NO_DELTA:
    case QWP_STORED_BAD: /* seen again when it is followed */
        break;
    }
    return QWP_OK;
}

static enum qwp_result read_failed(const struct qwp_seglog *log, const char *name,
                                   enum qwp_result result, int error, struct qwp_error *err)
{
    return qwp_fail(err, result, result == QWP_IO ? error : 0,
                    "cannot read segment %s/%s; mend the disk, or move the file away and go on "
                    "without its frames",
                    log->dir, name);
}

enum qwp_result qwp_recovery_check(struct qwp_recovery *r, struct qwp_found *found,
                                   struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, found->name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir, found->name);
    }
    const enum qwp_result result = qwp_segment_scan(sys, fd, &found->scan, frame_note, found);
    const int error = errno;
    sys->close(fd);
    return result == QWP_OK ? QWP_OK : read_failed(log, found->name, result, error, err);
}

/* Has the disk fetch what look() will want: one after the other they would take [0.7 ms each from a
 * disk of this kind]. */
static void file_advise(const struct qwp_seglog *log, const char *name)
{
    const int fd = qwp_sys_open(log->sys, log->place.dir_fd, name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd >= 0) {
        (void)posix_fadvise(fd, 0, LOOK_BYTES, POSIX_FADV_WILLNEED);
        log->sys->close(fd);
    }
}

static enum qwp_result name_note(struct qwp_recovery *r, const char *name, struct qwp_error *err)
{
    const enum qwp_result result = found_room(r, err);
    if (result == QWP_OK) {
        struct qwp_found *found = &r->found[r->count++];
        *found = (struct qwp_found){0};
        snprintf(found->name, sizeof found->name, "%s", name);
        if (r->log->place.durable) {
            file_advise(r->log, name);
        }
    }
    return result;
}

/* *is_ours: it is a file, at least. */
static enum qwp_result file_look(struct qwp_recovery *r, struct qwp_found *found, bool *is_ours,
                                 struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    *is_ours = false;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, found->name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 && errno == ELOOP) {
        return QWP_OK; /* a symbolic link is none of ours */
    }
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir, found->name);
    }
    struct stat st;
    if (sys->fstat(fd, &st) != 0) {
        const int error = errno;
        sys->close(fd);
        return qwp_fail(err, QWP_IO, error, "cannot look at segment %s/%s", log->dir, found->name);
    }
    if (!S_ISREG(st.st_mode)) {
        sys->close(fd);
        return QWP_OK; /* nor is a directory */
    }
    const enum qwp_result result = qwp_segment_look(sys, fd, &found->scan);
    const int error = errno;
    sys->close(fd);
    if (result != QWP_OK) {
        return read_failed(log, found->name, result, error, err);
    }
    number_note(log, found->name);
    *is_ours = true;
    return QWP_OK;
}

static enum qwp_result files_look(struct qwp_recovery *r, struct qwp_error *err)
{
    const size_t count = r->count;
    enum qwp_result result = QWP_OK;
    r->count = 0;
    for (size_t i = 0; i < count && result == QWP_OK; i++) {
        bool is_ours;
        result = file_look(r, &r->found[i], &is_ours, err);
        if (is_ours) {
            r->found[r->count++] = r->found[i];
        }
    }
    return result;
}

static enum qwp_result entry_take(struct qwp_recovery *r, const char *name, struct qwp_error *err)
{
    if (strlen(name) >= QWP_STORE_NAME_BYTES) {
        return QWP_OK; /* none of ours */
    }
    if (has_suffix(name, QWP_SEGMENT_SUFFIX)) {
        return name_note(r, name, err);
    }
    if (has_suffix(name, QWP_SEGMENT_SUFFIX QWP_UNREADY_SUFFIX)) {
        /* Half made, or acknowledged and half zeroed. */
        number_note(r->log, name);
        r->log->sys->unlinkat(r->log->place.dir_fd, name, 0);
    }
    return QWP_OK;
}

enum qwp_result qwp_recovery_scan(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    /* A descriptor of its own, since closedir() closes it. */
    const int fd = qwp_sys_open(sys, log->place.dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : sys->fdopendir(fd);
    if (dir == NULL) {
        const int error = errno;
        if (fd >= 0) {
            sys->close(fd);
        }
        return qwp_fail(err, QWP_IO, error, "cannot list %s", log->dir);
    }
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK) {
        errno = 0;
        const struct dirent *entry = sys->readdir(dir);
        if (entry == NULL) {
            if (errno != 0) {
                result = qwp_fail(err, QWP_IO, errno, "cannot list %s", log->dir);
            }
            break;
        }
        result = entry_take(r, entry->d_name, err);
    }
    sys->closedir(dir);
    return result == QWP_OK ? files_look(r, err) : result;
}

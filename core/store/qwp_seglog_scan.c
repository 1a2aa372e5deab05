/* Recovery, first step: every segment file of the slot, by plain reads. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/qwp_seglog_recover.h"

enum { FILES_MAX = 1024 * 1024 };

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

static enum qwp_result file_scan(struct qwp_recovery *r, const char *name, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    enum qwp_result result = found_room(r, err);
    if (result != QWP_OK) {
        return result;
    }
    const int fd = qwp_sys_open(sys, log->place.dir_fd, name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0 && errno == ELOOP) {
        return QWP_OK; /* a symbolic link is none of ours */
    }
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir, name);
    }
    struct stat st;
    if (sys->fstat(fd, &st) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot look at segment %s/%s", log->dir, name);
        sys->close(fd);
        return result;
    }
    if (!S_ISREG(st.st_mode)) {
        sys->close(fd);
        return QWP_OK; /* nor is a directory */
    }
    struct qwp_found *found = &r->found[r->count];
    *found = (struct qwp_found){0};
    snprintf(found->name, sizeof found->name, "%s", name);
    result = qwp_segment_scan(sys, fd, &found->scan, NULL, NULL);
    const int error = errno;
    sys->close(fd);
    if (result != QWP_OK) {
        return qwp_fail(err, result, result == QWP_IO ? error : 0,
                        "cannot read segment %s/%s; mend the disk, or move the file away and go on "
                        "without its frames",
                        log->dir, name);
    }
    number_note(log, name);
    r->count++;
    return QWP_OK;
}

static enum qwp_result entry_take(struct qwp_recovery *r, const char *name, struct qwp_error *err)
{
    if (strlen(name) >= QWP_STORE_NAME_BYTES) {
        return QWP_OK; /* none of ours */
    }
    if (has_suffix(name, QWP_SEGMENT_SUFFIX)) {
        return file_scan(r, name, err);
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
    return result;
}

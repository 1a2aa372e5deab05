#include "ipc/qwp_rendezvous.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/qwp_file.h"

#define PRIVATE_DIR ".sidecar"
#define LOCK_FILE   "lock"

enum {
    INSTANCE_MODE = 03770,
    PARENT_MODE = 01777,
    PRIVATE_MODE = 0700,
    INSTANCE_NAME_MAX = 64,
    WATCH_MASK = IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR,
};

/* ---- the directory ---- */

static bool is_good_name(const char *name)
{
    const size_t len = strlen(name);
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    return len > 0 && len <= INSTANCE_NAME_MAX && name[0] != '.' && strspn(name, allowed) == len;
}

/* Makes the directory with its final mode at once, so that no one finds it half-open: under a
 * temporary name beside it, then renamed unless someone was faster. */
static enum qwp_result make_dir(int parent_fd, const char *name, mode_t mode, struct qwp_error *err)
{
    char tmp_name[PATH_MAX];
    const char *slash = strrchr(name, '/');
    const size_t before = slash != NULL ? (size_t)(slash - name) + 1 : 0;
    if (before + QWP_FILE_NAME_BYTES > sizeof tmp_name) {
        return qwp_fail(err, QWP_INVALID, 0, "directory '%.80s...': the path is too long", name);
    }
    memcpy(tmp_name, name, before);
    qwp_tmp_name(tmp_name + before, sizeof tmp_name - before);
    if (mkdirat(parent_fd, tmp_name, 0700) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make directory '%s'", name);
    }
    int code = 0;
    if (fchmodat(parent_fd, tmp_name, mode, 0) != 0 ||
        renameat2(parent_fd, tmp_name, parent_fd, name, RENAME_NOREPLACE) != 0) {
        code = errno;
        unlinkat(parent_fd, tmp_name, AT_REMOVEDIR);
    }
    if (code == EINVAL || code == ENOSYS) {
        /* A file system that cannot: a moment with the wrong mode, then. */
        code = mkdirat(parent_fd, name, 0700) != 0 || fchmodat(parent_fd, name, mode, 0) != 0
                   ? errno
                   : 0;
    }
    return code == 0 || code == EEXIST
               ? QWP_OK
               : qwp_fail(err, QWP_IO, code, "cannot make directory '%s'", name);
}

/* Opens <parent_fd>/<name>, making it if need be. */
static enum qwp_result open_or_make(int parent_fd, const char *name, mode_t mode, int flags,
                                    int *fd, struct qwp_error *err)
{
    flags |= O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    *fd = qwp_fd_above_stdio(openat(parent_fd, name, flags));
    if (*fd < 0 && errno == ENOENT) {
        const enum qwp_result result = make_dir(parent_fd, name, mode, err);
        if (result != QWP_OK) {
            return result;
        }
        *fd = qwp_fd_above_stdio(openat(parent_fd, name, flags));
    }
    if (*fd >= 0) {
        return QWP_OK;
    }
    if (errno == EACCES) {
        struct stat st = {0};
        (void)fstatat(parent_fd, name, &st, 0);
        return qwp_fail(err, QWP_IO, EACCES,
                        "not permitted to use directory '%s': mode 0%o, owner %u:%u, we are %u:%u; "
                        "join its group, or choose another instance name",
                        name, (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid,
                        (unsigned)st.st_gid, (unsigned)geteuid(), (unsigned)getegid());
    }
    const bool odd = errno == ELOOP || errno == ENOTDIR;
    return qwp_fail(err, odd ? QWP_INVALID : QWP_IO, errno, "cannot open directory '%s'", name);
}

/* `dir` may have missing parents only up to its last part. */
static enum qwp_result open_parent(const char *dir, int *fd, struct qwp_error *err)
{
    char path[PATH_MAX];
    size_t len = strlen(dir);
    while (len > 1 && dir[len - 1] == '/') {
        len--;
    }
    if (len == 0 || len >= sizeof path) {
        return qwp_fail(err, QWP_INVALID, 0, "the rings directory needs a path of 1..%zu bytes",
                        sizeof path - 1);
    }
    memcpy(path, dir, len);
    path[len] = '\0';
    return open_or_make(AT_FDCWD, path, PARENT_MODE, 0, fd, err);
}

static bool is_our_group(gid_t gid)
{
    if (gid == getegid()) {
        return true;
    }
    const int count = getgroups(0, NULL);
    gid_t *groups = count > 0 ? malloc((size_t)count * sizeof *groups) : NULL;
    bool ours = false;
    if (groups != NULL && getgroups(count, groups) == count) {
        for (int i = 0; i < count && !ours; i++) {
            ours = groups[i] == gid;
        }
    }
    free(groups);
    return ours;
}

static bool is_trusted_owner(const struct stat *st, const struct qwp_rendezvous_trust *trust)
{
    for (uint32_t i = 0; i < trust->uid_count; i++) {
        if (trust->uids[i] == st->st_uid) {
            return true;
        }
    }
    return st->st_uid == 0 || st->st_uid == geteuid() || is_our_group(st->st_gid) ||
           (trust->has_group && trust->group == st->st_gid);
}

/* Gives the directory its group, where it is ours to give. The mode once more, as a change of owner
 * may take bits of it away. */
static enum qwp_result give_group(int fd, const struct qwp_rendezvous_trust *trust,
                                  struct qwp_error *err)
{
    struct stat st;
    if (!trust->has_group || fstat(fd, &st) != 0 || st.st_gid == trust->group ||
        (st.st_uid != geteuid() && geteuid() != 0)) {
        return QWP_OK;
    }
    if (fchown(fd, (uid_t)-1, trust->group) != 0 || fchmod(fd, INSTANCE_MODE) != 0) {
        return qwp_fail(err, QWP_IO, errno,
                        "cannot give it to group %u (mode 0%o, owner %u:%u, we are %u:%u); only a "
                        "member of the group, or root, can",
                        trust->group, (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid,
                        (unsigned)st.st_gid, (unsigned)geteuid(), (unsigned)getegid());
    }
    return QWP_OK;
}

static enum qwp_result check_instance(int fd, const struct qwp_rendezvous_trust *trust,
                                      struct qwp_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot look at it");
    }
    const char *wrong = NULL;
    if ((st.st_mode & S_IWOTH) != 0) {
        wrong = "everyone may write to it";
    } else if ((st.st_mode & S_ISVTX) == 0) {
        wrong = "it is not sticky, so its users could exchange each other's files";
    } else if (!is_trusted_owner(&st, trust)) {
        wrong = "its owner is a stranger";
    }
    if (wrong == NULL) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_INVALID, 0,
                    "%s: mode 0%o, owner %u:%u, we are %u:%u; expected mode 0%o and as owner root, "
                    "ourselves or a member of a group of ours (for a sidecar also --group and "
                    "--allow-users)",
                    wrong, (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid, (unsigned)st.st_gid,
                    (unsigned)geteuid(), (unsigned)getegid(), INSTANCE_MODE);
}

enum qwp_result qwp_rendezvous_open_as(const char *dir, const char *name,
                                       const struct qwp_rendezvous_trust *trust, int *dir_fd,
                                       struct qwp_error *err)
{
    dir = dir != NULL ? dir : QWP_RENDEZVOUS_DIR_DEFAULT;
    name = name != NULL ? name : QWP_RENDEZVOUS_NAME_DEFAULT;
    if (err != NULL) {
        *err = (struct qwp_error){0};
    }
    if (!is_good_name(name)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "instance name '%.80s': letters, digits, '-', '_', '.', at most %d, and "
                        "not with a dot first",
                        name, INSTANCE_NAME_MAX);
    }
    int parent_fd = -1;
    int fd = -1;
    enum qwp_result result = open_parent(dir, &parent_fd, err);
    if (result == QWP_OK) {
        result = open_or_make(parent_fd, name, INSTANCE_MODE, O_NOFOLLOW, &fd, err);
    }
    if (result == QWP_OK) {
        result = check_instance(fd, trust, err);
        if (result == QWP_INVALID && trust->any) {
            result = QWP_OK;
        }
    }
    if (result == QWP_OK) {
        result = give_group(fd, trust, err);
    }
    if (parent_fd >= 0) {
        close(parent_fd);
    }
    if (err != NULL && err->text[0] != '\0') {
        qwp_error_prefix(err, "instance directory %s/%s", dir, name);
    }
    if (result != QWP_OK) {
        if (fd >= 0) {
            close(fd);
        }
        return result;
    }
    *dir_fd = fd;
    return QWP_OK;
}

enum qwp_result qwp_rendezvous_open(const char *dir, const char *name, int *dir_fd,
                                    struct qwp_error *err)
{
    static const struct qwp_rendezvous_trust rules_alone;
    return qwp_rendezvous_open_as(dir, name, &rules_alone, dir_fd, err);
}

/* ---- the sidecar's claim ---- */

static enum qwp_result open_private(int dir_fd, int *fd, struct qwp_error *err)
{
    if (mkdirat(dir_fd, PRIVATE_DIR, PRIVATE_MODE) != 0 && errno != EEXIST) {
        return qwp_fail(err, QWP_IO, errno, "cannot make " PRIVATE_DIR "/");
    }
    *fd = qwp_fd_above_stdio(
        openat(dir_fd, PRIVATE_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat st;
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        return qwp_fail(err, errno == ELOOP || errno == ENOTDIR ? QWP_INVALID : QWP_IO, errno,
                        "cannot open " PRIVATE_DIR "/ (does another user's sidecar own it?)");
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        return qwp_fail(
            err, QWP_INVALID, 0,
            PRIVATE_DIR "/ has mode 0%o and owner %u, expected 0%o and %u: run the "
                        "sidecar as that user, or remove the directory with what it stores",
            (unsigned)st.st_mode & 07777u, (unsigned)st.st_uid, PRIVATE_MODE, (unsigned)geteuid());
    }
    return QWP_OK;
}

static enum qwp_result take_lock(int private_fd, int *fd, struct qwp_error *err)
{
    *fd = qwp_fd_above_stdio(
        openat(private_fd, LOCK_FILE, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (*fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open " PRIVATE_DIR "/" LOCK_FILE);
    }
    char pid[24] = "";
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) {
            return qwp_fail(err, QWP_IO, errno, "cannot lock " PRIVATE_DIR "/" LOCK_FILE);
        }
        const ssize_t n = pread(*fd, pid, sizeof pid - 1, 0);
        pid[n > 0 ? strcspn(pid, "\n") : 0] = '\0';
        return qwp_fail(err, QWP_AGAIN, 0,
                        "another sidecar (pid %s) serves this instance; stop it or choose another "
                        "instance name",
                        pid[0] != '\0' ? pid : "unknown");
    }
    const int len = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(*fd, 0) != 0 || pwrite(*fd, pid, (size_t)len, 0) != len) {
        return qwp_fail(err, QWP_IO, errno, "cannot write " PRIVATE_DIR "/" LOCK_FILE);
    }
    return QWP_OK;
}

enum qwp_result qwp_rendezvous_claim(int dir_fd, int *private_fd, int *lock_fd,
                                     struct qwp_error *err)
{
    int dir = -1;
    int lock = -1;
    enum qwp_result result = open_private(dir_fd, &dir, err);
    if (result == QWP_OK) {
        result = take_lock(dir, &lock, err);
    }
    if (result != QWP_OK) {
        if (lock >= 0) {
            close(lock);
        }
        if (dir >= 0) {
            close(dir);
        }
        return result;
    }
    *private_fd = dir;
    *lock_fd = lock;
    return QWP_OK;
}

/* ---- finding rings ---- */

static bool is_ring_name(const char *name)
{
    const size_t len = strlen(name);
    const size_t suffix = sizeof QWP_RING_SUFFIX - 1;
    return name[0] != '.' && len > suffix && len < QWP_FILE_NAME_BYTES &&
           strcmp(name + len - suffix, QWP_RING_SUFFIX) == 0;
}

/* A handle with a position of its own. */
static DIR *open_list(int dir_fd)
{
    const int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd >= 0 ? fdopendir(fd) : NULL;
    if (list == NULL && fd >= 0) {
        close(fd);
    }
    return list;
}

enum qwp_result qwp_rendezvous_scan(int dir_fd, qwp_ring_name_fn fn, void *owner,
                                    struct qwp_error *err)
{
    DIR *list = open_list(dir_fd);
    if (list == NULL) {
        return qwp_fail(err, QWP_IO, errno, "cannot read the instance directory");
    }
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(list)) != NULL) {
        if (is_ring_name(entry->d_name)) {
            fn(owner, entry->d_name);
        }
    }
    const int code = errno;
    closedir(list);
    return code == 0 ? QWP_OK
                     : qwp_fail(err, QWP_IO, code, "cannot read on in the instance directory");
}

enum qwp_result qwp_rendezvous_watch(int dir_fd, int *inotify_fd, struct qwp_error *err)
{
    const int fd = qwp_fd_above_stdio(inotify_init1(IN_NONBLOCK | IN_CLOEXEC));
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "no inotify (fs.inotify.max_user_instances?)");
    }
    /* There is no watching by descriptor, and the path may have moved since it was opened. */
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", dir_fd);
    if (inotify_add_watch(fd, path, WATCH_MASK) < 0) {
        const int code = errno;
        close(fd);
        return qwp_fail(err, QWP_IO, code,
                        "cannot watch the instance directory (is /proc there? "
                        "fs.inotify.max_user_watches?)");
    }
    *inotify_fd = fd;
    return QWP_OK;
}

void qwp_rendezvous_events(const void *events, size_t len, qwp_ring_name_fn fn, void *owner)
{
    const char *at = events;
    struct inotify_event event;
    while (len >= sizeof event) {
        memcpy(&event, at, sizeof event);
        const size_t bytes = sizeof event + event.len;
        if (bytes > len) {
            return;
        }
        if ((event.mask & (IN_Q_OVERFLOW | IN_IGNORED)) != 0) {
            fn(owner, NULL);
        } else if (event.len > 0 && is_ring_name(at + sizeof event)) {
            fn(owner, at + sizeof event);
        }
        at += bytes;
        len -= bytes;
    }
}

/* Read-only, so that the close is no event for the watch. */
static void sweep_one(int dir_fd, const char *name)
{
    const int fd = openat(dir_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) {
        return;
    }
    /* A maker that has not yet locked it finds it unlinked and makes another. */
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        unlinkat(dir_fd, name, 0);
    }
    close(fd);
}

void qwp_rendezvous_sweep_emptied(int dir_fd)
{
    DIR *list = open_list(dir_fd);
    if (list == NULL) {
        return;
    }
    const struct dirent *entry;
    struct stat st;
    while ((entry = readdir(list)) != NULL) {
        if (is_ring_name(entry->d_name) &&
            fstatat(dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
            st.st_size == 0 && st.st_uid == geteuid()) {
            sweep_one(dir_fd, entry->d_name);
        }
    }
    closedir(list);
}

void qwp_rendezvous_sweep(int dir_fd)
{
    DIR *list = open_list(dir_fd);
    if (list == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        if (strncmp(entry->d_name, QWP_TMP_PREFIX, sizeof QWP_TMP_PREFIX - 1) == 0) {
            sweep_one(dir_fd, entry->d_name);
        }
    }
    closedir(list);
}

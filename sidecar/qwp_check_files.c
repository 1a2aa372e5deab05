/* Whether the directories that rings and segments live in are fit for them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "ipc/qwp_rendezvous.h"
#include "sidecar/qwp_check.h"

#ifndef ZFS_SUPER_MAGIC
#define ZFS_SUPER_MAGIC 0x2fc12fc1
#endif

static const struct {
    long magic;
    const char *name;
    bool in_memory;
    bool reserves; /* a preallocated block can be written whatever happens to the rest */
} file_systems[] = {
    {TMPFS_MAGIC, "tmpfs", true, true},         {RAMFS_MAGIC, "ramfs", true, true},
    {EXT4_SUPER_MAGIC, "ext4", false, true},    {XFS_SUPER_MAGIC, "xfs", false, true},
    {F2FS_SUPER_MAGIC, "f2fs", false, true},    {OVERLAYFS_SUPER_MAGIC, "overlayfs", false, true},
    {BTRFS_SUPER_MAGIC, "btrfs", false, false}, {ZFS_SUPER_MAGIC, "zfs", false, false},
    {NFS_SUPER_MAGIC, "nfs", false, false},
};

struct place {
    char path[PATH_MAX]; /* the directory, or the nearest one above it that exists */
    bool exists;         /* it is the directory itself */
    struct statfs fs;
    const char *fs_name;
    bool in_memory;
    bool reserves;
};

/* Cuts the last part off. False at the top. */
static bool go_up(char *path)
{
    char *slash = strrchr(path, '/');
    if (slash == NULL) {
        const bool was_here = strcmp(path, ".") == 0;
        strcpy(path, ".");
        return !was_here;
    }
    if (slash == path) {
        const bool was_root = path[1] == '\0';
        path[1] = '\0';
        return !was_root;
    }
    *slash = '\0';
    return true;
}

static bool find_place(struct place *place, const char *path)
{
    *place = (struct place){.exists = true, .fs_name = "another file system", .reserves = true};
    snprintf(place->path, sizeof place->path, "%s", path);
    while (statfs(place->path, &place->fs) != 0) {
        if ((errno != ENOENT && errno != ENOTDIR) || !go_up(place->path)) {
            return false;
        }
        place->exists = false;
    }
    for (size_t i = 0; i < sizeof file_systems / sizeof file_systems[0]; i++) {
        if (file_systems[i].magic == (long)place->fs.f_type) {
            place->fs_name = file_systems[i].name;
            place->in_memory = file_systems[i].in_memory;
            place->reserves = file_systems[i].reserves;
        }
    }
    return true;
}

static uint64_t room_bytes(const struct place *place)
{
    return (uint64_t)place->fs.f_bavail * (uint64_t)place->fs.f_bsize;
}

static void check_room(struct qwp_check *check, const char *subject, const struct place *place,
                       uint64_t wanted_bytes, const char *advice)
{
    const unsigned long long room_mib = room_bytes(place) >> 20;
    const bool enough = room_bytes(place) >= wanted_bytes;
    qwp_check_add(check, enough ? QWP_CHECK_OK : QWP_CHECK_WARN, subject, advice,
                  "%llu MiB free on %s (at least %llu wanted)", room_mib, place->fs_name,
                  (unsigned long long)(wanted_bytes >> 20));
}

/* With a file that has no name: reserve, then lock as rings are. "" when all works. */
static void try_file(const char *path, char *trouble, size_t trouble_bytes)
{
    trouble[0] = '\0';
    const int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EOPNOTSUPP) {
        return; /* such files are not known here; nothing can be said */
    }
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    const char *what = fd < 0                                ? "cannot make a file"
                       : fallocate(fd, 0, 0, 64 * 1024) != 0 ? "cannot reserve blocks"
                       : fcntl(fd, F_OFD_SETLK, &lock) != 0  ? "cannot lock a file"
                                                             : NULL;
    if (what != NULL) {
        snprintf(trouble, trouble_bytes, "%s: %s", what, strerror(errno));
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void check_usable(struct qwp_check *check, const char *subject, const char *wanted,
                         const struct place *place)
{
    char trouble[160];
    try_file(place->path, trouble, sizeof trouble);
    if (trouble[0] != '\0') {
        qwp_check_add(check, QWP_CHECK_FAIL, subject,
                      "give this user write permission there, or choose another directory",
                      "%s: %s", place->path, trouble);
        return;
    }
    qwp_check_add(check, QWP_CHECK_OK, subject, NULL, "%s: %s", wanted,
                  place->exists ? "there, files can be made, reserved and locked"
                                : "not there yet, can be made");
}

/* Whether a directory of this instance that is already there passes the rules. */
static void check_instance(struct qwp_check *check, const struct qwp_options *options)
{
    int dir_fd = -1;
    struct qwp_error err = {0};
    if (qwp_rendezvous_open(options->rings_dir, options->name, &dir_fd, &err) != QWP_OK) {
        qwp_check_add(check, QWP_CHECK_FAIL, "instance",
                      "mend it as said, remove it, or run with --accept-any-dir", "%s", err.text);
        return;
    }
    struct qwp_control control = {0};
    if (qwp_control_map(&control, dir_fd, NULL) == QWP_OK) {
        const bool is_live = qwp_control_is_live(&control);
        qwp_check_add(check, is_live ? QWP_CHECK_WARN : QWP_CHECK_OK, "instance",
                      "a second one cannot start there: choose another --name",
                      is_live ? "%s/%s: a sidecar runs there" : "%s/%s: a sidecar ran there before",
                      options->rings_dir, options->name);
        qwp_control_unmap(&control);
    } else {
        qwp_check_add(check, QWP_CHECK_OK, "instance", NULL, "%s/%s: safe", options->rings_dir,
                      options->name);
    }
    close(dir_fd);
}

void qwp_check_rings(struct qwp_check *check, const struct qwp_options *options)
{
    /* Rings of a handful of producers and the segments of memory mode. */
    static const uint64_t wanted_bytes = UINT64_C(64) << 20;
    struct place place;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", options->rings_dir, options->name);
    if (!find_place(&place, path)) {
        qwp_check_add(check, QWP_CHECK_FAIL, "rings directory", "choose another with --rings",
                      "%s: %s", path, strerror(errno));
        return;
    }
    check_usable(check, "rings directory", path, &place);
    qwp_check_add(check, place.in_memory ? QWP_CHECK_OK : QWP_CHECK_WARN, "rings file system",
                  "use a tmpfs such as /dev/shm: on a disk the kernel writes rings back while "
                  "they are used",
                  "%s", place.fs_name);
    check_room(check, "rings room", &place, wanted_bytes,
               "enlarge it (mount -o remount,size=..., docker --shm-size, a memory volume)");
    if (place.exists) {
        check_instance(check, options);
    }
}

/* Beside the rings: the file system holds both. */
static void check_store_in_memory(struct qwp_check *check, const struct qwp_options *options,
                                  const struct qwp_conf *conf)
{
    qwp_check_add(check, QWP_CHECK_OK, "store", NULL,
                  "in memory mode: stored rows outlive every process, not the host");
    struct place place;
    if (!find_place(&place, options->rings_dir)) {
        return; /* said of the rings */
    }
    const uint64_t all_bytes = (uint64_t)place.fs.f_blocks * (uint64_t)place.fs.f_bsize;
    const bool fits = all_bytes == 0 || all_bytes >= conf->sf_total_bytes_max;
    qwp_check_add(
        check, fits ? QWP_CHECK_OK : QWP_CHECK_WARN, "store room",
        "lower sf_max_total_bytes, or enlarge the file system of the rings, which it shares",
        "up to %llu MiB beside the rings, on %llu MiB of %s",
        (unsigned long long)conf->sf_total_bytes_max >> 20, (unsigned long long)all_bytes >> 20,
        place.fs_name);
}

void qwp_check_store(struct qwp_check *check, const struct qwp_options *options,
                     const struct qwp_conf *conf)
{
    if (conf->sf_dir == NULL) {
        check_store_in_memory(check, options, conf);
        return;
    }
    struct place place;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", conf->sf_dir, conf->sender_id);
    if (!find_place(&place, path)) {
        qwp_check_add(check, QWP_CHECK_FAIL, "store", "choose another sf_dir", "%s: %s", path,
                      strerror(errno));
        return;
    }
    check_usable(check, "store", path, &place);
    qwp_check_add(check, place.reserves ? QWP_CHECK_OK : QWP_CHECK_WARN, "store file system",
                  "keep room free there: preallocated blocks may still run out (copy on write)",
                  "%s", place.fs_name);
    check_room(check, "store room", &place, conf->sf_total_bytes_max,
               "make room, or lower sf_max_total_bytes: a full disk stops intake");
}

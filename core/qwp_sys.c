#include "core/qwp_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/qwp_clock.h"

static int sys_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
    return openat(dir_fd, path, flags, mode);
}

static int sys_fallocate(int fd, off_t off, off_t len)
{
    const int rc = posix_fallocate(fd, off, len);
    if (rc != 0) {
        errno = rc;
        return -1;
    }
    return 0;
}

const struct qwp_sys qwp_sys_real = {
    .openat = sys_openat,
    .close = close,
    .pread = pread,
    .pwrite = pwrite,
    .fstat = fstat,
    .ftruncate = ftruncate,
    .fallocate = sys_fallocate,
    .fsync = fsync,
    .fdatasync = fdatasync,
    .flock = flock,
    .mmap = mmap,
    .munmap = munmap,
    .madvise = madvise,
    .mkdirat = mkdirat,
    .unlinkat = unlinkat,
    .renameat = renameat,
    .fdopendir = fdopendir,
    .readdir = readdir,
    .closedir = closedir,
    .monotonic_ns = qwp_clock_monotonic_ns,
};

int qwp_sys_open(const struct qwp_sys *sys, int dir_fd, const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = sys->openat(dir_fd, path, flags, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int qwp_sys_allocate(const struct qwp_sys *sys, int fd, uint64_t off, uint64_t len)
{
    int rc;
    do {
        rc = sys->fallocate(fd, (off_t)off, (off_t)len);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

int qwp_sys_sync(const struct qwp_sys *sys, int fd)
{
    int rc;
    do {
        rc = sys->fdatasync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

int qwp_sys_sync_dir(const struct qwp_sys *sys, int fd)
{
    int rc;
    do {
        rc = sys->fsync(fd);
    } while (rc != 0 && errno == EINTR);
    return rc;
}

ssize_t qwp_sys_read_full(const struct qwp_sys *sys, int fd, void *at, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        const ssize_t n = sys->pread(fd, (char *)at + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return -1;
        }
        if (n == 0) {
            break;
        }
        done += (size_t)n;
    }
    return (ssize_t)done;
}

int qwp_sys_write_full(const struct qwp_sys *sys, int fd, const void *at, size_t len, uint64_t off)
{
    size_t done = 0;
    while (done < len) {
        const ssize_t n = sys->pwrite(fd, (const char *)at + done, len - done, (off_t)(off + done));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            if (n == 0) {
                errno = EIO;
            }
            return -1;
        }
        done += (size_t)n;
    }
    return 0;
}

unsigned long long qwp_sys_available(int fd)
{
    struct statvfs fs;
    return fstatvfs(fd, &fs) == 0 ? (unsigned long long)fs.f_bavail * fs.f_frsize : 0;
}

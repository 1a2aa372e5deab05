#include "core/qwp_sys.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

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
};

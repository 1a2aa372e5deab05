#include "tests/core/fault_fixture.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/qwp_clock.h"

struct fault fault;

static bool fails(void)
{
    fault.calls++;
    if (fault.fail_from == 0 || fault.calls < fault.fail_from ||
        fault.calls >= fault.fail_from + fault.fail_count || fault.error == FAULT_SHORT) {
        return false;
    }
    errno = fault.error;
    return true;
}

/* The kernel never interrupts these. */
static bool fails_whole(void)
{
    const int before = errno;
    if (fails() && fault.error != EINTR) {
        return true;
    }
    errno = before;
    return false;
}

static bool is_short(void)
{
    return fault.error == FAULT_SHORT && fault.fail_from != 0 && fault.calls >= fault.fail_from &&
           fault.calls < fault.fail_from + fault.fail_count;
}

static int f_openat(int dir_fd, const char *path, int flags, mode_t mode)
{
    return fails() ? -1 : openat(dir_fd, path, flags, mode);
}

static ssize_t f_pread(int fd, void *at, size_t len, off_t off)
{
    return fails() ? -1 : pread(fd, at, is_short() && len > 1 ? len / 2 : len, off);
}

static ssize_t f_pwrite(int fd, const void *at, size_t len, off_t off)
{
    return fails() ? -1 : pwrite(fd, at, is_short() && len > 1 ? len / 2 : len, off);
}

static int f_fstat(int fd, struct stat *st)
{
    return fails_whole() ? -1 : fstat(fd, st);
}

static int f_ftruncate(int fd, off_t len)
{
    return fails_whole() ? -1 : ftruncate(fd, len);
}

static int f_fallocate(int fd, off_t off, off_t len)
{
    return fails() ? -1 : qwp_sys_real.fallocate(fd, off, len);
}

static int f_fsync(int fd)
{
    return fails() ? -1 : fsync(fd);
}

static int f_fdatasync(int fd)
{
    return fails() ? -1 : fdatasync(fd);
}

static int f_flock(int fd, int operation)
{
    return fails() ? -1 : flock(fd, operation);
}

static void *f_mmap(void *at, size_t len, int prot, int flags, int fd, off_t off)
{
    return fails_whole() ? MAP_FAILED : mmap(at, len, prot, flags, fd, off);
}

static int f_madvise(void *at, size_t len, int advice)
{
    return fails_whole() ? -1 : madvise(at, len, advice);
}

static int f_mkdirat(int dir_fd, const char *path, mode_t mode)
{
    return fails_whole() ? -1 : mkdirat(dir_fd, path, mode);
}

static int f_unlinkat(int dir_fd, const char *path, int flags)
{
    return fails_whole() ? -1 : unlinkat(dir_fd, path, flags);
}

static int f_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    return fails_whole() ? -1 : renameat(from_fd, from, to_fd, to);
}

static DIR *f_fdopendir(int fd)
{
    return fails_whole() ? NULL : fdopendir(fd);
}

static struct dirent *f_readdir(DIR *list)
{
    return fails_whole() ? NULL : readdir(list);
}

int64_t fault_clock_ns(void)
{
    fault.clock_ns += 10 * QWP_NS_PER_MS;
    return fault.clock_ns;
}

const struct qwp_sys fault_sys = {
    .openat = f_openat,
    .close = close,
    .pread = f_pread,
    .pwrite = f_pwrite,
    .fstat = f_fstat,
    .ftruncate = f_ftruncate,
    .fallocate = f_fallocate,
    .fsync = f_fsync,
    .fdatasync = f_fdatasync,
    .flock = f_flock,
    .mmap = f_mmap,
    .munmap = munmap,
    .madvise = f_madvise,
    .mkdirat = f_mkdirat,
    .unlinkat = f_unlinkat,
    .renameat = f_renameat,
    .fdopendir = f_fdopendir,
    .readdir = f_readdir,
    .closedir = closedir,
    .monotonic_ns = fault_clock_ns,
};

void fault_set(unsigned long from, unsigned long count, int error)
{
    fault.calls = 0;
    fault.fail_from = from;
    fault.fail_count = count;
    fault.error = error;
}

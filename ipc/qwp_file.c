#include "ipc/qwp_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_sys.h"

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* So much at a time, that a process with a busy timer signal gets on between two of them. */
enum { RESERVE_CHUNK_BYTES = 4 * 1024 * 1024 };
enum { TOUCH_STEP_BYTES = 4096 }; /* the smallest page there is */

int qwp_fd_above_stdio(int fd)
{
    if (fd < 0 || fd > STDERR_FILENO) {
        return fd;
    }
    const int above = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    const int code = errno;
    close(fd);
    errno = code;
    return above;
}

uint64_t qwp_random_u64(void)
{
    uint64_t v;
    if (getrandom(&v, sizeof v, GRND_NONBLOCK) != (ssize_t)sizeof v) {
        /* Early in boot. Uniqueness is all we need: nothing is kept secret by these ids. */
        v = (uint64_t)qwp_clock_wall_ns() * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)getpid() << 40;
    }
    return v;
}

void qwp_tmp_name(char *name, size_t name_bytes)
{
    snprintf(name, name_bytes, QWP_TMP_PREFIX "%016llx", (unsigned long long)qwp_random_u64());
}

enum qwp_result qwp_file_reserve(int fd, uint64_t off, uint64_t bytes, const char *what,
                                 struct qwp_error *err)
{
    const uint64_t end = off + bytes;
    while (off < end) {
        const uint64_t chunk = end - off < RESERVE_CHUNK_BYTES ? end - off : RESERVE_CHUNK_BYTES;
        /* posix_fallocate and not fallocate: it writes where the file system knows no better. */
        const int code = posix_fallocate(fd, (off_t)off, (off_t)chunk);
        if (code == EINTR) {
            continue;
        }
        if (code != 0) {
            const bool full = code == ENOSPC || code == EDQUOT || code == ENOMEM || code == EFBIG;
            return qwp_fail(err, full ? QWP_NOMEM : QWP_IO, code,
                            "cannot reserve blocks for %s: %llu more bytes needed, %llu available "
                            "in the file system; make it larger (tmpfs: size=) or ask for less",
                            what, (unsigned long long)(end - off), qwp_sys_available(fd));
        }
        off += chunk;
    }
    return QWP_OK;
}

static bool map_part(void *at, uint64_t bytes, bool writable, int fd, uint64_t off)
{
    return bytes == 0 || mmap(at, bytes, PROT_READ | (writable ? PROT_WRITE : 0),
                              MAP_SHARED | MAP_FIXED, fd, (off_t)off) != MAP_FAILED;
}

void *qwp_file_map_twice(int fd, uint64_t bytes, uint64_t twice_off, uint64_t rw_bytes,
                         bool writable)
{
    const uint64_t total = bytes + (bytes - twice_off);
    /* Reserve the whole range first: what MAP_FIXED then replaces is ours. */
    unsigned char *base = mmap(NULL, total, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        return MAP_FAILED;
    }
    if (!map_part(base, rw_bytes, true, fd, 0) ||
        !map_part(base + rw_bytes, bytes - rw_bytes, writable, fd, rw_bytes) ||
        !map_part(base + bytes, bytes - twice_off, writable, fd, twice_off)) {
        const int code = errno;
        munmap(base, total);
        errno = code;
        return MAP_FAILED;
    }
    return base;
}

bool qwp_file_prefault(void *at, size_t bytes, bool writable, bool alone)
{
    while (madvise(at, bytes, writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) != 0) {
        if (errno == EINTR || errno == EAGAIN) {
            continue;
        }
        if (errno != EINVAL) {
            return false;
        }
        unsigned char *page = at;
        for (size_t off = 0; alone && off < bytes; off += TOUCH_STEP_BYTES) {
            __atomic_fetch_or(&page[off], 0, __ATOMIC_RELAXED);
        }
        return true;
    }
    return true;
}

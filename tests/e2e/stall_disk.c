/* Preloaded into a sidecar: a disk that does not answer. While the file $STALL_DISK exists,
 * everything that a store asks of its disk waits. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

static void stall(void)
{
    const struct timespec tick = {.tv_nsec = 5000000};
    const char *path = getenv("STALL_DISK");
    while (path != NULL && access(path, F_OK) == 0) {
        nanosleep(&tick, NULL);
    }
}

EXPORT ssize_t pwrite(int fd, const void *from, size_t len, off_t off)
{
    ssize_t (*real)(int, const void *, size_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "pwrite");
    stall();
    return real(fd, from, len, off);
}

EXPORT int fsync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fsync");
    stall();
    return real(fd);
}

EXPORT int fdatasync(int fd)
{
    int (*real)(int);
    *(void **)&real = dlsym(RTLD_NEXT, "fdatasync");
    stall();
    return real(fd);
}

EXPORT int posix_fallocate(int fd, off_t off, off_t len)
{
    int (*real)(int, off_t, off_t);
    *(void **)&real = dlsym(RTLD_NEXT, "posix_fallocate");
    stall();
    return real(fd, off, len);
}

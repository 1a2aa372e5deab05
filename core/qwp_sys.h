/* qwp_sys: the system calls that the store makes, as a table, so that tests can let them fail or
 * let time pass.
 *
 * Threads: const after setup; the real one may be used by all.
 * Errors:  every entry behaves as the call it is named after (result -1 and errno), except where a
 *          comment says otherwise. Whoever calls handles EINTR. */
#ifndef QWP_SYS_H
#define QWP_SYS_H

#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct qwp_sys {
    int (*openat)(int dir_fd, const char *path, int flags, mode_t mode);
    int (*close)(int fd);
    ssize_t (*pread)(int fd, void *at, size_t len, off_t off);
    ssize_t (*pwrite)(int fd, const void *at, size_t len, off_t off);
    int (*fstat)(int fd, struct stat *st);
    int (*ftruncate)(int fd, off_t len);
    int (*fallocate)(int fd, off_t off, off_t len); /* posix_fallocate(), but -1 and errno */
    int (*fsync)(int fd);
    int (*fdatasync)(int fd);
    int (*flock)(int fd, int operation);
    void *(*mmap)(void *at, size_t len, int prot, int flags, int fd, off_t off);
    int (*munmap)(void *at, size_t len);
    int (*madvise)(void *at, size_t len, int advice);
    int (*mkdirat)(int dir_fd, const char *path, mode_t mode);
    int (*unlinkat)(int dir_fd, const char *path, int flags);
    int (*renameat)(int from_dir_fd, const char *from, int to_dir_fd, const char *to);
    DIR *(*fdopendir)(int fd);
    struct dirent *(*readdir)(DIR *dir); /* NULL at the end with errno left alone */
    int (*closedir)(DIR *dir);
    int64_t (*monotonic_ns)(void); /* qwp_clock_monotonic_ns() */
};

extern const struct qwp_sys qwp_sys_real;

/* The same with EINTR and short transfers dealt with; -1 and errno as above. */
int qwp_sys_open(const struct qwp_sys *sys, int dir_fd, const char *path, int flags, mode_t mode);
int qwp_sys_allocate(const struct qwp_sys *sys, int fd, uint64_t off, uint64_t len);
int qwp_sys_sync(const struct qwp_sys *sys, int fd);     /* fdatasync */
int qwp_sys_sync_dir(const struct qwp_sys *sys, int fd); /* fsync */
/* Bytes read: fewer than `len` only at the end of the file. */
ssize_t qwp_sys_read_full(const struct qwp_sys *sys, int fd, void *at, size_t len, uint64_t off);
/* 0 when all is written; after -1 some of it may be. */
int qwp_sys_write_full(const struct qwp_sys *sys, int fd, const void *at, size_t len, uint64_t off);

/* Bytes that the file system of `fd` has left for its user, for messages; 0 when it does not say.
 */
unsigned long long qwp_sys_available(int fd);

#endif

/* What the kernel, and whatever stands between it and us (seccomp, sysctl), lets us do. */
#include <errno.h>
#include <liburing.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "sidecar/qwp_check.h"

/* Operations by number: headers may be older than the kernel. */
enum { OP_FUTEX_WAIT = 51 };

struct feature {
    unsigned opcode;
    const char *name;
};

/* Without these the io_uring loop cannot run. */
static const struct feature needed[] = {
    {IORING_OP_RECV, "recv"},           {IORING_OP_SEND, "send"}, {IORING_OP_CONNECT, "connect"},
    {IORING_OP_POLL_ADD, "poll"},       {IORING_OP_READ, "read"}, {IORING_OP_TIMEOUT, "timeout"},
    {IORING_OP_ASYNC_CANCEL, "cancel"},
};

/* Without these a helper thread does it. */
static const struct feature for_store[] = {
    {IORING_OP_FALLOCATE, "fallocate"},
    {IORING_OP_FSYNC, "fsync"},
    {IORING_OP_SYNC_FILE_RANGE, "sync_file_range"},
    {IORING_OP_MADVISE, "madvise"},
    {IORING_OP_OPENAT, "openat"},
    {IORING_OP_RENAMEAT, "renameat"},
    {IORING_OP_UNLINKAT, "unlinkat"},
};

/* Names of those missing, "" when all are there. */
static void list_missing(const struct io_uring_probe *probe, const struct feature *features,
                         size_t count, char *text, size_t text_bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        if (!io_uring_opcode_supported(probe, (int)features[i].opcode) && len < text_bytes) {
            const int n = snprintf(text + len, text_bytes - len, "%s%s", len > 0 ? ", " : "",
                                   features[i].name);
            len += n > 0 ? (size_t)n : 0;
        }
    }
}

static void check_operations(struct qwp_check *check, struct io_uring *ring)
{
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    if (probe == NULL) {
        qwp_check_add(check, QWP_CHECK_WARN, "io_uring probe", "use Linux 5.6 or newer",
                      "the kernel does not tell which operations it has");
        return;
    }
    char missing[160];
    list_missing(probe, needed, sizeof needed / sizeof needed[0], missing, sizeof missing);
    qwp_check_add(check, missing[0] == '\0' ? QWP_CHECK_OK : QWP_CHECK_WARN, "io_uring network",
                  "use Linux 5.6 or newer; epoll is used until then", "%s%s",
                  missing[0] == '\0' ? "all operations" : "missing: ", missing);
    list_missing(probe, for_store, sizeof for_store / sizeof for_store[0], missing, sizeof missing);
    qwp_check_add(check, missing[0] == '\0' ? QWP_CHECK_OK : QWP_CHECK_WARN, "io_uring files",
                  "use Linux 5.11 or newer; a helper thread does it until then", "%s%s",
                  missing[0] == '\0' ? "all operations" : "missing: ", missing);
    const bool has_futex = probe->last_op >= OP_FUTEX_WAIT &&
                           (probe->ops_len <= OP_FUTEX_WAIT ||
                            (probe->ops[OP_FUTEX_WAIT].flags & IO_URING_OP_SUPPORTED) != 0);
    qwp_check_add(check, has_futex ? QWP_CHECK_OK : QWP_CHECK_WARN, "io_uring futex",
                  "use Linux 6.7 or newer; producers ring a FIFO until then, which costs them a "
                  "little more",
                  has_futex ? "futex wait" : "no futex wait");
    io_uring_free_probe(probe);
}

static const char *setup_advice(int cause)
{
    switch (cause) {
    case EPERM:
    case EACCES:
        return "a seccomp profile or sysctl kernel.io_uring_disabled forbids it; allow it for "
               "the lowest cost, or leave it: epoll is used instead";
    case ENOMEM:
        return "raise `ulimit -l` (locked memory)";
    default:
        return "epoll is used instead; io_uring needs Linux 5.6 or newer";
    }
}

static void check_io_uring(struct qwp_check *check)
{
    struct io_uring ring;
    int rc = io_uring_queue_init(8, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    const bool is_new = rc == 0;
    if (rc == -EINVAL) {
        rc = io_uring_queue_init(8, &ring, 0);
    }
    if (rc < 0) {
        qwp_check_add(check, QWP_CHECK_WARN, "io_uring", setup_advice(-rc), "cannot be set up: %s",
                      strerror(-rc));
        return;
    }
    qwp_check_add(check, is_new ? QWP_CHECK_OK : QWP_CHECK_WARN, "io_uring",
                  "use Linux 6.1 or newer: each completion costs less there",
                  is_new ? "works, with deferred completions"
                         : "works, without deferred completions");
    check_operations(check, &ring);
    io_uring_queue_exit(&ring);
}

static void check_membarrier(struct qwp_check *check)
{
    static const char advice[] = "nothing; producers execute a fence with each publish instead";
    const long commands = syscall(__NR_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    if (commands < 0) {
        qwp_check_add(check, QWP_CHECK_WARN, "membarrier", advice, "not allowed: %s",
                      strerror(errno));
        return;
    }
    const bool has = (commands & MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0 &&
                     syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
    qwp_check_add(check, has ? QWP_CHECK_OK : QWP_CHECK_WARN, "membarrier", advice,
                  has ? "global expedited: producers need no fence"
                      : "no global expedited barrier");
}

static void check_inotify(struct qwp_check *check)
{
    const int fd = inotify_init1(IN_CLOEXEC);
    if (fd < 0) {
        qwp_check_add(check, QWP_CHECK_WARN, "inotify",
                      "raise sysctl fs.inotify.max_user_instances; the directory is scanned each "
                      "second until then",
                      "not to be had: %s", strerror(errno));
        return;
    }
    close(fd);
    qwp_check_add(check, QWP_CHECK_OK, "inotify", NULL, "works");
}

void qwp_check_kernel(struct qwp_check *check)
{
    struct utsname name;
    if (uname(&name) == 0) {
        qwp_check_add(check, QWP_CHECK_OK, "kernel", NULL, "%s %s %s", name.sysname, name.release,
                      name.machine);
    }
    check_io_uring(check);
    check_membarrier(check);
    check_inotify(check);
}

static void check_limit(struct qwp_check *check, const char *subject, int resource, rlim_t wanted,
                        const char *advice)
{
    struct rlimit limit;
    if (getrlimit((__rlimit_resource_t)resource, &limit) != 0) {
        return;
    }
    const bool enough = limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= wanted;
    const enum qwp_check_level level = enough ? QWP_CHECK_OK : QWP_CHECK_WARN;
    if (limit.rlim_cur == RLIM_INFINITY) {
        qwp_check_add(check, level, subject, advice, "unlimited");
    } else {
        qwp_check_add(check, level, subject, advice, "%llu (at least %llu wanted)",
                      (unsigned long long)limit.rlim_cur, (unsigned long long)wanted);
    }
}

void qwp_check_limits(struct qwp_check *check, const struct qwp_options *options)
{
    /* Two send buffers that are registered, and therefore locked. */
    enum { LOCKED_BYTES = 1024 * 1024, FILES_BESIDES_RINGS = 64 };
    check_limit(check, "locked memory", RLIMIT_MEMLOCK, LOCKED_BYTES,
                "raise `ulimit -l`; buffers are not registered with the kernel until then");
    const rlim_t producers = options->producers_max > 0 ? options->producers_max : 256;
    check_limit(check, "open files", RLIMIT_NOFILE, producers + FILES_BESIDES_RINGS,
                "raise `ulimit -n`: each producer takes one");
}

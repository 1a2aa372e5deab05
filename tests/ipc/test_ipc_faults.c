/* Aim: whichever system call fails, a call says so, and leaves no descriptor, mapping or file
 * behind. Method: the linker puts wrappers around the calls (--wrap); the k-th one fails, for k =
 * 1, 2, ... until everything succeeds. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/ipc/ipc_fixture.h"

static int countdown; /* 0: not armed */
static int fault_errno;
static const char *fault_name;

static bool fails(const char *name)
{
    if (countdown == 0 || --countdown > 0) {
        return false;
    }
    fault_name = name;
    errno = fault_errno;
    return true;
}

#define WRAP(type, failure, name, parameters, arguments)                                           \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters                                                                  \
    {                                                                                              \
        return fails(#name) ? failure : __real_##name arguments;                                   \
    }

WRAP(int, fault_errno, posix_fallocate, (int fd, off_t off, off_t len), (fd, off, len))
WRAP(int, -1, ftruncate, (int fd, off_t len), (fd, len))
WRAP(int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
WRAP(int, -1, fchmodat, (int fd, const char *name, mode_t mode, int flags), (fd, name, mode, flags))
WRAP(int, -1, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(int, -1, renameat2, (int a, const char *from, int b, const char *to, unsigned flags),
     (a, from, b, to, flags))
WRAP(int, -1, flock, (int fd, int operation), (fd, operation))
WRAP(int, -1, fstat, (int fd, struct stat *st), (fd, st))
WRAP(int, -1, mkdirat, (int fd, const char *name, mode_t mode), (fd, name, mode))
WRAP(int, -1, mkfifoat, (int fd, const char *name, mode_t mode), (fd, name, mode))
WRAP(int, -1, madvise, (void *at, size_t bytes, int advice), (at, bytes, advice))
WRAP(int, -1, mlock, (const void *at, size_t bytes), (at, bytes))
WRAP(int, -1, inotify_init1, (int flags), (flags))
WRAP(int, -1, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask))
WRAP(void *, MAP_FAILED, mmap, (void *at, size_t n, int prot, int flags, int fd, off_t off),
     (at, n, prot, flags, fd, off))
WRAP(ssize_t, -1, pread, (int fd, void *bytes, size_t len, off_t off), (fd, bytes, len, off))
WRAP(ssize_t, -1, pwrite, (int fd, const void *bytes, size_t len, off_t off), (fd, bytes, len, off))
WRAP(DIR *, NULL, fdopendir, (int fd), (fd))

int __real_openat(int fd, const char *name, int flags, ...);
int __wrap_openat(int fd, const char *name, int flags, mode_t mode);
int __wrap_openat(int fd, const char *name, int flags, mode_t mode)
{
    return fails("openat") ? -1 : __real_openat(fd, name, flags, mode);
}

int __real_fcntl(int fd, int command, ...);
int __wrap_fcntl(int fd, int command, void *argument);
int __wrap_fcntl(int fd, int command, void *argument)
{
    return fails("fcntl") ? -1 : __real_fcntl(fd, command, argument);
}

/* ---- what may be left behind ---- */

static int count_entries(const char *path)
{
    DIR *list = opendir(path);
    ck_assert_ptr_nonnull(list);
    int count = 0;
    while (readdir(list) != NULL) {
        count++;
    }
    closedir(list);
    return count;
}

/* Mapped files of the instance. */
static int count_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    ck_assert_ptr_nonnull(maps);
    char line[512];
    int count = 0;
    while (fgets(line, sizeof line, maps) != NULL) {
        count += strstr(line, fixture_dir) != NULL;
    }
    fclose(maps);
    return count;
}

struct left {
    int descriptors;
    int mappings;
    int files;
};

static struct left count_left(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/i%ld", fixture_dir, (long)getpid());
    return (struct left){count_entries("/proc/self/fd"), count_mappings(), count_entries(path)};
}

typedef enum qwp_result (*run_fn)(void *owner); /* the call under test */
typedef void (*undo_fn)(void *owner);           /* after it succeeded */

/* Fails each call in turn. A success with a fault that was survived is fine, too: it must then be a
 * real one, which `undo` takes back. */
static void sweep(run_fn run, undo_fn undo, void *owner, int code)
{
    int faults = 0;
    for (int k = 1;; k++) {
        const struct left before = count_left();
        fault_errno = code;
        fault_name = NULL;
        countdown = k;
        memset(&fixture_err, 0, sizeof fixture_err);
        const enum qwp_result result = run(owner);
        countdown = 0;
        if (result == QWP_OK) {
            undo(owner);
        } else {
            ck_assert_msg(fixture_err.text[0] != '\0', "%s failed without a word", fault_name);
        }
        const struct left after = count_left();
        const char *name = fault_name != NULL ? fault_name : "nothing";
        ck_assert_msg(before.descriptors == after.descriptors, "%s (call %d): descriptors", name,
                      k);
        ck_assert_msg(before.mappings == after.mappings, "%s (call %d): mappings", name, k);
        ck_assert_msg(before.files == after.files, "%s (call %d): files", name, k);
        if (fault_name == NULL) {
            ck_assert_msg(result == QWP_OK, "without a fault: %s", fixture_err.text);
            break;
        }
        faults++;
    }
    ck_assert_int_gt(faults, 1);
}

static const int codes[] = {ENOSPC, EMFILE, EACCES, ENOMEM, EIO};

static struct pair pair;
static struct qwp_control control;
static int fds[2];

static enum qwp_result create_ring(void *owner)
{
    (void)owner;
    const struct qwp_ring_options options = {
        .data_bytes = 65536, .defs_bytes_max = 65536, .lock_memory = true};
    return qwp_ring_create(&pair.tx, fixture_dir_fd, &options, &fixture_err);
}

static void remove_ring(void *owner)
{
    (void)owner;
    ck_assert_int_eq(unlinkat(fixture_dir_fd, pair.tx.file_name, 0), 0);
    qwp_ring_close_tx(&pair.tx);
}

START_TEST(ring_create_with_any_call_failing_leaves_nothing)
{
    sweep(create_ring, remove_ring, NULL, codes[_i]);
}
END_TEST

static enum qwp_result open_ring(void *owner)
{
    (void)owner;
    return qwp_ring_open(&pair.rx, fixture_dir_fd, pair.tx.file_name, &no_limits, &fixture_err);
}

static void close_ring(void *owner)
{
    (void)owner;
    qwp_ring_close_rx(&pair.rx);
}

START_TEST(ring_open_with_any_call_failing_leaves_nothing)
{
    ASSERT_OK(create_ring(NULL));
    sweep(open_ring, close_ring, NULL, codes[_i]);
    qwp_ring_close_tx(&pair.tx);
}
END_TEST

static enum qwp_result create_control(void *owner)
{
    (void)owner;
    const struct qwp_control_options options = {.producers_max = 4};
    return qwp_control_create(&control, fixture_dir_fd, &options, &fixture_err);
}

static void remove_control(void *owner)
{
    (void)owner;
    ck_assert_int_eq(unlinkat(fixture_dir_fd, QWP_CONTROL_FILE, 0), 0);
    qwp_control_close(&control);
}

START_TEST(control_create_with_any_call_failing_leaves_nothing)
{
    sweep(create_control, remove_control, NULL, codes[_i]);
}
END_TEST

static enum qwp_result map_control(void *owner)
{
    return qwp_control_map(owner, fixture_dir_fd, &fixture_err);
}

static void unmap_control(void *owner)
{
    qwp_control_unmap(owner);
}

START_TEST(control_map_with_any_call_failing_leaves_nothing)
{
    struct qwp_control mapped;
    ASSERT_OK(create_control(NULL));
    sweep(map_control, unmap_control, &mapped, codes[_i]);
    qwp_control_close(&control);
}
END_TEST

static enum qwp_result open_bell(void *owner)
{
    return qwp_bell_rx_open(owner, fixture_dir_fd, &control, &fixture_err);
}

static void close_bell(void *owner)
{
    qwp_bell_rx_close(owner);
    ck_assert_int_eq(unlinkat(fixture_dir_fd, QWP_BELL_FILE, 0), 0);
}

START_TEST(fifo_with_any_call_failing_leaves_nothing)
{
    struct qwp_bell_rx bell;
    const struct qwp_control_options options = {.producers_max = 4, .bell_mode = QWP_BELL_FIFO};
    ASSERT_OK(qwp_control_create(&control, fixture_dir_fd, &options, &fixture_err));
    sweep(open_bell, close_bell, &bell, codes[_i]);
    qwp_control_close(&control);
}
END_TEST

static enum qwp_result claim(void *owner)
{
    (void)owner;
    return qwp_rendezvous_claim(fixture_dir_fd, &fds[0], &fds[1], &fixture_err);
}

static void unclaim(void *owner)
{
    (void)owner;
    close(fds[0]);
    close(fds[1]);
}

START_TEST(claim_with_any_call_failing_leaves_nothing)
{
    ASSERT_OK(claim(NULL)); /* the directory and the lock file stay */
    unclaim(NULL);
    sweep(claim, unclaim, NULL, codes[_i]);
}
END_TEST

static enum qwp_result watch(void *owner)
{
    (void)owner;
    return qwp_rendezvous_watch(fixture_dir_fd, &fds[0], &fixture_err);
}

static void unwatch(void *owner)
{
    (void)owner;
    close(fds[0]);
}

START_TEST(watch_with_any_call_failing_leaves_nothing)
{
    sweep(watch, unwatch, NULL, codes[_i]);
}
END_TEST

/* In a directory of its own, inside the instance, so that its files are counted, too. One that was
 * made stays: others may have found it already. */
static void remove_x(const char *dir)
{
    char path[300];
    snprintf(path, sizeof path, "%s/x", dir);
    ck_assert(rmdir(path) == 0 || errno == ENOENT);
}

static enum qwp_result open_directory(void *owner)
{
    const enum qwp_result result = qwp_rendezvous_open(owner, "x", &fds[0], &fixture_err);
    if (result != QWP_OK) {
        countdown = 0;
        remove_x(owner);
    }
    return result;
}

static void remove_directory(void *owner)
{
    close(fds[0]);
    remove_x(owner);
}

START_TEST(rendezvous_open_with_any_call_failing_leaves_nothing)
{
    char path[128];
    snprintf(path, sizeof path, "%s/i%ld", fixture_dir, (long)getpid());
    sweep(open_directory, remove_directory, path, codes[_i]);
}
END_TEST

/* An older kernel: no MADV_POPULATE_*, no RENAME_NOREPLACE. */
START_TEST(calls_that_an_older_kernel_lacks_are_done_without)
{
    char path[128];
    snprintf(path, sizeof path, "%s/i%ld", fixture_dir, (long)getpid());
    for (int k = 1; k < 40; k++) {
        fault_errno = EINVAL;
        fault_name = NULL;
        countdown = k;
        const enum qwp_result result = create_ring(NULL);
        countdown = 0;
        const bool lacks = fault_name != NULL && strcmp(fault_name, "madvise") == 0;
        if (result == QWP_OK) {
            remove_ring(NULL);
        }
        /* The first madvise is DONTFORK, which is needed. */
        ck_assert(!lacks || result == QWP_OK || strstr(fixture_err.text, "forked") != NULL);
    }
    for (int k = 1; k < 20; k++) {
        fault_errno = EINVAL;
        fault_name = NULL;
        countdown = k;
        const enum qwp_result result = open_directory(path);
        countdown = 0;
        if (fault_name != NULL && strcmp(fault_name, "renameat2") == 0) {
            ASSERT_RESULT(result, QWP_OK);
        }
        if (result == QWP_OK) {
            remove_directory(path);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ipc_faults");
    TCase *test_case = fixture_case(suite, "faults");
    const int count = sizeof codes / sizeof codes[0];
    tcase_set_timeout(test_case, 60);
    tcase_add_loop_test(test_case, ring_create_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, ring_open_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, control_create_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, control_map_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, fifo_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, claim_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, watch_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_loop_test(test_case, rendezvous_open_with_any_call_failing_leaves_nothing, 0, count);
    tcase_add_test(test_case, calls_that_an_older_kernel_lacks_are_done_without);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

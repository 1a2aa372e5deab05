/* Aim: producers and sidecar meet in a directory that is safe to meet in, whoever comes first, and
 * one sidecar claims it. Method: real directories on tmpfs; strangers by setuid where we are root.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/ipc/ipc_fixture.h"

enum { NOBODY = 65534 };

static mode_t mode_of(int fd)
{
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    return st.st_mode & 07777;
}

START_TEST(open_makes_both_directories_whatever_the_umask)
{
    char dir[128];
    int fd;
    snprintf(dir, sizeof dir, "%s/made/", fixture_dir);
    umask(0777);
    ASSERT_OK(qwp_rendezvous_open(dir, "prod-1.a_b", &fd, &fixture_err));
    ck_assert_str_eq(fixture_err.text, "");
    ck_assert_uint_eq(mode_of(fd), 03770);
    const int parent = open(dir, O_RDONLY);
    ck_assert_uint_eq(mode_of(parent), 01777);
    int again;
    ASSERT_OK(qwp_rendezvous_open(dir, "prod-1.a_b", &again, &fixture_err));
    struct stat a;
    struct stat b;
    ck_assert_int_eq(fstat(fd, &a), 0);
    ck_assert_int_eq(fstat(again, &b), 0);
    ck_assert_uint_eq(a.st_ino, b.st_ino);
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

START_TEST(open_with_bad_instance_name_is_invalid)
{
    static const char *const names[] = {"",
                                        ".",
                                        "..",
                                        ".x",
                                        "a/b",
                                        "a b",
                                        "a\n",
                                        "\xc3\xa9",
                                        ("12345678901234567890123456789012345678901234567890123456"
                                         "789012345")};
    int fd = -7;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        ASSERT_RESULT(qwp_rendezvous_open(fixture_dir, names[i], &fd, &fixture_err), QWP_INVALID);
    }
    ASSERT_RESULT(qwp_rendezvous_open("", "x", &fd, &fixture_err), QWP_INVALID);
    ck_assert_int_eq(fd, -7);
}
END_TEST

START_TEST(open_without_parent_of_parent_is_io)
{
    char dir[128];
    int fd;
    snprintf(dir, sizeof dir, "%s/no/such", fixture_dir);
    ASSERT_RESULT(qwp_rendezvous_open(dir, "x", &fd, &fixture_err), QWP_IO);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, dir));
}
END_TEST

static const struct qwp_rendezvous_trust any = {.any = true};

START_TEST(open_of_unsafe_directory_is_refused_or_warned_about)
{
    static const struct {
        mode_t mode;
        const char *word;
    } cases[] = {{0770, "sticky"}, {01777, "everyone"}, {0777, "everyone"}};
    int fd;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_int_eq(fchmod(fixture_dir_fd, cases[i].mode), 0);
        char name[32];
        snprintf(name, sizeof name, "i%ld", (long)getpid());
        ASSERT_RESULT(qwp_rendezvous_open(fixture_dir, name, &fd, &fixture_err), QWP_INVALID);
        ck_assert_ptr_nonnull(strstr(fixture_err.text, cases[i].word));
        ck_assert_ptr_nonnull(strstr(fixture_err.text, fixture_dir));
        ASSERT_OK(qwp_rendezvous_open_as(fixture_dir, name, &any, &fd, &fixture_err));
        ck_assert_ptr_nonnull(strstr(fixture_err.text, cases[i].word));
        close(fd);
    }
}
END_TEST

START_TEST(open_of_link_or_file_is_refused_even_by_any)
{
    char path[128];
    char target[128];
    int fd;
    snprintf(path, sizeof path, "%s/l%ld", fixture_dir, (long)getpid());
    snprintf(target, sizeof target, "i%ld", (long)getpid());
    ck_assert_int_eq(symlink(target, path), 0);
    ASSERT_RESULT(
        qwp_rendezvous_open_as(fixture_dir, strrchr(path, '/') + 1, &any, &fd, &fixture_err),
        QWP_INVALID);
    ck_assert_int_eq(unlink(path), 0);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    ASSERT_RESULT(
        qwp_rendezvous_open_as(fixture_dir, strrchr(path, '/') + 1, &any, &fd, &fixture_err),
        QWP_INVALID);
}
END_TEST

START_TEST(open_of_strangers_directory_is_refused)
{
    if (geteuid() != 0) {
        printf("skipped: needs root to give a directory away\n");
        return;
    }
    char name[32];
    int fd;
    snprintf(name, sizeof name, "i%ld", (long)getpid());
    ck_assert_int_eq(fchown(fixture_dir_fd, NOBODY, NOBODY), 0);
    ck_assert_int_eq(fchmod(fixture_dir_fd, 03770), 0);
    ASSERT_RESULT(qwp_rendezvous_open(fixture_dir, name, &fd, &fixture_err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "65534:65534"));
    /* The same owner, but he let us in by a group of ours. */
    ck_assert_int_eq(fchown(fixture_dir_fd, NOBODY, getegid()), 0);
    ck_assert_int_eq(fchmod(fixture_dir_fd, 03770), 0);
    ASSERT_OK(qwp_rendezvous_open(fixture_dir, name, &fd, &fixture_err));
}
END_TEST

START_TEST(open_without_permission_says_so)
{
    char name[32];
    int fd;
    snprintf(name, sizeof name, "i%ld", (long)getpid());
    if (geteuid() != 0) {
        printf("skipped: needs root to become someone else\n");
        return;
    }
    ck_assert_int_eq(chmod(fixture_dir, 0755), 0);
    ck_assert_int_eq(setgid(NOBODY), 0);
    ck_assert_int_eq(setuid(NOBODY), 0);
    ASSERT_RESULT(qwp_rendezvous_open(fixture_dir, name, &fd, &fixture_err), QWP_IO);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "join its group"));
}
END_TEST

START_TEST(claim_is_one_sidecars_alone)
{
    int private_fd;
    int lock_fd;
    int other_private;
    int other_lock;
    umask(0);
    ASSERT_OK(qwp_rendezvous_claim(fixture_dir_fd, &private_fd, &lock_fd, &fixture_err));
    ck_assert_uint_eq(mode_of(private_fd) & 0777, 0700);
    ASSERT_RESULT(qwp_rendezvous_claim(fixture_dir_fd, &other_private, &other_lock, &fixture_err),
                  QWP_AGAIN);
    char pid[32];
    snprintf(pid, sizeof pid, "pid %ld)", (long)getpid());
    ck_assert_ptr_nonnull(strstr(fixture_err.text, pid));
    close(lock_fd);
    ASSERT_OK(qwp_rendezvous_claim(fixture_dir_fd, &other_private, &other_lock, &fixture_err));
}
END_TEST

START_TEST(claim_of_tampered_private_directory_is_refused)
{
    int private_fd;
    int lock_fd;
    ck_assert_int_eq(symlinkat(".", fixture_dir_fd, ".sidecar"), 0);
    ASSERT_RESULT(qwp_rendezvous_claim(fixture_dir_fd, &private_fd, &lock_fd, &fixture_err),
                  QWP_INVALID);
    ck_assert_int_eq(unlinkat(fixture_dir_fd, ".sidecar", 0), 0);
    ck_assert_int_eq(mkdirat(fixture_dir_fd, ".sidecar", 0700), 0);
    ck_assert_int_eq(fchmodat(fixture_dir_fd, ".sidecar", 0750, 0), 0);
    ASSERT_RESULT(qwp_rendezvous_claim(fixture_dir_fd, &private_fd, &lock_fd, &fixture_err),
                  QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "0750"));
}
END_TEST

START_TEST(scan_names_rings_only)
{
    struct pair pair;
    struct names names = {0};
    pair_open(&pair);
    static const char *const others[] = {"control", ".tmp-1", ".x.ring", "x.rin", ".ring", "ring"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        close(openat(fixture_dir_fd, others[i], O_CREAT | O_WRONLY, 0600));
    }
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, 1);
    ck_assert_str_eq(names.last, pair.tx.file_name);
    /* And once more: the directory's position is not ours. */
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, 2);
    pair_close(&pair);
}
END_TEST

static struct names read_events(int inotify_fd)
{
    struct names names = {0};
    char events[4096];
    const ssize_t n = read(inotify_fd, events, sizeof events);
    if (n > 0) {
        qwp_rendezvous_events(events, (size_t)n, names_add, &names);
    }
    return names;
}

START_TEST(watch_tells_of_new_rings_and_of_dead_producers)
{
    int inotify_fd;
    struct qwp_ring_tx tx;
    ASSERT_OK(qwp_rendezvous_watch(fixture_dir_fd, &inotify_fd, &fixture_err));
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, NULL, &fixture_err));
    struct names names = read_events(inotify_fd);
    ck_assert_int_eq(names.count, 1);
    ck_assert_str_eq(names.last, tx.file_name);
    qwp_ring_close_tx(&tx);
    names = read_events(inotify_fd);
    ck_assert_int_eq(names.count, 1);

    const pid_t child = fork();
    if (child == 0) {
        if (qwp_ring_create(&tx, fixture_dir_fd, NULL, NULL) == QWP_OK) {
            raise(SIGKILL);
        }
        _exit(1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    names = read_events(inotify_fd);
    ck_assert_int_eq(names.count, 2);
    struct qwp_ring_rx rx;
    ASSERT_OK(qwp_ring_open(&rx, fixture_dir_fd, names.last, &no_limits, &fixture_err));
    ck_assert(qwp_ring_is_orphan(&rx));
    qwp_ring_close_rx(&rx);
    close(inotify_fd);
}
END_TEST

START_TEST(events_that_overflowed_ask_for_a_rescan)
{
    struct names names = {0};
    struct inotify_event overflow = {.wd = -1, .mask = IN_Q_OVERFLOW};
    qwp_rendezvous_events(&overflow, sizeof overflow, names_add, &names);
    ck_assert_int_eq(names.overflows, 1);
    /* Cut short: nothing is read beyond. */
    qwp_rendezvous_events(&overflow, sizeof overflow - 1, names_add, &names);
    overflow.len = 16;
    qwp_rendezvous_events(&overflow, sizeof overflow, names_add, &names);
    ck_assert_int_eq(names.overflows, 1);
}
END_TEST

START_TEST(sweep_removes_what_the_dead_left)
{
    struct pair pair;
    pair_open(&pair);
    close(openat(fixture_dir_fd, ".tmp-dead", O_CREAT | O_WRONLY, 0600));
    const int fd = openat(fixture_dir_fd, ".tmp-alive", O_CREAT | O_WRONLY, 0600);
    ck_assert_int_eq(flock(fd, LOCK_EX), 0);
    ck_assert_int_eq(mkfifoat(fixture_dir_fd, ".tmp-fifo", 0600), 0);
    qwp_rendezvous_sweep(fixture_dir_fd);
    ck_assert_int_ne(faccessat(fixture_dir_fd, ".tmp-dead", F_OK, 0), 0);
    ck_assert_int_ne(faccessat(fixture_dir_fd, ".tmp-fifo", F_OK, 0), 0);
    ck_assert_int_eq(faccessat(fixture_dir_fd, ".tmp-alive", F_OK, 0), 0);
    ck_assert_int_eq(faccessat(fixture_dir_fd, pair.tx.file_name, F_OK, 0), 0);
    pair_close(&pair);
}
END_TEST

/* Makers and a sweeper race: every ring that is made is there. */
START_TEST(sweep_against_makers_loses_no_ring)
{
    enum { ROUNDS = 200 };
    const pid_t child = fork();
    if (child == 0) {
        for (;;) {
            qwp_rendezvous_sweep(fixture_dir_fd);
        }
    }
    for (int i = 0; i < ROUNDS; i++) {
        struct pair pair;
        pair_open(&pair);
        ck_assert_uint_eq(pair.rx.data_bytes, QWP_RING_DATA_BYTES_MIN);
        pair_close(&pair);
    }
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    struct names names = {0};
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, ROUNDS);
}
END_TEST

/* ---- control file ---- */

START_TEST(control_is_mapped_read_only_by_others)
{
    struct sidecar sidecar;
    struct qwp_control control;
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_AGAIN);
    sidecar_open(&sidecar, QWP_BELL_FUTEX, false);
    ASSERT_OK(qwp_control_map(&control, fixture_dir_fd, &fixture_err));
    ck_assert_uint_eq(atomic_load(&control.header->gen), atomic_load(&sidecar.control.header->gen));
    ck_assert_int_eq(fcntl(control.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    atomic_store(&qwp_control_producer_at(&sidecar.control, 3)->rows_stored, 42);
    ck_assert_uint_eq(atomic_load(&qwp_control_producer_at(&control, 3)->rows_stored), 42);
    ck_assert(qwp_control_is_live(&control));
    sidecar_close(&sidecar);
    ck_assert(!qwp_control_is_live(&control));
    ck_assert_uint_eq(atomic_load(&control.header->state), QWP_SIDECAR_GONE);
    qwp_control_unmap(&control);
    qwp_control_unmap(&control);
    ck_assert(!qwp_control_is_live(&control));
}
END_TEST

START_TEST(control_is_not_live_after_kill)
{
    int ready[2];
    ck_assert_int_eq(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        struct sidecar sidecar;
        sidecar_open(&sidecar, QWP_BELL_FUTEX, false);
        (void)!write(ready[1], "x", 1);
        pause();
    }
    char c;
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    struct qwp_control control;
    ASSERT_OK(qwp_control_map(&control, fixture_dir_fd, &fixture_err));
    ck_assert(qwp_control_is_live(&control));
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    ck_assert(!qwp_control_is_live(&control));
    qwp_control_unmap(&control);
}
END_TEST

START_TEST(control_of_each_life_is_a_new_file)
{
    struct sidecar first;
    struct sidecar second;
    struct qwp_control before;
    struct qwp_control after;
    sidecar_open(&first, QWP_BELL_FUTEX, false);
    ASSERT_OK(qwp_control_map(&before, fixture_dir_fd, &fixture_err));
    sidecar_close(&first);
    sidecar_open(&second, QWP_BELL_FUTEX, false);
    ASSERT_OK(qwp_control_map(&after, fixture_dir_fd, &fixture_err));
    ck_assert_uint_ne(atomic_load(&before.header->gen), atomic_load(&after.header->gen));
    ck_assert(!qwp_control_is_live(&before));
    ck_assert(qwp_control_is_live(&after));
    qwp_control_unmap(&before);
    qwp_control_unmap(&after);
    sidecar_close(&second);
}
END_TEST

START_TEST(control_of_unknown_major_names_both)
{
    struct sidecar sidecar;
    struct qwp_control control;
    sidecar_open(&sidecar, QWP_BELL_FUTEX, false);
    atomic_store(&sidecar.control.header->major, 5);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "5.4"));
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "1.x"));
    sidecar_close(&sidecar);
}
END_TEST

START_TEST(control_that_is_garbage_is_corrupt)
{
    struct sidecar sidecar;
    struct qwp_control control;
    sidecar_open(&sidecar, QWP_BELL_FUTEX, false);
    struct qwp_control_header *header = sidecar.control.header;
    atomic_store(&header->producers_max, 5);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_CORRUPT);
    atomic_store(&header->producers_max, UINT32_MAX);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_CORRUPT);
    atomic_store(&header->producers_max, 4);
    atomic_store(&header->magic, 1);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_CORRUPT);
    atomic_store(&header->magic, QWP_CONTROL_MAGIC);
    ASSERT_OK(qwp_control_map(&control, fixture_dir_fd, &fixture_err));
    qwp_control_unmap(&control);
    ck_assert_int_eq(ftruncate(sidecar.control.fd, 100), 0);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_CORRUPT);
    ck_assert_int_eq(unlinkat(fixture_dir_fd, QWP_CONTROL_FILE, 0), 0);
    ck_assert_int_eq(mkfifoat(fixture_dir_fd, QWP_CONTROL_FILE, 0600), 0);
    ASSERT_RESULT(qwp_control_map(&control, fixture_dir_fd, &fixture_err), QWP_CORRUPT);
}
END_TEST

START_TEST(control_with_odd_options_is_invalid)
{
    struct qwp_control control;
    struct qwp_control_options options = {.producers_max = 0};
    ASSERT_RESULT(qwp_control_create(&control, fixture_dir_fd, &options, &fixture_err),
                  QWP_INVALID);
    options.producers_max = UINT32_MAX;
    ASSERT_RESULT(qwp_control_create(&control, fixture_dir_fd, &options, &fixture_err),
                  QWP_INVALID);
    qwp_control_close(&control);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("rendezvous");
    TCase *test_case = fixture_case(suite, "directory");
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, open_makes_both_directories_whatever_the_umask);
    tcase_add_test(test_case, open_with_bad_instance_name_is_invalid);
    tcase_add_test(test_case, open_without_parent_of_parent_is_io);
    tcase_add_test(test_case, open_of_unsafe_directory_is_refused_or_warned_about);
    tcase_add_test(test_case, open_of_link_or_file_is_refused_even_by_any);
    tcase_add_test(test_case, open_of_strangers_directory_is_refused);
    tcase_add_test(test_case, open_without_permission_says_so);
    tcase_add_test(test_case, claim_is_one_sidecars_alone);
    tcase_add_test(test_case, claim_of_tampered_private_directory_is_refused);
    tcase_add_test(test_case, scan_names_rings_only);
    tcase_add_test(test_case, watch_tells_of_new_rings_and_of_dead_producers);
    tcase_add_test(test_case, events_that_overflowed_ask_for_a_rescan);
    tcase_add_test(test_case, sweep_removes_what_the_dead_left);
    tcase_add_test(test_case, sweep_against_makers_loses_no_ring);
    test_case = fixture_case(suite, "control");
    tcase_add_test(test_case, control_is_mapped_read_only_by_others);
    tcase_add_test(test_case, control_is_not_live_after_kill);
    tcase_add_test(test_case, control_of_each_life_is_a_new_file);
    tcase_add_test(test_case, control_of_unknown_major_names_both);
    tcase_add_test(test_case, control_that_is_garbage_is_corrupt);
    tcase_add_test(test_case, control_with_odd_options_is_invalid);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: a system call of the store that fails costs time and nothing else: no frame is lost or
 * changed, no crash, no file left over, and the budget comes back to its exact value.
 * Method: one thread works on a slot through a table of system calls in which call k fails, for
 * k = 1, 2, ... until no call is left to fail; with each of several errors, one failure or a row of
 * them, and short writes. Time is the table's, so that waiting costs none. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/wire/qwp_wire.h"
#include "tests/core/fault_fixture.h"
#include "tests/core/store_fixture.h"

static char dir[256];
static char slot[300];

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/slot", dir);
}

static void teardown(void)
{
    store_dir_remove(dir);
}

/* --- the work --- */

enum { ROUNDS = 14, FRAMES = ROUNDS + 1, PATIENCE = 400 };

static struct qwp_seglog_options options_make(bool periodic)
{
    struct qwp_seglog_options options = store_options(slot);
    options.total_bytes_max = 5 * 64 * 1024;
    options.durability = periodic ? QWP_DURABILITY_PERIODIC : QWP_DURABILITY_MEMORY;
    options.sync_interval_ns = QWP_NS_PER_MS;
    options.sys = &fault_sys;
    return options;
}

static void keep(struct qwp_seglog *log, int steps)
{
    bool more;
    int64_t next_ns;
    while (steps-- > 0) {
        qwp_seglog_maintain(log, fault_clock_ns(), &more, &next_ns);
    }
}

/* Appends what a frame needs however often it takes. */
static void append(struct qwp_seglog *log, size_t len, struct qwp_seglog_cursor *cursor)
{
    char text[24];
    uint32_t id;
    const uint64_t fsn = qwp_seglog_next_fsn(log);
    snprintf(text, sizeof text, "symbol %llu", (unsigned long long)fsn);
    ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, strlen(text), &id), QWP_OK);
    for (int i = 0; i < PATIENCE; i++) {
        struct qwp_error err = {0};
        enum qwp_result result = qwp_seglog_persist_dict(log, &err);
        if (result == QWP_OK) {
            result = store_append(log, len);
        }
        if (result == QWP_OK) {
            return;
        }
        store_read_all(log, cursor);
        if (cursor->fsn > 0) {
            qwp_seglog_ack(log, cursor->fsn - 1);
        }
        keep(log, 5);
    }
    ck_abort_msg("frame %llu could not be stored", (unsigned long long)fsn);
}

static void work(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor)
{
    for (int i = 0; i < ROUNDS; i++) {
        append(log, i % 5 == 4 ? 70000 : 20000, cursor);
        keep(log, 7);
        if (i % 3 == 2) {
            store_read_all(log, cursor);
            qwp_seglog_ack(log, cursor->fsn - 1);
            keep(log, 20);
        }
    }
}

static void check_exact(struct qwp_seglog *log)
{
    fault_set(0, 0, 0);
    keep(log, 400);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    const struct store_files files = store_files_count(slot);
    ck_assert_uint_eq(files.unready, 0);
    ck_assert_uint_eq(files.corrupt, 0);
    ck_assert_uint_eq(stats.bytes_total, files.segment_bytes);
    ck_assert_uint_eq(stats.segments_active + stats.segments_sealed + stats.segments_spare,
                      files.segments);
    ck_assert_uint_le(stats.bytes_total, 5 * 64 * 1024);
}

/* Work, close, open again, read what is left. Returns the calls made. */
static unsigned long life(bool periodic, unsigned long from, unsigned long count, int error)
{
    fault_set(0, 0, 0);
    const struct qwp_seglog_options options = options_make(periodic);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    fault_set(from, count, error);
    work(log, &cursor);
    const unsigned long calls = fault.calls;
    fault_set(0, 0, 0);
    append(log, 70000, &cursor); /* made by the writer, which clears up first what it left */
    check_exact(log);
    store_read_all(log, &cursor);
    ck_assert_uint_eq(cursor.fsn, FRAMES);
    qwp_seglog_ack(log, FRAMES - 3); /* or more, where a frame had to wait for it */
    const uint64_t acked = qwp_seglog_acked_count(log);
    keep(log, 100);
    check_exact(log);
    qwp_seglog_close(log);
    log = store_open(&options);
    ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
    ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols, FRAMES);
    ck_assert_uint_eq(qwp_seglog_acked_count(log), acked);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), FRAMES - acked);
    check_exact(log);
    qwp_seglog_close(log);
    store_dir_remove(slot);
    return calls;
}

static const int errors[] = {EIO, ENOSPC, EINTR, FAULT_SHORT};

START_TEST(faults_of_each_call_while_working)
{
    const int error = errors[_i % 4];
    const bool periodic = _i >= 4;
    const unsigned long calls = life(periodic, 0, 0, 0);
    ck_assert_uint_gt(calls, 60);
    for (unsigned long k = 1; k <= calls; k++) {
        life(periodic, k, 1, error);
    }
    printf("%lu calls, each failed once with %s\n", calls,
           error == FAULT_SHORT ? "a short transfer" : strerror(error));
}
END_TEST

START_TEST(faults_in_a_row_while_working)
{
    const int error = errors[_i % 2];
    const unsigned long calls = life(true, 0, 0, 0);
    for (unsigned long k = 1; k <= calls; k += 3) {
        life(true, k, 2 + k % 60, error);
    }
}
END_TEST

/* Leaves a slot that has all to recover from: a torn tail, a spare, leftovers, a half-made segment,
 * a dictionary that is behind. */
static void slot_prepare(void)
{
    fault_set(0, 0, 0);
    const struct qwp_seglog_options options = options_make(false);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    for (int i = 0; i < 8; i++) {
        append(log, 20000, &cursor);
        keep(log, 10);
    }
    unsigned char *at;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, 100, 100, &at, &room, NULL), QWP_OK);
    memset(at, 0xdd, 100);
    char command[1200];
    snprintf(command, sizeof command, "cp -r %s %s.crashed && touch %s.crashed/sf-77.sfa.new", slot,
             slot, slot);
    ck_assert_int_eq(system(command), 0); /* what a kill would leave */
    qwp_seglog_close(log);
    store_dir_remove(slot);
    char crashed[400];
    snprintf(crashed, sizeof crashed, "%s.crashed", slot);
    ck_assert_int_eq(rename(crashed, slot), 0);
}

START_TEST(faults_of_each_call_while_opening)
{
    const int error = errors[_i % 4];
    const struct qwp_seglog_options options = options_make(_i >= 4);
    unsigned long refused = 0;
    unsigned long calls = 0;
    for (unsigned long k = 1; calls == 0; k++) {
        slot_prepare();
        fault_set(k, 1, error);
        struct qwp_seglog *log = NULL;
        struct qwp_error err = {0};
        const enum qwp_result result = qwp_seglog_open(&log, &options, &err);
        if (fault.calls < k) {
            calls = k - 1;
        }
        if (result != QWP_OK) {
            ck_assert_msg(err.text[0] != '\0', "call %lu: no text", k);
            ck_assert_msg(error != EINTR && error != FAULT_SHORT, "call %lu: %s", k, err.text);
            refused++;
        } else {
            qwp_seglog_close(log);
        }
        fault_set(0, 0, 0);
        log = store_open(&options);
        struct qwp_seglog_cursor cursor = {0};
        ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols, 8);
        ck_assert_msg(store_read_all(log, &cursor) == 8, "call %lu: a frame is lost", k);
        check_exact(log);
        qwp_seglog_close(log);
        store_dir_remove(slot);
    }
    printf("%lu calls, %lu of them refused the slot\n", calls, refused);
}
END_TEST

enum { OLD = 6, DAMAGED = 3 };

/* One frame to a segment; one in the middle, which open does not read, is damaged. */
static void damaged_prepare(const struct qwp_seglog_options *options)
{
    struct qwp_seglog *log = store_open(options);
    for (int i = 0; i < OLD; i++) {
        ck_assert_int_eq(store_append(log, 40000), QWP_OK);
    }
    qwp_seglog_close(log);
    DIR *list = opendir(slot);
    ck_assert_ptr_nonnull(list);
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        unsigned char header[24];
        char path[700];
        snprintf(path, sizeof path, "%s/%.200s", slot, entry->d_name);
        const int fd = strstr(path, ".sfa") != NULL ? open(path, O_RDWR) : -1;
        if (fd >= 0 && pread(fd, header, sizeof header, 0) == sizeof header &&
            qwp_load_u64(header + 8) == DAMAGED) {
            ck_assert_int_eq(pwrite(fd, "damage", 6, 1000), 6);
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    closedir(list);
}

/* By the table's clock only. */
static uint64_t deliver(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor)
{
    uint64_t count = 0;
    for (int i = 0; i < 10; i++) {
        struct qwp_frame frame;
        while (qwp_seglog_next(log, cursor, &frame) == QWP_OK) {
            ck_assert(store_filled(frame.payload, frame.len, frame.fsn));
            count++;
        }
        keep(log, 2);
    }
    if (count > 0) {
        qwp_seglog_ack(log, cursor->fsn - 1);
    }
    keep(log, 30);
    return count;
}

static unsigned long life_damaged(bool periodic, unsigned long from, int error)
{
    fault_set(0, 0, 0);
    struct qwp_seglog_options options = options_make(periodic);
    options.total_bytes_max = 12 * 64 * 1024;
    damaged_prepare(&options);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    fault_set(from, 1, error);
    uint64_t count = 0;
    for (int i = 0; i < PATIENCE && qwp_seglog_acked_count(log) < OLD; i++) {
        if (i == 0) {
            ck_assert_int_eq(store_append(log, 1000), QWP_OK);
        }
        count += deliver(log, &cursor);
    }
    count += deliver(log, &cursor);
    const unsigned long calls = fault.calls;
    fault_set(0, 0, 0);
    ck_assert_msg(count == DAMAGED + 1 && qwp_seglog_acked_count(log) == OLD + 1,
                  "call %lu: %llu frames", from, (unsigned long long)count);
    keep(log, 400);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    const struct store_files files = store_files_count(slot);
    ck_assert_uint_eq(stats.bytes_total, files.segment_bytes);
    ck_assert_uint_eq(files.unready, 0);
    ck_assert_msg(files.corrupt == 3, "call %lu: %u files set aside", from, files.corrupt);
    qwp_seglog_close(log);
    log = store_open(&options);
    ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
    ck_assert_uint_eq(qwp_seglog_recovered(log)->next_fsn, OLD + 1);
    ck_assert_uint_eq(qwp_seglog_recovered(log)->frames_waiting, 0);
    qwp_seglog_close(log);
    store_dir_remove(slot);
    return calls;
}

START_TEST(faults_of_each_call_while_damage_is_found)
{
    const int error = errors[_i % 4];
    const unsigned long calls = life_damaged(_i >= 4, 0, 0);
    ck_assert_uint_gt(calls, 20);
    for (unsigned long k = 1; k <= calls; k++) {
        life_damaged(_i >= 4, k, error);
    }
    printf("%lu calls, each failed once\n", calls);
}
END_TEST

/* A store that cannot be written says so, keeps what it has readable, and goes on by itself. */
START_TEST(faults_full_disk_is_an_alarm_and_not_the_end)
{
    fault_set(0, 0, 0);
    const struct qwp_seglog_options options = options_make(false);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    uint64_t stored = 0;
    fault_set(1, 1000000, ENOSPC);
    struct qwp_error err = {0};
    while (store_append(log, 20000) == QWP_OK) {
        stored++;
        keep(log, 10);
    }
    unsigned char *at;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, 20000, 20000, &at, &room, &err), QWP_AGAIN);
    ck_assert_int_eq(err.sys_errno, ENOSPC);
    ck_assert_msg(strstr(err.text, slot) != NULL, "'%s' does not name the store", err.text);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_gt(stats.failures, 0);
    ck_assert_int_eq(qwp_seglog_keeper_error(log)->sys_errno, ENOSPC);
    ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_NO_SPARE);
    ck_assert_uint_eq(store_read_all(log, &cursor), stored); /* sending goes on */
    fault_set(0, 0, 0);
    const int64_t from_ns = fault.clock_ns;
    while (store_append(log, 20000) != QWP_OK) {
        keep(log, 1);
    }
    ck_assert_int_lt(fault.clock_ns - from_ns, QWP_NS_PER_S);
    qwp_seglog_close(log);
}
END_TEST

/* The same with a file system that is really full, on which a store to a hole would be a SIGBUS. */
START_TEST(faults_full_file_system_never_is_a_signal)
{
    char mount_point[300];
    snprintf(mount_point, sizeof mount_point, "%s/mount", dir);
    ck_assert_int_eq(mkdir(mount_point, 0700), 0);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", mount_point, "tmpfs", 0, "size=2m") != 0) {
        printf("skipped: no file system of our own can be mounted here: %s\n", strerror(errno));
        return;
    }
    char path[400];
    snprintf(path, sizeof path, "%s/slot", mount_point);
    struct qwp_seglog_options options = options_make(false);
    options.dir = path;
    options.sys = NULL;
    options.total_bytes_max = 64 * 1024 * 1024;
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    uint64_t stored = 0;
    for (int round = 0; round < 3; round++) {
        char filler[400];
        snprintf(filler, sizeof filler, "%s/filler", mount_point);
        const int fd = open(filler, O_WRONLY | O_CREAT, 0600);
        static const char block[4096];
        while (write(fd, block, sizeof block) > 0) {
        }
        close(fd);
        struct qwp_error err = {0};
        bool more;
        int64_t next_ns;
        for (;;) {
            char text[24];
            uint32_t id;
            snprintf(text, sizeof text, "symbol %llu", (unsigned long long)stored);
            ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, strlen(text), &id),
                             QWP_OK);
            unsigned char *at;
            size_t room;
            if (qwp_seglog_persist_dict(log, &err) != QWP_OK ||
                qwp_seglog_reserve(log, 9000, 9000, &at, &room, &err) != QWP_OK) {
                break;
            }
            store_fill(at, 9000, qwp_seglog_next_fsn(log));
            qwp_seglog_finish(log, 9000, 9000, NULL);
            qwp_seglog_publish(log);
            stored++;
            qwp_seglog_maintain(log, qwp_clock_monotonic_ns(), &more, &next_ns);
        }
        ck_assert_int_eq(err.sys_errno, ENOSPC);
        store_read_all(log, &cursor); /* sending goes on */
        ck_assert_uint_eq(cursor.fsn, stored);
        ck_assert_int_eq(unlink(filler), 0);
        if (stored > 0) {
            qwp_seglog_ack(log, stored - 1);
        }
        const int64_t from_ns = qwp_clock_monotonic_ns();
        while (store_append(log, 9000) != QWP_OK) {
            qwp_seglog_maintain(log, qwp_clock_monotonic_ns(), &more, &next_ns);
            ck_assert_int_lt(qwp_clock_monotonic_ns() - from_ns, 60 * (int64_t)QWP_NS_PER_S);
        }
        stored++;
    }
    store_read_all(log, &cursor);
    ck_assert_uint_eq(cursor.fsn, stored);
    qwp_seglog_close(log);
    umount(mount_point);
}
END_TEST

/* What a failed sync covered is never claimed, however many syncs succeed later. */
START_TEST(faults_failed_sync_is_not_claimed_later)
{
    fault_set(0, 0, 0);
    struct qwp_seglog_options options = options_make(true);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    struct qwp_seglog_stats stats;
    ck_assert_int_eq(store_append(log, 1000), QWP_OK);
    keep(log, 30);
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.synced_count, 1);
    ck_assert_int_eq(store_append(log, 1000), QWP_OK);
    fault_set(1, 8, EIO);
    keep(log, 12);
    ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_FAILING);
    ck_assert_msg(strstr(qwp_seglog_keeper_error(log)->text, "cannot sync") != NULL, "%s",
                  qwp_seglog_keeper_error(log)->text);
    fault_set(0, 0, 0);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(store_append(log, 20000), QWP_OK);
        keep(log, 60);
    }
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_gt(stats.sync_failures, 0);
    ck_assert_uint_eq(stats.synced_count, 1);
    ck_assert_uint_eq(stats.unsynced_count, 6);
    ck_assert_uint_ge(stats.segments_suspect, 1);
    ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_WELL); /* later syncs worked */
    /* Acknowledged, it does not matter any more. */
    ck_assert_uint_eq(store_read_all(log, &cursor), 7);
    qwp_seglog_ack(log, 6);
    keep(log, 60);
    ck_assert_int_eq(store_append(log, 60000), QWP_OK);
    keep(log, 60);
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.synced_count, 8);
    ck_assert_uint_eq(stats.unsynced_count, 0);
    ck_assert_uint_eq(stats.segments_suspect, 0);
    qwp_seglog_close(log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog faults");
    TCase *tcase = tcase_create("faults");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, faults_of_each_call_while_working, 0, 8);
    tcase_add_loop_test(tcase, faults_in_a_row_while_working, 0, 2);
    tcase_add_loop_test(tcase, faults_of_each_call_while_opening, 0, 8);
    tcase_add_loop_test(tcase, faults_of_each_call_while_damage_is_found, 0, 8);
    tcase_add_test(tcase, faults_full_disk_is_an_alarm_and_not_the_end);
    tcase_add_test(tcase, faults_full_file_system_never_is_a_signal);
    tcase_add_test(tcase, faults_failed_sync_is_not_claimed_later);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

/* Aim: the segment log keeps what was published, in order, through rotations, large frames, full
 * budgets and reopening; reads slots of other clients; and has pages before they are written to.
 * Method: one thread plays writer, reader and keeper; every byte of every frame is checked. */
#include "core/store/qwp_seglog.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/store/qwp_make.h"
#include "core/store/qwp_store_layout.h"
#include "tests/core/store_fixture.h"

static char dir[256];
static char slot[300];

static void setup(void)
{
    store_dir_make(dir, sizeof dir, false);
    snprintf(slot, sizeof slot, "%s/slot", dir);
}

static void setup_shm(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/slot", dir);
}

static void teardown(void)
{
    store_dir_remove(dir);
}

/* --- append, read, acknowledge --- */

START_TEST(seglog_fresh_slot_is_empty)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    struct qwp_frame frame;
    qwp_seglog_rewind(log, &cursor);
    ck_assert_int_eq(qwp_seglog_next(log, &cursor, &frame), QWP_AGAIN);
    ck_assert_uint_eq(qwp_seglog_next_fsn(log), 0);
    ck_assert_uint_eq(qwp_seglog_acked_count(log), 0);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.segments_spare, 1);
    ck_assert_uint_eq(stats.bytes_total, 2 * 64 * 1024);
    qwp_seglog_close(log);
    const struct store_files files = store_files_count(slot);
    ck_assert_uint_eq(files.segments, 1);
    ck_assert_uint_eq(files.unready, 0);
}
END_TEST

START_TEST(seglog_many_rotations_keep_every_frame)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    uint64_t read = 0;
    uint64_t seed = 12345;
    for (int round = 0; round < 400; round++) {
        for (int i = 0; i < 5; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            ck_assert_int_eq(store_append(log, 1 + (seed >> 33) % 9000), QWP_OK);
        }
        read += store_read_all(log, &cursor);
        ck_assert_uint_eq(read, qwp_seglog_published_count(log));
        if (round % 3 == 2) {
            qwp_seglog_ack(log, read - 1 - (uint64_t)(round % 2));
        }
        store_settle(log);
    }
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_gt(stats.rotations, 100);
    ck_assert_uint_eq(stats.rotations_without_spare, 0);
    ck_assert_uint_gt(stats.recycled, 50);
    ck_assert_uint_eq(store_files_count(slot).segment_bytes, stats.bytes_total);
    ck_assert_uint_eq(store_files_count(slot).segments,
                      stats.segments_active + stats.segments_sealed + stats.segments_spare);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_rewind_goes_back_to_the_first_unacknowledged)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    for (int i = 0; i < 30; i++) {
        ck_assert_int_eq(store_append(log, 10000), QWP_OK);
    }
    ck_assert_uint_eq(store_read_all(log, &cursor), 30);
    qwp_seglog_ack(log, 16);
    qwp_seglog_rewind(log, &cursor);
    ck_assert_uint_eq(cursor.fsn, 17);
    store_settle(log); /* segments before it go */
    ck_assert_uint_eq(store_read_all(log, &cursor), 13);
    /* A cursor without a segment is found by its number; one that is behind is moved up. */
    struct qwp_seglog_cursor by_fsn = {.fsn = 25};
    ck_assert_uint_eq(store_read_all(log, &by_fsn), 5);
    struct qwp_seglog_cursor behind = {.fsn = 3};
    ck_assert_uint_eq(store_read_all(log, &behind), 13);
    qwp_seglog_ack(log, 29);
    qwp_seglog_ack(log, 5); /* never goes back */
    ck_assert_uint_eq(qwp_seglog_acked_count(log), 30);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_frame_larger_than_a_segment_gets_its_own)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_int_eq(store_append(log, 100), QWP_OK);
    ck_assert_int_eq(store_append(log, 300 * 1024), QWP_OK);
    ck_assert_int_eq(store_append(log, 64 * 1024), QWP_OK);
    ck_assert_int_eq(store_append(log, 64 * 1024 - 32), QWP_OK); /* fills a segment to the byte */
    ck_assert_int_eq(store_append(log, 64 * 1024 - 31), QWP_OK); /* one too many */
    ck_assert_int_eq(store_append(log, 100), QWP_OK);
    ck_assert_uint_eq(store_read_all(log, &cursor), 6);
    qwp_seglog_close(log);
    log = store_open(&options);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 6);
    qwp_seglog_ack(log, 5);
    store_settle(log);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.segments_sealed, 0);
    ck_assert_uint_eq(stats.bytes_total, (68 + stats.segments_spare * 64) * 1024);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_first_frame_larger_than_a_segment_is_recovered)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    ck_assert_int_eq(store_append(log, 200 * 1024), QWP_OK);
    qwp_seglog_close(log);
    log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 1);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_room_is_what_the_segment_still_has)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    unsigned char *at;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, 10, 1 << 20, &at, &room, NULL), QWP_OK);
    ck_assert_uint_eq(room, 64 * 1024 - 24 - 8);
    memset(at, 0xaa, 5000);
    qwp_seglog_abandon(log, 5000);
    ck_assert_int_eq(qwp_seglog_reserve(log, 10, 1000, &at, &room, NULL), QWP_OK);
    ck_assert_uint_eq(room, 1000);
    for (size_t i = 0; i < 5000; i++) {
        ck_assert_uint_eq(at[i], 0); /* what was given up is gone */
    }
    memset(at, 0xbb, 900);
    qwp_seglog_finish(log, 100, 900, NULL);
    ck_assert_uint_eq(qwp_seglog_publish(log), 0);
    for (size_t i = 100; i < 1000; i++) {
        ck_assert_uint_eq(at[i], 0);
    }
    struct qwp_error err;
    ck_assert_int_eq(qwp_seglog_reserve(log, 0, 10, &at, &room, &err), QWP_INVALID);
    ck_assert_int_eq(qwp_seglog_reserve(log, (size_t)1 << 31, (size_t)1 << 31, &at, &room, &err),
                     QWP_LIMIT);
    qwp_seglog_close(log);
}
END_TEST

/* Behind the header of a segment that waits for its use there is nothing. */
static unsigned check_spares(void)
{
    unsigned spares = 0;
    DIR *list = opendir(slot);
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        static unsigned char bytes[64 * 1024];
        static const unsigned char zeros[64 * 1024];
        if (strstr(entry->d_name, QWP_SEGMENT_SUFFIX) == NULL) {
            continue;
        }
        const int fd = openat(dirfd(list), entry->d_name, O_RDONLY);
        ck_assert_int_eq(pread(fd, bytes, sizeof bytes, 0), sizeof bytes);
        close(fd);
        if (qwp_load_u64(bytes + QWP_SEGMENT_BASE_OFF) == QWP_SPARE_BASE) {
            ck_assert_mem_eq(bytes + QWP_SEGMENT_HEADER_BYTES, zeros,
                             sizeof zeros - QWP_SEGMENT_HEADER_BYTES);
            spares++;
        }
    }
    closedir(list);
    return spares;
}

START_TEST(seglog_spares_are_zero)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < 40; i++) {
        ck_assert_int_eq(store_append(log, 13000), QWP_OK);
        qwp_seglog_ack(log, (uint64_t)i);
        store_settle(log);
    }
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_gt(stats.recycled, 3);
    ck_assert_uint_eq(check_spares(), stats.segments_spare);
    qwp_seglog_close(log);
}
END_TEST

/* --- pages --- */

enum { POPULATED_MAX = 256 };

static struct {
    unsigned char *at[POPULATED_MAX];
    size_t len[POPULATED_MAX];
    unsigned count;
} populated;

static int note_madvise(void *at, size_t len, int advice)
{
    if (advice == QWP_POPULATE_WRITE) {
        ck_assert_uint_lt(populated.count, POPULATED_MAX);
        populated.at[populated.count] = at;
        populated.len[populated.count++] = len;
    }
    return qwp_sys_real.madvise(at, len, advice);
}

static bool is_populated(const unsigned char *at, size_t len)
{
    size_t have = 0;
    for (unsigned i = 0; i < populated.count; i++) {
        const unsigned char *end = populated.at[i] + populated.len[i];
        if (at + have >= populated.at[i] && at + have < end) {
            have = (size_t)(end - at);
        }
    }
    return have >= len;
}

/* The first segment's too, which the writer made in a hurry; on a disk and in memory. */
START_TEST(seglog_pages_are_there_before_the_frames)
{
    enum { SEGMENT_BYTES = 1024 * 1024, FRAME_BYTES = 10000 };
    populated.count = 0;
    struct qwp_sys sys = qwp_sys_real;
    sys.madvise = note_madvise;
    struct qwp_seglog_options options = store_options(slot);
    options.sys = &sys;
    options.segment_bytes = SEGMENT_BYTES;
    options.total_bytes_max = 8 * SEGMENT_BYTES;
    options.payload_crc = _i == 0;
    struct qwp_seglog *log = store_open(&options);
    for (unsigned i = 0; i < 5 * SEGMENT_BYTES / (2 * FRAME_BYTES); i++) {
        store_settle(log);
        unsigned char *at;
        size_t room;
        ck_assert_int_eq(qwp_seglog_reserve(log, FRAME_BYTES, FRAME_BYTES, &at, &room, NULL),
                         QWP_OK);
        ck_assert_msg(is_populated(at, FRAME_BYTES), "frame %u", i);
        store_fill(at, FRAME_BYTES, qwp_seglog_next_fsn(log));
        qwp_seglog_finish(log, FRAME_BYTES, FRAME_BYTES, NULL);
        ck_assert_uint_eq(qwp_seglog_publish(log), i);
    }
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.rotations, 2);
    qwp_seglog_close(log);
}
END_TEST

/* --- what an earlier use left --- */

enum { EARLIER_BYTES = 64000, LATER_BYTES = 2000, FORGED_BYTES = 500 };

/* A frame whose payload has, where a later one of LATER_BYTES ends, what would be frame `fsn`. */
static void append_forging(struct qwp_seglog *log, uint64_t fsn)
{
    unsigned char *at;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, EARLIER_BYTES, EARLIER_BYTES, &at, &room, NULL),
                     QWP_OK);
    store_fill(at, EARLIER_BYTES, qwp_seglog_next_fsn(log));
    unsigned char *forged = at + LATER_BYTES;
    store_fill(forged + QWP_FRAME_HEADER_BYTES, FORGED_BYTES, fsn);
    qwp_store_u32(forged, qwp_frame_crc(true, forged + QWP_FRAME_HEADER_BYTES, FORGED_BYTES, fsn));
    qwp_store_u32(forged + QWP_FRAME_LENGTH_OFF, FORGED_BYTES);
    qwp_seglog_finish(log, EARLIER_BYTES, EARLIER_BYTES, NULL);
    qwp_seglog_ack(log, qwp_seglog_publish(log));
    store_settle(log);
}

START_TEST(seglog_earlier_use_of_a_light_segment_is_not_seen)
{
    enum { BEFORE = 12 };
    struct qwp_seglog_options options = store_options(slot);
    options.payload_crc = false;
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < BEFORE; i++) {
        append_forging(log, BEFORE + 1);
    }
    ck_assert_int_eq(store_append(log, LATER_BYTES), QWP_OK);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, BEFORE, name);
    char path[400];
    snprintf(path, sizeof path, "%s/%s", slot, name);
    unsigned char behind[FORGED_BYTES];
    const off_t end = QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES + LATER_BYTES;
    const int fd = open(path, O_RDONLY);
    ck_assert_int_eq(pread(fd, behind, sizeof behind, end + QWP_FRAME_HEADER_BYTES), sizeof behind);
    close(fd);
    ck_assert(
        store_filled(behind, sizeof behind, BEFORE + 1)); /* it is there, but for its header */
    const uint64_t end_fsn = BEFORE + 1 + (_i & 1);
    if ((_i & 1) != 0) { /* and seal that one */
        ck_assert_int_eq(store_append(log, EARLIER_BYTES), QWP_OK);
    }
    qwp_seglog_close(log);
    options.payload_crc = (_i & 2) != 0;
    log = store_open(&options);
    const struct qwp_seglog_recovery *recovery = qwp_seglog_recovered(log);
    ck_assert_uint_eq(recovery->next_fsn, end_fsn);
    ck_assert_uint_eq(recovery->torn_bytes, 0);
    ck_assert_uint_eq(recovery->damage_count, 0);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(store_read_all(log, &cursor), end_fsn - BEFORE);
    if (options.payload_crc) { /* from now on segments are as other clients want them */
        for (uint64_t fsn = end_fsn; fsn < 2 * BEFORE; fsn++) {
            ck_assert_int_eq(store_append(log, LATER_BYTES), QWP_OK);
            qwp_seglog_ack(log, fsn);
            store_settle(log);
        }
        ck_assert_uint_gt(check_spares(), 0);
    }
    qwp_seglog_close(log);
}
END_TEST

/* --- budget --- */

START_TEST(seglog_full_budget_presses_back_and_goes_on)
{
    struct qwp_seglog_options options = store_options(slot);
    options.total_bytes_max = 4 * 64 * 1024;
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    uint64_t appended = 0;
    while (store_append(log, 30000) == QWP_OK) {
        appended++;
        store_settle(log);
    }
    ck_assert_uint_eq(appended, 8); /* two in each of four segments */
    unsigned char *at;
    size_t room;
    struct qwp_error err;
    ck_assert_int_eq(qwp_seglog_reserve(log, 30000, 30000, &at, &room, &err), QWP_AGAIN);
    ck_assert_int_eq(err.sys_errno, 0);
    ck_assert_ptr_nonnull(strstr(err.text, "sf_max_total_bytes"));
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_total, options.total_bytes_max);
    ck_assert_uint_eq(store_read_all(log, &cursor), 8);
    qwp_seglog_ack(log, 1);
    store_settle(log);
    ck_assert_int_eq(store_append(log, 30000), QWP_OK);
    ck_assert_uint_eq(store_read_all(log, &cursor), 1);
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_total, options.total_bytes_max);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_smallest_budget_still_moves)
{
    struct qwp_seglog_options options = store_options(slot);
    options.total_bytes_max = 64 * 1024;
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    for (uint64_t i = 0; i < 20; i++) {
        const enum qwp_result result = store_append(log, 40000);
        if (result == QWP_AGAIN) {
            qwp_seglog_ack(log, qwp_seglog_published_count(log) - 1);
            store_settle(log);
            ck_assert_int_eq(store_append(log, 40000), QWP_OK);
        }
        store_read_all(log, &cursor);
        store_settle(log);
        struct qwp_seglog_stats stats;
        qwp_seglog_stats(log, &stats);
        ck_assert_uint_le(stats.bytes_total, 2 * 64 * 1024);
    }
    /* A frame beyond the whole budget passes when all else is settled. */
    ck_assert_int_eq(store_append(log, 500000), QWP_AGAIN);
    qwp_seglog_ack(log, qwp_seglog_published_count(log) - 1);
    store_settle(log);
    ck_assert_int_eq(store_append(log, 500000), QWP_OK);
    ck_assert_int_eq(store_append(log, 40000), QWP_AGAIN);
    store_read_all(log, &cursor);
    qwp_seglog_ack(log, qwp_seglog_published_count(log) - 1);
    store_settle(log);
    ck_assert_int_eq(store_append(log, 40000), QWP_OK);
    qwp_seglog_close(log);
}
END_TEST

/* --- reopening --- */

START_TEST(seglog_reopened_goes_on_where_it_was)
{
    const struct qwp_seglog_options options = store_options(slot);
    uint64_t total = 0;
    unsigned char uuid[16];
    for (int life = 0; life < 6; life++) {
        struct qwp_seglog *log = store_open(&options);
        const struct qwp_seglog_recovery *recovery = qwp_seglog_recovered(log);
        if (life > 0) {
            ck_assert_mem_eq(uuid, recovery->slot_uuid, 16);
            ck_assert_uint_ne(recovery->last_witness, 0);
        }
        memcpy(uuid, recovery->slot_uuid, 16);
        ck_assert_uint_eq(recovery->next_fsn, total);
        ck_assert_uint_eq(recovery->torn_bytes, 0);
        struct qwp_seglog_cursor cursor = {0};
        const uint64_t acked = qwp_seglog_acked_count(log);
        ck_assert_uint_eq(acked, total < 3 ? 0 : total - 3);
        ck_assert_uint_eq(store_read_all(log, &cursor), total - acked);
        for (int i = 0; i < 23; i++, total++) {
            ck_assert_int_eq(store_append(log, 7000 + (size_t)life), QWP_OK);
            store_settle(log);
        }
        ck_assert_uint_eq(store_read_all(log, &cursor), 23);
        qwp_seglog_ack(log, total - 4);
        qwp_seglog_close(log);
    }
}
END_TEST

START_TEST(seglog_reopened_after_all_was_acknowledged_counts_on)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < 20; i++) {
        ck_assert_int_eq(store_append(log, 20000), QWP_OK);
    }
    qwp_seglog_ack(log, 19);
    store_settle(log);
    qwp_seglog_close(log);
    log = store_open(&options);
    ck_assert_uint_eq(qwp_seglog_next_fsn(log), 20);
    ck_assert_uint_eq(qwp_seglog_acked_count(log), 20);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_waiting, 0);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_second_opener_is_told_who_holds_it)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog *second = NULL;
    struct qwp_error err;
    ck_assert_int_eq(qwp_seglog_open(&second, &options, &err), QWP_AGAIN);
    char pid[24];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    ck_assert_msg(strstr(err.text, pid) != NULL, "'%s' does not name %s", err.text, pid);
    qwp_seglog_close(log);
    log = store_open(&options);
    qwp_seglog_close(log);
}
END_TEST

START_TEST(seglog_bad_options_are_refused)
{
    struct qwp_seglog *log = NULL;
    struct qwp_error err;
    struct qwp_seglog_options options = store_options(slot);
    options.segment_bytes = 1000;
    ck_assert_int_eq(qwp_seglog_open(&log, &options, &err), QWP_INVALID);
    options = store_options(slot);
    options.total_bytes_max = 100;
    ck_assert_int_eq(qwp_seglog_open(&log, &options, &err), QWP_INVALID);
    options = store_options("/nonexistent/dir");
    ck_assert_int_eq(qwp_seglog_open(&log, &options, &err), QWP_IO);
    ck_assert_ptr_null(log);
}
END_TEST

START_TEST(seglog_light_frames_are_recovered)
{
    struct qwp_seglog_options options = store_options(slot);
    options.payload_crc = false;
    struct qwp_seglog *log = store_open(&options);
    for (size_t i = 0; i < 40; i++) {
        ck_assert_int_eq(store_append(log, 1 + i * 300), QWP_OK);
    }
    qwp_seglog_close(log);
    log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 40);
    /* Another kind of slot by mistake: what is there is read as what it is. */
    qwp_seglog_close(log);
    options.payload_crc = true;
    log = store_open(&options);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 40);
    for (size_t i = 0; i < 40; i++) {
        ck_assert_int_eq(store_append(log, 5000), QWP_OK);
    }
    qwp_seglog_close(log);
    log = store_open(&options);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 80);
    qwp_seglog_close(log);
}
END_TEST

/* --- what other clients left --- */

START_TEST(seglog_slot_of_another_client_opens)
{
    char command[900];
    snprintf(command, sizeof command, "tar -xzf %s/slot-3000-rows.tar.gz -C %s", QWP_TEST_DATA,
             dir);
    ck_assert_int_eq(system(command), 0);
    snprintf(slot, sizeof slot, "%s/desk-ingest-0", dir);
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    const struct qwp_seglog_recovery *recovery = qwp_seglog_recovered(log);
    ck_assert_uint_eq(recovery->first_fsn, 0);
    ck_assert_uint_eq(recovery->next_fsn, 300);
    ck_assert_uint_eq(recovery->frames_waiting, 300);
    ck_assert_uint_eq(recovery->segments_sealed, 1);
    ck_assert_uint_eq(recovery->torn_bytes, 0);
    ck_assert_uint_eq(recovery->symbols, 39);
    ck_assert_uint_eq(recovery->symbols_healed, 0);
    const struct qwp_dict *dict = qwp_seglog_dict(log);
    const struct qwp_name last = qwp_dict_text(dict, 38);
    ck_assert_uint_eq(last.len, 3);
    ck_assert_mem_eq(last.text, "S36", 3);
    ck_assert_mem_eq(qwp_dict_text(dict, 10).text, "sell", 4);
    struct qwp_seglog_cursor cursor = {0};
    struct qwp_frame frame;
    uint64_t count = 0;
    while (qwp_seglog_next(log, &cursor, &frame) == QWP_OK) {
        ck_assert_uint_eq(frame.fsn, count++);
        ck_assert_mem_eq(frame.payload, "QWP1", 4);
        ck_assert_uint_eq(qwp_load_u32(frame.payload + 8) + 12, frame.len);
    }
    ck_assert_uint_eq(count, 300);
    /* And we go on in it. */
    qwp_seglog_ack(log, 299);
    ck_assert_int_eq(store_append(log, 60000), QWP_OK);
    qwp_seglog_close(log);
    log = store_open(&options);
    ck_assert_uint_eq(qwp_seglog_acked_count(log), 300);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 1);
    qwp_seglog_close(log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog");
    for (int shm = 0; shm < 2; shm++) {
        TCase *tcase = tcase_create(shm ? "seglog on tmpfs" : "seglog");
        tcase_set_timeout(tcase, 240);
        tcase_add_checked_fixture(tcase, shm ? setup_shm : setup, teardown);
        tcase_add_test(tcase, seglog_fresh_slot_is_empty);
        tcase_add_test(tcase, seglog_many_rotations_keep_every_frame);
        tcase_add_test(tcase, seglog_rewind_goes_back_to_the_first_unacknowledged);
        tcase_add_test(tcase, seglog_frame_larger_than_a_segment_gets_its_own);
        tcase_add_test(tcase, seglog_first_frame_larger_than_a_segment_is_recovered);
        tcase_add_test(tcase, seglog_room_is_what_the_segment_still_has);
        tcase_add_test(tcase, seglog_spares_are_zero);
        tcase_add_loop_test(tcase, seglog_pages_are_there_before_the_frames, 0, 2);
        tcase_add_loop_test(tcase, seglog_earlier_use_of_a_light_segment_is_not_seen, 0, 4);
        tcase_add_test(tcase, seglog_full_budget_presses_back_and_goes_on);
        tcase_add_test(tcase, seglog_smallest_budget_still_moves);
        tcase_add_test(tcase, seglog_reopened_goes_on_where_it_was);
        tcase_add_test(tcase, seglog_reopened_after_all_was_acknowledged_counts_on);
        tcase_add_test(tcase, seglog_second_opener_is_told_who_holds_it);
        tcase_add_test(tcase, seglog_bad_options_are_refused);
        tcase_add_test(tcase, seglog_light_frames_are_recovered);
        tcase_add_test(tcase, seglog_slot_of_another_client_opens);
        suite_add_tcase(suite, tcase);
    }
    return store_suite_run(suite);
}

/* Aim: frames of segments that open has not read are checked before the reader gets them; damage
 * that is found then ends as damage found at open does: frames before it are given out, what lies
 * behind is kept aside whole, what is appended meanwhile is not touched, and the slot works on.
 * Method: a small slot is spoiled in its middle, opened, appended to and read to its end, with the
 * keeper run in between; system calls go through a table that counts what is read and may fail. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/store/qwp_segment.h"
#include "core/store/qwp_store_layout.h"
#include "core/wire/qwp_wire.h"
#include "tests/core/store_fixture.h"

static char dir[256];
static char slot[300];
static int slot_fd = -1;

/* --- the table --- */

static struct {
    uint64_t bytes_read;
    uint64_t fail_base;       /* reading the segment of this base fails... */
    off_t fail_off;           /* ...from here on... */
    unsigned fails;           /* ...so often */
    unsigned rename_fails;    /* renames that fail */
    unsigned write_fails;     /* writes of more than a page that fail */
    unsigned sync_fails_from; /* fdatasync calls still to work; UINT32_MAX: all */
    unsigned syncs;
    int64_t skipped_ns; /* the clock is ahead of the real one by this */
} table;

static ssize_t t_pread(int fd, void *at, size_t len, off_t off)
{
    unsigned char header[QWP_SEGMENT_HEADER_BYTES];
    if (table.fails > 0 && off + (off_t)len > table.fail_off &&
        pread(fd, header, sizeof header, 0) == sizeof header &&
        qwp_load_u32(header) == QWP_SEGMENT_MAGIC &&
        qwp_load_u64(header + QWP_SEGMENT_BASE_OFF) == table.fail_base) {
        table.fails--;
        errno = EIO;
        return -1;
    }
    const ssize_t n = pread(fd, at, len, off);
    table.bytes_read += n > 0 ? (uint64_t)n : 0;
    return n;
}

static int t_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    if (table.rename_fails > 0 && strstr(to, QWP_CORRUPT_SUFFIX) != NULL) {
        table.rename_fails--;
        errno = EIO;
        return -1;
    }
    return renameat(from_fd, from, to_fd, to);
}

static ssize_t t_pwrite(int fd, const void *at, size_t len, off_t off)
{
    if (table.write_fails > 0 && len > 150) { /* a copy of a segment; all else is smaller */
        table.write_fails--;
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, at, len, off);
}

static int t_fdatasync(int fd)
{
    table.syncs++;
    if (table.sync_fails_from == 0) {
        errno = EIO;
        return -1;
    }
    table.sync_fails_from -= table.sync_fails_from != UINT32_MAX;
    return fdatasync(fd);
}

static int64_t t_monotonic_ns(void)
{
    return qwp_clock_monotonic_ns() + table.skipped_ns;
}

static struct qwp_sys sys;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/slot", dir);
    sys = qwp_sys_real;
    sys.pread = t_pread;
    sys.pwrite = t_pwrite;
    sys.renameat = t_renameat;
    sys.fdatasync = t_fdatasync;
    sys.monotonic_ns = t_monotonic_ns;
    memset(&table, 0, sizeof table);
    table.sync_fails_from = UINT32_MAX;
}

static void teardown(void)
{
    store_dir_remove(dir);
}

/* --- slots --- */

enum {
    FRAMES = 12,
    BIG = 30000, /* two to a segment */
    SMALL = 9,
    FRAME = QWP_FRAME_HEADER_BYTES + BIG,
    SECOND_END = QWP_SEGMENT_HEADER_BYTES + 2 * FRAME,
};

static struct qwp_seglog_options options_of(void)
{
    struct qwp_seglog_options options = store_options(slot);
    options.sys = &sys;
    return options;
}

/* store_settle() by the table's clock. */
static void settle(struct qwp_seglog *log)
{
    bool more = true;
    int64_t next_ns;
    while (more) {
        qwp_seglog_maintain(log, t_monotonic_ns(), &more, &next_ns);
    }
}

/* So that the next frame begins a segment. */
static void segment_leave(struct qwp_seglog *log)
{
    unsigned char *at;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, BIG, BIG, &at, &room, NULL), QWP_OK);
    qwp_seglog_abandon(log, 0);
}

/* Segments with frames 0-1, 2-3 and 4-11: open reads the first and the last. */
static void slot_make(void)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(store_append(log, i < 4 ? BIG : (size_t)SMALL + (size_t)i), QWP_OK);
        if (i == 3) {
            segment_leave(log);
        }
    }
    qwp_seglog_close(log);
    slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(slot_fd, 0);
}

static void slot_remove(void)
{
    close(slot_fd);
    store_dir_remove(slot);
}

/* How many whole frames a file holds that was set aside. */
static uint64_t frames_aside(const char *name)
{
    char path[QWP_STORE_NAME_BYTES + 16];
    snprintf(path, sizeof path, "%s" QWP_CORRUPT_SUFFIX, name);
    const int fd = openat(slot_fd, path, O_RDONLY);
    ck_assert_msg(fd >= 0, "%s is missing", path);
    struct qwp_scan scan;
    ck_assert_int_eq(qwp_segment_scan(&qwp_sys_real, fd, &scan, NULL, NULL), QWP_OK);
    close(fd);
    return scan.frame_count;
}

static void budget_check(struct qwp_seglog *log)
{
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_total, store_files_count(slot).segment_bytes);
}

/* Opens a slot of FRAMES frames in which those from `from` on cannot be delivered, appends before
 * anything is found, and goes through all of it. Returns what was said of the damage. */
static struct qwp_seglog_damage expect_damage(const struct qwp_seglog_options *options,
                                              uint64_t from)
{
    char active[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 4, active);
    const struct store_files before = store_files_count(slot);
    struct qwp_seglog *log = store_open(options);
    struct qwp_seglog_damage damage;
    ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
    ck_assert_uint_eq(qwp_seglog_next_fsn(log), FRAMES);
    ck_assert_int_eq(store_append(log, 100), QWP_OK); /* to the segment of the old frames */
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(store_read_all(log, &cursor), from);
    ck_assert(qwp_seglog_take_damage(log, &damage) && !damage.is_settled);
    ck_assert_uint_eq(damage.frames, FRAMES - from);
    /* Not before all that is intact is settled. */
    settle(log);
    ck_assert_uint_eq(store_files_count(slot).corrupt, before.corrupt);
    ck_assert_int_eq(store_append(log, 40000), QWP_OK); /* intake goes on */
    if (from > 0) {
        qwp_seglog_ack(log, from - 1);
    }
    for (int i = 0; i < 20 && !qwp_seglog_resume(log); i++) {
        settle(log);
        table.skipped_ns += 200 * QWP_NS_PER_MS; /* what failed is tried again */
    }
    ck_assert_uint_eq(qwp_seglog_acked_count(log), FRAMES);
    ck_assert(qwp_seglog_take_damage(log, &damage) && damage.is_settled);
    ck_assert(!qwp_seglog_take_damage(log, &damage));
    ck_assert_uint_eq(damage.files_set_aside, store_files_count(slot).corrupt - before.corrupt);
    ck_assert_uint_eq(store_read_all(log, &cursor), 2);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_waiting, 40100);
    qwp_seglog_rewind(log, &cursor);
    ck_assert_uint_eq(store_read_all(log, &cursor), 2);
    qwp_seglog_ack(log, FRAMES);
    settle(log);
    budget_check(log);
    /* The segment that was active holds a newer frame: what is aside of it is a copy. */
    ck_assert_uint_eq(frames_aside(active), FRAMES - 4);
    qwp_seglog_close(log);
    log = store_open(options);
    ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
    ck_assert_uint_eq(qwp_seglog_acked_count(log), FRAMES + 1);
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 1);
    qwp_seglog_close(log);
    return damage;
}

/* --- each place --- */

/* Every byte of headers and of what follows the frames; of the frames themselves each, or a few. */
START_TEST(check_flipped_byte_costs_what_open_would_make_it_cost)
{
    const bool full = getenv("QWP_DAMAGE_FULL") != NULL;
    unsigned flips = 0;
    for (off_t off = QWP_SEGMENT_CREATED_OFF; off < SECOND_END + 16; off++) {
        const off_t in_frame = (off - QWP_SEGMENT_HEADER_BYTES) % FRAME;
        const bool payload = off >= QWP_SEGMENT_HEADER_BYTES && off < SECOND_END && in_frame > 12 &&
                             in_frame < FRAME - 4;
        if (payload && !full && in_frame % 2999 != 0) {
            continue;
        }
        slot_make();
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 2, name);
        store_flip(slot, name, off, 0x10);
        flips++;
        const struct qwp_seglog_options options = options_of();
        if (off < QWP_SEGMENT_HEADER_BYTES || off >= SECOND_END) {
            struct qwp_seglog *log = store_open(&options);
            struct qwp_seglog_cursor cursor = {0};
            struct qwp_seglog_damage damage;
            ck_assert_uint_eq(store_read_all(log, &cursor), FRAMES);
            ck_assert(!qwp_seglog_take_damage(log, &damage));
            qwp_seglog_close(log);
        } else if (off >= QWP_SEGMENT_HEADER_BYTES + 4 && off < QWP_SEGMENT_HEADER_BYTES + 8 &&
                   off >= QWP_SEGMENT_HEADER_BYTES + 6) {
            /* A length beyond the segment's: nothing there looks like a frame, and open sees it. */
            struct qwp_seglog *log = store_open(&options);
            struct qwp_seglog_cursor cursor = {0};
            ck_assert_uint_eq(qwp_seglog_recovered(log)->files_set_aside, 2);
            ck_assert_uint_eq(store_read_all(log, &cursor), 2);
            qwp_seglog_close(log);
        } else {
            const uint64_t hit = 2 + (uint64_t)(off - QWP_SEGMENT_HEADER_BYTES) / FRAME;
            const struct qwp_seglog_damage damage = expect_damage(&options, hit);
            ck_assert_msg(strstr(damage.text, name) != NULL, "'%s' does not name %s", damage.text,
                          name);
            ck_assert_uint_eq(damage.files_set_aside, 2);
            ck_assert_uint_eq(frames_aside(name), hit - 2);
        }
        slot_remove();
    }
    printf("%u flips\n", flips);
}
END_TEST

START_TEST(check_cut_segment_costs_what_was_cut)
{
    static const off_t lengths[] = {
        QWP_SEGMENT_HEADER_BYTES + FRAME,
        QWP_SEGMENT_HEADER_BYTES + FRAME + 1,
        QWP_SEGMENT_HEADER_BYTES + FRAME + 8,
        QWP_SEGMENT_HEADER_BYTES + FRAME + 5000,
        SECOND_END - 1,
    };
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        slot_make();
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 2, name);
        const int fd = openat(slot_fd, name, O_RDWR);
        ck_assert_int_eq(ftruncate(fd, lengths[i]), 0);
        close(fd);
        const struct qwp_seglog_options options = options_of();
        expect_damage(&options, 3);
        slot_remove();
    }
}
END_TEST

START_TEST(check_works_without_payload_crcs)
{
    struct qwp_seglog_options options = options_of();
    options.payload_crc = false;
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(store_append(log, i < 4 ? BIG : (size_t)SMALL + (size_t)i), QWP_OK);
        if (i == 3) {
            segment_leave(log);
        }
    }
    qwp_seglog_close(log);
    slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES + FRAME + 5, 1);
    expect_damage(&options, 3);
    slot_remove();
}
END_TEST

/* Five segments of two frames: one in the middle is gone, which nobody notices at open, since its
 * frames might be in the one before. */
START_TEST(check_missing_segment_sets_aside_what_is_behind)
{
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < 10; i++) {
        ck_assert_int_eq(store_append(log, BIG), QWP_OK);
    }
    qwp_seglog_close(log);
    slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 4, name);
    ck_assert_int_eq(unlinkat(slot_fd, name, 0), 0);
    log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    struct qwp_seglog_damage damage;
    ck_assert_uint_eq(store_read_all(log, &cursor), 4);
    ck_assert(qwp_seglog_take_damage(log, &damage));
    qwp_seglog_ack(log, 3);
    settle(log);
    ck_assert(qwp_seglog_resume(log));
    ck_assert_uint_eq(store_files_count(slot).corrupt, 3); /* 2-3, which is delivered, 6-7, 8-9 */
    ck_assert_int_eq(store_append(log, 10), QWP_OK);
    ck_assert_uint_eq(store_read_all(log, &cursor), 1);
    settle(log);
    budget_check(log);
    qwp_seglog_close(log);
    slot_remove();
}
END_TEST

/* A copy of a segment under a base that lies in the middle of its frames. */
START_TEST(check_frame_in_two_segments_is_damage)
{
    slot_make();
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    char command[900];
    snprintf(command, sizeof command, "cp %s/%s %s/sf-00000000000000ff.sfa", slot, name, slot);
    ck_assert_int_eq(system(command), 0);
    const int fd = openat(slot_fd, "sf-00000000000000ff.sfa", O_RDWR);
    unsigned char base[8];
    qwp_store_u64(base, 3);
    ck_assert_int_eq(pwrite(fd, base, 8, QWP_SEGMENT_BASE_OFF), 8);
    close(fd);
    const struct qwp_seglog_options options = options_of();
    const struct qwp_seglog_damage damage = expect_damage(&options, 3);
    ck_assert_uint_eq(damage.files_set_aside, 3);
    slot_remove();
}
END_TEST

/* --- disks --- */

START_TEST(check_unreadable_for_a_moment_is_no_damage)
{
    slot_make();
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    table.fail_base = 2;
    table.fails = 7;
    uint64_t count = 0;
    for (int i = 0; i < 20; i++) {
        count += store_read_all(log, &cursor);
        if (table.fails > 0) {
            ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_FAILING);
            ck_assert_ptr_nonnull(strstr(qwp_seglog_keeper_error(log)->text, "cannot read"));
        }
        table.skipped_ns += 200 * QWP_NS_PER_MS;
        settle(log);
    }
    ck_assert_uint_eq(count, FRAMES);
    ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_WELL);
    struct qwp_seglog_damage damage;
    ck_assert(!qwp_seglog_take_damage(log, &damage));
    qwp_seglog_close(log);
    slot_remove();
}
END_TEST

START_TEST(check_unreadable_for_good_is_set_aside)
{
    slot_make();
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    table.fail_base = 2;
    table.fail_off = QWP_SEGMENT_HEADER_BYTES + FRAME + 100;
    table.fails = UINT32_MAX;
    uint64_t count = 0;
    struct qwp_seglog_damage damage = {0};
    for (int i = 0; i < 60 && !qwp_seglog_take_damage(log, &damage); i++) {
        count += store_read_all(log, &cursor);
        table.skipped_ns += 200 * QWP_NS_PER_MS;
        settle(log);
    }
    ck_assert_msg(strstr(damage.text, "cannot be read") != NULL, "%s", damage.text);
    count += store_read_all(log, &cursor);
    ck_assert_uint_eq(count, 3); /* the one before it in the same segment is intact */
    qwp_seglog_ack(log, count - 1);
    settle(log);
    ck_assert(qwp_seglog_resume(log));
    ck_assert_uint_eq(qwp_seglog_acked_count(log), FRAMES);
    ck_assert_int_eq(qwp_seglog_keeper_state(log), QWP_KEEPER_WELL);
    qwp_seglog_close(log);
    slot_remove();
}
END_TEST

START_TEST(check_setting_aside_is_tried_until_it_works)
{
    for (int what = 0; what < 2; what++) {
        slot_make();
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 2, name);
        store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES + 20, 1);
        table.rename_fails = what == 0 ? 3 : 0;
        table.write_fails = what == 1 ? 3 : 0;
        const struct qwp_seglog_options options = options_of();
        expect_damage(&options, 2);
        ck_assert_uint_eq(table.rename_fails + table.write_fails, 0);
        slot_remove();
    }
}
END_TEST

/* --- what frames say --- */

/* A message with `count` symbols from `start` on, in a segment of its own. */
static void message_append(struct qwp_seglog *log, uint32_t start, uint32_t count, uint8_t flags,
                           const char *prefix)
{
    unsigned char message[400] = {0};
    qwp_store_u32(message, QWP_WIRE_MAGIC);
    message[4] = QWP_WIRE_VERSION;
    message[5] = (unsigned char)(QWP_FLAG_DELTA_DICT | flags);
    unsigned char *at = message + QWP_HEADER_BYTES;
    *at++ = (unsigned char)start;
    *at++ = (unsigned char)count;
    for (uint32_t id = start; id < start + count; id++) {
        char text[8];
        uint32_t got;
        int n = snprintf(text, sizeof text, "s%u", id);
        ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, (size_t)n, &got), QWP_OK);
        n = snprintf(text, sizeof text, "%s%u", prefix, id);
        *at++ = (unsigned char)n;
        memcpy(at, text, (size_t)n);
        at += n;
    }
    ck_assert_int_eq(qwp_seglog_persist_dict(log, NULL), QWP_OK);
    const size_t len = 40000;
    unsigned char *to;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, len, len, &to, &room, NULL), QWP_OK);
    memcpy(to, message, sizeof message);
    qwp_seglog_finish(log, len, len, NULL);
    qwp_seglog_publish(log);
}

static uint64_t messages_read(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor)
{
    struct qwp_frame frame;
    uint64_t count = 0;
    while (store_next(log, cursor, &frame) == QWP_OK) {
        count++;
    }
    return count;
}

START_TEST(check_symbols_that_contradict_the_dictionary_are_damage)
{
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    for (uint32_t i = 0; i < 6; i++) {
        message_append(log, i, 1, 0, i == 2 ? "t" : "s");
    }
    qwp_seglog_close(log);
    log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(messages_read(log, &cursor), 2);
    struct qwp_seglog_damage damage;
    ck_assert(qwp_seglog_take_damage(log, &damage));
    ck_assert_msg(strstr(damage.text, "contradict") != NULL, "%s", damage.text);
    qwp_seglog_close(log);
}
END_TEST

/* A dictionary that lacks what waiting frames bring is whole again before a symbol gets an id. */
START_TEST(check_does_not_keep_open_from_healing_the_dictionary)
{
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    for (uint32_t i = 0; i < 8; i++) {
        message_append(log, i < 5 ? i : 5, i < 5 ? 1 : 0, 0, "s");
    }
    qwp_seglog_close(log);
    slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    for (int cut = 0; cut < 2; cut++) {
        const int fd = openat(slot_fd, QWP_DICT_FILE_NAME, O_RDWR);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_eq(ftruncate(fd, cut == 0 ? st.st_size - 1 : 0), 0);
        close(fd);
        log = store_open(&options);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols, 5);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols_healed, cut == 0 ? 1 : 5);
        struct qwp_seglog_cursor cursor = {0};
        ck_assert_uint_eq(messages_read(log, &cursor), 8);
        qwp_seglog_close(log);
    }
    slot_remove();
}
END_TEST

/* Half a group would be committed by what comes behind the damage. */
START_TEST(check_group_that_is_damaged_is_not_begun)
{
    const struct qwp_seglog_options options = options_of();
    struct qwp_seglog *log = store_open(&options);
    message_append(log, 0, 1, 0, "s");
    message_append(log, 1, 0, 0, "s");
    message_append(log, 1, 0, QWP_FLAG_DEFER_COMMIT, "s");
    message_append(log, 1, 0, QWP_FLAG_DEFER_COMMIT, "s");
    for (int i = 0; i < 3; i++) {
        message_append(log, 1, 0, 0, "s");
    }
    qwp_seglog_close(log);
    slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 3, name);
    store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES + 100, 1);
    log = store_open(&options);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(messages_read(log, &cursor), 2);
    struct qwp_seglog_damage damage;
    ck_assert(qwp_seglog_take_damage(log, &damage));
    qwp_seglog_ack(log, 1);
    settle(log);
    ck_assert(qwp_seglog_resume(log));
    ck_assert_uint_eq(store_files_count(slot).corrupt, 5); /* 2 to 6, the last one a copy */
    qwp_seglog_close(log);
    slot_remove();
}
END_TEST

/* --- what a start costs --- */

enum { MANY = 60 };

static void many_make(void)
{
    struct qwp_seglog_options options = options_of();
    options.total_bytes_max = UINT64_C(64) * 1024 * 1024;
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < 2 * MANY; i++) {
        ck_assert_int_eq(store_append(log, BIG), QWP_OK);
    }
    qwp_seglog_close(log);
}

START_TEST(check_is_not_done_by_open)
{
    many_make();
    struct qwp_seglog_options options = options_of();
    options.total_bytes_max = UINT64_C(64) * 1024 * 1024;
    table.bytes_read = 0;
    struct qwp_seglog *log = store_open(&options);
    ck_assert_uint_eq(qwp_seglog_recovered(log)->frames_waiting, 2 * MANY);
    ck_assert_uint_le(table.bytes_read,
                      3 * options.segment_bytes + MANY * UINT64_C(64) + UINT64_C(64) * 1024);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_ge(stats.bytes_waiting, UINT64_C(2) * MANY * BIG);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(store_read_all(log, &cursor), 2 * MANY);
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_waiting, UINT64_C(2) * MANY * BIG);
    qwp_seglog_ack(log, 2 * MANY - 1);
    qwp_seglog_stats(log, &stats);
    ck_assert_uint_eq(stats.bytes_waiting, 0);
    qwp_seglog_close(log);
}
END_TEST

/* `periodic` claims nothing of what an earlier process left before it has synced it. */
START_TEST(check_claims_no_level_before_old_segments_are_synced)
{
    many_make();
    struct qwp_seglog_options options = options_of();
    options.total_bytes_max = UINT64_C(64) * 1024 * 1024;
    options.durability = QWP_DURABILITY_PERIODIC;
    for (int fails = 0; fails < 2; fails++) {
        table.syncs = 0;
        struct qwp_seglog *log = store_open(&options);
        ck_assert_uint_lt(table.syncs, 10);
        struct qwp_seglog_stats stats;
        qwp_seglog_stats(log, &stats);
        ck_assert_uint_eq(stats.synced_count, 0);
        ck_assert_uint_eq(stats.unsynced_count, 2 * MANY);
        table.sync_fails_from = fails == 0 ? UINT32_MAX : 10;
        bool more = true;
        uint64_t before = 0;
        for (int i = 0; i < 10000 && more; i++) {
            int64_t next_ns;
            qwp_seglog_maintain(log, t_monotonic_ns(), &more, &next_ns);
            qwp_seglog_stats(log, &stats);
            ck_assert_uint_ge(stats.synced_count, before);
            ck_assert_uint_le(stats.synced_count, 2 * (uint64_t)table.syncs + 2);
            before = stats.synced_count;
        }
        if (fails == 0) {
            ck_assert_uint_eq(stats.unsynced_count, 0);
            ck_assert_uint_eq(stats.segments_suspect, 0);
        } else {
            ck_assert_uint_lt(stats.synced_count, 30);
            ck_assert_uint_gt(stats.segments_suspect, 40);
        }
        table.sync_fails_from = UINT32_MAX;
        qwp_seglog_close(log);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog check");
    TCase *tcase = tcase_create("check");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, check_flipped_byte_costs_what_open_would_make_it_cost);
    tcase_add_test(tcase, check_cut_segment_costs_what_was_cut);
    tcase_add_test(tcase, check_works_without_payload_crcs);
    tcase_add_test(tcase, check_missing_segment_sets_aside_what_is_behind);
    tcase_add_test(tcase, check_frame_in_two_segments_is_damage);
    tcase_add_test(tcase, check_unreadable_for_a_moment_is_no_damage);
    tcase_add_test(tcase, check_unreadable_for_good_is_set_aside);
    tcase_add_test(tcase, check_setting_aside_is_tried_until_it_works);
    tcase_add_test(tcase, check_symbols_that_contradict_the_dictionary_are_damage);
    tcase_add_test(tcase, check_does_not_keep_open_from_healing_the_dictionary);
    tcase_add_test(tcase, check_group_that_is_damaged_is_not_begun);
    tcase_add_test(tcase, check_is_not_done_by_open);
    tcase_add_test(tcase, check_claims_no_level_before_old_segments_are_synced);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

/* Aim: whatever is wrong with a slot's files, intact frames before the damage are delivered, the
 * rest is kept aside and reported, and the slot works again; or opening it says which file is in
 * the way and changes nothing.
 * Method: a small slot is made, spoiled in one way (cut at every length, each byte flipped, files
 * missing, doubled, strange) and opened. Only a small part of each file is not zero, so "every
 * byte" stays quick. */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crc32c.h"
#include "core/store/qwp_dual.h"
#include "core/store/qwp_segment.h"
#include "core/store/qwp_store_layout.h"
#include "core/wire/qwp_wire.h"
#include "tests/core/store_fixture.h"

static char dir[256];
static char slot[300];
static int slot_fd = -1;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/slot", dir);
}

static void teardown(void)
{
    store_dir_remove(dir);
}

enum {
    FRAMES = 12,
    BIG = 30000, /* two to a segment */
    SMALL = 9,
};

/* Segments with frames 0-1, 2-3 and 4-11: two sealed ones, and an active one of small frames. */
static void slot_make(uint64_t acked)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(store_append(log, i < 4 ? BIG : (size_t)SMALL + (size_t)i), QWP_OK);
        if (i == 3) {
            /* Not one more byte here: the small ones go to the third. */
            unsigned char *at;
            size_t room;
            ck_assert_int_eq(qwp_seglog_reserve(log, BIG, BIG, &at, &room, NULL), QWP_OK);
            qwp_seglog_abandon(log, 0);
        }
    }
    if (acked > 0) {
        qwp_seglog_ack(log, acked - 1);
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

/* Opens, expects exactly frames [from, to), that appending and reopening works, and that no byte
 * was thrown away that a frame was in. Returns what recovery said. */
static struct qwp_seglog_recovery expect_frames(uint64_t from, uint64_t to)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    const struct qwp_seglog_recovery recovery = *qwp_seglog_recovered(log);
    struct qwp_seglog_cursor cursor = {0};
    ck_assert_uint_eq(qwp_seglog_acked_count(log), from);
    ck_assert_uint_eq(qwp_seglog_next_fsn(log), to);
    ck_assert_uint_eq(store_read_all(log, &cursor), to - from);
    ck_assert_int_eq(store_append(log, 50000), QWP_OK);
    qwp_seglog_close(log);
    log = store_open(&options);
    ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
    cursor = (struct qwp_seglog_cursor){0};
    ck_assert_uint_eq(store_read_all(log, &cursor), to - from + 1);
    qwp_seglog_close(log);
    return recovery;
}

/* Refused, naming `file`; and nothing changed. */
static void expect_refused(const char *file)
{
    const struct store_files before = store_files_count(slot);
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = NULL;
    struct qwp_error err;
    ck_assert_int_eq(qwp_seglog_open(&log, &options, &err), QWP_CORRUPT);
    ck_assert_msg(strstr(err.text, file) != NULL, "'%s' does not name %s", err.text, file);
    ck_assert_msg(strstr(err.text, "Way out") != NULL, "'%s' shows no way out", err.text);
    const struct store_files after = store_files_count(slot);
    ck_assert_uint_eq(before.segments, after.segments);
    ck_assert_uint_eq(after.corrupt, 0);
}

/* Where frame i of the active segment (4..11) begins, or for 12 where the last one ends. */
static uint64_t frame_off(int i)
{
    uint64_t off = QWP_SEGMENT_HEADER_BYTES;
    for (int k = 4; k < i; k++) {
        off += QWP_FRAME_HEADER_BYTES + SMALL + (uint64_t)k;
    }
    return off;
}

/* --- the newest segment, every byte and every length --- */

START_TEST(damage_of_any_byte_of_the_newest_segment_costs_what_is_behind_it)
{
    const uint64_t end = frame_off(FRAMES);
    for (uint64_t off = 0; off < end + 16; off++) {
        slot_make(0);
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 4, name);
        store_flip(slot, name, off, off == QWP_SEGMENT_FLAGS_OFF ? 0x02 : 0x10);
        if (off >= QWP_SEGMENT_CREATED_OFF && off < QWP_SEGMENT_HEADER_BYTES) {
            ck_assert_str_eq(expect_frames(0, FRAMES).damage, ""); /* the time is for people */
        } else if (off < QWP_SEGMENT_HEADER_BYTES && off != 6 && off != 7) {
            const struct qwp_seglog_recovery recovery = expect_frames(0, 4);
            ck_assert_uint_gt(recovery.damage_count, 0);
            ck_assert_msg(store_files_count(slot).corrupt == 1, "at byte %llu: %s",
                          (unsigned long long)off, recovery.damage);
        } else if (off >= end) {
            expect_frames(0, FRAMES); /* behind the last frame: nothing is lost but something is */
            /* (a length without a CRC is a frame that was never published) */
            const bool open = off >= end + 4 && off < end + 8;
            ck_assert_uint_eq(store_files_count(slot).corrupt, open ? 0 : 1);
        } else if (off >= QWP_SEGMENT_HEADER_BYTES) {
            int hit = 4;
            while (frame_off(hit + 1) <= off) {
                hit++;
            }
            const struct qwp_seglog_recovery recovery = expect_frames(0, (uint64_t)hit);
            ck_assert_uint_eq(recovery.damage_count, 1);
            ck_assert_msg(strstr(recovery.damage, name) != NULL, "'%s' does not name %s",
                          recovery.damage, name);
            ck_assert_uint_eq(store_files_count(slot).corrupt, 1);
        }
        slot_remove();
    }
}
END_TEST

START_TEST(damage_by_cutting_the_newest_segment_costs_what_was_cut)
{
    const uint64_t end = frame_off(FRAMES);
    for (uint64_t len = end + 20; len-- > 0;) {
        slot_make(0);
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 4, name);
        const int fd = openat(slot_fd, name, O_RDWR);
        ck_assert_int_eq(ftruncate(fd, (off_t)len), 0);
        close(fd);
        int whole = FRAMES;
        while (whole > 4 && frame_off(whole) > len) {
            whole--;
        }
        const struct qwp_seglog_recovery recovery =
            expect_frames(0, len < QWP_SEGMENT_HEADER_BYTES ? 4 : (uint64_t)whole);
        if (len < end && len != frame_off(whole)) {
            ck_assert_uint_gt(recovery.damage_count, 0);
        }
        slot_remove();
    }
}
END_TEST

/* What kill -9 leaves, at any point of writing a frame: nothing of it counts, nothing is reported.
 */
START_TEST(damage_is_not_what_an_unfinished_frame_is)
{
    for (int stage = 0; stage < 3; stage++) {
        slot_make(0);
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, 4, name);
        unsigned char frame[300];
        memset(frame, 0xee, sizeof frame);
        qwp_store_u32(frame, 0);
        qwp_store_u32(frame + 4, stage == 0 ? (uint32_t)QWP_FRAME_OPEN : 292);
        const int fd = openat(slot_fd, name, O_RDWR);
        ck_assert_int_eq(pwrite(fd, frame, stage == 2 ? 9 : sizeof frame, (off_t)frame_off(FRAMES)),
                         stage == 2 ? 9 : (int)sizeof frame);
        close(fd);
        const struct qwp_seglog_recovery recovery = expect_frames(0, FRAMES);
        ck_assert_str_eq(recovery.damage, "");
        ck_assert_uint_gt(recovery.torn_bytes, 0);
        ck_assert_uint_eq(store_files_count(slot).corrupt, 0);
        slot_remove();
    }
}
END_TEST

/* --- sealed segments; those that open does not read are test_seglog_check's --- */

START_TEST(damage_before_the_first_waiting_frame_hides_it)
{
    slot_make(3); /* the first goes at close; 2 is acknowledged */
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES, 1); /* frame 2, and so 3 cannot be found */
    expect_frames(FRAMES, FRAMES);
    ck_assert_uint_eq(store_files_count(slot).corrupt, 2);
    slot_remove();
}
END_TEST

START_TEST(damage_of_a_wholly_acknowledged_segment_costs_nothing)
{
    const struct qwp_seglog_options options = store_options(slot);
    slot_make(0);
    /* Acknowledged by watermark only, as after kill -9 right behind it. */
    struct qwp_dual watermark;
    enum qwp_dual_state state;
    ck_assert_int_eq(qwp_dual_load(&watermark, &qwp_sys_real, slot_fd, QWP_WATERMARK_NAME,
                                   QWP_WATERMARK_MAGIC, &state, NULL),
                     QWP_OK);
    ck_assert_int_eq(qwp_dual_open(&watermark, &qwp_sys_real, slot_fd, QWP_WATERMARK_NAME, NULL),
                     QWP_OK);
    qwp_dual_put(&watermark, 4, 0);
    qwp_dual_close(&watermark, &qwp_sys_real);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES + 20, 1);
    struct qwp_seglog *log = store_open(&options);
    store_settle(log);
    qwp_seglog_close(log);
    expect_frames(5, FRAMES);
    ck_assert_uint_eq(store_files_count(slot).corrupt, 0);
    slot_remove();
}
END_TEST

START_TEST(damage_by_missing_segments_keeps_what_is_before)
{
    for (uint64_t base = 0; base <= 4; base += 2) {
        slot_make(0);
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, base, name);
        ck_assert_int_eq(unlinkat(slot_fd, name, 0), 0);
        const struct qwp_seglog_options options = store_options(slot);
        struct qwp_seglog *log = store_open(&options);
        ck_assert_uint_gt(qwp_seglog_recovered(log)->damage_count, 0);
        struct qwp_seglog_cursor cursor = {0};
        ck_assert_uint_eq(store_read_all(log, &cursor), base);
        ck_assert_int_eq(store_append(log, 50000), QWP_OK);
        qwp_seglog_close(log);
        log = store_open(&options);
        ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
        qwp_seglog_close(log);
        ck_assert_uint_eq(store_files_count(slot).corrupt, base == 0 ? 2 : base == 2 ? 1 : 0);
        slot_remove();
    }
}
END_TEST

static void file_copy(const char *from, const char *to)
{
    char command[900];
    snprintf(command, sizeof command, "cp %s/%s %s/%s", slot, from, slot, to);
    ck_assert_int_eq(system(command), 0);
}

START_TEST(damage_two_files_with_one_base)
{
    slot_make(0);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    file_copy(name, "sf-00000000000000ff.sfa");
    const struct qwp_seglog_recovery recovery = expect_frames(0, FRAMES);
    ck_assert_uint_eq(recovery.files_set_aside, 1);
    slot_remove();
    /* Of two that differ the one with more whole frames is used, whatever their names. */
    for (int other = 0; other < 2; other++) {
        slot_make(0);
        store_segment_name(slot, 2, name);
        file_copy(name, "sf-00000000000000ff.sfa");
        const char *spoilt = other == 1 ? "sf-00000000000000ff.sfa" : name;
        store_flip(slot, spoilt, QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES + BIG + 100, 1);
        const struct qwp_seglog_recovery differing = expect_frames(0, FRAMES);
        ck_assert_msg(strstr(differing.damage, spoilt) != NULL, "%s", differing.damage);
        ck_assert_uint_eq(differing.files_set_aside, 1);
        slot_remove();
    }
}
END_TEST

START_TEST(damage_strange_files_are_set_aside_or_left_alone)
{
    slot_make(0);
    const int fd = openat(slot_fd, "notes.sfa", O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(write(fd, "dear diary, this is no segment", 30), 30);
    close(fd);
    ck_assert_int_eq(mkdirat(slot_fd, "folder.sfa", 0700), 0);
    ck_assert_int_eq(symlinkat("/etc/passwd", slot_fd, "link.sfa"), 0);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 2, name);
    ck_assert_int_eq(mkfifoat(slot_fd, "pipe.sfa", 0600), 0);
    file_copy(name, "a-name-that-is-much-too-long-to-be-one-of-our-segments.sfa");
    const struct qwp_seglog_recovery recovery = expect_frames(0, FRAMES);
    ck_assert_msg(strstr(recovery.damage, "notes.sfa") != NULL, "%s", recovery.damage);
    ck_assert_uint_eq(recovery.files_set_aside, 1);
    struct stat st;
    ck_assert_int_eq(fstatat(slot_fd, "notes.sfa.corrupt", &st, 0), 0);
    ck_assert_int_eq(fstatat(slot_fd, "folder.sfa", &st, 0), 0);
    ck_assert_int_eq(fstatat(slot_fd, "link.sfa", &st, AT_SYMLINK_NOFOLLOW), 0);
    slot_remove();
}
END_TEST

START_TEST(damage_unknown_version_is_set_aside)
{
    slot_make(0);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 4, name);
    store_flip(slot, name, QWP_SEGMENT_VERSION_OFF, 3);
    const struct qwp_seglog_recovery recovery = expect_frames(0, 4);
    ck_assert_msg(strstr(recovery.damage, "unknown version") != NULL, "%s", recovery.damage);
    slot_remove();
}
END_TEST

/* In the first segment, which open reads, and in the second, which it does not. */
START_TEST(damage_sealed_residue_costs_nothing)
{
    for (uint64_t base = 0; base <= 2; base += 2) {
        slot_make(0);
        char name[QWP_STORE_NAME_BYTES];
        store_segment_name(slot, base, name);
        const int fd = openat(slot_fd, name, O_RDWR);
        const off_t end = 24 + 2 * (8 + BIG);
        ck_assert_int_eq(pwrite(fd, "residue", 7, end), 7);
        const struct qwp_seglog_recovery recovery = expect_frames(0, FRAMES);
        ck_assert_uint_eq(recovery.sealed_residue, base == 0 ? 1 : 0);
        ck_assert_str_eq(recovery.damage, "");
        char after[7];
        ck_assert_int_eq(pread(fd, after, 7, end), 7);
        ck_assert_mem_eq(after, "\0\0\0\0\0\0\0", 7);
        close(fd);
        slot_remove();
    }
}
END_TEST

/* --- manifest and watermark --- */

START_TEST(damage_of_the_manifest_is_refused)
{
    slot_make(0);
    ck_assert_int_eq(unlinkat(slot_fd, QWP_MANIFEST_NAME, 0), 0);
    expect_refused(QWP_MANIFEST_NAME);
    slot_remove();
    slot_make(0);
    store_flip(slot, QWP_MANIFEST_NAME, 20, 1);
    store_flip(slot, QWP_MANIFEST_NAME, 4096 + 20, 1);
    expect_refused(QWP_MANIFEST_NAME);
    slot_remove();
    slot_make(0);
    const int fd = openat(slot_fd, QWP_MANIFEST_NAME, O_RDWR);
    ck_assert_int_eq(ftruncate(fd, 100), 0);
    close(fd);
    expect_refused(QWP_MANIFEST_NAME);
    slot_remove();
}
END_TEST

START_TEST(damage_of_one_manifest_record_is_survived)
{
    /* Losing the newer one puts the manifest one step behind, which is a rotation here. */
    for (uint64_t off = 0; off < 2; off++) {
        for (uint64_t byte = 0; byte < 64; byte++) {
            slot_make(0);
            store_flip(slot, QWP_MANIFEST_NAME, off * 4096 + byte, 0x20);
            ck_assert_str_eq(expect_frames(0, FRAMES).damage, "");
            slot_remove();
        }
    }
}
END_TEST

START_TEST(damage_of_the_watermark_means_sending_again)
{
    for (int way = 0; way < 3; way++) {
        slot_make(1);
        if (way == 0) {
            ck_assert_int_eq(unlinkat(slot_fd, QWP_WATERMARK_NAME, 0), 0);
        } else if (way == 1) {
            const int fd = openat(slot_fd, QWP_WATERMARK_NAME, O_RDWR);
            ck_assert_int_eq(ftruncate(fd, 5000), 0);
            close(fd);
        } else {
            store_flip(slot, QWP_WATERMARK_NAME, 3, 1);
            store_flip(slot, QWP_WATERMARK_NAME, 4096 + 3, 1);
        }
        expect_frames(0, FRAMES);
        slot_remove();
    }
}
END_TEST

START_TEST(damage_watermark_beyond_the_last_frame_is_refused_for_good)
{
    slot_make(0);
    struct qwp_dual watermark;
    enum qwp_dual_state state;
    ck_assert_int_eq(qwp_dual_load(&watermark, &qwp_sys_real, slot_fd, QWP_WATERMARK_NAME,
                                   QWP_WATERMARK_MAGIC, &state, NULL),
                     QWP_OK);
    ck_assert_int_eq(qwp_dual_open(&watermark, &qwp_sys_real, slot_fd, QWP_WATERMARK_NAME, NULL),
                     QWP_OK);
    qwp_dual_put(&watermark, FRAMES, 0); /* one too high */
    qwp_dual_close(&watermark, &qwp_sys_real);
    /* expect_frames() appends frame FRAMES; the old claim must not come true with it. */
    ck_assert(expect_frames(0, FRAMES).watermark_refused);
    slot_remove();
}
END_TEST

/* --- the dictionary --- */

/* A message with a delta of `count` symbols from `start`, padded to `len`. */
static void append_message(struct qwp_seglog *log, uint32_t start, uint32_t count, uint8_t flags,
                           bool persist)
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
        const int n = snprintf(text, sizeof text, "s%u", id);
        ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, (size_t)n, &got), QWP_OK);
        ck_assert_uint_eq(got, id);
        *at++ = (unsigned char)n;
        memcpy(at, text, (size_t)n);
        at += n;
    }
    if (persist) {
        ck_assert_int_eq(qwp_seglog_persist_dict(log, NULL), QWP_OK);
    }
    const size_t len = (size_t)(at - message) + 100;
    unsigned char *to;
    size_t room;
    ck_assert_int_eq(qwp_seglog_reserve(log, len, len, &to, &room, NULL), QWP_OK);
    memcpy(to, message, len);
    qwp_seglog_finish(log, len, len, NULL);
    qwp_seglog_publish(log);
}

START_TEST(damage_of_the_dictionary_is_healed_by_the_frames)
{
    for (int cut = 0; cut < 60; cut++) {
        const struct qwp_seglog_options options = store_options(slot);
        struct qwp_seglog *log = store_open(&options);
        for (uint32_t i = 0; i < 6; i++) {
            append_message(log, i * 2, 2, 0, true);
        }
        append_message(log, 12, 0, 0, true);
        qwp_seglog_close(log);
        slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
        const int fd = openat(slot_fd, QWP_DICT_FILE_NAME, O_RDWR);
        struct stat st;
        ck_assert_int_eq(fstat(fd, &st), 0);
        ck_assert_int_eq(ftruncate(fd, cut < st.st_size ? st.st_size - cut : 0), 0);
        close(fd);
        log = store_open(&options);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols, 12);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->frames_waiting, 7);
        for (uint32_t id = 0; id < 12; id++) {
            char text[8];
            snprintf(text, sizeof text, "s%u", id);
            ck_assert_mem_eq(qwp_dict_text(qwp_seglog_dict(log), id).text, text, strlen(text));
        }
        qwp_seglog_close(log);
        log = store_open(&options);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols, 12);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->symbols_healed, 0);
        qwp_seglog_close(log);
        slot_remove();
    }
}
END_TEST

START_TEST(damage_of_the_dictionary_beyond_healing_sets_the_slot_aside)
{
    const struct qwp_seglog_options options = store_options(slot);
    for (int turn = 1; turn <= 2; turn++) {
        struct qwp_seglog *log = store_open(&options);
        append_message(log, 0, 3, 0, true);
        ck_assert_int_eq(store_append(log, 60000), QWP_OK);
        ck_assert_int_eq(store_append(log, 60000), QWP_OK);
        append_message(log, 3, 1, 0, true); /* needs what the first brought */
        qwp_seglog_ack(log, 1);
        store_settle(log); /* the first frame is gone */
        qwp_seglog_close(log);
        slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
        ck_assert_int_eq(unlinkat(slot_fd, QWP_DICT_FILE_NAME, 0), 0);
        close(slot_fd);
        struct qwp_seglog_options in_place = options;
        in_place.in_place = true;
        struct qwp_error err;
        ck_assert_int_eq(qwp_seglog_open(&log, &in_place, &err), QWP_CORRUPT);
        ck_assert_uint_eq(store_files_count(slot).segments, 1);
        log = store_open(&options);
        const struct qwp_seglog_recovery *recovery = qwp_seglog_recovered(log);
        char place[400];
        snprintf(place, sizeof place, "%s.damaged-%d", slot, turn);
        ck_assert_str_eq(recovery->slot_set_aside, place);
        ck_assert_msg(strstr(recovery->damage, "frame 3 needs symbols") != NULL, "%s",
                      recovery->damage);
        ck_assert_uint_eq(recovery->next_fsn, 0);
        ck_assert_int_eq(store_append(log, 100), QWP_OK);
        ck_assert_uint_eq(store_files_count(place).segments, 1); /* what was not acknowledged */
        char failed[500];
        snprintf(failed, sizeof failed, "%s/%s", place, QWP_FAILED_NAME);
        ck_assert_int_eq(access(failed, R_OK), 0);
        qwp_seglog_close(log);
        store_dir_remove(slot);
    }
}
END_TEST

START_TEST(damage_unfinished_group_is_cut)
{
    const struct qwp_seglog_options options = store_options(slot);
    for (int across = 0; across < 2; across++) {
        struct qwp_seglog *log = store_open(&options);
        append_message(log, 0, 1, 0, true);
        append_message(log, 1, 1, QWP_FLAG_DEFER_COMMIT, true);
        append_message(log, 2, 1, 0, true); /* commits the one before */
        append_message(log, 3, 1, QWP_FLAG_DEFER_COMMIT, true);
        for (int i = 0; i < (across ? 600 : 1); i++) {
            append_message(log, 4, 0, QWP_FLAG_DEFER_COMMIT, true);
        }
        qwp_seglog_close(log);
        log = store_open(&options);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->next_fsn, 3);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->deferred_frames_cut, across ? 601 : 2);
        ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
        ck_assert_int_eq(store_append(log, 50000), QWP_OK);
        qwp_seglog_close(log);
        log = store_open(&options);
        ck_assert_uint_eq(qwp_seglog_recovered(log)->next_fsn, 4);
        ck_assert_str_eq(qwp_seglog_recovered(log)->damage, "");
        qwp_seglog_close(log);
        ck_assert_uint_eq(store_files_count(slot).corrupt, 0);
        store_dir_remove(slot);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog damage");
    TCase *tcase = tcase_create("damage");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, damage_of_any_byte_of_the_newest_segment_costs_what_is_behind_it);
    tcase_add_test(tcase, damage_by_cutting_the_newest_segment_costs_what_was_cut);
    tcase_add_test(tcase, damage_is_not_what_an_unfinished_frame_is);
    tcase_add_test(tcase, damage_before_the_first_waiting_frame_hides_it);
    tcase_add_test(tcase, damage_of_a_wholly_acknowledged_segment_costs_nothing);
    tcase_add_test(tcase, damage_by_missing_segments_keeps_what_is_before);
    tcase_add_test(tcase, damage_two_files_with_one_base);
    tcase_add_test(tcase, damage_strange_files_are_set_aside_or_left_alone);
    tcase_add_test(tcase, damage_unknown_version_is_set_aside);
    tcase_add_test(tcase, damage_sealed_residue_costs_nothing);
    tcase_add_test(tcase, damage_of_the_manifest_is_refused);
    tcase_add_test(tcase, damage_of_one_manifest_record_is_survived);
    tcase_add_test(tcase, damage_of_the_watermark_means_sending_again);
    tcase_add_test(tcase, damage_watermark_beyond_the_last_frame_is_refused_for_good);
    tcase_add_test(tcase, damage_of_the_dictionary_is_healed_by_the_frames);
    tcase_add_test(tcase, damage_of_the_dictionary_beyond_healing_sets_the_slot_aside);
    tcase_add_test(tcase, damage_unfinished_group_is_cut);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

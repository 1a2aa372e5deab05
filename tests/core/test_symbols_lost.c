/* Aim: with the dictionary's file lost, cut or damaged, a store with much waiting opens without
 * reading all of it and takes frames at once; what waits is delivered all the same, in order and
 * with the right symbols; and that holds whatever call fails and wherever the process dies.
 * Method: frames are messages that bring a symbol each, as the sidecar writes them. A slot of many
 * segments loses its dictionary and is opened with a table of system calls that counts what is
 * read, fails, or with crash points. The reader asks for each symbol of what it gets. */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_generations.h"
#include "core/store/qwp_segment.h"
#include "core/store/qwp_store_layout.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"
#include "tests/core/fault_fixture.h"
#include "tests/core/store_fixture.h"

enum {
    SEGMENT_BYTES = 64 * 1024,
    FRAME_BYTES = 20000, /* three to a segment */
    OLD = 60,            /* frames that wait when the dictionary is lost */
    NEW = 7,             /* that are stored afterwards */
    PATIENCE = 50,       /* tries of what fails once */
    READ_SEGMENTS = 10,  /* what open reads in full, of 20 */
};

static char dir[256];
static char slot[300];
static struct qwp_generations store;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/own", dir);
    fault_set(0, 0, 0);
}

static void teardown(void)
{
    store_dir_remove(dir);
}

/* --- the table --- */

static struct {
    uint64_t bytes_read;
    unsigned dict_fails; /* writes of the dictionary that fail... */
    unsigned sync_fails; /* ...or syncs of it */
    unsigned make_fails; /* segments that cannot be made */
    unsigned dict_syncs;
} table;

static bool is_dict(int fd)
{
    unsigned char magic[4];
    return pread(fd, magic, sizeof magic, 0) == sizeof magic &&
           qwp_load_u32(magic) == QWP_DICT_FILE_MAGIC;
}

static ssize_t t_pread(int fd, void *at, size_t len, off_t off)
{
    const ssize_t n = pread(fd, at, len, off);
    table.bytes_read += n > 0 ? (uint64_t)n : 0;
    return n;
}

static ssize_t t_pwrite(int fd, const void *at, size_t len, off_t off)
{
    if (table.dict_fails > 0 && is_dict(fd)) {
        table.dict_fails--;
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, at, len, off);
}

static int t_fdatasync(int fd)
{
    table.dict_syncs += is_dict(fd);
    if (table.sync_fails > 0 && is_dict(fd)) {
        table.sync_fails--;
        errno = EIO;
        return -1;
    }
    return fdatasync(fd);
}

static int t_fallocate(int fd, off_t off, off_t len)
{
    struct stat st;
    /* Not of a segment that is there. */
    if (table.make_fails > 0 && fstat(fd, &st) == 0 && st.st_size < off + len) {
        table.make_fails--;
        errno = ENOSPC;
        return -1;
    }
    return qwp_sys_real.fallocate(fd, off, len);
}

static const struct qwp_sys *table_sys(void)
{
    static struct qwp_sys sys;
    sys = qwp_sys_real;
    sys.pread = t_pread;
    sys.pwrite = t_pwrite;
    sys.fdatasync = t_fdatasync;
    sys.fallocate = t_fallocate;
    sys.monotonic_ns = fault_clock_ns;
    memset(&table, 0, sizeof table);
    return &sys;
}

/* --- the store --- */

static struct qwp_generations_options options_make(const struct qwp_sys *sys)
{
    struct qwp_generations_options options = {
        .parent = dir, .name = "own", .is_durable = true, .log = store_options("")};
    options.log.total_bytes_max = 60 * SEGMENT_BYTES;
    options.log.sync_interval_ns = QWP_NS_PER_MS;
    options.log.sys = sys;
    return options;
}

static enum qwp_result store_try(const struct qwp_sys *sys, struct qwp_error *err)
{
    const struct qwp_generations_options options = options_make(sys);
    return qwp_generations_open(&store, &options, err);
}

static void store_begin(const struct qwp_sys *sys)
{
    struct qwp_error err = {0};
    ck_assert_msg(store_try(sys, &err) == QWP_OK, "%s", err.text);
    qwp_generations_rings_resumed(&store);
}

static void keep(void)
{
    bool more = true;
    bool began;
    int64_t next_ns;
    for (int i = 0; more && i < 1000; i++) {
        qwp_generations_maintain(&store, fault_clock_ns(), &more, &next_ns, &began);
    }
}

static int text_of(char *text, size_t room, uint64_t fsn)
{
    return snprintf(text, room, "symbol of %llu", (unsigned long long)fsn);
}

/* A message with a symbol of its own, named by the id behind the delta. */
static uint64_t append(void)
{
    struct qwp_seglog *log = qwp_generations_writer(&store);
    const uint64_t fsn = qwp_seglog_next_fsn(log);
    unsigned char *payload;
    size_t room;
    struct qwp_error err = {0};
    enum qwp_result result = QWP_AGAIN;
    for (int i = 0; result == QWP_AGAIN && i < PATIENCE; i++) {
        result = qwp_seglog_reserve(log, FRAME_BYTES, FRAME_BYTES, &payload, &room, &err);
    }
    ck_assert_msg(result == QWP_OK, "%s", err.text);
    char text[32];
    uint32_t id;
    const int len = text_of(text, sizeof text, fsn);
    ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, (size_t)len, &id), QWP_OK);
    store_fill(payload, FRAME_BYTES, fsn);
    memset(payload, 0, QWP_HEADER_BYTES);
    qwp_store_u32(payload, QWP_WIRE_MAGIC);
    payload[4] = QWP_WIRE_VERSION;
    payload[5] = QWP_FLAG_DELTA_DICT;
    unsigned char *at = qwp_varint_put(payload + QWP_HEADER_BYTES, id);
    at = qwp_varint_put(at, 1);
    at = qwp_varint_put(at, (uint64_t)len);
    memcpy(at, text, (size_t)len);
    qwp_store_u32(at + len, id);
    result = QWP_AGAIN;
    for (int i = 0; result != QWP_OK && i < PATIENCE; i++) {
        result = qwp_seglog_persist_dict(log, &err);
    }
    ck_assert_msg(result == QWP_OK, "%s", err.text);
    qwp_seglog_finish(log, FRAME_BYTES, FRAME_BYTES, NULL);
    ck_assert_uint_eq(qwp_generations_publish(&store), fsn);
    return fsn;
}

/* The frame has the number, and its symbol is what the dictionary says. A server knows those that
 * were registered when the connection began, and those of frames that came since: `known`. */
static void frame_check(const struct qwp_seglog *log, const struct qwp_frame *frame, uint64_t fsn,
                        uint64_t *known)
{
    ck_assert_uint_eq(frame->fsn, fsn);
    ck_assert_uint_eq(frame->len, FRAME_BYTES);
    const unsigned char *end = frame->payload + frame->len;
    uint64_t start = 0;
    uint64_t count = 0;
    uint64_t len = 0;
    const unsigned char *at = qwp_varint_get(frame->payload + QWP_HEADER_BYTES, end, &start);
    at = qwp_varint_get(at, end, &count);
    at = qwp_varint_get(at, end, &len);
    ck_assert_uint_eq(count, 1);
    ck_assert_uint_le(start, *known);
    *known = start + 1 > *known ? start + 1 : *known;
    char text[32];
    ck_assert_uint_eq(len, (uint64_t)text_of(text, sizeof text, fsn));
    ck_assert_mem_eq(at, text, len);
    const uint32_t id = qwp_load_u32(at + len);
    const struct qwp_dict *dict = qwp_seglog_dict((struct qwp_seglog *)(uintptr_t)log);
    ck_assert_uint_lt(id, qwp_dict_count(dict));
    const struct qwp_name name = qwp_dict_text(dict, id);
    ck_assert_uint_eq(name.len, len);
    ck_assert_mem_eq(name.text, text, len);
}

/* What a sender does, over as many connections and generations as it takes. Returns where it ended:
 * before `end` when there is nothing more to be had. */
static uint64_t deliver(uint64_t from, uint64_t end)
{
    struct qwp_seglog *log = NULL;
    struct qwp_seglog_cursor cursor = {0};
    uint64_t known = 0;
    uint64_t fsn = from;
    for (int idle = 0; fsn < end && idle < 200; idle++) {
        while (qwp_generations_is_drained(&store)) {
            ck_assert_int_eq(qwp_generations_step(&store, NULL), QWP_OK);
        }
        if (log != qwp_generations_reader(&store)) {
            log = qwp_generations_reader(&store);
            known = qwp_dict_count(qwp_seglog_dict(log));
            cursor = (struct qwp_seglog_cursor){0};
        }
        struct qwp_frame frame;
        while (fsn < end && qwp_seglog_next(log, &cursor, &frame) == QWP_OK) {
            frame_check(log, &frame, fsn, &known);
            qwp_generations_ack(&store, fsn++);
            idle = 0;
        }
        keep();
    }
    return fsn;
}

static uint64_t bytes_of(uint32_t number)
{
    char path[320];
    snprintf(path, sizeof path, "%s.g%u", slot, number);
    return store_files_count(number == 1 ? slot : path).segment_bytes;
}

/* A file that could not be removed from a hollow slot is the next start's. */
static void check_budget(void)
{
    uint64_t bytes = 0;
    for (const struct qwp_generation *one = store.home; one != NULL; one = one->next) {
        bytes += one->log != NULL ? bytes_of(one->number) : 0;
    }
    ck_assert_uint_eq(atomic_load(&store.budget.charged), bytes);
}

/* --- what is lost --- */

enum loss { LOST, CUT, DAMAGED, LOSSES };

static void old_make(void)
{
    store_begin(NULL);
    for (uint64_t fsn = 0; fsn < OLD; fsn++) {
        append();
    }
    qwp_generations_close(&store);
}

static void dict_spoil(enum loss loss)
{
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/" QWP_DICT_FILE_NAME, slot);
    ck_assert_int_eq(stat(path, &st), 0);
    if (loss == LOST) {
        ck_assert_int_eq(unlink(path), 0);
    } else if (loss == CUT) {
        ck_assert_int_eq(truncate(path, st.st_size / 9), 0);
    } else {
        store_flip(slot, QWP_DICT_FILE_NAME, (uint64_t)st.st_size / 10, 1);
    }
}

static void expect_lacking(void)
{
    ck_assert(qwp_seglog_recovered(store.home->log)->lacks_symbols);
    ck_assert_uint_eq(qwp_generations_published(&store), OLD);
    ck_assert_uint_eq(store.writer->number, 2);
    ck_assert_str_eq(qwp_seglog_recovered(store.home->log)->damage, "");
}

/* --- tests --- */

START_TEST(lost_dictionary_does_not_keep_a_start_waiting)
{
    old_make();
    dict_spoil((enum loss)_i);
    store_begin(table_sys());
    expect_lacking();
    ck_assert_uint_lt(table.bytes_read, (uint64_t)READ_SEGMENTS * SEGMENT_BYTES);
    /* Before anything else is done. */
    const uint64_t read = table.bytes_read;
    for (uint64_t i = 0; i < NEW; i++) {
        ck_assert_uint_eq(append(), OLD + i);
    }
    ck_assert_uint_eq(table.bytes_read, read);
    ck_assert_uint_eq(deliver(0, OLD + NEW), OLD + NEW);
    ck_assert_uint_gt(table.bytes_read, read + (uint64_t)OLD / 2 * FRAME_BYTES);
    ck_assert_uint_gt(table.dict_syncs, 0);
    ck_assert_uint_lt(table.dict_syncs, OLD / 3 / 2); /* of the segments, and not for each */
    keep();
    check_budget();
    ck_assert_ptr_null(store.home->log); /* left, without a segment */
    qwp_generations_close(&store);
}
END_TEST

/* The file is made good before segments go, so the next start needs none of them. */
START_TEST(lost_symbols_are_in_the_file_before_their_segments_go)
{
    old_make();
    dict_spoil((enum loss)_i);
    store_begin(NULL);
    expect_lacking();
    ck_assert_uint_eq(append(), OLD);
    ck_assert_uint_eq(deliver(0, OLD - 20), OLD - 20);
    keep();
    ck_assert_uint_lt(store_files_count(slot).segments, 9);
    check_budget();
    qwp_generations_close(&store);
    store_begin(table_sys());
    ck_assert(!qwp_seglog_recovered(store.home->log)->lacks_symbols);
    ck_assert_uint_eq(qwp_seglog_recovered(store.home->log)->symbols_healed, 0);
    ck_assert_uint_eq(store.writer->number, 2);
    ck_assert_uint_eq(append(), OLD + 1);
    ck_assert_uint_eq(deliver(OLD - 20, OLD + 2), OLD + 2);
    qwp_generations_close(&store);
}
END_TEST

/* On a full disk sending goes on, but what has been sent stays as long as the file lacks it. */
START_TEST(lost_symbols_that_cannot_be_written_keep_their_segments)
{
    const bool by_sync = _i == 1;
    old_make();
    dict_spoil(LOST);
    store_begin(table_sys());
    expect_lacking();
    const unsigned before = store_files_count(slot).segments;
    char path[400];
    struct stat st;
    snprintf(path, sizeof path, "%s/" QWP_DICT_FILE_NAME, slot);
    ck_assert_int_eq(stat(path, &st), 0);
    table.dict_fails = by_sync ? 0 : UINT32_MAX;
    table.sync_fails = by_sync ? UINT32_MAX : 0;
    ck_assert_uint_eq(deliver(0, 30), 30);
    keep();
    ck_assert_uint_ge(store_files_count(slot).segments, before - 2); /* those that open has read */
    ck_assert_int_eq(qwp_generations_keeper_state(&store), QWP_KEEPER_FAILING);
    ck_assert_ptr_nonnull(strstr(qwp_generations_keeper_error(&store)->text, QWP_DICT_FILE_NAME));
    /* A start finds all that it needs in frames that were sent. */
    qwp_generations_close(&store);
    if (by_sync) { /* what a host crash may leave of it */
        ck_assert_int_eq(truncate(path, st.st_size), 0);
    }
    store_begin(table_sys());
    ck_assert_str_eq(qwp_seglog_recovered(store.home->log)->damage, "");
    table.dict_fails = by_sync ? 0 : 3;
    table.sync_fails = by_sync ? 3 : 0;
    ck_assert_uint_eq(deliver(30, OLD - 3), OLD - 3);
    for (int i = 0; i < 100; i++) {
        keep();
    }
    ck_assert_uint_lt(store_files_count(slot).segments, 5);
    ck_assert_int_eq(qwp_generations_keeper_state(&store), QWP_KEEPER_WELL);
    qwp_generations_close(&store); /* and the file has all */
    store_begin(table_sys());
    ck_assert_uint_eq(qwp_seglog_recovered(store.home->log)->symbols_healed, 0);
    ck_assert_uint_eq(append(), OLD);
    ck_assert_uint_eq(deliver(OLD - 3, OLD + 1), OLD + 1);
    keep();
    check_budget();
    qwp_generations_close(&store);
}
END_TEST

/* Nobody needs what could not be written once all is sent. */
START_TEST(lost_symbols_are_forgotten_when_all_is_sent)
{
    old_make();
    dict_spoil(LOST);
    store_begin(table_sys());
    table.dict_fails = UINT32_MAX;
    ck_assert_uint_eq(deliver(0, OLD), OLD);
    keep();
    keep();
    ck_assert_int_eq(qwp_generations_keeper_state(&store), QWP_KEEPER_WELL);
    ck_assert_uint_eq(store_files_count(slot).segments, 1);
    table.dict_fails = 0;
    ck_assert_uint_eq(append(), OLD);
    ck_assert_uint_eq(deliver(OLD, OLD + 1), OLD + 1);
    keep();
    ck_assert_uint_eq(store_files_count(slot).segments, 0);
    qwp_generations_close(&store);
}
END_TEST

/* Frames before the damage are delivered, what lies behind is kept, the rest goes on. */
START_TEST(lost_dictionary_and_damage_in_the_middle)
{
    old_make();
    dict_spoil(CUT);
    char name[QWP_STORE_NAME_BYTES];
    store_segment_name(slot, 30, name);
    store_flip(slot, name, QWP_SEGMENT_HEADER_BYTES + FRAME_BYTES + 100, 1);
    store_begin(table_sys());
    expect_lacking();
    for (uint64_t i = 0; i < NEW; i++) {
        ck_assert_uint_eq(append(), OLD + i);
    }
    ck_assert_uint_eq(deliver(0, 31), 31);
    struct qwp_seglog_damage damage;
    const char *shown;
    keep();
    ck_assert(qwp_generations_take_damage(&store, &damage, &shown));
    ck_assert_str_eq(shown, "own");
    ck_assert_uint_eq(damage.frames, OLD - 31);
    ck_assert_msg(strstr(damage.text, name) != NULL, "%s", damage.text);
    ck_assert_uint_eq(deliver(OLD, OLD + NEW), OLD + NEW);
    ck_assert(damage.is_settled || qwp_generations_take_damage(&store, &damage, &shown));
    ck_assert_uint_eq(store_files_count(slot).corrupt, 10);
    ck_assert_uint_eq(damage.files_set_aside, 10);
    keep();
    check_budget();
    qwp_generations_close(&store);
}
END_TEST

/* The frame, the first of its segment, brings its symbol under the id behind the right one. */
static void delta_shift(uint64_t fsn)
{
    char name[QWP_STORE_NAME_BYTES];
    char path[400];
    unsigned char frame[QWP_FRAME_HEADER_BYTES + FRAME_BYTES];
    store_segment_name(slot, fsn, name);
    snprintf(path, sizeof path, "%s/%s", slot, name);
    const int fd = open(path, O_RDWR);
    ck_assert_int_eq(pread(fd, frame, sizeof frame, QWP_SEGMENT_HEADER_BYTES), sizeof frame);
    frame[QWP_FRAME_HEADER_BYTES + QWP_HEADER_BYTES] = (unsigned char)(fsn + 1);
    qwp_store_u32(frame, qwp_frame_crc(false, frame + QWP_FRAME_HEADER_BYTES, FRAME_BYTES, fsn));
    ck_assert_int_eq(pwrite(fd, frame, sizeof frame, QWP_SEGMENT_HEADER_BYTES), sizeof frame);
    close(fd);
}

/* A symbol that no frame brings: not before a frame needs it is anything given up. */
START_TEST(lost_dictionary_and_symbols_that_no_frame_brings)
{
    old_make();
    dict_spoil(LOST);
    delta_shift(0);
    store_begin(table_sys());
    /* The whole slot went, at once. */
    ck_assert_uint_lt(table.bytes_read, (uint64_t)READ_SEGMENTS * SEGMENT_BYTES);
    const struct qwp_seglog_recovery *recovered = qwp_seglog_recovered(store.home->log);
    ck_assert_ptr_nonnull(strstr(recovered->slot_set_aside, "own.damaged-1"));
    ck_assert_uint_eq(append(), 0);
    ck_assert_uint_eq(deliver(0, 1), 1);
    qwp_generations_close(&store);
}
END_TEST

/* The same in the middle is damage there. */
START_TEST(lost_dictionary_and_a_gap_in_the_middle)
{
    old_make();
    dict_spoil(LOST);
    delta_shift(30);
    store_begin(table_sys());
    expect_lacking();
    ck_assert_uint_eq(append(), OLD);
    ck_assert_uint_eq(deliver(0, 30), 30);
    struct qwp_seglog_damage damage;
    const char *shown;
    keep();
    ck_assert(qwp_generations_take_damage(&store, &damage, &shown));
    ck_assert_msg(strstr(damage.text, "needs symbols") != NULL, "%s", damage.text);
    ck_assert_uint_eq(damage.frames, OLD - 30);
    ck_assert_uint_eq(deliver(OLD, OLD + 1), OLD + 1);
    ck_assert_uint_eq(store_files_count(slot).corrupt, 10);
    qwp_generations_close(&store);
}
END_TEST

/* Where no fresh slot can be made all is read first, and the old one goes on. */
START_TEST(lost_dictionary_on_a_full_disk_is_read_from_frames_at_once)
{
    old_make();
    dict_spoil(LOST);
    const struct qwp_sys *sys = table_sys();
    table.make_fails = UINT32_MAX;
    store_begin(sys);
    qwp_generations_close(&store);
    dict_spoil(LOST);
    store_begin(sys); /* finds nothing of the one that could not be made */
    ck_assert_uint_lt(table.make_fails, UINT32_MAX - 2);
    table.make_fails = 0;
    ck_assert(!qwp_seglog_recovered(store.home->log)->lacks_symbols);
    ck_assert_uint_eq(qwp_seglog_recovered(store.home->log)->symbols, OLD);
    ck_assert_uint_eq(store.writer->number, 1);
    ck_assert_uint_eq(append(), OLD);
    ck_assert_uint_eq(deliver(0, OLD + 1), OLD + 1);
    qwp_generations_close(&store);
    store_begin(NULL);
    ck_assert_uint_eq(append(), OLD + 1);
    qwp_generations_close(&store);
}
END_TEST

/* Nor is one made beyond the number of slots that a start takes. */
START_TEST(lost_dictionary_with_as_many_slots_as_may_be)
{
    enum { EARLIER = QWP_GENERATIONS_MAX - 1 };
    struct qwp_generations_options options = options_make(NULL);
    options.log.total_bytes_max = 200 * SEGMENT_BYTES;
    ck_assert_int_eq(qwp_generations_open(&store, &options, NULL), QWP_OK);
    for (uint64_t fsn = 0; fsn < EARLIER + OLD; fsn++) {
        append();
        while (fsn < EARLIER && !qwp_generations_want(&store)) {
            keep();
        }
        if (fsn < EARLIER) {
            qwp_generations_ask(&store);
        }
        while (fsn < EARLIER && !qwp_generations_advance(&store)) {
            keep();
        }
    }
    ck_assert_uint_eq(store.writer->number, QWP_GENERATIONS_MAX);
    qwp_generations_close(&store);
    char path[400];
    snprintf(path, sizeof path, "%s.g%d/" QWP_DICT_FILE_NAME, slot, QWP_GENERATIONS_MAX);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(qwp_generations_open(&store, &options, NULL), QWP_OK);
    ck_assert_uint_eq(store.writer->number, QWP_GENERATIONS_MAX);
    ck_assert_uint_eq(append(), EARLIER + OLD);
    ck_assert_uint_eq(deliver(0, EARLIER + OLD + 1), EARLIER + OLD + 1);
    qwp_generations_close(&store);
}
END_TEST

/* Lost once more in the middle of it, and a generation ahead of the reader's loses its own. */
START_TEST(lost_dictionaries_of_several_generations)
{
    old_make();
    dict_spoil(LOST);
    store_begin(NULL);
    for (uint64_t i = 0; i < OLD; i++) {
        append();
    }
    ck_assert_uint_eq(deliver(0, 2), 2); /* of the first segment: none has gone */
    qwp_generations_close(&store);
    dict_spoil(LOST);
    char path[400];
    snprintf(path, sizeof path, "%s.g2/" QWP_DICT_FILE_NAME, slot);
    ck_assert_int_eq(unlink(path), 0);
    store_begin(table_sys());
    ck_assert_uint_lt(table.bytes_read, (uint64_t)2 * READ_SEGMENTS * SEGMENT_BYTES);
    ck_assert_uint_eq(store.writer->number, 3);
    ck_assert_uint_eq(append(), 2 * OLD);
    keep(); /* the dictionary of the second is let go of until its turn comes */
    ck_assert_uint_eq(deliver(2, 2 * OLD + 1), 2 * OLD + 1);
    keep();
    qwp_generations_close(&store);
}
END_TEST

/* --- faults --- */

static unsigned long life_with_faults(unsigned long from, int error)
{
    fault_set(0, 0, 0);
    old_make();
    dict_spoil(CUT);
    fault_set(from, 1, error);
    struct qwp_error err = {0};
    if (store_try(&fault_sys, &err) != QWP_OK) {
        ck_assert_msg(error != EINTR && error != FAULT_SHORT, "call %lu: %s", from, err.text);
        ck_assert_msg(err.text[0] != '\0', "call %lu: no text", from);
        store_begin(&fault_sys);
    }
    qwp_generations_rings_resumed(&store);
    ck_assert_uint_eq(qwp_generations_published(&store), OLD);
    for (uint64_t i = 0; i < NEW; i++) {
        ck_assert_uint_eq(append(), OLD + i);
        keep();
    }
    ck_assert_msg(deliver(0, OLD + NEW) == OLD + NEW, "call %lu", from);
    for (int i = 0; i < 20; i++) {
        keep();
    }
    const unsigned long calls = fault.calls;
    fault_set(0, 0, 0);
    ck_assert_uint_eq(store_files_count(slot).corrupt, 0);
    check_budget();
    qwp_generations_close(&store);
    store_begin(NULL);
    ck_assert_uint_eq(qwp_generations_published(&store), OLD + NEW);
    ck_assert_uint_eq(qwp_generations_acked(&store), OLD + NEW);
    check_budget();
    qwp_generations_close(&store);
    store_dir_remove(dir);
    ck_assert_int_eq(mkdir(dir, 0700), 0);
    return calls;
}

static const int errors[] = {EIO, ENOSPC, EINTR, FAULT_SHORT};

START_TEST(lost_dictionary_with_faults_of_each_call)
{
    const unsigned long calls = life_with_faults(0, 0);
    ck_assert_uint_gt(calls, 200);
    const unsigned long step = getenv("QWP_FAULTS_FULL") != NULL ? 1 : 5;
    for (unsigned long k = 1 + (unsigned long)_i % step; k <= calls; k += step) {
        life_with_faults(k, errors[_i]);
    }
}
END_TEST

/* --- a thread that reads --- */

static struct {
    pthread_t thread;
    struct qwp_slow_op *op; /* out; NULL: none */
    struct qwp_slow_op copy;
    _Atomic bool is_finished;
} reading;

static void *reading_run(void *arg)
{
    (void)arg;
    qwp_slow_run(&qwp_sys_real, &reading.copy);
    atomic_store_explicit(&reading.is_finished, true, memory_order_release);
    return NULL;
}

static void reading_submit(void *owner, struct qwp_slow_op *op)
{
    (void)owner;
    reading.op = op;
    reading.copy = *op;
    atomic_store(&reading.is_finished, false);
    ck_assert_int_eq(pthread_create(&reading.thread, NULL, reading_run, NULL), 0);
}

static void reading_collect(bool wait)
{
    if (reading.op != NULL &&
        (wait || atomic_load_explicit(&reading.is_finished, memory_order_acquire))) {
        ck_assert_int_eq(pthread_join(reading.thread, NULL), 0);
        reading.op->error = reading.copy.error;
        reading.op->done = true;
        reading.op = NULL;
    }
}

static void *writing_run(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < NEW; i++) {
        append();
    }
    return NULL;
}

/* Intake appends, the reader goes through what waits, and the check adds its symbols: three threads
 * as in the daemon. */
START_TEST(lost_symbols_are_added_by_another_thread)
{
    old_make();
    dict_spoil(LOST);
    struct qwp_generations_options options = options_make(NULL);
    const struct qwp_slow slow = {.submit = reading_submit, .step_bytes = 30000};
    options.log.reading = &slow;
    ck_assert_int_eq(qwp_generations_open(&store, &options, NULL), QWP_OK);
    expect_lacking();
    pthread_t writer;
    ck_assert_int_eq(pthread_create(&writer, NULL, writing_run, NULL), 0);
    uint64_t known = qwp_dict_count(qwp_seglog_dict(store.home->log));
    struct qwp_seglog_cursor cursor = {0};
    for (uint64_t fsn = 0; fsn < OLD;) {
        struct qwp_frame frame;
        if (qwp_seglog_next(store.home->log, &cursor, &frame) == QWP_OK) {
            frame_check(store.home->log, &frame, fsn, &known);
            qwp_generations_ack(&store, fsn++);
        }
        reading_collect(false);
        keep();
        /* A reconnect in the middle registers what is known now. */
        known = qwp_dict_count(qwp_seglog_dict(store.home->log));
    }
    ck_assert_int_eq(pthread_join(writer, NULL), 0);
    reading_collect(true);
    keep();
    ck_assert_uint_eq(deliver(OLD, OLD + NEW), OLD + NEW);
    reading_collect(true);
    qwp_generations_close(&store);
}
END_TEST

/* --- crashes --- */

#ifdef QWP_CRASH_POINTS

struct progress {
    _Atomic uint64_t published; /* so many at least */
    _Atomic uint64_t acked;     /* so many at most */
};

static const char *const points[] = {
    "open.tail_zeroed",   "open.manifest",         "open.tidied",       "dict.partial",
    "dict.appended",      "symbols.saved",         "generations.based", "keeper.watermark",
    "trim.manifest",      "trim.committed",        "trim.unlinked",     "generations.stepped",
    "generations.hollow", "generations.hollowing",
};

static void child_live(struct progress *progress, const char *point, unsigned passage)
{
    qwp_crash_arm(point, passage);
    store_begin(NULL);
    uint64_t acked = qwp_generations_acked(&store);
    for (int i = 0; i < NEW; i++) {
        append();
        atomic_store(&progress->published, qwp_generations_published(&store));
    }
    while (acked < OLD + NEW) {
        const uint64_t end = acked + 9 < OLD + NEW ? acked + 9 : OLD + NEW;
        atomic_store(&progress->acked, end);
        acked = deliver(acked, end);
        keep();
    }
    qwp_generations_close(&store);
    _exit(0);
}

static void parent_go_on(struct progress *progress)
{
    store_begin(NULL);
    for (const struct qwp_generation *one = store.home; one != NULL; one = one->next) {
        const struct qwp_seglog_recovery *recovered = qwp_seglog_recovered(one->log);
        ck_assert_str_eq(recovered->damage, "");
        ck_assert_str_eq(recovered->slot_set_aside, "");
    }
    const uint64_t published = qwp_generations_published(&store);
    const uint64_t acked = qwp_generations_acked(&store);
    ck_assert_uint_ge(published, atomic_load(&progress->published));
    ck_assert_uint_le(published, atomic_load(&progress->published) + 1);
    ck_assert_uint_le(acked, atomic_load(&progress->acked));
    check_budget();
    ck_assert_uint_eq(append(), published);
    ck_assert_uint_eq(deliver(acked, published + 1), published + 1);
    keep();
    check_budget();
    qwp_generations_close(&store);
}

START_TEST(lost_dictionary_and_crash_at_every_point)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static const unsigned passages[] = {1, 2, 5};
    for (size_t i = 0; i < sizeof passages / sizeof passages[0]; i++) {
        old_make();
        dict_spoil((enum loss)(i % LOSSES));
        atomic_store(&progress->published, OLD);
        atomic_store(&progress->acked, 0);
        fflush(stdout);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            child_live(progress, points[_i], passages[i]);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        ck_assert_msg(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                      "%s:%u ended with status %x", points[_i], passages[i], status);
        ck_assert_msg(died || passages[i] > 1, "%s is never reached", points[_i]);
        parent_go_on(progress);
        store_dir_remove(dir);
        ck_assert_int_eq(mkdir(dir, 0700), 0);
    }
    munmap(progress, sizeof *progress);
}
END_TEST

/* Any point, any passage, on one slot all the time. */
START_TEST(lost_dictionary_and_crash_after_crash)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned nth = 1; nth < 60; nth += 7) {
        old_make();
        dict_spoil(LOST);
        atomic_store(&progress->published, OLD);
        atomic_store(&progress->acked, 0);
        for (unsigned life = 0; life < 5; life++) {
            fflush(stdout);
            const pid_t pid = fork();
            ck_assert_int_ge(pid, 0);
            if (pid == 0) {
                qwp_crash_arm("*", nth + 11 * life);
                store_begin(NULL);
                for (uint64_t acked = qwp_generations_acked(&store); acked < OLD;) {
                    atomic_store(&progress->acked, acked + 4);
                    acked = deliver(acked, acked + 4 < OLD ? acked + 4 : OLD);
                    keep();
                }
                qwp_generations_close(&store);
                _exit(0);
            }
            int status;
            ck_assert_int_eq(waitpid(pid, &status, 0), pid);
            ck_assert_msg(WIFSIGNALED(status) || WEXITSTATUS(status) == 0, "status %x", status);
        }
        parent_go_on(progress);
        store_dir_remove(dir);
        ck_assert_int_eq(mkdir(dir, 0700), 0);
    }
    munmap(progress, sizeof *progress);
}
END_TEST

#endif

int main(void)
{
    Suite *suite = suite_create("symbols lost");
    TCase *tcase = tcase_create("lost");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, lost_dictionary_does_not_keep_a_start_waiting, 0, LOSSES);
    tcase_add_loop_test(tcase, lost_symbols_are_in_the_file_before_their_segments_go, 0, LOSSES);
    tcase_add_loop_test(tcase, lost_symbols_that_cannot_be_written_keep_their_segments, 0, 2);
    tcase_add_test(tcase, lost_symbols_are_forgotten_when_all_is_sent);
    tcase_add_test(tcase, lost_dictionary_and_damage_in_the_middle);
    tcase_add_test(tcase, lost_dictionary_and_symbols_that_no_frame_brings);
    tcase_add_test(tcase, lost_dictionary_and_a_gap_in_the_middle);
    tcase_add_test(tcase, lost_dictionary_with_as_many_slots_as_may_be);
    tcase_add_test(tcase, lost_dictionary_on_a_full_disk_is_read_from_frames_at_once);
    tcase_add_test(tcase, lost_dictionaries_of_several_generations);
    tcase_add_loop_test(tcase, lost_dictionary_with_faults_of_each_call, 0, 4);
    tcase_add_test(tcase, lost_symbols_are_added_by_another_thread);
#ifdef QWP_CRASH_POINTS
    tcase_add_loop_test(tcase, lost_dictionary_and_crash_at_every_point, 0,
                        sizeof points / sizeof points[0]);
    tcase_add_test(tcase, lost_dictionary_and_crash_after_crash);
#endif
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

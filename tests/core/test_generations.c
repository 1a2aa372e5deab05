/* Aim: a store of several generations is one row of frames: numbers without gaps, every frame with
 * its symbol, nothing lost or kept too long, whatever crash comes in between.
 * Method: each frame brings a symbol of its own, and says under which id; the reader looks it up in
 * the dictionary of the generation it reads. Crashes: a child lives until a named point and dies
 * there; the parent opens what it left and compares with how far the child said it came. */
#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
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
#include "core/store/qwp_store_layout.h"
#include "tests/core/store_fixture.h"

enum { FRAME_BYTES = 9000, SEGMENT_BYTES = 64 * 1024 };

static char dir[256];
static struct qwp_generations store;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
}

static void teardown(void)
{
    store_dir_remove(dir);
}

static struct qwp_generations_options options_make(bool periodic)
{
    struct qwp_generations_options options = {
        .parent = dir, .name = "own", .is_durable = true, .log = store_options("")};
    options.log.total_bytes_max = 100 * SEGMENT_BYTES;
    options.log.durability = periodic ? QWP_DURABILITY_PERIODIC : QWP_DURABILITY_MEMORY;
    options.log.sync_interval_ns = QWP_NS_PER_MS;
    return options;
}

static void open_store(bool periodic)
{
    const struct qwp_generations_options options = options_make(periodic);
    struct qwp_error err = {0};
    ck_assert_msg(qwp_generations_open(&store, &options, &err) == QWP_OK, "%s", err.text);
}

static void keep(void)
{
    bool more = true;
    bool began;
    int64_t next_ns;
    for (int i = 0; more && i < 10000; i++) {
        qwp_generations_maintain(&store, qwp_clock_monotonic_ns(), &more, &next_ns, &began);
    }
}

/* One frame with a symbol of its own. */
static uint64_t append(void)
{
    struct qwp_seglog *log = qwp_generations_writer(&store);
    const uint64_t fsn = qwp_seglog_next_fsn(log);
    char text[32];
    uint32_t id = 0;
    const int len = snprintf(text, sizeof text, "symbol of %llu", (unsigned long long)fsn);
    ck_assert_int_eq(qwp_dict_intern(qwp_seglog_dict(log), text, (size_t)len, &id), QWP_OK);
    unsigned char *at;
    size_t room;
    struct qwp_error err = {0};
    ck_assert_msg(qwp_seglog_reserve(log, FRAME_BYTES, FRAME_BYTES, &at, &room, &err) == QWP_OK,
                  "%s", err.text);
    store_fill(at, FRAME_BYTES, fsn);
    qwp_store_u32(at, id);
    ck_assert_int_eq(qwp_seglog_persist_dict(log, NULL), QWP_OK);
    qwp_seglog_finish(log, FRAME_BYTES, FRAME_BYTES, NULL);
    ck_assert_uint_eq(qwp_generations_publish(&store), fsn);
    return fsn;
}

/* The writer moves on, as intake does. */
static void move_on(void)
{
    while (!qwp_generations_want(&store)) {
        keep();
    }
    qwp_generations_ask(&store);
    ck_assert(qwp_generations_is_asked(&store));
    while (!qwp_generations_advance(&store)) {
        keep();
    }
    ck_assert(!qwp_generations_is_asked(&store));
}

/* What a sender does: reads and acknowledges up to `end`, over as many generations as it takes. */
static void deliver(uint64_t from, uint64_t end)
{
    for (uint64_t fsn = from; fsn < end; fsn++) {
        while (qwp_generations_is_drained(&store)) {
            ck_assert_int_eq(qwp_generations_step(&store, NULL), QWP_OK);
        }
        struct qwp_seglog *log = qwp_generations_reader(&store);
        struct qwp_seglog_cursor cursor = {0};
        struct qwp_frame frame;
        ck_assert_int_eq(qwp_seglog_next(log, &cursor, &frame), QWP_OK);
        ck_assert_uint_eq(frame.fsn, fsn);
        char text[32];
        const int len = snprintf(text, sizeof text, "symbol of %llu", (unsigned long long)fsn);
        const uint32_t id = qwp_load_u32(frame.payload);
        ck_assert_uint_lt(id, qwp_dict_count(qwp_seglog_dict(log)));
        const struct qwp_name name = qwp_dict_text(qwp_seglog_dict(log), id);
        ck_assert_uint_eq(name.len, (uint32_t)len);
        ck_assert_mem_eq(name.text, text, (size_t)len);
        qwp_generations_ack(&store, fsn);
    }
}

static unsigned slots_count(void)
{
    DIR *list = opendir(dir);
    unsigned count = 0;
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        count += qwp_generations_owns("own", entry->d_name);
    }
    closedir(list);
    return count;
}

static uint64_t files_bytes(void)
{
    uint64_t bytes = 0;
    DIR *list = opendir(dir);
    for (const struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char path[600];
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (qwp_generations_owns("own", entry->d_name)) {
            bytes += store_files_count(path).segment_bytes;
        }
    }
    closedir(list);
    return bytes;
}

static void check_budget(void)
{
    struct qwp_seglog_stats stats;
    qwp_generations_stats(&store, &stats);
    ck_assert_uint_eq(stats.bytes_total, files_bytes());
}

START_TEST(generations_names_are_told_apart)
{
    ck_assert(qwp_generations_owns("own", "own"));
    ck_assert(qwp_generations_owns("own", "own.g2"));
    ck_assert(qwp_generations_owns("own", "own.g123"));
    static const char *const others[] = {"",        "ow",      "own2",       "own.g",
                                         "own.g1",  "own.g02", "own.g2x",    "own.damaged-1",
                                         "own.g-2", "xown.g2", "own.g2.g3",  "own.G2",
                                         "own.g 2", "own.g+2", "own.g2.tmp", ".removed-own.g2"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        ck_assert_msg(!qwp_generations_owns("own", others[i]), "%s", others[i]);
    }
}
END_TEST

START_TEST(generations_are_one_row_of_frames)
{
    open_store(_i == 1);
    qwp_generations_rings_resumed(&store);
    for (uint64_t fsn = 0; fsn < 60; fsn++) {
        if (fsn > 0 && fsn % 10 == 0) {
            move_on();
        }
        ck_assert_uint_eq(append(), fsn);
        keep();
        ck_assert_uint_eq(qwp_generations_published(&store), fsn + 1);
    }
    ck_assert_uint_eq(slots_count(), 6);
    check_budget();
    deliver(0, 25);
    ck_assert_uint_eq(qwp_generations_acked(&store), 25);
    keep();
    ck_assert_uint_eq(slots_count(), 5); /* the second has gone, the first stays */
    char home[300];
    snprintf(home, sizeof home, "%s/own", dir);
    ck_assert_uint_eq(store_files_count(home).segments, 0);
    check_budget();
    deliver(25, 60);
    ck_assert_uint_eq(qwp_generations_acked(&store), 60);
    keep();
    ck_assert_uint_eq(slots_count(), 2);
    check_budget();
    /* A second sender of that name is refused for as long as this one runs. */
    struct qwp_generations other;
    struct qwp_error err;
    const struct qwp_generations_options options = options_make(false);
    ck_assert_int_eq(qwp_generations_open(&other, &options, &err), QWP_AGAIN);
    qwp_generations_close(&store);
}
END_TEST

START_TEST(generations_are_found_again_in_order)
{
    open_store(false);
    for (uint64_t fsn = 0; fsn < 40; fsn++) {
        if (fsn > 0 && fsn % 4 == 0) {
            move_on();
        }
        append();
    }
    deliver(0, 6);
    qwp_generations_close(&store);
    open_store(true);
    ck_assert_uint_eq(qwp_generations_published(&store), 40);
    ck_assert_uint_eq(qwp_generations_acked(&store), 6);
    check_budget();
    keep();
    ck_assert_uint_eq(slots_count(), 10); /* rings may still have to go on from their notes */
    qwp_generations_rings_resumed(&store);
    ck_assert_uint_eq(append(), 40);
    deliver(6, 41);
    keep();
    ck_assert_uint_eq(slots_count(), 2);
    check_budget();
    qwp_generations_close(&store);
    open_store(false);
    ck_assert_uint_eq(qwp_generations_published(&store), 41);
    ck_assert_uint_eq(qwp_generations_acked(&store), 41);
    ck_assert_uint_eq(append(), 41);
    deliver(41, 42);
    qwp_generations_close(&store);
}
END_TEST

START_TEST(generations_share_one_budget)
{
    struct qwp_generations_options options = options_make(false);
    options.log.total_bytes_max = 6 * SEGMENT_BYTES;
    ck_assert_int_eq(qwp_generations_open(&store, &options, NULL), QWP_OK);
    qwp_generations_rings_resumed(&store);
    uint64_t fsn = 0;
    uint64_t acked = 0;
    for (int round = 0; round < 40; round++) {
        struct qwp_seglog *log = qwp_generations_writer(&store);
        unsigned char *at;
        size_t room;
        struct qwp_error err = {0};
        const enum qwp_result result =
            qwp_seglog_reserve(log, FRAME_BYTES, FRAME_BYTES, &at, &room, &err);
        qwp_seglog_abandon(log, 0);
        if (result == QWP_OK) {
            ck_assert_uint_eq(append(), fsn++);
        } else {
            ck_assert_int_eq(result, QWP_AGAIN);
            deliver(acked, fsn);
            acked = fsn;
        }
        if (round % 7 == 6) {
            for (int i = 0; i < 50 && !qwp_generations_want(&store); i++) {
                keep();
                if (i == 10) {
                    deliver(acked, fsn);
                    acked = fsn;
                }
            }
            move_on();
        }
        keep();
        check_budget();
        struct qwp_seglog_stats stats;
        qwp_generations_stats(&store, &stats);
        ck_assert_uint_le(stats.bytes_total, 7 * SEGMENT_BYTES);
    }
    deliver(acked, fsn);
    ck_assert_uint_gt(fsn, 20);
    qwp_generations_close(&store);
}
END_TEST

/* Another client opened the first slot, which it knows, and appended to it. */
START_TEST(generations_survive_a_stranger_in_the_first_slot)
{
    open_store(false);
    for (uint64_t fsn = 0; fsn < 8; fsn++) {
        if (fsn == 4) {
            move_on();
        }
        append();
    }
    qwp_generations_close(&store);
    char home[300];
    snprintf(home, sizeof home, "%s/own", dir);
    const struct qwp_seglog_options alone = store_options(home);
    struct qwp_seglog *log = store_open(&alone);
    for (int i = 0; i < 6; i++) {
        ck_assert_int_eq(store_append(log, 300), QWP_OK); /* 4 ... 9 */
    }
    qwp_seglog_close(log);
    open_store(false);
    ck_assert_uint_eq(qwp_generations_published(&store), 10);
    ck_assert_uint_eq(append(), 10);
    uint64_t seen = 0;
    while (qwp_generations_acked(&store) < 11) {
        while (qwp_generations_is_drained(&store)) {
            ck_assert_int_eq(qwp_generations_step(&store, NULL), QWP_OK);
        }
        struct qwp_seglog_cursor cursor = {0};
        struct qwp_frame frame;
        ck_assert_int_eq(qwp_seglog_next(qwp_generations_reader(&store), &cursor, &frame), QWP_OK);
        ck_assert_uint_lt(qwp_generations_acked(&store), 10 + (seen == 14));
        qwp_generations_ack(&store, frame.fsn);
        seen++;
    }
    ck_assert_uint_eq(seen, 15); /* 10 in the first, 4 in the second, 1 in the third */
    qwp_generations_close(&store);
}
END_TEST

/* ---- two threads ---- */

/* A generation for each THREAD_SWITCH frames at most, and at first for each. */
enum { THREAD_FRAMES = 3000, THREAD_SWITCH = 100, THREAD_SURE = 5 };

/* The writer's side, as intake has it. A failure is told to the main thread, which asserts. */
static _Atomic bool has_failed;

static void *writer_run(void *arg)
{
    const char **failure = arg;
    for (uint64_t fsn = 0; fsn < THREAD_FRAMES;) {
        struct qwp_seglog *log = qwp_generations_writer(&store);
        if (qwp_generations_is_asked(&store)) {
            if (!qwp_generations_advance(&store)) {
                sched_yield();
            }
            continue;
        }
        if (fsn % THREAD_SWITCH == THREAD_SWITCH - 1 && store.writer->number <= THREAD_SURE &&
            !qwp_generations_want(&store)) {
            sched_yield(); /* the next one is still being made */
            continue;
        }
        unsigned char *at;
        size_t room;
        uint32_t id = 0;
        char text[32];
        const int len = snprintf(text, sizeof text, "symbol of %llu", (unsigned long long)fsn);
        if (qwp_seglog_next_fsn(log) != fsn) {
            *failure = "the next frame has another number";
            atomic_store(&has_failed, true);
            return NULL;
        }
        if (qwp_seglog_reserve(log, FRAME_BYTES, FRAME_BYTES, &at, &room, NULL) != QWP_OK) {
            sched_yield(); /* the budget */
            continue;
        }
        if (qwp_dict_intern(qwp_seglog_dict(log), text, (size_t)len, &id) != QWP_OK ||
            qwp_seglog_persist_dict(log, NULL) != QWP_OK) {
            *failure = "a symbol cannot be kept";
            atomic_store(&has_failed, true);
            return NULL;
        }
        qwp_store_u32(at, id);
        qwp_seglog_finish(log, FRAME_BYTES, FRAME_BYTES, NULL);
        qwp_generations_publish(&store);
        fsn++;
        if (fsn % THREAD_SWITCH > THREAD_SWITCH / 2 && qwp_generations_want(&store) &&
            fsn % THREAD_SWITCH > THREAD_SWITCH * 3 / 4) {
            qwp_generations_ask(&store);
        }
    }
    return NULL;
}

START_TEST(generations_are_shared_by_two_threads)
{
    open_store(true);
    qwp_generations_rings_resumed(&store);
    const char *failure = NULL;
    pthread_t writer;
    ck_assert_int_eq(pthread_create(&writer, NULL, writer_run, &failure), 0);
    uint64_t acked = 0;
    while (acked < THREAD_FRAMES && !atomic_load(&has_failed)) {
        const uint64_t published = qwp_generations_published(&store);
        deliver(acked, published);
        acked = published;
        bool more;
        bool began;
        int64_t next_ns;
        qwp_generations_maintain(&store, qwp_clock_monotonic_ns(), &more, &next_ns, &began);
    }
    pthread_join(writer, NULL);
    ck_assert_msg(failure == NULL, "%s", failure);
    ck_assert_uint_gt(store.writer->number, THREAD_SURE);
    keep();
    check_budget();
    qwp_generations_close(&store);
}
END_TEST

/* ---- crashes ---- */

struct progress {
    _Atomic uint64_t published; /* so many at least */
    _Atomic uint64_t acked;     /* so many at most */
};

static const char *const points[] = {
    "generations.made",     "generations.asked",    "generations.based",   "generations.begun",
    "generations.switched", "generations.stepped",  "generations.hollow",  "generations.hollowing",
    "generations.hidden",   "generations.removing", "generations.removed",
};

static void child_live(struct progress *progress, const char *point, unsigned passage,
                       bool periodic)
{
    qwp_crash_arm(point, passage);
    open_store(periodic);
    qwp_generations_rings_resumed(&store);
    uint64_t acked = qwp_generations_acked(&store);
    for (int i = 1; i <= 60; i++) {
        append();
        atomic_store(&progress->published, qwp_generations_published(&store));
        if (i % 5 == 0) {
            move_on();
        }
        if (i % 7 == 0) {
            const uint64_t end = qwp_generations_published(&store) - 3;
            atomic_store(&progress->acked, end);
            deliver(acked, end);
            acked = end;
        }
        keep();
    }
    qwp_generations_close(&store);
    _exit(0);
}

START_TEST(generations_crash_at_every_point_loses_nothing)
{
    const char *point = points[_i];
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (unsigned passage = 1; passage <= 3; passage++) {
        fflush(stdout);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            child_live(progress, point, passage, passage == 2);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        const bool died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
        ck_assert_msg(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                      "%s:%u ended with status %x", point, passage, status);
        ck_assert_msg(died || passage > 1, "%s is never reached", point);
        open_store(false);
        const uint64_t published = qwp_generations_published(&store);
        const uint64_t acked = qwp_generations_acked(&store);
        ck_assert_uint_ge(published, atomic_load(&progress->published));
        ck_assert_uint_le(published, atomic_load(&progress->published) + 1);
        ck_assert_uint_le(acked, atomic_load(&progress->acked));
        check_budget();
        qwp_generations_rings_resumed(&store);
        ck_assert_uint_eq(append(), published);
        deliver(acked, published + 1);
        keep();
        ck_assert_uint_le(slots_count(), 2);
        check_budget();
        qwp_generations_close(&store);
        atomic_store(&progress->published, published + 1);
        atomic_store(&progress->acked, published + 1);
    }
    munmap(progress, sizeof *progress);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("generations");
    TCase *tcase = tcase_create("generations");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, generations_names_are_told_apart);
    tcase_add_loop_test(tcase, generations_are_one_row_of_frames, 0, 2);
    tcase_add_test(tcase, generations_are_found_again_in_order);
    tcase_add_test(tcase, generations_share_one_budget);
    tcase_add_test(tcase, generations_survive_a_stranger_in_the_first_slot);
    tcase_add_test(tcase, generations_are_shared_by_two_threads);
    tcase_add_loop_test(tcase, generations_crash_at_every_point_loses_nothing, 0,
                        (int)(sizeof points / sizeof points[0]));
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

/* Aim: writer, reader and keeper on three threads share what qwp_seglog.h says and nothing else.
 * Method: each does its part as fast as it can, with a small budget, so that they meet at every
 * edge (full, empty, rotation, trimming, recycling). Meant for TSan; without it still a check of
 * order and contents. The log is one mapping for all threads, so TSan sees both sides. */
#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/core/store_fixture.h"

enum { FRAMES = 20000, DEADLINE_S = 200 };

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

struct stage {
    struct qwp_seglog *log;
    atomic_bool stop;
    _Atomic(const char *) failure; /* the first; static text */
    int64_t deadline_ns;
};

static void stage_fail(struct stage *stage, const char *what)
{
    const char *none = NULL;
    atomic_compare_exchange_strong(&stage->failure, &none, what);
    atomic_store(&stage->stop, true);
}

static bool going(struct stage *stage)
{
    if (qwp_clock_monotonic_ns() > stage->deadline_ns) {
        stage_fail(stage, "not done in time");
    }
    return !atomic_load(&stage->stop);
}

/* A frame: the number of symbols there are, then filling. */
static void *write_frames(void *arg)
{
    struct stage *stage = arg;
    struct qwp_seglog *log = stage->log;
    struct qwp_dict *dict = qwp_seglog_dict(log);
    uint64_t seed = 99;
    for (uint64_t fsn = 0; fsn < FRAMES && going(stage);) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        const uint64_t dice = seed >> 33;
        const size_t len = 8 + (dice % 200 == 0 ? 70000 : dice % 6000);
        unsigned char *at;
        size_t room;
        const enum qwp_result result = qwp_seglog_reserve(log, len, len, &at, &room, NULL);
        if (result == QWP_AGAIN) {
            sched_yield();
            continue;
        }
        if (result != QWP_OK) {
            stage_fail(stage, "reserve");
            break;
        }
        if (dice % 11 == 0) {
            memset(at, 0xcc, len);
            qwp_seglog_abandon(log, len);
            continue;
        }
        char text[24];
        uint32_t id;
        snprintf(text, sizeof text, "symbol %llu", (unsigned long long)fsn);
        if (qwp_dict_intern(dict, text, strlen(text), &id) != QWP_OK || id != fsn ||
            (fsn % 64 == 0 && qwp_seglog_persist_dict(log, NULL) != QWP_OK)) {
            stage_fail(stage, "symbols");
            break;
        }
        qwp_store_u64(at, fsn + 1);
        store_fill(at + 8, len - 8, fsn);
        qwp_seglog_finish(log, len, len, NULL);
        if (qwp_seglog_publish(log) != fsn++) {
            stage_fail(stage, "publish");
        }
    }
    return NULL;
}

static void *read_frames(void *arg)
{
    struct stage *stage = arg;
    struct qwp_seglog *log = stage->log;
    const struct qwp_dict *dict = qwp_seglog_dict(log);
    struct qwp_seglog_cursor cursor = {0};
    uint64_t seed = 7;
    uint64_t expected = 0;
    while (expected < FRAMES && going(stage)) {
        struct qwp_frame frame;
        if (qwp_seglog_next(log, &cursor, &frame) == QWP_AGAIN) {
            if (cursor.fsn > 0) {
                qwp_seglog_ack(log, cursor.fsn - 1);
            }
            sched_yield();
            continue;
        }
        char text[24];
        snprintf(text, sizeof text, "symbol %llu", (unsigned long long)frame.fsn);
        if (frame.fsn != expected++ || qwp_load_u64(frame.payload) != frame.fsn + 1 ||
            !store_filled(frame.payload + 8, frame.len - 8, frame.fsn)) {
            stage_fail(stage, "a frame is not what was written");
        }
        if (qwp_dict_count(dict) <= frame.fsn ||
            memcmp(qwp_dict_text(dict, (uint32_t)frame.fsn).text, text, strlen(text)) != 0) {
            stage_fail(stage, "a symbol of a published frame is not there");
        }
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        if ((seed >> 33) % 16 == 0) {
            qwp_seglog_ack(log, frame.fsn - (frame.fsn > 3 ? (seed >> 40) % 4 : 0));
        }
        if ((seed >> 33) % 200 == 1) {
            qwp_seglog_rewind(log, &cursor);
            expected = cursor.fsn;
        }
    }
    if (cursor.fsn > 0 && expected == FRAMES) {
        qwp_seglog_ack(log, FRAMES - 1);
    }
    return NULL;
}

static void *keep(void *arg)
{
    struct stage *stage = arg;
    while (going(stage)) {
        bool more;
        int64_t next_ns;
        qwp_seglog_maintain(stage->log, qwp_clock_monotonic_ns(), &more, &next_ns);
        struct qwp_seglog_stats stats;
        qwp_seglog_stats(stage->log, &stats);
        if (stats.bytes_total > 512 * 1024) {
            stage_fail(stage, "beyond the budget");
        }
        if (!more) {
            sched_yield();
        }
    }
    return NULL;
}

START_TEST(threads_share_only_what_is_said)
{
    struct qwp_seglog_options options = store_options(slot);
    options.total_bytes_max = 512 * 1024;
    options.payload_crc = _i != 0;
    options.durability = _i == 2 ? QWP_DURABILITY_PERIODIC : QWP_DURABILITY_MEMORY;
    options.sync_interval_ns = QWP_NS_PER_MS;
    struct stage stage = {.log = store_open(&options)};
    stage.deadline_ns = qwp_clock_monotonic_ns() + DEADLINE_S * (int64_t)QWP_NS_PER_S;
    pthread_t writer, reader, keeper;
    ck_assert_int_eq(pthread_create(&keeper, NULL, keep, &stage), 0);
    ck_assert_int_eq(pthread_create(&reader, NULL, read_frames, &stage), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, write_frames, &stage), 0);
    pthread_join(writer, NULL);
    pthread_join(reader, NULL);
    atomic_store(&stage.stop, true);
    pthread_join(keeper, NULL);
    ck_assert_msg(stage.failure == NULL, "%s", stage.failure);
    store_settle(stage.log);
    ck_assert_uint_eq(qwp_seglog_acked_count(stage.log), FRAMES);
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(stage.log, &stats);
    ck_assert_uint_eq(stats.bytes_waiting, 0);
    ck_assert_uint_eq(stats.bytes_total, store_files_count(slot).segment_bytes);
    ck_assert_uint_eq(stats.sync_failures, 0);
    printf("%llu rotations, %llu without spare, %llu recycled\n",
           (unsigned long long)stats.rotations, (unsigned long long)stats.rotations_without_spare,
           (unsigned long long)stats.recycled);
    qwp_seglog_close(stage.log);
    stage.log = store_open(&options);
    ck_assert_uint_eq(qwp_seglog_acked_count(stage.log), FRAMES);
    qwp_seglog_close(stage.log);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog threads");
    TCase *tcase = tcase_create("threads");
    tcase_set_timeout(tcase, 290);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, threads_share_only_what_is_said, 0, 3);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

/* Aim: whatever the process dies in, what was published is there, in order and whole, with its
 * symbols; nothing else is; and the slot goes on.
 * Method: a child works on the slot and is killed at each named crash point of the store in turn,
 * at the 1st, 2nd and 7th passage, on the same slot all the time. It tells through shared memory
 * how far it came. The names are read from the sources, so that no point is left out. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_store_layout.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"
#include "tests/core/store_fixture.h"

#ifdef QWP_CRASH_POINTS

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

/* --- the names --- */

enum { POINTS_MAX = 100, NAME_BYTES = 40 };

struct points {
    char names[POINTS_MAX][NAME_BYTES];
    int count;
};

static void points_add(struct points *points, const char *path)
{
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot read %s", path);
    char line[300];
    while (fgets(line, sizeof line, file) != NULL) {
        char name[NAME_BYTES];
        const char *at = strstr(line, "QWP_CRASH_POINT(\"");
        if (at != NULL && sscanf(at, "QWP_CRASH_POINT(\"%39[^\"]", name) == 1) {
            ck_assert_int_lt(points->count, POINTS_MAX);
            snprintf(points->names[points->count++], NAME_BYTES, "%s", name);
        }
    }
    fclose(file);
}

static void points_read(struct points *points)
{
    points->count = 0;
    DIR *list = opendir(QWP_STORE_SOURCES);
    ck_assert_ptr_nonnull(list);
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        char path[600];
        const size_t len = strlen(entry->d_name);
        if (len > 2 && strcmp(entry->d_name + len - 2, ".c") == 0 &&
            strcmp(entry->d_name, "qwp_cursors.c") != 0 &&        /* test_cursors.c */
            strstr(entry->d_name, "generation") == NULL &&        /* test_generations.c */
            strcmp(entry->d_name, "qwp_seglog_symbols.c") != 0) { /* test_symbols_lost.c */
            snprintf(path, sizeof path, "%s/%s", QWP_STORE_SOURCES, entry->d_name);
            points_add(points, path);
        }
    }
    closedir(list);
    ck_assert_int_gt(points->count, 25);
}

/* --- the child --- */

struct progress {
    uint64_t published; /* frames whose publish() has returned */
    uint64_t acked;     /* given to ack(), before the call */
};

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

/* A message: header, delta, its own FSN, filling; the filling is a function of the FSN. */
static void child_append(struct qwp_seglog *log, struct progress *progress, uint64_t *seed)
{
    struct qwp_dict *dict = qwp_seglog_dict(log);
    const uint32_t start = qwp_dict_count(dict);
    const uint32_t count = random_next(seed) % 4 == 0 ? 1 + (uint32_t)(random_next(seed) % 3) : 0;
    unsigned char head[200];
    qwp_store_u32(head, QWP_WIRE_MAGIC);
    head[4] = QWP_WIRE_VERSION;
    head[5] = QWP_FLAG_DELTA_DICT;
    memset(head + 6, 0, 6);
    unsigned char *at = qwp_varint_put(head + QWP_HEADER_BYTES, start);
    at = qwp_varint_put(at, count);
    for (uint32_t i = 0; i < count; i++) {
        char text[24];
        uint32_t id;
        const int n = snprintf(text, sizeof text, "symbol %u", start + i);
        if (qwp_dict_intern(dict, text, (size_t)n, &id) != QWP_OK || id != start + i) {
            _exit(3);
        }
        at = qwp_varint_put(at, (uint64_t)n);
        memcpy(at, text, (size_t)n);
        at += n;
    }
    if (qwp_seglog_persist_dict(log, NULL) != QWP_OK) {
        _exit(3);
    }
    const size_t head_len = (size_t)(at - head);
    const size_t fill = random_next(seed) % 20 == 0 ? 70000 : random_next(seed) % 9000;
    const size_t len = head_len + fill;
    unsigned char *to;
    size_t room;
    if (qwp_seglog_reserve(log, len, len + 500, &to, &room, NULL) != QWP_OK) {
        return; /* full for now; the symbols come with a later frame, as they may */
    }
    const uint64_t fsn = qwp_seglog_next_fsn(log);
    memcpy(to, head, head_len);
    store_fill(to + head_len, fill, fsn);
    memset(to + len, 0xee, room - len);
    if (random_next(seed) % 9 == 0) {
        qwp_seglog_abandon(log, room);
        return;
    }
    qwp_seglog_finish(log, len, room, NULL);
    qwp_seglog_publish(log);
    progress->published = fsn + 1;
}

static void child_read(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor,
                       struct progress *progress)
{
    struct qwp_frame frame;
    uint64_t last = UINT64_MAX;
    while (qwp_seglog_next(log, cursor, &frame) == QWP_OK) {
        last = frame.fsn;
    }
    if (last != UINT64_MAX) {
        progress->acked = last + 1;
        qwp_seglog_ack(log, last);
    }
}

static void child_live(struct progress *progress, uint64_t seed, const char *point, unsigned nth)
{
    qwp_crash_arm(point, nth);
    struct qwp_seglog_options options = store_options(slot);
    options.total_bytes_max = 512 * 1024;
    options.durability = seed % 2 == 0 ? QWP_DURABILITY_PERIODIC : QWP_DURABILITY_MEMORY;
    options.payload_crc = seed % 3 != 0;
    options.sync_interval_ns = 1;
    for (int opening = 0; opening < 3; opening++) {
        struct qwp_seglog *log = NULL;
        if (qwp_seglog_open(&log, &options, NULL) != QWP_OK) {
            _exit(2);
        }
        struct qwp_seglog_cursor cursor = {0};
        for (int step = 0; step < 150; step++) {
            child_append(log, progress, &seed);
            for (uint64_t i = random_next(&seed) % 6; i > 0; i--) {
                bool more;
                int64_t next_ns;
                qwp_seglog_maintain(log, qwp_sys_real.monotonic_ns(), &more, &next_ns);
            }
            if (random_next(&seed) % 10 == 0) {
                child_read(log, &cursor, progress);
            }
        }
        qwp_seglog_close(log);
    }
    _exit(0);
}

/* --- the parent --- */

/* A byte of a segment in the middle of several, so that it is found while the child works. */
static void middle_damage(struct progress *progress, uint64_t seed)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    for (int i = 0; i < 80; i++) {
        child_append(log, progress, &seed);
    }
    const uint64_t waiting = qwp_seglog_acked_count(log);
    const uint64_t end = qwp_seglog_next_fsn(log);
    qwp_seglog_close(log);
    DIR *list = opendir(slot);
    const struct dirent *entry;
    char best[700] = "";
    uint64_t best_base = 0;
    while ((entry = readdir(list)) != NULL) {
        char path[700];
        unsigned char header[QWP_SEGMENT_HEADER_BYTES];
        snprintf(path, sizeof path, "%s/%.200s", slot, entry->d_name);
        const int fd = strstr(path, ".sfa") != NULL ? open(path, O_RDONLY) : -1;
        if (fd >= 0 && read(fd, header, sizeof header) == sizeof header) {
            const uint64_t base = qwp_load_u64(header + QWP_SEGMENT_BASE_OFF);
            const uint64_t middle = (waiting + end) / 2;
            if (base <= middle && base >= best_base) {
                best_base = base;
                snprintf(best, sizeof best, "%s", path);
            }
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    closedir(list);
    const int fd = open(best, O_RDWR);
    const unsigned char byte = 0x5a;
    ck_assert_int_eq(pwrite(fd, &byte, 1, QWP_SEGMENT_HEADER_BYTES + 1), 1);
    close(fd);
}

/* Something to recover from, for the points that lie on that way. */
static bool damage_for(const char *point, struct progress *progress, uint64_t seed)
{
    char path[700];
    if (strcmp(point, "aside.resumable") == 0) {
        middle_damage(progress, seed);
        return true;
    }
    if (strcmp(point, "aside.renamed") == 0) {
        snprintf(path, sizeof path, "%s/strange.sfa", slot);
        const int fd = open(path, O_WRONLY | O_CREAT, 0600);
        ck_assert_int_eq(write(fd, "strange", 7), 7);
        close(fd);
        return true;
    }
    if (strcmp(point, "aside.copied") == 0) {
        const struct qwp_seglog_options options = store_options(slot);
        struct qwp_seglog *log = store_open(&options);
        unsigned char *at;
        size_t room;
        ck_assert_int_eq(qwp_seglog_reserve(log, 100, 100, &at, &room, NULL), QWP_OK);
        qwp_store_u32(at - QWP_FRAME_HEADER_BYTES, 0x12345678); /* a CRC that fits nothing */
        qwp_store_u32(at, 1);
        snprintf(path, sizeof path, "cp -r %s %s.copy", slot, slot);
        ck_assert_int_eq(system(path), 0);
        qwp_seglog_close(log);
        store_dir_remove(slot);
        char copy[400];
        snprintf(copy, sizeof copy, "%s.copy", slot);
        ck_assert_int_eq(rename(copy, slot), 0);
        return true;
    }
    return false;
}

static void parent_check(struct progress *progress, const char *point, bool damaged)
{
    const struct qwp_seglog_options options = store_options(slot);
    struct qwp_seglog *log = store_open(&options);
    const struct qwp_seglog_recovery *recovery = qwp_seglog_recovered(log);
    if (!damaged) {
        ck_assert_msg(recovery->damage_count == 0, "after %s: %s", point, recovery->damage);
    }
    /* What had been appended since a damage that was not settled lies behind it. */
    ck_assert_msg((damaged || recovery->next_fsn >= progress->published) &&
                      recovery->next_fsn <= progress->published + 1,
                  "after %s: %llu frames where %llu were published", point,
                  (unsigned long long)recovery->next_fsn, (unsigned long long)progress->published);
    ck_assert_msg(damaged || qwp_seglog_acked_count(log) <= progress->acked ||
                      qwp_seglog_acked_count(log) == 0,
                  "after %s: %llu frames acknowledged where only %llu were", point,
                  (unsigned long long)qwp_seglog_acked_count(log),
                  (unsigned long long)progress->acked);
    progress->published = recovery->next_fsn; /* one may have been published and not told */
    for (uint32_t id = 0; id < recovery->symbols; id++) {
        char text[24];
        const int n = snprintf(text, sizeof text, "symbol %u", id);
        const struct qwp_name name = qwp_dict_text(qwp_seglog_dict(log), id);
        ck_assert_msg((int)name.len == n && memcmp(name.text, text, (size_t)n) == 0,
                      "after %s: symbol %u is %.*s", point, id, (int)name.len, name.text);
    }
    struct qwp_seglog_cursor cursor = {0};
    struct qwp_frame frame;
    while (store_next(log, &cursor, &frame) == QWP_OK) {
        const unsigned char *const end = frame.payload + frame.len;
        uint64_t start = 0;
        uint64_t count = 0;
        const unsigned char *at = qwp_varint_get(frame.payload + QWP_HEADER_BYTES, end, &start);
        at = qwp_varint_get(at, end, &count);
        ck_assert_msg(start + count <= recovery->symbols, "after %s: symbols missing", point);
        for (; count > 0; count--) {
            uint64_t len = 0;
            at = qwp_varint_get(at, end, &len) + len;
        }
        ck_assert_msg(store_filled(at, (size_t)(end - at), frame.fsn), "after %s: frame %llu",
                      point, (unsigned long long)frame.fsn);
    }
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    const struct store_files files = store_files_count(slot);
    ck_assert_uint_eq(stats.bytes_total, files.segment_bytes);
    ck_assert_uint_eq(files.unready, 0);
    qwp_seglog_close(log);
}

START_TEST(crash_at_every_point_loses_nothing)
{
    static const unsigned passages[] = {1, 2, 7};
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct points points;
    points_read(&points);
    parent_check(progress, "nothing yet", false);
    uint64_t seed = 1;
    for (int i = 0; i < points.count; i++) {
        for (size_t k = 0; k < sizeof passages / sizeof passages[0]; k++) {
            const char *point = points.names[i];
            /* The seed chooses durability and kind of CRC; the first passage must be reached. */
            bool died = false;
            bool damaged = false;
            for (int attempt = 0; attempt < 6 && !died; attempt++) {
                damaged = damage_for(point, progress, seed) || damaged;
                fflush(stdout);
                const pid_t pid = fork();
                ck_assert_int_ge(pid, 0);
                if (pid == 0) {
                    child_live(progress, seed + (uint64_t)attempt, point, passages[k]);
                }
                int status;
                ck_assert_int_eq(waitpid(pid, &status, 0), pid);
                died = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
                ck_assert_msg(died || (WIFEXITED(status) && WEXITSTATUS(status) == 0),
                              "the child for %s:%u ended with status %x", point, passages[k],
                              status);
                parent_check(progress, point, damaged);
                if (passages[k] > 1) {
                    break;
                }
            }
            ck_assert_msg(died || passages[k] > 1, "%s is never reached", point);
            seed++;
        }
    }
    printf("%d points\n", points.count);
    munmap(progress, sizeof *progress);
}
END_TEST

/* Any point, any passage. */
START_TEST(crash_at_random_points_loses_nothing)
{
    struct progress *progress =
        mmap(NULL, sizeof *progress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const char *text = getenv("QWP_TEST_SEED");
    uint64_t seed = text == NULL ? 4711 : strtoull(text, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    for (int life = 0; life < 200; life++) {
        const unsigned nth = 1 + (unsigned)(random_next(&seed) % 3000);
        const uint64_t child_seed = random_next(&seed);
        fflush(stdout);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            child_live(progress, child_seed, "*", nth);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
        parent_check(progress, "a random point", false);
    }
    munmap(progress, sizeof *progress);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("seglog crash");
    TCase *tcase = tcase_create("crash");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, crash_at_every_point_loses_nothing);
    tcase_add_test(tcase, crash_at_random_points_loses_nothing);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}
#else
int main(void)
{
    printf("skipped: built without QWP_CRASH_POINTS\n");
    return 77;
}
#endif

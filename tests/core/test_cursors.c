/* Aim: exactly once from ring to store, whatever moment the sidecar dies at; and each rule of
 * qwp_cursors.h is needed for it.
 * Method: the real log and the real cursors, with rings that are only counters in shared memory. A
 * child is intake: it puts rows into frames until it is killed at a random crash point. The parent
 * reads the store after each life: for every ring the ranges of rows must join without gap or
 * overlap. QWP_TEST_LIVES sets the number of lives, QWP_TEST_SEED the seed. */
#include "core/store/qwp_cursors.h"

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
#include "core/store/qwp_dual.h"
#include "core/store/qwp_segment.h"
#include "core/store/qwp_store_layout.h"
#include "tests/core/store_fixture.h"

static char dir[256];
static char slot[300];
static int dir_fd;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, true);
    snprintf(slot, sizeof slot, "%s/slot", dir);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(dir_fd, 0);
}

static void teardown(void)
{
    close(dir_fd);
    store_dir_remove(dir);
}

static struct qwp_cursors *cursors_open(void)
{
    struct qwp_cursors *cursors = NULL;
    ck_assert_int_eq(qwp_cursors_open(&cursors, NULL, dir_fd, "cursors", NULL), QWP_OK);
    return cursors;
}

static struct qwp_cursors_ring ring_of(uint64_t number)
{
    struct qwp_cursors_ring ring = {.inode = number + 1, .birth_ns = 77};
    qwp_store_u64(ring.id, number * 31);
    return ring;
}

static uint64_t attach(struct qwp_cursors *cursors, uint64_t number, uint64_t head,
                       uint32_t *handle)
{
    const struct qwp_cursors_ring ring = ring_of(number);
    uint64_t resume = 0;
    ck_assert_int_eq(qwp_cursors_attach(cursors, &ring, head, handle, &resume), QWP_OK);
    return resume;
}

static const struct qwp_cursors_log slot_a = {.slot_uuid = "slot a", .next_fsn = 10};
static const struct qwp_cursors_log slot_b = {.slot_uuid = "slot b", .next_fsn = 5};

START_TEST(cursors_unknown_ring_resumes_from_its_head)
{
    struct qwp_cursors *cursors = cursors_open();
    uint32_t handle;
    qwp_cursors_recovered(cursors, &slot_a, 1);
    qwp_cursors_use(cursors, slot_a.slot_uuid);
    ck_assert_uint_eq(attach(cursors, 0, 4711, &handle), 4711);
    qwp_cursors_close(cursors);
}
END_TEST

START_TEST(cursors_note_counts_only_for_a_frame_that_is_there)
{
    uint32_t handle;
    struct qwp_cursors *cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_a, 1);
    qwp_cursors_use(cursors, slot_a.slot_uuid);
    attach(cursors, 0, 0, &handle);
    qwp_cursors_note(cursors, handle, 8, 100, 1);
    qwp_cursors_published(cursors);
    qwp_cursors_note(cursors, handle, 9, 200, 2);
    qwp_cursors_close(cursors);

    const struct qwp_cursors_log with_10 = {
        .slot_uuid = "slot a", .next_fsn = 10, .last_witness = 2};
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, &with_10, 1);
    ck_assert_uint_eq(attach(cursors, 0, 100, &handle), 200);
    qwp_cursors_close(cursors);

    const struct qwp_cursors_log other_frame = {
        .slot_uuid = "slot a", .next_fsn = 10, .last_witness = 3};
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, &other_frame, 1);
    ck_assert_uint_eq(attach(cursors, 0, 100, &handle), 100);
    qwp_cursors_close(cursors);
}
END_TEST

START_TEST(cursors_of_two_slots_are_both_believed)
{
    uint32_t first, second;
    struct qwp_cursors *cursors = cursors_open();
    qwp_cursors_recovered(cursors, NULL, 0);
    attach(cursors, 0, 0, &first);
    attach(cursors, 1, 0, &second);
    qwp_cursors_use(cursors, slot_a.slot_uuid);
    qwp_cursors_note(cursors, first, 9, 100, 1);
    qwp_cursors_published(cursors);
    qwp_cursors_use(cursors, slot_b.slot_uuid);
    qwp_cursors_note(cursors, second, 4, 300, 1);
    qwp_cursors_published(cursors);
    qwp_cursors_note(cursors, second, 5, 400, 1); /* not published */
    qwp_cursors_close(cursors);
    const struct qwp_cursors_log both[] = {slot_a, slot_b};
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, both, 2);
    ck_assert_uint_eq(attach(cursors, 0, 0, &first), 100);
    ck_assert_uint_eq(attach(cursors, 1, 0, &second), 300);
    qwp_cursors_close(cursors);
    /* A slot that is gone says nothing. */
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_b, 1);
    ck_assert_uint_eq(attach(cursors, 0, 50, &first), 50);
    qwp_cursors_close(cursors);
}
END_TEST

START_TEST(cursors_entries_are_used_again)
{
    struct qwp_cursors *cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_a, 1);
    qwp_cursors_use(cursors, slot_a.slot_uuid);
    uint32_t handles[QWP_CURSORS_RINGS_MAX];
    for (uint32_t i = 0; i < QWP_CURSORS_RINGS_MAX; i++) {
        attach(cursors, i, 0, &handles[i]);
        qwp_cursors_note(cursors, handles[i], 3, 1000 + i, 1);
    }
    qwp_cursors_published(cursors);
    const struct qwp_cursors_ring more = ring_of(5000);
    uint32_t handle;
    uint64_t resume;
    ck_assert_int_eq(qwp_cursors_attach(cursors, &more, 1, &handle, &resume), QWP_LIMIT);
    qwp_cursors_detach(cursors, handles[500]);
    ck_assert_int_eq(qwp_cursors_attach(cursors, &more, 1, &handle, &resume), QWP_OK);
    ck_assert_uint_eq(handle, handles[500]);
    ck_assert_uint_eq(resume, 1); /* and not what stood there */
    qwp_cursors_close(cursors);
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_a, 1);
    for (uint32_t i = 0; i < QWP_CURSORS_RINGS_MAX; i += 2) {
        ck_assert_uint_eq(attach(cursors, i, 7, &handle), i >= 500 ? 7 : 1000 + i);
        if (i == 498) {
            qwp_cursors_sweep(cursors); /* forgets all others */
        }
    }
    qwp_cursors_close(cursors);
}
END_TEST

START_TEST(cursors_damaged_file_never_leads_astray)
{
    uint32_t handle;
    struct qwp_cursors *cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_a, 1);
    qwp_cursors_use(cursors, slot_a.slot_uuid);
    attach(cursors, 0, 0, &handle);
    qwp_cursors_note(cursors, handle, 7, 100, 1);
    qwp_cursors_published(cursors);
    qwp_cursors_note(cursors, handle, 9, 200, 1);
    qwp_cursors_published(cursors);
    qwp_cursors_close(cursors);
    const int fd = openat(dir_fd, "cursors", O_RDWR);
    for (off_t off = 0; off < 4096 + 256; off = off == 12 ? 4096 : off + 1) {
        unsigned char byte;
        ck_assert_int_eq(pread(fd, &byte, 1, off), 1);
        const unsigned char flipped = byte ^ 0x04;
        unsigned char whole[4096 + 256];
        ck_assert_int_eq(pread(fd, whole, sizeof whole, 0), sizeof whole);
        ck_assert_int_eq(pwrite(fd, &flipped, 1, off), 1);
        cursors = cursors_open();
        qwp_cursors_recovered(cursors, &slot_a, 1);
        const uint64_t resume = attach(cursors, 0, 50, &handle);
        ck_assert(resume == 50 || resume == 100 || resume == 200);
        qwp_cursors_close(cursors);
        ck_assert_int_eq(pwrite(fd, whole, sizeof whole, 0), sizeof whole);
    }
    ck_assert_int_eq(ftruncate(fd, 5000), 0);
    cursors = cursors_open();
    qwp_cursors_recovered(cursors, &slot_a, 1);
    ck_assert_uint_eq(attach(cursors, 0, 50, &handle), 200);
    qwp_cursors_close(cursors);
    close(fd);
}
END_TEST

#ifdef QWP_CRASH_POINTS
/* --- the simulation --- */

extern unsigned qwp_cursors_broken_rule;

enum { RINGS = 6, LAST_FRAMES = 30 };

/* Shared between parent and child. */
struct world {
    struct {
        uint64_t number; /* identity; a new one when the ring is replaced */
        uint64_t head, tail;
    } rings[RINGS];
};

/* Parent's. */
struct ledger {
    uint64_t number[RINGS];
    uint64_t covered[RINGS]; /* rows of the ring that were seen in the store */
    uint64_t checked_fsn;
};

static uint64_t random_next(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static struct qwp_seglog_options sim_options(void)
{
    struct qwp_seglog_options options = store_options(slot);
    options.payload_crc = false;
    return options;
}

/* A frame: for each ring in it number, from, to; then filling of random length. */
struct part {
    uint64_t ring, number, from, to;
};

static void child_frame(struct qwp_seglog *log, struct qwp_cursors *cursors,
                        const uint32_t *handles, uint64_t *taken, struct world *world,
                        uint64_t *seed)
{
    struct part parts[RINGS];
    uint64_t count = 0;
    for (uint64_t i = 0; i < RINGS; i++) {
        if (world->rings[i].tail > taken[i] && random_next(seed) % 3 != 0) {
            const uint64_t waiting = world->rings[i].tail - taken[i];
            parts[count++] = (struct part){i, world->rings[i].number, taken[i],
                                           taken[i] + 1 + random_next(seed) % waiting};
        }
    }
    const size_t fill = random_next(seed) % 3000;
    const size_t len = 8 + sizeof(struct part) * count + fill;
    unsigned char *at;
    size_t room;
    if (qwp_seglog_reserve(log, len, len, &at, &room, NULL) != QWP_OK) {
        return;
    }
    qwp_store_u64(at, count);
    memcpy(at + 8, parts, sizeof(struct part) * count);
    memset(at + len - fill, 0x5a, fill);
    uint32_t witness;
    qwp_seglog_finish(log, len, len, &witness);
    for (uint64_t i = 0; i < count; i++) {
        qwp_cursors_note(cursors, handles[parts[i].ring], qwp_seglog_next_fsn(log), parts[i].to,
                         witness);
    }
    if (random_next(seed) % 8 == 0) { /* a ring turned out to be faulty, say */
        qwp_seglog_abandon(log, len);
        qwp_cursors_abandoned(cursors);
        return;
    }
    qwp_seglog_publish(log);
    qwp_cursors_published(cursors);
    for (uint64_t i = 0; i < count; i++) {
        QWP_CRASH_POINT("test.head");
        world->rings[parts[i].ring].head = taken[parts[i].ring] = parts[i].to;
    }
}

static void child_live(struct world *world, uint64_t seed, unsigned crash_after)
{
    if (crash_after > 0) {
        qwp_crash_arm("*", crash_after);
    }
    const struct qwp_seglog_options options = sim_options();
    struct qwp_seglog *log = store_open(&options);
    struct qwp_cursors *cursors = cursors_open();
    struct qwp_cursors_log held = {.next_fsn = qwp_seglog_recovered(log)->next_fsn,
                                   .last_witness = qwp_seglog_recovered(log)->last_witness};
    memcpy(held.slot_uuid, qwp_seglog_recovered(log)->slot_uuid, sizeof held.slot_uuid);
    qwp_cursors_recovered(cursors, &held, 1);
    qwp_cursors_use(cursors, held.slot_uuid);
    uint32_t handles[RINGS];
    uint64_t taken[RINGS];
    for (int i = 0; i < RINGS; i++) {
        /* Not published as the ring's head before rows are taken: that would hide rule 2. */
        taken[i] = attach(cursors, world->rings[i].number, world->rings[i].head, &handles[i]);
    }
    qwp_cursors_sweep(cursors);
    for (int frame = 0; frame < LAST_FRAMES || crash_after > 0; frame++) {
        for (int i = 0; i < RINGS; i++) {
            world->rings[i].tail += random_next(&seed) % 4;
        }
        child_frame(log, cursors, handles, taken, world, &seed);
        store_settle(log);
        if (random_next(&seed) % 32 == 0) {
            const uint64_t i = random_next(&seed) % RINGS;
            if (world->rings[i].head == world->rings[i].tail) { /* drained; its producer died */
                qwp_cursors_detach(cursors, handles[i]);
                QWP_CRASH_POINT("test.detached");
                world->rings[i].number += RINGS;
                world->rings[i].head = world->rings[i].tail = taken[i] = 0;
                attach(cursors, world->rings[i].number, 0, &handles[i]);
            }
        }
        if (frame > 100000) {
            _exit(1);
        }
        if (qwp_seglog_published_count(log) - qwp_seglog_acked_count(log) > 40) {
            /* The store fills up as nobody acknowledges: die now. */
            kill(getpid(), SIGKILL);
        }
    }
    qwp_cursors_close(cursors);
    qwp_seglog_close(log);
    _exit(0);
}

/* Reads the frames of the last life. False when a row is missing or there twice. */
static bool parent_check(struct ledger *ledger, struct qwp_seglog *log)
{
    struct qwp_seglog_cursor cursor = {.fsn = ledger->checked_fsn};
    struct qwp_frame frame;
    bool good = true;
    while (qwp_seglog_next(log, &cursor, &frame) == QWP_OK) {
        const uint64_t count = qwp_load_u64(frame.payload);
        for (uint64_t i = 0; i < count; i++) {
            struct part part;
            memcpy(&part, frame.payload + 8 + i * sizeof part, sizeof part);
            if (part.number != ledger->number[part.ring]) {
                ledger->number[part.ring] = part.number;
                ledger->covered[part.ring] = 0;
            }
            good = good && part.from == ledger->covered[part.ring];
            ledger->covered[part.ring] = part.to;
        }
    }
    ledger->checked_fsn = cursor.fsn;
    return good;
}

/* Spoils the last frame, which was checked: the log gets shorter than the rings' heads say. */
static bool parent_damage(const char *path, uint64_t end_off)
{
    const int fd = open(path, O_RDWR);
    unsigned char byte = 0;
    bool done = fd >= 0 && pread(fd, &byte, 1, (off_t)end_off - 1) == 1;
    byte ^= 1;
    done = done && pwrite(fd, &byte, 1, (off_t)end_off - 1) == 1;
    close(fd);
    return done;
}

/* Otherwise the rows of the last frame are still in their rings, and are rightly sent again. */
static bool heads_moved(const struct world *world, const struct ledger *ledger)
{
    for (int i = 0; i < RINGS; i++) {
        if (world->rings[i].number != ledger->number[i] ||
            world->rings[i].head != ledger->covered[i]) {
            return false;
        }
    }
    return true;
}

/* Where the last frame of the active segment ends; false when it has none. */
static bool last_frame_find(char *path, size_t room, uint64_t *end_off)
{
    struct qwp_dual manifest;
    enum qwp_dual_state state;
    const int slot_fd = open(slot, O_RDONLY | O_DIRECTORY);
    ck_assert_int_eq(qwp_dual_load(&manifest, &qwp_sys_real, slot_fd, QWP_MANIFEST_NAME,
                                   QWP_MANIFEST_MAGIC, &state, NULL),
                     QWP_OK);
    DIR *list = fdopendir(slot_fd);
    const struct dirent *entry;
    bool found = false;
    while (!found && (entry = readdir(list)) != NULL) {
        const char *suffix = strstr(entry->d_name, QWP_SEGMENT_SUFFIX);
        if (suffix == NULL || strcmp(suffix, QWP_SEGMENT_SUFFIX) != 0) {
            continue;
        }
        if (snprintf(path, room, "%s/%s", slot, entry->d_name) >= (int)room) {
            continue;
        }
        const int fd = open(path, O_RDONLY);
        struct qwp_scan scan;
        ck_assert_int_eq(qwp_segment_scan(&qwp_sys_real, fd, &scan, NULL, NULL), QWP_OK);
        close(fd);
        found = scan.base == (uint64_t)manifest.second && scan.frame_count > 0;
        *end_off = scan.end_off;
    }
    closedir(list);
    return found;
}

/* Returns the life in which the first fault showed, or 0. */
static unsigned simulate(uint64_t seed, unsigned lives)
{
    struct world *world =
        mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(world, MAP_FAILED);
    struct ledger ledger = {0};
    for (uint64_t i = 0; i < RINGS; i++) {
        world->rings[i].number = ledger.number[i] = i;
    }
    unsigned fault = 0;
    const struct qwp_seglog_options options = sim_options();
    for (unsigned life = 1; life <= lives && fault == 0; life++) {
        const bool last = life == lives;
        const uint64_t child_seed = random_next(&seed);
        const unsigned crash_after = last ? 0 : 1 + (unsigned)(random_next(&seed) % 400);
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            child_live(world, child_seed, crash_after);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_msg(last ? WIFEXITED(status) && WEXITSTATUS(status) == 0
                           : WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
                      "life %u ended with status %x", life, status);
        struct qwp_seglog *log = store_open(&options);
        if (!parent_check(&ledger, log)) {
            fault = life;
        }
        if (ledger.checked_fsn > 1) { /* the last one stays, for the spoiling */
            qwp_seglog_ack(log, ledger.checked_fsn - 2);
        }
        store_settle(log);
        qwp_seglog_close(log);
        char path[400];
        uint64_t end_off;
        if (!last && random_next(&seed) % 4 == 0 && heads_moved(world, &ledger) &&
            last_frame_find(path, sizeof path, &end_off)) {
            ck_assert(parent_damage(path, end_off));
            ledger.checked_fsn--; /* another frame will have its number */
        }
    }
    for (int i = 0; i < RINGS && fault == 0; i++) {
        if (ledger.number[i] == world->rings[i].number &&
            ledger.covered[i] < world->rings[i].head) {
            fault = lives;
        }
    }
    munmap(world, sizeof *world);
    return fault;
}

static unsigned lives_wanted(unsigned usual)
{
    const char *lives = getenv("QWP_TEST_LIVES");
    return lives == NULL ? usual : (unsigned)strtoul(lives, NULL, 10);
}

static uint64_t seed_wanted(void)
{
    const char *text = getenv("QWP_TEST_SEED");
    const uint64_t seed = text == NULL ? 20260701 : strtoull(text, NULL, 10);
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

START_TEST(cursors_many_lives_lose_and_double_nothing)
{
    qwp_cursors_broken_rule = 0;
    const unsigned fault = simulate(seed_wanted(), lives_wanted(600));
    ck_assert_msg(fault == 0, "a row was lost or doubled in life %u", fault);
}
END_TEST

START_TEST(cursors_without_a_rule_fail)
{
    qwp_cursors_broken_rule = (unsigned)_i;
    const unsigned fault = simulate(seed_wanted(), 3000);
    ck_assert_msg(fault != 0, "the simulation does not need rule %d", _i);
    printf("without rule %d: wrong in life %u\n", _i, fault);
}
END_TEST
#endif

int main(void)
{
    Suite *suite = suite_create("cursors");
    TCase *tcase = tcase_create("cursors");
    tcase_set_timeout(tcase, 280);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, cursors_unknown_ring_resumes_from_its_head);
    tcase_add_test(tcase, cursors_note_counts_only_for_a_frame_that_is_there);
    tcase_add_test(tcase, cursors_of_two_slots_are_both_believed);
    tcase_add_test(tcase, cursors_entries_are_used_again);
    tcase_add_test(tcase, cursors_damaged_file_never_leads_astray);
#ifdef QWP_CRASH_POINTS
    tcase_add_test(tcase, cursors_many_lives_lose_and_double_nothing);
    tcase_add_loop_test(tcase, cursors_without_a_rule_fail, 1, 4);
#endif
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

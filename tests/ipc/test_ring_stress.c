/* Aim: between two processes every record arrives whole, once and in order, whatever the timing; a
 * waiting producer is woken; and what a killed producer had published is not lost.
 *
 * Method: random record sizes with checksums through a ring of 64 KiB, so that it is full and wraps
 * all the time; then 100 producers, each killed at a random moment. Seeds are printed. A wake-up
 * counts as lost when the producer looks up by itself (qwp_bell_wait does each second) and finds
 * that what it waits for had come long before. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_crc32c.h"
#include "tests/ipc/ipc_fixture.h"

enum {
    PRODUCERS_AT_ONCE = 10,
#ifdef __SANITIZE_THREAD__ /* which sees nothing between processes anyway */
    PRODUCERS = 10,
    RECORDS = 5000,
#else
    PRODUCERS = 100,
    RECORDS = 50000,
#endif
    PAYLOAD_OFF = 24, /* header, sequence, checksum and length */
    PAYLOAD_MAX = 6000,
};
#define LATE_NS (200 * (int64_t)QWP_NS_PER_MS)

struct told {
    _Atomic uint64_t published; /* records, told after the publish */
    _Atomic int64_t released_ns;
    _Atomic uint64_t lost_wakeups;
    _Atomic uint64_t waits;
};

static struct told *share(size_t count)
{
    void *at = mmap(NULL, count * sizeof(struct told), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(at, MAP_FAILED);
    return at;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t seed_now(void)
{
    const uint64_t seed = (uint64_t)getpid() << 32 | (uint32_t)qwp_clock_monotonic_ns() | 1;
    printf("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static uint32_t bytes_of_payload(uint32_t len)
{
    return (uint32_t)qwp_round_up(PAYLOAD_OFF + len, QWP_RECORD_ALIGN);
}

/* ---- producer ---- */

struct wait {
    struct qwp_ring_tx *tx;
    struct told *told;
    uint64_t position; /* 0: room for `bytes` */
    uint32_t bytes;
    bool acked;
    int64_t asked_ns;
};

static bool is_there(struct wait *wait)
{
    unsigned char *at;
    if (wait->position == 0) {
        return qwp_ring_reserve(wait->tx, wait->bytes, &at) == QWP_OK;
    }
    struct qwp_ring_header *header = wait->tx->header;
    return atomic_load_explicit(wait->acked ? &header->acked_pos : &header->head_pos,
                                memory_order_acquire) >= wait->position;
}

static bool reached(void *owner)
{
    struct wait *wait = owner;
    const int64_t now = qwp_clock_monotonic_ns();
    const bool there = is_there(wait);
    if (there && wait->asked_ns != 0 && now - wait->asked_ns > 900 * (int64_t)QWP_NS_PER_MS &&
        now - atomic_load(&wait->told->released_ns) > LATE_NS) {
        atomic_fetch_add(&wait->told->lost_wakeups, 1);
    }
    wait->asked_ns = now;
    return there;
}

static void wait_for(struct qwp_ring_tx *tx, struct told *told, uint32_t what, uint64_t position,
                     uint32_t bytes)
{
    struct wait wait = {tx, told, position, bytes, what == QWP_WAIT_ACKED, 0};
    atomic_fetch_add(&told->waits, 1);
    if (qwp_bell_wait(tx, what, reached, &wait, QWP_NEVER_NS) != QWP_OK) {
        _exit(3);
    }
}

static void put(struct qwp_ring_tx *tx, struct told *told, uint64_t seq, uint64_t *random)
{
    unsigned char *at;
    const uint32_t len = (uint32_t)(next_random(random) % (next_random(random) % PAYLOAD_MAX + 1));
    const uint32_t bytes = bytes_of_payload(len);
    if (qwp_ring_reserve(tx, bytes, &at) != QWP_OK) {
        /* What is committed must not wait for room that only it could make. */
        qwp_ring_publish(tx, 0);
        atomic_store(&told->published, seq);
        wait_for(tx, told, QWP_WAIT_SPACE, 0, bytes);
        if (qwp_ring_reserve(tx, bytes, &at) != QWP_OK) {
            _exit(4);
        }
    }
    const struct qwp_record_header header = {bytes, 0, QWP_RECORD_ROW, 0};
    memcpy(at, &header, sizeof header);
    qwp_store_u64(at + 8, seq);
    for (uint32_t i = 0; i < len; i++) {
        at[PAYLOAD_OFF + i] = (unsigned char)(seq + i * 31);
    }
    qwp_store_u32(at + 20, len);
    qwp_store_u32(at + 16, qwp_crc32c((uint32_t)seq, at + PAYLOAD_OFF, len));
    qwp_ring_commit(tx, bytes);
}

static void produce(struct told *told, uint64_t seed, uint64_t records)
{
    struct qwp_ring_tx tx;
    const struct qwp_ring_options options = {
        .name = "stress", .data_bytes = QWP_RING_DATA_BYTES_MIN, .defs_bytes_max = 1};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (qwp_ring_create(&tx, fixture_dir_fd, &options, NULL) != QWP_OK) {
        _exit(2);
    }
    for (uint64_t seq = 0; seq < records; seq++) {
        const uint64_t random = next_random(&seed);
        put(&tx, told, seq, &seed);
        if (random % 4 != 0 || seq + 1 == records) {
            qwp_ring_publish(&tx, 1);
            atomic_store(&told->published, seq + 1);
        } else if (random % 64 == 0) {
            qwp_ring_abort(&tx);
            seq = atomic_load(&told->published) - 1; /* wraps to the first */
            continue;
        }
        if (random % 512 == 1 && tx.tail_pos == tx.write_pos) {
            wait_for(&tx, told, random % 1024 == 1 ? QWP_WAIT_ACKED : QWP_WAIT_STORED, tx.tail_pos,
                     0);
        }
    }
    wait_for(&tx, told, QWP_WAIT_ACKED, tx.tail_pos, 0);
    qwp_ring_close_tx(&tx);
}

/* ---- consumer ---- */

struct source {
    struct qwp_ring_rx rx;
    uint64_t next_seq;
};

static void take_some(struct source *source, struct told *told, uint64_t *random)
{
    struct qwp_ring_rx *rx = &source->rx;
    uint64_t pos = rx->head_pos;
    uint64_t rows = 0;
    const uint64_t most = next_random(random) % 8 == 0 ? 1 : UINT64_MAX;
    while (pos < rx->tail_seen_pos && rows < most) {
        const unsigned char *at = rx->data + (pos & rx->data_mask);
        const uint32_t bytes = qwp_load_u32(at);
        const uint32_t len = qwp_load_u32(at + 20);
        ck_assert_uint_eq(qwp_load_u64(at + 8), source->next_seq);
        ck_assert_uint_eq(bytes, bytes_of_payload(len));
        ck_assert_uint_le(bytes, rx->tail_seen_pos - pos);
        ck_assert_uint_eq(qwp_load_u32(at + 16),
                          qwp_crc32c((uint32_t)source->next_seq, at + PAYLOAD_OFF, len));
        source->next_seq++;
        rows++;
        pos += bytes;
    }
    atomic_store(&told->released_ns, qwp_clock_monotonic_ns());
    qwp_ring_release(rx, pos, rows);
    if (next_random(random) % 2 == 0 || pos == rx->tail_seen_pos) {
        qwp_ring_settle(rx, pos, rx->rows_stored - rx->rows_acked, 0);
    }
}

static void wait_for_events(int inotify_fd, struct names *names)
{
    char events[4096];
    struct pollfd fd = {.fd = inotify_fd, .events = POLLIN};
    ck_assert_int_eq(poll(&fd, 1, 60000), 1);
    const ssize_t n = read(inotify_fd, events, sizeof events);
    ck_assert_int_gt(n, 0);
    qwp_rendezvous_events(events, (size_t)n, names_add, names);
}

START_TEST(records_of_random_size_arrive_whole_and_in_order)
{
    uint64_t random = seed_now();
    struct told *told = share(1);
    struct source source = {0};
    struct names names = {0};
    int inotify_fd;
    ASSERT_OK(qwp_rendezvous_watch(fixture_dir_fd, &inotify_fd, &fixture_err));
    const pid_t child = fork();
    if (child == 0) {
        produce(told, random, RECORDS);
        _exit(0);
    }
    while (names.count == 0) {
        wait_for_events(inotify_fd, &names);
    }
    ASSERT_OK(qwp_ring_open(&source.rx, fixture_dir_fd, names.last, &no_limits, &fixture_err));
    while (source.next_seq < RECORDS) {
        const enum qwp_result result = qwp_ring_poll(&source.rx);
        ck_assert_int_ne(result, QWP_CORRUPT);
        if (source.rx.head_pos != source.rx.tail_seen_pos) {
            take_some(&source, told, &random);
        } else if (qwp_ring_is_orphan(&source.rx)) {
            break;
        } else {
            sched_yield();
        }
        if (next_random(&random) % 64 == 0) {
            usleep((useconds_t)(next_random(&random) % 200));
        }
    }
    ck_assert_uint_eq(source.next_seq, RECORDS);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert(qwp_ring_is_orphan(&source.rx));
    ck_assert_uint_eq(atomic_load(&told->lost_wakeups), 0);
    ck_assert_uint_gt(atomic_load(&told->waits), 0);
    qwp_ring_close_rx(&source.rx);
}
END_TEST

/* ---- many producers, killed ---- */

struct crowd {
    struct source sources[PRODUCERS];
    int count;
    uint64_t consumed[PRODUCERS];
    int gone;
    struct told *told; /* by producer */
    pid_t pids[PRODUCERS];
    int started;
    uint64_t random;
};

static void crowd_add(void *owner, const char *file_name)
{
    struct crowd *crowd = owner;
    ck_assert_ptr_nonnull(file_name);
    for (int i = 0; i < crowd->count; i++) {
        if (strcmp(crowd->sources[i].rx.file_name, file_name) == 0) {
            return;
        }
    }
    struct source *source = &crowd->sources[crowd->count];
    const enum qwp_result result =
        qwp_ring_open(&source->rx, fixture_dir_fd, file_name, &no_limits, &fixture_err);
    if (result == QWP_OK) {
        source->next_seq = 0;
        crowd->count++;
    } else {
        ASSERT_RESULT(result, QWP_AGAIN);
    }
}

static int index_of(const struct crowd *crowd, pid_t pid)
{
    for (int i = 0; i < crowd->started; i++) {
        if (crowd->pids[i] == pid) {
            return i;
        }
    }
    ck_abort_msg("unknown pid %ld", (long)pid);
    return -1;
}

/* Everything that was published came; at most one publish was not told any more. */
static void crowd_bury(struct crowd *crowd, struct source *source)
{
    const int i = index_of(crowd, (pid_t)atomic_load(&source->rx.header->producer_pid));
    const uint64_t told = atomic_load(&crowd->told[i].published);
    ck_assert_uint_ge(source->next_seq, told);
    /* A publish may have carried a few records that the one before left uncommitted. */
    ck_assert_uint_le(source->next_seq, told + 64);
    ASSERT_OK(qwp_ring_remove(&source->rx, fixture_dir_fd, &fixture_err));
    qwp_ring_close_rx(&source->rx);
    *source = crowd->sources[--crowd->count];
    crowd->gone++;
}

static void crowd_visit(struct crowd *crowd)
{
    bool any = false;
    for (int i = 0; i < crowd->count;) {
        struct source *source = &crowd->sources[i];
        const bool orphan = qwp_ring_is_orphan(&source->rx);
        ck_assert_int_ne(qwp_ring_poll(&source->rx), QWP_CORRUPT);
        const int p = index_of(crowd, (pid_t)atomic_load(&source->rx.header->producer_pid));
        if (source->rx.head_pos != source->rx.tail_seen_pos) {
            take_some(source, &crowd->told[p], &crowd->random);
            any = true;
        } else if (orphan) {
            crowd_bury(crowd, source);
            continue;
        }
        i++;
    }
    if (!any) {
        sched_yield();
    }
}

static void crowd_grow_and_shrink(struct crowd *crowd, int *killed)
{
    if (crowd->started < PRODUCERS && crowd->started - *killed < PRODUCERS_AT_ONCE) {
        const int i = crowd->started;
        const uint64_t seed = next_random(&crowd->random) | 1;
        crowd->pids[i] = fork();
        if (crowd->pids[i] == 0) {
            produce(&crowd->told[i], seed, UINT64_MAX);
            _exit(0);
        }
        crowd->started++;
        return;
    }
    /* Not before it has made its ring: a child killed sooner leaves nothing to bury. */
    if (*killed < crowd->started && atomic_load(&crowd->told[*killed].published) > 0 &&
        next_random(&crowd->random) % 8 == 0) {
        ck_assert_int_eq(kill(crowd->pids[*killed], SIGKILL), 0);
        int status;
        ck_assert_int_eq(waitpid(crowd->pids[*killed], &status, 0), crowd->pids[*killed]);
        ck_assert_int_eq(WTERMSIG(status), SIGKILL);
        (*killed)++;
    }
}

START_TEST(hundred_producers_killed_at_random_lose_nothing_published)
{
    static struct crowd crowd;
    int inotify_fd;
    int killed = 0;
    crowd.random = seed_now();
    crowd.told = share(PRODUCERS);
    ASSERT_OK(qwp_rendezvous_watch(fixture_dir_fd, &inotify_fd, &fixture_err));
    while (crowd.gone < PRODUCERS) {
        char events[4096];
        crowd_grow_and_shrink(&crowd, &killed);
        const ssize_t n = read(inotify_fd, events, sizeof events);
        if (n > 0) {
            qwp_rendezvous_events(events, (size_t)n, crowd_add, &crowd);
        }
        crowd_visit(&crowd);
    }
    ck_assert_int_eq(killed, PRODUCERS);
    struct names names = {0};
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_stress");
    TCase *test_case = fixture_case(suite, "stress");
    tcase_set_timeout(test_case, 250);
    tcase_add_test(test_case, records_of_random_size_arrive_whole_and_in_order);
    tcase_add_test(test_case, hundred_producers_killed_at_random_lose_nothing_published);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

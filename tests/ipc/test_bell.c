/* Aim: the bell rings when it must and no oftener, for each kind of bell and each life of a
 * sidecar. Method: single steps of both sides; whether it rang is seen by a futex waiter or in the
 * FIFO. The races between the steps are the matter of bell_stress and of tests/ipc/model. */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "tests/ipc/ipc_fixture.h"

static struct pair pair;
static struct sidecar sidecar;
static struct qwp_bell_tx bell;

static void open_all(enum qwp_bell_mode mode, bool fence)
{
    pair_open(&pair);
    sidecar_open(&sidecar, mode, fence);
    qwp_bell_tx_init(&bell, qwp_bell_register());
}

static void close_all(void)
{
    qwp_bell_tx_fini(&bell);
    sidecar_close(&sidecar);
    pair_close(&pair);
}

/* A thread that sleeps on the epoch, armed before open_all's sidecar parks. */
struct sleeper {
    pthread_t thread;
    const uint32_t *word;
    uint32_t expected;
    int result;
};

static void *sleep_on(void *owner)
{
    struct sleeper *sleeper = owner;
    const struct timespec limit = {.tv_sec = 10};
    sleeper->result =
        syscall(SYS_futex, sleeper->word, FUTEX_WAIT, sleeper->expected, &limit, NULL, 0) == 0
            ? 0
            : errno;
    return NULL;
}

/* How many waiters a wake finds: moves them to another word and back, waking nobody. */
static int count_waiters(const uint32_t *word)
{
    static uint32_t elsewhere;
    const long moved = syscall(SYS_futex, word, FUTEX_REQUEUE, 0, 1000L, &elsewhere, 0);
    syscall(SYS_futex, &elsewhere, FUTEX_REQUEUE, 0, 1000L, word, 0);
    return (int)moved;
}

static void sleeper_start(struct sleeper *sleeper)
{
    sleeper->word = qwp_bell_word(&sidecar.bell, &sleeper->expected);
    ck_assert_int_eq(pthread_create(&sleeper->thread, NULL, sleep_on, sleeper), 0);
    while (count_waiters(sleeper->word) == 0) {
        sched_yield();
    }
}

/* Joins; true when it was woken and not timed out. */
static bool sleeper_end(struct sleeper *sleeper)
{
    pthread_join(sleeper->thread, NULL);
    return sleeper->result == 0;
}

static void publish(void)
{
    put_record(&pair.tx, 64, 1);
    qwp_bell_published(&bell, &pair.tx);
}

START_TEST(publish_without_a_sidecar_asks_nothing)
{
    pair_open(&pair);
    qwp_bell_tx_init(&bell, true);
    ck_assert(!bell.fence);
    publish();
    ck_assert_uint_eq(bell.gen, 0);
    ck_assert_ptr_null(bell.control.header);
    qwp_bell_tx_fini(&bell);
    qwp_bell_tx_init(&bell, false);
    ck_assert(bell.fence);
    publish();
    pair_close(&pair);
}
END_TEST

START_TEST(attach_makes_the_producer_follow_and_ring)
{
    struct sleeper sleeper;
    open_all(QWP_BELL_FUTEX, false);
    sleeper_start(&sleeper);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->state), QWP_RING_ATTACHED);
    publish(); /* awake, and yet it rings: it has just mapped the file */
    ck_assert(sleeper_end(&sleeper));
    ck_assert_uint_eq(bell.gen, atomic_load(&sidecar.control.header->gen));
    ck_assert_ptr_eq(bell.epoch, &bell.control.header->epoch);
    ck_assert_uint_eq(bell.rung, 0);
    close_all();
}
END_TEST

START_TEST(parked_sidecar_is_rung_once)
{
    struct sleeper first;
    struct sleeper second;
    open_all(QWP_BELL_FUTEX, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    sleeper_start(&first);
    sidecar_park(&sidecar, false);
    publish();
    ck_assert(sleeper_end(&first));
    ck_assert_uint_eq(bell.rung, sidecar.bell.epoch);
    /* Another waiter on the same odd value is not woken by the next publish... */
    second.word = first.word;
    second.expected = sidecar.bell.epoch;
    ck_assert_int_eq(pthread_create(&second.thread, NULL, sleep_on, &second), 0);
    while (count_waiters(second.word) == 0) {
        sched_yield();
    }
    publish();
    ck_assert_int_eq(count_waiters(second.word), 1);
    /* ...but by the one after the next park. */
    qwp_bell_unpark(&sidecar.bell);
    ck_assert(!qwp_bell_is_parked(&sidecar.bell));
    publish();
    ck_assert_int_eq(count_waiters(second.word), 1);
    sidecar_park(&sidecar, false);
    publish();
    ck_assert(sleeper_end(&second));
    close_all();
}
END_TEST

START_TEST(lingering_sidecar_is_rung_from_half_full_on)
{
    struct sleeper sleeper;
    open_all(QWP_BELL_FUTEX, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    qwp_bell_published(&bell, &pair.tx);
    sleeper_start(&sleeper);
    sidecar_park(&sidecar, true);
    while (pair.tx.tail_pos + 64 < pair.tx.data_bytes / 2) {
        publish();
    }
    ck_assert_int_eq(count_waiters(sleeper.word), 1);
    ck_assert_uint_eq(bell.rung, 0);
    publish();
    ck_assert(sleeper_end(&sleeper));
    ck_assert_uint_eq(bell.rung, sidecar.bell.epoch);
    close_all();
}
END_TEST

START_TEST(lingering_then_parked_is_rung_below_half)
{
    struct sleeper sleeper;
    open_all(QWP_BELL_FUTEX, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    qwp_bell_published(&bell, &pair.tx);
    sleeper_start(&sleeper);
    sidecar_park(&sidecar, true);
    publish();
    ck_assert_int_eq(count_waiters(sleeper.word), 1);
    const uint32_t lingering = sidecar.bell.epoch;
    sidecar_park(&sidecar, false);
    ck_assert_uint_eq(sidecar.bell.epoch & (QWP_EPOCH_STEP - 1), QWP_EPOCH_PARKED);
    ck_assert_uint_ne(sidecar.bell.epoch & ~3u, lingering & ~3u);
    publish();
    ck_assert(sleeper_end(&sleeper));
    close_all();
}
END_TEST

START_TEST(park_is_sure_where_membarrier_works_or_all_fence)
{
    open_all(QWP_BELL_FUTEX, true);
    ck_assert(sidecar.bell.fence);
    ck_assert(qwp_bell_park(&sidecar.bell, false, false));
    qwp_bell_unpark(&sidecar.bell);
    if (sidecar.bell.can_membarrier) {
        sidecar.bell.fence = false;
        ck_assert(qwp_bell_park(&sidecar.bell, false, false));
        qwp_bell_unpark(&sidecar.bell);
    }
    /* A membarrier that cannot be had after all. */
    sidecar.bell.fence = false;
    sidecar.bell.can_membarrier = false;
    ck_assert(!qwp_bell_park(&sidecar.bell, false, false));
    qwp_bell_unpark(&sidecar.bell);
    /* Who sleeps briefly needs none. */
    ck_assert(qwp_bell_park(&sidecar.bell, true, true));
    qwp_bell_unpark(&sidecar.bell);
    close_all();
}
END_TEST

START_TEST(attach_without_membarrier_is_unsure_for_a_while)
{
    open_all(QWP_BELL_FUTEX, true);
    sidecar.bell.can_membarrier = false;
    pair.rx.membarrier = false;
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert(qwp_bell_park(&sidecar.bell, false, false));
    qwp_bell_unpark(&sidecar.bell);
    pair.rx.membarrier = true;
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert_int_gt(sidecar.bell.unsure_until_ns, 0);
    sidecar.bell.unsure_until_ns = QWP_NEVER_NS;
    ck_assert(!qwp_bell_park(&sidecar.bell, false, false));
    qwp_bell_unpark(&sidecar.bell);
    sidecar.bell.unsure_until_ns = 1;
    ck_assert(qwp_bell_park(&sidecar.bell, false, false));
    close_all();
}
END_TEST

START_TEST(control_that_asks_for_fences_gets_them)
{
    open_all(QWP_BELL_FUTEX, true);
    qwp_bell_tx_fini(&bell);
    qwp_bell_tx_init(&bell, true);
    ck_assert(!bell.fence);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert(bell.fence);
    ck_assert(bell.registered);
    close_all();
}
END_TEST

START_TEST(next_life_is_followed)
{
    struct sidecar next;
    open_all(QWP_BELL_FUTEX, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    const uint64_t first = bell.gen;
    sidecar_park(&sidecar, false);
    sidecar_close(&sidecar);
    publish(); /* the dead one's odd word: rung for nothing */
    ck_assert_uint_eq(bell.gen, first);
    sidecar_open(&next, QWP_BELL_FUTEX, false);
    publish(); /* not attached yet */
    ck_assert_uint_eq(bell.gen, first);
    qwp_bell_attach(&next.bell, &pair.rx);
    publish();
    ck_assert_uint_eq(bell.gen, atomic_load(&next.control.header->gen));
    ck_assert_uint_eq(bell.rung, 0);
    sidecar_close(&next);
    qwp_bell_tx_fini(&bell);
    pair_close(&pair);
}
END_TEST

/* attach_gen of the dead, control file of one that has not attached yet. */
START_TEST(control_of_another_life_is_not_rung)
{
    open_all(QWP_BELL_FUTEX, false);
    atomic_store(&pair.tx.header->attach_gen, 12345);
    publish();
    ck_assert_uint_eq(bell.gen, 12345);
    ck_assert_ptr_null(bell.control.header);
    ck_assert_uint_eq(atomic_load(bell.epoch), 0);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert_ptr_nonnull(bell.control.header);
    close_all();
}
END_TEST

START_TEST(control_that_cannot_be_opened_is_tried_again)
{
    open_all(QWP_BELL_FUTEX, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert_int_eq(renameat(fixture_dir_fd, QWP_CONTROL_FILE, fixture_dir_fd, "away"), 0);
    publish();
    ck_assert_uint_eq(bell.gen, 0);
    ck_assert_int_eq(renameat(fixture_dir_fd, "away", fixture_dir_fd, QWP_CONTROL_FILE), 0);
    publish();
    ck_assert_uint_eq(bell.gen, atomic_load(&sidecar.control.header->gen));
    close_all();
}
END_TEST

START_TEST(control_of_unknown_major_is_remembered_as_refused)
{
    open_all(QWP_BELL_FUTEX, false);
    atomic_store(&sidecar.control.header->major, 9);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert(bell.refused);
    ck_assert_uint_eq(bell.gen, atomic_load(&sidecar.control.header->gen));
    close_all();
}
END_TEST

static bool fifo_is_readable(void)
{
    struct pollfd fd = {.fd = sidecar.bell.fifo_fd, .events = POLLIN};
    return poll(&fd, 1, 0) == 1 && (fd.revents & POLLIN) != 0;
}

START_TEST(fifo_bell_is_written_once_a_park)
{
    open_all(QWP_BELL_FIFO, false);
    struct stat st;
    ck_assert_int_eq(fstat(sidecar.bell.fifo_fd, &st), 0);
    ck_assert(S_ISFIFO(st.st_mode));
    ck_assert_uint_eq(st.st_mode & 07777, 0620);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert(fifo_is_readable());
    qwp_bell_unpark(&sidecar.bell); /* awake already: only empties it */
    ck_assert(!fifo_is_readable());
    publish();
    ck_assert(!fifo_is_readable());
    sidecar_park(&sidecar, false);
    publish();
    publish();
    char bytes[8];
    ck_assert_int_eq(read(sidecar.bell.fifo_fd, bytes, sizeof bytes), 1);
    qwp_bell_unpark(&sidecar.bell);
    close_all();
}
END_TEST

START_TEST(fifo_that_is_full_is_rung_enough)
{
    open_all(QWP_BELL_FIFO, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    static char bytes[4096];
    while (write(sidecar.bell.fifo_fd, bytes, sizeof bytes) > 0) {
    }
    sidecar_park(&sidecar, false);
    publish();
    ck_assert(fifo_is_readable());
    qwp_bell_unpark(&sidecar.bell);
    ck_assert(!fifo_is_readable());
    close_all();
}
END_TEST

static volatile sig_atomic_t signals_seen;

static void count_signal(int number)
{
    (void)number;
    signals_seen = signals_seen + 1;
}

START_TEST(fifo_of_a_dead_sidecar_raises_no_signal)
{
    signal(SIGPIPE, count_signal);
    open_all(QWP_BELL_FIFO, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert_int_ge(bell.fifo_fd, 0);
    sidecar_park(&sidecar, false);
    close(sidecar.bell.fifo_fd);
    sidecar.bell.fifo_fd = -1;
    publish();
    ck_assert_int_eq(signals_seen, 0);
    sigset_t set;
    ck_assert_int_eq(sigpending(&set), 0);
    ck_assert(!sigismember(&set, SIGPIPE));
    raise(SIGPIPE);
    ck_assert_int_eq(signals_seen, 1);
    close_all();
}
END_TEST

START_TEST(fifo_replaces_what_was_there)
{
    const int fd = openat(fixture_dir_fd, QWP_BELL_FILE, O_CREAT | O_WRONLY, 0600);
    close(fd);
    open_all(QWP_BELL_FIFO, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    publish();
    ck_assert(fifo_is_readable());
    close_all();
}
END_TEST

/* ---- a producer that waits ---- */

static bool is_stored(void *owner)
{
    return atomic_load(&pair.tx.header->head_pos) >= *(uint64_t *)owner;
}

static bool is_acked(void *owner)
{
    return atomic_load(&pair.tx.header->acked_pos) >= *(uint64_t *)owner;
}

static bool is_detached(void *owner)
{
    (void)owner;
    return atomic_load(&pair.tx.header->state) == QWP_RING_DETACHED;
}

enum step { STEP_RELEASE, STEP_SETTLE, STEP_DETACH };

static void *progress_when_awaited(void *owner)
{
    while (atomic_load(&pair.rx.header->waiting) == 0) {
        sched_yield();
    }
    switch (*(enum step *)owner) {
    case STEP_RELEASE:
        qwp_ring_release(&pair.rx, 64, 1);
        break;
    case STEP_SETTLE:
        qwp_ring_settle(&pair.rx, 64, 1, 0);
        break;
    case STEP_DETACH:
        qwp_ring_set_state(&pair.rx, QWP_RING_DETACHED, "because");
        break;
    }
    return NULL;
}

START_TEST(wait_ends_with_what_it_waits_for)
{
    static const struct {
        enum step step;
        uint32_t what;
        qwp_reached_fn reached;
    } cases[] = {{STEP_RELEASE, QWP_WAIT_STORED, is_stored},
                 {STEP_RELEASE, QWP_WAIT_SPACE, is_stored},
                 {STEP_SETTLE, QWP_WAIT_ACKED, is_acked},
                 {STEP_DETACH, QWP_WAIT_STORED, is_detached}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        pthread_t thread;
        uint64_t position = 64;
        enum step step = cases[i].step;
        pair_open(&pair);
        put_record(&pair.tx, 64, 1);
        ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
        if (step == STEP_SETTLE) {
            qwp_ring_release(&pair.rx, 64, 1);
        }
        ck_assert_int_eq(pthread_create(&thread, NULL, progress_when_awaited, &step), 0);
        ASSERT_RESULT(
            qwp_bell_wait(&pair.tx, cases[i].what, cases[i].reached, &position, QWP_NEVER_NS),
            QWP_OK);
        pthread_join(thread, NULL);
        ck_assert_uint_eq(atomic_load(&pair.tx.header->waiting), 0);
        pair_close(&pair);
    }
}
END_TEST

START_TEST(wait_past_its_deadline_is_again)
{
    uint64_t position = 64;
    pair_open(&pair);
    const int64_t deadline = qwp_clock_monotonic_ns() + 20 * QWP_NS_PER_MS;
    ASSERT_RESULT(qwp_bell_wait(&pair.tx, QWP_WAIT_STORED, is_stored, &position, deadline),
                  QWP_AGAIN);
    ck_assert_int_ge(qwp_clock_monotonic_ns(), deadline);
    ASSERT_RESULT(qwp_bell_wait(&pair.tx, QWP_WAIT_STORED, is_stored, &position, 0), QWP_AGAIN);
    position = 0;
    ASSERT_RESULT(qwp_bell_wait(&pair.tx, QWP_WAIT_STORED, is_stored, &position, 0), QWP_OK);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->waiting), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(release_wakes_only_whom_it_concerns)
{
    pair_open(&pair);
    put_record(&pair.tx, 64, 1);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    qwp_ring_release(&pair.rx, 8, 0);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 0);
    atomic_store(&pair.tx.header->waiting, QWP_WAIT_ACKED);
    qwp_ring_release(&pair.rx, 16, 0);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 0);
    qwp_ring_settle(&pair.rx, 8, 0, 0);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 1);
    atomic_store(&pair.tx.header->waiting, QWP_WAIT_SPACE);
    qwp_ring_settle(&pair.rx, 16, 0, 0);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 1);
    qwp_ring_release(&pair.rx, 24, 0);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 2);
    pair_close(&pair);
}
END_TEST

/* A sidecar that dies between moving head and waking: the next one wakes as it attaches. */
START_TEST(attach_wakes_a_waiting_producer)
{
    open_all(QWP_BELL_FUTEX, false);
    atomic_store(&pair.tx.header->waiting, QWP_WAIT_STORED);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->progress_seq), 1);
    close_all();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("bell");
    TCase *test_case = fixture_case(suite, "bell");
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, publish_without_a_sidecar_asks_nothing);
    tcase_add_test(test_case, attach_makes_the_producer_follow_and_ring);
    tcase_add_test(test_case, parked_sidecar_is_rung_once);
    tcase_add_test(test_case, lingering_sidecar_is_rung_from_half_full_on);
    tcase_add_test(test_case, lingering_then_parked_is_rung_below_half);
    tcase_add_test(test_case, park_is_sure_where_membarrier_works_or_all_fence);
    tcase_add_test(test_case, attach_without_membarrier_is_unsure_for_a_while);
    tcase_add_test(test_case, control_that_asks_for_fences_gets_them);
    tcase_add_test(test_case, next_life_is_followed);
    tcase_add_test(test_case, control_of_another_life_is_not_rung);
    tcase_add_test(test_case, control_that_cannot_be_opened_is_tried_again);
    tcase_add_test(test_case, control_of_unknown_major_is_remembered_as_refused);
    tcase_add_test(test_case, fifo_bell_is_written_once_a_park);
    tcase_add_test(test_case, fifo_that_is_full_is_rung_enough);
    tcase_add_test(test_case, fifo_of_a_dead_sidecar_raises_no_signal);
    tcase_add_test(test_case, fifo_replaces_what_was_there);
    tcase_add_test(test_case, wait_ends_with_what_it_waits_for);
    tcase_add_test(test_case, wait_past_its_deadline_is_again);
    tcase_add_test(test_case, release_wakes_only_whom_it_concerns);
    tcase_add_test(test_case, attach_wakes_a_waiting_producer);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

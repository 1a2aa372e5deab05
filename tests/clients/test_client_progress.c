/* Progress as the producer sees it, while the reader stores, settles, rejects and detaches as the
 * sidecar would; and producers that come, go and fork. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "ipc/qwp_bell.h"
#include "ipc/qwp_rendezvous.h"
#include "tests/clients/client_fixture.h"

static struct qwp_table *table;
static struct reader reader;

static void open_ring(void)
{
    fixture_open(NULL);
    const struct qwp_column columns[] = {{"n", QWP_LONG, 0}};
    ck_assert_int_eq(qwp_table_define(fixture_producer, "t", columns, 1, &table, &fixture_err),
                     QWP_OK);
    reader_open(&reader);
}

static enum qwp_result put(void)
{
    struct qwp_row *row = qwp_row_begin(table);
    qwp_row_long(row, 0, 1);
    return qwp_row_at_ns(row, 1, &fixture_err);
}

static uint64_t put_and_take(int rows)
{
    struct record record;
    for (int i = 0; i < rows; i++) {
        ck_assert_int_eq(put(), QWP_OK);
        ck_assert(reader_next(&reader, &record));
    }
    return reader.pos;
}

START_TEST(wait_reports_how_far_rows_are)
{
    open_ring();
    ck_assert_int_eq(qwp_wait_stored(fixture_producer, 0, 0, &fixture_err), QWP_OK);
    const uint64_t position = put_and_take(2);
    ck_assert_uint_eq(qwp_position_published(fixture_producer), position);
    expect(qwp_wait_stored(fixture_producer, position, 0, &fixture_err), QWP_AGAIN,
           "0 of 64 bytes are stored so far; no sidecar runs");
    expect(qwp_wait_acked(fixture_producer, position, QWP_NS_PER_MS, &fixture_err), QWP_AGAIN,
           "0 of 64 bytes are acked so far; no sidecar runs");
    expect(qwp_wait_stored(fixture_producer, position + 1, -1, &fixture_err), QWP_INVALID,
           "position 65 cannot be stored while only 64 is published");
    reader_release(&reader, 2);
    ck_assert_int_eq(qwp_wait_stored(fixture_producer, position, -1, &fixture_err), QWP_OK);
    ck_assert_uint_eq(qwp_position_stored(fixture_producer), position);
    qwp_ring_settle(&reader.rx, position, 2, 0);
    ck_assert_int_eq(qwp_wait_acked(fixture_producer, position, -1, &fixture_err), QWP_OK);
    ck_assert_uint_eq(qwp_position_acked(fixture_producer), position);
    struct qwp_counters counters;
    qwp_producer_count(fixture_producer, &counters);
    ck_assert_uint_eq(counters.rows_stored, 2);
    ck_assert_uint_eq(counters.rows_acked, 2);
    reader_close(&reader);
}
END_TEST

START_TEST(wait_tells_of_rejected_rows_once)
{
    open_ring();
    const uint64_t position = put_and_take(5);
    reader_release(&reader, 5);
    qwp_ring_settle(&reader.rx, position - 32, 4, 3);
    expect(qwp_wait_acked(fixture_producer, position, 0, &fixture_err), QWP_AGAIN, "acked so far");
    expect(qwp_wait_acked(fixture_producer, position - 32, 0, &fixture_err), QWP_REJECTED,
           "the server refused 3 rows");
    ck_assert_int_eq(qwp_wait_acked(fixture_producer, position - 32, 0, &fixture_err), QWP_OK);
    qwp_ring_settle(&reader.rx, position, 1, 1);
    expect(qwp_wait_acked(fixture_producer, position, 0, &fixture_err), QWP_REJECTED,
           "the server refused 1 rows");
    ck_assert_int_eq(qwp_wait_acked(fixture_producer, position, 0, &fixture_err), QWP_OK);
    struct qwp_counters counters;
    qwp_producer_count(fixture_producer, &counters);
    ck_assert_uint_eq(counters.rows_rejected, 4);
    reader_close(&reader);
}
END_TEST

/* Waits until the producer announces that it sleeps for `what`, then moves. */
struct move {
    uint32_t what;
    uint64_t position;
    enum qwp_ring_state state;
};

static void *move_when_awaited(void *arg)
{
    const struct move *move = arg;
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + INT64_C(20) * QWP_NS_PER_S;
    while ((atomic_load(&reader.rx.header->waiting) & move->what) == 0 &&
           qwp_clock_monotonic_ns() < deadline_ns) {
    }
    if (move->state != QWP_RING_NEW) {
        qwp_ring_set_state(&reader.rx, move->state, "a record was malformed");
    } else if (move->what == QWP_WAIT_STORED) {
        qwp_ring_release(&reader.rx, move->position, 1);
    } else {
        qwp_ring_settle(&reader.rx, move->position, 1, 0);
    }
    return NULL;
}

static enum qwp_result wait_while(const struct move *move)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, move_when_awaited, (void *)move), 0);
    const enum qwp_result result =
        move->what == QWP_WAIT_ACKED
            ? qwp_wait_acked(fixture_producer, move->position, -1, &fixture_err)
            : qwp_wait_stored(fixture_producer, move->position, -1, &fixture_err);
    pthread_join(thread, NULL);
    return result;
}

START_TEST(wait_wakes_when_the_sidecar_moves)
{
    open_ring();
    const uint64_t position = put_and_take(1);
    ck_assert_int_eq(wait_while(&(struct move){QWP_WAIT_STORED, position, QWP_RING_NEW}), QWP_OK);
    ck_assert_int_eq(wait_while(&(struct move){QWP_WAIT_ACKED, position, QWP_RING_NEW}), QWP_OK);
    reader_close(&reader);
}
END_TEST

START_TEST(wait_ends_with_the_reason_when_the_ring_is_detached)
{
    open_ring();
    const uint64_t position = put_and_take(1);
    expect(wait_while(&(struct move){QWP_WAIT_STORED, position, QWP_RING_DETACHED}), QWP_CLOSED,
           "a record was malformed");
    expect(qwp_wait_acked(fixture_producer, position, -1, &fixture_err), QWP_CLOSED,
           "a record was malformed");
    reader_close(&reader);
}
END_TEST

START_TEST(detached_ring_takes_no_rows)
{
    open_ring();
    const struct qwp_layout *layout;
    ck_assert_int_eq(qwp_layout_define(table, (uint32_t[]){0}, 1, QWP_AT_SERVER, &layout, NULL),
                     QWP_OK);
    ck_assert_int_eq(put(), QWP_OK);
    qwp_ring_set_state(&reader.rx, QWP_RING_DETACHED, "shape 9 is unknown");
    const uint64_t published = qwp_position_published(fixture_producer);
    expect(put(), QWP_CLOSED, "shape 9 is unknown");
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "close this producer and open another one"));
    void *row;
    ck_assert_int_eq(qwp_row_reserve(fixture_producer, layout, 0, &row), QWP_OK);
    ck_assert_int_eq(qwp_row_publish(fixture_producer), QWP_CLOSED);
    ck_assert_int_eq(qwp_unit_begin(fixture_producer, NULL), QWP_OK);
    ck_assert_int_eq(put(), QWP_OK);
    expect(qwp_unit_publish(fixture_producer, &fixture_err), QWP_CLOSED, "shape 9 is unknown");
    ck_assert_uint_eq(qwp_position_published(fixture_producer), published);
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_REFUSED);
    char reason[64];
    qwp_consumer_reason(fixture_producer, reason, sizeof reason);
    ck_assert_str_eq(reason, "shape 9 is unknown");
    reader_close(&reader);
}
END_TEST

/* ---- the sidecar as seen from here ---- */

START_TEST(consumer_state_follows_the_sidecars_life)
{
    open_ring();
    char reason[64] = "x";
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_NONE);
    qwp_consumer_reason(fixture_producer, reason, sizeof reason);
    ck_assert_str_eq(reason, "");

    struct qwp_control control = {0};
    struct qwp_bell_rx bell;
    const struct qwp_control_options options = {.producers_max = 4, .ring_bytes_max = 1 << 20};
    ck_assert_int_eq(qwp_control_create(&control, reader.dir_fd, &options, &fixture_err), QWP_OK);
    ck_assert_int_eq(qwp_bell_rx_open(&bell, reader.dir_fd, &control, &fixture_err), QWP_OK);
    qwp_bell_attach(&bell, &reader.rx);
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_RUNNING);
    ck_assert_int_eq(put(), QWP_OK);
    qwp_ring_set_state(&reader.rx, QWP_RING_CLOSING, "");
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_CLOSING);
    qwp_bell_rx_close(&bell);
    qwp_control_close(&control);
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_NONE);
    ck_assert_int_eq(put(), QWP_OK);
    reader_close(&reader);
}
END_TEST

/* ---- open, close, fork ---- */

START_TEST(open_takes_directory_and_instance_from_the_environment)
{
    setenv("QWP_RINGS", fixture_dir, 1);
    setenv("QWP_INSTANCE", "from-env", 1);
    ck_assert_int_eq(qwp_producer_open(&fixture_producer, NULL, &fixture_err), QWP_OK);
    char path[128];
    snprintf(path, sizeof path, "%s/from-env", fixture_dir);
    ck_assert_int_eq(access(path, F_OK), 0);
    qwp_producer_close(fixture_producer);
    const struct qwp_producer_options options = {.instance = "given"};
    ck_assert_int_eq(qwp_producer_open(&fixture_producer, &options, &fixture_err), QWP_OK);
    snprintf(path, sizeof path, "%s/given", fixture_dir);
    ck_assert_int_eq(access(path, F_OK), 0);
    unsetenv("QWP_RINGS");
    unsetenv("QWP_INSTANCE");
}
END_TEST

START_TEST(open_bad_options_say_what_is_wrong)
{
    struct qwp_producer *producer = NULL;
    struct qwp_producer_options options = {.dir = fixture_dir, .on_full = (enum qwp_on_full)7};
    expect(qwp_producer_open(&producer, &options, &fixture_err), QWP_INVALID, "QWP_FULL_*");
    options = (struct qwp_producer_options){.dir = fixture_dir, .full_wait_ns_max = -1};
    expect(qwp_producer_open(&producer, &options, &fixture_err), QWP_INVALID, "full_wait_ns_max");
    options = (struct qwp_producer_options){.dir = "/proc/nowhere"};
    ck_assert_int_ne(qwp_producer_open(&producer, &options, &fixture_err), QWP_OK);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "/proc/nowhere"));
    options = (struct qwp_producer_options){.dir = fixture_dir, .instance = "../x"};
    expect(qwp_producer_open(&producer, &options, &fixture_err), QWP_INVALID, "../x");
    ck_assert_ptr_null(producer);
    qwp_producer_close(NULL);
}
END_TEST

START_TEST(close_lets_go_and_keeps_what_is_published)
{
    open_ring();
    ck_assert_int_eq(put(), QWP_OK);
    ck_assert_int_eq(qwp_unit_begin(fixture_producer, NULL), QWP_OK);
    ck_assert_int_eq(put(), QWP_OK);
    ck_assert(!qwp_ring_is_orphan(&reader.rx));
    qwp_producer_close(fixture_producer);
    fixture_producer = NULL;
    ck_assert(qwp_ring_is_orphan(&reader.rx));
    struct record record;
    ck_assert(reader_next(&reader, &record));
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

/* What a child sees of its parent's producer; each bit names a call that did not behave. */
static unsigned child_checks(struct qwp_row *row, const struct qwp_layout *layout)
{
    struct qwp_error err = {0};
    unsigned wrong = 0;
    wrong |= qwp_row_long(row, 0, 1) != QWP_CLOSED ? 1u : 0;
    wrong |= qwp_row_at_ns(row, 1, &err) != QWP_CLOSED ? 2u : 0;
    wrong |= strstr(err.text, "before fork()") == NULL ? 4u : 0;
    wrong |= put() != QWP_CLOSED ? 8u : 0;
    void *reserved;
    wrong |= qwp_row_reserve(fixture_producer, layout, 0, &reserved) != QWP_CLOSED ? 16u : 0;
    wrong |= qwp_row_publish(fixture_producer) != QWP_CLOSED ? 32u : 0;
    wrong |= qwp_unit_begin(fixture_producer, &err) != QWP_CLOSED ? 64u : 0;
    wrong |= qwp_unit_publish(fixture_producer, &err) != QWP_CLOSED ? 128u : 0;
    qwp_unit_abort(fixture_producer);
    struct qwp_table *other;
    wrong |=
        qwp_table_define(fixture_producer, "x", NULL, 0, &other, &err) != QWP_CLOSED ? 256u : 0;
    uint32_t handle;
    wrong |= qwp_symbol_intern(fixture_producer, "s", 1, &handle, &err) != QWP_CLOSED ? 512u : 0;
    wrong |= qwp_wait_stored(fixture_producer, 0, 0, &err) != QWP_CLOSED ? 1024u : 0;
    wrong |= qwp_wait_acked(fixture_producer, 0, 0, &err) != QWP_CLOSED ? 2048u : 0;
    wrong |= qwp_consumer_state(fixture_producer) != QWP_CONSUMER_NONE ? 4096u : 0;
    char reason[8];
    qwp_consumer_reason(fixture_producer, reason, sizeof reason);
    struct qwp_counters counters;
    qwp_producer_count(fixture_producer, &counters);
    wrong |= qwp_table_find(table, "n", 1) != 0 ? 8192u : 0;
    const struct qwp_producer_options options = {.dir = fixture_dir, .instance = "child"};
    struct qwp_producer *own;
    wrong |= qwp_producer_open(&own, &options, &err) != QWP_OK ? 16384u : 0;
    qwp_producer_close(own);
    qwp_producer_close(fixture_producer);
    return wrong;
}

START_TEST(fork_leaves_the_producer_to_the_parent)
{
    open_ring();
    const struct qwp_layout *layout;
    ck_assert_int_eq(qwp_layout_define(table, (uint32_t[]){0}, 1, QWP_AT_NS, &layout, NULL),
                     QWP_OK);
    ck_assert_int_eq(put(), QWP_OK);
    struct qwp_row *row = qwp_row_begin(table);
    unsigned *wrong =
        mmap(NULL, sizeof *wrong, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int ready[2];
    int go[2];
    ck_assert_int_eq(pipe(ready) | pipe(go), 0);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        *wrong = child_checks(row, layout);
        char byte = 0;
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1) {
            _exit(2);
        }
        _exit(0);
    }
    char byte = 0;
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    ck_assert_uint_eq(*wrong, 0);
    /* The parent's row goes on as if nothing had happened. */
    ck_assert_int_eq(qwp_row_long(row, 0, 7), QWP_OK);
    ck_assert_int_eq(qwp_row_at_ns(row, 7, &fixture_err), QWP_OK);
    ck_assert(!qwp_ring_is_orphan(&reader.rx));
    /* The child still lives when the parent lets go: the ring is an orphan all the same. */
    qwp_producer_close(fixture_producer);
    fixture_producer = NULL;
    ck_assert(qwp_ring_is_orphan(&reader.rx));
    ck_assert_int_eq(write(go[1], &byte, 1), 1);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert(reader_next(&reader, &record));
    ck_assert_int_eq(record_time(&record), 7);
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

START_TEST(fork_with_several_producers_closes_each)
{
    struct qwp_producer *producers[5];
    const struct qwp_producer_options options = {.dir = fixture_dir, .ring_bytes = 64 * 1024};
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(qwp_producer_open(&producers[i], &options, &fixture_err), QWP_OK);
    }
    qwp_producer_close(producers[2]);
    qwp_producer_close(producers[4]);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        unsigned open = 0;
        for (int i = 0; i < 4; i++) {
            open += i != 2 && qwp_unit_begin(producers[i], NULL) != QWP_CLOSED;
        }
        _exit((int)open);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 4; i++) {
        if (i != 2) {
            ck_assert_int_eq(qwp_unit_begin(producers[i], NULL), QWP_OK);
            qwp_producer_close(producers[i]);
        }
    }
}
END_TEST

enum { FORKS = 40 };
static atomic_bool churn_stop;

static void *open_and_close(void *unused)
{
    (void)unused;
    const struct qwp_producer_options options = {.dir = fixture_dir, .ring_bytes = 64 * 1024};
    uintptr_t failed = 0;
    while (!atomic_load(&churn_stop)) {
        struct qwp_producer *producer;
        failed += qwp_producer_open(&producer, &options, NULL) != QWP_OK;
        qwp_producer_close(failed == 0 ? producer : NULL);
    }
    return (void *)failed;
}

static struct {
    int dir_fd;
    uint32_t rings;
    uint32_t held;
} orphans;

static void count_ring(void *owner, const char *file_name)
{
    (void)owner;
    struct qwp_ring_rx rx;
    const struct qwp_ring_limits limits = {.data_bytes_max = 1 << 20, .defs_bytes_max = 1 << 20};
    ck_assert_int_eq(qwp_ring_open(&rx, orphans.dir_fd, file_name, &limits, NULL), QWP_OK);
    orphans.rings++;
    orphans.held += !qwp_ring_is_orphan(&rx);
    qwp_ring_close_rx(&rx);
}

/* Another thread opens and closes producers all the time; no child may carry a lock away. */
START_TEST(fork_while_another_thread_opens_carries_no_lock_away)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, open_and_close, NULL), 0);
    int go[2];
    int ready[2];
    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(ready), 0);
    pid_t children[FORKS];
    for (int i = 0; i < FORKS; i++) {
        children[i] = fork();
        ck_assert_int_ge(children[i], 0);
        if (children[i] == 0) {
            char byte = 0;
            close(go[1]);
            (void)!write(ready[1], &byte, 1);
            _exit(read(go[0], &byte, 1) == 0 ? 0 : 1);
        }
    }
    atomic_store(&churn_stop, true);
    void *failed;
    pthread_join(thread, &failed);
    ck_assert_ptr_null(failed);
    /* A child lets go in its own time: only what it still holds when it runs counts. */
    for (int i = 0; i < FORKS; i++) {
        char byte;
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    }
    ck_assert_int_eq(qwp_rendezvous_open(fixture_dir, NULL, &orphans.dir_fd, &fixture_err), QWP_OK);
    ck_assert_int_eq(qwp_rendezvous_scan(orphans.dir_fd, count_ring, NULL, &fixture_err), QWP_OK);
    ck_assert_uint_gt(orphans.rings, 0);
    ck_assert_uint_eq(orphans.held, 0);
    close(go[1]);
    for (int i = 0; i < FORKS; i++) {
        int status;
        ck_assert_int_eq(waitpid(children[i], &status, 0), children[i]);
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("progress");
    TCase *tcase = tcase_create("progress");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, wait_reports_how_far_rows_are);
    tcase_add_test(tcase, wait_tells_of_rejected_rows_once);
    tcase_add_test(tcase, wait_wakes_when_the_sidecar_moves);
    tcase_add_test(tcase, wait_ends_with_the_reason_when_the_ring_is_detached);
    tcase_add_test(tcase, detached_ring_takes_no_rows);
    tcase_add_test(tcase, consumer_state_follows_the_sidecars_life);
    tcase_add_test(tcase, open_takes_directory_and_instance_from_the_environment);
    tcase_add_test(tcase, open_bad_options_say_what_is_wrong);
    tcase_add_test(tcase, close_lets_go_and_keeps_what_is_published);
    tcase_add_test(tcase, fork_leaves_the_producer_to_the_parent);
    tcase_add_test(tcase, fork_with_several_producers_closes_each);
    tcase_add_test(tcase, fork_while_another_thread_opens_carries_no_lock_away);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

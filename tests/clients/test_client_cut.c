/* Aim: a ring that another process cuts short costs its producer that ring and nothing else.
 * Method: the file is truncated under the producer, everywhere it may be touching it; handlers that
 * were there before are asked, too. */
#include "tests/clients/client_fixture.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/c/qwp_producer.h"

static const struct qwp_column columns[] = {{"v", QWP_LONG, 0}, {"s", QWP_SYMBOL, 0}};

static struct qwp_table *define(void)
{
    struct qwp_table *table;
    ck_assert_int_eq(qwp_table_define(fixture_producer, "t", columns, 2, &table, &fixture_err),
                     QWP_OK);
    return table;
}

static enum qwp_result write_row(struct qwp_table *table, int64_t v)
{
    char text[24];
    const int len = snprintf(text, sizeof text, "s%lld", (long long)v);
    struct qwp_row *row = qwp_row_begin(table);
    qwp_row_long(row, 0, v);
    qwp_row_symbol(row, 1, text, (size_t)len);
    return qwp_row_at_ns(row, 1000 + v, &fixture_err);
}

static void cut(off_t bytes)
{
    ck_assert_int_eq(ftruncate(fixture_producer->ring.fd, bytes), 0);
}

/* Until it says so: in the page at hand there may be room for a row or two. */
static enum qwp_result write_until_failure(struct qwp_table *table)
{
    enum qwp_result result = QWP_OK;
    for (int64_t v = 0; v < 100000 && result == QWP_OK; v++) {
        result = write_row(table, v);
    }
    return result;
}

START_TEST(cut_ring_is_a_detached_one)
{
    static const off_t lengths[] = {0, 4096, 65536, 65536 + 8192, 65536 + 1024 * 1024 + 4096};
    fixture_open(NULL);
    struct qwp_table *table = define();
    ck_assert_int_eq(write_row(table, 1), QWP_OK);
    cut(lengths[_i]);
    expect(write_until_failure(table), QWP_CLOSED, "cut short");
    ck_assert_int_eq(qwp_consumer_state(fixture_producer), QWP_CONSUMER_REFUSED);
    char reason[200];
    qwp_consumer_reason(fixture_producer, reason, sizeof reason);
    ck_assert_ptr_nonnull(strstr(reason, "cut short"));
    expect(qwp_wait_acked(fixture_producer, qwp_position_published(fixture_producer), -1,
                          &fixture_err),
           QWP_CLOSED, "cut short");

    /* Another one goes on as if nothing had been. */
    qwp_producer_close(fixture_producer);
    fixture_producer = NULL;
    fixture_open(NULL);
    ck_assert_int_eq(write_row(define(), 1), QWP_OK);
}
END_TEST

static sigjmp_buf back;
static volatile sig_atomic_t seen;

static void on_bus_error(int number)
{
    (void)number;
    seen++;
    siglongjmp(back, 1);
}

/* A SIGBUS of someone else's, twice, as the handler stays in place. */
START_TEST(other_faults_reach_the_handler_before_ours)
{
    struct sigaction action = {.sa_handler = on_bus_error};
    sigaction(SIGBUS, &action, NULL);
    fixture_open(NULL);
    char path[100];
    snprintf(path, sizeof path, "%s/other", fixture_dir);
    const int fd = open(path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    volatile char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne((void *)page, MAP_FAILED);
    for (volatile int i = 0; i < 2; i++) {
        if (sigsetjmp(back, 1) == 0) {
            page[0] = 1;
        }
    }
    ck_assert_int_eq(seen, 2);
    /* And ours is still there for our own. */
    struct qwp_table *table = define();
    cut(0);
    expect(write_until_failure(table), QWP_CLOSED, "cut short");
    ck_assert_int_eq(seen, 2);
    munmap((void *)page, 4096);
    close(fd);
    unlink(path);
}
END_TEST

/* Sent, not caused: the process dies of it as it would have. keep_sigbus: nothing is touched. */
START_TEST(sent_signal_still_kills)
{
    const pid_t child = fork();
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        const struct qwp_producer_options options = {.dir = fixture_dir, .keep_sigbus = _i != 0};
        struct qwp_producer *producer;
        if (qwp_producer_open(&producer, &options, NULL) == QWP_OK) {
            struct sigaction now;
            sigaction(SIGBUS, NULL, &now);
            if ((now.sa_handler == SIG_DFL) != (_i != 0)) {
                _exit(2);
            }
            raise(SIGBUS);
        }
        _exit(1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("cut");
    TCase *tc = tcase_create("cut");
    tcase_set_timeout(tc, 60);
    tcase_add_checked_fixture(tc, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tc, cut_ring_is_a_detached_one, 0, 5);
    tcase_add_test(tc, other_faults_reach_the_handler_before_ours);
    tcase_add_loop_test(tc, sent_signal_still_kills, 0, 2);
    suite_add_tcase(suite, tc);
    return fixture_run(suite);
}

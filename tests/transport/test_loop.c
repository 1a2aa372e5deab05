/* Aim: operations complete once with their outcome, whatever ends them, and a parked loop is woken
 * by what it waits for and by nothing else, on both loops. Method: real descriptors, a thread and a
 * forked process as the other side; QWP_TEST_LOOP names the loop. */
#include "transport/qwp_loop.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "tests/transport/loop_kind.h"

enum { DEADLINE_S = 30 };

struct seen {
    int calls;
    int outcome;
    bool more;
};

static void note(struct qwp_op *op, int outcome, bool more)
{
    struct seen *seen = op->owner;
    seen->calls++;
    seen->outcome = outcome;
    seen->more = more;
}

static struct qwp_loop *open_loop(bool busy)
{
    struct qwp_loop *loop = NULL;
    struct qwp_error err;
    const struct qwp_loop_options options = {.busy = busy, .kind = loop_kind()};
    ck_assert_msg(qwp_loop_open(&loop, &options, &err) == QWP_OK, "%s", err.text);
    return loop;
}

static int64_t soon_ns(void)
{
    return qwp_clock_monotonic_ns() + (int64_t)DEADLINE_S * QWP_NS_PER_S;
}

static void run_until(struct qwp_loop *loop, const int *counter, int target)
{
    const int64_t deadline_ns = soon_ns();
    while (*counter < target) {
        ck_assert_int_lt(qwp_clock_monotonic_ns(), deadline_ns);
        qwp_loop_run(loop, deadline_ns);
    }
}

START_TEST(loop_timer_fires_not_before_its_time)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    const int64_t at_ns = qwp_clock_monotonic_ns() + 20 * QWP_NS_PER_MS;
    qwp_loop_timer(loop, &op, at_ns);
    ck_assert(!qwp_loop_run(loop, 0));
    run_until(loop, &seen.calls, 1);
    ck_assert_int_ge(qwp_clock_monotonic_ns(), at_ns);
    ck_assert_int_eq(seen.outcome, 0);
    ck_assert(!op.in_flight);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_timer_moved_fires_once_at_the_new_time)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    const int64_t start_ns = qwp_clock_monotonic_ns();
    qwp_loop_timer(loop, &op, start_ns + (int64_t)3600 * QWP_NS_PER_S);
    qwp_loop_submit(loop);
    qwp_loop_timer_move(loop, &op, start_ns + 20 * QWP_NS_PER_MS);
    run_until(loop, &seen.calls, 1);
    ck_assert_int_ge(qwp_clock_monotonic_ns(), start_ns + 20 * QWP_NS_PER_MS);

    /* Later, too. */
    const int64_t again_ns = qwp_clock_monotonic_ns();
    qwp_loop_timer(loop, &op, again_ns + 5 * QWP_NS_PER_MS);
    qwp_loop_timer_move(loop, &op, again_ns + 40 * QWP_NS_PER_MS);
    run_until(loop, &seen.calls, 2);
    ck_assert_int_ge(qwp_clock_monotonic_ns(), again_ns + 40 * QWP_NS_PER_MS);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_receive_now_never_waits)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    char buffer[16];
    qwp_loop_recv_now(loop, &op, pair[0], buffer, sizeof buffer);
    ck_assert(qwp_loop_run(loop, QWP_NEVER_NS));
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(seen.outcome, -EAGAIN);

    ck_assert_int_eq(write(pair[1], "abc", 3), 3);
    qwp_loop_recv_now(loop, &op, pair[0], buffer, sizeof buffer);
    ck_assert(qwp_loop_run(loop, QWP_NEVER_NS));
    ck_assert_int_eq(seen.calls, 2);
    ck_assert_int_eq(seen.outcome, 3);
    ck_assert_int_eq(memcmp(buffer, "abc", 3), 0);

    close(pair[1]);
    qwp_loop_recv_now(loop, &op, pair[0], buffer, sizeof buffer);
    ck_assert(qwp_loop_run(loop, QWP_NEVER_NS));
    ck_assert_int_eq(seen.calls, 3);
    ck_assert_int_eq(seen.outcome, 0);
    qwp_loop_close(loop);
    close(pair[0]);
}
END_TEST

START_TEST(loop_run_until_a_deadline_returns_again)
{
    struct qwp_loop *loop = open_loop(false);
    const int64_t at_ns = qwp_clock_monotonic_ns() + 10 * QWP_NS_PER_MS;
    ck_assert(!qwp_loop_run(loop, at_ns));
    ck_assert_int_ge(qwp_clock_monotonic_ns(), at_ns);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_cancel_completes_each_kind_once)
{
    struct qwp_loop *loop = open_loop(_i != 0);
    struct seen seen[4] = {{0}};
    struct qwp_op op[4];
    memset(op, 0, sizeof op);
    for (int i = 0; i < 4; i++) {
        op[i].fn = note;
        op[i].owner = &seen[i];
    }
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    int pipes[2];
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    char buffer[16];
    qwp_loop_timer(loop, &op[0], soon_ns());
    qwp_loop_recv(loop, &op[1], pair[0], buffer, sizeof buffer);
    qwp_loop_poll(loop, &op[2], pair[1], POLLIN, true);
    qwp_loop_read(loop, &op[3], pipes[0], buffer, sizeof buffer);
    ck_assert(!qwp_loop_run(loop, 0));
    for (int i = 0; i < 4; i++) {
        qwp_loop_cancel(loop, &op[i]);
        qwp_loop_cancel(loop, &op[i]); /* asked twice is asked once */
    }
    for (int i = 0; i < 4; i++) {
        run_until(loop, &seen[i].calls, 1);
        ck_assert_int_eq(seen[i].outcome, -ECANCELED);
        ck_assert(!op[i].in_flight);
        qwp_loop_cancel(loop, &op[i]); /* idle: nothing */
    }
    ck_assert(!qwp_loop_run(loop, 0));
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(seen[i].calls, 1);
    }
    qwp_loop_close(loop);
    close(pair[0]);
    close(pair[1]);
    close(pipes[0]);
    close(pipes[1]);
}
END_TEST

START_TEST(loop_cancelled_before_submission_still_completes)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    qwp_loop_timer(loop, &op, soon_ns());
    qwp_loop_cancel(loop, &op);
    run_until(loop, &seen.calls, 1);
    ck_assert_int_eq(seen.outcome, -ECANCELED);
    qwp_loop_soon(loop, &op);
    qwp_loop_cancel(loop, &op);
    qwp_loop_run(loop, 0);
    ck_assert_int_eq(seen.calls, 2);
    ck_assert_int_eq(seen.outcome, -ECANCELED);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_close_completes_what_is_in_flight)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen[2] = {{0}};
    struct qwp_op timer = {.fn = note, .owner = &seen[0]};
    struct qwp_op soon = {.fn = note, .owner = &seen[1]};
    qwp_loop_timer(loop, &timer, soon_ns());
    qwp_loop_soon(loop, &soon);
    qwp_loop_close(loop);
    ck_assert_int_eq(seen[0].calls, 1);
    ck_assert_int_eq(seen[0].outcome, -ECANCELED);
    ck_assert_int_eq(seen[1].calls, 1);
    qwp_loop_close(NULL);
}
END_TEST

struct echo {
    struct qwp_loop *loop;
    struct qwp_op op;
    int fd;
    char buffer[8];
    int received;
};

static void on_echo(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct echo *e = op->owner;
    ck_assert_int_eq(outcome, 1);
    e->received++;
    if (e->received < 1000) {
        qwp_loop_recv(e->loop, &e->op, e->fd, e->buffer, sizeof e->buffer);
    }
}

/* An operation started anew by its own callback, and more of them than the queue holds. */
START_TEST(loop_restarted_from_its_callback_goes_on)
{
    struct qwp_loop *loop = open_loop(_i != 0);
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct echo e = {.loop = loop, .fd = pair[0]};
    e.op.fn = on_echo;
    e.op.owner = &e;
    qwp_loop_recv(loop, &e.op, e.fd, e.buffer, sizeof e.buffer);
    struct seen seen = {0};
    struct qwp_op send = {.fn = note, .owner = &seen};
    for (int i = 0; i < 1000; i++) {
        qwp_loop_send(loop, &send, pair[1], "x", 1);
        run_until(loop, &seen.calls, i + 1);
        ck_assert_int_eq(seen.outcome, 1);
        run_until(loop, &e.received, i + 1);
    }
    qwp_loop_close(loop);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

START_TEST(loop_more_operations_than_entries_complete)
{
    enum { N = 64 };
    struct qwp_loop *loop = NULL;
    const struct qwp_loop_options options = {.entries = 4, .kind = loop_kind()};
    ck_assert_int_eq(qwp_loop_open(&loop, &options, NULL), QWP_OK);
    struct seen seen = {0};
    struct qwp_op op[N];
    memset(op, 0, sizeof op);
    const int64_t now_ns = qwp_clock_monotonic_ns();
    for (int i = 0; i < N; i++) {
        op[i].fn = note;
        op[i].owner = &seen;
        qwp_loop_timer(loop, &op[i], now_ns + i * 10000);
    }
    run_until(loop, &seen.calls, N);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_connect_refused_reports_it)
{
    struct qwp_loop *loop = open_loop(false);
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    /* Bound and not listening: nobody else gets the port, and it refuses. */
    const int holder = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(holder, (struct sockaddr *)&address, sizeof address), 0);
    socklen_t len = sizeof address;
    ck_assert_int_eq(getsockname(holder, (struct sockaddr *)&address, &len), 0);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    qwp_loop_connect(loop, &op, fd, (struct sockaddr *)&address, sizeof address);
    run_until(loop, &seen.calls, 1);
    ck_assert_int_eq(seen.outcome, -ECONNREFUSED);
    close(fd);
    close(holder);
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_poll_multishot_reports_again)
{
    struct qwp_loop *loop = open_loop(false);
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    qwp_loop_poll(loop, &op, pair[0], POLLIN, true);
    for (int i = 1; i <= 3; i++) {
        ck_assert_int_eq(write(pair[1], "x", 1), 1);
        run_until(loop, &seen.calls, i);
        ck_assert(seen.more);
        ck_assert_int_ne(seen.outcome & POLLIN, 0);
        char c;
        ck_assert_int_eq(read(pair[0], &c, 1), 1);
    }
    qwp_loop_close(loop);
    ck_assert_int_eq(seen.outcome, -ECANCELED);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

static void *wake_from_thread(void *loop)
{
    qwp_loop_wake(loop);
    return NULL;
}

START_TEST(loop_wake_from_a_thread_ends_the_run)
{
    struct qwp_loop *loop = open_loop(false);
    for (int i = 0; i < 100; i++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, wake_from_thread, loop), 0);
        ck_assert(qwp_loop_run(loop, soon_ns()));
        pthread_join(thread, NULL);
    }
    ck_assert(!qwp_loop_run(loop, 0));
    qwp_loop_close(loop);
}
END_TEST

static struct qwp_loop *signalled_loop;

static void wake_from_signal(int number)
{
    (void)number;
    qwp_loop_wake(signalled_loop);
}

START_TEST(loop_wake_from_a_signal_ends_the_run)
{
    struct qwp_loop *loop = open_loop(false);
    signalled_loop = loop;
    struct sigaction action = {.sa_handler = wake_from_signal};
    ck_assert_int_eq(sigaction(SIGALRM, &action, NULL), 0);
    const struct itimerval in = {.it_value = {.tv_usec = 20000}};
    ck_assert_int_eq(setitimer(ITIMER_REAL, &in, NULL), 0);
    /* The signal may end the first wait before the wake is seen; then the second returns at once.
     */
    if (!qwp_loop_run(loop, soon_ns())) {
        ck_assert(qwp_loop_run(loop, soon_ns()));
    }
    qwp_loop_close(loop);
}
END_TEST

static void *run_in_thread(void *argument)
{
    struct echo *e = argument;
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    qwp_loop_timer(e->loop, &op, qwp_clock_monotonic_ns() + QWP_NS_PER_MS);
    const int64_t deadline_ns = soon_ns();
    while (seen.calls == 0 && qwp_clock_monotonic_ns() < deadline_ns) {
        qwp_loop_run(e->loop, deadline_ns);
    }
    e->received = seen.calls;
    qwp_loop_close(e->loop);
    return NULL;
}

START_TEST(loop_opened_here_runs_on_another_thread)
{
    struct echo e = {.loop = open_loop(false)};
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_in_thread, &e), 0);
    pthread_join(thread, NULL);
    ck_assert_int_eq(e.received, 1);
}
END_TEST

START_TEST(loop_futex_woken_by_another_process)
{
    struct qwp_loop *loop = open_loop(_i != 0);
    if (!qwp_loop_has_futex(loop)) {
        qwp_loop_close(loop);
        return; /* kernel before 6.7 */
    }
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(word, MAP_FAILED);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};

    *word = 7;
    qwp_loop_futex_wait(loop, &op, word, 6);
    run_until(loop, &seen.calls, 1);
    ck_assert_int_eq(seen.outcome, -EAGAIN);

    for (int i = 0; i < 20; i++) {
        qwp_loop_futex_wait(loop, &op, word, 7);
        qwp_loop_submit(loop);
        const pid_t child = fork();
        if (child == 0) {
            const long woken = syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
            _exit(woken == 1 ? 0 : 1);
        }
        run_until(loop, &seen.calls, i + 2);
        ck_assert_int_eq(seen.outcome, 0);
        int status;
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_int_eq(status, 0);
    }
    qwp_loop_futex_wait(loop, &op, word, 7);
    qwp_loop_cancel(loop, &op);
    run_until(loop, &seen.calls, 22);
    ck_assert_int_eq(seen.outcome, -ECANCELED);
    qwp_loop_close(loop);
    munmap(word, 4096);
}
END_TEST

static void *wait_a_while_then_wake(void *loop)
{
    const struct timespec while_ns = {.tv_nsec = 300000000};
    nanosleep(&while_ns, NULL); /* the length of the observation, not a synchronisation */
    qwp_loop_wake(loop);
    return NULL;
}

/* Parked with a receive, a futex wait and a deadline far away: one sleep, not several. */
START_TEST(loop_parked_is_not_woken_by_anything_else)
{
    struct qwp_loop *loop = open_loop(false);
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    uint32_t *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct seen seen[3] = {{0}};
    struct qwp_op recv = {.fn = note, .owner = &seen[0]};
    struct qwp_op bell = {.fn = note, .owner = &seen[1]};
    struct qwp_op timer = {.fn = note, .owner = &seen[2]};
    char buffer[8];
    qwp_loop_recv(loop, &recv, pair[0], buffer, sizeof buffer);
    if (qwp_loop_has_futex(loop)) {
        qwp_loop_futex_wait(loop, &bell, word, 0);
    }
    qwp_loop_timer(loop, &timer, soon_ns());
    qwp_loop_run(loop, 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_a_while_then_wake, loop), 0);
    struct rusage before;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &before), 0);
    ck_assert(qwp_loop_run(loop, QWP_NEVER_NS));
    struct rusage after;
    ck_assert_int_eq(getrusage(RUSAGE_THREAD, &after), 0);
    pthread_join(thread, NULL);
    ck_assert_int_le(after.ru_nvcsw - before.ru_nvcsw, 1);
    ck_assert_int_eq(seen[0].calls + seen[1].calls + seen[2].calls, 0);
    qwp_loop_close(loop);
    munmap(word, 4096);
    close(pair[0]);
    close(pair[1]);
}
END_TEST

struct chain {
    struct qwp_loop *loop;
    struct qwp_op op;
    int calls;
};

static void on_chain(struct qwp_op *op, int outcome, bool more)
{
    (void)more;
    struct chain *c = op->owner;
    ck_assert_int_eq(outcome, 0);
    c->calls++;
    if (c->calls < 3) {
        qwp_loop_soon(c->loop, op);
    }
}

/* A send that finds no room waits for it, while a receive of the same descriptor goes on. */
START_TEST(loop_send_and_receive_share_a_descriptor)
{
    enum { MESSAGE = 1 << 20 };
    struct qwp_loop *loop = open_loop(_i != 0);
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    char *bytes = calloc(1, MESSAGE);
    struct seen sent = {0};
    struct seen received = {0};
    struct qwp_op send = {.fn = note, .owner = &sent};
    struct qwp_op recv = {.fn = note, .owner = &received};
    char buffer[8];
    size_t off = 0;
    /* Until one stays in flight: the socket is full. */
    do {
        qwp_loop_send(loop, &send, pair[0], bytes + off, MESSAGE - off);
        for (int i = 0; i < 100 && send.in_flight; i++) {
            qwp_loop_run(loop, qwp_clock_monotonic_ns() + QWP_NS_PER_MS);
        }
        off += send.in_flight ? 0 : (size_t)sent.outcome;
    } while (!send.in_flight && off < MESSAGE);
    ck_assert(send.in_flight);
    const int sends = sent.calls;
    for (int i = 1; i <= 3; i++) {
        qwp_loop_recv(loop, &recv, pair[0], buffer, sizeof buffer);
        ck_assert_int_eq(write(pair[1], "x", 1), 1);
        run_until(loop, &received.calls, i);
        ck_assert_int_eq(received.outcome, 1);
    }
    ck_assert_int_eq(sent.calls, sends);
    while (off > 0) {
        const ssize_t n = read(pair[1], bytes, MESSAGE);
        ck_assert_int_gt(n, 0);
        off -= (size_t)n;
    }
    run_until(loop, &sent.calls, sends + 1);
    ck_assert_int_gt(sent.outcome, 0);

    /* The other side goes: both end. */
    qwp_loop_recv(loop, &recv, pair[0], buffer, sizeof buffer);
    close(pair[1]);
    run_until(loop, &received.calls, 4);
    qwp_loop_send(loop, &send, pair[0], bytes, 1);
    run_until(loop, &sent.calls, sends + 2);
    ck_assert_int_eq(sent.outcome, -EPIPE);
    qwp_loop_close(loop);
    free(bytes);
    close(pair[0]);
}
END_TEST

/* A number that comes back names another file, for the loop too. */
START_TEST(loop_descriptor_number_used_again_is_a_new_one)
{
    struct qwp_loop *loop = open_loop(false);
    struct seen seen = {0};
    struct qwp_op op = {.fn = note, .owner = &seen};
    char buffer[8];
    int number = -1;
    for (int i = 0; i < 50; i++) {
        int pair[2];
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        ck_assert(number == -1 || number == pair[0]);
        number = pair[0];
        qwp_loop_recv(loop, &op, pair[0], buffer, sizeof buffer);
        if (i % 3 == 0) {
            qwp_loop_run(loop, 0);
        }
        if (i % 2 == 0) {
            ck_assert_int_eq(write(pair[1], "x", 1), 1);
        } else {
            qwp_loop_cancel(loop, &op);
        }
        run_until(loop, &seen.calls, i + 1);
        ck_assert_int_eq(seen.outcome, i % 2 == 0 ? 1 : -ECANCELED);
        close(pair[0]);
        close(pair[1]);
    }
    qwp_loop_close(loop);
}
END_TEST

/* Each operation that the loop needs, hidden, leads to epoll with a reason; a missing futex wait
 * does not: its owner asks for that. */
START_TEST(loop_without_an_operation_falls_back_and_says_why)
{
    static const char *const names[] = {"recv", "send",           "connect",     "poll",
                                        "read", "timeout",        "cancel",      "timeout-remove",
                                        "all",  "poll-multishot", "wait-timeout"};
    struct qwp_loop *loop = NULL;
    struct qwp_error err;
    struct qwp_loop_options options = {.kind = QWP_LOOP_AUTO};
    ck_assert_int_eq(qwp_loop_open(&loop, &options, &err), QWP_OK);
    const bool has_uring = qwp_loop_kind(loop) == QWP_LOOP_URING;
    ck_assert_int_eq(err.text[0] != '\0', !has_uring);
    qwp_loop_close(loop);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char list[64];
        (void)snprintf(list, sizeof list, "nothing,%s,futex", names[i]);
        options = (struct qwp_loop_options){.kind = QWP_LOOP_AUTO, .uring_without = list};
        ck_assert_int_eq(qwp_loop_open(&loop, &options, &err), QWP_OK);
        ck_assert_int_eq(qwp_loop_kind(loop), QWP_LOOP_EPOLL);
        ck_assert(!qwp_loop_has_futex(loop));
        ck_assert_ptr_ne(strstr(err.text, "io_uring"), NULL);
        ck_assert(!has_uring || i >= 8 || strstr(err.text, names[i]) != NULL);
        qwp_loop_close(loop);
        options.kind = QWP_LOOP_URING;
        ck_assert_int_ne(qwp_loop_open(&loop, &options, &err), QWP_OK);
    }
    options = (struct qwp_loop_options){.kind = QWP_LOOP_AUTO, .uring_without = "futex"};
    ck_assert_int_eq(qwp_loop_open(&loop, &options, &err), QWP_OK);
    ck_assert_int_eq(qwp_loop_kind(loop), has_uring ? QWP_LOOP_URING : QWP_LOOP_EPOLL);
    ck_assert(!qwp_loop_has_futex(loop));
    qwp_loop_close(loop);
}
END_TEST

START_TEST(loop_soon_runs_before_the_submission)
{
    struct qwp_loop *loop = open_loop(false);
    struct chain c = {.loop = loop};
    c.op.fn = on_chain;
    c.op.owner = &c;
    qwp_loop_soon(loop, &c.op);
    ck_assert_int_eq(c.calls, 0);
    qwp_loop_submit(loop);
    ck_assert_int_eq(c.calls, 3);
    ck_assert(!c.op.in_flight);
    qwp_loop_close(loop);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("loop");
    TCase *tc = tcase_create("loop");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_test(tc, loop_timer_fires_not_before_its_time);
    tcase_add_test(tc, loop_timer_moved_fires_once_at_the_new_time);
    tcase_add_test(tc, loop_receive_now_never_waits);
    tcase_add_test(tc, loop_run_until_a_deadline_returns_again);
    tcase_add_loop_test(tc, loop_cancel_completes_each_kind_once, 0, 2);
    tcase_add_test(tc, loop_cancelled_before_submission_still_completes);
    tcase_add_test(tc, loop_close_completes_what_is_in_flight);
    tcase_add_loop_test(tc, loop_restarted_from_its_callback_goes_on, 0, 2);
    tcase_add_test(tc, loop_more_operations_than_entries_complete);
    tcase_add_test(tc, loop_connect_refused_reports_it);
    tcase_add_test(tc, loop_poll_multishot_reports_again);
    tcase_add_test(tc, loop_wake_from_a_thread_ends_the_run);
    tcase_add_test(tc, loop_wake_from_a_signal_ends_the_run);
    tcase_add_test(tc, loop_opened_here_runs_on_another_thread);
    tcase_add_loop_test(tc, loop_futex_woken_by_another_process, 0, 2);
    tcase_add_test(tc, loop_parked_is_not_woken_by_anything_else);
    tcase_add_test(tc, loop_soon_runs_before_the_submission);
    tcase_add_loop_test(tc, loop_send_and_receive_share_a_descriptor, 0, 2);
    tcase_add_test(tc, loop_descriptor_number_used_again_is_a_new_one);
    tcase_add_test(tc, loop_without_an_operation_falls_back_and_says_why);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

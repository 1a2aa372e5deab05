/* Question: how long do the same bytes take without us?
 *
 * "write": one process stamps and writes a message to a loopback TCP socket, another reads it
 * behind epoll. "chain": the first only stamps it into shared memory and wakes a second one by
 * futex, which writes it; "spin": the second looks without pause instead of sleeping. So "chain" is
 * what any sidecar must pay, "write" what any client must. With --echo the other end answers each
 * message with ANSWER_BYTES, and times go until the first process knows: by the answer itself, or
 * through a third process that reads it and wakes the first by futex.
 * Nagle is off, times are those of one monotonic clock.
 *
 * Guess made beforehand, on two quiet cores at 1,000 a second: write p50 29 us, chain p50 55 us;
 * with
 * --echo 60 and 110.
 *
 *   bench_chain [--smoke] [--way write|chain|spin] [--echo] [--rate N] [--count N] [--bytes N]
 *
 * --rate 0: each one when the last is answered. Prints one JSON object. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <linux/futex.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_histogram.h"

enum { BYTES_MAX = 65536, ANSWER_BYTES = 13, SLOTS = 1 << 20 };

enum way { WAY_WRITE, WAY_CHAIN, WAY_SPIN };

static const char *const way_names[] = {"write", "chain", "spin"};

struct options {
    enum way way;
    bool echo;
    uint64_t rate, count, bytes;
};

/* Shared by the writer and its relays. */
struct shared {
    /* writer: the one that stamps. reader: relay. sync[chain.produced]: stamps below are there. */
    alignas(128) _Atomic uint32_t produced; /* futex word */
    /* writer: the relay of answers. reader: the one that stamps. */
    alignas(128) _Atomic uint32_t answered; /* futex word */
    int64_t stamps_ns[SLOTS];
    int64_t gave_ns;              /* how long stamping took */
    int64_t relayed_ns;           /* CPU time of the one that is woken */
    struct qwp_histogram answers; /* --echo: written by the one that stamps */
};

static void die(const char *what)
{
    fprintf(stderr, "bench_chain: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int listen_any(struct sockaddr_in *address)
{
    socklen_t len = sizeof *address;
    *address =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)address, sizeof *address) != 0 ||
        listen(fd, 1) != 0 || getsockname(fd, (struct sockaddr *)address, &len) != 0) {
        die("listen");
    }
    return fd;
}

static int connect_to(const struct sockaddr_in *address)
{
    const int on = 1;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)address, sizeof *address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        die("connect");
    }
    return fd;
}

static void send_stamp(int fd, int64_t stamp_ns, size_t bytes)
{
    static char message[BYTES_MAX];
    memcpy(message, &stamp_ns, sizeof stamp_ns);
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(fd, message + done, bytes - done, MSG_NOSIGNAL);
        if (n < 0) {
            die("send");
        }
        done += (size_t)n;
    }
}

static void sleep_until(int64_t ns)
{
    const struct timespec at = {.tv_sec = ns / QWP_NS_PER_S, .tv_nsec = ns % QWP_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void futex_wait(_Atomic uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    const struct timespec timeout = {.tv_sec = timeout_ns / QWP_NS_PER_S,
                                     .tv_nsec = timeout_ns % QWP_NS_PER_S};
    syscall(SYS_futex, word, FUTEX_WAIT, value, timeout_ns < 0 ? NULL : &timeout, NULL, 0);
}

/* Sends what was stamped, sleeping or spinning between; ends with its parent or when all are
 * sent. */
static void relay(struct shared *shared, int fd, const struct options *o)
{
    uint32_t sent = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (sent < o->count) {
        /* sync[chain.produced] acquire */
        const uint32_t produced = atomic_load_explicit(&shared->produced, memory_order_acquire);
        if (produced == sent) {
            if (o->way == WAY_CHAIN) {
                futex_wait(&shared->produced, produced, -1);
            }
            continue;
        }
        for (; sent != produced; sent++) {
            send_stamp(fd, shared->stamps_ns[sent % SLOTS], o->bytes);
        }
    }
    shared->relayed_ns = qwp_clock_read_ns(CLOCK_PROCESS_CPUTIME_ID);
    exit(0);
}

/* Reads answers and tells the one that stamps. */
static void relay_answers(struct shared *shared, int fd, const struct options *o)
{
    static char buffer[BYTES_MAX];
    uint64_t bytes = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (bytes / ANSWER_BYTES < o->count) {
        const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
        if (n <= 0) {
            die("recv an answer");
        }
        bytes += (size_t)n;
        atomic_store_explicit(&shared->answered, (uint32_t)(bytes / ANSWER_BYTES),
                              memory_order_release);
        syscall(SYS_futex, &shared->answered, FUTEX_WAKE, 1, NULL, NULL, 0);
    }
    exit(0);
}

/* Notes every answer that comes until then; returns how many there were in all. */
static uint32_t take_answers(struct shared *shared, uint32_t taken, uint32_t produced,
                             int64_t until_ns)
{
    while (taken != produced) {
        const uint32_t answered = atomic_load_explicit(&shared->answered, memory_order_acquire);
        const int64_t now_ns = qwp_clock_monotonic_ns();
        if (answered != taken) {
            qwp_histogram_add(&shared->answers, now_ns - shared->stamps_ns[taken % SLOTS]);
            taken++;
        } else if (now_ns >= until_ns) {
            break;
        } else {
            futex_wait(&shared->answered, answered, until_ns - now_ns);
        }
    }
    return taken;
}

static void write_all(struct shared *shared, int fd, const struct options *o)
{
    const int64_t start_ns = qwp_clock_monotonic_ns();
    uint32_t taken = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    for (uint32_t i = 0; i < o->count; i++) {
        const int64_t due_ns =
            o->rate > 0 ? start_ns + (int64_t)(i * (uint64_t)QWP_NS_PER_S / o->rate) : INT64_MAX;
        if (o->echo) {
            taken = take_answers(shared, taken, i, due_ns);
        }
        if (o->rate > 0) {
            sleep_until(due_ns);
        }
        const int64_t stamp_ns = qwp_clock_monotonic_ns();
        shared->stamps_ns[i % SLOTS] = stamp_ns;
        if (o->way == WAY_WRITE) {
            send_stamp(fd, stamp_ns, o->bytes);
            continue;
        }
        atomic_store_explicit(&shared->produced, i + 1, memory_order_release);
        if (o->way == WAY_CHAIN) {
            syscall(SYS_futex, &shared->produced, FUTEX_WAKE, 1, NULL, NULL, 0);
        }
    }
    shared->gave_ns = qwp_clock_monotonic_ns() - start_ns;
    if (o->echo) {
        take_answers(shared, taken, (uint32_t)o->count, INT64_MAX);
    }
    exit(0);
}

static void answer(int fd, uint64_t count)
{
    static const char answers[BYTES_MAX];
    for (uint64_t left = count * ANSWER_BYTES; left > 0;) {
        const ssize_t n = send(fd, answers, left < BYTES_MAX ? left : BYTES_MAX, MSG_NOSIGNAL);
        if (n < 0) {
            die("answer");
        }
        left -= (size_t)n;
    }
}

static void receive(int fd, const struct options *o, struct qwp_histogram *histogram)
{
    static char buffer[BYTES_MAX];
    size_t have = 0;
    const int poll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    if (poll_fd < 0 || epoll_ctl(poll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        die("epoll");
    }
    while (histogram->count < o->count) {
        if (epoll_wait(poll_fd, &event, 1, -1) < 0) {
            die("epoll_wait");
        }
        const ssize_t n = recv(fd, buffer + have, sizeof buffer - have, 0);
        if (n <= 0) {
            die("recv");
        }
        const int64_t now_ns = qwp_clock_monotonic_ns();
        have += (size_t)n;
        size_t at = 0;
        for (; have - at >= o->bytes; at += o->bytes) {
            int64_t stamp_ns;
            memcpy(&stamp_ns, buffer + at, sizeof stamp_ns);
            qwp_histogram_add(histogram, now_ns - stamp_ns);
        }
        if (o->echo) {
            answer(fd, at / o->bytes);
        }
        memmove(buffer, buffer + at, have - at);
        have -= at;
    }
    close(poll_fd);
}

/* "busy": the share of a core that the one between takes; of "write" 0. */
static void print(const struct options *o, const struct qwp_histogram *histogram,
                  const struct shared *shared)
{
    const double gave_ns = (double)shared->gave_ns;
    if (histogram->count != o->count) {
        die("some messages have no time");
    }
    printf("{\"way\":\"%s\",\"rate\":%.0f,\"bytes\":%llu,\"count\":%llu,\"p50\":%lld,"
           "\"p90\":%lld,\"p99\":%lld,\"p999\":%lld,\"max\":%lld,\"busy\":%.4f}\n",
           way_names[o->way], (double)o->count * 1e9 / gave_ns, (unsigned long long)o->bytes,
           (unsigned long long)histogram->count, (long long)qwp_histogram_quantile(histogram, 0.5),
           (long long)qwp_histogram_quantile(histogram, 0.9),
           (long long)qwp_histogram_quantile(histogram, 0.99),
           (long long)qwp_histogram_quantile(histogram, 0.999), (long long)histogram->max_ns,
           (double)shared->relayed_ns / gave_ns);
}

static void run(const struct options *o)
{
    static struct qwp_histogram histogram;
    struct sockaddr_in address;
    struct shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        die("mmap");
    }
    const int listener = listen_any(&address);
    const int fd = connect_to(&address);
    const int peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (peer < 0) {
        die("accept");
    }
    const int on = 1;
    if (setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
        die("TCP_NODELAY");
    }
    if (o->way != WAY_WRITE && fork() == 0) {
        relay(shared, fd, o);
    }
    if (o->echo && fork() == 0) {
        relay_answers(shared, fd, o);
    }
    if (fork() == 0) {
        write_all(shared, fd, o);
    }
    close(fd);
    receive(peer, o, &histogram);
    while (wait(NULL) > 0) {
    }
    print(o, o->echo ? &shared->answers : &histogram, shared);
    munmap(shared, sizeof *shared);
    close(peer);
    close(listener);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"way", required_argument, NULL, 'w'},
                                                 {"rate", required_argument, NULL, 'r'},
                                                 {"count", required_argument, NULL, 'c'},
                                                 {"bytes", required_argument, NULL, 'b'},
                                                 {"echo", no_argument, NULL, 'e'},
                                                 {"smoke", no_argument, NULL, 's'},
                                                 {NULL, 0, NULL, 0}};
    struct options o = {.way = WAY_CHAIN, .rate = 1000, .count = 5000, .bytes = 105};
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (id) {
        case 'w':
            o.way = strcmp(optarg, "write") == 0  ? WAY_WRITE
                    : strcmp(optarg, "spin") == 0 ? WAY_SPIN
                                                  : WAY_CHAIN;
            break;
        case 'e':
            o.echo = true;
            break;
        case 'r':
            o.rate = strtoull(optarg, NULL, 10);
            break;
        case 'c':
            o.count = strtoull(optarg, NULL, 10);
            break;
        case 'b':
            o.bytes = strtoull(optarg, NULL, 10);
            break;
        case 's':
            o.rate = 10000;
            o.count = 200;
            break;
        default:
            return 2;
        }
    }
    if ((o.rate == 0 && !o.echo) || o.count == 0 || o.count > UINT32_MAX ||
        o.bytes < sizeof(int64_t) || o.bytes > BYTES_MAX) {
        fprintf(
            stderr,
            "bench_chain: --rate from 1 (with --echo 0), --count from 1, --bytes from 8 to %d\n",
            BYTES_MAX);
        return 2;
    }
    run(&o);
    return 0;
}

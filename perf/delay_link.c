/* A link with a delay, for machines whose kernel has no netem: what goes in comes out later.
 *
 *   delay_link --delay-us N
 *
 * Makes the device `delay0` (10.9.0.1/24, MTU 9,000) in the network namespace it runs in, prints
 * "ready", and delays each packet by N us. Who connects to 10.9.0.2 reaches whoever listens at
 * 10.9.0.1, on the same machine, through the delay, both ways: source and destination of each
 * packet are exchanged, which leaves every checksum as it was. Ends when stdin ends.
 *
 * The kernel's TCP sees a true round trip, so windows and buffers count as they do on a long
 * line. The MTU is a jumbo frame's and not lo's: a receiver starts with a window of 64 KiB, and
 * where that holds a single packet its growth may stand still (at an MTU of 65,000 and 100 ms, one
 * packet a round trip for seconds: 0.8 MB/s). */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "core/qwp_clock.h"

enum {
    PACKET_BYTES_MAX = 65536,
    PACKETS_MAX = 1 << 16,
    IPV4_SOURCE_OFF = 12,
    IPV4_ADDRESS_BYTES = 4,
    IPV4_HEADER_BYTES = 20,
};
#define QUEUE_BYTES_MAX ((size_t)512 * 1024 * 1024)

struct packet {
    int64_t due_ns;
    size_t len;
    unsigned char *bytes;
};

struct link {
    int fd;
    int64_t delay_ns;
    struct packet queue[PACKETS_MAX]; /* a ring, in the order of their time */
    uint64_t head, tail;
    size_t queued_bytes;
    uint64_t dropped;
};

static void die(const char *what)
{
    fprintf(stderr, "delay_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int device_open(void)
{
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    strcpy(request.ifr_name, "delay0");
    const int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || ioctl(fd, TUNSETIFF, &request) != 0) {
        die("/dev/net/tun");
    }
    if (system("ip link set lo up && ip address add 10.9.0.1/24 dev delay0 && "
               "ip link set delay0 mtu 9000 txqueuelen 10000 up") != 0) {
        die("ip");
    }
    return fd;
}

static void exchange_addresses(unsigned char *packet)
{
    unsigned char source[IPV4_ADDRESS_BYTES];
    unsigned char *at = packet + IPV4_SOURCE_OFF;
    memcpy(source, at, sizeof source);
    memmove(at, at + IPV4_ADDRESS_BYTES, IPV4_ADDRESS_BYTES);
    memcpy(at + IPV4_ADDRESS_BYTES, source, sizeof source);
}

static void take(struct link *link, const unsigned char *bytes, size_t len)
{
    if (len < IPV4_HEADER_BYTES || bytes[0] >> 4 != 4) {
        return;
    }
    unsigned char *copy = malloc(len);
    if (copy == NULL || link->tail - link->head == PACKETS_MAX ||
        link->queued_bytes + len > QUEUE_BYTES_MAX) {
        link->dropped++;
        free(copy);
        return;
    }
    memcpy(copy, bytes, len);
    exchange_addresses(copy);
    link->queue[link->tail++ % PACKETS_MAX] =
        (struct packet){qwp_clock_monotonic_ns() + link->delay_ns, len, copy};
    link->queued_bytes += len;
}

static void take_all(struct link *link)
{
    static unsigned char bytes[PACKET_BYTES_MAX];
    ssize_t len;
    while ((len = read(link->fd, bytes, sizeof bytes)) > 0) {
        take(link, bytes, (size_t)len);
    }
}

/* Gives what is due. Returns when the next packet is. */
static int64_t give_due(struct link *link)
{
    while (link->head != link->tail) {
        struct packet *packet = &link->queue[link->head % PACKETS_MAX];
        if (packet->due_ns > qwp_clock_monotonic_ns()) {
            return packet->due_ns;
        }
        if (write(link->fd, packet->bytes, packet->len) < 0) {
            link->dropped++;
        }
        free(packet->bytes);
        link->queued_bytes -= packet->len;
        link->head++;
    }
    return QWP_NEVER_NS;
}

static void run(struct link *link)
{
    for (;;) {
        const int64_t due_ns = give_due(link);
        struct pollfd polled[] = {{.fd = link->fd, .events = POLLIN},
                                  {.fd = STDIN_FILENO, .events = POLLIN}};
        const int64_t left_ns = due_ns == QWP_NEVER_NS ? 0 : due_ns - qwp_clock_monotonic_ns();
        const struct timespec wait = {.tv_nsec = left_ns > 0 ? left_ns : 0};
        if (ppoll(polled, 2, due_ns == QWP_NEVER_NS ? NULL : &wait, NULL) < 0 && errno != EINTR) {
            die("poll");
        }
        if (polled[1].revents != 0) {
            return;
        }
        take_all(link);
    }
}

int main(int argc, char **argv)
{
    static struct link link;
    if (argc != 3 || strcmp(argv[1], "--delay-us") != 0) {
        fputs("usage: delay_link --delay-us N\n", stderr);
        return 2;
    }
    link.delay_ns = atol(argv[2]) * (int64_t)QWP_NS_PER_US;
    if (link.delay_ns < 0 || link.delay_ns >= (int64_t)QWP_NS_PER_S) {
        fputs("delay_link: the delay is below a second\n", stderr);
        return 2;
    }
    link.fd = device_open();
    puts("ready");
    fflush(stdout);
    run(&link);
    printf("%llu packets dropped\n", (unsigned long long)link.dropped);
    return 0;
}

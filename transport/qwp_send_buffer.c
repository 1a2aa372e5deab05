#include "transport/qwp_send_buffer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>

static bool set_option(int fd, int level, int name, int value)
{
    return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

/* The last number in a file of the kernel's; 0 when it is not to be had. */
static long kernel_number(const char *path)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return 0;
    }
    long number = 0;
    while (fscanf(file, "%ld", &number) == 1) {
    }
    fclose(file);
    return number;
}

/* A size that is set is fixed: worse than what grows by itself unless it may be larger. */
static bool set_beats_growing(void)
{
    return 2 * kernel_number("/proc/sys/net/core/wmem_max") >
           kernel_number("/proc/sys/net/ipv4/tcp_wmem");
}

void qwp_send_buffer_grow(int fd)
{
    if (!set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, QWP_SEND_BUFFER_BYTES) && set_beats_growing()) {
        (void)set_option(fd, SOL_SOCKET, SO_SNDBUF, QWP_SEND_BUFFER_BYTES);
    }
    (void)set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, QWP_SEND_UNSENT_BYTES);
}

/* qwp_send_buffer: room in the kernel for what is in flight on a long line.
 *
 * What is not acknowledged by the peer's kernel lies in the socket's send buffer. Left alone Linux
 * lets it grow to tcp_wmem's bound, 4 MiB as a rule, a good third of which is overhead: with 100 ms
 * of round trip that is less than 30 MB/s [measured: perf/bench_roundtrip.py]. Only a process with
 * CAP_NET_ADMIN may ask for more than net.core.wmem_max; others get more where that is set higher
 * than tcp_wmem.
 *
 * A large buffer would also let bytes pile up in front of a slow line, where they delay pings; so
 * what has not been sent at all stays bounded. */
#ifndef QWP_SEND_BUFFER_H
#define QWP_SEND_BUFFER_H

enum {
    QWP_SEND_BUFFER_BYTES = 32 * 1024 * 1024, /* the kernel takes twice that, for its overhead */
    QWP_SEND_UNSENT_BYTES = 4 * 1024 * 1024,
};

/* Before or after connecting. Whatever cannot be had is left as it is. */
void qwp_send_buffer_grow(int fd);

#endif

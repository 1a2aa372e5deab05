/* Aim: wherever a connection is cut, in either direction, there is one down(), nothing acknowledged
 * that was not, and the next connection works.
 * Method: a relay between client and server forwards so many bytes of one direction and then ends
 * the connection, by FIN or by reset; every offset of a whole session plain, many of a TLS one. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/transport/client.h"

struct relay {
    uint16_t port;
    uint16_t peer_port;
    _Atomic long limit; /* bytes of the direction that is cut; < 0: no cut */
    _Atomic bool cut_to_client;
    _Atomic bool reset;
    _Atomic long passed[2]; /* of the last connection: to server, to client */
    _Atomic int done;       /* connections that are over */
    _Atomic bool stopping;
    int listen_fd;
    pthread_t thread;
};

static int connect_to(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* False: this direction is over, by its end or by the cut. */
static bool forward(struct relay *relay, int from, int to, int direction, bool *cut)
{
    char buffer[4096];
    size_t want = sizeof buffer;
    const bool limited = relay->limit >= 0 && direction == (relay->cut_to_client ? 1 : 0);
    if (limited) {
        const long left = relay->limit - relay->passed[direction];
        want = left < (long)want ? (size_t)left : want;
    }
    const ssize_t n = recv(from, buffer, want, 0);
    if (n <= 0) {
        shutdown(to, SHUT_WR);
        return false;
    }
    (void)!send(to, buffer, (size_t)n, MSG_NOSIGNAL);
    relay->passed[direction] += n;
    *cut = limited && relay->passed[direction] >= relay->limit;
    return !*cut;
}

static void carry(struct relay *relay, int client_fd, int server_fd)
{
    struct pollfd fds[2] = {{.fd = client_fd, .events = POLLIN},
                            {.fd = server_fd, .events = POLLIN}};
    relay->passed[0] = relay->passed[1] = 0;
    bool cut = relay->limit == 0;
    while (!cut && !relay->stopping && (fds[0].fd >= 0 || fds[1].fd >= 0)) {
        if (poll(fds, 2, 100) < 0) {
            break;
        }
        if (fds[0].revents != 0 && !forward(relay, client_fd, server_fd, 0, &cut)) {
            fds[0].fd = -1;
        }
        if (!cut && fds[1].revents != 0 && !forward(relay, server_fd, client_fd, 1, &cut)) {
            fds[1].fd = -1;
        }
        fds[0].revents = fds[1].revents = 0;
    }
    if (relay->reset) {
        const struct linger linger = {.l_onoff = 1};
        setsockopt(client_fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    }
}

static void *run_relay(void *argument)
{
    struct relay *relay = argument;
    while (!relay->stopping) {
        const int client_fd = accept4(relay->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (client_fd < 0) {
            break;
        }
        const int server_fd = connect_to(relay->peer_port);
        if (server_fd >= 0) {
            carry(relay, client_fd, server_fd);
            close(server_fd);
        }
        close(client_fd);
        relay->done++;
    }
    return NULL;
}

static void relay_start(struct relay *relay, const struct peer *peer)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    relay->peer_port = peer->port;
    relay->limit = -1;
    relay->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(relay->listen_fd, (struct sockaddr *)&address, len), 0);
    ck_assert_int_eq(listen(relay->listen_fd, 16), 0);
    ck_assert_int_eq(getsockname(relay->listen_fd, (struct sockaddr *)&address, &len), 0);
    relay->port = ntohs(address.sin_port);
    ck_assert_int_eq(pthread_create(&relay->thread, NULL, run_relay, relay), 0);
}

static void relay_stop(struct relay *relay)
{
    relay->stopping = true;
    shutdown(relay->listen_fd, SHUT_RDWR);
    pthread_join(relay->thread, NULL);
    close(relay->listen_fd);
}

/* Two messages, an answer to each, a ping, a close. */
static void script_session(struct peer *peer)
{
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    if (!peer_upgrade(peer)) {
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (!peer_read_frame(peer, &opcode, payload, sizeof payload, &len) ||
            !peer_send_ok(peer, i)) {
            return;
        }
    }
    peer_send_frame(peer, 0x89, "ping", 4);
    peer_read_frame(peer, &opcode, payload, sizeof payload, &len);
    peer_send_frame(peer, 0x88, "\x03\xe8", 2);
    peer_drain(peer);
    peer_end(peer);
}

/* One connection to its down(). */
static void run_once(struct client *c, struct relay *relay)
{
    const int before = c->downs;
    const int done = relay->done;
    c->ok_sequence = -1;
    client_connect(c);
    RUN_UNTIL(c, c->downs > before);
    ck_assert_int_eq(c->downs, before + 1);
    /* The relay must be through before its limit is changed. */
    RUN_UNTIL(c, relay->done > done || !qwp_loop_run(c->loop, qwp_clock_monotonic_ns() + 1000000));
    while (relay->done == done) {
        usleep(100);
    }
}

static void sweep(int mode, bool to_client, bool reset, long step)
{
    struct peer peer = {.script = script_session};
    peer_mode(&peer, mode);
    peer_start(&peer);
    struct relay relay = {0};
    relay_start(&relay, &peer);
    struct peer front = {.port = relay.port, .tls = peer.tls};
    struct client c = {.then = client_send_two};
    client_open(&c, &front);
    run_once(&c, &relay);
    ck_assert_int_eq(c.down.cause, QWP_DOWN_CLOSED);
    ck_assert_int_eq(c.down.close_code, 1000);
    ck_assert_int_eq(c.ok_sequence, 1);
    const long total = relay.passed[to_client ? 1 : 0];
    ck_assert_int_gt(total, 100);
    relay.cut_to_client = to_client;
    relay.reset = reset;
    for (long at = 0; at < total; at += step) {
        relay.limit = at;
        run_once(&c, &relay);
        ck_assert_int_ne(c.down.cause, QWP_DOWN_LOCAL);
        ck_assert_int_ne(c.down.cause, QWP_DOWN_PROTOCOL);
        ck_assert_int_ne(c.down.cause, QWP_DOWN_TIMEOUT);
    }
    relay.limit = -1;
    relay.reset = false;
    run_once(&c, &relay);
    ck_assert_int_eq(c.ok_sequence, 1);
    ck_assert_int_eq(c.down.close_code, 1000);
    client_close(&c);
    relay_stop(&relay);
    ck_assert_ptr_null(peer_stop(&peer));
}

START_TEST(session_cut_at_each_offset_goes_down_once)
{
    static const long steps[MODES] = {1, 11, 11};
    sweep(_i % MODES, _i / MODES % 2 == 0, _i / MODES / 2 == 1, steps[_i % MODES]);
}
END_TEST

int main(void)
{
    client_make_certificates();
    Suite *suite = suite_create("session_cuts");
    TCase *tc = tcase_create("session_cuts");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, session_cut_at_each_offset_goes_down_once, 0, 4 * MODES);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

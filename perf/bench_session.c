/* Question: what does the way from a message in memory to the socket cost the sender, plain and
 * with TLS, and how long does one small message take to the peer and its answer back?
 *
 * Guess made before: masking 0.1 ns a byte (memory speed), AES-128-GCM 0.25 ns, the loopback socket
 * 0.1-0.2 ns; so plain 4 GB/s and TLS 2 GB/s of the sender's CPU. A round trip of one message costs
 * two wake-ups, 20-30 us on a virtual machine.
 *
 * Method: a session on a parked loop against a thread that reads (and with TLS decrypts) and
 * answers every eighth message, or MiB. CPU is that of the client's thread. A and B (plain, TLS)
 * alternate.
 *
 *   bench_session [--smoke] [--repeats N] [--json FILE] */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "perf/bench_json.h"
#include "transport/qwp_session.h"

enum { REPEATS_MAX = 21, MESSAGE_MAX = 1 << 20, ANSWER_EVERY = 8, ANSWER_BYTES = 1 << 20 };

struct server {
    int listen_fd;
    uint16_t port;
    SSL_CTX *context; /* NULL: plain */
    size_t message_bytes;
    uint64_t messages;
    pthread_t thread;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_session: %s\n", what);
    exit(1);
}

static SSL_CTX *make_context(void)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (SSL_CTX_use_certificate(context, cert) != 1 || SSL_CTX_use_PrivateKey(context, key) != 1) {
        die("certificate");
    }
    X509_free(cert);
    EVP_PKEY_free(key);
    return context;
}

static size_t read_some(int fd, SSL *ssl, char *buffer, size_t cap)
{
    if (ssl != NULL) {
        const int n = SSL_read(ssl, buffer, (int)cap);
        return n > 0 ? (size_t)n : 0;
    }
    const ssize_t n = recv(fd, buffer, cap, 0);
    return n > 0 ? (size_t)n : 0;
}

static void write_all(int fd, SSL *ssl, const void *bytes, size_t len)
{
    if (ssl != NULL) {
        SSL_write(ssl, bytes, (int)len);
    } else {
        (void)!send(fd, bytes, len, MSG_NOSIGNAL);
    }
}

static void answer_upgrade(int fd, SSL *ssl)
{
    char request[4096];
    size_t len = 0;
    while (len < 4 || memcmp(request + len - 4, "\r\n\r\n", 4) != 0) {
        const size_t n = read_some(fd, ssl, request + len, 1);
        if (n == 0 || len + 2 > sizeof request) {
            die("upgrade");
        }
        len += n;
        request[len] = '\0';
    }
    const char *key = strstr(request, "Sec-WebSocket-Key: ");
    char salted[128];
    snprintf(salted, sizeof salted, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key + 19);
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_Digest(salted, strlen(salted), digest, NULL, EVP_sha1(), NULL);
    unsigned char accept[64];
    EVP_EncodeBlock(accept, digest, 20);
    char answer[512];
    const int n = snprintf(answer, sizeof answer,
                           "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                           "X-QWP-Version: 1\r\nX-QWP-Max-Batch-Size: 16777216\r\n\r\n",
                           accept);
    write_all(fd, ssl, answer, (size_t)n);
}

static size_t frame_overhead(size_t len)
{
    return len < 126 ? 6 : len < 65536 ? 8 : 14;
}

/* Counts bytes, and so messages, which are all of one size: the peer must not be the bottleneck. */
static void *serve(void *argument)
{
    struct server *server = argument;
    static char buffer[1 << 20];
    const int fd = accept(server->listen_fd, NULL, NULL);
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    SSL *ssl = NULL;
    if (server->context != NULL) {
        ssl = SSL_new(server->context);
        SSL_set_fd(ssl, fd);
        if (SSL_accept(ssl) != 1) {
            die("handshake");
        }
    }
    answer_upgrade(fd, ssl);
    const size_t frame = server->message_bytes + frame_overhead(server->message_bytes);
    uint64_t bytes = 0;
    uint64_t answered = 0;
    size_t n;
    while ((n = read_some(fd, ssl, buffer, sizeof buffer)) > 0) {
        bytes += n;
        const uint64_t have = bytes / frame;
        if ((have - answered) * server->message_bytes >= ANSWER_BYTES ||
            have >= answered + ANSWER_EVERY || (have == server->messages && have > answered)) {
            unsigned char ok[13] = {0x82, 11};
            const int64_t sequence = (int64_t)have - 1;
            memcpy(ok + 3, &sequence, 8);
            write_all(fd, ssl, ok, sizeof ok);
            answered = have;
        }
    }
    SSL_free(ssl);
    close(fd);
    return NULL;
}

struct owner {
    bool up;
    bool down;
    int64_t acked;
    char text[512];
};

static void on_up(void *owner, size_t message_bytes_max)
{
    (void)message_bytes_max;
    ((struct owner *)owner)->up = true;
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    ((struct owner *)owner)->down = true;
    snprintf(((struct owner *)owner)->text, 512, "%s", down->error.text);
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
    ((struct owner *)owner)->acked = sequence;
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    (void)owner;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    (void)owner;
    (void)sequence;
    (void)status;
    (void)text;
    (void)len;
}

static void on_writable(void *owner)
{
    (void)owner;
}

static const struct qwp_session_callbacks callbacks = {.up = on_up,
                                                       .down = on_down,
                                                       .ok = on_ok,
                                                       .durable = on_durable,
                                                       .rejected = on_rejected,
                                                       .writable = on_writable};

static int64_t thread_cpu_ns(void)
{
    return qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

struct result {
    double gb_per_s;
    double cpu_ns_per_byte;
    double cpu_ns_per_message;
    double p50_us;
    double p99_us;
};

struct bench {
    struct server server;
    struct qwp_loop *loop;
    struct qwp_session *session;
    struct qwp_session_options options;
    struct owner owner;
};

static void start(struct bench *b, SSL_CTX *context, size_t message_bytes, uint64_t messages)
{
    memset(b, 0, sizeof *b);
    b->server.context = context;
    b->server.message_bytes = message_bytes;
    b->server.messages = messages;
    b->owner.acked = -1;
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    b->server.listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(b->server.listen_fd, (struct sockaddr *)&address, len) != 0 ||
        listen(b->server.listen_fd, 1) != 0 ||
        getsockname(b->server.listen_fd, (struct sockaddr *)&address, &len) != 0 ||
        pthread_create(&b->server.thread, NULL, serve, &b->server) != 0) {
        die("server");
    }
    struct qwp_error err;
    const struct qwp_loop_options loop_options = {0};
    b->options = (struct qwp_session_options){
        .callbacks = &callbacks,
        .owner = &b->owner,
        .client_id = "bench/1",
        .tls = context != NULL,
        .ping_idle_ns = (int64_t)25 * QWP_NS_PER_S,
        .ping_waiting_ns = (int64_t)5 * QWP_NS_PER_S,
        .dead_after_ns = (int64_t)15 * QWP_NS_PER_S,
    };
    if (qwp_loop_open(&b->loop, &loop_options, &err) != QWP_OK) {
        die(err.text);
    }
    b->options.loop = b->loop;
    if (qwp_session_open(&b->session, &b->options, &err) != QWP_OK ||
        qwp_session_connect(b->session, (struct sockaddr *)&address, len, "localhost",
                            ntohs(address.sin_port), &err) != QWP_OK) {
        die(err.text);
    }
    while (!b->owner.up) {
        if (b->owner.down) {
            die(b->owner.text);
        }
        qwp_loop_run(b->loop, QWP_NEVER_NS);
    }
}

static void stop(struct bench *b)
{
    qwp_session_close(b->session);
    qwp_loop_close(b->loop);
    pthread_join(b->server.thread, NULL);
    close(b->server.listen_fd);
}

static struct result run_stream(SSL_CTX *context, const unsigned char *message,
                                size_t message_bytes, uint64_t total_bytes)
{
    const uint64_t messages = total_bytes / message_bytes;
    struct bench b;
    start(&b, context, message_bytes, messages);
    const int64_t wall_ns = qwp_clock_monotonic_ns();
    const int64_t cpu_ns = thread_cpu_ns();
    uint64_t given = 0;
    while (b.owner.acked != (int64_t)messages - 1 && !b.owner.down) {
        int64_t sequence;
        /* A window of 4 MiB, as a sender would bound it. */
        while (given < messages &&
               (given - (uint64_t)(b.owner.acked + 1)) * message_bytes < (4u << 20) &&
               qwp_session_send(b.session, message, message_bytes, &sequence) == QWP_OK) {
            given++;
        }
        qwp_loop_run(b.loop, QWP_NEVER_NS);
    }
    const double wall_s = (double)(qwp_clock_monotonic_ns() - wall_ns) / 1e9;
    const double cpu = (double)(thread_cpu_ns() - cpu_ns);
    if (b.owner.down) {
        die(b.owner.text);
    }
    stop(&b);
    const double bytes = (double)(messages * message_bytes);
    return (struct result){
        .gb_per_s = bytes / wall_s / 1e9,
        .cpu_ns_per_byte = cpu / bytes,
        .cpu_ns_per_message = cpu / (double)messages,
    };
}

/* One message at a time, paced; from qwp_session_send() to ok(). */
static struct result run_ping_pong(SSL_CTX *context, const unsigned char *message,
                                   size_t message_bytes, size_t count, int64_t pause_ns)
{
    struct bench b;
    start(&b, context, message_bytes, 0);
    int64_t *took_ns = calloc(count, sizeof *took_ns);
    const int64_t cpu_ns = thread_cpu_ns();
    /* The server answers every eighth: give eight at once. */
    for (size_t i = 0; i < count; i++) {
        const int64_t from_ns = qwp_clock_monotonic_ns();
        int64_t sequence = 0;
        for (int k = 0; k < ANSWER_EVERY; k++) {
            if (qwp_session_send(b.session, message, message_bytes, &sequence) != QWP_OK) {
                die("send");
            }
        }
        while (b.owner.acked != sequence) {
            qwp_loop_run(b.loop, QWP_NEVER_NS);
        }
        took_ns[i] = qwp_clock_monotonic_ns() - from_ns;
        const int64_t until_ns = from_ns + pause_ns;
        while (qwp_clock_monotonic_ns() < until_ns) {
            qwp_loop_run(b.loop, until_ns);
        }
    }
    const double cpu = (double)(thread_cpu_ns() - cpu_ns);
    stop(&b);
    qsort(took_ns, count, sizeof *took_ns, compare);
    const struct result result = {
        .p50_us = (double)took_ns[count / 2] / 1e3,
        .p99_us = (double)took_ns[count * 99 / 100] / 1e3,
        .cpu_ns_per_message = cpu / (double)count,
    };
    free(took_ns);
    return result;
}

static struct bench_json json;

static void stream(SSL_CTX *context, const unsigned char *message, uint64_t total, int repeats)
{
    static const size_t sizes[] = {512, 4096, 65536, 1 << 20};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        double ns_per_byte[2][REPEATS_MAX], gb_per_s[2][REPEATS_MAX];
        for (int r = 0; r < repeats; r++) {
            for (int tls = 0; tls < 2; tls++) {
                const uint64_t bytes = sizes[s] < 4096 ? total / 8 : total;
                const struct result result =
                    run_stream(tls ? context : NULL, message, sizes[s], bytes);
                ns_per_byte[tls][r] = result.cpu_ns_per_byte;
                gb_per_s[tls][r] = result.gb_per_s;
                printf("stream %-5s message=%-8zu %6.2f GB/s  sender cpu %.3f ns/byte %9.0f "
                       "ns/message\n",
                       tls ? "tls" : "plain", sizes[s], result.gb_per_s, result.cpu_ns_per_byte,
                       result.cpu_ns_per_message);
            }
        }
        for (int tls = 0; tls < 2; tls++) {
            char name[2][64];
            for (int t = 0; t < 2; t++) {
                snprintf(name[t], sizeof name[t], "%s, messages of %zu", t ? "tls" : "plain",
                         sizes[s]);
            }
            bench_json_runs(&json, "send", name[tls], name[0], "ns_per_byte", ns_per_byte[tls],
                            repeats);
            bench_json_runs(&json, "send", name[tls], name[0], "gb_per_s", gb_per_s[tls], repeats);
        }
    }
}

static void ping_pong(SSL_CTX *context, const unsigned char *message, size_t count)
{
    for (int tls = 0; tls < 2; tls++) {
        const struct result result =
            run_ping_pong(tls ? context : NULL, message, 100, count, QWP_NS_PER_MS);
        printf("paced 1000/s %-5s round trip p50 %.1f us p99 %.1f us, sender cpu %.0f ns a turn\n",
               tls ? "tls" : "plain", result.p50_us, result.p99_us, result.cpu_ns_per_message);
    }
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *json_path = NULL;
    uint64_t total = UINT64_C(512) << 20;
    size_t count = 3000;
    int repeats = 3;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            total = 16u << 20;
            count = 50;
            repeats = 1;
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            repeats = atoi(argv[++i]);
        } else {
            die("usage: bench_session [--smoke] [--repeats N] [--json FILE]");
        }
    }
    if (repeats < 1 || repeats > REPEATS_MAX) {
        die("--repeats is out of range");
    }
    bench_json_open(&json, json_path, "bench_session");
    SSL_CTX *context = make_context();
    unsigned char *message = malloc(MESSAGE_MAX);
    if (message == NULL) {
        die("memory");
    }
    for (size_t i = 0; i < MESSAGE_MAX; i++) {
        message[i] = (unsigned char)(i * 131);
    }
    struct utsname host;
    uname(&host);
    printf("%s %s, %ld processors, %s, no seed\n", host.machine, host.release,
           sysconf(_SC_NPROCESSORS_ONLN), OpenSSL_version(OPENSSL_VERSION));
    stream(context, message, total, repeats);
    ping_pong(context, message, count);
    free(message);
    SSL_CTX_free(context);
    bench_json_close(&json);
    return 0;
}

/* Question: what would the machine itself allow, whatever we did?
 *
 * Nanoseconds of CPU a byte for what every way to a server has to do: a copy of bytes that are in
 * the cache and of bytes that are not, a CRC32C, AES-128-GCM in records of 16 KiB, and the sender's
 * part of a loopback socket (send of 256 KiB to a thread that reads and throws away). They take
 * turns; shown are medians.
 *
 * Guess made beforehand, for a quiet core: copy 0.03 and 0.12 ns a byte, CRC 0.07, AES-GCM 0.25,
 * socket 0.15.
 *
 *   bench_limits [--smoke] [--repeats N] [--json FILE] */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_crc32c.h"
#include "perf/bench_json.h"

enum {
    CACHED_BYTES = 64 * 1024,
    SEND_BYTES = 256 * 1024,
    RECORD_BYTES = 16 * 1024,
    TAG_BYTES = 16,
    REPEATS_MAX = 101,
};
#define AREA_BYTES ((size_t)256 << 20) /* more than any cache */

enum limit { COPY_CACHED, COPY_FAR, CRC, AES_GCM, SOCKET, LIMITS };
static const char *const limit_names[LIMITS] = {"copy in the cache", "copy from and to memory",
                                                "CRC32C", "AES-128-GCM", "loopback send"};

struct bench {
    unsigned char *from, *to; /* AREA_BYTES each */
    size_t bytes;             /* that each run moves */
    EVP_CIPHER_CTX *cipher;
    int fd; /* to the reading thread */
    pthread_t reader;
    uint64_t checksum;
};

static void die(const char *what)
{
    fprintf(stderr, "bench_limits: %s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- the reading end ---- */

static void *throw_away(void *argument)
{
    static char buffer[1 << 20];
    const int fd = *(int *)argument;
    while (recv(fd, buffer, sizeof buffer, 0) > 0) {
    }
    close(fd);
    return NULL;
}

static void connect_pair(struct bench *b)
{
    static int peer;
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t len = sizeof address;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    b->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || b->fd < 0 || bind(listener, (struct sockaddr *)&address, len) != 0 ||
        listen(listener, 1) != 0 || getsockname(listener, (struct sockaddr *)&address, &len) != 0 ||
        connect(b->fd, (struct sockaddr *)&address, len) != 0 ||
        (peer = accept(listener, NULL, NULL)) < 0 ||
        pthread_create(&b->reader, NULL, throw_away, &peer) != 0) {
        die("socket");
    }
    close(listener);
}

/* ---- the work ---- */

static void copy_cached(struct bench *b)
{
    for (size_t done = 0; done < b->bytes; done += CACHED_BYTES) {
        memcpy(b->to, b->from, CACHED_BYTES);
        __asm__ volatile("" ::: "memory");
    }
}

static void copy_far(struct bench *b)
{
    for (size_t done = 0; done < b->bytes; done += CACHED_BYTES) {
        memcpy(b->to + done % AREA_BYTES, b->from + done % AREA_BYTES, CACHED_BYTES);
        __asm__ volatile("" ::: "memory");
    }
}

static void crc(struct bench *b)
{
    for (size_t done = 0; done < b->bytes; done += CACHED_BYTES) {
        b->checksum += qwp_crc32c(0, b->from, CACHED_BYTES);
    }
}

static void aes_gcm(struct bench *b)
{
    static const unsigned char key[16] = {1};
    static const unsigned char iv[12] = {2};
    unsigned char tag[TAG_BYTES];
    for (size_t done = 0; done < b->bytes; done += RECORD_BYTES) {
        int len;
        if (EVP_EncryptInit_ex(b->cipher, done == 0 ? EVP_aes_128_gcm() : NULL, NULL,
                               done == 0 ? key : NULL, iv) != 1 ||
            EVP_EncryptUpdate(b->cipher, b->to, &len, b->from + done % CACHED_BYTES,
                              RECORD_BYTES) != 1 ||
            EVP_EncryptFinal_ex(b->cipher, b->to + len, &len) != 1 ||
            EVP_CIPHER_CTX_ctrl(b->cipher, EVP_CTRL_GCM_GET_TAG, TAG_BYTES, tag) != 1) {
            die("AES-GCM");
        }
        b->checksum += tag[0];
    }
}

static void send_all(struct bench *b)
{
    for (size_t done = 0; done < b->bytes; done += SEND_BYTES) {
        for (size_t sent = 0; sent < SEND_BYTES;) {
            const ssize_t n = send(b->fd, b->from + sent, SEND_BYTES - sent, MSG_NOSIGNAL);
            if (n < 0) {
                die("send");
            }
            sent += (size_t)n;
        }
    }
}

static double time_of(void (*run)(struct bench *), struct bench *b)
{
    const int64_t start_ns = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    run(b);
    return (double)(qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / (double)b->bytes;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct bench *b, int repeats, struct bench_json *json)
{
    static void (*const runs[LIMITS])(struct bench *) = {copy_cached, copy_far, crc, aes_gcm,
                                                         send_all};
    static double ns[LIMITS][REPEATS_MAX];
    for (int r = 0; r < repeats; r++) {
        for (int i = 0; i < LIMITS; i++) {
            ns[i][r] = time_of(runs[i], b);
        }
    }
    double base = 0;
    printf("%-26s %10s %8s %8s   x %s\n", "ns of CPU a byte", "median", "least", "most",
           limit_names[COPY_FAR]);
    for (int i = 0; i < LIMITS; i++) {
        bench_json_runs(json, "limits", limit_names[i], limit_names[COPY_FAR], "ns_per_byte", ns[i],
                        repeats);
        qsort(ns[i], (size_t)repeats, sizeof ns[i][0], compare);
    }
    base = ns[COPY_FAR][repeats / 2];
    for (int i = 0; i < LIMITS; i++) {
        printf("%-26s %10.4f %8.4f %8.4f %6.2f\n", limit_names[i], ns[i][repeats / 2], ns[i][0],
               ns[i][repeats - 1], ns[i][repeats / 2] / base);
    }
}

static unsigned char *area(void)
{
    unsigned char *at = mmap(NULL, AREA_BYTES, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) {
        die("memory");
    }
    memset(at, 1, AREA_BYTES);
    return at;
}

int main(int argc, char **argv)
{
    struct bench b = {.bytes = AREA_BYTES};
    const char *json_path = NULL;
    int repeats = 11;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            b.bytes = 4 << 20;
            repeats = 1;
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            repeats = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_limits [--smoke] [--repeats N] [--json FILE]\n");
            return 2;
        }
    }
    if (repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "bench_limits: --repeats 1 to %d\n", REPEATS_MAX);
        return 2;
    }
    struct utsname host;
    struct bench_json json;
    uname(&host);
    bench_json_open(&json, json_path, "bench_limits");
    b.from = area();
    b.to = area();
    b.cipher = EVP_CIPHER_CTX_new();
    connect_pair(&b);
    printf("%s %s, %d repeats of %zu MiB, no randomness\n", host.machine, host.release, repeats,
           b.bytes >> 20);
    measure(&b, repeats, &json);
    close(b.fd);
    pthread_join(b.reader, NULL);
    EVP_CIPHER_CTX_free(b.cipher);
    munmap(b.from, AREA_BYTES);
    munmap(b.to, AREA_BYTES);
    bench_json_close(&json);
    printf("checksum %llx\n", (unsigned long long)b.checksum);
    return 0;
}

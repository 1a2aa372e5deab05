/* peer: a server in a thread that says to a client exactly what a test wants it to say.
 *
 * A script runs once per accepted connection with blocking reads and writes. Its first failure is
 * kept as a text for the main thread to assert. */
#ifndef QWP_TEST_PEER_H
#define QWP_TEST_PEER_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct peer;
typedef void (*peer_script_fn)(struct peer *peer);

struct peer {
    /* set before peer_start() */
    peer_script_fn script;
    bool tls;
    int tls_version;       /* 0: any */
    const char *cert_path; /* with tls: certificate and key in one PEM file */
    unsigned chunk;        /* writes at most so many bytes at a time; 0: all */
    int argument;
    /* of the current connection */
    int fd;
    void *ssl;
    char request[32768];
    /* shared with the test */
    uint16_t port;
    _Atomic int connections;
    _Atomic uint64_t value; /* for a script's result */
    char failure[256];      /* read after peer_stop() */

    int listen_fd;
    void *context;
    pthread_t thread;
    _Atomic bool stopping;
    _Atomic int open_fd;
};

void peer_start(struct peer *peer);
/* Ends what goes on, joins, returns the failure or NULL. */
const char *peer_stop(struct peer *peer);

void peer_fail(struct peer *peer, const char *what);
#define PEER_CHECK(peer, condition)                                                                \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            peer_fail((peer), #condition);                                                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

bool peer_read(struct peer *peer, void *buffer, size_t len);
/* Up to `cap` bytes: what is there; 0 at the end. */
size_t peer_read_some(struct peer *peer, void *buffer, size_t cap);
bool peer_write(struct peer *peer, const void *bytes, size_t len);
/* Reads the request's head into peer->request. */
bool peer_read_request(struct peer *peer);
/* Value of a header of the request, "" if absent; static storage. */
const char *peer_header(struct peer *peer, const char *name);
/* Writes a 101 with the right accept value and `extra` header lines, then `more` bytes in the same
 * write. */
bool peer_accept(struct peer *peer, const char *extra, const void *more, size_t more_len);
/* Reads the request and accepts it with version 1. */
bool peer_upgrade(struct peer *peer);

/* One unmasked frame into `out`; returns its length. */
size_t peer_frame(unsigned char *out, unsigned first_byte, const void *payload, size_t len);
bool peer_send_frame(struct peer *peer, unsigned first_byte, const void *payload, size_t len);
/* Reads one frame and unmasks it; fails on what a client must not send. False at the end too. */
bool peer_read_frame(struct peer *peer, unsigned *opcode, unsigned char *payload, size_t cap,
                     size_t *len);
/* Reads `count` frames of up to 256 bytes, whatever they hold. */
bool peer_read_frames(struct peer *peer, int count);
size_t peer_ok_answer(unsigned char *out, int64_t sequence);
size_t peer_error_answer(unsigned char *out, uint8_t status, int64_t sequence, const char *text);
bool peer_send_ok(struct peer *peer, int64_t sequence);
/* Reads until the client ends its stream. */
void peer_drain(struct peer *peer);
/* Ends TLS properly if there is any, and our stream. */
void peer_end(struct peer *peer);

/* Writes ca.pem, ca.p12 (password "secret"), other-ca.pem, localhost.pem (localhost and 127.0.0.1)
 * and elsewhere.pem (elsewhere.example) into `dir`. */
void peer_make_certificates(const char *dir);

#endif

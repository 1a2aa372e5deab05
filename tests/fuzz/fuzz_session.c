/* Aim: whatever a server, a kernel and the clock do to a session, in whatever order, it neither
 * reads nor writes outside, keeps its promises to the owner, and sends nothing but what it was
 * given in well-formed frames. Method: a session on a loop and a clock of ours (fake_loop.h); the
 * input says what happens next: an operation of one byte, most with one byte of argument, some with
 * bytes that the server says. In the first byte: bit 0 TLS (the peer is a real one, in memory, and
 * its plain text is the input's), bit 1 TLS of which the input has the raw bytes, bit 2 durable
 * acknowledgements. */
#include <errno.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/transport/fake_loop.h"
#include "transport/qwp_session_internal.h" /* what it holds is looked at */

enum { STEPS_MAX = 400, MESSAGE_BYTES = 40000, SENT_MAX = 64 };

enum step {
    STEP_SAY = 0,      /* N: the server says the next N + 1 bytes of the input */
    STEP_ACCEPT = 1,   /* a right answer to the upgrade, less the last N % 4 bytes */
    STEP_OK = 2,       /* an OK for message N */
    STEP_ERROR = 3,    /* an error answer for message N */
    STEP_SEND = 4,     /* the owner gives a message of N * N / 2 bytes */
    STEP_TAKE = 5,     /* the kernel takes what is offered, N == 0: one byte of it */
    STEP_WAIT = 6,     /* N * 200 ms pass */
    STEP_END = 7,      /* the server ends its stream; N odd: without close_notify */
    STEP_BREAK = 8,    /* N odd: receiving fails, else sending */
    STEP_LEAVE = 9,    /* the owner disconnects, grace N * 20 ms */
    STEP_PING = 10,    /* the owner pings */
    STEP_CONNECT = 11, /* again; N odd: refused */
    STEP_DURABLE = 12, /* a durable acknowledgement */
    STEP_UPDATE = 13,  /* the server changes its keys, N odd: asks us to; or sends a ticket */
    STEPS,
};

static unsigned char messages[MESSAGE_BYTES + 256];

struct world {
    struct fake_loop fake;
    struct qwp_session *session;
    struct qwp_session_options options;
    bool peer_tls, raw_tls;
    /* the server */
    SSL *ssl;
    BIO *in, *out;
    bool accepted;
    /* what the owner was told */
    bool connecting, up;
    int64_t given, acked;
    bool rejected;
    size_t lengths[SENT_MAX]; /* of messages given, by sequence */
    /* our stream, as the server reads it */
    unsigned char stream[1024 * 1024];
    size_t stream_len;
    bool stream_lost; /* too long to be checked */
};

/* ---- the owner ---- */

static void on_up(void *owner, size_t message_bytes_max)
{
    struct world *w = owner;
    QWP_ASSERT(w->connecting && !w->up && message_bytes_max > 0);
    QWP_ASSERT(message_bytes_max <= QWP_MESSAGE_BYTES_MAX);
    w->up = true;
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct world *w = owner;
    QWP_ASSERT(w->connecting && down->was_up == w->up);
    QWP_ASSERT(!w->rejected || down->cause == QWP_DOWN_REJECTED || down->cause == QWP_DOWN_LOCAL ||
               down->cause == QWP_DOWN_CLOSED || down->cause == QWP_DOWN_PROTOCOL);
    QWP_ASSERT(memchr(down->error.text, 0, sizeof down->error.text) != NULL);
    QWP_ASSERT(memchr(down->role, 0, sizeof down->role) != NULL);
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        QWP_ASSERT(w->fake.slots[kind].op == NULL);
    }
    w->connecting = w->up = false;
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    struct world *w = owner;
    QWP_ASSERT(w->up && sequence > w->acked && sequence < w->given);
    QWP_ASSERT(sequence < w->session->outgoing.sent_count);
    w->acked = sequence;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    struct world *w = owner;
    const unsigned char *end = tables + tables_bytes;
    QWP_ASSERT(w->up);
    for (unsigned i = 0; i < table_count; i++) {
        const char *name;
        uint16_t len;
        int64_t txn;
        tables = qwp_ack_table_next(tables, end, &name, &len, &txn);
        QWP_ASSERT(tables != NULL);
    }
    QWP_ASSERT(tables == end);
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    struct world *w = owner;
    QWP_ASSERT(w->up && sequence >= 0 && sequence < w->given && status != QWP_STATUS_OK);
    uint64_t sum = 0;
    for (size_t i = 0; i < len; i++) {
        sum += (unsigned char)text[i];
    }
    w->rejected = sum < UINT64_MAX;
}

static void on_writable(void *owner)
{
    QWP_ASSERT(((struct world *)owner)->up);
}

static const struct qwp_session_callbacks callbacks = {
    .up = on_up,
    .down = on_down,
    .ok = on_ok,
    .durable = on_durable,
    .rejected = on_rejected,
    .writable = on_writable,
};

/* ---- the server ---- */

static SSL_CTX *server_context(void)
{
    static SSL_CTX *context;
    if (context != NULL) {
        return context;
    }
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    QWP_ASSERT(key != NULL && cert != NULL);
    X509_gmtime_adj(X509_getm_notBefore(cert), 0);
    X509_gmtime_adj(X509_getm_notAfter(cert), 100 * 86400L);
    X509_set_pubkey(cert, key);
    X509_sign(cert, key, EVP_sha256());
    context = SSL_CTX_new(TLS_server_method());
    QWP_ASSERT(SSL_CTX_use_certificate(context, cert) == 1 &&
               SSL_CTX_use_PrivateKey(context, key) == 1);
    X509_free(cert);
    EVP_PKEY_free(key);
    return context;
}

static void server_start(struct world *w)
{
    SSL_free(w->ssl);
    w->ssl = NULL;
    w->accepted = w->stream_lost = false;
    w->stream_len = 0;
    if (!w->peer_tls) {
        return;
    }
    w->ssl = SSL_new(server_context());
    w->in = BIO_new(BIO_s_mem());
    w->out = BIO_new(BIO_s_mem());
    QWP_ASSERT(w->ssl != NULL && w->in != NULL && w->out != NULL);
    SSL_set_bio(w->ssl, w->in, w->out);
    SSL_set_accept_state(w->ssl);
}

/* To the client, in pieces of what its receive takes. */
static void deliver(struct world *w, const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        const size_t n = fake_feed(&w->fake, bytes, len);
        if (n == 0) {
            return; /* nobody listens: lost, as after a reset */
        }
        bytes += n;
        len -= n;
    }
}

static void deliver_tls(struct world *w)
{
    unsigned char *bytes;
    const long len = BIO_get_mem_data(w->out, &bytes);
    if (len > 0) {
        unsigned char *copy = malloc((size_t)len);
        QWP_ASSERT(copy != NULL);
        memcpy(copy, bytes, (size_t)len);
        (void)BIO_reset(w->out);
        deliver(w, copy, (size_t)len);
        free(copy);
    }
}

static void say(struct world *w, const void *bytes, size_t len)
{
    if (!w->peer_tls) {
        deliver(w, bytes, len);
    } else if (len > 0 && SSL_is_init_finished(w->ssl)) {
        (void)SSL_write(w->ssl, bytes, (int)len);
        deliver_tls(w);
    }
}

static void hear_plain(struct world *w, const unsigned char *bytes, size_t len)
{
    if (w->stream_lost || len > sizeof w->stream - w->stream_len) {
        w->stream_lost = true;
        return;
    }
    memcpy(w->stream + w->stream_len, bytes, len);
    w->stream_len += len;
}

static void hear(struct world *w, const unsigned char *bytes, size_t len)
{
    if (!w->peer_tls) {
        if (!w->raw_tls) {
            hear_plain(w, bytes, len);
        }
        return;
    }
    BIO_write(w->in, bytes, (int)len);
    unsigned char plain[4096];
    int n;
    while ((n = SSL_read(w->ssl, plain, sizeof plain)) > 0) {
        hear_plain(w, plain, (size_t)n);
    }
    deliver_tls(w);
}

/* The kernel takes up to `len` bytes of the send in flight. */
static void take(struct world *w, size_t len)
{
    if (!fake_has(&w->fake, QWP_REQUEST_SEND)) {
        return;
    }
    const struct qwp_request request = *fake_request(&w->fake, QWP_REQUEST_SEND);
    const size_t n = len < request.len ? len : request.len;
    unsigned char *copy = malloc(n);
    QWP_ASSERT(copy != NULL);
    memcpy(copy, request.address, n);
    fake_complete(&w->fake, QWP_REQUEST_SEND, (int)n);
    hear(w, copy, n);
    free(copy);
}

static void take_all(struct world *w)
{
    for (int i = 0; i < 64 && fake_has(&w->fake, QWP_REQUEST_SEND); i++) {
        take(w, SIZE_MAX);
    }
}

static void accept_upgrade(struct world *w, unsigned less)
{
    char text[512];
    const int len = snprintf(text, sizeof text,
                             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                             "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                             "X-QWP-Version: 1\r\n%s\r\n",
                             w->session->upgrade.accept,
                             w->options.durable_ack ? "X-QWP-Durable-Ack: enabled\r\n" : "");
    say(w, text, (size_t)len - less);
}

static void answer(struct world *w, uint8_t status, int64_t sequence)
{
    unsigned char frame[32] = {0x82, 0};
    size_t len = 2;
    frame[len++] = status;
    if (status != QWP_STATUS_DURABLE_ACK) {
        qwp_store_i64(frame + len, sequence);
        len += 8;
    }
    qwp_store_u16(frame + len, 0);
    len += 2;
    frame[1] = (unsigned char)(len - 2);
    say(w, frame, len);
}

/* ---- what we sent ---- */

/* Masked, final, of the right order and content; cut short at the end where it may be. */
static void check_stream(const struct world *w)
{
    if (w->stream_lost) {
        return;
    }
    const unsigned char *at = w->stream;
    const unsigned char *end = at + w->stream_len;
    const unsigned char *head = memmem(at, w->stream_len, "\r\n\r\n", 4);
    QWP_ASSERT(w->stream_len < 4 || memcmp(at, "GET ", 4) == 0);
    at = head != NULL ? head + 4 : end;
    int64_t sequence = 0;
    bool closed = false;
    while (end - at >= 2) {
        QWP_ASSERT(!closed && (at[0] & 0x70) == 0 && (at[0] & 0x80) != 0 && (at[1] & 0x80) != 0);
        const unsigned opcode = at[0] & 0x0f;
        uint64_t len = at[1] & 0x7f;
        size_t header = 2 + (len == 126 ? 2 : len == 127 ? 8 : 0);
        if ((size_t)(end - at) < header + 4) {
            return;
        }
        for (size_t i = 2; i < header; i++) {
            len = (i == 2 ? 0 : len << 8) | at[i];
        }
        const unsigned char *mask = at + header;
        at += header + 4;
        const bool whole = (uint64_t)(end - at) >= len;
        const size_t there = whole ? (size_t)len : (size_t)(end - at);
        if (opcode == QWP_WS_BINARY) {
            QWP_ASSERT(sequence < w->given);
            QWP_ASSERT(sequence >= SENT_MAX || w->lengths[sequence] == len);
            for (size_t i = 0; i < there; i++) {
                QWP_ASSERT((at[i] ^ mask[i % 4]) == messages[(size_t)(sequence % 256) + i]);
            }
            sequence++;
        } else {
            QWP_ASSERT(opcode == QWP_WS_PING || opcode == QWP_WS_PONG || opcode == QWP_WS_CLOSE);
            QWP_ASSERT(len <= QWP_WS_CONTROL_MAX);
            closed = opcode == QWP_WS_CLOSE;
        }
        at += there;
    }
}

/* ---- the course of things ---- */

static void connect_now(struct world *w)
{
    if (w->connecting) {
        return;
    }
    const struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct qwp_error err;
    w->connecting = true;
    w->given = 0;
    w->acked = -1;
    w->rejected = false;
    server_start(w);
    QWP_ASSERT(qwp_session_connect(w->session, (const struct sockaddr *)&address, sizeof address,
                                   "localhost", 9000, &err) == QWP_OK);
}

static void give(struct world *w, unsigned n)
{
    const size_t len = (size_t)n * n / 2;
    int64_t sequence;
    if (qwp_session_send(w->session, messages + w->given % 256, len, &sequence) == QWP_OK) {
        QWP_ASSERT(w->up && sequence == w->given);
        if (sequence < SENT_MAX) {
            w->lengths[sequence] = len;
        }
        w->given++;
    }
    fake_turn(&w->fake);
}

static void end_stream(struct world *w, bool rude)
{
    if (w->peer_tls && !rude && SSL_is_init_finished(w->ssl)) {
        (void)SSL_shutdown(w->ssl);
        deliver_tls(w);
    }
    if (fake_has(&w->fake, QWP_REQUEST_RECV)) {
        fake_complete(&w->fake, QWP_REQUEST_RECV, 0);
    }
}

static void break_socket(struct world *w, unsigned n)
{
    const enum qwp_request_kind kind = n % 2 == 1 ? QWP_REQUEST_RECV : QWP_REQUEST_SEND;
    if (fake_has(&w->fake, kind)) {
        fake_complete(&w->fake, kind, n % 4 < 2 ? -ECONNRESET : -ETIMEDOUT);
    }
}

static void change_keys(struct world *w, unsigned n)
{
    if (w->ssl == NULL || !SSL_is_init_finished(w->ssl)) {
        return;
    }
    if (n % 3 == 2) {
        (void)SSL_new_session_ticket(w->ssl);
    } else {
        (void)SSL_key_update(w->ssl,
                             n % 3 == 1 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED);
    }
    (void)SSL_do_handshake(w->ssl);
    deliver_tls(w);
}

static void step(struct world *w, unsigned what, unsigned n)
{
    switch (what) {
    case STEP_ACCEPT:
        accept_upgrade(w, n % 4);
        break;
    case STEP_OK:
        answer(w, QWP_STATUS_OK, n);
        break;
    case STEP_ERROR:
        answer(w, QWP_STATUS_SCHEMA_MISMATCH, n);
        break;
    case STEP_DURABLE:
        answer(w, QWP_STATUS_DURABLE_ACK, 0);
        break;
    case STEP_SEND:
        give(w, n);
        break;
    case STEP_TAKE:
        if (n == 0) {
            take(w, 1);
        } else {
            take_all(w);
        }
        break;
    case STEP_WAIT:
        fake_advance(&w->fake, (int64_t)n * 200 * QWP_NS_PER_MS);
        break;
    case STEP_END:
        end_stream(w, n % 2 == 1);
        break;
    case STEP_BREAK:
        break_socket(w, n);
        break;
    case STEP_LEAVE:
        qwp_session_disconnect(w->session, (int64_t)n * 20 * QWP_NS_PER_MS);
        break;
    case STEP_PING:
        qwp_session_ping(w->session);
        break;
    case STEP_UPDATE:
        change_keys(w, n);
        break;
    default: /* STEP_CONNECT */
        connect_now(w);
        if (fake_has(&w->fake, QWP_REQUEST_CONNECT)) {
            fake_complete(&w->fake, QWP_REQUEST_CONNECT, n % 2 == 1 ? -ECONNREFUSED : 0);
        }
    }
    fake_turn(&w->fake);
}

static void check(const struct world *w)
{
    const struct qwp_session *s = w->session;
    QWP_ASSERT(s->reader.message_cap <= 4u * 1024 * 1024);
    QWP_ASSERT((s->state == STATE_IDLE) == !w->connecting);
    if (s->state == STATE_UP) {
        QWP_ASSERT(w->up);
        /* However long it is silent, somebody looks. */
        QWP_ASSERT(fake_timer_ns(&w->fake) <= fake_clock_ns() + (int64_t)25 * QWP_NS_PER_S);
        QWP_ASSERT(s->fd >= 0);
    }
    /* Something is in flight, or it would hang for good. */
    bool any = !w->connecting;
    for (int kind = 0; kind < FAKE_KINDS; kind++) {
        any |= w->fake.slots[kind].op != NULL;
    }
    QWP_ASSERT(any);
}

static void run(struct world *w, const uint8_t *at, const uint8_t *end)
{
    for (int steps = 0; steps < STEPS_MAX && end - at >= 2; steps++) {
        const unsigned what = at[0] % STEPS;
        const unsigned n = at[1];
        at += 2;
        if (what == STEP_SAY) {
            const size_t len = (size_t)(end - at) < n + 1u ? (size_t)(end - at) : n + 1u;
            if (w->raw_tls) {
                deliver(w, at, len);
            } else {
                say(w, at, len);
            }
            at += len;
            fake_turn(&w->fake);
        } else {
            step(w, what, n);
        }
        check(w);
    }
}

/* Whatever it was doing: gone within the grace that is given, once the server says nothing more. */
static void leave(struct world *w)
{
    qwp_session_disconnect(w->session, (int64_t)QWP_NS_PER_S);
    for (int turns = 0; w->connecting; turns++) {
        QWP_ASSERT(turns < 100);
        take_all(w);
        fake_advance(&w->fake, 100 * QWP_NS_PER_MS);
    }
    check(w);
}

/* Kept from input to input: a fresh one costs a certificate store and two large buffers. */
static struct world *world_open(bool tls)
{
    struct world *w = calloc(1, sizeof *w);
    QWP_ASSERT(w != NULL);
    fake_loop_init(&w->fake);
    w->options = (struct qwp_session_options){
        .loop = &w->fake.loop,
        .callbacks = &callbacks,
        .owner = w,
        .client_id = "fuzz/1",
        .tls = tls,
        .authorization = "Bearer token",
        .connect_timeout_ns = (int64_t)10 * QWP_NS_PER_S,
        .auth_timeout_ns = (int64_t)15 * QWP_NS_PER_S,
        .ping_idle_ns = (int64_t)25 * QWP_NS_PER_S,
        .ping_waiting_ns = (int64_t)5 * QWP_NS_PER_S,
        .dead_after_ns = (int64_t)15 * QWP_NS_PER_S,
        .clock_ns = fake_clock_ns,
    };
    struct qwp_error err;
    QWP_ASSERT(qwp_session_open(&w->session, &w->options, &err) == QWP_OK);
    return w;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world *worlds[2];
    if (size == 0) {
        return 0;
    }
    if (worlds[0] == NULL) {
        for (size_t i = 0; i < sizeof messages; i++) {
            messages[i] = (unsigned char)(i * 7 + (i >> 8));
        }
        worlds[0] = world_open(false);
        worlds[1] = world_open(true);
    }
    struct world *w = worlds[data[0] & 1];
    w->peer_tls = (data[0] & 3) == 1;
    w->raw_tls = (data[0] & 3) == 3;
    w->options.durable_ack = (data[0] & 4) != 0;
    fake_clock_set((int64_t)1000 * QWP_NS_PER_S);
    step(w, STEP_CONNECT, 0);
    step(w, STEP_TAKE, 1);
    run(w, data + 1, data + size);
    check_stream(w);
    leave(w);
    return 0;
}

/* qwp_session: one connection to a QWP server: TCP, TLS, HTTP upgrade, WebSocket, answers.
 *
 * The session carries whole QWP messages (as core/wire encodes them) in order and reports the
 * server's answers by their wire sequence. It knows no frame numbers, keeps no message, retries
 * nothing: its owner decides when to connect and what to send again.
 *
 * Threads:  that of its loop.
 * Progress: nothing blocks. Name resolution is the owner's (an endpoint is a socket address here).
 * Trust:    the server's bytes are checked; a breach ends the connection with QWP_PEER.
 * Errors:   on_down gives a text with host:port, the phase and what was found. */
#ifndef QWP_SESSION_H
#define QWP_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/qwp_error.h"
#include "core/wire/qwp_wire.h"
#include "transport/qwp_loop.h"

struct qwp_session;

/* Why a connection ended; the owner's retry policy looks at this and never at text. */
enum qwp_down_cause {
    QWP_DOWN_UNREACHABLE = 0, /* TCP refused, reset, unreachable or timed out before the upgrade */
    QWP_DOWN_TLS = 1,         /* handshake or verification failed */
    QWP_DOWN_HTTP = 2,        /* upgrade answered with another status: see http_status */
    QWP_DOWN_AUTH = 3,        /* 401 or 403 */
    QWP_DOWN_ROLE = 4,        /* 421: another endpoint may be the right one */
    QWP_DOWN_VERSION = 5,     /* 101 with a version we do not speak */
    QWP_DOWN_DURABLE = 6,     /* durable acks were asked for and not echoed */
    QWP_DOWN_PROTOCOL = 7,    /* the peer broke WebSocket or QWP */
    QWP_DOWN_CLOSED = 8,      /* closed by the server after the upgrade, close frame or not */
    QWP_DOWN_TIMEOUT = 9,     /* no sign of life within the bound */
    QWP_DOWN_LOCAL = 10,      /* qwp_session_disconnect() */
    QWP_DOWN_REJECTED = 11,   /* after rejected() */
};

struct qwp_session_down {
    enum qwp_down_cause cause;
    bool was_up;         /* the upgrade had succeeded */
    int http_status;     /* with QWP_DOWN_HTTP, _AUTH, _ROLE */
    uint16_t close_code; /* WebSocket close code of the server, 0 if none */
    char role[32];       /* X-QuestDB-Role, "" if none */
    struct qwp_error error;
};

/* Strings are borrowed for the length of the call. All run on the loop's thread; a callback may
 * call any session function but qwp_session_close(). */
struct qwp_session_callbacks {
    /* Connected and upgraded. `message_bytes_max`: the server's limit less 10 %. */
    void (*up)(void *owner, size_t message_bytes_max);
    /* Once per connect that was started, after the last answer: received bytes are read to the end
     * of the stream and reported first. No operation of the old connection is in flight any more;
     * qwp_session_connect() may be called from here. */
    void (*down)(void *owner, const struct qwp_session_down *down);
    /* Cumulative: every message up to `sequence` is acknowledged. Sequences are checked against
     * what was sent before this is called, and grow from call to call. `tables` is the answer's
     * (name, seqTxn) list as bytes, for durable acks; see qwp_ack_table_next(). */
    void (*ok)(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
               uint16_t table_count);
    void (*durable)(void *owner, const unsigned char *tables, size_t tables_bytes,
                    uint16_t table_count);
    /* Once a connection at most, of a message that is not acknowledged; an OK that covers it is
     * never told after it. The session then reads to the end of the stream and goes down by itself.
     */
    void (*rejected)(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len);
    /* There is room again after qwp_session_send() said QWP_AGAIN. */
    void (*writable)(void *owner);
    /* The server has answered a ping that went out behind message `sequence`: it has read that and
     * all before it. NULL: nobody asks. */
    void (*ponged)(void *owner, int64_t sequence);
};

/* Borrowed for the session's life. */
struct qwp_session_options {
    struct qwp_loop *loop;
    const struct qwp_session_callbacks *callbacks;
    void *owner;
    const char *client_id; /* "qwp-sidecar/<version>" */
    bool tls;
    bool tls_verify;
    const char *tls_roots;          /* PEM or PKCS#12 file; NULL: the system's store */
    const char *tls_roots_password; /* NULL: PEM */
    const char
        *authorization; /* "Basic ..." or "Bearer ...", or NULL; may change between connects */
    bool durable_ack;
    int64_t connect_timeout_ns; /* TCP; QWP_NEVER_NS: the kernel's */
    int64_t auth_timeout_ns;    /* TLS handshake and upgrade answer */
    int64_t ping_idle_ns;       /* ping after so long without sending (25 s); 0: never */
    int64_t ping_waiting_ns;    /* ping when answers are due and nothing came for so long (5 s) */
    int64_t dead_after_ns;      /* no byte for so long although due: QWP_DOWN_TIMEOUT (15 s) */
    int64_t (*clock_ns)(void);  /* tests; NULL: the monotonic clock */
};

QWP_MUST_USE enum qwp_result qwp_session_open(struct qwp_session **out,
                                              const struct qwp_session_options *options,
                                              struct qwp_error *err);
/* Drops the connection without a word to the callbacks, waits for its operations (running the loop,
 * so not from one of its callbacks), frees. NULL is fine. */
void qwp_session_close(struct qwp_session *session);

/* Starts a connection (none may be on its way or up); up() or down() follows. `host` is for SNI,
 * the certificate check and the Host header. */
QWP_MUST_USE enum qwp_result qwp_session_connect(struct qwp_session *session,
                                                 const struct sockaddr *address, socklen_t len,
                                                 const char *host, uint16_t port,
                                                 struct qwp_error *err);
/* A WebSocket close (1000), after the message under way; those not begun are dropped. When the
 * server has answered it, or does not soon: TLS close_notify and the end of our stream. The
 * server's is read to its end (bounded by `grace_ns`), then comes down(). Idle or going down:
 * nothing. */
void qwp_session_disconnect(struct qwp_session *session, int64_t grace_ns);

/* Queues one message. QWP_OK: taken, *sequence is its wire sequence; the bytes are borrowed until
 * they are acknowledged or the connection is down. QWP_AGAIN: full, writable() follows. QWP_CLOSED:
 * not up. */
QWP_MUST_USE enum qwp_result qwp_session_send(struct qwp_session *session, const void *message,
                                              size_t len, int64_t *sequence);

/* What the server says is received as it comes, which wakes a sleeping loop, or, `on_demand`, only
 * when qwp_session_receive() wants it; a receive that waits already still ends by itself. Nothing
 * else changes, but that neither answers nor the connection's end are noticed before: for short
 * times only. Of this connection: the next one begins without. */
void qwp_session_receive_on_demand(struct qwp_session *session, bool on_demand);
/* Takes in what is there, in the next run, behind what is sent. */
void qwp_session_receive(struct qwp_session *session);

/* Queues a ping now, if up: with durable acks pending a server is made to flush them so. */
void qwp_session_ping(struct qwp_session *session);

/* Reads tls_roots again, for the next connect. On failure the old ones stay. */
QWP_MUST_USE enum qwp_result qwp_session_reload_tls(struct qwp_session *session,
                                                    struct qwp_error *err);

/* Counters since open, for status and metrics. */
struct qwp_session_counters {
    uint64_t connects;
    uint64_t bytes_sent; /* on the socket, TLS included */
    uint64_t bytes_received;
    uint64_t messages_sent;
    uint64_t pings_sent;
};
void qwp_session_count(const struct qwp_session *session, struct qwp_session_counters *out);

/* Walks the table list of an answer: name, then seqTxn. Returns the byte after the entry, or NULL
 * at the end. The list was checked when the answer came. */
const unsigned char *qwp_ack_table_next(const unsigned char *at, const unsigned char *end,
                                        const char **name, uint16_t *name_len, int64_t *seq_txn);

#endif

/* qwp_http_upgrade: the HTTP/1.1 request that turns a connection into a WebSocket, and its answer.
 *
 * Trust:  the answer is read strictly (RFC 9112 less what only leniency would allow) and has a
 * bound; interim 1xx answers are skipped. Bytes after it are left to the caller: they are WebSocket
 * frames already. */
#ifndef QWP_HTTP_UPGRADE_H
#define QWP_HTTP_UPGRADE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

enum {
    QWP_UPGRADE_REQUEST_MAX = 32 * 1024, /* a bearer token may be long */
    QWP_UPGRADE_ANSWER_MAX = 16 * 1024,  /* all headers, interim answers included */
    QWP_UPGRADE_KEY_TEXT = 24,
    QWP_UPGRADE_ACCEPT_TEXT = 28,
};

struct qwp_upgrade_request {
    const char *host; /* name or IP address, IPv6 without brackets */
    uint16_t port;
    const char *client_id;
    const char *authorization; /* or NULL */
    bool durable_ack;
};

struct qwp_upgrade {
    char key[QWP_UPGRADE_KEY_TEXT + 1];
    char accept[QWP_UPGRADE_ACCEPT_TEXT + 1];
    /* of the answer */
    int status;
    char reason[64];    /* as far as it is printable */
    char role[32];      /* X-QuestDB-Role */
    uint32_t version;   /* X-QWP-Version, 0 if absent */
    uint64_t batch_max; /* X-QWP-Max-Batch-Size, 0 if absent */
    bool durable_ack;   /* X-QWP-Durable-Ack: enabled */
    /* reading */
    size_t total_len; /* of all heads so far */
    size_t head_len;
    unsigned char head[QWP_UPGRADE_ANSWER_MAX];
};

/* A fresh random key; forgets the answer. */
void qwp_upgrade_init(struct qwp_upgrade *u);
/* The key is the caller's (tests). */
void qwp_upgrade_init_with_key(struct qwp_upgrade *u, const unsigned char key[16]);

/* Writes the request. QWP_INVALID: a value with control characters; QWP_LIMIT: too long. Neither
 * text repeats a value: one of them is secret. */
QWP_MUST_USE enum qwp_result qwp_upgrade_write(const struct qwp_upgrade *u,
                                               const struct qwp_upgrade_request *request,
                                               char out[QWP_UPGRADE_REQUEST_MAX], size_t *len,
                                               struct qwp_error *err);

/* Reads from *at, which moves on, to just behind the answer. QWP_OK: it is whole: look at status,
 * whose meaning is the caller's; a 101 has been checked to be the WebSocket we asked for.
 * QWP_AGAIN: more is to come. QWP_PEER, QWP_LIMIT: no valid answer. */
QWP_MUST_USE enum qwp_result qwp_upgrade_read(struct qwp_upgrade *u, const unsigned char **at,
                                              const unsigned char *end, struct qwp_error *err);

#endif

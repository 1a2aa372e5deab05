/* sink_policy: how the server is to behave where the protocol leaves a choice.
 *
 * One struct, asked at each phase of a connection (upgrade, message, answer). Misbehaviour on
 * request is asked for here too (sink_faults.h), so that the code which does the work has one place
 * to ask.
 *
 * Threads: const once the server runs, but for the faults, which have a lock. */
#ifndef SINK_POLICY_H
#define SINK_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sink_faults;

enum {
    SINK_MESSAGE_BYTES_DEFAULT = 2 * 1024 * 1024 - 14, /* what a server of default settings says */
    SINK_ANSWER_EVERY = 8,                             /* messages, while more is waiting */
};

struct sink_policy {
    /* Phase upgrade. Both NULL: everybody may in. */
    const char *auth_basic;  /* the credentials as they come in the header: base64 */
    const char *auth_bearer; /* the token */
    bool durable;            /* grants X-QWP-Request-Durable-Ack and sends durable acks */
    bool durable_on_ping;    /* the latter only when a ping asks for them */
    /* Phase message. */
    size_t message_bytes_max;  /* announced, and refused with 1009 beyond */
    size_t deferred_bytes_max; /* of messages waiting for their commit, on one connection */
    /* Phase answer. */
    uint32_t answer_every;
    /* All phases. */
    struct sink_faults *faults;
};

#endif

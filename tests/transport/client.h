/* client: the owner of a session as tests want it: counts its callbacks and runs the loop until a
 * condition holds. */
#ifndef QWP_TEST_CLIENT_H
#define QWP_TEST_CLIENT_H

#include <check.h>

#include "core/qwp_clock.h"
#include "tests/transport/peer.h"
#include "transport/qwp_session.h"

enum { DEADLINE_S = 60, MODES = 3 /* plain, TLS 1.3, TLS 1.2 */ };

struct client {
    struct qwp_loop *loop;
    struct qwp_session *session;
    struct qwp_session_options options;
    struct peer *peer;
    const char *host;
    int ups;
    int downs;
    int oks;
    int rejections;
    int durables;
    int writables;
    int reconnects_left; /* from within down() */
    size_t message_max;
    int64_t ok_sequence;
    uint16_t ok_tables;
    uint8_t rejected_status;
    char rejected_text[64];
    struct qwp_session_down down;
    void (*then)(struct client *client); /* from up() */
};

/* Makes the certificates in a fresh directory. */
void client_make_certificates(void);
void client_remove_certificates(void);
/* Path of one of them; the last four stay valid. */
char *cert_path(const char *name);

void peer_mode(struct peer *peer, int mode);
/* Not connected yet. */
void client_open(struct client *c, struct peer *peer);
void client_connect(struct client *c);
void client_close(struct client *c);
/* Closes the client, stops the peer, asserts that it saw no failure. */
void finish(struct client *c, struct peer *peer);
void expect_down(struct client *c, enum qwp_down_cause cause);
/* Whatever is refused is offered again. */
int64_t send_message(struct client *c, const void *bytes, size_t len);
/* For `then`: messages 0 and 1, of 3 and 6 bytes. */
void client_send_two(struct client *c);

#define RUN_UNTIL(client, condition)                                                               \
    do {                                                                                           \
        const int64_t until_ns = qwp_clock_monotonic_ns() + (int64_t)DEADLINE_S * QWP_NS_PER_S;    \
        while (!(condition)) {                                                                     \
            ck_assert_msg(qwp_clock_monotonic_ns() < until_ns, "waited in vain for %s; down: %s",  \
                          #condition, (client)->down.error.text);                                  \
            qwp_loop_run((client)->loop, until_ns);                                                \
        }                                                                                          \
    } while (0)

#endif

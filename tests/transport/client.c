#include "tests/transport/client.h"

#include <netinet/in.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/transport/loop_kind.h"

static char cert_dir[] = "/tmp/qwp-test-transport-XXXXXX";

void client_make_certificates(void)
{
    if (mkdtemp(cert_dir) == NULL) {
        perror(cert_dir);
        exit(EXIT_FAILURE);
    }
    peer_make_certificates(cert_dir);
}

void client_remove_certificates(void)
{
    static const char *const names[] = {"ca.pem", "ca.p12", "other-ca.pem", "localhost.pem",
                                        "elsewhere.pem"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unlink(cert_path(names[i]));
    }
    rmdir(cert_dir);
}

char *cert_path(const char *name)
{
    static char path[4][4096];
    static unsigned next;
    char *out = path[next++ % 4];
    snprintf(out, sizeof path[0], "%s/%s", cert_dir, name);
    return out;
}

void client_connect(struct client *c)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(c->peer->port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    struct qwp_error err;
    ck_assert_msg(qwp_session_connect(c->session, (struct sockaddr *)&address, sizeof address,
                                      c->host, c->peer->port, &err) == QWP_OK,
                  "%s", err.text);
}

static void on_up(void *owner, size_t message_bytes_max)
{
    struct client *c = owner;
    c->ups++;
    c->message_max = message_bytes_max;
    if (c->then != NULL) {
        c->then(c);
    }
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct client *c = owner;
    c->downs++;
    c->down = *down;
    if (c->reconnects_left > 0) {
        c->reconnects_left--;
        c->ok_sequence = -1;
        client_connect(c);
    }
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    struct client *c = owner;
    ck_assert_int_gt(sequence, c->ok_sequence);
    c->oks++;
    c->ok_sequence = sequence;
    c->ok_tables = table_count;
    (void)tables;
    (void)tables_bytes;
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    struct client *c = owner;
    const unsigned char *end = tables + tables_bytes;
    const char *name;
    uint16_t name_len;
    int64_t seq_txn;
    for (int i = 0; i < table_count; i++) {
        tables = qwp_ack_table_next(tables, end, &name, &name_len, &seq_txn);
        ck_assert_ptr_nonnull(tables);
    }
    ck_assert_ptr_null(qwp_ack_table_next(tables, end, &name, &name_len, &seq_txn));
    c->durables++;
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    struct client *c = owner;
    c->rejections++;
    c->rejected_status = status;
    snprintf(c->rejected_text, sizeof c->rejected_text, "%lld:%.*s", (long long)sequence, (int)len,
             text);
}

static void on_writable(void *owner)
{
    ((struct client *)owner)->writables++;
}

static const struct qwp_session_callbacks callbacks = {
    .up = on_up,
    .down = on_down,
    .ok = on_ok,
    .durable = on_durable,
    .rejected = on_rejected,
    .writable = on_writable,
};

void peer_mode(struct peer *peer, int mode)
{
    peer->tls = mode != 0;
    peer->tls_version = mode == 1 ? TLS1_3_VERSION : mode == 2 ? TLS1_2_VERSION : 0;
    peer->cert_path = cert_path("localhost.pem");
}

/* Not connected yet. */
void client_open(struct client *c, struct peer *peer)
{
    c->peer = peer;
    c->host = "localhost";
    c->ok_sequence = -1;
    struct qwp_error err;
    const struct qwp_loop_options loop_options = {.entries = 32, .kind = loop_kind()};
    ck_assert_msg(qwp_loop_open(&c->loop, &loop_options, &err) == QWP_OK, "%s", err.text);
    c->options.loop = c->loop;
    c->options.callbacks = &callbacks;
    c->options.owner = c;
    c->options.client_id = "test/1";
    c->options.tls = c->options.tls || peer->tls;
    if (!c->options.tls_verify && c->options.tls_roots == NULL) {
        c->options.tls_verify = true;
        c->options.tls_roots = cert_path("ca.pem");
    }
    if (c->options.connect_timeout_ns == 0) {
        c->options.connect_timeout_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
        c->options.auth_timeout_ns = (int64_t)DEADLINE_S * QWP_NS_PER_S;
    }
    ck_assert_msg(qwp_session_open(&c->session, &c->options, &err) == QWP_OK, "%s", err.text);
}

void client_close(struct client *c)
{
    qwp_session_close(c->session);
    qwp_loop_close(c->loop);
}

void finish(struct client *c, struct peer *peer)
{
    client_close(c);
    const char *failure = peer_stop(peer);
    ck_assert_msg(failure == NULL, "%s", failure);
}

void expect_down(struct client *c, enum qwp_down_cause cause)
{
    RUN_UNTIL(c, c->downs > 0);
    ck_assert_msg(c->down.cause == cause, "cause %d, expected %d: %s", c->down.cause, cause,
                  c->down.error.text);
    ck_assert_ptr_nonnull(strstr(c->down.error.text, "localhost:"));
}

/* Owner's way to send: whatever is refused is offered again. */
int64_t send_message(struct client *c, const void *bytes, size_t len)
{
    int64_t sequence;
    for (;;) {
        const enum qwp_result result = qwp_session_send(c->session, bytes, len, &sequence);
        if (result == QWP_OK) {
            return sequence;
        }
        ck_assert_int_eq(result, QWP_AGAIN);
        const int before = c->writables;
        RUN_UNTIL(c, c->writables > before);
    }
}

void client_send_two(struct client *c)
{
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(c->session, "one", 3, &sequence), QWP_OK);
    ck_assert_int_eq(qwp_session_send(c->session, "second", 6, &sequence), QWP_OK);
    ck_assert_int_eq(sequence, 1);
}

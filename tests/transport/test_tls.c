/* Aim: the TLS layer keeps its promises to the session: nothing stays inside, records fit the room
 * they were promised, keys change by themselves, and damage of any kind is an error.
 * Method: no socket and no thread: a server object of OpenSSL in memory, bytes carried by hand; TLS
 * 1.3 and 1.2 (_i = 0, 1). */
#include "transport/qwp_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

#include "tests/transport/client.h"

struct pair {
    struct qwp_tls_context *context;
    SSL_CTX *server_context;
    struct qwp_outbox outbox;
    struct qwp_tls client;
    SSL *server;
    BIO *to_server;
    BIO *to_client;
    size_t piece; /* bytes fed to the client at a time */
    unsigned char hold[65536];
    unsigned char got[1 << 20];
    size_t got_len;
    enum qwp_result last;
    int key_updates; /* messages that the server saw */
    struct qwp_error err;
};

static void on_message(int write, int version, int type, const void *bytes, size_t len, SSL *ssl,
                       void *argument)
{
    (void)version;
    (void)ssl;
    if (write == 0 && type == SSL3_RT_HANDSHAKE && len > 0 &&
        *(const unsigned char *)bytes == SSL3_MT_KEY_UPDATE) {
        ((struct pair *)argument)->key_updates++;
    }
}

static void pair_open(struct pair *p, int mode)
{
    const int version = mode == 0 ? TLS1_3_VERSION : TLS1_2_VERSION;
    const struct qwp_tls_options options = {.verify = true, .roots = cert_path("ca.pem")};
    ck_assert_int_eq(qwp_tls_context_create(&p->context, &options, &p->err), QWP_OK);
    ck_assert_int_eq(qwp_outbox_open(&p->outbox, &p->err), QWP_OK);
    ck_assert_int_eq(qwp_tls_open(&p->client, p->context, &p->outbox, "localhost", &p->err),
                     QWP_OK);
    p->server_context = SSL_CTX_new(TLS_server_method());
    const char *path = cert_path("localhost.pem");
    ck_assert_int_eq(SSL_CTX_use_certificate_chain_file(p->server_context, path), 1);
    ck_assert_int_eq(SSL_CTX_use_PrivateKey_file(p->server_context, path, SSL_FILETYPE_PEM), 1);
    SSL_CTX_set_min_proto_version(p->server_context, version);
    SSL_CTX_set_max_proto_version(p->server_context, version);
    p->server = SSL_new(p->server_context);
    p->to_server = BIO_new(BIO_s_mem());
    p->to_client = BIO_new(BIO_s_mem());
    SSL_set_bio(p->server, p->to_server, p->to_client);
    SSL_set_accept_state(p->server);
    SSL_set_msg_callback(p->server, on_message);
    SSL_set_msg_callback_arg(p->server, p);
    p->piece = sizeof p->hold;
    p->last = QWP_AGAIN;
}

static void pair_close(struct pair *p)
{
    qwp_tls_close(&p->client);
    qwp_tls_close(&p->client); /* twice is fine */
    qwp_outbox_close(&p->outbox);
    qwp_tls_context_destroy(p->context);
    SSL_free(p->server);
    SSL_CTX_free(p->server_context);
}

static void carry_to_server(struct pair *p)
{
    const unsigned char *bytes;
    size_t len;
    while ((len = qwp_outbox_take(&p->outbox, &bytes)) > 0) {
        ck_assert_int_eq(BIO_write(p->to_server, bytes, (int)len), (int)len);
        qwp_outbox_sent(&p->outbox, len);
    }
}

static void client_reads(struct pair *p)
{
    if (!SSL_is_init_finished(p->client.ssl)) {
        p->last = qwp_tls_handshake(&p->client, &p->err);
        if (p->last != QWP_OK) {
            return;
        }
    }
    for (;;) {
        size_t got;
        p->last = qwp_tls_read(&p->client, p->got + p->got_len, sizeof p->got - p->got_len, &got,
                               &p->err);
        if (p->last != QWP_OK) {
            return;
        }
        p->got_len += got;
    }
}

/* False: the client has not taken all of it, or failed. */
static bool carry_to_client(struct pair *p)
{
    for (;;) {
        if (!qwp_tls_is_drained(&p->client)) {
            client_reads(p);
            if (!qwp_tls_is_drained(&p->client)) {
                return false;
            }
        }
        const int n = BIO_read(p->to_client, p->hold, (int)p->piece);
        if (n <= 0) {
            return true;
        }
        qwp_tls_feed(&p->client, p->hold, (size_t)n);
        client_reads(p);
        if (p->last != QWP_AGAIN) {
            return false;
        }
    }
}

static void shake_hands(struct pair *p)
{
    client_reads(p);
    for (int turn = 0; turn < 6; turn++) {
        carry_to_server(p);
        ERR_clear_error();
        (void)SSL_do_handshake(p->server);
        (void)carry_to_client(p);
    }
    ck_assert_msg(SSL_is_init_finished(p->client.ssl) && SSL_is_init_finished(p->server), "%s",
                  p->err.text);
    ck_assert_int_eq(p->last, QWP_AGAIN);
}

/* `len` bytes of `fill` from the client arrive at the server. */
static void write_through(struct pair *p, int fill, size_t len)
{
    static unsigned char plain[QWP_TLS_PLAIN_MAX];
    static unsigned char back[QWP_TLS_PLAIN_MAX];
    memset(plain, fill, len);
    ck_assert(qwp_tls_has_room(&p->client));
    ck_assert_msg(qwp_tls_write(&p->client, plain, len, &p->err) == QWP_OK, "%s", p->err.text);
    carry_to_server(p);
    size_t got;
    ERR_clear_error();
    ck_assert_int_eq(SSL_read_ex(p->server, back, sizeof back, &got), 1);
    ck_assert_uint_eq(got, len); /* one record */
    ck_assert_mem_eq(back, plain, len);
}

static struct pair pair;

START_TEST(tls_handshake_and_data_in_pieces_of_any_size)
{
    pair_open(&pair, _i % 2);
    static const size_t pieces[] = {1, 5, 100, 65536};
    pair.piece = pieces[_i / 2];
    shake_hands(&pair);
    ck_assert_str_eq(SSL_get_cipher(pair.client.ssl),
                     _i % 2 == 0 ? "TLS_AES_128_GCM_SHA256" : "ECDHE-ECDSA-AES128-GCM-SHA256");
    unsigned char word[3000];
    memset(word, 'w', sizeof word);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(SSL_write(pair.server, word, sizeof word), sizeof word);
    }
    ck_assert(carry_to_client(&pair));
    ck_assert_uint_eq(pair.got_len, 5 * sizeof word);
    write_through(&pair, 'x', 1);
    write_through(&pair, 'y', QWP_TLS_PLAIN_MAX);
    pair_close(&pair);
}
END_TEST

START_TEST(tls_sixteen_full_records_fit_the_outbox)
{
    pair_open(&pair, _i);
    shake_hands(&pair);
    static unsigned char plain[QWP_TLS_PLAIN_MAX];
    int records = 0;
    while (qwp_tls_has_room(&pair.client)) {
        ck_assert_int_eq(qwp_tls_write(&pair.client, plain, sizeof plain, &pair.err), QWP_OK);
        records++;
    }
    ck_assert_int_eq(records, 16);
    pair_close(&pair);
}
END_TEST

START_TEST(tls_keys_change_by_record_count)
{
    pair_open(&pair, _i);
    pair.client.records_max = 3;
    shake_hands(&pair);
    for (int i = 0; i < 20; i++) {
        write_through(&pair, i, 1000);
    }
    ck_assert_int_eq(pair.key_updates, _i == 0 ? 6 : 0);
    pair_close(&pair);
}
END_TEST

START_TEST(tls_key_updates_of_the_server_are_followed)
{
    pair_open(&pair, 0);
    pair.client.records_max = 2; /* ours and theirs meet */
    shake_hands(&pair);
    for (int i = 0; i < 50; i++) {
        ck_assert_int_eq(SSL_key_update(pair.server, i % 3 == 0 ? SSL_KEY_UPDATE_NOT_REQUESTED
                                                                : SSL_KEY_UPDATE_REQUESTED),
                         1);
        ck_assert_int_eq(SSL_write(pair.server, "hello", 5), 5);
        ck_assert(carry_to_client(&pair));
        ck_assert_uint_eq(pair.got_len, 5u * (unsigned)(i + 1));
        write_through(&pair, i, 100);
    }
    ck_assert_int_ge(pair.key_updates, 33);
    pair_close(&pair);
}
END_TEST

/* A renegotiation is refused by an alert; while that finds no room in the outbox, reading waits. */
START_TEST(tls_answer_without_room_waits_for_it)
{
    pair_open(&pair, 1);
    shake_hands(&pair);
    qwp_outbox_appended(&pair.outbox, qwp_outbox_room(&pair.outbox) - 10);
    SSL_renegotiate(pair.server);
    ERR_clear_error();
    (void)SSL_do_handshake(pair.server);
    (void)carry_to_client(&pair);
    ck_assert_int_eq(pair.last, QWP_AGAIN);
    ck_assert(pair.client.wants_room);
    qwp_outbox_reset(&pair.outbox);
    client_reads(&pair);
    ck_assert_msg(pair.last == QWP_AGAIN, "%s", pair.err.text);
    ck_assert(!pair.client.wants_room);
    /* OpenSSL sends the alert with the next record at the latest; that has room for both. */
    ck_assert(qwp_tls_has_room(&pair.client));
    ck_assert_int_eq(qwp_tls_write(&pair.client, (const unsigned char *)"x", 1, &pair.err), QWP_OK);
    pair_close(&pair);
}
END_TEST

/* Types of the records that wait in the outbox, one a character. */
static const char *record_types(struct pair *p)
{
    static char types[32];
    size_t count = 0;
    const unsigned char *bytes;
    const size_t len = qwp_outbox_take(&p->outbox, &bytes);
    for (size_t at = 0; at + 5 <= len && count + 1 < sizeof types;) {
        types[count++] = bytes[at] == SSL3_RT_HANDSHAKE ? 'h'
                         : bytes[at] == SSL3_RT_ALERT   ? 'a'
                                                        : 'd';
        at += 5u + (size_t)(bytes[at + 3] << 8 | bytes[at + 4]);
    }
    types[count] = '\0';
    qwp_outbox_sent(&p->outbox, len);
    return types;
}

/* TLS 1.2: the server asks for another handshake and gets an alert, not a ClientHello. */
START_TEST(tls_renegotiation_is_refused)
{
    pair_open(&pair, 1);
    shake_hands(&pair);
    SSL_renegotiate(pair.server);
    ERR_clear_error();
    (void)SSL_do_handshake(pair.server);
    ck_assert(carry_to_client(&pair));
    ck_assert_int_eq(qwp_tls_write(&pair.client, (const unsigned char *)"x", 1, &pair.err), QWP_OK);
    ck_assert_str_eq(record_types(&pair), "ad");
    ck_assert_int_eq(SSL_num_renegotiations((SSL *)pair.client.ssl), 0);
    pair_close(&pair);
}
END_TEST

/* Tickets are records without data: nothing to read, nothing to answer. */
START_TEST(tls_session_tickets_say_nothing)
{
    pair_open(&pair, 0);
    shake_hands(&pair);
    for (int i = 0; i < 100; i++) {
        ck_assert_int_eq(SSL_new_session_ticket(pair.server), 1);
        ck_assert_int_eq(SSL_do_handshake(pair.server), 1);
        ck_assert(carry_to_client(&pair));
        ck_assert_int_eq(pair.last, QWP_AGAIN);
    }
    ck_assert_uint_eq(pair.got_len, 0);
    ck_assert(qwp_outbox_is_empty(&pair.outbox));
    ck_assert_int_eq(SSL_write(pair.server, "data", 4), 4);
    ck_assert(carry_to_client(&pair));
    ck_assert_uint_eq(pair.got_len, 4);
    pair_close(&pair);
}
END_TEST

/* An error that somebody else left behind is not ours; ours are not left behind. */
START_TEST(tls_error_queue_of_others_is_no_failure)
{
    pair_open(&pair, _i);
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
    ck_assert_int_eq(qwp_tls_handshake(&pair.client, &pair.err), QWP_AGAIN);
    shake_hands(&pair);
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
    size_t got;
    ck_assert_int_eq(qwp_tls_read(&pair.client, pair.got, sizeof pair.got, &got, &pair.err),
                     QWP_AGAIN);
    ERR_raise(ERR_LIB_USER, ERR_R_INTERNAL_ERROR);
    ck_assert_int_eq(qwp_tls_write(&pair.client, (const unsigned char *)"x", 1, &pair.err), QWP_OK);
    static const unsigned char junk[] = {23, 3, 3, 0, 4, 1, 2, 3, 4};
    qwp_tls_feed(&pair.client, junk, sizeof junk);
    ck_assert_int_eq(qwp_tls_read(&pair.client, pair.got, sizeof pair.got, &got, &pair.err),
                     QWP_PEER);
    ck_assert_uint_eq(ERR_peek_error(), 0);
    pair_close(&pair);
}
END_TEST

START_TEST(tls_close_notify_is_told_from_truncation)
{
    pair_open(&pair, _i);
    shake_hands(&pair);
    ck_assert_int_eq(SSL_write(pair.server, "last", 4), 4);
    SSL_shutdown(pair.server);
    (void)carry_to_client(&pair);
    ck_assert_int_eq(pair.last, QWP_CLOSED);
    ck_assert_uint_eq(pair.got_len, 4);
    qwp_tls_shutdown(&pair.client);
    qwp_tls_shutdown(&pair.client);
    carry_to_server(&pair);
    char byte;
    ck_assert_int_eq(SSL_read(pair.server, &byte, 1), 0);
    ck_assert_int_eq(SSL_get_error(pair.server, 0), SSL_ERROR_ZERO_RETURN);
    pair_close(&pair);
}
END_TEST

/* Any byte of the server's first flight changed: never a handshake that is done. */
START_TEST(tls_damaged_handshake_fails)
{
    for (size_t at = 0;; at += 13) {
        memset(&pair, 0, sizeof pair);
        pair_open(&pair, _i);
        client_reads(&pair);
        carry_to_server(&pair);
        ERR_clear_error();
        (void)SSL_do_handshake(pair.server);
        const int n = BIO_read(pair.to_client, pair.hold, sizeof pair.hold);
        ck_assert_int_gt(n, 500);
        if (at >= (size_t)n) {
            pair_close(&pair);
            break;
        }
        pair.hold[at] ^= 0x10;
        qwp_tls_feed(&pair.client, pair.hold, (size_t)n);
        client_reads(&pair);
        if (pair.last == QWP_AGAIN) {
            /* It waits for bytes that a longer length promised, or TLS 1.2's last flight. */
            carry_to_server(&pair);
            ERR_clear_error();
            (void)SSL_do_handshake(pair.server);
        }
        ck_assert_msg(!(SSL_is_init_finished(pair.client.ssl) && SSL_is_init_finished(pair.server)),
                      "byte %zu", at);
        pair_close(&pair);
    }
}
END_TEST

START_TEST(tls_damaged_record_fails)
{
    pair_open(&pair, _i);
    shake_hands(&pair);
    ck_assert_int_eq(SSL_write(pair.server, "hello", 5), 5);
    const int n = BIO_read(pair.to_client, pair.hold, sizeof pair.hold);
    pair.hold[n - 1] ^= 1;
    qwp_tls_feed(&pair.client, pair.hold, (size_t)n);
    client_reads(&pair);
    ck_assert_int_eq(pair.last, QWP_PEER);
    ck_assert_uint_eq(pair.got_len, 0);
    ck_assert_uint_eq(ERR_peek_error(), 0); /* nothing stale for the next connection */
    pair_close(&pair);
}
END_TEST

int main(void)
{
    client_make_certificates();
    Suite *suite = suite_create("tls");
    TCase *tc = tcase_create("tls");
    tcase_set_timeout(tc, 2 * DEADLINE_S);
    tcase_add_loop_test(tc, tls_handshake_and_data_in_pieces_of_any_size, 0, 8);
    tcase_add_loop_test(tc, tls_sixteen_full_records_fit_the_outbox, 0, 2);
    tcase_add_loop_test(tc, tls_keys_change_by_record_count, 0, 2);
    tcase_add_test(tc, tls_key_updates_of_the_server_are_followed);
    tcase_add_test(tc, tls_answer_without_room_waits_for_it);
    tcase_add_test(tc, tls_renegotiation_is_refused);
    tcase_add_test(tc, tls_session_tickets_say_nothing);
    tcase_add_loop_test(tc, tls_error_queue_of_others_is_no_failure, 0, 2);
    tcase_add_loop_test(tc, tls_close_notify_is_told_from_truncation, 0, 2);
    tcase_add_loop_test(tc, tls_damaged_handshake_fails, 0, 2);
    tcase_add_loop_test(tc, tls_damaged_record_fails, 0, 2);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    client_remove_certificates();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

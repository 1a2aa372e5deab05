/* Aim: the upgrade's answer is taken only when it is exactly right, wherever its bytes are cut.
 * Method: one good answer cut at every offset and flipped at every byte, then bad ones by hand. */
#include "transport/qwp_http_upgrade.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The example of RFC 6455, 1.3. */
static const unsigned char key[16] = "the sample nonce";
#define ACCEPT "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
#define SWITCH                                                                                     \
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"            \
    "Sec-WebSocket-Accept: " ACCEPT "\r\n"

static struct qwp_upgrade upgrade;

/* Feeds in pieces of `piece` bytes; *left is what was not taken. */
static enum qwp_result read_pieces(const char *text, size_t len, size_t piece, size_t *left,
                                   struct qwp_error *err)
{
    qwp_upgrade_init_with_key(&upgrade, key);
    const unsigned char *at = (const unsigned char *)text;
    const unsigned char *end = at + len;
    enum qwp_result result = QWP_AGAIN;
    while (result == QWP_AGAIN && at < end) {
        const size_t n = (size_t)(end - at) < piece ? (size_t)(end - at) : piece;
        const unsigned char *piece_end = at + n;
        result = qwp_upgrade_read(&upgrade, &at, piece_end, err);
        if (result == QWP_AGAIN) {
            ck_assert_ptr_eq(at, piece_end);
        }
    }
    *left = (size_t)(end - at);
    return result;
}

static enum qwp_result read_text(const char *text)
{
    size_t left;
    struct qwp_error err;
    return read_pieces(text, strlen(text), 1 << 20, &left, &err);
}

START_TEST(upgrade_key_and_accept_are_those_of_the_rfc)
{
    qwp_upgrade_init_with_key(&upgrade, key);
    ck_assert_str_eq(upgrade.key, "dGhlIHNhbXBsZSBub25jZQ==");
    ck_assert_str_eq(upgrade.accept, ACCEPT);
    qwp_upgrade_init(&upgrade);
    char first[sizeof upgrade.key];
    memcpy(first, upgrade.key, sizeof first);
    qwp_upgrade_init(&upgrade);
    ck_assert_str_ne(first, upgrade.key);
}
END_TEST

static const char good[] =
    "HTTP/1.1 100 Continue\r\nX-QuestDB-Role: NOT-THIS\r\n\r\n"
    "HTTP/1.1 101 Switching Protocols\r\n"
    "uPGRADE: WebSocket\r\nConnection: keep-alive, upgrade\r\n"
    "Sec-WebSocket-Accept:" ACCEPT " \t\r\nX-QWP-Version: 1\r\nX-QuestDB-Role: PRIMARY\r\n"
    "X-QWP-Max-Batch-Size: 2097138\r\nX-QWP-Durable-Ack: enabled\r\nServer: any: thing\r\n\r\n"
    "\x82\x00";

START_TEST(upgrade_good_answer_cut_anywhere_is_taken)
{
    for (size_t piece = 1; piece < sizeof good; piece++) {
        size_t left;
        struct qwp_error err = {0};
        ck_assert_msg(read_pieces(good, sizeof good - 1, piece, &left, &err) == QWP_OK, "%s",
                      err.text);
        ck_assert_int_eq(upgrade.status, 101);
        ck_assert_uint_eq(upgrade.version, 1);
        ck_assert_uint_eq(upgrade.batch_max, 2097138);
        ck_assert_str_eq(upgrade.role, "PRIMARY");
        ck_assert_str_eq(upgrade.reason, "Switching Protocols");
        ck_assert(upgrade.durable_ack);
        ck_assert_uint_eq(left, 2);
    }
}
END_TEST

START_TEST(upgrade_cut_answer_waits)
{
    for (size_t len = 0; len < sizeof good - 3; len++) {
        size_t left;
        struct qwp_error err;
        ck_assert_int_eq(read_pieces(good, len, 7, &left, &err), QWP_AGAIN);
    }
}
END_TEST

/* No flipped byte may crash or make a wrong accept value pass. */
START_TEST(upgrade_any_byte_changed_is_judged)
{
    char text[sizeof good];
    for (size_t i = 0; i < sizeof good - 1; i++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(text, good, sizeof good);
            text[i] = (char)(text[i] ^ (1 << bit));
            size_t left;
            struct qwp_error err;
            const enum qwp_result result = read_pieces(text, sizeof good - 1, 64, &left, &err);
            if (result == QWP_OK && upgrade.status == 101) {
                ck_assert_ptr_nonnull(strstr(text, ACCEPT));
            }
        }
    }
}
END_TEST

START_TEST(upgrade_bad_answers_are_refused)
{
    static const char *const bad[] = {
        "http/1.1 101 x\r\n\r\n",
        "HTTP/2 101\r\n\r\n",
        "HTTP/1.1 99 x\r\n\r\n",
        "HTTP/1.1 1010 x\r\n\r\n",
        "HTTP/1.1  200 OK\r\n\r\n",
        "HTTP/1.1 20a OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\n folded: x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\n: empty name\r\n\r\n",
        "HTTP/1.1 200 OK\r\nspace before : colon\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbare: \n lf\r\n\r\n",
        "HTTP/1.1 200 OK\r\nbare: \r cr\r\n\r\n",
        "HTTP/1.1 200 OK\r\nnul: \x01\r\n\r\n",
        "HTTP/1.1 101 x\r\n\r\n",
        "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
        "HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: " ACCEPT
        "\r\n\r\n",
        "HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: close\r\n"
        "Sec-WebSocket-Accept: " ACCEPT "\r\n\r\n",
        SWITCH "Sec-WebSocket-Accept: " ACCEPT "\r\n\r\n",
        SWITCH "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n",
        SWITCH "Sec-WebSocket-Protocol: x\r\n\r\n",
        SWITCH "X-QWP-Version: one\r\n\r\n",
        SWITCH "X-QWP-Version: \r\n\r\n",
        SWITCH "X-QWP-Version: 4294967296\r\n\r\n",
        SWITCH "X-QWP-Version: 1\r\nX-QWP-Version: 1\r\n\r\n",
        SWITCH "X-QWP-Max-Batch-Size: -1\r\n\r\n",
        SWITCH "X-QWP-Max-Batch-Size: 0\r\n\r\n",
        SWITCH "X-QWP-Max-Batch-Size: 99999999999999999999999\r\n\r\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        ck_assert_msg(read_text(bad[i]) == QWP_PEER, "taken: %s", bad[i]);
    }
    ck_assert_int_eq(read_text(SWITCH "\r\n"), QWP_OK);
    ck_assert_uint_eq(upgrade.version, 0);
    ck_assert_uint_eq(upgrade.batch_max, 0);
}
END_TEST

START_TEST(upgrade_endless_head_is_bounded)
{
    char *text = malloc(2 * QWP_UPGRADE_ANSWER_MAX);
    size_t len = (size_t)sprintf(text, "HTTP/1.1 200 OK\r\nx: ");
    memset(text + len, 'a', 2 * QWP_UPGRADE_ANSWER_MAX - len);
    size_t left;
    struct qwp_error err;
    ck_assert_int_eq(read_pieces(text, 2 * QWP_UPGRADE_ANSWER_MAX, 100, &left, &err), QWP_LIMIT);
    /* Interim answers for ever, too. */
    static const char interim[] = "HTTP/1.1 103 x\r\n\r\n";
    for (len = 0; len + sizeof interim < 2 * QWP_UPGRADE_ANSWER_MAX; len += sizeof interim - 1) {
        memcpy(text + len, interim, sizeof interim - 1);
    }
    ck_assert_int_eq(read_pieces(text, len, 100, &left, &err), QWP_LIMIT);
    free(text);
}
END_TEST

START_TEST(upgrade_request_has_no_room_for_injection)
{
    static char out[QWP_UPGRADE_REQUEST_MAX];
    static char token[QWP_UPGRADE_REQUEST_MAX];
    size_t len;
    struct qwp_error err = {0};
    qwp_upgrade_init_with_key(&upgrade, key);
    struct qwp_upgrade_request request = {.host = "::1", .port = 9000, .client_id = "a/1"};
    ck_assert_int_eq(qwp_upgrade_write(&upgrade, &request, out, &len, &err), QWP_OK);
    ck_assert_ptr_nonnull(strstr(out, "\r\nHost: [::1]:9000\r\n"));
    ck_assert_ptr_null(strstr(out, "Authorization"));
    ck_assert_ptr_null(strstr(out, "Durable"));
    ck_assert_uint_eq(len, strlen(out));
    ck_assert_str_eq(out + len - 4, "\r\n\r\n");

    request.authorization = "Bearer secret\r\nX: y";
    ck_assert_int_eq(qwp_upgrade_write(&upgrade, &request, out, &len, &err), QWP_INVALID);
    ck_assert_ptr_null(strstr(err.text, "secret"));
    request.authorization = NULL;
    request.host = "a b";
    ck_assert_int_eq(qwp_upgrade_write(&upgrade, &request, out, &len, &err), QWP_INVALID);
    request.host = "example.com";
    request.port = 443;
    memset(token, 'x', sizeof token - 1);
    request.authorization = token;
    ck_assert_int_eq(qwp_upgrade_write(&upgrade, &request, out, &len, &err), QWP_LIMIT);
    token[8192] = '\0';
    ck_assert_int_eq(qwp_upgrade_write(&upgrade, &request, out, &len, &err), QWP_OK);
    ck_assert_ptr_nonnull(strstr(out, "\r\nHost: example.com\r\n"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("http_upgrade");
    TCase *tc = tcase_create("http_upgrade");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, upgrade_key_and_accept_are_those_of_the_rfc);
    tcase_add_test(tc, upgrade_good_answer_cut_anywhere_is_taken);
    tcase_add_test(tc, upgrade_cut_answer_waits);
    tcase_add_test(tc, upgrade_any_byte_changed_is_judged);
    tcase_add_test(tc, upgrade_bad_answers_are_refused);
    tcase_add_test(tc, upgrade_endless_head_is_bounded);
    tcase_add_test(tc, upgrade_request_has_no_room_for_injection);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

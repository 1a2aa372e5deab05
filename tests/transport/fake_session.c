#include "tests/transport/fake_session.h"

#include <check.h>
#include <stdio.h>
#include <sys/un.h>

#include "core/qwp_bytes.h"
#include "transport/qwp_session_internal.h" /* the key of its request */

struct fake_loop fake;
struct qwp_session *session;
static struct qwp_session_options options;
struct told told;

static void on_up(void *owner, size_t message_bytes_max)
{
    (void)owner;
    (void)message_bytes_max;
    told.ups++;
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    (void)owner;
    told.downs++;
    told.cause = down->cause;
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    (void)owner;
    (void)tables;
    (void)tables_bytes;
    (void)table_count;
    told.oks++;
    told.ok_sequence = sequence;
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    (void)owner;
    (void)status;
    (void)text;
    (void)len;
    told.rejections++;
    told.rejected_sequence = sequence;
}

static void on_writable(void *owner)
{
    (void)owner;
}

static const struct qwp_session_callbacks callbacks = {
    .up = on_up, .down = on_down, .ok = on_ok, .rejected = on_rejected, .writable = on_writable};

void fake_take_all(void)
{
    while (fake_has(&fake, QWP_REQUEST_SEND)) {
        fake_complete(&fake, QWP_REQUEST_SEND, (int)fake_request(&fake, QWP_REQUEST_SEND)->len);
    }
}

static void start_connecting(void)
{
    const struct sockaddr_un address = {.sun_family = AF_UNIX};
    ck_assert_int_eq(qwp_session_connect(session, (const struct sockaddr *)&address, sizeof address,
                                         "localhost", 9000, NULL),
                     QWP_OK);
    fake_turn(&fake);
}

void fake_connected(void)
{
    fake_complete(&fake, QWP_REQUEST_CONNECT, 0);
    fake_take_all();
}

void fake_upgraded(void)
{
    char text[256];
    const int len = snprintf(text, sizeof text,
                             "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                             "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n"
                             "X-QWP-Version: 1\r\n\r\n",
                             session->upgrade.accept);
    ck_assert_uint_eq(fake_feed(&fake, text, (size_t)len), (size_t)len);
    ck_assert_int_eq(told.ups, 1);
}

void fake_setup(void)
{
    told = (struct told){.ok_sequence = -1, .rejected_sequence = -1};
    fake_loop_init(&fake);
    options = (struct qwp_session_options){
        .loop = &fake.loop,
        .callbacks = &callbacks,
        .client_id = "test/1",
        .connect_timeout_ns = 10 * S,
        .auth_timeout_ns = 15 * S,
        .ping_idle_ns = 25 * S,
        .ping_waiting_ns = 5 * S,
        .dead_after_ns = 15 * S,
        .clock_ns = fake_clock_ns,
    };
    ck_assert_int_eq(qwp_session_open(&session, &options, NULL), QWP_OK);
    start_connecting();
}

void fake_setup_up(void)
{
    fake_setup();
    fake_connected();
    fake_upgraded();
}

void fake_teardown(void)
{
    qwp_session_close(session);
}

void fake_give(size_t len)
{
    static const unsigned char message[1024 * 1024];
    int64_t sequence;
    ck_assert_int_eq(qwp_session_send(session, message, len, &sequence), QWP_OK);
    fake_turn(&fake);
}

void fake_send(size_t len)
{
    fake_give(len);
    fake_take_all();
}

void fake_says(const void *bytes, size_t len)
{
    ck_assert_uint_eq(fake_feed(&fake, bytes, len), len);
}

static void say_answer(uint8_t status, int64_t sequence)
{
    unsigned char frame[13] = {0x82, 11, status};
    qwp_store_i64(frame + 3, sequence); /* then no tables, or no text */
    fake_says(frame, sizeof frame);
}

void fake_says_ok(int64_t sequence)
{
    say_answer(QWP_STATUS_OK, sequence);
}

void fake_says_error(int64_t sequence)
{
    say_answer(QWP_STATUS_SCHEMA_MISMATCH, sequence);
}

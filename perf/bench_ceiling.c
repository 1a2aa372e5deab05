/* Question: how fast do finished messages travel, with nothing but the transport under them?
 *
 * One process encodes a message of 1,000 trade rows (6 columns) once and sends it over and over
 * through qwp_session: no ring, no gathering, no store. It is the ceiling that the whole product is
 * held against in bench_e2e.py, over the same server in the same run.
 *
 * Guess made beforehand: 25 million rows/s over TLS on two quiet cores, 40 without.
 *
 *   bench_ceiling --conf STRING [--messages N] [--window N]      prints one JSON object
 *   bench_ceiling --smoke                                        only encodes */
#include <getopt.h>
#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "core/conf/qwp_conf.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_encode.h"
#include "core/wire/qwp_message.h"
#include "transport/qwp_session.h"

enum { ROWS = 1000, SYMBOLS = 100, RECORD_BYTES = 64, MESSAGE_ROOM = 1024 * 1024 };
#define T0 INT64_C(1700000000000000000)

struct message {
    unsigned char *bytes;
    size_t len;
};

struct bench {
    struct message first; /* brings the symbols */
    struct message next;
    uint64_t messages;
    uint64_t window; /* most messages that wait for their answer */
    uint64_t sent;
    uint64_t acked;
    bool is_full; /* send said QWP_AGAIN */
    bool is_over;
    struct qwp_session *session;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_ceiling: %s: %s\n", what, why);
    exit(1);
}

/* ---- the message ---- */

static struct qwp_name symbol_text(const void *dict, uint32_t id)
{
    static char text[16];
    (void)dict;
    return (struct qwp_name){text, (uint32_t)snprintf(text, sizeof text, "sym-%u", id)};
}

#define NAME(text)                                                                                 \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }
static const struct qwp_column_def columns[] = {
    {NAME("symbol"), QWP_TYPE_SYMBOL, 0}, {NAME("side"), QWP_TYPE_SYMBOL, 0},
    {NAME("price"), QWP_TYPE_DOUBLE, 0},  {NAME("amount"), QWP_TYPE_DOUBLE, 0},
    {NAME("id"), QWP_TYPE_LONG, 0},       {NAME("maker"), QWP_TYPE_BOOLEAN, 0},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void fill_record(unsigned char *record, const struct qwp_shape *shape, uint32_t row)
{
    qwp_store_u32(record, RECORD_BYTES);
    qwp_store_i64(record + shape->designated_off, T0 + row * INT64_C(1000));
    qwp_store_u32(record + shape->columns[0].off, row % SYMBOLS);
    qwp_store_u32(record + shape->columns[1].off, row & 1);
    const double price = 0.01 * row;
    const double amount = price;
    memcpy(record + shape->columns[2].off, &price, sizeof price);
    memcpy(record + shape->columns[3].off, &amount, sizeof amount);
    qwp_store_u64(record + shape->columns[4].off, row);
    record[shape->columns[5].off] = row & 1;
}

/* Encodes the block behind header and dictionary. */
static struct message make_message(const struct qwp_block *block, uint32_t symbol_count)
{
    static struct qwp_encoder encoder;
    struct qwp_encoded done;
    struct message message = {malloc(MESSAGE_ROOM), 0};
    if (message.bytes == NULL) {
        die("message", "no memory");
    }
    unsigned char *at = qwp_message_begin(message.bytes, QWP_FLAG_GORILLA | QWP_FLAG_DELTA_DICT);
    at = qwp_delta_put(at, symbol_count > 0 ? 0 : SYMBOLS, symbol_count, symbol_text, NULL);
    if (qwp_block_encode(&encoder, block, QWP_ENCODE_GORILLA, at, &done) != QWP_OK) {
        die("encode", done.fault.what);
    }
    message.len = (size_t)(at - message.bytes) + done.len;
    qwp_message_finish(message.bytes, (uint16_t)done.table_count, message.len);
    return message;
}

static void make_messages(struct bench *bench)
{
    static unsigned char memory[ROWS][RECORD_BYTES] __attribute__((aligned(64)));
    static const unsigned char *records[ROWS];
    static const uint64_t null_words[4];
    static const uint64_t *steering[ROWS];
    struct qwp_shape *shape;
    struct qwp_error err;
    struct qwp_block_column block_columns[COLUMNS];
    uint16_t fields[COLUMNS];
    uint32_t codes[SYMBOLS];
    if (qwp_shape_create(&shape, (struct qwp_name)NAME("trades"), columns, COLUMNS,
                         QWP_TYPE_TIMESTAMP_NANOS, &err) != QWP_OK) {
        die("shape", err.text);
    }
    for (uint32_t i = 0; i < COLUMNS; i++) {
        fields[i] = (uint16_t)i;
        block_columns[i] = (struct qwp_block_column){columns[i].name, columns[i].type, 0};
    }
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        codes[i] = qwp_symbol_code(i);
    }
    for (uint32_t row = 0; row < ROWS; row++) {
        fill_record(memory[row], shape, row);
        records[row] = memory[row];
        steering[row] = null_words;
    }
    const struct qwp_run run = {.shape = shape,
                                .field_of_column = fields,
                                .symbol_codes = codes,
                                .symbol_count = SYMBOLS,
                                .row_count = ROWS,
                                .null_any = null_words};
    const struct qwp_block block = {.table = shape->table,
                                    .columns = block_columns,
                                    .column_count = COLUMNS,
                                    .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
                                    .runs = &run,
                                    .run_count = 1,
                                    .records = records,
                                    .steering = steering,
                                    .row_count = ROWS};
    bench->first = make_message(&block, SYMBOLS);
    bench->next = make_message(&block, 0);
    qwp_shape_destroy(shape);
}

/* ---- the connection ---- */

static void send_more(struct bench *bench)
{
    bench->is_full = false;
    while (!bench->is_full && bench->sent < bench->messages &&
           bench->sent - bench->acked < bench->window) {
        const struct message *message = bench->sent == 0 ? &bench->first : &bench->next;
        int64_t sequence;
        const enum qwp_result result =
            qwp_session_send(bench->session, message->bytes, message->len, &sequence);
        if (result == QWP_OK) {
            bench->sent++;
        } else if (result == QWP_AGAIN) {
            bench->is_full = true;
        } else {
            die("send", qwp_result_name(result));
        }
    }
}

static void on_up(void *owner, size_t message_bytes_max)
{
    struct bench *bench = owner;
    if (bench->first.len > message_bytes_max) {
        die("server", "takes no messages as large as ours");
    }
    send_more(bench);
}

static void on_down(void *owner, const struct qwp_session_down *down)
{
    struct bench *bench = owner;
    if (bench->acked < bench->messages) {
        die("connection", down->error.text);
    }
    bench->is_over = true;
}

static void on_ok(void *owner, int64_t sequence, const unsigned char *tables, size_t tables_bytes,
                  uint16_t table_count)
{
    struct bench *bench = owner;
    (void)tables, (void)tables_bytes, (void)table_count;
    bench->acked = (uint64_t)sequence + 1;
    send_more(bench);
}

static void on_durable(void *owner, const unsigned char *tables, size_t tables_bytes,
                       uint16_t table_count)
{
    (void)owner, (void)tables, (void)tables_bytes, (void)table_count;
}

static void on_rejected(void *owner, int64_t sequence, uint8_t status, const char *text, size_t len)
{
    char why[256];
    (void)owner, (void)sequence, (void)status;
    snprintf(why, sizeof why, "%.*s", (int)len, text);
    die("rejected", why);
}

static void on_writable(void *owner)
{
    send_more(owner);
}

static void connect_first(struct bench *bench, const struct qwp_conf *conf)
{
    struct qwp_error err;
    struct addrinfo *found;
    char port[8];
    const struct qwp_endpoint *endpoint = &conf->endpoints.list[0];
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    if (getaddrinfo(endpoint->host, port, &hints, &found) != 0) {
        die("resolve", endpoint->host);
    }
    if (qwp_session_connect(bench->session, found->ai_addr, found->ai_addrlen, endpoint->host,
                            endpoint->port, &err) != QWP_OK) {
        die("connect", err.text);
    }
    freeaddrinfo(found);
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void run(struct bench *bench, const struct qwp_conf *conf)
{
    static const struct qwp_session_callbacks callbacks = {.up = on_up,
                                                           .down = on_down,
                                                           .ok = on_ok,
                                                           .durable = on_durable,
                                                           .rejected = on_rejected,
                                                           .writable = on_writable};
    struct qwp_error err;
    struct qwp_loop *loop;
    const struct qwp_loop_options loop_options = {0};
    if (qwp_loop_open(&loop, &loop_options, &err) != QWP_OK) {
        die("loop", err.text);
    }
    const struct qwp_session_options options = {
        .loop = loop,
        .callbacks = &callbacks,
        .owner = bench,
        .client_id = "bench_ceiling/" QWP_VERSION,
        .tls = conf->tls,
        .tls_verify = conf->tls_verify == QWP_TLS_VERIFY_ON,
        .tls_roots = conf->tls_roots,
        .authorization = conf->authorization,
        .connect_timeout_ns = QWP_NEVER_NS,
        .auth_timeout_ns = conf->auth_timeout_ns,
        .dead_after_ns = INT64_C(15) * QWP_NS_PER_S,
    };
    if (qwp_session_open(&bench->session, &options, &err) != QWP_OK) {
        die("session", err.text);
    }
    connect_first(bench, conf);
    int64_t start_ns = 0;
    double cpu_before_s = 0;
    while (bench->acked < bench->messages) {
        (void)!qwp_loop_run(loop, QWP_NEVER_NS);
        if (start_ns == 0 && bench->sent > 0) { /* connected: begin to count */
            start_ns = qwp_clock_monotonic_ns();
            cpu_before_s = cpu_s();
        }
    }
    const double seconds = 1e-9 * (double)(qwp_clock_monotonic_ns() - start_ns);
    const double rows = (double)bench->messages * ROWS;
    struct qwp_session_counters counters;
    qwp_session_count(bench->session, &counters);
    printf("{\"rows\":%.0f,\"seconds\":%.6f,\"rows_per_s\":%.0f,\"cpu_s\":%.6f,"
           "\"message_bytes\":%zu,\"bytes_sent\":%llu}\n",
           rows, seconds, rows / seconds, cpu_s() - cpu_before_s, bench->next.len,
           (unsigned long long)counters.bytes_sent);
    qwp_session_disconnect(bench->session, QWP_NS_PER_S);
    while (!bench->is_over) {
        (void)!qwp_loop_run(loop, QWP_NEVER_NS);
    }
    qwp_session_close(bench->session);
    qwp_loop_close(loop);
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {{"conf", required_argument, NULL, 'c'},
                                                 {"messages", required_argument, NULL, 'm'},
                                                 {"window", required_argument, NULL, 'w'},
                                                 {"smoke", no_argument, NULL, 's'},
                                                 {NULL, 0, NULL, 0}};
    struct bench bench = {.messages = 20000, .window = 64};
    struct qwp_conf conf = {0};
    struct qwp_error err;
    const char *conf_text = NULL;
    bool smoke = false;
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (id) {
        case 'c':
            conf_text = optarg;
            break;
        case 'm':
            bench.messages = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            bench.window = strtoull(optarg, NULL, 10);
            break;
        case 's':
            smoke = true;
            break;
        default:
            return 2;
        }
    }
    make_messages(&bench);
    if (smoke) {
        printf("message of %d rows: %zu bytes\n", ROWS, bench.next.len);
    } else {
        if (qwp_conf_load(&conf, conf_text, NULL, &err) != QWP_OK) {
            die("conf", err.text);
        }
        run(&bench, &conf);
    }
    qwp_conf_fini(&conf);
    free(bench.first.bytes);
    free(bench.next.bytes);
    return 0;
}

/* hot_path: fields stored at known places, for producers that count nanoseconds.
 *
 *   hot_path [--rings DIR] */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <qwp.h>

enum { ROWS = 100000, SYMBOLS = 3 };

struct quotes {
    struct qwp_producer *producer;
    const struct qwp_layout *layout;
    uint32_t symbol_off;
    uint32_t bid_off;
    uint32_t ask_off;
    uint32_t at_off;
    uint32_t symbols[SYMBOLS]; /* handles */
};

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum qwp_result prepare(struct quotes *q, struct qwp_error *err)
{
    static const struct qwp_column columns[] = {
        {"symbol", QWP_SYMBOL, 0}, {"bid", QWP_DOUBLE, 0}, {"ask", QWP_DOUBLE, 0}};
    static const uint32_t all[] = {0, 1, 2};
    static const char *const names[SYMBOLS] = {"EURUSD", "GBPUSD", "USDJPY"};
    struct qwp_table *table;
    enum qwp_result result = qwp_table_define(q->producer, "quotes", columns, 3, &table, err);
    if (result == QWP_OK) {
        result = qwp_layout_define(table, all, 3, QWP_AT_NS, &q->layout, err);
    }
    for (int i = 0; result == QWP_OK && i < SYMBOLS; i++) {
        result = qwp_symbol_intern(q->producer, names[i], strlen(names[i]), &q->symbols[i], err);
    }
    if (result == QWP_OK) {
        q->symbol_off = qwp_layout_offset(q->layout, 0);
        q->bid_off = qwp_layout_offset(q->layout, 1);
        q->ask_off = qwp_layout_offset(q->layout, 2);
        q->at_off = qwp_layout_at_offset(q->layout);
    }
    return result;
}

/* The whole of what a row costs: two calls and four stores. */
static enum qwp_result write_quote(struct quotes *q, uint32_t symbol, double bid, double ask,
                                   int64_t at_ns)
{
    void *row;
    const enum qwp_result result = qwp_row_reserve(q->producer, q->layout, 0, &row);
    if (result != QWP_OK) {
        return result;
    }
    char *at = row;
    memcpy(at + q->symbol_off, &symbol, sizeof symbol);
    memcpy(at + q->bid_off, &bid, sizeof bid);
    memcpy(at + q->ask_off, &ask, sizeof ask);
    memcpy(at + q->at_off, &at_ns, sizeof at_ns);
    return qwp_row_publish(q->producer);
}

int main(int argc, char **argv)
{
    struct qwp_producer_options options = {
        .name = "hot-path", .ring_bytes = 8 << 20, .on_full = QWP_FULL_FAIL};
    if (argc == 3 && strcmp(argv[1], "--rings") == 0) {
        options.dir = argv[2];
    }
    struct quotes quotes = {0};
    struct qwp_error err;
    enum qwp_result result = qwp_producer_open(&quotes.producer, &options, &err);
    if (result == QWP_OK) {
        result = prepare(&quotes, &err);
    }
    if (result != QWP_OK) {
        fprintf(stderr, "hot_path: %s: %s\n", qwp_result_name(result), err.text);
        qwp_producer_close(quotes.producer);
        return 1;
    }
    const int64_t begin_ns = now_ns();
    for (int i = 0; result == QWP_OK && i < ROWS; i++) {
        result = write_quote(&quotes, quotes.symbols[i % SYMBOLS], 1.1 + i, 1.2 + i, begin_ns + i);
    }
    const int64_t took_ns = now_ns() - begin_ns;
    printf("%s: %d rows, %.1f ns each%s\n", qwp_result_name(result), ROWS, (double)took_ns / ROWS,
           qwp_consumer_state(quotes.producer) == QWP_CONSUMER_NONE
               ? "; no sidecar runs, they wait in the ring for it"
               : "");
    qwp_producer_close(quotes.producer);
    return result == QWP_OK ? 0 : 1;
}

/* trades: rows column by column, with the builder.
 *
 *   trades [--rings DIR]      default: $QWP_RINGS, else /dev/shm/qwp */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <qwp.h>

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static enum qwp_result write_trade(struct qwp_table *trades, const char *symbol, double price,
                                   int64_t amount, struct qwp_error *err)
{
    struct qwp_row *row = qwp_row_begin(trades);
    qwp_row_symbol(row, 0, symbol, strlen(symbol));
    qwp_row_double(row, 1, price);
    qwp_row_long(row, 2, amount);
    /* `note` is not set: null. A mistake in any of the calls above is told here. */
    return qwp_row_at_ns(row, now_ns(), err);
}

int main(int argc, char **argv)
{
    struct qwp_producer_options options = {.name = "trades"};
    if (argc == 3 && strcmp(argv[1], "--rings") == 0) {
        options.dir = argv[2];
    }
    const struct qwp_column columns[] = {
        {"symbol", QWP_SYMBOL, 0},
        {"price", QWP_DOUBLE, 0},
        {"amount", QWP_LONG, 0},
        {"note", QWP_VARCHAR, 0},
    };
    struct qwp_producer *producer = NULL;
    struct qwp_table *trades;
    struct qwp_error err;
    enum qwp_result result = qwp_producer_open(&producer, &options, &err);
    if (result == QWP_OK) {
        result = qwp_table_define(producer, "trades", columns, 4, &trades, &err);
    }
    for (int i = 0; result == QWP_OK && i < 1000; i++) {
        result = write_trade(trades, i % 2 == 0 ? "ETH-USD" : "BTC-USD", 2615.54 + i, i, &err);
    }
    if (result != QWP_OK) {
        fprintf(stderr, "trades: %s: %s\n", qwp_result_name(result), err.text);
        qwp_producer_close(producer);
        return 1;
    }

    /* A mistake, to see what it says. */
    struct qwp_row *row = qwp_row_begin(trades);
    qwp_row_long(row, 1, 2615);
    result = qwp_row_at_ns(row, now_ns(), &err);
    printf("as expected: %s: %s\n", qwp_result_name(result), err.text);

    struct qwp_counters counters;
    qwp_producer_count(producer, &counters);
    printf("%llu rows published, %llu stored by the sidecar so far%s\n",
           (unsigned long long)counters.rows_published, (unsigned long long)counters.rows_stored,
           qwp_consumer_state(producer) == QWP_CONSUMER_NONE
               ? "; none runs, the rows wait in the ring for it"
               : "");
    qwp_producer_close(producer); /* what is published stays */
    return 0;
}

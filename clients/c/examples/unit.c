/* unit: several rows of two tables that are stored together or not at all.
 *
 *   unit [--rings DIR] */
#include <stdio.h>
#include <string.h>

#include <qwp.h>

struct book {
    struct qwp_producer *producer;
    struct qwp_table *orders;
    struct qwp_table *fills;
};

static enum qwp_result prepare(struct book *book, struct qwp_error *err)
{
    static const struct qwp_column orders[] = {{"order", QWP_LONG, 0}, {"state", QWP_SYMBOL, 0}};
    static const struct qwp_column fills[] = {{"order", QWP_LONG, 0}, {"price", QWP_DOUBLE, 0}};
    const enum qwp_result result =
        qwp_table_define(book->producer, "orders", orders, 2, &book->orders, err);
    return result != QWP_OK
               ? result
               : qwp_table_define(book->producer, "fills", fills, 2, &book->fills, err);
}

/* A fill and the order's new state. On any failure nothing of it is left. */
static enum qwp_result fill_order(struct book *book, int64_t order, double price, int64_t at_us,
                                  struct qwp_error *err)
{
    enum qwp_result result = qwp_unit_begin(book->producer, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_row *row = qwp_row_begin(book->fills);
    qwp_row_long(row, 0, order);
    qwp_row_double(row, 1, price);
    result = qwp_row_at_us(row, at_us, err);
    if (result == QWP_OK) {
        row = qwp_row_begin(book->orders);
        qwp_row_long(row, 0, order);
        qwp_row_symbol(row, 1, "filled", 6);
        result = qwp_row_at_us(row, at_us, err);
    }
    if (result != QWP_OK) {
        qwp_unit_abort(book->producer);
        return result;
    }
    return qwp_unit_publish(book->producer, err);
}

int main(int argc, char **argv)
{
    struct qwp_producer_options options = {.name = "unit"};
    if (argc == 3 && strcmp(argv[1], "--rings") == 0) {
        options.dir = argv[2];
    }
    struct book book = {0};
    struct qwp_error err;
    enum qwp_result result = qwp_producer_open(&book.producer, &options, &err);
    if (result == QWP_OK) {
        result = prepare(&book, &err);
    }
    for (int64_t order = 1; result == QWP_OK && order <= 100; order++) {
        result = fill_order(&book, order, 100.25, 1700000000000000 + order, &err);
    }
    if (result != QWP_OK) {
        fprintf(stderr, "unit: %s: %s\n", qwp_result_name(result), err.text);
        qwp_producer_close(book.producer);
        return 1;
    }
    /* One that fails half-way: its first row is not published either. */
    result = fill_order(&book, 101, 100.25, -1, &err);
    printf("as expected: %s: %s\n", qwp_result_name(result), err.text);
    struct qwp_counters counters;
    qwp_producer_count(book.producer, &counters);
    printf("%llu rows published in 100 units%s\n", (unsigned long long)counters.rows_published,
           qwp_consumer_state(book.producer) == QWP_CONSUMER_NONE
               ? "; no sidecar runs, they wait in the ring for it"
               : "");
    qwp_producer_close(book.producer);
    return 0;
}

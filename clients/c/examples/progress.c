/* progress: how to know that rows are stored by the sidecar, and acknowledged by the server.
 *
 *   progress [--rings DIR] */
#include <stdio.h>
#include <string.h>

#include <qwp.h>

#define SECOND_NS INT64_C(1000000000)

static enum qwp_result write_rows(struct qwp_producer *producer, struct qwp_error *err)
{
    const struct qwp_column columns[] = {{"sensor", QWP_SYMBOL, 0}, {"celsius", QWP_FLOAT, 0}};
    struct qwp_table *table;
    enum qwp_result result = qwp_table_define(producer, "temperatures", columns, 2, &table, err);
    for (int i = 0; result == QWP_OK && i < 1000; i++) {
        struct qwp_row *row = qwp_row_begin(table);
        qwp_row_symbol(row, 0, "roof", 4);
        qwp_row_float(row, 1, 20.5f + (float)(i % 10));
        result = qwp_row_at_now(row, err); /* the server's time */
    }
    return result;
}

/* True when there is nothing more to wait for. */
static bool report(const char *what, enum qwp_result result, const struct qwp_error *err)
{
    switch (result) {
    case QWP_OK:
        printf("%s\n", what);
        return false;
    case QWP_AGAIN: /* not yet: wait again, or do something else */
        printf("not yet %s: %s\n", what, err->text);
        return true;
    case QWP_REJECTED: /* settled, but not all of it by the server */
    case QWP_CLOSED:   /* the sidecar does not read this ring any more */
    default:
        printf("%s: %s\n", qwp_result_name(result), err->text);
        return true;
    }
}

int main(int argc, char **argv)
{
    struct qwp_producer_options options = {.name = "progress"};
    if (argc == 3 && strcmp(argv[1], "--rings") == 0) {
        options.dir = argv[2];
    }
    struct qwp_producer *producer = NULL;
    struct qwp_error err;
    enum qwp_result result = qwp_producer_open(&producer, &options, &err);
    if (result == QWP_OK) {
        result = write_rows(producer, &err);
    }
    if (result != QWP_OK) {
        fprintf(stderr, "progress: %s: %s\n", qwp_result_name(result), err.text);
        qwp_producer_close(producer);
        return 1;
    }
    /* Everything up to here; later rows do not make the wait longer. */
    const uint64_t position = qwp_position_published(producer);
    switch (qwp_consumer_state(producer)) {
    case QWP_CONSUMER_NONE:
        printf("no sidecar runs; %llu bytes wait in the ring for it\n",
               (unsigned long long)(position - qwp_position_stored(producer)));
        break;
    case QWP_CONSUMER_REFUSED: {
        char reason[256];
        qwp_consumer_reason(producer, reason, sizeof reason);
        printf("the sidecar does not read this ring: %s\n", reason);
        break;
    }
    case QWP_CONSUMER_RUNNING:
    case QWP_CONSUMER_CLOSING:
        result = qwp_wait_stored(producer, position, 5 * SECOND_NS, &err);
        if (!report("stored", result, &err)) {
            result = qwp_wait_acked(producer, position, 30 * SECOND_NS, &err);
            report("acknowledged", result, &err);
        }
        break;
    }
    qwp_producer_close(producer);
    return 0;
}

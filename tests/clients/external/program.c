/* What a user's first program does, by the installed header alone. argv[1]: rings directory. */
#include <qwp.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    struct qwp_producer_options options = {0};
    struct qwp_producer *producer;
    struct qwp_table *table;
    struct qwp_error err;
    const struct qwp_column column = {"n", QWP_LONG, 0};
    struct qwp_row *row;
    options.dir = argc > 1 ? argv[1] : NULL;
    if (qwp_producer_open(&producer, &options, &err) != QWP_OK ||
        qwp_table_define(producer, "t", &column, 1, &table, &err) != QWP_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    row = qwp_row_begin(table);
    qwp_row_long(row, 0, 42);
    if (qwp_row_at_now(row, &err) != QWP_OK) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    printf("%s %s %d\n", qwp_version(), qwp_result_name(QWP_OK),
           (int)qwp_position_published(producer));
    qwp_producer_close(producer);
    return 0;
}

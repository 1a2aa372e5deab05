/* qwp_feed_parser: what the parsers of all formats have in common.
 *
 * Input comes in blocks of whole records (qwp_feed_cut.h). A parser is given one block after
 * another and asked for its rows, one at a time. A bad record is told with its place, and the
 * parser stands behind it: asking on skips it.
 *
 * Threads: one. Progress: nothing is allocated per row, only at what is new: a table, a column, a
 * set of columns, a symbol, a series of tags.
 * Trust:   input may be anything. QWP_FEED_SLACK_BYTES behind the block are readable, and the first
 *          of them is a newline. */
#ifndef QWP_FEED_PARSER_H
#define QWP_FEED_PARSER_H

#include <stddef.h>

#include "clients/c/feed/qwp_feed_catalog.h"
#include "clients/c/feed/qwp_feed_number.h"
#include "clients/c/feed/qwp_feed_row.h"
#include "clients/c/feed/qwp_feed_symbols.h"
#include "clients/c/feed/qwp_feed_time.h"

/* How rows get their designated timestamp. */
enum qwp_feed_at_choice {
    QWP_FEED_AT_AUTO = 0, /* ns as ns, coarser ones as us */
    QWP_FEED_AT_NS,
    QWP_FEED_AT_US,
    QWP_FEED_AT_SERVER, /* that of the input is left out */
};

struct qwp_feed_bad {
    size_t off; /* of the record, within the block */
    size_t len;
    struct qwp_error err;
};

/* Everything a parser shares with the rest of its process. */
struct qwp_feed_context {
    struct qwp_feed_catalog *catalog;
    struct qwp_feed_symbols *symbols;
    enum qwp_feed_at_choice at;
    const char *table; /* overrides the input's, NULL: none */
};

/* A count of `unit` as the timestamp of a row. False when it does not fit. */
static inline bool qwp_feed_at(enum qwp_feed_at_choice choice, int64_t value,
                               enum qwp_feed_unit unit, enum qwp_at *at, int64_t *out)
{
    if (choice == QWP_FEED_AT_SERVER) {
        *at = QWP_AT_SERVER;
        *out = 0;
        return true;
    }
    const bool ns = choice == QWP_FEED_AT_NS || (choice == QWP_FEED_AT_AUTO && unit == QWP_FEED_NS);
    const enum qwp_feed_unit to = ns ? QWP_FEED_NS : QWP_FEED_US;
    *at = ns ? QWP_AT_NS : QWP_AT_US;
    *out = value;
    return unit == to || qwp_feed_unit_convert(value, unit, to, out);
}

#endif

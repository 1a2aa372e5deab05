/* qwp_feed_ilp: rows from the InfluxDB line protocol, as QuestDB reads it.
 *
 *     table[,tag=value]... [field=value[,field=value]...] [timestamp]
 *
 * Tags become SYMBOL columns; an empty tag or field is a null. Fields by their form:
 *
 *     12i        LONG                        "text"            VARCHAR
 *     12u        LONG, if it fits            t true T f ...    BOOLEAN
 *     0xfi       LONG256                     1.5 2e9 nan inf   DOUBLE
 *     12t  12n   TIMESTAMP, TIMESTAMP_NS
 *
 * In names and tags a backslash takes the meaning from , = space " \ and a line's end; in strings
 * from " \ and a line's end; before anything else it is an ordinary character. A string may hold
 * line ends. The timestamp is in the unit of the options, or says so itself (12t: us, 12n: ns);
 * without one the server gives it. Lines that begin with # and blank ones are skipped; CRLF is
 * fine.
 *
 * A column keeps its first type; other forms are converted where nothing is lost, else refused.
 *
 * Speed: lines repeat themselves. The text before the first space (table and tags) is looked up as
 * a whole, first where it followed the last time, and the fields are expected to be those of the
 * line before; a line that differs takes the general way, which also makes all the messages. */
#ifndef QWP_FEED_ILP_H
#define QWP_FEED_ILP_H

#include "clients/c/feed/qwp_feed_parser.h"

struct qwp_feed_ilp;

/* Keeps the context's pointers. NULL: no memory. */
struct qwp_feed_ilp *qwp_feed_ilp_create(const struct qwp_feed_context *context,
                                         enum qwp_feed_unit unit);
void qwp_feed_ilp_destroy(struct qwp_feed_ilp *ilp);

void qwp_feed_ilp_begin(struct qwp_feed_ilp *ilp, const char *data, size_t len);
/* QWP_OK: *row; QWP_AGAIN: the block has no more; QWP_INVALID and others: *bad tells. */
QWP_MUST_USE enum qwp_result qwp_feed_ilp_next(struct qwp_feed_ilp *ilp, struct qwp_feed_row *row,
                                               struct qwp_feed_bad *bad);
/* Where the record of the last row lies in its block. */
void qwp_feed_ilp_last(const struct qwp_feed_ilp *ilp, size_t *off, size_t *len);

/* Length of the record at the start of `data`, with its line end; 0 when it does not end there. */
size_t qwp_feed_ilp_record(const char *data, size_t len);

#endif

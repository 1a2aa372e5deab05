/* qwp_feed_catalog: the tables, columns and shapes seen so far in this process.
 *
 * Names are compared without regard to case and checked as they come in, so a bad one is an error
 * of the line that has it. A table's column keeps the type it was first seen with; the parsers
 * convert to it or refuse.
 *
 * Sparse input makes a new set of columns in nearly every row. So that shapes stay few, a table
 * with more than QWP_FEED_SHAPES_MAX of them gets wide ones, of all its columns: absent columns are
 * then nulls.
 *
 * Threads: one. Ownership: everything lives until the catalog is closed. */
#ifndef QWP_FEED_CATALOG_H
#define QWP_FEED_CATALOG_H

#include <stddef.h>

#include "clients/c/feed/qwp_feed_arena.h"
#include "clients/c/feed/qwp_feed_row.h"

enum { QWP_FEED_SHAPES_MAX = 64 /* a table, before it gets wide */ };

/* Open addressing from a hash to something numbered. */
struct qwp_feed_slots {
    struct qwp_feed_slot *slots;
    uint32_t slot_count; /* power of two, or 0 */
    uint32_t used;
};

struct qwp_feed_catalog {
    struct qwp_feed_arena arena;
    struct qwp_feed_table **tables; /* by index */
    uint32_t table_count;
    uint32_t table_room;
    struct qwp_feed_shape **shapes; /* by index */
    uint32_t shape_count;
    uint32_t shape_room;
    struct qwp_feed_slots table_slots;
    struct qwp_feed_slots column_slots;
    struct qwp_feed_slots shape_slots;
    const char *seq_column; /* names that the feed adds itself and input may not use; NULL: none */
    const char *producer_column;
};

/* All zero is an empty catalog. Closing frees all and leaves it so. */
void qwp_feed_catalog_close(struct qwp_feed_catalog *catalog);

/* Finds or adds. QWP_INVALID: a bad name, with the reason; QWP_LIMIT; QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_feed_catalog_table(struct qwp_feed_catalog *catalog,
                                                    const char *name, size_t len,
                                                    struct qwp_feed_table **out,
                                                    struct qwp_error *err);
/* Finds (whatever its type is: see out's entry in table->columns) or adds. Errors as above. */
QWP_MUST_USE enum qwp_result qwp_feed_catalog_column(struct qwp_feed_catalog *catalog,
                                                     struct qwp_feed_table *table, const char *name,
                                                     size_t len, uint8_t type, uint8_t parameter,
                                                     uint32_t *out, struct qwp_error *err);
/* Finds or adds the shape with these columns in this order, or a wide one: then *out has other
 * columns than were asked for, in the table's order (column c at place c). QWP_INVALID when a
 * column comes twice. */
QWP_MUST_USE enum qwp_result qwp_feed_catalog_shape(struct qwp_feed_catalog *catalog,
                                                    struct qwp_feed_table *table, enum qwp_at at,
                                                    const uint32_t *columns, size_t column_count,
                                                    const struct qwp_feed_shape **out, bool *wide,
                                                    struct qwp_error *err);

#endif

/* qwp_feed_row: a row between a parser and whatever takes it (a ring, or a counter).
 *
 * A shape says which columns of which table a row has, and is the same object for all rows alike,
 * so that both sides prepare once per shape what they need per row. A row is then an array of
 * values in the shape's order and a timestamp. Everything a row points to belongs to the parser and
 * holds until it is asked for the next one. */
#ifndef QWP_FEED_ROW_H
#define QWP_FEED_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/qwp.h"

/* Text of a SYMBOL, with room for what the taker makes of it. Handles are those of the producer. */
struct qwp_feed_symbol {
    const char *text;
    uint32_t len;
    uint32_t handle; /* or one of the two below */
};
#define QWP_FEED_SYMBOL_NEW  UINT32_MAX       /* not asked for yet */
#define QWP_FEED_SYMBOL_TEXT (UINT32_MAX - 1) /* travels as text */

/* An array value: `values` has as many elements as the lengths multiply to. */
struct qwp_feed_array {
    uint32_t dimensions;
    uint32_t shape[32];
    const void *values; /* double or int64_t */
};

/* Which member holds the value follows from the column's type:
 *   BOOLEAN BYTE SHORT INT LONG CHAR IPV4 DATE TIMESTAMP* GEOHASH   i64
 *   FLOAT                                                           f32
 *   DOUBLE                                                          f64
 *   VARCHAR BINARY                                                  text and len
 *   SYMBOL                                                          symbol
 *   UUID (low, high) LONG256 DECIMAL*                               words, least significant first
 *   DOUBLE_ARRAY LONG_ARRAY                                         array */
struct qwp_feed_value {
    union {
        int64_t i64;
        double f64;
        float f32;
        const char *text;
        struct qwp_feed_symbol *symbol;
        const uint64_t *words;
        const struct qwp_feed_array *array;
    };
    uint32_t len;
    uint32_t null; /* 1: the rest has no meaning */
};

struct qwp_feed_column {
    const char *name; /* NUL-terminated */
    uint32_t name_len;
    uint8_t type; /* enum qwp_column_type */
    uint8_t parameter;
};

struct qwp_feed_table {
    const char *name; /* NUL-terminated */
    uint32_t name_len;
    uint32_t index; /* dense: the takers' arrays go by it */
    uint32_t column_count;
    uint32_t column_room;
    uint32_t shape_count;
    struct qwp_feed_column *columns; /* only grows */
    struct qwp_feed_shape *wide[4];  /* by enum qwp_at: of all columns, once shapes are many */
};

struct qwp_feed_shape {
    struct qwp_feed_table *table;
    uint32_t index; /* dense: the takers' arrays go by it */
    uint32_t column_count;
    enum qwp_at at;
    uint32_t columns[]; /* indexes into table->columns */
};

struct qwp_feed_row {
    const struct qwp_feed_shape *shape;
    const struct qwp_feed_value *values; /* shape->column_count of them */
    int64_t at;                          /* unless QWP_AT_SERVER */
};

#endif

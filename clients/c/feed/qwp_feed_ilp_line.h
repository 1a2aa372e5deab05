/* qwp_feed_ilp_line: what the two ways through a line share, and the general one.
 *
 * qwp_feed_ilp.c expects lines to look like those before and takes them quickly; a line that does
 * not comes here. For these two files only. */
#ifndef QWP_FEED_ILP_LINE_H
#define QWP_FEED_ILP_LINE_H

#include "clients/c/feed/qwp_feed_convert.h"
#include "clients/c/feed/qwp_feed_ilp.h"

enum {
    QWP_FEED_ILP_KEY_WORDS = 3,   /* of a field's key that are compared as words */
    QWP_FEED_ILP_NAMES = 512,     /* remembered; power of two */
    QWP_FEED_ILP_NAME_BYTES = 48, /* longer names are looked up each time */
};

/* Names as they stood in a line, and what they turned out to be. */
struct qwp_feed_ilp_name {
    const struct qwp_feed_table *table; /* NULL: free */
    uint32_t len;
    uint32_t column;
    char text[QWP_FEED_ILP_NAME_BYTES];
};

/* A field as it is expected: its key with the '=', as it stands in the line. */
struct qwp_feed_ilp_field {
    uint64_t word[QWP_FEED_ILP_KEY_WORDS];
    uint64_t mask[QWP_FEED_ILP_KEY_WORDS];
    uint32_t len;
    uint8_t type;
    const char *text;
};

/* What the lines of one shape look like. */
struct qwp_feed_ilp_plan {
    const struct qwp_feed_shape *shape;
    uint32_t tag_count;
    uint32_t field_count;
    struct qwp_feed_ilp_field fields[];
};

/* Table and tags, as one text. */
struct qwp_feed_ilp_series {
    uint64_t hash;
    const char *text;
    uint32_t len;
    uint32_t tag_count;
    struct qwp_feed_table *table;
    const struct qwp_feed_ilp_plan *plan; /* of its last line, NULL at first */
    struct qwp_feed_ilp_series *follower; /* which came next the last time */
    struct qwp_feed_value *tags;
    uint32_t columns[]; /* of the tags */
};

struct qwp_feed_ilp {
    struct qwp_feed_context context;
    enum qwp_feed_unit unit;
    /* the block */
    const char *data;
    const char *record; /* the last one */
    const char *at;
    const char *end;
    /* expectations */
    struct qwp_feed_ilp_series **series_slots;
    uint32_t series_count;
    struct qwp_feed_arena series_arena;
    struct qwp_feed_ilp_series *last_series;
    const struct qwp_feed_ilp_plan *last_plan;
    struct qwp_feed_ilp_plan **plans; /* by shape index */
    uint32_t plan_room;
    struct qwp_feed_arena plan_arena;
    struct qwp_feed_ilp_name *names;
    /* the row */
    struct qwp_feed_converter converter;
    char *scratch; /* texts without their escapes */
    size_t scratch_bytes;
    size_t scratch_used;
    uint32_t *columns;             /* of the row's values, tags first */
    const char **keys;             /* of the fields, raw */
    uint32_t *key_lens;            /* without the '=' */
    struct qwp_feed_value *values; /* QWP_COLUMNS_MAX of each */
    struct qwp_feed_value *wide_values;
};

/* The first of a, b, outside of escapes, or end. */
const char *qwp_feed_ilp_find(const char *at, const char *end, char a, char b);

/* Table and tags, the latter into ilp->columns and ilp->values. */
QWP_MUST_USE enum qwp_result qwp_feed_ilp_parse_series(struct qwp_feed_ilp *ilp, const char *text,
                                                       size_t len, struct qwp_feed_table **table,
                                                       uint32_t *tag_count, struct qwp_error *err);

/* A whole line from behind its series on, [at, end) without the line end. `wide`: see
 * qwp_feed_catalog_shape(). */
QWP_MUST_USE enum qwp_result qwp_feed_ilp_parse_line(struct qwp_feed_ilp *ilp,
                                                     const struct qwp_feed_ilp_series *series,
                                                     const char *at, const char *end,
                                                     struct qwp_feed_row *row, bool *wide,
                                                     struct qwp_error *err);

#endif

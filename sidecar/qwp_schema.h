/* qwp_schema: the tables of all rings, and the shapes in which rows of them come.
 *
 * Equal shapes of all rings are one known shape, so rows of many producers share a block. Shapes of
 * one table whose columns agree in type, and fit one block, form a group: only rows of one group
 * can stand in one block.
 *
 * Threads:   intake's.
 * Progress:  finding shape and columns takes no longer with many of them: a producer may define as
 *            many as its ring has room for, and everybody else's rows wait meanwhile.
 * Ownership: a known shape is counted and dies with its last ring. Tables and groups live until
 * fini, but for tables of which no ring has a shape any more and no row ever came: they go when
 * there is no room for another. */
#ifndef QWP_SCHEMA_H
#define QWP_SCHEMA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_shape.h"
#include "core/wire/qwp_encode.h"
#include "ipc/qwp_control_layout.h"

#define QWP_NO_COLUMN UINT32_MAX

struct qwp_group_column {
    struct qwp_block_column column; /* the name is the group's own copy */
    uint64_t name_hash;
    size_t header_bound;
    uint64_t block_stamp; /* number of the last block that has this column */
};

/* Columns of one table that agree in type, and the designated type: at most QWP_COLUMNS_MAX, and
 * they are only added. */
struct qwp_group {
    struct qwp_group *next; /* of the same table */
    uint8_t designated_type;
    uint32_t column_count;
    uint32_t column_capacity;
    struct qwp_group_column *columns;
    uint16_t *slots; /* index into columns + 1 by name; open addressing, 2 * column_capacity */
};

/* A column with a var_index. */
struct qwp_known_var {
    uint32_t off; /* of its field */
    uint16_t column;
    bool is_symbol;
};

struct qwp_known_shape {
    struct qwp_shape *shape; /* owned */
    struct qwp_table *table;
    struct qwp_group *group;
    struct qwp_known_shape *next; /* in the same slot of the table */
    uint64_t hash;
    uint32_t refs;
    size_t header_bound;  /* of a block of this shape alone */
    uint32_t value_bytes; /* sum of qwp_value_bound() */
    uint32_t text_count;  /* columns whose rows always have a variable part (no symbols) */
    struct qwp_block_column *block_columns; /* in shape order; names borrowed from the shape */
    uint16_t *identity;         /* 0, 1, 2, ...: field_of_column of a block of this shape */
    uint32_t *group_column;     /* shape column -> group column */
    struct qwp_known_var *vars; /* by var_index */
    /* The flush that made `field_map`, a field_of_column of its block (qwp_framer.c). */
    uint64_t map_stamp;
    const uint16_t *field_map;
};

struct qwp_table {
    struct qwp_name name; /* as first seen; owned */
    uint64_t hash;
    struct qwp_group *groups;        /* newest first */
    struct qwp_known_shape **shapes; /* chains by hash, power of two */
    uint32_t shape_slots, shape_count;
    bool was_framed;       /* rows of it stood in a frame: others know its address */
    uint32_t source_index; /* where the source that got it last has it among its tables */

    /* The block being gathered (qwp_framer.c); open_count 0: none. */
    bool is_open; /* in the framer's list */
    struct qwp_table *open_next;
    struct qwp_group *open_group;
    struct qwp_known_shape *open_shape; /* of all rows so far; NULL: several */
    uint32_t open_first, open_last, open_count;
    uint32_t open_columns; /* of the union */
    uint64_t open_stamp;
    size_t open_header_bound;
    size_t open_value_bytes; /* over all rows, variable parts included */
    size_t open_bound;       /* of the block as it would be encoded now */
    /* Rows in closed blocks of the frame that is being built; qwp_framer.c lists such tables. */
    uint64_t frame_rows;
    struct qwp_table *frame_next;
    struct qwp_control_table *shown; /* its entry in the control file, or NULL */
    bool held; /* takes no rows now: what was refused of it has no more room */
    /* The unit being weighed. */
    uint64_t unit_stamp;
    struct qwp_known_shape *unit_shape; /* of its last row; NULL: the next one opens a block */
    uint32_t unit_rows;                 /* in the block that the next row would join */
    size_t unit_growth; /* of the open block's bitmaps, should it fill with rows of other shapes */
};

struct qwp_schema {
    struct qwp_table **tables; /* open addressing, power of two */
    uint32_t capacity;
    uint32_t count;
    uint32_t tables_max;
    uint64_t seed; /* of shapes' hashes */
};

QWP_MUST_USE enum qwp_result qwp_schema_init(struct qwp_schema *schema, uint32_t tables_max);
void qwp_schema_fini(struct qwp_schema *schema);

/* Takes `shape` (also on failure) and gives the known shape equal to it, with one more reference.
 * QWP_LIMIT: too many tables; QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_schema_intern(struct qwp_schema *schema, struct qwp_shape *shape,
                                               struct qwp_known_shape **out, struct qwp_error *err);
void qwp_schema_release(struct qwp_known_shape *known);
/* NULL: no ring has defined it. */
struct qwp_table *qwp_schema_find(const struct qwp_schema *schema, struct qwp_name name);

#endif

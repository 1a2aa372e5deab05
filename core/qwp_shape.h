/* qwp_shape: the columns of a row and where each lies in its record.
 *
 * A shape is what a producer defines once and its records then name by a number: table, columns
 * (name, type, parameter) and the kind of the designated timestamp. Both sides compute the same
 * places from it (qwp_record_layout.h), so no offset crosses the ring.
 *
 * Ownership: one allocation, made by qwp_shape_create(), const afterwards.
 * Trust:     create checks everything a definition could get wrong, whoever wrote it. */
#ifndef QWP_SHAPE_H
#define QWP_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/wire/qwp_wire.h"

#define QWP_NO_VAR UINT16_MAX

struct qwp_name {
    const char *text; /* UTF-8, not terminated */
    uint32_t len;     /* bytes, 1..QWP_NAME_BYTES_MAX */
};

struct qwp_shape_column {
    struct qwp_name name;
    uint32_t off;       /* of the fixed field, from the record's start */
    uint16_t var_index; /* rank among columns with a variable part; QWP_NO_VAR for the others */
    uint8_t type;       /* enum qwp_type */
    uint8_t parameter;  /* geohash bits or decimal scale, else 0 */
};

struct qwp_shape {
    struct qwp_name table;
    uint16_t column_count;   /* 0..QWP_COLUMNS_MAX */
    uint16_t null_words;     /* ceil(column_count / 64) */
    uint16_t var_count;      /* columns with a variable part; a SYMBOL counts: it may be text */
    uint8_t designated_type; /* QWP_TYPE_NONE, QWP_TYPE_TIMESTAMP or QWP_TYPE_TIMESTAMP_NANOS */
    uint32_t designated_off; /* meaningful unless QWP_TYPE_NONE */
    uint32_t fixed_bytes;    /* up to the variable parts; at least the header */
    struct qwp_shape_column columns[];
};

/* What create needs to know of a column; `parameter` as in struct qwp_shape_column. */
struct qwp_column_def {
    struct qwp_name name;
    uint8_t type;
    uint8_t parameter;
};

/* Width of the fixed field in a record, 0 for an unknown type. */
uint32_t qwp_type_field_bytes(uint8_t type);
/* True for VARCHAR, BINARY, the arrays, and SYMBOL (which may travel as text). */
bool qwp_type_is_variable(uint8_t type);
/* Lower-case name as in SQL ("long", "timestamp_ns"), "?" for an unknown type. */
const char *qwp_type_name(uint8_t type);

/* Copies everything it is given. QWP_INVALID with a text that names table and column when a name is
 * bad, two names differ only in case, a type is unknown or a parameter out of range; QWP_LIMIT for
 * more than QWP_COLUMNS_MAX columns; QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_shape_create(struct qwp_shape **out, struct qwp_name table,
                                              const struct qwp_column_def *columns,
                                              size_t column_count, uint8_t designated_type,
                                              struct qwp_error *err);
/* NULL is fine. */
void qwp_shape_destroy(struct qwp_shape *shape);

#endif

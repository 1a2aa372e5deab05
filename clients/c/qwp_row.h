/* qwp_row: the one row of a producer that is being set column by column.
 *
 * Most rows set their columns in rising order, with a gap here and there, and then one number is
 * all a setter needs to know that nothing is set twice, that parts come in order, and which columns
 * are null: `next`. A row that goes back to a lower column is *scattered*, and has a byte for each
 * column from then on. To keep that byte for every row cost a trade 6 ns of 24: the bytes are read
 * as words at the end, which must wait for each to reach the cache, behind all stores to the ring.
 * A bit each was worse: setters waited for each other's word.
 *
 * Threads: the producer's. */
#ifndef QWP_ROW_H
#define QWP_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "clients/c/qwp.h"
#include "core/qwp_shape.h"

#define QWP_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define QWP_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

/* What a setter needs to know of a column; small, as many tables may be written in turn. */
struct qwp_row_column {
    uint32_t off;
    uint16_t var_index;
    uint8_t type;
    uint8_t parameter;
};

enum {
    QWP_CARE_FAILED = 0x01,    /* `result` and maybe `error` say why */
    QWP_CARE_STAGED = 0x02,    /* base is the producer's stage */
    QWP_CARE_SCATTERED = 0x04, /* `states` count, `nulls` do not */
    QWP_CARE_UNORDERED = 0x08, /* scattered, and so are parts */
    QWP_CARE_NULLS = 0x10,     /* explicit_null is in use */
};

/* State of a column in a scattered row; its type: not set yet. */
enum { QWP_COLUMN_SET = 0, QWP_COLUMN_NULL = 0x7f };

#define QWP_NEXT_NONE UINT64_MAX

struct qwp_row {
    /* Places count from `base` as if the row had a designated timestamp. One without begins
     * `shift` = 8 bytes later, and all its fields are where they should be. */
    unsigned char *base;
    const struct qwp_row_column *columns;
    struct qwp_table *table; /* NULL: no row is open */
    /* The column behind the last one set, which the fast path takes; column_count when all are.
     * Closed, failed or scattered: QWP_NEXT_NONE, which no column equals. */
    uint64_t next;
    uint32_t column_count;
    uint32_t used_bytes;  /* fixed part and parts so far, from base */
    uint32_t limit_bytes; /* may be used, from base */
    uint32_t shift;
    /* Cleared together by begin. */
    uint32_t care;       /* QWP_CARE_*; 0: the row ends on the fast path */
    uint32_t flags;      /* QWP_RECORD_SYMBOL_TEXT */
    uint32_t name_guess; /* column that qwp_row_column() tries first */
    uint32_t next_var;   /* scattered: parts with a lower var_index come out of order */
    uint64_t nulls[QWP_COLUMNS_MAX / 64];         /* bit c: column c was left out; below `next` */
    uint64_t explicit_null[QWP_COLUMNS_MAX / 64]; /* those that were set to null */
    union {
        uint8_t states[QWP_COLUMNS_MAX];
        uint64_t state_words[QWP_COLUMNS_MAX / 8];
    };
    uint32_t part_off[QWP_COLUMNS_MAX]; /* by var_index, of the parts set */
    enum qwp_result result;
    struct qwp_error error;
};

/* Closes the row, whatever its state. */
static inline void qwp_row_forget(struct qwp_row *row)
{
    row->table = NULL;
    row->next = QWP_NEXT_NONE;
}

/* ---- qwp_row.c ---- */

/* Room for `len` more bytes than limit_bytes knows of: in the ring, else apart. False: they do not
 * fit this producer's bound. */
bool qwp_row_grow(struct qwp_row *row, size_t len);

/* ---- qwp_row_take.c ---- */

/* Keeps the first mistake of an open row, and makes every setter take its slow path. */
enum qwp_result qwp_row_fail(struct qwp_row *row, enum qwp_result result, const char *format, ...)
    QWP_PRINTF(3, 4);
enum qwp_result qwp_row_column_fail(struct qwp_row *row, uint32_t column, enum qwp_result result,
                                    const char *what);
/* What a setter returns whose column could not be taken. */
static inline enum qwp_result qwp_row_taken_fail(const struct qwp_row *row)
{
    return row->table != NULL || row->result == QWP_CLOSED ? row->result : QWP_INVALID;
}

/* The next column, if it is this one and of this type: it is set from now on. A column behind the
 * last one of a table has no type. */
static inline bool qwp_row_take_next(struct qwp_row *row, uint32_t column, uint8_t type)
{
    if (QWP_UNLIKELY(column != row->next || row->columns[column].type != type)) {
        return false;
    }
    row->next = column + UINT64_C(1);
    return true;
}

static inline bool qwp_row_is_scattered(const struct qwp_row *row)
{
    return (row->care & QWP_CARE_SCATTERED) != 0 && row->table != NULL;
}

static inline const struct qwp_row_column *qwp_row_take_scattered(struct qwp_row *row,
                                                                  uint32_t column)
{
    const struct qwp_row_column *known = &row->columns[column];
    row->states[column] = QWP_COLUMN_SET;
    if (known->var_index != QWP_NO_VAR) {
        row->care |= known->var_index < row->next_var ? QWP_CARE_UNORDERED : 0;
        row->next_var = known->var_index + UINT32_C(1);
    }
    return known;
}

/* Any column, if it is of this type and not set yet: it is from now on. NULL: the row has failed.
 */
const struct qwp_row_column *qwp_row_take_rare(struct qwp_row *row, uint32_t column, uint8_t type);

/* The same, behind a gap of a few columns or in a scattered row without a call. */
static inline const struct qwp_row_column *qwp_row_take(struct qwp_row *row, uint32_t column,
                                                        uint8_t type)
{
    if (qwp_row_take_next(row, column, type)) {
        return &row->columns[column];
    }
    if (column > row->next && column < 64 && column < row->column_count &&
        row->columns[column].type == type) {
        row->nulls[0] |= (UINT64_C(1) << column) - (UINT64_C(1) << row->next);
        row->next = column + UINT64_C(1);
        return &row->columns[column];
    }
    if (qwp_row_is_scattered(row) && column < row->column_count && row->states[column] == type) {
        return qwp_row_take_scattered(row, column);
    }
    return qwp_row_take_rare(row, column, type);
}

/* Brings `nulls` up to date for all columns, before the row ends. */
void qwp_row_complete_nulls(struct qwp_row *row);

#endif

/* Which column a setter may take, and what is wrong when it may not. */
#include <stdarg.h>
#include <stdio.h>

#include "clients/c/qwp_producer.h"

/* ---- mistakes ---- */

enum qwp_result qwp_row_fail(struct qwp_row *row, enum qwp_result result, const char *format, ...)
{
    char text[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    row->result = result;
    row->care = QWP_CARE_FAILED;
    row->next = QWP_NEXT_NONE;
    const struct qwp_name table = row->table->shape->table;
    return qwp_fail(&row->error, result, 0, "table '%.*s': %s", (int)table.len, table.text, text);
}

enum qwp_result qwp_row_column_fail(struct qwp_row *row, uint32_t column, enum qwp_result result,
                                    const char *what)
{
    const struct qwp_name name = row->table->shape->columns[column].name;
    return qwp_row_fail(row, result, "column '%.*s' %s", (int)name.len, name.text, what);
}

static const char *setter_for(uint8_t type)
{
    static const char *const names[QWP_TYPE_END] = {
        [QWP_TYPE_BOOLEAN] = "boolean",
        [QWP_TYPE_BYTE] = "byte",
        [QWP_TYPE_SHORT] = "short",
        [QWP_TYPE_INT] = "int",
        [QWP_TYPE_LONG] = "long",
        [QWP_TYPE_FLOAT] = "float",
        [QWP_TYPE_DOUBLE] = "double",
        [QWP_TYPE_SYMBOL] = "symbol",
        [QWP_TYPE_TIMESTAMP] = "timestamp",
        [QWP_TYPE_DATE] = "date",
        [QWP_TYPE_UUID] = "uuid",
        [QWP_TYPE_LONG256] = "long256",
        [QWP_TYPE_GEOHASH] = "geohash",
        [QWP_TYPE_VARCHAR] = "varchar",
        [QWP_TYPE_TIMESTAMP_NANOS] = "timestamp_ns",
        [QWP_TYPE_DOUBLE_ARRAY] = "double_array",
        [QWP_TYPE_LONG_ARRAY] = "long_array",
        [QWP_TYPE_DECIMAL64] = "decimal",
        [QWP_TYPE_DECIMAL128] = "decimal",
        [QWP_TYPE_DECIMAL256] = "decimal",
        [QWP_TYPE_CHAR] = "char",
        [QWP_TYPE_BINARY] = "binary",
        [QWP_TYPE_IPV4] = "ipv4",
    };
    return names[type];
}

/* What a setter of `type` has against its column; QWP_TYPE_NONE: qwp_row_null(), any will do. */
static __attribute__((cold, noinline)) enum qwp_result take_fail(struct qwp_row *row,
                                                                 uint32_t column, uint8_t type)
{
    if (row->table == NULL) {
        return row->result == QWP_CLOSED ? QWP_CLOSED : QWP_INVALID;
    }
    if ((row->care & QWP_CARE_FAILED) != 0) {
        return row->result;
    }
    if (column >= row->column_count) {
        return qwp_row_fail(row, QWP_INVALID,
                            "no column has the index %u, there are %u; take indexes from "
                            "qwp_table_column() or the order of definition",
                            column, row->table->column_count);
    }
    const struct qwp_shape_column *known = &row->table->shape->columns[column];
    if (type != QWP_TYPE_NONE && type != known->type) {
        return qwp_row_fail(row, QWP_INVALID,
                            "column '%.*s' is %s and was given a %s; use qwp_row_%s()",
                            (int)known->name.len, known->name.text, qwp_type_name(known->type),
                            qwp_type_name(type), setter_for(known->type));
    }
    return qwp_row_column_fail(row, column, QWP_INVALID, "is set twice in one row; set it once");
}

/* ---- taking a column ---- */

/* Sets the bits from..to-1. */
static void set_bits(uint64_t *words, uint32_t from, uint32_t to)
{
    for (; from < to; from = (from | 63) + 1) {
        const uint64_t below_from = (UINT64_C(1) << (from % 64)) - 1;
        const uint32_t left = to - (from & ~UINT32_C(63));
        words[from / 64] |= (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX) & ~below_from;
    }
}

static bool bit_is_set(const uint64_t *words, uint32_t bit)
{
    return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

/* From here on columns may come in any order. */
static void scatter(struct qwp_row *row)
{
    const struct qwp_table *table = row->table;
    for (uint32_t w = 0; w * 8 < table->column_count; w++) {
        row->state_words[w] = table->types[w];
    }
    row->next_var = 0;
    for (uint32_t c = 0; c < row->next; c++) {
        if (!bit_is_set(row->nulls, c)) {
            row->states[c] = QWP_COLUMN_SET;
            if (row->columns[c].var_index != QWP_NO_VAR) {
                row->next_var = row->columns[c].var_index + UINT32_C(1);
            }
        } else if ((row->care & QWP_CARE_NULLS) != 0 && bit_is_set(row->explicit_null, c)) {
            row->states[c] = QWP_COLUMN_NULL;
        }
    }
    row->next = QWP_NEXT_NONE;
    row->care |= QWP_CARE_SCATTERED;
}

const struct qwp_row_column *qwp_row_take_rare(struct qwp_row *row, uint32_t column, uint8_t type)
{
    if (column > row->next && column < row->column_count && row->columns[column].type == type) {
        set_bits(row->nulls, (uint32_t)row->next, column);
        row->next = column + UINT64_C(1);
        return &row->columns[column];
    }
    if (column < row->next && row->next != QWP_NEXT_NONE) {
        scatter(row);
    }
    if (qwp_row_is_scattered(row) && column < row->column_count && row->states[column] == type) {
        return qwp_row_take_scattered(row, column);
    }
    take_fail(row, column, type);
    return NULL;
}

/* ---- nulls ---- */

enum qwp_result qwp_row_null(struct qwp_row *row, uint32_t column)
{
    if (column < row->next && row->next != QWP_NEXT_NONE) {
        scatter(row);
    }
    const bool scattered = qwp_row_is_scattered(row);
    if ((row->next == QWP_NEXT_NONE && !scattered) || column >= row->column_count) {
        return take_fail(row, column, QWP_TYPE_NONE);
    }
    if (scattered) {
        if (row->states[column] == QWP_COLUMN_SET || row->states[column] == QWP_COLUMN_NULL) {
            return take_fail(row, column, QWP_TYPE_NONE);
        }
        row->states[column] = QWP_COLUMN_NULL;
        return QWP_OK;
    }
    if ((row->care & QWP_CARE_NULLS) == 0) {
        memset(row->explicit_null, 0, row->table->null_words * sizeof row->explicit_null[0]);
        row->care |= QWP_CARE_NULLS;
    }
    set_bits(row->nulls, (uint32_t)row->next, column + 1);
    set_bits(row->explicit_null, column, column + 1);
    row->next = column + UINT64_C(1);
    return QWP_OK;
}

/* Bit i for a byte i that is not 0; no byte is above 0x80. */
static uint64_t nonzero_bytes(uint64_t bytes)
{
    const uint64_t high = (bytes + UINT64_C(0x7f7f7f7f7f7f7f7f)) & UINT64_C(0x8080808080808080);
    return ((high >> 7) * UINT64_C(0x0102040810204080)) >> 56;
}

void qwp_row_complete_nulls(struct qwp_row *row)
{
    const uint32_t count = row->column_count;
    if ((row->care & QWP_CARE_SCATTERED) == 0) {
        set_bits(row->nulls, (uint32_t)row->next, count);
        return;
    }
    const uint64_t *states = row->state_words;
    for (uint32_t c = 0; c < count; c += 64) {
        uint64_t nulls = 0;
        for (uint32_t i = 0; i < 64 && c + i < count; i += 8) {
            nulls |= nonzero_bytes(*states++) << i;
        }
        row->nulls[c / 64] = nulls;
    }
}

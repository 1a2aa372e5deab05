#include "core/qwp_shape.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_names.h"

struct type_facts {
    uint8_t field_bytes;
    bool variable;
    const char *name;
};

static const struct type_facts types[QWP_TYPE_END] = {
    [QWP_TYPE_BOOLEAN] = {1, false, "boolean"},
    [QWP_TYPE_BYTE] = {1, false, "byte"},
    [QWP_TYPE_SHORT] = {2, false, "short"},
    [QWP_TYPE_INT] = {4, false, "int"},
    [QWP_TYPE_LONG] = {8, false, "long"},
    [QWP_TYPE_FLOAT] = {4, false, "float"},
    [QWP_TYPE_DOUBLE] = {8, false, "double"},
    [QWP_TYPE_SYMBOL] = {4, true, "symbol"},
    [QWP_TYPE_TIMESTAMP] = {8, false, "timestamp"},
    [QWP_TYPE_DATE] = {8, false, "date"},
    [QWP_TYPE_UUID] = {16, false, "uuid"},
    [QWP_TYPE_LONG256] = {32, false, "long256"},
    [QWP_TYPE_GEOHASH] = {8, false, "geohash"},
    [QWP_TYPE_VARCHAR] = {4, true, "varchar"},
    [QWP_TYPE_TIMESTAMP_NANOS] = {8, false, "timestamp_ns"},
    [QWP_TYPE_DOUBLE_ARRAY] = {4, true, "double[]"},
    [QWP_TYPE_LONG_ARRAY] = {4, true, "long[]"},
    [QWP_TYPE_DECIMAL64] = {8, false, "decimal64"},
    [QWP_TYPE_DECIMAL128] = {16, false, "decimal128"},
    [QWP_TYPE_DECIMAL256] = {32, false, "decimal256"},
    [QWP_TYPE_CHAR] = {2, false, "char"},
    [QWP_TYPE_BINARY] = {4, true, "binary"},
    [QWP_TYPE_IPV4] = {4, false, "ipv4"},
};

/* Fields are placed widest first, so that each is aligned to its width up to 8. */
static const uint8_t placing_order[] = {32, 16, 8, 4, 2, 1};

uint32_t qwp_type_field_bytes(uint8_t type)
{
    return type < QWP_TYPE_END ? types[type].field_bytes : 0;
}

bool qwp_type_is_variable(uint8_t type)
{
    return type < QWP_TYPE_END && types[type].variable;
}

const char *qwp_type_name(uint8_t type)
{
    return type < QWP_TYPE_END && types[type].name != NULL ? types[type].name : "?";
}

static bool parameter_fits(uint8_t type, uint8_t parameter)
{
    switch (type) {
    case QWP_TYPE_GEOHASH:
        return parameter >= 1 && parameter <= QWP_GEOHASH_BITS_MAX;
    case QWP_TYPE_DECIMAL64:
        return parameter <= QWP_DECIMAL64_SCALE_MAX;
    case QWP_TYPE_DECIMAL128:
        return parameter <= QWP_DECIMAL128_SCALE_MAX;
    case QWP_TYPE_DECIMAL256:
        return parameter <= QWP_DECIMAL256_SCALE_MAX;
    default:
        return parameter == 0;
    }
}

static enum qwp_result column_check(struct qwp_name table, const struct qwp_column_def *column,
                                    struct qwp_error *err)
{
    const enum qwp_result result =
        qwp_column_name_check(column->name.text, column->name.len, QWP_NAME_BYTES_MAX, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "table '%.*s'", (int)table.len, table.text);
        return result;
    }
    if (qwp_type_field_bytes(column->type) == 0) {
        return qwp_fail(err, QWP_INVALID, 0, "table '%.*s', column '%.*s': unknown type 0x%02x",
                        (int)table.len, table.text, (int)column->name.len, column->name.text,
                        column->type);
    }
    if (!parameter_fits(column->type, column->parameter)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "table '%.*s', column '%.*s': %u is no %s for the type %s", (int)table.len,
                        table.text, (int)column->name.len, column->name.text, column->parameter,
                        column->type == QWP_TYPE_GEOHASH ? "precision (1..60 bits)" : "scale",
                        qwp_type_name(column->type));
    }
    return QWP_OK;
}

static int compare_hashes(const void *a, const void *b)
{
    const uint64_t x = ((const uint64_t *)a)[0];
    const uint64_t y = ((const uint64_t *)b)[0];
    return x < y ? -1 : x > y;
}

/* Sorts (hash, index) pairs, so that a definition of 2,048 columns is not compared pair by pair. */
static enum qwp_result names_differ(struct qwp_name table, const struct qwp_column_def *columns,
                                    size_t count, struct qwp_error *err)
{
    uint64_t(*by_hash)[2] = malloc((count + 1) * sizeof *by_hash);
    if (by_hash == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %zu columns", count);
    }
    for (size_t i = 0; i < count; i++) {
        by_hash[i][0] = qwp_name_hash(columns[i].name.text, columns[i].name.len);
        by_hash[i][1] = i;
    }
    qsort(by_hash, count, sizeof *by_hash, compare_hashes);
    enum qwp_result result = QWP_OK;
    for (size_t i = 0; i < count && result == QWP_OK; i++) {
        for (size_t j = i + 1; j < count && by_hash[j][0] == by_hash[i][0]; j++) {
            const struct qwp_name a = columns[by_hash[i][1]].name;
            const struct qwp_name b = columns[by_hash[j][1]].name;
            if (qwp_name_equal(a.text, a.len, b.text, b.len)) {
                result =
                    qwp_fail(err, QWP_INVALID, 0,
                             "table '%.*s': columns '%.*s' and '%.*s' are one column to the "
                             "server, which ignores case; keep one of them",
                             (int)table.len, table.text, (int)a.len, a.text, (int)b.len, b.text);
                break;
            }
        }
    }
    free(by_hash);
    return result;
}

static void place_fields(struct qwp_shape *shape)
{
    uint32_t off = QWP_RECORD_HEADER_BYTES + 8u * shape->null_words;
    if (shape->designated_type != QWP_TYPE_NONE) {
        shape->designated_off = off;
        off += 8;
    }
    for (size_t w = 0; w < sizeof placing_order; w++) {
        for (uint32_t i = 0; i < shape->column_count; i++) {
            struct qwp_shape_column *column = &shape->columns[i];
            if (qwp_type_field_bytes(column->type) == placing_order[w]) {
                column->off = off;
                off += placing_order[w];
            }
        }
    }
    shape->fixed_bytes = off;
}

static struct qwp_name copy_name(char **at, struct qwp_name name)
{
    memcpy(*at, name.text, name.len);
    const struct qwp_name copy = {*at, name.len};
    *at += name.len;
    return copy;
}

enum qwp_result qwp_shape_create(struct qwp_shape **out, struct qwp_name table,
                                 const struct qwp_column_def *columns, size_t column_count,
                                 uint8_t designated_type, struct qwp_error *err)
{
    enum qwp_result result = qwp_table_name_check(table.text, table.len, QWP_NAME_BYTES_MAX, err);
    if (result != QWP_OK) {
        return result;
    }
    if (column_count > QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "table '%.*s': %zu columns, a table has at most %d",
                        (int)table.len, table.text, column_count, QWP_COLUMNS_MAX);
    }
    if (designated_type != QWP_TYPE_NONE && designated_type != QWP_TYPE_TIMESTAMP &&
        designated_type != QWP_TYPE_TIMESTAMP_NANOS) {
        return qwp_fail(err, QWP_INVALID, 0, "table '%.*s': type 0x%02x is no timestamp",
                        (int)table.len, table.text, designated_type);
    }
    size_t name_bytes = table.len;
    for (size_t i = 0; i < column_count; i++) {
        result = column_check(table, &columns[i], err);
        if (result != QWP_OK) {
            return result;
        }
        name_bytes += columns[i].name.len;
    }
    result = names_differ(table, columns, column_count, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_shape *shape =
        calloc(1, sizeof *shape + column_count * sizeof shape->columns[0] + name_bytes);
    if (shape == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a shape of %zu columns", column_count);
    }
    char *names = (char *)&shape->columns[column_count];
    shape->table = copy_name(&names, table);
    shape->column_count = (uint16_t)column_count;
    shape->null_words = (uint16_t)((column_count + 63) / 64);
    shape->designated_type = designated_type;
    for (size_t i = 0; i < column_count; i++) {
        struct qwp_shape_column *column = &shape->columns[i];
        column->name = copy_name(&names, columns[i].name);
        column->type = columns[i].type;
        column->parameter = columns[i].parameter;
        column->var_index = qwp_type_is_variable(column->type) ? shape->var_count++ : QWP_NO_VAR;
    }
    place_fields(shape);
    *out = shape;
    return QWP_OK;
}

void qwp_shape_destroy(struct qwp_shape *shape)
{
    free(shape);
}

/* Tables of a producer: columns in order of definition, the shapes their rows name in the ring, and
 * the symbols of all of them. */
#include <stdlib.h>

#include "clients/c/qwp_producer.h"
#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"
#include "ipc/qwp_ring_layout.h"

_Static_assert((int)QWP_IPV4 == QWP_TYPE_IPV4 &&
                   (int)QWP_TIMESTAMP_NANOS == QWP_TYPE_TIMESTAMP_NANOS,
               "the public types are the protocol's");

static struct qwp_name table_name_of(const void *owner, uint32_t number)
{
    const struct qwp_producer *p = owner;
    return p->tables[number]->shape->table;
}

static struct qwp_name column_name_of(const void *owner, uint32_t number)
{
    const struct qwp_table *table = owner;
    return table->shape->columns[number].name;
}

static struct qwp_name name_from(const char *text)
{
    const size_t len = strlen(text);
    /* Longer ones fail the check of names just as well when they are cut. */
    return (struct qwp_name){text, len > UINT16_MAX ? UINT16_MAX : (uint32_t)len};
}

static int32_t find(const struct qwp_table *table, struct qwp_name name)
{
    return qwp_name_map_find(&table->names, name, column_name_of, table);
}

/* ---- growing a table ---- */

/* QWP_OK: `known` is what `wanted` asks for. */
static enum qwp_result same_column(const struct qwp_table *table,
                                   const struct qwp_shape_column *known,
                                   const struct qwp_column *wanted, struct qwp_error *err)
{
    if (known->type != (uint8_t)wanted->type) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "table '%.*s' has the column '%.*s' as %s, which cannot become %s: use "
                        "that type, or another name",
                        (int)table->shape->table.len, table->shape->table.text,
                        (int)known->name.len, known->name.text, qwp_type_name(known->type),
                        qwp_type_name((uint8_t)wanted->type));
    }
    if (known->parameter != wanted->parameter) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "table '%.*s' has the column '%.*s' as %s with %s %u, not %u: use that, or "
                        "another name",
                        (int)table->shape->table.len, table->shape->table.text,
                        (int)known->name.len, known->name.text, qwp_type_name(known->type),
                        known->type == QWP_TYPE_GEOHASH ? "precision" : "scale", known->parameter,
                        wanted->parameter);
    }
    return QWP_OK;
}

/* Writes the definitions of all columns, old ones first, to `defs`, and sets *count. */
static enum qwp_result merge(const struct qwp_table *table, struct qwp_name name,
                             const struct qwp_column *columns, size_t column_count,
                             struct qwp_column_def *defs, size_t *count, struct qwp_error *err)
{
    size_t n = 0;
    for (; n < table->column_count; n++) {
        const struct qwp_shape_column *column = &table->shape->columns[n];
        defs[n] = (struct qwp_column_def){column->name, column->type, column->parameter};
    }
    for (size_t i = 0; i < column_count; i++) {
        if (columns[i].name == NULL) {
            return qwp_fail(err, QWP_INVALID, 0, "table '%.*s': column %zu has no name (NULL)",
                            (int)name.len, name.text, i);
        }
        const struct qwp_name column = name_from(columns[i].name);
        const int32_t known = find(table, column);
        if (known < 0) {
            const bool type_fits = (unsigned)columns[i].type <= UINT8_MAX;
            defs[n++] = (struct qwp_column_def){
                column, type_fits ? (uint8_t)columns[i].type : UINT8_MAX, columns[i].parameter};
            continue;
        }
        const enum qwp_result result =
            same_column(table, &table->shape->columns[known], &columns[i], err);
        if (result != QWP_OK) {
            return result;
        }
    }
    *count = n;
    return QWP_OK;
}

static struct qwp_row_column *row_columns(const struct qwp_shape *shape)
{
    struct qwp_row_column *columns = malloc((shape->column_count + (size_t)1) * sizeof columns[0]);
    if (columns == NULL) {
        return NULL;
    }
    for (uint32_t i = 0; i < shape->column_count; i++) {
        const struct qwp_shape_column *from = &shape->columns[i];
        columns[i] =
            (struct qwp_row_column){from->off, from->var_index, from->type, from->parameter};
    }
    columns[shape->column_count] = (struct qwp_row_column){.type = QWP_TYPE_NONE};
    return columns;
}

/* The table takes `shape`, which has all its columns and maybe more. False: no memory, nothing
 * changed. */
static bool adopt(struct qwp_table *table, struct qwp_shape *shape)
{
    struct qwp_row_column *columns = row_columns(shape);
    uint64_t *types = calloc(shape->column_count / 8 + (size_t)1, sizeof types[0]);
    if (columns == NULL || types == NULL ||
        !qwp_name_map_reserve(&table->names, shape->column_count)) {
        free(columns);
        free(types);
        return false;
    }
    for (uint32_t i = 0; i < shape->column_count; i++) {
        ((uint8_t *)types)[i] = shape->columns[i].type;
    }
    for (uint32_t i = table->column_count; i < shape->column_count; i++) {
        qwp_name_map_add(&table->names, shape->columns[i].name, i);
    }
    qwp_shape_destroy(table->shape);
    free(table->columns);
    free(table->types);
    table->shape = shape;
    table->columns = columns;
    table->types = types;
    table->column_count = shape->column_count;
    table->null_words = shape->null_words;
    table->fixed_bytes = shape->fixed_bytes;
    memset(table->shape_defined, 0, sizeof table->shape_defined);
    return true;
}

static enum qwp_result extend(struct qwp_table *table, struct qwp_name name,
                              const struct qwp_column *columns, size_t column_count,
                              struct qwp_error *err)
{
    struct qwp_row *row = &table->producer->row;
    if (row->table == table) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "table '%.*s': columns cannot be added while a row of it is open; end or "
                        "abort the row first",
                        (int)name.len, name.text);
    }
    if (column_count > QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "table '%.*s': %zu columns, a table has at most %d",
                        (int)name.len, name.text, column_count, QWP_COLUMNS_MAX);
    }
    struct qwp_column_def *defs = malloc((table->column_count + column_count + 1) * sizeof defs[0]);
    if (defs == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %zu columns", column_count);
    }
    size_t count = 0;
    struct qwp_shape *shape = NULL;
    enum qwp_result result = merge(table, name, columns, column_count, defs, &count, err);
    if (result == QWP_OK && (count > table->column_count || table->shape == NULL)) {
        result = qwp_shape_create(&shape, name, defs, count, QWP_TYPE_TIMESTAMP_NANOS, err);
        if (result == QWP_OK && !adopt(table, shape)) {
            qwp_shape_destroy(shape);
            result = qwp_fail(err, QWP_NOMEM, 0, "no memory for %zu columns", count);
        }
    }
    free(defs);
    return result;
}

/* ---- tables ---- */

static void table_destroy(struct qwp_table *table)
{
    qwp_name_map_fini(&table->names);
    free(table->columns);
    free(table->types);
    qwp_shape_destroy(table->shape);
    free(table);
}

void qwp_tables_destroy(struct qwp_producer *producer)
{
    for (uint32_t i = 0; i < producer->table_count; i++) {
        table_destroy(producer->tables[i]);
    }
    free(producer->tables);
    qwp_name_map_fini(&producer->table_names);
}

/* Doubles at powers of two. */
static bool tables_grow(struct qwp_producer *p)
{
    const uint32_t count = p->table_count;
    if ((count & (count - 1)) != 0) {
        return true;
    }
    struct qwp_table **tables =
        realloc(p->tables, (count == 0 ? 1 : (size_t)count * 2) * sizeof *tables);
    if (tables != NULL) {
        p->tables = tables;
    }
    return tables != NULL;
}

static enum qwp_result table_create(struct qwp_producer *p, struct qwp_name name,
                                    const struct qwp_column *columns, size_t column_count,
                                    struct qwp_table **out, struct qwp_error *err)
{
    struct qwp_table *table = calloc(1, sizeof *table);
    if (table == NULL || !tables_grow(p) ||
        !qwp_name_map_reserve(&p->table_names, p->table_count + 1)) {
        free(table);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the table '%.*s'", (int)name.len,
                        name.text);
    }
    table->producer = p;
    const enum qwp_result result = extend(table, name, columns, column_count, err);
    if (result != QWP_OK) {
        table_destroy(table);
        return result;
    }
    qwp_name_map_add(&p->table_names, name, p->table_count);
    p->tables[p->table_count++] = table;
    *out = table;
    return QWP_OK;
}

enum qwp_result qwp_table_define(struct qwp_producer *producer, const char *name,
                                 const struct qwp_column *columns, size_t column_count,
                                 struct qwp_table **out, struct qwp_error *err)
{
    enum qwp_result result = qwp_producer_check_open(producer, err);
    if (result != QWP_OK) {
        return result;
    }
    if (name == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "a table needs a name (NULL given)");
    }
    const struct qwp_name table_name = name_from(name);
    const int32_t known =
        qwp_name_map_find(&producer->table_names, table_name, table_name_of, producer);
    if (known < 0) {
        return table_create(producer, table_name, columns, column_count, out, err);
    }
    struct qwp_table *table = producer->tables[known];
    result = extend(table, table->shape->table, columns, column_count, err);
    if (result == QWP_OK) {
        *out = table;
    }
    return result;
}

enum qwp_result qwp_table_column(struct qwp_table *table, const struct qwp_column *column,
                                 uint32_t *index, struct qwp_error *err)
{
    enum qwp_result result = qwp_producer_check_open(table->producer, err);
    if (result != QWP_OK) {
        return result;
    }
    result = extend(table, table->shape->table, column, 1, err);
    if (result == QWP_OK) {
        *index = (uint32_t)find(table, name_from(column->name));
    }
    return result;
}

int32_t qwp_table_find(const struct qwp_table *table, const char *name, size_t len)
{
    return len > QWP_NAME_BYTES_MAX ? -1 : find(table, (struct qwp_name){name, (uint32_t)len});
}

enum qwp_result qwp_table_shape(struct qwp_table *table, enum qwp_at at, struct qwp_error *err)
{
    if (table->shape_defined[at]) {
        return QWP_OK;
    }
    struct qwp_ring_tx *ring = &table->producer->ring;
    const struct qwp_shape *have = table->shape;
    struct qwp_column_def *defs = malloc((have->column_count + (size_t)1) * sizeof defs[0]);
    if (defs == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u columns", have->column_count);
    }
    for (uint32_t i = 0; i < have->column_count; i++) {
        defs[i] = (struct qwp_column_def){have->columns[i].name, have->columns[i].type,
                                          have->columns[i].parameter};
    }
    struct qwp_shape *shape;
    enum qwp_result result =
        qwp_shape_create(&shape, have->table, defs, have->column_count, qwp_at_type(at), err);
    free(defs);
    if (result != QWP_OK) {
        return result;
    }
    /* What the row builder relies on: a timestamp moves all fields by 8 and nothing else. */
    QWP_ASSERT(shape->fixed_bytes + (at == QWP_AT_SERVER ? 8 : 0) == have->fixed_bytes);
    const uint32_t index = ring->shape_count;
    result = qwp_ring_define_shape(ring, shape, err);
    if (result == QWP_OK) {
        table->shape_index[at] = (uint16_t)index;
        table->shape_defined[at] = true;
    } else {
        qwp_error_prefix(err, "table '%.*s'", (int)have->table.len, have->table.text);
    }
    qwp_shape_destroy(shape);
    return result;
}

/* ---- symbols ---- */

enum qwp_result qwp_symbol_define(struct qwp_producer *producer, const char *text, size_t len,
                                  uint32_t *index, struct qwp_error *err)
{
    text = len == 0 ? "" : text; /* NULL is no text to memcpy() */
    if (!qwp_utf8_valid(text, len)) {
        return qwp_fail(err, QWP_INVALID, 0, "the symbol of %zu bytes is not valid UTF-8", len);
    }
    if (len > QWP_SYMBOL_BYTES_MAX) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "the symbol of %zu bytes is longer than %d; such texts belong into a "
                        "VARCHAR column",
                        len, QWP_SYMBOL_BYTES_MAX);
    }
    struct qwp_ring_tx *ring = &producer->ring;
    const uint64_t entry_bytes =
        qwp_round_up(QWP_DEF_HEADER_BYTES + sizeof(uint32_t) + (uint64_t)len, QWP_RECORD_ALIGN);
    if (len >= producer->symbol_len_full ||
        ring->defs_pos + entry_bytes > producer->symbol_bytes_max) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "no room for another symbol of %zu bytes: %llu of %llu bytes of "
                        "definitions are used (a part is kept for tables); write the text with "
                        "each row, or open the producer with more definition_bytes_max",
                        len, (unsigned long long)ring->defs_pos,
                        (unsigned long long)ring->defs_bytes_max);
    }
    if (!qwp_symbols_grow(&producer->symbols)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for another symbol");
    }
    const uint32_t next = ring->symbol_count;
    const uint64_t text_off = ring->defs_pos + QWP_DEF_HEADER_BYTES + sizeof(uint32_t);
    const enum qwp_result result = qwp_ring_define_symbol(ring, text, len, err);
    if (result != QWP_OK) {
        /* Do not ask the system for blocks with every row from now on. */
        producer->symbol_len_full = len;
        return result;
    }
    qwp_symbols_add(&producer->symbols, text, len, text_off, next);
    *index = next;
    return QWP_OK;
}

enum qwp_result qwp_symbol_intern(struct qwp_producer *producer, const char *text, size_t len,
                                  uint32_t *handle, struct qwp_error *err)
{
    const enum qwp_result result = qwp_producer_check_open(producer, err);
    if (result != QWP_OK) {
        return result;
    }
    const uint32_t known = qwp_symbols_find(&producer->symbols, text, len);
    if (known != QWP_SYMBOL_EMPTY) {
        *handle = known;
        return QWP_OK;
    }
    return qwp_symbol_define(producer, text, len, handle, err);
}

#include "sidecar/qwp_schema.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/qwp_names.h"

enum { TABLES_CAPACITY_MIN = 64 };

enum qwp_result qwp_schema_init(struct qwp_schema *schema, uint32_t tables_max)
{
    *schema = (struct qwp_schema){.capacity = TABLES_CAPACITY_MIN, .tables_max = tables_max};
    schema->tables = calloc(schema->capacity, sizeof *schema->tables);
    return schema->tables != NULL ? QWP_OK : QWP_NOMEM;
}

static void known_destroy(struct qwp_known_shape *known)
{
    qwp_shape_destroy(known->shape);
    free(known->block_columns);
    free(known->identity);
    free(known->group_column);
    free(known->var_column);
    free(known);
}

static void group_destroy(struct qwp_group *group)
{
    for (uint32_t i = 0; i < group->column_count; i++) {
        free((char *)group->columns[i].column.name.text);
    }
    free(group->columns);
    free(group);
}

static void table_destroy(struct qwp_table *table)
{
    for (struct qwp_known_shape *next, *known = table->shapes; known != NULL; known = next) {
        next = known->next;
        known_destroy(known);
    }
    for (struct qwp_group *next, *group = table->groups; group != NULL; group = next) {
        next = group->next;
        group_destroy(group);
    }
    free((char *)table->name.text);
    free(table);
}

void qwp_schema_fini(struct qwp_schema *schema)
{
    for (uint32_t i = 0; i < schema->capacity; i++) {
        if (schema->tables[i] != NULL) {
            table_destroy(schema->tables[i]);
        }
    }
    free(schema->tables);
    *schema = (struct qwp_schema){0};
}

static bool name_copy(struct qwp_name *out, struct qwp_name name)
{
    char *text = malloc(name.len);
    if (text == NULL) {
        return false;
    }
    memcpy(text, name.text, name.len);
    *out = (struct qwp_name){text, name.len};
    return true;
}

/* The slot that holds the table or where it belongs. */
static struct qwp_table **table_slot(struct qwp_table **tables, uint32_t capacity, uint64_t hash,
                                     struct qwp_name name)
{
    for (uint64_t i = hash;; i++) {
        struct qwp_table **slot = &tables[i & (capacity - 1)];
        if (*slot == NULL ||
            ((*slot)->hash == hash &&
             qwp_name_equal((*slot)->name.text, (*slot)->name.len, name.text, name.len))) {
            return slot;
        }
    }
}

struct qwp_table *qwp_schema_find(const struct qwp_schema *schema, struct qwp_name name)
{
    return *table_slot(schema->tables, schema->capacity, qwp_name_hash(name.text, name.len), name);
}

static bool tables_grow(struct qwp_schema *schema)
{
    const uint32_t capacity = schema->capacity * 2;
    struct qwp_table **tables = calloc(capacity, sizeof *tables);
    if (tables == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < schema->capacity; i++) {
        struct qwp_table *table = schema->tables[i];
        if (table != NULL) {
            *table_slot(tables, capacity, table->hash, table->name) = table;
        }
    }
    free(schema->tables);
    schema->tables = tables;
    schema->capacity = capacity;
    return true;
}

static enum qwp_result table_intern(struct qwp_schema *schema, struct qwp_name name,
                                    struct qwp_table **out, struct qwp_error *err)
{
    const uint64_t hash = qwp_name_hash(name.text, name.len);
    struct qwp_table **slot = table_slot(schema->tables, schema->capacity, hash, name);
    if (*slot != NULL) {
        *out = *slot;
        return QWP_OK;
    }
    if (schema->count == schema->tables_max) {
        return qwp_fail(err, QWP_LIMIT, 0, "table '%.*s' is one more than the %u tables allowed",
                        (int)name.len, name.text, schema->tables_max);
    }
    if ((schema->count + 1) * 2 > schema->capacity) {
        if (!tables_grow(schema)) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for one more table");
        }
        slot = table_slot(schema->tables, schema->capacity, hash, name);
    }
    struct qwp_table *table = calloc(1, sizeof *table);
    if (table == NULL || !name_copy(&table->name, name)) {
        free(table);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for one more table");
    }
    table->hash = hash;
    schema->count++;
    *slot = *out = table;
    return QWP_OK;
}

static bool shapes_equal(const struct qwp_shape *a, const struct qwp_shape *b)
{
    if (a->column_count != b->column_count || a->designated_type != b->designated_type) {
        return false;
    }
    for (uint32_t i = 0; i < a->column_count; i++) {
        const struct qwp_shape_column *x = &a->columns[i];
        const struct qwp_shape_column *y = &b->columns[i];
        if (x->type != y->type || x->parameter != y->parameter ||
            !qwp_name_equal(x->name.text, x->name.len, y->name.text, y->name.len)) {
            return false;
        }
    }
    return true;
}

static uint32_t group_find(const struct qwp_group *group, struct qwp_name name)
{
    const uint64_t hash = qwp_name_hash(name.text, name.len);
    for (uint32_t i = 0; i < group->column_count; i++) {
        const struct qwp_name have = group->columns[i].column.name;
        if (group->columns[i].name_hash == hash &&
            qwp_name_equal(have.text, have.len, name.text, name.len)) {
            return i;
        }
    }
    return QWP_NO_COLUMN;
}

static bool group_takes(const struct qwp_group *group, const struct qwp_shape *shape)
{
    if (group->designated_type != shape->designated_type) {
        return false;
    }
    uint32_t columns = group->column_count;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        const struct qwp_shape_column *column = &shape->columns[i];
        const uint32_t found = group_find(group, column->name);
        if (found == QWP_NO_COLUMN) {
            columns++;
        } else if (group->columns[found].column.type != column->type ||
                   group->columns[found].column.parameter != column->parameter) {
            return false;
        }
    }
    return columns <= QWP_COLUMNS_MAX; /* a block has the columns of all its rows */
}

static bool group_add(struct qwp_group *group, const struct qwp_shape_column *column,
                      uint32_t *index)
{
    if (group->column_count == group->column_capacity) {
        const uint32_t capacity = group->column_capacity == 0 ? 16 : group->column_capacity * 2;
        struct qwp_group_column *columns =
            realloc(group->columns, capacity * sizeof *group->columns);
        if (columns == NULL) {
            return false;
        }
        group->columns = columns;
        group->column_capacity = capacity;
    }
    struct qwp_group_column *added = &group->columns[group->column_count];
    *added = (struct qwp_group_column){
        .column = {.type = column->type, .parameter = column->parameter},
    };
    if (!name_copy(&added->column.name, column->name)) {
        return false;
    }
    added->name_hash = qwp_name_hash(column->name.text, column->name.len);
    added->header_bound = qwp_block_column_bound(&added->column);
    *index = group->column_count++;
    return true;
}

/* A group of the table that takes the shape, widened by the columns it lacks. */
static struct qwp_group *group_join(struct qwp_table *table, const struct qwp_shape *shape,
                                    uint32_t *group_column)
{
    struct qwp_group *group = table->groups;
    while (group != NULL && !group_takes(group, shape)) {
        group = group->next;
    }
    if (group == NULL) {
        group = calloc(1, sizeof *group);
        if (group == NULL) {
            return NULL;
        }
        group->designated_type = shape->designated_type;
        group->next = table->groups;
        table->groups = group;
    }
    for (uint32_t i = 0; i < shape->column_count; i++) {
        group_column[i] = group_find(group, shape->columns[i].name);
        if (group_column[i] == QWP_NO_COLUMN &&
            !group_add(group, &shape->columns[i], &group_column[i])) {
            return NULL;
        }
    }
    return group;
}

static struct qwp_known_shape *known_create(struct qwp_table *table, struct qwp_shape *shape)
{
    struct qwp_known_shape *known = calloc(1, sizeof *known);
    if (known == NULL) {
        return NULL;
    }
    const size_t columns = shape->column_count;
    known->table = table;
    known->block_columns = calloc(columns + 1, sizeof *known->block_columns);
    known->identity = calloc(columns + 1, sizeof *known->identity);
    known->group_column = calloc(columns + 1, sizeof *known->group_column);
    known->var_column = calloc(shape->var_count + 1u, sizeof *known->var_column);
    if (known->block_columns == NULL || known->identity == NULL || known->group_column == NULL ||
        known->var_column == NULL ||
        (known->group = group_join(table, shape, known->group_column)) == NULL) {
        known_destroy(known);
        return NULL;
    }
    for (uint32_t i = 0; i < columns; i++) {
        const struct qwp_shape_column *column = &shape->columns[i];
        known->block_columns[i] =
            (struct qwp_block_column){column->name, column->type, column->parameter};
        known->identity[i] = (uint16_t)i;
        if (column->var_index != QWP_NO_VAR) {
            known->var_column[column->var_index] = (uint16_t)i;
        }
        known->value_bytes += (uint32_t)qwp_value_bound(column->type, column->parameter);
        known->text_count += qwp_type_is_variable(column->type) && column->type != QWP_TYPE_SYMBOL;
    }
    if (shape->designated_type != QWP_TYPE_NONE) {
        known->value_bytes += (uint32_t)qwp_value_bound(shape->designated_type, 0);
    }
    known->header_bound =
        qwp_block_header_bound(table->name, known->block_columns, (uint32_t)columns);
    known->shape = shape;
    return known;
}

enum qwp_result qwp_schema_intern(struct qwp_schema *schema, struct qwp_shape *shape,
                                  struct qwp_known_shape **out, struct qwp_error *err)
{
    struct qwp_table *table = NULL;
    const enum qwp_result result = table_intern(schema, shape->table, &table, err);
    if (result != QWP_OK) {
        qwp_shape_destroy(shape);
        return result;
    }
    for (struct qwp_known_shape *known = table->shapes; known != NULL; known = known->next) {
        if (shapes_equal(known->shape, shape)) {
            qwp_shape_destroy(shape);
            known->refs++;
            *out = known;
            return QWP_OK;
        }
    }
    struct qwp_known_shape *known = known_create(table, shape);
    if (known == NULL) {
        qwp_shape_destroy(shape);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for one more shape");
    }
    known->refs = 1;
    known->next = table->shapes;
    table->shapes = known;
    *out = known;
    return QWP_OK;
}

void qwp_schema_release(struct qwp_known_shape *known)
{
    if (--known->refs > 0) {
        return;
    }
    struct qwp_known_shape **link = &known->table->shapes;
    while (*link != known) {
        link = &(*link)->next;
    }
    *link = known->next;
    known_destroy(known);
}

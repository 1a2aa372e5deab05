#include "sidecar/qwp_schema.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/wire/qwp_names.h"
#include "ipc/qwp_file.h"

enum {
    TABLES_CAPACITY_MIN = 64,
    SHAPE_SLOTS_MIN = 16,
    GROUP_COLUMNS_MIN = 16,
    /* So many groups of a table are asked, newest first, whether they take a shape. */
    GROUPS_ASKED_MAX = 16,
};

enum qwp_result qwp_schema_init(struct qwp_schema *schema, uint32_t tables_max)
{
    *schema = (struct qwp_schema){.capacity = TABLES_CAPACITY_MIN, .tables_max = tables_max};
    schema->tables = calloc(schema->capacity, sizeof *schema->tables);
    schema->seed = qwp_random_u64();
    return schema->tables != NULL ? QWP_OK : QWP_NOMEM;
}

static void known_destroy(struct qwp_known_shape *known)
{
    qwp_shape_destroy(known->shape);
    free(known->block_columns);
    free(known->identity);
    free(known->group_column);
    free(known->vars);
    free(known);
}

static void group_destroy(struct qwp_group *group)
{
    for (uint32_t i = 0; i < group->column_count; i++) {
        free((char *)group->columns[i].column.name.text);
    }
    free(group->columns);
    free(group->slots);
    free(group);
}

static void table_destroy(struct qwp_table *table)
{
    for (uint32_t i = 0; i < table->shape_slots; i++) {
        for (struct qwp_known_shape *next, *known = table->shapes[i]; known != NULL; known = next) {
            next = known->next;
            known_destroy(known);
        }
    }
    free(table->shapes);
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

/* Tables that producers defined, wrote nothing to, and left. */
static void tables_sweep(struct qwp_schema *schema)
{
    struct qwp_table **tables = calloc(schema->capacity, sizeof *tables);
    if (tables == NULL) {
        return;
    }
    for (uint32_t i = 0; i < schema->capacity; i++) {
        struct qwp_table *table = schema->tables[i];
        if (table == NULL) {
            continue;
        }
        if (table->shape_count == 0 && !table->was_framed && !table->held) {
            schema->count--;
            table_destroy(table);
        } else {
            *table_slot(tables, schema->capacity, table->hash, table->name) = table;
        }
    }
    free(schema->tables);
    schema->tables = tables;
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
        tables_sweep(schema);
        slot = table_slot(schema->tables, schema->capacity, hash, name);
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

/* The slot of the column of that name, or where it belongs. */
static uint16_t *column_slot(const struct qwp_group *group, uint64_t hash, struct qwp_name name)
{
    const uint64_t mask = 2 * (uint64_t)group->column_capacity - 1;
    for (uint64_t at = hash;; at++) {
        uint16_t *slot = &group->slots[at & mask];
        if (*slot == 0) {
            return slot;
        }
        const struct qwp_group_column *column = &group->columns[*slot - 1];
        if (column->name_hash == hash &&
            qwp_name_equal(column->column.name.text, column->column.name.len, name.text,
                           name.len)) {
            return slot;
        }
    }
}

static uint32_t group_find(const struct qwp_group *group, struct qwp_name name)
{
    if (group->column_count == 0) {
        return QWP_NO_COLUMN;
    }
    const uint16_t slot = *column_slot(group, qwp_name_hash(name.text, name.len), name);
    return slot == 0 ? QWP_NO_COLUMN : slot - 1u;
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

static bool group_grow(struct qwp_group *group)
{
    const uint32_t capacity =
        group->column_capacity == 0 ? GROUP_COLUMNS_MIN : group->column_capacity * 2;
    struct qwp_group_column *columns = realloc(group->columns, capacity * sizeof *columns);
    if (columns == NULL) {
        return false;
    }
    group->columns = columns;
    uint16_t *slots = calloc(2 * (size_t)capacity, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    free(group->slots);
    group->slots = slots;
    group->column_capacity = capacity;
    for (uint32_t i = 0; i < group->column_count; i++) {
        *column_slot(group, columns[i].name_hash, columns[i].column.name) = (uint16_t)(i + 1);
    }
    return true;
}

static bool group_add(struct qwp_group *group, const struct qwp_shape_column *column,
                      uint32_t *index)
{
    if (group->column_count == group->column_capacity && !group_grow(group)) {
        return false;
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
    *column_slot(group, added->name_hash, added->column.name) = (uint16_t)group->column_count;
    return true;
}

/* A group of the table that takes the shape, widened by the columns it lacks. */
static struct qwp_group *group_join(struct qwp_table *table, const struct qwp_shape *shape,
                                    uint32_t *group_column)
{
    struct qwp_group *group = table->groups;
    for (int asked = 0; group != NULL && !group_takes(group, shape); asked++) {
        group = asked < GROUPS_ASKED_MAX ? group->next : NULL;
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
    known->vars = calloc(shape->var_count + 1u, sizeof *known->vars);
    if (known->block_columns == NULL || known->identity == NULL || known->group_column == NULL ||
        known->vars == NULL ||
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
            known->vars[column->var_index] = (struct qwp_known_var){
                .off = column->off,
                .column = (uint16_t)i,
                .is_symbol = column->type == QWP_TYPE_SYMBOL,
            };
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

static uint64_t shape_hash(uint64_t seed, const struct qwp_shape *shape)
{
    uint64_t hash = seed ^ shape->designated_type;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        const struct qwp_shape_column *column = &shape->columns[i];
        const uint64_t own = qwp_name_hash(column->name.text, column->name.len) ^
                             (uint64_t)column->type << 48 ^ (uint64_t)column->parameter << 56;
        const unsigned __int128 wide =
            (unsigned __int128)(hash ^ own) * (seed | UINT64_C(0x9e3779b97f4a7c15));
        hash = (uint64_t)wide ^ (uint64_t)(wide >> 64);
    }
    return hash;
}

static struct qwp_known_shape **shape_slot(const struct qwp_table *table, uint64_t hash)
{
    return &table->shapes[hash & (table->shape_slots - 1)];
}

static bool shapes_grow(struct qwp_table *table)
{
    const uint32_t before = table->shape_slots;
    struct qwp_known_shape **chains = table->shapes;
    const uint32_t count = before == 0 ? SHAPE_SLOTS_MIN : before * 2;
    struct qwp_known_shape **shapes = calloc(count, sizeof *shapes);
    if (shapes == NULL) {
        return false;
    }
    table->shapes = shapes;
    table->shape_slots = count;
    for (uint32_t i = 0; i < before; i++) {
        for (struct qwp_known_shape *next, *known = chains[i]; known != NULL; known = next) {
            next = known->next;
            struct qwp_known_shape **slot = shape_slot(table, known->hash);
            known->next = *slot;
            *slot = known;
        }
    }
    free(chains);
    return true;
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
    if (table->shape_count == table->shape_slots && !shapes_grow(table)) {
        qwp_shape_destroy(shape);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for one more shape");
    }
    const uint64_t hash = shape_hash(schema->seed, shape);
    struct qwp_known_shape **slot = shape_slot(table, hash);
    for (struct qwp_known_shape *known = *slot; known != NULL; known = known->next) {
        if (known->hash == hash && shapes_equal(known->shape, shape)) {
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
    known->hash = hash;
    known->next = *slot;
    *slot = known;
    table->shape_count++;
    *out = known;
    return QWP_OK;
}

void qwp_schema_release(struct qwp_known_shape *known)
{
    if (--known->refs > 0) {
        return;
    }
    struct qwp_known_shape **link = shape_slot(known->table, known->hash);
    while (*link != known) {
        link = &(*link)->next;
    }
    *link = known->next;
    known->table->shape_count--;
    known_destroy(known);
}

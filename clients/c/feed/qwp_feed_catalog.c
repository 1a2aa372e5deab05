#include "clients/c/feed/qwp_feed_catalog.h"

#include <stdlib.h>
#include <string.h>

#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"

struct qwp_feed_slot {
    uint64_t hash;
    uint32_t owner; /* table of a column, else 0 */
    uint32_t index_plus_one;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
    h = (h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ (h >> 29);
}

static enum qwp_result no_memory(struct qwp_error *err)
{
    return qwp_fail(err, QWP_NOMEM, 0, "no memory for another table, column or shape");
}

static void put(struct qwp_feed_slots *s, struct qwp_feed_slot slot)
{
    uint32_t i = (uint32_t)slot.hash & (s->slot_count - 1);
    while (s->slots[i].index_plus_one != 0) {
        i = (i + 1) & (s->slot_count - 1);
    }
    s->slots[i] = slot;
}

static bool slots_add(struct qwp_feed_slots *s, uint64_t hash, uint32_t owner, uint32_t index)
{
    if (s->used * 2 >= s->slot_count) {
        struct qwp_feed_slots grown = {.slot_count = s->slot_count ? s->slot_count * 2 : 64,
                                       .used = s->used};
        grown.slots = calloc(grown.slot_count, sizeof *grown.slots);
        if (grown.slots == NULL) {
            return false;
        }
        for (uint32_t i = 0; i < s->slot_count; i++) {
            if (s->slots[i].index_plus_one != 0) {
                put(&grown, s->slots[i]);
            }
        }
        free(s->slots);
        *s = grown;
    }
    put(s, (struct qwp_feed_slot){hash, owner, index + 1});
    s->used++;
    return true;
}

/* Walks the entries with this hash: pass 0 first, then what it returned. NULL: no more. */
static const struct qwp_feed_slot *slots_next(const struct qwp_feed_slots *s, uint64_t hash,
                                              uint32_t owner, uint32_t *step)
{
    while (s->slot_count != 0) {
        const struct qwp_feed_slot *slot =
            &s->slots[((uint32_t)hash + *step) & (s->slot_count - 1)];
        if (slot->index_plus_one == 0) {
            return NULL;
        }
        ++*step;
        if (slot->hash == hash && slot->owner == owner) {
            return slot;
        }
    }
    return NULL;
}

/* The array, moved if need be, with room for one more element; NULL: no memory, the array stays. */
static void *with_room(void *array, uint32_t count, uint32_t *room, size_t element_bytes)
{
    if (count < *room) {
        return array;
    }
    const uint32_t more = *room ? *room * 2 : 16;
    void *grown = realloc(array, more * element_bytes);
    if (grown != NULL) {
        *room = more;
    }
    return grown;
}

void qwp_feed_catalog_close(struct qwp_feed_catalog *catalog)
{
    for (uint32_t i = 0; i < catalog->table_count; i++) {
        free(catalog->tables[i]->columns);
    }
    free(catalog->tables);
    free(catalog->shapes);
    free(catalog->table_slots.slots);
    free(catalog->column_slots.slots);
    free(catalog->shape_slots.slots);
    qwp_feed_arena_reset(&catalog->arena);
    *catalog = (struct qwp_feed_catalog){0};
}

enum qwp_result qwp_feed_catalog_table(struct qwp_feed_catalog *catalog, const char *name,
                                       size_t len, struct qwp_feed_table **out,
                                       struct qwp_error *err)
{
    const enum qwp_result result = qwp_table_name_check(name, len, QWP_NAME_BYTES_MAX, err);
    if (result != QWP_OK) {
        return result;
    }
    const uint64_t hash = qwp_name_hash(name, len);
    uint32_t step = 0;
    const struct qwp_feed_slot *slot;
    while ((slot = slots_next(&catalog->table_slots, hash, 0, &step)) != NULL) {
        struct qwp_feed_table *table = catalog->tables[slot->index_plus_one - 1];
        if (qwp_name_equal(table->name, table->name_len, name, len)) {
            *out = table;
            return QWP_OK;
        }
    }
    if (catalog->table_count >= QWP_TABLES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %d tables", QWP_TABLES_MAX);
    }
    struct qwp_feed_table **tables = with_room(catalog->tables, catalog->table_count,
                                               &catalog->table_room, sizeof *catalog->tables);
    if (tables == NULL) {
        return no_memory(err);
    }
    catalog->tables = tables;
    struct qwp_feed_table *table = qwp_feed_arena_alloc(&catalog->arena, sizeof *table);
    char *copy = qwp_feed_arena_copy(&catalog->arena, name, len);
    if (table == NULL || copy == NULL ||
        !slots_add(&catalog->table_slots, hash, 0, catalog->table_count)) {
        return no_memory(err);
    }
    *table = (struct qwp_feed_table){
        .name = copy, .name_len = (uint32_t)len, .index = catalog->table_count};
    catalog->tables[catalog->table_count++] = table;
    *out = table;
    return QWP_OK;
}

static bool is_reserved(const char *reserved, const char *name, size_t len)
{
    return reserved != NULL && qwp_name_equal(reserved, strlen(reserved), name, len);
}

static enum qwp_result add_column(struct qwp_feed_catalog *catalog, struct qwp_feed_table *table,
                                  uint64_t hash, struct qwp_feed_column column, uint32_t *out,
                                  struct qwp_error *err)
{
    const enum qwp_result result =
        qwp_column_name_check(column.name, column.name_len, QWP_NAME_BYTES_MAX, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "table '%s'", table->name);
        return result;
    }
    if (is_reserved(catalog->seq_column, column.name, column.name_len) ||
        is_reserved(catalog->producer_column, column.name, column.name_len)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "table '%s' has a column '%.*s' of its own: choose another name with "
                        "--add-seq or --producer-column",
                        table->name, (int)column.name_len, column.name);
    }
    if (table->column_count >= QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "table '%s' has more than %d columns", table->name,
                        QWP_COLUMNS_MAX);
    }
    struct qwp_feed_column *columns =
        with_room(table->columns, table->column_count, &table->column_room, sizeof *table->columns);
    if (columns == NULL) {
        return no_memory(err);
    }
    table->columns = columns;
    column.name = qwp_feed_arena_copy(&catalog->arena, column.name, column.name_len);
    if (column.name == NULL ||
        !slots_add(&catalog->column_slots, hash, table->index, table->column_count)) {
        return no_memory(err);
    }
    *out = table->column_count;
    table->columns[table->column_count++] = column;
    return QWP_OK;
}

enum qwp_result qwp_feed_catalog_column(struct qwp_feed_catalog *catalog,
                                        struct qwp_feed_table *table, const char *name, size_t len,
                                        uint8_t type, uint8_t parameter, uint32_t *out,
                                        struct qwp_error *err)
{
    if (!qwp_utf8_valid(name, len)) { /* the hash reads code points */
        return qwp_fail(err, QWP_INVALID, 0, "table '%s': a column name is not valid UTF-8",
                        table->name);
    }
    const uint64_t hash = mix(qwp_name_hash(name, len), table->index);
    uint32_t step = 0;
    const struct qwp_feed_slot *slot;
    while ((slot = slots_next(&catalog->column_slots, hash, table->index, &step)) != NULL) {
        const struct qwp_feed_column *column = &table->columns[slot->index_plus_one - 1];
        if (qwp_name_equal(column->name, column->name_len, name, len)) {
            *out = slot->index_plus_one - 1;
            return QWP_OK;
        }
    }
    const struct qwp_feed_column column = {name, (uint32_t)len, type, parameter};
    return add_column(catalog, table, hash, column, out, err);
}

static bool shape_is(const struct qwp_feed_shape *shape, const struct qwp_feed_table *table,
                     enum qwp_at at, const uint32_t *columns, size_t count)
{
    return shape->table == table && shape->at == at && shape->column_count == count &&
           memcmp(shape->columns, columns, count * sizeof *columns) == 0;
}

static enum qwp_result check_no_twins(const struct qwp_feed_table *table, const uint32_t *columns,
                                      size_t count, struct qwp_error *err)
{
    uint64_t seen[QWP_COLUMNS_MAX / 64] = {0};
    for (size_t i = 0; i < count; i++) {
        const uint64_t bit = UINT64_C(1) << (columns[i] % 64);
        if (seen[columns[i] / 64] & bit) {
            return qwp_fail(err, QWP_INVALID, 0, "table '%s': column '%s' comes twice in one row",
                            table->name, table->columns[columns[i]].name);
        }
        seen[columns[i] / 64] |= bit;
    }
    return QWP_OK;
}

/* NULL columns: all of the table's, in order. */
static enum qwp_result add_shape(struct qwp_feed_catalog *catalog, struct qwp_feed_table *table,
                                 enum qwp_at at, const uint32_t *columns, size_t count,
                                 uint64_t hash, struct qwp_feed_shape **out, struct qwp_error *err)
{
    struct qwp_feed_shape **shapes = with_room(catalog->shapes, catalog->shape_count,
                                               &catalog->shape_room, sizeof *catalog->shapes);
    if (shapes == NULL) {
        return no_memory(err);
    }
    catalog->shapes = shapes;
    struct qwp_feed_shape *shape =
        qwp_feed_arena_alloc(&catalog->arena, sizeof *shape + count * sizeof *columns);
    if (shape == NULL) {
        return no_memory(err);
    }
    if (columns != NULL && !slots_add(&catalog->shape_slots, hash, 0, catalog->shape_count)) {
        return no_memory(err);
    }
    shape->table = table;
    shape->index = catalog->shape_count;
    shape->column_count = (uint32_t)count;
    shape->at = at;
    for (uint32_t i = 0; i < count; i++) {
        shape->columns[i] = columns != NULL ? columns[i] : i;
    }
    catalog->shapes[catalog->shape_count++] = shape;
    table->shape_count++;
    *out = shape;
    return QWP_OK;
}

/* Grows with the table, so there are at most as many as columns, times the kinds of timestamp. */
static enum qwp_result wide_shape(struct qwp_feed_catalog *catalog, struct qwp_feed_table *table,
                                  enum qwp_at at, const struct qwp_feed_shape **out,
                                  struct qwp_error *err)
{
    struct qwp_feed_shape **wide = &table->wide[at];
    if (*wide == NULL || (*wide)->column_count != table->column_count) {
        const enum qwp_result result =
            add_shape(catalog, table, at, NULL, table->column_count, 0, wide, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    *out = *wide;
    return QWP_OK;
}

enum qwp_result qwp_feed_catalog_shape(struct qwp_feed_catalog *catalog,
                                       struct qwp_feed_table *table, enum qwp_at at,
                                       const uint32_t *columns, size_t column_count,
                                       const struct qwp_feed_shape **out, bool *wide,
                                       struct qwp_error *err)
{
    uint64_t hash = mix(table->index, (uint64_t)at);
    for (size_t i = 0; i < column_count; i++) {
        hash = mix(hash, columns[i]);
    }
    uint32_t step = 0;
    const struct qwp_feed_slot *slot;
    while ((slot = slots_next(&catalog->shape_slots, hash, 0, &step)) != NULL) {
        struct qwp_feed_shape *shape = catalog->shapes[slot->index_plus_one - 1];
        if (shape_is(shape, table, at, columns, column_count)) {
            *out = shape;
            *wide = false;
            return QWP_OK;
        }
    }
    enum qwp_result result = check_no_twins(table, columns, column_count, err);
    if (result != QWP_OK) {
        return result;
    }
    *wide = table->shape_count >= QWP_FEED_SHAPES_MAX;
    if (*wide) {
        return wide_shape(catalog, table, at, out, err);
    }
    struct qwp_feed_shape *shape;
    result = add_shape(catalog, table, at, columns, column_count, hash, &shape, err);
    if (result == QWP_OK) {
        *out = shape;
    }
    return result;
}

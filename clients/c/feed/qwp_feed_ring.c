#include "clients/c/feed/qwp_feed_ring.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"

enum {
    DEFINITION_BYTES_DEFAULT = 4 * 1024 * 1024,
    SYMBOL_OVERHEAD_BYTES = 16, /* assumed of a symbol in the definitions area */
};

/* How a value goes into a reserved row. */
enum store {
    STORE_1,
    STORE_2,
    STORE_4,
    STORE_8,
    STORE_WORDS_1,
    STORE_WORDS_2,
    STORE_WORDS_4,
    STORE_SYMBOL,
    STORE_TEXT,
    STORE_ARRAY,
};

struct step {
    uint32_t off;
    enum store store;
};

struct qwp_feed_ring_plan {
    const struct qwp_layout *layout;
    uint32_t at_off; /* 0: the server's time */
    uint32_t var_off;
    uint32_t seq_off; /* 0: no such column */
    uint32_t producer_off;
    int64_t at_max;
    uint32_t step_count;
    bool has_varchar;
    bool has_parts; /* besides the texts of symbols */
    struct step steps[];
};

struct qwp_feed_ring_table {
    struct qwp_table *table;
    uint32_t *columns; /* the ring's, by the catalog's */
    uint32_t column_count;
    uint32_t column_room;
    uint32_t seq_column;
    uint32_t producer_column;
    uint64_t rows;
};

enum qwp_result qwp_feed_ring_open(struct qwp_feed_ring *ring,
                                   const struct qwp_feed_ring_options *options,
                                   struct qwp_feed_catalog *catalog,
                                   struct qwp_feed_symbols *symbols, struct qwp_error *err)
{
    *ring = (struct qwp_feed_ring){.options = *options, .catalog = catalog, .symbols = symbols};
    catalog->seq_column = options->seq_column;
    catalog->producer_column = options->producer_column;
    struct qwp_producer_options *producer = &ring->options.producer;
    if (producer->definition_bytes_max == 0) {
        producer->definition_bytes_max = DEFINITION_BYTES_DEFAULT;
    }
    /* The last quarter is kept for tables that come late. */
    ring->symbol_bytes_max = producer->definition_bytes_max / 4 * 3;
    if (options->dry) {
        return QWP_OK;
    }
    enum qwp_result result = qwp_producer_open(&ring->producer, producer, err);
    if (result == QWP_OK && options->producer_column != NULL) {
        result = qwp_symbol_intern(ring->producer, producer->name, strlen(producer->name),
                                   &ring->producer_symbol, err);
    }
    if (result != QWP_OK) {
        qwp_feed_ring_close(ring);
    }
    return result;
}

void qwp_feed_ring_close(struct qwp_feed_ring *ring)
{
    qwp_producer_close(ring->producer);
    for (uint32_t i = 0; i < ring->table_room; i++) {
        free(ring->tables[i].columns);
    }
    for (uint32_t i = 0; i < ring->plan_room; i++) {
        free(ring->plans[i]);
    }
    free(ring->tables);
    free(ring->plans);
    *ring = (struct qwp_feed_ring){0};
}

static enum qwp_result no_memory(struct qwp_error *err)
{
    return qwp_fail(err, QWP_NOMEM, 0, "no memory for another table or set of columns");
}

/* ---- tables and plans, at their first row ---- */

static enum qwp_result define_column(struct qwp_feed_ring_table *table, const char *name,
                                     uint8_t type, uint8_t parameter, uint32_t *out,
                                     struct qwp_error *err)
{
    const struct qwp_column column = {name, (enum qwp_column_type)type, parameter};
    return qwp_table_column(table->table, &column, out, err);
}

static enum qwp_result define_table(struct qwp_feed_ring *ring, struct qwp_feed_ring_table *table,
                                    const char *name, struct qwp_error *err)
{
    enum qwp_result result = qwp_table_define(ring->producer, name, NULL, 0, &table->table, err);
    if (result == QWP_OK && ring->options.seq_column != NULL) {
        result =
            define_column(table, ring->options.seq_column, QWP_LONG, 0, &table->seq_column, err);
    }
    if (result == QWP_OK && ring->options.producer_column != NULL) {
        result = define_column(table, ring->options.producer_column, QWP_SYMBOL, 0,
                               &table->producer_column, err);
    }
    if (result != QWP_OK) {
        table->table = NULL;
    }
    return result;
}

/* The columns that the catalog has by now. */
static enum qwp_result define_columns(struct qwp_feed_ring_table *table,
                                      const struct qwp_feed_table *from, struct qwp_error *err)
{
    if (from->column_count > table->column_room) {
        uint32_t *columns = realloc(table->columns, from->column_room * sizeof *columns);
        if (columns == NULL) {
            return no_memory(err);
        }
        table->columns = columns;
        table->column_room = from->column_room;
    }
    for (; table->column_count < from->column_count; table->column_count++) {
        const struct qwp_feed_column *c = &from->columns[table->column_count];
        const enum qwp_result result = define_column(table, c->name, c->type, c->parameter,
                                                     &table->columns[table->column_count], err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return QWP_OK;
}

static enum qwp_result table_get(struct qwp_feed_ring *ring, const struct qwp_feed_table *from,
                                 struct qwp_feed_ring_table **out, struct qwp_error *err)
{
    if (from->index >= ring->table_room) {
        const uint32_t room =
            ring->catalog->table_room > from->index ? ring->catalog->table_room : from->index + 1;
        struct qwp_feed_ring_table *tables = realloc(ring->tables, room * sizeof *tables);
        if (tables == NULL) {
            return no_memory(err);
        }
        memset(tables + ring->table_room, 0, (room - ring->table_room) * sizeof *tables);
        ring->tables = tables;
        ring->table_room = room;
    }
    struct qwp_feed_ring_table *table = &ring->tables[from->index];
    *out = table;
    if (ring->options.dry) {
        return QWP_OK;
    }
    enum qwp_result result = QWP_OK;
    if (table->table == NULL) {
        result = define_table(ring, table, from->name, err);
    }
    return result == QWP_OK ? define_columns(table, from, err) : result;
}

static enum store store_of(uint8_t type)
{
    switch ((enum qwp_column_type)type) {
    case QWP_BOOLEAN:
    case QWP_BYTE:
        return STORE_1;
    case QWP_SHORT:
    case QWP_CHAR:
        return STORE_2;
    case QWP_INT:
    case QWP_FLOAT:
    case QWP_IPV4:
        return STORE_4;
    case QWP_LONG:
    case QWP_DOUBLE:
    case QWP_DATE:
    case QWP_TIMESTAMP:
    case QWP_TIMESTAMP_NANOS:
    case QWP_GEOHASH:
        return STORE_8;
    case QWP_DECIMAL64:
        return STORE_WORDS_1;
    case QWP_UUID:
    case QWP_DECIMAL128:
        return STORE_WORDS_2;
    case QWP_LONG256:
    case QWP_DECIMAL256:
        return STORE_WORDS_4;
    case QWP_SYMBOL:
        return STORE_SYMBOL;
    case QWP_VARCHAR:
    case QWP_BINARY:
        return STORE_TEXT;
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        break;
    }
    return STORE_ARRAY;
}

/* The shape's columns, then our own. */
static enum qwp_result define_layout(const struct qwp_feed_ring *ring,
                                     const struct qwp_feed_ring_table *table,
                                     const struct qwp_feed_shape *shape,
                                     const struct qwp_layout **out, struct qwp_error *err)
{
    uint32_t *columns = malloc((shape->column_count + 2) * sizeof *columns);
    if (columns == NULL) {
        return no_memory(err);
    }
    uint32_t n = 0;
    for (; n < shape->column_count; n++) {
        columns[n] = table->columns[shape->columns[n]];
    }
    if (ring->options.seq_column != NULL) {
        columns[n++] = table->seq_column;
    }
    if (ring->options.producer_column != NULL) {
        columns[n++] = table->producer_column;
    }
    const enum qwp_result result = qwp_layout_define(table->table, columns, n, shape->at, out, err);
    free(columns);
    return result;
}

/* Without a layout (a dry run) the places have no meaning. */
static void plan_fill(const struct qwp_feed_ring *ring, const struct qwp_feed_shape *shape,
                      const struct qwp_layout *layout, struct qwp_feed_ring_plan *plan)
{
    plan->layout = layout;
    plan->step_count = shape->column_count;
    plan->at_max = shape->at == QWP_AT_NS   ? QWP_DESIGNATED_NS_MAX
                   : shape->at == QWP_AT_US ? QWP_DESIGNATED_US_MAX
                                            : INT64_MAX;
    uint32_t n = 0;
    for (; n < shape->column_count; n++) {
        const uint8_t type = shape->table->columns[shape->columns[n]].type;
        plan->steps[n].store = store_of(type);
        plan->steps[n].off = layout != NULL ? qwp_layout_offset(layout, n) : 0;
        plan->has_varchar |= type == QWP_VARCHAR;
        plan->has_parts |= plan->steps[n].store >= STORE_TEXT;
    }
    if (layout == NULL) {
        return;
    }
    plan->at_off = qwp_layout_at_offset(layout);
    plan->var_off = qwp_layout_var_offset(layout);
    if (ring->options.seq_column != NULL) {
        plan->seq_off = qwp_layout_offset(layout, n++);
    }
    if (ring->options.producer_column != NULL) {
        plan->producer_off = qwp_layout_offset(layout, n++);
    }
}

static enum qwp_result plan_get(struct qwp_feed_ring *ring, const struct qwp_feed_shape *shape,
                                struct qwp_feed_ring_plan **out, struct qwp_error *err)
{
    if (shape->index >= ring->plan_room) {
        const uint32_t room =
            ring->catalog->shape_room > shape->index ? ring->catalog->shape_room : shape->index + 1;
        struct qwp_feed_ring_plan **plans = realloc(ring->plans, room * sizeof *plans);
        if (plans == NULL) {
            return no_memory(err);
        }
        memset(plans + ring->plan_room, 0, (room - ring->plan_room) * sizeof *plans);
        ring->plans = plans;
        ring->plan_room = room;
    }
    struct qwp_feed_ring_table *table = NULL;
    enum qwp_result result = table_get(ring, shape->table, &table, err);
    const struct qwp_layout *layout = NULL;
    if (result == QWP_OK && !ring->options.dry) {
        result = define_layout(ring, table, shape, &layout, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_feed_ring_plan *plan =
        calloc(1, sizeof *plan + shape->column_count * sizeof(struct step));
    if (plan == NULL) {
        return no_memory(err);
    }
    plan_fill(ring, shape, layout, plan);
    ring->plans[shape->index] = plan;
    *out = plan;
    return QWP_OK;
}

/* ---- rows ---- */

static enum qwp_result bad_time(const struct qwp_feed_row *row, struct qwp_error *err)
{
    const bool ns = row->shape->at == QWP_AT_NS;
    return qwp_fail(err, QWP_INVALID, 0,
                    "table '%s': timestamp %lld %s is outside of what the server takes, 1970 to %s "
                    "(wrong unit? see --precision and --time-format)",
                    row->shape->table->name, (long long)row->at, ns ? "ns" : "us",
                    ns ? "2261" : "9999");
}

/* What the hot path does not look at, and the sidecar would detach us for. */
static inline enum qwp_result check(const struct qwp_feed_ring_plan *plan,
                                    const struct qwp_feed_row *row, struct qwp_error *err)
{
    if (row->at < 0 || row->at > plan->at_max) {
        return bad_time(row, err);
    }
    if (!plan->has_varchar) {
        return QWP_OK;
    }
    const struct qwp_feed_shape *shape = row->shape;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct qwp_feed_value *value = &row->values[i];
        const struct qwp_feed_column *column = &shape->table->columns[shape->columns[i]];
        if (column->type == QWP_VARCHAR && !value->null &&
            !qwp_utf8_valid(value->text, value->len)) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "table '%s', column '%s': the text is not valid UTF-8",
                            shape->table->name, column->name);
        }
    }
    return QWP_OK;
}

/* Makes a handle of a symbol's text, or settles that it travels as text. */
static enum qwp_result symbol_resolve(struct qwp_feed_ring *ring, struct qwp_feed_symbol *symbol,
                                      struct qwp_error *err)
{
    if (!qwp_utf8_valid(symbol->text, symbol->len)) {
        return qwp_fail(err, QWP_INVALID, 0, "a symbol is not valid UTF-8");
    }
    if (symbol->handle == QWP_FEED_SYMBOL_TEXT) {
        return QWP_OK;
    }
    if (ring->options.dry) {
        symbol->handle = 0;
        return QWP_OK;
    }
    const uint64_t bytes = symbol->len + SYMBOL_OVERHEAD_BYTES;
    if (ring->symbol_bytes + bytes <= ring->symbol_bytes_max) {
        uint32_t handle;
        const enum qwp_result result =
            qwp_symbol_intern(ring->producer, symbol->text, symbol->len, &handle, err);
        if (result == QWP_OK) {
            ring->symbol_bytes += bytes;
            symbol->handle = handle;
            return QWP_OK;
        }
        if (result != QWP_LIMIT) {
            return result;
        }
    }
    ring->symbols->closed = true;
    symbol->handle = QWP_FEED_SYMBOL_TEXT;
    return QWP_OK;
}

static uint32_t array_elements(const struct qwp_feed_array *array)
{
    uint32_t n = 1;
    for (uint32_t i = 0; i < array->dimensions; i++) {
        n *= array->shape[i]; /* the converter made as many elements, so it fits */
    }
    return n;
}

static uint32_t array_bytes(const struct qwp_feed_array *array)
{
    return 1 + array->dimensions * 4 + array_elements(array) * 8;
}

/* Sum of the bytes that do not lie in fixed fields; symbols get their handles on the way. */
static enum qwp_result measure(struct qwp_feed_ring *ring, const struct qwp_feed_ring_plan *plan,
                               const struct qwp_feed_row *row, uint32_t *var_bytes,
                               struct qwp_error *err)
{
    uint64_t bytes = 0;
    const struct qwp_feed_value *value = row->values;
    for (const struct step *s = plan->steps; s < plan->steps + plan->step_count; s++, value++) {
        if (s->store < STORE_SYMBOL || value->null) {
            continue;
        }
        if (s->store == STORE_SYMBOL) {
            if (__builtin_expect(value->symbol->handle >= QWP_FEED_SYMBOL_TEXT, 0)) {
                const enum qwp_result result = symbol_resolve(ring, value->symbol, err);
                if (result != QWP_OK) {
                    return result;
                }
                bytes += value->symbol->handle == QWP_FEED_SYMBOL_TEXT ? value->symbol->len : 0;
            }
        } else {
            bytes += s->store == STORE_TEXT ? value->len : array_bytes(value->array);
        }
    }
    if (bytes > INT32_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "a row of %llu bytes", (unsigned long long)bytes);
    }
    *var_bytes = (uint32_t)bytes;
    return QWP_OK;
}

static char *store_array(char *part, const struct qwp_feed_array *array)
{
    *part++ = (char)array->dimensions;
    memcpy(part, array->shape, array->dimensions * sizeof array->shape[0]);
    part += array->dimensions * 4;
    const size_t bytes = (size_t)array_elements(array) * 8;
    memcpy(part, array->values, bytes);
    return part + bytes;
}

/* One value to its place; returns where the next part goes. */
static inline char *store_value(char *to, char *part, const struct step *step, uint32_t index,
                                const struct qwp_feed_value *value)
{
    char *field = to + step->off;
    if (__builtin_expect(value->null, 0)) {
        qwp_reserved_null(to, index);
        return part;
    }
    switch (step->store) {
    case STORE_1:
        *field = (char)value->i64;
        break;
    case STORE_2:
        qwp_store_u16(field, (uint16_t)value->i64);
        break;
    case STORE_4: /* a float lies in the low half */
        qwp_store_u32(field, (uint32_t)value->i64);
        break;
    case STORE_8: /* a double as well */
        qwp_store_i64(field, value->i64);
        break;
    case STORE_WORDS_1:
        memcpy(field, value->words, 8);
        break;
    case STORE_WORDS_2:
        memcpy(field, value->words, 16);
        break;
    case STORE_WORDS_4:
        memcpy(field, value->words, 32);
        break;
    case STORE_SYMBOL:
        if (__builtin_expect(value->symbol->handle < QWP_FEED_SYMBOL_TEXT, 1)) {
            qwp_store_u32(field, value->symbol->handle);
            break;
        }
        qwp_reserved_symbol_text(to, step->off, value->symbol->len);
        memcpy(part, value->symbol->text, value->symbol->len);
        return part + value->symbol->len;
    case STORE_TEXT:
        qwp_store_u32(field, value->len);
        memcpy(part, value->text, value->len);
        return part + value->len;
    case STORE_ARRAY:
        qwp_store_u32(field, array_bytes(value->array));
        return store_array(part, value->array);
    }
    return part;
}

static enum qwp_result reserve_failed(struct qwp_feed_ring *ring, enum qwp_result result,
                                      const struct qwp_feed_row *row, struct qwp_error *err)
{
    if (result == QWP_AGAIN) {
        return qwp_fail(err, QWP_AGAIN, 0, "the ring is full, and nobody empties it");
    }
    if (result == QWP_CLOSED) {
        char reason[256] = "";
        qwp_consumer_reason(ring->producer, reason, sizeof reason);
        return qwp_fail(err, QWP_CLOSED, 0, "the sidecar does not read this ring any more: %s",
                        reason);
    }
    return qwp_fail(
        err, result, 0,
        "table '%s': the row is too large: at most half of --ring-bytes, and never more "
        "than %u bytes",
        row->shape->table->name, ring->options.producer.unit_bytes_max);
}

/* Room for a row, waiting for it as long as nobody says stop. */
static inline enum qwp_result reserve(struct qwp_feed_ring *ring,
                                      const struct qwp_feed_ring_plan *plan, uint32_t var_bytes,
                                      void **out)
{
    enum qwp_result result;
    do {
        result = qwp_row_reserve(ring->producer, plan->layout, var_bytes, out);
    } while (result == QWP_AGAIN && !ring->options.give_up(ring->options.context));
    return result;
}

/* All values of a row whose symbols are known and that has nothing else of variable length, in one
 * pass; false: it is not such a row, and what was stored has no meaning. */
static inline bool store_fixed(const struct qwp_feed_ring_plan *plan,
                               const struct qwp_feed_row *row, char *to)
{
    uint32_t worst = 0;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const struct step *step = &plan->steps[i];
        const struct qwp_feed_value *value = &row->values[i];
        if (step->store == STORE_SYMBOL && !value->null) {
            const uint32_t handle = value->symbol->handle;
            worst = handle > worst ? handle : worst;
            qwp_store_u32(to + step->off, handle);
        } else {
            store_value(to, NULL, step, i, value);
        }
    }
    return worst < QWP_FEED_SYMBOL_TEXT;
}

/* All values, in two passes. */
static enum qwp_result store_any(struct qwp_feed_ring *ring, const struct qwp_feed_ring_plan *plan,
                                 const struct qwp_feed_row *row, char **to, struct qwp_error *err)
{
    uint32_t var_bytes = 0;
    enum qwp_result result = measure(ring, plan, row, &var_bytes, err);
    if (result != QWP_OK) {
        return result;
    }
    void *reserved;
    result = reserve(ring, plan, var_bytes, &reserved);
    if (result != QWP_OK) {
        return reserve_failed(ring, result, row, err);
    }
    *to = reserved;
    char *part = *to + plan->var_off;
    for (uint32_t i = 0; i < plan->step_count; i++) {
        part = store_value(*to, part, &plan->steps[i], i, &row->values[i]);
    }
    return QWP_OK;
}

/* The row into the ring. */
static enum qwp_result put(struct qwp_feed_ring *ring, const struct qwp_feed_ring_plan *plan,
                           const struct qwp_feed_ring_table *table, const struct qwp_feed_row *row,
                           struct qwp_error *err)
{
    enum qwp_result result;
    char *to = NULL;
    if (!plan->has_parts) {
        void *reserved;
        result = reserve(ring, plan, 0, &reserved);
        if (result != QWP_OK) {
            return reserve_failed(ring, result, row, err);
        }
        to = store_fixed(plan, row, reserved) ? reserved : NULL;
    }
    if (to == NULL) { /* a row reserved above is dropped by reserving another one */
        result = store_any(ring, plan, row, &to, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (plan->at_off != 0) {
        qwp_store_i64(to + plan->at_off, row->at);
    }
    if (plan->seq_off != 0) {
        qwp_store_u64(to + plan->seq_off, table->rows);
    }
    if (plan->producer_off != 0) {
        qwp_store_u32(to + plan->producer_off, ring->producer_symbol);
    }
    result = qwp_row_publish(ring->producer);
    return result == QWP_OK ? QWP_OK : reserve_failed(ring, result, row, err);
}

/* What a dry run does of it: symbols are looked at once, too. */
static enum qwp_result dry_put(struct qwp_feed_ring *ring, const struct qwp_feed_ring_plan *plan,
                               const struct qwp_feed_row *row, struct qwp_error *err)
{
    uint32_t var_bytes = 0;
    return measure(ring, plan, row, &var_bytes, err);
}

enum qwp_result qwp_feed_ring_take(struct qwp_feed_ring *ring, const struct qwp_feed_row *row,
                                   struct qwp_error *err)
{
    enum qwp_result result;
    struct qwp_feed_ring_plan *plan =
        row->shape->index < ring->plan_room ? ring->plans[row->shape->index] : NULL;
    if (__builtin_expect(plan == NULL, 0)) {
        result = plan_get(ring, row->shape, &plan, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    struct qwp_feed_ring_table *table = &ring->tables[row->shape->table->index];
    result = check(plan, row, err);
    if (result == QWP_OK) {
        result =
            ring->options.dry ? dry_put(ring, plan, row, err) : put(ring, plan, table, row, err);
    }
    if (result == QWP_OK) {
        table->rows++;
        ring->rows++;
    }
    return result;
}

uint64_t qwp_feed_ring_rows(const struct qwp_feed_ring *ring, uint32_t table)
{
    return table < ring->table_room ? ring->tables[table].rows : 0;
}

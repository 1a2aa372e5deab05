/* Rows at known places: the caller fills the record in the ring itself. */
#include <stdlib.h>

#include "clients/c/qwp_producer.h"

static enum qwp_result columns_check(const struct qwp_table *table, const uint32_t *columns,
                                     size_t column_count, struct qwp_error *err)
{
    const struct qwp_name name = table->shape->table;
    if (column_count > table->column_count) {
        return qwp_fail(err, QWP_INVALID, 0, "table '%.*s': a layout of %zu columns, it has %u",
                        (int)name.len, name.text, column_count, table->column_count);
    }
    for (size_t i = 0; i < column_count; i++) {
        if (columns[i] >= table->column_count) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "table '%.*s': no column has the index %u, there are %u", (int)name.len,
                            name.text, columns[i], table->column_count);
        }
    }
    return QWP_OK;
}

static enum qwp_result shape_for(const struct qwp_table *table, const uint32_t *columns,
                                 size_t column_count, enum qwp_at at, struct qwp_shape **out,
                                 struct qwp_error *err)
{
    struct qwp_column_def *defs = malloc((column_count + 1) * sizeof defs[0]);
    if (defs == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %zu columns", column_count);
    }
    for (size_t i = 0; i < column_count; i++) {
        const struct qwp_shape_column *column = &table->shape->columns[columns[i]];
        defs[i] = (struct qwp_column_def){column->name, column->type, column->parameter};
    }
    const enum qwp_result result =
        qwp_shape_create(out, table->shape->table, defs, column_count, qwp_at_type(at), err);
    free(defs);
    return result;
}

/* Takes the shape unless it fails. */
static struct qwp_layout *layout_from(struct qwp_shape *shape, enum qwp_at at)
{
    struct qwp_layout *layout =
        calloc(1, sizeof *layout + (shape->column_count + (size_t)1) * sizeof layout->offs[0]);
    if (layout == NULL) {
        return NULL;
    }
    layout->shape = shape;
    layout->fixed_bytes = shape->fixed_bytes;
    layout->null_words = shape->null_words;
    layout->at_off = at == QWP_AT_SERVER ? 0 : shape->designated_off;
    layout->at_max = qwp_at_max(at);
    layout->column_count = shape->column_count;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        layout->offs[i] = shape->columns[i].off;
    }
    return layout;
}

enum qwp_result qwp_layout_define(struct qwp_table *table, const uint32_t *columns,
                                  size_t column_count, enum qwp_at at,
                                  const struct qwp_layout **out, struct qwp_error *err)
{
    struct qwp_producer *p = table->producer;
    enum qwp_result result = qwp_producer_check_open(p, err);
    if (result != QWP_OK) {
        return result;
    }
    if (at != QWP_AT_NS && at != QWP_AT_US && at != QWP_AT_SERVER) {
        return qwp_fail(err, QWP_INVALID, 0, "%d is none of QWP_AT_*", (int)at);
    }
    result = columns_check(table, columns, column_count, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_shape *shape;
    result = shape_for(table, columns, column_count, at, &shape, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_layout *layout = NULL;
    if (shape->fixed_bytes > p->ring.unit_bytes_max) {
        result = qwp_fail(err, QWP_LIMIT, 0,
                          "table '%.*s': a row of this layout takes %u bytes at least, this "
                          "producer's bound is %u: open it with more unit_bytes_max",
                          (int)shape->table.len, shape->table.text, shape->fixed_bytes,
                          p->ring.unit_bytes_max);
    } else {
        layout = layout_from(shape, at);
        result = layout == NULL ? qwp_fail(err, QWP_NOMEM, 0, "no memory for a layout") : QWP_OK;
    }
    const uint32_t index = p->ring.shape_count;
    if (result == QWP_OK) {
        result = qwp_ring_define_shape(&p->ring, shape, err);
    }
    if (result != QWP_OK) {
        qwp_shape_destroy(shape);
        free(layout);
        return result;
    }
    layout->head = qwp_record_head((uint16_t)index, 0);
    layout->next = p->layouts;
    p->layouts = layout;
    *out = layout;
    return QWP_OK;
}

void qwp_layouts_destroy(struct qwp_producer *producer)
{
    while (producer->layouts != NULL) {
        struct qwp_layout *layout = producer->layouts;
        producer->layouts = layout->next;
        qwp_shape_destroy(layout->shape);
        free(layout);
    }
}

uint32_t qwp_layout_offset(const struct qwp_layout *layout, size_t i)
{
    return i < layout->column_count ? layout->offs[i] : 0;
}

uint32_t qwp_layout_at_offset(const struct qwp_layout *layout)
{
    return layout->at_off;
}

uint32_t qwp_layout_var_offset(const struct qwp_layout *layout)
{
    return layout->fixed_bytes;
}

/* There is room. */
static inline void *reserve(struct qwp_producer *p, const struct qwp_layout *layout, uint64_t bytes)
{
    unsigned char *at = qwp_room_at(p);
    qwp_store_u64(at, layout->head);
    p->reserved = layout;
    p->reserved_bytes = (uint32_t)bytes;
    return at;
}

static __attribute__((noinline)) enum qwp_result
reserve_slow(struct qwp_producer *p, const struct qwp_layout *layout, uint64_t bytes, void **row)
{
    p->reserved = NULL;
    const enum qwp_result result =
        qwp_room_is_known(p, bytes) ? QWP_OK : qwp_room_get(p, bytes, 1, NULL);
    if (result == QWP_OK) {
        unsigned char *at = reserve(p, layout, bytes);
        memset(at + QWP_RECORD_HEADER_BYTES, 0, layout->null_words * sizeof(uint64_t));
        *row = at;
    }
    return result;
}

enum qwp_result qwp_row_reserve(struct qwp_producer *producer, const struct qwp_layout *layout,
                                uint32_t var_bytes, void **row)
{
    qwp_row_forget(&producer->row);
    const uint64_t bytes =
        qwp_round_up((uint64_t)layout->fixed_bytes + var_bytes, QWP_RECORD_ALIGN);
    if (QWP_UNLIKELY(!qwp_room_is_known(producer, bytes) || layout->null_words != 1)) {
        return reserve_slow(producer, layout, bytes, row);
    }
    unsigned char *at = reserve(producer, layout, bytes);
    qwp_store_u64(at + QWP_RECORD_HEADER_BYTES, 0);
    *row = at;
    return QWP_OK;
}

static __attribute__((cold, noinline)) enum qwp_result
publish_fail(const struct qwp_producer *producer)
{
    return qwp_producer_is_closed(producer) ? QWP_CLOSED : QWP_INVALID;
}

enum qwp_result qwp_row_publish(struct qwp_producer *producer)
{
    const struct qwp_layout *layout = producer->reserved;
    if (QWP_UNLIKELY(layout == NULL)) {
        return publish_fail(producer);
    }
    producer->reserved = NULL;
    unsigned char *at = qwp_room_at(producer);
    /* Without a timestamp this is the record's first word, and every word is in range. */
    if (QWP_UNLIKELY(qwp_load_u64(at + layout->at_off) > layout->at_max)) {
        return QWP_INVALID;
    }
    return qwp_record_end(producer, at, qwp_load_u64(at), producer->reserved_bytes);
}

/* Rows column by column: where a row is formed, and how it ends. */
#include "clients/c/qwp_producer.h"
#include "core/qwp_assert.h"

/* ---- begin ---- */

/* What the row may use of the ring, from its base, by the last head seen. */
static inline uint32_t limit_in_ring(const struct qwp_row *row, const struct qwp_producer *p)
{
    const uint64_t free_bytes = p->ring.data_bytes - (p->ring.write_pos - p->ring.head_seen_pos);
    return (uint32_t)(free_bytes < p->record_bytes_max ? free_bytes : p->record_bytes_max) +
           row->shift;
}

static void look_at_head(struct qwp_producer *p)
{
    /* sync[ring.head] acquire: pairs with the release in qwp_ring_release(). */
    p->ring.head_seen_pos = atomic_load_explicit(&p->ring.header->head_pos, memory_order_acquire);
}

/* From here on the row is formed apart; whether the ring has room is asked when it ends. */
static void stage(struct qwp_row *row, struct qwp_producer *p)
{
    row->base = p->stage;
    row->care |= QWP_CARE_STAGED;
    row->limit_bytes = (p->ring.unit_bytes_max & ~(uint32_t)(QWP_RECORD_ALIGN - 1)) + row->shift;
}

/* By the last head seen there is no room for the fixed part. */
static __attribute__((noinline)) struct qwp_row *begin_slow(struct qwp_row *row,
                                                            struct qwp_producer *p)
{
    memset(row->nulls, 0, row->table->null_words * sizeof row->nulls[0]);
    if (qwp_producer_is_closed(p)) {
        row->next = QWP_NEXT_NONE;
        row->care = QWP_CARE_FAILED;
        row->result = QWP_CLOSED;
        return row;
    }
    look_at_head(p);
    row->limit_bytes = limit_in_ring(row, p);
    if (row->used_bytes <= row->limit_bytes) {
        return row;
    }
    stage(row, p);
    if (row->used_bytes > row->limit_bytes) {
        qwp_row_fail(row, QWP_LIMIT,
                     "a row takes %u bytes at least, this producer's bound is %u: define fewer "
                     "columns, or open it with more unit_bytes_max (at most half of ring_bytes)",
                     row->used_bytes, p->ring.unit_bytes_max);
    }
    return row;
}

struct qwp_row *qwp_row_begin(struct qwp_table *table)
{
    struct qwp_producer *p = table->producer;
    struct qwp_row *row = &p->row;
    p->reserved = NULL;
    row->columns = table->columns;
    row->table = table;
    row->next = 0;
    row->column_count = table->column_count;
    row->used_bytes = table->fixed_bytes;
    row->shift = table->last_shift;
    row->care = 0;
    row->flags = 0;
    row->name_guess = 0;
    row->next_var = 0;
    row->nulls[0] = 0;
    row->limit_bytes = limit_in_ring(row, p);
    row->base = qwp_room_at(p) - row->shift;
    if (QWP_UNLIKELY(row->used_bytes > row->limit_bytes || table->null_words > 1)) {
        return begin_slow(row, p);
    }
    return row;
}

/* ---- more room ---- */

bool qwp_row_grow(struct qwp_row *row, size_t len)
{
    struct qwp_producer *p = row->table->producer;
    if ((row->care & QWP_CARE_STAGED) == 0) {
        look_at_head(p);
        row->limit_bytes = limit_in_ring(row, p);
        if (len <= row->limit_bytes - row->used_bytes) {
            return true;
        }
        const unsigned char *formed = row->base;
        stage(row, p);
        memcpy(row->base + row->shift, formed + row->shift, row->used_bytes - row->shift);
    }
    return len <= row->limit_bytes - row->used_bytes;
}

/* ---- names ---- */

uint32_t qwp_row_column(struct qwp_row *row, const char *name)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0) {
        return UINT32_MAX; /* its setter then returns what is wrong */
    }
    const size_t len = strlen(name);
    if (row->name_guess < row->table->column_count) {
        const struct qwp_name guess = row->table->shape->columns[row->name_guess].name;
        if (guess.len == len && memcmp(guess.text, name, len) == 0) {
            return row->name_guess++;
        }
    }
    const int32_t found = qwp_table_find(row->table, name, len);
    if (found < 0) {
        qwp_row_fail(row, QWP_INVALID,
                     "no column is named '%.*s'; add it with qwp_table_column() "
                     "before the row begins",
                     (int)(len > QWP_NAME_BYTES_MAX ? QWP_NAME_BYTES_MAX : len), name);
        return UINT32_MAX;
    }
    row->name_guess = (uint32_t)found + 1;
    return (uint32_t)found;
}

/* ---- end ---- */

/* Where a record begins, from the row's base. */
static inline uint32_t at_shift(enum qwp_at at)
{
    return at == QWP_AT_SERVER ? 8 : 0;
}

/* Nothing is open, or the row has failed: says so, and it is over. */
static enum qwp_result end_failed(struct qwp_row *row, struct qwp_error *err)
{
    if (row->table == NULL) {
        return qwp_fail(err, row->result == QWP_CLOSED ? QWP_CLOSED : QWP_INVALID, 0,
                        "no row is open; qwp_row_begin() comes first, and another row or a unit's "
                        "abort drops an open one");
    }
    const struct qwp_producer *p = row->table->producer;
    qwp_row_forget(row);
    if (qwp_producer_is_closed(p)) {
        return qwp_producer_check_open(p, err);
    }
    if (err != NULL) {
        *err = row->error;
    }
    return row->result;
}

/* Copies the row to the other buffer with its parts in column order. */
static void put_in_order(struct qwp_row *row, struct qwp_producer *p)
{
    const struct qwp_table *table = row->table;
    unsigned char *to = p->reorder;
    memcpy(to + row->shift, row->base + row->shift, table->fixed_bytes - row->shift);
    uint32_t used = table->fixed_bytes;
    for (uint32_t c = 0; c < table->column_count; c++) {
        const struct qwp_row_column *column = &row->columns[c];
        if (column->var_index == QWP_NO_VAR || (row->nulls[c / 64] >> (c % 64) & 1) != 0) {
            continue;
        }
        uint32_t len = qwp_load_u32(row->base + column->off);
        if (column->type == QWP_TYPE_SYMBOL) {
            if ((len & QWP_SYMBOL_TEXT) == 0) {
                continue;
            }
            len &= ~QWP_SYMBOL_TEXT;
        }
        memcpy(to + used, row->base + row->part_off[column->var_index], len);
        used += len;
    }
    QWP_ASSERT(used == row->used_bytes);
    row->base = to;
    row->care |= QWP_CARE_STAGED;
}

/* Copies a row that was formed apart into the ring. */
static enum qwp_result unstage(struct qwp_row *row, struct qwp_producer *p, struct qwp_error *err)
{
    const uint32_t bytes = row->used_bytes - row->shift;
    const enum qwp_result result = qwp_room_get(p, qwp_round_up(bytes, QWP_RECORD_ALIGN), 1, err);
    if (result == QWP_OK) {
        unsigned char *at = qwp_room_at(p);
        memcpy(at, row->base + row->shift, bytes);
        row->base = at - row->shift;
    }
    return result;
}

/* Does whatever keeps the row from ending where it was formed; a failure drops it. */
static enum qwp_result prepare(struct qwp_row *row, enum qwp_at at, struct qwp_error *err)
{
    struct qwp_producer *p = row->table->producer;
    qwp_row_complete_nulls(row);
    enum qwp_result result = qwp_table_shape(row->table, at, err);
    const uint32_t shift = at_shift(at);
    if (result == QWP_OK && (row->care & QWP_CARE_UNORDERED) != 0) {
        put_in_order(row, p);
    } else if (row->shift != shift && (row->care & QWP_CARE_STAGED) == 0) {
        const unsigned char *formed = row->base;
        stage(row, p);
        memcpy(row->base + row->shift, formed + row->shift, row->used_bytes - row->shift);
    }
    row->shift = shift;
    if (result == QWP_OK && (row->care & QWP_CARE_STAGED) != 0) {
        result = unstage(row, p, err);
    }
    if (result != QWP_OK) {
        qwp_row_forget(row);
    }
    return result;
}

/* The row is whole but for its null words, timestamp and header. */
static inline __attribute__((always_inline)) enum qwp_result
finish(struct qwp_row *row, enum qwp_at at, int64_t time, struct qwp_error *err)
{
    struct qwp_table *table = row->table;
    struct qwp_producer *p = table->producer;
    const uint32_t shift = at_shift(at);
    unsigned char *record = row->base + shift;
    unsigned char *to = record + QWP_RECORD_HEADER_BYTES;
    if (QWP_LIKELY(table->null_words == 1)) {
        qwp_store_u64(to, row->nulls[0]);
    } else {
        memcpy(to, row->nulls, table->null_words * sizeof(uint64_t));
    }
    if (at != QWP_AT_SERVER) {
        qwp_store_i64(to + table->null_words * sizeof(uint64_t), time);
    }
    const uint32_t bytes =
        (row->used_bytes - shift + QWP_RECORD_ALIGN - 1) & ~(uint32_t)(QWP_RECORD_ALIGN - 1);
    const uint64_t head = qwp_record_head(table->shape_index[at], row->flags);
    table->last_shift = shift;
    qwp_row_forget(row);
    if (QWP_UNLIKELY(qwp_record_end(p, record, head, bytes) != QWP_OK)) {
        return qwp_producer_fail_detached(p, err);
    }
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result end_slow(struct qwp_row *row, enum qwp_at at,
                                                          int64_t time, struct qwp_error *err)
{
    if (row->table != NULL && (row->care & QWP_CARE_FAILED) == 0 &&
        (uint64_t)time > qwp_at_max(at)) {
        qwp_row_fail(
            row, QWP_INVALID,
            "the designated timestamp %lld %s is out of the server's range, 0 to %llu (%s); "
            "are the units right?",
            (long long)time, at == QWP_AT_NS ? "ns" : "us", (unsigned long long)qwp_at_max(at),
            at == QWP_AT_NS ? "2261-12-31" : "9999-12-31");
    }
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0) {
        return end_failed(row, err);
    }
    const struct qwp_producer *p = row->table->producer;
    const enum qwp_result result = prepare(row, at, err);
    if (result != QWP_OK) {
        return result == QWP_AGAIN && p->on_full == QWP_FULL_DROP ? QWP_OK : result;
    }
    return finish(row, at, time, err);
}

/* Inlined for each kind of timestamp, which makes most of it constant. Calls come last, so that the
 * way of most rows needs no stack frame. */
static inline __attribute__((always_inline)) enum qwp_result
end(struct qwp_row *row, enum qwp_at at, int64_t time, struct qwp_error *err)
{
    const struct qwp_table *table = row->table;
    if (QWP_UNLIKELY(table == NULL || row->care != 0 || row->shift != at_shift(at) ||
                     row->next != table->column_count || !table->shape_defined[at] ||
                     table->null_words != 1 || (uint64_t)time > qwp_at_max(at))) {
        return end_slow(row, at, time, err);
    }
    return finish(row, at, time, err);
}

enum qwp_result qwp_row_at_ns(struct qwp_row *row, int64_t ns, struct qwp_error *err)
{
    return end(row, QWP_AT_NS, ns, err);
}

enum qwp_result qwp_row_at_us(struct qwp_row *row, int64_t us, struct qwp_error *err)
{
    return end(row, QWP_AT_US, us, err);
}

enum qwp_result qwp_row_at_now(struct qwp_row *row, struct qwp_error *err)
{
    return end(row, QWP_AT_SERVER, 0, err);
}

void qwp_row_abort(struct qwp_row *row)
{
    qwp_row_forget(row);
}

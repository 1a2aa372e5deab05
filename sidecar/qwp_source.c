#include "sidecar/qwp_source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_encode.h"
#include "ipc/qwp_guard.h"
#include "ipc/qwp_shared_text.h"

enum {
    SHAPE_COLUMNS_MAX = 1024 * 1024, /* of one producer [160 MB] */
    DEFINE_STEP_BYTES = 64 * 1024,   /* [0.5 ms, were they all symbols] */
};

static void store_u32(_Atomic uint32_t *at, uint32_t v)
{
    atomic_store_explicit(at, v, memory_order_relaxed);
}

static void store_u64(_Atomic uint64_t *at, uint64_t v)
{
    atomic_store_explicit(at, v, memory_order_relaxed);
}

static uint64_t load_u64(_Atomic uint64_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* What an earlier sidecar stored is settled with the last frame that it can have gone into. */
static void inherit(struct qwp_source *source, uint64_t published_count)
{
    if (source->rx.acked_pos == source->rx.head_pos) {
        return;
    }
    const uint64_t rows = source->rx.rows_stored - source->rx.rows_acked;
    if (published_count == 0) {
        qwp_ring_settle(&source->rx, source->rx.head_pos, rows, 0);
        return;
    }
    qwp_notes_add(&source->notes,
                  (struct qwp_note){published_count - 1, source->rx.head_pos, rows});
}

/* Rows of the records between two positions that an earlier sidecar has stored; for the counters.
 */
static uint64_t rows_between(const struct qwp_ring_rx *rx, uint64_t pos, uint64_t end)
{
    uint64_t rows = 0;
    while (pos < end) {
        struct qwp_record_header header;
        const uint64_t word = qwp_load_u64(rx->data + (pos & rx->data_mask));
        memcpy(&header, &word, sizeof header);
        if (header.size_bytes < QWP_RECORD_HEADER_BYTES ||
            header.size_bytes % QWP_RECORD_ALIGN != 0 || header.size_bytes > end - pos) {
            break; /* the producer has scribbled over it: they are stored all the same */
        }
        rows += header.kind == QWP_RECORD_ROW;
        pos += header.size_bytes;
    }
    return rows;
}

/* The sidecar before us may have died between publishing a frame and moving the heads of its rings.
 */
static enum qwp_result resume(struct qwp_source *source, struct qwp_cursors *cursors,
                              struct qwp_error *err)
{
    struct qwp_ring_rx *rx = &source->rx;
    struct statx st;
    if (statx(rx->fd, "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &st) != 0) {
        return qwp_fail(err, QWP_IO, errno, "ring '%s': cannot look at it", rx->file_name);
    }
    struct qwp_cursors_ring ring = {
        .inode = st.stx_ino,
        .birth_ns = st.stx_btime.tv_sec * QWP_NS_PER_S + st.stx_btime.tv_nsec,
    };
    memcpy(ring.id, rx->ring_id, sizeof ring.id);
    const uint64_t head_pos = rx->head_pos;
    uint64_t resume_pos;
    enum qwp_result result =
        qwp_cursors_attach(cursors, &ring, head_pos, &source->cursor, &resume_pos);
    if (result != QWP_OK) {
        return qwp_fail(err, result, 0, "ring '%s': %d rings are attached", rx->file_name,
                        QWP_CURSORS_RINGS_MAX);
    }
    if (resume_pos == head_pos) {
        return QWP_OK;
    }
    result = qwp_ring_resume(rx, resume_pos, err);
    if (result == QWP_OK) {
        qwp_ring_release(rx, resume_pos, rows_between(rx, head_pos, resume_pos));
    } else {
        qwp_cursors_detach(cursors, source->cursor);
    }
    return result;
}

enum qwp_result qwp_source_open(struct qwp_source **out, int dir_fd, const char *file_name,
                                const struct qwp_ring_limits *limits, struct qwp_cursors *cursors,
                                uint64_t published_count, struct qwp_error *err)
{
    struct qwp_source *source = calloc(1, sizeof *source);
    if (source == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for ring %s", file_name);
    }
    enum qwp_result result = qwp_ring_open(&source->rx, dir_fd, file_name, limits, err);
    if (result == QWP_OK) {
        source->guard = qwp_guard_add(source->rx.header, source->rx.mapped_bytes);
        result = resume(source, cursors, err);
        if (result != QWP_OK) {
            qwp_guard_remove(source->guard);
            qwp_ring_close_rx(&source->rx);
        }
    }
    if (result != QWP_OK) {
        free(source);
        return result;
    }
    source->tables_max = limits->tables_max;
    source->symbols_max = limits->symbols_max;
    source->taken_pos = source->rx.head_pos;
    source->symbols.is_live = source->rx.head_pos == 0;
    inherit(source, published_count);
    *out = source;
    return QWP_OK;
}

void qwp_source_show(struct qwp_source *source, struct qwp_control_producer *slot)
{
    struct qwp_ring_rx *rx = &source->rx;
    source->slot = slot;
    qwp_shared_text_set(slot->name, sizeof slot->name, rx->name);
    qwp_shared_text_set(slot->file_name, sizeof slot->file_name, rx->file_name);
    qwp_shared_text_set(slot->reason, sizeof slot->reason, "");
    store_u32(&slot->pid, atomic_load_explicit(&rx->header->producer_pid, memory_order_relaxed));
    store_u32(&slot->uid, rx->owner_uid);
    store_u32(&slot->state, QWP_RING_ATTACHED);
    store_u64(&slot->ring_bytes, rx->data_bytes);
    qwp_source_report(source);
    atomic_store_explicit(&slot->in_use, 1, memory_order_release);
}

void qwp_source_close(struct qwp_source *source)
{
    if (source == NULL) {
        return;
    }
    if (source->slot != NULL) {
        atomic_store_explicit(&source->slot->in_use, 0, memory_order_release);
    }
    for (uint32_t i = 0; i < source->shape_count; i++) {
        qwp_schema_release(source->shapes[i]);
    }
    free(source->shapes);
    free(source->tables);
    qwp_source_symbols_fini(&source->symbols);
    qwp_guard_remove(source->guard);
    qwp_ring_close_rx(&source->rx);
    free(source);
}

static enum qwp_result symbol_allowed(const struct qwp_source *source, struct qwp_error *err)
{
    if (source->symbols_max == 0 ||
        (uint64_t)source->symbols.count + source->text_count < source->symbols_max) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_INVALID, 0,
                    "more than %u symbols of one producer (--producer-symbols-max); values without "
                    "end belong into a VARCHAR column",
                    source->symbols_max);
}

enum qwp_result qwp_source_count_text(struct qwp_source *source, struct qwp_error *err)
{
    const enum qwp_result result = symbol_allowed(source, err);
    source->text_count += result == QWP_OK ? 1 : 0;
    return result;
}

bool qwp_source_has_table(const struct qwp_source *source, const struct qwp_table *table)
{
    /* What it put there itself, unless another ring of the table did so since. */
    if (table->source_index < source->table_count && source->tables[table->source_index] == table) {
        return true;
    }
    for (uint32_t i = source->table_count; i-- > 0;) {
        if (source->tables[i] == table) {
            return true;
        }
    }
    return false;
}

/* Counts the table unless it is known. */
static enum qwp_result count_table(struct qwp_source *source, struct qwp_table *table,
                                   struct qwp_error *err)
{
    if (qwp_source_has_table(source, table)) {
        return QWP_OK;
    }
    if (source->tables_max != 0 && source->table_count == source->tables_max) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "more than %u tables of one producer (--producer-tables-max)",
                        source->tables_max);
    }
    if (source->table_count == source->table_capacity) {
        const uint32_t capacity = source->table_capacity == 0 ? 16 : source->table_capacity * 2;
        struct qwp_table **tables = realloc(source->tables, capacity * sizeof *tables);
        if (tables == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u tables", capacity);
        }
        source->tables = tables;
        source->table_capacity = capacity;
    }
    table->source_index = source->table_count;
    source->tables[source->table_count++] = table;
    return QWP_OK;
}

/* What a ring may have us keep, however large its area for definitions. */
static enum qwp_result shape_allowed(const struct qwp_source *source, const struct qwp_shape *shape,
                                     struct qwp_error *err)
{
    if (source->shape_count < QWP_SHAPES_MAX &&
        source->column_count + shape->column_count <= SHAPE_COLUMNS_MAX) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_INVALID, 0,
                    "more than %d shapes (sets of columns) of one producer, or %d columns in all "
                    "of them; fewer combinations of columns will do",
                    QWP_SHAPES_MAX, SHAPE_COLUMNS_MAX);
}

static enum qwp_result define_shape(struct qwp_source *source, struct qwp_shape *shape,
                                    struct qwp_schema *schema, struct qwp_error *err)
{
    const enum qwp_result allowed = shape_allowed(source, shape, err);
    if (allowed != QWP_OK) {
        qwp_shape_destroy(shape);
        return allowed;
    }
    source->column_count += shape->column_count;
    if (source->shape_count == source->shape_capacity) {
        const uint32_t capacity = source->shape_capacity == 0 ? 16 : source->shape_capacity * 2;
        struct qwp_known_shape **shapes =
            realloc(source->shapes, capacity * sizeof *source->shapes);
        if (shapes == NULL) {
            qwp_shape_destroy(shape);
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u shapes", capacity);
        }
        source->shapes = shapes;
        source->shape_capacity = capacity;
    }
    const enum qwp_result result =
        qwp_schema_intern(schema, shape, &source->shapes[source->shape_count], err);
    if (result != QWP_OK) {
        return result;
    }
    source->shape_count++;
    return count_table(source, source->shapes[source->shape_count - 1]->table, err);
}

enum qwp_result qwp_source_define(struct qwp_source *source, unsigned char *entry,
                                  struct qwp_schema *schema, struct qwp_dict *dict,
                                  struct qwp_error *err)
{
    const uint64_t end = source->rx.defs_seen + DEFINE_STEP_BYTES;
    for (;;) {
        struct qwp_ring_def def;
        const uint64_t pos = source->rx.defs_seen;
        source->defining = pos >= end;
        if (source->defining) {
            return QWP_AGAIN;
        }
        enum qwp_result result = qwp_ring_next_def(&source->rx, entry, &def, err);
        if (result == QWP_AGAIN) {
            source->symbols.is_live = true;
            return QWP_OK;
        }
        if (result == QWP_OK && def.kind == QWP_DEF_SYMBOL) {
            result = symbol_allowed(source, err);
        }
        if (result == QWP_OK) {
            result = def.kind == QWP_DEF_SYMBOL
                         ? qwp_source_symbols_define(&source->symbols, dict, pos, def.text,
                                                     def.text_len, err)
                         : define_shape(source, def.shape, schema, err);
        }
        if (result != QWP_OK) {
            return result;
        }
    }
}

int64_t qwp_source_stored(struct qwp_source *source, uint64_t fsn)
{
    const int64_t seen_ns = source->sights.oldest_ns;
    qwp_notes_add(&source->notes, (struct qwp_note){fsn, source->taken_pos, source->taken_rows});
    qwp_ring_release(&source->rx, source->taken_pos, source->taken_rows);
    source->taken_rows = 0;
    source->in_frame = false;
    qwp_sights_took(&source->sights, source->rx.head_pos, source->rx.tail_seen_pos);
    return seen_ns;
}

void qwp_source_untake(struct qwp_source *source)
{
    source->taken_pos = source->rx.head_pos;
    source->taken_rows = 0;
    source->in_frame = false;
}

void qwp_source_settle(struct qwp_source *source, uint64_t acked_count)
{
    uint64_t pos = source->rx.acked_pos;
    const uint64_t rows = qwp_notes_settle(&source->notes, acked_count, &pos);
    if (pos != source->rx.acked_pos) {
        const uint64_t aside = source->rows_aside < rows ? source->rows_aside : rows;
        source->rows_aside -= aside;
        qwp_ring_settle(&source->rx, pos, rows - aside, aside);
    }
}

void qwp_source_detach(struct qwp_source *source, const char *reason)
{
    source->detached = true;
    qwp_ring_set_state(&source->rx, QWP_RING_DETACHED, reason);
    if (source->slot != NULL) {
        qwp_shared_text_set(source->slot->reason, sizeof source->slot->reason, reason);
        store_u32(&source->slot->state, QWP_RING_DETACHED);
    }
}

void qwp_source_report(struct qwp_source *source)
{
    struct qwp_control_producer *slot = source->slot;
    if (slot == NULL) {
        return;
    }
    struct qwp_ring_header *header = source->rx.header;
    store_u64(&slot->rows_published, load_u64(&header->rows_published));
    store_u64(&slot->rows_stored, source->rx.rows_stored);
    store_u64(&slot->bytes_taken, source->rx.head_pos);
    store_u64(&slot->rows_acked, source->rx.rows_acked);
    store_u64(&slot->rows_rejected, source->rx.rows_rejected);
    store_u64(&slot->rows_dropped, load_u64(&header->rows_dropped));
    const uint64_t tail = load_u64(&header->tail_pos);
    const uint64_t waiting = tail - source->rx.head_pos;
    store_u64(&slot->symbols, source->symbols.brought_in_all);
    store_u64(&slot->symbol_waits, source->symbols.waits);
    store_u64(&slot->bytes_waiting, waiting <= source->rx.data_bytes ? waiting : 0);
}

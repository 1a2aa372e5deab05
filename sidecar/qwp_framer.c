#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_gorilla.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_varint.h"
#include "sidecar/qwp_chunk_index.h"
#include "sidecar/qwp_framer_internal.h"

/* Rows that wait at most for their blocks to be encoded. Few, so that their records are still
 * cached; but of many tables each wants enough of them in a block that its names, which cost the
 * server and us more than such misses do, are spread over some rows. */
enum { PENDING_ROWS = 4096, PENDING_ROWS_OF_TABLE = 128, PENDING_ROWS_MAX = 32768 };

/* Staged at once: few enough that what is noted of them is cached. */
enum { BATCH_ROWS_MAX = 512 };

enum qwp_result qwp_framer_create(struct qwp_framer **out, struct qwp_dict *dict,
                                  unsigned encode_flags, struct qwp_error *err)
{
    struct qwp_framer *framer = calloc(1, sizeof *framer);
    if (framer == NULL || qwp_row_index_init(&framer->index, dict) != QWP_OK) {
        free(framer);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    framer->dict = dict;
    framer->encode_flags = encode_flags;
    *out = framer;
    return QWP_OK;
}

void qwp_framer_use(struct qwp_framer *framer, struct qwp_dict *dict)
{
    framer->dict = framer->index.dict = dict;
}

void qwp_framer_destroy(struct qwp_framer *framer)
{
    if (framer == NULL) {
        return;
    }
    qwp_row_index_fini(&framer->index);
    qwp_arena_fini(&framer->flush);
    free(framer->tallies);
    free(framer);
}

static void frame_tables_reset(struct qwp_framer *framer)
{
    for (struct qwp_table *table = framer->frame_tables; table != NULL; table = table->frame_next) {
        table->frame_rows = 0;
    }
    framer->frame_tables = NULL;
}

static void delta_measure(struct qwp_framer *framer)
{
    framer->delta_bytes = qwp_delta_size(
        framer->delta_start, framer->delta_end - framer->delta_start, qwp_dict_text, framer->dict);
}

/* More new symbols than one frame holds: this one carries as many as fit and no rows. */
static void delta_cut(struct qwp_framer *framer)
{
    size_t bytes = QWP_HEADER_BYTES + 2 * (size_t)QWP_VARINT_BYTES_MAX;
    uint32_t end = framer->delta_start;
    while (end < framer->delta_end) {
        bytes += qwp_dict_text(framer->dict, end).len + QWP_VARINT_BYTES_MAX;
        if (bytes > framer->room) {
            break;
        }
        end++;
    }
    framer->delta_end = end;
    framer->delta_alone = true;
    delta_measure(framer);
}

/* Room for a frame that could not carry a single symbol; 0: it could. */
static size_t delta_least(const struct qwp_framer *framer)
{
    return framer->delta_end > framer->delta_start
               ? 0
               : QWP_HEADER_BYTES + 3 * (size_t)QWP_VARINT_BYTES_MAX +
                     qwp_dict_text(framer->dict, framer->delta_start).len;
}

void qwp_framer_begin(struct qwp_framer *framer, unsigned char *at, size_t room,
                      uint32_t framed_symbols)
{
    framer->frame_flags = framer->encode_flags;
    framer->frame = at;
    framer->room = room;
    framer->len = QWP_HEADER_BYTES;
    framer->touched = 0;
    framer->block_count = 0;
    framer->frame_rows = 0;
    framer->closed_rows = 0;
    framer->delta_start = framed_symbols;
    framer->delta_end = qwp_dict_count(framer->dict);
    framer->delta_written = false;
    framer->delta_alone = false;
    framer->batch_rows_max = BATCH_ROWS_MAX;
    framer->tally_count = 0;
    framer->tallies_lost = false;
    frame_tables_reset(framer);
    delta_measure(framer);
    if (framer->len + framer->delta_bytes > room) {
        delta_cut(framer);
    }
}

/* No block is open any more, whether it was encoded or given up. */
static void open_tables_forget(struct qwp_framer *framer)
{
    for (struct qwp_table *table = framer->open_tables; table != NULL; table = table->open_next) {
        table->is_open = false;
        table->open_count = 0;
    }
    framer->open_tables = NULL;
    framer->open_table_count = 0;
    framer->open_bound = 0;
    qwp_row_index_reset(&framer->index);
}

void qwp_framer_abandon(struct qwp_framer *framer)
{
    open_tables_forget(framer);
}

struct qwp_table *qwp_framer_tables(const struct qwp_framer *framer)
{
    return framer->frame_tables;
}

uint64_t qwp_framer_rows(const struct qwp_framer *framer)
{
    return framer->frame_rows;
}

size_t qwp_framer_bound(const struct qwp_framer *framer)
{
    return framer->len + framer->delta_bytes + framer->open_bound;
}

size_t qwp_framer_touched(const struct qwp_framer *framer)
{
    return framer->touched;
}

uint32_t qwp_framer_framed_symbols(const struct qwp_framer *framer)
{
    return framer->delta_end;
}

/* Not all of it: its text is larger than most units of rows. */
static void fault_reset(struct qwp_framer_fault *fault)
{
    fault->source = NULL;
    fault->bytes_needed = 0;
    fault->blocks_needed = 0;
    fault->error.sys_errno = 0;
    fault->error.delivery = QWP_DELIVERY_NOT_SENT;
    fault->error.text[0] = '\0';
}

static enum qwp_result flush_all(struct qwp_framer *framer, struct qwp_framer_fault *fault)
{
    for (struct qwp_table *table = framer->open_tables; table != NULL; table = table->open_next) {
        if (table->open_count > 0) {
            const enum qwp_result result = qwp_framer_block_flush(framer, table, fault);
            if (result != QWP_OK) {
                return result;
            }
        }
    }
    open_tables_forget(framer);
    return QWP_OK;
}

/* Staged rows one after another that are treated as one: all of one shape and source, or a chunk.
 */
struct span {
    uint32_t first;
    uint32_t count;
    struct qwp_known_shape *known;
    const struct qwp_staged_chunk *chunk; /* or NULL */
};

/* The span that begins at row `first`, which there is. */
static inline struct span span_at(const struct qwp_framer *framer, uint32_t first)
{
    const struct qwp_row *rows = framer->index.rows;
    const struct qwp_row *row = &rows[first];
    struct span span = {first, row->alike, row->known, NULL};
    if ((row->flags & QWP_ROW_CHUNK) != 0) {
        span.chunk = row->chunk;
        return span;
    }
    for (uint32_t at = first + row->alike; at < framer->index.count; at += rows[at].alike) {
        if (rows[at].known != span.known || (rows[at].flags & QWP_ROW_CHUNK) != 0) {
            break;
        }
        span.count += rows[at].alike;
    }
    return span;
}

/* What units add to a frame, at most. */
struct cost {
    size_t bytes;
    uint64_t blocks;
};

/* What variable parts add to a bound. Texts of symbols are no such: codes go in their place. */
static size_t parts_bytes(const struct qwp_framer *framer, const struct qwp_known_shape *known,
                          uint32_t first, uint32_t count)
{
    size_t bytes = 0;
    for (uint32_t i = first; known->text_count > 0 && i < first + count; i++) {
        bytes += framer->index.rows[i].part_bytes;
    }
    return bytes;
}

/* Rows of other shapes lengthen the bitmaps of all columns that an open block has. */
static size_t bitmaps_growth(const struct qwp_table *table)
{
    return table->open_count == 0 ? 0
                                  : (size_t)table->open_columns *
                                        (QWP_GATHER_ROWS_MAX / 8 - (table->open_count + 7) / 8);
}

/* `bound`, with room for the block ahead if there may be one. */
static size_t block_bound(const struct qwp_framer *framer, size_t bound, size_t header_bound,
                          uint32_t column_count)
{
    return (framer->encode_flags & QWP_ENCODE_COMPACT) != 0
               ? qwp_block_compact_bound(bound, header_bound, column_count)
               : bound;
}

/* Upper bound of what the rows add to the frame, given what is open and what was weighed before
 * them. */
static void span_cost(const struct qwp_framer *framer, const struct span *span, uint64_t unit_stamp,
                      struct cost *cost)
{
    struct qwp_known_shape *known = span->known;
    struct qwp_table *table = known->table;
    if (table->unit_stamp != unit_stamp) {
        table->unit_stamp = unit_stamp;
        table->unit_shape = table->open_count > 0 ? table->open_shape : NULL;
        table->unit_rows = table->open_count;
        table->unit_growth = bitmaps_growth(table);
    }
    if (span->chunk != NULL) {
        table->unit_shape = NULL; /* what comes behind it opens a new block */
        table->unit_rows = 0;
        table->unit_growth = 0;
        cost->bytes += span->chunk->bound;
        cost->blocks += 2;
        return;
    }
    const uint32_t columns = known->shape->column_count;
    cost->bytes += (size_t)span->count * (known->value_bytes + columns);
    cost->bytes += parts_bytes(framer, known, span->first, span->count);
    const uint32_t joining =
        table->unit_shape == known ? QWP_GATHER_ROWS_MAX - table->unit_rows : 0;
    table->unit_shape = known;
    if (span->count <= joining) {
        table->unit_rows += span->count;
        return;
    }
    /* New blocks, the first of them perhaps new columns for the rows that are in the open one. */
    const uint32_t opening = span->count - joining;
    const uint32_t blocks = (opening + QWP_GATHER_ROWS_MAX - 1) / QWP_GATHER_ROWS_MAX;
    table->unit_rows = opening - (blocks - 1) * QWP_GATHER_ROWS_MAX;
    cost->bytes +=
        blocks * block_bound(framer, known->header_bound + columns * (QWP_GATHER_ROWS_MAX / 8),
                             known->header_bound, columns);
    cost->bytes += table->unit_growth;
    table->unit_growth = 0;
    cost->blocks += 2 * (uint64_t)blocks;
}

static void block_open(struct qwp_framer *framer, struct qwp_table *table,
                       struct qwp_known_shape *known)
{
    if (!table->is_open) {
        table->is_open = true;
        table->open_next = framer->open_tables;
        framer->open_tables = table;
        framer->open_table_count++;
    }
    table->open_stamp = ++framer->stamp;
    table->open_group = known->group;
    table->open_shape = known;
    table->open_columns = known->shape->column_count;
    table->open_header_bound = known->header_bound;
    table->open_value_bytes = 0;
    table->open_bound = 0;
}

/* A second shape joins the block: from now on its columns are the union. */
static void block_widen(struct qwp_table *table, struct qwp_known_shape *known)
{
    struct qwp_group_column *columns = table->open_group->columns;
    if (table->open_shape != NULL) {
        const struct qwp_known_shape *before = table->open_shape;
        for (uint32_t i = 0; i < before->shape->column_count; i++) {
            columns[before->group_column[i]].block_stamp = table->open_stamp;
        }
        table->open_shape = NULL;
    }
    for (uint32_t i = 0; i < known->shape->column_count; i++) {
        struct qwp_group_column *column = &columns[known->group_column[i]];
        if (column->block_stamp != table->open_stamp) {
            column->block_stamp = table->open_stamp;
            table->open_columns++;
            table->open_header_bound += column->header_bound;
        }
    }
}

/* Of the table's open block. */
static size_t table_bound(const struct qwp_framer *framer, const struct qwp_table *table)
{
    return block_bound(framer,
                       table->open_header_bound +
                           (size_t)table->open_columns * ((table->open_count + 7) / 8) +
                           table->open_value_bytes,
                       table->open_header_bound, table->open_columns);
}

/* Links rows of one shape, whole entries, to the table's open block, which has room for them. */
static void block_link(struct qwp_framer *framer, struct qwp_known_shape *known, uint32_t first,
                       uint32_t count)
{
    struct qwp_table *table = known->table;
    struct qwp_row *rows = framer->index.rows;
    if (table->open_count == 0) {
        block_open(framer, table, known);
        table->open_first = first;
    } else {
        if (table->open_shape != known) {
            block_widen(table, known);
        }
        rows[table->open_last].next = first;
    }
    const size_t part_bytes = parts_bytes(framer, known, first, count);
    for (uint32_t i = first; i < first + count; i += rows[i].alike) {
        rows[i].next = i + rows[i].alike; /* the last one's counts for nothing */
        table->open_last = i;
    }
    table->open_count += count;
    table->open_value_bytes += (size_t)count * known->value_bytes + part_bytes;
    const size_t bound = table_bound(framer, table);
    framer->open_bound += bound - table->open_bound;
    table->open_bound = bound;
}

/* Puts staged rows into their table's block, or a chunk behind it. */
static enum qwp_result span_link(struct qwp_framer *framer, const struct span *span,
                                 struct qwp_framer_fault *fault)
{
    struct qwp_table *table = span->known->table;
    if (span->chunk != NULL) {
        return qwp_framer_chunk_flush(framer, &framer->index.rows[span->first], fault);
    }
    for (uint32_t done = 0; done < span->count;) {
        if (table->open_count == QWP_GATHER_ROWS_MAX ||
            (table->open_count > 0 && table->open_group != span->known->group)) {
            const enum qwp_result result = qwp_framer_block_flush(framer, table, fault);
            if (result != QWP_OK) {
                return result;
            }
        }
        const uint32_t room = QWP_GATHER_ROWS_MAX - table->open_count;
        uint32_t count = span->count - done;
        if (count > room) {
            count = room;
            qwp_row_index_cut(&framer->index, span->first + done, span->first + done + count);
        }
        block_link(framer, span->known, span->first + done, count);
        done += count;
    }
    return QWP_OK;
}

/* Whether the staged rows can join the frame. QWP_LIMIT: they do not fit. QWP_AGAIN: one belongs to
 * a table that takes none now. Says in *fault what they need. */
static enum qwp_result staged_weigh(struct qwp_framer *framer, uint32_t first,
                                    struct qwp_framer_fault *fault)
{
    const uint64_t unit_stamp = ++framer->stamp;
    struct cost cost = {0};
    for (uint32_t at = first; at < framer->index.count;) {
        const struct span span = span_at(framer, at);
        if (span.known->table->held) {
            return QWP_AGAIN;
        }
        span_cost(framer, &span, unit_stamp, &cost);
        at += span.count;
    }
    fault->bytes_needed = qwp_framer_bound(framer) + cost.bytes;
    /* The header counts blocks in 16 bits. A compact one has another ahead. */
    fault->blocks_needed =
        framer->block_count + 2 * (uint64_t)framer->open_table_count + cost.blocks;
    return fault->bytes_needed <= framer->room && fault->blocks_needed <= UINT16_MAX ? QWP_OK
                                                                                     : QWP_LIMIT;
}

/* New symbols (from texts in rows) can join the delta until it is written. */
static bool delta_extend(struct qwp_framer *framer)
{
    const uint32_t count = qwp_dict_count(framer->dict);
    if (count == framer->delta_end) {
        return true;
    }
    if (framer->delta_written) {
        return false;
    }
    framer->delta_bytes +=
        qwp_delta_size(framer->delta_end, count - framer->delta_end, qwp_dict_text, framer->dict);
    framer->delta_end = count;
    return true;
}

static uint32_t min_u32(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Stages the next unit, and with it those behind it that are taken just as well: at most
 * `rows_max` rows then. */
static enum qwp_result units_stage(struct qwp_framer *framer, struct qwp_source *source,
                                   uint32_t rows_max, uint64_t *end, struct qwp_framer_fault *fault)
{
    struct qwp_row_index *index = &framer->index;
    const uint32_t first = index->count;
    enum qwp_result result = qwp_row_index_unit(index, source, end, &fault->error);
    if (result != QWP_OK) {
        fault->source = source;
        return result; /* QWP_AGAIN with source->waits_symbols too */
    }
    const uint32_t delta_end = framer->delta_end;
    const size_t delta_bytes = framer->delta_bytes;
    if (!delta_extend(framer)) {
        return QWP_LIMIT;
    }
    const size_t bound = qwp_framer_bound(framer);
    result = staged_weigh(framer, first, fault);
    if (result != QWP_OK) {
        /* There may be no room for its symbols either: they come with the next frame. */
        framer->delta_end = delta_end;
        framer->delta_bytes = delta_bytes;
        source->held = result == QWP_AGAIN;
        return result;
    }
    const uint32_t unit_count = index->count;
    const uint64_t unit_end = *end;
    const size_t row_bytes = (fault->bytes_needed - bound) / (unit_count - first);
    const size_t rows_fit = (framer->room - fault->bytes_needed) / (row_bytes + 1);
    const uint32_t more = min_u32(rows_max, framer->batch_rows_max);
    qwp_row_index_more(index, source, end,
                       rows_fit < more ? unit_count + (uint32_t)rows_fit : first + more);
    if (index->count > unit_count && staged_weigh(framer, first, fault) != QWP_OK) {
        framer->batch_rows_max /= 2;
        index->count = unit_count;
        *end = unit_end;
    }
    return QWP_OK;
}

static uint32_t pending_max(const struct qwp_framer *framer)
{
    const uint32_t rows = framer->open_table_count * PENDING_ROWS_OF_TABLE;
    return rows < PENDING_ROWS ? PENDING_ROWS : min_u32(rows, PENDING_ROWS_MAX);
}

enum qwp_result qwp_framer_take(struct qwp_framer *framer, struct qwp_source *source,
                                uint64_t rows_max, struct qwp_framer_fault *fault)
{
    fault_reset(fault);
    if (framer->index.count >= pending_max(framer)) {
        const enum qwp_result result = flush_all(framer, fault);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (framer->delta_alone) {
        fault->bytes_needed = delta_least(framer);
        return QWP_LIMIT;
    }
    const uint32_t first = framer->index.count;
    uint64_t end = source->taken_pos;
    enum qwp_result result =
        units_stage(framer, source, min_u32(rows_max, pending_max(framer) - first), &end, fault);
    if (result != QWP_OK) {
        framer->index.count = first;
        return result;
    }
    uint64_t rows = 0;
    for (uint32_t at = first; result == QWP_OK && at < framer->index.count;) {
        const struct span span = span_at(framer, at);
        rows += span.chunk != NULL ? span.chunk->chunk.row_count : span.count;
        result = span_link(framer, &span, fault);
        at += span.count;
    }
    framer->frame_rows += rows;
    source->taken_pos = end;
    source->taken_rows += rows;
    source->in_frame = true;
    return result;
}

enum qwp_result qwp_framer_finish(struct qwp_framer *framer, size_t *len,
                                  struct qwp_framer_fault *fault)
{
    fault_reset(fault);
    if (framer->frame_rows < QWP_GORILLA_TIMES_MIN && !framer->delta_written) {
        framer->frame_flags &= ~(unsigned)QWP_ENCODE_GORILLA; /* a byte less for each time column */
    }
    qwp_framer_delta_write(framer);
    const enum qwp_result result = flush_all(framer, fault);
    if (result != QWP_OK) {
        return result;
    }
    QWP_ASSERT(framer->closed_rows == framer->frame_rows);
    qwp_message_finish(framer->frame, (uint16_t)framer->block_count, framer->len);
    *len = framer->len;
    return QWP_OK;
}

#include "sidecar/qwp_framer.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_varint.h"
#include "sidecar/qwp_chunk_index.h"
#include "sidecar/qwp_row_index.h"

enum {
    ROWS_PENDING_MAX =
        4096, /* then everything open is encoded, so that its records are still cached */
    BATCH_ROWS_MAX = 512, /* staged at once: few enough that what is noted of them is cached */
};

struct qwp_framer {
    struct qwp_dict *dict;
    unsigned encode_flags;

    struct qwp_row_index index;
    struct qwp_table *open_tables;
    struct qwp_table *frame_tables; /* with rows in closed blocks */
    size_t open_bound;
    uint64_t stamp; /* of blocks, units and flushes: each takes a new number */

    /* the frame */
    unsigned char *frame;
    size_t room;
    size_t len;     /* header, delta and closed blocks; QWP_HEADER_BYTES at first */
    size_t touched; /* how far the frame's room may have been written */
    uint32_t block_count;
    uint64_t frame_rows;             /* taken */
    uint64_t closed_rows;            /* of them in closed blocks; in the end all */
    uint32_t delta_start, delta_end; /* delta_end moves until the delta is written */
    size_t delta_bytes;              /* while it is not written */
    bool delta_written;
    bool delta_alone;        /* no rows: the delta did not fit whole */
    uint32_t batch_rows_max; /* halved whenever so many did not fit, so that little is done twice */

    struct qwp_tally *tallies;
    size_t tally_count, tally_room;
    bool tallies_lost;

    /* scratch */
    struct qwp_arena flush;
    struct qwp_run runs[QWP_GATHER_ROWS_MAX];
    const unsigned char *records[QWP_GATHER_ROWS_MAX];
    const uint64_t *row_steering[QWP_GATHER_ROWS_MAX];
    struct qwp_source *run_source[QWP_GATHER_ROWS_MAX];
    struct qwp_encoder encoder;
};

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

/* ---- pass 2: a block ---- */

static void delta_write(struct qwp_framer *framer)
{
    if (framer->delta_written) {
        return;
    }
    qwp_message_begin(framer->frame, QWP_FLAG_GORILLA | QWP_FLAG_DELTA_DICT);
    unsigned char *end =
        qwp_delta_put(framer->frame + QWP_HEADER_BYTES, framer->delta_start,
                      framer->delta_end - framer->delta_start, qwp_dict_text, framer->dict);
    framer->len = (size_t)(end - framer->frame);
    framer->touched = framer->len;
    framer->delta_bytes = 0;
    framer->delta_written = true;
}

/* What a ring's rows may name, now that the delta is written: records are read a second time, and
 * what they name by then may have come up after the delta did. With no symbol in the delta or
 * before it there is none to name. */
static uint32_t symbols_known(const struct qwp_framer *framer, const struct qwp_source *source)
{
    return framer->delta_end > 0 ? source->symbols.count : 0;
}

static uint32_t symbol_end(const struct qwp_framer *framer)
{
    return qwp_dict_count(framer->dict) > framer->delta_end ? framer->delta_end : 0;
}

/* Where each column of a block of several shapes lies in one of them. */
static const uint16_t *field_map(struct qwp_framer *framer, struct qwp_known_shape *known,
                                 const uint32_t *group_columns, uint32_t count, uint64_t stamp)
{
    if (known->map_stamp == stamp) {
        return known->field_map;
    }
    uint16_t *map = qwp_arena_take(&framer->flush, count * sizeof *map);
    uint16_t *by_group =
        qwp_arena_take(&framer->flush, known->group->column_count * sizeof *by_group);
    if (map == NULL || by_group == NULL) {
        return NULL;
    }
    memset(by_group, 0xff, known->group->column_count * sizeof *by_group); /* QWP_NO_FIELD */
    for (uint16_t i = 0; i < known->shape->column_count; i++) {
        by_group[known->group_column[i]] = i;
    }
    for (uint32_t i = 0; i < count; i++) {
        map[i] = by_group[group_columns[i]];
    }
    known->map_stamp = stamp;
    known->field_map = map;
    return map;
}

/* The union of the columns that the block's rows have. */
static bool block_columns(struct qwp_framer *framer, const struct qwp_table *table,
                          struct qwp_block *block, const uint32_t **group_columns)
{
    if (table->open_shape != NULL) {
        block->columns = table->open_shape->block_columns;
        block->column_count = table->open_shape->shape->column_count;
        *group_columns = NULL;
        return true;
    }
    const struct qwp_group *group = table->open_group;
    struct qwp_block_column *columns =
        qwp_arena_take(&framer->flush, table->open_columns * sizeof *columns);
    uint32_t *indexes = qwp_arena_take(&framer->flush, table->open_columns * sizeof *indexes);
    if (columns == NULL || indexes == NULL) {
        return false;
    }
    uint32_t n = 0;
    for (uint32_t i = 0; i < group->column_count; i++) {
        if (group->columns[i].block_stamp == table->open_stamp) {
            columns[n] = group->columns[i].column;
            indexes[n++] = i;
        }
    }
    QWP_ASSERT(n == table->open_columns);
    block->columns = columns;
    block->column_count = n;
    *group_columns = indexes;
    return true;
}

static bool run_begin(struct qwp_framer *framer, const struct qwp_table *table,
                      const struct qwp_row *row, const uint32_t *group_columns,
                      uint32_t column_count, uint64_t stamp, struct qwp_run *run)
{
    const uint16_t *map = table->open_shape != NULL
                              ? row->known->identity
                              : field_map(framer, row->known, group_columns, column_count, stamp);
    *run = (struct qwp_run){
        .shape = row->known->shape,
        .field_of_column = map,
        .symbol_codes = row->source->symbols.codes,
        .symbol_count = symbols_known(framer, row->source),
        .null_any = qwp_no_nulls,
        .has_parts = (row->flags & QWP_ROW_PARTS) != 0,
        .has_symbol_text = (row->flags & QWP_ROW_SYMBOL_TEXT) != 0,
    };
    return map != NULL;
}

static bool run_add_nulls(struct qwp_framer *framer, struct qwp_run *run, const uint64_t *words)
{
    if (run->null_any == qwp_no_nulls) {
        uint64_t *any = qwp_arena_take(&framer->flush, run->shape->null_words * sizeof *any);
        if (any == NULL) {
            return false;
        }
        memset(any, 0, run->shape->null_words * sizeof *any);
        run->null_any = any;
    }
    uint64_t *any = (uint64_t *)run->null_any;
    for (uint32_t w = 0; w < run->shape->null_words; w++) {
        any[w] |= words[w];
    }
    return true;
}

/* Lays the rows of the table out for the encoder. False: no memory. */
static bool block_fill(struct qwp_framer *framer, struct qwp_table *table, struct qwp_block *block)
{
    const uint64_t stamp = ++framer->stamp;
    const uint32_t *group_columns;
    if (!block_columns(framer, table, block, &group_columns)) {
        return false;
    }
    const struct qwp_row *first = NULL;
    const struct qwp_row *row = &framer->index.rows[table->open_first];
    for (uint32_t i = 0; i < table->open_count;) {
        struct qwp_run *run = &framer->runs[block->run_count];
        if (first == NULL || row->known != first->known || row->source != first->source ||
            ((row->flags ^ first->flags) & (QWP_ROW_PARTS | QWP_ROW_SYMBOL_TEXT)) != 0) {
            if (!run_begin(framer, table, row, group_columns, block->column_count, stamp, run)) {
                return false;
            }
            framer->run_source[block->run_count++] = row->source;
            first = row;
        } else {
            run--;
        }
        if ((row->flags & QWP_ROW_NULLS) != 0 && !run_add_nulls(framer, run, row->steering)) {
            return false;
        }
        const uint32_t left = table->open_count - i;
        const uint32_t count = row->alike < left ? row->alike : left;
        for (uint32_t k = 0; k < count; k++) {
            framer->records[i + k] = row[k].record;
            framer->row_steering[i + k] = row[k].steering;
        }
        run->row_count += count;
        i += count;
        row = &framer->index.rows[row[count - 1].next];
    }
    return true;
}

/* `bound`, with room for the block ahead if there may be one. */
static size_t block_bound(const struct qwp_framer *framer, size_t bound, size_t header_bound,
                          uint32_t column_count)
{
    return (framer->encode_flags & QWP_ENCODE_COMPACT) != 0
               ? qwp_block_compact_bound(bound, header_bound, column_count)
               : bound;
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

bool qwp_framer_tallies(const struct qwp_framer *framer, const struct qwp_tally **tallies,
                        size_t *count)
{
    *tallies = framer->tallies;
    *count = framer->tally_count;
    return !framer->tallies_lost;
}

static void tally_add(struct qwp_framer *framer, const struct qwp_table *table,
                      struct qwp_source *source, uint32_t rows)
{
    struct qwp_tally *last =
        framer->tally_count > 0 ? &framer->tallies[framer->tally_count - 1] : NULL;
    if (last != NULL && last->source == source && last->table == table) {
        last->row_count += rows;
        return;
    }
    if (framer->tally_count == framer->tally_room) {
        const size_t room = framer->tally_room == 0 ? 64 : framer->tally_room * 2;
        struct qwp_tally *more = realloc(framer->tallies, room * sizeof *more);
        if (more == NULL) {
            framer->tallies_lost = true;
            return;
        }
        framer->tallies = more;
        framer->tally_room = room;
    }
    framer->tallies[framer->tally_count++] = (struct qwp_tally){source, table, rows};
}

/* Run by run: rows of one source mostly stand together. */
static void tally_block(struct qwp_framer *framer, const struct qwp_table *table,
                        const struct qwp_block *block)
{
    for (uint32_t i = 0; i < block->run_count; i++) {
        tally_add(framer, table, framer->run_source[i], block->runs[i].row_count);
    }
}

static struct qwp_source *source_of_row(const struct qwp_framer *framer,
                                        const struct qwp_block *block, uint32_t row)
{
    uint32_t i = 0;
    while (row >= block->runs[i].row_count) {
        row -= block->runs[i++].row_count;
    }
    return framer->run_source[i];
}

/* An encoded block stands behind the frame. */
static void block_close(struct qwp_framer *framer, struct qwp_table *table, uint32_t rows,
                        const struct qwp_encoded *done)
{
    framer->len += done->len;
    framer->block_count += done->table_count;
    if (table->frame_rows == 0) {
        table->was_framed = true;
        table->frame_next = framer->frame_tables;
        framer->frame_tables = table;
    }
    table->frame_rows += rows;
    framer->closed_rows += rows;
}

/* Where a block of at most `bound` bytes goes. */
static unsigned char *block_room(struct qwp_framer *framer, size_t bound)
{
    QWP_ASSERT(framer->len + bound <= framer->room);
    if (framer->len + bound > framer->touched) {
        framer->touched = framer->len + bound;
    }
    return framer->frame + framer->len;
}

static enum qwp_result block_fault(struct qwp_framer_fault *fault, struct qwp_source *source,
                                   const struct qwp_table *table,
                                   const struct qwp_block_column *columns, uint32_t column_count,
                                   const struct qwp_encode_fault *bad)
{
    const struct qwp_name column = bad->column == column_count
                                       ? (struct qwp_name){"designated timestamp", 20}
                                       : columns[bad->column].name;
    fault->source = source;
    return qwp_fail(&fault->error, QWP_CORRUPT, 0, "table '%.*s', column '%.*s': %s",
                    (int)table->name.len, table->name.text, (int)column.len, column.text,
                    bad->what);
}

/* Encodes the open block of the table behind the frame. The table stays in the list of open ones.
 */
static enum qwp_result block_flush(struct qwp_framer *framer, struct qwp_table *table,
                                   struct qwp_framer_fault *fault)
{
    delta_write(framer);
    struct qwp_block block = {
        .table = table->name,
        .designated_type = table->open_group->designated_type,
        .runs = framer->runs,
        .records = framer->records,
        .steering = framer->row_steering,
        .row_count = table->open_count,
        .symbol_end = symbol_end(framer),
    };
    qwp_arena_reset(&framer->flush);
    if (!block_fill(framer, table, &block)) {
        return qwp_fail(&fault->error, QWP_NOMEM, 0, "no memory to lay out a block");
    }
    const size_t bound = table_bound(framer, table);
    struct qwp_encoded done;
    const enum qwp_result result = qwp_block_encode(&framer->encoder, &block, framer->encode_flags,
                                                    block_room(framer, bound), &done);
    if (result != QWP_OK) {
        return block_fault(fault, source_of_row(framer, &block, done.fault.row), table,
                           block.columns, block.column_count, &done.fault);
    }
    QWP_ASSERT(done.len <= bound);
    block_close(framer, table, table->open_count, &done);
    framer->open_bound -= bound;
    tally_block(framer, table, &block);
    table->open_count = 0;
    return QWP_OK;
}

/* Encodes a staged chunk behind the frame, and before it what is open of its table. */
static enum qwp_result chunk_flush(struct qwp_framer *framer, const struct qwp_row *row,
                                   struct qwp_framer_fault *fault)
{
    struct qwp_chunk chunk = row->chunk->chunk;
    struct qwp_table *table = row->known->table;
    if (table->open_count > 0) {
        const enum qwp_result result = block_flush(framer, table, fault);
        if (result != QWP_OK) {
            return result;
        }
    }
    delta_write(framer);
    chunk.symbol_count = symbols_known(framer, row->source);
    /* Its unit was staged in this very call, so the delta has all that the dictionary has. */
    QWP_ASSERT(symbol_end(framer) == 0);
    struct qwp_encoded done;
    const enum qwp_result result = qwp_chunk_encode(&framer->encoder, &chunk, framer->encode_flags,
                                                    block_room(framer, row->chunk->bound), &done);
    if (result != QWP_OK) {
        return block_fault(fault, row->source, table, chunk.columns, chunk.column_count,
                           &done.fault);
    }
    QWP_ASSERT(done.len <= row->chunk->bound);
    block_close(framer, table, chunk.row_count, &done);
    tally_add(framer, table, row->source, chunk.row_count);
    return QWP_OK;
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
            const enum qwp_result result = block_flush(framer, table, fault);
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

/* The span that begins at row `first`; false: there is no such row. */
static bool span_at(const struct qwp_framer *framer, uint32_t first, struct span *span)
{
    const struct qwp_row *rows = framer->index.rows;
    const uint32_t end = framer->index.count;
    if (first == end) {
        return false;
    }
    const bool is_chunk = (rows[first].flags & QWP_ROW_CHUNK) != 0;
    struct qwp_known_shape *known = rows[first].known;
    uint32_t at = first + rows[first].alike;
    while (!is_chunk && at < end && rows[at].known == known &&
           (rows[at].flags & QWP_ROW_CHUNK) == 0) {
        at += rows[at].alike;
    }
    *span = (struct span){first, (at < end ? at : end) - first, known,
                          is_chunk ? rows[first].chunk : NULL};
    return true;
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
    }
    table->open_stamp = ++framer->stamp;
    table->open_group = known->group;
    table->open_shape = known;
    table->open_columns = known->shape->column_count;
    table->open_header_bound = known->header_bound;
    table->open_value_bytes = 0;
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

/* Links rows of one shape to the table's open block, which has room for them. */
static void block_link(struct qwp_framer *framer, struct qwp_known_shape *known, uint32_t first,
                       uint32_t count)
{
    struct qwp_table *table = known->table;
    struct qwp_row *rows = framer->index.rows;
    const size_t before = table->open_count > 0 ? table_bound(framer, table) : 0;
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
    for (uint32_t i = first; i < first + count; i++) {
        rows[i].next = i + 1; /* the last one's counts for nothing */
    }
    table->open_last = first + count - 1;
    table->open_count += count;
    table->open_value_bytes += (size_t)count * known->value_bytes + part_bytes;
    framer->open_bound += table_bound(framer, table) - before;
}

/* Puts staged rows into their table's block, or a chunk behind it. */
static enum qwp_result span_link(struct qwp_framer *framer, const struct span *span,
                                 struct qwp_framer_fault *fault)
{
    struct qwp_table *table = span->known->table;
    if (span->chunk != NULL) {
        return chunk_flush(framer, &framer->index.rows[span->first], fault);
    }
    for (uint32_t done = 0; done < span->count;) {
        if (table->open_count == QWP_GATHER_ROWS_MAX ||
            (table->open_count > 0 && table->open_group != span->known->group)) {
            const enum qwp_result result = block_flush(framer, table, fault);
            if (result != QWP_OK) {
                return result;
            }
        }
        const uint32_t room = QWP_GATHER_ROWS_MAX - table->open_count;
        const uint32_t count = span->count - done < room ? span->count - done : room;
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
    struct span span;
    for (uint32_t at = first; span_at(framer, at, &span); at += span.count) {
        if (span.known->table->held) {
            return QWP_AGAIN;
        }
        span_cost(framer, &span, unit_stamp, &cost);
    }
    fault->bytes_needed = qwp_framer_bound(framer) + cost.bytes;
    /* The header counts blocks in 16 bits. Each that is open has a row before `first`. */
    fault->blocks_needed = framer->block_count + first + cost.blocks;
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

enum qwp_result qwp_framer_take(struct qwp_framer *framer, struct qwp_source *source,
                                uint64_t rows_max, struct qwp_framer_fault *fault)
{
    fault_reset(fault);
    if (framer->index.count >= ROWS_PENDING_MAX) {
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
        units_stage(framer, source, min_u32(rows_max, ROWS_PENDING_MAX - first), &end, fault);
    if (result != QWP_OK) {
        framer->index.count = first;
        return result;
    }
    uint64_t rows = 0;
    struct span span;
    for (uint32_t at = first; result == QWP_OK && span_at(framer, at, &span); at += span.count) {
        rows += span.chunk != NULL ? span.chunk->chunk.row_count : span.count;
        result = span_link(framer, &span, fault);
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
    delta_write(framer);
    const enum qwp_result result = flush_all(framer, fault);
    if (result != QWP_OK) {
        return result;
    }
    QWP_ASSERT(framer->closed_rows == framer->frame_rows);
    qwp_message_finish(framer->frame, (uint16_t)framer->block_count, framer->len);
    *len = framer->len;
    return QWP_OK;
}

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_message.h"
#include "sidecar/qwp_chunk_index.h"
#include "sidecar/qwp_framer_internal.h"

void qwp_framer_delta_write(struct qwp_framer *framer)
{
    if (framer->delta_written) {
        return;
    }
    const bool gorilla = (framer->frame_flags & QWP_ENCODE_GORILLA) != 0;
    qwp_message_begin(framer->frame,
                      (uint8_t)(QWP_FLAG_DELTA_DICT | (gorilla ? QWP_FLAG_GORILLA : 0)));
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
        const uint32_t count = row->alike;
        const size_t size_bytes = row->size_bytes;
        const unsigned char *record = row->record;
        const uint64_t *steering = row->steering;
        for (uint32_t k = i; k < i + count; k++) {
            framer->records[k] = record;
            framer->row_steering[k] = steering;
            record += size_bytes;
        }
        run->row_count += count;
        i += count;
        row = &framer->index.rows[row->next];
    }
    return true;
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

enum qwp_result qwp_framer_block_flush(struct qwp_framer *framer, struct qwp_table *table,
                                       struct qwp_framer_fault *fault)
{
    qwp_framer_delta_write(framer);
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
    const size_t bound = table->open_bound;
    struct qwp_encoded done;
    const enum qwp_result result = qwp_block_encode(&framer->encoder, &block, framer->frame_flags,
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

enum qwp_result qwp_framer_chunk_flush(struct qwp_framer *framer, const struct qwp_row *row,
                                       struct qwp_framer_fault *fault)
{
    struct qwp_chunk chunk = row->chunk->chunk;
    struct qwp_table *table = row->known->table;
    if (table->open_count > 0) {
        const enum qwp_result result = qwp_framer_block_flush(framer, table, fault);
        if (result != QWP_OK) {
            return result;
        }
    }
    qwp_framer_delta_write(framer);
    chunk.symbol_count = symbols_known(framer, row->source);
    /* Its unit was staged in this very call, so the delta has all that the dictionary has. */
    QWP_ASSERT(symbol_end(framer) == 0);
    struct qwp_encoded done;
    const enum qwp_result result = qwp_chunk_encode(&framer->encoder, &chunk, framer->frame_flags,
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

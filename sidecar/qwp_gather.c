#include "sidecar/qwp_gather.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_varint.h"

enum {
    ROWS_CAPACITY_MIN = 8192,
    ROWS_PENDING_MAX =
        4096, /* then everything open is encoded, so that its records are still cached */
    CHUNK_BYTES = 64 * 1024,
    BLOCKS_MAX = 60000, /* the header counts them in 16 bits */
};

/* A row of the index. */
enum { ROW_NULLS = 1, ROW_PARTS = 2, ROW_SYMBOL_TEXT = 4 };
struct row {
    const unsigned char *record; /* in the ring: untrusted */
    const uint64_t *steering;    /* ours: see struct qwp_run */
    struct qwp_known_shape *known;
    struct qwp_source *source;
    uint32_t part_bytes;
    uint32_t next; /* row of the same table */
    uint32_t flags;
};

/* Memory that is handed out piece by piece and taken back at once. */
struct chunk {
    struct chunk *next;
    size_t used;
    alignas(8) unsigned char bytes[CHUNK_BYTES];
};
struct arena {
    struct chunk *first;
    struct chunk *now;
};

struct qwp_gather {
    struct qwp_dict *dict;

    /* the row index */
    struct row *rows;
    uint32_t row_count, row_capacity;
    struct arena steering;
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
    uint64_t frame_rows;
    uint32_t delta_start, delta_end; /* delta_end moves until the delta is written */
    size_t delta_bytes;              /* while it is not written */
    bool delta_written;
    bool delta_alone; /* no rows: the delta did not fit whole */

    /* scratch */
    struct arena flush;
    struct qwp_run runs[QWP_GATHER_ROWS_MAX];
    const unsigned char *records[QWP_GATHER_ROWS_MAX];
    const uint64_t *row_steering[QWP_GATHER_ROWS_MAX];
    struct qwp_source *row_source[QWP_GATHER_ROWS_MAX];
    char *text; /* a symbol on its way into the dictionary */
    size_t text_capacity;
    struct qwp_encoder encoder;
};

/* Steering and null union of rows without nulls. */
static const uint64_t no_nulls[(QWP_COLUMNS_MAX + 63) / 64];

static void *arena_take(struct arena *arena, size_t bytes)
{
    bytes = qwp_round_up(bytes, 8);
    QWP_ASSERT(bytes <= CHUNK_BYTES);
    if (arena->now == NULL || arena->now->used + bytes > CHUNK_BYTES) {
        struct chunk *next = arena->now != NULL ? arena->now->next : arena->first;
        if (next == NULL) {
            next = malloc(sizeof *next);
            if (next == NULL) {
                return NULL;
            }
            next->next = NULL;
            if (arena->now != NULL) {
                arena->now->next = next;
            } else {
                arena->first = next;
            }
        }
        next->used = 0;
        arena->now = next;
    }
    void *at = arena->now->bytes + arena->now->used;
    arena->now->used += bytes;
    return at;
}

static void arena_reset(struct arena *arena)
{
    arena->now = NULL;
}

static void arena_fini(struct arena *arena)
{
    for (struct chunk *next, *chunk = arena->first; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

enum qwp_result qwp_gather_create(struct qwp_gather **out, struct qwp_dict *dict,
                                  struct qwp_error *err)
{
    struct qwp_gather *gather = calloc(1, sizeof *gather);
    if (gather != NULL) {
        gather->rows = malloc(ROWS_CAPACITY_MIN * sizeof *gather->rows);
    }
    if (gather == NULL || gather->rows == NULL) {
        qwp_gather_destroy(gather);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    gather->row_capacity = ROWS_CAPACITY_MIN;
    gather->dict = dict;
    *out = gather;
    return QWP_OK;
}

void qwp_gather_destroy(struct qwp_gather *gather)
{
    if (gather == NULL) {
        return;
    }
    arena_fini(&gather->steering);
    arena_fini(&gather->flush);
    free(gather->rows);
    free(gather->text);
    free(gather);
}

static void frame_tables_reset(struct qwp_gather *gather)
{
    for (struct qwp_table *table = gather->frame_tables; table != NULL; table = table->frame_next) {
        table->frame_rows = 0;
    }
    gather->frame_tables = NULL;
}

static void delta_measure(struct qwp_gather *gather)
{
    gather->delta_bytes = qwp_delta_size(
        gather->delta_start, gather->delta_end - gather->delta_start, qwp_dict_text, gather->dict);
}

/* More new symbols than one frame holds: this one carries as many as fit and no rows. */
static void delta_cut(struct qwp_gather *gather)
{
    size_t bytes = QWP_HEADER_BYTES + 2 * (size_t)QWP_VARINT_BYTES_MAX;
    uint32_t end = gather->delta_start;
    while (end < gather->delta_end) {
        bytes += qwp_dict_text(gather->dict, end).len + QWP_VARINT_BYTES_MAX;
        if (bytes > gather->room) {
            break;
        }
        end++;
    }
    gather->delta_end = end;
    gather->delta_alone = true;
    delta_measure(gather);
}

void qwp_gather_begin(struct qwp_gather *gather, unsigned char *at, size_t room,
                      uint32_t framed_symbols)
{
    gather->frame = at;
    gather->room = room;
    gather->len = QWP_HEADER_BYTES;
    gather->touched = 0;
    gather->block_count = 0;
    gather->frame_rows = 0;
    gather->delta_start = framed_symbols;
    gather->delta_end = qwp_dict_count(gather->dict);
    gather->delta_written = false;
    gather->delta_alone = false;
    frame_tables_reset(gather);
    delta_measure(gather);
    if (gather->len + gather->delta_bytes > room) {
        delta_cut(gather);
    }
}

static void index_reset(struct qwp_gather *gather)
{
    gather->row_count = 0;
    arena_reset(&gather->steering);
}

void qwp_gather_abandon(struct qwp_gather *gather)
{
    for (struct qwp_table *table = gather->open_tables; table != NULL; table = table->open_next) {
        table->open_count = 0;
    }
    gather->open_tables = NULL;
    gather->open_bound = 0;
    index_reset(gather);
}

struct qwp_table *qwp_gather_tables(const struct qwp_gather *gather)
{
    return gather->frame_tables;
}

uint64_t qwp_gather_rows(const struct qwp_gather *gather)
{
    return gather->frame_rows;
}

size_t qwp_gather_bound(const struct qwp_gather *gather)
{
    return gather->len + gather->delta_bytes + gather->open_bound;
}

size_t qwp_gather_touched(const struct qwp_gather *gather)
{
    return gather->touched;
}

uint32_t qwp_gather_framed_symbols(const struct qwp_gather *gather)
{
    return gather->delta_end;
}

/* ---- pass 2: a block ---- */

static void delta_write(struct qwp_gather *gather)
{
    if (gather->delta_written) {
        return;
    }
    qwp_message_begin(gather->frame, QWP_FLAG_GORILLA | QWP_FLAG_DELTA_DICT);
    unsigned char *end =
        qwp_delta_put(gather->frame + QWP_HEADER_BYTES, gather->delta_start,
                      gather->delta_end - gather->delta_start, qwp_dict_text, gather->dict);
    gather->len = (size_t)(end - gather->frame);
    gather->touched = gather->len;
    gather->delta_bytes = 0;
    gather->delta_written = true;
}

/* Where each column of a block of several shapes lies in one of them. */
static const uint16_t *field_map(struct qwp_gather *gather, struct qwp_known_shape *known,
                                 const uint32_t *group_columns, uint32_t count, uint64_t stamp)
{
    if (known->map_stamp == stamp) {
        return known->field_map;
    }
    uint16_t *map = arena_take(&gather->flush, count * sizeof *map);
    uint16_t *by_group = arena_take(&gather->flush, known->group->column_count * sizeof *by_group);
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
static bool block_columns(struct qwp_gather *gather, const struct qwp_table *table,
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
        arena_take(&gather->flush, table->open_columns * sizeof *columns);
    uint32_t *indexes = arena_take(&gather->flush, table->open_columns * sizeof *indexes);
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

static bool run_begin(struct qwp_gather *gather, const struct qwp_table *table,
                      const struct row *row, const uint32_t *group_columns, uint32_t column_count,
                      uint64_t stamp, struct qwp_run *run)
{
    const uint16_t *map = table->open_shape != NULL
                              ? row->known->identity
                              : field_map(gather, row->known, group_columns, column_count, stamp);
    *run = (struct qwp_run){
        .shape = row->known->shape,
        .field_of_column = map,
        .symbol_codes = row->source->symbol_codes,
        .symbol_count = row->source->symbol_count,
        .null_any = no_nulls,
        .has_parts = (row->flags & ROW_PARTS) != 0,
        .has_symbol_text = (row->flags & ROW_SYMBOL_TEXT) != 0,
    };
    return map != NULL;
}

static bool run_add_nulls(struct qwp_gather *gather, struct qwp_run *run, const uint64_t *words)
{
    if (run->null_any == no_nulls) {
        uint64_t *any = arena_take(&gather->flush, run->shape->null_words * sizeof *any);
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
static bool block_fill(struct qwp_gather *gather, struct qwp_table *table, struct qwp_block *block)
{
    const uint64_t stamp = ++gather->stamp;
    const uint32_t *group_columns;
    if (!block_columns(gather, table, block, &group_columns)) {
        return false;
    }
    const struct row *first = NULL;
    uint32_t index = table->open_first;
    for (uint32_t i = 0; i < table->open_count; i++) {
        const struct row *row = &gather->rows[index];
        struct qwp_run *run = &gather->runs[block->run_count];
        if (first == NULL || row->known != first->known || row->source != first->source ||
            ((row->flags ^ first->flags) & (ROW_PARTS | ROW_SYMBOL_TEXT)) != 0) {
            if (!run_begin(gather, table, row, group_columns, block->column_count, stamp, run)) {
                return false;
            }
            block->run_count++;
            first = row;
        } else {
            run--;
        }
        run->row_count++;
        if ((row->flags & ROW_NULLS) != 0 && !run_add_nulls(gather, run, row->steering)) {
            return false;
        }
        gather->records[i] = row->record;
        gather->row_steering[i] = row->steering;
        gather->row_source[i] = row->source;
        index = row->next;
    }
    return true;
}

static size_t table_bound(const struct qwp_table *table)
{
    return table->open_header_bound + (size_t)table->open_columns * ((table->open_count + 7) / 8) +
           table->open_value_bytes;
}

/* Encodes the open block of the table behind the frame. The table stays in the list of open ones.
 */
static enum qwp_result block_flush(struct qwp_gather *gather, struct qwp_table *table,
                                   struct qwp_gather_fault *fault)
{
    delta_write(gather);
    struct qwp_block block = {
        .table = table->name,
        .designated_type = table->open_group->designated_type,
        .runs = gather->runs,
        .records = gather->records,
        .steering = gather->row_steering,
        .row_count = table->open_count,
    };
    arena_reset(&gather->flush);
    if (!block_fill(gather, table, &block)) {
        return qwp_fail(&fault->error, QWP_NOMEM, 0, "no memory to lay out a block");
    }
    const size_t bound = table_bound(table);
    QWP_ASSERT(gather->len + bound <= gather->room);
    if (gather->len + bound > gather->touched) {
        gather->touched = gather->len + bound;
    }
    struct qwp_encoded done;
    const enum qwp_result result = qwp_block_encode(&gather->encoder, &block, QWP_ENCODE_GORILLA,
                                                    gather->frame + gather->len, &done);
    if (result != QWP_OK) {
        const struct qwp_encode_fault bad = done.fault;
        const bool is_time = bad.column == block.column_count;
        const struct qwp_name column = is_time ? (struct qwp_name){"designated timestamp", 20}
                                               : block.columns[bad.column].name;
        fault->source = gather->row_source[bad.row];
        return qwp_fail(&fault->error, QWP_CORRUPT, 0, "table '%.*s', column '%.*s': %s",
                        (int)table->name.len, table->name.text, (int)column.len, column.text,
                        bad.what);
    }
    QWP_ASSERT(done.len <= bound);
    gather->len += done.len;
    gather->block_count += done.table_count;
    gather->open_bound -= bound;
    if (table->frame_rows == 0) {
        table->frame_next = gather->frame_tables;
        gather->frame_tables = table;
    }
    table->frame_rows += table->open_count;
    table->open_count = 0;
    return QWP_OK;
}

static enum qwp_result flush_all(struct qwp_gather *gather, struct qwp_gather_fault *fault)
{
    for (struct qwp_table *table = gather->open_tables; table != NULL; table = table->open_next) {
        if (table->open_count > 0) {
            const enum qwp_result result = block_flush(gather, table, fault);
            if (result != QWP_OK) {
                return result;
            }
        }
        table->open_stamp = 0;
    }
    gather->open_tables = NULL;
    index_reset(gather);
    return QWP_OK;
}

/* ---- pass 1: a unit ---- */

static struct row *row_add(struct qwp_gather *gather)
{
    if (gather->row_count == gather->row_capacity) {
        const uint32_t capacity = gather->row_capacity * 2;
        struct row *rows = realloc(gather->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return NULL;
        }
        gather->rows = rows;
        gather->row_capacity = capacity;
    }
    return &gather->rows[gather->row_count++];
}

/* Copies a symbol out of the ring, then judges and interns the copy. */
static enum qwp_result text_intern(struct qwp_gather *gather, const unsigned char *text,
                                   uint32_t len, uint32_t *code, struct qwp_error *err)
{
    if (len > gather->text_capacity) {
        char *grown = realloc(gather->text, len);
        if (grown == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for a symbol of %u bytes", len);
        }
        gather->text = grown;
        gather->text_capacity = len;
    }
    if (len > 0) {
        memcpy(gather->text, text, len);
    }
    if (!qwp_utf8_valid(gather->text, len)) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol is not valid UTF-8");
    }
    uint32_t id;
    if (qwp_dict_intern(gather->dict, gather->text, len, &id) != QWP_OK) {
        return qwp_fail(err, QWP_NOMEM, 0, "the symbol dictionary is full (%u symbols)",
                        qwp_dict_count(gather->dict));
    }
    *code = qwp_symbol_code(id);
    return QWP_OK;
}

/* Reads the lengths of the variable parts once, checks that they lie in the record, resolves texts.
 */
static enum qwp_result parts_index(struct qwp_gather *gather, const struct row *row,
                                   uint32_t size_bytes, uint32_t *ends, uint32_t *codes,
                                   struct qwp_error *err)
{
    const struct qwp_shape *shape = row->known->shape;
    uint64_t end = shape->fixed_bytes;
    for (uint32_t v = 0; v < shape->var_count; v++) {
        const uint16_t c = row->known->var_column[v];
        const struct qwp_shape_column *column = &shape->columns[c];
        const bool null = (row->steering[c / 64] >> (c % 64) & 1) != 0;
        const uint32_t field = null ? 0 : qwp_load_u32(row->record + column->off);
        const bool symbol = column->type == QWP_TYPE_SYMBOL;
        const bool text = symbol && codes != NULL && (field & QWP_SYMBOL_TEXT) != 0;
        const uint32_t len = text ? field & ~QWP_SYMBOL_TEXT : symbol ? 0 : field;
        const uint64_t begin = end;
        end += len;
        if (end > size_bytes) {
            return qwp_fail(err, QWP_CORRUPT, 0,
                            "table '%.*s', column '%.*s': a length of %u bytes passes the record's "
                            "end",
                            (int)shape->table.len, shape->table.text, (int)column->name.len,
                            column->name.text, len);
        }
        ends[v] = (uint32_t)end;
        if (codes == NULL || !symbol) {
            continue;
        }
        codes[v] = 0;
        if (text) {
            const enum qwp_result result =
                text_intern(gather, row->record + begin, len, &codes[v], err);
            if (result != QWP_OK) {
                return result;
            }
        } else if (!null) {
            if (field >= row->source->symbol_count) {
                return qwp_fail(err, QWP_CORRUPT, 0, "symbol %u of %u defined ones", field,
                                row->source->symbol_count);
            }
            codes[v] = row->source->symbol_codes[field];
        }
    }
    return QWP_OK;
}

/* Gives the row its steering. */
static enum qwp_result row_steer(struct qwp_gather *gather, struct row *row, uint32_t size_bytes,
                                 struct qwp_error *err)
{
    const struct qwp_shape *shape = row->known->shape;
    const uint32_t words = shape->null_words;
    uint64_t any = 0;
    uint64_t first = 0;
    for (uint32_t w = 0; w < words; w++) {
        const uint64_t word = qwp_load_u64(row->record + QWP_RECORD_HEADER_BYTES + 8 * w);
        first = w == 0 ? word : first;
        any |= word;
    }
    const bool has_parts = row->known->text_count > 0 || (row->flags & ROW_SYMBOL_TEXT) != 0;
    row->part_bytes = 0;
    if (any == 0 && !has_parts) {
        row->steering = no_nulls;
        return QWP_OK;
    }
    const size_t part_words = has_parts ? (shape->var_count + 1u) / 2 : 0;
    const size_t code_words = (row->flags & ROW_SYMBOL_TEXT) != 0 ? part_words : 0;
    uint64_t *steering = arena_take(&gather->steering, (words + part_words + code_words) * 8);
    if (steering == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    row->steering = steering;
    if (words > 0) {
        steering[0] = first;
    }
    for (uint32_t w = 1; w < words; w++) {
        steering[w] = qwp_load_u64(row->record + QWP_RECORD_HEADER_BYTES + 8 * w);
        any |= steering[w];
    }
    row->flags |= any != 0 ? ROW_NULLS : 0;
    if (!has_parts) {
        return QWP_OK;
    }
    row->flags |= ROW_PARTS;
    uint32_t *ends = (uint32_t *)(steering + words);
    uint32_t *codes = code_words > 0 ? (uint32_t *)(steering + words + part_words) : NULL;
    const enum qwp_result result = parts_index(gather, row, size_bytes, ends, codes, err);
    if (result == QWP_OK && shape->var_count > 0) {
        row->part_bytes = ends[shape->var_count - 1] - shape->fixed_bytes;
    }
    return result;
}

/* Indexes the record at `record`, of which `left` bytes are published. */
static enum qwp_result record_stage(struct qwp_gather *gather, struct qwp_source *source,
                                    const unsigned char *record, uint64_t left,
                                    struct qwp_record_header *header, struct qwp_error *err)
{
    /* One load: the producer may change the record under us. */
    const uint64_t word = qwp_load_u64(record);
    memcpy(header, &word, sizeof *header);
    if (header->size_bytes < QWP_RECORD_HEADER_BYTES || header->size_bytes > left ||
        header->size_bytes % QWP_RECORD_ALIGN != 0) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a record of %u bytes with %llu published",
                        header->size_bytes, (unsigned long long)left);
    }
    if (header->kind == QWP_RECORD_PAD) {
        return QWP_OK;
    }
    if (header->kind != QWP_RECORD_ROW) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a record of kind %u", header->kind);
    }
    if (header->shape >= source->shape_count) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a row of shape %u, of %u defined ones", header->shape,
                        source->shape_count);
    }
    struct qwp_known_shape *known = source->shapes[header->shape];
    if (header->size_bytes < known->shape->fixed_bytes) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a row of %u bytes, its shape has %u",
                        header->size_bytes, known->shape->fixed_bytes);
    }
    struct row *row = row_add(gather);
    if (row == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    row->record = record;
    row->known = known;
    row->source = source;
    row->flags = (header->flags & QWP_RECORD_SYMBOL_TEXT) != 0 ? ROW_SYMBOL_TEXT : 0;
    return row_steer(gather, row, header->size_bytes, err);
}

/* Indexes the rows of the next unit; *end is the position behind it. */
static enum qwp_result unit_stage(struct qwp_gather *gather, struct qwp_source *source,
                                  uint64_t *end, struct qwp_error *err)
{
    const struct qwp_ring_rx *rx = &source->rx;
    uint64_t pos = source->taken_pos;
    struct qwp_record_header header;
    do {
        const uint64_t left = rx->tail_seen_pos - pos;
        if (left < QWP_RECORD_HEADER_BYTES) {
            return pos == source->taken_pos
                       ? QWP_AGAIN
                       : qwp_fail(err, QWP_CORRUPT, 0, "a unit ends behind what is published");
        }
        const enum qwp_result result =
            record_stage(gather, source, rx->data + (pos & rx->data_mask), left, &header, err);
        if (result != QWP_OK) {
            return result;
        }
        pos += header.size_bytes;
        if (pos - source->taken_pos > rx->unit_bytes_max) {
            return qwp_fail(err, QWP_CORRUPT, 0, "a unit of more than %u bytes",
                            rx->unit_bytes_max);
        }
    } while ((header.flags & QWP_RECORD_MORE) != 0);
    *end = pos;
    return QWP_OK;
}

/* Upper bound of what the row adds to the frame, given what is open and the unit's rows before it.
 */
static size_t row_cost(const struct row *row, uint64_t unit_stamp)
{
    struct qwp_known_shape *known = row->known;
    struct qwp_table *table = known->table;
    const size_t columns = known->shape->column_count;
    const size_t values = known->value_bytes + row->part_bytes + columns;
    const bool seen = table->unit_stamp == unit_stamp && table->unit_shape == known;
    table->unit_stamp = unit_stamp;
    table->unit_shape = known;
    if (seen || (table->open_count > 0 && table->open_shape == known &&
                 table->open_count < QWP_GATHER_ROWS_MAX)) {
        return values;
    }
    /* A new block, or new columns for the rows that are in the open one. */
    return values + known->header_bound + columns * (QWP_GATHER_ROWS_MAX / 8);
}

static void block_open(struct qwp_gather *gather, struct qwp_table *table,
                       struct qwp_known_shape *known)
{
    if (table->open_stamp == 0) {
        table->open_next = gather->open_tables;
        gather->open_tables = table;
    }
    table->open_stamp = ++gather->stamp;
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

/* Puts a staged row into its table's block. */
static enum qwp_result row_link(struct qwp_gather *gather, uint32_t index,
                                struct qwp_gather_fault *fault)
{
    struct row *row = &gather->rows[index];
    struct qwp_known_shape *known = row->known;
    struct qwp_table *table = known->table;
    if (table->open_count == QWP_GATHER_ROWS_MAX ||
        (table->open_count > 0 && table->open_group != known->group)) {
        const enum qwp_result result = block_flush(gather, table, fault);
        if (result != QWP_OK) {
            return result;
        }
    }
    const size_t before = table->open_count > 0 ? table_bound(table) : 0;
    if (table->open_count == 0) {
        block_open(gather, table, known);
        table->open_first = index;
    } else {
        if (table->open_shape != known) {
            block_widen(table, known);
        }
        gather->rows[table->open_last].next = index;
    }
    table->open_last = index;
    table->open_count++;
    table->open_value_bytes += known->value_bytes + row->part_bytes;
    gather->open_bound += table_bound(table) - before;
    return QWP_OK;
}

/* Whether the staged rows fit the frame; sets fault->bytes_needed when not. */
static bool unit_fits(struct qwp_gather *gather, uint32_t first, struct qwp_gather_fault *fault)
{
    const uint64_t unit_stamp = ++gather->stamp;
    size_t cost = 0;
    for (uint32_t i = first; i < gather->row_count; i++) {
        cost += row_cost(&gather->rows[i], unit_stamp);
    }
    const size_t needed = qwp_gather_bound(gather) + cost;
    fault->bytes_needed = needed;
    return needed <= gather->room && gather->block_count < BLOCKS_MAX;
}

/* New symbols (from texts in rows) can join the delta until it is written. */
static bool delta_extend(struct qwp_gather *gather)
{
    const uint32_t count = qwp_dict_count(gather->dict);
    if (count == gather->delta_end) {
        return true;
    }
    if (gather->delta_written) {
        return false;
    }
    gather->delta_bytes +=
        qwp_delta_size(gather->delta_end, count - gather->delta_end, qwp_dict_text, gather->dict);
    gather->delta_end = count;
    return true;
}

enum qwp_result qwp_gather_take(struct qwp_gather *gather, struct qwp_source *source,
                                struct qwp_gather_fault *fault)
{
    *fault = (struct qwp_gather_fault){0};
    if (gather->row_count >= ROWS_PENDING_MAX) {
        const enum qwp_result result = flush_all(gather, fault);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (gather->delta_alone) {
        return QWP_LIMIT;
    }
    const uint32_t first = gather->row_count;
    uint64_t end = source->taken_pos;
    enum qwp_result result = unit_stage(gather, source, &end, &fault->error);
    if (result != QWP_OK) {
        gather->row_count = first;
        fault->source = source;
        return result;
    }
    if (!delta_extend(gather) || !unit_fits(gather, first, fault)) {
        gather->row_count = first;
        return QWP_LIMIT;
    }
    for (uint32_t i = first; i < gather->row_count && result == QWP_OK; i++) {
        result = row_link(gather, i, fault);
    }
    const uint32_t rows = gather->row_count - first;
    gather->frame_rows += rows;
    source->taken_pos = end;
    source->taken_rows += rows;
    source->in_frame = true;
    return result;
}

enum qwp_result qwp_gather_finish(struct qwp_gather *gather, size_t *len,
                                  struct qwp_gather_fault *fault)
{
    *fault = (struct qwp_gather_fault){0};
    delta_write(gather);
    const enum qwp_result result = flush_all(gather, fault);
    if (result != QWP_OK) {
        return result;
    }
    qwp_message_finish(gather->frame, (uint16_t)gather->block_count, gather->len);
    *len = gather->len;
    return QWP_OK;
}

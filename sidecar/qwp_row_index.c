#include "sidecar/qwp_row_index.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_encode.h"
#include "core/wire/qwp_names.h"
#include "sidecar/qwp_chunk_index.h"

enum { ROWS_CAPACITY_MIN = 8192 };

const uint64_t qwp_no_nulls[(QWP_COLUMNS_MAX + 63) / 64];

enum qwp_result qwp_row_index_init(struct qwp_row_index *index, struct qwp_dict *dict)
{
    *index = (struct qwp_row_index){.dict = dict, .capacity = ROWS_CAPACITY_MIN};
    index->rows = malloc(index->capacity * sizeof *index->rows);
    index->def_entry = malloc(QWP_RING_DEF_BYTES_MAX);
    if (index->rows == NULL || index->def_entry == NULL) {
        qwp_row_index_fini(index);
        return QWP_NOMEM;
    }
    return QWP_OK;
}

void qwp_row_index_fini(struct qwp_row_index *index)
{
    qwp_arena_fini(&index->steering);
    free(index->rows);
    free(index->def_entry);
    free(index->text);
    index->rows = NULL;
    index->def_entry = NULL;
    index->text = NULL;
}

void qwp_row_index_reset(struct qwp_row_index *index)
{
    index->count = 0;
    qwp_arena_reset(&index->steering);
}

/* Room for `more` rows behind those there are. */
static bool rows_reserve(struct qwp_row_index *index, uint32_t more)
{
    uint32_t capacity = index->capacity;
    while (capacity - index->count < more) {
        capacity *= 2;
    }
    if (capacity > index->capacity) {
        struct qwp_row *rows = realloc(index->rows, capacity * sizeof *rows);
        if (rows == NULL) {
            return false;
        }
        index->rows = rows;
        index->capacity = capacity;
    }
    return true;
}

static struct qwp_row *row_add(struct qwp_row_index *index)
{
    return rows_reserve(index, 1) ? &index->rows[index->count++] : NULL;
}

/* A row without nulls and parts. Field by field: as a copy of a whole struct they go by way of the
 * stack, in stores and loads of different widths that wait for one another [20 ns]. */
static inline void row_fill(struct qwp_row *row, const unsigned char *record, uint32_t size_bytes,
                            struct qwp_known_shape *known, struct qwp_source *source)
{
    row->record = record;
    row->steering = qwp_no_nulls;
    row->known = known;
    row->source = source;
    row->part_bytes = 0;
    row->size_bytes = size_bytes;
    row->flags = 0;
    row->alike = 1;
}

void qwp_row_index_cut(struct qwp_row_index *index, uint32_t from, uint32_t at)
{
    while (from + index->rows[from].alike <= at) {
        from += index->rows[from].alike;
    }
    if (from == at) {
        return;
    }
    struct qwp_row *first = &index->rows[from];
    struct qwp_row *rest = &index->rows[at];
    const uint32_t ahead = at - from;
    row_fill(rest, first->record + (size_t)ahead * first->size_bytes, first->size_bytes,
             first->known, first->source);
    rest->alike = (uint16_t)(first->alike - ahead);
    first->alike = (uint16_t)ahead;
}

enum qwp_result qwp_row_index_intern(struct qwp_row_index *index, struct qwp_source *source,
                                     const unsigned char *text, uint32_t len, uint32_t *code,
                                     struct qwp_error *err)
{
    if (len > QWP_SYMBOL_BYTES_MAX) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol of %u bytes, at most %d are allowed", len,
                        QWP_SYMBOL_BYTES_MAX);
    }
    if (len > index->text_capacity) {
        char *grown = realloc(index->text, len);
        if (grown == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for a symbol of %u bytes", len);
        }
        index->text = grown;
        index->text_capacity = len;
    }
    if (len > 0) {
        memcpy(index->text, text, len);
    }
    if (!qwp_utf8_valid(index->text, len)) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol is not valid UTF-8");
    }
    const uint64_t brought = source->symbols.brought_in_all;
    const enum qwp_result result =
        qwp_source_symbols_intern(&source->symbols, index->dict, index->text, len, code);
    if (result == QWP_NOMEM) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a symbol of %u bytes", len);
    }
    return result == QWP_OK && source->symbols.brought_in_all != brought
               ? qwp_source_count_text(source, err)
               : result;
}

/* The symbol that a field names is in the dictionary. What names none the encoder finds. */
enum qwp_result qwp_row_index_symbol(struct qwp_row_index *index, struct qwp_source *source,
                                     uint32_t field, struct qwp_error *err)
{
    if (field >= source->symbols.count || qwp_source_symbols_is_set(&source->symbols, field)) {
        return QWP_OK;
    }
    return qwp_source_symbols_use(&source->symbols, index->dict, &source->rx, field,
                                  index->def_entry, err);
}

static inline bool is_null(const struct qwp_row *row, uint32_t column)
{
    return (row->steering[column / 64] >> (column % 64) & 1) != 0;
}

/* Of a row all of whose symbols are given by index, some of that ring not being interned yet. */
static enum qwp_result symbols_need(struct qwp_row_index *index, const struct qwp_row *row,
                                    struct qwp_error *err)
{
    const struct qwp_shape *shape = row->known->shape;
    for (uint32_t v = 0; v < shape->var_count; v++) {
        const struct qwp_known_var var = row->known->vars[v];
        if (!var.is_symbol || is_null(row, var.column)) {
            continue;
        }
        const enum qwp_result result =
            qwp_row_index_symbol(index, row->source, qwp_load_u32(row->record + var.off), err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return QWP_OK;
}

/* Reads the lengths of the variable parts once, checks that they lie in the record, resolves texts.
 */
static enum qwp_result parts_index(struct qwp_row_index *index, const struct qwp_row *row,
                                   uint32_t size_bytes, uint32_t *ends, uint32_t *codes,
                                   struct qwp_error *err)
{
    const struct qwp_shape *shape = row->known->shape;
    uint64_t end = shape->fixed_bytes;
    for (uint32_t v = 0; v < shape->var_count; v++) {
        const struct qwp_known_var var = row->known->vars[v];
        const struct qwp_shape_column *column = &shape->columns[var.column];
        const bool null = is_null(row, var.column);
        const uint32_t field = null ? 0 : qwp_load_u32(row->record + var.off);
        const bool symbol = var.is_symbol;
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
                qwp_row_index_intern(index, row->source, row->record + begin, len, &codes[v], err);
            if (result != QWP_OK) {
                return result;
            }
        } else if (!null) {
            const struct qwp_source_symbols *symbols = &row->source->symbols;
            if (field >= symbols->count) {
                return qwp_fail(err, QWP_CORRUPT, 0, "symbol %u of %u defined ones", field,
                                symbols->count);
            }
            const enum qwp_result result = qwp_row_index_symbol(index, row->source, field, err);
            if (result != QWP_OK) {
                return result;
            }
            codes[v] = symbols->codes[field];
        }
    }
    return QWP_OK;
}

/* The same, for a row that has no symbol as a text. False: some length passes the record's end. */
static bool parts_measure(const struct qwp_row *row, uint32_t size_bytes, uint32_t *ends)
{
    const struct qwp_known_var *vars = row->known->vars;
    const uint32_t count = row->known->shape->var_count;
    uint64_t end = row->known->shape->fixed_bytes;
    for (uint32_t v = 0; v < count; v++) {
        if (!vars[v].is_symbol && !is_null(row, vars[v].column)) {
            end += qwp_load_u32(row->record + vars[v].off);
        }
        if (end > size_bytes) {
            return false;
        }
        ends[v] = (uint32_t)end;
    }
    return true;
}

/* Gives the row its steering. */
static enum qwp_result row_steer(struct qwp_row_index *index, struct qwp_row *row,
                                 uint32_t size_bytes, struct qwp_error *err)
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
    const bool has_parts = row->known->text_count > 0 || (row->flags & QWP_ROW_SYMBOL_TEXT) != 0;
    row->part_bytes = 0;
    if (any == 0 && !has_parts) {
        row->steering = qwp_no_nulls;
        return QWP_OK;
    }
    const size_t part_words = has_parts ? (shape->var_count + 1u) / 2 : 0;
    const size_t code_words = (row->flags & QWP_ROW_SYMBOL_TEXT) != 0 ? part_words : 0;
    uint64_t *steering = qwp_arena_take(&index->steering, (words + part_words + code_words) * 8);
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
    row->flags |= any != 0 ? QWP_ROW_NULLS : 0;
    if (!has_parts) {
        return QWP_OK;
    }
    row->flags |= QWP_ROW_PARTS;
    uint32_t *ends = (uint32_t *)(steering + words);
    uint32_t *codes = code_words > 0 ? (uint32_t *)(steering + words + part_words) : NULL;
    const enum qwp_result result = codes == NULL && parts_measure(row, size_bytes, ends)
                                       ? QWP_OK
                                       : parts_index(index, row, size_bytes, ends, codes, err);
    if (result == QWP_OK && shape->var_count > 0) {
        row->part_bytes = ends[shape->var_count - 1] - shape->fixed_bytes;
    }
    return result;
}

/* Indexes the record at `record`, of which `left` bytes are published. */
static enum qwp_result record_stage(struct qwp_row_index *index, struct qwp_source *source,
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
    const bool is_chunk = header->kind == QWP_RECORD_CHUNK;
    if (header->kind != QWP_RECORD_ROW && !is_chunk) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a record of kind %u", header->kind);
    }
    if (header->shape >= source->shape_count) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a row of shape %u, of %u defined ones", header->shape,
                        source->shape_count);
    }
    struct qwp_known_shape *known = source->shapes[header->shape];
    if (!is_chunk && header->size_bytes < known->shape->fixed_bytes) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a row of %u bytes, its shape has %u",
                        header->size_bytes, known->shape->fixed_bytes);
    }
    struct qwp_row *row = row_add(index);
    if (row == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    row_fill(row, record, header->size_bytes, known, source);
    if (is_chunk) {
        row->flags = QWP_ROW_CHUNK;
        return qwp_chunk_index(index, row, header->size_bytes, err);
    }
    row->flags = (header->flags & QWP_RECORD_SYMBOL_TEXT) != 0 ? QWP_ROW_SYMBOL_TEXT : 0;
    const enum qwp_result result = row_steer(index, row, header->size_bytes, err);
    if (result == QWP_OK && source->symbols.unset > 0 && (row->flags & QWP_ROW_SYMBOL_TEXT) == 0) {
        return symbols_need(index, row, err);
    }
    return result;
}

/* ---- rows that are alike ---- */

/* What rows that begin with the same header have in common. */
struct likeness {
    uint64_t word; /* their header; of many units without QWP_RECORD_MORE */
    uint32_t size_bytes;
    struct qwp_known_shape *known; /* NULL: qwp_row_index_unit() has to look at them */
    bool may_be_bare; /* all there is to steering are nulls, one word of them at most */
};

static inline struct likeness likeness_of(const struct qwp_source *source, uint64_t word)
{
    struct qwp_record_header header;
    memcpy(&header, &word, sizeof header);
    struct likeness like = {.word = word, .size_bytes = header.size_bytes};
    if (header.kind != QWP_RECORD_ROW || (header.flags & QWP_RECORD_SYMBOL_TEXT) != 0 ||
        header.size_bytes % QWP_RECORD_ALIGN != 0 || header.shape >= source->shape_count ||
        header.size_bytes < source->shapes[header.shape]->shape->fixed_bytes) {
        return like;
    }
    like.known = source->shapes[header.shape];
    like.may_be_bare = like.known->text_count == 0 && like.known->shape->null_words == 1;
    return like;
}

/* An entry for the rows first .. end - 1, of which there may be none. */
static void alike_note(struct qwp_row_index *index, struct qwp_source *source,
                       const struct likeness *like, uint64_t pos, uint32_t first, uint32_t end)
{
    QWP_DEBUG_ASSERT(end - first <= UINT16_MAX);
    if (first < end) {
        row_fill(&index->rows[first], source->rx.data + (pos & source->rx.data_mask),
                 like->size_bytes, like->known, source);
        index->rows[first].alike = (uint16_t)(end - first);
    }
}

/* How many of `left` records begin with `word` and are without nulls. */
static uint64_t bare_records(const unsigned char *record, uint64_t size, uint64_t word,
                             uint64_t left)
{
    uint64_t count = 0;
    while (count < left &&
           ((qwp_load_u64(record) ^ word) | qwp_load_u64(record + QWP_RECORD_HEADER_BYTES)) == 0) {
        record += size;
        count++;
    }
    return count;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Adds the rows at *pos that go on in a unit as the one before them, whose header this is: alike,
 * and not its last. False: no memory. */
static bool alike_add(struct qwp_row_index *index, struct qwp_source *source,
                      const struct qwp_record_header *header, uint64_t *pos)
{
    const struct qwp_ring_rx *rx = &source->rx;
    uint64_t word;
    memcpy(&word, header, sizeof word);
    const struct likeness like = likeness_of(source, word);
    if (!like.may_be_bare || source->symbols.unset > 0) {
        return true;
    }
    const uint64_t bytes =
        min_u64(rx->tail_seen_pos - *pos, rx->unit_bytes_max - (*pos - source->taken_pos));
    const uint64_t left = min_u64(bytes / like.size_bytes, UINT16_MAX);
    const uint32_t count =
        (uint32_t)bare_records(rx->data + (*pos & rx->data_mask), like.size_bytes, word, left);
    if (!rows_reserve(index, count)) {
        return false;
    }
    alike_note(index, source, &like, *pos, index->count, index->count + count);
    index->count += count;
    *pos += (uint64_t)count * like.size_bytes;
    return true;
}

/* ---- units ---- */

/* Indexes the rows of the next unit; *end is the position behind it. */
enum qwp_result qwp_row_index_unit(struct qwp_row_index *index, struct qwp_source *source,
                                   uint64_t *end, struct qwp_error *err)
{
    const struct qwp_ring_rx *rx = &source->rx;
    const uint32_t first = index->count;
    uint64_t pos = source->taken_pos;
    struct qwp_record_header header;
    qwp_source_symbols_unit(&source->symbols);
    do {
        const uint64_t left = rx->tail_seen_pos - pos;
        if (left < QWP_RECORD_HEADER_BYTES) {
            return pos == source->taken_pos
                       ? QWP_AGAIN
                       : qwp_fail(err, QWP_CORRUPT, 0, "a unit ends behind what is published");
        }
        const enum qwp_result result =
            record_stage(index, source, rx->data + (pos & rx->data_mask), left, &header, err);
        if (result != QWP_OK) {
            if (result == QWP_AGAIN) {
                source->waits_symbols = true;
                source->symbols.waits++;
            }
            return result;
        }
        pos += header.size_bytes;
        if (pos - source->taken_pos > rx->unit_bytes_max) {
            return qwp_fail(err, QWP_CORRUPT, 0, "a unit of more than %u bytes",
                            rx->unit_bytes_max);
        }
        if ((header.flags & QWP_RECORD_MORE) != 0 && !alike_add(index, source, &header, &pos)) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
        }
        if (index->count - first > QWP_BLOCK_ROWS_MAX) {
            return qwp_fail(err, QWP_CORRUPT, 0, "a unit of more than %d rows", QWP_BLOCK_ROWS_MAX);
        }
    } while ((header.flags & QWP_RECORD_MORE) != 0);
    if (index->count == first) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a unit without rows");
    }
    *end = pos;
    return QWP_OK;
}

/* ---- many units ---- */

/* How far the units at hand were looked at. */
struct reach {
    uint64_t pos;
    uint64_t unit_pos;   /* of the unit that pos stands in */
    uint32_t unit_count; /* rows before that unit */
};

static uint64_t more_mask(void)
{
    const struct qwp_record_header header = {.flags = QWP_RECORD_MORE};
    uint64_t word;
    memcpy(&word, &header, sizeof word);
    return word;
}

/* Adds at most `left` rows that have no nulls and are all alike; the memory is reserved. False:
 * there is none. */
static bool bare_rows_add(struct qwp_row_index *index, struct qwp_source *source,
                          const struct likeness *like, struct reach *reach, uint64_t left)
{
    /* In one piece: the ring is mapped twice, one view behind the other. */
    const unsigned char *record = source->rx.data + (reach->pos & source->rx.data_mask);
    const uint64_t unit_bytes_max = source->rx.unit_bytes_max;
    const uint64_t more = more_mask();
    const uint64_t size = like->size_bytes;
    const uint64_t word = like->word;
    struct reach at = *reach;
    uint32_t count = index->count;
    if (at.pos == at.unit_pos && size <= unit_bytes_max) {
        const uint64_t units = bare_records(record, size, word, left);
        count += (uint32_t)units;
        record += units * size;
        left -= units;
        at.pos += units * size;
        at.unit_pos = at.pos;
        at.unit_count = count;
    }
    for (; left > 0; left--) {
        const uint64_t seen = qwp_load_u64(record); /* once: it may change under us */
        const uint64_t nulls = qwp_load_u64(record + QWP_RECORD_HEADER_BYTES);
        if ((((seen ^ word) & ~more) | nulls) != 0 ||
            at.pos + size - at.unit_pos > unit_bytes_max) {
            break;
        }
        count++;
        record += size;
        at.pos += size;
        if ((seen & more) == 0) {
            at.unit_pos = at.pos;
            at.unit_count = count;
        }
    }
    /* Told apart where whole units end, as there they may be cut off. */
    const bool some_whole = at.unit_count > index->count;
    const uint32_t whole = some_whole ? at.unit_count : index->count;
    alike_note(index, source, like, reach->pos, index->count, whole);
    alike_note(index, source, like, some_whole ? at.unit_pos : reach->pos, whole, count);
    const bool some = count > index->count;
    index->count = count;
    *reach = at;
    return some;
}

/* Adds the next row, whatever it is; false: not one that is added here. */
static bool like_row_add(struct qwp_row_index *index, struct qwp_source *source,
                         const struct likeness *like, struct reach *reach,
                         const unsigned char *record, bool more)
{
    const uint64_t next = reach->pos + like->size_bytes;
    if (like->known == NULL || next > source->rx.tail_seen_pos ||
        next - reach->unit_pos > source->rx.unit_bytes_max) {
        return false;
    }
    struct qwp_row *row = &index->rows[index->count++];
    row_fill(row, record, like->size_bytes, like->known, source);
    if ((!like->may_be_bare || qwp_load_u64(record + QWP_RECORD_HEADER_BYTES) != 0) &&
        row_steer(index, row, like->size_bytes, NULL) != QWP_OK) {
        return false;
    }
    reach->pos = next;
    if (!more) {
        reach->unit_pos = next;
        reach->unit_count = index->count;
    }
    return true;
}

/* Most rows are like the one before. */
void qwp_row_index_more(struct qwp_row_index *index, struct qwp_source *source, uint64_t *end,
                        uint32_t count_max)
{
    const struct qwp_ring_rx *rx = &source->rx;
    if (source->symbols.unset > 0 || count_max <= index->count ||
        !rows_reserve(index, count_max - index->count)) {
        return;
    }
    struct reach reach = {.pos = *end, .unit_pos = *end, .unit_count = index->count};
    struct likeness like = {0};
    while (index->count < count_max && rx->tail_seen_pos - reach.pos >= QWP_RECORD_HEADER_BYTES) {
        const unsigned char *record = rx->data + (reach.pos & rx->data_mask);
        const uint64_t seen = qwp_load_u64(record); /* once: it may change under us */
        const uint64_t word = seen & ~more_mask();
        if (word != like.word) {
            like = likeness_of(source, word);
        } else if (like.may_be_bare) {
            const uint64_t whole = (rx->tail_seen_pos - reach.pos) / like.size_bytes;
            const uint64_t room = count_max - index->count;
            if (bare_rows_add(index, source, &like, &reach, whole < room ? whole : room)) {
                continue;
            }
        }
        if (!like_row_add(index, source, &like, &reach, record, seen != word)) {
            break;
        }
    }
    index->count = reach.unit_count;
    *end = reach.unit_pos;
}

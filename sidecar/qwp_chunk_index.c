#include "sidecar/qwp_chunk_index.h"

#include <assert.h>
#include <string.h>

#include "core/qwp_bytes.h"

static_assert(sizeof(struct qwp_staged_chunk) +
                      (QWP_COLUMNS_MAX + 2) * sizeof(struct qwp_chunk_part) <=
                  QWP_ARENA_CHUNK_BYTES,
              "a chunk is staged in one piece");

/* What chunk_fail() needs to say whose column it is. */
struct place {
    const struct qwp_shape *shape;
    uint32_t column; /* column_count: the designated timestamp */
    struct qwp_error *err;
};

static enum qwp_result chunk_fail(const struct place *place, const char *what)
{
    const struct qwp_shape *shape = place->shape;
    const struct qwp_name column = place->column == shape->column_count
                                       ? (struct qwp_name){"designated timestamp", 20}
                                       : shape->columns[place->column].name;
    return qwp_fail(place->err, QWP_CORRUPT, 0, "table '%.*s', column '%.*s' of a chunk: %s",
                    (int)shape->table.len, shape->table.text, (int)column.len, column.text, what);
}

static uint32_t entry_count(const struct qwp_shape *shape)
{
    return shape->column_count + (shape->designated_type != QWP_TYPE_NONE ? 1u : 0u);
}

static uint32_t head_bytes(const struct qwp_shape *shape)
{
    return QWP_CHUNK_HEADER_BYTES + entry_count(shape) * (uint32_t)sizeof(struct qwp_chunk_entry);
}

static bool lies_within(uint32_t off, uint64_t bytes, uint32_t begin, uint32_t end)
{
    return off % QWP_RECORD_ALIGN == 0 && off >= begin && off <= end && bytes <= end - off;
}

/* Gives the symbols of a column of texts their codes. */
static enum qwp_result texts_intern(struct qwp_row_index *index, struct qwp_source *source,
                                    struct qwp_chunk_part *part, const struct place *place)
{
    const size_t count = part->value_count;
    /* The offsets as they are now; each makes room for a code when its text is known. */
    uint32_t *offsets = qwp_arena_take(&index->steering, (count + 1) * sizeof *offsets);
    if (offsets == NULL) {
        return qwp_fail(place->err, QWP_NOMEM, 0, "no memory for the row index");
    }
    memcpy(offsets, part->values, (count + 1) * sizeof *offsets);
    const unsigned char *texts = part->values + (count + 1) * sizeof *offsets;
    const uint32_t len = part->values_bytes - (uint32_t)((count + 1) * sizeof *offsets);
    for (size_t i = 0; i < count; i++) {
        const uint32_t begin = offsets[i];
        if (offsets[i + 1] < begin || offsets[i + 1] > len) {
            return chunk_fail(place, "text offsets that fall or pass the text's end");
        }
        const enum qwp_result result = qwp_row_index_intern(
            index, source, texts + begin, offsets[i + 1] - begin, &offsets[i], place->err);
        if (result != QWP_OK) {
            return result;
        }
    }
    part->codes = offsets;
    return QWP_OK;
}

/* The symbols of a column of indexes, some of that ring not being in the dictionary yet. */
static enum qwp_result symbols_need(struct qwp_row_index *index, struct qwp_source *source,
                                    const struct qwp_chunk_part *part, const struct place *place)
{
    enum qwp_result result = QWP_OK;
    for (uint32_t i = 0; i < part->value_count && result == QWP_OK; i++) {
        const uint32_t field = qwp_load_u32(part->values + (size_t)i * sizeof field);
        result = qwp_row_index_symbol(index, source, field, place->err);
    }
    return result;
}

static enum qwp_result entry_index(struct qwp_row_index *index, const struct qwp_row *row,
                                   uint32_t size_bytes, uint8_t type, struct qwp_chunk_part *part,
                                   const struct place *place)
{
    const uint32_t rows = row->chunk->chunk.row_count;
    const uint32_t begin = head_bytes(place->shape);
    struct qwp_chunk_entry entry;
    const unsigned char *at =
        row->record + QWP_CHUNK_HEADER_BYTES + place->column * sizeof(struct qwp_chunk_entry);
    /* One load of each word: the producer may change the record under us. */
    const uint64_t nulls = qwp_load_u64(at);
    const uint64_t values = qwp_load_u64(at + 8);
    memcpy(&entry, &nulls, sizeof nulls);
    memcpy((unsigned char *)&entry + 8, &values, sizeof values);

    const bool is_designated = place->column == place->shape->column_count;
    const bool is_text = type == QWP_TYPE_SYMBOL && (entry.values_bytes & QWP_SYMBOL_TEXT) != 0;
    const uint32_t values_bytes = entry.values_bytes & ~(is_text ? QWP_SYMBOL_TEXT : 0);
    if (entry.null_count > rows || (entry.null_count > 0 && is_designated)) {
        return chunk_fail(place, "more nulls than it may have");
    }
    if (entry.null_count > 0 &&
        !lies_within(entry.bitmap_off, (rows + 7u) / 8, begin, size_bytes)) {
        return chunk_fail(place, "a bitmap outside of the record");
    }
    if (!lies_within(entry.values_off, values_bytes, begin, size_bytes)) {
        return chunk_fail(place, "values outside of the record");
    }
    *part = (struct qwp_chunk_part){
        .bitmap = entry.null_count > 0 ? row->record + entry.bitmap_off : NULL,
        .values = row->record + entry.values_off,
        .values_bytes = values_bytes,
        .value_count = rows - entry.null_count,
    };
    if (values_bytes < qwp_chunk_values_bytes(type, is_text, part->value_count)) {
        return chunk_fail(place, "fewer values than rows without null");
    }
    if (is_text) {
        return texts_intern(index, row->source, part, place);
    }
    return type == QWP_TYPE_SYMBOL && row->source->symbols.unset > 0
               ? symbols_need(index, row->source, part, place)
               : QWP_OK;
}

enum qwp_result qwp_chunk_index(struct qwp_row_index *index, struct qwp_row *row,
                                uint32_t size_bytes, struct qwp_error *err)
{
    const struct qwp_known_shape *known = row->known;
    const struct qwp_shape *shape = known->shape;
    struct place place = {.shape = shape, .err = err};
    const uint32_t entries = entry_count(shape);
    if (size_bytes < head_bytes(shape)) {
        return chunk_fail(&place, "the record is shorter than its head");
    }
    const uint32_t rows = qwp_load_u32(row->record + QWP_CHUNK_ROWS_OFF);
    if (rows == 0 || rows > QWP_CHUNK_ROWS_MAX) {
        return chunk_fail(&place, "no rows, or too many of them");
    }
    struct qwp_staged_chunk *staged =
        qwp_arena_take(&index->steering, sizeof *staged + (entries + 1) * sizeof staged->parts[0]);
    if (staged == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the row index");
    }
    staged->chunk = (struct qwp_chunk){
        .table = known->table->name,
        .columns = known->block_columns,
        .column_count = shape->column_count,
        .designated_type = shape->designated_type,
        .row_count = rows,
        .parts = staged->parts,
        .symbol_codes = row->source->symbols.codes,
        .symbol_count = row->source->symbols.count,
    };
    row->chunk = staged;
    for (uint32_t c = 0; c < entries; c++) {
        place.column = c;
        const uint8_t type =
            c < shape->column_count ? shape->columns[c].type : shape->designated_type;
        const enum qwp_result result =
            entry_index(index, row, size_bytes, type, &staged->parts[c], &place);
        if (result != QWP_OK) {
            return result;
        }
    }
    staged->bound = qwp_chunk_bound(&staged->chunk, known->header_bound);
    return QWP_OK;
}

/* One column of a chunk: from Arrow's layout, with gaps where rows are null, to the record's,
 * without them. */
#include "clients/c/qwp_chunk.h"
#include "core/qwp_bits.h"
#include "core/qwp_copy.h"
#include "core/wire/qwp_encode.h"
#include "core/wire/qwp_names.h"

/* A column's rows and, once known, which of them are null. */
struct source {
    struct qwp_chunk_piece *piece;
    const struct qwp_shape_column *def;
    const struct qwp_chunk_column *column;
    const unsigned char *nulls; /* in the record; NULL: none */
    uint32_t value_count;
};

static enum qwp_result column_fail(const struct source *source, enum qwp_result result,
                                   const char *what)
{
    const struct qwp_name table = source->piece->layout->shape->table;
    return qwp_fail(source->piece->err, result, 0, "table '%.*s', column '%.*s': %s",
                    (int)table.len, table.text, (int)source->def->name.len, source->def->name.text,
                    what);
}

/* ---- bits ---- */

/* A bit for each of up to 64 rows of the piece from `row` (a multiple of 64) on that has a value.
 */
static uint64_t values_mask(const struct source *source, uint32_t row, uint32_t count)
{
    const uint64_t nulls = source->nulls == NULL ? 0 : qwp_bits_at(source->nulls, row, count);
    return ~nulls & qwp_bits_low(count);
}

/* Writes the bitmap of nulls, and drops it again if there are none. */
static void put_nulls(struct source *source, struct qwp_chunk_entry *entry)
{
    struct qwp_chunk_piece *piece = source->piece;
    const struct qwp_chunk_column *column = source->column;
    source->value_count = piece->rows;
    if (column->values != NULL && column->validity == NULL) {
        return;
    }
    unsigned char *bitmap = qwp_chunk_part(piece, &entry->bitmap_off);
    uint32_t nulls = 0;
    for (uint32_t row = 0; row < piece->rows; row += 64) {
        const uint32_t count = qwp_bits_step(piece->rows, row);
        uint64_t word = qwp_bits_low(count);
        if (column->values != NULL) {
            word &= ~qwp_bits_at(column->validity, piece->first_row + row, count);
        }
        nulls += (uint32_t)__builtin_popcountll(word);
        memcpy(bitmap + row / 8, &word, (count + 7) / 8);
    }
    if (nulls == 0) {
        entry->bitmap_off = 0;
        return;
    }
    entry->null_count = nulls;
    source->nulls = bitmap;
    source->value_count -= nulls;
    qwp_chunk_part_end(piece, (piece->rows + 7) / 8);
}

/* ---- values of one width ---- */

/* `width` is constant wherever this is inlined. */
static inline __attribute__((always_inline)) void copy_dense(const struct source *source,
                                                             const unsigned char *from,
                                                             uint32_t width, unsigned char *to)
{
    for (uint32_t row = 0; row < source->piece->rows; row += 64) {
        uint64_t mask = values_mask(source, row, qwp_bits_step(source->piece->rows, row));
        for (; mask != 0; mask &= mask - 1) {
            memcpy(to, from + (size_t)(row + (uint32_t)__builtin_ctzll(mask)) * width, width);
            to += width;
        }
    }
}

static void copy_fixed(const struct source *source, uint32_t width, unsigned char *to)
{
    const unsigned char *from =
        (const unsigned char *)source->column->values + source->piece->first_row * width;
    if (source->nulls == NULL) {
        qwp_copy(to, from, (size_t)source->piece->rows * width);
        return;
    }
    switch (width) {
    case 1:
        copy_dense(source, from, 1, to);
        break;
    case 2:
        copy_dense(source, from, 2, to);
        break;
    case 4:
        copy_dense(source, from, 4, to);
        break;
    case 8:
        copy_dense(source, from, 8, to);
        break;
    case 16:
        copy_dense(source, from, 16, to);
        break;
    default:
        copy_dense(source, from, 32, to);
        break;
    }
}

static enum qwp_result check_fixed(const struct source *source, const unsigned char *values)
{
    const uint8_t type = source->def->type;
    if (type == QWP_TYPE_GEOHASH) {
        uint64_t all = 0;
        for (uint32_t i = 0; i < source->value_count; i++) {
            all |= qwp_load_u64(values + 8 * (size_t)i);
        }
        return all >> source->def->parameter == 0
                   ? QWP_OK
                   : column_fail(source, QWP_INVALID,
                                 "a geohash has bits beyond its precision; shift it right to the "
                                 "precision, or define the column with more bits");
    }
    const uint32_t words = type == QWP_TYPE_DECIMAL64    ? 1
                           : type == QWP_TYPE_DECIMAL128 ? 2
                           : type == QWP_TYPE_DECIMAL256 ? 4
                                                         : 0;
    for (uint32_t i = 0; words != 0 && i < source->value_count; i++) {
        uint64_t decimal[4];
        memcpy(decimal, values + 8 * (size_t)words * i, 8 * (size_t)words);
        if (!qwp_decimal_fits(decimal, words)) {
            return column_fail(source, QWP_INVALID,
                               "a decimal has more digits than its type holds (18, 38 or 76)");
        }
    }
    return QWP_OK;
}

static enum qwp_result put_fixed(struct source *source, struct qwp_chunk_entry *entry)
{
    const uint32_t width = qwp_type_field_bytes(source->def->type);
    unsigned char *values = qwp_chunk_part(source->piece, &entry->values_off);
    copy_fixed(source, width, values);
    entry->values_bytes = source->value_count * width;
    qwp_chunk_part_end(source->piece, entry->values_bytes);
    return check_fixed(source, values);
}

static void put_booleans(struct source *source, struct qwp_chunk_entry *entry)
{
    const struct qwp_chunk_piece *piece = source->piece;
    unsigned char *values = qwp_chunk_part(source->piece, &entry->values_off);
    entry->values_bytes = (source->value_count + 7) / 8;
    qwp_chunk_part_end(source->piece, entry->values_bytes);
    if (source->nulls == NULL) {
        qwp_bits_copy(values, source->column->values, piece->first_row, piece->rows);
        return;
    }
    memset(values, 0, entry->values_bytes);
    uint32_t done = 0;
    for (uint32_t row = 0; row < piece->rows; row += 64) {
        const uint32_t count = qwp_bits_step(piece->rows, row);
        const uint64_t bits = qwp_bits_at(source->column->values, piece->first_row + row, count);
        uint64_t mask = values_mask(source, row, count);
        for (; mask != 0; mask &= mask - 1, done++) {
            const uint64_t bit = bits >> __builtin_ctzll(mask) & 1;
            values[done / 8] |= (unsigned char)(bit << done % 8);
        }
    }
}

/* ---- texts, binaries, arrays ---- */

/* Appends the bytes of each value to `to`, and where each ends to `ends` (unless NULL). */
static uint32_t copy_parts(const struct source *source, uint32_t *ends, unsigned char *to)
{
    const struct qwp_chunk_piece *piece = source->piece;
    const int32_t *offsets = source->column->offsets + piece->first_row;
    const unsigned char *bytes = source->column->values;
    if (source->nulls == NULL) {
        const int32_t first = offsets[0];
        const uint32_t len = (uint32_t)(offsets[piece->rows] - first);
        for (uint32_t row = 0; ends != NULL && row < piece->rows; row++) {
            ends[row] = (uint32_t)(offsets[row + 1] - first);
        }
        qwp_copy(to, bytes + first, len);
        return len;
    }
    uint32_t len = 0;
    for (uint32_t row = 0; row < piece->rows; row += 64) {
        uint64_t mask = values_mask(source, row, qwp_bits_step(piece->rows, row));
        for (; mask != 0; mask &= mask - 1) {
            const uint32_t r = row + (uint32_t)__builtin_ctzll(mask);
            const uint32_t part = (uint32_t)(offsets[r + 1] - offsets[r]);
            memcpy(to + len, bytes + offsets[r], part);
            len += part;
            if (ends != NULL) {
                *ends++ = len;
            }
        }
    }
    return len;
}

/* Whole texts only, and together valid: then no text begins within a character. */
static bool texts_valid(const unsigned char *texts, uint32_t len, const uint32_t *ends,
                        uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (ends[i] < len && (texts[ends[i]] & 0xc0) == 0x80) {
            return false;
        }
    }
    return qwp_utf8_valid(texts, len);
}

static enum qwp_result put_texts(struct source *source, struct qwp_chunk_entry *entry)
{
    unsigned char *at = qwp_chunk_part(source->piece, &entry->values_off);
    uint32_t *offsets = (uint32_t *)(void *)at; /* parts are aligned */
    unsigned char *texts = at + 4 * ((size_t)source->value_count + 1);
    offsets[0] = 0;
    const uint32_t len = copy_parts(source, offsets + 1, texts);
    entry->values_bytes = 4 * (source->value_count + 1) + len;
    qwp_chunk_part_end(source->piece, entry->values_bytes);
    if (source->def->type != QWP_TYPE_BINARY &&
        !texts_valid(texts, len, offsets + 1, source->value_count)) {
        return column_fail(source, QWP_INVALID,
                           "a text is not valid UTF-8; convert it, or use a binary column");
    }
    return QWP_OK;
}

static enum qwp_result put_arrays(struct source *source, struct qwp_chunk_entry *entry)
{
    unsigned char *at = qwp_chunk_part(source->piece, &entry->values_off);
    const uint32_t len = copy_parts(source, NULL, at);
    entry->values_bytes = len;
    qwp_chunk_part_end(source->piece, len);
    uint32_t done = 0;
    for (uint32_t i = 0; i < source->value_count; i++) {
        const size_t bytes = qwp_array_bytes(at + done, len - done);
        if (bytes == 0) {
            return column_fail(source, QWP_INVALID,
                               "an array's lengths do not fit its bytes: dimensions u8, a length "
                               "i32 each, the elements");
        }
        done += (uint32_t)bytes;
    }
    return done == len ? QWP_OK
                       : column_fail(source, QWP_INVALID, "bytes are left behind its arrays");
}

/* ---- symbols ---- */

static enum qwp_result check_handle(const struct source *source, uint32_t handle)
{
    return handle < source->piece->producer->ring.symbol_count
               ? QWP_OK
               : column_fail(source, QWP_INVALID,
                             "a symbol handle that this producer did not hand out; take it from "
                             "qwp_symbol_intern() of the same producer");
}

/* Handles of n indexes, which may be in the same place; false: one is beyond the dictionary. */
static bool map_handles(const struct qwp_chunk_column *column, const unsigned char *indexes,
                        uint32_t n, uint32_t *to)
{
    const uint32_t *handles = column->handles;
    const size_t count = column->handle_count;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = qwp_load_u32(indexes + 4 * (size_t)i);
        if (index >= count) {
            return false;
        }
        to[i] = handles[index];
    }
    return true;
}

static uint32_t highest_of(const uint32_t *values, uint32_t n)
{
    uint32_t highest = 0;
    for (uint32_t i = 0; i < n; i++) {
        highest = values[i] > highest ? values[i] : highest;
    }
    return highest;
}

/* Handles of the values, through the dictionary when there is one. */
static enum qwp_result put_handles(struct source *source, struct qwp_chunk_entry *entry)
{
    const struct qwp_chunk_column *column = source->column;
    const uint32_t count = source->value_count;
    unsigned char *at = qwp_chunk_part(source->piece, &entry->values_off);
    uint32_t *values = (uint32_t *)(void *)at;
    const unsigned char *from =
        (const unsigned char *)column->values + 4 * source->piece->first_row;
    if (column->handles == NULL || source->nulls != NULL) {
        copy_fixed(source, 4, at);
        from = at;
    }
    if (column->handles != NULL && !map_handles(column, from, count, values)) {
        return column_fail(source, QWP_INVALID, "an index beyond its dictionary");
    }
    entry->values_bytes = 4 * count;
    qwp_chunk_part_end(source->piece, entry->values_bytes);
    return count == 0 ? QWP_OK : check_handle(source, highest_of(values, count));
}

/* QWP_LIMIT: a text could not be interned. */
static enum qwp_result intern_texts(const struct source *source, uint32_t *handles)
{
    struct qwp_producer *p = source->piece->producer;
    const int32_t *offsets = source->column->offsets + source->piece->first_row;
    const char *texts = source->column->values;
    for (uint32_t row = 0; row < source->piece->rows; row += 64) {
        uint64_t mask = values_mask(source, row, qwp_bits_step(source->piece->rows, row));
        for (; mask != 0; mask &= mask - 1) {
            const uint32_t r = row + (uint32_t)__builtin_ctzll(mask);
            const char *text = texts + offsets[r];
            const size_t len = (size_t)(offsets[r + 1] - offsets[r]);
            *handles = qwp_symbols_find(&p->symbols, text, len);
            if (*handles == QWP_SYMBOL_EMPTY) {
                const enum qwp_result result = qwp_symbol_define(p, text, len, handles, NULL);
                if (result != QWP_OK) {
                    return result == QWP_INVALID ? QWP_INVALID : QWP_LIMIT;
                }
            }
            handles++;
        }
    }
    return QWP_OK;
}

static enum qwp_result put_symbol_texts(struct source *source, struct qwp_chunk_entry *entry)
{
    unsigned char *at = qwp_chunk_part(source->piece, &entry->values_off);
    const enum qwp_result result = intern_texts(source, (uint32_t *)(void *)at);
    if (result == QWP_OK) {
        entry->values_bytes = 4 * source->value_count;
        qwp_chunk_part_end(source->piece, entry->values_bytes);
        return QWP_OK;
    }
    if (result == QWP_INVALID) {
        return column_fail(source, QWP_INVALID,
                           "a symbol is not valid UTF-8, or longer than 256 KiB; convert it, or "
                           "use a VARCHAR");
    }
    const enum qwp_result texts = put_texts(source, entry);
    entry->values_bytes |= QWP_SYMBOL_TEXT;
    return texts;
}

/* ---- a column ---- */

static bool has_parts(const struct qwp_shape_column *def, const struct qwp_chunk_column *column)
{
    return qwp_type_is_variable(def->type) &&
           (def->type != QWP_TYPE_SYMBOL || column->offsets != NULL);
}

uint64_t qwp_chunk_column_bound(const struct qwp_chunk_piece *piece, uint32_t index)
{
    const struct qwp_shape_column *def = &piece->layout->shape->columns[index];
    const struct qwp_chunk_column *column = &piece->columns[index];
    const uint64_t rows = piece->rows;
    const uint64_t bits = qwp_round_up((rows + 7) / 8, QWP_RECORD_ALIGN);
    uint64_t bytes = column->values == NULL || column->validity != NULL ? bits : 0;
    if (column->values == NULL) {
        return bytes + QWP_RECORD_ALIGN; /* a text's first offset */
    }
    if (def->type == QWP_TYPE_BOOLEAN) {
        return bytes + bits;
    }
    if (!has_parts(def, column)) {
        return bytes + qwp_round_up(qwp_type_field_bytes(def->type) * rows, QWP_RECORD_ALIGN);
    }
    if (column->offsets == NULL) {
        return bytes;
    }
    const int32_t *offsets = column->offsets + piece->first_row;
    bool falls = offsets[0] < 0;
    for (uint64_t row = 0; row < rows; row++) {
        falls |= offsets[row + 1] < offsets[row];
    }
    const uint64_t parts = (uint64_t)((int64_t)offsets[rows] - offsets[0]);
    return falls ? UINT64_MAX : bytes + qwp_round_up(4 * (rows + 1) + parts, QWP_RECORD_ALIGN);
}

static void put_nothing(struct source *source, struct qwp_chunk_entry *entry)
{
    unsigned char *at = qwp_chunk_part(source->piece, &entry->values_off);
    if (source->def->type == QWP_TYPE_VARCHAR || source->def->type == QWP_TYPE_BINARY) {
        qwp_store_u32(at, 0); /* the first offset */
        entry->values_bytes = 4;
        qwp_chunk_part_end(source->piece, entry->values_bytes);
    }
}

enum qwp_result qwp_chunk_put_column(struct qwp_chunk_piece *piece, uint32_t index,
                                     struct qwp_chunk_entry *entry)
{
    struct source source = {
        .piece = piece,
        .def = &piece->layout->shape->columns[index],
        .column = &piece->columns[index],
    };
    *entry = (struct qwp_chunk_entry){0};
    put_nulls(&source, entry);
    if (source.value_count == 0) {
        put_nothing(&source, entry);
        return QWP_OK;
    }
    if (has_parts(source.def, source.column) && source.column->offsets == NULL) {
        return column_fail(&source, QWP_INVALID, "its values need offsets");
    }
    switch (source.def->type) {
    case QWP_TYPE_BOOLEAN:
        put_booleans(&source, entry);
        return QWP_OK;
    case QWP_TYPE_SYMBOL:
        return source.column->offsets != NULL ? put_symbol_texts(&source, entry)
                                              : put_handles(&source, entry);
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        return put_texts(&source, entry);
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        return put_arrays(&source, entry);
    default:
        return put_fixed(&source, entry);
    }
}

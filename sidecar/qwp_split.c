#include "sidecar/qwp_split.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

/* Header and empty delta of a part. */
enum { PART_HEAD_BYTES = QWP_HEADER_BYTES + 2 };

void qwp_split_init(struct qwp_split *split)
{
    *split = (struct qwp_split){0};
    qwp_decoder_init(&split->decoder, NULL);
}

static void forget(struct qwp_split *split)
{
    free(split->tables);
    free(split->next_block);
    free(split->slots);
    split->tables = NULL;
    split->next_block = NULL;
    split->slots = NULL;
    split->table_count = 0;
}

void qwp_split_fini(struct qwp_split *split)
{
    forget(split);
    qwp_decoder_fini(&split->decoder);
}

/* ---- by table ---- */

static struct qwp_split_table *table_of(struct qwp_split *split, struct qwp_name name)
{
    const uint64_t hash = qwp_name_hash(name.text, name.len);
    uint32_t slot = (uint32_t)hash & split->slot_mask;
    for (; split->slots[slot] != 0; slot = (slot + 1) & split->slot_mask) {
        struct qwp_split_table *table = &split->tables[split->slots[slot] - 1];
        if (table->hash == hash &&
            qwp_name_equal(table->name.text, table->name.len, name.text, name.len)) {
            return table;
        }
    }
    struct qwp_split_table *table = &split->tables[split->table_count++];
    split->slots[slot] = split->table_count;
    *table = (struct qwp_split_table){.name = name,
                                      .hash = hash,
                                      .first_block = QWP_SPLIT_NO_BLOCK,
                                      .last_block = QWP_SPLIT_NO_BLOCK};
    return table;
}

static const struct qwp_block_head *head_of(const struct qwp_split *split, uint32_t block)
{
    return qwp_block_head(&split->decoder, &split->message, block);
}

static size_t block_bytes(const struct qwp_split *split, uint32_t block)
{
    const size_t end = block + 1 == split->message.block_count
                           ? split->message.len
                           : head_of(split, block + 1)->start_off;
    return end - head_of(split, block)->start_off;
}

static enum qwp_result sort(struct qwp_split *split, struct qwp_error *err)
{
    const uint32_t count = split->message.block_count;
    uint32_t slots = 16;
    while (slots < 2 * count) {
        slots *= 2;
    }
    split->tables = calloc(count + 1, sizeof *split->tables);
    split->next_block = calloc(count + 1, sizeof *split->next_block);
    split->slots = calloc(slots, sizeof *split->slots);
    split->slot_mask = slots - 1;
    if (split->tables == NULL || split->next_block == NULL || split->slots == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to take a frame of %u blocks apart", count);
    }
    for (uint32_t i = 0; i < count; i++) {
        const struct qwp_block_head *head = head_of(split, i);
        struct qwp_split_table *table = table_of(split, head->table);
        if (table->first_block == QWP_SPLIT_NO_BLOCK) {
            table->first_block = i;
        } else {
            split->next_block[table->last_block] = i;
        }
        split->next_block[i] = QWP_SPLIT_NO_BLOCK;
        table->last_block = i;
        table->block_count++;
        table->row_count += head->row_count;
        table->block_bytes += block_bytes(split, i);
    }
    return QWP_OK;
}

static enum qwp_result decode(struct qwp_split *split, const unsigned char *frame, size_t len,
                              enum qwp_decode_depth depth, struct qwp_error *err)
{
    forget(split);
    split->decoder.options.depth = depth;
    const enum qwp_result result =
        qwp_decode_message(&split->decoder, frame, len, &split->message, err);
    return result == QWP_OK ? sort(split, err) : result;
}

enum qwp_result qwp_split_open(struct qwp_split *split, const unsigned char *frame, size_t len,
                               qwp_symbol_text_fn symbol_text, const void *symbols,
                               uint32_t symbol_count, struct qwp_error *err)
{
    split->decoder.options.symbol_text = symbol_text;
    split->decoder.options.symbols = symbols;
    split->decoder.options.symbol_count = symbol_count;
    return decode(split, frame, len, QWP_DECODE_FULL, err);
}

enum qwp_result qwp_split_glance(struct qwp_split *split, const unsigned char *frame, size_t len,
                                 qwp_symbol_text_fn symbol_text, const void *symbols,
                                 uint32_t symbol_count)
{
    split->decoder.options.symbol_text = symbol_text;
    split->decoder.options.symbols = symbols;
    split->decoder.options.symbol_count = symbol_count;
    return decode(split, frame, len, QWP_DECODE_COUNT, NULL);
}

/* ---- messages ---- */

void qwp_split_begin(const struct qwp_split *split, uint8_t without, struct qwp_bytes *out)
{
    unsigned char *at = qwp_bytes_grow(out, PART_HEAD_BYTES);
    if (at != NULL) {
        at = qwp_message_begin(at,
                               (uint8_t)((split->message.flags & ~without) | QWP_FLAG_DELTA_DICT));
        at[0] = at[1] = 0; /* from id 0 on, no symbols */
    }
}

void qwp_split_finish(struct qwp_bytes *out, uint32_t block_count)
{
    if (!out->failed) {
        qwp_message_finish(out->at, (uint16_t)block_count, out->len);
    }
}

void qwp_split_put_table(const struct qwp_split *split, const struct qwp_split_table *table,
                         struct qwp_bytes *out)
{
    for (uint32_t i = table->first_block; i != QWP_SPLIT_NO_BLOCK; i = split->next_block[i]) {
        qwp_bytes_put(out, split->message.bytes + head_of(split, i)->start_off,
                      block_bytes(split, i));
    }
}

/* ---- some rows ---- */

/* Order among types that stand for one another; 0: for none. */
static uint32_t width_rank(uint8_t type)
{
    switch (type) {
    case QWP_TYPE_BYTE:
        return 1;
    case QWP_TYPE_SHORT:
        return 2;
    case QWP_TYPE_INT:
        return 3;
    case QWP_TYPE_LONG:
        return 4;
    case QWP_TYPE_FLOAT:
        return 5;
    case QWP_TYPE_DOUBLE:
        return 6;
    default:
        return 0;
    }
}

static bool stands_for(uint8_t narrow, uint8_t wide)
{
    const uint32_t a = width_rank(narrow);
    const uint32_t b = width_rank(wide);
    return a != 0 && a < b && (a <= 4) == (b <= 4);
}

/* The widest type in which the table's blocks of this frame have the columns of `block`, which is
 * open again afterwards. False: none is wider (or there is no memory to find out). */
static bool full_width(struct qwp_split *split, const struct qwp_split_table *table, uint32_t block,
                       struct qwp_table_block *open, uint8_t *types)
{
    struct qwp_name *names = malloc((open->column_count + 1) * sizeof *names);
    if (names == NULL) {
        return false;
    }
    for (uint32_t c = 0; c < open->column_count; c++) {
        names[c] = open->columns[c].name;
        types[c] = open->columns[c].type;
    }
    const uint32_t count = open->column_count;
    bool wider = false;
    for (uint32_t i = table->first_block; i != block; i = split->next_block[i]) {
        qwp_block_open(&split->decoder, &split->message, i, open);
        for (uint32_t c = 0, k = 0; c < count && open->column_count > 0; c++) {
            /* Mostly the same columns in the same order: look where the last one was found. */
            for (uint32_t n = 0; n < open->column_count; n++, k = (k + 1) % open->column_count) {
                const struct qwp_column *other = &open->columns[k];
                if (names[c].len == other->name.len &&
                    memcmp(names[c].text, other->name.text, names[c].len) == 0) {
                    wider |= stands_for(types[c], other->type);
                    types[c] = stands_for(types[c], other->type) ? other->type : types[c];
                    break;
                }
            }
        }
    }
    free(names);
    qwp_block_open(&split->decoder, &split->message, block, open);
    return wider;
}

uint32_t qwp_split_put_rows(struct qwp_split *split, const struct qwp_split_table *table,
                            uint64_t first_row, uint64_t row_count, qwp_recode_symbol_fn symbol_id,
                            void *owner, struct qwp_bytes *out)
{
    uint8_t types[QWP_DECODE_COLUMNS_MAX];
    uint32_t blocks = 0;
    uint64_t row = 0; /* of the table, at the beginning of block i */
    for (uint32_t i = table->first_block; i != QWP_SPLIT_NO_BLOCK && row_count > 0;
         i = split->next_block[i]) {
        const uint32_t rows = head_of(split, i)->row_count;
        uint64_t skip = first_row > row ? first_row - row : 0;
        row += rows;
        if (skip >= rows) {
            continue;
        }
        uint64_t take = rows - skip < row_count ? rows - skip : row_count;
        row_count -= take;
        struct qwp_table_block open;
        qwp_block_open(&split->decoder, &split->message, i, &open);
        struct qwp_recode recode = {.decoder = &split->decoder,
                                    .block = &open,
                                    .flags = split->message.flags,
                                    .symbol_id = symbol_id,
                                    .owner = owner};
        if (blocks == 0 && i != table->first_block && full_width(split, table, i, &open, types)) {
            recode.types = types;
            qwp_recode_rows(&recode, (uint32_t)skip, 1, out);
            recode.types = NULL;
            blocks++;
            skip++;
            take--;
        }
        if (take > 0) {
            qwp_recode_rows(&recode, (uint32_t)skip, (uint32_t)take, out);
            blocks++;
        }
    }
    QWP_ASSERT(row_count == 0);
    return blocks;
}

enum qwp_result qwp_split_chunk(struct qwp_split *split, const struct qwp_split_table *table,
                                uint64_t first_row, size_t bytes_max, uint8_t without,
                                struct qwp_bytes *out, uint64_t *row_count)
{
    const uint64_t left = table->row_count - first_row;
    uint64_t rows = left;
    if (table->block_bytes > bytes_max / 4 * 3) {
        rows = bytes_max / 4 * 3 * table->row_count / table->block_bytes;
        rows = rows == 0 ? 1 : rows > left ? left : rows;
    }
    for (;; rows /= 2) {
        out->len = 0;
        qwp_split_begin(split, without, out);
        qwp_split_finish(out, qwp_split_put_rows(split, table, first_row, rows, NULL, NULL, out));
        if (out->failed) {
            return QWP_NOMEM;
        }
        if (out->len <= bytes_max) {
            *row_count = rows;
            return QWP_OK;
        }
        if (rows == 1) {
            return QWP_LIMIT;
        }
    }
}

/* qwp_split: a frame taken apart by table, and by rows where a table's part is still too large.
 *
 * A table's part is a message of its own: all blocks of that table in their order, under the same
 * symbol ids. Parts carry no dictionary: whoever sends them has registered what the frame uses.
 *
 * Compact columns (narrow integers) are taken by the server as the table's own types only behind a
 * row of full width, which stands in the first block. It stays there as long as all blocks go
 * together; where a part begins later, its first row goes ahead in full width.
 *
 * Threads: its owner's. Trust: frames may be another client's and are decoded with every check. */
#ifndef QWP_SPLIT_H
#define QWP_SPLIT_H

#include "core/wire/qwp_recode.h"

struct qwp_split_table {
    struct qwp_name name; /* in the frame */
    uint64_t hash;
    uint64_t row_count;
    uint32_t first_block; /* indexes of its blocks are linked by qwp_split.next_block */
    uint32_t last_block;
    uint32_t block_count;
    size_t block_bytes; /* of all its blocks */
};

#define QWP_SPLIT_NO_BLOCK UINT32_MAX

struct qwp_split {
    struct qwp_decoder decoder;
    struct qwp_message message;
    struct qwp_split_table *tables; /* in the order of their first blocks */
    uint32_t table_count;
    uint32_t *next_block; /* of the same table */
    uint32_t *slots;      /* hash table: index into tables + 1 */
    uint32_t slot_mask;
};

void qwp_split_init(struct qwp_split *split);
void qwp_split_fini(struct qwp_split *split);

/* Borrows `frame` until the next open. Symbols below symbol_count are known, with their texts.
 * QWP_CORRUPT with the reason: it cannot be taken apart. QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_split_open(struct qwp_split *split, const unsigned char *frame,
                                            size_t len, qwp_symbol_text_fn symbol_text,
                                            const void *symbols, uint32_t symbol_count,
                                            struct qwp_error *err);
/* The same without looking into values: enough to know the tables, and to copy blocks. */
QWP_MUST_USE enum qwp_result qwp_split_glance(struct qwp_split *split, const unsigned char *frame,
                                              size_t len, qwp_symbol_text_fn symbol_text,
                                              const void *symbols, uint32_t symbol_count);

/* Begins a message with an empty delta, with the frame's flags but those in `without`, and ends it.
 */
void qwp_split_begin(const struct qwp_split *split, uint8_t without, struct qwp_bytes *out);
void qwp_split_finish(struct qwp_bytes *out, uint32_t block_count);
/* Appends all blocks of a table as they are. */
void qwp_split_put_table(const struct qwp_split *split, const struct qwp_split_table *table,
                         struct qwp_bytes *out);
/* Appends `row_count` rows of a table from `first_row` on; symbol ids as `symbol_id` says, NULL: as
 * they are. Returns the number of blocks. */
uint32_t qwp_split_put_rows(struct qwp_split *split, const struct qwp_split_table *table,
                            uint64_t first_row, uint64_t row_count, qwp_recode_symbol_fn symbol_id,
                            void *owner, struct qwp_bytes *out);
/* Bytes of a message with all of a table. */
static inline size_t qwp_split_table_bytes(const struct qwp_split_table *table)
{
    return QWP_HEADER_BYTES + 2 + table->block_bytes;
}
/* A whole message of as many rows from `first_row` on as fit `bytes_max`. QWP_LIMIT: not even one
 * does; QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_split_chunk(struct qwp_split *split,
                                             const struct qwp_split_table *table,
                                             uint64_t first_row, size_t bytes_max, uint8_t without,
                                             struct qwp_bytes *out, uint64_t *row_count);

#endif

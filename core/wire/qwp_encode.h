/* qwp_encode: rows gathered from their records straight into a QWP message.
 *
 * The caller (intake) has made one pass over the records and put everything that steers - shape,
 * null words, lengths, resolved symbol texts - into private memory ("steering"). The second pass,
 * here, reads only values from the records, which may lie in memory that another process can still
 * write: each value is loaded once and judged on the copy that leaves.
 *
 * Threads:  none; state is the caller's.
 * Progress: no allocation, no system call; column by column, specialised by width.
 * Trust:    records are untrusted, steering is ours. A value that fails its check gives QWP_CORRUPT
 *           and the row it stands in; what was written to `dst` is then worthless. */
#ifndef QWP_ENCODE_H
#define QWP_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_result.h"
#include "core/qwp_shape.h"

enum { QWP_GATHER_ROWS_MAX = 1024 }; /* rows of a block; keeps records and scratch in the cache */

#define QWP_NO_FIELD UINT16_MAX

struct qwp_block_column {
    struct qwp_name name;
    uint8_t type;
    uint8_t parameter;
};

/* Consecutive rows of one shape and one origin (ring).
 *
 * Steering of a row, 8-byte words:
 *   null words      u64 x shape->null_words: bit c set = column c (of the shape) is null
 *   part ends       u32 x shape->var_count, padded to 8; only when has_parts: end of the variable
 * part with that var_index, from the record's start. Checked: from fixed_bytes on, they never fall
 * and never pass the record's end. A null column's part is empty. symbol ids      u32 x
 * shape->var_count, padded to 8; only when has_symbol_text: the global id of each SYMBOL column by
 * var_index, null ones 0; the records' fields are not read. */
struct qwp_run {
    const struct qwp_shape *shape;
    const uint16_t
        *field_of_column;       /* block column -> shape column, QWP_NO_FIELD: null throughout */
    const uint32_t *symbol_ids; /* the ring's symbol index -> global id */
    uint32_t symbol_count;
    uint32_t row_count;       /* > 0 */
    const uint64_t *null_any; /* OR of the rows' null words, shape->null_words of them */
    bool has_parts;
    bool has_symbol_text;
};

struct qwp_block {
    struct qwp_name table;
    const struct qwp_block_column *columns;
    uint32_t column_count;
    uint8_t designated_type; /* of every run's shape */
    const struct qwp_run *runs;
    uint32_t run_count;
    const unsigned char *const *records; /* row_count of them */
    const uint64_t *const *steering;     /* row_count of them */
    uint32_t row_count;                  /* 1..QWP_GATHER_ROWS_MAX */
};

struct qwp_encode_fault {
    uint32_t row;     /* index into the block */
    uint32_t column;  /* index into the block's columns; column_count: the designated timestamp */
    const char *what; /* static text, e.g. "invalid UTF-8" */
};

/* Scratch memory of the encoder: one per encoding thread, about 64 KiB, no need to initialise. */
struct qwp_encoder {
    int64_t times[QWP_GATHER_ROWS_MAX];
    uint64_t bitmap[QWP_GATHER_ROWS_MAX / 64];
    const unsigned char
        *values[QWP_GATHER_ROWS_MAX]; /* addresses of the non-null values, or as needed */
    uint32_t lens[QWP_GATHER_ROWS_MAX];
};

/* Bytes that a block's header and per-column constants can take (names, counts, flags, precision,
 * scale, encoding byte, first offset); grows only with columns. */
size_t qwp_block_header_bound(struct qwp_name table, const struct qwp_block_column *columns,
                              uint32_t column_count);
/* The same for one more column. */
size_t qwp_block_column_bound(const struct qwp_block_column *column);
/* Most bytes that one value takes without its variable part (designated timestamp: type TIMESTAMP).
 */
size_t qwp_value_bound(uint8_t type, uint8_t parameter);
/* Upper bound of the encoded block, O(1): `value_bytes` is the sum of qwp_value_bound() over the
 * columns and the designated timestamp, `var_bytes` the sum of the variable parts of all rows. */
static inline size_t qwp_block_bound(size_t header_bound, uint32_t column_count, size_t value_bytes,
                                     uint32_t row_count, size_t var_bytes)
{
    return header_bound + (size_t)column_count * ((row_count + 7) / 8) +
           (size_t)row_count * value_bytes + var_bytes;
}

/* Writes one table block to dst, which has room for its bound, and sets *len. Timestamps are
 * Gorilla when `gorilla` (the message then carries QWP_FLAG_GORILLA). QWP_CORRUPT with *fault set
 * when a value fails: symbol index not below symbol_count, text not UTF-8, designated timestamp out
 * of range, a boolean other than 0 or 1, geohash bits beyond its precision, array parts whose
 * dimensions and elements do not add up to the part, ... */
QWP_MUST_USE enum qwp_result qwp_block_encode(struct qwp_encoder *encoder,
                                              const struct qwp_block *block, bool gorilla,
                                              unsigned char *dst, size_t *len,
                                              struct qwp_encode_fault *fault);

/* Message framing. begin() writes the header with counts still 0 and returns the byte after it;
 * finish() patches table count and payload length. */
unsigned char *qwp_message_begin(unsigned char *dst, uint8_t flags);
void qwp_message_finish(unsigned char *message, uint16_t table_count, size_t message_len);

/* Delta symbol dictionary section: start id, count, then the texts through `text_of`. */
typedef struct qwp_name (*qwp_symbol_text_fn)(const void *dict, uint32_t id);
size_t qwp_delta_size(uint32_t start, uint32_t count, qwp_symbol_text_fn text_of, const void *dict);
unsigned char *qwp_delta_put(unsigned char *at, uint32_t start, uint32_t count,
                             qwp_symbol_text_fn text_of, const void *dict);

#endif

/* qwp_encode_chunk: a columnar chunk copied into table blocks of a QWP message.
 *
 * The chunk's columns already lie as the wire has them, so encoding is copying, but for what makes
 * messages small: symbols as varints, timestamps as Gorilla, whole numbers and doubles in narrow
 * types.
 *
 * Threads:  none; state is the caller's.
 * Progress: no allocation, no system call.
 * Trust:    values and bitmaps lie in memory that another process can still write: each is copied
 *           once and judged on the copy. What steers (counts, sizes, places) is the caller's. */
#ifndef QWP_ENCODE_CHUNK_H
#define QWP_ENCODE_CHUNK_H

#include "core/qwp_record_layout.h"
#include "core/wire/qwp_encode.h"

/* A column of the chunk; the caller has checked that all of it lies in the record. */
struct qwp_chunk_part {
    const unsigned char *bitmap; /* NULL if no row is null, and only then */
    const unsigned char *values; /* see qwp_record_layout.h */
    uint32_t values_bytes;       /* what the type and the count of values ask for, or more */
    uint32_t value_count;        /* rows less nulls */
    const uint32_t *codes;       /* SYMBOL texts: qwp_symbol_code() of each value, ours */
};

struct qwp_chunk {
    struct qwp_name table;
    const struct qwp_block_column *columns;
    uint32_t column_count;
    uint8_t designated_type;
    uint32_t row_count;                 /* 1..QWP_CHUNK_ROWS_MAX */
    const struct qwp_chunk_part *parts; /* column_count, then that of the designated timestamp */
    const uint32_t *symbol_codes;       /* the ring's symbol index -> qwp_symbol_code() */
    uint32_t symbol_count;
};

/* Least bytes of a column's values: 0 for arrays, whose parts tell themselves. */
uint64_t qwp_chunk_values_bytes(uint8_t type, bool is_text, uint32_t value_count);

/* Upper bound of the encoded chunk with any flags; `header_bound` is qwp_block_header_bound(). */
size_t qwp_chunk_bound(const struct qwp_chunk *chunk, size_t header_bound);

/* Writes one table block, or two if compact, to dst, which has room for the bound. QWP_CORRUPT with
 * done->fault set, as qwp_block_encode(), or when a bitmap has another number of nulls than the
 * chunk says, or offsets fall or pass their text's end. */
QWP_MUST_USE enum qwp_result qwp_chunk_encode(struct qwp_encoder *encoder,
                                              const struct qwp_chunk *chunk, unsigned flags,
                                              unsigned char *dst, struct qwp_encoded *done);

#endif

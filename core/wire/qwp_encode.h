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
 *           and the row it stands in; what was written to `dst` is then worthless. The messages
 *           around blocks: qwp_message.h. */
#ifndef QWP_ENCODE_H
#define QWP_ENCODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_record_layout.h"
#include "core/qwp_result.h"
#include "core/qwp_shape.h"

enum { QWP_GATHER_ROWS_MAX = 1024 }; /* rows of a block; keeps records and scratch in the cache */

#define QWP_NO_FIELD UINT16_MAX

struct qwp_block_column {
    struct qwp_name name;
    uint8_t type;
    uint8_t parameter;
};

/* A symbol's global id in the form the encoder stores without a branch: the bytes of its varint in
 * the low three, their number in the top one. Made once, when the ring's symbol is interned,
 * instead of once for each value [about 7 instructions a value]. A server takes fewer ids than
 * this. */
enum { QWP_SYMBOL_IDS_MAX = 1 << 21 };

static inline uint32_t qwp_symbol_code(uint32_t id) /* id < QWP_SYMBOL_IDS_MAX */
{
    if (id < 1u << 7) {
        return UINT32_C(1) << 24 | id;
    }
    if (id < 1u << 14) {
        return UINT32_C(2) << 24 | (id >> 7) << 8 | 0x80 | (id & 0x7f);
    }
    return UINT32_C(3) << 24 | (id >> 14) << 16 | 0x8000 | (id >> 7 & 0x7f) << 8 | 0x80 |
           (id & 0x7f);
}

/* Consecutive rows of one shape and one origin (ring).
 *
 * Steering of a row, in 8-byte words, parts that do not apply left out:
 *   null words     u64 x shape->null_words; bit c set: column c of the shape is null
 *   part ends      u32 x shape->var_count, padded to 8; if has_parts: where the variable part with
 *                  that var_index ends, from the record's start. Checked by the caller: from
 *                  fixed_bytes on they never fall and never pass the record's end, and the part of
 *                  a null column is empty. Without them every part of the run is empty.
 *   symbol codes   u32 x shape->var_count, padded to 8; if has_symbol_text: qwp_symbol_code() of
 *                  each SYMBOL column, by var_index, for null ones anything. The records' symbol
 *                  fields are then not read. */
struct qwp_run {
    const struct qwp_shape *shape;
    const uint16_t *field_of_column; /* block column -> shape column of the same type and parameter;
                                        QWP_NO_FIELD: null throughout */
    const uint32_t *symbol_codes;    /* the ring's symbol index -> qwp_symbol_code() */
    uint32_t symbol_count;           /* of symbol_codes */
    uint32_t row_count;              /* > 0 */
    const uint64_t *null_any;        /* OR of the rows' null words, shape->null_words of them */
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
    uint32_t symbol_end; /* ids from here on must not leave, whatever symbol_codes[] say; 0: all may
                          */
};

enum {
    QWP_ENCODE_GORILLA = 1, /* timestamps may be Gorilla; the message carries QWP_FLAG_GORILLA */
    /* Compact columns: each goes in the narrowest type that holds all its values and takes none of
     * them for its null, since the server widens into the column it has. So that a column it does
     * not have yet gets its declared type, the first row goes ahead in a block of its own, with
     * declared types; done->table_count is then 2. Only where this is shorter. */
    QWP_ENCODE_COMPACT_LONG = 2,   /* LONG as INT, SHORT or BYTE */
    QWP_ENCODE_COMPACT_INT = 4,    /* INT as SHORT or BYTE */
    QWP_ENCODE_COMPACT_DOUBLE = 8, /* DOUBLE as FLOAT, if no value changes by a bit */
    /* The designated timestamp in microseconds instead of nanoseconds, if all are whole ones: their
     * steps take fewer bits, and those of 2.1 s and more are beyond Gorilla's 32 bits otherwise. */
    QWP_ENCODE_COMPACT_TIME = 16,
    QWP_ENCODE_COMPACT = QWP_ENCODE_COMPACT_LONG | QWP_ENCODE_COMPACT_INT |
                         QWP_ENCODE_COMPACT_DOUBLE | QWP_ENCODE_COMPACT_TIME,
};

struct qwp_encode_fault {
    uint32_t row;     /* index into the block */
    uint32_t column;  /* index into the block's columns; column_count: the designated timestamp */
    const char *what; /* static text, e.g. "invalid UTF-8" */
};

struct qwp_encoded {
    size_t len;                    /* set on QWP_OK: bytes written */
    uint32_t table_count;          /* set on QWP_OK: what to add to the message's table count */
    struct qwp_encode_fault fault; /* set on QWP_CORRUPT */
};

/* Rows gathered column by column before the next ones: few enough that their records stay in the
 * first-level cache. */
enum { QWP_ENCODE_SLICE_ROWS = 128 };
#define QWP_ENCODE_NO_NULL_BYTES UINT32_MAX

/* Scratch memory of the encoder: one per encoding thread, no need to initialise. */
struct qwp_encoder {
    int64_t times[QWP_CHUNK_ROWS_MAX];
    int64_t times_us[QWP_CHUNK_ROWS_MAX];
    const unsigned char *rows[QWP_ENCODE_SLICE_ROWS];
    unsigned char bytes[QWP_GATHER_ROWS_MAX + 8];      /* one per row: booleans, null flags */
    unsigned char null_bytes[QWP_GATHER_ROWS_MAX + 8]; /* byte null_byte_index of all null words */
    uint32_t null_byte_index;
    uint32_t type_offs[QWP_COLUMNS_MAX + 1]; /* of each column's type, from the block's start; the
                                                designated timestamp's is the last */
    /* Of a chunk's first row, when it goes ahead: */
    uint32_t first_bytes[QWP_COLUMNS_MAX]; /* bytes of its text or array */
    bool first_null[QWP_COLUMNS_MAX + 1];  /* the designated timestamp's is the last */
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

/* With any QWP_ENCODE_COMPACT flag: room for the block ahead, too. */
static inline size_t qwp_block_compact_bound(size_t block_bound, size_t header_bound,
                                             uint32_t column_count)
{
    return block_bound + header_bound + column_count;
}

/* Writes one table block (or two, if compact) to dst, which has room for its bound (the encoder may
 * write anywhere in it). `flags` are QWP_ENCODE_*. QWP_CORRUPT with done->fault set when a value
 * fails: symbol index not below symbol_count or id not below symbol_end, text not UTF-8, designated
 * timestamp out of the server's range, a boolean other than 0 or 1, geohash bits beyond its
 * precision, an array whose dimensions and elements do not add up to its part. */
QWP_MUST_USE enum qwp_result qwp_block_encode(struct qwp_encoder *encoder,
                                              const struct qwp_block *block, unsigned flags,
                                              unsigned char *dst, struct qwp_encoded *done);

/* Bytes of the array at `at` (dimensions, lengths, elements), 0 if it is malformed or passes
 * `room`.
 */
size_t qwp_array_bytes(const unsigned char *at, size_t room);

#endif

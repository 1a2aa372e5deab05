/* qwp_record_layout: a record in a ring's data area, as the producer writes it and intake reads it.
 *
 *   offset                size   field
 *   0                     4      size_bytes: whole record, a multiple of QWP_RECORD_ALIGN
 *   4                     2      shape: index into the ring's shapes, by order of definition
 *   6                     1      kind: enum qwp_record_kind
 *   7                     1      flags: QWP_RECORD_*
 *   8                     8 x w  null words, w = ceil(columns / 64); bit c set: column c is null
 *   8 + 8w                8      designated timestamp, when the shape has one
 *   ...                          fixed fields, at the places qwp_shape_layout() gives them
 *   fixed_bytes           ...    variable parts of the non-null columns, in column order, unpadded
 *
 * Fixed fields by type:
 *   BOOLEAN 1 (0 or 1)   BYTE 1   SHORT CHAR 2   INT FLOAT IPV4 4   LONG DOUBLE DATE TIMESTAMP* 8
 *   GEOHASH 8 (low `parameter` bits)   UUID 16 (low u64, high u64)   LONG256 32
 *   DECIMAL64/128/256 8/16/32, two's complement, scale in the shape
 *   SYMBOL 4: the ring's symbol index, or QWP_SYMBOL_TEXT | length of the text in the variable part
 *   VARCHAR BINARY 4: length of the variable part
 *   DOUBLE_ARRAY LONG_ARRAY 4: length of the variable part, which is as on the wire:
 *       dimensions u8, dimensions x length i32, elements 8 bytes each
 * The fixed field of a null column has no meaning and its variable part is absent: 0 bytes.
 *
 * A chunk is many rows of one shape, column by column:
 *
 *   offset                size   field
 *   0                     8      as above; no QWP_RECORD_SYMBOL_TEXT
 *   8                     4      rows: 1..QWP_CHUNK_ROWS_MAX
 *   12                    4      zero
 *   16                    16 x n entries (struct qwp_chunk_entry): of the shape's columns, then of
 *                                the designated timestamp, when the shape has one
 *   ...                          bitmaps and values, each at a multiple of 8
 *
 * A bitmap has ceil(rows / 8) bytes; bit r, least significant first, is set when row r is null, and
 * bits beyond the rows are 0. Values are those of the rows that are not null, one after another:
 *   BOOLEAN                    bits, least significant first
 *   SYMBOL                     the ring's symbol indexes, 4 bytes each; or texts, see values_bytes
 *   VARCHAR BINARY, texts      values + 1 offsets of 4 bytes, from 0 on, then the bytes
 *   DOUBLE_ARRAY LONG_ARRAY    their parts, as in a row
 *   others                     as in a row
 *
 * Trust: intake loads what steers it (size, shape, kind, flags, null words, lengths, counts,
 * entries) once. */
#ifndef QWP_RECORD_LAYOUT_H
#define QWP_RECORD_LAYOUT_H

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

enum { QWP_RECORD_ALIGN = 8, QWP_RECORD_HEADER_BYTES = 8, QWP_SHAPES_MAX = 65535 };

enum qwp_record_kind {
    QWP_RECORD_ROW = 1,
    QWP_RECORD_CHUNK = 2,
    QWP_RECORD_PAD = 3, /* skipped; a unit has a row or a chunk beside it */
};

enum {
    QWP_RECORD_MORE = 0x01,        /* not the last record of its unit: the next one belongs to it */
    QWP_RECORD_SYMBOL_TEXT = 0x02, /* at least one symbol of the row may travel as text */
};

#define QWP_SYMBOL_TEXT UINT32_C(0x80000000)
/* Of a symbol's text: whatever the ring, it finds room in a message. */
enum { QWP_SYMBOL_BYTES_MAX = 256 * 1024 };

struct qwp_record_header {
    uint32_t size_bytes;
    uint16_t shape;
    uint8_t kind;
    uint8_t flags;
};
static_assert(sizeof(struct qwp_record_header) == QWP_RECORD_HEADER_BYTES, "record layout v1");
static_assert(offsetof(struct qwp_record_header, shape) == 4, "record layout v1");
static_assert(offsetof(struct qwp_record_header, kind) == 6, "record layout v1");

enum {
    QWP_CHUNK_HEADER_BYTES = 16,
    QWP_CHUNK_ROWS_MAX = 8192,
    QWP_CHUNK_ROWS_OFF = 8,
};

struct qwp_chunk_entry {
    uint32_t bitmap_off; /* from the record's start; 0: no row is null */
    uint32_t null_count;
    uint32_t values_off;
    uint32_t values_bytes; /* SYMBOL: | QWP_SYMBOL_TEXT when the values are texts */
};
static_assert(sizeof(struct qwp_chunk_entry) == 16, "record layout v1");

#endif

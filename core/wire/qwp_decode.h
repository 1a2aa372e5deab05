/* qwp_decode: a QWP message checked as a server would, then read in place.
 *
 * qwp_decode_message() goes over the whole message once and believes nothing in it: header, counts,
 * exact lengths, names, types, bitmaps, offsets, text, symbol ids, Gorilla bits, time ranges. What
 * passed is then read without further checks and without copies: qwp_block_open() finds the columns
 * of one table block, a cursor gives the values of one column in row order.
 *
 * Threads:   none; a decoder belongs to one connection.
 * Trust:     the bytes may be anything, but must not change between decoding and the last read.
 * Memory:    200 KiB for the widest block, 4 bytes a column and 40 a block of the present message,
 *            plus the dictionary, which has bounds (struct qwp_decoder_options).
 * Errors:    QWP_CORRUPT with the byte offset in the text and the status a server would answer in
 *            decoder->fault_status; QWP_NOMEM. The dictionary is then as before the message. */
#ifndef QWP_DECODE_H
#define QWP_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_shape.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_wire.h"

enum qwp_decode_depth {
    /* Every check there is; needed before values are read. */
    QWP_DECODE_FULL = 0,
    /* For counting rows: structure only. Counts, names, types, bitmaps, lengths, offsets and symbol
     * ids are checked as in FULL. Not looked at: whether text values are UTF-8, time ranges, bits
     * beyond a value's width, and the bits of a Gorilla block that ends the message (its end is
     * known without them; only its size is judged). */
    QWP_DECODE_COUNT = 1,
};

enum {
    QWP_DECODE_SYMBOLS_MAX = 2000000,
    QWP_DECODE_SYMBOL_BYTES_MAX = 512 * 1024 * 1024, /* text of all symbols together */
    QWP_DECODE_COLUMNS_MAX = QWP_COLUMNS_MAX + 1,    /* and the designated timestamp */
};

/* Zero in a field means its default, which is the constant named beside it. */
struct qwp_decoder_options {
    enum qwp_decode_depth depth;
    uint32_t symbols_max;       /* QWP_DECODE_SYMBOLS_MAX */
    uint32_t symbol_bytes_max;  /* QWP_DECODE_SYMBOL_BYTES_MAX */
    uint32_t message_bytes_max; /* QWP_MESSAGE_BYTES_MAX */
    uint32_t name_bytes_max;    /* QWP_NAME_BYTES_MAX */
    /* Symbols kept elsewhere: with `symbol_text` the decoder has no dictionary of its own, ids
     * below `symbol_count` are known, and deltas are stepped over. May be changed between messages.
     */
    qwp_symbol_text_fn symbol_text;
    const void *symbols;
    uint32_t symbol_count;
};

/* The texts of the connection's symbols, by id, end to end. */
struct qwp_decode_dict {
    unsigned char *text;
    uint32_t *ends; /* of each text */
    uint32_t count;
    uint32_t text_bytes;
    size_t ends_room;
    size_t text_room;
};

/* One column of the block that was opened last. */
struct qwp_column {
    struct qwp_name name; /* len 0: the designated timestamp */
    uint8_t type;
    uint8_t parameter; /* geohash bits or decimal scale, else 0 */
    bool gorilla;      /* the values are a Gorilla block */
    bool designated;
    uint32_t row_count;
    uint32_t value_count;             /* rows that are not null */
    const unsigned char *bitmap;      /* NULL: no row is null */
    const unsigned char *values;      /* behind null section, precision, scale and encoding byte */
    const unsigned char *message_end; /* private: reads stay before it */
    uint64_t name_hash;               /* private */
    uint32_t time_scale;              /* private: of a time on the wire */
};

/* What is known of a block without opening it. */
struct qwp_block_head {
    struct qwp_name table;
    uint32_t row_count;
    uint32_t start_off;    /* of the block in the message; the next one's is its end */
    uint32_t columns_off;  /* private: of the column headers in the message */
    uint32_t first_column; /* private: into decoder->column_offs */
    uint32_t column_count; /* with the designated timestamp */
    bool has_designated;
    uint8_t designated_type; /* 0: there is none */
    /* Once it was opened: its designated timestamps are microseconds behind a row of the same table
     * in nanoseconds, and read as nanoseconds, as a server with such a table takes them. */
    bool us_as_ns;
};

struct qwp_decoder {
    struct qwp_decoder_options options; /* depth may be changed between messages */
    struct qwp_decode_dict dict;
    /* Of the message decoded last. */
    struct qwp_block_head *blocks;
    uint32_t *column_offs; /* where each column's data begins in the message */
    size_t block_count;
    size_t blocks_room;
    size_t column_off_count;
    size_t column_offs_room;
    /* Of the block that is being checked or was opened last. */
    struct qwp_column *columns;
    uint16_t *names_seen; /* hash table: index into columns + 1 */
    /* Of the last failure. */
    enum qwp_status fault_status;
    size_t fault_off;
    uint32_t fault_block; /* UINT32_MAX: not inside a block */
};

struct qwp_message {
    const unsigned char *bytes; /* borrowed from the caller of qwp_decode_message() */
    size_t len;
    uint8_t flags; /* QWP_FLAG_* */
    bool readable; /* decoded in FULL depth */
    uint32_t block_count;
    uint64_t row_count; /* of all blocks */
    uint32_t delta_start;
    uint32_t delta_count; /* 0 without a delta section */
};

struct qwp_table_block {
    struct qwp_name table;
    uint32_t row_count;
    uint32_t column_count;
    const struct qwp_column *columns;    /* until the next qwp_block_open() or decode */
    const struct qwp_column *designated; /* one of them, or NULL: the server assigns the time */
};

/* `options` NULL: all defaults. Allocates nothing yet. */
void qwp_decoder_init(struct qwp_decoder *decoder, const struct qwp_decoder_options *options);
/* Accepts a zeroed decoder and one already finished. */
void qwp_decoder_fini(struct qwp_decoder *decoder);
/* A new connection: forgets the dictionary, keeps memory and options. */
void qwp_decoder_reset(struct qwp_decoder *decoder);

/* Checks the message and takes its delta into the dictionary. *message borrows `bytes`. */
QWP_MUST_USE enum qwp_result qwp_decode_message(struct qwp_decoder *decoder, const void *bytes,
                                                size_t len, struct qwp_message *message,
                                                struct qwp_error *err);

/* Head of block `index` < message->block_count of the message decoded last. */
const struct qwp_block_head *qwp_block_head(const struct qwp_decoder *decoder,
                                            const struct qwp_message *message, uint32_t index);
/* Finds the columns of a block, with all their values in place. The message was decoded in FULL
 * depth and is the last one. */
void qwp_block_open(struct qwp_decoder *decoder, const struct qwp_message *message, uint32_t index,
                    struct qwp_table_block *block);

/* Symbols that ids may name. */
static inline uint32_t qwp_decoder_symbol_count(const struct qwp_decoder *decoder)
{
    return decoder->options.symbol_text != NULL ? decoder->options.symbol_count
                                                : decoder->dict.count;
}
/* Text of a symbol; id < qwp_decoder_symbol_count(). Moves when the next delta comes. */
struct qwp_name qwp_decoder_symbol(const struct qwp_decoder *decoder, uint32_t id);

/* A value. Which member holds it follows from the type. */
struct qwp_value {
    bool null;
    uint8_t type;
    union {
        bool boolean; /* BOOLEAN */
        int64_t i64;  /* BYTE SHORT INT LONG DATE TIMESTAMP TIMESTAMP_NANOS */
        uint64_t u64; /* GEOHASH (its low bits), IPV4, CHAR */
        float f32;    /* FLOAT */
        double f64;   /* DOUBLE */
        struct {      /* VARCHAR BINARY; UUID LONG256 DECIMAL64/128/256: as on the wire */
            const unsigned char *at;
            uint32_t len;
        } bytes;
        struct { /* SYMBOL */
            struct qwp_name text;
            uint32_t id;
        } symbol;
        struct { /* DOUBLE_ARRAY LONG_ARRAY: lengths i32 and elements as on the wire */
            const unsigned char *lengths;
            const unsigned char *elements;
            uint32_t dimensions;
            uint32_t element_count;
        } array;
    };
};

/* Reads one column, forward. */
struct qwp_cursor {
    const struct qwp_decoder *decoder;
    const struct qwp_column *column;
    uint32_t row;            /* next */
    uint32_t value;          /* index of the next value that is not null */
    const unsigned char *at; /* next value, for those without a fixed width */
    uint64_t bit;            /* into a Gorilla block */
    uint64_t time;
    uint64_t delta;
};

/* The decoder and the opened block must stay as they are while the cursor is used. */
void qwp_cursor_init(struct qwp_cursor *cursor, const struct qwp_decoder *decoder,
                     const struct qwp_column *column);
/* The value of the next row; false when all rows were given. */
bool qwp_cursor_next(struct qwp_cursor *cursor, struct qwp_value *value);
/* The value of any row: a step when it is the next one, a walk otherwise (from the start when it
 * lies behind). row < column->row_count. */
void qwp_cursor_read(struct qwp_cursor *cursor, uint32_t row, struct qwp_value *value);

#endif

/* qwp.h: write rows to QuestDB through the qwp-sidecar of this host or pod.
 *
 * A producer owns a ring in shared memory. A row is formatted straight into it and published with
 * one store; no call below makes a system call while the ring has room and the sidecar is awake.
 * Rows survive the death of this process once published, and the sidecar's once stored.
 *
 *     const struct qwp_column columns[] = {
 *         {"symbol", QWP_SYMBOL, 0}, {"price", QWP_DOUBLE, 0}, {"amount", QWP_LONG, 0}};
 *     struct qwp_producer *producer;
 *     struct qwp_table *trades;
 *     struct qwp_error err;
 *     if (qwp_producer_open(&producer, NULL, &err) != QWP_OK ||
 *         qwp_table_define(producer, "trades", columns, 3, &trades, &err) != QWP_OK) {
 *         return puts(err.text);
 *     }
 *     struct qwp_row *row = qwp_row_begin(trades);
 *     qwp_row_symbol(row, 0, "ETH-USD", 7);
 *     qwp_row_double(row, 1, 2615.54);
 *     qwp_row_long(row, 2, 44);
 *     if (qwp_row_at_ns(row, now_ns, &err) != QWP_OK) {
 *         puts(err.text);
 *     }
 *     qwp_producer_close(producer);
 *
 * Threads:  a producer and all that belongs to it is one thread's at a time: one producer a thread.
 * Fork:     a producer belongs to the process that opened it; in a child every call that could
 *           touch the ring gives QWP_CLOSED, and the row of qwp_row_reserve() is no memory there.
 * Signals:  the first producer of a process sets an action for SIGBUS: when another process cuts a
 *           ring's file short, that ring then counts as detached (QWP_CLOSED), where it would have
 *           killed this process. Every other SIGBUS goes to the action that was there before.
 *           keep_sigbus leaves it all as it is.
 * Errors:   functions that can fail say so; messages name table, column and the way out. A setter's
 *           mistake is kept and returned, with its message, by the call that ends the row.
 * Delivery: stored = in the sidecar's segment log; acked = the server has it, or it was set aside
 *           (qwp_wait_acked() tells). At least once to the server; DEDUP keys make it exactly once.
 *
 * Null: a column that a row does not set is null, of any type. The server has no null for BOOLEAN,
 * BYTE and SHORT columns of its own (they become false and 0), and takes some values for null:
 * INT -2^31; LONG, DATE, TIMESTAMP -2^63; NaN; IPV4 0.0.0.0; CHAR 0; a UUID or LONG256 whose every
 * word is -2^63. Nothing here stops you from sending those. Empty text and arrays are no nulls. */
#ifndef QWP_H
#define QWP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#include "core/qwp_error.h"

struct qwp_producer;
struct qwp_table;
struct qwp_row;

/* Column types. Numbers are those of the QWP protocol. */
enum qwp_column_type {
    QWP_BOOLEAN = 0x01,
    QWP_BYTE = 0x02,
    QWP_SHORT = 0x03,
    QWP_INT = 0x04,
    QWP_LONG = 0x05,
    QWP_FLOAT = 0x06,
    QWP_DOUBLE = 0x07,
    QWP_SYMBOL = 0x09,
    QWP_TIMESTAMP = 0x0a, /* us since the epoch */
    QWP_DATE = 0x0b,      /* ms since the epoch */
    QWP_UUID = 0x0c,
    QWP_LONG256 = 0x0d,
    QWP_GEOHASH = 0x0e, /* parameter: precision in bits, 1..60 */
    QWP_VARCHAR = 0x0f,
    QWP_TIMESTAMP_NANOS = 0x10, /* ns since the epoch */
    QWP_DOUBLE_ARRAY = 0x11,
    QWP_LONG_ARRAY = 0x12,
    QWP_DECIMAL64 = 0x13, /* parameter of the decimals: scale, digits after the point */
    QWP_DECIMAL128 = 0x14,
    QWP_DECIMAL256 = 0x15,
    QWP_CHAR = 0x16, /* one UTF-16 code unit */
    QWP_BINARY = 0x17,
    QWP_IPV4 = 0x18,
};

struct qwp_column {
    const char *name;
    enum qwp_column_type type;
    uint8_t parameter;
};

enum qwp_on_full {
    QWP_FULL_WAIT = 0, /* wait up to full_wait_ns_max, then QWP_AGAIN */
    QWP_FULL_FAIL = 1, /* QWP_AGAIN at once */
    QWP_FULL_DROP = 2, /* drop the row, count it, QWP_OK */
};

/* Zero-initialise, then set what differs; all zero is a good start. */
struct qwp_producer_options {
    const char *dir;               /* rings directory; NULL: $QWP_RINGS, else /dev/shm/qwp */
    const char *instance;          /* NULL: $QWP_INSTANCE, else "default" */
    const char *name;              /* of this producer, for people; NULL: the program's name */
    uint64_t ring_bytes;           /* 0: 1 MiB; rounded up to a power of two */
    uint64_t definition_bytes_max; /* 0: 1 MiB */
    uint32_t unit_bytes_max;       /* 0: 256 KiB; the largest row or unit, at most half the ring */
    enum qwp_on_full on_full;
    int64_t full_wait_ns_max; /* 0: 30 s */
    bool lock_memory;         /* mlock the ring */
    bool keep_sigbus;         /* leave SIGBUS alone, see "Signals" above */
};

/* ---- open and define ---- */

/* No sidecar needs to run: rows wait in the ring for it. */
QWP_API QWP_MUST_USE enum qwp_result qwp_producer_open(struct qwp_producer **out,
                                                       const struct qwp_producer_options *options,
                                                       struct qwp_error *err);
/* Published rows stay for the sidecar; an open row or unit is dropped. NULL is fine. */
QWP_API void qwp_producer_close(struct qwp_producer *producer);

/* Defines a table and its columns, or finds the one of that name (case ignored) and adds what it
 * lacks; a column of the same name and another type is QWP_INVALID, and so are two columns in one
 * call whose names differ only in case. On failure the table is as before. The handle lives as long
 * as the producer. Column indexes count from 0 in order of definition. QWP_INVALID while a row of
 * this table is open. */
QWP_API QWP_MUST_USE enum qwp_result
qwp_table_define(struct qwp_producer *producer, const char *name, const struct qwp_column *columns,
                 size_t column_count, struct qwp_table **out, struct qwp_error *err);
/* Adds one column (or finds it) and gives its index; not while a row is open. */
QWP_API QWP_MUST_USE enum qwp_result qwp_table_column(struct qwp_table *table,
                                                      const struct qwp_column *column,
                                                      uint32_t *index, struct qwp_error *err);
/* Index of a column by name (case ignored), or -1. */
QWP_API int32_t qwp_table_find(const struct qwp_table *table, const char *name, size_t len);

/* Interns a symbol for this producer: a handle to write instead of the text, for as long as the
 * producer lives. QWP_LIMIT: the definitions area is full (see definition_bytes_max); write the
 * text instead, which then travels with each row. A symbol has at most 256 KiB, in rows too. */
QWP_API QWP_MUST_USE enum qwp_result qwp_symbol_intern(struct qwp_producer *producer,
                                                       const char *text, size_t len,
                                                       uint32_t *handle, struct qwp_error *err);

/* ---- rows by column: checked, any subset of columns, missing ones are null ---- */

/* One row is open at a time per producer; beginning another one drops it. Never NULL: trouble comes
 * with the call that ends the row. */
QWP_API struct qwp_row *qwp_row_begin(struct qwp_table *table);

QWP_API enum qwp_result qwp_row_null(struct qwp_row *row, uint32_t column);
QWP_API enum qwp_result qwp_row_boolean(struct qwp_row *row, uint32_t column, bool value);
QWP_API enum qwp_result qwp_row_byte(struct qwp_row *row, uint32_t column, int8_t value);
QWP_API enum qwp_result qwp_row_short(struct qwp_row *row, uint32_t column, int16_t value);
QWP_API enum qwp_result qwp_row_int(struct qwp_row *row, uint32_t column, int32_t value);
QWP_API enum qwp_result qwp_row_long(struct qwp_row *row, uint32_t column, int64_t value);
QWP_API enum qwp_result qwp_row_float(struct qwp_row *row, uint32_t column, float value);
QWP_API enum qwp_result qwp_row_double(struct qwp_row *row, uint32_t column, double value);
QWP_API enum qwp_result qwp_row_char(struct qwp_row *row, uint32_t column, uint16_t code_unit);
QWP_API enum qwp_result qwp_row_ipv4(struct qwp_row *row, uint32_t column, uint32_t address);
QWP_API enum qwp_result qwp_row_date(struct qwp_row *row, uint32_t column, int64_t ms);
QWP_API enum qwp_result qwp_row_timestamp(struct qwp_row *row, uint32_t column, int64_t us);
QWP_API enum qwp_result qwp_row_timestamp_ns(struct qwp_row *row, uint32_t column, int64_t ns);
QWP_API enum qwp_result qwp_row_uuid(struct qwp_row *row, uint32_t column, uint64_t high,
                                     uint64_t low);
/* Four u64, least significant first. */
QWP_API enum qwp_result qwp_row_long256(struct qwp_row *row, uint32_t column,
                                        const uint64_t words[4]);
/* `bits` has no more bits than the column's precision. */
QWP_API enum qwp_result qwp_row_geohash(struct qwp_row *row, uint32_t column, uint64_t bits);
/* Unscaled two's complement, least significant word first, at the column's scale: 1 word for
 * DECIMAL64, 2 for DECIMAL128, 4 for DECIMAL256; at most 18, 38 and 76 digits. */
QWP_API enum qwp_result qwp_row_decimal(struct qwp_row *row, uint32_t column, const uint64_t *words,
                                        size_t word_count);
QWP_API enum qwp_result qwp_row_symbol(struct qwp_row *row, uint32_t column, const char *text,
                                       size_t len);
QWP_API enum qwp_result qwp_row_symbol_handle(struct qwp_row *row, uint32_t column,
                                              uint32_t handle);
QWP_API enum qwp_result qwp_row_varchar(struct qwp_row *row, uint32_t column, const char *text,
                                        size_t len);
QWP_API enum qwp_result qwp_row_binary(struct qwp_row *row, uint32_t column, const void *bytes,
                                       size_t len);
/* Row-major; `shape` has `dimensions` lengths; a length of 0 makes an empty array, which is no
 * null. */
QWP_API enum qwp_result qwp_row_double_array(struct qwp_row *row, uint32_t column,
                                             const double *values, const uint32_t *shape,
                                             size_t dimensions);
QWP_API enum qwp_result qwp_row_long_array(struct qwp_row *row, uint32_t column,
                                           const int64_t *values, const uint32_t *shape,
                                           size_t dimensions);

/* By name (case ignored): the column's index for the calls above; an unknown name makes the row
 * fail. Quickest when names come in the order of definition. */
QWP_API uint32_t qwp_row_column(struct qwp_row *row, const char *name);

/* End the row and publish it (within a unit: keep it for qwp_unit_publish()). The designated
 * timestamp is in ns (0 to 2261-12-31) or us (0 to 9999-12-31) since the epoch, or given by the
 * server. On failure the row is dropped and the ring is as before; QWP_AGAIN: the ring is full (see
 * on_full); QWP_LIMIT: larger than unit_bytes_max; QWP_CLOSED: the sidecar detached this ring. */
QWP_API QWP_MUST_USE enum qwp_result qwp_row_at_ns(struct qwp_row *row, int64_t ns,
                                                   struct qwp_error *err);
QWP_API QWP_MUST_USE enum qwp_result qwp_row_at_us(struct qwp_row *row, int64_t us,
                                                   struct qwp_error *err);
QWP_API QWP_MUST_USE enum qwp_result qwp_row_at_now(struct qwp_row *row, struct qwp_error *err);
QWP_API void qwp_row_abort(struct qwp_row *row);

/* ---- units: several rows, of any tables, stored together or not at all ----
 *
 * Together at most unit_bytes_max. A row that fails is not part of the unit, which stays open: go
 * on, or abort it. QWP_FULL_DROP: a row that finds no room drops the whole unit; its rows are
 * counted when it ends, and qwp_unit_publish() is QWP_OK. */

QWP_API QWP_MUST_USE enum qwp_result qwp_unit_begin(struct qwp_producer *producer,
                                                    struct qwp_error *err);
QWP_API QWP_MUST_USE enum qwp_result qwp_unit_publish(struct qwp_producer *producer,
                                                      struct qwp_error *err);
/* Also drops an open row. */
QWP_API void qwp_unit_abort(struct qwp_producer *producer);

/* ---- hot path: fields at known places, no checks but the ring's and the timestamp's ---- */

/* A record layout: the columns given, all of them written in each row (or marked null), in the
 * order given. Columns that are left out are null. Lives as long as the producer. */
struct qwp_layout;
enum qwp_at { QWP_AT_NS = 1, QWP_AT_US = 2, QWP_AT_SERVER = 3 };
QWP_API QWP_MUST_USE enum qwp_result
qwp_layout_define(struct qwp_table *table, const uint32_t *columns, size_t column_count,
                  enum qwp_at at, const struct qwp_layout **out, struct qwp_error *err);
/* Offset, from the start of a reserved row, of the field of the i-th column given to define.
 * Widths: BOOLEAN (0 or 1), BYTE 1; SHORT, CHAR 2; INT, FLOAT, IPV4 4; SYMBOL 4 (a handle); LONG,
 * DOUBLE, times, GEOHASH 8; UUID 16 (low, high); LONG256 32; decimals 8/16/32 (low word first);
 * VARCHAR, BINARY and arrays 4 (length of its part in bytes). All little-endian, each aligned to
 * its width up to 8. */
QWP_API uint32_t qwp_layout_offset(const struct qwp_layout *layout, size_t i);
/* Of the designated timestamp, i64; 0 with QWP_AT_SERVER: there is none. */
QWP_API uint32_t qwp_layout_at_offset(const struct qwp_layout *layout);
/* Where the parts of the VARCHAR, BINARY and array columns go, one after another in layout order,
 * unpadded; a null one has none. An array's part: dimensions u8, a length i32 each, the elements.
 */
QWP_API uint32_t qwp_layout_var_offset(const struct qwp_layout *layout);

/* Room for one row with up to `var_bytes` bytes of parts; *row is 8-byte aligned, null marks are
 * cleared, fields undefined; it is the caller's until the next call with this producer. Nothing
 * checks what is written there but the sidecar, which detaches a ring with a malformed row.
 * QWP_AGAIN as above (with QWP_FULL_DROP: counted, and the caller skips the row); QWP_LIMIT: larger
 * than unit_bytes_max; QWP_CLOSED: see qwp_consumer_reason(), or a forked child. */
QWP_API QWP_MUST_USE enum qwp_result qwp_row_reserve(struct qwp_producer *producer,
                                                     const struct qwp_layout *layout,
                                                     uint32_t var_bytes, void **row);
/* Marks the i-th column of a reserved row null. */
static inline void qwp_reserved_null(void *row, size_t i)
{
    uint64_t *words = (uint64_t *)((char *)row + 8);
    words[i / 64] |= UINT64_C(1) << (i % 64);
}
/* For a symbol without a handle: its field at `offset` says that `len` bytes of text lie among the
 * parts, in this column's place. */
static inline void qwp_reserved_symbol_text(void *row, uint32_t offset, uint32_t len)
{
    *(uint32_t *)((char *)row + offset) = UINT32_C(0x80000000) | len;
    *((uint8_t *)row + 7) |= 0x02;
}
/* Publishes the reserved row (within a unit: keeps it). QWP_INVALID: the timestamp is out of the
 * server's range, or no row is reserved; the row is dropped. */
QWP_API QWP_MUST_USE enum qwp_result qwp_row_publish(struct qwp_producer *producer);

/* ---- columnar chunks: many rows as arrays, one a column, laid out as in Arrow ---- */

/* One column of a chunk. Where a value's place is given by its row, `first_row` counts. */
struct qwp_chunk_column {
    /* By type: BOOLEAN bits, least significant first. BYTE, SHORT, INT, LONG, FLOAT, DOUBLE, CHAR,
     * IPV4, DATE, TIMESTAMP*, decimals: an array of them. GEOHASH: uint64_t each. UUID: two
     * uint64_t (low, high); LONG256: four, least significant first. SYMBOL: uint32_t, see
     * `handles`. VARCHAR, BINARY and SYMBOL with `offsets`: the bytes. Arrays: their parts as in
     * qwp_layout_var_offset(), with `offsets`. NULL: null in every row. */
    const void *values;
    /* Bit r, least significant first: row r has a value. NULL: every row has one. */
    const uint8_t *validity;
    /* Of row r: bytes [offsets[r], offsets[r + 1]) of `values`. */
    const int32_t *offsets;
    /* SYMBOL without `offsets`: value v stands for handles[v], v < handle_count, as a dictionary of
     * texts interned with qwp_symbol_intern() has them; NULL: values are handles themselves. */
    const uint32_t *handles;
    size_t handle_count;
};

/* Publishes rows [first_row, first_row + row_count) of arrays, column i of the layout from
 * columns[i], with the designated timestamps at[] (with QWP_AT_SERVER: ignored). Checked as rows
 * are. Within a unit the rows become part of it, and all of them must fit; else they go as as many
 * records as their size needs, each published by itself: a failure leaves *rows_done of them
 * published (NULL: not told) and the others not. Results as of qwp_row_at_ns(). */
QWP_API QWP_MUST_USE enum qwp_result
qwp_chunk_write(struct qwp_producer *producer, const struct qwp_layout *layout,
                const struct qwp_chunk_column *columns, const int64_t *at, size_t first_row,
                size_t row_count, size_t *rows_done, struct qwp_error *err);

/* ---- progress ---- */

/* Positions count bytes of this producer's ring and only grow. */
QWP_API uint64_t qwp_position_published(const struct qwp_producer *producer);
QWP_API uint64_t qwp_position_stored(const struct qwp_producer *producer);
QWP_API uint64_t qwp_position_acked(const struct qwp_producer *producer);
/* Wait until everything up to `position` is stored, or acked, at most timeout_ns (< 0: for ever;
 * 0: only look). QWP_AGAIN: not yet; QWP_CLOSED with the reason: the sidecar detached this ring;
 * QWP_INVALID: the position is beyond what is published. QWP_REJECTED (acked only): settled, but
 * rows of this producer were set aside since the last such answer; asking again gives QWP_OK. */
QWP_API QWP_MUST_USE enum qwp_result qwp_wait_stored(struct qwp_producer *producer,
                                                     uint64_t position, int64_t timeout_ns,
                                                     struct qwp_error *err);
QWP_API QWP_MUST_USE enum qwp_result qwp_wait_acked(struct qwp_producer *producer,
                                                    uint64_t position, int64_t timeout_ns,
                                                    struct qwp_error *err);

enum qwp_consumer {
    /* No sidecar has come yet, or it is gone, at once after a kill -9: rows wait in the ring for
     * the next one, which goes on by itself. */
    QWP_CONSUMER_NONE = 0,
    QWP_CONSUMER_RUNNING = 1,
    QWP_CONSUMER_CLOSING = 2,
    QWP_CONSUMER_REFUSED = 3, /* this ring is not read: qwp_consumer_reason() */
};
/* One system call, to see whether the sidecar lives: not for every row. Messages of calls that wait
 * in vain say the same in words. */
QWP_API enum qwp_consumer qwp_consumer_state(struct qwp_producer *producer);
/* Text of the last refusal or detachment, "" when there is none. Copies into `text`. */
QWP_API void qwp_consumer_reason(struct qwp_producer *producer, char *text, size_t text_bytes);

struct qwp_counters {
    uint64_t rows_published;
    uint64_t rows_dropped; /* QWP_FULL_DROP */
    uint64_t rows_stored;
    uint64_t rows_acked;
    uint64_t rows_rejected;
    uint64_t full_waits;
};
QWP_API void qwp_producer_count(const struct qwp_producer *producer, struct qwp_counters *out);

/* "1.2.3" of the library. */
QWP_API const char *qwp_version(void);

#ifdef __cplusplus
}
#endif

#endif

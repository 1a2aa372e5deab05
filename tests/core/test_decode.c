/* Aim: the decoder reads what a released client wrote, names the byte at which anything else goes
 * wrong, and never reads outside the message.
 * Method: recorded messages of one connection compared value by value; hand-made messages, each
 * with one fault; every recorded message cut at every length and with every byte changed, in memory
 * that ends where the message ends, so that a sanitizer sees a read beyond. */
#include "core/wire/qwp_decode.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_varint.h"

enum { VECTORS = 6, MESSAGE_ROOM = 1 << 16 };
#define T INT64_C(1700000000000000000)

struct bytes {
    unsigned char at[MESSAGE_ROOM];
    size_t len;
};

static int hex_digit(int c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void load_vector(int index, struct bytes *out)
{
    char path[512];
    snprintf(path, sizeof path, "%s/client-messages/%03d.hex", QWP_TEST_DATA, index);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "cannot open %s", path);
    out->len = 0;
    int high = -1;
    for (int c = fgetc(file); c != EOF; c = fgetc(file)) {
        const int digit = hex_digit(c);
        if (digit < 0) {
            continue;
        }
        if (high < 0) {
            high = digit;
        } else {
            ck_assert_uint_lt(out->len, sizeof out->at);
            out->at[out->len++] = (unsigned char)(high << 4 | digit);
            high = -1;
        }
    }
    fclose(file);
}

/* The decoder with messages 0..last read, the last one in *message (of the static `bytes`). */
static struct bytes vector;
static void decode_vectors(struct qwp_decoder *decoder, int last, struct qwp_message *message)
{
    qwp_decoder_init(decoder, NULL);
    for (int i = 0; i <= last; i++) {
        struct qwp_error err = {0};
        load_vector(i, &vector);
        ck_assert_msg(qwp_decode_message(decoder, vector.at, vector.len, message, &err) == QWP_OK,
                      "message %d: %s", i, err.text);
    }
}

static void open_block(struct qwp_decoder *decoder, const struct qwp_message *message,
                       uint32_t index, const char *table, uint32_t rows, uint32_t columns,
                       struct qwp_table_block *block)
{
    qwp_block_open(decoder, message, index, block);
    ck_assert_uint_eq(block->table.len, strlen(table));
    ck_assert(memcmp(block->table.text, table, strlen(table)) == 0);
    ck_assert_uint_eq(block->row_count, rows);
    ck_assert_uint_eq(block->column_count, columns);
}

/* The value at (column, row); the column has that name ("" for the designated timestamp). */
static struct qwp_value value_at(const struct qwp_decoder *decoder,
                                 const struct qwp_table_block *block, const char *name,
                                 uint32_t row)
{
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        if (column->name.len == strlen(name) &&
            memcmp(column->name.text, name, column->name.len) == 0) {
            struct qwp_cursor cursor;
            struct qwp_value value;
            qwp_cursor_init(&cursor, decoder, column);
            qwp_cursor_read(&cursor, row, &value);
            return value;
        }
    }
    ck_abort_msg("no column '%s'", name);
}

static void expect_symbol(struct qwp_value value, const char *text)
{
    ck_assert(!value.null);
    ck_assert_int_eq(value.type, QWP_TYPE_SYMBOL);
    ck_assert_uint_eq(value.symbol.text.len, strlen(text));
    ck_assert(memcmp(value.symbol.text.text, text, strlen(text)) == 0);
}

static void expect_bytes(struct qwp_value value, const void *bytes, size_t len)
{
    ck_assert(!value.null);
    ck_assert_uint_eq(value.bytes.len, len);
    ck_assert(memcmp(value.bytes.at, bytes, len) == 0);
}

START_TEST(decode_trades_message_gives_its_rows)
{
    static const char *const symbols[] = {"ETH-USD", "BTC-USD", "ETH-USD"};
    static const char *const sides[] = {"sell", "buy", "sell"};
    static const double prices[] = {2615.54, 65432.1, 2615.55};
    static const double amounts[] = {0, 0.25, 0.5};
    struct qwp_decoder decoder;
    struct qwp_message message;
    decode_vectors(&decoder, 0, &message);
    ck_assert_uint_eq(message.row_count, 3);
    ck_assert_uint_eq(message.delta_start, 0);
    ck_assert_uint_eq(message.delta_count, 4);
    struct qwp_table_block block;
    open_block(&decoder, &message, 0, "trades", 3, 7, &block);
    ck_assert_ptr_nonnull(block.designated);
    for (uint32_t row = 0; row < 3; row++) {
        expect_symbol(value_at(&decoder, &block, "symbol", row), symbols[row]);
        expect_symbol(value_at(&decoder, &block, "side", row), sides[row]);
        ck_assert(value_at(&decoder, &block, "price", row).f64 == prices[row]);
        ck_assert(value_at(&decoder, &block, "amount", row).f64 == amounts[row]);
        ck_assert_int_eq(value_at(&decoder, &block, "seq", row).i64, row);
        ck_assert(value_at(&decoder, &block, "live", row).boolean == (row != 1));
        ck_assert_int_eq(value_at(&decoder, &block, "", row).i64, T + 1000 * row);
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_notes_message_gives_its_nulls)
{
    static const int64_t times[] = {T, T + 1, T + 7, T + 8};
    struct qwp_decoder decoder;
    struct qwp_message message;
    decode_vectors(&decoder, 1, &message);
    struct qwp_table_block block;
    open_block(&decoder, &message, 0, "notes", 4, 5, &block);
    expect_symbol(value_at(&decoder, &block, "k", 0), "a");
    ck_assert(value_at(&decoder, &block, "k", 1).null);
    expect_symbol(value_at(&decoder, &block, "k", 2), "b");
    expect_symbol(value_at(&decoder, &block, "k", 3), "a");
    expect_bytes(value_at(&decoder, &block, "txt", 0), "hello", 5);
    expect_bytes(value_at(&decoder, &block, "txt", 1), "žluťoučký 🐎", strlen("žluťoučký 🐎"));
    ck_assert(value_at(&decoder, &block, "txt", 2).null);
    expect_bytes(value_at(&decoder, &block, "txt", 3), "", 0);
    ck_assert_int_eq(value_at(&decoder, &block, "n", 0).i64, 1);
    ck_assert_int_eq(value_at(&decoder, &block, "n", 1).i64, INT64_MIN);
    ck_assert_int_eq(value_at(&decoder, &block, "n", 2).i64, -5);
    ck_assert_int_eq(value_at(&decoder, &block, "n", 3).i64, INT64_MIN);
    for (uint32_t row = 0; row < 4; row++) {
        const struct qwp_value when = value_at(&decoder, &block, "when", row);
        ck_assert(when.null == (row != 2));
        ck_assert_int_eq(value_at(&decoder, &block, "", row).i64, times[row]);
    }
    ck_assert_int_eq(value_at(&decoder, &block, "when", 2).i64, INT64_C(1700000000000001));
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_two_tables_message_gives_both)
{
    static const int64_t offsets[] = {0,    1000,  2000,   3063,   4062,       5400,
                                      9000, 20000, 400000, 400001, 99999999999};
    struct qwp_decoder decoder;
    struct qwp_message message;
    decode_vectors(&decoder, 2, &message);
    ck_assert_uint_eq(message.block_count, 2);
    ck_assert_uint_eq(message.row_count, 12);
    struct qwp_table_block block;
    open_block(&decoder, &message, 0, "trades", 1, 7, &block);
    expect_symbol(value_at(&decoder, &block, "symbol", 0), "SOL-USD");
    expect_symbol(value_at(&decoder, &block, "side", 0), "buy");
    ck_assert(value_at(&decoder, &block, "price", 0).f64 == 1.5);
    ck_assert(value_at(&decoder, &block, "amount", 0).f64 == 2.0);
    ck_assert_int_eq(value_at(&decoder, &block, "seq", 0).i64, 99);
    ck_assert(value_at(&decoder, &block, "live", 0).boolean);
    ck_assert_int_eq(value_at(&decoder, &block, "", 0).i64, T + 5);
    open_block(&decoder, &message, 1, "g", 11, 2, &block);
    for (uint32_t row = 0; row < 11; row++) {
        ck_assert(value_at(&decoder, &block, "v", row).f64 == (double)offsets[row]);
        ck_assert_int_eq(value_at(&decoder, &block, "", row).i64, T + offsets[row]);
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_types_message_gives_each_type)
{
    static const char *const names[] = {"u", "d", "arr", "dt", "c", "l256", "geo", "ip", "bin"};
    static const double elements[] = {1, 2, 3, 4.5};
    /* The designated timestamp stands second. */
    struct qwp_decoder decoder;
    struct qwp_message message;
    decode_vectors(&decoder, 3, &message);
    struct qwp_table_block block;
    open_block(&decoder, &message, 0, "types", 9, 10, &block);
    for (uint32_t column = 0; column < 9; column++) {
        for (uint32_t row = 0; row < 9; row++) {
            /* This client writes a missing CHAR as 0, without a bitmap. */
            const struct qwp_value value = value_at(&decoder, &block, names[column], row);
            ck_assert_msg(value.null == (row != column && column != 4), "%s in row %u",
                          names[column], row);
        }
    }
    const struct qwp_value uuid = value_at(&decoder, &block, "u", 0);
    ck_assert_uint_eq(qwp_load_u64(uuid.bytes.at), UINT64_C(0xa456426614174000));
    ck_assert_uint_eq(qwp_load_u64(uuid.bytes.at + 8), UINT64_C(0x123e4567e89b12d3));
    const struct qwp_value decimal = value_at(&decoder, &block, "d", 1);
    ck_assert_uint_eq(block.columns[2].parameter, 3);
    ck_assert_int_eq(qwp_load_i64(decimal.bytes.at), 12345678);
    ck_assert_uint_eq(decimal.bytes.len, 32);
    const struct qwp_value array = value_at(&decoder, &block, "arr", 2);
    ck_assert_uint_eq(array.array.dimensions, 2);
    ck_assert_uint_eq(array.array.element_count, 4);
    ck_assert_uint_eq(qwp_load_u32(array.array.lengths), 2);
    ck_assert_uint_eq(qwp_load_u32(array.array.lengths + 4), 2);
    ck_assert(memcmp(array.array.elements, elements, sizeof elements) == 0);
    ck_assert_int_eq(value_at(&decoder, &block, "dt", 3).i64, INT64_C(1700000000123));
    ck_assert_uint_eq(value_at(&decoder, &block, "c", 4).u64, 'Q');
    const struct qwp_value long256 = value_at(&decoder, &block, "l256", 5);
    ck_assert_uint_eq(qwp_load_u64(long256.bytes.at), 7);
    ck_assert_uint_eq(qwp_load_u64(long256.bytes.at + 24), 1 << 8);
    ck_assert_uint_eq(block.columns[7].parameter, 40);
    ck_assert_uint_eq(value_at(&decoder, &block, "geo", 6).u64, UINT64_C(0xd0c6c42822));
    ck_assert_uint_eq(value_at(&decoder, &block, "ip", 7).u64, 0x0a010203);
    expect_bytes(value_at(&decoder, &block, "bin", 8), "\x00\x01\xfe", 3);
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_last_messages_give_their_rows)
{
    static const int64_t offsets[] = {0, 10, INT64_C(5000000000000), INT64_C(5000000000001)};
    struct qwp_decoder decoder;
    struct qwp_message message;
    struct qwp_table_block block;
    decode_vectors(&decoder, 4, &message);
    open_block(&decoder, &message, 0, "g", 4, 2, &block);
    for (uint32_t row = 0; row < 4; row++) {
        ck_assert_int_eq(value_at(&decoder, &block, "", row).i64, T + offsets[row]);
    }
    qwp_decoder_fini(&decoder);
    decode_vectors(&decoder, 5, &message);
    open_block(&decoder, &message, 0, "srv", 1, 2, &block);
    ck_assert_ptr_null(block.designated);
    expect_symbol(value_at(&decoder, &block, "a", 0), "x");
    ck_assert_int_eq(value_at(&decoder, &block, "v", 0).i64, 1);
    qwp_decoder_fini(&decoder);
}
END_TEST

/* A decoder as it is before message `index`. */
static void decoder_before(struct qwp_decoder *decoder, int index, enum qwp_decode_depth depth)
{
    struct qwp_message message;
    if (index > 0) {
        decode_vectors(decoder, index - 1, &message);
    } else {
        qwp_decoder_init(decoder, NULL);
    }
    decoder->options.depth = depth;
}

/* Reads everything there is, to see that it lies inside. */
static uint64_t read_all(struct qwp_decoder *decoder, const struct qwp_message *message)
{
    uint64_t sum = 0;
    for (uint32_t b = 0; b < message->block_count; b++) {
        struct qwp_table_block block;
        qwp_block_open(decoder, message, b, &block);
        for (uint32_t c = 0; c < block.column_count; c++) {
            struct qwp_cursor cursor;
            struct qwp_value value = {0};
            qwp_cursor_init(&cursor, decoder, &block.columns[c]);
            while (qwp_cursor_next(&cursor, &value)) {
                if (value.null) {
                    continue;
                }
                switch (value.type) {
                case QWP_TYPE_SYMBOL:
                    for (uint32_t i = 0; i < value.symbol.text.len; i++) {
                        sum += (unsigned char)value.symbol.text.text[i];
                    }
                    break;
                case QWP_TYPE_VARCHAR:
                case QWP_TYPE_BINARY:
                case QWP_TYPE_UUID:
                case QWP_TYPE_LONG256:
                case QWP_TYPE_DECIMAL64:
                case QWP_TYPE_DECIMAL128:
                case QWP_TYPE_DECIMAL256:
                    for (uint32_t i = 0; i < value.bytes.len; i++) {
                        sum += value.bytes.at[i];
                    }
                    break;
                case QWP_TYPE_DOUBLE_ARRAY:
                case QWP_TYPE_LONG_ARRAY:
                    for (uint32_t i = 0; i < 8 * value.array.element_count; i++) {
                        sum += value.array.elements[i];
                    }
                    break;
                case QWP_TYPE_BOOLEAN:
                    sum += value.boolean;
                    break;
                default:
                    sum += value.u64;
                    break;
                }
            }
        }
    }
    return sum;
}

/* Decodes a copy that ends where its memory ends; whatever the outcome, the symbols stay in order.
 */
static enum qwp_result decode_tight(struct qwp_decoder *decoder, const unsigned char *bytes,
                                    size_t len)
{
    const uint32_t symbols = decoder->dict.count;
    unsigned char *copy = malloc(len > 0 ? len : 1);
    memcpy(copy, bytes, len);
    struct qwp_message message;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_decode_message(decoder, copy, len, &message, &err);
    if (result == QWP_OK) {
        if (message.readable) {
            (void)read_all(decoder, &message);
        }
    } else {
        ck_assert_int_eq(result, QWP_CORRUPT);
        ck_assert(strstr(err.text, "byte ") != NULL);
        ck_assert_uint_le(decoder->fault_off, len);
        ck_assert(decoder->fault_status != QWP_STATUS_OK);
        ck_assert_uint_eq(decoder->dict.count, symbols);
    }
    free(copy);
    return result;
}

/* The designated timestamp of the recorded messages is not compressed, so cutting is always seen.
 */
START_TEST(decode_cut_message_is_refused_at_every_length)
{
    struct bytes bytes;
    for (int depth = QWP_DECODE_FULL; depth <= QWP_DECODE_COUNT; depth++) {
        struct qwp_decoder decoder;
        decoder_before(&decoder, _i, depth);
        load_vector(_i, &bytes);
        for (size_t len = 0; len < bytes.len; len++) {
            ck_assert_int_eq(decode_tight(&decoder, bytes.at, len), QWP_CORRUPT);
            if (len >= QWP_HEADER_BYTES) {
                /* And with a length in the header that agrees. */
                struct bytes patched = bytes;
                qwp_store_u32(patched.at + 8, (uint32_t)(len - QWP_HEADER_BYTES));
                ck_assert_int_eq(decode_tight(&decoder, patched.at, len), QWP_CORRUPT);
            }
        }
        ck_assert_int_eq(decode_tight(&decoder, bytes.at, bytes.len), QWP_OK);
        qwp_decoder_fini(&decoder);
    }
}
END_TEST

START_TEST(decode_changed_byte_never_reads_outside)
{
    struct bytes bytes;
    load_vector(_i, &bytes);
    for (int depth = QWP_DECODE_FULL; depth <= QWP_DECODE_COUNT; depth++) {
        struct qwp_decoder decoder;
        decoder_before(&decoder, _i, depth);
        const uint32_t symbols = decoder.dict.count;
        for (size_t at = 0; at < bytes.len; at++) {
            const unsigned char kept = bytes.at[at];
            for (unsigned v = 1; v < 256; v++) {
                bytes.at[at] = (unsigned char)(kept ^ v);
                if (decode_tight(&decoder, bytes.at, bytes.len) == QWP_OK &&
                    decoder.dict.count != symbols) {
                    /* Back to what the message before left. */
                    decoder.dict.count = symbols;
                    decoder.dict.text_bytes = symbols > 0 ? decoder.dict.ends[symbols - 1] : 0;
                }
            }
            bytes.at[at] = kept;
        }
        qwp_decoder_fini(&decoder);
    }
}
END_TEST

/* Hand-made messages. */
static struct bytes built;

static void put(const void *bytes, size_t len)
{
    memcpy(built.at + built.len, bytes, len);
    built.len += len;
}

static void put_byte(unsigned v)
{
    built.at[built.len++] = (unsigned char)v;
}

static void put_varint(uint64_t v)
{
    built.len = (size_t)(qwp_varint_put(built.at + built.len, v) - built.at);
}

static void put_u32(uint32_t v)
{
    put(&v, sizeof v);
}

static void put_i64(int64_t v)
{
    put(&v, sizeof v);
}

static void put_name(const char *name)
{
    put_varint(strlen(name));
    put(name, strlen(name));
}

static void begin(unsigned flags, unsigned tables)
{
    built.len = 0;
    put("QWP1\x01", 5);
    put_byte(flags);
    put_byte(tables);
    put_byte(tables >> 8);
    put_u32(0);
}

static void begin_table(unsigned flags, const char *table, uint64_t rows, uint64_t columns)
{
    begin(flags, 1);
    if ((flags & QWP_FLAG_DELTA_DICT) != 0) {
        put_varint(0);
        put_varint(0);
    }
    put_name(table);
    put_varint(rows);
    put_varint(columns);
}

/* One table, one column, its header and null flag 0. */
static void begin_column(unsigned flags, uint64_t rows, const char *name, unsigned type)
{
    begin_table(flags, "t", rows, 1);
    put_name(name);
    put_byte(type);
    put_byte(0);
}

static void expect_fault_in(struct qwp_decoder *decoder, enum qwp_status status, const char *words)
{
    qwp_store_u32(built.at + 8, (uint32_t)(built.len - QWP_HEADER_BYTES));
    struct qwp_message message;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_decode_message(decoder, built.at, built.len, &message, &err);
    ck_assert_msg(result == QWP_CORRUPT, "'%s' was not noticed", words);
    ck_assert_msg(strstr(err.text, words) != NULL, "'%s' does not say '%s'", err.text, words);
    ck_assert_int_eq(decoder->fault_status, status);
}

static void expect_fault(enum qwp_status status, const char *words)
{
    struct qwp_decoder decoder;
    qwp_decoder_init(&decoder, NULL);
    expect_fault_in(&decoder, status, words);
    qwp_decoder_fini(&decoder);
}

static void expect_ok_in(struct qwp_decoder *decoder, struct qwp_message *message)
{
    qwp_store_u32(built.at + 8, (uint32_t)(built.len - QWP_HEADER_BYTES));
    struct qwp_error err = {0};
    ck_assert_msg(qwp_decode_message(decoder, built.at, built.len, message, &err) == QWP_OK, "%s",
                  err.text);
}

static void expect_ok(void)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    expect_ok_in(&decoder, &message);
    qwp_decoder_fini(&decoder);
}

START_TEST(decode_bad_header_is_refused)
{
    begin(0, 0);
    built.at[0] = 'q';
    expect_fault(QWP_STATUS_PARSE_ERROR, "QWP1");
    begin(0, 0);
    built.at[4] = 2;
    expect_fault(QWP_STATUS_PARSE_ERROR, "version 2");
    begin(0x02, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "unknown flags");
    begin(0, 1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "length of a table name");
    begin(0, 0);
    put_byte(0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "1 bytes are left");
    begin(QWP_FLAG_DEFER_COMMIT, 0);
    expect_ok();
}
END_TEST

START_TEST(decode_bad_table_is_refused)
{
    begin_table(0, "a/b", 1, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "'/'");
    begin_table(0, "", 1, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "empty table name");
    begin_table(0, "t", 1000001, 0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "number of rows is 1000001");
    begin_table(0, "t", 1, 2050);
    expect_fault(QWP_STATUS_PARSE_ERROR, "number of columns is 2050");
    begin_table(0, "t", 1, 1);
    put_name("a");
    put_byte(0x08);
    expect_fault(QWP_STATUS_PARSE_ERROR, "unknown type 0x08");
    begin_table(0, "t", 1, 1);
    put_name("");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "without a name");
    begin_table(0, "t", 1, 2);
    for (int i = 0; i < 2; i++) {
        put_name("");
        put_byte(QWP_TYPE_TIMESTAMP);
    }
    expect_fault(QWP_STATUS_PARSE_ERROR, "second designated");
    begin_table(0, "t", 1, 2);
    put_name("Žluť");
    put_byte(QWP_TYPE_LONG);
    put_name("žluť");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "same but for case");
    begin_table(0, "t", 1, 1);
    put_name("a-b");
    put_byte(QWP_TYPE_LONG);
    expect_fault(QWP_STATUS_PARSE_ERROR, "'-'");
}
END_TEST

START_TEST(decode_two_thousand_columns_are_told_apart)
{
    begin_table(0, "t", 0, 2049);
    for (int i = 0; i < 2048; i++) {
        char name[16];
        snprintf(name, sizeof name, "c%d", i);
        put_name(name);
        put_byte(QWP_TYPE_LONG);
    }
    put_name("");
    put_byte(QWP_TYPE_TIMESTAMP);
    for (int i = 0; i < 2049; i++) {
        put_byte(0);
    }
    expect_ok();
}
END_TEST

START_TEST(decode_bad_bitmap_is_refused)
{
    begin_table(0, "t", 3, 1);
    put_name("a");
    put_byte(QWP_TYPE_BYTE);
    put_byte(1);
    put_byte(0x09);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond its 3 rows");
    begin_table(0, "t", 1, 1);
    put_name("");
    put_byte(QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_byte(1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "are null");
    begin_column(0, 3, "a", QWP_TYPE_BOOLEAN);
    put_byte(0x08);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond the last of 3");
}
END_TEST

START_TEST(decode_bad_text_is_refused)
{
    begin_column(0, 1, "a", QWP_TYPE_VARCHAR);
    put_u32(1);
    put_u32(1);
    expect_fault(QWP_STATUS_PARSE_ERROR, "first offset is 1");
    begin_column(0, 2, "a", QWP_TYPE_BINARY);
    put_u32(0);
    put_u32(2);
    put_u32(1);
    put("xx", 2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "offset 2 falls from 2 to 1");
    begin_column(0, 1, "a", QWP_TYPE_VARCHAR);
    put_u32(0);
    put_u32(100);
    expect_fault(QWP_STATUS_PARSE_ERROR, "100 bytes, 0 are left");
    /* Valid as a whole, but cut inside a character. */
    begin_column(0, 2, "a", QWP_TYPE_VARCHAR);
    put_u32(0);
    put_u32(1);
    put_u32(2);
    put("\xc5\xbe", 2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "value 0 is not valid UTF-8");
}
END_TEST

START_TEST(decode_bad_parameter_is_refused)
{
    static const struct {
        unsigned type;
        unsigned parameter;
        const char *words;
    } cases[] = {
        {QWP_TYPE_GEOHASH, 0, "precision of 0"}, {QWP_TYPE_GEOHASH, 61, "is 61, at most 60"},
        {QWP_TYPE_DECIMAL64, 19, "scale 19"},    {QWP_TYPE_DECIMAL128, 39, "scale 39"},
        {QWP_TYPE_DECIMAL256, 77, "scale 77"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        begin_column(0, 0, "a", cases[i].type);
        put_byte(cases[i].parameter);
        expect_fault(QWP_STATUS_PARSE_ERROR, cases[i].words);
    }
    begin_column(0, 1, "a", QWP_TYPE_GEOHASH);
    put_byte(5);
    put_byte(0x20);
    expect_fault(QWP_STATUS_PARSE_ERROR, "beyond its precision of 5");
    begin_column(0, 1, "a", QWP_TYPE_GEOHASH);
    put_byte(5);
    put_byte(0xff); /* reserved: null */
    expect_ok();
}
END_TEST

START_TEST(decode_bad_array_is_refused)
{
    begin_column(0, 1, "a", QWP_TYPE_DOUBLE_ARRAY);
    put_byte(0);
    expect_fault(QWP_STATUS_PARSE_ERROR, "0 dimensions");
    begin_column(0, 1, "a", QWP_TYPE_DOUBLE_ARRAY);
    put_byte(33);
    expect_fault(QWP_STATUS_PARSE_ERROR, "33 dimensions");
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(1);
    put_u32(UINT32_MAX);
    expect_fault(QWP_STATUS_PARSE_ERROR, "negative length");
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(1);
    put_u32(2);
    put_i64(7);
    expect_fault(QWP_STATUS_PARSE_ERROR, "elements: 16 bytes, 8 are left");
    /* Lengths whose product overflows every integer, and then a zero: empty. */
    begin_column(0, 1, "a", QWP_TYPE_LONG_ARRAY);
    put_byte(4);
    for (int i = 0; i < 3; i++) {
        put_u32(INT32_MAX);
    }
    put_u32(0);
    expect_ok();
}
END_TEST

START_TEST(decode_bad_time_is_refused)
{
    begin_column(0, 1, "", QWP_TYPE_TIMESTAMP_NANOS);
    put_i64(-1);
    expect_fault(QWP_STATUS_WRITE_ERROR, "designated timestamp -1");
    begin_column(0, 1, "", QWP_TYPE_TIMESTAMP_NANOS);
    put_i64(QWP_DESIGNATED_NS_MAX + 1);
    expect_fault(QWP_STATUS_WRITE_ERROR, "outside 0 to");
    begin_column(0, 2, "", QWP_TYPE_TIMESTAMP);
    put_i64(QWP_DESIGNATED_US_MAX);
    put_i64(0);
    expect_ok();
    begin_column(0, 1, "t", QWP_TYPE_TIMESTAMP);
    put_i64(INT64_MIN);
    expect_ok();
    begin_column(QWP_FLAG_GORILLA, 3, "", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(20);
    put_i64(10);
    put_byte(0x05);
    put_byte(0x1f); /* 101 and the low bits of -3 ... */
    expect_fault(QWP_STATUS_WRITE_ERROR, "row 2");
    begin_column(QWP_FLAG_GORILLA, 1, "", QWP_TYPE_TIMESTAMP);
    put_byte(2);
    expect_fault(QWP_STATUS_PARSE_ERROR, "encoding 0x02");
}
END_TEST

/* Codes as the specification lists them, first prefix bit first. */
static uint64_t bits_at;

static void put_bits(uint64_t v, unsigned count)
{
    for (unsigned i = 0; i < count; i++, bits_at++) {
        if (bits_at % 8 == 0) {
            put_byte(0);
        }
        built.at[built.len - 1] |= (unsigned char)((v >> i & 1) << (bits_at % 8));
    }
}

START_TEST(decode_gorilla_block_gives_its_times)
{
    static const struct {
        unsigned prefix_bits;
        uint64_t prefix;
        unsigned bits;
        int64_t dod;
    } codes[] = {
        {1, 0, 0, 0},           {2, 1, 7, 63},    {2, 1, 7, -64},    {3, 3, 9, 255},
        {3, 3, 9, -256},        {4, 7, 12, 2047}, {4, 7, 12, -2048}, {4, 15, 32, INT32_MAX},
        {4, 15, 32, INT32_MIN}, {1, 0, 0, 0},     {1, 0, 0, 0},
    };
    enum { CODES = sizeof codes / sizeof codes[0] };
    begin_column(QWP_FLAG_GORILLA, CODES + 2, "t", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(1000);
    put_i64(2000);
    bits_at = 0;
    for (int i = 0; i < CODES; i++) {
        put_bits(codes[i].prefix, codes[i].prefix_bits);
        put_bits((uint64_t)codes[i].dod, codes[i].bits);
    }
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    expect_ok_in(&decoder, &message);
    struct qwp_table_block block;
    qwp_block_open(&decoder, &message, 0, &block);
    int64_t time = 2000;
    int64_t delta = 1000;
    ck_assert_int_eq(value_at(&decoder, &block, "t", 0).i64, 1000);
    ck_assert_int_eq(value_at(&decoder, &block, "t", 1).i64, 2000);
    for (uint32_t i = 0; i < CODES; i++) {
        delta += codes[i].dod;
        time += delta;
        ck_assert_int_eq(value_at(&decoder, &block, "t", i + 2).i64, time);
    }
    built.len--;
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "Gorilla");
    qwp_decoder_fini(&decoder);
}
END_TEST

static void begin_delta(uint64_t start, uint64_t count)
{
    begin(QWP_FLAG_DELTA_DICT, 0);
    put_varint(start);
    put_varint(count);
}

START_TEST(decode_dictionary_follows_its_rules)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    const struct qwp_decoder_options options = {.symbols_max = 4, .symbol_bytes_max = 8};
    qwp_decoder_init(&decoder, &options);
    begin_delta(1, 0);
    expect_fault_in(&decoder, QWP_STATUS_DICTIONARY_GAP, "begins at symbol 1");
    begin_delta(0, 2);
    put_name("a");
    put_name("");
    expect_ok_in(&decoder, &message);
    begin_delta(1, 2);
    put_name("");
    put_name("ccc");
    expect_ok_in(&decoder, &message);
    ck_assert_uint_eq(decoder.dict.count, 3);
    ck_assert_uint_eq(qwp_decoder_symbol(&decoder, 2).len, 3);
    begin_delta(2, 1);
    put_name("ccd");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "another text");
    begin_delta(3, 1);
    put_name("\xff");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "UTF-8");
    begin_delta(3, 2);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "number of symbols in the delta is 2");
    begin_delta(3, 1);
    put_name("12345");
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "more than 8 bytes");
    ck_assert_uint_eq(decoder.dict.count, 3);
    begin_column(QWP_FLAG_DELTA_DICT, 1, "s", QWP_TYPE_SYMBOL);
    put_byte(3);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "symbol 3, the connection has 3");
    begin_column(0, 1, "s", QWP_TYPE_SYMBOL);
    put_byte(2);
    expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, "DELTA_SYMBOL_DICT");
    qwp_decoder_reset(&decoder);
    begin_delta(1, 0);
    expect_fault_in(&decoder, QWP_STATUS_DICTIONARY_GAP, "the connection has 0");
    qwp_decoder_fini(&decoder);
}
END_TEST

/* Ids of one and two bytes mixed, in runs of every length around the eight that are looked at
 * together; then one that is too large at every place. */
START_TEST(decode_symbol_ids_are_judged_at_every_place)
{
    struct qwp_decoder decoder;
    struct qwp_message message;
    qwp_decoder_init(&decoder, NULL);
    begin_delta(0, _i);
    for (int i = 0; i < _i; i++) {
        put_name("s");
    }
    expect_ok_in(&decoder, &message);
    for (uint32_t rows = 1; rows < 40; rows++) {
        for (uint32_t bad = 0; bad <= rows; bad++) {
            begin_column(QWP_FLAG_DELTA_DICT, rows, "s", QWP_TYPE_SYMBOL);
            for (uint32_t row = 0; row < rows; row++) {
                put_varint(row == bad ? (unsigned)_i : (row * 37 + bad) % (unsigned)_i);
            }
            if (bad < rows) {
                char words[32];
                snprintf(words, sizeof words, "value %u: symbol %d", bad, _i);
                expect_fault_in(&decoder, QWP_STATUS_PARSE_ERROR, words);
            } else {
                expect_ok_in(&decoder, &message);
                struct qwp_table_block block;
                qwp_block_open(&decoder, &message, 0, &block);
                ck_assert_uint_eq(value_at(&decoder, &block, "s", rows - 1).symbol.id,
                                  ((rows - 1) * 37 + bad) % (unsigned)_i);
            }
        }
    }
    qwp_decoder_fini(&decoder);
}
END_TEST

START_TEST(decode_count_depth_counts_the_same)
{
    struct qwp_decoder full;
    struct qwp_decoder count;
    struct qwp_message seen;
    struct qwp_message counted;
    qwp_decoder_init(&full, NULL);
    qwp_decoder_init(&count, &(struct qwp_decoder_options){.depth = QWP_DECODE_COUNT});
    for (int i = 0; i < VECTORS; i++) {
        load_vector(i, &vector);
        ck_assert_int_eq(qwp_decode_message(&full, vector.at, vector.len, &seen, NULL), QWP_OK);
        ck_assert_int_eq(qwp_decode_message(&count, vector.at, vector.len, &counted, NULL), QWP_OK);
        ck_assert_uint_eq(seen.row_count, counted.row_count);
        ck_assert(seen.readable && !counted.readable);
        for (uint32_t b = 0; b < seen.block_count; b++) {
            ck_assert_uint_eq(qwp_block_head(&full, &seen, b)->row_count,
                              qwp_block_head(&count, &counted, b)->row_count);
        }
    }
    /* A Gorilla block at the end is judged by its size alone. */
    begin_column(QWP_FLAG_GORILLA, 10, "", QWP_TYPE_TIMESTAMP);
    put_byte(1);
    put_i64(0);
    put_i64(1);
    expect_fault_in(&count, QWP_STATUS_PARSE_ERROR, "0 bytes cannot be the Gorilla codes");
    put_byte(0);
    expect_ok_in(&count, &counted);
    ck_assert_uint_eq(counted.row_count, 10);
    built.len += 40;
    expect_fault_in(&count, QWP_STATUS_PARSE_ERROR, "cannot be the Gorilla codes");
    qwp_decoder_fini(&full);
    qwp_decoder_fini(&count);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("decode");
    TCase *tcase = tcase_create("decode");
    tcase_set_timeout(tcase, 240);
    tcase_add_test(tcase, decode_trades_message_gives_its_rows);
    tcase_add_test(tcase, decode_notes_message_gives_its_nulls);
    tcase_add_test(tcase, decode_two_tables_message_gives_both);
    tcase_add_test(tcase, decode_types_message_gives_each_type);
    tcase_add_test(tcase, decode_last_messages_give_their_rows);
    tcase_add_loop_test(tcase, decode_cut_message_is_refused_at_every_length, 0, VECTORS);
    tcase_add_loop_test(tcase, decode_changed_byte_never_reads_outside, 0, VECTORS);
    tcase_add_test(tcase, decode_bad_header_is_refused);
    tcase_add_test(tcase, decode_bad_table_is_refused);
    tcase_add_test(tcase, decode_two_thousand_columns_are_told_apart);
    tcase_add_test(tcase, decode_bad_bitmap_is_refused);
    tcase_add_test(tcase, decode_bad_text_is_refused);
    tcase_add_test(tcase, decode_bad_parameter_is_refused);
    tcase_add_test(tcase, decode_bad_array_is_refused);
    tcase_add_test(tcase, decode_bad_time_is_refused);
    tcase_add_test(tcase, decode_gorilla_block_gives_its_times);
    tcase_add_test(tcase, decode_dictionary_follows_its_rules);
    tcase_add_loop_test(tcase, decode_symbol_ids_are_judged_at_every_place, 1, 3);
    tcase_add_loop_test(tcase, decode_symbol_ids_are_judged_at_every_place, 126, 131);
    tcase_add_test(tcase, decode_count_depth_counts_the_same);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: the decoder reads what a released client wrote, names the byte at which anything else goes
 * wrong, and never reads outside the message.
 * Method: recorded messages of one connection compared value by value; each cut at every length and
 * with every byte changed, in memory that ends where the message ends, so that a sanitizer sees a
 * read beyond. Faults one by one: test_decode_built.c. */
#include "core/wire/qwp_decode.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "tests/core/decode_fixture.h"

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
    tcase_add_test(tcase, decode_count_depth_counts_the_same);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

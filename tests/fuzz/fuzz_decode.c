/* Aim: no message, whatever its bytes, makes the decoder read outside, overflow or disagree with
 * itself.
 * Method: libFuzzer feeds messages of one connection (several in one input, each after a u16
 * length), decoded in COUNT depth and in FULL depth; what passed is read to the last value, each
 * column twice. Corpus: the recorded messages, see tests/fuzz/README.md. */
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void touch(const unsigned char *at, size_t len, uint64_t *sum)
{
    for (size_t i = 0; i < len; i++) {
        *sum += at[i];
    }
}

static void touch_value(const struct qwp_value *value, uint64_t *sum)
{
    if (value->null) {
        return;
    }
    switch (value->type) {
    case QWP_TYPE_SYMBOL:
        touch((const unsigned char *)value->symbol.text.text, value->symbol.text.len, sum);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
    case QWP_TYPE_UUID:
    case QWP_TYPE_LONG256:
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        touch(value->bytes.at, value->bytes.len, sum);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        touch(value->array.lengths, 4 * (size_t)value->array.dimensions, sum);
        touch(value->array.elements, 8 * (size_t)value->array.element_count, sum);
        break;
    default:
        *sum += value->u64;
        break;
    }
}

static uint64_t read_column(const struct qwp_decoder *decoder, const struct qwp_column *column)
{
    struct qwp_cursor cursor;
    struct qwp_value value = {0};
    uint64_t sum = 0;
    uint32_t rows = 0;
    qwp_cursor_init(&cursor, decoder, column);
    while (qwp_cursor_next(&cursor, &value)) {
        touch_value(&value, &sum);
        value = (struct qwp_value){0};
        rows++;
    }
    QWP_ASSERT(rows == column->row_count);
    return sum;
}

static void read_message(struct qwp_decoder *decoder, const struct qwp_message *message)
{
    uint64_t rows = 0;
    for (uint32_t b = 0; b < message->block_count; b++) {
        struct qwp_table_block block;
        qwp_block_open(decoder, message, b, &block);
        rows += block.row_count;
        /* Rows cost nothing on the wire where they are null: keep an input's time in bounds. */
        for (uint32_t c = 0; c < block.column_count && block.row_count < 4096; c++) {
            const uint64_t sum = read_column(decoder, &block.columns[c]);
            QWP_ASSERT(read_column(decoder, &block.columns[c]) == sum);
        }
    }
    QWP_ASSERT(rows == message->row_count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qwp_decoder full;
    struct qwp_decoder count;
    qwp_decoder_init(&full, NULL);
    qwp_decoder_init(&count, &(struct qwp_decoder_options){.depth = QWP_DECODE_COUNT});
    while (size >= 2) {
        size_t len = qwp_load_u16(data);
        data += 2;
        size -= 2;
        len = len < size ? len : size;
        unsigned char *copy = malloc(len > 0 ? len : 1);
        QWP_ASSERT(copy != NULL);
        if (len > 0) {
            memcpy(copy, data, len);
        }
        struct qwp_message message;
        struct qwp_message counted;
        struct qwp_error err;
        const enum qwp_result deep = qwp_decode_message(&full, copy, len, &message, &err);
        const enum qwp_result shallow = qwp_decode_message(&count, copy, len, &counted, &err);
        if (deep == QWP_OK) {
            QWP_ASSERT(shallow == QWP_OK && counted.row_count == message.row_count);
            read_message(&full, &message);
        }
        free(copy);
        data += len;
        size -= len;
        if (deep != QWP_OK) {
            break; /* an error ends a connection */
        }
    }
    qwp_decoder_fini(&full);
    qwp_decoder_fini(&count);
    return 0;
}

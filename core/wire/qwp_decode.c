#include "core/wire/qwp_decode.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode_internal.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_varint.h"

enum { NAMES_SEEN_SLOTS = 8192 }; /* a power of two; at most half full */

void qwp_decoder_init(struct qwp_decoder *decoder, const struct qwp_decoder_options *options)
{
    memset(decoder, 0, sizeof *decoder);
    if (options != NULL) {
        decoder->options = *options;
    }
    struct qwp_decoder_options *o = &decoder->options;
    o->symbols_max = o->symbols_max != 0 ? o->symbols_max : QWP_DECODE_SYMBOLS_MAX;
    o->symbol_bytes_max =
        o->symbol_bytes_max != 0 ? o->symbol_bytes_max : QWP_DECODE_SYMBOL_BYTES_MAX;
    o->message_bytes_max = o->message_bytes_max != 0 ? o->message_bytes_max : QWP_MESSAGE_BYTES_MAX;
    o->name_bytes_max = o->name_bytes_max != 0 ? o->name_bytes_max : QWP_NAME_BYTES_MAX;
}

void qwp_decoder_fini(struct qwp_decoder *decoder)
{
    free(decoder->dict.text);
    free(decoder->dict.ends);
    free(decoder->blocks);
    free(decoder->column_offs);
    free(decoder->columns);
    free(decoder->names_seen);
    memset(decoder, 0, sizeof *decoder);
}

void qwp_decoder_reset(struct qwp_decoder *decoder)
{
    decode_dict_cut(&decoder->dict, 0);
    decoder->block_count = 0;
    decoder->column_off_count = 0;
}

enum qwp_result decode_fail(struct decode_pass *pass, enum qwp_status status,
                            const unsigned char *at, const char *format, ...)
{
    pass->decoder->fault_status = status;
    pass->decoder->fault_off = (size_t)(at - pass->start);
    if (pass->err == NULL) {
        return QWP_CORRUPT;
    }
    char text[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return qwp_fail(pass->err, QWP_CORRUPT, 0, "byte %zu: %s", (size_t)(at - pass->start), text);
}

enum qwp_result decode_varint(struct decode_pass *pass, uint64_t max, const char *what, uint64_t *v)
{
    const unsigned char *after = qwp_varint_get(pass->at, pass->end, v);
    if (after == NULL) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "%s: no varint within the message", what);
    }
    if (*v > max) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at, "%s is %llu, at most %llu", what,
                           (unsigned long long)*v, (unsigned long long)max);
    }
    pass->at = after;
    return QWP_OK;
}

enum qwp_result decode_skip(struct decode_pass *pass, uint64_t n, const char *what)
{
    if (n > decode_left(pass)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "%s: %llu bytes, %zu are left in the message", what,
                           (unsigned long long)n, decode_left(pass));
    }
    pass->at += n;
    return QWP_OK;
}

enum qwp_result decode_reserve(void **items, size_t *room, size_t count, size_t item_bytes)
{
    if (count <= *room) {
        return QWP_OK;
    }
    size_t wanted = *room < 16 ? 16 : *room * 2;
    if (wanted < count) {
        wanted = count;
    }
    void *grown = realloc(*items, wanted * item_bytes);
    if (grown == NULL) {
        return QWP_NOMEM;
    }
    *items = grown;
    *room = wanted;
    return QWP_OK;
}

/* Header; leaves `at` behind it. */
static enum qwp_result decode_header(struct decode_pass *pass, uint16_t *table_count)
{
    const unsigned char *p = pass->start;
    const size_t len = decode_left(pass);
    if (len < QWP_HEADER_BYTES) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p,
                           "%zu bytes are no message, its header alone has %d", len,
                           QWP_HEADER_BYTES);
    }
    if (len > pass->decoder->options.message_bytes_max) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p, "message of %zu bytes, at most %u", len,
                           pass->decoder->options.message_bytes_max);
    }
    if (qwp_load_u32(p) != QWP_WIRE_MAGIC) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p,
                           "begins with %02x %02x %02x %02x, not with \"QWP1\"", p[0], p[1], p[2],
                           p[3]);
    }
    if (p[4] != QWP_WIRE_VERSION) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p + 4, "version %u, negotiated was %d",
                           p[4], QWP_WIRE_VERSION);
    }
    if ((p[5] & ~QWP_FLAGS_KNOWN) != 0) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p + 5, "unknown flags in 0x%02x", p[5]);
    }
    if (qwp_load_u32(p + 8) != len - QWP_HEADER_BYTES) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, p + 8,
                           "payload length %u, but %zu bytes follow the header",
                           qwp_load_u32(p + 8), len - QWP_HEADER_BYTES);
    }
    pass->flags = p[5];
    *table_count = qwp_load_u16(p + 6);
    pass->at += QWP_HEADER_BYTES;
    return QWP_OK;
}

/* Length and bytes of a name, not yet judged. */
static enum qwp_result decode_name(struct decode_pass *pass, const char *what,
                                   struct qwp_name *name)
{
    uint64_t len;
    enum qwp_result result = decode_varint(pass, pass->decoder->options.name_bytes_max, what, &len);
    if (result != QWP_OK) {
        return result;
    }
    name->text = (const char *)pass->at;
    name->len = (uint32_t)len;
    return decode_skip(pass, len, what);
}

static bool is_timestamp(uint8_t type)
{
    return type == QWP_TYPE_TIMESTAMP || type == QWP_TYPE_TIMESTAMP_NANOS;
}

/* Passes a verdict of core/wire/qwp_names.h on with the offset. */
static enum qwp_result name_refused(struct decode_pass *pass, struct qwp_name name,
                                    const struct qwp_error *why)
{
    return decode_fail(pass, QWP_STATUS_PARSE_ERROR, (const unsigned char *)name.text, "%s",
                       why->text);
}

/* Puts column `index` into the hash table of names; finds out about twins. */
static enum qwp_result name_is_new(struct decode_pass *pass, uint32_t index, uint32_t mask)
{
    struct qwp_decoder *decoder = pass->decoder;
    struct qwp_column *column = &decoder->columns[index];
    column->name_hash = qwp_name_hash(column->name.text, column->name.len);
    uint32_t slot = (uint32_t)column->name_hash & mask;
    for (; decoder->names_seen[slot] != 0; slot = (slot + 1) & mask) {
        const struct qwp_column *other = &decoder->columns[decoder->names_seen[slot] - 1];
        if (other->name_hash == column->name_hash &&
            qwp_name_equal(other->name.text, other->name.len, column->name.text,
                           column->name.len)) {
            return decode_fail(
                pass, QWP_STATUS_PARSE_ERROR, (const unsigned char *)column->name.text,
                "columns '%.*s' and '%.*s' are the same but for case", (int)other->name.len,
                other->name.text, (int)column->name.len, column->name.text);
        }
    }
    decoder->names_seen[slot] = (uint16_t)(index + 1);
    return QWP_OK;
}

/* Judges name and type of column `index`, whose header was read. */
static enum qwp_result column_header_check(struct decode_pass *pass, uint32_t index, uint32_t mask,
                                           struct qwp_block_head *head)
{
    struct qwp_column *column = &pass->decoder->columns[index];
    if (qwp_type_field_bytes(column->type) == 0) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "column '%.*s': unknown type 0x%02x", (int)column->name.len,
                           column->name.text, column->type);
    }
    if (column->name.len > 0) {
        struct qwp_error why;
        if (qwp_column_name_check(column->name.text, column->name.len,
                                  pass->decoder->options.name_bytes_max, &why) != QWP_OK) {
            return name_refused(pass, column->name, &why);
        }
        return name_is_new(pass, index, mask);
    }
    if (!is_timestamp(column->type)) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "a column of type %s without a name", qwp_type_name(column->type));
    }
    if (head->has_designated) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at - 1,
                           "a second designated timestamp");
    }
    head->has_designated = true;
    head->designated_type = column->type;
    return QWP_OK;
}

/* Reads the headers of the columns into decoder->columns; judges them when `mask` is not 0. */
static enum qwp_result decode_column_headers(struct decode_pass *pass, struct qwp_block_head *head,
                                             uint32_t mask)
{
    struct qwp_decoder *decoder = pass->decoder;
    for (uint32_t i = 0; i < head->column_count; i++) {
        struct qwp_column *column = &decoder->columns[i];
        memset(column, 0, sizeof *column);
        column->row_count = head->row_count;
        column->time_scale = 1;
        enum qwp_result result = decode_name(pass, "length of a column name", &column->name);
        if (result == QWP_OK) {
            result = decode_skip(pass, 1, "column type");
        }
        if (result != QWP_OK) {
            return result;
        }
        column->type = pass->at[-1];
        column->designated = column->name.len == 0;
        if (mask != 0) {
            result = column_header_check(pass, i, mask, head);
            if (result != QWP_OK) {
                return result;
            }
        }
    }
    return QWP_OK;
}

/* Memory for the widest block there can be; 200 KiB, taken once. */
static enum qwp_result reserve_columns(struct qwp_decoder *decoder)
{
    if (decoder->columns == NULL) {
        decoder->columns = calloc(QWP_DECODE_COLUMNS_MAX, sizeof *decoder->columns);
    }
    if (decoder->names_seen == NULL) {
        decoder->names_seen = calloc(NAMES_SEEN_SLOTS, sizeof *decoder->names_seen);
    }
    return decoder->columns != NULL && decoder->names_seen != NULL ? QWP_OK : QWP_NOMEM;
}

/* Size of the table of names for so many columns, less one. Clears it. */
static uint32_t names_seen_begin(struct qwp_decoder *decoder, uint32_t column_count)
{
    uint32_t slots = 16;
    while (slots < 2 * column_count) {
        slots *= 2;
    }
    QWP_ASSERT(slots <= NAMES_SEEN_SLOTS);
    memset(decoder->names_seen, 0, slots * sizeof *decoder->names_seen);
    return slots - 1;
}

static enum qwp_result decode_table_header(struct decode_pass *pass, struct qwp_block_head *head)
{
    head->start_off = (uint32_t)(pass->at - pass->start);
    enum qwp_result result = decode_name(pass, "length of a table name", &head->table);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_error why;
    if (qwp_table_name_check(head->table.text, head->table.len,
                             pass->decoder->options.name_bytes_max, &why) != QWP_OK) {
        return name_refused(pass, head->table, &why);
    }
    uint64_t rows;
    uint64_t columns = 0;
    result = decode_varint(pass, QWP_BLOCK_ROWS_MAX, "number of rows", &rows);
    if (result == QWP_OK) {
        result = decode_varint(pass, QWP_DECODE_COLUMNS_MAX, "number of columns", &columns);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(pass->err, "table '%.*s'", (int)head->table.len, head->table.text);
        return result;
    }
    head->row_count = (uint32_t)rows;
    head->column_count = (uint32_t)columns;
    head->columns_off = (uint32_t)(pass->at - pass->start);
    return QWP_OK;
}

/* The data of all columns; notes where each begins. */
static enum qwp_result decode_column_data(struct decode_pass *pass,
                                          const struct qwp_block_head *head)
{
    struct qwp_decoder *decoder = pass->decoder;
    for (uint32_t i = 0; i < head->column_count; i++) {
        struct qwp_column *column = &decoder->columns[i];
        decoder->column_offs[decoder->column_off_count++] = (uint32_t)(pass->at - pass->start);
        enum qwp_result result = decode_column_open(pass, column);
        if (result == QWP_OK) {
            result = decode_column_values(pass, column, i + 1 == head->column_count);
        }
        if (result != QWP_OK) {
            qwp_error_prefix(pass->err, "column '%.*s' (%s)", (int)column->name.len,
                             column->name.text, qwp_type_name(column->type));
            return result;
        }
    }
    return QWP_OK;
}

static enum qwp_result decode_block(struct decode_pass *pass, struct qwp_block_head *head)
{
    struct qwp_decoder *decoder = pass->decoder;
    memset(head, 0, sizeof *head);
    head->first_column = (uint32_t)decoder->column_off_count;
    enum qwp_result result = decode_table_header(pass, head);
    if (result != QWP_OK) {
        return result;
    }
    const uint32_t mask = names_seen_begin(decoder, head->column_count);
    result = decode_column_headers(pass, head, mask);
    if (result == QWP_OK && head->column_count - head->has_designated > QWP_COLUMNS_MAX) {
        result = decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at, "%u columns, at most %d",
                             head->column_count, QWP_COLUMNS_MAX);
    }
    if (result == QWP_OK) {
        result = decode_reserve((void **)&decoder->column_offs, &decoder->column_offs_room,
                                decoder->column_off_count + head->column_count,
                                sizeof *decoder->column_offs);
    }
    if (result == QWP_OK) {
        result = decode_column_data(pass, head);
    }
    if (result == QWP_CORRUPT) {
        qwp_error_prefix(pass->err, "table '%.*s'", (int)head->table.len, head->table.text);
    }
    return result;
}

/* All blocks, to the last byte. */
static enum qwp_result decode_blocks(struct decode_pass *pass, struct qwp_message *message)
{
    struct qwp_decoder *decoder = pass->decoder;
    for (uint32_t i = 0; i < message->block_count; i++) {
        decoder->fault_block = i;
        pass->last_block = i + 1 == message->block_count;
        enum qwp_result result = decode_reserve((void **)&decoder->blocks, &decoder->blocks_room,
                                                i + 1, sizeof *decoder->blocks);
        if (result == QWP_OK) {
            result = decode_block(pass, &decoder->blocks[i]);
        }
        if (result != QWP_OK) {
            return result;
        }
        message->row_count += decoder->blocks[i].row_count;
        decoder->block_count = i + 1;
    }
    decoder->fault_block = UINT32_MAX;
    if (pass->at != pass->end) {
        return decode_fail(pass, QWP_STATUS_PARSE_ERROR, pass->at,
                           "%zu bytes are left behind the last of %u tables", decode_left(pass),
                           message->block_count);
    }
    return QWP_OK;
}

static enum qwp_result decode_all(struct decode_pass *pass, struct qwp_message *message)
{
    uint16_t table_count = 0;
    enum qwp_result result = decode_header(pass, &table_count);
    if (result != QWP_OK) {
        return result;
    }
    message->flags = pass->flags;
    message->block_count = table_count;
    if ((pass->flags & QWP_FLAG_DELTA_DICT) != 0) {
        result = decode_delta(pass, &message->delta_start, &message->delta_count);
        if (result != QWP_OK) {
            return result;
        }
    }
    return decode_blocks(pass, message);
}

enum qwp_result qwp_decode_message(struct qwp_decoder *decoder, const void *bytes, size_t len,
                                   struct qwp_message *message, struct qwp_error *err)
{
    struct decode_pass pass = {
        .decoder = decoder,
        .err = err,
        .start = bytes,
        .at = bytes,
        .end = (const unsigned char *)bytes + len,
        .deep = decoder->options.depth == QWP_DECODE_FULL,
    };
    decoder->block_count = 0;
    decoder->column_off_count = 0;
    decoder->fault_block = UINT32_MAX;
    const uint32_t symbols_before = decoder->dict.count;
    struct qwp_message out = {.bytes = bytes, .len = len, .readable = pass.deep};
    enum qwp_result result = reserve_columns(decoder);
    if (result == QWP_OK) {
        result = decode_all(&pass, &out);
    }
    if (result != QWP_OK) {
        decode_dict_cut(&decoder->dict, symbols_before);
        if (result == QWP_NOMEM) {
            decoder->fault_status = QWP_STATUS_INTERNAL_ERROR;
            qwp_fail(err, QWP_NOMEM, 0, "no memory to decode a message of %zu bytes", len);
        }
        return result;
    }
    *message = out;
    return QWP_OK;
}

const struct qwp_block_head *qwp_block_head(const struct qwp_decoder *decoder,
                                            const struct qwp_message *message, uint32_t index)
{
    QWP_ASSERT(index < message->block_count && decoder->block_count == message->block_count);
    return &decoder->blocks[index];
}

/* The rest of a compact block, see QWP_ENCODE_COMPACT_TIME: behind a single row with nanoseconds.
 */
static void us_as_ns(struct qwp_decoder *decoder, struct qwp_block_head *head,
                     struct qwp_column *column)
{
    const struct qwp_block_head *before = head - 1;
    if (head == decoder->blocks || column->type != QWP_TYPE_TIMESTAMP || before->row_count != 1 ||
        before->designated_type != QWP_TYPE_TIMESTAMP_NANOS ||
        before->table.len != head->table.len ||
        memcmp(before->table.text, head->table.text, head->table.len) != 0) {
        return;
    }
    struct qwp_cursor cursor;
    struct qwp_value value;
    int64_t max = 0;
    qwp_cursor_init(&cursor, decoder, column);
    while (qwp_cursor_next(&cursor, &value)) {
        max = !value.null && value.i64 > max ? value.i64 : max;
    }
    if (max > QWP_DESIGNATED_NS_MAX / 1000) {
        return; /* then it is a table with microseconds after all */
    }
    column->type = QWP_TYPE_TIMESTAMP_NANOS;
    column->time_scale = 1000;
    head->us_as_ns = true;
}

void qwp_block_open(struct qwp_decoder *decoder, const struct qwp_message *message, uint32_t index,
                    struct qwp_table_block *block)
{
    QWP_ASSERT(message->readable);
    QWP_ASSERT(index < message->block_count && decoder->block_count == message->block_count);
    struct qwp_block_head *head = &decoder->blocks[index];
    struct decode_pass pass = {
        .decoder = decoder,
        .start = message->bytes,
        .at = message->bytes + head->columns_off,
        .end = message->bytes + message->len,
        .flags = message->flags,
    };
    QWP_ASSERT(decode_column_headers(&pass, head, 0) == QWP_OK);
    block->table = head->table;
    block->row_count = head->row_count;
    block->column_count = head->column_count;
    block->columns = decoder->columns;
    block->designated = NULL;
    for (uint32_t i = 0; i < head->column_count; i++) {
        struct qwp_column *column = &decoder->columns[i];
        pass.at = message->bytes + decoder->column_offs[head->first_column + i];
        QWP_ASSERT(decode_column_open(&pass, column) == QWP_OK);
        if (column->designated) {
            block->designated = column;
            us_as_ns(decoder, head, column);
        }
    }
}

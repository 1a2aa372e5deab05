#include "sidecar/qwp_row_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "sidecar/qwp_json.h"

static void put_text(FILE *out, const char *text, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        fputs("\"(no memory)\"", out);
        return;
    }
    memcpy(copy, text, len);
    copy[len] = '\0'; /* a text with a zero byte in it is cut there */
    qwp_json_text(out, copy);
    free(copy);
}

static void put_double(FILE *out, double v, int digits)
{
    if (isfinite(v)) {
        fprintf(out, "%.*g", digits, v);
    } else {
        fputs(isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"", out);
    }
}

/* As one number, most significant byte first. */
static void put_hex(FILE *out, const char *prefix, const unsigned char *at, size_t len,
                    bool little_endian)
{
    fprintf(out, "\"%s", prefix);
    for (size_t i = 0; i < len; i++) {
        fprintf(out, "%02x", at[little_endian ? len - 1 - i : i]);
    }
    fputc('"', out);
}

static void put_uuid(FILE *out, const unsigned char *at)
{
    const uint64_t low = qwp_load_u64(at);
    const uint64_t high = qwp_load_u64(at + 8);
    fprintf(out, "\"%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64 "\"",
            high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48,
            low & UINT64_C(0xffffffffffff));
}

static void put_decimal(FILE *out, const struct qwp_value *value, uint8_t scale)
{
    if (value->bytes.len == 8) {
        fprintf(out, "{\"unscaled\":%" PRId64 ",\"scale\":%u}", qwp_load_i64(value->bytes.at),
                scale);
        return;
    }
    fputs("{\"unscaled\":", out);
    put_hex(out, "0x", value->bytes.at, value->bytes.len, true);
    fprintf(out, ",\"scale\":%u}", scale);
}

static void put_char(FILE *out, uint64_t unit)
{
    /* One UTF-16 code unit; half of a pair stays an escape. */
    if (unit >= 0x20 && unit < 0x7f && unit != '"' && unit != '\\') {
        fprintf(out, "\"%c\"", (int)unit);
    } else {
        fprintf(out, "\"\\u%04x\"", (unsigned)unit & 0xffff);
    }
}

static void put_elements(FILE *out, const struct qwp_value *value, uint32_t dimension,
                         const unsigned char **at)
{
    const uint32_t count = qwp_load_u32(value->array.lengths + 4 * (size_t)dimension);
    fputc('[', out);
    for (uint32_t i = 0; i < count && (value->array.element_count > 0 || i == 0); i++) {
        fputs(i > 0 ? "," : "", out);
        if (dimension + 1 < value->array.dimensions) {
            put_elements(out, value, dimension + 1, at);
        } else if (value->array.element_count > 0) {
            double element;
            memcpy(&element, *at, sizeof element);
            if (value->type == QWP_TYPE_DOUBLE_ARRAY) {
                put_double(out, element, 17);
            } else {
                fprintf(out, "%" PRId64, qwp_load_i64(*at));
            }
            *at += 8;
        }
    }
    fputc(']', out);
}

static void put_value(FILE *out, const struct qwp_column *column, const struct qwp_value *value)
{
    const unsigned char *elements;
    switch (value->type) {
    case QWP_TYPE_BOOLEAN:
        fputs(value->boolean ? "true" : "false", out);
        break;
    case QWP_TYPE_FLOAT:
        put_double(out, (double)value->f32, 9);
        break;
    case QWP_TYPE_DOUBLE:
        put_double(out, value->f64, 17);
        break;
    case QWP_TYPE_SYMBOL:
        put_text(out, value->symbol.text.text, value->symbol.text.len);
        break;
    case QWP_TYPE_VARCHAR:
        put_text(out, (const char *)value->bytes.at, value->bytes.len);
        break;
    case QWP_TYPE_BINARY:
        put_hex(out, "", value->bytes.at, value->bytes.len, false);
        break;
    case QWP_TYPE_UUID:
        put_uuid(out, value->bytes.at);
        break;
    case QWP_TYPE_LONG256:
        put_hex(out, "0x", value->bytes.at, value->bytes.len, true);
        break;
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        put_decimal(out, value, column->parameter);
        break;
    case QWP_TYPE_GEOHASH:
        fprintf(out, "{\"geohash\":%" PRIu64 ",\"bits\":%u}", value->u64, column->parameter);
        break;
    case QWP_TYPE_CHAR:
        put_char(out, value->u64);
        break;
    case QWP_TYPE_IPV4:
        fprintf(out, "\"%u.%u.%u.%u\"", (unsigned)(value->u64 >> 24 & 255),
                (unsigned)(value->u64 >> 16 & 255), (unsigned)(value->u64 >> 8 & 255),
                (unsigned)(value->u64 & 255));
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        elements = value->array.elements;
        put_elements(out, value, 0, &elements);
        break;
    default:
        fprintf(out, "%" PRId64, value->i64);
        break;
    }
}

static void put_row(const struct qwp_table_block *block, struct qwp_cursor *cursors, FILE *out)
{
    int64_t time = 0;
    const struct qwp_column *timed = NULL;
    const char *comma = "";
    fputs("{\"table\":", out);
    put_text(out, block->table.text, block->table.len);
    fputs(",\"columns\":{", out);
    for (uint32_t c = 0; c < block->column_count; c++) {
        const struct qwp_column *column = &block->columns[c];
        struct qwp_value value;
        if (!qwp_cursor_next(&cursors[c], &value) || value.null) {
            continue;
        }
        if (column->designated) {
            time = value.i64;
            timed = column;
            continue;
        }
        fputs(comma, out);
        put_text(out, column->name.text, column->name.len);
        fputc(':', out);
        put_value(out, column, &value);
        comma = ",";
    }
    fputc('}', out);
    if (timed != NULL) {
        fprintf(out, ",\"timestamp_%s\":%" PRId64,
                timed->type == QWP_TYPE_TIMESTAMP_NANOS ? "ns" : "us", time);
    }
    fputs("}\n", out);
}

uint64_t qwp_row_json_print(struct qwp_decoder *decoder, const struct qwp_message *message,
                            uint64_t rows_max, FILE *out)
{
    uint64_t printed = 0;
    for (uint32_t i = 0; i < message->block_count && printed < rows_max; i++) {
        struct qwp_table_block block;
        qwp_block_open(decoder, message, i, &block);
        struct qwp_cursor *cursors = calloc(block.column_count + 1, sizeof *cursors);
        if (cursors == NULL) {
            return printed;
        }
        for (uint32_t c = 0; c < block.column_count; c++) {
            qwp_cursor_init(&cursors[c], decoder, &block.columns[c]);
        }
        for (uint32_t row = 0; row < block.row_count && printed < rows_max; row++, printed++) {
            put_row(&block, cursors, out);
        }
        free(cursors);
    }
    return printed;
}

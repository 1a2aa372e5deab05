#include "clients/c/feed/qwp_feed_csv.h"

#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "clients/c/feed/qwp_feed_scan.h"
#include "core/wire/qwp_wire.h"

struct qwp_feed_csv {
    const struct qwp_feed_csv_layout *layout;
    struct qwp_feed_converter converter;
    const struct qwp_feed_shape *shape;
    struct qwp_feed_value *values;         /* of the shape */
    struct qwp_feed_symbol **last_symbols; /* of each column: symbols repeat */
    char *scratch;
    size_t scratch_bytes;
    size_t scratch_used;
    const char *data;
    const char *record; /* the last one */
    const char *at;
    const char *end;
};

enum qwp_result qwp_feed_csv_create(struct qwp_feed_csv **out,
                                    const struct qwp_feed_context *context,
                                    const struct qwp_feed_csv_layout *layout, struct qwp_error *err)
{
    struct qwp_feed_csv *csv = calloc(1, sizeof *csv);
    uint32_t *columns = calloc(layout->column_count + 1, sizeof *columns);
    enum qwp_result result = QWP_OK;
    if (csv != NULL) {
        csv->layout = layout;
        csv->converter.symbols = context->symbols;
        csv->values = calloc(layout->column_count + 1, sizeof *csv->values);
        csv->last_symbols = calloc(layout->column_count + 1, sizeof *csv->last_symbols);
    }
    if (csv == NULL || columns == NULL || csv->values == NULL || csv->last_symbols == NULL) {
        result = qwp_fail(err, QWP_NOMEM, 0, "no memory for the CSV parser");
        goto fail;
    }
    struct qwp_feed_table *table;
    result = qwp_feed_catalog_table(context->catalog, context->table, strlen(context->table),
                                    &table, err);
    size_t count = 0;
    for (uint32_t i = 0; result == QWP_OK && i < layout->column_count; i++) {
        const struct qwp_feed_csv_column *c = &layout->columns[i];
        if (c->type != 0) {
            result = qwp_feed_catalog_column(context->catalog, table, c->name, strlen(c->name),
                                             c->type, c->parameter, &columns[count++], err);
        }
    }
    bool wide;
    if (result == QWP_OK) {
        result = qwp_feed_catalog_shape(context->catalog, table, layout->at, columns, count,
                                        &csv->shape, &wide, err);
    }
    if (result != QWP_OK) {
        goto fail;
    }
    free(columns);
    *out = csv;
    return QWP_OK;
fail:
    free(columns);
    qwp_feed_csv_destroy(csv);
    return result;
}

void qwp_feed_csv_destroy(struct qwp_feed_csv *csv)
{
    if (csv == NULL) {
        return;
    }
    qwp_feed_converter_close(&csv->converter);
    free(csv->values);
    free(csv->last_symbols);
    free(csv->scratch);
    free(csv);
}

void qwp_feed_csv_begin(struct qwp_feed_csv *csv, const char *data, size_t len)
{
    csv->data = data;
    csv->at = data;
    csv->end = data + len;
}

/* Behind the closing quote of the field whose opening quote is at `at`; NULL: there is none. */
static const char *find_quoted_end(const char *at, const char *end, bool *doubled)
{
    *doubled = false;
    for (at++;; at += 2) {
        at = qwp_feed_find(at, end, '"', '"', '"');
        if (at >= end) {
            return NULL;
        }
        if (at + 1 >= end || at[1] != '"') {
            return at + 1;
        }
        *doubled = true;
    }
}

bool qwp_feed_csv_take(const char **at, const char *end, char delimiter,
                       struct qwp_feed_csv_field *out)
{
    const char *start = *at;
    const char *stop;
    out->quoted = start < end && *start == '"';
    out->doubled = false;
    if (out->quoted) {
        stop = find_quoted_end(start, end, &out->doubled);
        if (stop == NULL || (stop < end && *stop != delimiter)) {
            return false;
        }
        out->text = start + 1;
        out->len = (size_t)(stop - start) - 2;
    } else {
        stop = qwp_feed_find(start, end, delimiter, delimiter, delimiter);
        out->text = start;
        out->len = (size_t)(stop - start);
    }
    *at = stop < end ? stop + 1 : NULL;
    return true;
}

size_t qwp_feed_csv_record(const char *data, size_t len, char delimiter)
{
    const char *at = data;
    const char *end = data + len;
    while (at < end) {
        if (*at == '"') {
            bool doubled;
            at = find_quoted_end(at, end, &doubled);
            if (at == NULL) {
                return 0;
            }
        }
        at = qwp_feed_find(at, end, delimiter, '\n', '\n');
        if (at < end && *at == '\n') {
            return (size_t)(at - data) + 1;
        }
        at++;
    }
    return 0;
}

/* The field without doubled quotes. */
static void undouble(struct qwp_feed_csv *csv, struct qwp_feed_csv_field *field)
{
    char *out = csv->scratch + csv->scratch_used;
    size_t n = 0;
    for (size_t i = 0; i < field->len; i++) {
        out[n++] = field->text[i];
        i += field->text[i] == '"';
    }
    csv->scratch_used += n;
    field->text = out;
    field->len = n;
}

static void trim(struct qwp_feed_csv_field *field)
{
    while (field->len > 0 && (*field->text == ' ' || *field->text == '\t')) {
        field->text++;
        field->len--;
    }
    while (field->len > 0 &&
           (field->text[field->len - 1] == ' ' || field->text[field->len - 1] == '\t')) {
        field->len--;
    }
}

static enum qwp_result convert_time(const struct qwp_feed_csv_layout *layout,
                                    const struct qwp_feed_csv_field *field, int64_t *out,
                                    struct qwp_error *err)
{
    if (layout->at == QWP_AT_SERVER) {
        return QWP_OK;
    }
    const enum qwp_feed_unit unit = layout->at == QWP_AT_NS ? QWP_FEED_NS : QWP_FEED_US;
    struct qwp_feed_time time;
    if (qwp_feed_time_parse(&layout->time_format, field->text, field->len, &time) &&
        qwp_feed_time_in(time, unit, out)) {
        return QWP_OK;
    }
    const int shown = (int)(field->len < 40 ? field->len : 40);
    return qwp_fail(err, QWP_INVALID, 0,
                    "'%.*s' is not a time in the format expected (--time-format)", shown,
                    field->text);
}

static enum qwp_result convert_field(struct qwp_feed_csv *csv, uint32_t column,
                                     struct qwp_feed_csv_field *field, struct qwp_feed_value *value,
                                     struct qwp_error *err)
{
    const struct qwp_feed_csv_column *c = &csv->layout->columns[column];
    const bool is_text = c->type == QWP_VARCHAR || c->type == QWP_SYMBOL || c->type == QWP_CHAR;
    if (!is_text) {
        trim(field);
    }
    if (field->len == 0 && (!field->quoted || !is_text || c->type == QWP_CHAR)) {
        value->null = 1;
        return QWP_OK;
    }
    if (c->type == QWP_SYMBOL) {
        struct qwp_feed_symbol *last = csv->last_symbols[column];
        value->null = 0;
        if (last != NULL && last->len == field->len &&
            memcmp(last->text, field->text, field->len) == 0) {
            value->symbol = last;
            return QWP_OK;
        }
        qwp_feed_convert_symbol(&csv->converter, field->text, field->len, value);
        /* One that the table did not take does not outlive the row. */
        csv->last_symbols[column] =
            value->symbol->handle != QWP_FEED_SYMBOL_TEXT ? value->symbol : NULL;
        return QWP_OK;
    }
    return qwp_feed_convert(&csv->converter, c->type, c->parameter, field->text, field->len, value,
                            err);
}

/* Numbers that are nothing but digits and end where their field does, the most of them. */
static inline bool convert_number(const struct qwp_feed_csv_column *c,
                                  const struct qwp_feed_csv_field *field,
                                  struct qwp_feed_value *value)
{
    value->null = 0;
    return (c->type == QWP_LONG &&
            qwp_feed_scan_i64(field->text, &value->i64) == field->text + field->len) ||
           (c->type == QWP_DOUBLE &&
            qwp_feed_scan_double(field->text, &value->f64) == field->text + field->len);
}

static bool row_room(struct qwp_feed_csv *csv, size_t len)
{
    csv->scratch_used = 0;
    if (len > csv->scratch_bytes) {
        free(csv->scratch);
        csv->scratch = malloc(len * 2);
        csv->scratch_bytes = csv->scratch != NULL ? len * 2 : 0;
    }
    return len <= csv->scratch_bytes &&
           qwp_feed_converter_begin(&csv->converter, len, csv->layout->column_count);
}

static enum qwp_result parse_record(struct qwp_feed_csv *csv, const char *at, const char *end,
                                    struct qwp_feed_row *row, struct qwp_error *err)
{
    const struct qwp_feed_csv_layout *layout = csv->layout;
    if (!row_room(csv, (size_t)(end - at) + 1)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a line of %zu bytes", (size_t)(end - at));
    }
    struct qwp_feed_value *value = csv->values;
    row->at = 0;
    uint32_t column = 0;
    for (; at != NULL && column < layout->column_count; column++) {
        struct qwp_feed_csv_field field;
        const struct qwp_feed_csv_column *c = &layout->columns[column];
        if (!qwp_feed_csv_take(&at, end, layout->delimiter, &field)) {
            return qwp_fail(
                err, QWP_INVALID, 0,
                "column '%s': a quoted field is not closed, or goes on behind its quote", c->name);
        }
        if (c->type == 0 && !c->is_time) {
            continue;
        }
        if (field.doubled) {
            undouble(csv, &field);
        }
        enum qwp_result result;
        if (c->is_time) {
            trim(&field);
            result = convert_time(layout, &field, &row->at, err);
        } else if (!field.quoted && convert_number(c, &field, value)) {
            value++;
            continue;
        } else {
            result = convert_field(csv, column, &field, value++, err);
        }
        if (result != QWP_OK) {
            qwp_error_prefix(err, "column '%s'", c->name);
            return result;
        }
    }
    if (at != NULL || column < layout->column_count) {
        return qwp_fail(err, QWP_INVALID, 0, "the line has %s than %u fields",
                        at != NULL ? "more" : "fewer", layout->column_count);
    }
    row->shape = csv->shape;
    row->values = csv->values;
    return QWP_OK;
}

enum qwp_result qwp_feed_csv_next(struct qwp_feed_csv *csv, struct qwp_feed_row *row,
                                  struct qwp_feed_bad *bad)
{
    for (;;) {
        const char *at = csv->at;
        while (at < csv->end && (*at == '\n' || (*at == '\r' && at[1] == '\n'))) {
            at++;
        }
        if (at >= csv->end) {
            csv->at = csv->end;
            return QWP_AGAIN;
        }
        csv->record = at;
        /* The newline behind the block ends the last line. */
        const size_t room = (size_t)(csv->end - at) + 1;
        const char *stop = qwp_feed_find(at, csv->end, '\n', '"', '"');
        size_t len = *stop == '\n' ? (size_t)(stop - at) + 1
                                   : qwp_feed_csv_record(at, room, csv->layout->delimiter);
        enum qwp_result result;
        if (len != 0) {
            const char *end = at + len - 1;
            end -= end > at && end[-1] == '\r';
            result = parse_record(csv, at, end, row, &bad->err);
        } else {
            len = (size_t)((const char *)memchr(at, '\n', room) - at) + 1;
            result = qwp_fail(&bad->err, QWP_INVALID, 0, "a quoted field is not closed");
        }
        csv->at = at + len < csv->end ? at + len : csv->end;
        if (result != QWP_OK) {
            bad->off = (size_t)(at - csv->data);
            bad->len = (size_t)(csv->at - at);
        }
        return result;
    }
}

void qwp_feed_csv_last(const struct qwp_feed_csv *csv, size_t *off, size_t *len)
{
    *off = (size_t)(csv->record - csv->data);
    *len = (size_t)(csv->at - csv->record);
}

/* The general way through a line: any form, any escape, and all the messages. */
#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_ilp_line.h"
#include "clients/c/feed/qwp_feed_scan.h"
#include "core/wire/qwp_wire.h"

/* ---- where records end ---- */

/* Behind a backslash in a name or tag: two bytes are one character, whatever the second is. */
static const char *skip_name_char(const char *at, const char *end)
{
    return *at == '\\' && end - at > 1 ? at + 2 : at + 1;
}

/* To the closing quote, or end. */
static const char *find_quote(const char *at, const char *end)
{
    for (;;) {
        at = qwp_feed_find(at, end, '"', '\\', '\\');
        if (at == end || *at == '"') {
            return at;
        }
        at = end - at > 1 ? at + 2 : end;
    }
}

/* The line end of a line with fields from `at` on, or NULL. */
static const char *find_fields_end(const char *at, const char *end)
{
    while (at < end && *at != '\n') {
        if (*at == '\\') {
            at = skip_name_char(at, end);
            continue;
        }
        if (*at == ' ') { /* the timestamp, or nothing */
            while (at < end && *at == ' ') {
                at++;
            }
            return memchr(at, '\n', (size_t)(end - at));
        }
        if (*at++ != '=') {
            continue;
        }
        if (at < end && *at == '"') {
            at = find_quote(at + 1, end);
            at += at < end;
        } else { /* an unquoted value has no escapes */
            while (at < end && *at != ',' && *at != ' ' && *at != '\n') {
                at++;
            }
        }
    }
    return at < end ? at : NULL;
}

size_t qwp_feed_ilp_record(const char *data, size_t len)
{
    const char *end = data + len;
    const char *at = data;
    while (at < end && (*at == ' ' || *at == '\t')) {
        at++;
    }
    const char *line_end;
    if (at < end && *at == '#') {
        line_end = memchr(at, '\n', (size_t)(end - at));
    } else {
        while (at < end && *at != ' ' && *at != '\n') {
            at = skip_name_char(at, end);
        }
        while (at < end && *at == ' ') {
            at++;
        }
        line_end = at < end ? find_fields_end(at, end) : NULL;
    }
    return line_end != NULL ? (size_t)(line_end - data) + 1 : 0;
}

/* ---- names, tags and strings without their escapes ---- */

static bool is_escapable(char c)
{
    return c == ',' || c == '=' || c == ' ' || c == '"' || c == '\\' || c == '\n' || c == '\r';
}

/* In [at, end), `strings` for the shorter list of strings. The result is the text itself when there
 * is nothing to take out, else in the scratch space, which was made large enough for the line. */
static const char *unescape(struct qwp_feed_ilp *ilp, const char *at, const char *end, bool strings,
                            size_t *len)
{
    const char *escape = memchr(at, '\\', (size_t)(end - at));
    if (escape == NULL) {
        *len = (size_t)(end - at);
        return at;
    }
    char *out = ilp->scratch + ilp->scratch_used;
    size_t n = 0;
    for (; at < end; at++) {
        if (*at == '\\' && end - at > 1 && is_escapable(at[1]) &&
            !(strings && (at[1] == ',' || at[1] == '=' || at[1] == ' '))) {
            at++;
        }
        out[n++] = *at;
    }
    ilp->scratch_used += n;
    *len = n;
    return out;
}

static bool scratch_begin(struct qwp_feed_ilp *ilp, size_t line_bytes)
{
    ilp->scratch_used = 0;
    if (line_bytes <= ilp->scratch_bytes) {
        return true;
    }
    free(ilp->scratch);
    ilp->scratch_bytes = 0;
    ilp->scratch = malloc(line_bytes * 2);
    if (ilp->scratch == NULL) {
        return false;
    }
    ilp->scratch_bytes = line_bytes * 2;
    return true;
}

const char *qwp_feed_ilp_find(const char *at, const char *end, char a, char b)
{
    for (;;) {
        at = qwp_feed_find(at, end, a, b, '\\');
        if (at == end || *at != '\\') {
            return at;
        }
        at = skip_name_char(at, end);
    }
}

/* The column of a name as it stands in the line, whatever its type is, or a new one. */
static enum qwp_result find_column(struct qwp_feed_ilp *ilp, struct qwp_feed_table *table,
                                   const char *raw, size_t raw_len, uint8_t type, uint32_t *out,
                                   struct qwp_error *err)
{
    struct qwp_feed_ilp_name *slot = NULL;
    if (raw_len <= QWP_FEED_ILP_NAME_BYTES) {
        const uint64_t hash = qwp_feed_hash(raw, raw_len) + table->index;
        slot = &ilp->names[hash & (QWP_FEED_ILP_NAMES - 1)];
        if (slot->table == table && slot->len == raw_len && memcmp(slot->text, raw, raw_len) == 0) {
            *out = slot->column;
            return QWP_OK;
        }
    }
    size_t len;
    const char *name = unescape(ilp, raw, raw + raw_len, false, &len);
    const enum qwp_result result =
        qwp_feed_catalog_column(ilp->context.catalog, table, name, len, type, 0, out, err);
    if (result == QWP_OK && slot != NULL) {
        *slot =
            (struct qwp_feed_ilp_name){.table = table, .len = (uint32_t)raw_len, .column = *out};
        memcpy(slot->text, raw, raw_len);
    }
    return result;
}

/* Tags into ilp->columns and ilp->values. */
static enum qwp_result parse_tags(struct qwp_feed_ilp *ilp, struct qwp_feed_table *table,
                                  const char *at, const char *end, uint32_t *tag_count,
                                  struct qwp_error *err)
{
    uint32_t n = 0;
    while (at < end) {
        at++; /* the comma */
        const char *equals = qwp_feed_ilp_find(at, end, '=', ',');
        if (equals == end || *equals != '=') {
            return qwp_fail(err, QWP_INVALID, 0, "tag '%.*s' has no value (tag=value)",
                            (int)(equals - at < 60 ? equals - at : 60), at);
        }
        const char *value_end = qwp_feed_ilp_find(equals + 1, end, ',', ',');
        if (value_end == equals + 1) { /* an empty tag is a null */
            at = value_end;
            continue;
        }
        if (n == QWP_COLUMNS_MAX) {
            return qwp_fail(err, QWP_LIMIT, 0, "more than %d columns", QWP_COLUMNS_MAX);
        }
        const enum qwp_result result =
            find_column(ilp, table, at, (size_t)(equals - at), QWP_SYMBOL, &ilp->columns[n], err);
        if (result != QWP_OK) {
            return result;
        }
        const struct qwp_feed_column *column = &table->columns[ilp->columns[n]];
        if (column->type != QWP_SYMBOL) {
            char type[32];
            return qwp_fail(err, QWP_INVALID, 0,
                            "column '%s' of table '%s' was a field (%s) before and is a tag now",
                            column->name, table->name,
                            qwp_feed_type_text(column->type, column->parameter, type, sizeof type));
        }
        size_t value_len;
        const char *value = unescape(ilp, equals + 1, value_end, false, &value_len);
        ilp->values[n] = (struct qwp_feed_value){0};
        qwp_feed_convert_symbol(&ilp->converter, value, value_len, &ilp->values[n]);
        n++;
        at = value_end;
    }
    *tag_count = n;
    return QWP_OK;
}

enum qwp_result qwp_feed_ilp_parse_series(struct qwp_feed_ilp *ilp, const char *text, size_t len,
                                          struct qwp_feed_table **table, uint32_t *tag_count,
                                          struct qwp_error *err)
{
    if (!scratch_begin(ilp, len) ||
        !qwp_feed_converter_begin(&ilp->converter, 0, QWP_COLUMNS_MAX)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a line of %zu bytes", len);
    }
    const char *end = text + len;
    const char *name_end = qwp_feed_ilp_find(text, end, ',', ',');
    size_t name_len;
    const char *name = unescape(ilp, text, name_end, false, &name_len);
    if (ilp->context.table != NULL) {
        name = ilp->context.table;
        name_len = strlen(name);
    }
    const enum qwp_result result =
        qwp_feed_catalog_table(ilp->context.catalog, name, name_len, table, err);
    return result == QWP_OK ? parse_tags(ilp, *table, name_end, end, tag_count, err) : result;
}

/* ---- any line ---- */

/* A value as it stands in the line. */
struct token {
    uint8_t type;
    const char *text; /* without suffix or quotes and escapes */
    size_t len;
};

static bool is_integer(const char *text, size_t len)
{
    const size_t sign = len > 0 && (*text == '-' || *text == '+');
    if (len == sign) {
        return false;
    }
    for (size_t i = sign; i < len; i++) {
        if (text[i] < '0' || text[i] > '9') {
            return false;
        }
    }
    return true;
}

/* The form of an unquoted value tells its type; 0: none. */
static uint8_t token_type(const char *text, size_t len, size_t *bare_len)
{
    *bare_len = len - 1;
    const char last = text[len - 1];
    if (last == 'i' && len > 3 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        return QWP_LONG256;
    }
    if (is_integer(text, len - 1)) {
        switch (last) {
        case 'i':
        case 'u':
            return QWP_LONG;
        case 't':
            return QWP_TIMESTAMP;
        case 'n':
            return QWP_TIMESTAMP_NANOS;
        default:
            break;
        }
    }
    *bare_len = len;
    bool boolean;
    if (qwp_feed_parse_boolean(text, len, &boolean)) {
        return QWP_BOOLEAN;
    }
    double number;
    return qwp_feed_parse_double(text, len, &number) ? QWP_DOUBLE : 0;
}

static enum qwp_result convert_token(struct qwp_feed_ilp *ilp, const struct token *token,
                                     const struct qwp_feed_column *column,
                                     struct qwp_feed_value *value, struct qwp_error *err)
{
    const bool ns_to_us = token->type == QWP_TIMESTAMP_NANOS && column->type == QWP_TIMESTAMP;
    const bool us_to_ns = token->type == QWP_TIMESTAMP && column->type == QWP_TIMESTAMP_NANOS;
    enum qwp_result result = qwp_feed_convert(&ilp->converter, column->type, column->parameter,
                                              token->text, token->len, value, err);
    if (result == QWP_OK && ns_to_us) {
        qwp_feed_unit_convert(value->i64, QWP_FEED_NS, QWP_FEED_US, &value->i64);
    }
    if (result == QWP_OK && us_to_ns &&
        !qwp_feed_unit_convert(value->i64, QWP_FEED_US, QWP_FEED_NS, &value->i64)) {
        result = qwp_fail(err, QWP_INVALID, 0, "out of the range of ns");
    }
    if (result == QWP_OK && column->type == QWP_DOUBLE && token->type == QWP_LONG) {
        int64_t exact;
        if (!qwp_feed_parse_i64(token->text, token->len, &exact) || (double)exact != value->f64 ||
            (value->f64 < 0x1p63 && (int64_t)value->f64 != exact)) {
            result = qwp_fail(err, QWP_INVALID, 0, "no double holds exactly this integer");
        }
    }
    if (result != QWP_OK) {
        char type[32];
        qwp_error_prefix(err, "column '%s' (%s)", column->name,
                         qwp_feed_type_text(column->type, column->parameter, type, sizeof type));
    }
    return result;
}

static enum qwp_result parse_value(struct qwp_feed_ilp *ilp, const char *at, const char *end,
                                   struct token *token, const char **value_end,
                                   struct qwp_error *err)
{
    if (*at == '"') {
        const char *close = find_quote(at + 1, end);
        token->type = QWP_VARCHAR;
        token->text = unescape(ilp, at + 1, close, true, &token->len);
        *value_end = close + 1;
        if (close == end) {
            return qwp_fail(err, QWP_INVALID, 0, "a string is not closed");
        }
        return QWP_OK;
    }
    const char *stop = at;
    while (stop < end && *stop != ',' && *stop != ' ') {
        stop++;
    }
    *value_end = stop;
    token->text = at;
    token->len = 0;
    if (stop == at) {
        return QWP_OK; /* nothing: a null */
    }
    token->type = token_type(at, (size_t)(stop - at), &token->len);
    if (token->type == 0) {
        const int shown = (int)(stop - at < 40 ? stop - at : 40);
        return qwp_fail(err, QWP_INVALID, 0,
                        "'%.*s' is not a number, true or false, or a string in \"quotes\"", shown,
                        at);
    }
    return QWP_OK;
}

/* key=value,key=value...; sets *at behind it, and the number of values there are then. */
static enum qwp_result parse_fields(struct qwp_feed_ilp *ilp, struct qwp_feed_table *table,
                                    const char **at_inout, const char *end, uint32_t tag_count,
                                    uint32_t *count, struct qwp_error *err)
{
    const char *at = *at_inout;
    uint32_t n = tag_count;
    for (;;) {
        const char *equals = at;
        while (equals < end && *equals != '=' && *equals != ',' && *equals != ' ') {
            equals = skip_name_char(equals, end);
        }
        if (equals >= end || *equals != '=') {
            return qwp_fail(err, QWP_INVALID, 0, "field '%.*s' has no value (field=value)",
                            (int)(end - at < 40 ? end - at : 40), at);
        }
        struct token token = {0};
        const char *value_end = end;
        enum qwp_result result = parse_value(ilp, equals + 1, end, &token, &value_end, err);
        if (result == QWP_OK && value_end < end && *value_end != ',' && *value_end != ' ') {
            result = qwp_fail(err, QWP_INVALID, 0, "a comma or a space should follow the string");
        }
        if (result != QWP_OK) {
            qwp_error_prefix(err, "field '%.*s'", (int)(equals - at < 127 ? equals - at : 127), at);
            return result;
        }
        if (token.type != 0) {
            if (n == QWP_COLUMNS_MAX) {
                return qwp_fail(err, QWP_LIMIT, 0, "more than %d columns", QWP_COLUMNS_MAX);
            }
            result = find_column(ilp, table, at, (size_t)(equals - at), token.type,
                                 &ilp->columns[n], err);
            if (result == QWP_OK) {
                result = convert_token(ilp, &token, &table->columns[ilp->columns[n]],
                                       &ilp->values[n], err);
            }
            if (result != QWP_OK) {
                return result;
            }
            ilp->keys[n - tag_count] = at;
            ilp->key_lens[n - tag_count] = (uint32_t)(equals - at);
            n++;
        }
        at = value_end;
        if (at == end || *at == ' ') {
            break;
        }
        at++; /* the comma */
    }
    *at_inout = at;
    *count = n;
    return QWP_OK;
}

static enum qwp_result parse_timestamp(struct qwp_feed_ilp *ilp, const char *at, const char *end,
                                       enum qwp_at *kind, int64_t *out, struct qwp_error *err)
{
    enum qwp_feed_unit unit = ilp->unit;
    size_t len = (size_t)(end - at);
    if (end[-1] == 't' || end[-1] == 'n') {
        unit = end[-1] == 't' ? QWP_FEED_US : QWP_FEED_NS;
        len--;
    }
    int64_t count;
    if (!qwp_feed_parse_i64(at, len, &count)) {
        return qwp_fail(err, QWP_INVALID, 0, "'%.*s' is not a timestamp (an integer)",
                        (int)(end - at < 40 ? end - at : 40), at);
    }
    if (!qwp_feed_at(ilp->context.at, count, unit, kind, out)) {
        return qwp_fail(err, QWP_INVALID, 0, "timestamp %lld is out of range", (long long)count);
    }
    return QWP_OK;
}

/* Puts the values of a wide shape's row in their places; the others are null. */
static void spread(struct qwp_feed_ilp *ilp, const struct qwp_feed_shape *shape, uint32_t count)
{
    for (uint32_t i = 0; i < shape->column_count; i++) {
        ilp->wide_values[i] = (struct qwp_feed_value){.null = 1};
    }
    for (uint32_t i = 0; i < count; i++) {
        ilp->wide_values[ilp->columns[i]] = ilp->values[i];
    }
}

enum qwp_result qwp_feed_ilp_parse_line(struct qwp_feed_ilp *ilp,
                                        const struct qwp_feed_ilp_series *series, const char *at,
                                        const char *end, struct qwp_feed_row *row, bool *wide,
                                        struct qwp_error *err)
{
    if (!scratch_begin(ilp, (size_t)(end - at)) ||
        !qwp_feed_converter_begin(&ilp->converter, (size_t)(end - at), QWP_COLUMNS_MAX)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a line of %zu bytes", (size_t)(end - at));
    }
    while (end > at && (end[-1] == ' ' || end[-1] == '\t')) {
        end--;
    }
    while (at < end && *at == ' ') {
        at++;
    }
    memcpy(ilp->columns, series->columns, series->tag_count * sizeof *ilp->columns);
    memcpy(ilp->values, series->tags, series->tag_count * sizeof *ilp->values);
    uint32_t count = series->tag_count;
    /* Without an '=' it is the timestamp of a row of tags only. */
    if (at < end && memchr(at, '=', (size_t)(end - at)) != NULL) {
        const enum qwp_result result =
            parse_fields(ilp, series->table, &at, end, series->tag_count, &count, err);
        if (result != QWP_OK) {
            return result;
        }
        while (at < end && *at == ' ') {
            at++;
        }
    }
    if (count == 0) {
        return qwp_fail(err, QWP_INVALID, 0, "table '%s': the line has neither tags nor fields",
                        series->table->name);
    }
    enum qwp_at kind = QWP_AT_SERVER;
    row->at = 0;
    if (at < end) {
        const enum qwp_result result = parse_timestamp(ilp, at, end, &kind, &row->at, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    const enum qwp_result result = qwp_feed_catalog_shape(
        ilp->context.catalog, series->table, kind, ilp->columns, count, &row->shape, wide, err);
    if (result != QWP_OK) {
        return result;
    }
    row->values = ilp->values;
    if (*wide) {
        spread(ilp, row->shape, count);
        row->values = ilp->wide_values;
    }
    return QWP_OK;
}

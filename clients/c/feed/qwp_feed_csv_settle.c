/* Settles what the columns of a CSV file are: names, types, and the format of its time. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "clients/c/feed/qwp_feed_csv.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"

enum { INFER_ROWS = 1000, UNKNOWN_TYPE = 0xff };

/* What the values of a column seen so far could all be. */
struct guess {
    bool any;
    bool is_long;
    bool is_double;
    bool is_boolean;
    bool is_time;
    bool is_nanos; /* a time with more than six digits of a fraction */
    bool is_uuid;
    uint64_t largest; /* of integers, without the sign */
};

void qwp_feed_csv_layout_close(struct qwp_feed_csv_layout *layout)
{
    for (uint32_t i = 0; i < layout->column_count; i++) {
        free(layout->columns[i].name);
    }
    free(layout->columns);
    *layout = (struct qwp_feed_csv_layout){0};
}

static enum qwp_result add_column(struct qwp_feed_csv_layout *layout, const char *name, size_t len,
                                  struct qwp_error *err)
{
    if (layout->column_count == QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %d columns", QWP_COLUMNS_MAX);
    }
    if (!qwp_utf8_valid(name, len)) { /* names are compared by code points */
        return qwp_fail(err, QWP_INVALID, 0, "the name of column %u is not valid UTF-8",
                        layout->column_count + 1);
    }
    char *copy = malloc(len + 1);
    if (copy == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the columns");
    }
    memcpy(copy, name, len);
    copy[len] = '\0';
    layout->columns[layout->column_count++] =
        (struct qwp_feed_csv_column){.name = copy, .type = UNKNOWN_TYPE};
    return QWP_OK;
}

/* The next item of a list, without spaces around it; commas within parentheses do not separate.
 * False at the end. */
static bool next_item(const char **list, const char **item, size_t *len)
{
    const char *at = *list;
    if (at == NULL || *at == '\0') {
        return false;
    }
    int depth = 0;
    const char *end = at;
    for (; *end != '\0' && (*end != ',' || depth > 0); end++) {
        depth += (*end == '(') - (*end == ')');
    }
    *list = *end == ',' ? end + 1 : end;
    while (at < end && *at == ' ') {
        at++;
    }
    while (end > at && end[-1] == ' ') {
        end--;
    }
    *item = at;
    *len = (size_t)(end - at);
    return true;
}

static enum qwp_result names_from_list(struct qwp_feed_csv_layout *layout, const char *list,
                                       bool with_types, struct qwp_error *err)
{
    const char *item;
    size_t len;
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK && next_item(&list, &item, &len)) {
        const char *colon = with_types ? memrchr(item, ':', len) : NULL;
        result = add_column(layout, item, colon != NULL ? (size_t)(colon - item) : len, err);
    }
    return result;
}

static size_t record_end(const char *at, size_t len, char delimiter, const char **end)
{
    const size_t record = qwp_feed_csv_record(at, len + 1, delimiter);
    if (record == 0) {
        return 0;
    }
    *end = at + record - 1;
    *end -= *end > at && (*end)[-1] == '\r';
    return record <= len ? record : len;
}

static enum qwp_result names_from_header(struct qwp_feed_csv_layout *layout, const char *at,
                                         const char *end, struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK && at != NULL) {
        struct qwp_feed_csv_field field;
        if (!qwp_feed_csv_take(&at, end, layout->delimiter, &field)) {
            return qwp_fail(err, QWP_INVALID, 0, "the header has a quoted name that is not closed");
        }
        while (field.len > 0 && !field.quoted && *field.text == ' ') {
            field.text++;
            field.len--;
        }
        while (field.len > 0 && !field.quoted && field.text[field.len - 1] == ' ') {
            field.len--;
        }
        result = add_column(layout, field.text, field.len, err);
    }
    return result;
}

static struct qwp_feed_csv_column *find_column(const struct qwp_feed_csv_layout *layout,
                                               const char *name, size_t len)
{
    for (uint32_t i = 0; i < layout->column_count; i++) {
        if (qwp_name_equal(layout->columns[i].name, strlen(layout->columns[i].name), name, len)) {
            return &layout->columns[i];
        }
    }
    return NULL;
}

static enum qwp_result no_column(const char *option, const char *name, size_t len,
                                 const struct qwp_feed_csv_layout *layout, struct qwp_error *err)
{
    return qwp_fail(
        err, QWP_INVALID, 0,
        "%s names the column '%.*s', which the file does not have (it has %u, the first "
        "is '%s'; wrong --delimiter?)",
        option, (int)len, name, layout->column_count,
        layout->column_count ? layout->columns[0].name : "");
}

static enum qwp_result apply_schema(struct qwp_feed_csv_layout *layout, const char *list,
                                    struct qwp_error *err)
{
    const char *item;
    size_t len;
    while (next_item(&list, &item, &len)) {
        const char *colon = memrchr(item, ':', len);
        uint8_t type;
        uint8_t parameter;
        if (colon == NULL ||
            !qwp_feed_type_parse(colon + 1, (size_t)(item + len - colon) - 1, &type, &parameter)) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "--schema: '%.*s' is not name:type (see --help for the types)",
                            (int)len, item);
        }
        struct qwp_feed_csv_column *column = find_column(layout, item, (size_t)(colon - item));
        if (column == NULL) {
            return no_column("--schema", item, (size_t)(colon - item), layout, err);
        }
        column->type = type;
        column->parameter = parameter;
    }
    return QWP_OK;
}

static enum qwp_result apply_symbols(struct qwp_feed_csv_layout *layout, const char *list,
                                     struct qwp_error *err)
{
    const char *item;
    size_t len;
    while (next_item(&list, &item, &len)) {
        struct qwp_feed_csv_column *column = find_column(layout, item, len);
        if (column == NULL) {
            return no_column("--symbols", item, len, layout, err);
        }
        column->type = QWP_SYMBOL;
        column->parameter = 0;
    }
    return QWP_OK;
}

static bool leading_zero(const char *text, size_t len)
{
    const size_t sign = len > 0 && (*text == '-' || *text == '+');
    return len > sign + 1 && text[sign] == '0' && text[sign + 1] >= '0' && text[sign + 1] <= '9';
}

static bool is_digits(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if ((text[i] < '0' || text[i] > '9') && !(i == 0 && (*text == '-' || *text == '+'))) {
            return false;
        }
    }
    return true;
}

static bool is_true_or_false(const char *text, size_t len)
{
    return (len == 4 && strncasecmp(text, "true", 4) == 0) ||
           (len == 5 && strncasecmp(text, "false", 5) == 0);
}

static void guess_value(struct guess *g, const char *text, size_t len)
{
    if (!g->any) {
        *g = (struct guess){true, true, true, true, true, false, true, 0};
    }
    int64_t integer;
    double number;
    const bool is_long = qwp_feed_parse_i64(text, len, &integer) && !leading_zero(text, len);
    if (!is_long) {
        g->is_long = false;
    } else {
        const uint64_t size = integer < 0 ? 0 - (uint64_t)integer : (uint64_t)integer;
        g->largest = size > g->largest ? size : g->largest;
    }
    /* Digits that no long holds are rather a key than a number; a double would lose some. */
    g->is_double = g->is_double && !leading_zero(text, len) &&
                   qwp_feed_parse_double(text, len, &number) && (is_long || !is_digits(text, len));
    g->is_boolean = g->is_boolean && is_true_or_false(text, len);
    const struct qwp_feed_time_format iso = {.kind = QWP_FEED_TIME_ISO};
    struct qwp_feed_time time;
    g->is_time = g->is_time && qwp_feed_time_parse(&iso, text, len, &time);
    g->is_nanos |= g->is_time && time.nanos % 1000 != 0;
    if (g->is_uuid) {
        uint64_t pool[2];
        struct qwp_feed_converter c = {.pool = (char *)pool, .pool_bytes = sizeof pool};
        struct qwp_feed_value value;
        g->is_uuid = qwp_feed_convert(&c, QWP_UUID, 0, text, len, &value, NULL) == QWP_OK;
    }
}

static uint8_t guessed_type(const struct guess *g)
{
    if (!g->any) {
        return QWP_VARCHAR;
    }
    return g->is_long      ? QWP_LONG
           : g->is_double  ? QWP_DOUBLE
           : g->is_boolean ? QWP_BOOLEAN
           : g->is_time    ? (g->is_nanos ? QWP_TIMESTAMP_NANOS : QWP_TIMESTAMP)
           : g->is_uuid    ? QWP_UUID
                           : QWP_VARCHAR;
}

/* Looks at the first rows, at most `rows_max`. Bad ones are left for the parser to complain about.
 */
static void guess_columns(const struct qwp_feed_csv_layout *layout, const char *at, size_t len,
                          size_t rows_max, struct guess *guesses)
{
    for (size_t rows = 0; rows < rows_max && len > 0;) {
        const char *end = NULL;
        const size_t record = record_end(at, len, layout->delimiter, &end);
        if (record == 0) {
            return;
        }
        const char *field_at = at < end ? at : NULL;
        rows += at < end;
        for (uint32_t i = 0; field_at != NULL && i < layout->column_count; i++) {
            struct qwp_feed_csv_field field;
            if (!qwp_feed_csv_take(&field_at, end, layout->delimiter, &field)) {
                break;
            }
            while (field.len > 0 && *field.text == ' ') {
                field.text++;
                field.len--;
            }
            while (field.len > 0 && field.text[field.len - 1] == ' ') {
                field.len--;
            }
            if (field.len > 0) {
                guess_value(&guesses[i], field.text, field.len);
            }
        }
        at += record;
        len -= record;
    }
}

/* By size: seconds reach 10^11 in the year 5138, ms until then are larger than any of them, and so
 * on. */
static enum qwp_feed_unit guess_unit(uint64_t largest)
{
    return largest < UINT64_C(100000000000)         ? QWP_FEED_S
           : largest < UINT64_C(100000000000000)    ? QWP_FEED_MS
           : largest < UINT64_C(100000000000000000) ? QWP_FEED_US
                                                    : QWP_FEED_NS;
}

static enum qwp_result settle_time(const struct qwp_feed_csv_options *options,
                                   struct qwp_feed_csv_layout *layout, const struct guess *guesses,
                                   struct qwp_error *err)
{
    struct qwp_feed_csv_column *column = find_column(layout, options->time, strlen(options->time));
    if (column == NULL) {
        return no_column("--time", options->time, strlen(options->time), layout, err);
    }
    const struct guess *g = &guesses[column - layout->columns];
    column->is_time = true;
    column->type = 0;
    layout->has_time = true;
    layout->time_format = options->time_format;
    if (layout->time_format.kind == QWP_FEED_TIME_AUTO) {
        if (!g->any || (!g->is_long && !g->is_time)) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "the format of the time in column '%s' cannot be told from the first "
                            "rows: give --time-format",
                            column->name);
        }
        layout->time_format.kind = g->is_time ? QWP_FEED_TIME_ISO : QWP_FEED_TIME_EPOCH;
        layout->time_format.unit = guess_unit(g->largest);
    }
    const bool fine = layout->time_format.kind == QWP_FEED_TIME_EPOCH
                          ? layout->time_format.unit == QWP_FEED_NS
                          : g->is_time && g->is_nanos;
    layout->at = options->at == QWP_FEED_AT_SERVER         ? QWP_AT_SERVER
                 : options->at == QWP_FEED_AT_NS           ? QWP_AT_NS
                 : options->at == QWP_FEED_AT_AUTO && fine ? QWP_AT_NS
                                                           : QWP_AT_US;
    return QWP_OK;
}

static enum qwp_result settle_names(const struct qwp_feed_csv_options *options, const char **at,
                                    size_t *len, struct qwp_feed_csv_layout *out,
                                    struct qwp_error *err)
{
    const char *end = NULL;
    enum qwp_result result = QWP_OK;
    if (!options->no_header) {
        const size_t record = record_end(*at, *len, out->delimiter, &end);
        if (*len == 0 || record == 0) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "no header line (a file without one: --no-header and --columns)");
        }
        if (options->columns == NULL) {
            result = names_from_header(out, *at, end, err);
        }
        out->header_bytes = record;
        *at += record;
        *len -= record;
    } else if (options->columns == NULL && options->schema == NULL) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "without a header the columns need names: give --columns or --schema");
    }
    if (result == QWP_OK && options->columns != NULL) {
        result = names_from_list(out, options->columns, false, err);
    } else if (result == QWP_OK && options->no_header) {
        result = names_from_list(out, options->schema, true, err);
    }
    for (uint32_t i = 0; result == QWP_OK && i < out->column_count; i++) {
        const char *name = out->columns[i].name;
        if (find_column(out, name, strlen(name)) != &out->columns[i]) {
            result = qwp_fail(err, QWP_INVALID, 0,
                              "two columns are called '%s' (case ignored): give names by --columns",
                              name);
        }
    }
    return result;
}

enum qwp_result qwp_feed_csv_settle(const struct qwp_feed_csv_options *options, const char *sample,
                                    size_t len, struct qwp_feed_csv_layout *out,
                                    struct qwp_error *err)
{
    *out = (struct qwp_feed_csv_layout){0};
    out->delimiter = options->delimiter != 0 ? options->delimiter : ',';
    out->at = QWP_AT_SERVER;
    out->columns = calloc(QWP_COLUMNS_MAX, sizeof *out->columns);
    struct guess *guesses = calloc(QWP_COLUMNS_MAX, sizeof *guesses);
    enum qwp_result result = out->columns != NULL && guesses != NULL
                                 ? settle_names(options, &sample, &len, out, err)
                                 : qwp_fail(err, QWP_NOMEM, 0, "no memory for the columns");
    if (result == QWP_OK) {
        guess_columns(out, sample, len, options->infer_rows ? options->infer_rows : INFER_ROWS,
                      guesses);
        for (uint32_t i = 0; i < out->column_count; i++) {
            out->columns[i].type = guessed_type(&guesses[i]);
        }
        result = apply_schema(out, options->schema, err);
    }
    if (result == QWP_OK) {
        result = apply_symbols(out, options->symbols, err);
    }
    if (result == QWP_OK && options->time != NULL) {
        result = settle_time(options, out, guesses, err);
    }
    for (uint32_t i = 0; result == QWP_OK && i < out->column_count; i++) {
        const struct qwp_feed_csv_column *c = &out->columns[i];
        if (c->type != 0) {
            result = qwp_column_name_check(c->name, strlen(c->name), QWP_NAME_BYTES_MAX, err);
            if (result != QWP_OK) {
                qwp_error_prefix(err, "column %u (name the columns by --columns)", i + 1);
            }
        }
    }
    free(guesses);
    if (result != QWP_OK) {
        qwp_feed_csv_layout_close(out);
    }
    return result;
}

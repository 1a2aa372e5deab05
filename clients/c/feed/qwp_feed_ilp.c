#include "clients/c/feed/qwp_feed_ilp.h"

#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "clients/c/feed/qwp_feed_scan.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_wire.h"

enum {
    NAME_SLOT_COUNT = 512,               /* power of two */
    NAME_SLOT_BYTES = 48,                /* longer names are looked up each time */
    KEY_WORDS = 3,                       /* of a field's key that are compared as words */
    SERIES_BYTES_MAX = 32 * 1024 * 1024, /* then all of them are forgotten */
    SERIES_SLOT_COUNT = 64 * 1024,       /* power of two */
    SERIES_COUNT_MAX = SERIES_SLOT_COUNT / 2,
};

/* Names as they stood in a line, and what they turned out to be. */
struct name_slot {
    const struct qwp_feed_table *table; /* NULL: free */
    uint32_t len;
    uint32_t column;
    char text[NAME_SLOT_BYTES];
};

/* A field as it is expected: its key with the '=', as it stands in the line. */
struct plan_field {
    uint64_t word[KEY_WORDS];
    uint64_t mask[KEY_WORDS];
    uint32_t len;
    uint8_t type;
    const char *text;
};

/* What the lines of one shape look like. */
struct plan {
    const struct qwp_feed_shape *shape;
    uint32_t tag_count;
    uint32_t field_count;
    struct plan_field fields[];
};

/* Table and tags, as one text. */
struct series {
    uint64_t hash;
    const char *text;
    uint32_t len;
    uint32_t tag_count;
    struct qwp_feed_table *table;
    const struct plan *plan; /* of its last line, NULL at first */
    struct series *follower; /* which came next the last time */
    struct qwp_feed_value *tags;
    uint32_t columns[]; /* of the tags */
};

struct qwp_feed_ilp {
    struct qwp_feed_context context;
    enum qwp_feed_unit unit;
    /* the block */
    const char *data;
    const char *record; /* the last one */
    const char *at;
    const char *end;
    /* expectations */
    struct series **series_slots;
    uint32_t series_count;
    struct qwp_feed_arena series_arena;
    struct series *last_series;
    const struct plan *last_plan;
    struct plan **plans; /* by shape index */
    uint32_t plan_room;
    struct qwp_feed_arena plan_arena;
    struct name_slot *names;
    /* the row */
    struct qwp_feed_converter converter;
    char *scratch; /* texts without their escapes */
    size_t scratch_bytes;
    size_t scratch_used;
    uint32_t *columns;             /* of the row's values, tags first */
    const char **keys;             /* of the fields, raw */
    uint32_t *key_lens;            /* without the '=' */
    struct qwp_feed_value *values; /* QWP_COLUMNS_MAX of each */
    struct qwp_feed_value *wide_values;
};

struct qwp_feed_ilp *qwp_feed_ilp_create(const struct qwp_feed_context *context,
                                         enum qwp_feed_unit unit)
{
    struct qwp_feed_ilp *ilp = calloc(1, sizeof *ilp);
    if (ilp == NULL) {
        return NULL;
    }
    ilp->context = *context;
    ilp->unit = unit;
    ilp->converter.symbols = context->symbols;
    ilp->series_slots = calloc(SERIES_SLOT_COUNT, sizeof *ilp->series_slots);
    ilp->names = calloc(NAME_SLOT_COUNT, sizeof *ilp->names);
    ilp->columns = malloc(QWP_COLUMNS_MAX * sizeof *ilp->columns);
    ilp->keys = malloc(QWP_COLUMNS_MAX * sizeof *ilp->keys);
    ilp->key_lens = malloc(QWP_COLUMNS_MAX * sizeof *ilp->key_lens);
    ilp->values = malloc(QWP_COLUMNS_MAX * sizeof *ilp->values);
    ilp->wide_values = malloc(QWP_COLUMNS_MAX * sizeof *ilp->wide_values);
    if (ilp->series_slots == NULL || ilp->names == NULL || ilp->columns == NULL ||
        ilp->keys == NULL || ilp->key_lens == NULL || ilp->values == NULL ||
        ilp->wide_values == NULL) {
        qwp_feed_ilp_destroy(ilp);
        return NULL;
    }
    return ilp;
}

void qwp_feed_ilp_destroy(struct qwp_feed_ilp *ilp)
{
    if (ilp == NULL) {
        return;
    }
    qwp_feed_arena_reset(&ilp->series_arena);
    qwp_feed_arena_reset(&ilp->plan_arena);
    qwp_feed_converter_close(&ilp->converter);
    free(ilp->series_slots);
    free(ilp->plans);
    free(ilp->names);
    free(ilp->scratch);
    free(ilp->columns);
    free(ilp->keys);
    free(ilp->key_lens);
    free(ilp->values);
    free(ilp->wide_values);
    free(ilp);
}

void qwp_feed_ilp_begin(struct qwp_feed_ilp *ilp, const char *data, size_t len)
{
    ilp->data = data;
    ilp->at = data;
    ilp->end = data + len;
}

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

/* The first of a, b, outside of escapes, or end. */
static const char *find_unescaped(const char *at, const char *end, char a, char b)
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
    struct name_slot *slot = NULL;
    if (raw_len <= NAME_SLOT_BYTES) {
        const uint64_t hash = qwp_feed_hash(raw, raw_len) + table->index;
        slot = &ilp->names[hash & (NAME_SLOT_COUNT - 1)];
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
        *slot = (struct name_slot){.table = table, .len = (uint32_t)raw_len, .column = *out};
        memcpy(slot->text, raw, raw_len);
    }
    return result;
}

/* ---- series ---- */

static void series_forget(struct qwp_feed_ilp *ilp)
{
    memset(ilp->series_slots, 0, SERIES_SLOT_COUNT * sizeof *ilp->series_slots);
    qwp_feed_arena_reset(&ilp->series_arena);
    ilp->series_count = 0;
    ilp->last_series = NULL;
}

/* Tags into ilp->columns and ilp->values. */
static enum qwp_result parse_tags(struct qwp_feed_ilp *ilp, struct qwp_feed_table *table,
                                  const char *at, const char *end, uint32_t *tag_count,
                                  struct qwp_error *err)
{
    uint32_t n = 0;
    while (at < end) {
        at++; /* the comma */
        const char *equals = find_unescaped(at, end, '=', ',');
        if (equals == end || *equals != '=') {
            return qwp_fail(err, QWP_INVALID, 0, "tag '%.*s' has no value (tag=value)",
                            (int)(equals - at < 60 ? equals - at : 60), at);
        }
        const char *value_end = find_unescaped(equals + 1, end, ',', ',');
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

/* A symbol that the table did not take lies in the row's memory; a series needs it for longer. */
static bool keep_tags(struct qwp_feed_ilp *ilp, struct series *series)
{
    for (uint32_t i = 0; i < series->tag_count; i++) {
        struct qwp_feed_value *tag = &series->tags[i];
        *tag = ilp->values[i];
        if (tag->symbol->handle != QWP_FEED_SYMBOL_TEXT) {
            continue;
        }
        struct qwp_feed_symbol *copy = qwp_feed_arena_alloc(&ilp->series_arena, sizeof *copy);
        char *text = qwp_feed_arena_copy(&ilp->series_arena, tag->symbol->text, tag->symbol->len);
        if (copy == NULL || text == NULL) {
            return false;
        }
        *copy = (struct qwp_feed_symbol){text, tag->symbol->len, QWP_FEED_SYMBOL_TEXT};
        tag->symbol = copy;
    }
    return true;
}

static enum qwp_result series_add(struct qwp_feed_ilp *ilp, const char *text, size_t len,
                                  uint64_t hash, struct series **slot, struct series **out,
                                  struct qwp_error *err)
{
    if (!scratch_begin(ilp, len) ||
        !qwp_feed_converter_begin(&ilp->converter, 0, QWP_COLUMNS_MAX)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a line of %zu bytes", len);
    }
    const char *end = text + len;
    const char *name_end = find_unescaped(text, end, ',', ',');
    size_t name_len;
    const char *name = unescape(ilp, text, name_end, false, &name_len);
    if (ilp->context.table != NULL) {
        name = ilp->context.table;
        name_len = strlen(name);
    }
    struct qwp_feed_table *table;
    enum qwp_result result =
        qwp_feed_catalog_table(ilp->context.catalog, name, name_len, &table, err);
    uint32_t tag_count = 0;
    if (result == QWP_OK) {
        result = parse_tags(ilp, table, name_end, end, &tag_count, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_feed_arena *arena = &ilp->series_arena;
    struct series *series =
        qwp_feed_arena_alloc(arena, sizeof *series + tag_count * sizeof(uint32_t));
    struct qwp_feed_value *tags = qwp_feed_arena_alloc(arena, tag_count * sizeof *tags);
    /* Compared in words: with room behind it. */
    char *copy = qwp_feed_arena_alloc(arena, len + QWP_FEED_SLACK_BYTES);
    if (series == NULL || tags == NULL || copy == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for another series");
    }
    memcpy(copy, text, len);
    *series = (struct series){.hash = hash,
                              .text = copy,
                              .len = (uint32_t)len,
                              .tag_count = tag_count,
                              .table = table,
                              .tags = tags};
    memcpy(series->columns, ilp->columns, tag_count * sizeof(uint32_t));
    if (!keep_tags(ilp, series)) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for another series");
    }
    *slot = series;
    ilp->series_count++;
    *out = series;
    return QWP_OK;
}

/* The series of the line at `at`, whose text ends at `end`. */
static enum qwp_result series_find(struct qwp_feed_ilp *ilp, const char *at, const char *end,
                                   struct series **out, struct qwp_error *err)
{
    if (ilp->series_count >= SERIES_COUNT_MAX || ilp->series_arena.used_bytes >= SERIES_BYTES_MAX) {
        series_forget(ilp);
    }
    const size_t len = (size_t)(end - at);
    const uint64_t hash = qwp_feed_hash(at, len);
    uint32_t i = (uint32_t)hash & (SERIES_SLOT_COUNT - 1);
    for (;; i = (i + 1) & (SERIES_SLOT_COUNT - 1)) {
        struct series *series = ilp->series_slots[i];
        if (series == NULL) {
            return series_add(ilp, at, len, hash, &ilp->series_slots[i], out, err);
        }
        if (series->hash == hash && series->len == len && memcmp(series->text, at, len) == 0) {
            *out = series;
            return QWP_OK;
        }
    }
}

/* ---- plans ---- */

static bool plans_room(struct qwp_feed_ilp *ilp, uint32_t index)
{
    if (index < ilp->plan_room) {
        return true;
    }
    uint32_t room = ilp->plan_room ? ilp->plan_room : 64;
    while (room <= index) {
        room *= 2;
    }
    struct plan **plans = realloc(ilp->plans, room * sizeof *plans);
    if (plans == NULL) {
        return false;
    }
    memset(plans + ilp->plan_room, 0, (room - ilp->plan_room) * sizeof *plans);
    ilp->plans = plans;
    ilp->plan_room = room;
    return true;
}

static void plan_field_set(struct plan_field *field, const char *text, uint32_t len, uint8_t type)
{
    field->text = text;
    field->len = len;
    /* A key with a line end (escaped) must not lead the quick way beyond the block. */
    field->type = memchr(text, '\n', len) == NULL ? type : 0;
    for (uint32_t w = 0; w < KEY_WORDS; w++) {
        const uint32_t from = w * 8;
        const uint32_t n = len <= from ? 0 : len - from < 8 ? len - from : 8;
        field->word[w] = 0;
        memcpy(&field->word[w], text + from, n);
        field->mask[w] = n == 8 ? UINT64_MAX : (UINT64_C(1) << (n * 8)) - 1;
    }
}

/* The plan of a shape, made from the line just parsed when there is none. NULL without memory: then
 * lines take the general way. */
static const struct plan *plan_get(struct qwp_feed_ilp *ilp, const struct qwp_feed_shape *shape,
                                   uint32_t tag_count)
{
    if (!plans_room(ilp, shape->index)) {
        return NULL;
    }
    if (ilp->plans[shape->index] != NULL) {
        return ilp->plans[shape->index];
    }
    const uint32_t field_count = shape->column_count - tag_count;
    struct plan *plan = qwp_feed_arena_alloc(
        &ilp->plan_arena, sizeof *plan + field_count * sizeof(struct plan_field));
    if (plan == NULL) {
        return NULL;
    }
    *plan = (struct plan){.shape = shape, .tag_count = tag_count, .field_count = field_count};
    for (uint32_t i = 0; i < field_count; i++) {
        const uint32_t len = ilp->key_lens[i] + 1;
        char *text = qwp_feed_arena_copy(&ilp->plan_arena, ilp->keys[i], len);
        if (text == NULL) {
            return NULL;
        }
        const uint32_t column = shape->columns[tag_count + i];
        plan_field_set(&plan->fields[i], text, len, shape->table->columns[column].type);
    }
    ilp->plans[shape->index] = plan;
    return plan;
}

/* Whether a line of this series may be expected to look so. */
static bool plan_fits(const struct plan *plan, const struct series *series)
{
    return plan != NULL && plan->shape->table == series->table &&
           plan->tag_count == series->tag_count &&
           memcmp(plan->shape->columns, series->columns,
                  series->tag_count * sizeof series->columns[0]) == 0;
}

/* ---- the expected line ---- */

static inline bool key_matches(const struct plan_field *field, const char *at, const char *end)
{
    uint64_t differs = 0;
    for (int w = 0; w < KEY_WORDS; w++) {
        differs |= (qwp_load_u64(at + w * 8) ^ field->word[w]) & field->mask[w];
    }
    return differs == 0 &&
           (field->len <= KEY_WORDS * 8 ||
            ((size_t)(end - at) >= field->len && memcmp(at, field->text, field->len) == 0));
}

static inline const char *expected_value(const char *at, const char *end, uint8_t type,
                                         struct qwp_feed_value *value)
{
    switch (type) {
    case QWP_LONG: {
        at = qwp_feed_scan_i64(at, &value->i64);
        return at != NULL && *at == 'i' ? at + 1 : NULL;
    }
    case QWP_TIMESTAMP:
    case QWP_TIMESTAMP_NANOS: {
        at = qwp_feed_scan_i64(at, &value->i64);
        return at != NULL && *at == (type == QWP_TIMESTAMP ? 't' : 'n') ? at + 1 : NULL;
    }
    case QWP_DOUBLE:
        return qwp_feed_scan_double(at, &value->f64);
    case QWP_BOOLEAN: {
        const char *start = at;
        while ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z') {
            at++;
        }
        bool v;
        if (!qwp_feed_parse_boolean(start, (size_t)(at - start), &v)) {
            return NULL;
        }
        value->i64 = v;
        return at;
    }
    case QWP_VARCHAR: {
        if (*at != '"') {
            return NULL;
        }
        const char *close = qwp_feed_find(at + 1, end, '"', '\\', '\\');
        if (close == end || *close != '"') {
            return NULL;
        }
        value->text = at + 1;
        value->len = (uint32_t)(close - at - 1);
        return close + 1;
    }
    default:
        return NULL;
    }
}

/* The line from its fields on, if it is as expected; NULL otherwise, with nothing changed that
 * matters. Reads behind `end` only as far as the newline there. */
static const char *expected_line(struct qwp_feed_ilp *ilp, const struct plan *plan, const char *at,
                                 int64_t *timestamp)
{
    struct qwp_feed_value *value = ilp->values + plan->tag_count;
    for (uint32_t i = 0; i < plan->field_count; i++, value++) {
        const struct plan_field *field = &plan->fields[i];
        if (at >= ilp->end || !key_matches(field, at, ilp->end)) {
            return NULL;
        }
        value->null = 0;
        at = expected_value(at + field->len, ilp->end, field->type, value);
        if (at == NULL || (i + 1 < plan->field_count && *at++ != ',')) {
            return NULL;
        }
    }
    enum qwp_at kind = QWP_AT_SERVER;
    *timestamp = 0;
    if (*at == ' ') {
        int64_t count;
        at = qwp_feed_scan_i64(at + 1, &count);
        if (at == NULL || !qwp_feed_at(ilp->context.at, count, ilp->unit, &kind, timestamp)) {
            return NULL;
        }
    }
    at += *at == '\r';
    return *at == '\n' && kind == plan->shape->at ? at + 1 : NULL;
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

/* A whole line from behind its series on, [at, end) without the line end. */
static enum qwp_result parse_line(struct qwp_feed_ilp *ilp, struct series *series, const char *at,
                                  const char *end, struct qwp_feed_row *row, struct qwp_error *err)
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
    bool wide;
    const enum qwp_result result = qwp_feed_catalog_shape(
        ilp->context.catalog, series->table, kind, ilp->columns, count, &row->shape, &wide, err);
    if (result != QWP_OK) {
        return result;
    }
    row->values = ilp->values;
    if (wide) {
        spread(ilp, row->shape, count);
        row->values = ilp->wide_values;
    } else {
        series->plan = plan_get(ilp, row->shape, series->tag_count);
        ilp->last_plan = series->plan;
    }
    return QWP_OK;
}

/* The series that is expected next, if the line at `at` is of it. */
static struct series *expected_series(const struct qwp_feed_ilp *ilp, const char *at)
{
    struct series *series = ilp->last_series != NULL ? ilp->last_series->follower : NULL;
    if (series == NULL || (size_t)(ilp->end - at) <= series->len || at[series->len] != ' ' ||
        memcmp(at, series->text, series->len) != 0) {
        return NULL;
    }
    return series;
}

/* A record that is not as expected in one way or another, [at, at + len) with its line end. */
static enum qwp_result general_record(struct qwp_feed_ilp *ilp, const char *at, size_t len,
                                      struct qwp_feed_row *row, struct qwp_error *err)
{
    const char *end = at + len - 1;
    end -= end > at && end[-1] == '\r';
    const char *series_end = find_unescaped(at, end, ' ', ' ');
    struct series *series;
    const enum qwp_result result = series_find(ilp, at, series_end, &series, err);
    if (result != QWP_OK) {
        return result;
    }
    if (ilp->last_series != NULL) {
        ilp->last_series->follower = series;
    }
    ilp->last_series = series;
    return parse_line(ilp, series, series_end, end, row, err);
}

/* Takes the record at ilp->at by the quick way when it is as expected. */
static bool expected_record(struct qwp_feed_ilp *ilp, const char *at, struct qwp_feed_row *row)
{
    struct series *series = expected_series(ilp, at);
    if (series == NULL) {
        const char *stop = qwp_feed_find(at, ilp->end, ' ', '\\', '\n');
        struct qwp_error ignored;
        if (stop == ilp->end || *stop != ' ' ||
            series_find(ilp, at, stop, &series, &ignored) != QWP_OK) {
            return false; /* the general way says why */
        }
        if (ilp->last_series != NULL) {
            ilp->last_series->follower = series;
        }
    }
    const struct plan *plan = series->plan != NULL ? series->plan : ilp->last_plan;
    if (!plan_fits(plan, series)) {
        return false;
    }
    memcpy(ilp->values, series->tags, series->tag_count * sizeof *ilp->values);
    const char *next = expected_line(ilp, plan, at + series->len + 1, &row->at);
    if (next == NULL) {
        return false;
    }
    series->plan = plan;
    ilp->last_series = series;
    ilp->last_plan = plan;
    ilp->at = next;
    row->shape = plan->shape;
    row->values = ilp->values;
    return true;
}

enum qwp_result qwp_feed_ilp_next(struct qwp_feed_ilp *ilp, struct qwp_feed_row *row,
                                  struct qwp_feed_bad *bad)
{
    for (;;) {
        const char *at = ilp->at;
        while (at < ilp->end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r')) {
            at++;
        }
        if (at >= ilp->end) {
            ilp->at = ilp->end;
            return QWP_AGAIN;
        }
        if (*at == '#') {
            const char *line_end = memchr(at, '\n', (size_t)(ilp->end - at));
            ilp->at = line_end != NULL ? line_end + 1 : ilp->end;
            continue;
        }
        ilp->record = at;
        if (expected_record(ilp, at, row)) {
            return QWP_OK;
        }
        /* The newline behind the block ends the last line. */
        const size_t room = (size_t)(ilp->end - at) + 1;
        size_t len = qwp_feed_ilp_record(at, room);
        const bool closed = len != 0;
        if (!closed) {
            len = (size_t)((const char *)memchr(at, '\n', room) - at) + 1;
        }
        const enum qwp_result result =
            closed ? general_record(ilp, at, len, row, &bad->err)
                   : qwp_fail(&bad->err, QWP_INVALID, 0, "a string is not closed");
        ilp->at = at + len < ilp->end ? at + len : ilp->end;
        if (result != QWP_OK) {
            bad->off = (size_t)(at - ilp->data);
            bad->len = (size_t)(ilp->at - at);
        }
        return result;
    }
}

void qwp_feed_ilp_last(const struct qwp_feed_ilp *ilp, size_t *off, size_t *len)
{
    const char *end = ilp->at < ilp->end ? ilp->at : ilp->end;
    *off = (size_t)(ilp->record - ilp->data);
    *len = (size_t)(end - ilp->record);
}

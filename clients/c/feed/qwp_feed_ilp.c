#include "clients/c/feed/qwp_feed_ilp.h"

#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_ilp_line.h"
#include "clients/c/feed/qwp_feed_scan.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_wire.h"

enum {
    SERIES_BYTES_MAX = 32 * 1024 * 1024, /* then all of them are forgotten */
    SERIES_SLOT_COUNT = 64 * 1024,       /* power of two */
    SERIES_COUNT_MAX = SERIES_SLOT_COUNT / 2,
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
    ilp->names = calloc(QWP_FEED_ILP_NAMES, sizeof *ilp->names);
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

/* ---- series ---- */

static void series_forget(struct qwp_feed_ilp *ilp)
{
    memset(ilp->series_slots, 0, SERIES_SLOT_COUNT * sizeof *ilp->series_slots);
    qwp_feed_arena_reset(&ilp->series_arena);
    ilp->series_count = 0;
    ilp->last_series = NULL;
}

/* A symbol that the table did not take lies in the row's memory; a series needs it for longer. */
static bool keep_tags(struct qwp_feed_ilp *ilp, struct qwp_feed_ilp_series *series)
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
                                  uint64_t hash, struct qwp_feed_ilp_series **slot,
                                  struct qwp_feed_ilp_series **out, struct qwp_error *err)
{
    struct qwp_feed_table *table;
    uint32_t tag_count;
    const enum qwp_result result =
        qwp_feed_ilp_parse_series(ilp, text, len, &table, &tag_count, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_feed_arena *arena = &ilp->series_arena;
    struct qwp_feed_ilp_series *series =
        qwp_feed_arena_alloc(arena, sizeof *series + tag_count * sizeof(uint32_t));
    struct qwp_feed_value *tags = qwp_feed_arena_alloc(arena, tag_count * sizeof *tags);
    /* Compared in words: with room behind it. */
    char *copy = qwp_feed_arena_alloc(arena, len + QWP_FEED_SLACK_BYTES);
    if (series == NULL || tags == NULL || copy == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for another series");
    }
    memcpy(copy, text, len);
    *series = (struct qwp_feed_ilp_series){.hash = hash,
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
                                   struct qwp_feed_ilp_series **out, struct qwp_error *err)
{
    if (ilp->series_count >= SERIES_COUNT_MAX || ilp->series_arena.used_bytes >= SERIES_BYTES_MAX) {
        series_forget(ilp);
    }
    const size_t len = (size_t)(end - at);
    const uint64_t hash = qwp_feed_hash(at, len);
    uint32_t i = (uint32_t)hash & (SERIES_SLOT_COUNT - 1);
    for (;; i = (i + 1) & (SERIES_SLOT_COUNT - 1)) {
        struct qwp_feed_ilp_series *series = ilp->series_slots[i];
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
    struct qwp_feed_ilp_plan **plans = realloc(ilp->plans, room * sizeof *plans);
    if (plans == NULL) {
        return false;
    }
    memset(plans + ilp->plan_room, 0, (room - ilp->plan_room) * sizeof *plans);
    ilp->plans = plans;
    ilp->plan_room = room;
    return true;
}

static void plan_field_set(struct qwp_feed_ilp_field *field, const char *text, uint32_t len,
                           uint8_t type)
{
    field->text = text;
    field->len = len;
    /* A key with a line end (escaped) must not lead the quick way beyond the block. */
    field->type = memchr(text, '\n', len) == NULL ? type : 0;
    for (uint32_t w = 0; w < QWP_FEED_ILP_KEY_WORDS; w++) {
        const uint32_t from = w * 8;
        const uint32_t n = len <= from ? 0 : len - from < 8 ? len - from : 8;
        field->word[w] = 0;
        memcpy(&field->word[w], text + from, n);
        field->mask[w] = n == 8 ? UINT64_MAX : (UINT64_C(1) << (n * 8)) - 1;
    }
}

/* The plan of a shape, made from the line just parsed when there is none. NULL without memory: then
 * lines take the general way. */
static const struct qwp_feed_ilp_plan *
plan_get(struct qwp_feed_ilp *ilp, const struct qwp_feed_shape *shape, uint32_t tag_count)
{
    if (!plans_room(ilp, shape->index)) {
        return NULL;
    }
    if (ilp->plans[shape->index] != NULL) {
        return ilp->plans[shape->index];
    }
    const uint32_t field_count = shape->column_count - tag_count;
    struct qwp_feed_ilp_plan *plan = qwp_feed_arena_alloc(
        &ilp->plan_arena, sizeof *plan + field_count * sizeof(struct qwp_feed_ilp_field));
    if (plan == NULL) {
        return NULL;
    }
    *plan = (struct qwp_feed_ilp_plan){
        .shape = shape, .tag_count = tag_count, .field_count = field_count};
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
static bool plan_fits(const struct qwp_feed_ilp_plan *plan,
                      const struct qwp_feed_ilp_series *series)
{
    return plan != NULL && plan->shape->table == series->table &&
           plan->tag_count == series->tag_count &&
           memcmp(plan->shape->columns, series->columns,
                  series->tag_count * sizeof series->columns[0]) == 0;
}

/* ---- the expected line ---- */

static inline bool key_matches(const struct qwp_feed_ilp_field *field, const char *at,
                               const char *end)
{
    uint64_t differs = 0;
    for (int w = 0; w < QWP_FEED_ILP_KEY_WORDS; w++) {
        differs |= (qwp_load_u64(at + w * 8) ^ field->word[w]) & field->mask[w];
    }
    return differs == 0 &&
           (field->len <= QWP_FEED_ILP_KEY_WORDS * 8 ||
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
static const char *expected_line(struct qwp_feed_ilp *ilp, const struct qwp_feed_ilp_plan *plan,
                                 const char *at, int64_t *timestamp)
{
    struct qwp_feed_value *value = ilp->values + plan->tag_count;
    for (uint32_t i = 0; i < plan->field_count; i++, value++) {
        const struct qwp_feed_ilp_field *field = &plan->fields[i];
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

/* The series that is expected next, if the line at `at` is of it. */
static struct qwp_feed_ilp_series *expected_series(const struct qwp_feed_ilp *ilp, const char *at)
{
    struct qwp_feed_ilp_series *series =
        ilp->last_series != NULL ? ilp->last_series->follower : NULL;
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
    const char *series_end = qwp_feed_ilp_find(at, end, ' ', ' ');
    struct qwp_feed_ilp_series *series;
    enum qwp_result result = series_find(ilp, at, series_end, &series, err);
    if (result != QWP_OK) {
        return result;
    }
    if (ilp->last_series != NULL) {
        ilp->last_series->follower = series;
    }
    ilp->last_series = series;
    bool wide;
    result = qwp_feed_ilp_parse_line(ilp, series, series_end, end, row, &wide, err);
    if (result == QWP_OK && !wide) {
        series->plan = plan_get(ilp, row->shape, series->tag_count);
        ilp->last_plan = series->plan;
    }
    return result;
}

/* Takes the record at ilp->at by the quick way when it is as expected. */
static bool expected_record(struct qwp_feed_ilp *ilp, const char *at, struct qwp_feed_row *row)
{
    struct qwp_feed_ilp_series *series = expected_series(ilp, at);
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
    const struct qwp_feed_ilp_plan *plan = series->plan != NULL ? series->plan : ilp->last_plan;
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

#include "tests/feed/feed_support.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

char *feed_block(const char *text, size_t len)
{
    char *block = malloc(len + QWP_FEED_SLACK_BYTES);
    if (block == NULL) {
        abort();
    }
    if (len > 0) {
        memcpy(block, text, len);
    }
    memset(block + len, '\n', QWP_FEED_SLACK_BYTES);
    return block;
}

/* Where text is put together. */
struct sink {
    char *at;
    size_t room;
};

static __attribute__((format(printf, 2, 3))) void put(struct sink *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(s->at, s->room, format, args);
    va_end(args);
    const size_t used = n < 0 ? 0 : (size_t)n < s->room ? (size_t)n : s->room - 1;
    s->at += used;
    s->room -= used;
}

static void put_double(struct sink *s, double v)
{
    char shortest[32];
    snprintf(shortest, sizeof shortest, "%.15g", v);
    put(s, strtod(shortest, NULL) == v || v != v ? "%.15gd" : "%ad", v);
}

static void put_words(struct sink *s, const uint64_t *words, int n)
{
    put(s, "w[");
    for (int i = 0; i < n; i++) {
        put(s, "%s%llx", i ? "," : "", (unsigned long long)words[i]);
    }
    put(s, "]");
}

static void put_array(struct sink *s, const struct qwp_feed_array *array, bool doubles)
{
    uint32_t n = 1;
    put(s, "a[");
    for (uint32_t i = 0; i < array->dimensions; i++) {
        put(s, "%s%u", i ? "x" : "", array->shape[i]);
        n *= array->shape[i];
    }
    put(s, ":");
    for (uint32_t i = 0; i < n; i++) {
        put(s, "%s", i ? "," : "");
        if (doubles) {
            put_double(s, ((const double *)array->values)[i]);
        } else {
            put(s, "%lld", (long long)((const int64_t *)array->values)[i]);
        }
    }
    put(s, "]");
}

static void put_value(struct sink *s, uint8_t type, const struct qwp_feed_value *v)
{
    if (v->null) {
        put(s, "null");
        return;
    }
    switch ((enum qwp_column_type)type) {
    case QWP_BOOLEAN:
        put(s, v->i64 == 1 ? "T" : v->i64 == 0 ? "F" : "?");
        return;
    case QWP_BYTE:
    case QWP_SHORT:
    case QWP_INT:
    case QWP_LONG:
    case QWP_CHAR:
    case QWP_IPV4:
    case QWP_GEOHASH:
        put(s, "%lld", (long long)v->i64);
        return;
    case QWP_FLOAT:
        put(s, "%.9gf", (double)v->f32);
        return;
    case QWP_DOUBLE:
        put_double(s, v->f64);
        return;
    case QWP_SYMBOL:
        put(s, "'%.*s'", (int)v->symbol->len, v->symbol->text);
        return;
    case QWP_VARCHAR:
        put(s, "\"%.*s\"", (int)v->len, v->text);
        return;
    case QWP_BINARY:
        put(s, "b[");
        for (uint32_t i = 0; i < v->len; i++) {
            put(s, "%02x", (unsigned char)v->text[i]);
        }
        put(s, "]");
        return;
    case QWP_DATE:
        put(s, "%lldms", (long long)v->i64);
        return;
    case QWP_TIMESTAMP:
        put(s, "%lldus", (long long)v->i64);
        return;
    case QWP_TIMESTAMP_NANOS:
        put(s, "%lldns", (long long)v->i64);
        return;
    case QWP_UUID:
    case QWP_DECIMAL128:
        put_words(s, v->words, 2);
        return;
    case QWP_DECIMAL64:
        put_words(s, v->words, 1);
        return;
    case QWP_LONG256:
    case QWP_DECIMAL256:
        put_words(s, v->words, 4);
        return;
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        put_array(s, v->array, type == QWP_DOUBLE_ARRAY);
        return;
    }
    put(s, "?");
}

void feed_row_text(const struct qwp_feed_row *row, char *out, size_t room)
{
    struct sink s = {out, room};
    const struct qwp_feed_table *table = row->shape->table;
    put(&s, "%s", table->name);
    for (uint32_t i = 0; i < row->shape->column_count; i++) {
        const struct qwp_feed_column *column = &table->columns[row->shape->columns[i]];
        put(&s, "%c%s=", i ? ',' : ' ', column->name);
        put_value(&s, column->type, &row->values[i]);
    }
    static const char *const units[] = {"?", "ns", "us", "server"};
    put(&s, " @%s", units[row->shape->at]);
    if (row->shape->at != QWP_AT_SERVER) {
        put(&s, " %lld", (long long)row->at);
    }
}

uint64_t feed_random(void)
{
    static uint64_t state;
    if (state == 0) {
        const char *given = getenv("QWP_TEST_SEED");
        state = given != NULL ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 2654435761u;
        state |= 1;
        printf("seed: QWP_TEST_SEED=%llu\n", (unsigned long long)state);
        fflush(stdout);
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

#include "clients/c/feed/qwp_feed_convert.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "clients/c/feed/qwp_feed_number.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"

enum {
    SHOWN_BYTES_MAX = 40, /* of a bad text in a message */
    /* Largest value besides arrays and binary: an array's own struct, or 32 bytes of words. */
    COLUMN_POOL_BYTES = sizeof(struct qwp_feed_array) + sizeof(struct qwp_feed_symbol) + 64,
    TEXT_POOL_FACTOR = 8, /* an element of an array is 8 bytes and has a character at least */
};

#define SHOW(text, len) (int)((len) < SHOWN_BYTES_MAX ? (len) : SHOWN_BYTES_MAX), (text)

bool qwp_feed_converter_begin(struct qwp_feed_converter *c, size_t text_bytes, size_t column_count)
{
    const size_t need = text_bytes * TEXT_POOL_FACTOR + column_count * COLUMN_POOL_BYTES;
    c->pool_used = 0;
    if (need <= c->pool_bytes) {
        return true;
    }
    free(c->pool);
    c->pool_bytes = 0;
    c->pool = malloc(need * 2);
    if (c->pool == NULL) {
        return false;
    }
    c->pool_bytes = need * 2;
    return true;
}

void qwp_feed_converter_close(struct qwp_feed_converter *c)
{
    free(c->pool);
    *c = (struct qwp_feed_converter){0};
}

/* Begin made room for all of the row, so this gives NULL only when the owner forgot it. */
static void *pool_take(struct qwp_feed_converter *c, size_t bytes)
{
    const size_t rounded = (bytes + 7) & ~(size_t)7;
    if (c->pool_bytes - c->pool_used < rounded) {
        return NULL;
    }
    void *out = c->pool + c->pool_used;
    c->pool_used += rounded;
    return out;
}

static enum qwp_result refuse(struct qwp_error *err, const char *text, size_t len,
                              const char *expected)
{
    return qwp_fail(err, QWP_INVALID, 0, "'%.*s'%s is not %s", SHOW(text, len),
                    len > SHOWN_BYTES_MAX ? "..." : "", expected);
}

static enum qwp_result convert_integer(const char *text, size_t len, int64_t min, int64_t max,
                                       const char *expected, struct qwp_feed_value *out,
                                       struct qwp_error *err)
{
    int64_t v;
    if (!qwp_feed_parse_i64(text, len, &v) || v < min || v > max) {
        return refuse(err, text, len, expected);
    }
    out->i64 = v;
    return QWP_OK;
}

static enum qwp_result convert_boolean(const char *text, size_t len, struct qwp_feed_value *out,
                                       struct qwp_error *err)
{
    bool v;
    if (len == 1 && (*text == '0' || *text == '1')) {
        v = *text == '1';
    } else if (!qwp_feed_parse_boolean(text, len, &v)) {
        return refuse(err, text, len, "true or false");
    }
    out->i64 = v;
    return QWP_OK;
}

static enum qwp_result convert_char(const char *text, size_t len, struct qwp_feed_value *out,
                                    struct qwp_error *err)
{
    const unsigned char *p = (const unsigned char *)text;
    const size_t expected = len == 0 ? 0 : p[0] < 0x80 ? 1 : p[0] < 0xe0 ? 2 : 3;
    if (len == 0 || len != expected || !qwp_utf8_valid(text, len)) {
        return refuse(err, text, len, "one character of the basic plane");
    }
    out->i64 = len == 1   ? p[0]
               : len == 2 ? (p[0] & 0x1f) << 6 | (p[1] & 0x3f)
                          : (p[0] & 0x0f) << 12 | (p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    return QWP_OK;
}

static enum qwp_result convert_time(const char *text, size_t len, enum qwp_feed_unit unit,
                                    struct qwp_feed_value *out, struct qwp_error *err)
{
    if (qwp_feed_parse_i64(text, len, &out->i64)) {
        return QWP_OK;
    }
    const struct qwp_feed_time_format iso = {.kind = QWP_FEED_TIME_ISO};
    struct qwp_feed_time time;
    if (!qwp_feed_time_parse(&iso, text, len, &time) || !qwp_feed_time_in(time, unit, &out->i64)) {
        return refuse(err, text, len, "a time: an integer since the epoch, or ISO 8601");
    }
    return QWP_OK;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char lower = (char)(c | 0x20);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

static enum qwp_result convert_uuid(struct qwp_feed_converter *c, const char *text, size_t len,
                                    struct qwp_feed_value *out, struct qwp_error *err)
{
    uint64_t *words = pool_take(c, 16);
    uint64_t halves[2] = {0, 0}; /* high, low */
    size_t digits = 0;
    bool ok = len == 36 && words != NULL;
    for (size_t i = 0; ok && i < len; i++) {
        if (i == 8 || i == 13 || i == 18 || i == 23) {
            ok = text[i] == '-';
            continue;
        }
        const int v = hex_value(text[i]);
        ok = v >= 0;
        halves[digits / 16] = halves[digits / 16] << 4 | (uint64_t)v;
        digits++;
    }
    if (!ok) {
        return refuse(err, text, len, "a UUID");
    }
    words[0] = halves[1];
    words[1] = halves[0];
    out->words = words;
    return QWP_OK;
}

static enum qwp_result convert_long256(struct qwp_feed_converter *c, const char *text, size_t len,
                                       struct qwp_feed_value *out, struct qwp_error *err)
{
    uint64_t *words = pool_take(c, 32);
    bool ok = words != NULL && len >= 3 && len <= 66 && text[0] == '0' &&
              (text[1] == 'x' || text[1] == 'X');
    if (ok) {
        memset(words, 0, 32);
    }
    for (size_t i = 2; ok && i < len; i++) {
        const int v = hex_value(text[i]);
        ok = v >= 0;
        for (int w = 3; w > 0; w--) {
            words[w] = words[w] << 4 | words[w - 1] >> 60;
        }
        words[0] = words[0] << 4 | (uint64_t)v;
    }
    if (!ok) {
        return refuse(err, text, len, "0x and up to 64 hexadecimal digits");
    }
    out->words = words;
    return QWP_OK;
}

static enum qwp_result convert_geohash(const char *text, size_t len, uint8_t bits_wanted,
                                       struct qwp_feed_value *out, struct qwp_error *err)
{
    static const char alphabet[] = "0123456789bcdefghjkmnpqrstuvwxyz";
    uint64_t bits = 0;
    size_t count = 0;
    bool ok = true;
    if (len > 2 && text[0] == '#' && text[1] == '#') {
        for (size_t i = 2; ok && i < len; i++) {
            ok = (text[i] == '0' || text[i] == '1') && count < 60;
            bits = bits << 1 | (text[i] == '1');
            count++;
        }
    } else {
        for (size_t i = 0; ok && i < len; i++) {
            const char lower = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] | 0x20) : text[i];
            const char *hit = lower != '\0' ? strchr(alphabet, lower) : NULL;
            ok = hit != NULL && count < 60;
            bits = ok ? bits << 5 | (uint64_t)(hit - alphabet) : 0;
            count += 5;
        }
    }
    if (!ok || count < bits_wanted) {
        return qwp_fail(err, QWP_INVALID, 0, "'%.*s' is not a geohash of at least %u bits",
                        SHOW(text, len), bits_wanted);
    }
    out->i64 = (int64_t)(bits >> (count - bits_wanted));
    return QWP_OK;
}

/* words = words * 10 + digit; the callers bound the digits, so nothing is carried out. */
static void words_push_digit(uint64_t words[4], unsigned digit)
{
    unsigned __int128 carry = digit;
    for (int i = 0; i < 4; i++) {
        carry += (unsigned __int128)words[i] * 10;
        words[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static void words_negate(uint64_t words[4])
{
    unsigned __int128 carry = 1;
    for (int i = 0; i < 4; i++) {
        carry += ~words[i];
        words[i] = (uint64_t)carry;
        carry >>= 64;
    }
}

static enum qwp_result convert_decimal(struct qwp_feed_converter *c, uint8_t type, uint8_t scale,
                                       const char *text, size_t len, struct qwp_feed_value *out,
                                       struct qwp_error *err)
{
    const unsigned digits_max = type == QWP_DECIMAL64    ? QWP_DECIMAL64_SCALE_MAX
                                : type == QWP_DECIMAL128 ? QWP_DECIMAL128_SCALE_MAX
                                                         : QWP_DECIMAL256_SCALE_MAX;
    uint64_t *words = pool_take(c, 32);
    if (words == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no room for a decimal");
    }
    memset(words, 0, 32);
    const bool sign = len > 0 && (*text == '-' || *text == '+');
    unsigned significant = 0;
    unsigned after_point = 0;
    bool point = false;
    bool any = false;
    for (size_t i = sign; i < len; i++) {
        const unsigned digit = (unsigned)(text[i] - '0');
        if (text[i] == '.' && !point) {
            point = true;
            continue;
        }
        if (digit > 9) {
            return refuse(err, text, len, "a decimal number");
        }
        any = true;
        if (point && after_point == scale) {
            if (digit != 0) {
                return qwp_fail(err, QWP_INVALID, 0,
                                "'%.*s' has more than the %u digits behind the point that the "
                                "column keeps",
                                SHOW(text, len), scale);
            }
            continue;
        }
        after_point += point;
        significant += significant != 0 || digit != 0;
        if (significant > digits_max) {
            break;
        }
        words_push_digit(words, digit);
    }
    for (; after_point < scale && significant <= digits_max; after_point++) {
        significant += significant != 0;
        words_push_digit(words, 0);
    }
    if (!any) {
        return refuse(err, text, len, "a decimal number");
    }
    if (significant > digits_max) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "'%.*s' has more than %u digits at %u behind the point", SHOW(text, len),
                        digits_max, scale);
    }
    if (sign && *text == '-') {
        words_negate(words);
    }
    out->words = words;
    return QWP_OK;
}

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') {
        return c - 'A';
    }
    if (c >= 'a' && c <= 'z') {
        return c - 'a' + 26;
    }
    if (c >= '0' && c <= '9') {
        return c - '0' + 52;
    }
    return c == '+' || c == '-' ? 62 : c == '/' || c == '_' ? 63 : -1;
}

static enum qwp_result convert_binary(struct qwp_feed_converter *c, const char *text, size_t len,
                                      struct qwp_feed_value *out, struct qwp_error *err)
{
    size_t digits = len;
    while (digits > 0 && len - digits < 2 && text[digits - 1] == '=') {
        digits--;
    }
    char *bytes = pool_take(c, digits * 3 / 4 + 1);
    bool ok = bytes != NULL && digits % 4 != 1;
    uint32_t acc = 0;
    uint32_t n = 0;
    for (size_t i = 0; ok && i < digits; i++) {
        const int v = base64_value(text[i]);
        ok = v >= 0;
        acc = acc << 6 | (uint32_t)(v & 63);
        if (i % 4 != 0) {
            bytes[n++] = (char)(acc >> (6 - 2 * (i % 4)));
        }
    }
    if (!ok) {
        return refuse(err, text, len, "base64");
    }
    out->text = bytes;
    out->len = n;
    return QWP_OK;
}

static enum qwp_result convert_ipv4(const char *text, size_t len, struct qwp_feed_value *out,
                                    struct qwp_error *err)
{
    uint32_t address = 0;
    size_t i = 0;
    bool ok = true;
    for (int part = 0; ok && part < 4; part++) {
        uint32_t v = 0;
        size_t digits = 0;
        for (; i < len && text[i] >= '0' && text[i] <= '9' && digits < 3; i++, digits++) {
            v = v * 10 + (uint32_t)(text[i] - '0');
        }
        ok = digits > 0 && v < 256 && (part == 3 ? i == len : i < len && text[i] == '.');
        i += part < 3;
        address = address << 8 | v;
    }
    if (!ok) {
        return refuse(err, text, len, "an IPv4 address");
    }
    out->i64 = address;
    return QWP_OK;
}

/* A nested list on its way to an array. */
struct list {
    const char *at;
    const char *end;
    struct qwp_feed_array *array;
    char *values;
    uint32_t value_count;
    bool doubles;
    bool known[QWP_ARRAY_DIMENSIONS_MAX]; /* the length of this dimension */
};

static void list_skip_spaces(struct list *l)
{
    while (l->at < l->end && (*l->at == ' ' || *l->at == '\t')) {
        l->at++;
    }
}

static bool list_take_any(struct list *l, const char *chars)
{
    list_skip_spaces(l);
    const bool hit = l->at < l->end && *l->at != '\0' && strchr(chars, *l->at) != NULL;
    l->at += hit;
    return hit;
}

static bool list_take_value(struct list *l)
{
    list_skip_spaces(l);
    const char *start = l->at;
    while (l->at < l->end && strchr(",]} \t", *l->at) == NULL) {
        l->at++;
    }
    const size_t len = (size_t)(l->at - start);
    char *to = l->values + (size_t)l->value_count * 8;
    int64_t i64;
    double f64;
    if (!l->doubles) {
        if (!qwp_feed_parse_i64(start, len, &i64)) {
            return false;
        }
        memcpy(to, &i64, 8);
    } else {
        const bool is_null = len == 4 && strncasecmp(start, "null", 4) == 0;
        if (!qwp_feed_parse_double(is_null ? "nan" : start, is_null ? 3 : len, &f64)) {
            return false;
        }
        memcpy(to, &f64, 8);
    }
    l->value_count++;
    return true;
}

/* One list of depth `depth` (0: the outermost), its opening bracket taken. Lists nest at most
 * QWP_ARRAY_DIMENSIONS_MAX deep, which bounds the recursion. */
static bool list_parse(struct list *l, uint32_t depth)
{
    if (depth >= QWP_ARRAY_DIMENSIONS_MAX) {
        return false;
    }
    uint32_t count = 0;
    bool leaf = l->array->dimensions == depth + 1;
    if (!list_take_any(l, "]}")) {
        do {
            if (list_take_any(l, "[{")) {
                if (leaf || !list_parse(l, depth + 1)) {
                    return false;
                }
            } else {
                if (l->array->dimensions == 0) {
                    l->array->dimensions = depth + 1;
                    leaf = true;
                }
                if (!leaf || !list_take_value(l)) {
                    return false;
                }
            }
            count++;
        } while (list_take_any(l, ","));
        if (!list_take_any(l, "]}")) {
            return false;
        }
    } else if (l->array->dimensions == 0) {
        l->array->dimensions = depth + 1; /* [] at the deepest place seen so far */
    } else if (!leaf) {
        return false; /* [] where its neighbours hold lists */
    }
    if (l->known[depth] && l->array->shape[depth] != count) {
        return false;
    }
    l->known[depth] = true;
    l->array->shape[depth] = count;
    return true;
}

static enum qwp_result convert_array(struct qwp_feed_converter *c, uint8_t type, const char *text,
                                     size_t len, struct qwp_feed_value *out, struct qwp_error *err)
{
    struct list l = {text,   text + len, pool_take(c, sizeof *l.array),
                     NULL,   0,          type == QWP_DOUBLE_ARRAY,
                     {false}};
    size_t elements = 1;
    for (size_t i = 0; i < len; i++) {
        elements += text[i] == ',';
    }
    l.values = pool_take(c, elements * 8);
    if (l.array == NULL || l.values == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no room for an array");
    }
    l.array->dimensions = 0;
    bool ok = list_take_any(&l, "[{") && list_parse(&l, 0);
    list_skip_spaces(&l);
    if (!ok || l.at != l.end) {
        return refuse(err, text, len,
                      l.doubles ? "an array of doubles like [[1,2],[3,4]], rows of one length"
                                : "an array of longs like [[1,2],[3,4]], rows of one length");
    }
    l.array->values = l.values;
    out->array = l.array;
    return QWP_OK;
}

void qwp_feed_convert_symbol(struct qwp_feed_converter *c, const char *text, size_t len,
                             struct qwp_feed_value *out)
{
    out->symbol = qwp_feed_symbols_find(c->symbols, text, len);
    if (out->symbol == NULL) {
        out->symbol = pool_take(c, sizeof *out->symbol);
        *out->symbol = (struct qwp_feed_symbol){text, (uint32_t)len, QWP_FEED_SYMBOL_TEXT};
    }
}

enum qwp_result qwp_feed_convert(struct qwp_feed_converter *c, uint8_t type, uint8_t parameter,
                                 const char *text, size_t len, struct qwp_feed_value *out,
                                 struct qwp_error *err)
{
    out->null = 0;
    out->len = 0;
    switch ((enum qwp_column_type)type) {
    case QWP_BOOLEAN:
        return convert_boolean(text, len, out, err);
    case QWP_BYTE:
        return convert_integer(text, len, INT8_MIN, INT8_MAX, "a byte (-128 to 127)", out, err);
    case QWP_SHORT:
        return convert_integer(text, len, INT16_MIN, INT16_MAX, "a short (16 bits)", out, err);
    case QWP_INT:
        return convert_integer(text, len, INT32_MIN, INT32_MAX, "an int (32 bits)", out, err);
    case QWP_LONG:
        return convert_integer(text, len, INT64_MIN, INT64_MAX, "a long (64 bits)", out, err);
    case QWP_FLOAT:
        return qwp_feed_parse_float(text, len, &out->f32) ? QWP_OK
                                                          : refuse(err, text, len, "a number");
    case QWP_DOUBLE:
        return qwp_feed_parse_double(text, len, &out->f64) ? QWP_OK
                                                           : refuse(err, text, len, "a number");
    case QWP_SYMBOL:
        qwp_feed_convert_symbol(c, text, len, out);
        return QWP_OK;
    case QWP_VARCHAR:
        out->text = text;
        out->len = (uint32_t)len;
        return QWP_OK;
    case QWP_CHAR:
        return convert_char(text, len, out, err);
    case QWP_DATE:
        return convert_time(text, len, QWP_FEED_MS, out, err);
    case QWP_TIMESTAMP:
        return convert_time(text, len, QWP_FEED_US, out, err);
    case QWP_TIMESTAMP_NANOS:
        return convert_time(text, len, QWP_FEED_NS, out, err);
    case QWP_UUID:
        return convert_uuid(c, text, len, out, err);
    case QWP_LONG256:
        return convert_long256(c, text, len, out, err);
    case QWP_GEOHASH:
        return convert_geohash(text, len, parameter, out, err);
    case QWP_DECIMAL64:
    case QWP_DECIMAL128:
    case QWP_DECIMAL256:
        return convert_decimal(c, type, parameter, text, len, out, err);
    case QWP_BINARY:
        return convert_binary(c, text, len, out, err);
    case QWP_IPV4:
        return convert_ipv4(text, len, out, err);
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        return convert_array(c, type, text, len, out, err);
    }
    return qwp_fail(err, QWP_INVALID, 0, "no conversion to type 0x%02x", type);
}

/* Names of the types, aliases behind the first one. */
static const struct {
    const char *name;
    uint8_t type;
} type_names[] = {
    {"boolean", QWP_BOOLEAN},
    {"bool", QWP_BOOLEAN},
    {"byte", QWP_BYTE},
    {"short", QWP_SHORT},
    {"int", QWP_INT},
    {"long", QWP_LONG},
    {"float", QWP_FLOAT},
    {"double", QWP_DOUBLE},
    {"symbol", QWP_SYMBOL},
    {"timestamp", QWP_TIMESTAMP},
    {"timestamp_us", QWP_TIMESTAMP},
    {"date", QWP_DATE},
    {"uuid", QWP_UUID},
    {"long256", QWP_LONG256},
    {"varchar", QWP_VARCHAR},
    {"string", QWP_VARCHAR},
    {"timestamp_ns", QWP_TIMESTAMP_NANOS},
    {"double[]", QWP_DOUBLE_ARRAY},
    {"double_array", QWP_DOUBLE_ARRAY},
    {"long[]", QWP_LONG_ARRAY},
    {"long_array", QWP_LONG_ARRAY},
    {"char", QWP_CHAR},
    {"binary", QWP_BINARY},
    {"ipv4", QWP_IPV4},
    {"skip", 0},
};

static bool parse_geohash_type(const char *text, uint8_t *type, uint8_t *parameter)
{
    unsigned n;
    char unit;
    int used = 0;
    if (sscanf(text, "geohash(%u%c)%n", &n, &unit, &used) != 2 || used == 0 || text[used] != '\0' ||
        (unit != 'c' && unit != 'b') || n == 0 || n > (unit == 'c' ? 12u : 60u)) {
        return false;
    }
    *type = QWP_GEOHASH;
    *parameter = (uint8_t)(unit == 'c' ? n * 5 : n);
    return true;
}

static bool parse_decimal_type(const char *text, uint8_t *type, uint8_t *parameter)
{
    unsigned precision;
    unsigned scale;
    int used = 0;
    if (sscanf(text, "decimal(%u,%u)%n", &precision, &scale, &used) != 2 || used == 0 ||
        text[used] != '\0' || precision == 0 || precision > QWP_DECIMAL256_SCALE_MAX ||
        scale > precision) {
        return false;
    }
    *type = precision <= QWP_DECIMAL64_SCALE_MAX    ? QWP_DECIMAL64
            : precision <= QWP_DECIMAL128_SCALE_MAX ? QWP_DECIMAL128
                                                    : QWP_DECIMAL256;
    *parameter = (uint8_t)scale;
    return true;
}

bool qwp_feed_type_parse(const char *text, size_t len, uint8_t *type, uint8_t *parameter)
{
    char lower[32];
    if (len >= sizeof lower) {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        lower[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] | 0x20) : text[i];
    }
    lower[len] = '\0';
    *parameter = 0;
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (strcmp(lower, type_names[i].name) == 0) {
            *type = type_names[i].type;
            return true;
        }
    }
    return parse_geohash_type(lower, type, parameter) || parse_decimal_type(lower, type, parameter);
}

const char *qwp_feed_type_text(uint8_t type, uint8_t parameter, char *text, size_t text_bytes)
{
    switch (type) {
    case QWP_GEOHASH:
        snprintf(text, text_bytes, "geohash(%ub)", parameter);
        return text;
    case QWP_DECIMAL64:
    case QWP_DECIMAL128:
    case QWP_DECIMAL256:
        snprintf(text, text_bytes, "decimal(%d,%u)",
                 type == QWP_DECIMAL64    ? QWP_DECIMAL64_SCALE_MAX
                 : type == QWP_DECIMAL128 ? QWP_DECIMAL128_SCALE_MAX
                                          : QWP_DECIMAL256_SCALE_MAX,
                 parameter);
        return text;
    default:
        break;
    }
    for (size_t i = 0; i < sizeof type_names / sizeof *type_names; i++) {
        if (type_names[i].type == type && type != 0) {
            snprintf(text, text_bytes, "%s", type_names[i].name);
            return text;
        }
    }
    snprintf(text, text_bytes, "0x%02x", type);
    return text;
}

#include "tests/sink/sink_value.h"

#include <inttypes.h>
#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"

enum { EMPTY_PARTS_MAX = 1024 };

void sink_value_put_i64(struct sink_buffer *out, int64_t v)
{
    char digits[20];
    size_t n = 0;
    uint64_t left = v < 0 ? -(uint64_t)v : (uint64_t)v;
    do {
        digits[sizeof digits - ++n] = (char)('0' + left % 10);
        left /= 10;
    } while (left > 0);
    if (v < 0) {
        sink_buffer_put(out, "-", 1);
    }
    sink_buffer_put(out, digits + sizeof digits - n, n);
}

/* Doubles that are a whole number of small decimal fractions, as most are, without printf: i / 10^k
 * is rounded correctly when both are exact, so the text i / 10^k reads back as that double. */
static bool put_short_double(struct sink_buffer *out, double v)
{
    double scale = 1;
    for (int k = 0; k <= 6; k++, scale *= 10) {
        const double whole = nearbyint(v * scale);
        if (fabs(whole) >= 0x1p53) {
            return false;
        }
        if (whole / scale != v || (whole == 0 && signbit(v))) {
            continue;
        }
        const uint64_t digits = (uint64_t)fabs(whole);
        const uint64_t unit = (uint64_t)scale;
        if (v < 0) {
            sink_buffer_put(out, "-", 1);
        }
        sink_value_put_i64(out, (int64_t)(digits / unit));
        sink_buffer_put(out, ".", 1);
        char fraction[8] = "0";
        uint64_t rest = digits % unit;
        for (int i = k; i > 0; i--, rest /= 10) {
            fraction[i - 1] = (char)('0' + rest % 10);
        }
        sink_buffer_put(out, fraction, k > 0 ? (size_t)k : 1);
        return true;
    }
    return false;
}

static bool put_not_finite(struct sink_buffer *out, double v)
{
    if (isfinite(v)) {
        return false;
    }
    sink_buffer_text(out, isnan(v) ? "\"NaN\"" : v > 0 ? "\"Infinity\"" : "\"-Infinity\"");
    return true;
}

/* With a point or an exponent, so that a reader takes it for a floating number too. */
static void put_digits(struct sink_buffer *out, const char *text)
{
    sink_buffer_text(out, text);
    if (strpbrk(text, ".e") == NULL) {
        sink_buffer_text(out, ".0");
    }
}

static void put_double(struct sink_buffer *out, double v)
{
    if (put_not_finite(out, v) || put_short_double(out, v)) {
        return;
    }
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v) {
            break;
        }
    }
    put_digits(out, text);
}

static void put_float(struct sink_buffer *out, float v)
{
    if (put_not_finite(out, (double)v)) {
        return;
    }
    char text[32];
    for (int digits = 6; digits <= 9; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, (double)v);
        if (strtof(text, NULL) == v) {
            break;
        }
    }
    put_digits(out, text);
}

static void put_uuid(struct sink_buffer *out, const unsigned char *at)
{
    const uint64_t low = qwp_load_u64(at);
    const uint64_t high = qwp_load_u64(at + 8);
    sink_buffer_printf(
        out, "\"%08" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%04" PRIx64 "-%012" PRIx64 "\"",
        high >> 32, high >> 16 & 0xffff, high & 0xffff, low >> 48, low & UINT64_C(0xffffffffffff));
}

static void put_long256(struct sink_buffer *out, const unsigned char *at)
{
    char digits[65];
    snprintf(digits, sizeof digits, "%016" PRIx64 "%016" PRIx64 "%016" PRIx64 "%016" PRIx64,
             qwp_load_u64(at + 24), qwp_load_u64(at + 16), qwp_load_u64(at + 8), qwp_load_u64(at));
    size_t zeros = strspn(digits, "0");
    zeros = zeros < 64 ? zeros : 63;
    sink_buffer_printf(out, "\"0x%s\"", digits + zeros);
}

/* Divides words, least significant first, by ten; gives the remainder. */
static unsigned divide_by_ten(uint32_t *words, size_t count)
{
    uint64_t rest = 0;
    for (size_t i = count; i-- > 0;) {
        const uint64_t part = rest << 32 | words[i];
        words[i] = (uint32_t)(part / 10);
        rest = part % 10;
    }
    return (unsigned)rest;
}

static bool all_zero(const uint32_t *words, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (words[i] != 0) {
            return false;
        }
    }
    return true;
}

/* Two's complement, least significant byte first, `scale` digits behind the point. */
static void put_decimal(struct sink_buffer *out, const unsigned char *at, uint32_t len,
                        unsigned scale)
{
    uint32_t words[8];
    const size_t count = len / sizeof words[0];
    memcpy(words, at, len);
    const bool negative = (at[len - 1] & 0x80) != 0;
    uint64_t carry = 1;
    for (size_t i = 0; negative && i < count; i++) {
        carry += (uint32_t)~words[i];
        words[i] = (uint32_t)carry;
        carry >>= 32;
    }
    char text[100];
    size_t n = 0;
    unsigned digits = 0;
    text[sizeof text - ++n] = '"';
    while (digits <= scale || !all_zero(words, count)) {
        text[sizeof text - ++n] = (char)('0' + divide_by_ten(words, count));
        if (++digits == scale) {
            text[sizeof text - ++n] = '.';
        }
    }
    if (negative) {
        text[sizeof text - ++n] = '-';
    }
    text[sizeof text - ++n] = '"';
    sink_buffer_put(out, text + sizeof text - n, n);
}

static void put_geohash(struct sink_buffer *out, uint64_t v, unsigned bits)
{
    static const char base32[] = "0123456789bcdefghjkmnpqrstuvwxyz";
    const unsigned step = bits % 5 == 0 ? 5 : 1;
    sink_buffer_put(out, "\"", 1);
    for (unsigned left = bits; left > 0; left -= step) {
        sink_buffer_put(out, &base32[v >> (left - step) & ((1u << step) - 1)], 1);
    }
    sink_buffer_put(out, "\"", 1);
}

/* One UTF-16 code unit; half of a pair can only be shown by its number. */
static void put_char(struct sink_buffer *out, uint64_t unit)
{
    if (unit == 0) {
        sink_buffer_text(out, "null");
    } else if (unit < 0x80) {
        const char c = (char)unit;
        sink_buffer_json(out, &c, 1);
    } else if (unit >= 0xd800 && unit < 0xe000) {
        sink_buffer_printf(out, "\"\\u%04x\"", (unsigned)unit);
    } else if (unit < 0x800) {
        const char utf8[] = {(char)(0xc0 | unit >> 6), (char)(0x80 | (unit & 0x3f))};
        sink_buffer_json(out, utf8, sizeof utf8);
    } else {
        const char utf8[] = {(char)(0xe0 | unit >> 12), (char)(0x80 | (unit >> 6 & 0x3f)),
                             (char)(0x80 | (unit & 0x3f))};
        sink_buffer_json(out, utf8, sizeof utf8);
    }
}

static void put_base64(struct sink_buffer *out, const unsigned char *at, uint32_t len)
{
    sink_buffer_put(out, "\"", 1);
    char *text = sink_buffer_reserve(out, 4 * ((size_t)len + 2) / 3 + 4);
    const int n = EVP_EncodeBlock((unsigned char *)text, at, (int)len);
    out->len += n > 0 ? (size_t)n : 0;
    sink_buffer_put(out, "\"", 1);
}

/* Dimension `d` from element `*next` on. */
static void put_array_part(struct sink_buffer *out, const struct qwp_value *value, uint32_t d,
                           uint32_t *next)
{
    const uint32_t length = qwp_load_u32(value->array.lengths + 4 * (size_t)d);
    sink_buffer_put(out, "[", 1);
    for (uint32_t i = 0; i < length; i++) {
        sink_buffer_put(out, ",", i > 0);
        if (d + 1 < value->array.dimensions) {
            put_array_part(out, value, d + 1, next);
            continue;
        }
        const unsigned char *at = value->array.elements + 8 * (size_t)(*next)++;
        if (value->type == QWP_TYPE_LONG_ARRAY) {
            sink_value_put_i64(out, qwp_load_i64(at));
        } else {
            double v;
            memcpy(&v, at, sizeof v);
            put_double(out, v);
        }
    }
    sink_buffer_put(out, "]", 1);
}

/* Pairs of brackets that an empty array would be shown with; a few bytes can ask for any number. */
static uint64_t empty_parts(const struct qwp_value *value)
{
    uint64_t parts = 1;
    for (uint32_t d = 0; d < value->array.dimensions; d++) {
        parts *= qwp_load_u32(value->array.lengths + 4 * (size_t)d);
        if (parts == 0 || parts > EMPTY_PARTS_MAX) {
            break;
        }
    }
    return parts;
}

static void put_array(struct sink_buffer *out, const struct qwp_value *value)
{
    uint32_t next = 0;
    if (value->array.element_count == 0 && empty_parts(value) > EMPTY_PARTS_MAX) {
        sink_buffer_text(out, "[]");
        return;
    }
    put_array_part(out, value, 0, &next);
}

void sink_value_put(struct sink_buffer *out, const struct qwp_column *column,
                    const struct qwp_value *value)
{
    if (value->null) {
        sink_buffer_put(out, "null", 4);
        return;
    }
    switch (value->type) {
    case QWP_TYPE_BOOLEAN:
        sink_buffer_text(out, value->boolean ? "true" : "false");
        break;
    case QWP_TYPE_FLOAT:
        put_float(out, value->f32);
        break;
    case QWP_TYPE_DOUBLE:
        put_double(out, value->f64);
        break;
    case QWP_TYPE_SYMBOL:
        sink_buffer_json(out, value->symbol.text.text, value->symbol.text.len);
        break;
    case QWP_TYPE_VARCHAR:
        sink_buffer_json(out, (const char *)value->bytes.at, value->bytes.len);
        break;
    case QWP_TYPE_BINARY:
        put_base64(out, value->bytes.at, value->bytes.len);
        break;
    case QWP_TYPE_UUID:
        put_uuid(out, value->bytes.at);
        break;
    case QWP_TYPE_LONG256:
        put_long256(out, value->bytes.at);
        break;
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        put_decimal(out, value->bytes.at, value->bytes.len, column->parameter);
        break;
    case QWP_TYPE_GEOHASH:
        put_geohash(out, value->u64, column->parameter);
        break;
    case QWP_TYPE_CHAR:
        put_char(out, value->u64);
        break;
    case QWP_TYPE_IPV4:
        sink_buffer_printf(out, "\"%u.%u.%u.%u\"", (unsigned)(value->u64 >> 24),
                           (unsigned)(value->u64 >> 16 & 0xff), (unsigned)(value->u64 >> 8 & 0xff),
                           (unsigned)(value->u64 & 0xff));
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        put_array(out, value);
        break;
    default:
        sink_value_put_i64(out, value->i64);
        break;
    }
}

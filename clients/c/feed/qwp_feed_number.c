#include "clients/c/feed/qwp_feed_number.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum {
    NUMBER_BYTES_MAX = 1100, /* a double needs at most 767 significant digits and its exponent */
    DIGITS_MAX = 19,         /* always fit in 64 bits */
    POWER_MAX = 22,          /* 10^22 is the largest power of ten that is an exact double */
    PLACES_MAX = 27,         /* 5^27 is the largest power of five in 64 bits */
};
#define DOUBLE_INTEGER_MAX (UINT64_C(1) << 53)
#define FLOAT_INTEGER_MAX  (UINT64_C(1) << 24)

static const double powers_of_ten[POWER_MAX + 1] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

static inline bool is_digit(char c)
{
    return (unsigned char)(c - '0') < 10;
}

const char *qwp_feed_scan_long_u64(const char *at, uint64_t *out)
{
    while (*at == '0') {
        at++;
    }
    uint64_t v = 0;
    const char *digits = at;
    while (at - digits <= 8 && qwp_feed_non_digits(qwp_load_u64(at)) == 0) {
        v = v * 100000000 + qwp_feed_eight_digits(qwp_load_u64(at));
        at += 8;
    }
    while (is_digit(*at) && at - digits < DIGITS_MAX) {
        v = v * 10 + (uint64_t)(*at - '0');
        at++;
    }
    if (is_digit(*at)) {
        if (is_digit(at[1]) || __builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(*at - '0'), &v)) {
            return NULL;
        }
        at++;
    }
    *out = v;
    return at;
}

/* What a decimal number says before it is converted. */
struct decimal {
    const char *end;   /* behind it */
    uint64_t mantissa; /* digits without the point, valid unless `long_mantissa` */
    int64_t exponent;  /* value = mantissa * 10^exponent */
    bool negative;
    bool long_mantissa; /* more than DIGITS_MAX significant digits */
};

static bool scan_exponent(const char *at, const char *end, struct decimal *d)
{
    bool negative = false;
    if (at < end && (*at == '-' || *at == '+')) {
        negative = *at == '-';
        at++;
    }
    if (at == end || !is_digit(*at)) {
        return false;
    }
    int64_t e = 0;
    for (; at < end && is_digit(*at); at++) {
        e = e < 100000 ? e * 10 + (*at - '0') : e; /* far beyond any double already */
    }
    d->exponent += negative ? -e : e;
    d->end = at;
    return true;
}

/* False when there is no number at `at`. `end` bounds the reading. */
static bool scan_decimal(const char *at, const char *end, struct decimal *d)
{
    *d = (struct decimal){0};
    if (at < end && (*at == '-' || *at == '+')) {
        d->negative = *at == '-';
        at++;
    }
    uint64_t v = 0;
    uint32_t significant = 0;
    bool any = false;
    int64_t after_point = 0;
    bool point = false;
    for (; at < end; at++) {
        if (*at == '.' && !point) {
            point = true;
            continue;
        }
        if (!is_digit(*at)) {
            break;
        }
        any = true;
        after_point += point;
        v = v * 10 + (uint64_t)(*at - '0'); /* wraps only when long_mantissa says so below */
        significant += significant != 0 || *at != '0';
    }
    if (!any) {
        return false;
    }
    d->end = at;
    d->mantissa = v;
    d->exponent = -after_point;
    d->long_mantissa = significant > DIGITS_MAX;
    if (at < end && (*at == 'e' || *at == 'E')) {
        return scan_exponent(at + 1, end, d);
    }
    return true;
}

/* mantissa / 10^places for up to 27 places, where 5^places fits a word: a division of integers with
 * 62 bits at least and the remainder's say in rounding to 53, half to even. Nothing here is near
 * the ends of a double's range. */
static double ratio(uint64_t mantissa, unsigned places)
{
    uint64_t divisor = 1;
    for (unsigned i = 0; i < places; i++) {
        divisor *= 5;
    }
    const int mantissa_shift = __builtin_clzll(mantissa);
    const int divisor_shift = __builtin_clzll(divisor);
    divisor <<= divisor_shift;
    const unsigned __int128 dividend = (unsigned __int128)(mantissa << mantissa_shift) << 63;
    const uint64_t quotient = (uint64_t)(dividend / divisor);
    const bool inexact = (uint64_t)dividend != quotient * divisor;
    const int drop = 64 - __builtin_clzll(quotient) - 53;
    const uint64_t half = UINT64_C(1) << (drop - 1);
    const uint64_t rest = quotient & (2 * half - 1);
    uint64_t digits = quotient >> drop;
    digits += rest > half || (rest == half && (inexact || (digits & 1) != 0));
    const int exponent = drop + divisor_shift - mantissa_shift - 63 - (int)places;
    const uint64_t power_bits = (uint64_t)(1023 + exponent) << 52;
    double power;
    memcpy(&power, &power_bits, sizeof power);
    return (double)digits * power;
}

static inline bool exact_double(const struct decimal *d, double *out)
{
    double v;
    if (d->long_mantissa) {
        return false;
    }
    if (d->mantissa <= DOUBLE_INTEGER_MAX && d->exponent >= -POWER_MAX &&
        d->exponent <= POWER_MAX) {
        const double m = (double)d->mantissa;
        v = d->exponent < 0 ? m / powers_of_ten[-d->exponent] : m * powers_of_ten[d->exponent];
    } else if (d->mantissa != 0 && d->exponent < 0 && d->exponent >= -PLACES_MAX) {
        v = ratio(d->mantissa, (unsigned)-d->exponent);
    } else {
        return false;
    }
    *out = d->negative ? -v : v;
    return true;
}

/* The exact but slow way. */
static bool library_double(const char *text, size_t len, double *out)
{
    char copy[NUMBER_BYTES_MAX + 1];
    if (len > NUMBER_BYTES_MAX) {
        return false;
    }
    memcpy(copy, text, len);
    copy[len] = '\0';
    *out = strtod(copy, NULL);
    return true;
}

const char *qwp_feed_scan_double(const char *at, double *out)
{
    struct decimal d;
    /* The bound is never met: a byte that cannot belong to the number comes first. */
    if (!scan_decimal(at, at + PTRDIFF_MAX / 2, &d)) {
        return NULL;
    }
    if (!exact_double(&d, out) && !library_double(at, (size_t)(d.end - at), out)) {
        return NULL;
    }
    return d.end;
}

bool qwp_feed_parse_u64(const char *text, size_t len, uint64_t *out)
{
    if (len == 0) {
        return false;
    }
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++) {
        if (!is_digit(text[i]) || __builtin_mul_overflow(v, UINT64_C(10), &v) ||
            __builtin_add_overflow(v, (uint64_t)(text[i] - '0'), &v)) {
            return false;
        }
    }
    *out = v;
    return true;
}

bool qwp_feed_parse_i64(const char *text, size_t len, int64_t *out)
{
    const bool sign = len > 0 && (*text == '-' || *text == '+');
    uint64_t magnitude;
    return qwp_feed_parse_u64(text + sign, len - sign, &magnitude) &&
           qwp_feed_apply_sign(sign && *text == '-', magnitude, out);
}

/* nan, inf, infinity with a sign: written as doubles, which convert to float exactly. */
static bool parse_special(const char *text, size_t len, double *out)
{
    const bool sign = len > 0 && (*text == '-' || *text == '+');
    const bool negative = sign && *text == '-';
    text += sign;
    len -= sign;
    if (len == 3 && strncasecmp(text, "nan", 3) == 0) {
        *out = (double)NAN;
        return true;
    }
    if ((len == 3 && strncasecmp(text, "inf", 3) == 0) ||
        (len == 8 && strncasecmp(text, "infinity", 8) == 0)) {
        *out = negative ? -(double)INFINITY : (double)INFINITY;
        return true;
    }
    return false;
}

bool qwp_feed_parse_double(const char *text, size_t len, double *out)
{
    struct decimal d;
    if (!scan_decimal(text, text + len, &d)) {
        return parse_special(text, len, out);
    }
    return d.end == text + len && (exact_double(&d, out) || library_double(text, len, out));
}

bool qwp_feed_parse_float(const char *text, size_t len, float *out)
{
    struct decimal d;
    if (!scan_decimal(text, text + len, &d)) {
        double special;
        if (!parse_special(text, len, &special)) {
            return false;
        }
        *out = (float)special;
        return true;
    }
    if (d.end != text + len || len > NUMBER_BYTES_MAX) {
        return false;
    }
    if (!d.long_mantissa && d.mantissa <= FLOAT_INTEGER_MAX && d.exponent >= -10 &&
        d.exponent <= 10) {
        const float m = (float)d.mantissa;
        const float power = (float)powers_of_ten[d.exponent < 0 ? -d.exponent : d.exponent];
        const float v = d.exponent < 0 ? m / power : m * power;
        *out = d.negative ? -v : v;
        return true;
    }
    char copy[NUMBER_BYTES_MAX + 1];
    memcpy(copy, text, len);
    copy[len] = '\0';
    *out = strtof(copy, NULL);
    return true;
}

static bool is_one_of(const char *text, size_t len, const char *const words[4])
{
    for (int i = 0; i < 4; i++) {
        if (strlen(words[i]) == len && memcmp(words[i], text, len) == 0) {
            return true;
        }
    }
    return false;
}

bool qwp_feed_parse_boolean(const char *text, size_t len, bool *out)
{
    static const char *const yes[4] = {"t", "true", "True", "TRUE"};
    static const char *const no[4] = {"f", "false", "False", "FALSE"};
    if (len == 1 && (*text == 'T' || *text == 'F')) {
        *out = *text == 'T';
        return true;
    }
    *out = is_one_of(text, len, yes);
    return *out || is_one_of(text, len, no);
}

/* qwp_feed_number: numbers from text, exact to the last bit.
 *
 * Doubles of up to 15 digits and small exponents are converted by one multiplication or division of
 * exact operands, which IEEE 754 rounds correctly; those of up to 19 digits and 27 decimal places
 * by a division of integers; everything else goes to strtod(). The program never calls setlocale(),
 * so the point is a '.'.
 *
 * Trust:  the scan functions go on until a byte that cannot belong to the number, so one must
 *         follow (a newline, a NUL), and they load eight bytes at a time: QWP_FEED_SLACK_BYTES
 *         behind the text must be readable. All others read exactly `len` bytes. */
#ifndef QWP_FEED_NUMBER_H
#define QWP_FEED_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_bytes.h"

/* What every block of input has behind its last byte, so that scanning may load wide words. */
enum { QWP_FEED_SLACK_BYTES = 64 };

/* Decimal digits from `at` on: the first byte that is no digit, or NULL when there is no digit or
 * the value does not fit. */
static inline const char *qwp_feed_scan_u64(const char *at, uint64_t *out);
/* The same with an optional sign. */
static inline const char *qwp_feed_scan_i64(const char *at, int64_t *out);
/* [sign] digits [. digits] [e [sign] digits], with digits on at least one side of the point; no nan
 * and no inf. NULL when there is no number, or one of more than a thousand characters. */
const char *qwp_feed_scan_double(const char *at, double *out);

/* The whole text must be the number. */
bool qwp_feed_parse_u64(const char *text, size_t len, uint64_t *out);
bool qwp_feed_parse_i64(const char *text, size_t len, int64_t *out);
/* Also nan, inf and infinity with an optional sign, in any case. */
bool qwp_feed_parse_double(const char *text, size_t len, double *out);
/* Rounded once, from the text to float, not by way of a double. */
bool qwp_feed_parse_float(const char *text, size_t len, float *out);
/* t, T, true, True, TRUE and the like for false. */
bool qwp_feed_parse_boolean(const char *text, size_t len, bool *out);

/* ---- below: the quick way for short numbers ---- */

/* The high bit of each byte that is no digit. */
static inline uint64_t qwp_feed_non_digits(uint64_t v)
{
    const uint64_t t = v ^ UINT64_C(0x3030303030303030);
    return (((t & UINT64_C(0x7f7f7f7f7f7f7f7f)) + UINT64_C(0x7676767676767676)) | t) &
           UINT64_C(0x8080808080808080);
}

/* The value of eight digits, the first one in the lowest byte: to pairs, to fours, to all. */
static inline uint32_t qwp_feed_eight_digits(uint64_t v)
{
    v -= UINT64_C(0x3030303030303030);
    v = v * 10 + (v >> 8);
    v = ((v & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x000f424000000064) +
         ((v >> 16) & UINT64_C(0x000000ff000000ff)) * UINT64_C(0x0000271000000001)) >>
        32;
    return (uint32_t)v;
}

/* Eight digits at least. */
const char *qwp_feed_scan_long_u64(const char *at, uint64_t *out);

static inline const char *qwp_feed_scan_u64(const char *at, uint64_t *out)
{
    const uint64_t v = qwp_load_u64(at);
    const uint64_t stop = qwp_feed_non_digits(v);
    if (stop == 0) {
        return qwp_feed_scan_long_u64(at, out);
    }
    const unsigned bits = (unsigned)__builtin_ctzll(stop) & ~7u; /* of the digits */
    if (bits == 0) {
        return NULL;
    }
    /* Zeros in front, without a branch on how many digits there are. */
    *out = qwp_feed_eight_digits(v << (64 - bits) | UINT64_C(0x3030303030303030) >> bits);
    return at + bits / 8;
}

static inline bool qwp_feed_apply_sign(bool negative, uint64_t magnitude, int64_t *out)
{
    *out = (int64_t)(negative ? 0 - magnitude : magnitude);
    return magnitude <= (uint64_t)INT64_MAX + (negative ? 1 : 0);
}

static inline const char *qwp_feed_scan_i64(const char *at, int64_t *out)
{
    const bool negative = *at == '-';
    at += negative || *at == '+';
    uint64_t magnitude = 0;
    at = qwp_feed_scan_u64(at, &magnitude);
    return qwp_feed_apply_sign(negative, magnitude, out) ? at : NULL;
}

#endif

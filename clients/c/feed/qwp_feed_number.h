/* qwp_feed_number: numbers from text, exact to the last bit.
 *
 * Doubles of up to 19 digits and small exponents (nearly all that occur) are converted by one
 * multiplication or division of exact operands, which IEEE 754 rounds correctly; everything else
 * goes to strtod(). The program never calls setlocale(), so the point is a '.'.
 *
 * Trust:  the scan functions go on until a byte that cannot belong to the number, so one must
 *         follow (a newline, a NUL), and they load eight bytes at a time: QWP_FEED_SLACK_BYTES
 *         behind the text must be readable. All others read exactly `len` bytes. */
#ifndef QWP_FEED_NUMBER_H
#define QWP_FEED_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What every block of input has behind its last byte, so that scanning may load wide words. */
enum { QWP_FEED_SLACK_BYTES = 64 };

/* Decimal digits from `at` on: the first byte that is no digit, or NULL when there is no digit or
 * the value does not fit. */
const char *qwp_feed_scan_u64(const char *at, uint64_t *out);
/* The same with an optional sign. */
const char *qwp_feed_scan_i64(const char *at, int64_t *out);
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

#endif

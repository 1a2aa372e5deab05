/* qwp_gorilla: timestamps as deltas of deltas in a bit stream.
 *
 *   first time   i64      second time   i64      then, for each further one, bits from the least
 *   significant upwards, the prefix in reading order:
 *     0                 the same step as before
 *     10   +  7 bits    step differs by -64..63
 *     110  +  9 bits    -256..255
 *     1110 + 12 bits    -2048..2047
 *     1111 + 32 bits    any other int32
 *   padded with zero bits to a byte. */
#ifndef QWP_GORILLA_H
#define QWP_GORILLA_H

#include <stddef.h>
#include <stdint.h>

enum {
    QWP_GORILLA_TIMES_MIN = 3, /* fewer gain nothing over raw ones */
    QWP_GORILLA_SLACK = 16,    /* the encoder may write this far beyond the raw size */
};

/* Bytes written, less than 8 * n, or 0 when a delta or a delta of deltas overflows (int64, int32):
 * the column then has to go raw. n >= QWP_GORILLA_TIMES_MIN; dst has room for
 * 8 * n + QWP_GORILLA_SLACK. */
size_t qwp_gorilla_encode(const int64_t *times, uint32_t n, unsigned char *dst);

#endif

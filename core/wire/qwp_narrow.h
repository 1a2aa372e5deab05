/* qwp_narrow: a column of whole numbers or doubles in a narrower type.
 *
 * `values` are ours (nobody else writes them), so that loops may go by vectors; for fields that lie
 * in records see qwp_gather_narrow(). */
#ifndef QWP_NARROW_H
#define QWP_NARROW_H

#include <stdbool.h>
#include <stdint.h>

/* Stores n values of `type` (LONG, INT or DOUBLE), aligned to their width, in `width` bytes each:
 * fewer than their own, 4 for doubles. False: one does not fit, or would be the null of the narrow
 * type; what was stored is then of no use. */
bool qwp_narrow(const unsigned char *values, uint32_t n, uint8_t type, uint32_t width,
                unsigned char *dst);

#endif

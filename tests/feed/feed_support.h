/* feed_support: what the tests of qwp-feed's parsers share: blocks with their slack, rows as text,
 * and seeded randomness.
 *
 * A row reads `table col=value,col=value @unit time`: longs as 5, doubles as 5.0d or hexadecimal,
 * floats with f, strings in "", symbols in '', booleans T and F, timestamps as 5us and 5ns, dates
 * as 5ms, nulls as null, words as w[low,...], binary as b[hex], arrays as a[lengths:values]. */
#ifndef FEED_SUPPORT_H
#define FEED_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include "clients/c/feed/qwp_feed_parser.h"

/* Text as a block: exactly as long, with a newline and the slack behind it. Freed by free(). */
char *feed_block(const char *text, size_t len);

/* Into `out`, which is always terminated. */
void feed_row_text(const struct qwp_feed_row *row, char *out, size_t room);

/* xorshift; prints its seed once, which $QWP_TEST_SEED sets. */
uint64_t feed_random(void);

#endif

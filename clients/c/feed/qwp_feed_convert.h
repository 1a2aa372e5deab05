/* qwp_feed_convert: a text to a value of any column type.
 *
 *   boolean                t, true, 1 and f, false, 0 in the spellings of the line protocol
 *   byte short int long    decimal, in range
 *   float double           decimal, nan, inf
 *   symbol varchar         as it is (valid UTF-8)
 *   char                   one character of the basic plane
 *   date timestamp[_ns]    a number of ms, us, ns, or ISO 8601
 *   uuid                   8-4-4-4-12 hexadecimal digits
 *   long256                0x and up to 64 hexadecimal digits
 *   geohash(Nc|Nb)         base 32 characters, or ## and bits
 *   decimal(P,S)           digits with a point; more digits behind it than S only as zeros
 *   binary                 base64
 *   ipv4                   a.b.c.d
 *   double[] long[]        [1,2,3], nested for more dimensions, all rows of one length
 *
 * Threads: one. Ownership: what a value points to lies in the converter until its next begin, or in
 * the text itself. */
#ifndef QWP_FEED_CONVERT_H
#define QWP_FEED_CONVERT_H

#include <stddef.h>

#include "clients/c/feed/qwp_feed_row.h"
#include "clients/c/feed/qwp_feed_symbols.h"
#include "clients/c/feed/qwp_feed_time.h"

struct qwp_feed_converter {
    struct qwp_feed_symbols *symbols; /* borrowed; set by the owner before use */
    char *pool;
    size_t pool_bytes;
    size_t pool_used;
};

/* Makes room for a row of `text_bytes` in all with `column_count` columns; what was converted
 * before is gone. False: no memory. */
bool qwp_feed_converter_begin(struct qwp_feed_converter *converter, size_t text_bytes,
                              size_t column_count);
void qwp_feed_converter_close(struct qwp_feed_converter *converter);

/* QWP_INVALID with a text that says what was expected; it does not name the column. */
QWP_MUST_USE enum qwp_result qwp_feed_convert(struct qwp_feed_converter *converter, uint8_t type,
                                              uint8_t parameter, const char *text, size_t len,
                                              struct qwp_feed_value *out, struct qwp_error *err);

/* A SYMBOL value of this text, in the converter when the symbol table takes no more. */
void qwp_feed_convert_symbol(struct qwp_feed_converter *converter, const char *text, size_t len,
                             struct qwp_feed_value *out);

/* "long", "geohash(8c)", "decimal(18,4)", "double[]" and so on, and "skip" (then *type is 0). False
 * when there is no such type. */
bool qwp_feed_type_parse(const char *text, size_t len, uint8_t *type, uint8_t *parameter);
/* The name in that form; `text` has room for `text_bytes`. */
const char *qwp_feed_type_text(uint8_t type, uint8_t parameter, char *text, size_t text_bytes);

#endif

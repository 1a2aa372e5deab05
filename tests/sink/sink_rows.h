/* sink_rows: the rows of a table block as NDJSON.
 *
 *   {"table":"t","row":{"column":value,...},"ts":1700000000000000000,"ts_unit":"ns"}
 *
 * Values as they stand on the wire: null, true/false, integers; doubles in digits that give the
 * same double again ("NaN", "Infinity" and "-Infinity" as strings); SYMBOL, VARCHAR and CHAR as
 * text (CHAR 0 is null); BINARY in base64; UUID, IPv4 and decimals in their usual text; LONG256 as
 * 0x and hexadecimal digits; GEOHASH in base32 when its bits divide by 5, else as bits; arrays
 * nested; times and dates as integers. "ts" and "ts_unit" are null where the server assigns. */
#ifndef SINK_ROWS_H
#define SINK_ROWS_H

#include "core/wire/qwp_decode.h"
#include "tests/sink/sink_buffer.h"

struct sink_rows;

struct sink_rows *sink_rows_create(void);
void sink_rows_destroy(struct sink_rows *rows);

/* Starts a block; borrows both until its last row. */
void sink_rows_begin(struct sink_rows *rows, const struct qwp_decoder *decoder,
                     const struct qwp_table_block *block);
/* The next lines, about a megabyte of them; NULL behind the last row. */
const struct sink_buffer *sink_rows_next(struct sink_rows *rows);

#endif

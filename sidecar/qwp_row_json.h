/* qwp_row_json: rows of a decoded message as JSON, a line each, for people and for other programs.
 *
 *   {"table":"trades","columns":{"sym":"ETH-USD","price":2615.54},"timestamp_ns":1700000000000000000}
 *
 * Times are numbers in the unit of their column (key "timestamp_us", "timestamp_ns" for the
 * designated one). Binary and what has no JSON type of its own is text: hex, 0x..., NaN. Nulls are
 * left out.
 *
 * Trust: the message was decoded in full depth; texts come out as valid JSON. */
#ifndef QWP_ROW_JSON_H
#define QWP_ROW_JSON_H

#include <stdio.h>

#include "core/wire/qwp_decode.h"

/* At most `rows_max` rows of the message; returns how many. */
uint64_t qwp_row_json_print(struct qwp_decoder *decoder, const struct qwp_message *message,
                            uint64_t rows_max, FILE *out);

#endif

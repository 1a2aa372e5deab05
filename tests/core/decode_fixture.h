/* decode_fixture: how tests of the decoder look at what it read. */
#ifndef QWP_TEST_DECODE_FIXTURE_H
#define QWP_TEST_DECODE_FIXTURE_H

#include "core/wire/qwp_decode.h"

/* The value at (column, row); the column has that name ("" for the designated timestamp). */
struct qwp_value value_at(const struct qwp_decoder *decoder, const struct qwp_table_block *block,
                          const char *name, uint32_t row);

#endif

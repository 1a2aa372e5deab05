/* sink_value: one value as JSON; the forms are listed in sink_rows.h. */
#ifndef SINK_VALUE_H
#define SINK_VALUE_H

#include "core/wire/qwp_decode.h"
#include "tests/sink/sink_buffer.h"

/* `column` says precision and scale. */
void sink_value_put(struct sink_buffer *out, const struct qwp_column *column,
                    const struct qwp_value *value);
void sink_value_put_i64(struct sink_buffer *out, int64_t v);

#endif

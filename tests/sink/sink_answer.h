/* sink_answer: what the server says about messages, as WebSocket frames. */
#ifndef SINK_ANSWER_H
#define SINK_ANSWER_H

#include <stdint.h>

#include "core/wire/qwp_wire.h"
#include "tests/sink/sink_buffer.h"
#include "tests/sink/sink_intake.h"

/* OK up to `sequence`, with the tables touched since the last one; that they are durable goes to
 * `durable` (NULL: is not said). */
void sink_answer_ok(struct sink_buffer *out, int64_t sequence, struct sink_intake *intake,
                    struct sink_buffer *durable);
void sink_answer_error(struct sink_buffer *out, int64_t sequence, enum qwp_status status,
                       const char *text);

#endif

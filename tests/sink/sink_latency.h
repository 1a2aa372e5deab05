/* sink_latency: how long rows were on their way.
 *
 * A LONG column holds the monotonic clock (ns) of the moment before a row was published on this
 * host; a row arrives when its message has been read whole, before it is decoded.
 *
 * Threads: the caller's lock. */
#ifndef SINK_LATENCY_H
#define SINK_LATENCY_H

#include <stdint.h>

#include "core/qwp_histogram.h"
#include "core/wire/qwp_decode.h"
#include "tests/sink/sink_buffer.h"

struct sink_latency {
    const char *column; /* NULL: off */
    struct qwp_histogram histogram;
};

void sink_latency_block(struct sink_latency *latency, const struct qwp_decoder *decoder,
                        const struct qwp_table_block *block, int64_t arrived_ns);
/* "latency_ns":{"count":..,"p50":..,...}, and begins anew, so that warm-up can be left out. */
void sink_latency_summary(struct sink_latency *latency, struct sink_buffer *out);

#endif

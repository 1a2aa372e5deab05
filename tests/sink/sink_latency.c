#include "tests/sink/sink_latency.h"

#include <string.h>

#include "core/wire/qwp_names.h"

void sink_latency_block(struct sink_latency *latency, const struct qwp_decoder *decoder,
                        const struct qwp_table_block *block, int64_t arrived_ns)
{
    const size_t len = strlen(latency->column);
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        if (column->type != QWP_TYPE_LONG ||
            !qwp_name_equal(column->name.text, column->name.len, latency->column, len)) {
            continue;
        }
        struct qwp_cursor cursor;
        struct qwp_value value;
        qwp_cursor_init(&cursor, decoder, column);
        while (qwp_cursor_next(&cursor, &value)) {
            if (!value.null) {
                qwp_histogram_add(&latency->histogram, arrived_ns - value.i64);
            }
        }
    }
}

void sink_latency_summary(struct sink_latency *latency, struct sink_buffer *out)
{
    const struct qwp_histogram *histogram = &latency->histogram;
    sink_buffer_printf(
        out,
        "\"latency_ns\":{\"count\":%llu,\"p50\":%lld,\"p90\":%lld,\"p99\":%lld,\"p999\":%lld,"
        "\"max\":%lld},",
        (unsigned long long)histogram->count, (long long)qwp_histogram_quantile(histogram, 0.5),
        (long long)qwp_histogram_quantile(histogram, 0.9),
        (long long)qwp_histogram_quantile(histogram, 0.99),
        (long long)qwp_histogram_quantile(histogram, 0.999), (long long)histogram->max_ns);
    memset(&latency->histogram, 0, sizeof latency->histogram);
}

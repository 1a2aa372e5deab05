#include "tests/sink/sink_rows.h"

#include <stdlib.h>
#include <string.h>

#include "tests/sink/sink_value.h"

enum { CHUNK_BYTES = 1 << 20 };

struct sink_rows {
    struct qwp_table_block block;
    uint32_t row;
    struct sink_buffer text;
    struct sink_buffer keys; /* `"name":` of each column, end to end */
    struct sink_buffer head; /* all that stands before the first column */
    size_t key_ends[QWP_DECODE_COLUMNS_MAX];
    struct qwp_cursor cursors[QWP_DECODE_COLUMNS_MAX];
};

struct sink_rows *sink_rows_create(void)
{
    struct sink_rows *rows = sink_realloc(NULL, sizeof *rows);
    memset(rows, 0, sizeof *rows);
    return rows;
}

void sink_rows_destroy(struct sink_rows *rows)
{
    if (rows == NULL) {
        return;
    }
    sink_buffer_fini(&rows->text);
    sink_buffer_fini(&rows->keys);
    sink_buffer_fini(&rows->head);
    free(rows);
}

void sink_rows_begin(struct sink_rows *rows, const struct qwp_decoder *decoder,
                     const struct qwp_table_block *block)
{
    rows->block = *block;
    rows->row = 0;
    rows->head.len = 0;
    sink_buffer_text(&rows->head, "{\"table\":");
    sink_buffer_json(&rows->head, block->table.text, block->table.len);
    sink_buffer_text(&rows->head, ",\"row\":{");
    rows->keys.len = 0;
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        qwp_cursor_init(&rows->cursors[i], decoder, column);
        sink_buffer_json(&rows->keys, column->name.text, column->name.len);
        sink_buffer_text(&rows->keys, ":");
        rows->key_ends[i] = rows->keys.len;
    }
}

static void put_time(struct sink_buffer *out, uint8_t type, int64_t time)
{
    sink_buffer_text(out, "},\"ts\":");
    sink_value_put_i64(out, time);
    sink_buffer_text(out, type == QWP_TYPE_TIMESTAMP_NANOS ? ",\"ts_unit\":\"ns\"}\n"
                                                           : ",\"ts_unit\":\"us\"}\n");
}

static void put_row(struct sink_rows *rows)
{
    struct sink_buffer *out = &rows->text;
    struct qwp_value time = {.null = true};
    bool first = true;
    sink_buffer_put(out, rows->head.at, rows->head.len);
    for (uint32_t i = 0; i < rows->block.column_count; i++) {
        const struct qwp_column *column = &rows->block.columns[i];
        struct qwp_value value;
        (void)qwp_cursor_next(&rows->cursors[i], &value);
        if (column->designated) {
            time = value;
            continue;
        }
        if (!first) {
            sink_buffer_put(out, ",", 1);
        }
        first = false;
        const size_t key = i > 0 ? rows->key_ends[i - 1] : 0;
        sink_buffer_put(out, rows->keys.at + key, rows->key_ends[i] - key);
        sink_value_put(out, column, &value);
    }
    if (time.null) {
        sink_buffer_text(out, "},\"ts\":null,\"ts_unit\":null}\n");
    } else {
        put_time(out, time.type, time.i64);
    }
}

const struct sink_buffer *sink_rows_next(struct sink_rows *rows)
{
    rows->text.len = 0;
    while (rows->row < rows->block.row_count && rows->text.len < CHUNK_BYTES) {
        put_row(rows);
        rows->row++;
    }
    return rows->text.len > 0 ? &rows->text : NULL;
}

#include "tests/core/decode_fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

struct qwp_value value_at(const struct qwp_decoder *decoder, const struct qwp_table_block *block,
                          const char *name, uint32_t row)
{
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        if (column->name.len == strlen(name) &&
            memcmp(column->name.text, name, column->name.len) == 0) {
            struct qwp_cursor cursor;
            struct qwp_value value;
            qwp_cursor_init(&cursor, decoder, column);
            qwp_cursor_read(&cursor, row, &value);
            return value;
        }
    }
    ck_abort_msg("no column '%s'", name);
}

#include "tests/fuzz/rings_library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/c/qwp_producer.h"
#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"

enum { RING_BYTES = 1024 * 1024, WIDE_COLUMNS = 70, CHUNK_ROWS = 70 };

static const int64_t start_ns = INT64_C(1700000000000000000);

static const struct qwp_column all[] = {
    {"a_boolean", QWP_BOOLEAN, 0},
    {"a_byte", QWP_BYTE, 0},
    {"a_short", QWP_SHORT, 0},
    {"a_int", QWP_INT, 0},
    {"a_long", QWP_LONG, 0},
    {"a_float", QWP_FLOAT, 0},
    {"a_double", QWP_DOUBLE, 0},
    {"a_symbol", QWP_SYMBOL, 0},
    {"a_timestamp", QWP_TIMESTAMP, 0},
    {"a_date", QWP_DATE, 0},
    {"a_uuid", QWP_UUID, 0},
    {"a_long256", QWP_LONG256, 0},
    {"a_geohash", QWP_GEOHASH, 20},
    {"a_varchar", QWP_VARCHAR, 0},
    {"a_nanos", QWP_TIMESTAMP_NANOS, 0},
    {"a_doubles", QWP_DOUBLE_ARRAY, 0},
    {"a_longs", QWP_LONG_ARRAY, 0},
    {"a_decimal64", QWP_DECIMAL64, 2},
    {"a_decimal128", QWP_DECIMAL128, 3},
    {"a_decimal256", QWP_DECIMAL256, 4},
    {"a_char", QWP_CHAR, 0},
    {"a_binary", QWP_BINARY, 0},
    {"a_ipv4", QWP_IPV4, 0},
    {"a_symbol2", QWP_SYMBOL, 0},
};
enum { ALL = sizeof all / sizeof all[0] };

static void sound(enum qwp_result result, const struct qwp_error *err)
{
    if (result != QWP_OK) {
        fprintf(stderr, "rings_library: %s\n", err->text);
        abort();
    }
}

/* ---- rows ---- */

static void put(struct qwp_row *row, uint32_t c, uint64_t n)
{
    static const double doubles[] = {1, 2.5, 3, 4};
    static const int64_t longs[] = {5, 6, 7, 8};
    static const uint32_t lengths[] = {2, 2};
    const uint64_t words[4] = {n, 0, 0, 0};
    char text[64];
    const size_t len = (size_t)snprintf(text, sizeof text, "text-%llu-é", (unsigned long long)n);
    switch (all[c].type) {
    case QWP_BOOLEAN:
        qwp_row_boolean(row, c, n % 2 != 0);
        break;
    case QWP_BYTE:
        qwp_row_byte(row, c, (int8_t)n);
        break;
    case QWP_SHORT:
        qwp_row_short(row, c, (int16_t)n);
        break;
    case QWP_INT:
        qwp_row_int(row, c, (int32_t)(n * 100));
        break;
    case QWP_LONG:
        qwp_row_long(row, c, (int64_t)(n << 8 * (n % 8)));
        break;
    case QWP_FLOAT:
        qwp_row_float(row, c, (float)n);
        break;
    case QWP_DOUBLE:
        qwp_row_double(row, c, n % 3 == 0 ? 0.1 : (double)n);
        break;
    case QWP_SYMBOL:
        qwp_row_symbol(row, c, text, len);
        break;
    case QWP_TIMESTAMP:
        qwp_row_timestamp(row, c, start_ns / 1000 + (int64_t)(n * n));
        break;
    case QWP_DATE:
        qwp_row_date(row, c, start_ns / 1000000);
        break;
    case QWP_UUID:
        qwp_row_uuid(row, c, n, 1);
        break;
    case QWP_LONG256:
        qwp_row_long256(row, c, words);
        break;
    case QWP_GEOHASH:
        qwp_row_geohash(row, c, n);
        break;
    case QWP_VARCHAR:
        qwp_row_varchar(row, c, text, len);
        break;
    case QWP_TIMESTAMP_NANOS:
        qwp_row_timestamp_ns(row, c, start_ns + (int64_t)n);
        break;
    case QWP_DOUBLE_ARRAY:
        qwp_row_double_array(row, c, doubles, lengths, 2);
        break;
    case QWP_LONG_ARRAY:
        qwp_row_long_array(row, c, longs, lengths, 1 + n % 2);
        break;
    case QWP_DECIMAL64:
        qwp_row_decimal(row, c, words, 1);
        break;
    case QWP_DECIMAL128:
        qwp_row_decimal(row, c, words, 2);
        break;
    case QWP_DECIMAL256:
        qwp_row_decimal(row, c, words, 4);
        break;
    case QWP_CHAR:
        qwp_row_char(row, c, (uint16_t)('a' + n));
        break;
    case QWP_BINARY:
        qwp_row_binary(row, c, text, len);
        break;
    case QWP_IPV4:
        qwp_row_ipv4(row, c, 0x7f000001);
        break;
    }
}

/* A row of the columns in `mask`; the others are null. */
static void row_write(struct qwp_table *table, uint64_t mask, uint64_t n)
{
    struct qwp_error err;
    struct qwp_row *row = qwp_row_begin(table);
    for (uint32_t c = 0; c < ALL; c++) {
        if ((mask >> c & 1) != 0) {
            put(row, c, n);
        }
    }
    sound(n % 4 == 3 ? qwp_row_at_us(row, start_ns / 1000 + (int64_t)n, &err)
                     : qwp_row_at_ns(row, start_ns + (int64_t)n * 1000, &err),
          &err);
}

static void rows_of_all_types(struct qwp_producer *producer)
{
    static const uint64_t masks[] = {UINT64_MAX, 0, 0x555555, 0xaaaaaa, 0x8000ff, UINT64_MAX};
    struct qwp_table *table;
    struct qwp_error err;
    sound(qwp_table_define(producer, "all", all, ALL, &table, &err), &err);
    for (uint64_t n = 0; n < 8; n++) {
        row_write(table, masks[n % 6], n);
    }
    sound(qwp_unit_begin(producer, &err), &err);
    for (uint64_t n = 0; n < 3; n++) {
        row_write(table, masks[n], n);
    }
    sound(qwp_unit_publish(producer, &err), &err);
    for (uint32_t c = 0; c < ALL; c++) { /* each type alone */
        row_write(table, UINT64_C(1) << c, c);
    }
}

/* One or two columns of a table each, through layouts: rows of several shapes meet in a block, and
 * such with another type do not. */
static void rows_of_small_shapes(struct qwp_producer *producer, const char *name, size_t first,
                                 size_t count, uint64_t value)
{
    struct qwp_table *table;
    struct qwp_error err;
    const struct qwp_layout *layout;
    static const uint32_t order[] = {0, 1, 2, 3, 4, 5, 6, 7};
    sound(qwp_table_define(producer, name, all + first, count, &table, &err), &err);
    for (enum qwp_at at = QWP_AT_NS; at <= QWP_AT_SERVER; at++) {
        sound(qwp_layout_define(table, order, count, at, &layout, &err), &err);
        void *row;
        sound(qwp_row_reserve(producer, layout, 0, &row), &err);
        for (size_t i = 0; i < count; i++) {
            memcpy((char *)row + qwp_layout_offset(layout, i), &value, 1);
        }
        if (at != QWP_AT_SERVER) {
            qwp_store_i64((char *)row + qwp_layout_at_offset(layout), (int64_t)value);
        }
        sound(qwp_row_publish(producer), &err);
    }
}

/* Fields of one kind side by side, which are gathered together, with and without nulls. */
static void rows_of_neighbours(struct qwp_producer *producer)
{
    static const enum qwp_column_type types[] = {
        QWP_SYMBOL, QWP_SYMBOL, QWP_SYMBOL, QWP_SYMBOL, QWP_SYMBOL, QWP_LONG, QWP_LONG, QWP_LONG,
        QWP_DOUBLE, QWP_DOUBLE, QWP_INT,    QWP_INT,    QWP_DATE,   QWP_DATE, QWP_DATE, QWP_FLOAT,
        QWP_FLOAT,  QWP_UUID,   QWP_UUID,   QWP_CHAR,   QWP_CHAR,   QWP_BYTE, QWP_BYTE};
    enum { COUNT = sizeof types / sizeof types[0] };
    char names[COUNT][8];
    struct qwp_column columns[COUNT];
    uint32_t order[COUNT];
    struct qwp_table *table;
    struct qwp_error err;
    const struct qwp_layout *layout;
    for (uint32_t c = 0; c < COUNT; c++) {
        snprintf(names[c], sizeof names[c], "n%u", c);
        columns[c] = (struct qwp_column){names[c], types[c], 0};
        order[c] = c;
    }
    sound(qwp_table_define(producer, "beside", columns, COUNT, &table, &err), &err);
    sound(qwp_layout_define(table, order, COUNT, QWP_AT_NS, &layout, &err), &err);
    for (uint32_t n = 0; n < 5; n++) {
        void *row;
        sound(qwp_row_reserve(producer, layout, 0, &row), &err);
        for (uint32_t c = 0; c < COUNT; c++) {
            memset((char *)row + qwp_layout_offset(layout, c), types[c] == QWP_SYMBOL ? 0 : (int)n,
                   qwp_type_field_bytes((uint8_t)types[c]));
        }
        qwp_store_i64((char *)row + qwp_layout_at_offset(layout), start_ns + n);
        if (n % 2 == 1) {
            qwp_reserved_null(row, n);
            qwp_reserved_null(row, n + 7);
        }
        sound(qwp_row_publish(producer), &err);
    }
}

/* And one of few, which may join their block. */
static void rows_of_many_columns(struct qwp_producer *producer)
{
    char names[WIDE_COLUMNS][8];
    struct qwp_column columns[WIDE_COLUMNS];
    struct qwp_table *table;
    struct qwp_error err;
    for (int c = 0; c < WIDE_COLUMNS; c++) {
        snprintf(names[c], sizeof names[c], "w%d", c);
        columns[c] = (struct qwp_column){names[c], c % 3 == 0 ? QWP_LONG : QWP_BOOLEAN, 0};
    }
    sound(qwp_table_define(producer, "wide", columns, WIDE_COLUMNS, &table, &err), &err);
    for (int n = 0; n < 2; n++) {
        struct qwp_row *row = qwp_row_begin(table);
        qwp_row_long(row, 3, 1);
        sound(qwp_row_at_ns(row, start_ns, &err), &err);
    }
    const struct qwp_layout *layout;
    const uint32_t few = 1;
    void *reserved;
    sound(qwp_layout_define(table, &few, 1, QWP_AT_NS, &layout, &err), &err);
    sound(qwp_row_reserve(producer, layout, 0, &reserved), &err);
    *((unsigned char *)reserved + qwp_layout_offset(layout, 0)) = 1;
    qwp_store_i64((char *)reserved + qwp_layout_at_offset(layout), start_ns);
    sound(qwp_row_publish(producer), &err);
}

/* ---- chunks ---- */

static union {
    int64_t longs[CHUNK_ROWS * 4];
    unsigned char bytes[CHUNK_ROWS * 32];
} values;
static char texts[CHUNK_ROWS];
static int32_t text_offsets[CHUNK_ROWS + 1];
static unsigned char arrays[CHUNK_ROWS * 13];
static int32_t array_offsets[CHUNK_ROWS + 1];
static uint8_t validity[(CHUNK_ROWS + 7) / 8];
static int64_t times[CHUNK_ROWS];
static uint32_t handle; /* of every symbol */
static const uint32_t zeros[CHUNK_ROWS];

static void chunk_values(void)
{
    for (int i = 0; i < CHUNK_ROWS; i++) {
        times[i] = start_ns + i * INT64_C(1000000);
        texts[i] = (char)('a' + i % 3);
        text_offsets[i + 1] = i + 1;
        arrays[13 * i] = 1;     /* dimension */
        arrays[13 * i + 1] = 1; /* of one element */
        array_offsets[i + 1] = 13 * (i + 1);
        validity[i / 8] |= (uint8_t)((i % 3 != 1) << i % 8);
        values.longs[i] = i;
    }
}

static struct qwp_chunk_column chunk_column(enum qwp_column_type type, bool nulls, bool as_text)
{
    struct qwp_chunk_column column = {.values = values.bytes, .validity = nulls ? validity : NULL};
    switch (type) {
    case QWP_VARCHAR:
    case QWP_BINARY:
        column.values = texts;
        column.offsets = text_offsets;
        break;
    case QWP_SYMBOL:
        column.values = as_text ? (const void *)texts : zeros;
        column.offsets = as_text ? text_offsets : NULL;
        column.handles = as_text ? NULL : &handle;
        column.handle_count = as_text ? 0 : 1;
        break;
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        column.values = arrays;
        column.offsets = array_offsets;
        break;
    default:
        break;
    }
    return column;
}

static void chunk_write(struct qwp_producer *producer, const struct qwp_layout *layout,
                        uint32_t first, size_t count, size_t rows, bool nulls, bool as_text)
{
    struct qwp_error err;
    struct qwp_chunk_column columns[ALL];
    for (uint32_t c = 0; c < count; c++) {
        columns[c] = chunk_column(all[first + c].type, nulls, as_text);
    }
    sound(qwp_chunk_write(producer, layout, columns, times, 0, rows, NULL, &err), &err);
}

static void chunks(struct qwp_producer *producer)
{
    struct qwp_table *table;
    struct qwp_error err;
    const struct qwp_layout *layout;
    uint32_t order[ALL];
    for (uint32_t c = 0; c < ALL; c++) {
        order[c] = c;
    }
    chunk_values();
    sound(qwp_table_define(producer, "all", all, ALL, &table, &err), &err);
    sound(qwp_layout_define(table, order, ALL, QWP_AT_NS, &layout, &err), &err);
    sound(qwp_symbol_intern(producer, "a", 1, &handle, &err), &err);
    chunk_write(producer, layout, 0, ALL, CHUNK_ROWS, false, false);
    chunk_write(producer, layout, 0, ALL, CHUNK_ROWS, true, false);
    chunk_write(producer, layout, 0, ALL, 1, false, false);
    for (uint32_t c = 0; c < ALL; c++) {
        sound(
            qwp_layout_define(table, &c, 1, c % 2 == 0 ? QWP_AT_NS : QWP_AT_SERVER, &layout, &err),
            &err);
        chunk_write(producer, layout, c, 1, CHUNK_ROWS, false, false);
        chunk_write(producer, layout, c, 1, 9, true, false);
    }
    producer->symbol_len_full = 0; /* no room for other symbols: texts travel */
    sound(qwp_layout_define(table, order, ALL, QWP_AT_SERVER, &layout, &err), &err);
    chunk_write(producer, layout, 0, ALL, 5, true, true);
    row_write(table, UINT64_MAX, 100);
    row_write(table, 0x800080, 101);
}

/* ---- all of it ---- */

static void cut(struct library_piece *pieces, uint32_t *count, const unsigned char *at,
                uint64_t bytes)
{
    for (const unsigned char *end = at + bytes; at < end; at += pieces[*count - 1].bytes) {
        QWP_ASSERT(*count < LIBRARY_PIECES_MAX);
        pieces[(*count)++] = (struct library_piece){at, qwp_load_u32(at)};
    }
}

static const unsigned char *keep(const unsigned char *from, uint64_t bytes)
{
    unsigned char *copy = malloc(bytes);
    QWP_ASSERT(copy != NULL);
    return memcpy(copy, from, bytes);
}

const struct rings_library *rings_library_get(void)
{
    static struct rings_library made;
    static const unsigned char *defs;
    static const unsigned char *records;
    if (made.record_count > 0) {
        return &made;
    }
    char dir[] = "/tmp/qwp-library-XXXXXX";
    char path[200];
    QWP_ASSERT(mkdtemp(dir) != NULL);
    const struct qwp_producer_options options = {
        .dir = dir, .instance = "i", .ring_bytes = RING_BYTES, .keep_sigbus = true};
    struct qwp_producer *producer;
    struct qwp_error err;
    sound(qwp_producer_open(&producer, &options, &err), &err);
    rows_of_all_types(producer);
    rows_of_small_shapes(producer, "few", 0, 2, 1);
    rows_of_small_shapes(producer, "FEW", 2, 3, 1);
    rows_of_small_shapes(producer, "none", 0, 0, 1);
    rows_of_many_columns(producer);
    chunks(producer);
    rows_of_neighbours(producer);
    const struct qwp_ring_tx *ring = &producer->ring;
    defs = keep(ring->defs, ring->defs_pos);
    records = keep(ring->data, ring->tail_pos);
    cut(made.defs, &made.def_count, defs, ring->defs_pos);
    cut(made.records, &made.record_count, records, ring->tail_pos);
    snprintf(path, sizeof path, "%s/i/%s", dir, ring->file_name);
    qwp_producer_close(producer);
    unlink(path);
    snprintf(path, sizeof path, "%s/i", dir);
    rmdir(path);
    QWP_ASSERT(rmdir(dir) == 0);
    return &made;
}

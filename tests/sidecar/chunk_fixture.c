#include "tests/sidecar/chunk_fixture.h"

#include <check.h>

#include "clients/c/qwp_producer.h"

/* The columns' arrays. */
static int64_t longs[CHUNK_ROWS];
static double doubles[CHUNK_ROWS];
static int32_t offsets[CHUNK_ROWS + 1];
static char texts[CHUNK_ROWS];
static uint32_t handles[CHUNK_ROWS];
static uint8_t validity[(CHUNK_ROWS + 7) / 8];
static int32_t array_offsets[CHUNK_ROWS + 1];
static unsigned char arrays[CHUNK_ROWS * 13];

static void write_chunk(struct qwp_producer *producer)
{
    static const struct qwp_column columns[CHUNK_COLUMNS] = {
        {"l", QWP_LONG, 0},   {"d", QWP_DOUBLE, 0}, {"b", QWP_BOOLEAN, 0}, {"v", QWP_VARCHAR, 0},
        {"s", QWP_SYMBOL, 0}, {"t", QWP_SYMBOL, 0}, {"g", QWP_GEOHASH, 7}, {"a", QWP_LONG_ARRAY, 0},
    };
    static const uint32_t order[CHUNK_COLUMNS] = {0, 1, 2, 3, 4, 5, 6, 7};
    for (int i = 0; i < CHUNK_ROWS; i++) {
        longs[i] = i;
        doubles[i] = i;
        offsets[i + 1] = i + 1;
        texts[i] = (char)('a' + i % 26);
        handles[i] = 0;
        validity[i / 8] |= (uint8_t)((i % 3 != 1) << i % 8);
        array_offsets[i + 1] = 13 * (i + 1);
        arrays[13 * i] = 1;     /* dimension */
        arrays[13 * i + 1] = 1; /* of one element */
    }
    const struct qwp_chunk_column given[CHUNK_COLUMNS] = {
        {.values = longs},
        {.values = doubles, .validity = validity},
        {.values = validity, .validity = validity},
        {.values = texts, .offsets = offsets, .validity = validity},
        {.values = handles},
        {.values = texts, .offsets = offsets},
        {.values = longs},
        {.values = arrays, .offsets = array_offsets, .validity = validity},
    };
    struct qwp_table *table;
    const struct qwp_layout *layout;
    struct qwp_error err;
    uint32_t handle;
    ck_assert_int_eq(qwp_table_define(producer, "chunk", columns, CHUNK_COLUMNS, &table, &err),
                     QWP_OK);
    ck_assert_int_eq(qwp_layout_define(table, order, CHUNK_COLUMNS, QWP_AT_NS, &layout, &err),
                     QWP_OK);
    ck_assert_int_eq(qwp_symbol_intern(producer, "only", 4, &handle, &err), QWP_OK);
    producer->symbol_len_full = 0; /* no room for other symbols: texts travel */
    ck_assert_msg(qwp_chunk_write(producer, layout, given, longs, 0, CHUNK_ROWS, NULL, &err) ==
                      QWP_OK,
                  "%s", err.text);
}

void chunk_fixture_open(struct chunk_fixture *fixture, const char *dir, const char *instance)
{
    const struct qwp_producer_options options = {.dir = dir, .instance = instance};
    struct qwp_producer *producer;
    struct qwp_error err;
    ck_assert_msg(qwp_producer_open(&producer, &options, &err) == QWP_OK, "%s", err.text);
    write_chunk(producer);
    *fixture = (struct chunk_fixture){
        .producer = producer,
        .ring_file = producer->ring.file_name,
        .record = producer->ring.data,
        .record_bytes = (uint32_t)producer->ring.tail_pos,
    };
}

void chunk_fixture_close(struct chunk_fixture *fixture)
{
    qwp_producer_close(fixture->producer);
}

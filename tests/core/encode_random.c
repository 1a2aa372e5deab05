#include "tests/core/encode_random.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_message.h"

uint64_t random_u64(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15); /* splitmix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint32_t random_below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(random_u64(state) % n);
}

/* --- dictionary --- */

static char symbol_texts[RANDOM_SYMBOLS][12];

static struct qwp_name symbol_text(const void *dict, uint32_t id)
{
    (void)dict;
    return NAME(symbol_texts[id]);
}

void random_decoder_init(struct qwp_decoder *decoder)
{
    for (uint32_t id = 0; id < RANDOM_SYMBOLS; id++) {
        snprintf(symbol_texts[id], sizeof symbol_texts[id], "s%u", id);
    }
    qwp_decoder_init(decoder, NULL);
    const size_t len = QWP_HEADER_BYTES + qwp_delta_size(0, RANDOM_SYMBOLS, symbol_text, NULL);
    unsigned char *bytes = malloc(len);
    ck_assert_ptr_nonnull(bytes);
    unsigned char *at = qwp_message_begin(bytes, QWP_FLAG_DELTA_DICT | QWP_FLAG_DEFER_COMMIT);
    at = qwp_delta_put(at, 0, RANDOM_SYMBOLS, symbol_text, NULL);
    ck_assert_uint_eq((size_t)(at - bytes), len);
    qwp_message_finish(bytes, 0, len);
    struct qwp_message message;
    struct qwp_error err;
    ck_assert_msg(qwp_decode_message(decoder, bytes, len, &message, &err) == QWP_OK, "%s",
                  err.text);
    free(bytes);
}

unsigned char *decode_encoded(struct qwp_decoder *decoder, const struct fixture *f, unsigned flags,
                              const struct qwp_encoded *done, struct qwp_message *message)
{
    unsigned char *bytes = malloc(QWP_HEADER_BYTES + 8 + done->len);
    ck_assert_ptr_nonnull(bytes);
    unsigned char *at = qwp_message_begin(
        bytes, QWP_FLAG_DELTA_DICT | ((flags & QWP_ENCODE_GORILLA) != 0 ? QWP_FLAG_GORILLA : 0));
    at = qwp_delta_put(at, RANDOM_SYMBOLS, 0, symbol_text, NULL);
    memcpy(at, f->dst, done->len);
    const size_t message_len = (size_t)(at - bytes) + done->len;
    qwp_message_finish(bytes, (uint16_t)done->table_count, message_len);
    struct qwp_error err;
    ck_assert_msg(qwp_decode_message(decoder, bytes, message_len, message, &err) == QWP_OK, "%s",
                  err.text);
    ck_assert_uint_eq(message->block_count, done->table_count);
    return bytes;
}

/* --- values --- */

static const uint32_t telling_ids[] = {0, 1, 126, 127, 128, 129, 255, 16382, 16383, 16384, 19999};

static const char *const telling_texts[] = {
    "",
    "a",
    "abcdefg",
    "abcdefgh",
    "0123456789abcde",
    "0123456789abcdef",
    "0123456789abcdef0",
    "ž",
    "žluťoučký 🐎",
    "🐎",
    "\x7f",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaž",
    "€€€€€€€€€€€€",
};

#define COUNT_OF(array) (sizeof(array) / sizeof(array)[0])

static void random_text(struct fixture_cell *cell, uint64_t *state)
{
    char text[600];
    if (random_below(state, 4) != 0) {
        const char *telling = telling_texts[random_below(state, COUNT_OF(telling_texts))];
        fixture_set_part(cell, telling, (uint32_t)strlen(telling));
        return;
    }
    const uint32_t len = random_below(state, random_below(state, 8) == 0 ? sizeof text : 70);
    for (uint32_t i = 0; i < len; i++) {
        text[i] = (char)('!' + random_below(state, 90));
    }
    fixture_set_part(cell, text, len);
}

static void random_binary(struct fixture_cell *cell, uint64_t *state)
{
    unsigned char bytes[200];
    const uint32_t len = random_below(state, sizeof bytes);
    for (uint32_t i = 0; i < len; i++) {
        bytes[i] = (unsigned char)random_u64(state);
    }
    fixture_set_part(cell, bytes, len);
}

static void random_array(struct fixture_cell *cell, uint64_t *state)
{
    unsigned char bytes[1 + 32 * 4 + 8 * 81];
    const bool deep = random_below(state, 16) == 0;
    const uint32_t dimensions = deep ? 32 : 1 + random_below(state, 4);
    uint32_t elements = 1;
    bytes[0] = (unsigned char)dimensions;
    for (uint32_t d = 0; d < dimensions; d++) {
        uint32_t length = deep ? 1 : 1 + random_below(state, 3);
        if (random_below(state, 10) == 0) {
            length = 0; /* an empty array is a value of its own */
        }
        elements *= length;
        qwp_store_u32(bytes + 1 + 4 * d, length);
    }
    const uint32_t header = 1 + 4 * dimensions;
    for (uint32_t i = 0; i < elements; i++) {
        qwp_store_u64(bytes + header + 8 * i, random_u64(state));
    }
    fixture_set_part(cell, bytes, header + 8 * elements);
}

static void random_symbol(struct fixture_cell *cell, const uint32_t *ids, uint32_t count,
                          bool as_text, uint64_t *state)
{
    const uint32_t index = random_below(state, count);
    qwp_store_u32(cell->fixed, index);
    cell->symbol_id = ids[index];
    if (as_text && random_below(state, 2) == 0) {
        cell->symbol_id = telling_ids[random_below(state, COUNT_OF(telling_ids))];
        const char *text = symbol_texts[cell->symbol_id];
        fixture_set_part(cell, text, (uint32_t)strlen(text));
    }
}

static const int64_t telling_dods[] = {
    0,    0,    1,     -1,    63,         64,         -64,         -65,         255,
    256,  -256, -257,  2047,  2048,       -2048,      -2049,       INT32_MAX,   INT32_MIN,
    1000, -999, 10000, 60000, 1000000000, 2000000000, -1999999999, -2000000000,
};

/* A sequence of times, `step` of it at a time; wraps around on purpose when `any`. */
struct clock {
    uint64_t time;
    uint64_t step;
    uint32_t kind;
};

static struct clock random_clock(uint64_t *state)
{
    return (struct clock){UINT64_C(1700000000000000), random_below(state, 100000),
                          random_below(state, 8)};
}

static int64_t clock_next(struct clock *clock, uint64_t *state)
{
    switch (clock->kind) {
    case 0: /* steady */
        break;
    case 1: /* all equal */
        clock->step = 0;
        break;
    case 2: /* falling */
        clock->step = (uint64_t)0 - random_below(state, 5000);
        break;
    case 3: /* at the edges of the Gorilla buckets */
        clock->step += (uint64_t)telling_dods[random_below(state, COUNT_OF(telling_dods))];
        break;
    case 4: /* jitter */
        clock->step = 1000 + random_below(state, 100);
        break;
    case 7: /* stands still for long, then jumps as far as a code can say */
        clock->step = random_below(state, 40) == 0 ? INT32_MAX - random_below(state, 2) : 0;
        break;
    case 5: /* steps beyond int32 now and then */
        clock->step = random_below(state, 50) == 0 ? UINT64_C(10000000000) : 0;
        break;
    default: /* anything */
        return (int64_t)random_u64(state);
    }
    clock->time += clock->step;
    return (int64_t)clock->time;
}

static const int64_t telling_integers[] = {
    /* fits a BYTE */ 0,
    1,
    -1,
    99,
    127,
    -128,
    /* a SHORT */ 128,
    -129,
    32767,
    -32768,
    /* an INT */ 32768,
    -32769,
    INT32_MAX,
    INT32_MIN + 1,
    /* a LONG */ INT32_MIN,
    INT64_C(1) << 31,
    INT64_MAX,
    INT64_MIN,
};

/* Mostly as small as `size` says (0..3, 4: anything), now and then the next larger. */
static int64_t random_integer(uint32_t size, uint64_t *state)
{
    static const uint32_t counts[] = {6, 10, 14, 18};
    if (size > 3) {
        return (int64_t)random_u64(state);
    }
    if (size < 3 && random_below(state, 200) == 0) {
        size++;
    }
    return telling_integers[random_below(state, counts[size])];
}

static double random_double(uint32_t size, uint64_t *state)
{
    static const double telling[] = {0, -0.0, 0.25, -1024.5, 65504, HUGE_VAL, NAN};
    const uint64_t any = random_u64(state);
    double v;
    if (size > 1 || random_below(state, 300) == 0) {
        memcpy(&v, &any, sizeof v);
        return v;
    }
    return telling[random_below(state, COUNT_OF(telling))];
}

static void random_cell(const struct qwp_block_column *column, struct fixture_cell *cell,
                        struct clock *clock, uint32_t size, uint64_t *state)
{
    for (uint32_t i = 0; i < sizeof cell->fixed; i += 8) {
        qwp_store_u64(cell->fixed + i, random_u64(state));
    }
    switch (column->type) {
    case QWP_TYPE_BOOLEAN:
        cell->fixed[0] &= 1;
        break;
    case QWP_TYPE_INT:
    case QWP_TYPE_LONG:
        qwp_store_i64(cell->fixed, random_integer(size, state));
        break;
    case QWP_TYPE_DOUBLE: {
        const double v = random_double(size, state);
        memcpy(cell->fixed, &v, sizeof v);
        break;
    }
    case QWP_TYPE_TIMESTAMP:
    case QWP_TYPE_TIMESTAMP_NANOS:
        qwp_store_i64(cell->fixed, clock_next(clock, state));
        break;
    case QWP_TYPE_GEOHASH:
        qwp_store_u64(cell->fixed, random_u64(state) >> (64 - column->parameter));
        break;
    case QWP_TYPE_VARCHAR:
        random_text(cell, state);
        break;
    case QWP_TYPE_BINARY:
        random_binary(cell, state);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        random_array(cell, state);
        break;
    default:
        break;
    }
}

/* --- blocks --- */

static const uint8_t all_types[] = {
    QWP_TYPE_BOOLEAN,      QWP_TYPE_BYTE,       QWP_TYPE_SHORT,
    QWP_TYPE_INT,          QWP_TYPE_LONG,       QWP_TYPE_FLOAT,
    QWP_TYPE_DOUBLE,       QWP_TYPE_SYMBOL,     QWP_TYPE_TIMESTAMP,
    QWP_TYPE_DATE,         QWP_TYPE_UUID,       QWP_TYPE_LONG256,
    QWP_TYPE_GEOHASH,      QWP_TYPE_VARCHAR,    QWP_TYPE_TIMESTAMP_NANOS,
    QWP_TYPE_DOUBLE_ARRAY, QWP_TYPE_LONG_ARRAY, QWP_TYPE_DECIMAL64,
    QWP_TYPE_DECIMAL128,   QWP_TYPE_DECIMAL256, QWP_TYPE_CHAR,
    QWP_TYPE_BINARY,       QWP_TYPE_IPV4,
};

static uint8_t random_parameter(uint8_t type, uint64_t *state)
{
    switch (type) {
    case QWP_TYPE_GEOHASH:
        return (uint8_t)(1 + random_below(state, QWP_GEOHASH_BITS_MAX));
    case QWP_TYPE_DECIMAL64:
        return (uint8_t)random_below(state, QWP_DECIMAL64_SCALE_MAX + 1);
    case QWP_TYPE_DECIMAL128:
        return (uint8_t)random_below(state, QWP_DECIMAL128_SCALE_MAX + 1);
    case QWP_TYPE_DECIMAL256:
        return (uint8_t)random_below(state, QWP_DECIMAL256_SCALE_MAX + 1);
    default:
        return 0;
    }
}

/* Columns of one type in a row are common, and what the encoder groups. */
static uint32_t random_columns(struct qwp_block_column *columns, uint64_t *state)
{
    static char names[FIXTURE_COLUMNS_MAX][8];
    const uint32_t wide = random_below(state, 12);
    const uint32_t count =
        wide == 0 ? random_below(state, FIXTURE_COLUMNS_MAX + 1) : 1 + random_below(state, 14);
    uint8_t type = all_types[random_below(state, COUNT_OF(all_types))];
    for (uint32_t c = 0; c < count; c++) {
        if (random_below(state, 3) != 0) {
            type = all_types[random_below(state, COUNT_OF(all_types))];
        } else if (random_below(state, 2) == 0) {
            type = random_below(state, 2) == 0 ? QWP_TYPE_SYMBOL : QWP_TYPE_LONG;
        }
        snprintf(names[c], sizeof names[c], "c%u", c);
        columns[c] = (struct qwp_block_column){NAME(names[c]), type, random_parameter(type, state)};
    }
    return count;
}

static bool null_here(uint32_t kind, uint32_t row, uint32_t row_count, uint64_t *state)
{
    switch (kind) {
    case 0:
        return row == 0;
    case 1:
        return row == row_count - 1;
    case 2:
        return row == row_count / 2;
    case 3:
        return true;
    case 4:
        return random_below(state, 2) == 0;
    case 5:
        return random_below(state, 30) == 0;
    default:
        return false;
    }
}

static void random_run(struct fixture *f, uint32_t row_count, bool whole, struct clock *designated,
                       uint64_t *state)
{
    bool present[FIXTURE_COLUMNS_MAX];
    uint32_t ids[COUNT_OF(telling_ids)];
    whole = whole || random_below(state, 2) == 0;
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        present[c] = whole || random_below(state, 4) != 0;
    }
    const uint32_t id_count = 1 + random_below(state, COUNT_OF(ids));
    for (uint32_t i = 0; i < id_count; i++) {
        ids[i] = telling_ids[random_below(state, COUNT_OF(telling_ids))];
    }
    struct fixture_run *run = fixture_add_run(f, present, row_count, ids, id_count);
    const bool symbol_text = random_below(state, 3) == 0;
    const bool nulls = random_below(state, 3) != 0;
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        const uint32_t null_kind = nulls ? random_below(state, 9) : 9;
        struct clock clock = random_clock(state);
        const uint32_t size = random_below(state, 5);
        for (uint32_t row = 0; present[c] && row < row_count; row++) {
            struct fixture_cell *cell = fixture_cell(f, run, row, c);
            random_cell(&f->columns[c], cell, &clock, size, state);
            if (f->columns[c].type == QWP_TYPE_SYMBOL) {
                random_symbol(cell, ids, id_count, symbol_text, state);
            }
            cell->is_null = null_here(null_kind, row, row_count, state);
        }
    }
    const int64_t max = f->block.designated_type == QWP_TYPE_TIMESTAMP ? QWP_DESIGNATED_US_MAX
                                                                       : QWP_DESIGNATED_NS_MAX;
    const int64_t unit = random_below(state, 2) == 0 ? 1 : 1000;
    for (uint32_t row = 0; row < row_count; row++) {
        const int64_t time = clock_next(designated, state);
        run->times[row] = time < 0 ? 0 : time > max ? max : time;
        run->times[row] -= run->times[row] % unit;
    }
}

void random_fixture(struct fixture *f, uint64_t *state)
{
    static const uint32_t telling_rows[] = {1,  1,  2,  3,   7,   8,   9,   15,  16,  17,
                                            63, 64, 65, 127, 128, 129, 191, 256, 300, 1024};
    static const uint8_t designated_types[] = {QWP_TYPE_NONE, QWP_TYPE_TIMESTAMP,
                                               QWP_TYPE_TIMESTAMP_NANOS};
    struct qwp_block_column columns[FIXTURE_COLUMNS_MAX];
    const uint32_t column_count = random_columns(columns, state);
    fixture_init(f, "random", columns, column_count,
                 designated_types[column_count == 0 ? 1 : random_below(state, 3)]);
    struct clock designated = random_clock(state);
    uint32_t left = QWP_GATHER_ROWS_MAX;
    const bool many = random_below(state, 5) == 0; /* small runs, mostly of one shape */
    const bool one_shape = random_below(state, 2) == 0;
    uint32_t run_count = random_below(state, 3) == 0 ? 1 + random_below(state, 8) : 1;
    if (many) {
        run_count = 1 + random_below(state, FIXTURE_RUNS_MAX);
    }
    if (column_count > 40) {
        left = 200; /* keeps the test quick */
    }
    for (; run_count > 0 && left > 0; run_count--) {
        uint32_t rows = telling_rows[random_below(state, COUNT_OF(telling_rows))];
        if (many) {
            rows = 1 + random_below(state, 20);
        }
        rows = rows > left ? left : rows;
        random_run(f, rows, one_shape, &designated, state);
        left -= rows;
    }
    fixture_build(f);
}

/* --- comparison --- */

static int64_t sign_extended(const unsigned char *at, uint32_t width)
{
    const unsigned shift = 64 - 8 * width;
    return (int64_t)(qwp_load_u64(at) << shift) >> shift;
}

static void check_value(const struct qwp_block_column *column, const struct fixture_cell *cell,
                        const struct qwp_value *value)
{
    const uint32_t width = qwp_type_field_bytes(column->type);
    switch (column->type) {
    case QWP_TYPE_BOOLEAN:
        ck_assert_int_eq(value->boolean, cell->fixed[0]);
        break;
    case QWP_TYPE_FLOAT:
        ck_assert_mem_eq(&value->f32, cell->fixed, 4);
        break;
    case QWP_TYPE_DOUBLE: {
        const double wide = value->type == QWP_TYPE_FLOAT ? (double)value->f32 : value->f64;
        ck_assert_mem_eq(&wide, cell->fixed, 8);
        break;
    }
    case QWP_TYPE_SYMBOL:
        ck_assert_uint_eq(value->symbol.id, cell->symbol_id);
        break;
    case QWP_TYPE_GEOHASH:
        ck_assert_uint_eq(value->u64, qwp_load_u64(cell->fixed));
        break;
    case QWP_TYPE_CHAR:
        ck_assert_uint_eq(value->u64, qwp_load_u16(cell->fixed));
        break;
    case QWP_TYPE_IPV4:
        ck_assert_uint_eq(value->u64, qwp_load_u32(cell->fixed));
        break;
    case QWP_TYPE_UUID:
    case QWP_TYPE_LONG256:
    case QWP_TYPE_DECIMAL64:
    case QWP_TYPE_DECIMAL128:
    case QWP_TYPE_DECIMAL256:
        ck_assert_uint_eq(value->bytes.len, width);
        ck_assert_mem_eq(value->bytes.at, cell->fixed, width);
        break;
    case QWP_TYPE_VARCHAR:
    case QWP_TYPE_BINARY:
        ck_assert_uint_eq(value->bytes.len, cell->part_len);
        ck_assert_mem_eq(value->bytes.at, cell->part, cell->part_len);
        break;
    case QWP_TYPE_DOUBLE_ARRAY:
    case QWP_TYPE_LONG_ARRAY:
        ck_assert_uint_eq(value->array.dimensions, cell->part[0]);
        ck_assert_mem_eq(value->array.lengths, cell->part + 1, 4 * value->array.dimensions);
        ck_assert_uint_eq(1 + 4 * value->array.dimensions + 8 * value->array.element_count,
                          cell->part_len);
        ck_assert_mem_eq(value->array.elements, cell->part + 1 + 4 * value->array.dimensions,
                         8 * value->array.element_count);
        break;
    default:
        ck_assert_int_eq(value->i64, sign_extended(cell->fixed, width));
        break;
    }
}

/* The narrowest width that one value may have on the wire. */
static uint32_t least_width(uint8_t type, const unsigned char *fixed)
{
    if (type == QWP_TYPE_DOUBLE) {
        double wide;
        memcpy(&wide, fixed, sizeof wide);
        const double back = (double)(float)wide;
        return memcmp(&wide, &back, sizeof wide) == 0 ? 4 : 8;
    }
    const int64_t v = sign_extended(fixed, qwp_type_field_bytes(type));
    if (type == QWP_TYPE_INT && v == INT32_MIN) {
        return 4;
    }
    return v >= INT8_MIN && v <= INT8_MAX     ? 1
           : v >= INT16_MIN && v <= INT16_MAX ? 2
           : v > INT32_MIN && v <= INT32_MAX  ? 4
                                              : 8;
}

struct rows {
    uint32_t first;
    uint32_t count;
};

const struct fixture_cell *fixture_cell_at(const struct fixture *f, uint32_t row, uint32_t column)
{
    const struct fixture_run *run = f->runs;
    while (row >= run->row_count) {
        row -= run->row_count;
        run++;
    }
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD ? NULL
                                 : &run->cells[(size_t)row * run->shape->column_count + field];
}

static uint8_t expected_type(const struct fixture *f, uint32_t column, struct rows rows,
                             unsigned flags)
{
    const uint8_t type = f->columns[column].type;
    uint32_t width = type == QWP_TYPE_DOUBLE ? 4 : 1;
    if (!((type == QWP_TYPE_LONG && (flags & QWP_ENCODE_COMPACT_LONG) != 0) ||
          (type == QWP_TYPE_INT && (flags & QWP_ENCODE_COMPACT_INT) != 0) ||
          (type == QWP_TYPE_DOUBLE && (flags & QWP_ENCODE_COMPACT_DOUBLE) != 0))) {
        return type;
    }
    for (uint32_t row = rows.first; row < rows.first + rows.count; row++) {
        const struct fixture_cell *cell = fixture_cell_at(f, row, column);
        if (cell != NULL && !cell->is_null) {
            const uint32_t least = least_width(type, cell->fixed);
            width = least > width ? least : width;
        }
    }
    static const uint8_t integers[] = {
        [1] = QWP_TYPE_BYTE, [2] = QWP_TYPE_SHORT, [4] = QWP_TYPE_INT, [8] = QWP_TYPE_LONG};
    return type == QWP_TYPE_DOUBLE ? (width == 4 ? QWP_TYPE_FLOAT : QWP_TYPE_DOUBLE)
                                   : integers[width];
}

static void check_column(const struct fixture *f, const struct qwp_decoder *decoder,
                         const struct qwp_column *column, uint32_t index, struct rows rows)
{
    struct qwp_cursor cursor;
    struct qwp_value value;
    uint32_t nulls = 0;
    qwp_cursor_init(&cursor, decoder, column);
    for (uint32_t row = rows.first; row < rows.first + rows.count; row++) {
        ck_assert(qwp_cursor_next(&cursor, &value));
        const struct fixture_cell *cell = fixture_cell_at(f, row, index);
        ck_assert_int_eq(value.null, cell == NULL || cell->is_null);
        nulls += value.null;
        if (!value.null) {
            check_value(&f->columns[index], cell, &value);
        }
    }
    ck_assert(!qwp_cursor_next(&cursor, &value));
    ck_assert_int_eq(column->bitmap != NULL, nulls > 0);
}

static void check_times(const struct fixture *f, const struct qwp_decoder *decoder,
                        const struct qwp_column *column, struct rows rows)
{
    struct qwp_cursor cursor;
    struct qwp_value value;
    uint32_t row = 0;
    qwp_cursor_init(&cursor, decoder, column);
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        for (uint32_t i = 0; i < f->runs[r].row_count; i++, row++) {
            if (row >= rows.first && row < rows.first + rows.count) {
                ck_assert(qwp_cursor_next(&cursor, &value));
                ck_assert(!value.null);
                ck_assert_int_eq(value.i64, f->runs[r].times[i]);
            }
        }
    }
}

static void check_block(const struct fixture *f, const struct qwp_decoder *decoder,
                        const struct qwp_table_block *block, unsigned flags, struct rows rows)
{
    const bool designated = f->block.designated_type != QWP_TYPE_NONE;
    ck_assert_uint_eq(block->row_count, rows.count);
    ck_assert_uint_eq(block->column_count, f->block.column_count + designated);
    for (uint32_t c = 0; c < f->block.column_count; c++) {
        const struct qwp_column *column = &block->columns[c];
        ck_assert_uint_eq(column->type, expected_type(f, c, rows, flags));
        ck_assert_uint_eq(column->name.len, f->columns[c].name.len);
        ck_assert_mem_eq(column->name.text, f->columns[c].name.text, column->name.len);
        ck_assert_uint_eq(column->parameter, f->columns[c].parameter);
        check_column(f, decoder, column, c, rows);
    }
    if (designated) {
        ck_assert_ptr_eq(block->designated, &block->columns[f->block.column_count]);
        ck_assert_uint_eq(block->designated->type, f->block.designated_type);
        check_times(f, decoder, block->designated, rows);
    } else {
        ck_assert_ptr_null(block->designated);
    }
}

/* Whether the designated timestamps of these rows have to be in microseconds on the wire. */
static bool expected_us(const struct fixture *f, unsigned flags, struct rows rows)
{
    int64_t rest = 0;
    uint32_t row = 0;
    for (uint32_t r = 0; r < f->block.run_count; r++) {
        for (uint32_t i = 0; i < f->runs[r].row_count; i++, row++) {
            rest |= row < rows.first ? 0 : f->runs[r].times[i] % 1000;
        }
    }
    return f->block.designated_type == QWP_TYPE_TIMESTAMP_NANOS && rest == 0 && rows.count >= 3 &&
           (flags & QWP_ENCODE_COMPACT_TIME) != 0 && (flags & QWP_ENCODE_GORILLA) != 0;
}

void check_decoded(const struct fixture *f, struct qwp_decoder *decoder, unsigned flags,
                   const struct qwp_message *message)
{
    struct qwp_table_block block;
    const uint32_t rows = f->block.row_count;
    qwp_block_open(decoder, message, 0, &block);
    if (message->block_count == 1) {
        check_block(f, decoder, &block, 0, (struct rows){0, rows});
        return;
    }
    /* The one ahead has the declared types. */
    ck_assert_uint_ne(flags & QWP_ENCODE_COMPACT, 0);
    check_block(f, decoder, &block, 0, (struct rows){0, 1});
    qwp_block_open(decoder, message, 1, &block);
    const struct rows others = {1, rows - 1};
    ck_assert_int_eq(decoder->blocks[1].us_as_ns, expected_us(f, flags, others));
    check_block(f, decoder, &block, flags, others);
}

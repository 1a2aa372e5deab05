/* Property: whatever a program does with tables, rows and units, exactly the rows it was told are
 * published come out of the ring, in order, with the values it set and nulls elsewhere.
 *
 * Method: random tables that grow, random subsets of columns in rising or random order, all kinds
 * of timestamps, mistakes, aborts, units, rows large and small, rings nearly full, more symbols
 * than the definitions area holds. A row's values follow from one number, which is all the model
 * keeps of it.
 *
 *   QWP_TEST_SEED=N picks the seed, QWP_TEST_ROUNDS=N the number of rings. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "tests/clients/client_fixture.h"

enum {
    TABLES = 4,
    COLUMNS_MAX = 90,
    PART_BYTES_MAX = 9000,
    PENDING_MAX = 20000,
    STEPS = 4000,
};

static uint64_t state;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t rnd(void)
{
    state += UINT64_C(0x9e3779b97f4a7c15);
    return mix(state);
}

static uint32_t below(uint32_t bound)
{
    return (uint32_t)(rnd() % bound);
}

/* ---- the model ---- */

struct model_table {
    struct qwp_table *table;
    char name[16];
    struct qwp_column columns[COLUMNS_MAX];
    char names[COLUMNS_MAX][16];
    uint32_t column_count;
};

struct model_row {
    uint32_t table;
    uint32_t column_count; /* of the table then */
    int at;                /* enum qwp_at */
    int64_t time;
    uint64_t seed;
};

static struct model_table tables[TABLES];
static struct model_row pending[PENDING_MAX]; /* published, not read */
static uint32_t pending_begin;
static uint32_t pending_end;
static struct model_row in_unit[PENDING_MAX];
static uint32_t in_unit_count;
static bool unit_open;
static uint64_t rows_read;

struct value {
    bool set;
    unsigned char field[32];
    size_t field_len;
    unsigned char part[PART_BYTES_MAX];
    size_t part_len;
    uint32_t shape[3]; /* arrays */
    uint32_t dimensions;
};

static const uint8_t all_types[] = {
    QWP_BOOLEAN,      QWP_BYTE,       QWP_SHORT,     QWP_INT,        QWP_LONG,
    QWP_FLOAT,        QWP_DOUBLE,     QWP_SYMBOL,    QWP_TIMESTAMP,  QWP_DATE,
    QWP_UUID,         QWP_LONG256,    QWP_GEOHASH,   QWP_VARCHAR,    QWP_TIMESTAMP_NANOS,
    QWP_DOUBLE_ARRAY, QWP_LONG_ARRAY, QWP_DECIMAL64, QWP_DECIMAL128, QWP_DECIMAL256,
    QWP_CHAR,         QWP_BINARY,     QWP_IPV4};

static size_t part_len_of(uint64_t h)
{
    return h % 50 == 0 ? h / 50 % 8000 : h % 7 == 0 ? 0 : h / 7 % 40;
}

static void make_array(struct value *v, uint64_t h)
{
    v->dimensions = 1 + h % 3;
    size_t count = 1;
    for (uint32_t d = 0; d < v->dimensions; d++) {
        v->shape[d] = (uint32_t)(mix(h + d) % 5);
        count *= v->shape[d];
    }
    v->part[0] = (unsigned char)v->dimensions;
    memcpy(v->part + 1, v->shape, v->dimensions * 4);
    v->part_len = 1 + v->dimensions * 4 + count * 8;
    for (size_t i = 0; i < count; i++) {
        qwp_store_u64(v->part + 1 + v->dimensions * 4 + i * 8, mix(h + 10 + i));
    }
}

/* The value of a column in the row of that seed. */
static void make_value(struct value *v, const struct qwp_column *column, uint64_t seed, uint32_t c)
{
    const uint64_t h = mix(seed + c * UINT64_C(0x12345));
    const uint64_t fill = mix(h);
    const unsigned sparse = seed % 4;
    v->set = sparse == 0 || (sparse == 1 ? h % 2 == 0 : sparse == 2 ? h % 10 == 0 : h % 10 != 0);
    v->part_len = 0;
    for (size_t i = 0; i < 4; i++) {
        qwp_store_u64(v->field + i * 8, mix(fill + i));
    }
    v->field_len = qwp_type_field_bytes((uint8_t)column->type);
    switch (column->type) {
    case QWP_BOOLEAN:
        v->field[0] &= 1;
        break;
    case QWP_GEOHASH:
        qwp_store_u64(v->field, fill >> (64 - column->parameter));
        break;
    case QWP_DECIMAL64:
        qwp_store_u64(v->field, (uint64_t)((int64_t)fill >> 8));
        break;
    case QWP_DECIMAL128:
    case QWP_DECIMAL256:
        /* The sign and 8 zero bits below it: within the digits of the type. */
        v->field[v->field_len - 1] = fill % 2 == 0 ? 0 : 0xff;
        break;
    case QWP_SYMBOL:
        v->part_len = (size_t)snprintf((char *)v->part, 64, "%s%" PRIu64,
                                       h % 5 == 0 ? "a symbol that is somewhat longer " : "s",
                                       fill % (h % 3 == 0 ? 10000 : 20));
        break;
    case QWP_VARCHAR:
        v->part_len = part_len_of(fill) / 2 * 2;
        for (size_t i = 0; i < v->part_len; i += 2) {
            memcpy(v->part + i, (h + i) % 3 == 0 ? "ž" : "ab", 2);
        }
        break;
    case QWP_BINARY:
        v->part_len = part_len_of(fill);
        for (size_t i = 0; i < v->part_len; i++) {
            v->part[i] = (unsigned char)(fill >> (i % 50));
        }
        break;
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        make_array(v, h);
        break;
    default:
        break;
    }
}

static void set_value(struct qwp_row *row, const struct qwp_column *column, uint32_t c,
                      const struct value *v)
{
    const uint64_t word = qwp_load_u64(v->field);
    uint64_t words[4];
    memcpy(words, v->field, 32);
    float f;
    memcpy(&f, v->field, 4);
    double d;
    memcpy(&d, v->field, 8);
    uint64_t elements[125];
    memcpy(elements, v->part + 1 + v->dimensions % 4 * 4, sizeof elements);
    enum qwp_result result = QWP_INVALID;
    switch (column->type) {
    case QWP_BOOLEAN:
        result = qwp_row_boolean(row, c, v->field[0] != 0);
        break;
    case QWP_BYTE:
        result = qwp_row_byte(row, c, (int8_t)word);
        break;
    case QWP_SHORT:
        result = qwp_row_short(row, c, (int16_t)word);
        break;
    case QWP_INT:
        result = qwp_row_int(row, c, (int32_t)word);
        break;
    case QWP_LONG:
        result = qwp_row_long(row, c, (int64_t)word);
        break;
    case QWP_FLOAT:
        result = qwp_row_float(row, c, f);
        break;
    case QWP_DOUBLE:
        result = qwp_row_double(row, c, d);
        break;
    case QWP_SYMBOL:
        result = qwp_row_symbol(row, c, (const char *)v->part, v->part_len);
        break;
    case QWP_TIMESTAMP:
        result = qwp_row_timestamp(row, c, (int64_t)word);
        break;
    case QWP_DATE:
        result = qwp_row_date(row, c, (int64_t)word);
        break;
    case QWP_UUID:
        result = qwp_row_uuid(row, c, words[1], words[0]);
        break;
    case QWP_LONG256:
        result = qwp_row_long256(row, c, words);
        break;
    case QWP_GEOHASH:
        result = qwp_row_geohash(row, c, word);
        break;
    case QWP_VARCHAR:
        result = qwp_row_varchar(row, c, (const char *)v->part, v->part_len);
        break;
    case QWP_TIMESTAMP_NANOS:
        result = qwp_row_timestamp_ns(row, c, (int64_t)word);
        break;
    case QWP_DOUBLE_ARRAY:
        result = qwp_row_double_array(row, c, (const double *)elements, v->shape, v->dimensions);
        break;
    case QWP_LONG_ARRAY:
        result = qwp_row_long_array(row, c, (const int64_t *)elements, v->shape, v->dimensions);
        break;
    case QWP_DECIMAL64:
        result = qwp_row_decimal(row, c, words, 1);
        break;
    case QWP_DECIMAL128:
        result = qwp_row_decimal(row, c, words, 2);
        break;
    case QWP_DECIMAL256:
        result = qwp_row_decimal(row, c, words, 4);
        break;
    case QWP_CHAR:
        result = qwp_row_char(row, c, (uint16_t)word);
        break;
    case QWP_BINARY:
        result = qwp_row_binary(row, c, v->part, v->part_len);
        break;
    case QWP_IPV4:
        result = qwp_row_ipv4(row, c, (uint32_t)word);
        break;
    }
    ck_assert_msg(result == QWP_OK || result == QWP_LIMIT, "column %s: %s", column->name,
                  qwp_result_name(result));
}

/* ---- what the program does ---- */

static void grow_table(struct model_table *t)
{
    if (t->column_count == COLUMNS_MAX) {
        return;
    }
    struct qwp_column *column = &t->columns[t->column_count];
    snprintf(t->names[t->column_count], sizeof t->names[0], "c%u", t->column_count);
    const uint8_t type = all_types[below(sizeof all_types)];
    *column = (struct qwp_column){.name = t->names[t->column_count],
                                  .type = (enum qwp_column_type)type,
                                  .parameter = type == QWP_GEOHASH ? (uint8_t)(1 + below(60)) : 0};
    uint32_t index;
    const enum qwp_result result = qwp_table_column(t->table, column, &index, &fixture_err);
    if (result == QWP_OK) {
        ck_assert_uint_eq(index, t->column_count);
        t->column_count++;
    }
}

static void fill_row(struct qwp_row *row, const struct model_table *t, uint64_t seed)
{
    static struct value v;
    uint32_t order[COLUMNS_MAX];
    for (uint32_t i = 0; i < t->column_count; i++) {
        order[i] = i;
    }
    if (seed / 16 % 3 == 0) {
        for (uint32_t i = t->column_count; i > 1; i--) {
            const uint32_t j = below(i);
            const uint32_t swap = order[i - 1];
            order[i - 1] = order[j];
            order[j] = swap;
        }
    }
    for (uint32_t i = 0; i < t->column_count; i++) {
        make_value(&v, &t->columns[order[i]], seed, order[i]);
        if (v.set) {
            set_value(row, &t->columns[order[i]], order[i], &v);
        } else if (seed / 64 % 2 == 0) {
            qwp_row_null(row, order[i]);
        }
    }
}

static void write_row(void)
{
    const uint32_t table = below(TABLES);
    struct model_table *t = &tables[table];
    const uint64_t seed = rnd();
    const int64_t time = (int64_t)(rnd() % UINT64_C(253402300799999999));
    struct qwp_row *row = qwp_row_begin(t->table);
    fill_row(row, t, seed);
    if (below(20) == 0) {
        qwp_row_abort(row);
        return;
    }
    if (below(20) == 0 && t->column_count != 0) {
        qwp_row_null(row, 0);
        qwp_row_null(row, 0); /* twice: a mistake */
        ck_assert_int_ne(qwp_row_at_now(row, &fixture_err), QWP_OK);
        return;
    }
    const int at = 1 + (int)below(3);
    const enum qwp_result result = at == QWP_AT_NS   ? qwp_row_at_ns(row, time, &fixture_err)
                                   : at == QWP_AT_US ? qwp_row_at_us(row, time, &fixture_err)
                                                     : qwp_row_at_now(row, &fixture_err);
    if (result == QWP_OK) {
        const struct model_row model = {table, t->column_count, at, time, seed};
        if (unit_open) {
            in_unit[in_unit_count++] = model;
        } else {
            pending[pending_end++ % PENDING_MAX] = model;
        }
        return;
    }
    ck_assert_msg(result == QWP_AGAIN || result == QWP_LIMIT, "%s: %s", qwp_result_name(result),
                  fixture_err.text);
}

static void toggle_unit(void)
{
    if (!unit_open) {
        ck_assert_int_eq(qwp_unit_begin(fixture_producer, &fixture_err), QWP_OK);
        unit_open = true;
        return;
    }
    if (below(4) == 0) {
        qwp_unit_abort(fixture_producer);
    } else {
        ck_assert_int_eq(qwp_unit_publish(fixture_producer, &fixture_err), QWP_OK);
        for (uint32_t i = 0; i < in_unit_count; i++) {
            pending[pending_end++ % PENDING_MAX] = in_unit[i];
        }
    }
    in_unit_count = 0;
    unit_open = false;
}

/* ---- what comes out ---- */

static void check_value(const struct reader *reader, const struct record *record, uint32_t c,
                        const struct value *v)
{
    const uint8_t type = record->shape->columns[c].type;
    ck_assert_int_eq(record_is_null(record, c), !v->set);
    if (!v->set) {
        return;
    }
    uint32_t len;
    if (type == QWP_TYPE_SYMBOL) {
        const char *text = record_symbol(reader, record, c, &len);
        ck_assert_uint_eq(len, v->part_len);
        ck_assert_mem_eq(text, v->part, len);
        return;
    }
    const unsigned char *part = record_part(record, c, &len);
    if (part == NULL) {
        ck_assert_mem_eq(record_field(record, c), v->field, v->field_len);
        return;
    }
    ck_assert_uint_eq(len, v->part_len);
    ck_assert_mem_eq(part, v->part, len);
}

static void read_some(struct reader *reader, uint32_t rows)
{
    static struct value v;
    struct record record;
    uint32_t n = 0;
    for (; n < rows && reader_next(reader, &record); n++) {
        ck_assert_uint_ne(pending_begin, pending_end);
        const struct model_row *model = &pending[pending_begin++ % PENDING_MAX];
        const struct model_table *t = &tables[model->table];
        ck_assert_uint_eq(record.shape->column_count, model->column_count);
        ck_assert_mem_eq(record.shape->table.text, t->name, strlen(t->name));
        ck_assert_uint_eq(record.shape->designated_type,
                          model->at == QWP_AT_NS   ? QWP_TYPE_TIMESTAMP_NANOS
                          : model->at == QWP_AT_US ? QWP_TYPE_TIMESTAMP
                                                   : QWP_TYPE_NONE);
        if (model->at != QWP_AT_SERVER) {
            ck_assert_int_eq(record_time(&record), model->time);
        }
        for (uint32_t c = 0; c < model->column_count; c++) {
            make_value(&v, &t->columns[c], model->seed, c);
            check_value(reader, &record, c, &v);
        }
    }
    rows_read += n;
    reader_release(reader, n);
}

START_TEST(random_rows_come_out_as_they_were_set)
{
    const char *given = getenv("QWP_TEST_SEED");
    state = (given != NULL ? strtoull(given, NULL, 10) : 1) + (uint64_t)_i;
    printf("seed %" PRIu64 "\n", state); /* to repeat this round alone */
    const struct qwp_producer_options options = {.ring_bytes = UINT64_C(64 * 1024) << below(3),
                                                 .definition_bytes_max = UINT64_C(256 * 1024)
                                                                         << below(3),
                                                 .on_full = QWP_FULL_FAIL};
    fixture_open(&options);
    for (uint32_t i = 0; i < TABLES; i++) {
        snprintf(tables[i].name, sizeof tables[i].name, "table%u", i);
        ck_assert_int_eq(qwp_table_define(fixture_producer, tables[i].name, NULL, 0,
                                          &tables[i].table, &fixture_err),
                         QWP_OK);
        for (uint32_t c = below(30); c > 0; c--) {
            grow_table(&tables[i]);
        }
    }
    struct reader reader;
    reader_open(&reader);
    const uint32_t read_every = 2 + below(60);
    for (int step = 0; step < STEPS; step++) {
        write_row();
        if (below(12) == 0) {
            toggle_unit();
        }
        if (below(60) == 0) {
            grow_table(&tables[below(TABLES)]);
        }
        if (below(read_every) == 0) {
            read_some(&reader, 1 + below(200));
        }
    }
    if (unit_open) {
        toggle_unit();
    }
    read_some(&reader, UINT32_MAX);
    ck_assert_uint_eq(pending_begin, pending_end);
    printf("%" PRIu64 " of %d rows\n", rows_read, STEPS);
    ck_assert_uint_gt(rows_read, STEPS / 20);
    struct qwp_counters counters;
    qwp_producer_count(fixture_producer, &counters);
    ck_assert_uint_eq(counters.rows_published, rows_read);
    ck_assert_uint_eq(counters.rows_stored, rows_read);
    reader_close(&reader);
}
END_TEST

int main(void)
{
    const char *rounds = getenv("QWP_TEST_ROUNDS");
    Suite *suite = suite_create("random");
    TCase *tcase = tcase_create("random");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, random_rows_come_out_as_they_were_set, 0,
                        rounds != NULL ? atoi(rounds) : 4);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

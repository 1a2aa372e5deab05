/* Question: what does it cost to encode a row, by type and for whole rows?
 *
 * A block of 1,024 rows (QWP_GATHER_ROWS_MAX) is encoded over and over; its records lie one behind
 * the other as in a ring. "warm" encodes one block again and again, so that records come from the
 * second-level cache at best; "cold" walks over 64 MiB of records, as if a producer on another core
 * had just written them. The baseline, in turn with each, copies the same records with memcpy.
 *
 * Times are CPU time of the thread, so that other work on the machine disturbs less; the minimum is
 * what an undisturbed core does.
 *
 * Guess made beforehand: 21 columns of a TSBS row at 2 ns each, 42 ns; a column alone 1.5 ns; a
 * timestamp 3 ns; text at the speed of a short copy, 6 ns.
 *
 *   bench_encode [--smoke] [--repeats N] [--only NAME] [--rows N] [--json FILE] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_crc32c.h"
#include "core/qwp_record_layout.h"
#include "core/wire/qwp_encode.h"
#include "perf/bench_data.h"
#include "perf/bench_json.h"

enum {
    COLUMNS_MAX = 128,
    REPEATS_MAX = 1001,
    WARM_BLOCKS_PER_REPEAT = 20, /* a millisecond: mostly not interrupted */
    COLD_BYTES = 64 * 1024 * 1024,
    COLD_ROWS_MIN = 64, /* of a block; the memory around smaller ones hides the records */
    TEXT_BYTES = 40,
    TSBS_HOSTS = 100,
};
#define T0 INT64_C(1700000000000000000)

/* Columns as type x count, in order. */
struct layout {
    const char *name;
    struct {
        uint8_t type;
        uint8_t count;
    } groups[8];
    uint32_t cardinality; /* of each symbol column */
    uint8_t designated_type;
    bool nulls;  /* every third value */
    bool jitter; /* time steps that differ */
    bool small;  /* longs of 0..99, as TSBS has them */
    bool compact;
    uint32_t run_rows; /* the block is of runs of so many rows, each of another ring; 0: of one */
};

static const struct layout layouts[] = {
    {.name = "tsbs",
     .groups = {{QWP_TYPE_SYMBOL, 10}, {QWP_TYPE_LONG, 10}},
     .cardinality = 12,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS},
    {.name = "tsbs-10k-symbols",
     .groups = {{QWP_TYPE_SYMBOL, 10}, {QWP_TYPE_LONG, 10}},
     .cardinality = 1000,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .jitter = true},
    {.name = "tsbs-64-rings",
     .groups = {{QWP_TYPE_SYMBOL, 10}, {QWP_TYPE_LONG, 10}},
     .cardinality = 12,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .run_rows = 16},
    {.name = "tsbs-nulls",
     .groups = {{QWP_TYPE_SYMBOL, 10}, {QWP_TYPE_LONG, 10}},
     .cardinality = 12,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .nulls = true},
    {.name = "tsbs-compact",
     .groups = {{QWP_TYPE_SYMBOL, 10}, {QWP_TYPE_LONG, 10}},
     .cardinality = 12,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .small = true,
     .compact = true},
    {.name = "trade",
     .groups =
         {{QWP_TYPE_SYMBOL, 2}, {QWP_TYPE_DOUBLE, 2}, {QWP_TYPE_LONG, 1}, {QWP_TYPE_BOOLEAN, 1}},
     .cardinality = 40,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .jitter = true},
    {.name = "text-40",
     .groups = {{QWP_TYPE_SYMBOL, 1}, {QWP_TYPE_VARCHAR, 1}},
     .cardinality = 40,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .jitter = true},
    {.name = "wide-100",
     .groups = {{QWP_TYPE_LONG, 100}},
     .cardinality = 1,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS},
    {.name = "symbols-10", .groups = {{QWP_TYPE_SYMBOL, 10}}, .cardinality = 12},
    {.name = "longs-10", .groups = {{QWP_TYPE_LONG, 10}}, .cardinality = 1},
    {.name = "symbol", .groups = {{QWP_TYPE_SYMBOL, 1}}, .cardinality = 100},
    {.name = "symbol-2-bytes", .groups = {{QWP_TYPE_SYMBOL, 1}}, .cardinality = 10000},
    {.name = "boolean", .groups = {{QWP_TYPE_BOOLEAN, 1}}, .cardinality = 1},
    {.name = "byte", .groups = {{QWP_TYPE_BYTE, 1}}, .cardinality = 1},
    {.name = "short", .groups = {{QWP_TYPE_SHORT, 1}}, .cardinality = 1},
    {.name = "int", .groups = {{QWP_TYPE_INT, 1}}, .cardinality = 1},
    {.name = "long", .groups = {{QWP_TYPE_LONG, 1}}, .cardinality = 1},
    {.name = "long-nulls", .groups = {{QWP_TYPE_LONG, 1}}, .cardinality = 1, .nulls = true},
    {.name = "uuid", .groups = {{QWP_TYPE_UUID, 1}}, .cardinality = 1},
    {.name = "long256", .groups = {{QWP_TYPE_LONG256, 1}}, .cardinality = 1},
    {.name = "geohash", .groups = {{QWP_TYPE_GEOHASH, 1}}, .cardinality = 1},
    {.name = "varchar-40", .groups = {{QWP_TYPE_VARCHAR, 1}}, .cardinality = 1},
    {.name = "array-4", .groups = {{QWP_TYPE_DOUBLE_ARRAY, 1}}, .cardinality = 1},
    {.name = "time-steady", .cardinality = 1, .designated_type = QWP_TYPE_TIMESTAMP_NANOS},
    {.name = "time-jitter",
     .cardinality = 1,
     .designated_type = QWP_TYPE_TIMESTAMP_NANOS,
     .jitter = true},
};

/* A table, its records in blocks of `rows`, and what the encoder needs to know of them. */
struct bench {
    const struct layout *layout;
    struct qwp_shape *shape;
    struct qwp_block_column columns[COLUMNS_MAX];
    uint16_t field_of_column[COLUMNS_MAX];
    char names[COLUMNS_MAX][16];
    uint64_t null_any[COLUMNS_MAX / 64];
    uint32_t *symbol_codes;
    uint32_t symbol_count;
    uint32_t rows;
    uint32_t run_rows;
    uint32_t runs_per_block;
    uint32_t block_count;
    unsigned char *memory;
    const unsigned char **records;
    const uint64_t **steering;
    uint64_t *steering_words;
    uint32_t steering_stride; /* words of a row */
    struct qwp_run *runs;
    struct qwp_block *blocks;
    unsigned char *dst;
    struct qwp_encoder *encoder;
};

static void make_shape(struct bench *b)
{
    struct qwp_column_def defs[COLUMNS_MAX];
    uint32_t n = 0;
    for (size_t g = 0; g < sizeof b->layout->groups / sizeof b->layout->groups[0]; g++) {
        for (uint32_t i = 0; i < b->layout->groups[g].count; i++, n++) {
            snprintf(b->names[n], sizeof b->names[n], "column_%u", n);
            const uint8_t type = b->layout->groups[g].type;
            defs[n] = (struct qwp_column_def){{b->names[n], (uint32_t)strlen(b->names[n])},
                                              type,
                                              type == QWP_TYPE_GEOHASH ? 40 : 0};
            b->columns[n] =
                (struct qwp_block_column){defs[n].name, defs[n].type, defs[n].parameter};
            b->field_of_column[n] = (uint16_t)n;
        }
    }
    struct qwp_error err;
    if (qwp_shape_create(&b->shape, (struct qwp_name){"bench", 5}, defs, n,
                         b->layout->designated_type, &err) != QWP_OK) {
        fprintf(stderr, "bench_encode: %s\n", err.text);
        exit(1);
    }
}

static uint32_t part_bytes(uint8_t type)
{
    switch (type) {
    case QWP_TYPE_VARCHAR:
        return TEXT_BYTES;
    case QWP_TYPE_DOUBLE_ARRAY:
        return 1 + 4 + 4 * 8;
    default:
        return 0;
    }
}

static void fill_part(unsigned char *at, uint8_t type)
{
    if (type == QWP_TYPE_VARCHAR) {
        for (uint32_t i = 0; i < TEXT_BYTES; i++) {
            at[i] = (unsigned char)('a' + bench_random() % 26);
        }
    } else if (type == QWP_TYPE_DOUBLE_ARRAY) {
        at[0] = 1;
        qwp_store_u32(at + 1, 4);
        for (uint32_t i = 0; i < 4; i++) {
            qwp_store_u64(at + 5 + 8 * (size_t)i, bench_random() >> 12);
        }
    }
}

static size_t fill_record(struct bench *b, unsigned char *record, uint32_t row, int64_t *time)
{
    const struct qwp_shape *shape = b->shape;
    uint64_t *steering = b->steering_words + (size_t)(row % b->rows) * b->steering_stride;
    uint32_t *ends = (uint32_t *)(steering + shape->null_words);
    uint32_t end = shape->fixed_bytes;
    *time += b->layout->jitter       ? 1000 + (int64_t)(bench_random() % 400)
             : row % TSBS_HOSTS == 0 ? INT64_C(1000000000)
                                     : 0;
    if (shape->designated_type != QWP_TYPE_NONE) {
        qwp_store_i64(record + shape->designated_off, *time);
    }
    for (uint32_t c = 0; c < shape->column_count; c++) {
        const struct qwp_shape_column *column = &shape->columns[c];
        unsigned char *field = record + column->off;
        for (uint32_t i = 0; i < qwp_type_field_bytes(column->type); i++) {
            field[i] = (unsigned char)bench_random();
        }
        if (column->type == QWP_TYPE_SYMBOL) {
            qwp_store_u32(field, c * b->layout->cardinality +
                                     (uint32_t)(bench_random() % b->layout->cardinality));
        } else if (column->type == QWP_TYPE_LONG && b->layout->small) {
            qwp_store_u64(field, bench_random() % 100);
        } else if (column->type == QWP_TYPE_BOOLEAN) {
            field[0] &= 1;
        } else if (column->type == QWP_TYPE_GEOHASH) {
            qwp_store_u64(field, bench_random() >> 24);
        }
        const uint32_t len = part_bytes(column->type);
        fill_part(record + end, column->type);
        end += len;
        if (column->var_index != QWP_NO_VAR) {
            ends[column->var_index] = end;
        }
        if (b->layout->nulls && row < b->rows && c < 64 && bench_random() % 3 == 0) {
            steering[0] |= UINT64_C(1) << c;
        }
    }
    if (shape->null_words > 0) {
        b->null_any[0] |= steering[0];
    }
    const size_t size = qwp_round_up(end, QWP_RECORD_ALIGN);
    qwp_store_u32(record, (uint32_t)size);
    return size;
}

static size_t record_bytes_max(const struct bench *b)
{
    size_t size = b->shape->fixed_bytes;
    for (uint32_t c = 0; c < b->shape->column_count; c++) {
        size += part_bytes(b->shape->columns[c].type);
    }
    return qwp_round_up(size, QWP_RECORD_ALIGN);
}

static size_t block_bound(const struct bench *b, uint32_t rows)
{
    size_t value_bytes = 8;
    size_t var_bytes = 0;
    for (uint32_t c = 0; c < b->shape->column_count; c++) {
        value_bytes += qwp_value_bound(b->columns[c].type, b->columns[c].parameter);
        var_bytes += part_bytes(b->columns[c].type);
    }
    const size_t header =
        qwp_block_header_bound(b->shape->table, b->columns, b->shape->column_count);
    return qwp_block_compact_bound(
        qwp_block_bound(header, b->shape->column_count, value_bytes, rows, var_bytes * rows),
        header, b->shape->column_count);
}

static void fill_block(struct bench *b, uint32_t index)
{
    struct qwp_run *runs = b->runs + (size_t)index * b->runs_per_block;
    for (uint32_t r = 0; r < b->runs_per_block; r++) {
        const uint32_t left = b->rows - r * b->run_rows;
        runs[r] = (struct qwp_run){
            .shape = b->shape,
            .field_of_column = b->field_of_column,
            .symbol_codes = b->symbol_codes + (size_t)r * b->symbol_count,
            .symbol_count = b->symbol_count,
            .row_count = left < b->run_rows ? left : b->run_rows,
            .null_any = b->null_any,
            .has_parts = record_bytes_max(b) > qwp_round_up(b->shape->fixed_bytes, 8),
        };
    }
    b->blocks[index] = (struct qwp_block){
        .table = b->shape->table,
        .columns = b->columns,
        .column_count = b->shape->column_count,
        .designated_type = b->layout->designated_type,
        .runs = runs,
        .run_count = b->runs_per_block,
        .records = b->records + (size_t)index * b->rows,
        .steering = b->steering,
        .row_count = b->rows,
    };
}

static void bench_init(struct bench *b, const struct layout *layout, uint32_t rows, bool cold,
                       size_t cold_bytes)
{
    *b = (struct bench){.layout = layout, .rows = rows};
    bench_random_state = BENCH_SEED;
    make_shape(b);
    const size_t block_bytes = record_bytes_max(b) * rows;
    b->block_count = cold ? (uint32_t)(cold_bytes / block_bytes) + 1 : 1;
    const uint32_t row_count = rows * b->block_count;
    b->symbol_count = layout->cardinality * COLUMNS_MAX;
    b->run_rows = layout->run_rows == 0 ? rows : layout->run_rows;
    b->runs_per_block = (rows + b->run_rows - 1) / b->run_rows;
    b->symbol_codes =
        bench_allocate((size_t)b->runs_per_block * b->symbol_count * sizeof *b->symbol_codes);
    for (uint32_t i = 0; i < b->symbol_count * b->runs_per_block; i++) {
        b->symbol_codes[i] = qwp_symbol_code(i % b->symbol_count);
    }
    b->memory = bench_allocate(block_bytes * b->block_count);
    b->records = bench_allocate(row_count * sizeof *b->records);
    /* Made just before in real life, and so in the cache: all blocks share one. */
    b->steering_stride = b->shape->null_words + (b->shape->var_count + 1u) / 2;
    b->steering = bench_allocate(rows * sizeof *b->steering);
    b->steering_words =
        bench_allocate((size_t)rows * b->steering_stride * sizeof *b->steering_words);
    b->runs = bench_allocate((size_t)b->block_count * b->runs_per_block * sizeof *b->runs);
    b->blocks = bench_allocate(b->block_count * sizeof *b->blocks);
    b->dst = bench_allocate(block_bound(b, rows));
    b->encoder = bench_allocate(sizeof *b->encoder);
    unsigned char *at = b->memory;
    int64_t time = T0;
    for (uint32_t row = 0; row < row_count; row++) {
        b->records[row] = at;
        b->steering[row % rows] = b->steering_words + (size_t)(row % rows) * b->steering_stride;
        at += fill_record(b, at, row, &time);
    }
    for (uint32_t i = 0; i < b->block_count; i++) {
        fill_block(b, i);
    }
}

static void bench_fini(struct bench *b)
{
    qwp_shape_destroy(b->shape);
    free(b->symbol_codes);
    free(b->memory);
    free(b->records);
    free(b->steering);
    free(b->steering_words);
    free(b->runs);
    free(b->blocks);
    free(b->dst);
    free(b->encoder);
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static size_t encode(struct bench *b, uint32_t block)
{
    struct qwp_encoded done;
    const unsigned flags = QWP_ENCODE_GORILLA | (b->layout->compact ? QWP_ENCODE_COMPACT : 0);
    if (qwp_block_encode(b->encoder, &b->blocks[block], flags, b->dst, &done) != QWP_OK) {
        fprintf(stderr, "bench_encode: %s: row %u, column %u: %s\n", b->layout->name,
                done.fault.row, done.fault.column, done.fault.what);
        exit(1);
    }
    return done.len;
}

/* Nanoseconds a row to copy the records, to where the block goes: what any gathering must pay. */
static double copy(struct bench *b, unsigned char *to, uint32_t blocks)
{
    const size_t block_bytes = record_bytes_max(b) * b->rows;
    const int64_t start = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    for (uint32_t i = 0; i < blocks; i++) {
        memcpy(to, b->memory + i % b->block_count * block_bytes, block_bytes);
        __asm__ volatile("" ::: "memory");
    }
    return (double)(qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start) /
           ((double)blocks * b->rows);
}

static struct bench_json json;

static void note(const char *name, bool cold, const double *ns, const double *copied, int repeats)
{
    char base[64];
    const char *part = cold ? "encode, cold" : "encode, warm";
    snprintf(base, sizeof base, "%s, copy", name);
    bench_json_runs(&json, part, name, base, "ns", ns, repeats);
    bench_json_runs(&json, part, base, NULL, "ns", copied, repeats);
}

static void measure(const struct layout *layout, uint32_t rows, bool cold, uint32_t repeats,
                    bool smoke)
{
    struct bench b;
    double ns[REPEATS_MAX];
    double copied[REPEATS_MAX];
    bench_init(&b, layout, rows, cold, smoke ? 1024 * 1024 : COLD_BYTES);
    const uint32_t encodes = cold ? b.block_count : smoke ? 1 : WARM_BLOCKS_PER_REPEAT;
    size_t len = encode(&b, 0);
    const uint32_t checksum = qwp_crc32c(0, b.dst, len);
    unsigned char *to = bench_allocate(record_bytes_max(&b) * rows);
    for (uint32_t r = 0; r < repeats; r++) {
        const int64_t start = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
        for (uint32_t i = 0; i < encodes; i++) {
            len = encode(&b, i % b.block_count);
        }
        ns[r] =
            (double)(qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start) / ((double)encodes * rows);
        copied[r] = copy(&b, to, encodes);
    }
    note(layout->name, cold, ns, copied, (int)repeats);
    qsort(ns, repeats, sizeof *ns, compare_doubles);
    qsort(copied, repeats, sizeof *copied, compare_doubles);
    printf("%-18s %-5s %8.2f %8.2f %8.2f %6.2f %9zu %9.1f   %08x\n", layout->name,
           cold ? "cold" : "warm", ns[repeats / 2], ns[0], ns[repeats - 1 - repeats / 10],
           ns[repeats / 2] / copied[repeats / 2], record_bytes_max(&b), (double)len / rows,
           checksum);
    fflush(stdout);
    free(to);
    bench_fini(&b);
}

int main(int argc, char **argv)
{
    bool smoke = false;
    uint32_t repeats = 51;
    uint32_t rows = QWP_GATHER_ROWS_MAX;
    const char *only = NULL;
    const char *json_path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            smoke = true;
            repeats = 1;
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            repeats = (uint32_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--rows") == 0 && i + 1 < argc) {
            rows = (uint32_t)atoi(argv[++i]);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else {
            fprintf(stderr,
                    "usage: %s [--smoke] [--repeats N] [--rows N] [--only NAME] [--json FILE]\n",
                    argv[0]);
            return 2;
        }
    }
    if (repeats < 1 || repeats > REPEATS_MAX || rows < 1 || rows > QWP_GATHER_ROWS_MAX) {
        fprintf(stderr, "bench_encode: repeats are 1..%d, rows 1..%d\n", REPEATS_MAX,
                QWP_GATHER_ROWS_MAX);
        return 2;
    }
    bench_json_open(&json, json_path, "bench_encode");
    struct utsname system;
    uname(&system);
    printf("%s %s %s, %u rows a block, %u repeats, seed %016llx\n", system.sysname, system.release,
           system.machine, rows, repeats, (unsigned long long)BENCH_SEED);
    printf("%-18s %-5s %8s %8s %8s %6s %9s %9s   %s\n", "row", "cache", "ns/row", "min", "p90",
           "x copy", "record B", "wire B", "checksum");
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (only == NULL || strcmp(only, layouts[i].name) == 0) {
            measure(&layouts[i], rows, false, repeats, smoke);
            if (rows >= COLD_ROWS_MIN && layouts[i].designated_type != QWP_TYPE_NONE &&
                layouts[i].groups[0].count > 0) {
                measure(&layouts[i], rows, true, smoke ? 1 : (repeats + 4) / 5, smoke);
            }
        }
    }
    bench_json_close(&json);
    return 0;
}

/* Question: what does it cost to encode a row of a columnar chunk, by type and for whole rows?
 *
 * A chunk of 8,192 rows is encoded as intake does it (compact, Gorilla). "warm" encodes one chunk
 * again and again, so that it comes from the second-level cache at best; "cold" walks over 64 MiB
 * of chunks, as if a producer on another core had just written them. The baseline, in turn with
 * each, copies the same bytes with memcpy. Times are CPU time of the thread.
 *
 * Guess made beforehand: twice the copy for values that stay as they are, a nanosecond for a symbol
 * and for a time, half of one for a long that gets narrower.
 *
 *   bench_chunk [--smoke] [--repeats N] [--only NAME] [--json FILE] */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_crc32c.h"
#include "core/wire/qwp_encode_chunk.h"
#include "perf/bench_data.h"
#include "perf/bench_json.h"

enum {
    COLUMNS_MAX = 8,
    ROWS = QWP_CHUNK_ROWS_MAX,
    REPEATS_MAX = 1001,
    WARM_CHUNKS_PER_REPEAT = 20,
    COLD_BYTES = 64 * 1024 * 1024,
    TEXT_BYTES = 40,
    SYMBOLS = 10000,
};
#define T0 INT64_C(1700000000000000000)

/* What a column holds. */
enum content {
    SYMBOL_SMALL = 1, /* ids below 100 */
    SYMBOL_LARGE,     /* below SYMBOLS */
    PRICE,            /* two decimals: stays a double */
    WHOLE,            /* a double that goes as FLOAT */
    LONG_SMALL,       /* 0..99 */
    LONG_COUNT,       /* the row's number */
    LONG_RANDOM,
    FLAG,
    TEXT,
};

static const struct layout {
    const char *name;
    enum content columns[COLUMNS_MAX];
    enum { NO_TIME, STEADY, JITTER } time;
    bool nulls; /* every third value */
} layouts[] = {
    {"trade", {SYMBOL_SMALL, SYMBOL_SMALL, PRICE, PRICE, LONG_COUNT, FLAG}, JITTER, false},
    {"trade-steady", {SYMBOL_SMALL, SYMBOL_SMALL, PRICE, PRICE, LONG_COUNT, FLAG}, STEADY, false},
    {"trade-nulls", {SYMBOL_SMALL, SYMBOL_SMALL, PRICE, PRICE, LONG_COUNT, FLAG}, JITTER, true},
    {"symbol", {SYMBOL_SMALL}, NO_TIME, false},
    {"symbol-2-bytes", {SYMBOL_LARGE}, NO_TIME, false},
    {"double", {PRICE}, NO_TIME, false},
    {"double-float", {WHOLE}, NO_TIME, false},
    {"long-byte", {LONG_SMALL}, NO_TIME, false},
    {"long-short", {LONG_COUNT}, NO_TIME, false},
    {"long", {LONG_RANDOM}, NO_TIME, false},
    {"boolean", {FLAG}, NO_TIME, false},
    {"varchar-40", {TEXT}, NO_TIME, false},
    {"time-steady", {0}, STEADY, false},
    {"time-jitter", {0}, JITTER, false},
};

struct bench {
    const struct layout *layout;
    struct qwp_block_column columns[COLUMNS_MAX];
    char names[COLUMNS_MAX][16];
    uint32_t column_count;
    uint32_t codes[SYMBOLS];
    unsigned char *memory; /* the chunks, one behind the other */
    size_t chunk_bytes;
    uint32_t chunk_count;
    struct qwp_chunk_part *parts; /* column_count + 1 of each chunk */
    size_t header_bound;
    unsigned char *dst;
    struct qwp_encoder *encoder;
};

static uint8_t type_of(enum content content)
{
    switch (content) {
    case SYMBOL_SMALL:
    case SYMBOL_LARGE:
        return QWP_TYPE_SYMBOL;
    case PRICE:
    case WHOLE:
        return QWP_TYPE_DOUBLE;
    case FLAG:
        return QWP_TYPE_BOOLEAN;
    case TEXT:
        return QWP_TYPE_VARCHAR;
    default:
        return QWP_TYPE_LONG;
    }
}

/* Value number i; returns the bytes it takes. */
static size_t put_value(unsigned char *at, enum content content, uint32_t i)
{
    double number = (double)(bench_random() % 1000000);
    switch (content) {
    case SYMBOL_SMALL:
    case SYMBOL_LARGE:
        qwp_store_u32(at, (uint32_t)(bench_random() % (content == SYMBOL_SMALL ? 100 : SYMBOLS)));
        return 4;
    case PRICE:
    case WHOLE:
        number *= content == PRICE ? 0.01 : 1;
        memcpy(at, &number, sizeof number);
        return 8;
    case LONG_SMALL:
        qwp_store_u64(at, bench_random() % 100);
        return 8;
    case LONG_COUNT:
        qwp_store_u64(at, i);
        return 8;
    default:
        qwp_store_u64(at, bench_random());
        return 8;
    }
}

static unsigned char *put_texts(unsigned char *at, uint32_t count)
{
    for (uint32_t i = 0; i <= count; i++, at += 4) {
        qwp_store_u32(at, i * TEXT_BYTES);
    }
    for (uint32_t i = 0; i < count * TEXT_BYTES; i++) {
        *at++ = (unsigned char)('a' + bench_random() % 26);
    }
    return at;
}

static unsigned char *aligned(unsigned char *at, const unsigned char *start)
{
    return (unsigned char *)start + qwp_round_up((uint64_t)(at - start), QWP_RECORD_ALIGN);
}

static unsigned char *put_column(struct bench *b, unsigned char *at, enum content content,
                                 struct qwp_chunk_part *part)
{
    *part = (struct qwp_chunk_part){.value_count = ROWS};
    if (b->layout->nulls) {
        part->bitmap = at;
        for (uint32_t i = 0; i < ROWS; i++) {
            const unsigned null = bench_random() % 3 == 0;
            at[i / 8] |= (unsigned char)(null << i % 8);
            part->value_count -= null;
        }
        at += ROWS / 8;
    }
    part->values = at;
    if (content == TEXT) {
        at = put_texts(at, part->value_count);
    } else if (content == FLAG) {
        for (uint32_t i = 0; i < (part->value_count + 7) / 8; i++) {
            *at++ = (unsigned char)bench_random();
        }
    } else {
        for (uint32_t i = 0; i < part->value_count; i++) {
            at += put_value(at, content, i);
        }
    }
    part->values_bytes = (uint32_t)(at - part->values);
    return aligned(at, b->memory);
}

static unsigned char *put_times(struct bench *b, unsigned char *at, int64_t *time,
                                struct qwp_chunk_part *part)
{
    *part = (struct qwp_chunk_part){.values = at, .value_count = ROWS, .values_bytes = 8 * ROWS};
    for (uint32_t i = 0; i < ROWS; i++, at += 8) {
        *time += b->layout->time == STEADY ? 1000 : 1000 + (int64_t)(bench_random() % 400);
        qwp_store_i64(at, *time);
    }
    return at;
}

/* Of `number`, as the encoder takes it. */
static struct qwp_chunk chunk_at(const struct bench *b, uint32_t number)
{
    return (struct qwp_chunk){
        .table = {"bench", 5},
        .columns = b->columns,
        .column_count = b->column_count,
        .designated_type = b->layout->time == NO_TIME ? QWP_TYPE_NONE : QWP_TYPE_TIMESTAMP_NANOS,
        .row_count = ROWS,
        .parts = b->parts + (size_t)number * (b->column_count + 1),
        .symbol_codes = b->codes,
        .symbol_count = SYMBOLS,
    };
}

static void bench_init(struct bench *b, const struct layout *layout, size_t bytes)
{
    *b = (struct bench){.layout = layout};
    bench_random_state = BENCH_SEED;
    while (b->column_count < COLUMNS_MAX && layout->columns[b->column_count] != 0) {
        const uint32_t c = b->column_count++;
        snprintf(b->names[c], sizeof b->names[c], "column_%u", c);
        b->columns[c] = (struct qwp_block_column){{b->names[c], 8}, type_of(layout->columns[c]), 0};
    }
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        b->codes[i] = qwp_symbol_code(i);
    }
    /* More than any has. */
    const size_t bound = (size_t)ROWS * ((TEXT_BYTES + 8) + 9 * (size_t)COLUMNS_MAX);
    b->chunk_count = (uint32_t)(bytes / (40 * ROWS)) + 1;
    b->memory = bench_allocate(bytes + bound);
    b->parts = bench_allocate(b->chunk_count * (b->column_count + 1) * sizeof *b->parts);
    unsigned char *at = b->memory;
    int64_t time = T0;
    uint32_t done = 0;
    for (; done < b->chunk_count && (done == 0 || at < b->memory + bytes); done++) {
        struct qwp_chunk_part *parts = b->parts + (size_t)done * (b->column_count + 1);
        for (uint32_t c = 0; c < b->column_count; c++) {
            at = put_column(b, at, layout->columns[c], &parts[c]);
        }
        if (layout->time != NO_TIME) {
            at = put_times(b, at, &time, &parts[b->column_count]);
        }
        b->chunk_bytes = done == 0 ? (size_t)(at - b->memory) : b->chunk_bytes;
    }
    b->chunk_count = done;
    const struct qwp_chunk chunk = chunk_at(b, 0);
    b->header_bound = qwp_block_header_bound(chunk.table, b->columns, b->column_count);
    b->dst = bench_allocate(2 * qwp_chunk_bound(&chunk, b->header_bound));
    b->encoder = bench_allocate(sizeof *b->encoder);
}

static void bench_fini(struct bench *b)
{
    free(b->memory);
    free(b->parts);
    free(b->dst);
    free(b->encoder);
}

static size_t encode(struct bench *b, uint32_t number)
{
    const struct qwp_chunk chunk = chunk_at(b, number);
    struct qwp_encoded done;
    if (qwp_chunk_encode(b->encoder, &chunk, QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT, b->dst,
                         &done) != QWP_OK) {
        fprintf(stderr, "bench_chunk: %s: column %u: %s\n", b->layout->name, done.fault.column,
                done.fault.what);
        exit(1);
    }
    return done.len;
}

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double ns_a_row(int64_t start_ns, uint32_t chunks)
{
    return (double)(qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) /
           ((double)chunks * ROWS);
}

static void measure(struct bench_json *json, const struct layout *layout, bool cold, int repeats,
                    bool smoke)
{
    static struct bench b;
    static double ns[REPEATS_MAX];
    static double copied[REPEATS_MAX];
    bench_init(&b, layout, !cold ? 0 : smoke ? 1024 * 1024 : COLD_BYTES);
    const uint32_t chunks = cold ? b.chunk_count : smoke ? 1 : WARM_CHUNKS_PER_REPEAT;
    unsigned char *to = bench_allocate(b.chunk_bytes);
    size_t len = encode(&b, 0);
    const uint32_t checksum = qwp_crc32c(0, b.dst, len);
    for (int r = 0; r < repeats; r++) {
        int64_t start_ns = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
        for (uint32_t i = 0; i < chunks; i++) {
            len = encode(&b, i % b.chunk_count);
        }
        ns[r] = ns_a_row(start_ns, chunks);
        start_ns = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
        for (uint32_t i = 0; i < chunks; i++) {
            memcpy(to, b.memory + i % b.chunk_count * b.chunk_bytes, b.chunk_bytes);
            __asm__ volatile("" ::: "memory");
        }
        copied[r] = ns_a_row(start_ns, chunks);
    }
    char base[64];
    const char *part = cold ? "chunk, cold" : "chunk, warm";
    snprintf(base, sizeof base, "%s, copy", layout->name);
    bench_json_runs(json, part, layout->name, base, "ns", ns, repeats);
    bench_json_runs(json, part, base, NULL, "ns", copied, repeats);
    qsort(ns, (size_t)repeats, sizeof *ns, compare_doubles);
    qsort(copied, (size_t)repeats, sizeof *copied, compare_doubles);
    printf("%-16s %-5s %8.2f %8.2f %8.2f %6.2f %8.1f %8.1f   %08x\n", layout->name,
           cold ? "cold" : "warm", ns[repeats / 2], ns[0], ns[repeats - 1 - repeats / 10],
           ns[repeats / 2] / copied[repeats / 2], (double)b.chunk_bytes / ROWS, (double)len / ROWS,
           checksum);
    fflush(stdout);
    free(to);
    bench_fini(&b);
}

int main(int argc, char **argv)
{
    bool smoke = false;
    int repeats = 51;
    const char *only = NULL;
    const char *json_path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            smoke = true;
            repeats = 1;
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            repeats = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else {
            fprintf(stderr, "usage: %s [--smoke] [--repeats N] [--only NAME] [--json FILE]\n",
                    argv[0]);
            return 2;
        }
    }
    if (repeats < 1 || repeats > REPEATS_MAX) {
        fprintf(stderr, "bench_chunk: repeats are 1..%d\n", REPEATS_MAX);
        return 2;
    }
    struct bench_json json;
    bench_json_open(&json, json_path, "bench_chunk");
    printf("%u rows a chunk, %d repeats, seed %016llx\n", ROWS, repeats,
           (unsigned long long)BENCH_SEED);
    printf("%-16s %-5s %8s %8s %8s %6s %8s %8s   %s\n", "row", "cache", "ns/row", "min", "p90",
           "x copy", "chunk B", "wire B", "checksum");
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        if (only == NULL || strcmp(only, layouts[i].name) == 0) {
            measure(&json, &layouts[i], false, repeats, smoke);
            measure(&json, &layouts[i], true, smoke ? 1 : (repeats + 4) / 5, smoke);
        }
    }
    bench_json_close(&json);
    return 0;
}

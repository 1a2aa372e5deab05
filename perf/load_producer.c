/* A producer for bench_e2e.py: trade rows (6 columns) through the public library.
 *
 *   load_producer --rings DIR --name NAME [--rows N] [--rate N] [--unit N]
 *                 [--way hot|builder|chunk] [--tables N] [--ring-bytes N] [--wait-acked]
 *
 * Column `id` holds the monotonic clock of the moment before the row was published when there is a
 * --rate or --wait-acked, else a number. --unit N: so many rows are published together,
 * as a unit or, --way chunk, out of arrays that were filled beforehand. --tables N: rows (not
 * chunks) go to that many tables in turn. --rate N: rows a second, evenly, by sleeping to absolute
 * times. --wait-acked: each unit waits for the one before to be acknowledged; prints how long that
 * took.
 *
 * Attaches, prints a line, waits for one on stdin, runs, prints one JSON object. */
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "clients/c/qwp.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_histogram.h"

enum { SYMBOLS = 100, COLUMNS = 6, TABLES_MAX = 1000, WAIT_S = 300 };

enum way { WAY_HOT, WAY_BUILDER, WAY_CHUNK };
#define T0 INT64_C(1700000000000000000)

struct options {
    const char *rings;
    const char *name;
    uint64_t rows, rate, unit, tables, ring_bytes;
    enum way way;
    bool wait_acked;
};

struct load {
    struct options options;
    struct qwp_producer *producer;
    struct qwp_table *tables[TABLES_MAX];
    const struct qwp_layout *layouts[TABLES_MAX];
    uint32_t handles[SYMBOLS];
    uint32_t off[COLUMNS];
    uint32_t at_off;
    bool stamped;
    struct qwp_histogram acked;
    /* --way chunk: `unit` rows, written again and again */
    uint32_t *symbols, *sides;
    double *prices;
    int64_t *ids, *times;
    uint8_t *makers;
};

static void die(const char *what, const struct qwp_error *err)
{
    fprintf(stderr, "load_producer: %s: %s\n", what, err != NULL ? err->text : "failed");
    exit(1);
}

static void open_load(struct load *load)
{
    static const struct qwp_column columns[COLUMNS] = {
        {"symbol", QWP_SYMBOL, 0}, {"side", QWP_SYMBOL, 0}, {"price", QWP_DOUBLE, 0},
        {"amount", QWP_DOUBLE, 0}, {"id", QWP_LONG, 0},     {"maker", QWP_BOOLEAN, 0}};
    static const uint32_t all[COLUMNS] = {0, 1, 2, 3, 4, 5};
    const struct qwp_producer_options options = {.dir = load->options.rings,
                                                 .name = load->options.name,
                                                 .ring_bytes = load->options.ring_bytes,
                                                 .full_wait_ns_max =
                                                     (int64_t)WAIT_S * QWP_NS_PER_S};
    struct qwp_error err;
    if (qwp_producer_open(&load->producer, &options, &err) != QWP_OK) {
        die("open", &err);
    }
    for (uint64_t t = 0; t < load->options.tables; t++) {
        char name[32];
        snprintf(name, sizeof name, "trades_%llu", (unsigned long long)t);
        if (qwp_table_define(load->producer, name, columns, COLUMNS, &load->tables[t], &err) !=
                QWP_OK ||
            qwp_layout_define(load->tables[t], all, COLUMNS, QWP_AT_NS, &load->layouts[t], &err) !=
                QWP_OK) {
            die("define", &err);
        }
    }
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        char text[16];
        const int len = snprintf(text, sizeof text, "sym-%u", i);
        if (qwp_symbol_intern(load->producer, text, (size_t)len, &load->handles[i], &err) !=
            QWP_OK) {
            die("intern", &err);
        }
    }
    for (uint32_t i = 0; i < COLUMNS; i++) {
        load->off[i] = qwp_layout_offset(load->layouts[0], i); /* the same in all */
    }
    load->at_off = qwp_layout_at_offset(load->layouts[0]);
    load->stamped = load->options.rate > 0 || load->options.wait_acked;
}

static void *array(const struct load *load, size_t width)
{
    void *values = calloc(load->options.unit, width);
    if (values == NULL) {
        die("no memory for a column", NULL);
    }
    return values;
}

static void fill_arrays(struct load *load)
{
    load->symbols = array(load, sizeof *load->symbols);
    load->sides = array(load, sizeof *load->sides);
    load->prices = array(load, sizeof *load->prices);
    load->ids = array(load, sizeof *load->ids);
    load->times = array(load, sizeof *load->times);
    load->makers = array(load, 1);
    for (uint64_t i = 0; i < load->options.unit; i++) {
        load->symbols[i] = (uint32_t)(i % SYMBOLS);
        load->sides[i] = (uint32_t)(i & 1);
        load->prices[i] = (double)i;
        load->ids[i] = (int64_t)i;
        load->times[i] = T0 + (int64_t)i;
        load->makers[i / 8] |= (uint8_t)((i & 1) << i % 8);
    }
}

static void write_chunk(struct load *load, uint64_t count)
{
    const struct qwp_chunk_column columns[COLUMNS] = {
        {.values = load->symbols, .handles = load->handles, .handle_count = SYMBOLS},
        {.values = load->sides, .handles = load->handles, .handle_count = SYMBOLS},
        {.values = load->prices},
        {.values = load->prices},
        {.values = load->ids},
        {.values = load->makers},
    };
    struct qwp_error err;
    if (qwp_chunk_write(load->producer, load->layouts[0], columns, load->times, 0, count, NULL,
                        &err) != QWP_OK) {
        die("chunk", &err);
    }
}

static inline void hot_row(struct load *load, uint64_t n, uint32_t symbol, uint32_t table)
{
    void *row;
    if (qwp_row_reserve(load->producer, load->layouts[table], 0, &row) != QWP_OK) {
        die("reserve", NULL);
    }
    unsigned char *at = row;
    const double price = (double)n;
    qwp_store_u32(at + load->off[0], load->handles[symbol]);
    qwp_store_u32(at + load->off[1], load->handles[n & 1]);
    memcpy(at + load->off[2], &price, sizeof price);
    memcpy(at + load->off[3], &price, sizeof price);
    at[load->off[5]] = n & 1;
    qwp_store_i64(at + load->at_off, T0 + (int64_t)n);
    qwp_store_i64(at + load->off[4], load->stamped ? qwp_clock_monotonic_ns() : (int64_t)n);
    if (qwp_row_publish(load->producer) != QWP_OK) {
        die("publish", NULL);
    }
}

static inline void builder_row(struct load *load, uint64_t n, uint32_t symbol, uint32_t table)
{
    struct qwp_error err;
    struct qwp_row *row = qwp_row_begin(load->tables[table]);
    qwp_row_symbol_handle(row, 0, load->handles[symbol]);
    qwp_row_symbol_handle(row, 1, load->handles[n & 1]);
    qwp_row_double(row, 2, (double)n);
    qwp_row_double(row, 3, (double)n);
    qwp_row_boolean(row, 5, (n & 1) != 0);
    qwp_row_long(row, 4, load->stamped ? qwp_clock_monotonic_ns() : (int64_t)n);
    if (qwp_row_at_ns(row, T0 + (int64_t)n, &err) != QWP_OK) {
        die("row", &err);
    }
}

/* Rows first .. first + count, as units. */
static void publish(struct load *load, uint64_t first, uint64_t count)
{
    if (load->options.way == WAY_CHUNK) {
        write_chunk(load, count);
        return;
    }
    struct qwp_error err;
    const bool in_units = load->options.unit > 1;
    uint32_t symbol = (uint32_t)(first % SYMBOLS);
    uint32_t table = (uint32_t)(first % load->options.tables);
    if (in_units && qwp_unit_begin(load->producer, &err) != QWP_OK) {
        die("unit", &err);
    }
    for (uint64_t n = first; n < first + count; n++) {
        if (load->options.way == WAY_BUILDER) {
            builder_row(load, n, symbol, table);
        } else {
            hot_row(load, n, symbol, table);
        }
        symbol = symbol + 1 == SYMBOLS ? 0 : symbol + 1;
        table = table + 1 == load->options.tables ? 0 : table + 1;
    }
    if (in_units && qwp_unit_publish(load->producer, &err) != QWP_OK) {
        die("unit", &err);
    }
}

static void wait_acked(struct load *load)
{
    struct qwp_error err;
    if (qwp_wait_acked(load->producer, qwp_position_published(load->producer),
                       (int64_t)WAIT_S * QWP_NS_PER_S, &err) != QWP_OK) {
        die("wait", &err);
    }
}

static void sleep_until(int64_t ns)
{
    const struct timespec at = {.tv_sec = ns / QWP_NS_PER_S, .tv_nsec = ns % QWP_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) != 0) {
    }
}

static void run(struct load *load, int64_t start_ns)
{
    const struct options *o = &load->options;
    for (uint64_t n = 0; n < o->rows; n += o->unit) {
        const uint64_t count = o->rows - n < o->unit ? o->rows - n : o->unit;
        if (o->rate > 0) {
            sleep_until(start_ns + (int64_t)(n * (uint64_t)QWP_NS_PER_S / o->rate));
        }
        const int64_t before_ns = qwp_clock_monotonic_ns();
        publish(load, n, count);
        if (o->wait_acked) {
            wait_acked(load);
            qwp_histogram_add(&load->acked, qwp_clock_monotonic_ns() - before_ns);
        }
    }
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static void parse(struct options *o, int argc, char **argv)
{
    static const struct option long_options[] = {
        {"rings", required_argument, NULL, 'd'},      {"name", required_argument, NULL, 'n'},
        {"rows", required_argument, NULL, 'r'},       {"rate", required_argument, NULL, 'R'},
        {"unit", required_argument, NULL, 'u'},       {"way", required_argument, NULL, 'w'},
        {"tables", required_argument, NULL, 't'},     {"wait-acked", no_argument, NULL, 'a'},
        {"ring-bytes", required_argument, NULL, 'b'}, {NULL, 0, NULL, 0}};
    *o = (struct options){.name = "load", .rows = 1000000, .unit = 1, .tables = 1};
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        switch (id) {
        case 'd':
            o->rings = optarg;
            break;
        case 'n':
            o->name = optarg;
            break;
        case 'r':
            o->rows = strtoull(optarg, NULL, 10);
            break;
        case 'R':
            o->rate = strtoull(optarg, NULL, 10);
            break;
        case 'u':
            o->unit = strtoull(optarg, NULL, 10);
            break;
        case 't':
            o->tables = strtoull(optarg, NULL, 10);
            break;
        case 'b':
            o->ring_bytes = strtoull(optarg, NULL, 10);
            break;
        case 'w':
            o->way = strcmp(optarg, "builder") == 0 ? WAY_BUILDER
                     : strcmp(optarg, "chunk") == 0 ? WAY_CHUNK
                                                    : WAY_HOT;
            break;
        case 'a':
            o->wait_acked = true;
            break;
        default:
            exit(2);
        }
    }
    if (o->rings == NULL || o->unit == 0 || o->tables == 0 || o->tables > TABLES_MAX) {
        fprintf(stderr,
                "load_producer: --rings DIR is missing, or --unit or --tables is out of range\n");
        exit(2);
    }
}

int main(int argc, char **argv)
{
    static struct load load;
    parse(&load.options, argc, argv);
    prctl(PR_SET_TIMERSLACK, 1);
    open_load(&load);
    if (load.options.way == WAY_CHUNK) {
        fill_arrays(&load);
    }
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF) {
        return 1;
    }
    const double cpu_before_s = cpu_s();
    const int64_t start_ns = qwp_clock_monotonic_ns();
    run(&load, start_ns);
    const int64_t published_ns = qwp_clock_monotonic_ns();
    const double cpu_published_s = cpu_s() - cpu_before_s;
    wait_acked(&load);
    const int64_t acked_ns = qwp_clock_monotonic_ns();
    struct qwp_counters counters;
    qwp_producer_count(load.producer, &counters);
    printf("{\"rows\":%llu,\"start_ns\":%lld,\"published_ns\":%lld,\"acked_ns\":%lld,"
           "\"cpu_s\":%.6f,\"cpu_published_s\":%.6f,\"full_waits\":%llu,\"ack_ns\":{\"p50\":%lld,"
           "\"p99\":%lld,\"p999\":%lld}}\n",
           (unsigned long long)load.options.rows, (long long)start_ns, (long long)published_ns,
           (long long)acked_ns, cpu_s() - cpu_before_s, cpu_published_s,
           (unsigned long long)counters.full_waits,
           (long long)qwp_histogram_quantile(&load.acked, 0.5),
           (long long)qwp_histogram_quantile(&load.acked, 0.99),
           (long long)qwp_histogram_quantile(&load.acked, 0.999));
    qwp_producer_close(load.producer);
    return 0;
}

/* A producer for the end-to-end benchmarks: rows through the public library, as fast as they go or
 * at a rate.
 *
 *   load_producer --rings DIR --name NAME [--rows N] [--rate N] [--unit N] [--row trade|tsbs|text]
 *                 [--way hot|builder|chunk] [--tables N] [--symbols N] [--ring-bytes N]
 *                 [--definition-bytes N] [--burst N [--step-ns X]] [--wait-acked | --acks]
 *
 * --row: a trade (6 columns), TSBS cpu-only (10 symbols and 10 small longs), or a symbol, 40 bytes
 * of text and a long. Column `id` holds the monotonic clock of the moment before the row was
 * published when there is a --rate, else a number. --unit N: so many rows are
 * published together, as a unit or, --way chunk (trades only), out of arrays that were filled
 * beforehand. --tables N: rows (not chunks) go to that many tables in turn; --symbols N: the first
 * column takes so many symbols in turn. --rate N: rows a second, evenly, by sleeping to absolute
 * times. --acks: with a --rate, prints how long each unit took to be acknowledged, which its
 * producer waits for between units. --wait-acked: the same, but no unit is published before the
 * last is acknowledged. --burst N: so many rows without a pause, then all are acknowledged before
 * the next burst; burst_ns is the median of what a row took its producer in the bursts that count
 * (bench_steps.h: the core was at its fastest; --step-ns: the fastest known), bursts their number.
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
#include "perf/bench_steps.h"

enum {
    TABLES_MAX = 10000,
    SYMBOLS_MAX = 2000000,
    TRADE_COLUMNS = 6,
    TSBS_SYMBOLS = 10,
    TSBS_COLUMNS = 20,
    COLUMNS_MAX = TSBS_COLUMNS,
    TEXT_BYTES = 40,
    FLIGHT_MAX = 65536, /* units that wait for their acknowledgement, --acks; a power of two */
    WAIT_S = 300,
};

enum way { WAY_HOT, WAY_BUILDER, WAY_CHUNK };
enum kind { TRADE, TSBS, TEXT };
#define T0 INT64_C(1700000000000000000)

struct options {
    const char *rings;
    const char *name;
    uint64_t rows, rate, unit, tables, symbols, ring_bytes, definition_bytes, burst;
    double step_ns;
    enum way way;
    enum kind kind;
    bool wait_acked, acks;
};

/* A unit on its way. */
struct sent {
    uint64_t position;
    int64_t before_ns;
};

struct load {
    struct options options;
    struct qwp_producer *producer;
    struct qwp_table *tables[TABLES_MAX];
    const struct qwp_layout *layouts[TABLES_MAX];
    uint32_t *handles;
    uint32_t off[COLUMNS_MAX];
    uint32_t at_off, var_off;
    char text[TEXT_BYTES];
    bool stamped;
    struct qwp_histogram acked;
    struct sent flight[FLIGHT_MAX];
    uint64_t flight_first, flight_end; /* only grow */
    struct bench_bursts bursts;
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

static size_t columns_of(enum kind kind, struct qwp_column *columns)
{
    static const struct qwp_column trade[TRADE_COLUMNS] = {
        {"symbol", QWP_SYMBOL, 0}, {"side", QWP_SYMBOL, 0}, {"price", QWP_DOUBLE, 0},
        {"amount", QWP_DOUBLE, 0}, {"id", QWP_LONG, 0},     {"maker", QWP_BOOLEAN, 0}};
    static const struct qwp_column text[] = {
        {"symbol", QWP_SYMBOL, 0}, {"line", QWP_VARCHAR, 0}, {"id", QWP_LONG, 0}};
    static char names[TSBS_COLUMNS][8];
    if (kind == TRADE) {
        memcpy(columns, trade, sizeof trade);
        return TRADE_COLUMNS;
    }
    if (kind == TEXT) {
        memcpy(columns, text, sizeof text);
        return sizeof text / sizeof text[0];
    }
    for (uint32_t i = 0; i < TSBS_COLUMNS; i++) {
        snprintf(names[i], sizeof names[i], "c%u", i);
        columns[i] = (struct qwp_column){i == TSBS_SYMBOLS ? "id" : names[i],
                                         i < TSBS_SYMBOLS ? QWP_SYMBOL : QWP_LONG, 0};
    }
    return TSBS_COLUMNS;
}

static void define_tables(struct load *load)
{
    struct qwp_column columns[COLUMNS_MAX];
    uint32_t all[COLUMNS_MAX];
    struct qwp_error err;
    const size_t count = columns_of(load->options.kind, columns);
    for (uint32_t i = 0; i < count; i++) {
        all[i] = i;
    }
    for (uint64_t t = 0; t < load->options.tables; t++) {
        char name[32];
        snprintf(name, sizeof name, "trades_%llu", (unsigned long long)t);
        if (qwp_table_define(load->producer, name, columns, count, &load->tables[t], &err) !=
                QWP_OK ||
            qwp_layout_define(load->tables[t], all, count, QWP_AT_NS, &load->layouts[t], &err) !=
                QWP_OK) {
            die("define", &err);
        }
    }
    for (uint32_t i = 0; i < count; i++) {
        load->off[i] = qwp_layout_offset(load->layouts[0], i); /* the same in all */
    }
    load->at_off = qwp_layout_at_offset(load->layouts[0]);
    load->var_off = qwp_layout_var_offset(load->layouts[0]);
}

static void open_load(struct load *load)
{
    const struct options *o = &load->options;
    const struct qwp_producer_options options = {.dir = o->rings,
                                                 .name = o->name,
                                                 .ring_bytes = o->ring_bytes,
                                                 .definition_bytes_max = o->definition_bytes,
                                                 .full_wait_ns_max =
                                                     (int64_t)WAIT_S * QWP_NS_PER_S};
    struct qwp_error err;
    if (qwp_producer_open(&load->producer, &options, &err) != QWP_OK) {
        die("open", &err);
    }
    define_tables(load);
    load->handles = calloc(o->symbols, sizeof *load->handles);
    if (load->handles == NULL) {
        die("no memory for symbols", NULL);
    }
    for (uint32_t i = 0; i < o->symbols; i++) {
        char text[16];
        const int len = snprintf(text, sizeof text, "sym-%u", i);
        if (qwp_symbol_intern(load->producer, text, (size_t)len, &load->handles[i], &err) !=
            QWP_OK) {
            die("intern", &err);
        }
    }
    memset(load->text, 'q', sizeof load->text);
    load->stamped = o->rate > 0;
}

static void *array(const struct load *load, size_t width)
{
    void *values = calloc(load->options.unit, width);
    if (values == NULL) {
        die("no memory for a column", NULL);
    }
    return values;
}

/* Of two decimals: whole numbers would go over the wire as FLOAT. */
static inline double price_of(uint64_t n)
{
    return 0.01 * (double)n;
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
        load->symbols[i] = (uint32_t)(i % load->options.symbols);
        load->sides[i] = (uint32_t)(i & 1);
        load->prices[i] = price_of(i);
        load->ids[i] = (int64_t)i;
        load->times[i] = T0 + (int64_t)i;
        load->makers[i / 8] |= (uint8_t)((i & 1) << i % 8);
    }
}

static void write_chunk(struct load *load, uint64_t count)
{
    const size_t symbols = load->options.symbols;
    const struct qwp_chunk_column columns[TRADE_COLUMNS] = {
        {.values = load->symbols, .handles = load->handles, .handle_count = symbols},
        {.values = load->sides, .handles = load->handles, .handle_count = symbols},
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

static inline int64_t id_of(const struct load *load, uint64_t n)
{
    return load->stamped ? qwp_clock_monotonic_ns() : (int64_t)n;
}

static inline int64_t small_value(uint64_t n, uint32_t column)
{
    return (int64_t)((n * 37 + column) & 63);
}

static inline __attribute__((always_inline)) void
hot_row(struct load *load, enum kind kind, uint64_t n, uint32_t symbol, uint32_t table)
{
    void *row;
    if (qwp_row_reserve(load->producer, load->layouts[table], kind == TEXT ? TEXT_BYTES : 0,
                        &row) != QWP_OK) {
        die("reserve", NULL);
    }
    unsigned char *at = row;
    uint32_t id = 4;
    qwp_store_u32(at + load->off[0], load->handles[symbol]);
    if (kind == TRADE) {
        const double price = price_of(n);
        qwp_store_u32(at + load->off[1], load->handles[n & 1]);
        memcpy(at + load->off[2], &price, sizeof price);
        memcpy(at + load->off[3], &price, sizeof price);
        at[load->off[5]] = n & 1;
    } else if (kind == TSBS) {
        id = TSBS_SYMBOLS;
        for (uint32_t c = 1; c < TSBS_SYMBOLS; c++) {
            qwp_store_u32(at + load->off[c], load->handles[c]);
        }
        for (uint32_t c = TSBS_SYMBOLS + 1; c < TSBS_COLUMNS; c++) {
            qwp_store_i64(at + load->off[c], small_value(n, c));
        }
    } else {
        id = 2;
        qwp_store_u32(at + load->off[1], TEXT_BYTES);
        memcpy(at + load->var_off, load->text, TEXT_BYTES);
    }
    qwp_store_i64(at + load->at_off, T0 + (int64_t)n);
    qwp_store_i64(at + load->off[id],
                  kind == TSBS && !load->stamped ? small_value(n, id) : id_of(load, n));
    if (qwp_row_publish(load->producer) != QWP_OK) {
        die("publish", NULL);
    }
}

static inline __attribute__((always_inline)) void
builder_row(struct load *load, enum kind kind, uint64_t n, uint32_t symbol, uint32_t table)
{
    struct qwp_error err;
    struct qwp_row *row = qwp_row_begin(load->tables[table]);
    qwp_row_symbol_handle(row, 0, load->handles[symbol]);
    if (kind == TRADE) {
        qwp_row_symbol_handle(row, 1, load->handles[n & 1]);
        qwp_row_double(row, 2, price_of(n));
        qwp_row_double(row, 3, price_of(n));
        qwp_row_boolean(row, 5, (n & 1) != 0);
        qwp_row_long(row, 4, id_of(load, n));
    } else if (kind == TSBS) {
        for (uint32_t c = 1; c < TSBS_SYMBOLS; c++) {
            qwp_row_symbol_handle(row, c, load->handles[c]);
        }
        for (uint32_t c = TSBS_SYMBOLS + 1; c < TSBS_COLUMNS; c++) {
            qwp_row_long(row, c, small_value(n, c));
        }
        qwp_row_long(row, TSBS_SYMBOLS,
                     load->stamped ? id_of(load, n) : small_value(n, TSBS_SYMBOLS));
    } else {
        qwp_row_varchar(row, 1, load->text, TEXT_BYTES);
        qwp_row_long(row, 2, id_of(load, n));
    }
    if (qwp_row_at_ns(row, T0 + (int64_t)n, &err) != QWP_OK) {
        die("row", &err);
    }
}

/* Inlined per kind, so that the loop is what a user would have written. */
static inline __attribute__((always_inline)) void rows(struct load *load, enum kind kind,
                                                       bool builder, uint64_t first, uint64_t count)
{
    const struct options *o = &load->options;
    uint32_t symbol = (uint32_t)(first % o->symbols);
    uint32_t table = (uint32_t)(first % o->tables);
    for (uint64_t n = first; n < first + count; n++) {
        if (builder) {
            builder_row(load, kind, n, symbol, table);
        } else {
            hot_row(load, kind, n, symbol, table);
        }
        symbol = symbol + 1 == o->symbols ? 0 : symbol + 1;
        table = table + 1 == o->tables ? 0 : table + 1;
    }
}

static void write_rows(struct load *load, uint64_t first, uint64_t count)
{
    const bool builder = load->options.way == WAY_BUILDER;
    switch (load->options.kind) {
    case TRADE:
        if (builder) {
            rows(load, TRADE, true, first, count);
        } else {
            rows(load, TRADE, false, first, count);
        }
        break;
    case TSBS:
        rows(load, TSBS, builder, first, count);
        break;
    case TEXT:
        rows(load, TEXT, builder, first, count);
        break;
    }
}

/* Rows first .. first + count, published together. */
static void publish_unit(struct load *load, uint64_t first, uint64_t count)
{
    struct qwp_error err;
    if (qwp_unit_begin(load->producer, &err) != QWP_OK) {
        die("unit", &err);
    }
    write_rows(load, first, count);
    if (qwp_unit_publish(load->producer, &err) != QWP_OK) {
        die("unit", &err);
    }
}

static void publish(struct load *load, uint64_t first, uint64_t count)
{
    if (load->options.way == WAY_CHUNK) {
        write_chunk(load, count);
    } else if (load->options.unit > 1) {
        publish_unit(load, first, count);
    } else {
        write_rows(load, first, count);
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

/* Notes every acknowledgement that comes until then. */
static void take_acks(struct load *load, int64_t until_ns)
{
    struct qwp_error err;
    while (load->flight_first != load->flight_end) {
        const struct sent *oldest = &load->flight[load->flight_first % FLIGHT_MAX];
        const uint64_t acked = qwp_position_acked(load->producer);
        const int64_t now_ns = qwp_clock_monotonic_ns();
        if (acked >= oldest->position) {
            qwp_histogram_add(&load->acked, now_ns - oldest->before_ns);
            load->flight_first++;
        } else if (now_ns >= until_ns) {
            return;
        } else {
            const enum qwp_result result =
                qwp_wait_acked(load->producer, oldest->position, until_ns - now_ns, &err);
            if (result != QWP_OK && result != QWP_AGAIN) {
                die("wait", &err);
            }
        }
    }
}

static void note_sent(struct load *load, int64_t before_ns)
{
    if (load->flight_end - load->flight_first == FLIGHT_MAX) {
        die("more units on their way than are kept; a lower --rate", NULL);
    }
    load->flight[load->flight_end++ % FLIGHT_MAX] =
        (struct sent){qwp_position_published(load->producer), before_ns};
}

static void run_paced(struct load *load, int64_t start_ns)
{
    const struct options *o = &load->options;
    for (uint64_t n = 0; n < o->rows; n += o->unit) {
        const uint64_t count = o->rows - n < o->unit ? o->rows - n : o->unit;
        if (o->rate > 0) {
            const int64_t due_ns = start_ns + (int64_t)(n * (uint64_t)QWP_NS_PER_S / o->rate);
            take_acks(load, due_ns);
            sleep_until(due_ns);
        }
        const int64_t before_ns = qwp_clock_monotonic_ns();
        publish(load, n, count);
        if (o->wait_acked) {
            wait_acked(load);
            qwp_histogram_add(&load->acked, qwp_clock_monotonic_ns() - before_ns);
        } else if (o->acks) {
            note_sent(load, before_ns);
        }
    }
}

/* Rows first .. end, as fast as they go. */
static void run_burst(struct load *load, uint64_t first, uint64_t end)
{
    const struct options *o = &load->options;
    if (o->unit == 1 && o->way != WAY_CHUNK) {
        write_rows(load, first, end - first);
        return;
    }
    for (uint64_t n = first; n < end; n += o->unit) {
        publish(load, n, end - n < o->unit ? end - n : o->unit);
    }
}

static void run_bursts(struct load *load)
{
    const struct options *o = &load->options;
    for (uint64_t n = 0; n < o->rows; n += o->burst) {
        const uint64_t end = o->rows - n < o->burst ? o->rows : n + o->burst;
        bench_burst_begin(&load->bursts);
        run_burst(load, n, end);
        bench_burst_end(&load->bursts, end - n);
        wait_acked(load);
    }
}

static void run(struct load *load, int64_t start_ns)
{
    const struct options *o = &load->options;
    if (o->rate > 0 || o->wait_acked) {
        run_paced(load, start_ns);
    } else if (o->burst > 0) {
        run_bursts(load);
    } else {
        run_burst(load, 0, o->rows);
    }
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int name_in(const char *name, const char *const *names, int count)
{
    for (int i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return i;
        }
    }
    fprintf(stderr, "load_producer: %s: no such --way or --row\n", name);
    exit(2);
}

static void check(const struct options *o)
{
    if (o->rings == NULL || o->unit == 0 || o->tables == 0 || o->tables > TABLES_MAX ||
        o->symbols < TSBS_SYMBOLS || o->symbols > SYMBOLS_MAX ||
        (o->way == WAY_CHUNK && o->kind != TRADE) || (o->acks && o->rate == 0) ||
        (o->burst > 0 && o->rows / o->burst >= BENCH_BURSTS_MAX)) {
        fprintf(stderr,
                "load_producer: --rings DIR is missing, or --unit, --tables (to %d) or "
                "--symbols (%d to %d) is out of range, chunks are not of trades, "
                "--acks is without a --rate, or more than %d bursts\n",
                TABLES_MAX, TSBS_SYMBOLS, SYMBOLS_MAX, BENCH_BURSTS_MAX);
        exit(2);
    }
}

static void parse(struct options *o, int argc, char **argv)
{
    static const char *const ways[] = {"hot", "builder", "chunk"};
    static const char *const kinds[] = {"trade", "tsbs", "text"};
    static const struct option long_options[] = {{"rings", required_argument, NULL, 'd'},
                                                 {"name", required_argument, NULL, 'n'},
                                                 {"rows", required_argument, NULL, 'r'},
                                                 {"rate", required_argument, NULL, 'R'},
                                                 {"unit", required_argument, NULL, 'u'},
                                                 {"way", required_argument, NULL, 'w'},
                                                 {"tables", required_argument, NULL, 't'},
                                                 {"symbols", required_argument, NULL, 's'},
                                                 {"ring-bytes", required_argument, NULL, 'b'},
                                                 {"definition-bytes", required_argument, NULL, 'D'},
                                                 {"row", required_argument, NULL, 'k'},
                                                 {"burst", required_argument, NULL, 'B'},
                                                 {"step-ns", required_argument, NULL, 'S'},
                                                 {"wait-acked", no_argument, NULL, 'a'},
                                                 {"acks", no_argument, NULL, 'A'},
                                                 {NULL, 0, NULL, 0}};
    *o = (struct options){.name = "load", .rows = 1000000, .unit = 1, .tables = 1, .symbols = 100};
    for (int id; (id = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        uint64_t *number = NULL;
        switch (id) {
        case 'd':
            o->rings = optarg;
            break;
        case 'n':
            o->name = optarg;
            break;
        case 'r':
            number = &o->rows;
            break;
        case 'R':
            number = &o->rate;
            break;
        case 'u':
            number = &o->unit;
            break;
        case 't':
            number = &o->tables;
            break;
        case 's':
            number = &o->symbols;
            break;
        case 'b':
            number = &o->ring_bytes;
            break;
        case 'D':
            number = &o->definition_bytes;
            break;
        case 'B':
            number = &o->burst;
            break;
        case 'S':
            o->step_ns = strtod(optarg, NULL);
            break;
        case 'w':
            o->way = (enum way)name_in(optarg, ways, 3);
            break;
        case 'k':
            o->kind = (enum kind)name_in(optarg, kinds, 3);
            break;
        case 'a':
            o->wait_acked = true;
            break;
        case 'A':
            o->acks = true;
            break;
        default:
            exit(2);
        }
        if (number != NULL) {
            *number = strtoull(optarg, NULL, 10);
        }
    }
    check(o);
}

static void print(struct load *load, int64_t start_ns, int64_t published_ns, int64_t acked_ns,
                  double cpu_all_s)
{
    const struct qwp_histogram *acked = &load->acked;
    struct qwp_counters counters;
    qwp_producer_count(load->producer, &counters);
    printf("{\"rows\":%llu,\"start_ns\":%lld,\"published_ns\":%lld,\"acked_ns\":%lld,"
           "\"cpu_s\":%.6f,\"full_waits\":%llu,",
           (unsigned long long)load->options.rows, (long long)start_ns, (long long)published_ns,
           (long long)acked_ns, cpu_all_s, (unsigned long long)counters.full_waits);
    if (load->bursts.count > 0) {
        uint32_t counted;
        const double row_ns = bench_bursts_median(&load->bursts, &counted);
        printf("\"burst_ns\":%.3f,\"bursts\":%u,", row_ns, counted);
    }
    printf("\"ack_ns\":{\"count\":%llu,\"p50\":%lld,\"p90\":%lld,\"p99\":%lld,\"p999\":%lld,"
           "\"max\":%lld}}\n",
           (unsigned long long)acked->count, (long long)qwp_histogram_quantile(acked, 0.5),
           (long long)qwp_histogram_quantile(acked, 0.9),
           (long long)qwp_histogram_quantile(acked, 0.99),
           (long long)qwp_histogram_quantile(acked, 0.999), (long long)acked->max_ns);
}

int main(int argc, char **argv)
{
    static struct load load;
    parse(&load.options, argc, argv);
    load.bursts.fastest_step_ns = load.options.step_ns;
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
    if (load.options.acks) {
        take_acks(&load, published_ns + (int64_t)WAIT_S * QWP_NS_PER_S);
    }
    wait_acked(&load);
    print(&load, start_ns, published_ns, qwp_clock_monotonic_ns(), cpu_s() - cpu_before_s);
    qwp_producer_close(load.producer);
    return 0;
}

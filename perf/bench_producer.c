/* Question: what does a row cost its producer, from the first call to the published tail?
 *
 * Rows of three kinds, by the builder and by the hot path, each published by itself or in units of
 * 10 and 1,000, over 1, 10 and 100 tables in turn. The consumer moves the head and does nothing
 * else: in this thread now and then ("none": what the producer's own instructions cost), in a
 * second process that looks every 2 us as the sidecar's intake does ("paced"), or in one that looks
 * without pause ("spin": the worst neighbour).
 *
 * The baseline, run in turn with each case, copies a finished record of the same size with memcpy
 * into a plain buffer of the ring's size: what any producer must pay. The library is linked shared,
 * as most users have it.
 *
 * Guess made beforehand, for "none": hot path 6 ns for a trade; builder 15 ns for a trade, 45 ns
 * for a TSBS row; memcpy 3 ns. Paced: 10 ns more when each row is published.
 *
 *   bench_producer [--smoke] [--consumer none|paced|spin] [--only TEXT] [--rows N] [--repeats N]
 *                  [--json FILE]
 *   bench_producer --copy BYTES [--rows N] [--step-ns X]
 *
 * The second form copies records into memory of a ring's kind and size, in bursts of N as those of
 * load_producer, and prints what one took at full speed (bench_steps.h) as JSON: what any burst
 * must pay. */
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/c/qwp.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_ring.h"
#include "perf/bench_json.h"
#include "perf/bench_steps.h"

enum {
    RING_BYTES = 1024 * 1024,
    TABLES_MAX = 100,
    COLUMNS_MAX = 20,
    TEXT_BYTES = 40,
    SYMBOLS = 100, /* power of two is not needed: walked in turn */
    REPEATS_MAX = 101,
    PACE_NS = 2000,
    RECORD_BYTES_MAX = 512,
    BURST_ROOM_BYTES = 320, /* of the ring, a row, as bench_e2e.py has it */
    COPY_BURSTS = 200,
};
#define T0 INT64_C(1700000000000000000)

enum kind { TRADE, TSBS, TEXT };
enum way { BUILDER, BUILDER_TEXT, HOT };
enum consumer { CONSUMER_NONE, CONSUMER_PACED, CONSUMER_SPIN };

static const char *const kind_names[] = {"trade-6", "tsbs-21", "text-40"};
static const char *const way_names[] = {"builder", "builder, symbols by text", "hot path"};
static const char *const consumer_names[] = {"none", "paced", "spin"};

struct bench {
    char dir[64];
    struct qwp_producer *producer;
    struct qwp_table *tables[3][TABLES_MAX];
    const struct qwp_layout *layouts[3][TABLES_MAX];
    uint32_t record_bytes[3];
    uint32_t handles[SYMBOLS];
    char symbols[SYMBOLS][16];
    uint32_t symbol_lens[SYMBOLS];
    char text[TEXT_BYTES];
    enum consumer consumer;
    struct qwp_ring_rx rx; /* consumer none */
    pid_t child;           /* otherwise */
    unsigned char *plain;
    uint64_t plain_pos;
    unsigned char record[RECORD_BYTES_MAX];
};

struct bench_case {
    enum kind kind;
    enum way way;
    uint32_t unit_rows;
    uint32_t tables;
};

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st;
    (void)type;
    (void)walk;
    return remove(path);
}

static char dir_to_remove[64];

static void remove_dir(void)
{
    if (dir_to_remove[0] != '\0') {
        nftw(dir_to_remove, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        dir_to_remove[0] = '\0';
    }
}

static void die(const char *what, const struct qwp_error *err)
{
    fprintf(stderr, "bench_producer: %s: %s\n", what, err != NULL ? err->text : strerror(errno));
    remove_dir();
    _exit(1);
}

/* ---- the consumer ---- */

static void keep_name(void *owner, const char *file_name)
{
    snprintf(owner, 256, "%s", file_name);
}

static void ring_find(struct qwp_ring_rx *rx, const char *dir)
{
    int dir_fd;
    struct qwp_error err;
    char file_name[256] = "";
    if (qwp_rendezvous_open(dir, NULL, &dir_fd, &err) != QWP_OK) {
        die("rendezvous", &err);
    }
    while (file_name[0] == '\0') {
        if (qwp_rendezvous_scan(dir_fd, keep_name, file_name, &err) != QWP_OK) {
            die("scan", &err);
        }
    }
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    if (qwp_ring_open(rx, dir_fd, file_name, &limits, &err) != QWP_OK) {
        die("ring", &err);
    }
    close(dir_fd);
}

static void take_all(struct qwp_ring_rx *rx)
{
    if (qwp_ring_poll(rx) == QWP_OK) {
        qwp_ring_release(rx, rx->tail_seen_pos, 1);
    }
}

/* A process of its own that ends with its parent. */
static void consume(const char *dir, enum consumer consumer)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct qwp_ring_rx rx;
    ring_find(&rx, dir);
    for (;;) {
        take_all(&rx);
        const int64_t next_ns = qwp_clock_monotonic_ns() + PACE_NS;
        while (consumer == CONSUMER_PACED && qwp_clock_monotonic_ns() < next_ns) {
        }
    }
}

/* ---- setup ---- */

static size_t columns_of(enum kind kind, struct qwp_column *columns)
{
    static char names[COLUMNS_MAX][8];
    static const struct qwp_column trade[] = {{"symbol", QWP_SYMBOL, 0}, {"side", QWP_SYMBOL, 0},
                                              {"price", QWP_DOUBLE, 0},  {"amount", QWP_DOUBLE, 0},
                                              {"id", QWP_LONG, 0},       {"maker", QWP_BOOLEAN, 0}};
    static const struct qwp_column text[] = {
        {"symbol", QWP_SYMBOL, 0}, {"line", QWP_VARCHAR, 0}, {"n", QWP_LONG, 0}};
    if (kind == TRADE) {
        memcpy(columns, trade, sizeof trade);
        return sizeof trade / sizeof trade[0];
    }
    if (kind == TEXT) {
        memcpy(columns, text, sizeof text);
        return sizeof text / sizeof text[0];
    }
    for (uint32_t i = 0; i < COLUMNS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "c%u", i);
        columns[i] = (struct qwp_column){names[i], i < 10 ? QWP_SYMBOL : QWP_LONG, 0};
    }
    return COLUMNS_MAX;
}

static void define_tables(struct bench *b, enum kind kind)
{
    struct qwp_column columns[COLUMNS_MAX];
    const size_t count = columns_of(kind, columns);
    uint32_t all[COLUMNS_MAX];
    for (uint32_t i = 0; i < COLUMNS_MAX; i++) {
        all[i] = i;
    }
    struct qwp_error err;
    for (uint32_t t = 0; t < TABLES_MAX; t++) {
        char name[32];
        snprintf(name, sizeof name, "%s-%u", kind_names[kind], t);
        if (qwp_table_define(b->producer, name, columns, count, &b->tables[kind][t], &err) !=
                QWP_OK ||
            qwp_layout_define(b->tables[kind][t], all, count, QWP_AT_NS, &b->layouts[kind][t],
                              &err) != QWP_OK) {
            die("define", &err);
        }
    }
    b->record_bytes[kind] =
        (qwp_layout_var_offset(b->layouts[kind][0]) + (kind == TEXT ? TEXT_BYTES : 0) + 7) & ~7u;
}

static void setup(struct bench *b, enum consumer consumer)
{
    *b = (struct bench){.consumer = consumer};
    strcpy(b->dir, "/dev/shm/qwp-bench-XXXXXX");
    if (mkdtemp(b->dir) == NULL) {
        die("mkdtemp", NULL);
    }
    strcpy(dir_to_remove, b->dir);
    const struct qwp_producer_options options = {
        .dir = b->dir, .ring_bytes = RING_BYTES, .definition_bytes_max = 1 << 20};
    struct qwp_error err;
    if (consumer != CONSUMER_NONE) {
        b->child = fork();
        if (b->child == 0) {
            consume(b->dir, consumer);
        }
    }
    if (qwp_producer_open(&b->producer, &options, &err) != QWP_OK) {
        die("open", &err);
    }
    if (consumer == CONSUMER_NONE) {
        ring_find(&b->rx, b->dir);
    }
    for (enum kind kind = TRADE; kind <= TEXT; kind++) {
        define_tables(b, kind);
    }
    for (uint32_t i = 0; i < SYMBOLS; i++) {
        b->symbol_lens[i] =
            (uint32_t)snprintf(b->symbols[i], sizeof b->symbols[i], "host-%u-x", i * 37);
        if (qwp_symbol_intern(b->producer, b->symbols[i], b->symbol_lens[i], &b->handles[i],
                              &err) != QWP_OK) {
            die("intern", &err);
        }
    }
    memset(b->text, 'q', sizeof b->text);
    b->plain = malloc(RING_BYTES + RECORD_BYTES_MAX);
    if (b->plain == NULL) {
        die("malloc", NULL);
    }
    memset(b->plain, 1, RING_BYTES + RECORD_BYTES_MAX);
}

static void teardown(struct bench *b)
{
    qwp_producer_close(b->producer);
    qwp_ring_close_rx(&b->rx);
    if (b->child > 0) {
        kill(b->child, SIGKILL);
        waitpid(b->child, NULL, 0);
    }
    free(b->plain);
    remove_dir();
}

/* ---- rows ---- */

static inline void builder_row(struct bench *b, enum kind kind, bool by_text, uint32_t table,
                               uint64_t n, uint32_t symbol)
{
    struct qwp_row *row = qwp_row_begin(b->tables[kind][table]);
    const uint32_t handle = b->handles[symbol];
    switch (kind) {
    case TRADE:
        if (by_text) {
            qwp_row_symbol(row, 0, b->symbols[symbol], b->symbol_lens[symbol]);
            qwp_row_symbol(row, 1, b->symbols[n & 1], b->symbol_lens[n & 1]);
        } else {
            qwp_row_symbol_handle(row, 0, handle);
            qwp_row_symbol_handle(row, 1, b->handles[n & 1]);
        }
        qwp_row_double(row, 2, (double)n);
        qwp_row_double(row, 3, 0.5 * (double)n);
        qwp_row_long(row, 4, (int64_t)n);
        qwp_row_boolean(row, 5, (n & 1) != 0);
        break;
    case TSBS:
        for (uint32_t c = 0; c < 10; c++) {
            if (by_text) {
                qwp_row_symbol(row, c, b->symbols[symbol], b->symbol_lens[symbol]);
            } else {
                qwp_row_symbol_handle(row, c, handle);
            }
        }
        for (uint32_t c = 10; c < 20; c++) {
            qwp_row_long(row, c, (int64_t)n + c);
        }
        break;
    case TEXT:
        if (by_text) {
            qwp_row_symbol(row, 0, b->symbols[symbol], b->symbol_lens[symbol]);
        } else {
            qwp_row_symbol_handle(row, 0, handle);
        }
        qwp_row_varchar(row, 1, b->text, TEXT_BYTES);
        qwp_row_long(row, 2, (int64_t)n);
        break;
    }
    if (qwp_row_at_ns(row, T0 + (int64_t)n, NULL) != QWP_OK) {
        die("row", NULL);
    }
}

struct places {
    uint32_t off[COLUMNS_MAX];
    uint32_t at;
    uint32_t var;
};

static inline void hot_row(struct bench *b, enum kind kind, const struct places *places,
                           uint32_t table, uint64_t n, uint32_t symbol)
{
    void *row;
    if (qwp_row_reserve(b->producer, b->layouts[kind][table], kind == TEXT ? TEXT_BYTES : 0,
                        &row) != QWP_OK) {
        die("reserve", NULL);
    }
    unsigned char *at = row;
    const uint32_t handle = b->handles[symbol];
    switch (kind) {
    case TRADE:
        qwp_store_u32(at + places->off[0], handle);
        qwp_store_u32(at + places->off[1], b->handles[n & 1]);
        qwp_store_u64(at + places->off[2], n);
        qwp_store_u64(at + places->off[3], n * 3);
        qwp_store_u64(at + places->off[4], n);
        at[places->off[5]] = n & 1;
        break;
    case TSBS:
        for (uint32_t c = 0; c < 10; c++) {
            qwp_store_u32(at + places->off[c], handle);
        }
        for (uint32_t c = 10; c < 20; c++) {
            qwp_store_u64(at + places->off[c], n + c);
        }
        break;
    case TEXT:
        qwp_store_u32(at + places->off[0], handle);
        qwp_store_u32(at + places->off[1], TEXT_BYTES);
        qwp_store_u64(at + places->off[2], n);
        memcpy(at + places->var, b->text, TEXT_BYTES);
        break;
    }
    qwp_store_i64(at + places->at, T0 + (int64_t)n);
    if (qwp_row_publish(b->producer) != QWP_OK) {
        die("publish", NULL);
    }
}

/* Inlined per kind and way, so that the loop is what a user would have written. */
static inline __attribute__((always_inline)) void rows(struct bench *b, const struct bench_case *c,
                                                       uint64_t count, enum kind kind, enum way way)
{
    struct places places = {.at = qwp_layout_at_offset(b->layouts[kind][0]),
                            .var = qwp_layout_var_offset(b->layouts[kind][0])};
    for (uint32_t i = 0; i < COLUMNS_MAX; i++) {
        places.off[i] = qwp_layout_offset(b->layouts[kind][0], i);
    }
    uint32_t table = 0;
    uint32_t symbol = 0;
    uint32_t in_unit = 0;
    /* Without a consumer the head moves every half of the ring, by us. */
    const uint64_t release_rows = RING_BYTES / 2 / b->record_bytes[kind] / 1000 * 1000 + 1000;
    uint64_t until_release = release_rows;
    if (b->consumer == CONSUMER_NONE) {
        take_all(&b->rx);
    }
    for (uint64_t n = 0; n < count; n++) {
        if (c->unit_rows > 1 && in_unit == 0 && qwp_unit_begin(b->producer, NULL) != QWP_OK) {
            die("unit", NULL);
        }
        if (way == HOT) {
            hot_row(b, kind, &places, table, n, symbol);
        } else {
            builder_row(b, kind, way == BUILDER_TEXT, table, n, symbol);
        }
        if (c->unit_rows > 1 && ++in_unit == c->unit_rows) {
            in_unit = 0;
            if (qwp_unit_publish(b->producer, NULL) != QWP_OK) {
                die("unit", NULL);
            }
        }
        table = table + 1 == c->tables ? 0 : table + 1;
        symbol = symbol + 1 == SYMBOLS ? 0 : symbol + 1;
        if (b->consumer == CONSUMER_NONE && --until_release == 0) {
            until_release = release_rows;
            take_all(&b->rx);
        }
    }
}

static void run_rows(struct bench *b, const struct bench_case *c, uint64_t count)
{
    switch ((int)c->kind * 3 + (int)c->way) {
    case TRADE * 3 + BUILDER:
        rows(b, c, count, TRADE, BUILDER);
        break;
    case TRADE * 3 + BUILDER_TEXT:
        rows(b, c, count, TRADE, BUILDER_TEXT);
        break;
    case TRADE * 3 + HOT:
        rows(b, c, count, TRADE, HOT);
        break;
    case TSBS * 3 + BUILDER:
        rows(b, c, count, TSBS, BUILDER);
        break;
    case TSBS * 3 + BUILDER_TEXT:
        rows(b, c, count, TSBS, BUILDER_TEXT);
        break;
    case TSBS * 3 + HOT:
        rows(b, c, count, TSBS, HOT);
        break;
    case TEXT * 3 + BUILDER:
        rows(b, c, count, TEXT, BUILDER);
        break;
    case TEXT * 3 + BUILDER_TEXT:
        rows(b, c, count, TEXT, BUILDER_TEXT);
        break;
    default:
        rows(b, c, count, TEXT, HOT);
        break;
    }
}

static inline __attribute__((always_inline)) void copy_loop(struct bench *b, uint64_t count,
                                                            size_t bytes)
{
    for (uint64_t n = 0; n < count; n++) {
        /* The number behind the copy: before it, the copy would wait for a store so narrow. */
        memcpy(b->plain + b->plain_pos, b->record, bytes);
        qwp_store_u64(b->plain + b->plain_pos, n);
        __asm__ volatile("" ::: "memory");
        b->plain_pos = b->plain_pos + bytes < RING_BYTES ? b->plain_pos + bytes : 0;
    }
}

/* The sizes are constants, so that memcpy is what the compiler makes best. */
static void run_baseline(struct bench *b, const struct bench_case *c, uint64_t count)
{
    switch (b->record_bytes[c->kind]) {
    case 64:
        copy_loop(b, count, 64);
        break;
    case 144:
        copy_loop(b, count, 144);
        break;
    default:
        copy_loop(b, count, b->record_bytes[c->kind]);
        break;
    }
}

/* ---- measuring ---- */

static int compare_doubles(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double time_of(void (*run)(struct bench *, const struct bench_case *, uint64_t),
                      struct bench *b, const struct bench_case *c, uint64_t count)
{
    const int64_t begin_ns = qwp_clock_monotonic_ns();
    run(b, c, count);
    return (double)(qwp_clock_monotonic_ns() - begin_ns) / (double)count;
}

static struct bench_json json;

static void measure(struct bench *b, const struct bench_case *c, uint64_t count, int repeats)
{
    double ours[REPEATS_MAX];
    double plain[REPEATS_MAX];
    run_rows(b, c, count / 10 / c->unit_rows * c->unit_rows + c->unit_rows);
    for (int r = 0; r < repeats; r++) {
        ours[r] = time_of(run_rows, b, c, count);
        plain[r] = time_of(run_baseline, b, c, count);
    }
    char name[100], base[128];
    snprintf(name, sizeof name, "%s, %s, by %u, %u tables", kind_names[c->kind], way_names[c->way],
             c->unit_rows, c->tables);
    snprintf(base, sizeof base, "%s, memcpy", name);
    char part[32];
    snprintf(part, sizeof part, "consumer %s", consumer_names[b->consumer]);
    bench_json_runs(&json, part, name, base, "ns", ours, repeats);
    bench_json_runs(&json, part, base, NULL, "ns", plain, repeats);
    qsort(ours, (size_t)repeats, sizeof ours[0], compare_doubles);
    qsort(plain, (size_t)repeats, sizeof plain[0], compare_doubles);
    struct qwp_counters counters;
    qwp_producer_count(b->producer, &counters);
    const double median = ours[repeats / 2];
    printf("%-8s %-25s %4u rows/unit %3u tables %4u B  %6.1f %6.1f %6.1f ns  memcpy %5.1f  x%4.1f  "
           "full %llu\n",
           kind_names[c->kind], way_names[c->way], c->unit_rows, c->tables,
           b->record_bytes[c->kind], ours[0], median, ours[repeats - 1], plain[repeats / 2],
           median / plain[repeats / 2], (unsigned long long)counters.full_waits);
    fflush(stdout);
}

static void measure_all(enum consumer consumer, const char *only, uint64_t count, int repeats)
{
    static const uint32_t units[] = {1, 10, 1000};
    static const uint32_t tables[] = {1, 10, 100};
    static struct bench b;
    setup(&b, consumer);
    printf("consumer: %s; min, median, max of %d repeats of %llu rows\n", consumer_names[consumer],
           repeats, (unsigned long long)count);
    for (int i = 0; i < 3 * 3 * 3 * 3; i++) {
        const struct bench_case c = {.kind = (enum kind)(i / 27),
                                     .way = (enum way)(i / 9 % 3),
                                     .unit_rows = units[i / 3 % 3],
                                     .tables = tables[i % 3]};
        char name[128];
        snprintf(name, sizeof name, "%s %s u%u t%u", kind_names[c.kind], way_names[c.way],
                 c.unit_rows, c.tables);
        if (only == NULL || strstr(name, only) != NULL) {
            measure(&b, &c, count, repeats);
        }
    }
    struct qwp_counters counters;
    qwp_producer_count(b.producer, &counters);
    printf("checksum of the work: %llu rows, %llu bytes\n\n",
           (unsigned long long)counters.rows_published,
           (unsigned long long)qwp_position_published(b.producer));
    teardown(&b);
}

/* Prefaulted, as a ring is, and walked round as one. */
static void copy_bursts(size_t bytes, uint64_t count, double step_ns)
{
    static struct bench_bursts bursts;
    unsigned char record[RECORD_BYTES_MAX] = {1};
    const size_t room = (size_t)count * BURST_ROOM_BYTES;
    unsigned char *memory =
        mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (bytes < sizeof(uint64_t) || bytes > BURST_ROOM_BYTES || memory == MAP_FAILED) {
        die("copy", NULL);
    }
    bursts.fastest_step_ns = step_ns;
    size_t at = 0;
    while (bursts.count < COPY_BURSTS) {
        bench_burst_begin(&bursts);
        for (uint64_t n = 0; n < count; n++) {
            memcpy(memory + at, record, bytes);
            qwp_store_u64(memory + at, n);
            __asm__ volatile("" ::: "memory");
            at = at + bytes <= room - bytes ? at + bytes : 0;
        }
        bench_burst_end(&bursts, count);
    }
    uint32_t counted;
    const double row_ns = bench_bursts_median(&bursts, &counted);
    printf("{\"ns\":%.3f,\"bursts\":%u}\n", row_ns, counted);
    munmap(memory, room);
}

int main(int argc, char **argv)
{
    bool chosen[3] = {true, true, true};
    const char *only = NULL;
    uint64_t count = 200000;
    int repeats = 9;
    const char *json_path = NULL;
    size_t copy_bytes = 0;
    double step_ns = 0;
    for (int i = 1; i < argc; i++) {
        const bool more = i + 1 < argc;
        if (strcmp(argv[i], "--smoke") == 0) {
            count = 2000;
            repeats = 1;
        } else if (strcmp(argv[i], "--consumer") == 0 && more) {
            i++;
            for (int k = 0; k < 3; k++) {
                chosen[k] = strcmp(argv[i], consumer_names[k]) == 0;
            }
        } else if (strcmp(argv[i], "--only") == 0 && more) {
            only = argv[++i];
        } else if (strcmp(argv[i], "--json") == 0 && more) {
            json_path = argv[++i];
        } else if (strcmp(argv[i], "--copy") == 0 && more) {
            copy_bytes = strtoul(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--step-ns") == 0 && more) {
            step_ns = strtod(argv[++i], NULL);
        } else if (strcmp(argv[i], "--rows") == 0 && more) {
            count = strtoull(argv[++i], NULL, 10) / 1000 * 1000 + 1000;
        } else if (strcmp(argv[i], "--repeats") == 0 && more) {
            repeats = atoi(argv[++i]);
            repeats = repeats < 1 ? 1 : repeats > REPEATS_MAX ? REPEATS_MAX : repeats;
        } else {
            fprintf(stderr, "usage: bench_producer [--smoke] [--consumer none|paced|spin] "
                            "[--only TEXT] [--rows N] [--repeats N] "
                            "[--json FILE] [--copy BYTES] [--step-ns X]\n");
            return 2;
        }
    }
    if (copy_bytes > 0) {
        copy_bursts(copy_bytes, count, step_ns);
        return 0;
    }
    bench_json_open(&json, json_path, "bench_producer");
    struct utsname host;
    uname(&host);
    printf("bench_producer: %s %s, %ld CPUs, rings on /dev/shm, no randomness\n", host.machine,
           host.release, sysconf(_SC_NPROCESSORS_ONLN));
    for (int k = 0; k < 3; k++) {
        if (chosen[k]) {
            measure_all((enum consumer)k, only, count, repeats);
        }
    }
    bench_json_close(&json);
    return 0;
}

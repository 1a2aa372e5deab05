/* Question: what does it cost qwp-feed to read a row, by format and by how well it can be expected?
 *
 * Blocks of 256 KiB, as the feed's reader makes them, parsed into rows that are only counted: the
 * ring's part is bench_producer's. Rows as TSBS cpu-only (10 tags, 10 integers), as the same in CSV
 * and QWPB, with doubles of 2 and of 17 digits, with a series of its own for each row (nothing can
 * be expected), and cutting alone, which is the reading process's part.
 *
 * Guess made beforehand: ILP 250 ns, QWPB 60, CSV 500, series of their own 1,000, cutting 25.
 *
 *   bench_feed [--smoke] [--repeats N] [--json FILE] */
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "clients/c/feed/qwp_feed_csv.h"
#include "clients/c/feed/qwp_feed_ilp.h"
#include "clients/c/feed/qwp_feed_reader.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "perf/bench_json.h"

enum {
    ROWS = 20000,
    HOSTS = 100,
    TAGS = 10,
    FIELDS = 10,
    ROW_BYTES_MAX = 1024,
    REPEATS = 11,
    REPEATS_MAX = 101,
    SEED = 123,
};
#define T0 INT64_C(1451606400000000000)

enum kind { ILP, ILP_PLACES, ILP_DIGITS, ILP_UNIQUE, CSV, QWPB, CUT, KINDS };

static const char *const kind_names[] = {
    "ilp: 10 tags, 10 integers",
    "ilp: 10 tags, 10 doubles x.xx",
    "ilp: 10 tags, 10 doubles in full",
    "ilp: a series for each row",
    "csv: the same columns",
    "qwpb: the same columns",
    "cutting ilp into blocks",
};

struct text {
    char *at;
    size_t len;
};

static uint64_t random_state;

static uint64_t random_next(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static __attribute__((format(printf, 2, 3))) void add(struct text *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    t->len += (size_t)vsnprintf(t->at + t->len, ROW_BYTES_MAX, format, args);
    va_end(args);
}

static void add_ilp(struct text *t, enum kind kind, int row)
{
    const int host = kind == ILP_UNIQUE ? row : row % HOSTS;
    add(t, "cpu,hostname=host_%d", host);
    for (int i = 1; i < TAGS; i++) {
        add(t, ",tag_number_%d=value-%d", i, (host * i) % 17);
    }
    for (int i = 0; i < FIELDS; i++) {
        add(t, "%cusage_field_%d=", i ? ',' : ' ', i);
        const uint64_t r = random_next();
        if (kind == ILP_PLACES) {
            add(t, "%" PRIu64 ".%02" PRIu64, r % 1000, r / 1000 % 100);
        } else if (kind == ILP_DIGITS) {
            add(t, "%.17g", (double)(r >> 11) / 0x1p53 * 100);
        } else {
            add(t, "%" PRIu64 "i", r % 101);
        }
    }
    add(t, " %" PRId64 "\n", T0 + row * INT64_C(1000000000));
}

static void add_csv(struct text *t, int row)
{
    add(t, "host_%d", row % HOSTS);
    for (int i = 1; i < TAGS; i++) {
        add(t, ",value-%d", (row % HOSTS * i) % 17);
    }
    for (int i = 0; i < FIELDS; i++) {
        add(t, ",%" PRIu64, random_next() % 101);
    }
    add(t, ",%" PRId64 "\n", T0 + row * INT64_C(1000000000));
}

static void add_byte(struct text *t, unsigned v)
{
    t->at[t->len++] = (char)v;
}

static void add_qwpb_string(struct text *t, const char *text)
{
    add_byte(t, QWP_FEED_QWPB_STRING);
    add_byte(t, (unsigned)strlen(text));
    add(t, "%s", text);
}

/* Strings: table, keys (1..20), values (21..120, one byte each as ids go to 127). */
static void add_qwpb_definitions(struct text *t)
{
    char name[32];
    add_qwpb_string(t, "cpu");
    for (int i = 0; i < TAGS + FIELDS; i++) {
        snprintf(name, sizeof name, "column_%d", i);
        add_qwpb_string(t, name);
    }
    for (int i = 0; i < HOSTS; i++) {
        snprintf(name, sizeof name, "value_%d", i);
        add_qwpb_string(t, name);
    }
    add_byte(t, QWP_FEED_QWPB_SCHEMA);
    add_byte(t, 0);
    add_byte(t, TAGS);
    for (unsigned i = 0; i < TAGS; i++) {
        add_byte(t, 1 + i);
    }
    add_byte(t, FIELDS);
    for (unsigned i = 0; i < FIELDS; i++) {
        add_byte(t, 1 + TAGS + i);
        add_byte(t, 1);
    }
}

static void add_qwpb(struct text *t, int row)
{
    add_byte(t, QWP_FEED_QWPB_ROW);
    add_byte(t, 0);
    add_byte(t, TAGS + FIELDS * 8 + 8);
    for (int i = 0; i < TAGS; i++) {
        add_byte(t, (unsigned)(1 + TAGS + FIELDS + (row * (i + 1)) % HOSTS));
    }
    for (int i = 0; i < FIELDS; i++) {
        qwp_store_u64(t->at + t->len, random_next() % 101);
        t->len += 8;
    }
    qwp_store_i64(t->at + t->len, T0 + row * INT64_C(1000000000));
    t->len += 8;
}

/* Everything of one case. */
struct bench {
    struct text text;
    struct text definitions;
    struct qwp_feed_catalog catalog;
    struct qwp_feed_symbols symbols;
    struct qwp_feed_csv_layout layout;
    struct qwp_feed_ilp *ilp;
    struct qwp_feed_csv *csv;
    struct qwp_feed_qwpb *qwpb;
    uint64_t rows;
    uint64_t checksum;
};

static void fail(const char *what)
{
    fprintf(stderr, "bench_feed: %s\n", what);
    exit(EXIT_FAILURE);
}

static void bench_open(struct bench *b, enum kind kind, int rows)
{
    *b = (struct bench){0};
    random_state = SEED;
    b->text.at = calloc((size_t)rows + 2, ROW_BYTES_MAX);
    b->definitions.at = calloc(16, ROW_BYTES_MAX);
    if (b->text.at == NULL || b->definitions.at == NULL) {
        fail("no memory");
    }
    for (int i = 0; i < rows; i++) {
        if (kind == CSV) {
            add_csv(&b->text, i);
        } else if (kind == QWPB) {
            add_qwpb(&b->text, i);
        } else {
            add_ilp(&b->text, kind, i);
        }
    }
    const struct qwp_feed_context context = {&b->catalog, &b->symbols, QWP_FEED_AT_AUTO, "cpu"};
    struct qwp_error err;
    if (kind == CSV) {
        const struct qwp_feed_csv_options options = {
            .no_header = true,
            .columns = "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,time",
            .symbols = "a,b,c,d,e,f,g,h,i,j",
            .time = "time"};
        if (qwp_feed_csv_settle(&options, b->text.at, b->text.len, &b->layout, &err) != QWP_OK ||
            qwp_feed_csv_create(&b->csv, &context, &b->layout, &err) != QWP_OK) {
            fail(err.text);
        }
    } else if (kind == QWPB) {
        size_t used;
        b->qwpb = qwp_feed_qwpb_create(&context);
        add_qwpb_definitions(&b->definitions);
        if (b->qwpb == NULL || qwp_feed_qwpb_define(b->qwpb, b->definitions.at, b->definitions.len,
                                                    &used, &err) != QWP_OK) {
            fail(err.text);
        }
    } else {
        b->ilp = qwp_feed_ilp_create(&context, QWP_FEED_NS);
        if (b->ilp == NULL) {
            fail("no memory");
        }
    }
}

static void bench_close(struct bench *b)
{
    qwp_feed_ilp_destroy(b->ilp);
    qwp_feed_csv_destroy(b->csv);
    qwp_feed_qwpb_destroy(b->qwpb);
    qwp_feed_csv_layout_close(&b->layout);
    qwp_feed_symbols_close(&b->symbols);
    qwp_feed_catalog_close(&b->catalog);
    free(b->text.at);
    free(b->definitions.at);
}

static enum qwp_result next(struct bench *b, struct qwp_feed_row *row, struct qwp_feed_bad *bad)
{
    return b->ilp != NULL   ? qwp_feed_ilp_next(b->ilp, row, bad)
           : b->csv != NULL ? qwp_feed_csv_next(b->csv, row, bad)
                            : qwp_feed_qwpb_next(b->qwpb, row, bad);
}

static void run_once(struct bench *b, enum kind kind)
{
    if (kind == CUT) {
        uint64_t lines;
        b->checksum += qwp_feed_cut(QWP_FEED_ILP, ',', b->text.at, b->text.len, &lines);
        b->rows += lines;
        return;
    }
    if (kind == CSV) {
        qwp_feed_csv_begin(b->csv, b->text.at, b->text.len);
    } else if (kind == QWPB) {
        qwp_feed_qwpb_begin(b->qwpb, b->text.at, b->text.len,
                            (struct qwp_feed_qwpb_ids){1 + TAGS + FIELDS + HOSTS, 1});
    } else {
        b->text.at[b->text.len] = '\n';
        qwp_feed_ilp_begin(b->ilp, b->text.at, b->text.len);
    }
    struct qwp_feed_row row;
    struct qwp_feed_bad bad;
    enum qwp_result result;
    while ((result = next(b, &row, &bad)) == QWP_OK) {
        b->rows++;
        b->checksum += (uint64_t)row.at ^ (uint64_t)row.values[TAGS].i64;
    }
    if (result != QWP_AGAIN) {
        fail(bad.err.text);
    }
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct bench_json json;

static void run(enum kind kind, int rows, int repeats)
{
    struct bench b;
    bench_open(&b, kind, rows);
    run_once(&b, kind); /* tables, symbols and memory are there then */
    b.rows = b.checksum = 0;
    double ns[REPEATS_MAX];
    for (int i = 0; i < repeats; i++) {
        const int64_t start_ns = qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
        run_once(&b, kind);
        ns[i] = (double)(qwp_clock_read_ns(CLOCK_THREAD_CPUTIME_ID) - start_ns) / rows;
    }
    if (b.rows != (uint64_t)rows * (uint64_t)repeats) {
        fail("rows are missing");
    }
    bench_json_runs(&json, "reading a row", kind_names[kind], NULL, "ns", ns, repeats);
    qsort(ns, (size_t)repeats, sizeof *ns, compare);
    const double median = ns[repeats / 2];
    printf("%-36s %8.1f %8.1f %8.1f %10.0f %10.0f  %016" PRIx64 "\n", kind_names[kind], ns[0],
           median, ns[repeats - 1], (double)b.text.len / rows / median * 1e3, 1e3 / median * 1e3,
           b.checksum);
    bench_close(&b);
}

int main(int argc, char **argv)
{
    int rows = ROWS;
    int repeats = REPEATS;
    const char *json_path = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--smoke") == 0) {
            rows = 1000;
            repeats = 1;
        } else if (strcmp(argv[i], "--repeats") == 0 && i + 1 < argc) {
            repeats = atoi(argv[++i]);
        } else if (strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
            json_path = argv[++i];
        } else {
            fprintf(stderr, "usage: bench_feed [--smoke] [--repeats N] [--json FILE]\n");
            return 2;
        }
    }
    if (repeats < 1 || repeats > REPEATS_MAX) {
        fail("--repeats is out of range");
    }
    bench_json_open(&json, json_path, "bench_feed");
    struct utsname machine;
    uname(&machine);
    printf("%s %s, seed %d, %d rows, %d repeats, CPU time of one thread\n", machine.machine,
           machine.release, SEED, rows, repeats);
    printf("%-36s %8s %8s %8s %10s %10s  %s\n", "ns a row", "least", "median", "most", "MB/s",
           "1000 rows/s", "checksum");
    for (int kind = 0; kind < KINDS; kind++) {
        /* More series than the parser remembers. */
        run((enum kind)kind, kind == ILP_UNIQUE ? rows * 3 : rows, repeats);
    }
    bench_json_close(&json);
    return 0;
}

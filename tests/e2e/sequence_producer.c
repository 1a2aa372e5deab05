/* A producer whose rows can be checked at the other end: column `seq` counts 0, 1, 2, ... for each
 * table and producer (column `producer`).
 *
 *   sequence_producer --rings DIR --name PRODUCER [--rows N] [--tables N] [--unit N] [--pause-us N]
 *                     [--symbols N] [--states] [--hold] [--forever]
 *
 * --unit N: so many rows published as one. --pause-us N: between units. --symbols N: a symbol
 * column with so many values, new ones all along. --states: looks for the sidecar at least each
 * 20 ms and prints the states it saw, in order (n none, r running, c closing, x refused). --hold:
 * stays, attached and idle, until stdin ends. --forever: goes on until SIGTERM, then prints what it
 * published. Prints one JSON object; ends when all is acknowledged. QWP_TEST_RING_BYTES in the
 * environment: size of its ring. */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/c/qwp.h"

enum { TABLES_MAX = 1000, WAIT_S = 120 };

static const int64_t start_ns = 1700000000000000000;
static volatile sig_atomic_t stopped;

struct options {
    const char *rings;
    const char *name;
    long rows, tables, unit, pause_us, symbols;
    bool hold, forever, states;
};

struct state {
    struct qwp_producer *producer;
    struct qwp_table *tables[TABLES_MAX];
    int64_t seq[TABLES_MAX];
    long published;
    char states[64]; /* of the sidecar, as seen */
    int64_t looked_ns;
};

static void on_stop(int number)
{
    (void)number;
    stopped = 1;
}

static void die(const char *doing, const struct qwp_error *err)
{
    fprintf(stderr, "sequence_producer: %s: %s\n", doing, err->text);
    exit(1);
}

static void parse(struct options *options, int argc, char **argv)
{
    static const struct option known[] = {
        {"rings", required_argument, NULL, 'r'},
        {"name", required_argument, NULL, 'n'},
        {"rows", required_argument, NULL, 'N'},
        {"tables", required_argument, NULL, 't'},
        {"unit", required_argument, NULL, 'u'},
        {"pause-us", required_argument, NULL, 'p'},
        {"symbols", required_argument, NULL, 's'},
        {"hold", no_argument, NULL, 'h'},
        {"forever", no_argument, NULL, 'f'},
        {"states", no_argument, NULL, 'S'},
        {NULL, 0, NULL, 0},
    };
    *options = (struct options){.name = "p0", .rows = 1000, .tables = 1, .unit = 1};
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'r':
            options->rings = optarg;
            break;
        case 'n':
            options->name = optarg;
            break;
        case 'N':
            options->rows = atol(optarg);
            break;
        case 't':
            options->tables = atol(optarg);
            break;
        case 'u':
            options->unit = atol(optarg);
            break;
        case 'p':
            options->pause_us = atol(optarg);
            break;
        case 's':
            options->symbols = atol(optarg);
            break;
        case 'h':
            options->hold = true;
            break;
        case 'S':
            options->states = true;
            break;
        case 'f':
            options->forever = true;
            break;
        default:
            exit(2);
        }
    }
    if (options->rings == NULL || options->tables < 1 || options->tables > TABLES_MAX) {
        fputs("sequence_producer: --rings DIR is needed, --tables 1..1000\n", stderr);
        exit(2);
    }
}

static void setup(struct state *state, const struct options *options)
{
    struct qwp_error err;
    const char *ring = getenv("QWP_TEST_RING_BYTES");
    const struct qwp_producer_options producer = {
        .dir = options->rings,
        .name = options->name,
        .ring_bytes = ring != NULL ? strtoull(ring, NULL, 10) : 0,
    };
    if (qwp_producer_open(&state->producer, &producer, &err) != QWP_OK) {
        die("open", &err);
    }
    static const struct qwp_column columns[] = {{"producer", QWP_SYMBOL, 0},
                                                {"seq", QWP_LONG, 0},
                                                {"price", QWP_DOUBLE, 0},
                                                {"tag", QWP_SYMBOL, 0}};
    for (long t = 0; t < options->tables; t++) {
        char name[128];
        snprintf(name, sizeof name, "seq_%ld", t);
        if (qwp_table_define(state->producer, name, columns, 4, &state->tables[t], &err) !=
            QWP_OK) {
            die("define", &err);
        }
    }
}

static void write_row(struct state *state, const struct options *options, long i)
{
    const long t = i % options->tables;
    struct qwp_error err;
    struct qwp_row *row = qwp_row_begin(state->tables[t]);
    qwp_row_symbol(row, 0, options->name, strlen(options->name));
    qwp_row_long(row, 1, state->seq[t]++);
    qwp_row_double(row, 2, 100 + (double)(i % 1000) / 8);
    if (options->symbols > 0) {
        char tag[128];
        const int len = snprintf(tag, sizeof tag, "%s-%ld", options->name, i % options->symbols);
        qwp_row_symbol(row, 3, tag, (size_t)len);
    }
    if (qwp_row_at_ns(row, start_ns + i * 1000, &err) != QWP_OK) {
        die("row", &err);
    }
}

static void look(struct state *state)
{
    enum { EACH_MS = 20 };
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    const int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    const size_t len = strlen(state->states);
    if (now_ns - state->looked_ns < EACH_MS * INT64_C(1000000) || len + 1 == sizeof state->states) {
        return;
    }
    state->looked_ns = now_ns;
    const char seen = "nrcx"[qwp_consumer_state(state->producer)];
    if (len == 0 || state->states[len - 1] != seen) {
        state->states[len] = seen;
    }
}

static void publish_all(struct state *state, const struct options *options)
{
    struct qwp_error err;
    for (long i = 0; !stopped && (options->forever || i < options->rows);) {
        const long unit = options->unit;
        if (unit > 1 && qwp_unit_begin(state->producer, &err) != QWP_OK) {
            die("unit", &err);
        }
        for (long k = 0; k < unit; k++, i++) {
            write_row(state, options, i);
        }
        if (unit > 1 && qwp_unit_publish(state->producer, &err) != QWP_OK) {
            die("publish", &err);
        }
        state->published = i;
        if (options->states) {
            look(state);
        }
        if (options->pause_us > 0) {
            usleep((useconds_t)options->pause_us);
        }
    }
}

int main(int argc, char **argv)
{
    struct options options;
    static struct state state;
    parse(&options, argc, argv);
    signal(SIGTERM, on_stop);
    setup(&state, &options);
    publish_all(&state, &options);
    struct qwp_error err;
    const enum qwp_result result = qwp_wait_acked(
        state.producer, qwp_position_published(state.producer), (int64_t)WAIT_S * 1000000000, &err);
    struct qwp_counters counters;
    qwp_producer_count(state.producer, &counters);
    printf("{\"name\":\"%s\",\"published\":%ld,\"stored\":%llu,\"acked\":%llu,\"full_waits\":%llu,"
           "\"states\":\"%s\"}\n",
           options.name, state.published, (unsigned long long)counters.rows_stored,
           (unsigned long long)counters.rows_acked, (unsigned long long)counters.full_waits,
           state.states);
    fflush(stdout);
    if (result != QWP_OK) {
        die("wait", &err);
    }
    while (options.hold && getchar() != EOF) {
    }
    qwp_producer_close(state.producer);
    return 0;
}

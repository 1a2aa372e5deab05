#include "clients/c/feed/qwp_feed_options.h"

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"

static const char help[] =
    "Usage: qwp-feed --format ilp|csv|qwpb [options] FILE... | -\n"
    "\n"
    "Sends the rows of files, or of standard input (-), to QuestDB by way of the qwp-sidecar\n"
    "of this host, and ends when the server has acknowledged all of them.\n"
    "\n"
    "  qwp-feed --format ilp metrics.ilp\n"
    "  zcat trades.csv.gz | qwp-feed --format csv --table trades --time ts --symbols sym,side -\n"
    "  qwp-feed --format ilp --follow /var/log/app/metrics.ilp\n"
    "  qwp-feed --format csv --table t --dry-run file.csv     what would be sent?\n"
    "\n"
    "Where to\n"
    "  --rings DIR           rings directory [$QWP_RINGS, else /dev/shm/qwp]\n"
    "  --name NAME           instance of the sidecar (also --instance) [$QWP_INSTANCE, else "
    "default]\n"
    "  --producer NAME       name of the producer, for people and --producer-column [qwp-feed];\n"
    "                        with several processes -0, -1, ... is added\n"
    "  --ring-bytes SIZE     size of a ring, with k, m or g; a row takes half of it at most [1m]\n"
    "  --definition-bytes SIZE  bound for tables and symbols in a ring; symbols beyond it travel\n"
    "                        as text [4m]\n"
    "\n"
    "What the input means\n"
    "  --format FORMAT       ilp: InfluxDB line protocol; csv: comma-separated values; qwpb: the\n"
    "                        binary data of the TSBS benchmark\n"
    "  --table TABLE         table of all rows; needed for CSV, overrides the input's otherwise\n"
    "  --at ns|us|server     designated timestamp in this unit, or given by the server [as it is "
    "in\n"
    "                        the input: ns as ns, coarser ones as us; server when there is none]\n"
    "  --precision UNIT      ilp: ns, us, ms or s, of timestamps without a suffix [ns]\n"
    "  --delimiter C         csv: the delimiter, also tab [,]\n"
    "  --no-header           csv: the first line is a row already\n"
    "  --columns A,B,...     csv: names of the columns, instead of the header's\n"
    "  --schema A:TYPE,...   csv: types of some or all columns, the others are inferred; a column "
    "of\n"
    "                        type skip is left out\n"
    "  --symbols A,B,...     csv: these columns are symbols\n"
    "  --infer-rows N        csv: how many rows types are inferred from [1000]\n"
    "  --time COLUMN         csv: the row's timestamp [none: the server gives it]\n"
    "  --time-format FORMAT  csv: s, ms, us, ns, iso, or a pattern such as '%d/%m/%Y %H:%M:%S.%f'\n"
    "                        [told from the first rows]\n"
    "\n"
    "Types: boolean byte short int long float double symbol varchar char date timestamp\n"
    "timestamp_ns uuid long256 ipv4 binary (base64) geohash(8c) geohash(20b) decimal(18,4)\n"
    "double[] long[] (as [[1,2],[3,4]]) skip\n"
    "\n"
    "How it is sent\n"
    "  --processes N         spread over N processes with a ring each: blocks of lines are dealt "
    "out\n"
    "                        in turn, so each row is sent once, and rows of one producer keep "
    "their\n"
    "                        order [1]\n"
    "  --follow              wait for more at the end of the file, as it grows or is replaced, "
    "until\n"
    "                        SIGINT or SIGTERM\n"
    "  --repeat N            read the files N times, 0 for ever [1]\n"
    "  --rate N              at most N rows a second, of all processes together\n"
    "  --skip-bad FILE       append bad lines to FILE and go on; they are counted, and no error\n"
    "                        [a bad line ends the feed]\n"
    "  --add-seq COLUMN      add a long that counts 0, 1, 2, ... per table and process, and the\n"
    "                        producer's name beside it, so that the other end can check for gaps\n"
    "  --producer-column COLUMN  the name of that symbol column; alone: add only it [producer]\n"
    "  --no-wait             end when all rows are in the rings, do not wait for acknowledgements\n"
    "  --ack-timeout S       wait at most S seconds for them after the last row [for ever]\n"
    "  --dry-run             parse only; print tables, columns and types\n"
    "\n"
    "What is told\n"
    "  --json                print one JSON object at the end, on standard output\n"
    "  --progress, --no-progress  show what is going on [when standard error is a terminal]\n"
    "  --help, --version\n"
    "\n"
    "SIGINT or SIGTERM: the first ends reading, then what was read is acknowledged; the second "
    "ends\n"
    "waiting, and rows stay in their rings for a sidecar.\n"
    "\n"
    "Exit status: 0 all rows acknowledged; 1 errors, or rows not acknowledged; 2 wrong usage.\n"
    "Compressed input: zcat FILE | qwp-feed ... -\n";

enum option_id {
    OPT_RINGS = 256,
    OPT_NAME,
    OPT_PRODUCER,
    OPT_RING_BYTES,
    OPT_DEFINITION_BYTES,
    OPT_FORMAT,
    OPT_TABLE,
    OPT_AT,
    OPT_PRECISION,
    OPT_DELIMITER,
    OPT_NO_HEADER,
    OPT_COLUMNS,
    OPT_SCHEMA,
    OPT_SYMBOLS,
    OPT_INFER_ROWS,
    OPT_TIME,
    OPT_TIME_FORMAT,
    OPT_PROCESSES,
    OPT_FOLLOW,
    OPT_REPEAT,
    OPT_RATE,
    OPT_SKIP_BAD,
    OPT_ADD_SEQ,
    OPT_PRODUCER_COLUMN,
    OPT_NO_WAIT,
    OPT_ACK_TIMEOUT,
    OPT_DRY_RUN,
    OPT_JSON,
    OPT_PROGRESS,
    OPT_NO_PROGRESS,
    OPT_HELP,
    OPT_VERSION,
};

static const struct option long_options[] = {
    {"rings", required_argument, NULL, OPT_RINGS},
    {"name", required_argument, NULL, OPT_NAME},
    {"instance", required_argument, NULL, OPT_NAME},
    {"producer", required_argument, NULL, OPT_PRODUCER},
    {"ring-bytes", required_argument, NULL, OPT_RING_BYTES},
    {"definition-bytes", required_argument, NULL, OPT_DEFINITION_BYTES},
    {"format", required_argument, NULL, OPT_FORMAT},
    {"table", required_argument, NULL, OPT_TABLE},
    {"at", required_argument, NULL, OPT_AT},
    {"precision", required_argument, NULL, OPT_PRECISION},
    {"delimiter", required_argument, NULL, OPT_DELIMITER},
    {"no-header", no_argument, NULL, OPT_NO_HEADER},
    {"columns", required_argument, NULL, OPT_COLUMNS},
    {"schema", required_argument, NULL, OPT_SCHEMA},
    {"symbols", required_argument, NULL, OPT_SYMBOLS},
    {"infer-rows", required_argument, NULL, OPT_INFER_ROWS},
    {"time", required_argument, NULL, OPT_TIME},
    {"time-format", required_argument, NULL, OPT_TIME_FORMAT},
    {"processes", required_argument, NULL, OPT_PROCESSES},
    {"follow", no_argument, NULL, OPT_FOLLOW},
    {"repeat", required_argument, NULL, OPT_REPEAT},
    {"rate", required_argument, NULL, OPT_RATE},
    {"skip-bad", required_argument, NULL, OPT_SKIP_BAD},
    {"add-seq", required_argument, NULL, OPT_ADD_SEQ},
    {"producer-column", required_argument, NULL, OPT_PRODUCER_COLUMN},
    {"no-wait", no_argument, NULL, OPT_NO_WAIT},
    {"ack-timeout", required_argument, NULL, OPT_ACK_TIMEOUT},
    {"dry-run", no_argument, NULL, OPT_DRY_RUN},
    {"json", no_argument, NULL, OPT_JSON},
    {"progress", no_argument, NULL, OPT_PROGRESS},
    {"no-progress", no_argument, NULL, OPT_NO_PROGRESS},
    {"help", no_argument, NULL, OPT_HELP},
    {"version", no_argument, NULL, OPT_VERSION},
    {NULL, 0, NULL, 0},
};

static bool complain(const char *option, const char *value, const char *expected)
{
    fprintf(stderr, "qwp-feed: --%s %s: expected %s (see --help)\n", option, value, expected);
    return false;
}

static bool parse_count(const char *option, const char *text, uint64_t min, uint64_t max,
                        uint64_t *out)
{
    char expected[80];
    snprintf(expected, sizeof expected, "a number from %llu to %llu", (unsigned long long)min,
             (unsigned long long)max);
    return (qwp_feed_parse_u64(text, strlen(text), out) && *out >= min && *out <= max) ||
           complain(option, text, expected);
}

static bool parse_size(const char *option, const char *text, uint64_t *out)
{
    size_t len = strlen(text);
    unsigned shift = 0;
    if (len > 0) {
        const char last = (char)(text[len - 1] | 0x20);
        shift = last == 'k' ? 10 : last == 'm' ? 20 : last == 'g' ? 30 : 0;
        len -= shift != 0;
    }
    if (!qwp_feed_parse_u64(text, len, out) || *out == 0 || *out > (UINT64_C(1) << 40) >> shift) {
        return complain(option, text, "a size such as 512k, 4m or 1g");
    }
    *out <<= shift;
    return true;
}

static bool parse_seconds(const char *option, const char *text, double *out)
{
    return (qwp_feed_parse_double(text, strlen(text), out) && isfinite(*out) && *out > 0) ||
           complain(option, text, "a number above 0");
}

static bool parse_format(const char *text, enum qwp_feed_format *out)
{
    static const char *const names[] = {"ilp", "csv", "qwpb"};
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum qwp_feed_format)(QWP_FEED_ILP + i);
            return true;
        }
    }
    return complain("format", text, "ilp, csv or qwpb");
}

static bool parse_at(const char *text, enum qwp_feed_at_choice *out)
{
    static const char *const names[] = {"auto", "ns", "us", "server"};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i]) == 0) {
            *out = (enum qwp_feed_at_choice)i;
            return true;
        }
    }
    return complain("at", text, "ns, us or server");
}

static bool parse_delimiter(const char *text, char *out)
{
    if (strcmp(text, "tab") == 0 || strcmp(text, "\\t") == 0) {
        *out = '\t';
        return true;
    }
    *out = text[0];
    return (strlen(text) == 1 && *text != '"' && *text != '\n' && *text != '\r') ||
           complain("delimiter", text, "one character, or tab");
}

static bool parse_name(const char *option, const char *text, bool is_table, const char **out)
{
    struct qwp_error err;
    const enum qwp_result result =
        is_table ? qwp_table_name_check(text, strlen(text), QWP_NAME_BYTES_MAX, &err)
                 : qwp_column_name_check(text, strlen(text), QWP_NAME_BYTES_MAX, &err);
    if (result != QWP_OK) {
        fprintf(stderr, "qwp-feed: --%s: %s\n", option, err.text);
        return false;
    }
    *out = text;
    return true;
}

static bool apply_input(struct qwp_feed_options *o, int id, const char *arg)
{
    uint64_t n;
    switch (id) {
    case OPT_FORMAT:
        return parse_format(arg, &o->format);
    case OPT_TABLE:
        return parse_name("table", arg, true, &o->table);
    case OPT_AT:
        return parse_at(arg, &o->at);
    case OPT_PRECISION:
        return qwp_feed_unit_parse(arg, &o->precision) ||
               complain("precision", arg, "ns, us, ms or s");
    case OPT_DELIMITER:
        return parse_delimiter(arg, &o->csv.delimiter);
    case OPT_NO_HEADER:
        o->csv.no_header = true;
        return true;
    case OPT_COLUMNS:
        o->csv.columns = arg;
        return true;
    case OPT_SCHEMA:
        o->csv.schema = arg;
        return true;
    case OPT_SYMBOLS:
        o->csv.symbols = arg;
        return true;
    case OPT_INFER_ROWS:
        if (!parse_count("infer-rows", arg, 1, 1000000000, &n)) {
            return false;
        }
        o->csv.infer_rows = n;
        return true;
    case OPT_TIME:
        o->csv.time = arg;
        return true;
    default: /* OPT_TIME_FORMAT */
        return qwp_feed_time_format_parse(arg, &o->csv.time_format) ||
               complain("time-format", arg, "s, ms, us, ns, iso or a pattern with %");
    }
}

static bool apply_sending(struct qwp_feed_options *o, int id, const char *arg)
{
    uint64_t n;
    switch (id) {
    case OPT_PROCESSES:
        if (!parse_count("processes", arg, 1, QWP_FEED_PROCESSES_MAX, &n)) {
            return false;
        }
        o->processes = (uint32_t)n;
        return true;
    case OPT_FOLLOW:
        o->follow = true;
        return true;
    case OPT_REPEAT:
        return parse_count("repeat", arg, 0, UINT64_MAX, &o->repeat);
    case OPT_RATE:
        return parse_seconds("rate", arg, &o->rate);
    case OPT_SKIP_BAD:
        o->skip_bad = arg;
        return true;
    case OPT_ADD_SEQ:
        return parse_name("add-seq", arg, false, &o->seq_column);
    case OPT_PRODUCER_COLUMN:
        return parse_name("producer-column", arg, false, &o->producer_column);
    case OPT_NO_WAIT:
        o->no_wait = true;
        return true;
    case OPT_ACK_TIMEOUT:
        return parse_seconds("ack-timeout", arg, &o->ack_timeout_s);
    default: /* OPT_DRY_RUN */
        o->dry_run = true;
        return true;
    }
}

static bool apply(struct qwp_feed_options *o, int id, const char *arg)
{
    switch (id) {
    case OPT_RINGS:
        o->dir = arg;
        return true;
    case OPT_NAME:
        o->instance = arg;
        return true;
    case OPT_PRODUCER:
        o->producer = arg;
        return true;
    case OPT_RING_BYTES:
        return parse_size("ring-bytes", arg, &o->ring_bytes);
    case OPT_DEFINITION_BYTES:
        return parse_size("definition-bytes", arg, &o->definition_bytes);
    case OPT_JSON:
        o->json = true;
        return true;
    case OPT_PROGRESS:
    case OPT_NO_PROGRESS:
        o->progress = id == OPT_PROGRESS;
        return true;
    default:
        return id >= OPT_PROCESSES ? apply_sending(o, id, arg) : apply_input(o, id, arg);
    }
}

static bool usage(const char *text)
{
    fprintf(stderr, "qwp-feed: %s (see --help)\n", text);
    return false;
}

static bool is_regular(const char *path)
{
    struct stat st;
    return strcmp(path, "-") == 0 ? fstat(STDIN_FILENO, &st) == 0 && S_ISREG(st.st_mode)
                                  : stat(path, &st) == 0 && S_ISREG(st.st_mode);
}

/* What options say together. */
static bool check(const struct qwp_feed_options *o)
{
    const bool csv_options = o->csv.delimiter != 0 || o->csv.no_header || o->csv.columns != NULL ||
                             o->csv.schema != NULL || o->csv.symbols != NULL ||
                             o->csv.time != NULL || o->csv.infer_rows != 0;
    if (o->path_count == 0) {
        return usage("no FILE is given; - is standard input");
    }
    if (o->format == 0) {
        return usage("--format ilp, csv or qwpb is needed");
    }
    if (o->format == QWP_FEED_CSV && o->table == NULL) {
        return usage("CSV does not name its table: give --table");
    }
    if (o->format != QWP_FEED_CSV && csv_options) {
        return usage("--delimiter, --no-header, --columns, --schema, --symbols, --time and "
                     "--infer-rows are for CSV");
    }
    if (o->follow && o->path_count > 1) {
        return usage("--follow takes one FILE");
    }
    if (o->follow && o->repeat != 1) {
        return usage("--follow and --repeat exclude each other");
    }
    for (uint32_t i = 0; o->repeat != 1 && i < o->path_count; i++) {
        if (strcmp(o->paths[i], "-") == 0 || !is_regular(o->paths[i])) {
            return usage("--repeat needs regular files, which can be read again");
        }
    }
    return true;
}

enum qwp_feed_parsed qwp_feed_options_parse(int argc, char **argv, struct qwp_feed_options *out)
{
    *out = (struct qwp_feed_options){
        .processes = 1, .repeat = 1, .progress = isatty(STDERR_FILENO) != 0};
    int id;
    while ((id = getopt_long(argc, argv, "h", long_options, NULL)) != -1) {
        if (id == OPT_HELP || id == 'h') {
            fputs(help, stdout);
            return QWP_FEED_EXIT_OK;
        }
        if (id == OPT_VERSION) {
            printf("qwp-feed %s\n", QWP_VERSION);
            return QWP_FEED_EXIT_OK;
        }
        if (id == '?') {
            fputs("qwp-feed: see --help\n", stderr);
            return QWP_FEED_EXIT_USAGE;
        }
        if (!apply(out, id, optarg)) {
            return QWP_FEED_EXIT_USAGE;
        }
    }
    out->paths = (const char *const *)(argv + optind);
    out->path_count = (uint32_t)(argc - optind);
    out->producer = out->producer != NULL ? out->producer : "qwp-feed";
    if (out->seq_column != NULL && out->producer_column == NULL) {
        out->producer_column = "producer";
    }
    out->csv.at = out->at;
    return check(out) ? QWP_FEED_RUN : QWP_FEED_EXIT_USAGE;
}

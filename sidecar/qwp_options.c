#include "sidecar/qwp_options.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/conf/qwp_option.h"
#include "core/qwp_log.h"
#include "ipc/qwp_rendezvous.h"
#include "sidecar/qwp_observe.h"

static const char *const threading_choices[] = {"shared", "dedicated", NULL};
static const char *const loop_choices[] = {"auto", "uring", "epoll", NULL};
static const char *const idle_choices[] = {"park", "spin", NULL};
static const char *const doorbell_choices[] = {"auto", "fence", "fifo", NULL};
static const char *const log_level_choices[] = {"debug", "info", "warn", "error", NULL};
static const char *const log_format_choices[] = {"logfmt", "json", NULL};

#define FIELD(name) (uint16_t) offsetof(struct qwp_options, name)

#define OPTION(name_, kind_, field, initial, about, ...)                                           \
    {                                                                                              \
        .name = name_, .kind = kind_, .off = FIELD(field), .value_default = initial,               \
        .help = about, __VA_ARGS__                                                                 \
    }
#define ACTION(name_, field, about)                                                                \
    {                                                                                              \
        .name = name_, .kind = QWP_OPTION_ACTION, .off = FIELD(field), .help = about               \
    }
#define CHOICE(name_, field, list, initial, about)                                                 \
    OPTION(name_, QWP_OPTION_CHOICE, field, initial, about, .choices = list)

/* Rows that several commands share. */
#define ROW_HELP ACTION("help", help, "this text")
#define ROW_JSON ACTION("json", json, "one JSON object instead of text")
#define ROW_CONF                                                                                   \
    OPTION("conf", QWP_OPTION_TEXT, conf, NULL,                                                    \
           "connect string; else $" QWP_CONF_ENV "; secrets are safer in *_file keys",             \
           .flags = QWP_OPTION_SECRET, .value_name = "STRING")
#define ROW_CONF_FILE                                                                              \
    OPTION("conf-file", QWP_OPTION_TEXT, conf_file, NULL,                                          \
           "file holding the connect string, over lines if you like; when "                        \
           "it changes its credentials are read again",                                            \
           .value_name = "FILE")
#define ROW_LOOP                                                                                   \
    CHOICE("loop", loop, loop_choices, "auto",                                                     \
           "event loop: io_uring, or epoll where it is not to be had (auto); or one of them")
#define ROW_URING_WITHOUT                                                                          \
    OPTION("uring-without", QWP_OPTION_TEXT, uring_without, NULL,                                  \
           "operations of io_uring to do without, where one is broken: recv,futex; all",           \
           .value_name = "LIST")
#define ROW_RINGS                                                                                  \
    OPTION("rings", QWP_OPTION_TEXT, rings_dir, NULL,                                              \
           "directory shared with producers [$" QWP_RINGS_ENV " or " QWP_RENDEZVOUS_DIR_DEFAULT    \
           "]",                                                                                    \
           .value_name = "DIR")
#define ROW_NAME                                                                                   \
    OPTION("name", QWP_OPTION_TEXT, name, NULL,                                                    \
           "instance, a directory below that [$" QWP_INSTANCE_ENV                                  \
           " or " QWP_RENDEZVOUS_NAME_DEFAULT "]",                                                 \
           .value_name = "NAME")

#define ROW_LOG_LEVEL(initial)                                                                     \
    CHOICE("log-level", log_level, log_level_choices, initial, "least level to log, to stderr")
#define ROW_LOG_FORMAT                                                                             \
    CHOICE("log-format", log_format, log_format_choices, "logfmt",                                 \
           "a log line is words with = between, or a JSON object")

static const struct qwp_option run_table[] = {
    ROW_CONF,
    ROW_CONF_FILE,
    ROW_RINGS,
    ROW_NAME,
    ACTION("accept-any-dir", accept_any_dir,
           "take a rings directory that the safety checks refuse, and warn"),
    OPTION("allow-users", QWP_OPTION_TEXT, allow_users, NULL,
           "users whose rings are taken, names or numbers [all who may use the directory]",
           .value_name = "LIST"),
    OPTION("group", QWP_OPTION_TEXT, group, NULL,
           "group whose members may be producers: the instance directory's [as it comes]",
           .value_name = "GROUP"),
    CHOICE("threading", threading, threading_choices, "shared",
           "one thread for all, or one each for intake and sending"),
    ROW_LOOP,
    ROW_URING_WITHOUT,
    CHOICE("idle", idle, idle_choices, "park",
           "with nothing to do: sleep at no cost, or busy-poll for the lowest latency"),
    OPTION("linger", QWP_OPTION_DURATION, linger_ns, "1ms",
           "longest wait for more rows before a batch is sent; 0: none",
           .max = 60 * UINT64_C(1000000000)),
    OPTION("linger-us", QWP_OPTION_MICROS, linger_ns, NULL, "the same in microseconds",
           .max = 60 * UINT64_C(1000000)),
    OPTION("batch-rows", QWP_OPTION_COUNT, batch_rows_max, "10000",
           "rows at which a batch is sent without waiting", .min = 1, .max = 1000000),
    OPTION("batch-bytes", QWP_OPTION_SIZE, batch_bytes_max, "1m",
           "bytes at which a batch is sent without waiting", .min = 1, .max = UINT64_C(16) << 20),
    OPTION("compact", QWP_OPTION_FLAG, compact, "on",
           "send whole numbers and doubles in the narrowest type that holds them, where the server "
           "widens them again"),
    OPTION("producers-max", QWP_OPTION_COUNT, producers_max, "1024",
           "most producers attached at a time", .min = 1, .max = 65536),
    OPTION("ring-bytes-max", QWP_OPTION_SIZE, ring_bytes_max, "256m",
           "largest ring taken from a producer", .min = QWP_RING_DATA_BYTES_MIN,
           .max = QWP_RING_DATA_BYTES_MAX),
    OPTION("producer-tables-max", QWP_OPTION_COUNT, producer_tables_max, "10000",
           "most tables of one producer; its ring is detached beyond", .min = 1, .max = 65535),
    OPTION("producer-symbols-max", QWP_OPTION_COUNT, producer_symbols_max, "0",
           "most symbols that one producer brings in its life; its ring is detached beyond; 0: any "
           "number, --producer-symbols alone",
           .max = 100000000),
    OPTION("rejected-bytes-max", QWP_OPTION_SIZE, rejected_bytes_max, "0",
           "room for rows that the server refuses, then producers of that table wait; 0: a quarter "
           "of sf_max_total_bytes"),
    OPTION("generation-symbols", QWP_OPTION_COUNT, generation_symbols, "250000",
           "symbols with which a dictionary is left for the next: each reconnect sends them all",
           .min = 1, .max = 900000),
    OPTION("generation-bytes", QWP_OPTION_SIZE, generation_bytes, "8m",
           "the same by the bytes of their texts", .min = 1, .max = UINT64_C(128) << 20),
    OPTION("producer-symbols", QWP_OPTION_COUNT, producer_symbols, "0",
           "new symbols of one producer in each dictionary, then its rows with more of them wait "
           "for the next one; 0: half of generation-symbols",
           .max = 900000),
    CHOICE("doorbell", doorbell, doorbell_choices, "auto",
           "how producers wake a sleeping sidecar: membarrier and futex where they work (auto), "
           "a fence in each publish (fence), or a FIFO (fifo)"),
    OPTION("metrics", QWP_OPTION_TEXT, metrics, NULL,
           "address for /metrics, /healthz and /readyz over HTTP, or off [" QWP_OBSERVE_ADDRESS "]",
           .value_name = "HOST:PORT"),
    ROW_LOG_LEVEL("info"),
    ROW_LOG_FORMAT,
    ROW_HELP,
};

static const struct qwp_option status_table[] = {
    ROW_RINGS,
    ROW_NAME,
    ROW_JSON,
    ACTION("once", once, "also on a terminal: one look as plain text instead of a live screen"),
    ACTION("watch", watch, "not on a terminal: one look after the other until interrupted"),
    OPTION("interval", QWP_OPTION_DURATION, interval_ns, "1s", "between two looks", .min = 1000000,
           .max = 3600 * UINT64_C(1000000000)),
    ROW_HELP,
};

static const struct qwp_option check_table[] = {
    ROW_CONF,
    ROW_CONF_FILE,
    ROW_RINGS,
    ROW_NAME,
    ROW_JSON,
    OPTION("timeout", QWP_OPTION_DURATION, timeout_ns, "5s", "longest wait for one server",
           .min = 1000000, .max = 3600 * UINT64_C(1000000000)),
    ROW_HELP,
};

static const struct qwp_option inspect_table[] = {
    ROW_JSON,
    ROW_HELP,
};

static const struct qwp_option drain_table[] = {
    ROW_CONF,
    ROW_CONF_FILE,
    ROW_JSON,
    OPTION("timeout", QWP_OPTION_DURATION, timeout_ns, "0", "longest wait for all of it; 0: none",
           .max = 86400 * UINT64_C(1000000000)),
    ROW_LOOP,
    ROW_LOG_LEVEL("warn"),
    ROW_LOG_FORMAT,
    ROW_HELP,
};

static const struct qwp_option rejected_table[] = {
    ROW_RINGS,
    ROW_NAME,
    OPTION("table", QWP_OPTION_TEXT, table, NULL, "only rows of this table", .value_name = "NAME"),
    OPTION("rows", QWP_OPTION_COUNT, rows, "10", "most rows shown of each refused frame (show)",
           .min = 1),
    OPTION("out", QWP_OPTION_TEXT, out_file, NULL, "file to write to instead of stdout (export)",
           .value_name = "FILE"),
    ROW_JSON,
    ROW_CONF,
    ROW_CONF_FILE,
    OPTION("timeout", QWP_OPTION_DURATION, timeout_ns, "60s",
           "longest wait for the server (put-back); 0: none", .max = 86400 * UINT64_C(1000000000)),
    ROW_HELP,
};

static const char *const rejected_actions[] = {"list", "show", "export", "put-back", NULL};

static const struct {
    const struct qwp_option *table;
    size_t count;
    const char *usage;
    bool takes_slot;            /* one word that is no option: a slot's directory */
    const char *const *actions; /* NULL: none; else a word before it says which */
} commands[] = {
    [QWP_COMMAND_RUN] = {run_table, sizeof run_table / sizeof run_table[0],
                         "Usage: qwp-sidecar run --conf 'ws::addr=HOST:PORT;' [OPTIONS]\n"
                         "Takes rows from the rings of local producers and sends them to QuestDB.\n"
                         "SIGTERM sends what is there and stops, a second one stops at once; the "
                         "exit code is 0\nwhen everything was acknowledged. SIGHUP reads secrets "
                         "and certificates again\nand tries to connect at once; changed files are "
                         "noticed without it.\n",
                         false, NULL},
    [QWP_COMMAND_STATUS] = {status_table, sizeof status_table / sizeof status_table[0],
                            "Usage: qwp-sidecar status [OPTIONS]\n"
                            "Shows the sidecar of an instance and its producers. The exit code is "
                            "0 when one runs there,\n3 when none does.\n",
                            false, NULL},
    [QWP_COMMAND_CHECK] = {check_table, sizeof check_table / sizeof check_table[0],
                           "Usage: qwp-sidecar check [--conf STRING] [OPTIONS]\n"
                           "Tells what works here before anything runs: kernel features, rings "
                           "directory, limits, and\nthe servers when a connect string is given. "
                           "The exit code is 1 when something fails.\n",
                           false, NULL},
    [QWP_COMMAND_INSPECT] = {inspect_table, sizeof inspect_table / sizeof inspect_table[0],
                             "Usage: qwp-sidecar inspect SLOT-DIR [OPTIONS]\n"
                             "Shows what lies in a store-and-forward slot (<sf_dir>/<sender_id>), "
                             "of any QuestDB client,\nwithout changing it. The exit code is 4 when "
                             "something in it is damaged.\n",
                             true, NULL},
    [QWP_COMMAND_DRAIN] = {drain_table, sizeof drain_table / sizeof drain_table[0],
                           "Usage: qwp-sidecar drain SLOT-DIR --conf STRING [OPTIONS]\n"
                           "Delivers what a store-and-forward slot holds, of any QuestDB client, "
                           "and ends. The exit code\nis 0 when everything was acknowledged, 3 "
                           "when it ended before, frames were damaged, or rows refused.\n",
                           true, NULL},
    [QWP_COMMAND_REJECTED] =
        {rejected_table, sizeof rejected_table / sizeof rejected_table[0],
         "Usage: qwp-sidecar rejected [list|show|export|put-back] [SLOT-DIR] [OPTIONS]\n"
         "Rows that the server refused were set aside, with its reason, in the folder rejected/ of "
         "the slot\n(SLOT-DIR, or that of the instance's sidecar).\n"
         "\n"
         "  list      a line for each file: table, rows, the server's last words\n"
         "  show      when, why and whose, and the rows themselves\n"
         "  export    all rows as JSON, a line each; they stay where they are\n"
         "  put-back  offer them to the server again (--conf), beside a running sidecar. What it "
         "takes is\n            gone from here, and the sidecar then tries the table again. First "
         "mend the table,\n            for one with ALTER TABLE ... ALTER COLUMN.\n"
         "\n"
         "The exit code is 0, with put-back 3 when rows are left. Files that are not wanted any "
         "more "
         "may simply\nbe removed, also while a sidecar runs.\n",
         true, rejected_actions},
};

/* Whether `word` is "--<name of option>", perhaps with "=value": then *value is behind the '=' or
 * NULL. */
static const struct qwp_option *match(enum qwp_command command, const char *word,
                                      const char **value)
{
    char name[64];
    const size_t len = strcspn(word, "=");
    if (len < 3 || len >= sizeof name || strncmp(word, "--", 2) != 0) {
        return NULL;
    }
    memcpy(name, word + 2, len - 2);
    name[len - 2] = '\0';
    *value = word[len] == '=' ? word + len + 1 : NULL;
    return qwp_option_find(commands[command].table, commands[command].count, name);
}

static enum qwp_result refuse_word(const char *word, struct qwp_error *err)
{
    /* What follows an '=' may be a secret. */
    char name[64];
    const size_t len = strcspn(word, "=");
    const size_t kept = len < sizeof name ? len : sizeof name - 1;
    memcpy(name, word, kept);
    name[kept] = '\0';
    return qwp_fail(err, QWP_INVALID, 0, "%s '%s': --help lists the options",
                    word[0] == '-' ? "unknown option" : "unexpected argument", qwp_show(name).text);
}

static bool parse_action(struct qwp_options *options, enum qwp_command command, const char *word)
{
    const char *const *actions = commands[command].actions;
    for (uint8_t i = 0; actions != NULL && actions[i] != NULL; i++) {
        if (strcmp(actions[i], word) == 0) {
            options->action = i;
            return true;
        }
    }
    return false;
}

/* Reads one option at argv[*index] and leaves *index behind it. */
static enum qwp_result parse_one(struct qwp_options *options, enum qwp_command command, int argc,
                                 char *const *argv, int *index, bool *has_action,
                                 struct qwp_error *err)
{
    const char *word = argv[(*index)++];
    const char *value = NULL;
    const struct qwp_option *option =
        match(command, strcmp(word, "-h") == 0 ? "--help" : word, &value);
    if (option == NULL && word[0] != '-' && !*has_action && parse_action(options, command, word)) {
        *has_action = true;
        return QWP_OK;
    }
    if (option == NULL && commands[command].takes_slot && word[0] != '-' &&
        options->slot_dir == NULL) {
        options->slot_dir = word;
        return QWP_OK;
    }
    if (option == NULL) {
        return refuse_word(word, err);
    }
    const bool is_action = option->kind == QWP_OPTION_ACTION;
    if (is_action && value != NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "--%s: takes no value", option->name);
    }
    if (!is_action && value == NULL && *index < argc) {
        value = argv[(*index)++];
    }
    if (!is_action && (value == NULL || value[0] == '\0')) {
        return qwp_fail(err, QWP_INVALID, 0, "--%s: needs a value", option->name);
    }
    const enum qwp_result result = qwp_option_set(option, options, value, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "command line");
    }
    return result;
}

static const char *given_or(const char *given, const char *env, const char *fallback)
{
    if (given != NULL) {
        return given;
    }
    const char *from_env = getenv(env);
    return from_env != NULL && from_env[0] != '\0' ? from_env : fallback;
}

enum qwp_result qwp_options_parse(struct qwp_options *options, enum qwp_command command, int argc,
                                  char *const *argv, struct qwp_error *err)
{
    struct qwp_options parsed = {0};
    qwp_option_set_defaults(commands[command].table, commands[command].count, &parsed);
    bool has_action = false;
    for (int index = 0; index < argc;) {
        const enum qwp_result result =
            parse_one(&parsed, command, argc, argv, &index, &has_action, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    if (commands[command].takes_slot && commands[command].actions == NULL &&
        parsed.slot_dir == NULL && !parsed.help) {
        return qwp_fail(err, QWP_INVALID, 0, "which slot? give its directory");
    }
    parsed.rings_dir = given_or(parsed.rings_dir, QWP_RINGS_ENV, QWP_RENDEZVOUS_DIR_DEFAULT);
    parsed.name = given_or(parsed.name, QWP_INSTANCE_ENV, QWP_RENDEZVOUS_NAME_DEFAULT);
    *options = parsed;
    return QWP_OK;
}

static uint64_t lower(uint64_t own, uint64_t asked)
{
    return asked != 0 && asked < own ? asked : own;
}

void qwp_options_bound(struct qwp_options *options, const struct qwp_conf *conf)
{
    options->batch_rows_max = lower(options->batch_rows_max, conf->flush_rows_max);
    options->batch_bytes_max = lower(options->batch_bytes_max, conf->flush_bytes_max);
    options->linger_ns =
        (int64_t)lower((uint64_t)options->linger_ns, (uint64_t)conf->flush_wait_ns_max);
}

void qwp_options_log_setup(const struct qwp_options *options)
{
    const struct qwp_log_options log = {
        .level = (enum qwp_log_level)options->log_level,
        .format = (enum qwp_log_format)options->log_format,
        .fd = STDERR_FILENO,
    };
    qwp_log_setup(&log);
}

void qwp_options_describe(enum qwp_command command, FILE *out)
{
    fputs(commands[command].usage, out);
    fputs("\nOptions, with their defaults:\n", out);
    qwp_option_describe(commands[command].table, commands[command].count, "--", out);
    if (command != QWP_COMMAND_STATUS && command != QWP_COMMAND_INSPECT) {
        fputc('\n', out);
        qwp_conf_describe(out);
    }
}

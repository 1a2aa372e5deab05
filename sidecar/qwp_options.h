/* qwp_options: the command line of qwp-sidecar, read once into one struct.
 *
 * Each command has a table of its options, from which parsing, defaults and --help come. A value
 * follows its option or an '=': --rings DIR, --rings=DIR.
 *
 * Ownership: texts are those of argv, the environment or literals, and live as long as these.
 * Errors:    QWP_INVALID with the option and what is wrong with it. */
#ifndef QWP_OPTIONS_H
#define QWP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "core/conf/qwp_conf.h"
#include "core/qwp_error.h"

#define QWP_RINGS_ENV    "QWP_RINGS"
#define QWP_INSTANCE_ENV "QWP_INSTANCE"

enum qwp_command {
    QWP_COMMAND_RUN = 0,
    QWP_COMMAND_STATUS = 1,
    QWP_COMMAND_CHECK = 2,
    QWP_COMMAND_INSPECT = 3,
    QWP_COMMAND_DRAIN = 4,
    QWP_COMMAND_REJECTED = 5,
};

enum qwp_rejected_action {
    QWP_REJECTED_LIST = 0,
    QWP_REJECTED_SHOW = 1,
    QWP_REJECTED_EXPORT = 2,
    QWP_REJECTED_PUT_BACK_ALL = 3,
};
enum qwp_threading { QWP_THREADING_SHARED = 0, QWP_THREADING_DEDICATED = 1 };
enum qwp_idle { QWP_IDLE_PARK = 0, QWP_IDLE_SPIN = 1 };
enum qwp_doorbell { QWP_DOORBELL_AUTO = 0, QWP_DOORBELL_FENCE = 1, QWP_DOORBELL_FIFO = 2 };

struct qwp_options {
    bool help;
    const char *conf;      /* NULL: not given */
    const char *conf_file; /* NULL: not given */
    const char *rings_dir; /* --rings, else $QWP_RINGS, else QWP_RENDEZVOUS_DIR_DEFAULT */
    const char *name;      /* --name, else $QWP_INSTANCE, else QWP_RENDEZVOUS_NAME_DEFAULT */

    /* run */
    bool accept_any_dir;       /* a rings directory that the safety checks refuse */
    uint8_t threading;         /* enum qwp_threading */
    uint8_t idle;              /* enum qwp_idle */
    uint8_t doorbell;          /* enum qwp_doorbell */
    uint8_t loop;              /* enum qwp_loop_kind; drain too */
    const char *uring_without; /* list of operations; NULL: none */
    uint8_t log_level;         /* enum qwp_log_level */
    bool compact;              /* QWP_ENCODE_COMPACT */
    uint8_t log_format;        /* enum qwp_log_format */
    int64_t linger_ns;
    uint64_t batch_rows_max;
    uint64_t batch_bytes_max;
    uint64_t producers_max;
    uint64_t ring_bytes_max;
    uint64_t producer_tables_max;
    uint64_t producer_symbols_max;
    const char *allow_users; /* qwp_identity_users(); NULL: any */
    const char *group;       /* qwp_identity_group(); NULL: as it comes */
    uint64_t generation_symbols;
    uint64_t generation_bytes;
    uint64_t producer_symbols;   /* 0: half of the former */
    uint64_t rejected_bytes_max; /* 0: a quarter of sf_max_total_bytes */
    const char *metrics;         /* "off", or where to listen; NULL: not given */

    /* rejected */
    uint8_t action;       /* enum qwp_rejected_action; a word that is no option */
    const char *table;    /* NULL: all */
    const char *out_file; /* NULL: stdout */
    uint64_t rows;        /* shown of each entry */

    /* inspect, drain, rejected */
    const char *slot_dir; /* the word that is no option */

    /* status, check */
    bool json;
    bool watch;
    bool once;
    int64_t interval_ns;
    int64_t timeout_ns;
};

/* Reads argv[0..argc), what follows the command. */
QWP_MUST_USE enum qwp_result qwp_options_parse(struct qwp_options *options,
                                               enum qwp_command command, int argc,
                                               char *const *argv, struct qwp_error *err);
/* Lowers linger and batch bounds to what the connect string's auto_flush_* keys ask for. */
void qwp_options_bound(struct qwp_options *options, const struct qwp_conf *conf);
/* As --log-level and --log-format say, to stderr. */
void qwp_options_log_setup(const struct qwp_options *options);
/* What --help says. */
void qwp_options_describe(enum qwp_command command, FILE *out);

#endif

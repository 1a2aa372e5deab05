/* sink_options: the command line. */
#ifndef SINK_OPTIONS_H
#define SINK_OPTIONS_H

#include <stdbool.h>

#include "core/qwp_error.h"
#include "tests/sink/sink_faults.h"
#include "tests/sink/sink_policy.h"
#include "tests/sink/sink_store.h"

struct sink_options {
    const char *listen;
    const char *port_file;
    const char *tls_dir; /* self-signed */
    const char *tls_cert;
    const char *tls_key;
    const char *summary_path;
    struct sink_store_options store;
    struct sink_policy policy;
    struct sink_faults faults; /* what policy.faults points at */
    char *auth_basic;          /* what policy.auth_basic points at; free() it */
    bool help;
};

/* Keeps pointers into argv. */
QWP_MUST_USE enum qwp_result sink_options_parse(struct sink_options *options, int argc, char **argv,
                                                struct qwp_error *err);
const char *sink_options_help(void);

#endif

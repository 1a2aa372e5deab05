/* qwp_check: `qwp-sidecar check`: what works on this machine, before anything runs.
 *
 * Each line says ok, warn or fail, what was found, and, unless ok, what to do. Nothing is left
 * behind: files it tries with have no name. */
#ifndef QWP_CHECK_H
#define QWP_CHECK_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "sidecar/qwp_options.h"

enum qwp_check_level { QWP_CHECK_OK = 0, QWP_CHECK_WARN = 1, QWP_CHECK_FAIL = 2 };

struct qwp_check {
    FILE *out;
    bool json;
    unsigned counts[3]; /* by level */
};

/* The command; the exit code: 1 when something failed. `conf` NULL: no connect string, or a wrong
 * one, and then `conf_error` says why. */
int qwp_check_run(const struct qwp_options *options, const struct qwp_conf *conf,
                  const struct qwp_error *conf_error);

/* One line. `advice` is left out when the level is ok. */
void qwp_check_add(struct qwp_check *check, enum qwp_check_level level, const char *subject,
                   const char *advice, const char *format, ...) QWP_PRINTF(5, 6);

/* The parts. */
void qwp_check_kernel(struct qwp_check *check);
void qwp_check_limits(struct qwp_check *check, const struct qwp_options *options);
void qwp_check_rings(struct qwp_check *check, const struct qwp_options *options);
void qwp_check_store(struct qwp_check *check, const struct qwp_options *options,
                     const struct qwp_conf *conf);
void qwp_check_servers(struct qwp_check *check, const struct qwp_options *options,
                       const struct qwp_conf *conf);

#endif

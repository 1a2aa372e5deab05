/* qwp-sidecar: the command line. Each command lives in a file of its own. */
#include <stdio.h>
#include <string.h>

#include "core/conf/qwp_conf.h"
#include "core/conf/qwp_option.h"
#include "sidecar/qwp_check.h"
#include "sidecar/qwp_daemon.h"
#include "sidecar/qwp_drain.h"
#include "sidecar/qwp_inspect.h"
#include "sidecar/qwp_options.h"
#include "sidecar/qwp_rejected_cmd.h"
#include "sidecar/qwp_status.h"

enum { EXIT_USAGE = 2 };

/* The system shows everyone the arguments of everyone: what was given there as a secret is gone
 * from there once it is read. */
static void hide_conf(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char *value = NULL;
        if (strncmp(argv[i], "--conf=", 7) == 0) {
            value = argv[i] + 7;
        } else if (strcmp(argv[i - 1], "--conf") == 0) {
            value = argv[i];
        }
        if (value != NULL) {
            memset(value, '*', strlen(value));
        }
    }
}

/* For the commands that cannot do without a connect string. */
static int with_conf(int (*command)(const struct qwp_options *, const struct qwp_conf *),
                     struct qwp_options *options, int argc, char **argv)
{
    struct qwp_conf conf = {0};
    struct qwp_error err = {0};
    if (qwp_conf_load(&conf, options->conf, options->conf_file, &err) != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: %s\n", err.text);
        return EXIT_USAGE;
    }
    hide_conf(argc, argv);
    options->conf = NULL;
    qwp_options_bound(options, &conf);
    const int code = command(options, &conf);
    qwp_conf_fini(&conf);
    return code;
}

/* Without a connect string the servers are left out. */
static int check(struct qwp_options *options, int argc, char **argv)
{
    struct qwp_conf conf = {0};
    struct qwp_error err = {0};
    const bool is_given = qwp_conf_is_given(options->conf, options->conf_file);
    enum qwp_result result = QWP_OK;
    if (is_given) {
        result = qwp_conf_load(&conf, options->conf, options->conf_file, &err);
    }
    hide_conf(argc, argv);
    options->conf = NULL;
    const int code = qwp_check_run(options, is_given && result == QWP_OK ? &conf : NULL,
                                   result != QWP_OK ? &err : NULL);
    qwp_conf_fini(&conf);
    return code;
}

static int print_usage(FILE *out)
{
    fputs("Usage: qwp-sidecar COMMAND [OPTIONS]\n"
          "Carries rows from many local processes to QuestDB over one connection.\n"
          "\n"
          "  run       take rows and send them\n"
          "  status    show a running sidecar and its producers\n"
          "  check     tell what works on this machine, before anything runs\n"
          "  inspect   show what lies in a store-and-forward slot\n"
          "  drain     deliver such a slot and end\n"
          "  rejected  look at rows that the server refused, put them back, export them\n"
          "  version   print the version\n"
          "\n"
          "COMMAND --help tells more.\n",
          out);
    return out == stdout ? 0 : EXIT_USAGE;
}

static int dispatch(enum qwp_command command, int argc, char **argv)
{
    struct qwp_options options;
    struct qwp_error err = {0};
    if (qwp_options_parse(&options, command, argc - 2, argv + 2, &err) != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (options.help) {
        qwp_options_describe(command, stdout);
        return 0;
    }
    switch (command) {
    case QWP_COMMAND_RUN:
        return with_conf(qwp_daemon_run, &options, argc, argv);
    case QWP_COMMAND_STATUS:
        return qwp_status_run(&options);
    case QWP_COMMAND_CHECK:
        return check(&options, argc, argv);
    case QWP_COMMAND_INSPECT:
        return qwp_inspect_run(&options);
    case QWP_COMMAND_DRAIN:
        return with_conf(qwp_drain_run, &options, argc, argv);
    case QWP_COMMAND_REJECTED:
        return options.action == QWP_REJECTED_PUT_BACK_ALL
                   ? with_conf(qwp_rejected_put_back_run, &options, argc, argv)
                   : qwp_rejected_run(&options);
    }
    return EXIT_USAGE;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"run", "status", "check", "inspect", "drain", "rejected"};
    const char *word = argc > 1 ? argv[1] : "";
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(word, names[i]) == 0) {
            return dispatch((enum qwp_command)i, argc, argv);
        }
    }
    if (strcmp(word, "version") == 0 || strcmp(word, "--version") == 0) {
        puts("qwp-sidecar " QWP_VERSION);
        return 0;
    }
    if (strcmp(word, "help") == 0 || strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        return print_usage(stdout);
    }
    if (word[0] != '\0') {
        fprintf(stderr, "qwp-sidecar: unknown command '%s'\n", qwp_show(word).text);
    }
    return print_usage(stderr);
}

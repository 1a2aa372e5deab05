#include "sidecar/qwp_status.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/qwp_clock.h"

/* Long enough for a rate, short enough not to be felt. */
#define RATE_WINDOW_NS INT64_C(300000000)

static volatile sig_atomic_t interrupted;

static void on_signal(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* Ends early on a signal. */
static void pause_ns(int64_t ns)
{
    struct timespec left = {.tv_sec = ns / QWP_NS_PER_S, .tv_nsec = ns % QWP_NS_PER_S};
    nanosleep(&left, NULL);
}

static enum qwp_result look(const struct qwp_options *options, struct qwp_snapshot *snapshot)
{
    struct qwp_error err = {0};
    const enum qwp_result result =
        qwp_snapshot_take(snapshot, options->rings_dir, options->name, &err);
    if (result != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: status: %s\n", err.text);
    }
    return result;
}

static int exit_code(const struct qwp_snapshot *now)
{
    return now->is_live ? 0 : QWP_STATUS_EXIT_NO_SIDECAR;
}

static int show_once(const struct qwp_options *options)
{
    struct qwp_snapshot before = {0};
    struct qwp_snapshot now = {0};
    if (look(options, &now) != QWP_OK) {
        return 1;
    }
    if (now.is_live && !options->json) {
        before = now;
        pause_ns(RATE_WINDOW_NS);
        now = (struct qwp_snapshot){0};
        if (look(options, &now) != QWP_OK) {
            qwp_snapshot_fini(&before);
            return 1;
        }
    }
    const struct qwp_status_view view = {
        .rings_dir = options->rings_dir,
        .name = options->name,
        .before = before.taken_ns != 0 ? &before : NULL,
        .now = &now,
        .line_end = "\n",
    };
    (options->json ? qwp_status_print_json : qwp_status_print)(&view, stdout);
    const int code = exit_code(&now);
    qwp_snapshot_fini(&before);
    qwp_snapshot_fini(&now);
    return code;
}

static void show_next(const struct qwp_options *options, const struct qwp_snapshot *before,
                      const struct qwp_snapshot *now)
{
    const struct qwp_status_view view = {.rings_dir = options->rings_dir,
                                         .name = options->name,
                                         .before = before->taken_ns != 0 ? before : NULL,
                                         .now = now,
                                         .line_end = "\n"};
    if (options->json) {
        qwp_status_print_json(&view, stdout);
    } else {
        qwp_status_print(&view, stdout);
        fputc('\n', stdout);
    }
    fflush(stdout);
}

static int watch(const struct qwp_options *options)
{
    struct qwp_snapshot before = {0};
    struct qwp_snapshot now = {0};
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    int code = 0;
    while (!interrupted && !ferror(stdout)) {
        if (look(options, &now) != QWP_OK) {
            code = 1;
            break;
        }
        show_next(options, &before, &now);
        code = exit_code(&now);
        qwp_snapshot_fini(&before);
        before = now;
        now = (struct qwp_snapshot){0};
        pause_ns(options->interval_ns);
    }
    qwp_snapshot_fini(&before);
    return code;
}

int qwp_status_run(const struct qwp_options *options)
{
    if (!options->json && !options->once && isatty(STDOUT_FILENO) == 1) {
        return qwp_status_screen(options);
    }
    return options->watch ? watch(options) : show_once(options);
}

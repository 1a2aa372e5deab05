#include "sidecar/qwp_status.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
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
        options->rings_dir, options->name, before.taken_ns != 0 ? &before : NULL, &now, 0, "\n"};
    (options->json ? qwp_status_print_json : qwp_status_print)(&view, stdout);
    const int code = exit_code(&now);
    qwp_snapshot_fini(&before);
    qwp_snapshot_fini(&now);
    return code;
}

/* Lines of the terminal that are left for producers. */
static size_t screen_rows(void)
{
    enum { OTHER_LINES = 10 };
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row <= OTHER_LINES) {
        return 0;
    }
    return (size_t)size.ws_row - OTHER_LINES;
}

static void show_next(const struct qwp_options *options, const struct qwp_snapshot *before,
                      const struct qwp_snapshot *now, bool is_screen)
{
    struct qwp_status_view view = {
        options->rings_dir, options->name, before->taken_ns != 0 ? before : NULL, now, 0, "\n"};
    if (options->json) {
        qwp_status_print_json(&view, stdout);
    } else if (is_screen) {
        /* Home, then overwrite line by line: no flicker. */
        view.line_end = "\x1b[K\n";
        view.rows_max = screen_rows();
        fputs("\x1b[H", stdout);
        qwp_status_print(&view, stdout);
        fputs("\x1b[J", stdout);
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
    const bool is_screen = !options->json && isatty(STDOUT_FILENO) == 1;
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    /* No cursor, long lines cut instead of wrapped, clean screen. */
    fputs(is_screen ? "\x1b[?25l\x1b[?7l\x1b[2J" : "", stdout);
    int code = 0;
    while (!interrupted && !ferror(stdout)) {
        if (look(options, &now) != QWP_OK) {
            code = 1;
            break;
        }
        show_next(options, &before, &now, is_screen);
        code = exit_code(&now);
        qwp_snapshot_fini(&before);
        before = now;
        now = (struct qwp_snapshot){0};
        pause_ns(options->interval_ns);
    }
    qwp_snapshot_fini(&before);
    fputs(is_screen ? "\x1b[?7h\x1b[?25h" : "", stdout);
    fflush(stdout);
    return code;
}

int qwp_status_run(const struct qwp_options *options)
{
    return options->watch ? watch(options) : show_once(options);
}

/* The live screen of `qwp-sidecar status`. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_status.h"

/* The alternate screen, so that what was there comes back; no cursor; long lines are cut. */
#define SCREEN_ENTER "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
#define SCREEN_LEAVE "\x1b[?7h\x1b[?25h\x1b[?1049l"

static volatile sig_atomic_t interrupted;

static void on_signal(int number)
{
    interrupted |= number != SIGWINCH; /* a new size only ends the wait */
}

/* Keys come at once and are not shown. False: nothing was changed. */
static bool keys_start(struct termios *before)
{
    if (isatty(STDIN_FILENO) != 1 || tcgetattr(STDIN_FILENO, before) != 0) {
        return false;
    }
    struct termios keys = *before;
    keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    return tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
}

/* Waits, at most until the next look. False: the one who looks has seen enough. */
static bool wait_for_key(bool has_keys, int64_t ns)
{
    struct pollfd in = {.fd = has_keys ? STDIN_FILENO : -1, .events = POLLIN};
    if (poll(&in, 1, (int)(ns / QWP_NS_PER_MS)) <= 0 || interrupted) {
        return !interrupted;
    }
    char key;
    return read(STDIN_FILENO, &key, 1) == 1 && key != 'q' && key != 'Q' && key != 4;
}

/* ---- one picture ---- */

static char *render(const struct qwp_status_view *view, size_t *len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    if (out == NULL) {
        return NULL;
    }
    qwp_status_print(view, out);
    if (fclose(out) != 0) {
        free(text);
        return NULL;
    }
    return text;
}

static size_t lines_of(const char *text)
{
    size_t lines = 0;
    for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    return lines;
}

/* Home, then line over line: no flicker. As many producers as there is room for. */
static void draw(struct qwp_status_view *view, size_t rows)
{
    size_t len;
    view->line_end = "\x1b[K\n";
    view->rows_max = 1;
    char *text = render(view, &len);
    const size_t others = text != NULL ? lines_of(text) : rows;
    free(text);
    view->rows_max = rows > others + 2 ? rows - others - 1 : 1;
    text = render(view, &len);
    fputs("\x1b[H", stdout);
    size_t lines = 0;
    for (const char *at = text; at != NULL && *at != '\0' && lines + 1 < rows; lines++) {
        const char *end = strchr(at, '\n');
        const size_t line = end != NULL ? (size_t)(end - at) + 1 : strlen(at);
        fwrite(at, 1, line, stdout);
        at += line;
    }
    fputs("\x1b[Jq ends", stdout);
    fflush(stdout);
    free(text);
}

int qwp_status_screen(const struct qwp_options *options)
{
    struct qwp_snapshot before = {0};
    struct qwp_snapshot now = {0};
    struct termios terminal;
    struct qwp_error err = {0};
    const struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
    sigaction(SIGWINCH, &action, NULL);
    const bool has_keys = keys_start(&terminal);
    const char *no_color = getenv("NO_COLOR");
    const bool color = no_color == NULL || no_color[0] == '\0';
    struct qwp_status_view view = {0};
    enum qwp_result result;
    fputs(SCREEN_ENTER, stdout);
    do {
        result = qwp_snapshot_take(&now, options->rings_dir, options->name, &err);
        if (result != QWP_OK) {
            break;
        }
        struct winsize size = {.ws_row = 24, .ws_col = 80};
        (void)ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
        view = (struct qwp_status_view){
            .rings_dir = options->rings_dir,
            .name = options->name,
            .before = before.taken_ns != 0 ? &before : NULL,
            .now = &now,
            .color = color,
            .width = size.ws_col,
        };
        draw(&view, size.ws_row > 4 ? size.ws_row : 4);
        qwp_snapshot_fini(&before);
        before = now;
        now = (struct qwp_snapshot){0};
    } while (!ferror(stdout) && wait_for_key(has_keys, options->interval_ns));
    fputs(SCREEN_LEAVE, stdout);
    if (has_keys) {
        tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
    }
    int code = 1;
    if (result == QWP_OK) {
        code = before.is_live ? 0 : QWP_STATUS_EXIT_NO_SIDECAR;
    } else {
        fprintf(stderr, "qwp-sidecar: status: %s\n", err.text);
    }
    fflush(stdout);
    qwp_snapshot_fini(&before);
    return code;
}

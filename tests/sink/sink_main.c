/* qwp-sink: a QWP ingestion server for tests and demos; see --help. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "core/qwp_log.h"
#include "tests/sink/sink_options.h"
#include "tests/sink/sink_server.h"
#include "tests/sink/sink_store.h"
#include "tests/sink/sink_tls.h"

enum { ACCEPT_PAUSE_MS = 100, LINE_BYTES = 1024 };

struct sink {
    struct sink_options options;
    struct sink_store store;
    struct sink_server server;
    SSL_CTX *tls;
    int signal_fd;
    bool stdin_open;
    bool accept_paused; /* out of descriptors or threads: try again in a while */
    struct sink_stall refusing;
    struct sink_stall not_accepting;
    char line[LINE_BYTES];
    size_t line_len;
};

/* Whole or not at all: written beside and renamed. */
static enum qwp_result write_file(const char *path, const char *text, size_t len,
                                  struct qwp_error *err)
{
    char temporary[4096];
    const int n = snprintf(temporary, sizeof temporary, "%s.new", path);
    if (n < 0 || (size_t)n >= sizeof temporary) {
        return qwp_fail(err, QWP_INVALID, 0, "the path '%.64s...' is too long", path);
    }
    FILE *file = fopen(temporary, "we");
    if (file == NULL) {
        return qwp_fail(err, QWP_IO, errno, "writing %s", temporary);
    }
    bool written = fwrite(text, 1, len, file) == len;
    written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) {
        const int sys = errno;
        (void)unlink(temporary);
        return qwp_fail(err, QWP_IO, sys, "writing %s", path);
    }
    return QWP_OK;
}

static enum qwp_result open_tls(struct sink *sink, struct qwp_error *err)
{
    const struct sink_options *options = &sink->options;
    if (options->tls_dir != NULL) {
        return sink_tls_open_self_signed(&sink->tls, options->tls_dir, err);
    }
    if (options->tls_cert != NULL) {
        return sink_tls_open(&sink->tls, options->tls_cert, options->tls_key, err);
    }
    return QWP_OK;
}

/* Before any thread, so that all of them have the signals blocked. */
static enum qwp_result open_signals(struct sink *sink, struct qwp_error *err)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    sink->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return sink->signal_fd >= 0 ? QWP_OK : qwp_fail(err, QWP_IO, errno, "making a signalfd");
}

static enum qwp_result announce(struct sink *sink, struct qwp_error *err)
{
    qwp_log(QWP_LOG_INFO, "listening", "address=%s port=%u tls=%s", sink->options.listen,
            sink->server.port, sink->tls != NULL ? "yes" : "no");
    if (sink->options.port_file == NULL) {
        return QWP_OK;
    }
    char text[16];
    const int n = snprintf(text, sizeof text, "%u\n", sink->server.port);
    return write_file(sink->options.port_file, text, (size_t)n, err);
}

static enum qwp_result sink_open(struct sink *sink, struct qwp_error *err)
{
    enum qwp_result result = open_signals(sink, err);
    if (result == QWP_OK) {
        result = open_tls(sink, err);
    }
    if (result == QWP_OK) {
        result = sink_store_open(&sink->store, &sink->options.store, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    result = sink_server_open(&sink->server, sink->options.listen, &sink->store,
                              &sink->options.policy, sink->tls, err);
    if (result == QWP_OK) {
        result = announce(sink, err);
        if (result != QWP_OK) {
            sink_server_close(&sink->server);
        }
    }
    if (result != QWP_OK) {
        sink_store_close(&sink->store);
    }
    return result;
}

static void print_summary(struct sink *sink)
{
    struct sink_buffer text = {0};
    sink_store_summary(&sink->store, &text);
    (void)fwrite(text.at, 1, text.len, stdout);
    (void)fflush(stdout);
    sink_buffer_fini(&text);
}

static void print_faults(struct sink *sink)
{
    struct sink_buffer text = {0};
    sink_faults_list(&sink->options.faults, &text);
    (void)fwrite(text.at, 1, text.len, stdout);
    (void)fflush(stdout);
    sink_buffer_fini(&text);
}

/* Faults come and go by time, so they are looked at in steps while there are any. */
static int look_at_faults(struct sink *sink)
{
    struct sink_faults *faults = &sink->options.faults;
    const struct sink_fault_place place = {sink->server.accepted, SINK_FAULT_NOWHERE,
                                           SINK_FAULT_NOWHERE, NULL, NULL};
    struct qwp_error err = {0};
    const bool refuse =
        sink_faults_stall(faults, SINK_FAULT_REFUSE, SINK_FAULT_ANY, &place, &sink->refusing);
    if (sink_server_refuse(&sink->server, refuse, &err) != QWP_OK) {
        qwp_log(QWP_LOG_ERROR, "cannot listen again", "reason=\"%s\"", err.text);
        return ACCEPT_PAUSE_MS;
    }
    if (sink_faults_stall(faults, SINK_FAULT_STALL, SINK_STALL_ACCEPT, &place,
                          &sink->not_accepting)) {
        sink->accept_paused = true;
    }
    if (!sink_faults_none(faults)) {
        return SINK_FAULT_STEP_MS;
    }
    return sink->accept_paused ? ACCEPT_PAUSE_MS : -1;
}

/* An answer in any case, so that who waits for it is not kept waiting. */
static void change_faults(struct sink *sink, const char *spec)
{
    struct qwp_error err = {0};
    if (spec == NULL) {
        sink_faults_clear(&sink->options.faults);
    } else if (sink_faults_add(&sink->options.faults, spec, &err) != QWP_OK) {
        qwp_log(QWP_LOG_ERROR, "not a fault", "reason=\"%s\"", err.text);
    }
    (void)look_at_faults(sink); /* in effect once it is answered */
    print_faults(sink);
}

static void take_line(struct sink *sink)
{
    sink->line[sink->line_len] = '\0';
    sink->line_len = 0;
    if (strcmp(sink->line, "summary") == 0) {
        print_summary(sink);
    } else if (strcmp(sink->line, "faults") == 0) {
        print_faults(sink);
    } else if (strcmp(sink->line, "faults clear") == 0) {
        change_faults(sink, NULL);
    } else if (strncmp(sink->line, "fault ", 6) == 0) {
        change_faults(sink, sink->line + 6);
    } else if (sink->line[0] != '\0') {
        qwp_log(QWP_LOG_WARN, "unknown command on stdin", "known=summary,fault,faults");
    }
}

static void read_stdin(struct sink *sink)
{
    char bytes[LINE_BYTES];
    const ssize_t n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        sink->stdin_open = false;
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            take_line(sink);
        } else if (sink->line_len < sizeof sink->line - 1) {
            sink->line[sink->line_len++] = bytes[i];
        }
    }
}

static void accept_one(struct sink *sink)
{
    struct qwp_error err = {0};
    const enum qwp_result result = sink_server_accept(&sink->server, &err);
    if (result != QWP_OK && result != QWP_AGAIN) {
        qwp_log(QWP_LOG_ERROR, "cannot take a connection", "reason=\"%s\"", err.text);
        sink->accept_paused = true;
    }
}

static void run(struct sink *sink)
{
    sink->stdin_open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
    for (;;) {
        const int timeout_ms = look_at_faults(sink);
        struct pollfd polled[] = {
            {.fd = sink->signal_fd, .events = POLLIN},
            {.fd = sink->accept_paused ? -1 : sink->server.listen_fd, .events = POLLIN},
            {.fd = sink->stdin_open ? STDIN_FILENO : -1, .events = POLLIN},
        };
        const int n = poll(polled, 3, timeout_ms);
        sink->accept_paused = false;
        if (n <= 0) {
            continue;
        }
        if (polled[0].revents != 0) {
            return;
        }
        if (polled[1].revents != 0) {
            accept_one(sink);
        }
        if (polled[2].revents != 0) {
            read_stdin(sink);
        }
    }
}

static enum qwp_result finish(struct sink *sink, struct qwp_error *err)
{
    sink_server_close(&sink->server);
    struct sink_buffer text = {0};
    sink_store_summary(&sink->store, &text);
    (void)fwrite(text.at, 1, text.len, stdout);
    (void)fflush(stdout);
    enum qwp_result result = QWP_OK;
    if (sink->options.summary_path != NULL) {
        result = write_file(sink->options.summary_path, text.at, text.len, err);
    }
    sink_buffer_fini(&text);
    sink_store_close(&sink->store);
    return result;
}

int main(int argc, char **argv)
{
    struct sink sink = {.signal_fd = -1};
    struct qwp_error err = {0};
    enum qwp_result result = sink_options_parse(&sink.options, argc, argv, &err);
    if (result == QWP_OK && sink.options.help) {
        fputs(sink_options_help(), stdout);
        fputs(sink_faults_help(), stdout);
        return EXIT_SUCCESS;
    }
    if (result == QWP_OK) {
        result = sink_open(&sink, &err);
    }
    if (result == QWP_OK) {
        run(&sink);
        result = finish(&sink, &err);
    }
    if (result != QWP_OK) {
        fprintf(stderr, "qwp-sink: %s\n", err.text);
    }
    SSL_CTX_free(sink.tls);
    if (sink.signal_fd >= 0) {
        close(sink.signal_fd);
    }
    free(sink.options.auth_basic);
    sink_faults_fini(&sink.options.faults);
    return result == QWP_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}

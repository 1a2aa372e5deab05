#include "sidecar/qwp_drain.h"

#include <inttypes.h>
#include <signal.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_json.h"
#include "sidecar/qwp_sender.h"

enum { EXIT_UNDELIVERED = 3, DISCONNECT_GRACE_MS = 1000 };

static volatile sig_atomic_t stopped;
static struct qwp_loop *signalled_loop;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
    qwp_loop_wake(signalled_loop);
}

static void signals_setup(struct qwp_loop *loop)
{
    signalled_loop = loop;
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

static bool is_delivered(struct qwp_seglog *log)
{
    return qwp_seglog_acked_count(log) == qwp_seglog_published_count(log);
}

/* Sends until everything is acknowledged, or it is time to end. */
static void deliver(struct qwp_sender *sender, struct qwp_seglog *log, struct qwp_loop *loop,
                    int64_t deadline_ns)
{
    while (!is_delivered(log) && !stopped) {
        const int64_t now_ns = qwp_clock_monotonic_ns();
        if (now_ns >= deadline_ns) {
            return;
        }
        bool more;
        int64_t next_ns;
        const bool worked = qwp_sender_do_work(sender, now_ns);
        qwp_seglog_maintain(log, now_ns, &more, &next_ns);
        next_ns = next_ns < deadline_ns ? next_ns : deadline_ns;
        (void)qwp_loop_run(loop, worked || more ? 0 : next_ns);
    }
}

static void goodbye(struct qwp_sender *sender, struct qwp_loop *loop)
{
    const int64_t grace_ns = (int64_t)DISCONNECT_GRACE_MS * QWP_NS_PER_MS;
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + grace_ns;
    qwp_sender_disconnect(sender, grace_ns);
    while (!qwp_sender_is_down(sender) && qwp_clock_monotonic_ns() < deadline_ns) {
        (void)qwp_loop_run(loop, deadline_ns);
    }
}

static void print_result(const struct qwp_options *options, struct qwp_seglog *log,
                         uint64_t acked_before)
{
    const uint64_t published = qwp_seglog_published_count(log);
    const uint64_t acked = qwp_seglog_acked_count(log);
    if (options->json) {
        fputs("{\"slot\":", stdout);
        qwp_json_text(stdout, options->slot_dir);
        printf(",\"frames_delivered\":%" PRIu64 ",\"frames_waiting\":%" PRIu64 "}\n",
               acked - acked_before, published - acked);
    } else {
        printf("%s: %" PRIu64 " frames delivered, %" PRIu64 " waiting\n", options->slot_dir,
               acked - acked_before, published - acked);
    }
}

static enum qwp_result drain(const struct qwp_options *options, const struct qwp_conf *conf,
                             struct qwp_seglog *log, struct qwp_loop *loop, struct qwp_error *err)
{
    /* The sender's figures go to a page that nobody reads. */
    struct qwp_control_header *page =
        aligned_alloc(alignof(struct qwp_control_header), sizeof *page);
    struct qwp_sender *sender = calloc(1, sizeof *sender);
    if (page == NULL || sender == NULL) {
        free(page);
        free(sender);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to drain %s", options->slot_dir);
    }
    *page = (struct qwp_control_header){0};
    _Atomic size_t message_bytes_max = QWP_MESSAGE_BYTES_DEFAULT;
    const struct qwp_sender_options sending = {
        .loop = loop,
        .conf = conf,
        .log = log,
        .page = page,
        .message_bytes_max = &message_bytes_max,
    };
    const enum qwp_result result = qwp_sender_init(sender, &sending, err);
    if (result == QWP_OK) {
        signals_setup(loop);
        const int64_t deadline_ns = options->timeout_ns == 0
                                        ? QWP_NEVER_NS
                                        : qwp_clock_monotonic_ns() + options->timeout_ns;
        const uint64_t acked_before = qwp_seglog_acked_count(log);
        deliver(sender, log, loop, deadline_ns);
        goodbye(sender, loop);
        print_result(options, log, acked_before);
    }
    qwp_sender_fini(sender);
    free(sender);
    free(page);
    return result;
}

int qwp_drain_run(const struct qwp_options *options, const struct qwp_conf *conf)
{
    qwp_log_setup((enum qwp_log_level)options->log_level, STDERR_FILENO);
    struct qwp_error err = {0};
    struct qwp_seglog *log = NULL;
    struct qwp_loop *loop = NULL;
    const struct qwp_seglog_options opening = {
        .dir = options->slot_dir,
        .segment_bytes = conf->sf_segment_bytes,
        .total_bytes_max = conf->sf_total_bytes_max,
        .durability = (enum qwp_durability)conf->sf_durability,
        .sync_interval_ns = conf->sf_sync_interval_ns,
        .payload_crc = true,
        .symbols_max = QWP_DICT_SYMBOLS_MAX,
        .symbol_bytes_max = UINT64_C(256) * 1024 * 1024,
    };
    int code = 1;
    enum qwp_result result = QWP_OK;
    if (access(options->slot_dir, F_OK) != 0) {
        result = qwp_fail(&err, QWP_INVALID, 0, "%s: no such slot", options->slot_dir);
    }
    result = result == QWP_OK ? qwp_seglog_open(&log, &opening, &err) : result;
    result = result == QWP_OK ? qwp_loop_open(&loop, &(struct qwp_loop_options){0}, &err) : result;
    result = result == QWP_OK ? drain(options, conf, log, loop, &err) : result;
    if (result == QWP_OK) {
        code = is_delivered(log) ? 0 : EXIT_UNDELIVERED;
        struct qwp_error flush;
        if (qwp_seglog_flush(log, &flush) != QWP_OK) {
            qwp_log(QWP_LOG_WARN, "store could not be synced", "reason=\"%s\"", flush.text);
        }
    } else {
        fprintf(stderr, "qwp-sidecar: %s\n", err.text);
    }
    qwp_seglog_close(log);
    qwp_loop_close(loop);
    return code;
}

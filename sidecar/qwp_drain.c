#include "sidecar/qwp_drain.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_deliver.h"
#include "sidecar/qwp_json.h"

enum { EXIT_UNDELIVERED = 3 };

static void print_counts(const struct qwp_options *options, struct qwp_drainer_counts counts)
{
    if (options->json) {
        fputs("{\"slot\":", stdout);
        qwp_json_text(stdout, options->slot_dir);
        printf(",\"frames_delivered\":%" PRIu64 ",\"frames_waiting\":%" PRIu64
               ",\"frames_damaged\":%" PRIu64 ",\"rows_refused\":%" PRIu64 "}\n",
               counts.delivered, counts.waiting, counts.damaged, counts.rows_refused);
    } else {
        printf("%s: %" PRIu64 " frames delivered, %" PRIu64 " waiting\n", options->slot_dir,
               counts.delivered, counts.waiting);
        if (counts.damaged > 0) {
            printf("%" PRIu64 " frames are damaged or lie behind such: set aside as *.corrupt\n",
                   counts.damaged);
        }
        if (counts.rows_refused > 0) {
            printf("%" PRIu64 " rows were refused by the server: qwp-sidecar rejected show %s\n",
                   counts.rows_refused, options->slot_dir);
        }
    }
}

int qwp_drain_run(const struct qwp_options *options, const struct qwp_conf *conf)
{
    qwp_options_log_setup(options);
    struct qwp_error err = {0};
    struct qwp_drainer drainer = {0};
    struct qwp_loop *loop = NULL;
    int code = 1;
    const struct qwp_loop_options loop_options = {.kind = (enum qwp_loop_kind)options->loop};
    enum qwp_result result = qwp_loop_open(&loop, &loop_options, &err);
    if (result == QWP_OK) {
        result = qwp_drainer_open(&drainer, options->slot_dir, conf, loop, &err);
    }
    if (result == QWP_OK) {
        qwp_deliver_signals_begin(loop);
        qwp_deliver(&drainer,
                    options->timeout_ns == 0 ? QWP_NEVER_NS
                                             : qwp_clock_monotonic_ns() + options->timeout_ns,
                    false);
        qwp_deliver_signals_end();
        const struct qwp_drainer_counts counts = qwp_drainer_count(&drainer);
        print_counts(options, counts);
        const bool all = counts.waiting == 0 && counts.damaged == 0 && counts.rows_refused == 0;
        code = all ? 0 : EXIT_UNDELIVERED;
    } else {
        fprintf(stderr, "qwp-sidecar: %s\n", err.text);
    }
    qwp_drainer_close(&drainer);
    qwp_loop_close(loop);
    qwp_log_flush_all();
    return code;
}

#include "sidecar/qwp_observe.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_health.h"
#include "sidecar/qwp_http.h"
#include "sidecar/qwp_metrics.h"
#include "sidecar/qwp_snapshot.h"

struct qwp_observe {
    struct qwp_observe_options options;
    struct qwp_http *http;
    int64_t asked_ns; /* see qwp_health_live(); the server's thread's */
};

static uint32_t load_u32(const _Atomic uint32_t *at)
{
    return atomic_load_explicit(at, memory_order_relaxed);
}

/* The duty is asked for a sign of life, which the next look will see. */
static void ask(struct qwp_observe *observe, const struct qwp_snapshot *snapshot)
{
    if (snapshot->beat_ns >= observe->asked_ns) {
        observe->asked_ns = snapshot->taken_ns;
    }
    qwp_loop_wake(observe->options.loop);
}

static int answer_health(struct qwp_health health, FILE *body)
{
    fprintf(body, "%s\n", health.text);
    return health.ok ? 200 : 503;
}

static void answer_metrics(const struct qwp_observe *observe, const struct qwp_snapshot *snapshot,
                           FILE *body)
{
    const struct qwp_orphans *orphans = observe->options.orphans;
    const struct qwp_metrics_extra extra = {
        .now_ns = snapshot->taken_ns,
        .ready = qwp_health_ready(snapshot, observe->asked_ns, snapshot->taken_ns).ok,
        .drainers_active = load_u32(&orphans->active),
        .drainers_succeeded = load_u32(&orphans->succeeded),
        .drainers_failed = load_u32(&orphans->failed),
        .log_folded = qwp_log_folded_count(),
        .log_lost = qwp_log_lost_count(),
    };
    qwp_metrics_print(snapshot, &extra, body);
}

static int answer(void *owner, const char *path, FILE *body, const char **content_type)
{
    struct qwp_observe *observe = owner;
    const bool is_metrics = strcmp(path, "/metrics") == 0;
    const bool is_live = strcmp(path, "/healthz") == 0;
    const bool is_ready = strcmp(path, "/readyz") == 0;
    if (!is_metrics && !is_live && !is_ready) {
        fputs("qwp-sidecar: /metrics /healthz /readyz\n", body);
        return strcmp(path, "/") == 0 ? 200 : 404;
    }
    struct qwp_snapshot snapshot;
    struct qwp_error err;
    if (qwp_snapshot_copy(&snapshot, observe->options.control, &err) != QWP_OK) {
        fprintf(body, "%s\n", err.text);
        return 500;
    }
    int status = 200;
    if (is_metrics) {
        *content_type = QWP_METRICS_CONTENT_TYPE;
        answer_metrics(observe, &snapshot, body);
    } else {
        const int64_t now_ns = snapshot.taken_ns;
        status = answer_health(is_live ? qwp_health_live(&snapshot, observe->asked_ns, now_ns)
                                       : qwp_health_ready(&snapshot, observe->asked_ns, now_ns),
                               body);
        ask(observe, &snapshot);
    }
    qwp_snapshot_fini(&snapshot);
    return status;
}

enum qwp_result qwp_observe_start(struct qwp_observe **out,
                                  const struct qwp_observe_options *options, struct qwp_error *err)
{
    struct qwp_observe *observe = calloc(1, sizeof *observe);
    if (observe == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for metrics");
    }
    observe->options = *options;
    const enum qwp_result result =
        qwp_http_open(&observe->http, options->address, answer, observe, err);
    if (result != QWP_OK) {
        free(observe);
        return result;
    }
    *out = observe;
    return QWP_OK;
}

uint16_t qwp_observe_port(const struct qwp_observe *observe)
{
    return qwp_http_port(observe->http);
}

void qwp_observe_stop(struct qwp_observe *observe)
{
    if (observe == NULL) {
        return;
    }
    qwp_http_close(observe->http);
    free(observe);
}

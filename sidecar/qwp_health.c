#include "sidecar/qwp_health.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "core/qwp_clock.h"

static struct qwp_health well(const char *text)
{
    struct qwp_health health = {.ok = true};
    snprintf(health.text, sizeof health.text, "%s", text);
    return health;
}

QWP_PRINTF(1, 2) static struct qwp_health unwell(const char *format, ...)
{
    struct qwp_health health = {.ok = false};
    va_list args;
    va_start(args, format);
    vsnprintf(health.text, sizeof health.text, format, args);
    va_end(args);
    return health;
}

/* For how long the duty cycle owes a sign of life; 0: it does not. */
static int64_t silent_s(const struct qwp_snapshot *snapshot, int64_t asked_ns, int64_t now_ns)
{
    return asked_ns == 0 || snapshot->beat_ns >= asked_ns ? 0 : (now_ns - asked_ns) / QWP_NS_PER_S;
}

struct qwp_health qwp_health_live(const struct qwp_snapshot *snapshot, int64_t asked_ns,
                                  int64_t now_ns)
{
    const int64_t s = silent_s(snapshot, asked_ns, now_ns);
    if (s >= QWP_HEALTH_DEAD_S) {
        return unwell("the sidecar's work has stood still for %" PRId64 " s", s);
    }
    return well("ok");
}

/* Since when frames wait and none was acknowledged; only with oldest_ns. */
static int64_t stuck_s(const struct qwp_snapshot *snapshot, int64_t now_ns)
{
    const int64_t since_ns =
        snapshot->progress_ns > snapshot->oldest_ns ? snapshot->progress_ns : snapshot->oldest_ns;
    return (now_ns - since_ns) / QWP_NS_PER_S;
}

struct qwp_health qwp_health_ready(const struct qwp_snapshot *snapshot, int64_t asked_ns,
                                   int64_t now_ns)
{
    const int64_t s = silent_s(snapshot, asked_ns, now_ns);
    if (s >= QWP_HEALTH_STUCK_S) {
        return unwell("not ready: the sidecar's work has stood still for %" PRId64 " s", s);
    }
    if (snapshot->state != QWP_SIDECAR_RUNNING) {
        return unwell("not ready: closing");
    }
    if (snapshot->credentials_refused) {
        return unwell("not ready: %s refuses the credentials: %s", snapshot->endpoint,
                      snapshot->last_error);
    }
    if (snapshot->store_state == QWP_STORE_BLOCKED) {
        return unwell("not ready: the store cannot be written, rows wait in their rings: %s",
                      snapshot->store_error);
    }
    const uint64_t frames = snapshot->counters[QWP_SIDECAR_FRAMES_WAITING];
    if (frames > 0 && snapshot->oldest_ns != 0 && stuck_s(snapshot, now_ns) >= QWP_HEALTH_STUCK_S) {
        return unwell("not ready: %" PRIu64 " frames wait and none was acknowledged for %" PRId64
                      " s%s; last error: %s",
                      frames, stuck_s(snapshot, now_ns),
                      snapshot->store_state == QWP_STORE_FULL ? ", the store is full" : "",
                      snapshot->last_error[0] != '\0' ? snapshot->last_error : "none");
    }
    return well("ready");
}

#include <inttypes.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "ipc/qwp_rendezvous.h"
#include "sidecar/qwp_answer.h"
#include "sidecar/qwp_json.h"
#include "sidecar/qwp_latency.h"
#include "sidecar/qwp_status.h"

/* ---- words ---- */

static const char *sidecar_state_name(const struct qwp_snapshot *now)
{
    if (!now->has_control) {
        return "none";
    }
    if (!now->is_live) {
        return "gone";
    }
    return now->state == QWP_SIDECAR_CLOSING ? "closing" : "running";
}

static const char *connection_name(uint32_t connection)
{
    switch (connection) {
    case QWP_CONNECTION_DOWN:
        return "down";
    case QWP_CONNECTION_CONNECTING:
        return "connecting";
    case QWP_CONNECTION_CATCHING_UP:
        return "catching up";
    case QWP_CONNECTION_UP:
        return "up";
    default:
        return "unknown";
    }
}

static const char *store_state_name(uint32_t state)
{
    switch (state) {
    case QWP_STORE_OK:
        return "ok";
    case QWP_STORE_FULL:
        return "full";
    case QWP_STORE_BLOCKED:
        return "cannot be written";
    default:
        return "unknown";
    }
}

static const char *ring_state_name(uint32_t state)
{
    switch (state) {
    case QWP_RING_NEW:
        return "new";
    case QWP_RING_ATTACHED:
        return "attached";
    case QWP_RING_CLOSING:
        return "closing";
    case QWP_RING_DETACHED:
        return "detached";
    case QWP_RING_REFUSED:
        return "refused";
    default:
        return "unknown";
    }
}

/* ---- numbers for people ---- */

struct figure {
    char text[32];
};

/* 1,234,567 */
static struct figure count_text(uint64_t count)
{
    struct figure figure = {""};
    char digits[24];
    const int len = snprintf(digits, sizeof digits, "%" PRIu64, count);
    char *to = figure.text;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            *to++ = ',';
        }
        *to++ = digits[i];
    }
    *to = '\0';
    return figure;
}

static struct figure scaled_text(double value, double step, const char *const *units)
{
    struct figure figure;
    size_t unit = 0;
    while (value >= step && units[unit + 1] != NULL) {
        value /= step;
        unit++;
    }
    const int decimals = unit > 0 && value < 100 ? 1 : 0;
    snprintf(figure.text, sizeof figure.text, "%.*f%s", decimals, value, units[unit]);
    return figure;
}

static struct figure bytes_text(uint64_t bytes)
{
    static const char *const units[] = {" B", " KiB", " MiB", " GiB", " TiB", NULL};
    return scaled_text((double)bytes, 1024, units);
}

static struct figure byte_rate_text(double per_second)
{
    static const char *const units[] = {" B/s", " KiB/s", " MiB/s", " GiB/s", NULL};
    return scaled_text(per_second, 1024, units);
}

static struct figure rate_text(double per_second)
{
    static const char *const units[] = {"/s", " k/s", " M/s", " G/s", NULL};
    return scaled_text(per_second, 1000, units);
}

/* From a wall time, which may be anything, to now. */
static struct figure since_text(int64_t then_us)
{
    struct figure figure;
    const int64_t now_us = qwp_clock_wall_ns() / QWP_NS_PER_US;
    const int64_t s = then_us > 0 && then_us < now_us ? (now_us - then_us) / 1000000 : 0;
    if (s < 60) {
        snprintf(figure.text, sizeof figure.text, "%" PRId64 "s", s);
    } else if (s < 3600) {
        snprintf(figure.text, sizeof figure.text, "%" PRId64 "m %02" PRId64 "s", s / 60, s % 60);
    } else if (s < 86400) {
        snprintf(figure.text, sizeof figure.text, "%" PRId64 "h %02" PRId64 "m", s / 3600,
                 s / 60 % 60);
    } else {
        snprintf(figure.text, sizeof figure.text, "%" PRId64 "d %02" PRId64 "h", s / 86400,
                 s / 3600 % 24);
    }
    return figure;
}

static double per_second(const struct qwp_status_view *view, uint64_t before, uint64_t now)
{
    const int64_t ns = view->now->taken_ns - view->before->taken_ns;
    return ns > 0 && now > before ? (double)(now - before) * 1e9 / (double)ns : 0;
}

/* Looks of two different lives have no rate between them. */
static bool has_rates(const struct qwp_status_view *view)
{
    return view->before != NULL && view->now->is_live && view->before->gen == view->now->gen;
}

static double sidecar_rate(const struct qwp_status_view *view, int counter)
{
    return per_second(view, view->before->counters[counter], view->now->counters[counter]);
}

/* ---- text ---- */

/* Nothing unless there is colour. */
static const char *paint(const struct qwp_status_view *view, const char *sequence)
{
    return view->color ? sequence : "";
}
#define BOLD   "\x1b[1m"
#define RED    "\x1b[31m"
#define GREEN  "\x1b[32m"
#define YELLOW "\x1b[33m"
#define PLAIN  "\x1b[0m"

static uint64_t difference(uint64_t more, uint64_t less)
{
    return more > less ? more - less : 0;
}

static void print_head(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    fprintf(out, "instance %s in %s: ", view->name, view->rings_dir);
    if (!now->has_control) {
        fprintf(out, "no sidecar has run here; rings waiting: %" PRIu64 "%s", now->ring_count,
                view->line_end);
        return;
    }
    if (!now->is_live) {
        fprintf(out, "the sidecar is gone; rings there: %" PRIu64 "; as it left:%s",
                now->ring_count, view->line_end);
        return;
    }
    fprintf(out, "sidecar %s %s, pid %" PRIu32 ", up %s%s", now->version, sidecar_state_name(now),
            now->sidecar_pid, since_text(now->started_us).text, view->line_end);
}

/* Only what a person has to know of. */
static void print_store(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    const uint64_t *c = now->counters;
    if (now->is_live && now->store_state != QWP_STORE_OK) {
        fprintf(out, "STORE     %s, rows wait in their rings: %s%s",
                store_state_name(now->store_state), now->store_error, view->line_end);
    }
    if (now->is_live && now->keeper_failing) {
        fprintf(out, "STORE     housekeeping fails, it is tried again: %s%s", now->keeper_error,
                view->line_end);
    }
    if (c[QWP_SIDECAR_FRAMES_UNSYNCED] != 0 || c[QWP_SIDECAR_SYNC_FAILURES] != 0) {
        fprintf(out,
                "disk      frames not synced yet %s, failed syncs %s, segments not to be relied on "
                "if the host crashes %s%s",
                count_text(c[QWP_SIDECAR_FRAMES_UNSYNCED]).text,
                count_text(c[QWP_SIDECAR_SYNC_FAILURES]).text,
                count_text(c[QWP_SIDECAR_SEGMENTS_SUSPECT]).text, view->line_end);
    }
}

static const char *trouble_state_name(uint32_t state)
{
    switch (state) {
    case QWP_TROUBLE_SUSPECT:
        return "suspect";
    case QWP_TROUBLE_BLOCKED:
        return "blocked";
    case QWP_TROUBLE_HELD:
        return "blocked, its producers wait";
    default:
        return "unknown";
    }
}

/* Tables of which the server refuses rows. */
static void print_troubles(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    for (size_t i = 0; i < now->trouble_count; i++) {
        const struct qwp_snapshot_trouble *trouble = &now->troubles[i];
        fprintf(out, "TABLE     %s is %s, %s rows set aside: %s: %s%s", trouble->name,
                trouble_state_name(trouble->state), count_text(trouble->rows_aside).text,
                qwp_answer_name(qwp_answer_index((uint8_t)trouble->status)), trouble->reason,
                view->line_end);
    }
    if (now->rejected_bytes > 0) {
        fprintf(out, "refused   %s of %s, see `qwp-sidecar rejected`: %s%s",
                bytes_text(now->rejected_bytes).text, bytes_text(now->rejected_bytes_max).text,
                now->rejected_dir, view->line_end);
    }
}

static void json_troubles(const struct qwp_snapshot *now, FILE *out)
{
    fprintf(out,
            ",\"rejected_bytes\":%" PRIu64 ",\"rejected_bytes_max\":%" PRIu64
            ",\"tables_suspect\":%" PRIu32 ",\"tables_blocked\":%" PRIu32,
            now->rejected_bytes, now->rejected_bytes_max, now->tables_suspect, now->tables_blocked);
    fputs(",\"rejected_dir\":", out);
    qwp_json_text(out, now->rejected_dir);
    fputs(",\"troubles\":[", out);
    for (size_t i = 0; i < now->trouble_count; i++) {
        const struct qwp_snapshot_trouble *trouble = &now->troubles[i];
        fputs(i > 0 ? ",{\"table\":" : "{\"table\":", out);
        qwp_json_text(out, trouble->name);
        fprintf(out, ",\"state\":\"%s\",\"answer\":\"%s\",\"rows_aside\":%" PRIu64 ",\"reason\":",
                trouble->state == QWP_TROUBLE_HELD ? "held" : trouble_state_name(trouble->state),
                qwp_answer_name(qwp_answer_index((uint8_t)trouble->status)), trouble->rows_aside);
        qwp_json_text(out, trouble->reason);
        fputc('}', out);
    }
    fputc(']', out);
}

/* The bucket's upper edge that at least `part` of the frames do not exceed; those of between the
 * two looks if there were any. */
static struct figure quantile_text(const struct qwp_snapshot_latency *now,
                                   const struct qwp_snapshot_latency *before, double part)
{
    uint64_t counts[QWP_CONTROL_LATENCY_BUCKETS];
    uint64_t all = 0, seen = 0;
    for (uint32_t i = 0; i < QWP_CONTROL_LATENCY_BUCKETS; i++) {
        counts[i] = difference(now->buckets[i], before != NULL ? before->buckets[i] : 0);
        all += counts[i];
    }
    if (all == 0) {
        return before != NULL ? quantile_text(now, NULL, part) : (struct figure){"-"};
    }
    uint32_t bucket = 0;
    for (; bucket + 1 < QWP_CONTROL_LATENCY_BUCKETS; bucket++) {
        seen += counts[bucket];
        if ((double)seen >= part * (double)all) {
            break;
        }
    }
    const int64_t edge_ns = qwp_latency_bucket_ns(bucket);
    static const char *const units[] = {" us", " ms", " s", NULL};
    return edge_ns == QWP_NEVER_NS ? (struct figure){"longer"}
                                   : scaled_text((double)edge_ns / 1000, 1000, units);
}

/* How long frames take, and how long the oldest has waited by now. */
static void print_waits(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    const struct qwp_snapshot *before = has_rates(view) ? view->before : NULL;
    const struct qwp_snapshot_latency *stored = before != NULL ? &before->seen_to_stored : NULL;
    const struct qwp_snapshot_latency *acked = before != NULL ? &before->seen_to_acked : NULL;
    fprintf(out, "latency   to store %s, 99 %% %s; to server %s, 99 %% %s",
            quantile_text(&now->seen_to_stored, stored, 0.5).text,
            quantile_text(&now->seen_to_stored, stored, 0.99).text,
            quantile_text(&now->seen_to_acked, acked, 0.5).text,
            quantile_text(&now->seen_to_acked, acked, 0.99).text);
    if (now->is_live && now->counters[QWP_SIDECAR_FRAMES_WAITING] > 0 && now->oldest_ns > 0) {
        fprintf(out, "; oldest waits %" PRId64 " s",
                (now->taken_ns - now->oldest_ns) / QWP_NS_PER_S);
    }
    fputs(view->line_end, out);
}

static void print_sidecar(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    const uint64_t *c = now->counters;
    fprintf(out, "server    %s", now->endpoint[0] != '\0' ? now->endpoint : "(none yet)");
    if (now->is_live) {
        const bool is_up = now->connection == QWP_CONNECTION_UP;
        const bool is_down = now->connection == QWP_CONNECTION_DOWN;
        fprintf(out, " %s%s%s",
                paint(view, is_up     ? GREEN
                            : is_down ? RED
                                      : YELLOW),
                connection_name(now->connection), paint(view, PLAIN));
    }
    if (now->is_live && now->connected_us > 0) {
        fprintf(out, " for %s", since_text(now->connected_us).text);
    }
    fprintf(out, ", connects %s, disconnects %s, errors %s%s",
            count_text(c[QWP_SIDECAR_CONNECTS]).text, count_text(c[QWP_SIDECAR_DISCONNECTS]).text,
            count_text(c[QWP_SIDECAR_SERVER_ERRORS]).text, view->line_end);

    const uint64_t settled = c[QWP_SIDECAR_ROWS_ACKED] + c[QWP_SIDECAR_ROWS_REJECTED];
    fprintf(out, "rows      stored %s, acked %s, waiting %s, rejected %s",
            count_text(c[QWP_SIDECAR_ROWS_STORED]).text, count_text(c[QWP_SIDECAR_ROWS_ACKED]).text,
            count_text(difference(c[QWP_SIDECAR_ROWS_STORED], settled)).text,
            count_text(c[QWP_SIDECAR_ROWS_REJECTED]).text);
    if (has_rates(view)) {
        fprintf(out, "; in %s, out %s", rate_text(sidecar_rate(view, QWP_SIDECAR_ROWS_STORED)).text,
                rate_text(sidecar_rate(view, QWP_SIDECAR_ROWS_ACKED)).text);
    }
    fprintf(out, "%sframes    stored %s, sent %s, acked %s%s", view->line_end,
            count_text(c[QWP_SIDECAR_FRAMES_PUBLISHED]).text,
            count_text(c[QWP_SIDECAR_FRAMES_SENT]).text,
            count_text(c[QWP_SIDECAR_FRAMES_ACKED]).text, view->line_end);
    fprintf(out, "bytes     stored %s, sent %s, waiting %s; store %s, times full %s",
            bytes_text(c[QWP_SIDECAR_BYTES_STORED]).text,
            bytes_text(c[QWP_SIDECAR_BYTES_SENT]).text,
            bytes_text(c[QWP_SIDECAR_BYTES_WAITING]).text,
            bytes_text(c[QWP_SIDECAR_STORE_BYTES]).text, count_text(c[QWP_SIDECAR_STALLS]).text);
    if (has_rates(view)) {
        fprintf(out, "; out %s", byte_rate_text(sidecar_rate(view, QWP_SIDECAR_BYTES_SENT)).text);
    }
    fputs(view->line_end, out);
    print_waits(view, out);
    fputs(paint(view, RED), out);
    print_store(view, out);
    print_troubles(view, out);
    fputs(paint(view, PLAIN), out);
    if (now->last_error[0] != '\0') {
        fprintf(out, "%slast error: %s%s%s", paint(view, YELLOW), now->last_error,
                paint(view, PLAIN), view->line_end);
    }
}

/* "[###.......] 31%" of a ring in use. */
static struct figure fill_text(uint64_t waiting, uint64_t ring_bytes)
{
    enum { BARS = 10 };
    struct figure figure = {"-"};
    if (ring_bytes == 0) {
        return figure;
    }
    const double part = waiting < ring_bytes ? (double)waiting / (double)ring_bytes : 1.0;
    char bar[BARS + 1];
    const int filled = (int)(part * BARS + 0.5);
    for (int i = 0; i < BARS; i++) {
        bar[i] = i < filled ? '#' : '.';
    }
    bar[BARS] = '\0';
    snprintf(figure.text, sizeof figure.text, "[%s] %3.0f%%", bar, part * 100);
    return figure;
}

/* Too little room for all columns. */
static bool is_narrow(const struct qwp_status_view *view)
{
    enum { ALL_COLUMNS = 118 };
    return view->width != 0 && view->width < ALL_COLUMNS;
}

static void print_columns(const struct qwp_status_view *view, FILE *out)
{
    fprintf(out, "%s%s%-20s %8s %-9s", view->line_end, paint(view, BOLD), "producer", "pid",
            "state");
    if (!is_narrow(view)) {
        fprintf(out, " %15s %15s", "published", "stored");
    }
    fprintf(out, " %15s %10s  %s%s%s", "acked", "rate", "ring", paint(view, PLAIN), view->line_end);
}

static void print_producer(const struct qwp_status_view *view,
                           const struct qwp_snapshot_producer *producer, FILE *out)
{
    const uint64_t *c = producer->counters;
    const struct qwp_snapshot_producer *before =
        has_rates(view) ? qwp_snapshot_find(view->before, producer) : NULL;
    struct figure rate = {"-"};
    if (before != NULL) {
        rate = rate_text(per_second(view, before->counters[QWP_PRODUCER_ROWS_PUBLISHED],
                                    c[QWP_PRODUCER_ROWS_PUBLISHED]));
    }
    const bool is_well = producer->state == QWP_RING_ATTACHED;
    fprintf(out, "%-20.20s %8" PRIu32 " %s%-9s%s", producer->name, producer->pid,
            paint(view, is_well ? "" : RED), ring_state_name(producer->state),
            paint(view, is_well ? "" : PLAIN));
    if (!is_narrow(view)) {
        fprintf(out, " %15s %15s", count_text(c[QWP_PRODUCER_ROWS_PUBLISHED]).text,
                count_text(c[QWP_PRODUCER_ROWS_STORED]).text);
    }
    const bool is_filling = c[QWP_PRODUCER_BYTES_WAITING] * 2 > c[QWP_PRODUCER_RING_BYTES];
    fprintf(out, " %15s %10s  %s%-17s%s", count_text(c[QWP_PRODUCER_ROWS_ACKED]).text, rate.text,
            paint(view, is_filling ? YELLOW : GREEN),
            fill_text(c[QWP_PRODUCER_BYTES_WAITING], c[QWP_PRODUCER_RING_BYTES]).text,
            paint(view, PLAIN));
    if (c[QWP_PRODUCER_ROWS_REJECTED] != 0) {
        fprintf(out, " rejected %s", count_text(c[QWP_PRODUCER_ROWS_REJECTED]).text);
    }
    if (c[QWP_PRODUCER_ROWS_DROPPED] != 0) {
        fprintf(out, " dropped %s", count_text(c[QWP_PRODUCER_ROWS_DROPPED]).text);
    }
    if (c[QWP_PRODUCER_SYMBOL_WAITS] != 0) {
        fprintf(out, " waits for symbols %s", count_text(c[QWP_PRODUCER_SYMBOL_WAITS]).text);
    }
    fputs(view->line_end, out);
    if (producer->reason[0] != '\0') {
        fprintf(out, "    %s%s", producer->reason, view->line_end);
    }
}

void qwp_status_print(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    print_head(view, out);
    if (!now->has_control) {
        return;
    }
    print_sidecar(view, out);
    print_columns(view, out);
    size_t shown = now->producer_count;
    if (view->rows_max != 0 && shown > view->rows_max) {
        shown = view->rows_max;
    }
    for (size_t i = 0; i < shown; i++) {
        print_producer(view, &now->producers[i], out);
    }
    if (shown < now->producer_count) {
        fprintf(out, "... and %zu more%s", now->producer_count - shown, view->line_end);
    }
    if (now->producer_count == 0) {
        fprintf(out, "(none)%s", view->line_end);
    }
}

/* ---- JSON ---- */

static void json_pair(FILE *out, const char *key, const char *text)
{
    fprintf(out, ",\"%s\":", key);
    qwp_json_text(out, text);
}

static void json_producer(const struct qwp_status_view *view,
                          const struct qwp_snapshot_producer *producer, FILE *out)
{
    fputs("{\"name\":", out);
    qwp_json_text(out, producer->name);
    fprintf(out, ",\"pid\":%" PRIu32 ",\"uid\":%" PRIu32, producer->pid, producer->uid);
    json_pair(out, "state", ring_state_name(producer->state));
    json_pair(out, "file", producer->file_name);
    for (size_t i = 0; i < QWP_PRODUCER_COUNTER_COUNT; i++) {
        fprintf(out, ",\"%s\":%" PRIu64, qwp_producer_counter_names[i], producer->counters[i]);
    }
    const struct qwp_snapshot_producer *before =
        has_rates(view) ? qwp_snapshot_find(view->before, producer) : NULL;
    if (before != NULL) {
        const int counter = QWP_PRODUCER_ROWS_PUBLISHED;
        fprintf(out, ",\"rows_published_per_s\":%.1f",
                per_second(view, before->counters[counter], producer->counters[counter]));
    }
    json_pair(out, "reason", producer->reason);
    fputc('}', out);
}

void qwp_status_print_json(const struct qwp_status_view *view, FILE *out)
{
    const struct qwp_snapshot *now = view->now;
    fputs("{\"instance\":", out);
    qwp_json_text(out, view->name);
    json_pair(out, "rings", view->rings_dir);
    json_pair(out, "state", sidecar_state_name(now));
    fprintf(out, ",\"live\":%s,\"time_us\":%" PRId64 ",\"ring_count\":%" PRIu64,
            now->is_live ? "true" : "false", qwp_clock_wall_ns() / QWP_NS_PER_US, now->ring_count);
    fprintf(out, ",\"pid\":%" PRIu32 ",\"started_us\":%" PRId64, now->sidecar_pid, now->started_us);
    json_pair(out, "version", now->version);
    json_pair(out, "connection", now->is_live ? connection_name(now->connection) : "down");
    fprintf(out, ",\"connection_since_us\":%" PRId64, now->connected_us);
    json_pair(out, "endpoint", now->endpoint);
    json_pair(out, "last_error", now->last_error);
    json_pair(out, "store_state", store_state_name(now->store_state));
    json_pair(out, "store_error", now->store_error);
    fprintf(out, ",\"keeper_failing\":%s", now->keeper_failing ? "true" : "false");
    json_pair(out, "keeper_error", now->keeper_error);
    json_pair(out, "bell", now->bell_mode == QWP_BELL_FIFO ? "fifo" : "futex");
    for (size_t i = 0; i < QWP_SIDECAR_COUNTER_COUNT; i++) {
        fprintf(out, ",\"%s\":%" PRIu64, qwp_sidecar_counter_names[i], now->counters[i]);
    }
    if (has_rates(view)) {
        fprintf(out, ",\"rows_stored_per_s\":%.1f,\"rows_acked_per_s\":%.1f",
                sidecar_rate(view, QWP_SIDECAR_ROWS_STORED),
                sidecar_rate(view, QWP_SIDECAR_ROWS_ACKED));
        fprintf(out, ",\"bytes_sent_per_s\":%.1f", sidecar_rate(view, QWP_SIDECAR_BYTES_SENT));
    }
    fputs(",\"producers\":[", out);
    for (size_t i = 0; i < now->producer_count; i++) {
        fputs(i > 0 ? "," : "", out);
        json_producer(view, &now->producers[i], out);
    }
    fputs("],\"tables\":{", out);
    for (size_t i = 0; i < now->table_count; i++) {
        fputs(i > 0 ? "," : "", out);
        qwp_json_text(out, now->tables[i].name);
        fprintf(out, ":%" PRIu64, now->tables[i].rows_stored);
    }
    fputs("}", out);
    json_troubles(now, out);
    fputs("}\n", out);
}

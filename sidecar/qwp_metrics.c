#include "sidecar/qwp_metrics.h"

#include <inttypes.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_answer.h"
#include "sidecar/qwp_latency.h"

#define PREFIX "qwp_sidecar_"

enum type { COUNTER, GAUGE };

/* One figure of a list of counters. `name` ends with the unit, if there is one. */
struct metric {
    enum type type;
    int id; /* of the counter */
    const char *name;
    const char *unit; /* NULL: none */
    const char *help;
};

static const struct metric sidecar_metrics[] = {
    {COUNTER, QWP_SIDECAR_ROWS_STORED, "rows_stored", NULL,
     "Rows taken from rings into the store."},
    {COUNTER, QWP_SIDECAR_ROWS_ACKED, "rows_acked", NULL,
     "Rows acknowledged by the server, of those stored since the sidecar started."},
    {COUNTER, QWP_SIDECAR_ROWS_REJECTED, "rows_rejected", NULL,
     "Rows that the server did not take and that were set aside."},
    {COUNTER, QWP_SIDECAR_FRAMES_PUBLISHED, "frames_stored", NULL, "Frames put into the store."},
    {COUNTER, QWP_SIDECAR_FRAMES_SENT, "frames_sent", NULL,
     "Frames handed to a connection, each time they are."},
    {COUNTER, QWP_SIDECAR_FRAMES_REPLAYED, "frames_replayed", NULL,
     "Of frames_sent, those that had been sent before: after a reconnect."},
    {COUNTER, QWP_SIDECAR_FRAMES_ACKED, "frames_acked", NULL,
     "Frames acknowledged by the server, also those stored by an earlier sidecar."},
    {GAUGE, QWP_SIDECAR_FRAMES_WAITING, "frames_waiting", NULL,
     "Frames in the store that are not acknowledged."},
    {COUNTER, QWP_SIDECAR_BYTES_STORED, "stored_bytes", "bytes",
     "Encoded bytes put into the store."},
    {GAUGE, QWP_SIDECAR_BYTES_WAITING, "store_waiting_bytes", "bytes",
     "Encoded bytes in the store that are not acknowledged."},
    {GAUGE, QWP_SIDECAR_STORE_BYTES, "store_bytes", "bytes",
     "Size of the store's segment files, spares included."},
    {GAUGE, QWP_SIDECAR_STORE_BYTES_MAX, "store_limit_bytes", "bytes",
     "What store_bytes may become (sf_max_total_bytes); then rows wait in their rings."},
    {COUNTER, QWP_SIDECAR_STALLS, "store_stalls", NULL,
     "Times the store took no rows: full, or not writable. It is asked 20 times a second."},
    {COUNTER, QWP_SIDECAR_SEGMENTS_RECYCLED, "store_segments_recycled", NULL,
     "Acknowledged segments made into spares."},
    {GAUGE, QWP_SIDECAR_SEGMENTS_SUSPECT, "store_segments_suspect", NULL,
     "Segments of which a sync failed: not to be relied on if the host crashes."},
    {GAUGE, QWP_SIDECAR_FRAMES_UNSYNCED, "store_frames_unsynced", NULL,
     "Frames not yet on disk for certain; 0 unless sf_durability=periodic."},
    {COUNTER, QWP_SIDECAR_KEEPER_FAILURES, "store_housekeeping_failures", NULL,
     "Steps of the store's housekeeping that failed; each is tried again."},
    {COUNTER, QWP_SIDECAR_SYNC_FAILURES, "store_sync_failures", NULL, "Syncs that failed."},
    {COUNTER, QWP_SIDECAR_CONNECT_ATTEMPTS, "connect_attempts", NULL,
     "Attempts to connect to a server, each endpoint counted."},
    {COUNTER, QWP_SIDECAR_CONNECTS, "connects", NULL,
     "Connections that succeeded; all but the first are reconnects."},
    {COUNTER, QWP_SIDECAR_DISCONNECTS, "disconnects", NULL, "Connections that ended."},
    {COUNTER, QWP_SIDECAR_BYTES_SENT, "sent_bytes", "bytes",
     "Bytes written to sockets, TLS included."},
    {COUNTER, QWP_SIDECAR_BYTES_RECEIVED, "received_bytes", "bytes", "Bytes read from sockets."},
    {GAUGE, QWP_SIDECAR_BYTES_IN_FLIGHT, "in_flight_bytes", "bytes",
     "Bytes of messages sent and not answered."},
    {GAUGE, QWP_SIDECAR_MESSAGES_IN_FLIGHT, "in_flight_messages", NULL,
     "Messages sent and not answered."},
    {COUNTER, QWP_SIDECAR_WAKEUPS, "wakeups", NULL, "Times a producer woke the sleeping sidecar."},
};

static const struct metric producer_metrics[] = {
    {COUNTER, QWP_PRODUCER_ROWS_PUBLISHED, "producer_rows_published", NULL,
     "Rows the producer says it published."},
    {COUNTER, QWP_PRODUCER_ROWS_STORED, "producer_rows_stored", NULL,
     "Rows taken from the ring into the store."},
    {COUNTER, QWP_PRODUCER_ROWS_ACKED, "producer_rows_acked", NULL,
     "Rows of the ring acknowledged by the server."},
    {COUNTER, QWP_PRODUCER_ROWS_REJECTED, "producer_rows_rejected", NULL,
     "Rows of the ring that the server did not take and that were set aside."},
    {COUNTER, QWP_PRODUCER_ROWS_DROPPED, "producer_rows_dropped", NULL,
     "Rows the producer says it dropped because its ring was full."},
    {COUNTER, QWP_PRODUCER_BYTES_TAKEN, "producer_taken_bytes", "bytes",
     "Bytes taken from the ring."},
    {GAUGE, QWP_PRODUCER_BYTES_WAITING, "producer_ring_waiting_bytes", "bytes",
     "Bytes that wait in the ring."},
    {GAUGE, QWP_PRODUCER_RING_BYTES, "producer_ring_bytes", "bytes", "Size of the ring."},
};

/* ---- the format ---- */

static void family(FILE *out, const char *type, const char *name, const char *unit,
                   const char *help)
{
    fprintf(out, "# TYPE " PREFIX "%s %s\n", name, type);
    if (unit != NULL) {
        fprintf(out, "# UNIT " PREFIX "%s %s\n", name, unit);
    }
    fprintf(out, "# HELP " PREFIX "%s %s\n", name, help);
}

static const char *type_name(enum type type)
{
    return type == COUNTER ? "counter" : "gauge";
}

static const char *suffix(enum type type)
{
    return type == COUNTER ? "_total" : "";
}

/* `text` is cleaned, so that there are no line ends in it. */
static void label(FILE *out, const char *before, const char *name, const char *text)
{
    fprintf(out, "%s%s=\"", before, name);
    for (const char *at = text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fputc('\\', out);
        }
        fputc(*at, out);
    }
    fputc('"', out);
}

static void gauge(FILE *out, const char *name, const char *unit, const char *help, double value)
{
    family(out, "gauge", name, unit, help);
    fprintf(out, PREFIX "%s %.15g\n", name, value);
}

static void counter(FILE *out, const char *name, const char *help, uint64_t value)
{
    family(out, "counter", name, NULL, help);
    fprintf(out, PREFIX "%s_total %" PRIu64 "\n", name, value);
}

static void state_set(FILE *out, const char *name, const char *help, const char *const *states,
                      size_t count, size_t now)
{
    family(out, "stateset", name, NULL, help);
    for (size_t i = 0; i < count; i++) {
        fprintf(out, PREFIX "%s{" PREFIX "%s=\"%s\"} %d\n", name, name, states[i], i == now);
    }
}

static void histogram(FILE *out, const char *name, const char *help,
                      const struct qwp_snapshot_latency *latency)
{
    family(out, "histogram", name, "seconds", help);
    uint64_t count = 0;
    for (uint32_t i = 0; i < QWP_CONTROL_LATENCY_BUCKETS; i++) {
        count += latency->buckets[i];
        const int64_t edge_ns = qwp_latency_bucket_ns(i);
        if (edge_ns == QWP_NEVER_NS) {
            fprintf(out, PREFIX "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, count);
        } else {
            const double edge_s = (double)edge_ns / QWP_NS_PER_S;
            /* OpenMetrics wants a float there: "1.0", not "1". */
            const char *format = edge_ns % QWP_NS_PER_S == 0
                                     ? PREFIX "%s_bucket{le=\"%.1f\"} %" PRIu64 "\n"
                                     : PREFIX "%s_bucket{le=\"%.15g\"} %" PRIu64 "\n";
            fprintf(out, format, name, edge_s, count);
        }
    }
    fprintf(out, PREFIX "%s_count %" PRIu64 "\n", name, count);
    fprintf(out, PREFIX "%s_sum %.9g\n", name, (double)latency->sum_ns / QWP_NS_PER_S);
}

/* ---- the families ---- */

static double seconds_since(int64_t now_ns, int64_t then_ns)
{
    return then_ns > 0 && then_ns < now_ns ? (double)(now_ns - then_ns) / QWP_NS_PER_S : 0;
}

static void print_identity(const struct qwp_snapshot *snapshot, FILE *out)
{
    family(out, "info", "build", NULL, "The sidecar's version.");
    label(out, PREFIX "build_info{", "version", snapshot->version);
    fputs("} 1\n", out);
    family(out, "info", "server", NULL, "The endpoint that is connected, or tried.");
    label(out, PREFIX "server_info{", "endpoint", snapshot->endpoint);
    fputs("} 1\n", out);
    gauge(out, "start_time_seconds", "seconds", "When the sidecar started, unix time.",
          (double)snapshot->started_us / 1e6);
}

static void print_state(const struct qwp_snapshot *snapshot, const struct qwp_metrics_extra *extra,
                        FILE *out)
{
    static const char *const connection[] = {"down", "connecting", "catching_up", "up"};
    static const char *const store[] = {"ok", "full", "blocked"};
    state_set(out, "connection_state", "State of the connection to the server.", connection,
              sizeof connection / sizeof connection[0], snapshot->connection);
    gauge(out, "connection_state_since_seconds", "seconds",
          "Since when the connection is up, or is not, unix time.",
          (double)snapshot->connected_us / 1e6);
    gauge(out, "credentials_refused", NULL, "1: the server refused the credentials.",
          snapshot->credentials_refused);
    gauge(out, "ready", NULL, "What /readyz answers: 1: ready.", extra->ready);
    gauge(
        out, "last_error_timestamp_seconds", "seconds",
        "When the last error of the connection was, unix time; 0: none. Its text: /readyz, status.",
        (double)snapshot->error_us / 1e6);
    state_set(out, "store_state",
              "full: its budget is used up; blocked: it cannot be written. Rows wait in rings.",
              store, sizeof store / sizeof store[0], snapshot->store_state);
    gauge(out, "store_housekeeping_failing", NULL, "1: its last step failed and is tried again.",
          snapshot->keeper_failing);
}

static void print_store(const struct qwp_snapshot *snapshot, const struct qwp_metrics_extra *extra,
                        FILE *out)
{
    const uint64_t *counters = snapshot->counters;
    gauge(out, "store_oldest_age_seconds", "seconds",
          "Age of the oldest frame that is not acknowledged, 0: none. Frames of an earlier sidecar "
          "count from this one's start.",
          seconds_since(extra->now_ns, snapshot->oldest_ns));
    family(out, "gauge", "store_segments", NULL, "Segment files by state.");
    fprintf(out, PREFIX "store_segments{state=\"active\"} 1\n");
    fprintf(out, PREFIX "store_segments{state=\"sealed\"} %" PRIu64 "\n",
            counters[QWP_SIDECAR_SEGMENTS_SEALED]);
    fprintf(out, PREFIX "store_segments{state=\"spare\"} %" PRIu64 "\n",
            counters[QWP_SIDECAR_SEGMENTS_SPARE]);
    const uint64_t without = counters[QWP_SIDECAR_ROTATIONS_WITHOUT_SPARE];
    const uint64_t all = counters[QWP_SIDECAR_ROTATIONS];
    family(out, "counter", "store_rotations", NULL,
           "Times a new segment was begun; without a spare that is slow.");
    fprintf(out, PREFIX "store_rotations_total{spare=\"yes\"} %" PRIu64 "\n",
            all > without ? all - without : 0);
    fprintf(out, PREFIX "store_rotations_total{spare=\"no\"} %" PRIu64 "\n", without);
}

static void print_sidecar(const struct qwp_snapshot *snapshot,
                          const struct qwp_metrics_extra *extra, FILE *out)
{
    for (size_t i = 0; i < sizeof sidecar_metrics / sizeof sidecar_metrics[0]; i++) {
        const struct metric *metric = &sidecar_metrics[i];
        family(out, type_name(metric->type), metric->name, metric->unit, metric->help);
        fprintf(out, PREFIX "%s%s %" PRIu64 "\n", metric->name, suffix(metric->type),
                snapshot->counters[metric->id]);
    }
    family(out, "counter", "server_errors", NULL,
           "Messages rejected by the server, by its answer.");
    for (uint32_t i = 0; i < QWP_CONTROL_ANSWERS; i++) {
        fprintf(out, PREFIX "server_errors_total{category=\"%s\"} %" PRIu64 "\n",
                qwp_answer_name(i), snapshot->answers[i]);
    }
    gauge(out, "drainers_active", NULL, "Slots of other senders being delivered (drain_orphans).",
          extra->drainers_active);
    counter(out, "drainers_succeeded", "Slots of other senders delivered.",
            extra->drainers_succeeded);
    counter(out, "drainers_failed", "Slots of other senders that cannot be delivered.",
            extra->drainers_failed);
    counter(out, "log_events_folded", "Events without a log line of their own, told by a count.",
            extra->log_folded);
    counter(out, "log_lines_lost", "Log lines that nobody took.", extra->log_lost);
}

static void print_latencies(const struct qwp_snapshot *snapshot, FILE *out)
{
    histogram(
        out, "frame_seen_to_stored_seconds",
        "From the first sight of a frame's oldest row in its ring to the frame being stored; "
        "the linger is in it. When a row was published is not known: awake, the sidecar looks "
        "at a ring every few microseconds; the time to wake it is not in the figure. One "
        "observation a frame, never shorter than the truth.",
        &snapshot->seen_to_stored);
    histogram(
        out, "frame_stored_to_acked_seconds",
        "From a frame being stored to its acknowledgement. With more than 256 frames waiting, "
        "neighbours count from the older's time.",
        &snapshot->stored_to_acked);
    histogram(out, "frame_seen_to_acked_seconds", "Both together.", &snapshot->seen_to_acked);
}

/* {producer="name",ring="file",pid="1"}: the file's name tells two of the same name apart. */
static void producer_labels(FILE *out, const struct qwp_snapshot_producer *producer)
{
    label(out, "{", "producer", producer->name);
    label(out, ",", "ring", producer->file_name);
    fputs("}", out);
}

static void print_producers(const struct qwp_snapshot *snapshot, FILE *out)
{
    gauge(out, "producers", NULL, "Attached rings.", (double)snapshot->producer_count);
    size_t shown = snapshot->producer_count;
    shown = shown < QWP_METRICS_PRODUCERS_MAX ? shown : QWP_METRICS_PRODUCERS_MAX;
    for (size_t i = 0; i < sizeof producer_metrics / sizeof producer_metrics[0]; i++) {
        const struct metric *metric = &producer_metrics[i];
        family(out, type_name(metric->type), metric->name, metric->unit, metric->help);
        for (size_t p = 0; p < shown; p++) {
            fprintf(out, PREFIX "%s%s", metric->name, suffix(metric->type));
            producer_labels(out, &snapshot->producers[p]);
            fprintf(out, " %" PRIu64 "\n", snapshot->producers[p].counters[metric->id]);
        }
    }
    family(out, "gauge", "producer_detached", NULL,
           "1: the ring is broken and not read any more; status and log tell why.");
    for (size_t p = 0; p < shown; p++) {
        fputs(PREFIX "producer_detached", out);
        producer_labels(out, &snapshot->producers[p]);
        fprintf(out, " %d\n", snapshot->producers[p].state == QWP_RING_DETACHED);
    }
}

static void print_tables(const struct qwp_snapshot *snapshot, FILE *out)
{
    family(out, "counter", "table_rows_stored", NULL,
           "Rows taken into the store, by table (the first 1024 tables).");
    for (size_t i = 0; i < snapshot->table_count; i++) {
        label(out, PREFIX "table_rows_stored_total{", "table", snapshot->tables[i].name);
        fprintf(out, "} %" PRIu64 "\n", snapshot->tables[i].rows_stored);
    }
}

/* False: the entry is being written. */
static bool trouble_labels(FILE *out, const char *before,
                           const struct qwp_snapshot_trouble *trouble)
{
    if (trouble->name[0] == '\0') {
        return false;
    }
    label(out, before, "table", trouble->name);
    label(out, ",", "category", qwp_answer_name(qwp_answer_index((uint8_t)trouble->status)));
    return true;
}

/* By table and answer; a table that is mended leaves the list. */
static void print_troubles(const struct qwp_snapshot *snapshot, FILE *out)
{
    gauge(out, "set_aside_bytes", "bytes", "Size of the folder of refused rows.",
          (double)snapshot->rejected_bytes);
    gauge(out, "set_aside_limit_bytes", "bytes",
          "What set_aside_bytes may become (--rejected-bytes-max); then refused tables are held.",
          (double)snapshot->rejected_bytes_max);
    static const char *const states[] = {"unknown", "suspect", "blocked", "held"};
    family(out, "gauge", "table_refused", NULL,
           "1: the server refuses this table. suspect: offered apart; blocked: its rows are set "
           "aside; held: and there is no more room for that.");
    for (size_t i = 0; i < snapshot->trouble_count; i++) {
        const struct qwp_snapshot_trouble *trouble = &snapshot->troubles[i];
        if (!trouble_labels(out, PREFIX "table_refused{", trouble)) {
            continue;
        }
        label(out, ",", "state", states[trouble->state <= QWP_TROUBLE_HELD ? trouble->state : 0]);
        fputs("} 1\n", out);
    }
    family(out, "gauge", "table_rows_set_aside", NULL,
           "Rows of a refused table set aside since it is refused, by the server's answer.");
    for (size_t i = 0; i < snapshot->trouble_count; i++) {
        const struct qwp_snapshot_trouble *trouble = &snapshot->troubles[i];
        if (trouble_labels(out, PREFIX "table_rows_set_aside{", trouble)) {
            fprintf(out, "} %" PRIu64 "\n", trouble->rows_aside);
        }
    }
}

void qwp_metrics_print(const struct qwp_snapshot *snapshot, const struct qwp_metrics_extra *extra,
                       FILE *out)
{
    print_identity(snapshot, out);
    print_state(snapshot, extra, out);
    print_store(snapshot, extra, out);
    print_sidecar(snapshot, extra, out);
    print_latencies(snapshot, out);
    print_producers(snapshot, out);
    print_tables(snapshot, out);
    print_troubles(snapshot, out);
    fputs("# EOF\n", out);
}

#include "clients/c/feed/qwp_feed_summary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "core/qwp_clock.h"
#include "core/wire/qwp_wire.h"

enum { BAR_CELLS = 20 };

struct qwp_feed_totals qwp_feed_totals(const struct qwp_feed_share *share, uint32_t worker_count)
{
    struct qwp_feed_totals t = {0};
    for (uint32_t i = 0; i < worker_count; i++) {
        const struct qwp_feed_worker_share *w = &share->workers[i];
        t.rows_sent += atomic_load_explicit(&w->rows_sent, memory_order_relaxed);
        t.rows_acked += atomic_load_explicit(&w->rows_acked, memory_order_relaxed);
        t.rows_rejected += atomic_load_explicit(&w->rows_rejected, memory_order_relaxed);
        t.rows_bad += atomic_load_explicit(&w->rows_bad, memory_order_relaxed);
        t.bytes += atomic_load_explicit(&w->bytes, memory_order_relaxed);
        t.full_waits += atomic_load_explicit(&w->full_waits, memory_order_relaxed);
        const uint32_t state = atomic_load_explicit(&w->state, memory_order_relaxed);
        t.acking += state == QWP_FEED_WORKER_ACKING;
        t.without_sidecar |=
            state != QWP_FEED_WORKER_STARTING && state != QWP_FEED_WORKER_DONE &&
            atomic_load_explicit(&w->consumer, memory_order_relaxed) == QWP_CONSUMER_NONE;
    }
    return t;
}

/* ---- reports ---- */

static enum qwp_result read_line(struct qwp_feed_tables *tables, char *line,
                                 struct qwp_feed_table **table, struct qwp_error *err)
{
    unsigned long long rows;
    unsigned type;
    unsigned parameter;
    int name_at = 0;
    if (sscanf(line, "T %llu %n", &rows, &name_at) == 1 && name_at > 0) {
        const enum qwp_result result = qwp_feed_catalog_table(&tables->catalog, line + name_at,
                                                              strlen(line + name_at), table, err);
        if (result == QWP_OK) {
            tables->rows[(*table)->index] += rows;
        }
        return result;
    }
    if (sscanf(line, "C %u %u %n", &type, &parameter, &name_at) == 2 && name_at > 0) {
        uint32_t column;
        return qwp_feed_catalog_column(&tables->catalog, *table, line + name_at,
                                       strlen(line + name_at), (uint8_t)type, (uint8_t)parameter,
                                       &column, err);
    }
    return qwp_fail(err, QWP_CORRUPT, 0, "a process left a report that cannot be read");
}

enum qwp_result qwp_feed_tables_read(struct qwp_feed_tables *tables, int report_fd,
                                     struct qwp_error *err)
{
    if (tables->rows == NULL) {
        tables->rows = calloc(QWP_TABLES_MAX, sizeof *tables->rows);
    }
    FILE *in = tables->rows != NULL ? fdopen(dup(report_fd), "r") : NULL;
    if (in == NULL) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot read a process's report");
    }
    rewind(in);
    char *line = NULL;
    size_t room = 0;
    ssize_t len;
    struct qwp_feed_table *table = NULL;
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK && (len = getline(&line, &room, in)) > 0) {
        line[len - 1] = '\0';
        result = read_line(tables, line, &table, err);
    }
    free(line);
    fclose(in);
    return result;
}

void qwp_feed_tables_close(struct qwp_feed_tables *tables)
{
    qwp_feed_catalog_close(&tables->catalog);
    free(tables->rows);
    tables->rows = NULL;
}

/* ---- JSON ---- */

static void print_json_string(const char *text)
{
    putchar('"');
    for (const unsigned char *p = (const unsigned char *)text; *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            printf("\\%c", *p);
        } else if (*p < 0x20) {
            printf("\\u%04x", *p);
        } else {
            putchar(*p);
        }
    }
    putchar('"');
}

static void print_json_columns(const struct qwp_feed_tables *tables)
{
    printf(",\"columns\":{");
    for (uint32_t t = 0; t < tables->catalog.table_count; t++) {
        const struct qwp_feed_table *table = tables->catalog.tables[t];
        fputs(t ? "," : "", stdout);
        print_json_string(table->name);
        fputs(":{", stdout);
        for (uint32_t c = 0; c < table->column_count; c++) {
            const struct qwp_feed_column *column = &table->columns[c];
            char type[32];
            fputs(c ? "," : "", stdout);
            print_json_string(column->name);
            printf(":\"%s\"",
                   qwp_feed_type_text(column->type, column->parameter, type, sizeof type));
        }
        putchar('}');
    }
    putchar('}');
}

void qwp_feed_summary_json(const struct qwp_feed_options *options,
                           const struct qwp_feed_outcome *outcome,
                           const struct qwp_feed_tables *tables)
{
    const struct qwp_feed_totals *t = &outcome->totals;
    printf("{\"ok\":%s,\"rows_sent\":%llu,\"rows_acked\":%llu,\"rows_rejected\":%llu,"
           "\"rows_bad\":%llu,\"bytes\":%llu,\"seconds\":%.6f,\"rows_per_second\":%.0f,"
           "\"processes\":%u,\"full_waits\":%llu,\"dry_run\":%s",
           outcome->ok ? "true" : "false", (unsigned long long)t->rows_sent,
           (unsigned long long)t->rows_acked, (unsigned long long)t->rows_rejected,
           (unsigned long long)t->rows_bad, (unsigned long long)t->bytes, outcome->seconds,
           outcome->seconds > 0 ? (double)t->rows_sent / outcome->seconds : 0.0, options->processes,
           (unsigned long long)t->full_waits, options->dry_run ? "true" : "false");
    printf(",\"tables\":{");
    for (uint32_t i = 0; i < tables->catalog.table_count; i++) {
        fputs(i ? "," : "", stdout);
        print_json_string(tables->catalog.tables[i]->name);
        printf(":%llu", (unsigned long long)tables->rows[i]);
    }
    putchar('}');
    if (options->dry_run) {
        print_json_columns(tables);
    }
    if (outcome->failure[0] != '\0') {
        fputs(",\"error\":", stdout);
        print_json_string(outcome->failure);
    }
    puts("}");
}

/* ---- for people ---- */

/* 1,234,567 */
static const char *grouped(uint64_t n, char *text, size_t text_bytes)
{
    char digits[24];
    const int len = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    size_t out = 0;
    for (int i = 0; i < len && out + 2 < text_bytes; i++) {
        if (i > 0 && (len - i) % 3 == 0) {
            text[out++] = ',';
        }
        text[out++] = digits[i];
    }
    text[out] = '\0';
    return text;
}

/* 12.3 MB */
static const char *scaled(double n, char *text, size_t text_bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    int unit = 0;
    for (; n >= 1000 && unit < 4; unit++) {
        n /= 1000;
    }
    snprintf(text, text_bytes, "%.*f %s", unit == 0 || n >= 100 ? 0 : 1, n, units[unit]);
    return text;
}

static void print_tables(const struct qwp_feed_tables *tables, bool with_columns)
{
    char n[32];
    for (uint32_t i = 0; i < tables->catalog.table_count; i++) {
        const struct qwp_feed_table *table = tables->catalog.tables[i];
        printf("  %-24s %14s rows\n", table->name, grouped(tables->rows[i], n, sizeof n));
        for (uint32_t c = 0; with_columns && c < table->column_count; c++) {
            const struct qwp_feed_column *column = &table->columns[c];
            char type[32];
            printf("    %-22s %s\n", column->name,
                   qwp_feed_type_text(column->type, column->parameter, type, sizeof type));
        }
    }
}

void qwp_feed_summary_text(const struct qwp_feed_options *options,
                           const struct qwp_feed_outcome *outcome,
                           const struct qwp_feed_tables *tables)
{
    const struct qwp_feed_totals *t = &outcome->totals;
    char a[32];
    char b[32];
    char c[32];
    print_tables(tables, options->dry_run);
    printf("%s rows %s, %s read, %.3f s, %s rows/s\n", grouped(t->rows_sent, a, sizeof a),
           options->dry_run ? "parsed" : "sent", scaled((double)t->bytes, b, sizeof b),
           outcome->seconds,
           grouped(outcome->seconds > 0 ? (uint64_t)((double)t->rows_sent / outcome->seconds) : 0,
                   c, sizeof c));
    if (!options->dry_run) {
        printf("%s rows acknowledged", grouped(t->rows_acked, a, sizeof a));
        if (options->no_wait && t->rows_acked < t->rows_sent) {
            fputs(" so far (--no-wait)", stdout);
        }
        putchar('\n');
    }
    if (t->rows_rejected > 0) {
        printf("%s rows set aside by the sidecar: see qwp-sidecar status\n",
               grouped(t->rows_rejected, a, sizeof a));
    }
    if (t->rows_bad > 0) {
        printf("%s bad lines skipped, see %s\n", grouped(t->rows_bad, a, sizeof a),
               options->skip_bad != NULL ? options->skip_bad : "above");
    }
}

/* ---- progress ---- */

static void print_bar(double part)
{
    const int full = (int)(part * BAR_CELLS + 0.5);
    fputc('[', stderr);
    for (int i = 0; i < BAR_CELLS; i++) {
        fputc(i < full ? '#' : '.', stderr);
    }
    fprintf(stderr, "] %3.0f%%  ", part * 100);
}

void qwp_feed_progress_show(struct qwp_feed_progress *p, const struct qwp_feed_totals *t,
                            int64_t now_ns)
{
    const double seconds = (double)(now_ns - p->last_ns) / 1e9;
    char a[32];
    char b[32];
    char c[32];
    fputs("\r\033[K", stderr);
    if (p->total_bytes > 0) {
        const double part = (double)t->bytes / (double)p->total_bytes;
        print_bar(part > 1 ? 1 : part);
    }
    fprintf(stderr, "%s rows  %s rows/s  %s (%s/s)", grouped(t->rows_sent, a, sizeof a),
            grouped((uint64_t)((double)(t->rows_sent - p->last_rows) / seconds), b, sizeof b),
            scaled((double)t->bytes, c, sizeof c),
            scaled((double)(t->bytes - p->last_bytes) / seconds, (char[32]){0}, 32));
    const uint64_t settled = t->rows_acked + t->rows_rejected;
    if (t->rows_sent > settled && !p->dry_run) {
        fprintf(stderr, "  waiting for ack: %s", grouped(t->rows_sent - settled, a, sizeof a));
    }
    if (t->without_sidecar) {
        fputs("  (no sidecar)", stderr);
    }
    fflush(stderr);
    p->last_ns = now_ns;
    p->last_rows = t->rows_sent;
    p->last_bytes = t->bytes;
}

void qwp_feed_progress_clear(void)
{
    fputs("\r\033[K", stderr);
    fflush(stderr);
}

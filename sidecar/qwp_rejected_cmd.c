#include "sidecar/qwp_rejected_cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "core/wire/qwp_names.h"
#include "sidecar/qwp_answer.h"
#include "sidecar/qwp_deliver.h"
#include "sidecar/qwp_json.h"
#include "sidecar/qwp_put_back.h"
#include "sidecar/qwp_rejected_read.h"
#include "sidecar/qwp_row_json.h"
#include "sidecar/qwp_snapshot.h"

/* ---- where ---- */

/* Of a slot that is named, else of the instance's sidecar, running or not. */
static enum qwp_result folder_find(const struct qwp_options *options, char *dir, size_t bytes,
                                   struct qwp_error *err)
{
    if (options->slot_dir != NULL) {
        if (access(options->slot_dir, F_OK) != 0) {
            return qwp_fail(err, QWP_INVALID, errno, "%s", options->slot_dir);
        }
        snprintf(dir, bytes, "%s/" QWP_REJECTED_FOLDER, options->slot_dir);
        return QWP_OK;
    }
    struct qwp_snapshot snapshot = {0};
    enum qwp_result result = qwp_snapshot_take(&snapshot, options->rings_dir, options->name, err);
    if (result == QWP_OK && snapshot.rejected_dir[0] == '\0') {
        result = qwp_fail(err, QWP_INVALID, 0,
                          "no sidecar has run as '%s' in %s; name the slot (<sf_dir>/<sender_id>)",
                          options->name, options->rings_dir);
    }
    if (result == QWP_OK) {
        snprintf(dir, bytes, "%s", snapshot.rejected_dir);
    }
    qwp_snapshot_fini(&snapshot);
    return result;
}

static bool is_wanted(const struct qwp_options *options, const char *table)
{
    return options->table == NULL ||
           qwp_name_equal(options->table, strlen(options->table), table, strlen(table));
}

struct walk {
    const struct qwp_options *options;
    const char *dir;
    FILE *out;
    uint64_t files, entries, rows;
    bool trouble;
};

typedef void (*file_fn)(struct walk *walk, const char *name,
                        const struct qwp_rejected_content *content);

static int walk_files(const struct qwp_options *options, FILE *out, file_fn fn, struct walk *walk)
{
    char dir[PATH_MAX];
    struct qwp_error err = {0};
    struct qwp_rejected_names names = {0};
    enum qwp_result result = folder_find(options, dir, sizeof dir, &err);
    result = result == QWP_OK ? qwp_rejected_names_read(&names, dir, &err) : result;
    if (result != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: rejected: %s\n", err.text);
        return 1;
    }
    *walk = (struct walk){.options = options, .dir = dir, .out = out};
    for (size_t i = 0; i < names.count; i++) {
        struct qwp_rejected_content content;
        if (qwp_rejected_content_read(&content, dir, names.list[i], false, &err) != QWP_OK) {
            fprintf(stderr, "qwp-sidecar: rejected: %s\n", err.text);
            walk->trouble = true;
            continue;
        }
        if (is_wanted(options, content.table)) {
            fn(walk, names.list[i], &content);
        }
        qwp_rejected_content_fini(&content);
    }
    qwp_rejected_names_fini(&names);
    return walk->trouble;
}

/* ---- what ---- */

struct text {
    char at[QWP_REJECTED_TEXT_BYTES_MAX + 1];
};

static struct text text_of(const char *at, size_t len)
{
    struct text text;
    const size_t kept = len < sizeof text.at ? len : sizeof text.at - 1;
    memcpy(text.at, at, kept);
    text.at[kept] = '\0';
    return text;
}

static struct text time_text(int64_t us)
{
    struct text text;
    const time_t seconds = (time_t)(us / 1000000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    strftime(text.at, sizeof text.at, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return text;
}

static void entry_json(const struct qwp_rejected_item *item, FILE *out)
{
    fprintf(out,
            "\"status\":%u,\"answer\":\"%s\",\"why\":\"%s\",\"frame\":%" PRIu64
            ",\"time_us\":%" PRId64 ",\"rows\":%" PRIu64 ",\"put_back\":%s,\"text\":",
            item->status, item->status == 0 ? "" : qwp_answer_name(qwp_answer_index(item->status)),
            qwp_rejected_cause_name(item->cause), item->fsn, item->time_us, item->row_count,
            item->state == QWP_REJECTED_ASIDE ? "false" : "true");
    qwp_json_text(out, text_of(item->text, item->text_len).at);
    fputs(",\"producers\":", out);
    qwp_json_text(out, text_of(item->producers, item->producers_len).at);
}

static void list_one(struct walk *walk, const char *name,
                     const struct qwp_rejected_content *content)
{
    struct qwp_rejected_item item = {0};
    struct qwp_rejected_item last = {0};
    uint64_t entries;
    uint64_t rows;
    qwp_rejected_content_count(content, &entries, &rows);
    for (size_t off = 0; qwp_rejected_content_next(content, &off, &item);) {
        last = item;
    }
    walk->files++;
    walk->rows += rows;
    char table[QWP_REJECTED_NAME_BYTES];
    snprintf(table, sizeof table, "%s", content->table);
    if (walk->options->json) {
        fputs("{\"file\":", walk->out);
        qwp_json_text(walk->out, name);
        fputs(",\"table\":", walk->out);
        qwp_json_text(walk->out, table);
        fprintf(walk->out, ",\"bytes\":%zu,\"since_us\":%" PRId64 ",\"rows_left\":%" PRIu64 ",",
                content->len, content->created_us, rows);
        fputs("\"last\":{", walk->out);
        entry_json(&last, walk->out);
        fputs("}}\n", walk->out);
        return;
    }
    struct text text = text_of(last.text, last.text_len);
    qwp_text_clean(text.at);
    qwp_text_clean(table);
    fprintf(walk->out, "%s  %s  %s: %" PRIu64 " rows; %s: %s\n", name,
            time_text(content->created_us).at, table, rows,
            last.status == 0 ? "-" : qwp_answer_name(qwp_answer_index(last.status)), text.at);
}

static int list(const struct qwp_options *options)
{
    struct walk walk;
    const int code = walk_files(options, stdout, list_one, &walk);
    if (code == 0 && !options->json) {
        printf("%" PRIu64 " rows in %" PRIu64 " files\n", walk.rows, walk.files);
    }
    return code;
}

/* Reads the entries in order, since each goes on with the symbols of those before. */
static void rows_print(struct walk *walk, const struct qwp_rejected_content *content,
                       uint64_t rows_max, void (*head)(const struct qwp_rejected_item *, FILE *))
{
    struct qwp_decoder decoder;
    struct qwp_rejected_item item;
    qwp_decoder_init(&decoder, NULL);
    for (size_t off = 0; qwp_rejected_content_next(content, &off, &item);) {
        struct qwp_message message;
        struct qwp_error err;
        const bool readable =
            item.cause != QWP_REJECTED_OPAQUE &&
            qwp_decode_message(&decoder, item.message, item.message_len, &message, &err) == QWP_OK;
        if (item.state != QWP_REJECTED_ASIDE) {
            continue;
        }
        if (head != NULL) {
            head(&item, walk->out);
        }
        if (!readable) {
            fprintf(stderr, "qwp-sidecar: rejected: frame %" PRIu64 " cannot be read\n", item.fsn);
            walk->trouble = true;
            continue;
        }
        const uint64_t printed = qwp_row_json_print(&decoder, &message, rows_max, walk->out);
        if (head != NULL && printed < item.row_count) {
            fprintf(walk->out, "... and %" PRIu64 " more\n", item.row_count - printed);
        }
    }
    qwp_decoder_fini(&decoder);
}

static void show_head(const struct qwp_rejected_item *item, FILE *out)
{
    struct text text = text_of(item->text, item->text_len);
    struct text producers = text_of(item->producers, item->producers_len);
    qwp_text_clean(text.at);
    qwp_text_clean(producers.at);
    fprintf(out, "\n%s, frame %" PRIu64 ", %" PRIu64 " rows, %s: %s%s%s\n",
            time_text(item->time_us).at, item->fsn, item->row_count,
            qwp_rejected_cause_name(item->cause), text.at,
            producers.at[0] != '\0' ? "; producers of the table: " : "", producers.at);
}

static void show_one(struct walk *walk, const char *name,
                     const struct qwp_rejected_content *content)
{
    (void)name;
    rows_print(walk, content, walk->options->rows, show_head);
}

static void export_one(struct walk *walk, const char *name,
                       const struct qwp_rejected_content *content)
{
    (void)name;
    rows_print(walk, content, UINT64_MAX, NULL);
}

static int export_rows(const struct qwp_options *options)
{
    struct walk walk;
    FILE *out = options->out_file != NULL ? fopen(options->out_file, "w") : stdout;
    if (out == NULL) {
        fprintf(stderr, "qwp-sidecar: rejected: cannot write %s: %s\n", options->out_file,
                strerror(errno));
        return 1;
    }
    int code = walk_files(options, out, export_one, &walk);
    if (fflush(out) != 0 || ferror(out) != 0) {
        fprintf(stderr, "qwp-sidecar: rejected: cannot write: %s\n", strerror(errno));
        code = 1;
    }
    if (out != stdout) {
        fclose(out);
    }
    return code;
}

int qwp_rejected_run(const struct qwp_options *options)
{
    struct walk walk;
    switch (options->action) {
    case QWP_REJECTED_SHOW:
        return walk_files(options, stdout, show_one, &walk);
    case QWP_REJECTED_EXPORT:
        return export_rows(options);
    default:
        return list(options);
    }
}

/* ---- and back ---- */

/* Oldest first. A table that refuses is left alone from there on, so that its rows keep their
 * order; others go on. */
static int put_back_all(const struct qwp_options *options, const struct qwp_put_back *how,
                        const char *dir, const struct qwp_rejected_names *names)
{
    char refused[64][QWP_REJECTED_NAME_BYTES];
    size_t refused_count = 0;
    uint64_t taken = 0;
    uint64_t left = 0;
    bool trouble = false;
    for (size_t i = 0; i < names->count && !qwp_deliver_is_stopped(); i++) {
        struct qwp_rejected_content content;
        struct qwp_error err = {0};
        char table[QWP_REJECTED_NAME_BYTES] = "";
        if (qwp_rejected_content_read(&content, dir, names->list[i], false, &err) == QWP_OK) {
            snprintf(table, sizeof table, "%s", content.table);
            qwp_rejected_content_fini(&content);
        }
        bool skip = !is_wanted(options, table);
        for (size_t k = 0; k < refused_count; k++) {
            skip = skip || strcmp(refused[k], table) == 0;
        }
        if (skip) {
            continue;
        }
        struct qwp_put_back_counts counts;
        const enum qwp_result result = qwp_put_back_file(how, dir, names->list[i], &counts, &err);
        taken += counts.rows_taken;
        left += counts.rows_left;
        if (result != QWP_OK) {
            trouble = true;
            qwp_text_clean(table);
            fprintf(stderr, "qwp-sidecar: rejected: %s, table %s: %s\n", names->list[i], table,
                    err.text);
            if (refused_count < sizeof refused / sizeof refused[0]) {
                memcpy(refused[refused_count++], table, sizeof table);
            }
        }
    }
    printf("%" PRIu64 " rows put back, %" PRIu64 " refused again or not offered\n", taken, left);
    return trouble || left > 0 ? QWP_REJECTED_EXIT_LEFT : 0;
}

int qwp_rejected_put_back_run(const struct qwp_options *options, const struct qwp_conf *conf)
{
    qwp_log_setup(&(struct qwp_log_options){.level = QWP_LOG_ERROR, .fd = STDERR_FILENO});
    char dir[PATH_MAX];
    struct qwp_error err = {0};
    struct qwp_loop *loop = NULL;
    struct qwp_rejected_names names = {0};
    enum qwp_result result = folder_find(options, dir, sizeof dir, &err);
    result = result == QWP_OK ? qwp_rejected_names_read(&names, dir, &err) : result;
    result = result == QWP_OK ? qwp_loop_open(&loop, &(struct qwp_loop_options){0}, &err) : result;
    if (result != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: rejected: %s\n", err.text);
        return 1;
    }
    qwp_deliver_signals_begin(loop);
    const struct qwp_put_back how = {
        .conf = conf,
        .loop = loop,
        .deadline_ns = options->timeout_ns == 0 ? QWP_NEVER_NS
                                                : qwp_clock_monotonic_ns() + options->timeout_ns,
    };
    const int code = put_back_all(options, &how, dir, &names);
    qwp_deliver_signals_end();
    qwp_rejected_names_fini(&names);
    qwp_loop_close(loop);
    return code;
}

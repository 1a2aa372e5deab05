#include "clients/c/feed/qwp_feed_worker.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clients/c/feed/qwp_feed_ilp.h"
#include "clients/c/feed/qwp_feed_ring.h"
#include "core/qwp_clock.h"

enum {
    BAD_TOLD_MAX = 10, /* bad lines printed with --skip-bad; all of them are counted */
    TELL_ROWS = 4096,  /* rows between two updates of the shared counts */
    PACE_BATCH_MAX = 1024,
};
#define LOOK_NS       (INT64_C(200) * QWP_NS_PER_MS) /* waits no longer without looking around */
#define PACE_SLACK_NS (INT64_C(50) * QWP_NS_PER_MS)  /* unused time that may be made up for */
#define ROW_BYTES_MAX (UINT64_C(1) << 20)            /* in a ring: a message must hold it as well */
#define RING_BYTES    (UINT64_C(1) << 20)            /* the default */

struct worker {
    struct qwp_feed_worker_options o;
    struct qwp_feed_worker_share *shared;
    struct qwp_feed_catalog catalog;
    struct qwp_feed_symbols symbols;
    struct qwp_feed_ring ring;
    bool ring_open;
    /* one of these, by format */
    struct qwp_feed_ilp *ilp;
    struct qwp_feed_csv *csv;
    struct qwp_feed_qwpb *qwpb;
    /* QWPB definitions */
    uint32_t generation;
    uint64_t definitions_pos;
    char *definitions;
    size_t definitions_room;
    /* --rate */
    uint32_t pace_batch;
    uint32_t pace_left;
    uint64_t rows_bad;
    bool failed;
    bool rejected;
    char producer_name[128];
};

void qwp_feed_share_fail(struct qwp_feed_share *share, const char *format, ...)
{
    uint32_t expected = 0;
    if (!atomic_compare_exchange_strong_explicit(&share->failed, &expected, 1, memory_order_relaxed,
                                                 memory_order_relaxed)) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(share->failure, sizeof share->failure, format, args);
    va_end(args);
    /* sync[feed.failure] release: the text is there. */
    atomic_store_explicit(&share->failed, 2, memory_order_release);
}

static bool abandoned(const struct worker *w)
{
    return atomic_load_explicit(&w->o.share->abandon, memory_order_relaxed) != 0;
}

static bool give_up(void *context)
{
    struct worker *w = context;
    atomic_store_explicit(&w->shared->consumer, (uint32_t)qwp_consumer_state(w->ring.producer),
                          memory_order_relaxed);
    return abandoned(w);
}

static void tell(struct worker *w)
{
    struct qwp_feed_worker_share *s = w->shared;
    atomic_store_explicit(&s->rows_sent, w->ring.rows, memory_order_relaxed);
    atomic_store_explicit(&s->rows_bad, w->rows_bad, memory_order_relaxed);
    if (w->ring.producer == NULL) { /* a dry run lacks nobody */
        atomic_store_explicit(&s->consumer, QWP_CONSUMER_RUNNING, memory_order_relaxed);
        return;
    }
    struct qwp_counters counters;
    qwp_producer_count(w->ring.producer, &counters);
    atomic_store_explicit(&s->rows_acked, counters.rows_acked, memory_order_relaxed);
    atomic_store_explicit(&s->rows_rejected, counters.rows_rejected, memory_order_relaxed);
    atomic_store_explicit(&s->full_waits, counters.full_waits, memory_order_relaxed);
    atomic_store_explicit(&s->consumer, (uint32_t)qwp_consumer_state(w->ring.producer),
                          memory_order_relaxed);
}

/* ---- opening ---- */

static enum qwp_result open_parser(struct worker *w, struct qwp_error *err)
{
    const struct qwp_feed_options *o = w->o.options;
    const struct qwp_feed_context context = {&w->catalog, &w->symbols, o->at, o->table};
    switch (o->format) {
    case QWP_FEED_ILP:
        w->ilp = qwp_feed_ilp_create(&context, o->precision);
        return w->ilp != NULL ? QWP_OK : qwp_fail(err, QWP_NOMEM, 0, "no memory for the parser");
    case QWP_FEED_QWPB:
        w->qwpb = qwp_feed_qwpb_create(&context);
        return w->qwpb != NULL ? QWP_OK : qwp_fail(err, QWP_NOMEM, 0, "no memory for the parser");
    case QWP_FEED_CSV:
        break;
    }
    return qwp_feed_csv_create(&w->csv, &context, w->o.csv, err);
}

static enum qwp_result open_ring(struct worker *w, struct qwp_error *err)
{
    const struct qwp_feed_options *o = w->o.options;
    if (o->processes > 1) {
        snprintf(w->producer_name, sizeof w->producer_name, "%s-%u", o->producer, w->o.index);
    } else {
        snprintf(w->producer_name, sizeof w->producer_name, "%s", o->producer);
    }
    const uint64_t ring_bytes = o->ring_bytes != 0 ? o->ring_bytes : RING_BYTES;
    const uint64_t row_bytes = ring_bytes / 2 < ROW_BYTES_MAX ? ring_bytes / 2 : ROW_BYTES_MAX;
    const struct qwp_feed_ring_options options = {
        .producer = {.dir = o->dir,
                     .instance = o->instance,
                     .name = w->producer_name,
                     .ring_bytes = ring_bytes,
                     .unit_bytes_max = (uint32_t)row_bytes,
                     .definition_bytes_max = o->definition_bytes,
                     .on_full = QWP_FULL_WAIT,
                     .full_wait_ns_max = LOOK_NS},
        .seq_column = o->seq_column,
        .producer_column = o->producer_column,
        .give_up = give_up,
        .context = w,
        .dry = o->dry_run,
    };
    const enum qwp_result result =
        qwp_feed_ring_open(&w->ring, &options, &w->catalog, &w->symbols, err);
    w->ring_open = result == QWP_OK;
    return result;
}

static void close_all(struct worker *w)
{
    qwp_feed_ilp_destroy(w->ilp);
    qwp_feed_csv_destroy(w->csv);
    qwp_feed_qwpb_destroy(w->qwpb);
    if (w->ring_open) {
        qwp_feed_ring_close(&w->ring);
    }
    qwp_feed_symbols_close(&w->symbols);
    qwp_feed_catalog_close(&w->catalog);
    free(w->definitions);
}

/* ---- blocks ---- */

static const char *file_name(const struct worker *w, const struct qwp_feed_block *block)
{
    const char *path = w->o.options->paths[block->file];
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* Where in its file a place of a block is, as people count. */
static unsigned long long place_of(const struct worker *w, const struct qwp_feed_block *block,
                                   const char *data, size_t off)
{
    if (w->o.options->format == QWP_FEED_QWPB) {
        return block->place + off;
    }
    unsigned long long line = block->place;
    for (size_t i = 0; i < off; i++) {
        line += data[i] == '\n';
    }
    return line;
}

static bool write_all(int fd, const char *data, size_t len)
{
    while (len > 0) {
        const ssize_t n = write(fd, data, len);
        if (n < 0 && errno != EINTR) {
            return false;
        }
        data += n > 0 ? n : 0;
        len -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* A bad line goes to its file whole, in one call, as other processes write there as well. */
static bool keep_bad(const struct worker *w, const char *text, const char *record, size_t len)
{
    if (w->o.options->format == QWP_FEED_QWPB) {
        return write_all(w->o.skip_fd, text, strlen(text)) && write_all(w->o.skip_fd, "\n", 1);
    }
    char *line = malloc(len + 1);
    if (line == NULL) {
        return false;
    }
    memcpy(line, record, len);
    const bool ended = len > 0 && line[len - 1] == '\n';
    line[len] = '\n';
    const bool ok = write_all(w->o.skip_fd, line, ended ? len : len + 1);
    free(line);
    return ok;
}

/* False: the feed ends. */
static bool handle_bad(struct worker *w, const struct qwp_feed_block *block, const char *data,
                       size_t off, size_t len, const struct qwp_error *err)
{
    char text[QWP_FEED_FAILURE_BYTES];
    snprintf(text, sizeof text, "%s: %s %llu: %s", file_name(w, block),
             w->o.options->format == QWP_FEED_QWPB ? "offset" : "line",
             place_of(w, block, data, off), err->text);
    if (w->o.skip_fd < 0) {
        qwp_feed_share_fail(w->o.share, "%s", text);
        return false;
    }
    w->rows_bad++;
    const uint64_t told = atomic_fetch_add_explicit(&w->o.share->bad_told, 1, memory_order_relaxed);
    if (told < BAD_TOLD_MAX) {
        fprintf(stderr, "%sqwp-feed: skipped %s\n%s", w->o.options->progress ? "\r\033[K" : "",
                text,
                told + 1 == BAD_TOLD_MAX ? "qwp-feed: more bad lines are only counted\n" : "");
    }
    if (!keep_bad(w, text, data + off, len)) {
        qwp_feed_share_fail(w->o.share, "cannot write %s: %s", w->o.options->skip_bad,
                            strerror(errno));
        return false;
    }
    return true;
}

/* Gives the parser the definitions of all blocks up to this one. */
static enum qwp_result read_definitions(struct worker *w, const struct qwp_feed_block *block,
                                        struct qwp_error *err)
{
    if (w->generation != block->generation) {
        qwp_feed_qwpb_restart(w->qwpb);
        w->generation = block->generation;
        w->definitions_pos = block->definitions_start;
    }
    const size_t len = (size_t)(block->definitions_end - w->definitions_pos);
    if (len == 0) {
        return QWP_OK;
    }
    if (len > w->definitions_room) {
        free(w->definitions);
        w->definitions = malloc(len);
        w->definitions_room = w->definitions != NULL ? len : 0;
        if (w->definitions == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for the file's definitions");
        }
    }
    for (size_t have = 0; have < len;) {
        const ssize_t n = pread(w->o.definitions_fd, w->definitions + have, len - have,
                                (off_t)(w->definitions_pos + have));
        if (n <= 0 && errno != EINTR) {
            return qwp_fail(err, QWP_IO, errno, "cannot read the file's definitions");
        }
        have += n > 0 ? (size_t)n : 0;
    }
    size_t used;
    const enum qwp_result result = qwp_feed_qwpb_define(w->qwpb, w->definitions, len, &used, err);
    w->definitions_pos += used;
    return result;
}

static enum qwp_result begin_block(struct worker *w, const struct qwp_feed_block *block,
                                   const char *data, struct qwp_error *err)
{
    switch (w->o.options->format) {
    case QWP_FEED_ILP:
        qwp_feed_ilp_begin(w->ilp, data, block->len);
        return QWP_OK;
    case QWP_FEED_CSV:
        qwp_feed_csv_begin(w->csv, data, block->len);
        return QWP_OK;
    case QWP_FEED_QWPB:
        break;
    }
    const enum qwp_result result = read_definitions(w, block, err);
    if (result == QWP_OK) {
        qwp_feed_qwpb_begin(w->qwpb, data, block->len, block->ids);
    }
    return result;
}

static inline enum qwp_result next_row(struct worker *w, struct qwp_feed_row *row,
                                       struct qwp_feed_bad *bad)
{
    return w->ilp != NULL   ? qwp_feed_ilp_next(w->ilp, row, bad)
           : w->csv != NULL ? qwp_feed_csv_next(w->csv, row, bad)
                            : qwp_feed_qwpb_next(w->qwpb, row, bad);
}

/* Where the record of the last row lies in its block. */
static void last_record(const struct worker *w, size_t *off, size_t *len)
{
    if (w->ilp != NULL) {
        qwp_feed_ilp_last(w->ilp, off, len);
    } else if (w->csv != NULL) {
        qwp_feed_csv_last(w->csv, off, len);
    } else {
        qwp_feed_qwpb_last(w->qwpb, off, len);
    }
}

/* Reserves the time of a batch of rows at the rate of all processes together. Time that nobody used
 * is lost but for a little, so that a pause is not made up for by a flood. */
static int64_t pace_ticket(struct worker *w)
{
    const int64_t cost_ns = (int64_t)(w->pace_batch / w->o.options->rate * 1e9);
    int64_t due_ns = atomic_load_explicit(&w->o.share->due_ns, memory_order_relaxed);
    int64_t ours_ns;
    do {
        const int64_t earliest_ns = qwp_clock_monotonic_ns() - PACE_SLACK_NS;
        ours_ns = due_ns > earliest_ns ? due_ns : earliest_ns;
    } while (!atomic_compare_exchange_weak_explicit(&w->o.share->due_ns, &due_ns, ours_ns + cost_ns,
                                                    memory_order_relaxed, memory_order_relaxed));
    return ours_ns;
}

/* False: told to stop meanwhile. */
static bool pace(struct worker *w)
{
    if (w->pace_left > 0) {
        w->pace_left--;
        return true;
    }
    const int64_t due_ns = pace_ticket(w);
    int64_t wait_ns;
    while ((wait_ns = due_ns - qwp_clock_monotonic_ns()) > 0) {
        if (abandoned(w)) {
            return false;
        }
        const struct timespec nap = {.tv_nsec = (long)(wait_ns < LOOK_NS ? wait_ns : LOOK_NS)};
        nanosleep(&nap, NULL);
        tell(w);
    }
    w->pace_left = w->pace_batch - 1;
    return true;
}

/* False: this process sends no more. */
static bool process_block(struct worker *w, const struct qwp_feed_block *block, const char *data)
{
    struct qwp_feed_bad bad = {0};
    enum qwp_result result = begin_block(w, block, data, &bad.err);
    if (result != QWP_OK) {
        qwp_feed_share_fail(w->o.share, "%s: %s", file_name(w, block), bad.err.text);
        return false;
    }
    struct qwp_feed_row row;
    uint32_t until_tell = TELL_ROWS;
    while ((result = next_row(w, &row, &bad)) != QWP_AGAIN) {
        if (result == QWP_OK) {
            if (w->pace_batch != 0 && !pace(w)) {
                return false;
            }
            result = qwp_feed_ring_take(&w->ring, &row, &bad.err);
            if (__builtin_expect(result != QWP_OK, 0)) {
                last_record(w, &bad.off, &bad.len);
            }
        }
        if (__builtin_expect(result != QWP_OK, 0)) {
            if (result == QWP_AGAIN) { /* the ring stayed full, and we were told to stop */
                return false;
            }
            if (result != QWP_INVALID && result != QWP_LIMIT) {
                qwp_feed_share_fail(w->o.share, "%s", bad.err.text);
                return false;
            }
            if (!handle_bad(w, block, data, bad.off, bad.len, &bad.err)) {
                return false;
            }
        }
        if (--until_tell == 0) {
            until_tell = TELL_ROWS;
            tell(w);
        }
    }
    atomic_store_explicit(&w->shared->bytes,
                          atomic_load_explicit(&w->shared->bytes, memory_order_relaxed) +
                              block->len,
                          memory_order_relaxed);
    tell(w);
    return true;
}

static void wait_ready(struct worker *w)
{
    for (;;) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        if (sem_timedwait(&w->shared->ready, &until) == 0) {
            return;
        }
        if (errno == ETIMEDOUT && w->ring_open) {
            tell(w); /* acknowledgements come in, sidecars come and go */
        }
    }
}

/* Until the parent says that the input has ended. After a failure, of whichever process, blocks are
 * only given back. */
static void process_blocks(struct worker *w)
{
    for (uint32_t i = 0;; i = (i + 1) % QWP_FEED_SLOTS) {
        wait_ready(w);
        struct qwp_feed_slot_share *slot = &w->shared->slots[i];
        /* sync[feed.full] acquire: pairs with the parent's release after it filled the slot. */
        if (atomic_load_explicit(&slot->full, memory_order_acquire) == 0) {
            return; /* woken without a block: the end */
        }
        const bool stopped =
            w->failed || atomic_load_explicit(&w->o.share->failed, memory_order_relaxed) != 0;
        if (!stopped && !process_block(w, &slot->block, slot->data)) {
            w->failed = true;
        }
        /* sync[feed.free] release: our reads of the slot end before the parent fills it again. */
        atomic_store_explicit(&slot->full, 0, memory_order_release);
        sem_post(&w->o.share->freed);
    }
}

/* ---- the end ---- */

static void wait_acked(struct worker *w)
{
    const double timeout_s = w->o.options->ack_timeout_s;
    const int64_t deadline_ns = timeout_s > 0 && timeout_s < 1e9
                                    ? qwp_clock_monotonic_ns() + (int64_t)(timeout_s * 1e9)
                                    : QWP_NEVER_NS;
    const uint64_t position = qwp_position_published(w->ring.producer);
    atomic_store_explicit(&w->shared->state, QWP_FEED_WORKER_ACKING, memory_order_relaxed);
    for (;;) {
        struct qwp_error err;
        const enum qwp_result result = qwp_wait_acked(w->ring.producer, position, LOOK_NS, &err);
        tell(w);
        if (result == QWP_OK) {
            return;
        }
        if (result == QWP_REJECTED) {
            w->rejected = true;
            continue;
        }
        if (result != QWP_AGAIN) {
            qwp_feed_share_fail(w->o.share, "%s: %s", w->producer_name, err.text);
            return;
        }
        if (abandoned(w)) {
            return;
        }
        if (qwp_clock_monotonic_ns() >= deadline_ns) {
            qwp_feed_share_fail(
                w->o.share,
                "not acknowledged within %g s (--ack-timeout): the rows wait in the ring%s",
                timeout_s,
                qwp_consumer_state(w->ring.producer) == QWP_CONSUMER_NONE
                    ? "; no sidecar serves it, is qwp-sidecar running with the same --rings and "
                      "--name?"
                    : "; see qwp-sidecar status");
            return;
        }
    }
}

static bool write_report(const struct worker *w)
{
    FILE *out = fdopen(dup(w->o.report_fd), "w");
    if (out == NULL) {
        return false;
    }
    for (uint32_t t = 0; t < w->catalog.table_count; t++) {
        const struct qwp_feed_table *table = w->catalog.tables[t];
        const uint64_t rows = qwp_feed_ring_rows(&w->ring, t);
        if (rows == 0) {
            continue;
        }
        fprintf(out, "T %llu %s\n", (unsigned long long)rows, table->name);
        for (uint32_t c = 0; c < table->column_count; c++) {
            fprintf(out, "C %u %u %s\n", table->columns[c].type, table->columns[c].parameter,
                    table->columns[c].name);
        }
    }
    return fclose(out) == 0;
}

int qwp_feed_worker_run(const struct qwp_feed_worker_options *options)
{
    struct worker w = {.o = *options, .shared = &options->share->workers[options->index]};
    const struct qwp_feed_options *o = options->options;
    if (o->rate > 0) {
        const double batch = o->rate / 1000;
        w.pace_batch = batch < 1 ? 1 : batch > PACE_BATCH_MAX ? PACE_BATCH_MAX : (uint32_t)batch;
    }
    struct qwp_error err;
    enum qwp_result result = open_ring(&w, &err);
    if (result == QWP_OK) {
        result = open_parser(&w, &err);
    }
    if (result != QWP_OK) {
        qwp_feed_share_fail(options->share, "%s", err.text);
        w.failed = true;
    }
    if (w.ring_open) {
        tell(&w);
    }
    atomic_store_explicit(&w.shared->state, QWP_FEED_WORKER_SENDING, memory_order_relaxed);
    process_blocks(&w);
    if (w.ring_open) {
        tell(&w);
        if (!o->dry_run && !o->no_wait) {
            wait_acked(&w);
        }
        tell(&w);
        w.failed |= !write_report(&w);
    }
    atomic_store_explicit(&w.shared->state, QWP_FEED_WORKER_DONE, memory_order_relaxed);
    close_all(&w);
    return w.failed || w.rejected ? EXIT_FAILURE : EXIT_SUCCESS;
}

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/qwp_log.h"
#include "core/wire/qwp_names.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_rejected_read.h"
#include "sidecar/qwp_sender_internal.h"

enum { RETRY_MS = 1000 };

/* ---- for status ---- */

static void trouble_show(struct qwp_control_trouble *at, const struct qwp_blame_table *table)
{
    qwp_shared_text_set(at->name, sizeof at->name, table->name);
    qwp_shared_text_set(at->reason, sizeof at->reason, table->text);
    atomic_store_explicit(&at->status, table->status, memory_order_relaxed);
    atomic_store_explicit(&at->rows_aside, table->rows_aside, memory_order_relaxed);
    const enum qwp_trouble_state state = table->state == QWP_BLAME_SUSPECT ? QWP_TROUBLE_SUSPECT
                                         : table->held                     ? QWP_TROUBLE_HELD
                                                                           : QWP_TROUBLE_BLOCKED;
    atomic_store_explicit(&at->state, state, memory_order_relaxed);
}

void qwp_sender_show_tables(struct qwp_sender *sender)
{
    const struct qwp_blame *blame = &sender->reject.blame;
    struct qwp_control_header *page = sender->options.page;
    uint32_t shown = 0;
    uint32_t blocked = 0;
    for (size_t i = 0; i < blame->table_count; i++) {
        blocked += blame->tables[i].state == QWP_BLAME_BLOCKED;
        if (shown < sender->options.troubles_max) {
            trouble_show(&sender->options.troubles[shown++], &blame->tables[i]);
        }
    }
    atomic_store_explicit(&page->troubles, shown, memory_order_relaxed);
    atomic_store_explicit(&page->tables_blocked, blocked, memory_order_relaxed);
    atomic_store_explicit(&page->tables_suspect, (uint32_t)blame->table_count - blocked,
                          memory_order_relaxed);
    atomic_store_explicit(&page->rejected_bytes, sender->reject.folder.bytes_total,
                          memory_order_relaxed);
}

/* ---- what was set aside before ---- */

/* Rows of frames that are not settled yet are done; so many of the table as the entry says. */
static void entry_recall(struct qwp_sender *sender, const struct qwp_rejected_item *item,
                         uint64_t hash)
{
    if (item->fsn >= qwp_seglog_acked_count(sender->options.log)) {
        const uint64_t rows = item->cause == QWP_REJECTED_TOO_BIG
                                  ? qwp_blame_done(&sender->reject.blame, item->fsn, hash)
                                  : QWP_DONE_ALL;
        struct qwp_done *done = NULL;
        if (qwp_blame_set_done(&sender->reject.blame, item->fsn, hash, rows)) {
            done = qwp_blame_find_done(&sender->reject.blame, item->fsn, hash);
            done->untold_rows += item->row_count;
        }
    }
}

static void file_recall(struct qwp_sender *sender, const struct qwp_rejected_content *content)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_name name = {content->table, (uint32_t)strlen(content->table)};
    const uint64_t hash = qwp_name_hash(name.text, name.len);
    const bool same_log = memcmp(content->slot_uuid, reject->folder.options.slot_uuid,
                                 sizeof content->slot_uuid) == 0;
    struct qwp_rejected_item item;
    for (size_t off = 0; qwp_rejected_content_next(content, &off, &item);) {
        if (same_log) {
            entry_recall(sender, &item, hash);
        }
        if (item.state != QWP_REJECTED_ASIDE || item.cause == QWP_REJECTED_TOO_BIG) {
            continue;
        }
        struct qwp_blame_table *table = qwp_blame_add(&reject->blame, name, hash);
        if (table != NULL) {
            table->status = item.status;
            table->rows_aside += item.row_count;
            snprintf(table->text, sizeof table->text, "%.*s", (int)item.text_len, item.text);
        }
    }
}

/* Tables of which rows lie here are suspects until rows of theirs are taken. */
static enum qwp_result recall(struct qwp_sender *sender, struct qwp_error *err)
{
    struct qwp_rejected_names names;
    const char *dir = sender->reject.folder.dir;
    const enum qwp_result result = qwp_rejected_names_read(&names, dir, err);
    if (result != QWP_OK) {
        return result;
    }
    for (size_t i = 0; i < names.count; i++) {
        struct qwp_rejected_content content;
        struct qwp_error bad;
        if (qwp_rejected_content_read(&content, dir, names.list[i], false, &bad) != QWP_OK) {
            qwp_log(QWP_LOG_WARN, "file of refused rows left alone", "reason=\"%s\"", bad.text);
            continue;
        }
        file_recall(sender, &content);
        qwp_rejected_content_fini(&content);
    }
    qwp_rejected_names_fini(&names);
    return QWP_OK;
}

/* ---- the folder changes ---- */

static void release(struct qwp_sender *sender, struct qwp_blame_table *table);

/* Whatever changed may have mended something, or made room: every table gets a probe. */
void qwp_sender_look_again(struct qwp_sender *sender)
{
    struct qwp_reject *reject = &sender->reject;
    const int64_t now_ns = qwp_clock_monotonic_ns();
    qwp_rejected_recount(&reject->folder);
    for (size_t i = 0; i < reject->blame.table_count; i++) {
        struct qwp_blame_table *table = &reject->blame.tables[i];
        table->probe_ns = now_ns;
        table->probe_interval_ns = 0;
        if (table->held && !qwp_rejected_is_full(&reject->folder)) {
            release(sender, table);
        }
    }
    qwp_sender_show_tables(sender);
}

static void on_watch(struct qwp_op *op, int outcome, bool more)
{
    struct qwp_sender *sender = op->owner;
    if (outcome < 0) {
        return; /* cancelled */
    }
    _Alignas(struct inotify_event) char events[4096];
    while (read(sender->reject.watch_fd, events, sizeof events) > 0) {
    }
    if (!more) {
        qwp_loop_poll(sender->options.loop, op, sender->reject.watch_fd, POLLIN, true);
    }
    qwp_sender_look_again(sender);
}

/* Without it tables are found mended by probes alone. */
static void watch(struct qwp_sender *sender)
{
    struct qwp_reject *reject = &sender->reject;
    if (reject->watch_fd >= 0 || reject->folder.dir_fd < 0) {
        return;
    }
    reject->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (reject->watch_fd < 0) {
        return;
    }
    if (inotify_add_watch(reject->watch_fd, reject->folder.dir, IN_DELETE | IN_MOVE) < 0) {
        close(reject->watch_fd);
        reject->watch_fd = -1;
        return;
    }
    reject->watch_op.fn = on_watch;
    reject->watch_op.owner = sender;
    qwp_loop_poll(sender->options.loop, &reject->watch_op, reject->watch_fd, POLLIN, true);
}

/* ---- life ---- */

static void on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)op; /* do_work(), which follows each run of the loop, looks at the clock */
    (void)outcome;
    (void)more;
}

enum qwp_result qwp_sender_aside_open(struct qwp_sender *sender, struct qwp_error *err)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_sender_options *options = &sender->options;
    *reject = (struct qwp_reject){
        .watch_fd = -1, .announced_bytes = QWP_MESSAGE_BYTES_DEFAULT, .timer = {.fn = on_timer}};
    reject->folder.dir_fd = -1;
    qwp_split_init(&reject->split);
    struct qwp_rejected_options folder = {
        .dir = options->rejected_dir,
        .bytes_max = options->rejected_bytes_max,
        .durable = options->conf->sf_durability == QWP_DURABILITY_PERIODIC,
    };
    /* With generations the first one stands for all: FSNs go on from one to the next. */
    const struct qwp_seglog *first =
        options->generations != NULL ? options->generations->home->log : options->log;
    memcpy(folder.slot_uuid, qwp_seglog_recovered(first)->slot_uuid, sizeof folder.slot_uuid);
    enum qwp_result result = qwp_rejected_open(&reject->folder, &folder, err);
    if (result == QWP_OK) {
        result = recall(sender, err);
    }
    if (result == QWP_OK) {
        atomic_store_explicit(&options->page->rejected_bytes_max, options->rejected_bytes_max,
                              memory_order_relaxed);
        watch(sender);
        qwp_sender_show_tables(sender);
    }
    return result;
}

static void op_end(struct qwp_sender *sender, struct qwp_op *op)
{
    qwp_loop_cancel(sender->options.loop, op);
    while (op->in_flight) {
        (void)qwp_loop_run(sender->options.loop, QWP_NEVER_NS);
    }
}

void qwp_sender_aside_close(struct qwp_sender *sender)
{
    struct qwp_reject *reject = &sender->reject;
    if (reject->folder.dir == NULL) {
        return;
    }
    op_end(sender, &reject->timer);
    op_end(sender, &reject->watch_op);
    if (reject->watch_fd >= 0) {
        close(reject->watch_fd);
    }
    qwp_sender_plan_fini(&reject->plan);
    qwp_split_fini(&reject->split);
    qwp_blame_fini(&reject->blame);
    qwp_rejected_close(&reject->folder);
}

/* ---- setting aside ---- */

void qwp_sender_aside_failed(struct qwp_sender *sender, const char *why)
{
    struct qwp_reject *reject = &sender->reject;
    reject->retry_ns = qwp_clock_monotonic_ns() + (int64_t)RETRY_MS * QWP_NS_PER_MS;
    if (reject->timer.in_flight) {
        qwp_loop_timer_move(sender->options.loop, &reject->timer, reject->retry_ns);
    } else {
        qwp_loop_timer(sender->options.loop, &reject->timer, reject->retry_ns);
    }
    if (!reject->alarm) {
        reject->alarm = true;
        qwp_sender_show_error(sender, why);
        qwp_log(QWP_LOG_ERROR,
                "refused rows cannot be set aside; they stay in the store and what "
                "is behind them waits",
                "reason=\"%s\"", why);
    }
}

void qwp_sender_aside_retry(struct qwp_sender *sender)
{
    struct qwp_reject *reject = &sender->reject;
    const uint64_t end = reject->settle_end;
    reject->settle_end = 0;
    reject->retry_ns = 0;
    if (end > qwp_seglog_acked_count(sender->options.log)) {
        qwp_sender_settle(sender, end);
    }
}

struct blocks {
    struct qwp_split *split;
    const struct qwp_split_table *table;
    uint64_t first_row, row_count;
};

static uint32_t blocks_put(void *owner, qwp_recode_symbol_fn symbol_id, void *symbol_owner,
                           struct qwp_bytes *out)
{
    const struct blocks *blocks = owner;
    return qwp_split_put_rows(blocks->split, blocks->table, blocks->first_row, blocks->row_count,
                              symbol_id, symbol_owner, out);
}

static void tell(struct qwp_sender *sender, enum qwp_notice_kind kind, struct qwp_name name,
                 uint64_t first_row, uint64_t row_count)
{
    if (sender->options.notices == NULL) {
        return;
    }
    qwp_notices_put(sender->options.notices, kind, name, sender->reject.plan.fsn, first_row,
                    row_count);
    if (sender->options.intake_loop != NULL) {
        qwp_loop_wake(sender->options.intake_loop);
    }
}

static bool can_tell(struct qwp_sender *sender)
{
    return sender->options.notices == NULL || qwp_notices_has_room(sender->options.notices);
}

bool qwp_sender_tell_recalled(struct qwp_sender *sender, struct qwp_name table, uint64_t hash)
{
    struct qwp_done *done =
        qwp_blame_find_done(&sender->reject.blame, sender->reject.plan.fsn, hash);
    if (done == NULL || done->untold_rows == 0) {
        return true;
    }
    if (!can_tell(sender)) {
        return false;
    }
    tell(sender, QWP_NOTICE_ASIDE, table, 0, done->untold_rows);
    qwp_sender_add(&sender->options.page->rows_rejected, done->untold_rows);
    done->untold_rows = 0;
    return true;
}

static enum qwp_result entry_append(struct qwp_sender *sender, const struct qwp_split_table *table,
                                    const struct qwp_blame_table *blamed, uint64_t first_row,
                                    uint64_t row_count, struct qwp_error *err)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_plan *plan = &reject->plan;
    char text[QWP_CONTROL_TEXT_BYTES];
    snprintf(text, sizeof text, "a row larger than a message may be (%zu bytes)",
             reject->announced_bytes);
    char producers[QWP_REJECTED_PRODUCERS_BYTES_MAX] = "";
    const struct qwp_name name = table != NULL ? table->name : qwp_sender_opaque_name();
    if (sender->options.producers_of != NULL && table != NULL) {
        sender->options.producers_of(sender->options.producers_owner, name, producers,
                                     sizeof producers);
    }
    struct qwp_rejected_entry entry = {
        .table = name,
        .status = blamed != NULL ? blamed->status : 0,
        .cause = table == NULL              ? QWP_REJECTED_OPAQUE
                 : blamed == NULL           ? QWP_REJECTED_TOO_BIG
                 : blamed->fsn == plan->fsn ? QWP_REJECTED_REFUSED
                                            : QWP_REJECTED_BLOCKED,
        .fsn = plan->fsn,
        .row_count = row_count,
        .text = blamed != NULL ? blamed->text : text,
        .producers = producers,
    };
    struct blocks blocks = {&reject->split, table, first_row, row_count};
    struct qwp_rejected_source source = {
        .opaque = table == NULL ? plan->frame : NULL,
        .opaque_len = plan->len,
        .blocks = blocks_put,
        .owner = &blocks,
        .flags = reject->split.message.flags & (uint8_t)~QWP_FLAG_DEFER_COMMIT,
        .symbol_text = qwp_dict_text,
        .symbols = qwp_seglog_dict(sender->options.log),
    };
    memcpy(source.symbols_uuid, qwp_seglog_recovered(sender->options.log)->slot_uuid,
           sizeof source.symbols_uuid);
    return qwp_rejected_append(&reject->folder, &entry, &source, err);
}

static void hold_if_full(struct qwp_sender *sender, struct qwp_blame_table *table)
{
    struct qwp_reject *reject = &sender->reject;
    if (table->held || sender->options.notices == NULL || !qwp_rejected_is_full(&reject->folder) ||
        !can_tell(sender)) {
        return;
    }
    table->held = true;
    tell(sender, QWP_NOTICE_HOLD, (struct qwp_name){table->name, table->name_len}, 0, 0);
    qwp_log(QWP_LOG_ERROR,
            "no more room for refused rows: producers of this table wait until it is mended and "
            "rows are put back or removed",
            "table=\"%s\" bytes=%llu bytes_max=%llu folder=%s", table->name,
            (unsigned long long)reject->folder.bytes_total,
            (unsigned long long)reject->folder.options.bytes_max, reject->folder.dir);
}

bool qwp_sender_set_aside(struct qwp_sender *sender, const struct qwp_split_table *table,
                          struct qwp_blame_table *blamed, uint64_t first_row, uint64_t row_count)
{
    struct qwp_reject *reject = &sender->reject;
    struct qwp_error err;
    if (!can_tell(sender)) {
        qwp_sender_aside_failed(sender, "intake does not keep up with the news of refused rows");
        return false;
    }
    if (entry_append(sender, table, blamed, first_row, row_count, &err) != QWP_OK) {
        qwp_sender_aside_failed(sender, err.text);
        return false;
    }
    QWP_CRASH_POINT("aside.appended");
    if (reject->alarm) {
        reject->alarm = false;
        qwp_log(QWP_LOG_INFO, "refused rows can be set aside again", "");
    }
    const bool all = table == NULL || first_row + row_count == table->row_count;
    (void)qwp_blame_set_done(&reject->blame, reject->plan.fsn,
                             table != NULL ? table->hash : blamed->hash,
                             all ? QWP_DONE_ALL : first_row + row_count);
    if (table != NULL) {
        tell(sender, QWP_NOTICE_ASIDE, table->name, first_row, row_count);
    }
    qwp_sender_add(&sender->options.page->rows_rejected, row_count);
    watch(sender);
    if (blamed != NULL) {
        blamed->rows_aside += row_count;
        hold_if_full(sender, blamed);
    } else {
        qwp_log(QWP_LOG_ERROR, "a row larger than a message may be was set aside",
                "table=\"%.*s\" frame=%llu message_bytes_max=%zu folder=%s", (int)table->name.len,
                table->name.text, (unsigned long long)reject->plan.fsn, reject->announced_bytes,
                reject->folder.dir);
    }
    qwp_sender_show_tables(sender);
    return true;
}

/* ---- and back ---- */

/* Its producers need not wait any more. */
static void release(struct qwp_sender *sender, struct qwp_blame_table *table)
{
    if (!can_tell(sender)) {
        return; /* the next look */
    }
    table->held = false;
    tell(sender, QWP_NOTICE_RELEASE, (struct qwp_name){table->name, table->name_len}, 0, 0);
}

void qwp_sender_mended(struct qwp_sender *sender, struct qwp_blame_table *table)
{
    const struct qwp_name name = {table->name, table->name_len};
    if (table->held) {
        release(sender, table);
        if (table->held) {
            return; /* it stays under suspicion until intake can be told */
        }
    }
    qwp_log(QWP_LOG_INFO, "table takes rows again", "table=\"%s\" rows_set_aside=%llu", table->name,
            (unsigned long long)table->rows_aside);
    qwp_rejected_end_table(&sender->reject.folder, name);
    qwp_blame_forget(&sender->reject.blame, table);
    qwp_sender_show_tables(sender);
}

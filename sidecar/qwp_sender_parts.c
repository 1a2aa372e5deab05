#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "sidecar/qwp_sender_internal.h"

/* What frames are called that cannot be taken apart. */
static const char opaque_name[] = "(frames that cannot be read)";
enum { OPAQUE_HASH = 1, FLAGS_OFF = 5 };

static const struct qwp_split_table opaque_table = {
    .name = {opaque_name, sizeof opaque_name - 1},
    .hash = OPAQUE_HASH,
};

struct qwp_name qwp_sender_opaque_name(void)
{
    return opaque_table.name;
}

size_t qwp_sender_bytes_max(const struct qwp_sender *sender)
{
    const struct qwp_reject *reject = &sender->reject;
    return reject->learned_bytes != 0 && reject->learned_bytes < reject->announced_bytes
               ? reject->learned_bytes
               : reject->announced_bytes;
}

/* Whether anything is held against one of the frame's tables, or done of it. */
static bool has_trouble(struct qwp_sender *sender, const struct qwp_frame *frame)
{
    struct qwp_reject *reject = &sender->reject;
    const struct qwp_dict *dict = qwp_seglog_dict(sender->options.log);
    const struct qwp_name name = opaque_table.name;
    if (qwp_split_glance(&reject->split, frame->payload, frame->len, qwp_dict_text, dict,
                         qwp_dict_count(dict)) != QWP_OK) {
        return qwp_blame_find(&reject->blame, name, OPAQUE_HASH) != NULL;
    }
    for (uint32_t i = 0; i < reject->split.table_count; i++) {
        const struct qwp_split_table *table = &reject->split.tables[i];
        if (qwp_blame_find(&reject->blame, table->name, table->hash) != NULL ||
            qwp_blame_done(&reject->blame, frame->fsn, table->hash) > 0) {
            return true;
        }
    }
    return false;
}

bool qwp_sender_goes_in_parts(struct qwp_sender *sender, const struct qwp_frame *frame)
{
    const struct qwp_blame *blame = &sender->reject.blame;
    return frame->len > qwp_sender_bytes_max(sender) ||
           (!qwp_blame_is_clear(blame) &&
            (qwp_blame_is_split(blame, frame->fsn) || has_trouble(sender, frame)));
}

void qwp_sender_plan_drop(struct qwp_sender *sender)
{
    struct qwp_plan *plan = &sender->reject.plan;
    plan->active = plan->hold = plan->out_ready = false;
    plan->out.len = 0;
}

void qwp_sender_plan_fini(struct qwp_plan *plan)
{
    free(plan->items);
    free(plan->in_rest);
    qwp_bytes_fini(&plan->out);
    *plan = (struct qwp_plan){0};
}

bool qwp_sender_is_on_hold(struct qwp_sender *sender)
{
    struct qwp_plan *plan = &sender->reject.plan;
    if (!plan->active || !plan->hold) {
        return false;
    }
    if (sender->first_sequence != sender->next_sequence) {
        return true;
    }
    plan->hold = false;
    plan->active = plan->next < plan->item_count;
    return false;
}

/* ---- deciding ---- */

/* What is done about a table of the frame. */
enum fate {
    FATE_DONE = 0, /* nothing is left of it */
    FATE_REST,     /* with the others nobody complains about */
    FATE_OWN,      /* a message of its own */
    FATE_LAST,     /* the same, with nothing behind it */
    FATE_NOT_NOW,  /* it is to be set aside, and cannot be */
};

static bool is_probe_due(const struct qwp_blame_table *blamed)
{
    return qwp_clock_monotonic_ns() >= blamed->probe_ns;
}

static enum fate fate_of(struct qwp_sender *sender, const struct qwp_split_table *table)
{
    struct qwp_reject *reject = &sender->reject;
    const uint64_t fsn = reject->plan.fsn;
    const uint64_t done = qwp_blame_done(&reject->blame, fsn, table->hash);
    if (done == QWP_DONE_ALL) {
        return qwp_sender_tell_recalled(sender, table->name, table->hash) ? FATE_DONE
                                                                          : FATE_NOT_NOW;
    }
    struct qwp_blame_table *blamed = qwp_blame_find(&reject->blame, table->name, table->hash);
    if (blamed != NULL && blamed->state == QWP_BLAME_BLOCKED && !is_probe_due(blamed)) {
        return qwp_sender_set_aside(sender, table == &opaque_table ? NULL : table, blamed, done,
                                    table->row_count - done)
                   ? FATE_DONE
                   : FATE_NOT_NOW;
    }
    if (blamed != NULL) {
        return FATE_LAST;
    }
    return done > 0 || qwp_blame_is_split(&reject->blame, fsn) ? FATE_OWN : FATE_REST;
}

static void item_add(struct qwp_plan *plan, uint32_t table, bool last)
{
    QWP_ASSERT(plan->item_count < plan->item_room);
    plan->items[plan->item_count++] = (struct qwp_plan_item){table, last};
}

/* Room for an item for each table and one more. */
static bool plan_reserve(struct qwp_plan *plan, uint32_t table_count)
{
    const uint32_t room = table_count + 2;
    if (room > plan->item_room) {
        free(plan->items);
        free(plan->in_rest);
        plan->items = calloc(room, sizeof *plan->items);
        plan->in_rest = calloc(room, sizeof *plan->in_rest);
        plan->item_room = plan->items != NULL && plan->in_rest != NULL ? room : 0;
    }
    plan->item_count = plan->next = 0;
    plan->row = 0;
    return plan->item_room >= room;
}

/* First all that is above suspicion, in one message if it fits, the suspects last. */
static bool plan_items(struct qwp_sender *sender, enum fate *fates)
{
    const struct qwp_split *split = &sender->reject.split;
    struct qwp_plan *plan = &sender->reject.plan;
    size_t rest_bytes = QWP_HEADER_BYTES + 2;
    bool has_rest = false;
    plan->careful = qwp_blame_is_split(&sender->reject.blame, plan->fsn);
    for (uint32_t i = 0; i < split->table_count; i++) {
        fates[i] = fate_of(sender, &split->tables[i]);
        if (fates[i] == FATE_NOT_NOW) {
            return false;
        }
        plan->in_rest[i] = fates[i] == FATE_REST;
        has_rest |= plan->in_rest[i];
        rest_bytes += plan->in_rest[i] ? split->tables[i].block_bytes : 0;
        plan->careful |= fates[i] == FATE_LAST;
    }
    const bool together = has_rest && rest_bytes <= qwp_sender_bytes_max(sender);
    if (together) {
        item_add(plan, QWP_PLAN_REST, false);
    }
    for (uint32_t i = 0; i < split->table_count; i++) {
        if (fates[i] == FATE_OWN || (fates[i] == FATE_REST && !together)) {
            plan->in_rest[i] = false;
            item_add(plan, i, false);
        }
    }
    for (uint32_t i = 0; i < split->table_count; i++) {
        if (fates[i] == FATE_LAST) {
            item_add(plan, i, true);
        }
    }
    return true;
}

static bool plan_opaque(struct qwp_sender *sender)
{
    struct qwp_plan *plan = &sender->reject.plan;
    const enum fate fate = fate_of(sender, &opaque_table);
    /* One whose commit comes later is not answered by itself: no use in waiting. */
    plan->careful = (plan->frame[FLAGS_OFF] & QWP_FLAG_DEFER_COMMIT) == 0;
    if (fate != FATE_DONE && fate != FATE_NOT_NOW) {
        item_add(plan, QWP_PLAN_WHOLE, fate == FATE_LAST && plan->careful);
    }
    return fate != FATE_NOT_NOW;
}

/* Parts carry no symbols: they are registered before, once more if need be. */
static void symbols_register(struct qwp_sender *sender)
{
    const struct qwp_message *message = &sender->reject.split.message;
    const uint32_t end = message->delta_start + message->delta_count;
    if (message->delta_count > 0 && end > sender->catch_up_end) {
        sender->catch_up_end = end;
    }
}

bool qwp_sender_plan_begin(struct qwp_sender *sender, const struct qwp_frame *frame)
{
    struct qwp_reject *reject = &sender->reject;
    struct qwp_plan *plan = &reject->plan;
    if (reject->retry_ns != 0 && qwp_clock_monotonic_ns() < reject->retry_ns) {
        return false;
    }
    plan->fsn = frame->fsn;
    plan->frame = frame->payload;
    plan->len = frame->len;
    const struct qwp_dict *dict = qwp_seglog_dict(sender->options.log);
    const enum qwp_result result = qwp_split_open(&reject->split, frame->payload, frame->len,
                                                  qwp_dict_text, dict, qwp_dict_count(dict), NULL);
    bool decided = false;
    if (result == QWP_OK && plan_reserve(plan, reject->split.table_count)) {
        enum fate *fates = calloc(reject->split.table_count + 1, sizeof *fates);
        decided = fates != NULL && plan_items(sender, fates);
        free(fates);
        symbols_register(sender);
    } else if (result == QWP_CORRUPT && plan_reserve(plan, 1)) {
        reject->split.message = (struct qwp_message){0};
        decided = plan_opaque(sender);
    }
    if (!decided) {
        return false;
    }
    if (plan->item_count == 0) {
        item_add(plan, QWP_PLAN_EMPTY, false);
    }
    plan->active = true;
    return true;
}

/* ---- sending ---- */

static uint8_t flags_without(const struct qwp_plan *plan)
{
    return plan->careful ? QWP_FLAG_DEFER_COMMIT : 0;
}

static void build_rest(struct qwp_sender *sender)
{
    const struct qwp_split *split = &sender->reject.split;
    struct qwp_plan *plan = &sender->reject.plan;
    uint32_t blocks = 0;
    qwp_split_begin(split, flags_without(plan), &plan->out);
    for (uint32_t i = 0; i < split->table_count; i++) {
        if (plan->in_rest[i]) {
            qwp_split_put_table(split, &split->tables[i], &plan->out);
            blocks += split->tables[i].block_count;
        }
    }
    qwp_split_finish(&plan->out, blocks);
}

static void build_empty(struct qwp_sender *sender)
{
    struct qwp_plan *plan = &sender->reject.plan;
    qwp_split_begin(&sender->reject.split, flags_without(plan), &plan->out);
    qwp_split_finish(&plan->out, 0);
}

/* Rows of the table, of the plan's frame. A catch-up, which is not answered before a commit, does
 * not count. */
static bool is_on_its_way(struct qwp_sender *sender, const struct qwp_split_table *table)
{
    for (int64_t i = sender->first_sequence; i < sender->next_sequence; i++) {
        const struct qwp_in_flight *message = qwp_sender_in_flight_at(sender, i);
        if (message->kind == QWP_MESSAGE_PART && message->fsn == sender->reject.plan.fsn &&
            message->table_hash == table->hash) {
            return true;
        }
    }
    return false;
}

/* One row of the table is larger than any message may be, or was refused for that. False: it
 * cannot be set aside now. */
static bool big_row_aside(struct qwp_sender *sender, const struct qwp_split_table *table)
{
    struct qwp_plan *plan = &sender->reject.plan;
    /* Only once the rows before it are taken: they count as done together. */
    if (is_on_its_way(sender, table) || !qwp_sender_set_aside(sender, table, NULL, plan->row, 1)) {
        return false;
    }
    plan->row++;
    return true;
}

static bool is_too_big(const struct qwp_reject *reject, const struct qwp_split_table *table)
{
    return reject->has_too_big && reject->too_big_fsn == reject->plan.fsn &&
           reject->too_big_hash == table->hash && reject->too_big_row == reject->plan.row;
}

/* The next message of a table. QWP_AGAIN: not now; QWP_LIMIT: the table came to its end without
 * one. */
static enum qwp_result build_part(struct qwp_sender *sender, const struct qwp_split_table *table)
{
    struct qwp_reject *reject = &sender->reject;
    struct qwp_plan *plan = &reject->plan;
    const uint64_t done = qwp_blame_done(&reject->blame, plan->fsn, table->hash);
    plan->row = done > plan->row ? done : plan->row;
    const size_t most = qwp_sender_bytes_max(sender);
    if (plan->row == 0 && qwp_split_table_bytes(table) <= most) {
        qwp_split_begin(&reject->split, flags_without(plan), &plan->out);
        qwp_split_put_table(&reject->split, table, &plan->out);
        qwp_split_finish(&plan->out, table->block_count);
        plan->out_rows_end = table->row_count;
        return plan->out.failed ? QWP_AGAIN : QWP_OK;
    }
    while (plan->row < table->row_count) {
        uint64_t rows = 1;
        enum qwp_result result = QWP_LIMIT;
        if (!is_too_big(reject, table)) {
            result = qwp_split_chunk(&reject->split, table, plan->row, most, QWP_FLAG_DEFER_COMMIT,
                                     &plan->out, &rows);
            /* What was learned may be wrong: one row is offered as long as the server's own word
             * allows it. */
            reject->single_row = result == QWP_LIMIT && plan->out.len <= reject->announced_bytes;
            reject->single_row_at = plan->row;
            result = reject->single_row ? QWP_OK : result;
        }
        if (result == QWP_OK) {
            plan->out_rows_end = plan->row + rows;
            return QWP_OK;
        }
        plan->out.len = 0;
        if (result != QWP_LIMIT || !big_row_aside(sender, table)) {
            return QWP_AGAIN;
        }
    }
    return QWP_LIMIT;
}

static enum qwp_result build(struct qwp_sender *sender, const struct qwp_plan_item *item)
{
    struct qwp_plan *plan = &sender->reject.plan;
    plan->out.len = 0;
    plan->out.failed = false;
    switch (item->table) {
    case QWP_PLAN_REST:
        build_rest(sender);
        break;
    case QWP_PLAN_EMPTY:
        build_empty(sender);
        break;
    case QWP_PLAN_WHOLE:
        qwp_bytes_put(&plan->out, plan->frame, plan->len);
        break;
    default:
        return build_part(sender, &sender->reject.split.tables[item->table]);
    }
    return plan->out.failed ? QWP_AGAIN : QWP_OK;
}

static struct qwp_in_flight describe(struct qwp_sender *sender, const struct qwp_plan_item *item,
                                     bool *item_ends)
{
    const struct qwp_plan *plan = &sender->reject.plan;
    struct qwp_in_flight what = {.len = plan->out.len, .owned = plan->out.at, .fsn = plan->fsn};
    *item_ends = true;
    switch (item->table) {
    case QWP_PLAN_REST:
        what.kind = QWP_MESSAGE_REST;
        break;
    case QWP_PLAN_EMPTY:
        what.kind = QWP_MESSAGE_EMPTY;
        break;
    case QWP_PLAN_WHOLE:
        what.kind = QWP_MESSAGE_PART;
        what.table_hash = OPAQUE_HASH;
        what.rows_end = QWP_DONE_ALL;
        break;
    default: {
        const struct qwp_split_table *table = &sender->reject.split.tables[item->table];
        *item_ends = plan->out_rows_end == table->row_count;
        what.kind = QWP_MESSAGE_PART;
        what.table_hash = table->hash;
        what.rows_end = *item_ends ? QWP_DONE_ALL : plan->out_rows_end;
        break;
    }
    }
    if (*item_ends && plan->next + 1 == plan->item_count) {
        what.fsn_end = plan->fsn + 1;
    }
    return what;
}

/* The item is through. */
static void item_ends(struct qwp_plan *plan, const struct qwp_plan_item *item)
{
    plan->hold |= item->last;
    plan->row = 0;
    plan->next++;
    if (plan->next == plan->item_count) {
        plan->hold |= plan->careful;
        plan->active = plan->hold;
    }
}

bool qwp_sender_plan_send(struct qwp_sender *sender)
{
    struct qwp_plan *plan = &sender->reject.plan;
    struct qwp_plan_item *item = &plan->items[plan->next];
    if (!plan->out_ready) {
        const enum qwp_result built = build(sender, item);
        if (built == QWP_LIMIT && plan->next + 1 == plan->item_count) {
            item->table = QWP_PLAN_EMPTY; /* the frame's end has still to be said */
            return true;
        }
        if (built == QWP_LIMIT) {
            item_ends(plan, item);
            return true;
        }
        if (built != QWP_OK) {
            return false;
        }
        plan->out_ready = true;
    }
    bool ends;
    const struct qwp_in_flight what = describe(sender, item, &ends);
    if (!qwp_sender_message_send(sender, plan->out.at, &what)) {
        return false;
    }
    plan->out = (struct qwp_bytes){0}; /* owned by what is in flight */
    plan->out_ready = false;
    plan->row = plan->out_rows_end;
    plan->hold |= sender->reject.single_row;
    sender->reject.single_row = false;
    if (ends) {
        item_ends(plan, item);
    }
    return true;
}

#include "tests/sink/sink_intake.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/wire/qwp_names.h"

struct sink_held {
    struct sink_table *table;
    uint32_t rows;
};

void sink_intake_init(struct sink_intake *intake, struct sink_store *store,
                      const struct sink_policy *policy, int64_t connection)
{
    memset(intake, 0, sizeof *intake);
    intake->place.connection = connection;
    intake->store = store;
    intake->policy = policy;
    const struct qwp_decoder_options options = {
        .depth = sink_store_wants_values(store) ? QWP_DECODE_FULL : QWP_DECODE_COUNT,
    };
    qwp_decoder_init(&intake->decoder, &options);
}

void sink_intake_fini(struct sink_intake *intake)
{
    if (intake->held_messages > 0) {
        pthread_mutex_lock(&intake->store->lock);
        intake->store->counters.rolled_back += intake->held_messages;
        pthread_mutex_unlock(&intake->store->lock);
    }
    qwp_decoder_fini(&intake->decoder);
    sink_buffer_fini(&intake->held);
    free(intake->touched);
    memset(intake, 0, sizeof *intake);
}

static void touch(struct sink_intake *intake, struct sink_table *table, int64_t seq_txn)
{
    if (intake->touched_count == intake->touched_room) {
        intake->touched_room = intake->touched_room == 0 ? 16 : 2 * intake->touched_room;
        intake->touched =
            sink_realloc(intake->touched, intake->touched_room * sizeof *intake->touched);
    }
    intake->touched[intake->touched_count++] = (struct sink_touched){table, seq_txn};
}

static void add_rows(struct sink_intake *intake, struct sink_table *table, uint32_t rows)
{
    struct sink_store *store = intake->store;
    touch(intake, table, sink_store_add_rows(store, table, rows, store->counters.commits));
}

static void count_blocks(struct sink_intake *intake, const struct qwp_message *message)
{
    for (uint32_t i = 0; i < message->block_count; i++) {
        const struct qwp_block_head *head = qwp_block_head(&intake->decoder, message, i);
        add_rows(intake, sink_store_table(intake->store, head->table), head->row_count);
    }
}

/* Shows and counts a message that was decoded last. */
static enum qwp_result commit_message(struct sink_intake *intake, const struct qwp_message *message,
                                      struct qwp_error *err)
{
    if (message->readable) {
        const enum qwp_result result =
            sink_store_show(intake->store, &intake->decoder, message, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    count_blocks(intake, message);
    return QWP_OK;
}

/* Deferred messages are decoded once more; their symbols are known by now, and that is allowed. */
static enum qwp_result commit_held_messages(struct sink_intake *intake, struct qwp_error *err)
{
    const unsigned char *at = (const unsigned char *)intake->held.at;
    const unsigned char *end = at + intake->held.len;
    while (at < end) {
        const uint32_t len = qwp_load_u32(at);
        struct qwp_message message;
        enum qwp_result result =
            qwp_decode_message(&intake->decoder, at + sizeof len, len, &message, err);
        QWP_ASSERT(result != QWP_CORRUPT);
        if (result == QWP_OK) {
            result = commit_message(intake, &message, err);
        }
        if (result != QWP_OK) {
            return result;
        }
        at += sizeof len + len;
    }
    return QWP_OK;
}

static void commit_held_rows(struct sink_intake *intake)
{
    for (size_t off = 0; off < intake->held.len; off += sizeof(struct sink_held)) {
        struct sink_held held;
        memcpy(&held, intake->held.at + off, sizeof held);
        add_rows(intake, held.table, held.rows);
    }
}

/* All that was deferred, then this message. Holds the lock. */
static enum qwp_result commit(struct sink_intake *intake, struct qwp_message *message,
                              struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    intake->store->counters.commits++;
    if (intake->held.len > 0 && message->readable) {
        result = commit_held_messages(intake, err);
        if (result == QWP_OK) {
            result =
                qwp_decode_message(&intake->decoder, message->bytes, message->len, message, err);
        }
    } else {
        commit_held_rows(intake);
    }
    if (result == QWP_OK) {
        result = commit_message(intake, message, err);
    }
    intake->held.len = 0;
    intake->held_messages = 0;
    return result;
}

static void hold_rows(struct sink_intake *intake, const struct qwp_message *message)
{
    for (uint32_t i = 0; i < message->block_count; i++) {
        const struct qwp_block_head *head = qwp_block_head(&intake->decoder, message, i);
        const struct sink_held held = {sink_store_table(intake->store, head->table),
                                       head->row_count};
        sink_buffer_put(&intake->held, &held, sizeof held);
    }
}

/* Keeps a deferred message for its commit. Holds the lock. */
static enum qwp_result hold(struct sink_intake *intake, const struct qwp_message *message,
                            struct qwp_error *err)
{
    if (intake->held.len + message->len > intake->policy->deferred_bytes_max) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %zu bytes wait for their commit",
                        intake->policy->deferred_bytes_max);
    }
    intake->held_messages++;
    intake->store->counters.deferred++;
    if (message->block_count == 0) {
        return QWP_OK; /* symbols only */
    }
    if (!message->readable) {
        hold_rows(intake, message);
        return QWP_OK;
    }
    const uint32_t len = (uint32_t)message->len;
    sink_buffer_put(&intake->held, &len, sizeof len);
    sink_buffer_put(&intake->held, message->bytes, message->len);
    return QWP_OK;
}

struct holder {
    const struct qwp_decoder *decoder;
    const struct qwp_message *message;
};

static bool holds_table(const void *at, const char *table)
{
    const struct holder *holder = at;
    for (uint32_t i = 0; i < holder->message->block_count; i++) {
        const struct qwp_name name = qwp_block_head(holder->decoder, holder->message, i)->table;
        if (strcmp(table, "*") == 0 || qwp_name_equal(name.text, name.len, table, strlen(table))) {
            return true;
        }
    }
    return false;
}

/* What is to be done to this message on request instead of taking it. */
static enum qwp_result misbehave(struct sink_intake *intake, const struct qwp_message *message,
                                 enum qwp_status *status, struct qwp_error *err)
{
    struct sink_faults *faults = intake->policy->faults;
    const struct holder holder = {&intake->decoder, message};
    struct sink_fault_place place = intake->place;
    place.holds = holds_table;
    place.holder = &holder;
    intake->place.message++;
    if (message->block_count > 0) {
        intake->place.frame++;
    } else {
        place.frame = SINK_FAULT_NOWHERE;
    }
    if (sink_faults_hit(faults, SINK_FAULT_STATUS, SINK_FAULT_ANY, &place, &intake->fault)) {
        *status = (enum qwp_status)intake->fault.value;
        return qwp_fail(err, QWP_PEER, 0, "%s", sink_fault_text(&intake->fault));
    }
    if (sink_faults_hit(faults, SINK_FAULT_CLOSE, SINK_CLOSE_AT_MESSAGE, &place, &intake->fault)) {
        return QWP_CLOSED;
    }
    return QWP_OK;
}

enum qwp_result sink_intake_message(struct sink_intake *intake, const unsigned char *bytes,
                                    size_t len, bool *committed, enum qwp_status *status,
                                    struct qwp_error *err)
{
    struct sink_store *store = intake->store;
    struct qwp_message message;
    const int64_t arrived_ns = qwp_clock_monotonic_ns();
    enum qwp_result result = qwp_decode_message(&intake->decoder, bytes, len, &message, err);
    *status = intake->decoder.fault_status;
    if (result == QWP_OK) {
        result = misbehave(intake, &message, status, err);
        if (result == QWP_CLOSED) {
            return result;
        }
    }
    pthread_mutex_lock(&store->lock);
    store->arrived_ns = arrived_ns;
    store->connection = intake->place.connection;
    if (result == QWP_OK) {
        *status = QWP_STATUS_WRITE_ERROR;
        *committed = (message.flags & QWP_FLAG_DEFER_COMMIT) == 0;
        result = *committed ? commit(intake, &message, err) : hold(intake, &message, err);
    }
    if (result == QWP_OK) {
        store->counters.messages++;
        store->counters.bytes += len;
    } else {
        store->counters.errors++;
    }
    pthread_mutex_unlock(&store->lock);
    return result;
}

static int by_table_then_age(const void *a, const void *b)
{
    const struct sink_touched *x = a;
    const struct sink_touched *y = b;
    if (x->table != y->table) {
        return (uintptr_t)x->table < (uintptr_t)y->table ? -1 : 1;
    }
    return x->seq_txn < y->seq_txn ? -1 : x->seq_txn > y->seq_txn;
}

void sink_intake_list_tables(struct sink_intake *intake, struct sink_buffer *out)
{
    struct sink_touched *touched = intake->touched;
    const size_t count = intake->touched_count;
    if (count > 1) {
        qsort(touched, count, sizeof *touched, by_table_then_age);
    }
    const size_t count_off = out->len;
    uint16_t listed = 0;
    sink_buffer_put(out, &listed, sizeof listed);
    for (size_t i = 0; i < count && listed < UINT16_MAX; i++) {
        if (i + 1 < count && touched[i + 1].table == touched[i].table) {
            continue;
        }
        const uint16_t len = (uint16_t)touched[i].table->name_len;
        sink_buffer_put(out, &len, sizeof len);
        sink_buffer_put(out, touched[i].table->name, len);
        sink_buffer_put(out, &touched[i].seq_txn, sizeof touched[i].seq_txn);
        listed++;
    }
    memcpy(out->at + count_off, &listed, sizeof listed);
    intake->touched_count = 0;
}

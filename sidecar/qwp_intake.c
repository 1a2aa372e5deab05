#include "sidecar/qwp_intake.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/qwp_log.h"
#include "ipc/qwp_guard.h"
#include "ipc/qwp_shared_text.h"

enum {
    STALL_RETRY_MS = 50,
    UNIT_FRAME_BYTES_MIN = 1024 * 1024, /* a frame for one unit may always be so large */
    STALL_QUIET_MS = 1000, /* so that a store that is full again and again is one line, not many */
};

static void add_u64(_Atomic uint64_t *at, uint64_t n)
{
    /* One writer: no read-modify-write needed. */
    atomic_store_explicit(at, atomic_load_explicit(at, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

enum qwp_result qwp_intake_init(struct qwp_intake *intake, const struct qwp_intake_options *options,
                                int dir_fd, struct qwp_control *control, struct qwp_bell_rx *bell,
                                struct qwp_generations *store, struct qwp_cursors *cursors,
                                struct qwp_error *err)
{
    *intake = (struct qwp_intake){
        .options = *options,
        .dir_fd = dir_fd,
        .control = control,
        .bell = bell,
        .store = store,
        .log = qwp_generations_writer(store),
        .cursors = cursors,
        .dict = qwp_seglog_dict(qwp_generations_writer(store)),
        .message_bytes_max = QWP_MESSAGE_BYTES_DEFAULT,
    };
    /* What was recovered is in the dictionary's file, and the sender registers all of that first.
     */
    intake->framed_symbols = qwp_dict_count(intake->dict);
    intake->acked_seen = qwp_generations_acked(store);
    qwp_latency_init(&intake->latency, control->header, qwp_generations_published(store),
                     intake->acked_seen, qwp_clock_monotonic_ns());
    intake->sources = calloc(options->producers_max, sizeof *intake->sources);
    intake->def_entry = malloc(QWP_RING_DEF_BYTES_MAX);
    enum qwp_result result = qwp_schema_init(&intake->schema, options->tables_max);
    if (intake->sources == NULL || intake->def_entry == NULL || result != QWP_OK ||
        !qwp_roll_init(&intake->roll)) {
        result = qwp_fail(err, QWP_NOMEM, 0, "no memory for %u producers", options->producers_max);
    } else {
        result = qwp_framer_create(&intake->framer, intake->dict, options->encode_flags, err);
    }
    if (result != QWP_OK) {
        qwp_intake_fini(intake);
    }
    return result;
}

void qwp_intake_fini(struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        qwp_source_close(intake->sources[i]);
    }
    free(intake->sources);
    free(intake->def_entry);
    qwp_roll_fini(&intake->roll);
    qwp_framer_destroy(intake->framer);
    if (intake->schema.tables != NULL) {
        qwp_schema_fini(&intake->schema);
    }
    *intake = (struct qwp_intake){0};
}

/* ---- frames ---- */

static void frame_abandon(struct qwp_intake *intake)
{
    qwp_framer_abandon(intake->framer);
    qwp_seglog_abandon(intake->log, qwp_framer_touched(intake->framer));
    for (uint32_t i = 0; i < intake->source_count; i++) {
        qwp_source_untake(intake->sources[i]);
    }
    intake->frame_open = false;
    intake->more_due = true;
}

static size_t frame_bytes_max(const struct qwp_intake *intake)
{
    const size_t cap = atomic_load_explicit(&intake->message_bytes_max, memory_order_relaxed);
    return cap < intake->options.batch_bytes ? cap : intake->options.batch_bytes;
}

static void store_show(struct qwp_intake *intake, enum qwp_store_state state, const char *reason)
{
    struct qwp_control_header *page = intake->control->header;
    intake->store_state = state;
    qwp_shared_text_set(page->store_error, sizeof page->store_error, reason);
    atomic_store_explicit(&page->store_state, state, memory_order_relaxed);
}

/* Rows stay where they are; sending goes on. One line, unless it gets worse. */
static void stall(struct qwp_intake *intake, const struct qwp_error *err, int64_t now_ns)
{
    intake->stalled = true;
    intake->stall_ns = now_ns;
    intake->retry_ns = now_ns + (int64_t)STALL_RETRY_MS * QWP_NS_PER_MS;
    add_u64(&intake->control->header->stalls, 1);
    const enum qwp_store_state state = err->sys_errno != 0 ? QWP_STORE_BLOCKED : QWP_STORE_FULL;
    if (state > intake->store_state) {
        store_show(intake, state, err->text);
        qwp_log(state == QWP_STORE_FULL ? QWP_LOG_WARN : QWP_LOG_ERROR,
                "store takes no more rows; they wait in their rings", "reason=\"%s\"", err->text);
    }
}

/* After rows were taken. */
static void stall_end(struct qwp_intake *intake, int64_t now_ns)
{
    intake->stalled = false;
    if (intake->store_state != QWP_STORE_OK &&
        now_ns - intake->stall_ns >= (int64_t)STALL_QUIET_MS * QWP_NS_PER_MS) {
        store_show(intake, QWP_STORE_OK, "");
        qwp_log(QWP_LOG_INFO, "store takes rows again", "");
    }
}

/* Room for a frame of at least `bytes`; a store that has none is asked again later. */
static bool frame_begin(struct qwp_intake *intake, size_t bytes, size_t bytes_max, int64_t now_ns)
{
    struct qwp_error err = {0};
    unsigned char *at;
    size_t room;
    const enum qwp_result result =
        qwp_seglog_reserve(intake->log, bytes, bytes_max, &at, &room, &err);
    if (result != QWP_OK) {
        stall(intake, &err, now_ns);
        return false;
    }
    qwp_framer_begin(intake->framer, at, room, intake->framed_symbols);
    intake->frame_open = true;
    intake->turns_left = intake->source_count;
    return true;
}

/* Nothing waits, so nothing will show that the store takes rows. */
static void stall_forget(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns)
{
    if (intake->store_state == QWP_STORE_OK) {
        return;
    }
    stall_end(intake, now_ns);
    const int64_t due_ns = intake->stall_ns + (int64_t)STALL_QUIET_MS * QWP_NS_PER_MS;
    if (intake->store_state != QWP_STORE_OK && due_ns < *next_ns) {
        *next_ns = due_ns;
    }
}

static void detach(struct qwp_intake *intake, struct qwp_source *source, const char *reason)
{
    if (qwp_guard_is_hit(source->guard)) {
        reason = "its file was cut short"; /* what was found wrong are the zeros in its place */
    }
    qwp_log(QWP_LOG_ERROR, "ring detached", "ring=%s producer=\"%s\" reason=\"%s\"",
            source->rx.file_name, source->rx.name, reason);
    qwp_source_detach(source, reason);
    intake->figures_changed = true;
}

/* The frame is spoilt. Its guilty source goes; without one we are out of memory and try again. */
static void frame_fault(struct qwp_intake *intake, const struct qwp_framer_fault *fault,
                        int64_t now_ns)
{
    frame_abandon(intake);
    if (fault->source != NULL) {
        detach(intake, fault->source, fault->error.text);
        return;
    }
    stall(intake, &fault->error, now_ns);
}

/* The table's entry in the control file; there is none for the tables beyond its room. */
static void table_show(struct qwp_intake *intake, struct qwp_table *table)
{
    const uint32_t room =
        atomic_load_explicit(&intake->control->header->tables_max, memory_order_relaxed);
    if (intake->tables_shown == room) {
        return;
    }
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    snprintf(name, sizeof name, "%.*s", (int)table->name.len, table->name.text);
    table->shown = qwp_control_table_at(intake->control, intake->tables_shown++);
    qwp_shared_text_set(table->shown->name, sizeof table->shown->name, name);
}

static void tables_count(struct qwp_intake *intake)
{
    for (struct qwp_table *table = qwp_framer_tables(intake->framer); table != NULL;
         table = table->frame_next) {
        if (table->shown == NULL) {
            table_show(intake, table);
        }
        if (table->shown != NULL) {
            add_u64(&table->shown->rows_stored, table->frame_rows);
        }
    }
}

/* Whether a ring whose rows stand in the frame lost its file meanwhile. */
static bool cut_short(const struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        if (intake->sources[i]->in_frame && qwp_guard_is_hit(intake->sources[i]->guard)) {
            return true;
        }
    }
    return false;
}

/* Before the frame is published: how far it takes each of its rings. */
static void notes_write(struct qwp_intake *intake, uint32_t witness)
{
    const uint64_t fsn = qwp_seglog_next_fsn(intake->log);
    for (uint32_t i = 0; i < intake->source_count; i++) {
        const struct qwp_source *source = intake->sources[i];
        if (source->in_frame) {
            qwp_cursors_note(intake->cursors, source->cursor, fsn, source->taken_pos, witness);
            QWP_CRASH_POINT("intake.noting");
        }
    }
}

static void frame_publish(struct qwp_intake *intake, int64_t now_ns)
{
    struct qwp_framer_fault fault;
    size_t len;
    if (qwp_framer_finish(intake->framer, &len, &fault) != QWP_OK) {
        frame_fault(intake, &fault, now_ns);
        return;
    }
    /* The symbols must be on file before a frame that uses them can be replayed. */
    if (qwp_seglog_persist_dict(intake->log, &fault.error) != QWP_OK) {
        frame_fault(intake, &fault, now_ns);
        return;
    }
    if (cut_short(intake)) {
        frame_abandon(intake); /* zeros may have been read for rows: the next visit detaches it */
        return;
    }
    uint32_t witness;
    qwp_seglog_finish(intake->log, len, qwp_framer_touched(intake->framer), &witness);
    notes_write(intake, witness);
    QWP_CRASH_POINT("intake.noted");
    const uint64_t fsn = qwp_generations_publish(intake->store);
    QWP_CRASH_POINT("intake.published");
    qwp_cursors_published(intake->cursors);
    const int64_t stored_ns = qwp_clock_monotonic_ns();
    int64_t seen_ns = stored_ns;
    for (uint32_t i = 0; i < intake->source_count; i++) {
        if (intake->sources[i]->in_frame) {
            const int64_t oldest_ns = qwp_source_stored(intake->sources[i], fsn);
            seen_ns = oldest_ns < seen_ns ? oldest_ns : seen_ns;
            QWP_CRASH_POINT("intake.releasing");
        }
    }
    qwp_latency_stored(&intake->latency, fsn, seen_ns, stored_ns);
    const uint64_t rows = qwp_framer_rows(intake->framer);
    qwp_notes_add(&intake->frames, (struct qwp_note){.fsn = fsn, .rows = rows});
    qwp_intake_enrol(intake, fsn);
    struct qwp_control_header *page = intake->control->header;
    add_u64(&page->rows_stored, rows);
    tables_count(intake);
    add_u64(&page->frames_published, 1);
    add_u64(&page->bytes_stored, len);
    intake->framed_symbols = qwp_framer_framed_symbols(intake->framer);
    intake->frame_open = false;
    intake->figures_changed = true;
    stall_end(intake, now_ns);
}

/* The frame is full: the next one begins with the next ring, or who fills his ring as fast as it is
 * read would have every frame to himself. A ring that had nothing in this one keeps its turn. */
static void turn_pass(struct qwp_intake *intake, const struct qwp_source *source)
{
    if (source->in_frame) {
        intake->next_source++;
    }
}

/* What to do when a unit did not fit: end the frame, or give an empty one more room. */
static void frame_full(struct qwp_intake *intake, struct qwp_source *source,
                       const struct qwp_framer_fault *fault, int64_t now_ns)
{
    intake->more_due = true;
    if (qwp_framer_rows(intake->framer) > 0 || fault->bytes_needed == 0) {
        turn_pass(intake, source);
        frame_publish(intake, now_ns);
        return;
    }
    const size_t asked = atomic_load_explicit(&intake->message_bytes_max, memory_order_relaxed);
    /* What this server does not take whole the sender takes apart. */
    const size_t cap = asked > UNIT_FRAME_BYTES_MIN ? asked : UNIT_FRAME_BYTES_MIN;
    frame_abandon(intake);
    if (fault->bytes_needed > cap || fault->blocks_needed > UINT16_MAX) {
        detach(intake, source, "a unit of rows does not fit into one message to the server");
        return;
    }
    (void)frame_begin(intake, fault->bytes_needed, fault->bytes_needed, now_ns);
}

/* How many rows the open frame still takes, up to `rows_end`. */
static uint64_t rows_left(const struct qwp_intake *intake, uint64_t rows_end)
{
    const uint64_t rows = qwp_framer_rows(intake->framer);
    const uint64_t end =
        rows_end < intake->options.frame_rows_max ? rows_end : intake->options.frame_rows_max;
    return rows < end ? end - rows : 0;
}

/* Takes rows into the open frame, at most `budget`. */
static void frame_fill(struct qwp_intake *intake, uint64_t budget, int64_t now_ns)
{
    const uint64_t rows_before = qwp_framer_rows(intake->framer);
    while (intake->turns_left > 0) {
        if (intake->next_source >= intake->source_count) {
            intake->next_source = 0;
        }
        struct qwp_source *source = intake->sources[intake->next_source];
        enum qwp_result result = qwp_source_is_ready(source) ? QWP_OK : QWP_AGAIN;
        struct qwp_framer_fault fault;
        uint64_t rows_max;
        while (result == QWP_OK && (rows_max = rows_left(intake, rows_before + budget)) > 0) {
            result = qwp_framer_take(intake->framer, source, rows_max, &fault);
        }
        if (qwp_framer_rows(intake->framer) >= intake->options.frame_rows_max) {
            intake->more_due = true;
            turn_pass(intake, source);
            break;
        }
        if (result == QWP_OK) {
            return; /* budget spent: go on in the next step */
        }
        if (result == QWP_AGAIN) {
            intake->next_source++;
            intake->turns_left--;
        } else if (result == QWP_LIMIT) {
            frame_full(intake, source, &fault, now_ns);
            return;
        } else {
            frame_fault(intake, &fault, now_ns);
            return;
        }
    }
    if (qwp_framer_rows(intake->framer) == 0 &&
        qwp_framer_framed_symbols(intake->framer) == intake->framed_symbols) {
        frame_abandon(intake); /* all that was seen is held */
        intake->more_due = false;
        return;
    }
    frame_publish(intake, now_ns);
}

/* ---- looking at the rings ---- */

struct visit {
    uint64_t bytes; /* that wait */
    uint64_t rows;  /* by the producers' count: for pacing only */
    bool half_full; /* some ring */
    bool defining;  /* likewise: it is to be looked at again at once */
};

static void source_visit(struct qwp_intake *intake, struct qwp_source *source, int64_t now_ns,
                         struct visit *visit)
{
    if (source->detached) {
        return;
    }
    if (qwp_guard_is_hit(source->guard)) {
        detach(intake, source, "");
        return;
    }
    const uint64_t seen_pos = source->rx.tail_seen_pos;
    const enum qwp_result polled = intake->closing ? QWP_AGAIN : qwp_ring_poll(&source->rx);
    if (polled == QWP_CORRUPT) {
        detach(intake, source, "impossible tail position");
        return;
    }
    if (polled == QWP_OK) {
        qwp_sights_saw(&source->sights, source->rx.head_pos, seen_pos, now_ns);
    }
    if (polled == QWP_OK || source->defining) {
        struct qwp_error err;
        const uint32_t tables = source->table_count;
        const enum qwp_result defined =
            qwp_source_define(source, intake->def_entry, &intake->schema, intake->dict, &err);
        qwp_intake_note_writers(intake, source, tables);
        visit->defining |= defined == QWP_AGAIN;
        if (defined != QWP_OK && defined != QWP_AGAIN) {
            detach(intake, source, err.text);
            return;
        }
    }
    if (!qwp_source_is_ready(source)) {
        return;
    }
    const uint64_t waiting = source->rx.tail_seen_pos - source->rx.head_pos;
    visit->bytes += waiting;
    const uint64_t rows =
        atomic_load_explicit(&source->rx.header->rows_published, memory_order_relaxed) -
        source->rx.rows_stored;
    /* Its word, which may be anything: so many records do not fit. */
    visit->rows += rows < waiting / QWP_RECORD_ALIGN ? rows : waiting / QWP_RECORD_ALIGN;
    visit->half_full |= waiting * 2 >= source->rx.data_bytes;
}

static struct visit visit_all(struct qwp_intake *intake, int64_t now_ns)
{
    struct visit visit = {0};
    for (uint32_t i = 0; i < intake->source_count; i++) {
        source_visit(intake, intake->sources[i], now_ns, &visit);
    }
    return visit;
}

/* Whether what waits is to be stored now; *next_ns: when otherwise. */
static bool batch_is_due(struct qwp_intake *intake, const struct visit *visit, int64_t now_ns,
                         int64_t *next_ns)
{
    if (intake->first_seen_ns == 0) {
        intake->first_seen_ns = now_ns;
    }
    if (intake->options.linger_ns == 0 || intake->more_due || visit->half_full ||
        visit->bytes >= intake->options.batch_bytes || visit->rows >= intake->options.batch_rows) {
        return true;
    }
    const int64_t due_ns = intake->first_seen_ns + intake->options.linger_ns;
    if (now_ns >= due_ns) {
        return true;
    }
    *next_ns = due_ns < *next_ns ? due_ns : *next_ns;
    return false;
}

bool qwp_intake_settle(struct qwp_intake *intake, int64_t now_ns)
{
    const uint64_t acked = qwp_generations_acked(intake->store);
    /* After the count was read: what was set aside of these frames was told before. */
    const bool heard = qwp_intake_hear(intake);
    if (acked == intake->acked_seen) {
        return heard;
    }
    intake->acked_seen = acked;
    qwp_latency_acked(&intake->latency, acked, now_ns);
    for (uint32_t i = 0; i < intake->source_count; i++) {
        qwp_source_settle(intake->sources[i], acked);
    }
    uint64_t pos;
    const uint64_t rows = qwp_notes_settle(&intake->frames, acked, &pos);
    const uint64_t aside = intake->rows_aside < rows ? intake->rows_aside : rows;
    intake->rows_aside -= aside;
    add_u64(&intake->control->header->rows_acked, rows - aside);
    qwp_roll_settle(&intake->roll, acked);
    intake->stalled = false; /* the budget may have room again */
    intake->figures_changed = true;
    return true;
}

bool qwp_intake_do_work(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns)
{
    bool worked = qwp_intake_settle(intake, now_ns);
    qwp_intake_orphans_look(intake, now_ns, next_ns);
    intake->lingering = false;
    if (intake->frame_open) {
        frame_fill(intake, QWP_INTAKE_STEP_ROWS, now_ns);
        return true;
    }
    if (intake->stalled && now_ns < intake->retry_ns) {
        *next_ns = intake->retry_ns < *next_ns ? intake->retry_ns : *next_ns;
        return worked;
    }
    if (now_ns < intake->next_visit_ns && !intake->more_due) {
        return true; /* too soon to look again, too short to sleep */
    }
    intake->next_visit_ns = now_ns + QWP_INTAKE_VISIT_NS;
    if (!qwp_intake_turn(intake, now_ns, next_ns)) {
        return worked;
    }
    const struct visit visit = visit_all(intake, now_ns);
    worked |= qwp_intake_orphans_remove(intake) || visit.defining;
    if (visit.bytes == 0) {
        intake->next_visit_ns = 0; /* looking again takes nothing from who does not write */
        intake->more_due = visit.defining;
        intake->first_seen_ns = 0;
        stall_forget(intake, now_ns, next_ns);
        return worked;
    }
    if (!batch_is_due(intake, &visit, now_ns, next_ns)) {
        intake->lingering = true;
        return worked;
    }
    const size_t most = frame_bytes_max(intake);
    const size_t least = most / 4 < intake->options.segment_bytes / 8
                             ? most / 4
                             : (size_t)intake->options.segment_bytes / 8;
    intake->more_due = false;
    intake->first_seen_ns = 0;
    if (!frame_begin(intake, least, most, now_ns)) {
        intake->more_due = true;
        *next_ns = intake->retry_ns < *next_ns ? intake->retry_ns : *next_ns;
        return worked;
    }
    frame_fill(intake, QWP_INTAKE_STEP_ROWS, now_ns);
    return true;
}

bool qwp_intake_may_retry(const struct qwp_intake *intake)
{
    return intake->more_due && !intake->stalled;
}

bool qwp_intake_has_strangers(const struct qwp_intake *intake)
{
    return intake->strangers > 0;
}

bool qwp_intake_has_news(struct qwp_intake *intake)
{
    bool news = false;
    for (uint32_t i = 0; i < intake->source_count && !news; i++) {
        const struct qwp_source *source = intake->sources[i];
        const uint64_t tail_pos =
            atomic_load_explicit(&source->rx.header->tail_pos, memory_order_acquire);
        news = !source->detached &&
               (intake->lingering
                    ? qwp_ring_is_half_full(tail_pos - source->rx.head_pos, source->rx.data_bytes)
                    : tail_pos != source->rx.tail_seen_pos);
    }
    return news;
}

bool qwp_intake_wants_answers(const struct qwp_intake *intake)
{
    bool wanted = intake->stalled || intake->more_due || intake->closing;
    for (uint32_t i = 0; i < intake->source_count && !wanted; i++) {
        wanted = qwp_ring_is_waited_for(&intake->sources[i]->rx, QWP_WAIT_ACKED);
    }
    return wanted;
}

void qwp_intake_report(struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        qwp_source_report(intake->sources[i]);
    }
    atomic_store_explicit(&intake->control->header->symbols, qwp_dict_count(intake->dict),
                          memory_order_relaxed);
    intake->figures_changed = false;
}

void qwp_intake_close_rings(struct qwp_intake *intake)
{
    if (intake->frame_open) {
        frame_abandon(intake);
    }
    (void)visit_all(intake, qwp_clock_monotonic_ns());
    for (uint32_t i = 0; i < intake->source_count; i++) {
        struct qwp_source *source = intake->sources[i];
        if (!source->detached) {
            qwp_ring_set_state(&source->rx, QWP_RING_CLOSING, "the sidecar is shutting down");
        }
    }
    intake->closing = true;
    intake->more_due = true;
    intake->next_visit_ns = 0;
}

bool qwp_intake_is_drained(const struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        const struct qwp_source *source = intake->sources[i];
        if (!source->detached && !source->held && source->rx.head_pos != source->rx.tail_seen_pos) {
            return false;
        }
    }
    return !intake->frame_open;
}

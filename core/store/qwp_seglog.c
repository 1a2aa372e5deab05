#include "core/store/qwp_seglog.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_impl.h"

/* Keeps the compiler from moving stores across it. The CPU needs no more: what must see these
 * stores in order is a process that opens the file after ours was killed, and a kill takes effect
 * between two instructions of a thread, all earlier stores done. */
static inline void order_for_crash(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

bool qwp_seglog_charge(struct qwp_seglog *log, uint64_t bytes)
{
    struct qwp_store_budget *budget = log->budget;
    uint64_t charged = atomic_load_explicit(&budget->charged, memory_order_relaxed);
    do {
        if (charged + bytes > budget->bytes_max) {
            return false;
        }
    } while (!atomic_compare_exchange_weak_explicit(&budget->charged, &charged, charged + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    atomic_fetch_add_explicit(&log->charged, bytes, memory_order_relaxed);
    return true;
}

void qwp_seglog_charge_anyway(struct qwp_seglog *log, uint64_t bytes)
{
    atomic_fetch_add_explicit(&log->budget->charged, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&log->charged, bytes, memory_order_relaxed);
}

void qwp_seglog_uncharge(struct qwp_seglog *log, uint64_t bytes)
{
    const uint64_t before = atomic_fetch_sub_explicit(&log->charged, bytes, memory_order_relaxed);
    QWP_ASSERT(before >= bytes);
    atomic_fetch_sub_explicit(&log->budget->charged, bytes, memory_order_relaxed);
}

enum qwp_result qwp_seglog_make_now(struct qwp_seglog *log, uint64_t bytes, uint8_t flags,
                                    struct qwp_segment **out, struct qwp_error *err)
{
    struct qwp_make make;
    struct qwp_make_place place = log->place;
    place.step_bytes = 0;
    place.populate = false; /* the keeper does, ahead of the writer, who has waited long enough */
    const uint64_t number = atomic_fetch_add_explicit(&log->next_number, 1, memory_order_relaxed);
    enum qwp_result result = qwp_make_new(&make, &place, number, bytes, flags, err);
    if (result != QWP_OK) {
        qwp_seglog_uncharge(log, bytes);
        return result;
    }
    while ((result = qwp_make_step(&make, &place, err)) == QWP_AGAIN) {
        if (make.op_out) {
            qwp_slow_run(log->sys, &make.op);
        }
    }
    if (result != QWP_OK) {
        qwp_seglog_uncharge(log, qwp_make_undo(&make, &place, &log->w.leftover));
        return result;
    }
    *out = make.segment;
    return QWP_OK;
}

/* --- writer --- */

static struct qwp_segment *spare_take(struct qwp_seglog *log)
{
    const uint32_t head = atomic_load_explicit(&log->spare_head, memory_order_relaxed);
    /* sync[seglog.spare] acquire: pairs with the release in the keeper's spare_put(). */
    if (atomic_load_explicit(&log->spare_tail, memory_order_acquire) == head) {
        return NULL;
    }
    struct qwp_segment *segment = log->spares[head % QWP_SEGLOG_SPARES_MAX];
    /* sync[seglog.spare] release: the place is read before the keeper may fill it again. */
    atomic_store_explicit(&log->spare_head, head + 1, memory_order_release);
    return segment;
}

/* The one case beyond the budget: all is acknowledged and only the active segment is left, so
 * nothing that is going on will free a byte. (The one before it may be left too when the active one
 * is still empty, since the reader steps on with the next acknowledgement only.) */
static bool charge_when_stuck(struct qwp_seglog *log, uint64_t bytes)
{
    const struct qwp_segment *active = log->w.active;
    const uint64_t before = active->base == log->w.next_fsn ? log->w.sealed_bytes : 0;
    uint64_t charged = atomic_load_explicit(&log->budget->charged, memory_order_relaxed);
    if (atomic_load_explicit(&log->acked_count, memory_order_relaxed) != log->w.next_fsn ||
        charged > active->bytes + before ||
        !atomic_compare_exchange_strong_explicit(&log->budget->charged, &charged, charged + bytes,
                                                 memory_order_relaxed, memory_order_relaxed)) {
        return false;
    }
    atomic_fetch_add_explicit(&log->charged, bytes, memory_order_relaxed);
    return true;
}

/* Charges a segment that is made in place, giving up spares that are too small for the frame. */
static bool charge_in_place(struct qwp_seglog *log, uint64_t bytes)
{
    while (!qwp_seglog_charge(log, bytes)) {
        struct qwp_segment *spare = spare_take(log);
        if (spare == NULL) {
            return charge_when_stuck(log, bytes);
        }
        qwp_seglog_uncharge(log, qwp_segment_remove(spare, &log->place, &log->w.leftover));
        if (log->w.leftover.name[0] != '\0') {
            return false;
        }
    }
    return true;
}

static enum qwp_result trouble(struct qwp_seglog *log, int64_t now_ns, struct qwp_error *err)
{
    qwp_error_prefix(&log->w.retry_error, "store %s", log->dir);
    log->w.retry_ns = now_ns + QWP_SEGLOG_RETRY_NS;
    if (err != NULL) {
        *err = log->w.retry_error;
    }
    return QWP_AGAIN;
}

static enum qwp_result make_in_place(struct qwp_seglog *log, uint64_t bytes,
                                     struct qwp_segment **out, struct qwp_error *err)
{
    const int64_t now_ns = log->sys->monotonic_ns();
    if (now_ns < log->w.retry_ns) {
        if (err != NULL) {
            *err = log->w.retry_error;
        }
        return QWP_AGAIN;
    }
    uint64_t freed;
    if (qwp_leftover_remove(&log->w.leftover, &log->place, &freed, &log->w.retry_error) != QWP_OK) {
        return trouble(log, now_ns, err);
    }
    qwp_seglog_uncharge(log, freed);
    if (!charge_in_place(log, bytes)) {
        const bool by_count = log->budget->bytes_max == QWP_SEGMENTS_MAX * log->segment_bytes;
        return qwp_fail(err, QWP_AGAIN, 0,
                        "the store %s is full: %llu bytes of at most %llu are in use; it goes on "
                        "when frames are acknowledged (or raise %s)",
                        log->dir, (unsigned long long)atomic_load(&log->budget->charged),
                        (unsigned long long)log->budget->bytes_max,
                        by_count ? "sf_max_segment_bytes" : "sf_max_total_bytes");
    }
    return qwp_seglog_make_now(log, bytes, log->segment_flags, out, &log->w.retry_error) == QWP_OK
               ? QWP_OK
               : trouble(log, now_ns, err);
}

/* Header, manifest, link: whatever crash comes in between leaves an empty spare or an empty active
 * segment. */
static void rotate_to(struct qwp_seglog *log, struct qwp_segment *segment)
{
    struct qwp_segment *old = log->w.active;
    segment->base = log->w.next_fsn;
    qwp_store_u64(segment->map + QWP_SEGMENT_BASE_OFF, segment->base);
    order_for_crash();
    QWP_CRASH_POINT("rotate.based");
    (void)qwp_manifest_set_active(&log->manifest, segment->base);
    order_for_crash();
    QWP_CRASH_POINT("rotate.manifest");
    log->w.sealed_bytes = old->bytes;
    /* sync[seglog.next] release: the sealed segment and its successor are complete. The sealed one
     * may be gone the moment after. */
    atomic_store_explicit(&old->next, segment, memory_order_release);
    log->w.active = segment;
    atomic_store_explicit(&log->rotations,
                          atomic_load_explicit(&log->rotations, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    QWP_CRASH_POINT("rotate.linked");
}

static enum qwp_result rotate(struct qwp_seglog *log, size_t bytes, struct qwp_error *err)
{
    const uint64_t needed = QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES + (uint64_t)bytes;
    struct qwp_segment *segment = needed <= log->segment_bytes ? spare_take(log) : NULL;
    if (segment == NULL) {
        const uint64_t size =
            needed <= log->segment_bytes ? log->segment_bytes : qwp_round_up(needed, 4096);
        const enum qwp_result result = make_in_place(log, size, &segment, err);
        if (result != QWP_OK) {
            return result;
        }
        atomic_store_explicit(
            &log->rotations_without_spare,
            atomic_load_explicit(&log->rotations_without_spare, memory_order_relaxed) + 1,
            memory_order_relaxed);
    }
    rotate_to(log, segment);
    return QWP_OK;
}

static inline unsigned char *frame_at(const struct qwp_segment *segment)
{
    return segment->map + segment->end_off;
}

enum qwp_result qwp_seglog_reserve(struct qwp_seglog *log, size_t bytes, size_t bytes_max,
                                   unsigned char **at, size_t *room, struct qwp_error *err)
{
    QWP_ASSERT(log->w.room == 0 && !log->recovery.lacks_symbols);
    if (bytes == 0 || bytes > bytes_max || bytes > QWP_FRAME_BYTES_MAX) {
        return qwp_fail(err, bytes > QWP_FRAME_BYTES_MAX ? QWP_LIMIT : QWP_INVALID, 0,
                        "a frame of %zu bytes (at most %zu) cannot be stored", bytes, bytes_max);
    }
    struct qwp_segment *segment = log->w.active;
    if (segment->bytes - segment->end_off < QWP_FRAME_HEADER_BYTES + (uint64_t)bytes) {
        const enum qwp_result result = rotate(log, bytes, err);
        if (result != QWP_OK) {
            return result;
        }
        segment = log->w.active;
    }
    const uint64_t left = segment->bytes - segment->end_off - QWP_FRAME_HEADER_BYTES;
    log->w.room = left < bytes_max ? (size_t)left : bytes_max;
    log->w.len = 0;
    /* From here on, and before any payload byte, a scan finds a torn tail. */
    qwp_store_u32(frame_at(segment) + QWP_FRAME_LENGTH_OFF, (uint32_t)QWP_FRAME_OPEN);
    order_for_crash();
    QWP_CRASH_POINT("seglog.reserved");
    *at = frame_at(segment) + QWP_FRAME_HEADER_BYTES;
    *room = log->w.room;
    return QWP_OK;
}

enum qwp_result qwp_seglog_persist_dict(struct qwp_seglog *log, struct qwp_error *err)
{
    const enum qwp_result result =
        qwp_dict_file_append(&log->w.dict_file, log->sys, log->dict, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "store %s", log->dir);
    }
    return result;
}

/* What is behind the room's first `len` bytes again as if never written: in a light segment only as
 * much as a scan looks at. */
static void zero_behind(struct qwp_seglog *log, size_t len, size_t touched)
{
    QWP_ASSERT(touched >= len && touched <= log->w.room);
    const struct qwp_segment *segment = log->w.active;
    unsigned char *end = frame_at(segment) + QWP_FRAME_HEADER_BYTES + len;
    if (segment->light) {
        const uint64_t left = (uint64_t)(segment->map + segment->bytes - end);
        memset(end, 0, left < QWP_FRAME_HEADER_BYTES ? left : QWP_FRAME_HEADER_BYTES);
    } else {
        memset(end, 0, touched - len);
    }
}

void qwp_seglog_finish(struct qwp_seglog *log, size_t len, size_t touched, uint32_t *witness)
{
    QWP_ASSERT(len > 0 && len <= log->w.room);
    struct qwp_segment *segment = log->w.active;
    zero_behind(log, len, touched);
    log->w.len = len;
    log->w.crc = qwp_frame_crc(segment->light, frame_at(segment) + QWP_FRAME_HEADER_BYTES,
                               (uint32_t)len, log->w.next_fsn);
    if (witness != NULL) {
        *witness = log->w.crc;
    }
    QWP_CRASH_POINT("seglog.finished");
}

uint64_t qwp_seglog_publish(struct qwp_seglog *log)
{
    QWP_ASSERT(log->w.len > 0);
    struct qwp_segment *segment = log->w.active;
    unsigned char *frame = frame_at(segment);
    order_for_crash();
    qwp_store_u32(frame + QWP_FRAME_LENGTH_OFF, (uint32_t)log->w.len);
    order_for_crash();
    QWP_CRASH_POINT("seglog.length");
    qwp_store_u32(frame, log->w.crc);
    QWP_CRASH_POINT("seglog.crc");
    segment->end_off += QWP_FRAME_HEADER_BYTES + (uint64_t)log->w.len;
    atomic_store_explicit(&segment->append_off, segment->end_off, memory_order_relaxed);
    log->w.published_bytes += log->w.len;
    atomic_store_explicit(&log->published_bytes, log->w.published_bytes, memory_order_relaxed);
    log->w.room = 0;
    log->w.len = 0;
    const uint64_t fsn = log->w.next_fsn++;
    /* sync[seglog.published] release: pairs with the acquire in qwp_seglog_published_count(). */
    atomic_store_explicit(&log->published_count, fsn + 1, memory_order_release);
    QWP_CRASH_POINT("seglog.published");
    return fsn;
}

uint64_t qwp_seglog_next_fsn(const struct qwp_seglog *log)
{
    return log->w.next_fsn;
}

void qwp_seglog_abandon(struct qwp_seglog *log, size_t touched)
{
    if (log->w.room == 0) {
        return;
    }
    zero_behind(log, 0, touched);
    order_for_crash();
    qwp_store_u32(frame_at(log->w.active) + QWP_FRAME_LENGTH_OFF, 0);
    log->w.room = 0;
    log->w.len = 0;
    QWP_CRASH_POINT("seglog.abandoned");
}

struct qwp_dict *qwp_seglog_dict(struct qwp_seglog *log)
{
    return log->dict;
}

const struct qwp_seglog_recovery *qwp_seglog_recovered(const struct qwp_seglog *log)
{
    return &log->recovery;
}

/* --- reader --- */

/* Reads the frame that the cursor stands at, which is published, and steps over it. */
static void cursor_step(struct qwp_seglog_cursor *cursor, struct qwp_frame *frame)
{
    const struct qwp_segment *segment = cursor->segment;
    const struct qwp_segment *holder =
        qwp_seglog_find((struct qwp_segment *)(uintptr_t)segment, cursor->fsn);
    if (holder != segment) {
        segment = cursor->segment = holder;
        cursor->off = QWP_SEGMENT_HEADER_BYTES;
    }
    const unsigned char *at = segment->map + cursor->off;
    const uint32_t len = qwp_load_u32(at + QWP_FRAME_LENGTH_OFF);
    QWP_ASSERT(len > 0 && len <= segment->bytes - cursor->off - QWP_FRAME_HEADER_BYTES);
    *frame = (struct qwp_frame){cursor->fsn, at + QWP_FRAME_HEADER_BYTES, len};
    cursor->off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
    cursor->fsn++;
}

/* Frames below may be read. */
static uint64_t checked_count(const struct qwp_seglog *log)
{
    /* sync[seglog.checked] acquire: pairs with the release in qwp_seglog_check.c. */
    return log->r.resumed ? UINT64_MAX
                          : atomic_load_explicit(&log->checked_count, memory_order_acquire);
}

/* For those who keep the check ahead of the reader. */
static void read_note(struct qwp_seglog *log, const struct qwp_frame *frame)
{
    if (frame->fsn >= log->r.read_fsn) {
        log->r.read_fsn = frame->fsn + 1;
        atomic_store_explicit(&log->read_bytes,
                              atomic_load_explicit(&log->read_bytes, memory_order_relaxed) +
                                  frame->len,
                              memory_order_relaxed);
    }
}

enum qwp_result qwp_seglog_next(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor,
                                struct qwp_frame *frame)
{
    /* A cursor that is not beyond what is acknowledged may stand in a segment that is gone. One
     * that is beyond stands in the head segment or a later one, which only the reader can let
     * go. */
    if (cursor->fsn <= log->r.acked.fsn) {
        *cursor = log->r.acked;
    }
    const uint64_t published = qwp_seglog_published_count(log);
    QWP_ASSERT(cursor->fsn <= published);
    if (cursor->fsn == published) {
        return QWP_AGAIN;
    }
    const uint64_t checked = checked_count(log);
    if (cursor->fsn >= checked) {
        if (qwp_seglog_resume(log)) {
            return qwp_seglog_next(log, cursor, frame);
        }
        atomic_store_explicit(&log->starved, true, memory_order_relaxed);
        return QWP_AGAIN;
    }
    if (cursor->segment == NULL) {
        struct qwp_frame skipped;
        const uint64_t fsn = cursor->fsn;
        *cursor = log->r.acked;
        while (cursor->fsn < fsn) {
            cursor_step(cursor, &skipped);
        }
    }
    cursor_step(cursor, frame);
    if (checked != UINT64_MAX) {
        read_note(log, frame);
    }
    return QWP_OK;
}

void qwp_seglog_rewind(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor)
{
    *cursor = log->r.acked;
}

void qwp_seglog_ack(struct qwp_seglog *log, uint64_t fsn)
{
    struct qwp_seglog_cursor *acked = &log->r.acked;
    if (fsn < acked->fsn) {
        return;
    }
    QWP_ASSERT(fsn < qwp_seglog_published_count(log) && fsn < checked_count(log));
    while (acked->fsn <= fsn) {
        struct qwp_frame frame;
        cursor_step(acked, &frame);
        log->r.acked_bytes += frame.len;
    }
    qwp_seglog_acked_show(log);
}

void qwp_seglog_acked_show(struct qwp_seglog *log)
{
    struct qwp_seglog_cursor *acked = &log->r.acked;
    struct qwp_segment *head =
        qwp_seglog_find((struct qwp_segment *)(uintptr_t)acked->segment, acked->fsn);
    if (head != acked->segment) {
        acked->segment = head;
        acked->off = QWP_SEGMENT_HEADER_BYTES;
    }
    atomic_store_explicit(&log->acked_bytes, log->r.acked_bytes, memory_order_relaxed);
    /* sync[seglog.acked] release: pairs with the acquire in qwp_seglog_acked_count(). */
    atomic_store_explicit(&log->acked_count, acked->fsn, memory_order_release);
    /* sync[seglog.head] release: our reads of earlier segments end before the keeper unmaps. */
    atomic_store_explicit(&log->head, head, memory_order_release);
}

/* --- any --- */

uint64_t qwp_seglog_published_count(const struct qwp_seglog *log)
{
    /* sync[seglog.published] acquire: pairs with the release in qwp_seglog_publish(). */
    return atomic_load_explicit(&log->published_count, memory_order_acquire);
}

uint64_t qwp_seglog_acked_count(const struct qwp_seglog *log)
{
    /* sync[seglog.acked] acquire: pairs with the release in qwp_seglog_ack(). */
    return atomic_load_explicit(&log->acked_count, memory_order_acquire);
}

void qwp_seglog_stats(const struct qwp_seglog *log, struct qwp_seglog_stats *out)
{
    const uint64_t acked_bytes = atomic_load_explicit(&log->acked_bytes, memory_order_relaxed);
    const uint64_t published_bytes =
        atomic_load_explicit(&log->published_bytes, memory_order_relaxed) -
        atomic_load_explicit(&log->presumed_excess, memory_order_relaxed);
    const uint64_t disposed = atomic_load_explicit(&log->disposed, memory_order_relaxed);
    const uint64_t rotations = atomic_load_explicit(&log->rotations, memory_order_relaxed);
    const uint64_t synced = atomic_load_explicit(&log->synced_fsn_count, memory_order_relaxed);
    *out = (struct qwp_seglog_stats){
        .bytes_total = atomic_load_explicit(&log->charged, memory_order_relaxed),
        .bytes_total_max = log->budget->bytes_max,
        /* Read in an order in which neither difference is negative for long. */
        .bytes_waiting = published_bytes > acked_bytes ? published_bytes - acked_bytes : 0,
        .segments_active = 1,
        .segments_sealed = (uint32_t)(rotations - disposed),
        .segments_spare = atomic_load_explicit(&log->spare_tail, memory_order_relaxed) -
                          atomic_load_explicit(&log->spare_head, memory_order_relaxed),
        .rotations = rotations - log->recovery.segments_sealed,
        .rotations_without_spare =
            atomic_load_explicit(&log->rotations_without_spare, memory_order_relaxed),
        .recycled = atomic_load_explicit(&log->recycled, memory_order_relaxed),
        .failures = atomic_load_explicit(&log->failures, memory_order_relaxed),
        .sync_failures = atomic_load_explicit(&log->sync_failures, memory_order_relaxed),
        .synced_count = synced,
        .unsynced_count = log->periodic ? qwp_seglog_published_count(log) - synced : 0,
        .segments_suspect = atomic_load_explicit(&log->suspects, memory_order_relaxed),
    };
}

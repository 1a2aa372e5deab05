/* Recovery, last step: makes the slot what the steps before have decided. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_recover.h"

#define SLOT_UUID_NAME ".slot-uuid"

static bool page_dirty(const struct qwp_segment *segment, uint64_t off, uint64_t *end)
{
    static const unsigned char zeros[4096];
    const uint64_t page_end = (off + sizeof zeros) & ~(uint64_t)(sizeof zeros - 1);
    *end = page_end < segment->bytes ? page_end : segment->bytes;
    return memcmp(segment->map + off, zeros, *end - off) != 0;
}

static bool dirty_from(const struct qwp_segment *segment, uint64_t off)
{
    bool dirty = false;
    while (off < segment->bytes && !dirty) {
        dirty = page_dirty(segment, off, &off);
    }
    return dirty;
}

/* Zeroes what is not zero behind the last frame, touching no page that is clean. */
uint64_t qwp_segment_tail_zero(struct qwp_segment *segment, uint64_t from)
{
    uint64_t cleaned = 0;
    uint64_t end;
    for (uint64_t off = from; off < segment->bytes; off = end) {
        if (page_dirty(segment, off, &end)) {
            memset(segment->map + off, 0, end - off);
            cleaned += end - off;
        }
    }
    return cleaned;
}

/* An unfinished group is cut; segments that held only such frames go. */
static void group_cut(struct qwp_recovery *r)
{
    const uint64_t cut = r->next_fsn - r->cut_fsn;
    r->log->recovery.deferred_frames_cut = cut;
    if (cut == 0) {
        return;
    }
    for (size_t i = r->cut_index + 1; i < r->chain_count; i++) {
        r->found[r->chain[i]].fate = QWP_FATE_REMOVE;
    }
    r->chain_count = r->cut_index + 1;
    r->next_fsn = r->cut_fsn;
    struct qwp_segment *last = r->found[r->chain[r->cut_index]].segment;
    last->end_off = r->cut_off;
    last->append_off = r->cut_off;
    r->active = last->base;
}

/* What follows the last frame of the log may be an unfinished write, which is nothing, or frames
 * that cannot be read any more, of which a copy is kept. */
static enum qwp_result last_tail_settle(struct qwp_recovery *r, struct qwp_found *found,
                                        struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_segment *segment = found->segment;
    const uint64_t off = found->scan.end_off; /* a group that is cut was readable */
    const bool left_over = segment->light && !found->scan.torn; /* if anything, by an earlier use */
    if (!found->scan.open && !left_over && dirty_from(segment, off)) {
        qwp_recovery_damage(r, "%s: unreadable behind frame %lld (offset %llu)", found->name,
                            (long long)qwp_found_end(found) - 1, (unsigned long long)off);
        const enum qwp_result result = qwp_segment_copy_aside(log, segment, segment->bytes, err);
        if (result != QWP_OK) {
            return result;
        }
        log->recovery.files_set_aside++;
    }
    const uint64_t zeroed = qwp_segment_tail_zero(segment, segment->end_off);
    log->recovery.torn_bytes += left_over ? 0 : zeroed;
    QWP_CRASH_POINT("open.tail_zeroed");
    return QWP_OK;
}

static enum qwp_result chain_settle(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_segment *before = NULL;
    for (size_t i = 0; i < r->chain_count; i++) {
        struct qwp_found *found = &r->found[r->chain[i]];
        struct qwp_segment *segment = found->segment;
        const bool last = i + 1 == r->chain_count;
        if (last) {
            const enum qwp_result result = last_tail_settle(r, found, err);
            if (result != QWP_OK) {
                return result;
            }
        } else if (found->scan.torn) {
            log->recovery.torn_bytes += qwp_segment_tail_zero(segment, segment->end_off);
        }
        if ((found->scan.flags & QWP_SEGMENT_MANIFESTED) ==
            0) { /* a page that is not read costs nothing */
            segment->map[QWP_SEGMENT_FLAGS_OFF] |= QWP_SEGMENT_MANIFESTED;
        }
        if (before != NULL) {
            atomic_store_explicit(&before->next, segment, memory_order_relaxed);
        }
        before = segment;
        qwp_seglog_charge_anyway(log, segment->bytes);
        if (log->place.durable && segment->fd >= 0 && qwp_sys_sync(log->sys, segment->fd) != 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot sync segment %s/%s", log->dir,
                            segment->name);
        }
        if (!last) {
            log->recovery.segments_sealed++;
        }
    }
    return QWP_OK;
}

/* A slot without segments. */
static enum qwp_result first_make(struct qwp_recovery *r, struct qwp_segment **first,
                                  struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    qwp_seglog_charge_anyway(log, log->segment_bytes);
    /* Without the flag that says that there is a manifest; that comes when there is one. */
    const enum qwp_result result = qwp_seglog_make_now(
        log, log->segment_bytes, log->segment_flags & QWP_SEGMENT_LIGHT, first, err);
    if (result != QWP_OK) {
        return result;
    }
    (*first)->base = r->active;
    qwp_store_u64((*first)->map + QWP_SEGMENT_BASE_OFF, r->active);
    if (log->place.durable && (qwp_sys_sync(log->sys, (*first)->fd) != 0 ||
                               qwp_sys_sync_dir(log->sys, log->place.dir_fd) != 0)) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync segment %s", (*first)->name);
    }
    return QWP_OK;
}

static enum qwp_result manifest_settle(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_manifest *manifest = &log->manifest;
    const bool same = r->manifest_state == QWP_DUAL_VALID &&
                      manifest->dual.first == (int64_t)r->head &&
                      manifest->dual.second == (int64_t)r->active;
    const enum qwp_result result =
        qwp_dual_open(&manifest->dual, log->sys, log->place.dir_fd, QWP_MANIFEST_NAME, err);
    if (result != QWP_OK) {
        return result;
    }
    manifest->head = (int64_t)r->head;
    manifest->active = (int64_t)r->active;
    if (!same) {
        (void)qwp_manifest_write(manifest);
    }
    if (log->place.durable && (qwp_sys_sync(log->sys, manifest->dual.fd) != 0 ||
                               qwp_sys_sync_dir(log->sys, log->place.dir_fd) != 0)) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync %s/%s", log->dir, QWP_MANIFEST_NAME);
    }
    QWP_CRASH_POINT("open.manifest");
    return QWP_OK;
}

/* Before a frame is appended: a leftover must not come to fit the chain later on. */
static enum qwp_result files_remove(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    for (size_t i = 0; i < r->count; i++) {
        struct qwp_found *found = &r->found[i];
        if (found->fate != QWP_FATE_REMOVE) {
            continue;
        }
        if (log->sys->unlinkat(log->place.dir_fd, found->name, 0) != 0 && errno != ENOENT) {
            return qwp_fail(err, QWP_IO, errno, "cannot remove %s/%s", log->dir, found->name);
        }
        qwp_segment_free(found->segment, log->sys);
        found->segment = NULL;
    }
    QWP_CRASH_POINT("open.tidied");
    return QWP_OK;
}

/* A refused watermark is overwritten before a frame can get one of the numbers that it claims. */
static enum qwp_result watermark_settle(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_dual *watermark = &log->k.watermark;
    const enum qwp_result result =
        qwp_dual_open(watermark, log->sys, log->place.dir_fd, QWP_WATERMARK_NAME, err);
    if (result != QWP_OK) {
        return result;
    }
    log->k.watermark_count = r->acked;
    if (log->recovery.watermark_refused) {
        qwp_dual_put(watermark, (int64_t)r->acked - 1, 0);
        if (log->place.durable && qwp_sys_sync(log->sys, watermark->fd) != 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot sync %s/%s", log->dir, QWP_WATERMARK_NAME);
        }
    }
    return QWP_OK;
}

/* What the frames taught goes into the file as one more chunk. */
static enum qwp_result dict_settle(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    log->recovery.symbols = qwp_dict_count(log->dict);
    enum qwp_result result =
        qwp_dict_file_open(&log->w.dict_file, log->sys, log->place.dir_fd, r->dict_trusted,
                           log->recovery.symbols - log->recovery.symbols_healed, err);
    if (result == QWP_OK) {
        result = qwp_dict_file_append(&log->w.dict_file, log->sys, log->dict, err);
    }
    /* Before a segment that brought some of them may go. */
    if (result == QWP_OK && log->recovery.symbols_healed > 0 && log->place.durable &&
        qwp_sys_sync(log->sys, log->w.dict_file.fd) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot sync %s/%s", log->dir, QWP_DICT_FILE_NAME);
    }
    return result;
}

static enum qwp_result uuid_settle(struct qwp_seglog *log, struct qwp_error *err)
{
    const struct qwp_sys *sys = log->sys;
    unsigned char *uuid = log->recovery.slot_uuid;
    const size_t bytes = sizeof log->recovery.slot_uuid;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, SLOT_UUID_NAME,
                                O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s", SLOT_UUID_NAME);
    }
    enum qwp_result result = QWP_OK;
    if (qwp_sys_read_full(sys, fd, uuid, bytes, 0) != (ssize_t)bytes &&
        (getrandom(uuid, bytes, 0) != (ssize_t)bytes ||
         qwp_sys_write_full(sys, fd, uuid, bytes, 0) != 0)) {
        result = qwp_fail(err, QWP_IO, errno, "cannot write %s", SLOT_UUID_NAME);
    }
    sys->close(fd);
    return result;
}

/* Of one that is not read yet, with the frames that it should have, no more than that. */
static uint64_t payload_bytes(const struct qwp_segment *segment)
{
    if (segment->unchecked) {
        return qwp_seglog_presumed_bytes(segment);
    }
    uint64_t bytes = 0;
    for (uint64_t off = QWP_SEGMENT_HEADER_BYTES; off < segment->end_off;) {
        const uint32_t len = qwp_load_u32(segment->map + off + QWP_FRAME_LENGTH_OFF);
        bytes += len;
        off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
    }
    return bytes;
}

/* The reader stands at the first frame that waits, whose segment has been read. */
static void reader_begin(struct qwp_recovery *r, struct qwp_segment *first)
{
    struct qwp_seglog *log = r->log;
    struct qwp_segment *head = first;
    for (struct qwp_segment *next; (next = head->next) != NULL && next->base <= r->acked;
         head = next) {
        log->r.acked_bytes += payload_bytes(head);
    }
    log->acked_bytes = log->r.acked_bytes;
    log->r.acked = (struct qwp_seglog_cursor){head->base, head, QWP_SEGMENT_HEADER_BYTES};
    log->head = head;
    log->acked_count = head->base;
    log->checked_count = UINT64_MAX; /* of this one */
    if (r->acked > head->base) {
        qwp_seglog_ack(log, r->acked - 1);
    }
}

/* No role runs yet: plain stores would do. */
static void roles_begin(struct qwp_recovery *r, struct qwp_segment *first, struct qwp_segment *last)
{
    struct qwp_seglog *log = r->log;
    log->w.active = last;
    log->w.next_fsn = r->next_fsn;
    log->published_count = r->next_fsn;
    log->rotations = log->recovery.segments_sealed;
    for (const struct qwp_segment *segment = first; segment != NULL; segment = segment->next) {
        log->w.published_bytes += payload_bytes(segment);
    }
    log->published_bytes = log->w.published_bytes;
    reader_begin(r, first);
    struct qwp_seglog_keeper *k = &log->k;
    k->oldest = k->trimmed_to = first;
    k->active = k->noted_to = k->synced_to = last;
    k->unsynced = log->periodic && first != last ? first : NULL;
    k->rotations_seen = log->rotations;
    k->retired = log->recovery.lacks_symbols; /* no writer comes */
    k->spares_wanted = k->retired ? 0 : 1;
    k->round_count = log->periodic ? r->next_fsn : 0;
    k->synced_count = k->unsynced != NULL ? first->base : k->round_count;
    log->synced_fsn_count = k->synced_count;
    qwp_seglog_check_begin(log, last);
}

static enum qwp_result segments_settle(struct qwp_recovery *r, struct qwp_segment **first,
                                       struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    for (size_t i = 0; i < r->count && result == QWP_OK; i++) {
        if (r->found[i].fate == QWP_FATE_ASIDE) {
            result = qwp_segment_rename_aside(r->log, r->found[i].name, err);
            r->log->recovery.files_set_aside++;
        }
    }
    if (result != QWP_OK) {
        return result;
    }
    if (r->chain_count == 0) {
        return first_make(r, first, err);
    }
    group_cut(r);
    *first = r->found[r->chain[0]].segment;
    return chain_settle(r, err);
}

enum qwp_result qwp_recovery_settle(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_segment *first = NULL;
    enum qwp_result result = segments_settle(r, &first, err);
    if (result == QWP_OK) {
        result = manifest_settle(r, err);
    }
    if (result == QWP_OK) {
        first->map[QWP_SEGMENT_FLAGS_OFF] |= QWP_SEGMENT_MANIFESTED;
        result = files_remove(r, err);
    }
    if (result == QWP_OK) {
        result = watermark_settle(r, err);
    }
    if (result == QWP_OK) {
        result = dict_settle(r, err);
    }
    if (result == QWP_OK) {
        result = uuid_settle(log, err);
    }
    if (result != QWP_OK) {
        if (r->chain_count == 0) {
            qwp_segment_free(first, log->sys);
        }
        qwp_error_prefix(err, "slot %s", log->dir);
        return result;
    }
    struct qwp_segment *last =
        r->chain_count == 0 ? first : r->found[r->chain[r->chain_count - 1]].segment;
    roles_begin(r, first, last);
    for (size_t i = 0; i < r->count; i++) {
        r->found[i].segment = NULL; /* the log's now */
    }
    log->recovery.first_fsn = r->head;
    log->recovery.next_fsn = r->next_fsn;
    log->recovery.frames_waiting = r->next_fsn - r->acked;
    return QWP_OK;
}

/* Recovery: its order, and the third step: what the frames themselves say. */
#include "core/store/qwp_seglog_recover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/qwp_bytes.h"
#include "core/store/qwp_stored.h"

static enum qwp_result segment_map(struct qwp_recovery *r, struct qwp_found *found, bool last,
                                   struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    struct qwp_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to recover %s", log->dir);
    }
    found->segment = segment;
    memcpy(segment->name, found->name, sizeof segment->name);
    segment->bytes = found->scan.bytes;
    segment->base = found->scan.base;
    segment->light = (found->scan.flags & QWP_SEGMENT_LIGHT) != 0;
    segment->unchecked = found->scan.unchecked;
    segment->end_off = segment->unchecked ? segment->bytes : found->scan.end_off;
    segment->append_off = segment->end_off;
    segment->fd =
        qwp_sys_open(sys, log->place.dir_fd, segment->name, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
    if (segment->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir, segment->name);
    }
    /* Where another client left a hole, a full disk would be a signal later. */
    if (last && qwp_sys_allocate(sys, segment->fd, 0, segment->bytes) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot reserve space for segment %s/%s", log->dir,
                        segment->name);
    }
    void *map = sys->mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (map == MAP_FAILED) {
        return qwp_fail(err, QWP_IO, errno, "cannot map segment %s/%s", log->dir, segment->name);
    }
    segment->map = map;
    if (last) {
        return QWP_OK;
    }
    sys->close(segment->fd); /* descriptors are few, and sealed segments may be many */
    segment->fd = -1;
    return QWP_OK;
}

static enum qwp_result dict_refuse(struct qwp_recovery *r, uint64_t fsn, bool gap,
                                   struct qwp_error *err)
{
    r->log->recovery.unreplayable = true;
    return qwp_fail(err, QWP_CORRUPT, 0,
                    gap ? "slot %s: frame %" PRIu64 " needs symbols that neither %s nor an earlier "
                          "frame has"
                        : "slot %s: frame %" PRIu64 " and %s contradict each other",
                    r->log->dir, fsn, QWP_DICT_FILE_NAME);
}

/* Whether its symbols fit what is known; those that the dictionary lacks are added. */
static enum qwp_result frame_follow(struct qwp_recovery *r, uint64_t fsn,
                                    const unsigned char *payload, uint32_t len,
                                    struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    bool gap;
    const enum qwp_result result =
        qwp_stored_delta_follow(log->dict, payload, len, &log->recovery.symbols_healed, &gap);
    if (result == QWP_CORRUPT || (result == QWP_OK && gap && fsn >= r->acked)) {
        return dict_refuse(r, fsn, gap, err);
    }
    return result == QWP_OK
               ? QWP_OK
               : qwp_fail(err, result, 0, "slot %s: no room for its symbols", log->dir);
}

/* Unless the log lacks symbols: then those of the end are among them. */
static enum qwp_result segment_read(struct qwp_recovery *r, size_t chain_index,
                                    struct qwp_error *err)
{
    const struct qwp_segment *segment = r->found[r->chain[chain_index]].segment;
    uint64_t fsn = segment->base;
    for (uint64_t off = QWP_SEGMENT_HEADER_BYTES; off < segment->end_off; fsn++) {
        const unsigned char *frame = segment->map + off;
        const unsigned char *payload = frame + QWP_FRAME_HEADER_BYTES;
        const uint32_t len = qwp_load_u32(frame + QWP_FRAME_LENGTH_OFF);
        off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
        if (!r->log->recovery.lacks_symbols) {
            const enum qwp_result result = frame_follow(r, fsn, payload, len, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        if (fsn < r->acked || !qwp_stored_is_deferred(payload, len)) {
            r->cut_index = chain_index;
            r->cut_off = off;
            r->cut_fsn = fsn + 1;
            r->log->recovery.last_witness = qwp_load_u32(frame);
        }
    }
    return QWP_OK;
}

/* Walks the frames that were read: dictionary, unfinished group at the end, witness of the last. */
static enum qwp_result frames_read(struct qwp_recovery *r, struct qwp_error *err)
{
    r->cut_fsn = r->head;
    r->cut_off = QWP_SEGMENT_HEADER_BYTES;
    bool behind_unread = false;
    for (size_t i = 0; i < r->chain_count; i++) {
        struct qwp_found *found = &r->found[r->chain[i]];
        enum qwp_result result = segment_map(r, found, i + 1 == r->chain_count, err);
        if (result != QWP_OK) {
            return result;
        }
        if (found->scan.base == r->cut_fsn) {
            r->cut_index = i;
            r->cut_off = QWP_SEGMENT_HEADER_BYTES;
        }
        if (found->scan.unchecked) { /* the chain does not end before a later one that is not */
            r->cut_fsn = qwp_found_end(found);
            behind_unread |= r->cut_fsn > r->acked;
            continue;
        }
        if (behind_unread && r->log->may_lack_symbols && found->has_delta &&
            found->delta_first > qwp_dict_count(r->log->dict)) {
            r->log->recovery.lacks_symbols = true;
        }
        result = segment_read(r, i, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return QWP_OK;
}

static enum qwp_result small_files_load(struct qwp_recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    enum qwp_dual_state watermark_state;
    enum qwp_result result =
        qwp_dual_load(&log->manifest.dual, log->sys, log->place.dir_fd, QWP_MANIFEST_NAME,
                      QWP_MANIFEST_MAGIC, &r->manifest_state, err);
    if (result == QWP_OK) {
        result = qwp_dual_load(&log->k.watermark, log->sys, log->place.dir_fd, QWP_WATERMARK_NAME,
                               QWP_WATERMARK_MAGIC, &watermark_state, err);
    }
    if (result == QWP_OK) {
        result = qwp_dict_file_load(log->sys, log->place.dir_fd, log->dict, &r->dict_trusted,
                                    &r->dict_size, err);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "slot %s", log->dir);
    }
    return result;
}

enum qwp_result qwp_seglog_recover(struct qwp_seglog *log, struct qwp_error *err)
{
    struct qwp_recovery r = {.log = log};
    enum qwp_result result = qwp_recovery_scan(&r, err);
    if (result == QWP_OK) {
        result = small_files_load(&r, err);
    }
    if (result == QWP_OK) {
        result = qwp_recovery_chain(&r, err);
    }
    if (result == QWP_OK) {
        result = frames_read(&r, err);
    }
    if (result == QWP_OK) {
        result = qwp_recovery_settle(&r, err);
    }
    for (size_t i = 0; i < r.count; i++) {
        qwp_segment_free(r.found[i].segment, log->sys);
    }
    free(r.found);
    free(r.chain);
    return result;
}

/* Recovery: its order, and the third step: what the frames themselves say. */
#include "core/store/qwp_seglog_recover.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

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
    segment->end_off = found->scan.end_off;
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
    /* Who wrote it may not have come to sync it. Descriptors are few, and sealed segments may be
     * many. */
    if (log->periodic && qwp_sys_sync(sys, segment->fd) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync segment %s/%s", log->dir, segment->name);
    }
    sys->close(segment->fd);
    segment->fd = -1;
    return QWP_OK;
}

/* Takes the delta of one message into the dictionary. *gap: it starts beyond what is known. */
static enum qwp_result delta_take(struct qwp_recovery *r, const unsigned char *at, size_t len,
                                  bool *gap)
{
    struct qwp_dict *dict = r->log->dict;
    *gap = false;
    if (len < QWP_HEADER_BYTES || qwp_load_u32(at) != QWP_WIRE_MAGIC ||
        (at[5] & QWP_FLAG_DELTA_DICT) == 0) {
        return QWP_OK;
    }
    const unsigned char *const end = at + len;
    uint64_t start;
    uint64_t count;
    at = qwp_varint_get(at + QWP_HEADER_BYTES, end, &start);
    at = at == NULL ? NULL : qwp_varint_get(at, end, &count);
    if (at == NULL || count > (uint64_t)(end - at)) {
        return QWP_CORRUPT;
    }
    if (start > qwp_dict_count(dict)) {
        *gap = true;
        return QWP_OK;
    }
    for (uint64_t id = start; id < start + count; id++) {
        uint64_t text_len;
        at = qwp_varint_get(at, end, &text_len);
        if (at == NULL || text_len > (uint64_t)(end - at)) {
            return QWP_CORRUPT;
        }
        if (id < qwp_dict_count(dict)) {
            const struct qwp_name known = qwp_dict_text(dict, (uint32_t)id);
            if (known.len != text_len || memcmp(known.text, at, known.len) != 0) {
                return QWP_CORRUPT;
            }
        } else {
            const enum qwp_result result =
                qwp_dict_append(dict, (const char *)at, (size_t)text_len);
            if (result != QWP_OK) {
                return result;
            }
            r->log->recovery.symbols_healed++;
        }
        at += text_len;
    }
    return QWP_OK;
}

static bool is_deferred(const unsigned char *payload, size_t len)
{
    return len >= QWP_HEADER_BYTES && qwp_load_u32(payload) == QWP_WIRE_MAGIC &&
           (payload[5] & QWP_FLAG_DEFER_COMMIT) != 0;
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
        bool gap;
        const enum qwp_result result = delta_take(r, payload, len, &gap);
        if (result == QWP_CORRUPT || (result == QWP_OK && gap && fsn >= r->acked)) {
            return dict_refuse(r, fsn, gap, err);
        }
        if (result != QWP_OK) {
            return qwp_fail(err, result, 0, "slot %s: no room for its symbols", r->log->dir);
        }
        if (fsn < r->acked || !is_deferred(payload, len)) {
            r->cut_index = chain_index;
            r->cut_off = off;
            r->cut_fsn = fsn + 1;
            r->log->recovery.last_witness = qwp_load_u32(frame);
        }
    }
    return QWP_OK;
}

/* Walks all frames of the chain: dictionary, unfinished group at the end, witness of the last. */
static enum qwp_result frames_read(struct qwp_recovery *r, struct qwp_error *err)
{
    r->cut_fsn = r->head;
    r->cut_off = QWP_SEGMENT_HEADER_BYTES;
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

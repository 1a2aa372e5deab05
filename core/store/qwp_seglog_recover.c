/* Recovery of a slot. Changes nothing before it knows that it will succeed, but for temporary files
 * of ours:
 *   scan        every segment by plain reads; dictionary, manifest and watermark likewise
 *   chain       the segments from the manifest's head to its active one, without a gap
 *   map         and read what the frames themselves say of dictionary and commits
 *   settle      remove leftovers and spares, cut the tail, write manifest, watermark, dictionary */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/store/qwp_seglog_impl.h"
#include "core/wire/qwp_varint.h"
#include "core/wire/qwp_wire.h"

#define SLOT_UUID_NAME ".slot-uuid"

enum { FILES_MAX = 1024 * 1024 };

/* A segment file as scanned. */
struct found {
    char name[QWP_STORE_NAME_BYTES];
    struct qwp_scan scan;
    bool in_chain;
    struct qwp_segment *segment; /* once mapped */
};

struct recovery {
    struct qwp_seglog *log;
    const struct qwp_seglog_options *options;
    struct found *found;
    size_t count, room;
    size_t *chain; /* indices into found, in FSN order */
    size_t chain_count;
    enum qwp_dual_state manifest_state;
    uint64_t head, active; /* bases; what the manifest says or will say */
    uint64_t next_fsn;
    uint64_t acked;
    uint64_t dict_trusted, dict_size;
};

/* --- scanning --- */

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t suffix_len = strlen(suffix);
    return len > suffix_len && strcmp(name + len - suffix_len, suffix) == 0;
}

static void number_note(struct qwp_seglog *log, const char *name)
{
    uint64_t number;
    if (sscanf(name, "sf-%16" SCNx64 ".sfa", &number) == 1 && number < UINT64_MAX / 2 &&
        number >= log->next_number) {
        log->next_number = number + 1;
    }
}

static enum qwp_result file_scan(struct recovery *r, const char *name, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    if (r->count == FILES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %d segments in %s", FILES_MAX, log->dir);
    }
    if (r->count == r->room) {
        const size_t room = r->room == 0 ? 64 : r->room * 2;
        struct found *grown = realloc(r->found, room * sizeof *grown);
        if (grown == NULL) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory to recover %s", log->dir);
        }
        r->found = grown;
        r->room = room;
    }
    const int fd = qwp_sys_open(sys, log->place.dir_fd, name,
                                O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir, name);
    }
    struct stat st;
    if (sys->fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        sys->close(fd);
        return QWP_OK; /* a directory or the like is none of ours */
    }
    struct found *found = &r->found[r->count];
    *found = (struct found){0};
    snprintf(found->name, sizeof found->name, "%s", name);
    const enum qwp_result result = qwp_segment_scan(sys, fd, &found->scan, NULL, NULL);
    const int error = errno;
    sys->close(fd);
    if (result != QWP_OK) {
        return qwp_fail(err, result, result == QWP_IO ? error : 0,
                        "cannot read segment %s/%s; mend the disk, or move the file away and "
                        "lose its frames",
                        log->dir, name);
    }
    number_note(log, name);
    r->count++;
    return QWP_OK;
}

static enum qwp_result dir_scan(struct recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    /* A descriptor of its own, since closedir() closes it. */
    const int fd = qwp_sys_open(sys, log->place.dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd < 0 ? NULL : sys->fdopendir(fd);
    if (dir == NULL) {
        const int error = errno;
        if (fd >= 0) {
            sys->close(fd);
        }
        return qwp_fail(err, QWP_IO, error, "cannot list %s", log->dir);
    }
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK) {
        errno = 0;
        const struct dirent *entry = sys->readdir(dir);
        if (entry == NULL) {
            if (errno != 0) {
                result = qwp_fail(err, QWP_IO, errno, "cannot list %s", log->dir);
            }
            break;
        }
        if (strlen(entry->d_name) >= QWP_STORE_NAME_BYTES) {
            continue; /* none of ours */
        }
        if (has_suffix(entry->d_name, QWP_SEGMENT_SUFFIX)) {
            result = file_scan(r, entry->d_name, err);
        } else if (has_suffix(entry->d_name, QWP_SEGMENT_SUFFIX QWP_UNREADY_SUFFIX)) {
            number_note(log, entry->d_name);
            sys->unlinkat(log->place.dir_fd, entry->d_name, 0);
        }
    }
    sys->closedir(dir);
    return result;
}

/* --- chain --- */

static enum qwp_result corrupt(const struct recovery *r, struct qwp_error *err, const char *what,
                               const char *name, uint64_t fsn)
{
    return qwp_fail(err, QWP_CORRUPT, 0,
                    "slot %s: %s (%s, FSN %" PRIu64
                    "); nothing was changed. Way out: restore the file, or move the slot directory "
                    "away to start with an empty one",
                    r->log->dir, what, name, fsn);
}

/* By base, the one with more frames first, then by name: so the first of a base is the one to use.
 */
static int found_order(const void *a, const void *b)
{
    const struct found *x = a;
    const struct found *y = b;
    if (x->scan.base != y->scan.base) {
        return x->scan.base < y->scan.base ? -1 : 1;
    }
    if (x->scan.frame_count != y->scan.frame_count) {
        return x->scan.frame_count > y->scan.frame_count ? -1 : 1;
    }
    if (x->scan.torn != y->scan.torn) {
        return x->scan.torn ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

static uint64_t found_end(const struct found *found)
{
    return found->scan.base + found->scan.frame_count;
}

/* Without a manifest: segments of a client that ended before it wrote the first one. */
static enum qwp_result boundaries_guess(struct recovery *r, struct qwp_error *err)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct found *found = &r->found[i];
        if (found->scan.header_bad) {
            continue;
        }
        if ((found->scan.flags & QWP_SEGMENT_MANIFESTED) != 0) {
            return corrupt(r, err,
                           r->manifest_state == QWP_DUAL_DAMAGED
                               ? "its manifest " QWP_MANIFEST_NAME " is damaged"
                               : "its manifest " QWP_MANIFEST_NAME " is missing",
                           found->name, found->scan.base);
        }
        if (found->scan.frame_count > 0 || found->scan.base == 0) {
            r->head = any ? r->head : found->scan.base;
            r->active = found->scan.base;
            any = true;
        }
    }
    return QWP_OK;
}

static enum qwp_result chain_add(struct recovery *r, size_t index, struct qwp_error *err)
{
    struct found *found = &r->found[index];
    const uint64_t expected = r->chain_count == 0 ? r->head : r->next_fsn;
    if (found->scan.base != expected) {
        return corrupt(r, err,
                       found->scan.base > expected ? "frames are missing before a segment"
                                                   : "two segments hold the same frames",
                       found->name, expected);
    }
    if (r->chain_count > 0 && r->found[r->chain[r->chain_count - 1]].scan.torn) {
        /* The chain goes on without a gap, so nothing is lost: something was written behind the
         * last frame of a sealed segment. */
        r->log->recovery.sealed_residue++;
    }
    found->in_chain = true;
    r->chain[r->chain_count++] = index;
    r->next_fsn = found_end(found);
    return QWP_OK;
}

/* The segments from head to active; `found` is sorted. */
static enum qwp_result chain_build(struct recovery *r, struct qwp_error *err)
{
    bool active_seen = false;
    bool beyond_seen = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct found *found = &r->found[i];
        const bool empty = found->scan.frame_count == 0;
        if (found->scan.header_bad || (empty && found->scan.base != r->active)) {
            continue; /* a spare, or set aside below */
        }
        if (found->scan.base < r->head) {
            if (found_end(found) > r->head) {
                return corrupt(r, err, "a segment lies across the manifest's head", found->name,
                               r->head);
            }
            continue; /* acknowledged; its removal was cut short */
        }
        if (empty && active_seen) {
            continue; /* a second one of the same base */
        }
        if (found->scan.base > r->active) {
            /* The one rotation that a manifest may be behind; see the design. */
            if (beyond_seen || !active_seen || found->scan.base != r->next_fsn) {
                return corrupt(r, err, "a segment lies beyond the manifest's active one",
                               found->name, found->scan.base);
            }
            beyond_seen = true;
        }
        const enum qwp_result result = chain_add(r, i, err);
        if (result != QWP_OK) {
            return result;
        }
        active_seen = active_seen || found->scan.base == r->active;
    }
    if (!active_seen && (r->chain_count > 0 || r->head != r->active)) {
        return corrupt(r, err, "the active segment that the manifest names is missing",
                       QWP_MANIFEST_NAME, r->active);
    }
    if (beyond_seen) {
        r->active = r->found[r->chain[r->chain_count - 1]].scan.base;
    }
    return QWP_OK;
}

static enum qwp_result headers_judge(struct recovery *r, struct qwp_error *err)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct found *found = &r->found[i];
        if (!found->scan.header_bad) {
            continue;
        }
        if (r->chain_count == 0 && r->manifest_state == QWP_DUAL_VALID) {
            return corrupt(r, err, "a segment's header is damaged or of an unknown version",
                           found->name, r->head);
        }
        r->log->recovery.files_set_aside++;
    }
    return QWP_OK;
}

/* --- what the frames say --- */

/* Takes the delta of one message into the dictionary. *gap: it starts beyond what is known. */
static enum qwp_result delta_take(struct recovery *r, const unsigned char *at, size_t len,
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

static void failed_note(const struct recovery *r, const char *reason)
{
    const struct qwp_sys *sys = r->log->sys;
    const int fd = qwp_sys_open(sys, r->log->place.dir_fd, QWP_FAILED_NAME,
                                O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)qwp_sys_write_full(sys, fd, reason, strlen(reason), 0);
        (void)qwp_sys_write_full(sys, fd, "\n", 1, strlen(reason));
        sys->close(fd);
    }
}

/* Where a chain ends that is to be cut: behind the last frame that commits. */
struct cut {
    size_t chain_index;
    uint64_t off;
    uint64_t fsn;
};

/* Walks all frames of the mapped chain: dictionary, unfinished group, witness of the last. */
static enum qwp_result frames_read(struct recovery *r, struct cut *cut, struct qwp_error *err)
{
    *cut = (struct cut){0, QWP_SEGMENT_HEADER_BYTES, r->head};
    for (size_t i = 0; i < r->chain_count; i++) {
        const struct qwp_segment *segment = r->found[r->chain[i]].segment;
        uint64_t fsn = segment->base;
        if (cut->fsn == fsn) {
            *cut = (struct cut){i, QWP_SEGMENT_HEADER_BYTES, fsn};
        }
        for (uint64_t off = QWP_SEGMENT_HEADER_BYTES; off < segment->end_off; fsn++) {
            const unsigned char *frame = segment->map + off;
            const uint32_t len = qwp_load_u32(frame + QWP_FRAME_LENGTH_OFF);
            const unsigned char *payload = frame + QWP_FRAME_HEADER_BYTES;
            bool gap;
            const enum qwp_result result = delta_take(r, payload, len, &gap);
            if (result != QWP_OK || (gap && fsn >= r->acked)) {
                (void)corrupt(r, err,
                              gap ? "symbols that a frame needs are in no file any more"
                                  : "a frame and the symbol dictionary contradict each other",
                              QWP_DICT_FILE_NAME, fsn);
                failed_note(r, err == NULL ? "symbol dictionary" : err->text);
                return result == QWP_NOMEM ? result : QWP_CORRUPT;
            }
            off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
            const bool deferred = len >= QWP_HEADER_BYTES &&
                                  qwp_load_u32(payload) == QWP_WIRE_MAGIC &&
                                  (payload[5] & QWP_FLAG_DEFER_COMMIT) != 0;
            if (!deferred || fsn < r->acked) {
                *cut = (struct cut){i, off, fsn + 1};
                r->log->recovery.last_witness = qwp_load_u32(frame);
            }
        }
    }
    return QWP_OK;
}

static enum qwp_result chain_map(struct recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    for (size_t i = 0; i < r->chain_count; i++) {
        struct found *found = &r->found[r->chain[i]];
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
        segment->ready_off = segment->bytes;
        segment->fd = qwp_sys_open(log->sys, log->place.dir_fd, segment->name,
                                   O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
        if (segment->fd < 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot open segment %s/%s", log->dir,
                            segment->name);
        }
        /* Where another client left a hole, a full disk would be a signal later. */
        if (i + 1 == r->chain_count &&
            qwp_sys_allocate(log->sys, segment->fd, 0, segment->bytes) != 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot reserve space for segment %s/%s", log->dir,
                            segment->name);
        }
        void *map = log->sys->mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
                                   segment->fd, 0);
        if (map == MAP_FAILED) {
            return qwp_fail(err, QWP_IO, errno, "cannot map segment %s/%s", log->dir,
                            segment->name);
        }
        segment->map = map;
        if (i + 1 < r->chain_count && !log->periodic) {
            log->sys->close(segment->fd);
            segment->fd = -1;
        }
    }
    return QWP_OK;
}

/* --- settling --- */

/* Zeroes what is not zero behind the last frame, touching no page that is clean. */
static uint64_t tail_zero(struct qwp_segment *segment, uint64_t from)
{
    uint64_t cleaned = 0;
    static const unsigned char zeros[4096];
    for (uint64_t off = from; off < segment->bytes;) {
        const uint64_t page_end = (off + sizeof zeros) & ~(uint64_t)(sizeof zeros - 1);
        const uint64_t end = page_end < segment->bytes ? page_end : segment->bytes;
        if (memcmp(segment->map + off, zeros, end - off) != 0) {
            memset(segment->map + off, 0, end - off);
            cleaned += end - off;
        }
        off = end;
    }
    return cleaned;
}

/* Ends the chain where `cut` says; segments behind it are left to be removed. */
static void chain_cut(struct recovery *r, const struct cut *cut)
{
    struct qwp_seglog *log = r->log;
    log->recovery.deferred_frames_cut = r->next_fsn - cut->fsn;
    if (log->recovery.deferred_frames_cut > 0) {
        for (size_t i = cut->chain_index + 1; i < r->chain_count; i++) {
            r->found[r->chain[i]].in_chain = false;
        }
        r->chain_count = cut->chain_index + 1;
        r->next_fsn = cut->fsn;
    }
    struct qwp_segment *last = r->found[r->chain[r->chain_count - 1]].segment;
    last->end_off = log->recovery.deferred_frames_cut > 0 ? cut->off : last->end_off;
    r->active = last->base;
}

static void files_tidy(struct recovery *r)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_sys *sys = log->sys;
    for (size_t i = 0; i < r->count; i++) {
        struct found *found = &r->found[i];
        if (found->in_chain) {
            continue;
        }
        if (found->scan.header_bad) {
            char aside[QWP_STORE_NAME_BYTES + sizeof QWP_CORRUPT_SUFFIX];
            snprintf(aside, sizeof aside, "%s%s", found->name, QWP_CORRUPT_SUFFIX);
            sys->renameat(log->place.dir_fd, found->name, log->place.dir_fd, aside);
        } else {
            sys->unlinkat(log->place.dir_fd, found->name, 0);
        }
        qwp_segment_free(found->segment, sys);
        found->segment = NULL;
    }
}

static enum qwp_result chain_settle(struct recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    for (size_t i = 0; i < r->chain_count; i++) {
        struct qwp_segment *segment = r->found[r->chain[i]].segment;
        const bool last = i + 1 == r->chain_count;
        if (last || r->found[r->chain[i]].scan.torn) {
            const uint64_t cleaned = tail_zero(segment, segment->end_off);
            log->recovery.torn_bytes += cleaned;
        }
        QWP_CRASH_POINT("open.tail_zeroed");
        if (!last) {
            struct qwp_segment *next = r->found[r->chain[i + 1]].segment;
            atomic_store_explicit(&segment->next, next, memory_order_relaxed);
        }
        segment->map[QWP_SEGMENT_FLAGS_OFF] |= QWP_SEGMENT_MANIFESTED;
        atomic_fetch_add_explicit(&log->charged, segment->bytes, memory_order_relaxed);
        if (log->place.durable && segment->fd >= 0 && qwp_sys_sync(log->sys, segment->fd) != 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot sync segment %s/%s", log->dir,
                            segment->name);
        }
        if (!last && segment->fd >= 0) {
            log->sys->close(segment->fd);
            segment->fd = -1;
        }
        if (!last) {
            log->recovery.segments_sealed++;
        }
    }
    return QWP_OK;
}

/* A slot without segments. The flag comes last, since it says that there is a manifest. */
static enum qwp_result fresh_begin(struct recovery *r, struct qwp_segment **first,
                                   struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    const uint8_t light = log->segment_flags & QWP_SEGMENT_LIGHT;
    atomic_fetch_add_explicit(&log->charged, log->segment_bytes, memory_order_relaxed);
    const enum qwp_result result = qwp_seglog_make_now(log, log->segment_bytes, light, first, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, "slot %s", log->dir);
        return result;
    }
    (*first)->base = r->active;
    qwp_store_u64((*first)->map + QWP_SEGMENT_BASE_OFF, r->active);
    return QWP_OK;
}

static enum qwp_result manifest_settle(struct recovery *r, struct qwp_error *err)
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
                               log->sys->fsync(log->place.dir_fd) != 0)) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync %s/%s", log->dir, QWP_MANIFEST_NAME);
    }
    QWP_CRASH_POINT("open.manifest");
    return QWP_OK;
}

/* A refused watermark is overwritten before a frame can get one of the numbers that it claims. */
static enum qwp_result watermark_settle(struct recovery *r, struct qwp_error *err)
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

static enum qwp_result uuid_settle(struct qwp_seglog *log, struct qwp_error *err)
{
    const struct qwp_sys *sys = log->sys;
    unsigned char *uuid = log->recovery.slot_uuid;
    const size_t bytes = sizeof log->recovery.slot_uuid;
    const int fd = qwp_sys_open(sys, log->place.dir_fd, SLOT_UUID_NAME,
                                O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s/%s", log->dir, SLOT_UUID_NAME);
    }
    enum qwp_result result = QWP_OK;
    if (qwp_sys_read_full(sys, fd, uuid, bytes, 0) != (ssize_t)bytes) {
        if (getrandom(uuid, bytes, 0) != (ssize_t)bytes ||
            qwp_sys_write_full(sys, fd, uuid, bytes, 0) != 0) {
            result = qwp_fail(err, QWP_IO, errno, "cannot write %s/%s", log->dir, SLOT_UUID_NAME);
        }
    }
    sys->close(fd);
    return result;
}

static void roles_begin(struct recovery *r, struct qwp_segment *first, struct qwp_segment *last)
{
    struct qwp_seglog *log = r->log;
    log->w.active = last;
    log->w.next_fsn = r->next_fsn;
    log->published_count = r->next_fsn;
    log->r.acked = (struct qwp_seglog_cursor){first->base, first, QWP_SEGMENT_HEADER_BYTES};
    log->rotations = log->recovery.segments_sealed;
    for (const struct qwp_segment *segment = first; segment != NULL; segment = segment->next) {
        for (uint64_t off = QWP_SEGMENT_HEADER_BYTES; off < segment->end_off;) {
            const uint32_t len = qwp_load_u32(segment->map + off + QWP_FRAME_LENGTH_OFF);
            log->w.published_bytes += len;
            off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
        }
    }
    log->published_bytes = log->w.published_bytes;
    log->head = first;
    log->acked_count = first->base;
    if (r->acked > first->base) {
        qwp_seglog_ack(log, r->acked - 1);
    }
    struct qwp_seglog_keeper *k = &log->k;
    k->oldest = k->trimmed_to = first;
    k->noted_to = k->synced_to = last;
    k->rotations_seen = log->rotations;
    k->spares_wanted = 1;
    k->synced_count = log->periodic ? r->next_fsn : 0;
    log->synced_fsn_count = k->synced_count;
}

static void acked_decide(struct recovery *r)
{
    struct qwp_seglog *log = r->log;
    const struct qwp_dual *watermark = &log->k.watermark;
    r->acked = r->head;
    if (watermark->generation == 0) {
        return;
    }
    const int64_t acked = watermark->first + 1;
    if (watermark->first < -1 || watermark->first >= (int64_t)r->next_fsn) {
        log->recovery.watermark_refused = true;
    } else if ((uint64_t)acked > r->head) {
        r->acked = (uint64_t)acked;
    }
}

static enum qwp_result judge(struct recovery *r, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    enum qwp_result result = dir_scan(r, err);
    if (result != QWP_OK) {
        return result;
    }
    enum qwp_dual_state watermark_state;
    result = qwp_dual_load(&log->manifest.dual, log->sys, log->place.dir_fd, QWP_MANIFEST_NAME,
                           QWP_MANIFEST_MAGIC, &r->manifest_state, err);
    if (result == QWP_OK) {
        result = qwp_dual_load(&log->k.watermark, log->sys, log->place.dir_fd, QWP_WATERMARK_NAME,
                               QWP_WATERMARK_MAGIC, &watermark_state, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    r->chain = calloc(r->count + 1, sizeof *r->chain);
    if (r->chain == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to recover %s", log->dir);
    }
    if (r->count > 0) {
        qsort(r->found, r->count, sizeof *r->found, found_order);
    }
    if (r->manifest_state == QWP_DUAL_VALID) {
        r->head = (uint64_t)log->manifest.dual.first;
        r->active = (uint64_t)log->manifest.dual.second;
        if (log->manifest.dual.first < 0 || log->manifest.dual.first > log->manifest.dual.second) {
            return corrupt(r, err, "the manifest contradicts itself", QWP_MANIFEST_NAME, r->head);
        }
    } else {
        result = boundaries_guess(r, err);
    }
    r->next_fsn = r->head;
    if (result == QWP_OK) {
        result = chain_build(r, err);
    }
    return result == QWP_OK ? headers_judge(r, err) : result;
}

static enum qwp_result settle(struct recovery *r, const struct cut *cut, struct qwp_error *err)
{
    struct qwp_seglog *log = r->log;
    struct qwp_segment *first;
    enum qwp_result result;
    if (r->chain_count > 0) {
        chain_cut(r, cut);
        result = chain_settle(r, err);
        first = r->found[r->chain[0]].segment;
    } else {
        result = fresh_begin(r, &first, err);
    }
    if (result == QWP_OK) {
        result = manifest_settle(r, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    first->map[QWP_SEGMENT_FLAGS_OFF] |= QWP_SEGMENT_MANIFESTED;
    files_tidy(r);
    QWP_CRASH_POINT("open.tidied");
    result = watermark_settle(r, err);
    if (result != QWP_OK) {
        return result;
    }
    const uint32_t healed = log->recovery.symbols_healed;
    log->recovery.symbols = qwp_dict_count(log->dict);
    result = qwp_dict_file_open(&log->w.dict_file, log->sys, log->place.dir_fd, r->dict_trusted,
                                log->recovery.symbols - healed, err);
    if (result == QWP_OK) {
        result = qwp_dict_file_append(&log->w.dict_file, log->sys, log->dict, err);
    }
    if (result == QWP_OK) {
        result = uuid_settle(log, err);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "slot %s", log->dir);
        return result;
    }
    struct qwp_segment *last =
        r->chain_count == 0 ? first : r->found[r->chain[r->chain_count - 1]].segment;
    roles_begin(r, first, last);
    for (size_t i = 0; i < r->count; i++) {
        r->found[i].segment = NULL; /* the log's now */
    }
    return QWP_OK;
}

enum qwp_result qwp_seglog_recover(struct qwp_seglog *log, const struct qwp_seglog_options *options,
                                   struct qwp_error *err)
{
    struct recovery r = {.log = log, .options = options};
    struct cut cut = {0};
    enum qwp_result result = judge(&r, err);
    if (result == QWP_OK) {
        acked_decide(&r);
        result = qwp_dict_file_load(log->sys, log->place.dir_fd, log->dict, &r.dict_trusted,
                                    &r.dict_size, err);
    }
    if (result == QWP_OK) {
        result = chain_map(&r, err);
    }
    if (result == QWP_OK) {
        result = frames_read(&r, &cut, err);
    }
    if (result == QWP_OK) {
        result = settle(&r, &cut, err);
    }
    if (result == QWP_OK) {
        log->recovery.first_fsn = r.head;
        log->recovery.next_fsn = r.next_fsn;
        log->recovery.frames_waiting = r.next_fsn - r.acked;
    }
    for (size_t i = 0; i < r.count; i++) {
        qwp_segment_free(r.found[i].segment, log->sys);
    }
    free(r.found);
    free(r.chain);
    return result;
}

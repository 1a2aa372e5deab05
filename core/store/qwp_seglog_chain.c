/* Recovery, second step: which segments make up the log.
 *
 * What is intact before the first damage is kept. What lies behind it cannot be delivered (frame
 * numbers would be missing) and is set aside. Damage that concerns acknowledged frames only costs
 * nothing.
 *
 * It is decided again after each reading of a segment in full, until all that must be have been. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/store/qwp_seglog_recover.h"

/* So far back missing symbols are looked for, if not all need be found. */
enum { BACK_SEGMENTS_MAX = 8, BACK_BYTES_MAX = 64 * 1024 * 1024 };

/* No log gets there; a higher base is that of a segment that is not in use. */
#define FSN_MAX (UINT64_C(1) << 62)

void qwp_recovery_damage(struct qwp_recovery *r, const char *format, ...)
{
    struct qwp_seglog_recovery *recovery = &r->log->recovery;
    const size_t used = strlen(recovery->damage);
    recovery->damage_count++;
    if (sizeof recovery->damage - used < 8) {
        return;
    }
    char *at = recovery->damage + used;
    size_t room = sizeof recovery->damage - used;
    if (used > 0) {
        const int n = snprintf(at, room, "; ");
        at += n;
        room -= (size_t)n;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(at, room, format, args);
    va_end(args);
}

/* By base; of one base the one with more frames first, then a torn one, then by name: so the first
 * is the one to use. */
static int found_order(const void *a, const void *b)
{
    const struct qwp_found *x = a;
    const struct qwp_found *y = b;
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

static enum qwp_result manifest_refuse(const struct qwp_recovery *r, struct qwp_error *err,
                                       const char *what, const char *segment)
{
    return qwp_fail(err, QWP_CORRUPT, 0,
                    "slot %s: %s/%s %s, but segment %s needs it; nothing was changed. Way out: put "
                    "the file back, or move the directory %s away to start with an empty slot",
                    r->log->dir, r->log->dir, QWP_MANIFEST_NAME, what, segment, r->log->dir);
}

/* Without a manifest: segments of a client that ended before it wrote its first. */
static enum qwp_result boundaries_guess(struct qwp_recovery *r, struct qwp_error *err)
{
    bool any = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct qwp_found *found = &r->found[i];
        if (found->scan.header_bad) {
            continue;
        }
        if ((found->scan.flags & QWP_SEGMENT_MANIFESTED) != 0) {
            return manifest_refuse(
                r, err, r->manifest_state == QWP_DUAL_DAMAGED ? "is damaged" : "is missing",
                found->name);
        }
        if (found->scan.frame_count > 0 || found->scan.unchecked || found->scan.base == 0) {
            r->manifest_head = any ? r->manifest_head : found->scan.base;
            r->manifest_active = found->scan.base;
            any = true;
        }
    }
    return QWP_OK;
}

static enum qwp_result boundaries_take(struct qwp_recovery *r, struct qwp_error *err)
{
    const struct qwp_dual *manifest = &r->log->manifest.dual;
    if (r->manifest_state != QWP_DUAL_VALID) {
        return boundaries_guess(r, err);
    }
    if (manifest->first < 0 || manifest->first > manifest->second ||
        (uint64_t)manifest->second > FSN_MAX) {
        return manifest_refuse(r, err, "contradicts itself",
                               r->count > 0 ? r->found[0].name : "(none)");
    }
    r->manifest_head = (uint64_t)manifest->first;
    r->manifest_active = (uint64_t)manifest->second;
    return QWP_OK;
}

static bool holds_frames(const struct qwp_found *found)
{
    return !found->scan.header_bad && found->scan.frame_count > 0 && found->scan.base <= FSN_MAX;
}

/* A watermark beyond the last frame on disk says nothing: all is sent again. */
static void acked_take(struct qwp_recovery *r)
{
    const struct qwp_dual *watermark = &r->log->k.watermark;
    uint64_t end = r->head;
    for (size_t i = 0; i < r->count; i++) {
        const struct qwp_found *found = &r->found[i];
        if (holds_frames(found) && qwp_found_end(found) > end) {
            end = qwp_found_end(found);
        }
    }
    r->acked = r->head;
    if (watermark->generation == 0) {
        return;
    }
    if (watermark->first < -1 || (uint64_t)(watermark->first + 1) > end) {
        r->log->recovery.watermark_refused = true;
    } else if ((uint64_t)(watermark->first + 1) > r->head) {
        r->acked = (uint64_t)(watermark->first + 1);
    }
}

static void aside(struct qwp_recovery *r, struct qwp_found *found, const char *why)
{
    found->fate = QWP_FATE_ASIDE;
    qwp_recovery_damage(r, "%s: %s (%" PRIu64 " whole frames from %" PRIu64 ")", found->name, why,
                        found->scan.frame_count, found->scan.header_bad ? 0 : found->scan.base);
}

/* The fate of what cannot be part of the chain. False: it is a candidate. */
static bool fate_clear(struct qwp_recovery *r, struct qwp_found *found)
{
    const struct qwp_scan *scan = &found->scan;
    found->fate = QWP_FATE_CHAIN;
    if (scan->bytes == 0) {
        found->fate = QWP_FATE_REMOVE; /* emptied because it could not be removed */
        return true;
    }
    if (scan->header_bad) {
        aside(r, found, "damaged header or unknown version");
        return true;
    }
    if (scan->base > FSN_MAX && scan->frame_count > 0) {
        aside(r, found, "its header never reached the disk");
        return true;
    }
    if (scan->frame_count == 0 && scan->base != r->active) {
        if (scan->torn && !scan->open) {
            aside(r, found, "no frame of it is readable");
        } else {
            found->fate = QWP_FATE_REMOVE; /* a spare */
        }
        return true;
    }
    if (scan->base < r->head) {
        if (qwp_found_end(found) > r->head) {
            aside(r, found, "lies across the manifest's head");
        } else {
            found->fate = QWP_FATE_REMOVE; /* acknowledged; its removal was cut short */
        }
        return true;
    }
    return false;
}

/* All frames before `base` are acknowledged: the chain begins anew there. */
static void chain_restart(struct qwp_recovery *r, uint64_t base)
{
    for (size_t i = 0; i < r->chain_count; i++) {
        struct qwp_found *found = &r->found[r->chain[i]];
        found->fate = QWP_FATE_REMOVE;
        if (found->scan.torn && !found->scan.open) {
            aside(r, found, "damaged; its frames had been acknowledged");
        }
    }
    r->chain_count = 0;
    r->head = r->next_fsn = base;
}

static void chain_add(struct qwp_recovery *r, size_t index)
{
    r->found[index].fate = QWP_FATE_CHAIN;
    r->chain[r->chain_count++] = index;
    r->next_fsn = qwp_found_end(&r->found[index]);
}

/* Candidates in order of base. *broken: frames that were not acknowledged are missing. */
static void candidate_take(struct qwp_recovery *r, size_t index, bool *broken)
{
    struct qwp_found *found = &r->found[index];
    const uint64_t base = found->scan.base;
    const bool empty = found->scan.frame_count == 0;
    if (!*broken && base > r->next_fsn && base <= r->acked) {
        chain_restart(r, base);
    }
    if (*broken) {
        aside(r, found, "lies behind missing frames");
    } else if (base == r->next_fsn && !(empty && r->chain_count > 0 &&
                                        r->found[r->chain[r->chain_count - 1]].scan.base == base)) {
        chain_add(r, index);
    } else if (empty && !(found->scan.torn && !found->scan.open)) {
        found->fate = QWP_FATE_REMOVE; /* a spare with the base of the active one */
    } else if (base < r->next_fsn) {
        aside(r, found, "holds frames that another segment holds");
    } else {
        *broken = true;
        qwp_recovery_damage(r, "frames %" PRIu64 " to %" PRIu64 " are missing", r->next_fsn,
                            base - 1);
        aside(r, found, "lies behind missing frames");
    }
}

/* A sealed segment that the chain goes on behind has lost nothing, whatever follows its frames; the
 * last one may. */
static void tails_judge(struct qwp_recovery *r)
{
    for (size_t i = 0; i < r->chain_count; i++) {
        const struct qwp_scan *scan = &r->found[r->chain[i]].scan;
        if (scan->torn && i + 1 < r->chain_count) {
            r->log->recovery.sealed_residue++;
        }
    }
    if (r->chain_count == 0) {
        if (r->head != r->active) {
            qwp_recovery_damage(r, "no segment is left of frames %" PRIu64 " to %" PRIu64 " and on",
                                r->head, r->active);
        }
        return;
    }
    const struct qwp_found *last = &r->found[r->chain[r->chain_count - 1]];
    if (last->scan.base < r->active) {
        qwp_recovery_damage(r,
                            "the active segment, with frames from %" PRIu64 " on, is missing; "
                            "frames before %" PRIu64 " are there",
                            r->active, r->next_fsn);
    }
}

/* From what is known of the segments so far. */
static void chain_decide(struct qwp_recovery *r)
{
    struct qwp_seglog_recovery *recovery = &r->log->recovery;
    recovery->damage[0] = '\0';
    recovery->damage_count = recovery->sealed_residue = 0;
    recovery->watermark_refused = false;
    r->head = r->manifest_head;
    r->active = r->manifest_active;
    r->chain_count = 0;
    acked_take(r);
    r->next_fsn = r->head;
    bool broken = false;
    uint64_t end = r->active > r->acked ? r->active : r->acked;
    for (size_t i = 0; i < r->count; i++) {
        struct qwp_found *found = &r->found[i];
        if (!fate_clear(r, found)) {
            candidate_take(r, i, &broken);
        }
        if (holds_frames(found) && qwp_found_end(found) > end) {
            end = qwp_found_end(found);
        }
    }
    tails_judge(r);
    if (r->chain_count == 0) {
        /* Begin behind everything that ever had a number. */
        r->head = r->active = r->next_fsn = end;
    } else {
        r->active = r->found[r->chain[r->chain_count - 1]].scan.base;
    }
    if (r->acked > r->next_fsn) {
        r->acked = r->next_fsn;
        recovery->watermark_refused = true;
    }
    if (r->acked < r->head) {
        r->acked = r->head;
    }
}

/* ---- what must be read in full ---- */

/* Those of one base, and those whose base no log would have. */
static enum qwp_result doubtful_check(struct qwp_recovery *r, struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    for (size_t i = 0; i < r->count && result == QWP_OK; i++) {
        const uint64_t base = r->found[i].scan.base;
        const bool before = i > 0 && r->found[i - 1].scan.base == base;
        const bool behind = i + 1 < r->count && r->found[i + 1].scan.base == base;
        if (r->found[i].scan.unchecked && (before || behind || base > FSN_MAX)) {
            result = qwp_recovery_check(r, &r->found[i], err);
        }
    }
    return result;
}

/* Nearest base behind `base`: of the segment found there, or of one that the manifest names. */
static uint64_t boundary_behind(const struct qwp_recovery *r, uint64_t base, uint64_t next_base)
{
    if (r->manifest_active > base && next_base > r->manifest_active) {
        next_base = r->manifest_active;
    }
    return r->manifest_head > base && next_base > r->manifest_head ? r->manifest_head : next_base;
}

/* How many frames an unchecked segment has if its successor begins where it ends. One without a
 * successor is read. */
static enum qwp_result counts_presume(struct qwp_recovery *r, struct qwp_error *err)
{
    uint64_t next_base = 0; /* none */
    for (size_t i = r->count; i-- > 0;) {
        struct qwp_found *found = &r->found[i];
        if (found->scan.header_bad || found->scan.base > FSN_MAX) {
            continue;
        }
        if (found->scan.unchecked && next_base == 0) {
            const enum qwp_result result = qwp_recovery_check(r, found, err);
            if (result != QWP_OK) {
                return result;
            }
        } else if (found->scan.unchecked) {
            found->scan.frame_count =
                boundary_behind(r, found->scan.base, next_base) - found->scan.base;
        }
        const bool unreadable = found->scan.torn && !found->scan.open;
        if (found->scan.frame_count > 0 || unreadable || found->scan.base == r->manifest_active) {
            next_base = found->scan.base;
        }
    }
    return QWP_OK;
}

/* Symbols that are known before those of the first segment that waits and is not read. */
static uint64_t symbols_known(const struct qwp_recovery *r)
{
    uint64_t known = qwp_dict_count(r->log->dict);
    for (size_t i = 0; i < r->chain_count; i++) {
        const struct qwp_found *found = &r->found[r->chain[i]];
        if (found->scan.unchecked && qwp_found_end(found) > r->acked) {
            break;
        }
        if (found->has_delta && found->delta_first <= known && found->delta_end > known) {
            known = found->delta_end;
        }
    }
    return known;
}

/* The one that holds the first frame that waits. Where that needs symbols that the dictionary has
 * not, those before it too: they are acknowledged, but may have brought them. */
static enum qwp_result first_check(struct qwp_recovery *r, bool *read, struct qwp_error *err)
{
    size_t i = 0;
    while (i < r->chain_count && qwp_found_end(&r->found[r->chain[i]]) <= r->acked) {
        i++;
    }
    enum qwp_result result = QWP_OK;
    for (bool lacks = i < r->chain_count; lacks && result == QWP_OK;) {
        struct qwp_found *found = &r->found[r->chain[i]];
        if (found->scan.unchecked) {
            *read = true;
            result = qwp_recovery_check(r, found, err);
        }
        lacks = i-- > 0 && found->has_delta && found->delta_first > qwp_dict_count(r->log->dict);
    }
    return result;
}

/* What the frames at the end of the chain have told so far. */
struct tail {
    size_t segments;
    uint64_t bytes;
    bool has_frames; /* the witness of the last one */
    bool ends_group;
    bool knows_symbols; /* how many are in use is known */
    uint64_t symbols;
    uint64_t first_symbol; /* of those that the frames bring */
};

static void tail_take(struct tail *tail, const struct qwp_recovery *r,
                      const struct qwp_found *found)
{
    tail->segments++;
    tail->bytes += found->scan.bytes;
    tail->has_frames |= found->scan.frame_count > 0;
    tail->ends_group |= found->ends_group || found->scan.base < r->acked;
    if (found->has_delta) {
        tail->symbols = tail->knows_symbols ? tail->symbols : found->delta_end;
        tail->first_symbol = found->delta_first;
        tail->knows_symbols = true;
    }
    if (found->needs_no_symbols && !tail->knows_symbols) {
        tail->knows_symbols = true;
    }
}

static bool tail_is_enough(const struct tail *tail, const struct qwp_recovery *r,
                           const struct qwp_found *next, uint64_t known)
{
    if (tail->has_frames && qwp_found_end(next) <= r->acked) {
        return true; /* nobody asks more of what is acknowledged */
    }
    return tail->has_frames && tail->ends_group && tail->knows_symbols &&
           (tail->symbols <= known || tail->first_symbol <= known ||
            (r->log->may_lack_symbols &&
             (tail->segments >= BACK_SEGMENTS_MAX || tail->bytes >= BACK_BYTES_MAX)));
}

/* Reads up to *budget unchecked segments at the end of the chain, from the back. */
static enum qwp_result tail_check(struct qwp_recovery *r, size_t budget, bool *read,
                                  struct qwp_error *err)
{
    struct tail tail = {0};
    const uint64_t known = symbols_known(r);
    enum qwp_result result = QWP_OK;
    for (size_t i = r->chain_count; i-- > 0 && result == QWP_OK;) {
        struct qwp_found *found = &r->found[r->chain[i]];
        if (i + 1 < r->chain_count && tail_is_enough(&tail, r, found, known)) {
            break;
        }
        if (found->scan.unchecked && budget-- == 0) {
            break;
        }
        if (found->scan.unchecked) {
            *read = true;
            result = qwp_recovery_check(r, found, err);
        }
        tail_take(&tail, r, found);
    }
    return result;
}

enum qwp_result qwp_recovery_chain(struct qwp_recovery *r, struct qwp_error *err)
{
    r->chain = calloc(r->count + 1, sizeof *r->chain);
    if (r->chain == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to recover %s", r->log->dir);
    }
    enum qwp_result result = QWP_OK;
    bool read = true;
    for (size_t budget = 1; read && result == QWP_OK; budget *= 2) {
        read = false;
        if (r->count > 0) {
            qsort(r->found, r->count, sizeof *r->found, found_order);
        }
        result = doubtful_check(r, err);
        if (result == QWP_OK && r->count > 0) {
            qsort(r->found, r->count, sizeof *r->found, found_order);
        }
        result = result == QWP_OK ? boundaries_take(r, err) : result;
        result = result == QWP_OK ? counts_presume(r, err) : result;
        if (result == QWP_OK) {
            chain_decide(r);
            result = first_check(r, &read, err);
        }
        result = result == QWP_OK ? tail_check(r, budget, &read, err) : result;
    }
    return result;
}

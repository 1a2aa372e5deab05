/* qwp_seglog_recover: what the steps of a slot's recovery share.
 *
 *   scan     qwp_seglog_scan.c     looks at every segment with plain reads; changes nothing
 *   chain    qwp_seglog_chain.c    decides which segments make up the log, and the fate of the rest
 *   frames   qwp_seglog_recover.c  maps the chain and reads dictionary and commits in it
 *   settle   qwp_seglog_settle.c   carries it out: set aside, remove, zero, manifest, watermark
 *
 * A start must not take longer the more is waiting, so not every frame is read. Of a sealed segment
 * only the header and the look of a first frame are taken; that its frames reach up to the next
 * segment's base is presumed, and seen when they are checked while the log is in use, before they
 * are sent (qwp_seglog_check.c). Read in full are:
 *
 *   - the last segment of the chain, where a torn tail is normal and which is appended to;
 *   - the one with the first frame that waits, so that sending can begin; and those before it that
 *     are still there, as far as it needs symbols of theirs;
 *   - as many from the end backwards as it takes to find a frame that ends a group, and to see that
 *     the dictionary's file lacks none of the symbols in use. Ids only grow from frame to frame, so
 *     the last one tells. When some are missing, the frames that bring them are read too; with
 *     options.may_lack_symbols only as many as take a moment, and then the check reads the rest;
 *   - two of the same base, of which only the frames can say which one counts.
 *
 * Nothing that holds frames which may not have been delivered is ever deleted: it is renamed or
 * copied to "<name>.corrupt", and recovery.damage says so. */
#ifndef QWP_SEGLOG_RECOVER_H
#define QWP_SEGLOG_RECOVER_H

#include "core/store/qwp_seglog_impl.h"

enum qwp_fate {
    QWP_FATE_CHAIN = 0,
    QWP_FATE_REMOVE, /* a spare, or acknowledged */
    QWP_FATE_ASIDE,
};

/* A segment file as scanned. While it is unchecked frame_count is what its successor's base leaves
 * room for. */
struct qwp_found {
    char name[QWP_STORE_NAME_BYTES];
    struct qwp_scan scan;
    enum qwp_fate fate;
    struct qwp_segment *segment; /* once mapped */
    /* Of a checked one. */
    bool ends_group;       /* some frame of it does */
    bool needs_no_symbols; /* what stands in it are no messages */
    bool has_delta;
    uint64_t delta_first,
        delta_end; /* first symbol of the first delta, behind the last of the last */
};

struct qwp_recovery {
    struct qwp_seglog *log;
    struct qwp_found *found;
    size_t count, room;
    size_t *chain; /* indices into found, in FSN order */
    size_t chain_count;
    enum qwp_dual_state manifest_state;
    uint64_t manifest_head, manifest_active; /* as the manifest says, or as the files suggest */
    uint64_t head, active;                   /* bases, as decided */
    uint64_t next_fsn;                       /* behind the chain's last frame */
    uint64_t acked;
    uint64_t dict_trusted, dict_size;
    /* Where the chain ends when an unfinished group is cut: within its last segment. */
    uint64_t cut_off, cut_fsn;
    size_t cut_index;
};

static inline uint64_t qwp_found_end(const struct qwp_found *found)
{
    return found->scan.base + found->scan.frame_count;
}

/* Adds one line to recovery.damage (the first few are kept) and counts it. */
void qwp_recovery_damage(struct qwp_recovery *r, const char *format, ...) QWP_PRINTF(2, 3);

enum qwp_result qwp_recovery_scan(struct qwp_recovery *r, struct qwp_error *err);
/* Reads a segment in full. */
enum qwp_result qwp_recovery_check(struct qwp_recovery *r, struct qwp_found *found,
                                   struct qwp_error *err);
/* Sets head, active, acked, next_fsn, the chain and all fates. QWP_CORRUPT: no telling what belongs
 * to the log. */
enum qwp_result qwp_recovery_chain(struct qwp_recovery *r, struct qwp_error *err);
enum qwp_result qwp_recovery_settle(struct qwp_recovery *r, struct qwp_error *err);

#endif

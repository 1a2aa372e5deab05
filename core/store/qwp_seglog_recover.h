/* qwp_seglog_recover: what the steps of a slot's recovery share.
 *
 *   scan     qwp_seglog_scan.c     reads every segment with plain reads; changes nothing
 *   chain    qwp_seglog_chain.c    decides which segments make up the log, and the fate of the rest
 *   frames   qwp_seglog_recover.c  maps the chain and reads dictionary and commits in it
 *   settle   qwp_seglog_settle.c   carries it out: set aside, remove, zero, manifest, watermark
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

/* A segment file as scanned. */
struct qwp_found {
    char name[QWP_STORE_NAME_BYTES];
    struct qwp_scan scan;
    enum qwp_fate fate;
    struct qwp_segment *segment; /* once mapped */
};

struct qwp_recovery {
    struct qwp_seglog *log;
    struct qwp_found *found;
    size_t count, room;
    size_t *chain; /* indices into found, in FSN order */
    size_t chain_count;
    enum qwp_dual_state manifest_state;
    uint64_t head, active; /* bases: as the manifest says, then as decided */
    uint64_t next_fsn;     /* behind the chain's last frame */
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
/* Sets head, active, acked, next_fsn, the chain and all fates. QWP_CORRUPT: no telling what belongs
 * to the log. */
enum qwp_result qwp_recovery_chain(struct qwp_recovery *r, struct qwp_error *err);
enum qwp_result qwp_recovery_settle(struct qwp_recovery *r, struct qwp_error *err);

#endif

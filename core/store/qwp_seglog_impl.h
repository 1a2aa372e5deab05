/* qwp_seglog_impl: what the parts of the segment log share: qwp_seglog.c (writer, reader),
 * qwp_seglog_keeper.c, qwp_seglog_open.c and recovery (qwp_seglog_recover.h).
 *
 * The chain: segments linked by `next` in FSN order.
 *
 *   keep.oldest ... keep.trimmed_to ... head ......... active
 *   |- being removed -|- manifest due -|- not acked ----|
 *
 * Only the writer links at the end, only the keeper unlinks at the front, and never past `head`,
 * which only the reader moves. */
#ifndef QWP_SEGLOG_IMPL_H
#define QWP_SEGLOG_IMPL_H

#include <stdalign.h>
#include <stdatomic.h>

#include "core/store/qwp_dict_file.h"
#include "core/store/qwp_make.h"
#include "core/store/qwp_manifest.h"
#include "core/store/qwp_seglog.h"
#include "core/store/qwp_segment.h"

enum {
    QWP_SEGLOG_SHARE_BYTES = 128, /* two cache lines: the prefetcher pulls them in pairs */
    QWP_SEGLOG_SPARES_MAX = 8,    /* a power of two */
    QWP_SEGLOG_RETRY_NS = 100 * 1000 * 1000,
};

struct qwp_seglog_writer {
    struct qwp_segment *active;
    uint64_t sealed_bytes; /* of the segment before it, when that was sealed by us */
    uint64_t next_fsn;
    size_t room; /* of the open reservation; 0: none */
    size_t len;  /* once finished; 0: not finished */
    uint32_t crc;
    uint64_t published_bytes;
    int64_t retry_ns; /* no segment is made in place before that: the last try failed */
    struct qwp_error retry_error;
    struct qwp_leftover leftover;
    struct qwp_dict_file dict_file; /* of the check's operation in a log that lacks symbols */
};

struct qwp_seglog_reader {
    struct qwp_seglog_cursor acked; /* at the first frame that is not acknowledged */
    uint64_t acked_bytes;
    uint64_t read_fsn; /* behind the last frame that next() has given, while some are unchecked */
    bool resumed;      /* it has gone on behind damaged frames */
};

/* ---- frames that are checked while the log is in use; see qwp_seglog_check.c ---- */

struct qwp_seglog_check {
    /* const after open: where what was in the log at open ends */
    struct qwp_segment *old_segment; /* the active one then */
    uint64_t old_off, old_fsn;
    uint64_t old_bytes; /* published by then */
    /* keeper's; the operation's while it is out */
    struct qwp_segment *unsaved; /* the first one with symbols that the dictionary's file may lack;
                                    NULL: there is none */
    int save_error;              /* errno of the last try to give them to it; 0: it worked */
    uint64_t saved_bytes;        /* checked before it worked */
    struct qwp_segment *segment; /* being checked; NULL: all are */
    uint64_t end_fsn;            /* of it, as its successor says */
    struct qwp_scan scan;        /* of it, so far */
    uint64_t whole_fsn;          /* frames below are intact, and their groups too */
    const char *flaw;            /* of the frame that ended the scan; NULL: CRC or length */
    bool ended;
    /* keeper's */
    struct qwp_segment *needed; /* `unsaved`, as of when an operation was collected last */
    bool is_begun, is_out;
    struct qwp_slow_op op;
    uint64_t bytes; /* payload of segments that have been checked */
    uint32_t tries; /* reads that failed since one worked */
    int64_t retry_ns;
    bool is_damaged;              /* no frame from checked_count up to old_fsn can be sent */
    struct qwp_segment *aside_at; /* what is set aside next */
    bool is_copied;               /* the old part of old_segment */
    struct qwp_seglog_damage damage;
    bool has_news;
};

enum qwp_seglog_job {
    QWP_JOB_NONE = 0,
    QWP_JOB_MAKE,        /* a spare, new or again */
    QWP_JOB_TRIM,        /* manifest head before segments go */
    QWP_JOB_DROP,        /* unlink one */
    QWP_JOB_NOTE_ACTIVE, /* sync new segments, their directory, then the manifest */
    QWP_JOB_WINDOW,      /* make the pages writable that are written next */
    QWP_JOB_SYNC,        /* dictionary, frames, manifest, watermark */
    QWP_JOB_SYNC_OLD,    /* one that was sealed before the log was opened */
    QWP_JOB_ASIDE,       /* damaged frames and what lies behind them; see qwp_seglog_check.h */
    QWP_JOB_CHECK,       /* not a job: what has failed, in failed_job */
};

struct qwp_seglog_keeper {
    struct qwp_segment *oldest;
    struct qwp_segment *trimmed_to; /* segments before it may go */
    struct qwp_segment *active;     /* the writer's, or one that was when last looked for */
    struct qwp_segment *noted_to;   /* headers up to it are on disk */
    struct qwp_segment *synced_to;  /* frames of those before it are on disk, but for... */
    struct qwp_segment *unsynced;   /* from here to those that were sealed at open; NULL: none */
    enum qwp_seglog_job job;
    uint32_t job_step;
    bool job_clean; /* no sync of it has failed */
    struct qwp_segment *job_segment;
    uint64_t job_count; /* published when a sync began */
    uint64_t
        round_count; /* job_count of the last sync that came to its end, whatever failed in it */
    bool was_sync;   /* the last job: another one goes first, if there is any */
    bool op_out;
    struct qwp_slow_op op;
    struct qwp_make make;
    struct qwp_leftover leftover;
    int64_t retry_ns;               /* after a failure nothing new is begun before that */
    struct qwp_error error;         /* of the last failure */
    enum qwp_seglog_job failed_job; /* not done since it failed; QWP_JOB_NONE: all is well */
    bool retired;                   /* the writer is gone: no spares */
    bool note_again;                /* the newest segment got another base since it was noted */
    uint32_t spares_wanted;
    uint64_t rotations_seen;
    int64_t rotation_ns; /* when they were seen */
    int64_t sync_due_ns;
    uint32_t dict_synced; /* appends */
    uint64_t synced_count;
    struct qwp_dual watermark;
    uint64_t watermark_count; /* acked_count that it stands for */
    bool opening;             /* only what open() waits for */
    struct qwp_seglog_check check;
};

struct qwp_seglog {
    /* const after open */
    const struct qwp_sys *sys;
    struct qwp_slow slow;
    struct qwp_slow reading; /* of frames that are checked */
    struct qwp_make_place place;
    int lock_fd;
    uint8_t segment_flags;
    uint64_t segment_bytes;
    uint32_t symbols_max; /* of the dictionary */
    uint64_t symbol_bytes_max;
    bool may_lack_symbols;
    struct qwp_store_budget own_budget;
    struct qwp_store_budget *budget; /* that one, or one that is shared */
    bool periodic;
    int64_t sync_interval_ns;
    struct qwp_dict *dict;
    struct qwp_seglog_recovery recovery;
    char dir[256]; /* for messages; cut at the front if need be */

    /* writer: intake. Private. */
    alignas(QWP_SEGLOG_SHARE_BYTES) struct qwp_seglog_writer w;
    /* writer: the log's writer. readers: any. sync[seglog.published]: frames below it are whole. */
    alignas(QWP_SEGLOG_SHARE_BYTES) _Atomic uint64_t published_count;
    /* writer: the log's writer. readers: any. relaxed, figures only. */
    _Atomic uint64_t published_bytes;
    _Atomic uint64_t rotations;
    _Atomic uint64_t rotations_without_spare;

    /* writer: sender. Private. */
    alignas(QWP_SEGLOG_SHARE_BYTES) struct qwp_seglog_reader r;
    /* writer: sender. readers: any. sync[seglog.acked]: frames below it are settled. */
    alignas(QWP_SEGLOG_SHARE_BYTES) _Atomic uint64_t acked_count;
    /* writer: sender. reader: keeper. sync[seglog.head]: the reader is done with segments before.
     */
    _Atomic(struct qwp_segment *) head;
    /* writer: sender. readers: any. relaxed. */
    _Atomic uint64_t acked_bytes;

    /* writer: sender. reader: keeper. relaxed: payload given out while some frames are unchecked.
     */
    _Atomic uint64_t read_bytes;
    /* writers: sender sets it when it waits for a check, keeper takes it back when one is begun.
     * relaxed: a hint, and whoever sets it has the keeper run. */
    _Atomic bool starved;

    /* writer: keeper. Private. */
    alignas(QWP_SEGLOG_SHARE_BYTES) struct qwp_seglog_keeper k;
    /* writer: the check's operation, or keeper while none is out. reader: sender.
     * sync[seglog.checked]: frames below it are intact. */
    _Atomic uint64_t checked_count;
    /* writer: keeper. reader: sender. sync[seglog.resumable]: what is damaged has been set aside.
     */
    _Atomic bool resumable;
    /* writer: keeper. readers: any. relaxed: published bytes that turned out not to be there. */
    _Atomic uint64_t presumed_excess;
    /* writer: keeper. readers: any. relaxed. */
    _Atomic uint64_t recycled;
    _Atomic uint64_t disposed; /* sealed segments that left the chain */
    _Atomic uint64_t sync_failures;
    _Atomic uint64_t failures;
    _Atomic uint64_t synced_fsn_count;
    _Atomic uint32_t suspects; /* segments in the chain that are */

    /* Spares, a queue. sync[seglog.spare]: places below spare_tail hold ready segments (writer:
     * keeper); places below spare_head may be used again (writer: the log's writer). */
    alignas(QWP_SEGLOG_SHARE_BYTES) _Atomic uint32_t spare_tail;
    struct qwp_segment *spares[QWP_SEGLOG_SPARES_MAX];
    alignas(QWP_SEGLOG_SHARE_BYTES) _Atomic uint32_t spare_head;

    /* writers: keeper and the log's writer, by atomic read-modify-write only: bytes of all segment
     * files, here and in the budget. Each adds before it makes one and subtracts after one is gone.
     * relaxed: no memory hangs on it. */
    alignas(QWP_SEGLOG_SHARE_BYTES) _Atomic uint64_t charged;
    _Atomic uint64_t next_number; /* of a file; likewise */
    struct qwp_manifest manifest; /* keeper and writer, see there */
};

/* Adds `bytes` to what is charged unless that would pass the budget. */
bool qwp_seglog_charge(struct qwp_seglog *log, uint64_t bytes);
/* The same whatever the budget says: they are there. */
void qwp_seglog_charge_anyway(struct qwp_seglog *log, uint64_t bytes);
void qwp_seglog_uncharge(struct qwp_seglog *log, uint64_t bytes);

/* Writer. Makes a segment here and now. It is charged already; on failure that is taken back,
 * unless its file could not be removed. */
enum qwp_result qwp_seglog_make_now(struct qwp_seglog *log, uint64_t bytes, uint8_t flags,
                                    struct qwp_segment **out, struct qwp_error *err);

/* Zeroes what is not zero from `from` on, touching no page that is clean. Bytes of those pages. */
uint64_t qwp_segment_tail_zero(struct qwp_segment *segment, uint64_t from);
/* Renames the file `name` to "<name>.corrupt", or with a number before that when it is taken; or
 * copies the first `bytes` of the segment there. QWP_IO: as it was. */
enum qwp_result qwp_segment_rename_aside(struct qwp_seglog *log, const char *name,
                                         struct qwp_error *err);
enum qwp_result qwp_segment_copy_aside(struct qwp_seglog *log, const struct qwp_segment *segment,
                                       uint64_t bytes, struct qwp_error *err);

/* Keeper. An operation that was handed to options.slow is not done yet. */
bool qwp_seglog_op_under_way(const struct qwp_seglog *log);

static inline struct qwp_segment *qwp_seglog_next_of(const struct qwp_segment *segment)
{
    /* sync[seglog.next] acquire: pairs with the release in the writer's rotation. */
    return atomic_load_explicit(&segment->next, memory_order_acquire);
}

/* The segment that holds frame `fsn`, from `segment` on; fsn < published_count or just behind. */
static inline struct qwp_segment *qwp_seglog_find(struct qwp_segment *segment, uint64_t fsn)
{
    for (;;) {
        struct qwp_segment *next = qwp_seglog_next_of(segment);
        if (next == NULL || next->base > fsn) {
            return segment;
        }
        segment = next;
    }
}

/* Any thread. Not all frames are acknowledged. In this order: what was acknowledged was published.
 */
static inline bool qwp_seglog_waits(const struct qwp_seglog *log)
{
    const uint64_t acked = qwp_seglog_acked_count(log);
    return acked != qwp_seglog_published_count(log);
}

/* Of a segment that is not read yet: what it holds if it is full up to its last byte. */
static inline uint64_t qwp_seglog_presumed_bytes(const struct qwp_segment *segment)
{
    const struct qwp_segment *next = atomic_load_explicit(&segment->next, memory_order_relaxed);
    const uint64_t overhead =
        QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES * (next->base - segment->base);
    return segment->bytes > overhead ? segment->bytes - overhead : 0;
}

/* Reader. Its place, which has changed, for the others. */
void qwp_seglog_acked_show(struct qwp_seglog *log);
/* At the end of open: `last` is the active segment. */
void qwp_seglog_check_begin(struct qwp_seglog *log, struct qwp_segment *last);
/* Keeper. Looks after the check; true: it has come on. */
bool qwp_seglog_check_step(struct qwp_seglog *log, int64_t now_ns, int64_t *next_ns);
/* Keeper. Segments before it may go; NULL: half opened. */
struct qwp_segment *qwp_seglog_trim_target(const struct qwp_seglog *log);
/* The check's operation, at its end, in a log that lacks symbols: the dictionary's file gets those
 * that frames have brought; and keeper, afterwards: what came of it. */
void qwp_seglog_symbols_save(struct qwp_seglog *log, const struct qwp_sys *sys);
void qwp_seglog_symbols_judge(struct qwp_seglog *log, int64_t now_ns);
/* Keeper. Everything before the damage is acknowledged, and what follows has not been set aside. */
bool qwp_seglog_aside_due(const struct qwp_seglog *log);
/* Keeper. The job's next step. QWP_AGAIN: one more follows, with *is_out after *op. QWP_IO: it did
 * not work, and is begun again later. */
enum qwp_result qwp_seglog_aside_step(struct qwp_seglog *log, struct qwp_slow_op *op, bool *is_out,
                                      struct qwp_error *err);

/* No role runs any more. Spares, ready and half made, go. */
void qwp_seglog_spares_remove(struct qwp_seglog *log);

/* Fills in everything that open has not; the slot is locked. On failure close() undoes it. */
enum qwp_result qwp_seglog_recover(struct qwp_seglog *log, struct qwp_error *err);

#endif

/* qwp_seglog: the segment log of one slot: frames appended by intake, read by the sender, trimmed
 * when acknowledged. Files as on the store-and-forward page.
 *
 * Threads:  three roles, each one thread at a time, or all the same one: writer (reserve, persist,
 *           finish, publish, abandon), reader (next, rewind, ack), keeper (maintain, flush). They
 * share: sync[seglog.published]  writer -> reader: frames below published_count are whole
 *           sync[seglog.acked]      reader -> keeper: frames below acked_count are settled
 *           sync[seglog.head]       reader -> keeper: no cursor goes back before this segment
 *           sync[seglog.next]       writer -> reader, keeper: a sealed segment and its successor
 *           sync[seglog.checked]    its operation -> reader: frames below checked_count are intact
 *           sync[seglog.resumable]  keeper -> reader: damaged ones have been set aside
 *           sync[seglog.spare]      keeper -> writer: a segment ready for use
 *           sync[seglog.manifest]   writer, keeper: see qwp_dual.h, two writers and why
 * Progress: reserve and publish make no system call while a spare is ready; next() never does.
 * Trust:    files are judged by plain reads, afterwards the slot lock keeps others away: at open
 * what must be, so that it does not take longer the more frames wait, and all others by the keeper
 * before the reader gets them. Damage that is found then costs what damage costs at open: frames
 * before it are given out; those behind it that were there at open are set aside when all before
 * are acknowledged; the log goes on behind them. See qwp_seglog_recover.h and qwp_seglog_check.c.
 * Crash:    a published frame survives every process (and the host as far as the durability level
 *           says); what was reserved and not published is nothing. While a reservation is open its
 *           length field holds -1, so that every client sees a torn tail and zeroes it; when none
 *           is, all bytes behind the last frame are zero, or in a slot without payload CRCs, which
 *           no other client opens, the next 8.
 * Errors:   QWP_AGAIN from reserve is back-pressure (err.sys_errno 0: the budget) or a store that
 *           cannot be written now (err.sys_errno says why: raise the alarm): leave the rows in
 *           their rings and try again. */
#ifndef QWP_SEGLOG_H
#define QWP_SEGLOG_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_sys.h"
#include "core/store/qwp_dict.h"
#include "core/store/qwp_durability.h"
#include "core/store/qwp_slow.h"

struct qwp_seglog;

/* Bytes that several logs may use together. Its owner's; zero `charged` at first. */
struct qwp_store_budget {
    uint64_t bytes_max;
    _Atomic uint64_t charged; /* writers: the logs, by atomic read-modify-write. relaxed */
};

/* What total_bytes_max comes to: a segment at least, QWP_SEGMENTS_MAX of them at most. */
uint64_t qwp_store_budget_bytes(uint64_t total_bytes_max, uint64_t segment_bytes);

/* Each segment is a mapping, and a process may have some 65,000 of those. */
enum { QWP_SEGMENTS_MAX = 32768 };

/* Strings are borrowed for the call. */
struct qwp_seglog_options {
    const char *dir;          /* the slot's directory, made if absent (its parent must exist) */
    const char *name;         /* of the slot in messages; NULL: dir */
    uint64_t segment_bytes;   /* 64 KiB .. 1 GiB; a larger frame gets a segment of its own */
    uint64_t total_bytes_max; /* budget: active, sealed, spare and retained segments; at most
                                 QWP_SEGMENTS_MAX of them, see stats.bytes_total_max */
    struct qwp_store_budget *budget; /* kept; shared with other logs, instead of the above */
    enum qwp_durability durability;
    int64_t sync_interval_ns;
    bool payload_crc;     /* false only where the files never outlive the host (tmpfs) */
    uint32_t symbols_max; /* dictionary bounds */
    uint64_t symbol_bytes_max;
    bool may_lack_symbols; /* open need not find all of them: see recovery.lacks_symbols */
    bool in_place;         /* a slot whose frames cannot be replayed is refused (QWP_CORRUPT, and
                              the reason in `.failed`) instead of moved away: for drainers */
    const struct qwp_sys *sys;      /* kept; NULL: the real one */
    const struct qwp_slow *slow;    /* kept; NULL: slow operations run at once, in small steps */
    const struct qwp_slow *reading; /* kept; NULL: that one too. For frames that are checked ahead
                                       of the reader, up to 64 MiB at a time */
};

/* Locks the slot, recovers it (frames, manifest, watermark, dictionary), readies a spare.
 * QWP_AGAIN: another process holds the slot (err names it). QWP_CORRUPT: cannot be opened; err
 * names the file and the way out. */
QWP_MUST_USE enum qwp_result qwp_seglog_open(struct qwp_seglog **out,
                                             const struct qwp_seglog_options *options,
                                             struct qwp_error *err);
/* Keeps everything on disk. No role runs any more, and nothing is under way in options.slow or
 * .reading. NULL is fine. */
void qwp_seglog_close(struct qwp_seglog *log);
/* The same for a slot that is about to be removed: nothing is synced. */
void qwp_seglog_discard(struct qwp_seglog *log);
/* Closes a slot all of whose frames are acknowledged, and leaves it without segments and symbols
 * but locked: *lock_fd is the caller's. QWP_IO: still open, as it was. */
QWP_MUST_USE enum qwp_result qwp_seglog_hollow(struct qwp_seglog *log, int *lock_fd,
                                               struct qwp_error *err);
/* All roles, on one thread, and no frame was ever in it: its first frame gets this FSN, which is
 * not below the one that it would have. */
void qwp_seglog_begin_at(struct qwp_seglog *log, uint64_t fsn);
/* Nothing stands in the way of that. */
bool qwp_seglog_is_pristine(const struct qwp_seglog *log);

/* What recovery found, for the log of the program and for qwp_cursors. Valid until close. */
struct qwp_seglog_recovery {
    unsigned char slot_uuid[16]; /* of this slot, made with it */
    uint64_t first_fsn;          /* base of the first segment */
    uint64_t next_fsn;           /* last frame + 1 */
    uint32_t last_witness;       /* of frame next_fsn - 1; 0 when that is not on disk any more */
    uint64_t frames_waiting;     /* not acknowledged */
    uint32_t segments_sealed;
    uint64_t torn_bytes;          /* zeroed behind the last frame */
    uint64_t deferred_frames_cut; /* an unfinished group at the end */
    uint32_t sealed_residue;      /* sealed segments with something behind their frames, zeroed */
    bool watermark_refused;       /* it was beyond the last frame: everything is sent again */
    /* Damage that recovery went around, for one line in the log; "" if none. Frames before it are
     * in the log; what could not be used was kept, see the next three. */
    char damage[QWP_ERROR_TEXT_BYTES];
    uint32_t damage_count;
    uint32_t files_set_aside; /* "<name>.corrupt" in the slot */
    /* "" or where the whole slot went because its frames cannot be replayed; this is a new one. */
    char slot_set_aside[QWP_ERROR_TEXT_BYTES];
    bool unreplayable;       /* inner use: why open() did that */
    uint32_t symbols;        /* recovered */
    uint32_t symbols_healed; /* of these, brought by frames because the file lacked them */
    /* With options.may_lack_symbols: the file lacks so many that finding them takes long. The check
     * of frames does it, so the reader gets none without its symbols; but no frame can be appended
     * any more, ids being unknown. */
    bool lacks_symbols;
};
const struct qwp_seglog_recovery *qwp_seglog_recovered(const struct qwp_seglog *log);

/* The slot's dictionary, recovered. Intern into it as writer; persist with the next frame. While it
 * lacks symbols there is no writer: it grows by those that frames bring. */
struct qwp_dict *qwp_seglog_dict(struct qwp_seglog *log);

/* Writer. Room for one frame payload of at least `bytes` (contiguous, mapped, writable):
 * *room says how much may be used in all, which is at least `bytes` and as much as the segment
 * still has, at most `bytes_max`. One reservation at a time: publish or abandon it before the next.
 */
QWP_MUST_USE enum qwp_result qwp_seglog_reserve(struct qwp_seglog *log, size_t bytes,
                                                size_t bytes_max, unsigned char **at, size_t *room,
                                                struct qwp_error *err);
/* Appends the dictionary's symbols not yet in its file as one chunk (a no-op without new ones).
 * Call before the publish of the frame whose delta carries them. On failure (QWP_AGAIN, QWP_IO)
 * nothing that uses them may be published; a later call tries again. */
QWP_MUST_USE enum qwp_result qwp_seglog_persist_dict(struct qwp_seglog *log, struct qwp_error *err);
/* The first `len` bytes (> 0) of the reservation are the frame: stores its length and computes its
 * CRC. Nothing is published. `touched` (>= len): how far the reservation may have been written;
 * where other clients append without looking, what lies between is zeroed. *witness (NULL:
 * not wanted) tells this frame from others that might get its FSN; see qwp_cursors.h. */
void qwp_seglog_finish(struct qwp_seglog *log, size_t len, size_t touched, uint32_t *witness);
/* Publishes the finished reservation as the next frame, CRC last, and returns its FSN. */
uint64_t qwp_seglog_publish(struct qwp_seglog *log);
/* FSN that the next publish will get. */
uint64_t qwp_seglog_next_fsn(const struct qwp_seglog *log);
/* Gives the reservation up, finished or not; `touched` as above. No-op without one. */
void qwp_seglog_abandon(struct qwp_seglog *log, size_t touched);

/* Reader. Where the sender stands; plain data, starts at the first unacknowledged frame. */
struct qwp_seglog_cursor {
    uint64_t fsn;        /* of the frame that next() will give */
    const void *segment; /* the log's; NULL: find by fsn */
    uint64_t off;
};
struct qwp_frame {
    uint64_t fsn;
    const unsigned char *payload; /* borrowed until acknowledged */
    size_t len;
};
/* QWP_AGAIN: nothing published beyond the cursor, or nothing that has been checked: the keeper has
 * to run then, see wants_check(). */
QWP_MUST_USE enum qwp_result
qwp_seglog_next(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor, struct qwp_frame *frame);
/* Puts the cursor at the first frame that is not acknowledged. */
void qwp_seglog_rewind(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor);
/* Every frame up to and including fsn is settled. Never goes back; beyond what next() has given is
 * our bug. */
void qwp_seglog_ack(struct qwp_seglog *log, uint64_t fsn);
/* Goes on behind damaged frames when these have been set aside; acked_count has moved then. next()
 * does it too. */
bool qwp_seglog_resume(struct qwp_seglog *log);

/* Any thread. Counts, not FSNs: frames published and acknowledged over the slot's life, so the
 * first unacknowledged frame has FSN acked_count. */
uint64_t qwp_seglog_published_count(const struct qwp_seglog *log);
uint64_t qwp_seglog_acked_count(const struct qwp_seglog *log);
struct qwp_seglog_stats {
    uint64_t bytes_total;     /* charged to the budget */
    uint64_t bytes_total_max; /* the budget */
    uint64_t bytes_waiting;   /* payload bytes published and not acknowledged; of those that are
                                 not checked yet: at most */
    uint32_t segments_active, segments_sealed, segments_spare;
    uint64_t rotations, rotations_without_spare, recycled; /* since open */
    uint64_t failures;         /* keeper's steps that failed and are tried again, since open */
    uint64_t sync_failures;    /* of these and others: a sync failed, since open */
    uint64_t synced_count;     /* frames below it are on disk for certain (PERIODIC; else 0) */
    uint64_t unsynced_count;   /* published beyond those (PERIODIC; else 0) */
    uint32_t segments_suspect; /* of the sealed and active ones: a sync of them failed */
};
void qwp_seglog_stats(const struct qwp_seglog *log, struct qwp_seglog_stats *out);

/* Keeper. One bounded step (<= 200 us of its own work where the system calls allow): spares, trim,
 * recycling in 64 KiB steps, syncs, watermark. *more: call again soon; *next_ns: when something is
 * due by time (QWP_NEVER_NS: nothing until publish or ack move, or until the operation that was
 * passed to options.slow is done). */
void qwp_seglog_maintain(struct qwp_seglog *log, int64_t now_ns, bool *more, int64_t *next_ns);
/* Keeper. Whether all that it has to do can be done now. */
enum qwp_keeper_state {
    QWP_KEEPER_WELL = 0,
    QWP_KEEPER_NO_SPARE = 1, /* spares cannot be made: no loss before intake needs one */
    QWP_KEEPER_FAILING = 2,  /* a sync, or what frees space, fails */
};
enum qwp_keeper_state qwp_seglog_keeper_state(const struct qwp_seglog *log);
/* Keeper. What failed the last time, in a step or in a sync; "" before the first. */
const struct qwp_error *qwp_seglog_keeper_error(const struct qwp_seglog *log);
/* Keeper. The reader waits for frames to be checked, and nobody is at it: maintain() is due. */
bool qwp_seglog_wants_check(const struct qwp_seglog *log);
/* Damage that was found since open. */
struct qwp_seglog_damage {
    char text[QWP_ERROR_TEXT_BYTES]; /* one line for the log of the program */
    uint64_t frames;                 /* that are not delivered */
    bool
        is_settled; /* they have been set aside; else they will be, once those before are settled */
    uint32_t files_set_aside;
};
/* Keeper. True: there is news of it, at most twice. */
bool qwp_seglog_take_damage(struct qwp_seglog *log, struct qwp_seglog_damage *damage);
/* Keeper. The writer will append no more: spares go, and no new ones are made. */
void qwp_seglog_retire(struct qwp_seglog *log);
/* Keeper and reader, with the writer gone, and quiet. Frees the dictionary's memory,
 * qwp_seglog_dict() is NULL then; and reads it again from its file, which has all that the frames
 * need, or will be given. QWP_IO, QWP_NOMEM. */
void qwp_seglog_dict_release(struct qwp_seglog *log);
QWP_MUST_USE enum qwp_result qwp_seglog_dict_load(struct qwp_seglog *log, struct qwp_error *err);
/* Keeper. Nothing is under way in options.slow and options.reading. */
bool qwp_seglog_is_quiet(const struct qwp_seglog *log);
/* Writes the watermark and, with PERIODIC, syncs everything now: for a shutdown. */
QWP_MUST_USE enum qwp_result qwp_seglog_flush(struct qwp_seglog *log, struct qwp_error *err);

#endif

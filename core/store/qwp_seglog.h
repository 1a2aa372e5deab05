/* qwp_seglog: the segment log of one slot: frames appended by intake, read by the sender, trimmed
 * when acknowledged. Files as on the store-and-forward page.
 *
 * Threads:  three roles, each one thread at a time: writer (reserve, publish, abandon), reader
 *           (next, ack), keeper (maintain). sync[seglog.published], sync[seglog.acked].
 * Progress: reserve/publish make no system call while a spare is ready; next() never does.
 * Crash:    a published frame survives every process; what was reserved and not published is
 * nothing. Errors:   QWP_AGAIN from reserve is back-pressure (budget) or a store that cannot be
 * written now: leave the rows in their rings and try again. */
#ifndef QWP_SEGLOG_H
#define QWP_SEGLOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/store/qwp_dict.h"

struct qwp_seglog;

enum qwp_durability {
    QWP_DURABILITY_MEMORY = 0,   /* survives every process, not the host */
    QWP_DURABILITY_PERIODIC = 1, /* synced every sync_interval_ns */
};

/* Strings are borrowed for the call. */
struct qwp_seglog_options {
    const char *dir;          /* the slot's directory, made if absent (its parent must exist) */
    uint64_t segment_bytes;   /* 64 KiB .. 1 GiB; a larger frame gets a segment of its own */
    uint64_t total_bytes_max; /* budget: active, sealed, spare and retained segments */
    enum qwp_durability durability;
    int64_t sync_interval_ns;
    bool payload_crc;     /* false only where the files never outlive the host (tmpfs) */
    uint32_t symbols_max; /* dictionary bounds */
    uint64_t symbol_bytes_max;
};

/* Locks the slot, recovers it (frames, manifest, watermark, dictionary), readies a spare.
 * QWP_AGAIN: another process holds the slot (err names it). QWP_CORRUPT: cannot be opened; err
 * names the file and the way out. */
QWP_MUST_USE enum qwp_result qwp_seglog_open(struct qwp_seglog **out,
                                             const struct qwp_seglog_options *options,
                                             struct qwp_error *err);
void qwp_seglog_close(struct qwp_seglog *log); /* keeps everything on disk; NULL is fine */

/* The slot's dictionary, recovered. Intern into it as writer; persist with the next frame. */
struct qwp_dict *qwp_seglog_dict(struct qwp_seglog *log);

/* Writer. Room for one frame payload of at least `bytes` (contiguous, mapped, writable): *room says
 * how much may be used in all, which is at least `bytes` and as much as the segment still has, at
 * most `bytes_max`. One reservation at a time; a new one replaces it. */
QWP_MUST_USE enum qwp_result qwp_seglog_reserve(struct qwp_seglog *log, size_t bytes,
                                                size_t bytes_max, unsigned char **at, size_t *room,
                                                struct qwp_error *err);
/* Appends the dictionary's symbols not yet in its file as one chunk (a no-op without new ones).
 * Call before the publish of the frame whose delta carries them. On failure nothing may be
 * published. */
QWP_MUST_USE enum qwp_result qwp_seglog_persist_dict(struct qwp_seglog *log, struct qwp_error *err);
/* Publishes the first `len` bytes of the reservation as the next frame: length and payload, CRC
 * last. */
void qwp_seglog_publish(struct qwp_seglog *log, size_t len, uint64_t *fsn);
/* FSN that the next publish will get. */
uint64_t qwp_seglog_next_fsn(const struct qwp_seglog *log);
void qwp_seglog_abandon(struct qwp_seglog *log);

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
/* QWP_AGAIN: nothing published beyond the cursor. */
QWP_MUST_USE enum qwp_result
qwp_seglog_next(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor, struct qwp_frame *frame);
/* Puts the cursor at the first frame that is not acknowledged. */
void qwp_seglog_rewind(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor);
/* Every frame up to and including fsn is settled. Never goes back; beyond published is our bug. */
void qwp_seglog_ack(struct qwp_seglog *log, uint64_t fsn);

/* Any thread. Counts, not FSNs: frames published and acknowledged over the slot's life, so the
 * first unacknowledged frame has FSN acked_count. */
uint64_t qwp_seglog_published_count(const struct qwp_seglog *log);
uint64_t qwp_seglog_acked_count(const struct qwp_seglog *log);
struct qwp_seglog_stats {
    uint64_t bytes_total;   /* charged to the budget */
    uint64_t bytes_waiting; /* payload bytes published and not acknowledged */
    uint32_t segments_active, segments_sealed, segments_spare;
    uint64_t rotations, rotations_without_spare, recycled;
};
void qwp_seglog_stats(const struct qwp_seglog *log, struct qwp_seglog_stats *out);

/* Keeper. One bounded step (<= 200 us of its own work where the system calls allow): spares, trim,
 * recycling in 64 KiB steps, syncs, watermark. *more: call again soon; *next_ns: when something is
 * due by time (QWP_NEVER_NS: nothing until publish or ack move). */
void qwp_seglog_maintain(struct qwp_seglog *log, int64_t now_ns, bool *more, int64_t *next_ns);
/* Writes the watermark and, with PERIODIC, syncs everything now: for a shutdown. */
QWP_MUST_USE enum qwp_result qwp_seglog_flush(struct qwp_seglog *log, struct qwp_error *err);

#endif

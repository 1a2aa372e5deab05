/* qwp_segment: one .sfa file: made in small steps, scanned with plain reads, mapped, zeroed.
 *
 * Threads: one at a time; how the log's roles share a segment stands with each field.
 * Trust:   scan() walks as the format says and believes a frame whose length and CRC are right. */
#ifndef QWP_SEGMENT_H
#define QWP_SEGMENT_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/qwp_error.h"
#include "core/qwp_sys.h"
#include "core/store/qwp_store_layout.h"

struct qwp_segment {
    /* const once the segment is handed on */
    unsigned char *map; /* the whole file */
    uint64_t bytes;     /* of the file */
    bool light;         /* QWP_SEGMENT_LIGHT */
    char name[QWP_STORE_NAME_BYTES];
    /* writer: the log's writer, until it links `next`. reader: keeper, reader after that. */
    uint64_t base;
    uint64_t end_off; /* behind the last frame */
    /* writer: the log's writer. reader: keeper. relaxed, a hint: end_off of some moments ago. */
    _Atomic uint64_t append_off;
    /* writer: the log's writer, once. readers: reader, keeper. sync[seglog.next] */
    _Atomic(struct qwp_segment *) next;
    /* keeper's (the writer's while it makes one itself) */
    int fd;              /* -1: closed, nothing left to sync */
    uint64_t ready_off;  /* making or zeroing has come so far */
    uint64_t window_off; /* pages up to it are there and writable */
    bool suspect;        /* a sync of it failed: never claimed to be on disk */
    bool unchecked; /* sealed before the log was opened and not read yet: its frames are as many
                       as its successor's base says, or it is damaged; end_off is its size */
    bool aside;     /* its file has been renamed: only the mapping is left */
};

/* What scan() found. */
struct qwp_scan {
    uint64_t bytes; /* of the file */
    uint64_t base;
    uint8_t flags;
    uint64_t frame_count;
    uint64_t end_off;       /* behind the last good frame */
    uint64_t payload_bytes; /* of the good frames */
    bool torn;              /* something other than zeros follows (its first 8 bytes count) */
    bool open;              /* torn, but by a frame that was never published: it has no CRC yet */
    bool header_bad;        /* magic, version, flags or base: nothing else is set */
    bool unchecked;         /* by look(): frames seem to follow; none was read */
};
/* Called for each good frame in order; another result than QWP_OK ends the scan with it. `payload`
 * is borrowed for the call. */
typedef enum qwp_result (*qwp_scan_frame_fn)(void *owner, uint64_t fsn,
                                             const unsigned char *payload, size_t len);

/* Reads the file through `fd`. QWP_IO: a read failed. QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_segment_scan(const struct qwp_sys *sys, int fd,
                                              struct qwp_scan *scan, qwp_scan_frame_fn on_frame,
                                              void *owner);
/* Reads only the header and what stands where the first frame would: if that may be one, the scan
 * is `unchecked`; else it is what scan() makes of it, which is then soon done. */
QWP_MUST_USE enum qwp_result qwp_segment_look(const struct qwp_sys *sys, int fd,
                                              struct qwp_scan *scan);
/* Goes on with a scan of a good header where it has come to, for at least a frame and no longer
 * than `bytes_max` takes. *ended: that was the last good one. After a failure it may be called
 * again. */
QWP_MUST_USE enum qwp_result qwp_segment_scan_on(const struct qwp_sys *sys, int fd,
                                                 struct qwp_scan *scan, uint64_t bytes_max,
                                                 qwp_scan_frame_fn on_frame, void *owner,
                                                 bool *ended);

/* The CRC field of a frame. */
uint32_t qwp_frame_crc(bool light, const unsigned char *payload, uint32_t len, uint64_t fsn);

void qwp_segment_put_header(unsigned char *map, uint8_t flags, uint64_t base, int64_t now_us);

#endif

/* qwp_make: how a segment becomes ready for use, step by step: a new one, or one that was
 * acknowledged and is used again.
 *
 *   new       open "<name>.new", allocate, map, populate, header, rename
 *   recycled  rename to "<name>.new", zero (of a light one only what a scan would look at), header,
 *             rename
 *
 * So no client ever sees a half-made segment. The header of a ready one carries a base that no
 * frame will have; the writer puts the right one when it takes it. Nothing is synced here: that is
 * due when the segment is in use and before the manifest on disk names it.
 *
 * Threads:  one at a time: the keeper, or the writer that makes one for itself.
 * Progress: each step is bounded; slow ones are handed out as an operation. */
#ifndef QWP_MAKE_H
#define QWP_MAKE_H

#include "core/store/qwp_segment.h"
#include "core/store/qwp_slow.h"

#define QWP_SPARE_BASE UINT64_C(0x7fffffffffffffff) /* of a segment that is not in use yet */

enum {
    QWP_MAKE_ZERO_STEP_BYTES = 64 * 1024,
    /* How far ahead of the appends the pages of a file on a disk are made writable: at the first
     * store the file system has work to do [some 2 us a page; 25 on a virtual machine that came
     * to rest], which the writer is spared. All of the segment would be dirty at once, written
     * back, and protected again. In memory a spare has all its pages; one that the writer had to
     * make for itself, as the first, gets them like this. */
    QWP_WINDOW_BYTES = 256 * 1024,
};

/* Where segments live. */
struct qwp_make_place {
    const struct qwp_sys *sys;
    int dir_fd;
    bool durable;  /* files on a disk: the pages of a spare are made writable a window ahead */
    bool populate; /* worth the time now */
    uint64_t step_bytes; /* of allocating and populating; 0: not cut */
};

enum qwp_make_step {
    QWP_MAKE_IDLE = 0,
    QWP_MAKE_ALLOCATE,
    QWP_MAKE_MAP,
    QWP_MAKE_POPULATE,
    QWP_MAKE_POPULATE_WINDOW,
    QWP_MAKE_ZERO,
    QWP_MAKE_HEADER,
    QWP_MAKE_RENAME,
    QWP_MAKE_READY,
};

struct qwp_make {
    struct qwp_segment *segment; /* owned until taken */
    enum qwp_make_step step;
    uint8_t flags;
    uint64_t old_end_off;  /* how far a recycled one has to be zeroed */
    struct qwp_slow_op op; /* of the present step */
    bool renamed;          /* the file has its final name */
    bool op_out;           /* handed out, result not looked at yet */
    int error;             /* of the step that failed */
    const char *what;      /* ditto: "reserve space for", ... */
};

/* Starts a new one; `number` names the file. On failure nothing is left. QWP_IO, QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_make_new(struct qwp_make *make, const struct qwp_make_place *place,
                                          uint64_t number, uint64_t bytes, uint8_t flags,
                                          struct qwp_error *err);
/* Starts on an acknowledged segment, which it takes. After a failure `segment` is the caller's
 * again and as it was. */
QWP_MUST_USE enum qwp_result qwp_make_again(struct qwp_make *make,
                                            const struct qwp_make_place *place,
                                            struct qwp_segment *segment, uint8_t flags,
                                            struct qwp_error *err);
/* One step. Returns QWP_OK when the segment is ready (take it from make->segment), QWP_AGAIN when
 * there is more: with make->op_out the caller runs make->op first. QWP_IO, QWP_NOMEM: failed, see
 * err; then qwp_make_undo(). */
QWP_MUST_USE enum qwp_result
qwp_make_step(struct qwp_make *make, const struct qwp_make_place *place, struct qwp_error *err);
/* A segment file that is of no use and could not be removed: it stays counted, and no other is made
 * before it is gone. */
struct qwp_leftover {
    char name[QWP_STORE_NAME_BYTES + 8]; /* "": none */
    uint64_t bytes;
};

/* Throws the half-made segment away, file and all. Returns the bytes to uncharge: the segment's, or
 * 0 and the file is in *leftover, which was empty. */
QWP_MUST_USE uint64_t qwp_make_undo(struct qwp_make *make, const struct qwp_make_place *place,
                                    struct qwp_leftover *leftover);
/* Removes the segment's file and frees it; the same. */
QWP_MUST_USE uint64_t qwp_segment_remove(struct qwp_segment *segment,
                                         const struct qwp_make_place *place,
                                         struct qwp_leftover *leftover);
/* Tries again. *freed: bytes to uncharge (0 without one). QWP_IO: still there. */
QWP_MUST_USE enum qwp_result qwp_leftover_remove(struct qwp_leftover *leftover,
                                                 const struct qwp_make_place *place,
                                                 uint64_t *freed, struct qwp_error *err);

/* The operation that makes the window from `from` on writable, and notes it in window_off. */
struct qwp_slow_op qwp_segment_window(struct qwp_segment *segment, uint64_t from);

/* Unmaps, closes and frees; the file stays. NULL is fine. */
void qwp_segment_free(struct qwp_segment *segment, const struct qwp_sys *sys);

#endif

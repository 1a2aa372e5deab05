/* qwp_rendezvous: the instance directory <dir>/<name>/ where producers and sidecar meet.
 *
 *   control                     the sidecar's control file (qwp_control_layout.h)
 *   bell                        FIFO, only when the bell is one
 *   <name>-<pid>-<hex>.ring     one per producer (qwp_ring_layout.h)
 *   .tmp-...                    a ring or control file in the making
 *   .sidecar/                   0700: lock, cursors, segments of memory mode
 *
 * Mode 03770 (sticky, setgid), made by whoever comes first. All trust rests in this directory,
 * which is opened without following a link: not world-writable, sticky, and its owner is root,
 * ourselves, or someone who gave it to a group of ours. <dir> itself may be anything (a volume of a
 * pod is often 0777); when we make it, it gets 01777 as /dev/shm has. */
#ifndef QWP_RENDEZVOUS_H
#define QWP_RENDEZVOUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "ipc/qwp_control_layout.h"

#define QWP_RENDEZVOUS_DIR_DEFAULT  "/dev/shm/qwp"
#define QWP_RENDEZVOUS_NAME_DEFAULT "default"
#define QWP_RING_SUFFIX             ".ring"

/* Makes (or checks) <dir> and <dir>/<name> and opens the latter. `dir`, `name` NULL: the defaults.
 * Names hold letters, digits, '-', '_', '.', and do not begin with a dot. QWP_INVALID with path,
 * mode and ids when the directory is not sticky, world-writable or has a strange owner. */
QWP_MUST_USE enum qwp_result qwp_rendezvous_open(const char *dir, const char *name, int *dir_fd,
                                                 struct qwp_error *err);
/* What a sidecar may say about the directory beyond the rules above. */
struct qwp_rendezvous_trust {
    /* Take one that the checks refuse: QWP_OK, and err's text says what is wrong with it (empty:
     * nothing). Not a link, though. */
    bool any;
    /* May own it, too. */
    const uint32_t *uids;
    uint32_t uid_count;
    /* Its members use the directory: it gets this group where we own it, and where a member made it
     * that is no stranger. */
    bool has_group;
    uint32_t group;
};
QWP_MUST_USE enum qwp_result qwp_rendezvous_open_as(const char *dir, const char *name,
                                                    const struct qwp_rendezvous_trust *trust,
                                                    int *dir_fd, struct qwp_error *err);

/* ---- sidecar ---- */

/* Takes `.sidecar/lock` for life: QWP_AGAIN when another sidecar holds it (err names its PID). Sets
 * *private_fd to `.sidecar/`. */
QWP_MUST_USE enum qwp_result qwp_rendezvous_claim(int dir_fd, int *private_fd, int *lock_fd,
                                                  struct qwp_error *err);

/* Calls fn for the name of each ring file now there; QWP_IO when the directory cannot be read. */
typedef void (*qwp_ring_name_fn)(void *owner, const char *file_name);
QWP_MUST_USE enum qwp_result qwp_rendezvous_scan(int dir_fd, qwp_ring_name_fn fn, void *owner,
                                                 struct qwp_error *err);
/* inotify descriptor (non-blocking) for rings that appear (IN_MOVED_TO) and producers that let go
 * (IN_CLOSE_WRITE). QWP_IO when inotify is not to be had: rescan each second instead. */
QWP_MUST_USE enum qwp_result qwp_rendezvous_watch(int dir_fd, int *inotify_fd,
                                                  struct qwp_error *err);
/* Calls fn for each file named in `events` (what read(2) gave), and with NULL when the queue
 * overflowed: rescan. */
void qwp_rendezvous_events(const void *events, size_t len, qwp_ring_name_fn fn, void *owner);
/* Removes temporary files whose maker is dead (no lock on them). */
void qwp_rendezvous_sweep(int dir_fd);
/* For a producer: removes rings of its user that a sidecar of another user drained and emptied,
 * since it may not remove them itself (qwp_ring_remove). */
void qwp_rendezvous_sweep_emptied(int dir_fd);

struct qwp_control {
    struct qwp_control_header *header; /* NULL: closed */
    size_t bytes;
    int fd; /* holds the write lock (sidecar) */
};
struct qwp_control_options {
    enum qwp_bell_mode bell_mode;
    bool bell_fence;
    uint32_t producers_max;
    uint32_t tables_max; /* shown in `status` */
    uint64_t ring_bytes_max;
};
/* Makes the control file of this life and renames it into place. */
QWP_MUST_USE enum qwp_result qwp_control_create(struct qwp_control *control, int dir_fd,
                                                const struct qwp_control_options *options,
                                                struct qwp_error *err);
/* State GONE, unmaps, gives up the lock. The file stays: producers and `status` may still read it.
 */
void qwp_control_close(struct qwp_control *control);
struct qwp_control_producer *qwp_control_producer_at(const struct qwp_control *control,
                                                     uint32_t index);
struct qwp_control_table *qwp_control_table_at(const struct qwp_control *control, uint32_t index);
struct qwp_control_trouble *qwp_control_trouble_at(const struct qwp_control *control,
                                                   uint32_t index);

/* ---- everyone else ---- */

/* Maps the control file read-only. QWP_AGAIN: there is none; QWP_INVALID: a version we do not know
 * (err names both); QWP_CORRUPT: no control file at all. */
QWP_MUST_USE enum qwp_result qwp_control_map(struct qwp_control *control, int dir_fd,
                                             struct qwp_error *err);
void qwp_control_unmap(struct qwp_control *control);
/* Whether the sidecar of this file lives (F_OFD_GETLK). */
bool qwp_control_is_live(const struct qwp_control *control);

#endif

/* qwp_cursors: exactly once from ring to store: how far each ring's rows are in published frames.
 *
 * A frame and the heads of the rings whose rows it holds cannot be stored in one step. So before a
 * frame is published, intake notes for each ring in it: this frame (slot, FSN, witness) takes the
 * ring up to that position. After a crash the note tells whether the rows beyond `head` are in the
 * store already. The naive form of this loses rows; these rules do not (the simulation in
 * tests/core/test_cursors.c fails without any one of them):
 *
 *   1. A note is valid for the very frame it was written for and no other. So notes above the last
 *      FSN of the log are erased after recovery before the first row is taken, and when a frame is
 *      given up after its notes were written: its FSN will belong to another frame.
 *   2. There are two records for each ring, and a note overwrites the one that is not valid, never
 *      simply the older one: after a frame was given up that would be the valid one.
 *   3. Without a valid note the ring goes on from its published `head`; with one, never below it.
 *
 * Intake, per frame:   reserve, encode, persist_dict, finish(&witness)
 *                      note() for each ring in the frame, with qwp_seglog_next_fsn() and witness
 *                      qwp_seglog_publish(), published(), then move the rings' heads
 *                      or: qwp_seglog_abandon(), abandoned()
 * at start:            open logs and cursors, recovered(), use(), attach() each ring found, sweep()
 *
 * File `cursors` in `.sidecar/`, beside the rings: it lives and dies with them, not with the slot.
 * A ring is known by inode, birth time and the random id in its header, so a note never meets a
 * ring that it was not written for.
 *
 * Threads:  one (intake).
 * Progress: note, published, abandoned: stores into a mapping, no system call.
 * Trust:    identity and position of a ring come from another process; a position is only compared
 *           and stored here. The file is ours; a record whose CRC is wrong is no record.
 * Crash:    at every store, as above. A lost or damaged file costs at most one frame's rows twice.
 */
#ifndef QWP_CURSORS_H
#define QWP_CURSORS_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_sys.h"

enum { QWP_CURSORS_RINGS_MAX = 1024 };

struct qwp_cursors;

struct qwp_cursors_ring {
    unsigned char id[16]; /* from the ring's header */
    uint64_t inode;
    int64_t birth_ns;
};

/* A log as it was recovered: qwp_seglog_recovered(). */
struct qwp_cursors_log {
    unsigned char slot_uuid[16];
    uint64_t next_fsn;
    uint32_t last_witness;
};

/* Makes the file `name` in `dir_fd` if it is absent; one that is damaged starts anew. QWP_IO,
 * QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_cursors_open(struct qwp_cursors **out, const struct qwp_sys *sys,
                                              int dir_fd, const char *name, struct qwp_error *err);
void qwp_cursors_close(struct qwp_cursors *cursors); /* NULL is fine */

/* Rule 1 after recovery, over all slots that hold frames of these rings: notes of frames that none
 * of them holds are erased. Once, before the first attach. */
void qwp_cursors_recovered(struct qwp_cursors *cursors, const struct qwp_cursors_log *logs,
                           size_t count);
/* Notes from now on are for this slot; between frames only. */
void qwp_cursors_use(struct qwp_cursors *cursors, const unsigned char slot_uuid[16]);

/* Finds or makes the ring's entry. *resume_pos: rows before it are in the store; at least `head`,
 * the ring's own published one. *handle: for the calls below. QWP_LIMIT: QWP_CURSORS_RINGS_MAX are
 * attached. */
QWP_MUST_USE enum qwp_result qwp_cursors_attach(struct qwp_cursors *cursors,
                                                const struct qwp_cursors_ring *ring, uint64_t head,
                                                uint32_t *handle, uint64_t *resume_pos);
/* The ring is drained and gone for good. */
void qwp_cursors_detach(struct qwp_cursors *cursors, uint32_t handle);
/* Forgets rings that were not attached: they went while no sidecar ran. After attaching all. */
void qwp_cursors_sweep(struct qwp_cursors *cursors);

/* The frame `fsn`, finished and not yet published, takes the ring up to `position`. At most once a
 * ring and frame. */
void qwp_cursors_note(struct qwp_cursors *cursors, uint32_t handle, uint64_t fsn, uint64_t position,
                      uint32_t witness);
/* The frame of the notes since the last call of either is published... */
void qwp_cursors_published(struct qwp_cursors *cursors);
/* ...or given up. */
void qwp_cursors_abandoned(struct qwp_cursors *cursors);

#endif

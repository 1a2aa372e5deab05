/* qwp_notes: which rows went into which frame, so that an acknowledged frame settles them.
 *
 * At most QWP_NOTES_MAX notes are kept; when they are full, neighbours are merged into the later of
 * the two. So with a long backlog rows are settled late, never early.
 *
 * Threads: its owner's. */
#ifndef QWP_NOTES_H
#define QWP_NOTES_H

#include <stdint.h>

enum { QWP_NOTES_MAX = 256 };

struct qwp_note {
    uint64_t fsn;  /* when this frame is acknowledged ... */
    uint64_t pos;  /* ... everything below this ring position is settled ... */
    uint64_t rows; /* ... which is so many rows more than the note before says */
};

/* A queue, oldest first; zero is empty. */
struct qwp_notes {
    uint32_t first, count;
    struct qwp_note items[QWP_NOTES_MAX];
};

/* `fsn` is not below that of the last note. */
void qwp_notes_add(struct qwp_notes *notes, struct qwp_note note);
/* Takes the notes of frames below acked_count out. Returns their rows and moves *pos, unless there
 * were none. */
uint64_t qwp_notes_settle(struct qwp_notes *notes, uint64_t acked_count, uint64_t *pos);

#endif

/* qwp_roll: whose rows stand in which frame, so that producers can be told when rows are set aside.
 *
 * The last QWP_ROLL_MAX notes are kept, in the order in which the rows stand in their frames. With
 * a longer backlog the oldest are forgotten; who asks for these is told so.
 *
 * Threads: intake's. */
#ifndef QWP_ROLL_H
#define QWP_ROLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { QWP_ROLL_MAX = 64 * 1024 };

struct qwp_roll_note {
    uint64_t fsn;
    const void *table;
    uint32_t source; /* its number */
    uint32_t row_count;
};

struct qwp_roll {
    struct qwp_roll_note *notes; /* a ring; owned */
    uint64_t first, end;         /* grow; from 0 again when none is left */
};

/* False: no memory. */
bool qwp_roll_init(struct qwp_roll *roll);
void qwp_roll_fini(struct qwp_roll *roll);

/* `fsn` is not below that of the last note. */
void qwp_roll_add(struct qwp_roll *roll, struct qwp_roll_note note);
/* Frames below are settled: nobody will ask for them. */
void qwp_roll_settle(struct qwp_roll *roll, uint64_t acked_count);

typedef void (*qwp_roll_fn)(void *owner, uint32_t source, uint64_t row_count);
/* Calls back for the rows first_row .. +row_count of a table in a frame. Returns how many of them
 * are known. */
uint64_t qwp_roll_each(const struct qwp_roll *roll, uint64_t fsn, const void *table,
                       uint64_t first_row, uint64_t row_count, qwp_roll_fn fn, void *owner);

#endif

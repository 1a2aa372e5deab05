/* qwp_blame: which tables are at fault, and what of the frames in the log is done already.
 *
 * A table that nobody complained about is not known here: it is ok.
 *
 *   suspect   rows of it were refused, or lie refused since before the start: they are offered as
 *             the last message, with nothing behind it
 *   blocked   refused for a reason that repeats: its rows are set aside without being offered, but
 *             for one frame each time a probe is due
 *
 * Done is what need not be sent when a frame that is not settled is sent again: the rows of one
 * table up to some row, taken by the server or set aside.
 *
 * Threads: the sender's. */
#ifndef QWP_BLAME_H
#define QWP_BLAME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_shape.h"
#include "ipc/qwp_control_layout.h"

#define QWP_DONE_ALL UINT64_MAX

enum qwp_blame_state { QWP_BLAME_SUSPECT = 1, QWP_BLAME_BLOCKED = 2 };

struct qwp_blame_table {
    char name[QWP_CONTROL_TABLE_NAME_BYTES];
    uint32_t name_len;
    uint64_t hash;
    enum qwp_blame_state state;
    uint8_t status; /* the server's */
    char text[QWP_CONTROL_TEXT_BYTES];
    uint64_t fsn;        /* of the rows that were refused last */
    uint32_t rejections; /* of them, in a row */
    int64_t first_ns;    /* when the first of these was */
    int64_t probe_ns;    /* next probe */
    int64_t probe_interval_ns;
    bool held; /* intake takes no rows of it */
    uint64_t rows_aside;
};

struct qwp_done {
    uint64_t fsn;
    uint64_t hash;        /* of the table's name */
    uint64_t rows;        /* from its first one on; QWP_DONE_ALL */
    uint64_t untold_rows; /* of them, set aside in an earlier life, and intake does not know */
};

struct qwp_blame {
    struct qwp_blame_table *tables;
    size_t table_count, table_room;
    struct qwp_done *done; /* by fsn */
    size_t done_count, done_room;
    uint64_t *split; /* frames that were refused whole and go in parts */
    size_t split_count, split_room;
};

void qwp_blame_fini(struct qwp_blame *blame);

struct qwp_blame_table *qwp_blame_find(const struct qwp_blame *blame, struct qwp_name table,
                                       uint64_t hash);
/* Finds or adds, as a suspect. NULL: no memory. Others may move. */
struct qwp_blame_table *qwp_blame_add(struct qwp_blame *blame, struct qwp_name table,
                                      uint64_t hash);
/* It is ok again. */
void qwp_blame_forget(struct qwp_blame *blame, struct qwp_blame_table *table);

/* Rows of a table of a frame that are done. */
uint64_t qwp_blame_done(const struct qwp_blame *blame, uint64_t fsn, uint64_t hash);
/* False: no memory. Rows only grow. */
bool qwp_blame_set_done(struct qwp_blame *blame, uint64_t fsn, uint64_t hash, uint64_t rows);

/* The same, to be changed; NULL: nothing is. */
struct qwp_done *qwp_blame_find_done(const struct qwp_blame *blame, uint64_t fsn, uint64_t hash);

bool qwp_blame_is_split(const struct qwp_blame *blame, uint64_t fsn);
/* False: it was already, or no memory. */
bool qwp_blame_set_split(struct qwp_blame *blame, uint64_t fsn);

/* Frames below are settled. */
void qwp_blame_settle(struct qwp_blame *blame, uint64_t acked_count);
/* Nothing that a frame has to be looked at for. */
bool qwp_blame_is_clear(const struct qwp_blame *blame);

#endif

/* qwp_reject: what the sender keeps about messages that a server refuses.
 *
 * A table is the unit of blame. A frame that is refused goes again in parts, one table each (first
 * reconnect); the table whose part is refused too is blocked (second reconnect), its rows are set
 * aside, and everyone else goes on. A reason that may pass (retriable) blocks only after
 * max_frame_rejections times over poison_min_escalation_window_millis.
 *
 * Threads: the sender's. */
#ifndef QWP_REJECT_H
#define QWP_REJECT_H

#include "core/wire/qwp_recode.h"
#include "sidecar/qwp_blame.h"
#include "sidecar/qwp_notices.h"
#include "sidecar/qwp_rejected.h"
#include "sidecar/qwp_split.h"
#include "transport/qwp_loop.h"

/* What is done once the connection that brought the refusal is down. */
enum qwp_reject_next {
    QWP_REJECT_NOTHING = 0, /* there was none */
    QWP_REJECT_AT_ONCE,     /* connect again, outside the backoff */
    QWP_REJECT_LATER,       /* after the backoff */
    QWP_REJECT_ELSEWHERE,   /* at another endpoint */
    QWP_REJECT_STOP,        /* asked for: nothing is sent any more */
};

/* A message of a frame that goes in parts. */
struct qwp_plan_item {
    uint32_t table; /* index into split.tables, or one of the following */
    bool last;      /* nothing behind it until it is answered */
};
#define QWP_PLAN_REST  UINT32_MAX       /* all tables that nothing is held against */
#define QWP_PLAN_EMPTY (UINT32_MAX - 1) /* nothing is left to send: says where the frame ends */
#define QWP_PLAN_WHOLE (UINT32_MAX - 2) /* the frame as it is: it cannot be taken apart */

struct qwp_plan {
    bool active;
    bool hold;    /* until all that is on its way is answered */
    bool careful; /* something may be refused: hold at the end, defer no commit */
    uint64_t fsn;
    const unsigned char *frame;
    size_t len;
    struct qwp_plan_item *items;
    uint32_t item_count, item_room, next;
    bool *in_rest; /* by table */
    uint64_t row;  /* of the table whose turn it is: where its next message begins */
    /* The next message, kept while the session has no room. */
    struct qwp_bytes out;
    bool out_ready;
    uint64_t out_rows_end;
};

struct qwp_reject {
    struct qwp_blame blame;
    struct qwp_rejected folder;
    struct qwp_split split; /* of the plan's frame */
    struct qwp_plan plan;
    enum qwp_reject_next next;
    bool quiet; /* the next connection is one of those that follow a refusal: no line in the log */
    uint32_t gaps;            /* DICTIONARY_GAP in a row */
    uint32_t blocked_in_vain; /* blocked for a reason that may pass, and nothing was taken since */

    /* The largest message: what the server says, and what it was seen not to take. */
    size_t announced_bytes;
    size_t learned_bytes;   /* 0: nothing learned */
    uint64_t learned_taken; /* messages taken since */
    /* A row that was refused for its size all by itself. */
    uint64_t too_big_fsn, too_big_hash, too_big_row;
    bool has_too_big;
    bool single_row;        /* on its way: one row, larger than what was learned */
    uint64_t single_row_at; /* which one of its table it is */

    uint64_t settle_end; /* frames that are settled once the folder could be synced; 0: none */
    int64_t retry_ns;    /* setting aside failed: not before */
    struct qwp_op timer;
    bool alarm;   /* the failure was told */
    int watch_fd; /* inotify on the folder; -1: none */
    struct qwp_op watch_op;
};

#endif

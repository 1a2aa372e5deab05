/* qwp_intake: the worker that takes rows out of the rings and appends frames to the log.
 *
 *   qwp_intake.c             its duty cycle: looks at rings, makes frames, settles acknowledgements
 *   qwp_intake_rings.c       rings that come and go
 *   qwp_intake_news.c        what the sender has to say of refused rows
 *   qwp_intake_generation.c  from one generation of the store to the next
 *
 * Threads:  its own thread's, with bell and control file; shares with the sender only what the log
 *           does and `message_bytes_max`.
 * Progress: do_work() takes at most QWP_INTAKE_STEP_ROWS rows and makes no system call while the
 *           log has a spare segment and nobody waits.
 * Trust:    a faulty ring is detached with its reason; the frame in the making is built again
 *           without it.
 * Crash:    a row leaves its ring when the frame it stands in is published. */
#ifndef QWP_INTAKE_H
#define QWP_INTAKE_H

#include <stdatomic.h>

#include "core/store/qwp_generations.h"
#include "ipc/qwp_bell.h"
#include "sidecar/qwp_framer.h"
#include "sidecar/qwp_latency.h"
#include "sidecar/qwp_notices.h"
#include "sidecar/qwp_roll.h"
#include "sidecar/qwp_writers.h"

enum {
    QWP_INTAKE_STEP_ROWS = 4096,
    QWP_INTAKE_VISIT_NS = 2000, /* rings that had rows are looked at again no sooner */
};

struct qwp_intake_options {
    int64_t linger_ns;       /* 0: at once */
    uint64_t batch_rows;     /* due when so many rows may wait ... */
    uint64_t batch_bytes;    /* ... or so many bytes of ring; also the largest frame */
    uint64_t frame_rows_max; /* a unit may go beyond */
    uint64_t segment_bytes;
    unsigned encode_flags; /* QWP_ENCODE_* */
    uint32_t producers_max;
    uint32_t tables_max;
    struct qwp_ring_limits ring_limits;
    /* A generation of the dictionary ends when it has so much ... */
    uint32_t generation_symbols;
    uint64_t generation_bytes;
    uint32_t producer_symbols; /* ... of which a producer may bring so much */
    uint64_t producer_symbol_bytes;
    struct qwp_notices *notices; /* kept; from the sender */
    struct qwp_writers *writers; /* kept; NULL: nobody asks */
};

struct qwp_intake {
    struct qwp_intake_options options;
    int dir_fd;                    /* borrowed */
    struct qwp_control *control;   /* borrowed */
    struct qwp_bell_rx *bell;      /* borrowed */
    struct qwp_generations *store; /* borrowed */
    struct qwp_seglog *log;        /* the present generation's */
    struct qwp_cursors *cursors;   /* borrowed */
    struct qwp_dict *dict;         /* the log's */
    int64_t generation_ns;         /* when that was moved to */
    struct qwp_schema schema;
    struct qwp_framer *framer;
    struct qwp_source **sources;
    uint32_t source_count;
    uint32_t next_source;     /* whose turn it is */
    uint32_t tables_shown;    /* entries used in the control file */
    uint32_t strangers;       /* attached rings of other users */
    uint32_t turns_left;      /* sources not yet asked in this frame */
    unsigned char *def_entry; /* scratch */
    bool frame_open;
    bool swept;                       /* notes of rings that are gone were forgotten */
    bool more_due;                    /* the last frame ended before everything seen was taken */
    bool rings_wait;                  /* for a place among producers_max */
    bool closing;                     /* rings are not polled any more */
    bool stalled;                     /* the log gave no room */
    enum qwp_store_state store_state; /* as reported; ends when a second goes by without a stall */
    int64_t stall_ns;                 /* the last one */
    bool lingering;                   /* rows wait for their time */
    bool figures_changed;             /* the control page wants an update */
    int64_t first_seen_ns;            /* when the rows now waiting were first seen; 0: none */
    int64_t next_visit_ns;
    int64_t look_ns;      /* when closed rings are looked at again; 0: there are none */
    int64_t look_step_ns; /* how long after that once more */
    int64_t retry_ns;     /* after a stall */
    uint32_t framed_symbols;
    uint64_t acked_seen;
    uint32_t next_number;    /* of the next source */
    struct qwp_roll roll;    /* whose rows stand in which frame */
    uint64_t rows_aside;     /* of frames that are not settled yet */
    struct qwp_notes frames; /* rows of each frame; their positions mean nothing */
    struct qwp_latency latency;
    /* writer: sender. reader: intake. Relaxed: a frame built a moment too large is split later. */
    _Atomic size_t message_bytes_max;
};

QWP_MUST_USE enum qwp_result qwp_intake_init(struct qwp_intake *intake,
                                             const struct qwp_intake_options *options, int dir_fd,
                                             struct qwp_control *control, struct qwp_bell_rx *bell,
                                             struct qwp_generations *store,
                                             struct qwp_cursors *cursors, struct qwp_error *err);
void qwp_intake_fini(struct qwp_intake *intake);

/* A ring file appeared, or its producer let go of it: attach, or drain and remove. NULL: rescan
 * all. Logs what it decides. */
void qwp_intake_ring_event(struct qwp_intake *intake, const char *file_name);

/* One duty cycle. True: something was done, call again. *next_ns: when there is something to do by
 * time (QWP_NEVER_NS: not before the bell). */
bool qwp_intake_do_work(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns);

/* What the acknowledgements since the last call settle, for when no duty cycle runs. True:
 * something. */
bool qwp_intake_settle(struct qwp_intake *intake, int64_t now_ns);
/* Rows wait for room in the log, which may be there by now. */
bool qwp_intake_may_retry(const struct qwp_intake *intake);
/* Whether a ring belongs to another user than ours. */
bool qwp_intake_has_strangers(const struct qwp_intake *intake);

/* After parking: whether a ring has rows that we have not seen, so that sleeping would lose them;
 * if lingering, enough of them not to wait for more.
 */
bool qwp_intake_has_news(struct qwp_intake *intake);
/* Whether acknowledgements are waited for: by a producer, or for room in the store. */
bool qwp_intake_wants_answers(const struct qwp_intake *intake);

/* qwp_intake_generation.c, between frames: moves on to the next generation of the store when that
 * is due. False: no rows may be taken now. */
bool qwp_intake_turn(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns);

/* Figures to the control file. */
void qwp_intake_report(struct qwp_intake *intake);

/* Shutdown: what is published now will be taken without lingering; later rows stay in the rings. */
void qwp_intake_close_rings(struct qwp_intake *intake);
/* True when everything that was published when the rings were closed is stored. */
bool qwp_intake_is_drained(const struct qwp_intake *intake);

/* ---- for its own files ---- */

/* Drained rings whose producer is gone leave. Not while a frame is open: rows point into them. */
bool qwp_intake_orphans_remove(struct qwp_intake *intake);
/* Looks again whether producers who closed their ring are gone; at growing intervals, not for ever:
 * others may have closed the file of a producer who lives. */
void qwp_intake_orphans_look(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns);

/* Notes whose rows stand in the frame that was just published. */
void qwp_intake_enrol(struct qwp_intake *intake, uint64_t fsn);
/* New tables of the source from `first_table` on. */
void qwp_intake_note_writers(struct qwp_intake *intake, const struct qwp_source *source,
                             uint32_t first_table);
/* What the sender has to say. True: something. */
bool qwp_intake_hear(struct qwp_intake *intake);

#endif

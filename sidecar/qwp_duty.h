/* qwp_duty: the life of one thread: its workers' duty cycles, its event loop, and its sleep.
 *
 * `threading=shared`: one duty with intake, sender and keeper. `dedicated`: one with intake, one
 * with sender and keeper; each wakes the other's loop when it has made work for it.
 *
 * Progress: with nothing to do a parked duty sleeps until the bell, the network or a deadline; a
 * spinning one never sleeps. */
#ifndef QWP_DUTY_H
#define QWP_DUTY_H

#include <stdatomic.h>

#include "sidecar/qwp_housework.h"
#include "sidecar/qwp_intake.h"
#include "sidecar/qwp_notify.h"
#include "sidecar/qwp_sender.h"
#include "transport/qwp_loop.h"

/* What the duties of a process share about its end. */
struct qwp_ending {
    _Atomic int signals;    /* writer: signal handler; so many stops were asked for */
    _Atomic bool hangup;    /* writer: signal handler; SIGHUP: try again now, with fresh secrets */
    _Atomic bool finish;    /* writer: intake's duty; everyone leaves */
    _Atomic bool no_server; /* writer: sender's duty; the first connection is not to be had */
    int64_t grace_ns;       /* how long the end may wait for acknowledgements */
    _Atomic int64_t end_ns; /* writer: intake's duty; when that is over; 0: no stop was asked for */
};

struct qwp_duty {
    /* set by the owner */
    struct qwp_loop *loop;
    struct qwp_generations *store;
    struct qwp_control *control;
    struct qwp_intake *intake;       /* NULL: none here */
    struct qwp_bell_rx *bell;        /* with intake */
    int inotify_fd;                  /* with intake; -1: rescan each second */
    struct qwp_sender *sender;       /* NULL: none here; with it comes the keeper */
    struct qwp_housework *housework; /* the keeper's slow operations */
    struct qwp_housework *reading;   /* and those that read */
    struct qwp_loop *peer;           /* the other duty's loop; NULL: all is here */
    struct qwp_ending *ending;
    struct qwp_notify *notify; /* with intake; NULL: nobody to tell */
    void (*ready)(
        void *owner); /* called by the sender's duty, at the first connection if waited for */
    void *owner;
    bool spin;

    /* own */
    struct qwp_op bell_op;
    struct qwp_op inotify_op;
    bool woken;              /* the bell rang, a ring came or went: leave the park */
    int64_t rows_ns;         /* when rows were last stored */
    bool brisk;              /* and they come often */
    int64_t resting_ns;      /* till then answers wait for the next rows; 0: they come as they do */
    bool rested;             /* and have not been taken in since */
    bool tidy;               /* now they are, and keeper and figures have their turn */
    int64_t tidied_ns;       /* when that was decided */
    uint64_t published_seen; /* by the keeper */
    uint64_t acked_seen;
    int64_t keeper_ns;                  /* when it is due by time */
    bool keeper_late;                   /* its turn was put off once */
    enum qwp_keeper_state keeper_state; /* as it was shown */
    bool figures_changed;               /* the keeper's */
    int64_t report_ns;                  /* next figures while busy */
    int64_t rescan_ns;
    int signals_seen;
    bool first_settled; /* there is a first connection, or none is waited for */
    int64_t end_ns;     /* deadline of the shutdown; 0: not asked for */
};

/* Runs until the ending is over. With intake: sees the shutdown through and sets ending->finish. */
void qwp_duty_run(struct qwp_duty *duty);

#endif

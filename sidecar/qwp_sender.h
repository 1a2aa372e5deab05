/* qwp_sender: the worker that carries frames from the log to a server and acknowledgements back.
 *
 * It walks the endpoints, keeps what is in flight, registers the dictionary again after each
 * connect, and replays from the first frame that is not acknowledged. It never gives up.
 *
 * Threads:  that of its loop; shares with intake what the log does and `message_bytes_max`.
 * Progress: do_work() never blocks; names are resolved by a helper thread.
 * Errors:   what goes wrong is logged once an outage and shown in the control file. */
#ifndef QWP_SENDER_H
#define QWP_SENDER_H

#include <stdatomic.h>
#include <stdbool.h>

#include "core/conf/qwp_conf.h"
#include "core/store/qwp_generations.h"
#include "ipc/qwp_control_layout.h"
#include "sidecar/qwp_durable.h"
#include "sidecar/qwp_reject.h"
#include "sidecar/qwp_secrets.h"
#include "transport/qwp_resolve.h"
#include "transport/qwp_session.h"

enum { QWP_SENDER_WINDOW_BYTES = 64 * 1024 * 1024, QWP_SENDER_IN_FLIGHT_MAX = 4096 };

enum qwp_message_kind {
    QWP_MESSAGE_FRAME = 0, /* as it stands in the log, or what it may be sent of at once */
    QWP_MESSAGE_REST,      /* of a frame in parts: all tables that nothing is held against */
    QWP_MESSAGE_PART,      /* of a frame in parts: rows of one table */
    QWP_MESSAGE_EMPTY,     /* no rows */
    QWP_MESSAGE_CATCH_UP,
};

/* A message that is not acknowledged yet. Wire sequences are dense, so its place in the queue says
 * which. */
struct qwp_in_flight {
    uint64_t fsn_end; /* frames below are complete with it; 0: it completes none */
    size_t len;
    unsigned char *owned; /* a message of the sender's own making, or NULL */
    enum qwp_message_kind kind;
    uint64_t fsn;        /* of the frame */
    uint64_t table_hash; /* PART: whose rows */
    uint64_t rows_end;   /* PART: of these, the rows below are in it or were before */
};

enum qwp_sender_state {
    QWP_SENDER_WAITING = 0, /* for the time of the next attempt */
    QWP_SENDER_RESOLVING,
    QWP_SENDER_CONNECTING,
    QWP_SENDER_UP,
    QWP_SENDER_CLOSING,
    QWP_SENDER_STOPPED, /* on_*_error=terminal: everything is kept, nothing sent; see retry_now() */
};

struct qwp_sender_options {
    struct qwp_loop *loop;
    const struct qwp_conf *conf;         /* kept */
    struct qwp_seglog *log;              /* kept; with generations the reader's, which changes */
    struct qwp_generations *generations; /* kept; NULL: that log is all */
    struct qwp_control_header *page;     /* kept */
    _Atomic size_t *message_bytes_max;   /* intake's */
    const char *rejected_dir;            /* where refused rows go; borrowed for init */
    uint64_t rejected_bytes_max;
    struct qwp_notices *notices;          /* to intake; NULL: there is none */
    struct qwp_control_trouble *troubles; /* for `status`; troubles_max of them */
    uint32_t troubles_max;
    /* Names of the producers of a table, for people; NULL: nobody knows. */
    void (*producers_of)(void *owner, struct qwp_name table, char *text, size_t text_bytes);
    void *producers_owner;
    struct qwp_loop *intake_loop; /* on another thread: woken by acknowledgements; NULL: the same */
};

struct qwp_sender {
    struct qwp_sender_options options;
    struct qwp_session *session;
    struct qwp_session_options session_options; /* borrowed by the session */
    struct qwp_secrets secrets;
    struct qwp_resolver *resolver;
    enum qwp_sender_state state;

    /* where to connect */
    size_t endpoint; /* index of the one being tried */
    size_t tried;    /* endpoints tried in this round */
    bool refused;    /* one of them did not take our credentials: no use in trying often */
    bool acked;      /* this connection has brought an acknowledgement */
    bool retry_now;  /* asked for while an attempt was under way: no backoff after it */
    struct qwp_addresses addresses;
    size_t address;     /* index of the next one */
    int64_t backoff_ns; /* upper bound of the next wait */
    int64_t started_ns;
    uint64_t rounds; /* over all endpoints, without success */
    struct qwp_op timer;
    int64_t attempt_ns; /* when the next attempt is due, or the look-up of a name has failed */
    int64_t look_ns;    /* when files of secrets are looked at, while waiting */
    uint64_t random;    /* state of the jitter */

    bool turning; /* the connection is being ended, for the next generation */

    /* what is on its way */
    struct qwp_seglog_cursor cursor;
    struct qwp_in_flight in_flight[QWP_SENDER_IN_FLIGHT_MAX]; /* ring, by wire sequence */
    int64_t first_sequence;                                   /* of the oldest in flight */
    int64_t next_sequence;
    size_t bytes_in_flight;
    uint64_t sent_fsn_end;                /* frames below were sent before */
    uint32_t catch_up_next, catch_up_end; /* symbol ids still to be registered */
    bool catching_up;                     /* for the first time of this connection */
    int64_t silent_ns;      /* since when the server reads and leaves some without an answer; 0 */
    int64_t silence_ns_max; /* and how long it may */

    /* acknowledged, not yet durable (only with request_durable_ack) */
    struct qwp_durable durable;
    struct qwp_op durable_timer; /* asks the server for more, while any wait */
    uint64_t durable_bytes_sent; /* when the timer was set */

    /* the outage now, for the log */
    bool in_outage;
    int64_t outage_ns;       /* since when */
    int64_t outage_log_ns;   /* next line about it */
    int64_t outage_quiet_ns; /* between that and the one after it */

    struct qwp_reject reject;
};

QWP_MUST_USE enum qwp_result qwp_sender_init(struct qwp_sender *sender,
                                             const struct qwp_sender_options *options,
                                             struct qwp_error *err);
/* On the loop's thread. A zeroed and a finished one are fine. */
void qwp_sender_fini(struct qwp_sender *sender);

/* One duty cycle, after each run of the loop. True: something was done. */
bool qwp_sender_do_work(struct qwp_sender *sender, int64_t now_ns);
/* The first connection since init: as the connect string wants it (initial_connect_retry). */
enum qwp_first {
    QWP_FIRST_PENDING = 0, /* wanted, and not there yet; *next_ns: when that has to end */
    QWP_FIRST_DONE = 1,    /* there, or not waited for */
    QWP_FIRST_FAILED = 2,
};
enum qwp_first qwp_sender_first(const struct qwp_sender *sender, int64_t now_ns, int64_t *next_ns);
/* Reads secrets and certificates anew, and does not wait out the backoff. */
void qwp_sender_retry_now(struct qwp_sender *sender);
/* Ends the connection, reading to its end for at most `grace_ns`. */
void qwp_sender_disconnect(struct qwp_sender *sender, int64_t grace_ns);
/* Whether acknowledgements may wait for the next rows (qwp_session_receive_on_demand()): all is
 * well, and few are due. */
bool qwp_sender_may_rest(const struct qwp_sender *sender);
bool qwp_sender_is_down(const struct qwp_sender *sender);
/* A refusal that was to stop everything did; the control file says which. */
bool qwp_sender_is_stopped(const struct qwp_sender *sender);

#endif

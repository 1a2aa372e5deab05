/* qwp_session_internal: what the files of the session share. Nobody else includes it.
 *
 *   qwp_session.c          opening, connecting, what the owner calls
 *   qwp_session_upgrade.c  our request and the server's answer to it
 *   qwp_session_send.c     from messages to the socket
 *   qwp_session_receive.c  from the socket to plain bytes
 *   qwp_session_answers.c  from plain bytes to the owner
 *   qwp_session_time.c     deadlines and liveness
 *   qwp_session_end.c      the last words, and down()
 *
 * A connection's life:
 *
 *   IDLE -> CONNECTING -> (SECURING ->) UPGRADING -> UP -> CLOSING -> ENDING -> IDLE
 *
 * CLOSING: the last words are said (a close frame, close_notify, the end of our stream) and the
 * server's are read to their end. ENDING: the outcome is known; operations are called back. Any
 * state may go to ENDING. down() is called from there when nothing of the old socket is in flight,
 * always from the loop, so that no call of the owner's ends in it. */
#ifndef QWP_SESSION_INTERNAL_H
#define QWP_SESSION_INTERNAL_H

#include "core/qwp_clock.h"
#include "transport/qwp_http_upgrade.h"
#include "transport/qwp_outbox.h"
#include "transport/qwp_outgoing.h"
#include "transport/qwp_session.h"
#include "transport/qwp_tls.h"
#include "transport/qwp_websocket.h"

enum {
    QWP_SESSION_RECEIVE_BYTES = 64 * 1024,
    QWP_SESSION_HOST_BYTES = 256,
};

/* How long the end of the stream is waited for when the server closes or has rejected. */
static const int64_t closing_grace_ns = (int64_t)2 * QWP_NS_PER_S;

enum session_state {
    STATE_IDLE = 0,
    STATE_CONNECTING,
    STATE_SECURING,
    STATE_UPGRADING,
    STATE_UP,
    STATE_CLOSING,
    STATE_ENDING,
};

struct qwp_session {
    const struct qwp_session_options *options;
    struct qwp_loop *loop;
    enum session_state state;
    int fd;
    bool stream_ended; /* the server's stream: nothing more to read */
    bool send_broken;  /* the socket takes no more */
    bool blocked;      /* the owner was told AGAIN */
    bool on_demand;    /* what the server says is received when that is wanted */
    bool receive_wanted;

    /* last words */
    bool fin_wanted; /* end our stream once the close frame is out */
    bool notify_done;
    bool fin_done;

    /* liveness */
    bool ping_open; /* a ping is out and nothing came since */
    bool was_due;
    int64_t phase_deadline_ns;
    int64_t fin_at_ns; /* CLOSING: how long the server's close frame is waited for */
    int64_t armed_ns;  /* of the timer in flight */
    int64_t received_ns;
    int64_t sent_ns;
    int64_t quiet_since_ns;  /* last sign of life, or when an answer became due */
    int64_t last_chance_ns;  /* dead by the clock; what lies unread is taken in till then; 0: not */
    uint64_t peer_taken_pos; /* bytes that the peer's kernel has acknowledged */

    int64_t acked_sequence;    /* -1: none */
    int64_t rejected_sequence; /* INT64_MAX: none */

    struct qwp_op connect_op;
    struct qwp_op recv_op;
    struct qwp_op send_op;
    struct qwp_op timer_op;
    struct qwp_op soon_op;

    struct qwp_tls_context *tls_context;
    struct qwp_tls tls;
    size_t staged_len; /* plain bytes of the TLS record that is filling */

    uint16_t port;
    char host[QWP_SESSION_HOST_BYTES];
    socklen_t address_len;
    struct sockaddr_storage address;
    struct qwp_session_down down;
    struct qwp_session_counters counters;

    struct qwp_outbox outbox;
    struct qwp_outgoing outgoing;
    struct qwp_upgrade upgrade;
    struct qwp_ws_reader reader;
    unsigned char staged[QWP_TLS_PLAIN_MAX];
    unsigned char plain[QWP_TLS_PLAIN_MAX];
    unsigned char received[QWP_SESSION_RECEIVE_BYTES];
};

/* 0 or less: never. */
static inline int64_t after_ns(int64_t from_ns, int64_t wait_ns)
{
    return wait_ns <= 0 || wait_ns > QWP_NEVER_NS - from_ns ? QWP_NEVER_NS : from_ns + wait_ns;
}

static inline int64_t session_now_ns(const struct qwp_session *s)
{
    return s->options->clock_ns != NULL ? s->options->clock_ns() : qwp_clock_monotonic_ns();
}

/* --- qwp_session_upgrade.c --- */

/* Writes our request; the outbox is empty but for the TLS handshake. */
void qwp_session_begin_upgrade(struct qwp_session *s);
/* The answer is whole: up, or not. */
void qwp_session_on_upgraded(struct qwp_session *s);

/* --- qwp_session_send.c --- */

/* Sends what is there to send, once, just before the loop submits. */
void qwp_session_want_soon(struct qwp_session *s);
/* Fills the buffer with what is there to say. */
void qwp_session_encode(struct qwp_session *s);
/* Makes a record of what is staged; room there must be. False: the connection is over. */
bool qwp_session_write_record(struct qwp_session *s);
void qwp_session_on_send(struct qwp_op *op, int outcome, bool more);
void qwp_session_on_soon(struct qwp_op *op, int outcome, bool more);

/* --- qwp_session_receive.c --- */

/* Asks the socket for more: waits for it, or takes what is there when that is all that is wanted.
 */
void qwp_session_receive_next(struct qwp_session *s);
/* Goes on with what TLS has been fed, then asks the socket for more. */
void qwp_session_read_on(struct qwp_session *s);
void qwp_session_on_recv(struct qwp_op *op, int outcome, bool more);

/* --- qwp_session_answers.c --- */

/* Frames of the server, cut anywhere. */
void qwp_session_read_frames(struct qwp_session *s, const unsigned char *at,
                             const unsigned char *bytes_end);

/* --- qwp_session_time.c --- */

/* After anything that may move the next deadline. `now_ns` 0: not read yet. */
void qwp_session_plan_timer(struct qwp_session *s, int64_t now_ns);
void qwp_session_send_ping(struct qwp_session *s);
void qwp_session_on_timer(struct qwp_op *op, int outcome, bool more);

/* --- qwp_session_end.c --- */

/* The reason for the down() to come. */
void qwp_session_note_down(struct qwp_session *s, enum qwp_down_cause cause, int sys_errno,
                           const char *format, ...) QWP_PRINTF(4, 5);
/* Says goodbye and reads to the end of the server's stream, for at most `grace_ns`. `fin`: end our
 * stream without waiting for the server's close frame. */
void qwp_session_begin_closing(struct qwp_session *s, uint16_t code, bool fin, int64_t grace_ns);
/* The outcome is known. The first one stands. */
void qwp_session_end(struct qwp_session *s);
/* note_down() and end(). */
void qwp_session_fail_now(struct qwp_session *s, enum qwp_down_cause cause, const char *text);
/* The last step of ENDING, tried with each completion. The owner may connect again from down(). */
void qwp_session_try_finish(struct qwp_session *s);

void qwp_session_call_back(struct qwp_session *s);
bool qwp_session_is_quiet(const struct qwp_session *s);
void qwp_session_drop_socket(struct qwp_session *s);

#endif

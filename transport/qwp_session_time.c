#include "transport/qwp_session_internal.h"

#include <inttypes.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

/* A timer this late means that we slept (SIGSTOP, a suspended host), not the peer. */
static const int64_t slept_ns = (int64_t)2 * QWP_NS_PER_S;
/* One turn of the loop takes in what has come: so long before the end it is asked for. */
static const int64_t turn_ns = (int64_t)20 * QWP_NS_PER_MS;

static bool answers_are_due(const struct qwp_session *s)
{
    return s->ping_open || s->outgoing.queued_count - 1 > s->acked_sequence;
}

/* When the last chance begins. */
static int64_t doubtful_ns(const struct qwp_session *s)
{
    return after_ns(s->quiet_since_ns, s->options->dead_after_ns > turn_ns
                                           ? s->options->dead_after_ns - turn_ns
                                           : s->options->dead_after_ns);
}

static int64_t next_deadline_ns(const struct qwp_session *s)
{
    if (s->state == STATE_CLOSING && !s->fin_wanted) {
        return qwp_sooner_ns(s->phase_deadline_ns, s->fin_at_ns);
    }
    if (s->state != STATE_UP) {
        return s->phase_deadline_ns;
    }
    int64_t at_ns = after_ns(s->sent_ns, s->options->ping_idle_ns);
    if (answers_are_due(s)) {
        at_ns = qwp_sooner_ns(at_ns, s->last_chance_ns != 0 ? s->last_chance_ns : doubtful_ns(s));
        if (!s->ping_open) {
            at_ns = qwp_sooner_ns(at_ns, after_ns(s->quiet_since_ns, s->options->ping_waiting_ns));
        }
    }
    return at_ns;
}

/* One timer, moved as little as possible: sooner when it must be, later only when the connection
 * falls idle, so that a sleeping process is not woken to find that nothing is due. */
void qwp_session_plan_timer(struct qwp_session *s, int64_t now_ns)
{
    if (s->state == STATE_ENDING || s->state == STATE_IDLE) {
        return;
    }
    const bool due = s->state == STATE_UP && answers_are_due(s);
    const bool falls_idle = s->was_due && !due;
    if (due && !s->was_due) {
        s->quiet_since_ns = now_ns != 0 ? now_ns : session_now_ns(s);
    }
    s->was_due = due;
    const int64_t at_ns = next_deadline_ns(s);
    if (!s->timer_op.in_flight) {
        if (at_ns != QWP_NEVER_NS) {
            s->armed_ns = at_ns;
            qwp_loop_timer(s->loop, &s->timer_op, at_ns);
        }
        return;
    }
    if (at_ns < s->armed_ns || (falls_idle && at_ns > s->armed_ns)) {
        s->armed_ns = at_ns;
        qwp_loop_timer_move(s->loop, &s->timer_op, at_ns);
    }
}

/* A slow link is no dead peer: while our bytes wait in the kernel and the peer's kernel goes on
 * taking them, it lives. (With none waiting the rest is the peer program's own silence.) */
static bool peer_takes_bytes(struct qwp_session *s)
{
    int waiting = 0;
    if (ioctl(s->fd, SIOCOUTQ, &waiting) != 0) {
        return false;
    }
    const uint64_t taken_pos = s->outbox.sent_pos - (uint64_t)waiting;
    const bool moved = waiting > 0 && taken_pos > s->peer_taken_pos;
    s->peer_taken_pos = taken_pos;
    return moved;
}

void qwp_session_send_ping(struct qwp_session *s)
{
    s->counters.pings_sent++;
    s->ping_open = true;
    s->receive_wanted = true;
    qwp_outgoing_ping(&s->outgoing);
    qwp_session_want_soon(s);
}

/* An answer may have come while we were stopped for less than counts as slept, or while much else
 * kept the loop: nobody is given up with bytes of his unread. */
static bool is_dead(struct qwp_session *s, int64_t now_ns)
{
    if (now_ns < doubtful_ns(s)) {
        return false;
    }
    if (s->last_chance_ns == 0) {
        s->last_chance_ns = now_ns + turn_ns;
    }
    return now_ns >= s->last_chance_ns;
}

static void check_liveness(struct qwp_session *s, int64_t now_ns, bool slept)
{
    if (answers_are_due(s)) {
        if (peer_takes_bytes(s) || slept) {
            s->quiet_since_ns = now_ns;
            s->last_chance_ns = 0;
        }
        if (is_dead(s, now_ns)) {
            qwp_session_note_down(s, QWP_DOWN_TIMEOUT, 0,
                                  "no byte from the server for %" PRId64
                                  " ms although answers are due",
                                  (now_ns - s->quiet_since_ns) / QWP_NS_PER_MS);
            qwp_session_end(s);
            return;
        }
    }
    const bool waiting = answers_are_due(s) && !s->ping_open &&
                         now_ns >= after_ns(s->quiet_since_ns, s->options->ping_waiting_ns);
    const bool idle = now_ns >= after_ns(s->sent_ns, s->options->ping_idle_ns);
    if (waiting || idle || (slept && answers_are_due(s))) {
        /* Counts as sent: a ping that cannot leave must not be asked for again and again. */
        s->sent_ns = now_ns;
        qwp_session_send_ping(s);
    }
}

static void on_phase_timeout(struct qwp_session *s)
{
    switch (s->state) {
    case STATE_CONNECTING:
        qwp_session_fail_now(s, QWP_DOWN_UNREACHABLE, "no answer within connect_timeout");
        break;
    case STATE_SECURING:
        qwp_session_fail_now(s, QWP_DOWN_TLS, "not done within auth_timeout");
        break;
    case STATE_UPGRADING:
        qwp_session_fail_now(s, QWP_DOWN_UNREACHABLE, "no answer within auth_timeout");
        break;
    default: /* CLOSING: the cause is known */
        qwp_session_end(s);
    }
}

void qwp_session_on_timer(struct qwp_op *op, int outcome, bool more)
{
    (void)outcome;
    (void)more;
    struct qwp_session *s = op->owner;
    if (s->state == STATE_ENDING) {
        qwp_session_try_finish(s);
        return;
    }
    const int64_t now_ns = session_now_ns(s);
    const bool slept = now_ns - s->armed_ns > slept_ns;
    if (s->state == STATE_UP) {
        check_liveness(s, now_ns, slept);
    } else if (slept) {
        /* It was not the peer's time. */
        s->phase_deadline_ns = after_ns(s->phase_deadline_ns, now_ns - s->armed_ns);
        s->fin_at_ns = after_ns(s->fin_at_ns, now_ns - s->armed_ns);
    } else if (now_ns >= s->phase_deadline_ns) {
        on_phase_timeout(s);
    } else if (s->state == STATE_CLOSING && now_ns >= s->fin_at_ns) {
        s->fin_wanted = true;
        qwp_session_want_soon(s);
    }
    qwp_session_plan_timer(s, now_ns);
}

#include "sidecar/qwp_deliver.h"

#include <signal.h>

#include "core/qwp_clock.h"

static volatile sig_atomic_t stopped;
static struct qwp_loop *signalled_loop;

static void on_signal(int number)
{
    (void)number;
    stopped = 1;
    qwp_loop_wake(signalled_loop);
}

static void signals_set(void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigemptyset(&action.sa_mask);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGPIPE, &action, NULL);
}

void qwp_deliver_signals_begin(struct qwp_loop *loop)
{
    signalled_loop = loop;
    signals_set(on_signal);
}

void qwp_deliver_signals_end(void)
{
    signals_set(SIG_DFL);
}

bool qwp_deliver_is_stopped(void)
{
    return stopped != 0;
}

void qwp_deliver(struct qwp_drainer *drainer, int64_t deadline_ns, bool until_refused)
{
    while (!qwp_drainer_is_done(drainer) && !stopped &&
           !(until_refused && qwp_sender_is_stopped(drainer->sender))) {
        const int64_t now_ns = qwp_clock_monotonic_ns();
        if (now_ns >= deadline_ns) {
            return;
        }
        int64_t next_ns = deadline_ns;
        const bool more = qwp_drainer_do_work(drainer, now_ns, &next_ns);
        (void)qwp_loop_run(drainer->loop, more ? 0 : next_ns);
    }
}

#include "tests/transport/fake_loop.h"

#include <errno.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"

static int64_t clock_now_ns = (int64_t)1000 * QWP_NS_PER_S;

int64_t fake_clock_ns(void)
{
    return clock_now_ns;
}

void fake_clock_set(int64_t now_ns)
{
    clock_now_ns = now_ns;
}

static void start(struct qwp_loop *loop, struct qwp_op *op, const struct qwp_request *request)
{
    struct fake_loop *fake = (struct fake_loop *)loop;
    QWP_ASSERT(fake->slots[request->kind].op == NULL);
    fake->slots[request->kind].op = op;
    fake->slots[request->kind].request = *request;
}

static void nothing(struct qwp_loop *loop)
{
    (void)loop;
}

static void nothing_to_op(struct qwp_loop *loop, struct qwp_op *op)
{
    (void)loop;
    (void)op; /* run() completes what is cancelled; a timer's time lies in the operation */
}

static void complete(struct fake_loop *fake, unsigned kind, int outcome)
{
    struct qwp_op *op = fake->slots[kind].op;
    fake->slots[kind].op = NULL;
    qwp_loop_complete(&fake->loop, op, outcome, false);
}

static bool run(struct qwp_loop *loop, int64_t deadline_ns)
{
    struct fake_loop *fake = (struct fake_loop *)loop;
    (void)deadline_ns;
    bool any = false;
    for (unsigned kind = 0; kind < FAKE_KINDS; kind++) {
        if (fake->slots[kind].op != NULL && fake->slots[kind].op->cancelling) {
            complete(fake, kind, -ECANCELED);
            any = true;
        }
    }
    return any;
}

static const struct qwp_loop_backend backend = {
    .start = start,
    .cancel = nothing_to_op,
    .timer_move = nothing_to_op,
    .submit = nothing,
    .run = run,
    .wake = nothing,
    .close = nothing,
};

void fake_loop_init(struct fake_loop *fake)
{
    *fake = (struct fake_loop){0};
    qwp_loop_init(&fake->loop, &backend, false);
}

bool fake_has(const struct fake_loop *fake, enum qwp_request_kind kind)
{
    return fake->slots[kind].op != NULL && !fake->slots[kind].op->cancelling;
}

const struct qwp_request *fake_request(const struct fake_loop *fake, enum qwp_request_kind kind)
{
    QWP_ASSERT(fake_has(fake, kind));
    return &fake->slots[kind].request;
}

int64_t fake_timer_ns(const struct fake_loop *fake)
{
    if (!fake_has(fake, QWP_REQUEST_TIMER)) {
        return QWP_NEVER_NS;
    }
    const struct qwp_op *op = fake->slots[QWP_REQUEST_TIMER].op;
    return op->time[0] * QWP_NS_PER_S + op->time[1];
}

void fake_turn(struct fake_loop *fake)
{
    while (qwp_loop_run(&fake->loop, 0)) {
    }
}

void fake_complete(struct fake_loop *fake, enum qwp_request_kind kind, int outcome)
{
    QWP_ASSERT(fake->slots[kind].op != NULL);
    complete(fake, (unsigned)kind, outcome);
    fake_turn(fake);
}

size_t fake_feed(struct fake_loop *fake, const void *bytes, size_t len)
{
    const enum qwp_request_kind kind =
        fake_has(fake, QWP_REQUEST_RECV) ? QWP_REQUEST_RECV : QWP_REQUEST_RECV_NOW;
    if (len == 0 || !fake_has(fake, kind)) {
        return 0;
    }
    const struct qwp_request *request = fake_request(fake, kind);
    const size_t n = len < request->len ? len : request->len;
    memcpy(request->address, bytes, n);
    fake_complete(fake, kind, (int)n);
    return n;
}

void fake_advance(struct fake_loop *fake, int64_t by_ns)
{
    clock_now_ns += by_ns;
    if (fake_timer_ns(fake) <= clock_now_ns) {
        fake_complete(fake, QWP_REQUEST_TIMER, 0);
    }
    fake_turn(fake);
}

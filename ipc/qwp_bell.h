/* qwp_bell: how a producer wakes a sleeping sidecar, and a sidecar a waiting producer.
 *
 * The argument for each edge is written out in qwp_bell.c and checked by the model in
 * tests/ipc/model.
 *
 * Producer, after each publish:   [fence, unless registered for membarrier]
 *                                 load ring.attach_gen: changed -> qwp_bell_renew()
 *                                 load control.epoch: parked and not the one last rung -> ring
 * Sidecar, to park:               arm the futex wait (expects the even value), then
 *                                 qwp_bell_park(): store odd, membarrier;
 *                                 read every tail once more; only then sleep.
 * Sidecar, awake again:           qwp_bell_unpark(): store the next even value.
 *
 * Threads: tx is the producer's thread; the rest belongs to the sidecar's intake thread. */
#ifndef QWP_BELL_H
#define QWP_BELL_H

#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_ring.h"

/* The bell's lone fence, against house rules; the argument is in qwp_bell.c. TSan does not know
 * fences and gcc warns of it, but no data is ordered by this one alone. */
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wtsan"
#endif
static inline void qwp_bell_fence(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}
#if defined(__SANITIZE_THREAD__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

/* ---- producer ---- */

struct qwp_bell_tx {
    const _Atomic uint32_t
        *epoch;    /* control's, or a constant awake word while there is no sidecar */
    uint64_t gen;  /* attach_gen that `epoch` belongs to; 0: none */
    uint32_t rung; /* odd epoch last rung for; 0: none */
    bool fence;
    bool registered;            /* this process, for membarrier(GLOBAL_EXPEDITED) */
    bool refused;               /* the sidecar's control file is of a major we do not know */
    struct qwp_control control; /* the mapped file */
    int fifo_fd;                /* -1: futex bell */
};

/* Registers this process for expedited membarriers; false: cannot, so it fences. */
bool qwp_bell_register(void);
void qwp_bell_tx_init(struct qwp_bell_tx *bell, bool registered);
/* Also right in a forked child: nothing here is shared with the parent but read-only. */
void qwp_bell_tx_fini(struct qwp_bell_tx *bell);

/* The cold paths of qwp_bell_published(). */
void qwp_bell_renew(struct qwp_bell_tx *bell, struct qwp_ring_tx *tx);
void qwp_bell_ring(struct qwp_bell_tx *bell, struct qwp_ring_tx *tx, uint32_t epoch);

/* Call after each qwp_ring_publish(). */
static inline void qwp_bell_published(struct qwp_bell_tx *bell, struct qwp_ring_tx *tx)
{
    if (bell->fence) {
        /* sync[bell.epoch]: tail store before epoch load, when no membarrier does it for us. */
        qwp_bell_fence();
    } else {
        /* The sidecar's membarrier is the other half; here only the compiler must keep the order.
         */
        atomic_signal_fence(memory_order_seq_cst);
    }
    /* sync[bell.attach] acquire: the control file of that life is in place. */
    const uint64_t gen = atomic_load_explicit(&tx->header->attach_gen, memory_order_acquire);
    if (__builtin_expect(gen != bell->gen, 0)) {
        qwp_bell_renew(bell, tx);
        return;
    }
    const uint32_t epoch = atomic_load_explicit(bell->epoch, memory_order_relaxed);
    if (__builtin_expect((epoch & QWP_EPOCH_PARKED) != 0 && epoch != bell->rung, 0)) {
        qwp_bell_ring(bell, tx, epoch);
    }
}

/* Sleeps until head, acked or state move past what `reached` wants, or the deadline (monotonic ns).
 * `what`: QWP_WAIT_*. `reached` is asked with fresh loads after announcing the wait, so no move is
 * missed. QWP_AGAIN: deadline. */
typedef bool (*qwp_reached_fn)(void *owner);
QWP_MUST_USE enum qwp_result qwp_bell_wait(struct qwp_ring_tx *tx, uint32_t what,
                                           qwp_reached_fn reached, void *owner,
                                           int64_t deadline_ns);

/* ---- sidecar ---- */

struct qwp_bell_rx {
    struct qwp_control_header *control; /* keeps: outlives the bell */
    uint32_t epoch;                     /* the truth; control->epoch is its published copy */
    bool can_membarrier;                /* MEMBARRIER_CMD_GLOBAL_EXPEDITED works here */
    bool fence;                         /* producers always fence: no membarrier when parking */
    int fifo_fd;                        /* -1: futex bell; else poll it for reading */
    int64_t unsure_until_ns; /* a ring attached without a membarrier: sleep briefly until then */
};

/* After qwp_control_create() and before the first attach. Without membarrier here it makes every
 * producer fence (control's bell_fence). */
QWP_MUST_USE enum qwp_result qwp_bell_rx_open(struct qwp_bell_rx *bell, int dir_fd,
                                              struct qwp_control *control, struct qwp_error *err);
void qwp_bell_rx_close(struct qwp_bell_rx *bell);
/* The word to arm a futex wait on, and the value it must have for the wait to be good. Only while
 * awake: a wait armed on an odd value is the lost wake-up that qwp_bell.c tells of. */
const uint32_t *qwp_bell_word(const struct qwp_bell_rx *bell, uint32_t *expected);
/* Publishes "parked" (or "parked, lingering"); also from one to the other. The futex wait is armed
 * or its completion still unread. `brief`: the sleep ends within QWP_BELL_UNSURE_NS by itself, so
 * that no membarrier is made for it. False: no membarrier was to be had for a ring that needs it,
 * so sleep at most QWP_BELL_UNSURE_NS. Then read every tail once more; if lingering, a ring that is
 * half full (qwp_ring_is_half_full) is due at once: its producer may have crossed before. */
QWP_MUST_USE bool qwp_bell_park(struct qwp_bell_rx *bell, bool lingering, bool brief);
/* Before reading tails again because of the bell. Empties the FIFO. Awake already: fine. */
void qwp_bell_unpark(struct qwp_bell_rx *bell);
static inline bool qwp_bell_is_parked(const struct qwp_bell_rx *bell)
{
    return (bell->epoch & QWP_EPOCH_PARKED) != 0;
}
/* Sets the ring's state to attached and tells it which control file to look at; afterwards poll its
 * tail. */
void qwp_bell_attach(struct qwp_bell_rx *bell, struct qwp_ring_rx *rx);

#define QWP_BELL_UNSURE_NS INT64_C(1000000)

#endif

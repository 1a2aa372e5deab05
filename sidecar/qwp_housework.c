#include "sidecar/qwp_housework.h"

#include <signal.h>

#include "core/qwp_assert.h"

/* How much of a segment one operation allocates or populates: a stop waits for no more than that.
 */
enum { STEP_BYTES = 4 * 1024 * 1024 };

static struct qwp_housework_job *job_at(struct qwp_housework *housework, uint32_t number)
{
    return &housework->jobs[number % QWP_HOUSEWORK_MAX];
}

static void *helper_run(void *arg)
{
    struct qwp_housework *housework = arg;
    pthread_mutex_lock(&housework->lock);
    for (uint32_t number = 0;; number++) {
        while (housework->submitted == number && !housework->is_ending) {
            pthread_cond_wait(&housework->changed, &housework->lock);
        }
        if (housework->submitted == number) {
            break;
        }
        pthread_mutex_unlock(&housework->lock);
        qwp_slow_run(&qwp_sys_real, &job_at(housework, number)->copy);
        /* sync[housework.result] release: pairs with the acquire in qwp_housework_collect(). */
        atomic_store_explicit(&housework->finished, number + 1, memory_order_release);
        qwp_loop_wake(housework->loop);
        pthread_mutex_lock(&housework->lock);
    }
    pthread_mutex_unlock(&housework->lock);
    return NULL;
}

/* Signals belong to the threads that were there before. */
static bool helper_start(struct qwp_housework *housework)
{
    if (!housework->is_started) {
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        housework->is_started =
            pthread_create(&housework->thread, NULL, helper_run, housework) == 0;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return housework->is_started;
}

static void submit(void *owner, struct qwp_slow_op *op)
{
    struct qwp_housework *housework = owner;
    if (!helper_start(housework)) {
        qwp_slow_run(&qwp_sys_real, op); /* slower, never wrong */
        return;
    }
    QWP_ASSERT(housework->submitted - housework->collected < QWP_HOUSEWORK_MAX);
    *job_at(housework, housework->submitted) = (struct qwp_housework_job){op, *op};
    pthread_mutex_lock(&housework->lock);
    housework->submitted++;
    pthread_cond_signal(&housework->changed);
    pthread_mutex_unlock(&housework->lock);
}

void qwp_housework_init(struct qwp_housework *housework, struct qwp_loop *loop)
{
    *housework = (struct qwp_housework){
        .slow = {.owner = housework, .submit = submit, .step_bytes = STEP_BYTES},
        .loop = loop,
    };
    pthread_mutex_init(&housework->lock, NULL);
    pthread_cond_init(&housework->changed, NULL);
}

bool qwp_housework_collect(struct qwp_housework *housework)
{
    /* sync[housework.result] acquire */
    const uint32_t finished = atomic_load_explicit(&housework->finished, memory_order_acquire);
    const bool any = housework->collected != finished;
    while (housework->collected != finished) {
        const struct qwp_housework_job *job = job_at(housework, housework->collected++);
        job->op->error = job->copy.error;
        job->op->done = true;
    }
    return any;
}

void qwp_housework_fini(struct qwp_housework *housework)
{
    if (housework->loop == NULL) {
        return;
    }
    if (housework->is_started) {
        pthread_mutex_lock(&housework->lock);
        housework->is_ending = true;
        pthread_cond_signal(&housework->changed);
        pthread_mutex_unlock(&housework->lock);
        pthread_join(housework->thread, NULL);
        (void)qwp_housework_collect(housework);
    }
    pthread_cond_destroy(&housework->changed);
    pthread_mutex_destroy(&housework->lock);
    *housework = (struct qwp_housework){0};
}

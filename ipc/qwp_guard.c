#include "ipc/qwp_guard.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct range {
    _Atomic uintptr_t begin;
    _Atomic uintptr_t end; /* 0: free. sync[guard.range] */
    _Atomic bool hit;
};

static struct range *ranges;
static uint32_t range_count;
static qwp_guard_covered_fn range_covered;
static struct sigaction action_before;

/* Only what a signal handler may do. mmap() is a bare system call. */
static bool cover(uintptr_t address)
{
    for (uint32_t i = 0; i < range_count; i++) {
        /* sync[guard.range] acquire */
        const uintptr_t end = atomic_load_explicit(&ranges[i].end, memory_order_acquire);
        const uintptr_t begin = atomic_load_explicit(&ranges[i].begin, memory_order_relaxed);
        if (end != 0 && address >= begin && address < end) {
            atomic_store_explicit(&ranges[i].hit, true, memory_order_relaxed);
            if (mmap((void *)begin, end - begin, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED) {
                return false;
            }
            if (range_covered != NULL) {
                range_covered((void *)begin);
            }
            return true;
        }
    }
    return false;
}

/* To whoever was there before us. Where that is the kernel, the instruction runs again and meets
 * it; a signal that someone sent has to be sent again. */
static void pass_on(int number, siginfo_t *info, void *context)
{
    if ((action_before.sa_flags & SA_SIGINFO) != 0) {
        action_before.sa_sigaction(number, info, context);
    } else if (action_before.sa_handler != SIG_DFL && action_before.sa_handler != SIG_IGN) {
        action_before.sa_handler(number);
    } else {
        sigaction(number, &action_before, NULL);
        if (info->si_code <= 0) {
            raise(number);
        }
    }
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const int error = errno;
    if (info->si_code <= 0 || !cover((uintptr_t)info->si_addr)) {
        pass_on(number, info, context);
    }
    errno = error;
}

enum qwp_result qwp_guard_open(uint32_t ranges_max, qwp_guard_covered_fn covered,
                               struct qwp_error *err)
{
    if (ranges != NULL) {
        return QWP_OK;
    }
    ranges = calloc(ranges_max, sizeof *ranges);
    if (ranges == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to guard %u rings", ranges_max);
    }
    range_count = ranges_max;
    range_covered = covered;
    /* On the alternate stack where a thread has one: some runtimes insist. */
    struct sigaction action = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    if (sigaction(SIGBUS, &action, &action_before) != 0) {
        range_count = 0;
        free(ranges);
        ranges = NULL;
        return qwp_fail(err, QWP_IO, errno, "cannot handle SIGBUS");
    }
    return QWP_OK;
}

void qwp_guard_close(void)
{
    if (ranges == NULL) {
        return;
    }
    sigaction(SIGBUS, &action_before, NULL);
    range_count = 0;
    free(ranges);
    ranges = NULL;
}

uint32_t qwp_guard_add(void *at, size_t bytes)
{
    for (uint32_t i = 0; i < range_count; i++) {
        if (atomic_load_explicit(&ranges[i].end, memory_order_relaxed) == 0) {
            atomic_store_explicit(&ranges[i].hit, false, memory_order_relaxed);
            atomic_store_explicit(&ranges[i].begin, (uintptr_t)at, memory_order_relaxed);
            /* sync[guard.range] release */
            atomic_store_explicit(&ranges[i].end, (uintptr_t)at + bytes, memory_order_release);
            return i;
        }
    }
    return QWP_GUARD_NONE;
}

void qwp_guard_remove(uint32_t range)
{
    if (range < range_count) {
        atomic_store_explicit(&ranges[range].end, 0, memory_order_relaxed);
    }
}

bool qwp_guard_is_hit(uint32_t range)
{
    return range < range_count && atomic_load_explicit(&ranges[range].hit, memory_order_relaxed);
}

#include "core/qwp_crash.h"

#ifdef QWP_CRASH_POINTS
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool qwp_crash_armed;
static const char *armed_name;
static size_t armed_name_len;
static atomic_uint passages_left;

static void arm(const char *name, size_t len, unsigned nth)
{
    armed_name = name;
    armed_name_len = len;
    atomic_store_explicit(&passages_left, nth == 0 ? 1 : nth, memory_order_relaxed);
    qwp_crash_armed = name != NULL;
}

void qwp_crash_arm(const char *name, unsigned nth)
{
    arm(name, name == NULL ? 0 : strlen(name), nth);
}

/* Before main, so that the flag never changes while threads run. */
__attribute__((constructor)) static void arm_from_environment(void)
{
    const char *at = getenv("QWP_CRASH_AT");
    if (at == NULL || *at == '\0') {
        return;
    }
    const char *colon = strrchr(at, ':');
    if (colon == NULL) {
        arm(at, strlen(at), 1);
    } else {
        arm(at, (size_t)(colon - at), (unsigned)strtoul(colon + 1, NULL, 10));
    }
}

void qwp_crash_reached(const char *name)
{
    const bool any = armed_name_len == 1 && armed_name[0] == '*';
    if (!any && (strlen(name) != armed_name_len || memcmp(name, armed_name, armed_name_len) != 0)) {
        return;
    }
    if (atomic_fetch_sub_explicit(&passages_left, 1, memory_order_relaxed) == 1) {
        kill(getpid(), SIGKILL);
        pause(); /* the signal may go to another thread first */
    }
}
#else
typedef int qwp_crash_points_are_not_compiled_in;
#endif

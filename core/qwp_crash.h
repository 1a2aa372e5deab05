/* qwp_crash: places where a test can let the process die at once, as kill -9 would.
 *
 *   QWP_CRASH_POINT("rotate.linked");
 *
 * In builds with QWP_CRASH_POINTS (CMake: on when tests are built) the environment variable
 * QWP_CRASH_AT=name[:nth] ends the process with SIGKILL at the nth passage (default 1) of that
 * place; the name * stands for all of them. In other builds it is nothing.
 *
 * Threads: any. The unarmed cost is one load and a branch never taken. */
#ifndef QWP_CRASH_H
#define QWP_CRASH_H

#ifdef QWP_CRASH_POINTS
#include <stdbool.h>

extern bool qwp_crash_armed; /* const once threads run */

/* For a forked child, instead of the environment. `name` is kept; NULL disarms. */
void qwp_crash_arm(const char *name, unsigned nth);
/* Behind the macro: counts a passage and dies if it is the one. */
void qwp_crash_reached(const char *name);

#define QWP_CRASH_POINT(name)                                                                      \
    (__builtin_expect(qwp_crash_armed, 0) ? qwp_crash_reached(name) : (void)0)
#else
#define QWP_CRASH_POINT(name) ((void)0)
#endif

#endif

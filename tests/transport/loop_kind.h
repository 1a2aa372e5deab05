/* loop_kind: the loop that a test runs on: QWP_TEST_LOOP in the environment, "uring" or "epoll";
 * without it what the kernel has. */
#ifndef QWP_TEST_LOOP_KIND_H
#define QWP_TEST_LOOP_KIND_H

#include <stdlib.h>
#include <string.h>

#include "transport/qwp_loop.h"

static inline enum qwp_loop_kind loop_kind(void)
{
    const char *name = getenv("QWP_TEST_LOOP");
    if (name == NULL) {
        return QWP_LOOP_AUTO;
    }
    return strcmp(name, "epoll") == 0 ? QWP_LOOP_EPOLL : QWP_LOOP_URING;
}

#endif

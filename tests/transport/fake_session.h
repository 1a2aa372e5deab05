/* fake_session: a plain session on a fake loop, with the default times, and what its owner was
 * told. */
#ifndef QWP_TEST_FAKE_SESSION_H
#define QWP_TEST_FAKE_SESSION_H

#include "core/qwp_clock.h"
#include "tests/transport/fake_loop.h"
#include "transport/qwp_session.h"

#define S  ((int64_t)QWP_NS_PER_S)
#define MS ((int64_t)QWP_NS_PER_MS)

/* One of each a test process. */
extern struct fake_loop fake;
extern struct qwp_session *session;
extern struct told {
    int ups, downs, oks, rejections;
    int64_t ok_sequence, rejected_sequence; /* the last ones; -1: none */
    enum qwp_down_cause cause;
} told;

/* Connecting. */
void fake_setup(void);
/* Up. */
void fake_setup_up(void);
void fake_teardown(void);

void fake_connected(void);
void fake_upgraded(void);
/* The kernel takes all that is sent. */
void fake_take_all(void);
/* The owner gives a message of `len` bytes; nobody has taken it yet. */
void fake_give(size_t len);
/* The same, and all of it is taken. */
void fake_send(size_t len);
void fake_says(const void *bytes, size_t len);
void fake_says_ok(int64_t sequence);
void fake_says_error(int64_t sequence);

#endif

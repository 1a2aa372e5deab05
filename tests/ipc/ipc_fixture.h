/* ipc_fixture: an instance directory on tmpfs, and the usual producer and sidecar in it.
 *
 * The directory is made and removed by unchecked fixtures, so in the parent of each forked test:
 * nothing stays behind when one fails. */
#ifndef QWP_IPC_FIXTURE_H
#define QWP_IPC_FIXTURE_H

#include <check.h>

#include "ipc/qwp_bell.h"

#define ASSERT_OK(call) ck_assert_msg((call) == QWP_OK, "%s: %s", #call, fixture_err.text)
#define ASSERT_RESULT(call, expected)                                                              \
    do {                                                                                           \
        const enum qwp_result result_ = (call);                                                    \
        ck_assert_msg(result_ == (expected), "%s: %s (%s), expected %s", #call,                    \
                      qwp_result_name(result_), fixture_err.text, qwp_result_name(expected));      \
    } while (0)

extern struct qwp_error fixture_err;
extern int fixture_dir_fd;                     /* of the instance, in each test */
extern char fixture_dir[64];                   /* <dir> */
extern const struct qwp_ring_limits no_limits; /* as wide as the layout */

void fixture_make_dir(void);   /* unchecked setup */
void fixture_remove_dir(void); /* unchecked teardown */
void fixture_open(void);       /* checked setup */
TCase *fixture_case(Suite *suite, const char *name);

struct pair {
    struct qwp_ring_tx tx;
    struct qwp_ring_rx rx;
};
/* A small ring (64 KiB) opened on both sides. */
void pair_open(struct pair *pair);
void pair_close(struct pair *pair);

/* One row record of `bytes`, filled with `fill`, published. */
void put_record(struct qwp_ring_tx *tx, uint32_t bytes, unsigned char fill);

/* A sidecar's half: control file and bell. */
struct sidecar {
    struct qwp_control control;
    struct qwp_bell_rx bell;
};
void sidecar_open(struct sidecar *sidecar, enum qwp_bell_mode mode, bool fence);
void sidecar_park(struct sidecar *sidecar, bool lingering); /* sure or not */
void sidecar_close(struct sidecar *sidecar);

/* Remembers the names it is called with. */
struct names {
    int count;
    int overflows;
    char last[128];
};
void names_add(void *names, const char *file_name);

#endif

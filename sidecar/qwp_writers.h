/* qwp_writers: which producers write to which table, by name, for whoever looks at refused rows.
 *
 * The last QWP_WRITERS_MAX pairs are kept, also of producers that are gone.
 *
 * Threads: intake adds, the sender asks; a lock, taken when a ring defines a table and when rows
 *          are set aside. */
#ifndef QWP_WRITERS_H
#define QWP_WRITERS_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_shape.h"
#include "ipc/qwp_ring_layout.h"

enum { QWP_WRITERS_MAX = 4096 };

struct qwp_writers {
    pthread_mutex_t lock; /* guards all below */
    struct {
        uint64_t table_hash;
        char producer[QWP_RING_NAME_BYTES];
    } pairs[QWP_WRITERS_MAX];
    uint64_t count; /* only grows */
};

void qwp_writers_init(struct qwp_writers *writers);
void qwp_writers_fini(struct qwp_writers *writers);
void qwp_writers_add(struct qwp_writers *writers, struct qwp_name table, const char *producer);
/* "a, b, c"; cut where it gets too long. `owner` is a struct qwp_writers. */
void qwp_writers_name(void *owner, struct qwp_name table, char *text, size_t text_bytes);

#endif

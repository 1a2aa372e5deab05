/* qwp_stored: what the store has to know of the message in a frame: whether it ends a group, and
 * which symbols it brings.
 *
 * Trust: bytes whose CRC is right, from us or from another client; they are judged all the same. */
#ifndef QWP_STORED_H
#define QWP_STORED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/store/qwp_dict.h"

/* It waits for a later one to be committed with. */
bool qwp_stored_is_deferred(const unsigned char *payload, size_t len);

enum qwp_stored_delta {
    QWP_STORED_NO_MESSAGE = 0, /* none that could use symbols */
    QWP_STORED_NO_DELTA,
    QWP_STORED_DELTA, /* *start and *end: first of its symbols, and behind its last */
    QWP_STORED_BAD,
};
enum qwp_stored_delta qwp_stored_delta_look(const unsigned char *payload, size_t len,
                                            uint64_t *start, uint64_t *end);

/* Compares the message's symbols with the dictionary; with `heals` those that it lacks are added
 * and counted there, as writer. *gap: some that the message needs are missing. QWP_CORRUPT: it
 * contradicts the dictionary or itself. QWP_NOMEM, QWP_LIMIT. */
QWP_MUST_USE enum qwp_result qwp_stored_delta_follow(struct qwp_dict *dict,
                                                     const unsigned char *payload, size_t len,
                                                     uint32_t *heals, bool *gap);

#endif

/* qwp_arena: memory that is handed out piece by piece and taken back at once.
 *
 * Pieces stay where they are until the reset. Chunks are kept for the next round, so a busy arena
 * does not allocate.
 *
 * Threads: its owner's. */
#ifndef QWP_ARENA_H
#define QWP_ARENA_H

#include <stdalign.h>
#include <stddef.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"

enum { QWP_ARENA_CHUNK_BYTES = 80 * 1024 }; /* the widest chunk of columns is one piece */

struct qwp_arena_chunk {
    struct qwp_arena_chunk *next;
    size_t used;
    alignas(8) unsigned char bytes[QWP_ARENA_CHUNK_BYTES];
};

/* Zero is empty. */
struct qwp_arena {
    struct qwp_arena_chunk *first;
    struct qwp_arena_chunk *now;
};

/* Makes the next chunk the present one; NULL: no memory. */
struct qwp_arena_chunk *qwp_arena_next(struct qwp_arena *arena);

/* 8-byte aligned, contents undefined; at most QWP_ARENA_CHUNK_BYTES. NULL: no memory. */
static inline void *qwp_arena_take(struct qwp_arena *arena, size_t bytes)
{
    bytes = qwp_round_up(bytes, 8);
    QWP_ASSERT(bytes <= QWP_ARENA_CHUNK_BYTES);
    struct qwp_arena_chunk *chunk = arena->now;
    if (chunk == NULL || chunk->used + bytes > QWP_ARENA_CHUNK_BYTES) {
        chunk = qwp_arena_next(arena);
        if (chunk == NULL) {
            return NULL;
        }
    }
    void *at = chunk->bytes + chunk->used;
    chunk->used += bytes;
    return at;
}

void qwp_arena_reset(struct qwp_arena *arena);
void qwp_arena_fini(struct qwp_arena *arena);

#endif

/* qwp_arena: memory that is handed out piece by piece and taken back at once.
 *
 * Pieces stay where they are until the reset. Chunks are kept for the next round, so a busy arena
 * does not allocate.
 *
 * Threads: its owner's. */
#ifndef QWP_ARENA_H
#define QWP_ARENA_H

#include <stddef.h>

enum { QWP_ARENA_CHUNK_BYTES = 80 * 1024 }; /* the widest chunk of columns is one piece */

struct qwp_arena_chunk;
/* Zero is empty. */
struct qwp_arena {
    struct qwp_arena_chunk *first;
    struct qwp_arena_chunk *now;
};

/* 8-byte aligned, contents undefined; at most QWP_ARENA_CHUNK_BYTES. NULL: no memory. */
void *qwp_arena_take(struct qwp_arena *arena, size_t bytes);
void qwp_arena_reset(struct qwp_arena *arena);
void qwp_arena_fini(struct qwp_arena *arena);

#endif

#include "sidecar/qwp_arena.h"

#include <stdalign.h>
#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"

struct qwp_arena_chunk {
    struct qwp_arena_chunk *next;
    size_t used;
    alignas(8) unsigned char bytes[QWP_ARENA_CHUNK_BYTES];
};

void *qwp_arena_take(struct qwp_arena *arena, size_t bytes)
{
    bytes = qwp_round_up(bytes, 8);
    QWP_ASSERT(bytes <= QWP_ARENA_CHUNK_BYTES);
    if (arena->now == NULL || arena->now->used + bytes > QWP_ARENA_CHUNK_BYTES) {
        struct qwp_arena_chunk *next = arena->now != NULL ? arena->now->next : arena->first;
        if (next == NULL) {
            next = malloc(sizeof *next);
            if (next == NULL) {
                return NULL;
            }
            next->next = NULL;
            if (arena->now != NULL) {
                arena->now->next = next;
            } else {
                arena->first = next;
            }
        }
        next->used = 0;
        arena->now = next;
    }
    void *at = arena->now->bytes + arena->now->used;
    arena->now->used += bytes;
    return at;
}

void qwp_arena_reset(struct qwp_arena *arena)
{
    arena->now = NULL;
}

void qwp_arena_fini(struct qwp_arena *arena)
{
    for (struct qwp_arena_chunk *next, *chunk = arena->first; chunk != NULL; chunk = next) {
        next = chunk->next;
        free(chunk);
    }
}

#include "sidecar/qwp_arena.h"

#include <stdlib.h>

struct qwp_arena_chunk *qwp_arena_next(struct qwp_arena *arena)
{
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
    return next;
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

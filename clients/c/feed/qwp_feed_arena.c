#include "clients/c/feed/qwp_feed_arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 * 1024, ALIGN = 16 };

struct qwp_feed_arena_chunk {
    struct qwp_feed_arena_chunk *next;
    uint64_t unused; /* keeps what follows aligned */
};

void *qwp_feed_arena_alloc(struct qwp_feed_arena *arena, size_t bytes)
{
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    bytes = (bytes + ALIGN - 1) & ~(size_t)(ALIGN - 1);
    if (bytes > arena->free_bytes) {
        const size_t room = bytes > CHUNK_BYTES ? bytes : CHUNK_BYTES;
        struct qwp_feed_arena_chunk *chunk = malloc(sizeof *chunk + room);
        if (chunk == NULL) {
            return NULL;
        }
        chunk->next = arena->chunks;
        arena->chunks = chunk;
        arena->free = (char *)(chunk + 1);
        arena->free_bytes = room;
    }
    void *out = arena->free;
    arena->free += bytes;
    arena->free_bytes -= bytes;
    arena->used_bytes += bytes;
    return out;
}

char *qwp_feed_arena_copy(struct qwp_feed_arena *arena, const char *text, size_t len)
{
    char *out = qwp_feed_arena_alloc(arena, len + 1);
    if (out != NULL) {
        memcpy(out, text, len);
        out[len] = '\0';
    }
    return out;
}

void qwp_feed_arena_reset(struct qwp_feed_arena *arena)
{
    while (arena->chunks != NULL) {
        struct qwp_feed_arena_chunk *next = arena->chunks->next;
        free(arena->chunks);
        arena->chunks = next;
    }
    *arena = (struct qwp_feed_arena){0};
}

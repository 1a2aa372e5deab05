/* qwp_feed_arena: memory that is only ever given back as a whole.
 *
 * What parsers remember (names, symbols, keys) grows at its own event, never per row, and lives
 * until the whole is reset.
 *
 * Errors: NULL when memory is not to be had. */
#ifndef QWP_FEED_ARENA_H
#define QWP_FEED_ARENA_H

#include <stddef.h>

struct qwp_feed_arena_chunk;

/* All zero is an empty arena. */
struct qwp_feed_arena {
    struct qwp_feed_arena_chunk *chunks; /* newest first */
    char *free;                          /* within the newest chunk */
    size_t free_bytes;
    size_t used_bytes; /* handed out since the last reset */
};

/* 16-byte aligned, not cleared. */
void *qwp_feed_arena_alloc(struct qwp_feed_arena *arena, size_t bytes);
/* A copy with a NUL behind it. */
char *qwp_feed_arena_copy(struct qwp_feed_arena *arena, const char *text, size_t len);
/* Frees everything; the arena can be used again. */
void qwp_feed_arena_reset(struct qwp_feed_arena *arena);

#endif

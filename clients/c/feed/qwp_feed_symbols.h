/* qwp_feed_symbols: the symbol texts of this process, each once, with its handle.
 *
 * Bounded: when `count_max` is reached, or the taker found that the ring takes no
 * more (`closed`), no text is added any more, and unknown ones travel as text.
 *
 * Threads: one. Ownership: entries stay where they are until the table is closed. */
#ifndef QWP_FEED_SYMBOLS_H
#define QWP_FEED_SYMBOLS_H

#include <stddef.h>

#include "clients/c/feed/qwp_feed_arena.h"
#include "clients/c/feed/qwp_feed_row.h"

struct qwp_feed_symbols {
    struct qwp_feed_arena arena;
    struct qwp_feed_symbols_slot *slots;
    uint32_t slot_count; /* power of two, or 0 */
    uint32_t count;
    uint32_t count_max; /* 0: QWP_FEED_SYMBOLS_MAX */
    bool closed;        /* writer: the taker, on QWP_LIMIT */
};

enum { QWP_FEED_SYMBOLS_MAX = 1 << 20 };

void qwp_feed_symbols_close(struct qwp_feed_symbols *symbols);

/* The entry of this text, or NULL when there is none and it takes no more. */
struct qwp_feed_symbol *qwp_feed_symbols_find(struct qwp_feed_symbols *symbols, const char *text,
                                              size_t len);

/* A hash for short texts; not for adversaries. Reads exactly `len` bytes. */
uint64_t qwp_feed_hash(const void *text, size_t len);

#endif

/* qwp_symbols: text -> the ring's symbol index, one map a producer.
 *
 * A look-up is a hash, one 32-byte slot and a comparison: texts up to 24 bytes lie in the slot
 * itself, longer ones are compared where the ring's definitions area holds them. The area's bound
 * bounds the map. Nothing is ever taken out: indexes live as long as the ring.
 *
 * Threads: the producer's. */
#ifndef QWP_SYMBOLS_H
#define QWP_SYMBOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "core/qwp_bytes.h"

enum { QWP_SYMBOL_INLINE_BYTES = 24, QWP_SYMBOL_SLOTS_MIN = 64 };
#define QWP_SYMBOL_EMPTY UINT32_MAX

struct qwp_symbol_slot {
    uint32_t index; /* QWP_SYMBOL_EMPTY: free */
    uint32_t len;
    uint64_t words[3]; /* up to 24 bytes: the text's words; longer: hash, offset of the text, 0 */
};

struct qwp_symbols {
    struct qwp_symbol_slot *slots;
    uint32_t mask;
    uint32_t count;
    uint64_t seed;     /* texts may come from strangers: do not let them pick collisions */
    const char *texts; /* borrowed: the ring's definitions area */
};

/* False: no memory. */
bool qwp_symbols_init(struct qwp_symbols *symbols, const void *texts, uint64_t seed);
void qwp_symbols_fini(struct qwp_symbols *symbols);
/* Room for one more; false: no memory. Call before the text is defined in the ring, so that a
 * failure leaves nothing half done. */
bool qwp_symbols_grow(struct qwp_symbols *symbols);
/* Adds a text that is not there yet, after grow(); it lies at `off` of the definitions area. */
void qwp_symbols_add(struct qwp_symbols *symbols, const char *text, size_t len, uint64_t off,
                     uint32_t index);

static inline uint64_t qwp_symbol_mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Words that, with the length, tell any two texts of up to 24 bytes apart; no byte outside the text
 * is read. */
static inline void qwp_symbol_words(const char *text, size_t len, uint64_t words[3])
{
    words[0] = words[1] = words[2] = 0;
    if (len >= 8) {
        words[0] = qwp_load_u64(text);
        if (len > 16) {
            words[1] = qwp_load_u64(text + 8);
        }
        words[2] = qwp_load_u64(text + len - 8);
    } else if (len >= 4) {
        words[0] = qwp_load_u32(text) | (uint64_t)qwp_load_u32(text + len - 4) << 32;
    } else if (len > 0) {
        words[0] = (uint64_t)(unsigned char)text[0] | (uint64_t)(unsigned char)text[len / 2] << 8 |
                   (uint64_t)(unsigned char)text[len - 1] << 16;
    }
}

static inline uint64_t qwp_symbol_hash(uint64_t seed, const uint64_t words[3], size_t len)
{
    const uint64_t h = qwp_symbol_mix(words[0] ^ seed, words[2] ^ UINT64_C(0x9e3779b97f4a7c15));
    return qwp_symbol_mix(h ^ words[1] ^ len, UINT64_C(0xa0761d6478bd642f));
}

/* For texts longer than 24 bytes. */
uint32_t qwp_symbols_find_long(const struct qwp_symbols *symbols, const char *text, size_t len);

/* Index of a text of up to 24 bytes, or QWP_SYMBOL_EMPTY. */
static inline uint32_t qwp_symbols_find_short(const struct qwp_symbols *symbols, const char *text,
                                              size_t len)
{
    uint64_t words[3];
    qwp_symbol_words(text, len, words);
    uint64_t at = qwp_symbol_hash(symbols->seed, words, len);
    for (;; at++) {
        const struct qwp_symbol_slot *slot = &symbols->slots[at & symbols->mask];
        const uint64_t differ = (slot->words[0] ^ words[0]) | (slot->words[1] ^ words[1]) |
                                (slot->words[2] ^ words[2]) | (slot->len ^ len);
        if (differ == 0 || slot->index == QWP_SYMBOL_EMPTY) {
            return slot->index;
        }
    }
}

static inline uint32_t qwp_symbols_find(const struct qwp_symbols *symbols, const char *text,
                                        size_t len)
{
    return len <= QWP_SYMBOL_INLINE_BYTES ? qwp_symbols_find_short(symbols, text, len)
                                          : qwp_symbols_find_long(symbols, text, len);
}

#endif

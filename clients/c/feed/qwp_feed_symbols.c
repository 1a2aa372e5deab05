#include "clients/c/feed/qwp_feed_symbols.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"

struct qwp_feed_symbols_slot {
    uint64_t hash;
    struct qwp_feed_symbol *symbol; /* NULL: free */
};

enum { SLOT_COUNT_FIRST = 1024 };

static uint64_t mix_64(uint64_t a, uint64_t b)
{
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t qwp_feed_hash(const void *text, size_t len)
{
    const unsigned char *p = text;
    uint64_t h = len * UINT64_C(0x9e3779b97f4a7c15);
    while (len > 16) {
        h = mix_64(qwp_load_u64(p) ^ UINT64_C(0xa0761d6478bd642f), qwp_load_u64(p + 8) ^ h);
        p += 16;
        len -= 16;
    }
    uint64_t a = 0;
    uint64_t b = 0;
    if (len >= 8) {
        a = qwp_load_u64(p);
        b = qwp_load_u64(p + len - 8);
    } else if (len >= 4) {
        a = qwp_load_u32(p);
        b = qwp_load_u32(p + len - 4);
    } else if (len > 0) {
        a = (uint64_t)p[0] << 16 | (uint64_t)p[len / 2] << 8 | p[len - 1];
    }
    return mix_64(a ^ UINT64_C(0xe7037ed1a0b428db), b ^ h ^ UINT64_C(0x8ebc6af09c88c6e3));
}

void qwp_feed_symbols_close(struct qwp_feed_symbols *symbols)
{
    free(symbols->slots);
    qwp_feed_arena_reset(&symbols->arena);
    *symbols = (struct qwp_feed_symbols){0};
}

static void put(struct qwp_feed_symbols_slot *slots, uint32_t slot_count,
                struct qwp_feed_symbols_slot entry)
{
    uint32_t i = (uint32_t)entry.hash & (slot_count - 1);
    while (slots[i].symbol != NULL) {
        i = (i + 1) & (slot_count - 1);
    }
    slots[i] = entry;
}

static bool make_room(struct qwp_feed_symbols *s)
{
    if (s->count * 2 < s->slot_count) {
        return true;
    }
    const uint32_t grown_count = s->slot_count ? s->slot_count * 2 : SLOT_COUNT_FIRST;
    struct qwp_feed_symbols_slot *grown = calloc(grown_count, sizeof *grown);
    if (grown == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < s->slot_count; i++) {
        if (s->slots[i].symbol != NULL) {
            put(grown, grown_count, s->slots[i]);
        }
    }
    free(s->slots);
    s->slots = grown;
    s->slot_count = grown_count;
    return true;
}

struct qwp_feed_symbol *qwp_feed_symbols_find(struct qwp_feed_symbols *s, const char *text,
                                              size_t len)
{
    const uint64_t hash = qwp_feed_hash(text, len);
    for (uint32_t i = (uint32_t)hash; s->slot_count != 0; i++) {
        const struct qwp_feed_symbols_slot *slot = &s->slots[i & (s->slot_count - 1)];
        if (slot->symbol == NULL) {
            break;
        }
        if (slot->hash == hash && slot->symbol->len == len &&
            memcmp(slot->symbol->text, text, len) == 0) {
            return slot->symbol;
        }
    }
    const uint32_t max = s->count_max != 0 ? s->count_max : QWP_FEED_SYMBOLS_MAX;
    if (s->closed || s->count >= max || len > UINT32_MAX || !make_room(s)) {
        return NULL;
    }
    struct qwp_feed_symbol *symbol = qwp_feed_arena_alloc(&s->arena, sizeof *symbol);
    char *copy = qwp_feed_arena_copy(&s->arena, text, len);
    if (symbol == NULL || copy == NULL) {
        return NULL;
    }
    *symbol = (struct qwp_feed_symbol){copy, (uint32_t)len, QWP_FEED_SYMBOL_NEW};
    put(s->slots, s->slot_count, (struct qwp_feed_symbols_slot){hash, symbol});
    s->count++;
    return symbol;
}

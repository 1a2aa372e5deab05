#include "clients/c/qwp_symbols.h"

#include <stdlib.h>

#include "core/qwp_assert.h"

static struct qwp_symbol_slot *slots_create(uint32_t count)
{
    struct qwp_symbol_slot *slots = calloc(count, sizeof *slots);
    for (uint32_t i = 0; slots != NULL && i < count; i++) {
        slots[i].index = QWP_SYMBOL_EMPTY;
    }
    return slots;
}

bool qwp_symbols_init(struct qwp_symbols *symbols, const void *texts, uint64_t seed)
{
    *symbols = (struct qwp_symbols){.slots = slots_create(QWP_SYMBOL_SLOTS_MIN),
                                    .mask = QWP_SYMBOL_SLOTS_MIN - 1,
                                    .seed = seed,
                                    .texts = texts};
    return symbols->slots != NULL;
}

void qwp_symbols_fini(struct qwp_symbols *symbols)
{
    free(symbols->slots);
    *symbols = (struct qwp_symbols){0};
}

static uint64_t long_hash(uint64_t seed, const char *text, size_t len)
{
    uint64_t hash = seed ^ len;
    const char *last = text + len - 16;
    for (; text < last; text += 16) {
        hash = qwp_symbol_mix(hash ^ qwp_load_u64(text),
                              qwp_load_u64(text + 8) ^ UINT64_C(0x9e3779b97f4a7c15));
    }
    return qwp_symbol_mix(hash ^ qwp_load_u64(last),
                          qwp_load_u64(last + 8) ^ UINT64_C(0xa0761d6478bd642f));
}

uint32_t qwp_symbols_find_long(const struct qwp_symbols *symbols, const char *text, size_t len)
{
    const uint64_t hash = long_hash(symbols->seed, text, len);
    for (uint64_t at = hash;; at++) {
        const struct qwp_symbol_slot *slot = &symbols->slots[at & symbols->mask];
        if (slot->index == QWP_SYMBOL_EMPTY ||
            (slot->len == len && slot->words[0] == hash &&
             memcmp(symbols->texts + slot->words[1], text, len) == 0)) {
            return slot->index;
        }
    }
}

static void slot_place(struct qwp_symbol_slot *slots, uint32_t mask, uint64_t hash,
                       const struct qwp_symbol_slot *entry)
{
    while (slots[hash & mask].index != QWP_SYMBOL_EMPTY) {
        hash++;
    }
    slots[hash & mask] = *entry;
}

static uint64_t slot_hash(const struct qwp_symbols *symbols, const struct qwp_symbol_slot *slot)
{
    return slot->len > QWP_SYMBOL_INLINE_BYTES
               ? slot->words[0]
               : qwp_symbol_hash(symbols->seed, slot->words, slot->len);
}

bool qwp_symbols_grow(struct qwp_symbols *symbols)
{
    const uint32_t slot_count = symbols->mask + 1;
    if (symbols->count < slot_count / 2) {
        return true;
    }
    struct qwp_symbol_slot *slots = slots_create(slot_count * 2);
    if (slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < slot_count; i++) {
        if (symbols->slots[i].index != QWP_SYMBOL_EMPTY) {
            slot_place(slots, slot_count * 2 - 1, slot_hash(symbols, &symbols->slots[i]),
                       &symbols->slots[i]);
        }
    }
    free(symbols->slots);
    symbols->slots = slots;
    symbols->mask = slot_count * 2 - 1;
    return true;
}

void qwp_symbols_add(struct qwp_symbols *symbols, const char *text, size_t len, uint64_t off,
                     uint32_t index)
{
    QWP_ASSERT(symbols->count <= symbols->mask / 2);
    struct qwp_symbol_slot entry = {.index = index, .len = (uint32_t)len};
    if (len > QWP_SYMBOL_INLINE_BYTES) {
        entry.words[0] = long_hash(symbols->seed, text, len);
        entry.words[1] = off;
    } else {
        qwp_symbol_words(text, len, entry.words);
    }
    slot_place(symbols->slots, symbols->mask, slot_hash(symbols, &entry), &entry);
    symbols->count++;
}

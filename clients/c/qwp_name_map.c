#include "clients/c/qwp_name_map.h"

#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

enum { SLOTS_MIN = 16 };

void qwp_name_map_fini(struct qwp_name_map *map)
{
    free(map->slots);
    *map = (struct qwp_name_map){0};
}

static void slot_place(uint64_t *slots, uint32_t mask, uint64_t slot)
{
    uint32_t at = (uint32_t)(slot >> 32);
    while (slots[at & mask] != 0) {
        at++;
    }
    slots[at & mask] = slot;
}

/* At most half full, so that a search ends. */
bool qwp_name_map_reserve(struct qwp_name_map *map, uint32_t count)
{
    const uint32_t had = map->slots == NULL ? 0 : map->mask + 1;
    if (count <= had / 2) {
        return true;
    }
    uint32_t want = had == 0 ? SLOTS_MIN : had;
    while (count > want / 2) {
        want *= 2;
    }
    uint64_t *slots = calloc(want, sizeof *slots);
    if (slots == NULL) {
        return false;
    }
    for (uint32_t i = 0; i < had; i++) {
        if (map->slots[i] != 0) {
            slot_place(slots, want - 1, map->slots[i]);
        }
    }
    free(map->slots);
    map->slots = slots;
    map->mask = want - 1;
    return true;
}

void qwp_name_map_add(struct qwp_name_map *map, struct qwp_name name, uint32_t number)
{
    QWP_ASSERT(map->count < (map->mask + 1) / 2);
    slot_place(map->slots, map->mask, qwp_name_hash(name.text, name.len) << 32 | (number + 1));
    map->count++;
}

int32_t qwp_name_map_find(const struct qwp_name_map *map, struct qwp_name name,
                          qwp_name_of_fn name_of, const void *owner)
{
    if (map->slots == NULL || !qwp_utf8_valid(name.text, name.len)) {
        return -1;
    }
    const uint32_t hash = (uint32_t)qwp_name_hash(name.text, name.len);
    for (uint32_t at = hash; map->slots[at & map->mask] != 0; at++) {
        const uint64_t slot = map->slots[at & map->mask];
        const uint32_t number = (uint32_t)slot - 1;
        const struct qwp_name known = name_of(owner, number);
        if (slot >> 32 == hash && qwp_name_equal(known.text, known.len, name.text, name.len)) {
            return (int32_t)number;
        }
    }
    return -1;
}

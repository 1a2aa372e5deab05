#include "core/store/qwp_dict.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"

enum {
    ENTRIES_PER_BLOCK = 4096,
    BLOCKS_MAX = QWP_DICT_IDS_MAX / ENTRIES_PER_BLOCK,
    CHUNK_BYTES = 64 * 1024, /* a longer text gets a chunk of its own */
    PLACES_FIRST = 1024,
    MOVES_PER_ADD = 8, /* > 4 / fill, so the old table is empty before the new one fills up */
};

struct entry {
    const char *text;
    uint32_t len;
};

struct chunk {
    struct chunk *older;
    char text[];
};

/* Open addressing, at most half full. id 0 is stored as 1, so that zeroed memory is empty. */
struct place {
    uint32_t id_plus_1;
    uint32_t hash;
};

struct table {
    struct place *places;
    uint32_t mask;
};

struct qwp_dict {
    /* writer: intake. readers: any. sync[dict.count]: everything that ids below count need. */
    _Atomic uint32_t count;
    /* writer: intake. readers: any. relaxed: a figure for status. */
    _Atomic uint64_t text_bytes;
    /* writer: intake, each element once, before the count that needs it. */
    struct entry *blocks[BLOCKS_MAX];

    /* The writer's own. */
    uint32_t symbols_max;
    uint64_t text_bytes_max;
    uint64_t seed;
    struct chunk *chunk; /* newest; the others behind it */
    size_t chunk_used, chunk_room;
    struct table now;
    struct table before; /* places NULL unless it is being moved */
    uint32_t before_next;
};

/* Folded multiplication, eight bytes a round. */
static uint64_t mix(uint64_t a, uint64_t b)
{
    const unsigned __int128 wide = (unsigned __int128)a * b;
    return (uint64_t)wide ^ (uint64_t)(wide >> 64);
}

static uint32_t hash_of(uint64_t seed, const char *text, size_t len)
{
    uint64_t h = seed ^ mix(len + 1, UINT64_C(0x9e3779b97f4a7c15));
    for (; len >= 8; len -= 8, text += 8) {
        h = mix(h ^ qwp_load_u64(text), seed | UINT64_C(0xa0761d6478bd642f));
    }
    uint64_t rest = 0;
    memcpy(&rest, text, len);
    h = mix(h ^ rest, seed | UINT64_C(0xe7037ed1a0b428db));
    return (uint32_t)(h ^ (h >> 32));
}

static struct entry *entry_of(const struct qwp_dict *dict, uint32_t id)
{
    return &dict->blocks[id / ENTRIES_PER_BLOCK][id % ENTRIES_PER_BLOCK];
}

static bool find(const struct qwp_dict *dict, const struct table *table, uint32_t hash,
                 const char *text, size_t len, uint32_t *id)
{
    for (uint32_t at = hash & table->mask;; at = (at + 1) & table->mask) {
        const struct place *place = &table->places[at];
        if (place->id_plus_1 == 0) {
            return false;
        }
        if (place->hash == hash) {
            const struct entry *entry = entry_of(dict, place->id_plus_1 - 1);
            if (entry->len == len && memcmp(entry->text, text, len) == 0) {
                *id = place->id_plus_1 - 1;
                return true;
            }
        }
    }
}

static void put(struct table *table, uint32_t hash, uint32_t id_plus_1)
{
    uint32_t at = hash & table->mask;
    while (table->places[at].id_plus_1 != 0) {
        at = (at + 1) & table->mask;
    }
    table->places[at] = (struct place){id_plus_1, hash};
}

/* The old table keeps its copies until it is freed: a probe chain through it must not break. */
static void move_some(struct qwp_dict *dict)
{
    if (dict->before.places == NULL) {
        return;
    }
    for (int i = 0; i < MOVES_PER_ADD; i++) {
        const struct place *place = &dict->before.places[dict->before_next];
        if (place->id_plus_1 != 0) {
            put(&dict->now, place->hash, place->id_plus_1);
        }
        if (dict->before_next++ == dict->before.mask) {
            free(dict->before.places);
            dict->before.places = NULL;
            return;
        }
    }
}

static enum qwp_result table_grow(struct qwp_dict *dict)
{
    QWP_ASSERT(dict->before.places == NULL);
    const uint32_t mask = dict->now.mask * 2 + 1;
    struct place *places = calloc((size_t)mask + 1, sizeof *places);
    if (places == NULL) {
        return QWP_NOMEM;
    }
    dict->before = dict->now;
    dict->before_next = 0;
    dict->now = (struct table){places, mask};
    return QWP_OK;
}

static enum qwp_result text_room(struct qwp_dict *dict, size_t len)
{
    if (dict->chunk != NULL && dict->chunk_room - dict->chunk_used >= len) {
        return QWP_OK;
    }
    const size_t room = len > CHUNK_BYTES ? len : CHUNK_BYTES;
    struct chunk *chunk = malloc(sizeof *chunk + room);
    if (chunk == NULL) {
        return QWP_NOMEM;
    }
    chunk->older = dict->chunk;
    dict->chunk = chunk;
    dict->chunk_used = 0;
    dict->chunk_room = room;
    return QWP_OK;
}

/* All that can fail comes first, so that a failure leaves the dictionary as it was. */
static enum qwp_result add(struct qwp_dict *dict, uint32_t hash, const char *text, size_t len)
{
    const uint32_t id = atomic_load_explicit(&dict->count, memory_order_relaxed);
    if (id >= QWP_DICT_IDS_MAX || len > UINT32_MAX) {
        return QWP_LIMIT;
    }
    struct entry **block = &dict->blocks[id / ENTRIES_PER_BLOCK];
    if (*block == NULL) {
        *block = calloc(ENTRIES_PER_BLOCK, sizeof **block);
        if (*block == NULL) {
            return QWP_NOMEM;
        }
    }
    if (text_room(dict, len) != QWP_OK) {
        return QWP_NOMEM;
    }
    if (id >= dict->now.mask / 2 && table_grow(dict) != QWP_OK) {
        return QWP_NOMEM;
    }
    char *copy = dict->chunk->text + dict->chunk_used;
    memcpy(copy, text, len);
    dict->chunk_used += len;
    *entry_of(dict, id) = (struct entry){copy, (uint32_t)len};
    put(&dict->now, hash, id + 1);
    move_some(dict);
    const uint64_t bytes = atomic_load_explicit(&dict->text_bytes, memory_order_relaxed);
    atomic_store_explicit(&dict->text_bytes, bytes + len, memory_order_relaxed);
    /* sync[dict.count] release: pairs with the acquire in qwp_dict_count(). */
    atomic_store_explicit(&dict->count, id + 1, memory_order_release);
    return QWP_OK;
}

static bool find_any(const struct qwp_dict *dict, uint32_t hash, const char *text, size_t len,
                     uint32_t *id)
{
    return find(dict, &dict->now, hash, text, len, id) ||
           (dict->before.places != NULL && find(dict, &dict->before, hash, text, len, id));
}

enum qwp_result qwp_dict_create(struct qwp_dict **out, uint32_t symbols_max,
                                uint64_t text_bytes_max, struct qwp_error *err)
{
    struct qwp_dict *dict = calloc(1, sizeof *dict);
    if (dict == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a symbol dictionary");
    }
    dict->symbols_max = symbols_max < QWP_DICT_IDS_MAX ? symbols_max : QWP_DICT_IDS_MAX;
    dict->text_bytes_max = text_bytes_max;
    if (getrandom(&dict->seed, sizeof dict->seed, GRND_NONBLOCK) != (ssize_t)sizeof dict->seed) {
        dict->seed = (uint64_t)(uintptr_t)dict; /* early boot: addresses are random as well */
    }
    dict->now.places = calloc(PLACES_FIRST, sizeof *dict->now.places);
    if (dict->now.places == NULL) {
        free(dict);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a symbol dictionary");
    }
    dict->now.mask = PLACES_FIRST - 1;
    *out = dict;
    return QWP_OK;
}

void qwp_dict_destroy(struct qwp_dict *dict)
{
    if (dict == NULL) {
        return;
    }
    while (dict->chunk != NULL) {
        struct chunk *older = dict->chunk->older;
        free(dict->chunk);
        dict->chunk = older;
    }
    for (size_t i = 0; i < BLOCKS_MAX; i++) {
        free(dict->blocks[i]);
    }
    free(dict->before.places);
    free(dict->now.places);
    free(dict);
}

enum qwp_result qwp_dict_intern(struct qwp_dict *dict, const char *text, size_t len, uint32_t *id)
{
    const uint32_t hash = hash_of(dict->seed, text, len);
    if (find_any(dict, hash, text, len, id)) {
        return QWP_OK;
    }
    const uint32_t count = atomic_load_explicit(&dict->count, memory_order_relaxed);
    const uint64_t bytes = atomic_load_explicit(&dict->text_bytes, memory_order_relaxed);
    if (count >= dict->symbols_max || bytes > dict->text_bytes_max ||
        len > dict->text_bytes_max - bytes) {
        return QWP_LIMIT;
    }
    const enum qwp_result result = add(dict, hash, text, len);
    if (result == QWP_OK) {
        *id = count;
    }
    return result;
}

bool qwp_dict_find(const struct qwp_dict *dict, const char *text, size_t len, uint32_t *id)
{
    return find_any(dict, hash_of(dict->seed, text, len), text, len, id);
}

/* The table finds the first of two equal texts in a probe chain, which is the older one as long as
 * both are in the same table; a moved table may turn them round, and either id is right. */
enum qwp_result qwp_dict_append(struct qwp_dict *dict, const char *text, size_t len)
{
    return add(dict, hash_of(dict->seed, text, len), text, len);
}

uint32_t qwp_dict_count(const struct qwp_dict *dict)
{
    /* sync[dict.count] acquire: pairs with the release in add(). */
    return atomic_load_explicit(&dict->count, memory_order_acquire);
}

uint64_t qwp_dict_text_bytes(const struct qwp_dict *dict)
{
    return atomic_load_explicit(&dict->text_bytes, memory_order_relaxed);
}

struct qwp_name qwp_dict_text(const void *dict, uint32_t id)
{
    const struct entry *entry = entry_of(dict, id);
    return (struct qwp_name){entry->text, entry->len};
}

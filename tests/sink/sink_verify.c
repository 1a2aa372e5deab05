#include "tests/sink/sink_verify.h"

#include <stdlib.h>
#include <string.h>

#include "core/wire/qwp_names.h"
#include "tests/sink/sink_buffer.h"

enum {
    FIRST_SLOTS = 256,
    CACHE_SLOTS = 256,
};
#define NUMBER_MAX UINT64_C(0xffffffff) /* half a gigabyte of bits */

struct sequence {
    const struct sink_table *table;
    char *key;
    uint32_t key_len;
    uint64_t hash;
    uint64_t *seen; /* one bit a number */
    uint64_t seen_words;
    uint64_t distinct;
    uint64_t next;            /* one above the highest */
    int64_t connection;       /* that brought the last row */
    uint64_t connection_next; /* one above the highest of that connection */
};

struct sink_verify {
    char *column;
    const char *key; /* NULL: one sequence a table */
    struct sequence **slots;
    uint64_t slot_count;
    struct sink_verify_counts counts;
    /* Symbol id -> sequence, for the block at hand. */
    struct {
        uint32_t id;
        struct sequence *sequence;
    } cache[CACHE_SLOTS];
};

enum qwp_result sink_verify_create(struct sink_verify **out, const char *spec,
                                   struct qwp_error *err)
{
    const char *comma = strchr(spec, ',');
    if (spec[0] == '\0' || comma == spec || (comma != NULL && comma[1] == '\0')) {
        return qwp_fail(err, QWP_INVALID, 0, "'%s' is neither COLUMN nor COLUMN,KEY", spec);
    }
    struct sink_verify *verify = sink_realloc(NULL, sizeof *verify);
    memset(verify, 0, sizeof *verify);
    verify->column = strdup(spec);
    if (verify->column == NULL) {
        free(verify);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory");
    }
    if (comma != NULL) {
        verify->column[comma - spec] = '\0';
        verify->key = verify->column + (comma - spec) + 1;
    }
    verify->slot_count = FIRST_SLOTS;
    verify->slots = sink_realloc(NULL, FIRST_SLOTS * sizeof *verify->slots);
    memset(verify->slots, 0, FIRST_SLOTS * sizeof *verify->slots);
    *out = verify;
    return QWP_OK;
}

void sink_verify_destroy(struct sink_verify *verify)
{
    if (verify == NULL) {
        return;
    }
    for (uint64_t i = 0; i < verify->slot_count; i++) {
        if (verify->slots[i] != NULL) {
            free(verify->slots[i]->key);
            free(verify->slots[i]->seen);
            free(verify->slots[i]);
        }
    }
    free(verify->slots);
    free(verify->column);
    free(verify);
}

static void place(struct sequence **slots, uint64_t slot_count, struct sequence *sequence)
{
    uint64_t slot = sequence->hash & (slot_count - 1);
    while (slots[slot] != NULL) {
        slot = (slot + 1) & (slot_count - 1);
    }
    slots[slot] = sequence;
}

static void grow(struct sink_verify *verify)
{
    const uint64_t count = 2 * verify->slot_count;
    struct sequence **slots = sink_realloc(NULL, count * sizeof(struct sequence *));
    memset(slots, 0, count * sizeof(struct sequence *));
    for (uint64_t i = 0; i < verify->slot_count; i++) {
        if (verify->slots[i] != NULL) {
            place(slots, count, verify->slots[i]);
        }
    }
    free(verify->slots);
    verify->slots = slots;
    verify->slot_count = count;
}

static uint64_t hash_of(const struct sink_table *table, const char *key, uint32_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ (uintptr_t)table;
    for (uint32_t i = 0; i < len; i++) {
        hash = (hash ^ (unsigned char)key[i]) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 29;
}

static struct sequence *find(struct sink_verify *verify, const struct sink_table *table,
                             const char *key, uint32_t len)
{
    const uint64_t hash = hash_of(table, key, len);
    uint64_t slot = hash & (verify->slot_count - 1);
    for (; verify->slots[slot] != NULL; slot = (slot + 1) & (verify->slot_count - 1)) {
        struct sequence *there = verify->slots[slot];
        if (there->hash == hash && there->table == table && there->key_len == len &&
            memcmp(there->key, key, len) == 0) {
            return there;
        }
    }
    struct sequence *sequence = sink_realloc(NULL, sizeof *sequence);
    *sequence = (struct sequence){.table = table,
                                  .key = sink_realloc(NULL, len + 1u),
                                  .key_len = len,
                                  .hash = hash,
                                  .connection = -1};
    memcpy(sequence->key, key, len);
    if (2 * ++verify->counts.sequences > verify->slot_count) {
        grow(verify);
    }
    place(verify->slots, verify->slot_count, sequence);
    return sequence;
}

/* Whether the number stands above all that the connection has brought. */
static bool note_connection(struct sequence *sequence, uint64_t number, int64_t connection)
{
    if (sequence->connection != connection) {
        sequence->connection = connection;
        sequence->connection_next = 0;
    }
    if (number < sequence->connection_next) {
        return false;
    }
    sequence->connection_next = number + 1;
    return true;
}

static void note(struct sink_verify *verify, struct sequence *sequence, uint64_t number,
                 int64_t connection)
{
    const bool above = note_connection(sequence, number, connection);
    const uint64_t word = number / 64;
    const uint64_t bit = UINT64_C(1) << (number % 64);
    if (word >= sequence->seen_words) {
        const uint64_t words = word < 512 ? 1024 : 2 * word;
        sequence->seen = sink_realloc(sequence->seen, words * sizeof *sequence->seen);
        memset(sequence->seen + sequence->seen_words, 0,
               (words - sequence->seen_words) * sizeof *sequence->seen);
        sequence->seen_words = words;
    }
    if ((sequence->seen[word] & bit) != 0) {
        verify->counts.doubled++;
        verify->counts.repeated += !above;
        return;
    }
    sequence->seen[word] |= bit;
    sequence->distinct++;
    if (number < sequence->next) {
        verify->counts.disordered++;
    } else {
        sequence->next = number + 1;
    }
}

static const struct qwp_column *column_of(const struct qwp_table_block *block, const char *name)
{
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_name there = block->columns[i].name;
        if (qwp_name_equal(there.text, there.len, name, strlen(name))) {
            return &block->columns[i];
        }
    }
    return NULL;
}

static bool is_integer(uint8_t type)
{
    return type == QWP_TYPE_BYTE || type == QWP_TYPE_SHORT || type == QWP_TYPE_INT ||
           type == QWP_TYPE_LONG;
}

static struct sequence *sequence_of(struct sink_verify *verify, const struct sink_table *table,
                                    const struct qwp_value *key)
{
    if (key->null) {
        return find(verify, table, "", 0);
    }
    const uint32_t slot = key->symbol.id % CACHE_SLOTS;
    if (verify->cache[slot].sequence == NULL || verify->cache[slot].id != key->symbol.id) {
        verify->cache[slot].id = key->symbol.id;
        verify->cache[slot].sequence =
            find(verify, table, key->symbol.text.text, key->symbol.text.len);
    }
    return verify->cache[slot].sequence;
}

void sink_verify_block(struct sink_verify *verify, const struct qwp_decoder *decoder,
                       const struct qwp_table_block *block, const struct sink_table *table,
                       int64_t connection)
{
    const struct qwp_column *numbers = column_of(block, verify->column);
    const struct qwp_column *keys = verify->key != NULL ? column_of(block, verify->key) : NULL;
    if (numbers == NULL || !is_integer(numbers->type)) {
        verify->counts.unverified += block->row_count;
        return;
    }
    struct qwp_cursor number_cursor;
    struct qwp_cursor key_cursor;
    struct qwp_value number;
    struct qwp_value key = {.null = true};
    const bool keyed = keys != NULL && keys->type == QWP_TYPE_SYMBOL;
    struct sequence *sequence = keyed ? NULL : find(verify, table, "", 0);
    memset(verify->cache, 0, sizeof verify->cache);
    qwp_cursor_init(&number_cursor, decoder, numbers);
    if (keyed) {
        qwp_cursor_init(&key_cursor, decoder, keys);
    }
    while (qwp_cursor_next(&number_cursor, &number)) {
        if (keyed) {
            (void)qwp_cursor_next(&key_cursor, &key);
            sequence = sequence_of(verify, table, &key);
        }
        if (number.null || number.i64 < 0 || (uint64_t)number.i64 > NUMBER_MAX) {
            verify->counts.unverified++;
        } else {
            note(verify, sequence, (uint64_t)number.i64, connection);
        }
    }
}

struct sink_verify_counts sink_verify_count(const struct sink_verify *verify)
{
    struct sink_verify_counts counts = verify->counts;
    for (uint64_t i = 0; i < verify->slot_count; i++) {
        if (verify->slots[i] != NULL) {
            counts.lost += verify->slots[i]->next - verify->slots[i]->distinct;
        }
    }
    return counts;
}

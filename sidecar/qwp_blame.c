#include "sidecar/qwp_blame.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

void qwp_blame_fini(struct qwp_blame *blame)
{
    free(blame->tables);
    free(blame->done);
    free(blame->split);
    *blame = (struct qwp_blame){0};
}

/* Room for one more. */
static bool grow(void **items, size_t *room, size_t count, size_t item_bytes)
{
    if (count < *room) {
        return true;
    }
    const size_t more = *room == 0 ? 16 : *room * 2;
    void *grown = realloc(*items, more * item_bytes);
    if (grown == NULL) {
        return false;
    }
    *items = grown;
    *room = more;
    return true;
}

struct qwp_blame_table *qwp_blame_find(const struct qwp_blame *blame, struct qwp_name table,
                                       uint64_t hash)
{
    for (size_t i = 0; i < blame->table_count; i++) {
        struct qwp_blame_table *known = &blame->tables[i];
        if (known->hash == hash &&
            qwp_name_equal(known->name, known->name_len, table.text, table.len)) {
            return known;
        }
    }
    return NULL;
}

struct qwp_blame_table *qwp_blame_add(struct qwp_blame *blame, struct qwp_name table, uint64_t hash)
{
    struct qwp_blame_table *known = qwp_blame_find(blame, table, hash);
    if (known != NULL) {
        return known;
    }
    QWP_ASSERT(table.len < sizeof known->name);
    if (!grow((void **)&blame->tables, &blame->table_room, blame->table_count,
              sizeof *blame->tables)) {
        return NULL;
    }
    known = &blame->tables[blame->table_count++];
    *known =
        (struct qwp_blame_table){.name_len = table.len, .hash = hash, .state = QWP_BLAME_SUSPECT};
    memcpy(known->name, table.text, table.len);
    return known;
}

void qwp_blame_forget(struct qwp_blame *blame, struct qwp_blame_table *table)
{
    *table = blame->tables[--blame->table_count];
}

/* ---- done ---- */

/* Index of the first of frames from `fsn` on. */
static size_t done_from(const struct qwp_blame *blame, uint64_t fsn)
{
    size_t low = 0;
    size_t high = blame->done_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (blame->done[middle].fsn < fsn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

struct qwp_done *qwp_blame_find_done(const struct qwp_blame *blame, uint64_t fsn, uint64_t hash)
{
    for (size_t i = done_from(blame, fsn); i < blame->done_count && blame->done[i].fsn == fsn;
         i++) {
        if (blame->done[i].hash == hash) {
            return &blame->done[i];
        }
    }
    return NULL;
}

uint64_t qwp_blame_done(const struct qwp_blame *blame, uint64_t fsn, uint64_t hash)
{
    const struct qwp_done *done = qwp_blame_find_done(blame, fsn, hash);
    return done != NULL ? done->rows : 0;
}

bool qwp_blame_set_done(struct qwp_blame *blame, uint64_t fsn, uint64_t hash, uint64_t rows)
{
    struct qwp_done *done = qwp_blame_find_done(blame, fsn, hash);
    if (done != NULL) {
        done->rows = rows > done->rows ? rows : done->rows;
        return true;
    }
    if (!grow((void **)&blame->done, &blame->done_room, blame->done_count, sizeof *blame->done)) {
        return false;
    }
    const size_t at = done_from(blame, fsn + 1);
    memmove(&blame->done[at + 1], &blame->done[at], (blame->done_count - at) * sizeof *blame->done);
    blame->done[at] = (struct qwp_done){fsn, hash, rows, 0};
    blame->done_count++;
    return true;
}

/* ---- split ---- */

bool qwp_blame_is_split(const struct qwp_blame *blame, uint64_t fsn)
{
    for (size_t i = 0; i < blame->split_count; i++) {
        if (blame->split[i] == fsn) {
            return true;
        }
    }
    return false;
}

bool qwp_blame_set_split(struct qwp_blame *blame, uint64_t fsn)
{
    if (qwp_blame_is_split(blame, fsn) || !grow((void **)&blame->split, &blame->split_room,
                                                blame->split_count, sizeof *blame->split)) {
        return false;
    }
    blame->split[blame->split_count++] = fsn;
    return true;
}

void qwp_blame_settle(struct qwp_blame *blame, uint64_t acked_count)
{
    const size_t gone = done_from(blame, acked_count);
    if (gone > 0) {
        blame->done_count -= gone;
        memmove(blame->done, &blame->done[gone], blame->done_count * sizeof *blame->done);
    }
    for (size_t i = 0; i < blame->split_count;) {
        if (blame->split[i] < acked_count) {
            blame->split[i] = blame->split[--blame->split_count];
        } else {
            i++;
        }
    }
}

bool qwp_blame_is_clear(const struct qwp_blame *blame)
{
    return blame->table_count == 0 && blame->done_count == 0 && blame->split_count == 0;
}

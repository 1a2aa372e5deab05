#include "sidecar/qwp_roll.h"

#include <stdlib.h>

bool qwp_roll_init(struct qwp_roll *roll)
{
    *roll = (struct qwp_roll){0};
    roll->notes = calloc(QWP_ROLL_MAX, sizeof *roll->notes); /* touched as it fills */
    return roll->notes != NULL;
}

void qwp_roll_fini(struct qwp_roll *roll)
{
    free(roll->notes);
    *roll = (struct qwp_roll){0};
}

static struct qwp_roll_note *note_at(const struct qwp_roll *roll, uint64_t index)
{
    return &roll->notes[index % QWP_ROLL_MAX];
}

void qwp_roll_add(struct qwp_roll *roll, struct qwp_roll_note note)
{
    if (roll->end - roll->first == QWP_ROLL_MAX) {
        roll->first++;
    }
    *note_at(roll, roll->end++) = note;
}

void qwp_roll_settle(struct qwp_roll *roll, uint64_t acked_count)
{
    while (roll->first < roll->end && note_at(roll, roll->first)->fsn < acked_count) {
        roll->first++;
    }
    if (roll->first == roll->end) {
        roll->first = roll->end = 0; /* where the cache has it, and no page is new */
    }
}

/* Index of the first note of frames from `fsn` on. */
static uint64_t note_from(const struct qwp_roll *roll, uint64_t fsn)
{
    uint64_t low = roll->first;
    uint64_t high = roll->end;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (note_at(roll, middle)->fsn < fsn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

uint64_t qwp_roll_each(const struct qwp_roll *roll, uint64_t fsn, const void *table,
                       uint64_t first_row, uint64_t row_count, qwp_roll_fn fn, void *owner)
{
    uint64_t row = 0;
    uint64_t known = 0;
    for (uint64_t i = note_from(roll, fsn); i < roll->end && note_at(roll, i)->fsn == fsn; i++) {
        const struct qwp_roll_note *note = note_at(roll, i);
        if (note->table != table) {
            continue;
        }
        const uint64_t from = row > first_row ? row : first_row;
        row += note->row_count;
        const uint64_t to = row < first_row + row_count ? row : first_row + row_count;
        if (from < to) {
            fn(owner, note->source, to - from);
            known += to - from;
        }
    }
    return known;
}

#include "sidecar/qwp_notes.h"

static struct qwp_note *note_at(struct qwp_notes *notes, uint32_t i)
{
    return &notes->items[(notes->first + i) % QWP_NOTES_MAX];
}

static void notes_thin(struct qwp_notes *notes)
{
    for (uint32_t i = 0; i < QWP_NOTES_MAX / 2; i++) {
        struct qwp_note merged = *note_at(notes, 2 * i + 1);
        merged.rows += note_at(notes, 2 * i)->rows;
        *note_at(notes, i) = merged;
    }
    notes->count = QWP_NOTES_MAX / 2;
}

void qwp_notes_add(struct qwp_notes *notes, struct qwp_note note)
{
    if (notes->count == QWP_NOTES_MAX) {
        notes_thin(notes);
    }
    *note_at(notes, notes->count++) = note;
}

uint64_t qwp_notes_settle(struct qwp_notes *notes, uint64_t acked_count, uint64_t *pos)
{
    uint64_t rows = 0;
    while (notes->count > 0 && note_at(notes, 0)->fsn < acked_count) {
        rows += note_at(notes, 0)->rows;
        *pos = note_at(notes, 0)->pos;
        notes->first = (notes->first + 1) % QWP_NOTES_MAX;
        notes->count--;
    }
    return rows;
}

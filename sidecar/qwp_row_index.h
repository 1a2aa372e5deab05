/* qwp_row_index: pass 1 over the records: what steers is copied once, judged, and kept in private
 * memory.
 *
 * Two reads of a ring's byte are two different bytes, so everything that decides where the encoder
 * reads or how much it writes - sizes, shapes, null words, lengths - is taken from here afterwards,
 * never from the record again.
 *
 * Threads: intake's.
 * Trust:   records are another process's; the first thing wrong with one is an error that says
 * what. */
#ifndef QWP_ROW_INDEX_H
#define QWP_ROW_INDEX_H

#include "core/store/qwp_dict.h"
#include "sidecar/qwp_arena.h"
#include "sidecar/qwp_source.h"

enum { QWP_ROW_NULLS = 1, QWP_ROW_PARTS = 2, QWP_ROW_SYMBOL_TEXT = 4, QWP_ROW_CHUNK = 8 };

struct qwp_staged_chunk; /* qwp_chunk_index.h */

/* A row, or `alike` of them: one behind the other in the ring, of one size and shape, with neither
 * nulls nor parts. Then they have as many numbers, and only the first one's entry counts. */
struct qwp_row {
    const unsigned char *record; /* in the ring: untrusted */
    union {
        const uint64_t *steering;             /* ours: see struct qwp_run */
        const struct qwp_staged_chunk *chunk; /* ours; QWP_ROW_CHUNK: it is many rows */
    };
    struct qwp_known_shape *known;
    struct qwp_source *source;
    uint32_t part_bytes; /* its variable parts together */
    uint32_t size_bytes; /* of each record */
    uint32_t next;       /* entry of the same table, for whoever links them */
    uint16_t flags;      /* QWP_ROW_* */
    uint16_t alike;
};

struct qwp_row_index {
    struct qwp_dict *dict; /* where texts in rows are interned */
    struct qwp_row *rows;
    uint32_t count, capacity;
    struct qwp_arena steering;
    unsigned char *def_entry; /* scratch, for a definition */
    char *text;               /* a symbol on its way into the dictionary */
    size_t text_capacity;
};

/* Steering and null union of rows without nulls. */
extern const uint64_t qwp_no_nulls[(QWP_COLUMNS_MAX + 63) / 64];

QWP_MUST_USE enum qwp_result qwp_row_index_init(struct qwp_row_index *index, struct qwp_dict *dict);
void qwp_row_index_fini(struct qwp_row_index *index);
void qwp_row_index_reset(struct qwp_row_index *index);

/* Adds the rows of the next unit of `source` below its tail_seen_pos; *end is the position behind
 * it. QWP_AGAIN: there is none, or it waits for symbols; QWP_CORRUPT: the source is at fault;
 * QWP_NOMEM. On failure the caller cuts count back to what it was. */
QWP_MUST_USE enum qwp_result qwp_row_index_unit(struct qwp_row_index *index,
                                                struct qwp_source *source, uint64_t *end,
                                                struct qwp_error *err);
/* Adds the units behind *end and moves it, as long as they are rows that need nothing but to be
 * looked at and there are fewer than `count_max` rows in the index. What stops it, a fault of the
 * producer or of ours, qwp_row_index_unit() finds. */
void qwp_row_index_more(struct qwp_row_index *index, struct qwp_source *source, uint64_t *end,
                        uint32_t count_max);

/* Makes row `at` the first of an entry, if need be by taking the one apart that it stands in; entry
 * `from` is not behind it. */
void qwp_row_index_cut(struct qwp_row_index *index, uint32_t from, uint32_t at);

/* Copies a symbol out of the ring, judges and interns the copy, and gives its qwp_symbol_code(). */
QWP_MUST_USE enum qwp_result qwp_row_index_intern(struct qwp_row_index *index,
                                                  struct qwp_source *source,
                                                  const unsigned char *text, uint32_t len,
                                                  uint32_t *code, struct qwp_error *err);
/* Sees to it that the symbol which a row names by its index in the ring is in the dictionary; only
 * needed while source->symbols.unset > 0. Both: QWP_AGAIN when the ring has to wait for that. */
QWP_MUST_USE enum qwp_result qwp_row_index_symbol(struct qwp_row_index *index,
                                                  struct qwp_source *source, uint32_t field,
                                                  struct qwp_error *err);

#endif

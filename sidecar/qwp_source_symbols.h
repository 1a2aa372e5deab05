/* qwp_source_symbols: what a ring's symbols are in the dictionary of the present generation, and
 * how many the ring has brought to it.
 *
 * A definition that comes while the ring is in use is interned at once: a row is about to use it.
 * Those of a ring that was in use before, and all of them when a generation begins, are interned by
 * the first row that uses them, from the text in the ring: so a generation holds what its rows
 * need, not what rings have defined over the years.
 *
 * The share: a producer that has brought so many symbols to a generation brings no more. Its rows
 * with symbols that the dictionary knows go on; at the first one with another the ring waits, and
 * so, when it is full, does the producer, until the next generation begins. Nothing is lost, rows
 * keep their order, and everyone else has the rest of the dictionary. A unit of rows that begins
 * below the share goes through whole, so a unit with more symbols than that does not wait for ever.
 *
 * Threads: intake's.
 * Trust:   a text is read again from the ring, judged anew, and may be another one by then: it is
 *          that ring's own symbol that is wrong. An index that pass 2 reads without pass 1 having
 *          seen it has the code of symbol 0, which every frame with a symbol may use. */
#ifndef QWP_SOURCE_SYMBOLS_H
#define QWP_SOURCE_SYMBOLS_H

#include <stdbool.h>

#include "core/store/qwp_dict.h"
#include "ipc/qwp_ring.h"

struct qwp_source_symbols {
    uint32_t *codes;  /* by the ring's symbol index: qwp_symbol_code() of the global id */
    uint32_t *places; /* the same: position of its definition / 8; top bit: not interned yet */
    uint32_t count, capacity;
    uint32_t unset;   /* so many are not interned yet */
    bool is_live;     /* new definitions belong to rows that are about to come */
    bool may_bring;   /* the present unit */
    uint32_t brought; /* to this generation */
    uint64_t brought_bytes;
    uint64_t brought_in_all;
    uint64_t waits; /* so often the ring had to wait for the next generation */
    uint32_t share; /* 0: none is set, for tests */
    uint64_t share_bytes;
};

void qwp_source_symbols_fini(struct qwp_source_symbols *symbols);
/* Of each generation. */
void qwp_source_symbols_share(struct qwp_source_symbols *symbols, uint32_t count, uint64_t bytes);
/* A generation begins: nothing is in its dictionary. */
void qwp_source_symbols_reset(struct qwp_source_symbols *symbols);

/* The next definition, found at `pos`. QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_source_symbols_define(struct qwp_source_symbols *symbols,
                                                       struct qwp_dict *dict, uint64_t pos,
                                                       const char *text, size_t len,
                                                       struct qwp_error *err);
/* Whether the unit of rows that begins now may bring new ones. */
void qwp_source_symbols_unit(struct qwp_source_symbols *symbols);
/* The code of a valid text. QWP_AGAIN: new, and the ring has to wait. QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_source_symbols_intern(struct qwp_source_symbols *symbols,
                                                       struct qwp_dict *dict, const char *text,
                                                       size_t len, uint32_t *code);
/* Interns the symbol `index`, which is defined; the same, and QWP_CORRUPT. `entry`:
 * QWP_RING_DEF_BYTES_MAX of scratch. */
QWP_MUST_USE enum qwp_result qwp_source_symbols_use(struct qwp_source_symbols *symbols,
                                                    struct qwp_dict *dict,
                                                    const struct qwp_ring_rx *rx, uint32_t index,
                                                    unsigned char *entry, struct qwp_error *err);
static inline bool qwp_source_symbols_is_set(const struct qwp_source_symbols *symbols,
                                             uint32_t index)
{
    return (symbols->places[index] & UINT32_C(0x80000000)) == 0;
}

#endif

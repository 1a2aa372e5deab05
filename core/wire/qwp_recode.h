/* qwp_recode: rows of a decoded block written again as a block of their own.
 *
 * For messages that have to be taken apart: some rows of a block where the whole is too large, or
 * the same rows under other symbol ids. Values are copied as they are on the wire; only timestamps
 * are encoded anew. A block that stays whole and keeps its ids is better copied byte by byte.
 *
 * Threads: none. Not for hot paths: value by value where the width is not fixed. */
#ifndef QWP_RECODE_H
#define QWP_RECODE_H

#include <stddef.h>

#include "core/wire/qwp_decode.h"

/* Bytes that grow; after a failure (no memory) further ones are not taken. Zero is empty. */
struct qwp_bytes {
    unsigned char *at; /* owned */
    size_t len;
    size_t room;
    bool failed;
};

void qwp_bytes_fini(struct qwp_bytes *bytes);
/* The place of `len` more bytes, or NULL. */
unsigned char *qwp_bytes_grow(struct qwp_bytes *bytes, size_t len);
void qwp_bytes_put(struct qwp_bytes *bytes, const void *at, size_t len);
void qwp_bytes_put_varint(struct qwp_bytes *bytes, uint64_t v);

/* The id that stands for `id` in the new message. */
typedef uint32_t (*qwp_recode_symbol_fn)(void *owner, uint32_t id);

struct qwp_recode {
    const struct qwp_decoder *decoder; /* whose block is open */
    const struct qwp_table_block *block;
    uint8_t flags;                  /* of the message, old and new */
    qwp_recode_symbol_fn symbol_id; /* NULL: they stay */
    void *owner;
    /* By column: a wider type of its kind to write it in (LONG for BYTE, DOUBLE for FLOAT).
     * NULL: the types stay. */
    const uint8_t *types;
};

/* Appends a block of the `count` rows from `first` on. out->failed tells of missing memory. */
void qwp_recode_rows(const struct qwp_recode *recode, uint32_t first, uint32_t count,
                     struct qwp_bytes *out);

#endif

/* qwp_dict: the symbol dictionary of one slot: text <-> dense global id, append-only.
 *
 * Threads:  one writer (intake). Readers on other threads (the sender's catch-up) may call
 *           qwp_dict_count() and, for ids below a count they have seen, qwp_dict_text().
 *           sync[dict.count]: texts below count are written and never move.
 * Progress: no locks. intern() allocates only when a chunk or the table is full; the table grows
 *           by moving a few places with each new text, so no call takes long.
 * Trust:    texts come from producers, perhaps hostile ones, so the hash is seeded. */
#ifndef QWP_DICT_H
#define QWP_DICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_shape.h"

struct qwp_dict;

/* Whatever the bounds say, a dictionary never holds more than this (what servers accept from
 * 10.0 on is 2,000,000). */
enum { QWP_DICT_IDS_MAX = 2 * 1024 * 1024 };

QWP_MUST_USE enum qwp_result qwp_dict_create(struct qwp_dict **out, uint32_t symbols_max,
                                             uint64_t text_bytes_max, struct qwp_error *err);
void qwp_dict_destroy(struct qwp_dict *dict); /* NULL is fine */

/* Finds or adds. `text` is copied; valid UTF-8 is the caller's business. QWP_LIMIT: full (a new
 * generation is due), QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_dict_intern(struct qwp_dict *dict, const char *text, size_t len,
                                             uint32_t *id);
/* Finds only. */
bool qwp_dict_find(const struct qwp_dict *dict, const char *text, size_t len, uint32_t *id);
/* Adds under the next id without asking whether the text is known or the bounds allow it: for
 * recovery, where the file says which id a text has. For a text met twice intern() gives either
 * id. QWP_LIMIT only at QWP_DICT_IDS_MAX. */
QWP_MUST_USE enum qwp_result qwp_dict_append(struct qwp_dict *dict, const char *text, size_t len);
uint32_t qwp_dict_count(const struct qwp_dict *dict);
uint64_t qwp_dict_text_bytes(const struct qwp_dict *dict);
struct qwp_name qwp_dict_text(const void *dict, uint32_t id); /* a qwp_symbol_text_fn */

#endif

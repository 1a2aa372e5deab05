/* qwp_dict: the symbol dictionary of one slot: text <-> dense global id, append-only.
 *
 * Threads: one writer (intake). Readers on other threads (the sender's catch-up) may call
 *          qwp_dict_count() and, for ids below a count they have seen, qwp_dict_text().
 *          sync[dict.count]: texts below count are written and never move.
 * Crash:   qwp_dict_append_file() writes the chunk before the frame that uses it is published. */
#ifndef QWP_DICT_H
#define QWP_DICT_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "core/qwp_shape.h"

struct qwp_dict;

QWP_MUST_USE enum qwp_result qwp_dict_create(struct qwp_dict **out, uint32_t symbols_max,
                                             uint64_t text_bytes_max, struct qwp_error *err);
void qwp_dict_destroy(struct qwp_dict *dict);

/* Finds or adds. `text` is copied; valid UTF-8 is the caller's business. QWP_LIMIT: full (a new
 * generation is due), QWP_NOMEM. */
QWP_MUST_USE enum qwp_result qwp_dict_intern(struct qwp_dict *dict, const char *text, size_t len,
                                             uint32_t *id);
uint32_t qwp_dict_count(const struct qwp_dict *dict);
uint64_t qwp_dict_text_bytes(const struct qwp_dict *dict);
struct qwp_name qwp_dict_text(const void *dict, uint32_t id); /* a qwp_symbol_text_fn */

#endif

/* qwp_names: which names and texts may go to a server.
 *
 * Names become files there, and a bad one is retried for ever or makes the table unreadable, so the
 * producer library refuses them and intake checks again. */
#ifndef QWP_NAMES_H
#define QWP_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

/* QWP_OK, or QWP_INVALID with what is wrong with the name, in words. `max` bytes at the most
 * (QWP_NAME_BYTES_MAX unless the server was told otherwise). */
QWP_MUST_USE enum qwp_result qwp_table_name_check(const char *name, size_t len, size_t max,
                                                  struct qwp_error *err);
QWP_MUST_USE enum qwp_result qwp_column_name_check(const char *name, size_t len, size_t max,
                                                   struct qwp_error *err);

/* Whether the server takes both for the same column or table: equal without regard to case. */
bool qwp_name_equal(const char *a, size_t a_len, const char *b, size_t b_len);
/* Hash that is equal for names that qwp_name_equal() says are. */
uint64_t qwp_name_hash(const char *name, size_t len);

/* RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF. Fast for ASCII. */
bool qwp_utf8_valid(const void *text, size_t len);

#endif

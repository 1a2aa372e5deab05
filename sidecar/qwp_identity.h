/* qwp_identity: users and groups as people write them: names or numbers.
 *
 * Names are looked up in the system's databases, which in a container often know nobody: numbers
 * always work. */
#ifndef QWP_IDENTITY_H
#define QWP_IDENTITY_H

#include <stdint.h>

#include "core/qwp_error.h"

enum { QWP_IDENTITY_USERS_MAX = 64 };

/* "alice,1000,bob". QWP_INVALID: a name that nobody has, or more than there is room for. */
QWP_MUST_USE enum qwp_result qwp_identity_users(const char *list,
                                                uint32_t uids[QWP_IDENTITY_USERS_MAX],
                                                uint32_t *count, struct qwp_error *err);
QWP_MUST_USE enum qwp_result qwp_identity_group(const char *text, uint32_t *gid,
                                                struct qwp_error *err);

#endif

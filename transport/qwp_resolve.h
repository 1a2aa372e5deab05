/* qwp_resolve: host names to addresses, without blocking the loop.
 *
 * getaddrinfo() can take seconds, so it runs on a thread of its own, started for one look-up and
 * gone with it. An address in text form needs none and is answered at once.
 *
 * Threads:  that of its loop; the helper thread touches nothing but its look-up.
 * Errors:   the callback gets a text that names the host and what the resolver said. */
#ifndef QWP_RESOLVE_H
#define QWP_RESOLVE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "core/qwp_error.h"
#include "transport/qwp_loop.h"

enum { QWP_ADDRESSES_MAX = 16 };

struct qwp_address {
    struct sockaddr_storage storage;
    socklen_t len;
};
struct qwp_addresses {
    size_t count; /* in the order of preference; what is beyond the bound is left out */
    struct qwp_address list[QWP_ADDRESSES_MAX];
};

struct qwp_resolver;

/* `addresses` NULL: the look-up failed, see `err`. Both are borrowed for the call. */
typedef void (*qwp_resolved_fn)(void *owner, const struct qwp_addresses *addresses,
                                const struct qwp_error *err);

QWP_MUST_USE enum qwp_result qwp_resolver_open(struct qwp_resolver **out, struct qwp_loop *loop,
                                               qwp_resolved_fn resolved, void *owner,
                                               struct qwp_error *err);
/* Drops a look-up under way. NULL is fine. */
void qwp_resolver_close(struct qwp_resolver *resolver);

/* Looks `host` up; the callback comes once, perhaps before this returns. One at a time: a new
 * look-up drops the one before. On failure no callback comes: QWP_LIMIT while too many that were
 * dropped still run. */
QWP_MUST_USE enum qwp_result qwp_resolve_start(struct qwp_resolver *resolver, const char *host,
                                               uint16_t port, struct qwp_error *err);

#endif

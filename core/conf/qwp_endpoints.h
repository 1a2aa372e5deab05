/* qwp_endpoints: the servers of an `addr` value: HOST[:PORT],HOST[:PORT],... */
#ifndef QWP_ENDPOINTS_H
#define QWP_ENDPOINTS_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

enum { QWP_PORT_DEFAULT = 9000 };

struct qwp_endpoint {
    const char *host; /* a name, an IPv4 address, or an IPv6 address without brackets */
    uint16_t port;
};

struct qwp_endpoints {
    struct qwp_endpoint *list; /* in the order given */
    size_t count;
};

/* Adds what `value` names, which is cut up in place and borrowed until fini. QWP_INVALID: an entry
 * that is empty, malformed, or there already. */
QWP_MUST_USE enum qwp_result qwp_endpoints_parse(struct qwp_endpoints *endpoints, char *value,
                                                 struct qwp_error *err);
/* A zeroed one is fine. */
void qwp_endpoints_fini(struct qwp_endpoints *endpoints);

#endif

/* sink_tls: the server's side of TLS 1.2 and 1.3, and certificates of its own making.
 *
 * A self-signed directory holds ca.pem (give it to clients as `tls_roots`), server.pem and
 * server.key. What is there is used again, so that clients still trust a restarted sink. */
#ifndef SINK_TLS_H
#define SINK_TLS_H

#include <openssl/ssl.h>

#include "core/qwp_error.h"

QWP_MUST_USE enum qwp_result sink_tls_open(SSL_CTX **out, const char *cert_file,
                                           const char *key_file, struct qwp_error *err);
/* Makes what is missing in `dir` (and `dir` itself), then opens it. */
QWP_MUST_USE enum qwp_result sink_tls_open_self_signed(SSL_CTX **out, const char *dir,
                                                       struct qwp_error *err);

#endif

#include "transport/qwp_tls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"

/* AES-GCM keeps its margin for 2^24.5 full records under one key (RFC 8446, 5.5). */
static const uint64_t key_records_max = UINT64_C(1) << 23;

/* AES-128-GCM first: the fastest with AES instructions, and what the records are sized for. */
static const char suites_13[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";
static const char suites_12[] = "ECDHE+AES128+AESGCM:ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:"
                                "ECDHE+AES:!aNULL:!eNULL:!MD5:!3DES";

struct qwp_tls_context {
    SSL_CTX *ssl;
};

/* ---- the BIO: in from what was fed, out to the outbox ---- */

static int bio_write(BIO *bio, const char *bytes, int len)
{
    struct qwp_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (len <= 0) {
        return 0;
    }
    if ((size_t)len > qwp_outbox_room(tls->outbox)) {
        BIO_set_retry_write(bio);
        tls->wants_room = true;
        return -1;
    }
    memcpy(qwp_outbox_end(tls->outbox), bytes, (size_t)len);
    qwp_outbox_appended(tls->outbox, (size_t)len);
    return len;
}

static int bio_read(BIO *bio, char *buffer, int cap)
{
    struct qwp_tls *tls = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (cap <= 0) {
        return 0;
    }
    if (tls->in_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    const size_t n = tls->in_len < (size_t)cap ? tls->in_len : (size_t)cap;
    memcpy(buffer, tls->in, n);
    tls->in += n;
    tls->in_len -= n;
    return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

static int bio_create(BIO *bio)
{
    BIO_set_init(bio, 1);
    return 1;
}

/* One for the process, for good: a connection may outlive the context it was made from. */
static BIO_METHOD *bio_method;
static CRYPTO_ONCE bio_method_once = CRYPTO_ONCE_STATIC_INIT;

static void make_bio_method(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "qwp session");
    if (method == NULL || BIO_meth_set_write(method, bio_write) != 1 ||
        BIO_meth_set_read(method, bio_read) != 1 || BIO_meth_set_ctrl(method, bio_ctrl) != 1 ||
        BIO_meth_set_create(method, bio_create) != 1) {
        BIO_meth_free(method);
        return;
    }
    bio_method = method;
}

/* ---- errors ---- */

/* The first error of the queue is the cause; the rest are those who passed it on. */
static void take_reason(char *out, size_t cap)
{
    const unsigned long code = ERR_get_error();
    const char *reason = code == 0 ? NULL : ERR_reason_error_string(code);
    if (reason != NULL) {
        snprintf(out, cap, "%s", reason);
    } else if (code != 0) {
        snprintf(out, cap, "OpenSSL error %lx", code);
    } else {
        snprintf(out, cap, "no reason given");
    }
    ERR_clear_error();
}

/* ---- context ---- */

static enum qwp_result fail_roots(struct qwp_error *err, const char *path, const char *what)
{
    char reason[128];
    take_reason(reason, sizeof reason);
    return qwp_fail(err, QWP_INVALID, 0, "tls_roots \"%s\": %s (%s)", path, what, reason);
}

static enum qwp_result load_pem(SSL_CTX *ssl, const char *path, struct qwp_error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return qwp_fail(err, QWP_IO, errno, "tls_roots \"%s\"", path);
    }
    fclose(file);
    if (SSL_CTX_load_verify_file(ssl, path) != 1) {
        return fail_roots(err, path,
                          "no certificate in PEM form; PKCS#12 needs tls_roots_password");
    }
    return QWP_OK;
}

static bool add_certificates(X509_STORE *store, X509 *leaf, STACK_OF(X509) * others)
{
    bool all = true;
    if (leaf != NULL) {
        all = X509_STORE_add_cert(store, leaf) == 1;
    }
    for (int i = 0; i < sk_X509_num(others); i++) {
        all = X509_STORE_add_cert(store, sk_X509_value(others, i)) == 1 && all;
    }
    return all;
}

static enum qwp_result load_pkcs12(SSL_CTX *ssl, const char *path, const char *password,
                                   struct qwp_error *err)
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return qwp_fail(err, QWP_IO, errno, "tls_roots \"%s\"", path);
    }
    PKCS12 *bag = d2i_PKCS12_fp(file, NULL);
    fclose(file);
    if (bag == NULL) {
        return fail_roots(err, path, "not a PKCS#12 file; PEM takes no tls_roots_password");
    }
    EVP_PKEY *key = NULL;
    X509 *leaf = NULL;
    STACK_OF(X509) *others = NULL;
    enum qwp_result result = QWP_OK;
    if (PKCS12_parse(bag, password, &key, &leaf, &others) != 1) {
        result =
            fail_roots(err, path, "cannot be opened: wrong tls_roots_password, or an old cipher");
    } else if (leaf == NULL && sk_X509_num(others) <= 0) {
        result = qwp_fail(err, QWP_INVALID, 0, "tls_roots \"%s\": holds no certificate", path);
    } else if (!add_certificates(SSL_CTX_get_cert_store(ssl), leaf, others)) {
        result = fail_roots(err, path, "a certificate could not be added");
    }
    EVP_PKEY_free(key);
    X509_free(leaf);
    sk_X509_pop_free(others, X509_free);
    PKCS12_free(bag);
    return result;
}

static enum qwp_result load_roots(SSL_CTX *ssl, const struct qwp_tls_options *options,
                                  struct qwp_error *err)
{
    if (!options->verify) {
        SSL_CTX_set_verify(ssl, SSL_VERIFY_NONE, NULL);
        return QWP_OK;
    }
    SSL_CTX_set_verify(ssl, SSL_VERIFY_PEER, NULL);
    if (options->roots == NULL) {
        if (SSL_CTX_set_default_verify_paths(ssl) != 1) {
            return qwp_fail(err, QWP_IO, 0, "TLS: the system's certificate store is not to be had");
        }
        return QWP_OK;
    }
    return options->roots_password != NULL
               ? load_pkcs12(ssl, options->roots, options->roots_password, err)
               : load_pem(ssl, options->roots, err);
}

enum qwp_result qwp_tls_context_create(struct qwp_tls_context **out,
                                       const struct qwp_tls_options *options, struct qwp_error *err)
{
    ERR_clear_error();
    struct qwp_tls_context *context = calloc(1, sizeof *context);
    if (context == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "TLS: out of memory");
    }
    enum qwp_result result = QWP_NOMEM;
    context->ssl = SSL_CTX_new(TLS_client_method());
    if (context->ssl == NULL || CRYPTO_THREAD_run_once(&bio_method_once, make_bio_method) != 1 ||
        bio_method == NULL || SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context->ssl, suites_13) != 1 ||
        SSL_CTX_set_cipher_list(context->ssl, suites_12) != 1) {
        char reason[128];
        take_reason(reason, sizeof reason);
        (void)qwp_fail(err, result, 0, "TLS: OpenSSL could not be set up: %s", reason);
        goto fail;
    }
    SSL_CTX_set_options(context->ssl, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
    SSL_CTX_set_session_cache_mode(context->ssl, SSL_SESS_CACHE_OFF);
    result = load_roots(context->ssl, options, err);
    if (result != QWP_OK) {
        goto fail;
    }
    *out = context;
    return QWP_OK;
fail:
    qwp_tls_context_destroy(context);
    return result;
}

void qwp_tls_context_destroy(struct qwp_tls_context *context)
{
    if (context == NULL) {
        return;
    }
    SSL_CTX_free(context->ssl);
    free(context);
}

/* ---- connection ---- */

static bool is_ip_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

/* Whom the certificate must name. An address is no server name (RFC 6066), and no trailing dot is.
 */
static bool set_peer(SSL *ssl, const char *host)
{
    X509_VERIFY_PARAM *check = SSL_get0_param(ssl);
    if (is_ip_address(host)) {
        return X509_VERIFY_PARAM_set1_ip_asc(check, host) == 1;
    }
    char name[256];
    size_t len = strlen(host);
    if (len > 0 && host[len - 1] == '.') {
        len--;
    }
    if (len == 0 || len >= sizeof name) {
        return false;
    }
    memcpy(name, host, len);
    name[len] = '\0';
    X509_VERIFY_PARAM_set_hostflags(check, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set_tlsext_host_name(ssl, name) == 1 &&
           X509_VERIFY_PARAM_set1_host(check, name, 0) == 1;
}

enum qwp_result qwp_tls_open(struct qwp_tls *tls, struct qwp_tls_context *context,
                             struct qwp_outbox *outbox, const char *host, struct qwp_error *err)
{
    ERR_clear_error();
    *tls = (struct qwp_tls){.outbox = outbox, .records_max = key_records_max};
    SSL *ssl = SSL_new(context->ssl);
    BIO *bio = BIO_new(bio_method);
    if (ssl == NULL || bio == NULL) {
        SSL_free(ssl);
        BIO_free(bio);
        return qwp_fail(err, QWP_NOMEM, 0, "TLS: out of memory");
    }
    BIO_set_data(bio, tls);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_connect_state(ssl);
    tls->ssl = ssl;
    if (!set_peer(ssl, host)) {
        qwp_tls_close(tls);
        return qwp_fail(err, QWP_INVALID, 0, "TLS: \"%s\" is no host name", host);
    }
    return QWP_OK;
}

void qwp_tls_close(struct qwp_tls *tls)
{
    SSL_free(tls->ssl);
    *tls = (struct qwp_tls){0};
}

void qwp_tls_feed(struct qwp_tls *tls, const unsigned char *bytes, size_t len)
{
    QWP_ASSERT(qwp_tls_is_drained(tls));
    tls->in = bytes;
    tls->in_len = len;
}

static enum qwp_result fail_handshake(SSL *ssl, struct qwp_error *err)
{
    char reason[128];
    take_reason(reason, sizeof reason);
    const long verified = SSL_get_verify_result(ssl);
    if (verified != X509_V_OK && SSL_get_verify_mode(ssl) != SSL_VERIFY_NONE) {
        const bool name =
            verified == X509_V_ERR_HOSTNAME_MISMATCH || verified == X509_V_ERR_IP_ADDRESS_MISMATCH;
        return qwp_fail(err, QWP_PEER, 0, "the server's certificate is refused: %s (%s)",
                        X509_verify_cert_error_string(verified),
                        name ? "connect by a name that it holds"
                             : "give the CA's file as tls_roots if it is to be trusted");
    }
    return qwp_fail(err, QWP_PEER, 0, "TLS handshake failed: %s", reason);
}

/* What a call that did not succeed means. */
static enum qwp_result judge(struct qwp_tls *tls, int rc, struct qwp_error *err)
{
    switch (SSL_get_error(tls->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE: /* wants_room is set by the BIO */
        return QWP_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return QWP_CLOSED;
    default:
        if (!SSL_is_init_finished(tls->ssl)) {
            return fail_handshake(tls->ssl, err);
        }
        char reason[128];
        take_reason(reason, sizeof reason);
        return qwp_fail(err, QWP_PEER, 0, "TLS failed: %s", reason);
    }
}

enum qwp_result qwp_tls_handshake(struct qwp_tls *tls, struct qwp_error *err)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int rc = SSL_do_handshake(tls->ssl);
    if (rc == 1) {
        return QWP_OK;
    }
    const enum qwp_result result = judge(tls, rc, err);
    return result == QWP_CLOSED
               ? qwp_fail(err, QWP_PEER, 0, "TLS: closed by the server during the handshake")
               : result;
}

enum qwp_result qwp_tls_read(struct qwp_tls *tls, unsigned char *buffer, size_t cap, size_t *got,
                             struct qwp_error *err)
{
    ERR_clear_error();
    tls->wants_room = false;
    const int rc = SSL_read_ex(tls->ssl, buffer, cap, got);
    return rc == 1 ? QWP_OK : judge(tls, rc, err);
}

enum qwp_result qwp_tls_write(struct qwp_tls *tls, const unsigned char *bytes, size_t len,
                              struct qwp_error *err)
{
    QWP_ASSERT(len > 0 && len <= QWP_TLS_PLAIN_MAX && qwp_tls_has_room(tls));
    ERR_clear_error();
    if (++tls->records > tls->records_max && SSL_version(tls->ssl) == TLS1_3_VERSION) {
        if (SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) {
            ERR_clear_error(); /* one is pending already */
        }
        tls->records = 1;
    }
    size_t written = 0;
    const int rc = SSL_write_ex(tls->ssl, bytes, len, &written);
    if (rc == 1) {
        QWP_ASSERT(written == len);
        return QWP_OK;
    }
    const enum qwp_result result = judge(tls, rc, err);
    /* There was room, and we do not renegotiate: nothing to wait for. */
    return result == QWP_PEER ? result : qwp_fail(err, QWP_PEER, 0, "TLS: the stream is closed");
}

void qwp_tls_shutdown(struct qwp_tls *tls)
{
    ERR_clear_error();
    if (tls->ssl != NULL && SSL_is_init_finished(tls->ssl) &&
        (SSL_get_shutdown(tls->ssl) & SSL_SENT_SHUTDOWN) == 0) {
        (void)SSL_shutdown(tls->ssl);
    }
    ERR_clear_error();
}

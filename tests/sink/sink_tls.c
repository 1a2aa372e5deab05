#include "tests/sink/sink_tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    READ_AHEAD_BYTES = 128 * 1024, /* several records in a system call */
    DAY_SECONDS = 24 * 60 * 60,
    VALID_DAYS = 3650,
    PATH_BYTES = 4096,
};

static enum qwp_result openssl_failed(struct qwp_error *err, const char *what, const char *on)
{
    char reason[256] = "unknown";
    const unsigned long code = ERR_peek_last_error();
    if (code != 0) {
        ERR_error_string_n(code, reason, sizeof reason);
    }
    ERR_clear_error();
    return qwp_fail(err, QWP_INVALID, 0, "%s %s: %s", what, on, reason);
}

enum qwp_result sink_tls_open(SSL_CTX **out, const char *cert_file, const char *key_file,
                              struct qwp_error *err)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (context == NULL) {
        return openssl_failed(err, "making", "a TLS context");
    }
    enum qwp_result result = QWP_OK;
    if (SSL_CTX_use_certificate_chain_file(context, cert_file) != 1) {
        result = openssl_failed(err, "reading the certificate", cert_file);
    } else if (SSL_CTX_use_PrivateKey_file(context, key_file, SSL_FILETYPE_PEM) != 1) {
        result = openssl_failed(err, "reading the key", key_file);
    } else if (SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION) != 1) {
        result = openssl_failed(err, "asking for", "TLS 1.2");
    }
    if (result != QWP_OK) {
        SSL_CTX_free(context);
        return result;
    }
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, READ_AHEAD_BYTES);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    *out = context;
    return QWP_OK;
}

/* A certificate for `key`, not yet signed. */
static X509 *certificate_new(EVP_PKEY *key, const char *common_name, X509_NAME *issuer)
{
    X509 *cert = X509_new();
    unsigned char serial[16];
    if (cert == NULL || RAND_bytes(serial, sizeof serial) != 1) {
        X509_free(cert);
        return NULL;
    }
    serial[0] &= 0x7f;
    BIGNUM *number = BN_bin2bn(serial, sizeof serial, NULL);
    X509_NAME *name = X509_get_subject_name(cert);
    const bool made =
        number != NULL && X509_set_version(cert, 2) == 1 &&
        BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert)) != NULL &&
        X509_gmtime_adj(X509_getm_notBefore(cert), -(long)DAY_SECONDS) != NULL &&
        X509_gmtime_adj(X509_getm_notAfter(cert), (long)VALID_DAYS * DAY_SECONDS) != NULL &&
        X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common_name,
                                   -1, -1, 0) == 1 &&
        X509_set_issuer_name(cert, issuer != NULL ? issuer : name) == 1 &&
        X509_set_pubkey(cert, key) == 1;
    BN_free(number);
    if (!made) {
        X509_free(cert);
        return NULL;
    }
    return cert;
}

static bool extend(X509 *cert, X509 *issuer, int id, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, id, value);
    const bool added = extension != NULL && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return added;
}

static X509 *make_ca(EVP_PKEY *key)
{
    X509 *cert = certificate_new(key, "qwp-sink test authority", NULL);
    if (cert != NULL && extend(cert, cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        extend(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        extend(cert, cert, NID_subject_key_identifier, "hash") &&
        X509_sign(cert, key, EVP_sha256()) > 0) {
        return cert;
    }
    X509_free(cert);
    return NULL;
}

static X509 *make_leaf(EVP_PKEY *key, X509 *ca, EVP_PKEY *ca_key)
{
    X509 *cert = certificate_new(key, "localhost", X509_get_subject_name(ca));
    if (cert != NULL && extend(cert, ca, NID_basic_constraints, "critical,CA:FALSE") &&
        extend(cert, ca, NID_key_usage, "critical,digitalSignature") &&
        extend(cert, ca, NID_ext_key_usage, "serverAuth") &&
        extend(cert, ca, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1,IP:::1") &&
        extend(cert, ca, NID_subject_key_identifier, "hash") &&
        extend(cert, ca, NID_authority_key_identifier, "keyid:always") &&
        X509_sign(cert, ca_key, EVP_sha256()) > 0) {
        return cert;
    }
    X509_free(cert);
    return NULL;
}

/* Written beside and renamed, so that a reader never sees a part. */
static enum qwp_result write_pem(const char *path, mode_t mode, X509 *first, X509 *second,
                                 EVP_PKEY *key, struct qwp_error *err)
{
    char temporary[PATH_BYTES + 8];
    snprintf(temporary, sizeof temporary, "%s.new", path);
    const mode_t mask = umask(0777 & ~mode);
    FILE *file = fopen(temporary, "we");
    umask(mask);
    if (file == NULL) {
        return qwp_fail(err, QWP_IO, errno, "writing %s", temporary);
    }
    bool written = (first == NULL || PEM_write_X509(file, first) == 1) &&
                   (second == NULL || PEM_write_X509(file, second) == 1) &&
                   (key == NULL || PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) == 1);
    written = fclose(file) == 0 && written;
    if (!written || rename(temporary, path) != 0) {
        const int sys = errno;
        (void)unlink(temporary);
        return qwp_fail(err, QWP_IO, sys, "writing %s", path);
    }
    return QWP_OK;
}

static enum qwp_result make_files(const char *ca_path, const char *cert_path, const char *key_path,
                                  struct qwp_error *err)
{
    EVP_PKEY *ca_key = EVP_EC_gen("P-256");
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *ca = ca_key != NULL ? make_ca(ca_key) : NULL;
    X509 *leaf = ca != NULL && key != NULL ? make_leaf(key, ca, ca_key) : NULL;
    enum qwp_result result = leaf != NULL ? write_pem(key_path, 0600, NULL, NULL, key, err)
                                          : openssl_failed(err, "making", "certificates");
    if (result == QWP_OK) {
        result = write_pem(cert_path, 0644, leaf, ca, NULL, err);
    }
    if (result == QWP_OK) {
        result = write_pem(ca_path, 0644, ca, NULL, NULL, err);
    }
    X509_free(leaf);
    X509_free(ca);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    return result;
}

enum qwp_result sink_tls_open_self_signed(SSL_CTX **out, const char *dir, struct qwp_error *err)
{
    char ca_path[PATH_BYTES];
    char cert_path[PATH_BYTES];
    char key_path[PATH_BYTES];
    const int n = snprintf(ca_path, sizeof ca_path, "%s/ca.pem", dir);
    if (n < 0 || n + 8 > PATH_BYTES) {
        return qwp_fail(err, QWP_INVALID, 0, "the path '%.64s...' is too long", dir);
    }
    snprintf(cert_path, sizeof cert_path, "%s/server.pem", dir);
    snprintf(key_path, sizeof key_path, "%s/server.key", dir);
    if (mkdir(dir, 0755) != 0 && errno != EEXIST) {
        return qwp_fail(err, QWP_IO, errno, "making the directory %s", dir);
    }
    if (access(ca_path, R_OK) != 0 || access(cert_path, R_OK) != 0 || access(key_path, R_OK) != 0) {
        const enum qwp_result result = make_files(ca_path, cert_path, key_path, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return sink_tls_open(out, cert_path, key_path, err);
}

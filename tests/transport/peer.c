#include "tests/transport/peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

static void require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "test peer: %s (%s)\n", what, strerror(errno));
        ERR_print_errors_fp(stderr);
        abort();
    }
}

void peer_fail(struct peer *peer, const char *what)
{
    if (peer->failure[0] == '\0' && !peer->stopping) {
        snprintf(peer->failure, sizeof peer->failure, "connection %d: %s", peer->connections, what);
    }
}

size_t peer_read_some(struct peer *peer, void *buffer, size_t cap)
{
    if (peer->ssl != NULL) {
        size_t got = 0;
        ERR_clear_error();
        return SSL_read_ex(peer->ssl, buffer, cap, &got) == 1 ? got : 0;
    }
    const ssize_t n = recv(peer->fd, buffer, cap, 0);
    return n > 0 ? (size_t)n : 0;
}

bool peer_read(struct peer *peer, void *buffer, size_t len)
{
    for (size_t got = 0; got < len;) {
        const size_t n = peer_read_some(peer, (char *)buffer + got, len - got);
        if (n == 0) {
            return false;
        }
        got += n;
    }
    return true;
}

bool peer_write(struct peer *peer, const void *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        size_t n = len - done;
        if (peer->chunk != 0 && n > peer->chunk) {
            n = peer->chunk;
        }
        size_t written = 0;
        if (peer->ssl != NULL) {
            ERR_clear_error();
            if (SSL_write_ex(peer->ssl, (const char *)bytes + done, n, &written) != 1) {
                return false;
            }
        } else {
            const ssize_t rc = send(peer->fd, (const char *)bytes + done, n, MSG_NOSIGNAL);
            if (rc <= 0) {
                return false;
            }
            written = (size_t)rc;
        }
        done += written;
    }
    return true;
}

bool peer_read_request(struct peer *peer)
{
    size_t len = 0;
    while (len + 1 < sizeof peer->request) {
        if (!peer_read(peer, peer->request + len, 1)) {
            return false;
        }
        peer->request[++len] = '\0';
        if (len >= 4 && memcmp(peer->request + len - 4, "\r\n\r\n", 4) == 0) {
            return true;
        }
    }
    return false;
}

const char *peer_header(struct peer *peer, const char *name)
{
    static char value[32768];
    value[0] = '\0';
    const size_t name_len = strlen(name);
    for (const char *line = strstr(peer->request, "\r\n"); line != NULL;
         line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, name_len) == 0 && at[name_len] == ':') {
            at += name_len + 1 + strspn(at + name_len + 1, " ");
            snprintf(value, sizeof value, "%.*s", (int)strcspn(at, "\r"), at);
            break;
        }
    }
    return value;
}

bool peer_accept(struct peer *peer, const char *extra, const void *more, size_t more_len)
{
    char salted[256];
    snprintf(salted, sizeof salted, "%s258EAFA5-E914-47DA-95CA-C5AB0DC85B11",
             peer_header(peer, "Sec-WebSocket-Key"));
    unsigned char digest[EVP_MAX_MD_SIZE];
    EVP_Digest(salted, strlen(salted), digest, NULL, EVP_sha1(), NULL);
    unsigned char accept[64];
    EVP_EncodeBlock(accept, digest, 20);
    const size_t cap = 4096 + more_len;
    char *out = malloc(cap);
    const int n = snprintf(out, cap,
                           "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                           "Connection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n%s\r\n",
                           accept, extra);
    if (more_len > 0) {
        memcpy(out + n, more, more_len);
    }
    const bool written = peer_write(peer, out, (size_t)n + more_len);
    free(out);
    return written;
}

bool peer_upgrade(struct peer *peer)
{
    return peer_read_request(peer) &&
           peer_accept(peer, "X-QWP-Version: 1\r\nX-QWP-Max-Batch-Size: 2097138\r\n", NULL, 0);
}

size_t peer_frame(unsigned char *out, unsigned first_byte, const void *payload, size_t len)
{
    size_t at = 0;
    out[at++] = (unsigned char)first_byte;
    if (len < 126) {
        out[at++] = (unsigned char)len;
    } else if (len < 65536) {
        out[at++] = 126;
        out[at++] = (unsigned char)(len >> 8);
        out[at++] = (unsigned char)len;
    } else {
        out[at++] = 127;
        for (int shift = 56; shift >= 0; shift -= 8) {
            out[at++] = (unsigned char)((uint64_t)len >> shift);
        }
    }
    if (len > 0) {
        memcpy(out + at, payload, len);
    }
    return at + len;
}

bool peer_send_frame(struct peer *peer, unsigned first_byte, const void *payload, size_t len)
{
    unsigned char *out = malloc(len + 16);
    const size_t n = peer_frame(out, first_byte, payload, len);
    const bool written = peer_write(peer, out, n);
    free(out);
    return written;
}

bool peer_read_frame(struct peer *peer, unsigned *opcode, unsigned char *payload, size_t cap,
                     size_t *len)
{
    unsigned char head[8];
    if (!peer_read(peer, head, 2)) {
        return false;
    }
    if ((head[0] & 0xf0) != 0x80 || (head[1] & 0x80) == 0) {
        peer_fail(peer, "a frame that is fragmented, has reserved bits or no mask");
        return false;
    }
    *opcode = head[0] & 0x0f;
    uint64_t n = head[1] & 0x7f;
    const unsigned extra = n == 126 ? 2 : n == 127 ? 8 : 0;
    if (extra > 0) {
        if (!peer_read(peer, head, extra)) {
            return false;
        }
        n = 0;
        for (unsigned i = 0; i < extra; i++) {
            n = n << 8 | head[i];
        }
    }
    unsigned char mask[4];
    if (!peer_read(peer, mask, sizeof mask)) {
        return false;
    }
    if (n > cap) {
        peer_fail(peer, "a frame larger than the test's buffer");
        return false;
    }
    if (!peer_read(peer, payload, (size_t)n)) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        payload[i] ^= mask[i & 3];
    }
    *len = (size_t)n;
    return true;
}

bool peer_read_frames(struct peer *peer, int count)
{
    unsigned opcode;
    unsigned char payload[256];
    size_t len;
    for (int i = 0; i < count; i++) {
        if (!peer_read_frame(peer, &opcode, payload, sizeof payload, &len)) {
            return false;
        }
    }
    return true;
}

size_t peer_ok_answer(unsigned char *out, int64_t sequence)
{
    out[0] = 0;
    memcpy(out + 1, &sequence, 8);
    memset(out + 9, 0, 2);
    return 11;
}

size_t peer_error_answer(unsigned char *out, uint8_t status, int64_t sequence, const char *text)
{
    const uint16_t len = (uint16_t)strlen(text);
    out[0] = status;
    memcpy(out + 1, &sequence, 8);
    memcpy(out + 9, &len, 2);
    memcpy(out + 11, text, len);
    return 11u + len;
}

bool peer_send_ok(struct peer *peer, int64_t sequence)
{
    unsigned char answer[16];
    return peer_send_frame(peer, 0x82, answer, peer_ok_answer(answer, sequence));
}

void peer_drain(struct peer *peer)
{
    char buffer[4096];
    while (peer_read_some(peer, buffer, sizeof buffer) > 0) {
    }
}

void peer_end(struct peer *peer)
{
    if (peer->ssl != NULL) {
        ERR_clear_error();
        SSL_shutdown(peer->ssl);
    }
    shutdown(peer->fd, SHUT_WR);
}

static void serve(struct peer *peer, int fd)
{
    peer->fd = fd;
    peer->ssl = NULL;
    peer->request[0] = '\0';
    const int one = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    bool ready = true;
    if (peer->tls) {
        ERR_clear_error();
        SSL *ssl = SSL_new(peer->context);
        SSL_set_fd(ssl, fd);
        ready = SSL_accept(ssl) == 1;
        peer->ssl = ssl;
    }
    if (ready) {
        peer->script(peer);
    }
    SSL_free(peer->ssl);
    peer->ssl = NULL;
}

static void *run(void *argument)
{
    struct peer *peer = argument;
    while (!peer->stopping) {
        const int fd = accept4(peer->listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) {
            break;
        }
        peer->connections++;
        peer->open_fd = fd;
        if (!peer->stopping) {
            serve(peer, fd);
        }
        peer->open_fd = -1;
        close(fd);
    }
    return NULL;
}

static void make_context(struct peer *peer)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    if (peer->tls_version != 0) {
        SSL_CTX_set_min_proto_version(context, peer->tls_version);
        SSL_CTX_set_max_proto_version(context, peer->tls_version);
    }
    require(SSL_CTX_use_certificate_chain_file(context, peer->cert_path) == 1, peer->cert_path);
    require(SSL_CTX_use_PrivateKey_file(context, peer->cert_path, SSL_FILETYPE_PEM) == 1, "key");
    peer->context = context;
}

void peer_start(struct peer *peer)
{
    signal(SIGPIPE, SIG_IGN);
    if (peer->tls) {
        make_context(peer);
    }
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t len = sizeof address;
    peer->open_fd = -1;
    peer->listen_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    require(bind(peer->listen_fd, (struct sockaddr *)&address, len) == 0, "bind");
    require(listen(peer->listen_fd, 64) == 0, "listen");
    require(getsockname(peer->listen_fd, (struct sockaddr *)&address, &len) == 0, "getsockname");
    peer->port = ntohs(address.sin_port);
    require(pthread_create(&peer->thread, NULL, run, peer) == 0, "pthread_create");
}

const char *peer_stop(struct peer *peer)
{
    peer->stopping = true;
    shutdown(peer->listen_fd, SHUT_RDWR);
    const int fd = peer->open_fd;
    if (fd >= 0) {
        shutdown(fd, SHUT_RDWR);
    }
    pthread_join(peer->thread, NULL);
    close(peer->listen_fd);
    SSL_CTX_free(peer->context);
    return peer->failure[0] != '\0' ? peer->failure : NULL;
}

/* ---- certificates ---- */

static void add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX context;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, issuer, cert, NULL, NULL, 0);
    X509_EXTENSION *extension = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    require(extension != NULL, value);
    X509_add_ext(cert, extension, -1);
    X509_EXTENSION_free(extension);
}

static X509 *make_certificate(EVP_PKEY *key, const char *name, const char *alt, X509 *issuer,
                              EVP_PKEY *issuer_key)
{
    static long serial = 1;
    X509 *cert = X509_new();
    X509_set_version(cert, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(cert), serial++);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 86400);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(cert), "CN", MBSTRING_ASC,
                               (const unsigned char *)name, -1, -1, 0);
    X509_set_issuer_name(cert, X509_get_subject_name(issuer != NULL ? issuer : cert));
    X509_set_pubkey(cert, key);
    if (issuer == NULL) {
        add_extension(cert, cert, NID_basic_constraints, "critical,CA:TRUE");
        add_extension(cert, cert, NID_key_usage, "critical,keyCertSign,cRLSign");
    } else {
        add_extension(cert, issuer, NID_basic_constraints, "CA:FALSE");
        add_extension(cert, issuer, NID_subject_alt_name, alt);
        add_extension(cert, issuer, NID_ext_key_usage, "serverAuth");
    }
    require(X509_sign(cert, issuer_key != NULL ? issuer_key : key, EVP_sha256()) > 0, "sign");
    return cert;
}

static FILE *create(const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = fopen(path, "we");
    require(file != NULL, path);
    return file;
}

static void write_leaf(const char *dir, const char *file_name, const char *name, const char *alt,
                       X509 *ca, EVP_PKEY *ca_key)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key, name, alt, ca, ca_key);
    FILE *file = create(dir, file_name);
    PEM_write_X509(file, cert);
    PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL);
    fclose(file);
    X509_free(cert);
    EVP_PKEY_free(key);
}

static void write_ca(const char *dir, const char *file_name, X509 *ca)
{
    FILE *file = create(dir, file_name);
    PEM_write_X509(file, ca);
    fclose(file);
}

static void write_pkcs12(const char *dir, X509 *ca)
{
    STACK_OF(X509) *others = sk_X509_new_null();
    sk_X509_push(others, ca);
    PKCS12 *bag = PKCS12_create("secret", "ca", NULL, NULL, others, 0, 0, 0, 0, 0);
    require(bag != NULL, "PKCS12_create");
    FILE *file = create(dir, "ca.p12");
    i2d_PKCS12_fp(file, bag);
    fclose(file);
    PKCS12_free(bag);
    sk_X509_free(others);
}

void peer_make_certificates(const char *dir)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    EVP_PKEY *other_key = EVP_EC_gen("P-256");
    X509 *ca = make_certificate(key, "test CA", NULL, NULL, NULL);
    X509 *other = make_certificate(other_key, "other CA", NULL, NULL, NULL);
    write_ca(dir, "ca.pem", ca);
    write_ca(dir, "other-ca.pem", other);
    write_pkcs12(dir, ca);
    write_leaf(dir, "localhost.pem", "localhost", "DNS:localhost,IP:127.0.0.1", ca, key);
    write_leaf(dir, "elsewhere.pem", "elsewhere", "DNS:elsewhere.example", ca, key);
    X509_free(ca);
    X509_free(other);
    EVP_PKEY_free(key);
    EVP_PKEY_free(other_key);
}

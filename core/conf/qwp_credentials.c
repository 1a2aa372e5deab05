#include "core/conf/qwp_credentials.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/conf/qwp_option.h"

enum qwp_result qwp_credentials_check(const struct qwp_credentials *credentials,
                                      struct qwp_error *err)
{
    const struct qwp_credentials *c = credentials;
    const bool has_token = c->token != NULL || c->token_file != NULL;
    const bool has_password = c->password != NULL || c->password_file != NULL;
    if (c->token != NULL && c->token_file != NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "token and token_file are both given: keep one");
    }
    if (c->password != NULL && c->password_file != NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "password and password_file are both given: keep one");
    }
    if (has_token && (c->username != NULL || has_password)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "token and username/password are both given: keep one kind of credentials");
    }
    if (c->username != NULL && !has_password) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "username is given without a password: add password or password_file");
    }
    if (c->username == NULL && has_password) {
        return qwp_fail(err, QWP_INVALID, 0, "password is given without a username: add username");
    }
    if (c->username != NULL && strchr(c->username, ':') != NULL) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "username: holds a ':', which HTTP Basic authentication cannot carry");
    }
    return QWP_OK;
}

void qwp_text_free(char *text, size_t len)
{
    if (text != NULL) {
        explicit_bzero(text, len);
        free(text);
    }
}

void qwp_secret_free(char *secret)
{
    qwp_text_free(secret, secret != NULL ? strlen(secret) : 0);
}

/* Until `bytes` are there or the file ends. */
static enum qwp_result read_whole(const char *key, const char *path, char *buffer, size_t bytes,
                                  size_t *len, struct qwp_error *err)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "%s: cannot open '%s'", key, qwp_show(path).text);
    }
    size_t have = 0;
    ssize_t n = 1;
    while (have < bytes && n != 0) {
        n = read(fd, buffer + have, bytes - have);
        if (n < 0 && errno != EINTR) {
            const int cause = errno;
            close(fd);
            return qwp_fail(err, QWP_IO, cause, "%s: cannot read '%s'", key, qwp_show(path).text);
        }
        have += n > 0 ? (size_t)n : 0;
    }
    close(fd);
    *len = have;
    return QWP_OK;
}

enum qwp_result qwp_text_read(const char *key, const char *path, char **text, size_t *len,
                              struct qwp_error *err)
{
    enum { ROOM = QWP_SECRET_FILE_BYTES_MAX + 1 }; /* one more shows that a file is too large */
    size_t have = 0;
    char *buffer = malloc(ROOM + 1);
    if (buffer == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "%s: no memory", key);
    }
    enum qwp_result result = read_whole(key, path, buffer, ROOM, &have, err);
    if (result == QWP_OK && have == ROOM) {
        result = qwp_fail(err, QWP_INVALID, 0, "%s: '%s' is larger than %d bytes", key,
                          qwp_show(path).text, QWP_SECRET_FILE_BYTES_MAX);
    }
    if (result != QWP_OK) {
        qwp_text_free(buffer, ROOM);
        return result;
    }
    buffer[have] = '\0';
    *text = buffer;
    *len = have;
    return QWP_OK;
}

static enum qwp_result check_secret(const char *key, const char *path, const char *text, size_t len,
                                    struct qwp_error *err)
{
    if (len == 0) {
        return qwp_fail(err, QWP_INVALID, 0, "%s: '%s' is empty", key, qwp_show(path).text);
    }
    for (size_t i = 0; i < len; i++) {
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "%s: '%s' holds a control character at byte %zu: it should be one line",
                            key, qwp_show(path).text, i);
        }
    }
    return QWP_OK;
}

enum qwp_result qwp_secret_read(const char *key, const char *path, char **secret,
                                struct qwp_error *err)
{
    size_t len = 0;
    char *text = NULL;
    enum qwp_result result = qwp_text_read(key, path, &text, &len, err);
    if (result != QWP_OK) {
        return result;
    }
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        text[--len] = '\0';
    }
    result = check_secret(key, path, text, len, err);
    if (result != QWP_OK) {
        qwp_text_free(text, len);
        return result;
    }
    *secret = text;
    return QWP_OK;
}

static void base64_encode(const unsigned char *from, size_t len, char *to)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < len; i += 3) {
        const size_t left = len - i;
        const uint32_t triple = (uint32_t)from[i] << 16 |
                                (left > 1 ? (uint32_t)from[i + 1] << 8 : 0) |
                                (left > 2 ? (uint32_t)from[i + 2] : 0);
        *to++ = digits[triple >> 18 & 63];
        *to++ = digits[triple >> 12 & 63];
        *to++ = left > 1 ? digits[triple >> 6 & 63] : '=';
        *to++ = left > 2 ? digits[triple & 63] : '=';
    }
    *to = '\0';
}

static enum qwp_result make_basic(const char *username, const char *password, char **out,
                                  struct qwp_error *err)
{
    static const char scheme[] = "Basic ";
    const size_t pair_len = strlen(username) + 1 + strlen(password);
    char *pair = malloc(pair_len + 1);
    char *text = malloc(sizeof scheme + (pair_len + 2) / 3 * 4);
    if (pair == NULL || text == NULL) {
        free(pair);
        free(text);
        return qwp_fail(err, QWP_NOMEM, 0, "password: no memory");
    }
    snprintf(pair, pair_len + 1, "%s:%s", username, password);
    memcpy(text, scheme, sizeof scheme);
    base64_encode((const unsigned char *)pair, pair_len, text + sizeof scheme - 1);
    qwp_secret_free(pair);
    *out = text;
    return QWP_OK;
}

static enum qwp_result make_bearer(const char *key, const char *token, char **out,
                                   struct qwp_error *err)
{
    static const char scheme[] = "Bearer ";
    const size_t len = strlen(token);
    for (size_t i = 0; i < len; i++) {
        if (token[i] <= 0x20 || token[i] >= 0x7f) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "%s: byte %zu is a blank or not ASCII, which an HTTP header cannot "
                            "carry",
                            key, i);
        }
    }
    char *text = malloc(sizeof scheme + len);
    if (text == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "%s: no memory", key);
    }
    memcpy(text, scheme, sizeof scheme - 1);
    memcpy(text + sizeof scheme - 1, token, len + 1);
    *out = text;
    return QWP_OK;
}

enum qwp_result qwp_credentials_authorization(const struct qwp_credentials *credentials,
                                              char **authorization, struct qwp_error *err)
{
    const struct qwp_credentials *c = credentials;
    char *from_file = NULL;
    enum qwp_result result = qwp_credentials_check(c, err);
    if (result == QWP_OK && c->token_file != NULL) {
        result = qwp_secret_read("token_file", c->token_file, &from_file, err);
    } else if (result == QWP_OK && c->password_file != NULL) {
        result = qwp_secret_read("password_file", c->password_file, &from_file, err);
    }
    if (result != QWP_OK) {
        return result;
    }
    char *made = NULL;
    if (c->token != NULL) {
        result = make_bearer("token", c->token, &made, err);
    } else if (c->token_file != NULL) {
        result = make_bearer("token_file", from_file, &made, err);
    } else if (c->username != NULL) {
        result = make_basic(c->username, c->password != NULL ? c->password : from_file, &made, err);
    }
    qwp_secret_free(from_file);
    if (result == QWP_OK) {
        *authorization = made;
    }
    return result;
}

/* qwp_credentials: from user and password, or a token, to the text of an Authorization header.
 *
 * Files named by `*_file` keys are read anew by each call, so that a corrected or rotated secret is
 * taken without a restart. Secrets are wiped before their memory is given back.
 *
 * Errors: texts name keys and paths, never a secret. */
#ifndef QWP_CREDENTIALS_H
#define QWP_CREDENTIALS_H

#include <stddef.h>

#include "core/qwp_error.h"

enum { QWP_SECRET_FILE_BYTES_MAX = 64 * 1024 };

/* NULL: not given. All are borrowed. */
struct qwp_credentials {
    const char *username;
    const char *password;
    const char *password_file;
    const char *token;
    const char *token_file;
};

/* QWP_INVALID when they contradict each other or one half is missing. Opens no file. */
QWP_MUST_USE enum qwp_result qwp_credentials_check(const struct qwp_credentials *credentials,
                                                   struct qwp_error *err);

/* *authorization is "Basic ..." or "Bearer ...", or NULL without credentials; give it back with
 * qwp_secret_free(). QWP_IO: a file cannot be read; QWP_INVALID: what it holds cannot be sent. */
QWP_MUST_USE enum qwp_result
qwp_credentials_authorization(const struct qwp_credentials *credentials, char **authorization,
                              struct qwp_error *err);

/* Reads a small file whole: `text` is terminated, `len` bytes long, and to be given back with
 * qwp_text_free(). QWP_INVALID past QWP_SECRET_FILE_BYTES_MAX. `key` is for messages. */
QWP_MUST_USE enum qwp_result qwp_text_read(const char *key, const char *path, char **text,
                                           size_t *len, struct qwp_error *err);
/* Wipes `len` bytes, then frees. NULL is fine. */
void qwp_text_free(char *text, size_t len);

/* Reads a secret of one line from `path`, without the line end. */
QWP_MUST_USE enum qwp_result qwp_secret_read(const char *key, const char *path, char **secret,
                                             struct qwp_error *err);
/* Wipes, then frees. NULL is fine. */
void qwp_secret_free(char *secret);

#endif

#include "sidecar/qwp_secrets.h"

#include <string.h>

#include "core/qwp_assert.h"

enum { CONCEALED_BYTES_MIN = 4 }; /* shorter words stand in any text */

static void file_add(struct qwp_secrets *secrets, const char *path, bool is_tls)
{
    if (path == NULL) {
        return;
    }
    QWP_ASSERT(secrets->file_count < QWP_SECRETS_FILES_MAX);
    secrets->files[secrets->file_count++] =
        (struct qwp_secrets_file){.path = path, .is_tls = is_tls};
}

void qwp_secrets_init(struct qwp_secrets *secrets, const struct qwp_conf *conf)
{
    *secrets = (struct qwp_secrets){.conf = conf};
    file_add(secrets, conf->file, false);
    /* One of these two at most. */
    file_add(secrets, conf->credentials.token_file, false);
    file_add(secrets, conf->credentials.password_file, false);
    file_add(secrets, conf->tls_roots, true);
    file_add(secrets, conf->tls_roots_password_file, true);
}

void qwp_secrets_fini(struct qwp_secrets *secrets)
{
    qwp_secret_free(secrets->authorization);
    qwp_secret_free(secrets->tls_roots_password);
    *secrets = (struct qwp_secrets){0};
}

static struct stat look(const char *path)
{
    struct stat now;
    return stat(path, &now) == 0 ? now : (struct stat){0};
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
           same_time(a->st_mtim, b->st_mtim) && same_time(a->st_ctim, b->st_ctim);
}

bool qwp_secrets_changed(const struct qwp_secrets *secrets, bool tls)
{
    for (size_t i = 0; i < secrets->file_count; i++) {
        const struct qwp_secrets_file *file = &secrets->files[i];
        const struct stat now = look(file->path);
        if ((file->is_tls || !tls) && !is_same(&file->seen, &now)) {
            return true;
        }
    }
    return false;
}

/* Before they are read: what is changed meanwhile counts as changed. */
static void mark_seen(struct qwp_secrets *secrets, bool tls)
{
    for (size_t i = 0; i < secrets->file_count; i++) {
        struct qwp_secrets_file *file = &secrets->files[i];
        if (file->is_tls == tls) {
            file->seen = look(file->path);
        }
    }
}

static enum qwp_result authorization_read(const struct qwp_secrets *secrets, char **authorization,
                                          struct qwp_error *err)
{
    if (secrets->conf->file == NULL) {
        return qwp_credentials_authorization(&secrets->conf->credentials, authorization, err);
    }
    struct qwp_conf conf;
    const enum qwp_result result = qwp_conf_parse_file(&conf, secrets->conf->file, err);
    if (result == QWP_OK) {
        *authorization = conf.authorization;
        conf.authorization = NULL;
        qwp_conf_fini(&conf);
    }
    return result;
}

enum qwp_result qwp_secrets_read(struct qwp_secrets *secrets, struct qwp_error *err)
{
    char *authorization;
    mark_seen(secrets, false);
    const enum qwp_result result = authorization_read(secrets, &authorization, err);
    if (result == QWP_OK) {
        qwp_secret_free(secrets->authorization);
        secrets->authorization = authorization;
    }
    return result;
}

enum qwp_result qwp_secrets_read_tls(struct qwp_secrets *secrets, struct qwp_error *err)
{
    mark_seen(secrets, true);
    if (secrets->conf->tls_roots_password_file == NULL) {
        return QWP_OK;
    }
    char *password;
    const enum qwp_result result = qwp_secret_read(
        "tls_roots_password_file", secrets->conf->tls_roots_password_file, &password, err);
    if (result == QWP_OK) {
        qwp_secret_free(secrets->tls_roots_password);
        secrets->tls_roots_password = password;
    }
    return result;
}

static void blot_out(char *text, const char *secret)
{
    const size_t len = secret != NULL ? strlen(secret) : 0;
    if (len < CONCEALED_BYTES_MIN) {
        return;
    }
    for (char *at = strstr(text, secret); at != NULL; at = strstr(at, secret)) {
        memset(at, '*', len);
    }
}

void qwp_secrets_conceal(const struct qwp_secrets *secrets, char *text)
{
    const char *scheme_end =
        secrets->authorization != NULL ? strchr(secrets->authorization, ' ') : NULL;
    blot_out(text, scheme_end != NULL ? scheme_end + 1 : NULL);
    blot_out(text, secrets->conf->credentials.password);
}

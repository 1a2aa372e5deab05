/* qwp_secrets: what a connection needs from files, read again when they change.
 *
 * Credentials come from the connect string, from the files of its `*_file` keys, or with
 * --conf-file from that file, of which the credentials are read again and nothing else. A file
 * that cannot be read or makes no sense leaves what was read before.
 *
 * A change is seen by what stat() says of the path (so through symbolic links, which is how
 * secrets are swapped under containers), not by inotify: that would have to follow each link.
 *
 * Threads: one. */
#ifndef QWP_SECRETS_H
#define QWP_SECRETS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "core/conf/qwp_conf.h"
#include "core/qwp_error.h"

enum { QWP_SECRETS_FILES_MAX = 4 };

struct qwp_secrets_file {
    const char *path;
    bool is_tls;      /* it belongs to the certificates that are trusted */
    struct stat seen; /* before it was read; zeroed: it was not there */
};

struct qwp_secrets {
    const struct qwp_conf *conf; /* kept */
    char *authorization;         /* "Basic ...", "Bearer ..." or NULL */
    char *tls_roots_password;    /* out of its file, else NULL */
    struct qwp_secrets_file files[QWP_SECRETS_FILES_MAX];
    size_t file_count;
};

/* Reads nothing yet. */
void qwp_secrets_init(struct qwp_secrets *secrets, const struct qwp_conf *conf);
/* Wipes. A zeroed one is fine. */
void qwp_secrets_fini(struct qwp_secrets *secrets);

/* Whether a file is not what it was when it was read; with `tls` only those of the certificates. */
bool qwp_secrets_changed(const struct qwp_secrets *secrets, bool tls);
/* Reads the credentials anew. */
QWP_MUST_USE enum qwp_result qwp_secrets_read(struct qwp_secrets *secrets, struct qwp_error *err);
/* Reads the password of the certificates anew, and takes these as seen: the caller loads them. */
QWP_MUST_USE enum qwp_result qwp_secrets_read_tls(struct qwp_secrets *secrets,
                                                  struct qwp_error *err);
/* Blots out the credentials where they stand in `text`: a server may give back what it was sent. */
void qwp_secrets_conceal(const struct qwp_secrets *secrets, char *text);

#endif

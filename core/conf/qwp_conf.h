/* qwp_conf: the connect string of the QuestDB clients, read once into one struct.
 *
 *     schema::key=value;key=value;
 *
 * The schema is ws or wss. Keys are case-sensitive; ";;" stands for a ";" inside a value; control
 * characters, unknown keys and repeated keys (but `addr`, which adds up) are errors. In a file the
 * string may be spread over lines: a line end also ends a value, and lines beginning with '#' are
 * comments. qwp_conf_describe() prints the keys.
 *
 * Ownership: texts live as long as the struct; const after parsing.
 * Errors:    QWP_INVALID with the key and what is wrong with it, never a secret. */
#ifndef QWP_CONF_H
#define QWP_CONF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/conf/qwp_credentials.h"
#include "core/conf/qwp_endpoints.h"
#include "core/qwp_error.h"
#include "core/store/qwp_durability.h"

#define QWP_CONF_ENV "QDB_CLIENT_CONF"

enum { QWP_CONF_IGNORED_MAX = 64 };

/* What a start does while no server answers; a sidecar's default is to start all the same. */
enum qwp_first_connect {
    QWP_FIRST_CONNECT_ASYNC = 0, /* start at once, go on trying */
    QWP_FIRST_CONNECT_SYNC = 1,  /* wait for it, at most first_connect_ns_max */
    QWP_FIRST_CONNECT_OFF = 2,   /* one round; failing that, do not start */
};

/* What to do about an answer that rejects a message. */
enum qwp_on_error {
    QWP_ON_ERROR_AUTO = 0,     /* the category's own way, one table at a time */
    QWP_ON_ERROR_TERMINAL = 1, /* asked for: stop sending, keep everything */
    QWP_ON_ERROR_RETRIABLE = 2,
    QWP_ON_ERROR_RETRIABLE_OTHER = 3, /* on another endpoint */
};

struct qwp_conf {
    /* Server. */
    bool tls;                           /* wss */
    struct qwp_endpoints endpoints;     /* at least one */
    struct qwp_credentials credentials; /* to read the files again */
    char *authorization;   /* "Basic ...", "Bearer ..." as of the start, or NULL: a secret */
    uint8_t tls_verify;    /* enum qwp_tls_verify */
    const char *tls_roots; /* NULL: the system's store */
    const char *tls_roots_password; /* with it tls_roots is PKCS#12: a secret */
    const char *tls_roots_password_file;
    int64_t connect_timeout_ns; /* QWP_NEVER_NS: the kernel's */
    int64_t auth_timeout_ns;

    /* Upper bounds on a frame; 0: the sidecar's own policy. */
    uint64_t flush_rows_max;
    uint64_t flush_bytes_max;
    int64_t flush_wait_ns_max;

    /* Store. */
    const char *sf_dir; /* NULL: memory mode, on the rings' file system */
    const char *sender_id;
    uint64_t sf_segment_bytes;
    uint64_t sf_total_bytes_max;
    uint8_t sf_durability; /* enum qwp_durability */
    int64_t sf_sync_interval_ns;
    int64_t sf_append_wait_ns_max;
    bool drain_orphans;
    uint64_t drainers_max;

    /* Connection. */
    int64_t backoff_ns_min;
    int64_t backoff_ns_max;
    uint8_t first_connect; /* enum qwp_first_connect */
    int64_t first_connect_ns_max;
    int64_t close_flush_ns_max;
    bool durable_ack;
    int64_t durable_ack_keepalive_ns; /* 0: no pings for durable acks */

    /* Rejections. enum qwp_on_error; on_server_error is folded into the others. */
    uint64_t frame_rejections_max;
    int64_t poison_window_ns_min;
    uint8_t on_server_error;
    uint8_t on_schema_error;
    uint8_t on_parse_error;
    uint8_t on_internal_error;
    uint8_t on_security_error;
    uint8_t on_write_error;

    const char *file; /* where all this stands; NULL: it was given as text. Borrowed */

    /* Keys that were given and mean nothing to a sidecar, for one notice at start. */
    const char *ignored[QWP_CONF_IGNORED_MAX];
    size_t ignored_count;

    /* Owned. */
    char *values; /* every value, terminated */
    size_t values_bytes;
    char *tls_roots_password_read; /* from tls_roots_password_file */
};

enum qwp_tls_verify { QWP_TLS_VERIFY_ON = 0, QWP_TLS_VERIFY_UNSAFE_OFF = 1 };

/* Parses `text`, which need not outlive the call, and reads the files of `*_file` keys. Fills *conf
 * only on QWP_OK. */
QWP_MUST_USE enum qwp_result qwp_conf_parse(struct qwp_conf *conf, const char *text,
                                            struct qwp_error *err);
/* The same from a file, of lines as above. `path` has to live as long as the struct. */
QWP_MUST_USE enum qwp_result qwp_conf_parse_file(struct qwp_conf *conf, const char *path,
                                                 struct qwp_error *err);
/* From `text`, else from the file at `path`, else from $QDB_CLIENT_CONF (the first two NULL when
 * not given). QWP_INVALID when both or none of them are there. */
QWP_MUST_USE enum qwp_result qwp_conf_load(struct qwp_conf *conf, const char *text,
                                           const char *path, struct qwp_error *err);
/* Whether any of these is there. */
bool qwp_conf_is_given(const char *text, const char *path);
/* Wipes and frees. A zeroed struct is fine. */
void qwp_conf_fini(struct qwp_conf *conf);

/* The reference of all keys, for --help. */
void qwp_conf_describe(FILE *out);

#endif

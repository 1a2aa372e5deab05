#include "core/conf/qwp_conf_table.h"

#include <string.h>

#include "core/conf/qwp_conf.h"

static const char *const tls_verify_choices[] = {"on", "unsafe_off", NULL};
static const char *const durability_choices[] = {"memory", "periodic", NULL};
/* The last three are other clients' words for the first ones: see fold_first_connect(). */
static const char *const first_connect_choices[] = {"async", "sync",  "off", "on",
                                                    "true",  "false", NULL};
static const char *const on_error_choices[] = {"auto", "terminal", "retriable", "retriable_other",
                                               NULL};

#define FIELD(name) (uint16_t) offsetof(struct qwp_conf, name)

#define TEXT(key, field, about, ...)                                                               \
    {                                                                                              \
        .name = key, .kind = QWP_OPTION_TEXT, .off = FIELD(field), .help = about, __VA_ARGS__      \
    }
#define FILE_OF(key, field, about) TEXT(key, field, about, .value_name = "FILE")
#define SECRET(key, field, about)  TEXT(key, field, about, .flags = QWP_OPTION_SECRET)
#define FLAG(key, field, initial, about)                                                           \
    {                                                                                              \
        .name = key, .kind = QWP_OPTION_FLAG, .off = FIELD(field), .value_default = initial,       \
        .help = about                                                                              \
    }
#define CHOICE(key, field, list, initial, about)                                                   \
    {                                                                                              \
        .name = key, .kind = QWP_OPTION_CHOICE, .off = FIELD(field), .choices = list,              \
        .value_default = initial, .help = about                                                    \
    }
#define NUMBER(key, kind_, field, initial, about, ...)                                             \
    {                                                                                              \
        .name = key, .kind = kind_, .off = FIELD(field), .value_default = initial, .help = about,  \
        __VA_ARGS__                                                                                \
    }
#define IGNORED(key)                                                                               \
    {                                                                                              \
        .name = key, .kind = QWP_OPTION_IGNORED                                                    \
    }

const struct qwp_option qwp_conf_table[QWP_CONF_TABLE_COUNT] = {
    {.name = "addr",
     .kind = QWP_OPTION_OWN,
     .value_name = "HOST[:PORT],...",
     .help = "servers to try in turn, port 9000 unless given, IPv6 as [::1]:9000; required"},
    TEXT("username", credentials.username, "for HTTP Basic authentication (also: user)"),
    SECRET("password", credentials.password, "for HTTP Basic authentication (also: pass)"),
    FILE_OF("password_file", credentials.password_file,
            "file holding the password; read again when it changes"),
    SECRET("token", credentials.token, "bearer token, instead of username and password"),
    FILE_OF("token_file", credentials.token_file,
            "file holding the bearer token; read again when it changes"),
    CHOICE("tls_verify", tls_verify, tls_verify_choices, "on",
           "check certificate and host name; unsafe_off is for tests"),
    FILE_OF("tls_roots", tls_roots,
            "certificates to trust, PEM, or PKCS#12 with a password, read again when the file "
            "changes; else the system's"),
    SECRET("tls_roots_password", tls_roots_password, "password of a PKCS#12 tls_roots"),
    FILE_OF("tls_roots_password_file", tls_roots_password_file, "file holding that password"),
    NUMBER("connect_timeout", QWP_OPTION_MILLIS, connect_timeout_ns, "none",
           "longest TCP connect to one address, then the next is tried; none: auth_timeout_ms",
           .min = 1, .flags = QWP_OPTION_NONE_IS_NEVER),
    NUMBER("auth_timeout_ms", QWP_OPTION_MILLIS, auth_timeout_ns, "15000",
           "longest TLS handshake and upgrade answer of one server, and longest look-up of a name",
           .min = 1),

    NUMBER("auto_flush_rows", QWP_OPTION_COUNT, flush_rows_max, "off",
           "most rows in a frame; off: the sidecar's own bound", .min = 1,
           .flags = QWP_OPTION_OFF_IS_ZERO),
    NUMBER("auto_flush_bytes", QWP_OPTION_SIZE, flush_bytes_max, "off",
           "most bytes in a frame; off: the sidecar's own bound", .min = 1,
           .flags = QWP_OPTION_OFF_IS_ZERO),
    NUMBER("auto_flush_interval", QWP_OPTION_MILLIS, flush_wait_ns_max, "off",
           "longest wait before rows are sent; off: the sidecar's linger", .min = 1,
           .flags = QWP_OPTION_OFF_IS_ZERO),

    TEXT("sf_dir", sf_dir,
         "directory of the store; without it rows outlive every process but not "
         "the host",
         .value_name = "DIR"),
    TEXT("sender_id", sender_id, "slot of this sidecar within sf_dir", .value_default = "default"),
    NUMBER("sf_max_segment_bytes", QWP_OPTION_SIZE, sf_segment_bytes, "4m",
           "size of a segment file (also: sf_max_bytes)", .min = 4096, .max = UINT64_C(1) << 30),
    NUMBER("sf_max_total_bytes", QWP_OPTION_SIZE, sf_total_bytes_max, NULL,
           "most bytes in the store, then producers wait [128m, with sf_dir 10g]", .min = 8192),
    CHOICE("sf_durability", sf_durability, durability_choices, "memory",
           "memory survives the process, periodic the host but for the last interval"),
    NUMBER("sf_sync_interval_millis", QWP_OPTION_MILLIS, sf_sync_interval_ns, "5000",
           "between two syncs of sf_durability=periodic", .min = 1),
    NUMBER("sf_append_deadline_millis", QWP_OPTION_MILLIS, sf_append_wait_ns_max, "30000",
           "no effect here: each producer sets how long it waits for room (full_wait_ns_max)"),
    FLAG("drain_orphans", drain_orphans, "off", "also deliver what other slots in sf_dir left"),
    NUMBER("max_background_drainers", QWP_OPTION_COUNT, drainers_max, "4",
           "most such slots at a time", .max = 1024),

    NUMBER("reconnect_initial_backoff_millis", QWP_OPTION_MILLIS, backoff_ns_min, "100",
           "first delay after a round of servers without success", .min = 1),
    NUMBER("reconnect_max_backoff_millis", QWP_OPTION_MILLIS, backoff_ns_max, "5000",
           "longest such delay", .min = 1),
    NUMBER("reconnect_max_duration_millis", QWP_OPTION_MILLIS, first_connect_ns_max, "300000",
           "longest wait of initial_connect_retry=sync; later ones never end"),
    CHOICE("initial_connect_retry", first_connect, first_connect_choices, "async",
           "start without a server (async), end unless one is there in time (sync, on) or in the "
           "first "
           "round (off)"),
    NUMBER("close_flush_timeout_millis", QWP_OPTION_MILLIS, close_flush_ns_max, "60000",
           "longest wait for acknowledgements at a stop; 0: none",
           .flags = QWP_OPTION_MINUS_ONE_IS_ZERO),
    FLAG("request_durable_ack", durable_ack, "off",
         "count rows as delivered only when the server has replicated them"),
    NUMBER("durable_ack_keepalive_interval_millis", QWP_OPTION_MILLIS, durable_ack_keepalive_ns,
           "200", "between pings that ask for durable acknowledgements; 0: none",
           .flags = QWP_OPTION_MINUS_ONE_IS_ZERO),

    NUMBER("max_frame_rejections", QWP_OPTION_COUNT, frame_rejections_max, "4",
           "refusals of the same rows, for a reason that may pass, that prove them bad", .min = 1),
    NUMBER("poison_min_escalation_window_millis", QWP_OPTION_MILLIS, poison_window_ns_min, "5000",
           "and they must span at least this long"),
    CHOICE("on_server_error", on_server_error, on_error_choices, "auto",
           "for every rejection without its own key below"),
    CHOICE("on_schema_error", on_schema_error, on_error_choices, "auto",
           "a type clash; auto sets the rows aside, terminal stops everything"),
    CHOICE("on_parse_error", on_parse_error, on_error_choices, "auto",
           "a message not understood; auto sets the rows aside"),
    CHOICE("on_internal_error", on_internal_error, on_error_choices, "auto",
           "trouble inside the server; auto tries again"),
    CHOICE("on_security_error", on_security_error, on_error_choices, "auto",
           "no permission; auto sets the rows aside"),
    CHOICE("on_write_error", on_write_error, on_error_choices, "auto",
           "the table cannot be written; auto tries again"),

    /* Keys of clients with inboxes, buffers, pools and queries of their own. */
    IGNORED("acquire_timeout_ms"),
    IGNORED("auto_flush"),
    IGNORED("buffer_pool_size"),
    IGNORED("catch_up_cap_gap_min_escalation_window_millis"),
    IGNORED("client_id"),
    IGNORED("compression"),
    IGNORED("compression_level"),
    IGNORED("connection_listener_inbox_capacity"),
    IGNORED("error_inbox_capacity"),
    IGNORED("failover"),
    IGNORED("failover_backoff_initial_ms"),
    IGNORED("failover_backoff_max_ms"),
    IGNORED("failover_max_attempts"),
    IGNORED("failover_max_duration_ms"),
    IGNORED("housekeeper_interval_ms"),
    IGNORED("idle_timeout_ms"),
    IGNORED("in_flight_window"),
    IGNORED("init_buf_size"),
    IGNORED("initial_credit"),
    IGNORED("lazy_connect"),
    IGNORED("max_batch_rows"),
    IGNORED("max_buf_size"),
    IGNORED("max_lifetime_ms"),
    IGNORED("max_name_len"),
    IGNORED("pool_max"),
    IGNORED("pool_size"),
    IGNORED("query_close_timeout_ms"),
    IGNORED("query_pool_max"),
    IGNORED("query_pool_min"),
    IGNORED("sender_pool_max"),
    IGNORED("sender_pool_min"),
    IGNORED("target"),
    IGNORED("transaction"),
    IGNORED("zone"),
};

static const struct {
    const char *alias;
    const char *name;
} aliases[] = {
    {"user", "username"},
    {"pass", "password"},
    {"sf_max_bytes", "sf_max_segment_bytes"},
};

const struct qwp_option *qwp_conf_table_find(const char *key)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(aliases[i].alias, key) == 0) {
            key = aliases[i].name;
        }
    }
    return qwp_option_find(qwp_conf_table, QWP_CONF_TABLE_COUNT, key);
}

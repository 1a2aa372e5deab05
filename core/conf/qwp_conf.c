#include "core/conf/qwp_conf.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/conf/qwp_option.h"
#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/wire/qwp_names.h"

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

static const struct qwp_option options[] = {
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
            "certificates to trust, PEM, or PKCS#12 with a password; else the system's"),
    SECRET("tls_roots_password", tls_roots_password, "password of a PKCS#12 tls_roots"),
    FILE_OF("tls_roots_password_file", tls_roots_password_file, "file holding that password"),
    NUMBER("connect_timeout", QWP_OPTION_MILLIS, connect_timeout_ns, "none",
           "longest TCP connect to one server, then the next is tried", .min = 1,
           .flags = QWP_OPTION_NONE_IS_NEVER),
    NUMBER("auth_timeout_ms", QWP_OPTION_MILLIS, auth_timeout_ns, "15000",
           "longest TLS handshake and upgrade answer of one server", .min = 1),

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
           "longest a producer waits for room"),
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
           "start without a server (async), wait for one (sync, on), or try once (off)"),
    NUMBER("close_flush_timeout_millis", QWP_OPTION_MILLIS, close_flush_ns_max, "60000",
           "longest wait for acknowledgements at a stop; 0: none",
           .flags = QWP_OPTION_UNSIGNED_CLAMP),
    FLAG("request_durable_ack", durable_ack, "off",
         "count rows as delivered only when the server has replicated them"),
    NUMBER("durable_ack_keepalive_interval_millis", QWP_OPTION_MILLIS, durable_ack_keepalive_ns,
           "200", "between pings that ask for durable acknowledgements; 0: none",
           .flags = QWP_OPTION_UNSIGNED_CLAMP),

    NUMBER("max_frame_rejections", QWP_OPTION_COUNT, frame_rejections_max, "4",
           "rejections of one frame, with no progress between, that prove it bad", .min = 1),
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
enum { OPTION_COUNT = sizeof options / sizeof options[0] };

static const struct {
    const char *alias;
    const char *name;
} aliases[] = {
    {"user", "username"},
    {"pass", "password"},
    {"sf_max_bytes", "sf_max_segment_bytes"},
};

/* One parse under way. */
struct parse {
    struct qwp_conf conf;
    bool seen[OPTION_COUNT];
    size_t endpoint_room;
    size_t used;            /* of conf.values */
    const char *key_before; /* of the entry before this one; NULL: none */
    bool secret_before;     /* and whether its value is a secret */
    struct qwp_error *err;
};

/* ---- addr ---- */

static bool host_is_valid(const char *host, bool bracketed)
{
    if (bracketed) {
        char address[64];
        struct in6_addr binary;
        /* A link-local address may name its interface behind a '%'. */
        const size_t len = strcspn(host, "%");
        if (len >= sizeof address) {
            return false;
        }
        memcpy(address, host, len);
        address[len] = '\0';
        return inet_pton(AF_INET6, address, &binary) == 1;
    }
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const size_t len = strlen(host);
    return len > 0 && len <= 253 && strspn(host, allowed) == len;
}

static bool read_port(const char *text, uint16_t *port)
{
    const size_t digits = strspn(text, "0123456789");
    if (digits == 0 || digits > 5 || text[digits] != '\0') {
        return false;
    }
    const long number = strtol(text, NULL, 10);
    *port = (uint16_t)number;
    return number >= 1 && number <= UINT16_MAX;
}

static enum qwp_result add_endpoint(struct parse *parse, const char *host, uint16_t port)
{
    struct qwp_conf *conf = &parse->conf;
    for (size_t i = 0; i < conf->endpoint_count; i++) {
        if (conf->endpoints[i].port == port && strcasecmp(conf->endpoints[i].host, host) == 0) {
            return qwp_fail(parse->err, QWP_INVALID, 0, "addr: '%s' with port %u is given twice",
                            qwp_show(host).text, (unsigned)port);
        }
    }
    if (conf->endpoint_count == parse->endpoint_room) {
        const size_t room = parse->endpoint_room == 0 ? 4 : 2 * parse->endpoint_room;
        struct qwp_endpoint *grown = realloc(conf->endpoints, room * sizeof *grown);
        if (grown == NULL) {
            return qwp_fail(parse->err, QWP_NOMEM, 0, "addr: no memory");
        }
        conf->endpoints = grown;
        parse->endpoint_room = room;
    }
    conf->endpoints[conf->endpoint_count++] = (struct qwp_endpoint){host, port};
    return QWP_OK;
}

/* Cuts `entry` into host and port, in place. */
static enum qwp_result parse_endpoint(struct parse *parse, char *entry)
{
    const struct qwp_shown shown = qwp_show(entry);
    const bool bracketed = entry[0] == '[';
    char *host = bracketed ? entry + 1 : entry;
    uint16_t port = QWP_CONF_PORT_DEFAULT;
    if (entry[0] == '\0') {
        return qwp_fail(parse->err, QWP_INVALID, 0, "addr: holds an empty entry");
    }
    if (strchr(entry, '@') != NULL) { /* perhaps user:password@host: say nothing of it */
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "addr: holds an '@': credentials go into username and password");
    }
    char *behind = bracketed ? strchr(entry, ']') : strchr(entry, ':');
    if (bracketed && behind == NULL) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "addr: '%s' has no closing ']'", shown.text);
    }
    if (bracketed) {
        *behind++ = '\0';
    } else if (behind != NULL && strchr(behind + 1, ':') != NULL) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "addr: '%s' has several ':'; write an IPv6 address as [::1]:9000",
                        shown.text);
    }
    if (behind != NULL && *behind != '\0') {
        const bool colon = *behind == ':';
        *behind = '\0';
        if (!colon || !read_port(behind + 1, &port)) {
            return qwp_fail(parse->err, QWP_INVALID, 0, "addr: '%s' has no port from 1 to 65535",
                            shown.text);
        }
    }
    if (!host_is_valid(host, bracketed)) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "addr: '%s' is no host name or address",
                        shown.text);
    }
    return add_endpoint(parse, host, port);
}

static enum qwp_result parse_endpoints(struct parse *parse, char *value)
{
    for (char *entry = value; entry != NULL;) {
        char *comma = strchr(entry, ',');
        if (comma != NULL) {
            *comma++ = '\0';
        }
        const enum qwp_result result = parse_endpoint(parse, entry);
        if (result != QWP_OK) {
            return result;
        }
        entry = comma;
    }
    return QWP_OK;
}

/* ---- the grammar ---- */

static enum qwp_result check_characters(const char *text, struct qwp_error *err)
{
    const size_t len = strlen(text);
    if (!qwp_utf8_valid(text, len)) {
        return qwp_fail(err, QWP_INVALID, 0, "connect string: is not valid UTF-8");
    }
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        const unsigned char next = (unsigned char)text[i + 1];
        /* U+0080 to U+009f are control characters too. */
        if (c < 0x20 || c == 0x7f || (c == 0xc2 && next < 0xa0)) {
            return qwp_fail(err, QWP_INVALID, 0, "connect string: control character at byte %zu",
                            i);
        }
    }
    return QWP_OK;
}

/* Sets tls and leaves *rest at the first entry. */
static enum qwp_result parse_schema(struct parse *parse, const char *text, const char **rest)
{
    const char *colons = strstr(text, "::");
    const size_t len = colons != NULL ? (size_t)(colons - text) : 0;
    const size_t letters = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ");
    if (colons == NULL || letters != len || len > 16) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "connect string: does not begin with a schema: expected ws:: or wss::");
    }
    if (strncmp(text, "ws::", 4) != 0 && strncmp(text, "wss::", 5) != 0) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "connect string: schema '%.*s' is not spoken here: expected ws, or wss for "
                        "TLS",
                        (int)len, text);
    }
    parse->conf.tls = len == 3;
    *rest = colons + 2;
    return QWP_OK;
}

/* Copies a value up to its single ';' or the end, halving each ";;". *rest is left behind it. */
static char *take_value(struct parse *parse, const char *from, const char **rest)
{
    char *value = parse->conf.values + parse->used;
    char *to = value;
    while (*from != '\0') {
        if (*from == ';') {
            from++;
            if (*from != ';') {
                break;
            }
        }
        *to++ = *from++;
    }
    *to++ = '\0';
    parse->used = (size_t)(to - parse->conf.values);
    *rest = from;
    return value;
}

static enum qwp_result refuse_key(const struct parse *parse, const char *key, bool well_formed)
{
    static const char *const hint = "a ';' inside a value is written ';;'";
    if (!well_formed && parse->secret_before) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "unknown key behind '%s', not shown since it may be a part of it: %s",
                        parse->key_before, hint);
    }
    if (!well_formed) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "'%s' is no key: %s", qwp_show(key).text, hint);
    }
    return qwp_fail(parse->err, QWP_INVALID, 0,
                    "%s: unknown key: keys are case-sensitive, and `qwp-sidecar run --help` lists "
                    "them",
                    qwp_show(key).text);
}

/* Cuts the key of the entry at `at` out into `key`; *value is left behind its '='. */
static enum qwp_result take_key(const struct parse *parse, const char *at, char *key,
                                size_t key_bytes, const char **value)
{
    const size_t len = strcspn(at, "=;");
    if (at[len] != '=') {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "connect string: an entry without '=' behind '%s': a ';' inside a value is "
                        "written ';;'",
                        parse->key_before != NULL ? parse->key_before : "::");
    }
    const size_t kept = len < key_bytes ? len : key_bytes - 1;
    memcpy(key, at, kept);
    key[kept] = '\0';
    if (len == 0) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "connect string: an entry has no key");
    }
    *value = at + len + 1;
    return QWP_OK;
}

static const struct qwp_option *find_option(const char *key)
{
    for (size_t i = 0; i < sizeof aliases / sizeof aliases[0]; i++) {
        if (strcmp(aliases[i].alias, key) == 0) {
            key = aliases[i].name;
        }
    }
    return qwp_option_find(options, OPTION_COUNT, key);
}

static enum qwp_result apply(struct parse *parse, const struct qwp_option *option, char *value)
{
    const size_t index = (size_t)(option - options);
    const bool is_addr = option->kind == QWP_OPTION_OWN;
    if (value[0] == '\0') {
        return qwp_fail(parse->err, QWP_INVALID, 0, "%s: has no value", option->name);
    }
    if (parse->seen[index] && !is_addr) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "%s: given twice", option->name);
    }
    parse->seen[index] = true;
    if (is_addr) {
        return parse_endpoints(parse, value);
    }
    if (option->kind == QWP_OPTION_IGNORED) {
        QWP_ASSERT(parse->conf.ignored_count < QWP_CONF_IGNORED_MAX);
        parse->conf.ignored[parse->conf.ignored_count++] = option->name;
        return QWP_OK;
    }
    return qwp_option_set(option, &parse->conf, value, parse->err);
}

static enum qwp_result parse_entry(struct parse *parse, const char *at, const char **rest)
{
    char key[64];
    const char *text = NULL;
    enum qwp_result result = take_key(parse, at, key, sizeof key, &text);
    if (result != QWP_OK) {
        return result;
    }
    const struct qwp_option *option = find_option(key);
    if (option == NULL) {
        static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
        const bool well_formed = strspn(key, letters) == strlen(key);
        return refuse_key(parse, key, well_formed);
    }
    result = apply(parse, option, take_value(parse, text, rest));
    parse->key_before = option->name;
    parse->secret_before = (option->flags & QWP_OPTION_SECRET) != 0;
    return result;
}

/* ---- what keys mean together ---- */

static enum qwp_result check_tls(struct parse *parse)
{
    struct qwp_conf *conf = &parse->conf;
    const char *alone = conf->tls_roots != NULL                 ? "tls_roots"
                        : conf->tls_roots_password != NULL      ? "tls_roots_password"
                        : conf->tls_roots_password_file != NULL ? "tls_roots_password_file"
                        : conf->tls_verify != QWP_TLS_VERIFY_ON ? "tls_verify"
                                                                : NULL;
    if (!conf->tls && alone != NULL) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "%s: has a meaning with the schema wss only, found ws", alone);
    }
    if (conf->tls_roots != NULL && conf->tls_verify != QWP_TLS_VERIFY_ON) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "tls_roots: is of no use with tls_verify=unsafe_off: keep one");
    }
    const bool has_file = conf->tls_roots_password_file != NULL;
    if (conf->tls_roots == NULL && (conf->tls_roots_password != NULL || has_file)) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "tls_roots_password: is given without tls_roots");
    }
    if (conf->tls_roots_password != NULL && has_file) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "tls_roots_password and tls_roots_password_file are both given: keep one");
    }
    if (!has_file) {
        return QWP_OK;
    }
    const enum qwp_result result =
        qwp_secret_read("tls_roots_password_file", conf->tls_roots_password_file,
                        &conf->tls_roots_password_read, parse->err);
    conf->tls_roots_password = conf->tls_roots_password_read;
    return result;
}

/* A directory's name, and one that a scan for slots does not skip. */
static enum qwp_result check_sender_id(const struct parse *parse)
{
    const char *id = parse->conf.sender_id;
    if (strpbrk(id, "/\\") != NULL || id[0] == '.' || strlen(id) > 200) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "sender_id: '%s' cannot name a directory: at most 200 bytes, no '/' or "
                        "'\\', no dot at the start",
                        qwp_show(id).text);
    }
    return QWP_OK;
}

static enum qwp_result check_store(struct parse *parse)
{
    struct qwp_conf *conf = &parse->conf;
    if (conf->sf_total_bytes_max == 0) {
        conf->sf_total_bytes_max = conf->sf_dir != NULL ? UINT64_C(10) << 30 : UINT64_C(128) << 20;
    }
    if (conf->sf_total_bytes_max < 2 * conf->sf_segment_bytes) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "sf_max_total_bytes: %llu bytes hold fewer than two segments of "
                        "sf_max_segment_bytes=%llu",
                        (unsigned long long)conf->sf_total_bytes_max,
                        (unsigned long long)conf->sf_segment_bytes);
    }
    return check_sender_id(parse);
}

static void fold_first_connect(struct qwp_conf *conf)
{
    static const uint8_t meaning[] = {QWP_FIRST_CONNECT_ASYNC, QWP_FIRST_CONNECT_SYNC,
                                      QWP_FIRST_CONNECT_OFF,   QWP_FIRST_CONNECT_SYNC,
                                      QWP_FIRST_CONNECT_SYNC,  QWP_FIRST_CONNECT_OFF};
    conf->first_connect = meaning[conf->first_connect];
}

static void fold_on_error(struct qwp_conf *conf)
{
    uint8_t *const own[] = {&conf->on_schema_error, &conf->on_parse_error, &conf->on_internal_error,
                            &conf->on_security_error, &conf->on_write_error};
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (*own[i] == QWP_ON_ERROR_AUTO) {
            *own[i] = conf->on_server_error;
        }
    }
}

static bool was_given(const struct parse *parse, const char *key)
{
    return parse->seen[find_option(key) - options];
}

static enum qwp_result finish(struct parse *parse)
{
    struct qwp_conf *conf = &parse->conf;
    if (conf->endpoint_count == 0) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "addr: is missing: add addr=HOST[:PORT]");
    }
    if (!was_given(parse, "reconnect_initial_backoff_millis") &&
        conf->backoff_ns_min > conf->backoff_ns_max) {
        conf->backoff_ns_min = conf->backoff_ns_max;
    }
    if (conf->backoff_ns_min > conf->backoff_ns_max) {
        return qwp_fail(parse->err, QWP_INVALID, 0,
                        "reconnect_initial_backoff_millis: is larger than "
                        "reconnect_max_backoff_millis");
    }
    fold_first_connect(conf);
    fold_on_error(conf);
    enum qwp_result result = check_store(parse);
    if (result == QWP_OK) {
        result = check_tls(parse);
    }
    if (result == QWP_OK) {
        result =
            qwp_credentials_authorization(&conf->credentials, &conf->authorization, parse->err);
    }
    return result;
}

static enum qwp_result parse_all(struct parse *parse, const char *text)
{
    const char *at = text;
    enum qwp_result result = check_characters(text, parse->err);
    if (result == QWP_OK) {
        result = parse_schema(parse, text, &at);
    }
    while (result == QWP_OK && *at != '\0') {
        result = parse_entry(parse, at, &at);
    }
    return result == QWP_OK ? finish(parse) : result;
}

enum qwp_result qwp_conf_parse(struct qwp_conf *conf, const char *text, struct qwp_error *err)
{
    struct parse parse = {.err = err};
    /* A value and its terminator are never longer than the value, its '=' and its key. */
    parse.conf.values_bytes = strlen(text) + 1;
    parse.conf.values = malloc(parse.conf.values_bytes);
    if (parse.conf.values == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "connect string: no memory");
    }
    qwp_option_set_defaults(options, OPTION_COUNT, &parse.conf);
    const enum qwp_result result = parse_all(&parse, text);
    if (result != QWP_OK) {
        qwp_conf_fini(&parse.conf);
        return result;
    }
    *conf = parse.conf;
    return QWP_OK;
}

/* ---- files and the environment ---- */

/* Whether a line's last value still needs its ';': an even number of them ends nothing. */
static bool is_open(const char *line, size_t len)
{
    size_t semicolons = 0;
    while (semicolons < len && line[len - 1 - semicolons] == ';') {
        semicolons++;
    }
    const bool schema_alone = len >= 2 && line[len - 1] == ':' && line[len - 2] == ':';
    return semicolons % 2 == 0 && !schema_alone;
}

/* Turns lines into one string in `to`, which has room for a ';' a line more. */
static void join_lines(const char *from, char *to)
{
    static const char blanks[] = " \t\r";
    while (*from != '\0') {
        const size_t line_len = strcspn(from, "\n");
        const char *line = from + strspn(from, blanks);
        size_t len = line < from + line_len ? (size_t)(from + line_len - line) : 0;
        while (len > 0 && strchr(blanks, line[len - 1]) != NULL) {
            len--;
        }
        if (len > 0 && line[0] != '#') {
            memcpy(to, line, len);
            to += len;
            if (is_open(line, len)) {
                *to++ = ';';
            }
        }
        from += line_len + (from[line_len] == '\n');
    }
    *to = '\0';
}

enum qwp_result qwp_conf_parse_file(struct qwp_conf *conf, const char *path, struct qwp_error *err)
{
    char *text;
    size_t len;
    enum qwp_result result = qwp_text_read("connect string", path, &text, &len, err);
    if (result != QWP_OK) {
        return result;
    }
    const size_t joined_bytes = 2 * len + 2;
    char *joined = calloc(1, joined_bytes);
    if (joined == NULL) {
        result = qwp_fail(err, QWP_NOMEM, 0, "connect string: no memory");
    } else if (memchr(text, '\0', len) != NULL) {
        result = qwp_fail(err, QWP_INVALID, 0, "connect string: holds a zero byte");
    } else {
        join_lines(text, joined);
        result = qwp_conf_parse(conf, joined, err);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "%s", qwp_show(path).text);
    }
    qwp_text_free(joined, joined_bytes);
    qwp_text_free(text, len);
    return result;
}

enum qwp_result qwp_conf_load(struct qwp_conf *conf, const char *text, const char *path,
                              struct qwp_error *err)
{
    if (text != NULL && path != NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "a connect string and a file of one are both given");
    }
    if (text != NULL) {
        return qwp_conf_parse(conf, text, err);
    }
    if (path != NULL) {
        return qwp_conf_parse_file(conf, path, err);
    }
    const char *from_env = getenv(QWP_CONF_ENV);
    if (from_env == NULL || from_env[0] == '\0') {
        return qwp_fail(err, QWP_INVALID, 0,
                        "no connect string: give --conf 'ws::addr=HOST:PORT;', --conf-file FILE, "
                        "or set " QWP_CONF_ENV);
    }
    const enum qwp_result result = qwp_conf_parse(conf, from_env, err);
    if (result != QWP_OK) {
        qwp_error_prefix(err, QWP_CONF_ENV);
    }
    return result;
}

void qwp_conf_fini(struct qwp_conf *conf)
{
    qwp_text_free(conf->values, conf->values_bytes);
    qwp_secret_free(conf->authorization);
    qwp_secret_free(conf->tls_roots_password_read);
    free(conf->endpoints);
    *conf = (struct qwp_conf){0};
}

void qwp_conf_describe(FILE *out)
{
    fputs("Connect string: ws::key=value;key=value; or wss:: for TLS (';;' is a ';' in a value).\n"
          "Keys, with their defaults:\n",
          out);
    qwp_option_describe(options, OPTION_COUNT, "", out);
    fputs("Other keys of the QuestDB clients are accepted and have no effect here.\n", out);
}

#include "core/conf/qwp_conf.h"

#include <stdlib.h>
#include <string.h>

#include "core/conf/qwp_conf_table.h"
#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

/* One parse under way. */
struct parse {
    struct qwp_conf conf;
    bool seen[QWP_CONF_TABLE_COUNT];
    size_t used;            /* of conf.values */
    const char *key_before; /* of the entry before this one; NULL: none */
    bool secret_before;     /* and whether its value is a secret */
    struct qwp_error *err;
};

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

static enum qwp_result apply(struct parse *parse, const struct qwp_option *option, char *value)
{
    const size_t index = (size_t)(option - qwp_conf_table);
    const bool is_addr = option->kind == QWP_OPTION_OWN;
    if (value[0] == '\0') {
        return qwp_fail(parse->err, QWP_INVALID, 0, "%s: has no value", option->name);
    }
    if (parse->seen[index] && !is_addr) {
        return qwp_fail(parse->err, QWP_INVALID, 0, "%s: given twice", option->name);
    }
    parse->seen[index] = true;
    if (is_addr) {
        return qwp_endpoints_parse(&parse->conf.endpoints, value, parse->err);
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
    const struct qwp_option *option = qwp_conf_table_find(key);
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
    return parse->seen[qwp_conf_table_find(key) - qwp_conf_table];
}

static enum qwp_result finish(struct parse *parse)
{
    struct qwp_conf *conf = &parse->conf;
    if (conf->endpoints.count == 0) {
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
    qwp_option_set_defaults(qwp_conf_table, QWP_CONF_TABLE_COUNT, &parse.conf);
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
    if (result == QWP_OK) {
        conf->file = path;
    } else {
        qwp_error_prefix(err, "%s", qwp_show(path).text);
    }
    qwp_text_free(joined, joined_bytes);
    qwp_text_free(text, len);
    return result;
}

static const char *conf_from_env(void)
{
    const char *text = getenv(QWP_CONF_ENV);
    return text != NULL && text[0] != '\0' ? text : NULL;
}

bool qwp_conf_is_given(const char *text, const char *path)
{
    return text != NULL || path != NULL || conf_from_env() != NULL;
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
    const char *from_env = conf_from_env();
    if (from_env == NULL) {
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
    qwp_endpoints_fini(&conf->endpoints);
    *conf = (struct qwp_conf){0};
}

void qwp_conf_describe(FILE *out)
{
    fputs("Connect string: ws::key=value;key=value; or wss:: for TLS (';;' is a ';' in a value).\n"
          "Keys, with their defaults:\n",
          out);
    qwp_option_describe(qwp_conf_table, QWP_CONF_TABLE_COUNT, "", out);
    fputs("Other keys of the QuestDB clients are accepted and have no effect here.\n", out);
}

#include "transport/qwp_http_upgrade.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>

#include "core/qwp_assert.h"

static const char accept_salt[] = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"; /* RFC 6455, 1.3 */

enum { SHA1_BYTES = 20, KEY_BYTES = 16 };
enum { PORT_HTTP = 80, PORT_HTTPS = 443 };

void qwp_upgrade_init_with_key(struct qwp_upgrade *u, const unsigned char key[16])
{
    u->status = 0;
    u->reason[0] = u->role[0] = '\0';
    u->version = 0;
    u->batch_max = 0;
    u->durable_ack = false;
    u->total_len = u->head_len = 0;

    EVP_EncodeBlock((unsigned char *)u->key, key, KEY_BYTES);
    char salted[QWP_UPGRADE_KEY_TEXT + sizeof accept_salt];
    const int len = snprintf(salted, sizeof salted, "%s%s", u->key, accept_salt);
    unsigned char digest[EVP_MAX_MD_SIZE];
    QWP_ASSERT(EVP_Digest(salted, (size_t)len, digest, NULL, EVP_sha1(), NULL) == 1);
    EVP_EncodeBlock((unsigned char *)u->accept, digest, SHA1_BYTES);
}

void qwp_upgrade_init(struct qwp_upgrade *u)
{
    unsigned char key[KEY_BYTES];
    QWP_ASSERT(getrandom(key, sizeof key, 0) == (ssize_t)sizeof key);
    qwp_upgrade_init_with_key(u, key);
}

static bool value_is_clean(const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f) {
            return false;
        }
    }
    return true;
}

enum qwp_result qwp_upgrade_write(const struct qwp_upgrade *u,
                                  const struct qwp_upgrade_request *request,
                                  char out[QWP_UPGRADE_REQUEST_MAX], size_t *len,
                                  struct qwp_error *err)
{
    const char *authorization = request->authorization != NULL ? request->authorization : "";
    if (!value_is_clean(request->host) || strchr(request->host, ' ') != NULL ||
        !value_is_clean(request->client_id)) {
        return qwp_fail(err, QWP_INVALID, 0, "upgrade: host or client id with control characters");
    }
    if (!value_is_clean(authorization)) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "upgrade: the credentials hold control characters (a line end?)");
    }
    char port[8] = "";
    if (request->port != PORT_HTTP && request->port != PORT_HTTPS) {
        snprintf(port, sizeof port, ":%u", request->port);
    }
    const bool bracket = strchr(request->host, ':') != NULL;
    const int n = snprintf(out, QWP_UPGRADE_REQUEST_MAX,
                           "GET /write/v4 HTTP/1.1\r\n"
                           "Host: %s%s%s%s\r\n"
                           "Upgrade: websocket\r\n"
                           "Connection: Upgrade\r\n"
                           "Sec-WebSocket-Key: %s\r\n"
                           "Sec-WebSocket-Version: 13\r\n"
                           "X-QWP-Max-Version: 1\r\n"
                           "X-QWP-Client-Id: %s\r\n"
                           "%s%s%s"
                           "%s\r\n",
                           bracket ? "[" : "", request->host, bracket ? "]" : "", port, u->key,
                           request->client_id, authorization[0] != '\0' ? "Authorization: " : "",
                           authorization, authorization[0] != '\0' ? "\r\n" : "",
                           request->durable_ack ? "X-QWP-Request-Durable-Ack: true\r\n" : "");
    if (n < 0 || n >= QWP_UPGRADE_REQUEST_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "upgrade: the request would be larger than %d bytes",
                        QWP_UPGRADE_REQUEST_MAX);
    }
    *len = (size_t)n;
    return QWP_OK;
}

/* Part of the head; not terminated. */
struct text {
    const char *at;
    size_t len;
};

static bool equals(struct text t, const char *word)
{
    return t.len == strlen(word) && strncasecmp(t.at, word, t.len) == 0;
}

static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static struct text trim(struct text t)
{
    while (t.len > 0 && (t.at[0] == ' ' || t.at[0] == '\t')) {
        t.at++;
        t.len--;
    }
    while (t.len > 0 && (t.at[t.len - 1] == ' ' || t.at[t.len - 1] == '\t')) {
        t.len--;
    }
    return t;
}

/* Takes the line before the next CRLF off `rest`. False: a bare CR or LF, or a control character.
 */
static bool take_line(struct text *rest, struct text *line)
{
    line->at = rest->at;
    for (size_t i = 0; i + 1 < rest->len; i++) {
        const unsigned char c = (unsigned char)rest->at[i];
        if (c == '\r' && rest->at[i + 1] == '\n') {
            line->len = i;
            rest->at += i + 2;
            rest->len -= i + 2;
            return true;
        }
        if ((c < 0x20 && c != '\t') || c == 0x7f) {
            return false;
        }
    }
    return false;
}

/* HTTP/1.x SP 3DIGIT SP reason */
static bool parse_status_line(struct qwp_upgrade *u, struct text line)
{
    static const char start[] = "HTTP/1.";
    const size_t start_len = sizeof start - 1;
    if (line.len < start_len + 5 || memcmp(line.at, start, start_len) != 0) {
        return false;
    }
    const char *at = line.at + start_len;
    if ((at[0] != '0' && at[0] != '1') || at[1] != ' ') {
        return false;
    }
    at += 2;
    int status = 0;
    for (int i = 0; i < 3; i++) {
        if (at[i] < '0' || at[i] > '9') {
            return false;
        }
        status = status * 10 + (at[i] - '0');
    }
    if (status < 100) {
        return false;
    }
    const struct text after = {at + 3, line.len - (start_len + 5)};
    if (after.len > 0 && after.at[0] != ' ') {
        return false;
    }
    u->status = status;
    const struct text reason = trim(after);
    size_t n = 0;
    for (; n < reason.len && n + 1 < sizeof u->reason; n++) {
        const char c = reason.at[n];
        u->reason[n] = c >= 0x20 && c < 0x7f && c != '"' ? c : '?';
    }
    u->reason[n] = '\0';
    return true;
}

/* A decimal number up to `max`, nothing else. */
static bool parse_number(struct text t, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (t.len == 0 || t.len > 19) {
        return false;
    }
    for (size_t i = 0; i < t.len; i++) {
        if (t.at[i] < '0' || t.at[i] > '9') {
            return false;
        }
        v = v * 10 + (uint64_t)(t.at[i] - '0');
    }
    *out = v;
    return v <= max;
}

static bool list_has(struct text list, const char *word)
{
    while (list.len > 0) {
        const char *comma = memchr(list.at, ',', list.len);
        const size_t len = comma == NULL ? list.len : (size_t)(comma - list.at);
        if (equals(trim((struct text){list.at, len}), word)) {
            return true;
        }
        const size_t used = comma == NULL ? len : len + 1;
        list.at += used;
        list.len -= used;
    }
    return false;
}

/* What the headers of one answer said; a second one of a kind is a breach. */
struct found {
    bool upgrade;
    bool connection;
    bool accept;
    bool accept_seen;
    bool version_seen;
    bool batch_seen;
    bool durable_seen;
    bool role_seen;
    bool extension;
};

static bool first(bool *seen)
{
    const bool was = *seen;
    *seen = true;
    return !was;
}

static void copy_role(struct qwp_upgrade *u, struct text value)
{
    size_t n = 0;
    for (; n < value.len && n + 1 < sizeof u->role; n++) {
        u->role[n] = is_token_char(value.at[n]) ? value.at[n] : '?';
    }
    u->role[n] = '\0';
}

/* False: a header of ours that makes no sense. */
static bool parse_header(struct qwp_upgrade *u, struct found *found, struct text name,
                         struct text value)
{
    uint64_t number;
    if (equals(name, "Upgrade")) {
        found->upgrade = found->upgrade || list_has(value, "websocket");
    } else if (equals(name, "Connection")) {
        found->connection = found->connection || list_has(value, "upgrade");
    } else if (equals(name, "Sec-WebSocket-Accept")) {
        found->accept =
            value.len == QWP_UPGRADE_ACCEPT_TEXT && memcmp(value.at, u->accept, value.len) == 0;
        return first(&found->accept_seen);
    } else if (equals(name, "Sec-WebSocket-Extensions") || equals(name, "Sec-WebSocket-Protocol")) {
        found->extension = true;
    } else if (equals(name, "X-QWP-Version")) {
        if (!parse_number(value, UINT32_MAX, &number)) {
            return false;
        }
        u->version = (uint32_t)number;
        return first(&found->version_seen);
    } else if (equals(name, "X-QWP-Max-Batch-Size")) {
        if (!parse_number(value, INT64_MAX, &number) || number == 0) {
            return false;
        }
        u->batch_max = number;
        return first(&found->batch_seen);
    } else if (equals(name, "X-QWP-Durable-Ack")) {
        u->durable_ack = equals(value, "enabled");
        return first(&found->durable_seen);
    } else if (equals(name, "X-QuestDB-Role")) {
        copy_role(u, value);
        return first(&found->role_seen);
    }
    return true;
}

static enum qwp_result parse_header_line(struct qwp_upgrade *u, struct found *found,
                                         struct text line, struct qwp_error *err)
{
    const char *colon = memchr(line.at, ':', line.len);
    const size_t name_len = colon == NULL ? 0 : (size_t)(colon - line.at);
    bool valid = name_len > 0;
    for (size_t i = 0; i < name_len; i++) {
        valid = valid && is_token_char(line.at[i]);
    }
    if (!valid) { /* also a folded line: it begins with a space */
        return qwp_fail(err, QWP_PEER, 0, "HTTP: a malformed header line in the upgrade answer");
    }
    const struct text name = {line.at, name_len};
    const struct text value = trim((struct text){colon + 1, line.len - name_len - 1});
    if (!parse_header(u, found, name, value)) {
        return qwp_fail(err, QWP_PEER, 0,
                        "HTTP: header %.*s of the upgrade answer is doubled or makes no sense",
                        (int)(name_len > 64 ? 64 : name_len), name.at);
    }
    return QWP_OK;
}

static enum qwp_result check_switch(const struct found *found, struct qwp_error *err)
{
    if (!found->upgrade || !found->connection) {
        return qwp_fail(err, QWP_PEER, 0,
                        "HTTP: 101 without \"Upgrade: websocket\" and \"Connection: Upgrade\"");
    }
    if (!found->accept) {
        return qwp_fail(err, QWP_PEER, 0,
                        "HTTP: 101 with %s Sec-WebSocket-Accept: not a WebSocket server, or a "
                        "cached answer",
                        found->accept_seen ? "a wrong" : "no");
    }
    if (found->extension) {
        return qwp_fail(err, QWP_PEER, 0,
                        "HTTP: 101 with a WebSocket extension or protocol nobody asked for");
    }
    return QWP_OK;
}

static enum qwp_result parse_head(struct qwp_upgrade *u, struct qwp_error *err)
{
    struct text rest = {(const char *)u->head, u->head_len};
    struct text line;
    if (!take_line(&rest, &line) || !parse_status_line(u, line)) {
        return qwp_fail(err, QWP_PEER, 0, "HTTP: the answer does not begin with a status line");
    }
    u->version = 0;
    u->batch_max = 0;
    u->durable_ack = false;
    u->role[0] = '\0';
    struct found found = {0};
    for (;;) {
        if (!take_line(&rest, &line)) {
            return qwp_fail(err, QWP_PEER, 0, "HTTP: control characters in the upgrade answer");
        }
        if (line.len == 0) {
            break;
        }
        const enum qwp_result result = parse_header_line(u, &found, line, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return u->status == 101 ? check_switch(&found, err) : QWP_OK;
}

/* A first byte that cannot begin an answer is refused at once: whoever speaks another protocol (TLS
 * on a plain port, say) may wait for us for ever. */
static bool begins_like_an_answer(const struct qwp_upgrade *u)
{
    static const char start[] = "HTTP/1.";
    const size_t n = u->head_len < sizeof start - 1 ? u->head_len : sizeof start - 1;
    return memcmp(u->head, start, n) == 0;
}

enum qwp_result qwp_upgrade_read(struct qwp_upgrade *u, const unsigned char **at,
                                 const unsigned char *end, struct qwp_error *err)
{
    while (*at < end) {
        if (u->total_len == sizeof u->head) {
            return qwp_fail(err, QWP_LIMIT, 0,
                            "HTTP: the head of the upgrade answer is larger than %zu bytes",
                            sizeof u->head);
        }
        u->head[u->head_len++] = *(*at)++;
        u->total_len++;
        if (!begins_like_an_answer(u)) {
            return qwp_fail(err, QWP_PEER, 0,
                            "HTTP: the answer is no HTTP/1.1 (begins 0x%02x): is this the HTTP "
                            "port, and ws or wss as the server has it?",
                            u->head[0]);
        }
        if (u->head_len < 4 || memcmp(u->head + u->head_len - 4, "\r\n\r\n", 4) != 0) {
            continue;
        }
        const enum qwp_result result = parse_head(u, err);
        if (result != QWP_OK) {
            return result;
        }
        if (u->status >= 200 || u->status == 101) {
            return QWP_OK;
        }
        u->head_len = 0; /* interim: the answer proper follows */
    }
    return QWP_AGAIN;
}

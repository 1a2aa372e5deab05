#include "tests/sink/sink_http.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define WEBSOCKET_GUID "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

struct text {
    const char *at;
    size_t len;
};

struct request {
    struct text method;
    struct text path;
    struct text version;
    struct text headers; /* lines behind the request line */
};

size_t sink_http_head_len(const char *at, size_t len)
{
    const char *end = memmem(at, len, "\r\n\r\n", 4);
    return end == NULL ? 0 : (size_t)(end - at) + 4;
}

static bool text_is(struct text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

static bool text_is_word(struct text text, const char *word)
{
    return text.len == strlen(word) && strncasecmp(text.at, word, text.len) == 0;
}

static struct text trimmed(struct text text)
{
    while (text.len > 0 && (text.at[0] == ' ' || text.at[0] == '\t')) {
        text.at++;
        text.len--;
    }
    while (text.len > 0 && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t')) {
        text.len--;
    }
    return text;
}

/* Cuts *rest at the first `separator` (or at its end) and returns what stood before. */
static struct text next_part(struct text *rest, const char *separator)
{
    const char *end = memmem(rest->at, rest->len, separator, strlen(separator));
    const size_t len = end != NULL ? (size_t)(end - rest->at) : rest->len;
    const size_t skip = end != NULL ? len + strlen(separator) : len;
    const struct text part = {rest->at, len};
    rest->at += skip;
    rest->len -= skip;
    return part;
}

/* The value of a header; false when absent. Only the first of several is seen. */
static bool header(const struct request *request, const char *name, struct text *value)
{
    struct text lines = request->headers;
    while (lines.len > 0) {
        struct text line = next_part(&lines, "\r\n");
        const struct text key = next_part(&line, ":");
        if (text_is_word(key, name)) {
            *value = trimmed(line);
            return true;
        }
    }
    return false;
}

/* Whether a comma-separated header lists the word. */
static bool header_lists(const struct request *request, const char *name, const char *word)
{
    struct text value;
    if (!header(request, name, &value)) {
        return false;
    }
    while (value.len > 0) {
        if (text_is_word(trimmed(next_part(&value, ",")), word)) {
            return true;
        }
    }
    return false;
}

static void parse(const char *head, size_t len, struct request *request)
{
    struct text rest = {head, len - 2}; /* without the empty line */
    struct text line = next_part(&rest, "\r\n");
    request->method = next_part(&line, " ");
    request->path = next_part(&line, " ");
    request->version = line;
    request->headers = rest;
}

static bool equal_in_constant_time(struct text a, const char *b)
{
    return a.len == strlen(b) && CRYPTO_memcmp(a.at, b, a.len) == 0;
}

static bool authorized(const struct request *request, const struct sink_policy *policy)
{
    if (policy->auth_basic == NULL && policy->auth_bearer == NULL) {
        return true;
    }
    struct text value;
    if (!header(request, "Authorization", &value)) {
        return false;
    }
    const struct text scheme = next_part(&value, " ");
    value = trimmed(value);
    if (text_is_word(scheme, "Basic") && policy->auth_basic != NULL) {
        return equal_in_constant_time(value, policy->auth_basic);
    }
    return text_is_word(scheme, "Bearer") && policy->auth_bearer != NULL &&
           equal_in_constant_time(value, policy->auth_bearer);
}

/* Highest version the client speaks; 0 when it says nonsense. */
static long client_version(const struct request *request)
{
    struct text value;
    if (!header(request, "X-QWP-Max-Version", &value)) {
        return 1;
    }
    char digits[12] = "";
    if (value.len == 0 || value.len >= sizeof digits) {
        return 0;
    }
    memcpy(digits, value.at, value.len);
    char *end;
    const long version = strtol(digits, &end, 10);
    return *end == '\0' && version > 0 ? version : 0;
}

/* 16 bytes in base64 are 22 characters and two fillers. */
static bool key_valid(struct text key)
{
    if (key.len != 24 || key.at[22] != '=' || key.at[23] != '=') {
        return false;
    }
    for (size_t i = 0; i < 22; i++) {
        if (!isalnum((unsigned char)key.at[i]) && key.at[i] != '+' && key.at[i] != '/') {
            return false;
        }
    }
    return true;
}

static int judge(const struct request *request, const struct sink_policy *policy, struct text *key,
                 const char **why)
{
    struct text path = request->path;
    path = next_part(&path, "?");
    if (request->headers.len == 0 || !text_is(request->version, "HTTP/1.1")) {
        *why = "HTTP/1.1 is spoken here";
        return 400;
    }
    if (!text_is(path, "/write/v4") && !text_is(path, "/api/v4/write")) {
        *why = "rows are taken at /write/v4 and /api/v4/write";
        return 404;
    }
    struct text host;
    if (!text_is(request->method, "GET") || !header(request, "Host", &host)) {
        *why = "a WebSocket upgrade is a GET with a Host header";
        return 400;
    }
    if (!header_lists(request, "Upgrade", "websocket") ||
        !header_lists(request, "Connection", "upgrade")) {
        *why = "send Upgrade: websocket and Connection: Upgrade";
        return 426;
    }
    struct text version;
    if (!header(request, "Sec-WebSocket-Version", &version) || !text_is(version, "13")) {
        *why = "WebSocket version 13 is spoken here";
        return 426;
    }
    if (!header(request, "Sec-WebSocket-Key", key) || !key_valid(*key)) {
        *why = "Sec-WebSocket-Key is not 16 bytes in base64";
        return 400;
    }
    if (client_version(request) == 0) {
        *why = "X-QWP-Max-Version is not a positive number";
        return 400;
    }
    if (!authorized(request, policy)) {
        *why = "wrong or missing credentials";
        return 401;
    }
    return 101;
}

static void accept_key(struct text key, char out[32])
{
    char joined[24 + sizeof WEBSOCKET_GUID];
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    memcpy(joined, key.at, 24);
    memcpy(joined + 24, WEBSOCKET_GUID, sizeof WEBSOCKET_GUID);
    if (EVP_Digest(joined, 24 + sizeof WEBSOCKET_GUID - 1, digest, &len, EVP_sha1(), NULL) != 1) {
        len = 0;
    }
    EVP_EncodeBlock((unsigned char *)out, digest, (int)len);
}

static const char *status_text(int status)
{
    switch (status) {
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 404:
        return "Not Found";
    case 426:
        return "Upgrade Required";
    default:
        return "As Asked For";
    }
}

void sink_http_refuse(int status, const char *header, const char *why, struct sink_buffer *out)
{
    sink_buffer_printf(out, "HTTP/1.1 %d %s\r\n", status, status_text(status));
    if (header[0] != '\0') {
        sink_buffer_printf(out, "%s\r\n", header);
    }
    if (status == 401) {
        sink_buffer_text(out, "WWW-Authenticate: Basic realm=\"qwp-sink\"\r\n");
    }
    if (status == 426) {
        sink_buffer_text(out, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n");
    }
    sink_buffer_printf(out,
                       "Content-Type: text/plain\r\nContent-Length: %zu\r\n"
                       "Connection: close\r\n\r\n%s\n",
                       strlen(why) + 1, why);
}

static void note_client(const struct request *request, struct sink_upgrade *upgrade)
{
    struct text client;
    if (!header(request, "X-QWP-Client-Id", &client)) {
        return;
    }
    size_t n = 0;
    for (; n < client.len && n + 1 < sizeof upgrade->client; n++) {
        const unsigned char c = (unsigned char)client.at[n];
        upgrade->client[n] = (char)(c > 0x20 && c < 0x7f && c != '"' ? c : '?');
    }
    upgrade->client[n] = '\0';
}

void sink_http_answer(const char *head, size_t len, const struct sink_policy *policy,
                      struct sink_upgrade *upgrade, struct sink_buffer *out)
{
    struct request request;
    struct text key = {NULL, 0};
    struct text wish;
    const char *why = "";
    parse(head, len, &request);
    *upgrade = (struct sink_upgrade){.status = judge(&request, policy, &key, &why)};
    note_client(&request, upgrade);
    if (upgrade->status != 101) {
        sink_http_refuse(upgrade->status, "", why, out);
        return;
    }
    char accept[32];
    accept_key(key, accept);
    upgrade->durable = policy->durable && header(&request, "X-QWP-Request-Durable-Ack", &wish) &&
                       text_is_word(wish, "true");
    sink_buffer_printf(out,
                       "HTTP/1.1 101 Switching Protocols\r\n"
                       "Upgrade: websocket\r\n"
                       "Connection: Upgrade\r\n"
                       "Sec-WebSocket-Accept: %s\r\n"
                       "X-QWP-Version: 1\r\n"
                       "X-QWP-Max-Batch-Size: %zu\r\n"
                       "X-QuestDB-Role: STANDALONE\r\n"
                       "%s\r\n",
                       accept, policy->message_bytes_max,
                       upgrade->durable ? "X-QWP-Durable-Ack: enabled\r\n" : "");
}

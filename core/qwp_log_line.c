#include "core/qwp_log_line.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

enum {
    KEY_BYTES_MAX = 64,
    VALUE_BYTES_MAX = 1024,
    ESCAPED_BYTES_MAX = 2, /* of one byte of a value */
    END_BYTES = 3,         /* quote, brace, newline: kept free */
};

static const struct {
    const char *name;
    int priority; /* syslog's */
} levels[] = {{"debug", 7}, {"info", 6}, {"warn", 4}, {"error", 3}};

/* ---- bytes ---- */

static bool fits(const struct qwp_log_text *text, size_t len)
{
    return text->len + len + END_BYTES <= text->room;
}

static void put(struct qwp_log_text *text, const char *from, size_t len)
{
    if (fits(text, len)) {
        memcpy(text->at + text->len, from, len);
        text->len += len;
    }
}

static void put_text(struct qwp_log_text *text, const char *from)
{
    put(text, from, strlen(from));
}

/* Fit for a terminal and for every parser: without control characters, and UTF-8. */
static void clean(char *value, size_t len)
{
    const bool is_utf8 = qwp_utf8_valid(value, len);
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)value[i];
        if (c == 0xc2 && i + 1 < len && (unsigned char)value[i + 1] < 0xa0) {
            value[i] = value[i + 1] = '?'; /* U+0080 to U+009f: terminals obey them */
        } else if (c < 0x20 || c == 0x7f || (c >= 0x80 && !is_utf8)) {
            value[i] = '?';
        }
    }
}

static bool needs_quotes(const char *value, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        if (value[i] == ' ' || value[i] == '"' || value[i] == '=' || value[i] == '\\') {
            return true;
        }
    }
    return len == 0;
}

static void put_quoted(struct qwp_log_text *text, const char *value, size_t len)
{
    put_text(text, "\"");
    for (size_t i = 0; i < len && fits(text, ESCAPED_BYTES_MAX); i++) {
        if (value[i] == '"' || value[i] == '\\') {
            put_text(text, "\\");
        }
        put(text, &value[i], 1);
    }
    text->at[text->len++] = '"'; /* END_BYTES has room for it */
}

/* ---- values ---- */

/* A value that is being formatted. */
struct value {
    char bytes[VALUE_BYTES_MAX];
    size_t len;
    bool is_number; /* one conversion of a number and nothing else */
};

/* By address: what a va_list passed by value has become is not defined. */
struct arguments {
    va_list list;
};

static void value_grow(struct value *value, int printed)
{
    const size_t room = sizeof value->bytes - value->len;
    const size_t wanted = printed > 0 ? (size_t)printed : 0;
    value->len += wanted < room ? wanted : room - 1;
}

/* `spec`: one conversion, "%llu" or the like, whose argument is an integer of that size. */
static int print_integer(char *to, size_t room, const char *spec, struct arguments *args)
{
    if (strstr(spec, "ll") != NULL) {
        return snprintf(to, room, spec, va_arg(args->list, long long));
    }
    if (strchr(spec, 'l') != NULL) {
        return snprintf(to, room, spec, va_arg(args->list, long));
    }
    if (strchr(spec, 'z') != NULL) {
        return snprintf(to, room, spec, va_arg(args->list, size_t));
    }
    return snprintf(to, room, spec, va_arg(args->list, int));
}

/* Formats the conversion at `at`, which begins with '%'. Returns what is behind it. */
static const char *put_conversion(struct value *value, const char *at, struct arguments *args)
{
    char spec[16];
    const size_t len = strcspn(at, "diuxcs") + 1;
    QWP_ASSERT(len < sizeof spec);
    memcpy(spec, at, len);
    spec[len] = '\0';
    char *to = value->bytes + value->len;
    const size_t room = sizeof value->bytes - value->len;
    if (spec[len - 1] != 's') {
        value_grow(value, print_integer(to, room, spec, args));
    } else if (strchr(spec, '*') != NULL) {
        const int precision = va_arg(args->list, int);
        value_grow(value, snprintf(to, room, spec, precision, va_arg(args->list, const char *)));
    } else {
        value_grow(value, snprintf(to, room, spec, va_arg(args->list, const char *)));
    }
    return at + len;
}

/* Formats the template of one value at `at`, up to `end`. */
static void format_value(struct value *value, const char *at, const char *end,
                         struct arguments *args)
{
    value->len = 0;
    value->is_number = end - at >= 2 && at[0] == '%' &&
                       strcspn(at, "diuxcs") + 1 == (size_t)(end - at) &&
                       strchr("diu", end[-1]) != NULL;
    while (at < end) {
        if (*at == '%') {
            at = put_conversion(value, at, args);
        } else if (value->len < sizeof value->bytes) {
            value->bytes[value->len++] = *at++;
        } else {
            at++;
        }
    }
    clean(value->bytes, value->len);
}

/* A key, with what separates the pair from the one before. False: there is no room for a pair. */
static bool put_key(struct qwp_log_text *text, const char *key, size_t len)
{
    if (!fits(text, KEY_BYTES_MAX)) {
        return false;
    }
    QWP_ASSERT(len + 8 <= KEY_BYTES_MAX);
    put_text(text, text->format == QWP_LOG_JSON ? ",\"" : " ");
    put(text, key, len);
    put_text(text, text->format == QWP_LOG_JSON ? "\":" : "=");
    return true;
}

static void put_value(struct qwp_log_text *text, const struct value *value, bool is_quoted)
{
    const bool is_bare = text->format == QWP_LOG_JSON
                             ? value->is_number && !is_quoted
                             : !is_quoted && !needs_quotes(value->bytes, value->len);
    if (is_bare && fits(text, value->len)) {
        put(text, value->bytes, value->len);
    } else {
        put_quoted(text, value->bytes, value->len);
    }
}

/* ---- lines ---- */

static void put_time(struct qwp_log_text *text)
{
    struct timespec now;
    struct tm utc;
    char shown[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    const size_t len = strftime(shown, sizeof shown, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(shown + len, sizeof shown - len, ".%03dZ", (int)(now.tv_nsec / 1000000));
    put_text(text, shown);
}

void qwp_log_put_head(struct qwp_log_text *text, enum qwp_log_level level, const char *message,
                      bool is_journal)
{
    const bool is_json = text->format == QWP_LOG_JSON;
    if (is_journal) {
        const char priority[] = {'<', (char)('0' + levels[level].priority), '>'};
        put(text, priority, sizeof priority);
    }
    put_text(text, is_json ? "{" : "");
    if (!is_journal) {
        put_text(text, is_json ? "\"time\":\"" : "");
        put_time(text);
        put_text(text, is_json ? "\"," : " ");
    }
    put_text(text, is_json ? "\"level\":\"" : "level=");
    put_text(text, levels[level].name);
    put_text(text, is_json ? "\",\"msg\":" : " msg=");
    put_quoted(text, message, strlen(message));
}

void qwp_log_put_pairs(struct qwp_log_text *text, const char *pairs, va_list args)
{
    struct arguments arguments;
    struct value value;
    va_copy(arguments.list, args);
    const char *at = pairs;
    while (*at != '\0') {
        at += strspn(at, " ");
        const size_t key_len = strcspn(at, "=");
        const char *key = at;
        at += key_len + (at[key_len] == '=');
        const bool is_quoted = *at == '"';
        at += is_quoted;
        const char *end = at + strcspn(at, is_quoted ? "\"" : " ");
        format_value(&value, at, end, &arguments);
        at = end + (is_quoted && *end == '"');
        if (!put_key(text, key, key_len)) {
            break;
        }
        put_value(text, &value, is_quoted);
    }
    va_end(arguments.list);
}

void qwp_log_put_count(struct qwp_log_text *text, const char *key, unsigned long long count)
{
    char digits[24];
    const int len = snprintf(digits, sizeof digits, "%llu", count);
    if (put_key(text, key, strlen(key))) {
        put(text, digits, (size_t)len);
    }
}

void qwp_log_put_made(struct qwp_log_text *text, const char *made, size_t len)
{
    put(text, made, len);
}

void qwp_log_put_end(struct qwp_log_text *text)
{
    if (text->format == QWP_LOG_JSON) {
        text->at[text->len++] = '}';
    }
    text->at[text->len++] = '\n';
}

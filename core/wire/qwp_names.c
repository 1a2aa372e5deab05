#include "core/wire/qwp_names.h"

#include <locale.h>
#include <pthread.h>
#include <wctype.h>

#include "core/qwp_bytes.h"

/* Reads one code point of valid UTF-8 and moves *at behind it. */
static uint32_t next_code_point(const unsigned char **at)
{
    const unsigned char *p = *at;
    if (p[0] < 0x80) {
        *at = p + 1;
        return p[0];
    }
    if (p[0] < 0xe0) {
        *at = p + 2;
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    }
    if (p[0] < 0xf0) {
        *at = p + 3;
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    }
    *at = p + 4;
    return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

/* Length of the sequence at `p` if it is well formed within `left` bytes, else 0 (RFC 3629, table).
 */
static size_t sequence_len(const unsigned char *p, size_t left)
{
    const unsigned char lead = p[0];
    if (lead < 0x80) {
        return 1;
    }
    const size_t len = lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (len == 0 || len > left) {
        return 0;
    }
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    const bool overlong = (lead == 0xe0 && p[1] < 0xa0) || (lead == 0xf0 && p[1] < 0x90);
    const bool surrogate = lead == 0xed && p[1] > 0x9f;
    const bool beyond = lead == 0xf4 && p[1] > 0x8f;
    return overlong || surrogate || beyond ? 0 : len;
}

bool qwp_utf8_valid(const void *text, size_t len)
{
    const unsigned char *p = text;
    const unsigned char *end = p + len;
    while (p < end) {
        if (end - p >= 8 && (qwp_load_u64(p) & UINT64_C(0x8080808080808080)) == 0) {
            p += 8;
            continue;
        }
        const size_t n = sequence_len(p, (size_t)(end - p));
        if (n == 0) {
            return false;
        }
        p += n;
    }
    return true;
}

/* What the server forbids in every name; '.' and '-' differ by kind. */
static bool forbidden(uint32_t c)
{
    if (c < 0x10 || c == 0x7f || c == 0xfeff) {
        return true;
    }
    switch (c) {
    case '?':
    case ',':
    case '\'':
    case '"':
    case '\\':
    case '/':
    case ':':
    case '(':
    case ')':
    case '+':
    case '*':
    case '%':
    case '~':
        return true;
    default:
        return false;
    }
}

static enum qwp_result name_check(const char *kind, const char *name, size_t len, size_t max,
                                  bool is_table, struct qwp_error *err)
{
    if (len == 0) {
        return qwp_fail(err, QWP_INVALID, 0, "empty %s name", kind);
    }
    if (len > max) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "%s name '%.*s...' has %zu bytes, at most %zu are allowed", kind, 32, name,
                        len, max);
    }
    if (!qwp_utf8_valid(name, len)) {
        return qwp_fail(err, QWP_INVALID, 0, "%s name of %zu bytes is not valid UTF-8", kind, len);
    }
    const unsigned char *p = (const unsigned char *)name;
    const unsigned char *end = p + len;
    while (p < end) {
        const uint32_t c = next_code_point(&p);
        if (forbidden(c) || (!is_table && (c == '.' || c == '-'))) {
            if (c > 0x20 && c < 0x7f) {
                return qwp_fail(err, QWP_INVALID, 0,
                                "%s name '%.*s' holds '%c', which the server "
                                "does not allow",
                                kind, (int)len, name, (char)c);
            }
            return qwp_fail(err, QWP_INVALID, 0,
                            "%s name holds the character U+%04X, which the "
                            "server does not allow",
                            kind, c);
        }
    }
    return QWP_OK;
}

enum qwp_result qwp_table_name_check(const char *name, size_t len, size_t max,
                                     struct qwp_error *err)
{
    const enum qwp_result result = name_check("table", name, len, max, true, err);
    if (result != QWP_OK) {
        return result;
    }
    if (name[0] == ' ' || name[len - 1] == ' ') {
        return qwp_fail(err, QWP_INVALID, 0, "table name '%.*s' begins or ends with a space",
                        (int)len, name);
    }
    for (size_t i = 0; i < len; i++) {
        if (name[i] == '.' && (i == 0 || i == len - 1 || name[i - 1] == '.')) {
            return qwp_fail(
                err, QWP_INVALID, 0,
                "table name '%.*s': a dot may stand alone between other characters only", (int)len,
                name);
        }
    }
    return QWP_OK;
}

enum qwp_result qwp_column_name_check(const char *name, size_t len, size_t max,
                                      struct qwp_error *err)
{
    return name_check("column", name, len, max, false, err);
}

static locale_t fold_locale;
static pthread_once_t fold_once = PTHREAD_ONCE_INIT;

static void fold_setup(void)
{
    fold_locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", (locale_t)0);
}

/* Lower case as the server sees it. Without the C.UTF-8 locale only ASCII letters are folded. */
static uint32_t fold(uint32_t c)
{
    if (c < 0x80) {
        return c >= 'A' && c <= 'Z' ? c + 32 : c;
    }
    pthread_once(&fold_once, fold_setup);
    return fold_locale == (locale_t)0 ? c : (uint32_t)towlower_l((wint_t)c, fold_locale);
}

bool qwp_name_equal(const char *a, size_t a_len, const char *b, size_t b_len)
{
    const unsigned char *p = (const unsigned char *)a;
    const unsigned char *q = (const unsigned char *)b;
    const unsigned char *p_end = p + a_len;
    const unsigned char *q_end = q + b_len;
    while (p < p_end && q < q_end) {
        if (fold(next_code_point(&p)) != fold(next_code_point(&q))) {
            return false;
        }
    }
    return p == p_end && q == q_end;
}

uint64_t qwp_name_hash(const char *name, size_t len)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    const unsigned char *p = (const unsigned char *)name;
    const unsigned char *end = p + len;
    while (p < end) {
        hash = (hash ^ fold(next_code_point(&p))) * UINT64_C(0x100000001b3);
    }
    return hash ^ hash >> 32;
}

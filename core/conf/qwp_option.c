#include "core/conf/qwp_option.h"

#include <inttypes.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

struct qwp_shown qwp_show(const char *text)
{
    struct qwp_shown shown;
    size_t len = 0;
    for (; text[len] != '\0' && len < sizeof shown.text - 1; len++) {
        const unsigned char c = (unsigned char)text[len];
        shown.text[len] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    if (text[len] != '\0') {
        memcpy(shown.text + len - 3, "...", 3);
    }
    shown.text[len] = '\0';
    return shown;
}

static enum qwp_result refuse(const struct qwp_option *option, const char *value,
                              const char *expected, struct qwp_error *err)
{
    if ((option->flags & QWP_OPTION_SECRET) != 0) {
        return qwp_fail(err, QWP_INVALID, 0, "%s: expected %s", option->name, expected);
    }
    return qwp_fail(err, QWP_INVALID, 0, "%s: expected %s, found '%s'", option->name, expected,
                    qwp_show(value).text);
}

/* Digits only; *end is left behind them. False without a digit or past 64 bits. */
static bool read_digits(const char *text, uint64_t *number, const char **end)
{
    uint64_t sum = 0;
    const char *at = text;
    for (; is_digit(*at); at++) {
        if (__builtin_mul_overflow(sum, UINT64_C(10), &sum) ||
            __builtin_add_overflow(sum, (uint64_t)(*at - '0'), &sum)) {
            return false;
        }
    }
    *end = at;
    *number = sum;
    return at != text;
}

/* "", "k", "kb", ...: how many bits the unit shifts by; -1 for anything else. */
static int size_shift(const char *unit)
{
    static const char letters[] = "kmgt";
    if (unit[0] == '\0') {
        return 0;
    }
    const char *letter = strchr(letters, unit[0] | 0x20);
    if (letter == NULL || *letter == '\0') {
        return -1;
    }
    const bool alone = unit[1] == '\0';
    const bool with_b = (unit[1] | 0x20) == 'b' && unit[2] == '\0';
    return alone || with_b ? 10 * (int)(letter - letters + 1) : -1;
}

static bool read_size(const char *text, uint64_t *bytes)
{
    const char *unit;
    uint64_t number;
    if (!read_digits(text, &number, &unit)) {
        return false;
    }
    const int shift = size_shift(unit);
    if (shift < 0 || (shift > 0 && number >> (64 - shift) != 0)) {
        return false;
    }
    *bytes = number << shift;
    return true;
}

static bool read_duration(const char *text, uint64_t *ns)
{
    static const struct {
        const char *unit;
        uint64_t ns;
    } units[] = {{"ns", 1}, {"us", QWP_NS_PER_US}, {"ms", QWP_NS_PER_MS}, {"s", QWP_NS_PER_S}};
    const char *unit;
    uint64_t number;
    if (!read_digits(text, &number, &unit)) {
        return false;
    }
    if (number == 0 && *unit == '\0') {
        *ns = 0;
        return true;
    }
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].unit) == 0) {
            return !__builtin_mul_overflow(number, units[i].ns, ns);
        }
    }
    return false;
}

static bool read_number(const char *text, uint64_t *number)
{
    const char *end;
    return read_digits(text, number, &end) && *end == '\0';
}

static bool read_by_kind(uint8_t kind, const char *text, uint64_t *number)
{
    switch (kind) {
    case QWP_OPTION_SIZE:
        return read_size(text, number);
    case QWP_OPTION_DURATION:
        return read_duration(text, number);
    default:
        return read_number(text, number);
    }
}

/* What one of the given unit is in the field. */
static int64_t kind_scale(uint8_t kind)
{
    return kind == QWP_OPTION_MILLIS   ? QWP_NS_PER_MS
           : kind == QWP_OPTION_MICROS ? QWP_NS_PER_US
                                       : 1;
}

/* The largest value that the field can hold, in the unit in which it is given. */
static uint64_t number_max(const struct qwp_option *option)
{
    if (option->max != 0) {
        return option->max;
    }
    return (uint64_t)((QWP_NEVER_NS - 1) / kind_scale(option->kind));
}

static const char *number_noun(uint8_t kind)
{
    switch (kind) {
    case QWP_OPTION_SIZE:
        return "a size in bytes such as 4096, 64k, 4m or 10g";
    case QWP_OPTION_MILLIS:
        return "a whole number of milliseconds";
    case QWP_OPTION_MICROS:
        return "a whole number of microseconds";
    case QWP_OPTION_DURATION:
        return "a time such as 0, 200us, 1ms or 2s";
    default:
        return "a whole number";
    }
}

static enum qwp_result set_number(const struct qwp_option *option, void *field, const char *value,
                                  struct qwp_error *err)
{
    uint64_t number = 0;
    if ((option->flags & QWP_OPTION_NONE_IS_NEVER) != 0 && strcmp(value, "none") == 0) {
        *(int64_t *)field = QWP_NEVER_NS;
        return QWP_OK;
    }
    const bool off = (option->flags & QWP_OPTION_OFF_IS_ZERO) != 0 && strcmp(value, "off") == 0;
    const bool below =
        (option->flags & QWP_OPTION_MINUS_ONE_IS_ZERO) != 0 && strcmp(value, "-1") == 0;
    if (!off && !below) {
        if (!read_by_kind(option->kind, value, &number)) {
            return refuse(option, value, number_noun(option->kind), err);
        }
        if (number < option->min || number > number_max(option)) {
            char range[96];
            snprintf(range, sizeof range, "a value from %" PRIu64 " to %" PRIu64, option->min,
                     number_max(option));
            return refuse(option, value, range, err);
        }
    }
    /* Counts and sizes are uint64_t, times int64_t; within its bound a number is the same in both.
     */
    *(uint64_t *)field = number * (uint64_t)kind_scale(option->kind);
    return QWP_OK;
}

static enum qwp_result set_flag(const struct qwp_option *option, void *field, const char *value,
                                struct qwp_error *err)
{
    const bool on = strcmp(value, "on") == 0 || strcmp(value, "true") == 0;
    if (!on && strcmp(value, "off") != 0 && strcmp(value, "false") != 0) {
        return refuse(option, value, "on or off", err);
    }
    *(bool *)field = on;
    return QWP_OK;
}

static void list_choices(const struct qwp_option *option, const char *separator, char *text,
                         size_t text_bytes)
{
    size_t len = 0;
    text[0] = '\0';
    for (size_t i = 0; option->choices[i] != NULL && len < text_bytes; i++) {
        const int n = snprintf(text + len, text_bytes - len, "%s%s", i > 0 ? separator : "",
                               option->choices[i]);
        len += n > 0 ? (size_t)n : 0;
    }
}

static enum qwp_result set_choice(const struct qwp_option *option, void *field, const char *value,
                                  struct qwp_error *err)
{
    for (uint8_t i = 0; option->choices[i] != NULL; i++) {
        if (strcmp(option->choices[i], value) == 0) {
            *(uint8_t *)field = i;
            return QWP_OK;
        }
    }
    char list[160];
    list_choices(option, ", ", list, sizeof list);
    char expected[sizeof list + 16];
    snprintf(expected, sizeof expected, "one of %s", list);
    return refuse(option, value, expected, err);
}

enum qwp_result qwp_option_set(const struct qwp_option *option, void *base, const char *value,
                               struct qwp_error *err)
{
    void *field = (char *)base + option->off;
    switch ((enum qwp_option_kind)option->kind) {
    case QWP_OPTION_TEXT:
        *(const char **)field = value;
        return QWP_OK;
    case QWP_OPTION_FLAG:
        return set_flag(option, field, value, err);
    case QWP_OPTION_COUNT:
    case QWP_OPTION_SIZE:
    case QWP_OPTION_MILLIS:
    case QWP_OPTION_MICROS:
    case QWP_OPTION_DURATION:
        return set_number(option, field, value, err);
    case QWP_OPTION_CHOICE:
        return set_choice(option, field, value, err);
    case QWP_OPTION_ACTION:
        *(bool *)field = true;
        return QWP_OK;
    case QWP_OPTION_OWN:
    case QWP_OPTION_IGNORED:
        return QWP_OK;
    }
    return qwp_fail(err, QWP_INVALID, 0, "%s: option of unknown kind %d", option->name,
                    option->kind);
}

void qwp_option_set_defaults(const struct qwp_option *table, size_t count, void *base)
{
    for (size_t i = 0; i < count; i++) {
        const bool has_field =
            table[i].kind != QWP_OPTION_OWN && table[i].kind != QWP_OPTION_IGNORED;
        if (has_field && table[i].value_default != NULL) {
            const enum qwp_result result =
                qwp_option_set(&table[i], base, table[i].value_default, NULL);
            QWP_ASSERT(result == QWP_OK);
        }
    }
}

const struct qwp_option *qwp_option_find(const struct qwp_option *table, size_t count,
                                         const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(table[i].name, name) == 0) {
            return &table[i];
        }
    }
    return NULL;
}

static const char *value_name(const struct qwp_option *option)
{
    if (option->value_name != NULL) {
        return option->value_name;
    }
    switch (option->kind) {
    case QWP_OPTION_FLAG:
        return "on|off";
    case QWP_OPTION_COUNT:
        return "N";
    case QWP_OPTION_SIZE:
        return "SIZE";
    case QWP_OPTION_MILLIS:
        return "MS";
    case QWP_OPTION_MICROS:
        return "US";
    case QWP_OPTION_DURATION:
        return "TIME";
    default:
        return "TEXT";
    }
}

static void describe_one(const struct qwp_option *option, const char *prefix, FILE *out)
{
    enum { HELP_COLUMN = 42 };
    char choices[160];
    const char *value = value_name(option);
    if (option->kind == QWP_OPTION_CHOICE) {
        list_choices(option, "|", choices, sizeof choices);
        value = choices;
    }
    const bool valued = option->kind != QWP_OPTION_ACTION;
    /* A command line reads "--name VALUE", a connect string "name=VALUE". */
    const char *between = !valued ? "" : prefix[0] != '\0' ? " " : "=";
    const int width =
        fprintf(out, "  %s%s%s%s", prefix, option->name, between, valued ? value : "");
    if (width >= HELP_COLUMN) {
        fprintf(out, "\n%*s", HELP_COLUMN, "");
    } else {
        fprintf(out, "%*s", HELP_COLUMN - width, "");
    }
    fputs(option->help, out);
    if (valued && option->value_default != NULL) {
        fprintf(out, " [%s]", option->value_default);
    }
    fputc('\n', out);
}

void qwp_option_describe(const struct qwp_option *table, size_t count, const char *prefix,
                         FILE *out)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].kind != QWP_OPTION_IGNORED) {
            describe_one(&table[i], prefix, out);
        }
    }
}

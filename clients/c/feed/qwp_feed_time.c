#include "clients/c/feed/qwp_feed_time.h"

#include <string.h>
#include <strings.h>

enum { SECONDS_PER_DAY = 86400, NS_PER_S = 1000000000 };

/* What remains of the text. */
struct cursor {
    const char *at;
    const char *end;
};

struct fields {
    int64_t year;
    int month;
    int day;
    int year_day; /* 0: not given */
    int hour;
    int minute;
    int second;
    uint32_t nanos;
    int64_t offset_s; /* of the zone, east of UTC */
    int half;         /* 0: none, 1: AM, 2: PM */
    bool has_epoch;
    int64_t epoch_s;
};

bool qwp_feed_unit_parse(const char *text, enum qwp_feed_unit *out)
{
    static const char *const names[][2] = {{"ns", "n"}, {"us", "u"}, {"ms", "ms"}, {"s", "s"}};
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, names[i][0]) == 0 || strcmp(text, names[i][1]) == 0) {
            *out = (enum qwp_feed_unit)i;
            return true;
        }
    }
    return false;
}

bool qwp_feed_time_format_parse(const char *text, struct qwp_feed_time_format *out)
{
    *out = (struct qwp_feed_time_format){0};
    if (strcmp(text, "auto") == 0) {
        return true;
    }
    if (qwp_feed_unit_parse(text, &out->unit)) {
        out->kind = QWP_FEED_TIME_EPOCH;
        return true;
    }
    if (strcasecmp(text, "iso") == 0 || strcasecmp(text, "iso8601") == 0) {
        out->kind = QWP_FEED_TIME_ISO;
        return true;
    }
    out->kind = QWP_FEED_TIME_PATTERN;
    out->pattern = text;
    return strchr(text, '%') != NULL;
}

static int64_t per_second(enum qwp_feed_unit unit)
{
    static const int64_t counts[] = {NS_PER_S, 1000000, 1000, 1};
    return counts[unit];
}

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

bool qwp_feed_time_in(struct qwp_feed_time time, enum qwp_feed_unit unit, int64_t *out)
{
    const int64_t n = per_second(unit);
    int64_t v;
    return !__builtin_mul_overflow(time.seconds, n, &v) &&
           !__builtin_add_overflow(v, (int64_t)time.nanos / (NS_PER_S / n), out);
}

bool qwp_feed_unit_convert(int64_t value, enum qwp_feed_unit from, enum qwp_feed_unit to,
                           int64_t *out)
{
    const int64_t a = per_second(from);
    const int64_t b = per_second(to);
    if (a >= b) {
        *out = floor_div(value, a / b);
        return true;
    }
    return !__builtin_mul_overflow(value, b / a, out);
}

/* Days from 1970-01-01 in the proleptic Gregorian calendar: years are counted from March, so that
 * the leap day is the last of its year. */
static int64_t days_from_civil(int64_t year, int month, int day)
{
    const int64_t y = month > 2 ? year : year - 1;
    const int64_t era = floor_div(y, 400);
    const int64_t year_of_era = y - era * 400;
    const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    const int64_t day_of_era =
        year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    return era * 146097 + day_of_era - 719468;
}

static bool is_leap(int64_t year)
{
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

static int month_days(int64_t year, int month)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && is_leap(year));
}

static bool fields_to_time(const struct fields *f, struct qwp_feed_time *out)
{
    out->nanos = f->nanos;
    if (f->has_epoch) {
        out->seconds = f->epoch_s;
        return true;
    }
    int hour = f->hour;
    if (f->half != 0) {
        if (hour < 1 || hour > 12) {
            return false;
        }
        hour = hour % 12 + (f->half == 2 ? 12 : 0);
    }
    if (f->month < 1 || f->month > 12 || f->day < 1 || f->day > month_days(f->year, f->month) ||
        hour > 23 || f->minute > 59 || f->second > 59) {
        return false;
    }
    int64_t days;
    if (f->year_day != 0) {
        if (f->year_day > 365 + is_leap(f->year)) {
            return false;
        }
        days = days_from_civil(f->year, 1, 1) + f->year_day - 1;
    } else {
        days = days_from_civil(f->year, f->month, f->day);
    }
    out->seconds = days * SECONDS_PER_DAY + hour * 3600 + f->minute * 60 + f->second - f->offset_s;
    return true;
}

static bool is_digit(const struct cursor *c)
{
    return c->at < c->end && (unsigned char)(*c->at - '0') < 10;
}

static bool is_space(const struct cursor *c)
{
    return c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r');
}

static void skip_spaces(struct cursor *c)
{
    while (is_space(c)) {
        c->at++;
    }
}

static bool take(struct cursor *c, char expected)
{
    const bool hit = c->at < c->end && *c->at == expected;
    c->at += hit;
    return hit;
}

/* Between min and max digits. */
static bool take_number(struct cursor *c, int min, int max, int *out)
{
    int v = 0;
    int n = 0;
    for (; n < max && is_digit(c); n++, c->at++) {
        v = v * 10 + (*c->at - '0');
    }
    *out = v;
    return n >= min;
}

/* Digits of a fraction of a second; those behind the ninth are dropped. */
static bool take_fraction(struct cursor *c, uint32_t *nanos)
{
    uint32_t v = 0;
    int n = 0;
    for (; is_digit(c); c->at++, n++) {
        v = n < 9 ? v * 10 + (uint32_t)(*c->at - '0') : v;
    }
    for (int i = n; i < 9; i++) {
        v *= 10;
    }
    *nanos = v;
    return n > 0;
}

/* Z, +hh, +hhmm or +hh:mm. */
static bool take_zone(struct cursor *c, int64_t *offset_s)
{
    if (take(c, 'Z') || take(c, 'z')) {
        *offset_s = 0;
        return true;
    }
    const bool negative = c->at < c->end && *c->at == '-';
    if (!negative && !(c->at < c->end && *c->at == '+')) {
        return false;
    }
    c->at++;
    int hours;
    int minutes = 0;
    if (!take_number(c, 2, 2, &hours)) {
        return false;
    }
    if ((take(c, ':') || is_digit(c)) && !take_number(c, 2, 2, &minutes)) {
        return false;
    }
    if (hours > 23 || minutes > 59) {
        return false;
    }
    *offset_s = (hours * 3600 + minutes * 60) * (negative ? -1 : 1);
    return true;
}

static bool parse_iso(struct cursor *c, struct fields *f)
{
    int year;
    if (!take_number(c, 4, 4, &year) || !take(c, '-') || !take_number(c, 2, 2, &f->month) ||
        !take(c, '-') || !take_number(c, 2, 2, &f->day)) {
        return false;
    }
    f->year = year;
    if (c->at == c->end) {
        return true;
    }
    if (!take(c, 'T') && !take(c, 't') && !take(c, ' ')) {
        return false;
    }
    if (!take_number(c, 2, 2, &f->hour) || !take(c, ':') || !take_number(c, 2, 2, &f->minute)) {
        return false;
    }
    if (take(c, ':')) {
        if (!take_number(c, 2, 2, &f->second)) {
            return false;
        }
        if ((take(c, '.') || take(c, ',')) && !take_fraction(c, &f->nanos)) {
            return false;
        }
    }
    take(c, ' '); /* as in "12:00:00 +02:00" */
    return c->at == c->end || take_zone(c, &f->offset_s);
}

static bool take_month(struct cursor *c, int *month)
{
    static const char *const names[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};
    const size_t left = (size_t)(c->end - c->at);
    for (int i = 0; i < 12; i++) {
        const size_t whole = strlen(names[i]);
        const size_t n = left >= whole && strncasecmp(c->at, names[i], whole) == 0 ? whole : 3;
        if (left >= n && strncasecmp(c->at, names[i], n) == 0) {
            c->at += n;
            *month = i + 1;
            return true;
        }
    }
    return false;
}

static bool take_word(struct cursor *c, const char *word)
{
    const size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || strncasecmp(c->at, word, n) != 0) {
        return false;
    }
    c->at += n;
    return true;
}

static bool take_epoch(struct cursor *c, struct fields *f)
{
    const bool negative = take(c, '-');
    int64_t v = 0;
    int n = 0;
    for (; is_digit(c); c->at++, n++) {
        if (__builtin_mul_overflow(v, INT64_C(10), &v) ||
            __builtin_add_overflow(v, (int64_t)(*c->at - '0'), &v)) {
            return false;
        }
    }
    f->has_epoch = true;
    f->epoch_s = negative ? -v : v;
    return n > 0;
}

static bool parse_pattern(struct cursor *c, const char *pattern, struct fields *f);

static bool parse_conversion(struct cursor *c, char conversion, struct fields *f)
{
    int v;
    switch (conversion) {
    case 'Y':
        if (!take_number(c, 4, 4, &v)) {
            return false;
        }
        f->year = v;
        return true;
    case 'y':
        if (!take_number(c, 2, 2, &v)) {
            return false;
        }
        f->year = v + (v < 69 ? 2000 : 1900);
        return true;
    case 'm':
        return take_number(c, 1, 2, &f->month);
    case 'e':
        skip_spaces(c);
        return take_number(c, 1, 2, &f->day);
    case 'd':
        return take_number(c, 1, 2, &f->day);
    case 'j':
        return take_number(c, 1, 3, &f->year_day) && f->year_day > 0;
    case 'b':
    case 'B':
    case 'h':
        return take_month(c, &f->month);
    case 'H':
    case 'I':
        return take_number(c, 1, 2, &f->hour);
    case 'M':
        return take_number(c, 1, 2, &f->minute);
    case 'S':
        return take_number(c, 1, 2, &f->second);
    case 'f':
        return take_fraction(c, &f->nanos);
    case 'p':
        f->half = take_word(c, "AM") ? 1 : take_word(c, "PM") ? 2 : 0;
        return f->half != 0;
    case 'z':
        return take_zone(c, &f->offset_s);
    case 'Z':
        return take_word(c, "UTC") || take_word(c, "GMT") || take_word(c, "Z");
    case 's':
        return take_epoch(c, f);
    case 'F':
        return parse_pattern(c, "%Y-%m-%d", f);
    case 'T':
        return parse_pattern(c, "%H:%M:%S", f);
    case 'D':
        return parse_pattern(c, "%m/%d/%y", f);
    case 'n':
    case 't':
        skip_spaces(c);
        return true;
    case '%':
        return take(c, '%');
    default:
        return false;
    }
}

static bool parse_pattern(struct cursor *c, const char *pattern, struct fields *f)
{
    for (; *pattern != '\0'; pattern++) {
        if (*pattern == '%') {
            pattern++;
            if (*pattern == '\0' || !parse_conversion(c, *pattern, f)) {
                return false;
            }
        } else if (*pattern == ' ') {
            skip_spaces(c);
        } else if (!take(c, *pattern)) {
            return false;
        }
    }
    return true;
}

/* A count of units since the epoch, perhaps with a fraction of one: exact, not by way of a double.
 */
static bool parse_epoch(struct cursor *c, enum qwp_feed_unit unit, struct qwp_feed_time *out)
{
    const bool negative = c->at < c->end && *c->at == '-';
    struct fields f = {0};
    if (!take_epoch(c, &f)) {
        return false;
    }
    uint32_t fraction = 0;
    if (take(c, '.') && !take_fraction(c, &fraction)) {
        return false;
    }
    const int64_t n = per_second(unit);
    int64_t seconds = floor_div(f.epoch_s, n);
    int64_t nanos = (f.epoch_s - seconds * n) * (NS_PER_S / n);
    const int64_t more = (int64_t)fraction / n; /* the fraction is in billionths of a unit */
    nanos += negative ? -more : more;
    if (nanos < 0) {
        nanos += NS_PER_S;
        seconds--;
    }
    *out = (struct qwp_feed_time){seconds, (uint32_t)nanos};
    return true;
}

bool qwp_feed_time_parse(const struct qwp_feed_time_format *format, const char *text, size_t len,
                         struct qwp_feed_time *out)
{
    struct cursor c = {text, text + len};
    struct fields f = {.year = 1970, .month = 1, .day = 1};
    bool ok = false;
    switch (format->kind) {
    case QWP_FEED_TIME_EPOCH:
        return parse_epoch(&c, format->unit, out) && c.at == c.end;
    case QWP_FEED_TIME_PATTERN:
        ok = parse_pattern(&c, format->pattern, &f);
        break;
    case QWP_FEED_TIME_AUTO:
    case QWP_FEED_TIME_ISO:
        ok = parse_iso(&c, &f);
        break;
    }
    return ok && c.at == c.end && fields_to_time(&f, out);
}

/* qwp_option: one named setting, given as text, kept in a field of a struct.
 *
 * A table of these drives everything there is to know about a set of options: how a value is read,
 * what it is when nobody gives it (the default is text and goes through the same reader), and the
 * reference that people see. The connect string and the command line each have one table.
 *
 * Errors: texts begin with the option's name and show the offending value, unless the option holds
 *         a secret. */
#ifndef QWP_OPTION_H
#define QWP_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/qwp_error.h"

enum qwp_option_kind {
    QWP_OPTION_TEXT = 0, /* const char *: keeps the value's address */
    QWP_OPTION_FLAG,     /* bool: on or off (or true, false) */
    QWP_OPTION_COUNT,    /* uint64_t */
    QWP_OPTION_SIZE,     /* uint64_t, bytes: 4096, 64k, 4mb, 10g, 1t */
    QWP_OPTION_MILLIS,   /* int64_t, ns: given in ms */
    QWP_OPTION_MICROS,   /* int64_t, ns: given in us */
    QWP_OPTION_DURATION, /* int64_t, ns: 0, 500ns, 200us, 1ms, 2s */
    QWP_OPTION_CHOICE,   /* uint8_t: index into `choices` */
    QWP_OPTION_ACTION,   /* bool, set by being there: takes no value (command line only) */
    QWP_OPTION_OWN,      /* its owner reads it: no field */
    QWP_OPTION_IGNORED,  /* known and without meaning here: no field */
};

enum {
    QWP_OPTION_SECRET = 0x01,            /* the value appears in no text */
    QWP_OPTION_OFF_IS_ZERO = 0x02,       /* a number that may also be "off", kept as 0 */
    QWP_OPTION_NONE_IS_NEVER = 0x04,     /* a time that may also be "none", kept as QWP_NEVER_NS */
    QWP_OPTION_MINUS_ONE_IS_ZERO = 0x08, /* a time that may be -1, kept as 0 */
};

struct qwp_option {
    const char *name;
    uint8_t kind;               /* enum qwp_option_kind */
    uint8_t flags;              /* QWP_OPTION_SECRET and so on */
    uint16_t off;               /* of the field, in the struct that the table belongs to */
    const char *value_default;  /* NULL: the field stays as it is */
    const char *value_name;     /* "MS", "FILE"; NULL: the kind's own */
    const char *const *choices; /* QWP_OPTION_CHOICE: ends with NULL */
    uint64_t min;               /* numbers, in the unit they are given in */
    uint64_t max;               /* 0: as the kind allows */
    const char *help;           /* one sentence, lower case, no full stop */
};

/* Reads `value` (terminated; a TEXT keeps it) into the option's field of *base. QWP_INVALID leaves
 * the field as it was. */
QWP_MUST_USE enum qwp_result qwp_option_set(const struct qwp_option *option, void *base,
                                            const char *value, struct qwp_error *err);

/* Sets the defaults of a whole table. They are ours, so one that cannot be read is a bug. */
void qwp_option_set_defaults(const struct qwp_option *table, size_t count, void *base);

/* The option of that name, or NULL. */
const struct qwp_option *qwp_option_find(const struct qwp_option *table, size_t count,
                                         const char *name);

/* Writes the reference, one option a line (or two), each name behind `prefix` ("--" or ""). Ignored
 * ones are left out. */
void qwp_option_describe(const struct qwp_option *table, size_t count, const char *prefix,
                         FILE *out);

/* Copies `text` for a message: control characters become '?', a long one is cut with "...". */
enum { QWP_SHOWN_BYTES = 80 };
struct qwp_shown {
    char text[QWP_SHOWN_BYTES];
};
struct qwp_shown qwp_show(const char *text);

#endif

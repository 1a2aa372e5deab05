/* qwp_result: what a call came to, named for what the caller does next. */
#ifndef QWP_RESULT_H
#define QWP_RESULT_H

#if defined(__GNUC__)
#define QWP_MUST_USE          __attribute__((warn_unused_result))
#define QWP_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define QWP_MUST_USE
#define QWP_PRINTF(fmt, args)
#endif

/* What libqwp exports; everything else is hidden. */
#ifndef QWP_API
#define QWP_API __attribute__((visibility("default")))
#endif

/* Append-only: the numbers are part of the producer library's ABI. */
enum qwp_result {
    QWP_OK = 0,
    QWP_AGAIN = 1,    /* full, empty or timed out: expected, try again later */
    QWP_INVALID = 2,  /* a mistake of the caller or of its configuration: correct it */
    QWP_LIMIT = 3,    /* a named bound would be passed: raise the bound or send less */
    QWP_NOMEM = 4,    /* memory or shared memory is not to be had */
    QWP_IO = 5,       /* the system refused: see the errno */
    QWP_PEER = 6,     /* the other side broke the protocol */
    QWP_CORRUPT = 7,  /* bytes fail a check */
    QWP_CLOSED = 8,   /* closed, by us or by the other side */
    QWP_REJECTED = 9, /* settled, but set aside instead of stored by the server */
};

/* Fixed text such as "again" or "corrupt"; "unknown result" for any other number. */
QWP_API const char *qwp_result_name(enum qwp_result result);

#endif

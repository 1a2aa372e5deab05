/* QWP_ASSERT: for our own bugs, in every build. Input never reaches one: input gives a result. */
#ifndef QWP_ASSERT_H
#define QWP_ASSERT_H

/* Prints the place and condition to stderr and aborts. */
__attribute__((noreturn, cold)) void qwp_assert_fail(const char *file, int line,
                                                     const char *condition);

#define QWP_ASSERT(condition)                                                                      \
    (__builtin_expect(!!(condition), 1) ? (void)0 : qwp_assert_fail(__FILE__, __LINE__, #condition))

/* Where the check would cost in a release build. */
#ifdef NDEBUG
#define QWP_DEBUG_ASSERT(condition) ((void)sizeof(!!(condition)))
#else
#define QWP_DEBUG_ASSERT(condition) QWP_ASSERT(condition)
#endif

#endif

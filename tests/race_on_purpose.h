/* race_on_purpose: for tests whose other side writes where the code reads, as a hostile process
 * does through its own mapping of a ring. That is a data race by definition; that the code bears it
 * (each byte is loaded once, and the copy judged) is what they show, best under the address
 * sanitizer. The thread sanitizer can only report the race itself, so they are left out there. */
#ifndef QWP_TEST_RACE_ON_PURPOSE_H
#define QWP_TEST_RACE_ON_PURPOSE_H

#include <stdbool.h>
#include <stdio.h>

/* True: leave the test. */
static inline bool race_on_purpose(const char *test)
{
#ifdef __SANITIZE_THREAD__
    printf("%s: left out, it is a race on purpose\n", test);
    return true;
#else
    (void)test;
    return false;
#endif
}

#endif

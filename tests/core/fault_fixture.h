/* fault_fixture: a table of system calls for the store in which some fail, and a clock on which
 * waiting costs nothing. One thread. */
#ifndef FAULT_FIXTURE_H
#define FAULT_FIXTURE_H

#include <stdint.h>

#include "core/qwp_sys.h"

enum { FAULT_SHORT = -1 };

struct fault {
    unsigned long calls;     /* so far */
    unsigned long fail_from; /* the first that fails, counted from 1; 0: none */
    unsigned long fail_count;
    int error;        /* FAULT_SHORT: a short transfer instead */
    int64_t clock_ns; /* moves on with each look */
};
extern struct fault fault;
extern const struct qwp_sys fault_sys;

/* Counts anew; `count` calls fail, counted from 1; 0: none. */
void fault_set(unsigned long from, unsigned long count, int error);
int64_t fault_clock_ns(void);

#endif

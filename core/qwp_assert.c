#include "core/qwp_assert.h"

#include <stdio.h>
#include <stdlib.h>

void qwp_assert_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    abort();
}

/* qwp_copy: memcpy for kilobytes at any addresses.
 *
 * From some size on the C library copies with the CPU's string instructions, and compilers put
 * those in place of a memcpy() whose length they know to be bounded. They are several times slower
 * where the destination is not aligned, and by far where it lies a little above the source within a
 * page [AMD Zen 3, glibc 2.36, 64 KiB in the cache: 0.03 ns a byte aligned, 0.55 with a destination
 * one byte further, 2.9 from offset 1,000 to 1,001; here 0.03 to 0.09]. Columns of a message have
 * such addresses all the time.
 *
 * Each byte is loaded once. */
#ifndef QWP_COPY_H
#define QWP_COPY_H

#include <stddef.h>

void qwp_copy(void *restrict dst, const void *restrict src, size_t len);

#endif

#include "core/qwp_copy.h"

#include <stdint.h>
#include <string.h>

/* The compiler's vectors, which every target has. */
typedef uint64_t vector __attribute__((vector_size(16)));

static inline vector load(const unsigned char *at)
{
    vector v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline void store(unsigned char *at, vector v)
{
    memcpy(at, &v, sizeof v);
}

void qwp_copy(void *restrict dst, const void *restrict src, size_t len)
{
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (; len >= 64; len -= 64, to += 64, from += 64) {
        const vector a = load(from);
        const vector b = load(from + 16);
        const vector c = load(from + 32);
        const vector d = load(from + 48);
        store(to, a);
        store(to + 16, b);
        store(to + 32, c);
        store(to + 48, d);
    }
    for (; len >= 8; len -= 8, to += 8, from += 8) {
        memcpy(to, from, 8);
    }
    for (; len > 0; len--) {
        *to++ = *from++;
    }
    /* Inlined by link-time optimisation, this must not let the compiler look for the copy's values
     * where they came from. */
    __asm__ volatile("" : : "r"(dst) : "memory");
}

#include "core/wire/qwp_gorilla.h"

#include <stdbool.h>

#include "core/qwp_bytes.h"

struct bucket {
    uint64_t mask; /* of the code: prefix and value */
    uint8_t prefix;
    uint8_t prefix_bits;
    uint8_t total_bits;
};

enum { CODE_BITS_MAX = 36 };

#define MASK(bits) ((UINT64_C(1) << (bits)) - 1)

static const struct bucket buckets[] = {
    {MASK(9), 0x1, 2, 9},
    {MASK(12), 0x3, 3, 12},
    {MASK(16), 0x7, 4, 16},
    {MASK(CODE_BITS_MAX), 0xf, 4, CODE_BITS_MAX},
};

/* Sums of comparisons: branches would be mispredicted with real clocks, and counting leading zeros
 * is slow on baseline x86-64. */
static inline const struct bucket *bucket_of(int32_t dod) /* not 0 */
{
    const uint32_t zigzag = (uint32_t)dod << 1 ^ (uint32_t)(dod >> 31); /* -1, 1, -2 -> 1, 2, 3 */
    return &buckets[(zigzag > 127) + (zigzag > 511) + (zigzag > 4095)];
}

/* Bits on their way out, the lowest first. */
struct bits {
    unsigned char *at;
    uint64_t pending;
    unsigned count; /* of pending */
};

/* Leaves fewer than 8 bits pending. */
static inline void put_whole_bytes(struct bits *bits)
{
    qwp_store_u64(bits->at, bits->pending);
    bits->at += bits->count >> 3;
    bits->pending >>= bits->count & ~7u;
    bits->count &= 7;
}

static inline void put_code(struct bits *bits, int32_t dod)
{
    const struct bucket *bucket = bucket_of(dod);
    const uint64_t code = ((uint64_t)dod << bucket->prefix_bits | bucket->prefix) & bucket->mask;
    bits->pending |= code << bits->count;
    bits->count += bucket->total_bits;
    put_whole_bytes(bits);
}

size_t qwp_gorilla_encode(const int64_t *times, uint32_t n, unsigned char *dst)
{
    int64_t step;
    if (__builtin_sub_overflow(times[1], times[0], &step)) {
        return 0;
    }
    qwp_store_i64(dst, times[0]);
    qwp_store_i64(dst + 8, times[1]);
    struct bits bits = {.at = dst + 16};
    for (size_t i = 2; i < n; i++) {
        int64_t next_step;
        int64_t dod;
        if (__builtin_sub_overflow(times[i], times[i - 1], &next_step)) {
            return 0;
        }
        if (next_step == step) {
            /* The commonest case by far of clocks that tick, or stand still for many rows. Bits
             * are kept until the longest code would fill the word beside them. */
            if (++bits.count >= 64 - CODE_BITS_MAX) {
                put_whole_bytes(&bits);
            }
            continue;
        }
        if (__builtin_sub_overflow(next_step, step, &dod) || dod != (int32_t)dod) {
            return 0;
        }
        put_code(&bits, (int32_t)dod);
        step = next_step;
    }
    put_whole_bytes(&bits);
    return (size_t)(bits.at - dst) + (bits.count != 0);
}

#include "core/wire/qwp_gorilla.h"

#include "core/qwp_bytes.h"

struct bucket {
    uint8_t prefix;
    uint8_t prefix_bits;
    uint8_t total_bits;
};

#define BUCKET_7                                                                                   \
    {                                                                                              \
        0x1, 2, 9                                                                                  \
    }
#define BUCKET_9                                                                                   \
    {                                                                                              \
        0x3, 3, 12                                                                                 \
    }
#define BUCKET_12                                                                                  \
    {                                                                                              \
        0x7, 4, 16                                                                                 \
    }
#define BUCKET_32                                                                                  \
    {                                                                                              \
        0xf, 4, 36                                                                                 \
    }

/* By the number of significant bits of the zigzagged delta of deltas (0, -1, 1, -2 -> 0, 1, 2, 3):
 * one lookup instead of a chain of branches that real clocks make unpredictable. */
static const struct bucket buckets[33] = {
    {0, 1, 1}, BUCKET_7,  BUCKET_7,  BUCKET_7,  BUCKET_7,  BUCKET_7,  BUCKET_7,
    BUCKET_7,  BUCKET_9,  BUCKET_9,  BUCKET_12, BUCKET_12, BUCKET_12, BUCKET_32,
    BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32,
    BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32,
    BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32, BUCKET_32,
};

static inline const struct bucket *bucket_of(int64_t dod)
{
    const uint64_t zigzag = (uint64_t)dod << 1 ^ (uint64_t)(dod >> 63);
    /* Shifted once more with a one behind, so that zero needs no case of its own. */
    return &buckets[63 - __builtin_clzll(zigzag << 1 | 1)];
}

size_t qwp_gorilla_encode(const int64_t *times, uint32_t n, unsigned char *dst)
{
    int64_t step;
    if (__builtin_sub_overflow(times[1], times[0], &step)) {
        return 0;
    }
    qwp_store_i64(dst, times[0]);
    qwp_store_i64(dst + 8, times[1]);
    unsigned char *at = dst + 16;
    uint64_t pending = 0; /* bits not yet stored for good, fewer than 8 between values */
    unsigned pending_bits = 0;
    for (uint32_t i = 2; i < n; i++) {
        int64_t next_step;
        int64_t dod;
        if (__builtin_sub_overflow(times[i], times[i - 1], &next_step) ||
            __builtin_sub_overflow(next_step, step, &dod) || dod != (int32_t)dod) {
            return 0;
        }
        step = next_step;
        const struct bucket *bucket = bucket_of(dod);
        const uint64_t mask = (UINT64_C(1) << bucket->total_bits) - 1;
        const uint64_t code = ((uint64_t)dod << bucket->prefix_bits | bucket->prefix) & mask;
        pending |= code << pending_bits;
        pending_bits += bucket->total_bits;
        qwp_store_u64(at, pending);
        at += pending_bits >> 3;
        pending >>= pending_bits & ~7u;
        pending_bits &= 7;
    }
    return (size_t)(at - dst) + (pending_bits != 0);
}

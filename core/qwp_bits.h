/* qwp_bits: bitmaps, least significant bit first. No byte beyond the last bit asked for is read. */
#ifndef QWP_BITS_H
#define QWP_BITS_H

#include <stdint.h>
#include <string.h>

/* The low `count` bits set; count <= 64. */
static inline uint64_t qwp_bits_low(uint32_t count)
{
    return count < 64 ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

/* `count` bits, 1..64, from bit `first` on. */
static inline uint64_t qwp_bits_at(const unsigned char *bits, size_t first, uint32_t count)
{
    const unsigned char *from = bits + first / 8;
    const uint32_t shift = first % 8;
    const uint32_t bytes = (shift + count + 7) / 8;
    uint64_t word = 0;
    if (bytes >= 8) {
        memcpy(&word, from, 8);
    } else {
        memcpy(&word, from, bytes);
    }
    word >>= shift;
    if (bytes > 8) {
        word |= (uint64_t)from[8] << (64 - shift);
    }
    return word & qwp_bits_low(count);
}

/* Of `count` bits from `at` on, how many go in one step. */
static inline uint32_t qwp_bits_step(uint32_t count, uint32_t at)
{
    return count - at < 64 ? count - at : 64;
}

/* How many of the first `count` bits are set. */
static inline uint32_t qwp_bits_count(const unsigned char *bits, uint32_t count)
{
    uint32_t set = 0;
    for (uint32_t at = 0; at < count; at += 64) {
        set += (uint32_t)__builtin_popcountll(qwp_bits_at(bits, at, qwp_bits_step(count, at)));
    }
    return set;
}

/* `count` bits of src from bit `first` on; zeros fill the last byte. */
static inline void qwp_bits_copy(unsigned char *dst, const unsigned char *src, size_t first,
                                 uint32_t count)
{
    for (uint32_t at = 0; at < count; at += 64) {
        const uint32_t step = qwp_bits_step(count, at);
        const uint64_t word = qwp_bits_at(src, first + at, step);
        memcpy(dst + at / 8, &word, (step + 7) / 8);
    }
}

#endif

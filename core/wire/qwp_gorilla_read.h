/* qwp_gorilla_read: one delta of deltas from a Gorilla block, by the encoding of QWP.
 *
 * Bits stand LSB first within bytes. `0`: 0; `10` + 7 bits, `110` + 9, `1110` + 12, `1111` + 32,
 * two's complement. */
#ifndef QWP_GORILLA_READ_H
#define QWP_GORILLA_READ_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_bytes.h"

enum { QWP_GORILLA_BITS_MAX = 36, QWP_GORILLA_RAW_BYTES = 16 };

/* At least 57 bits from bit `bit` on, zeros beyond the `len` bytes. */
static inline uint64_t qwp_gorilla_peek(const unsigned char *bits, size_t len, uint64_t bit)
{
    const size_t byte = (size_t)(bit >> 3);
    if (byte + 8 <= len) {
        return qwp_load_u64(bits + byte) >> (bit & 7);
    }
    uint64_t word = 0;
    for (size_t i = byte; i < len; i++) {
        word |= (uint64_t)bits[i] << (8 * (i - byte));
    }
    return word >> (bit & 7);
}

/* Bits of the code at the low end of `word`, and the bits of its prefix among them. */
static inline unsigned qwp_gorilla_code(uint64_t word, unsigned *prefix)
{
    static const uint8_t prefix_bits[] = {1, 2, 3, 4, 4};
    static const uint8_t code_bits[] = {1, 9, 12, 16, 36};
    const unsigned ones = (unsigned)__builtin_ctzll(~word | 0x10);
    *prefix = prefix_bits[ones];
    return code_bits[ones];
}

/* The value of a code of `bits` bits with a prefix of `prefix`, sign extended. */
static inline uint64_t qwp_gorilla_value(uint64_t word, unsigned bits, unsigned prefix)
{
    if (bits == 1) {
        return 0;
    }
    const uint64_t shifted = word << (64 - bits);
    return (uint64_t)((int64_t)shifted >> (64 - bits + prefix));
}

#endif

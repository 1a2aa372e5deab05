/* qwp_varint: unsigned LEB128, at most 10 bytes. */
#ifndef QWP_VARINT_H
#define QWP_VARINT_H

#include <stddef.h>
#include <stdint.h>

enum { QWP_VARINT_BYTES_MAX = 10 };

static inline size_t qwp_varint_size(uint64_t v)
{
    size_t n = 1;
    while (v >= 0x80) {
        v >>= 7;
        n++;
    }
    return n;
}

/* Returns the end of what it wrote; the caller has made room for qwp_varint_size(v). */
static inline unsigned char *qwp_varint_put(unsigned char *at, uint64_t v)
{
    while (v >= 0x80) {
        *at++ = (unsigned char)(v | 0x80);
        v >>= 7;
    }
    *at++ = (unsigned char)v;
    return at;
}

/* Returns the byte after the varint and sets *v, or NULL when it does not end before `end`, is
 * longer than 10 bytes or does not fit 64 bits. */
static inline const unsigned char *qwp_varint_get(const unsigned char *at, const unsigned char *end,
                                                  uint64_t *v)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 70; shift += 7) {
        const unsigned char byte = *at++;
        if (shift == 63 && byte > 1) {
            return NULL;
        }
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *v = value;
            return at;
        }
    }
    return NULL;
}

#endif

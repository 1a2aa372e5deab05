#include "core/wire/qwp_gather.h"

#include <stdatomic.h>
#include <string.h>

#include "core/qwp_bytes.h"

static inline uint8_t load_once_u8(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint8_t *)at, memory_order_relaxed);
}

static inline uint32_t load_once_u32(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint32_t *)(const void *)at, memory_order_relaxed);
}

static inline uint64_t load_once_u64(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at, memory_order_relaxed);
}

/* Inlined with a constant width, so that each copy is a load and a store. */
static inline __attribute__((always_inline)) unsigned char *
gather_width(const unsigned char *const *rows, uint32_t n, uint32_t off, uint32_t width,
             unsigned char *dst)
{
    uint32_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (uint32_t k = 0; k < 8; k++) {
            memcpy(dst + k * width, rows[i + k] + off, width);
        }
        dst += 8 * width;
    }
    for (; i < n; i++) {
        memcpy(dst, rows[i] + off, width);
        dst += width;
    }
    return dst;
}

unsigned char *qwp_gather_fixed(const unsigned char *const *rows, uint32_t n, uint32_t off,
                                uint32_t width, unsigned char *dst)
{
    switch (width) {
    case 1:
        return gather_width(rows, n, off, 1, dst);
    case 2:
        return gather_width(rows, n, off, 2, dst);
    case 4:
        return gather_width(rows, n, off, 4, dst);
    case 8:
        return gather_width(rows, n, off, 8, dst);
    case 16:
        return gather_width(rows, n, off, 16, dst);
    default:
        return gather_width(rows, n, off, 32, dst);
    }
}

static inline unsigned char *put_code(unsigned char *at, uint32_t code)
{
    qwp_store_u32(at, code); /* the byte behind the varint is overwritten by the next value */
    return at + (code >> 24);
}

uint32_t qwp_gather_symbols(const unsigned char *const *rows, uint32_t n, uint32_t off,
                            const uint32_t *codes, uint32_t count, unsigned char **at)
{
    unsigned char *end = *at;
    for (uint32_t i = 0; i < n; i++) {
        const uint32_t index = load_once_u32(rows[i] + off);
        if (__builtin_expect(index >= count, 0)) {
            return i;
        }
        end = put_code(end, codes[index]);
    }
    *at = end;
    return n;
}

void qwp_gather_symbol_codes(const unsigned char *const *rows, uint32_t n, uint32_t off,
                             unsigned char **at)
{
    unsigned char *end = *at;
    for (uint32_t i = 0; i < n; i++) {
        end = put_code(end, qwp_load_u32(rows[i] + off));
    }
    *at = end;
}

uint32_t qwp_gather_booleans(const unsigned char *const *rows, uint32_t n, uint32_t off,
                             unsigned char *dst)
{
    unsigned all = 0;
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = load_once_u8(rows[i] + off);
        all |= dst[i];
    }
    if (all <= 1) {
        return n;
    }
    uint32_t bad = 0;
    while (dst[bad] <= 1) {
        bad++;
    }
    return bad;
}

uint32_t qwp_gather_geohashes(const unsigned char *const *rows, uint32_t n, uint32_t off,
                              uint32_t bits, unsigned char **at)
{
    unsigned char *end = *at;
    const uint32_t width = (bits + 7) / 8;
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t hash = load_once_u64(rows[i] + off);
        if (__builtin_expect(hash >> bits != 0, 0)) {
            return i;
        }
        qwp_store_u64(end, hash);
        end += width;
    }
    *at = end;
    return n;
}

void qwp_gather_times(const unsigned char *const *rows, uint32_t n, uint32_t off, int64_t *dst)
{
    for (uint32_t i = 0; i < n; i++) {
        dst[i] = (int64_t)load_once_u64(rows[i] + off);
    }
}

unsigned char *qwp_pack_bits(const unsigned char *bytes, uint32_t n, unsigned char *dst)
{
    for (uint32_t i = 0; i < n; i += 8) {
        uint64_t eight = qwp_load_u64(bytes + i);
        if (n - i < 8) {
            eight &= (UINT64_C(1) << 8 * (n - i)) - 1;
        }
        /* Byte k (0 or 1) times the constant's byte 7 - k lands in the top byte as bit k, and no
         * two products meet. */
        *dst++ = (unsigned char)(eight * UINT64_C(0x0102040810204080) >> 56);
    }
    return dst;
}

void qwp_copy_part(unsigned char *dst, const unsigned char *src, size_t len)
{
    if (len >= 16) {
        size_t i = 0;
        if (len > 128) {
            memcpy(dst, src, len);
            return;
        }
        for (; i + 16 <= len; i += 16) {
            memcpy(dst + i, src + i, 16);
        }
        memcpy(dst + len - 16, src + len - 16, 16);
    } else if (len >= 8) {
        const uint64_t tail = qwp_load_u64(src + len - 8);
        qwp_store_u64(dst, qwp_load_u64(src));
        qwp_store_u64(dst + len - 8, tail);
    } else if (len >= 4) {
        const uint32_t tail = qwp_load_u32(src + len - 4);
        qwp_store_u32(dst, qwp_load_u32(src));
        qwp_store_u32(dst + len - 4, tail);
    } else if (len > 0) {
        dst[0] = src[0];
        dst[len / 2] = src[len / 2];
        dst[len - 1] = src[len - 1];
    }
}

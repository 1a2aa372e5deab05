#include "core/wire/qwp_gather.h"

#include "core/wire/qwp_wire.h"

/* --- fields that are copied as they are --- */

#define INLINE static inline __attribute__((always_inline))

/* Two values in one register: one store instead of two. */
typedef uint64_t pair __attribute__((vector_size(16)));

INLINE void copy_pair(const unsigned char *const *rows, uint32_t off, unsigned char *dst)
{
    const pair values = {qwp_load_u64(rows[0] + off), qwp_load_u64(rows[1] + off)};
    memcpy(dst, &values, sizeof values);
}

/* `width` is constant wherever this is inlined, so that each copy is a load and a store. */
INLINE void gather_width(const unsigned char *const *rows, size_t n, uint32_t off, uint32_t width,
                         unsigned char *dst)
{
    size_t i = 0;
    for (; i + 4 <= n; i += 4) {
        unsigned char *at = dst + i * width;
        if (width == 8) {
            copy_pair(rows + i, off, at);
            copy_pair(rows + i + 2, off, at + 16);
        } else {
            memcpy(at, rows[i] + off, width);
            memcpy(at + width, rows[i + 1] + off, width);
            memcpy(at + 2 * width, rows[i + 2] + off, width);
            memcpy(at + 3 * width, rows[i + 3] + off, width);
        }
    }
    for (; i < n; i++) {
        memcpy(dst + i * width, rows[i] + off, width);
    }
}

void qwp_gather_fixed(const unsigned char *const *rows, uint32_t n, uint32_t off, uint32_t width,
                      unsigned char *dst)
{
    switch (width) {
    case 1:
        gather_width(rows, n, off, 1, dst);
        break;
    case 2:
        gather_width(rows, n, off, 2, dst);
        break;
    case 4:
        gather_width(rows, n, off, 4, dst);
        break;
    case 8:
        gather_width(rows, n, off, 8, dst);
        break;
    case 16:
        gather_width(rows, n, off, 16, dst);
        break;
    default:
        gather_width(rows, n, off, 32, dst);
        break;
    }
}

/* Unrolled, so that arrays of a few columns live in registers. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 4")
#endif

INLINE void gather_columns(const unsigned char *const *rows, size_t n, const uint32_t *offs,
                           uint32_t width, unsigned char *const *dsts, uint32_t columns)
{
    uint32_t off[QWP_GATHER_MANY_MAX];
    unsigned char *dst[QWP_GATHER_MANY_MAX];
    UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        off[c] = offs[c];
        dst[c] = dsts[c];
    }
    size_t i = 0;
    for (; width == 8 && i + 2 <= n; i += 2) {
        UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            copy_pair(rows + i, off[c], dst[c] + i * 8);
        }
    }
    for (; i < n; i++) {
        UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            memcpy(dst[c] + i * width, rows[i] + off[c], width);
        }
    }
}

INLINE void gather_width_many(const unsigned char *const *rows, uint32_t n, const uint32_t *offs,
                              uint32_t width, unsigned char *const *dsts, uint32_t columns)
{
    if (columns == 4) {
        gather_columns(rows, n, offs, width, dsts, 4);
    } else if (columns == 3) {
        gather_columns(rows, n, offs, width, dsts, 3);
    } else {
        gather_columns(rows, n, offs, width, dsts, 2);
    }
}

void qwp_gather_fixed_many(const unsigned char *const *rows, uint32_t n, const uint32_t *offs,
                           uint32_t width, unsigned char *const *dsts, uint32_t columns)
{
    switch (width) {
    case 1:
        gather_width_many(rows, n, offs, 1, dsts, columns);
        break;
    case 2:
        gather_width_many(rows, n, offs, 2, dsts, columns);
        break;
    case 4:
        gather_width_many(rows, n, offs, 4, dsts, columns);
        break;
    case 8:
        gather_width_many(rows, n, offs, 8, dsts, columns);
        break;
    case 16:
        gather_width_many(rows, n, offs, 16, dsts, columns);
        break;
    default:
        gather_width_many(rows, n, offs, 32, dsts, columns);
        break;
    }
}

/* --- fields that may be stored narrower --- */

/* Bits above `width` bytes: set when v is out of the width's range. */
INLINE uint64_t integer_excess(int64_t v, uint32_t width)
{
    const uint64_t offset = UINT64_C(1) << (8 * width - 1);
    uint64_t excess = (uint64_t)v + offset;
    if (width == 4) {
        excess |= (uint64_t)v + offset - 1; /* the lowest INT is its null */
    }
    return excess;
}

INLINE uint64_t store_narrow(unsigned char *dst, const unsigned char *field, uint8_t type,
                             uint32_t width)
{
    if (type == QWP_TYPE_DOUBLE) {
        const uint64_t bits = qwp_load_once_u64(field);
        double wide;
        memcpy(&wide, &bits, sizeof wide);
        const float narrow = (float)wide;
        memcpy(dst, &narrow, sizeof narrow);
        const double back = narrow;
        uint64_t back_bits;
        memcpy(&back_bits, &back, sizeof back_bits);
        return bits ^ back_bits;
    }
    const int64_t v = type == QWP_TYPE_LONG ? (int64_t)qwp_load_once_u64(field)
                                            : (int32_t)qwp_load_once_u32(field);
    memcpy(dst, &v, width);
    return integer_excess(v, width);
}

INLINE void gather_narrow(const unsigned char *const *rows, size_t n, uint32_t off, uint8_t type,
                          uint32_t width, unsigned char *const *dsts, uint64_t *misfits,
                          uint32_t columns)
{
    const uint32_t full = type == QWP_TYPE_INT ? 4 : 8;
    unsigned char *dst[QWP_GATHER_MANY_MAX];
    uint64_t excess[QWP_GATHER_MANY_MAX] = {0};
    UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        dst[c] = dsts[c];
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char *fields = rows[i] + off;
        UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            excess[c] |= store_narrow(dst[c] + i * width, fields + c * full, type, width);
        }
    }
    UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        misfits[c] = type == QWP_TYPE_DOUBLE ? excess[c] : excess[c] >> 8 * width;
    }
}

INLINE void gather_narrow_columns(const unsigned char *const *rows, uint32_t n, uint32_t off,
                                  uint8_t type, uint32_t width, unsigned char *const *dsts,
                                  uint64_t *misfits, uint32_t columns)
{
    if (columns == 4) {
        gather_narrow(rows, n, off, type, width, dsts, misfits, 4);
    } else if (columns == 3) {
        gather_narrow(rows, n, off, type, width, dsts, misfits, 3);
    } else if (columns == 2) {
        gather_narrow(rows, n, off, type, width, dsts, misfits, 2);
    } else {
        gather_narrow(rows, n, off, type, width, dsts, misfits, 1);
    }
}

void qwp_gather_narrow(const unsigned char *const *rows, uint32_t n, uint32_t off, uint8_t type,
                       uint32_t width, unsigned char *const *dsts, uint64_t *misfits,
                       uint32_t columns)
{
    if (type == QWP_TYPE_DOUBLE) {
        gather_narrow_columns(rows, n, off, QWP_TYPE_DOUBLE, 4, dsts, misfits, columns);
    } else if (type == QWP_TYPE_INT) {
        if (width == 1) {
            gather_narrow_columns(rows, n, off, QWP_TYPE_INT, 1, dsts, misfits, columns);
        } else {
            gather_narrow_columns(rows, n, off, QWP_TYPE_INT, 2, dsts, misfits, columns);
        }
    } else if (width == 1) {
        gather_narrow_columns(rows, n, off, QWP_TYPE_LONG, 1, dsts, misfits, columns);
    } else if (width == 2) {
        gather_narrow_columns(rows, n, off, QWP_TYPE_LONG, 2, dsts, misfits, columns);
    } else {
        gather_narrow_columns(rows, n, off, QWP_TYPE_LONG, 4, dsts, misfits, columns);
    }
}

/* --- symbols --- */

/* Stores all four bytes; the one behind the varint is overwritten by the next value. */
INLINE unsigned char *put_code(unsigned char *at, uint32_t code)
{
    qwp_store_u32(at, code);
    return at + (code >> 24);
}

INLINE uint32_t gather_symbol_columns(const unsigned char *const *rows, uint32_t n, uint32_t off,
                                      const uint32_t *codes, uint32_t count, unsigned char **ats,
                                      uint32_t columns)
{
    unsigned char *end[QWP_GATHER_MANY_MAX];
    UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        end[c] = ats[c];
    }
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char *fields = rows[i] + off;
        uint32_t index[QWP_GATHER_MANY_MAX];
        UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            index[c] = qwp_load_once_u32(fields + 4 * c);
            if (__builtin_expect(index[c] >= count, 0)) {
                return i;
            }
        }
        UNROLL
        for (uint32_t c = 0; c < columns; c++) {
            end[c] = put_code(end[c], codes[index[c]]);
        }
    }
    UNROLL
    for (uint32_t c = 0; c < columns; c++) {
        ats[c] = end[c];
    }
    return n;
}

uint32_t qwp_gather_symbols(const unsigned char *const *rows, uint32_t n, uint32_t off,
                            const uint32_t *codes, uint32_t count, unsigned char **ats,
                            uint32_t columns)
{
    switch (columns) {
    case 1:
        return gather_symbol_columns(rows, n, off, codes, count, ats, 1);
    case 2:
        return gather_symbol_columns(rows, n, off, codes, count, ats, 2);
    case 3:
        return gather_symbol_columns(rows, n, off, codes, count, ats, 3);
    default:
        return gather_symbol_columns(rows, n, off, codes, count, ats, 4);
    }
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

/* --- the rest --- */

uint32_t qwp_gather_booleans(const unsigned char *const *rows, uint32_t n, uint32_t off,
                             unsigned char *dst)
{
    unsigned all = 0;
    for (size_t i = 0; i < n; i++) {
        const uint8_t value = qwp_load_once_u8(rows[i] + off);
        dst[i] = value;
        all |= value;
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
        const uint64_t hash = qwp_load_once_u64(rows[i] + off);
        if (__builtin_expect(hash >> bits != 0, 0)) {
            return i;
        }
        qwp_store_u64(end, hash);
        end += width;
    }
    *at = end;
    return n;
}

void qwp_spread_bit(const unsigned char *bytes, uint32_t n, uint32_t bit, unsigned char *flags)
{
    for (uint32_t i = 0; i < n; i += 8) {
        qwp_store_u64(flags + i, qwp_load_u64(bytes + i) >> bit & UINT64_C(0x0101010101010101));
    }
}

void qwp_pack_bits(const unsigned char *bytes, uint32_t n, unsigned char *dst)
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
}

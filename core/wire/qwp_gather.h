/* qwp_gather: fields of many records, gathered into dense columns.
 *
 * `rows` are the addresses of `n` records (or steerings) that have a value in the field at `off`;
 * rows where it is null have been left out. Fields are aligned to their width, up to 8.
 *
 * Trust: records may change while we read. Each value is loaded once - by an atomic load where it
 *        is judged in a register, so that the compiler cannot load it again - and what is judged is
 *        what is stored.
 * Speed: instructions count, not loads: records are in the first- or second-level cache. So
 *        neighbouring columns share the load of a row's address, and longs leave two by two.
 *        [perf bench_encode: a long 1.05 ns in a plain loop, 0.73 alone, 0.65 among ten]
 * Returned index: of the first row whose value fails its check; n when there is none. */
#ifndef QWP_GATHER_H
#define QWP_GATHER_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_bytes.h"

/* Most columns that are gathered at once. */
enum { QWP_GATHER_MANY_MAX = 4 };

/* Copies fields of 1, 2, 4, 8, 16 or 32 bytes to dst. */
void qwp_gather_fixed(const unsigned char *const *rows, uint32_t n, uint32_t off, uint32_t width,
                      unsigned char *dst);
/* The same for 2..QWP_GATHER_MANY_MAX columns of one width. */
void qwp_gather_fixed_many(const unsigned char *const *rows, uint32_t n, const uint32_t *offs,
                           uint32_t width, unsigned char *const *dsts, uint32_t columns);

/* LONG, INT or DOUBLE fields (`type`) of 1..QWP_GATHER_MANY_MAX columns, side by side from `off`
 * on, stored in `width` bytes: less than their own, 4 for doubles. misfits[] is not 0 if a value
 * does not fit, or would be the null of the narrow type; what was stored is then of no use. */
void qwp_gather_narrow(const unsigned char *const *rows, uint32_t n, uint32_t off, uint8_t type,
                       uint32_t width, unsigned char *const *dsts, uint64_t *misfits,
                       uint32_t columns);

enum { QWP_GATHER_SYMBOL_SLACK = 4 }; /* the symbol kernels may write this far beyond an end */

/* Symbol indexes below `count`, replaced by their codes, of 1..QWP_GATHER_MANY_MAX columns whose
 * fields lie side by side from `off` on. Moves ats[] unless a check fails. */
uint32_t qwp_gather_symbols(const unsigned char *const *rows, uint32_t n, uint32_t off,
                            const uint32_t *codes, uint32_t count, unsigned char **ats,
                            uint32_t columns);
/* Symbol codes that stand in the rows' own steering. */
void qwp_gather_symbol_codes(const unsigned char *const *rows, uint32_t n, uint32_t off,
                             unsigned char **at);

/* Bytes that are 0 or 1. */
uint32_t qwp_gather_booleans(const unsigned char *const *rows, uint32_t n, uint32_t off,
                             unsigned char *dst);
/* The low `bits` bits of each field, the others being 0, in as many bytes as they need. Moves *at
 * and may write 7 bytes beyond it. */
uint32_t qwp_gather_geohashes(const unsigned char *const *rows, uint32_t n, uint32_t off,
                              uint32_t bits, unsigned char **at);

/* flags[i] = bit `bit` of bytes[i]. Reads and writes up to 7 bytes beyond. */
void qwp_spread_bit(const unsigned char *bytes, uint32_t n, uint32_t bit, unsigned char *flags);
/* Packs n bytes of 0 or 1 into bits, least significant first; reads up to 7 bytes beyond. */
void qwp_pack_bits(const unsigned char *bytes, uint32_t n, unsigned char *dst);

/* memcpy for lengths that vary from row to row and are mostly small. */
static inline void qwp_copy_part(unsigned char *dst, const unsigned char *src, size_t len)
{
    if (len >= 16) {
        if (len > 256) {
            memcpy(dst, src, len);
            return;
        }
        const size_t last = len - 16;
        for (size_t i = 0; i < last; i += 16) {
            memcpy(dst + i, src + i, 16);
        }
        memcpy(dst + last, src + last, 16);
    } else if (len >= 8) {
        qwp_store_u64(dst, qwp_load_u64(src));
        qwp_store_u64(dst + len - 8, qwp_load_u64(src + len - 8));
    } else if (len >= 4) {
        qwp_store_u32(dst, qwp_load_u32(src));
        qwp_store_u32(dst + len - 4, qwp_load_u32(src + len - 4));
    } else if (len > 0) {
        dst[0] = src[0];
        dst[len / 2] = src[len / 2];
        dst[len - 1] = src[len - 1];
    }
}

#endif

/* qwp_gather: one field of many records, gathered into a dense column.
 *
 * `rows` are the addresses of `n` records (or steerings) in whose field at `off` a value stands;
 * rows where it is null have been left out. Fields are aligned to their width, up to 8.
 *
 * Trust: records may change while we read. Each value is loaded once - by an atomic load where it
 *        is judged afterwards, so that the compiler cannot load it again - and what is judged is
 *        what is stored.
 * Returned index: of the first row whose value fails its check; n when there is none. */
#ifndef QWP_GATHER_H
#define QWP_GATHER_H

#include <stddef.h>
#include <stdint.h>

/* Copies fields of 1, 2, 4, 8, 16 or 32 bytes. Returns the end of what it wrote. */
unsigned char *qwp_gather_fixed(const unsigned char *const *rows, uint32_t n, uint32_t off,
                                uint32_t width, unsigned char *dst);

enum { QWP_GATHER_SYMBOL_SLACK = 4 }; /* the symbol kernels may write this far beyond *at */

/* Symbol indexes below `count`, replaced by their codes. Moves *at. */
uint32_t qwp_gather_symbols(const unsigned char *const *rows, uint32_t n, uint32_t off,
                            const uint32_t *codes, uint32_t count, unsigned char **at);
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

void qwp_gather_times(const unsigned char *const *rows, uint32_t n, uint32_t off, int64_t *dst);

/* Packs n bytes of 0 or 1 into bits, least significant first; reads up to 7 bytes beyond. Returns
 * the end of what it wrote. */
unsigned char *qwp_pack_bits(const unsigned char *bytes, uint32_t n, unsigned char *dst);

/* memcpy for lengths that vary from row to row and are mostly small. */
void qwp_copy_part(unsigned char *dst, const unsigned char *src, size_t len);

#endif

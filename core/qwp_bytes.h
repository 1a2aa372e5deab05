/* qwp_bytes: little-endian loads and stores at any address, and rounding.
 *
 * All our formats are little-endian and so are the machines we build for (checked here), so each
 * load or store is one instruction; memcpy keeps it free of aliasing and alignment trouble. */
#ifndef QWP_BYTES_H
#define QWP_BYTES_H

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "little-endian machines only");

static inline uint16_t qwp_load_u16(const void *at)
{
    uint16_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline uint32_t qwp_load_u32(const void *at)
{
    uint32_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline uint64_t qwp_load_u64(const void *at)
{
    uint64_t v;
    memcpy(&v, at, sizeof v);
    return v;
}

static inline int64_t qwp_load_i64(const void *at)
{
    return (int64_t)qwp_load_u64(at);
}

static inline void qwp_store_u16(void *at, uint16_t v)
{
    memcpy(at, &v, sizeof v);
}

static inline void qwp_store_u32(void *at, uint32_t v)
{
    memcpy(at, &v, sizeof v);
}

static inline void qwp_store_u64(void *at, uint64_t v)
{
    memcpy(at, &v, sizeof v);
}

static inline void qwp_store_i64(void *at, int64_t v)
{
    memcpy(at, &v, sizeof v);
}

/* Of memory that another process may write: atomic, so that the compiler cannot load it again once
 * the value is judged. Aligned. */
static inline uint8_t qwp_load_once_u8(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint8_t *)at, memory_order_relaxed);
}

static inline uint32_t qwp_load_once_u32(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint32_t *)(const void *)at, memory_order_relaxed);
}

static inline uint64_t qwp_load_once_u64(const unsigned char *at)
{
    return atomic_load_explicit((const _Atomic uint64_t *)(const void *)at, memory_order_relaxed);
}

/* `step` is a power of two. */
static inline uint64_t qwp_round_up(uint64_t v, uint64_t step)
{
    return (v + step - 1) & ~(step - 1);
}

#endif

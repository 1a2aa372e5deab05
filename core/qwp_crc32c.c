#include "core/qwp_crc32c.h"

#include <stdatomic.h>
#include <string.h>

#include "core/qwp_bytes.h"

typedef uint32_t (*crc_fn)(uint32_t crc, const unsigned char *at, size_t len);

/* One nibble at a time: 16 words of table, for machines without the instruction. */
static uint32_t crc_portable(uint32_t crc, const unsigned char *at, size_t len)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    for (; len > 0; len--, at++) {
        crc ^= *at;
        crc = (crc >> 4) ^ nibble[crc & 15];
        crc = (crc >> 4) ^ nibble[crc & 15];
    }
    return crc;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t crc_hardware(uint32_t crc,
                                                               const unsigned char *at, size_t len)
{
    uint64_t wide = crc;
    for (; len >= 8; len -= 8, at += 8) {
        wide = _mm_crc32_u64(wide, qwp_load_u64(at));
    }
    crc = (uint32_t)wide;
    for (; len > 0; len--, at++) {
        crc = _mm_crc32_u8(crc, *at);
    }
    return crc;
}

static crc_fn crc_choose(void)
{
    return __builtin_cpu_supports("sse4.2") ? crc_hardware : crc_portable;
}
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

__attribute__((target("+crc"))) static uint32_t crc_hardware(uint32_t crc, const unsigned char *at,
                                                             size_t len)
{
    for (; len >= 8; len -= 8, at += 8) {
        crc = __crc32cd(crc, qwp_load_u64(at));
    }
    for (; len > 0; len--, at++) {
        crc = __crc32cb(crc, *at);
    }
    return crc;
}

static crc_fn crc_choose(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc_hardware : crc_portable;
}
#else
static crc_fn crc_choose(void)
{
    return crc_portable;
}
#endif

uint32_t qwp_crc32c(uint32_t crc, const void *bytes, size_t len)
{
    /* Chosen once; a race stores the same pointer twice. */
    static _Atomic(crc_fn) chosen;
    crc_fn fn = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (fn == NULL) {
        fn = crc_choose();
        atomic_store_explicit(&chosen, fn, memory_order_relaxed);
    }
    return ~fn(~crc, bytes, len);
}

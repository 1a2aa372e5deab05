#include "core/qwp_crc32c.h"

#include <stdatomic.h>
#include <stdbool.h>
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

/* The instruction takes eight bytes in three cycles but can start each cycle: so three streams at
 * once, over neighbouring stretches, put together by moving a CRC over the stretches behind it. A
 * move over a fixed number of zero bytes is linear, so it is four look-ups. [64 KiB: 7.5 GB/s with
 * one stream, 20 with three.] */
enum { STRETCH_LONG = 2048, STRETCH_SHORT = 256 };

struct mover {
    uint32_t by_byte[4][256];
};

static struct {
    _Atomic int state; /* sync[crc32c.movers]: READY: both are filled */
    struct mover over_long, over_short;
} movers;

enum { MOVERS_NONE = 0, MOVERS_BEING_MADE = 1, MOVERS_READY = 2 };

static inline uint32_t moved(const struct mover *mover, uint32_t crc)
{
    return mover->by_byte[0][crc & 0xff] ^ mover->by_byte[1][(crc >> 8) & 0xff] ^
           mover->by_byte[2][(crc >> 16) & 0xff] ^ mover->by_byte[3][crc >> 24];
}

static void mover_fill(struct mover *mover, crc_fn crc, size_t len)
{
    static const unsigned char zeros[STRETCH_LONG];
    for (int byte = 0; byte < 4; byte++) {
        for (uint32_t value = 0; value < 256; value++) {
            /* One bit: over the zeros; more: the sum of two that are known. */
            const uint32_t low = value & (0u - value);
            mover->by_byte[byte][value] =
                low == value ? (value == 0 ? 0 : crc(value << (8 * byte), zeros, len))
                             : mover->by_byte[byte][low] ^ mover->by_byte[byte][value ^ low];
        }
    }
}

/* Whoever comes first fills them; whoever comes meanwhile does with one stream. */
static bool movers_ready(crc_fn crc)
{
    /* sync[crc32c.movers] acquire: pairs with the release below. */
    int state = atomic_load_explicit(&movers.state, memory_order_acquire);
    if (state == MOVERS_NONE &&
        atomic_compare_exchange_strong_explicit(&movers.state, &state, MOVERS_BEING_MADE,
                                                memory_order_acquire, memory_order_relaxed)) {
        mover_fill(&movers.over_long, crc, STRETCH_LONG);
        mover_fill(&movers.over_short, crc, STRETCH_SHORT);
        /* sync[crc32c.movers] release */
        atomic_store_explicit(&movers.state, MOVERS_READY, memory_order_release);
        return true;
    }
    return state == MOVERS_READY;
}

#if defined(__x86_64__)
#include <nmmintrin.h>

#define CRC_TARGET          __attribute__((target("sse4.2")))
#define CRC_WORD(crc, word) ((uint32_t)_mm_crc32_u64((crc), (word)))
#define CRC_BYTE(crc, byte) _mm_crc32_u8((crc), (byte))

static bool crc_in_hardware(void)
{
    return __builtin_cpu_supports("sse4.2");
}
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <sys/auxv.h>

#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif

#define CRC_TARGET          __attribute__((target("+crc")))
#define CRC_WORD(crc, word) __crc32cd((crc), (word))
#define CRC_BYTE(crc, byte) __crc32cb((crc), (byte))

static bool crc_in_hardware(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
}
#endif

#ifdef CRC_TARGET
CRC_TARGET static uint32_t crc_one_stream(uint32_t crc, const unsigned char *at, size_t len)
{
    for (; len >= 8; len -= 8, at += 8) {
        crc = CRC_WORD(crc, qwp_load_u64(at));
    }
    for (; len > 0; len--, at++) {
        crc = CRC_BYTE(crc, *at);
    }
    return crc;
}

/* Three neighbouring stretches. */
CRC_TARGET static inline uint32_t crc_three(uint32_t crc, const unsigned char *at, size_t stretch,
                                            const struct mover *mover)
{
    uint32_t second = 0;
    uint32_t third = 0;
    for (size_t i = 0; i < stretch; i += 8) {
        crc = CRC_WORD(crc, qwp_load_u64(at + i));
        second = CRC_WORD(second, qwp_load_u64(at + stretch + i));
        third = CRC_WORD(third, qwp_load_u64(at + 2 * stretch + i));
    }
    return moved(mover, moved(mover, crc) ^ second) ^ third;
}

CRC_TARGET static uint32_t crc_hardware(uint32_t crc, const unsigned char *at, size_t len)
{
    if (len >= 3 * STRETCH_SHORT && movers_ready(crc_one_stream)) {
        for (; len >= 3 * STRETCH_LONG; len -= 3 * STRETCH_LONG, at += 3 * STRETCH_LONG) {
            crc = crc_three(crc, at, STRETCH_LONG, &movers.over_long);
        }
        for (; len >= 3 * STRETCH_SHORT; len -= 3 * STRETCH_SHORT, at += 3 * STRETCH_SHORT) {
            crc = crc_three(crc, at, STRETCH_SHORT, &movers.over_short);
        }
    }
    return crc_one_stream(crc, at, len);
}

static crc_fn crc_choose(void)
{
    return crc_in_hardware() ? crc_hardware : crc_portable;
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

uint32_t qwp_crc32c_portable(uint32_t crc, const void *bytes, size_t len)
{
    return ~crc_portable(~crc, bytes, len);
}

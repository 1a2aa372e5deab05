#include "core/wire/qwp_narrow.h"

#include <string.h>

#include "core/wire/qwp_wire.h"

/* Each loop is inlined with constants for all but n. The sum of misfits is what a compiler turns
 * into vectors; an early exit is not, nor (without SSE 4.2) a comparison of 64 bits: a value is out
 * of range when, moved to begin at 0, it has bits above those of the narrow type. */
#define NARROW_INTEGERS(from_type, to_type, lowest)                                                \
    do {                                                                                           \
        from_type excess = 0;                                                                      \
        for (uint32_t i = 0; i < n; i++) {                                                         \
            from_type value;                                                                       \
            memcpy(&value, values + i * sizeof value, sizeof value);                               \
            const to_type narrow = (to_type)value;                                                 \
            memcpy(dst + i * sizeof narrow, &narrow, sizeof narrow);                               \
            excess |= value - (from_type)(lowest);                                                 \
        }                                                                                          \
        return excess >> 8 * sizeof(to_type) == 0;                                                 \
    } while (0)

static bool long_to_byte(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    NARROW_INTEGERS(uint64_t, uint8_t, INT8_MIN);
}

static bool long_to_short(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    NARROW_INTEGERS(uint64_t, uint16_t, INT16_MIN);
}

/* The lowest INT is its null. */
static bool long_to_int(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    uint64_t excess = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        const uint32_t narrow = (uint32_t)value;
        memcpy(dst + i * sizeof narrow, &narrow, sizeof narrow);
        value -= (uint64_t)INT32_MIN;
        excess |= value | (value - 1);
    }
    return excess >> 32 == 0;
}

static bool int_to_byte(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    NARROW_INTEGERS(uint32_t, uint8_t, INT8_MIN);
}

static bool int_to_short(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    NARROW_INTEGERS(uint32_t, uint16_t, INT16_MIN);
}

static bool double_to_float(const unsigned char *values, uint32_t n, unsigned char *dst)
{
    uint64_t differ = 0;
    for (uint32_t i = 0; i < n; i++) {
        double value;
        memcpy(&value, values + i * sizeof value, sizeof value);
        const float narrow = (float)value;
        memcpy(dst + i * sizeof narrow, &narrow, sizeof narrow);
        const double back = narrow;
        uint64_t bits;
        uint64_t back_bits;
        memcpy(&bits, &value, sizeof bits);
        memcpy(&back_bits, &back, sizeof back_bits);
        differ |= bits ^ back_bits;
    }
    return differ == 0;
}

bool qwp_narrow(const unsigned char *values, uint32_t n, uint8_t type, uint32_t width,
                unsigned char *dst)
{
    if (type == QWP_TYPE_DOUBLE) {
        return double_to_float(values, n, dst);
    }
    if (type == QWP_TYPE_INT) {
        return width == 1 ? int_to_byte(values, n, dst) : int_to_short(values, n, dst);
    }
    return width == 1   ? long_to_byte(values, n, dst)
           : width == 2 ? long_to_short(values, n, dst)
                        : long_to_int(values, n, dst);
}

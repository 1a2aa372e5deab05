/* qwp_feed_scan: finds the next of a few bytes, 16 at a time where the machine can.
 *
 * Trust: loads up to 15 bytes beyond `end`; see QWP_FEED_SLACK_BYTES. */
#ifndef QWP_FEED_SCAN_H
#define QWP_FEED_SCAN_H

#include <stdint.h>

#include "core/qwp_bytes.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Marks, in the high bit of each byte, those equal to `c`. Exact up to the lowest mark. */
static inline uint64_t qwp_feed_match_8(uint64_t v, char c)
{
    const uint64_t x = v ^ (UINT64_C(0x0101010101010101) * (unsigned char)c);
    return (x - UINT64_C(0x0101010101010101)) & ~x & UINT64_C(0x8080808080808080);
}

/* The first a, b or c in [at, end), or end. Pass a letter twice to look for fewer. */
static inline const char *qwp_feed_find(const char *at, const char *end, char a, char b, char c)
{
#if defined(__SSE2__)
    const __m128i va = _mm_set1_epi8(a);
    const __m128i vb = _mm_set1_epi8(b);
    const __m128i vc = _mm_set1_epi8(c);
    for (; at < end; at += 16) {
        const __m128i v = _mm_loadu_si128((const __m128i *)(const void *)at);
        const __m128i hit = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, va), _mm_cmpeq_epi8(v, vb)),
                                         _mm_cmpeq_epi8(v, vc));
        const int mask = _mm_movemask_epi8(hit);
        if (mask != 0) {
            at += __builtin_ctz((unsigned)mask);
            return at < end ? at : end;
        }
    }
#else
    for (; at < end; at += 8) {
        const uint64_t v = qwp_load_u64(at);
        const uint64_t hit =
            qwp_feed_match_8(v, a) | qwp_feed_match_8(v, b) | qwp_feed_match_8(v, c);
        if (hit != 0) {
            at += __builtin_ctzll(hit) / 8;
            return at < end ? at : end;
        }
    }
#endif
    return end;
}

#endif

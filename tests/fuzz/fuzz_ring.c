#include "tests/fuzz/fuzz_ring.h"

#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define HAS_ASAN 1
#endif
#ifdef HAS_ASAN
void __asan_poison_memory_region(void const volatile *addr, size_t size);
void __asan_unpoison_memory_region(void const volatile *addr, size_t size);
static void hide(const void *at, size_t bytes)
{
    __asan_poison_memory_region(at, bytes);
}
static void show(const void *at, size_t bytes)
{
    __asan_unpoison_memory_region(at, bytes);
}
#else
static void hide(const void *at, size_t bytes)
{
    (void)at;
    (void)bytes;
}
#define show hide
#endif

enum { UNIT_BYTES = 8 * 1024 }; /* of an honest ring, roughly */

void ring_show(struct ring *ring)
{
    const uint64_t head = ring->source->rx.head_pos;
    uint64_t tail = atomic_load(&ring->header.tail_pos);
    uint64_t defs_tail = atomic_load(&ring->header.defs_tail);
    tail = tail <= RING_DATA_BYTES ? tail : RING_DATA_BYTES;
    tail = tail < ring->source->rx.tail_seen_pos ? ring->source->rx.tail_seen_pos : tail;
    defs_tail = defs_tail <= RING_DEFS_BYTES ? defs_tail : RING_DEFS_BYTES;
    hide(ring->data, RING_DATA_BYTES);
    show(ring->data + head, tail - head);
    hide(ring->defs, RING_DEFS_BYTES);
    show(ring->defs,
         defs_tail > ring->source->rx.defs_tail_seen ? defs_tail : ring->source->rx.defs_tail_seen);
}

void ring_unhide(struct ring *ring)
{
    show(ring->data, RING_DATA_BYTES);
    show(ring->defs, RING_DEFS_BYTES);
}

void ring_append(struct ring *ring, const struct library_piece *piece, bool more)
{
    if (ring->write_pos + piece->bytes > RING_DATA_BYTES ||
        ring->record_count == RING_RECORDS_MAX) {
        return;
    }
    memcpy(ring->data + ring->write_pos, piece->at, piece->bytes);
    if (more) {
        ring->data[ring->write_pos + 7] |= QWP_RECORD_MORE;
    }
    ring->records[ring->record_count++] = (uint32_t)ring->write_pos;
    ring->write_pos += piece->bytes;
}

/* An honest ring's units are not too large, and end where it publishes. */
static void units_cut(struct ring *ring)
{
    uint32_t unit_pos = 0;
    for (uint32_t i = ring->published_count; i < ring->record_count; i++) {
        unsigned char *record = ring->data + ring->records[i];
        unit_pos = i == ring->published_count ? ring->records[i] : unit_pos;
        if (i + 1 == ring->record_count || ring->records[i] - unit_pos > UNIT_BYTES) {
            record[7] &= (unsigned char)~QWP_RECORD_MORE;
        }
        if ((record[7] & QWP_RECORD_MORE) == 0 && i + 1 < ring->record_count) {
            unit_pos = ring->records[i + 1];
        }
    }
}

void ring_publish(struct ring *ring, bool honest)
{
    if (honest) {
        units_cut(ring);
    }
    ring->published_count = ring->record_count;
    atomic_store(&ring->header.tail_pos, ring->write_pos);
}

void ring_define(struct ring *ring, const void *bytes, uint32_t count)
{
    if (ring->defs_pos + count <= RING_DEFS_BYTES) {
        memcpy(ring->defs + ring->defs_pos, bytes, count);
        ring->defs_pos += count;
        atomic_store(&ring->header.defs_tail, ring->defs_pos);
    }
}

void ring_define_symbol(struct ring *ring, struct input *input)
{
    const uint32_t n = input_next(input);
    const uint32_t len = n * n / 4;
    const uint32_t bytes = (uint32_t)qwp_round_up(12 + len, 8);
    unsigned char *entry = calloc(1, bytes);
    QWP_ASSERT(entry != NULL);
    qwp_store_u32(entry, bytes);
    qwp_store_u16(entry + 4, QWP_DEF_SYMBOL);
    qwp_store_u32(entry + 8, len);
    memset(entry + 12, 'a' + input_next(input) % 26, len);
    ring_define(ring, entry, bytes);
    free(entry);
}

/* Numbers that tell. */
static uint64_t telling(uint8_t n)
{
    static const uint64_t numbers[] = {0,
                                       1,
                                       7,
                                       8,
                                       16,
                                       255,
                                       256,
                                       1024,
                                       8192,
                                       8193,
                                       65535,
                                       65536,
                                       RING_DATA_BYTES,
                                       RING_DATA_BYTES - 8,
                                       0x7fffffff,
                                       0x80000000,
                                       0x80000001,
                                       UINT32_MAX,
                                       UINT32_MAX - 7,
                                       UINT64_MAX,
                                       INT64_MAX,
                                       UINT64_C(1) << 63};
    return numbers[n % (sizeof numbers / sizeof numbers[0])];
}

void ring_define_all(struct ring *ring, const struct rings_library *pieces)
{
    for (uint32_t i = 0; i < pieces->def_count; i++) {
        ring_define(ring, pieces->defs[i].at, pieces->defs[i].bytes);
    }
}

void ring_change(const struct ring *ring, struct input *input, unsigned char *at, uint64_t bytes)
{
    const uint32_t low = input_next(input);
    const uint32_t how = input_next(input);
    const uint8_t n = input_next(input);
    const int64_t by = n < 128 ? n : n - 256;
    const uint32_t off = low | (how & 0x0f) << 8;
    if (bytes < 8 || off > bytes - 8) {
        return;
    }
    at += off;
    switch (how >> 4) {
    case 0:
        *at = n;
        break;
    case 1:
        *at ^= (unsigned char)(1 << n % 8);
        break;
    case 2:
        *at = (unsigned char)(*at + n);
        break;
    case 3:
        qwp_store_u16(at, (uint16_t)telling(n));
        break;
    case 4:
        qwp_store_u32(at, n);
        break;
    case 5:
        qwp_store_u32(at, (uint32_t)telling(n));
        break;
    case 6:
        qwp_store_u32(at, qwp_load_u32(at) + (uint32_t)by);
        break;
    case 7:
        qwp_store_u32(at, qwp_load_u32(at) + 8 * (uint32_t)by);
        break;
    case 8:
        qwp_store_u64(at, telling(n));
        break;
    case 9:
        qwp_store_u64(at, qwp_load_u64(at) + (uint64_t)by);
        break;
    case 10:
        memset(at, n, 8);
        break;
    case 11:
        qwp_store_u32(at, qwp_load_u32(at) ^ QWP_SYMBOL_TEXT);
        break;
    case 12:
        qwp_store_u32(at, ring->source->symbols.count - 1 - n % 4); /* the youngest */
        break;
    default:
        for (int i = 0; i < 8; i++) {
            at[i] = input_next(input);
        }
    }
}

void ring_change_record(struct ring *ring, struct input *input, uint32_t first, uint32_t back)
{
    if (back >= ring->record_count - first) {
        return;
    }
    const uint32_t index = ring->record_count - 1 - back;
    const uint64_t end =
        index + 1 < ring->record_count ? ring->records[index + 1] : ring->write_pos;
    ring_change(ring, input, ring->data + ring->records[index], end - ring->records[index]);
}

void ring_change_position(struct ring *ring, struct input *input)
{
    const bool defs = input_next(input) % 2 != 0;
    const uint8_t n = input_next(input);
    const uint64_t about = defs ? ring->defs_pos : ring->write_pos;
    const uint64_t value = n < 128 ? telling(n) : about + 8 * (uint64_t)(n - 192);
    if (defs) {
        atomic_store(&ring->header.defs_tail, value);
    } else if (value <= RING_DATA_BYTES || value - ring->source->rx.head_pos > RING_DATA_BYTES) {
        atomic_store(&ring->header.tail_pos, value);
    }
}

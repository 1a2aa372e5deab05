/* fuzz_ring: a producer's ring in memory, which fuzz_rings writes and spoils as its input says.
 *
 * There is one view of the data and it does not go round. Under the address sanitizer what the
 * sidecar must not read is hidden from it: behind the tails and before the head. */
#ifndef FUZZ_RING_H
#define FUZZ_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "sidecar/qwp_source.h"
#include "tests/fuzz/rings_library.h"

enum {
    RING_DATA_BYTES = 128 * 1024,
    RING_DEFS_BYTES = 64 * 1024,
    RING_RECORDS_MAX = 4096,
};

struct input {
    const uint8_t *at, *end;
};

/* 0 when there is no more. */
static inline uint8_t input_next(struct input *input)
{
    return input->at < input->end ? *input->at++ : 0;
}

struct ring {
    struct qwp_ring_header header;
    struct qwp_source *source;
    unsigned char *data;
    unsigned char *defs;
    uint64_t write_pos;
    uint64_t defs_pos;
    uint32_t records[RING_RECORDS_MAX]; /* positions */
    uint32_t record_count;
    uint32_t published_count; /* of the records */
    uint64_t rows_taken;      /* in finished frames */
};

/* For the sidecar to read, and for us to write. */
void ring_show(struct ring *ring);
void ring_unhide(struct ring *ring);

/* Nothing happens where there is no room. `more`: the unit goes on behind it. */
void ring_append(struct ring *ring, const struct library_piece *piece, bool more);
/* An honest ring's units are not too large, and end where it publishes. */
void ring_publish(struct ring *ring, bool honest);
void ring_define(struct ring *ring, const void *bytes, uint32_t count);
void ring_define_all(struct ring *ring, const struct rings_library *pieces);
/* Of N * N / 4 bytes of the next one. */
void ring_define_symbol(struct ring *ring, struct input *input);

/* Changes a few bytes within [at, at + bytes): where (two bytes), how, with what. */
void ring_change(const struct ring *ring, struct input *input, unsigned char *at, uint64_t bytes);
/* Of record number `first` and those behind it, the one `back` before the last. */
void ring_change_record(struct ring *ring, struct input *input, uint32_t first, uint32_t back);
/* One of the tails, as far as there is memory: what lies beyond, the position check refuses or the
 * second view has. */
void ring_change_position(struct ring *ring, struct input *input);

#endif

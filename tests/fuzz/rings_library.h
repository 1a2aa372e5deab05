/* rings_library: definitions and records as the producer library writes them, of every type and
 * kind, for fuzz_rings to build rings from. In a file of its own because producer and sidecar call
 * different things by the same name. */
#ifndef RINGS_LIBRARY_H
#define RINGS_LIBRARY_H

#include <stdint.h>

enum { LIBRARY_PIECES_MAX = 256 };

struct library_piece {
    const unsigned char *at; /* into the library's ring, where it lies at a multiple of 8 */
    uint32_t bytes;
};

struct rings_library {
    struct library_piece defs[LIBRARY_PIECES_MAX]; /* in order: shapes and symbols */
    struct library_piece records[LIBRARY_PIECES_MAX];
    uint32_t def_count, record_count;
};

/* Made once a process. Its records are sound when all its definitions are, in their order. */
const struct rings_library *rings_library_get(void);

#endif

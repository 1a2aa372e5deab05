/* chunk_fixture: a ring with one columnar chunk in it, written by the producer library. In a file
 * of its own because producer and sidecar call different things by the same name. */
#ifndef CHUNK_FIXTURE_H
#define CHUNK_FIXTURE_H

#include <stdint.h>

enum { CHUNK_ROWS = 50, CHUNK_COLUMNS = 8 }; /* a column of each way of being laid out */

struct chunk_fixture {
    void *producer;
    const char *ring_file;
    unsigned char *record; /* in the ring; may be changed */
    uint32_t record_bytes;
};

void chunk_fixture_open(struct chunk_fixture *fixture, const char *dir, const char *instance);
void chunk_fixture_close(struct chunk_fixture *fixture);

#endif

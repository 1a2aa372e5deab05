/* encode_random: random blocks for the encoder's property tests, and the comparison of what was
 * decoded with what went in. */
#ifndef ENCODE_RANDOM_H
#define ENCODE_RANDOM_H

#include "core/wire/qwp_decode.h"
#include "tests/core/encode_fixture.h"

enum { RANDOM_SYMBOLS = 20000 }; /* ids of one, two and three bytes */

uint64_t random_u64(uint64_t *state);
/* Below n > 0. */
uint32_t random_below(uint64_t *state, uint32_t n);

/* A built fixture: any types, several runs of different shapes and symbols, nulls of all patterns.
 */
void random_fixture(struct fixture *f, uint64_t *state);

/* Cell of a row of the block; NULL if its run has no such column. */
const struct fixture_cell *fixture_cell_at(const struct fixture *f, uint32_t row, uint32_t column);

/* A decoder whose dictionary holds RANDOM_SYMBOLS symbols. */
void random_decoder_init(struct qwp_decoder *decoder);
/* Frames what is in f->dst as a message and decodes it; returns its bytes, to be freed when done.
 */
unsigned char *decode_encoded(struct qwp_decoder *decoder, const struct fixture *f, unsigned flags,
                              const struct qwp_encoded *done, struct qwp_message *message);
/* Asserts that every value of every row is the fixture's, in the type it ought to have. */
void check_decoded(const struct fixture *f, struct qwp_decoder *decoder, unsigned flags,
                   const struct qwp_message *message);

#endif

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

/* A decoder whose dictionary holds RANDOM_SYMBOLS symbols. */
void random_decoder_init(struct qwp_decoder *decoder);
/* Frames the block in f->dst as a message and decodes it; `block` is then open. */
void decode_block(struct qwp_decoder *decoder, const struct fixture *f, unsigned flags, size_t len,
                  struct qwp_table_block *block, unsigned char **message);
/* Asserts that every value of every row is the fixture's. */
void check_decoded(const struct fixture *f, const struct qwp_decoder *decoder,
                   const struct qwp_table_block *block);

#endif

/* encode_fixture: rows as a test wants them, turned into the records and steering that intake would
 * hand to the encoder.
 *
 * Each record, steering and array is an allocation of its exact size, so that the address sanitizer
 * sees the first byte read beyond. Everything lives until fixture_free(). */
#ifndef ENCODE_FIXTURE_H
#define ENCODE_FIXTURE_H

#include "core/wire/qwp_encode.h"

#define NAME(text_) ((struct qwp_name){(text_), (uint32_t)strlen(text_)})

enum { FIXTURE_COLUMNS_MAX = 200, FIXTURE_RUNS_MAX = 64 };

struct fixture_cell {
    bool is_null;
    unsigned char fixed[32]; /* the field as in the record; ignored where a part stands */
    unsigned char *part;     /* allocated; a SYMBOL with a part travels as text */
    uint32_t part_len;
    uint32_t symbol_id; /* global id that a SYMBOL must come out as */
};

struct fixture_run {
    struct qwp_shape *shape;
    uint16_t *field_of_column;
    uint32_t *symbol_codes;
    uint64_t *null_any;
    struct fixture_cell *cells; /* row_count x shape->column_count */
    int64_t *times;             /* row_count */
    uint32_t symbol_count;
    uint32_t row_count;
};

struct fixture {
    struct qwp_block_column columns[FIXTURE_COLUMNS_MAX];
    struct fixture_run runs[FIXTURE_RUNS_MAX];
    struct qwp_run block_runs[FIXTURE_RUNS_MAX];
    unsigned char **records;
    uint32_t *record_bytes;
    uint64_t **steering;
    struct qwp_block block; /* ready after fixture_build() */
    size_t bound;           /* of one block */
    size_t compact_bound;   /* of two */
    struct qwp_encoder *encoder;
    unsigned char *dst;
};

/* Starts a block; columns are copied, names borrowed. */
void fixture_init(struct fixture *f, const char *table, const struct qwp_block_column *columns,
                  uint32_t column_count, uint8_t designated_type);
/* A run with the block's columns for which `present` says so (NULL: all), cells zeroed. Ring symbol
 * index i stands for global id symbol_ids[i]. */
struct fixture_run *fixture_add_run(struct fixture *f, const bool *present, uint32_t row_count,
                                    const uint32_t *symbol_ids, uint32_t symbol_count);
/* The cell of a block column in row `row` of the run; NULL if the run has no such column. */
struct fixture_cell *fixture_cell(struct fixture *f, struct fixture_run *run, uint32_t row,
                                  uint32_t column);
void fixture_set_part(struct fixture_cell *cell, const void *bytes, uint32_t len);
/* Records, steering, block and a destination of exactly the bound, that of compact blocks included.
 */
void fixture_build(struct fixture *f);
/* qwp_block_encode() into f->dst, which then has exactly the bound. */
enum qwp_result fixture_encode(struct fixture *f, unsigned flags, struct qwp_encoded *done);
void fixture_free(struct fixture *f);

#endif

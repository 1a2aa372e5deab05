/* qwp_encode_internal: what the files of the encoder share. Nobody else includes it.
 *
 *   qwp_encode.c         the block, its bounds, columns in order
 *   qwp_encode_row.c     a block of one row
 *   qwp_encode_nulls.c   null flags and bitmaps, rows without the nulls
 *   qwp_encode_group.c   columns gathered together: copied values and symbols
 *   qwp_encode_narrow.c  the compact ones of them
 *   qwp_encode_single.c  booleans, geohashes, times
 *   qwp_encode_parts.c   texts and arrays
 *   qwp_encode_chunk.c   columnar chunks
 *   qwp_gather.c         the loops over rows */
#ifndef QWP_ENCODE_INTERNAL_H
#define QWP_ENCODE_INTERNAL_H

#include "core/qwp_bits.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_encode.h"

/* A column of the block on its way out. */
struct column {
    const struct qwp_block_column *def;
    uint32_t index;
    uint32_t value_count;
    uint16_t field;        /* its index in the shapes of all runs; QWP_NO_FIELD: they differ */
    uint8_t width;         /* of a value that is copied as it is, else 0 */
    bool is_narrow;        /* `width` may still grow, up to that of the declared type */
    unsigned char *start;  /* its null flag */
    unsigned char *bitmap; /* NULL: no row is null */
    unsigned char *values; /* of a narrow column: its first value */
    unsigned char *at;     /* where the next value goes */
};

struct encoding {
    struct qwp_encoder *scratch;
    const struct qwp_block *block;
    unsigned flags;
    struct qwp_encode_fault *fault;
    unsigned char *start; /* of the block */
    /* Of compact blocks: the one ahead has the first row of the first run only, the other all but
     * that; its records, steering and row_count begin with the second. */
    bool only_first_row;
    uint32_t rows_ahead;
};

/* Returns QWP_CORRUPT. */
enum qwp_result qwp_encode_fault(struct encoding *e, uint32_t row, uint32_t column,
                                 const char *what);

/* Names, counts and declared types of e->block; notes where each type stands. */
unsigned char *qwp_encode_header(struct encoding *e, unsigned char *at);

/* The columns of a block of one row, behind its header; moves *at. False: not by this way, and what
 * stands behind *at is of no use. */
bool qwp_encode_row(struct encoding *e, unsigned char **at);

/* --- slices --- */

/* Rows of one run, few enough that their records stay cached. */
struct slice {
    const struct qwp_run *run;
    uint32_t first_row;
    uint32_t count;
};

/* Goes through the slices of a block; starts zeroed. */
struct slice_cursor {
    uint32_t row;
    uint32_t run;
    uint32_t run_row;
};

static inline uint32_t rows_of_run(const struct encoding *e, uint32_t run)
{
    return e->only_first_row ? 1 : e->block->runs[run].row_count - (run == 0 ? e->rows_ahead : 0);
}

static inline bool next_slice(const struct encoding *e, struct slice_cursor *cursor,
                              struct slice *slice)
{
    if (cursor->run == e->block->run_count) {
        return false;
    }
    const struct qwp_run *run = &e->block->runs[cursor->run];
    uint32_t count = rows_of_run(e, cursor->run) - cursor->run_row;
    if (count <= QWP_ENCODE_SLICE_ROWS) {
        cursor->run++;
        cursor->run_row = 0;
    } else {
        count = QWP_ENCODE_SLICE_ROWS;
        cursor->run_row += count;
    }
    *slice = (struct slice){run, cursor->row, count};
    cursor->row += count;
    return true;
}

static inline uint32_t steering_ends_off(const struct qwp_run *run)
{
    return 8u * run->shape->null_words;
}

/* NULL if the run does not have the column. */
static inline const struct qwp_shape_column *field_of(const struct qwp_run *run, uint32_t column)
{
    const uint16_t field = run->field_of_column[column];
    return field == QWP_NO_FIELD ? NULL : &run->shape->columns[field];
}

/* --- nulls --- */

/* A bit for each of up to 64 rows from `row` on, set where the column has a value. */
static inline uint64_t value_mask(const struct column *column, uint32_t row, uint32_t count)
{
    uint64_t nulls = 0;
    if (column->bitmap != NULL) {
        /* May read 8 bytes beyond the bitmap, which the block's slack allows. */
        const unsigned char *at = column->bitmap + row / 8;
        nulls = qwp_load_u64(at) >> row % 8 | (uint64_t)at[8] << 1 << (63 - row % 8);
    }
    return ~nulls & qwp_bits_low(count);
}

/* Writes null flag and bitmap at column->at; sets start, bitmap, value_count and field. */
void qwp_encode_null_section(struct encoding *e, struct column *column);
/* The rows of a slice that have a value, as addresses out of `all` (the block's records or
 * steerings); valid until the next call. */
uint32_t qwp_encode_rows(struct encoding *e, const struct column *column, const struct slice *slice,
                         const unsigned char *const *all, const unsigned char *const **rows);
/* Row of the block in which value number `value` of a slice stands. */
uint32_t qwp_encode_row_of(const struct column *column, const struct slice *slice, uint32_t value);

/* --- columns --- */

/* Width of a value that is copied as it is, 0 for types that need more. */
uint8_t qwp_encode_plain_width(uint8_t type);
bool qwp_encode_is_decimal(uint8_t type);
/* Whether a type goes in groups. */
bool qwp_encode_groups(uint8_t type);
/* Number of the first of the symbols at [at, end) whose id is not below `symbol_end`; UINT32_MAX if
 * there is none. They are judged as they leave, apart from the loops that gather them: only blocks
 * that leave behind a delta which lacks the youngest symbols need it. */
uint32_t qwp_encode_unknown_symbol(const unsigned char *at, const unsigned char *end,
                                   uint32_t symbol_end);
/* Encodes columns from `first` on that go together; sets *count and moves *at. */
enum qwp_result qwp_encode_group(struct encoding *e, uint32_t first, uint32_t *count,
                                 unsigned char **at);

/* Whether the block is shorter if compact, judging by a few of its rows. */
bool qwp_encode_compact_pays(const struct encoding *e, size_t header_len);
/* Whether the column may be sent in a narrower type than declared. */
bool qwp_encode_may_narrow(const struct encoding *e, uint8_t type);
/* Width to begin with. */
uint8_t qwp_encode_narrowest(uint8_t type);
/* Gathers a slice of narrow columns, 1..QWP_GATHER_MANY_MAX of one declared type and present width
 * whose fields lie side by side; several have no nulls. Moves their `at`, and makes those wider
 * whose width is not enough. */
void qwp_encode_narrow(struct encoding *e, struct column *columns, uint32_t count,
                       const struct slice *slice);
/* Makes the values gathered so far twice as wide. */
void qwp_encode_widen(struct column *column);
/* Width that a LONG, INT or DOUBLE field asks for, roughly. */
uint32_t qwp_encode_width_of(uint8_t type, const unsigned char *at);
/* Whether saving so many bytes a row pays for the block ahead. */
static inline bool qwp_encode_saving_pays(size_t saving, uint32_t row_count, size_t header_len,
                                          uint32_t column_count)
{
    /* Its header, and a null flag and what precedes values for each column. */
    return saving * (row_count - 1) > header_len + 3 * (size_t)column_count;
}
/* Rows looked at to guess whether a block gets shorter. */
enum { QWP_ENCODE_SAMPLE_ROWS = 4 };
/* Type of the column as it leaves. */
uint8_t qwp_encode_narrow_type(const struct column *column);

/* One column each, behind its null section; move column->at. */
enum qwp_result qwp_encode_booleans(struct encoding *e, struct column *column);
enum qwp_result qwp_encode_geohashes(struct encoding *e, struct column *column);
enum qwp_result qwp_encode_times(struct encoding *e, struct column *column);
enum qwp_result qwp_encode_texts(struct encoding *e, struct column *column);
enum qwp_result qwp_encode_arrays(struct encoding *e, struct column *column);
/* Encoding byte, if the message has them, and n times. */
unsigned char *qwp_encode_put_times(struct encoding *e, const int64_t *times, uint32_t n,
                                    unsigned char *at);
/* The designated timestamps of the block out of the scratch memory, in their range, with their null
 * flag; sets the type if they go in another than declared. */
unsigned char *qwp_encode_put_designated(struct encoding *e, unsigned char *at);
/* What the designated timestamps save a row in microseconds if all are as these n. */
size_t qwp_encode_time_saving(const struct encoding *e, uint8_t designated_type,
                              const int64_t *times, uint32_t n);
enum { QWP_ENCODE_SAMPLE_TIMES = 16 };
/* Index of the first designated time that a server must not see, n if there is none. */
uint32_t qwp_encode_bad_time(const int64_t *times, uint32_t n, uint8_t designated_type);
/* Number of the first of texts [from, count) that is no UTF-8, count if there is none; offsets[i]
 * is where text i begins in `texts`. */
uint32_t qwp_encode_bad_text(const unsigned char *offsets, const unsigned char *texts,
                             uint32_t from, uint32_t count);
bool qwp_encode_is_ascii(const unsigned char *text, size_t len);
/* With its null flag. Moves *at. */
enum qwp_result qwp_encode_designated(struct encoding *e, unsigned char **at);

#endif

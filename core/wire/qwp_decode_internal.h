/* qwp_decode_internal: what the files of the decoder share. */
#ifndef QWP_DECODE_INTERNAL_H
#define QWP_DECODE_INTERNAL_H

#include "core/wire/qwp_decode.h"

/* One pass over one message. */
struct decode_pass {
    struct qwp_decoder *decoder;
    struct qwp_error *err;
    const unsigned char *start; /* of the message */
    const unsigned char *at;
    const unsigned char *end;
    uint8_t flags;
    bool deep;       /* look into values */
    bool last_block; /* nothing but this block is left */
};

/* Records status and offset, writes "byte N: <format>" to the error, returns QWP_CORRUPT. */
enum qwp_result decode_fail(struct decode_pass *pass, enum qwp_status status,
                            const unsigned char *at, const char *format, ...) QWP_PRINTF(4, 5);

/* A varint of at most `max`; `what` names it in the error. */
enum qwp_result decode_varint(struct decode_pass *pass, uint64_t max, const char *what,
                              uint64_t *v);
/* Moves over `n` bytes if they are there. */
enum qwp_result decode_skip(struct decode_pass *pass, uint64_t n, const char *what);
static inline size_t decode_left(const struct decode_pass *pass)
{
    return (size_t)(pass->end - pass->at);
}

/* Makes room for `count` elements, doubling; *items stays valid on failure. */
enum qwp_result decode_reserve(void **items, size_t *room, size_t count, size_t item_bytes);

/* The delta section: judged against the dictionary and taken into it. */
enum qwp_result decode_delta(struct decode_pass *pass, uint32_t *start, uint32_t *count);
/* Forgets what came after `count` symbols. */
void decode_dict_cut(struct qwp_decode_dict *dict, uint32_t count);

/* Null section, precision, scale, encoding byte: all up to the values. Name, type and row_count of
 * the column are set; it fills the rest. */
enum qwp_result decode_column_open(struct decode_pass *pass, struct qwp_column *column);
/* The values, up to the byte after them. `last` is the last column of its block. */
enum qwp_result decode_column_values(struct decode_pass *pass, const struct qwp_column *column,
                                     bool last);

/* All ones: the reserved value for null of a GEOHASH column without a bitmap. */
bool decode_geohash_reserved(const unsigned char *value, uint32_t width);

/* Bytes of a value of fixed width on the wire; 0: bits, varints or variable. */
uint32_t decode_value_width(uint8_t type, uint8_t parameter);

#endif

/* The setters. One is two comparisons and two stores; what else there may be to do is done on slow
 * paths, which are called last, so that the fast ones need no stack frame. */
#include "clients/c/qwp_producer.h"
#include "core/wire/qwp_names.h"

/* ---- fixed fields ---- */

/* By width. The slow half is called last, so that the fast one needs no stack frame. */
static __attribute__((noinline)) enum qwp_result set_u8_slow(struct qwp_row *row, uint32_t column,
                                                             uint8_t type, uint8_t value)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (known == NULL) {
        return qwp_row_taken_fail(row);
    }
    row->base[known->off] = value;
    return QWP_OK;
}

static inline enum qwp_result set_u8(struct qwp_row *row, uint32_t column, uint8_t type,
                                     uint8_t value)
{
    if (QWP_UNLIKELY(!qwp_row_take_next(row, column, type))) {
        return set_u8_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    row->base[known->off] = value;
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u16_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint16_t value)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (known == NULL) {
        return qwp_row_taken_fail(row);
    }
    qwp_store_u16(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u16(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint16_t value)
{
    if (QWP_UNLIKELY(!qwp_row_take_next(row, column, type))) {
        return set_u16_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    qwp_store_u16(row->base + known->off, value);
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u32_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint32_t value)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (known == NULL) {
        return qwp_row_taken_fail(row);
    }
    qwp_store_u32(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u32(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint32_t value)
{
    if (QWP_UNLIKELY(!qwp_row_take_next(row, column, type))) {
        return set_u32_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    qwp_store_u32(row->base + known->off, value);
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u64_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint64_t value)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (known == NULL) {
        return qwp_row_taken_fail(row);
    }
    qwp_store_u64(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u64(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint64_t value)
{
    if (QWP_UNLIKELY(!qwp_row_take_next(row, column, type))) {
        return set_u64_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    qwp_store_u64(row->base + known->off, value);
    return QWP_OK;
}

enum qwp_result qwp_row_boolean(struct qwp_row *row, uint32_t column, bool value)
{
    return set_u8(row, column, QWP_TYPE_BOOLEAN, value);
}

enum qwp_result qwp_row_byte(struct qwp_row *row, uint32_t column, int8_t value)
{
    return set_u8(row, column, QWP_TYPE_BYTE, (uint8_t)value);
}

enum qwp_result qwp_row_short(struct qwp_row *row, uint32_t column, int16_t value)
{
    return set_u16(row, column, QWP_TYPE_SHORT, (uint16_t)value);
}

enum qwp_result qwp_row_char(struct qwp_row *row, uint32_t column, uint16_t code_unit)
{
    return set_u16(row, column, QWP_TYPE_CHAR, code_unit);
}

enum qwp_result qwp_row_int(struct qwp_row *row, uint32_t column, int32_t value)
{
    return set_u32(row, column, QWP_TYPE_INT, (uint32_t)value);
}

enum qwp_result qwp_row_ipv4(struct qwp_row *row, uint32_t column, uint32_t address)
{
    return set_u32(row, column, QWP_TYPE_IPV4, address);
}

enum qwp_result qwp_row_float(struct qwp_row *row, uint32_t column, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return set_u32(row, column, QWP_TYPE_FLOAT, bits);
}

enum qwp_result qwp_row_long(struct qwp_row *row, uint32_t column, int64_t value)
{
    return set_u64(row, column, QWP_TYPE_LONG, (uint64_t)value);
}

enum qwp_result qwp_row_double(struct qwp_row *row, uint32_t column, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return set_u64(row, column, QWP_TYPE_DOUBLE, bits);
}

enum qwp_result qwp_row_date(struct qwp_row *row, uint32_t column, int64_t ms)
{
    return set_u64(row, column, QWP_TYPE_DATE, (uint64_t)ms);
}

enum qwp_result qwp_row_timestamp(struct qwp_row *row, uint32_t column, int64_t us)
{
    return set_u64(row, column, QWP_TYPE_TIMESTAMP, (uint64_t)us);
}

enum qwp_result qwp_row_timestamp_ns(struct qwp_row *row, uint32_t column, int64_t ns)
{
    return set_u64(row, column, QWP_TYPE_TIMESTAMP_NANOS, (uint64_t)ns);
}

enum qwp_result qwp_row_uuid(struct qwp_row *row, uint32_t column, uint64_t high, uint64_t low)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, QWP_TYPE_UUID);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    qwp_store_u64(row->base + known->off, low);
    qwp_store_u64(row->base + known->off + 8, high);
    return QWP_OK;
}

enum qwp_result qwp_row_long256(struct qwp_row *row, uint32_t column, const uint64_t words[4])
{
    const struct qwp_row_column *known = qwp_row_take(row, column, QWP_TYPE_LONG256);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    memcpy(row->base + known->off, words, 32);
    return QWP_OK;
}

enum qwp_result qwp_row_geohash(struct qwp_row *row, uint32_t column, uint64_t bits)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, QWP_TYPE_GEOHASH);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    if (QWP_UNLIKELY(bits >> known->parameter != 0)) {
        return qwp_row_column_fail(
            row, column, QWP_INVALID,
            "was given a geohash with bits beyond its precision; shift it right to "
            "the precision, or define the column with more bits");
    }
    qwp_store_u64(row->base + known->off, bits);
    return QWP_OK;
}

/* ---- decimals ---- */

/* 10^18 - 1, 10^38 - 1, 10^76 - 1: the digits that the types hold. */
static const uint64_t digits18[1] = {UINT64_C(999999999999999999)};
static const uint64_t digits38[2] = {UINT64_C(0x098a223fffffffff), UINT64_C(0x4b3b4ca85a86c47a)};
static const uint64_t digits76[4] = {UINT64_C(0xffffffffffffffff), UINT64_C(0x7775a5f171950fff),
                                     UINT64_C(0x0764b4abe8652979), UINT64_C(0x161bcca7119915b5)};

/* Whether the two's complement number lies within -limit..limit. */
static bool magnitude_fits(const uint64_t *words, size_t count, const uint64_t *limit)
{
    uint64_t magnitude[4];
    const bool negative = words[count - 1] >> 63 != 0;
    uint64_t carry = negative;
    for (size_t i = 0; i < count; i++) {
        magnitude[i] = (negative ? ~words[i] : words[i]) + carry;
        carry = carry != 0 && magnitude[i] == 0;
    }
    for (size_t i = count; i-- > 0;) {
        if (magnitude[i] != limit[i]) {
            return magnitude[i] < limit[i];
        }
    }
    return true;
}

bool qwp_decimal_fits(const uint64_t *words, size_t word_count)
{
    return magnitude_fits(words, word_count,
                          word_count == 1   ? digits18
                          : word_count == 2 ? digits38
                                            : digits76);
}

enum qwp_result qwp_row_decimal(struct qwp_row *row, uint32_t column, const uint64_t *words,
                                size_t word_count)
{
    const uint8_t type = word_count == 1   ? QWP_TYPE_DECIMAL64
                         : word_count == 2 ? QWP_TYPE_DECIMAL128
                                           : QWP_TYPE_DECIMAL256;
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    if (word_count != 1 && word_count != 2 && word_count != 4) {
        return qwp_row_column_fail(
            row, column, QWP_INVALID,
            "was given a decimal of neither 1, 2 nor 4 words; sign-extend it to 4");
    }
    if (!qwp_decimal_fits(words, word_count)) {
        return qwp_row_column_fail(row, column, QWP_INVALID,
                                   word_count == 1 ? "was given a decimal of more than 18 digits"
                                   : word_count == 2
                                       ? "was given a decimal of more than 38 digits"
                                       : "was given a decimal of more than 76 digits");
    }
    memcpy(row->base + known->off, words, word_count * 8);
    return QWP_OK;
}

/* ---- variable parts ---- */

static enum qwp_result part_fail(struct qwp_row *row, uint32_t column, size_t len)
{
    const struct qwp_name name = row->table->shape->columns[column].name;
    return qwp_row_fail(
        row, QWP_LIMIT,
        "column '%.*s': %zu bytes do not fit, the row holds %u already and this "
        "producer's bound is %u: send less, or open it with more unit_bytes_max (at "
        "most half of ring_bytes)",
        (int)name.len, name.text, len, row->used_bytes - row->shift,
        row->table->producer->ring.unit_bytes_max);
}

/* Room for a part of the row, noted as this column's; NULL: too large. */
static inline unsigned char *part(struct qwp_row *row, const struct qwp_row_column *known,
                                  size_t len)
{
    if (QWP_UNLIKELY(len > row->limit_bytes - row->used_bytes) && !qwp_row_grow(row, len)) {
        return NULL;
    }
    row->part_off[known->var_index] = row->used_bytes;
    unsigned char *at = row->base + row->used_bytes;
    row->used_bytes += (uint32_t)len;
    qwp_store_u32(row->base + known->off, (uint32_t)len);
    return at;
}

static inline enum qwp_result set_bytes(struct qwp_row *row, uint32_t column,
                                        const struct qwp_row_column *known, const void *bytes,
                                        size_t len)
{
    unsigned char *at = part(row, known, len);
    if (QWP_UNLIKELY(at == NULL)) {
        return part_fail(row, column, len);
    }
    if (len != 0) { /* bytes may be NULL then */
        memcpy(at, bytes, len);
    }
    return QWP_OK;
}

enum qwp_result qwp_row_varchar(struct qwp_row *row, uint32_t column, const char *text, size_t len)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, QWP_TYPE_VARCHAR);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    if (QWP_UNLIKELY(!qwp_utf8_valid(text, len))) {
        return qwp_row_column_fail(
            row, column, QWP_INVALID,
            "was given text that is not valid UTF-8; convert it, or use a binary "
            "column");
    }
    return set_bytes(row, column, known, text, len);
}

enum qwp_result qwp_row_binary(struct qwp_row *row, uint32_t column, const void *bytes, size_t len)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, QWP_TYPE_BINARY);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    return set_bytes(row, column, known, bytes, len);
}

/* The text is not interned yet, or cannot be; or the column was not the next one. */
static __attribute__((noinline)) enum qwp_result symbol_slow(struct qwp_row *row, uint32_t column,
                                                             const struct qwp_row_column *known,
                                                             const char *text, size_t len)
{
    if (known == NULL) {
        known = qwp_row_take(row, column, QWP_TYPE_SYMBOL);
        if (known == NULL) {
            return qwp_row_taken_fail(row);
        }
    }
    struct qwp_producer *p = row->table->producer;
    uint32_t index = qwp_symbols_find(&p->symbols, text, len);
    const enum qwp_result result =
        index != QWP_SYMBOL_EMPTY ? QWP_OK : qwp_symbol_define(p, text, len, &index, NULL);
    if (result == QWP_OK) {
        qwp_store_u32(row->base + known->off, index);
        return QWP_OK;
    }
    if (result == QWP_INVALID) {
        return qwp_row_column_fail(row, column, QWP_INVALID,
                                   "was given a symbol that is not valid UTF-8, or longer than "
                                   "256 KiB; convert it, or use a VARCHAR");
    }
    const enum qwp_result set = set_bytes(row, column, known, text, len);
    if (set == QWP_OK) {
        row->flags |= QWP_RECORD_SYMBOL_TEXT;
        qwp_store_u32(row->base + known->off, QWP_SYMBOL_TEXT | (uint32_t)len);
    }
    return set;
}

enum qwp_result qwp_row_symbol(struct qwp_row *row, uint32_t column, const char *text, size_t len)
{
    if (QWP_UNLIKELY(!qwp_row_take_next(row, column, QWP_TYPE_SYMBOL))) {
        return symbol_slow(row, column, NULL, text, len);
    }
    const struct qwp_row_column *known = &row->columns[column];
    if (QWP_UNLIKELY(len > QWP_SYMBOL_INLINE_BYTES)) {
        return symbol_slow(row, column, known, text, len);
    }
    const uint32_t index = qwp_symbols_find_short(&row->table->producer->symbols, text, len);
    if (QWP_UNLIKELY(index == QWP_SYMBOL_EMPTY)) {
        return symbol_slow(row, column, known, text, len);
    }
    qwp_store_u32(row->base + known->off, index);
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result
symbol_handle_slow(struct qwp_row *row, uint32_t column, bool taken, uint32_t handle)
{
    if (!taken && qwp_row_take(row, column, QWP_TYPE_SYMBOL) == NULL) {
        return qwp_row_taken_fail(row);
    }
    if (handle >= row->table->producer->ring.symbol_count) {
        return qwp_row_column_fail(
            row, column, QWP_INVALID,
            "was given a symbol handle that this producer did not hand out; take "
            "it from qwp_symbol_intern() of the same producer");
    }
    qwp_store_u32(row->base + row->columns[column].off, handle);
    return QWP_OK;
}

enum qwp_result qwp_row_symbol_handle(struct qwp_row *row, uint32_t column, uint32_t handle)
{
    const bool taken = qwp_row_take_next(row, column, QWP_TYPE_SYMBOL);
    if (QWP_UNLIKELY(!taken || handle >= row->table->producer->ring.symbol_count)) {
        return symbol_handle_slow(row, column, taken, handle);
    }
    qwp_store_u32(row->base + row->columns[column].off, handle);
    return QWP_OK;
}

/* Elements of an array, or UINT64_MAX: more than any row can hold. */
static uint64_t element_count(const uint32_t *shape, size_t dimensions)
{
    uint64_t count = 1;
    bool beyond = false;
    for (size_t i = 0; i < dimensions; i++) {
        if (shape[i] > INT32_MAX) {
            return UINT64_MAX;
        }
        count *= shape[i];
        beyond = beyond || count > UINT32_MAX;
        if (beyond && count != 0) {
            count = UINT32_MAX; /* a later length may still be 0 */
        }
    }
    return beyond && count != 0 ? UINT64_MAX : count;
}

static enum qwp_result set_array(struct qwp_row *row, uint32_t column, uint8_t type,
                                 const void *values, const uint32_t *shape, size_t dimensions)
{
    const struct qwp_row_column *known = qwp_row_take(row, column, type);
    if (QWP_UNLIKELY(known == NULL)) {
        return qwp_row_taken_fail(row);
    }
    if (dimensions == 0 || dimensions > QWP_ARRAY_DIMENSIONS_MAX) {
        return qwp_row_column_fail(row, column, QWP_INVALID,
                                   "was given an array without dimensions or with more than 32");
    }
    const uint64_t count = element_count(shape, dimensions);
    if (count == UINT64_MAX) {
        return qwp_row_column_fail(
            row, column, QWP_LIMIT,
            "was given an array shape with more elements than a row can hold");
    }
    const size_t head_bytes = 1 + dimensions * 4;
    unsigned char *at = part(row, known, head_bytes + count * 8);
    if (QWP_UNLIKELY(at == NULL)) {
        return part_fail(row, column, head_bytes + count * 8);
    }
    at[0] = (unsigned char)dimensions;
    memcpy(at + 1, shape, dimensions * 4);
    if (count != 0) {
        memcpy(at + head_bytes, values, count * 8);
    }
    return QWP_OK;
}

enum qwp_result qwp_row_double_array(struct qwp_row *row, uint32_t column, const double *values,
                                     const uint32_t *shape, size_t dimensions)
{
    return set_array(row, column, QWP_TYPE_DOUBLE_ARRAY, values, shape, dimensions);
}

enum qwp_result qwp_row_long_array(struct qwp_row *row, uint32_t column, const int64_t *values,
                                   const uint32_t *shape, size_t dimensions)
{
    return set_array(row, column, QWP_TYPE_LONG_ARRAY, values, shape, dimensions);
}

/* Rows column by column. A setter is a bound, a type, a bit and a store; what is wrong with a row
 * is found out on slow paths only. */
#include <stdarg.h>
#include <stdio.h>

#include "clients/c/qwp_producer.h"
#include "core/qwp_assert.h"
#include "core/wire/qwp_names.h"

/* ---- mistakes ---- */

/* The first mistake of a row is kept; from then on every setter takes its slow path. */
static QWP_PRINTF(3, 4) enum qwp_result
    row_fail(struct qwp_row *row, enum qwp_result result, const char *format, ...)
{
    char text[QWP_ERROR_TEXT_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    row->result = result;
    row->care |= QWP_CARE_FAILED;
    row->next = QWP_NEXT_NONE;
    const struct qwp_name table = row->table->shape->table;
    return qwp_fail(&row->error, result, 0, "table '%.*s': %s", (int)table.len, table.text, text);
}

static enum qwp_result column_fail(struct qwp_row *row, uint32_t column, enum qwp_result result,
                                   const char *what)
{
    const struct qwp_name name = row->table->shape->columns[column].name;
    return row_fail(row, result, "column '%.*s' %s", (int)name.len, name.text, what);
}

static const char *setter_for(uint8_t type)
{
    static const char *const names[QWP_TYPE_END] = {
        [QWP_TYPE_BOOLEAN] = "boolean",
        [QWP_TYPE_BYTE] = "byte",
        [QWP_TYPE_SHORT] = "short",
        [QWP_TYPE_INT] = "int",
        [QWP_TYPE_LONG] = "long",
        [QWP_TYPE_FLOAT] = "float",
        [QWP_TYPE_DOUBLE] = "double",
        [QWP_TYPE_SYMBOL] = "symbol",
        [QWP_TYPE_TIMESTAMP] = "timestamp",
        [QWP_TYPE_DATE] = "date",
        [QWP_TYPE_UUID] = "uuid",
        [QWP_TYPE_LONG256] = "long256",
        [QWP_TYPE_GEOHASH] = "geohash",
        [QWP_TYPE_VARCHAR] = "varchar",
        [QWP_TYPE_TIMESTAMP_NANOS] = "timestamp_ns",
        [QWP_TYPE_DOUBLE_ARRAY] = "double_array",
        [QWP_TYPE_LONG_ARRAY] = "long_array",
        [QWP_TYPE_DECIMAL64] = "decimal",
        [QWP_TYPE_DECIMAL128] = "decimal",
        [QWP_TYPE_DECIMAL256] = "decimal",
        [QWP_TYPE_CHAR] = "char",
        [QWP_TYPE_BINARY] = "binary",
        [QWP_TYPE_IPV4] = "ipv4",
    };
    return names[type];
}

/* What a setter of `type` has against its column; QWP_TYPE_NONE: qwp_row_null(), any will do. */
static __attribute__((cold, noinline)) enum qwp_result take_fail(struct qwp_row *row,
                                                                 uint32_t column, uint8_t type)
{
    if (row->table == NULL) {
        return row->result == QWP_CLOSED ? QWP_CLOSED : QWP_INVALID;
    }
    if ((row->care & QWP_CARE_FAILED) != 0) {
        return row->result;
    }
    if (column >= row->table->column_count) {
        return row_fail(row, QWP_INVALID,
                        "no column has the index %u, there are %u; take indexes from "
                        "qwp_table_column() or the order of definition",
                        column, row->table->column_count);
    }
    const struct qwp_shape_column *known = &row->table->shape->columns[column];
    if (type != QWP_TYPE_NONE && type != known->type) {
        return row_fail(row, QWP_INVALID,
                        "column '%.*s' is %s and was given a %s; use qwp_row_%s()",
                        (int)known->name.len, known->name.text, qwp_type_name(known->type),
                        qwp_type_name(type), setter_for(known->type));
    }
    return column_fail(row, column, QWP_INVALID, "is set twice in one row; set it once");
}

/* ---- taking a column ---- */

/* Sets the bits from..to-1. */
static void set_bits(uint64_t *words, uint32_t from, uint32_t to)
{
    for (; from < to; from = (from | 63) + 1) {
        const uint64_t below_from = (UINT64_C(1) << (from % 64)) - 1;
        const uint32_t left = to - (from & ~UINT32_C(63));
        words[from / 64] |= (left < 64 ? (UINT64_C(1) << left) - 1 : UINT64_MAX) & ~below_from;
    }
}

static bool bit_is_set(const uint64_t *words, uint32_t bit)
{
    return (words[bit / 64] >> (bit % 64) & 1) != 0;
}

/* From here on columns may come in any order. */
static void scatter(struct qwp_row *row)
{
    const struct qwp_table *table = row->table;
    row->next_var = 0;
    for (uint32_t c = 0; c < row->next; c++) {
        if (!bit_is_set(row->nulls, c) && row->columns[c].var_index != QWP_NO_VAR) {
            row->next_var = row->columns[c].var_index + UINT32_C(1);
        }
    }
    set_bits(row->nulls, (uint32_t)row->next, table->column_count);
    row->next = QWP_NEXT_NONE;
    row->care |= QWP_CARE_SCATTERED;
}

/* Takes a column of a row that is open and has not failed, if it is not set yet. */
static bool take_any(struct qwp_row *row, uint32_t column)
{
    if (column >= row->next) {
        set_bits(row->nulls, (uint32_t)row->next, column);
        row->next = column + UINT64_C(1);
        return true;
    }
    if ((row->care & QWP_CARE_SCATTERED) == 0) {
        scatter(row);
    }
    if (!bit_is_set(row->nulls, column) ||
        ((row->care & QWP_CARE_NULLS) != 0 && bit_is_set(row->explicit_null, column))) {
        return false;
    }
    row->nulls[column / 64] &= ~(UINT64_C(1) << (column % 64));
    const uint16_t var_index = row->columns[column].var_index;
    if (var_index != QWP_NO_VAR) {
        row->care |= var_index < row->next_var ? QWP_CARE_UNORDERED : 0;
        row->next_var = var_index + UINT32_C(1);
    }
    return true;
}

static __attribute__((noinline)) const struct qwp_row_column *
take_slow(struct qwp_row *row, uint32_t column, uint8_t type)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0 ||
        column >= row->table->column_count || row->types[column] != type ||
        !take_any(row, column)) {
        take_fail(row, column, type);
        return NULL;
    }
    return &row->columns[column];
}

/* Whether the column is the next one and of this type: then it is taken. A column beyond the last
 * has no type. */
static inline bool take_next(struct qwp_row *row, uint32_t column, uint8_t type)
{
    if (QWP_UNLIKELY(column != row->next || row->types[column] != type)) {
        return false;
    }
    row->next = column + UINT64_C(1);
    return true;
}

/* The column, if it is of this type and not set yet; it is from now on. NULL: the row has failed.
 */
static inline const struct qwp_row_column *take(struct qwp_row *row, uint32_t column, uint8_t type)
{
    return take_next(row, column, type) ? &row->columns[column] : take_slow(row, column, type);
}

/* What a setter returns whose column could not be taken. */
static enum qwp_result taken_fail(const struct qwp_row *row)
{
    return row->table != NULL || row->result == QWP_CLOSED ? row->result : QWP_INVALID;
}

/* ---- begin ---- */

/* What the row may use of the ring, from its base, by the last head seen. */
static inline uint32_t limit_in_ring(const struct qwp_row *row, const struct qwp_producer *p)
{
    const uint64_t free_bytes = p->ring.data_bytes - (p->ring.write_pos - p->ring.head_seen_pos);
    return (uint32_t)(free_bytes < p->record_bytes_max ? free_bytes : p->record_bytes_max) +
           row->shift;
}

static void look_at_head(struct qwp_producer *p)
{
    /* sync[ring.head] acquire: pairs with the release in qwp_ring_release(). */
    p->ring.head_seen_pos = atomic_load_explicit(&p->ring.header->head_pos, memory_order_acquire);
}

/* From here on the row is formed apart; whether the ring has room is asked when it ends. */
static void stage(struct qwp_row *row, struct qwp_producer *p)
{
    row->base = p->stage;
    row->care |= QWP_CARE_STAGED;
    row->limit_bytes = (p->ring.unit_bytes_max & ~(uint32_t)(QWP_RECORD_ALIGN - 1)) + row->shift;
}

/* By the last head seen there is no room for the fixed part. */
static __attribute__((cold, noinline)) void begin_slow(struct qwp_row *row, struct qwp_producer *p)
{
    if (qwp_producer_is_closed(p)) {
        row->next = QWP_NEXT_NONE;
        row->care = QWP_CARE_FAILED;
        row->result = QWP_CLOSED;
        return;
    }
    look_at_head(p);
    row->limit_bytes = limit_in_ring(row, p);
    if (row->used_bytes <= row->limit_bytes) {
        return;
    }
    stage(row, p);
    if (row->used_bytes > row->limit_bytes) {
        row_fail(row, QWP_LIMIT,
                 "a row takes %u bytes at least, this producer's bound is %u: define fewer "
                 "columns, or open it with more unit_bytes_max (at most half of ring_bytes)",
                 row->used_bytes, p->ring.unit_bytes_max);
    }
}

struct qwp_row *qwp_row_begin(struct qwp_table *table)
{
    struct qwp_producer *p = table->producer;
    struct qwp_row *row = &p->row;
    p->reserved = NULL;
    row->columns = table->columns;
    row->types = table->types;
    row->table = table;
    row->next = 0;
    row->used_bytes = table->fixed_bytes;
    row->shift = table->last_at == QWP_AT_SERVER ? 8 : 0;
    row->care = 0;
    row->flags = 0;
    row->name_guess = 0;
    row->next_var = 0;
    for (uint32_t w = 0; w < table->null_words; w++) {
        row->nulls[w] = 0;
    }
    row->limit_bytes = limit_in_ring(row, p);
    row->base = p->ring.data + (p->ring.write_pos & p->ring.data_mask) - row->shift;
    if (QWP_UNLIKELY(row->used_bytes > row->limit_bytes)) {
        begin_slow(row, p);
    }
    return row;
}

/* ---- fixed fields ---- */

/* By width. The slow half is called last, so that the fast one needs no stack frame. */
static __attribute__((noinline)) enum qwp_result set_u8_slow(struct qwp_row *row, uint32_t column,
                                                             uint8_t type, uint8_t value)
{
    const struct qwp_row_column *known = take_slow(row, column, type);
    if (known == NULL) {
        return taken_fail(row);
    }
    row->base[known->off] = value;
    return QWP_OK;
}

static inline enum qwp_result set_u8(struct qwp_row *row, uint32_t column, uint8_t type,
                                     uint8_t value)
{
    if (QWP_UNLIKELY(!take_next(row, column, type))) {
        return set_u8_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    row->base[known->off] = value;
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u16_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint16_t value)
{
    const struct qwp_row_column *known = take_slow(row, column, type);
    if (known == NULL) {
        return taken_fail(row);
    }
    qwp_store_u16(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u16(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint16_t value)
{
    if (QWP_UNLIKELY(!take_next(row, column, type))) {
        return set_u16_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    qwp_store_u16(row->base + known->off, value);
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u32_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint32_t value)
{
    const struct qwp_row_column *known = take_slow(row, column, type);
    if (known == NULL) {
        return taken_fail(row);
    }
    qwp_store_u32(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u32(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint32_t value)
{
    if (QWP_UNLIKELY(!take_next(row, column, type))) {
        return set_u32_slow(row, column, type, value);
    }
    const struct qwp_row_column *known = &row->columns[column];
    qwp_store_u32(row->base + known->off, value);
    return QWP_OK;
}

static __attribute__((noinline)) enum qwp_result set_u64_slow(struct qwp_row *row, uint32_t column,
                                                              uint8_t type, uint64_t value)
{
    const struct qwp_row_column *known = take_slow(row, column, type);
    if (known == NULL) {
        return taken_fail(row);
    }
    qwp_store_u64(row->base + known->off, value);
    return QWP_OK;
}

static inline enum qwp_result set_u64(struct qwp_row *row, uint32_t column, uint8_t type,
                                      uint64_t value)
{
    if (QWP_UNLIKELY(!take_next(row, column, type))) {
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
    const struct qwp_row_column *known = take(row, column, QWP_TYPE_UUID);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    qwp_store_u64(row->base + known->off, low);
    qwp_store_u64(row->base + known->off + 8, high);
    return QWP_OK;
}

enum qwp_result qwp_row_long256(struct qwp_row *row, uint32_t column, const uint64_t words[4])
{
    const struct qwp_row_column *known = take(row, column, QWP_TYPE_LONG256);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    memcpy(row->base + known->off, words, 32);
    return QWP_OK;
}

enum qwp_result qwp_row_geohash(struct qwp_row *row, uint32_t column, uint64_t bits)
{
    const struct qwp_row_column *known = take(row, column, QWP_TYPE_GEOHASH);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    if (QWP_UNLIKELY(bits >> known->parameter != 0)) {
        return column_fail(row, column, QWP_INVALID,
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

enum qwp_result qwp_row_decimal(struct qwp_row *row, uint32_t column, const uint64_t *words,
                                size_t word_count)
{
    const uint8_t type = word_count == 1   ? QWP_TYPE_DECIMAL64
                         : word_count == 2 ? QWP_TYPE_DECIMAL128
                                           : QWP_TYPE_DECIMAL256;
    const struct qwp_row_column *known = take(row, column, type);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    if (word_count != 1 && word_count != 2 && word_count != 4) {
        return column_fail(row, column, QWP_INVALID,
                           "was given a decimal of neither 1, 2 nor 4 words; sign-extend it to 4");
    }
    if (!magnitude_fits(words, word_count,
                        word_count == 1   ? digits18
                        : word_count == 2 ? digits38
                                          : digits76)) {
        return column_fail(row, column, QWP_INVALID,
                           word_count == 1   ? "was given a decimal of more than 18 digits"
                           : word_count == 2 ? "was given a decimal of more than 38 digits"
                                             : "was given a decimal of more than 76 digits");
    }
    memcpy(row->base + known->off, words, word_count * 8);
    return QWP_OK;
}

/* ---- variable parts ---- */

/* The part does not fit where the row is being formed. False: the row has failed. */
static __attribute__((cold, noinline)) bool grow(struct qwp_row *row, size_t len)
{
    struct qwp_producer *p = row->table->producer;
    if ((row->care & QWP_CARE_STAGED) == 0) {
        look_at_head(p);
        row->limit_bytes = limit_in_ring(row, p);
        if (len <= row->limit_bytes - row->used_bytes) {
            return true;
        }
        const unsigned char *formed = row->base;
        stage(row, p);
        memcpy(row->base + row->shift, formed + row->shift, row->used_bytes - row->shift);
    }
    return len <= row->limit_bytes - row->used_bytes;
}

static enum qwp_result part_fail(struct qwp_row *row, uint32_t column, size_t len)
{
    const struct qwp_name name = row->table->shape->columns[column].name;
    return row_fail(row, QWP_LIMIT,
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
    if (QWP_UNLIKELY(len > row->limit_bytes - row->used_bytes) && !grow(row, len)) {
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
    const struct qwp_row_column *known = take(row, column, QWP_TYPE_VARCHAR);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    if (QWP_UNLIKELY(!qwp_utf8_valid(text, len))) {
        return column_fail(row, column, QWP_INVALID,
                           "was given text that is not valid UTF-8; convert it, or use a binary "
                           "column");
    }
    return set_bytes(row, column, known, text, len);
}

enum qwp_result qwp_row_binary(struct qwp_row *row, uint32_t column, const void *bytes, size_t len)
{
    const struct qwp_row_column *known = take(row, column, QWP_TYPE_BINARY);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    return set_bytes(row, column, known, bytes, len);
}

/* The text is not interned yet, or cannot be; or the column was not the next one. */
static __attribute__((noinline)) enum qwp_result symbol_slow(struct qwp_row *row, uint32_t column,
                                                             const struct qwp_row_column *known,
                                                             const char *text, size_t len)
{
    if (known == NULL) {
        known = take_slow(row, column, QWP_TYPE_SYMBOL);
        if (known == NULL) {
            return taken_fail(row);
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
        return column_fail(row, column, QWP_INVALID,
                           "was given a symbol that is not valid UTF-8; convert it");
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
    if (QWP_UNLIKELY(!take_next(row, column, QWP_TYPE_SYMBOL))) {
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
    if (!taken && take_slow(row, column, QWP_TYPE_SYMBOL) == NULL) {
        return taken_fail(row);
    }
    if (handle >= row->table->producer->ring.symbol_count) {
        return column_fail(row, column, QWP_INVALID,
                           "was given a symbol handle that this producer did not hand out; take "
                           "it from qwp_symbol_intern() of the same producer");
    }
    qwp_store_u32(row->base + row->columns[column].off, handle);
    return QWP_OK;
}

enum qwp_result qwp_row_symbol_handle(struct qwp_row *row, uint32_t column, uint32_t handle)
{
    const bool taken = take_next(row, column, QWP_TYPE_SYMBOL);
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
    const struct qwp_row_column *known = take(row, column, type);
    if (QWP_UNLIKELY(known == NULL)) {
        return taken_fail(row);
    }
    if (dimensions == 0 || dimensions > QWP_ARRAY_DIMENSIONS_MAX) {
        return column_fail(row, column, QWP_INVALID,
                           "was given an array without dimensions or with more than 32");
    }
    const uint64_t count = element_count(shape, dimensions);
    if (count == UINT64_MAX) {
        return column_fail(row, column, QWP_LIMIT,
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

/* ---- nulls and names ---- */

enum qwp_result qwp_row_null(struct qwp_row *row, uint32_t column)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0 ||
        column >= row->table->column_count || !take_any(row, column)) {
        return take_fail(row, column, QWP_TYPE_NONE);
    }
    if ((row->care & QWP_CARE_NULLS) == 0) {
        memset(row->explicit_null, 0, row->table->null_words * sizeof row->explicit_null[0]);
        row->care |= QWP_CARE_NULLS;
    }
    set_bits(row->nulls, column, column + 1);
    set_bits(row->explicit_null, column, column + 1);
    return QWP_OK;
}

uint32_t qwp_row_column(struct qwp_row *row, const char *name)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0) {
        return UINT32_MAX; /* its setter then returns what is wrong */
    }
    const size_t len = strlen(name);
    if (row->name_guess < row->table->column_count) {
        const struct qwp_name guess = row->table->shape->columns[row->name_guess].name;
        if (guess.len == len && memcmp(guess.text, name, len) == 0) {
            return row->name_guess++;
        }
    }
    const int32_t found = qwp_table_find(row->table, name, len);
    if (found < 0) {
        row_fail(row, QWP_INVALID,
                 "no column is named '%.*s'; add it with qwp_table_column() "
                 "before the row begins",
                 (int)(len > QWP_NAME_BYTES_MAX ? QWP_NAME_BYTES_MAX : len), name);
        return UINT32_MAX;
    }
    row->name_guess = (uint32_t)found + 1;
    return (uint32_t)found;
}

/* ---- end ---- */

/* Nothing is open, or the row has failed: says so, and it is over. */
static enum qwp_result end_failed(struct qwp_row *row, struct qwp_error *err)
{
    if (row->table == NULL) {
        return qwp_fail(err, row->result == QWP_CLOSED ? QWP_CLOSED : QWP_INVALID, 0,
                        "no row is open; qwp_row_begin() comes first, and another row or a unit's "
                        "abort drops an open one");
    }
    const struct qwp_producer *p = row->table->producer;
    qwp_row_forget(row);
    if (qwp_producer_is_closed(p)) {
        return qwp_producer_check_open(p, err);
    }
    if (err != NULL) {
        *err = row->error;
    }
    return row->result;
}

/* Copies the row to the other buffer with its parts in column order. */
static void put_in_order(struct qwp_row *row, struct qwp_producer *p)
{
    const struct qwp_table *table = row->table;
    unsigned char *to = p->reorder;
    memcpy(to + row->shift, row->base + row->shift, table->fixed_bytes - row->shift);
    uint32_t used = table->fixed_bytes;
    for (uint32_t c = 0; c < table->column_count; c++) {
        const struct qwp_row_column *column = &row->columns[c];
        if (column->var_index == QWP_NO_VAR || bit_is_set(row->nulls, c)) {
            continue;
        }
        uint32_t len = qwp_load_u32(row->base + column->off);
        if (row->types[c] == QWP_TYPE_SYMBOL) {
            if ((len & QWP_SYMBOL_TEXT) == 0) {
                continue;
            }
            len &= ~QWP_SYMBOL_TEXT;
        }
        memcpy(to + used, row->base + row->part_off[column->var_index], len);
        used += len;
    }
    QWP_ASSERT(used == row->used_bytes);
    row->base = to;
    row->care |= QWP_CARE_STAGED;
}

/* Copies a row that was formed apart into the ring. */
static enum qwp_result unstage(struct qwp_row *row, struct qwp_producer *p, struct qwp_error *err)
{
    const uint32_t bytes = row->used_bytes - row->shift;
    unsigned char *at;
    const enum qwp_result result = qwp_room(p, qwp_round_up(bytes, QWP_RECORD_ALIGN), &at, err);
    if (result == QWP_OK) {
        memcpy(at, row->base + row->shift, bytes);
        row->base = at - row->shift;
    }
    return result;
}

/* Everything that keeps a row from ending where it was formed. QWP_OK and no table: it was dropped
 * as the policy says, and the caller is not to notice. */
static __attribute__((noinline)) enum qwp_result end_slow(struct qwp_row *row, enum qwp_at at,
                                                          struct qwp_error *err)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0) {
        return end_failed(row, err);
    }
    struct qwp_producer *p = row->table->producer;
    if ((row->care & QWP_CARE_SCATTERED) == 0) {
        set_bits(row->nulls, (uint32_t)row->next, row->table->column_count);
    }
    enum qwp_result result = qwp_table_shape(row->table, at, err);
    if (result != QWP_OK) {
        qwp_row_forget(row);
        return result;
    }
    const uint32_t shift = at == QWP_AT_SERVER ? 8 : 0;
    if ((row->care & QWP_CARE_UNORDERED) != 0) {
        put_in_order(row, p);
    } else if (row->shift != shift && (row->care & QWP_CARE_STAGED) == 0) {
        const unsigned char *formed = row->base;
        stage(row, p);
        memcpy(row->base + row->shift, formed + row->shift, row->used_bytes - row->shift);
    }
    row->shift = shift;
    if ((row->care & QWP_CARE_STAGED) != 0) {
        result = unstage(row, p, err);
    }
    if (result != QWP_OK) {
        qwp_row_forget(row);
    }
    return result == QWP_AGAIN && p->on_full == QWP_FULL_DROP ? QWP_OK : result;
}

static __attribute__((cold, noinline)) void time_fail(struct qwp_row *row, enum qwp_at at,
                                                      int64_t time)
{
    if (row->table == NULL || (row->care & QWP_CARE_FAILED) != 0) {
        return;
    }
    row_fail(row, QWP_INVALID,
             "the designated timestamp %lld %s is out of the server's range, 0 to %llu (%s); are "
             "the units right?",
             (long long)time, at == QWP_AT_NS ? "ns" : "us", (unsigned long long)qwp_at_max(at),
             at == QWP_AT_NS ? "2261-12-31" : "9999-12-31");
}

/* Inlined for each kind of timestamp, which makes most of it constant. */
static inline __attribute__((always_inline)) enum qwp_result
end(struct qwp_row *row, enum qwp_at at, int64_t time, struct qwp_error *err)
{
    if (QWP_UNLIKELY((uint64_t)time > qwp_at_max(at))) {
        time_fail(row, at, time);
    }
    struct qwp_table *table = row->table;
    const uint32_t shift = at == QWP_AT_SERVER ? 8 : 0;
    if (QWP_UNLIKELY(table == NULL || row->care != 0 || row->shift != shift ||
                     row->next != table->column_count || !table->shape_defined[at])) {
        const enum qwp_result result = end_slow(row, at, err);
        if (result != QWP_OK || row->table == NULL) {
            return result;
        }
    }
    unsigned char *record = row->base + shift;
    unsigned char *to = record + QWP_RECORD_HEADER_BYTES;
    for (uint32_t w = 0; w < table->null_words; w++, to += 8) {
        qwp_store_u64(to, row->nulls[w]);
    }
    if (at != QWP_AT_SERVER) {
        qwp_store_i64(to, time);
    }
    const uint32_t bytes =
        (row->used_bytes - shift + QWP_RECORD_ALIGN - 1) & ~(uint32_t)(QWP_RECORD_ALIGN - 1);
    table->last_at = at;
    qwp_row_forget(row);
    const enum qwp_result result = qwp_record_end(
        table->producer, record, qwp_record_head(table->shape_index[at], row->flags), bytes);
    if (QWP_UNLIKELY(result != QWP_OK)) {
        return qwp_producer_fail_detached(table->producer, err);
    }
    return QWP_OK;
}

enum qwp_result qwp_row_at_ns(struct qwp_row *row, int64_t ns, struct qwp_error *err)
{
    return end(row, QWP_AT_NS, ns, err);
}

enum qwp_result qwp_row_at_us(struct qwp_row *row, int64_t us, struct qwp_error *err)
{
    return end(row, QWP_AT_US, us, err);
}

enum qwp_result qwp_row_at_now(struct qwp_row *row, struct qwp_error *err)
{
    return end(row, QWP_AT_SERVER, 0, err);
}

void qwp_row_abort(struct qwp_row *row)
{
    qwp_row_forget(row);
}

#include "core/wire/qwp_encode_internal.h"
#include "core/wire/qwp_gather.h"
#include "core/wire/qwp_names.h"

/* Where the variable parts of a column stand in the records of a run. */
struct part_places {
    uint32_t start_off; /* in the steering: where the part before ends; 0: at `start` */
    uint32_t end_off;   /* in the steering; 0: all parts are empty */
    uint32_t start;
};

static struct part_places part_places_of(const struct qwp_run *run, uint16_t var_index)
{
    const uint32_t ends_off = steering_ends_off(run);
    struct part_places places = {.start = run->shape->fixed_bytes};
    if (run->has_parts) {
        places.end_off = ends_off + 4u * var_index;
        places.start_off = var_index == 0 ? 0 : places.end_off - 4;
    }
    return places;
}

struct part {
    const unsigned char *at;
    uint32_t len;
};

static inline struct part part_of(const struct qwp_block *block, const struct part_places *places,
                                  uint32_t row)
{
    const unsigned char *steering = (const unsigned char *)block->steering[row];
    const uint32_t start =
        places->start_off == 0 ? places->start : qwp_load_u32(steering + places->start_off);
    const uint32_t end = places->end_off == 0 ? start : qwp_load_u32(steering + places->end_off);
    return (struct part){block->records[row] + start, end - start};
}

/* Texts as they have left, with the offsets that cut them. */
struct texts {
    unsigned char *offsets;
    unsigned char *first;
    uint32_t count;
};

uint32_t qwp_encode_bad_text(const unsigned char *offsets, const unsigned char *texts,
                             uint32_t from, uint32_t count)
{
    for (uint32_t i = from; i < count; i++) {
        const uint32_t start = qwp_load_u32(offsets + 4 * (size_t)i);
        const uint32_t end = qwp_load_u32(offsets + 4 * (size_t)i + 4);
        if (!qwp_utf8_valid(texts + start, end - start)) {
            return i;
        }
    }
    return count;
}

bool qwp_encode_is_ascii(const unsigned char *text, size_t len)
{
    uint64_t all = 0;
    size_t i = 0;
    for (; i + 32 <= len; i += 32) {
        all |= qwp_load_u64(text + i) | qwp_load_u64(text + i + 8) | qwp_load_u64(text + i + 16) |
               qwp_load_u64(text + i + 24);
    }
    for (; i < len; i++) {
        all |= text[i];
    }
    return (all & UINT64_C(0x8080808080808080)) == 0;
}

/* Appends the parts of a slice. */
static unsigned char *gather_parts(const struct qwp_block *block, const struct column *column,
                                   const struct slice *slice, struct texts *texts,
                                   unsigned char *at)
{
    const struct part_places places =
        part_places_of(slice->run, field_of(slice->run, column->index)->var_index);
    unsigned char *offset = texts->offsets + 4 * (size_t)texts->count;
    for (uint32_t i = 0; i < slice->count; i += 64) {
        const uint32_t row = slice->first_row + i;
        for (uint64_t mask = value_mask(column, row, slice->count - i); mask != 0;
             mask &= mask - 1) {
            const struct part part = part_of(block, &places, row + (uint32_t)__builtin_ctzll(mask));
            qwp_copy_part(at, part.at, part.len);
            at += part.len;
            offset += 4;
            qwp_store_u32(offset, (uint32_t)(at - texts->first));
        }
    }
    texts->count = (uint32_t)((size_t)(offset - texts->offsets) / 4);
    return at;
}

enum qwp_result qwp_encode_texts(struct encoding *e, struct column *column)
{
    struct texts texts = {.offsets = column->at,
                          .first = column->at + 4 * ((size_t)column->value_count + 1)};
    const bool utf8 = column->def->type == QWP_TYPE_VARCHAR;
    struct slice_cursor cursor = {0};
    struct slice slice;
    qwp_store_u32(texts.offsets, 0);
    column->at = texts.first;
    while (next_slice(e, &cursor, &slice)) {
        if (field_of(slice.run, column->index) == NULL) {
            continue;
        }
        const uint32_t before = texts.count;
        unsigned char *start = column->at;
        column->at = gather_parts(e->block, column, &slice, &texts, start);
        /* Judged here, on the copy: the record may have changed meanwhile. */
        if (utf8 && !qwp_encode_is_ascii(start, (size_t)(column->at - start))) {
            const uint32_t bad =
                qwp_encode_bad_text(texts.offsets, texts.first, before, texts.count);
            if (bad != texts.count) {
                return qwp_encode_fault(e, qwp_encode_row_of(column, &slice, bad - before),
                                        column->index, "invalid UTF-8");
            }
        }
    }
    return QWP_OK;
}

size_t qwp_array_bytes(const unsigned char *at, size_t room)
{
    if (room == 0) {
        return 0;
    }
    const uint32_t dimensions = at[0];
    const size_t header = 1 + 4 * (size_t)dimensions;
    if (dimensions < 1 || dimensions > QWP_ARRAY_DIMENSIONS_MAX || room < header) {
        return 0;
    }
    const uint64_t elements_max = (room - header) / 8;
    uint64_t elements = 1;
    bool empty = false;
    for (uint32_t d = 0; d < dimensions; d++) {
        const uint32_t length = qwp_load_u32(at + 1 + 4 * (size_t)d);
        if (length > INT32_MAX) {
            return 0;
        }
        empty |= length == 0;
        /* Kept at most one beyond, so that 32 lengths cannot overflow it. */
        elements = elements * length > elements_max ? elements_max + 1 : elements * length;
    }
    elements = empty ? 0 : elements;
    return elements > elements_max ? 0 : header + elements * 8;
}

enum qwp_result qwp_encode_arrays(struct encoding *e, struct column *column)
{
    const struct qwp_block *block = e->block;
    struct slice_cursor cursor = {0};
    struct slice slice;
    while (next_slice(e, &cursor, &slice)) {
        const struct qwp_shape_column *field = field_of(slice.run, column->index);
        if (field == NULL) {
            continue;
        }
        const struct part_places places = part_places_of(slice.run, field->var_index);
        for (uint32_t row = slice.first_row; row < slice.first_row + slice.count; row++) {
            if (value_mask(column, row, 1) == 0) {
                continue;
            }
            const struct part part = part_of(block, &places, row);
            qwp_copy_part(column->at, part.at, part.len);
            if (qwp_array_bytes(column->at, part.len) != part.len || part.len == 0) {
                return qwp_encode_fault(e, row, column->index,
                                        "array lengths that do not fit its bytes");
            }
            column->at += part.len;
        }
    }
    return QWP_OK;
}

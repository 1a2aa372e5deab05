#include "clients/c/feed/qwp_feed_qwpb.h"

#include <stdlib.h>
#include <string.h>

#include "clients/c/feed/qwp_feed_convert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_wire.h"

enum {
    STRING_CHUNK = 4096, /* strings stay where they are, so they come in chunks */
    STRING_BYTES_MAX = 1 << 20,
    ROW_BYTES_MAX = 1 << 24,
};

enum field_type { FIELD_I64 = 1, FIELD_F64 = 2, FIELD_BOOL = 3, FIELD_STRING = 4 };

/* A schema: a shape and how to read its rows. */
struct schema {
    const struct qwp_feed_shape *shape; /* NULL: `bad` says why its rows cannot be sent */
    const char *bad;
    bool wide;
    uint32_t tag_count;
    uint32_t field_count;
    uint32_t *columns; /* of the table, tags first: the places in a wide row */
    uint8_t types[];   /* enum field_type of each field */
};

struct qwp_feed_qwpb {
    struct qwp_feed_context context;
    struct qwp_feed_arena arena;
    struct qwp_feed_symbol **string_chunks;
    uint32_t string_count;
    uint32_t string_chunk_room;
    struct schema **schemas;
    uint32_t schema_count;
    uint32_t schema_room;
    /* the block */
    const char *data;
    const char *record; /* the last one */
    const char *at;
    const char *end;
    struct qwp_feed_qwpb_ids ids;
    struct qwp_feed_value *values; /* QWP_COLUMNS_MAX of each */
    struct qwp_feed_value *wide_values;
};

/* Reading within bounds: after an overrun `ok` is false and everything reads as zero. */
struct reader {
    const unsigned char *at;
    const unsigned char *end;
    bool ok;
    bool invalid; /* not cut off but wrong: a varint of more than 64 bits, or a count out of reason
                   */
};

static inline uint64_t read_uvarint(struct reader *r)
{
    uint64_t v = 0;
    for (unsigned shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        const unsigned char byte = *r->at++;
        v |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80 && (shift < 63 || byte <= 1)) {
            return v;
        }
        r->invalid |= shift == 63;
    }
    r->ok = false;
    return 0;
}

/* A count or length of at most `max`. */
static uint32_t read_count(struct reader *r, uint32_t max)
{
    const uint64_t n = read_uvarint(r);
    if (n > max) {
        r->ok = false;
        r->invalid = true;
        return 0;
    }
    return (uint32_t)n;
}

static inline const char *read_bytes(struct reader *r, uint64_t n)
{
    if ((uint64_t)(r->end - r->at) < n) {
        r->ok = false;
        return NULL;
    }
    const char *out = (const char *)r->at;
    r->at += n;
    return out;
}

static inline uint8_t read_u8(struct reader *r)
{
    const char *at = read_bytes(r, 1);
    return at != NULL ? (uint8_t)*at : 0;
}

static inline uint64_t read_u64(struct reader *r)
{
    const char *at = read_bytes(r, 8);
    return at != NULL ? qwp_load_u64(at) : 0;
}

static struct reader reader_of(const char *data, size_t len)
{
    const unsigned char *at = (const unsigned char *)data;
    return (struct reader){at, at + len, true, false};
}

enum qwp_result qwp_feed_qwpb_header(const char *data, struct qwp_error *err)
{
    if (memcmp(data, "QWPB", 4) != 0) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "not a QWPB file: it begins with %02x %02x %02x %02x, expected \"QWPB\" "
                        "(compressed? use zcat FILE | qwp-feed ... -)",
                        (unsigned char)data[0], (unsigned char)data[1], (unsigned char)data[2],
                        (unsigned char)data[3]);
    }
    if (data[4] != 1) {
        return qwp_fail(err, QWP_INVALID, 0, "QWPB version %d, only version 1 can be read",
                        (unsigned char)data[4]);
    }
    return QWP_OK;
}

static void skip_schema(struct reader *r)
{
    read_uvarint(r);
    const uint32_t tags = read_count(r, QWP_COLUMNS_MAX);
    for (uint32_t i = 0; r->ok && i < tags; i++) {
        read_uvarint(r);
    }
    const uint32_t fields = read_count(r, QWP_COLUMNS_MAX);
    for (uint32_t i = 0; r->ok && i < fields; i++) {
        read_uvarint(r);
        read_u8(r);
    }
}

enum qwp_result qwp_feed_qwpb_record(const char *data, size_t room, size_t *len,
                                     struct qwp_error *err)
{
    struct reader r = reader_of(data, room);
    const uint8_t kind = read_u8(&r);
    switch (kind) {
    case QWP_FEED_QWPB_STRING:
        read_bytes(&r, read_count(&r, STRING_BYTES_MAX));
        break;
    case QWP_FEED_QWPB_SCHEMA:
        skip_schema(&r);
        break;
    case QWP_FEED_QWPB_ROW:
        read_uvarint(&r);
        read_bytes(&r, read_count(&r, ROW_BYTES_MAX));
        break;
    default:
        if (r.ok) {
            return qwp_fail(err, QWP_INVALID, 0, "unknown kind of record 0x%02x (known are 1 to 3)",
                            kind);
        }
        break;
    }
    if (r.invalid) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "a record of kind %u with an impossible length or number", kind);
    }
    if (!r.ok) {
        return QWP_AGAIN;
    }
    *len = (size_t)((const char *)r.at - data);
    return QWP_OK;
}

/* ---- definitions ---- */

struct qwp_feed_qwpb *qwp_feed_qwpb_create(const struct qwp_feed_context *context)
{
    struct qwp_feed_qwpb *q = calloc(1, sizeof *q);
    if (q == NULL) {
        return NULL;
    }
    q->context = *context;
    q->values = calloc(QWP_COLUMNS_MAX, sizeof *q->values);
    q->wide_values = calloc(QWP_COLUMNS_MAX, sizeof *q->wide_values);
    if (q->values == NULL || q->wide_values == NULL) {
        qwp_feed_qwpb_destroy(q);
        return NULL;
    }
    return q;
}

void qwp_feed_qwpb_destroy(struct qwp_feed_qwpb *q)
{
    if (q == NULL) {
        return;
    }
    qwp_feed_arena_reset(&q->arena);
    free(q->string_chunks);
    free(q->schemas);
    free(q->values);
    free(q->wide_values);
    free(q);
}

void qwp_feed_qwpb_restart(struct qwp_feed_qwpb *q)
{
    qwp_feed_arena_reset(&q->arena);
    q->string_count = 0;
    q->schema_count = 0;
}

static struct qwp_feed_symbol *string_at(const struct qwp_feed_qwpb *q, uint64_t id)
{
    return &q->string_chunks[id / STRING_CHUNK][id % STRING_CHUNK];
}

static enum qwp_result no_memory(struct qwp_error *err)
{
    return qwp_fail(err, QWP_NOMEM, 0, "no memory for the file's definitions");
}

static enum qwp_result define_string(struct qwp_feed_qwpb *q, struct reader *r,
                                     struct qwp_error *err)
{
    const uint32_t len = read_count(r, STRING_BYTES_MAX);
    const char *text = read_bytes(r, len);
    if (!r->ok) {
        return QWP_OK; /* the caller looks at r->ok */
    }
    const uint32_t chunk = q->string_count / STRING_CHUNK;
    if (q->string_count % STRING_CHUNK == 0) {
        if (chunk == q->string_chunk_room) {
            const uint32_t room = chunk ? chunk * 2 : 16;
            struct qwp_feed_symbol **chunks =
                realloc(q->string_chunks, room * sizeof(struct qwp_feed_symbol *));
            if (chunks == NULL) {
                return no_memory(err);
            }
            q->string_chunks = chunks;
            q->string_chunk_room = room;
        }
        q->string_chunks[chunk] =
            qwp_feed_arena_alloc(&q->arena, STRING_CHUNK * sizeof(struct qwp_feed_symbol));
        if (q->string_chunks[chunk] == NULL) {
            return no_memory(err);
        }
    }
    char *copy = qwp_feed_arena_copy(&q->arena, text, len);
    if (copy == NULL) {
        return no_memory(err);
    }
    q->string_chunks[chunk][q->string_count % STRING_CHUNK] =
        (struct qwp_feed_symbol){copy, len, QWP_FEED_SYMBOL_NEW};
    q->string_count++;
    return QWP_OK;
}

/* The text of a string id, or NULL with a message. */
static const struct qwp_feed_symbol *defined_string(const struct qwp_feed_qwpb *q, uint64_t id,
                                                    const char *what, struct qwp_error *err)
{
    if (id < q->string_count) {
        return string_at(q, id);
    }
    (void)!qwp_fail(err, QWP_INVALID, 0, "%s is string %llu, of which only %u are defined", what,
                    (unsigned long long)id, q->string_count);
    return NULL;
}

static uint8_t column_type(uint8_t field_type)
{
    switch (field_type) {
    case FIELD_I64:
        return QWP_LONG;
    case FIELD_F64:
        return QWP_DOUBLE;
    case FIELD_BOOL:
        return QWP_BOOLEAN;
    case FIELD_STRING:
        return QWP_VARCHAR;
    default:
        return 0;
    }
}

/* One column of a schema. QWP_INVALID when it cannot be sent: then the schema's rows are bad. */
static enum qwp_result schema_column(struct qwp_feed_qwpb *q, struct qwp_feed_table *table,
                                     const struct qwp_feed_symbol *name, uint8_t type,
                                     uint32_t *column, struct qwp_error *err)
{
    const enum qwp_result result = qwp_feed_catalog_column(q->context.catalog, table, name->text,
                                                           name->len, type, 0, column, err);
    if (result == QWP_OK && table->columns[*column].type != type) {
        char was[32];
        char is[32];
        return qwp_fail(err, QWP_INVALID, 0,
                        "column '%s' of table '%s' was %s before and is %s now", name->text,
                        table->name,
                        qwp_feed_type_text(table->columns[*column].type, 0, was, sizeof was),
                        qwp_feed_type_text(type, 0, is, sizeof is));
    }
    return result;
}

/* Everything a schema record says, as ids; filled by read_schema(). */
struct schema_text {
    const struct qwp_feed_symbol *table;
    uint32_t tag_count;
    uint32_t field_count;
    const struct qwp_feed_symbol *names[2 * QWP_COLUMNS_MAX];
    uint8_t types[QWP_COLUMNS_MAX];
};

static enum qwp_result read_schema(const struct qwp_feed_qwpb *q, struct reader *r,
                                   struct schema_text *out, struct qwp_error *err)
{
    out->table = defined_string(q, read_uvarint(r), "a table name", err);
    if (r->ok && out->table == NULL) {
        return QWP_INVALID;
    }
    out->tag_count = read_count(r, QWP_COLUMNS_MAX);
    for (uint32_t i = 0; r->ok && i < out->tag_count; i++) {
        out->names[i] = defined_string(q, read_uvarint(r), "a tag name", err);
        if (r->ok && out->names[i] == NULL) {
            return QWP_INVALID;
        }
    }
    out->field_count = read_count(r, QWP_COLUMNS_MAX);
    for (uint32_t i = 0; r->ok && i < out->field_count; i++) {
        const struct qwp_feed_symbol *name =
            defined_string(q, read_uvarint(r), "a field name", err);
        out->types[i] = read_u8(r);
        if (r->ok && name == NULL) {
            return QWP_INVALID;
        }
        if (r->ok && column_type(out->types[i]) == 0) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "field '%s' has the unknown type %u (known are 1 to 4)", name->text,
                            out->types[i]);
        }
        out->names[out->tag_count + i] = name;
    }
    return QWP_OK;
}

/* Table, columns and shape of a schema that was read. */
static enum qwp_result resolve_schema(struct qwp_feed_qwpb *q, const struct schema_text *text,
                                      struct schema *schema, struct qwp_error *err)
{
    const uint32_t count = text->tag_count + text->field_count;
    if (count > QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "more than %d columns", QWP_COLUMNS_MAX);
    }
    const char *name = q->context.table != NULL ? q->context.table : text->table->text;
    const size_t name_len = q->context.table != NULL ? strlen(name) : text->table->len;
    struct qwp_feed_table *table;
    enum qwp_result result =
        qwp_feed_catalog_table(q->context.catalog, name, name_len, &table, err);
    for (uint32_t i = 0; result == QWP_OK && i < count; i++) {
        const uint8_t type =
            i < text->tag_count ? QWP_SYMBOL : column_type(text->types[i - text->tag_count]);
        result = schema_column(q, table, text->names[i], type, &schema->columns[i], err);
    }
    if (result != QWP_OK) {
        return result;
    }
    const bool server = q->context.at == QWP_FEED_AT_SERVER;
    const enum qwp_at at = server                            ? QWP_AT_SERVER
                           : q->context.at == QWP_FEED_AT_US ? QWP_AT_US
                                                             : QWP_AT_NS;
    return qwp_feed_catalog_shape(q->context.catalog, table, at, schema->columns, count,
                                  &schema->shape, &schema->wide, err);
}

static enum qwp_result keep_schema(struct qwp_feed_qwpb *q, const struct schema_text *text,
                                   struct qwp_error *err)
{
    if (q->schema_count == q->schema_room) {
        const uint32_t room = q->schema_room ? q->schema_room * 2 : 64;
        struct schema **schemas = realloc(q->schemas, room * sizeof *schemas);
        if (schemas == NULL) {
            return no_memory(err);
        }
        q->schemas = schemas;
        q->schema_room = room;
    }
    const uint32_t count = text->tag_count + text->field_count;
    struct schema *schema = qwp_feed_arena_alloc(&q->arena, sizeof *schema + text->field_count);
    uint32_t *columns = qwp_feed_arena_alloc(&q->arena, count * sizeof *columns);
    if (schema == NULL || columns == NULL) {
        return no_memory(err);
    }
    *schema = (struct schema){
        .tag_count = text->tag_count, .field_count = text->field_count, .columns = columns};
    memcpy(schema->types, text->types, text->field_count);
    struct qwp_error why;
    const enum qwp_result result = resolve_schema(q, text, schema, &why);
    if (result == QWP_NOMEM) {
        return no_memory(err);
    }
    if (result != QWP_OK) { /* well formed, but no table of ours: its rows are bad, not the file */
        schema->shape = NULL;
        schema->bad = qwp_feed_arena_copy(&q->arena, why.text, strlen(why.text));
    }
    q->schemas[q->schema_count++] = schema;
    return QWP_OK;
}

static enum qwp_result define_schema(struct qwp_feed_qwpb *q, struct reader *r,
                                     struct qwp_error *err)
{
    struct schema_text *text = malloc(sizeof *text);
    if (text == NULL) {
        return no_memory(err);
    }
    enum qwp_result result = read_schema(q, r, text, err);
    if (result == QWP_OK && r->ok) {
        result = keep_schema(q, text, err);
    }
    free(text);
    return result;
}

enum qwp_result qwp_feed_qwpb_define(struct qwp_feed_qwpb *q, const char *data, size_t len,
                                     size_t *used, struct qwp_error *err)
{
    struct reader r = reader_of(data, len);
    *used = 0;
    while (r.at < r.end) {
        const uint8_t kind = read_u8(&r);
        enum qwp_result result = QWP_OK;
        if (kind == QWP_FEED_QWPB_STRING) {
            result = define_string(q, &r, err);
        } else if (kind == QWP_FEED_QWPB_SCHEMA) {
            result = define_schema(q, &r, err);
        } else {
            result = qwp_fail(err, QWP_INVALID, 0, "kind %u is no definition", kind);
        }
        if (result == QWP_OK && !r.ok) {
            result = qwp_fail(err, QWP_INVALID, 0, "a definition is cut off");
        }
        if (result != QWP_OK) {
            return result;
        }
        *used = (size_t)((const char *)r.at - data);
    }
    return QWP_OK;
}

/* ---- rows ---- */

void qwp_feed_qwpb_begin(struct qwp_feed_qwpb *q, const char *data, size_t len,
                         struct qwp_feed_qwpb_ids ids)
{
    q->data = data;
    q->at = data;
    q->end = data + len;
    q->ids = ids;
}

static enum qwp_result undefined_string(const struct qwp_feed_qwpb *q, const struct schema *schema,
                                        uint32_t tag, uint64_t id, struct qwp_error *err)
{
    const struct qwp_feed_table *table = schema->shape->table;
    return qwp_fail(err, QWP_INVALID, 0,
                    "tag '%s' of table '%s' is string %llu, of which only %u are defined here",
                    table->columns[schema->columns[tag]].name, table->name, (unsigned long long)id,
                    q->ids.strings);
}

static inline void read_field(struct reader *r, uint8_t type, struct qwp_feed_value *value)
{
    switch (type) {
    case FIELD_I64:
    case FIELD_F64: /* the same eight bytes */
        value->i64 = (int64_t)read_u64(r);
        break;
    case FIELD_BOOL:
        value->i64 = read_u8(r) != 0;
        break;
    default: {
        const uint64_t len = read_uvarint(r);
        value->text = read_bytes(r, len);
        value->len = (uint32_t)len; /* within the block, so it fits */
        break;
    }
    }
}

static enum qwp_result read_row(struct qwp_feed_qwpb *q, const struct schema *schema,
                                struct reader *r, struct qwp_feed_row *row, struct qwp_error *err)
{
    struct qwp_feed_value *value = q->values;
    for (uint32_t i = 0; i < schema->tag_count; i++, value++) {
        const uint64_t id = read_uvarint(r);
        if (id >= q->ids.strings) {
            return undefined_string(q, schema, i, id, err);
        }
        value->symbol = string_at(q, id);
    }
    for (uint32_t i = 0; i < schema->field_count; i++, value++) {
        read_field(r, schema->types[i], value);
    }
    const int64_t ns = (int64_t)read_u64(r);
    if (!r->ok || r->at != r->end) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "a row of table '%s' does not fill its payload as its schema says",
                        schema->shape->table->name);
    }
    enum qwp_at at;
    if (!qwp_feed_at(q->context.at, ns, QWP_FEED_NS, &at, &row->at)) {
        return qwp_fail(err, QWP_INVALID, 0, "timestamp %lld is out of range", (long long)ns);
    }
    row->shape = schema->shape;
    row->values = q->values;
    if (schema->wide) {
        for (uint32_t i = 0; i < schema->shape->column_count; i++) {
            q->wide_values[i].null = 1;
        }
        for (uint32_t i = 0; i < schema->tag_count + schema->field_count; i++) {
            q->wide_values[schema->columns[i]] = q->values[i];
        }
        row->values = q->wide_values;
    }
    return QWP_OK;
}

/* The row record at r, its kind taken; r ends behind the record whatever the row is like, or
 * !r->ok.
 */
static enum qwp_result next_row(struct qwp_feed_qwpb *q, struct reader *r, struct qwp_feed_row *row,
                                struct qwp_error *err)
{
    const uint64_t id = read_uvarint(r);
    const uint32_t len = read_count(r, ROW_BYTES_MAX);
    const char *payload = read_bytes(r, len);
    if (!r->ok) {
        return QWP_OK;
    }
    if (id >= q->ids.schemas) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "a row of schema %llu, of which only %u are defined here",
                        (unsigned long long)id, q->ids.schemas);
    }
    const struct schema *schema = q->schemas[id];
    if (schema->shape == NULL) {
        return qwp_fail(err, QWP_INVALID, 0, "%s",
                        schema->bad != NULL ? schema->bad : "bad schema");
    }
    struct reader body = reader_of(payload, len);
    return read_row(q, schema, &body, row, err);
}

enum qwp_result qwp_feed_qwpb_next(struct qwp_feed_qwpb *q, struct qwp_feed_row *row,
                                   struct qwp_feed_bad *bad)
{
    while (q->at < q->end) {
        struct reader r = reader_of(q->at, (size_t)(q->end - q->at));
        const uint8_t kind = read_u8(&r);
        enum qwp_result result;
        bool is_row = false;
        if (kind == QWP_FEED_QWPB_ROW) {
            is_row = true;
            result = next_row(q, &r, row, &bad->err);
        } else {
            size_t len = 0;
            result = qwp_feed_qwpb_record(q->at, (size_t)(q->end - q->at), &len, &bad->err);
            r.at += result == QWP_OK ? len - 1 : 0;
            r.ok = result != QWP_AGAIN;
            q->ids.strings += kind == QWP_FEED_QWPB_STRING;
            q->ids.schemas += kind == QWP_FEED_QWPB_SCHEMA;
        }
        if (!r.ok) { /* blocks hold whole records, so this is the end of a bad file */
            r.at = r.end;
            result = qwp_fail(&bad->err, QWP_INVALID, 0, "a record is cut off");
        } else if (result == QWP_INVALID && !is_row) {
            r.at = r.end;
        }
        bad->off = (size_t)(q->at - q->data);
        q->record = q->at;
        q->at = (const char *)r.at;
        bad->len = (size_t)(q->at - q->data) - bad->off;
        if (is_row || result != QWP_OK) {
            return result;
        }
    }
    return QWP_AGAIN;
}

void qwp_feed_qwpb_last(const struct qwp_feed_qwpb *q, size_t *off, size_t *len)
{
    *off = (size_t)(q->record - q->data);
    *len = (size_t)(q->at - q->record);
}

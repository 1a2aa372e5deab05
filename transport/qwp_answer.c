#include "transport/qwp_answer.h"

#include "core/qwp_bytes.h"
#include "core/wire/qwp_names.h"
#include "core/wire/qwp_wire.h"
#include "transport/qwp_session.h"

enum { SEQUENCE_BYTES = 8, COUNT_BYTES = 2, LENGTH_BYTES = 2, SEQ_TXN_BYTES = 8 };

/* One entry, or NULL when it does not fit. */
static const unsigned char *entry_end(const unsigned char *at, const unsigned char *end)
{
    if (end - at < LENGTH_BYTES) {
        return NULL;
    }
    const size_t need = (size_t)LENGTH_BYTES + qwp_load_u16(at) + SEQ_TXN_BYTES;
    return (size_t)(end - at) < need ? NULL : at + need;
}

const unsigned char *qwp_ack_table_next(const unsigned char *at, const unsigned char *end,
                                        const char **name, uint16_t *name_len, int64_t *seq_txn)
{
    const unsigned char *next = entry_end(at, end);
    if (next == NULL) {
        return NULL;
    }
    *name = (const char *)at + LENGTH_BYTES;
    *name_len = qwp_load_u16(at);
    *seq_txn = qwp_load_i64(next - SEQ_TXN_BYTES);
    return next;
}

static enum qwp_result parse_tables(const unsigned char *at, const unsigned char *end,
                                    struct qwp_answer *out, struct qwp_error *err)
{
    if (end - at < COUNT_BYTES) {
        return qwp_fail(err, QWP_PEER, 0, "answer: cut before its table count");
    }
    out->table_count = qwp_load_u16(at);
    out->tables = at + COUNT_BYTES;
    out->tables_bytes = (size_t)(end - out->tables);
    at = out->tables;
    for (unsigned i = 0; i < out->table_count; i++) {
        const char *name;
        uint16_t name_len;
        int64_t seq_txn;
        at = qwp_ack_table_next(at, end, &name, &name_len, &seq_txn);
        if (at == NULL) {
            return qwp_fail(err, QWP_PEER, 0, "answer: cut in table %u of %u", i, out->table_count);
        }
        if (!qwp_utf8_valid(name, name_len)) {
            return qwp_fail(err, QWP_PEER, 0, "answer: the name of table %u is not UTF-8", i);
        }
    }
    if (at != end) {
        return qwp_fail(err, QWP_PEER, 0, "answer: %zu bytes too many", (size_t)(end - at));
    }
    return QWP_OK;
}

static enum qwp_result parse_text(const unsigned char *at, const unsigned char *end,
                                  struct qwp_answer *out, struct qwp_error *err)
{
    if (end - at < LENGTH_BYTES || (size_t)(end - at) != (size_t)LENGTH_BYTES + qwp_load_u16(at)) {
        return qwp_fail(err, QWP_PEER, 0, "answer: the length of an error text does not fit");
    }
    out->text = (const char *)at + LENGTH_BYTES;
    out->text_len = qwp_load_u16(at);
    if (!qwp_utf8_valid(out->text, out->text_len)) {
        return qwp_fail(err, QWP_PEER, 0, "answer: an error text is not UTF-8");
    }
    return QWP_OK;
}

enum qwp_result qwp_answer_parse(const unsigned char *bytes, size_t len, struct qwp_answer *out,
                                 struct qwp_error *err)
{
    if (len == 0) {
        return qwp_fail(err, QWP_PEER, 0, "answer: empty");
    }
    *out = (struct qwp_answer){.status = bytes[0], .sequence = -1};
    const unsigned char *at = bytes + 1;
    const unsigned char *end = bytes + len;
    if (out->status == QWP_STATUS_DURABLE_ACK) {
        return parse_tables(at, end, out, err);
    }
    if (end - at < SEQUENCE_BYTES) {
        return qwp_fail(err, QWP_PEER, 0, "answer: cut in its sequence");
    }
    out->sequence = qwp_load_i64(at);
    at += SEQUENCE_BYTES;
    return out->status == QWP_STATUS_OK ? parse_tables(at, end, out, err)
                                        : parse_text(at, end, out, err);
}

/* qwp_answer: a message of the server, taken apart and checked to the last byte.
 *
 *   OK            status 00   sequence i64   table_count u16   tables
 *   DURABLE_ACK   status 02   table_count u16   tables
 *   others        status      sequence i64   len u16   text (UTF-8)
 *   tables        table_count x (len u16, name (UTF-8), seqTxn i64)
 *
 * Whether the sequence is possible is for the session, which knows what was sent. */
#ifndef QWP_ANSWER_H
#define QWP_ANSWER_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

struct qwp_answer {
    uint8_t status;
    uint16_t table_count;
    int64_t sequence;            /* -1 in a DURABLE_ACK */
    const unsigned char *tables; /* into the message, as is text */
    size_t tables_bytes;
    const char *text; /* not terminated */
    size_t text_len;
};

/* QWP_PEER with a text when a length or a text is wrong. */
QWP_MUST_USE enum qwp_result qwp_answer_parse(const unsigned char *bytes, size_t len,
                                              struct qwp_answer *out, struct qwp_error *err);

#endif

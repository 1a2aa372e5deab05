/* qwp_notices: what the sender tells intake about tables: rows set aside, tables to hold.
 *
 * A bounded queue. The sender tells of rows before it lets the log know that their frame is
 * settled, so intake counts them before it settles them.
 *
 * Threads: put() and has_room() the sender's, take() intake's, which may be another thread.
 *          sync[notices.tail]: a notice is whole. sync[notices.head]: its place may be used. */
#ifndef QWP_NOTICES_H
#define QWP_NOTICES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_shape.h"

enum { QWP_NOTICES_MAX = 1024, QWP_NOTICE_NAME_BYTES = 128 };

enum qwp_notice_kind {
    QWP_NOTICE_ASIDE = 1,   /* rows of a table in a frame were set aside */
    QWP_NOTICE_HOLD = 2,    /* take no more rows of the table: there is no room to set them aside */
    QWP_NOTICE_RELEASE = 3, /* take them again */
};

struct qwp_notice {
    uint32_t kind;
    uint32_t name_len;
    uint64_t fsn;
    uint64_t first_row; /* ASIDE: of the table in the frame */
    uint64_t row_count;
    char name[QWP_NOTICE_NAME_BYTES];
};

/* Zero is empty. */
struct qwp_notices {
    _Atomic uint64_t tail; /* writer: sender */
    _Atomic uint64_t head; /* writer: intake */
    struct qwp_notice items[QWP_NOTICES_MAX];
};

bool qwp_notices_has_room(struct qwp_notices *notices);
/* There is room. */
void qwp_notices_put(struct qwp_notices *notices, enum qwp_notice_kind kind, struct qwp_name table,
                     uint64_t fsn, uint64_t first_row, uint64_t row_count);
bool qwp_notices_take(struct qwp_notices *notices, struct qwp_notice *out);

#endif

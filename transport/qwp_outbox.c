#include "transport/qwp_outbox.h"

#include "core/qwp_assert.h"

#include <stdlib.h>

enum { BUFFER_ALIGN = 4096 };

enum qwp_result qwp_outbox_open(struct qwp_outbox *outbox, struct qwp_error *err)
{
    *outbox = (struct qwp_outbox){0};
    outbox->memory = aligned_alloc(BUFFER_ALIGN, (size_t)2 * QWP_OUTBOX_BYTES);
    if (outbox->memory == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "send buffers: out of memory");
    }
    qwp_outbox_reset(outbox);
    return QWP_OK;
}

void qwp_outbox_close(struct qwp_outbox *outbox)
{
    free(outbox->memory);
    *outbox = (struct qwp_outbox){0};
}

void qwp_outbox_reset(struct qwp_outbox *outbox)
{
    unsigned char *memory = outbox->memory;
    *outbox = (struct qwp_outbox){
        .memory = memory,
        .filling = memory,
        .flight = memory + QWP_OUTBOX_BYTES,
    };
}

void qwp_outbox_appended(struct qwp_outbox *outbox, size_t len)
{
    QWP_ASSERT(len <= qwp_outbox_room(outbox));
    outbox->filling_len += len;
    outbox->appended_pos += len;
}

size_t qwp_outbox_take(struct qwp_outbox *outbox, const unsigned char **bytes)
{
    if (outbox->flight_off == outbox->flight_len) {
        unsigned char *emptied = outbox->flight;
        outbox->flight = outbox->filling;
        outbox->flight_len = outbox->filling_len;
        outbox->flight_off = 0;
        outbox->filling = emptied;
        outbox->filling_len = 0;
    }
    *bytes = outbox->flight + outbox->flight_off;
    return outbox->flight_len - outbox->flight_off;
}

void qwp_outbox_sent(struct qwp_outbox *outbox, size_t len)
{
    QWP_ASSERT(len <= outbox->flight_len - outbox->flight_off);
    outbox->flight_off += len;
    outbox->sent_pos += len;
}

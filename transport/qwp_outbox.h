/* qwp_outbox: what goes to the socket next: one buffer in flight, the other one filling.
 *
 * Two large buffers so that the kernel is always given much at once, and encoding goes on while it
 * takes it. Positions count the connection's bytes on the socket and only grow. */
#ifndef QWP_OUTBOX_H
#define QWP_OUTBOX_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

enum {
    QWP_TLS_PLAIN_MAX = 16384, /* payload of a TLS record */
    /* With the header, nonce, padding and tag of any cipher suite that we offer. */
    QWP_TLS_RECORD_MAX = QWP_TLS_PLAIN_MAX + 256,
    /* 16 full records of AES-GCM and some room for alerts and the like. */
    QWP_OUTBOX_BYTES = 17 * QWP_TLS_PLAIN_MAX,
};

struct qwp_outbox {
    unsigned char *memory; /* both buffers */
    unsigned char *filling;
    unsigned char *flight;
    size_t filling_len;
    size_t flight_len;
    size_t flight_off; /* below: taken by the kernel */
    uint64_t appended_pos;
    uint64_t sent_pos;
};

QWP_MUST_USE enum qwp_result qwp_outbox_open(struct qwp_outbox *outbox, struct qwp_error *err);
void qwp_outbox_close(struct qwp_outbox *outbox);
/* Empty, positions 0: a new connection. */
void qwp_outbox_reset(struct qwp_outbox *outbox);

/* Free bytes of the filling buffer, at qwp_outbox_end(). */
static inline size_t qwp_outbox_room(const struct qwp_outbox *outbox)
{
    return QWP_OUTBOX_BYTES - outbox->filling_len;
}

static inline unsigned char *qwp_outbox_end(const struct qwp_outbox *outbox)
{
    return outbox->filling + outbox->filling_len;
}

/* `len` bytes were written to qwp_outbox_end(). */
void qwp_outbox_appended(struct qwp_outbox *outbox, size_t len);

/* The next bytes to send: the rest of the flight, else the filled buffer, which becomes the flight.
 * 0: nothing to send. Call only with no send under way. */
size_t qwp_outbox_take(struct qwp_outbox *outbox, const unsigned char **bytes);
/* The kernel took `len` of what qwp_outbox_take() gave. */
void qwp_outbox_sent(struct qwp_outbox *outbox, size_t len);
/* Nothing is filled or in flight. */
static inline int qwp_outbox_is_empty(const struct qwp_outbox *outbox)
{
    return outbox->appended_pos == outbox->sent_pos;
}

#endif

/* Aim: nothing a server says after the upgrade makes the client read outside or grow beyond its
 * bound, and where its bytes are cut makes no difference to what is understood.
 * Input: one byte (the length of the pieces), the server's stream of frames. */
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "transport/qwp_answer.h"
#include "transport/qwp_session.h"
#include "transport/qwp_websocket.h"

enum { MESSAGE_MAX = 4096 };

struct digest {
    uint64_t sum;
    enum qwp_result result;
};

static void add(struct digest *digest, uint64_t v)
{
    digest->sum = (digest->sum ^ v) * UINT64_C(0x100000001b3);
}

static void add_answer(struct digest *digest, const struct qwp_ws_event *event)
{
    /* A copy of its own, so that a read beyond is seen. */
    unsigned char *copy = malloc(event->len > 0 ? event->len : 1);
    QWP_ASSERT(copy != NULL);
    if (event->len > 0) {
        memcpy(copy, event->bytes, event->len);
    }
    struct qwp_answer answer;
    struct qwp_error err;
    const enum qwp_result result = qwp_answer_parse(copy, event->len, &answer, &err);
    add(digest, (uint64_t)result);
    if (result == QWP_OK) {
        add(digest, answer.status);
        add(digest, (uint64_t)answer.sequence);
        const unsigned char *at = answer.tables;
        for (unsigned i = 0; i < answer.table_count; i++) {
            const char *name;
            uint16_t name_len;
            int64_t seq_txn;
            at = qwp_ack_table_next(at, answer.tables + answer.tables_bytes, &name, &name_len,
                                    &seq_txn);
            QWP_ASSERT(at != NULL);
            add(digest, name_len);
            add(digest, (uint64_t)seq_txn);
        }
    }
    free(copy);
}

static struct digest read_pieces(const uint8_t *bytes, size_t size, size_t piece)
{
    struct digest digest = {.result = QWP_AGAIN};
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, MESSAGE_MAX);
    for (size_t off = 0; off < size && digest.result == QWP_AGAIN;) {
        const size_t n = size - off < piece ? size - off : piece;
        unsigned char *copy = malloc(n);
        QWP_ASSERT(copy != NULL);
        memcpy(copy, bytes + off, n);
        const unsigned char *at = copy;
        struct qwp_ws_event event;
        struct qwp_error err;
        while ((digest.result = qwp_ws_read(&reader, &at, copy + n, &event, &err)) == QWP_OK) {
            add(&digest, (uint64_t)event.kind);
            add(&digest, event.len);
            if (event.kind == QWP_WS_BINARY) {
                add_answer(&digest, &event);
            }
        }
        free(copy);
        off += n;
        QWP_ASSERT(reader.message_cap <= 2 * MESSAGE_MAX);
    }
    qwp_ws_reader_fini(&reader);
    return digest;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    const struct digest whole = read_pieces(data + 1, size - 1, size);
    const struct digest cut = read_pieces(data + 1, size - 1, (size_t)data[0] + 1);
    QWP_ASSERT(whole.result == cut.result && whole.sum == cut.sum);
    return 0;
}

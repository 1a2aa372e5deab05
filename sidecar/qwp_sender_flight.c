#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_varint.h"
#include "sidecar/qwp_sender_internal.h"

struct qwp_in_flight *qwp_sender_in_flight_at(struct qwp_sender *sender, int64_t sequence)
{
    return &sender->in_flight[(uint64_t)sequence % QWP_SENDER_IN_FLIGHT_MAX];
}

bool qwp_sender_has_room(const struct qwp_sender *sender)
{
    return sender->next_sequence - sender->first_sequence < QWP_SENDER_IN_FLIGHT_MAX &&
           sender->bytes_in_flight < QWP_SENDER_WINDOW_BYTES;
}

static void show_in_flight(const struct qwp_sender *sender)
{
    struct qwp_control_header *page = sender->options.page;
    atomic_store_explicit(&page->bytes_in_flight, sender->bytes_in_flight, memory_order_relaxed);
    atomic_store_explicit(&page->messages_in_flight,
                          (uint64_t)(sender->next_sequence - sender->first_sequence),
                          memory_order_relaxed);
}

bool qwp_sender_message_send(struct qwp_sender *sender, const unsigned char *message,
                             const struct qwp_in_flight *what)
{
    int64_t sequence;
    if (qwp_session_send(sender->session, message, what->len, &sequence) != QWP_OK) {
        return false;
    }
    QWP_ASSERT(sequence == sender->next_sequence);
    *qwp_sender_in_flight_at(sender, sequence) = *what;
    sender->next_sequence++;
    sender->bytes_in_flight += what->len;
    show_in_flight(sender);
    return true;
}

/* Everything up to `sequence` is settled. Returns the frames that are complete with it, 0 if none.
 */
uint64_t qwp_sender_pop(struct qwp_sender *sender, int64_t sequence)
{
    uint64_t fsn_end = 0;
    while (sender->first_sequence <= sequence) {
        struct qwp_in_flight *message = qwp_sender_in_flight_at(sender, sender->first_sequence++);
        fsn_end = message->fsn_end != 0 ? message->fsn_end : fsn_end;
        sender->bytes_in_flight -= message->len;
        free(message->owned);
    }
    show_in_flight(sender);
    return fsn_end;
}

/* The dictionary that a fresh connection lacks, in messages below the server's limit. */
bool qwp_sender_catch_up(struct qwp_sender *sender)
{
    const struct qwp_dict *dict = qwp_seglog_dict(sender->options.log);
    const size_t cap = qwp_sender_bytes_max(sender);
    size_t bytes = QWP_HEADER_BYTES + 2 * (size_t)QWP_VARINT_BYTES_MAX;
    uint32_t end = sender->catch_up_next;
    while (end < sender->catch_up_end) {
        const size_t len = qwp_dict_text(dict, end).len + (size_t)QWP_VARINT_BYTES_MAX;
        if (bytes + len > cap && end > sender->catch_up_next) {
            break;
        }
        bytes += len;
        end++;
    }
    unsigned char *message = malloc(bytes);
    if (message == NULL) {
        return false;
    }
    unsigned char *at = qwp_message_begin(message, QWP_FLAG_DEFER_COMMIT | QWP_FLAG_DELTA_DICT);
    at = qwp_delta_put(at, sender->catch_up_next, end - sender->catch_up_next, qwp_dict_text, dict);
    const size_t len = (size_t)(at - message);
    qwp_message_finish(message, 0, len);
    const struct qwp_in_flight what = {.len = len, .owned = message, .kind = QWP_MESSAGE_CATCH_UP};
    if (!qwp_sender_message_send(sender, message, &what)) {
        free(message);
        return false;
    }
    sender->catch_up_next = end;
    if (end == sender->catch_up_end && sender->catching_up) {
        sender->catching_up = false;
        qwp_sender_show_state(sender, QWP_CONNECTION_UP);
    }
    return true;
}

bool qwp_sender_frame_send(struct qwp_sender *sender)
{
    if (sender->reject.plan.active) {
        return qwp_sender_plan_send(sender);
    }
    const struct qwp_seglog_cursor before = sender->cursor;
    struct qwp_frame frame;
    if (qwp_seglog_next(sender->options.log, &sender->cursor, &frame) != QWP_OK) {
        return false;
    }
    const struct qwp_in_flight what = {
        .fsn_end = frame.fsn + 1, .len = frame.len, .kind = QWP_MESSAGE_FRAME, .fsn = frame.fsn};
    const bool sent = qwp_sender_goes_in_parts(sender, &frame)
                          ? qwp_sender_plan_begin(sender, &frame)
                          : qwp_sender_message_send(sender, frame.payload, &what);
    if (!sent) {
        sender->cursor = before;
        return false;
    }
    qwp_sender_add(&sender->options.page->frames_sent, 1);
    if (frame.fsn < sender->sent_fsn_end) {
        qwp_sender_add(&sender->options.page->frames_replayed, 1);
    } else {
        sender->sent_fsn_end = frame.fsn + 1;
    }
    return true;
}

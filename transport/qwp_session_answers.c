#include "transport/qwp_session_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "transport/qwp_answer.h"

/* A breach while closing changes nothing any more. */
static void breach(struct qwp_session *s, const char *text)
{
    if (s->state != STATE_CLOSING) {
        qwp_session_note_down(s, QWP_DOWN_PROTOCOL, 0, "%s", text);
    }
    qwp_session_end(s);
}

/* ---- answers ---- */

static void on_ok(struct qwp_session *s, const struct qwp_answer *answer)
{
    if (answer->sequence >= s->rejected_sequence) {
        breach(s, "an OK that covers a message which was rejected");
        return;
    }
    if (answer->sequence <= s->acked_sequence) {
        return; /* late: says nothing new */
    }
    s->acked_sequence = answer->sequence;
    s->options->callbacks->ok(s->options->owner, answer->sequence, answer->tables,
                              answer->tables_bytes, answer->table_count);
}

/* One, of a message that is not settled: whom it blames may lose his rows. */
static void on_rejected(struct qwp_session *s, const struct qwp_answer *answer)
{
    if (answer->sequence <= s->acked_sequence) {
        breach(s, "a message rejected that was acknowledged before");
        return;
    }
    if (s->rejected_sequence != INT64_MAX) {
        breach(s, "an answer after the rejection of a message");
        return;
    }
    s->rejected_sequence = answer->sequence;
    if (s->state == STATE_UP) {
        qwp_session_note_down(s, QWP_DOWN_REJECTED, 0,
                              "message %" PRId64 " rejected with status 0x%02x: %.*s",
                              answer->sequence, answer->status,
                              (int)(answer->text_len > 256 ? 256 : answer->text_len), answer->text);
        qwp_session_begin_closing(s, QWP_WS_CLOSE_NORMAL, true, closing_grace_ns);
    }
    s->options->callbacks->rejected(s->options->owner, answer->sequence, answer->status,
                                    answer->text, answer->text_len);
}

static void on_message(struct qwp_session *s, const struct qwp_ws_event *event)
{
    struct qwp_answer answer;
    struct qwp_error err;
    if (qwp_answer_parse(event->bytes, event->len, &answer, &err) != QWP_OK) {
        breach(s, err.text);
        return;
    }
    if (answer.status == QWP_STATUS_DURABLE_ACK) {
        s->options->callbacks->durable(s->options->owner, answer.tables, answer.tables_bytes,
                                       answer.table_count);
        return;
    }
    if (answer.sequence < 0 || answer.sequence >= s->outgoing.sent_count) {
        char text[128];
        snprintf(text, sizeof text,
                 "answer to message %" PRId64 ", but %" PRId64 " were sent (from 0 on)",
                 answer.sequence, s->outgoing.sent_count);
        breach(s, text);
    } else if (answer.status == QWP_STATUS_OK) {
        on_ok(s, &answer);
    } else {
        on_rejected(s, &answer);
    }
}

/* ---- WebSocket ---- */

static void on_close_frame(struct qwp_session *s, const struct qwp_ws_event *event)
{
    s->down.close_code = event->close_code;
    if (s->state == STATE_UP) {
        qwp_session_note_down(s, QWP_DOWN_CLOSED, 0, "closed by the server, code %u: %.*s",
                              event->close_code, (int)event->len, (const char *)event->bytes);
    }
    qwp_session_begin_closing(s, event->close_code != 0 ? event->close_code : QWP_WS_CLOSE_NORMAL,
                              true, closing_grace_ns);
}

static void on_event(struct qwp_session *s, const struct qwp_ws_event *event)
{
    switch (event->kind) {
    case QWP_WS_BINARY:
        on_message(s, event);
        break;
    case QWP_WS_PING:
        qwp_outgoing_pong(&s->outgoing, event->bytes, event->len);
        qwp_session_want_soon(s);
        break;
    case QWP_WS_CLOSE:
        on_close_frame(s, event);
        break;
    case QWP_WS_PONG: /* a sign of life, which every byte is */
        if (s->state == STATE_UP && s->options->callbacks->ponged != NULL) {
            s->options->callbacks->ponged(s->options->owner, s->outgoing.pinged_count - 1);
        }
        break;
    default:
        break;
    }
}

void qwp_session_read_frames(struct qwp_session *s, const unsigned char *at,
                             const unsigned char *bytes_end)
{
    while (s->state == STATE_UP || s->state == STATE_CLOSING) {
        struct qwp_ws_event event;
        struct qwp_error err;
        const enum qwp_result result = qwp_ws_read(&s->reader, &at, bytes_end, &event, &err);
        if (result == QWP_AGAIN) {
            return;
        }
        if (result != QWP_OK) {
            breach(s, err.text);
            return;
        }
        on_event(s, &event);
    }
}

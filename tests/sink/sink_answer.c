#include "tests/sink/sink_answer.h"

#include <string.h>

#include "tests/sink/sink_websocket.h"

void sink_answer_ok(struct sink_buffer *out, int64_t sequence, struct sink_intake *intake,
                    struct sink_buffer *durable)
{
    struct sink_buffer payload = {0};
    const unsigned char ok = QWP_STATUS_OK;
    sink_buffer_put(&payload, &ok, sizeof ok);
    sink_buffer_put(&payload, &sequence, sizeof sequence);
    const size_t tables_off = payload.len;
    sink_intake_list_tables(intake, &payload);
    sink_frame_put(out, SINK_OPCODE_BINARY, payload.at, payload.len);
    if (durable != NULL && payload.len > tables_off + sizeof(uint16_t)) {
        struct sink_buffer watermarks = {0};
        const unsigned char status = QWP_STATUS_DURABLE_ACK;
        sink_buffer_put(&watermarks, &status, sizeof status);
        sink_buffer_put(&watermarks, payload.at + tables_off, payload.len - tables_off);
        sink_frame_put(durable, SINK_OPCODE_BINARY, watermarks.at, watermarks.len);
        sink_buffer_fini(&watermarks);
    }
    sink_buffer_fini(&payload);
}

void sink_answer_error(struct sink_buffer *out, int64_t sequence, enum qwp_status status,
                       const char *text)
{
    struct sink_buffer payload = {0};
    const unsigned char code = (unsigned char)status;
    const uint16_t len = (uint16_t)strlen(text);
    sink_buffer_put(&payload, &code, sizeof code);
    sink_buffer_put(&payload, &sequence, sizeof sequence);
    sink_buffer_put(&payload, &len, sizeof len);
    sink_buffer_put(&payload, text, len);
    sink_frame_put(out, SINK_OPCODE_BINARY, payload.at, payload.len);
    sink_buffer_fini(&payload);
}

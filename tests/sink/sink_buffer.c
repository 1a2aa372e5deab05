#include "tests/sink/sink_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *sink_realloc(void *at, size_t bytes)
{
    void *grown = realloc(at, bytes);
    if (grown == NULL) {
        fprintf(stderr, "qwp-sink: no memory for %zu bytes\n", bytes);
        exit(EXIT_FAILURE);
    }
    return grown;
}

void sink_buffer_fini(struct sink_buffer *buffer)
{
    free(buffer->at);
    memset(buffer, 0, sizeof *buffer);
}

char *sink_buffer_reserve(struct sink_buffer *buffer, size_t more)
{
    if (buffer->room - buffer->len < more) {
        size_t room = buffer->room < 256 ? 256 : buffer->room * 2;
        if (room < buffer->len + more) {
            room = buffer->len + more;
        }
        buffer->at = sink_realloc(buffer->at, room);
        buffer->room = room;
    }
    return buffer->at + buffer->len;
}

void sink_buffer_put(struct sink_buffer *buffer, const void *bytes, size_t len)
{
    if (len == 0) {
        return;
    }
    memcpy(sink_buffer_reserve(buffer, len), bytes, len);
    buffer->len += len;
}

void sink_buffer_text(struct sink_buffer *buffer, const char *text)
{
    sink_buffer_put(buffer, text, strlen(text));
}

void sink_buffer_printf(struct sink_buffer *buffer, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    const size_t room = buffer->room - buffer->len;
    int n = vsnprintf(room > 0 ? buffer->at + buffer->len : NULL, room, format, args);
    if (n >= 0 && (size_t)n >= room) {
        n = vsnprintf(sink_buffer_reserve(buffer, (size_t)n + 1), (size_t)n + 1, format, again);
    }
    va_end(again);
    va_end(args);
    buffer->len += n > 0 ? (size_t)n : 0;
}

void sink_buffer_drop(struct sink_buffer *buffer, size_t len)
{
    buffer->len -= len;
    if (buffer->len > 0 && len > 0) {
        memmove(buffer->at, buffer->at + len, buffer->len);
    }
}

void sink_buffer_json(struct sink_buffer *buffer, const char *text, size_t len)
{
    sink_buffer_put(buffer, "\"", 1);
    size_t plain = 0; /* start of what needs no escape */
    for (size_t i = 0; i < len; i++) {
        const unsigned char c = (unsigned char)text[i];
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7f) {
            continue;
        }
        sink_buffer_put(buffer, text + plain, i - plain);
        plain = i + 1;
        if (c == '"' || c == '\\') {
            const char escaped[2] = {'\\', (char)c};
            sink_buffer_put(buffer, escaped, 2);
        } else {
            sink_buffer_printf(buffer, "\\u%04x", c);
        }
    }
    sink_buffer_put(buffer, text + plain, len - plain);
    sink_buffer_put(buffer, "\"", 1);
}

/* sink_buffer: bytes that grow at the end.
 *
 * The sink is a program for tests and demos: without memory it ends, so nothing here can fail. */
#ifndef SINK_BUFFER_H
#define SINK_BUFFER_H

#include <stddef.h>

#include "core/qwp_result.h"

/* Zeroed: empty. */
struct sink_buffer {
    char *at;
    size_t len;
    size_t room;
};

void sink_buffer_fini(struct sink_buffer *buffer);
/* Makes room for `more` bytes behind len and returns where they go. */
char *sink_buffer_reserve(struct sink_buffer *buffer, size_t more);
void sink_buffer_put(struct sink_buffer *buffer, const void *bytes, size_t len);
void sink_buffer_text(struct sink_buffer *buffer, const char *text);
void sink_buffer_printf(struct sink_buffer *buffer, const char *format, ...) QWP_PRINTF(2, 3);
/* Drops the first `len` bytes. */
void sink_buffer_drop(struct sink_buffer *buffer, size_t len);
/* A JSON string with its quotes; `text` is UTF-8. */
void sink_buffer_json(struct sink_buffer *buffer, const char *text, size_t len);

/* realloc() that ends the program instead of failing. */
void *sink_realloc(void *at, size_t bytes);

#endif

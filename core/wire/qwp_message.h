/* qwp_message: what stands around table blocks - the message header and the dictionary's delta.
 *
 * A message is begun, its parts are put behind each other, and it is finished when its length and
 * table count are known.
 *
 * Threads: none; memory is the caller's, who has made room. */
#ifndef QWP_MESSAGE_H
#define QWP_MESSAGE_H

#include <stddef.h>
#include <stdint.h>

#include "core/qwp_shape.h"

/* Writes the header, table count and length still 0, and returns the byte after it. */
unsigned char *qwp_message_begin(unsigned char *dst, uint8_t flags);
/* Patches table count and payload length; `message_len` counts the header too and is at most
 * QWP_MESSAGE_BYTES_MAX. */
void qwp_message_finish(unsigned char *message, uint16_t table_count, size_t message_len);

/* Delta symbol dictionary section: start id, count, then the texts through `text_of`. Every message
 * of a WebSocket sender has one (QWP_FLAG_DELTA_DICT), be it empty. */
typedef struct qwp_name (*qwp_symbol_text_fn)(const void *dict, uint32_t id);
/* Bytes that qwp_delta_put() will write. */
size_t qwp_delta_size(uint32_t start, uint32_t count, qwp_symbol_text_fn text_of, const void *dict);
/* Returns the end of what it wrote. */
unsigned char *qwp_delta_put(unsigned char *at, uint32_t start, uint32_t count,
                             qwp_symbol_text_fn text_of, const void *dict);

#endif

/* qwp_shared_text: short texts for people in shared memory: reasons, endpoints, names.
 *
 * Threads: one writer, any readers, at any time. A reader may get a mix of two texts, never more
 * than fits, and always a terminated one: byte by byte, relaxed. */
#ifndef QWP_SHARED_TEXT_H
#define QWP_SHARED_TEXT_H

#include <stddef.h>

/* Cuts what does not fit and fills the rest with zeros. */
static inline void qwp_shared_text_set(char *to, size_t bytes, const char *text)
{
    size_t i = 0;
    for (; i + 1 < bytes && text[i] != '\0'; i++) {
        __atomic_store_n(&to[i], text[i], __ATOMIC_RELAXED);
    }
    for (; i < bytes; i++) {
        __atomic_store_n(&to[i], '\0', __ATOMIC_RELAXED);
    }
}

static inline void qwp_shared_text_get(char *text, size_t text_bytes, const char *from,
                                       size_t bytes)
{
    size_t i = 0;
    for (; i < bytes && i + 1 < text_bytes; i++) {
        text[i] = __atomic_load_n(&from[i], __ATOMIC_RELAXED);
        if (text[i] == '\0') {
            return;
        }
    }
    text[i] = '\0';
}

#endif

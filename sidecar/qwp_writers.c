#include "sidecar/qwp_writers.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/wire/qwp_names.h"

void qwp_writers_init(struct qwp_writers *writers)
{
    pthread_mutex_init(&writers->lock, NULL);
    writers->count = 0;
}

void qwp_writers_fini(struct qwp_writers *writers)
{
    pthread_mutex_destroy(&writers->lock);
}

void qwp_writers_add(struct qwp_writers *writers, struct qwp_name table, const char *producer)
{
    pthread_mutex_lock(&writers->lock);
    const uint64_t at = writers->count++ % QWP_WRITERS_MAX;
    writers->pairs[at].table_hash = qwp_name_hash(table.text, table.len);
    snprintf(writers->pairs[at].producer, sizeof writers->pairs[at].producer, "%s", producer);
    pthread_mutex_unlock(&writers->lock);
}

/* Whether `text`, a list of names, has the name. */
static bool has_name(const char *text, const char *name)
{
    const size_t len = strlen(name);
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name)) {
        if ((at == text || at[-1] == ' ') && (at[len] == '\0' || at[len] == ',')) {
            return true;
        }
    }
    return len == 0;
}

void qwp_writers_name(void *owner, struct qwp_name table, char *text, size_t text_bytes)
{
    struct qwp_writers *writers = owner;
    const uint64_t hash = qwp_name_hash(table.text, table.len);
    size_t len = 0;
    text[0] = '\0';
    pthread_mutex_lock(&writers->lock);
    const uint64_t kept = writers->count < QWP_WRITERS_MAX ? writers->count : QWP_WRITERS_MAX;
    for (uint64_t i = writers->count - kept; i < writers->count; i++) {
        const char *name = writers->pairs[i % QWP_WRITERS_MAX].producer;
        if (writers->pairs[i % QWP_WRITERS_MAX].table_hash != hash || has_name(text, name)) {
            continue;
        }
        if (len + strlen(name) + 3 > text_bytes) {
            break;
        }
        len += (size_t)snprintf(text + len, text_bytes - len, "%s%s", len > 0 ? ", " : "", name);
    }
    pthread_mutex_unlock(&writers->lock);
}

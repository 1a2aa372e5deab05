/* qwp_rejected_read: reading the folder of refused rows, and marking what was put back.
 *
 * Threads: none. Trust: files are judged to the last byte; what is wrong ends a file there.
 * See qwp_rejected_layout.h. */
#ifndef QWP_REJECTED_READ_H
#define QWP_REJECTED_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "sidecar/qwp_rejected_layout.h"

/* Names of the files of a folder, oldest first. */
struct qwp_rejected_names {
    char (*list)[32]; /* owned */
    size_t count;
};
/* QWP_OK with none when there is no such folder. */
QWP_MUST_USE enum qwp_result qwp_rejected_names_read(struct qwp_rejected_names *names,
                                                     const char *dir, struct qwp_error *err);
void qwp_rejected_names_fini(struct qwp_rejected_names *names);

struct qwp_rejected_content {
    int fd;               /* kept open; -1: none */
    unsigned char *bytes; /* owned */
    size_t len;
    size_t end; /* behind the last good entry */
    int64_t created_us;
    unsigned char slot_uuid[16];
    char table[QWP_REJECTED_NAME_BYTES];
};

struct qwp_rejected_item {
    size_t off;
    uint32_t state; /* enum qwp_rejected_state */
    uint8_t status;
    uint8_t cause; /* enum qwp_rejected_cause, or anything */
    uint64_t fsn;
    int64_t time_us;
    uint64_t row_count;
    uint32_t symbols_before;
    const char *text; /* not terminated, as are producers */
    uint16_t text_len;
    const char *producers;
    uint16_t producers_len;
    const unsigned char *message;
    uint32_t message_len;
};

/* Reads `dir`/`name`; with `lock` nobody else appends to it or takes it until close (QWP_AGAIN:
 * somebody is at it). QWP_CORRUPT: no such file of ours. */
QWP_MUST_USE enum qwp_result qwp_rejected_content_read(struct qwp_rejected_content *content,
                                                       const char *dir, const char *name, bool lock,
                                                       struct qwp_error *err);
void qwp_rejected_content_fini(struct qwp_rejected_content *content);
/* The entry at *off, and moves there to the next; *off begins with 0. False at the end. */
bool qwp_rejected_content_next(const struct qwp_rejected_content *content, size_t *off,
                               struct qwp_rejected_item *item);
/* Entries and rows that are still set aside. */
void qwp_rejected_content_count(const struct qwp_rejected_content *content, uint64_t *entries,
                                uint64_t *rows);
/* Marks an entry as put back. */
QWP_MUST_USE enum qwp_result qwp_rejected_content_mark(struct qwp_rejected_content *content,
                                                       const struct qwp_rejected_item *item,
                                                       struct qwp_error *err);

const char *qwp_rejected_cause_name(uint8_t cause);

#endif

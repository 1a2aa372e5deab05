/* qwp_rejected: the folder where rows lie that a server refused, and writing into it.
 *
 * Bounded by `bytes_max`, beyond which is_full() says so; appending goes on all the same, because
 * what is in the log already has no other place to go (and leaves the log by that, so it all stays
 * below both bounds together). Whoever takes rows in stops taking those of blocked tables then.
 *
 * Threads: the sender's. Other processes may put rows back: they hold a lock (flock) on a file
 *          while they mark its entries or remove it, and appending goes on in another one.
 * Progress: writes into the page cache; with `durable` flush() syncs, on the sender's thread: what
 * a blocked table costs its neighbours there is a sync for each acknowledgement. Crash:   an entry
 * is there whole or not at all. With `durable` it is on disk once flush() said QWP_OK: call it
 * before the frame counts as settled. Errors:  QWP_IO leaves nothing behind that counts; try again
 * later. */
#ifndef QWP_REJECTED_H
#define QWP_REJECTED_H

#include "core/qwp_sys.h"
#include "core/wire/qwp_recode.h"
#include "sidecar/qwp_rejected_layout.h"

enum { QWP_REJECTED_FILE_BYTES_MAX = 4 * 1024 * 1024 }; /* then a new file is begun */

struct qwp_rejected_options {
    const char *dir; /* the folder, made with the first entry; borrowed for the call */
    unsigned char slot_uuid[16];
    uint64_t bytes_max;
    bool durable;
    const struct qwp_sys *sys; /* kept; NULL: the real one */
};

/* The file that takes a table's rows now. */
struct qwp_rejected_file;

struct qwp_rejected {
    struct qwp_rejected_options options;
    char *dir;                       /* owned */
    int dir_fd;                      /* -1: not made yet */
    uint64_t next_number;            /* of the next file */
    uint64_t bytes_total;            /* of all files, as last counted and added to */
    struct qwp_rejected_file *files; /* open for appending */
    bool dir_dirty;
};

/* What is set aside. Texts and message are borrowed for the call. */
struct qwp_rejected_entry {
    struct qwp_name table;
    uint8_t status;
    uint8_t cause;
    uint64_t fsn;
    uint64_t row_count;
    const char *text;
    const char *producers;
};

QWP_MUST_USE enum qwp_result qwp_rejected_open(struct qwp_rejected *rejected,
                                               const struct qwp_rejected_options *options,
                                               struct qwp_error *err);
void qwp_rejected_close(struct qwp_rejected *rejected);

/* Writes the blocks of an entry with the file's own symbol ids, which `symbol_id` gives; returns
 * their number. */
typedef uint32_t (*qwp_rejected_blocks_fn)(void *owner, qwp_recode_symbol_fn symbol_id,
                                           void *symbol_owner, struct qwp_bytes *out);

struct qwp_rejected_source {
    const unsigned char *opaque; /* not NULL: the message as it is to be kept, and nothing else */
    size_t opaque_len;
    qwp_rejected_blocks_fn blocks;
    void *owner;
    uint8_t flags; /* of the message */
    qwp_symbol_text_fn symbol_text;
    const void *symbols;
    unsigned char symbols_uuid[16]; /* of the slot whose ids they are; another: another file */
};

/* Appends an entry to the file of its table. */
QWP_MUST_USE enum qwp_result qwp_rejected_append(struct qwp_rejected *rejected,
                                                 const struct qwp_rejected_entry *entry,
                                                 const struct qwp_rejected_source *source,
                                                 struct qwp_error *err);
/* Makes what was appended durable, if it is to be. */
QWP_MUST_USE enum qwp_result qwp_rejected_flush(struct qwp_rejected *rejected,
                                                struct qwp_error *err);
/* No more rows of the table are expected. */
void qwp_rejected_end_table(struct qwp_rejected *rejected, struct qwp_name table);
bool qwp_rejected_is_full(const struct qwp_rejected *rejected);
/* Looks again how much there is: files may have gone. */
void qwp_rejected_recount(struct qwp_rejected *rejected);

#endif

/* qwp_dict_file: the dictionary of a slot on disk, written ahead of the frames that use it.
 *
 * Threads: the log's writer; `appends` tells the keeper that a sync is due.
 * Trust:   load() believes a chunk whose bounds and CRC are right, and nothing behind the first
 *          that is not.
 * Crash:   a chunk is trusted whole or not at all. What a failed append left behind is overwritten
 *          by the next. */
#ifndef QWP_DICT_FILE_H
#define QWP_DICT_FILE_H

#include <stdatomic.h>

#include "core/qwp_sys.h"
#include "core/store/qwp_dict.h"

struct qwp_dict_file {
    int fd;
    uint64_t end_off;       /* where the next chunk goes */
    uint32_t saved_count;   /* ids in the file */
    unsigned char *scratch; /* the chunk being made; grows */
    size_t scratch_room;
    /* writer: the log's writer. reader: keeper. relaxed: a stale value means one sync more. */
    _Atomic uint32_t appends;
};

/* Reads the trusted part of `.symbol-dict` into `dict`, which is empty. Changes nothing. *trusted:
 * bytes of it; *size: of the file (0: there is none). */
QWP_MUST_USE enum qwp_result qwp_dict_file_load(const struct qwp_sys *sys, int dir_fd,
                                                struct qwp_dict *dict, uint64_t *trusted,
                                                uint64_t *size, struct qwp_error *err);
/* Makes the file if need be and cuts it to `trusted` bytes; appends go there. `saved_count`: ids in
 * the trusted part. */
QWP_MUST_USE enum qwp_result qwp_dict_file_open(struct qwp_dict_file *file,
                                                const struct qwp_sys *sys, int dir_fd,
                                                uint64_t trusted, uint32_t saved_count,
                                                struct qwp_error *err);
void qwp_dict_file_close(struct qwp_dict_file *file, const struct qwp_sys *sys);

/* Appends the texts that are not in the file yet as one chunk. Without any: nothing. After a
 * failure (QWP_IO, QWP_NOMEM) the file counts as it was before. */
QWP_MUST_USE enum qwp_result qwp_dict_file_append(struct qwp_dict_file *file,
                                                  const struct qwp_sys *sys,
                                                  const struct qwp_dict *dict,
                                                  struct qwp_error *err);

#endif

/* qwp_file: what ring, control file and bell have in common: blocks reserved, files made under a
 * temporary name, double mappings.
 *
 * Internal to ipc. */
#ifndef QWP_FILE_H
#define QWP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/qwp_error.h"

#define QWP_TMP_PREFIX ".tmp-"
enum { QWP_FILE_NAME_BYTES = 128 };

/* Moves a descriptor out of 0..2 (a process may have closed those), so that 0 in a zeroed struct
 * means none. Takes fd; -1 stays -1, with errno as it was. */
int qwp_fd_above_stdio(int fd);

uint64_t qwp_random_u64(void);
/* ".tmp-<16 hex digits>" */
void qwp_tmp_name(char *name, size_t name_bytes);

/* Makes sure that [off, off + bytes) has blocks, growing the file. `what` is for the message.
 * QWP_NOMEM with needed and available bytes; QWP_IO. */
QWP_MUST_USE enum qwp_result qwp_file_reserve(int fd, uint64_t off, uint64_t bytes,
                                              const char *what, struct qwp_error *err);

/* Maps [0, bytes) of the file, and behind it [twice_off, bytes) once more, all in one range. The
 * first rw_bytes are writable, the rest only if `writable`. MAP_FAILED on failure, with errno. */
void *qwp_file_map_twice(int fd, uint64_t bytes, uint64_t twice_off, uint64_t rw_bytes,
                         bool writable);

/* Fills the page tables, for writing or only for reading. False: no memory for it, or the file is
 * shorter (EFAULT). A kernel without MADV_POPULATE_* is helped out by touching when `alone` with
 * the file; a stranger could cut it short under us, so then the pages are left to come by
 * themselves. */
bool qwp_file_prefault(void *at, size_t bytes, bool writable, bool alone);

#endif

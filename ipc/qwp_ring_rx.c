/* The sidecar's side of a ring. Everything in the file may be hostile: it is read once, into a
 * copy, and the copy is judged and used. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_names.h"
#include "ipc/qwp_file.h"
#include "ipc/qwp_ring.h"
#include "ipc/qwp_shared_text.h"

/* Fields up to here are there in every minor of major 1. */
enum { HEADER_BYTES_MIN = sizeof(struct qwp_ring_header) };
enum { PREFAULT_BYTES_MAX = 256 * 1024 };

static bool is_step_multiple(uint64_t v)
{
    return (v & (QWP_RING_STEP - 1)) == 0;
}

/* Copies one field out of the header as read from the file. */
#define FIELD(header, field) atomic_load_explicit(&(header)->field, memory_order_relaxed)

static enum qwp_result check_version(const struct qwp_ring_header *header, struct qwp_error *err)
{
    if (FIELD(header, magic) != QWP_RING_MAGIC) {
        return qwp_fail(err, QWP_CORRUPT, 0, "no ring file: magic 0x%016llx, expected 0x%016llx",
                        (unsigned long long)FIELD(header, magic),
                        (unsigned long long)QWP_RING_MAGIC);
    }
    if (FIELD(header, major) != QWP_RING_MAJOR) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "ring layout %u.%u, this sidecar (" QWP_VERSION
                        ") reads %d.x; upgrade the older of the two "
                        "(the ring is left alone)",
                        FIELD(header, major), FIELD(header, minor), QWP_RING_MAJOR);
    }
    return QWP_OK;
}

static enum qwp_result check_sizes(const struct qwp_ring_header *header, uint64_t file_bytes,
                                   struct qwp_error *err)
{
    const uint64_t defs_max = FIELD(header, defs_bytes_max);
    const uint64_t data = FIELD(header, data_bytes);
    const uint32_t header_bytes = FIELD(header, header_bytes);
    const uint32_t unit = FIELD(header, unit_bytes_max);
    if (header_bytes < HEADER_BYTES_MIN || header_bytes > QWP_RING_STEP) {
        return qwp_fail(err, QWP_CORRUPT, 0, "ring header of %u bytes, expected %d..%d",
                        header_bytes, HEADER_BYTES_MIN, QWP_RING_STEP);
    }
    if (data < QWP_RING_DATA_BYTES_MIN || data > QWP_RING_DATA_BYTES_MAX ||
        (data & (data - 1)) != 0) {
        return qwp_fail(err, QWP_CORRUPT, 0, "ring of %llu bytes, expected a power of two %d..%d",
                        (unsigned long long)data, QWP_RING_DATA_BYTES_MIN, QWP_RING_DATA_BYTES_MAX);
    }
    if (defs_max < QWP_RING_STEP || defs_max > QWP_RING_DEFS_BYTES_MAX ||
        !is_step_multiple(defs_max)) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "definitions area of %llu bytes, expected a multiple of %d up to %d",
                        (unsigned long long)defs_max, QWP_RING_STEP, QWP_RING_DEFS_BYTES_MAX);
    }
    if (FIELD(header, defs_off) != QWP_RING_STEP ||
        FIELD(header, data_off) != QWP_RING_STEP + defs_max ||
        file_bytes != QWP_RING_STEP + defs_max + data) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "definitions at %llu, data at %llu, file of %llu bytes; expected %d, %llu, "
                        "%llu",
                        (unsigned long long)FIELD(header, defs_off),
                        (unsigned long long)FIELD(header, data_off), (unsigned long long)file_bytes,
                        QWP_RING_STEP, (unsigned long long)(QWP_RING_STEP + defs_max),
                        (unsigned long long)(QWP_RING_STEP + defs_max + data));
    }
    if (unit < QWP_RECORD_ALIGN || unit > data / 2) {
        return qwp_fail(err, QWP_CORRUPT, 0, "units of up to %u bytes in a ring of %llu", unit,
                        (unsigned long long)data);
    }
    return QWP_OK;
}

/* Producer's and sidecar's positions as they stand: the producer may write both kinds. */
static enum qwp_result check_positions(const struct qwp_ring_header *header, uint64_t data_bytes,
                                       struct qwp_error *err)
{
    const uint64_t tail = FIELD(header, tail_pos);
    const uint64_t head = FIELD(header, head_pos);
    const uint64_t acked = FIELD(header, acked_pos);
    if (((tail | head | acked) & (QWP_RECORD_ALIGN - 1)) != 0 || tail - head > data_bytes ||
        tail < head || acked > head) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "acked %llu, head %llu, tail %llu in a ring of %llu bytes",
                        (unsigned long long)acked, (unsigned long long)head,
                        (unsigned long long)tail, (unsigned long long)data_bytes);
    }
    return QWP_OK;
}

static bool is_allowed_owner(const struct qwp_ring_limits *limits, uint32_t uid)
{
    for (uint32_t i = 0; i < limits->uid_count; i++) {
        if (limits->uids[i] == uid) {
            return true;
        }
    }
    return limits->uid_count == 0;
}

static enum qwp_result check_limits(const struct qwp_ring_header *header, uint32_t owner_uid,
                                    const struct qwp_ring_limits *limits, struct qwp_error *err)
{
    if (!is_allowed_owner(limits, owner_uid)) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "the ring belongs to uid %u, whom this sidecar does not serve", owner_uid);
    }
    if (FIELD(header, data_bytes) > limits->data_bytes_max) {
        return qwp_fail(err, QWP_LIMIT, 0, "ring of %llu bytes, this sidecar takes at most %llu",
                        (unsigned long long)FIELD(header, data_bytes),
                        (unsigned long long)limits->data_bytes_max);
    }
    if (FIELD(header, defs_bytes_max) > limits->defs_bytes_max) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "definitions of %llu bytes, this sidecar takes at most %llu",
                        (unsigned long long)FIELD(header, defs_bytes_max),
                        (unsigned long long)limits->defs_bytes_max);
    }
    return QWP_OK;
}

/* A stranger's file: no link is followed, no FIFO or lease blocks us. */
static enum qwp_result open_file(int dir_fd, const char *file_name, int access, struct stat *st,
                                 int *fd, struct qwp_error *err)
{
    *fd = qwp_fd_above_stdio(
        openat(dir_fd, file_name, access | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
    if (*fd < 0) {
        if (errno == ENOENT) {
            return qwp_fail(err, QWP_AGAIN, 0, "no such ring file");
        }
        const bool odd = errno == ELOOP || errno == ENXIO || errno == EWOULDBLOCK;
        return qwp_fail(err, odd ? QWP_INVALID : QWP_IO, errno, "cannot open the ring file");
    }
    if (fstat(*fd, st) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot look at the ring file");
    }
    return QWP_OK;
}

/* Blocks that are not reserved would be charged to us as we read. Only tmpfs counts them exactly.
 */
static bool has_blocks(int fd, const struct stat *st, uint64_t data_bytes)
{
    struct statfs fs;
    return fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC ||
           (uint64_t)st->st_blocks * 512 >= data_bytes + 2 * (uint64_t)QWP_RING_STEP;
}

/* Reads and judges everything, without having the file open for writing. Owner and limits are left
 * to the caller. */
static enum qwp_result inspect(int fd, const struct stat *st, struct qwp_ring_header *copy,
                               struct qwp_error *err)
{
    if (!S_ISREG(st->st_mode) || st->st_nlink != 1) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "not a plain file of one name (mode 0%o, %lu links); remove it",
                        (unsigned)st->st_mode, (unsigned long)st->st_nlink);
    }
    if (st->st_size == 0) {
        return qwp_fail(err, QWP_AGAIN, 0, "an emptied ring");
    }
    ssize_t n;
    do {
        n = pread(fd, copy, sizeof *copy, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot read the ring's header");
    }
    if ((size_t)n < sizeof *copy) {
        return qwp_fail(err, QWP_CORRUPT, 0, "no ring file: %zd bytes, the header alone has %zu", n,
                        sizeof *copy);
    }
    enum qwp_result result = check_version(copy, err);
    if (result == QWP_OK) {
        result = check_sizes(copy, (uint64_t)st->st_size, err);
    }
    if (result == QWP_OK) {
        result = check_positions(copy, FIELD(copy, data_bytes), err);
    }
    if (result == QWP_OK && !has_blocks(fd, st, FIELD(copy, data_bytes))) {
        result =
            qwp_fail(err, QWP_CORRUPT, 0, "the ring's blocks are not reserved (%llu bytes are)",
                     (unsigned long long)st->st_blocks * 512);
    }
    return result;
}

/* The same file once more, now for writing. */
static enum qwp_result open_again(int dir_fd, const char *file_name, const struct stat *seen,
                                  int *fd, struct qwp_error *err)
{
    struct stat st;
    const enum qwp_result result = open_file(dir_fd, file_name, O_RDWR, &st, fd, err);
    if (result != QWP_OK) {
        return result;
    }
    if (st.st_dev != seen->st_dev || st.st_ino != seen->st_ino || st.st_size != seen->st_size ||
        st.st_nlink != 1) {
        return qwp_fail(err, QWP_INVALID, 0, "the file was exchanged while it was opened");
    }
    return QWP_OK;
}

/* Tells the producer why its ring is not read. Once: each close after writing is an event. */
static void refuse(int dir_fd, const char *file_name, const struct stat *seen,
                   const struct qwp_ring_header *copy, const char *reason)
{
    int fd = -1;
    if (FIELD(copy, state) == QWP_RING_REFUSED) {
        return;
    }
    if (open_again(dir_fd, file_name, seen, &fd, NULL) == QWP_OK) {
        /* pwrite and not a mapping, which a truncation could pull from under us here, where no one
         * has told the SIGBUS handler of it. */
        char text[QWP_RING_REASON_BYTES] = "";
        const uint32_t state = QWP_RING_REFUSED;
        qwp_shared_text_set(text, sizeof text, reason);
        if (pwrite(fd, text, sizeof text, offsetof(struct qwp_ring_header, reason)) < 0 ||
            pwrite(fd, &state, sizeof state, offsetof(struct qwp_ring_header, state)) < 0) {
            /* It has our message in the log only. */
        }
    }
    if (fd >= 0) {
        close(fd);
    }
}

static void take_over(struct qwp_ring_rx *rx, struct qwp_ring_header *copy)
{
    rx->data_bytes = FIELD(copy, data_bytes);
    rx->data_mask = rx->data_bytes - 1;
    rx->defs_bytes_max = FIELD(copy, defs_bytes_max);
    rx->unit_bytes_max = FIELD(copy, unit_bytes_max);
    rx->head_pos = FIELD(copy, head_pos);
    rx->tail_seen_pos = rx->head_pos;
    rx->acked_pos = FIELD(copy, acked_pos);
    rx->rows_stored = FIELD(copy, rows_stored);
    rx->rows_acked = FIELD(copy, rows_acked);
    rx->rows_rejected = FIELD(copy, rejected_rows);
    rx->ring_id[0] = FIELD(copy, ring_id[0]);
    rx->ring_id[1] = FIELD(copy, ring_id[1]);
    rx->membarrier = (FIELD(copy, producer_flags) & QWP_RING_MEMBARRIER) != 0;
    qwp_shared_text_get(rx->name, sizeof rx->name, copy->name, sizeof copy->name);
    if (!qwp_utf8_valid(rx->name, strlen(rx->name))) {
        qwp_shared_text_set(rx->name, sizeof rx->name, "?");
    }
}

static enum qwp_result map_ring(struct qwp_ring_rx *rx, struct qwp_error *err)
{
    const uint64_t data_off = QWP_RING_STEP + rx->defs_bytes_max;
    const uint64_t file_bytes = data_off + rx->data_bytes;
    rx->mapped_bytes = file_bytes + rx->data_bytes;
    unsigned char *base = qwp_file_map_twice(rx->fd, file_bytes, data_off, QWP_RING_STEP, false);
    if (base == MAP_FAILED) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot map the ring (%zu bytes of addresses)",
                        rx->mapped_bytes);
    }
    rx->header = (struct qwp_ring_header *)base;
    rx->defs = base + QWP_RING_STEP;
    rx->data = base + data_off;
    /* MADV_POPULATE reports a file that was truncated meanwhile (EFAULT) where touching it would
     * raise SIGBUS. Of a large ring the pages come as they are read: to wait for them all would
     * hold up everybody else's rows [0.6 us a page: 20 ms for 64 MiB]. */
    const size_t at_once =
        rx->data_bytes < PREFAULT_BYTES_MAX ? rx->data_bytes : PREFAULT_BYTES_MAX;
    if (!qwp_file_prefault(base, QWP_RING_STEP, true, false) ||
        !qwp_file_prefault(base + data_off, at_once, false, false)) {
        return qwp_fail(err, errno == EFAULT ? QWP_CORRUPT : QWP_NOMEM, errno,
                        "cannot get the ring's pages");
    }
    return QWP_OK;
}

enum qwp_result qwp_ring_open(struct qwp_ring_rx *rx, int dir_fd, const char *file_name,
                              const struct qwp_ring_limits *limits, struct qwp_error *err)
{
    *rx = (struct qwp_ring_rx){.fd = -1};
    if (strlen(file_name) >= sizeof rx->file_name) {
        return qwp_fail(err, QWP_INVALID, 0, "ring '%.40s...': the name is longer than %zu bytes",
                        file_name, sizeof rx->file_name - 1);
    }
    /* A message of our own to pass on to the producer, whether or not the caller wants one. */
    struct qwp_error own = {0};
    struct stat st;
    struct qwp_ring_header copy;
    int read_fd = -1;
    enum qwp_result result = open_file(dir_fd, file_name, O_RDONLY, &st, &read_fd, &own);
    if (result == QWP_OK) {
        result = inspect(read_fd, &st, &copy, &own);
    }
    if (result == QWP_OK) {
        result = check_limits(&copy, st.st_uid, limits, &own);
        if (result == QWP_LIMIT) {
            refuse(dir_fd, file_name, &st, &copy, own.text);
        }
    }
    if (result == QWP_OK) {
        result = open_again(dir_fd, file_name, &st, &rx->fd, &own);
    }
    if (read_fd >= 0) {
        close(read_fd);
    }
    if (result == QWP_OK) {
        take_over(rx, &copy);
        rx->owner_uid = st.st_uid;
        memcpy(rx->file_name, file_name, strlen(file_name) + 1);
        result = map_ring(rx, &own);
    }
    if (result != QWP_OK) {
        qwp_ring_close_rx(rx);
        qwp_error_prefix(&own, "ring '%s'", file_name);
        if (err != NULL) {
            *err = own;
        }
    }
    return result;
}

void qwp_ring_close_rx(struct qwp_ring_rx *rx)
{
    if (rx->header != NULL) {
        munmap(rx->header, rx->mapped_bytes);
    }
    if (rx->fd > 0) {
        close(rx->fd);
    }
    *rx = (struct qwp_ring_rx){.fd = -1};
}

enum qwp_result qwp_ring_resume(struct qwp_ring_rx *rx, uint64_t head_pos, struct qwp_error *err)
{
    /* sync[ring.tail] acquire: as in poll. */
    const uint64_t tail_pos = atomic_load_explicit(&rx->header->tail_pos, memory_order_acquire);
    if (head_pos < rx->head_pos || head_pos > tail_pos ||
        tail_pos - rx->head_pos > rx->data_bytes || (head_pos & (QWP_RECORD_ALIGN - 1)) != 0) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "ring '%s': cannot go on from %llu: head is %llu and tail %llu",
                        rx->file_name, (unsigned long long)head_pos,
                        (unsigned long long)rx->head_pos, (unsigned long long)tail_pos);
    }
    rx->head_pos = head_pos;
    rx->tail_seen_pos = head_pos;
    return QWP_OK;
}

/* ---- reading ---- */

enum qwp_result qwp_ring_poll(struct qwp_ring_rx *rx)
{
    /* sync[ring.tail] acquire: pairs with the release in qwp_ring_publish(). */
    const uint64_t tail_pos = atomic_load_explicit(&rx->header->tail_pos, memory_order_acquire);
    if (tail_pos == rx->tail_seen_pos) {
        return QWP_AGAIN;
    }
    /* head <= tail_seen always, so a tail that went back fails the first test or the second. */
    if (tail_pos < rx->tail_seen_pos || tail_pos - rx->head_pos > rx->data_bytes ||
        (tail_pos & (QWP_RECORD_ALIGN - 1)) != 0) {
        return QWP_CORRUPT;
    }
    rx->tail_seen_pos = tail_pos;
    return QWP_OK;
}

/* A reader of an entry's copy that cannot leave it. */
struct cursor {
    const unsigned char *at;
    size_t left;
};

static const unsigned char *take(struct cursor *cursor, size_t bytes)
{
    if (bytes > cursor->left) {
        return NULL;
    }
    const unsigned char *at = cursor->at;
    cursor->at += bytes;
    cursor->left -= bytes;
    return at;
}

static bool take_name(struct cursor *cursor, uint8_t len, struct qwp_name *name)
{
    const unsigned char *text = take(cursor, len);
    *name = (struct qwp_name){(const char *)text, len};
    return text != NULL;
}

static enum qwp_result parse_symbol(struct cursor cursor, struct qwp_ring_def *def,
                                    struct qwp_error *err)
{
    const unsigned char *len_at = take(&cursor, 4);
    const uint32_t len = len_at != NULL ? qwp_load_u32(len_at) : 0;
    const unsigned char *text = len_at != NULL ? take(&cursor, len) : NULL;
    if (text == NULL || cursor.left >= QWP_RECORD_ALIGN) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol of %u bytes does not fit its entry", len);
    }
    if (len > QWP_SYMBOL_BYTES_MAX) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol of %u bytes, at most %d are allowed", len,
                        QWP_SYMBOL_BYTES_MAX);
    }
    if (!qwp_utf8_valid(text, len)) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a symbol of %u bytes is not UTF-8", len);
    }
    def->text = (const char *)text;
    def->text_len = len;
    return QWP_OK;
}

static enum qwp_result parse_columns(struct cursor *cursor, struct qwp_column_def *columns,
                                     uint16_t count)
{
    for (uint16_t i = 0; i < count; i++) {
        const unsigned char *head = take(cursor, 3);
        if (head == NULL || !take_name(cursor, head[2], &columns[i].name)) {
            return QWP_CORRUPT;
        }
        columns[i].type = head[0];
        columns[i].parameter = head[1];
    }
    return cursor->left < QWP_RECORD_ALIGN ? QWP_OK : QWP_CORRUPT;
}

static enum qwp_result parse_shape(struct cursor cursor, struct qwp_ring_def *def,
                                   struct qwp_error *err)
{
    struct qwp_name table;
    const unsigned char *head = take(&cursor, 4);
    if (head == NULL || !take_name(&cursor, head[3], &table)) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a shape's table name does not fit its entry");
    }
    const uint16_t count = qwp_load_u16(head);
    if (count > QWP_COLUMNS_MAX) {
        return qwp_fail(err, QWP_CORRUPT, 0, "a shape of %u columns, at most %d are allowed", count,
                        QWP_COLUMNS_MAX);
    }
    struct qwp_column_def *columns = calloc(count + 1u, sizeof *columns);
    if (columns == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a shape of %u columns", count);
    }
    enum qwp_result result = parse_columns(&cursor, columns, count);
    if (result != QWP_OK) {
        result = qwp_fail(err, result, 0, "a shape of %u columns does not fit its entry", count);
    } else {
        result = qwp_shape_create(&def->shape, table, columns, count, head[2], err);
        if (result != QWP_OK && result != QWP_NOMEM) {
            result = QWP_CORRUPT;
        }
    }
    free(columns);
    return result;
}

/* Loads defs_tail when everything seen of it is parsed. */
static enum qwp_result poll_defs(struct qwp_ring_rx *rx, struct qwp_error *err)
{
    if (rx->defs_seen < rx->defs_tail_seen) {
        return QWP_OK;
    }
    /* sync[ring.defs] acquire: pairs with the release in publish_def(). */
    const uint64_t tail = atomic_load_explicit(&rx->header->defs_tail, memory_order_acquire);
    if (tail == rx->defs_seen) {
        return QWP_AGAIN;
    }
    if (tail < rx->defs_seen || tail > rx->defs_bytes_max || (tail & (QWP_RECORD_ALIGN - 1)) != 0) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "ring '%s': definitions up to %llu, %llu are parsed and %llu is the bound",
                        rx->file_name, (unsigned long long)tail, (unsigned long long)rx->defs_seen,
                        (unsigned long long)rx->defs_bytes_max);
    }
    rx->defs_tail_seen = tail;
    return QWP_OK;
}

/* Reads the one at `pos`, which is below defs_tail_seen. */
static enum qwp_result def_read(const struct qwp_ring_rx *rx, uint64_t pos, unsigned char *entry,
                                struct qwp_ring_def *def, uint32_t *size_bytes,
                                struct qwp_error *err)
{
    const unsigned char *at = rx->defs + pos;
    const uint64_t left = rx->defs_tail_seen - pos;
    const uint32_t size = qwp_load_u32(at); /* once: the copy's own word may be another by then */
    if (size < QWP_DEF_HEADER_BYTES || size > left || size > QWP_RING_DEF_BYTES_MAX ||
        (size & (QWP_RECORD_ALIGN - 1)) != 0) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "ring '%s': definition at %llu claims %u bytes, %llu are there",
                        rx->file_name, (unsigned long long)pos, size, (unsigned long long)left);
    }
    memcpy(entry, at, size);
    const uint16_t kind = qwp_load_u16(entry + 4);
    const struct cursor body = {entry + QWP_DEF_HEADER_BYTES, size - QWP_DEF_HEADER_BYTES};
    *def = (struct qwp_ring_def){.kind = (enum qwp_def_kind)kind};
    enum qwp_result result;
    if (kind == QWP_DEF_SYMBOL) {
        result = parse_symbol(body, def, err);
    } else if (kind == QWP_DEF_SHAPE) {
        result = parse_shape(body, def, err);
    } else {
        result = qwp_fail(err, QWP_CORRUPT, 0, "unknown kind %u", kind);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "ring '%s', definition at %llu", rx->file_name,
                         (unsigned long long)pos);
        return result;
    }
    *size_bytes = size;
    return QWP_OK;
}

enum qwp_result qwp_ring_next_def(struct qwp_ring_rx *rx, unsigned char *entry,
                                  struct qwp_ring_def *def, struct qwp_error *err)
{
    enum qwp_result result = poll_defs(rx, err);
    uint32_t size_bytes;
    if (result == QWP_OK) {
        result = def_read(rx, rx->defs_seen, entry, def, &size_bytes, err);
    }
    if (result == QWP_OK) {
        rx->defs_seen += size_bytes;
    }
    return result;
}

enum qwp_result qwp_ring_symbol_at(const struct qwp_ring_rx *rx, uint64_t pos, unsigned char *entry,
                                   struct qwp_ring_def *def, struct qwp_error *err)
{
    uint32_t size_bytes;
    const enum qwp_result result = def_read(rx, pos, entry, def, &size_bytes, err);
    if (result != QWP_OK || def->kind == QWP_DEF_SYMBOL) {
        return result;
    }
    qwp_shape_destroy(def->shape);
    return qwp_fail(err, QWP_CORRUPT, 0, "ring '%s': the definition at %llu was changed",
                    rx->file_name, (unsigned long long)pos);
}

/* ---- progress ---- */

/* sync[ring.progress]: store-then-load, here and in qwp_bell_wait(), where the argument is. What
 * the producer waits for was stored (seq_cst) just before. */
static void wake_waiting(struct qwp_ring_rx *rx, uint32_t what)
{
    if ((atomic_load_explicit(&rx->header->waiting, memory_order_seq_cst) & what) == 0) {
        return;
    }
    atomic_fetch_add_explicit(&rx->header->progress_seq, 1, memory_order_seq_cst);
    syscall(SYS_futex, &rx->header->progress_seq, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

bool qwp_ring_is_waited_for(const struct qwp_ring_rx *rx, uint32_t what)
{
    return (atomic_load_explicit(&rx->header->waiting, memory_order_relaxed) & what) != 0;
}

void qwp_ring_release(struct qwp_ring_rx *rx, uint64_t head_pos, uint64_t rows)
{
    QWP_ASSERT(head_pos >= rx->head_pos);
    QWP_ASSERT(head_pos <= rx->tail_seen_pos);
    rx->head_pos = head_pos;
    rx->rows_stored += rows;
    atomic_store_explicit(&rx->header->rows_stored, rx->rows_stored, memory_order_relaxed);
    /* sync[ring.head] release: our reads of the records end before tx may overwrite them. */
    atomic_store_explicit(&rx->header->head_pos, head_pos, memory_order_seq_cst);
    wake_waiting(rx, QWP_WAIT_SPACE | QWP_WAIT_STORED);
}

void qwp_ring_settle(struct qwp_ring_rx *rx, uint64_t acked_pos, uint64_t rows, uint64_t rejected)
{
    QWP_ASSERT(acked_pos >= rx->acked_pos);
    QWP_ASSERT(acked_pos <= rx->head_pos);
    rx->acked_pos = acked_pos;
    rx->rows_acked += rows;
    rx->rows_rejected += rejected;
    atomic_store_explicit(&rx->header->rows_acked, rx->rows_acked, memory_order_relaxed);
    atomic_store_explicit(&rx->header->rejected_rows, rx->rows_rejected, memory_order_relaxed);
    /* sync[ring.acked] release: rejected_rows is at least that of this position. */
    atomic_store_explicit(&rx->header->acked_pos, acked_pos, memory_order_seq_cst);
    wake_waiting(rx, QWP_WAIT_ACKED);
}

void qwp_ring_set_state(struct qwp_ring_rx *rx, enum qwp_ring_state state, const char *reason)
{
    qwp_shared_text_set(rx->header->reason, sizeof rx->header->reason,
                        reason != NULL ? reason : "");
    /* sync[ring.state] release: the reason is written. */
    atomic_store_explicit(&rx->header->state, (uint32_t)state, memory_order_seq_cst);
    wake_waiting(rx, QWP_WAIT_SPACE | QWP_WAIT_STORED | QWP_WAIT_ACKED);
}

/* ---- the end ---- */

bool qwp_ring_is_orphan(struct qwp_ring_rx *rx)
{
    /* The kernel drops the lock after everything the producer did; ours is a system call too, so
     * the next poll sees its last tail. */
    if (!rx->orphan && flock(rx->fd, LOCK_EX | LOCK_NB) == 0) {
        rx->orphan = true;
    }
    return rx->orphan;
}

enum qwp_result qwp_ring_remove(struct qwp_ring_rx *rx, int dir_fd, struct qwp_error *err)
{
    struct stat ours;
    struct stat named;
    if (fstat(rx->fd, &ours) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot look at ring '%s'", rx->file_name);
    }
    if (fstatat(dir_fd, rx->file_name, &named, AT_SYMLINK_NOFOLLOW) != 0) {
        return errno == ENOENT
                   ? QWP_OK
                   : qwp_fail(err, QWP_IO, errno, "cannot look at ring '%s'", rx->file_name);
    }
    if (named.st_dev != ours.st_dev || named.st_ino != ours.st_ino) {
        return QWP_OK;
    }
    if (unlinkat(dir_fd, rx->file_name, 0) == 0 || errno == ENOENT) {
        return QWP_OK;
    }
    const int code = errno;
    /* Its memory at least. The mapping is not touched any more. */
    const bool emptied = ftruncate(rx->fd, 0) == 0;
    return qwp_fail(
        err, QWP_IO, code,
        "cannot remove ring '%s' of a producer that is gone: in a sticky directory only "
        "root, its owner (uid %u) and the directory's owner may, we are uid %u; %s",
        rx->file_name, rx->owner_uid, (unsigned)geteuid(),
        emptied ? "it is emptied, and the next producer of its owner removes it"
                : "let the sidecar make the directory, by starting it first");
}

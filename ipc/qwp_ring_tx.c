/* The producer's side of a ring. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "ipc/qwp_file.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_ring.h"

enum {
    FILE_MODE = 0660,
    FILE_NAME_STEM_BYTES = 64,
    CREATE_TRIES = 8, /* a sweep may take a file between its making and its lock */
};

static uint64_t power_of_two_from(uint64_t bytes)
{
    uint64_t power = QWP_RING_DATA_BYTES_MIN;
    while (power < bytes) {
        power <<= 1;
    }
    return power;
}

/* Turns the wishes into the sizes of a ring, in *tx. */
static enum qwp_result choose_sizes(struct qwp_ring_tx *tx, const struct qwp_ring_options *options,
                                    struct qwp_error *err)
{
    const uint64_t data = options->data_bytes ? options->data_bytes : QWP_RING_DATA_BYTES_DEFAULT;
    if (data > QWP_RING_DATA_BYTES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "a ring of %llu bytes is asked for, at most %d is had",
                        (unsigned long long)data, QWP_RING_DATA_BYTES_MAX);
    }
    const uint64_t defs =
        options->defs_bytes_max ? options->defs_bytes_max : QWP_RING_DEFS_BYTES_DEFAULT;
    if (defs > QWP_RING_DEFS_BYTES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "%llu bytes of definitions are asked for, at most %d are had",
                        (unsigned long long)defs, QWP_RING_DEFS_BYTES_MAX);
    }
    tx->data_bytes = power_of_two_from(data);
    tx->data_mask = tx->data_bytes - 1;
    tx->defs_bytes_max = qwp_round_up(defs, QWP_RING_STEP);
    const uint32_t unit_max = (uint32_t)(tx->data_bytes / 2);
    if (options->unit_bytes_max > unit_max) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "units of %u bytes do not fit a ring of %llu: at most half of it, so make "
                        "the ring larger or the units smaller",
                        options->unit_bytes_max, (unsigned long long)tx->data_bytes);
    }
    const uint32_t unit =
        options->unit_bytes_max ? options->unit_bytes_max : QWP_RING_UNIT_BYTES_DEFAULT;
    tx->unit_bytes_max = (unit < unit_max ? unit : unit_max) & ~(QWP_RECORD_ALIGN - 1u);
    return QWP_OK;
}

/* One try: QWP_AGAIN when a sweep was faster than our lock. Sets tx->fd. */
static enum qwp_result make_locked(struct qwp_ring_tx *tx, const char *tmp_name,
                                   struct qwp_error *err)
{
    tx->fd = qwp_fd_above_stdio(openat(
        tx->dir_fd, tmp_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FILE_MODE));
    if (tx->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make a ring file in the instance directory");
    }
    struct stat st;
    if (flock(tx->fd, LOCK_EX | LOCK_NB) != 0 || fstat(tx->fd, &st) != 0 || st.st_nlink == 0) {
        const int code = errno;
        unlinkat(tx->dir_fd, tmp_name, 0);
        close(tx->fd);
        tx->fd = -1;
        return qwp_fail(err, QWP_AGAIN, code, "cannot lock the new ring file");
    }
    return QWP_OK;
}

static enum qwp_result lock_pages(void *at, size_t bytes, struct qwp_error *err)
{
    if (mlock(at, bytes) == 0) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_NOMEM, errno,
                    "cannot lock %zu bytes of the ring in memory; raise the limit of locked memory "
                    "(ulimit -l) or open the ring without it",
                    bytes);
}

static enum qwp_result map_ring(struct qwp_ring_tx *tx, struct qwp_error *err)
{
    const uint64_t data_off = QWP_RING_STEP + tx->defs_bytes_max;
    const uint64_t file_bytes = data_off + tx->data_bytes;
    /* The sparse size first: definitions get their blocks step by step. */
    if (ftruncate(tx->fd, (off_t)file_bytes) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make the ring file %llu bytes long",
                        (unsigned long long)file_bytes);
    }
    tx->defs_reserved = QWP_RING_STEP;
    enum qwp_result result =
        qwp_file_reserve(tx->fd, data_off, tx->data_bytes, "the ring's data", err);
    if (result == QWP_OK) {
        result = qwp_file_reserve(tx->fd, 0, QWP_RING_STEP + tx->defs_reserved,
                                  "the ring's header and definitions", err);
    }
    if (result != QWP_OK) {
        return result;
    }
    tx->mapped_bytes = file_bytes + tx->data_bytes;
    unsigned char *base = qwp_file_map_twice(tx->fd, file_bytes, data_off, file_bytes, true);
    if (base == MAP_FAILED) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot map the ring (%zu bytes of addresses)",
                        tx->mapped_bytes);
    }
    tx->header = (struct qwp_ring_header *)base;
    tx->defs = base + QWP_RING_STEP;
    tx->data = base + data_off;
    /* A child's mapping would keep the file open, and so its lock, beyond our death. */
    if (madvise(base, tx->mapped_bytes, MADV_DONTFORK) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot keep the ring from forked children");
    }
    if (!qwp_file_prefault(base, QWP_RING_STEP + tx->defs_reserved, true, true) ||
        !qwp_file_prefault(tx->data, tx->data_bytes * 2, true, true)) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot get the ring's pages");
    }
    if (tx->lock_memory) {
        result = lock_pages(base, QWP_RING_STEP + tx->defs_reserved, err);
        /* One view is enough: pages that cannot be evicted stay in both. */
        return result != QWP_OK ? result : lock_pages(tx->data, tx->data_bytes, err);
    }
    return QWP_OK;
}

/* Not in the middle of a multi-byte character. */
static size_t cut_utf8(const char *text, size_t max)
{
    size_t len = strnlen(text, max + 1);
    if (len > max) {
        len = max;
        while (len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80) {
            len--;
        }
    }
    return len;
}

static void fill_header(struct qwp_ring_tx *tx, const char *name, bool membarrier)
{
    struct qwp_ring_header *header = tx->header;
    /* Plain order is enough: rename(2) publishes the file. */
    atomic_store_explicit(&header->major, QWP_RING_MAJOR, memory_order_relaxed);
    atomic_store_explicit(&header->minor, QWP_RING_MINOR, memory_order_relaxed);
    atomic_store_explicit(&header->header_bytes, (uint32_t)sizeof *header, memory_order_relaxed);
    atomic_store_explicit(&header->defs_off, QWP_RING_STEP, memory_order_relaxed);
    atomic_store_explicit(&header->defs_bytes_max, tx->defs_bytes_max, memory_order_relaxed);
    atomic_store_explicit(&header->data_off, QWP_RING_STEP + tx->defs_bytes_max,
                          memory_order_relaxed);
    atomic_store_explicit(&header->data_bytes, tx->data_bytes, memory_order_relaxed);
    atomic_store_explicit(&header->unit_bytes_max, tx->unit_bytes_max, memory_order_relaxed);
    atomic_store_explicit(&header->producer_pid, (uint32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&header->ring_id[0], qwp_random_u64(), memory_order_relaxed);
    atomic_store_explicit(&header->ring_id[1], qwp_random_u64(), memory_order_relaxed);
    atomic_store_explicit(&header->created_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                          memory_order_relaxed);
    atomic_store_explicit(&header->producer_flags, membarrier ? QWP_RING_MEMBARRIER : 0u,
                          memory_order_relaxed);
    memcpy(header->name, name, cut_utf8(name, sizeof header->name - 1));
    memcpy(header->library_version, QWP_VERSION,
           cut_utf8(QWP_VERSION, sizeof header->library_version - 1));
    atomic_store_explicit(&header->magic, QWP_RING_MAGIC, memory_order_release);
}

/* "<name>-<pid>-<hex>.ring" with a name that no shell or log trips over. */
static void choose_file_name(struct qwp_ring_tx *tx, const char *name)
{
    char stem[FILE_NAME_STEM_BYTES];
    size_t len = 0;
    for (; name[len] != '\0' && len + 1 < sizeof stem; len++) {
        const char c = name[len];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                           (c >= '0' && c <= '9') || c == '_' || c == '-' || (c == '.' && len > 0);
        stem[len] = c;
        if (!plain) {
            stem[len] = '_';
        }
    }
    stem[len] = '\0';
    snprintf(tx->file_name, sizeof tx->file_name, "%s-%ld-%08x" QWP_RING_SUFFIX,
             len > 0 ? stem : "producer", (long)getpid(), (unsigned)qwp_random_u64());
}

enum qwp_result qwp_ring_create(struct qwp_ring_tx *tx, int dir_fd,
                                const struct qwp_ring_options *options, struct qwp_error *err)
{
    static const struct qwp_ring_options defaults;
    options = options != NULL ? options : &defaults;
    *tx = (struct qwp_ring_tx){.fd = -1, .dir_fd = -1, .lock_memory = options->lock_memory};
    enum qwp_result result = choose_sizes(tx, options, err);
    if (result != QWP_OK) {
        return result;
    }
    tx->dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (tx->dir_fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot keep the instance directory open");
    }
    const char *name = options->name != NULL ? options->name : program_invocation_short_name;
    choose_file_name(tx, name);
    char tmp_name[QWP_FILE_NAME_BYTES];
    result = QWP_AGAIN;
    for (int i = 0; i < CREATE_TRIES && result == QWP_AGAIN; i++) {
        qwp_tmp_name(tmp_name, sizeof tmp_name);
        result = make_locked(tx, tmp_name, err);
    }
    if (result != QWP_OK) {
        result = result == QWP_AGAIN ? QWP_IO : result;
        goto fail;
    }
    /* Whatever the umask: the sidecar may be another user of the directory's group. */
    if (fchmod(tx->fd, FILE_MODE) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot set the ring file's mode");
        goto fail_made;
    }
    result = map_ring(tx, err);
    if (result != QWP_OK) {
        goto fail_made;
    }
    fill_header(tx, name, options->membarrier);
    if (renameat(tx->dir_fd, tmp_name, tx->dir_fd, tx->file_name) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot move the ring file into place as '%s'",
                          tx->file_name);
        goto fail_made;
    }
    return QWP_OK;

fail_made:
    unlinkat(tx->dir_fd, tmp_name, 0);
fail:
    qwp_ring_close_tx(tx);
    return result;
}

void qwp_ring_close_tx(struct qwp_ring_tx *tx)
{
    /* The mappings first: they hold the file, and with it the lock, as much as the descriptor. */
    if (tx->header != NULL) {
        munmap(tx->header, tx->mapped_bytes);
    }
    qwp_ring_forget_tx(tx);
}

void qwp_ring_forget_tx(struct qwp_ring_tx *tx)
{
    /* 0: a zeroed struct, never opened (qwp_fd_above_stdio). */
    if (tx->fd > 0) {
        close(tx->fd);
    }
    if (tx->dir_fd > 0) {
        close(tx->dir_fd);
    }
    *tx = (struct qwp_ring_tx){.fd = -1, .dir_fd = -1};
}

/* ---- definitions ---- */

/* Blocks up to defs_pos + bytes. */
static enum qwp_result reserve_defs(struct qwp_ring_tx *tx, uint64_t bytes, struct qwp_error *err)
{
    const uint64_t need = tx->defs_pos + bytes;
    if (need > tx->defs_bytes_max) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "the ring's definitions are full: %llu of %llu bytes used, %llu more "
                        "needed; open the ring with more room for definitions",
                        (unsigned long long)tx->defs_pos, (unsigned long long)tx->defs_bytes_max,
                        (unsigned long long)bytes);
    }
    if (need <= tx->defs_reserved) {
        return QWP_OK;
    }
    const uint64_t more = qwp_round_up(need, QWP_RING_STEP) - tx->defs_reserved;
    enum qwp_result result = qwp_file_reserve(tx->fd, QWP_RING_STEP + tx->defs_reserved, more,
                                              "more of the ring's definitions", err);
    if (result != QWP_OK) {
        return result;
    }
    unsigned char *at = tx->defs + tx->defs_reserved;
    if (!qwp_file_prefault(at, more, true, true)) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot get pages for definitions");
    }
    if (tx->lock_memory) {
        result = lock_pages(at, more, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    tx->defs_reserved += more;
    return QWP_OK;
}

/* Begins an entry at defs_pos; the area is zero beyond it, which is the padding. */
static enum qwp_result begin_def(struct qwp_ring_tx *tx, enum qwp_def_kind kind, size_t bytes,
                                 unsigned char **at, struct qwp_error *err)
{
    if (bytes > QWP_RING_DEF_BYTES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "a definition of %zu bytes is longer than %d", bytes,
                        QWP_RING_DEF_BYTES_MAX);
    }
    const uint32_t size = (uint32_t)qwp_round_up(bytes, QWP_RECORD_ALIGN);
    const enum qwp_result result = reserve_defs(tx, size, err);
    if (result != QWP_OK) {
        return result;
    }
    *at = tx->defs + tx->defs_pos;
    qwp_store_u32(*at, size);
    qwp_store_u16(*at + 4, (uint16_t)kind);
    return QWP_OK;
}

static void publish_def(struct qwp_ring_tx *tx, const unsigned char *at)
{
    tx->defs_pos += qwp_load_u32(at);
    /* sync[ring.defs] release: the entry is whole. Records that use it are published after it. */
    atomic_store_explicit(&tx->header->defs_tail, tx->defs_pos, memory_order_release);
}

enum qwp_result qwp_ring_define_symbol(struct qwp_ring_tx *tx, const char *text, size_t len,
                                       struct qwp_error *err)
{
    unsigned char *at;
    const size_t text_off = QWP_DEF_HEADER_BYTES + 4;
    if (len > QWP_RING_DEF_BYTES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0, "a symbol of %zu bytes is longer than %d", len,
                        QWP_RING_DEF_BYTES_MAX);
    }
    const enum qwp_result result = begin_def(tx, QWP_DEF_SYMBOL, text_off + len, &at, err);
    if (result != QWP_OK) {
        return result;
    }
    qwp_store_u32(at + QWP_DEF_HEADER_BYTES, (uint32_t)len);
    memcpy(at + text_off, text, len);
    publish_def(tx, at);
    tx->symbol_count++;
    return QWP_OK;
}

enum qwp_result qwp_ring_define_shape(struct qwp_ring_tx *tx, const struct qwp_shape *shape,
                                      struct qwp_error *err)
{
    if (tx->shape_count >= QWP_SHAPES_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "a ring has at most %d shapes (sets of columns); use fewer combinations of "
                        "columns or another producer",
                        QWP_SHAPES_MAX);
    }
    size_t bytes = QWP_DEF_HEADER_BYTES + 4 + shape->table.len;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        bytes += 3 + shape->columns[i].name.len;
    }
    unsigned char *at;
    const enum qwp_result result = begin_def(tx, QWP_DEF_SHAPE, bytes, &at, err);
    if (result != QWP_OK) {
        return result;
    }
    unsigned char *to = at + QWP_DEF_HEADER_BYTES;
    qwp_store_u16(to, shape->column_count);
    to[2] = shape->designated_type;
    to[3] = (unsigned char)shape->table.len;
    to += 4;
    memcpy(to, shape->table.text, shape->table.len);
    to += shape->table.len;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        const struct qwp_shape_column *column = &shape->columns[i];
        to[0] = column->type;
        to[1] = column->parameter;
        to[2] = (unsigned char)column->name.len;
        memcpy(to + 3, column->name.text, column->name.len);
        to += 3 + column->name.len;
    }
    QWP_ASSERT(to == at + bytes);
    publish_def(tx, at);
    tx->shape_count++;
    return QWP_OK;
}

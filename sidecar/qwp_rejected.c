#include "sidecar/qwp_rejected.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"
#include "core/qwp_crc32c.h"
#include "core/wire/qwp_message.h"
#include "core/wire/qwp_names.h"

enum { NAME_BYTES = 32 };

/* Global symbol id -> id within the file; open addressing. */
struct symbol_map {
    uint32_t *keys; /* id + 1; 0: free */
    uint32_t *values;
    uint32_t capacity, count;
};

struct qwp_rejected_file {
    struct qwp_rejected_file *next;
    char table[QWP_REJECTED_NAME_BYTES];
    uint32_t table_len;
    char name[NAME_BYTES];
    uint64_t bytes;
    bool dirty;
    bool ended; /* kept only until it is flushed */
    struct symbol_map map;
    unsigned char symbols_uuid[16]; /* what the keys of the map are ids of */
};

/* ---- symbols ---- */

static uint32_t *map_place(struct symbol_map *map, uint32_t id)
{
    uint32_t at = (id * UINT32_C(2654435761)) & (map->capacity - 1);
    while (map->keys[at] != 0 && map->keys[at] != id + 1) {
        at = (at + 1) & (map->capacity - 1);
    }
    return &map->keys[at];
}

static bool map_grow(struct symbol_map *map)
{
    if (map->count * 2 < map->capacity) {
        return true;
    }
    struct symbol_map bigger = {.capacity = map->capacity == 0 ? 64 : map->capacity * 2};
    bigger.keys = calloc(bigger.capacity, sizeof *bigger.keys);
    bigger.values = calloc(bigger.capacity, sizeof *bigger.values);
    if (bigger.keys == NULL || bigger.values == NULL) {
        free(bigger.keys);
        free(bigger.values);
        return false;
    }
    for (uint32_t i = 0; i < map->capacity; i++) {
        if (map->keys[i] != 0) {
            uint32_t *place = map_place(&bigger, map->keys[i] - 1);
            *place = map->keys[i];
            bigger.values[place - bigger.keys] = map->values[i];
        }
    }
    bigger.count = map->count;
    free(map->keys);
    free(map->values);
    *map = bigger;
    return true;
}

/* One entry in the making: symbols new with it get the next ids. */
struct numbering {
    struct qwp_rejected_file *file;
    struct qwp_bytes fresh; /* global ids, u32 each */
    bool failed;
};

static uint32_t number_symbol(void *owner, uint32_t id)
{
    struct numbering *numbering = owner;
    struct symbol_map *map = &numbering->file->map;
    if (!map_grow(map)) {
        numbering->failed = true;
        return 0;
    }
    uint32_t *place = map_place(map, id);
    const size_t at = (size_t)(place - map->keys);
    if (*place == 0) {
        *place = id + 1;
        map->values[at] = map->count++;
        qwp_bytes_put(&numbering->fresh, &id, sizeof id);
    }
    return map->values[at];
}

/* ---- folder ---- */

static const struct qwp_sys *sys_of(const struct qwp_rejected *rejected)
{
    return rejected->options.sys != NULL ? rejected->options.sys : &qwp_sys_real;
}

static bool is_rejected_name(const char *name, uint64_t *number)
{
    char *end;
    *number = strtoull(name, &end, 16);
    return end == name + 16 && strcmp(end, QWP_REJECTED_SUFFIX) == 0;
}

void qwp_rejected_recount(struct qwp_rejected *rejected)
{
    const struct qwp_sys *sys = sys_of(rejected);
    rejected->bytes_total = 0;
    if (rejected->dir_fd < 0) {
        return;
    }
    const int fd = qwp_sys_open(sys, rejected->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    DIR *dir = fd >= 0 ? sys->fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) {
            sys->close(fd);
        }
        return;
    }
    for (struct dirent *entry; (entry = sys->readdir(dir)) != NULL;) {
        uint64_t number;
        struct stat st;
        if (is_rejected_name(entry->d_name, &number)) {
            rejected->next_number =
                number >= rejected->next_number ? number + 1 : rejected->next_number;
            if (fstatat(rejected->dir_fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
                rejected->bytes_total += (uint64_t)st.st_size;
            }
        }
    }
    sys->closedir(dir);
}

/* Opens the folder, makes it if `make`. QWP_AGAIN: there is none. */
static enum qwp_result folder_open(struct qwp_rejected *rejected, bool make, struct qwp_error *err)
{
    const struct qwp_sys *sys = sys_of(rejected);
    if (rejected->dir_fd >= 0) {
        return QWP_OK;
    }
    if (make && sys->mkdirat(AT_FDCWD, rejected->dir, 0700) != 0 && errno != EEXIST) {
        return qwp_fail(err, QWP_IO, errno, "cannot make %s", rejected->dir);
    }
    rejected->dir_fd =
        qwp_sys_open(sys, AT_FDCWD, rejected->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (rejected->dir_fd < 0) {
        return !make && errno == ENOENT ? QWP_AGAIN
                                        : qwp_fail(err, QWP_IO, errno, "%s", rejected->dir);
    }
    rejected->dir_dirty = make;
    qwp_rejected_recount(rejected);
    return QWP_OK;
}

enum qwp_result qwp_rejected_open(struct qwp_rejected *rejected,
                                  const struct qwp_rejected_options *options, struct qwp_error *err)
{
    *rejected = (struct qwp_rejected){.options = *options, .dir_fd = -1};
    rejected->options.dir = NULL;
    rejected->dir = strdup(options->dir);
    if (rejected->dir == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory");
    }
    const enum qwp_result result = folder_open(rejected, false, err);
    return result == QWP_AGAIN ? QWP_OK : result;
}

/* ---- files ---- */

static struct qwp_rejected_file **file_of(struct qwp_rejected *rejected, struct qwp_name table)
{
    struct qwp_rejected_file **at = &rejected->files;
    while (*at != NULL && ((*at)->ended || !qwp_name_equal((*at)->table, (*at)->table_len,
                                                           table.text, table.len))) {
        at = &(*at)->next;
    }
    return at;
}

static void file_free(struct qwp_rejected_file *file)
{
    free(file->map.keys);
    free(file->map.values);
    free(file);
}

static void file_drop(struct qwp_rejected_file **at)
{
    struct qwp_rejected_file *file = *at;
    *at = file->next;
    file_free(file);
}

void qwp_rejected_close(struct qwp_rejected *rejected)
{
    while (rejected->files != NULL) {
        file_drop(&rejected->files);
    }
    if (rejected->dir != NULL && rejected->dir_fd >= 0) {
        sys_of(rejected)->close(rejected->dir_fd);
    }
    free(rejected->dir);
    *rejected = (struct qwp_rejected){.dir_fd = -1};
}

void qwp_rejected_end_table(struct qwp_rejected *rejected, struct qwp_name table)
{
    struct qwp_rejected_file **at = file_of(rejected, table);
    if (*at != NULL) {
        (*at)->ended = true;
    }
}

static void header_fill(const struct qwp_rejected *rejected, struct qwp_name table,
                        unsigned char *header)
{
    memset(header, 0, QWP_REJECTED_HEADER_BYTES);
    qwp_store_u64(header, QWP_REJECTED_MAGIC);
    qwp_store_u32(header + 8, QWP_REJECTED_VERSION);
    qwp_store_u32(header + 12, QWP_REJECTED_HEADER_BYTES);
    qwp_store_i64(header + QWP_REJECTED_CREATED_OFF, qwp_clock_wall_ns() / QWP_NS_PER_US);
    memcpy(header + QWP_REJECTED_UUID_OFF, rejected->options.slot_uuid, 16);
    qwp_store_u32(header + QWP_REJECTED_NAME_LEN_OFF, table.len);
    memcpy(header + QWP_REJECTED_NAME_OFF, table.text, table.len);
    qwp_store_u32(header + QWP_REJECTED_HEADER_CRC_OFF,
                  qwp_crc32c(0, header, QWP_REJECTED_HEADER_BYTES));
}

/* Writes at `off`. QWP_AGAIN: the file is locked or gone, its rows are being put back. */
static enum qwp_result file_write(struct qwp_rejected *rejected, const char *name, int flags,
                                  const void *bytes, size_t len, uint64_t off,
                                  struct qwp_error *err)
{
    const struct qwp_sys *sys = sys_of(rejected);
    const int fd = qwp_sys_open(sys, rejected->dir_fd, name, flags | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) {
        return errno == ENOENT
                   ? QWP_AGAIN
                   : qwp_fail(err, QWP_IO, errno, "cannot open %s/%s", rejected->dir, name);
    }
    enum qwp_result result = QWP_OK;
    struct stat st;
    if (sys->flock(fd, LOCK_EX | LOCK_NB) != 0 || sys->fstat(fd, &st) != 0 || st.st_nlink == 0) {
        result = QWP_AGAIN;
    } else if (qwp_sys_write_full(sys, fd, bytes, len, off) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot write %s/%s", rejected->dir, name);
    }
    sys->close(fd);
    return result;
}

static enum qwp_result file_begin(struct qwp_rejected *rejected, struct qwp_name table,
                                  struct qwp_rejected_file **out, struct qwp_error *err)
{
    QWP_ASSERT(table.len < QWP_REJECTED_NAME_BYTES);
    enum qwp_result result = folder_open(rejected, true, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_rejected_file *file = calloc(1, sizeof *file);
    if (file == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to set rows aside");
    }
    memcpy(file->table, table.text, table.len);
    file->table_len = table.len;
    snprintf(file->name, sizeof file->name, "%016" PRIx64 QWP_REJECTED_SUFFIX,
             rejected->next_number++);
    unsigned char header[QWP_REJECTED_HEADER_BYTES];
    header_fill(rejected, table, header);
    result = file_write(rejected, file->name, O_CREAT | O_EXCL, header, sizeof header, 0, err);
    if (result != QWP_OK) {
        file_free(file);
        return result;
    }
    file->bytes = sizeof header;
    rejected->bytes_total += sizeof header;
    rejected->dir_dirty = true;
    file->next = rejected->files;
    rejected->files = file;
    *out = file;
    return QWP_OK;
}

/* ---- entries ---- */

/* Symbols of the entry by their new ids. */
struct fresh {
    const struct qwp_rejected_source *source;
    const struct numbering *numbering;
    uint32_t start;
};

static struct qwp_name fresh_text(const void *owner, uint32_t index)
{
    const struct fresh *fresh = owner;
    uint32_t id;
    memcpy(&id, fresh->numbering->fresh.at + sizeof id * (index - fresh->start), sizeof id);
    return fresh->source->symbol_text(fresh->source->symbols, id);
}

/* Header, delta, blocks. */
static void message_build(struct qwp_rejected_file *file, const struct qwp_rejected_source *source,
                          struct qwp_bytes *message, struct numbering *numbering)
{
    if (source->opaque != NULL) {
        qwp_bytes_put(message, source->opaque, source->opaque_len);
        numbering->failed = message->failed;
        return;
    }
    const uint32_t start = file->map.count;
    struct qwp_bytes blocks = {0};
    const uint32_t block_count = source->blocks(source->owner, number_symbol, numbering, &blocks);
    const struct fresh fresh = {source, numbering, start};
    const uint32_t count = file->map.count - start;
    numbering->failed |= blocks.failed || numbering->fresh.failed;
    if (!numbering->failed) {
        const size_t delta = qwp_delta_size(start, count, fresh_text, &fresh);
        unsigned char *at = qwp_bytes_grow(message, QWP_HEADER_BYTES + delta);
        if (at != NULL) {
            at = qwp_message_begin(at, source->flags | QWP_FLAG_DELTA_DICT);
            qwp_delta_put(at, start, count, fresh_text, &fresh);
        }
        qwp_bytes_put(message, blocks.at, blocks.len);
        numbering->failed = message->failed || message->len > QWP_MESSAGE_BYTES_MAX;
    }
    if (!numbering->failed) {
        qwp_message_finish(message->at, (uint16_t)block_count, message->len);
    }
    qwp_bytes_fini(&blocks);
}

static void entry_build(const struct qwp_rejected_entry *entry, uint32_t symbols,
                        const struct qwp_bytes *message, struct qwp_bytes *out)
{
    const size_t text_len = strnlen(entry->text, QWP_REJECTED_TEXT_BYTES_MAX);
    const size_t producers_len = strnlen(entry->producers, QWP_REJECTED_PRODUCERS_BYTES_MAX);
    const size_t len = QWP_REJECTED_ENTRY_HEADER_BYTES + text_len + producers_len + message->len;
    const size_t whole = (size_t)qwp_round_up(len, 8);
    unsigned char *at = qwp_bytes_grow(out, whole);
    if (at == NULL) {
        return;
    }
    memset(at, 0, QWP_REJECTED_ENTRY_HEADER_BYTES);
    memset(at + len, 0, whole - len);
    qwp_store_u32(at + QWP_REJECTED_ENTRY_BYTES_OFF, (uint32_t)whole);
    at[QWP_REJECTED_STATUS_OFF] = entry->status;
    at[QWP_REJECTED_CAUSE_OFF] = entry->cause;
    qwp_store_u16(at + QWP_REJECTED_TEXT_LEN_OFF, (uint16_t)text_len);
    qwp_store_u64(at + QWP_REJECTED_FSN_OFF, entry->fsn);
    qwp_store_i64(at + QWP_REJECTED_TIME_OFF, qwp_clock_wall_ns() / QWP_NS_PER_US);
    qwp_store_u64(at + QWP_REJECTED_ROWS_OFF, entry->row_count);
    qwp_store_u32(at + QWP_REJECTED_SYMBOLS_OFF, symbols);
    qwp_store_u32(at + QWP_REJECTED_MESSAGE_LEN_OFF, (uint32_t)message->len);
    qwp_store_u16(at + QWP_REJECTED_PRODUCERS_LEN_OFF, (uint16_t)producers_len);
    unsigned char *body = at + QWP_REJECTED_ENTRY_HEADER_BYTES;
    memcpy(body, entry->text, text_len);
    memcpy(body + text_len, entry->producers, producers_len);
    memcpy(body + text_len + producers_len, message->at, message->len);
    qwp_store_u32(
        at, qwp_crc32c(0, at + QWP_REJECTED_ENTRY_BYTES_OFF, whole - QWP_REJECTED_ENTRY_BYTES_OFF));
}

static enum qwp_result append_to(struct qwp_rejected *rejected, struct qwp_rejected_file *file,
                                 const struct qwp_rejected_entry *entry,
                                 const struct qwp_rejected_source *source, struct qwp_error *err)
{
    const uint32_t symbols = file->map.count;
    struct numbering numbering = {.file = file};
    struct qwp_bytes message = {0};
    struct qwp_bytes bytes = {0};
    message_build(file, source, &message, &numbering);
    if (!numbering.failed) {
        entry_build(entry, symbols, &message, &bytes);
    }
    enum qwp_result result;
    if (numbering.failed || bytes.failed) {
        result = qwp_fail(err, QWP_NOMEM, 0, "no memory to set rows aside");
    } else {
        QWP_CRASH_POINT("rejected.writing");
        result = file_write(rejected, file->name, 0, bytes.at, bytes.len, file->bytes, err);
    }
    if (result == QWP_OK) {
        QWP_CRASH_POINT("rejected.written");
        file->bytes += bytes.len;
        file->dirty = true;
        rejected->bytes_total += bytes.len;
    } else {
        file->ended = true; /* symbols were numbered that no message brings */
    }
    qwp_bytes_fini(&numbering.fresh);
    qwp_bytes_fini(&message);
    qwp_bytes_fini(&bytes);
    return result;
}

enum qwp_result qwp_rejected_append(struct qwp_rejected *rejected,
                                    const struct qwp_rejected_entry *entry,
                                    const struct qwp_rejected_source *source, struct qwp_error *err)
{
    struct qwp_rejected_file *file = *file_of(rejected, entry->table);
    if (file != NULL && file->bytes < QWP_REJECTED_FILE_BYTES_MAX &&
        memcmp(file->symbols_uuid, source->symbols_uuid, sizeof file->symbols_uuid) == 0) {
        const enum qwp_result result = append_to(rejected, file, entry, source, err);
        if (result != QWP_AGAIN) {
            return result;
        }
    }
    qwp_rejected_end_table(rejected, entry->table);
    enum qwp_result result = file_begin(rejected, entry->table, &file, err);
    if (result == QWP_OK) {
        memcpy(file->symbols_uuid, source->symbols_uuid, sizeof file->symbols_uuid);
        result = append_to(rejected, file, entry, source, err);
    }
    return result == QWP_AGAIN
               ? qwp_fail(err, QWP_IO, 0, "%s/%s is gone", rejected->dir, file->name)
               : result;
}

static enum qwp_result file_flush(struct qwp_rejected *rejected, struct qwp_rejected_file *file,
                                  struct qwp_error *err)
{
    const struct qwp_sys *sys = sys_of(rejected);
    const int fd = qwp_sys_open(sys, rejected->dir_fd, file->name, O_WRONLY | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) {
        return QWP_OK; /* put back and removed meanwhile */
    }
    const int synced = fd < 0 ? -1 : qwp_sys_sync(sys, fd);
    const int error = errno;
    if (fd >= 0) {
        sys->close(fd);
    }
    return synced == 0
               ? QWP_OK
               : qwp_fail(err, QWP_IO, error, "cannot sync %s/%s", rejected->dir, file->name);
}

enum qwp_result qwp_rejected_flush(struct qwp_rejected *rejected, struct qwp_error *err)
{
    for (struct qwp_rejected_file *file = rejected->files; file != NULL; file = file->next) {
        if (file->dirty && rejected->options.durable) {
            const enum qwp_result result = file_flush(rejected, file, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        file->dirty = false;
    }
    for (struct qwp_rejected_file **at = &rejected->files; *at != NULL;) {
        if ((*at)->ended) {
            file_drop(at);
        } else {
            at = &(*at)->next;
        }
    }
    if (rejected->dir_dirty && rejected->options.durable &&
        qwp_sys_sync_dir(sys_of(rejected), rejected->dir_fd) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot sync %s", rejected->dir);
    }
    rejected->dir_dirty = false;
    return QWP_OK;
}

bool qwp_rejected_is_full(const struct qwp_rejected *rejected)
{
    return rejected->bytes_total >= rejected->options.bytes_max;
}

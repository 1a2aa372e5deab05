#include "sidecar/qwp_rejected_read.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crc32c.h"
#include "core/qwp_sys.h"
#include "core/wire/qwp_wire.h"
#include "sidecar/qwp_rejected.h"

/* No file of ours grows beyond: the bound, and one entry that may pass it. */
enum { FILE_BYTES_MAX = QWP_REJECTED_FILE_BYTES_MAX + 2 * QWP_MESSAGE_BYTES_MAX };

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static bool is_ours(const char *name)
{
    return strlen(name) == 16 + strlen(QWP_REJECTED_SUFFIX) &&
           strspn(name, "0123456789abcdef") == 16 && strcmp(name + 16, QWP_REJECTED_SUFFIX) == 0;
}

enum qwp_result qwp_rejected_names_read(struct qwp_rejected_names *names, const char *path,
                                        struct qwp_error *err)
{
    *names = (struct qwp_rejected_names){0};
    DIR *dir = opendir(path);
    if (dir == NULL) {
        return errno == ENOENT ? QWP_OK : qwp_fail(err, QWP_IO, errno, "cannot list %s", path);
    }
    enum qwp_result result = QWP_OK;
    size_t room = 0;
    for (struct dirent *entry; result == QWP_OK && (entry = readdir(dir)) != NULL;) {
        if (!is_ours(entry->d_name)) {
            continue;
        }
        if (names->count == room) {
            room = room == 0 ? 64 : room * 2;
            char(*list)[32] = realloc(names->list, room * sizeof *list);
            if (list == NULL) {
                result = qwp_fail(err, QWP_NOMEM, 0, "no memory to list %s", path);
                break;
            }
            names->list = list;
        }
        memcpy(names->list[names->count++], entry->d_name, strlen(entry->d_name) + 1);
    }
    closedir(dir);
    if (result == QWP_OK && names->count > 0) {
        qsort(names->list, names->count, sizeof *names->list, by_name);
    } else if (result != QWP_OK) {
        qwp_rejected_names_fini(names);
    }
    return result;
}

void qwp_rejected_names_fini(struct qwp_rejected_names *names)
{
    free(names->list);
    *names = (struct qwp_rejected_names){0};
}

/* ---- a file ---- */

static enum qwp_result header_check(struct qwp_rejected_content *content, const char *name,
                                    struct qwp_error *err)
{
    unsigned char header[QWP_REJECTED_HEADER_BYTES];
    if (content->len < sizeof header || qwp_load_u64(content->bytes) != QWP_REJECTED_MAGIC) {
        return qwp_fail(err, QWP_CORRUPT, 0, "%s: no file of refused rows", name);
    }
    memcpy(header, content->bytes, sizeof header);
    const uint32_t crc = qwp_load_u32(header + QWP_REJECTED_HEADER_CRC_OFF);
    qwp_store_u32(header + QWP_REJECTED_HEADER_CRC_OFF, 0);
    const uint32_t name_len = qwp_load_u32(header + QWP_REJECTED_NAME_LEN_OFF);
    if (qwp_load_u32(header + 8) != QWP_REJECTED_VERSION ||
        crc != qwp_crc32c(0, header, sizeof header) || name_len >= QWP_REJECTED_NAME_BYTES) {
        return qwp_fail(err, QWP_CORRUPT, 0, "%s: its header is damaged or of another version",
                        name);
    }
    content->created_us = qwp_load_i64(header + QWP_REJECTED_CREATED_OFF);
    memcpy(content->slot_uuid, header + QWP_REJECTED_UUID_OFF, sizeof content->slot_uuid);
    memcpy(content->table, header + QWP_REJECTED_NAME_OFF, name_len);
    content->table[name_len] = '\0';
    return QWP_OK;
}

static bool entry_parse(const struct qwp_rejected_content *content, size_t off,
                        struct qwp_rejected_item *item, size_t *next)
{
    const unsigned char *at = content->bytes + off;
    const size_t left = content->len - off;
    if (left < QWP_REJECTED_ENTRY_HEADER_BYTES) {
        return false;
    }
    const uint32_t whole = qwp_load_u32(at + QWP_REJECTED_ENTRY_BYTES_OFF);
    if (whole > left || whole < QWP_REJECTED_ENTRY_HEADER_BYTES || whole % 8 != 0 ||
        qwp_load_u32(at) != qwp_crc32c(0, at + QWP_REJECTED_ENTRY_BYTES_OFF,
                                       whole - QWP_REJECTED_ENTRY_BYTES_OFF)) {
        return false;
    }
    const char *body = (const char *)at + QWP_REJECTED_ENTRY_HEADER_BYTES;
    *item = (struct qwp_rejected_item){
        .off = off,
        .state = qwp_load_u32(at + QWP_REJECTED_STATE_OFF),
        .status = at[QWP_REJECTED_STATUS_OFF],
        .cause = at[QWP_REJECTED_CAUSE_OFF],
        .fsn = qwp_load_u64(at + QWP_REJECTED_FSN_OFF),
        .time_us = qwp_load_i64(at + QWP_REJECTED_TIME_OFF),
        .row_count = qwp_load_u64(at + QWP_REJECTED_ROWS_OFF),
        .symbols_before = qwp_load_u32(at + QWP_REJECTED_SYMBOLS_OFF),
        .text = body,
        .text_len = qwp_load_u16(at + QWP_REJECTED_TEXT_LEN_OFF),
        .producers_len = qwp_load_u16(at + QWP_REJECTED_PRODUCERS_LEN_OFF),
        .message_len = qwp_load_u32(at + QWP_REJECTED_MESSAGE_LEN_OFF),
    };
    const uint64_t used =
        (uint64_t)item->text_len + item->producers_len + (uint64_t)item->message_len;
    item->producers = body + item->text_len;
    item->message = (const unsigned char *)item->producers + item->producers_len;
    *next = off + whole;
    return used <= whole - QWP_REJECTED_ENTRY_HEADER_BYTES;
}

bool qwp_rejected_content_next(const struct qwp_rejected_content *content, size_t *off,
                               struct qwp_rejected_item *item)
{
    size_t next;
    const size_t at = *off == 0 ? QWP_REJECTED_HEADER_BYTES : *off;
    if (at >= content->end || !entry_parse(content, at, item, &next)) {
        return false;
    }
    *off = next;
    return true;
}

static enum qwp_result load(struct qwp_rejected_content *content, const char *name,
                            struct qwp_error *err)
{
    struct stat st;
    if (fstat(content->fd, &st) != 0) {
        return qwp_fail(err, QWP_IO, errno, "%s", name);
    }
    if (st.st_size > FILE_BYTES_MAX || st.st_nlink == 0) {
        return qwp_fail(err, QWP_CORRUPT, 0, "%s: %lld bytes, or just removed", name,
                        (long long)st.st_size);
    }
    content->bytes = malloc((size_t)st.st_size + 1);
    if (content->bytes == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to read %s", name);
    }
    const ssize_t len =
        qwp_sys_read_full(&qwp_sys_real, content->fd, content->bytes, (size_t)st.st_size, 0);
    if (len < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot read %s", name);
    }
    content->len = (size_t)len;
    const enum qwp_result result = header_check(content, name, err);
    if (result != QWP_OK) {
        return result;
    }
    struct qwp_rejected_item item;
    content->end = QWP_REJECTED_HEADER_BYTES;
    while (content->end < content->len &&
           entry_parse(content, content->end, &item, &content->end)) {
    }
    return QWP_OK;
}

enum qwp_result qwp_rejected_content_read(struct qwp_rejected_content *content, const char *dir,
                                          const char *name, bool lock, struct qwp_error *err)
{
    *content = (struct qwp_rejected_content){.fd = -1};
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    content->fd = open(path, (lock ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NOFOLLOW);
    if (content->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s", path);
    }
    enum qwp_result result = QWP_OK;
    if (lock && flock(content->fd, LOCK_EX | LOCK_NB) != 0) {
        result = qwp_fail(err, QWP_AGAIN, 0, "%s: somebody else is putting it back", path);
    }
    result = result == QWP_OK ? load(content, path, err) : result;
    if (result != QWP_OK) {
        qwp_rejected_content_fini(content);
    }
    return result;
}

void qwp_rejected_content_fini(struct qwp_rejected_content *content)
{
    if (content->bytes != NULL || content->fd > 0) {
        close(content->fd);
    }
    free(content->bytes);
    *content = (struct qwp_rejected_content){.fd = -1};
}

void qwp_rejected_content_count(const struct qwp_rejected_content *content, uint64_t *entries,
                                uint64_t *rows)
{
    struct qwp_rejected_item item;
    *entries = *rows = 0;
    for (size_t off = 0; qwp_rejected_content_next(content, &off, &item);) {
        *entries += item.state == QWP_REJECTED_ASIDE;
        *rows += item.state == QWP_REJECTED_ASIDE ? item.row_count : 0;
    }
}

enum qwp_result qwp_rejected_content_mark(struct qwp_rejected_content *content,
                                          const struct qwp_rejected_item *item,
                                          struct qwp_error *err)
{
    unsigned char state[4];
    qwp_store_u32(state, QWP_REJECTED_PUT_BACK);
    if (qwp_sys_write_full(&qwp_sys_real, content->fd, state, sizeof state,
                           item->off + QWP_REJECTED_STATE_OFF) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot mark rows as put back");
    }
    memcpy(content->bytes + item->off + QWP_REJECTED_STATE_OFF, state, sizeof state);
    return QWP_OK;
}

const char *qwp_rejected_cause_name(uint8_t cause)
{
    switch (cause) {
    case QWP_REJECTED_REFUSED:
        return "refused";
    case QWP_REJECTED_BLOCKED:
        return "table blocked";
    case QWP_REJECTED_TOO_BIG:
        return "row too large";
    case QWP_REJECTED_OPAQUE:
        return "refused, not readable";
    default:
        return "unknown";
    }
}

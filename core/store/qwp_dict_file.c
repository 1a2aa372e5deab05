#include "core/store/qwp_dict_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/qwp_crc32c.h"
#include "core/store/qwp_store_layout.h"
#include "core/wire/qwp_varint.h"

enum { DICT_FILE_BYTES_MAX = 256 * 1024 * 1024 };

/* The texts of one chunk, [at, end). False when they do not come out even. */
static bool chunk_texts_fit(const unsigned char *at, const unsigned char *end, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t len;
        at = qwp_varint_get(at, end, &len);
        if (at == NULL || len > (uint64_t)(end - at)) {
            return false;
        }
        at += len;
    }
    return at == end;
}

/* The byte after the chunk at `at`, or NULL when it cannot be trusted. */
static const unsigned char *chunk_check(const unsigned char *at, const unsigned char *end,
                                        const unsigned char **texts, uint64_t *count)
{
    uint64_t bytes;
    const unsigned char *p = qwp_varint_get(at, end, count);
    p = p == NULL ? NULL : qwp_varint_get(p, end, &bytes);
    if (p == NULL || *count == 0 || bytes > (uint64_t)(end - p) ||
        (uint64_t)(end - p) - bytes < 4) {
        return NULL;
    }
    const unsigned char *crc_at = p + bytes;
    if (qwp_load_u32(crc_at) != qwp_crc32c(0, at, (size_t)(crc_at - at)) ||
        !chunk_texts_fit(p, crc_at, *count)) {
        return NULL;
    }
    *texts = p;
    return crc_at + 4;
}

static enum qwp_result chunk_adopt(struct qwp_dict *dict, const unsigned char *at,
                                   const unsigned char *end, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t len = 0;
        at = qwp_varint_get(at, end, &len); /* chunk_check() saw that it works */
        const enum qwp_result result = qwp_dict_append(dict, (const char *)at, (size_t)len);
        if (result != QWP_OK) {
            return result;
        }
        at += len;
    }
    return QWP_OK;
}

static enum qwp_result bytes_adopt(struct qwp_dict *dict, const unsigned char *bytes, size_t len,
                                   uint64_t *trusted, struct qwp_error *err)
{
    *trusted = 0;
    if (len < QWP_DICT_FILE_HEADER_BYTES || qwp_load_u32(bytes) != QWP_DICT_FILE_MAGIC ||
        bytes[4] != QWP_DICT_FILE_VERSION) {
        return QWP_OK;
    }
    const unsigned char *at = bytes + QWP_DICT_FILE_HEADER_BYTES;
    const unsigned char *const end = bytes + len;
    const unsigned char *texts;
    const unsigned char *next;
    uint64_t count;
    while (at < end && (next = chunk_check(at, end, &texts, &count)) != NULL) {
        const enum qwp_result result = chunk_adopt(dict, texts, next - 4, count);
        if (result != QWP_OK) {
            return qwp_fail(err, result, 0, "%s holds more than %d symbols or than fit in memory",
                            QWP_DICT_FILE_NAME, QWP_DICT_IDS_MAX);
        }
        at = next;
    }
    *trusted = (uint64_t)(at - bytes);
    return QWP_OK;
}

enum qwp_result qwp_dict_file_load(const struct qwp_sys *sys, int dir_fd, struct qwp_dict *dict,
                                   uint64_t *trusted, uint64_t *size, struct qwp_error *err)
{
    *trusted = *size = 0;
    const int fd =
        qwp_sys_open(sys, dir_fd, QWP_DICT_FILE_NAME, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) {
        return QWP_OK;
    }
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s", QWP_DICT_FILE_NAME);
    }
    enum qwp_result result = QWP_OK;
    unsigned char *bytes = NULL;
    struct stat st;
    if (sys->fstat(fd, &st) != 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot look at %s", QWP_DICT_FILE_NAME);
        goto done;
    }
    if (st.st_size > DICT_FILE_BYTES_MAX) {
        result = qwp_fail(err, QWP_LIMIT, 0,
                          "%s has %lld bytes, more than the %d that a slot's "
                          "dictionary can need",
                          QWP_DICT_FILE_NAME, (long long)st.st_size, DICT_FILE_BYTES_MAX);
        goto done;
    }
    bytes = malloc((size_t)st.st_size + 1);
    if (bytes == NULL) {
        result = qwp_fail(err, QWP_NOMEM, 0, "no memory to read %s", QWP_DICT_FILE_NAME);
        goto done;
    }
    const ssize_t len = qwp_sys_read_full(sys, fd, bytes, (size_t)st.st_size, 0);
    if (len < 0) {
        result = qwp_fail(err, QWP_IO, errno, "cannot read %s", QWP_DICT_FILE_NAME);
        goto done;
    }
    *size = (uint64_t)st.st_size;
    result = bytes_adopt(dict, bytes, (size_t)len, trusted, err);
done:
    free(bytes);
    sys->close(fd);
    return result;
}

enum qwp_result qwp_dict_file_open(struct qwp_dict_file *file, const struct qwp_sys *sys,
                                   int dir_fd, uint64_t trusted, uint32_t saved_count,
                                   struct qwp_error *err)
{
    *file = (struct qwp_dict_file){.fd = -1, .end_off = trusted, .saved_count = saved_count};
    file->fd = qwp_sys_open(sys, dir_fd, QWP_DICT_FILE_NAME,
                            O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (file->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make %s", QWP_DICT_FILE_NAME);
    }
    if (sys->ftruncate(file->fd, (off_t)trusted) != 0) {
        qwp_fail(err, QWP_IO, errno, "cannot cut %s to %llu bytes", QWP_DICT_FILE_NAME,
                 (unsigned long long)trusted);
        goto fail;
    }
    if (trusted == 0) {
        unsigned char header[QWP_DICT_FILE_HEADER_BYTES] = {0};
        qwp_store_u32(header, QWP_DICT_FILE_MAGIC);
        header[4] = QWP_DICT_FILE_VERSION;
        if (qwp_sys_write_full(sys, file->fd, header, sizeof header, 0) != 0) {
            qwp_fail(err, QWP_IO, errno, "cannot write %s", QWP_DICT_FILE_NAME);
            goto fail;
        }
        file->end_off = sizeof header;
    }
    return QWP_OK;
fail:
    sys->close(file->fd);
    file->fd = -1;
    return QWP_IO;
}

void qwp_dict_file_close(struct qwp_dict_file *file, const struct qwp_sys *sys)
{
    if (file->fd > 0) {
        sys->close(file->fd);
    }
    free(file->scratch);
    *file = (struct qwp_dict_file){.fd = -1};
}

static enum qwp_result scratch_make(struct qwp_dict_file *file, const struct qwp_dict *dict,
                                    uint32_t count, size_t *len)
{
    size_t texts = 0;
    for (uint32_t id = file->saved_count; id < count; id++) {
        const uint32_t text_len = qwp_dict_text(dict, id).len;
        texts += qwp_varint_size(text_len) + text_len;
    }
    const size_t room = texts + 2 * QWP_VARINT_BYTES_MAX + 4;
    if (room > file->scratch_room) {
        unsigned char *scratch = realloc(file->scratch, room);
        if (scratch == NULL) {
            return QWP_NOMEM;
        }
        file->scratch = scratch;
        file->scratch_room = room;
    }
    unsigned char *at = qwp_varint_put(file->scratch, count - file->saved_count);
    at = qwp_varint_put(at, texts);
    for (uint32_t id = file->saved_count; id < count; id++) {
        const struct qwp_name text = qwp_dict_text(dict, id);
        at = qwp_varint_put(at, text.len);
        memcpy(at, text.text, text.len);
        at += text.len;
    }
    qwp_store_u32(at, qwp_crc32c(0, file->scratch, (size_t)(at - file->scratch)));
    *len = (size_t)(at - file->scratch) + 4;
    return QWP_OK;
}

enum qwp_result qwp_dict_file_append(struct qwp_dict_file *file, const struct qwp_sys *sys,
                                     const struct qwp_dict *dict, struct qwp_error *err)
{
    const uint32_t count = qwp_dict_count(dict);
    if (count == file->saved_count) {
        return QWP_OK;
    }
    size_t len;
    if (scratch_make(file, dict, count, &len) != QWP_OK) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u new symbols",
                        count - file->saved_count);
    }
#ifdef QWP_CRASH_POINTS
    if (qwp_crash_armed) { /* in two, so that the point lies within the chunk */
        (void)!pwrite(file->fd, file->scratch, len / 2, (off_t)file->end_off);
    }
#endif
    QWP_CRASH_POINT("dict.partial");
    if (qwp_sys_write_full(sys, file->fd, file->scratch, len, file->end_off) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot append %u symbols to %s",
                        count - file->saved_count, QWP_DICT_FILE_NAME);
    }
    file->end_off += len;
    file->saved_count = count;
    atomic_store_explicit(&file->appends,
                          atomic_load_explicit(&file->appends, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    QWP_CRASH_POINT("dict.appended");
    return QWP_OK;
}

#include "core/store/qwp_segment.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crc32c.h"

/* Small enough to be in the cache still when its CRC is taken [reading 4 GiB: 0.9 s of CPU with
 * 64 KiB, 2.6 s with 1 MiB]. */
enum { WINDOW_BYTES = 128 * 1024 };

/* A stretch of the file in memory. */
struct window {
    const struct qwp_sys *sys;
    int fd;
    uint64_t file_bytes;
    unsigned char *bytes;
    size_t room;
    uint64_t off; /* of bytes[0] in the file */
    size_t len;
};

/* Makes [off, off + len) of the file readable at *at; the range lies within the file. What the
 * window has of it already is not read again. */
static enum qwp_result window_move(struct window *window, uint64_t off, size_t len,
                                   const unsigned char **at)
{
    if (off < window->off || off + len > window->off + window->len) {
        if (len > window->room) {
            unsigned char *bytes = realloc(window->bytes, len);
            if (bytes == NULL) {
                return QWP_NOMEM;
            }
            window->bytes = bytes;
            window->room = len;
        }
        const uint64_t end = window->off + window->len;
        const size_t kept = off >= window->off && off < end ? (size_t)(end - off) : 0;
        if (kept > 0) {
            memmove(window->bytes, window->bytes + (off - window->off), kept);
        }
        const uint64_t left = window->file_bytes - off;
        const size_t want = (left < window->room ? (size_t)left : window->room) - kept;
        ssize_t n =
            qwp_sys_read_full(window->sys, window->fd, window->bytes + kept, want, off + kept);
        if (n < 0 && want > len - kept) { /* what comes behind may be what cannot be read */
            n = qwp_sys_read_full(window->sys, window->fd, window->bytes + kept, len - kept,
                                  off + kept);
        }
        window->len = 0;
        if (n < 0 || (size_t)n + kept < len) {
            errno = n < 0 ? errno : EIO; /* it shrank under our hands */
            return QWP_IO;
        }
        window->off = off;
        window->len = (size_t)n + kept;
    }
    *at = window->bytes + (off - window->off);
    return QWP_OK;
}

uint32_t qwp_frame_crc(bool light, const unsigned char *payload, uint32_t len, uint64_t fsn)
{
    unsigned char witness[12];
    qwp_store_u32(witness, len);
    if (!light) {
        return qwp_crc32c(qwp_crc32c(0, witness, 4), payload, len);
    }
    qwp_store_u64(witness + 4, fsn);
    const uint32_t crc = qwp_crc32c(0, witness, sizeof witness);
    if (len <= 2 * QWP_FRAME_SAMPLE_BYTES) {
        return qwp_crc32c(crc, payload, len);
    }
    return qwp_crc32c(qwp_crc32c(crc, payload, QWP_FRAME_SAMPLE_BYTES),
                      payload + len - QWP_FRAME_SAMPLE_BYTES, QWP_FRAME_SAMPLE_BYTES);
}

void qwp_segment_put_header(unsigned char *map, uint8_t flags, uint64_t base, int64_t now_us)
{
    qwp_store_u32(map, QWP_SEGMENT_MAGIC);
    map[QWP_SEGMENT_VERSION_OFF] = QWP_SEGMENT_VERSION;
    map[QWP_SEGMENT_FLAGS_OFF] = flags;
    qwp_store_u16(map + 6, 0);
    qwp_store_u64(map + QWP_SEGMENT_BASE_OFF, base);
    qwp_store_i64(map + QWP_SEGMENT_CREATED_OFF, now_us);
}

static bool header_take(const unsigned char *at, struct qwp_scan *scan)
{
    scan->base = qwp_load_u64(at + QWP_SEGMENT_BASE_OFF);
    scan->flags = at[QWP_SEGMENT_FLAGS_OFF];
    return qwp_load_u32(at) == QWP_SEGMENT_MAGIC &&
           at[QWP_SEGMENT_VERSION_OFF] == QWP_SEGMENT_VERSION &&
           (scan->flags & ~QWP_SEGMENT_FLAGS_KNOWN) == 0 && scan->base <= INT64_MAX;
}

/* *len of the frame at scan->end_off, or 0 when there is no good one. */
static enum qwp_result frame_check(struct window *window, const struct qwp_scan *scan,
                                   uint32_t *len, const unsigned char **payload)
{
    *len = 0;
    const uint64_t left = scan->bytes - scan->end_off;
    const unsigned char *at;
    if (left <= QWP_FRAME_HEADER_BYTES) {
        return QWP_OK;
    }
    enum qwp_result result = window_move(window, scan->end_off, QWP_FRAME_HEADER_BYTES, &at);
    if (result != QWP_OK) {
        return result;
    }
    const uint32_t said = qwp_load_u32(at + QWP_FRAME_LENGTH_OFF);
    if (said == 0 || said > INT32_MAX || said > left - QWP_FRAME_HEADER_BYTES) {
        return QWP_OK;
    }
    result = window_move(window, scan->end_off, QWP_FRAME_HEADER_BYTES + (size_t)said, &at);
    if (result != QWP_OK) {
        return result;
    }
    if (qwp_load_u32(at) == qwp_frame_crc((scan->flags & QWP_SEGMENT_LIGHT) != 0,
                                          at + QWP_FRAME_HEADER_BYTES, said,
                                          scan->base + scan->frame_count)) {
        *len = said;
        *payload = at + QWP_FRAME_HEADER_BYTES;
    }
    return QWP_OK;
}

static enum qwp_result tail_check(struct window *window, struct qwp_scan *scan)
{
    const uint64_t left = scan->bytes - scan->end_off;
    const size_t look = left < 8 ? (size_t)left : 8;
    const unsigned char *at;
    uint64_t tail = 0;
    if (look > 0) {
        const enum qwp_result result = window_move(window, scan->end_off, look, &at);
        if (result != QWP_OK) {
            return result;
        }
        memcpy(&tail, at, look);
    }
    scan->torn = tail != 0;
    scan->open = scan->torn && (uint32_t)tail == 0; /* the CRC is the first field and stored last */
    return QWP_OK;
}

/* Up to `bytes_max` bytes, but at least one frame. */
static enum qwp_result frames_walk(struct window *window, struct qwp_scan *scan, uint64_t bytes_max,
                                   qwp_scan_frame_fn on_frame, void *owner, bool *ended)
{
    const uint64_t from = scan->end_off;
    *ended = false;
    do {
        uint32_t len;
        const unsigned char *payload = NULL;
        enum qwp_result result = frame_check(window, scan, &len, &payload);
        if (result != QWP_OK) {
            return result;
        }
        if (len == 0) {
            *ended = true;
            return tail_check(window, scan);
        }
        if (on_frame != NULL) {
            result = on_frame(owner, scan->base + scan->frame_count, payload, len);
            if (result != QWP_OK) {
                return result;
            }
        }
        scan->frame_count++;
        scan->payload_bytes += len;
        scan->end_off += QWP_FRAME_HEADER_BYTES + (uint64_t)len;
    } while (scan->end_off - from < bytes_max);
    return QWP_OK;
}

enum qwp_result qwp_segment_scan_on(const struct qwp_sys *sys, int fd, struct qwp_scan *scan,
                                    uint64_t bytes_max, qwp_scan_frame_fn on_frame, void *owner,
                                    bool *ended)
{
    struct window window = {.sys = sys, .fd = fd, .file_bytes = scan->bytes, .room = WINDOW_BYTES};
    window.bytes = malloc(window.room);
    if (window.bytes == NULL) {
        return QWP_NOMEM;
    }
    const enum qwp_result result = frames_walk(&window, scan, bytes_max, on_frame, owner, ended);
    const int error = errno;
    free(window.bytes);
    errno = error;
    return result;
}

/* *at: the bytes behind the header, as far as they were read. */
static enum qwp_result header_read(const struct qwp_sys *sys, int fd, struct qwp_scan *scan,
                                   unsigned char *at, size_t room, size_t *len)
{
    *scan = (struct qwp_scan){0};
    struct stat st;
    if (sys->fstat(fd, &st) != 0) {
        return QWP_IO;
    }
    scan->bytes = (uint64_t)st.st_size;
    scan->end_off = QWP_SEGMENT_HEADER_BYTES;
    *len = scan->bytes < room ? (size_t)scan->bytes : room;
    if (scan->bytes < QWP_SEGMENT_HEADER_BYTES) {
        scan->header_bad = true;
        return QWP_OK;
    }
    const ssize_t n = qwp_sys_read_full(sys, fd, at, *len, 0);
    if (n < (ssize_t)*len) {
        errno = n < 0 ? errno : EIO; /* it shrank under our hands */
        return QWP_IO;
    }
    scan->header_bad = !header_take(at, scan);
    return QWP_OK;
}

enum qwp_result qwp_segment_scan(const struct qwp_sys *sys, int fd, struct qwp_scan *scan,
                                 qwp_scan_frame_fn on_frame, void *owner)
{
    unsigned char header[QWP_SEGMENT_HEADER_BYTES];
    size_t len;
    const enum qwp_result result = header_read(sys, fd, scan, header, sizeof header, &len);
    bool ended;
    return result != QWP_OK || scan->header_bad
               ? result
               : qwp_segment_scan_on(sys, fd, scan, UINT64_MAX, on_frame, owner, &ended);
}

enum qwp_result qwp_segment_look(const struct qwp_sys *sys, int fd, struct qwp_scan *scan)
{
    unsigned char start[QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES];
    size_t len;
    const enum qwp_result result = header_read(sys, fd, scan, start, sizeof start, &len);
    if (result != QWP_OK || scan->header_bad) {
        return result;
    }
    const unsigned char *frame = start + QWP_SEGMENT_HEADER_BYTES;
    if (len == sizeof start && scan->bytes > sizeof start && qwp_load_u32(frame) != 0) {
        const uint32_t said = qwp_load_u32(frame + QWP_FRAME_LENGTH_OFF);
        scan->unchecked = said != 0 && said <= INT32_MAX && said <= scan->bytes - sizeof start;
    }
    return scan->unchecked ? QWP_OK : qwp_segment_scan(sys, fd, scan, NULL, NULL);
}

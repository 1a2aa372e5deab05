#include "clients/c/feed/qwp_feed_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clients/c/feed/qwp_feed_csv.h"
#include "clients/c/feed/qwp_feed_ilp.h"
#include "clients/c/feed/qwp_feed_scan.h"

static const char *path_of(const struct qwp_feed_reader *r)
{
    const char *path = r->options.paths[r->file];
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

/* ---- cutting ---- */

static uint64_t count_lines(const char *at, const char *end)
{
    uint64_t n = 0;
    while ((at = memchr(at, '\n', (size_t)(end - at))) != NULL) {
        n++;
        at++;
    }
    return n;
}

size_t qwp_feed_cut(enum qwp_feed_format format, char delimiter, const char *data, size_t len,
                    uint64_t *lines)
{
    const char *end = data + len;
    const char *record = data;
    const char *at = data;
    *lines = 0;
    for (;;) {
        at = qwp_feed_find(at, end, '\n', '"', '"');
        if (at == end) {
            return (size_t)(record - data);
        }
        /* A line end may be escaped, or lie within quotes that began in this record. */
        if (*at == '\n' && !(format == QWP_FEED_ILP && at > record && at[-1] == '\\')) {
            record = ++at;
            ++*lines;
            continue;
        }
        const size_t left = (size_t)(end - record);
        const size_t n = format == QWP_FEED_ILP ? qwp_feed_ilp_record(record, left)
                                                : qwp_feed_csv_record(record, left, delimiter);
        if (n == 0) {
            return (size_t)(record - data);
        }
        *lines += count_lines(record, record + n);
        record += n;
        at = record;
    }
}

/* ---- files ---- */

static bool is_stdin(const struct qwp_feed_reader *r)
{
    return strcmp(r->options.paths[r->file], "-") == 0;
}

static enum qwp_result open_file(struct qwp_feed_reader *r, struct qwp_error *err)
{
    const int fd =
        is_stdin(r) ? dup(STDIN_FILENO) : open(r->options.paths[r->file], O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        const int why = errno;
        if (fd >= 0) {
            close(fd);
        }
        return qwp_fail(err, QWP_IO, why, "cannot open %s", path_of(r));
    }
    if (S_ISDIR(st.st_mode)) {
        close(fd);
        return qwp_fail(err, QWP_INVALID, 0, "%s is a directory", path_of(r));
    }
    r->fd = fd;
    r->regular = S_ISREG(st.st_mode);
    r->at_start = true;
    r->offset = 0;
    r->place = r->options.format == QWP_FEED_QWPB ? 0 : 1;
    r->ids = (struct qwp_feed_qwpb_ids){0};
    if (r->options.format == QWP_FEED_QWPB && r->logged_file != r->file) {
        r->generation++;
        r->definitions_start = r->definitions_end;
        r->logged_ids = (struct qwp_feed_qwpb_ids){0};
        r->logged_file = r->file;
    }
    if (r->options.follow && r->regular && r->inotify_fd >= 0) {
        /* Without it the file is looked at every wait. */
        (void)!inotify_add_watch(r->inotify_fd, r->options.paths[r->file],
                                 IN_MODIFY | IN_ATTRIB | IN_MOVE_SELF | IN_DELETE_SELF);
    }
    return QWP_OK;
}

static void close_file(struct qwp_feed_reader *r)
{
    if (r->fd >= 0) {
        close(r->fd);
    }
    r->fd = -1;
}

/* The next file, or the next pass; r->finished when there is none, or nothing in any of them. */
static enum qwp_result next_file(struct qwp_feed_reader *r, struct qwp_error *err)
{
    if (++r->file == r->options.path_count) {
        r->pass++;
        if (r->pass == r->options.repeat || r->bytes == r->pass_bytes) {
            r->finished = true;
            return QWP_OK;
        }
        r->pass_bytes = r->bytes;
        r->file = 0;
    }
    return open_file(r, err);
}

enum qwp_result qwp_feed_reader_open(struct qwp_feed_reader *r,
                                     const struct qwp_feed_reader_options *options,
                                     struct qwp_error *err)
{
    *r = (struct qwp_feed_reader){.options = *options,
                                  .fd = -1,
                                  .inotify_fd = -1,
                                  .definitions_fd = -1,
                                  .logged_file = UINT32_MAX};
    if (options->format == QWP_FEED_QWPB) {
        r->definitions_fd = memfd_create("qwp-feed definitions", MFD_CLOEXEC);
        if (r->definitions_fd < 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot make a memory file");
        }
    }
    if (options->follow) {
        r->inotify_fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    }
    return open_file(r, err);
}

void qwp_feed_reader_close(struct qwp_feed_reader *r)
{
    close_file(r);
    if (r->inotify_fd >= 0) {
        close(r->inotify_fd);
    }
    if (r->definitions_fd >= 0) {
        close(r->definitions_fd);
    }
    free(r->carry);
    free(r->header);
    *r = (struct qwp_feed_reader){.fd = -1, .inotify_fd = -1, .definitions_fd = -1};
}

uint64_t qwp_feed_reader_total(const struct qwp_feed_reader *r)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < r->options.path_count; i++) {
        struct stat st;
        if (r->options.follow || r->options.repeat == 0 || stat(r->options.paths[i], &st) < 0 ||
            !S_ISREG(st.st_mode)) {
            return 0;
        }
        total += (uint64_t)st.st_size * r->options.repeat;
    }
    return total;
}

/* ---- waiting for more ---- */

/* A followed file was replaced or cut short: begin again with what is there now. */
static enum qwp_result look_again(struct qwp_feed_reader *r, struct qwp_error *err)
{
    struct stat now;
    struct stat open_st;
    if (stat(r->options.paths[r->file], &now) < 0 || fstat(r->fd, &open_st) < 0) {
        return QWP_OK; /* moved away; perhaps a new one comes */
    }
    const bool replaced = now.st_ino != open_st.st_ino || now.st_dev != open_st.st_dev;
    if (!replaced && (uint64_t)open_st.st_size >= r->offset) {
        return QWP_OK;
    }
    r->carry_len = 0;
    r->logged_file = UINT32_MAX;
    close_file(r);
    return open_file(r, err);
}

static void wait_for_change(struct qwp_feed_reader *r, int wait_ms)
{
    struct pollfd fd = {.fd = r->inotify_fd, .events = POLLIN};
    if (poll(&fd, r->inotify_fd >= 0, wait_ms) > 0) {
        char events[4096];
        (void)!read(r->inotify_fd, events, sizeof events);
    }
}

/* Whether a pipe or terminal has something to read (or its end) within wait_ms. */
static bool readable(const struct qwp_feed_reader *r, int wait_ms)
{
    struct pollfd fd = {.fd = r->fd, .events = POLLIN};
    return r->regular || poll(&fd, 1, wait_ms) > 0;
}

/* ---- filling ---- */

static enum qwp_result read_some(struct qwp_feed_reader *r, char *to, size_t n, size_t *got,
                                 struct qwp_error *err)
{
    for (;;) {
        const ssize_t k = read(r->fd, to, n);
        if (k >= 0) {
            *got = (size_t)k;
            r->offset += (uint64_t)k;
            return QWP_OK;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
            *got = 0;
            return QWP_AGAIN;
        }
        return qwp_fail(err, QWP_IO, errno, "cannot read %s", path_of(r));
    }
}

static bool keep_carry(struct qwp_feed_reader *r, const char *data, size_t len)
{
    if (len > r->carry_room) {
        free(r->carry);
        r->carry = malloc(len * 2);
        r->carry_room = r->carry != NULL ? len * 2 : 0;
    }
    if (len > r->carry_room) {
        return false;
    }
    if (len > 0) {
        memcpy(r->carry, data, len);
    }
    r->carry_len = len;
    return true;
}

/* What every file begins with is taken off: a byte order mark, the QWPB header, the CSV header.
 * Returns how much, 0 with *more when too little has been read to tell. */
static enum qwp_result file_start(struct qwp_feed_reader *r, const char *data, size_t len,
                                  bool at_end, size_t *taken, bool *more, struct qwp_error *err)
{
    *taken = 0;
    *more = false;
    if (r->options.format == QWP_FEED_QWPB) {
        if (len < QWP_FEED_QWPB_HEADER_BYTES) {
            *more = !at_end;
            return at_end ? qwp_fail(err, QWP_INVALID, 0,
                                     "%s: offset %zu: the file ends in its header", path_of(r), len)
                          : QWP_OK;
        }
        const enum qwp_result result = qwp_feed_qwpb_header(data, err);
        if (result != QWP_OK) {
            qwp_error_prefix(err, "%s: offset 0", path_of(r));
            return result;
        }
        *taken = QWP_FEED_QWPB_HEADER_BYTES;
        r->place = QWP_FEED_QWPB_HEADER_BYTES;
        return QWP_OK;
    }
    const size_t mark = len >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (len < 3 + r->header_len && !at_end) {
        *more = true;
        return QWP_OK;
    }
    if (r->header_len > 0) {
        if (len < mark + r->header_len || memcmp(data + mark, r->header, r->header_len) != 0) {
            return qwp_fail(err, QWP_INVALID, 0,
                            "%s: line 1: the header is not that of the first file", path_of(r));
        }
        r->place += count_lines(r->header, r->header + r->header_len);
    }
    *taken = mark + r->header_len;
    return QWP_OK;
}

static enum qwp_result log_definition(struct qwp_feed_reader *r, const char *record, size_t len,
                                      struct qwp_error *err)
{
    while (len > 0) {
        const ssize_t k = pwrite(r->definitions_fd, record, len, (off_t)r->definitions_end);
        if (k < 0 && errno == EINTR) {
            continue;
        }
        if (k <= 0) {
            return qwp_fail(err, QWP_IO, errno, "no memory for the file's definitions");
        }
        record += k;
        len -= (size_t)k;
        r->definitions_end += (uint64_t)k;
    }
    return QWP_OK;
}

/* Whole QWPB records in `data`, their definitions logged. */
static enum qwp_result cut_qwpb(struct qwp_feed_reader *r, const char *data, size_t len,
                                size_t *used, struct qwp_error *err)
{
    size_t at = 0;
    enum qwp_result result = QWP_OK;
    while (at < len && result == QWP_OK) {
        size_t n;
        result = qwp_feed_qwpb_record(data + at, len - at, &n, err);
        if (result != QWP_OK) {
            break;
        }
        const bool is_string = data[at] == QWP_FEED_QWPB_STRING;
        if (data[at] != QWP_FEED_QWPB_ROW) {
            uint32_t *id = is_string ? &r->ids.strings : &r->ids.schemas;
            uint32_t *logged = is_string ? &r->logged_ids.strings : &r->logged_ids.schemas;
            if (*id == *logged) { /* not when the file is read another time */
                result = log_definition(r, data + at, n, err);
                ++*logged;
            }
            ++*id;
        }
        at += n;
    }
    *used = at;
    if (result == QWP_INVALID) {
        qwp_error_prefix(err, "%s: offset %llu", path_of(r), (unsigned long long)(r->place + at));
    }
    return result == QWP_AGAIN ? QWP_OK : result;
}

static enum qwp_result cut(struct qwp_feed_reader *r, const char *data, size_t len, bool at_end,
                           bool full, size_t *used, uint64_t *lines, struct qwp_error *err)
{
    *lines = 0;
    if (r->options.format == QWP_FEED_QWPB) {
        const enum qwp_result result = cut_qwpb(r, data, len, used, err);
        if (result == QWP_OK && *used < len && (at_end || (full && *used == 0))) {
            return qwp_fail(err, QWP_INVALID, 0, "%s: offset %llu: %s", path_of(r),
                            (unsigned long long)(r->place + *used),
                            at_end ? "the file ends within a record" : "a record is too large");
        }
        return result;
    }
    *used = qwp_feed_cut(r->options.format, r->options.delimiter, data, len, lines);
    if (at_end) { /* the last line needs no end, and a quote left open is the parser's to tell */
        *used = len;
        return QWP_OK;
    }
    if (full && *used == 0) { /* a quote left open: give the parser its line to complain about */
        const char *line_end = memchr(data, '\n', len);
        if (line_end == NULL) {
            return qwp_fail(err, QWP_LIMIT, 0, "%s: line %llu: longer than %d bytes", path_of(r),
                            (unsigned long long)r->place, QWP_FEED_RECORD_BYTES_MAX);
        }
        *used = (size_t)(line_end - data) + 1;
        *lines = 1;
    }
    return QWP_OK;
}

/* Reads until `target` bytes are there or no more comes at once. */
static enum qwp_result gather(struct qwp_feed_reader *r, char *data, size_t target, int wait_ms,
                              size_t *have, bool *at_end, struct qwp_error *err)
{
    int wait = wait_ms;
    *at_end = false;
    while (*have < target) {
        if (!readable(r, wait)) {
            return QWP_AGAIN;
        }
        size_t got = 0;
        const enum qwp_result result = read_some(r, data + *have, target - *have, &got, err);
        if (result != QWP_OK) {
            return result;
        }
        *have += got;
        if (got == 0) {
            *at_end = true;
            return QWP_OK;
        }
        wait = 0;
    }
    return QWP_OK;
}

static enum qwp_result take_start(struct qwp_feed_reader *r, char *data, size_t *have, bool at_end,
                                  bool *more, struct qwp_error *err)
{
    size_t taken;
    const enum qwp_result result = file_start(r, data, *have, at_end, &taken, more, err);
    if (result != QWP_OK || *more) {
        return result;
    }
    r->at_start = false;
    *have -= taken;
    memmove(data, data + taken, *have);
    return QWP_OK;
}

enum qwp_result qwp_feed_reader_fill(struct qwp_feed_reader *r, char *data, size_t target,
                                     size_t room, int wait_ms, struct qwp_feed_block *block,
                                     struct qwp_error *err)
{
    const size_t full_bytes = room - QWP_FEED_SLACK_BYTES;
    size_t have = 0;
    while (!r->finished) {
        bool at_end;
        if (r->fd < 0) {
            const enum qwp_result opened = next_file(r, err);
            if (opened != QWP_OK || r->finished) {
                return opened != QWP_OK ? opened : QWP_CLOSED;
            }
        }
        if (r->carry_len > 0) {
            memcpy(data, r->carry, r->carry_len);
            have = r->carry_len;
            r->carry_len = 0;
        }
        enum qwp_result result = gather(r, data, target, wait_ms, &have, &at_end, err);
        if (result != QWP_OK && result != QWP_AGAIN) {
            return result;
        }
        const bool dry = result == QWP_AGAIN || (at_end && r->options.follow);
        const bool last = at_end && !r->options.follow;
        bool more = false;
        if (r->at_start) {
            result = take_start(r, data, &have, last, &more, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        size_t used = 0;
        uint64_t lines = 0;
        const struct qwp_feed_qwpb_ids ids = r->ids;
        if (!more) {
            result = cut(r, data, have, last, have >= full_bytes, &used, &lines, err);
            if (result != QWP_OK) {
                return result;
            }
        }
        if (used > 0) {
            *block = (struct qwp_feed_block){r->file, r->generation,        r->place,          used,
                                             ids,     r->definitions_start, r->definitions_end};
            r->place += r->options.format == QWP_FEED_QWPB ? used : lines;
            r->bytes += used;
            if (!keep_carry(r, data + used, have - used)) {
                return qwp_fail(err, QWP_NOMEM, 0, "no memory to read %s", path_of(r));
            }
            data[used] = '\n';
        } else if (!keep_carry(r, data, have)) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory to read %s", path_of(r));
        }
        if (last) { /* the next one is opened when it is its turn, so its errors are, too */
            close_file(r);
        }
        if (used > 0) {
            return QWP_OK;
        }
        have = 0;
        if (dry) {
            if (at_end) {
                wait_for_change(r, wait_ms);
                result = look_again(r, err);
            }
            return result == QWP_OK ? QWP_AGAIN : result;
        }
        if (!last) { /* a record larger than the target */
            target = target < full_bytes / 2 ? target * 2 : full_bytes;
        }
    }
    return QWP_CLOSED;
}

enum qwp_result qwp_feed_reader_set_header(struct qwp_feed_reader *r, char *data,
                                           struct qwp_feed_block *block, size_t header_bytes,
                                           struct qwp_error *err)
{
    if (header_bytes == 0) {
        return QWP_OK;
    }
    r->header = malloc(header_bytes);
    if (r->header == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the header");
    }
    memcpy(r->header, data, header_bytes);
    r->header_len = header_bytes;
    block->place += count_lines(data, data + header_bytes);
    block->len -= header_bytes;
    memmove(data, data + header_bytes, block->len + 1);
    return QWP_OK;
}

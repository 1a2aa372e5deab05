#include "sidecar/qwp_inspect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/store/qwp_dict_file.h"
#include "core/store/qwp_dual.h"
#include "core/store/qwp_segment.h"
#include "core/wire/qwp_decode.h"
#include "core/wire/qwp_message.h"
#include "sidecar/qwp_json.h"

enum { EXIT_DAMAGED = 4, SYMBOLS_MAX = 2000000 };

struct segment {
    char name[256];
    struct qwp_scan scan;
    uint64_t rows;
};

struct table {
    char *name;
    uint64_t rows;
};

struct slot {
    const char *dir;
    int dir_fd;
    bool in_use;
    bool failed; /* a `.failed` file stands there */
    struct segment *segments;
    size_t segment_count;
    struct table *tables;
    size_t table_count;
    uint64_t frames, rows, undecoded;
    struct qwp_dict *dict;
    uint64_t dict_trusted, dict_bytes;
    struct qwp_dual manifest, watermark;
    enum qwp_dual_state manifest_state, watermark_state;
    struct qwp_decoder decoder;
    char damage[16][160]; /* what is wrong, in words; the first ones */
    size_t damage_count;
};

__attribute__((format(printf, 2, 3))) static void damage(struct slot *slot, const char *format, ...)
{
    if (slot->damage_count < sizeof slot->damage / sizeof slot->damage[0]) {
        va_list args;
        va_start(args, format);
        char *text = slot->damage[slot->damage_count++];
        vsnprintf(text, sizeof slot->damage[0], format, args);
        va_end(args);
        qwp_text_clean(text);
    }
}

/* ---- reading ---- */

static bool table_count(struct slot *slot, struct qwp_name name, uint64_t rows)
{
    for (size_t i = 0; i < slot->table_count; i++) {
        if (strlen(slot->tables[i].name) == name.len &&
            memcmp(slot->tables[i].name, name.text, name.len) == 0) {
            slot->tables[i].rows += rows;
            return true;
        }
    }
    struct table *tables = realloc(slot->tables, (slot->table_count + 1) * sizeof *slot->tables);
    if (tables == NULL) {
        return false;
    }
    slot->tables = tables;
    char *copy = strndup(name.text, name.len);
    if (copy == NULL) {
        return false;
    }
    tables[slot->table_count++] = (struct table){copy, rows};
    return true;
}

struct frame_reader {
    struct slot *slot;
    struct segment *segment;
};

static enum qwp_result on_frame(void *owner, uint64_t fsn, const unsigned char *payload, size_t len)
{
    struct frame_reader *reader = owner;
    struct slot *slot = reader->slot;
    struct qwp_message message;
    struct qwp_error err;
    if (qwp_decode_message(&slot->decoder, payload, len, &message, &err) != QWP_OK) {
        slot->undecoded++;
        damage(slot, "frame %" PRIu64 " cannot be decoded: %s", fsn, err.text);
        return QWP_OK;
    }
    for (uint32_t i = 0; i < message.block_count; i++) {
        const struct qwp_block_head *head = qwp_block_head(&slot->decoder, &message, i);
        reader->segment->rows += head->row_count;
        if (!table_count(slot, head->table, head->row_count)) {
            return QWP_NOMEM;
        }
    }
    return QWP_OK;
}

/* Frames rely on symbols of frames that are gone: the decoder gets the whole dictionary first. */
static enum qwp_result decoder_prepare(struct slot *slot, struct qwp_error *err)
{
    const struct qwp_decoder_options options = {.depth = QWP_DECODE_COUNT,
                                                .message_bytes_max = UINT32_MAX};
    qwp_decoder_init(&slot->decoder, &options);
    const uint32_t count = qwp_dict_count(slot->dict);
    const size_t bytes = QWP_HEADER_BYTES + qwp_delta_size(0, count, qwp_dict_text, slot->dict);
    unsigned char *message = malloc(bytes);
    if (message == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for %u symbols", count);
    }
    unsigned char *end = qwp_message_begin(message, QWP_FLAG_DEFER_COMMIT | QWP_FLAG_DELTA_DICT);
    end = qwp_delta_put(end, 0, count, qwp_dict_text, slot->dict);
    qwp_message_finish(message, 0, (size_t)(end - message));
    struct qwp_message decoded;
    const enum qwp_result result =
        qwp_decode_message(&slot->decoder, message, (size_t)(end - message), &decoded, err);
    free(message);
    return result;
}

static enum qwp_result segment_read(struct slot *slot, struct segment *segment,
                                    struct qwp_error *err)
{
    const int fd = openat(slot->dir_fd, segment->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s/%s", slot->dir, segment->name);
    }
    struct frame_reader reader = {slot, segment};
    const enum qwp_result result =
        qwp_segment_scan(&qwp_sys_real, fd, &segment->scan, on_frame, &reader);
    close(fd);
    if (result != QWP_OK) {
        return qwp_fail(err, result, 0, "cannot read %s/%s", slot->dir, segment->name);
    }
    slot->frames += segment->scan.frame_count;
    slot->rows += segment->rows;
    return QWP_OK;
}

static int by_base(const void *a, const void *b)
{
    const struct segment *x = a;
    const struct segment *y = b;
    return x->scan.base < y->scan.base ? -1 : x->scan.base > y->scan.base;
}

static bool has_suffix(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    const size_t tail = strlen(suffix);
    return len > tail && strcmp(name + len - tail, suffix) == 0;
}

/* Reads headers first, so that frames are then read in the order of their numbers. */
static enum qwp_result segments_list(struct slot *slot, struct qwp_error *err)
{
    DIR *dir = fdopendir(dup(slot->dir_fd));
    if (dir == NULL) {
        return qwp_fail(err, QWP_IO, errno, "cannot list %s", slot->dir);
    }
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (has_suffix(entry->d_name, QWP_CORRUPT_SUFFIX)) {
            damage(slot, "%s was set aside", entry->d_name);
        }
        if (!has_suffix(entry->d_name, QWP_SEGMENT_SUFFIX)) {
            continue;
        }
        struct segment *segments =
            realloc(slot->segments, (slot->segment_count + 1) * sizeof *segments);
        if (segments == NULL) {
            closedir(dir);
            return qwp_fail(err, QWP_NOMEM, 0, "no memory to list %s", slot->dir);
        }
        slot->segments = segments;
        struct segment *segment = &segments[slot->segment_count++];
        *segment = (struct segment){0};
        snprintf(segment->name, sizeof segment->name, "%s", entry->d_name);
        const int fd = openat(slot->dir_fd, segment->name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
            (void)!qwp_segment_scan(&qwp_sys_real, fd, &segment->scan, NULL, NULL);
            close(fd);
        }
    }
    closedir(dir);
    if (slot->segment_count > 0) {
        qsort(slot->segments, slot->segment_count, sizeof *slot->segments, by_base);
    }
    return QWP_OK;
}

static bool is_last_with_frames(const struct slot *slot, size_t i)
{
    for (size_t k = i + 1; k < slot->segment_count; k++) {
        if (slot->segments[k].scan.frame_count > 0) {
            return false;
        }
    }
    return true;
}

static void judge_segments(struct slot *slot)
{
    uint64_t next = UINT64_MAX;
    for (size_t i = 0; i < slot->segment_count; i++) {
        const struct segment *segment = &slot->segments[i];
        const struct qwp_scan *scan = &segment->scan;
        if (scan->header_bad) {
            damage(slot, "%s has no valid header", segment->name);
            continue;
        }
        if (scan->frame_count == 0) {
            if (scan->torn && !scan->open) {
                damage(slot, "%s: no frame of it is readable", segment->name);
            }
            continue;
        }
        if (next != UINT64_MAX && scan->base != next) {
            damage(slot, "%s begins with frame %" PRIu64 ", expected %" PRIu64, segment->name,
                   scan->base, next);
        }
        if (scan->torn && !is_last_with_frames(slot, i)) {
            damage(slot, "%s is torn behind frame %" PRIu64, segment->name,
                   scan->base + scan->frame_count - 1);
        }
        next = scan->base + scan->frame_count;
    }
}

static enum qwp_result slot_read(struct slot *slot, struct qwp_error *err)
{
    slot->dir_fd = open(slot->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (slot->dir_fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s", slot->dir);
    }
    const int lock = openat(slot->dir_fd, QWP_LOCK_NAME, O_RDONLY | O_CLOEXEC);
    if (lock >= 0) {
        slot->in_use = flock(lock, LOCK_SH | LOCK_NB) != 0;
        close(lock);
    }
    slot->failed = faccessat(slot->dir_fd, QWP_FAILED_NAME, F_OK, 0) == 0;
    enum qwp_result result = qwp_dict_create(&slot->dict, SYMBOLS_MAX, UINT64_C(1) << 30, err);
    if (result == QWP_OK) {
        result = qwp_dict_file_load(&qwp_sys_real, slot->dir_fd, slot->dict, &slot->dict_trusted,
                                    &slot->dict_bytes, err);
    }
    result = result == QWP_OK ? decoder_prepare(slot, err) : result;
    result = result == QWP_OK
                 ? qwp_dual_load(&slot->manifest, &qwp_sys_real, slot->dir_fd, QWP_MANIFEST_NAME,
                                 QWP_MANIFEST_MAGIC, &slot->manifest_state, err)
                 : result;
    result = result == QWP_OK
                 ? qwp_dual_load(&slot->watermark, &qwp_sys_real, slot->dir_fd, QWP_WATERMARK_NAME,
                                 QWP_WATERMARK_MAGIC, &slot->watermark_state, err)
                 : result;
    result = result == QWP_OK ? segments_list(slot, err) : result;
    for (size_t i = 0; i < slot->segment_count && result == QWP_OK; i++) {
        result = segment_read(slot, &slot->segments[i], err);
    }
    if (result != QWP_OK) {
        return result;
    }
    if (slot->dict_trusted < slot->dict_bytes) {
        damage(slot, "%s is good up to byte %" PRIu64 " of %" PRIu64, QWP_DICT_FILE_NAME,
               slot->dict_trusted, slot->dict_bytes);
    }
    if (slot->manifest_state == QWP_DUAL_DAMAGED) {
        damage(slot, "%s has no valid record", QWP_MANIFEST_NAME);
    }
    judge_segments(slot);
    return QWP_OK;
}

static void slot_free(struct slot *slot)
{
    for (size_t i = 0; i < slot->table_count; i++) {
        free(slot->tables[i].name);
    }
    free(slot->tables);
    free(slot->segments);
    qwp_decoder_fini(&slot->decoder);
    qwp_dict_destroy(slot->dict);
    if (slot->dir_fd >= 0) {
        close(slot->dir_fd);
    }
}

/* ---- showing ---- */

static int64_t acked_fsn(const struct slot *slot)
{
    return slot->watermark_state == QWP_DUAL_VALID ? slot->watermark.first : -1;
}

static uint64_t frames_waiting(const struct slot *slot)
{
    uint64_t waiting = 0;
    const uint64_t first = (uint64_t)(acked_fsn(slot) + 1);
    for (size_t i = 0; i < slot->segment_count; i++) {
        const struct qwp_scan *scan = &slot->segments[i].scan;
        const uint64_t end = scan->base + scan->frame_count;
        const uint64_t begin = scan->base > first ? scan->base : first;
        waiting += end > begin ? end - begin : 0;
    }
    return waiting;
}

static void print_text(const struct slot *slot)
{
    printf("slot %s%s%s\n", slot->dir, slot->in_use ? ", in use" : "",
           slot->failed ? ", given up by a drainer (.failed)" : "");
    printf("frames      %" PRIu64 ", %" PRIu64 " not acknowledged; rows %" PRIu64 "\n",
           slot->frames, frames_waiting(slot), slot->rows);
    if (slot->manifest_state == QWP_DUAL_VALID) {
        printf("manifest    head %" PRId64 ", active %" PRId64 ", generation %" PRIu64 "\n",
               slot->manifest.first, slot->manifest.second, slot->manifest.generation);
    } else {
        puts("manifest    none");
    }
    printf("watermark   %" PRId64 "\n", acked_fsn(slot));
    printf("dictionary  %u symbols, %" PRIu64 " bytes\n", qwp_dict_count(slot->dict),
           slot->dict_bytes);
    printf("\n%-28s %12s %10s %12s %12s\n", "segment", "base", "frames", "rows", "used bytes");
    for (size_t i = 0; i < slot->segment_count; i++) {
        const struct segment *segment = &slot->segments[i];
        printf("%-28s %12" PRIu64 " %10" PRIu64 " %12" PRIu64 " %12" PRIu64 "%s\n", segment->name,
               segment->scan.base, segment->scan.frame_count, segment->rows, segment->scan.end_off,
               segment->scan.open   ? "  (a frame being written)"
               : segment->scan.torn ? "  (torn)"
                                    : "");
    }
    printf("\n%-28s %12s\n", "table", "rows");
    for (size_t i = 0; i < slot->table_count; i++) {
        printf("%-28s %12" PRIu64 "\n", slot->tables[i].name, slot->tables[i].rows);
    }
    for (size_t i = 0; i < slot->damage_count; i++) {
        printf("%sdamage: %s\n", i == 0 ? "\n" : "", slot->damage[i]);
    }
}

static void print_json(const struct slot *slot)
{
    fputs("{\"slot\":", stdout);
    qwp_json_text(stdout, slot->dir);
    printf(",\"in_use\":%s,\"failed\":%s,\"frames\":%" PRIu64 ",\"frames_waiting\":%" PRIu64
           ",\"rows\":%" PRIu64 ",\"acked_fsn\":%" PRId64,
           slot->in_use ? "true" : "false", slot->failed ? "true" : "false", slot->frames,
           frames_waiting(slot), slot->rows, acked_fsn(slot));
    if (slot->manifest_state == QWP_DUAL_VALID) {
        printf(",\"manifest\":{\"head\":%" PRId64 ",\"active\":%" PRId64 ",\"generation\":%" PRIu64
               "}",
               slot->manifest.first, slot->manifest.second, slot->manifest.generation);
    } else {
        fputs(",\"manifest\":null", stdout);
    }
    printf(",\"dictionary\":{\"symbols\":%u,\"bytes\":%" PRIu64 "},\"segments\":[",
           qwp_dict_count(slot->dict), slot->dict_bytes);
    for (size_t i = 0; i < slot->segment_count; i++) {
        const struct segment *segment = &slot->segments[i];
        fputs(i > 0 ? ",{\"name\":" : "{\"name\":", stdout);
        qwp_json_text(stdout, segment->name);
        printf(",\"base\":%" PRIu64 ",\"frames\":%" PRIu64 ",\"rows\":%" PRIu64
               ",\"used_bytes\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"torn\":%s}",
               segment->scan.base, segment->scan.frame_count, segment->rows, segment->scan.end_off,
               segment->scan.bytes, segment->scan.torn ? "true" : "false");
    }
    fputs("],\"tables\":{", stdout);
    for (size_t i = 0; i < slot->table_count; i++) {
        fputs(i > 0 ? "," : "", stdout);
        qwp_json_text(stdout, slot->tables[i].name);
        printf(":%" PRIu64, slot->tables[i].rows);
    }
    fputs("},\"damage\":[", stdout);
    for (size_t i = 0; i < slot->damage_count; i++) {
        fputs(i > 0 ? "," : "", stdout);
        qwp_json_text(stdout, slot->damage[i]);
    }
    fputs("]}\n", stdout);
}

int qwp_inspect_run(const struct qwp_options *options)
{
    struct slot *slot = calloc(1, sizeof *slot);
    if (slot == NULL) {
        fputs("qwp-sidecar: no memory\n", stderr);
        return 1;
    }
    slot->dir = options->slot_dir;
    slot->dir_fd = -1;
    struct qwp_error err = {0};
    int code = 1;
    if (slot_read(slot, &err) != QWP_OK) {
        fprintf(stderr, "qwp-sidecar: %s\n", err.text);
    } else {
        (options->json ? print_json : print_text)(slot);
        code = slot->damage_count > 0 ? EXIT_DAMAGED : 0;
    }
    slot_free(slot);
    free(slot);
    return code;
}

#include "sidecar/qwp_put_back.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/wire/qwp_decode.h"
#include "sidecar/qwp_deliver.h"
#include "sidecar/qwp_rejected.h"
#include "sidecar/qwp_rejected_read.h"

enum { TMP_SEGMENT_BYTES = 1024 * 1024 };

/* ---- the file becomes a slot that can be drained ---- */

static enum qwp_result frame_append(struct qwp_seglog *log, const struct qwp_rejected_item *item,
                                    struct qwp_error *err)
{
    unsigned char *at;
    size_t room;
    enum qwp_result result = qwp_seglog_persist_dict(log, err);
    if (result == QWP_OK) {
        result = qwp_seglog_reserve(log, item->message_len, item->message_len, &at, &room, err);
    }
    if (result == QWP_OK) {
        memcpy(at, item->message, item->message_len);
        qwp_seglog_finish(log, item->message_len, item->message_len, NULL);
        (void)qwp_seglog_publish(log);
    }
    return result;
}

/* Symbols that the message brought, under the same ids. */
static enum qwp_result symbols_append(struct qwp_seglog *log, const struct qwp_decoder *decoder,
                                      struct qwp_error *err)
{
    struct qwp_dict *dict = qwp_seglog_dict(log);
    for (uint32_t id = qwp_dict_count(dict); id < decoder->dict.count; id++) {
        const struct qwp_name text = qwp_decoder_symbol(decoder, id);
        if (qwp_dict_append(dict, text.text, text.len) != QWP_OK) {
            return qwp_fail(err, QWP_NOMEM, 0, "no memory for the symbols of refused rows");
        }
    }
    return QWP_OK;
}

static enum qwp_result frames_append(struct qwp_seglog *log,
                                     const struct qwp_rejected_content *content,
                                     struct qwp_error *err)
{
    struct qwp_decoder decoder;
    qwp_decoder_init(&decoder, NULL);
    struct qwp_rejected_item item;
    enum qwp_result result = QWP_OK;
    for (size_t off = 0; result == QWP_OK && qwp_rejected_content_next(content, &off, &item);) {
        if (item.cause == QWP_REJECTED_OPAQUE) {
            result = qwp_fail(err, QWP_INVALID, 0,
                              "frames that cannot be read cannot be put back; export keeps them");
            break;
        }
        struct qwp_message message;
        result = qwp_decode_message(&decoder, item.message, item.message_len, &message, err);
        if (result == QWP_OK) {
            result = symbols_append(log, &decoder, err);
        }
        if (result == QWP_OK && item.state == QWP_REJECTED_ASIDE) {
            result = frame_append(log, &item, err);
        }
    }
    qwp_decoder_fini(&decoder);
    return result;
}

static enum qwp_result slot_make(const char *slot, const struct qwp_rejected_content *content,
                                 struct qwp_error *err)
{
    const struct qwp_seglog_options options = {
        .dir = slot,
        .segment_bytes = TMP_SEGMENT_BYTES,
        .total_bytes_max = UINT64_C(256) * 1024 * 1024,
        .payload_crc = true,
        .symbols_max = QWP_DICT_SYMBOLS_MAX,
        .symbol_bytes_max = UINT64_C(256) * 1024 * 1024,
    };
    struct qwp_seglog *log;
    enum qwp_result result = qwp_seglog_open(&log, &options, err);
    if (result == QWP_OK) {
        result = frames_append(log, content, err);
        qwp_seglog_close(log);
    }
    return result;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    (void)at;
    return remove(path);
}

static void slot_remove(const char *slot)
{
    (void)nftw(slot, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* ---- delivery ---- */

/* Offers the slot's frames; *taken of them were. */
static enum qwp_result slot_drain(const struct qwp_put_back *how, const char *slot, uint64_t *taken,
                                  struct qwp_error *err)
{
    struct qwp_conf conf = *how->conf; /* a refusal is to end it */
    conf.on_server_error = conf.on_schema_error = conf.on_parse_error = QWP_ON_ERROR_TERMINAL;
    conf.on_internal_error = conf.on_security_error = conf.on_write_error = QWP_ON_ERROR_TERMINAL;
    conf.sf_durability = QWP_DURABILITY_MEMORY;
    struct qwp_drainer drainer;
    enum qwp_result result = qwp_drainer_open(&drainer, slot, &conf, how->loop, err);
    if (result != QWP_OK) {
        return result;
    }
    qwp_deliver(&drainer, how->deadline_ns, true);
    *taken = qwp_drainer_count(&drainer).delivered;
    if (!qwp_drainer_is_done(&drainer)) {
        const bool refused = qwp_sender_is_stopped(drainer.sender);
        char text[QWP_CONTROL_TEXT_BYTES];
        snprintf(text, sizeof text, "%s", drainer.page->last_error);
        result = qwp_fail(err, refused ? QWP_REJECTED : QWP_AGAIN, 0, "%s%s",
                          refused ? "" : "not delivered in time: ", text);
    }
    qwp_drainer_close(&drainer);
    return result;
}

/* The first `taken` entries that were set aside. */
static enum qwp_result entries_mark(struct qwp_rejected_content *content, uint64_t taken,
                                    struct qwp_put_back_counts *counts, struct qwp_error *err)
{
    struct qwp_rejected_item item;
    for (size_t off = 0; taken > 0 && qwp_rejected_content_next(content, &off, &item);) {
        if (item.state != QWP_REJECTED_ASIDE) {
            continue;
        }
        const enum qwp_result result = qwp_rejected_content_mark(content, &item, err);
        if (result != QWP_OK) {
            return result;
        }
        counts->rows_taken += item.row_count;
        taken--;
    }
    return QWP_OK;
}

/* The file is locked, so nobody else uses the slot named after it; what is there a killed one left.
 */
static enum qwp_result offer(const struct qwp_put_back *how, const char *dir, const char *name,
                             struct qwp_rejected_content *content,
                             struct qwp_put_back_counts *counts, struct qwp_error *err)
{
    char slot[PATH_MAX];
    char left_over[PATH_MAX + 16];
    snprintf(slot, sizeof slot, "%s/.put-back-%s", dir, name);
    snprintf(left_over, sizeof left_over, "%s/" QWP_REJECTED_FOLDER, slot);
    slot_remove(slot);
    uint64_t taken = 0;
    enum qwp_result result = slot_make(slot, content, err);
    if (result == QWP_OK) {
        result = slot_drain(how, slot, &taken, err);
    }
    if (access(left_over, F_OK) == 0) {
        result = qwp_fail(err, QWP_REJECTED, 0, "a row is larger than the server takes");
        taken = 0;
    }
    struct qwp_error unmarked;
    const enum qwp_result marked = entries_mark(content, taken, counts, &unmarked);
    if (result == QWP_OK && marked != QWP_OK) {
        *err = unmarked;
        result = marked;
    }
    slot_remove(slot);
    return result;
}

enum qwp_result qwp_put_back_file(const struct qwp_put_back *how, const char *dir, const char *name,
                                  struct qwp_put_back_counts *counts, struct qwp_error *err)
{
    *counts = (struct qwp_put_back_counts){0};
    struct qwp_rejected_content content;
    enum qwp_result result = qwp_rejected_content_read(&content, dir, name, true, err);
    if (result != QWP_OK) {
        return result;
    }
    uint64_t entries;
    uint64_t rows;
    qwp_rejected_content_count(&content, &entries, &rows);
    if (entries > 0) {
        result = offer(how, dir, name, &content, counts, err);
    }
    counts->rows_left = rows - counts->rows_taken;
    if (result == QWP_OK) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", dir, name);
        if (unlink(path) != 0) {
            result = qwp_fail(err, QWP_IO, errno, "cannot remove %s", path);
        }
    }
    qwp_rejected_content_fini(&content);
    return result;
}

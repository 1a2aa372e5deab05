/* qwp_feed_reader: files or standard input, cut into blocks of whole records.
 *
 * Records are never split between blocks, so blocks can be parsed in any process. The start of the
 * next record is carried over; a record has at most QWP_FEED_RECORD_BYTES_MAX.
 *
 * Text: record ends are found without parsing, by the next line end; only a line with a quote or an
 * escaped line end is looked at more closely. QWPB: records are walked, and definitions go to a log
 * of their own, which every parser reads before the block (see qwp_feed_qwpb.h).
 *
 * Threads: one. Progress: waits for input at most `wait_ms`, and hands over what there is when no
 * more comes at once. */
#ifndef QWP_FEED_READER_H
#define QWP_FEED_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "clients/c/feed/qwp_feed_qwpb.h"
#include "core/qwp_error.h"

enum qwp_feed_format { QWP_FEED_ILP = 1, QWP_FEED_CSV, QWP_FEED_QWPB };

enum { QWP_FEED_RECORD_BYTES_MAX = 4 * 1024 * 1024 };

struct qwp_feed_reader_options {
    enum qwp_feed_format format;
    char delimiter;           /* CSV */
    const char *const *paths; /* borrowed; "-" is standard input */
    uint32_t path_count;
    uint64_t repeat; /* passes over all files; 0: for ever */
    bool follow;     /* one file: wait for more at its end, and for a new file of its name */
};

/* Where a block comes from. */
struct qwp_feed_block {
    uint32_t file;       /* index of the path */
    uint32_t generation; /* QWPB: changes when ids start anew with other meanings */
    uint64_t place;      /* number of the first line, from 1; QWPB: offset of the first byte */
    size_t len;
    struct qwp_feed_qwpb_ids ids; /* QWPB: defined before the block */
    uint64_t definitions_start;   /* QWPB: in the log, of this generation */
    uint64_t definitions_end;     /* QWPB: in the log, those of the block included */
};

struct qwp_feed_reader {
    struct qwp_feed_reader_options options;
    int fd;             /* -1: none open */
    int inotify_fd;     /* -1: not following, or not to be had */
    int definitions_fd; /* QWPB: the log; readers use pread() */
    bool regular;       /* the open file is one */
    bool at_start;      /* of a file */
    bool finished;      /* no more will come */
    uint32_t file;
    uint64_t pass;       /* completed */
    uint64_t offset;     /* of the next byte to read, in its file */
    uint64_t place;      /* of the next block */
    uint64_t bytes;      /* handed over */
    uint64_t pass_bytes; /* when this pass began */
    char *carry;         /* the start of the next record */
    size_t carry_len;
    size_t carry_room;
    char *header; /* CSV: every file begins with it; owned */
    size_t header_len;
    /* QWPB */
    uint32_t generation;
    uint64_t definitions_start;
    uint64_t definitions_end;
    struct qwp_feed_qwpb_ids ids;        /* at `place` */
    struct qwp_feed_qwpb_ids logged_ids; /* of this generation, in the log */
    uint32_t logged_file;                /* the generation's, UINT32_MAX: none */
};

/* Opens the first file. QWP_IO or QWP_INVALID with the path and the reason. */
QWP_MUST_USE enum qwp_result qwp_feed_reader_open(struct qwp_feed_reader *reader,
                                                  const struct qwp_feed_reader_options *options,
                                                  struct qwp_error *err);
void qwp_feed_reader_close(struct qwp_feed_reader *reader);

/* Fills `data` with about `target` bytes, more only for a record larger than that; `room` bytes are
 * there, QWP_FEED_SLACK_BYTES of them behind the data and `room - slack` at least
 * QWP_FEED_RECORD_BYTES_MAX. QWP_OK: *block; QWP_AGAIN: nothing within wait_ms; QWP_CLOSED: the
 * end; QWP_IO, QWP_INVALID, QWP_LIMIT: *err names file and place. */
QWP_MUST_USE enum qwp_result qwp_feed_reader_fill(struct qwp_feed_reader *reader, char *data,
                                                  size_t target, size_t room, int wait_ms,
                                                  struct qwp_feed_block *block,
                                                  struct qwp_error *err);

/* CSV, once the header is known: `block` in `data` begins with it and is left without it, and so
 * will be all that follows. */
QWP_MUST_USE enum qwp_result qwp_feed_reader_set_header(struct qwp_feed_reader *reader, char *data,
                                                        struct qwp_feed_block *block,
                                                        size_t header_bytes, struct qwp_error *err);

/* Size of all input when it is known beforehand (regular files), else 0. */
uint64_t qwp_feed_reader_total(const struct qwp_feed_reader *reader);

/* Bytes of whole records at the start of `data`, and the lines in them. */
size_t qwp_feed_cut(enum qwp_feed_format format, char delimiter, const char *data, size_t len,
                    uint64_t *lines);

#endif

/* qwp_feed_qwpb: rows from the binary data file of the TSBS benchmark.
 *
 *   "QWPB"  version u8 = 1   then records, little-endian, uvarint = unsigned LEB128:
 *   0x01 string  uvarint length, bytes                    defines the next string id, from 0
 *   0x02 schema  uvarint table, uvarint tags, tags x uvarint key,
 *                uvarint fields, fields x (uvarint key, u8 type)    defines the next schema id
 *   0x03 row     uvarint schema, uvarint payload length, payload:
 *                tags x uvarint string, fields by type, i64 ns since the epoch
 *
 * Field types: 1 i64, 2 f64, 3 bool (u8), 4 string (uvarint length, bytes).
 *
 * Several processes share a file: all of them need all definitions, each row goes to one. So a
 * block's definitions are given to every parser beforehand (qwp_feed_qwpb_define()), and the parser
 * only counts the ones it meets between its rows, to know which ids existed at that place. */
#ifndef QWP_FEED_QWPB_H
#define QWP_FEED_QWPB_H

#include "clients/c/feed/qwp_feed_parser.h"

enum { QWP_FEED_QWPB_HEADER_BYTES = 5 };

/* Ids defined at some place of the file. */
struct qwp_feed_qwpb_ids {
    uint32_t strings;
    uint32_t schemas;
};

/* ---- walking, without understanding ---- */

/* QWP_INVALID when the five bytes are not those of a file that we read. */
QWP_MUST_USE enum qwp_result qwp_feed_qwpb_header(const char *data, struct qwp_error *err);
/* Length of the record at `data` through *len and its kind; QWP_AGAIN: it does not end within
 * `room`; QWP_INVALID: it cannot be one. */
QWP_MUST_USE enum qwp_result qwp_feed_qwpb_record(const char *data, size_t room, size_t *len,
                                                  struct qwp_error *err);
enum { QWP_FEED_QWPB_STRING = 1, QWP_FEED_QWPB_SCHEMA = 2, QWP_FEED_QWPB_ROW = 3 };

/* ---- parsing ---- */

struct qwp_feed_qwpb;

/* Keeps the context's pointers. NULL: no memory. */
struct qwp_feed_qwpb *qwp_feed_qwpb_create(const struct qwp_feed_context *context);
void qwp_feed_qwpb_destroy(struct qwp_feed_qwpb *qwpb);

/* Forgets all ids: another file begins. */
void qwp_feed_qwpb_restart(struct qwp_feed_qwpb *qwpb);
/* String and schema records, whole ones, that define the next ids. On failure *used tells how many
 * bytes were taken before the bad record. */
QWP_MUST_USE enum qwp_result qwp_feed_qwpb_define(struct qwp_feed_qwpb *qwpb, const char *data,
                                                  size_t len, size_t *used, struct qwp_error *err);
/* Whole records of any kind; `ids`: those defined before the block. */
void qwp_feed_qwpb_begin(struct qwp_feed_qwpb *qwpb, const char *data, size_t len,
                         struct qwp_feed_qwpb_ids ids);
/* QWP_OK: *row; QWP_AGAIN: the block has no more; QWP_INVALID and others: *bad tells. */
QWP_MUST_USE enum qwp_result qwp_feed_qwpb_next(struct qwp_feed_qwpb *qwpb,
                                                struct qwp_feed_row *row, struct qwp_feed_bad *bad);
/* Where the record of the last row lies in its block. */
void qwp_feed_qwpb_last(const struct qwp_feed_qwpb *qwpb, size_t *off, size_t *len);

#endif

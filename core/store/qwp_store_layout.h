/* qwp_store_layout: the bytes of a store-and-forward slot, as QuestDB clients share them.
 *
 *   segment, *.sfa                       dual-record file, 8,192 bytes
 *   0   4  magic "SF01"                  records at 0 and 4,096; generation g at (g & 1) * 4,096
 *   4   1  version 1                     0   4  magic
 *   5   1  flags                         4   4  version 1
 *   6   2  zero                          8   8  generation, > 0
 *   8   8  base FSN                      16  8  first
 *   16  8  creation time, us             24  8  second
 *   24     frames                        32 28  zero
 *                                        60  4  CRC of bytes 0..59
 *   frame
 *   0   4  CRC of length and payload     symbol dictionary
 *   4   4  length                        0   4  magic "SYD1"
 *   8      payload                       4   1  version 1
 *                                        5   3  zero
 *   all CRCs are CRC32C                  8      chunks: count varint, bytes varint,
 *                                               count x (len varint, text), CRC
 *
 * One addition of ours, for slots that never outlive the host and that no other client opens:
 * flag QWP_SEGMENT_LIGHT. The CRC of its frames covers, instead of the whole payload, the length
 * field, the frame's FSN (u64), and the first and the last 64 bytes of the payload (all of it up to
 * 128). That is enough there: the only thing that can cut a write short is the end of the process,
 * and then memory holds exactly the stores up to that point in program order, so a CRC that is in
 * place proves the payload before it. FSN and samples keep a frame from being taken for another
 * that might have got its place. And behind the last frame only 8 bytes need to be zero (fewer
 * where the file ends): what an earlier use of the file left beyond them is never looked at, so a
 * segment is used again as it is [zeroing it and populating new ones meanwhile took a third of the
 * sidecar's CPU at 470 MB/s]. */
#ifndef QWP_STORE_LAYOUT_H
#define QWP_STORE_LAYOUT_H

#include <stdint.h>

#define QWP_SEGMENT_MAGIC   UINT32_C(0x31304653) /* "SF01" */
#define QWP_WATERMARK_MAGIC UINT32_C(0x31574b41) /* "AKW1" */
#define QWP_MANIFEST_MAGIC  UINT32_C(0x314d4653) /* "SFM1" */
#define QWP_DICT_FILE_MAGIC UINT32_C(0x31445953) /* "SYD1" */

enum { QWP_SEGMENT_VERSION = 1, QWP_DUAL_VERSION = 1, QWP_DICT_FILE_VERSION = 1 };

/* Segment header. */
enum {
    QWP_SEGMENT_VERSION_OFF = 4,
    QWP_SEGMENT_FLAGS_OFF = 5,
    QWP_SEGMENT_BASE_OFF = 8,
    QWP_SEGMENT_CREATED_OFF = 16,
    QWP_SEGMENT_HEADER_BYTES = 24,
};
enum {
    QWP_SEGMENT_MANIFESTED = 0x01, /* the slot must have a manifest */
    QWP_SEGMENT_LIGHT = 0x80,      /* ours, see above */
    QWP_SEGMENT_FLAGS_KNOWN = 0x81,
};

enum {
    QWP_FRAME_LENGTH_OFF = 4,
    QWP_FRAME_HEADER_BYTES = 8,
    QWP_FRAME_SAMPLE_BYTES = 64,
    /* Stands in the length field while a frame is being written: no scan takes it for a frame or
     * for the untouched end. */
    QWP_FRAME_OPEN = -1,
};

enum {
    QWP_DUAL_FILE_BYTES = 8192,
    QWP_DUAL_SLOT_BYTES = 4096,
    QWP_DUAL_RECORD_BYTES = 64,
    QWP_DUAL_GENERATION_OFF = 8,
    QWP_DUAL_FIRST_OFF = 16,
    QWP_DUAL_SECOND_OFF = 24,
    QWP_DUAL_CRC_OFF = 60,
};

enum { QWP_DICT_FILE_HEADER_BYTES = 8 };

#define QWP_LOCK_NAME      ".lock"
#define QWP_LOCK_PID_NAME  ".lock.pid"
#define QWP_FAILED_NAME    ".failed"
#define QWP_WATERMARK_NAME ".ack-watermark"
#define QWP_MANIFEST_NAME  "sf-manifest.bin"
#define QWP_DICT_FILE_NAME ".symbol-dict"
#define QWP_SEGMENT_SUFFIX ".sfa"
/* Behind a segment's name while it is being made or zeroed: no client looks at such a file. */
#define QWP_UNREADY_SUFFIX ".new"
/* Behind the name of a file that was set aside. */
#define QWP_CORRUPT_SUFFIX ".corrupt"

enum {
    QWP_SEGMENT_BYTES_MIN = 64 * 1024,
    QWP_SEGMENT_BYTES_MAX = 1024 * 1024 * 1024,
    QWP_FRAME_BYTES_MAX = 1024 * 1024 * 1024,
    QWP_STORE_NAME_BYTES = 48, /* the longest file name of ours */
};

#endif

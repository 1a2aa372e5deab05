/* qwp_cursors_layout: the bytes of the cursors file.
 *
 *   file                                   entry, 256 bytes, one for each ring
 *   0     4  magic "QCUR"                  0    16  ring id
 *   4     4  version                       16    8  inode
 *   8     4  entries                       24    8  birth time, ns
 *   4096     entries                       32    4  CRC of bytes 0..31, never 0; 0: free
 *                                          64   64  record 0
 *   record                                 128  64  record 1
 *   0    16  slot uuid
 *   16    8  FSN
 *   24    8  ring position behind it
 *   32    4  witness of the frame
 *   36    4  CRC of the entry's CRC and bytes 0..35, never 0; 0: erased
 *
 * The two records of an entry share no cache line with each other or with another entry. */
#ifndef QWP_CURSORS_LAYOUT_H
#define QWP_CURSORS_LAYOUT_H

#include <stdint.h>

#define QWP_CURSORS_MAGIC UINT32_C(0x52554351) /* "QCUR" */

enum {
    QWP_CURSORS_VERSION = 1,
    QWP_CURSORS_HEADER_BYTES = 4096,
    QWP_CURSORS_ENTRY_BYTES = 256,
    QWP_CURSORS_IDENTITY_BYTES = 32,
    QWP_CURSORS_ENTRY_CRC_OFF = 32,
    QWP_CURSORS_RECORD_OFF = 64,
    QWP_CURSORS_RECORD_BYTES = 64,
    QWP_CURSORS_FSN_OFF = 16,
    QWP_CURSORS_POSITION_OFF = 24,
    QWP_CURSORS_WITNESS_OFF = 32,
    QWP_CURSORS_CRC_OFF = 36,
};

#endif

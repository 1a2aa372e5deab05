/* qwp_rejected_layout: the bytes of a file of rows that a server refused, rejected/NUMBER.qwpr in a
 * slot.
 *
 *   header, 256 bytes                       entry, a multiple of 8, entries follow one another
 *   0    8  magic "QWPREJ01"                0    4  CRC of all from byte 8 on
 *   8    4  version                         4    4  state: 0 set aside, 1 put back
 *   12   4  header bytes                    8    4  bytes of the whole entry
 *   16   8  creation time, us               12   1  the server's status, 0: none
 *   24  16  uuid of the slot                13   1  why, enum qwp_rejected_cause
 *   40   4  length of the table's name      14   2  length of the server's text
 *   44   4  CRC of the rest                 16   8  FSN of the frame
 *   48 128  name                            24   8  wall time, us
 *   176     zero                            32   8  rows
 *                                           40   4  symbols in the entries before it
 *                                           44   4  length of the message
 *                                           48   2  length of the producers' names
 *                                           50   6  zero
 *                                           56      text, producers, message, zeros
 *
 * One file holds rows of one table. A message is a QWP message whose delta goes on where that of
 * the entry before ended, so the messages of a file from the first on are a whole connection:
 * replayable by themselves. An entry whose CRC fails ends the file (a torn tail: what it was to
 * hold is still in the log). The state is outside the CRC, so that it can be changed in place. */
#ifndef QWP_REJECTED_LAYOUT_H
#define QWP_REJECTED_LAYOUT_H

#include <stdint.h>

#define QWP_REJECTED_MAGIC  UINT64_C(0x31304a4552505751) /* "QWPREJ01" */
#define QWP_REJECTED_FOLDER "rejected"
#define QWP_REJECTED_SUFFIX ".qwpr"

enum {
    QWP_REJECTED_VERSION = 1,
    QWP_REJECTED_HEADER_BYTES = 256,
    QWP_REJECTED_CREATED_OFF = 16,
    QWP_REJECTED_UUID_OFF = 24,
    QWP_REJECTED_NAME_LEN_OFF = 40,
    QWP_REJECTED_HEADER_CRC_OFF = 44,
    QWP_REJECTED_NAME_OFF = 48,
    QWP_REJECTED_NAME_BYTES = 128,
};

enum {
    QWP_REJECTED_STATE_OFF = 4,
    QWP_REJECTED_ENTRY_BYTES_OFF = 8, /* from here on the CRC covers */
    QWP_REJECTED_STATUS_OFF = 12,
    QWP_REJECTED_CAUSE_OFF = 13,
    QWP_REJECTED_TEXT_LEN_OFF = 14,
    QWP_REJECTED_FSN_OFF = 16,
    QWP_REJECTED_TIME_OFF = 24,
    QWP_REJECTED_ROWS_OFF = 32,
    QWP_REJECTED_SYMBOLS_OFF = 40,
    QWP_REJECTED_MESSAGE_LEN_OFF = 44,
    QWP_REJECTED_PRODUCERS_LEN_OFF = 48,
    QWP_REJECTED_ENTRY_HEADER_BYTES = 56,
};

enum qwp_rejected_state { QWP_REJECTED_ASIDE = 0, QWP_REJECTED_PUT_BACK = 1 };

enum qwp_rejected_cause {
    QWP_REJECTED_REFUSED = 1, /* the server refused these rows */
    QWP_REJECTED_BLOCKED = 2, /* not offered: their table was blocked */
    QWP_REJECTED_TOO_BIG = 3, /* a row larger than any message the server takes */
    QWP_REJECTED_OPAQUE = 4,  /* refused, and no frame that we can read: kept as it was, symbols
                                 under  the ids they had in the log */
};

enum {
    QWP_REJECTED_TEXT_BYTES_MAX = 1024,
    QWP_REJECTED_PRODUCERS_BYTES_MAX = 1024,
};

#endif

/* qwp_wire: the constants of the QWP protocol, version 1, as they stand on the wire.
 *
 *   message header          offset  size
 *     magic "QWP1"             0      4
 *     version                  4      1
 *     flags                    5      1   QWP_FLAG_*
 *     table count u16          6      2
 *     payload length u32       8      4   bytes after this header
 *
 * then the delta symbol dictionary (flag QWP_FLAG_DELTA_DICT), then the table blocks. */
#ifndef QWP_WIRE_H
#define QWP_WIRE_H

#include <stdint.h>

enum { QWP_WIRE_VERSION = 1, QWP_HEADER_BYTES = 12 };
#define QWP_WIRE_MAGIC UINT32_C(0x31505751) /* "QWP1" read little-endian */

enum {
    QWP_FLAG_DEFER_COMMIT = 0x01,
    QWP_FLAG_GORILLA = 0x04,
    QWP_FLAG_DELTA_DICT = 0x08,
    QWP_FLAGS_KNOWN = 0x0d,
};

/* Column types by their wire code. */
enum qwp_type {
    QWP_TYPE_NONE = 0,
    QWP_TYPE_BOOLEAN = 0x01,
    QWP_TYPE_BYTE = 0x02,
    QWP_TYPE_SHORT = 0x03,
    QWP_TYPE_INT = 0x04,
    QWP_TYPE_LONG = 0x05,
    QWP_TYPE_FLOAT = 0x06,
    QWP_TYPE_DOUBLE = 0x07,
    QWP_TYPE_SYMBOL = 0x09,
    QWP_TYPE_TIMESTAMP = 0x0a, /* us since the epoch */
    QWP_TYPE_DATE = 0x0b,      /* ms since the epoch */
    QWP_TYPE_UUID = 0x0c,
    QWP_TYPE_LONG256 = 0x0d,
    QWP_TYPE_GEOHASH = 0x0e, /* parameter: precision, 1..60 bits */
    QWP_TYPE_VARCHAR = 0x0f,
    QWP_TYPE_TIMESTAMP_NANOS = 0x10, /* ns since the epoch */
    QWP_TYPE_DOUBLE_ARRAY = 0x11,
    QWP_TYPE_LONG_ARRAY = 0x12,
    QWP_TYPE_DECIMAL64 = 0x13, /* parameter of the decimals: scale */
    QWP_TYPE_DECIMAL128 = 0x14,
    QWP_TYPE_DECIMAL256 = 0x15,
    QWP_TYPE_CHAR = 0x16, /* one UTF-16 code unit */
    QWP_TYPE_BINARY = 0x17,
    QWP_TYPE_IPV4 = 0x18,
    QWP_TYPE_END = 0x19, /* one past the last code */
};

/* First byte of an answer. */
enum qwp_status {
    QWP_STATUS_OK = 0x00,
    QWP_STATUS_DURABLE_ACK = 0x02,
    QWP_STATUS_SCHEMA_MISMATCH = 0x03,
    QWP_STATUS_PARSE_ERROR = 0x05,
    QWP_STATUS_INTERNAL_ERROR = 0x06,
    QWP_STATUS_SECURITY_ERROR = 0x08,
    QWP_STATUS_WRITE_ERROR = 0x09,
    QWP_STATUS_NOT_WRITABLE = 0x0c,
    QWP_STATUS_DICTIONARY_GAP = 0x0d,
};

enum {
    QWP_MESSAGE_BYTES_MAX = 16 * 1024 * 1024,
    QWP_MESSAGE_BYTES_DEFAULT = 1992294, /* 1.9 MiB: when the server names no limit */
    QWP_TABLES_MAX = 10000,              /* a connection */
    QWP_BLOCK_ROWS_MAX = 1000000,
    QWP_COLUMNS_MAX = 2048,
    QWP_NAME_BYTES_MAX = 127,
    QWP_DICT_SYMBOLS_MAX = 1000000, /* a connection, before server 10.0 */
    QWP_GEOHASH_BITS_MAX = 60,
    QWP_DECIMAL64_SCALE_MAX = 18,
    QWP_DECIMAL128_SCALE_MAX = 38,
    QWP_DECIMAL256_SCALE_MAX = 76,
    QWP_ARRAY_DIMENSIONS_MAX = 32,
};

/* Designated timestamps outside these ranges hurt the server for good; see the server facts. */
#define QWP_DESIGNATED_NS_MAX INT64_C(9214646399999999999) /* 2261-12-31T23:59:59.999999999 */
#define QWP_DESIGNATED_US_MAX INT64_C(253402300799999999)  /* 9999-12-31T23:59:59.999999 */

#endif

/* qwp_crc32c: the Castagnoli CRC (reflected polynomial 0x82f63b78, initial and final complement).
 */
#ifndef QWP_CRC32C_H
#define QWP_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* Goes on from `crc`, the value for the bytes before (0 for none). Uses the CPU's instruction where
 * there is one. */
uint32_t qwp_crc32c(uint32_t crc, const void *bytes, size_t len);
/* The same by table, for tests and as a yardstick. */
uint32_t qwp_crc32c_portable(uint32_t crc, const void *bytes, size_t len);

#endif

#include "core/store/qwp_dual.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>

#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/qwp_crc32c.h"
#include "core/store/qwp_store_layout.h"

static bool record_valid(const unsigned char *at, uint32_t magic)
{
    return qwp_load_u32(at) == magic && qwp_load_u32(at + 4) == QWP_DUAL_VERSION &&
           qwp_load_i64(at + QWP_DUAL_GENERATION_OFF) > 0 &&
           qwp_load_u32(at + QWP_DUAL_CRC_OFF) == qwp_crc32c(0, at, QWP_DUAL_CRC_OFF);
}

static void adopt_newest(struct qwp_dual *dual, const unsigned char *bytes)
{
    for (size_t i = 0; i < 2; i++) {
        const unsigned char *at = bytes + i * QWP_DUAL_SLOT_BYTES;
        if (record_valid(at, dual->magic) &&
            qwp_load_u64(at + QWP_DUAL_GENERATION_OFF) > dual->generation) {
            dual->generation = qwp_load_u64(at + QWP_DUAL_GENERATION_OFF);
            dual->first = qwp_load_i64(at + QWP_DUAL_FIRST_OFF);
            dual->second = qwp_load_i64(at + QWP_DUAL_SECOND_OFF);
        }
    }
}

static bool all_zero(const unsigned char *bytes, size_t len)
{
    return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

enum qwp_result qwp_dual_load(struct qwp_dual *dual, const struct qwp_sys *sys, int dir_fd,
                              const char *name, uint32_t magic, enum qwp_dual_state *state,
                              struct qwp_error *err)
{
    *dual = (struct qwp_dual){.fd = -1, .magic = magic};
    const int fd = qwp_sys_open(sys, dir_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
    if (fd < 0 && errno == ENOENT) {
        *state = QWP_DUAL_ABSENT;
        return QWP_OK;
    }
    if (fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot open %s", name);
    }
    /* One byte more, so that a longer file shows. */
    unsigned char bytes[QWP_DUAL_FILE_BYTES + 1];
    const ssize_t len = qwp_sys_read_full(sys, fd, bytes, sizeof bytes, 0);
    if (len < 0) {
        qwp_fail(err, QWP_IO, errno, "cannot read %s", name);
        sys->close(fd);
        return QWP_IO;
    }
    sys->close(fd);
    if (len == QWP_DUAL_FILE_BYTES) {
        adopt_newest(dual, bytes);
    }
    *state = dual->generation > 0                                         ? QWP_DUAL_VALID
             : len <= QWP_DUAL_FILE_BYTES && all_zero(bytes, (size_t)len) ? QWP_DUAL_EMPTY
                                                                          : QWP_DUAL_DAMAGED;
    return QWP_OK;
}

enum qwp_result qwp_dual_open(struct qwp_dual *dual, const struct qwp_sys *sys, int dir_fd,
                              const char *name, struct qwp_error *err)
{
    dual->fd = qwp_sys_open(sys, dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (dual->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make %s", name);
    }
    /* What was not believed must not be believed later on, when the size is right. The size is set
     * twice over since the file may have holes. */
    if ((dual->generation == 0 && sys->ftruncate(dual->fd, 0) != 0) ||
        sys->ftruncate(dual->fd, QWP_DUAL_FILE_BYTES) != 0 ||
        qwp_sys_allocate(sys, dual->fd, 0, QWP_DUAL_FILE_BYTES) != 0) {
        qwp_fail(err, QWP_IO, errno, "cannot give %s its %d bytes", name, QWP_DUAL_FILE_BYTES);
        goto fail;
    }
    void *map = sys->mmap(NULL, QWP_DUAL_FILE_BYTES, PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_POPULATE, dual->fd, 0);
    if (map == MAP_FAILED) {
        qwp_fail(err, QWP_IO, errno, "cannot map %s", name);
        goto fail;
    }
    dual->map = map;
    return QWP_OK;
fail:
    sys->close(dual->fd);
    dual->fd = -1;
    return QWP_IO;
}

void qwp_dual_close(struct qwp_dual *dual, const struct qwp_sys *sys)
{
    if (dual->map == NULL) {
        return;
    }
    sys->munmap(dual->map, QWP_DUAL_FILE_BYTES);
    sys->close(dual->fd);
    *dual = (struct qwp_dual){.fd = -1};
}

void qwp_dual_put(struct qwp_dual *dual, int64_t first, int64_t second)
{
    unsigned char record[QWP_DUAL_RECORD_BYTES] = {0};
    dual->generation++;
    dual->first = first;
    dual->second = second;
    qwp_store_u32(record, dual->magic);
    qwp_store_u32(record + 4, QWP_DUAL_VERSION);
    qwp_store_u64(record + QWP_DUAL_GENERATION_OFF, dual->generation);
    qwp_store_i64(record + QWP_DUAL_FIRST_OFF, first);
    qwp_store_i64(record + QWP_DUAL_SECOND_OFF, second);
    qwp_store_u32(record + QWP_DUAL_CRC_OFF, qwp_crc32c(0, record, QWP_DUAL_CRC_OFF));
    unsigned char *at = dual->map + (dual->generation & 1) * QWP_DUAL_SLOT_BYTES;
    memcpy(at, record, QWP_DUAL_CRC_OFF);
    QWP_CRASH_POINT("dual.before_crc");
    memcpy(at + QWP_DUAL_CRC_OFF, record + QWP_DUAL_CRC_OFF, 4);
    QWP_CRASH_POINT("dual.stored");
}

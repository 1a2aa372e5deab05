#include "core/store/qwp_cursors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/qwp_crash.h"
#include "core/qwp_crc32c.h"
#include "core/store/qwp_cursors_layout.h"

enum {
    FILE_BYTES = QWP_CURSORS_HEADER_BYTES + QWP_CURSORS_RINGS_MAX * QWP_CURSORS_ENTRY_BYTES,
    NO_RECORD = -1,
};

/* What the process knows of an entry; the rest is in the file. */
struct entry {
    bool attached;
    int8_t valid; /* record of the last published frame, or NO_RECORD */
    int8_t noted; /* record written for the frame that is being made, or NO_RECORD */
};

struct qwp_cursors {
    const struct qwp_sys *sys;
    unsigned char *map;
    unsigned char slot_uuid[16];
    struct entry entries[QWP_CURSORS_RINGS_MAX];
    uint32_t noted[QWP_CURSORS_RINGS_MAX]; /* handles */
    uint32_t noted_count;
};

#ifdef QWP_CRASH_POINTS
unsigned qwp_cursors_broken_rule; /* tests only: leave that rule out */
#define RULE(n) (qwp_cursors_broken_rule != (n))
#else
#define RULE(n) true
#endif

/* For the compiler; see order_for_crash() in qwp_seglog.c. */
static inline void order_for_crash(void)
{
    atomic_signal_fence(memory_order_seq_cst);
}

static unsigned char *entry_at(const struct qwp_cursors *cursors, uint32_t handle)
{
    return cursors->map + QWP_CURSORS_HEADER_BYTES + (size_t)handle * QWP_CURSORS_ENTRY_BYTES;
}

static unsigned char *record_at(const struct qwp_cursors *cursors, uint32_t handle, int index)
{
    return entry_at(cursors, handle) + QWP_CURSORS_RECORD_OFF +
           (size_t)index * QWP_CURSORS_RECORD_BYTES;
}

static uint32_t never_zero(uint32_t crc)
{
    return crc == 0 ? 1 : crc;
}

static uint32_t entry_crc(const unsigned char *entry)
{
    return never_zero(qwp_crc32c(0, entry, QWP_CURSORS_IDENTITY_BYTES));
}

static bool entry_used(const unsigned char *entry)
{
    return qwp_load_u32(entry + QWP_CURSORS_ENTRY_CRC_OFF) == entry_crc(entry);
}

/* Over the identity too, so that a record never speaks for a later ring in the same place. */
static uint32_t record_crc(const unsigned char *entry, const unsigned char *record)
{
    return never_zero(
        qwp_crc32c(qwp_load_u32(entry + QWP_CURSORS_ENTRY_CRC_OFF), record, QWP_CURSORS_CRC_OFF));
}

static void record_erase(unsigned char *record)
{
    qwp_store_u32(record + QWP_CURSORS_CRC_OFF, 0);
    order_for_crash();
}

static void entry_clear(struct qwp_cursors *cursors, uint32_t handle)
{
    unsigned char *entry = entry_at(cursors, handle);
    qwp_store_u32(entry + QWP_CURSORS_ENTRY_CRC_OFF, 0);
    order_for_crash();
    memset(entry, 0, QWP_CURSORS_ENTRY_BYTES);
    cursors->entries[handle] = (struct entry){false, NO_RECORD, NO_RECORD};
}

static bool header_good(const unsigned char *map)
{
    return qwp_load_u32(map) == QWP_CURSORS_MAGIC && qwp_load_u32(map + 4) == QWP_CURSORS_VERSION &&
           qwp_load_u32(map + 8) == QWP_CURSORS_RINGS_MAX;
}

enum qwp_result qwp_cursors_open(struct qwp_cursors **out, const struct qwp_sys *sys, int dir_fd,
                                 const char *name, struct qwp_error *err)
{
    sys = sys != NULL ? sys : &qwp_sys_real;
    struct qwp_cursors *cursors = calloc(1, sizeof *cursors);
    if (cursors == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the cursors");
    }
    cursors->sys = sys;
    const int fd = qwp_sys_open(sys, dir_fd, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        qwp_fail(err, QWP_IO, errno, "cannot make the cursors file %s", name);
        goto fail;
    }
    if (sys->ftruncate(fd, FILE_BYTES) != 0 || qwp_sys_allocate(sys, fd, 0, FILE_BYTES) != 0) {
        qwp_fail(err, QWP_IO, errno, "cannot give the cursors file %s its %d bytes", name,
                 FILE_BYTES);
        sys->close(fd);
        goto fail;
    }
    void *map =
        sys->mmap(NULL, FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    const int error = errno;
    sys->close(fd);
    if (map == MAP_FAILED) {
        qwp_fail(err, QWP_IO, error, "cannot map the cursors file %s", name);
        goto fail;
    }
    cursors->map = map;
    if (!header_good(cursors->map)) {
        memset(cursors->map, 0, FILE_BYTES);
        order_for_crash();
        qwp_store_u32(cursors->map + 4, QWP_CURSORS_VERSION);
        qwp_store_u32(cursors->map + 8, QWP_CURSORS_RINGS_MAX);
        qwp_store_u32(cursors->map, QWP_CURSORS_MAGIC);
    }
    for (uint32_t i = 0; i < QWP_CURSORS_RINGS_MAX; i++) {
        cursors->entries[i] = (struct entry){false, NO_RECORD, NO_RECORD};
    }
    *out = cursors;
    return QWP_OK;
fail:
    free(cursors);
    return QWP_IO;
}

void qwp_cursors_close(struct qwp_cursors *cursors)
{
    if (cursors == NULL) {
        return;
    }
    cursors->sys->munmap(cursors->map, FILE_BYTES);
    free(cursors);
}

/* Does a log hold the frame that this record, whose CRC is right, was written for? */
static bool frame_held(const unsigned char *record, const struct qwp_cursors_log *logs,
                       size_t count)
{
    const uint64_t fsn = qwp_load_u64(record + QWP_CURSORS_FSN_OFF);
    for (size_t i = 0; i < count; i++) {
        if (memcmp(record, logs[i].slot_uuid, sizeof logs[i].slot_uuid) != 0) {
            continue;
        }
        if (fsn >= logs[i].next_fsn) {
            return false;
        }
        return fsn + 1 < logs[i].next_fsn || logs[i].last_witness == 0 ||
               qwp_load_u32(record + QWP_CURSORS_WITNESS_OFF) == logs[i].last_witness;
    }
    return false;
}

void qwp_cursors_recovered(struct qwp_cursors *cursors, const struct qwp_cursors_log *logs,
                           size_t count)
{
    for (uint32_t handle = 0; handle < QWP_CURSORS_RINGS_MAX; handle++) {
        const unsigned char *entry = entry_at(cursors, handle);
        if (!entry_used(entry)) {
            entry_clear(cursors, handle);
            continue;
        }
        for (int i = 0; i < 2; i++) {
            unsigned char *record = record_at(cursors, handle, i);
            const bool whole =
                qwp_load_u32(record + QWP_CURSORS_CRC_OFF) == record_crc(entry, record);
            if ((!whole || !frame_held(record, logs, count)) && RULE(1)) {
                record_erase(record);
                QWP_CRASH_POINT("cursors.erased");
            }
        }
    }
}

void qwp_cursors_use(struct qwp_cursors *cursors, const unsigned char slot_uuid[16])
{
    QWP_ASSERT(cursors->noted_count == 0);
    memcpy(cursors->slot_uuid, slot_uuid, sizeof cursors->slot_uuid);
}

static bool entry_matches(const unsigned char *entry, const struct qwp_cursors_ring *ring)
{
    return entry_used(entry) && memcmp(entry, ring->id, sizeof ring->id) == 0 &&
           qwp_load_u64(entry + 16) == ring->inode && qwp_load_i64(entry + 24) == ring->birth_ns;
}

/* The record that counts: of those not erased the one that leads further. */
static int record_choose(const struct qwp_cursors *cursors, uint32_t handle, uint64_t *position)
{
    const unsigned char *entry = entry_at(cursors, handle);
    int best = NO_RECORD;
    for (int i = 0; i < 2; i++) {
        const unsigned char *record = record_at(cursors, handle, i);
        const uint64_t at = qwp_load_u64(record + QWP_CURSORS_POSITION_OFF);
        if (qwp_load_u32(record + QWP_CURSORS_CRC_OFF) == record_crc(entry, record) &&
            (best == NO_RECORD || at > *position)) {
            best = i;
            *position = at;
        }
    }
    return best;
}

static bool entry_find(const struct qwp_cursors *cursors, const struct qwp_cursors_ring *ring,
                       uint32_t *handle)
{
    for (uint32_t i = 0; i < QWP_CURSORS_RINGS_MAX; i++) {
        if (entry_matches(entry_at(cursors, i), ring)) {
            *handle = i;
            return true;
        }
    }
    return false;
}

static bool entry_make(struct qwp_cursors *cursors, const struct qwp_cursors_ring *ring,
                       uint32_t *handle)
{
    uint32_t i = 0;
    while (i < QWP_CURSORS_RINGS_MAX && entry_used(entry_at(cursors, i))) {
        i++;
    }
    if (i == QWP_CURSORS_RINGS_MAX) {
        return false;
    }
    unsigned char *entry = entry_at(cursors, i);
    entry_clear(cursors, i);
    memcpy(entry, ring->id, sizeof ring->id);
    qwp_store_u64(entry + 16, ring->inode);
    qwp_store_i64(entry + 24, ring->birth_ns);
    order_for_crash();
    QWP_CRASH_POINT("cursors.entry");
    qwp_store_u32(entry + QWP_CURSORS_ENTRY_CRC_OFF, entry_crc(entry));
    *handle = i;
    return true;
}

enum qwp_result qwp_cursors_attach(struct qwp_cursors *cursors, const struct qwp_cursors_ring *ring,
                                   uint64_t head, uint32_t *handle, uint64_t *resume_pos)
{
    uint32_t found;
    if (!entry_find(cursors, ring, &found)) {
        if (!entry_make(cursors, ring, &found)) {
            return QWP_LIMIT;
        }
    }
    struct entry *entry = &cursors->entries[found];
    QWP_ASSERT(!entry->attached);
    uint64_t position = 0;
    entry->valid = (int8_t)record_choose(cursors, found, &position);
    entry->noted = NO_RECORD;
    entry->attached = true;
    *handle = found;
    *resume_pos = head;
    if (entry->valid != NO_RECORD && (position > head || !RULE(3))) {
        *resume_pos = position;
    }
    return QWP_OK;
}

void qwp_cursors_detach(struct qwp_cursors *cursors, uint32_t handle)
{
    QWP_ASSERT(handle < QWP_CURSORS_RINGS_MAX && cursors->entries[handle].attached);
    QWP_ASSERT(cursors->entries[handle].noted == NO_RECORD);
    entry_clear(cursors, handle);
}

void qwp_cursors_sweep(struct qwp_cursors *cursors)
{
    for (uint32_t handle = 0; handle < QWP_CURSORS_RINGS_MAX; handle++) {
        if (!cursors->entries[handle].attached && entry_used(entry_at(cursors, handle))) {
            entry_clear(cursors, handle);
        }
    }
}

/* Rule 2. With it left out: the one with the lower position, as the obvious code would have it. */
static int record_to_overwrite(const struct qwp_cursors *cursors, uint32_t handle)
{
    const struct entry *entry = &cursors->entries[handle];
    if (RULE(2)) {
        return entry->valid == 0 ? 1 : 0;
    }
    const uint64_t first = qwp_load_u64(record_at(cursors, handle, 0) + QWP_CURSORS_POSITION_OFF);
    const uint64_t second = qwp_load_u64(record_at(cursors, handle, 1) + QWP_CURSORS_POSITION_OFF);
    return first <= second ? 0 : 1;
}

void qwp_cursors_note(struct qwp_cursors *cursors, uint32_t handle, uint64_t fsn, uint64_t position,
                      uint32_t witness)
{
    QWP_ASSERT(handle < QWP_CURSORS_RINGS_MAX && cursors->entries[handle].attached);
    struct entry *entry = &cursors->entries[handle];
    QWP_ASSERT(entry->noted == NO_RECORD);
    const int index = record_to_overwrite(cursors, handle);
    unsigned char *record = record_at(cursors, handle, index);
    entry->noted = (int8_t)index;
    cursors->noted[cursors->noted_count++] = handle;
    record_erase(record);
    QWP_CRASH_POINT("cursors.opened");
    memcpy(record, cursors->slot_uuid, sizeof cursors->slot_uuid);
    qwp_store_u64(record + QWP_CURSORS_FSN_OFF, fsn);
    qwp_store_u64(record + QWP_CURSORS_POSITION_OFF, position);
    qwp_store_u32(record + QWP_CURSORS_WITNESS_OFF, witness);
    order_for_crash();
    QWP_CRASH_POINT("cursors.filled");
    qwp_store_u32(record + QWP_CURSORS_CRC_OFF, record_crc(entry_at(cursors, handle), record));
    order_for_crash();
    QWP_CRASH_POINT("cursors.noted");
}

void qwp_cursors_published(struct qwp_cursors *cursors)
{
    for (uint32_t i = 0; i < cursors->noted_count; i++) {
        struct entry *entry = &cursors->entries[cursors->noted[i]];
        entry->valid = entry->noted;
        entry->noted = NO_RECORD;
    }
    cursors->noted_count = 0;
}

void qwp_cursors_abandoned(struct qwp_cursors *cursors)
{
    for (uint32_t i = 0; i < cursors->noted_count; i++) {
        const uint32_t handle = cursors->noted[i];
        struct entry *entry = &cursors->entries[handle];
        if (RULE(1)) {
            record_erase(record_at(cursors, handle, entry->noted));
            QWP_CRASH_POINT("cursors.erased");
        }
        entry->noted = NO_RECORD;
    }
    cursors->noted_count = 0;
}

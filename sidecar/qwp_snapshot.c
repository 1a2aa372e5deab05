#include "sidecar/qwp_snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_shared_text.h"
#include "sidecar/qwp_json.h"

#define COUNTER_NAME(id, field) #field,
const char *const qwp_sidecar_counter_names[] = {QWP_SIDECAR_COUNTERS(COUNTER_NAME)};
const char *const qwp_producer_counter_names[] = {QWP_PRODUCER_COUNTERS(COUNTER_NAME)};

/* Figures, not protocol: relaxed. */
#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

static void copy_text(char *to, size_t to_bytes, const char *from, size_t from_bytes)
{
    qwp_shared_text_get(to, to_bytes, from, from_bytes);
    qwp_text_clean(to);
}

static void copy_latency(struct qwp_snapshot_latency *to, const struct qwp_control_latency *from)
{
    for (size_t i = 0; i < QWP_CONTROL_LATENCY_BUCKETS; i++) {
        to->buckets[i] = LOAD(from->buckets[i]);
    }
    to->sum_ns = LOAD(from->sum_ns);
}

static void copy_header(struct qwp_snapshot *to, const struct qwp_control_header *from)
{
    to->gen = LOAD(from->gen);
    to->sidecar_pid = LOAD(from->sidecar_pid);
    to->state = LOAD(from->state);
    to->connection = LOAD(from->connection);
    to->bell_mode = LOAD(from->bell_mode);
    to->started_us = LOAD(from->started_us);
    to->connected_us = LOAD(from->connected_us);
#define COUNTER_LOAD(id, field) to->counters[QWP_SIDECAR_##id] = LOAD(from->field);
    QWP_SIDECAR_COUNTERS(COUNTER_LOAD)
#undef COUNTER_LOAD
    copy_text(to->version, sizeof to->version, from->version, sizeof from->version);
    copy_text(to->endpoint, sizeof to->endpoint, from->endpoint, sizeof from->endpoint);
    copy_text(to->last_error, sizeof to->last_error, from->last_error, sizeof from->last_error);
    to->store_state = LOAD(from->store_state);
    to->keeper_failing = LOAD(from->keeper_failing) != 0;
    to->credentials_refused = LOAD(from->credentials_refused) != 0;
    to->progress_ns = LOAD(from->progress_ns);
    to->oldest_ns = LOAD(from->oldest_ns);
    to->beat_ns = LOAD(from->beat_ns);
    to->error_us = LOAD(from->error_us);
    for (size_t i = 0; i < QWP_CONTROL_ANSWERS; i++) {
        to->answers[i] = LOAD(from->answers[i]);
    }
    copy_latency(&to->seen_to_stored, &from->seen_to_stored);
    copy_latency(&to->stored_to_acked, &from->stored_to_acked);
    copy_latency(&to->seen_to_acked, &from->seen_to_acked);
    copy_text(to->store_error, sizeof to->store_error, from->store_error, sizeof from->store_error);
    copy_text(to->keeper_error, sizeof to->keeper_error, from->keeper_error,
              sizeof from->keeper_error);
}

static void copy_producer(struct qwp_snapshot_producer *to, uint32_t slot,
                          const struct qwp_control_producer *from)
{
    to->slot = slot;
    to->pid = LOAD(from->pid);
    to->uid = LOAD(from->uid);
    to->state = LOAD(from->state);
#define COUNTER_LOAD(id, field) to->counters[QWP_PRODUCER_##id] = LOAD(from->field);
    QWP_PRODUCER_COUNTERS(COUNTER_LOAD)
#undef COUNTER_LOAD
    copy_text(to->name, sizeof to->name, from->name, sizeof from->name);
    copy_text(to->file_name, sizeof to->file_name, from->file_name, sizeof from->file_name);
    copy_text(to->reason, sizeof to->reason, from->reason, sizeof from->reason);
}

/* How many entries the file has room for, whatever its header says. */
static uint32_t slot_count(size_t bytes, size_t entry_bytes, uint32_t claimed)
{
    const size_t room = bytes / entry_bytes;
    return claimed < room ? claimed : (uint32_t)room;
}

static enum qwp_result copy_producers(struct qwp_snapshot *snapshot,
                                      const struct qwp_control *control, struct qwp_error *err)
{
    if (control->bytes <= QWP_CONTROL_PRODUCERS_OFF) {
        return QWP_OK;
    }
    const uint32_t slots =
        slot_count(control->bytes - QWP_CONTROL_PRODUCERS_OFF, sizeof(struct qwp_control_producer),
                   LOAD(control->header->producers_max));
    snapshot->producers = calloc(slots + 1, sizeof *snapshot->producers);
    if (snapshot->producers == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to list %u producers", slots);
    }
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct qwp_control_producer *from = qwp_control_producer_at(control, slot);
        if (LOAD(from->in_use) != 0) {
            copy_producer(&snapshot->producers[snapshot->producer_count++], slot, from);
        }
    }
    return QWP_OK;
}

static enum qwp_result copy_tables(struct qwp_snapshot *snapshot, const struct qwp_control *control,
                                   struct qwp_error *err)
{
    const size_t off = QWP_CONTROL_PRODUCERS_OFF +
                       LOAD(control->header->producers_max) * sizeof(struct qwp_control_producer);
    if (control->bytes <= off) {
        return QWP_OK;
    }
    const uint32_t slots = slot_count(control->bytes - off, sizeof(struct qwp_control_table),
                                      LOAD(control->header->tables_max));
    snapshot->tables = calloc(slots + 1, sizeof *snapshot->tables);
    if (snapshot->tables == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to list %u tables", slots);
    }
    for (uint32_t slot = 0; slot < slots; slot++) {
        const struct qwp_control_table *from = qwp_control_table_at(control, slot);
        struct qwp_snapshot_table *to = &snapshot->tables[snapshot->table_count];
        copy_text(to->name, sizeof to->name, from->name, sizeof from->name);
        if (to->name[0] == '\0') {
            break;
        }
        to->rows_stored = LOAD(from->rows_stored);
        snapshot->table_count++;
    }
    return QWP_OK;
}

/* Those of which the server refused rows. */
static void copy_troubles(struct qwp_snapshot *to, const struct qwp_control *control)
{
    const struct qwp_control_header *from = control->header;
    if (LOAD(from->minor) < 3) {
        return;
    }
    to->tables_suspect = LOAD(from->tables_suspect);
    to->tables_blocked = LOAD(from->tables_blocked);
    to->rejected_bytes = LOAD(from->rejected_bytes);
    to->rejected_bytes_max = LOAD(from->rejected_bytes_max);
    copy_text(to->rejected_dir, sizeof to->rejected_dir, from->rejected_dir,
              sizeof from->rejected_dir);
    const uint64_t off = QWP_CONTROL_PRODUCERS_OFF +
                         LOAD(from->producers_max) * sizeof(struct qwp_control_producer) +
                         LOAD(from->tables_max) * sizeof(struct qwp_control_table);
    uint32_t count = LOAD(from->troubles);
    count = count < QWP_SNAPSHOT_TROUBLES_MAX ? count : QWP_SNAPSHOT_TROUBLES_MAX;
    count = off < control->bytes
                ? slot_count(control->bytes - off, sizeof(struct qwp_control_trouble), count)
                : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct qwp_control_trouble *trouble = qwp_control_trouble_at(control, i);
        struct qwp_snapshot_trouble *copy = &to->troubles[to->trouble_count++];
        copy_text(copy->name, sizeof copy->name, trouble->name, sizeof trouble->name);
        copy_text(copy->reason, sizeof copy->reason, trouble->reason, sizeof trouble->reason);
        copy->state = LOAD(trouble->state);
        copy->status = LOAD(trouble->status);
        copy->rows_aside = LOAD(trouble->rows_aside);
    }
}

/* -1 with errno; unlike a producer, a look makes no directory. */
static int open_instance(const char *dir, const char *name)
{
    const int outer = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (outer < 0) {
        return -1;
    }
    const int fd = openat(outer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const int cause = errno;
    close(outer);
    errno = cause;
    return fd;
}

static void count_ring(void *owner, const char *file_name)
{
    (void)file_name;
    (*(uint64_t *)owner)++;
}

static enum qwp_result copy(struct qwp_snapshot *snapshot, const struct qwp_control *control,
                            struct qwp_error *err)
{
    snapshot->has_control = true;
    copy_header(snapshot, control->header);
    copy_troubles(snapshot, control);
    enum qwp_result result = copy_producers(snapshot, control, err);
    if (result == QWP_OK) {
        result = copy_tables(snapshot, control, err);
    }
    return result;
}

static enum qwp_result look(struct qwp_snapshot *snapshot, int dir_fd, struct qwp_error *err)
{
    struct qwp_control control = {0};
    enum qwp_result result = qwp_rendezvous_scan(dir_fd, count_ring, &snapshot->ring_count, err);
    if (result != QWP_OK) {
        return result;
    }
    result = qwp_control_map(&control, dir_fd, err);
    if (result == QWP_AGAIN) {
        return QWP_OK;
    }
    if (result != QWP_OK) {
        return result;
    }
    snapshot->is_live = qwp_control_is_live(&control);
    result = copy(snapshot, &control, err);
    qwp_control_unmap(&control);
    return result;
}

enum qwp_result qwp_snapshot_take(struct qwp_snapshot *snapshot, const char *dir, const char *name,
                                  struct qwp_error *err)
{
    struct qwp_snapshot taken = {.taken_ns = qwp_clock_monotonic_ns()};
    const int fd = open_instance(dir, name);
    if (fd < 0 && errno != ENOENT) {
        return qwp_fail(err, QWP_IO, errno, "cannot open '%s/%s'", dir, name);
    }
    enum qwp_result result = QWP_OK;
    if (fd >= 0) {
        result = look(&taken, fd, err);
        close(fd);
    }
    if (result != QWP_OK) {
        qwp_error_prefix(err, "%s/%s", dir, name);
        qwp_snapshot_fini(&taken);
        return result;
    }
    *snapshot = taken;
    return QWP_OK;
}

enum qwp_result qwp_snapshot_copy(struct qwp_snapshot *snapshot, const struct qwp_control *control,
                                  struct qwp_error *err)
{
    struct qwp_snapshot taken = {.taken_ns = qwp_clock_monotonic_ns(), .is_live = true};
    const enum qwp_result result = copy(&taken, control, err);
    if (result != QWP_OK) {
        qwp_snapshot_fini(&taken);
        return result;
    }
    *snapshot = taken;
    return QWP_OK;
}

void qwp_snapshot_fini(struct qwp_snapshot *snapshot)
{
    free(snapshot->producers);
    free(snapshot->tables);
    *snapshot = (struct qwp_snapshot){0};
}

const struct qwp_snapshot_producer *qwp_snapshot_find(const struct qwp_snapshot *before,
                                                      const struct qwp_snapshot_producer *producer)
{
    /* Both lists are in the order of the slots. */
    for (size_t i = 0; i < before->producer_count && before->producers[i].slot <= producer->slot;
         i++) {
        const struct qwp_snapshot_producer *other = &before->producers[i];
        if (other->slot == producer->slot && other->pid == producer->pid) {
            return other;
        }
    }
    return NULL;
}

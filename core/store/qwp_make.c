#include "core/store/qwp_make.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "core/qwp_crash.h"

struct unready {
    char name[QWP_STORE_NAME_BYTES + sizeof QWP_UNREADY_SUFFIX];
};

static struct unready unready_name(const struct qwp_segment *segment)
{
    struct unready unready;
    snprintf(unready.name, sizeof unready.name, "%s%s", segment->name, QWP_UNREADY_SUFFIX);
    return unready;
}

void qwp_segment_free(struct qwp_segment *segment, const struct qwp_sys *sys)
{
    if (segment == NULL) {
        return;
    }
    if (segment->map != NULL) {
        sys->munmap(segment->map, segment->bytes);
    }
    if (segment->fd >= 0) {
        sys->close(segment->fd);
    }
    free(segment);
}

enum qwp_result qwp_make_new(struct qwp_make *make, const struct qwp_make_place *place,
                             uint64_t number, uint64_t bytes, uint8_t flags, struct qwp_error *err)
{
    struct qwp_segment *segment = calloc(1, sizeof *segment);
    if (segment == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a segment");
    }
    segment->bytes = bytes;
    segment->light = (flags & QWP_SEGMENT_LIGHT) != 0;
    segment->end_off = QWP_SEGMENT_HEADER_BYTES;
    snprintf(segment->name, sizeof segment->name, "sf-%016" PRIx64 "%s", number,
             QWP_SEGMENT_SUFFIX);
    const struct unready unready = unready_name(segment);
    segment->fd = qwp_sys_open(place->sys, place->dir_fd, unready.name,
                               O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (segment->fd < 0) {
        const int error = errno;
        free(segment);
        return qwp_fail(err, QWP_IO, error, "cannot make segment %s", unready.name);
    }
    QWP_CRASH_POINT("make.opened");
    *make = (struct qwp_make){.segment = segment, .step = QWP_MAKE_ALLOCATE, .flags = flags};
    return QWP_OK;
}

/* How far from its start a segment is zeroed before it may be used again. */
static uint64_t zero_end(const struct qwp_segment *segment, bool light_next)
{
    if (light_next) {
        return QWP_SEGMENT_HEADER_BYTES + QWP_FRAME_HEADER_BYTES;
    }
    return segment->light ? segment->bytes : segment->end_off;
}

enum qwp_result qwp_make_again(struct qwp_make *make, const struct qwp_make_place *place,
                               struct qwp_segment *segment, uint8_t flags, struct qwp_error *err)
{
    const struct unready unready = unready_name(segment);
    if (segment->fd < 0 && place->durable) {
        segment->fd = qwp_sys_open(place->sys, place->dir_fd, segment->name,
                                   O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
        if (segment->fd < 0) {
            return qwp_fail(err, QWP_IO, errno, "cannot open segment %s", segment->name);
        }
    }
    if (place->sys->renameat(place->dir_fd, segment->name, place->dir_fd, unready.name) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot rename segment %s", segment->name);
    }
    QWP_CRASH_POINT("recycle.hidden");
    const bool light = (flags & QWP_SEGMENT_LIGHT) != 0;
    *make = (struct qwp_make){.segment = segment,
                              .step = QWP_MAKE_ZERO,
                              .flags = flags,
                              .old_end_off = zero_end(segment, light)};
    segment->light = light;
    segment->ready_off = 0;
    atomic_store_explicit(&segment->next, NULL, memory_order_relaxed);
    return QWP_OK;
}

static void hand_out(struct qwp_make *make, struct qwp_slow_op op)
{
    make->op = op;
    make->op_out = true;
}

/* The next piece of [0, bytes) for a step that is done in pieces. */
static uint64_t piece(const struct qwp_segment *segment, uint64_t step_bytes)
{
    const uint64_t left = segment->bytes - segment->ready_off;
    return step_bytes == 0 || left < step_bytes ? left : step_bytes;
}

static void step_to(struct qwp_make *make, enum qwp_make_step step)
{
    make->step = step;
    make->segment->ready_off = 0;
}

static void allocate_some(struct qwp_make *make, const struct qwp_make_place *place)
{
    struct qwp_segment *segment = make->segment;
    if (segment->ready_off == segment->bytes) {
        QWP_CRASH_POINT("make.allocated");
        step_to(make, QWP_MAKE_MAP);
        return;
    }
    const uint64_t len = piece(segment, place->step_bytes);
    hand_out(make, (struct qwp_slow_op){.kind = QWP_SLOW_ALLOCATE,
                                        .fd = segment->fd,
                                        .off = segment->ready_off,
                                        .len = len});
    segment->ready_off += len;
}

static enum qwp_result map_whole(struct qwp_make *make, const struct qwp_make_place *place,
                                 struct qwp_error *err)
{
    struct qwp_segment *segment = make->segment;
    void *map =
        place->sys->mmap(NULL, segment->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, segment->fd, 0);
    if (map == MAP_FAILED) {
        return qwp_fail(err, errno == ENOMEM ? QWP_NOMEM : QWP_IO, errno, "cannot map segment %s",
                        segment->name);
    }
    segment->map = map;
    step_to(make, QWP_MAKE_POPULATE);
    return QWP_AGAIN;
}

static void populate_some(struct qwp_make *make, const struct qwp_make_place *place)
{
    struct qwp_segment *segment = make->segment;
    if (segment->ready_off == segment->bytes || !place->populate) {
        QWP_CRASH_POINT("make.populated");
        step_to(make,
                place->durable && place->populate ? QWP_MAKE_POPULATE_WINDOW : QWP_MAKE_HEADER);
        return;
    }
    const uint64_t len = piece(segment, place->step_bytes);
    hand_out(make, (struct qwp_slow_op){.kind = QWP_SLOW_POPULATE,
                                        .at = segment->map + segment->ready_off,
                                        .len = len,
                                        .advice = place->durable ? QWP_POPULATE_READ
                                                                 : QWP_POPULATE_WRITE});
    segment->ready_off += len;
    if (!place->durable) {
        segment->window_off = segment->ready_off;
    }
}

static void populate_window(struct qwp_make *make)
{
    struct qwp_segment *segment = make->segment;
    hand_out(make, qwp_segment_window(segment, 0));
    make->step = QWP_MAKE_HEADER;
}

struct qwp_slow_op qwp_segment_window(struct qwp_segment *segment, uint64_t from)
{
    const uint64_t page = 4096;
    from &= ~(page - 1);
    const uint64_t left = segment->bytes - from;
    const uint64_t len = left < QWP_WINDOW_BYTES ? left : QWP_WINDOW_BYTES;
    segment->window_off = from + len;
    return (struct qwp_slow_op){.kind = QWP_SLOW_POPULATE,
                                .at = segment->map + from,
                                .len = len,
                                .advice = QWP_POPULATE_WRITE};
}

static void zero_some(struct qwp_make *make)
{
    struct qwp_segment *segment = make->segment;
    const uint64_t left = make->old_end_off - segment->ready_off;
    const uint64_t len = left < QWP_MAKE_ZERO_STEP_BYTES ? left : QWP_MAKE_ZERO_STEP_BYTES;
    memset(segment->map + segment->ready_off, 0, len);
    segment->ready_off += len;
    QWP_CRASH_POINT("recycle.zeroed");
    if (segment->ready_off == make->old_end_off) {
        step_to(make, QWP_MAKE_HEADER);
    }
}

static enum qwp_result rename_ready(struct qwp_make *make, const struct qwp_make_place *place,
                                    struct qwp_error *err)
{
    const struct unready unready = unready_name(make->segment);
    if (place->sys->renameat(place->dir_fd, unready.name, place->dir_fd, make->segment->name) !=
        0) {
        return qwp_fail(err, QWP_IO, errno, "cannot rename segment %s", unready.name);
    }
    make->renamed = true;
    QWP_CRASH_POINT("make.renamed");
    make->step = QWP_MAKE_READY;
    return QWP_AGAIN;
}

/* Results of the operation that the last step handed out. */
static enum qwp_result op_judge(struct qwp_make *make, struct qwp_error *err)
{
    QWP_ASSERT(make->op.done);
    make->op_out = false;
    /* Populating is a kindness; where it cannot be had, the first touch does it. But a lack of
     * memory now would be a signal then. */
    if (make->op.error == 0 || (make->op.kind == QWP_SLOW_POPULATE && make->op.error != ENOMEM &&
                                make->op.error != EFAULT && make->op.error != ENOSPC)) {
        return QWP_OK;
    }
    static const char *const what[] = {
        [QWP_SLOW_ALLOCATE] = "reserve space for",
        [QWP_SLOW_POPULATE] = "populate",
    };
    return qwp_fail(err, QWP_IO, make->op.error,
                    "cannot %s segment %s: %llu bytes needed, %llu available in its file system",
                    what[make->op.kind], make->segment->name,
                    (unsigned long long)make->segment->bytes, qwp_sys_available(make->segment->fd));
}

enum qwp_result qwp_make_step(struct qwp_make *make, const struct qwp_make_place *place,
                              struct qwp_error *err)
{
    struct qwp_segment *segment = make->segment;
    if (make->op_out) {
        const enum qwp_result result = op_judge(make, err);
        if (result != QWP_OK) {
            return result;
        }
    }
    switch (make->step) {
    case QWP_MAKE_IDLE:
        break;
    case QWP_MAKE_ALLOCATE:
        allocate_some(make, place);
        return QWP_AGAIN;
    case QWP_MAKE_MAP:
        return map_whole(make, place, err);
    case QWP_MAKE_POPULATE:
        populate_some(make, place);
        return QWP_AGAIN;
    case QWP_MAKE_POPULATE_WINDOW:
        populate_window(make);
        return QWP_AGAIN;
    case QWP_MAKE_ZERO:
        zero_some(make);
        return QWP_AGAIN;
    case QWP_MAKE_HEADER:
        qwp_segment_put_header(segment->map, make->flags, QWP_SPARE_BASE,
                               qwp_clock_wall_ns() / QWP_NS_PER_US);
        segment->base = QWP_SPARE_BASE;
        segment->end_off = QWP_SEGMENT_HEADER_BYTES;
        atomic_store_explicit(&segment->append_off, segment->end_off, memory_order_relaxed);
        QWP_CRASH_POINT("make.header");
        make->step = QWP_MAKE_RENAME;
        return QWP_AGAIN;
    case QWP_MAKE_RENAME:
        return rename_ready(make, place, err);
    case QWP_MAKE_READY:
        if (!place->durable && segment->fd >= 0) {
            place->sys->close(segment->fd);
            segment->fd = -1;
        }
        segment->suspect = false;
        make->step = QWP_MAKE_IDLE;
        return QWP_OK;
    }
    QWP_ASSERT(false); /* a segment is being made */
    return QWP_CLOSED;
}

static uint64_t file_remove(const char *name, uint64_t bytes, const struct qwp_make_place *place,
                            struct qwp_leftover *leftover)
{
    if (place->sys->unlinkat(place->dir_fd, name, 0) == 0 || errno == ENOENT) {
        return bytes;
    }
    QWP_ASSERT(leftover->name[0] == '\0');
    snprintf(leftover->name, sizeof leftover->name, "%s", name);
    leftover->bytes = bytes;
    return 0;
}

uint64_t qwp_make_undo(struct qwp_make *make, const struct qwp_make_place *place,
                       struct qwp_leftover *leftover)
{
    struct qwp_segment *segment = make->segment;
    const struct unready unready = unready_name(segment);
    const uint64_t freed =
        file_remove(make->renamed ? segment->name : unready.name, segment->bytes, place, leftover);
    qwp_segment_free(segment, place->sys);
    *make = (struct qwp_make){0};
    return freed;
}

uint64_t qwp_segment_remove(struct qwp_segment *segment, const struct qwp_make_place *place,
                            struct qwp_leftover *leftover)
{
    const uint64_t freed = file_remove(segment->name, segment->bytes, place, leftover);
    qwp_segment_free(segment, place->sys);
    return freed;
}

enum qwp_result qwp_leftover_remove(struct qwp_leftover *leftover,
                                    const struct qwp_make_place *place, uint64_t *freed,
                                    struct qwp_error *err)
{
    *freed = 0;
    if (leftover->name[0] == '\0') {
        return QWP_OK;
    }
    if (place->sys->unlinkat(place->dir_fd, leftover->name, 0) != 0 && errno != ENOENT) {
        return qwp_fail(err, QWP_IO, errno, "cannot remove %s", leftover->name);
    }
    *freed = leftover->bytes;
    *leftover = (struct qwp_leftover){0};
    return QWP_OK;
}

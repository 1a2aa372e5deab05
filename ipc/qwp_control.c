/* The control file: made by the sidecar, mapped read-only by everyone else. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_assert.h"
#include "core/qwp_clock.h"
#include "ipc/qwp_file.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_shared_text.h"

enum {
    FILE_MODE = 0640,
    PRODUCERS_MAX = 64 * 1024,
    TABLES_MAX = 64 * 1024,
    TROUBLES_MAX = 64,
};

/* Copies one field out of the header. */
#define FIELD(header, field) atomic_load_explicit(&(header)->field, memory_order_relaxed)

static uint64_t tables_off(uint32_t producers)
{
    return QWP_CONTROL_PRODUCERS_OFF + (uint64_t)producers * sizeof(struct qwp_control_producer);
}

static uint64_t troubles_off(uint32_t producers, uint32_t tables)
{
    return tables_off(producers) + (uint64_t)tables * sizeof(struct qwp_control_table);
}

static uint64_t file_bytes_for(uint32_t producers, uint32_t tables, uint32_t troubles)
{
    return troubles_off(producers, tables) +
           (uint64_t)troubles * sizeof(struct qwp_control_trouble);
}

static void fill_header(struct qwp_control *control, const struct qwp_control_options *options)
{
    struct qwp_control_header *header = control->header;
    uint64_t gen;
    do {
        gen = qwp_random_u64();
    } while (gen == 0);
    /* Plain order is enough: rename(2) publishes the file, and attach_gen each ring's view of it.
     */
    atomic_store_explicit(&header->major, QWP_CONTROL_MAJOR, memory_order_relaxed);
    atomic_store_explicit(&header->minor, QWP_CONTROL_MINOR, memory_order_relaxed);
    atomic_store_explicit(&header->ring_major_min, QWP_RING_MAJOR, memory_order_relaxed);
    atomic_store_explicit(&header->ring_major_max, QWP_RING_MAJOR, memory_order_relaxed);
    atomic_store_explicit(&header->file_bytes, control->bytes, memory_order_relaxed);
    atomic_store_explicit(&header->gen, gen, memory_order_relaxed);
    atomic_store_explicit(&header->sidecar_pid, (uint32_t)getpid(), memory_order_relaxed);
    atomic_store_explicit(&header->bell_mode, options->bell_mode, memory_order_relaxed);
    atomic_store_explicit(&header->bell_fence, options->bell_fence, memory_order_relaxed);
    atomic_store_explicit(&header->producers_max, options->producers_max, memory_order_relaxed);
    atomic_store_explicit(&header->tables_max, options->tables_max, memory_order_relaxed);
    atomic_store_explicit(&header->troubles_max, TROUBLES_MAX, memory_order_relaxed);
    atomic_store_explicit(&header->started_us, qwp_clock_wall_ns() / QWP_NS_PER_US,
                          memory_order_relaxed);
    atomic_store_explicit(&header->ring_bytes_max, options->ring_bytes_max, memory_order_relaxed);
    qwp_shared_text_set(header->version, sizeof header->version, QWP_VERSION);
    atomic_store_explicit(&header->state, QWP_SIDECAR_RUNNING, memory_order_relaxed);
    atomic_store_explicit(&header->magic, QWP_CONTROL_MAGIC, memory_order_release);
}

/* The write lock on the whole file, which stays with this open file description. */
static bool lock_for_life(int fd)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    return fcntl(fd, F_OFD_SETLK, &lock) == 0;
}

static enum qwp_result make_file(struct qwp_control *control, struct qwp_error *err)
{
    if (fchmod(control->fd, FILE_MODE) != 0 || !lock_for_life(control->fd)) {
        return qwp_fail(err, QWP_IO, errno, "cannot lock the control file");
    }
    const enum qwp_result result =
        qwp_file_reserve(control->fd, 0, control->bytes, "the control file", err);
    if (result != QWP_OK) {
        return result;
    }
    void *at = mmap(NULL, control->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, control->fd, 0);
    if (at == MAP_FAILED) {
        return qwp_fail(err, QWP_NOMEM, errno, "cannot map the control file");
    }
    control->header = at;
    return QWP_OK;
}

enum qwp_result qwp_control_create(struct qwp_control *control, int dir_fd,
                                   const struct qwp_control_options *options, struct qwp_error *err)
{
    *control = (struct qwp_control){.fd = -1};
    if (options->producers_max == 0 || options->producers_max > PRODUCERS_MAX) {
        return qwp_fail(err, QWP_INVALID, 0, "room for %u producers is asked for, 1..%d can be had",
                        options->producers_max, PRODUCERS_MAX);
    }
    if (options->tables_max > TABLES_MAX) {
        return qwp_fail(err, QWP_INVALID, 0, "room for %u tables is asked for, 0..%d can be had",
                        options->tables_max, TABLES_MAX);
    }
    char tmp_name[QWP_FILE_NAME_BYTES];
    qwp_tmp_name(tmp_name, sizeof tmp_name);
    control->bytes = file_bytes_for(options->producers_max, options->tables_max, TROUBLES_MAX);
    control->fd = qwp_fd_above_stdio(
        openat(dir_fd, tmp_name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, FILE_MODE));
    if (control->fd < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot make the control file");
    }
    enum qwp_result result = make_file(control, err);
    if (result == QWP_OK) {
        fill_header(control, options);
        if (renameat(dir_fd, tmp_name, dir_fd, QWP_CONTROL_FILE) != 0) {
            result = qwp_fail(err, QWP_IO, errno,
                              "cannot move the control file into place; is one of another user "
                              "there, in a directory that is not ours?");
        }
    }
    if (result != QWP_OK) {
        unlinkat(dir_fd, tmp_name, 0);
        qwp_control_unmap(control);
    }
    return result;
}

void qwp_control_close(struct qwp_control *control)
{
    if (control->header != NULL) {
        atomic_store_explicit(&control->header->state, QWP_SIDECAR_GONE, memory_order_relaxed);
    }
    qwp_control_unmap(control);
}

struct qwp_control_producer *qwp_control_producer_at(const struct qwp_control *control,
                                                     uint32_t index)
{
    QWP_ASSERT(tables_off(index + 1) <= control->bytes);
    struct qwp_control_producer *first =
        (struct qwp_control_producer *)((char *)control->header + QWP_CONTROL_PRODUCERS_OFF);
    return first + index;
}

struct qwp_control_table *qwp_control_table_at(const struct qwp_control *control, uint32_t index)
{
    const uint32_t producers = FIELD(control->header, producers_max);
    QWP_ASSERT(troubles_off(producers, index + 1) <= control->bytes);
    struct qwp_control_table *first =
        (struct qwp_control_table *)((char *)control->header + tables_off(producers));
    return first + index;
}

struct qwp_control_trouble *qwp_control_trouble_at(const struct qwp_control *control,
                                                   uint32_t index)
{
    const uint32_t producers = FIELD(control->header, producers_max);
    const uint32_t tables = FIELD(control->header, tables_max);
    QWP_ASSERT(file_bytes_for(producers, tables, index + 1) <= control->bytes);
    struct qwp_control_trouble *first =
        (struct qwp_control_trouble *)((char *)control->header + troubles_off(producers, tables));
    return first + index;
}

/* ---- everyone else ---- */

static enum qwp_result check_header(const struct qwp_control_header *header, uint64_t file_bytes,
                                    struct qwp_error *err)
{
    if (FIELD(header, magic) != QWP_CONTROL_MAGIC) {
        return qwp_fail(err, QWP_CORRUPT, 0, "no control file: magic 0x%016llx, expected 0x%016llx",
                        (unsigned long long)FIELD(header, magic),
                        (unsigned long long)QWP_CONTROL_MAGIC);
    }
    if (FIELD(header, major) != QWP_CONTROL_MAJOR) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "the sidecar's control file has layout %u.%u, this library (" QWP_VERSION
                        ") reads %d.x; upgrade the older of the two",
                        FIELD(header, major), FIELD(header, minor), QWP_CONTROL_MAJOR);
    }
    const uint32_t producers = FIELD(header, producers_max);
    const uint32_t tables = FIELD(header, tables_max);
    const uint32_t troubles = FIELD(header, minor) >= 3 ? FIELD(header, troubles_max) : 0;
    if (producers > PRODUCERS_MAX || tables > TABLES_MAX || troubles > TROUBLES_MAX ||
        FIELD(header, file_bytes) != file_bytes ||
        file_bytes < file_bytes_for(producers, tables, troubles)) {
        return qwp_fail(err, QWP_CORRUPT, 0,
                        "control file of %llu bytes with %u producers, its header says %llu bytes",
                        (unsigned long long)file_bytes, producers,
                        (unsigned long long)FIELD(header, file_bytes));
    }
    return QWP_OK;
}

/* Reads the header with a plain read: a file cut short is then an error and no signal. */
static enum qwp_result inspect(int fd, size_t *bytes, struct qwp_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot look at the control file");
    }
    if (!S_ISREG(st.st_mode)) {
        return qwp_fail(err, QWP_CORRUPT, 0, "the control file is no plain file (mode 0%o)",
                        (unsigned)st.st_mode);
    }
    struct qwp_control_header copy;
    ssize_t n;
    do {
        n = pread(fd, &copy, sizeof copy, 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) {
        return qwp_fail(err, QWP_IO, errno, "cannot read the control file");
    }
    if ((size_t)n < sizeof copy) {
        return qwp_fail(err, QWP_CORRUPT, 0, "control file of %zd bytes, the header alone has %zu",
                        n, sizeof copy);
    }
    *bytes = (size_t)st.st_size;
    return check_header(&copy, (uint64_t)st.st_size, err);
}

enum qwp_result qwp_control_map(struct qwp_control *control, int dir_fd, struct qwp_error *err)
{
    *control = (struct qwp_control){.fd = -1};
    control->fd = qwp_fd_above_stdio(
        openat(dir_fd, QWP_CONTROL_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (control->fd < 0) {
        if (errno == ENOENT) {
            return qwp_fail(err, QWP_AGAIN, 0, "no sidecar has been here yet");
        }
        return qwp_fail(err, errno == ELOOP ? QWP_CORRUPT : QWP_IO, errno,
                        "cannot open the control file");
    }
    enum qwp_result result = inspect(control->fd, &control->bytes, err);
    if (result == QWP_OK) {
        void *at = mmap(NULL, control->bytes, PROT_READ, MAP_SHARED, control->fd, 0);
        if (at == MAP_FAILED) {
            result = qwp_fail(err, QWP_NOMEM, errno, "cannot map the control file");
        } else {
            control->header = at;
        }
    }
    if (result != QWP_OK) {
        qwp_control_unmap(control);
    }
    return result;
}

void qwp_control_unmap(struct qwp_control *control)
{
    if (control->header != NULL) {
        munmap(control->header, control->bytes);
    }
    if (control->fd > 0) {
        close(control->fd);
    }
    *control = (struct qwp_control){.fd = -1};
}

bool qwp_control_is_live(const struct qwp_control *control)
{
    if (control->header == NULL) {
        return false;
    }
    /* Asks whether our read lock would meet the sidecar's write lock; takes nothing. */
    struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
    return fcntl(control->fd, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

/* Questions: how near is an append with its CRC to a bare memcpy? How long does the append take
 * that rotates to a ready spare?
 *
 * Guess made beforehand: an append touches each byte twice (copy, CRC), so half of memcpy, less a
 * little; 0.8 of that half is what is asked for. A rotation is a few stores: 1 us at the median on
 * tmpfs, 5 at the 99th percentile; ten times that on a disk, where the first touch of a page costs.
 *
 *   bench_store [--dir DIR] [--disk DIR] [--frames N] [--rotations N] [--smoke]
 *               [--json FILE]
 *
 * Found on a busy two-core machine: 1.3-1.5 of memcpy / 2 (three CRC streams cost little beside the
 * copy), rotation 1.0 / 2.0 us in memory mode, 1.9 / 3-12 on ext4. Before pages were made writable
 * ahead by the keeper, the last was 12 / 140-320: the first store to a page that a sync has
 * protected is the file system's work, and the manifest was such a page at each rotation.
 *
 * A (memcpy into a mapped file of the same size on the same file system) and B (append) alternate.
 * The keeper runs between frames and is not part of B's time; B+keeper is the same with it. Frames
 * are acknowledged at once, so that segments go round. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_crc32c.h"
#include "core/store/qwp_seglog.h"
#include "perf/bench_json.h"

enum {
    FRAME_BYTES = 64 * 1024,
    SEGMENT_BYTES = 4 * 1024 * 1024,
    SOURCES = 8, /* half a megabyte to copy from: as warm as fresh rows are */
    MAP_BYTES = 4 * SEGMENT_BYTES,
    REPEATS = 7,
    SMALL_FRAME_BYTES = 2048,
};

static unsigned char *sources;
static struct bench_json json;
static uint64_t checksum;

static void die(const char *what, const struct qwp_error *err)
{
    fprintf(stderr, "bench_store: %s: %s\n", what, err != NULL ? err->text : strerror(errno));
    exit(1);
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static int by_ns(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a;
    const int64_t y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static struct qwp_seglog *slot_open(const char *dir, uint64_t segment_bytes, bool payload_crc)
{
    const struct qwp_seglog_options options = {
        .dir = dir,
        .segment_bytes = segment_bytes,
        .total_bytes_max = 32 * segment_bytes,
        .durability = QWP_DURABILITY_MEMORY,
        .payload_crc = payload_crc,
        .symbols_max = 1000,
        .symbol_bytes_max = 1 << 20,
    };
    struct qwp_seglog *log = NULL;
    struct qwp_error err;
    if (qwp_seglog_open(&log, &options, &err) != QWP_OK) {
        die("open", &err);
    }
    return log;
}

static void settle(struct qwp_seglog *log)
{
    bool more = true;
    int64_t next_ns;
    while (more) {
        qwp_seglog_maintain(log, qwp_clock_monotonic_ns(), &more, &next_ns);
    }
}

/* Returns the time of the append alone. */
static int64_t append(struct qwp_seglog *log, const unsigned char *from, size_t len)
{
    unsigned char *at;
    size_t room;
    struct qwp_error err;
    const int64_t began_ns = qwp_clock_monotonic_ns();
    if (qwp_seglog_reserve(log, len, len, &at, &room, &err) != QWP_OK) {
        die("reserve", &err);
    }
    memcpy(at, from, len);
    uint32_t witness;
    qwp_seglog_finish(log, len, len, &witness);
    const uint64_t fsn = qwp_seglog_publish(log);
    const int64_t took_ns = qwp_clock_monotonic_ns() - began_ns;
    checksum += witness;
    qwp_seglog_ack(log, fsn);
    return took_ns;
}

static double gb_per_s(uint64_t bytes, int64_t ns)
{
    return (double)bytes / (double)ns;
}

struct rates {
    double append, append_and_keeper;
};

static struct rates appends_run(struct qwp_seglog *log, uint64_t frames)
{
    int64_t append_ns = 0;
    const int64_t began_ns = qwp_clock_monotonic_ns();
    for (uint64_t i = 0; i < frames; i++) {
        append_ns += append(log, sources + (i % SOURCES) * FRAME_BYTES, FRAME_BYTES);
        settle(log);
    }
    const int64_t all_ns = qwp_clock_monotonic_ns() - began_ns;
    return (struct rates){gb_per_s(frames * FRAME_BYTES, append_ns),
                          gb_per_s(frames * FRAME_BYTES, all_ns)};
}

static double memcpys_run(unsigned char *map, uint64_t frames)
{
    int64_t copy_ns = 0;
    for (uint64_t i = 0; i < frames; i++) {
        unsigned char *at = map + i % (MAP_BYTES / FRAME_BYTES) * FRAME_BYTES;
        const int64_t began_ns = qwp_clock_monotonic_ns();
        memcpy(at, sources + (i % SOURCES) * FRAME_BYTES, FRAME_BYTES);
        copy_ns += qwp_clock_monotonic_ns() - began_ns;
        checksum += at[i % FRAME_BYTES];
    }
    return gb_per_s(frames * FRAME_BYTES, copy_ns);
}

static double crcs_run(uint64_t frames)
{
    const int64_t began_ns = qwp_clock_monotonic_ns();
    for (uint64_t i = 0; i < frames; i++) {
        checksum += qwp_crc32c(0, sources + (i % SOURCES) * FRAME_BYTES, FRAME_BYTES);
    }
    return gb_per_s(frames * FRAME_BYTES, qwp_clock_monotonic_ns() - began_ns);
}

static unsigned char *file_map(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || posix_fallocate(fd, 0, MAP_BYTES) != 0) {
        die(path, NULL);
    }
    unsigned char *map =
        mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (map == MAP_FAILED) {
        die("mmap", NULL);
    }
    close(fd);
    memset(map, 1, MAP_BYTES);
    return map;
}

static void throughput(const char *dir, uint64_t frames)
{
    char slot[300];
    char copy[300];
    snprintf(slot, sizeof slot, "%s/slot", dir);
    snprintf(copy, sizeof copy, "%s/copy", dir);
    struct qwp_seglog *log = slot_open(slot, SEGMENT_BYTES, true);
    unsigned char *map = file_map(copy);
    double a[REPEATS], b[REPEATS], c[REPEATS], k[REPEATS];
    (void)appends_run(log, frames / 4 + 1);
    for (int i = 0; i < REPEATS; i++) {
        a[i] = memcpys_run(map, frames);
        const struct rates rates = appends_run(log, frames);
        b[i] = rates.append;
        k[i] = rates.append_and_keeper;
        c[i] = crcs_run(frames);
    }
    struct qwp_seglog_stats stats;
    qwp_seglog_stats(log, &stats);
    qwp_seglog_close(log);
    munmap(map, MAP_BYTES);
    unlink(copy);
    bench_json_runs(&json, "append", "memcpy", NULL, "gb_per_s", a, REPEATS);
    bench_json_runs(&json, "append", "crc alone", "memcpy", "gb_per_s", c, REPEATS);
    bench_json_runs(&json, "append", "append with crc", "memcpy", "gb_per_s", b, REPEATS);
    bench_json_runs(&json, "append", "append with crc and keeper", "memcpy", "gb_per_s", k,
                    REPEATS);
    qsort(a, REPEATS, sizeof *a, by_value);
    qsort(b, REPEATS, sizeof *b, by_value);
    qsort(c, REPEATS, sizeof *c, by_value);
    qsort(k, REPEATS, sizeof *k, by_value);
    const int m = REPEATS / 2;
    printf("64 KiB frames, GB/s, median (least, most) of %d x %llu:\n", REPEATS,
           (unsigned long long)frames);
    printf("  A memcpy            %6.2f (%.2f, %.2f)\n", a[m], a[0], a[REPEATS - 1]);
    printf("  CRC alone           %6.2f (%.2f, %.2f)\n", c[m], c[0], c[REPEATS - 1]);
    printf("  B append with CRC   %6.2f (%.2f, %.2f)  = %.2f of memcpy / 2 passes\n", b[m], b[0],
           b[REPEATS - 1], b[m] / (a[m] / 2));
    printf("  B with the keeper   %6.2f (%.2f, %.2f)  = %.2f of memcpy / 3 passes (zeroing)\n",
           k[m], k[0], k[REPEATS - 1], k[m] / (a[m] / 3));
    printf("  rotations %llu, without spare %llu, recycled %llu\n",
           (unsigned long long)stats.rotations, (unsigned long long)stats.rotations_without_spare,
           (unsigned long long)stats.recycled);
}

static int64_t percentile(const int64_t *sorted, size_t count, double part)
{
    const size_t at = (size_t)((double)count * part);
    return sorted[at < count ? at : count - 1];
}

static void rotation(const char *dir, const char *label, bool payload_crc, size_t rotations)
{
    char slot[300];
    snprintf(slot, sizeof slot, "%s/rotate-%d", dir, payload_crc);
    struct qwp_seglog *log = slot_open(slot, SEGMENT_BYTES, payload_crc);
    int64_t *ns = calloc(rotations, sizeof *ns);
    int64_t *plain_ns = calloc(rotations, sizeof *plain_ns);
    if (ns == NULL || plain_ns == NULL) {
        die("memory", NULL);
    }
    struct qwp_seglog_stats stats;
    size_t count = 0;
    uint64_t seen = 0;
    while (count < rotations) {
        /* Fill all but the last piece in large frames, then go on in small ones. */
        for (int i = 0; i < SEGMENT_BYTES / FRAME_BYTES - 1; i++) {
            (void)append(log, sources, FRAME_BYTES - 64);
        }
        int64_t took_ns;
        do {
            settle(log);
            took_ns = append(log, sources, SMALL_FRAME_BYTES);
            qwp_seglog_stats(log, &stats);
            if (stats.rotations == seen) {
                plain_ns[count] = took_ns;
            }
        } while (stats.rotations == seen);
        seen = stats.rotations;
        ns[count++] = took_ns;
    }
    qwp_seglog_close(log);
    qsort(ns, count, sizeof *ns, by_ns);
    qsort(plain_ns, count, sizeof *plain_ns, by_ns);
    printf("append of 2 KiB that rotates, %s, us: p50 %.2f p99 %.2f max %.2f (%zu; that does not: "
           "p50 %.2f p99 %.2f), without spare: %llu\n",
           label, (double)percentile(ns, count, 0.5) / 1e3,
           (double)percentile(ns, count, 0.99) / 1e3, (double)ns[count - 1] / 1e3, count,
           (double)percentile(plain_ns, count, 0.5) / 1e3,
           (double)percentile(plain_ns, count, 0.99) / 1e3,
           (unsigned long long)stats.rotations_without_spare);
    const struct {
        const char *figure;
        double part;
    } shown[] = {{"p50", 0.5}, {"p99", 0.99}, {"max", 1.0}};
    char plain_name[64];
    snprintf(plain_name, sizeof plain_name, "%s, no rotation", label);
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        const double turned = (double)percentile(ns, count, shown[i].part);
        const double plain = (double)percentile(plain_ns, count, shown[i].part);
        bench_json_runs(&json, "rotation", label, plain_name, shown[i].figure, &turned, 1);
        bench_json_runs(&json, "rotation", plain_name, NULL, shown[i].figure, &plain, 1);
    }
    free(ns);
    free(plain_ns);
}

static void base_make(char *base, size_t room, const char *parent)
{
    snprintf(base, room, "%s/qwp-bench-store-XXXXXX", parent);
    if (mkdtemp(base) == NULL) {
        die(base, NULL);
    }
    struct utsname uts;
    struct statfs fs;
    if (uname(&uts) == 0 && statfs(base, &fs) == 0) {
        printf("%s %s, %s: file system %#lx\n", uts.machine, uts.release, parent,
               (unsigned long)fs.f_type);
    }
}

static void base_remove(const char *base)
{
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    if (system(command) != 0) {
        fprintf(stderr, "bench_store: %s stays\n", base);
    }
}

int main(int argc, char **argv)
{
    static const struct option longs[] = {
        {"dir", required_argument, NULL, 'd'},
        {"disk", required_argument, NULL, 'k'},
        {"frames", required_argument, NULL, 'f'},
        {"rotations", required_argument, NULL, 'r'},
        {"smoke", no_argument, NULL, 's'},
        {"json", required_argument, NULL, 'j'},
        {0},
    };
    const char *dir = "/dev/shm";
    const char *disk = "/tmp";
    const char *json_path = NULL;
    uint64_t frames = 20000;
    size_t rotations = 1000;
    int option;
    while ((option = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        switch (option) {
        case 'd':
            dir = optarg;
            break;
        case 'k':
            disk = optarg;
            break;
        case 'f':
            frames = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            rotations = strtoull(optarg, NULL, 10);
            break;
        case 's':
            frames = 100;
            rotations = 5;
            break;
        case 'j':
            json_path = optarg;
            break;
        default:
            return 2;
        }
    }
    sources = malloc((size_t)SOURCES * FRAME_BYTES);
    if (sources == NULL || frames == 0 || rotations == 0) {
        die("arguments", NULL);
    }
    for (size_t i = 0; i < (size_t)SOURCES * FRAME_BYTES; i++) {
        sources[i] = (unsigned char)(i * 2654435761u >> 13);
    }
    bench_json_open(&json, json_path, "bench_store");
    char base[200];
    base_make(base, sizeof base, dir);
    throughput(base, frames);
    rotation(base, "memory mode", false, rotations);
    rotation(base, "disk mode on tmpfs", true, rotations);
    base_remove(base);
    base_make(base, sizeof base, disk);
    rotation(base, "disk", true, rotations < 200 ? rotations : 200);
    base_remove(base);
    bench_json_close(&json);
    printf("checksum %016llx\n", (unsigned long long)checksum);
    free(sources);
    return 0;
}

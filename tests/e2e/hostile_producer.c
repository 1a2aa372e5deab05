/* A producer that is broken in every way that a seed can think of.
 *
 *   hostile_producer --rings DIR --name NAME --seed N [--lives N]
 *
 * Each life is a child process: it opens a ring, writes rows and columnar chunks of every way a
 * column is laid out, and between them does harm to its own ring while the sidecar reads it: bits,
 * records, chunks, definitions, positions, sizes, names. It ends when its ring is detached, or is
 * killed after a random time; its exit code tells the parent, which only counts and is never
 * touched, how. A row that is refused before any harm was done is a fault of this program, told on
 * stderr and counted. Tables are named hostile_N, and no column is named as in the good producers'
 * tables. Prints its figures as JSON; SIGTERM ends it, and so does its parent's end. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clients/c/qwp.h"
#include "clients/c/qwp_producer.h"
#include "core/qwp_bytes.h"

enum { TABLES = 20, LIFE_US_MAX = 400000, ROWS_A_TURN = 20, CHUNK_ROWS_MAX = 100 };

/* How a life ended, as its exit code. */
enum { ENDED = 0, NOT_OPENED = 1, REFUSED = 2, DETACHED = 3, ENDS };

static const int64_t start_ns = 1700000000000000000;
static volatile sig_atomic_t stopped;
static uint64_t random_state;

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t z = (random_state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static uint64_t below(uint64_t bound)
{
    return bound == 0 ? 0 : next_random() % bound;
}

/* A number of the kind that breaks things. */
static uint64_t odd_number(uint64_t about)
{
    switch (below(10)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return UINT64_C(1) << below(64);
    case 3:
        return (UINT64_C(1) << below(64)) - 1;
    case 4:
        return about + 8;
    case 5:
        return about - 8;
    case 6:
        return about + below(64);
    case 7:
        return about ^ (UINT64_C(1) << below(64));
    case 8:
        return about + (8 * below(100000));
    default:
        return next_random();
    }
}

/* ---- rows ---- */

static const struct qwp_column columns[] = {
    {"h_symbol", QWP_SYMBOL, 0},
    {"h_long", QWP_LONG, 0},
    {"h_varchar", QWP_VARCHAR, 0},
    {"h_doubles", QWP_DOUBLE_ARRAY, 0},
    {"h_boolean", QWP_BOOLEAN, 0},
    {"h_decimal", QWP_DECIMAL128, 3},
    {"h_binary", QWP_BINARY, 0},
    {"h_longs", QWP_LONG_ARRAY, 0},
    {"h_geohash", QWP_GEOHASH, 20},
    {"h_uuid", QWP_UUID, 0},
    {"h_time", QWP_TIMESTAMP_NANOS, 0},
    {"h_double", QWP_DOUBLE, 0},
    {"h_text", QWP_SYMBOL, 0},
    {"h_long256", QWP_LONG256, 0},
    {"h_char", QWP_CHAR, 0},
    {"h_ipv4", QWP_IPV4, 0},
};
enum { COLUMNS = sizeof columns / sizeof columns[0] };

static void write_column(struct qwp_row *row, uint32_t c)
{
    static const double doubles[] = {1, 2, 3, 4};
    static const int64_t longs[] = {5, 6, 7, 8};
    static const uint32_t shape[] = {2, 2};
    static const uint64_t words[] = {1, 2, 3, 4};
    char text[300];
    const size_t len = below(sizeof text);
    memset(text, 'a' + (int)below(26), len);
    switch (columns[c].type) {
    case QWP_SYMBOL:
        qwp_row_symbol(row, c, text, len % 3);
        break;
    case QWP_LONG:
        qwp_row_long(row, c, (int64_t)next_random());
        break;
    case QWP_VARCHAR:
        qwp_row_varchar(row, c, text, len);
        break;
    case QWP_BINARY:
        qwp_row_binary(row, c, text, len);
        break;
    case QWP_DOUBLE_ARRAY:
        qwp_row_double_array(row, c, doubles, shape, 2);
        break;
    case QWP_LONG_ARRAY:
        qwp_row_long_array(row, c, longs, shape, 2);
        break;
    case QWP_BOOLEAN:
        qwp_row_boolean(row, c, below(2) != 0);
        break;
    case QWP_DECIMAL128:
        qwp_row_decimal(row, c, words, 2);
        break;
    case QWP_GEOHASH:
        qwp_row_geohash(row, c, below(1 << 20));
        break;
    case QWP_UUID:
        qwp_row_uuid(row, c, next_random(), next_random());
        break;
    case QWP_TIMESTAMP_NANOS:
        qwp_row_timestamp_ns(row, c, start_ns);
        break;
    case QWP_LONG256:
        qwp_row_long256(row, c, words);
        break;
    case QWP_CHAR:
        qwp_row_char(row, c, 'x');
        break;
    case QWP_IPV4:
        qwp_row_ipv4(row, c, 0x7f000001);
        break;
    default:
        qwp_row_double(row, c, 1.5);
    }
}

static enum qwp_result write_rows(struct qwp_producer *producer, struct qwp_table *table, int count,
                                  struct qwp_error *err)
{
    const bool unit = below(3) == 0 && qwp_unit_begin(producer, err) == QWP_OK;
    for (int i = 0; i < count; i++) {
        struct qwp_row *row = qwp_row_begin(table);
        const uint64_t mask = next_random();
        for (uint32_t c = 0; c < COLUMNS; c++) {
            if ((mask >> c & 1) != 0) {
                write_column(row, c);
            }
        }
        const enum qwp_result result =
            below(8) == 0 ? qwp_row_at_now(row, err) : qwp_row_at_ns(row, start_ns + i, err);
        if (result != QWP_OK && result != QWP_AGAIN) {
            return result;
        }
    }
    return unit ? qwp_unit_publish(producer, err) : QWP_OK;
}

/* ---- chunks ---- */

static struct {
    uint64_t zeros[CHUNK_ROWS_MAX * 4]; /* are values of every type of fixed width */
    int64_t longs[CHUNK_ROWS_MAX];
    int64_t times[CHUNK_ROWS_MAX];
    char texts[CHUNK_ROWS_MAX * 3];
    int32_t text_offsets[CHUNK_ROWS_MAX + 1];
    unsigned char arrays[CHUNK_ROWS_MAX * 13];
    int32_t array_offsets[CHUNK_ROWS_MAX + 1];
    uint8_t validity[(CHUNK_ROWS_MAX + 7) / 8];
    uint32_t handle;
} arrays;

static void arrays_fill(void)
{
    memset(arrays.texts, 'a' + (int)below(26), sizeof arrays.texts);
    for (int i = 0; i < CHUNK_ROWS_MAX; i++) {
        arrays.times[i] = start_ns + i * INT64_C(1000000);
        arrays.longs[i] = (int64_t)(next_random() >> below(64));
        arrays.text_offsets[i + 1] = arrays.text_offsets[i] + (int32_t)below(4);
        arrays.arrays[13 * i] = 1;     /* dimension */
        arrays.arrays[13 * i + 1] = 1; /* of one element */
        arrays.array_offsets[i + 1] = 13 * (i + 1);
        arrays.validity[i / 8] = (uint8_t)next_random();
    }
}

static struct qwp_chunk_column chunk_column(enum qwp_column_type type)
{
    struct qwp_chunk_column column = {.values = arrays.zeros,
                                      .validity = below(2) == 0 ? arrays.validity : NULL};
    switch (type) {
    case QWP_LONG:
        column.values = arrays.longs;
        break;
    case QWP_SYMBOL:
        if (below(2) == 0) {
            column.handles = &arrays.handle;
            column.handle_count = 1;
            break;
        }
        column.values = arrays.texts;
        column.offsets = arrays.text_offsets;
        break;
    case QWP_VARCHAR:
    case QWP_BINARY:
        column.values = arrays.texts;
        column.offsets = arrays.text_offsets;
        break;
    case QWP_DOUBLE_ARRAY:
    case QWP_LONG_ARRAY:
        column.values = arrays.arrays;
        column.offsets = arrays.array_offsets;
        break;
    default:
        break;
    }
    return column;
}

static enum qwp_result chunk_layout(struct qwp_producer *producer, struct qwp_table *table,
                                    const struct qwp_layout **layout, struct qwp_error *err)
{
    uint32_t order[COLUMNS];
    for (uint32_t c = 0; c < COLUMNS; c++) {
        order[c] = c;
    }
    arrays_fill();
    const enum qwp_result result = qwp_symbol_intern(producer, "h", 1, &arrays.handle, err);
    return result == QWP_OK
               ? qwp_layout_define(table, order, COLUMNS, below(2) == 0 ? QWP_AT_NS : QWP_AT_SERVER,
                                   layout, err)
               : result;
}

/* *pos is where its record begins. */
static enum qwp_result write_chunk(struct qwp_producer *producer, const struct qwp_layout *layout,
                                   uint64_t *pos, struct qwp_error *err)
{
    struct qwp_chunk_column given[COLUMNS];
    for (uint32_t c = 0; c < COLUMNS; c++) {
        given[c] = chunk_column(columns[c].type);
    }
    *pos = producer->ring.write_pos;
    return qwp_chunk_write(producer, layout, given, arrays.times, 0, 1 + below(CHUNK_ROWS_MAX),
                           NULL, err);
}

/* ---- harm ---- */

static void flip_bits(unsigned char *at, uint64_t bytes, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        at[below(bytes)] ^= (unsigned char)(1u << below(8));
    }
}

/* Around what is published and not yet taken, where it meets the reader. */
static unsigned char *near_tail(struct qwp_ring_tx *ring)
{
    const uint64_t back = below(4096);
    return ring->data + ((ring->tail_pos - back) & ring->data_mask & ~UINT64_C(7));
}

/* Fields of records, with values that a record header may hold. */
static void spoil_record(struct qwp_ring_tx *ring)
{
    unsigned char *at = near_tail(ring);
    switch (below(5)) {
    case 0:
        qwp_store_u32(at, (uint32_t)odd_number(qwp_load_u32(at)));
        break;
    case 1:
        qwp_store_u16(at + 4, (uint16_t)odd_number(qwp_load_u16(at + 4)));
        break;
    case 2:
        at[6] = (unsigned char)below(6);
        break;
    case 3:
        at[7] = (unsigned char)below(8);
        break;
    default:
        qwp_store_u64(at + (8 * below(8)), odd_number(qwp_load_u64(at)));
    }
}

/* Counts, places and sizes of a chunk, its bitmaps, offsets and values. */
static void spoil_chunk(struct qwp_ring_tx *ring, uint64_t pos)
{
    unsigned char *at = ring->data + (pos & ring->data_mask);
    const uint64_t bytes = ring->data_bytes / 8; /* no record of a chunk is larger */
    for (uint64_t times = 1 + below(3); times > 0; times--) {
        unsigned char *entry = at + 16 + (16 * below(COLUMNS + 1));
        switch (below(6)) {
        case 0:
            qwp_store_u32(at + QWP_CHUNK_ROWS_OFF, (uint32_t)odd_number(qwp_load_u32(at + 8)));
            break;
        case 1:
        case 2:
            entry += 4 * below(4);
            qwp_store_u32(entry, (uint32_t)odd_number(qwp_load_u32(entry)));
            break;
        case 3: { /* one part over another */
            const unsigned char *other = at + 16 + (16 * below(COLUMNS + 1));
            memcpy(entry + 8, other + 8, 8);
            break;
        }
        case 4: {
            unsigned char *part = at + qwp_load_u32(entry + (8 * below(2))) % bytes;
            qwp_store_u32(part, (uint32_t)odd_number(qwp_load_u32(part)));
            break;
        }
        default:
            flip_bits(at, bytes, 8);
        }
    }
}

/* Publishes a record of our own making: a header that may be right, and noise. */
static void forge_record(struct qwp_ring_tx *ring)
{
    unsigned char *at = ring->data + (ring->write_pos & ring->data_mask);
    const uint32_t bytes = (uint32_t)(8 + (8 * below(100)));
    for (uint32_t i = 0; i < bytes; i += 8) {
        qwp_store_u64(at + i, below(2) == 0 ? next_random() : below(4));
    }
    qwp_store_u32(at, below(8) == 0 ? (uint32_t)odd_number(bytes) : bytes);
    qwp_store_u16(at + 4, (uint16_t)below(ring->shape_count + 1));
    at[6] = below(8) == 0   ? (unsigned char)next_random()
            : below(4) == 0 ? QWP_RECORD_CHUNK
                            : QWP_RECORD_ROW;
    at[7] = (unsigned char)below(4);
    ring->write_pos += bytes;
    qwp_ring_publish(ring, 1);
}

static void spoil_definitions(struct qwp_ring_tx *ring)
{
    struct qwp_error err;
    unsigned char text[40];
    switch (below(5)) {
    case 0:
        flip_bits(ring->defs, ring->defs_pos, 4);
        break;
    case 1:
        for (size_t i = 0; i < sizeof text; i++) {
            text[i] = (unsigned char)next_random();
        }
        (void)!qwp_ring_define_symbol(ring, (const char *)text, below(sizeof text), &err);
        break;
    case 2:
        qwp_store_u32(ring->defs + (8 * below(ring->defs_pos / 8)), (uint32_t)odd_number(16));
        break;
    case 3:
        atomic_store(&ring->header->defs_tail, odd_number(ring->defs_pos));
        break;
    default:
        /* An entry appended that is noise. */
        if (ring->defs_pos + 64 <= ring->defs_reserved) {
            unsigned char *at = ring->defs + ring->defs_pos;
            for (int i = 0; i < 64; i++) {
                at[i] = (unsigned char)next_random();
            }
            qwp_store_u32(at, 64);
            qwp_store_u16(at + 4, (uint16_t)(1 + below(2)));
            ring->defs_pos += 64;
            atomic_store(&ring->header->defs_tail, ring->defs_pos);
        }
    }
}

static void spoil_header(struct qwp_ring_tx *ring)
{
    struct qwp_ring_header *header = ring->header;
    switch (below(12)) {
    case 0:
        atomic_store(&header->tail_pos, odd_number(ring->tail_pos));
        break;
    case 1:
        atomic_store(&header->head_pos, odd_number(ring->tail_pos));
        break;
    case 2:
        atomic_store(&header->acked_pos, odd_number(ring->tail_pos));
        break;
    case 3:
        atomic_store(&header->attach_gen, next_random());
        break;
    case 4:
        atomic_store(&header->state, (uint32_t)below(7));
        break;
    case 5:
        atomic_store(&header->waiting, (uint32_t)next_random());
        break;
    case 6:
        atomic_store(&header->producer_flags, (uint32_t)next_random());
        break;
    case 7:
        atomic_store(&header->data_bytes, odd_number(ring->data_bytes));
        break;
    case 8:
        atomic_store(&header->unit_bytes_max, (uint32_t)odd_number(ring->unit_bytes_max));
        break;
    case 9:
        memset(header->reason, (int)next_random(), sizeof header->reason);
        memset(header->name, (int)next_random(), sizeof header->name);
        break;
    case 10:
        atomic_store(&header->rows_published, next_random());
        break;
    default:
        flip_bits((unsigned char *)header, 1024, 3);
    }
}

static void spoil_file(struct qwp_ring_tx *ring)
{
    const off_t whole = (off_t)(QWP_RING_STEP + ring->defs_bytes_max + ring->data_bytes);
    const off_t part = (off_t)below((uint64_t)whole);
    char other[160];
    switch (below(9)) {
    case 0:
        (void)!ftruncate(ring->fd, 0);
        break;
    case 1:
        (void)!ftruncate(ring->fd, part);
        break;
    case 2: /* cut and given back: zeros are under the reader */
        (void)!ftruncate(ring->fd, part & ~(off_t)4095);
        (void)!ftruncate(ring->fd, whole);
        break;
    case 3:
        (void)!fallocate(ring->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, part, 65536);
        break;
    case 4:
        unlinkat(ring->dir_fd, ring->file_name, 0);
        break;
    case 5: /* another kind of file takes its name */
        unlinkat(ring->dir_fd, ring->file_name, 0);
        if (below(2) == 0) {
            (void)!symlinkat("control", ring->dir_fd, ring->file_name);
        } else {
            (void)!mkfifoat(ring->dir_fd, ring->file_name, 0660);
        }
        break;
    case 6: /* as if dead, and going on */
        flock(ring->fd, LOCK_UN);
        close(openat(ring->dir_fd, ring->file_name, O_WRONLY | O_CLOEXEC));
        break;
    case 7:
        snprintf(other, sizeof other, "x%s", ring->file_name);
        (void)!linkat(ring->dir_fd, ring->file_name, ring->dir_fd, other, 0);
        close(openat(ring->dir_fd, other, O_WRONLY | O_CLOEXEC));
        unlinkat(ring->dir_fd, other, 0);
        break;
    default: /* noise as the whole of a ring that appears */
        snprintf(other, sizeof other, ".tmp-noise-%d", (int)getpid());
        const int fd = openat(ring->dir_fd, other, O_RDWR | O_CREAT | O_CLOEXEC, 0660);
        if (fd >= 0) {
            unsigned char header[1024];
            memcpy(header, ring->header, sizeof header);
            flip_bits(header + below(64), 200, (unsigned)below(6));
            (void)!write(fd, header, sizeof header);
            (void)!ftruncate(fd, below(2) == 0 ? whole : part);
            char name[160];
            snprintf(name, sizeof name, "noise-%d.ring", (int)getpid());
            (void)!renameat(ring->dir_fd, other, ring->dir_fd, name);
            close(fd);
            if (below(2) == 0) {
                unlinkat(ring->dir_fd, name, 0);
            }
        }
    }
}

/* All over it, again and again, as a wild pointer would. */
static void scribble(struct qwp_ring_tx *ring)
{
    for (unsigned i = 0; i < 2000; i++) {
        qwp_store_u64(ring->data + (8 * below(ring->data_bytes / 8)), next_random());
        if (below(200) == 0) {
            atomic_store(&ring->header->tail_pos, ring->tail_pos + (8 * below(64)));
        }
    }
}

/* `chunk_pos`: of the youngest chunk; UINT64_MAX: none was written. */
static void harm(struct qwp_ring_tx *ring, uint64_t chunk_pos)
{
    switch (below(20)) {
    case 0:
    case 1:
    case 2:
        flip_bits(near_tail(ring), 512, (unsigned)(1 + below(4)));
        break;
    case 3:
    case 4:
    case 5:
        spoil_record(ring);
        break;
    case 6:
    case 7:
    case 8:
        forge_record(ring);
        break;
    case 9:
    case 10:
        spoil_definitions(ring);
        break;
    case 11:
    case 12:
        spoil_header(ring);
        break;
    case 13:
        scribble(ring);
        break;
    case 14:
        flip_bits(ring->data, ring->data_bytes, 100);
        break;
    case 15:
    case 16:
    case 17:
    case 18:
        if (chunk_pos != UINT64_MAX) {
            spoil_chunk(ring, chunk_pos);
        }
        break;
    default:
        spoil_file(ring);
    }
}

static void on_bus_error(int number)
{
    (void)number;
    _exit(0); /* our own doing */
}

static void life(const char *rings, const char *name)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGALRM, SIG_DFL);
    signal(SIGBUS, on_bus_error);
    signal(SIGSEGV, on_bus_error);
    signal(SIGABRT, on_bus_error);
    const struct itimerval in = {.it_value = {.tv_usec = (suseconds_t)(1000 + below(LIFE_US_MAX))}};
    setitimer(ITIMER_REAL, &in, NULL);
    const struct qwp_producer_options options = {
        .dir = rings,
        .name = name,
        .ring_bytes = UINT64_C(65536) << below(5),
        .definition_bytes_max = UINT64_C(65536) << below(3),
        .on_full = below(2) == 0 ? QWP_FULL_FAIL : QWP_FULL_WAIT,
        .full_wait_ns_max = 50000000,
    };
    struct qwp_producer *producer;
    struct qwp_table *table;
    const struct qwp_layout *layout;
    struct qwp_error err;
    char table_name[40];
    snprintf(table_name, sizeof table_name, "hostile_%u", (unsigned)below(TABLES));
    if (qwp_producer_open(&producer, &options, &err) != QWP_OK ||
        qwp_table_define(producer, table_name, columns, COLUMNS, &table, &err) != QWP_OK ||
        chunk_layout(producer, table, &layout, &err) != QWP_OK) {
        fprintf(stderr, "hostile_producer: %s\n", err.text);
        _exit(NOT_OPENED);
    }
    const unsigned calm = (unsigned)below(20);
    uint64_t chunk_pos = UINT64_MAX;
    for (unsigned turn = 0;; turn++) {
        const enum qwp_result result =
            below(4) == 0 ? write_chunk(producer, layout, &chunk_pos, &err)
                          : write_rows(producer, table, (int)below(ROWS_A_TURN), &err);
        if (result != QWP_OK && result != QWP_AGAIN) {
            if (result != QWP_CLOSED && turn <= calm) {
                fprintf(stderr, "hostile_producer: a row before any harm: %s\n", err.text);
                _exit(REFUSED);
            }
            _exit(result == QWP_CLOSED ? DETACHED : ENDED);
        }
        if (turn >= calm) {
            harm(&producer->ring, chunk_pos);
        }
        if (below(16) == 0) {
            usleep((useconds_t)below(2000));
        }
    }
}

static void on_stop(int number)
{
    (void)number;
    stopped = 1;
}

int main(int argc, char **argv)
{
    static const struct option known[] = {{"rings", required_argument, NULL, 'r'},
                                          {"name", required_argument, NULL, 'n'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"lives", required_argument, NULL, 'l'},
                                          {NULL, 0, NULL, 0}};
    const char *rings = NULL;
    const char *name = "hostile";
    uint64_t seed = 1;
    unsigned long lives_max = 0;
    for (int c; (c = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        switch (c) {
        case 'r':
            rings = optarg;
            break;
        case 'n':
            name = optarg;
            break;
        case 's':
            seed = strtoull(optarg, NULL, 10);
            break;
        case 'l':
            lives_max = strtoul(optarg, NULL, 10);
            break;
        default:
            return 2;
        }
    }
    if (rings == NULL) {
        fputs("hostile_producer: --rings DIR is needed\n", stderr);
        return 2;
    }
    struct sigaction action = {.sa_handler = on_stop}; /* without SA_RESTART: waitpid ends */
    sigaction(SIGTERM, &action, NULL);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    unsigned long lives = 0;
    unsigned long ends[ENDS] = {0};
    for (; !stopped && (lives_max == 0 || lives < lives_max); lives++) {
        random_state = seed * 1000003 + lives;
        const pid_t child = fork();
        if (child == 0) {
            life(rings, name);
        }
        int status = 0;
        while (child > 0 && waitpid(child, &status, 0) < 0 && errno == EINTR) {
            kill(child, SIGKILL);
        }
        if (WIFEXITED(status) && WEXITSTATUS(status) < ENDS) {
            ends[WEXITSTATUS(status)]++;
        }
    }
    struct rusage usage;
    getrusage(RUSAGE_CHILDREN, &usage);
    printf("{\"name\":\"%s\",\"lives\":%lu,\"not_opened\":%lu,\"refused\":%lu,\"detached\":%lu,"
           "\"cpu_s\":%.1f}\n",
           name, lives, ends[NOT_OPENED], ends[REFUSED], ends[DETACHED],
           (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    return 0;
}

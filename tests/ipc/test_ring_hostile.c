/* Aim: no ring file, whatever is in it, makes the sidecar crash, block, or read outside the ring.
 * Method: take a good file, spoil it in one place (every field, many values), open and read it; and
 * files that are no rings at all. Under the address sanitizer a stray read ends the test. */
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "tests/ipc/ipc_fixture.h"

static unsigned char entry[QWP_RING_DEF_BYTES_MAX];

static enum qwp_result open_as_is(const char *file_name)
{
    struct qwp_ring_rx rx;
    const enum qwp_result result =
        qwp_ring_open(&rx, fixture_dir_fd, file_name, &no_limits, &fixture_err);
    qwp_ring_close_rx(&rx);
    return result;
}

/* Opens, polls, and reads all definitions: the worst of the results. */
static enum qwp_result read_all(const char *file_name)
{
    struct qwp_ring_rx rx;
    enum qwp_result result =
        qwp_ring_open(&rx, fixture_dir_fd, file_name, &no_limits, &fixture_err);
    if (result != QWP_OK) {
        return result;
    }
    result = qwp_ring_poll(&rx);
    if (result == QWP_OK || result == QWP_AGAIN) {
        struct qwp_ring_def def = {0};
        while ((result = qwp_ring_next_def(&rx, entry, &def, &fixture_err)) == QWP_OK) {
            if (def.kind == QWP_DEF_SHAPE) {
                qwp_shape_destroy(def.shape);
            }
        }
    }
    qwp_ring_close_rx(&rx);
    return result;
}

struct field {
    const char *name;
    size_t off;
    size_t bytes;
};
#define FIELD(field)                                                                               \
    {                                                                                              \
#field, offsetof(struct qwp_ring_header, field),                                           \
            sizeof(((struct qwp_ring_header *)0)->field)                                           \
    }
/* Each of these steers, so a wrong value must be refused. */
static const struct field steering[] = {
    FIELD(magic),    FIELD(major),      FIELD(header_bytes),   FIELD(defs_off),
    FIELD(data_off), FIELD(data_bytes), FIELD(defs_bytes_max),
};
/* These may have many values; wrong ones must only do no harm. */
static const struct field others[] = {
    FIELD(minor),          FIELD(unit_bytes_max), FIELD(producer_pid),   FIELD(ring_id),
    FIELD(created_us),     FIELD(tail_pos),       FIELD(rows_published), FIELD(rows_dropped),
    FIELD(producer_flags), FIELD(waiting),        FIELD(defs_tail),      FIELD(head_pos),
    FIELD(attach_gen),     FIELD(acked_pos),      FIELD(rejected_rows),  FIELD(rows_stored),
    FIELD(rows_acked),     FIELD(progress_seq),   FIELD(state),
};
static const uint64_t values[] = {
    0,          1,          2,
    7,          8,          63,
    64,         0xff,       0x100,
    0x7fff,     0x8000,     0xffff,
    0x10000,    0x10008,    0x18000,
    0x20000,    0x30000,    0x40000,
    0x80000000, 0xffffffff, 0x100000000,
    1ull << 40, 1ull << 62, 1ull << 63,
    ~0ull,      ~0ull - 7,  ~0ull - 0xffff,
};

static void spoil(struct qwp_ring_tx *tx, const struct field *field, uint64_t value)
{
    ck_assert_int_eq(pwrite(tx->fd, &value, field->bytes < 8 ? field->bytes : 8, (off_t)field->off),
                     (ssize_t)(field->bytes < 8 ? field->bytes : 8));
}

static void make_ring(struct qwp_ring_tx *tx)
{
    const struct qwp_ring_options options = {.data_bytes = 65536, .defs_bytes_max = 65536};
    ASSERT_OK(qwp_ring_create(tx, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(qwp_ring_define_symbol(tx, "abc", 3, &fixture_err));
    put_record(tx, 64, 1);
}

START_TEST(steering_field_with_any_other_value_is_refused)
{
    for (size_t f = 0; f < sizeof steering / sizeof steering[0]; f++) {
        const struct field *field = &steering[f];
        struct qwp_ring_tx tx;
        make_ring(&tx);
        uint64_t good = 0;
        ck_assert_int_eq(pread(tx.fd, &good, field->bytes, (off_t)field->off),
                         (ssize_t)field->bytes);
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            const uint64_t mask = field->bytes < 8 ? (1ull << (8 * field->bytes)) - 1 : ~0ull;
            if ((values[v] & mask) == good) {
                continue;
            }
            /* A larger header of a later minor is fine. */
            if (strcmp(field->name, "header_bytes") == 0 && (values[v] & mask) >= 896 &&
                (values[v] & mask) <= QWP_RING_STEP) {
                continue;
            }
            spoil(&tx, field, values[v]);
            const enum qwp_result result = open_as_is(tx.file_name);
            ck_assert_msg(result == QWP_CORRUPT || result == QWP_INVALID, "%s = %llx: %s",
                          field->name, (unsigned long long)values[v], qwp_result_name(result));
            ck_assert_uint_gt(strlen(fixture_err.text), 20);
        }
        spoil(&tx, field, good);
        ASSERT_OK(open_as_is(tx.file_name));
        qwp_ring_close_tx(&tx);
    }
}
END_TEST

START_TEST(other_fields_with_any_value_do_no_harm)
{
    for (size_t f = 0; f < sizeof others / sizeof others[0]; f++) {
        struct qwp_ring_tx tx;
        make_ring(&tx);
        for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
            spoil(&tx, &others[f], values[v]);
            const enum qwp_result result = read_all(tx.file_name);
            ck_assert_msg(result == QWP_AGAIN || result == QWP_CORRUPT, "%s = %llx: %s",
                          others[f].name, (unsigned long long)values[v], qwp_result_name(result));
        }
        qwp_ring_close_tx(&tx);
    }
}
END_TEST

START_TEST(unknown_major_names_both_versions)
{
    struct qwp_ring_tx tx;
    make_ring(&tx);
    atomic_store(&tx.header->major, 7);
    ASSERT_RESULT(open_as_is(tx.file_name), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "7.0"));
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "1.x"));
    /* Left alone. */
    ck_assert_uint_eq(atomic_load(&tx.header->state), QWP_RING_NEW);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(tail_that_turns_bad_is_corrupt)
{
    static const int64_t bad[] = {-64, -8, 1, 4, 65536 + 8, INT64_MAX & ~7, INT64_MIN};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pair pair;
        pair_open(&pair);
        put_record(&pair.tx, 64, 1);
        ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
        atomic_store(&pair.tx.header->tail_pos, 64 + (uint64_t)bad[i]);
        ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_CORRUPT);
        ck_assert_uint_eq(pair.rx.tail_seen_pos, 64);
        pair_close(&pair);
    }
}
END_TEST

START_TEST(definitions_tail_that_turns_bad_is_corrupt)
{
    static const uint64_t bad[] = {0, 8, 12, 17, 2 * 65536 + 8, UINT64_MAX & ~7ull};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct pair pair;
        struct qwp_ring_def def;
        pair_open(&pair);
        ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "abc", 3, &fixture_err));
        ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
        atomic_store(&pair.tx.header->defs_tail, bad[i]);
        ASSERT_RESULT(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err), QWP_CORRUPT);
        pair_close(&pair);
    }
}
END_TEST

/* The entry as the library writes it, then each byte of it set to many values. */
static void spoil_each_byte(struct pair *pair, size_t bytes)
{
    int taken = 0;
    int refused = 0;
    for (size_t at = 0; at < bytes; at++) {
        const unsigned char good = pair->tx.defs[at];
        for (int value = 0; value < 256; value += value < 32 || value > 250 ? 1 : 7) {
            struct qwp_ring_def def;
            pair->tx.defs[at] = (unsigned char)value;
            pair->rx.defs_seen = 0;
            pair->rx.defs_tail_seen = 0;
            const enum qwp_result result = qwp_ring_next_def(&pair->rx, entry, &def, &fixture_err);
            ck_assert_msg(result == QWP_OK || result == QWP_CORRUPT, "byte %zu = %d: %s", at, value,
                          qwp_result_name(result));
            taken += result == QWP_OK;
            refused += result != QWP_OK;
            if (result == QWP_OK && def.kind == QWP_DEF_SHAPE) {
                qwp_shape_destroy(def.shape);
            }
        }
        pair->tx.defs[at] = good;
    }
    ck_assert_int_gt(taken, 0);
    ck_assert_int_gt(refused, 0);
}

START_TEST(symbol_definition_with_any_byte_spoiled_does_no_harm)
{
    struct pair pair;
    pair_open(&pair);
    ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "sym\xc3\xa9", 5, &fixture_err));
    spoil_each_byte(&pair, pair.tx.defs_pos);
    pair_close(&pair);
}
END_TEST

START_TEST(shape_definition_with_any_byte_spoiled_does_no_harm)
{
    struct pair pair;
    pair_open(&pair);
    const struct qwp_column_def columns[] = {{{"price", 5}, QWP_TYPE_DOUBLE, 0},
                                             {{"geo", 3}, QWP_TYPE_GEOHASH, 30},
                                             {{"s", 1}, QWP_TYPE_SYMBOL, 0}};
    struct qwp_shape *shape;
    ASSERT_OK(qwp_shape_create(&shape, (struct qwp_name){"tab", 3}, columns, 3, QWP_TYPE_TIMESTAMP,
                               &fixture_err));
    ASSERT_OK(qwp_ring_define_shape(&pair.tx, shape, &fixture_err));
    qwp_shape_destroy(shape);
    spoil_each_byte(&pair, pair.tx.defs_pos);
    pair_close(&pair);
}
END_TEST

START_TEST(definitions_of_random_bytes_do_no_harm)
{
    struct pair pair;
    unsigned seed = (unsigned)getpid();
    printf("seed %u\n", seed);
    pair_open(&pair);
    for (int round = 0; round < 20000; round++) {
        const uint32_t bytes = 8u + 8u * ((unsigned)rand_r(&seed) % 20u);
        for (uint32_t i = 0; i < bytes; i++) {
            pair.tx.defs[i] = (unsigned char)rand_r(&seed);
        }
        /* Mostly a plausible head, so that the inside gets its share. */
        if (round % 8 != 0) {
            qwp_store_u32(pair.tx.defs, bytes);
            qwp_store_u16(pair.tx.defs + 4, (uint16_t)(1 + round % 2));
            qwp_store_u16(pair.tx.defs + 8, (uint16_t)((unsigned)rand_r(&seed) % 6u));
        }
        atomic_store(&pair.tx.header->defs_tail, bytes);
        pair.rx.defs_seen = 0;
        pair.rx.defs_tail_seen = 0;
        struct qwp_ring_def def;
        const enum qwp_result result = qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err);
        ck_assert(result == QWP_OK || result == QWP_CORRUPT);
        if (result == QWP_OK && def.kind == QWP_DEF_SHAPE) {
            qwp_shape_destroy(def.shape);
        }
    }
    pair_close(&pair);
}
END_TEST

START_TEST(symbol_that_is_not_utf8_is_corrupt)
{
    struct pair pair;
    struct qwp_ring_def def;
    pair_open(&pair);
    ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "a\xff", 2, &fixture_err));
    ASSERT_RESULT(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err), QWP_CORRUPT);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "UTF-8"));
    pair_close(&pair);
}
END_TEST

START_TEST(what_is_no_ring_file_is_refused_without_blocking)
{
    struct qwp_ring_tx tx;
    make_ring(&tx);
    ck_assert_int_eq(symlinkat(tx.file_name, fixture_dir_fd, "link.ring"), 0);
    ASSERT_RESULT(open_as_is("link.ring"), QWP_INVALID);
    ck_assert_int_eq(mkfifoat(fixture_dir_fd, "fifo.ring", 0666), 0);
    ASSERT_RESULT(open_as_is("fifo.ring"), QWP_INVALID);
    ck_assert_int_eq(mkdirat(fixture_dir_fd, "dir.ring", 0777), 0);
    ASSERT_RESULT(open_as_is("dir.ring"), QWP_INVALID);
    ASSERT_RESULT(open_as_is("none.ring"), QWP_AGAIN);
    const int fd = openat(fixture_dir_fd, "short.ring", O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    ASSERT_RESULT(open_as_is("short.ring"), QWP_AGAIN); /* emptied by a sidecar */
    ck_assert_int_eq(ftruncate(fd, 1), 0);
    ASSERT_RESULT(open_as_is("short.ring"), QWP_CORRUPT);
    ck_assert_int_eq(ftruncate(fd, 895), 0);
    ASSERT_RESULT(open_as_is("short.ring"), QWP_CORRUPT);
    close(fd);
    ck_assert_int_eq(linkat(fixture_dir_fd, tx.file_name, fixture_dir_fd, "hard.ring", 0), 0);
    ASSERT_RESULT(open_as_is("hard.ring"), QWP_INVALID);
    ASSERT_RESULT(open_as_is(tx.file_name), QWP_INVALID);
    ck_assert_int_eq(unlinkat(fixture_dir_fd, "hard.ring", 0), 0);
    ASSERT_OK(open_as_is(tx.file_name));
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    long_name[299] = '\0';
    ASSERT_RESULT(open_as_is(long_name), QWP_INVALID);
    ck_assert_int_eq(ftruncate(tx.fd, 100), 0);
    ASSERT_RESULT(open_as_is(tx.file_name), QWP_CORRUPT);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(write_lease_does_not_block_the_open)
{
    struct qwp_ring_tx tx;
    make_ring(&tx);
    const int fd = openat(fixture_dir_fd, "leased.ring", O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    signal(SIGIO, SIG_IGN);
    if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
        ASSERT_RESULT(open_as_is("leased.ring"), QWP_INVALID);
    }
    close(fd);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(sparse_file_is_refused)
{
    struct qwp_ring_tx tx;
    make_ring(&tx);
    if (fallocate(tx.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2 * QWP_RING_STEP,
                  QWP_RING_STEP) == 0) {
        ASSERT_RESULT(open_as_is(tx.file_name), QWP_CORRUPT);
    }
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(ring_beyond_the_limits_is_told_so_once)
{
    struct qwp_ring_tx tx;
    struct qwp_ring_rx rx;
    int inotify_fd;
    const uint32_t uid = geteuid() + 1;
    const struct qwp_ring_limits limits[] = {
        {.data_bytes_max = 65535, .defs_bytes_max = 65536},
        {.data_bytes_max = 65536, .defs_bytes_max = 65535},
        {.data_bytes_max = 65536, .defs_bytes_max = 65536, .uids = &uid, .uid_count = 1},
    };
    static const char *const words[] = {"65535", "definitions", "uid"};
    for (size_t i = 0; i < 3; i++) {
        make_ring(&tx);
        ASSERT_OK(qwp_rendezvous_watch(fixture_dir_fd, &inotify_fd, &fixture_err));
        for (int turn = 0; turn < 3; turn++) {
            ASSERT_RESULT(
                qwp_ring_open(&rx, fixture_dir_fd, tx.file_name, &limits[i], &fixture_err),
                QWP_LIMIT);
        }
        ck_assert_uint_eq(atomic_load(&tx.header->state), QWP_RING_REFUSED);
        ck_assert_ptr_nonnull(strstr(tx.header->reason, words[i]));
        char events[4096];
        struct names names = {0};
        const ssize_t n = read(inotify_fd, events, sizeof events);
        ck_assert_int_gt(n, 0);
        qwp_rendezvous_events(events, (size_t)n, names_add, &names);
        ck_assert_int_eq(names.count, 1);
        close(inotify_fd);
        qwp_ring_close_tx(&tx);
    }
    ck_assert_int_eq(limits[2].uids[0], uid);
}
END_TEST

START_TEST(refusal_for_bytes_makes_no_event)
{
    struct qwp_ring_tx tx;
    int inotify_fd;
    make_ring(&tx);
    atomic_store(&tx.header->major, 9);
    ASSERT_OK(qwp_rendezvous_watch(fixture_dir_fd, &inotify_fd, &fixture_err));
    ASSERT_RESULT(open_as_is(tx.file_name), QWP_INVALID);
    char events[4096];
    ck_assert_int_eq(read(inotify_fd, events, sizeof events), -1);
    close(inotify_fd);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(allowed_owner_is_taken)
{
    struct qwp_ring_tx tx;
    struct qwp_ring_rx rx;
    const uint32_t uids[] = {geteuid() + 1, geteuid()};
    const struct qwp_ring_limits limits = {
        .data_bytes_max = 65536, .defs_bytes_max = 65536, .uids = uids, .uid_count = 2};
    make_ring(&tx);
    ASSERT_OK(qwp_ring_open(&rx, fixture_dir_fd, tx.file_name, &limits, &fixture_err));
    ck_assert_uint_eq(rx.owner_uid, geteuid());
    qwp_ring_close_rx(&rx);
    qwp_ring_close_tx(&tx);
}
END_TEST

/* A tmpfs of 1 MiB in a mount namespace of this test; false where that is not permitted. */
static bool mount_small(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/small", fixture_dir);
    if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mkdir(path, 0700) != 0 || mount("qwp-test", path, "tmpfs", 0, "size=1m") != 0) {
        return false;
    }
    ASSERT_OK(qwp_rendezvous_open(path, "i", &fixture_dir_fd, &fixture_err));
    return true;
}

START_TEST(full_file_system_is_nomem_with_numbers)
{
    if (!mount_small()) {
        printf("skipped: no permission to mount a small tmpfs\n");
        return;
    }
    struct qwp_ring_tx tx;
    struct qwp_ring_options options = {.data_bytes = 2 * 1024 * 1024};
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_NOMEM);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "2097152"));
    struct names names = {0};
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, 0);
    /* Room for the ring but not for all of its definitions. */
    options = (struct qwp_ring_options){.data_bytes = 512 * 1024, .defs_bytes_max = 1024 * 1024};
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err));
    static char text[4000];
    memset(text, 'x', sizeof text);
    enum qwp_result result;
    uint32_t count = 0;
    while ((result = qwp_ring_define_symbol(&tx, text, sizeof text, &fixture_err)) == QWP_OK) {
        count++;
    }
    ASSERT_RESULT(result, QWP_NOMEM);
    ck_assert_uint_gt(count, 16);
    ck_assert_uint_eq(tx.symbol_count, count);
    ck_assert_uint_eq(atomic_load(&tx.header->defs_tail), tx.defs_pos);
    qwp_ring_close_tx(&tx);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_hostile");
    TCase *test_case = fixture_case(suite, "hostile");
    tcase_set_timeout(test_case, 60);
    tcase_add_test(test_case, steering_field_with_any_other_value_is_refused);
    tcase_add_test(test_case, other_fields_with_any_value_do_no_harm);
    tcase_add_test(test_case, unknown_major_names_both_versions);
    tcase_add_test(test_case, tail_that_turns_bad_is_corrupt);
    tcase_add_test(test_case, definitions_tail_that_turns_bad_is_corrupt);
    tcase_add_test(test_case, symbol_definition_with_any_byte_spoiled_does_no_harm);
    tcase_add_test(test_case, shape_definition_with_any_byte_spoiled_does_no_harm);
    tcase_add_test(test_case, definitions_of_random_bytes_do_no_harm);
    tcase_add_test(test_case, symbol_that_is_not_utf8_is_corrupt);
    tcase_add_test(test_case, what_is_no_ring_file_is_refused_without_blocking);
    tcase_add_test(test_case, write_lease_does_not_block_the_open);
    tcase_add_test(test_case, sparse_file_is_refused);
    tcase_add_test(test_case, ring_beyond_the_limits_is_told_so_once);
    tcase_add_test(test_case, refusal_for_bytes_makes_no_event);
    tcase_add_test(test_case, allowed_owner_is_taken);
    tcase_add_test(test_case, full_file_system_is_nomem_with_numbers);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

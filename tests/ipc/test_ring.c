/* Aim: both sides of a ring do what their contract says, and sizes are bounded at creation.
 * Method: one process plays producer and sidecar on two mappings of one file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "tests/ipc/ipc_fixture.h"

static unsigned char entry[QWP_RING_DEF_BYTES_MAX];

START_TEST(create_without_options_takes_defaults)
{
    struct qwp_ring_tx tx;
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, NULL, &fixture_err));
    ck_assert_uint_eq(tx.data_bytes, QWP_RING_DATA_BYTES_DEFAULT);
    ck_assert_uint_eq(tx.defs_bytes_max, QWP_RING_DEFS_BYTES_DEFAULT);
    ck_assert_uint_eq(tx.unit_bytes_max, QWP_RING_UNIT_BYTES_DEFAULT);
    ck_assert_ptr_nonnull(strstr(tx.file_name, QWP_RING_SUFFIX));
    struct stat st;
    ck_assert_int_eq(fstat(tx.fd, &st), 0);
    /* Header, one step of definitions, data: no more blocks than that. */
    ck_assert_uint_ge((uint64_t)st.st_blocks * 512, 2 * QWP_RING_STEP + tx.data_bytes);
    ck_assert_uint_lt((uint64_t)st.st_blocks * 512, 4 * QWP_RING_STEP + tx.data_bytes);
    ck_assert_int_ne(fcntl(tx.fd, F_GETFD) & FD_CLOEXEC, 0);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(create_rounds_sizes_up)
{
    struct qwp_ring_tx tx;
    const struct qwp_ring_options options = {
        .data_bytes = 65537, .defs_bytes_max = 65537, .unit_bytes_max = 65535};
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err));
    ck_assert_uint_eq(tx.data_bytes, 131072);
    ck_assert_uint_eq(tx.defs_bytes_max, 131072);
    ck_assert_uint_eq(tx.unit_bytes_max, 65528);
    qwp_ring_close_tx(&tx);
}
END_TEST

static void assert_no_files(void)
{
    struct names names = {0};
    ASSERT_OK(qwp_rendezvous_scan(fixture_dir_fd, names_add, &names, &fixture_err));
    ck_assert_int_eq(names.count, 0);
}

START_TEST(create_beyond_bounds_is_refused)
{
    struct qwp_ring_tx tx;
    struct qwp_ring_options options = {.data_bytes = (uint64_t)QWP_RING_DATA_BYTES_MAX + 1};
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_LIMIT);
    options = (struct qwp_ring_options){.data_bytes = UINT64_MAX};
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_LIMIT);
    options = (struct qwp_ring_options){.defs_bytes_max = UINT64_MAX};
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_LIMIT);
    options = (struct qwp_ring_options){.data_bytes = 65536, .unit_bytes_max = 32769};
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "32769"));
    assert_no_files();
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(create_ignores_the_umask)
{
    struct qwp_ring_tx tx;
    const mode_t before = umask(0777);
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, NULL, &fixture_err));
    umask(before);
    struct stat st;
    ck_assert_int_eq(fstat(tx.fd, &st), 0);
    ck_assert_uint_eq(st.st_mode & 07777, 0660);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(create_with_odd_name_makes_plain_file_name)
{
    struct pair pair;
    static const struct {
        const char *name;
        const char *stem;
    } cases[] = {
        {"a/../b c", "a_.._b_c-"}, {"", "producer-"}, {".hidden", "_hidden-"}, {"\n\x01", "__-"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct qwp_ring_options options = {.name = cases[i].name};
        ASSERT_OK(qwp_ring_create(&pair.tx, fixture_dir_fd, &options, &fixture_err));
        ck_assert_int_eq(strncmp(pair.tx.file_name, cases[i].stem, strlen(cases[i].stem)), 0);
        qwp_ring_close_tx(&pair.tx);
    }
    /* Cut between characters: 32 of 2 bytes do not fit with the terminator, 31 do. */
    const struct qwp_ring_options options = {.name = "éééééééééééééééééééééééééééééééé"};
    ck_assert_uint_eq(strlen(options.name), 64);
    ASSERT_OK(qwp_ring_create(&pair.tx, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(qwp_ring_open(&pair.rx, fixture_dir_fd, pair.tx.file_name, &no_limits, &fixture_err));
    ck_assert_uint_eq(strlen(pair.rx.name), 62);
    pair_close(&pair);
}
END_TEST

START_TEST(create_with_stdin_closed_keeps_above_stdio)
{
    struct pair pair;
    close(0);
    close(1);
    pair_open(&pair);
    ck_assert_int_gt(pair.tx.fd, 2);
    ck_assert_int_gt(pair.rx.fd, 2);
    pair_close(&pair);
}
END_TEST

static unsigned locked_kb(void)
{
    FILE *status = fopen("/proc/self/status", "r");
    ck_assert_ptr_nonnull(status);
    char line[256];
    unsigned kb = 0;
    while (fgets(line, sizeof line, status) != NULL) {
        sscanf(line, "VmLck: %u", &kb);
    }
    fclose(status);
    return kb;
}

/* Sanitizers make mlock do nothing. */
static bool mlock_is_real(void)
{
    static char page[8192];
    const bool real = mlock(page, sizeof page) == 0 && locked_kb() > 0;
    munlock(page, sizeof page);
    if (!real) {
        printf("skipped: mlock does nothing here\n");
    }
    return real;
}

START_TEST(create_locking_memory_beyond_limit_is_refused)
{
    struct qwp_ring_tx tx;
    const struct qwp_ring_options options = {.lock_memory = true};
    const struct rlimit none = {0, 0};
    if (!mlock_is_real()) {
        return;
    }
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &none), 0);
    if (geteuid() == 0) {
        /* Root may lock anything. This test has a process and a directory of its own. */
        ck_assert_int_eq(fchown(fixture_dir_fd, 65534, 65534), 0);
        ck_assert_int_eq(setuid(65534), 0);
    }
    ASSERT_RESULT(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err), QWP_NOMEM);
    ck_assert_ptr_nonnull(strstr(fixture_err.text, "ulimit -l"));
    assert_no_files();
}
END_TEST

START_TEST(create_locking_memory_locks_pages)
{
    struct qwp_ring_tx tx;
    const struct qwp_ring_options options = {.lock_memory = true, .data_bytes = 65536};
    if (!mlock_is_real()) {
        return;
    }
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err));
    ck_assert_uint_ge(locked_kb(), 192);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(records_come_out_as_they_went_in)
{
    struct pair pair;
    pair_open(&pair);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_AGAIN);
    put_record(&pair.tx, 64, 1);
    put_record(&pair.tx, 128, 2);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    ck_assert_uint_eq(pair.rx.tail_seen_pos, 192);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_AGAIN);
    ck_assert_uint_eq(pair.rx.data[63], 1);
    ck_assert_uint_eq(pair.rx.data[64], 2);
    qwp_ring_release(&pair.rx, 64, 1);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->head_pos), 64);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->rows_stored), 1);
    qwp_ring_release(&pair.rx, 192, 1);
    qwp_ring_settle(&pair.rx, 64, 1, 0);
    qwp_ring_settle(&pair.rx, 192, 1, 1);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->acked_pos), 192);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->rows_acked), 2);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->rejected_rows), 1);
    pair_close(&pair);
}
END_TEST

START_TEST(reserve_at_the_end_is_contiguous_in_both_views)
{
    struct pair pair;
    pair_open(&pair);
    const uint32_t most = 48 * 1024;
    put_record(&pair.tx, most, 1);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    qwp_ring_release(&pair.rx, most, 1);
    /* From 48 KiB over the end to 32 KiB. */
    unsigned char *at;
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, most, &at), QWP_OK);
    for (uint32_t i = 0; i < most; i++) {
        at[i] = (unsigned char)(i * 7);
    }
    qwp_ring_commit(&pair.tx, most);
    qwp_ring_publish(&pair.tx, 1);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    const unsigned char *from = pair.rx.data + (pair.rx.head_pos & pair.rx.data_mask);
    for (uint32_t i = 0; i < most; i++) {
        ck_assert_uint_eq(from[i], (unsigned char)(i * 7));
    }
    ck_assert_uint_eq(pair.rx.data[0], (unsigned char)(16 * 1024 * 7));
    pair_close(&pair);
}
END_TEST

START_TEST(reserve_when_full_is_again_until_head_moves)
{
    struct pair pair;
    unsigned char *at;
    pair_open(&pair);
    for (int i = 0; i < 16; i++) {
        put_record(&pair.tx, 4096, (unsigned char)i);
    }
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 8, &at), QWP_AGAIN);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    qwp_ring_release(&pair.rx, 4096, 1);
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 4104, &at), QWP_AGAIN);
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 4096, &at), QWP_OK);
    pair_close(&pair);
}
END_TEST

START_TEST(abort_takes_back_what_was_not_published)
{
    struct pair pair;
    unsigned char *at;
    unsigned char *again;
    pair_open(&pair);
    put_record(&pair.tx, 8, 1);
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 256, &at), QWP_OK);
    qwp_ring_commit(&pair.tx, 256);
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 256, &again), QWP_OK);
    ck_assert_ptr_eq(again, at + 256);
    qwp_ring_commit(&pair.tx, 256);
    qwp_ring_abort(&pair.tx);
    ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 256, &again), QWP_OK);
    ck_assert_ptr_eq(again, at);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    ck_assert_uint_eq(pair.rx.tail_seen_pos, 8);
    pair_close(&pair);
}
END_TEST

START_TEST(unit_is_seen_whole_or_not_at_all)
{
    struct pair pair;
    unsigned char *at;
    pair_open(&pair);
    for (int i = 0; i < 3; i++) {
        ASSERT_RESULT(qwp_ring_reserve(&pair.tx, 64, &at), QWP_OK);
        qwp_ring_commit(&pair.tx, 64);
        ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_AGAIN);
    }
    qwp_ring_publish(&pair.tx, 3);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    ck_assert_uint_eq(pair.rx.tail_seen_pos, 192);
    ck_assert_uint_eq(atomic_load(&pair.rx.header->rows_published), 3);
    pair_close(&pair);
}
END_TEST

START_TEST(reopened_ring_resumes_at_published_head)
{
    struct pair pair;
    pair_open(&pair);
    put_record(&pair.tx, 64, 1);
    put_record(&pair.tx, 64, 2);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    qwp_ring_release(&pair.rx, 64, 1);
    qwp_ring_settle(&pair.rx, 64, 1, 0);
    qwp_ring_close_rx(&pair.rx);
    ASSERT_OK(qwp_ring_open(&pair.rx, fixture_dir_fd, pair.tx.file_name, &no_limits, &fixture_err));
    ck_assert_uint_eq(pair.rx.head_pos, 64);
    ck_assert_uint_eq(pair.rx.acked_pos, 64);
    ck_assert_uint_eq(pair.rx.rows_stored, 1);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    ck_assert_uint_eq(pair.rx.data[pair.rx.head_pos], 2);
    pair_close(&pair);
}
END_TEST

START_TEST(resume_beyond_head_and_tail_is_judged)
{
    struct pair pair;
    pair_open(&pair);
    put_record(&pair.tx, 64, 1);
    put_record(&pair.tx, 64, 2);
    ASSERT_RESULT(qwp_ring_resume(&pair.rx, 136, &fixture_err), QWP_CORRUPT);
    ASSERT_RESULT(qwp_ring_resume(&pair.rx, 63, &fixture_err), QWP_CORRUPT);
    ASSERT_OK(qwp_ring_resume(&pair.rx, 64, &fixture_err));
    ASSERT_RESULT(qwp_ring_resume(&pair.rx, 0, &fixture_err), QWP_CORRUPT);
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    ck_assert_uint_eq(pair.rx.head_pos, 64);
    ASSERT_OK(qwp_ring_resume(&pair.rx, 128, &fixture_err));
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_AGAIN);
    /* A tail further ahead than the ring has bytes: who counts the rows between would not end. */
    atomic_store(&pair.tx.header->tail_pos, UINT64_C(1) << 60);
    ASSERT_RESULT(qwp_ring_resume(&pair.rx, UINT64_C(1) << 59, &fixture_err), QWP_CORRUPT);
    pair_close(&pair);
}
END_TEST

START_TEST(definitions_arrive_in_order)
{
    struct pair pair;
    struct qwp_ring_def def;
    pair_open(&pair);
    ASSERT_RESULT(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err), QWP_AGAIN);
    ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "", 0, &fixture_err));
    ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "straße", 7, &fixture_err));
    const struct qwp_column_def columns[] = {{{"a", 1}, QWP_TYPE_LONG, 0},
                                             {{"d", 1}, QWP_TYPE_DECIMAL128, 5}};
    struct qwp_shape *shape;
    ASSERT_OK(qwp_shape_create(&shape, (struct qwp_name){"t", 1}, columns, 2, QWP_TYPE_TIMESTAMP,
                               &fixture_err));
    ASSERT_OK(qwp_ring_define_shape(&pair.tx, shape, &fixture_err));
    ck_assert_uint_eq(pair.tx.symbol_count, 2);
    ck_assert_uint_eq(pair.tx.shape_count, 1);

    ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
    ck_assert_int_eq(def.kind, QWP_DEF_SYMBOL);
    ck_assert_uint_eq(def.text_len, 0);
    ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
    ck_assert_uint_eq(def.text_len, 7);
    ck_assert_mem_eq(def.text, "straße", 7);
    ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
    ck_assert_int_eq(def.kind, QWP_DEF_SHAPE);
    ck_assert_uint_eq(def.shape->column_count, 2);
    ck_assert_uint_eq(def.shape->columns[1].off, shape->columns[1].off);
    ck_assert_uint_eq(def.shape->columns[1].parameter, 5);
    ck_assert_uint_eq(def.shape->designated_type, QWP_TYPE_TIMESTAMP);
    ck_assert_uint_eq(def.shape->fixed_bytes, shape->fixed_bytes);
    ASSERT_RESULT(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err), QWP_AGAIN);
    qwp_shape_destroy(def.shape);
    qwp_shape_destroy(shape);
    pair_close(&pair);
}
END_TEST

START_TEST(widest_shape_makes_the_round)
{
    struct pair pair;
    struct qwp_ring_def def;
    const struct qwp_ring_options options = {.defs_bytes_max = 1024 * 1024};
    ASSERT_OK(qwp_ring_create(&pair.tx, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(qwp_ring_open(&pair.rx, fixture_dir_fd, pair.tx.file_name, &no_limits, &fixture_err));
    static char names[QWP_COLUMNS_MAX][QWP_NAME_BYTES_MAX + 1];
    static struct qwp_column_def columns[QWP_COLUMNS_MAX];
    for (int i = 0; i < QWP_COLUMNS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "c%0*d", QWP_NAME_BYTES_MAX - 1, i);
        columns[i] = (struct qwp_column_def){{names[i], QWP_NAME_BYTES_MAX}, QWP_TYPE_LONG, 0};
    }
    struct qwp_shape *shape;
    ASSERT_OK(qwp_shape_create(&shape, (struct qwp_name){"wide", 4}, columns, QWP_COLUMNS_MAX,
                               QWP_TYPE_NONE, &fixture_err));
    ASSERT_OK(qwp_ring_define_shape(&pair.tx, shape, &fixture_err));
    ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
    ck_assert_uint_eq(def.shape->column_count, QWP_COLUMNS_MAX);
    ck_assert_mem_eq(def.shape->columns[2047].name.text, names[2047], QWP_NAME_BYTES_MAX);
    qwp_shape_destroy(def.shape);
    qwp_shape_destroy(shape);
    pair_close(&pair);
}
END_TEST

START_TEST(full_definitions_are_a_limit_and_change_nothing)
{
    struct pair pair;
    struct qwp_ring_def def;
    char text[996];
    memset(text, 'x', sizeof text);
    pair_open(&pair);
    enum qwp_result result = QWP_OK;
    uint32_t count = 0;
    struct stat before;
    ck_assert_int_eq(fstat(pair.tx.fd, &before), 0);
    while ((result = qwp_ring_define_symbol(&pair.tx, text, sizeof text, &fixture_err)) == QWP_OK) {
        count++;
    }
    ASSERT_RESULT(result, QWP_LIMIT);
    ck_assert_uint_eq(count, 2 * QWP_RING_STEP / 1008);
    ck_assert_uint_eq(pair.tx.symbol_count, count);
    struct stat after;
    ck_assert_int_eq(fstat(pair.tx.fd, &after), 0);
    ck_assert_int_eq(after.st_blocks - before.st_blocks, QWP_RING_STEP / 512);
    ck_assert_int_eq(after.st_size, before.st_size);
    /* A shorter one still fits. */
    ASSERT_OK(qwp_ring_define_symbol(&pair.tx, "y", 1, &fixture_err));
    for (uint32_t i = 0; i < count + 1; i++) {
        ASSERT_OK(qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err));
    }
    ck_assert_uint_eq(def.text_len, 1);
    ASSERT_RESULT(qwp_ring_define_symbol(&pair.tx, text, SIZE_MAX, &fixture_err), QWP_LIMIT);
    pair_close(&pair);
}
END_TEST

START_TEST(orphan_is_told_by_the_lock_alone)
{
    struct pair pair;
    pair_open(&pair);
    ck_assert(!qwp_ring_is_orphan(&pair.rx));
    put_record(&pair.tx, 64, 1);
    qwp_ring_close_tx(&pair.tx);
    ck_assert(qwp_ring_is_orphan(&pair.rx));
    ASSERT_RESULT(qwp_ring_poll(&pair.rx), QWP_OK);
    qwp_ring_release(&pair.rx, 64, 1);
    ASSERT_OK(qwp_ring_remove(&pair.rx, fixture_dir_fd, &fixture_err));
    ASSERT_OK(qwp_ring_remove(&pair.rx, fixture_dir_fd, &fixture_err));
    assert_no_files();
    pair_close(&pair);
}
END_TEST

START_TEST(remove_spares_a_new_file_of_the_name)
{
    struct pair pair;
    pair_open(&pair);
    ck_assert_int_eq(unlinkat(fixture_dir_fd, pair.tx.file_name, 0), 0);
    const int fd = openat(fixture_dir_fd, pair.tx.file_name, O_CREAT | O_RDWR, 0600);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ASSERT_OK(qwp_ring_remove(&pair.rx, fixture_dir_fd, &fixture_err));
    ck_assert_int_eq(faccessat(fixture_dir_fd, pair.tx.file_name, F_OK, 0), 0);
    pair_close(&pair);
}
END_TEST

/* The child keeps no mapping; having forgotten the ring it keeps no lock either, though it lives
 * on. */
START_TEST(forked_child_that_forgets_does_not_hold_the_ring)
{
    struct pair pair;
    int ready[2];
    int end[2];
    pair_open(&pair);
    ck_assert_int_eq(pipe(ready), 0);
    ck_assert_int_eq(pipe(end), 0);
    const pid_t child = fork();
    if (child == 0) {
        unsigned char core;
        const void *mapping = pair.tx.header;
        const int mapped = mincore((void *)(uintptr_t)mapping, 1, &core);
        qwp_ring_forget_tx(&pair.tx);
        char c = mapped == 0 ? 'm' : 'u';
        close(end[1]);
        if (write(ready[1], &c, 1) != 1 || read(end[0], &c, 1) != 0) {
            _exit(1);
        }
        _exit(0);
    }
    char c = 0;
    ck_assert_int_eq(read(ready[0], &c, 1), 1);
    ck_assert_int_eq(c, 'u');
    ck_assert(!qwp_ring_is_orphan(&pair.rx));
    qwp_ring_close_tx(&pair.tx);
    ck_assert(qwp_ring_is_orphan(&pair.rx));
    close(end[1]);
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    pair_close(&pair);
}
END_TEST

START_TEST(close_accepts_zeroed_and_closed)
{
    struct pair pair;
    memset(&pair, 0, sizeof pair);
    pair_close(&pair);
    pair_open(&pair);
    pair_close(&pair);
    pair_close(&pair);
    ck_assert_int_ge(fcntl(0, F_GETFD), 0);
}
END_TEST

START_TEST(state_carries_its_reason)
{
    struct pair pair;
    pair_open(&pair);
    char text[QWP_RING_REASON_BYTES + 100];
    memset(text, 'r', sizeof text);
    text[sizeof text - 1] = '\0';
    qwp_ring_set_state(&pair.rx, QWP_RING_DETACHED, text);
    ck_assert_uint_eq(atomic_load(&pair.tx.header->state), QWP_RING_DETACHED);
    ck_assert_uint_eq(strlen(pair.tx.header->reason), QWP_RING_REASON_BYTES - 1);
    qwp_ring_set_state(&pair.rx, QWP_RING_ATTACHED, NULL);
    ck_assert_str_eq(pair.tx.header->reason, "");
    pair_close(&pair);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring");
    TCase *test_case = fixture_case(suite, "ring");
    tcase_add_test(test_case, create_without_options_takes_defaults);
    tcase_add_test(test_case, create_rounds_sizes_up);
    tcase_add_test(test_case, create_beyond_bounds_is_refused);
    tcase_add_test(test_case, create_ignores_the_umask);
    tcase_add_test(test_case, create_with_odd_name_makes_plain_file_name);
    tcase_add_test(test_case, create_with_stdin_closed_keeps_above_stdio);
    tcase_add_test(test_case, create_locking_memory_beyond_limit_is_refused);
    tcase_add_test(test_case, create_locking_memory_locks_pages);
    tcase_add_test(test_case, records_come_out_as_they_went_in);
    tcase_add_test(test_case, reserve_at_the_end_is_contiguous_in_both_views);
    tcase_add_test(test_case, reserve_when_full_is_again_until_head_moves);
    tcase_add_test(test_case, abort_takes_back_what_was_not_published);
    tcase_add_test(test_case, unit_is_seen_whole_or_not_at_all);
    tcase_add_test(test_case, reopened_ring_resumes_at_published_head);
    tcase_add_test(test_case, resume_beyond_head_and_tail_is_judged);
    tcase_add_test(test_case, definitions_arrive_in_order);
    tcase_add_test(test_case, widest_shape_makes_the_round);
    tcase_add_test(test_case, full_definitions_are_a_limit_and_change_nothing);
    tcase_add_test(test_case, orphan_is_told_by_the_lock_alone);
    tcase_add_test(test_case, remove_spares_a_new_file_of_the_name);
    tcase_add_test(test_case, forked_child_that_forgets_does_not_hold_the_ring);
    tcase_add_test(test_case, close_accepts_zeroed_and_closed);
    tcase_add_test(test_case, state_carries_its_reason);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: the bytes of ring and control file are those of the layout pages, on every machine.
 * Method: offsets one by one, and a file made by the library read back as plain bytes. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "tests/ipc/ipc_fixture.h"

#define ASSERT_OFF(type, field, off) ck_assert_uint_eq(offsetof(struct type, field), (off))

START_TEST(ring_header_offsets_are_as_laid_down)
{
    ASSERT_OFF(qwp_ring_header, magic, 0);
    ASSERT_OFF(qwp_ring_header, major, 8);
    ASSERT_OFF(qwp_ring_header, minor, 10);
    ASSERT_OFF(qwp_ring_header, header_bytes, 12);
    ASSERT_OFF(qwp_ring_header, defs_off, 16);
    ASSERT_OFF(qwp_ring_header, defs_bytes_max, 24);
    ASSERT_OFF(qwp_ring_header, data_off, 32);
    ASSERT_OFF(qwp_ring_header, data_bytes, 40);
    ASSERT_OFF(qwp_ring_header, unit_bytes_max, 48);
    ASSERT_OFF(qwp_ring_header, producer_pid, 52);
    ASSERT_OFF(qwp_ring_header, ring_id, 56);
    ASSERT_OFF(qwp_ring_header, created_us, 72);
    ASSERT_OFF(qwp_ring_header, name, 80);
    ASSERT_OFF(qwp_ring_header, library_version, 144);
    ASSERT_OFF(qwp_ring_header, tail_pos, 256);
    ASSERT_OFF(qwp_ring_header, rows_published, 264);
    ASSERT_OFF(qwp_ring_header, rows_dropped, 272);
    ASSERT_OFF(qwp_ring_header, producer_flags, 280);
    ASSERT_OFF(qwp_ring_header, waiting, 284);
    ASSERT_OFF(qwp_ring_header, defs_tail, 288);
    ASSERT_OFF(qwp_ring_header, head_pos, 384);
    ASSERT_OFF(qwp_ring_header, attach_gen, 512);
    ASSERT_OFF(qwp_ring_header, acked_pos, 520);
    ASSERT_OFF(qwp_ring_header, rejected_rows, 528);
    ASSERT_OFF(qwp_ring_header, rows_stored, 536);
    ASSERT_OFF(qwp_ring_header, rows_acked, 544);
    ASSERT_OFF(qwp_ring_header, progress_seq, 552);
    ASSERT_OFF(qwp_ring_header, state, 556);
    ASSERT_OFF(qwp_ring_header, reason, 560);
    ck_assert_uint_eq(sizeof(struct qwp_ring_header), 896);
}
END_TEST

START_TEST(control_header_offsets_are_as_laid_down)
{
    ASSERT_OFF(qwp_control_header, magic, 0);
    ASSERT_OFF(qwp_control_header, major, 8);
    ASSERT_OFF(qwp_control_header, minor, 10);
    ASSERT_OFF(qwp_control_header, ring_major_min, 12);
    ASSERT_OFF(qwp_control_header, ring_major_max, 14);
    ASSERT_OFF(qwp_control_header, file_bytes, 16);
    ASSERT_OFF(qwp_control_header, gen, 24);
    ASSERT_OFF(qwp_control_header, sidecar_pid, 32);
    ASSERT_OFF(qwp_control_header, bell_mode, 36);
    ASSERT_OFF(qwp_control_header, bell_fence, 40);
    ASSERT_OFF(qwp_control_header, producers_max, 44);
    ASSERT_OFF(qwp_control_header, started_us, 48);
    ASSERT_OFF(qwp_control_header, ring_bytes_max, 56);
    ASSERT_OFF(qwp_control_header, version, 64);
    ASSERT_OFF(qwp_control_header, epoch, 128);
    ASSERT_OFF(qwp_control_header, state, 256);
    ck_assert_uint_eq(QWP_CONTROL_PRODUCERS_OFF, 4096);
    ck_assert_uint_eq(sizeof(struct qwp_control_producer), 640);
}
END_TEST

START_TEST(atomics_in_shared_memory_are_lock_free)
{
    struct qwp_ring_header *header = NULL;
    ck_assert(atomic_is_lock_free(&header->tail_pos));
    ck_assert(atomic_is_lock_free(&header->waiting));
    ck_assert(atomic_is_lock_free(&header->major));
    ck_assert_uint_eq(sizeof(_Atomic uint16_t), 2);
    ck_assert_uint_eq(sizeof(_Atomic uint32_t), 4);
    ck_assert_uint_eq(sizeof(_Atomic uint64_t), 8);
}
END_TEST

static void read_at(const char *file_name, off_t off, void *bytes, size_t len)
{
    const int fd = openat(fixture_dir_fd, file_name, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pread(fd, bytes, len, off), (ssize_t)len);
    close(fd);
}

START_TEST(ring_file_bytes_are_golden)
{
    struct qwp_ring_tx tx;
    const struct qwp_ring_options options = {.name = "gold",
                                             .data_bytes = 1,
                                             .defs_bytes_max = 1,
                                             .unit_bytes_max = 1001,
                                             .membarrier = true};
    ASSERT_OK(qwp_ring_create(&tx, fixture_dir_fd, &options, &fixture_err));
    ASSERT_OK(qwp_ring_define_symbol(&tx, "abcde", 5, &fixture_err));
    const struct qwp_column_def columns[] = {{{"px", 2}, QWP_TYPE_DOUBLE, 0},
                                             {{"g", 1}, QWP_TYPE_GEOHASH, 20}};
    struct qwp_shape *shape;
    ASSERT_OK(qwp_shape_create(&shape, (struct qwp_name){"trades", 6}, columns, 2,
                               QWP_TYPE_TIMESTAMP_NANOS, &fixture_err));
    ASSERT_OK(qwp_ring_define_shape(&tx, shape, &fixture_err));
    qwp_shape_destroy(shape);
    put_record(&tx, 16, 0xa5);

    static const unsigned char start[52] = {
        'Q',  'W',  'P', 'R', 'I', 'N', 'G', '1', /* magic */
        1,    0,    0,   0,                       /* major, minor */
        0x80, 0x03, 0,   0,                       /* header_bytes 896 */
        0,    0,    1,   0,   0,   0,   0,   0,   /* defs_off 64 KiB */
        0,    0,    1,   0,   0,   0,   0,   0,   /* defs_bytes_max */
        0,    0,    2,   0,   0,   0,   0,   0,   /* data_off */
        0,    0,    1,   0,   0,   0,   0,   0,   /* data_bytes */
        0xe8, 0x03, 0,   0,                       /* unit_bytes_max 1000 */
    };
    unsigned char header[896];
    read_at(tx.file_name, 0, header, sizeof header);
    ck_assert_mem_eq(header, start, sizeof start);
    ck_assert_uint_eq(qwp_load_u32(header + 52), (uint32_t)getpid());
    ck_assert_str_eq((const char *)header + 80, "gold");
    ck_assert_str_eq((const char *)header + 144, QWP_VERSION);
    ck_assert_uint_eq(qwp_load_u64(header + 256), 16);
    ck_assert_uint_eq(qwp_load_u64(header + 264), 1);
    ck_assert_uint_eq(qwp_load_u32(header + 280), QWP_RING_MEMBARRIER);
    ck_assert_uint_eq(qwp_load_u64(header + 288), 24 + 32);
    ck_assert_uint_eq(qwp_load_u64(header + 384), 0);

    static const unsigned char defs[24 + 32] = {
        24,   0, 0, 0,   1,   0,    0,  0, 5,   0, 0,    0, 'a', 'b', 'c', 'd', 'e', 0,
        0,    0, 0, 0,   0,   0,                                                          /* */
        32,   0, 0, 0,   2,   0,    0,  0, 2,   0, 0x10, 6, 't', 'r', 'a', 'd', 'e', 's', /* */
        0x07, 0, 2, 'p', 'x', 0x0e, 20, 1, 'g', 0, 0,    0, 0,   0};
    unsigned char got[sizeof defs];
    read_at(tx.file_name, 0x10000, got, sizeof got);
    ck_assert_mem_eq(got, defs, sizeof defs);
    unsigned char record[17];
    read_at(tx.file_name, 0x20000, record, sizeof record);
    for (size_t i = 0; i < 16; i++) {
        ck_assert_uint_eq(record[i], 0xa5);
    }
    ck_assert_uint_eq(record[16], 0);
    struct stat st;
    ck_assert_int_eq(fstat(tx.fd, &st), 0);
    ck_assert_int_eq(st.st_size, 0x30000);
    ck_assert_uint_eq(st.st_mode & 07777, 0660);
    qwp_ring_close_tx(&tx);
}
END_TEST

START_TEST(control_file_bytes_are_golden)
{
    struct sidecar sidecar;
    sidecar_open(&sidecar, QWP_BELL_FUTEX, true);
    ck_assert(!qwp_bell_is_parked(&sidecar.bell));
    sidecar_park(&sidecar, true);
    unsigned char bytes[4096];
    read_at(QWP_CONTROL_FILE, 0, bytes, sizeof bytes);
    static const unsigned char start[24] = {'Q', 'C', 'O', 'N', 'T', 'R',  'L', '1', 1, 0, 4, 0,
                                            1,   0,   1,   0,   0,   0x7e, 0,   0,   0, 0, 0, 0};
    ck_assert_mem_eq(bytes, start, sizeof start);
    ck_assert_uint_ne(qwp_load_u64(bytes + 24), 0);
    ck_assert_uint_eq(qwp_load_u32(bytes + 32), (uint32_t)getpid());
    ck_assert_uint_eq(qwp_load_u32(bytes + 36), QWP_BELL_FUTEX);
    ck_assert_uint_eq(qwp_load_u32(bytes + 40), 1);
    ck_assert_uint_eq(qwp_load_u32(bytes + 44), 4);
    ck_assert_uint_eq(qwp_load_u32(bytes + 128), 3);
    ck_assert_uint_eq(qwp_load_u32(bytes + 256), QWP_SIDECAR_RUNNING);
    sidecar_close(&sidecar);
    read_at(QWP_CONTROL_FILE, 0, bytes, sizeof bytes);
    ck_assert_uint_eq(qwp_load_u32(bytes + 256), QWP_SIDECAR_GONE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_layout");
    TCase *test_case = fixture_case(suite, "layout");
    tcase_add_test(test_case, ring_header_offsets_are_as_laid_down);
    tcase_add_test(test_case, control_header_offsets_are_as_laid_down);
    tcase_add_test(test_case, atomics_in_shared_memory_are_lock_free);
    tcase_add_test(test_case, ring_file_bytes_are_golden);
    tcase_add_test(test_case, control_file_bytes_are_golden);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

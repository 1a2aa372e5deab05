/* Aim: whatever stands in a chunk's record, intake takes its rows or calls its ring faulty, and
 * touches nothing outside of it.
 * Method: the producer library writes a chunk with a column of each way of being laid out; then
 * words of its head and bytes anywhere are changed, over and over, and each time a frame is built
 * and, if that works, decoded as a server would. Best under the address sanitizer. */
#include "sidecar/qwp_chunk_index.h"

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/wire/qwp_decode.h"
#include "ipc/qwp_rendezvous.h"
#include "sidecar/qwp_framer.h"
#include "tests/sidecar/chunk_fixture.h"

enum { ROUNDS = 30000, FRAME_BYTES = 300 * 1024 };

static char dir[] = "/tmp/qwp-chunk-XXXXXX";
static int dir_fd;
static struct chunk_fixture chunk;
static struct qwp_cursors *cursors;
static struct qwp_dict *dict;
static struct qwp_schema schema;
static struct qwp_framer *framer;
static struct qwp_source *source;
static unsigned char *frame;
static uint64_t random_state;

static uint32_t roll(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

static void open_source(void)
{
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    struct qwp_error err;
    unsigned char *entry = malloc(QWP_RING_DEF_BYTES_MAX);
    ck_assert_msg(qwp_source_open(&source, dir_fd, chunk.ring_file, &limits, cursors, 0, &err) ==
                      QWP_OK,
                  "%s", err.text);
    ck_assert_int_eq(qwp_ring_poll(&source->rx), QWP_OK);
    ck_assert_msg(qwp_source_define(source, entry, &schema, dict, &err) == QWP_OK, "%s", err.text);
    free(entry);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    chunk_fixture_open(&chunk, dir, "test");
    ck_assert_int_eq(qwp_rendezvous_open(dir, "test", &dir_fd, NULL), QWP_OK);
    ck_assert_int_eq(qwp_cursors_open(&cursors, &qwp_sys_real, dir_fd, "cursors", NULL), QWP_OK);
    ck_assert_int_eq(qwp_dict_create(&dict, 1000000, 1 << 24, NULL), QWP_OK);
    ck_assert_int_eq(qwp_schema_init(&schema, 100), QWP_OK);
    ck_assert_int_eq(
        qwp_framer_create(&framer, dict, QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT, NULL), QWP_OK);
    frame = malloc(FRAME_BYTES);
    open_source();
}

static void teardown(void)
{
    chunk_fixture_close(&chunk);
    qwp_source_close(source);
    qwp_framer_destroy(framer);
    qwp_schema_fini(&schema);
    qwp_dict_destroy(dict);
    qwp_cursors_close(cursors);
    free(frame);
    close(dir_fd);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

/* A frame of what the ring holds, which stays there. Gives the framer's result. */
static enum qwp_result build(uint64_t *rows, struct qwp_error *err)
{
    struct qwp_framer_fault fault;
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    enum qwp_result result = qwp_framer_take(framer, source, UINT64_MAX, &fault);
    size_t len = 0;
    if (result == QWP_OK) {
        *rows = qwp_framer_rows(framer);
        result = qwp_framer_finish(framer, &len, &fault);
    }
    if (result != QWP_OK) {
        qwp_framer_abandon(framer);
        *err = fault.error;
    }
    qwp_source_untake(source);
    if (result == QWP_OK) {
        struct qwp_decoder decoder;
        struct qwp_message message;
        qwp_decoder_init(&decoder, NULL);
        ck_assert_msg(qwp_decode_message(&decoder, frame, len, &message, err) == QWP_OK, "%s",
                      err->text);
        ck_assert_uint_eq(message.row_count, *rows);
        qwp_decoder_fini(&decoder);
    }
    return result;
}

START_TEST(what_was_written_is_taken)
{
    uint64_t rows = 0;
    struct qwp_error err = {0};
    ck_assert_msg(build(&rows, &err) == QWP_OK, "%s", err.text);
    ck_assert_uint_eq(rows, CHUNK_ROWS);
}
END_TEST

START_TEST(whatever_is_there_is_taken_or_refused)
{
    static const uint32_t telling[] = {
        0,          1,          7,          8,          CHUNK_ROWS, CHUNK_ROWS + 1,
        0x7fffffff, 0x80000000, UINT32_MAX, 0xfffffff8, 256 * 1024};
    unsigned char *record = chunk.record;
    const uint32_t size = chunk.record_bytes;
    const uint32_t head_words = 4 + 4 * (CHUNK_COLUMNS + 1);
    random_state = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)random_state);
    uint32_t taken = 0;
    uint32_t refused = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const bool in_head = roll(2) == 0;
        const uint32_t at = in_head ? 4 * roll(head_words) : roll(size);
        unsigned char before[4];
        memcpy(before, record + at, in_head ? 4 : 1);
        if (in_head) {
            const uint32_t word =
                roll(2) == 0 ? telling[roll(sizeof telling / sizeof telling[0])] : roll(size);
            memcpy(record + at, &word, sizeof word);
        } else {
            record[at] = (unsigned char)roll(256);
        }
        uint64_t rows;
        struct qwp_error err;
        const enum qwp_result result = build(&rows, &err);
        ck_assert_msg(result == QWP_OK || result == QWP_CORRUPT, "%d: %s", (int)result, err.text);
        taken += result == QWP_OK;
        refused += result != QWP_OK;
        memcpy(record + at, before, in_head ? 4 : 1);
    }
    ck_assert_uint_gt(taken, 0);
    ck_assert_uint_gt(refused, 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunk_index");
    TCase *tcase = tcase_create("chunk_index");
    tcase_set_timeout(tcase, 0);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, what_was_written_is_taken);
    tcase_add_test(tcase, whatever_is_there_is_taken_or_refused);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

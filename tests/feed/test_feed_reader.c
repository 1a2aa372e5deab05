/* Aim: blocks hold whole records, all of them, once, with the right places; files follow each other
 * as asked; bad input is told with file and place.
 * Method: temporary files and pipes, read with small and random block sizes. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clients/c/feed/qwp_feed_reader.h"
#include "tests/feed/feed_support.h"

enum { ROOM = QWP_FEED_RECORD_BYTES_MAX + QWP_FEED_SLACK_BYTES, WAIT_MS = 20 };

static char paths[4][64];
static const char *path_list[4];

static void make_file(int index, const char *text, size_t len)
{
    snprintf(paths[index], sizeof paths[index], "/tmp/qwp-feed-reader-XXXXXX");
    path_list[index] = paths[index];
    const int fd = mkstemp(paths[index]);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, len), (ssize_t)len);
    close(fd);
}

static void remove_files(void)
{
    for (int i = 0; i < 4; i++) {
        if (paths[i][0] != '\0') {
            unlink(paths[i]);
            paths[i][0] = '\0';
        }
    }
}

static struct qwp_feed_reader_options options_of(enum qwp_feed_format format, uint32_t files,
                                                 uint64_t repeat)
{
    return (struct qwp_feed_reader_options){.format = format,
                                            .delimiter = ',',
                                            .paths = path_list,
                                            .path_count = files,
                                            .repeat = repeat};
}

/* Everything that is read, and `file:place ` before each block when asked for. */
static enum qwp_result read_all(struct qwp_feed_reader *reader, size_t target, char *out,
                                size_t room, bool with_places, struct qwp_error *err)
{
    char *data = malloc(ROOM);
    size_t len = 0;
    struct qwp_feed_block block;
    enum qwp_result result;
    while ((result = qwp_feed_reader_fill(reader, data, target, ROOM, WAIT_MS, &block, err)) ==
               QWP_OK ||
           result == QWP_AGAIN) {
        if (result == QWP_AGAIN) {
            continue;
        }
        ck_assert_int_eq(data[block.len], '\n');
        if (with_places) {
            len += (size_t)snprintf(out + len, room - len, "%u:%llu ", block.file,
                                    (unsigned long long)block.place);
        }
        ck_assert_uint_lt(len + block.len, room);
        memcpy(out + len, data, block.len);
        len += block.len;
    }
    out[len] = '\0';
    free(data);
    return result;
}

static void expect(enum qwp_feed_format format, uint32_t files, uint64_t repeat, size_t target,
                   const char *expected)
{
    struct qwp_feed_reader reader;
    struct qwp_error err;
    char out[4096];
    const struct qwp_feed_reader_options options = options_of(format, files, repeat);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    ck_assert_int_eq(read_all(&reader, target, out, sizeof out, true, &err), QWP_CLOSED);
    ck_assert_str_eq(out, expected);
    qwp_feed_reader_close(&reader);
    remove_files();
}

START_TEST(reader_gives_whole_lines_with_their_numbers)
{
    const char text[] = "aaa\nbb\n\nc \"x\ny\"\nlast";
    make_file(0, text, strlen(text));
    expect(QWP_FEED_CSV, 1, 1, 4, "0:1 aaa\n0:2 bb\n\n0:4 c \"x\ny\"\n0:6 last");
    const char ilp[] = "t a=1i\nt s=\"x\ny\",a=2i\nt,q=\\\nz a=3i\n";
    make_file(0, ilp, strlen(ilp));
    expect(QWP_FEED_ILP, 1, 1, 4, "0:1 t a=1i\n0:2 t s=\"x\ny\",a=2i\n0:4 t,q=\\\nz a=3i\n");
}
END_TEST

START_TEST(reader_goes_through_files_and_passes)
{
    make_file(0, "a\nb", 3);
    make_file(1, "", 0);
    make_file(2,
              "\xef\xbb\xbf"
              "c\n",
              5);
    expect(QWP_FEED_ILP, 3, 2, 100, "0:1 a\nb2:1 c\n0:1 a\nb2:1 c\n");
    make_file(0, "", 0);
    expect(QWP_FEED_ILP, 1, 0, 100, ""); /* for ever, but there is nothing */
}
END_TEST

START_TEST(reader_takes_the_header_off_each_csv_file)
{
    make_file(0, "a,b\n1,2\n", 8);
    make_file(1, "a,b\n3,4", 7);
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_CSV, 2, 1);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    char *data = malloc(ROOM);
    struct qwp_feed_block block;
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 100, ROOM, WAIT_MS, &block, &err), QWP_OK);
    ck_assert_int_eq(qwp_feed_reader_set_header(&reader, data, &block, 4, &err), QWP_OK);
    ck_assert_uint_eq(block.place, 2);
    ck_assert_uint_eq(block.len, 4);
    ck_assert_int_eq(memcmp(data, "1,2\n\n", 5), 0);
    char out[64];
    ck_assert_int_eq(read_all(&reader, 100, out, sizeof out, true, &err), QWP_CLOSED);
    ck_assert_str_eq(out, "1:2 3,4");
    free(data);
    qwp_feed_reader_close(&reader);

    ck_assert_int_eq(truncate(paths[1], 0), 0);
    FILE *other = fopen(paths[1], "w");
    fputs("a,c\n3,4\n", other);
    fclose(other);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    data = malloc(ROOM);
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 100, ROOM, WAIT_MS, &block, &err), QWP_OK);
    ck_assert_int_eq(qwp_feed_reader_set_header(&reader, data, &block, 4, &err), QWP_OK);
    ck_assert_int_eq(read_all(&reader, 100, out, sizeof out, true, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "line 1: the header is not that of the first file"));
    free(data);
    qwp_feed_reader_close(&reader);
    remove_files();
}
END_TEST

START_TEST(reader_handles_records_larger_than_blocks)
{
    const size_t len = 3 * 1024 * 1024;
    char *text = malloc(len + 8);
    memset(text, 'x', len);
    memcpy(text, "t a=\"", 5);
    memcpy(text + len, "\"\nt b\n\0", 7);
    make_file(0, text, len + 6);
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_ILP, 1, 1);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    char *out = malloc(len + 100);
    ck_assert_int_eq(read_all(&reader, 1000, out, len + 100, false, &err), QWP_CLOSED);
    ck_assert_str_eq(out, text);
    qwp_feed_reader_close(&reader);
    remove_files();
    free(text);
    free(out);
}
END_TEST

START_TEST(reader_refuses_endless_lines_but_not_open_quotes)
{
    const size_t len = QWP_FEED_RECORD_BYTES_MAX + 100;
    char *text = malloc(len);
    memset(text, 'x', len);
    make_file(0, text, len);
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_ILP, 1, 1);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    char *out = malloc(len + 100);
    ck_assert_int_eq(read_all(&reader, 1000, out, len + 100, false, &err), QWP_LIMIT);
    ck_assert_msg(strstr(err.text, "line 1: longer than") != NULL, "%s", err.text);
    qwp_feed_reader_close(&reader);
    remove_files();

    for (size_t i = 50; i < len; i += 50) { /* lines, in a quote that never ends */
        text[i] = '\n';
    }
    memcpy(text, "t a=\"", 5);
    make_file(0, text, len);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    ck_assert_int_eq(read_all(&reader, 1000, out, len + 100, false, &err), QWP_CLOSED);
    ck_assert_int_eq(memcmp(out, text, len), 0);
    qwp_feed_reader_close(&reader);
    remove_files();
    free(text);
    free(out);
}
END_TEST

START_TEST(reader_passes_on_what_a_pipe_has)
{
    int fds[2];
    ck_assert_int_eq(pipe(fds), 0);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fds[0]);
    path_list[0] = path;
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_ILP, 1, 1);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    char *data = malloc(ROOM);
    struct qwp_feed_block block;
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 1000, ROOM, 1, &block, &err), QWP_AGAIN);
    ck_assert_int_eq(write(fds[1], "a\nb\nhal", 7), 7);
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 1000, ROOM, 1000, &block, &err), QWP_OK);
    ck_assert_uint_eq(block.len, 4);
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 1000, ROOM, 1, &block, &err), QWP_AGAIN);
    ck_assert_int_eq(write(fds[1], "f\n", 2), 2);
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 1000, ROOM, 1000, &block, &err), QWP_OK);
    ck_assert_uint_eq(block.len, 5);
    ck_assert_uint_eq(block.place, 3);
    ck_assert_int_eq(memcmp(data, "half\n", 5), 0);
    close(fds[1]);
    close(fds[0]);
    ck_assert_int_eq(qwp_feed_reader_fill(&reader, data, 1000, ROOM, 1000, &block, &err),
                     QWP_CLOSED);
    free(data);
    qwp_feed_reader_close(&reader);
    path_list[0] = NULL;
}
END_TEST

/* "QWPB" 1, string "t", schema without columns, a row, string "u", a row. */
static const char qwpb_file[] = "QWPB\x01"
                                "\x01\x01t"
                                "\x02\x00\x00\x00"
                                "\x03\x00\x08\x01\x00\x00\x00\x00\x00\x00\x00"
                                "\x01\x01u"
                                "\x03\x00\x08\x02\x00\x00\x00\x00\x00\x00\x00";
enum { QWPB_LEN = sizeof qwpb_file - 1, QWPB_HEADER = 5, QWPB_DEFINITIONS = 3 + 4 + 3 };

START_TEST(reader_logs_qwpb_definitions_once)
{
    make_file(0, qwpb_file, QWPB_LEN);
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_QWPB, 1, 3);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    char *data = malloc(ROOM);
    struct qwp_feed_block block;
    size_t bytes = 0;
    uint32_t pass = 0;
    while (qwp_feed_reader_fill(&reader, data, 12, ROOM, WAIT_MS, &block, &err) == QWP_OK) {
        pass += block.place == QWPB_HEADER;
        ck_assert_int_eq(memcmp(data, qwpb_file + block.place, block.len), 0);
        ck_assert_uint_eq(block.generation, 1);
        ck_assert_uint_eq(block.definitions_start, 0);
        ck_assert_uint_le(block.definitions_end, QWPB_DEFINITIONS);
        ck_assert_uint_eq(block.ids.strings, (block.place > 5) + (block.place > 25));
        bytes += block.len;
    }
    ck_assert_uint_eq(pass, 3);
    ck_assert_uint_eq(bytes, 3 * (QWPB_LEN - QWPB_HEADER));
    char log[QWPB_DEFINITIONS + 1];
    ck_assert_int_eq(pread(reader.definitions_fd, log, sizeof log, 0), QWPB_DEFINITIONS);
    ck_assert_int_eq(memcmp(log, "\x01\x01t\x02\0\0\0\x01\x01u", QWPB_DEFINITIONS), 0);
    free(data);
    qwp_feed_reader_close(&reader);
    remove_files();
}
END_TEST

START_TEST(reader_tells_where_qwpb_is_bad)
{
    char out[256];
    struct qwp_feed_reader reader;
    struct qwp_error err;
    const struct qwp_feed_reader_options options = options_of(QWP_FEED_QWPB, 1, 1);
    for (size_t cut = 0; cut <= QWPB_LEN; cut++) {
        make_file(0, qwpb_file, cut);
        ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
        const enum qwp_result result = read_all(&reader, 100, out, sizeof out, false, &err);
        const bool whole = cut == 5 || cut == 8 || cut == 12 || cut == 23 || cut == 26 || cut == 37;
        ck_assert_msg(result == (whole ? QWP_CLOSED : QWP_INVALID), "cut at %zu", cut);
        if (!whole && cut > 5) {
            const unsigned record = cut < 8 ? 5 : cut < 12 ? 8 : cut < 23 ? 12 : cut < 26 ? 23 : 26;
            char words[64];
            snprintf(words, sizeof words, "offset %u: the file ends within a record", record);
            ck_assert_msg(strstr(err.text, words) != NULL, "%s", err.text);
        }
        qwp_feed_reader_close(&reader);
        remove_files();
    }
    make_file(0, "\x1f\x8b\x08\x08\x01\x01\x01", 7);
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    ck_assert_int_eq(read_all(&reader, 100, out, sizeof out, false, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "zcat"));
    qwp_feed_reader_close(&reader);
    remove_files();
}
END_TEST

START_TEST(reader_names_files_it_cannot_open)
{
    struct qwp_feed_reader reader;
    struct qwp_error err;
    struct qwp_feed_reader_options options = options_of(QWP_FEED_ILP, 1, 1);
    path_list[0] = "/nonexistent/file";
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_IO);
    ck_assert_ptr_nonnull(strstr(err.text, "cannot open /nonexistent/file: No such file"));
    qwp_feed_reader_close(&reader);
    path_list[0] = "/tmp";
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_INVALID);
    ck_assert_ptr_nonnull(strstr(err.text, "/tmp is a directory"));
    qwp_feed_reader_close(&reader);
    /* A second one is told when it is its turn, behind the rows of the first. */
    make_file(0, "a\n", 2);
    path_list[1] = "/nonexistent/file";
    options.path_count = 2;
    char out[64];
    ck_assert_int_eq(qwp_feed_reader_open(&reader, &options, &err), QWP_OK);
    ck_assert_int_eq(read_all(&reader, 100, out, sizeof out, false, &err), QWP_IO);
    ck_assert_str_eq(out, "a\n");
    qwp_feed_reader_close(&reader);
    remove_files();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("feed_reader");
    TCase *tcase = tcase_create("feed_reader");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, NULL, remove_files);
    tcase_add_test(tcase, reader_gives_whole_lines_with_their_numbers);
    tcase_add_test(tcase, reader_goes_through_files_and_passes);
    tcase_add_test(tcase, reader_takes_the_header_off_each_csv_file);
    tcase_add_test(tcase, reader_handles_records_larger_than_blocks);
    tcase_add_test(tcase, reader_refuses_endless_lines_but_not_open_quotes);
    tcase_add_test(tcase, reader_passes_on_what_a_pipe_has);
    tcase_add_test(tcase, reader_logs_qwpb_definitions_once);
    tcase_add_test(tcase, reader_tells_where_qwpb_is_bad);
    tcase_add_test(tcase, reader_names_files_it_cannot_open);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: the symbol dictionary gives each text one id for good, within its bounds, and its file gives
 * back what was appended, up to the first chunk that is not whole.
 * Method: many random texts against the obvious answer; the file cut at every length and with every
 * byte changed. */
#include "core/store/qwp_dict.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/store/qwp_dict_file.h"
#include "core/store/qwp_store_layout.h"
#include "tests/core/store_fixture.h"

static struct qwp_dict *make(uint32_t symbols_max, uint64_t bytes_max)
{
    struct qwp_dict *dict;
    ck_assert_int_eq(qwp_dict_create(&dict, symbols_max, bytes_max, NULL), QWP_OK);
    return dict;
}

static uint32_t intern(struct qwp_dict *dict, const char *text)
{
    uint32_t id = UINT32_MAX;
    ck_assert_int_eq(qwp_dict_intern(dict, text, strlen(text), &id), QWP_OK);
    return id;
}

START_TEST(dict_texts_keep_their_ids_while_it_grows)
{
    struct qwp_dict *dict = make(1000000, 1 << 30);
    enum { N = 200000 };
    const char *first_text = NULL;
    char text[40];
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text, sizeof text, "symbol-%u", i * 7);
        ck_assert_uint_eq(intern(dict, text), i);
        ck_assert_uint_eq(qwp_dict_count(dict), i + 1);
        if (i == 0) {
            first_text = qwp_dict_text(dict, 0).text;
        }
        if (i % 1013 == 0) { /* also in the middle of a growing table */
            for (uint32_t j = 0; j <= i; j += 1 + i / 17) {
                snprintf(text, sizeof text, "symbol-%u", j * 7);
                ck_assert_uint_eq(intern(dict, text), j);
            }
        }
    }
    ck_assert_ptr_eq(first_text, qwp_dict_text(dict, 0).text);
    for (uint32_t i = 0; i < N; i++) {
        snprintf(text, sizeof text, "symbol-%u", i * 7);
        const struct qwp_name name = qwp_dict_text(dict, i);
        ck_assert_uint_eq(name.len, strlen(text));
        ck_assert_mem_eq(name.text, text, name.len);
    }
    qwp_dict_destroy(dict);
}
END_TEST

START_TEST(dict_odd_texts_are_told_apart)
{
    struct qwp_dict *dict = make(100, 1 << 20);
    uint32_t id;
    ck_assert_int_eq(qwp_dict_intern(dict, "", 0, &id), QWP_OK);
    ck_assert_uint_eq(id, 0);
    ck_assert_int_eq(qwp_dict_intern(dict, "\0", 1, &id), QWP_OK);
    ck_assert_uint_eq(id, 1);
    ck_assert_int_eq(qwp_dict_intern(dict, "\0\0", 2, &id), QWP_OK);
    ck_assert_uint_eq(id, 2);
    ck_assert_uint_eq(intern(dict, "12345678"), 3);
    ck_assert_uint_eq(intern(dict, "123456781234567"), 4);
    ck_assert_uint_eq(intern(dict, "Žluť"), 5);
    ck_assert_int_eq(qwp_dict_intern(dict, "", 0, &id), QWP_OK);
    ck_assert_uint_eq(id, 0);
    char *big = malloc(200000);
    memset(big, 'x', 200000);
    ck_assert_int_eq(qwp_dict_intern(dict, big, 200000, &id), QWP_OK);
    ck_assert_int_eq(qwp_dict_intern(dict, big, 199999, &id), QWP_OK);
    ck_assert_uint_eq(id, 7);
    ck_assert_uint_eq(qwp_dict_text(dict, 6).len, 200000);
    free(big);
    qwp_dict_destroy(dict);
}
END_TEST

START_TEST(dict_bounds_are_kept)
{
    struct qwp_dict *dict = make(3, 10);
    uint32_t id = 77;
    intern(dict, "abc");
    intern(dict, "defg");
    ck_assert_int_eq(qwp_dict_intern(dict, "hijk", 4, &id), QWP_LIMIT); /* 11 bytes */
    ck_assert_uint_eq(id, 77);
    intern(dict, "hij");
    ck_assert_int_eq(qwp_dict_intern(dict, "", 0, &id), QWP_LIMIT); /* a fourth */
    ck_assert_uint_eq(intern(dict, "defg"), 1);
    ck_assert_uint_eq(qwp_dict_text_bytes(dict), 10);
    ck_assert_int_eq(qwp_dict_append(dict, "recovered", 9), QWP_OK); /* beyond the bounds */
    ck_assert_uint_eq(qwp_dict_count(dict), 4);
    qwp_dict_destroy(dict);
}
END_TEST

/* --- the file --- */

static char dir[256];
static int dir_fd;

static void setup(void)
{
    store_dir_make(dir, sizeof dir, false);
    dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
    ck_assert_int_ge(dir_fd, 0);
}

static void teardown(void)
{
    close(dir_fd);
    store_dir_remove(dir);
}

static struct qwp_dict *load(uint64_t *trusted, uint64_t *size)
{
    struct qwp_dict *dict = make(1000, 1 << 20);
    ck_assert_int_eq(qwp_dict_file_load(&qwp_sys_real, dir_fd, dict, trusted, size, NULL), QWP_OK);
    return dict;
}

/* Five chunks of 1, 2, ... symbols. ends[k]: file size with k of them. */
static void five_chunks(uint64_t *ends)
{
    struct qwp_dict *dict = make(1000, 1 << 20);
    struct qwp_dict_file file;
    ck_assert_int_eq(qwp_dict_file_open(&file, &qwp_sys_real, dir_fd, 0, 0, NULL), QWP_OK);
    ends[0] = file.end_off;
    for (int chunk = 1; chunk <= 5; chunk++) {
        for (int i = 0; i < chunk; i++) {
            char text[20];
            snprintf(text, sizeof text, "text-%d-%d", chunk, i);
            intern(dict, text);
        }
        ck_assert_int_eq(qwp_dict_file_append(&file, &qwp_sys_real, dict, NULL), QWP_OK);
        ck_assert_int_eq(qwp_dict_file_append(&file, &qwp_sys_real, dict, NULL), QWP_OK);
        ends[chunk] = file.end_off;
    }
    qwp_dict_file_close(&file, &qwp_sys_real);
    qwp_dict_destroy(dict);
}

static const uint32_t counts[] = {0, 1, 3, 6, 10, 15};

START_TEST(dict_file_gives_back_what_was_appended)
{
    uint64_t ends[6], trusted, size;
    five_chunks(ends);
    struct qwp_dict *dict = load(&trusted, &size);
    ck_assert_uint_eq(trusted, ends[5]);
    ck_assert_uint_eq(size, ends[5]);
    ck_assert_uint_eq(qwp_dict_count(dict), 15);
    ck_assert_uint_eq(intern(dict, "text-5-4"), 14);
    qwp_dict_destroy(dict);
}
END_TEST

START_TEST(dict_file_cut_anywhere_is_trusted_up_to_the_last_whole_chunk)
{
    uint64_t ends[6], trusted, size;
    five_chunks(ends);
    for (uint64_t cut = ends[5]; cut-- > 0;) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", dir, QWP_DICT_FILE_NAME);
        ck_assert_int_eq(truncate(path, (off_t)cut), 0);
        struct qwp_dict *dict = load(&trusted, &size);
        int whole = 5;
        while (whole > 0 && ends[whole] > cut) {
            whole--;
        }
        ck_assert_uint_eq(qwp_dict_count(dict), counts[whole]);
        ck_assert_uint_eq(trusted, cut < ends[0] ? 0 : ends[whole]);
        qwp_dict_destroy(dict);
    }
}
END_TEST

START_TEST(dict_file_flipped_byte_ends_the_trusted_part)
{
    uint64_t ends[6], trusted, size;
    five_chunks(ends);
    const int fd = openat(dir_fd, QWP_DICT_FILE_NAME, O_RDWR);
    for (uint64_t off = 0; off < ends[5]; off++) {
        unsigned char byte;
        ck_assert_int_eq(pread(fd, &byte, 1, (off_t)off), 1);
        const unsigned char flipped = byte ^ 0x10;
        ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)off), 1);
        struct qwp_dict *dict = load(&trusted, &size);
        int chunk = 0;
        while (ends[chunk] <= off) {
            chunk++;
        }
        if (off >= ends[0]) {
            ck_assert_uint_eq(qwp_dict_count(dict), counts[chunk - 1]);
        } else if (off < 5) {
            ck_assert_uint_eq(trusted, 0);
        }
        qwp_dict_destroy(dict);
        ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)off), 1);
    }
    close(fd);
}
END_TEST

START_TEST(dict_file_goes_on_behind_the_trusted_part)
{
    uint64_t ends[6], trusted, size;
    five_chunks(ends);
    char path[300];
    snprintf(path, sizeof path, "%s/%s", dir, QWP_DICT_FILE_NAME);
    ck_assert_int_eq(truncate(path, (off_t)ends[4] + 3), 0);
    struct qwp_dict *dict = load(&trusted, &size);
    struct qwp_dict_file file;
    ck_assert_int_eq(
        qwp_dict_file_open(&file, &qwp_sys_real, dir_fd, trusted, qwp_dict_count(dict), NULL),
        QWP_OK);
    intern(dict, "new");
    ck_assert_int_eq(qwp_dict_file_append(&file, &qwp_sys_real, dict, NULL), QWP_OK);
    qwp_dict_file_close(&file, &qwp_sys_real);
    qwp_dict_destroy(dict);
    dict = load(&trusted, &size);
    ck_assert_uint_eq(qwp_dict_count(dict), 11);
    ck_assert_uint_eq(intern(dict, "new"), 10);
    qwp_dict_destroy(dict);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("dict");
    TCase *tcase = tcase_create("dict");
    tcase_set_timeout(tcase, 240);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, dict_texts_keep_their_ids_while_it_grows);
    tcase_add_test(tcase, dict_odd_texts_are_told_apart);
    tcase_add_test(tcase, dict_bounds_are_kept);
    tcase_add_test(tcase, dict_file_gives_back_what_was_appended);
    tcase_add_test(tcase, dict_file_cut_anywhere_is_trusted_up_to_the_last_whole_chunk);
    tcase_add_test(tcase, dict_file_flipped_byte_ends_the_trusted_part);
    tcase_add_test(tcase, dict_file_goes_on_behind_the_trusted_part);
    suite_add_tcase(suite, tcase);
    return store_suite_run(suite);
}

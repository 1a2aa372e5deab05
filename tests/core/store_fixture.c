#include "tests/core/store_fixture.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/store/qwp_store_layout.h"

static char bases[2][200]; /* on disk, on tmpfs */

void store_dir_make(char *dir, size_t room, bool shm)
{
    snprintf(dir, room, "%s/XXXXXX", bases[shm]);
    ck_assert_msg(mkdtemp(dir) != NULL, "cannot make %s", dir);
}

int store_suite_run(Suite *suite)
{
    const char *tmp = getenv("TMPDIR");
    snprintf(bases[0], sizeof bases[0], "%s/qwp-store-XXXXXX", tmp != NULL ? tmp : "/tmp");
    snprintf(bases[1], sizeof bases[1], "/dev/shm/qwp-store-XXXXXX");
    if (mkdtemp(bases[0]) == NULL || mkdtemp(bases[1]) == NULL) {
        perror("cannot make a directory for the test");
        return EXIT_FAILURE;
    }
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    store_dir_remove(bases[0]);
    store_dir_remove(bases[1]);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

void store_dir_remove(const char *dir)
{
    DIR *list = opendir(dir);
    if (list == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        char path[1024];
        struct stat st;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode)) {
            store_dir_remove(path);
        } else {
            unlink(path);
        }
    }
    closedir(list);
    rmdir(dir);
}

struct qwp_seglog_options store_options(const char *dir)
{
    return (struct qwp_seglog_options){
        .dir = dir,
        .segment_bytes = 64 * 1024,
        .total_bytes_max = 1024 * 1024,
        .durability = QWP_DURABILITY_MEMORY,
        .sync_interval_ns = 5 * (int64_t)QWP_NS_PER_S,
        .payload_crc = true,
        .symbols_max = 1000000,
        .symbol_bytes_max = 64 * 1024 * 1024,
    };
}

struct qwp_seglog *store_open(const struct qwp_seglog_options *options)
{
    struct qwp_seglog *log = NULL;
    struct qwp_error err = {0};
    const enum qwp_result result = qwp_seglog_open(&log, options, &err);
    ck_assert_msg(result == QWP_OK, "open: %s: %s", qwp_result_name(result), err.text);
    return log;
}

static uint64_t word_of(uint64_t fsn, size_t index)
{
    return (fsn + 1) * UINT64_C(0x9e3779b97f4a7c15) + index * UINT64_C(0xd1342543de82ef95);
}

void store_fill(unsigned char *at, size_t len, uint64_t fsn)
{
    for (size_t i = 0; i < len; i += 8) {
        const uint64_t word = word_of(fsn, i);
        memcpy(at + i, &word, len - i < 8 ? len - i : 8);
    }
}

bool store_filled(const unsigned char *at, size_t len, uint64_t fsn)
{
    for (size_t i = 0; i < len; i += 8) {
        const uint64_t word = word_of(fsn, i);
        if (memcmp(at + i, &word, len - i < 8 ? len - i : 8) != 0) {
            return false;
        }
    }
    return true;
}

enum qwp_result store_append(struct qwp_seglog *log, size_t len)
{
    unsigned char *at;
    size_t room;
    struct qwp_error err;
    const enum qwp_result result = qwp_seglog_reserve(log, len, len, &at, &room, &err);
    if (result != QWP_OK) {
        return result;
    }
    ck_assert_uint_eq(room, len);
    const uint64_t fsn = qwp_seglog_next_fsn(log);
    store_fill(at, len, fsn);
    qwp_seglog_finish(log, len, len, NULL);
    ck_assert_uint_eq(qwp_seglog_publish(log), fsn);
    return QWP_OK;
}

void store_settle(struct qwp_seglog *log)
{
    bool more = true;
    int64_t next_ns;
    while (more) {
        qwp_seglog_maintain(log, qwp_clock_monotonic_ns(), &more, &next_ns);
    }
}

enum qwp_result store_next(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor,
                           struct qwp_frame *frame)
{
    enum qwp_result result;
    while ((result = qwp_seglog_next(log, cursor, frame)) == QWP_AGAIN &&
           qwp_seglog_wants_check(log)) {
        bool more;
        int64_t next_ns;
        qwp_seglog_maintain(log, qwp_clock_monotonic_ns(), &more, &next_ns);
    }
    return result;
}

uint64_t store_read_all(struct qwp_seglog *log, struct qwp_seglog_cursor *cursor)
{
    uint64_t count = 0;
    struct qwp_frame frame;
    while (store_next(log, cursor, &frame) == QWP_OK) {
        ck_assert_msg(store_filled(frame.payload, frame.len, frame.fsn),
                      "frame %llu (%zu bytes) is not what was written",
                      (unsigned long long)frame.fsn, frame.len);
        count++;
    }
    return count;
}

static bool ends_with(const char *name, const char *suffix)
{
    const size_t len = strlen(name);
    return len > strlen(suffix) && strcmp(name + len - strlen(suffix), suffix) == 0;
}

struct store_files store_files_count(const char *dir)
{
    struct store_files files = {0};
    DIR *list = opendir(dir);
    ck_assert_ptr_nonnull(list);
    const struct dirent *entry;
    while ((entry = readdir(list)) != NULL) {
        char path[1024];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        ck_assert_int_eq(lstat(path, &st), 0);
        if (ends_with(entry->d_name, ".sfa")) {
            files.segments++;
            files.segment_bytes += (uint64_t)st.st_size;
        } else if (ends_with(entry->d_name, ".sfa.new")) {
            files.unready++;
            files.unready_bytes += (uint64_t)st.st_size;
        } else if (ends_with(entry->d_name, ".corrupt")) {
            files.corrupt++;
        } else if (S_ISREG(st.st_mode)) {
            files.others++;
        }
    }
    closedir(list);
    return files;
}

static int file_open(const char *dir, const char *name, int flags)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return open(path, flags);
}

void store_segment_name(const char *dir, uint64_t base, char *name)
{
    DIR *list = opendir(dir);
    const struct dirent *entry;
    *name = '\0';
    while ((entry = readdir(list)) != NULL) {
        const size_t len = strlen(entry->d_name);
        unsigned char header[24];
        if (len < 5 || strcmp(entry->d_name + len - 4, ".sfa") != 0) {
            continue;
        }
        const int fd = file_open(dir, entry->d_name, O_RDONLY);
        if (pread(fd, header, 24, 0) == 24 && qwp_load_u64(header + 8) == base) {
            snprintf(name, QWP_STORE_NAME_BYTES, "%.40s", entry->d_name);
        }
        close(fd);
    }
    closedir(list);
    ck_assert_msg(*name != '\0', "no segment with base %llu", (unsigned long long)base);
}

void store_flip(const char *dir, const char *name, uint64_t off, unsigned char bits)
{
    const int fd = file_open(dir, name, O_RDWR);
    unsigned char byte;
    ck_assert_int_eq(pread(fd, &byte, 1, (off_t)off), 1);
    byte ^= bits;
    ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)off), 1);
    close(fd);
}

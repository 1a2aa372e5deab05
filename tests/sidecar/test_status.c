/* Aim: status shows what the control file says and survives whatever it says.
 * Method: a control file made as a sidecar makes it, in a directory of its own, filled by hand. */
#include "sidecar/qwp_status.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_shared_text.h"

enum { SLOTS = 8 };

static char dir[64];
static int dir_fd;
static struct qwp_control control;
static struct qwp_snapshot snapshot;

static void setup(void)
{
    struct qwp_error err = {0};
    strcpy(dir, "/tmp/qwp-test-status-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_msg(qwp_rendezvous_open(dir, "one", &dir_fd, &err) == QWP_OK, "%s", err.text);
    const struct qwp_control_options options = {.producers_max = SLOTS};
    ck_assert_msg(qwp_control_create(&control, dir_fd, &options, &err) == QWP_OK, "%s", err.text);
}

static void teardown(void)
{
    char command[128];
    qwp_snapshot_fini(&snapshot);
    qwp_control_close(&control);
    close(dir_fd);
    snprintf(command, sizeof command, "rm -rf %s", dir);
    ck_assert_int_eq(system(command), 0);
}

static void look(void)
{
    struct qwp_error err = {0};
    qwp_snapshot_fini(&snapshot);
    ck_assert_msg(qwp_snapshot_take(&snapshot, dir, "one", &err) == QWP_OK, "%s", err.text);
}

static void add_producer(uint32_t slot, const char *name, uint64_t rows)
{
    struct qwp_control_producer *producer = qwp_control_producer_at(&control, slot);
    qwp_shared_text_set(producer->name, sizeof producer->name, name);
    atomic_store(&producer->pid, 100 + slot);
    atomic_store(&producer->state, QWP_RING_ATTACHED);
    atomic_store(&producer->rows_published, rows);
    atomic_store(&producer->rows_stored, rows - 1);
    atomic_store(&producer->rows_acked, rows - 2);
    atomic_store(&producer->ring_bytes, 1 << 20);
    atomic_store(&producer->bytes_waiting, 1 << 18);
    atomic_store(&producer->in_use, 1);
}

/* What one of the printers writes; the caller frees. */
static char *print(bool json, const struct qwp_snapshot *before)
{
    char *text = NULL;
    size_t len = 0;
    FILE *out = open_memstream(&text, &len);
    const struct qwp_status_view view = {
        .rings_dir = dir, .name = "one", .before = before, .now = &snapshot, .line_end = "\n"};
    (json ? qwp_status_print_json : qwp_status_print)(&view, out);
    fclose(out);
    return text;
}

static void expect(const char *text, const char *words)
{
    ck_assert_msg(strstr(text, words) != NULL, "no '%s' in:\n%s", words, text);
}

START_TEST(status_without_a_directory_makes_none)
{
    struct qwp_snapshot none;
    struct stat meta;
    char path[96];
    ck_assert_int_eq(qwp_snapshot_take(&none, dir, "two", NULL), QWP_OK);
    ck_assert(!none.has_control && !none.is_live);
    snprintf(path, sizeof path, "%s/two", dir);
    ck_assert_int_ne(stat(path, &meta), 0);
    ck_assert_int_eq(qwp_snapshot_take(&none, "/proc/none", "two", NULL), QWP_OK);
    qwp_snapshot_fini(&none);
}
END_TEST

START_TEST(status_shows_counters_and_producers)
{
    struct qwp_control_header *header = control.header;
    atomic_store(&header->rows_stored, 1234567);
    atomic_store(&header->rows_acked, 1234000);
    atomic_store(&header->frames_published, 42);
    atomic_store(&header->bytes_sent, 5 << 20);
    atomic_store(&header->connection, QWP_CONNECTION_UP);
    qwp_shared_text_set(header->endpoint, sizeof header->endpoint, "127.0.0.1:9000");
    add_producer(2, "alpha", 1000);
    add_producer(5, "beta", 10);
    look();
    ck_assert(snapshot.has_control);
    ck_assert_uint_eq(snapshot.producer_count, 2);
    ck_assert_uint_eq(snapshot.producers[1].slot, 5);
    ck_assert_uint_eq(snapshot.counters[QWP_SIDECAR_ROWS_STORED], 1234567);

    char *text = print(false, NULL);
    expect(text, "stored 1,234,567, acked 1,234,000, waiting 567");
    expect(text, "alpha");
    expect(text, "[###.......]  25%");
    free(text);
    text = print(true, NULL);
    expect(text, "\"rows_stored\":1234567,\"rows_acked\":1234000");
    expect(text, "\"frames_published\":42");
    expect(text, "\"endpoint\":\"127.0.0.1:9000\"");
    expect(text, "\"producers\":[{\"name\":\"alpha\",\"pid\":102,");
    expect(text, "\"rows_published\":1000,\"rows_stored\":999,\"rows_acked\":998");
    free(text);
}
END_TEST

START_TEST(status_says_what_is_wrong_with_the_store)
{
    struct qwp_control_header *header = control.header;
    look();
    snapshot.is_live = true; /* the lock is our own, so nobody else's */
    char *text = print(false, NULL);
    ck_assert_ptr_null(strstr(text, "STORE"));
    ck_assert_ptr_null(strstr(text, "disk "));
    free(text);
    qwp_snapshot_fini(&snapshot);
    atomic_store(&header->store_state, QWP_STORE_BLOCKED);
    qwp_shared_text_set(header->store_error, sizeof header->store_error, "no space on /data");
    atomic_store(&header->keeper_failing, 1);
    qwp_shared_text_set(header->keeper_error, sizeof header->keeper_error, "cannot sync x.sfa");
    atomic_store(&header->frames_unsynced, 7);
    atomic_store(&header->sync_failures, 3);
    atomic_store(&header->segments_suspect, 2);
    look();
    snapshot.is_live = true;
    text = print(false, NULL);
    expect(text, "STORE     cannot be written, rows wait in their rings: no space on /data");
    expect(text, "STORE     housekeeping fails, it is tried again: cannot sync x.sfa");
    expect(text, "frames not synced yet 7, failed syncs 3, segments not to be relied on if the "
                 "host crashes 2");
    free(text);
    text = print(true, NULL);
    expect(text, "\"store_state\":\"cannot be written\",\"store_error\":\"no space on /data\"");
    expect(text, "\"keeper_failing\":true,\"keeper_error\":\"cannot sync x.sfa\"");
    expect(text, "\"sync_failures\":3,\"segments_suspect\":2,\"frames_unsynced\":7");
    free(text);
}
END_TEST

START_TEST(status_rates_come_from_two_looks_of_one_life)
{
    add_producer(0, "alpha", 1000);
    atomic_store(&control.header->rows_stored, 1000);
    look();
    struct qwp_snapshot before = snapshot;
    snapshot = (struct qwp_snapshot){0};
    atomic_store(&qwp_control_producer_at(&control, 0)->rows_published, 3000);
    atomic_store(&control.header->rows_stored, 2000);
    look();
    snapshot.is_live = true; /* the lock is our own, so nobody else's */
    before.taken_ns = snapshot.taken_ns - 2000000000;
    char *text = print(true, &before);
    expect(text, "\"rows_stored_per_s\":500.0");
    expect(text, "\"rows_published_per_s\":1000.0");
    free(text);
    text = print(false, &before);
    expect(text, "in 500/s");
    expect(text, "1.0 k/s");
    free(text);
    before.gen++;
    text = print(true, &before);
    ck_assert_ptr_null(strstr(text, "_per_s"));
    free(text);
    qwp_snapshot_fini(&before);
}
END_TEST

START_TEST(status_of_hostile_values_is_plain_text)
{
    add_producer(1, "\x1b[2Jevil\nname\"\\", UINT64_MAX);
    struct qwp_control_producer *producer = qwp_control_producer_at(&control, 1);
    memset(producer->reason, '\xff', sizeof producer->reason); /* not terminated, not UTF-8 */
    atomic_store(&producer->state, 77);
    atomic_store(&producer->bytes_waiting, UINT64_MAX);
    atomic_store(&control.header->connection, 99);
    atomic_store(&control.header->started_us, INT64_MIN);
    atomic_store(&control.header->rows_acked, UINT64_MAX);
    qwp_shared_text_set(control.header->last_error, sizeof control.header->last_error,
                        "x\x1b]0;title\x07 \xc2\x9b");
    look();
    ck_assert_uint_eq(snapshot.producer_count, 1);
    for (int json = 0; json < 2; json++) {
        char *text = print(json == 1, NULL);
        for (const char *c = text; *c != '\0'; c++) {
            ck_assert_msg(*c == '\n' || (*c >= 0x20 && *c < 0x7f), "byte 0x%02x",
                          (unsigned char)*c);
        }
        expect(text, "unknown");
        free(text);
    }
    char *text = print(true, NULL);
    expect(text, "\"name\":\"?[2Jevil?name\\\"\\\\\"");
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
    free(text);
}
END_TEST

START_TEST(status_of_a_foreign_file_is_an_error)
{
    struct qwp_error err = {0};
    struct qwp_snapshot none;
    qwp_control_close(&control);
    const int fd = openat(dir_fd, QWP_CONTROL_FILE, O_WRONLY | O_TRUNC);
    ck_assert_int_ge(fd, 0);
    close(fd);
    ck_assert_int_ne(qwp_snapshot_take(&none, dir, "one", &err), QWP_OK);
    expect(err.text, dir);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("status");
    TCase *tcase = tcase_create("status");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, status_without_a_directory_makes_none);
    tcase_add_test(tcase, status_shows_counters_and_producers);
    tcase_add_test(tcase, status_says_what_is_wrong_with_the_store);
    tcase_add_test(tcase, status_rates_come_from_two_looks_of_one_life);
    tcase_add_test(tcase, status_of_hostile_values_is_plain_text);
    tcase_add_test(tcase, status_of_a_foreign_file_is_an_error);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Units, and what happens when the ring is full: wait, fail, drop. The reader plays the sidecar. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/clients/client_fixture.h"

enum { ROW_BYTES = 32 }; /* header, null word, time, long */

static struct qwp_table *table;
static const struct qwp_layout *layout;
static struct reader reader;

static void open_with(enum qwp_on_full on_full, int64_t wait_ns)
{
    const struct qwp_producer_options options = {
        .ring_bytes = 64 * 1024, .on_full = on_full, .full_wait_ns_max = wait_ns};
    fixture_open(&options);
    const struct qwp_column columns[] = {{"n", QWP_LONG, 0}};
    ck_assert_int_eq(qwp_table_define(fixture_producer, "t", columns, 1, &table, &fixture_err),
                     QWP_OK);
    ck_assert_int_eq(qwp_layout_define(table, (uint32_t[]){0}, 1, QWP_AT_NS, &layout, &fixture_err),
                     QWP_OK);
    reader_open(&reader);
}

static enum qwp_result put(int64_t n)
{
    struct qwp_row *row = qwp_row_begin(table);
    qwp_row_long(row, 0, n);
    return qwp_row_at_ns(row, n, &fixture_err);
}

static enum qwp_result put_hot(int64_t n)
{
    void *row;
    const enum qwp_result result = qwp_row_reserve(fixture_producer, layout, 0, &row);
    if (result != QWP_OK) {
        return result;
    }
    memcpy((char *)row + qwp_layout_offset(layout, 0), &n, 8);
    memcpy((char *)row + qwp_layout_at_offset(layout), &n, 8);
    return qwp_row_publish(fixture_producer);
}

static void expect_row(int64_t n, uint8_t flags)
{
    struct record record;
    ck_assert(reader_next(&reader, &record));
    ck_assert_int_eq(record_time(&record), n);
    ck_assert_int_eq(qwp_load_i64(record_field(&record, 0)), n);
    ck_assert_uint_eq(record.flags, flags);
}

static struct qwp_counters counters(void)
{
    struct qwp_counters c;
    qwp_producer_count(fixture_producer, &c);
    return c;
}

static void begin(void)
{
    ck_assert_int_eq(qwp_unit_begin(fixture_producer, &fixture_err), QWP_OK);
}

static void publish(void)
{
    ck_assert_int_eq(qwp_unit_publish(fixture_producer, &fixture_err), QWP_OK);
}

/* ---- units ---- */

START_TEST(unit_is_seen_when_published_and_all_at_once)
{
    open_with(QWP_FULL_FAIL, 0);
    begin();
    ck_assert_int_eq(put(1), QWP_OK);
    ck_assert_int_eq(put_hot(2), QWP_OK);
    ck_assert_int_eq(put(3), QWP_OK);
    reader_expect_end(&reader);
    ck_assert_uint_eq(qwp_position_published(fixture_producer), 0);
    publish();
    ck_assert_uint_eq(qwp_position_published(fixture_producer), 3 * ROW_BYTES);
    expect_row(1, QWP_RECORD_MORE);
    expect_row(2, QWP_RECORD_MORE);
    expect_row(3, 0);
    reader_expect_end(&reader);
    ck_assert_int_eq(put(4), QWP_OK);
    expect_row(4, 0);
    ck_assert_uint_eq(counters().rows_published, 4);
    reader_close(&reader);
}
END_TEST

START_TEST(unit_of_one_and_of_none_are_fine)
{
    open_with(QWP_FULL_FAIL, 0);
    begin();
    publish();
    reader_expect_end(&reader);
    begin();
    ck_assert_int_eq(put_hot(1), QWP_OK);
    publish();
    expect_row(1, 0);
    reader_close(&reader);
}
END_TEST

START_TEST(unit_aborted_leaves_nothing)
{
    open_with(QWP_FULL_FAIL, 0);
    begin();
    ck_assert_int_eq(put(1), QWP_OK);
    struct qwp_row *row = qwp_row_begin(table);
    qwp_unit_abort(fixture_producer);
    expect(qwp_row_at_ns(row, 1, &fixture_err), QWP_INVALID, "no row is open");
    reader_expect_end(&reader);
    ck_assert_int_eq(put(2), QWP_OK);
    expect_row(2, 0);
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

START_TEST(unit_out_of_order_calls_are_told)
{
    open_with(QWP_FULL_FAIL, 0);
    expect(qwp_unit_publish(fixture_producer, &fixture_err), QWP_INVALID,
           "no unit is open; qwp_unit_begin() comes first");
    qwp_unit_abort(fixture_producer);
    begin();
    expect(qwp_unit_begin(fixture_producer, &fixture_err), QWP_INVALID,
           "a unit of 0 rows is open already; publish or abort it first");
    reader_close(&reader);
}
END_TEST

START_TEST(unit_row_that_fails_is_left_out)
{
    open_with(QWP_FULL_FAIL, 0);
    begin();
    ck_assert_int_eq(put(1), QWP_OK);
    expect(put(-1), QWP_INVALID, "out of the server's range");
    ck_assert_int_eq(put_hot(-1), QWP_INVALID);
    ck_assert_int_eq(put(2), QWP_OK);
    publish();
    expect_row(1, QWP_RECORD_MORE);
    expect_row(2, 0);
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

START_TEST(unit_larger_than_the_bound_is_refused_row_by_row)
{
    open_with(QWP_FULL_FAIL, 0);
    begin();
    int64_t n = 0;
    while (put(n) == QWP_OK) {
        n++;
    }
    ck_assert_int_eq(n, 32 * 1024 / ROW_BYTES);
    expect(put(n), QWP_LIMIT, "the open unit has room for 0 of its 32768: publish the unit first");
    ck_assert_int_eq(put_hot(n), QWP_LIMIT);
    publish();
    for (int64_t i = 0; i < n; i++) {
        expect_row(i, i + 1 < n ? QWP_RECORD_MORE : 0);
    }
    ck_assert_int_eq(put(n), QWP_OK);
    reader_close(&reader);
}
END_TEST

/* ---- a full ring ---- */

static int64_t fill(void)
{
    int64_t n = 0;
    while (n < 64 * 1024 / ROW_BYTES) {
        ck_assert_int_eq(n % 2 == 0 ? put(n) : put_hot(n), QWP_OK);
        n++;
    }
    return n;
}

START_TEST(full_ring_fails_at_once_and_goes_on_when_there_is_room)
{
    open_with(QWP_FULL_FAIL, 0);
    const int64_t n = fill();
    expect(put(n), QWP_AGAIN,
           "65536 of 65536 bytes wait to be stored, waited 0 ms; no sidecar runs");
    ck_assert_int_eq(put_hot(n), QWP_AGAIN);
    for (int64_t i = 0; i < n; i++) {
        expect_row(i, 0);
    }
    reader_release(&reader, (uint64_t)n);
    ck_assert_int_eq(put(n), QWP_OK);
    expect_row(n, 0);
    ck_assert_uint_eq(counters().full_waits, 0);
    ck_assert_uint_eq(counters().rows_dropped, 0);
    reader_close(&reader);
}
END_TEST

START_TEST(full_ring_waits_up_to_the_deadline)
{
    open_with(QWP_FULL_WAIT, 20 * QWP_NS_PER_MS);
    const int64_t n = fill();
    const int64_t before_ns = qwp_clock_monotonic_ns();
    expect(put(n), QWP_AGAIN, "waited 20 ms");
    ck_assert_int_ge(qwp_clock_monotonic_ns() - before_ns, 20 * QWP_NS_PER_MS);
    ck_assert_int_eq(put_hot(n), QWP_AGAIN);
    ck_assert_uint_eq(counters().full_waits, 2);
    reader_close(&reader);
}
END_TEST

enum { MANY = 30000 };
static atomic_bool drain_stop;
static int64_t drain_wrong; /* read after join */

/* Frees whatever is there, a few rows at a time. */
static void *drain(void *unused)
{
    (void)unused;
    int64_t next = 0;
    while (next < MANY && !atomic_load(&drain_stop)) {
        struct record record;
        uint64_t rows = 0;
        while (rows < 100 && reader_next(&reader, &record)) {
            drain_wrong += qwp_load_i64(record_field(&record, 0)) != next;
            next++;
            rows++;
        }
        if (rows != 0) {
            reader_release(&reader, rows);
        }
    }
    return NULL;
}

START_TEST(full_ring_wait_ends_when_the_reader_frees_room)
{
    open_with(QWP_FULL_WAIT, 0);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, drain, NULL), 0);
    enum qwp_result result = QWP_OK;
    for (int64_t n = 0; n < MANY && result == QWP_OK; n++) {
        result = n % 3 == 0 ? put_hot(n) : put(n);
    }
    atomic_store(&drain_stop, result != QWP_OK);
    pthread_join(thread, NULL);
    ck_assert_int_eq(result, QWP_OK);
    ck_assert_int_eq(drain_wrong, 0);
    reader_close(&reader);
}
END_TEST

START_TEST(full_ring_drops_and_counts)
{
    open_with(QWP_FULL_DROP, 0);
    const int64_t n = fill();
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq(put(n), QWP_OK);
        ck_assert_int_eq(put_hot(n), QWP_AGAIN);
    }
    ck_assert_uint_eq(counters().rows_dropped, 10);
    ck_assert_uint_eq(atomic_load(&reader.rx.header->rows_dropped), 10);
    expect(put(-1), QWP_INVALID, "out of the server's range");
    ck_assert_uint_eq(counters().rows_dropped, 10);
    for (int64_t i = 0; i < n; i++) {
        expect_row(i, 0);
    }
    reader_release(&reader, (uint64_t)n);
    ck_assert_int_eq(put(n), QWP_OK);
    expect_row(n, 0);
    ck_assert_uint_eq(counters().rows_published, (uint64_t)n + 1);
    reader_close(&reader);
}
END_TEST

START_TEST(full_ring_drops_a_unit_whole)
{
    open_with(QWP_FULL_DROP, 0);
    int64_t n = 0;
    while (n < 64 * 1024 / ROW_BYTES - 2) {
        ck_assert_int_eq(put(n++), QWP_OK);
    }
    begin();
    ck_assert_int_eq(put(n), QWP_OK);
    ck_assert_int_eq(put_hot(n), QWP_OK);
    ck_assert_int_eq(put_hot(n), QWP_AGAIN);
    ck_assert_int_eq(put(n), QWP_OK);
    ck_assert_int_eq(put_hot(n), QWP_AGAIN);
    publish();
    ck_assert_uint_eq(counters().rows_dropped, 5);
    /* The room of its first rows is there again. */
    ck_assert_int_eq(put(n), QWP_OK);
    begin();
    ck_assert_int_eq(put(n), QWP_OK);
    ck_assert_int_eq(put(n), QWP_OK);
    qwp_unit_abort(fixture_producer);
    ck_assert_uint_eq(counters().rows_dropped, 5);
    for (int64_t i = 0; i <= n; i++) {
        expect_row(i, 0);
    }
    reader_expect_end(&reader);
    reader_close(&reader);
}
END_TEST

START_TEST(full_ring_in_a_unit_fails_the_row_and_keeps_the_rest)
{
    open_with(QWP_FULL_FAIL, 0);
    int64_t n = 0;
    while (n < 64 * 1024 / ROW_BYTES - 1) {
        ck_assert_int_eq(put(n++), QWP_OK);
    }
    begin();
    ck_assert_int_eq(put(n), QWP_OK);
    ck_assert_int_eq(put(n + 1), QWP_AGAIN);
    for (int64_t i = 0; i < n; i++) {
        expect_row(i, 0);
    }
    reader_release(&reader, (uint64_t)n);
    ck_assert_int_eq(put(n + 1), QWP_OK);
    publish();
    expect_row(n, QWP_RECORD_MORE);
    expect_row(n + 1, 0);
    reader_close(&reader);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("unit");
    TCase *tcase = tcase_create("unit");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, unit_is_seen_when_published_and_all_at_once);
    tcase_add_test(tcase, unit_of_one_and_of_none_are_fine);
    tcase_add_test(tcase, unit_aborted_leaves_nothing);
    tcase_add_test(tcase, unit_out_of_order_calls_are_told);
    tcase_add_test(tcase, unit_row_that_fails_is_left_out);
    tcase_add_test(tcase, unit_larger_than_the_bound_is_refused_row_by_row);
    tcase_add_test(tcase, full_ring_fails_at_once_and_goes_on_when_there_is_room);
    tcase_add_test(tcase, full_ring_waits_up_to_the_deadline);
    tcase_add_test(tcase, full_ring_wait_ends_when_the_reader_frees_room);
    tcase_add_test(tcase, full_ring_drops_and_counts);
    tcase_add_test(tcase, full_ring_drops_a_unit_whole);
    tcase_add_test(tcase, full_ring_in_a_unit_fails_the_row_and_keeps_the_rest);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

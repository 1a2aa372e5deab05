/* Every allocation of the library fails once, and each time the call that needed it says QWP_NOMEM
 * and leaves everything as it was: the same call then works, and so do all that follow.
 *
 * Method: malloc and its kin are wrapped by the linker; the k-th call fails, for k = 1, 2, ...
 * until none is left to fail. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/clients/client_fixture.h"

static long fail_in; /* allocations until one fails; 0: none does */

static bool fails_now(void)
{
    return fail_in > 0 && --fail_in == 0;
}

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    return fails_now() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
    return fails_now() ? NULL : __real_calloc(count, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails_now() ? NULL : __real_realloc(old, bytes);
}

/* ---- the steps of a producer's life; Check allocates, so none of it in here ---- */

static struct qwp_table *tables[20];
static const struct qwp_layout *layout;
static uint32_t handles[200];
static uint32_t rows;

static enum qwp_result open_producer(void)
{
    const struct qwp_producer_options options = {.dir = fixture_dir, .ring_bytes = 256 * 1024};
    return qwp_producer_open(&fixture_producer, &options, &fixture_err);
}

static enum qwp_result define_tables(void)
{
    const struct qwp_column columns[] = {
        {"a", QWP_LONG, 0}, {"s", QWP_SYMBOL, 0}, {"v", QWP_VARCHAR, 0}};
    for (int i = 0; i < 20; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", i);
        const enum qwp_result result =
            qwp_table_define(fixture_producer, name, columns, 3, &tables[i], &fixture_err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return QWP_OK;
}

static enum qwp_result extend_table(void)
{
    for (int i = 0; i < 30; i++) {
        char name[16];
        snprintf(name, sizeof name, "more%d", i);
        uint32_t index = 0;
        const enum qwp_result result = qwp_table_column(
            tables[0], &(struct qwp_column){name, QWP_LONG, 0}, &index, &fixture_err);
        if (result != QWP_OK || index != 3 + (uint32_t)i) {
            return result == QWP_OK ? QWP_CORRUPT : result;
        }
    }
    return QWP_OK;
}

static enum qwp_result intern_symbols(void)
{
    for (uint32_t i = 0; i < 200; i++) {
        char text[32];
        const int len = snprintf(text, sizeof text, "symbol %u", i);
        const enum qwp_result result =
            qwp_symbol_intern(fixture_producer, text, (size_t)len, &handles[i], &fixture_err);
        if (result != QWP_OK || handles[i] != i) {
            return result == QWP_OK ? QWP_CORRUPT : result;
        }
    }
    return QWP_OK;
}

static enum qwp_result define_layout(void)
{
    return qwp_layout_define(tables[0], (uint32_t[]){1, 0}, 2, QWP_AT_SERVER, &layout,
                             &fixture_err);
}

static enum qwp_result write_row(enum qwp_at at, const char *symbol)
{
    struct qwp_row *row = qwp_row_begin(tables[0]);
    qwp_row_varchar(row, 2, "text", 4);
    qwp_row_symbol(row, 1, symbol, strlen(symbol)); /* no memory: travels as text */
    qwp_row_long(row, 32, 1);
    const enum qwp_result result = at == QWP_AT_NS   ? qwp_row_at_ns(row, 1, &fixture_err)
                                   : at == QWP_AT_US ? qwp_row_at_us(row, 1, &fixture_err)
                                                     : qwp_row_at_now(row, &fixture_err);
    rows += result == QWP_OK;
    return result;
}

static enum qwp_result write_ns(void)
{
    return write_row(QWP_AT_NS, "new one");
}

static enum qwp_result write_us(void)
{
    return write_row(QWP_AT_US, "symbol 7");
}

static enum qwp_result write_now(void)
{
    return write_row(QWP_AT_SERVER, "a symbol that is longer than 24 bytes");
}

static enum qwp_result write_hot(void)
{
    void *row;
    const enum qwp_result result = qwp_row_reserve(fixture_producer, layout, 0, &row);
    if (result != QWP_OK) {
        return result;
    }
    qwp_reserved_null(row, 0);
    qwp_reserved_null(row, 1);
    rows++;
    return qwp_row_publish(fixture_producer);
}

static enum qwp_result (*const steps[])(void) = {
    open_producer, define_tables, extend_table, intern_symbols, define_layout,
    write_ns,      write_us,      write_now,    write_hot,
};

/* One life in which the k-th allocation fails; false: there were fewer. */
static bool live(long k)
{
    rows = 0;
    fail_in = k;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        enum qwp_result result = steps[i]();
        if (result != QWP_OK) {
            const long left = fail_in;
            fail_in = 0;
            ck_assert_int_eq(left, 0);
            ck_assert_msg(result == QWP_NOMEM, "step %zu, allocation %ld: %s: %s", i, k,
                          qwp_result_name(result), fixture_err.text);
            result = steps[i]();
        }
        if (result == QWP_OK) {
            continue;
        }
        fail_in = 0;
        ck_assert_msg(result == QWP_OK, "step %zu after allocation %ld failed: %s: %s", i, k,
                      qwp_result_name(result), fixture_err.text);
    }
    const bool failed = fail_in == 0;
    fail_in = 0;
    struct reader reader;
    reader_open(&reader);
    struct record record;
    uint32_t read = 0;
    while (reader_next(&reader, &record)) {
        read++;
    }
    ck_assert_uint_eq(read, rows);
    ck_assert_uint_eq(read, 4);
    reader_close(&reader);
    return failed;
}

START_TEST(every_allocation_may_fail_once)
{
    long k = 1;
    for (; live(k); k++) {
        fixture_teardown();
        fixture_setup();
    }
    printf("%ld allocations\n", k - 1);
    ck_assert_int_gt(k, 50);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nomem");
    TCase *tcase = tcase_create("nomem");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_test(tcase, every_allocation_may_fail_once);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

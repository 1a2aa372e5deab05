/* What a chunk may not hold is refused wherever it stands, and nothing of it is published; that
 * what it may hold comes through is tests/e2e/test_chunks.py's. */
#include <string.h>

#include "core/wire/qwp_wire.h"
#include "tests/clients/client_fixture.h"

enum { SYMBOL, HASH, COUNT, ROWS = 300, DICTIONARY = 3 };

static const struct qwp_layout *layout;
static uint32_t handles[DICTIONARY];
static uint32_t indexes[ROWS];
static uint64_t hashes[ROWS];
static int64_t times[ROWS];
static uint8_t validity[(ROWS + 7) / 8];

static void open_ring(void)
{
    static const struct qwp_column columns[] = {{"symbol", QWP_SYMBOL, 0},
                                                {"hash", QWP_GEOHASH, 5}};
    struct qwp_table *table;
    fixture_open(NULL);
    ck_assert_int_eq(qwp_table_define(fixture_producer, "t", columns, COUNT, &table, NULL), QWP_OK);
    ck_assert_int_eq(qwp_layout_define(table, (uint32_t[]){SYMBOL, HASH}, COUNT, QWP_AT_NS, &layout,
                                       &fixture_err),
                     QWP_OK);
    for (uint32_t i = 0; i < DICTIONARY; i++) {
        ck_assert_int_eq(
            qwp_symbol_intern(fixture_producer, (char[]){(char)('a' + i)}, 1, &handles[i], NULL),
            QWP_OK);
    }
    memset(validity, 0xff, sizeof validity);
    validity[0] = 0xfe; /* the first row is null */
}

/* With or without a dictionary and a null. */
static enum qwp_result write_chunk(bool dictionary, bool null)
{
    const struct qwp_chunk_column columns[COUNT] = {
        {.values = indexes,
         .validity = null ? validity : NULL,
         .handles = dictionary ? handles : NULL,
         .handle_count = DICTIONARY},
        {.values = hashes, .validity = null ? validity : NULL},
    };
    return qwp_chunk_write(fixture_producer, layout, columns, times, 0, ROWS, NULL, &fixture_err);
}

static void expect_refused(bool dictionary, bool null, const char *text)
{
    const uint64_t before = qwp_position_published(fixture_producer);
    expect(write_chunk(dictionary, null), QWP_INVALID, text);
    ck_assert_uint_eq(qwp_position_published(fixture_producer), before);
}

START_TEST(chunk_bad_values_are_refused)
{
    open_ring();
    const bool null = _i != 0;
    ck_assert_int_eq(write_chunk(true, null), QWP_OK);
    for (uint32_t row = 1; row < ROWS; row++) {
        indexes[row] = DICTIONARY;
        expect_refused(true, null, "an index beyond its dictionary");
        expect_refused(false, null, "a symbol handle that this producer did not hand out");
        indexes[row] = DICTIONARY - 1;
        hashes[row] = 32;
        expect_refused(true, null, "beyond its precision");
        hashes[row] = 31;
        times[row] = -1;
        expect_refused(true, null, "out of the server's range");
        times[row] = QWP_DESIGNATED_NS_MAX + 1;
        expect_refused(true, null, "out of the server's range");
        times[row] = QWP_DESIGNATED_NS_MAX;
    }
    ck_assert_int_eq(write_chunk(true, null), QWP_OK);
    ck_assert_int_eq(write_chunk(false, null), QWP_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("chunk");
    TCase *tcase = tcase_create("chunk");
    tcase_add_checked_fixture(tcase, fixture_setup, fixture_teardown);
    tcase_add_loop_test(tcase, chunk_bad_values_are_refused, 0, 2);
    suite_add_tcase(suite, tcase);
    return fixture_run(suite);
}

/* Aim: the fast CRC is the CRC.
 * Method: known values, and the CPU's way against the table at every length, start and cut. */
#include "core/qwp_crc32c.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 40000 };
static unsigned char bytes[BYTES];

static void setup(void)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < BYTES; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (unsigned char)(seed >> 40);
    }
}

START_TEST(crc32c_known_values)
{
    static const unsigned char zeros[32];
    unsigned char ones[32];
    memset(ones, 0xff, sizeof ones);
    ck_assert_uint_eq(qwp_crc32c(0, "", 0), 0);
    ck_assert_uint_eq(qwp_crc32c(0, "123456789", 9), 0xe3069283);
    ck_assert_uint_eq(qwp_crc32c(0, zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
    ck_assert_uint_eq(qwp_crc32c(0, ones, 32), 0x62a8ab43);
    ck_assert_uint_eq(qwp_crc32c_portable(0, zeros, 32), 0x8a9136aa);
}
END_TEST

START_TEST(crc32c_any_length_and_start)
{
    for (size_t len = 0; len < 2400; len++) {
        const size_t from = len % 17;
        ck_assert_uint_eq(qwp_crc32c(7, bytes + from, len),
                          qwp_crc32c_portable(7, bytes + from, len));
    }
    for (size_t len = 2400; len < BYTES - 16; len += 97) {
        ck_assert_uint_eq(qwp_crc32c(0, bytes + 3, len), qwp_crc32c_portable(0, bytes + 3, len));
    }
}
END_TEST

START_TEST(crc32c_in_two_parts_is_the_same)
{
    const uint32_t whole = qwp_crc32c(0, bytes, BYTES);
    for (size_t cut = 0; cut <= BYTES; cut += 61) {
        ck_assert_uint_eq(qwp_crc32c(qwp_crc32c(0, bytes, cut), bytes + cut, BYTES - cut), whole);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("crc32c");
    TCase *tcase = tcase_create("crc32c");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, crc32c_known_values);
    tcase_add_test(tcase, crc32c_any_length_and_start);
    tcase_add_test(tcase, crc32c_in_two_parts_is_the_same);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

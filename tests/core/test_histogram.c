/* Aim: a histogram's quantiles are right to the width of a bucket, over the whole range.
 * Method: every bucket's edges; known distributions. */
#include "core/qwp_histogram.h"

#include <check.h>
#include <stdlib.h>

static struct qwp_histogram histogram;

START_TEST(histogram_buckets_grow_and_stay_in_bounds)
{
    uint32_t last = 0;
    for (int64_t ns = 0; ns < 1 << 20; ns++) {
        const uint32_t bucket = qwp_histogram_bucket(ns);
        if (bucket != last && bucket != last + 1) { /* an assertion each would take seconds */
            ck_abort_msg("%lld ns: bucket %u behind %u", (long long)ns, bucket, last);
        }
        last = bucket;
    }
    for (int shift = 20; shift < 63; shift++) {
        ck_assert_uint_eq(qwp_histogram_bucket(INT64_C(1) << shift),
                          qwp_histogram_bucket((INT64_C(1) << shift) - 1) + 1);
    }
    ck_assert_uint_lt(qwp_histogram_bucket(INT64_MAX), QWP_HISTOGRAM_BUCKETS);
    ck_assert_uint_eq(qwp_histogram_bucket(-5), 0);
}
END_TEST

START_TEST(histogram_quantiles_are_within_a_bucket)
{
    for (int64_t i = 1; i <= 100000; i++) {
        qwp_histogram_add(&histogram, i * 1000);
    }
    static const double parts[] = {0.01, 0.5, 0.9, 0.99, 0.999};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const double exact = parts[i] * 1e8;
        const double found = (double)qwp_histogram_quantile(&histogram, parts[i]);
        ck_assert_msg(found >= exact && found <= exact * 1.04, "%f: %f", exact, found);
    }
    ck_assert_int_eq(qwp_histogram_quantile(&histogram, 1), 100000000);
}
END_TEST

START_TEST(histogram_of_extremes_is_exact)
{
    ck_assert_int_eq(qwp_histogram_quantile(&histogram, 0.5), 0);
    qwp_histogram_add(&histogram, -1);
    ck_assert_int_eq(qwp_histogram_quantile(&histogram, 0.5), 0);
    qwp_histogram_add(&histogram, INT64_MAX);
    ck_assert_int_eq(qwp_histogram_quantile(&histogram, 1), INT64_MAX);
    ck_assert_int_eq(histogram.max_ns, INT64_MAX);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("histogram");
    TCase *tcase = tcase_create("histogram");
    tcase_add_test(tcase, histogram_buckets_grow_and_stay_in_bounds);
    tcase_add_test(tcase, histogram_quantiles_are_within_a_bucket);
    tcase_add_test(tcase, histogram_of_extremes_is_exact);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: durations of frames land in the right bucket, and are never shorter than the truth.
 * Method: known times; random histories against an exact account of every row. */
#include "sidecar/qwp_latency.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/qwp_clock.h"

static struct qwp_control_header page;
static struct qwp_latency latency;

static uint64_t total(const struct qwp_control_latency *histogram)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < QWP_CONTROL_LATENCY_BUCKETS; i++) {
        sum += histogram->buckets[i];
    }
    return sum;
}

START_TEST(latency_of_a_frame_is_counted_in_three_histograms)
{
    qwp_latency_init(&latency, &page, 7, 7, 0);
    ck_assert_int_eq(page.oldest_ns, 0);
    qwp_latency_stored(&latency, 7, 1000000, 1010000);
    ck_assert_int_eq(page.oldest_ns, 1010000);
    ck_assert_uint_eq(page.seen_to_stored.buckets[0], 1); /* 10 us: an edge belongs to its bucket */
    qwp_latency_acked(&latency, 7, 2000000);
    ck_assert_uint_eq(total(&page.stored_to_acked), 0);
    qwp_latency_acked(&latency, 8, 2010000);
    ck_assert_uint_eq(page.stored_to_acked.buckets[6], 1); /* 1 ms */
    ck_assert_uint_eq(page.seen_to_acked.buckets[7], 1);
    ck_assert_uint_eq(page.stored_to_acked.sum_ns, 1000000);
    ck_assert_uint_eq(page.seen_to_acked.sum_ns, 1010000);
    ck_assert_int_eq(page.oldest_ns, 0);
    for (uint32_t i = 1; i < QWP_CONTROL_LATENCY_BUCKETS; i++) {
        ck_assert(qwp_latency_bucket_ns(i) > qwp_latency_bucket_ns(i - 1));
    }
    ck_assert(qwp_latency_bucket_ns(QWP_CONTROL_LATENCY_BUCKETS - 1) == QWP_NEVER_NS);
}
END_TEST

START_TEST(latency_of_recovered_frames_is_age_only)
{
    qwp_latency_init(&latency, &page, 9, 2, 500);
    ck_assert_int_eq(page.oldest_ns, 500);
    qwp_latency_acked(&latency, 9, 900);
    ck_assert_int_eq(page.oldest_ns, 0);
    ck_assert_uint_eq(total(&page.stored_to_acked), 0);
}
END_TEST

START_TEST(latency_backlog_loses_no_frame_and_shortens_none)
{
    enum { FRAMES = 10000, ACKED_NS = 1000000000 };
    qwp_latency_init(&latency, &page, 0, 0, 0);
    uint64_t exact_ns = 0;
    for (uint64_t fsn = 0; fsn < FRAMES; fsn++) {
        qwp_latency_stored(&latency, fsn, (int64_t)fsn * 1000, (int64_t)fsn * 1000 + 1);
        exact_ns += ACKED_NS - fsn * 1000 - 1;
        ck_assert_int_eq(page.oldest_ns, 1);
    }
    qwp_latency_acked(&latency, FRAMES, ACKED_NS);
    ck_assert_uint_eq(total(&page.stored_to_acked), FRAMES);
    ck_assert_uint_ge(page.stored_to_acked.sum_ns, exact_ns);
}
END_TEST

/* Rows are single positions here; seen[] is the truth. */
START_TEST(sights_are_never_later_than_the_truth)
{
    enum { ROWS = 2000 };
    static int64_t seen[ROWS];
    const unsigned seed = 20260101;
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 50; round++) {
        struct qwp_sights sights = {0};
        uint64_t head = 0, tail = 0;
        for (int64_t now = 1; tail < ROWS - 20; now++) {
            if (rand() % 2 == 0) {
                const uint64_t from = tail;
                tail += 1 + (uint64_t)(rand() % 8);
                for (uint64_t row = from; row < tail; row++) {
                    seen[row] = now;
                }
                qwp_sights_saw(&sights, head, from, now);
            } else if (head < tail) {
                if (sights.oldest_ns == 0 || sights.oldest_ns > seen[head]) {
                    ck_abort_msg("row %d seen at %d", (int)head, (int)seen[head]);
                }
                head += 1 + (uint64_t)rand() % (tail - head);
                qwp_sights_took(&sights, head, tail);
            }
            if ((head == tail) != (sights.oldest_ns == 0)) { /* an assertion each takes seconds */
                ck_abort_msg("head %d tail %d", (int)head, (int)tail);
            }
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("latency");
    TCase *tcase = tcase_create("latency");
    tcase_add_test(tcase, latency_of_a_frame_is_counted_in_three_histograms);
    tcase_add_test(tcase, latency_of_recovered_frames_is_age_only);
    tcase_add_test(tcase, latency_backlog_loses_no_frame_and_shortens_none);
    tcase_add_test(tcase, sights_are_never_later_than_the_truth);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

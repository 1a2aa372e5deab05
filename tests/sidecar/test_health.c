/* Aim: alive and ready mean what they say. Method: snapshots at made-up times. */
#include "sidecar/qwp_health.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_http_request.h"

static const int64_t s = QWP_NS_PER_S;
static struct qwp_snapshot now;

static void running(void)
{
    now = (struct qwp_snapshot){.state = QWP_SIDECAR_RUNNING, .beat_ns = 1000 * s};
}

#define READY(asked, at) ck_assert(qwp_health_ready(&now, asked, at).ok)
#define UNREADY(asked, at, words)                                                                  \
    do {                                                                                           \
        const struct qwp_health health = qwp_health_ready(&now, asked, at);                        \
        ck_assert(!health.ok);                                                                     \
        ck_assert_msg(strstr(health.text, words) != NULL, "%s", health.text);                      \
    } while (0)

START_TEST(ready_with_nothing_to_do_whatever_the_connection)
{
    running();
    READY(0, 5000 * s);
    now.connection = QWP_CONNECTION_DOWN;
    now.progress_ns = 10 * s; /* long ago, and nothing waits */
    READY(0, 5000 * s);
}
END_TEST

START_TEST(unready_once_frames_wait_and_none_is_acknowledged)
{
    running();
    snprintf(now.last_error, sizeof now.last_error, "connection refused");
    now.counters[QWP_SIDECAR_FRAMES_WAITING] = 7;
    now.oldest_ns = 2000 * s;
    now.progress_ns = 1000 * s; /* before they came */
    READY(0, (2000 + QWP_HEALTH_STUCK_S) * s - 1);
    UNREADY(0, (2000 + QWP_HEALTH_STUCK_S) * s, "7 frames wait");
    UNREADY(0, (2000 + QWP_HEALTH_STUCK_S) * s, "last error: connection refused");
    now.progress_ns = 2020 * s; /* slow is not stuck */
    READY(0, (2000 + QWP_HEALTH_STUCK_S) * s);
    ck_assert(qwp_health_live(&now, 0, 9000 * s).ok); /* an outage is not ours to die of */
}
END_TEST

START_TEST(unready_with_reason_when_refused_blocked_or_closing)
{
    running();
    now.credentials_refused = true;
    snprintf(now.endpoint, sizeof now.endpoint, "db:9000");
    UNREADY(0, 1, "db:9000 refuses the credentials");
    running();
    now.store_state = QWP_STORE_FULL; /* full is an outage's matter, told by what waits */
    READY(0, 1);
    now.store_state = QWP_STORE_BLOCKED;
    snprintf(now.store_error, sizeof now.store_error, "No space left");
    UNREADY(0, 1, "No space left");
    running();
    now.state = QWP_SIDECAR_CLOSING;
    UNREADY(0, 1, "closing");
}
END_TEST

START_TEST(dead_only_when_asked_and_silent_for_long)
{
    running();
    const int64_t asked = now.beat_ns + 1;
    ck_assert(qwp_health_live(&now, 0, 100000 * s).ok); /* asleep, nobody asked */
    ck_assert(qwp_health_live(&now, now.beat_ns - 1, 100000 * s).ok);
    ck_assert(qwp_health_live(&now, asked, asked + QWP_HEALTH_DEAD_S * s - 1).ok);
    ck_assert(!qwp_health_live(&now, asked, asked + QWP_HEALTH_DEAD_S * s).ok);
    READY(asked, asked + QWP_HEALTH_STUCK_S * s - 1);
    UNREADY(asked, asked + QWP_HEALTH_STUCK_S * s, "stood still");
}
END_TEST

static int judge(const char *head)
{
    struct qwp_http_request request = {0};
    return qwp_http_request_read(&request, head, strlen(head));
}

START_TEST(request_is_judged_once_it_is_whole)
{
    static const char good[] = "GET /metrics?a=b HTTP/1.1\r\nHost: x\r\nX:\ty z \r\n\r\n";
    struct qwp_http_request request = {0};
    for (size_t len = 0; len < sizeof good - 1; len++) {
        ck_assert_int_eq(qwp_http_request_read(&request, good, len), 0);
    }
    ck_assert_int_eq(qwp_http_request_read(&request, good, sizeof good - 1), 200);
    ck_assert_str_eq(request.path, "/metrics");
    ck_assert(!request.head_only);
    ck_assert_int_eq(judge("HEAD / HTTP/1.0\r\n\r\n"), 200);
}
END_TEST

START_TEST(request_that_is_not_exactly_one_is_refused)
{
    static const struct {
        int status;
        const char *head;
    } cases[] = {
        {400, "\r\n\r\n"},
        {400, "GET\r\n\r\n"},
        {400, "GET /\r\n\r\n"},
        {400, "GET  / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET / HTTP/1.1 \r\nHost: x\r\n\r\n"},
        {400, "G\tT / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET x HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET http://x/ HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /\x80 HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET /\x01 HTTP/1.1\r\nHost: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\nHost: x\n\n"},
        {400, "GET / HTTP/1.1\nHost: x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: x\r\nhost: y\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost : x\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: x\r\n: y\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: x\rY: z\r\n\r\n"},
        {405, "POST / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {405, "get / HTTP/1.1\r\nHost: x\r\n\r\n"},
        {413, "GET / HTTP/1.1\r\nHost: x\r\ntransfer-encoding: chunked\r\n\r\n"},
        {413, "GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 00\r\n\r\n"},
        {505, "GET / HTTP/2.0\r\nHost: x\r\n\r\n"},
        {400, "GET / http/1.1\r\nHost: x\r\n\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ck_assert_msg(judge(cases[i].head) == cases[i].status, "case %zu: %d", i,
                      judge(cases[i].head));
    }
}
END_TEST

START_TEST(request_of_noise_stays_within_its_bytes)
{
    const unsigned seed = 20260102;
    printf("seed %u\n", seed);
    srand(seed);
    for (int round = 0; round < 200000; round++) {
        static const char some[] = "GET /x? HTTP/1.1\r\n\r\n: \t\nHost:\r\n\r\n";
        const size_t len = (size_t)rand() % 64;
        char *noise = malloc(len + 1); /* so that a sanitizer sees the end */
        for (size_t i = 0; i < len; i++) {
            noise[i] = rand() % 8 == 0 ? (char)rand() : some[(size_t)rand() % (sizeof some - 1)];
        }
        struct qwp_http_request request = {0};
        const int status = qwp_http_request_read(&request, noise, len);
        ck_assert(status == 0 || (status >= 200 && status <= 505));
        free(noise);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("health");
    TCase *tcase = tcase_create("health");
    tcase_add_test(tcase, ready_with_nothing_to_do_whatever_the_connection);
    tcase_add_test(tcase, unready_once_frames_wait_and_none_is_acknowledged);
    tcase_add_test(tcase, unready_with_reason_when_refused_blocked_or_closing);
    tcase_add_test(tcase, dead_only_when_asked_and_silent_for_long);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("request");
    tcase_set_timeout(tcase, 60);
    tcase_add_test(tcase, request_is_judged_once_it_is_whole);
    tcase_add_test(tcase, request_that_is_not_exactly_one_is_refused);
    tcase_add_test(tcase, request_of_noise_stays_within_its_bytes);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

/* Aim: names become addresses without blocking the loop, and a look-up can be dropped at any time.
 * Method: text addresses, the one name every host knows, and a name that cannot exist. */
#include "transport/qwp_resolve.h"

#include <arpa/inet.h>
#include <check.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_clock.h"
#include "tests/transport/loop_kind.h"

struct seen {
    int calls;
    bool failed;
    struct qwp_addresses addresses;
    struct qwp_error err;
};

static void on_resolved(void *owner, const struct qwp_addresses *addresses,
                        const struct qwp_error *err)
{
    struct seen *seen = owner;
    seen->calls++;
    seen->failed = addresses == NULL;
    seen->err = *err;
    if (addresses != NULL) {
        seen->addresses = *addresses;
    }
}

static struct qwp_loop *loop;
static struct qwp_resolver *resolver;
static struct seen seen;

static void setup(void)
{
    seen = (struct seen){0};
    ck_assert_int_eq(qwp_loop_open(&loop, &(struct qwp_loop_options){.kind = loop_kind()}, NULL),
                     QWP_OK);
    ck_assert_int_eq(qwp_resolver_open(&resolver, loop, on_resolved, &seen, NULL), QWP_OK);
}

static void teardown(void)
{
    qwp_resolver_close(resolver);
    qwp_loop_close(loop);
}

static void wait_for_answer(void)
{
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + INT64_C(20) * QWP_NS_PER_S;
    while (seen.calls == 0 && qwp_clock_monotonic_ns() < deadline_ns) {
        (void)qwp_loop_run(loop, deadline_ns);
    }
    ck_assert_int_eq(seen.calls, 1);
}

START_TEST(resolve_text_address_answers_at_once)
{
    ck_assert_int_eq(qwp_resolve_start(resolver, "127.0.0.1", 9000, NULL), QWP_OK);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_uint_eq(seen.addresses.count, 1);
    struct sockaddr_in v4;
    memcpy(&v4, &seen.addresses.list[0].storage, sizeof v4);
    ck_assert_int_eq(v4.sin_family, AF_INET);
    ck_assert_int_eq(ntohs(v4.sin_port), 9000);
    ck_assert_int_eq(qwp_resolve_start(resolver, "::1", 1, NULL), QWP_OK);
    ck_assert_int_eq(seen.addresses.list[0].storage.ss_family, AF_INET6);
}
END_TEST

START_TEST(resolve_localhost_answers_through_the_loop)
{
    ck_assert_int_eq(qwp_resolve_start(resolver, "localhost", 9000, NULL), QWP_OK);
    wait_for_answer();
    ck_assert_msg(!seen.failed, "%s", seen.err.text);
    ck_assert_uint_ge(seen.addresses.count, 1);
}
END_TEST

START_TEST(resolve_impossible_name_fails_with_its_name)
{
    ck_assert_int_eq(qwp_resolve_start(resolver, "no such host.invalid", 9000, NULL), QWP_OK);
    wait_for_answer();
    ck_assert(seen.failed);
    ck_assert_ptr_nonnull(strstr(seen.err.text, "no such host.invalid"));
}
END_TEST

START_TEST(resolve_dropped_lookup_says_nothing)
{
    ck_assert_int_eq(qwp_resolve_start(resolver, "localhost", 9000, NULL), QWP_OK);
    ck_assert_int_eq(qwp_resolve_start(resolver, "127.0.0.1", 9000, NULL), QWP_OK);
    ck_assert_int_eq(seen.calls, 1);
    ck_assert_int_eq(qwp_resolve_start(resolver, "localhost", 9000, NULL), QWP_OK);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("resolve");
    TCase *tcase = tcase_create("resolve");
    tcase_set_timeout(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, resolve_text_address_answers_at_once);
    tcase_add_test(tcase, resolve_localhost_answers_through_the_loop);
    tcase_add_test(tcase, resolve_impossible_name_fails_with_its_name);
    tcase_add_test(tcase, resolve_dropped_lookup_says_nothing);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

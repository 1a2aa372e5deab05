/* check: the part of the Check library's interface that our tests use, in one header.
 *
 * For cross builds, where Check is not to be had for the target. One case, one child process; the
 * first failed assertion ends it. */
#ifndef CHECK_H
#define CHECK_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum print_output { CK_SILENT, CK_MINIMAL, CK_NORMAL, CK_VERBOSE, CK_ENV };
enum { SHIM_TESTS_MAX = 256, SHIM_FIXTURES_MAX = 8, SHIM_CASES_MAX = 16, SHIM_SLOWNESS = 20 };

typedef void (*SFun)(void);
typedef struct {
    void (*run)(int _i);
    const char *name;
} TTest;
typedef struct {
    struct {
        const TTest *test;
        int first;
        int end;
    } tests[SHIM_TESTS_MAX];
    size_t test_count;
    struct {
        SFun setup;
        SFun teardown;
        bool checked;
    } fixtures[SHIM_FIXTURES_MAX];
    size_t fixture_count;
    double timeout_s;
} TCase;
typedef struct {
    const char *name;
    TCase *cases[SHIM_CASES_MAX];
    size_t case_count;
} Suite;
typedef struct {
    Suite *suite;
    int failed;
    int run;
} SRunner;

#define START_TEST(name)                                                                           \
    static void name##_body(int _i);                                                               \
    static const TTest name##_test = {name##_body, #name};                                         \
    static const TTest *const name = &name##_test;                                                 \
    static void name##_body(int _i __attribute__((unused)))
#define END_TEST

__attribute__((noreturn)) static inline void shim_fail(void)
{
    fputc('\n', stdout);
    fflush(stdout);
    _exit(1);
}

#define ck_abort_msg(...)                                                                          \
    do {                                                                                           \
        printf("%s:%d: ", __FILE__, __LINE__);                                                     \
        printf(__VA_ARGS__);                                                                       \
        shim_fail();                                                                               \
    } while (0)
#define ck_assert_msg(condition, ...)                                                              \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            ck_abort_msg(__VA_ARGS__);                                                             \
        }                                                                                          \
    } while (0)
#define ck_assert(condition) ck_assert_msg(condition, "%s", #condition)

#define SHIM_COMPARE(type, format, a, op, b)                                                       \
    do {                                                                                           \
        const type a_ = (a);                                                                       \
        const type b_ = (b);                                                                       \
        ck_assert_msg(a_ op b_, "%s " #op " %s: " format ", " format, #a, #b, a_, b_);             \
    } while (0)
#define ck_assert_int_eq(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, ==, b)
#define ck_assert_int_ne(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, !=, b)
#define ck_assert_int_lt(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, <, b)
#define ck_assert_int_le(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, <=, b)
#define ck_assert_int_gt(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, >, b)
#define ck_assert_int_ge(a, b)   SHIM_COMPARE(intmax_t, "%jd", a, >=, b)
#define ck_assert_uint_eq(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, ==, b)
#define ck_assert_uint_ne(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, !=, b)
#define ck_assert_uint_lt(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, <, b)
#define ck_assert_uint_le(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, <=, b)
#define ck_assert_uint_gt(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, >, b)
#define ck_assert_uint_ge(a, b)  SHIM_COMPARE(uintmax_t, "%ju", a, >=, b)
#define ck_assert_ptr_eq(a, b)   SHIM_COMPARE(void *, "%p", (void *)(a), ==, (void *)(b))
#define ck_assert_ptr_ne(a, b)   SHIM_COMPARE(void *, "%p", (void *)(a), !=, (void *)(b))
#define ck_assert_ptr_null(a)    ck_assert_msg((a) == NULL, "%s is not NULL", #a)
#define ck_assert_ptr_nonnull(a) ck_assert_msg((a) != NULL, "%s is NULL", #a)
#define ck_assert_str_eq(a, b)                                                                     \
    do {                                                                                           \
        const char *a_ = (a);                                                                      \
        const char *b_ = (b);                                                                      \
        ck_assert_msg(strcmp(a_, b_) == 0, "%s == %s: '%s', '%s'", #a, #b, a_, b_);                \
    } while (0)
#define ck_assert_str_ne(a, b)      ck_assert_msg(strcmp(a, b) != 0, "%s != %s", #a, #b)
#define ck_assert_mem_eq(a, b, len) ck_assert_msg(memcmp(a, b, len) == 0, "%s == %s", #a, #b)

static inline Suite *suite_create(const char *name)
{
    Suite *suite = calloc(1, sizeof *suite);
    suite->name = name;
    return suite;
}

static inline TCase *tcase_create(const char *name)
{
    (void)name;
    TCase *tcase = calloc(1, sizeof *tcase);
    tcase->timeout_s = 4;
    return tcase;
}

static inline void suite_add_tcase(Suite *suite, TCase *tcase)
{
    suite->cases[suite->case_count++] = tcase;
}

static inline void tcase_set_timeout(TCase *tcase, double timeout_s)
{
    tcase->timeout_s = timeout_s;
}

static inline void tcase_add_loop_test(TCase *tcase, const TTest *test, int first, int end)
{
    tcase->tests[tcase->test_count].test = test;
    tcase->tests[tcase->test_count].first = first;
    tcase->tests[tcase->test_count++].end = end;
}

#define tcase_add_test(tcase, test) tcase_add_loop_test(tcase, test, 0, 1)

static inline void shim_add_fixture(TCase *tcase, SFun setup, SFun teardown, bool checked)
{
    tcase->fixtures[tcase->fixture_count].setup = setup;
    tcase->fixtures[tcase->fixture_count].teardown = teardown;
    tcase->fixtures[tcase->fixture_count++].checked = checked;
}

#define tcase_add_checked_fixture(tcase, setup, teardown)                                          \
    shim_add_fixture(tcase, setup, teardown, true)
#define tcase_add_unchecked_fixture(tcase, setup, teardown)                                        \
    shim_add_fixture(tcase, setup, teardown, false)

static inline void shim_fixtures(const TCase *tcase, bool checked, bool begin)
{
    for (size_t i = 0; i < tcase->fixture_count; i++) {
        const size_t at = begin ? i : tcase->fixture_count - 1 - i;
        const SFun fn = begin ? tcase->fixtures[at].setup : tcase->fixtures[at].teardown;
        if (tcase->fixtures[at].checked == checked && fn != NULL) {
            fn();
        }
    }
}

/* Named in $QWP_SKIP_CASES: what an emulator cannot do. */
static inline bool shim_is_skipped(const TTest *test)
{
    const char *list = getenv("QWP_SKIP_CASES");
    return list != NULL && strstr(list, test->name) != NULL;
}

static inline bool shim_run_one(const TCase *tcase, const TTest *test, int i)
{
    int status = 0;
    if (shim_is_skipped(test)) {
        printf("skipped: %s\n", test->name);
        return true;
    }
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        alarm((unsigned)(tcase->timeout_s * SHIM_SLOWNESS) + 1);
        shim_fixtures(tcase, true, true);
        test->run(i);
        shim_fixtures(tcase, true, false);
        exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
        printf("FAILED: %s[%d], status 0x%x\n", test->name, i, (unsigned)status);
        return false;
    }
    return true;
}

static inline void shim_run_case(SRunner *runner, const TCase *tcase)
{
    shim_fixtures(tcase, false, true);
    for (size_t t = 0; t < tcase->test_count; t++) {
        for (int i = tcase->tests[t].first; i < tcase->tests[t].end; i++) {
            runner->failed += shim_run_one(tcase, tcase->tests[t].test, i) ? 0 : 1;
            runner->run++;
        }
    }
    shim_fixtures(tcase, false, false);
}

static inline SRunner *srunner_create(Suite *suite)
{
    SRunner *runner = calloc(1, sizeof *runner);
    runner->suite = suite;
    return runner;
}

static inline void srunner_run_all(SRunner *runner, enum print_output mode)
{
    (void)mode;
    for (size_t i = 0; i < runner->suite->case_count; i++) {
        shim_run_case(runner, runner->suite->cases[i]);
    }
    printf("%s: %d checks, %d failures\n", runner->suite->name, runner->run, runner->failed);
}

static inline int srunner_ntests_failed(SRunner *runner)
{
    return runner->failed;
}

static inline void srunner_free(SRunner *runner)
{
    for (size_t i = 0; i < runner->suite->case_count; i++) {
        free(runner->suite->cases[i]);
    }
    free(runner->suite);
    free(runner);
}

#endif

/* Aim: the command line is read as --help says, mistakes are named, secrets are not shown.
 * Method: short argument lists, one mistake at a time. */
#include "sidecar/qwp_options.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_log.h"

enum { WORDS_MAX = 8 };

static enum qwp_result parse(struct qwp_options *options, enum qwp_command command,
                             const char *const *words, struct qwp_error *err)
{
    char *argv[WORDS_MAX] = {0};
    int argc = 0;
    for (; words[argc] != NULL; argc++) {
        argv[argc] = (char *)words[argc];
    }
    return qwp_options_parse(options, command, argc, argv, err);
}

#define PARSE(options, command, ...)                                                               \
    do {                                                                                           \
        struct qwp_error err_ = {0};                                                               \
        const char *const words_[] = {__VA_ARGS__, NULL};                                          \
        ck_assert_msg(parse(options, command, words_, &err_) == QWP_OK, "%s", err_.text);          \
    } while (0)

START_TEST(options_defaults_are_as_documented)
{
    struct qwp_options options;
    struct qwp_error err;
    unsetenv(QWP_RINGS_ENV);
    unsetenv(QWP_INSTANCE_ENV);
    ck_assert_int_eq(qwp_options_parse(&options, QWP_COMMAND_RUN, 0, NULL, &err), QWP_OK);
    ck_assert_str_eq(options.rings_dir, "/dev/shm/qwp");
    ck_assert_str_eq(options.name, "default");
    ck_assert_ptr_null(options.conf);
    ck_assert_int_eq(options.linger_ns, 1000000);
    ck_assert_uint_eq(options.threading, QWP_THREADING_SHARED);
    ck_assert_uint_eq(options.idle, QWP_IDLE_PARK);
    ck_assert_uint_eq(options.doorbell, QWP_DOORBELL_AUTO);
    ck_assert_uint_eq(options.log_level, QWP_LOG_INFO);
    ck_assert_uint_gt(options.batch_rows_max, 0);
    ck_assert_uint_gt(options.batch_bytes_max, 0);
    ck_assert(!options.help && !options.json && !options.watch && !options.accept_any_dir);
}
END_TEST

START_TEST(options_come_from_words_and_environment)
{
    struct qwp_options options;
    setenv(QWP_RINGS_ENV, "/env", 1);
    setenv(QWP_INSTANCE_ENV, "inst", 1);
    PARSE(&options, QWP_COMMAND_STATUS, "--json");
    ck_assert_str_eq(options.rings_dir, "/env");
    ck_assert_str_eq(options.name, "inst");
    ck_assert(options.json);
    PARSE(&options, QWP_COMMAND_STATUS, "--rings", "/arg", "--name=other", "--watch", "--interval",
          "250ms");
    ck_assert_str_eq(options.rings_dir, "/arg");
    ck_assert_str_eq(options.name, "other");
    ck_assert(options.watch);
    ck_assert_int_eq(options.interval_ns, 250000000);
    unsetenv(QWP_RINGS_ENV);
    unsetenv(QWP_INSTANCE_ENV);
}
END_TEST

START_TEST(options_of_run_are_all_read)
{
    struct qwp_options options;
    PARSE(&options, QWP_COMMAND_RUN, "--conf=ws::addr=a;", "--threading=dedicated", "--idle=spin",
          "--doorbell=fifo", "--log-level=debug", "--linger=200us", "--batch-rows=7");
    ck_assert_str_eq(options.conf, "ws::addr=a;");
    ck_assert_uint_eq(options.threading, QWP_THREADING_DEDICATED);
    ck_assert_uint_eq(options.idle, QWP_IDLE_SPIN);
    ck_assert_uint_eq(options.doorbell, QWP_DOORBELL_FIFO);
    ck_assert_uint_eq(options.log_level, QWP_LOG_DEBUG);
    ck_assert_int_eq(options.linger_ns, 200000);
    ck_assert_uint_eq(options.batch_rows_max, 7);
    PARSE(&options, QWP_COMMAND_RUN, "--conf-file=f", "--linger-us=0", "--batch-bytes=64k",
          "--producers-max=3", "--ring-bytes-max=1m", "--accept-any-dir", "-h");
    ck_assert_str_eq(options.conf_file, "f");
    ck_assert_int_eq(options.linger_ns, 0);
    ck_assert_uint_eq(options.batch_bytes_max, 65536);
    ck_assert_uint_eq(options.producers_max, 3);
    ck_assert_uint_eq(options.ring_bytes_max, 1048576);
    ck_assert(options.accept_any_dir);
    ck_assert(options.help);
}
END_TEST

START_TEST(options_mistakes_are_named)
{
    static const char *const cases[][3] = {
        {"--bogus", NULL, "unknown option '--bogus'"},
        {"--bogus=s3cret", NULL, "unknown option '--bogus'"},
        {"word", NULL, "unexpected argument 'word'"},
        {"ws::addr=a;token=s3cret", NULL, "unexpected argument 'ws::addr'"},
        {"--", NULL, "unknown option"},
        {"--rings", NULL, "--rings: needs a value"},
        {"--rings=", NULL, "--rings: needs a value"},
        {"--help=yes", NULL, "--help: takes no value"},
        {"--linger", "1", "linger: expected a time such as"},
        {"--linger", "1m", "linger: expected a time such as"},
        {"--linger", "100s", "linger: expected a value from 0"},
        {"--linger", "99999999999999999999s", "linger: expected a time"},
        {"--linger-us", "x", "linger-us: expected a whole number of microseconds"},
        {"--batch-rows", "0", "batch-rows: expected a value from 1"},
        {"--batch-bytes", "1g", "batch-bytes: expected a value from 1"},
        {"--ring-bytes-max", "1k", "ring-bytes-max: expected a value from 65536"},
        {"--threading", "many", "threading: expected one of shared, dedicated, found 'many'"},
        {"--idle", "nap", "idle: expected one of park, spin"},
        {"--doorbell", "bell", "doorbell: expected one of auto, fence, fifo"},
        {"--log-level", "loud", "log-level: expected one of debug, info, warn, error"},
        {"--json", NULL, "unknown option '--json'"}, /* not of run */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct qwp_options options;
        struct qwp_error err = {0};
        const char *const words[] = {cases[i][0], cases[i][1], NULL};
        ck_assert_int_eq(parse(&options, QWP_COMMAND_RUN, words, &err), QWP_INVALID);
        ck_assert_msg(strstr(err.text, cases[i][2]) != NULL, "%s: '%s' does not say '%s'",
                      cases[i][0], err.text, cases[i][2]);
        ck_assert_ptr_null(strstr(err.text, "s3cret"));
    }
}
END_TEST

START_TEST(options_are_bounded_by_the_connect_string)
{
    struct qwp_options options = {.linger_ns = 5000000, .batch_rows_max = 10, .batch_bytes_max = 9};
    struct qwp_conf conf = {0};
    qwp_options_bound(&options, &conf);
    ck_assert_int_eq(options.linger_ns, 5000000);
    ck_assert_uint_eq(options.batch_rows_max, 10);
    conf = (struct qwp_conf){
        .flush_rows_max = 5, .flush_bytes_max = 100, .flush_wait_ns_max = 1000000};
    qwp_options_bound(&options, &conf);
    ck_assert_int_eq(options.linger_ns, 1000000);
    ck_assert_uint_eq(options.batch_rows_max, 5);
    ck_assert_uint_eq(options.batch_bytes_max, 9);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("options");
    TCase *tcase = tcase_create("options");
    tcase_add_test(tcase, options_defaults_are_as_documented);
    tcase_add_test(tcase, options_come_from_words_and_environment);
    tcase_add_test(tcase, options_of_run_are_all_read);
    tcase_add_test(tcase, options_mistakes_are_named);
    tcase_add_test(tcase, options_are_bounded_by_the_connect_string);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

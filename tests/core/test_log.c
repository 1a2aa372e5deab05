/* Aim: a log line is one line, parses in its format whatever its values hold, folds what repeats
 * and never waits for its reader.
 * Method: log into a pipe and read it back. */
#include "core/qwp_log.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_clock.h"

static int pipe_fds[2];
static char text[256 * 1024];

static void setup(enum qwp_log_format format, int64_t window_ns)
{
    ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
    ck_assert_int_eq(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK), 0);
    const struct qwp_log_options options = {
        .level = QWP_LOG_INFO, .format = format, .fd = pipe_fds[1], .window_ns = window_ns};
    qwp_log_setup(&options);
}

/* What was logged since the last call. */
static const char *logged(void)
{
    size_t len = 0;
    ssize_t n;
    while ((n = read(pipe_fds[0], text + len, sizeof text - 1 - len)) > 0) {
        len += (size_t)n;
    }
    text[len] = '\0';
    return text;
}

static size_t count(const char *in, const char *what)
{
    size_t n = 0;
    for (const char *at = in; (at = strstr(at, what)) != NULL; at += strlen(what)) {
        n++;
    }
    return n;
}

/* What follows the time, which is checked for its form. */
static const char *behind_time(const char *line, const char *form)
{
    ck_assert_uint_ge(strlen(line), strlen(form));
    for (size_t i = 0; form[i] != '\0'; i++) {
        if (form[i] == '0' ? line[i] < '0' || line[i] > '9' : line[i] != form[i]) {
            ck_abort_msg("'%s' does not begin like '%s'", line, form);
        }
    }
    return line + strlen(form);
}

START_TEST(log_logfmt_line_has_time_level_message_and_pairs)
{
    setup(QWP_LOG_LOGFMT, 0);
    qwp_log(QWP_LOG_WARN, "it is so", "rows=%llu where=%s:%u why=\"%s\" mask=0x%02x", 12ull, "host",
            9000u, "because", 5);
    ck_assert_str_eq(behind_time(logged(), "0000-00-00T00:00:00.000Z "),
                     "level=warn msg=\"it is so\" rows=12 where=host:9000 why=\"because\" "
                     "mask=0x05\n");
    qwp_log(QWP_LOG_DEBUG, "not asked for", "");
    ck_assert_str_eq(logged(), "");
}
END_TEST

START_TEST(log_json_line_is_one_object_with_numbers)
{
    setup(QWP_LOG_JSON, 0);
    qwp_log(QWP_LOG_ERROR, "it is so", "rows=%lld where=%s:%u why=\"%.*s\" fsn=\"%d\"", -12ll, "h",
            9000u, 3, "because", 7);
    ck_assert_str_eq(behind_time(logged(), "{\"time\":\"0000-00-00T00:00:00.000Z\","),
                     "\"level\":\"error\",\"msg\":\"it is so\",\"rows\":-12,\"where\":\"h:9000\","
                     "\"why\":\"bec\",\"fsn\":\"7\"}\n");
    qwp_log(QWP_LOG_INFO, "bare", "");
    ck_assert(strstr(logged(), "\"msg\":\"bare\"}\n") != NULL);
}
END_TEST

START_TEST(log_hostile_values_stay_within_their_quotes)
{
    setup(QWP_LOG_LOGFMT, 0);
    qwp_log(QWP_LOG_INFO, "m", "a=%s b=\"%s\" c=%s", "x y=1 \"q\" \\", "new\nline \033[2J\x7f", "");
    ck_assert(strstr(logged(), " a=\"x y=1 \\\"q\\\" \\\\\" b=\"new?line ?[2J?\" c=\"\"\n") !=
              NULL);
    qwp_log(QWP_LOG_INFO, "m", "a=\"%s\" b=\"%s\" c=\"%s\"", "bad \xff\xfe", "gr\xc3\xbc\xc3\x9f",
            "csi \xc2\x9b");
    ck_assert(strstr(logged(), " a=\"bad ??\" b=\"gr\xc3\xbc\xc3\x9f\" c=\"csi ??\"\n") != NULL);
}
END_TEST

START_TEST(log_long_values_are_cut_and_the_line_stays_whole)
{
    for (enum qwp_log_format format = QWP_LOG_LOGFMT; format <= QWP_LOG_JSON; format++) {
        setup(format, 0);
        static char quotes[8000];
        memset(quotes, '"', sizeof quotes - 1);
        qwp_log(QWP_LOG_INFO, "m", "a=\"%s\" b=\"%s\" c=\"%s\" d=\"%s\"", quotes, quotes, quotes,
                quotes);
        const char *line = logged();
        const size_t len = strlen(line);
        ck_assert_uint_le(len, 4096);
        ck_assert_uint_eq(count(line, "\n"), 1);
        ck_assert(len > 2000 && line[len - 1] == '\n');
        ck_assert(format == QWP_LOG_JSON ? line[len - 2] == '}' : line[len - 2] == '"');
        /* Quotes that are not escaped come in pairs. */
        size_t bare = 0;
        for (size_t i = 0; i < len; i++) {
            if (line[i] == '\\') {
                i++;
            } else {
                bare += line[i] == '"';
            }
        }
        ck_assert_uint_eq(bare % 2, 0);
    }
}
END_TEST

START_TEST(log_repeated_message_is_folded_with_its_count)
{
    setup(QWP_LOG_LOGFMT, (int64_t)3600 * QWP_NS_PER_S);
    const uint64_t before = qwp_log_folded_count();
    for (int i = 0; i < 100; i++) {
        qwp_log(QWP_LOG_WARN, "again", "i=%d why=\"%s\"", i, "so");
    }
    qwp_log(QWP_LOG_WARN, "another", "");
    ck_assert_uint_eq(count(logged(), "msg=\"again\""), QWP_LOG_BURST);
    ck_assert_uint_eq(count(text, "msg=\"another\""), 1);
    ck_assert_uint_eq(qwp_log_folded_count() - before, 100 - QWP_LOG_BURST);
    const int64_t now_ns = qwp_clock_monotonic_ns();
    const int64_t end_ns = qwp_log_flush(now_ns);
    ck_assert(end_ns > now_ns && end_ns <= now_ns + (int64_t)3600 * QWP_NS_PER_S);
    ck_assert_str_eq(logged(), "");
    /* The end of the window tells the rest, once. */
    ck_assert(qwp_log_flush(end_ns) == QWP_NEVER_NS);
    ck_assert(strstr(logged(), "level=warn msg=\"again\" i=99 why=\"so\" folded=90\n") != NULL);
    ck_assert_uint_eq(count(text, "\n"), 1);
    (void)qwp_log_flush(QWP_NEVER_NS - 1);
    ck_assert_str_eq(logged(), "");
    /* And a new one begins. */
    qwp_log(QWP_LOG_WARN, "again", "i=%d", 100);
    ck_assert(strstr(logged(), "msg=\"again\" i=100\n") != NULL);
}
END_TEST

START_TEST(log_next_event_after_the_window_tells_what_was_folded)
{
    setup(QWP_LOG_JSON, 1); /* over at once */
    for (int i = 0; i < 3 * QWP_LOG_BURST; i++) {
        qwp_log(QWP_LOG_INFO, "quick", "i=%d", i);
    }
    qwp_log_flush_all();
    ck_assert_uint_eq(count(logged(), "\"msg\":\"quick\""), 3 * QWP_LOG_BURST);
    setup(QWP_LOG_JSON, QWP_NS_PER_MS);
    int last = 0;
    while (strstr(logged(), "\"folded\":") == NULL) { /* once a window ends while we log */
        for (int i = 0; i < 100; i++) {
            qwp_log(QWP_LOG_INFO, "slow", "i=%d", last++);
        }
    }
    qwp_log_flush_all();
}
END_TEST

START_TEST(log_reader_that_stopped_does_not_stop_us)
{
    setup(QWP_LOG_LOGFMT, 1); /* nothing is folded */
    const uint64_t before = qwp_log_lost_count();
    int made = 0;
    while (qwp_log_lost_count() - before < 20) {
        qwp_log(QWP_LOG_INFO, "to nobody", "i=%d", made++);
    }
    const size_t taken = count(logged(), "\n");
    ck_assert_uint_eq(taken + 20, (size_t)made);
    qwp_log(QWP_LOG_INFO, "to someone", "i=1");
    ck_assert(strstr(logged(), "msg=\"to someone\" i=1 lost=20\n") != NULL);
    qwp_log(QWP_LOG_INFO, "to someone", "i=2");
    ck_assert(strstr(logged(), "msg=\"to someone\" i=2\n") != NULL);
}
END_TEST

START_TEST(log_journal_gets_priorities_instead_of_the_time)
{
    setup(QWP_LOG_LOGFMT, 0);
    struct stat st;
    char stream[64];
    ck_assert_int_eq(fstat(pipe_fds[1], &st), 0);
    snprintf(stream, sizeof stream, "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    struct qwp_log_options options = {QWP_LOG_DEBUG, QWP_LOG_LOGFMT, pipe_fds[1], 0};
    qwp_log_setup(&options);
    qwp_log(QWP_LOG_ERROR, "m", "a=%d", 1);
    ck_assert_str_eq(logged(), "<3>level=error msg=\"m\" a=1\n");
    qwp_log(QWP_LOG_DEBUG, "n", "");
    ck_assert_str_eq(logged(), "<7>level=debug msg=\"n\"\n");
    options.format = QWP_LOG_JSON;
    qwp_log_setup(&options);
    qwp_log(QWP_LOG_INFO, "m", "a=%d", 1);
    ck_assert_str_eq(logged(), "<6>{\"level\":\"info\",\"msg\":\"m\",\"a\":1}\n");
    setenv("JOURNAL_STREAM", "1:1", 1); /* someone else's stream, inherited */
    qwp_log_setup(&options);
    qwp_log(QWP_LOG_INFO, "m", "a=%d", 1);
    ck_assert_int_eq(logged()[0], '{');
    unsetenv("JOURNAL_STREAM");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    tcase_add_test(tcase, log_logfmt_line_has_time_level_message_and_pairs);
    tcase_add_test(tcase, log_json_line_is_one_object_with_numbers);
    tcase_add_test(tcase, log_hostile_values_stay_within_their_quotes);
    tcase_add_test(tcase, log_long_values_are_cut_and_the_line_stays_whole);
    tcase_add_test(tcase, log_repeated_message_is_folded_with_its_count);
    tcase_add_test(tcase, log_next_event_after_the_window_tells_what_was_folded);
    tcase_add_test(tcase, log_reader_that_stopped_does_not_stop_us);
    tcase_add_test(tcase, log_journal_gets_priorities_instead_of_the_time);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

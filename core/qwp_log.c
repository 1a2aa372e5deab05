#include "core/qwp_log.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "core/qwp_log_line.h"

enum {
    LINE_BYTES = 4096, /* PIPE_BUF: a pipe that is ready takes a whole line */
    FOLDS_MAX = 128,   /* messages counted at a time; our programs have fewer */
    FOLD_BYTES = 1024, /* kept of the pairs of the last one folded */
};

/* A message that was logged within its window. */
struct fold {
    const char *message; /* a literal, so its address tells it from others; NULL: free */
    enum qwp_log_level level;
    int64_t end_ns; /* of the window */
    uint32_t written;
    uint32_t folded;
    size_t len; /* of the pairs of the last one folded */
    char pairs[FOLD_BYTES];
};

static struct {
    enum qwp_log_level level;
    enum qwp_log_format format;
    int fd;
    int64_t window_ns;
    bool is_journal;
} setup = {QWP_LOG_INFO, QWP_LOG_LOGFMT, STDERR_FILENO, (int64_t)QWP_LOG_WINDOW_S *QWP_NS_PER_S,
           false};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fold folds[FOLDS_MAX]; /* under lock */

/* Relaxed: figures, and a hint that saves the lock. */
static _Atomic uint64_t folded_count;
static _Atomic uint64_t lost_count;
static _Atomic uint64_t lost_untold;
static _Atomic int64_t next_end_ns = QWP_NEVER_NS; /* of a window in which something was folded */

/* "DEVICE:INODE" of the stream that the journal reads: see systemd.exec(5). */
static bool is_journal(int fd)
{
    const char *stream = getenv("JOURNAL_STREAM");
    unsigned long long device, inode;
    struct stat st;
    return stream != NULL && sscanf(stream, "%llu:%llu", &device, &inode) == 2 &&
           fstat(fd, &st) == 0 && st.st_dev == device && st.st_ino == inode;
}

void qwp_log_setup(const struct qwp_log_options *options)
{
    pthread_mutex_lock(&lock);
    setup.level = options->level;
    setup.format = options->format;
    setup.fd = options->fd;
    setup.window_ns =
        options->window_ns != 0 ? options->window_ns : (int64_t)QWP_LOG_WINDOW_S * QWP_NS_PER_S;
    setup.is_journal = is_journal(options->fd);
    memset(folds, 0, sizeof folds);
    atomic_store_explicit(&next_end_ns, QWP_NEVER_NS, memory_order_relaxed);
    pthread_mutex_unlock(&lock);
}

/* ---- lines ---- */

/* A reader that has stopped must not stop us: asked first, a pipe or socket never blocks. */
static bool line_write(const char *line, size_t len)
{
    struct pollfd out = {.fd = setup.fd, .events = POLLOUT};
    return poll(&out, 1, 0) == 1 && write(setup.fd, line, len) == (ssize_t)len;
}

static void line_end(struct qwp_log_text *text)
{
    const uint64_t untold = atomic_exchange_explicit(&lost_untold, 0, memory_order_relaxed);
    if (untold > 0) {
        qwp_log_put_count(text, "lost", untold);
    }
    qwp_log_put_end(text);
    if (!line_write(text->at, text->len)) {
        atomic_fetch_add_explicit(&lost_count, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&lost_untold, untold + 1, memory_order_relaxed);
    }
}

/* ---- folding: all under lock ---- */

static void fold_tell(struct fold *fold)
{
    char line[LINE_BYTES];
    struct qwp_log_text text = {line, 0, sizeof line, setup.format};
    qwp_log_put_head(&text, fold->level, fold->message, setup.is_journal);
    qwp_log_put_made(&text, fold->pairs, fold->len);
    qwp_log_put_count(&text, "folded", fold->folded);
    line_end(&text);
}

/* Ends the windows that are over at now_ns and finds out when the next one is. */
static void windows_end(int64_t now_ns)
{
    int64_t next_ns = QWP_NEVER_NS;
    for (size_t i = 0; i < FOLDS_MAX; i++) {
        struct fold *fold = &folds[i];
        if (fold->message == NULL) {
            continue;
        }
        if (fold->end_ns <= now_ns) {
            if (fold->folded > 0) {
                fold_tell(fold);
            }
            fold->message = NULL;
        } else if (fold->folded > 0 && fold->end_ns < next_ns) {
            next_ns = fold->end_ns;
        }
    }
    atomic_store_explicit(&next_end_ns, next_ns, memory_order_relaxed);
}

/* The message's entry, a fresh one if it has none; NULL: there is no room. */
static struct fold *fold_of(const char *message, enum qwp_log_level level, int64_t now_ns)
{
    struct fold *fresh = NULL;
    for (size_t i = 0; i < FOLDS_MAX; i++) {
        if (folds[i].message == message) {
            return &folds[i];
        }
        if (folds[i].message == NULL && fresh == NULL) {
            fresh = &folds[i];
        }
    }
    if (fresh != NULL) {
        fresh->message = message;
        fresh->level = level;
        fresh->end_ns = now_ns + setup.window_ns;
        fresh->written = fresh->folded = 0;
    }
    return fresh;
}

/* True: the event is counted and gets no line now. */
static bool fold_event(enum qwp_log_level level, const char *message, const char *pairs,
                       va_list args)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    pthread_mutex_lock(&lock);
    windows_end(now_ns);
    struct fold *fold = fold_of(message, level, now_ns);
    const bool is_folded = fold != NULL && fold->written == QWP_LOG_BURST;
    if (is_folded) {
        struct qwp_log_text text = {fold->pairs, 0, sizeof fold->pairs, setup.format};
        qwp_log_put_pairs(&text, pairs, args);
        fold->len = text.len;
        fold->folded++;
        atomic_fetch_add_explicit(&folded_count, 1, memory_order_relaxed);
        windows_end(now_ns); /* this window's end counts from now on */
    } else if (fold != NULL) {
        fold->written++;
    }
    pthread_mutex_unlock(&lock);
    return is_folded;
}

/* ---- for the programs ---- */

void qwp_log(enum qwp_log_level level, const char *message, const char *pairs, ...)
{
    if (level < setup.level) {
        return;
    }
    va_list args;
    va_start(args, pairs);
    if (!fold_event(level, message, pairs, args)) {
        char line[LINE_BYTES];
        struct qwp_log_text text = {line, 0, sizeof line, setup.format};
        qwp_log_put_head(&text, level, message, setup.is_journal);
        qwp_log_put_pairs(&text, pairs, args);
        line_end(&text);
    }
    va_end(args);
}

int64_t qwp_log_flush(int64_t now_ns)
{
    if (atomic_load_explicit(&next_end_ns, memory_order_relaxed) <= now_ns) {
        pthread_mutex_lock(&lock);
        windows_end(now_ns);
        pthread_mutex_unlock(&lock);
    }
    return atomic_load_explicit(&next_end_ns, memory_order_relaxed);
}

void qwp_log_flush_all(void)
{
    pthread_mutex_lock(&lock);
    windows_end(QWP_NEVER_NS);
    pthread_mutex_unlock(&lock);
}

uint64_t qwp_log_folded_count(void)
{
    return atomic_load_explicit(&folded_count, memory_order_relaxed);
}

uint64_t qwp_log_lost_count(void)
{
    return atomic_load_explicit(&lost_count, memory_order_relaxed);
}

#include "tests/sink/sink_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qwp_clock.h"

enum qwp_result sink_stream_init(struct sink_stream *stream, int fd, int stop_fd, SSL_CTX *tls,
                                 struct qwp_error *err)
{
    *stream = (struct sink_stream){
        .fd = fd, .stop_fd = stop_fd, .in_left = INT64_MAX, .out_left = INT64_MAX};
    const int on = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (tls == NULL) {
        return QWP_OK;
    }
    stream->ssl = SSL_new(tls);
    if (stream->ssl == NULL || SSL_set_fd(stream->ssl, fd) != 1) {
        return qwp_fail(err, QWP_NOMEM, 0, "no TLS object for the connection");
    }
    SSL_set_accept_state(stream->ssl);
    return QWP_OK;
}

/* recv() and send() as far as the connection is not cut yet; errno ECONNABORTED when it is. */
static ssize_t receive(struct sink_stream *stream, void *at, size_t room)
{
    if (stream->in_left == 0) {
        errno = ECONNABORTED;
        return -1;
    }
    const size_t most = (uint64_t)stream->in_left < room ? (size_t)stream->in_left : room;
    ssize_t n;
    do {
        n = recv(stream->fd, at, most, 0);
    } while (n < 0 && errno == EINTR);
    if (n > 0 && stream->in_left != INT64_MAX) {
        stream->in_left -= n;
    }
    return n;
}

static ssize_t transmit(struct sink_stream *stream, const void *at, size_t len)
{
    if (stream->out_left == 0) {
        errno = ECONNABORTED;
        return -1;
    }
    const size_t most = (uint64_t)stream->out_left < len ? (size_t)stream->out_left : len;
    ssize_t n;
    do {
        n = send(stream->fd, at, most, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n > 0 && stream->out_left != INT64_MAX) {
        stream->out_left -= n;
    }
    return n;
}

static int bio_read(BIO *bio, char *at, int room)
{
    BIO_clear_retry_flags(bio);
    const ssize_t n = receive(BIO_get_data(bio), at, (size_t)room);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        BIO_set_retry_read(bio);
    }
    return (int)n;
}

static int bio_write(BIO *bio, const char *at, int len)
{
    BIO_clear_retry_flags(bio);
    const ssize_t n = transmit(BIO_get_data(bio), at, (size_t)len);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        BIO_set_retry_write(bio);
    }
    return (int)n;
}

static long bio_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    return command == BIO_CTRL_FLUSH;
}

static BIO_METHOD *counting_bio;

static void make_counting_bio(void)
{
    counting_bio = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "sink stream");
    if (counting_bio != NULL) {
        BIO_meth_set_read(counting_bio, bio_read);
        BIO_meth_set_write(counting_bio, bio_write);
        BIO_meth_set_ctrl(counting_bio, bio_ctrl);
    }
}

enum qwp_result sink_stream_cut(struct sink_stream *stream, int64_t in_bytes, int64_t out_bytes,
                                struct qwp_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    stream->in_left = in_bytes;
    stream->out_left = out_bytes;
    if (stream->ssl == NULL) {
        return QWP_OK;
    }
    pthread_once(&once, make_counting_bio);
    BIO *bio = counting_bio != NULL ? BIO_new(counting_bio) : NULL;
    if (bio == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no BIO for the connection");
    }
    BIO_set_data(bio, stream);
    BIO_set_init(bio, 1);
    SSL_set_bio(stream->ssl, bio, bio);
    return QWP_OK;
}

void sink_stream_reset(struct sink_stream *stream)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    (void)setsockopt(stream->fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

bool sink_stream_is_gone(const struct sink_stream *stream)
{
    struct pollfd polled = {.fd = stream->fd, .events = POLLRDHUP};
    return poll(&polled, 1, 0) > 0 && polled.revents != 0;
}

void sink_stream_fini(struct sink_stream *stream)
{
    SSL_free(stream->ssl);
    if (stream->fd >= 0) {
        close(stream->fd);
    }
    stream->ssl = NULL;
    stream->fd = -1;
}

static enum qwp_result tls_failed(const char *what, struct qwp_error *err)
{
    const unsigned long code = ERR_peek_error();
    char reason[256] = "unknown";
    if (code != 0) {
        ERR_error_string_n(code, reason, sizeof reason);
    }
    ERR_clear_error();
    return qwp_fail(err, QWP_PEER, 0, "TLS %s: %s", what, reason);
}

/* What a TLS call that did not succeed means. */
static enum qwp_result tls_outcome(struct sink_stream *stream, int returned, const char *what,
                                   struct qwp_error *err)
{
    const int sys = errno;
    switch (SSL_get_error(stream->ssl, returned)) {
    case SSL_ERROR_WANT_READ:
        stream->tls_wants_write = false;
        return QWP_AGAIN;
    case SSL_ERROR_WANT_WRITE:
        stream->tls_wants_write = true;
        return QWP_AGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return QWP_CLOSED;
    case SSL_ERROR_SYSCALL:
        ERR_clear_error();
        return sys == 0 ? QWP_CLOSED : qwp_fail(err, QWP_IO, sys, "TLS %s", what);
    default:
        return tls_failed(what, err);
    }
}

enum qwp_result sink_stream_handshake(struct sink_stream *stream, int64_t timeout_ns,
                                      struct qwp_error *err)
{
    if (stream->ssl == NULL) {
        return QWP_OK;
    }
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + timeout_ns;
    for (;;) {
        ERR_clear_error();
        errno = 0;
        const int done = SSL_do_handshake(stream->ssl);
        if (done == 1) {
            return QWP_OK;
        }
        enum qwp_result result = tls_outcome(stream, done, "handshake", err);
        if (result == QWP_CLOSED) {
            return qwp_fail(err, QWP_CLOSED, 0, "closed by the client within the TLS handshake");
        }
        if (result == QWP_AGAIN) {
            result = sink_stream_wait(stream, !stream->tls_wants_write, stream->tls_wants_write,
                                      deadline_ns - qwp_clock_monotonic_ns());
        }
        if (result == QWP_AGAIN) {
            return qwp_fail(err, QWP_AGAIN, 0, "TLS handshake not finished in time");
        }
        if (result != QWP_OK) {
            return result;
        }
    }
}

static enum qwp_result read_tls(struct sink_stream *stream, void *at, size_t room, size_t *len,
                                struct qwp_error *err)
{
    /* A call gives one record at most; more of them save the caller's rounds. */
    size_t total = 0;
    while (total < room) {
        size_t n = 0;
        ERR_clear_error();
        errno = 0;
        const int done = SSL_read_ex(stream->ssl, (char *)at + total, room - total, &n);
        if (done != 1) {
            const enum qwp_result result = tls_outcome(stream, done, "read", err);
            if (total > 0) {
                break; /* comes again at the next call */
            }
            return result;
        }
        total += n;
    }
    *len = total;
    return QWP_OK;
}

static enum qwp_result read_plain(struct sink_stream *stream, void *at, size_t room, size_t *len,
                                  struct qwp_error *err)
{
    const ssize_t n = receive(stream, at, room);
    if (n == 0) {
        return QWP_CLOSED;
    }
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? QWP_AGAIN
                                                       : qwp_fail(err, QWP_IO, errno, "read");
    }
    *len = (size_t)n;
    return QWP_OK;
}

enum qwp_result sink_stream_read(struct sink_stream *stream, void *at, size_t room, size_t *len,
                                 struct qwp_error *err)
{
    const enum qwp_result result = stream->ssl != NULL ? read_tls(stream, at, room, len, err)
                                                       : read_plain(stream, at, room, len, err);
    if (result == QWP_OK) {
        stream->bytes_read += *len;
    }
    return result;
}

enum qwp_result sink_stream_write(struct sink_stream *stream, const void *at, size_t len,
                                  size_t *written, struct qwp_error *err)
{
    if (stream->ssl != NULL) {
        ERR_clear_error();
        errno = 0;
        const int done = SSL_write_ex(stream->ssl, at, len, written);
        return done == 1 ? QWP_OK : tls_outcome(stream, done, "write", err);
    }
    const ssize_t n = transmit(stream, at, len);
    if (n < 0) {
        return errno == EAGAIN || errno == EWOULDBLOCK ? QWP_AGAIN
                                                       : qwp_fail(err, QWP_IO, errno, "write");
    }
    *written = (size_t)n;
    return QWP_OK;
}

static int poll_timeout_ms(int64_t timeout_ns)
{
    if (timeout_ns == QWP_NEVER_NS) {
        return -1;
    }
    const int64_t ms = (timeout_ns + QWP_NS_PER_MS - 1) / QWP_NS_PER_MS;
    return ms <= 0 ? 0 : ms > INT_MAX ? INT_MAX : (int)ms;
}

enum qwp_result sink_stream_wait(struct sink_stream *stream, bool read, bool write,
                                 int64_t timeout_ns)
{
    struct pollfd polled[2] = {
        {.fd = stream->fd, .events = (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0))},
        {.fd = stream->stop_fd, .events = POLLIN},
    };
    int n;
    do {
        n = poll(polled, 2, poll_timeout_ms(timeout_ns));
    } while (n < 0 && errno == EINTR);
    if (polled[1].revents != 0) {
        return QWP_CLOSED;
    }
    return n > 0 ? QWP_OK : QWP_AGAIN;
}

enum qwp_result sink_stream_pause(const struct sink_stream *stream, int64_t wait_ns)
{
    struct pollfd polled = {.fd = stream->stop_fd, .events = POLLIN};
    return poll(&polled, 1, poll_timeout_ms(wait_ns)) > 0 ? QWP_CLOSED : QWP_AGAIN;
}

void sink_stream_end(struct sink_stream *stream, int64_t timeout_ns)
{
    if (stream->ssl != NULL && SSL_is_init_finished(stream->ssl)) {
        ERR_clear_error();
        (void)SSL_shutdown(stream->ssl);
        ERR_clear_error();
    }
    (void)shutdown(stream->fd, SHUT_WR);
    const int64_t deadline_ns = qwp_clock_monotonic_ns() + timeout_ns;
    char waste[4096];
    for (;;) {
        const ssize_t n = recv(stream->fd, waste, sizeof waste, 0);
        if (n > 0 || (n < 0 && errno == EINTR)) {
            continue;
        }
        if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
            return;
        }
        const int64_t left_ns = deadline_ns - qwp_clock_monotonic_ns();
        if (left_ns <= 0 || sink_stream_wait(stream, true, false, left_ns) != QWP_OK) {
            return;
        }
    }
}

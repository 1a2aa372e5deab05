/* Whether the servers of the connect string answer. */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "sidecar/qwp_check.h"

static struct addrinfo *resolve(struct qwp_check *check, const struct qwp_endpoint *endpoint,
                                const char *subject)
{
    struct addrinfo *found = NULL;
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char port[8];
    snprintf(port, sizeof port, "%u", (unsigned)endpoint->port);
    const int rc = getaddrinfo(endpoint->host, port, &hints, &found);
    if (rc != 0) {
        qwp_check_add(check, QWP_CHECK_FAIL, subject, "correct addr, or mend name resolution",
                      "%s does not resolve: %s", endpoint->host, gai_strerror(rc));
        return NULL;
    }
    return found;
}

/* 0, or an errno. */
static int try_connect(const struct addrinfo *address, int64_t timeout_ns)
{
    const int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return errno;
    }
    int cause = connect(fd, address->ai_addr, address->ai_addrlen) == 0 ? 0 : errno;
    if (cause == EINPROGRESS) {
        struct pollfd waiting = {.fd = fd, .events = POLLOUT};
        socklen_t len = sizeof cause;
        if (poll(&waiting, 1, (int)(timeout_ns / QWP_NS_PER_MS)) == 0) {
            cause = ETIMEDOUT;
        } else {
            getsockopt(fd, SOL_SOCKET, SO_ERROR, &cause, &len);
        }
    }
    close(fd);
    return cause;
}

static void check_server(struct qwp_check *check, const struct qwp_options *options,
                         const struct qwp_endpoint *endpoint)
{
    char subject[32];
    snprintf(subject, sizeof subject, "server");
    struct addrinfo *addresses = resolve(check, endpoint, subject);
    int cause = 0;
    for (const struct addrinfo *at = addresses; at != NULL; at = at->ai_next) {
        cause = try_connect(at, options->timeout_ns);
        if (cause == 0) {
            break;
        }
    }
    if (addresses == NULL) {
        return;
    }
    if (cause != 0) {
        qwp_check_add(check, QWP_CHECK_FAIL, subject,
                      "see that it runs and that no firewall is between", "%s port %u: %s",
                      endpoint->host, (unsigned)endpoint->port, strerror(cause));
    } else {
        qwp_check_add(check, QWP_CHECK_OK, subject, NULL, "%s port %u: takes connections",
                      endpoint->host, (unsigned)endpoint->port);
    }
    freeaddrinfo(addresses);
}

void qwp_check_servers(struct qwp_check *check, const struct qwp_options *options,
                       const struct qwp_conf *conf)
{
    for (size_t i = 0; i < conf->endpoints.count; i++) {
        check_server(check, options, &conf->endpoints.list[i]);
    }
}

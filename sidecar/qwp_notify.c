#include "sidecar/qwp_notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/qwp_clock.h"

/* A path, or with '@' in front a name in the abstract namespace. */
static int connect_to(const char *name)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    const size_t len = strlen(name);
    if ((name[0] != '/' && name[0] != '@') || len >= sizeof to.sun_path) {
        return -1;
    }
    memcpy(to.sun_path, name, len);
    if (name[0] == '@') {
        to.sun_path[0] = '\0';
    }
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -1;
    }
    if (connect(fd, (struct sockaddr *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Half of what the manager allows. 0: it wants no signs of life, or not from us. */
static int64_t watchdog_interval(void)
{
    const char *pid = getenv("WATCHDOG_PID");
    const char *us = getenv("WATCHDOG_USEC");
    if (us == NULL || (pid != NULL && strtoll(pid, NULL, 10) != (long long)getpid())) {
        return 0;
    }
    char *end;
    errno = 0;
    const long long value = strtoll(us, &end, 10);
    return errno == 0 && *end == '\0' && value > 0 && value < INT64_MAX / QWP_NS_PER_US
               ? value * QWP_NS_PER_US / 2
               : 0;
}

void qwp_notify_open(struct qwp_notify *notify)
{
    const char *name = getenv("NOTIFY_SOCKET");
    *notify = (struct qwp_notify){.fd = name != NULL ? connect_to(name) : -1};
    if (notify->fd >= 0) {
        notify->watchdog_ns = watchdog_interval();
    }
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void qwp_notify_send(struct qwp_notify *notify, const char *text)
{
    if (notify->fd >= 0) {
        const ssize_t sent = send(notify->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL);
        (void)sent; /* see Errors */
    }
}

int64_t qwp_notify_beat(struct qwp_notify *notify, int64_t now_ns)
{
    if (notify->watchdog_ns == 0) {
        return QWP_NEVER_NS;
    }
    if (now_ns >= notify->next_ns) {
        qwp_notify_send(notify, "WATCHDOG=1");
        notify->next_ns = now_ns + notify->watchdog_ns;
    }
    return notify->next_ns;
}

void qwp_notify_close(struct qwp_notify *notify)
{
    if (notify->fd >= 0) {
        close(notify->fd);
    }
    *notify = (struct qwp_notify){.fd = -1};
}

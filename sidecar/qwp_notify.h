/* qwp_notify: tells a service manager how things stand: sd_notify(3), by its socket.
 *
 * Without $NOTIFY_SOCKET everything here is a no-op.
 *
 * Threads:  send: any; the rest: one at a time.
 * Progress: never waits: a manager that does not read misses a message.
 * Errors:   none; whoever does not hear from us acts as its unit says. */
#ifndef QWP_NOTIFY_H
#define QWP_NOTIFY_H

#include <stdint.h>

struct qwp_notify {
    int fd;              /* -1: nobody to tell */
    int64_t watchdog_ns; /* how often to send a sign of life; 0: nobody wants one */
    int64_t next_ns;     /* when the next one is due */
};

/* Reads $NOTIFY_SOCKET, $WATCHDOG_USEC and $WATCHDOG_PID, and takes them out of the environment. */
void qwp_notify_open(struct qwp_notify *notify);
/* "READY=1", "STOPPING=1", "STATUS=...", or several, with a newline between. */
void qwp_notify_send(struct qwp_notify *notify, const char *text);
/* Sends the sign of life when it is due. Returns when the next one is, QWP_NEVER_NS: never. */
int64_t qwp_notify_beat(struct qwp_notify *notify, int64_t now_ns);
/* A closed one and one that was never open (fd -1) are fine. */
void qwp_notify_close(struct qwp_notify *notify);

#endif

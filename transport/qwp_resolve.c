#include "transport/qwp_resolve.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* One look-up, shared by the loop's thread and the helper's; the last of them frees it. */
struct lookup {
    _Atomic int refs;
    int done_fd; /* own duplicate of the resolver's eventfd */
    char host[256];
    char port[8];
    /* writer: helper, before it signals done_fd; the eventfd orders it before our read. */
    _Atomic int status; /* of getaddrinfo(); sync[resolve.status] */
    struct qwp_addresses addresses;
};

struct qwp_resolver {
    struct qwp_loop *loop;
    qwp_resolved_fn resolved;
    void *owner;
    int done_fd;
    struct qwp_op poll_op;
    struct lookup *lookup; /* under way, or NULL */
};

enum { LOOKUPS_MAX = 8 };    /* in the process */
enum { STATUS_PENDING = 1 }; /* getaddrinfo() gives 0 or negative numbers */

/* Look-ups cannot be stopped. One that is dropped goes on until the system's resolver gives up, and
 * with impatient owners these add up. Any thread. */
static _Atomic int lookups_running;

static void lookup_release(struct lookup *lookup)
{
    if (atomic_fetch_sub_explicit(&lookup->refs, 1, memory_order_acq_rel) == 1) {
        close(lookup->done_fd);
        free(lookup);
    }
}

static int addresses_get(const char *host, const char *port, int flags,
                         struct qwp_addresses *addresses)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    struct addrinfo *found;
    const int status = getaddrinfo(host, port, &hints, &found);
    if (status != 0) {
        return status;
    }
    addresses->count = 0;
    for (struct addrinfo *at = found; at != NULL && addresses->count < QWP_ADDRESSES_MAX;
         at = at->ai_next) {
        struct qwp_address *address = &addresses->list[addresses->count++];
        memcpy(&address->storage, at->ai_addr, at->ai_addrlen);
        address->len = at->ai_addrlen;
    }
    freeaddrinfo(found);
    return 0;
}

static void *lookup_run(void *arg)
{
    struct lookup *lookup = arg;
    const int status = addresses_get(lookup->host, lookup->port, AI_ADDRCONFIG, &lookup->addresses);
    /* sync[resolve.status] release: the addresses are whole. */
    atomic_store_explicit(&lookup->status, status, memory_order_release);
    const uint64_t one = 1;
    while (write(lookup->done_fd, &one, sizeof one) < 0 && errno == EINTR) {
    }
    lookup_release(lookup);
    atomic_fetch_sub_explicit(&lookups_running, 1, memory_order_relaxed);
    return NULL;
}

static void report(struct qwp_resolver *resolver, const char *host, int status,
                   const struct qwp_addresses *addresses)
{
    struct qwp_error err = {0};
    if (status != 0) {
        (void)qwp_fail(&err, QWP_IO, status == EAI_SYSTEM ? errno : 0, "cannot resolve '%s': %s",
                       host, gai_strerror(status));
        addresses = NULL;
    }
    resolver->resolved(resolver->owner, addresses, &err);
}

static void on_done(struct qwp_op *op, int outcome, bool more)
{
    struct qwp_resolver *resolver = op->owner;
    if (outcome < 0) {
        return;
    }
    uint64_t count;
    (void)!read(resolver->done_fd, &count, sizeof count);
    if (!more) {
        qwp_loop_poll(resolver->loop, op, resolver->done_fd, POLLIN, true);
    }
    struct lookup *lookup = resolver->lookup;
    /* sync[resolve.status] acquire. A wake-up of a look-up that was dropped finds ours pending. */
    if (lookup == NULL ||
        atomic_load_explicit(&lookup->status, memory_order_acquire) == STATUS_PENDING) {
        return;
    }
    resolver->lookup = NULL;
    report(resolver, lookup->host, atomic_load_explicit(&lookup->status, memory_order_relaxed),
           &lookup->addresses);
    lookup_release(lookup);
}

enum qwp_result qwp_resolver_open(struct qwp_resolver **out, struct qwp_loop *loop,
                                  qwp_resolved_fn resolved, void *owner, struct qwp_error *err)
{
    struct qwp_resolver *resolver = calloc(1, sizeof *resolver);
    if (resolver == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for the resolver");
    }
    resolver->loop = loop;
    resolver->resolved = resolved;
    resolver->owner = owner;
    resolver->done_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (resolver->done_fd < 0) {
        const int error = errno;
        free(resolver);
        return qwp_fail(err, QWP_IO, error, "cannot make an eventfd for the resolver");
    }
    *out = resolver;
    return QWP_OK;
}

static void lookup_drop(struct qwp_resolver *resolver)
{
    if (resolver->lookup != NULL) {
        lookup_release(resolver->lookup);
        resolver->lookup = NULL;
    }
}

void qwp_resolver_close(struct qwp_resolver *resolver)
{
    if (resolver == NULL) {
        return;
    }
    lookup_drop(resolver);
    resolver->poll_op.owner = resolver;
    qwp_loop_cancel(resolver->loop, &resolver->poll_op);
    while (resolver->poll_op.in_flight) {
        (void)qwp_loop_run(resolver->loop, 0);
    }
    close(resolver->done_fd);
    free(resolver);
}

static struct lookup *lookup_create(struct qwp_resolver *resolver, const char *host, uint16_t port)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL) {
        return NULL;
    }
    lookup->done_fd = fcntl(resolver->done_fd, F_DUPFD_CLOEXEC, 0);
    if (lookup->done_fd < 0) {
        free(lookup);
        return NULL;
    }
    snprintf(lookup->host, sizeof lookup->host, "%s", host);
    snprintf(lookup->port, sizeof lookup->port, "%u", port);
    lookup->status = STATUS_PENDING;
    lookup->refs = 2; /* ours and the helper's */
    return lookup;
}

/* Signals belong to the threads that were there before. */
static int helper_start(struct lookup *lookup)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    const int error = pthread_create(&thread, NULL, lookup_run, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error == 0) {
        atomic_fetch_add_explicit(&lookups_running, 1, memory_order_relaxed);
        pthread_detach(thread);
    }
    return error;
}

enum qwp_result qwp_resolve_start(struct qwp_resolver *resolver, const char *host, uint16_t port,
                                  struct qwp_error *err)
{
    lookup_drop(resolver);
    char service[8];
    struct qwp_addresses numeric;
    snprintf(service, sizeof service, "%u", port);
    if (addresses_get(host, service, AI_NUMERICHOST, &numeric) == 0) {
        report(resolver, host, 0, &numeric);
        return QWP_OK;
    }
    if (atomic_load_explicit(&lookups_running, memory_order_relaxed) >= LOOKUPS_MAX) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "cannot resolve '%s': %d look-ups of names do not come to an end", host,
                        LOOKUPS_MAX);
    }
    struct lookup *lookup = lookup_create(resolver, host, port);
    if (lookup == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory to look up '%s'", host);
    }
    const int error = helper_start(lookup);
    if (error != 0) {
        lookup_release(lookup);
        lookup_release(lookup);
        return qwp_fail(err, QWP_NOMEM, error, "cannot start a thread to look up '%s'", host);
    }
    resolver->lookup = lookup;
    resolver->poll_op.fn = on_done;
    resolver->poll_op.owner = resolver;
    if (!resolver->poll_op.in_flight) {
        qwp_loop_poll(resolver->loop, &resolver->poll_op, resolver->done_fd, POLLIN, true);
    }
    return QWP_OK;
}

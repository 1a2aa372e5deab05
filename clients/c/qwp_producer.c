#include "clients/c/qwp_producer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_clock.h"
#include "ipc/qwp_guard.h"
#include "ipc/qwp_rendezvous.h"
#include "ipc/qwp_shared_text.h"

enum { GUARDED_MAX = 1024 /* producers of a process whose rings may be cut short */ };

#define FULL_WAIT_NS_DEFAULT (INT64_C(30) * QWP_NS_PER_S)

/* ---- all producers of this process, for the child after fork ---- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static struct qwp_producer *registry; /* under registry_lock */
static bool membarrier_known;         /* likewise; false again in a child */
static bool membarrier_registered;    /* likewise */

static void before_fork(void)
{
    pthread_mutex_lock(&registry_lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&registry_lock);
}

/* The ring's lock belongs to the open file, which the child shares: as long as it holds the
 * descriptor, the sidecar cannot see the parent die. */
static void after_fork_in_child(void)
{
    for (struct qwp_producer *p = registry; p != NULL; p = p->next) {
        qwp_guard_remove(p->guard);
        p->guard = QWP_GUARD_NONE;
        qwp_ring_forget_tx(&p->ring);
        qwp_bell_tx_fini(&p->bell);
        p->ring.data_bytes = 0;
        p->record_bytes_max = 0;
        p->reserved = NULL;
        p->unit = (struct qwp_unit){0};
        p->row.next = QWP_NEXT_NONE;
        p->row.care = QWP_CARE_FAILED;
        p->row.result = QWP_CLOSED;
    }
    membarrier_known = false;
    pthread_mutex_unlock(&registry_lock);
}

/* A library that is unloaded must not leave its handler behind. */
__attribute__((destructor)) static void unload(void)
{
    qwp_guard_close();
}

static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static int fork_result;

static void fork_setup(void)
{
    fork_result = pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static bool register_membarrier(void)
{
    pthread_mutex_lock(&registry_lock);
    if (!membarrier_known) {
        membarrier_registered = qwp_bell_register();
        membarrier_known = true;
    }
    const bool registered = membarrier_registered;
    pthread_mutex_unlock(&registry_lock);
    return registered;
}

/* In the signal handler: someone cut the ring's file short. To all that looks at it, it is a ring
 * that was detached; what it held is gone. */
static void ring_lost(void *at)
{
    static const char reason[] = "its file was cut short by another process";
    struct qwp_ring_header *header = at;
    memcpy(header->reason, reason, sizeof reason);
    atomic_store_explicit(&header->state, QWP_RING_DETACHED, memory_order_release);
}

/* The next two: under registry_lock. */
static void registry_add(struct qwp_producer *p)
{
    p->next = registry;
    p->link = &registry;
    if (registry != NULL) {
        registry->link = &p->next;
    }
    registry = p;
}

static void registry_remove(struct qwp_producer *p)
{
    if (p->link == NULL) {
        return;
    }
    *p->link = p->next;
    if (p->next != NULL) {
        p->next->link = p->link;
    }
    p->link = NULL;
}

/* ---- open and close ---- */

static const char *or_env(const char *given, const char *variable)
{
    if (given != NULL) {
        return given;
    }
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static enum qwp_result options_check(const struct qwp_producer_options *o, struct qwp_error *err)
{
    if (o->on_full > QWP_FULL_DROP) {
        return qwp_fail(err, QWP_INVALID, 0, "on_full is %d, which is none of QWP_FULL_*",
                        (int)o->on_full);
    }
    if (o->full_wait_ns_max < 0) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "full_wait_ns_max is %lld ns; give a time from 0 (30 s) on",
                        (long long)o->full_wait_ns_max);
    }
    return QWP_OK;
}

static enum qwp_result ring_open(struct qwp_producer *p, const struct qwp_producer_options *o,
                                 struct qwp_error *err)
{
    const bool registered = register_membarrier();
    const struct qwp_ring_options ring = {.name = o->name,
                                          .data_bytes = o->ring_bytes,
                                          .defs_bytes_max = o->definition_bytes_max,
                                          .unit_bytes_max = o->unit_bytes_max,
                                          .lock_memory = o->lock_memory,
                                          .membarrier = registered};
    int dir_fd;
    enum qwp_result result = qwp_rendezvous_open(or_env(o->dir, "QWP_RINGS"),
                                                 or_env(o->instance, "QWP_INSTANCE"), &dir_fd, err);
    if (result != QWP_OK) {
        return result;
    }
    qwp_rendezvous_sweep_emptied(dir_fd);
    /* No fork of another thread may fall between a ring that is made and one that is known. */
    pthread_mutex_lock(&registry_lock);
    result = o->keep_sigbus ? QWP_OK : qwp_guard_open(GUARDED_MAX, ring_lost, err);
    result = result != QWP_OK ? result : qwp_ring_create(&p->ring, dir_fd, &ring, err);
    if (result == QWP_OK) {
        if (!o->keep_sigbus) {
            p->guard = qwp_guard_add(p->ring.header, p->ring.mapped_bytes);
        }
        qwp_bell_tx_init(&p->bell, registered);
        registry_add(p);
    }
    pthread_mutex_unlock(&registry_lock);
    close(dir_fd);
    p->record_bytes_max = p->ring.unit_bytes_max & ~(uint32_t)(QWP_RECORD_ALIGN - 1);
    return result;
}

static void ring_close(struct qwp_producer *p)
{
    pthread_mutex_lock(&registry_lock);
    registry_remove(p);
    qwp_guard_remove(p->guard);
    if (!qwp_producer_is_closed(p)) {
        qwp_bell_tx_fini(&p->bell);
        qwp_ring_close_tx(&p->ring);
    }
    pthread_mutex_unlock(&registry_lock);
}

/* Symbols may come without end, and tables must still be definable then. */
static uint64_t symbol_bytes_max(uint64_t defs_bytes_max)
{
    return defs_bytes_max - defs_bytes_max / 4;
}

enum qwp_result qwp_producer_open(struct qwp_producer **out,
                                  const struct qwp_producer_options *options, struct qwp_error *err)
{
    static const struct qwp_producer_options defaults;
    const struct qwp_producer_options *o = options != NULL ? options : &defaults;
    enum qwp_result result = options_check(o, err);
    if (result != QWP_OK) {
        return result;
    }
    pthread_once(&fork_once, fork_setup);
    if (fork_result != 0) {
        return qwp_fail(err, QWP_NOMEM, fork_result, "cannot watch for fork()");
    }
    struct qwp_producer *p = calloc(1, sizeof *p);
    if (p == NULL) {
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a producer");
    }
    p->pid = getpid();
    p->on_full = o->on_full;
    p->full_wait_ns_max = o->full_wait_ns_max == 0 ? FULL_WAIT_NS_DEFAULT : o->full_wait_ns_max;
    p->symbol_len_full = SIZE_MAX;
    p->guard = QWP_GUARD_NONE;
    qwp_row_forget(&p->row);
    result = ring_open(p, o, err);
    if (result != QWP_OK) {
        qwp_producer_close(p);
        return result;
    }
    p->symbol_bytes_max = symbol_bytes_max(p->ring.defs_bytes_max);
    /* Pages of the stages are touched only by the rows that need them. */
    p->stage = malloc((size_t)p->ring.unit_bytes_max + 8);
    p->reorder = malloc((size_t)p->ring.unit_bytes_max + 8);
    const bool symbols_ready =
        qwp_symbols_init(&p->symbols, p->ring.defs,
                         atomic_load_explicit(&p->ring.header->ring_id[0], memory_order_relaxed));
    if (p->stage == NULL || p->reorder == NULL || !symbols_ready) {
        /* Nobody is to find a ring that never had a producer. */
        unlinkat(p->ring.dir_fd, p->ring.file_name, 0);
        qwp_producer_close(p);
        return qwp_fail(err, QWP_NOMEM, 0, "no memory for a producer's buffers");
    }
    *out = p;
    return QWP_OK;
}

void qwp_producer_close(struct qwp_producer *producer)
{
    if (producer == NULL) {
        return;
    }
    ring_close(producer);
    qwp_layouts_destroy(producer);
    qwp_tables_destroy(producer);
    qwp_symbols_fini(&producer->symbols);
    free(producer->reorder);
    free(producer->stage);
    free(producer);
}

enum qwp_result qwp_producer_check_open(const struct qwp_producer *producer, struct qwp_error *err)
{
    if (!qwp_producer_is_closed(producer)) {
        return QWP_OK;
    }
    return qwp_fail(err, QWP_CLOSED, 0,
                    "this producer belongs to process %ld, which opened it before fork(); open "
                    "another one in this process (%ld)",
                    (long)producer->pid, (long)getpid());
}

/* ---- room ---- */

struct space_wanted {
    struct qwp_producer *producer;
    uint64_t bytes;
};

static bool has_room(const struct qwp_producer *p, uint64_t bytes)
{
    return p->ring.write_pos + bytes - p->ring.head_seen_pos <= p->ring.data_bytes;
}

static bool look_for_room(void *owner)
{
    const struct space_wanted *wanted = owner;
    struct qwp_producer *p = wanted->producer;
    /* sync[ring.head] acquire: pairs with the release in qwp_ring_release(). */
    p->ring.head_seen_pos = atomic_load_explicit(&p->ring.header->head_pos, memory_order_acquire);
    return has_room(p, wanted->bytes) || qwp_producer_is_detached(p);
}

static enum qwp_result too_large(const struct qwp_producer *p, uint64_t bytes,
                                 struct qwp_error *err)
{
    if (bytes <= p->ring.unit_bytes_max && p->unit.open) {
        return qwp_fail(err, QWP_LIMIT, 0,
                        "the row takes %llu bytes and the open unit has room for %u of its %u: "
                        "publish the unit first, or open the producer with more unit_bytes_max",
                        (unsigned long long)bytes, p->record_bytes_max, p->ring.unit_bytes_max);
    }
    return qwp_fail(err, QWP_LIMIT, 0,
                    "the row takes %llu bytes, this producer's bound is %u: send less, or open it "
                    "with more unit_bytes_max (at most half of ring_bytes)",
                    (unsigned long long)bytes, p->ring.unit_bytes_max);
}

const char *qwp_consumer_text(struct qwp_producer *p)
{
    switch (qwp_consumer_state(p)) {
    case QWP_CONSUMER_RUNNING:
        return "the sidecar runs, but takes rows more slowly than they come or its store is full";
    case QWP_CONSUMER_CLOSING:
        return "the sidecar is shutting down";
    case QWP_CONSUMER_REFUSED:
        return "the sidecar refuses this ring";
    case QWP_CONSUMER_NONE:
        break;
    }
    return "no sidecar runs for this rings directory and instance";
}

static enum qwp_result still_full(struct qwp_producer *p, int64_t waited_ns, struct qwp_error *err)
{
    if (err == NULL) {
        return QWP_AGAIN;
    }
    return qwp_fail(err, QWP_AGAIN, 0,
                    "the ring %s is full: %llu of %llu bytes wait to be stored, waited %lld ms; %s",
                    p->ring.file_name,
                    (unsigned long long)(p->ring.write_pos - p->ring.head_seen_pos),
                    (unsigned long long)p->ring.data_bytes, (long long)(waited_ns / QWP_NS_PER_MS),
                    qwp_consumer_text(p));
}

void qwp_rows_dropped(struct qwp_producer *producer, uint32_t rows)
{
    producer->rows_dropped += rows;
    atomic_store_explicit(&producer->ring.header->rows_dropped, producer->rows_dropped,
                          memory_order_relaxed);
}

/* The rows at hand are lost; in a unit all its rows are, and those still to come. */
static void drop(struct qwp_producer *p, uint32_t rows)
{
    if (p->unit.open) {
        qwp_ring_abort(&p->ring);
        p->unit.dropped = true;
        p->unit.rows += rows;
        p->record_bytes_max = 0;
        return;
    }
    qwp_rows_dropped(p, rows);
}

enum qwp_result qwp_room_get(struct qwp_producer *producer, uint64_t bytes, uint32_t rows,
                             struct qwp_error *err)
{
    const enum qwp_result open = qwp_producer_check_open(producer, err);
    if (open != QWP_OK) {
        return open;
    }
    if (producer->unit.dropped) {
        producer->unit.rows += rows;
        return QWP_AGAIN;
    }
    if (bytes > producer->record_bytes_max) {
        return too_large(producer, bytes, err);
    }
    struct space_wanted wanted = {producer, bytes};
    bool reached = look_for_room(&wanted);
    if (!reached && producer->on_full == QWP_FULL_WAIT) {
        producer->full_waits++;
        reached = qwp_bell_wait(&producer->ring, QWP_WAIT_SPACE, look_for_room, &wanted,
                                qwp_clock_monotonic_ns() + producer->full_wait_ns_max) == QWP_OK;
    }
    if (qwp_producer_is_detached(producer)) {
        return qwp_producer_fail_detached(producer, err);
    }
    if (!has_room(producer, bytes)) {
        if (producer->on_full == QWP_FULL_DROP) {
            drop(producer, rows);
            return QWP_AGAIN;
        }
        return still_full(producer,
                          producer->on_full == QWP_FULL_WAIT ? producer->full_wait_ns_max : 0, err);
    }
    return QWP_OK;
}

/* ---- what the sidecar says ---- */

enum qwp_consumer qwp_consumer_state(struct qwp_producer *producer)
{
    if (qwp_producer_is_closed(producer)) {
        return QWP_CONSUMER_NONE;
    }
    struct qwp_ring_tx *ring = &producer->ring;
    /* sync[ring.state] acquire: the reason is written before the state. */
    const uint32_t state = atomic_load_explicit(&ring->header->state, memory_order_acquire);
    if (state >= QWP_RING_DETACHED) {
        return QWP_CONSUMER_REFUSED;
    }
    /* sync[bell.attach] acquire: the control file of that life is in place. */
    const uint64_t gen = atomic_load_explicit(&ring->header->attach_gen, memory_order_acquire);
    if (gen != producer->bell.gen) {
        qwp_bell_renew(&producer->bell, ring);
    }
    if (producer->bell.refused) {
        return QWP_CONSUMER_REFUSED;
    }
    if (state == QWP_RING_NEW || producer->bell.control.header == NULL ||
        !qwp_control_is_live(&producer->bell.control)) {
        return QWP_CONSUMER_NONE;
    }
    return state == QWP_RING_CLOSING ? QWP_CONSUMER_CLOSING : QWP_CONSUMER_RUNNING;
}

/* "" unless the sidecar detached or refused this ring. */
static void reason_get(const struct qwp_producer *p, char *text, size_t text_bytes)
{
    const struct qwp_ring_header *header = p->ring.header;
    text[0] = '\0';
    /* sync[ring.state] acquire: the reason is written before the state. */
    if (atomic_load_explicit(&header->state, memory_order_acquire) >= QWP_RING_DETACHED) {
        qwp_shared_text_get(text, text_bytes, header->reason, sizeof header->reason);
    }
}

void qwp_consumer_reason(struct qwp_producer *producer, char *text, size_t text_bytes)
{
    if (text_bytes == 0) {
        return;
    }
    text[0] = '\0';
    if (qwp_producer_is_closed(producer)) {
        return;
    }
    reason_get(producer, text, text_bytes);
    if (text[0] == '\0' && producer->bell.refused) {
        /* Once more, for its words: they name both versions. */
        struct qwp_control control;
        struct qwp_error err = {0};
        if (qwp_control_map(&control, producer->ring.dir_fd, &err) == QWP_OK) {
            qwp_control_unmap(&control);
        }
        snprintf(text, text_bytes, "%s", err.text);
    }
}

enum qwp_result qwp_producer_fail_detached(const struct qwp_producer *producer,
                                           struct qwp_error *err)
{
    if (err == NULL) {
        return QWP_CLOSED;
    }
    char reason[QWP_RING_REASON_BYTES];
    reason_get(producer, reason, sizeof reason);
    return qwp_fail(err, QWP_CLOSED, 0,
                    "the sidecar no longer reads the ring %s: %s; close this producer and open "
                    "another one",
                    producer->ring.file_name, reason[0] != '\0' ? reason : "it gave no reason");
}

const char *qwp_version(void)
{
    return QWP_VERSION;
}

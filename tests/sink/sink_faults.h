/* sink_faults: misbehaviour on request, at the start or while the server runs.
 *
 * A fault is text, WHAT[=VALUE][,KEY=VALUE]...; sink_faults_help() lists what there is. Those who
 * do the work of a phase ask whether a fault of a kind is due there, and do it themselves.
 *
 * Threads: many connections ask while another thread changes the faults; one lock, not taken while
 *          there are none. */
#ifndef SINK_FAULTS_H
#define SINK_FAULTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "core/qwp_error.h"
#include "tests/sink/sink_buffer.h"

enum {
    SINK_FAULTS_MAX = 64,
    SINK_FAULT_SPEC_BYTES = 512,
    SINK_FAULT_WORD_BYTES = 128,
    SINK_FAULT_STEP_MS = 10, /* how often a stall looks whether it is over */
};

/* Behind each kind stand the values it may have, in the order of its words. */
enum sink_fault_kind {
    SINK_FAULT_STATUS, /* a status */
    SINK_FAULT_REFUSE,
    SINK_FAULT_STALL,
    SINK_FAULT_CLOSE,
    SINK_FAULT_CUT,
    SINK_FAULT_HTTP, /* a status */
    SINK_FAULT_UPGRADE,
    SINK_FAULT_CAP, /* bytes */
    SINK_FAULT_ACK,
    SINK_FAULT_CONTROL,
    SINK_FAULT_ANSWER,
    SINK_FAULT_TLS,
};

enum {
    SINK_STALL_ACCEPT,
    SINK_STALL_TLS,
    SINK_STALL_UPGRADE,
    SINK_STALL_ANSWERS,
    SINK_STALL_READING
};
enum { SINK_CLOSE_AT_ACCEPT, SINK_CLOSE_AT_UPGRADE, SINK_CLOSE_AT_MESSAGE };
enum { SINK_CUT_IN, SINK_CUT_OUT };
enum {
    SINK_UPGRADE_NONSENSE,
    SINK_UPGRADE_OVERSIZED,
    SINK_UPGRADE_ACCEPT,
    SINK_UPGRADE_VERSION,
    SINK_UPGRADE_TRICKLE,
};
enum {
    SINK_ACK_DROP,
    SINK_ACK_LATE,
    SINK_ACK_BEYOND,
    SINK_ACK_STALE,
    SINK_ACK_BACKWARDS,
    SINK_ACK_NEGATIVE,
};
enum { SINK_CONTROL_PING, SINK_CONTROL_PONG, SINK_CONTROL_FRAGMENT };
enum {
    SINK_ANSWER_NONSENSE,
    SINK_ANSWER_OVERSIZED,
    SINK_ANSWER_SHORT,
    SINK_ANSWER_TEXT,
    SINK_ANSWER_MASKED,
    SINK_ANSWER_RESERVED,
    SINK_ANSWER_PING,
};
enum { SINK_TLS_KEYUPDATE, SINK_TLS_TICKET };

#define SINK_FAULT_ANY     INT64_C(-1) /* in a fault: anywhere */
#define SINK_FAULT_NOWHERE INT64_C(-2) /* in what is done: the number does not apply */

/* What is being done when somebody asks. */
struct sink_fault_place {
    int64_t connection; /* counts accepted connections from 0 */
    int64_t message;    /* counts those of the connection from 0 */
    int64_t frame;      /* counts those of them that hold tables */
    /* Whether it has to do with a table ("*": any); NULL: with none. */
    bool (*holds)(const void *holder, const char *table);
    const void *holder;
};

/* A fault as it was set. */
struct sink_fault {
    enum sink_fault_kind kind;
    int64_t value;
    struct sink_fault_place place; /* the numbers only */
    char table_name[SINK_FAULT_WORD_BYTES];
    int64_t times;  /* left; SINK_FAULT_ANY: no bound */
    int64_t skip;   /* times to let pass before the first */
    int64_t chance; /* in 100 */
    int64_t after_ms;
    int64_t for_ms; /* SINK_FAULT_ANY: without end */
    int64_t ms;     /* likewise */
    int64_t byte;
    int64_t spread; /* bytes that chance may add */
    int64_t by;
    int64_t code;
    int64_t reset;
    char header[SINK_FAULT_WORD_BYTES];
    uint32_t text_off; /* within spec; 0: none was given */
    int64_t from_ns;   /* when it is in effect, on the monotonic clock */
    int64_t until_ns;
    uint64_t serial; /* never twice */
    uint64_t hits;
    char spec[SINK_FAULT_SPEC_BYTES];
};

struct sink_faults {
    pthread_mutex_t lock; /* guards all below */
    struct sink_fault list[SINK_FAULTS_MAX];
    uint64_t seed;
    uint64_t serial;
    uint64_t hits;          /* also of faults that are gone */
    _Atomic uint32_t count; /* written under the lock, read without */
};

/* Something that lasts; zeroed: it is not on. */
struct sink_stall {
    uint64_t serial;
    int64_t until_ns;
};

/* TEXT of the fault, or some. */
const char *sink_fault_text(const struct sink_fault *fault);

void sink_faults_init(struct sink_faults *faults);
void sink_faults_fini(struct sink_faults *faults);
/* What throws the dice. */
void sink_faults_seed(struct sink_faults *faults, uint64_t seed);
QWP_MUST_USE enum qwp_result sink_faults_add(struct sink_faults *faults, const char *spec,
                                             struct qwp_error *err);
void sink_faults_clear(struct sink_faults *faults);
/* No fault is set. */
bool sink_faults_none(const struct sink_faults *faults);
/* Whether a fault of this kind and value (SINK_FAULT_ANY: of any value) is due here: the first that
 * fits, in *hit (unless NULL), counted. */
bool sink_faults_hit(struct sink_faults *faults, enum sink_fault_kind kind, int64_t value,
                     const struct sink_fault_place *place, struct sink_fault *hit);
/* The same for what lasts: whether one goes on (*stall), or is due here now. It ends after its ms,
 * when its fault ends, or when faults are cleared, and not before the next call is it due again. */
bool sink_faults_stall(struct sink_faults *faults, enum sink_fault_kind kind, int64_t value,
                       const struct sink_fault_place *place, struct sink_stall *stall);
/* {"hits":..,"faults":[{"fault":"..","hits":..},...]} in one line. */
void sink_faults_list(struct sink_faults *faults, struct sink_buffer *out);
/* The grammar, a line each, for --help. */
const char *sink_faults_help(void);

#endif

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
    SINK_FAULT_TABLE_BYTES = 128,
};

enum sink_fault_kind {
    SINK_FAULT_STATUS, /* answer `value` for a message, with the text */
};

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
    char table_name[SINK_FAULT_TABLE_BYTES];
    int64_t times;  /* left; SINK_FAULT_ANY: no bound */
    int64_t skip;   /* times to let pass before the first */
    int64_t chance; /* in 100 */
    uint64_t hits;
    uint32_t text_off; /* within spec; 0: none was given */
    char spec[SINK_FAULT_SPEC_BYTES];
};

struct sink_faults {
    pthread_mutex_t lock; /* guards all below */
    struct sink_fault list[SINK_FAULTS_MAX];
    uint64_t seed;
    uint64_t hits;          /* also of faults that are gone */
    _Atomic uint32_t count; /* written under the lock, read without */
};

/* TEXT of the fault, or some. */
const char *sink_fault_text(const struct sink_fault *fault);

void sink_faults_init(struct sink_faults *faults);
void sink_faults_fini(struct sink_faults *faults);
/* What throws the dice of `chance`. */
void sink_faults_seed(struct sink_faults *faults, uint64_t seed);
QWP_MUST_USE enum qwp_result sink_faults_add(struct sink_faults *faults, const char *spec,
                                             struct qwp_error *err);
void sink_faults_clear(struct sink_faults *faults);
/* Whether a fault of this kind is due here: the first that fits, in *hit (unless NULL), counted. */
bool sink_faults_hit(struct sink_faults *faults, enum sink_fault_kind kind,
                     const struct sink_fault_place *place, struct sink_fault *hit);
/* {"hits":..,"faults":[{"fault":"..","hits":..},...]} in one line. */
void sink_faults_list(struct sink_faults *faults, struct sink_buffer *out);
/* The grammar, a line each, for --help. */
const char *sink_faults_help(void);

#endif

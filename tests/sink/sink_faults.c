#include "tests/sink/sink_faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct number {
    const char *key;
    size_t off;
    int64_t min;
    int64_t max;
};

static const struct {
    const char *name;
    enum sink_fault_kind kind;
    int64_t min; /* of its value */
    int64_t max;
} kinds[] = {
    {"status", SINK_FAULT_STATUS, 0, 255},
};

static const struct number numbers[] = {
    {"connection", offsetof(struct sink_fault, place.connection), 0, INT64_MAX},
    {"message", offsetof(struct sink_fault, place.message), 0, INT64_MAX},
    {"frame", offsetof(struct sink_fault, place.frame), 0, INT64_MAX},
    {"times", offsetof(struct sink_fault, times), 1, INT64_MAX},
    {"skip", offsetof(struct sink_fault, skip), 0, INT64_MAX},
    {"chance", offsetof(struct sink_fault, chance), 1, 100},
};

const char *sink_faults_help(void)
{
    return "A fault is WHAT[=VALUE][,CONDITION=VALUE]...[,text=TEXT] (TEXT takes all of the "
           "rest):\n"
           "\n"
           "  status=N                reject the message with status N (0x03, 9, ...) and TEXT, "
           "as\n"
           "                          a server does: with all of its tables, and no answers "
           "after it\n"
           "\n"
           "and happens where all of its conditions hold:\n"
           "\n"
           "  table=T                 the message holds table T (*: any)\n"
           "  frame=K                 the K-th message with tables of its connection (from 0)\n"
           "  message=K               the K-th message of its connection, catch-up included\n"
           "  connection=K            the K-th connection since the start\n"
           "  times=N                 N times, then never again\n"
           "  skip=N                  not the first N times\n"
           "  chance=P                each time with a chance of P in 100, by --fault-seed\n";
}

const char *sink_fault_text(const struct sink_fault *fault)
{
    return fault->text_off > 0 ? fault->spec + fault->text_off : "a fault that was asked for";
}

void sink_faults_init(struct sink_faults *faults)
{
    memset(faults, 0, sizeof *faults);
    pthread_mutex_init(&faults->lock, NULL);
    sink_faults_seed(faults, 1);
}

void sink_faults_fini(struct sink_faults *faults)
{
    pthread_mutex_destroy(&faults->lock);
}

void sink_faults_seed(struct sink_faults *faults, uint64_t seed)
{
    pthread_mutex_lock(&faults->lock);
    faults->seed = seed;
    pthread_mutex_unlock(&faults->lock);
}

/* splitmix64 */
static uint64_t throw(struct sink_faults * faults)
{
    uint64_t x = faults->seed += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static enum qwp_result parse_number(const char *key, const char *text, int64_t min, int64_t max,
                                    int64_t *out, struct qwp_error *err)
{
    char *end;
    errno = 0;
    const long long number = strtoll(text, &end, 0);
    if (end == text || *end != '\0' || errno != 0 || number < min || number > max) {
        return qwp_fail(err, QWP_INVALID, 0, "fault: %s=%s: a number from %lld to %lld", key, text,
                        (long long)min, (long long)max);
    }
    *out = number;
    return QWP_OK;
}

static enum qwp_result parse_condition(struct sink_fault *fault, const char *key, const char *value,
                                       struct qwp_error *err)
{
    if (strcmp(key, "table") == 0) {
        if (value[0] == '\0' || strlen(value) >= sizeof fault->table_name) {
            return qwp_fail(err, QWP_INVALID, 0, "fault: table=%s: 1 to 127 bytes", value);
        }
        snprintf(fault->table_name, sizeof fault->table_name, "%s", value);
        return QWP_OK;
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct number *number = &numbers[i];
        if (strcmp(number->key, key) == 0) {
            return parse_number(key, value, number->min, number->max,
                                (int64_t *)((char *)fault + number->off), err);
        }
    }
    return qwp_fail(err, QWP_INVALID, 0, "fault: there is no condition '%s'; see --help", key);
}

static enum qwp_result parse_kind(struct sink_fault *fault, const char *name, const char *value,
                                  struct qwp_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            fault->kind = kinds[i].kind;
            return parse_number(name, value, kinds[i].min, kinds[i].max, &fault->value, err);
        }
    }
    return qwp_fail(err, QWP_INVALID, 0, "fault: there is no '%s'; see --help", name);
}

/* Cuts `spec`, a copy, into its parts. */
static enum qwp_result parse_parts(struct sink_fault *fault, char *spec, struct qwp_error *err)
{
    bool first = true;
    for (char *at = spec; at != NULL; first = false) {
        char *part = at;
        at = strchr(part, ',');
        if (at != NULL) {
            *at++ = '\0';
        }
        char *value = strchr(part, '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        const enum qwp_result result =
            first ? parse_kind(fault, part, value != NULL ? value : "", err)
                  : parse_condition(fault, part, value != NULL ? value : "", err);
        if (result != QWP_OK) {
            return result;
        }
    }
    return QWP_OK;
}

static enum qwp_result parse(struct sink_fault *fault, const char *spec, struct qwp_error *err)
{
    *fault = (struct sink_fault){
        .place = {SINK_FAULT_ANY, SINK_FAULT_ANY, SINK_FAULT_ANY, NULL, NULL},
        .times = SINK_FAULT_ANY,
        .chance = 100,
    };
    if (strlen(spec) >= sizeof fault->spec) {
        return qwp_fail(err, QWP_INVALID, 0, "fault: longer than %d bytes",
                        SINK_FAULT_SPEC_BYTES - 1);
    }
    snprintf(fault->spec, sizeof fault->spec, "%s", spec);
    char parts[SINK_FAULT_SPEC_BYTES];
    snprintf(parts, sizeof parts, "%s", spec);
    char *text = strstr(parts, ",text=");
    if (text != NULL) {
        *text = '\0';
        fault->text_off = (uint32_t)(text - parts) + (uint32_t)strlen(",text=");
    }
    return parse_parts(fault, parts, err);
}

enum qwp_result sink_faults_add(struct sink_faults *faults, const char *spec, struct qwp_error *err)
{
    struct sink_fault fault;
    enum qwp_result result = parse(&fault, spec, err);
    if (result != QWP_OK) {
        return result;
    }
    pthread_mutex_lock(&faults->lock);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    if (count == SINK_FAULTS_MAX) {
        result = qwp_fail(err, QWP_LIMIT, 0, "fault: more than %d of them", SINK_FAULTS_MAX);
    } else {
        faults->list[count] = fault;
        atomic_store_explicit(&faults->count, count + 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&faults->lock);
    return result;
}

void sink_faults_clear(struct sink_faults *faults)
{
    pthread_mutex_lock(&faults->lock);
    atomic_store_explicit(&faults->count, 0, memory_order_relaxed);
    pthread_mutex_unlock(&faults->lock);
}

static bool number_fits(int64_t wanted, int64_t there)
{
    return wanted == SINK_FAULT_ANY || wanted == there;
}

static bool table_fits(const char *wanted, const struct sink_fault_place *place)
{
    return wanted[0] == '\0' || (place->holds != NULL && place->holds(place->holder, wanted));
}

/* Conditions first: chance and counts are used up only where they hold. */
static bool is_due(struct sink_faults *faults, struct sink_fault *fault,
                   const struct sink_fault_place *place)
{
    if (!number_fits(fault->place.connection, place->connection) ||
        !number_fits(fault->place.message, place->message) ||
        !number_fits(fault->place.frame, place->frame) || !table_fits(fault->table_name, place) ||
        fault->times == 0) {
        return false;
    }
    if (fault->chance < 100 && throw(faults) % 100 >= (uint64_t)fault->chance) {
        return false;
    }
    if (fault->skip > 0) {
        fault->skip--;
        return false;
    }
    fault->times -= fault->times != SINK_FAULT_ANY;
    return true;
}

bool sink_faults_hit(struct sink_faults *faults, enum sink_fault_kind kind,
                     const struct sink_fault_place *place, struct sink_fault *hit)
{
    if (atomic_load_explicit(&faults->count, memory_order_relaxed) == 0) {
        return false;
    }
    bool found = false;
    pthread_mutex_lock(&faults->lock);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && !found; i++) {
        struct sink_fault *fault = &faults->list[i];
        found = fault->kind == kind && is_due(faults, fault, place);
        if (found) {
            fault->hits++;
            faults->hits++;
            if (hit != NULL) {
                *hit = *fault;
            }
        }
    }
    pthread_mutex_unlock(&faults->lock);
    return found;
}

void sink_faults_list(struct sink_faults *faults, struct sink_buffer *out)
{
    pthread_mutex_lock(&faults->lock);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    sink_buffer_printf(out, "{\"hits\":%llu,\"faults\":[", (unsigned long long)faults->hits);
    for (uint32_t i = 0; i < count; i++) {
        const struct sink_fault *fault = &faults->list[i];
        sink_buffer_text(out, i > 0 ? ",{\"fault\":" : "{\"fault\":");
        sink_buffer_json(out, fault->spec, strlen(fault->spec));
        sink_buffer_printf(out, ",\"hits\":%llu}", (unsigned long long)fault->hits);
    }
    sink_buffer_text(out, "]}\n");
    pthread_mutex_unlock(&faults->lock);
}

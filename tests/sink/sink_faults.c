#include "tests/sink/sink_faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_clock.h"

struct number {
    const char *key;
    size_t off;
    int64_t min;
    int64_t max;
};

static const struct {
    const char *name;
    enum sink_fault_kind kind;
    const char *words; /* "a b c": the value is one of them, by its place; NULL: a number */
    int64_t min;
    int64_t max;
} kinds[] = {
    {"status", SINK_FAULT_STATUS, NULL, 0, 255},
    {"refuse", SINK_FAULT_REFUSE, "", 0, 0},
    {"stall", SINK_FAULT_STALL, "accept tls upgrade answers reading", 0, 0},
    {"close", SINK_FAULT_CLOSE, "accept upgrade message", 0, 0},
    {"cut", SINK_FAULT_CUT, "in out", 0, 0},
    {"http", SINK_FAULT_HTTP, NULL, 100, 999},
    {"upgrade", SINK_FAULT_UPGRADE, "nonsense oversized accept version trickle", 0, 0},
    {"cap", SINK_FAULT_CAP, NULL, 1, INT64_C(1) << 40},
    {"ack", SINK_FAULT_ACK, "drop late beyond stale backwards negative", 0, 0},
    {"control", SINK_FAULT_CONTROL, "ping pong fragment", 0, 0},
    {"answer", SINK_FAULT_ANSWER, "nonsense oversized short text masked reserved ping", 0, 0},
    {"tls", SINK_FAULT_TLS, "keyupdate ticket", 0, 0},
};

#define NUMBER(key, field, min)                                                                    \
    {                                                                                              \
        key, offsetof(struct sink_fault, field), min, INT64_MAX                                    \
    }
static const struct number numbers[] = {
    NUMBER("connection", place.connection, 0),
    NUMBER("message", place.message, 0),
    NUMBER("frame", place.frame, 0),
    NUMBER("times", times, 1),
    NUMBER("skip", skip, 0),
    {"chance", offsetof(struct sink_fault, chance), 1, 100},
    NUMBER("after", after_ms, 0),
    NUMBER("for", for_ms, 0),
    NUMBER("ms", ms, 0),
    NUMBER("byte", byte, 0),
    NUMBER("spread", spread, 0),
    NUMBER("by", by, 0),
    {"code", offsetof(struct sink_fault, code), 0, UINT16_MAX},
    {"reset", offsetof(struct sink_fault, reset), 0, 1},
};

const char *sink_faults_help(void)
{
    return "A fault is WHAT[=VALUE][,KEY=VALUE]...[,text=TEXT] (TEXT takes all of the rest):\n"
           "\n"
           "  refuse                  no listening socket\n"
           "  stall=accept|tls|upgrade|answers|reading\n"
           "                          go no further there, for ms=N or until the fault is gone\n"
           "  close=accept|upgrade|message\n"
           "                          close once accepted, once upgraded, or instead of taking a\n"
           "                          message: without a word, or with a close frame code=N "
           "(1009,\n"
           "                          ...) and TEXT; reset=1: by a reset\n"
           "  cut=in|out              close at byte byte=N of what the client, the server puts "
           "on\n"
           "                          the wire, spread=M: up to M later by chance; reset=1\n"
           "  http=N                  answer the request with status N, header=NAME: VALUE, TEXT\n"
           "  upgrade=nonsense|oversized|accept|version|trickle\n"
           "                          no HTTP; headers without end; a wrong key; version 9; a "
           "byte\n"
           "                          each ms=N\n"
           "  cap=N                   announce, and take, messages of N bytes at most\n"
           "  status=N                reject the message with status N (0x03, 9, ...) and TEXT, "
           "as\n"
           "                          a server does: with all of its tables, and no answers "
           "after it\n"
           "  ack=drop|late|beyond|stale|backwards|negative\n"
           "                          no answer (a later one covers it); answer ms=N later; more "
           "than\n"
           "                          was sent, by=N; repeat the one before first; then one lower "
           "by=N;\n"
           "                          sequence -1\n"
           "  control=ping|pong|fragment\n"
           "                          with an answer send a ping, a pong that nobody asked for, "
           "or the\n"
           "                          answer in fragments with a ping between\n"
           "  answer=nonsense|oversized|short|text|masked|reserved|ping\n"
           "                          instead of an answer: noise; a frame that claims 2^40 bytes; "
           "an\n"
           "                          OK cut short; text; a masked frame; a reserved bit; a ping "
           "of\n"
           "                          200 bytes\n"
           "  tls=keyupdate|ticket    with an answer ask for new keys, send a session ticket\n"
           "\n"
           "and happens where all of these hold:\n"
           "\n"
           "  table=T                 the message holds table T (*: any); status, close=message\n"
           "  frame=K                 the K-th message with tables of its connection (from 0)\n"
           "  message=K               the K-th message of its connection, catch-up included\n"
           "  connection=K            the K-th connection since the start\n"
           "  after=MS, for=MS        that long after it was set, and only so long\n"
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

static enum qwp_result parse_word(char out[SINK_FAULT_WORD_BYTES], const char *key,
                                  const char *value, struct qwp_error *err)
{
    const int n = snprintf(out, SINK_FAULT_WORD_BYTES, "%s", value);
    return n > 0 && n < SINK_FAULT_WORD_BYTES
               ? QWP_OK
               : qwp_fail(err, QWP_INVALID, 0, "fault: %s=%s: 1 to %d bytes", key, value,
                          SINK_FAULT_WORD_BYTES - 1);
}

static enum qwp_result parse_key(struct sink_fault *fault, const char *key, const char *value,
                                 struct qwp_error *err)
{
    if (strcmp(key, "table") == 0) {
        return parse_word(fault->table_name, key, value, err);
    }
    if (strcmp(key, "header") == 0) {
        return parse_word(fault->header, key, value, err);
    }
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const struct number *number = &numbers[i];
        if (strcmp(number->key, key) == 0) {
            return parse_number(key, value, number->min, number->max,
                                (int64_t *)((char *)fault + number->off), err);
        }
    }
    return qwp_fail(err, QWP_INVALID, 0, "fault: there is no key '%s'; see --help", key);
}

/* Which of `words` it is; -1: none. */
static int64_t find_word(const char *words, const char *word)
{
    const size_t len = strlen(word);
    for (int64_t i = 0;; i++) {
        const size_t there = strcspn(words, " ");
        if (there == len && memcmp(words, word, len) == 0) {
            return i;
        }
        if (words[there] == '\0') {
            return -1;
        }
        words += there + 1;
    }
}

static enum qwp_result parse_kind(struct sink_fault *fault, const char *name, const char *value,
                                  struct qwp_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(kinds[i].name, name) != 0) {
            continue;
        }
        fault->kind = kinds[i].kind;
        if (kinds[i].words == NULL) {
            return parse_number(name, value, kinds[i].min, kinds[i].max, &fault->value, err);
        }
        fault->value = find_word(kinds[i].words, value);
        return fault->value >= 0 ? QWP_OK
                                 : qwp_fail(err, QWP_INVALID, 0, "fault: %s=%s: one of '%s'", name,
                                            value, kinds[i].words);
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
                  : parse_key(fault, part, value != NULL ? value : "", err);
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
        .for_ms = SINK_FAULT_ANY,
        .ms = SINK_FAULT_ANY,
        .by = SINK_FAULT_ANY,
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

/* Drops those whose time is over. */
static uint32_t drop_ended(struct sink_faults *faults, int64_t now_ns)
{
    uint32_t kept = 0;
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count; i++) {
        if (now_ns < faults->list[i].until_ns) {
            faults->list[kept++] = faults->list[i];
        }
    }
    atomic_store_explicit(&faults->count, kept, memory_order_relaxed);
    return kept;
}

enum qwp_result sink_faults_add(struct sink_faults *faults, const char *spec, struct qwp_error *err)
{
    struct sink_fault fault;
    enum qwp_result result = parse(&fault, spec, err);
    if (result != QWP_OK) {
        return result;
    }
    fault.from_ns = qwp_clock_monotonic_ns() + fault.after_ms * (int64_t)QWP_NS_PER_MS;
    fault.until_ns = fault.for_ms == SINK_FAULT_ANY
                         ? QWP_NEVER_NS
                         : fault.from_ns + fault.for_ms * (int64_t)QWP_NS_PER_MS;
    pthread_mutex_lock(&faults->lock);
    fault.serial = ++faults->serial;
    const uint32_t count = drop_ended(faults, qwp_clock_monotonic_ns());
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

bool sink_faults_none(const struct sink_faults *faults)
{
    return atomic_load_explicit(&faults->count, memory_order_relaxed) == 0;
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
    const int64_t now_ns = qwp_clock_monotonic_ns();
    if (now_ns < fault->from_ns || now_ns >= fault->until_ns) {
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

bool sink_faults_hit(struct sink_faults *faults, enum sink_fault_kind kind, int64_t value,
                     const struct sink_fault_place *place, struct sink_fault *hit)
{
    if (sink_faults_none(faults)) {
        return false;
    }
    bool found = false;
    pthread_mutex_lock(&faults->lock);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && !found; i++) {
        struct sink_fault *fault = &faults->list[i];
        found =
            fault->kind == kind && number_fits(value, fault->value) && is_due(faults, fault, place);
        if (found) {
            fault->hits++;
            faults->hits++;
            if (hit != NULL) {
                *hit = *fault;
                hit->byte +=
                    fault->spread > 0 ? (int64_t)(throw(faults) % (uint64_t)fault->spread) : 0;
            }
        }
    }
    pthread_mutex_unlock(&faults->lock);
    return found;
}

/* The stall's fault is still set and in effect. */
static bool stall_holds(struct sink_faults *faults, const struct sink_stall *stall)
{
    const int64_t now_ns = qwp_clock_monotonic_ns();
    bool holds = false;
    pthread_mutex_lock(&faults->lock);
    const uint32_t count = atomic_load_explicit(&faults->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && !holds; i++) {
        const struct sink_fault *fault = &faults->list[i];
        holds = fault->serial == stall->serial && now_ns < fault->until_ns;
    }
    pthread_mutex_unlock(&faults->lock);
    return holds && now_ns < stall->until_ns;
}

bool sink_faults_stall(struct sink_faults *faults, enum sink_fault_kind kind, int64_t value,
                       const struct sink_fault_place *place, struct sink_stall *stall)
{
    if (stall->serial != 0) {
        if (stall_holds(faults, stall)) {
            return true;
        }
        *stall = (struct sink_stall){0};
        return false;
    }
    struct sink_fault fault;
    if (!sink_faults_hit(faults, kind, value, place, &fault)) {
        return false;
    }
    stall->serial = fault.serial;
    stall->until_ns = fault.ms == SINK_FAULT_ANY
                          ? QWP_NEVER_NS
                          : qwp_clock_monotonic_ns() + fault.ms * (int64_t)QWP_NS_PER_MS;
    return true;
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

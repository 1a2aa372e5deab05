/* Intake's half of a switch to the next generation of the store. */
#include <inttypes.h>

#include "core/qwp_clock.h"
#include "core/qwp_log.h"
#include "sidecar/qwp_intake.h"

/* No sooner on behalf of a producer that has used up its share: each switch costs everyone a
 * connection. */
enum { SHARE_WAIT_MS = 1000 };

static bool any_waits(const struct qwp_intake *intake)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        if (intake->sources[i]->waits_symbols && !intake->sources[i]->detached) {
            return true;
        }
    }
    return false;
}

/* Full to `part` / 4. */
static bool is_filled(const struct qwp_intake *intake, uint64_t part)
{
    return qwp_dict_count(intake->dict) * UINT64_C(4) >=
               intake->options.generation_symbols * part ||
           qwp_dict_text_bytes(intake->dict) * 4 >= intake->options.generation_bytes * part;
}

/* The generation before may be gone by now: nothing of it may be looked at. */
static void moved_on(struct qwp_intake *intake, uint32_t symbols_before, int64_t now_ns)
{
    intake->log = qwp_generations_writer(intake->store);
    intake->dict = qwp_seglog_dict(intake->log);
    intake->framed_symbols = qwp_dict_count(intake->dict);
    intake->generation_ns = now_ns;
    qwp_framer_use(intake->framer, intake->dict);
    qwp_cursors_use(intake->cursors, qwp_seglog_recovered(intake->log)->slot_uuid);
    for (uint32_t i = 0; i < intake->source_count; i++) {
        qwp_source_symbols_reset(&intake->sources[i]->symbols);
        intake->sources[i]->waits_symbols = false;
        intake->sources[i]->text_count = 0;
    }
    qwp_log(QWP_LOG_INFO, "next generation of the dictionary", "generation=%u symbols_before=%u",
            intake->store->writer->number, symbols_before);
}

bool qwp_intake_turn(struct qwp_intake *intake, int64_t now_ns, int64_t *next_ns)
{
    if (qwp_generations_is_asked(intake->store)) {
        intake->more_due = true; /* it is a moment only: no sleep */
        const uint32_t symbols = qwp_dict_count(intake->dict);
        if (!qwp_generations_advance(intake->store)) {
            return false;
        }
        moved_on(intake, symbols, now_ns);
        return true;
    }
    const bool waits = any_waits(intake);
    if (!waits && !is_filled(intake, 3)) {
        return true;
    }
    const bool has_spare = qwp_generations_want(intake->store);
    const int64_t due_ns = intake->generation_ns + (int64_t)SHARE_WAIT_MS * QWP_NS_PER_MS;
    if (waits && now_ns < due_ns) {
        *next_ns = due_ns < *next_ns ? due_ns : *next_ns;
    } else if (waits && !has_spare) {
        const int64_t again_ns = now_ns + QWP_NS_PER_MS;
        *next_ns = again_ns < *next_ns ? again_ns : *next_ns;
    }
    if (!has_spare || !(is_filled(intake, 4) || (waits && now_ns >= due_ns))) {
        return true;
    }
    qwp_generations_ask(intake->store);
    intake->more_due = true;
    return false;
}

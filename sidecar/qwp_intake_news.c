/* What intake makes of the sender's news: rows set aside are counted in the rings of those who
 * wrote them, tables without room are held. */
#include "sidecar/qwp_intake.h"

void qwp_intake_enrol(struct qwp_intake *intake, uint64_t fsn)
{
    const struct qwp_tally *tallies;
    size_t count;
    (void)qwp_framer_tallies(intake->framer, &tallies, &count); /* what is lost is asked around */
    for (size_t i = 0; i < count; i++) {
        qwp_roll_add(&intake->roll, (struct qwp_roll_note){.fsn = fsn,
                                                           .table = tallies[i].table,
                                                           .source = tallies[i].source->number,
                                                           .row_count = tallies[i].row_count});
    }
}

static void source_charge(void *owner, uint32_t number, uint64_t row_count)
{
    struct qwp_intake *intake = owner;
    for (uint32_t i = 0; i < intake->source_count; i++) {
        if (intake->sources[i]->number == number) {
            intake->sources[i]->rows_aside += row_count;
            return;
        }
    }
}

void qwp_intake_note_writers(struct qwp_intake *intake, const struct qwp_source *source,
                             uint32_t first_table)
{
    for (uint32_t i = first_table; intake->options.writers != NULL && i < source->table_count;
         i++) {
        qwp_writers_add(intake->options.writers, source->tables[i]->name, source->rx.name);
    }
}

/* Nobody knows whose they were (stored by the sidecar before us, or long ago): each producer of the
 * table is told, as far as it has rows that are not settled. Too much rather than nothing. */
static void all_charge(struct qwp_intake *intake, const struct qwp_table *table, uint64_t row_count)
{
    for (uint32_t i = 0; i < intake->source_count; i++) {
        struct qwp_source *source = intake->sources[i];
        const uint64_t open = source->rx.rows_stored - source->rx.rows_acked -
                              source->rx.rows_rejected - source->rows_aside;
        if (qwp_source_has_table(source, table)) {
            source->rows_aside += row_count < open ? row_count : open;
        }
    }
}

static void rows_aside(struct qwp_intake *intake, const struct qwp_notice *notice,
                       const struct qwp_table *table)
{
    intake->rows_aside += notice->row_count;
    const uint64_t known = qwp_roll_each(&intake->roll, notice->fsn, table, notice->first_row,
                                         notice->row_count, source_charge, intake);
    /* Without an entry in the schema no ring here has rows of the table (yet). */
    if (table != NULL && known < notice->row_count) {
        all_charge(intake, table, notice->row_count - known);
    }
}

/* All look at their next rows again. */
static void table_release(struct qwp_intake *intake, struct qwp_table *table)
{
    table->held = false;
    for (uint32_t i = 0; i < intake->source_count; i++) {
        intake->sources[i]->held = false;
    }
    intake->more_due = true;
    intake->next_visit_ns = 0;
}

bool qwp_intake_hear(struct qwp_intake *intake)
{
    struct qwp_notice notice;
    bool heard = false;
    while (intake->options.notices != NULL && qwp_notices_take(intake->options.notices, &notice)) {
        heard = true;
        struct qwp_table *table =
            qwp_schema_find(&intake->schema, (struct qwp_name){notice.name, notice.name_len});
        if (notice.kind == QWP_NOTICE_ASIDE) {
            rows_aside(intake, &notice, table);
        } else if (table != NULL && notice.kind == QWP_NOTICE_HOLD) {
            table->held = true;
        } else if (table != NULL) {
            table_release(intake, table);
        }
    }
    return heard;
}

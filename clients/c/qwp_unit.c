/* Units: records that are committed to the ring one by one and published together. All but the last
 * carry QWP_RECORD_MORE; which one is the last is known only when the unit is published. */
#include "clients/c/qwp_producer.h"

static enum qwp_result not_open(struct qwp_error *err)
{
    return qwp_fail(err, QWP_INVALID, 0, "no unit is open; qwp_unit_begin() comes first");
}

/* The next record, whatever it belongs to, may take the full bound again. */
static void unit_end(struct qwp_producer *p)
{
    p->unit = (struct qwp_unit){0};
    p->record_bytes_max = p->ring.unit_bytes_max & ~(uint32_t)(QWP_RECORD_ALIGN - 1);
}

enum qwp_result qwp_unit_begin(struct qwp_producer *producer, struct qwp_error *err)
{
    const enum qwp_result result = qwp_producer_check_open(producer, err);
    if (result != QWP_OK) {
        return result;
    }
    if (producer->unit.open) {
        return qwp_fail(err, QWP_INVALID, 0,
                        "a unit of %u rows is open already; publish or abort it first",
                        producer->unit.rows);
    }
    producer->unit.open = true;
    return QWP_OK;
}

enum qwp_result qwp_unit_publish(struct qwp_producer *producer, struct qwp_error *err)
{
    const enum qwp_result result = qwp_producer_check_open(producer, err);
    if (result != QWP_OK) {
        return result;
    }
    const struct qwp_unit unit = producer->unit;
    if (!unit.open) {
        return not_open(err);
    }
    if (!unit.dropped && qwp_producer_is_detached(producer)) {
        qwp_unit_abort(producer);
        return qwp_producer_fail_detached(producer, err);
    }
    unit_end(producer);
    if (unit.dropped) {
        qwp_rows_dropped(producer, unit.rows);
        return QWP_OK;
    }
    if (unit.rows == 0) {
        return QWP_OK;
    }
    qwp_store_u64(unit.last, qwp_load_u64(unit.last) & ~((uint64_t)QWP_RECORD_MORE << 56));
    qwp_ring_publish(&producer->ring, unit.rows);
    qwp_bell_published(&producer->bell, &producer->ring);
    return QWP_OK;
}

void qwp_unit_abort(struct qwp_producer *producer)
{
    if (qwp_producer_is_closed(producer)) {
        return;
    }
    qwp_row_forget(&producer->row);
    producer->reserved = NULL;
    qwp_ring_abort(&producer->ring);
    unit_end(producer);
}

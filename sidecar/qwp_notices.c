#include "sidecar/qwp_notices.h"

#include <string.h>

#include "core/qwp_assert.h"

bool qwp_notices_has_room(struct qwp_notices *notices)
{
    /* sync[notices.head] acquire: the place was read. */
    return atomic_load_explicit(&notices->tail, memory_order_relaxed) -
               atomic_load_explicit(&notices->head, memory_order_acquire) <
           QWP_NOTICES_MAX;
}

void qwp_notices_put(struct qwp_notices *notices, enum qwp_notice_kind kind, struct qwp_name table,
                     uint64_t fsn, uint64_t first_row, uint64_t row_count)
{
    QWP_ASSERT(qwp_notices_has_room(notices));
    QWP_ASSERT(table.len <= QWP_NOTICE_NAME_BYTES);
    const uint64_t tail = atomic_load_explicit(&notices->tail, memory_order_relaxed);
    struct qwp_notice *notice = &notices->items[tail % QWP_NOTICES_MAX];
    *notice = (struct qwp_notice){.kind = kind,
                                  .name_len = table.len,
                                  .fsn = fsn,
                                  .first_row = first_row,
                                  .row_count = row_count};
    memcpy(notice->name, table.text, table.len);
    /* sync[notices.tail] release: the notice is whole. */
    atomic_store_explicit(&notices->tail, tail + 1, memory_order_release);
}

bool qwp_notices_take(struct qwp_notices *notices, struct qwp_notice *out)
{
    const uint64_t head = atomic_load_explicit(&notices->head, memory_order_relaxed);
    /* sync[notices.tail] acquire: pairs with put(). */
    if (head == atomic_load_explicit(&notices->tail, memory_order_acquire)) {
        return false;
    }
    *out = notices->items[head % QWP_NOTICES_MAX];
    /* sync[notices.head] release: the place was read. */
    atomic_store_explicit(&notices->head, head + 1, memory_order_release);
    return true;
}

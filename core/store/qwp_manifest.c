#include "core/store/qwp_manifest.h"

enum { TURN_FREE = 0, TURN_TAKEN = 1, TURN_AGAIN = 2 };

/* sync[manifest.turn]: whoever changes FREE has the turn until it changes it back. Whoever finds it
 * taken has stored its value before leaving AGAIN, and the owner cannot free the turn without
 * having read AGAIN, and so the value (acquire and release on the same word). */
bool qwp_manifest_write(struct qwp_manifest *manifest)
{
    if (atomic_exchange_explicit(&manifest->turn, TURN_AGAIN, memory_order_acq_rel) != TURN_FREE) {
        return false;
    }
    uint32_t taken = TURN_TAKEN;
    do {
        atomic_exchange_explicit(&manifest->turn, TURN_TAKEN, memory_order_acq_rel);
        qwp_dual_put(&manifest->dual, atomic_load_explicit(&manifest->head, memory_order_relaxed),
                     atomic_load_explicit(&manifest->active, memory_order_relaxed));
        taken = TURN_TAKEN;
    } while (!atomic_compare_exchange_strong_explicit(&manifest->turn, &taken, TURN_FREE,
                                                      memory_order_acq_rel, memory_order_relaxed));
    return true;
}

bool qwp_manifest_set_head(struct qwp_manifest *manifest, uint64_t base)
{
    atomic_store_explicit(&manifest->head, (int64_t)base, memory_order_relaxed);
    return qwp_manifest_write(manifest);
}

bool qwp_manifest_set_active(struct qwp_manifest *manifest, uint64_t base)
{
    atomic_store_explicit(&manifest->active, (int64_t)base, memory_order_relaxed);
    return qwp_manifest_write(manifest);
}

/* qwp_manifest: which segments a slot consists of: base FSN of the first and of the active one.
 *
 * Threads:  two writers, which the format forces on us: it puts both values into one record, the
 *           first moves when the keeper trims and the second when the writer rotates. Neither may
 *           wait for the other. So each stores its own value and then takes its turn at writing the
 *           record; who finds the other at it leaves a note, and the other writes the record again,
 *           with both values. sync[manifest.turn].
 * Progress: wait-free, no system call: some 100 ns.
 * Crash:    set() that returned false: the record follows within the other's store, some 50 ns
 *           later. Should the process end in between, a manifest that is one rotation behind is
 *           left, which our recovery accepts. */
#ifndef QWP_MANIFEST_H
#define QWP_MANIFEST_H

#include <stdatomic.h>

#include "core/store/qwp_dual.h"

struct qwp_manifest {
    struct qwp_dual dual; /* of whoever has the turn */
    /* writer: keeper (head), writer (active). readers: both, with the turn. */
    _Atomic int64_t head, active;
    /* both: see qwp_manifest.c. */
    _Atomic uint32_t turn;
};

/* Each stores one value and writes the record. True: it is in the file now. */
bool qwp_manifest_set_head(struct qwp_manifest *manifest, uint64_t base);
bool qwp_manifest_set_active(struct qwp_manifest *manifest, uint64_t base);
/* Writes the record again, for the sake of a sync that failed. */
bool qwp_manifest_write(struct qwp_manifest *manifest);

#endif

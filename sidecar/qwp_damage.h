/* qwp_damage: lines in the log about damage in a store, whoever opened it. */
#ifndef QWP_DAMAGE_H
#define QWP_DAMAGE_H

#include "core/store/qwp_seglog.h"

/* `store`: the slot, for people. What its recovery went around, if anything. */
void qwp_damage_log_recovered(const char *store, const struct qwp_seglog_recovery *recovered);
/* What was found since. */
void qwp_damage_log_found(const char *store, const struct qwp_seglog_damage *damage);

#endif

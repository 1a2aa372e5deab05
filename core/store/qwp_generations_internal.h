/* qwp_generations_internal: what qwp_generations.c and qwp_generations_open.c share. */
#ifndef QWP_GENERATIONS_INTERNAL_H
#define QWP_GENERATIONS_INTERNAL_H

#include "core/store/qwp_generations.h"

/* The keeper's, which writes it. */
static inline struct qwp_generation *qwp_generation_next(const struct qwp_generation *generation)
{
    return atomic_load_explicit(&generation->next, memory_order_relaxed);
}

static inline bool qwp_generation_waits(const struct qwp_generation *one)
{
    return qwp_seglog_acked_count(one->log) != qwp_seglog_published_count(one->log);
}

/* Reader. Says how far it is. While some slot but the newest waits, no number of the newest is
 * reached. */
void qwp_generations_acked_show(struct qwp_generations *g);
/* Keeper. What the log of a generation that goes has counted stays counted. */
void qwp_generations_counters_keep(struct qwp_generations *g,
                                   const struct qwp_generation *generation);

/* A fresh slot behind the newest one, ready to be begun at any number; not in the list. */
enum qwp_result qwp_generations_spare_make(struct qwp_generations *g, struct qwp_generation **out,
                                           struct qwp_error *err);
void qwp_generations_append(struct qwp_generations *g, struct qwp_generation *generation);
/* The one behind `before`, which nobody uses any more, leaves the list and the disk. */
void qwp_generations_remove_behind(struct qwp_generations *g, struct qwp_generation *before);

#endif

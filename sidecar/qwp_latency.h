/* qwp_latency: how long frames take: from the first sight of their rows to the store, and from
 * there to the acknowledgement. Into the histograms of the control file.
 *
 * One observation a frame, and no clock read a row. The sidecar cannot know when a row was
 * published; it knows when it first saw it: "seen" is the visit of the ring that found a frame's
 * oldest row. While the sidecar is awake that is a few microseconds after the publish, and when it
 * was parked, the time that waking takes is not in the figure.
 *
 * Where something is not known exactly, the figure is longer than the truth, never shorter: of a
 * ring two first sights are kept, not one for each row; and of frames that wait at most
 * QWP_LATENCY_MAX entries, by merging neighbours, which then count from the older's times.
 *
 * Threads: intake's. */
#ifndef QWP_LATENCY_H
#define QWP_LATENCY_H

#include <stdint.h>

#include "ipc/qwp_control_layout.h"

enum { QWP_LATENCY_MAX = 256 };

struct qwp_latency_entry {
    uint64_t fsn;    /* of the last frame in it */
    uint64_t frames; /* 0: not of this life, so that nothing is known of them */
    int64_t seen_ns;
    int64_t stored_ns;
};

/* A queue, oldest first. */
struct qwp_latency {
    struct qwp_control_header *page; /* borrowed */
    uint32_t first, count;
    struct qwp_latency_entry items[QWP_LATENCY_MAX];
};

/* `published_count` and `acked_count`: of the log. What waits in it waits since now, as far as
 * anyone knows. */
void qwp_latency_init(struct qwp_latency *latency, struct qwp_control_header *page,
                      uint64_t published_count, uint64_t acked_count, int64_t now_ns);
/* Frame `fsn` was published. */
void qwp_latency_stored(struct qwp_latency *latency, uint64_t fsn, int64_t seen_ns, int64_t now_ns);
/* Frames below acked_count are acknowledged. */
void qwp_latency_acked(struct qwp_latency *latency, uint64_t acked_count, int64_t now_ns);

/* Upper edge of a bucket of struct qwp_control_latency; QWP_NEVER_NS for the last. */
int64_t qwp_latency_bucket_ns(uint32_t bucket);

/* When the rows that wait in a ring were first seen. Zero: none wait. */
struct qwp_sights {
    int64_t oldest_ns; /* of those before newer_pos no later than this */
    int64_t newer_ns;  /* 0: one sight serves all; else those from newer_pos on since this */
    uint64_t newer_pos;
};

/* The ring's rows from `from_pos` on were seen now for the first time; it is drained up to
 * `head_pos`. */
void qwp_sights_saw(struct qwp_sights *sights, uint64_t head_pos, uint64_t from_pos,
                    int64_t now_ns);
/* It was drained up to `head_pos`; what was seen ends at `seen_pos`. */
void qwp_sights_took(struct qwp_sights *sights, uint64_t head_pos, uint64_t seen_pos);

#endif

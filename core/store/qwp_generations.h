/* qwp_generations: the store of one sender: a row of slots, each with a dictionary of its own.
 *
 * A server takes a bounded number of symbols over one connection, and each reconnect sends all of
 * them again. Frames on disk refer to symbols by number, so a full dictionary cannot be emptied:
 * a new one needs a new slot. A generation is such a slot: `<name>`, `<name>.g2`, `<name>.g3`, ...
 *
 *   home ... reader ... ... writer  (spare)
 *   |- left -|- waits ----|- appended to, then the one made ahead
 *
 * The writer leaves a generation between two frames and never comes back. The reader leaves one
 * when all of its frames are acknowledged, and connects anew for the next. One that both have left
 * is removed, directory and all; but not the first, whose lock says that this sender runs, and
 * which other clients know: it stays, locked and without a segment.
 *
 * FSNs go on from one generation to the next: the first frame of one has the number behind the last
 * frame of the one before. So numbers are those of the whole store, they only grow, without gaps
 * and in the order of sending, and what counts frames or keeps their numbers (notes, progress of
 * rings, rows set aside) knows nothing of generations. The price is that a generation can begin
 * only when the one before has its last frame: the writer asks (qwp_generations_ask()) and takes
 * no rows until the keeper has put the number into the slot that was made ahead, which is a few
 * stores. Where another client has appended to the first slot meanwhile, so that numbers would
 * meet, the newest is left at open and a fresh one begins behind all; qwp_generations_acked() then
 * stays below every number of a slot that is not drained.
 *
 * Where the newest one has lost its dictionary and has so much waiting that finding the symbols in
 * its frames would keep a start waiting (recovery.lacks_symbols), open begins another behind it at
 * once, and the reader goes through the old one first as through any other.
 *
 * Cursors stay right across a switch. A note is for a slot and an FSN; it counts if that slot holds
 * that frame. The last frame of the old slot is published and the heads of its rings are moved
 * before the writer moves on, so a crash between two slots finds every ring where its head or its
 * note says; a note for the first frame of the new slot, not published, names an FSN that the slot
 * does not have, and is erased. A removed slot takes the validity of its notes with it, so nothing
 * is removed before every ring has gone on from its note (qwp_generations_rings_resumed()): from
 * then on the heads themselves say as much.
 *
 * Threads:  writer (intake) is one thread; reader and keeper are one thread, which opened it too;
 *           all may be the same. sync[generations.next]: a generation that the writer may move to.
 *           sync[generations.writer]: the writer has left all generations below that number.
 *           sync[generations.asked]: and appends to its own no more.
 *           sync[generations.published], sync[generations.acked]: counts, for any thread.
 * Progress: writer's and reader's calls are those of the log and a few words more. Making and
 *           removing a slot and reading a dictionary again are the keeper's: some milliseconds.
 * Crash:    at any point. A generation that was made and not used is an empty slot; one that is
 *           being removed has been renamed first, and what is left of it goes at the next open. */
#ifndef QWP_GENERATIONS_H
#define QWP_GENERATIONS_H

#include "core/store/qwp_seglog.h"

/* Each has some descriptors. With so many waiting, the last one takes what the server's limit still
 * allows, and then rows with new symbols wait. */
enum { QWP_GENERATIONS_MAX = 64, QWP_GENERATION_NAME_BYTES = 256 };

struct qwp_generation {
    struct qwp_seglog *log; /* NULL: the first one, hollow */
    int lock_fd;            /* of that */
    uint32_t number;        /* 1: no suffix */
    char name[QWP_GENERATION_NAME_BYTES];
    /* writer: keeper, once. readers: writer, keeper. sync[generations.next] */
    _Atomic(struct qwp_generation *) next;
};

struct qwp_generations_options {
    const char *parent; /* directory that holds the slots */
    const char *name;   /* of the first one */
    const char *shown;  /* parent in messages; NULL: parent */
    bool is_durable;    /* new names in `parent` are synced */
    /* dir, name and budget are set here; total_bytes_max is of all */
    struct qwp_seglog_options log;
};

struct qwp_generations {
    /* const after open */
    struct qwp_seglog_options log_options;
    bool is_durable;
    char parent[4096], shown[4096], first_name[QWP_GENERATION_NAME_BYTES];
    const struct qwp_sys *sys;
    struct qwp_store_budget budget;

    /* writer: intake. Private. */
    struct qwp_generation *writer;
    /* writer: intake. readers: any. */
    _Atomic uint64_t published;     /* sync[generations.published] */
    _Atomic uint32_t writer_number; /* sync[generations.writer] */
    _Atomic uint32_t asked_number;  /* its generation is to end; sync[generations.asked] */
    _Atomic bool wanted;            /* relaxed: a wish */
    _Atomic bool has_news;          /* for reader and keeper; relaxed, whoever sets it wakes them */
    _Atomic bool rings_resumed;     /* sync[generations.resumed] */
    /* writer: keeper. reader: intake. relaxed: without one a question would take long. */
    _Atomic bool has_spare;

    /* writer: reader, keeper. Private. */
    struct qwp_generation *home, *reader, *newest;
    struct qwp_generation *spare; /* made ahead; not in the list yet */
    uint32_t count;               /* the spare too */
    int64_t retry_ns;             /* nothing is made or hollowed before that */
    struct qwp_error error;       /* of the last failure in that */
    bool failing;
    struct qwp_seglog_stats gone; /* counters of those that were closed */
    /* writer: reader. readers: any. */
    _Atomic uint64_t acked; /* sync[generations.acked] */
};

/* Opens all generations that are there, or makes the first one. Errors as qwp_seglog_open(). */
QWP_MUST_USE enum qwp_result qwp_generations_open(struct qwp_generations *generations,
                                                  const struct qwp_generations_options *options,
                                                  struct qwp_error *err);
/* A zeroed one is fine. */
void qwp_generations_close(struct qwp_generations *generations);
/* Whether `name` is that of a generation of the sender `first`. */
bool qwp_generations_owns(const char *first, const char *name);

/* Any thread: as those of the log, for the whole store. */
uint64_t qwp_generations_published(const struct qwp_generations *generations);
uint64_t qwp_generations_acked(const struct qwp_generations *generations);
/* Frames that are not acknowledged. */
uint64_t qwp_generations_waiting(const struct qwp_generations *generations);

/* Writer. The log to append to; its publish() goes through here. */
struct qwp_seglog *qwp_generations_writer(const struct qwp_generations *generations);
uint64_t qwp_generations_publish(struct qwp_generations *generations);
/* A next generation is due soon: one is made ahead. True: there is one. */
bool qwp_generations_want(struct qwp_generations *generations);
/* Nothing more is appended to this one. Only with one made ahead, and no reservation open. */
void qwp_generations_ask(struct qwp_generations *generations);
bool qwp_generations_is_asked(const struct qwp_generations *generations);
/* Moves on. False: not yet. */
bool qwp_generations_advance(struct qwp_generations *generations);
/* Every ring has gone on from its note. */
void qwp_generations_rings_resumed(struct qwp_generations *generations);

/* Reader. The log to send from, and what is settled in it. */
struct qwp_seglog *qwp_generations_reader(const struct qwp_generations *generations);
void qwp_generations_ack(struct qwp_generations *generations, uint64_t fsn);
/* All of the reader's log is acknowledged and the writer has left it. */
bool qwp_generations_is_drained(const struct qwp_generations *generations);
/* Moves on to the next one, whose dictionary is read if need be (QWP_IO, QWP_NOMEM: stays). */
QWP_MUST_USE enum qwp_result qwp_generations_step(struct qwp_generations *generations,
                                                  struct qwp_error *err);

/* Reader and keeper: whether the writer has asked for something or moved on, since the last call;
 * any thread may look without taking it. */
bool qwp_generations_take_news(struct qwp_generations *generations);
bool qwp_generations_has_news(const struct qwp_generations *generations);

/* Keeper. As those of the log, for all of them; and makes and removes generations. *began: the
 * writer may move on now. */
void qwp_generations_maintain(struct qwp_generations *generations, int64_t now_ns, bool *more,
                              int64_t *next_ns, bool *began);
bool qwp_generations_wants_check(const struct qwp_generations *generations);
bool qwp_generations_take_damage(struct qwp_generations *generations,
                                 struct qwp_seglog_damage *damage, const char **name);
enum qwp_keeper_state qwp_generations_keeper_state(const struct qwp_generations *generations);
const struct qwp_error *qwp_generations_keeper_error(const struct qwp_generations *generations);
QWP_MUST_USE enum qwp_result qwp_generations_flush(struct qwp_generations *generations,
                                                   struct qwp_error *err);
/* Keeper. Sums over all; segments_active counts the generations. */
void qwp_generations_stats(const struct qwp_generations *generations, struct qwp_seglog_stats *out);

#endif

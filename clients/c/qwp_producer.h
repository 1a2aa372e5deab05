/* qwp_producer: what the files of the producer library share; qwp.h is the contract.
 *
 *   qwp_producer.c   open, close, fork, room in the ring, what the sidecar says
 *   qwp_table.c      tables, their columns and shapes; symbols
 *   qwp_row.c        rows column by column: begin and end
 *   qwp_row_take.c   which column may be set, and what is wrong when it may not
 *   qwp_row_set.c    the setters
 *   qwp_layout.c     rows at known places
 *   qwp_chunk.c      rows as columns
 *   qwp_chunk_put.c  one column of them
 *   qwp_unit.c       several rows as one
 *   qwp_progress.c   stored, acked
 *
 * A record is formed at the ring's write position, which nobody reads before it is published; so a
 * row that is dropped costs nothing and leaves nothing. Only one is formed at a time: `row` or
 * `reserved`. Where the ring has no room yet, or parts come in another order than the columns, the
 * row goes through `stage` instead.
 *
 * Fork: the child's handler closes the ring's descriptors and zeroes what the fast paths compare
 * with (data_bytes, record_bytes_max), so that each of them ends in a slow path that finds the ring
 * closed. The fast paths pay nothing for it. */
#ifndef QWP_PRODUCER_H
#define QWP_PRODUCER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "clients/c/qwp.h"
#include "clients/c/qwp_name_map.h"
#include "clients/c/qwp_row.h"
#include "clients/c/qwp_symbols.h"
#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "core/qwp_shape.h"
#include "ipc/qwp_bell.h"
#include "ipc/qwp_ring.h"

enum { QWP_AT_COUNT = 4 }; /* indexed by enum qwp_at */

struct qwp_table {
    struct qwp_producer *producer;
    struct qwp_shape *shape;        /* the columns so far, with a designated timestamp */
    struct qwp_row_column *columns; /* and one of no type behind the last */
    uint64_t *types;                /* of the columns, a byte each, zero beyond */
    uint32_t fixed_bytes;
    uint32_t null_words;
    uint32_t column_count;
    uint32_t last_shift; /* of the last row: what the next one will probably have */
    /* The ring's shape index by kind of designated timestamp, of this version of the table. */
    uint16_t shape_index[QWP_AT_COUNT];
    bool shape_defined[QWP_AT_COUNT];
    struct qwp_name_map names;
};

struct qwp_unit {
    bool open;
    bool dropped;        /* found no room under QWP_FULL_DROP; goes on counting */
    uint32_t rows;       /* kept, or to be counted as dropped */
    unsigned char *last; /* its record; carries QWP_RECORD_MORE until the unit is published */
};

struct qwp_layout {
    struct qwp_layout *next;
    struct qwp_shape *shape;
    uint64_t head; /* the record's first word but for its size */
    uint32_t fixed_bytes;
    uint32_t null_words;
    uint32_t at_off; /* of the designated timestamp; 0 (a word that passes) when there is none */
    uint64_t at_max;
    uint32_t column_count;
    uint32_t offs[];
};

struct qwp_producer {
    struct qwp_ring_tx ring; /* header NULL: the parent's, not ours */
    struct qwp_bell_tx bell;
    uint32_t guard; /* of the ring's mapping, see ipc/qwp_guard.h */
    /* What the next record may take: unit_bytes_max less what the open unit holds. */
    uint32_t record_bytes_max;
    const struct qwp_layout *reserved;
    uint32_t reserved_bytes;
    struct qwp_unit unit;
    struct qwp_symbols symbols;
    uint64_t symbol_bytes_max; /* definitions beyond are kept for shapes */
    size_t symbol_len_full;    /* texts of this length or more found no room */
    enum qwp_on_full on_full;
    int64_t full_wait_ns_max;
    uint64_t rows_dropped;
    uint64_t full_waits;
    uint64_t rejected_told;
    pid_t pid;
    unsigned char *stage;   /* a row that cannot be formed in the ring; unit_bytes_max + 8 */
    unsigned char *reorder; /* likewise, while parts are put in order */
    struct qwp_table **tables;
    uint32_t table_count;
    struct qwp_name_map table_names;
    struct qwp_layout *layouts;
    struct qwp_producer *next; /* all open ones of this process */
    struct qwp_producer **link;
    struct qwp_row row;
};

/* ---- qwp_producer.c ---- */

/* QWP_CLOSED: a forked child's. */
static inline bool qwp_producer_is_closed(const struct qwp_producer *producer)
{
    return producer->ring.header == NULL;
}
QWP_MUST_USE enum qwp_result qwp_producer_check_open(const struct qwp_producer *producer,
                                                     struct qwp_error *err);
/* QWP_CLOSED with the reason the sidecar gave. */
/* What qwp_consumer_state() says, for a message. */
const char *qwp_consumer_text(struct qwp_producer *producer);
enum qwp_result qwp_producer_fail_detached(const struct qwp_producer *producer,
                                           struct qwp_error *err);
static inline bool qwp_producer_is_detached(const struct qwp_producer *producer)
{
    return atomic_load_explicit(&producer->ring.header->state, memory_order_relaxed) >=
           QWP_RING_DETACHED;
}
/* Room for one record of `bytes`, a multiple of 8 above 0, and `rows` rows at qwp_room_at(): looks
 * again, then does what on_full says. QWP_AGAIN under QWP_FULL_DROP: the rows are counted, or the
 * open unit dropped. */
QWP_MUST_USE enum qwp_result qwp_room_get(struct qwp_producer *producer, uint64_t bytes,
                                          uint32_t rows, struct qwp_error *err);
/* Rows that found no room, told to whoever looks at the ring. */
void qwp_rows_dropped(struct qwp_producer *producer, uint32_t rows);

/* Whether there is room for one record of `bytes`, a multiple of 8 above 0, by the last head seen.
 */
static inline bool qwp_room_is_known(const struct qwp_producer *producer, uint64_t bytes)
{
    const struct qwp_ring_tx *ring = &producer->ring;
    return bytes <= producer->record_bytes_max &&
           ring->write_pos + bytes - ring->head_seen_pos <= ring->data_bytes;
}

/* Where the next record goes. */
static inline unsigned char *qwp_room_at(const struct qwp_producer *producer)
{
    return producer->ring.data + (producer->ring.write_pos & producer->ring.data_mask);
}

/* The first word of a record without its size. */
static inline uint64_t qwp_record_head(uint16_t shape, uint32_t flags)
{
    return (uint64_t)shape << 32 | (uint64_t)QWP_RECORD_ROW << 48 | (uint64_t)flags << 56;
}

/* The record at write_pos becomes part of the open unit. */
static inline void qwp_unit_keep(struct qwp_producer *producer, unsigned char *at, uint64_t head,
                                 uint32_t bytes, uint32_t rows)
{
    qwp_store_u64(at, head | (uint64_t)QWP_RECORD_MORE << 56);
    qwp_ring_commit(&producer->ring, bytes);
    producer->record_bytes_max -= bytes;
    producer->unit.last = at;
    producer->unit.rows += rows;
}

/* The record of `rows` rows at write_pos is whole but for its first word: publishes it, or keeps it
 * for the unit. QWP_CLOSED: the sidecar detached this ring, nothing was published. */
static inline enum qwp_result qwp_records_end(struct qwp_producer *producer, unsigned char *at,
                                              uint64_t head, uint32_t bytes, uint32_t rows)
{
    head |= bytes;
    if (QWP_UNLIKELY(producer->unit.open)) {
        qwp_unit_keep(producer, at, head, bytes, rows);
        return QWP_OK;
    }
    if (QWP_UNLIKELY(qwp_producer_is_detached(producer))) {
        return QWP_CLOSED;
    }
    qwp_store_u64(at, head);
    qwp_ring_commit(&producer->ring, bytes);
    qwp_ring_publish(&producer->ring, rows);
    qwp_bell_published(&producer->bell, &producer->ring);
    return QWP_OK;
}

static inline enum qwp_result qwp_record_end(struct qwp_producer *producer, unsigned char *at,
                                             uint64_t head, uint32_t bytes)
{
    return qwp_records_end(producer, at, head, bytes, 1);
}

/* ---- qwp_table.c ---- */

/* Defines the table's present shape with this kind of timestamp in the ring, unless it is there. */
QWP_MUST_USE enum qwp_result qwp_table_shape(struct qwp_table *table, enum qwp_at at,
                                             struct qwp_error *err);
void qwp_tables_destroy(struct qwp_producer *producer);
/* Interns a text that is not known yet. QWP_LIMIT: it must travel as text; it is valid UTF-8. */
QWP_MUST_USE enum qwp_result qwp_symbol_define(struct qwp_producer *producer, const char *text,
                                               size_t len, uint32_t *index, struct qwp_error *err);

/* ---- qwp_layout.c ---- */

/* 0: no timestamp of this kind is out of range. */
static inline uint64_t qwp_at_max(enum qwp_at at)
{
    return at == QWP_AT_NS   ? (uint64_t)QWP_DESIGNATED_NS_MAX
           : at == QWP_AT_US ? (uint64_t)QWP_DESIGNATED_US_MAX
                             : UINT64_MAX;
}
static inline uint8_t qwp_at_type(enum qwp_at at)
{
    return at == QWP_AT_NS   ? QWP_TYPE_TIMESTAMP_NANOS
           : at == QWP_AT_US ? QWP_TYPE_TIMESTAMP
                             : QWP_TYPE_NONE;
}
void qwp_layouts_destroy(struct qwp_producer *producer);

/* ---- qwp_row_set.c ---- */

/* Whether a decimal of 1, 2 or 4 words has no more digits than its type holds. */
bool qwp_decimal_fits(const uint64_t *words, size_t word_count);

#endif

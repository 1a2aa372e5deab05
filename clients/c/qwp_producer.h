/* qwp_producer: what the files of the producer library share; qwp.h is the contract.
 *
 *   qwp_producer.c   open, close, fork, room in the ring, what the sidecar says
 *   qwp_table.c      tables, their columns and shapes; symbols
 *   qwp_row.c        rows column by column
 *   qwp_layout.c     rows at known places
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
#include "clients/c/qwp_symbols.h"
#include "core/qwp_bytes.h"
#include "core/qwp_record_layout.h"
#include "core/qwp_shape.h"
#include "ipc/qwp_bell.h"
#include "ipc/qwp_ring.h"

#define QWP_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define QWP_UNLIKELY(condition) __builtin_expect(!!(condition), 0)

enum { QWP_NULL_WORDS_MAX = QWP_COLUMNS_MAX / 64 };
enum { QWP_AT_COUNT = 4 }; /* indexed by enum qwp_at */

/* What a setter needs to know of a column; small, as many tables may be written in turn. */
struct qwp_row_column {
    uint32_t off;
    uint16_t var_index;
    uint16_t parameter;
};

struct qwp_table {
    struct qwp_producer *producer;
    struct qwp_shape *shape; /* the columns so far, with a designated timestamp */
    struct qwp_row_column *columns;
    uint8_t *types; /* one a column, and QWP_TYPE_NONE behind the last */
    uint32_t fixed_bytes;
    uint32_t null_words;
    uint32_t column_count;
    enum qwp_at last_at; /* as the last row ended: what the next one probably will */
    /* The ring's shape index by kind of designated timestamp, of this version of the table. */
    uint16_t shape_index[QWP_AT_COUNT];
    bool shape_defined[QWP_AT_COUNT];
    struct qwp_name_map names;
};

enum {
    QWP_CARE_FAILED = 0x01,    /* `result` and maybe `error` say why */
    QWP_CARE_STAGED = 0x02,    /* base is the producer's stage */
    QWP_CARE_SCATTERED = 0x04, /* columns do not come in rising order: see `nulls` */
    QWP_CARE_UNORDERED = 0x08, /* and neither do parts */
    QWP_CARE_NULLS = 0x10,     /* explicit_null is in use */
};

#define QWP_NEXT_NONE UINT64_MAX

/* The open row. Most rows set their columns in rising order, and then a setter needs one number to
 * know that nothing is set twice, that parts come in order, and which columns are null: `next`.
 *
 * A bit for each column set, always kept, was slower by a third (TSBS row): setters then wait for
 * each other's word to come back from the store buffer. So those bits are for scattered rows. */
struct qwp_row {
    /* Places count from `base` as if the row had a designated timestamp. One without begins
     * `shift` = 8 bytes later, and all its fields are where they should be. */
    unsigned char *base;
    const struct qwp_row_column *columns;
    const uint8_t *types;
    struct qwp_table *table; /* NULL: no row is open */
    /* The column that may be set on the fast path, column_count when all are; closed, failed or
     * scattered: QWP_NEXT_NONE, which no column equals, so that setters take their slow path. */
    uint64_t next;
    uint32_t used_bytes;  /* fixed part and parts so far, from base */
    uint32_t limit_bytes; /* may be used, from base */
    uint32_t shift;
    /* Cleared together by begin. */
    uint32_t care;       /* QWP_CARE_* */
    uint32_t flags;      /* QWP_RECORD_SYMBOL_TEXT */
    uint32_t name_guess; /* column that qwp_row_column() tries first */
    uint32_t next_var;   /* scattered: parts with a lower var_index come out of order */
    /* Bit c: column c has not been set. Below `next` only; scattered: of all columns. */
    uint64_t nulls[QWP_NULL_WORDS_MAX];
    uint64_t explicit_null[QWP_NULL_WORDS_MAX]; /* set to null by the caller: not to be set again */
    uint32_t part_off[QWP_COLUMNS_MAX];         /* by var_index, of the parts set */
    enum qwp_result result;
    struct qwp_error error;
};

struct qwp_unit {
    bool open;
    bool dropped;        /* found no room under QWP_FULL_DROP; goes on counting */
    uint32_t rows;       /* kept, or to be counted as dropped */
    unsigned char *last; /* its record; carries QWP_RECORD_MORE until the unit is published */
};

struct qwp_layout {
    struct qwp_layout *next;
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
enum qwp_result qwp_producer_fail_detached(const struct qwp_producer *producer,
                                           struct qwp_error *err);
static inline bool qwp_producer_is_detached(const struct qwp_producer *producer)
{
    return atomic_load_explicit(&producer->ring.header->state, memory_order_relaxed) >=
           QWP_RING_DETACHED;
}
/* The slow half of qwp_room(): looks again, then does what on_full says. QWP_AGAIN under
 * QWP_FULL_DROP: the row is counted, or the open unit is dropped. */
QWP_MUST_USE enum qwp_result qwp_room_slow(struct qwp_producer *producer, uint64_t bytes,
                                           unsigned char **at, struct qwp_error *err);

/* Room for one record of `bytes`, a multiple of 8 above 0. */
static inline enum qwp_result qwp_room(struct qwp_producer *producer, uint64_t bytes,
                                       unsigned char **at, struct qwp_error *err)
{
    const struct qwp_ring_tx *ring = &producer->ring;
    if (QWP_UNLIKELY(bytes > producer->record_bytes_max ||
                     ring->write_pos + bytes - ring->head_seen_pos > ring->data_bytes)) {
        return qwp_room_slow(producer, bytes, at, err);
    }
    *at = ring->data + (ring->write_pos & ring->data_mask);
    return QWP_OK;
}

/* The first word of a record without its size. */
static inline uint64_t qwp_record_head(uint16_t shape, uint32_t flags)
{
    return (uint64_t)shape << 32 | (uint64_t)QWP_RECORD_ROW << 48 | (uint64_t)flags << 56;
}

/* The record at write_pos becomes part of the open unit. */
static inline void qwp_unit_keep(struct qwp_producer *producer, unsigned char *at, uint64_t head,
                                 uint32_t bytes)
{
    qwp_store_u64(at, head | (uint64_t)QWP_RECORD_MORE << 56);
    qwp_ring_commit(&producer->ring, bytes);
    producer->record_bytes_max -= bytes;
    producer->unit.last = at;
    producer->unit.rows++;
}

/* The record at write_pos is whole but for its first word: publishes it, or keeps it for the unit.
 * QWP_CLOSED: the sidecar detached this ring, nothing was published. */
static inline enum qwp_result qwp_record_end(struct qwp_producer *producer, unsigned char *at,
                                             uint64_t head, uint32_t bytes)
{
    head |= bytes;
    if (QWP_UNLIKELY(producer->unit.open)) {
        qwp_unit_keep(producer, at, head, bytes);
        return QWP_OK;
    }
    if (QWP_UNLIKELY(qwp_producer_is_detached(producer))) {
        return QWP_CLOSED;
    }
    qwp_store_u64(at, head);
    qwp_ring_commit(&producer->ring, bytes);
    qwp_ring_publish(&producer->ring, 1);
    qwp_bell_published(&producer->bell, &producer->ring);
    return QWP_OK;
}

/* ---- qwp_table.c ---- */

/* Defines the table's present shape with this kind of timestamp in the ring, unless it is there. */
QWP_MUST_USE enum qwp_result qwp_table_shape(struct qwp_table *table, enum qwp_at at,
                                             struct qwp_error *err);
void qwp_tables_destroy(struct qwp_producer *producer);
/* Interns a text that is not known yet. QWP_LIMIT: it must travel as text; it is valid UTF-8. */
QWP_MUST_USE enum qwp_result qwp_symbol_define(struct qwp_producer *producer, const char *text,
                                               size_t len, uint32_t *index, struct qwp_error *err);

/* ---- qwp_row.c ---- */

/* Forgets an open row, or a failed one. */
static inline void qwp_row_forget(struct qwp_row *row)
{
    row->table = NULL;
    row->next = QWP_NEXT_NONE;
}

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

#endif

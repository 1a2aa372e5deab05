#include "sidecar/qwp_durable.h"

#include <assert.h>
#include <stdlib.h>

#include "core/qwp_assert.h"
#include "core/store/qwp_dict.h"
#include "transport/qwp_session.h"

/* Beyond this many pairs OKs are joined; what is joined holds each table once. */
enum { PAIRS_APART_MAX = QWP_DURABLE_PAIRS_MAX / 2 };
static_assert(PAIRS_APART_MAX + 2 * QWP_DURABLE_TABLES_MAX <= QWP_DURABLE_PAIRS_MAX,
              "one more OK and a joined one fit");
#define NAMES_BYTES_MAX (UINT64_C(4) * 1024 * 1024)

enum qwp_result qwp_durable_open(struct qwp_durable *durable, struct qwp_error *err)
{
    *durable = (struct qwp_durable){
        .tables = calloc(QWP_DURABLE_TABLES_MAX, sizeof *durable->tables),
        .oks = calloc(QWP_DURABLE_OKS_MAX, sizeof *durable->oks),
        .pairs = calloc(QWP_DURABLE_PAIRS_MAX, sizeof *durable->pairs),
    };
    if (durable->tables == NULL || durable->oks == NULL || durable->pairs == NULL) {
        qwp_durable_close(durable);
        return qwp_fail(err, QWP_NOMEM, 0, "durable acknowledgements: out of memory");
    }
    return QWP_OK;
}

void qwp_durable_close(struct qwp_durable *durable)
{
    qwp_dict_destroy(durable->names);
    free(durable->tables);
    free(durable->oks);
    free(durable->pairs);
    *durable = (struct qwp_durable){0};
}

void qwp_durable_reset(struct qwp_durable *durable)
{
    durable->ok_first = durable->ok_end = 0;
    durable->pair_end = 0;
    qwp_dict_destroy(durable->names);
    durable->names = NULL;
}

static enum qwp_result find_table(struct qwp_durable *durable, const char *name, size_t len,
                                  uint32_t *id)
{
    enum qwp_result result = QWP_OK;
    if (durable->names == NULL) {
        result = qwp_dict_create(&durable->names, QWP_DURABLE_TABLES_MAX, NAMES_BYTES_MAX, NULL);
        if (result != QWP_OK) {
            return result;
        }
    }
    const uint32_t known = qwp_dict_count(durable->names);
    result = qwp_dict_intern(durable->names, name, len, id);
    if (result == QWP_OK && *id == known) {
        durable->tables[*id] = (struct qwp_durable_table){.durable_txn = -1};
    }
    return result;
}

/* The table at *at in an answer, and its transaction; moves *at. */
static enum qwp_result next_table(struct qwp_durable *durable, const unsigned char **at,
                                  const unsigned char *end, uint32_t *id, int64_t *txn)
{
    const char *name;
    uint16_t len;
    *at = qwp_ack_table_next(*at, end, &name, &len, txn);
    return find_table(durable, name, len, id);
}

static struct qwp_durable_ok *ok_at(const struct qwp_durable *durable, uint64_t pos)
{
    return &durable->oks[pos % QWP_DURABLE_OKS_MAX];
}

static struct qwp_durable_pair *pair_at(const struct qwp_durable *durable, uint64_t pos)
{
    return &durable->pairs[pos % QWP_DURABLE_PAIRS_MAX];
}

/* The OK that is filled: a fresh one, or the last one again. */
static struct qwp_durable_ok *ok_begin(struct qwp_durable *durable)
{
    const uint64_t count = durable->ok_end - durable->ok_first;
    const bool waiting = count > 0;
    const uint64_t pairs =
        waiting ? durable->pair_end - ok_at(durable, durable->ok_first)->pair_begin : 0;
    if (!waiting || (count < QWP_DURABLE_OKS_MAX && pairs < PAIRS_APART_MAX)) {
        *ok_at(durable, durable->ok_end++) =
            (struct qwp_durable_ok){.pair_begin = durable->pair_end, .pair_end = durable->pair_end};
    }
    return ok_at(durable, durable->ok_end - 1);
}

static void pair_put(struct qwp_durable *durable, struct qwp_durable_ok *ok, uint32_t table,
                     int64_t txn)
{
    struct qwp_durable_table *known = &durable->tables[table];
    if (known->pair_pos > ok->pair_begin) {
        struct qwp_durable_pair *pair = pair_at(durable, known->pair_pos - 1);
        QWP_ASSERT(pair->table == table);
        pair->txn = txn > pair->txn ? txn : pair->txn;
        return;
    }
    *pair_at(durable, durable->pair_end++) = (struct qwp_durable_pair){.table = table, .txn = txn};
    known->pair_pos = ok->pair_end = durable->pair_end;
}

enum qwp_result qwp_durable_ok(struct qwp_durable *durable, uint64_t fsn_end,
                               const unsigned char *tables, size_t tables_bytes,
                               uint16_t table_count)
{
    if (fsn_end == 0 && table_count == 0) {
        return QWP_OK;
    }
    struct qwp_durable_ok *ok = ok_begin(durable);
    ok->fsn_end = fsn_end != 0 ? fsn_end : ok->fsn_end;
    const unsigned char *end = tables + tables_bytes;
    for (uint16_t i = 0; i < table_count; i++) {
        int64_t txn;
        uint32_t id;
        const enum qwp_result result = next_table(durable, &tables, end, &id, &txn);
        if (result != QWP_OK) {
            return result;
        }
        pair_put(durable, ok, id, txn);
    }
    return QWP_OK;
}

enum qwp_result qwp_durable_confirm(struct qwp_durable *durable, const unsigned char *tables,
                                    size_t tables_bytes, uint16_t table_count)
{
    const unsigned char *end = tables + tables_bytes;
    for (uint16_t i = 0; i < table_count; i++) {
        int64_t txn;
        uint32_t id;
        const enum qwp_result result = next_table(durable, &tables, end, &id, &txn);
        if (result != QWP_OK) {
            return result;
        }
        struct qwp_durable_table *table = &durable->tables[id];
        table->durable_txn = txn > table->durable_txn ? txn : table->durable_txn;
    }
    return QWP_OK;
}

/* What was found durable is not looked at again. */
static bool is_durable(const struct qwp_durable *durable, struct qwp_durable_ok *ok)
{
    for (; ok->pair_begin < ok->pair_end; ok->pair_begin++) {
        const struct qwp_durable_pair *pair = pair_at(durable, ok->pair_begin);
        if (pair->txn > durable->tables[pair->table].durable_txn) {
            return false;
        }
    }
    return true;
}

uint64_t qwp_durable_release(struct qwp_durable *durable)
{
    uint64_t fsn_end = 0;
    while (qwp_durable_is_waiting(durable)) {
        struct qwp_durable_ok *ok = ok_at(durable, durable->ok_first);
        if (!is_durable(durable, ok)) {
            break;
        }
        fsn_end = ok->fsn_end != 0 ? ok->fsn_end : fsn_end;
        durable->ok_first++;
    }
    return fsn_end;
}

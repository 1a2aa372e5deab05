#include "tests/sink/sink_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/wire/qwp_names.h"

enum { FIRST_SLOTS = 64, PATH_BYTES = 4096 };

enum qwp_result sink_store_open(struct sink_store *store, const struct sink_store_options *options,
                                struct qwp_error *err)
{
    memset(store, 0, sizeof *store);
    store->ndjson_fd = -1;
    store->ndjson_path = options->ndjson_path;
    store->files_dir = options->files_dir;
    store->latency.column = options->latency;
    pthread_mutex_init(&store->lock, NULL);
    enum qwp_result result = QWP_OK;
    if (options->verify != NULL) {
        result = sink_verify_create(&store->verify, options->verify, err);
    }
    if (result == QWP_OK && options->ndjson_path != NULL) {
        store->ndjson_fd = strcmp(options->ndjson_path, "-") == 0
                               ? dup(STDOUT_FILENO)
                               : open(options->ndjson_path,
                                      O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
        if (store->ndjson_fd < 0) {
            result = qwp_fail(err, QWP_IO, errno, "opening %s", options->ndjson_path);
        }
    }
    if (result == QWP_OK && options->files_dir != NULL && mkdir(options->files_dir, 0755) != 0 &&
        errno != EEXIST) {
        result = qwp_fail(err, QWP_IO, errno, "making the directory %s", options->files_dir);
    }
    if (result != QWP_OK) {
        sink_store_close(store);
        return result;
    }
    if (options->ndjson_path != NULL || options->files_dir != NULL) {
        store->rows = sink_rows_create();
    }
    return QWP_OK;
}

void sink_store_close(struct sink_store *store)
{
    for (uint32_t i = 0; i < store->table_count; i++) {
        if (store->tables[i]->fd >= 0) {
            close(store->tables[i]->fd);
        }
        free(store->tables[i]->name);
        free(store->tables[i]);
    }
    free(store->tables);
    free(store->slots);
    if (store->ndjson_fd >= 0) {
        close(store->ndjson_fd);
    }
    sink_rows_destroy(store->rows);
    sink_verify_destroy(store->verify);
    pthread_mutex_destroy(&store->lock);
    memset(store, 0, sizeof *store);
    store->ndjson_fd = -1;
}

bool sink_store_wants_values(const struct sink_store *store)
{
    return store->rows != NULL || store->verify != NULL || store->latency.column != NULL;
}

static void grow_slots(struct sink_store *store)
{
    const uint32_t count = store->slot_count == 0 ? FIRST_SLOTS : 2 * store->slot_count;
    struct sink_table **slots = sink_realloc(NULL, count * sizeof *slots);
    memset(slots, 0, count * sizeof *slots);
    for (uint32_t i = 0; i < store->table_count; i++) {
        struct sink_table *table = store->tables[i];
        struct sink_table **slot = &slots[table->name_hash & (count - 1)];
        table->next = *slot;
        *slot = table;
    }
    free(store->slots);
    store->slots = slots;
    store->slot_count = count;
}

static struct sink_table *add_table(struct sink_store *store, struct qwp_name name, uint64_t hash)
{
    if (store->table_count == store->tables_room) {
        store->tables_room = store->tables_room == 0 ? FIRST_SLOTS : 2 * store->tables_room;
        store->tables = sink_realloc(store->tables, store->tables_room * sizeof *store->tables);
    }
    struct sink_table *table = sink_realloc(NULL, sizeof *table);
    *table = (struct sink_table){
        .name = sink_realloc(NULL, name.len + 1u),
        .name_len = name.len,
        .name_hash = hash,
        .fd = -1,
    };
    memcpy(table->name, name.text, name.len);
    table->name[name.len] = '\0';
    struct sink_table **slot = &store->slots[hash & (store->slot_count - 1)];
    table->next = *slot;
    *slot = table;
    store->tables[store->table_count++] = table;
    return table;
}

struct sink_table *sink_store_table(struct sink_store *store, struct qwp_name name)
{
    if (store->table_count >= store->slot_count) {
        grow_slots(store);
    }
    const uint64_t hash = qwp_name_hash(name.text, name.len);
    struct sink_table *table = store->slots[hash & (store->slot_count - 1)];
    for (; table != NULL; table = table->next) {
        if (table->name_hash == hash &&
            qwp_name_equal(table->name, table->name_len, name.text, name.len)) {
            return table;
        }
    }
    return add_table(store, name, hash);
}

int64_t sink_store_add_rows(struct sink_store *store, struct sink_table *table, uint32_t rows,
                            uint64_t commit)
{
    table->rows += rows;
    store->counters.rows += rows;
    if (table->last_commit != commit) {
        table->last_commit = commit;
        table->seq_txn++;
    }
    return table->seq_txn;
}

static enum qwp_result write_all(int fd, const char *path, const struct sink_buffer *text,
                                 struct qwp_error *err)
{
    for (size_t done = 0; done < text->len;) {
        const ssize_t n = write(fd, text->at + done, text->len - done);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return qwp_fail(err, QWP_IO, errno, "writing rows to %s", path);
        }
        done += (size_t)n;
    }
    return QWP_OK;
}

static enum qwp_result open_table_file(struct sink_store *store, struct sink_table *table,
                                       struct qwp_error *err)
{
    if (store->files_dir == NULL || table->fd >= 0) {
        return QWP_OK;
    }
    /* Names were checked: they hold no '/', and a dot only between other characters. */
    char path[PATH_BYTES];
    const int n = snprintf(path, sizeof path, "%s/%s.ndjson", store->files_dir, table->name);
    if (n < 0 || (size_t)n >= sizeof path) {
        return qwp_fail(err, QWP_INVALID, 0, "the path of table %s is too long", table->name);
    }
    table->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    return table->fd >= 0 ? QWP_OK : qwp_fail(err, QWP_IO, errno, "opening %s", path);
}

static enum qwp_result show_block(struct sink_store *store, const struct qwp_decoder *decoder,
                                  const struct qwp_table_block *block, struct sink_table *table,
                                  struct qwp_error *err)
{
    enum qwp_result result = open_table_file(store, table, err);
    sink_rows_begin(store->rows, decoder, block);
    const struct sink_buffer *text;
    while (result == QWP_OK && (text = sink_rows_next(store->rows)) != NULL) {
        if (store->ndjson_fd >= 0) {
            result = write_all(store->ndjson_fd, store->ndjson_path, text, err);
        }
        if (result == QWP_OK && table->fd >= 0) {
            result = write_all(table->fd, table->name, text, err);
        }
    }
    return result;
}

enum qwp_result sink_store_show(struct sink_store *store, struct qwp_decoder *decoder,
                                const struct qwp_message *message, struct qwp_error *err)
{
    enum qwp_result result = QWP_OK;
    for (uint32_t i = 0; i < message->block_count && result == QWP_OK; i++) {
        struct qwp_table_block block;
        qwp_block_open(decoder, message, i, &block);
        struct sink_table *table = sink_store_table(store, block.table);
        if (store->latency.column != NULL) {
            sink_latency_block(&store->latency, decoder, &block, store->arrived_ns);
        }
        if (store->verify != NULL) {
            sink_verify_block(store->verify, decoder, &block, table, store->connection);
        }
        if (store->rows != NULL) {
            result = show_block(store, decoder, &block, table, err);
        }
    }
    return result;
}

static void put_count(struct sink_buffer *out, const char *name, uint64_t count)
{
    sink_buffer_printf(out, "\"%s\":%llu,", name, (unsigned long long)count);
}

void sink_store_summary(struct sink_store *store, struct sink_buffer *out)
{
    pthread_mutex_lock(&store->lock);
    const struct sink_counters *c = &store->counters;
    sink_buffer_text(out, "{");
    put_count(out, "messages", c->messages);
    put_count(out, "bytes", c->bytes);
    put_count(out, "rows", c->rows);
    sink_buffer_text(out, "\"tables\":{");
    for (uint32_t i = 0; i < store->table_count; i++) {
        const struct sink_table *table = store->tables[i];
        sink_buffer_text(out, i > 0 ? "," : "");
        sink_buffer_json(out, table->name, table->name_len);
        sink_buffer_printf(out, ":%llu", (unsigned long long)table->rows);
    }
    sink_buffer_text(out, "},");
    put_count(out, "errors", c->errors);
    if (store->verify != NULL) {
        const struct sink_verify_counts v = sink_verify_count(store->verify);
        put_count(out, "lost", v.lost);
        put_count(out, "doubled", v.doubled);
        put_count(out, "repeated", v.repeated);
        put_count(out, "disordered", v.disordered);
        put_count(out, "sequences", v.sequences);
        put_count(out, "unverified", v.unverified);
    }
    if (store->latency.column != NULL) {
        sink_latency_summary(&store->latency, out);
    }
    put_count(out, "deferred", c->deferred);
    put_count(out, "rolled_back", c->rolled_back);
    put_count(out, "commits", c->commits);
    put_count(out, "answers", c->answers);
    put_count(out, "connections", c->connections);
    put_count(out, "connections_open", c->connections_open);
    put_count(out, "refused", c->refused);
    sink_buffer_printf(
        out, "\"wire_bytes\":%llu}\n",
        (unsigned long long)atomic_load_explicit(&store->wire_bytes, memory_order_relaxed));
    pthread_mutex_unlock(&store->lock);
}

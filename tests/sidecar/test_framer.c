/* Aim: whatever mix of tables, shapes, units, nulls and symbols the rings hold, the frames carry
 * every row once, with its values, in the order of its producer and table. Method: producers write
 * rows whose every value follows from (producer, sequence number) into real rings; frames of random
 * room are decoded as a server would and each row is computed again. */
#include "sidecar/qwp_framer.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode.h"
#include "ipc/qwp_rendezvous.h"

enum {
    PRODUCERS = 4,
    TABLES = 5,
    SHAPES = 12, /* of each producer */
    SYMBOLS = 40,
    FRESH_SYMBOLS = 5000, /* more, which come as texts alone, all along */
    COLUMNS = 6,
    FRAME_BYTES = 300 * 1024,
};

static const struct qwp_column_def universe[COLUMNS] = {
    {{"seq", 3}, QWP_TYPE_LONG, 0},     {{"who", 3}, QWP_TYPE_SYMBOL, 0},
    {{"txt", 3}, QWP_TYPE_VARCHAR, 0},  {{"flag", 4}, QWP_TYPE_BOOLEAN, 0},
    {{"value", 5}, QWP_TYPE_DOUBLE, 0}, /* or LONG: a conflict */
    {{"extra", 5}, QWP_TYPE_SYMBOL, 0},
};

/* Check tells its parent about each assertion it passes; these are millions. */
#define EXPECT(condition) ((condition) ? (void)0 : ck_abort_msg("%s", #condition))

struct producer {
    struct qwp_ring_tx tx;
    struct qwp_source *source;
    struct qwp_shape *shapes[SHAPES];
    int table_of[SHAPES];
    int64_t next_seq[TABLES];
    int64_t seen_seq[TABLES];
    uint64_t rows;
};

static struct producer producers[PRODUCERS];
static char dir[] = "/tmp/qwp-framer-XXXXXX";
static int dir_fd;
static struct qwp_dict *dict;
static struct qwp_cursors *cursors;
static struct qwp_schema schema;
static struct qwp_framer *framer;
static unsigned char *def_entry;
static uint64_t random_state;

static uint32_t roll(uint32_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

/* What a column of a row holds; the same on both sides. */
static uint64_t value_of(int producer, int64_t seq, uint32_t column)
{
    uint64_t x = (uint64_t)seq * 1000003 + (uint64_t)producer * 7919 + column * 104729;
    x ^= x >> 13;
    x *= UINT64_C(0x9e3779b97f4a7c15);
    return x ^ x >> 29;
}

static bool is_null(int producer, int64_t seq, uint32_t column)
{
    const bool never_here = seq / 100 % 2 == 0;
    return column >= 2 && !never_here && value_of(producer, seq, column) % 5 == 0;
}

static size_t text_of(int producer, int64_t seq, uint32_t column, char *text)
{
    const size_t len = value_of(producer, seq, column) % 23;
    for (size_t i = 0; i < len; i++) {
        text[i] = (char)('a' + (value_of(producer, seq, column) + i * 7) % 26);
    }
    return len;
}

static uint32_t symbol_of(uint64_t value)
{
    return value % 16 == 0 ? SYMBOLS + (uint32_t)(value / 16 % FRESH_SYMBOLS)
                           : (uint32_t)(value % SYMBOLS);
}

/* Whether some symbol of the row is not defined in its ring. */
static bool is_fresh(const struct qwp_shape *shape, int producer, int64_t seq)
{
    for (uint32_t i = 0; i < shape->column_count; i++) {
        if (shape->columns[i].type == QWP_TYPE_SYMBOL && shape->columns[i].name.len == 5 &&
            symbol_of(value_of(producer, seq, COLUMNS - 1)) >= SYMBOLS) {
            return true;
        }
    }
    return false;
}

static int symbol_text(uint32_t symbol, char *text)
{
    return sprintf(text, "symbol-%u", symbol);
}

static int64_t time_of(int producer, int64_t seq)
{
    return 1700000000000000 + seq * 1000 + producer;
}

static void define_shapes(int p)
{
    struct producer *producer = &producers[p];
    for (int s = 0; s < SHAPES; s++) {
        struct qwp_column_def columns[COLUMNS];
        size_t n = 0;
        for (uint32_t c = 0; c < COLUMNS; c++) {
            /* The first shape has no texts: rows of it are taken many at a time. */
            if (c < 2 || (roll(3) > 0 && (s > 0 || universe[c].type != QWP_TYPE_VARCHAR))) {
                columns[n] = universe[c];
                if (c == 4 && roll(4) == 0) {
                    columns[n].type = QWP_TYPE_LONG;
                }
                n++;
            }
        }
        /* In any order. */
        for (size_t i = n; i > 1; i--) {
            const size_t j = roll((uint32_t)i);
            const struct qwp_column_def swapped = columns[j];
            columns[j] = columns[i - 1];
            columns[i - 1] = swapped;
        }
        static const uint8_t designated[] = {QWP_TYPE_TIMESTAMP, QWP_TYPE_TIMESTAMP,
                                             QWP_TYPE_TIMESTAMP_NANOS, QWP_TYPE_NONE};
        char table[8];
        producer->table_of[s] = (int)roll(TABLES);
        sprintf(table, "t%d", producer->table_of[s]);
        ck_assert_int_eq(qwp_shape_create(&producer->shapes[s], (struct qwp_name){table, 2},
                                          columns, n, designated[roll(4)], NULL),
                         QWP_OK);
        ck_assert_int_eq(qwp_ring_define_shape(&producer->tx, producer->shapes[s], NULL), QWP_OK);
    }
}

static uint32_t universe_column(struct qwp_name name)
{
    for (uint32_t c = 0; c < COLUMNS; c++) {
        if (universe[c].name.len == name.len &&
            memcmp(universe[c].name.text, name.text, name.len) == 0) {
            return c;
        }
    }
    ck_abort_msg("a column nobody defined: %.*s", (int)name.len, name.text);
}

static void write_field(unsigned char *record, const struct qwp_shape_column *column, int p,
                        int64_t seq, bool as_text, unsigned char **part)
{
    const uint32_t c = universe_column(column->name);
    const uint64_t value = value_of(p, seq, c);
    unsigned char *field = record + column->off;
    char text[32];
    switch (column->type) {
    case QWP_TYPE_SYMBOL: {
        const uint32_t symbol = c == 1 ? (uint32_t)p : symbol_of(value);
        if (as_text && value % 2 == 0) {
            const int len = symbol_text(symbol, text);
            memcpy(*part, text, (size_t)len);
            *part += len;
            qwp_store_u32(field, QWP_SYMBOL_TEXT | (uint32_t)len);
        } else {
            qwp_store_u32(field, symbol);
        }
        break;
    }
    case QWP_TYPE_VARCHAR: {
        const size_t len = text_of(p, seq, c, text);
        memcpy(*part, text, len);
        *part += len;
        qwp_store_u32(field, (uint32_t)len);
        break;
    }
    case QWP_TYPE_BOOLEAN:
        *field = value & 1;
        break;
    case QWP_TYPE_DOUBLE: {
        const double v = (double)(value % 100000) / 8;
        memcpy(field, &v, sizeof v);
        break;
    }
    default:
        qwp_store_i64(field, c == 0 ? seq : (int64_t)(value % 100000));
        break;
    }
}

/* Writes one row behind what is committed. False: the ring is full. */
static bool write_row_as(int p, int s, bool more, bool as_text)
{
    struct producer *producer = &producers[p];
    const struct qwp_shape *shape = producer->shapes[s];
    const int64_t seq = producer->next_seq[producer->table_of[s]];
    unsigned char *record;
    if (qwp_ring_reserve(&producer->tx, 512, &record) != QWP_OK) {
        return false;
    }
    memset(record, 0, shape->fixed_bytes);
    unsigned char *part = record + shape->fixed_bytes;
    for (uint32_t i = 0; i < shape->column_count; i++) {
        const struct qwp_shape_column *column = &shape->columns[i];
        if (is_null(p, seq, universe_column(column->name))) {
            record[8 + i / 8] |= (unsigned char)(1 << i % 8);
        } else {
            write_field(record, column, p, seq, as_text, &part);
        }
    }
    if (shape->designated_type != QWP_TYPE_NONE) {
        qwp_store_i64(record + shape->designated_off, time_of(p, seq));
    }
    const struct qwp_record_header header = {
        .size_bytes = (uint32_t)qwp_round_up((uint64_t)(part - record), 8),
        .shape = (uint16_t)s,
        .kind = QWP_RECORD_ROW,
        .flags = (uint8_t)((more ? QWP_RECORD_MORE : 0) | (as_text ? QWP_RECORD_SYMBOL_TEXT : 0)),
    };
    memcpy(record, &header, sizeof header);
    qwp_ring_commit(&producer->tx, header.size_bytes);
    producer->next_seq[producer->table_of[s]]++;
    return true;
}

static bool write_row(int p, int s, bool more)
{
    const struct producer *producer = &producers[p];
    const int64_t seq = producer->next_seq[producer->table_of[s]];
    return write_row_as(p, s, more, roll(4) == 0 || is_fresh(producer->shapes[s], p, seq));
}

static void write_some(int p)
{
    struct producer *producer = &producers[p];
    const uint32_t strays = roll(2) == 0 ? 3 : 100; /* one row in so many is of any shape */
    for (uint32_t units = roll(400); units > 0; units--) {
        int64_t before[TABLES];
        memcpy(before, producer->next_seq, sizeof before);
        const uint32_t rows = roll(8) == 0 ? 1 + roll(20) : 1;
        const uint32_t favourite = strays == 3 ? roll(SHAPES) : 0;
        for (uint32_t r = 0; r < rows; r++) {
            const int s = (int)(roll(strays) == 0 ? roll(SHAPES) : favourite);
            if (!write_row(p, s, r + 1 < rows)) {
                qwp_ring_abort(&producer->tx);
                memcpy(producer->next_seq, before, sizeof before);
                return;
            }
        }
        qwp_ring_publish(&producer->tx, rows);
        producer->rows += rows;
    }
}

/* ---- the other end ---- */

static const struct qwp_column *column_find(const struct qwp_table_block *block, const char *name)
{
    for (uint32_t i = 0; i < block->column_count; i++) {
        const struct qwp_column *column = &block->columns[i];
        if (column->name.len == strlen(name) &&
            memcmp(column->name.text, name, column->name.len) == 0) {
            return column;
        }
    }
    return NULL;
}

static void check_value(const struct qwp_value *value, int p, int64_t seq, uint32_t c)
{
    const uint64_t expected = value_of(p, seq, c);
    char text[32];
    switch (value->type) {
    case QWP_TYPE_SYMBOL: {
        const int len = symbol_text(symbol_of(expected), text);
        EXPECT(value->symbol.text.len == (uint32_t)len);
        EXPECT(memcmp(value->symbol.text.text, text, (size_t)len) == 0);
        break;
    }
    case QWP_TYPE_VARCHAR: {
        const size_t len = text_of(p, seq, c, text);
        EXPECT(value->bytes.len == len);
        EXPECT(memcmp(value->bytes.at, text, len) == 0);
        break;
    }
    case QWP_TYPE_BOOLEAN:
        EXPECT(value->boolean == (expected & 1));
        break;
    case QWP_TYPE_DOUBLE:
        EXPECT(value->f64 == (double)(expected % 100000) / 8);
        break;
    case QWP_TYPE_FLOAT: /* narrowed */
        EXPECT((double)value->f32 == (double)(expected % 100000) / 8);
        break;
    default:
        EXPECT(value->i64 == (int64_t)(expected % 100000));
    }
}

static uint64_t nulls_beyond; /* columns absent from a row's shape: null without is_null() */

/* A block's columns, read row by row. */
struct reader {
    bool has[COLUMNS + 1]; /* the last one: the designated timestamp */
    bool us_as_ns;
    struct qwp_cursor cursors[COLUMNS + 1];
};

static void reader_init(struct reader *reader, const struct qwp_decoder *decoder,
                        const struct qwp_table_block *block)
{
    for (uint32_t c = 0; c <= COLUMNS; c++) {
        const struct qwp_column *column =
            c == COLUMNS ? block->designated : column_find(block, universe[c].name.text);
        reader->has[c] = column != NULL;
        if (column != NULL) {
            qwp_cursor_init(&reader->cursors[c], decoder, column);
        }
    }
}

static void check_row(struct reader *reader, int table)
{
    struct qwp_value values[COLUMNS + 1];
    for (uint32_t c = 0; c <= COLUMNS; c++) {
        EXPECT(!reader->has[c] || qwp_cursor_next(&reader->cursors[c], &values[c]));
    }
    EXPECT(values[1].symbol.text.len == strlen("symbol-0"));
    const int p = values[1].symbol.text.text[strlen("symbol-")] - '0';
    EXPECT(p >= 0 && p < PRODUCERS);
    const int64_t seq = values[0].i64;
    EXPECT(seq == producers[p].seen_seq[table]++);
    if (reader->has[COLUMNS]) {
        /* Microseconds are read as nanoseconds where the row before says so. */
        EXPECT(values[COLUMNS].i64 == time_of(p, seq) ||
               (reader->us_as_ns && values[COLUMNS].i64 == time_of(p, seq) * 1000));
    }
    for (uint32_t c = 2; c < COLUMNS; c++) {
        if (!reader->has[c]) {
            continue;
        }
        if (values[c].null) {
            nulls_beyond += !is_null(p, seq, c);
        } else {
            EXPECT(!is_null(p, seq, c));
            check_value(&values[c], p, seq, c);
        }
    }
}

static uint64_t check_frame(struct qwp_decoder *decoder, const unsigned char *frame, size_t len)
{
    struct qwp_message message;
    struct qwp_error err;
    ck_assert_msg(qwp_decode_message(decoder, frame, len, &message, &err) == QWP_OK, "%s",
                  err.text);
    /* One time is never packed, and then there is no byte to say so. */
    const bool gorilla = (message.flags & QWP_FLAG_GORILLA) != 0;
    ck_assert(message.row_count == 1 ? !gorilla : gorilla || message.row_count < 3);
    for (uint32_t b = 0; b < message.block_count; b++) {
        struct qwp_table_block block;
        qwp_block_open(decoder, &message, b, &block);
        struct reader reader;
        reader_init(&reader, decoder, &block);
        reader.us_as_ns = decoder->blocks[b].us_as_ns;
        for (uint32_t row = 0; row < block.row_count; row++) {
            check_row(&reader, block.table.text[1] - '0');
        }
    }
    return message.row_count;
}

static uint32_t framed;
static uint64_t fsn;

static bool holding = true;

/* Some frames take no rows of one table. */
static void hold(int t, bool held)
{
    char name[8];
    sprintf(name, "t%d", t);
    struct qwp_table *table = qwp_schema_find(&schema, (struct qwp_name){name, 2});
    if (table != NULL) {
        table->held = held;
    }
    for (int p = 0; p < PRODUCERS; p++) {
        producers[p].source->held = false;
    }
}

/* Builds one frame from what is published and checks it. Returns its rows. */
static uint64_t build_frame(struct qwp_decoder *decoder, unsigned char *frame, size_t room)
{
    struct qwp_framer_fault fault;
    qwp_framer_begin(framer, frame, room, framed);
    const int held = (int)roll(TABLES * 3);
    hold(held, holding);
    bool full = false;
    for (uint32_t turn = roll(PRODUCERS), left = PRODUCERS; left > 0 && !full; turn++, left--) {
        struct qwp_source *source = producers[turn % PRODUCERS].source;
        enum qwp_result result = QWP_OK;
        while (result == QWP_OK) {
            result = qwp_framer_take(framer, source, 1 + roll(300), &fault);
        }
        ck_assert_msg(result == QWP_AGAIN || result == QWP_LIMIT, "%s", fault.error.text);
        full = result == QWP_LIMIT;
    }
    hold(held, false);
    if (full && qwp_framer_rows(framer) == 0 && fault.bytes_needed > room) {
        qwp_framer_abandon(framer);
        for (int p = 0; p < PRODUCERS; p++) {
            qwp_source_untake(producers[p].source);
        }
        return build_frame(decoder, frame, FRAME_BYTES);
    }
    ck_assert_uint_le(qwp_framer_bound(framer), room);
    if (roll(5) == 0) { /* as after a fault: whatever was open is as if it had never been */
        qwp_framer_abandon(framer);
        for (int p = 0; p < PRODUCERS; p++) {
            qwp_source_untake(producers[p].source);
        }
        return build_frame(decoder, frame, room);
    }
    size_t len;
    ck_assert_int_eq(qwp_framer_finish(framer, &len, &fault), QWP_OK);
    ck_assert_uint_le(len, room);
    framed = qwp_framer_framed_symbols(framer);
    for (int p = 0; p < PRODUCERS; p++) {
        if (producers[p].source->in_frame) {
            qwp_source_stored(producers[p].source, fsn);
        }
    }
    fsn++;
    return check_frame(decoder, frame, len);
}

static void setup(void)
{
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(qwp_rendezvous_open(dir, "test", &dir_fd, NULL), QWP_OK);
    ck_assert_int_eq(qwp_cursors_open(&cursors, &qwp_sys_real, dir_fd, "cursors", NULL), QWP_OK);
    ck_assert_int_eq(qwp_dict_create(&dict, 100000, 1 << 24, NULL), QWP_OK);
    ck_assert_int_eq(qwp_schema_init(&schema, 100), QWP_OK);
    def_entry = malloc(QWP_RING_DEF_BYTES_MAX);
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    for (int p = 0; p < PRODUCERS; p++) {
        struct qwp_error err;
        const struct qwp_ring_options options = {.name = "framer", .data_bytes = 64 * 1024};
        ck_assert_msg(qwp_ring_create(&producers[p].tx, dir_fd, &options, &err) == QWP_OK, "%s",
                      err.text);
        ck_assert_msg(qwp_source_open(&producers[p].source, dir_fd, producers[p].tx.file_name,
                                      &limits, cursors, 0, &err) == QWP_OK,
                      "%s", err.text);
        for (uint32_t s = 0; s < SYMBOLS; s++) {
            char text[32];
            const int len = symbol_text(s, text);
            ck_assert_int_eq(qwp_ring_define_symbol(&producers[p].tx, text, (size_t)len, NULL),
                             QWP_OK);
        }
    }
}

static void teardown(void)
{
    for (int p = 0; p < PRODUCERS; p++) {
        unlinkat(dir_fd, producers[p].tx.file_name, 0);
        qwp_source_close(producers[p].source);
        qwp_ring_close_tx(&producers[p].tx);
        for (int s = 0; s < SHAPES; s++) {
            qwp_shape_destroy(producers[p].shapes[s]);
        }
    }
    qwp_cursors_close(cursors);
    unlinkat(dir_fd, "cursors", 0);
    qwp_framer_destroy(framer);
    qwp_schema_fini(&schema);
    qwp_dict_destroy(dict);
    free(def_entry);
    close(dir_fd);
    char path[64];
    snprintf(path, sizeof path, "%s/test", dir);
    rmdir(path);
    rmdir(dir);
}

START_TEST(framer_random_rows_all_arrive_in_order)
{
    random_state = (uint64_t)_i + 1;
    const unsigned compact = _i % 2 == 0 ? 0 : QWP_ENCODE_COMPACT;
    ck_assert_int_eq(qwp_framer_create(&framer, dict, QWP_ENCODE_GORILLA | compact, NULL), QWP_OK);
    struct qwp_decoder decoder;
    qwp_decoder_init(&decoder, NULL);
    unsigned char *frame = malloc(FRAME_BYTES);
    for (int p = 0; p < PRODUCERS; p++) {
        define_shapes(p);
    }
    uint64_t arrived = 0;
    for (int round = 0; round < 60; round++) {
        for (int p = 0; p < PRODUCERS; p++) {
            write_some(p);
        }
        for (int p = 0; p < PRODUCERS; p++) {
            struct qwp_source *source = producers[p].source;
            struct qwp_error err;
            if (qwp_ring_poll(&source->rx) == QWP_OK) {
                ck_assert_msg(qwp_source_define(source, def_entry, &schema, dict, &err) == QWP_OK,
                              "%s", err.text);
            }
        }
        /* Sometimes leave rows for the next round. */
        uint64_t rows = 1;
        for (uint32_t frames = 1 + roll(40); frames > 0 && rows > 0; frames--) {
            /* Small ones are filled to the brim. */
            const uint32_t spread = roll(8) > 0 ? 1024 : FRAME_BYTES - 2048;
            rows = build_frame(&decoder, frame, 2048 + roll(spread));
            arrived += rows;
        }
    }
    holding = false;
    while (build_frame(&decoder, frame, FRAME_BYTES) > 0) {
    }
    uint64_t published = 0;
    for (int p = 0; p < PRODUCERS; p++) {
        published += producers[p].rows;
        for (int t = 0; t < TABLES; t++) {
            ck_assert_int_eq(producers[p].seen_seq[t], producers[p].next_seq[t]);
        }
    }
    ck_assert_uint_gt(published, 1000);
    ck_assert_uint_le(arrived, published);
    ck_assert_uint_gt(nulls_beyond, 0); /* blocks of several shapes did occur */
    free(frame);
    qwp_decoder_fini(&decoder);
}
END_TEST

/* Two shapes of one table; rows of the first never have nulls. */
static void define_plain_shapes(struct producer *producer)
{
    const struct qwp_column_def columns[] = {universe[0], universe[1], universe[4]};
    for (size_t s = 0; s < 2; s++) {
        producer->table_of[s] = 0;
        ck_assert_int_eq(qwp_shape_create(&producer->shapes[s], (struct qwp_name){"t0", 2}, columns,
                                          2 + s, QWP_TYPE_TIMESTAMP, NULL),
                         QWP_OK);
        ck_assert_int_eq(qwp_ring_define_shape(&producer->tx, producer->shapes[s], NULL), QWP_OK);
    }
}

/* Units of one row, and of very many, until the ring is full. */
static void write_plain(int p)
{
    struct producer *producer = &producers[p];
    const uint32_t strays = 2 + roll(2000); /* one row in so many has nulls or the other shape */
    const uint32_t large = 1 + roll(700);
    for (bool room = true; room;) {
        const int64_t before = producer->next_seq[0];
        const uint32_t rows = roll(50) == 0 ? large : 1;
        for (uint32_t r = 0; r < rows && room; r++) {
            room = write_row_as(p, roll(strays) == 0, r + 1 < rows, false);
        }
        if (!room) {
            qwp_ring_abort(&producer->tx);
            producer->next_seq[0] = before;
            return;
        }
        qwp_ring_publish(&producer->tx, rows);
        producer->rows += rows;
    }
}

/* Rows of which hundreds are alike: across units, blocks and the end of the ring. */
START_TEST(framer_alike_rows_arrive_in_order)
{
    random_state = (uint64_t)_i + 1;
    ck_assert_int_eq(qwp_framer_create(&framer, dict, QWP_ENCODE_GORILLA, NULL), QWP_OK);
    struct qwp_decoder decoder;
    qwp_decoder_init(&decoder, NULL);
    unsigned char *frame = malloc(FRAME_BYTES);
    define_plain_shapes(&producers[0]);
    struct qwp_source *source = producers[0].source;
    for (int round = 0; round < 100; round++) {
        write_plain(0);
        if (qwp_ring_poll(&source->rx) == QWP_OK) {
            ck_assert_int_eq(qwp_source_define(source, def_entry, &schema, dict, NULL), QWP_OK);
        }
        for (uint32_t frames = 1 + roll(3); frames > 0; frames--) {
            build_frame(&decoder, frame, roll(2) == 0 ? FRAME_BYTES : 4096 + roll(8192));
        }
    }
    holding = false;
    while (build_frame(&decoder, frame, FRAME_BYTES) > 0) {
    }
    ck_assert_int_eq(producers[0].seen_seq[0], producers[0].next_seq[0]);
    ck_assert_uint_gt(producers[0].rows, 50000);
    free(frame);
    qwp_decoder_fini(&decoder);
}
END_TEST

/* A frame that is to take what this source has published. */
static void begin_with(struct qwp_source *source, unsigned char *frame)
{
    ck_assert_int_eq(qwp_ring_poll(&source->rx), QWP_OK);
    ck_assert_int_eq(qwp_source_define(source, def_entry, &schema, dict, NULL), QWP_OK);
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
}

/* What lies behind what is published is nobody's, however much it looks like more of the unit. */
START_TEST(framer_unit_without_end_is_a_fault)
{
    random_state = 1;
    ck_assert_int_eq(qwp_framer_create(&framer, dict, QWP_ENCODE_GORILLA, NULL), QWP_OK);
    unsigned char *frame = malloc(FRAME_BYTES);
    struct producer *producer = &producers[0];
    struct qwp_source *source = producer->source;
    struct qwp_framer_fault fault;
    define_plain_shapes(producer);
    for (int pass = 0; pass < 2; pass++) {
        qwp_ring_abort(&producer->tx);
        for (int row = 0; row < (pass == 0 ? 10 : 3); row++) {
            ck_assert(write_row_as(0, 0, true, false));
        }
    }
    qwp_ring_publish(&producer->tx, 3);
    begin_with(source, frame);
    ck_assert_int_eq(qwp_framer_take(framer, source, 10, &fault), QWP_CORRUPT);
    ck_assert_str_eq(fault.error.text, "a unit ends behind what is published");
    qwp_framer_abandon(framer);
    free(frame);
}
END_TEST

static void write_pad(struct producer *producer, uint32_t bytes, unsigned flags)
{
    unsigned char *record;
    ck_assert_int_eq(qwp_ring_reserve(&producer->tx, 512, &record), QWP_OK);
    memset(record, 0xff, bytes);
    const struct qwp_record_header header = {
        .size_bytes = bytes,
        .kind = QWP_RECORD_PAD,
        .flags = (uint8_t)flags,
    };
    memcpy(record, &header, sizeof header);
    qwp_ring_commit(&producer->tx, bytes);
}

/* Padding is skipped, and a unit that is nothing else is a fault of its producer: it would bring
 * the frame no further. */
START_TEST(framer_padding_comes_with_rows)
{
    random_state = 1;
    ck_assert_int_eq(qwp_framer_create(&framer, dict, QWP_ENCODE_COMPACT, NULL), QWP_OK);
    unsigned char *frame = malloc(FRAME_BYTES);
    struct producer *producer = &producers[0];
    struct qwp_source *source = producer->source;
    struct qwp_framer_fault fault;
    define_shapes(0);
    write_pad(producer, 8, QWP_RECORD_MORE);
    ck_assert(write_row(0, 0, true));
    write_pad(producer, 64, 0);
    write_pad(producer, 8, QWP_RECORD_MORE);
    write_pad(producer, 16, 0);
    qwp_ring_publish(&producer->tx, 1);
    begin_with(source, frame);
    ck_assert_int_eq(qwp_framer_take(framer, source, 10, &fault), QWP_OK);
    ck_assert_uint_eq(qwp_framer_rows(framer), 1);
    ck_assert_int_eq(qwp_framer_take(framer, source, 10, &fault), QWP_CORRUPT);
    ck_assert_str_eq(fault.error.text, "a unit without rows");
    ck_assert_ptr_eq(fault.source, source);
    qwp_framer_abandon(framer);
    free(frame);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("framer");
    TCase *tcase = tcase_create("framer");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, framer_random_rows_all_arrive_in_order, 0, 12);
    tcase_add_loop_test(tcase, framer_alike_rows_arrive_in_order, 0, 8);
    tcase_add_test(tcase, framer_unit_without_end_is_a_fault);
    tcase_add_test(tcase, framer_padding_comes_with_rows);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

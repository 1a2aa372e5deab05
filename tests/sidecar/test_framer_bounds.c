/* Aim: what a ring may bring to its bounds - the widest tables, the longest symbols, more shapes
 * than rows can name, symbols that come up while a frame is open - makes valid frames or is
 * refused, and never more than was weighed is written. Method: one real ring, written by hand;
 * frames are decoded as a server would. */
#include "sidecar/qwp_framer.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode.h"
#include "ipc/qwp_rendezvous.h"

enum { FRAME_BYTES = 1024 * 1024, RING_BYTES = 16 * 1024 * 1024, DEFS_BYTES = 4 * 1024 * 1024 };

static char dir[] = "/tmp/qwp-bounds-XXXXXX";
static int dir_fd;
static struct qwp_ring_tx ring;
static struct qwp_source *source;
static struct qwp_dict *dict;
static struct qwp_cursors *cursors;
static struct qwp_schema schema;
static struct qwp_framer *framer;
static unsigned char *def_entry;
static unsigned char *frame;
static struct qwp_decoder decoder;

static void setup(void)
{
    const struct qwp_ring_limits limits = {.data_bytes_max = QWP_RING_DATA_BYTES_MAX,
                                           .defs_bytes_max = QWP_RING_DEFS_BYTES_MAX};
    const struct qwp_ring_options options = {.name = "bounds",
                                             .data_bytes = RING_BYTES,
                                             .defs_bytes_max = DEFS_BYTES,
                                             .unit_bytes_max = RING_BYTES / 2};
    struct qwp_error err;
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(qwp_rendezvous_open(dir, "test", &dir_fd, NULL), QWP_OK);
    ck_assert_int_eq(qwp_cursors_open(&cursors, &qwp_sys_real, dir_fd, "cursors", NULL), QWP_OK);
    ck_assert_int_eq(qwp_dict_create(&dict, 100000, 1 << 24, NULL), QWP_OK);
    ck_assert_int_eq(qwp_schema_init(&schema, 100), QWP_OK);
    ck_assert_int_eq(
        qwp_framer_create(&framer, dict, QWP_ENCODE_GORILLA | QWP_ENCODE_COMPACT, NULL), QWP_OK);
    def_entry = malloc(QWP_RING_DEF_BYTES_MAX);
    frame = malloc(FRAME_BYTES);
    qwp_decoder_init(&decoder, NULL);
    ck_assert_msg(qwp_ring_create(&ring, dir_fd, &options, &err) == QWP_OK, "%s", err.text);
    ck_assert_msg(qwp_source_open(&source, dir_fd, ring.file_name, &limits, cursors, 0, &err) ==
                      QWP_OK,
                  "%s", err.text);
}

static void teardown(void)
{
    unlinkat(dir_fd, ring.file_name, 0);
    qwp_source_close(source);
    qwp_ring_close_tx(&ring);
    qwp_cursors_close(cursors);
    unlinkat(dir_fd, "cursors", 0);
    qwp_framer_destroy(framer);
    qwp_schema_fini(&schema);
    qwp_dict_destroy(dict);
    qwp_decoder_fini(&decoder);
    free(def_entry);
    free(frame);
    close(dir_fd);
    char path[64];
    snprintf(path, sizeof path, "%s/test", dir);
    rmdir(path);
    rmdir(dir);
}

/* ---- what the ring holds ---- */

/* A shape of `count` columns of one type, named prefix0, prefix1, ... The caller destroys it. */
static struct qwp_shape *shape_define(const char *table, const char *prefix, uint32_t count,
                                      uint8_t type)
{
    char names[QWP_COLUMNS_MAX][12];
    struct qwp_column_def columns[QWP_COLUMNS_MAX];
    for (uint32_t c = 0; c < count; c++) {
        const int len = sprintf(names[c], "%s%u", prefix, c);
        columns[c] = (struct qwp_column_def){{names[c], (uint32_t)len}, type, 0};
    }
    struct qwp_shape *shape;
    struct qwp_error err;
    ck_assert_msg(qwp_shape_create(&shape, (struct qwp_name){table, (uint32_t)strlen(table)},
                                   columns, count, QWP_TYPE_TIMESTAMP, &err) == QWP_OK,
                  "%s", err.text);
    ck_assert_msg(qwp_ring_define_shape(&ring, shape, &err) == QWP_OK, "%s", err.text);
    return shape;
}

/* Room for a record at the ring's end, zeroed, with its header. */
static unsigned char *record_begin(uint32_t bytes, uint16_t shape, uint8_t kind, uint8_t flags)
{
    unsigned char *record;
    ck_assert_int_eq(qwp_ring_reserve(&ring, bytes, &record), QWP_OK);
    memset(record, 0, bytes);
    const struct qwp_record_header header = {bytes, shape, kind, flags};
    memcpy(record, &header, sizeof header);
    return record;
}

/* Publishes a row, all of whose columns are null or zero. Gives its record. */
static unsigned char *row_write(const struct qwp_shape *shape, uint16_t number, bool null)
{
    const uint32_t bytes = (uint32_t)qwp_round_up(shape->fixed_bytes, QWP_RECORD_ALIGN);
    unsigned char *record = record_begin(bytes, number, QWP_RECORD_ROW, 0);
    memset(record + QWP_RECORD_HEADER_BYTES, null ? 0xff : 0, 8u * shape->null_words);
    qwp_ring_commit(&ring, bytes);
    qwp_ring_publish(&ring, 1);
    return record;
}

/* ---- intake ---- */

static int looks; /* steps that the last one took */

static enum qwp_result look(struct qwp_error *err)
{
    enum qwp_result result = QWP_AGAIN;
    (void)!qwp_ring_poll(&source->rx);
    for (looks = 0; result == QWP_AGAIN; looks++) {
        result = qwp_source_define(source, def_entry, &schema, dict, err);
        ck_assert(qwp_source_is_ready(source) == (result != QWP_AGAIN));
    }
    return result;
}

static void look_well(void)
{
    struct qwp_error err;
    ck_assert_msg(look(&err) == QWP_OK, "%s", err.text);
}

/* Takes what there is. QWP_AGAIN, unless something stops it. */
static enum qwp_result take_all(struct qwp_framer_fault *fault)
{
    enum qwp_result result = QWP_OK;
    while (result == QWP_OK) {
        result = qwp_framer_take(framer, source, UINT64_MAX, fault);
    }
    return result;
}

/* Returns the frame's blocks. */
static uint32_t finish_and_decode(uint64_t rows)
{
    struct qwp_framer_fault fault;
    struct qwp_message message;
    struct qwp_error err;
    size_t len;
    ck_assert_uint_eq(qwp_framer_rows(framer), rows);
    ck_assert_msg(qwp_framer_finish(framer, &len, &fault) == QWP_OK, "%s", fault.error.text);
    ck_assert_msg(qwp_decode_message(&decoder, frame, len, &message, &err) == QWP_OK, "%s",
                  err.text);
    ck_assert_uint_eq(message.row_count, rows);
    return message.block_count;
}

/* ---- cases ---- */

/* Each row of another shape lengthens the bitmaps of all columns there are, of which the row that
 * brought them had filled a byte each. */
START_TEST(bounds_narrow_row_joins_wide_block_is_weighed_with_its_columns)
{
    struct qwp_framer_fault fault;
    struct qwp_shape *wide = shape_define("t", "w", 1000, QWP_TYPE_BOOLEAN);
    struct qwp_shape *narrow = shape_define("t", "n", 1, QWP_TYPE_BOOLEAN);
    struct qwp_shape *other = shape_define("other", "o", 1, QWP_TYPE_LONG256);
    enum {
        ROOM = 200 * 1024,
        OTHERS = 3000,
        NARROW = 1000
    }; /* few enough to stay in open blocks */
    qwp_framer_begin(framer, frame, ROOM, 0);
    row_write(wide, 0, true);
    look_well();
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    for (int i = 0; i < OTHERS; i++) {
        row_write(other, 2, false);
    }
    look_well();
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    for (int i = 0; i < NARROW; i++) {
        row_write(narrow, 1, true);
    }
    look_well();
    ck_assert_int_eq(take_all(&fault), QWP_LIMIT);
    ck_assert_uint_le(qwp_framer_bound(framer), ROOM);
    const uint64_t rows = qwp_framer_rows(framer);
    ck_assert_uint_ge(rows, 1 + OTHERS);
    finish_and_decode(rows);
    qwp_shape_destroy(wide);
    qwp_shape_destroy(narrow);
    qwp_shape_destroy(other);
}
END_TEST

/* A block's names are as long as some rows, and each table has blocks of its own: were they written
 * whenever a few thousand rows wait, those of many tables would hold a few rows each. */
START_TEST(bounds_rows_of_many_tables_in_turn_share_a_block)
{
    enum { TABLES = 100, ROWS_EACH = 128 };
    struct qwp_framer_fault fault;
    struct qwp_shape *shapes[TABLES];
    for (int t = 0; t < TABLES; t++) {
        char table[12];
        sprintf(table, "t%d", t);
        shapes[t] = shape_define(table, "c", 1, QWP_TYPE_DOUBLE);
    }
    for (int i = 0; i < TABLES * ROWS_EACH; i++) {
        row_write(shapes[i % TABLES], (uint16_t)(i % TABLES), false);
    }
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    const uint32_t blocks = finish_and_decode((uint64_t)TABLES * ROWS_EACH);
    ck_assert_uint_le(blocks, 2 * TABLES); /* a compact one has another ahead */
    for (int t = 0; t < TABLES; t++) {
        qwp_shape_destroy(shapes[t]);
    }
}
END_TEST

/* Two shapes that together have more columns than a table may. */
START_TEST(bounds_columns_of_several_shapes_beyond_a_table_come_in_blocks_apart)
{
    struct qwp_framer_fault fault;
    struct qwp_shape *shapes[3] = {shape_define("t", "a", QWP_COLUMNS_MAX, QWP_TYPE_BOOLEAN),
                                   shape_define("t", "b", QWP_COLUMNS_MAX, QWP_TYPE_BOOLEAN),
                                   shape_define("t", "c", QWP_COLUMNS_MAX, QWP_TYPE_BOOLEAN)};
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    for (uint16_t i = 0; i < 9; i++) {
        row_write(shapes[i % 3], i % 3, true);
    }
    look_well();
    uint64_t rows = 0;
    while (rows < 9) {
        ck_assert_int_ne(take_all(&fault), QWP_CORRUPT);
        const uint64_t taken = qwp_framer_rows(framer);
        ck_assert_uint_gt(taken, 0);
        finish_and_decode(taken);
        rows += taken;
        qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    }
    for (int i = 0; i < 3; i++) {
        qwp_shape_destroy(shapes[i]);
    }
}
END_TEST

/* A chunk of as many columns as a table may have, all null but one. */
START_TEST(bounds_chunk_of_the_widest_table_is_taken)
{
    struct qwp_framer_fault fault;
    enum { ENTRIES = QWP_COLUMNS_MAX + 1, HEAD = 16 + 16 * ENTRIES, BYTES = HEAD + 16 };
    struct qwp_shape *shape = shape_define("t", "c", QWP_COLUMNS_MAX, QWP_TYPE_LONG);
    unsigned char *record = record_begin(BYTES, 0, QWP_RECORD_CHUNK, 0);
    qwp_store_u32(record + QWP_CHUNK_ROWS_OFF, 1);
    record[HEAD] = 1; /* the one bitmap, and then the one value */
    for (uint32_t c = 0; c < ENTRIES; c++) {
        const bool has_value = c == 7 || c == QWP_COLUMNS_MAX;
        const struct qwp_chunk_entry entry = {has_value ? 0 : HEAD, !has_value, HEAD + 8,
                                              has_value ? 8 : 0};
        memcpy(record + 16 + 16 * (size_t)c, &entry, sizeof entry);
    }
    qwp_ring_commit(&ring, BYTES);
    qwp_ring_publish(&ring, 1);
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    finish_and_decode(1);
    qwp_shape_destroy(shape);
}
END_TEST

/* A row that was looked at is changed to name a symbol that came up when the frame's delta was
 * settled: the server would not know it. */
START_TEST(bounds_symbol_younger_than_the_delta_is_a_fault)
{
    struct qwp_framer_fault fault;
    size_t len;
    struct qwp_shape *shape = shape_define("t", "s", 1, QWP_TYPE_SYMBOL);
    ck_assert_int_eq(qwp_ring_define_symbol(&ring, "old", 3, NULL), QWP_OK);
    unsigned char *record = row_write(shape, 0, false);
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    ck_assert_int_eq(qwp_ring_define_symbol(&ring, "new", 3, NULL), QWP_OK);
    look_well();
    qwp_store_u32(record + shape->columns[0].off, 1);
    ck_assert_int_eq(qwp_framer_finish(framer, &len, &fault), QWP_CORRUPT);
    ck_assert_ptr_eq(fault.source, source);
    qwp_framer_abandon(framer);
    qwp_shape_destroy(shape);
}
END_TEST

/* The same where the dictionary is empty: of a ring that was in use before, symbols are interned by
 * the rows that use them, and until then stand for the first there is. */
START_TEST(bounds_symbol_that_no_row_used_is_a_fault)
{
    struct qwp_framer_fault fault;
    size_t len;
    struct qwp_shape *shape = shape_define("t", "s", 1, QWP_TYPE_SYMBOL);
    ck_assert_int_eq(qwp_ring_define_symbol(&ring, "unused", 6, NULL), QWP_OK);
    unsigned char *record = row_write(shape, 0, false);
    qwp_store_u32(record + shape->columns[0].off, 1);
    source->symbols.is_live = false;
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_AGAIN);
    ck_assert_uint_eq(qwp_dict_count(dict), 0);
    qwp_store_u32(record + shape->columns[0].off, 0);
    ck_assert_int_eq(qwp_framer_finish(framer, &len, &fault), QWP_CORRUPT);
    qwp_framer_abandon(framer);
    qwp_shape_destroy(shape);
}
END_TEST

/* Publishes a row whose one column, a symbol, is text of `len` bytes. */
static void symbol_text_write(const struct qwp_shape *shape, uint16_t number, uint32_t len)
{
    const uint32_t bytes = (uint32_t)qwp_round_up(shape->fixed_bytes + len, QWP_RECORD_ALIGN);
    unsigned char *record = record_begin(bytes, number, QWP_RECORD_ROW, QWP_RECORD_SYMBOL_TEXT);
    qwp_store_u32(record + shape->columns[0].off, QWP_SYMBOL_TEXT | len);
    memset(record + shape->fixed_bytes, 'x', len);
    qwp_ring_commit(&ring, bytes);
    qwp_ring_publish(&ring, 1);
}

/* It would be in the dictionary and in the way of every frame that has less room. */
START_TEST(bounds_symbol_longer_than_any_may_be_is_a_fault)
{
    struct qwp_framer_fault fault;
    struct qwp_shape *shape = shape_define("t", "s", 1, QWP_TYPE_SYMBOL);
    symbol_text_write(shape, 0, QWP_SYMBOL_BYTES_MAX);
    symbol_text_write(shape, 0, QWP_SYMBOL_BYTES_MAX + 1);
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_CORRUPT);
    ck_assert_uint_eq(qwp_framer_rows(framer), 1);
    ck_assert_uint_eq(qwp_dict_count(dict), 1);
    qwp_framer_abandon(framer);
    qwp_source_untake(source);
    char *text = malloc(QWP_SYMBOL_BYTES_MAX + 1);
    memset(text, 'y', QWP_SYMBOL_BYTES_MAX + 1);
    ck_assert_int_eq(qwp_ring_define_symbol(&ring, text, QWP_SYMBOL_BYTES_MAX, NULL), QWP_OK);
    look_well();
    ck_assert_int_eq(qwp_ring_define_symbol(&ring, text, QWP_SYMBOL_BYTES_MAX + 1, NULL), QWP_OK);
    struct qwp_error err;
    ck_assert_int_eq(look(&err), QWP_CORRUPT);
    free(text);
    qwp_shape_destroy(shape);
}
END_TEST

/* A frame that cannot even carry the next symbol would be followed by another such. */
START_TEST(bounds_symbol_longer_than_the_room_asks_for_more)
{
    enum { LEN = 200 * 1024, ROOM = 100 * 1024 };
    struct qwp_framer_fault fault;
    struct qwp_shape *shape = shape_define("t", "s", 1, QWP_TYPE_SYMBOL);
    symbol_text_write(shape, 0, LEN);
    look_well();
    qwp_framer_begin(framer, frame, ROOM, 0);
    ck_assert_int_eq(qwp_framer_take(framer, source, 1, &fault), QWP_LIMIT);
    ck_assert_uint_eq(qwp_framer_rows(framer), 0);
    qwp_framer_abandon(framer);
    qwp_framer_begin(framer, frame, ROOM, 0); /* as when another ring's rows come first */
    ck_assert_int_eq(qwp_framer_take(framer, source, 1, &fault), QWP_LIMIT);
    ck_assert_uint_gt(fault.bytes_needed, LEN);
    enum qwp_result result = QWP_LIMIT;
    for (int asked = 0; result == QWP_LIMIT && asked < 2; asked++) { /* the symbol, then its row */
        qwp_framer_abandon(framer);
        qwp_framer_begin(framer, frame, fault.bytes_needed, 0);
        result = qwp_framer_take(framer, source, 1, &fault);
    }
    ck_assert_int_eq(result, QWP_OK);
    finish_and_decode(1);
    ck_assert_uint_eq(qwp_framer_framed_symbols(framer), 1);
    qwp_shape_destroy(shape);
}
END_TEST

/* Rows may be as short as their header, and what is noted of each is longer. */
START_TEST(bounds_unit_of_more_rows_than_a_block_is_a_fault)
{
    struct qwp_framer_fault fault;
    struct qwp_shape *shape;
    ck_assert_int_eq(
        qwp_shape_create(&shape, (struct qwp_name){"t", 1}, NULL, 0, QWP_TYPE_NONE, NULL), QWP_OK);
    ck_assert_int_eq(qwp_ring_define_shape(&ring, shape, NULL), QWP_OK);
    for (int i = 0; i <= QWP_BLOCK_ROWS_MAX; i++) {
        (void)record_begin(QWP_RECORD_HEADER_BYTES, 0, QWP_RECORD_ROW,
                           i < QWP_BLOCK_ROWS_MAX ? QWP_RECORD_MORE : 0);
        qwp_ring_commit(&ring, QWP_RECORD_HEADER_BYTES);
    }
    qwp_ring_publish(&ring, QWP_BLOCK_ROWS_MAX + 1);
    look_well();
    qwp_framer_begin(framer, frame, FRAME_BYTES, 0);
    ck_assert_int_eq(take_all(&fault), QWP_CORRUPT);
    ck_assert_ptr_eq(fault.source, source);
    qwp_framer_abandon(framer);
    qwp_shape_destroy(shape);
}
END_TEST

/* A ring with room for them may define more shapes than its rows can name: they are not kept. Each
 * with a column of its own; to find one among the others takes no longer with many. */
START_TEST(bounds_more_shapes_than_rows_can_name_are_a_fault)
{
    struct qwp_error err;
    for (uint32_t i = 0; i <= QWP_SHAPES_MAX; i++) {
        char name[12];
        sprintf(name, "c%u_", i);
        ring.shape_count = 0; /* the library has the same bound */
        qwp_shape_destroy(shape_define("t", name, 1, QWP_TYPE_LONG));
        if (i + 1 == QWP_SHAPES_MAX) {
            look_well();
        }
    }
    ck_assert_int_gt(looks, 10); /* not in one go, or everybody else would wait */
    ck_assert_int_eq(look(&err), QWP_INVALID);
    ck_assert_uint_eq(source->shape_count, QWP_SHAPES_MAX);
}
END_TEST

/* Producers that define tables, write nothing and go leave room for others. */
START_TEST(bounds_tables_that_were_only_defined_make_room)
{
    struct qwp_known_shape *known[100];
    struct qwp_known_shape *one_more;
    struct qwp_error err;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i <= 100; i++) {
            char name[12];
            struct qwp_shape *shape;
            const uint32_t len = (uint32_t)sprintf(name, "r%d_%d", round, i);
            ck_assert_int_eq(qwp_shape_create(&shape, (struct qwp_name){name, len}, NULL, 0,
                                              QWP_TYPE_NONE, NULL),
                             QWP_OK);
            ck_assert_int_eq(
                qwp_schema_intern(&schema, shape, i < 100 ? &known[i] : &one_more, &err),
                i < 100 ? QWP_OK : QWP_LIMIT);
        }
        for (int i = 0; i < 100; i++) {
            qwp_schema_release(known[i]);
        }
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("framer_bounds");
    TCase *tcase = tcase_create("framer_bounds");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, bounds_narrow_row_joins_wide_block_is_weighed_with_its_columns);
    tcase_add_test(tcase, bounds_rows_of_many_tables_in_turn_share_a_block);
    tcase_add_test(tcase, bounds_columns_of_several_shapes_beyond_a_table_come_in_blocks_apart);
    tcase_add_test(tcase, bounds_chunk_of_the_widest_table_is_taken);
    tcase_add_test(tcase, bounds_symbol_younger_than_the_delta_is_a_fault);
    tcase_add_test(tcase, bounds_symbol_that_no_row_used_is_a_fault);
    tcase_add_test(tcase, bounds_symbol_longer_than_any_may_be_is_a_fault);
    tcase_add_test(tcase, bounds_symbol_longer_than_the_room_asks_for_more);
    tcase_add_test(tcase, bounds_unit_of_more_rows_than_a_block_is_a_fault);
    tcase_add_test(tcase, bounds_more_shapes_than_rows_can_name_are_a_fault);
    tcase_add_test(tcase, bounds_tables_that_were_only_defined_make_room);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

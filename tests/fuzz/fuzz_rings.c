/* Aim: whatever a producer writes to its ring, and however it changes what was looked at before it
 * is encoded, the sidecar neither reads nor writes outside of what was published and reserved,
 * frames are such as a server takes, and a producer beside it that does no wrong is neither blamed
 * nor loses a row. Method: two rings in memory, which the address sanitizer sees end where their
 * tails say (and begin at their heads), are driven as intake drives them; the input says what
 * happens next, an operation of one byte (low four bits: which; the fifth: to which ring) with
 * bytes of arguments. Ring 1 is the honest one: what would harm it is left out.
 *
 * First bytes: bits for what differs from run to run (enum setting), then the encoder's flags. */
#include <stdlib.h>
#include <string.h>

#include "core/qwp_assert.h"
#include "core/qwp_bytes.h"
#include "core/wire/qwp_decode.h"
#include "ipc/qwp_guard.h"
#include "sidecar/qwp_framer.h"
#include "tests/fuzz/fuzz_ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    RINGS = 2,
    HONEST = 1,
    STEPS_MAX = 300,
    SYMBOLS_FEW = 50,              /* more than the library has */
    FRAME_BYTES_MAX = 1024 * 1024, /* what intake asks for one unit at most */
};

enum setting {
    DEFINED = 0x01,     /* the library's definitions are in ring 0 already */
    SMALL_DICT = 0x02,  /* a generation has few symbols */
    SHARE = 0x04,       /* and each ring a share of them */
    OLD = 0x08,         /* the rings were in use: symbols are interned by the rows that use them */
    SYMBOLS_MAX = 0x10, /* few symbols a producer */
    TABLES_MAX = 0x20,  /* few tables */
    UNIT_SMALL = 0x40,  /* units of few bytes */
    MANY = 0x80,        /* a generation begins with symbols, so that ids take one byte or two */
};

enum step {
    STEP_RECORD = 0, /* K N: appends the library's record K, some or many times, as a unit or not */
    STEP_MORE = 1,   /* N: flags of the last record appended ^= N */
    STEP_PATCH = 2,  /* a change of the record appended last */
    STEP_POKE = 3,   /* a change of a record that was published, N before the last */
    STEP_PUBLISH = 4,
    STEP_LOOK = 5, /* intake looks at positions and definitions */
    STEP_TAKE = 6, /* N: takes rows once */
    STEP_DRAIN = 7,
    STEP_FINISH = 8,
    STEP_ABANDON = 9,
    STEP_DEFINE = 10,     /* K: appends the library's definition K */
    STEP_POKE_DEF = 11,   /* a change of the definitions */
    STEP_SYMBOL = 12,     /* N: defines a symbol of N * N / 4 bytes of the input's next one */
    STEP_POSITION = 13,   /* N and a value: tails */
    STEP_GENERATION = 14, /* the next generation of the dictionary begins */
    STEP_ROOM = 15,       /* N: of the frames to come; or a table is held */
};

struct world {
    const struct rings_library *pieces;
    struct input input;
    uint8_t settings;
    struct ring rings[RINGS];
    struct qwp_dict *dict;
    struct qwp_schema schema;
    struct qwp_framer *framer;
    struct qwp_decoder decoder;
    unsigned char *frame; /* of exactly `room` bytes */
    size_t room, next_room;
    bool frame_open;
    uint32_t framed;
    uint64_t fsn;
};

static unsigned char *def_entry;

/* ---- intake ---- */

static void abandon(struct world *w)
{
    if (w->frame_open) {
        qwp_framer_abandon(w->framer);
        for (uint32_t r = 0; r < RINGS; r++) {
            qwp_source_untake(w->rings[r].source);
        }
        free(w->frame);
        w->frame = NULL;
        w->frame_open = false;
    }
}

static void detach(struct world *w, const struct qwp_source *source, const char *reason)
{
    QWP_ASSERT(source == w->rings[0].source);
    QWP_ASSERT(reason[0] != 0);
    w->rings[0].source->detached = true;
}

static void begin(struct world *w, size_t room)
{
    w->room = room;
    w->frame = malloc(room);
    QWP_ASSERT(w->frame != NULL);
    qwp_framer_begin(w->framer, w->frame, room, w->framed);
    w->frame_open = true;
}

/* As a server would. */
static void judge(struct world *w, size_t len)
{
    struct qwp_message message;
    struct qwp_error err;
    unsigned char *copy = malloc(len);
    QWP_ASSERT(copy != NULL);
    memcpy(copy, w->frame, len);
    if (qwp_decode_message(&w->decoder, copy, len, &message, &err) != QWP_OK) {
        qwp_assert_fail(__FILE__, __LINE__, err.text);
    }
    QWP_ASSERT(message.row_count == qwp_framer_rows(w->framer));
    free(copy);
}

static void count_rows(struct world *w)
{
    const struct qwp_tally *tallies;
    size_t count;
    uint64_t rows = 0;
    QWP_ASSERT(qwp_framer_tallies(w->framer, &tallies, &count));
    for (size_t i = 0; i < count; i++) {
        w->rings[tallies[i].source == w->rings[HONEST].source].rows_taken += tallies[i].row_count;
        rows += tallies[i].row_count;
    }
    QWP_ASSERT(rows == qwp_framer_rows(w->framer));
}

static void finish(struct world *w)
{
    struct qwp_framer_fault fault;
    size_t len;
    if (!w->frame_open) {
        return;
    }
    QWP_ASSERT(qwp_framer_bound(w->framer) <= w->room);
    if (qwp_framer_finish(w->framer, &len, &fault) != QWP_OK) {
        detach(w, fault.source, fault.error.text);
        abandon(w);
        return;
    }
    QWP_ASSERT(len <= w->room && len <= qwp_framer_touched(w->framer));
    judge(w, len);
    count_rows(w);
    w->framed = qwp_framer_framed_symbols(w->framer);
    for (uint32_t r = 0; r < RINGS; r++) {
        if (w->rings[r].source->in_frame) {
            qwp_source_stored(w->rings[r].source, w->fsn);
            ring_show(&w->rings[r]);
        }
    }
    w->fsn++;
    qwp_source_settle(w->rings[0].source, w->fsn);
    free(w->frame);
    w->frame = NULL;
    w->frame_open = false;
}

static void look(struct world *w, struct ring *ring)
{
    struct qwp_source *source = ring->source;
    struct qwp_error err;
    if (source->detached) {
        return;
    }
    ring_show(ring);
    const enum qwp_result polled = qwp_ring_poll(&source->rx);
    if (polled == QWP_CORRUPT) {
        detach(w, source, "impossible tail position");
    } else if (polled == QWP_OK || source->defining) {
        const enum qwp_result defined =
            qwp_source_define(source, def_entry, &w->schema, w->dict, &err);
        if (defined != QWP_OK && defined != QWP_AGAIN) {
            detach(w, source, err.text);
        }
    }
}

/* What did not fit: the frame ends, or an empty one gets more room. False: it was that. */
static bool make_room(struct world *w, struct qwp_source *source,
                      const struct qwp_framer_fault *fault)
{
    if (qwp_framer_rows(w->framer) > 0 || fault->bytes_needed == 0) {
        QWP_ASSERT(qwp_framer_rows(w->framer) > 0 ||
                   qwp_framer_framed_symbols(w->framer) > w->framed); /* or it never ends */
        finish(w);
        return true;
    }
    const size_t bytes = fault->bytes_needed;
    const bool never = bytes > FRAME_BYTES_MAX || fault->blocks_needed > UINT16_MAX;
    abandon(w);
    if (never) {
        detach(w, source, "a unit of rows does not fit into one message to the server");
        return true;
    }
    begin(w, bytes);
    return false;
}

/* Takes once. False: nothing more is to be had. */
static bool take(struct world *w, struct ring *ring, uint64_t rows_max)
{
    struct qwp_source *source = ring->source;
    struct qwp_framer_fault fault;
    if (!qwp_source_is_ready(source)) {
        return false;
    }
    if (!w->frame_open) {
        begin(w, w->next_room);
    }
    enum qwp_result result = qwp_framer_take(w->framer, source, rows_max, &fault);
    if (result == QWP_LIMIT && !make_room(w, source, &fault)) {
        const size_t room = w->room;
        result = qwp_framer_take(w->framer, source, rows_max, &fault);
        if (result == QWP_LIMIT && !make_room(w, source, &fault)) {
            QWP_ASSERT(w->room > room); /* or intake would try for ever */
        }
    }
    if (result == QWP_CORRUPT || result == QWP_INVALID) {
        detach(w, fault.source, fault.error.text);
        abandon(w);
    }
    QWP_ASSERT(result != QWP_NOMEM);
    QWP_ASSERT(!w->frame_open || qwp_framer_bound(w->framer) <= w->room);
    return result == QWP_OK || (result == QWP_LIMIT && !source->detached);
}

static struct qwp_dict *dict_new(const struct world *w)
{
    const bool many = (w->settings & MANY) != 0;
    const uint32_t symbols = (w->settings & SMALL_DICT) != 0 && !many ? SYMBOLS_FEW : 100000;
    struct qwp_dict *dict;
    uint32_t id;
    QWP_ASSERT(qwp_dict_create(&dict, symbols, 1 << 20, NULL) == QWP_OK);
    for (uint16_t i = 0; many && i < 120; i++) {
        QWP_ASSERT(qwp_dict_intern(dict, (const char[]){'a', 'a', (char)i}, 3, &id) == QWP_OK);
    }
    return dict;
}

static void new_generation(struct world *w)
{
    finish(w);
    qwp_dict_destroy(w->dict);
    w->dict = dict_new(w);
    qwp_framer_use(w->framer, w->dict);
    qwp_decoder_reset(&w->decoder);
    w->framed = 0;
    for (uint32_t r = 0; r < RINGS; r++) {
        qwp_source_symbols_reset(&w->rings[r].source->symbols);
        w->rings[r].source->waits_symbols = false;
        w->rings[r].source->text_count = 0;
    }
}

static void set_room(struct world *w)
{
    const uint32_t n = input_next(&w->input);
    struct qwp_table *table = w->schema.tables[n % w->schema.capacity];
    if (n >= 240) {
        for (uint32_t r = 0; r < RINGS; r++) {
            w->rings[r].source->held = false;
        }
        if (table != NULL) {
            table->held = !table->held;
        }
        return;
    }
    w->next_room = 64 + (size_t)n * n * 8;
}

/* ---- the course of things ---- */

static void step(struct world *w, uint8_t op)
{
    const uint32_t r = op >> 4 & 1;
    struct ring *ring = &w->rings[r];
    const bool harmless = r == HONEST;
    uint32_t n;
    switch (op & 0x0f) {
    case STEP_RECORD: {
        const struct library_piece *piece =
            &w->pieces->records[input_next(&w->input) % w->pieces->record_count];
        n = input_next(&w->input);
        const bool unit = n > 200 ? n % 2 != 0 : (n & 0x20) != 0;
        for (n = n > 200 ? 8 * (n - 200) : n % 32 + 1; n > 0; n--) {
            ring_append(ring, piece, unit && n > 1);
        }
        break;
    }
    case STEP_MORE:
        n = input_next(&w->input);
        if (ring->record_count > ring->published_count) {
            ring->data[ring->records[ring->record_count - 1] + 7] ^=
                (unsigned char)(harmless ? n & QWP_RECORD_MORE : n);
        }
        break;
    case STEP_PATCH:
        if (!harmless) {
            ring_change_record(ring, &w->input, ring->published_count, 0);
        }
        break;
    case STEP_POKE:
        n = input_next(&w->input);
        if (!harmless) {
            ring_change_record(ring, &w->input, 0, n);
        }
        break;
    case STEP_PUBLISH:
        ring_publish(ring, harmless);
        break;
    case STEP_LOOK:
        look(w, ring);
        break;
    case STEP_TAKE:
        n = input_next(&w->input);
        (void)take(w, ring, n == 0 ? UINT64_MAX : n);
        break;
    case STEP_DRAIN:
        look(w, ring);
        for (n = 0; n < 100 && take(w, ring, UINT64_MAX); n++) {
        }
        break;
    case STEP_FINISH:
        finish(w);
        break;
    case STEP_ABANDON:
        abandon(w);
        break;
    case STEP_DEFINE: {
        const struct library_piece *piece =
            &w->pieces->defs[input_next(&w->input) % w->pieces->def_count];
        if (!harmless) {
            ring_define(ring, piece->at, piece->bytes);
        }
        break;
    }
    case STEP_POKE_DEF:
        n = 8 * input_next(&w->input);
        if (!harmless && n < ring->defs_pos) {
            ring_change(ring, &w->input, ring->defs + n, ring->defs_pos - n);
        }
        break;
    case STEP_SYMBOL:
        ring_define_symbol(ring, &w->input);
        break;
    case STEP_POSITION:
        if (!harmless) {
            ring_change_position(ring, &w->input);
        }
        break;
    case STEP_GENERATION:
        new_generation(w);
        break;
    default:
        set_room(w);
        break;
    }
}

static void ring_open(struct world *w, uint32_t r)
{
    static struct ring memory[RINGS];
    struct ring *ring = &w->rings[r];
    if (memory[r].data == NULL) {
        memory[r].data = malloc(RING_DATA_BYTES);
        memory[r].defs = malloc(RING_DEFS_BYTES);
        QWP_ASSERT(memory[r].data != NULL && memory[r].defs != NULL);
    }
    *ring = (struct ring){.data = memory[r].data, .defs = memory[r].defs};
    ring_unhide(ring);
    memset(ring->defs, 0, RING_DEFS_BYTES);
    ring->source = calloc(1, sizeof *ring->source);
    QWP_ASSERT(ring->source != NULL);
    ring->source->rx = (struct qwp_ring_rx){
        .header = &ring->header,
        .defs = ring->defs,
        .data = ring->data,
        .data_bytes = RING_DATA_BYTES,
        .data_mask = RING_DATA_BYTES - 1,
        .defs_bytes_max = RING_DEFS_BYTES,
        .unit_bytes_max =
            r != HONEST && (w->settings & UNIT_SMALL) != 0 ? 2048 : RING_DATA_BYTES / 2,
        .fd = -1,
    };
    ring->source->guard = QWP_GUARD_NONE;
    ring->source->tables_max = r != HONEST && (w->settings & TABLES_MAX) != 0 ? 2 : 0;
    ring->source->symbols_max = r != HONEST && (w->settings & SYMBOLS_MAX) != 0 ? 10 : 0;
    ring->source->symbols.is_live = (w->settings & OLD) == 0;
    if ((w->settings & SHARE) != 0) {
        qwp_source_symbols_share(&ring->source->symbols, 12, 1000);
    }
    if (r != HONEST && (w->settings & DEFINED) != 0) {
        ring_define_all(ring, w->pieces);
    }
}

/* As qwp_source_close(), but for the mapping. */
static void ring_close(struct ring *ring)
{
    struct qwp_source *source = ring->source;
    for (uint32_t i = 0; i < source->shape_count; i++) {
        qwp_schema_release(source->shapes[i]);
    }
    free(source->shapes);
    free(source->tables);
    qwp_source_symbols_fini(&source->symbols);
    free(source);
    ring_unhide(ring);
}

static void world_open(struct world *w)
{
    w->settings = input_next(&w->input);
    const unsigned compact = input_next(&w->input) & QWP_ENCODE_COMPACT;
    w->dict = dict_new(w);
    QWP_ASSERT(qwp_schema_init(&w->schema, 1000) == QWP_OK);
    QWP_ASSERT(qwp_framer_create(&w->framer, w->dict, QWP_ENCODE_GORILLA | compact, NULL) ==
               QWP_OK);
    w->next_room = 64 * 1024;
    for (uint32_t r = 0; r < RINGS; r++) {
        ring_open(w, r);
    }
}

static void world_close(struct world *w)
{
    abandon(w);
    for (uint32_t r = 0; r < RINGS; r++) {
        ring_close(&w->rings[r]);
    }
    qwp_framer_destroy(w->framer);
    qwp_schema_fini(&w->schema);
    qwp_dict_destroy(w->dict);
    qwp_decoder_reset(&w->decoder);
}

static uint64_t rows_published(const struct ring *ring)
{
    uint64_t rows = 0;
    for (uint32_t i = 0; i < ring->published_count; i++) {
        const unsigned char *record = ring->data + ring->records[i];
        rows += record[6] == QWP_RECORD_ROW     ? 1
                : record[6] == QWP_RECORD_CHUNK ? qwp_load_u32(record + QWP_CHUNK_ROWS_OFF)
                                                : 0;
    }
    return rows;
}

/* Whatever the other one did, all of the honest one's rows are stored. */
static void drain_honest(struct world *w)
{
    struct ring *ring = &w->rings[HONEST];
    for (uint32_t i = 0; i < w->schema.capacity; i++) {
        if (w->schema.tables[i] != NULL) {
            w->schema.tables[i]->held = false;
        }
    }
    ring->source->held = false;
    ring_unhide(ring);
    ring_publish(ring, true);
    look(w, ring);
    w->next_room = 64 * 1024;
    for (int turns = 0; ring->source->rx.head_pos != ring->write_pos; turns++) {
        QWP_ASSERT(turns < 10000);
        while (take(w, ring, UINT64_MAX)) {
        }
        finish(w);
        if (ring->source->waits_symbols) {
            new_generation(w);
        }
    }
    ring_unhide(ring);
    QWP_ASSERT(ring->rows_taken == rows_published(ring));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    static struct qwp_decoder decoder; /* kept, as it has much memory */
    if (def_entry == NULL) {
        def_entry = malloc(QWP_RING_DEF_BYTES_MAX);
        QWP_ASSERT(def_entry != NULL);
        qwp_decoder_init(&decoder, NULL);
    }
    w = (struct world){
        .pieces = rings_library_get(), .input = {data, data + size}, .decoder = decoder};
    world_open(&w);
    for (int i = 0; i < STEPS_MAX && w.input.at < w.input.end; i++) {
        const uint8_t op = input_next(&w.input);
        struct ring *ring = &w.rings[op >> 4 & 1];
        ring_unhide(ring);
        if (ring == &w.rings[HONEST] && ring->defs_pos == 0) { /* once it is made use of */
            ring_define_all(ring, w.pieces);
        }
        ring_show(&w.rings[~op >> 4 & 1]);
        if ((op & 0x0f) >= STEP_LOOK && (op & 0x0f) <= STEP_ABANDON) {
            ring_show(ring);
        }
        step(&w, op);
        ring_show(ring);
    }
    drain_honest(&w);
    world_close(&w);
    decoder = w.decoder;
    return 0;
}

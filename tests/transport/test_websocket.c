/* Aim: frames go out as RFC 6455 has them and come in whole, wherever the stream is cut; answers
 * are taken to the last byte or not at all. Method: streams of random frames cut at every offset
 * and in random pieces against a simple model; answers shortened and lengthened. The seed is
 * printed; QWP_TEST_SEED sets it. */
#include "transport/qwp_websocket.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/transport/peer.h"
#include "transport/qwp_answer.h"
#include "transport/qwp_outgoing.h"
#include "transport/qwp_session.h"

static uint64_t seed;

static uint32_t next_random(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33);
}

START_TEST(ws_mask_copy_at_every_offset_and_length)
{
    unsigned char src[300];
    unsigned char dst[301];
    for (size_t i = 0; i < sizeof src; i++) {
        src[i] = (unsigned char)next_random();
    }
    const uint32_t mask = 0xa1b2c3d4;
    unsigned char key[4];
    memcpy(key, &mask, 4);
    for (size_t off = 0; off < 9; off++) {
        for (size_t len = 0; len <= sizeof src; len++) {
            memset(dst, 0, sizeof dst);
            qwp_ws_mask_copy(dst, src, len, mask, off);
            for (size_t i = 0; i < len; i++) {
                ck_assert_uint_eq(dst[i], src[i] ^ key[(off + i) & 3]);
            }
            ck_assert_uint_eq(dst[len], 0);
        }
    }
}
END_TEST

START_TEST(ws_header_uses_the_shortest_length)
{
    static const struct {
        uint64_t len;
        const char *bytes;
        size_t n;
    } cases[] = {
        {0, "\x82\x80", 2},
        {125, "\x82\xfd", 2},
        {126, "\x82\xfe\x00\x7e", 4},
        {65535, "\x82\xfe\xff\xff", 4},
        {65536, "\x82\xff\x00\x00\x00\x00\x00\x01\x00\x00", 10},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char out[QWP_WS_HEADER_MAX];
        ck_assert_uint_eq(qwp_ws_header(out, QWP_WS_BINARY, cases[i].len, 0x04030201),
                          cases[i].n + 4);
        ck_assert_mem_eq(out, cases[i].bytes, cases[i].n);
        ck_assert_mem_eq(out + cases[i].n, "\x01\x02\x03\x04", 4);
    }
}
END_TEST

/* ---- reading ---- */

/* What a stream holds, in one text: kind and bytes of each event, summed up. */
struct digest {
    uint64_t sum;
    int events;
};

static void digest_event(struct digest *digest, unsigned kind, const unsigned char *bytes,
                         size_t len)
{
    digest->events++;
    digest->sum = digest->sum * 31 + kind;
    digest->sum = digest->sum * 31 + len;
    for (size_t i = 0; i < len; i++) {
        digest->sum = digest->sum * 31 + bytes[i];
    }
}

static enum qwp_result read_piece(struct qwp_ws_reader *reader, const unsigned char *bytes,
                                  size_t len, struct digest *digest)
{
    const unsigned char *at = bytes;
    for (;;) {
        struct qwp_ws_event event;
        struct qwp_error err;
        const enum qwp_result result = qwp_ws_read(reader, &at, bytes + len, &event, &err);
        if (result == QWP_AGAIN) {
            ck_assert_ptr_eq(at, bytes + len);
        }
        if (result != QWP_OK) {
            return result;
        }
        digest_event(digest, (unsigned)event.kind, event.bytes, event.len);
    }
}

enum { STREAM_MAX = 4 << 20, MESSAGE_MAX = 200000 };

/* Random messages, whole or in fragments with control frames between; the model's digest. */
static size_t make_stream(unsigned char *out, int messages, size_t message_max,
                          struct digest *model)
{
    size_t at = 0;
    unsigned char *message = malloc(message_max + 1);
    unsigned char control[125];
    for (int m = 0; m < messages; m++) {
        const size_t len = next_random() % (message_max + 1);
        for (size_t i = 0; i < len; i++) {
            message[i] = (unsigned char)next_random();
        }
        const unsigned fragments = next_random() % 3 == 0 ? 1 + next_random() % 4 : 1;
        size_t off = 0;
        for (unsigned f = 0; f < fragments; f++) {
            const size_t n = f + 1 == fragments ? len - off : next_random() % (len - off + 1);
            at += peer_frame(out + at, (f + 1 == fragments ? 0x80u : 0u) | (f == 0 ? 2u : 0u),
                             message + off, n);
            off += n;
            if (f + 1 < fragments && next_random() % 2 == 0) {
                const unsigned opcode = 9 + next_random() % 2;
                const size_t control_len = next_random() % 126;
                memset(control, (int)next_random(), sizeof control);
                at += peer_frame(out + at, 0x80u | opcode, control, control_len);
                digest_event(model, opcode, control, control_len);
            }
        }
        digest_event(model, 2, message, len);
    }
    free(message);
    return at;
}

START_TEST(ws_stream_cut_anywhere_reads_the_same)
{
    unsigned char *stream = malloc(STREAM_MAX);
    struct digest model = {0};
    const size_t len = make_stream(stream, 12, 300, &model);
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, MESSAGE_MAX);
    for (size_t cut = 0; cut <= len; cut++) {
        struct digest digest = {0};
        qwp_ws_reader_reset(&reader);
        ck_assert_int_eq(read_piece(&reader, stream, cut, &digest), QWP_AGAIN);
        ck_assert_int_eq(read_piece(&reader, stream + cut, len - cut, &digest), QWP_AGAIN);
        ck_assert_int_eq(digest.events, model.events);
        ck_assert_uint_eq(digest.sum, model.sum);
    }
    qwp_ws_reader_fini(&reader);
    free(stream);
}
END_TEST

START_TEST(ws_stream_in_random_pieces_reads_the_same)
{
    unsigned char *stream = malloc(STREAM_MAX);
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, MESSAGE_MAX);
    for (int round = 0; round < 12; round++) {
        struct digest model = {0};
        struct digest digest = {0};
        const size_t len = make_stream(stream, 20, round % 3 == 0 ? MESSAGE_MAX : 2000, &model);
        qwp_ws_reader_reset(&reader);
        for (size_t at = 0; at < len;) {
            size_t n = 1 + next_random() % (round % 2 == 0 ? 64 : 70000);
            n = n < len - at ? n : len - at;
            ck_assert_int_eq(read_piece(&reader, stream + at, n, &digest), QWP_AGAIN);
            at += n;
        }
        ck_assert_int_eq(digest.events, model.events);
        ck_assert_uint_eq(digest.sum, model.sum);
    }
    qwp_ws_reader_fini(&reader);
    free(stream);
}
END_TEST

START_TEST(ws_message_bound_holds_over_fragments)
{
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, 1000);
    unsigned char frame[1100];
    unsigned char payload[1001] = {0};
    struct digest digest = {0};
    ck_assert_int_eq(read_piece(&reader, frame, peer_frame(frame, 0x82, payload, 1000), &digest),
                     QWP_AGAIN);
    ck_assert_int_eq(digest.events, 1);
    ck_assert_int_eq(read_piece(&reader, frame, peer_frame(frame, 0x82, payload, 1001), &digest),
                     QWP_LIMIT);
    qwp_ws_reader_reset(&reader);
    ck_assert_int_eq(read_piece(&reader, frame, peer_frame(frame, 0x02, payload, 999), &digest),
                     QWP_AGAIN);
    ck_assert_int_eq(read_piece(&reader, frame, peer_frame(frame, 0x00, payload, 1), &digest),
                     QWP_AGAIN);
    ck_assert_int_eq(read_piece(&reader, frame, peer_frame(frame, 0x80, payload, 1), &digest),
                     QWP_LIMIT);
    ck_assert_uint_le(reader.message_cap, 4096);
    qwp_ws_reader_fini(&reader);
}
END_TEST

START_TEST(ws_nonsense_ends_and_never_grows)
{
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, 65536);
    unsigned char bytes[512];
    for (int round = 0; round < 20000; round++) {
        const size_t len = 1 + next_random() % 64;
        for (size_t i = 0; i < len; i++) {
            bytes[i] = (unsigned char)next_random();
        }
        if (round % 2 == 0) {
            bytes[0] = (unsigned char)(0x80 | (next_random() % 2 == 0 ? 2 : 8 + next_random() % 3));
            bytes[1] &= 0x7f;
        }
        struct digest digest = {0};
        qwp_ws_reader_reset(&reader);
        (void)!read_piece(&reader, bytes, len, &digest);
        ck_assert_uint_le(reader.message_cap, 131072);
    }
    qwp_ws_reader_fini(&reader);
}
END_TEST

START_TEST(ws_nothing_is_read_after_a_close)
{
    struct qwp_ws_reader reader;
    qwp_ws_reader_init(&reader, 1000);
    struct digest digest = {0};
    static const unsigned char bytes[] = "\x88\x00\xff\xff\xff\xff";
    ck_assert_int_eq(read_piece(&reader, bytes, sizeof bytes - 1, &digest), QWP_AGAIN);
    ck_assert_int_eq(digest.events, 1);
    qwp_ws_reader_fini(&reader);
}
END_TEST

/* ---- outgoing ---- */

/* Unmasks what the client wrote and digests it. */
static void digest_client_stream(const unsigned char *at, size_t len, struct digest *digest)
{
    const unsigned char *end = at + len;
    while (at < end) {
        const unsigned opcode = at[0] & 0x0f;
        ck_assert_uint_eq(at[0] & 0xf0, 0x80);
        ck_assert_uint_eq(at[1] & 0x80, 0x80);
        uint64_t n = at[1] & 0x7f;
        at += 2;
        const int extra = n == 126 ? 2 : n == 127 ? 8 : 0;
        if (extra > 0) {
            n = 0;
            for (int i = 0; i < extra; i++) {
                n = n << 8 | *at++;
            }
        }
        const unsigned char *mask = at;
        at += 4;
        ck_assert_uint_le(n, (uint64_t)(end - at));
        unsigned char *payload = malloc((size_t)n + 1);
        for (size_t i = 0; i < n; i++) {
            payload[i] = at[i] ^ mask[i & 3];
        }
        digest_event(digest, opcode, payload, (size_t)n);
        free(payload);
        at += n;
    }
    ck_assert_ptr_eq(at, end);
}

START_TEST(outgoing_stream_is_the_same_for_every_room)
{
    static struct qwp_outgoing o;
    unsigned char *stream = malloc(STREAM_MAX);
    unsigned char messages[40][500];
    memset(&o, 0, sizeof o);
    for (size_t room = 1; room < 700; room += room < 40 ? 1 : 37) {
        struct digest model = {0};
        struct digest digest = {0};
        qwp_outgoing_reset(&o);
        qwp_outgoing_pong(&o, "first", 5);
        qwp_outgoing_pong(&o, "last", 4);
        digest_event(&model, QWP_WS_PONG, (const unsigned char *)"last", 4);
        qwp_outgoing_ping(&o);
        digest_event(&model, QWP_WS_PING, NULL, 0);
        for (int i = 0; i < 40; i++) {
            const size_t len = next_random() % 500;
            memset(messages[i], i, len);
            ck_assert_int_eq(qwp_outgoing_push(&o, messages[i], len), i);
            digest_event(&model, QWP_WS_BINARY, messages[i], len);
        }
        size_t len = 0;
        while (qwp_outgoing_has_more(&o)) {
            const size_t n = qwp_outgoing_fill(&o, stream + len, room);
            ck_assert_uint_gt(n, 0);
            len += n;
        }
        qwp_outgoing_stop(&o, 1000);
        qwp_outgoing_stop(&o, 1002);
        digest_event(&model, QWP_WS_CLOSE, (const unsigned char *)"\x03\xe8", 2);
        len += qwp_outgoing_fill(&o, stream + len, 100);
        qwp_outgoing_ping(&o);
        ck_assert(!qwp_outgoing_has_more(&o)); /* nothing after a close */
        digest_client_stream(stream, len, &digest);
        ck_assert_int_eq(digest.events, model.events);
        ck_assert_uint_eq(digest.sum, model.sum);
    }
    free(stream);
}
END_TEST

START_TEST(outgoing_counts_follow_the_bytes)
{
    static struct qwp_outgoing o;
    unsigned char stream[256];
    qwp_outgoing_reset(&o);
    for (int i = 0; i < QWP_OUTGOING_MAX; i++) {
        ck_assert_int_eq(qwp_outgoing_push(&o, "abcdefgh", 8), i);
    }
    ck_assert(qwp_outgoing_is_full(&o));
    ck_assert_uint_eq(qwp_outgoing_fill(&o, stream, 34), 34); /* two of 14 bytes and some */
    ck_assert_int_eq(o.framed_count, 2);
    qwp_outgoing_seal_plain(&o, 100);
    /* The kernel may take any part of it: a message is sent when its own last byte is. */
    qwp_outgoing_sent(&o, 113);
    ck_assert_int_eq(o.sent_count, 0);
    ck_assert(qwp_outgoing_is_full(&o));
    qwp_outgoing_sent(&o, 114);
    ck_assert_int_eq(o.sent_count, 1);
    ck_assert(!qwp_outgoing_is_full(&o));
    qwp_outgoing_sent(&o, 127);
    ck_assert_int_eq(o.sent_count, 1);
    qwp_outgoing_sent(&o, 128);
    ck_assert_int_eq(o.sent_count, 2);
    /* In a TLS record it is when all of the record is. */
    ck_assert_uint_eq(qwp_outgoing_fill(&o, stream, 14), 14);
    qwp_outgoing_seal_record(&o, 400);
    qwp_outgoing_sent(&o, 399);
    ck_assert_int_eq(o.sent_count, 2);
    qwp_outgoing_sent(&o, 400);
    ck_assert_int_eq(o.sent_count, 3);
    /* Stopped in the middle of a message: that one is finished, the rest is dropped. */
    qwp_outgoing_stop(&o, 1000);
    ck_assert_uint_eq(qwp_outgoing_fill(&o, stream, sizeof stream), 8 + 8);
    ck_assert_int_eq(o.framed_count, 4);
}
END_TEST

/* ---- answers ---- */

START_TEST(answer_of_the_wrong_length_is_refused)
{
    static const struct {
        const char *bytes;
        size_t len;
        uint8_t status;
        int64_t sequence;
        uint16_t tables;
    } good[] = {
        {"\x00\x07\0\0\0\0\0\0\0\0\0", 11, 0, 7, 0},
        {"\x00\x07\0\0\0\0\0\0\0\x02\0\x01\0a\x05\0\0\0\0\0\0\0\x02\0bc\x06\0\0\0\0\0\0\0", 34, 0,
         7, 2},
        {"\x02\x01\0\x01\0a\x05\0\0\0\0\0\0\0", 14, 2, -1, 1},
        {"\x03\x01\0\0\0\0\0\0\0\x03\0bad", 14, 3, 1, 0},
        {"\x77\x01\0\0\0\0\0\0\0\0\0", 11, 0x77, 1, 0},
    };
    struct qwp_answer answer;
    struct qwp_error err;
    unsigned char bytes[64];
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        memcpy(bytes, good[i].bytes, good[i].len);
        ck_assert_int_eq(qwp_answer_parse(bytes, good[i].len, &answer, &err), QWP_OK);
        ck_assert_uint_eq(answer.status, good[i].status);
        ck_assert_int_eq(answer.sequence, good[i].sequence);
        ck_assert_uint_eq(answer.table_count, good[i].tables);
        for (size_t len = 0; len < good[i].len; len++) {
            /* A copy of its own, so that a sanitizer sees a read beyond. */
            unsigned char *cut = malloc(len + 1);
            memcpy(cut, bytes, len);
            ck_assert_int_eq(qwp_answer_parse(cut, len, &answer, &err), QWP_PEER);
            free(cut);
        }
        bytes[good[i].len] = 0;
        ck_assert_int_eq(qwp_answer_parse(bytes, good[i].len + 1, &answer, &err), QWP_PEER);
    }
}
END_TEST

START_TEST(answer_text_must_be_utf8)
{
    struct qwp_answer answer;
    struct qwp_error err;
    const unsigned char text[] = "\x05\x01\0\0\0\0\0\0\0\x02\0\xc3\x28";
    ck_assert_int_eq(qwp_answer_parse(text, sizeof text - 1, &answer, &err), QWP_PEER);
    const unsigned char name[] = "\x02\x01\0\x01\0\xff\x05\0\0\0\0\0\0\0";
    ck_assert_int_eq(qwp_answer_parse(name, sizeof name - 1, &answer, &err), QWP_PEER);
}
END_TEST

START_TEST(answer_tables_can_be_walked)
{
    struct qwp_answer answer;
    struct qwp_error err;
    const unsigned char bytes[] = "\x02\x02\0\x01\0a\x05\0\0\0\0\0\0\0\x02\0bc\x06\0\0\0\0\0\0\0";
    ck_assert_int_eq(qwp_answer_parse(bytes, sizeof bytes - 1, &answer, &err), QWP_OK);
    const unsigned char *at = answer.tables;
    const unsigned char *end = at + answer.tables_bytes;
    const char *name;
    uint16_t name_len;
    int64_t seq_txn;
    at = qwp_ack_table_next(at, end, &name, &name_len, &seq_txn);
    ck_assert(name_len == 1 && name[0] == 'a' && seq_txn == 5);
    at = qwp_ack_table_next(at, end, &name, &name_len, &seq_txn);
    ck_assert(name_len == 2 && memcmp(name, "bc", 2) == 0 && seq_txn == 6);
    ck_assert_ptr_null(qwp_ack_table_next(at, end, &name, &name_len, &seq_txn));
}
END_TEST

int main(void)
{
    const char *given = getenv("QWP_TEST_SEED");
    seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)qwp_clock_wall_ns();
    printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    Suite *suite = suite_create("websocket");
    TCase *tc = tcase_create("websocket");
    tcase_set_timeout(tc, 120);
    tcase_add_test(tc, ws_mask_copy_at_every_offset_and_length);
    tcase_add_test(tc, ws_header_uses_the_shortest_length);
    tcase_add_test(tc, ws_stream_cut_anywhere_reads_the_same);
    tcase_add_test(tc, ws_stream_in_random_pieces_reads_the_same);
    tcase_add_test(tc, ws_message_bound_holds_over_fragments);
    tcase_add_test(tc, ws_nonsense_ends_and_never_grows);
    tcase_add_test(tc, ws_nothing_is_read_after_a_close);
    tcase_add_test(tc, outgoing_stream_is_the_same_for_every_room);
    tcase_add_test(tc, outgoing_counts_follow_the_bytes);
    tcase_add_test(tc, answer_of_the_wrong_length_is_refused);
    tcase_add_test(tc, answer_text_must_be_utf8);
    tcase_add_test(tc, answer_tables_can_be_walked);
    suite_add_tcase(suite, tc);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

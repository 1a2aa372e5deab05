/* Aim: the thread sanitizer sees every ordered access of ring, definitions, bell and progress.
 * Method: producer and sidecar as two threads that share one mapping (two mappings of a file are
 * two memories to TSan), with the FIFO bell, whose sleep it understands. Also run without TSan.
 * That a weakened order fails here was tried by hand: see tests/ipc/README.md. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "tests/ipc/ipc_fixture.h"

enum { RECORDS = 30000, SYMBOL_EVERY = 64 };

static struct pair pair;
static struct sidecar sidecar;
static struct qwp_ring_rx own_mapping;
static unsigned char entry[QWP_RING_DEF_BYTES_MAX];

static void share_mapping(void)
{
    pair_open(&pair);
    own_mapping = pair.rx;
    pair.rx.header = pair.tx.header;
    pair.rx.defs = pair.tx.defs;
    pair.rx.data = pair.tx.data;
}

static void unshare_mapping(void)
{
    pair.rx.header = own_mapping.header;
    pair_close(&pair);
}

/* ---- producer thread ---- */

struct wait {
    uint64_t position;
    uint32_t bytes;
};

static bool has_room(void *owner)
{
    unsigned char *at;
    return qwp_ring_reserve(&pair.tx, ((struct wait *)owner)->bytes, &at) == QWP_OK;
}

static bool is_acked(void *owner)
{
    return atomic_load_explicit(&pair.tx.header->acked_pos, memory_order_acquire) >=
           ((struct wait *)owner)->position;
}

static void *produce(void *owner)
{
    struct qwp_bell_tx bell;
    qwp_bell_tx_init(&bell, *(bool *)owner && qwp_bell_register());
    uint64_t symbols = 0;
    for (uint64_t seq = 0; seq < RECORDS; seq++) {
        unsigned char *at;
        struct wait wait = {.bytes = (uint32_t)(32 + 8 * (seq % 50))};
        if (seq % SYMBOL_EVERY == 0) {
            char text[32];
            snprintf(text, sizeof text, "symbol-%llu", (unsigned long long)symbols);
            if (qwp_ring_define_symbol(&pair.tx, text, strlen(text), NULL) != QWP_OK) {
                return "define";
            }
            symbols++;
        }
        if (qwp_ring_reserve(&pair.tx, wait.bytes, &at) != QWP_OK &&
            (qwp_bell_wait(&pair.tx, QWP_WAIT_SPACE, has_room, &wait, QWP_NEVER_NS) != QWP_OK ||
             qwp_ring_reserve(&pair.tx, wait.bytes, &at) != QWP_OK)) {
            return "reserve";
        }
        memset(at, (int)(seq & 0xff), wait.bytes);
        qwp_store_u32(at, wait.bytes);
        qwp_store_u64(at + 8, seq);
        qwp_store_u64(at + 16, symbols - 1);
        qwp_ring_commit(&pair.tx, wait.bytes);
        qwp_ring_publish(&pair.tx, 1);
        qwp_bell_published(&bell, &pair.tx);
        if (seq % 1000 == 999) {
            wait.position = pair.tx.tail_pos;
            if (qwp_bell_wait(&pair.tx, QWP_WAIT_ACKED, is_acked, &wait, QWP_NEVER_NS) != QWP_OK) {
                return "wait";
            }
            /* sync[ring.acked]: as many as this position has, one in ten. */
            if (atomic_load_explicit(&pair.tx.header->rejected_rows, memory_order_relaxed) * 10 <
                seq + 1) {
                return "rejected rows lag behind";
            }
        }
    }
    qwp_bell_tx_fini(&bell);
    return NULL;
}

/* ---- sidecar, in the main thread ---- */

struct taken {
    uint64_t seq;
    uint64_t symbols;
    uint64_t rejected;
};

static void take_definitions(struct taken *taken)
{
    struct qwp_ring_def def;
    enum qwp_result result;
    while ((result = qwp_ring_next_def(&pair.rx, entry, &def, &fixture_err)) == QWP_OK) {
        char text[32];
        snprintf(text, sizeof text, "symbol-%llu", (unsigned long long)taken->symbols);
        ck_assert_uint_eq(def.text_len, strlen(text));
        ck_assert_mem_eq(def.text, text, def.text_len);
        taken->symbols++;
    }
    ASSERT_RESULT(result, QWP_AGAIN);
}

static void take_records(struct taken *taken)
{
    struct qwp_ring_rx *rx = &pair.rx;
    uint64_t pos = rx->head_pos;
    const uint64_t first = taken->seq;
    take_definitions(taken);
    while (pos < rx->tail_seen_pos) {
        const unsigned char *at = rx->data + (pos & rx->data_mask);
        const uint32_t bytes = qwp_load_u32(at);
        ck_assert_uint_eq(qwp_load_u64(at + 8), taken->seq);
        ck_assert_uint_lt(qwp_load_u64(at + 16), taken->symbols);
        ck_assert_uint_eq(at[bytes - 1], taken->seq & 0xff);
        taken->seq++;
        pos += bytes;
    }
    qwp_ring_release(rx, pos, taken->seq - first);
    const uint64_t rejected = (taken->seq + 9) / 10;
    qwp_ring_settle(rx, pos, taken->seq - first, rejected - taken->rejected);
    taken->rejected = rejected;
}

static void run(bool registered)
{
    pthread_t thread;
    struct taken taken = {0};
    share_mapping();
    sidecar_open(&sidecar, QWP_BELL_FIFO, false);
    qwp_bell_attach(&sidecar.bell, &pair.rx);
    ck_assert_int_eq(pthread_create(&thread, NULL, produce, &registered), 0);
    while (taken.seq < RECORDS) {
        if (qwp_ring_poll(&pair.rx) == QWP_OK) {
            take_records(&taken);
            continue;
        }
        const bool sure = qwp_bell_park(&sidecar.bell, taken.seq % 3 == 0, false);
        if (qwp_ring_poll(&pair.rx) == QWP_OK) {
            qwp_bell_unpark(&sidecar.bell);
            take_records(&taken);
            continue;
        }
        struct pollfd fd = {.fd = sidecar.bell.fifo_fd, .events = POLLIN};
        poll(&fd, 1, sure && taken.seq % 3 != 0 ? 50 : 1);
        qwp_bell_unpark(&sidecar.bell);
    }
    void *wrong;
    pthread_join(thread, &wrong);
    ck_assert_ptr_null(wrong);
    sidecar_close(&sidecar);
    unshare_mapping();
}

START_TEST(two_threads_on_one_mapping_agree_with_membarrier)
{
    run(true);
}
END_TEST

START_TEST(two_threads_on_one_mapping_agree_with_fences)
{
    run(false);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("ring_threads");
    TCase *test_case = fixture_case(suite, "threads");
    tcase_set_timeout(test_case, 120);
    tcase_add_test(test_case, two_threads_on_one_mapping_agree_with_membarrier);
    tcase_add_test(test_case, two_threads_on_one_mapping_agree_with_fences);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

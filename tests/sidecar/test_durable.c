/* Aim: a frame counts as durable only when every table of its OK, and of all before it, has got
 * there; never earlier, and in the end each one does, whatever is joined for want of memory.
 * Method: lists as the session gives them; small cases by hand, long ones against a model that
 * keeps everything. */
#include "sidecar/qwp_durable.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/qwp_bytes.h"
#include "core/qwp_clock.h"
#include "core/store/qwp_dict.h"

static struct qwp_durable durable;

static void setup(void)
{
    ck_assert_int_eq(qwp_durable_open(&durable, NULL), QWP_OK);
}

static void teardown(void)
{
    qwp_durable_close(&durable);
    qwp_durable_close(&durable);
}

/* ---- lists ---- */

struct list {
    size_t len;
    uint16_t count;
    unsigned char bytes[64 * 1024];
};

static void list_add(struct list *list, const char *name, int64_t txn)
{
    const uint16_t len = (uint16_t)strlen(name);
    ck_assert_uint_le(list->len + len + 10u, sizeof list->bytes);
    qwp_store_u16(list->bytes + list->len, len);
    memcpy(list->bytes + list->len + 2, name, len);
    qwp_store_i64(list->bytes + list->len + 2 + len, txn);
    list->len += len + 10u;
    list->count++;
}

static enum qwp_result ok(uint64_t fsn_end, const struct list *list)
{
    return qwp_durable_ok(&durable, fsn_end, list->bytes, list->len, list->count);
}

static void confirm(const struct list *list)
{
    ck_assert_int_eq(qwp_durable_confirm(&durable, list->bytes, list->len, list->count), QWP_OK);
}

static void ok_one(uint64_t fsn_end, const char *name, int64_t txn)
{
    struct list list = {0};
    list_add(&list, name, txn);
    ck_assert_int_eq(ok(fsn_end, &list), QWP_OK);
}

static void confirm_one(const char *name, int64_t txn)
{
    struct list list = {0};
    list_add(&list, name, txn);
    confirm(&list);
}

/* ---- by hand ---- */

START_TEST(durable_ok_waits_for_each_of_its_tables)
{
    struct list list = {0};
    list_add(&list, "a", 1);
    list_add(&list, "b", 7);
    ck_assert_int_eq(ok(3, &list), QWP_OK);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    confirm_one("a", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    confirm_one("b", 6);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    ck_assert(qwp_durable_is_waiting(&durable));
    confirm_one("b", 9);
    ck_assert_uint_eq(qwp_durable_release(&durable), 3);
    ck_assert(!qwp_durable_is_waiting(&durable));
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
}
END_TEST

START_TEST(durable_later_ok_waits_for_the_earlier)
{
    ok_one(1, "a", 1);
    ok_one(2, "b", 1);
    ck_assert_int_eq(ok(3, &(struct list){0}), QWP_OK); /* names no table */
    ok_one(4, "c", 1);
    confirm_one("b", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    confirm_one("a", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 3);
    confirm_one("c", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 4);
}
END_TEST

START_TEST(durable_confirmation_may_come_first_and_never_goes_back)
{
    confirm_one("a", 5);
    confirm_one("a", 2);
    ok_one(1, "a", 5);
    ck_assert_uint_eq(qwp_durable_release(&durable), 1);
}
END_TEST

/* A part of a frame completes none, but its tables count. */
START_TEST(durable_part_without_a_frame_holds_the_next)
{
    ck_assert_int_eq(ok(0, &(struct list){0}), QWP_OK); /* catch-up: nothing to wait for */
    ck_assert(!qwp_durable_is_waiting(&durable));
    ok_one(0, "a", 1);
    ok_one(1, "b", 1);
    confirm_one("b", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    confirm_one("a", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 1);
}
END_TEST

START_TEST(durable_new_connection_forgets)
{
    ok_one(1, "a", 1);
    confirm_one("b", 100);
    qwp_durable_reset(&durable);
    ck_assert(!qwp_durable_is_waiting(&durable));
    ok_one(1, "b", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 0);
    confirm_one("b", 1);
    ck_assert_uint_eq(qwp_durable_release(&durable), 1);
}
END_TEST

START_TEST(durable_too_many_tables_are_a_limit)
{
    enum qwp_result result = QWP_OK;
    int tables = 0;
    for (; result == QWP_OK && tables <= QWP_DURABLE_TABLES_MAX; tables++) {
        char name[16];
        snprintf(name, sizeof name, "t%d", tables);
        struct list list = {0};
        list_add(&list, name, 1);
        result = ok((uint64_t)tables + 1, &list);
    }
    ck_assert_int_eq(result, QWP_LIMIT);
    ck_assert_int_gt(tables, 10000);
}
END_TEST

/* ---- against a model ---- */

enum { TABLES = 500, OKS = 8000 };

static uint64_t seed;

static uint64_t dice(uint64_t sides)
{
    seed ^= seed >> 12;
    seed ^= seed << 25;
    seed ^= seed >> 27;
    return (seed * UINT64_C(0x2545f4914f6cdd1d) >> 33) % sides;
}

/* What an OK waits for, in full. */
struct model_ok {
    uint16_t table[40];
    int64_t txn[40];
    unsigned count;
};

static struct model_ok *model;
static int64_t txns[TABLES], durables[TABLES];
static uint64_t model_end, model_done; /* OKs given; OKs that are durable with all before them */

static void model_advance(void)
{
    while (model_done < model_end) {
        const struct model_ok *at = &model[model_done];
        for (unsigned i = 0; i < at->count; i++) {
            if (at->txn[i] > durables[at->table[i]]) {
                return;
            }
        }
        model_done++;
    }
}

static void give_ok(void)
{
    struct model_ok *at = &model[model_end++];
    struct list list = {0};
    bool named[TABLES] = {0};
    const unsigned count = (unsigned)dice(40);
    while (at->count < count) {
        const uint16_t table = (uint16_t)dice(TABLES);
        if (named[table]) {
            continue;
        }
        named[table] = true;
        char name[16];
        snprintf(name, sizeof name, "table%u", table);
        at->table[at->count] = table;
        at->txn[at->count++] = ++txns[table];
        list_add(&list, name, txns[table]);
    }
    ck_assert_int_eq(ok(model_end, &list), QWP_OK);
}

static void give_confirmation(bool all)
{
    for (int table = 0; table < TABLES; table++) {
        if (all || dice(4) == 0) {
            char name[16];
            snprintf(name, sizeof name, "table%d", table);
            durables[table] += (int64_t)dice((uint64_t)(txns[table] - durables[table]) + 1);
            durables[table] = all ? txns[table] : durables[table];
            confirm_one(name, durables[table]);
        }
    }
}

/* 8,000 OKs with 160,000 pairs: more than are kept apart, of both. */
START_TEST(durable_never_early_and_at_last)
{
    seed = (uint64_t)qwp_clock_wall_ns() | 1;
    printf("durable_never_early_and_at_last: seed %llu, confirmations %s\n",
           (unsigned long long)seed, _i == 0 ? "often" : "never until the end");
    model = calloc(OKS, sizeof *model);
    uint64_t released = 0;
    while (model_end < OKS) {
        give_ok();
        if (_i == 0 && dice(500) == 0) {
            give_confirmation(false);
        }
        model_advance();
        const uint64_t fsn_end = qwp_durable_release(&durable);
        ck_assert(fsn_end == 0 || fsn_end > released);
        released = fsn_end != 0 ? fsn_end : released;
        ck_assert_uint_le(released, model_done);
    }
    give_confirmation(true);
    ck_assert_uint_eq(qwp_durable_release(&durable), OKS);
    ck_assert(!qwp_durable_is_waiting(&durable));
    free(model);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("durable");
    TCase *tcase = tcase_create("durable");
    tcase_set_timeout(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, durable_ok_waits_for_each_of_its_tables);
    tcase_add_test(tcase, durable_later_ok_waits_for_the_earlier);
    tcase_add_test(tcase, durable_confirmation_may_come_first_and_never_goes_back);
    tcase_add_test(tcase, durable_part_without_a_frame_holds_the_next);
    tcase_add_test(tcase, durable_new_connection_forgets);
    tcase_add_test(tcase, durable_too_many_tables_are_a_limit);
    tcase_add_loop_test(tcase, durable_never_early_and_at_last, 0, 2);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

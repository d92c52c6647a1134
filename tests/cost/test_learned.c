/*
 * What is learned about reading and copying: when each is tried, what trying costs, that a change
 * is noticed, when oneshots are granted, and what the announced choice means for a plan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "cost/learned.h"
#include "plan/plan.h"

#include <string.h>

#define BLOCK ((uint64_t)300 << 10)

static struct hoop_learned learned;

static bool next(bool model)
{
    return hoop_learned_reads(&learned, HOOP_COLL_GATHER, BLOCK, model);
}

/* Makes so many calls, with one time for reading and one for copying. Returns how many of them
 * read. */
static unsigned run(unsigned calls, bool model, uint64_t read_ns, uint64_t copy_ns)
{
    unsigned read = 0;
    for (unsigned i = 0; i < calls; i++) {
        const bool reads = next(model);
        hoop_learned_add(&learned, HOOP_COLL_GATHER, BLOCK, reads, reads ? read_ns : copy_ns);
        read += reads;
    }
    return read;
}

static int forget(void **state)
{
    (void)state;
    memset(&learned, 0, sizeof(learned));
    return 0;
}

static void test_order(void **state)
{
    (void)state;
    for (int model = 0; model < 2; model++) {
        forget(NULL);
        assert_int_equal(run(HOOP_LEARNED_TRIES, model, 100, 100), model ? HOOP_LEARNED_TRIES : 0);
        assert_int_equal(run(HOOP_LEARNED_TRIES, model, 100, 100), model ? 0 : HOOP_LEARNED_TRIES);
        forget(NULL);
        (void)run(2 * HOOP_LEARNED_TRIES, model, 5000, 4000);
        assert_int_equal(run(60, model, 5000, 4000), 0);
        forget(NULL);
        (void)run(2 * HOOP_LEARNED_TRIES, model, 4000, 5000);
        assert_int_equal(run(60, model, 4000, 5000), 60);
    }
}

/* Trying costs one percent, and is never given up. */
static void test_trying(void **state)
{
    (void)state;
    static const unsigned ratios[] = {101, 130, 200, 400, 1000}; /* percent */
    for (unsigned i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        forget(NULL);
        (void)run(2 * HOOP_LEARNED_TRIES, true, ratios[i] * 100ULL, 10000);
        const unsigned slower = run(300000, true, ratios[i] * 100ULL, 10000);
        assert_in_range(slower, 3, 300000 / 60);
        assert_true(slower * (ratios[i] - 100) <= 300000);
    }
}

/* One call that takes long changes nothing; a machine that has become different does, after a
 * while. */
static void test_change(void **state)
{
    (void)state;
    (void)run(100, true, 10000, 15000);
    assert_true(next(true));
    hoop_learned_add(&learned, HOOP_COLL_GATHER, BLOCK, true, 100000000);
    assert_int_equal(run(20, true, 10000, 15000), 20);
    assert_in_range(run(200, true, 40000, 15000), 1, 20);
    assert_in_range(run(4000, true, 10000, 15000), 2000, 4000);
}

/* What is slow at first, with cold caches, and fast from then on, is found to be fast. */
static void test_cold(void **state)
{
    (void)state;
    unsigned copied = 0, last = 0;
    (void)run(2 * HOOP_LEARNED_TRIES, true, 10000, 30000); /* while all was cold */
    for (unsigned i = 0; i < 2000; i++) {
        const bool reads = next(true);
        last = reads ? 0 : last + 1;
        copied += !reads;
        hoop_learned_add(&learned, HOOP_COLL_GATHER, BLOCK, reads,
                         reads       ? 10000
                         : last == 1 ? 20000
                                     : 5000);
    }
    assert_in_range(copied, 1000, 2000);
}

/* What is learned for one size or collective says nothing about others; similar sizes share it. */
static void test_apart(void **state)
{
    (void)state;
    (void)run(100, true, 5000, 1000);
    assert_false(next(true));
    assert_false(hoop_learned_reads(&learned, HOOP_COLL_GATHER, BLOCK + 1000, true));
    assert_true(hoop_learned_reads(&learned, HOOP_COLL_GATHER, 2 * BLOCK, true));
    assert_true(hoop_learned_reads(&learned, HOOP_COLL_SCATTER, BLOCK, true));
    for (uint64_t bytes = 1; bytes != 0; bytes <<= 1) {
        hoop_learned_add(&learned, HOOP_COLL_ALLTOALL, bytes, true, UINT64_MAX);
        (void)hoop_learned_reads(&learned, HOOP_COLL_ALLTOALL, bytes, true);
    }
}

/* One announced call, and what it grants; the last of these takes so long. */
static enum hoop_grant announce(uint64_t read_ns, uint64_t copy_ns, uint64_t oneshot_ns)
{
    const enum hoop_grant grant = hoop_learned_grants(&learned, HOOP_COLL_GATHER, BLOCK, true);
    (void)run(1, true, read_ns, copy_ns);
    if (grant != HOOP_GRANT_NONE) {
        hoop_learned_add_oneshot(&learned, HOOP_COLL_GATHER, BLOCK, oneshot_ns);
    }
    return grant;
}

/* Nothing is granted before cma and slab are known, then three times a few calls, then many if
 * oneshot is the fastest. */
static void test_grants(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 2 * HOOP_LEARNED_TRIES; i++) {
        assert_int_equal(announce(300, 200, 100), HOOP_GRANT_NONE);
    }
    for (unsigned i = 0; i < HOOP_LEARNED_TRIES; i++) {
        assert_int_equal(announce(300, 200, 100), HOOP_GRANT_TRY);
    }
    assert_int_equal(announce(300, 200, 100), HOOP_GRANT_MANY);
    assert_int_equal(hoop_learned_grants(&learned, HOOP_COLL_SCATTER, BLOCK, true),
                     HOOP_GRANT_NONE);
    assert_int_equal(hoop_learned_grants(&learned, HOOP_COLL_GATHER, 4 * BLOCK, true),
                     HOOP_GRANT_NONE);
    /* one slow call changes nothing; a machine that has become different does */
    hoop_learned_add_oneshot(&learned, HOOP_COLL_GATHER, BLOCK, 190);
    assert_int_equal(announce(300, 200, 100), HOOP_GRANT_MANY);
    unsigned many = 0;
    for (unsigned i = 0; i < 100; i++) {
        many += announce(300, 200, 400) == HOOP_GRANT_MANY;
    }
    assert_in_range(many, 1, 20);
}

/* A slower oneshot costs little, and is never given up. */
static void test_grants_slower(void **state)
{
    unsigned tried = 0, many = 0;
    (void)state;
    for (unsigned i = 0; i < 50000; i++) {
        const enum hoop_grant grant = announce(10000, 20000, i < 25000 ? 12000 : 5000);
        tried += i < 25000 && grant == HOOP_GRANT_TRY;
        many += grant == HOOP_GRANT_MANY;
        assert_true(i >= 25000 || grant != HOOP_GRANT_MANY);
    }
    assert_in_range(tried, 2 * HOOP_LEARNED_TRIES, 50);
    assert_in_range(many, 20000, 25000);
}

/* Where only one of cma and slab is possible, it is known after three calls. */
static void test_grants_one(void **state)
{
    (void)state;
    for (unsigned i = 0; i < HOOP_LEARNED_TRIES; i++) {
        assert_int_equal(hoop_learned_grants(&learned, HOOP_COLL_GATHER, BLOCK, false),
                         HOOP_GRANT_NONE);
        hoop_learned_add(&learned, HOOP_COLL_GATHER, BLOCK, false, 200);
    }
    for (unsigned i = 0; i < HOOP_LEARNED_TRIES; i++) {
        assert_int_equal(hoop_learned_grants(&learned, HOOP_COLL_GATHER, BLOCK, false),
                         HOOP_GRANT_TRY);
        hoop_learned_add_oneshot(&learned, HOOP_COLL_GATHER, BLOCK, 100);
    }
    assert_int_equal(hoop_learned_grants(&learned, HOOP_COLL_GATHER, BLOCK, false),
                     HOOP_GRANT_MANY);
}

static enum hoop_algo chosen(enum hoop_algo asked, enum hoop_choice choice, bool unreadable,
                             bool no_cma)
{
    const struct hoop_agreement agreed = {.algo = (uint64_t)asked, .no_cma = no_cma};
    const struct hoop_reach reach = {.unreadable = unreadable, .choice = (uint8_t)choice};
    const struct hoop_signature gather = {
        .collective = HOOP_COLL_GATHER, .type = HOOP_UINT8, .count = BLOCK};
    struct hoop_plan plan;
    hoop_plan_begin(&plan, &gather, 0, 2, false);
    hoop_plan_choose(&agreed, &reach, &plan);
    return plan.algo;
}

static void test_plan(void **state)
{
    (void)state;
    assert_int_equal(chosen(HOOP_ALGO_AUTO, HOOP_CHOICE_READ, false, false), HOOP_ALGO_CMA);
    assert_int_equal(chosen(HOOP_ALGO_AUTO, HOOP_CHOICE_COPY, false, false), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_ALGO_AUTO, HOOP_CHOICE_READ, true, false), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_ALGO_AUTO, HOOP_CHOICE_READ, false, true), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_ALGO_SLAB, HOOP_CHOICE_READ, false, false), HOOP_ALGO_SLAB);
    assert_int_equal(chosen(HOOP_ALGO_CMA, HOOP_CHOICE_COPY, false, false), HOOP_ALGO_CMA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_order, forget),
        cmocka_unit_test_setup(test_trying, forget),
        cmocka_unit_test_setup(test_change, forget),
        cmocka_unit_test_setup(test_cold, forget),
        cmocka_unit_test_setup(test_apart, forget),
        cmocka_unit_test(test_plan),
        cmocka_unit_test_setup(test_grants, forget),
        cmocka_unit_test_setup(test_grants_slower, forget),
        cmocka_unit_test_setup(test_grants_one, forget),
    };
    return cmocka_run_group_tests_name("learned", tests, NULL, NULL);
}

/*
 * How ranks are spread over machines, and when the torus is chosen.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "operation/plan.h"

#define MOST_RANKS 16

/* machines: a letter for each rank, in the order in which the lowest rank on each comes. */
static struct hoop_grid *spread(const char *machines)
{
    struct hoop_peer peers[MOST_RANKS] = {0};
    struct hoop_grid *ret = NULL;
    uint32_t n = 0;
    for (; machines[n] != '\0'; n++) {
        peers[n].machine = (uint32_t)(machines[n] - 'a');
    }
    assert_int_equal(hoop_plan_grid_create(peers, n, &ret), HOOP_OK);
    for (uint32_t place = 0; ret != NULL && place < n; place++) {
        assert_int_equal(ret->places[ret->ranks[place]], place);
        assert_int_equal(peers[ret->ranks[place]].machine, place / ret->each);
        assert_true(place % ret->each == 0 || ret->ranks[place - 1] < ret->ranks[place]);
    }
    return ret;
}

static void test_spread(void **state)
{
    (void)state;
    static const struct {
        const char *machines;
        uint32_t count, each;
    } rows[] = {
        {"aabb", 2, 2},   {"abab", 2, 2},   {"abba", 2, 2},      {"aabbcc", 3, 2},
        {"abcabc", 3, 2}, {"aaabbb", 2, 3}, {"abcabccba", 3, 3}, {"aaaabbbb", 2, 4},
        {"a", 0, 0},      {"aa", 0, 0},     {"ab", 0, 0},        {"abcd", 0, 0},
        {"aaab", 0, 0},   {"aabbc", 0, 0},  {"aabccb", 3, 2},    {"aaabbc", 0, 0},
        {"aabbbc", 0, 0},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hoop_grid *grid = spread(rows[i].machines);
        assert_int_equal(grid != NULL ? grid->machines : 0, rows[i].count);
        assert_int_equal(grid != NULL ? grid->each : 0, rows[i].each);
        free(grid);
    }
}

static enum hoop_algo chosen(const struct hoop_agreement *agreed, const struct hoop_grid *grid,
                             enum hoop_collective collective, uint64_t count)
{
    const struct hoop_signature signature = {
        .collective = collective, .type = HOOP_FLOAT32, .root = -1, .count = count};
    struct hoop_plan plan;
    const uint32_t n = grid != NULL ? grid->machines * grid->each : 4;
    hoop_plan_begin(&plan, &signature, 0, n, false);
    hoop_plan_links(agreed, grid, &plan);
    return plan.algo;
}

/* It moves less between machines than the ring, whatever the size; and never what others do. */
static void test_choice(void **state)
{
    (void)state;
    struct hoop_agreement agreed = {
        .lanes = 2, .chunk_bytes = 131072, .bruck_bytes = 65536, .no_rdma = 1};
    struct hoop_grid *grid = spread("aabb");
    const uint64_t large = 1 << 22;
    for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
        agreed.oversubscribed = oversubscribed != 0;
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_GATHER, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_REDUCE_SCATTER, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_BROADCAST, large), HOOP_ALGO_CHAIN);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_RING);
    }
    /* A step inside a machine is no matter of bytes, but it is a step. */
    struct hoop_grid *wide = spread("aaaaaaaabbbbbbbb");
    for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
        agreed.oversubscribed = oversubscribed != 0;
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 1), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 1024), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 16384), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_TORUS);
    }
    free(wide);
    agreed.order = HOOP_ORDER_RANK;
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_PAIRWISE);
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_GATHER, large), HOOP_ALGO_TORUS);
    free(grid);
}

/* Asked for where there is none, it is as if nothing had been asked for. */
static void test_asked(void **state)
{
    (void)state;
    struct hoop_agreement agreed = {
        .lanes = 2, .chunk_bytes = 131072, .bruck_bytes = 65536, .algo = HOOP_ALGO_TORUS};
    struct hoop_grid *grid = spread("abab");
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_TORUS);
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 0), HOOP_ALGO_BRUCK);
    assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_BRUCK);
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALLTOALL, 1), HOOP_ALGO_PAIRWISE);
    assert_true(hoop_plan_may_be_direct(&agreed, HOOP_COLL_ALL_REDUCE));
    assert_true(hoop_plan_may_read(&agreed, HOOP_COLL_ALL_REDUCE));
    free(grid);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread),
        cmocka_unit_test(test_choice),
        cmocka_unit_test(test_asked),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}

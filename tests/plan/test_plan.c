/*
 * How ranks are spread over machines, and which algorithm is chosen for that.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exec/board.h"
#include "plan/plan.h"

#define MOST_RANKS 16

/* machines: a letter for each rank; new letters come in alphabetical order. */
static struct hoop_grid *spread(const char *machines)
{
    struct hoop_peer peers[MOST_RANKS] = {0};
    struct hoop_grid *ret = NULL;
    uint32_t n = 0;
    for (; machines[n] != '\0'; n++) {
        peers[n].machine = (uint32_t)(machines[n] - 'a');
    }
    assert_int_equal(hoop_plan_grid_create(peers, n, &ret), HOOP_OK);
    for (uint32_t rank = 0; ret != NULL && rank < n; rank++) {
        assert_int_equal(ret->machine[rank], peers[rank].machine);
        assert_true(ret->first == NULL || (ret->first[ret->machine[rank]] <= rank &&
                                           rank < ret->first[ret->machine[rank] + 1]));
    }
    for (uint32_t place = 0; ret != NULL && ret->each > 0 && place < n; place++) {
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
        uint32_t count, each, most;
        bool in_order;
    } rows[] = {
        {"aabb", 2, 2, 2, true},    {"abab", 2, 2, 2, false},      {"abba", 2, 2, 2, false},
        {"aabbcc", 3, 2, 2, true},  {"abcabc", 3, 2, 2, false},    {"aaabbb", 2, 3, 3, true},
        {"aabccb", 3, 2, 2, false}, {"abcabccba", 3, 3, 3, false}, {"aaaabbbb", 2, 4, 4, true},
        {"a", 0, 0, 0, false},      {"aa", 0, 0, 0, false},        {"ab", 0, 0, 0, false},
        {"abcd", 0, 0, 0, false},   {"aaab", 2, 0, 3, true},       {"aabbc", 3, 0, 2, true},
        {"aaba", 0, 0, 0, false},   {"aaabbc", 3, 0, 3, true},     {"aabbbc", 3, 0, 3, true},
        {"abb", 2, 0, 2, true},     {"abbcb", 0, 0, 0, false},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct hoop_grid *grid = spread(rows[i].machines);
        assert_int_equal(grid != NULL ? grid->machines : 0, rows[i].count);
        assert_int_equal(grid != NULL ? grid->each : 0, rows[i].each);
        assert_int_equal(grid != NULL ? grid->most : 0, rows[i].most);
        assert_int_equal(grid != NULL && grid->first != NULL, rows[i].in_order);
        free(grid);
    }
}

static enum hoop_algo chosen(const struct hoop_agreement *agreed, const struct hoop_grid *grid,
                             enum hoop_collective collective, uint64_t count)
{
    const struct hoop_signature signature = {
        .collective = collective, .type = HOOP_FLOAT32, .root = -1, .count = count};
    struct hoop_plan plan;
    const uint32_t n = grid != NULL && grid->each > 0 ? grid->machines * grid->each : 4;
    hoop_plan_begin(&plan, &signature, 0, n, false);
    hoop_plan_links(agreed, grid, &plan);
    return plan.algo;
}

/* Small vectors take the fewest messages one after the other between machines, large ones send the
 * fewest bytes there. */
static void test_choice(void **state)
{
    (void)state;
    struct hoop_agreement agreed = {
        .lanes = 2, .chunk_bytes = 131072, .bruck_bytes = 65536, .no_rdma = 1};
    struct hoop_grid *grid = spread("aabb");
    const uint64_t large = 1 << 22;
    for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
        agreed.oversubscribed = oversubscribed != 0;
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 0), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALLTOALL, 0), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 0), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_GATHER, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_REDUCE_SCATTER, large), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_BROADCAST, 2), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_REDUCE, 2), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_GATHER, 256), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_SCATTER, 256), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALLTOALL, 256), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALLTOALL, large), HOOP_ALGO_PAIRWISE);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_REDUCE_SCATTER, 256),
                         HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, grid, HOOP_COLL_BROADCAST, large), HOOP_ALGO_CHAIN);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_RING);
    }
    /* On a large machine one rank gathers the bytes and hands them on. */
    struct hoop_grid *wide = spread("aaaaaaaabbbbbbbb");
    for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
        agreed.oversubscribed = oversubscribed != 0;
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 1), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 1024), HOOP_ALGO_HIERARCHICAL);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, 65536), HOOP_ALGO_TORUS);
        assert_int_equal(chosen(&agreed, wide, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_TORUS);
    }
    free(wide);
    /* More machines than ranks on each of them. */
    struct hoop_grid *many = spread("aabbccdd");
    for (int oversubscribed = 0; oversubscribed < 2; oversubscribed++) {
        agreed.oversubscribed = oversubscribed != 0;
        for (unsigned c = 0; c < HOOP_COLL_ALLTOALLV; c++) {
            const uint64_t some = c != HOOP_COLL_BARRIER;
            assert_int_equal(chosen(&agreed, many, (enum hoop_collective)c, some),
                             HOOP_ALGO_HIERARCHICAL);
            assert_int_equal(chosen(&agreed, many, (enum hoop_collective)c, 1024 * some),
                             HOOP_ALGO_HIERARCHICAL);
        }
    }
    free(many);
    /* Machines of different sizes, for which there is no torus. */
    struct hoop_grid *unlike = spread("aaab");
    assert_int_equal(chosen(&agreed, unlike, HOOP_COLL_ALL_REDUCE, 1), HOOP_ALGO_HIERARCHICAL);
    assert_int_equal(chosen(&agreed, unlike, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_RING);
    free(unlike);
    agreed.order = HOOP_ORDER_RANK;
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_BRUCK);
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_REDUCE, large), HOOP_ALGO_PAIRWISE);
    assert_int_equal(chosen(&agreed, grid, HOOP_COLL_ALL_GATHER, large), HOOP_ALGO_TORUS);
    free(grid);
}

/* Over RDMA one more message costs less than the bytes of one, so a rank sends copies to all others
 * only up to a few KiB. */
static void test_rdma(void **state)
{
    (void)state;
    struct hoop_agreement agreed = {.lanes = 2, .chunk_bytes = 131072, .bruck_bytes = 65536};
    for (int rdma = 0; rdma < 2; rdma++) {
        const enum hoop_algo medium = rdma != 0 ? HOOP_ALGO_PAIRWISE : HOOP_ALGO_BRUCK;
        agreed.no_rdma = rdma == 0;
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 2), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 1024), HOOP_ALGO_BRUCK);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 4096), medium);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 16384), HOOP_ALGO_PAIRWISE);
        assert_int_equal(chosen(&agreed, NULL, HOOP_COLL_ALL_REDUCE, 1 << 22), HOOP_ALGO_RING);
    }
}

/* An algorithm that can't be used here changes nothing when it is asked for. */
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

static struct hoop_plan slabs_of(bool oversubscribed, enum hoop_collective collective, uint32_t n,
                                 uint64_t count)
{
    const struct hoop_agreement agreed = {
        .algo = HOOP_ALGO_SLAB, .no_cma = 1, .oversubscribed = oversubscribed};
    const struct hoop_signature signature = {
        .collective = collective, .type = HOOP_FLOAT32, .root = 1, .count = count};
    const struct hoop_reach reach = {0};
    struct hoop_plan plan;
    hoop_plan_begin(&plan, &signature, 0, n, false);
    hoop_plan_choose(&agreed, &reach, &plan);
    assert_int_equal(plan.algo, HOOP_ALGO_SLAB);
    return plan;
}

static void check_slabs(enum hoop_collective collective, uint32_t n, uint64_t count, bool all_write)
{
    const struct hoop_plan plan = slabs_of(false, collective, n, count);
    const uint64_t bytes = plan.chunk * plan.type_bytes;
    const uint64_t most = HOOP_SLABS_BYTES / (all_write ? n - 1 : 1);
    assert_int_equal(plan.slabs, most / bytes > 2 ? most / bytes : 2);
    assert_true(bytes >= n * count * 4 || bytes == HOOP_SLAB_BYTES ||
                collective != HOOP_COLL_SCATTER);
    assert_true(hoop_slab_turns(&plan) >= 1);
    assert_int_equal(slabs_of(true, collective, n, count).slabs, 2);
}

/* Who writes for others only goes on to memory that nobody's own cache has, by whatever sizes; what
 * one rank reads of many is no more than that together. */
static void test_slabs(void **state)
{
    (void)state;
    static const struct {
        enum hoop_collective collective;
        bool all_write;
    } rooted[] = {{HOOP_COLL_BROADCAST, false},
                  {HOOP_COLL_SCATTER, false},
                  {HOOP_COLL_GATHER, true},
                  {HOOP_COLL_REDUCE, true}};
    for (size_t i = 0; i < sizeof(rooted) / sizeof(rooted[0]); i++) {
        const enum hoop_collective collective = rooted[i].collective;
        for (uint32_t n = 2; n <= 64; n += n < 6 ? 1 : 29) {
            for (uint64_t count = 1; count <= 1 << 22; count *= 2) {
                check_slabs(collective, n, count, rooted[i].all_write);
            }
        }
        assert_int_equal(slabs_of(false, collective, 2, 1 << 14).slabs,
                         collective == HOOP_COLL_SCATTER ? 16 : 32);
        assert_int_equal(slabs_of(false, collective, 64, 1 << 20).slabs,
                         rooted[i].all_write ? 2 : 8);
    }
    assert_int_equal(slabs_of(false, HOOP_COLL_ALL_GATHER, 4, 1 << 20).slabs, 2);
    assert_int_equal(slabs_of(false, HOOP_COLL_ALL_REDUCE, 4, 1 << 20).slabs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spread), cmocka_unit_test(test_choice), cmocka_unit_test(test_rdma),
        cmocka_unit_test(test_asked),  cmocka_unit_test(test_slabs),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}

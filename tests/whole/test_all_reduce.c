/*
 * all_reduce through the public API, ranks in one process (collective_world.h): the full matrix of
 * types x operations x ranks x awkward counts, for every algorithm.
 *
 *     test_all_reduce group ALGO     one thread drives all ranks by groups: the full matrix; with
 *                                    HOOP_TEST_SAMPLE=k a k-th of it, drawn
 *     test_all_reduce threads ALGO   a thread per rank: a seeded sample, for the sanitizers
 *     ... [seed]
 */
#include "whole/collective_world.h"

#include "reduce/reduce.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* Every type, op and count for n ranks; place, memory and alignment alternate. */
static void matrix(int n)
{
    struct world world;
    world_make(&world, n);
    unsigned turn = (unsigned)n;
    for (size_t i = 0; i < (size_t)WORLD_COUNTS * HOOP_NUM_OPS * HOOP_NUM_DATATYPES; i++, turn++) {
        const hoop_datatype_t type = (hoop_datatype_t)(i / WORLD_COUNTS / HOOP_NUM_OPS);
        const unsigned size = (unsigned)hoop_datatype_bytes(type);
        const struct world_shape shape = {
            .collective = HOOP_COLL_ALL_REDUCE,
            .type = type,
            .op = (hoop_red_op_t)(i / WORLD_COUNTS % HOOP_NUM_OPS),
            .count = world_counts[i % WORLD_COUNTS],
            .in_place = turn & 1,
            .mapped = turn & 2,
            .misalign = turn % 3 == 0   ? size % 64
                        : turn % 5 == 0 ? 1
                                        : 0,
        };
        if (!world_leaves_out()) {
            world_run(&world, &shape, false);
        }
    }
    world_end(&world);
}

static void test_matrix(void **state)
{
    (void)state;
    for (int n = 1; n <= WORLD_MOST_RANKS; n++) {
        matrix(n);
    }
}

/* Large enough for several chunks and slices. */
static void test_large(void **state)
{
    (void)state;
    world_sample(HOOP_COLL_ALL_REDUCE, 16, false, (size_t)5 << 20);
}

static void test_threads(void **state)
{
    (void)state;
    world_sample(HOOP_COLL_ALL_REDUCE, 20, true, (size_t)600 << 10);
}

/* Several operations on each comm in one group, which run in order. */
static void test_several_in_a_group(void **state)
{
    (void)state;
    struct world world;
    int64_t values[3][5];
    world_make(&world, 3);
    assert_int_equal(hoop_group_start(), HOOP_OK);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 5; i++) {
            values[r][i] = r + i;
            assert_int_equal(hoop_all_reduce(&values[r][i], &values[r][i], 1, HOOP_INT64, HOOP_SUM,
                                             world.ranks[r].comm, NULL),
                             HOOP_OK);
        }
        assert_int_equal(hoop_barrier(world.ranks[r].comm, NULL), HOOP_OK);
    }
    assert_int_equal(hoop_group_end(), HOOP_OK);
    for (int r = 0; r < 3; r++) {
        for (int i = 0; i < 5; i++) {
            assert_int_equal(values[r][i], 3 + 3 * i);
        }
    }
    world_end(&world);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_several_in_a_group),
    };
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_several_in_a_group),
    };
    bool by_threads = false;
    if (!world_options(argc, argv, &by_threads)) {
        return 2;
    }
    return by_threads ? cmocka_run_group_tests(threads, NULL, NULL)
                      : cmocka_run_group_tests(group, NULL, NULL);
}

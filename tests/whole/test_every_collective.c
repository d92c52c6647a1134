/*
 * Every collective through the public API, ranks in one process (collective_world.h): collectives x
 * roots x types x operations x awkward counts x in place x alignment x kind of memory.
 *
 *     test_every_collective group ALGO     one thread drives all ranks by groups
 *     test_every_collective threads ALGO   a thread per rank: a seeded sample, for the sanitizers
 *     ... [seed]
 */
#include "whole/collective_world.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* A collective with one count, with every root; the other parameters alternate. */
static void every_root(struct world *world, struct world_shape shape, unsigned *turn)
{
    static const hoop_datatype_t types[] = {HOOP_FLOAT32, HOOP_FLOAT16, HOOP_INT64, HOOP_UINT8};
    const int roots = hoop_collective_is_rooted(shape.collective) ? world->n : 1;
    for (shape.root = 0; shape.root < roots; shape.root++, (*turn)++) {
        shape.type = types[*turn % 4];
        shape.op =
            (hoop_red_op_t)(hoop_collectives[shape.collective].folds ? *turn % HOOP_NUM_OPS : 0);
        shape.in_place = (*turn & 1) != 0 && shape.collective != HOOP_COLL_ALLTOALL;
        shape.mapped = *turn & 2;
        shape.misalign = *turn % 3 == 0 ? 1 : 0;
        if (!world_leaves_out()) {
            world_run(world, &shape, false);
        }
    }
}

/* Every collective and root, in place and not, with a few awkward counts. */
static void test_all(void **state)
{
    (void)state;
    static const size_t counts[] = {0, 1, 3, 17, 1000};
    unsigned turn = 0;
    for (int n = 1; n <= WORLD_MOST_RANKS; n++) {
        struct world world;
        world_make(&world, n);
        for (unsigned i = 0; i < (unsigned)HOOP_COLL_COUNT * 5; i++) {
            const struct world_shape shape = {.collective = (enum hoop_collective)(i / 5),
                                              .count = counts[i % 5]};
            if (shape.collective != HOOP_COLL_ALL_REDUCE) {
                every_root(&world, shape, &turn);
            }
        }
        world_end(&world);
    }
}

static void test_sample(void **state)
{
    (void)state;
    world_sample(HOOP_COLL_COUNT, 50, false, (size_t)100 << 10);
    world_sample(HOOP_COLL_COUNT, 3, false, (size_t)2 << 20);
}

static void test_threads(void **state)
{
    (void)state;
    world_sample(HOOP_COLL_COUNT, 60, true, (size_t)200 << 10);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest group[] = {
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_sample),
    };
    const struct CMUnitTest threads[] = {
        cmocka_unit_test(test_threads),
    };
    bool by_threads = false;
    if (!world_options(argc, argv, &by_threads)) {
        return 2;
    }
    return by_threads ? cmocka_run_group_tests(threads, NULL, NULL)
                      : cmocka_run_group_tests(group, NULL, NULL);
}

/*
 * Small operations as fast as possible, with and without roots, often the same one many times. Each
 * rank is a thread, and one of them is slow now and then: ranks that run ahead of it must not
 * overwrite anything before all have taken it.
 *
 *     test_race ALGO [seed] [operations]
 */
#include "whole/collective_world.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define MOST_COUNT 80 /* more than fit into a cell */

static unsigned long operations = 20000;

/* Rank `slow` waits now and then, so that others can run ahead of it. */
struct racer {
    pthread_t thread;
    hoop_comm_t comm;
    int rank, n, slow;
    unsigned long count, wrong;
    hoop_result_t result;
};

static uint64_t race_input(unsigned long i, int rank, int block)
{
    return i * 1000003u + (uint64_t)rank * 101 + (uint64_t)block;
}

static bool race_is(const struct racer *racer, const struct world_shape *shape, unsigned long i,
                    const uint64_t *out)
{
    const enum hoop_collective collective = shape->collective;
    const size_t last = shape->count - 1;
    const int n = racer->n, me = racer->rank;
    const bool each = hoop_extent_is_each(hoop_collectives[collective].in);
    const int block = each ? me : 0;
    uint64_t sum = 0;
    bool right = true;
    for (int q = 0; q < n; q++) {
        sum += race_input(i, q, block);
        if (hoop_extent_is_each(hoop_collectives[collective].out)) {
            const uint64_t *from = out + (size_t)q * shape->count;
            right &= from[0] == race_input(i, q, block) && from[last] == from[0];
        }
    }
    if (hoop_collectives[collective].folds) {
        right = out[0] == sum && out[last] == sum;
    } else if (hoop_collectives[collective].in >= HOOP_EXTENT_ROOT_ONE) {
        right = out[0] == race_input(i, shape->root, block) && out[last] == out[0];
    }
    return right;
}

static void *race(void *arg)
{
    struct racer *racer = arg;
    uint64_t in[WORLD_MOST_RANKS * MOST_COUNT] = {0}, out[WORLD_MOST_RANKS * MOST_COUNT] = {0},
                                   random = world_seed; /* the same calls on all ranks */
    struct world_shape shape = {.type = HOOP_UINT64, .count = 1};
    for (unsigned long i = 0; i < racer->count && racer->result == HOOP_OK; i++) {
        random = random * 6364136223846793005ull + 1442695040888963407ull;
        if ((random >> 33) % 16 == 0) {
            shape.collective = (enum hoop_collective)((random >> 40) % HOOP_COLL_COUNT);
            shape.root = (int)((random >> 50) % (unsigned)racer->n);
            shape.count = (random >> 37) % 8 == 0 ? MOST_COUNT : 1;
        }
        const struct world_rank rank = {
            .comm = racer->comm, .in.data = (uint8_t *)in, .out.data = (uint8_t *)out};
        for (size_t at = 0; at < (size_t)racer->n * shape.count; at++) {
            in[at] = race_input(i, racer->rank, (int)(at / shape.count));
        }
        racer->result = world_call(&rank, &shape);
        const uint8_t extent = hoop_collectives[shape.collective].out;
        if (hoop_extent_blocks(extent, 1, racer->rank == shape.root) > 0 &&
            !race_is(racer, &shape, i, out)) {
            racer->wrong++;
        }
        for (volatile int spin = 0; racer->rank == racer->slow && i % 64 == 0 && spin < 3000;) {
            spin = spin + 1;
        }
    }
    return NULL;
}

static void test_race(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3};
    for (unsigned s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        struct world world;
        struct racer racers[WORLD_MOST_RANKS];
        world_make(&world, sizes[s]);
        for (int r = 0; r < world.n; r++) {
            racers[r] = (struct racer){.comm = world.ranks[r].comm,
                                       .rank = r,
                                       .n = world.n,
                                       .slow = (int)(world_seed % (unsigned)world.n),
                                       .count = operations};
            assert_int_equal(pthread_create(&racers[r].thread, NULL, race, &racers[r]), 0);
        }
        for (int r = 0; r < world.n; r++) {
            pthread_join(racers[r].thread, NULL);
        }
        for (int r = 0; r < world.n; r++) {
            assert_int_equal(racers[r].result, HOOP_OK);
            assert_int_equal(racers[r].wrong, 0);
        }
        world_end(&world);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_race)};
    if (argc < 2) {
        fprintf(stderr, "usage: %s ALGO [seed] [operations]\n", argv[0]);
        return 2;
    }
    world_algo = argv[1];
    world_seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    operations = argc > 3 ? strtoul(argv[3], NULL, 10) : operations;
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/*
 * Copies in pieces: each comes before the first step that touches what it fetches. Which that is,
 * is said here by hand, for a part of a step that one algorithm alone has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "exec/overlap.h"

#define COUNT 32768u

/* Three ranks of two machines, in place: the last of a machine folds its own vector long before it
 * receives the result. */
static void test_own_vector(void **state)
{
    (void)state;
    static const uint32_t machine[] = {0, 0, 1}, first[] = {0, 2, 3};
    const struct hoop_grid grid = {.machines = 2, .most = 2, .machine = machine, .first = first};
    struct hoop_plan plan = {.algo = HOOP_ALGO_HIERARCHICAL,
                             .me = 1,
                             .n = 3,
                             .lanes = 1,
                             .type_bytes = 1,
                             .in_place = true,
                             .count = COUNT,
                             .chunk = COUNT,
                             .grid = &grid};
    hoop_step_fn *steps = hoop_algo_steps(HOOP_COLL_ALL_REDUCE, plan.algo);
    struct hoop_step step;
    uint64_t folds = 0;
    do {
        assert_true(steps(&plan, 0, folds++, &step));
    } while (step.local.op != HOOP_LOCAL_REDUCE);
    static char host[COUNT], device[COUNT];
    const struct hoop_staging_piece pieces[] = {{device, 0, COUNT, false},
                                                {device, 0, COUNT, true}};
    const struct hoop_overlap_buffers buffers = {pieces, 2, host, COUNT, host, host};
    struct hoop_overlap overlap = {0};
    hoop_overlap_cut(&overlap, &buffers, &plan, steps);
    assert_true(overlap.fetches > 0 && overlap.count > overlap.fetches);
    for (size_t i = 0; i < overlap.fetches; i++) {
        assert_true(overlap.parts[i].step < folds);
    }
    free(overlap.parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_vector),
    };
    setenv("HOOP_CUDA_PIECE_BYTES", "4096", 1);
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}

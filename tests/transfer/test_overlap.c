/*
 * Copies in pieces: each piece is fetched before the first step that accesses it. The expected step
 * is written down here for one kind of access that only one algorithm has.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "transfer/overlap.h"

#define COUNT 32768u
#define MANY ((size_t)131072)

/* Three ranks on two machines, in place: the last rank of a machine folds its own vector long
 * before it receives the result. */
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

/* A sum in place by the ring, with more than two ranks. */
static void cut_ring(struct hoop_overlap *overlap, size_t bytes)
{
    static char host[MANY], device[MANY];
    const struct hoop_plan plan = {.collective = HOOP_COLL_ALL_REDUCE,
                                   .algo = HOOP_ALGO_RING,
                                   .n = 4,
                                   .lanes = 2,
                                   .type_bytes = 1,
                                   .in_place = true,
                                   .count = bytes,
                                   .chunk = 1000};
    const struct hoop_staging_piece pieces[] = {{device, 0, bytes, false},
                                                {device, 0, bytes, true}};
    overlap->count = 0;
    hoop_overlap_cut(overlap, &(struct hoop_overlap_buffers){pieces, 2, host, bytes, host, host},
                     &plan, hoop_algo_steps(plan.collective, plan.algo));
}

/* Within a piece, parts that follow each other in memory become one copy; parts come in that
 * order. */
static void test_order(void **state)
{
    struct hoop_overlap overlap = {0};
    struct hoop_overlap_piece piece = {0, 0};
    size_t copies = 0;
    (void)state;
    cut_ring(&overlap, MANY);
    overlap.begun = true;
    for (uint32_t mark = 1; piece.to < overlap.fetches; mark++) {
        piece = hoop_overlap_fetch(&overlap, mark);
        assert_true(piece.from < piece.to);
        hoop_overlap_arrive(&overlap, mark);
        for (size_t i = piece.from; i < piece.to; i++) {
            const struct hoop_overlap_part *part = &overlap.parts[i];
            assert_true(i == piece.from || part->host > part[-1].host);
            copies += i == piece.from || part->host > part[-1].host + part[-1].bytes;
        }
    }
    assert_in_range(copies, 1, MANY / 4096 * 4); /* a run in each rank's part, for each piece */
    free(overlap.parts);
}

/* The pieces cover all parts from `from` on, once, and are not too many or too small. Returns the
 * part behind them. */
static size_t expect_whole(const struct hoop_overlap *overlap, const struct hoop_flow_pieces *of,
                           size_t from, size_t bytes)
{
    size_t all = 0;
    assert_in_range(of->count, 1, HOOP_FLOW_MOST);
    for (uint32_t i = 0; i < of->count; i++) {
        const struct hoop_flow_piece *piece = &of->pieces[i];
        size_t mine = 0;
        assert_int_equal(piece->parts.from, from);
        assert_true(piece->last <= piece->next);
        for (; from < piece->parts.to; from++) {
            mine += overlap->parts[from].bytes;
        }
        assert_true(mine >= 4096 || i + 1 == of->count);
        all += mine;
    }
    assert_true(of->pieces[of->count - 1].next == UINT64_MAX);
    assert_int_equal(all, bytes);
    return from;
}

static void test_flow(void **state)
{
    static const size_t sizes[] = {8192, 30001, MANY};
    struct hoop_overlap overlap = {0};
    struct hoop_flow flow;
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        cut_ring(&overlap, sizes[i]);
        hoop_flow_make(&flow, &overlap);
        assert_int_equal(expect_whole(&overlap, &flow.fetch, 0, sizes[i]), overlap.fetches);
        assert_int_equal(expect_whole(&overlap, &flow.deliver, overlap.fetches, sizes[i]),
                         overlap.count);
        /* each piece has one run of columns of every rank's part, or two if the lanes are uneven */
        assert_in_range(overlap.count, 1, 2 * HOOP_FLOW_MOST * 8);
    }
    free(overlap.parts);
}

/* Counters that wrap around, and pieces of earlier calls that are still to come. */
static void test_flow_words(void **state)
{
    _Atomic uint32_t came = UINT32_MAX - 3, go = 7;
    struct hoop_overlap overlap = {0};
    struct hoop_flow flow;
    (void)state;
    cut_ring(&overlap, MANY);
    hoop_flow_make(&flow, &overlap);
    flow.came = &came;
    flow.before = UINT32_MAX - 1;
    flow.go = &go;
    flow.held = UINT32_MAX - 4;
    for (int early = 0; early < 3; early++, came++) {
        assert_false(hoop_flow_has_begun(&flow));
        hoop_flow_move(&flow, 0);
        assert_true(flow.ready == 0 && go == 7);
    }
    for (uint32_t i = 0; i < flow.fetch.count; i++, came++) {
        assert_true(hoop_flow_has_begun(&flow));
        hoop_flow_move(&flow, 0);
        assert_true(flow.ready == flow.fetch.pieces[i].next);
    }
    for (uint32_t i = 0; i + 1 < flow.deliver.count; i++) {
        hoop_flow_move(&flow, flow.deliver.pieces[i].last);
        assert_true(flow.delivered <= i);
        hoop_flow_move(&flow, flow.deliver.pieces[i].last + 1);
        assert_true(flow.delivered > i && go == flow.held + flow.delivered);
    }
    hoop_flow_move(&flow, UINT64_MAX);
    assert_int_equal(flow.delivered,
                     flow.deliver.count - 1); /* the last is not its own to let go */
    free(overlap.parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own_vector),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_flow),
        cmocka_unit_test(test_flow_words),
    };
    setenv("HOOP_CUDA_PIECE_BYTES", "4096", 1);
    return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
